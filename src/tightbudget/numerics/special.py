"""Masses of the normal distribution, with error margins that tests measure.

Everything is built on ``erf``, ``erfcx`` (scaled complementary error function), ``exp`` and
``expm1``; their largest errors against 300-bit ball arithmetic are in ``tests/numerics``.
scipy's ``ndtr`` itself is up to 1,900 units in the last place off near x = -33.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special as sp

from tightbudget.numerics.enclosure import Enclosure, exact, stack, where
from tightbudget.numerics.rounding import (
    TINY,
    UNIT,
    FloatArray,
    add_down,
    log1p_down,
    mul_down,
    next_down,
)

# Granted errors, in units of 2^-52 relative. Measured: the largest error at 2,000 to 4,500 random
# points against 600-bit balls (x86-64, SciPy 1.17, NumPy 2.4). tests/numerics/test_special.py fails
# above a third of each.
ERFCX_ULPS = 16.0  # scipy's erfcx on [0, inf); measured 3.9
ERF_ULPS = 16.0  # scipy's erf on [0, inf); measured 1.4
HALF_SQUARE_ULPS = 16.0  # half_square_exp; measured 1.4
LESS_ULPS = 8.0  # expm1_less and log1p_less; measured 1.4
# sin_less; measured 1.6. From |x| = 1 on, sin x may be four units off on other platforms, and
# sin x - x is 0.16 there: 25 units
SIN_LESS_ULPS = 32.0

_SQRT_HALF = math.sqrt(0.5)
_DENSITY_AT_0 = 1.0 / math.sqrt(2.0 * math.pi)
_NODES, _WEIGHTS = (np.asarray(part) for part in np.polynomial.legendre.leggauss(10))
_NODES, _WEIGHTS = (1.0 + _NODES) / 2.0, _WEIGHTS / 2.0  # on [0, 1]


def half_square_exp(z: FloatArray) -> FloatArray:
    """Computes e^(-z^2/2) within HALF_SQUARE_ULPS (0 below the range of doubles).

    The rounding of z^2 would be an absolute error of the exponent: up to 700 units. So z = t + r
    with t a multiple of 1/16, whose square is exact, and e^(-z^2/2) = e^(-t^2/2) e^(-r (z + t)/2).
    """
    # e^(-z^2/2) is 0 from z = 39 on; far beyond it, the second factor would overflow
    z = np.minimum(np.abs(z), 64.0)
    t = np.round(z * 16.0) / 16.0
    return np.asarray(np.exp(-0.5 * t * t) * np.exp(-0.5 * (z - t) * (z + t)))


def log_normal_tail(u: FloatArray) -> FloatArray:
    """Computes ln P(N > u) for a standard normal N, within log_normal_tail_slack (absolute)."""
    far = np.log(0.5 * sp.erfcx(np.abs(u) * _SQRT_HALF)) - 0.5 * u * u
    return np.asarray(np.where(u >= 0, far, np.log1p(-np.exp(far))))


def log_normal_tail_slack(u: FloatArray) -> FloatArray:
    """Bounds the absolute error of :func:`log_normal_tail` at the points ``u``.

    For u < 0 the answer is ln(1 - tail), whose error is a share of the tail, and one rounding.
    """
    # erfcx, its rounded argument, log, and u^2 / 2 with the difference (2 units of u^2 each);
    # measured: at most 0.24 of this
    off = 2 * UNIT * (2.0 * ERFCX_ULPS + 8.0 + 2.0 * u * u)
    return np.asarray(np.where(u >= 0, off, off * 2.0 * np.exp(-0.5 * u * u) + UNIT))


def _series(x: FloatArray, terms: list[float]) -> FloatArray:
    total = np.full_like(x, terms[-1])
    for term in terms[-2::-1]:
        total *= x
        total += term
    return total


# Taylor coefficients of (f(x) - x) / x^2 (for the sine of (sin x - x) / x^3 in x^2), so many that
# the first one left out is below 2^-54 of the sum: x^15 2 / 17! at x = 1/2, 2 x^17 / 19 at x = 1/10
_EXPM1_TERMS = [1.0 / math.factorial(n) for n in range(2, 17)]
_LOG1P_TERMS = [(-1.0) ** (n + 1) / n for n in range(2, 19)]
_SIN_TERMS = [(-1.0) ** n / math.factorial(2 * n + 1) for n in range(1, 9)]


def expm1_less(x: FloatArray) -> FloatArray:
    """Computes e^x - 1 - x for |x| <= 1/2, within LESS_ULPS."""
    return np.asarray(x * x * _series(x, _EXPM1_TERMS))


def log1p_less(x: FloatArray) -> FloatArray:
    """Computes ln(1 + x) - x for |x| <= 1/10, within LESS_ULPS."""
    return np.asarray(x * x * _series(x, _LOG1P_TERMS))


def sin_less(x: FloatArray) -> FloatArray:
    """Computes sin x - x for every x, within SIN_LESS_ULPS."""
    square = x * x
    near = square < 1.0  # the first term left out is 6 / 19! of the sum, 0.4 units of 2^-53
    if near.all():
        return np.asarray(x * square * _series(square, _SIN_TERMS))
    direct = np.sin(x) - x
    if near.any():
        direct[near] = x[near] * square[near] * _series(square[near], _SIN_TERMS)
    return np.asarray(direct)


def log_g_up(c: float) -> float:
    """An upper bound of ln g(c), g(c) = c^c / (1 + c)^(1 + c), for c >= 0.

    g is the factor in delta(eps) <= M(c) e^(-c eps) g(c). It is computed as -(c ln(1 + 1/c) +
    ln(1 + c)), a sum of two numbers of one sign: c ln c and (1 + c) ln(1 + c) nearly cancel at a
    large c.
    """
    if not c > TINY:  # it is negative everywhere else
        return 0.0
    # guard: chernoff-g
    return -add_down(mul_down(c, log1p_down(next_down(1.0 / c))), log1p_down(c))


def normal_tails(a: FloatArray, slack: FloatArray, decay: FloatArray) -> Enclosure:
    """Encloses w(a) P(N > a) for a standard normal variable N and a positive function w.

    Args:
        a: (n,) points >= 0.
        slack, decay: (n,) as in :func:`normal_cells`.
    """
    # the rounding of a / sqrt(2) moves erfcx by 2^-52 at most, since |d ln erfcx(x) / d ln x| < 1:
    # 8 units are for that and for three products. Beyond e^700 the lower bound is 0 and the upper
    # one inf in any case
    margin = (ERFCX_ULPS + HALF_SQUARE_ULPS + 8.0) * 2 * UNIT + slack * (a + slack + 1.0)
    margin = np.expm1(np.minimum(margin, 700.0))
    t = 0.5 * sp.erfcx(a * _SQRT_HALF) * decay
    return Enclosure(_zero_below_tiny(t * np.maximum(0.0, 1.0 - margin)), t * (1.0 + margin) + TINY)


def normal_cells(
    z: FloatArray,
    slack: FloatArray,
    decay: FloatArray,
    left: Enclosure,
    right: Enclosure,
    whole: Enclosure,
) -> Enclosure:
    """Encloses weighted masses of a standard normal variable N between ascending points.

    Cell i is (z[i-1], z[i]] with z[-1] = -inf and z[n] = +inf; its mass is multiplied by a
    weight W[i]. So that nothing over- or underflows, the weight comes in relative form.

    Args:
        z: (n,) ascending points.
        slack: (n,) how far each exact point may lie from ``z``, raised by what the
            uncertainty of ``decay`` adds: |d ln t| <= slack (|z| + slack + 1) must hold for
            t(z) = w(z) P(N > |z|).
        decay: (n,) w(z) e^(-z^2/2) for some positive function w.
        left: (n,) W[i + 1] / w(z[i]), for the cell that begins at the point.
        right: (n,) W[i] / w(z[i]), for the cell that ends at the point.
        whole: (n + 1,) W[i], used only where a cell contains 0.

    Returns:
        (n + 1) masses.

    Guarantee: the enclosures hold the exact masses if decay is within HALF_SQUARE_ULPS of its
    definition. Short cells lose relative precision (see ``short_normal_cells``).
    """
    a = np.abs(z)
    tail = normal_tails(a, slack, decay)  # the smaller one of the two
    # P(0 < N < |z|), for the one cell around 0; its slope is the density, of which 1 % more pays
    # for the density's own rounding
    b = 0.5 * sp.erf(a * _SQRT_HALF)
    slope = 1.01 * _DENSITY_AT_0 * half_square_exp(np.maximum(0.0, a - slack))
    reach = (ERF_ULPS + 4.0) * 2 * UNIT * b + slack * slope
    body = Enclosure(_zero_below_tiny(np.maximum(0.0, b - reach)), b + reach + TINY)
    begins = np.concatenate([[-1.0], np.where(z >= 0, 1.0, -1.0)])  # sign of each cell's left end
    ends = np.concatenate([np.where(z >= 0, 1.0, -1.0), [1.0]])  # and of its right end
    nothing = exact(np.zeros(1))
    from_left = stack(nothing, tail * left)
    from_right = stack(tail * right, nothing)
    rising = from_right - from_left  # both ends negative: a difference of left tails
    falling = from_left - from_right  # both ends positive: a difference of right tails
    half = exact(np.full(1, 0.5))
    around = (stack(half, body) + stack(body, half)) * whole
    return where(begins > 0, falling, where(ends < 0, rising, around))


def short_normal_cells(
    right: FloatArray,
    right_slack: FloatArray,
    length: FloatArray,
    length_slack: FloatArray,
    m: float,
) -> tuple[NDArray[np.bool_], Enclosure, Enclosure]:
    """Encloses masses and exponentially tilted means of short intervals of a standard normal N.

    Args:
        right: (n,) the right ends r of the cells.
        right_slack: (n,) how far each exact right end may lie from ``right``.
        length: (n,) their lengths d > 0.
        length_slack: (n,) how far each exact length may lie from ``length``.
        m: the parameter of the tilting e^(m (r - N)), > 0; within four units in the last place.

    Returns:
        (n,) which cells are short enough; (n,) P(r - d < N <= r);
        (n,) E[e^(m (r - N)) | r - d < N <= r].

    Guarantee: for the cells that are short enough, the enclosures hold the exact values. No
    difference of tails is taken, so both keep their relative precision, however short the cell.
    """
    # With N = r - d t the density is phi(r) d g(t), g(t) = e^(d t (r - d t / 2)), t in [0, 1],
    # and both integrals have |exponent| <= 1 there. Gauss-Legendre with 10 nodes is off by at
    # most 64/15 M / (16^20 (1 - 16^-2)), M the largest modulus on the ellipse with semiaxes
    # 8.03 and 7.97 half-lengths, where the exponent is below 8: less than 2^-60 relative.
    # Source: Trefethen, Is Gauss quadrature better than Clenshaw-Curtis?, 2008, Theorem 4.5.
    cells = _ShortCells.of(right, right_slack, length, length_slack, m)
    r, d = cells.right, cells.length
    tilt = np.where(cells.short, m * d, 0.0)
    total, excess = np.zeros_like(r), np.zeros_like(r)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        g = weight * np.exp(node * d * (r - node * d / 2))
        total += g
        excess += g * np.expm1(tilt * node)
    # both sums move by the margin; expm1 has a condition number below 2 on [0, 1], and 5 % more
    # pays for products of margins
    w = excess / total
    w_margin = w * (2.1 * cells.margin() + 2.1 * cells.off)
    mean = Enclosure(
        np.maximum(1.0, (1.0 + w - w_margin) * (1 - 4 * UNIT)),
        (1.0 + w + w_margin) * (1 + 4 * UNIT),
    )
    return cells.short, cells.masses(total), mean


def normal_masses(
    z: FloatArray, slack: FloatArray, gaps: FloatArray, gap_slack: FloatArray
) -> Enclosure:
    """Encloses the n + 1 masses of a standard normal variable between n ascending points.

    Guarantee: holds the exact masses; those of short cells keep their relative precision.

    Args:
        z: (n,) the points, n > 0.
        slack: (n,) how far each exact point may lie from ``z``.
        gaps: (n + 1,) the lengths of the cells, the first and the last one infinite.
        gap_slack: (n + 1,) how far each exact length may lie from ``gaps``.
    """
    n = z.size
    # cells of an infinite length are not short: any right end does for the last one
    last = np.append(z, z[-1:]), np.append(slack, slack[-1:])
    cells = _ShortCells.of(*last, gaps, gap_slack, 0.0)
    r, d, total = cells.right, cells.length, np.zeros(n + 1)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        total += weight * np.exp(node * d * (r - node * d / 2))
    found = cells.masses(total)
    # the others, which are few, as differences of tails between both ends of each
    wide = np.flatnonzero(~cells.short)
    ends = np.unique(np.clip(np.concatenate([wide - 1, wide]), 0, n - 1))
    plain, ones = exact(np.ones(ends.size)), exact(np.ones(ends.size + 1))
    others = normal_cells(z[ends], slack[ends], half_square_exp(z[ends]), plain, plain, ones)
    at = np.searchsorted(ends, wide)  # a cell has the number of the point that it ends at
    found.lower[wide], found.upper[wide] = others.lower[at], others.upper[at]
    return found


@dataclass(frozen=True)
class _ShortCells:
    """Intervals that are short enough for a rule of ten nodes; the others have other values.

    Attributes:
        short: (n,) which are.
        right: (n,) their right ends r.
        length: (n,) their lengths d.
        off: (n,) how far each length may be off, relatively.
        slack: (n,) how far each right end may be off.
    """

    short: NDArray[np.bool_]
    right: FloatArray
    length: FloatArray
    off: FloatArray
    slack: FloatArray

    @staticmethod
    def of(
        right: FloatArray,
        right_slack: FloatArray,
        length: FloatArray,
        length_slack: FloatArray,
        m: float,
    ) -> _ShortCells:
        """Sorts out the short ones; the arguments are those of :func:`short_normal_cells`."""
        with np.errstate(invalid="ignore"):  # of an infinite length
            short = (np.abs(right) + m + 1.0) * length <= 1.0
            short &= (length > 0) & (length_slack <= 0.01 * length) & (right_slack <= 0.01)
        r, d = np.where(short, right, 0.0), np.where(short, length, 1e-3)
        off = np.where(short, length_slack, 0.0) / d + 8 * UNIT
        return _ShortCells(short, r, d, off, np.where(short, right_slack, 0.0))

    def margin(self) -> FloatArray:
        """Bounds the relative error of the sum over the nodes."""
        # d moves the exponent by |exponent| off at most, r by d slack; 1 % more pays for products
        # of the two. 64 units: nodes, weights, ten exponentials of EXP = 8 units each (their mean,
        # not their sum, since all are positive) and ten additions
        r, d = np.abs(self.right), self.length
        return np.asarray(1.01 * ((r + d) * d * self.off + d * self.slack) + 64 * UNIT)

    def masses(self, total: FloatArray) -> Enclosure:
        """Encloses P(r - d < N <= r), from the sums over the nodes."""
        r, slack = self.right, self.slack
        p = _DENSITY_AT_0 * half_square_exp(r) * self.length * total
        off = self.margin() + (np.abs(r) + slack) * slack + self.off + 2 * UNIT * HALF_SQUARE_ULPS
        margin = np.expm1(off)
        return Enclosure(_zero_below_tiny(p * (1.0 - margin)), p * (1.0 + margin) + TINY)


def _zero_below_tiny(lower: FloatArray) -> FloatArray:
    return np.asarray(np.where(lower < TINY, 0.0, lower))
