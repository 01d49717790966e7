"""Prices and budgets are exact rational numbers; how a number that somebody gives becomes one.

The rule: a plain float is what a person wrote, so it means the decimal that it prints as (0.1 is
1/10); so does np.float64, which is a float. The upper end of a :class:`Bounds` is what a proof
ended at, so it means its binary value, exactly. int, Fraction and Decimal mean themselves, and
np.float16, np.float32 and np.longdouble their exact values: they print fewer digits, which may be
less. From there on nothing is rounded. On the way back to a float the same rule holds:
``printed_up(x)`` prints as a decimal that is at least x.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tightbudget.numerics.bounds import Bounds, Estimate
from tightbudget.numerics.rounding import next_down, next_up
from tightbudget.numerics.validate import plain, refuse

__all__ = ["Price", "exact", "exact_positive", "exact_probability", "printed_down", "printed_up"]

Price = float | Fraction | Decimal | Bounds

_LARGEST = Fraction(sys.float_info.max)


def exact(**given: Any) -> Fraction:
    """The finite number >= 0 that is charged, exactly: ``exact(epsilon=0.1)`` is 1/10."""
    return _exact(given, "be a finite number >= 0", lambda x: x >= 0)


def exact_positive(**given: Any) -> Fraction:
    """The same, for a number > 0."""
    return _exact(given, "be a finite number > 0", lambda x: x > 0)


def exact_probability(**given: Any) -> Fraction:
    """The same, for a number in [0, 1]."""
    return _exact(given, "be in [0, 1]", lambda x: 0 <= x <= 1)


def _exact(given: dict[str, Any], must: str, test: Callable[[Fraction], bool]) -> Fraction:
    ((name, value),) = given.items()
    if isinstance(value, Estimate):
        raise refuse(name, "be certified (an Estimate cannot be charged to a budget)", value)
    x = _rational(value)
    if x is None or not test(x):
        raise refuse(name, must, value)
    return x


def _rational(value: object) -> Fraction | None:
    """The number that a value stands for; None if it stands for none."""
    if isinstance(value, Bounds):
        return Fraction(value.upper) if math.isfinite(value.upper) else None
    value = plain(value)
    if isinstance(value, bool):
        return None  # an int in Python, not a number here
    if isinstance(value, float):
        return Fraction(repr(value)) if math.isfinite(value) else None
    if isinstance(value, Decimal):
        # beyond the range of doubles the digits of a fraction would fill the memory
        fits = value.is_finite() and (not value or 0 < abs(float(value)) < math.inf)
        return Fraction(value) if fits else None
    return Fraction(value) if isinstance(value, (int, Fraction)) else None


def printed_up(x: Fraction) -> float:
    """The least double that prints as a decimal >= x (inf above the range of doubles)."""
    try:
        y = float(x)
    except OverflowError:
        return math.inf
    return y if Fraction(repr(y)) >= x else next_up(y)


def printed_down(x: Fraction) -> float:
    """The largest double that prints as a decimal <= x."""
    y = float(min(x, _LARGEST))
    return y if Fraction(repr(y)) <= x else next_down(y)
