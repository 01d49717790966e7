"""Printed decimals: what they stand for, and what certified bounds say of them."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tightbudget as tb
from tightbudget.numerics.printed import Printed


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("8.0", "7.9", "8.1"),
        ("8", "7", "9"),
        ("0.00", "-0.01", "0.01"),
        ("1.50e-3", "1.49e-3", "1.51e-3"),
        ("2e2", "100", "300"),
        (" 1.25 ", "1.24", "1.26"),
    ],
)
def test_a_decimal_stands_for_one_unit_of_its_last_place(text: str, least: str, most: str) -> None:
    printed = Printed.of(epsilon=text)
    assert (printed.least, printed.most) == (Fraction(least), Fraction(most))
    assert printed.text == text.strip()


@pytest.mark.parametrize("value", [8.0, np.float64(8.0), Decimal("8.0")])
def test_a_number_is_the_decimal_that_python_prints(value: Any) -> None:
    assert Printed.of(epsilon=value) == Printed.of(epsilon="8.0")


def test_infinity_has_no_unit() -> None:
    for value in (math.inf, "inf", "Infinity"):
        printed = Printed.of(epsilon=value)
        assert (printed.text, printed.value, printed.least, printed.most) == ("inf",) + (None,) * 3
        assert printed.judged(tb.Bounds(1.0, 2.0)) == "inf"
        assert printed.judged(tb.Bounds(1.0, math.inf)) == "agrees"


@pytest.mark.parametrize(
    "value", ["nan", "-1.0", "-0.0", math.nan, "1_0", "eight", "", True, None, [8.0], "9" * 101]
)
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(tb.ParameterError, match="epsilon must be a number >= 0 as printed"):
        Printed.of(epsilon=value)


@pytest.mark.parametrize("value", ["1e999999999", "1e-401", "1e401", "0e999999999"])
def test_a_number_beyond_all_doubles_is_refused_at_once(value: str) -> None:
    with pytest.raises(tb.ParameterError, match="digits within 400 places of the point"):
        Printed.of(epsilon=value)


def test_verdicts_of_drawn_numbers_and_bounds() -> None:
    draws = random.Random(37)
    for _ in range(2000):
        places = draws.randrange(8)
        printed = Printed.of(epsilon=f"{10 ** draws.uniform(-3, 3):.{places}f}")
        assert printed.value is not None
        assert printed.least is not None
        assert printed.most is not None
        ends = sorted(10 ** draws.uniform(-3, 3) for _ in range(2))
        if draws.random() < 0.5:  # near to it
            ends = sorted(float(printed.value) * (1 + draws.uniform(-1e-3, 1e-3)) for _ in range(2))
        verdict = printed.judged(tb.Bounds(*ends))
        lower, upper = map(Fraction, ends)
        # some number that the decimal stands for lies in the bounds, or all on one side
        meets = printed.least <= upper and lower <= printed.most
        assert (verdict == "agrees") == meets
        assert (verdict == "too low") == (printed.most < lower)
        assert (verdict == "too high") == (printed.least > upper)


def test_at_infinite_bounds_every_number_is_too_low() -> None:
    assert Printed.of(epsilon="1e300").judged(tb.Bounds(math.inf, math.inf)) == "too low"
    assert Printed.of(epsilon="1e300").judged(tb.Bounds(1.0, math.inf)) == "agrees"
