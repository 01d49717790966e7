"""Sampling without replacement: against the formula in ball arithmetic, and a small exact case."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from flint import ctx
from hypothesis import given
from hypothesis import strategies as st
from tests.balls import ball

import tightbudget as tb
from tightbudget.theorems.sampling import without_replacement


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 1300  # of 1 + 1e-300, too
    yield
    ctx.prec = before


@given(st.floats(0.0, 1e4), st.floats(0.0, 1.0), st.floats(0.0, 1.0, exclude_max=True))
def test_it_is_the_formula_rounded_up(epsilon: float, delta: float, rate: float) -> None:
    moved, less = without_replacement(epsilon, delta, rate)
    # e^moved - 1 >= rate (e^epsilon - 1), and no more than rounding above it
    assert ball(rate) * ball(epsilon).expm1() <= ball(moved).expm1()
    assert moved <= epsilon
    exact = (1 + ball(rate) * ball(epsilon).expm1()).log()
    # beyond 709 e^epsilon is no double, and epsilon itself is the answer
    assert epsilon > 709 or ball(moved) <= exact * ball(1 + 1e-14) + ball(1e-300)
    share = Fraction(rate) * Fraction(delta)
    assert share <= Fraction(less) <= share * Fraction(1 + 1e-14) + Fraction(1e-323)


def test_one_of_two_records_that_answers_at_random() -> None:
    """The answer of one of two records, chosen at random: its exact delta is that of the bound."""
    p = 0.75
    for epsilon in (0.0, 0.1, 0.5, math.log(3.0)):
        # the other record answers truly with the same probability: 1/2 of the masses is common
        there, gone = (p + p) / 2, (1 - p + p) / 2
        moved, less = without_replacement(
            epsilon, (tb.RandomizedResponse(p) * 1).delta(epsilon).upper, 0.5
        )
        t = math.exp(moved)
        exact = max(0.0, there - t * gone) + max(0.0, (1 - there) - t * (1 - gone))
        assert exact <= less * (1 + 1e-12) + 1e-15
    assert without_replacement(1.0, 0.3, 1.0)[0] == 1.0
    assert max(without_replacement(1.0, 0.3, 0.0)) < 1e-300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1.0, 0.1, 0.5), "epsilon must be a finite number >= 0, got -1.0"),
        ((1.0, 1.5, 0.5), r"delta must be in \[0, 1\], got 1.5"),
        ((1.0, 0.1, math.nan), r"rate must be .*, got nan"),
    ],
)
def test_refusals(arguments: tuple[float, float, float], message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        without_replacement(*arguments)
