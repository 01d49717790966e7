"""Certified bounds of a number, and estimates: two types, never taken for each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from tightbudget.errors import ParameterError
from tightbudget.numerics.rounding import (
    add_down,
    add_up,
    mul_down,
    mul_up,
    next_down,
    next_up,
    sub_down,
    sub_up,
)
from tightbudget.numerics.validate import number, plain, refuse

__all__ = ["Bounds", "Estimate", "rounded"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """A real number that is proved to lie in [lower, upper].

    Guarantee: the exact value is >= ``lower`` and <= ``upper``; rounding is included.
    ``upper`` may be inf. A bound that no float holds is rounded outwards. Arithmetic (+, -, * with
    a non-negative factor) rounds outwards.

    >>> print(Bounds(1.23451, 1.23462))
    [1.23450, 1.23463]
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not type(self.lower) is float is type(self.upper):
            object.__setattr__(self, "lower", _end(up=False, lower=self.lower))
            object.__setattr__(self, "upper", _end(up=True, upper=self.upper))
        if not self.lower <= self.upper:
            raise ParameterError(
                f"lower must be <= upper, got lower={self.lower!r}, upper={self.upper!r}"
            )

    @property
    def width(self) -> float:
        """``upper - lower``, rounded up (0 when the two bounds are equal, also at inf)."""
        return 0.0 if self.lower == self.upper else sub_up(self.upper, self.lower)

    @property
    def relative_gap(self) -> float:
        """``(upper - lower) / upper``, which ``rtol`` limits; 0 when the two bounds are equal."""
        if self.lower == self.upper:
            return 0.0
        return self.width / self.upper if math.isfinite(self.upper) else math.inf

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper

    def __add__(self, other: Bounds | float) -> Bounds:
        other = _as_bounds(other)
        return Bounds(add_down(self.lower, other.lower), add_up(self.upper, other.upper))

    __radd__ = __add__

    def __sub__(self, other: Bounds | float) -> Bounds:
        other = _as_bounds(other)
        return Bounds(sub_down(self.lower, other.upper), sub_up(self.upper, other.lower))

    def __mul__(self, factor: float) -> Bounds:
        if not 0 <= factor < math.inf:
            raise ParameterError(f"factor must be a finite number >= 0, got {factor!r}")
        f = _as_bounds(factor)
        least = f.upper if self.lower < 0 else f.lower
        most = f.lower if self.upper < 0 else f.upper
        return Bounds(mul_down(self.lower, least), mul_up(self.upper, most))

    __rmul__ = __mul__

    def overlaps(self, other: Bounds) -> bool:
        """Whether the two intervals have a number in common."""
        return self.lower <= other.upper and other.lower <= self.upper

    def to_dict(self) -> dict[str, float]:
        """Returns ``{"lower": ..., "upper": ...}``."""
        return {"lower": self.lower, "upper": self.upper}

    def __str__(self) -> str:
        if self.lower == self.upper:
            return f"[{self.lower!r}, {self.upper!r}]"
        digits = _digits(self)
        return f"[{rounded(self.lower, digits, up=False)}, {rounded(self.upper, digits, up=True)}]"


def _as_bounds(x: Bounds | float) -> Bounds:
    return x if isinstance(x, Bounds) else Bounds(x, x)


def _end(*, up: bool, **given: Any) -> float:
    """Rounds a number of any type to a float: to one >= the number if ``up``, else to one <= it.

    ``given`` is one keyword, ``name=value``; a refusal quotes both.
    """
    ((name, value),) = given.items()
    exact = plain(value)
    if isinstance(exact, bool) or not isinstance(exact, (int, float, Fraction, Decimal)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    x = number(**given)
    if isinstance(exact, float) or not math.isfinite(x):
        return x
    if up:
        return x if x >= Fraction(exact) else next_up(x)
    return x if x <= Fraction(exact) else next_down(x)


def _digits(bounds: Bounds) -> int:
    """Counts the decimal digits that are printed of each bound, so that the gap shows in the last.

    17 digits tell any two doubles apart; an infinite upper bound prints beside six digits.
    """
    width = bounds.upper - bounds.lower
    if not math.isfinite(width):
        return 6
    magnitude = max(abs(bounds.lower), abs(bounds.upper))
    return min(17, max(2, math.ceil(math.log10(magnitude / width)) + 1)) if width else 17


def rounded(x: float, digits: int, *, up: bool) -> str:
    """Writes ``x`` with ``digits`` significant digits, rounded up or down and never to nearest."""
    if not math.isfinite(x) or x == 0:
        return repr(x)
    exact = Decimal(x)
    quantum = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    rounded = exact.quantize(quantum, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    if -5 < exact.adjusted() < 16:  # where repr of a float has no exponent either
        return format(rounded, "f") if exact.adjusted() < digits else str(float(rounded))
    mantissa, _, exponent = f"{rounded:e}".partition("e")
    return f"{mantissa}e{int(exponent):+03d}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number that is *not* certified, and that no budget can be charged with.

    Attributes:
        value: the number.
        method: where it comes from.
    """

    value: float
    method: str

    def __post_init__(self) -> None:
        if isinstance(self.value, (bool, np.bool_)):
            raise refuse("value", "be a number", self.value)
        object.__setattr__(self, "value", float(plain(self.value)))

    def __str__(self) -> str:
        return f"about {self.value:.6g} ({self.method}, not certified)"
