"""Directed rounding of scalars and arrays; no other module may call ``nextafter``.

The direction is in the name. Scalars move by one representable number after each
operation; arrays of non-negative numbers move by a stated count of units in the
last place. ``UNIT`` is the unit roundoff 2^-53.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Number = TypeVar("Number", float, FloatArray)

UNIT = 2.0**-53
# Masses below this are treated as "somewhere in [0, TINY]". Doubles lose relative precision below
# 2.2e-308; eight decades above it leave room for products with the margins of this module.
TINY = 1e-300

# Granted to one call of an elementary function by libm or NumPy, in units of 2^-53 relative to
# its result: four units in the last place are at most eight of these. glibc states one, NumPy's
# vector loops up to four; tests/numerics measures less than half of each here.
EXP = 8.0
EXPM1 = 8.0
LOG = 8.0
LOG1P = 8.0
TURN = 8.0  # sin, cos, arctan2 and hypot


def next_up(x: float) -> float:
    """Returns the smallest double above x (an infinite x stays)."""
    return x if math.isinf(x) else math.nextafter(x, math.inf)


def next_down(x: float) -> float:
    """Returns the largest double below x (an infinite x stays)."""
    return x if math.isinf(x) else math.nextafter(x, -math.inf)


def double_up(x: Fraction) -> float:
    """Returns the smallest double >= x; inf if x is above all doubles."""
    return -double_down(-x)


def double_down(x: Fraction) -> float:
    """Returns the largest double <= x; -inf if x is below all doubles."""
    try:
        near = float(x)  # correctly rounded
    except OverflowError:
        return math.nextafter(math.inf, 0.0) if x > 0 else -math.inf
    return near if Fraction(near) <= x else next_down(near)


def root_up(x: Fraction) -> float:
    """Returns the smallest double >= the square root of x, for x in [0, 1e300]."""
    root = math.sqrt(x)
    while Fraction(root) ** 2 < x:
        root = next_up(root)
    while root > 0 and Fraction(next_down(root)) ** 2 >= x:
        root = next_down(root)
    return root


def add_up(*terms: float) -> float:
    """A double >= the exact sum of the terms (a sum of zeros is 0)."""
    return next_up(math.fsum(terms)) if any(terms) else 0.0


def add_down(*terms: float) -> float:
    """A double <= the exact sum of the terms (a sum of zeros is 0)."""
    return next_down(math.fsum(terms)) if any(terms) else 0.0


def sub_up(x: float, y: float) -> float:
    """A double >= x - y."""
    return next_up(x - y)


def sub_down(x: float, y: float) -> float:
    """A double <= x - y."""
    return next_down(x - y)


def mul_up(x: float, y: float) -> float:
    """A double >= x * y."""
    return next_up(x * y)


def mul_down(x: float, y: float) -> float:
    """A double <= x * y."""
    return next_down(x * y)


def exp_up(x: float) -> float:
    """A double >= e^x; inf if x is not a number.

    libm's exp is within one unit in the last place, 2^-52 relative; four are granted.
    """
    if not x <= 709.0:  # e^709.78 is the largest double
        return math.inf
    return max(TINY, math.exp(x) * (1.0 + 8 * UNIT))  # pays: exp-up


def exp_down(x: float) -> float:
    """A double <= e^x, and >= 0; 0 if x is not a number."""
    if not x >= -690.0:  # e^-690 is about TINY: below it, 0 is a lower bound that loses nothing
        return 0.0
    return math.exp(min(x, 709.0)) * (1.0 - 8 * UNIT)  # pays: exp-down


def expm1_up(x: float) -> float:
    """A double >= e^x - 1; inf if x is not a number."""
    if not x <= 709.0:
        return math.inf
    # libm's expm1 is within one unit in the last place; a step covers at least half of one
    return next_up(next_up(next_up(math.expm1(x))))


def log_up(x: float) -> float:
    """A double >= ln x, for x > 0 (libm's log is within one unit in the last place)."""
    return next_up(next_up(math.log(x)))


def log_down(x: float) -> float:
    """A double <= ln x, for x > 0."""
    return next_down(next_down(math.log(x)))


def log1p_up(x: float) -> float:
    """A double >= ln(1 + x), for x > -1 (libm's log1p is within one unit in the last place)."""
    return next_up(next_up(math.log1p(x)))


def log1p_down(x: float) -> float:
    """A double <= ln(1 + x), for x > -1."""
    return next_down(next_down(math.log1p(x)))


def outwards(error: Number) -> Number:
    """Raises a computed ``error`` >= 0 to at least its exact value.

    Guarantee: holds if the computed value is within a relative 2^-21 of the exact one. Sums of
    non-negative terms are: each product, sum or call moves them by some units of 2^-53, and
    2^28 such operations by less than 2^-21.
    """
    return error * (1.0 + 2.0**-20)  # pays: error-arithmetic


def scale_up(x: FloatArray, ulps: float) -> FloatArray:
    """Raises x >= 0 by ``ulps`` units of 2^-52 (relative); zeros stay zero."""
    return np.asarray(x * (1.0 + (ulps + 2.0) * 2 * UNIT))  # pays: scale-up


def scale_down(x: FloatArray, ulps: float) -> FloatArray:
    """Lowers x >= 0 by ``ulps`` units of 2^-52 (relative), never below zero."""
    return np.asarray(x * max(0.0, 1.0 - (ulps + 2.0) * 2 * UNIT))  # pays: scale-down


def _summation_margin(n: int) -> float:
    # n non-negative doubles, added in any order, are within (n - 1) u / (1 - (n - 1) u) of their
    # sum, relative (Higham 2002, section 4.2); 2 n + 4 holds for n up to 2^51
    return 1.0 + (2.0 * n + 4.0) * UNIT  # pays: sums


def sum_up(x: FloatArray) -> float:
    """A double >= the exact sum of non-negative x."""
    return float(np.sum(x)) * _summation_margin(x.size)


def sum_down(x: FloatArray) -> float:
    """A double <= the exact sum of non-negative x."""
    return float(np.sum(x)) / _summation_margin(x.size)


def norm_up(x: FloatArray) -> float:
    """A double >= the 2-norm of x."""
    square = float(np.sum(x * x))  # not np.dot: its threads cost more than the sum
    if 1e-200 < square < 1e200:  # far from underflow and overflow of any entry that matters
        return math.sqrt(square) * _summation_margin(x.size + 8)
    peak = float(np.max(np.abs(x), initial=0.0))
    if peak == 0.0 or math.isinf(peak):
        return peak
    y = x / peak  # now squares neither overflow nor vanish where they matter
    return peak * math.sqrt(float(np.sum(y * y))) * _summation_margin(x.size + 8)


def any_of(chances: list[tuple[float, int]], *, up: bool) -> float:
    """Bounds 1 - prod (1 - p)^k, the chance that at least one of independent events happens.

    Args:
        chances: (p, k) pairs: k events of probability p each.
        up: an upper bound is wanted, else a lower bound.
    """
    if any(p >= 1.0 for p, k in chances if k):
        return 1.0
    possible = [(p, k) for p, k in chances if p > 0.0 and k]
    if len(possible) == 1 and possible[0][1] == 1:
        return possible[0][0]  # one event: nothing is computed, so nothing is rounded
    log_none = math.fsum(k * math.log1p(-p) for p, k in chances)
    chance = -math.expm1(log_none)
    if chance == 0.0:
        return 0.0 if all(p == 0 for p, _ in chances) else (TINY if up else 0.0)
    # log1p, k times it, and a sum that is rounded once, all of one sign: LOG1P + 2 units. expm1 of
    # a negative number passes a relative error of its argument on without enlarging it, and adds
    # EXPM1. One unit is for the product with the margin, one is left over. TINY stands for
    # products of chances that underflow
    # guard: product-chances-rounds
    margin = (LOG1P + EXPM1 + 4.0) * UNIT  # pays: any-of
    if up:
        return min(1.0, chance * (1 + margin) + TINY)
    # below TINY the products are subnormal, and their rounding is not relative
    # guard: product-subnormal-chances-rounds
    return chance * (1 - margin) if chance >= TINY else 0.0
