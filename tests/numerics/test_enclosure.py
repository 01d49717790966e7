"""Enclosures against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import example, given
from hypothesis import strategies as st

from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure, stack, where
from tightbudget.numerics.rounding import TINY

numbers = st.one_of(
    st.just(0.0),
    st.floats(0.0, 1e308),
    st.floats(0.0, 1.0),
    st.floats(-300.0, 300.0).map(lambda power: 10.0**power),
)


@st.composite
def enclosed(draw) -> tuple[Enclosure, Fraction]:
    """An enclosure and a number inside it; the upper end may be infinite."""
    low, middle, high = sorted(draw(st.tuples(numbers, numbers, numbers)))
    if draw(st.booleans()):
        low = high = middle
    elif draw(st.integers(0, 4)) == 0:
        high = np.inf
    return Enclosure(np.array([low]), np.array([high])), Fraction(middle)


def holds(enclosure: Enclosure, truth: Fraction) -> bool:
    (low,), (high,) = enclosure.lower.tolist(), enclosure.upper.tolist()
    assert 0 <= low < np.inf
    assert low <= high
    return Fraction(low) <= truth and (high == np.inf or truth <= Fraction(high))


@given(enclosed(), enclosed())
def test_sums_differences_products_and_quotients_hold_the_exact_ones(x, y):
    (a, p), (b, q) = x, y
    assert holds(a + b, p + q)
    assert holds(a * b, p * q)
    if p >= q:
        assert holds(a - b, p - q)
    if q > 0:
        assert holds(a / b, p / q)


@given(enclosed(), numbers)
def test_scaling(x, factor):
    (a, p) = x
    assert holds(a.scaled(factor), p * Fraction(factor))


@given(st.floats(1e-290, 1e290), st.floats(1e-10, 1e10))
def test_exact_numbers_stay_sharp(x, y):
    for result in (exact(x) + exact(y), exact(x) * exact(y), exact(x) / exact(y)):
        (low,), (high,) = result.lower.tolist(), result.upper.tolist()
        assert high - low <= 4e-15 * high or high <= 2 * TINY


@given(st.floats(-750.0, 750.0), st.one_of(st.just(0.0), st.floats(0.0, 200.0)), st.floats(-1, 1))
@example(x=-745.2, slack=0.0, share=0.0)
@example(x=709.9, slack=0.0, share=0.0)
def test_exp_holds_every_exponent_within_the_slack(x, slack, share):
    got = exp_enclosure(x, slack)
    with ctx.workprec(1500):
        truth = (arb(x) + arb(slack) * arb(share)).exp()
    assert arb(got.lower[0]) <= truth
    assert got.upper[0] == np.inf or truth <= arb(got.upper[0])


def test_exp_at_the_ends():
    got = exp_enclosure(np.array([-np.inf, np.inf, 0.0]))
    assert got.upper.tolist()[:2] == [0.0, np.inf]
    assert got.lower[0] == 0.0
    assert got.lower[1] > 1e308
    assert got.upper[2] - got.lower[2] < 1e-14


def test_nothing_times_infinity_is_nothing():
    unbounded = Enclosure(np.zeros(1), np.array([np.inf]))
    assert (exact(0.0) * unbounded).upper[0] == 0.0
    assert (exact(0.0) / unbounded).upper[0] == 0.0
    assert (unbounded - unbounded).upper[0] == np.inf


def test_a_product_that_underflows_may_still_be_positive():
    got = exact(1e-200) * exact(1e-200)
    assert got.lower[0] == 0.0
    assert got.upper[0] >= TINY


@given(enclosed(), enclosed())
def test_clipping_keeps_what_both_hold(x, y):
    (a, _), (b, q) = x, y
    if holds(a, q):
        assert holds(a.clipped(b.lower, b.upper), q)


def test_stack_where_and_index():
    both = stack(exact(np.array([1.0, 2.0])), exact(3.0))
    assert both.lower.tolist() == [1.0, 2.0, 3.0]
    assert len(both) == 3
    assert both[1].upper.tolist() == [2.0]
    assert both[1:].upper.tolist() == [2.0, 3.0]
    chosen = where(np.array([True, False, True]), both, exact(np.zeros(3)))
    assert chosen.upper.tolist() == [1.0, 0.0, 3.0]


@pytest.mark.parametrize("operation", ["+", "-", "*", "/"])
def test_the_rounding_is_not_left_out(operation):
    """1/3-like results: a sharp double would not be an enclosure."""
    a, b = exact(1.0 + 2**-52), exact(3.0e-7)
    got = {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[operation]
    assert got.lower[0] < got.upper[0]
