"""From a wanted gap to a grid: run, read the certified gap, refine.

The width of the bounds is proportional to the variance that bucketing adds, so one
wrong guess is mended by one proportional step. Of two directions only the worse one
needs the full precision.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from tightbudget.engine.buckets.compose import MAX_LENGTH, Demand, Parts, make_plan, profile
from tightbudget.engine.buckets.enumerate import Outcomes
from tightbudget.engine.buckets.one_run import OneRun
from tightbudget.engine.buckets.profile import Profile
from tightbudget.engine.buckets.tilt import Saddle
from tightbudget.errors import PrecisionError
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import UNIT, add_up

__all__ = ["Memory", "delta_bounds", "epsilon_bounds"]

_PASSES = 8
_ROUGH = 0.02  # the gap at which two directions are compared first
_DEAR = 2**14  # buckets of one step that are not spent on a guess
_FIRST_LENGTH = 2**17  # what the first guess may spend on one step
_REMEMBERED = 3  # profiles that a curve's next point looks at
_ROUNDED = 1e-12  # a width that comes from the rounding of the losses alone
_FLOOR = 1e-290  # a delta below this is reported as [0, upper]


# by direction, profiles that were made for earlier points of a curve
Memory = dict[int, list[Profile]]


@dataclass(frozen=True)
class Answer:
    """What is known: bounds, and the share of the predicted variance that met the gap."""

    bounds: Bounds
    share: float = 0.9


@dataclass(frozen=True)
class _Question:
    """One number asked of one direction: how to place, how to read, how wide it may be."""

    parts: Parts
    size: float  # about the answer
    most: float  # what the answer cannot exceed
    place: Callable[[float, float, Bounds], Saddle]  # (tail, ease, what is known) -> tilt
    read: Callable[[Profile, Saddle, float], Bounds]  # (profile, tilt, rtol) -> the answer
    where: Callable[[Bounds], float]  # the eps at which delta was read for this answer
    allowed: Callable[[Saddle, float], float]  # (tilt, gap wanted) -> variance allowed

    def answer(
        self,
        rtol: float,
        known: Answer,
        floor: float = -math.inf,
        ceiling: float = math.inf,
        memory: list[Profile] | None = None,
    ) -> Answer:
        """Bounds with relative gap <= rtol, or wholly below the floor or above the ceiling.

        ``memory`` holds profiles of earlier questions, which may answer this one too.

        Raises:
            PrecisionError: with the ends that were reached in this direction.
        """
        best, share = known.bounds, known.share
        slip = tail = 1e-2 * rtol
        if memory is not None:
            share *= 0.5  # somewhat finer, so that the profile serves its neighbours
            saddle = self.place(tail, _ease(slip), best)
            for seen in memory[-_REMEMBERED:]:
                got = self.read(seen, saddle, rtol)
                best = Bounds(max(best.lower, got.lower), min(best.upper, got.upper))
            if best.relative_gap <= rtol or best.upper <= floor:
                return Answer(best, known.share)
        most, cut, extended = _FIRST_LENGTH, math.inf, False
        wasted = math.nan
        for turn in range(_PASSES + 1):
            saddle = self.place(tail, _ease(slip), best)
            allowed = self.allowed(saddle, rtol)
            demand = Demand(saddle, share * allowed, tail, slip, extended)
            try:
                plan, coarser = make_plan(self.parts, demand, most), 1.0
                if turn == 0 and plan.longest > _DEAR and memory is None:
                    # what a dear plan will reach is learned from a cheap one
                    coarser = 64.0
                    cheap = dataclasses.replace(demand, variance=coarser * demand.variance)
                    plan = make_plan(self.parts, cheap, most)
                seen = profile(self.parts, plan)
            except PrecisionError as error:
                raise _given_up(str(error), best, wasted) from error
            if memory is not None:
                memory.append(seen)
            got = self.read(seen, saddle, rtol)
            best = Bounds(max(best.lower, got.lower), min(best.upper, got.upper))
            gap = got.relative_gap
            decided = best.upper <= max(_FLOOR, floor) or best.lower > ceiling
            if best.relative_gap <= rtol or decided:
                return Answer(best, share * _aim(rtol, gap))
            # one part of the gap is proportional to the variance, the other to the slip
            wasted = seen.waste(self.where(got)) if math.isfinite(got.upper) else 1.0
            by_buckets, by_cuts = gap * (1.0 - wasted) / coarser, gap * wasted
            cutting = by_cuts > 0.2 * rtol
            if cutting and wasted > 0.5:
                pass  # what buckets do is not seen until cuts and rounding do less
            elif plan.clamped:
                if most == MAX_LENGTH:
                    break
                most = min(8 * most, MAX_LENGTH)
            elif by_buckets > 0:
                used = min(share, plan.variance / (coarser * allowed))
                share = used * _aim(max(0.2 * rtol, rtol - by_cuts), by_buckets)
            if cutting:
                # where cuts are finer than doubles, or finer ones did not help, it is the rounding
                helpless = cut < math.inf and rtol < by_cuts > 0.5 * cut
                if helpless and extended:
                    raise _given_up("the rounding of doubles stands in the way", best, wasted)
                if helpless or (not extended and plan.tolerance < UNIT):
                    extended, cut, slip = True, math.inf, 1e-3 * tail
                    continue
                cut = by_cuts
                slip *= max(1e-8, 0.05 * rtol / by_cuts) if math.isfinite(by_cuts) else 1e-4
        why = f"arrays are limited to {MAX_LENGTH} buckets"
        why = why if plan.clamped else f"{_PASSES} refinements did not do"
        raise _given_up(why, best, wasted)


def _given_up(why: str, best: Bounds, wasted: float) -> PrecisionError:
    """A refusal that says what the gap of the last pass was made of, if there was one."""
    if wasted >= 0.01:
        why += f" (of the last gap {wasted:.0%} came from cuts and rounding, the rest from buckets)"
    return PrecisionError(why, best.lower, best.upper)


def _aim(rtol: float, gap: float) -> float:
    # the factor that turns this gap into a little less than rtol
    return min(4.0, max(1e-4, 0.8 * rtol / gap)) if gap > 0 else 1.0


def _missed(rtol: float, reached: Bounds, why: str) -> PrecisionError:
    return PrecisionError(
        f"relative gap {rtol:g} was not reached: the bounds are {reached} "
        f"(relative gap {reached.relative_gap:.2g}); {why}",
        reached.lower,
        reached.upper,
    )


def epsilon_bounds(
    directions: tuple[Parts, ...], delta: float, rtol: float, memory: Memory | None = None
) -> Bounds:
    """Bounds of eps*(delta) = inf{eps >= 0: delta(eps) <= delta}, the worse direction.

    Guarantee: the exact value lies inside, and (upper - lower) <= rtol * upper; upper is
    inf only if delta may be below the mass at infinity.

    Raises:
        PrecisionError: the gap cannot be reached within the limits.
    """
    return _worse(
        directions, lambda parts: _epsilon_question(parts, delta, rtol), rtol, memory=memory
    )


def delta_bounds(
    directions: tuple[Parts, ...],
    epsilon: float,
    rtol: float,
    target: float | None = None,
    memory: Memory | None = None,
) -> Bounds:
    """Bounds of delta(eps), the worse direction, for any finite eps.

    Guarantee: the exact value lies inside, and (upper - lower) <= rtol * upper, unless upper
    is below 1e-290 or the losses are known too badly (then upper - lower <= 1e-12). With a
    ``target`` it stops as soon as both ends are on one side of it.

    Raises:
        PrecisionError: the gap cannot be reached within the limits.
    """
    return _worse(
        directions, lambda parts: _delta_question(parts, epsilon, rtol), rtol, target, memory
    )


def _worse(
    directions: tuple[Parts, ...],
    ask: Callable[[Parts], _Question | Bounds],
    rtol: float,
    target: float | None = None,
    memory: Memory | None = None,
) -> Bounds:
    """The maximum over the directions; the milder one is refined no further than needed."""
    asked = [ask(parts) for parts in directions]
    known = [Answer(a if isinstance(a, Bounds) else Bounds(0.0, a.most)) for a in asked]
    why = ""
    # the one that looks worse first: as a rule a rough look at the other one then suffices
    questions = [(i, q) for i, q in enumerate(asked) if isinstance(q, _Question)]
    questions.sort(key=lambda item: -item[1].size)
    for i, question in questions:
        # how far this one seems to be below the worst one: half of that decides, as a rule
        below = 1.0 - question.size / max(questions[0][1].size, 1e-300)
        for wanted in (max(rtol, min(_ROUGH, 0.5 * below)), rtol):
            floor = max(answer.bounds.lower for answer in known)
            ceiling = math.inf
            if target is not None:
                if floor > target:
                    return Bounds(floor, question.most)
                floor, ceiling = target, target
            small = known[i].bounds.upper <= max(_FLOOR, floor)
            if small or known[i].bounds.relative_gap <= wanted:
                continue
            try:
                past = None if memory is None else memory.setdefault(i, [])
                known[i] = question.answer(wanted, known[i], floor, ceiling, past)
            except PrecisionError as error:  # the other direction may still settle it
                known[i], why = Answer(Bounds(error.lower, error.upper)), str(error)
                break
    worst = _worst(known)
    close = worst.relative_gap <= rtol or worst.upper <= _FLOOR
    # an upper end of inf is an answer where delta may be below the mass at infinity, and a
    # width that comes from the losses' own rounding is nobody's to mend
    fair = not why and (math.isinf(worst.upper) or (not questions and worst.width <= _ROUNDED))
    if target is None and not (close or fair):
        raise _missed(rtol, worst, why or "the losses themselves are not known more closely")
    return worst


def _worst(known: list[Answer]) -> Bounds:
    return Bounds(max(a.bounds.lower for a in known), max(a.bounds.upper for a in known))


def _epsilon_question(parts: Parts, delta: float, rtol: float) -> _Question | Bounds:
    if delta >= 1.0:
        return Bounds(0.0, 0.0)
    if parts.infinity.lower > delta:
        return Bounds(math.inf, math.inf)
    if not parts.parts:
        return Bounds(0.0, 0.0 if parts.infinity.upper <= delta else math.inf)
    if add_up(parts.infinity.upper, max(0.0, parts.max_loss.upper)) <= delta:
        return Bounds(0.0, 0.0)  # delta(0) = P(infinite) + E[(1 - e^-L)_+] is at most this
    if delta <= parts.infinity.upper:
        # nothing is left for finite losses: the largest of them, if there is one
        proved = max(0.0, parts.max_loss.lower) if delta <= parts.infinity.lower else 0.0
        sure = parts.infinity.upper <= delta
        return Bounds(proved, max(0.0, parts.max_loss.upper) if sure else math.inf)
    left = delta - parts.infinity.upper
    few = Outcomes.of(parts)
    if few is not None:
        return few.epsilon(delta)

    first = parts.picture.without_tail(math.log(_ROUGH) + math.log(left)).for_delta(left)
    once = OneRun.of(parts)
    if once is not None:
        found = once.epsilon(delta, _scale(first), 1e-3 * rtol)
        if found.relative_gap <= rtol:
            return found

    def place(tail: float, ease: float, known: Bounds) -> Saddle:
        losses = parts.picture.without_tail(math.log(tail) + math.log(left))
        return losses.for_delta(left, ease, start=first.slope)

    return _Question(
        parts,
        first.epsilon,
        math.inf,
        place,
        lambda p, saddle, rtol: p.epsilon(delta, _scale(saddle), 1e-3 * rtol),
        lambda bounds: bounds.upper,
        # d eps = (theta + 1) / 2 * d variance
        lambda saddle, rtol: 2.0 * rtol * _scale(saddle) / (saddle.slope + 1.0),
    )


def _ease(slip: float) -> float:
    # how many nats the tilt may be off: digits that a small slip needs are not spent here
    return min(6.0, max(0.0, math.log(slip * 1e9)))


def _scale(saddle: Saddle) -> float:
    # a guess of eps that is positive also where the approximation says zero
    return max(saddle.epsilon, 1e-3 * saddle.spread)


def _delta_question(parts: Parts, epsilon: float, rtol: float) -> _Question | Bounds:
    top = parts.max_loss.upper
    if not parts.parts or epsilon >= top - _ROUNDED / 4 * min(1.0, abs(top)):
        # at the largest loss, up to rounding: delta <= P(inf) + 1 - e^(eps - top)
        certain = max(0.0, -math.expm1(epsilon)) if epsilon < 0 else 0.0
        above = -math.expm1(min(0.0, epsilon - top)) if parts.parts else 0.0
        lower = min(1.0, max(parts.infinity.lower, certain * (1 - 1e-15)))
        upper = add_up(parts.infinity.upper, above * (1 + 1e-15))
        return Bounds(lower, min(1.0, max(upper, certain * (1 + 1e-15))))

    few = Outcomes.of(parts)
    if few is not None:
        return few.delta(epsilon)
    once = OneRun.of(parts)
    if once is not None:
        found = once.delta(epsilon)
        if found.relative_gap <= rtol:
            return found

    def place(
        tail: float, ease: float, known: Bounds, guess: float = 0.0, start: float = 1.0
    ) -> Saddle:
        # what may count as infinite depends on delta, and the guess of delta on that
        whole, guess = parts.picture, min(guess, math.log(min(1.0, known.upper)))
        for _ in range(100):
            cut = max(guess + math.log(tail), -700.0)
            saddle = whole.without_tail(cut).for_epsilon(epsilon, start=start)
            start = saddle.slope
            if max(saddle.log_delta, cut) > guess - 0.5:
                break
            guess = max(saddle.log_delta, cut)
        if ease > 0:
            saddle = whole.without_tail(cut).for_epsilon(epsilon, ease, start)
        return dataclasses.replace(saddle, log_delta=min(guess, saddle.log_delta))

    first = place(_ROUGH, 0.0, Bounds(0.0, 1.0))
    # later guesses start a little above the first one
    near = functools.partial(place, guess=min(0.0, first.log_delta + 1.0), start=first.slope)
    return _Question(
        parts,
        math.exp(first.log_delta),
        1.0,
        near,
        lambda p, saddle, rtol: p.delta(epsilon),
        lambda bounds: epsilon,
        # d ln delta = theta (theta + 1) / 2 * d variance
        lambda saddle, rtol: 2.0 * rtol / (saddle.slope * (saddle.slope + 1.0)),
    )
