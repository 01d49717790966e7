"""The methods that answer a question: each has one verb, and the engine asks one after the other.

A closed form is of one run, and a sum of such forms settles an epsilon of 0. Lines through saddle
points are of Gaussian mechanisms, sampled or not: they answer with many digits or not at all, and
say so quickly. Buckets are of everything, on several grids at once where large losses are rare. The
two engines share nothing but the pairs.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol

import numpy as np

from tightbudget.engine.answer import BUCKETS, CLOSED_FORM, FLOOR, SADDLE_POINT
from tightbudget.engine.buckets.compose import Pairs, Parts
from tightbudget.engine.buckets.one_run import OneRun
from tightbudget.engine.buckets.reading import on_buckets
from tightbudget.engine.buckets.refine import FIRST_LENGTH, refine
from tightbudget.engine.buckets.tilt import tilted_moments
from tightbudget.engine.cache import Cache
from tightbudget.engine.levels.refine import by_levels
from tightbudget.engine.question import DeltaAt, EpsilonAt, Question
from tightbudget.engine.readings.renyi import renyi_divergence
from tightbudget.engine.saddle_point.saddle_point import SaddlePoint
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    FloatArray,
    add_up,
    double_up,
    exp_up,
    expm1_up,
    mul_down,
    mul_up,
    root_up,
)
from tightbudget.numerics.special import log_g_up
from tightbudget.pairs.pair import Pair

# Buckets of width h add a variance of h^2, which the gap is proportional to: for 1e-8 arrays are a
# hundred times as long as for 1e-4, near the limit of their lengths. So bounds by saddle points
# that are as close as this are not tried again with buckets. Affects time, never truth.
_OUT_OF_REACH = 1e-8
# Where lines have proved nothing for so many questions about one composition in turn, they are not
# asked again. Affects time, never truth.
_TRIES = 3
# Several grids of 2^14 points come as close as this, in a second or two. Affects time, never truth.
LEVELS_REACH = 1e-5
# ln of a delta that is guessed to be so small that a bound of it may settle it; and how closely the
# divergence is asked for. Affects time, never truth.
_HARDLY, _ROUGHLY = -640.0, 1e-2
# More different pairs than so many are first tried with so few that resemble them. Affects time,
# never truth.
_MANY, _FEW = 96, 12
# powers of e^-L that a plan looks at, for a delta close to 1; the last one alone for many parts
_SLOPES = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 0.5])
# A sum of variations that is this many times delta is not split: to know each chi-square divergence
# takes half a millisecond. Affects time, never truth.
_SPLIT = 20.0
_POINTS = "grids are limited in their points"
_ROUNDING = "the rounding of doubles stands in the way"


@dataclass(frozen=True)
class Inquiry:
    """A question to a method, and how close its answer is to be.

    Attributes:
        question: delta at an epsilon, or epsilon at a delta.
        rtol: the wanted relative gap.
        target: a value that the answer is to be compared with: bounds on one side of it do.
        cache: what earlier questions of the same composition have left.
        insist: whether wider gaps are tried where ``rtol`` is not reached, so that a refusal knows
            what they prove.
        floor: an answer whose upper bound is at most this needs no closer lower one.
    """

    question: Question
    rtol: float
    target: float | None = None
    cache: Cache | None = None
    insist: bool = True
    floor: float = 0.0

    def met_by(self, bounds: Bounds) -> bool:
        """Whether bounds are as close as wanted, on one side of the target, or small enough."""
        close = bounds.relative_gap <= self.rtol or bounds.upper <= self.floor
        return close or bounds.decides(self.target)


@dataclass(frozen=True)
class Proved:
    """An answer of one method.

    Attributes:
        bounds: the closest bounds that it proves, for the worse direction.
        why: what stands in the way of closer ones; "" where they are as close as they can be asked
            to be, as :func:`~tightbudget.engine.buckets.refine.refine` says.
        last: whether no later method is closer.
    """

    bounds: Bounds
    why: str = _ROUNDING
    last: bool = False


class Method(Protocol):
    """A way to answer a question about one composition, in each direction that matters."""

    name: ClassVar[str]  # the engine that answers, as in an Explanation

    def bounds(self, inquiry: Inquiry) -> Proved | None:
        """Bounds of the answer; None where the method proves nothing that counts."""


@dataclass(frozen=True)
class ClosedForm:
    """The formula of delta(epsilon) of one run, in each direction.

    It is closer than the engines and faster: a sampled Gaussian's takes a twentieth of the time of
    its lines through saddle points. An epsilon is searched for, and lines know it closer.
    """

    directions: tuple[Parts, ...]

    name: ClassVar[str] = CLOSED_FORM

    def bounds(self, inquiry: Inquiry) -> Proved | None:
        """Bounds of delta by the formulas; None for an epsilon, or where a pair has none."""
        question = inquiry.question
        if isinstance(question, EpsilonAt):
            return None
        found = []
        for parts in self.directions:
            run = OneRun.of(parts)
            if run is None or run.pair.lines_are_closer():
                return None
            settled = on_buckets(question).settled(parts)
            found.append(run.delta(question.epsilon) if settled is None else settled)
        return Proved(Bounds.worst(found))


@dataclass(frozen=True)
class ByVariation:
    """Bounds of the total variation, delta(0), which settle an epsilon of 0.

    delta(0) of a composition is at most the sum of delta(0) of its runs, and half the root of its
    chi-square divergence. Both are asked first of one pair that dominates all of a kind. The sum
    may have some of the runs, and the root the others.

    Attributes:
        pairs: the dominating pairs in each direction, each with its number of runs.
    """

    pairs: tuple[tuple[tuple[Pair, int], ...], ...]

    name: ClassVar[str] = CLOSED_FORM

    def bounds(self, inquiry: Inquiry) -> Proved | None:
        """An epsilon of 0 where so much delta covers the sum; None otherwise."""
        question = inquiry.question
        if not isinstance(question, EpsilonAt):
            return None
        for pairs in self.pairs:
            if _hardly_differ(pairs, question.delta):
                continue
            each, whole = list[float](), 0.0
            for pair, count in pairs:
                _, upper = pair.closed_delta(0.0) or (0.0, math.inf)
                each.append(mul_up(double_up(Fraction(count)), upper))
                whole = add_up(whole, each[-1])
                if whole > _SPLIT * question.delta:
                    return None
            if whole <= question.delta:  # guard: variation-covered
                continue
            if not _partly_differ(pairs, each, question.delta):
                return None
        return Proved(Bounds(0.0, 0.0), why="")


# Proof: proofs/order.v, theorems products, adaptive, repeated
def _hardly_differ(pairs: Pairs, delta: float) -> bool:
    """Whether pairs that dominate all runs show that the composition's delta(0) is at most delta.

    With one pair above all of a kind this takes a formula for each kind, not one for each pair.
    With X the chi-square divergence, 1 + X = E_P[e^L] multiplies over runs, and by Cauchy and
    Schwarz delta(0) = E_Q|P/Q - 1| / 2 <= sqrt(X) / 2.
    """
    above = list[tuple[Pair, int]]()
    for pair, count in pairs:
        both = above[-1][0].dominating_both(pair) if above else None
        if both is None:
            above.append((pair, count))
        else:
            above[-1] = both, above[-1][1] + count  # guard: variation-counts-all
    whole = log_growth = 0.0
    for pair, count in above:
        times = double_up(Fraction(count))
        whole = add_up(whole, mul_up(times, (pair.closed_delta(0.0) or (0.0, math.inf))[1]))
        moment = pair.log_moment(1.0)[1] if pair.p_only().upper[0] == 0.0 else math.inf
        log_growth = add_up(log_growth, mul_up(times, max(0.0, moment)))
    if whole <= delta:  # guard: variation-dominated
        return True
    if not log_growth < 1.0:  # then the bound is more than a half
        return False
    return 0.5 * root_up(Fraction(expm1_up(log_growth))) <= delta  # guard: variation-chi-square


def _partly_differ(pairs: Pairs, each: list[float], delta: float) -> bool:
    """Whether delta(0) of some runs and the chi-square divergence of the others add up to delta.

    Args:
        pairs: of the composition.
        each: upper bounds of delta(0) of each pair's runs.
        delta: what is to be covered.
    """
    growths = [
        mul_up(double_up(Fraction(count)), max(0.0, pair.log_moment(1.0)[1]))
        if pair.p_only().upper[0] == 0.0
        else math.inf
        for pair, count in pairs
    ]
    # those with the largest divergence beside their delta(0) are summed
    order = sorted(range(len(each)), key=lambda k: -growths[k] / max(each[k], 1e-300))
    rests = [0.0]
    for k in reversed(order):
        rests.append(add_up(rests[-1], growths[k]))
    summed = 0.0
    for k, rest in zip(order, reversed(rests), strict=False):  # the last rest is of no run
        # guard: variation-split
        if rest < 1.0 and add_up(summed, 0.5 * root_up(Fraction(expm1_up(rest)))) <= delta:
            return True
        summed = add_up(summed, each[k])
    return False


@dataclass(frozen=True)
class ByFewerRuns:
    """A delta close to 1, which a part of the runs has already.

    Leaving runs out is a post-processing: delta of the rest is not larger. The rounding of millions
    of runs would take more from a lower bound than is left to 1.

    Attributes:
        directions: the composition in each direction.
    """

    directions: tuple[Parts, ...]

    name: ClassVar[str] = BUCKETS

    def bounds(self, inquiry: Inquiry) -> Proved | None:
        """A lower bound by fewer runs, and 1; None where half of the runs may be too few."""
        question = inquiry.question
        if isinstance(question, EpsilonAt):
            return None
        for parts in self.directions:
            fewer = _fewer(parts, question.epsilon, inquiry.rtol)
            if fewer is None:
                continue
            # what is kept of the whole composition says nothing about a part of it
            alone = dataclasses.replace(inquiry, cache=None)  # guard: fewer-runs-alone
            found = ByBuckets((fewer,), patient=False).bounds(alone)
            if found is not None and found.bounds.lower >= 1.0 - inquiry.rtol:
                return Proved(Bounds(found.bounds.lower, 1.0), why="")
        return None


@dataclass(frozen=True)
class ByMoments:
    """A delta that a Renyi divergence shows to be below all that is answered for.

    With s = order - 1, E_P[e^(s L)] = e^(s D) and delta(eps) <= e^(s D - s eps) g(s): Chernoff's
    bound. Masses that make such a delta are hardly doubles, and sums of them round to more.

    Attributes:
        directions: the composition in each direction.
    """

    directions: tuple[Parts, ...]

    name: ClassVar[str] = CLOSED_FORM

    def bounds(self, inquiry: Inquiry) -> Proved | None:
        """Bounds [0, upper] below 1e-290; None where delta may be larger."""
        question = inquiry.question
        if isinstance(question, EpsilonAt):
            return None
        asked = on_buckets(question)
        settled = [asked.settled(parts) for parts in self.directions]
        if None not in settled:  # the engines answer what needs no grid
            return None
        uppers = [one.upper for one in settled if one is not None]
        for parts, known in zip(self.directions, settled, strict=True):
            if known is not None:
                continue
            first = asked.first_tilt(parts)
            if first.log_delta > _HARDLY:
                return None
            # at the tilt of the least delta that is a double; a tenth more is enough, as a rule
            order = 1.0 + 1.1 * first.theta
            told = renyi_divergence((parts,), order, _ROUGHLY).bounds
            s = order - 1.0  # exact
            least = mul_down(s, question.epsilon)
            uppers.append(exp_up(add_up(mul_up(s, told.upper), -least, log_g_up(s))))
        upper = max(uppers)
        return Proved(Bounds(0.0, upper), why="") if upper <= FLOOR else None


def _fewer(parts: Parts, epsilon: float, rtol: float) -> Parts | None:
    """Returns so many of the runs that their delta is 1 but for a twentieth of ``rtol``, about.

    These are runs of one part, where its own delta is so close to 1, or of all that add much. By
    Chernoff, 1 - delta = E min(1, e^(epsilon - L)) <= E[e^(-u L)] e^(u epsilon) for 0 < u <= 1.
    None where half of the runs are too few.
    """
    if parts.certain or not parts.parts:
        return None
    u = _SLOPES if len(parts.parts) <= _MANY else _SLOPES[-1:]
    logs = np.array(
        [[one.count * tilted_moments(one.sketch, -x)[0] for x in u] for one in parts.parts]
    )
    needed = math.log(20.0 / max(rtol, 1e-15)) + u * max(0.0, epsilon)

    def share(log: FloatArray) -> float:
        with np.errstate(divide="ignore"):
            return float(np.min(np.where(log < 0.0, needed / -log, np.inf)))

    each = [share(log) for log in logs]
    if len(each) > 1 and min(each) <= 1.0:
        fewest = min(range(len(each)), key=lambda k: each[k] * parts.parts[k].count)
        kept, most = [fewest] if each[fewest] <= 1.0 else [], each[fewest]
    else:
        # a part that adds little to the sum takes as much time, and rounds as much
        sums = -logs[:, -1]
        kept = np.flatnonzero((sums > 0.0) & (sums >= 0.1 * np.sum(sums))).tolist()
        most = share(np.sum(logs[kept], axis=0)) if kept else math.inf
        kept = kept if most < 0.5 else []
    if not kept:
        return None
    return Parts.of(
        tuple((parts.parts[k].pair, math.ceil(parts.parts[k].count * most)) for k in kept)
    )


@dataclass(frozen=True)
class ByLines:
    """Lines through saddle points.

    Attributes:
        directions: the saddle-point engine of each direction; none if it takes no such pairs.
    """

    directions: tuple[SaddlePoint, ...]

    name: ClassVar[str] = SADDLE_POINT
    smooth: ClassVar[bool] = False

    def bounds(self, inquiry: Inquiry) -> Proved | None:
        """Bounds by lines, or None where they prove none for some direction."""
        cache = inquiry.cache
        in_vain = cache.in_vain if cache is not None else {}
        if in_vain.get(self.smooth, 0) >= _TRIES:
            return None
        found = self._worst(inquiry)
        in_vain[self.smooth] = in_vain.get(self.smooth, 0) + 1 if found is None else 0
        if found is None:
            return None
        if found.upper <= FLOOR:
            return Proved(found, why="")
        return Proved(found, last=not self.smooth and found.relative_gap <= _OUT_OF_REACH)

    def _worst(self, inquiry: Inquiry) -> Bounds | None:
        """Bounds for the worse direction, or None where lines prove none for some direction."""
        worst: Bounds | None = None
        hardly = False  # whether some direction has a delta below all that is answered for
        cache, target = inquiry.cache, inquiry.target
        for i, engine in enumerate(self.directions):
            ask = engine.smoothed if self.smooth else engine.bounds
            # lines that are there answer faster than a proof that this direction is milder
            asked = worst is None or (cache is not None and bool(cache.lines(i)))
            found = ask(inquiry.question, inquiry.rtol, cache, i, target) if asked else None
            if found is None and worst is not None:
                # its exact value is not above a bound of the worse direction: the lower one, so
                # that nothing widens; the upper one does where only a target matters, and
                # closer bounds of many different mechanisms would take seconds
                decided = target is not None and worst.upper <= target and engine.takes_products
                # guard: other-direction-below
                if engine.below(*inquiry.question.at(worst.upper if decided else worst.lower)):
                    continue
            if not asked:
                found = ask(inquiry.question, inquiry.rtol, cache, i, target)
            if found is None:
                return None
            hardly = hardly or (isinstance(inquiry.question, DeltaAt) and found.upper <= FLOOR)
            worst = found if worst is None else Bounds.worst((worst, found))
        # an upper bound alone of the other one says how it was proved, and little of its delta
        if hardly and worst is not None and worst.lower == 0.0 and worst.upper > FLOOR:
            return None
        return worst


class BySmoothedLines(ByLines):
    """Smoothed lines, which take longer and see few rare losses."""

    smooth: ClassVar[bool] = True


@dataclass(frozen=True)
class ByLevels:
    """Losses added up on several grids: as fast where large losses are rare as where none is."""

    directions: tuple[Parts, ...]

    name: ClassVar[str] = BUCKETS

    def bounds(self, inquiry: Inquiry) -> Proved | None:
        """Bounds by several grids, which always answer."""
        asked = inquiry.question, self.directions, inquiry.rtol, inquiry.target, inquiry.cache
        return Proved(by_levels(*asked), why=_POINTS)


@dataclass(frozen=True)
class ByBuckets:
    """Losses added up on a grid of buckets.

    Attributes:
        directions: the composition in each direction.
        patient: whether arrays grow and convolutions are made in extended precision where the gap
            needs it. Without patience a question that needs either is given up at once.
        longest: how many buckets one part may have without patience, or in the first passes.
    """

    directions: tuple[Parts, ...]
    patient: bool = True
    longest: int = FIRST_LENGTH

    name: ClassVar[str] = BUCKETS

    def bounds(self, inquiry: Inquiry) -> Proved | None:
        """Bounds by buckets; None without patience where few like pairs are given up."""
        if not self.patient and any(len(parts.parts) > _MANY for parts in self.directions):
            like = tuple(parts.like(_FEW) for parts in self.directions)
            alone = dataclasses.replace(inquiry, cache=None)
            if refine(alone.question, like, alone.rtol, patient=False, longest=self.longest).why:
                return None
        found = refine(
            inquiry.question,
            self.directions,
            inquiry.rtol,
            inquiry.target,
            inquiry.cache,
            insist=inquiry.insist,
            patient=self.patient,
            longest=self.longest,
        )
        return Proved(found.bounds, found.why)
