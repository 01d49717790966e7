"""Bounds hold to the last bit: the exact value is inside, with no tolerance."""

from __future__ import annotations

import math
import random

import mpmath as mp
import pytest
from tests.cases import CASES, CORE, Case
from tests.truths import DIGITS, ENOUGH, truth

import tightbudget as tb
from tightbudget.mechanisms import Mechanism

# beside the cases: parameters whose quotients, multiples and exponentials no double holds
UNEVEN = [
    Case("curve-one-way-of-two", tb.FromCurve(
        (0.1, 5.0), (0.001927371770293331, 0.00029440276563260834), both_ways=False)),
    Case("curve-of-three", tb.FromCurve((0.3, 0.7, 1.1), (0.21, 0.09, 0.011))),
    Case("curve-below-zero", tb.FromCurve((-0.7, 0.1, 2.3), (0.6, 0.13, 0.0), both_ways=False)),
    Case("curve-on-the-line", tb.FromCurve(
        (-0.7, 1.3), (-math.expm1(-0.7), 0.01), both_ways=False)),
    Case("curve-of-zero", tb.FromCurve((0.0,), (0.1,))),
    Case("group-gaussian", tb.Gaussian(0.3, sensitivity=0.1).group(3)),
    Case("group-laplace-whole", tb.Laplace(0.3, sensitivity=0.1).group(3)),
    Case("group-logistic", tb.Logistic(0.7, sensitivity=0.1).group(7)),
    Case("group-truncated", tb.TruncatedGaussian(0.3, bound=1.1, sensitivity=0.1).group(3)),
    Case("group-truncated-laplace", tb.TruncatedLaplace(0.3, 1.1, sensitivity=0.1).group(3)),
    Case("response-uneven", tb.RandomizedResponse(0.6, categories=7)),
    Case("worst-case-uneven", tb.ApproximateDP(0.0157, 1e-7)),
    Case("histogram-uneven", tb.HistogramPair((0.1, 0.2, 0.7), (0.3, 0.3, 0.3), smoothing=0.1)),
    Case("discrete-laplace-uneven", tb.DiscreteLaplace(0.7, sensitivity=3)),
]  # fmt: skip

KNOWN = [
    case for case in [*CASES, *UNEVEN] if truth(case.mechanism, tb.mechanisms.Direction.REMOVE)
]


def _holds(mechanism: Mechanism, epsilons: list[float], rtol: float) -> None:
    with mp.workdps(DIGITS):
        curves = [truth(mechanism, direction) for direction in tb.mechanisms.Direction]
        for epsilon in epsilons:
            exact = max(curve(mp.mpf(epsilon)) for curve in curves if curve is not None)
            bounds = (mechanism * 1).answer(epsilon=epsilon, rtol=rtol).bounds
            assert mp.mpf(bounds.lower) <= exact * (1 + ENOUGH) + ENOUGH, (epsilon, bounds.lower)
            assert exact * (1 - ENOUGH) - ENOUGH <= mp.mpf(bounds.upper), (epsilon, bounds.upper)


def _epsilons(mechanism: Mechanism, draws: random.Random, many: int) -> list[float]:
    """Places between 0 and the largest loss, or where delta is small; and 0."""
    top = (mechanism * 1).epsilon(1e-12, rtol=0.1).upper
    top = top if 0.0 < top < 100.0 else 5.0
    return [
        0.0,
        *(round(draws.uniform(0.0, 1.05) * top, draws.choice([2, 17])) for _ in range(many)),
    ]


def _closest(case: Case) -> float:
    """The gap that is asked for: a few units, or what buckets know in milliseconds."""
    if case.name == "either-sampled":
        return 1e-8  # buckets reach 1e-9, and for a smaller gap they search for seconds
    if case.name in ("sampled-gaussian-0.25", "sampled-twice"):
        return 1e-11  # the formula's own gap is up to 2e-12, and buckets search for seconds
    return 1e-4 if "truncated" in case.name or case.name == "either-of-all" else 1e-12


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case.name,
            marks=() if case.name in CORE or case in UNEVEN else pytest.mark.slow,
        )
        for case in KNOWN
    ],
)
def test_one_run_has_its_exact_delta_between_its_bounds(case: Case) -> None:
    draws = random.Random(case.name)
    _holds(case.mechanism, _epsilons(case.mechanism, draws, 5), _closest(case))


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in KNOWN])
def test_one_run_has_its_exact_delta_between_its_bounds_at_many_places(case: Case) -> None:
    draws = random.Random(f"many {case.name}")
    _holds(case.mechanism, _epsilons(case.mechanism, draws, 40), _closest(case))


def test_most_kinds_of_mechanisms_have_a_formula() -> None:
    kinds = {case.mechanism.kind for case in KNOWN}
    assert kinds >= {
        "gaussian", "laplace", "logistic", "truncated_gaussian", "truncated_laplace",
        "randomized_response", "worst_case", "histogram", "discrete_laplace", "curve", "group",
        "either", "subsampled",
    }  # fmt: skip
