"""The buckets engine plans a grid for a wanted gap, reads the certified gap, and refines.

The width of the bounds is proportional to the variance that bucketing adds, so one
wrong guess is mended by one proportional pass. Of two directions only the worse one
needs the full precision.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass

from tightbudget.engine.answer import FLOOR, ROUNDED
from tightbudget.engine.buckets.compose import (
    MAX_LENGTH,
    BucketPlan,
    Demand,
    Parts,
    make_plan,
    profile,
)
from tightbudget.engine.buckets.one_run import OneRun
from tightbudget.engine.buckets.reading import DeltaOnBuckets, OnBuckets, on_buckets
from tightbudget.engine.buckets.tilt import Saddle
from tightbudget.engine.cache import Cache
from tightbudget.engine.question import Question
from tightbudget.errors import PrecisionError
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import UNIT

# The constants of the search affect its time and what it gives up on, never the truth of a bound.
# One proportional pass mends a wrong guess, as a rule, and a second one what that did to the cuts;
# lengths grow eightfold from 2^17 to 2^21 in two more. Eight passes are twice that.
_PASSES = 8
_ROUGH = 0.02  # the gap at which two directions are compared first: the worse one mostly shows
_COSTLY = 2**14  # buckets of one part from which on a cheap plan comes first (milliseconds below)
_CHEAPER = 64.0  # times the variance of a costly plan: an eighth of its buckets
FIRST_LENGTH = 2**17  # buckets that the first guess may spend on one part, a sixteenth of the most
SHORT = 2**15  # buckets of one part where another method is as fast: some ten milliseconds
_DEEP = 1e-283  # guesses of a delta end at 3e-285 (`tilt`)
# A gap that cannot be reached is followed by one ten times as wide, up to a fifth: for a wanted gap
# of 1e-12 that is twelve questions at most, and wider bounds cost less than closer ones.
_COARSER, _COARSEST = 10.0, 0.2
_LIMITED = f"arrays are limited to {MAX_LENGTH} buckets"


@dataclass(frozen=True)
class Known:
    """A value of this class holds what is known of an answer.

    Attributes:
        bounds: the closest bounds so far.
        share: the share of the predicted variance that met the gap, for the next pass.
        why: what stood in the way of the gap that was asked for; "" if it was reached.
    """

    bounds: Bounds
    share: float = 0.9
    why: str = ""


def refine(
    question: Question,
    directions: tuple[Parts, ...],
    rtol: float,
    target: float | None = None,
    cache: Cache | None = None,
    *,
    insist: bool = True,
    patient: bool = True,
    longest: int = FIRST_LENGTH,
) -> Known:
    """Bounds of the answer: the maximum over the directions.

    Guarantee: the exact value lies inside. Where ``why`` is empty, (upper - lower) <= rtol *
    upper, unless a delta's upper bound is below 1e-290, or the losses are known too badly (then
    upper - lower <= 1e-12), or an epsilon is inf because delta may be below the mass at infinity.
    With a ``target`` it stops as soon as both bounds are on one side of it.

    Args:
        question: what is asked.
        directions: the composition in each direction.
        rtol: the wanted relative gap.
        target: a value that the answer is to be compared with.
        cache: profiles that were made for earlier questions, which are read first.
        insist: whether a gap that is not reached is followed by wider ones.
        patient: whether arrays grow and convolutions are made in extended precision where the gap
            needs it. Without patience a question that needs either is given up at once.
        longest: how many buckets one part may have without patience, or in the first passes.
    """
    insist = insist and patient
    asked = [_InOneDirection.of(question, parts, rtol, i) for i, parts in enumerate(directions)]
    known = [Known(one.remembered(cache)) for one in asked]
    why = ""
    left = [
        one for one in asked if not one.settled and known[one.direction].bounds.relative_gap > rtol
    ]
    # the one that looks worse first: as a rule a rough look at the other one then suffices
    unsettled = sorted(left, key=lambda one: -one.size)
    for one in unsettled:
        i = one.direction
        # how far this one seems to be below the worst one: half of that decides, as a rule. And of
        # a delta that seems to be below all that is answered for, a rough look shows most
        below = 1.0 - one.size / max(unsettled[0].size, _DEEP)
        for wanted in (max(rtol, min(_ROUGH, 0.5 * below)), rtol):
            floor = max(found.bounds.lower for found in known)
            ceiling = math.inf
            if target is not None:
                if floor > target:
                    return Known(Bounds(floor, question.most))
                floor, ceiling = target, target
            small = known[i].bounds.upper <= max(FLOOR, floor)
            if small or known[i].bounds.relative_gap <= wanted:
                continue
            ask = one.closest if insist else one.refined
            ask = functools.partial(ask, patient=patient, longest=longest)
            known[i] = ask(wanted, known[i], floor, ceiling, cache)
            if known[i].why:  # the other direction may still settle it
                why = known[i].why
                break
        if why and not patient:
            break
    worst = Bounds.worst(found.bounds for found in known)
    if worst.relative_gap <= rtol or worst.upper <= FLOOR or worst.decides(target):
        return Known(worst)
    # an upper bound of inf is an answer where delta may be below the mass at infinity, and a
    # width that comes from the losses' own rounding is nobody's to mend
    settled = all(one.settled for one in asked)
    if not why and (math.isinf(worst.upper) or (settled and worst.width <= ROUNDED)):
        return Known(worst)
    return Known(worst, why=why or "the losses themselves are not known more closely")


@dataclass(frozen=True)
class _InOneDirection:
    """A question that is asked of one direction of a composition.

    Attributes:
        asked: the buckets' side of it.
        direction: the number of the direction.
        start: what is known of the answer without any grid.
        settled: whether a grid brings nothing closer.
    """

    question: Question
    asked: OnBuckets
    parts: Parts
    direction: int
    start: Bounds
    settled: bool

    @staticmethod
    def of(question: Question, parts: Parts, rtol: float, direction: int) -> _InOneDirection:
        """Asks first what needs no grid: edge cases, few outcomes, a closed form."""
        asked = on_buckets(question)
        settled = asked.settled(parts)
        if settled is not None:
            return _InOneDirection(question, asked, parts, direction, settled, settled=True)
        start, run = Bounds(0.0, question.most), OneRun.of(parts)
        if run is not None:
            start = asked.by_formula(run, parts, rtol)
        done = start.relative_gap <= rtol
        return _InOneDirection(question, asked, parts, direction, start, settled=done)

    def remembered(self, cache: Cache | None) -> Bounds:
        """Returns bounds that need no new grid: a delta is read off the profiles that were made."""
        if self.settled or cache is None or not isinstance(self.asked, DeltaOnBuckets):
            return self.start
        seen = (one.delta(self.asked.epsilon) for one in cache.profiles(self.direction))
        return functools.reduce(Bounds.meet, seen, self.start)

    @functools.cached_property
    def first(self) -> Saddle:
        """The first guess of where to place a profile."""
        return self.asked.first_tilt(self.parts)

    @property
    def size(self) -> float:
        """About the answer, by the first guess."""
        return self.asked.size(self.first)

    def closest(
        self,
        rtol: float,
        known: Known,
        floor: float,
        ceiling: float,
        cache: Cache | None,
        *,
        patient: bool = True,
        longest: int = FIRST_LENGTH,
    ) -> Known:
        """Bounds with relative gap <= rtol, or else the closest ones that a wider gap brings.

        A plan for a gap out of reach may need too long arrays at once, and prove nothing. The
        plans for wider gaps prove what they can: so a refusal never knows less than an answer.
        """
        found = self.refined(rtol, known, floor, ceiling, cache, patient=patient, longest=longest)
        wider, why = _COARSER * rtol, found.why
        # a wider gap is worth its time where it promises bounds that are much closer
        # guard: ladder-of-wider-gaps
        while found.why and wider <= _COARSEST and _COARSER * wider < found.bounds.relative_gap:
            found = self.refined(wider, Known(found.bounds), floor, ceiling, cache)
            wider *= _COARSER
        decided = found.bounds.upper <= max(FLOOR, floor) or found.bounds.lower > ceiling
        reached = found.bounds.relative_gap <= rtol or decided
        return dataclasses.replace(found, why="" if reached else why)

    def refined(
        self,
        rtol: float,
        known: Known,
        floor: float,
        ceiling: float,
        cache: Cache | None,
        *,
        patient: bool = True,
        longest: int = FIRST_LENGTH,
    ) -> Known:
        """Bounds with relative gap <= rtol, or wholly below the floor or above the ceiling.

        Where the gap cannot be reached the bounds are those that the passes came to, and ``why``
        says what stood in the way.
        """
        best, effort, share_of_cuts = known.bounds, _Effort.first(known.share, rtol), math.nan
        effort = dataclasses.replace(effort, most=longest)
        if cache is not None and cache.once:
            cache = None  # it has no profiles, and keeps none
        if cache is not None:
            effort = dataclasses.replace(effort, share=0.5 * known.share)  # for its neighbours, too
            saddle = self._tilt(effort, best)
            for seen in cache.profiles(self.direction):
                best = best.meet(self.asked.read(seen, saddle, rtol))
            if best.relative_gap <= rtol or best.upper <= floor:
                return Known(best, known.share)
        try:
            for turn in range(_PASSES + 1):
                saddle = self._tilt(effort, best)
                allowed = self.asked.allowed_variance(saddle, rtol)
                # what a costly plan will reach is learned from a cheap one
                plan, coarser = self._plan(effort, saddle, allowed, turn == 0 and cache is None)
                if plan.clamped and not patient:
                    raise PrecisionError(f"short arrays have {longest} buckets")
                seen = profile(self.parts, plan)
                if cache is not None:
                    cache.remember_profile(self.direction, seen)
                got = self.asked.read(seen, saddle, rtol)
                best = best.meet(got)
                decided = best.upper <= max(FLOOR, floor) or best.lower > ceiling
                if best.relative_gap <= rtol or decided:
                    return Known(best, effort.share * _aim(rtol, got.relative_gap))
                at = self.question.at(got.upper)[0]
                share_of_cuts = seen.share_of_cuts(at) if math.isfinite(got.upper) else 1.0
                used = min(effort.share, plan.variance / (coarser * allowed))
                gap = _Gap(got.relative_gap, share_of_cuts, coarser)
                effort = effort.after(plan, gap, used, rtol, patient=patient)
            raise PrecisionError(_LIMITED if plan.clamped else f"{_PASSES} refinements did not do")
        except PrecisionError as error:  # there is no such grid, or none that is finer
            return _given_up(str(error), best, share_of_cuts)

    def _plan(
        self, effort: _Effort, saddle: Saddle, allowed: float, cheap_first: bool
    ) -> tuple[BucketPlan, float]:
        """A plan, and how many times the variance of the wanted one it has.

        Raises:
            PrecisionError: there is no such grid.
        """
        demand = Demand(
            saddle=saddle,
            variance=effort.share * allowed,
            tail=effort.tail,
            cut_share=effort.cut_share,
            extended=effort.extended,
        )
        plan = make_plan(self.parts, demand, effort.most)
        if not (cheap_first and plan.longest > _COSTLY):
            return plan, 1.0
        cheap = dataclasses.replace(demand, variance=_CHEAPER * demand.variance)
        return make_plan(self.parts, cheap, effort.most), _CHEAPER

    def _tilt(self, effort: _Effort, known: Bounds) -> Saddle:
        slack_nats = _slack_nats(effort.cut_share)
        return self.asked.tilt(self.parts, self.first, effort.tail, slack_nats, known)


@dataclass(frozen=True)
class _Gap:
    """The relative gap of one pass: a part comes from buckets, the rest from cuts and rounding.

    Attributes:
        whole: the gap.
        share_of_cuts: the share that comes from cuts and rounding.
        coarser: how many times the wanted variance its buckets added.
    """

    whole: float
    share_of_cuts: float
    coarser: float

    @property
    def by_buckets(self) -> float:
        """The part that is proportional to the variance, for the wanted variance."""
        return self.whole * (1.0 - self.share_of_cuts) / self.coarser

    @property
    def by_cuts(self) -> float:
        """The part that is proportional to the share of cuts."""
        return self.whole * self.share_of_cuts


@dataclass(frozen=True)
class _Effort:
    """The fineness of the next pass.

    Attributes:
        share: the share of the predicted variance that its buckets add.
        tail: the share of delta that may count as infinite.
        cut_share: the share of delta that cuts may take.
        most: how many buckets one part may have.
        extended: whether convolutions are made in extended precision.
        cut: the part of the gap that cuts made before they were made finer; inf if they were not.
    """

    share: float
    tail: float
    cut_share: float
    most: int = FIRST_LENGTH
    extended: bool = False
    cut: float = math.inf

    @staticmethod
    def first(share: float, rtol: float) -> _Effort:
        """The first pass: cuts and infinite mass may take a hundredth of the gap each."""
        return _Effort(share, tail=1e-2 * rtol, cut_share=1e-2 * rtol)

    def after(
        self, plan: BucketPlan, gap: _Gap, used: float, rtol: float, *, patient: bool
    ) -> _Effort:
        """The effort of the pass that follows one that was not close enough.

        Args:
            plan: the plan of that pass.
            gap: its gap.
            used: the share of the predicted variance that it had.
            rtol: the wanted gap.
            patient: as for :func:`refine`.

        Raises:
            PrecisionError: no finer pass is possible, or allowed without patience.
        """
        by_buckets, by_cuts = gap.by_buckets, gap.by_cuts
        # cuts that take more than a fifth of the wanted gap are worth making finer
        cutting = by_cuts > 0.2 * rtol
        share, most = self.share, self.most
        if cutting and gap.share_of_cuts > 0.5:
            pass  # what buckets do is not seen until cuts and rounding do less
        elif plan.clamped:
            if most == MAX_LENGTH or not patient:
                raise PrecisionError(_LIMITED)
            most = min(8 * most, MAX_LENGTH)
        elif by_buckets > 0:
            share = used * _aim(max(0.2 * rtol, rtol - by_cuts), by_buckets)
        finer = dataclasses.replace(self, share=share, most=most)
        if not cutting:
            return finer
        # where cuts are finer than doubles, or finer ones did not help, it is the rounding
        helpless = self.cut < math.inf and rtol < by_cuts > 0.5 * self.cut
        if helpless and self.extended:
            raise PrecisionError("the rounding of doubles stands in the way")
        if helpless or (not self.extended and plan.tolerance < UNIT):
            if not patient:
                raise PrecisionError("doubles are not precise enough")
            least = 1e-3 * self.tail
            return dataclasses.replace(finer, extended=True, cut=math.inf, cut_share=least)
        less = max(1e-8, 0.05 * rtol / by_cuts) if math.isfinite(by_cuts) else 1e-4
        return dataclasses.replace(finer, cut=by_cuts, cut_share=less * self.cut_share)


def _given_up(why: str, best: Bounds, share_of_cuts: float) -> Known:
    """Returns bounds that are not close enough, with the shares of the last pass's gap."""
    if share_of_cuts >= 0.01:  # a smaller share would be told as 0%
        why += f" (of the last gap {share_of_cuts:.0%} came from cuts and rounding, the rest from"
        why += " buckets)"
    return Known(best, why=why)


def _aim(rtol: float, gap: float) -> float:
    # the factor that turns this gap into four fifths of rtol; a single gap is no reason to grow or
    # to shrink a variance by more than these, since part of it may come from elsewhere
    return min(4.0, max(1e-4, 0.8 * rtol / gap)) if gap > 0 else 1.0


def _slack_nats(cut_share: float) -> float:
    # a heuristic for how many nats the tilt may be off: a double has 36 nats, and what cuts may
    # cost needs 21 of them at a share of 1e-9; of the rest at most 6 are spent on a narrower tilt
    return min(6.0, max(0.0, math.log(cut_share * 1e9)))
