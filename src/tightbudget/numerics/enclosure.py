"""Arrays of non-negative numbers, each known to lie between a lower and an upper bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.rounding import EXP, TINY, UNIT, FloatArray, scale_down, scale_up

_MAX = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Enclosure:
    """An array of non-negative numbers, each enclosed by two doubles.

    Guarantee: entry by entry, 0 <= lower <= exact value <= upper.

    Operations round outwards. ``lower`` is finite, ``upper`` may be inf; an exact 0 is
    lower = upper = 0. Where a result may be too small for relative rounding to mean
    anything, it is somewhere in [0, TINY].
    """

    lower: FloatArray  # (n,)
    upper: FloatArray  # (n,)

    def __len__(self) -> int:
        return int(self.lower.size)

    def __getitem__(self, index: Any) -> Enclosure:
        return Enclosure(np.atleast_1d(self.lower[index]), np.atleast_1d(self.upper[index]))

    def __add__(self, other: Enclosure) -> Enclosure:
        with np.errstate(all="ignore"):
            return _outwards(self.lower + other.lower, self.upper + other.upper)

    def __sub__(self, other: Enclosure) -> Enclosure:
        """Subtracts ``other`` entry by entry, for exact differences that are known to be >= 0."""
        with np.errstate(all="ignore"):
            # inf - inf says nothing: then the bounds are 0 and inf
            lower = np.nan_to_num(np.maximum(0.0, self.lower - other.upper), nan=0.0)
            upper = np.nan_to_num(
                np.maximum(0.0, self.upper - other.lower), nan=np.inf, posinf=np.inf
            )
            return _outwards(lower, np.where(self.upper > 0, np.maximum(upper, TINY), 0.0))

    def __mul__(self, other: Enclosure) -> Enclosure:
        with np.errstate(all="ignore"):
            # a mass of exactly 0 stays 0, also times inf
            possible = (self.upper > 0) & (other.upper > 0)
            upper = np.where(possible, np.maximum(self.upper * other.upper, TINY), 0.0)
            return _outwards(self.lower * other.lower, upper)

    def __truediv__(self, other: Enclosure) -> Enclosure:
        with np.errstate(all="ignore"):
            lower = np.where(other.upper > 0, self.lower / other.upper, 0.0)
            upper = np.where(other.lower > 0, self.upper / other.lower, np.inf)
            return _outwards(lower, np.where(self.upper > 0, np.maximum(upper, TINY), 0.0))

    def scaled(self, factor: float) -> Enclosure:
        """Multiplies every entry by an exact finite factor >= 0."""
        return self * exact(factor)

    def clipped(self, lower: FloatArray | float, upper: FloatArray | float) -> Enclosure:
        """Intersects every entry with [lower, upper], bounds that are known from elsewhere."""
        # the two intervals hold the same exact number; where one of them is that number alone and
        # rounding has left a gap of an ulp between them, the nearer bound is taken twice
        return Enclosure(
            np.asarray(np.clip(self.lower, lower, upper)),
            np.asarray(np.clip(self.upper, lower, upper)),
        )


def _outwards(lower: FloatArray, upper: FloatArray) -> Enclosure:
    # one rounded operation has made each bound: one ulp pays for it, where ulps are relative
    lower = np.where(lower < TINY, 0.0, np.minimum(lower, _MAX))
    return Enclosure(scale_down(lower, 1), scale_up(upper, 1))


def exact(values: FloatArray | float) -> Enclosure:
    """Encloses numbers that are exactly the doubles ``values``."""
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    return Enclosure(array, array)


def exp_enclosure(x: FloatArray | float, slack: FloatArray | float = 0.0) -> Enclosure:
    """Encloses e^y, entry by entry, for every y in [x - slack, x + slack].

    numpy's exp is within one unit in the last place; four are granted.
    """
    x = np.atleast_1d(np.asarray(x, dtype=np.float64))
    with np.errstate(all="ignore"):
        # x - slack and x + slack round by at most 2^-53 (|x| + slack)
        reach = np.where(np.isfinite(x) & (slack > np.zeros(1)), np.abs(x) + slack, 0.0)
        factor = (EXP + 2.0 * reach) * UNIT  # pays: enclosed-exp
        lower = np.minimum(np.exp(x - slack), _MAX) * np.maximum(0.0, 1 - factor)
        upper = np.exp(x + slack) * (1 + factor)
        return _outwards(lower, np.where(x == -np.inf, 0.0, np.maximum(upper, TINY)))


def stack(*parts: Enclosure) -> Enclosure:
    """Concatenates enclosures."""
    return Enclosure(
        np.concatenate([p.lower for p in parts]), np.concatenate([p.upper for p in parts])
    )


def where(condition: NDArray[np.bool_], yes: Enclosure, no: Enclosure) -> Enclosure:
    """Takes each entry from ``yes`` if ``condition`` holds there, else from ``no``."""
    return Enclosure(
        np.where(condition, yes.lower, no.lower), np.where(condition, yes.upper, no.upper)
    )
