"""The engine asks the saddle-point engine where it can answer, the buckets everywhere else.

Both give certified bounds, and share nothing but the pairs. The saddle-point engine takes
compositions of Gaussian mechanisms, sampled or not; it answers with many digits or not at all,
and says so quickly. Where its lines do not answer, the buckets are asked with short arrays first,
and then its smoothed lines, which take longer, before the buckets take all the time they need.
``benchmarks`` compares both on the same questions.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tightbudget import notebook
from tightbudget.engine.answer import BUCKETS, CLOSED_FORM, SADDLE_POINT, Answer
from tightbudget.engine.buckets.compose import Pairs, Parts
from tightbudget.engine.buckets.one_run import OneRun
from tightbudget.engine.buckets.refine import refine
from tightbudget.engine.cache import Cache
from tightbudget.engine.question import NEAR, DeltaAt, Question
from tightbudget.engine.saddle_point.saddle_point import SaddlePoint
from tightbudget.numerics.bounds import Bounds
from tightbudget.pairs.direction import Direction

Reader = Callable[[float, float], Bounds]  # (eps, rtol) -> delta(eps)
_Lines = Callable[[SaddlePoint, Question, float, Cache | None, int, float | None], Bounds | None]

# Buckets of width h add a variance of h^2, which the gap is proportional to: for 1e-8 arrays are a
# hundred times as long as for 1e-4, near the limit of their lengths. So bounds by saddle points
# that are as close as this are not tried again with buckets. Affects time, never truth.
_OUT_OF_REACH = 1e-8
_ROUNDING = "the rounding of doubles stands in the way"


@dataclass(frozen=True, repr=False)
class Explanation:
    """An explanation says which engine answered a question, and with what.

    Attributes:
        question: in words.
        bounds: the answer.
        engine: "saddle-point" or "buckets", or "closed form" where one run has one.
        details: a row for each direction that was computed (and each line in it): for a line
            through saddle points c, the step, the number of points, and its errors relative to
            delta; for buckets the tilt, the bucket's width and the number of buckets.
    """

    question: str
    bounds: Bounds
    engine: str
    details: tuple[dict[str, float | str], ...]

    def __str__(self) -> str:
        rows = [", ".join(f"{k} {_brief(v)}" for k, v in row.items()) for row in self.details]
        return "\n  ".join([self._head(), *rows])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Writes the answer, and a table with a row for each direction, for a notebook."""
        columns = list(dict.fromkeys(name for row in self.details for name in row))
        rows = [[_brief(row.get(name, "")) for name in columns] for row in self.details]
        return notebook.shown(notebook.table(rows, head=columns, title=self._head()))

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
    ) -> Answer:
        """Answers for the worse direction, by the first method that is close enough.

        A closed form comes first, then saddle points, then buckets. Of a composition that the
        saddle-point engine takes, the buckets are asked twice: with short arrays, and with as many
        buckets as it needs. Smoothed lines are asked in between.

        Guarantee: the exact value lies in the bounds, reached or not. Reached means a relative gap
        of ``rtol``, or the exceptions that :func:`~tightbudget.engine.buckets.refine.refine` names.

        Args:
            question: delta at an epsilon, or epsilon at a delta.
            rtol: the wanted relative gap.
            target: a value that the answer is to be compared with: bounds on one side of it do.
            cache: what earlier questions of the same composition have left.
            insist: whether wider gaps are tried where buckets do not reach ``rtol``, so that a
                refusal knows what they prove.
        """
        # a formula is of one run: others need not ask each pair for its sketch before the lines do
        once = all(len(pairs) == 1 and pairs[0][1] == 1 for pairs in self.pairs)
        exact = once and all(pairs[0][0].formula_is_exact() for pairs in self.pairs)
        if exact:
            runs = tuple(OneRun(pairs[0][0], math.inf) for pairs in self.pairs)
            formula = question.exactly(runs, rtol)
        else:
            formula = question.in_closed_form(self.parts) if once else None
        if formula is not None and (formula.relative_gap <= rtol or _decided(formula, target)):
            return Answer(formula, method=CLOSED_FORM)
        if exact and formula is not None and formula.relative_gap <= NEAR:  # masses are not closer
            return Answer.missed(str(question), formula, rtol, reason=_ROUNDING, method=CLOSED_FORM)
        lines = self._by_lines(SaddlePoint.bounds, question, rtol, cache, target)
        if lines is not None and (lines.relative_gap <= rtol or _decided(lines, target)):
            return Answer(lines, method=SADDLE_POINT)
        if lines is not None and lines.relative_gap <= _OUT_OF_REACH:  # buckets are not closer
            return Answer.missed(str(question), lines, rtol, reason=_ROUNDING, method=SADDLE_POINT)
        if self.saddle_points:
            # short arrays of doubles answer fast; where they do not do, smoothed lines may
            found = refine(question, self.parts, rtol, target, cache, patient=False)
            if found.why:
                smooth = self._by_lines(SaddlePoint.smoothed, question, rtol, cache, target)
                if smooth is not None and lines is not None:
                    smooth = Bounds(max(lines.lower, smooth.lower), min(lines.upper, smooth.upper))
                lines = smooth or lines
                if lines is not None and (lines.relative_gap <= rtol or _decided(lines, target)):
                    return Answer(lines, method=SADDLE_POINT)
                found = refine(question, self.parts, rtol, target, cache, insist=insist)
        else:
            found = refine(question, self.parts, rtol, target, cache, insist=insist)
        both = found.bounds
        if lines is not None:
            both = Bounds(max(lines.lower, both.lower), min(lines.upper, both.upper))
        if not found.why or both.relative_gap <= rtol or _decided(both, target):
            return Answer(both, method=BUCKETS)
        return Answer.missed(str(question), both, rtol, reason=found.why, method=BUCKETS)

    def _by_lines(
        self,
        bounds: _Lines,
        question: Question,
        rtol: float,
        cache: Cache | None,
        target: float | None,
    ) -> Bounds | None:
        """Bounds for the worse direction, or None where lines prove none for some direction.

        ``bounds`` is the method of the saddle-point engine that is asked.
        """
        worst: Bounds | None = None
        for i, engine in enumerate(self.saddle_points):
            # lines that are there answer faster than a proof that this direction is milder
            asked = worst is None or (cache is not None and bool(cache.lines(i)))
            found = bounds(engine, question, rtol, cache, i, target) if asked else None
            if found is None and worst is not None:
                # its exact value is not above a bound of the worse direction: the lower one, so
                # that nothing widens; the upper one does where only a target matters, and
                # closer bounds of many different mechanisms would take seconds
                decided = target is not None and worst.upper <= target and engine.takes_products
                # guard: other-direction-below
                if engine.below(*question.at(worst.upper if decided else worst.lower)):
                    continue
            if not asked:
                found = bounds(engine, question, rtol, cache, i, target)
            if found is None:
                return None
            larger = worst or found
            worst = Bounds(max(larger.lower, found.lower), max(larger.upper, found.upper))
        return worst

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
            for row in curve.describe(question.read_at(bounds))
        )
        return Explanation(str(question), bounds, answer.method, details)


def _brief(value: float | str) -> str:
    """Writes three digits of a number; a text as it is."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _decided(bounds: Bounds, target: float | None) -> bool:
    """Whether both bounds are on one side of a target."""
    return target is not None and (bounds.upper <= target or bounds.lower > target)
