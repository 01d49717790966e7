"""Sums, and advanced composition: formulas in exact or ball arithmetic, and the engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from flint import arb, ctx
from hypothesis import example, given
from hypothesis import strategies as st
from tests.balls import ball

import tightbudget as tb
from tightbudget.theorems import advanced, kov, naive


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = before


STEPS = st.lists(
    st.tuples(st.floats(0, 10), st.floats(0, 1) | st.just(1e-12), st.integers(1, 50)),
    max_size=6,
)


@pytest.mark.slow
@given(STEPS)
@example([(0.0, 5e-324, 2)])
@example([(0.0, 1.2e-308, 3), (0.0, 5e-324, 7)])
def test_the_sums_hold_the_exact_ones(steps: list[tuple[float, float, int]]) -> None:
    epsilon = sum((Fraction(e) * k for e, _, k in steps), Fraction(0))
    total = min(Fraction(1), sum((Fraction(d) * k for _, d, k in steps), Fraction(0)))
    none = math.prod((1 - Fraction(d)) ** k for _, d, k in steps)
    for theorem, delta in ((naive.total, total), (naive.adaptive, 1 - none)):
        eps_bounds, delta_bounds = theorem(steps)
        for bounds, exact in ((eps_bounds, epsilon), (delta_bounds, delta)):
            assert Fraction(bounds.lower) <= exact <= Fraction(bounds.upper)
            assert bounds.width <= 1e-12 * bounds.upper + 1e-299


def test_one_of_both_is_the_better_one() -> None:
    steps = [(0.1, 1e-3, 100), (0.2, 0.0, 5)]
    assert naive.adaptive(steps)[1].upper < naive.total(steps)[1].lower
    assert naive.total([]) == naive.adaptive([]) == (tb.Bounds(0.0, 0.0), tb.Bounds(0.0, 0.0))


def exact_advanced(eps: float, k: int, slack: arb) -> arb:
    e = ball(eps)
    return e * (2 * k * -slack.log()).sqrt() + k * e * (e.exp() - 1)


@given(
    st.floats(1e-6, 2), st.sampled_from([0.0, 1e-9]), st.integers(1, 10**6), st.floats(1e-250, 0.9)
)
def test_advanced_composition_is_rounded_up_and_hardly(
    eps: float, each: float, k: int, delta: float
) -> None:
    found = advanced.epsilon(eps, each, k, delta).upper
    slack = ball(delta) - k * ball(each)
    if slack <= 0:
        assert found == math.inf
        return
    exact = exact_advanced(eps, k, slack)
    assert exact <= found
    assert found <= exact * (1 + 1e-12) or slack < 1e-6 * ball(delta)
    # the other way round: the slack that this epsilon leaves
    back = advanced.delta(eps, each, k, found).upper
    far = (ball(found) - k * ball(eps) * (ball(eps).exp() - 1)) / ball(eps)
    assert k * ball(each) + (-far * far / (2 * k)).exp() <= back + 1e-299
    assert back <= delta * (1 + 1e-6) or math.expm1(eps) * eps * k > 1e3


def test_the_worst_case_never_exceeds_what_advanced_composition_promises() -> None:
    for eps, each, k in ((0.01, 0.0, 1000), (0.1, 1e-8, 100), (1.0, 0.0, 10)):
        for delta in (1e-3, 1e-5):
            promised = advanced.epsilon(eps, each, k, delta).upper
            assert kov.epsilon(eps, each, k, delta).upper <= promised
            if promised < k * eps:
                assert (
                    advanced.delta(eps, each, k, promised).upper
                    >= kov.delta(eps, each, k, promised).lower
                )


def test_the_ends_of_the_scale() -> None:
    assert advanced.epsilon(0.1, 1e-3, 100, 0.05) == tb.Bounds(0.0, math.inf)
    assert advanced.epsilon(0.0, 0.0, 5, 0.1).upper < 1e-300
    assert advanced.delta(0.1, 0.0, 100, 0.0) == tb.Bounds(0.0, 1.0)
    assert advanced.delta(0.0, 0.0, 100, 0.5).upper < 1e-299
    assert advanced.delta(800.0, 0.0, 1, 1e6).upper == 1.0
    assert advanced.epsilon(800.0, 0.0, 1, 0.1).upper == math.inf


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: naive.total([(0.1, 0.1)]), r"steps\[0\] must be \(epsilon, delta, runs\)"),  # type: ignore[list-item]
        (lambda: naive.total([(-0.1, 0.1, 1)]), r"steps\[0\].epsilon must be a finite number >= 0"),
        (lambda: naive.adaptive([(0.1, 2, 1)]), r"steps\[0\].delta must be in \[0, 1\], got 2"),
        (lambda: naive.adaptive([(0.1, 0, 0)]), r"steps\[0\].runs must be an integer >= 1, got 0"),
        (lambda: advanced.epsilon(-1.0, 0.0, 1, 0.1), "step_epsilon must be a finite number >= 0"),
        (lambda: advanced.epsilon(1.0, -1.0, 1, 0.1), r"step_delta must be in \[0, 1\], got -1.0"),
        (lambda: advanced.epsilon(1.0, 0.0, 0, 0.1), "runs must be an integer >= 1, got 0"),
        (lambda: advanced.epsilon(1.0, 0.0, 1, 2.0), r"delta must be in \[0, 1\], got 2.0"),
        (lambda: advanced.delta(1.0, 0.0, 1, math.nan), "epsilon must be a finite number >= 0"),
    ],
)
def test_refusals(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        ask()
