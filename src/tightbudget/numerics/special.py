"""Normal tails with an error margin that is measured, not assumed.

Everything is built on ``erfcx`` (scaled complementary error function) and ``exp``;
their largest errors against 300-bit ball arithmetic are in ``tests/numerics``.
scipy's ``ndtr`` itself is up to 1,900 units in the last place off near x = -33.
"""

from __future__ import annotations

import numpy as np
from scipy import special as sp

from tightbudget.numerics.enclosure import Enclosure, exact, stack
from tightbudget.numerics.rounding import TINY, UNIT, FloatArray

__all__ = ["ERFCX_ULPS", "half_square_exp", "normal_cells"]

ERFCX_ULPS = 16.0  # granted to scipy's erfcx on [0, inf); measured: below 4
_SQRT_HALF = float(np.sqrt(0.5))


def half_square_exp(z: FloatArray) -> FloatArray:
    """e^(-z^2/2) within 8 units in the last place (0 below the range of doubles).

    z = t + r with t a multiple of 1/16, so t^2/2 is exact and r small:
    e^(-z^2/2) = e^(-t^2/2) e^(-r (z + t)/2).
    """
    z = np.minimum(np.abs(z), 1e6)
    t = np.round(z * 16.0) / 16.0
    return np.asarray(np.exp(-0.5 * t * t) * np.exp(-0.5 * (z - t) * (z + t)))


def normal_cells(
    z: FloatArray,
    slack: FloatArray,
    decay: FloatArray,
    left: FloatArray,
    right: FloatArray,
    whole: Enclosure,
) -> Enclosure:
    """Weighted masses of a standard normal variable N between ascending points.

    Cell i is (z[i-1], z[i]] with z[-1] = -inf and z[n] = +inf; its mass is multiplied by a
    weight W[i]. So that nothing over- or underflows, the weight comes in relative form.

    Args:
        z: (n,) ascending points.
        slack: (n,) how far each exact point may lie from ``z``.
        decay: (n,) w(z) e^(-z^2/2) for some positive function w.
        left: (n,) W[i + 1] / w(z[i]), for the cell that begins at the point.
        right: (n,) W[i] / w(z[i]), for the cell that ends at the point.
        whole: (n + 1,) W[i], used only where a cell contains 0.

    Returns:
        (n + 1) masses.

    Guarantee: the enclosures hold the exact masses if decay and the weights are within 32
    units in the last place of their definition.
    """
    a = np.abs(z)
    # t(z) = P(N > |z|) w(z): the smaller one of the two tails
    # |d ln P(N > a) / da| <= a + 1; a / sqrt(2) is rounded, hence 2 u a (a + 1)
    margin = (ERFCX_ULPS + 64.0) * 2 * UNIT + (a + 1.0) * (slack + 4 * UNIT * a)
    margin = np.expm1(np.minimum(margin, 700.0))
    t = 0.5 * sp.erfcx(a * _SQRT_HALF) * decay
    tail = Enclosure(_no_dust(t * np.maximum(0.0, 1.0 - margin)), t * (1.0 + margin) + TINY)
    # b(z) = P(0 < N < |z|), for the one cell around 0; slope below 0.4
    b = 0.5 * sp.erf(a * _SQRT_HALF)
    body = Enclosure(
        np.maximum(0.0, b * (1.0 - 32 * UNIT) - slack), b * (1.0 + 32 * UNIT) + slack + TINY
    )
    begins = np.concatenate([[-1.0], np.where(z >= 0, 1.0, -1.0)])  # sign of each cell's left end
    ends = np.concatenate([np.where(z >= 0, 1.0, -1.0), [1.0]])  # and of its right end
    nothing = exact(np.zeros(1))
    from_left = stack(nothing, tail * exact(left))
    from_right = stack(tail * exact(right), nothing)
    rising = from_right - from_left  # both ends negative: a difference of left tails
    falling = from_left - from_right  # both ends positive: a difference of right tails
    half = exact(np.full(1, 0.5))
    around = (stack(half, body) + stack(body, half)) * whole
    lower = np.where(begins > 0, falling.lower, np.where(ends < 0, rising.lower, around.lower))
    upper = np.where(begins > 0, falling.upper, np.where(ends < 0, rising.upper, around.upper))
    return Enclosure(lower, upper)


def _no_dust(lower: FloatArray) -> FloatArray:
    return np.asarray(np.where(lower < TINY, 0.0, lower))
