"""Gaussian noise of counts: integer noise on a grid so fine that continuous noise covers it.

The exact price of a plan is that of continuous Gaussian noise, and integer noise on counts may cost
a little more. So noise is drawn on a grid of a finer step h <= 1, from the discrete Gaussian of the
parameter S = (r^2 + s^2)^(1/2), in points of the grid, where r is the sigma that is charged and
s = 1,024. To this, continuous noise of sigma r at a point c of the grid can be brought without
looking at c: from x, choose the point n with the weight g_s(n - x), g_s(u) = e^(-u^2 / (2 s^2)).
Since g_r(x - c) g_s(n - x) = g_S(n - c) g_t(x - m) with 1 / t^2 = 1 / r^2 + 1 / s^2 and an m that
depends on c and n, the point n then has the chance

    g_S(n - c) times the integral of g_t(x - m) / (sum over k of g_s(k - x)) dx, normalised.

By Poisson's summation, the sum over k is s (2 pi)^(1/2) (1 + e) with |e| < 3 e^(-2 pi^2 s^2) for
all x: the chances are those of the discrete Gaussian but for a factor that is off from 1 by less
than e^(-2 10^7). That is less than the chance of any failure of the machine, as is that of OpenDP's
sampler to leave its integers (:data:`tightbudget.release.noise.noise.LARGEST_SCALE`). S is larger
than r by less than 2e-9 of r.
Source: Regev 2005; Peikert 2010, "An efficient and parallel Gaussian sampler for lattices".
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.rounding import FloatArray, root_up
from tightbudget.release.noise.noise import Noise

_SMOOTH = 2**10  # s
_FINE = 24  # r is at least 2^24 points


def with_noise(
    counts: NDArray[np.int64], variance: Fraction, noise: Noise
) -> tuple[FloatArray, float]:
    """Adds noise to counts, and returns them with the parameter of the noise.

    Guarantee: the result is a function of the counts with continuous Gaussian noise of at least
    this variance, which does not look at the counts, but for what the module says.

    Args:
        counts: (n,), each below 2^53.
        variance: of the continuous noise that is charged, > 0.
        noise: the source.

    Returns:
        the noisy counts, (n,), and the standard deviation of their noise.
    """
    step = _step(variance)
    points = root_up(variance / Fraction(step) ** 2 + _SMOOTH**2)  # guard: noise-of-the-grid
    drawn = noise.gaussian(Fraction(points), counts.size)
    # both terms are exact: the rounded sum depends on the exact one alone
    return counts + drawn * step, points * step


def _step(variance: Fraction) -> float:
    """Returns the largest power of two that is at most 2^-24 of sigma, about, and at most 1.

    Counts are points of each such grid. On a coarser one they would show what the step leaves over.
    """
    # the exponents of numerator and denominator: a float of a Fraction may be out of range
    log = math.log2(variance.numerator) - math.log2(variance.denominator)
    return 2.0 ** min(0, math.floor(log / 2.0) - _FINE)  # guard: counts-on-the-grid
