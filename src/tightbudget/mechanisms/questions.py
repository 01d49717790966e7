"""The questions that a mechanism and a composition answer: epsilon, delta, curves, risk.

The answers come from an engine. A subclass of :class:`Questions` says which engine that is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from tightbudget.engine.answer import Answer
from tightbudget.engine.cache import Cache
from tightbudget.engine.engine import Engine, Explanation
from tightbudget.engine.question import DeltaAt, EpsilonAt, Question
from tightbudget.engine.readings.renyi import renyi_divergence
from tightbudget.engine.readings.tradeoff import least_false_negatives, most_true_positives
from tightbudget.errors import ParameterError
from tightbudget.mechanisms.curve import Curve
from tightbudget.mechanisms.risk import Risk, risk_of
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

__all__ = ["Questions"]


class Questions:
    """The base of what can be asked about its privacy: a mechanism, or a composition of many.

    All answers are for the worse of the two directions. ``rtol`` limits (upper - lower) / upper.

    Where no single pair is known to be the exact one (:attr:`attained` is not None), the upper
    bound is that of the dominating pair and the lower bound that of a pair which is attained.
    ``rtol`` then limits the error of each of the two, and the bounds lie as far apart as these
    pairs do.
    """

    @property
    def engine(self) -> Engine:
        """The engine that answers for the dominating pairs."""
        raise NotImplementedError

    @property
    def attained(self) -> Questions | None:
        """What concrete neighbouring data sets show to be no less revealing; None if all is exact.

        Guarantee: no upper bound of any proof is below the exact values of what is returned.
        """
        return None

    def epsilon(self, delta: float, rtol: float = 1e-4) -> Bounds:
        """Bounds the exact eps*(delta) = inf{eps >= 0: delta(eps) <= delta}, in nats.

        Guarantee: lower <= eps* <= upper, rounding included, and (upper - lower) <= rtol *
        upper (or <= 1e-12, where the losses themselves are known no better). ``upper`` is inf
        exactly if delta is not proved to reach the mass of outputs
        that tell the neighbours apart for certain.

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
        rtol * upper; unless upper is below 1e-290, or eps is the largest loss up to the
        rounding of the parameters (then upper - lower <= 1e-12).

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
        relative gap is at most ``rtol``, or, with a ``target``, whether both bounds are on one
        side of it: then they are no closer than that takes.

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
            rate = probability(fpr=fpr)
            wanted = target if self.attained is None else None
            return self._of_both(lambda engine: most_true_positives(engine, rate, rtol, wanted))
        assert order is not None
        return self._renyi(_order(order), rtol)

    def _ask(self, question: Question, rtol: float, target: float | None = None) -> Answer:
        """Answers for delta or epsilon, from both pairs where there are two."""
        # a pair that is on one side of the target says nothing of the other pair
        wanted = target if self.attained is None else None
        return self._of_both(lambda engine: engine.answer(question, rtol, wanted))

    def _renyi(self, order: float, rtol: float) -> Answer:
        """Answers for a Renyi divergence, from both pairs where there are two."""
        return self._of_both(lambda engine: renyi_divergence(engine.parts, order, rtol))

    def _of_both(self, ask: Callable[[Engine], Answer]) -> Answer:
        """Answers what rises with what a mechanism reveals, from both pairs where there are two."""
        above = ask(self.engine)
        if self.attained is None:
            return above
        return above.down_to(ask(self.attained.engine))  # guard: lower-bound-attained

    def explain(
        self, *, delta: float | None = None, epsilon: float | None = None, rtol: float = 1e-4
    ) -> Explanation:
        """Says which engine answers :meth:`epsilon` or :meth:`delta`, and with what.

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
        above = self.engine.explain(question, _rtol(rtol))
        if self.attained is None:
            return above
        return above.down_to(self.attained.engine.explain(question, _rtol(rtol)))

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
            raise ParameterError("give exactly one of epsilons and deltas")
        rtol = _rtol(rtol)
        caches: dict[int, Cache] = {}  # one point's work often answers the next one

        def ask(question: Question) -> Bounds:
            def answer(engine: Engine) -> Answer:
                return engine.answer(question, rtol, cache=caches.setdefault(id(engine), Cache()))

            return self._of_both(answer).required()

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
        least = [least_false_negatives(self.engine, a, rtol).required() for a in rates]
        if self.attained is None:
            return tuple(least)
        most = [least_false_negatives(self.attained.engine, a, rtol).required() for a in rates]
        return tuple(Bounds(a.lower, b.upper) for a, b in zip(least, most, strict=True))

    def renyi(self, order: float, rtol: float = 1e-4) -> Bounds:
        """Bounds the Renyi divergence of an order (nats), the larger of both directions.

        Guarantee: the exact divergence lies inside; it adds up over the runs. ``upper`` is
        inf if some output tells the neighbours apart for certain, or if no bound of a tail
        is known. Source: Mironov 2017.

        Args:
            order: > 1; inf gives the largest loss.
            rtol: wanted relative gap, in (0, 1).
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
        asked = (
            non_negative(epsilon=epsilon),
            probability(fpr=fpr),
            open_probability(prior=prior),
            probability(slack=slack),
            _rtol(rtol),
        )
        above = risk_of(self.engine, *asked)
        if self.attained is None:
            return above
        return above.down_to(risk_of(self.attained.engine, *asked), self.engine.reader())


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
