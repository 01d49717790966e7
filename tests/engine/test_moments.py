"""A delta below all that is answered for is shown by a Renyi divergence, from above."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
from tests.exact import response_delta

import tightbudget as tb
from tightbudget.engine import methods
from tightbudget.engine.answer import Answer
from tightbudget.engine.buckets.compose import Parts
from tightbudget.engine.methods import ByMoments, Inquiry
from tightbudget.engine.question import DeltaAt, EpsilonAt
from tightbudget.engine.readings.renyi import renyi_divergence

SMALL = {
    "rare": (tb.Gaussian(25.7).subsampled(1.91e-9) * 386_000, 2.26),
    "schedule": (
        tb.compose([tb.Gaussian(13.3 + 0.6 * i).subsampled(1.7e-4) * 16_000 for i in range(16)]),
        2.16,
    ),
    "gaussian": (tb.Gaussian(10.0) * 3, 8.0),
    "two mechanisms": (tb.Laplace(0.001) + tb.Gaussian(1.0).subsampled(0.1), 1060.0),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("run", "epsilon"), SMALL.values(), ids=SMALL)
def test_a_delta_below_all_that_is_answered_for_is_reached(
    run: tb.Composition, epsilon: float
) -> None:
    told = run.answer(epsilon=epsilon)
    assert told.reached
    assert told.bounds.lower == 0.0
    assert told.bounds.upper <= 1e-290


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 6.0, 9.0])
@pytest.mark.parametrize("runs", [40, 130])
def test_it_is_above_a_binomial_sum(
    runs: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the size of delta, Chernoff's bound is not below it."""
    monkeypatch.setattr(methods, "_HARDLY", 1.0)
    monkeypatch.setattr(methods, "FLOOR", math.inf)
    parts = (tb.RandomizedResponse(0.75) * runs).engine.parts
    proved = ByMoments(parts).bounds(Inquiry(DeltaAt(epsilon), 1e-4))
    _, exact = response_delta(Fraction(3, 4), runs, epsilon)
    assert proved is not None
    assert exact <= Fraction(proved.bounds.upper)


@pytest.mark.parametrize("epsilon", [4.0, 8.0, 30.0])
def test_it_is_above_a_gaussians_formula(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """And above it by less than the tails of neighbouring tilts differ."""
    monkeypatch.setattr(methods, "_HARDLY", 1.0)
    monkeypatch.setattr(methods, "FLOOR", math.inf)
    parts = (tb.Gaussian(2.0) * 4).engine.parts
    proved = ByMoments(parts).bounds(Inquiry(DeltaAt(epsilon), 1e-4))
    assert proved is not None
    with mpmath.workdps(60):
        m, e = mpmath.mpf(1), mpmath.mpf(epsilon)  # four runs of sensitivity / sigma = 1/2
        exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        assert (
            exact <= mpmath.mpf(proved.bounds.upper) <= max(1e-299, 1e4 * exact ** mpmath.mpf(0.9))
        )


def test_no_rounding_brings_it_below_chernoffs_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """e^(s D - s epsilon) g(s) of the same order and divergence, at 60 digits."""
    monkeypatch.setattr(methods, "_HARDLY", 1.0)
    monkeypatch.setattr(methods, "FLOOR", math.inf)
    parts = (tb.Gaussian(2.0) * 4).engine.parts
    asked: list[tuple[float, float]] = []

    def divergence(directions: tuple[Parts, ...], order: float, rtol: float) -> Answer:
        told = renyi_divergence(directions, order, rtol)
        asked.append((order, told.bounds.upper))
        return told

    monkeypatch.setattr(methods, "renyi_divergence", divergence)
    for i in range(60):
        epsilon = 12.0 + 0.4 * i
        proved = ByMoments(parts).bounds(Inquiry(DeltaAt(epsilon), 1e-4))
        assert proved is not None
        with mpmath.workdps(60):
            order, most = map(mpmath.mpf, asked[-1])
            s = order - 1
            log = s * (most - mpmath.mpf(epsilon)) + s * mpmath.log(s) - order * mpmath.log(order)
            assert mpmath.exp(log) <= mpmath.mpf(proved.bounds.upper)


def test_it_says_nothing_where_delta_is_larger_or_an_epsilon_is_asked() -> None:
    parts = (tb.Gaussian(1.0) * 2).engine.parts
    assert ByMoments(parts).bounds(Inquiry(DeltaAt(3.0), 1e-4)) is None
    assert ByMoments(parts).bounds(Inquiry(EpsilonAt(1e-6), 1e-4)) is None


def test_a_mass_at_infinity_is_no_small_delta() -> None:
    run = tb.ApproximateDP(0.1, 1e-9) + tb.Gaussian(10.0)
    assert ByMoments(run.engine.parts).bounds(Inquiry(DeltaAt(50.0), 1e-4)) is None
    assert run.delta(50.0).lower > 0.9e-9
