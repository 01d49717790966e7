"""Bounds of a run's masses that keep to the sums of all of them.

Each mass is known to some units of 1e-16, so that tens of thousands of bounds are off together by
1e-11, and a million runs by a million times as much. The exact masses of P have the sum 1, and so
have those of Q: they tell far better what all bounds together have too much or too little.
"""

from __future__ import annotations

import math

import numpy as np

from tightbudget.engine.levels.masses import lowered
from tightbudget.numerics.rounding import (
    EXPM1,
    UNIT,
    FloatArray,
    add_up,
    next_down,
    next_up,
    sub_up,
)

_MOST = 1e290  # Q-masses times as much are near the end of doubles: nothing is said of sums


@np.errstate(over="ignore", invalid="ignore")
def without_excess(
    u: FloatArray, losses: FloatArray, slack: FloatArray, missing: float
) -> FloatArray:
    """Upper masses without what their sum has too much.

    Guarantee: let exact masses v <= u have a sum of at most 1, and v e^-x a sum of at least
    1 - ``missing``. Then the masses returned dominate v.

    Proof: the differences u - v are masses, too, with a sum E, and E' where each is times e^-x.
    By Jensen's inequality they have at least (E - e^eps E')+ of a delta, whatever eps is. A mass m
    at one point x has m (1 - e^eps e^-x)+ of it, which is no more if m <= E and m e^-x >= E'.

    Args:
        u: (n,) upper bounds of masses.
        losses, slack: (n,) where they lie, nats, and how far those may be off.
        missing: how much less than 1 the Q-mass of v is at most.
    """
    held = u > 0.0
    summed = math.fsum(np.append(u, -1.0))
    excess = next_down(summed)
    least, most = _exp_less_one(-losses, slack)
    if not (excess > 0.0 and np.all(most[held] < _MOST)):
        return u
    # two products, each by a unit
    more = math.fsum((u * most * (1.0 + np.copysign(4 * UNIT, most)))[held])
    # E' is at most the excess and this
    above = add_up(next_up(summed), -excess, next_up(more), missing)
    fit = (u >= excess) & (least >= next_up(above / excess))
    if not fit.any():
        return u
    at = int(np.argmin(np.where(fit, least, math.inf)))
    less = u.copy()
    less[at] = max(0.0, sub_up(float(u[at]), excess))
    return less


# Proof: proofs/order.v, theorem merging
@np.errstate(over="ignore", invalid="ignore")
def with_rest(
    p: FloatArray, r: FloatArray, losses: FloatArray, slack: FloatArray, over: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Outputs of a pair with all that they leave out, which is merged into one of them.

    Guarantee: let the outputs be shares of those of a pair whose P-masses and whose Q-masses have
    the sum 1, with a Q-mass from p (1 + ``over``) e^-x to (p + r) e^-x at the point x. Then those
    returned are a post-processing of the pair with such Q-masses, too: what is left out has the
    P-mass 1 - sum(p), and at most the Q-mass 1 - sum(p (1 + over) e^-x).

    Args:
        p, r: (n,) the outputs, as those of ``Lower`` with a shift of 0.
        losses, slack: (n,) where they lie, nats, and how far those may be off.
        over: (n,) >= -1.
    """
    summed = -math.fsum(np.append(p, -1.0))
    rest = next_down(summed)
    if not rest > 0.0:
        return p, r
    # p (1 + over) e^-x - p, from below; its terms may have two signs
    least, most = _exp_less_one(-losses, slack)
    least = np.fmin(least, _MOST)
    each = over * (1.0 + least)
    more = math.fsum(p * (least + each - 8 * UNIT * (np.abs(least) + np.abs(each))))
    # the Q-mass of the rest is at most its P-mass and this
    above = add_up(next_up(summed), -rest, next_up(-more))
    # its loss, or the next point: any point serves
    fit = most * rest <= above
    at = int(np.argmax(np.where(fit, most, -math.inf))) if fit.any() else p.size - 1
    low, high = (float(x[0]) for x in _exp_less_one(losses[at : at + 1], slack[at : at + 1]))
    # (rest + above) e^x - rest
    raised = add_up(rest * high, above * (1.0 + (high if above > 0.0 else low)))
    raised += 8 * UNIT * (rest * abs(high) + abs(above) * (1.0 + high))
    if not raised < math.inf:
        return p, r
    whole, excess = p[at : at + 1] + rest, r[at : at + 1] + max(0.0, raised)
    some = lowered(whole, excess, 2 * UNIT * whole, 2 * UNIT * excess)
    more_p, more_r = p.copy(), r.copy()
    more_p[at], more_r[at] = some[0][0], some[1][0]
    return more_p, more_r


@np.errstate(over="ignore", invalid="ignore")
def _exp_less_one(x: FloatArray, slack: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A lower and an upper bound of e^y - 1 for each y within ``slack`` of x."""
    least, most = np.expm1(x - slack), np.expm1(x + slack)
    # a sum with the slack moves e^y by a unit of y; expm1, and the sum with this
    least = least - UNIT * (2 * (np.abs(x) + slack) * (1.0 + least) + (EXPM1 + 2) * np.abs(least))
    most = most + UNIT * (2 * (np.abs(x) + slack) * (1.0 + most) + (EXPM1 + 2) * np.abs(most))
    return np.maximum(-1.0, least), most
