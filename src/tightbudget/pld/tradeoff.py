"""The trade-off between the two errors of a test, from bounds on delta(eps).

f(a) = sup over eps of 1 - delta(eps) - e^eps a (Dong, Roth, Su 2022). Any eps proves a
lower end; the upper end needs all of them: delta is decreasing, so on [e1, e2] the term
is at most 1 - delta(e2) - e^e1 a.
"""

from __future__ import annotations

import dataclasses
import heapq
import math

from tightbudget.errors import PrecisionError
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import UNIT, exp_down, exp_up, sub_down, sub_up
from tightbudget.pld.compose import Demand, Steps, make_plan, profile
from tightbudget.pld.profile import Profile
from tightbudget.pld.tilt import Saddle

__all__ = ["tradeoff_bounds"]

_CELLS = 4000


def tradeoff_bounds(directions: tuple[Steps, ...], alpha: float, atol: float) -> Bounds:
    """Bounds of the least false-negative rate at false-positive rate alpha in [0, 1].

    Guarantee: the exact value of the smaller direction lies inside.
    """
    ends = [_of_direction(steps, alpha, atol) for steps in directions]
    return Bounds(min(b.lower for b in ends), min(b.upper for b in ends))


def _of_direction(steps: Steps, alpha: float, atol: float) -> Bounds:
    if alpha == 1.0:
        return Bounds(0.0, 0.0)
    if not steps.steps:  # nothing runs: guessing is all there is
        sure = 1.0 - alpha - steps.infinity.upper, 1.0 - alpha - steps.infinity.lower
        return Bounds(max(0.0, sure[0] - 2 * UNIT), max(0.0, min(1.0, sure[1] + 2 * UNIT)))
    if alpha == 0.0:  # only outputs that Q cannot produce may be rejected
        lost = steps.infinity
        least = sub_down(1.0, lost.upper) if lost.upper > 0 else 1.0
        return Bounds(max(0.0, least), min(1.0, sub_up(1.0, lost.lower)))
    # the optimal eps is the loss above which Q has mass alpha; Q's losses: P tilted by -1
    _, mean, variance = steps.picture.cumulants(-1.0)
    spread = math.sqrt(max(variance, 1e-300))
    centre = mean + spread * math.sqrt(2.0 * max(0.0, -math.log(min(alpha, 0.5))))
    saddle = steps.picture.for_epsilon(centre)
    slip = 1e-3 * atol
    best = Bounds(0.0, 1.0)
    variance_allowed = atol * spread
    for _ in range(5):
        demand = Demand(_wide(saddle, atol), variance_allowed, slip, slip)
        best = _search(profile(steps, make_plan(steps, demand)), alpha, atol, centre, spread)
        if best.upper - best.lower <= atol:
            return best
        variance_allowed *= 0.2
        slip *= 0.1
    raise PrecisionError(
        f"absolute gap {atol:g} was not reached: the bounds are {best}", best.lower, best.upper
    )


def _wide(saddle: Saddle, atol: float) -> Saddle:
    # an absolute gap is wanted: a gentle tilt serves a wide range of eps
    return dataclasses.replace(saddle, theta=min(saddle.theta, 1.0), log_delta=math.log(atol))


def _search(seen: Profile, alpha: float, atol: float, centre: float, spread: float) -> Bounds:
    """Branch and bound over eps."""

    def least(e: float) -> float:
        return 1.0 - seen.upper_delta(e) - exp_up(e) * alpha - 4 * UNIT

    def most(e1: float, e2: float) -> float:
        return 1.0 - seen.lower_delta(e2) - exp_down(e1) * alpha + 4 * UNIT

    reach = 12.0 * spread + 1.0
    left = min(centre - reach, math.log(0.1 * atol))
    right = max(centre + reach, math.log1p(1.0 / alpha))
    # beyond both ends: 1 - delta(e) <= e^e, and 1 - e^e alpha <= 0
    outside = max(exp_up(left), 1.0 - exp_down(right) * alpha)
    proved = max(0.0, least(left), least(right), least(centre))
    cells = [(-most(left, right), left, right)]
    for _ in range(_CELLS):
        bound, e1, e2 = cells[0]
        if -bound <= max(proved, outside) + 0.25 * atol:
            break
        middle = 0.5 * (e1 + e2)
        proved = max(proved, least(middle))
        heapq.heapreplace(cells, (-most(e1, middle), e1, middle))
        heapq.heappush(cells, (-most(middle, e2), middle, e2))
    upper = max(-cells[0][0], outside, proved)
    return Bounds(min(1.0, proved), min(1.0, max(upper, 0.0)))
