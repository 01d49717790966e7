"""From a wanted gap to a grid: run, read the certified gap, refine.

The width of the bounds is proportional to the variance that bucketing adds, so one
wrong guess is mended by one proportional step. Of two directions only the worse one
needs the full precision.
"""

from __future__ import annotations

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
    saddle: Saddle
    read: Callable[[Profile, float], Bounds]  # (profile, rtol)
    allowed: Callable[[float], float]  # gap wanted -> variance allowed

    def answer(self, rtol: float, known: Bounds) -> Bounds:
        """Bounds with relative gap <= rtol, or PrecisionError with the gap reached."""
        variance = 0.7 * self.allowed(rtol)
        slip = 1e-2 * min(1.0, rtol * max(1.0, self.saddle.theta * max(self.saddle.epsilon, 0.0)))
        best = known
        for _ in range(_PASSES):
            try:
                got = self.read(profile(self.steps, Demand(self.saddle, variance, slip)), rtol)
            except PrecisionError as error:
                raise _missed(rtol, best, str(error)) from error
            best = Bounds(max(best.lower, got.lower), max(best.lower, min(best.upper, got.upper)))
            gap = best.relative_gap
            if gap <= rtol or best.upper <= _FLOOR:
                return best
            # the gap is proportional to the variance; a factor below it for safety
            shrink = min(0.5, 0.6 * rtol / gap) if math.isfinite(gap) else 0.1
            variance *= max(shrink, 1e-4)
            slip *= 0.1
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
    saddle = steps.picture.for_delta(left)
    return _Question(
        steps,
        saddle,
        lambda p, rtol: p.epsilon(delta, max(saddle.epsilon, 1e-3 * saddle.spread), 1e-3 * rtol),
        lambda rtol: _epsilon_variance(saddle, rtol),
    )


def _epsilon_variance(saddle: Saddle, rtol: float) -> float:
    # d eps = (theta + 1) / 2 * d variance
    epsilon = max(saddle.epsilon, 1e-3 * saddle.spread)
    return 2.0 * rtol * epsilon / (saddle.theta + 1.0)


def _delta_question(steps: Steps, epsilon: float) -> _Question | Bounds:
    if not steps.steps or epsilon >= steps.max_loss.upper:
        certain = max(0.0, -math.expm1(epsilon)) if not math.isinf(epsilon) else 0.0
        lower = min(1.0, max(steps.infinity.lower, certain * (1 - 1e-15)))
        return Bounds(lower, min(1.0, max(steps.infinity.upper, certain * (1 + 1e-15))))
    saddle = steps.picture.for_epsilon(epsilon)
    return _Question(
        steps,
        saddle,
        lambda p, rtol: p.delta(epsilon),
        # d ln delta = theta (theta + 1) / 2 * d variance
        lambda rtol: 2.0 * rtol / (saddle.theta * (saddle.theta + 1.0)),
    )
