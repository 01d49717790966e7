"""The values a user holds: a mechanism, runs of many together, and what they cost.

A :class:`Mechanism` offers, for each :class:`~tightbudget.mechanisms.Direction`, a pair (P, Q) of
distributions that dominates it. A :class:`Composition` counts how often each one runs, and
answers for all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tightbudget import notebook
from tightbudget.engine.answer import Answer
from tightbudget.engine.engine import Engine
from tightbudget.engine.question import EpsilonAt, Question
from tightbudget.errors import FileError, ParameterError, RelationError
from tightbudget.mechanisms.codec import MEANT, mechanism_of, parts_of, unknown_parameter
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.mechanisms.questions import MOST_HALVINGS, Questions
from tightbudget.mechanisms.second_order import upper_by_second_order
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import any_of
from tightbudget.numerics.validate import (
    count,
    refuse,
    renamed,
)
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

_VERSION = 1

# So many steps are those of a training, which rarely sees all records in each of them.
_MANY_STEPS = 1000
_MOST_RUNS = 10**100  # products of many more are above all doubles

# The numbers of entries of a parameter, and of parts of a composition, that repr shows: a line or
# two of a terminal.
_SHOWN_ENTRIES, _SHOWN_PARTS = 6, 6

# by kind: the name in JSON, in plan files and on the command line
MECHANISMS: dict[str, type[Mechanism]] = {}


class Composable(Questions):
    """The base of mechanisms and of their compositions, which ``*``, ``+`` and ``compose`` take."""

    @property
    def parts(self) -> tuple[tuple[Mechanism, int], ...]:
        """The mechanisms, each with the number of its runs, in order of first appearance."""
        raise NotImplementedError

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions to look at: one where delta(eps) is the same in both."""
        symmetric = all(mechanism.is_symmetric() for mechanism, _ in self.parts)
        return (Direction.REMOVE,) if symmetric else tuple(Direction)

    def pairs(self, direction: Direction) -> tuple[tuple[Pair, int], ...]:
        """Each mechanism's dominating pairs for this direction, with how often each one runs."""
        return tuple(
            pair
            for mechanism, runs in self.parts
            for pair in mechanism.pairs_of_runs(direction, runs)
        )

    @functools.cached_property
    def engine(self) -> Engine:
        """The engine that answers for the dominating pairs."""
        return Engine.of({direction: self.pairs(direction) for direction in self.directions})

    @functools.cached_property
    def attained(self) -> Composable | None:
        """The mechanisms with their instances in place of them; None if none of them has one."""
        return self._with_instances(strategy=True)

    @functools.cached_property
    def attained_early(self) -> Composable | None:
        """The mechanisms with instances that no later output decides; None if none has one."""
        return self._with_instances(strategy=False)

    @property
    def apart(self) -> str:
        each = [mechanism.apart_of_runs(runs) for mechanism, runs in self.parts]
        if sum(mechanism.strategic for mechanism, _ in self.parts) > 1:
            each.append("several choices of what runs next")
        return "; ".join(dict.fromkeys(said for said in each if said))

    @property
    def doubt(self) -> str:
        whole = sum(runs for mechanism, runs in self.parts if mechanism.often_sampled)
        if whole < _MANY_STEPS:
            return ""
        return f"no sampling rate: each of {whole:,} Gaussian runs sees all records; is that meant?"

    def by_formula(self, question: Question, rtol: float) -> Bounds | None:
        if isinstance(question, EpsilonAt) and self._surely_told > question.delta:
            return Bounds(math.inf, math.inf)
        if len(self.parts) != 1 or self.parts[0][0] is self:
            return None
        ((mechanism, runs),) = self.parts
        once = runs == 1  # guard: formula-of-one-run
        return mechanism.by_formula(question, rtol) if once else None

    @functools.cached_property
    def _surely_told(self) -> float:
        """A probability with which some output tells the neighbours apart, at the least.

        It is that of the parts whose pairs are exact alone, where pairs of other parts may take
        seconds to make: leaving those out is a post-processing.
        """
        exact = [
            part for part, below in zip(self.parts, self._instances, strict=True) if below is None
        ]
        if len(exact) == len(self.parts):
            return 0.0  # the engine asks each of them
        return max(
            any_of(
                [
                    (float(pair.p_only().lower[0]), each)
                    for mechanism, runs in exact
                    for pair, each in mechanism.pairs_of_runs(direction, runs)
                ],
                up=False,
            )
            for direction in self.directions
        )

    def upper_by_theorem(self, question: Question, known: Bounds) -> float:
        engine = self._above_in_second_order
        if engine is None:
            return math.inf
        near = known.lower if isinstance(question, EpsilonAt) else question.at(0.0)[0]
        return upper_by_second_order(engine, question, near)

    @functools.cached_property
    def _above_in_second_order(self) -> Engine | None:
        """The engine of pairs that are above the parts in second order; None without such pairs."""
        above = [(mechanism.second_order(), mechanism, runs) for mechanism, runs in self.parts]
        if all(pair is None for pair, _, _ in above):
            return None
        # a pair that dominates is above in second order, too
        return Engine.of(
            {
                direction: tuple(
                    one
                    for pair, mechanism, runs in above
                    for one in (
                        mechanism.pairs_of_runs(direction, runs) if pair is None else [(pair, runs)]
                    )
                )
                for direction in self.directions
            }
        )

    def _renyi(self, order: float, rtol: float) -> Answer:
        whole = self._worst_of_order(order)
        return super()._renyi(order, rtol) if whole is None else whole._renyi(order, rtol)

    @property
    def largest_loss_by(self) -> Questions | None:
        return self._worst_without_delta

    @functools.cached_property
    def _worst_without_delta(self) -> Composition | None:
        # the divergence of order inf is the largest loss
        return self._worst_of_order(math.inf)

    def _worst_of_order(self, order: float) -> Composition | None:
        """All parts, or what bounds this order in place of them; None where each part stays."""
        worst = [mechanism.worst_of_order(order) for mechanism, _ in self.parts]
        if all(mechanism is None for mechanism in worst):
            return None
        # divergences add up over a strategy, whose best choice is the same at every run
        return compose(
            (found or mechanism) * runs
            for found, (mechanism, runs) in zip(worst, self.parts, strict=True)
        )

    def finer(self, halvings: int) -> Composable:
        return compose(mechanism.finer(halvings) * runs for mechanism, runs in self.parts)

    @property
    def _most_halvings(self) -> int:
        most = [part.most_halvings(runs) for part, runs in self.parts if part.finer(1) is not part]
        return min(most, default=MOST_HALVINGS)

    @functools.cached_property
    def _instances(self) -> tuple[Composable | None, ...]:
        """The pairs that data sets attain by all runs of a part; None where its own are exact."""
        return tuple(mechanism.instance_of_runs(runs) for mechanism, runs in self.parts)

    def _with_instances(self, *, strategy: bool) -> Composable | None:
        # a strategy chooses after all else has run: the runs of one mechanism can be the last ones
        last = max(
            (part for part in self.parts if part[0].strategic),
            key=lambda part: part[0].weight * part[1],
            default=None,
        )
        instances = []
        for (mechanism, runs), below in zip(self.parts, self._instances, strict=True):
            comes_last = strategy and (mechanism, runs) == last  # guard: strategy-comes-last
            if mechanism.strategic and not comes_last:
                below = Mechanism.instance_of_runs(mechanism, runs)
            instances.append(below)
        if all(instance is None for instance in instances):
            return None
        # guard: instance-taken
        return compose(
            mechanism * runs if instance is None else instance
            for (mechanism, runs), instance in zip(self.parts, instances, strict=True)
        )

    def best_of(self, trials: Any) -> Mechanism:
        """Returns the best of a random number of runs of all this, the only one that is released.

        So hyperparameters are chosen; see :class:`tightbudget.mechanisms.BestOf`.

        Args:
            trials: the law of the number, such as ``tb.trials.Poisson(mean=20)``.
        """
        return _derived("best_of", self, trials)

    def __mul__(self, times: int) -> Composition:
        k = count(times=times)
        return Composition(tuple((mechanism, k * runs) for mechanism, runs in self.parts))

    __rmul__ = __mul__

    def __add__(self, other: Composable) -> Composition:
        if not isinstance(other, Composable):
            return NotImplemented
        return Composition((*self.parts, *other.parts))

    def __radd__(self, other: int) -> Composition:
        # sum([a, b, c]) begins with 0
        return Composition(self.parts) if type(other) is int and other == 0 else NotImplemented


@dataclass(frozen=True)
class Mechanism(Composable):
    """A randomised mechanism, described by the pair of distributions that is worst for it.

    Frozen, compared and hashed by content. ``relation`` is the neighbouring relation that
    its sensitivity (or pair) was stated for; None means that the caller's sensitivity
    carries it, and composes with everything. (kw-only in every subclass.)
    """

    relation: Neighbouring | None = dataclasses.field(default=None, kw_only=True)

    kind: ClassVar[str] = ""  # the name in JSON, plan files and on the command line
    key: ClassVar[str] = ""  # in the table of its base, for a mechanism that is made of another one
    # both directions have the same delta, so that one of them is asked. True is a claim that a
    # subclass has to prove; with False both are asked, which is right for every mechanism
    symmetric: ClassVar[bool] = False
    # one direction's pair is the other's with P and Q exchanged
    mutual: ClassVar[bool] = False
    # as an instance: attained by data in which all other records contribute nothing
    alone: ClassVar[bool] = False
    # one run has any of several pairs, and which one may be chosen after all else was seen
    strategic: ClassVar[bool] = False
    # many runs of it are mostly a training, whose steps see samples of the records
    often_sampled: ClassVar[bool] = False
    # what to write instead of a parameter that people expect here
    meant: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__repr__" not in vars(cls):  # or dataclass would write one, with all defaults
            cls.__repr__ = cls.__repr__  # type: ignore[method-assign]
        if vars(cls).get("kind"):  # a subclass without a name of its own takes no one else's
            MECHANISMS[cls.kind] = cls

    def __new__(cls, *args: Any, **named: Any) -> Self:
        # a dataclass would refuse an unknown name by itself, without saying what was meant
        for name in named:
            if name not in cls._accepted():
                raise ParameterError(unknown_parameter(cls, name))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if self.relation is not None:
            self._set(relation=Neighbouring.of(relation=self.relation))

    @classmethod
    def _accepted(cls) -> list[str]:
        """Names the parameters of the constructor, in order."""
        return [field.name for field in dataclasses.fields(cls) if field.init]

    @classmethod
    def hint(cls, name: str) -> str | None:
        """Says what to write instead of a parameter that people expect; None if nothing is known.

        Args:
            name: a parameter that the mechanism does not have.
        """
        return cls.meant.get(name) or MEANT.get(name)

    def _set(self, **values: object) -> None:
        # how a frozen value stores its validated parameters
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def pair(self, direction: Direction) -> Pair:
        """The dominating pair for this direction."""
        raise NotImplementedError

    def pair_in_sample(self, direction: Direction, rate: float) -> Pair:
        """The dominating pair of one run on a sample that has the record.

        Args:
            direction: which side of the pair has the record.
            rate: the chance of each other record to be in the sample, > 0.
        """
        return self.pair(direction)

    def pairs_of_run(self, direction: Direction) -> tuple[tuple[Pair, int], ...]:
        """Pairs, each with how often it runs, that together dominate one run in this direction.

        It is :meth:`pair` alone, unless a subclass knows several that are closer together.
        """
        return ((self.pair(direction), 1),)

    def pairs_of_runs(self, direction: Direction, runs: int) -> tuple[tuple[Pair, int], ...]:
        """Pairs, each with how often it runs, that together dominate so many adaptive runs."""
        return tuple((pair, each * runs) for pair, each in self.pairs_of_run(direction))

    def instance(self) -> Composable | None:
        """The mechanism that concrete neighbouring data sets attain, where that is not the pair.

        Guarantee: no bound that holds for the mechanism on all data sets, however it is proved and
        however often it runs, is below the exact value of what is returned. None where
        :meth:`pair` is itself the worst that can happen.
        """
        return None

    def instance_alone(self) -> Mechanism | None:
        """Returns what data sets attain in which the other records contribute 0, if it is known.

        Guarantee: as :meth:`instance`, whatever sample of the records takes part.
        """
        attained = self.instance()
        return attained if isinstance(attained, Mechanism) and attained.alone else None

    def instance_of_runs(self, runs: int) -> Composable | None:
        """Returns what concrete data sets attain by ``runs`` runs after all others.

        Guarantee: as :meth:`instance`. None where :meth:`pairs_of_runs` is itself the worst that
        can happen.
        """
        instance = self.instance()
        return None if instance is None else instance * runs

    @property
    def weight(self) -> float:
        """Weighs one run against those of another strategic mechanism; it decides width alone."""
        return 1.0

    def second_order(self) -> Pair | None:
        """A pair that is above one run in second order, in every direction; None where none is.

        Guarantee: E_Q[(R - k)+^2] of the pair, for R = dP / dQ, is at least that of any two
        neighbouring data sets in any order, at all k > 0. A mechanism offers it where that is
        closer than what :meth:`pair` says of all deltas.
        """
        return None

    @property
    def apart(self) -> str:
        """The way to draw records for which nobody knows the worst data sets; "" if there is none.

        Where it is "" and :meth:`instance` is not None, the two enclose an exact pair, and answers
        are as close as is asked, or refused.
        """
        return ""

    def apart_of_runs(self, runs: int) -> str:
        """Names what keeps the bounds of so many runs apart; "" where nothing does."""
        return self.apart

    def worst_of_order(self, order: float) -> Mechanism | None:
        """A mechanism whose Renyi divergences of an order bound this one's; None for itself.

        A strategic mechanism has a worst pair for each order. A pair that counts a small mass as a
        certain loss has none that is finite, and another one may have.

        Args:
            order: > 1; inf is allowed.
        """
        return None

    @property
    def apart_inside(self) -> str:
        """Names what keeps the bounds of a mechanism apart that is made of this one."""
        return self.apart

    def most_halvings(self, runs: int) -> int:
        """Says how often the distance of the pairs of so many runs is halved at most."""
        return MOST_HALVINGS

    def finer(self, halvings: int) -> Mechanism:
        """Returns this mechanism with pairs above and below an exact one that are closer together.

        Args:
            halvings: how often the distance of the two is halved, about; >= 1.
        """
        return self

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

    def under(self, relation: Neighbouring | str) -> Mechanism:
        """Returns this mechanism, declared for a neighbouring relation or for its name.

        Raises:
            ParameterError: ``relation`` is no relation.
            RelationError: it was already declared for another one.
        """
        relation = Neighbouring.of(relation=relation)
        if self.relation not in (None, relation):
            raise RelationError(
                f"{self!r} was declared for {self.relation} and cannot be declared for {relation}"
            )
        return dataclasses.replace(self, relation=relation)

    def subsampled(self, rate: float) -> Mechanism:
        """Returns this mechanism on a Poisson sample, with each record's chance ``rate`` to be in.

        Holds for ``Neighbouring.ADD_OR_REMOVE``; see :class:`tightbudget.Subsampled`.
        """
        return _derived("subsampled", self, rate)

    @renamed(times="each_in")
    def allocated(self, steps: int, each_in: int = 1) -> Mechanism:
        """Returns one epoch of ``steps`` runs of this mechanism, each record in a random one.

        Each record is in ``each_in`` of the runs, chosen uniformly and independently of the other
        records; see :class:`tightbudget.Allocated`.
        """
        return _derived("allocated", self, steps, each_in)

    def shuffled(self, steps: int, smaller: int = 0) -> Mechanism:
        """Returns one epoch of ``steps`` runs of this mechanism on the batches of a shuffle.

        The data are permuted and cut into batches, of which ``smaller`` have fewer records than the
        others, as a last batch may; see :class:`tightbudget.Shuffled`.
        """
        return _derived("shuffled", self, steps, smaller)

    def batches(
        self, batch: int, of: int, replacement: bool = False, sensitivity_of: str = "clip"
    ) -> Mechanism:
        """Returns this mechanism on a random batch of exactly ``batch`` out of ``of`` records.

        See :class:`tightbudget.Batches`.
        """
        return _derived("batches", self, batch, of, replacement, sensitivity_of)

    def truncated_poisson(self, rate: float, at_most: int, of: int) -> Mechanism:
        """Returns this mechanism on a Poisson sample of ``of`` records, cut to ``at_most`` of them.

        See :class:`tightbudget.TruncatedPoisson`.
        """
        return _derived("truncated_poisson", self, rate, at_most, of)

    def group(self, size: int) -> Mechanism:
        """Returns this mechanism for neighbours that differ by ``size`` records of one user."""
        return _derived("group", self, size)

    def __repr__(self) -> str:
        """Writes the call that makes this mechanism, without defaults; long lists are cut."""
        given = [f"{name}={_short(value)}" for name, value in self.parameters().items()]
        if self.relation is not None:
            given.append(f"relation={self.relation}")
        return f"{type(self).__name__}({', '.join(given)})"

    def parameters(self) -> dict[str, Any]:
        """Returns the constructor's arguments as JSON values, without relation and defaults."""
        given: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "relation" or not field.init or value == field.default:
                continue
            given[field.name] = value
        return given

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values: ``{"mechanism": kind, parameters..., "relation": ...}``.

        A sampled mechanism is its base's table with a key such as ``rate`` (:class:`Derived`).
        """
        table = {"mechanism": self.kind, **self.parameters()}
        if self.relation is not None:
            table["relation"] = self.relation.value
        return table

    @staticmethod
    def from_dict(table: dict[str, Any], where: str = "step") -> Mechanism:
        """Makes the mechanism that :meth:`to_dict` wrote.

        Args:
            table: its kind and its parameters by name. A text such as "256/60000" stands for the
                double nearest to this quotient.
            where: what a refusal calls the table.

        Raises:
            FileError: no or an unknown mechanism, an unknown or missing parameter.
            ParameterError: a parameter's value is refused.
        """
        mechanism: Mechanism = mechanism_of(table, where, MECHANISMS)
        return mechanism


def _derived(kind: str, base: Composable, *given: Any) -> Mechanism:
    """Makes the mechanism of a kind that is defined after its base's class."""
    cls: Any = MECHANISMS[kind]
    made: Mechanism = cls(base, *given)
    return made


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
        ParameterError: a number of runs is no integer from 0 to 10^100.
        RelationError: mechanisms were declared for different neighbouring relations.
    """

    parts: tuple[tuple[Mechanism, int], ...] = ()

    def __post_init__(self) -> None:
        counted: dict[Mechanism, int] = {}
        for mechanism, runs in self.parts:
            if not isinstance(mechanism, Mechanism):
                raise refuse("mechanism", "be a tightbudget mechanism", mechanism)
            counted[mechanism] = counted.get(mechanism, 0) + count(times=runs)
            if counted[mechanism] > _MOST_RUNS:
                raise refuse("times", "be at most 10^100 in all", counted[mechanism])
        kept = tuple((m, k) for m, k in counted.items() if k)
        object.__setattr__(self, "parts", kept)
        declared = [m.relation for m, _ in kept if m.relation is not None]
        for other in declared[1:]:
            if other is not declared[0]:
                raise RelationError(
                    f"mechanisms declared for {declared[0]} and for {other} do not compose "
                    "(a way to draw records may hold for one relation alone)"
                )

    @property
    def runs(self) -> int:
        """The number of runs of all mechanisms together."""
        return sum(k for _, k in self.parts)

    @property
    def relation(self) -> Neighbouring | None:
        """The neighbouring relation that some part was declared for, or None."""
        return next((m.relation for m, _ in self.parts if m.relation is not None), None)

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
    return Composition(tuple(parts_of(steps, MECHANISMS)))


def compose(mechanisms: Iterable[Composable]) -> Composition:
    """Everything in the list together: ``compose([a, b, a]) == a * 2 + b``.

    Raises:
        ParameterError: an entry is not a mechanism or composition.
        RelationError: entries were declared for different neighbouring relations.
    """
    if isinstance(mechanisms, Composable):
        raise refuse("mechanisms", "be a list, such as [mechanism]", mechanisms)
    parts: list[tuple[Mechanism, int]] = []
    for i, entry in enumerate(mechanisms):
        if not isinstance(entry, Composable):
            raise refuse(f"mechanisms[{i}]", "be a mechanism or a composition", entry)
        parts.extend(entry.parts)
    return Composition(tuple(parts))
