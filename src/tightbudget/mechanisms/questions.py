"""The questions that a mechanism and a composition answer: epsilon, delta, curves, risk.

The answers come from an engine. A subclass of :class:`Questions` says which engine that is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tightbudget.engine.answer import CLOSED_FORM, FLOOR, Answer, Asked
from tightbudget.engine.buckets.reading import on_buckets
from tightbudget.engine.cache import Cache
from tightbudget.engine.engine import Engine, Explanation
from tightbudget.engine.question import DeltaAt, EpsilonAt, Question
from tightbudget.engine.readings.renyi import (
    renyi_divergence,
    rounding_of_renyi,
    words_of_renyi,
)
from tightbudget.engine.readings.tradeoff import (
    NEGLIGIBLE,
    least_false_negatives,
    most_true_positives,
    words_of_false_negatives,
    words_of_true_positives,
)
from tightbudget.errors import ParameterError
from tightbudget.later import guesses
from tightbudget.mechanisms.curve import Curve
from tightbudget.mechanisms.risk import Promised, Risk, risk_of
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.validate import (
    finite,
    listed,
    non_negative,
    open_probability,
    positive,
    probability,
    refuse,
)

# The share of a gap that each of two pairs above and below an exact one is asked for. The rest is
# for their distance, which takes longer to bring down. Affects time, never truth.
_SHARE = 0.25
# Twice as close pairs take up to twice as long: six times is half a minute for the largest epochs.
MOST_HALVINGS = 6
# Of a delta whose two bounds are a factor of four apart or more, those below _FAR have a gap of
# _ROUGH, unless one below _ASKED is wanted: closer ones took up to 18 s in far tails.
_ROUGH, _FAR_APART, _FAR, _ASKED = 1e-2, 0.75, 1e-15, 1e-4
# Two pairs are never as close as this after so many halvings: bounds of a formula that are as close
# are the answer, or refused. Affects time, never truth.
_OUT_OF_REACH = 1e-6
# Lattices of random allocation count at most 1e-42 of each epoch as infinite, of 10^7 epochs as
# much as this, and other pairs less; a larger mass is that of another mechanism beside them.
_CUT = 1e-35
# A picture has so many points, from this part of delta(0) down to this delta: four in a decade are
# joined by chords that look like the curve.
_DRAWN, _NEARLY, _LAST_DRAWN = 41, 0.9, 1e-12

_MU = "is not a method: .risk(epsilon).mu bounds the mu of Gaussian differential privacy"
_RHO = (
    "is not a method: .renyi(order) bounds the Renyi divergences that zCDP limits to rho * order, "
    'and tb.compare(composition, delta=...)["zero-concentrated"] has the epsilon that zCDP proves'
)
_RDP = "is not a method: .renyi(order) bounds the Renyi divergence of an order"


@guesses(gdp=_MU, mu=_MU, zcdp=_RHO, rho=_RHO, rdp=_RDP)
class Questions:
    """The base of what can be asked about its privacy: a mechanism, or a composition of many.

    All answers are for the worse of the two directions. ``rtol`` limits (upper - lower) / upper:
    an answer is that close, or refused, or it says that it is ``apart``.

    Where no single pair is known to be the exact one (:attr:`attained` is not None), the upper
    bound is that of the dominating pair and the lower bound that of a pair which is attained. The
    two may enclose an exact pair; then they are brought as close together as ``rtol`` asks. Or
    nobody knows the worst data sets, for batches of a shuffle, say: then ``rtol`` limits the error
    of each of the two bounds, which lie as far apart as the pairs do, and ``bounds.apart`` of the
    answer names the reason.
    """

    @property
    def engine(self) -> Engine:
        """The engine that answers for the dominating pairs."""
        raise NotImplementedError

    @property
    def attained(self) -> Questions | None:
        """A mechanism or composition that concrete data sets attain; None if the pairs are exact.

        Guarantee: no upper bound of any proof is below the exact values of what is returned.
        """
        return None

    @property
    def apart(self) -> str:
        """Names what keeps the bounds of an answer apart at any ``rtol``; "" where nothing does.

        That is the ways to draw records for which nobody knows the worst data sets, such as
        "shuffled batches". An answer whose bounds are as close as was asked does not say it.
        """
        return ""

    @property
    def doubt(self) -> str:
        """Asks whether many runs are meant to see all records; "" where nothing looks odd."""
        return ""

    def finer(self, halvings: int) -> Questions:
        """Returns the same with pairs above and below an exact one that are closer together.

        Args:
            halvings: how often the distance of the two is halved, about; >= 1.

        Returns:
            Something equal to ``self`` where no pair is made closer.
        """
        return self

    def by_formula(self, question: Question, rtol: float) -> Bounds | None:
        """Bounds the exact answer by a formula that no pair above or below it knows.

        Args:
            question: delta at an epsilon, or epsilon at a delta.
            rtol: a relative gap that is aimed at.

        Returns:
            Bounds, maybe wide ones; None where there is no formula.
        """
        return None

    def upper_by_theorem(self, question: Question, known: Bounds) -> float:
        """An upper bound of the exact answer that no dominating pair knows; inf if there is none.

        Args:
            question: delta at an epsilon, or epsilon at a delta.
            known: bounds of the answer.
        """
        return math.inf

    @property
    def largest_loss_by(self) -> Questions | None:
        """A composition of one pair each with the same epsilon at delta = 0; None if not known.

        Guarantee: no epsilon below that of what is returned holds with a delta of 0, and that one
        does.
        """
        return None

    def epsilon(self, delta: float, rtol: float = 1e-4) -> Bounds:
        """Bounds the exact eps*(delta) = inf{eps >= 0: delta(eps) <= delta}, in nats.

        Guarantee: lower <= eps* <= upper, rounding included, and (upper - lower) <= rtol *
        upper (or <= 1e-12, where the losses themselves are known no better); unless the answer
        says that it is :attr:`~tightbudget.Bounds.apart`. ``upper`` is inf exactly if delta is not
        proved to reach the mass of outputs that tell the neighbours apart for certain.

        Args:
            delta: in [0, 1].
            rtol: wanted relative gap, in (0, 1).

        Raises:
            PrecisionError: the gap cannot be reached; the error carries the bounds that were, and
                says which ``rtol`` to ask for.
        """
        return self._ask(EpsilonAt(probability(delta=delta)), _rtol(rtol)).required()

    def delta(self, epsilon: float, rtol: float = 1e-4) -> Bounds:
        """Bounds the exact delta(eps) of all runs together.

        Guarantee: lower <= delta(eps) <= upper, rounding included, and (upper - lower) <=
        rtol * upper; unless upper is below 1e-290 (or below twice what a pair above counts as
        infinite: some 1e-42 for each epoch of random allocation, 2e-100 for each batch that a user
        is in), or eps is the largest loss or more, up to the rounding of the parameters (then
        upper - lower <= 1e-12), or the answer says that it is :attr:`~tightbudget.Bounds.apart`.

        Args:
            epsilon: >= 0, nats; inf is allowed.
            rtol: wanted relative gap, in (0, 1).

        Raises:
            PrecisionError: the gap cannot be reached; the error carries the bounds that were, and
                says which ``rtol`` to ask for.
        """
        return self._ask(_delta_at(epsilon), _rtol(rtol)).required()

    def answer(
        self,
        *,
        delta: float | None = None,
        epsilon: float | None = None,
        fpr: float | None = None,
        order: float | None = None,
        rtol: float = 1e-4,
        target: float | None = None,
    ) -> Answer:
        """Bounds one number, and says whether the bounds are as close as ``rtol`` asks for.

        Give exactly one of ``delta`` (asks for epsilon, as :meth:`epsilon` does), ``epsilon``
        (asks for delta, as :meth:`delta` does), ``fpr`` (asks for the largest true-positive rate of
        a test with this false-positive rate) and ``order`` (asks for the Renyi divergence, as
        :meth:`renyi` does).

        Guarantee: the exact value lies in ``answer.bounds``; ``answer.reached`` says whether the
        relative gap is at most ``rtol`` (for bounds that are ``apart``, whether the error of each
        of them is, or 1e-2 for one of a delta below 1e-15, a factor of four from the other), or,
        with a ``target``, whether both bounds are on one side of it: then they are no closer than
        that takes.

        Args:
            delta: in [0, 1].
            epsilon: >= 0, nats; inf is allowed.
            fpr: in [0, 1].
            order: > 1; inf is allowed.
            rtol: wanted relative gap, in (0, 1).
            target: a value to compare the answer with; a Renyi divergence does without.

        Raises:
            ParameterError: not exactly one question was asked, or its value is refused.
        """
        given = (delta, epsilon, fpr, order)
        if sum(value is not None for value in given) != 1:
            raise ParameterError("give exactly one of delta, epsilon, fpr and order")
        rtol, target = _rtol(rtol), None if target is None else finite(target=target)
        if delta is not None:
            return self._ask(EpsilonAt(probability(delta=delta)), rtol, target)
        if epsilon is not None:
            return self._ask(_delta_at(epsilon), rtol, target)
        if fpr is not None:
            return self._true_positives(probability(fpr=fpr), rtol, target)
        assert order is not None
        return self._renyi(_order(order), rtol)

    def _ask(self, question: Question, rtol: float, target: float | None = None) -> Answer:
        """Answers for delta or epsilon, from both pairs where there are two."""
        return self._asked(question, rtol, target)[0]

    def _asked(
        self,
        question: Question,
        rtol: float,
        target: float | None = None,
        caches: dict[int, Cache] | None = None,
        halvings: int = 0,
    ) -> tuple[Answer, int]:
        """Answers for delta or epsilon, and says by which of the pairs, as :meth:`_of_both` does.

        Args:
            question: delta at an epsilon, or epsilon at a delta.
            rtol: wanted relative gap.
            target: a value to compare the answer with.
            caches: what earlier questions have left, by the engine that was asked.
            halvings: which of the pairs are asked first.
        """
        worst = self.largest_loss_by
        if question == EpsilonAt(0.0) and worst is not None:
            return worst._ask(question, rtol, target), halvings
        # a pair that is on one side of the target says nothing of the other pair
        wanted = target if self.attained is None else None
        floor = self._least_delta if isinstance(question, DeltaAt) else FLOOR

        once = caches is None and target is None
        rough = _ROUGH if once and self.apart and isinstance(question, DeltaAt) else 0.0
        latest = dict[int, Cache]()

        def ask(engine: Engine, gap: float) -> Answer:
            cache = None if caches is None else caches.setdefault(id(engine), Cache())
            if rough:  # what answers roughly is asked first for more
                cache = latest.setdefault(id(engine), Cache()).only_method()
                latest[id(engine)] = cache
            return engine.answer(question, gap, wanted, cache, floor=floor)

        def settled() -> bool:
            # a lattice's largest loss is not the exact one's; the masses at infinity stay
            # guard: cut-tail-not-settled
            cut = any(pair.tail_is_cut() for pairs in self.engine.pairs for pair, _ in pairs)
            if cut and question.at(0.0)[0] < math.inf:
                return False
            reading = on_buckets(question)
            return all(reading.settled(parts) is not None for parts in self.engine.parts)

        asked = Asked(words=str(question), gap=rtol, target=target, floor=floor, settled=settled)
        exact = self.by_formula(question, rtol)
        if exact is not None and asked.met_by(exact):
            return Answer(exact, method=CLOSED_FORM), halvings
        if exact is not None and exact.relative_gap <= _OUT_OF_REACH:
            why = "the rounding of doubles stands in the way"
            missed = Answer.missed(asked.words, exact, rtol, reason=why, method=CLOSED_FORM)
            return missed, halvings
        answer, halvings = self._of_both(ask, asked, halvings, rough=rough)
        if answer.bounds.apart:
            least = self.upper_by_theorem(question, answer.bounds)
            answer = answer.no_larger_than(least, asked)
        if answer.bounds.upper == math.inf and isinstance(question, EpsilonAt):
            least = math.inf if worst is None else worst._ask(EpsilonAt(0.0), rtol).bounds.upper
            answer = answer.no_larger_than(least, asked)
        return answer, halvings

    @property
    def _least_delta(self) -> float:
        """A delta that needs no lower bound: 1e-290, or twice what is counted as infinite above.

        That is what lattices and counts of copies cut off, where there is a second pair below.
        """
        if self.attained is None:
            return FLOOR
        cut = max(parts.infinity.upper for parts in self.engine.parts)
        return max(FLOOR, 2.0 * cut) if cut < _CUT else FLOOR

    def _true_positives(self, fpr: float, rtol: float, target: float | None = None) -> Answer:
        """Answers for the largest true-positive rate of a test, from both pairs if need be."""
        wanted = target if self.attained is None else None
        asked = Asked(
            words=words_of_true_positives(fpr),
            gap=rtol,
            target=target,
            floor=NEGLIGIBLE if fpr > 0.0 else 1.0,
        )
        return self._of_both(
            lambda engine, gap: most_true_positives(engine, fpr, gap, wanted), asked
        )[0]

    def _renyi(self, order: float, rtol: float) -> Answer:
        """Answers for a Renyi divergence, from both pairs where there are two."""
        asked = Asked(
            words=words_of_renyi(order),
            gap=rtol,
            floor=rounding_of_renyi(self.engine.parts),
            unbounded=True,
        )
        return self._of_both(lambda engine, gap: renyi_divergence(engine.parts, order, gap), asked)[
            0
        ]

    def _of_both(
        self,
        ask: Callable[[Engine, float], Answer],
        asked: Asked,
        halvings: int = 0,
        *,
        falling: bool = False,
        rough: float = 0.0,
    ) -> tuple[Answer, int]:
        """Answers from both pairs where there are two, which are made closer where that helps.

        Args:
            ask: asks an engine with a gap.
            asked: the question, and how close the answer is to be.
            halvings: how often the distance of the two pairs was halved for an earlier question.
            falling: whether the answer falls with what a mechanism reveals; else it rises.
            rough: a gap that is close enough for bounds that are far apart.

        Returns:
            The answer, and how often the distance was halved for it.
        """
        if self.attained is None:
            return ask(self.engine, asked.gap), 0
        share = asked.gap if self.apart else asked.gap * _SHARE
        if rough and (found := self._far_apart(ask, asked, rough)) is not None:
            return found, halvings
        while True:
            both = self._with_halved(halvings)
            assert both.attained is not None
            above, below = ask(both.engine, share), ask(both.attained.engine, share)
            if falling:
                above, below = below, above
            # guard: lower-bound-attained
            joint = above.down_to(below, asked, apart=self.apart)
            if joint.reached or self.apart:
                return joint, halvings
            more = asked.halvings(joint.bounds, above.bounds, below.bounds)
            if not more or halvings + more > self._most_halvings:
                return joint, halvings
            halvings += more
            if self._with_halved(halvings) == both:
                return joint, halvings

    def _far_apart(
        self, ask: Callable[[Engine, float], Answer], asked: Asked, rough: float
    ) -> Answer | None:
        """Answers for a delta whose bounds are far apart, those far in a tail roughly; or None."""
        assert self.attained is not None
        if not _ASKED <= asked.gap < rough:
            return None
        below = ask(self.attained.engine, rough)
        if not below.bounds.upper < _FAR:
            return None
        above = ask(self.engine, rough)
        if not Bounds(below.bounds.lower, above.bounds.upper).relative_gap > _FAR_APART:
            return None
        if not above.bounds.upper < _FAR:
            above = ask(self.engine, asked.gap)
        found = above.down_to(below, asked, apart=self.apart)
        return found if found.reached else None

    @property
    def _most_halvings(self) -> int:
        """Says how often the distance of the two pairs is halved at most. Affects time alone."""
        return MOST_HALVINGS

    def _with_halved(self, halvings: int) -> Questions:
        """Returns the same with pairs whose distance is halved so often; remembers it."""
        if not halvings:
            return self
        known: dict[int, Questions] = self.__dict__.setdefault("_halved", {})
        if halvings not in known:
            known[halvings] = self.finer(halvings)
        return known[halvings]

    def explain(
        self, *, delta: float | None = None, epsilon: float | None = None, rtol: float = 1e-4
    ) -> Explanation:
        """Says which engine answers :meth:`epsilon` or :meth:`delta`, and with what.

        Its note asks whether a thousand or more Gaussian runs without a sampling rate are meant.

        Args:
            delta: in [0, 1], to have :meth:`epsilon` explained; or else
            epsilon: >= 0, nats, to have :meth:`delta` explained.
            rtol: wanted relative gap, in (0, 1).

        Raises:
            ParameterError: not exactly one question was asked, or its value is refused.
            PrecisionError: the gap cannot be reached; the error carries the bounds that were.
        """
        if (epsilon is None) == (delta is None):
            raise ParameterError("give exactly one of delta and epsilon")
        question: Question
        if delta is not None:
            question = EpsilonAt(probability(delta=delta))
        else:
            question = DeltaAt(non_negative(epsilon=epsilon))
        rtol = _rtol(rtol)
        return dataclasses.replace(self._explained(question, rtol), note=self.doubt)

    def _explained(self, question: Question, rtol: float) -> Explanation:
        """Says which engine answers a question, and with what, from both pairs where need be."""
        worst = self.largest_loss_by
        if question == EpsilonAt(0.0) and worst is not None:
            return worst._explained(question, rtol)
        if self.attained is None:
            return self.engine.explain(question, rtol)
        answer, halvings = self._asked(question, rtol)
        bounds = answer.required()
        if answer.method == CLOSED_FORM:
            return Explanation(str(question), bounds, CLOSED_FORM, ())
        both = self._with_halved(halvings)
        assert both.attained is not None
        share = rtol if self.apart else rtol * _SHARE
        above, below = (
            engine.explain(question, share, refuse=False)
            for engine in (both.engine, both.attained.engine)
        )
        return above.down_to(below, bounds)

    def total_variation(self, rtol: float = 1e-4) -> Bounds:
        """Bounds delta(0), the best advantage of an attacker who tells the neighbours apart."""
        return self._ask(_delta_at(0.0), _rtol(rtol)).required()

    def curve(
        self,
        epsilons: Sequence[float] | FloatArray | None = None,
        deltas: Sequence[float] | FloatArray | None = None,
        rtol: float = 1e-4,
        progress: Callable[[list[float]], Iterable[float]] = iter,
    ) -> Curve:
        """Bounds delta at many epsilons, or epsilon at many deltas.

        Guarantee: each point has the guarantee of :meth:`delta` or :meth:`epsilon`.

        Args:
            epsilons: (n,) >= 0, nats, to be told each delta; or else
            deltas: (n,) in [0, 1], to be told each epsilon.
            rtol: wanted relative gap of each point, in (0, 1).
            progress: wraps the list while it is answered, as a progress bar does.

        Raises:
            ParameterError: not exactly one list was given, or one of its values is refused.
            PrecisionError: the gap cannot be reached at some point.
        """
        if (epsilons is None) == (deltas is None):
            raise ParameterError(
                "give exactly one of epsilons and deltas, such as deltas=[1e-5, 1e-6]; plot() "
                "picks its points by itself"
            )
        rtol = _rtol(rtol)
        caches: dict[int, Cache] = {}  # one point's work often answers the next one
        halvings = 0

        def ask(question: Question) -> Bounds:
            nonlocal halvings
            answer, halvings = self._asked(question, rtol, caches=caches, halvings=halvings)
            return answer.required()

        if epsilons is not None:
            listed(epsilons=epsilons)
            eps = [non_negative(**{f"epsilons[{i}]": e}) for i, e in enumerate(epsilons)]
            found = [ask(DeltaAt(e)) for e in progress(eps)]
            return Curve.of_deltas(eps, found)
        assert deltas is not None
        listed(deltas=deltas)
        given = [probability(**{f"deltas[{i}]": d}) for i, d in enumerate(deltas)]
        found = [ask(EpsilonAt(d)) for d in progress(given)]
        return Curve.of_epsilons(given, found)

    def plot(self, ax: Any = None, label: str | None = None, rtol: float = 1e-4) -> Any:
        """Draws :meth:`curve` at 41 deltas, from nearly delta(0) down to 1e-12.

        Guarantee: see :meth:`Curve.plot`, which also says what is certified between the points.

        Args:
            ax: matplotlib axes to draw on; new ones if absent.
            label: for the legend.
            rtol: wanted relative gap of each point, in (0, 1).

        Returns:
            The axes.

        Raises:
            ExtraError: matplotlib is not installed.
            PrecisionError: the gap cannot be reached at some point.
        """
        rtol = _rtol(rtol)
        whole = _NEARLY * self._ask(_delta_at(0.0), rtol).bounds.lower
        # where less than the last delta is there, epsilon is 0 at all of them
        first = whole if whole > _LAST_DRAWN else _NEARLY
        deltas = [float(f"{x:.2g}") for x in np.geomspace(first, _LAST_DRAWN, _DRAWN)]
        return self.curve(deltas=deltas, rtol=rtol).plot(ax=ax, label=label)

    def tradeoff(
        self, false_positive_rates: Sequence[float] | FloatArray, rtol: float = 1e-4
    ) -> tuple[Bounds, ...]:
        """Bounds the least false-negative rate of any test, for each false-positive rate (f-DP).

        Guarantee: the exact trade-off function (the smaller of the two directions') lies
        inside. Source: Dong, Roth, Su 2022.

        Args:
            false_positive_rates: (n,) in [0, 1].
            rtol: wanted absolute gap of each rate, in (0, 1).

        Returns:
            (n,) bounds, in the order of ``false_positive_rates``.

        Raises:
            ParameterError: no list was given, or one of its values is refused.
            PrecisionError: the gap cannot be reached.
        """
        listed(false_positive_rates=false_positive_rates)
        rates = [
            probability(**{f"false_positive_rates[{i}]": a})
            for i, a in enumerate(false_positive_rates)
        ]
        rtol = _rtol(rtol)
        return tuple(self._false_negatives(rate, rtol).required() for rate in rates)

    def _false_negatives(self, fpr: float, atol: float) -> Answer:
        """Answers for the least false-negative rate of a test, from both pairs if need be."""
        asked = Asked(words=words_of_false_negatives(fpr), gap=atol, absolute=True)
        return self._of_both(
            lambda engine, gap: least_false_negatives(engine, fpr, gap), asked, falling=True
        )[0]

    def renyi(self, order: float, rtol: float = 1e-4) -> Bounds:
        """Bounds the Renyi divergence of an order (nats), the larger of both directions.

        Guarantee: the exact divergence lies inside; it adds up over the runs. ``upper`` is
        inf if some output tells the neighbours apart for certain, or if no bound of a tail
        is known. Source: Mironov 2017.

        Args:
            order: > 1; inf gives the largest loss.
            rtol: wanted relative gap, in (0, 1).

        Raises:
            PrecisionError: the gap cannot be reached.
        """
        return self._renyi(_order(order), _rtol(rtol)).required()

    def risk(
        self,
        epsilon: float,
        *,
        fpr: float = 0.01,
        prior: float = 0.5,
        slack: float = 1e-10,
        rtol: float = 1e-4,
    ) -> Risk:
        """Bounds what an attacker can do: advantage, detection, wrong guesses, one Gaussian.

        Guarantee: see :class:`Risk`; all values are for the worse direction.

        Args:
            epsilon: >= 0, nats: beside delta(epsilon), how likely a larger loss is, and what
                that does to a belief.
            fpr: the false-positive rate of a test, in [0, 1].
            prior: the attacker's belief beforehand, in (0, 1).
            slack: the delta up to which ``mu`` bounds the curve, in [0, 1]; 0 asks for all of it.
            rtol: wanted relative gap, in (0, 1).

        Raises:
            PrecisionError: the gap cannot be reached for delta, advantage or true positives.
        """
        epsilon, fpr = non_negative(epsilon=epsilon), probability(fpr=fpr)
        prior, slack = open_probability(prior=prior), probability(slack=slack)
        rtol = _rtol(rtol)
        close = Promised(
            advantage=self.total_variation(rtol),
            tpr=self._true_positives(fpr, rtol).required(),
            delta=self._ask(_delta_at(epsilon), rtol).required(),
        )
        above = risk_of(self.engine, close, epsilon, fpr, prior, slack, rtol)
        if self.attained is None:
            return above
        below = risk_of(self.attained.engine, close, epsilon, fpr, prior, slack, rtol)
        return above.down_to(below, self.engine.reader(), rtol, self.apart)


def _delta_at(epsilon: float) -> DeltaAt:
    """The question of delta at an epsilon >= 0, which may be inf."""
    return DeltaAt(epsilon if epsilon == math.inf else non_negative(epsilon=epsilon))


def _order(value: float) -> float:
    """The order of a Renyi divergence, checked: a number > 1, or inf."""
    order = value if value == math.inf else finite(order=value)
    if not order > 1:
        raise refuse("order", "be > 1", order)
    return order


def _rtol(value: float) -> float:
    """A relative gap, checked: a number in (0, 1)."""
    rtol = positive(rtol=value)
    if not rtol < 1:
        raise refuse("rtol", "be in (0, 1)", value)
    return rtol
