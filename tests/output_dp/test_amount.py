"""What a number means: the decimal that was written, or the binary end of a proof."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tightbudget as tb
from tightbudget.output_dp.amount import (
    exact,
    exact_positive,
    exact_probability,
    printed_down,
    printed_up,
)

TENTH = Fraction(1, 10)


@pytest.mark.parametrize(
    ("given_", "means"),
    [
        (0.1, TENTH),
        (np.float64(0.1), TENTH),
        (np.float32(0.1), Fraction(13421773, 2**27)),  # its exact value, which is above 1/10
        (1e-300, Fraction(1, 10**300)),
        (Decimal("0.1"), TENTH),
        (Decimal(0), 0),
        (Fraction(1, 3), Fraction(1, 3)),
        (1, 1),
        (np.int64(1), 1),
        (tb.Bounds(0.05, 0.1), Fraction(0.1)),  # the double, which is above 1/10
        (tb.Bounds(0.0, 5e-324), Fraction(5e-324)),
    ],
)
def test_what_a_number_means(given_: Any, means: Fraction) -> None:
    assert exact(epsilon=given_) == means
    assert type(exact(epsilon=given_).numerator) is int


@given(st.floats(0, allow_infinity=False), st.floats(0, allow_infinity=False))
def test_the_end_of_bounds_is_never_rounded_and_a_float_is_what_it_prints(a: float, b: float):
    low, high = sorted((a, b))
    assert exact(epsilon=tb.Bounds(low, high)) == Fraction(high)
    assert exact(epsilon=high) == Fraction(repr(high))


NO_NUMBER = [
    *(math.nan, math.inf, -math.inf, -1, -0.1, True, np.True_, "0.1", b"1", None, 1j, [1.0]),
    *(np.nan, np.float32("inf"), Decimal("nan"), Decimal("sNaN"), Decimal("inf")),
    *(Decimal("1e999999999"), Decimal("1e-999999999"), Fraction(-1, 3)),
    *(tb.Bounds(0.1, math.inf), tb.Bounds(-2.0, -1.0)),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("value", NO_NUMBER, ids=repr)
@pytest.mark.parametrize(
    ("door", "must"),
    [
        (exact, "be a finite number >= 0"),
        (exact_positive, "be a finite number > 0"),
        (exact_probability, "be in [0, 1]"),
    ],
)
def test_refusals_name_the_parameter_and_the_value(door: Any, must: str, value: Any) -> None:
    with pytest.raises(tb.ParameterError) as caught:
        door(price=value)
    assert str(caught.value) == f"price must {must}, got {value!r}"


def test_zero_is_not_positive_and_two_is_no_probability() -> None:
    assert exact(x=0.0) == 0
    with pytest.raises(tb.ParameterError, match=r"x must be a finite number > 0, got 0\.0"):
        exact_positive(x=0.0)
    for value in (2, 1.0000000000000002, tb.Bounds(0.5, 1.0000000000000002)):
        with pytest.raises(tb.ParameterError, match=r"x must be in \[0, 1\], got "):
            exact_probability(x=value)
    assert exact_probability(x=1.0) == 1


def test_an_estimate_is_not_charged() -> None:
    with pytest.raises(tb.ParameterError, match=r"epsilon must be certified \(an Estimate"):
        exact(epsilon=tb.Estimate(0.1, "Renyi"))


# Fractions of all sizes, near and far from doubles
FRACTIONS = st.one_of(
    st.fractions(0, 10),
    st.floats(0, 1e300).map(Fraction),
    st.builds(lambda x, k: Fraction(x) + Fraction(1, 10**k), st.floats(0, 10), st.integers(1, 400)),
)


@given(FRACTIONS)
def test_on_the_way_back_the_printed_decimal_is_on_the_safe_side_and_the_nearest_one(x: Fraction):
    down, up = printed_down(x), printed_up(x)
    assert 0 <= exact(left=down) <= x <= exact(spent=up)
    assert math.nextafter(down, math.inf) >= up


def test_decimals_come_back_as_they_were_written() -> None:
    for text in ("0.1", "0.3", "0.7", "1e-07", "0.123456789012345"):
        assert repr(printed_down(Fraction(text))) == repr(printed_up(Fraction(text))) == text


def test_beyond_the_range_of_doubles() -> None:
    huge = Fraction(10**400)
    assert printed_up(huge) == math.inf
    assert exact(left=printed_down(huge)) <= huge
    assert printed_down(1 / huge) == 0.0
    assert printed_up(1 / huge) == 5e-324
