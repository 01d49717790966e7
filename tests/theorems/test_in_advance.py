"""Exponential mechanisms that are chosen in advance: against sums over all outcomes."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import special as sp

import tightbudget as tb
from tightbudget.theorems import in_advance


def revealed(span: float, ts: tuple[float, ...], epsilon: float) -> float:
    """Delta of one pair for each run, by a sum over all outcomes."""
    total = 0.0
    for low in itertools.product((False, True), repeat=len(ts)):
        p, loss = 1.0, 0.0
        for t, lower in zip(ts, low, strict=True):
            high = -math.expm1(t - span) / -math.expm1(-span)
            p *= 1.0 - high if lower else high
            loss += t - span if lower else t
        total += p * max(0.0, -math.expm1(epsilon - loss))
    return total


@pytest.mark.parametrize(("span", "runs"), [(1.0, 1), (1.0, 2), (0.3, 3), (4.0, 3)])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.55, 0.9])
def test_no_pairs_reveal_more_and_one_for_all_reveals_as_much(
    span: float, runs: int, share: float
) -> None:
    epsilon = share * runs * span
    found = in_advance.delta(span, runs, epsilon)
    grid = np.linspace(0.0, span, 13 if runs == 3 else 60).tolist()
    most = max(revealed(span, ts, epsilon) for ts in itertools.product(grid, repeat=runs))
    assert most <= found.upper * (1 + 1e-12)
    fine = np.linspace(0.0, span, 2001).tolist()
    common = max(revealed(span, (t,) * runs, epsilon) for t in fine)
    assert common == pytest.approx(found.lower, rel=1e-4, abs=1e-14)
    assert found.upper - found.lower <= 1e-9 * found.upper


@pytest.mark.parametrize(
    ("span", "runs", "epsilon"),
    [(0.1, 100, 2.0), (0.1, 100, 9.0), (0.5, 20, 5.0), (0.01, 120, 0.2)],
)
def test_values_with_forty_digits(span: float, runs: int, epsilon: float) -> None:
    found = in_advance.delta(span, runs, epsilon)
    with mpmath.workdps(40):
        e, y, best = mpmath.mpf(span), mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(0)
        for few in range(runs):
            t = (epsilon + (few + 1) * e) / (runs + 1)
            if t < e:
                q = (1 - mpmath.exp(-t)) / (1 - mpmath.exp(-e))
                p = q * mpmath.exp(t - e)
                terms = (
                    mpmath.binomial(runs, i)
                    * (p**i * (1 - p) ** (runs - i) - y * q**i * (1 - q) ** (runs - i))
                    for i in range(few + 1)
                )
                best = max(best, mpmath.fsum(terms))
    assert found.lower <= best <= found.upper
    assert found.relative_gap <= 1e-8


@pytest.mark.parametrize(
    ("span", "runs", "epsilon"), [(0.1, 100, 2.246026), (0.5, 20, 5.393048), (0.1, 1000, 8.300645)]
)
def test_epsilons_are_below_those_of_adaptive_choices(
    span: float, runs: int, epsilon: float
) -> None:
    found = in_advance.epsilon(span, runs, 1e-6)
    assert found.lower <= found.upper <= found.lower * (1 + 1e-9)
    assert found.lower == pytest.approx(epsilon, abs=1e-6)
    adaptive = (tb.ExponentialMechanism(span) * runs).epsilon(1e-6)
    assert found.upper < adaptive.lower < 1.01 * found.lower


def test_ends() -> None:
    assert in_advance.delta(0.5, 4, 2.0) == tb.Bounds(0.0, 0.0)
    assert in_advance.epsilon(0.5, 4, 1.0).upper <= 1e-290
    assert in_advance.epsilon(0.5, 4, 0.0).upper == pytest.approx(2.0)
    one = in_advance.delta(1.0, 1, 0.3)
    exact = (math.exp(0.5) - math.exp(0.15)) ** 2 / math.expm1(1.0)
    assert one.lower <= exact * (1 + 1e-12)
    assert exact <= one.upper * (1 + 1e-12)


def test_an_epsilon_beyond_doubles_has_the_bound_of_a_smaller_one() -> None:
    assert in_advance.delta(50.0, 30, 1000.0) == tb.Bounds(
        0.0, in_advance.delta(50.0, 30, 690.0).upper
    )
    # the largest loss of all runs together is 1,500
    assert in_advance.delta(50.0, 30, 690.0).lower > 0.0
    assert in_advance.epsilon(50.0, 30, 1e-9).upper <= 1500.0 * (1 + 1e-12)


def test_binomial_sums_are_as_close_as_is_granted() -> None:
    generator = np.random.default_rng(5)
    for _ in range(40):
        n = int(generator.integers(1, 60))
        few, rate = int(generator.integers(0, n)), float(generator.random())
        exact = sum(
            math.comb(n, i) * Fraction(rate) ** i * (1 - Fraction(rate)) ** (n - i)
            for i in range(few + 1)
        )
        assert float(sp.bdtr(few, n, rate)) == pytest.approx(float(exact), rel=1e-11)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: in_advance.delta(0.0, 3, 1.0), "step_epsilon must be in [1e-06, 50], got 0.0"),
        (lambda: in_advance.delta(math.nan, 3, 1.0), "step_epsilon must be"),
        (lambda: in_advance.delta(0.1, 0, 1.0), "runs must be an integer >= 1, got 0"),
        (lambda: in_advance.delta(0.1, 20_001, 1.0), "runs must be at most 20,000, got 20001"),
        (lambda: in_advance.delta(0.1, 3, -1.0), "epsilon must be"),
        (lambda: in_advance.epsilon(0.1, 3, 1.5), "delta must be"),
    ],
)
def test_bad_questions_are_refused(ask: object, message: str) -> None:
    with pytest.raises(tb.ParameterError, match=re.escape(message)):
        ask()  # type: ignore[operator]
