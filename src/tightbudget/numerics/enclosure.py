"""Arrays of non-negative numbers known to lie between two ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tightbudget.numerics.rounding import TINY, FloatArray, scale_down, scale_up

__all__ = ["Enclosure", "exact", "exp_enclosure", "stack"]


@dataclass(frozen=True)
class Enclosure:
    """Guarantee: entry by entry, 0 <= lower <= exact value <= upper.

    Operations round outwards. ``upper`` may be inf; an exact 0 is lower = upper = 0.
    """

    lower: FloatArray  # (n,)
    upper: FloatArray  # (n,)

    def __len__(self) -> int:
        return int(self.lower.size)

    def __getitem__(self, index: Any) -> Enclosure:
        return Enclosure(np.atleast_1d(self.lower[index]), np.atleast_1d(self.upper[index]))

    def __add__(self, other: Enclosure) -> Enclosure:
        return Enclosure(
            scale_down(self.lower + other.lower, 1), scale_up(self.upper + other.upper, 1)
        )

    def __mul__(self, other: Enclosure) -> Enclosure:
        with np.errstate(invalid="ignore", over="ignore"):
            upper = self.upper * other.upper
        upper = np.where((self.upper == 0) | (other.upper == 0), 0.0, upper)  # 0 * inf is 0 here
        # a product that vanished by underflow is not zero
        positive = (self.upper > 0) & (other.upper > 0)
        upper = np.where(positive, np.maximum(upper, TINY), upper)
        with np.errstate(invalid="ignore", over="ignore"):
            lower = self.lower * other.lower
        lower = np.where((self.lower == 0) | (other.lower == 0), 0.0, lower)
        return Enclosure(_settled(scale_down(lower, 1)), scale_up(upper, 1))

    def scaled(self, factor: float) -> Enclosure:
        """Times an exact finite factor >= 0."""
        return self * exact(np.full(len(self), factor))

    def __sub__(self, other: Enclosure) -> Enclosure:
        """The difference, where the exact one is known to be >= 0."""
        lower = np.maximum(0.0, self.lower - other.upper)
        upper = np.maximum(0.0, self.upper - other.lower)
        upper = np.where(self.upper > 0, np.maximum(upper, TINY), upper)
        return Enclosure(scale_down(lower, 1), scale_up(upper, 1))

    def __truediv__(self, other: Enclosure) -> Enclosure:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            lower = np.where(other.upper > 0, self.lower / other.upper, 0.0)
            upper = np.where(other.lower > 0, self.upper / other.lower, np.inf)
        upper = np.where(self.upper > 0, np.maximum(upper, TINY), 0.0)
        lower = np.where(np.isinf(lower), np.finfo(np.float64).max, lower)
        return Enclosure(_settled(scale_down(lower, 1)), scale_up(upper, 1))

    def clipped(self, lower: FloatArray | float, upper: FloatArray | float) -> Enclosure:
        """Narrowed by bounds that are known anyway."""
        # the inner max/min keep the ends in order when rounding has put them a hair apart
        low = np.minimum(np.maximum(self.lower, lower), upper)
        high = np.maximum(np.minimum(self.upper, upper), lower)
        return Enclosure(np.minimum(low, high), np.maximum(low, high))


def _settled(lower: FloatArray) -> FloatArray:
    # below TINY relative rounding is meaningless: such a lower end is 0
    return np.asarray(np.where(lower < TINY, 0.0, lower))


def exact(values: FloatArray | float) -> Enclosure:
    """The enclosure of numbers that are exactly these doubles."""
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    return Enclosure(array, array)


def exp_enclosure(x: FloatArray | float, slack: FloatArray | float = 0.0) -> Enclosure:
    """e^y for y anywhere in [x - slack, x + slack].

    numpy's exp is within one unit in the last place; four are granted.
    """
    x = np.atleast_1d(np.asarray(x, dtype=np.float64))
    with np.errstate(over="ignore", under="ignore"):
        lower = np.exp(x - slack)
        upper = np.exp(x + slack)
    # the subtraction x - slack itself rounds by at most 2^-53 |x|
    ulps = 4.0 + np.abs(np.where(np.isfinite(x), x, 0.0))
    factor = 2.0**-52 * (ulps + 2.0)
    lower = np.where(np.isinf(lower), np.finfo(np.float64).max, lower)
    return Enclosure(_settled(lower * np.maximum(0.0, 1 - factor)),
                     np.maximum(upper * (1 + factor), np.where(x == -np.inf, 0.0, TINY)))


def stack(*parts: Enclosure) -> Enclosure:
    """One after the other."""
    return Enclosure(
        np.concatenate([p.lower for p in parts]), np.concatenate([p.upper for p in parts])
    )
