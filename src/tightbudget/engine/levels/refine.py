"""A question is answered on several grids, with more points until the bounds are close enough."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from tightbudget.engine.answer import FLOOR
from tightbudget.engine.buckets.compose import Demand, Parts
from tightbudget.engine.buckets.reading import DeltaOnBuckets, OnBuckets, on_buckets
from tightbudget.engine.buckets.tilt import Saddle
from tightbudget.engine.cache import Cache
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
_ROUGH = 0.02  # the gap at which a direction that looks milder is looked at first
_NARROWEST = 1e-15  # buckets, nats
_FAR = -40.0  # ln delta; below it a first guess may be off by many nats
_LEAST = -660.0  # ln delta; masses that make less are hardly doubles
_NOTHING = 0.99  # a relative gap
# Of more different pairs than _MANY, so many that resemble them show how many points the grids
# take, and so many that dominate them show that a direction is milder. Tried with 300 and 1,000
# noise multipliers: a pass of 12 took a seventh to two fifths of one of 300. Affects no truth.
_MANY, _FEW = 96, 12
_SPARE = 0.25  # of the gap, for pairs that resemble others


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
        for i, search in searches.items():
            # a guess of a delta far in a tail may be wrong by many nats
            far = firsts[i].log_delta < _FAR
            below = 1.0 if far else 1.0 - asked.size(firsts[i]) / max(most, 1e-300)
            wanted = max(rtol, min(_ROUGH, 0.5 * below)) if look else rtol
            goal = _Goal(wanted, max(bounds.lower for bounds in known), target, wanted > rtol)
            if look and len(search.parts.parts) > _MANY:
                search.learn(goal)
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

    def learn(self, goal: _Goal, few: int = _FEW) -> None:
        """Learns from few pairs what many different ones take.

        Pairs that dominate them give an upper bound, which may show that this direction is milder;
        and pairs that resemble them show how many points the grids take.

        Args:
            goal: what the bounds are to be good for.
            few: how many pairs stand for all.
        """
        above = self.parts.above(few)
        if above is not None and goal.floor > 0.0:
            milder = self._of(above)
            milder.until(dataclasses.replace(goal, rtol=_ROUGH, rough=True))
            # guard: levels-bound-above
            self.known = self.known.meet(Bounds(self.known.lower, milder.known.upper))
        if goal.met_by(self.known):
            return
        trial = self._of(self.parts.like(few))
        trial.until(dataclasses.replace(goal, rtol=_SPARE * goal.rtol, floor=0.0, target=None))
        self.reach, self.part = trial.used

    def _of(self, parts: Parts) -> _Search:
        """A search of another composition for the same question, of which nothing is kept."""
        start = Bounds(0.0, self.most)
        first = self.asked.first_tilt(parts)
        return _Search(self.asked, parts, first, None, self.direction, known=start, most=self.most)

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
            gap = self._pass(goal)
            if gap is None:
                self.helpless = True
                return
            # the gap falls with the variance of the first buckets and the square of the points
            more = 1.5 * gap / goal.rtol
            # a first guess may be luckier than the next tilt
            self.part /= min(64.0, max(0.25 if before == math.inf else 0.06, more))
            self.reach = int(self.reach * math.sqrt(min(256.0, max(1.0, more))))
            slow = asked >= _TOLD and gap > 0.6 * before
            helpless = gap > _NOTHING or slow or self.reach > _MOST
            self.helpless = helpless and not goal.met_by(self.known)
            before, asked = gap, more

    def _pass(self, goal: _Goal) -> float | None:
        """Makes one pass, and returns its relative gap; None where grids would say nothing."""
        asked, share = self.asked, 1e-2 * goal.rtol
        self.used = self.reach, self.part
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
        allowed = asked.allowed_variance(saddle, goal.rtol)
        if saddle.log_delta < _LEAST or not allowed > 0.0:
            return None
        plan = plan_levels(
            self.parts, Demand(saddle, self.part * allowed, share, share), self.reach
        )
        if plan.base < _NARROWEST:
            return None
        profile = LevelProfile(self.parts, plan)
        if self.cache is not None:
            self.cache.remember_profile(self.direction, profile)
        found = asked.read(profile, saddle, goal.rtol)
        self.known = self.known.meet(found)
        return found.relative_gap
