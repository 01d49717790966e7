"""Masses of intervals under Gaussian and Laplace noise that cannot vanish."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special as sp

from tightbudget.numerics.enclosure import Enclosure
from tightbudget.numerics.rounding import TINY, UNIT, FloatArray
from tightbudget.numerics.special import ERFCX_ULPS
from tightbudget.pairs.atomic import log_quotient

_NODES, _WEIGHTS = (half[5:] for half in np.polynomial.legendre.leggauss(10))
# (n!)^4 / ((2n + 1) ((2n)!)^3) for n = 10: the error term of the quadrature
_QUADRATURE = math.factorial(10) ** 4 / (21 * math.factorial(20) ** 3)
# bins with |z| h below this are integrated, others are differences of tails: there the two tails
# differ by a factor of e^4 or more, so that their difference loses 2 % of its digits at most
_NARROW = 4.0


@dataclass(frozen=True)
class IntervalMasses:
    """Masses that are products e^-exponent * factor, and may be below the range of doubles.

    Guarantee: the exact mass is e^-(exponent + e) f with |e| <= slack and f in ``factor``.
    """

    exponent: FloatArray  # (n,), nats, >= 0
    slack: FloatArray  # (n,), nats
    factor: Enclosure  # (n,)

    def masses(self) -> Enclosure:
        """The masses; those below the range of doubles are [0, TINY]."""
        peak = np.exp(-self.exponent)
        # where more than 1 is granted, the mass vanishes anyway
        margin = np.expm1(np.minimum(self.slack, 1.0)) + 12 * UNIT
        lower = self.factor.lower * peak * np.maximum(0.0, 1 - margin)
        upper = self.factor.upper * peak * (1 + margin)
        return Enclosure(np.where(lower < TINY, 0.0, lower), np.maximum(upper, TINY))

    def losses_against(self, other: IntervalMasses) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of ln(self / other), nats, also where both masses underflow."""
        low, high = log_quotient(self.factor, other.factor)
        slope = other.exponent - self.exponent
        margin = self.slack + other.slack + 2 * UNIT * np.abs(slope)
        return (
            slope + low - margin - UNIT * np.abs(slope + low),
            slope + high + margin + UNIT * np.abs(slope + high),
        )


def laplace_masses(low: FloatArray, high: FloatArray, mean: float, scale: float) -> IntervalMasses:
    """The masses of (low, high] under density e^(-|x - mean| / scale) / (2 scale).

    Args:
        low, high: (n,) integers below 2^53, low < high; low may be -inf, high +inf.
    """
    inside = (low < mean) & (mean < high)
    near = np.where(inside, 0.0, np.where(low >= mean, low - mean, mean - high))
    # every length is rounded once (by u), divided (u), and expm1 has condition number <= 1
    whole = -np.expm1(-(high - low) / scale)
    pieces = -np.expm1(np.minimum(0.0, low - mean) / scale)
    pieces = pieces - np.expm1(np.minimum(0.0, mean - high) / scale)
    factor = np.where(inside, pieces, whole) / 2
    exponent = near / scale
    return IntervalMasses(exponent, 4 * UNIT * exponent, _around(factor, 32 * UNIT))


def gaussian_masses(low: FloatArray, high: FloatArray, mean: float, sigma: float) -> IntervalMasses:
    """The masses of (low, high] under N(mean, sigma^2).

    Narrow intervals are integrated around their middle z, wide ones are differences of
    tails around their end next to the mean: neither cancels.

    Args:
        low, high: (n,) integers below 2^52, low < high; low may be -inf, high +inf.
    """
    width = (high - low) / sigma
    with np.errstate(invalid="ignore"):
        z = np.where(np.isfinite(width), ((low + high) / 2 - mean) / sigma, np.inf)
    narrow = (width <= 0.1) & (width * np.abs(z) <= _NARROW)
    exponent = np.empty(low.size)
    lower, upper = np.empty(low.size), np.empty(low.size)
    wide = ~narrow
    exponent[narrow], inner = _integrated(z[narrow], width[narrow])
    exponent[wide], outer = _tails(low[wide], high[wide], mean, sigma)
    lower[narrow], upper[narrow] = inner.lower, inner.upper
    lower[wide], upper[wide] = outer.lower, outer.upper
    # z is rounded twice, its square once: 5 u of z^2 / 2
    return IntervalMasses(exponent, 6 * UNIT * exponent, Enclosure(lower, upper))


def _integrated(z: FloatArray, h: FloatArray) -> tuple[FloatArray, Enclosure]:
    """The exponent z^2/2 and the factor of the mass of N(0, 1) in bins of width h around z.

    The factor is a ten-point Gauss-Legendre quadrature of e^(-z t - t^2/2) over |t| <= h/2.

    The remainder is h^21 C f^(20), C = (10!)^4 / (21 (20!)^3), and for the normal density
    f^(20) = He_20 f with |He_20(y)| <= E|y + iN|^20 <= (|y| + sqrt(20))^20; inside the bin
    f varies by a factor of at most e^(h (|z| + h/2)).
    """
    mean = np.zeros(z.size)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        t = node * h / 2
        mean += weight * np.exp(-t * t / 2) * np.cosh(z * t)
    reach = h * (np.abs(z) + h + math.sqrt(20.0))
    remainder = reach**20 * _QUADRATURE * np.exp(h * (np.abs(z) + h))
    factor = mean * h / math.sqrt(2 * math.pi)
    return z * z / 2, _around(factor, 64 * UNIT + 1.01 * remainder)


def _tails(
    low: FloatArray, high: FloatArray, mean: float, sigma: float
) -> tuple[FloatArray, Enclosure]:
    a, b = (low - mean) / sigma, (high - mean) / sigma
    inside = (a < 0) & (b > 0)
    near = np.where(inside, 0.0, np.minimum(np.abs(a), np.abs(b)))
    far = np.maximum(np.abs(a), np.abs(b))
    root = math.sqrt(0.5)
    with np.errstate(invalid="ignore"):
        ratio = np.exp(-((high - low) / sigma) * (near + far) / 2)
        beyond = np.where(np.isfinite(far), ratio * sp.erfcx(far * root), 0.0)
        around = sp.erf(np.abs(a) * root) + sp.erf(np.abs(b) * root)
    tail = sp.erfcx(near * root)
    # ERFCX_ULPS for each tail; the arguments' own 4 u shift it by less than 8 u
    error = (2 * ERFCX_ULPS + 32) * UNIT * (tail + beyond)
    error = np.where(inside, 64 * UNIT * around, error)
    value = np.where(inside, around, tail - beyond)
    lower, upper = (value - error) / 2, (value + error) / 2
    return near * near / 2, Enclosure(np.maximum(lower, 0.0), upper)


def _around(x: FloatArray, relative: FloatArray | float) -> Enclosure:
    """The enclosure of numbers that are x up to a relative error."""
    return Enclosure(x * np.maximum(0.0, 1 - relative), x * (1 + relative))
