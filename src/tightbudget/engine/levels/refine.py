"""A question is answered on several grids, with more points until the bounds are close enough."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from tightbudget.engine.answer import FLOOR
from tightbudget.engine.buckets.compose import Between, Demand, Parts
from tightbudget.engine.buckets.reading import DeltaOnBuckets, OnBuckets, on_buckets
from tightbudget.engine.buckets.tilt import Saddle
from tightbudget.engine.cache import Cache
from tightbudget.engine.levels.placing import LevelPlan
from tightbudget.engine.levels.profile import LevelProfile, plan_levels
from tightbudget.engine.question import Question
from tightbudget.numerics.bounds import Bounds

# None of these decides a bound. Points of a short grid in the first pass, and how many passes each
# look may take, with more and more. Of 30 drawn questions of rare sampling two answer most.
_FEWEST, _PASSES = 2**9, 4
_MOST = 2**16  # points of each grid: 100 runs take two seconds, and one long grid answers faster
# The share of the allowed variance that the first buckets of the first pass may add: of 0.2, 0.1
# and 0.05 this took the least time. Steep losses of rare sampling feel a variance more than the
# tilt says.
_FIRST = 0.2
# More points count as no help only where a pass asked for a gap this many times smaller and did not
# find it: with fewer points more, where the masses lie on the grids matters as much.
_TOLD = 4.0
# The gap at which a direction that looks milder is looked at first: of few pairs and of many.
_ROUGH, _ROUGHEST = 0.02, 0.25
_NARROWEST = 1e-15  # buckets, nats
_FAR = -40.0  # ln delta; below it a first guess may be off by many nats
_LEAST = -660.0  # ln delta; masses that make less are hardly doubles
# Relative gaps that say nothing, and next to nothing about how much closer pairs have to be.
_NOTHING, _VAGUE = 0.99, 0.3
# Most of a gap is what is placed on coarser grids. It falls with the points, to a power of 0.7 to
# 0.9 for 37 and 54 noise multipliers and a million runs, so that the next pass takes the points to
# the power _GAIN of the gap, up to _LONGER as many. Narrower first buckets take longer grids, which
# take time and lose digits: they are at most _THINNER times as many.
_GAIN, _LONGER, _THINNER = 0.75, 20.0, 4.0
# A rough look may bring a gap that is up to a hundred times smaller than planned. The next one then
# keeps its points, and plans for a gap that is as many times wider than the wanted one, over _SAFE.
# Of drawn questions of delta 1e-44 to 1e-246 five took 1.5 to 5 s in place of 6 to 14.
_SAFE = 2.0
# Of more different pairs than this, few below and above them are placed in their stead. A rough
# look says how few: four drawn questions of 144 to 2,460 noises took 0.6 to 8 s in place of 2 to
# 19. Affects no truth.
_MANY = 96
# Of the gap, for few pairs below and above many; in a rough look they may lose all of it. Where one
# large loss makes delta, what is guessed of it may be ten times too little.
_LOST = 0.01


def by_levels(
    question: Question,
    directions: tuple[Parts, ...],
    rtol: float,
    target: float | None,
    cache: Cache | None,
) -> Bounds:
    """Bounds of the answer for the worse direction, as close as a few passes bring them.

    Guarantee: the exact value lies inside.

    Args:
        question: what is asked.
        directions: the composition in each direction.
        rtol: the wanted relative gap.
        target: a value that the answer is to be compared with.
        cache: where profiles are kept for later questions.

    """
    asked = on_buckets(question)
    settled = [asked.settled(parts) for parts in directions]
    known = [Bounds(0.0, question.most) if one is None else one for one in settled]
    firsts = {i: asked.first_tilt(directions[i]) for i, one in enumerate(settled) if one is None}
    # the one that looks worse first: as a rule a rough look at the other one then suffices
    order = sorted(firsts, key=lambda i: -asked.size(firsts[i]))
    for i in order:
        for profile in cache.profiles(i) if cache is not None else ():
            known[i] = known[i].meet(asked.read(profile, firsts[i], rtol))
    searches = {
        i: _Search(asked, directions[i], firsts[i], cache, i, known=known[i], most=question.most)
        for i in order
    }
    most = max((asked.size(first) for first in firsts.values()), default=0.0)
    for look in (True, False):
        if not look:  # the worse one first: then the other one need not be as close, as a rule
            order.sort(key=lambda i: -known[i].upper)
        for i in order:
            search = searches[i]
            # a guess of a delta far in a tail may be wrong by many nats; and a rough look at many
            # different pairs says how few do in their stead
            far = firsts[i].log_delta < _FAR
            vague = far or search.many
            below = 1.0 if vague else 1.0 - asked.size(firsts[i]) / max(most, 1e-300)
            wide = _ROUGHEST if search.many else _ROUGH
            wanted = max(rtol, min(wide, 0.5 * below)) if look else rtol
            goal = _Goal(wanted, max(bounds.lower for bounds in known), target, wanted > rtol)
            # what a rough look sees nothing of is not seen by a close one, either
            in_vain = far and not look and search.known.relative_gap > _NOTHING
            if not in_vain:
                search.until(goal)
            known[i] = search.known
    return Bounds.worst(known)


@dataclass(frozen=True)
class _Goal:
    """Bounds of one direction that need not be closer.

    Attributes:
        rtol: the wanted relative gap.
        floor: a lower bound of the other direction: what is below it does not matter.
        target: a value that the answer is to be compared with.
        rough: whether a closer look may follow.
    """

    rtol: float
    floor: float
    target: float | None
    rough: bool

    def met_by(self, bounds: Bounds) -> bool:
        """Whether the bounds are close enough, or too small or too large to matter."""
        close = bounds.relative_gap <= self.rtol or bounds.upper <= max(FLOOR, self.floor)
        return close or bounds.decides(self.target)


@dataclass
class _Search:
    """Closer and closer bounds for one direction, from grids with more and more points.

    Attributes:
        asked, parts, first, direction: the question, the composition, its first tilt, its number.
        cache: where profiles are kept for later questions.
        known: the bounds so far.
        most: no answer is larger.
        reach: points of a grid in the next pass.
        part: the share of the allowed variance that its first buckets may add.
        helpless: whether more points would gain little.
        used: points and share of the last pass.
        gap: the relative gap of the last pass.
        planned: the gap that the last pass was planned for.
        wider: how many times wider than the wanted gap one is that the next pass is planned for.
        lost: the gap that few pairs below and above many may lose in the next pass, about.
        between: whether the last pass placed few pairs below and above many.
    """

    asked: OnBuckets
    parts: Parts
    first: Saddle
    cache: Cache | None
    direction: int
    known: Bounds
    most: float
    reach: int = 0
    part: float = _FIRST
    helpless: bool = False
    used: tuple[int, float] = (0, _FIRST)
    gap: float | None = None
    planned: float = 0.0
    wider: float = 1.0
    lost: float = 0.0
    between: bool = False

    @property
    def many(self) -> bool:
        """Whether there are so many different pairs that few others are asked for them."""
        return len(self.parts.parts) > _MANY

    def until(self, goal: _Goal) -> None:
        """Makes passes until the bounds meet a goal or more points gain little."""
        if not self.reach:
            self.reach = _FEWEST // 4 if goal.rough else _FEWEST
            if goal.rtol >= _ROUGH / 10 and not goal.rough:  # a wide gap is cheap to reach well
                self.part /= 4.0
        before, asked = math.inf, math.inf
        for _ in range(_PASSES):
            if self.helpless or goal.met_by(self.known):
                return
            if self.gap is not None:  # of a rougher look
                asked, before = self._finer(goal, self.gap), self.gap
                if self.reach > _MOST:
                    self.helpless = True
                    return
            gap = self._pass(goal)
            self.gap = gap
            if gap is None:
                self.helpless = True
                return
            slow = asked >= _TOLD and gap > 0.6 * before
            in_vain = (gap > _NOTHING and not self.between) or slow
            self.helpless = in_vain and not goal.met_by(self.known)

    def _finer(self, goal: _Goal, gap: float) -> float:
        """Sets what the next pass takes, and returns how many times smaller a gap it asks for."""
        more = 1.5 * gap / goal.rtol
        if self.between:
            # what is lost between them is most of a gap, and in proportion to what they may lose:
            # a smaller share took more pairs, a larger one a pass more, for six drawn questions
            self.lost *= min(0.07, 0.2 * goal.rtol / gap) if gap < _VAGUE else 0.02
        if gap <= self.planned and self.planned > self.wider * goal.rtol:  # of a rougher look
            self.wider = max(1.0, self.planned / (_SAFE * gap))
            return 1.0
        self.wider = max(1.0, 0.5 * self.wider)
        if self.between:
            self.reach, self.part = 2 * self.reach, 0.5 * self.part
            return 1.0
        self.part = min(_FIRST, self.part) / min(_THINNER, max(1.0, more**0.5))
        self.reach = int(self.reach * min(_LONGER, max(1.0, more) ** _GAIN))
        return more

    def _pass(self, goal: _Goal) -> float | None:
        """Makes one pass, and returns its relative gap; None where grids would say nothing."""
        self.lost = self.lost or (1.0 if goal.rough else _LOST) * goal.rtol
        self.used, self.planned = (self.reach, self.part), self.wider * goal.rtol
        saddle, plan = self._plan(goal)
        if plan is None:
            return None
        self.between = len(plan.runs) < len(self.parts.parts)
        profile = LevelProfile(self.parts, plan)
        if self.cache is not None:
            self.cache.remember_profile(self.direction, profile)
        found = self.asked.read(profile, saddle, goal.rtol)
        self.known = self.known.meet(found)
        return found.relative_gap

    def _plan(self, goal: _Goal) -> tuple[Saddle, LevelPlan | None]:
        """Returns the tilt and the grids of a pass; None where grids would say nothing."""
        asked, share = self.asked, 1e-2 * goal.rtol
        # a first guess of delta may be some nats too large: bounds of it are closer
        saddle = asked.tilt(self.parts, self.first, share, 0.0, self.known)
        if not isinstance(asked, DeltaOnBuckets):
            # a guess is off where few large losses make delta
            epsilon = min(max(saddle.epsilon, self.known.lower), self.known.upper)
            saddle = dataclasses.replace(saddle, epsilon=epsilon)
        elif goal.floor > 0.0:
            # what is far below the other direction need not be known
            least = math.log(goal.floor) + math.log(goal.rtol)
            saddle = dataclasses.replace(saddle, log_delta=max(saddle.log_delta, least))
        allowed = asked.allowed_variance(saddle, self.wider * goal.rtol)
        if saddle.log_delta < _LEAST or not allowed > 0.0:
            return saddle, None
        demand = Demand(saddle, self.part * allowed, share, share)
        between = self._between(demand) if self.many else None
        plan = plan_levels(self.parts, demand, self.reach, between)
        return saddle, plan if plan.base >= _NARROWEST else None

    def _between(self, demand: Demand) -> Between:
        """Few parts below and above the many of the composition, for one pass."""
        slope, allowed = demand.saddle.slope, self.asked.allowed_variance(demand.saddle, self.lost)
        return self.parts.between(demand, 0.5 * slope * (slope + 1.0) * allowed)
