"""The saddle-point engine goes from a question to lines, and from lines to bounds.

delta(eps) is an integral along a vertical line of the complex plane, placed at the saddle point of
the moment generating function of the privacy loss (:mod:`.contour` has the integral and its four
errors). The engine takes compositions whose pairs all know that function, a
:class:`~tightbudget.pairs.transform.Transform`: Gaussian mechanisms, sampled or not. It answers
with many digits or not at all.

Source: Alghamdi et al. 2023 (the saddle-point accountant), for the place of the line; Abate,
Whitt 1992, for the trapezoidal sum and its aliasing; docs/explanation/contour.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from tightbudget.engine.cache import Cache
from tightbudget.engine.question import Question
from tightbudget.engine.saddle_point import smoothed
from tightbudget.engine.saddle_point.contour import COST, LOG_GOAL, lines_at, reach
from tightbudget.engine.saddle_point.reading import OnLines, on_lines
from tightbudget.engine.saddle_point.saddle_points import Group, Term, Track
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import add_up, double_up, log_down, mul_down, mul_up
from tightbudget.numerics.special import log_g_up
from tightbudget.pairs.transform import Transform

# Any of these constants is sound: they choose lines, and each line proves its own errors.
_CHEAP = 250_000  # terms of one line that is tried before a split into several, an eighth of COST
_MOST_RARE = 8  # numbers of rare losses that are told apart, and so the most lines of an answer
# Rare losses expected at the common saddle point, below which one line for all loses many digits:
# from about three on, the large losses make a hill of their own (docs/explanation/contour.md).
_FEW_RARE = 3.0
# Nats (a factor of 8,000) by which a term is below the goal of every error when it is the last: all
# that follow it together are bounded by Chernoff alone, whose bound is somewhat above their sum.
_SPARE = 9.0
# Mechanisms of one family that are taken as one product from this number on. For sampled Gaussian
# steps with sigma from 0.8 to 2 a product took 13 ms against 20 for four steps, and 32 against 121
# for twelve: fewer steps keep the two or three digits that a product does not have.
_MANY = 12
# Counts that a product takes: they are doubles there.
_MOST_RUNS = 2**53
# Terms of a line that each of many mechanisms may cost beside COST, a tenth of a millisecond and
# two milliseconds: its buckets and their convolution took twenty, measured for 300 sampled Gaussian
# steps.
_CHEAP_OF_ONE = 4_000
_COST_OF_ONE = 80_000
# Times that delta, and the saddle point, are guessed anew without the losses that an earlier guess
# leaves out; and how much farther than an earlier saddle point the next may lie.
_TURNS, _FARTHER = 8, 4.0
# Bounds of a larger gap, most of which is what was left out, are no answer: their size follows from
# a guess.
_VAGUE = 0.5
_LEAST = -675.0  # ln of the P-mass that is left out: of a smaller one hardly any is a double
# Nats by which each of four errors of a line is to be below the wanted gap. The gap of an epsilon
# is that of delta, over the slope of the curve times epsilon, which is seldom below 1.
_DIGITS = 5.0
# Mechanisms beyond which their lines, one by one, are not even planned: each takes 32 terms or more
# for one value (18 standard deviations in steps of 0.55), and a line has a limit of 20,000.
_MOST_APART = 625
# More mechanisms than _SOME_APART are planned one by one for a gap below _MANY_DIGITS only: to plan
# one takes 25 ms, in vain where few losses are large, and buckets reach wider gaps in 40 ms each.
_SOME_APART, _MANY_DIGITS = 64, 1e-6


class _Placing(NamedTuple):
    """A placing says where lines go, and how close they are to be.

    Attributes:
        tracks: the saddle points of each term that has a line.
        most: the most terms of a line.
        goal: that of :func:`~tightbudget.engine.saddle_point.contour.lines_at`.
        left_out: the P-mass of what no term has, at most.
    """

    tracks: tuple[Track, ...]
    most: int
    goal: float = LOG_GOAL
    left_out: float = 0.0


class _Rare(NamedTuple):
    """A composition whose transforms are split: bulks, and the rare parts split off them."""

    groups: tuple[Group, ...]  # the bulks
    rare: tuple[tuple[int, Transform], ...]  # (which group, its rare part)
    number: float  # of rare losses expected at the common saddle point


@dataclass(frozen=True)
class SaddlePoint:
    """The saddle-point engine of one direction of a Gaussian composition; eps in nats.

    Guarantee: whatever bounds it answers with hold the exact value, all four errors included.

    Attributes:
        term: the moment generating function of the composition, mechanism by mechanism.
        joined: the same function, with a product in place of a family of many mechanisms; the
            ``term`` itself where no family is large.
        track: the saddle points of ``joined``.
    """

    term: Term
    joined: Term
    track: Track

    @staticmethod
    def of(groups: Iterable[tuple[Transform | None, int]]) -> SaddlePoint | None:
        """Makes the engine from (transform, count) of each part; None if one has no transform."""
        found = []
        for transform, count in groups:
            if transform is None:
                return None
            found.append(Group(transform, count))
        term = Term(tuple(found))
        joined = _joined(term)
        track = Track.whole(joined) if found else None
        return None if track is None else SaddlePoint(term, joined, track)

    @property
    def takes_products(self) -> bool:
        """Whether some family of many mechanisms is taken as one product."""
        return self.joined is not self.term

    @functools.cached_property
    def apart(self) -> SaddlePoint | None:
        """The engine that takes each mechanism by itself, if this one takes families as products.

        None where there are so many mechanisms that no line for them is within its cost.
        """
        if not self.takes_products or len(self.term.groups) > _MOST_APART:
            return None
        track = Track.whole(self.term)
        return None if track is None else SaddlePoint(self.term, self.term, track)

    # what leaves the range of doubles ends as inf or nan, and proves nothing
    @np.errstate(all="ignore")
    def bounds(
        self,
        question: Question,
        rtol: float,
        cache: Cache | None = None,
        direction: int = 0,
        target: float | None = None,
    ) -> Bounds | None:
        """Returns bounds of the answer, with the relative gap or as close as lines come.

        Args:
            question: what is asked.
            rtol: the relative gap at which no better line is looked for.
            cache: lines that answered before, which are read first.
            direction: the number of this direction in the cache.
            target: a value that the answer is to be compared with: once bounds are on one side of
                it, the mechanisms of a product are not tried one by one.

        Returns:
            The bounds, or None where no line proves any; [0, upper] for a delta that is below all
            that is answered for.
        """
        asked = on_lines(question)
        if not asked.within_reach(self.track):
            return asked.hardly_any(self.track, 0.0)
        best = asked.without_lines(self.track)
        if best is not None and best.relative_gap <= 0.5 * rtol:
            return best
        cache = cache or Cache()
        for lines in cache.lines(direction):
            bounds = asked.read_lines(lines, self.track)
            if bounds is not None and bounds.relative_gap <= rtol:
                return bounds
        for plan in self._plans(asked, rtol):
            tracks = plan.tracks
            one_by_one = tracks[0] is not self.track and self.takes_products
            if one_by_one and best is not None and best.decides(target):
                return best
            hardly = asked.hardly_any(tracks[0], plan.left_out) if plan.left_out else None
            if hardly is not None:
                return hardly
            epsilon, log_delta = asked.place(tracks), None
            for _ in range(2):  # the second time where the first lines saw the answer
                found = lines_at(tracks, epsilon, log_delta, plan.most, plan.goal, plan.left_out)
                if found is None:
                    break
                bounds = asked.read_lines(found, self.track)
                if bounds is not None and bounds.relative_gap <= rtol:
                    cache.remember_lines(direction, found)
                    return bounds
                if plan.left_out and bounds is not None and bounds.relative_gap > _VAGUE:
                    break
                if bounds is not None and (best is None or bounds.width < best.width):
                    best = bounds
                moved = asked.place_again(found, self.track)
                if moved is None:
                    break
                seen = found.read(moved)
                if not seen.upper < 2.0 * seen.value:
                    break  # the line's place was hopeless, not only its measures
                epsilon, log_delta = max(0.0, moved), math.log(seen.value)
        return best

    @np.errstate(all="ignore")
    def smoothed(
        self,
        question: Question,
        rtol: float,
        cache: Cache | None = None,
        direction: int = 0,
        target: float | None = None,
    ) -> Bounds | None:
        """Returns bounds of the answer by smoothed lines, or None where they prove none.

        The arguments are those of :meth:`bounds`; a ``target`` saves nothing here. These bounds are
        as close as ``rtol`` and no closer, where losses are few and rare (:mod:`.smoothed`).
        """
        if not on_lines(question).within_reach(self.track):
            return None
        cache = cache or Cache()
        return smoothed.bounds(self.joined, self.track, question, rtol, cache, direction, target)

    @np.errstate(all="ignore")
    def below(self, epsilon: float, delta: float) -> bool:
        """Whether one Chernoff bound proves that delta(epsilon) <= delta; False says nothing."""
        near = self.track.near(epsilon)
        c = near.c_at(epsilon)
        fixed = add_up(log_g_up(c), -mul_down(c, epsilon))
        log_delta = log_down(delta) if delta > 0 else -math.inf
        if float(near.term.rough(np.array([c])).value[0]) + fixed > log_delta:
            return False
        return add_up(self.joined.upper(c), fixed) < log_delta

    def _plans(self, asked: OnLines, rtol: float) -> Iterator[_Placing]:
        """Yields where lines may go, those that cost least first."""
        whole = (self.track,)
        if self.takes_products:
            each = len(self.term.groups)
            yield _Placing(whole, COST + _CHEAP_OF_ONE * each)
            # a line for the wanted digits alone has a third of the points where |M| falls slowly
            yield _Placing(whole, COST + _COST_OF_ONE * each, _goal(rtol))
            if (without := self.without_tail_at(asked, rtol)) is not None:
                yield without
            if self.apart is None:
                return
            if (without := self.apart.without_tail_at(asked, rtol)) is not None:
                yield without
            # more digits, and the rare losses of each mechanism
            if each <= _SOME_APART or rtol < _MANY_DIGITS:
                yield from self.apart._plans(asked, rtol)
            return
        rare = self.rare_at(asked.place(whole))
        if rare is None:
            yield _Placing(whole, COST)
            return
        # one line for all, if it is cheap; the split where it promises more; the costly line
        few = rare.number < _FEW_RARE
        yield _Placing(whole, _CHEAP if few else COST)
        if split := self.split_at(rare, asked.place(whole)):
            yield _Placing(split, COST)
        if few:
            yield _Placing(whole, COST)
        if (without := self.without_tail_at(asked, rtol)) is not None:
            yield without

    def without_tail_at(self, asked: OnLines, rtol: float) -> _Placing | None:
        """A line without the largest losses, which are so rare that they make next to no delta.

        However rare they are, they alone may make M large, and its saddle point is then where no
        delta is made. None where no losses are left out, or the rest has no saddle points.
        """
        few, track, goal = Term(self.joined.outline), self.track, _goal(rtol)
        log_delta, c = asked.log_delta(track), _c_at(asked, track)
        # without this the guesses would run away where one large loss makes most of delta
        least = asked.log_delta_of_one(self.term)
        for _ in range(_TURNS):
            bulk, left_out = _without_tail(few, log_delta - goal, c)
            found = Track.whole(bulk)
            if found is None or left_out == 0.0:
                return None
            track, before = found, log_delta
            log_delta, at = asked.log_delta(track), _c_at(asked, track)
            if log_delta < least:
                # the average on the way to eps, beyond which the next guess looks, too
                at = min(at, -least / asked.place((track,)))
                log_delta = least
            if (log_delta > before - 1.0 and at < c) or log_delta < _LEAST:
                break
            c = max(c, _FARTHER * at)
        bulk, left_out = _without_tail(
            self.joined, log_delta - goal, at + reach(track.term, at, goal)
        )
        found = Track.whole(bulk)
        most = COST + _COST_OF_ONE * len(self.term.groups)
        return None if found is None else _Placing((found,), most, goal, left_out)

    def rare_at(self, epsilon: float) -> _Rare | None:
        """Splits off the rare large losses that stand apart at eps; None where there are none."""
        c = self.track.near(epsilon).c_at(epsilon)
        groups, rare, number = list(self.term.groups), [], 0.0
        for g, group in enumerate(self.term.groups):
            split = group.transform.rare_split(c)
            if split is None:
                continue
            bulk, apart = split
            groups[g] = Group(bulk, group.count)
            rare.append((g, apart))
            number += group.count * math.exp(float(apart.rough(np.array([c])).value[0]))
        return _Rare(tuple(groups), tuple(rare), number) if rare else None

    def split_at(self, parts: _Rare, epsilon: float) -> tuple[Track, ...]:
        """Returns tracks for 0, 1, ... rare losses, the last one for all further ones; or none."""
        tracks: list[Track] = []
        for j in range(_MOST_RARE):
            track = Track.whole(Term(parts.groups, parts.rare if j else (), j))
            if track is None:
                return ()
            tracks.append(track)
            sizes = [one.log_delta_at(epsilon) for one in tracks]
            if j > 1 and sizes[-1] < max(sizes) - LOG_GOAL - _SPARE:
                return tuple(tracks)
        return ()


def _c_at(asked: OnLines, track: Track) -> float:
    """About the saddle point of the answer."""
    epsilon = asked.place((track,))
    return track.near(epsilon).c_at(epsilon)


def _without_tail(term: Term, log_mass: float, c: float) -> tuple[Term, float]:
    """Leaves out the largest losses of each run, of a P-mass of e^log_mass in all, about.

    Args:
        term: of all outputs.
        log_mass: ln of the P-mass.
        c: up to which the transform is to owe nothing to what is beyond.

    Returns:
        The term of all other outputs, and the P-mass that is left out, at most.
    """
    least = max(_LEAST, log_mass) - math.log(sum(group.count for group in term.groups))
    found = [(group.transform.without_tail(least, c), group.count) for group in term.groups]
    lost = [mul_up(mass, double_up(Fraction(count))) for (_, mass), count in found if mass]
    bulk = Term(tuple(Group(one, count) for (one, _), count in found))
    return bulk, add_up(*lost) if lost else 0.0


def _goal(rtol: float) -> float:
    """-ln of the share of delta that each error may have for a relative gap."""
    return min(LOG_GOAL, _DIGITS - math.log(rtol))


def _joined(term: Term) -> Term:
    """Returns ``term`` with one product for each family of many mechanisms, or ``term`` itself."""
    families: dict[str, list[Group]] = {}
    for group in term.groups:
        if group.transform.family is not None and group.count <= _MOST_RUNS:
            families.setdefault(group.transform.family, []).append(group)
    large = [groups for groups in families.values() if len(groups) >= _MANY]
    if not large:
        return term
    taken = {id(group) for groups in large for group in groups}
    kept = [group for group in term.groups if id(group) not in taken]
    for groups in large:
        members = [(group.transform, group.count) for group in groups]
        kept += [Group(product, 1) for product in members[0][0].together(members)]
    return Term(tuple(kept))
