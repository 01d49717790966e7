"""The value a user holds: mechanisms with their numbers of runs, and what they cost."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tightbudget.engine.engine import Explanation, Losses, Memory
from tightbudget.engine.readings.renyi import renyi_bounds
from tightbudget.engine.readings.tradeoff import tradeoff_bounds, true_positive_bounds
from tightbudget.errors import FileError, ParameterError, PrecisionError, RelationError
from tightbudget.mechanisms.curve import Curve
from tightbudget.mechanisms.describe import from_description, to_description
from tightbudget.mechanisms.mechanism import Composable, Mechanism, Neighbouring
from tightbudget.mechanisms.risk import Risk, risk_of
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.validate import (
    count,
    finite,
    non_negative,
    open_probability,
    positive,
    probability,
    refuse,
)
from tightbudget.pairs.pair import Direction

if TYPE_CHECKING:
    from tightbudget.accounting.compare import Comparison

__all__ = ["Composition", "compose"]

_VERSION = 1


@dataclass(frozen=True)
class Composition(Composable):
    """Independent runs of mechanisms, also adaptively chosen ones of these pairs.

    Immutable. Built with ``*``, ``+`` and :func:`compose`; equal mechanisms are counted, so
    ``(m * 2 + m) == m * 3``. All answers are for the worse of the two directions, and one
    direction holds for all steps. ``rtol`` limits (upper - lower) / upper.

    Attributes:
        steps: the mechanisms with their numbers of runs, in order of first appearance.

    Raises:
        RelationError: mechanisms were declared for different neighbouring relations.
    """

    steps: tuple[tuple[Mechanism, int], ...] = ()

    def __post_init__(self) -> None:
        counted: dict[Mechanism, int] = {}
        for mechanism, runs in self.steps:
            if not isinstance(mechanism, Mechanism):
                raise refuse("mechanism", "be a tightbudget mechanism", mechanism)
            counted[mechanism] = counted.get(mechanism, 0) + count(times=runs)
        kept = tuple((m, k) for m, k in counted.items() if k)
        object.__setattr__(self, "steps", kept)
        declared = [m.relation for m, _ in kept if m.relation is not None]
        for other in declared[1:]:
            if other is not declared[0]:
                raise RelationError(
                    f"mechanisms declared for {declared[0]} and for {other} do not compose"
                )

    def parts(self) -> Iterator[tuple[Mechanism, int]]:
        """The mechanisms with their numbers of runs."""
        return iter(self.steps)

    def __mul__(self, times: int) -> Composition:
        k = count(times=times)
        return Composition(tuple((m, k * runs) for m, runs in self.steps))

    __rmul__ = __mul__

    @property
    def runs(self) -> int:
        """How many mechanisms run in all."""
        return sum(k for _, k in self.steps)

    @property
    def relation(self) -> Neighbouring | None:
        """The neighbouring relation that some step was declared for, or None."""
        return next((m.relation for m, _ in self.steps if m.relation is not None), None)

    @functools.cached_property
    def _losses(self) -> Losses:
        return Losses.of(self.steps)

    def _in_both_orders(self, direction: Direction) -> Composition | None:
        """One direction's pairs, with their reverses in the place of the other direction's.

        A theorem on (eps, delta)-DP wants one pair in both orders: for the bound of a direction
        it is asked about this composition. It is the same one where every step
        :meth:`~tightbudget.Mechanism.is_mutual`.

        Returns:
            The composition, or None where a step's reverse is not known.
        """
        steps = [(mechanism.in_both_orders(direction), runs) for mechanism, runs in self.steps]
        if any(mechanism is None for mechanism, _ in steps):
            return None
        return Composition(tuple((m, k) for m, k in steps if m is not None))

    def epsilon(self, delta: float, rtol: float = 1e-4) -> Bounds:
        """The exact eps*(delta) = inf{eps >= 0: delta(eps) <= delta}, between two ends.

        Guarantee: lower <= eps* <= upper, rounding included, and (upper - lower) <= rtol *
        upper (or <= 1e-12, where the losses themselves are known no better). ``upper`` is inf
        exactly if delta is not proved to reach the mass of outputs
        that tell the neighbours apart for certain.

        Args:
            delta: in [0, 1].
            rtol: wanted relative gap, in (0, 1).

        Raises:
            PrecisionError: the gap cannot be reached; says which one was.
        """
        return self._losses.epsilon(probability(delta=delta), _rtol(rtol))

    def delta(self, epsilon: float, rtol: float = 1e-4) -> Bounds:
        """The exact delta(eps) of the composition, between two ends.

        Guarantee: lower <= delta(eps) <= upper, rounding included, and (upper - lower) <=
        rtol * upper; unless upper is below 1e-290, or eps is the largest loss up to the
        rounding of the parameters (then upper - lower <= 1e-12).

        Args:
            epsilon: >= 0, nats; inf is allowed.
            rtol: wanted relative gap, in (0, 1).

        Raises:
            PrecisionError: the gap cannot be reached; says which one was.
        """
        rtol = _rtol(rtol)
        if epsilon == math.inf:
            ends = [steps.infinity for steps in self._losses.steps]
            return Bounds(max(e.lower for e in ends), max(e.upper for e in ends))
        return self._losses.delta(non_negative(epsilon=epsilon), rtol)

    def _delta_against(self, epsilon: float, target: float | None, rtol: float) -> Bounds:
        """Bounds of delta(epsilon), no closer than it takes to compare them with a target."""
        try:
            return self._losses.delta(epsilon, rtol, target)
        except PrecisionError as error:  # wide bounds are bounds
            return Bounds(error.lower, error.upper)

    def _tpr_against(self, fpr: float, target: float | None, rtol: float) -> Bounds:
        """Likewise for the true-positive rate at a false-positive rate."""
        try:
            return true_positive_bounds(self._losses, fpr, rtol, target)
        except PrecisionError as error:
            return Bounds(error.lower, error.upper)

    def explain(
        self, *, delta: float | None = None, epsilon: float | None = None, rtol: float = 1e-4
    ) -> Explanation:
        """Which engine answers :meth:`epsilon` (or :meth:`delta`), and with what; give one of both.

        Raises:
            ParameterError: not exactly one question was asked, or its value is refused.
            PrecisionError: the gap cannot be reached; says which one was.
        """
        if (epsilon is None) == (delta is None):
            raise ParameterError("give exactly one of delta and epsilon")
        if delta is not None:
            return self._losses.explain(None, probability(delta=delta), _rtol(rtol))
        return self._losses.explain(non_negative(epsilon=epsilon), None, _rtol(rtol))

    def total_variation(self, rtol: float = 1e-4) -> Bounds:
        """delta(0): the best advantage of an attacker who must tell the neighbours apart."""
        return self.delta(0.0, rtol)

    def curve(
        self,
        epsilons: Sequence[float] | FloatArray | None = None,
        deltas: Sequence[float] | FloatArray | None = None,
        rtol: float = 1e-4,
        progress: Callable[[list[float]], Iterable[float]] = iter,
    ) -> Curve:
        """delta at many eps, or eps at many delta: give exactly one of the two lists.

        ``progress`` wraps the list while it is answered (a progress bar).

        Guarantee: each point has the guarantee of :meth:`delta` or :meth:`epsilon`.
        """
        if (epsilons is None) == (deltas is None):
            raise ParameterError("give exactly one of epsilons and deltas")
        rtol, memory = _rtol(rtol), Memory()  # one point's work often answers the next one
        if epsilons is not None:
            eps = [non_negative(**{f"epsilons[{i}]": e}) for i, e in enumerate(epsilons)]
            found = [self._losses.delta(e, rtol, memory=memory) for e in progress(eps)]
            return Curve.of_deltas(eps, found)
        assert deltas is not None
        given = [probability(**{f"deltas[{i}]": d}) for i, d in enumerate(deltas)]
        found = [self._losses.epsilon(d, rtol, memory) for d in progress(given)]
        return Curve.of_epsilons(given, found)

    def tradeoff(
        self, false_positive_rates: Sequence[float] | FloatArray, rtol: float = 1e-4
    ) -> tuple[Bounds, ...]:
        """f-DP: the least false-negative rate of any test with these false-positive rates.

        Guarantee: the exact trade-off function (the smaller of the two directions') lies
        inside; ``rtol`` limits the absolute gap. Source: Dong, Roth, Su 2022.
        """
        rates = [
            probability(**{f"false_positive_rates[{i}]": a})
            for i, a in enumerate(false_positive_rates)
        ]
        return tuple(tradeoff_bounds(self._losses, a, _rtol(rtol)) for a in rates)

    def renyi(self, order: float, rtol: float = 1e-4) -> Bounds:
        """The Renyi divergence of the given order (nats), the larger of both directions.

        Guarantee: the exact divergence lies inside; it adds up over the steps. ``upper`` is
        inf if some output tells the neighbours apart for certain, or if no bound of a tail
        is known. Source: Mironov 2017.

        Args:
            order: > 1; inf gives the largest loss.
            rtol: wanted relative gap, in (0, 1).
        """
        if order != math.inf:
            order = finite(order=order)
            if not order > 1:
                raise refuse("order", "be > 1", order)
        return renyi_bounds(self._losses.steps, order, _rtol(rtol))

    def risk(
        self,
        epsilon: float,
        *,
        fpr: float = 0.01,
        prior: float = 0.5,
        slack: float = 1e-10,
        rtol: float = 1e-4,
    ) -> Risk:
        """What an attacker can do: advantage, detection, wrong guesses, a Gaussian as revealing.

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
        return risk_of(
            self._losses,
            non_negative(epsilon=epsilon),
            probability(fpr=fpr),
            open_probability(prior=prior),
            probability(slack=slack),
            _rtol(rtol),
        )

    def compare(
        self, *, delta: float | None = None, epsilon: float | None = None, rtol: float = 1e-4
    ) -> Comparison:
        """Our bounds beside those of other people's theorems: see :func:`tightbudget.compare`."""
        from tightbudget.accounting.compare import compare

        return compare(self, delta=delta, epsilon=epsilon, rtol=rtol)

    def to_json(self) -> str:
        """A versioned JSON text from which :meth:`from_json` builds the same value."""
        steps = [{**to_description(m), "times": k} for m, k in self.steps]
        return json.dumps({"tightbudget": _VERSION, "steps": steps}, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Composition:
        """The composition that :meth:`to_json` wrote.

        Raises:
            FileError: not JSON, another version, or not a composition.
            ParameterError: a parameter is refused.
        """
        try:
            content = json.loads(text)
        except (TypeError, ValueError) as error:
            raise FileError(f"not JSON: {error}") from error
        if not isinstance(content, dict) or content.get("tightbudget") != _VERSION:
            raise FileError(f'no composition: expected {{"tightbudget": {_VERSION}, "steps": []}}')
        return from_steps(content.get("steps"))

    def __str__(self) -> str:
        return " + ".join(f"{m} * {k}" for m, k in self.steps) or "nothing"


def from_steps(steps: Any) -> Composition:
    """A composition from a list of descriptions with ``times`` (JSON, TOML)."""
    if not isinstance(steps, list):
        raise FileError(f"steps must be a list, got {steps!r}")
    parts = []
    for i, step in enumerate(steps):
        if not isinstance(step, dict):
            raise FileError(f"steps[{i}] must be a table, got {step!r}")
        table = dict(step)
        times = count(**{f"steps[{i}].times": table.pop("times", 1)})
        try:
            parts.append((from_description(table, where=f"steps[{i}]"), times))
        except (ParameterError, RelationError) as error:
            raise type(error)(f"steps[{i}]: {error}") from error
    return Composition(tuple(parts))


def compose(mechanisms: Iterable[Composable]) -> Composition:
    """Everything in the list together: ``compose([a, b, a]) == a * 2 + b``.

    Raises:
        ParameterError: an entry is not a mechanism or composition.
        RelationError: entries were declared for different neighbouring relations.
    """
    steps: list[tuple[Mechanism, int]] = []
    for i, entry in enumerate(mechanisms):
        if not isinstance(entry, Composable):
            raise refuse(f"mechanisms[{i}]", "be a mechanism or a composition", entry)
        steps.extend(entry.parts())
    return Composition(tuple(steps))


def _rtol(value: float) -> float:
    rtol = positive(rtol=value)
    if not rtol < 1:
        raise refuse("rtol", "be in (0, 1)", value)
    return rtol


Composable._composition = Composition
