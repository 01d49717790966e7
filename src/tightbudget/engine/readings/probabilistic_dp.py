"""Probabilistic DP counts the mass of losses above eps, which delta(eps) alone bounds.

With t = e^eps, D(t) = delta(eps) = P(L > eps) - t Q(L > eps) is convex, and its slope is
-Q(L > eps). The chord before t is steeper, the one after it less steep; so for any h > 0

    (D(t) - D(e^h t)) / (e^h - 1)  <=  t Q(L > eps)  <=  (D(e^-h t) - D(t)) / (1 - e^-h),

and P(L > eps) = delta(eps) + t Q(L > eps). Where eps is a loss with a mass, D has a kink at t: its
slope is -Q(L >= eps) before and -Q(L > eps) after, so that the chord before t bounds P(L >= eps).
"""

from __future__ import annotations

import math

from tightbudget.engine.buckets.compose import Parts
from tightbudget.engine.engine import Engine, Reader
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    UNIT,
    add_down,
    add_up,
    sub_down,
    sub_up,
)

# The h that are tried, each twice the one before. Every h proves bounds. The best one is about the
# root of delta's relative gap, which is 1e-16 at least: at 1e-10 a chord shows rounding alone.
_FIRST, _LAST = 2.0**-33, 0.25
# The first h where eps cannot be told from the largest loss: there the mass at the loss counts or
# not, and a shorter chord closes no gap.
_AT_THE_TOP = 2.0**-6
_WORSE = 4.0  # times the narrowest bounds so far: longer chords only get wider
# The relative gap with which it is seen which direction has the larger delta, and whether the other
# one matters.
_ROUGH = 0.1
# Of the gap of delta at eps, for its neighbours': what answered there answers here at once.
_NEAR = 4.0
_GAP = 0.1  # of delta, relative to the wanted one


def exceedance_bounds(losses: Engine, epsilon: float, rtol: float) -> Bounds:
    """Bounds of P(L > eps), the larger of the directions, for any finite eps.

    Guarantee: the exact value lies inside. The relative gap is ``rtol`` where delta is known to
    rtol^2 or so, else about the square root of delta's gap; at an eps that is itself a loss with
    a mass, P(L > eps) and P(L >= eps) lie inside.
    Source: Machanavajjhala et al. 2008, for the notion.
    """
    readers = [(one.parts[0], one.reader()) for one in losses.apart()]
    ends = list[Bounds]()
    # the direction with the larger delta first: then little need be known of the other one
    for parts, read in sorted(readers, key=lambda one: -one[1](epsilon, _ROUGH).upper):
        floor = max((found.lower for found in ends), default=0.0)
        ends.append(_of_direction(parts, read, epsilon, rtol, floor))
    return Bounds.worst(ends)


def _of_direction(
    parts: Parts, read: Reader, epsilon: float, rtol: float, floor: float = 0.0
) -> Bounds:
    """Bounds of P(L > eps) in one direction; below ``floor`` they need not be close."""
    # at the largest loss itself an output of that loss counts or not: both must lie inside
    # guard: output-largest-loss-count
    if epsilon > parts.max_loss.upper or (not parts.parts and parts.certain):
        return parts.infinity
    if not parts.parts:  # nothing runs: the loss is 0
        return Bounds(float(epsilon < 0.0), float(epsilon <= 0.0))
    first = _FIRST if epsilon < parts.max_loss.lower else _AT_THE_TOP
    best = Bounds(0.0, 1.0)
    for gap in (_ROUGH, _GAP * rtol) if floor > 0.0 else (_GAP * rtol,):
        best = best.meet(_by_chords(read, epsilon, gap, first, floor))
        if best.upper <= floor:
            break
    return best


def _by_chords(read: Reader, epsilon: float, gap: float, first: float, floor: float) -> Bounds:
    """Bounds of P(L > eps) by longer and longer chords, until they get wider.

    Args:
        read: answers delta.
        epsilon: the loss.
        gap: of delta there.
        first: the shortest chord.
        floor: an upper bound below it does as well.
    """
    here = read(epsilon, gap)
    best, narrowest, h = Bounds(here.lower, 1.0), math.inf, first
    while h <= _LAST and best.upper > floor:
        left, right = epsilon - h, epsilon + h
        before, after = read(left, _NEAR * gap), read(right, _NEAR * gap)
        drop = sub_up(before.upper, here.lower)  # guard: upper-bounds-before-eps-lower-bounds
        most = drop / -math.expm1(-sub_down(epsilon, left)) * (1 + 8 * UNIT)
        drop = max(0.0, sub_down(here.lower, after.upper))
        least = drop / math.expm1(sub_up(right, epsilon)) * (1 - 8 * UNIT)
        # guard: chord-before-eps-upper-bound-mass
        low, high = add_down(here.lower, least), add_up(here.upper, most)
        best = best.meet(Bounds(low, high))
        if high - low > _WORSE * narrowest:
            break
        narrowest, h = min(narrowest, high - low), 2.0 * h
    return best
