"""The engine asks one method after the other, until their bounds together are close enough.

What a formula settles comes first, then lines through saddle points, then buckets. A delta of
nearly 1 is shown by a part of the runs. Short arrays of buckets come before several grids, and
smoothed lines before as many buckets as a gap needs. Each method gives certified bounds. Of many
different pairs few that resemble them are asked first: what answers these is asked first, then.
``benchmarks`` compares the lines and the buckets on the same questions.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tightbudget import notebook
from tightbudget.engine.answer import SADDLE_POINT, Answer
from tightbudget.engine.buckets.compose import Pairs, Parts
from tightbudget.engine.buckets.refine import FIRST_LENGTH, SHORT
from tightbudget.engine.cache import Cache
from tightbudget.engine.methods import (
    LEVELS_REACH,
    ByBuckets,
    ByFewerRuns,
    ByLevels,
    ByLines,
    ByMoments,
    BySmoothedLines,
    ByVariation,
    ClosedForm,
    Inquiry,
    Method,
)
from tightbudget.engine.question import DeltaAt, Question
from tightbudget.engine.saddle_point.saddle_point import SaddlePoint
from tightbudget.numerics.bounds import Bounds
from tightbudget.pairs.direction import Direction

Reader = Callable[[float, float], Bounds]  # (eps, rtol) -> delta(eps)

# Of more different pairs than _MANY, _FEW that resemble them are asked first: with 64 noises, lines
# and short arrays that prove nothing took two thirds of the time. Affects no bound.
_MANY, _FEW = 24, 12
# Pairs of one family from which on their smoothed lines are asked before buckets are. Measured for
# sampled Gaussian steps: 1,000 took 2 and 8 s in place of 32 and 39.
_MANY_TOGETHER = 64


@dataclass(frozen=True, repr=False)
class Explanation:
    """An explanation says which engine answered a question, and with what.

    Attributes:
        question: in words.
        bounds: the answer.
        engine: "saddle-point" or "buckets", or "closed form" where one run has one.
        details: a row for each direction that was computed (and each line in it): for a line
            through saddle points c, the step, the number of points, and its errors relative to
            delta; for buckets the tilt, the bucket's width and the number of buckets; for several
            grids a row for each grid.
        note: asks about what looks like a mistake in the composition; "" where nothing does.
    """

    question: str
    bounds: Bounds
    engine: str
    details: tuple[dict[str, float | str], ...]
    note: str = ""

    def __str__(self) -> str:
        rows = [", ".join(f"{k} {_brief(v)}" for k, v in row.items()) for row in self.details]
        note = [f"note: {self.note}"] if self.note else []
        return "\n  ".join([self._head(), *rows, *note])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Writes the answer, and a table with a row for each direction, for a notebook."""
        columns = list(dict.fromkeys(name for row in self.details for name in row))
        rows = [[_brief(row.get(name, "")) for name in columns] for row in self.details]
        table = notebook.table(rows, head=columns, title=self._head())
        return notebook.shown(table, notebook.muted(self.note))

    def down_to(self, below: Explanation, bounds: Bounds) -> Explanation:
        """The explanation of an answer between two pairs: rows of the upper bound, then the lower.

        Args:
            below: the explanation of the same question, about the pair that is dominated.
            bounds: the answer.
        """
        rows = [{"bound": "upper", **row} for row in self.details]
        rows += [{"bound": "lower", **row} for row in below.details]
        return dataclasses.replace(self, bounds=bounds, details=tuple(rows))

    def _head(self) -> str:
        """The question, the answer and the name of the engine in a line."""
        means = "saddle points" if self.engine == SADDLE_POINT else self.engine
        return f"{self.question}: {self.bounds}, answered by {means}"


@dataclass(frozen=True)
class Engine:
    """A composition of pairs, in each direction that matters, ready for either engine.

    Attributes:
        directions: (n,) the directions, one where delta(eps) is the same in both.
        pairs: (n,) for each direction the pairs, each with its count.
    """

    directions: tuple[Direction, ...]
    pairs: tuple[Pairs, ...]

    @staticmethod
    def of(pairs: Mapping[Direction, Pairs]) -> Engine:
        """An engine for the directions that are given."""
        return Engine(tuple(pairs), tuple(pairs.values()))

    @functools.cached_property
    def parts(self) -> tuple[Parts, ...]:
        """The composition as the buckets engine takes it, by direction."""
        return tuple(Parts.of(pairs) for pairs in self.pairs)

    @functools.cached_property
    def saddle_points(self) -> tuple[SaddlePoint, ...]:
        """The saddle-point engine by direction; empty if it cannot take the composition."""
        found = []
        for pairs in self.pairs:
            one = SaddlePoint.of((pair.transform(), count) for pair, count in pairs)
            if one is None:
                return ()
            found.append(one)
        return tuple(found)

    @property
    def _in_products(self) -> bool:
        """Whether smoothed lines take many pairs together, in less time than several grids do."""
        each = [len(one.term.groups) - len(one.joined.groups) for one in self.saddle_points]
        return max(each, default=0) >= _MANY_TOGETHER

    def apart(self) -> tuple[Engine, ...]:
        """An engine for each direction alone."""
        return tuple(
            Engine((direction,), (pairs,))
            for direction, pairs in zip(self.directions, self.pairs, strict=True)
        )

    def answer(
        self,
        question: Question,
        rtol: float,
        target: float | None = None,
        cache: Cache | None = None,
        *,
        insist: bool = True,
        floor: float = 0.0,
    ) -> Answer:
        """Answers for the worse direction, by the first methods that are together close enough.

        Guarantee: the exact value lies in the bounds, reached or not. Reached means a relative gap
        of ``rtol``, or the exceptions that :func:`~tightbudget.engine.buckets.refine.refine` names.

        Args:
            question: delta at an epsilon, or epsilon at a delta.
            rtol: the wanted relative gap.
            target: a value that the answer is to be compared with: bounds on one side of it do.
            cache: what earlier questions of the same composition have left.
            insist: whether wider gaps are tried where buckets do not reach ``rtol``, so that a
                refusal knows what they prove.
            floor: an answer whose upper bound is at most this needs no closer lower one.
        """
        inquiry = Inquiry(question, rtol, target, cache, insist, floor)
        known: Bounds | None = None
        why = name = ""
        many = max(len(pairs) for pairs in self.pairs) > _MANY
        # several grids are asked where all else said nothing: what took time once would do so again
        known_to = cache is not None and cache.answered is ByLevels
        methods = self._likely_first(inquiry) if many or known_to else self._methods(rtol)
        for place, method in enumerate(methods):
            found = method.bounds(inquiry)
            if found is None:
                continue
            known = found.bounds if known is None else known.meet(found.bounds)
            why, name = found.why, method.name
            if not why or inquiry.met_by(known):
                if cache is not None:
                    cache.answered = type(method)
                return Answer(known, method=name)
            if found.last and not (many and place == 0):
                break
        assert known is not None, "buckets always answer"
        return Answer.missed(str(question), known, rtol, reason=why, method=name)

    def _likely_first(self, inquiry: Inquiry) -> Iterator[Method]:
        """Yields the methods, beginning with those that are likely to answer."""
        known = inquiry.cache.answered if inquiry.cache is not None else None
        likely = list(self._likely(inquiry)) if known is None else [known]
        for kind in likely:  # each time anew: methods that are not reached are not made
            first = next((one for one in self._methods(inquiry.rtol) if type(one) is kind), None)
            if first is not None:
                yield first
        for method in self._methods(inquiry.rtol):
            if type(method) in likely:
                likely.remove(type(method))
            else:
                yield method

    def _likely(self, inquiry: Inquiry) -> tuple[type[Method], ...]:
        """The methods that answer few pairs which resemble these, the most likely one first.

        Where none of the fast ones does, they are those of smoothed lines, if these take many pairs
        together, and of several grids, which are not asked.
        """
        few = Engine(self.directions, tuple(_few(pairs) for pairs in self.pairs))
        trial = dataclasses.replace(inquiry, target=None, cache=None, insist=False)
        for method in few._methods(inquiry.rtol):
            if isinstance(method, ByBuckets | ByLevels) and self._in_products:
                return BySmoothedLines, ByLevels
            if isinstance(method, ByLevels):
                return (ByLevels,)
            found = method.bounds(trial)
            if found is not None and (not found.why or trial.met_by(found.bounds)):
                return (type(method),)
        return (ByBuckets,)

    def _methods(self, rtol: float) -> Iterator[Method]:
        """Yields the methods in the order in which they are asked, the fastest first."""
        # lines of one pair answer as fast as some formulas do, those of many take seconds
        if any(len(pairs) > 1 for pairs in self.pairs):
            yield ByVariation(self.pairs)
        # a formula is of one run: others need not ask each pair for its sketch before the lines do
        if all(len(pairs) == 1 and pairs[0][1] == 1 for pairs in self.pairs):
            yield ClosedForm(self.parts)
        if self.saddle_points:
            yield ByLines(self.saddle_points)
            if self._in_products:
                yield BySmoothedLines(self.saddle_points)
        yield ByFewerRuns(self.parts)
        # short arrays of doubles answer fast; where they do not do, several grids or smoothed
        # lines may
        if self.saddle_points or rtol >= LEVELS_REACH:
            short = self.saddle_points and rtol >= LEVELS_REACH
            longest = SHORT if short else FIRST_LENGTH
            yield ByBuckets(self.parts, patient=False, longest=longest)
        yield ByMoments(self.parts)
        if rtol >= LEVELS_REACH:
            yield ByLevels(self.parts)
        if self.saddle_points and not self._in_products:
            yield BySmoothedLines(self.saddle_points)
        yield ByBuckets(self.parts)

    def reader(self) -> Reader:
        """A function that answers delta(eps) at many eps, as close as it gets each time."""
        cache = Cache()

        def read(epsilon: float, rtol: float) -> Bounds:
            # a reading asks elsewhere where bounds stay wide: wider gaps would only take longer
            bounds = self.answer(DeltaAt(epsilon), rtol, cache=cache, insist=False).bounds
            return Bounds(bounds.lower, min(1.0, bounds.upper))

        return read

    def explain(self, question: Question, rtol: float, *, refuse: bool = True) -> Explanation:
        """Explains which engine answers a question, and with what.

        Args:
            question: delta at an epsilon, or epsilon at a delta.
            rtol: the wanted relative gap.
            refuse: whether bounds that are not as close are refused.

        Raises:
            PrecisionError: the gap cannot be reached, and ``refuse`` is True.
        """
        cache = Cache()
        answer = self.answer(question, rtol, cache=cache)
        bounds = answer.required() if refuse else answer.bounds
        kept = cache.lines if answer.method == SADDLE_POINT else cache.profiles
        details = tuple(
            {"direction": direction.value, **row}
            for i, direction in enumerate(self.directions)
            for curve in kept(i)[:1]
            for row in curve.describe(question.at(bounds.upper)[0])
        )
        return Explanation(str(question), bounds, answer.method, details)


def _few(pairs: Pairs) -> Pairs:
    """Some of the pairs, each in place of its neighbours in their order.

    ``Parts.like`` chooses them better, by sketches of all, which lines do not need. The first and
    the last stand for themselves: noise that changes along a schedule is least at an end of it, and
    the least noise decides about a small delta.
    """
    if len(pairs) <= _FEW:
        return pairs
    inner = len(pairs) - 2
    ends = [0, *(1 + inner * i // (_FEW - 2) for i in range(_FEW - 1)), len(pairs)]
    groups = [pairs[i:j] for i, j in itertools.pairwise(ends) if i < j]
    return tuple((each[len(each) // 2][0], sum(count for _, count in each)) for each in groups)


def _brief(value: float | str) -> str:
    """Writes three digits of a number; a text as it is."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
