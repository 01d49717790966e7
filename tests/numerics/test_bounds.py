"""Intervals: arithmetic outwards, printed digits that are certified, and no mixing of types."""

from __future__ import annotations

import dataclasses
import math
import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tightbudget as tb
from tightbudget.numerics.bounds import Bounds, Estimate

numbers = st.floats(-1e150, 1e150, allow_subnormal=False)


@st.composite
def intervals(draw: st.DrawFn, least: float = -1e150) -> Bounds:
    values = st.floats(least, 1e150, allow_subnormal=False)
    a, b = draw(values), draw(values)
    return Bounds(min(a, b), max(a, b))


def ends(bounds: Bounds) -> tuple[Fraction, Fraction]:
    return Fraction(bounds.lower), Fraction(bounds.upper)


@given(intervals(), intervals())
def test_sums_and_differences_round_outwards(x: Bounds, y: Bounds) -> None:
    (a, b), (c, d) = ends(x), ends(y)
    low, high = ends(x + y)
    assert low <= a + c
    assert b + d <= high
    low, high = ends(x - y)
    assert low <= a - d
    assert b - c <= high


@given(intervals(), numbers)
def test_a_number_is_an_interval_of_no_width(x: Bounds, y: float) -> None:
    assert x + y == x + Bounds(y, y) == y + x
    assert x - y == x - Bounds(y, y)


@given(intervals(), st.floats(0, 1e150, allow_subnormal=False))
def test_products_round_outwards(x: Bounds, factor: float) -> None:
    low, high = ends(x * factor)
    assert low <= Fraction(x.lower) * Fraction(factor)
    assert Fraction(x.upper) * Fraction(factor) <= high
    assert factor * x == x * factor


@given(intervals())
def test_the_width_is_not_below_the_exact_one(x: Bounds) -> None:
    assert Fraction(x.width) >= Fraction(x.upper) - Fraction(x.lower)
    assert (x.width == 0) == (x.lower == x.upper)


@given(intervals(0.0))
def test_the_relative_gap_is_what_rtol_limits(x: Bounds) -> None:
    assume(x.upper > 0)
    exact = (Fraction(x.upper) - Fraction(x.lower)) / Fraction(x.upper)
    assert float(exact) <= x.relative_gap * (1 + 1e-12) + 1e-15
    assert x.relative_gap <= float(exact) * (1 + 1e-12) + 1e-15


def test_an_infinite_upper_end() -> None:
    unknown = Bounds(1.0, math.inf)
    assert unknown.width == math.inf
    assert unknown.relative_gap == math.inf
    assert 1e308 in unknown
    assert (unknown + 1.0).upper == math.inf
    assert Bounds(math.inf, math.inf).relative_gap == 0.0
    assert Bounds(math.inf, math.inf).width == 0.0


@pytest.mark.parametrize(
    ("lower", "upper"), [(2.0, 1.0), (math.nan, 1.0), (0.0, math.nan), (math.inf, 0.0)]
)
def test_ends_in_the_wrong_order_are_refused(lower: float, upper: float) -> None:
    with pytest.raises(tb.ParameterError, match=r"lower must be <= upper, got lower="):
        Bounds(lower, upper)


@pytest.mark.parametrize("factor", [-1.0, math.nan, math.inf, -0.5])
def test_factors_are_finite_and_not_negative(factor: float) -> None:
    with pytest.raises(tb.ParameterError, match=r"factor must be a finite number >= 0, got"):
        Bounds(1.0, 2.0) * factor


@given(intervals(), intervals())
def test_membership_and_overlap(x: Bounds, y: Bounds) -> None:
    assert x.lower in x
    assert x.upper in x
    assert x.overlaps(y) == y.overlaps(x) == (max(x.lower, y.lower) <= min(x.upper, y.upper))


def printed(text: str) -> tuple[Fraction, Fraction]:
    found = re.fullmatch(r"\[(\S+), (\S+)\]", text)
    assert found, text
    return Fraction(found[1]), Fraction(found[2])


certified = st.one_of(
    intervals(0.0),
    intervals(),
    st.builds(
        lambda m, e, w: Bounds(m * 10.0**e, m * 10.0**e * (1 + 10.0**w)),
        st.floats(0.1, 10.0),
        st.integers(-300, 300),
        st.floats(-17.0, 3.0),
    ).filter(lambda b: b.upper < math.inf),
)


@given(certified)
def test_what_is_printed_contains_what_is_certified(x: Bounds) -> None:
    low, high = printed(str(x))
    if x.lower == x.upper:  # shown so that it reads back as the same double
        assert float(low) == x.lower == float(high)
    else:
        assert low <= Fraction(x.lower)
        assert Fraction(x.upper) <= high


@given(certified)
def test_no_digit_is_printed_that_the_gap_does_not_support(x: Bounds) -> None:
    assume(x.lower < x.upper)
    low, high = printed(str(x))
    gap = Fraction(x.upper) - Fraction(x.lower)
    largest = max(abs(Fraction(x.lower)), abs(Fraction(x.upper)))
    # little is given away: a unit of the last digit is at most the gap, and each end moves by less
    # than a unit; two digits at most are shown where the ends differ
    assert high - low <= 3 * gap + Fraction(1, 10**15) * largest
    for end, text in zip((x.lower, x.upper), str(x)[1:-1].split(", "), strict=True):
        digits = re.sub(r"e.*|[-.]", "", text).strip("0") if end else ""
        assert len(digits) <= 2 or Fraction(10) ** (len(digits) - 3) <= largest / gap


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        (Bounds(1.23451, 1.23462), "[1.23450, 1.23463]"),
        (Bounds(1.21e-6, 1.2299e-6), "[1.21e-06, 1.23e-06]"),
        (Bounds(0.0, 0.0), "[0.0, 0.0]"),
        (Bounds(2.0, math.inf), "[2.00000, inf]"),
        (Bounds(0.5, 0.5), "[0.5, 0.5]"),
    ],
)
def test_how_bounds_look(bounds: Bounds, text: str) -> None:
    assert str(bounds) == text


def test_bounds_are_values() -> None:
    x = Bounds(1.0, 2.0)
    assert x == Bounds(1.0, 2.0)
    assert hash(x) == hash(Bounds(1.0, 2.0))
    assert x.to_dict() == {"lower": 1.0, "upper": 2.0}
    with pytest.raises(dataclasses.FrozenInstanceError):
        x.lower = 0.0  # type: ignore[misc]


def test_an_estimate_is_of_another_type() -> None:
    guess: Any = Estimate(1.5, "a guess")
    assert str(guess) == "about 1.5 (a guess, not certified)"
    assert not isinstance(guess, Bounds)
    assert not hasattr(guess, "upper")
    for mixed in (
        lambda: Bounds(0.0, 1.0) + guess,
        lambda: Bounds(0.0, 1.0) - guess,
        lambda: Bounds(0.0, 1.0) * guess,
        lambda: guess + Bounds(0.0, 1.0),
        lambda: float(guess),
        lambda: Bounds(0.0, guess),
    ):
        with pytest.raises(TypeError):
            mixed()
