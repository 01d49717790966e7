"""The values a user holds: a mechanism, runs of many together, and what they cost.

A :class:`Mechanism` offers, for each :class:`~tightbudget.Direction`, a pair (P, Q) of
distributions that dominates it. A :class:`Composition` counts how often each one runs, and
answers for all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tightbudget import notebook
from tightbudget.engine.answer import Answer
from tightbudget.engine.cache import Cache
from tightbudget.engine.engine import Engine, Explanation
from tightbudget.engine.question import DeltaAt, EpsilonAt, Question
from tightbudget.engine.readings.renyi import renyi_divergence
from tightbudget.engine.readings.tradeoff import least_false_negatives, most_true_positives
from tightbudget.errors import FileError, ParameterError, RelationError
from tightbudget.mechanisms.curve import Curve
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.mechanisms.risk import Risk, risk_of
from tightbudget.mechanisms.subsampled import AddPair, RemovePair
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.enclosure import exact
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
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.pair import Direction, Pair

__all__ = ["MECHANISMS", "Composable", "Composition", "Mechanism", "Subsampled", "compose"]

_VERSION = 1

# The numbers of entries of a parameter, and of parts of a composition, that repr shows: a line or
# two of a terminal.
_SHOWN_ENTRIES, _SHOWN_PARTS = 6, 6

# by kind: the name in JSON, in plan files and on the command line
MECHANISMS: dict[str, type[Mechanism]] = {}


class Composable:
    """The base of mechanisms and of their compositions, which ``*``, ``+`` and ``compose`` take."""

    @property
    def parts(self) -> tuple[tuple[Mechanism, int], ...]:
        """The mechanisms, each with the number of its runs, in order of first appearance."""
        raise NotImplementedError

    def __mul__(self, times: int) -> Composition:
        k = count(times=times)
        return Composition(tuple((mechanism, k * runs) for mechanism, runs in self.parts))

    __rmul__ = __mul__

    def __add__(self, other: Composable) -> Composition:
        if not isinstance(other, Composable):
            return NotImplemented
        return Composition((*self.parts, *other.parts))


@dataclass(frozen=True)
class Mechanism(Composable):
    """A randomised mechanism, described by the pair of distributions that is worst for it.

    Frozen, compared and hashed by content. ``relation`` is the neighbouring relation that
    its sensitivity (or pair) was stated for; None means that the caller's sensitivity
    carries it, and composes with everything. (kw-only in every subclass.)
    """

    relation: Neighbouring | None = dataclasses.field(default=None, kw_only=True)

    kind: ClassVar[str] = ""  # the name in JSON, plan files and on the command line
    # both directions have the same delta, so that one of them is asked. True is a claim that a
    # subclass has to prove; with False both are asked, which is right for every mechanism
    symmetric: ClassVar[bool] = False
    # one direction's pair is the other's with P and Q exchanged
    mutual: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__repr__" not in vars(cls):  # or dataclass would write one, with all defaults
            cls.__repr__ = Mechanism.__repr__  # type: ignore[method-assign]
        if cls.kind:
            MECHANISMS[cls.kind] = cls

    def __post_init__(self) -> None:
        if self.relation is not None and not isinstance(self.relation, Neighbouring):
            raise ParameterError(f"relation must be a Neighbouring or None, got {self.relation!r}")

    def _set(self, **values: object) -> None:
        # how a frozen value stores its validated parameters
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def pair(self, direction: Direction) -> Pair:
        """The dominating pair for this direction."""
        raise NotImplementedError

    def is_symmetric(self) -> bool:
        """True if delta(eps) is proved to be the same in both directions."""
        return self.symmetric  # guard: both-directions-asked

    def is_mutual(self) -> bool:
        """True if the pair of one direction is that of the other with P and Q exchanged.

        Then an (eps, delta) that holds in both directions holds for each pair in both orders,
        which theorems on (eps, delta)-DP take for granted.
        """
        return self.mutual

    def in_both_orders(self, direction: Direction) -> Mechanism | None:
        """The mechanism whose two directions are this direction's pair and that pair reversed.

        Returns:
            ``self`` where :meth:`is_mutual` holds; None where the reverse is not known.
        """
        if self.is_mutual():  # guard: pair-taken-reverse
            return self
        if self.pair(direction).reversed() is None:
            return None
        return _InBothOrders(self, direction, relation=self.relation)

    @property
    def parts(self) -> tuple[tuple[Mechanism, int], ...]:
        return ((self, 1),)

    def under(self, relation: Neighbouring) -> Mechanism:
        """This mechanism, declared for a neighbouring relation.

        Raises:
            RelationError: it was already declared for another one.
        """
        if self.relation not in (None, relation):
            raise RelationError(
                f"{self!r} was declared for {self.relation} and cannot be declared for {relation}"
            )
        return dataclasses.replace(self, relation=relation)

    def subsampled(self, rate: float) -> Mechanism:
        """This mechanism on a Poisson sample: each record is in it with probability ``rate``.

        Holds for ``Neighbouring.ADD_OR_REMOVE``; see :class:`tightbudget.Subsampled`.
        """
        return Subsampled(self, rate)

    def __repr__(self) -> str:
        """Writes the call that makes this mechanism, without defaults; long lists are cut."""
        given = [f"{name}={_short(value)}" for name, value in self.parameters().items()]
        if self.relation is not None:
            given.append(f"relation={self.relation}")
        return f"{type(self).__name__}({', '.join(given)})"

    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON values (without relation and defaults)."""
        given: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "relation" or not field.init or value == field.default:
                continue
            given[field.name] = value
        return given

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: ``{"mechanism": kind, parameters..., "relation": ...}``.

        Sampling is the ``rate`` of its base; nested sampling nests in ``base``.
        """
        table = {"mechanism": self.kind, **self.parameters()}
        if self.relation is not None:
            table["relation"] = self.relation.value
        return table

    @staticmethod
    def from_dict(table: dict[str, Any], where: str = "step") -> Mechanism:
        """The mechanism that :meth:`to_dict` wrote.

        Args:
            table: its kind and its parameters by name.
            where: what a refusal calls the table.

        Raises:
            FileError: no or an unknown mechanism, an unknown or missing parameter.
            ParameterError: a parameter's value is refused.
        """
        table = dict(table)
        kind = table.pop("mechanism", None)
        if not isinstance(kind, str) or kind not in MECHANISMS:
            known = ", ".join(sorted(MECHANISMS))
            raise FileError(f"{where}.mechanism must be one of {known}, got {kind!r}")
        rate = table.pop("rate", None)
        if kind == "subsampled":
            base = table.pop("base", None)
            if not isinstance(base, dict) or rate is None or table:
                raise FileError(f"{where}: {kind} needs base (a table) and rate, and nothing else")
            return Mechanism.from_dict(base, f"{where}.base").subsampled(rate)
        relation = table.pop("relation", None)
        names = {r.value: r for r in Neighbouring}
        if relation is not None and (not isinstance(relation, str) or relation not in names):
            raise FileError(f"{where}.relation must be one of {', '.join(names)}, got {relation!r}")
        cls = MECHANISMS[kind]
        signature = inspect.signature(cls)
        for name in table:
            if name not in signature.parameters:
                accepted = ", ".join(n for n in signature.parameters if n != "relation")
                raise FileError(f"{where}: {kind} has no parameter {name!r} (it has {accepted})")
        for name, parameter in signature.parameters.items():
            if parameter.default is inspect.Parameter.empty and name not in table:
                raise FileError(f"{where}: {kind} needs {name}")
        mechanism = cls(**table, relation=names[relation] if relation is not None else None)
        return mechanism if rate is None else mechanism.subsampled(rate)


@dataclass(frozen=True)
class Subsampled(Mechanism):
    """Runs ``base`` on a random subset that contains each record with probability ``rate``.

    Guarantee: holds for neighbours that differ by the presence of one record
    (``Neighbouring.ADD_OR_REMOVE``), in both directions, tracked separately; the base's
    pair must be stated for the same relation (record present against absent). A base that is
    declared for ``Neighbouring.ZERO_OUT`` must take a zeroed record for an absent one, as sums do.
    Source: Zhu, Dong, Wang 2022 (dominating pairs), Theorem 11.

    Args:
        base: any mechanism.
        rate: the sampling rate q in [0, 1].

    Raises:
        ParameterError: ``rate`` is not 0 or in [1e-100, 1], or ``base`` is not a mechanism.
        RelationError: ``base`` was declared for another relation.
    """

    base: Mechanism
    rate: float

    kind: ClassVar[str] = "subsampled"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.base, Mechanism):
            raise ParameterError(f"base must be a mechanism, got {self.base!r}")
        rate = probability(rate=self.rate)
        if 0 < rate < 1e-100:
            raise refuse("rate", "be 0 or in [1e-100, 1]", self.rate)
        self._set(rate=rate)
        declared = self.base.relation or Neighbouring.ADD_OR_REMOVE
        for relation in (self.relation or declared, declared):
            if relation is not declared or relation is Neighbouring.REPLACE_ONE:
                raise RelationError(
                    f"Poisson subsampling holds for {Neighbouring.ADD_OR_REMOVE} (or "
                    f"{Neighbouring.ZERO_OUT}, if the base is declared for it), "
                    f"but {relation} was declared"
                )
        self._set(relation=declared)

    def is_symmetric(self) -> bool:
        return self.rate in (0.0, 1.0) and self.base.is_symmetric()

    def is_mutual(self) -> bool:
        return self.rate == 0.0 or self.base.is_mutual()

    def pair(self, direction: Direction) -> Pair:
        base = self.base.pair(direction)
        if self.rate == 1.0:
            return base
        if self.rate == 0.0:
            return AtomicPair.from_masses(exact(1.0), exact(1.0))
        # guard: direction-record-removed
        return (RemovePair if direction is Direction.REMOVE else AddPair)(base, self.rate)

    def __repr__(self) -> str:
        return f"{self.base!r}.subsampled({self.rate!r})"

    def parameters(self) -> dict[str, Any]:
        return {"rate": self.rate}

    def to_dict(self) -> dict[str, Any]:
        base = self.base.to_dict()
        nested = "rate" in base
        table = {"mechanism": self.kind, "base": base} if nested else base
        return {**table, "rate": self.rate}


@dataclass(frozen=True)
class _InBothOrders(Mechanism):
    """A mechanism of two orders: one direction's pair of a base, and in the other its reverse."""

    base: Mechanism
    direction: Direction

    mutual: ClassVar[bool] = True

    def __repr__(self) -> str:
        return f"{self.base!r}.in_both_orders({self.direction})"

    def pair(self, direction: Direction) -> Pair:
        pair = self.base.pair(self.direction)
        if direction is self.direction:
            return pair
        reverse = pair.reversed()
        assert reverse is not None  # in_both_orders has seen to it
        return reverse


@dataclass(frozen=True, repr=False)
class Composition(Composable):
    """Independent runs of mechanisms, also adaptively chosen ones of these pairs.

    Immutable. Built with ``*``, ``+`` and :func:`compose`; equal mechanisms are counted, so
    ``(m * 2 + m) == m * 3``. All answers are for the worse of the two directions, and one
    direction holds for all parts. ``rtol`` limits (upper - lower) / upper.

    Attributes:
        parts: the mechanisms, each with the number of its runs, in order of first appearance.

    Raises:
        RelationError: mechanisms were declared for different neighbouring relations.
    """

    parts: tuple[tuple[Mechanism, int], ...] = ()

    def __post_init__(self) -> None:
        counted: dict[Mechanism, int] = {}
        for mechanism, runs in self.parts:
            if not isinstance(mechanism, Mechanism):
                raise refuse("mechanism", "be a tightbudget mechanism", mechanism)
            counted[mechanism] = counted.get(mechanism, 0) + count(times=runs)
        kept = tuple((m, k) for m, k in counted.items() if k)
        object.__setattr__(self, "parts", kept)
        declared = [m.relation for m, _ in kept if m.relation is not None]
        for other in declared[1:]:
            if other is not declared[0]:
                raise RelationError(
                    f"mechanisms declared for {declared[0]} and for {other} do not compose"
                )

    @property
    def runs(self) -> int:
        """The number of runs of all mechanisms together."""
        return sum(k for _, k in self.parts)

    @property
    def relation(self) -> Neighbouring | None:
        """The neighbouring relation that some part was declared for, or None."""
        return next((m.relation for m, _ in self.parts if m.relation is not None), None)

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions to look at: one where delta(eps) is the same in both."""
        symmetric = all(mechanism.is_symmetric() for mechanism, _ in self.parts)
        return (Direction.REMOVE,) if symmetric else tuple(Direction)

    def pairs(self, direction: Direction) -> tuple[tuple[Pair, int], ...]:
        """Each mechanism's dominating pair for this direction, with its number of runs."""
        return tuple((mechanism.pair(direction), runs) for mechanism, runs in self.parts)

    @functools.cached_property
    def engine(self) -> Engine:
        """The engine that answers."""
        return Engine.of({direction: self.pairs(direction) for direction in self.directions})

    def _in_both_orders(self, direction: Direction) -> Composition | None:
        """One direction's pairs, with their reverses in the place of the other direction's.

        A theorem on (eps, delta)-DP wants one pair in both orders: for the bound of a direction
        it is asked about this composition. It is the same one where every part
        :meth:`~tightbudget.Mechanism.is_mutual`.

        Returns:
            The composition, or None where a part's reverse is not known.
        """
        parts = [(mechanism.in_both_orders(direction), runs) for mechanism, runs in self.parts]
        if any(mechanism is None for mechanism, _ in parts):
            return None
        return Composition(tuple((m, k) for m, k in parts if m is not None))

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
        return self.engine.answer(EpsilonAt(probability(delta=delta)), _rtol(rtol)).required()

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
        return self.engine.answer(_delta_at(epsilon), _rtol(rtol)).required()

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
        """The bounds of one number, whether or not they are as close as asked: never a refusal.

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
            return self.engine.answer(EpsilonAt(probability(delta=delta)), rtol, target)
        if epsilon is not None:
            return self.engine.answer(_delta_at(epsilon), rtol, target)
        if fpr is not None:
            return most_true_positives(self.engine, probability(fpr=fpr), rtol, target)
        assert order is not None
        return renyi_divergence(self.engine.parts, _order(order), rtol)

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
            return self.engine.explain(EpsilonAt(probability(delta=delta)), _rtol(rtol))
        return self.engine.explain(DeltaAt(non_negative(epsilon=epsilon)), _rtol(rtol))

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
        rtol, cache = _rtol(rtol), Cache()  # one point's work often answers the next one

        def ask(question: Question) -> Bounds:
            return self.engine.answer(question, rtol, cache=cache).required()

        if epsilons is not None:
            eps = [non_negative(**{f"epsilons[{i}]": e}) for i, e in enumerate(epsilons)]
            found = [ask(DeltaAt(e)) for e in progress(eps)]
            return Curve.of_deltas(eps, found)
        assert deltas is not None
        given = [probability(**{f"deltas[{i}]": d}) for i, d in enumerate(deltas)]
        found = [ask(EpsilonAt(d)) for d in progress(given)]
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
        rtol = _rtol(rtol)
        return tuple(least_false_negatives(self.engine, a, rtol).required() for a in rates)

    def renyi(self, order: float, rtol: float = 1e-4) -> Bounds:
        """The Renyi divergence of the given order (nats), the larger of both directions.

        Guarantee: the exact divergence lies inside; it adds up over the steps. ``upper`` is
        inf if some output tells the neighbours apart for certain, or if no bound of a tail
        is known. Source: Mironov 2017.

        Args:
            order: > 1; inf gives the largest loss.
            rtol: wanted relative gap, in (0, 1).
        """
        return renyi_divergence(self.engine.parts, _order(order), _rtol(rtol)).required()

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
        return risk_of(
            self.engine,
            non_negative(epsilon=epsilon),
            probability(fpr=fpr),
            open_probability(prior=prior),
            probability(slack=slack),
            _rtol(rtol),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, with a version, from which :meth:`from_dict` builds the same value."""
        steps = [{**m.to_dict(), "times": k} for m, k in self.parts]
        return {"tightbudget": _VERSION, "steps": steps}

    @staticmethod
    def from_dict(content: Any) -> Composition:
        """The composition that :meth:`to_dict` wrote.

        Raises:
            FileError: another version, or not a composition.
            ParameterError: a parameter is refused.
        """
        if not isinstance(content, dict) or content.get("tightbudget") != _VERSION:
            raise FileError(f'no composition: expected {{"tightbudget": {_VERSION}, "steps": []}}')
        return from_steps(content.get("steps"))

    def to_json(self) -> str:
        """The JSON text of :meth:`to_dict`."""
        return json.dumps(self.to_dict(), allow_nan=False)

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
        return Composition.from_dict(content)

    def __str__(self) -> str:
        return " + ".join(f"{m} * {k}" for m, k in self.parts) or "nothing"

    def __repr__(self) -> str:
        """Writes the sum that makes this composition; of many parts the first ones."""
        if not self.parts:
            return "Composition()"
        shown = Composition(self.parts[:_SHOWN_PARTS])
        more = len(self.parts) - _SHOWN_PARTS
        return str(shown) + f" + ... ({more} more mechanisms)" * (more > 0)

    def _repr_html_(self) -> str:
        """Writes a table of the mechanisms and their runs, for a notebook."""
        most = notebook.MOST_ROWS
        rows: list[tuple[object, ...]] = [(m, f"{k:,}") for m, k in self.parts[:most]]
        if len(self.parts) > most:
            left = Composition(self.parts[most:])
            rows.append((notebook.muted(f"{len(left.parts):,} more"), f"{left.runs:,}"))
        if len(self.parts) != 1:
            rows.append(("together", f"{self.runs:,}"))
        under = notebook.muted(f"neighbours: {self.relation.value}" if self.relation else "")
        return notebook.shown(notebook.table(rows, head=("mechanism", "runs")), under)


def _short(value: object) -> str:
    """Writes a parameter's value; of a long list the first entries and their number."""
    if not isinstance(value, (list, tuple)):
        return repr(value)
    cut = len(value) > _SHOWN_ENTRIES
    entries = [_short(entry) for entry in value[: 3 if cut else None]]
    if cut:
        entries.append(f"... {len(value)} in all")
    text = ", ".join(entries)
    return f"[{text}]" if isinstance(value, list) else f"({text}{',' * (len(value) == 1)})"


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
            parts.append((Mechanism.from_dict(table, where=f"steps[{i}]"), times))
        except (ParameterError, RelationError) as error:
            raise type(error)(f"steps[{i}]: {error}") from error
    return Composition(tuple(parts))


def compose(mechanisms: Iterable[Composable]) -> Composition:
    """Everything in the list together: ``compose([a, b, a]) == a * 2 + b``.

    Raises:
        ParameterError: an entry is not a mechanism or composition.
        RelationError: entries were declared for different neighbouring relations.
    """
    parts: list[tuple[Mechanism, int]] = []
    for i, entry in enumerate(mechanisms):
        if not isinstance(entry, Composable):
            raise refuse(f"mechanisms[{i}]", "be a mechanism or a composition", entry)
        parts.extend(entry.parts)
    return Composition(tuple(parts))


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
    rtol = positive(rtol=value)
    if not rtol < 1:
        raise refuse("rtol", "be in (0, 1)", value)
    return rtol
