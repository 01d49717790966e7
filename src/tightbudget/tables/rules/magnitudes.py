"""Magnitudes of doubles, followed through arithmetic: what cannot overflow or underflow."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Columns are moved into this range before arithmetic. A product of five columns then stays within
# the range of normal doubles, [2^-1022, 2^1023], and no quantity of this world is outside.
LARGEST, SMALLEST = 2.0**200, 2.0**-200
# Exponents of two beyond which the result of an operation is refused: inside the normal doubles.
MOST = 1000


@dataclass(frozen=True, kw_only=True)
class Magnitudes:
    """Magnitudes of the doubles that an expression can have, as exponents of two.

    Args:
        high: no number is above 2^high.
        low: no number other than 0 is below 2^low.
        grain: every number is a multiple of 2^grain; this says how small a difference can be.
    """

    high: int
    low: int
    grain: int

    @staticmethod
    def of(high: int, low: int, grain: int | None = None) -> Magnitudes:
        """Makes a range; a double >= 2^low is a multiple of 2^(low - 52) at least."""
        return Magnitudes(
            high=high, low=low, grain=low - 52 if grain is None else max(grain, low - 52)
        )

    def __or__(self, other: Magnitudes) -> Magnitudes:
        """The range of a number that is of one range or of the other."""
        return Magnitudes(
            high=max(self.high, other.high),
            low=min(self.low, other.low),
            grain=min(self.grain, other.grain),
        )

    # Powers of two are doubles, and rounding is monotone: so each bound holds for the rounded
    # result as for the exact one, and a multiple of 2^k that is rounded stays a multiple of 2^k.

    def plus(self, other: Magnitudes) -> Magnitudes:
        """The range of a sum or difference: what does not cancel is one grain at least."""
        grain = min(self.grain, other.grain)
        return Magnitudes.of(max(self.high, other.high) + 1, grain, grain)

    def times(self, other: Magnitudes) -> Magnitudes:
        """The range of a product."""
        return Magnitudes.of(self.high + other.high, self.low + other.low, self.grain + other.grain)

    def over(self, other: Magnitudes) -> Magnitudes:
        """The range of a quotient whose divisor is not 0."""
        return Magnitudes.of(self.high - other.low, self.low - other.high)

    def root(self) -> Magnitudes:
        """The range of a square root."""
        return Magnitudes.of(-(-self.high // 2), self.low // 2)

    def fits(self) -> bool:
        """Whether no number of the range overflows or underflows."""
        return self.high <= MOST and self.low >= -MOST


COLUMN = Magnitudes.of(200, -200)
INTEGER = Magnitudes.of(63, 0, 0)
WIDE_INTEGER = Magnitudes.of(127, 0, 0)  # 10^38 < 2^127
TRUTH = Magnitudes.of(0, 0, 0)


def magnitude(x: float, exact: int | None = None) -> Magnitudes:
    """Returns the range of one number."""
    if x == 0:
        return TRUTH
    exponent = math.frexp(x)[1]  # 2^(exponent - 1) <= |x| < 2^exponent, or = for a rounded integer
    return Magnitudes.of(
        exponent, exponent - 1 if exact is None else 0, None if exact is None else 0
    )
