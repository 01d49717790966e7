"""Probabilistic DP counts the mass of losses above eps, which delta(eps) alone bounds.

With t = e^eps, D(t) = delta(eps) = P(L > eps) - t Q(L > eps) is convex, and its slope is
-Q(L > eps). The chord before t is steeper, the one after it less steep; so for any h > 0

    (D(t) - D(e^h t)) / (e^h - 1)  <=  t Q(L > eps)  <=  (D(e^-h t) - D(t)) / (1 - e^-h),

and P(L > eps) = delta(eps) + t Q(L > eps). Where eps is a loss with a mass, D has a kink at t: its
slope is -Q(L >= eps) before and -Q(L > eps) after, so that the chord before t bounds P(L >= eps).
"""

from __future__ import annotations

import math

from tightbudget.engine.engine import Engine
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    UNIT,
    add_down,
    add_up,
    sub_down,
    sub_up,
)

# The h that are tried, each half of the one before. Every h proves bounds. The best one is about
# the root of delta's relative gap, which is 1e-16 at least: at 1e-10 a chord shows rounding alone.
_FIRST, _LAST = 0.25, 1e-10
# The last h where eps cannot be told from the largest loss: there the mass at the loss counts or
# not, and a shorter chord closes no gap.
_AT_THE_TOP = 1e-2
_GAP = 0.1  # of delta, relative to the wanted one


def exceedance_bounds(losses: Engine, epsilon: float, rtol: float) -> Bounds:
    """Bounds of P(L > eps), the larger of the directions, for any finite eps.

    Guarantee: the exact value lies inside. The relative gap is ``rtol`` where delta is known to
    rtol^2 or so, else about the square root of delta's gap; at an eps that is itself a loss with
    a mass, P(L > eps) and P(L >= eps) lie inside.
    Source: Machanavajjhala et al. 2008, for the notion.
    """
    ends = [_of_direction(one, epsilon, rtol) for one in losses.apart()]
    return Bounds.worst(ends)


def _of_direction(losses: Engine, epsilon: float, rtol: float) -> Bounds:
    (parts,) = losses.parts
    # at the largest loss itself an output of that loss counts or not: both must lie inside
    # guard: output-largest-loss-count
    if epsilon > parts.max_loss.upper or (not parts.parts and parts.certain):
        return parts.infinity
    if not parts.parts:  # nothing runs: the loss is 0
        return Bounds(float(epsilon < 0.0), float(epsilon <= 0.0))
    read, gap = losses.reader(), _GAP * rtol
    here = read(epsilon, gap)
    best, h = Bounds(here.lower, 1.0), _FIRST
    last = _LAST if epsilon < parts.max_loss.lower else _AT_THE_TOP
    while h > last and best.relative_gap > rtol:
        left, right = epsilon - h, epsilon + h
        before, after = read(left, gap), read(right, gap)
        drop = sub_up(before.upper, here.lower)  # guard: upper-bounds-before-eps-lower-bounds
        most = drop / -math.expm1(-sub_down(epsilon, left)) * (1 + 8 * UNIT)
        drop = max(0.0, sub_down(here.lower, after.upper))
        least = drop / math.expm1(sub_up(right, epsilon)) * (1 - 8 * UNIT)
        # guard: chord-before-eps-upper-bound-mass
        low, high = add_down(here.lower, least), add_up(here.upper, most)
        best = best.meet(Bounds(low, high))
        if before.width + 2.0 * here.width + after.width > 0.5 * h * best.width:
            break  # shorter chords would only show the gaps of delta
        h *= 0.5
    return best
