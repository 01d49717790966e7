"""The distribution of the noise on an answer: its standard deviation and its half widths."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guards.mutants import Without, each, lose_a_truth

from tightbudget.errors import ParameterError
from tightbudget.tables.error_laws import NoiseLaw

SCALES = st.floats(0.05, 20.0)
CONFIDENCES = st.one_of(
    st.sampled_from([0.5, 0.9, 0.95, 0.99, 1 - 1e-9, 1e-9]), st.floats(0.001, 0.9999)
)


def tails(kind: str, scale: float, most: int) -> tuple[list[mpmath.mpf], mpmath.mpf]:
    """P(|noise| > t) for t = 0 .. most - 1, and the variance, by sums of weights in 60 digits."""
    with mpmath.workdps(60):
        s = mpmath.mpf(scale)
        far = range(1, most + 1)
        if kind == "laplace":
            weights = [mpmath.exp(-mpmath.mpf(n) / s) for n in far]
        else:
            weights = [mpmath.exp(-(mpmath.mpf(n) ** 2) / (2 * s * s)) for n in far]
        whole = 1 + 2 * mpmath.fsum(weights)
        above, found = mpmath.mpf(0), []
        for weight in reversed(weights):
            above += 2 * weight
            found.append(above / whole)
        squares = mpmath.fsum(n * n * w for n, w in zip(far, weights, strict=True))
        return found[::-1], 2 * squares / whole


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@settings(max_examples=12)
@given(scale=SCALES, confidence=CONFIDENCES)
def test_the_half_width_is_enough_and_nearly_the_least(
    kind: str, scale: float, confidence: float
) -> None:
    law = NoiseLaw(kind=kind, scale=scale)  # type: ignore[arg-type]
    above, _ = tails(kind, scale, int(40 * scale) + 60)
    miss = (
        1
        - mpmath.mpf(Fraction(repr(confidence)).numerator) / Fraction(repr(confidence)).denominator
    )
    width = int(law.half_width(confidence))
    assert above[width] <= miss * (1 + 1e-20)
    if width >= 2:
        assert above[width - 2] > miss


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@settings(max_examples=12)
@given(scale=SCALES)
def test_the_std_is_that_of_the_sum(kind: str, scale: float) -> None:
    law = NoiseLaw(kind=kind, scale=scale, step=0.25)  # type: ignore[arg-type]
    _, variance = tails(kind, scale, int(60 * scale) + 60)
    assert law.std == pytest.approx(0.25 * float(mpmath.sqrt(variance)), rel=1e-12)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_no_scale_and_no_confidence_is_too_large(kind: str) -> None:
    for scale in (5e-324, 1e-300, 1e-3, 1.0, 2.0**40):
        law = NoiseLaw(kind=kind, scale=scale)  # type: ignore[arg-type]
        assert 0 <= law.std < math.inf
        widths = [law.half_width(c) for c in (1e-300, 1e-9, 0.5, 0.95, math.nextafter(1, 0))]
        assert widths == sorted(widths)
        assert widths[-1] <= 40 * scale + 2
        assert all(width == int(width) for width in widths)


def test_a_coarse_grid_pays_for_its_rounding() -> None:
    law = NoiseLaw(kind="laplace", scale=3.0, step=8.0)
    coarse = NoiseLaw(kind="laplace", scale=3.0, step=8.0, rounding=4.0)
    assert coarse.std == law.std
    assert law.half_width(0.95) + 4 <= coarse.half_width(0.95) < law.half_width(0.95) + 4.001


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 95, math.nan, True, "0.95", None])
def test_a_confidence_is_between_0_and_1(confidence: object) -> None:
    law = NoiseLaw(kind="laplace", scale=3.0)
    with pytest.raises(ParameterError, match=re.escape("confidence must be in (0, 1), got ")):
        law.half_width(confidence)  # type: ignore[arg-type]


def half_of_the_noise_is_not_enough() -> bool:
    law = NoiseLaw(kind="gaussian", scale=7.3)
    above, _ = tails("gaussian", 7.3, 500)
    return bool(above[int(law.half_width(0.95))] <= 0.05)


MUTATIONS = [
    Without(
        "the half width is of both tails",
        {"both-tails": "sigmas = -ndtri(miss)"},
        half_of_the_noise_is_not_enough,
    ),
]


@each(MUTATIONS)
def test_without_the_guard_noise_leaves_its_interval(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
