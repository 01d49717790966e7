"""From a wanted gap to a grid: run, read the certified gap, refine.

The width of the bounds is proportional to the variance that bucketing adds, so one
wrong guess is mended by one proportional step. Of two directions only the worse one
needs the full precision.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from tightbudget.errors import PrecisionError
from tightbudget.numerics.bounds import Bounds
from tightbudget.pld.compose import Demand, Profile, Steps, profile
from tightbudget.pld.tilt import Saddle

__all__ = ["delta_bounds", "epsilon_bounds"]

_PASSES = 8
_ROUGH = 0.02  # the gap at which two directions are compared first
_FLOOR = 1e-290  # a delta below this is reported as [0, upper]


@dataclass(frozen=True)
class _Question:
    """One number asked of one direction: how to place, how to read, how wide it may be."""

    steps: Steps
    place: Callable[[float, Bounds], Saddle]  # (slip, what is known) -> tilt
    read: Callable[[Profile, Saddle, float], Bounds]  # (profile, tilt, rtol) -> the answer
    where: Callable[[Bounds], float]  # the eps at which delta was read for this answer
    allowed: Callable[[Saddle, float], float]  # (tilt, gap wanted) -> variance allowed

    def answer(self, rtol: float, known: Bounds) -> Bounds:
        """Bounds with relative gap <= rtol, or PrecisionError with the gap reached."""
        slip, share = 1e-2 * min(1.0, rtol), 0.7
        best = known
        for _ in range(_PASSES):
            saddle = self.place(slip, best)
            variance = share * self.allowed(saddle, rtol)
            try:
                seen = profile(self.steps, Demand(saddle, variance, slip))
            except PrecisionError as error:
                raise _missed(rtol, best, str(error)) from error
            got = self.read(seen, saddle, rtol)
            best = Bounds(max(best.lower, got.lower), max(best.lower, min(best.upper, got.upper)))
            gap = best.relative_gap
            if gap <= rtol or best.upper <= _FLOOR:
                return best
            # one part of the gap is proportional to the variance, the other to the slip
            wasted = seen.waste(self.where(got)) if math.isfinite(got.upper) else 1.0
            by_buckets, by_cuts = gap * (1.0 - wasted), gap * wasted
            if by_buckets > 0.5 * rtol:
                share *= max(1e-4, 0.5 * rtol / by_buckets)
            if by_cuts > 0.2 * rtol:
                slip *= max(1e-8, 0.05 * rtol / by_cuts) if math.isfinite(by_cuts) else 1e-4
        raise _missed(rtol, best, f"{_PASSES} refinements did not suffice")


def _missed(rtol: float, reached: Bounds, why: str) -> PrecisionError:
    return PrecisionError(
        f"relative gap {rtol:g} was not reached: the bounds are {reached} "
        f"(relative gap {reached.relative_gap:.2g}); {why}",
        reached.lower,
        reached.upper,
    )


def epsilon_bounds(directions: tuple[Steps, ...], delta: float, rtol: float) -> Bounds:
    """Bounds of eps*(delta) = inf{eps >= 0: delta(eps) <= delta}, the worse direction.

    Guarantee: the exact value lies inside, and (upper - lower) <= rtol * upper; upper is
    inf only if delta may be below the mass at infinity.

    Raises:
        PrecisionError: the gap cannot be reached within the limits.
    """
    return _worse(directions, lambda steps: _epsilon_question(steps, delta), rtol)


def delta_bounds(directions: tuple[Steps, ...], epsilon: float, rtol: float) -> Bounds:
    """Bounds of delta(eps), the worse direction, for any finite eps.

    Guarantee: the exact value lies inside, and (upper - lower) <= rtol * upper unless upper
    is below 1e-290.

    Raises:
        PrecisionError: the gap cannot be reached within the limits.
    """
    return _worse(directions, lambda steps: _delta_question(steps, epsilon), rtol)


def _worse(
    directions: tuple[Steps, ...], ask: Callable[[Steps], _Question | Bounds], rtol: float
) -> Bounds:
    """The maximum over the directions; the milder one is refined no further than needed."""
    asked = [ask(steps) for steps in directions]
    known: list[Bounds] = []
    for question in asked:
        if isinstance(question, Bounds):
            known.append(question)
        elif len(asked) == 1 or rtol >= _ROUGH:
            known.append(question.answer(rtol, Bounds(0.0, math.inf)))
        else:
            known.append(question.answer(_ROUGH, Bounds(0.0, math.inf)))
    for i, question in enumerate(asked):
        floor = max(bounds.lower for bounds in known)
        if isinstance(question, _Question) and known[i].upper > floor or known[i].lower == floor:
            if isinstance(question, _Question) and known[i].relative_gap > rtol:
                known[i] = question.answer(rtol, known[i])
    return Bounds(max(b.lower for b in known), max(b.upper for b in known))


def _epsilon_question(steps: Steps, delta: float) -> _Question | Bounds:
    if delta >= 1.0:
        return Bounds(0.0, 0.0)
    if steps.infinity.lower > delta:
        return Bounds(math.inf, math.inf)
    if not steps.steps:
        return Bounds(0.0, 0.0 if steps.infinity.upper <= delta else math.inf)
    if steps.infinity.upper <= delta and steps.max_loss.upper <= 0.0:
        return Bounds(0.0, 0.0)
    if delta <= steps.infinity.upper:
        # nothing is left for finite losses: the largest of them, if there is one
        proved = max(0.0, steps.max_loss.lower) if delta <= steps.infinity.lower else 0.0
        sure = steps.infinity.upper <= delta
        return Bounds(proved, max(0.0, steps.max_loss.upper) if sure else math.inf)
    left = delta - steps.infinity.upper

    def place(slip: float, known: Bounds) -> Saddle:
        return steps.picture.without_tail(math.log(slip * left)).for_delta(left, _ease(slip))

    return _Question(
        steps,
        place,
        lambda p, saddle, rtol: p.epsilon(delta, _scale(saddle), 1e-3 * rtol),
        lambda bounds: bounds.upper,
        # d eps = (theta + 1) / 2 * d variance
        lambda saddle, rtol: 2.0 * rtol * _scale(saddle) / (saddle.theta + 1.0),
    )


def _ease(slip: float) -> float:
    # how many nats the tilt may be off: digits that a small slip needs are not spent here
    return min(6.0, max(0.0, math.log(slip * 1e9)))


def _scale(saddle: Saddle) -> float:
    # a guess of eps that is positive also where the approximation says zero
    return max(saddle.epsilon, 1e-3 * saddle.spread)


def _delta_question(steps: Steps, epsilon: float) -> _Question | Bounds:
    if not steps.steps or epsilon >= steps.max_loss.upper:
        certain = max(0.0, -math.expm1(epsilon)) if epsilon < 0 else 0.0
        lower = min(1.0, max(steps.infinity.lower, certain * (1 - 1e-15)))
        return Bounds(lower, min(1.0, max(steps.infinity.upper, certain * (1 + 1e-15))))

    def place(slip: float, known: Bounds) -> Saddle:
        whole = steps.picture
        log_delta = whole.for_epsilon(epsilon).log_delta
        if known.upper <= 1.0:
            log_delta = math.log(max(known.lower, 1e-3 * known.upper, _FLOOR))
        saddle = whole.without_tail(math.log(slip) + log_delta).for_epsilon(epsilon, _ease(slip))
        return dataclasses.replace(saddle, log_delta=min(log_delta, saddle.log_delta))

    return _Question(
        steps,
        place,
        lambda p, saddle, rtol: p.delta(epsilon),
        lambda bounds: epsilon,
        # d ln delta = theta (theta + 1) / 2 * d variance
        lambda saddle, rtol: 2.0 * rtol / (saddle.theta * (saddle.theta + 1.0)),
    )
