"""The values a user holds: a mechanism, runs of many together, and what they cost.

A :class:`Mechanism` offers, for each :class:`~tightbudget.mechanisms.Direction`, a pair (P, Q) of
distributions that dominates it. A :class:`Composition` counts how often each one runs, and
answers for all of them.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tightbudget import notebook
from tightbudget.engine.engine import Engine
from tightbudget.errors import FileError, ParameterError, RelationError
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.mechanisms.questions import Questions
from tightbudget.mechanisms.subsampled import AddPair, RemovePair
from tightbudget.numerics.enclosure import exact
from tightbudget.numerics.validate import (
    count,
    nearest,
    probability,
    quotient_of,
    refuse,
    renamed,
)
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

_VERSION = 1

# The numbers of entries of a parameter, and of parts of a composition, that repr shows: a line or
# two of a terminal.
_SHOWN_ENTRIES, _SHOWN_PARTS = 6, 6

# what to write instead of a parameter that no mechanism has
_MEANT = {
    **dict.fromkeys(
        ("rate", "sampling_rate", "sample_rate", "sampling_probability", "q"),
        "the chance of each record to be in a run is rate, in Python .subsampled(rate)",
    ),
    **dict.fromkeys(
        ("step", "steps", "epochs", "times", "runs", "num_steps", "count"),
        "how often it runs is times on the command line and in a plan file, in Python "
        "mechanism * times; of a shuffle or an allocation one run is an epoch",
    ),
    **dict.fromkeys(
        ("std", "stddev", "stdev", "sd", "standard_deviation", "noise_scale"),
        "the noise has sigma (its standard deviation) or scale, in the query's unit",
    ),
}

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
            (pair, each * runs)
            for mechanism, runs in self.parts
            for pair, each in mechanism.pairs_of_run(direction)
        )

    @functools.cached_property
    def engine(self) -> Engine:
        """The engine that answers for the dominating pairs."""
        return Engine.of({direction: self.pairs(direction) for direction in self.directions})

    @functools.cached_property
    def attained(self) -> Composable | None:
        """The mechanisms with their instances in place of them; None if none of them has one."""
        return self._with_instances()

    @property
    def apart(self) -> str:
        each = (mechanism.apart for mechanism, _ in self.parts)
        return "; ".join(dict.fromkeys(said for said in each if said))

    def finer(self, halvings: int) -> Composable:
        return compose(mechanism.finer(halvings) * runs for mechanism, runs in self.parts)

    def _with_instances(self) -> Composable | None:
        instances = [mechanism.instance() for mechanism, _ in self.parts]
        if all(instance is None for instance in instances):
            return None
        # guard: instance-taken
        return compose(
            (instance or mechanism) * runs
            for (mechanism, runs), instance in zip(self.parts, instances, strict=True)
        )

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
    # both directions have the same delta, so that one of them is asked. True is a claim that a
    # subclass has to prove; with False both are asked, which is right for every mechanism
    symmetric: ClassVar[bool] = False
    # one direction's pair is the other's with P and Q exchanged
    mutual: ClassVar[bool] = False
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
                raise ParameterError(cls._unknown(name))
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
        return cls.meant.get(name) or _MEANT.get(name)

    @classmethod
    def _unknown(cls, name: str, *, also: Iterable[str] = ()) -> str:
        """Says that the mechanism has no parameter ``name``, which it has, and what was meant.

        Args:
            name: the parameter that was given.
            also: other names that are accepted beside the parameters, to be suggested.
        """
        accepted = [other for other in cls._accepted() if other != "relation"]
        hint = cls.hint(name)
        if hint is None:
            close = difflib.get_close_matches(name, [*accepted, *also, "relation"], n=1)
            hint = f"did you mean {close[0]}?" if close else None
        listed = f" (it has {', '.join(accepted)})"
        return f"{cls.kind} has no parameter {name!r}{listed}" + (f": {hint}" if hint else "")

    def _set(self, **values: object) -> None:
        # how a frozen value stores its validated parameters
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def pair(self, direction: Direction) -> Pair:
        """The dominating pair for this direction."""
        raise NotImplementedError

    def pairs_of_run(self, direction: Direction) -> tuple[tuple[Pair, int], ...]:
        """Pairs, each with how often it runs, that together dominate one run in this direction.

        It is :meth:`pair` alone, unless a subclass knows several that are closer together.
        """
        return ((self.pair(direction), 1),)

    def instance(self) -> Composable | None:
        """The mechanism that concrete neighbouring data sets attain, where that is not the pair.

        Guarantee: no bound that holds for the mechanism on all data sets, however it is proved and
        however often it runs, is below the exact value of what is returned. None where
        :meth:`pair` is itself the worst that can happen.
        """
        return None

    @property
    def apart(self) -> str:
        """The way to draw records for which nobody knows the worst data sets; "" if there is none.

        Where it is "" and :meth:`instance` is not None, the two enclose an exact pair, and answers
        are as close as is asked, or refused.
        """
        return ""

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
        return Subsampled(self, rate)

    @renamed(times="each_in")
    def allocated(self, steps: int, each_in: int = 1) -> Mechanism:
        """Returns one epoch of ``steps`` runs of this mechanism, each record in a random one.

        Each record is in ``each_in`` of the runs, chosen uniformly and independently of the other
        records; see :class:`tightbudget.Allocated`.
        """
        return _derived("allocated", self, steps, each_in)

    def shuffled(self, steps: int) -> Mechanism:
        """Returns one epoch of ``steps`` runs of this mechanism on the batches of a shuffle.

        The data are permuted and cut into batches; see :class:`tightbudget.Shuffled`.
        """
        return _derived("shuffled", self, steps)

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
        table = {name: _read(value) for name, value in table.items()}
        kind = table.pop("mechanism", None)
        if not isinstance(kind, str) or kind not in MECHANISMS:
            known = ", ".join(sorted(MECHANISMS))
            raise FileError(f"{where}.mechanism must be one of {known}, got {kind!r}")
        cls = MECHANISMS[kind]
        if issubclass(cls, Derived):
            base, given = table.pop("base", None), table.pop(cls.key, None)
            if not isinstance(base, dict) or given is None or table:
                raise FileError(
                    f"{where}: {kind} needs base (a table) and {cls.key}, and nothing else"
                )
            return _with(Mechanism.from_dict(base, f"{where}.base"), cls, given, where)
        # what tells how records get into a run; then for whom it is
        found = [(made, table.pop(made.key)) for made in _derivations() if made.key in table]
        samplers = [made for made, _ in found if made.key != "group"]
        if len(samplers) > 1:
            first, second = samplers[:2]
            raise FileError(
                f"{where} has both {first.key} and {second.key}; where the one is done to the "
                f"other, write mechanism={second.kind!r} with a base that has {first.key}"
            )
        relation = table.pop("relation", None)
        if relation is not None:
            try:
                relation = Neighbouring.of(**{f"{where}.relation": relation})
            except ParameterError as error:
                raise FileError(str(error)) from None
        for name in table:
            if name not in cls._accepted():
                keys = [made.key for made in _derivations()]
                unknown = cls._unknown(name, also=(*keys, "times"))
                raise FileError(f"{where}: {unknown}")
        for name, parameter in inspect.signature(cls).parameters.items():
            if parameter.default is inspect.Parameter.empty and name not in table:
                raise FileError(f"{where}: {kind} needs {name}")
        mechanism = cls(**table, relation=relation)
        for made, given in sorted(found, key=lambda entry: entry[0].key == "group"):
            mechanism = _with(mechanism, made, given, where)
        return mechanism


def _read(value: Any) -> Any:
    """Returns a table's value, with the nearest double for a text that writes a quotient."""
    quotient = quotient_of(value) if isinstance(value, str) else None
    return value if quotient is None else nearest(quotient)


@dataclass(frozen=True)
class Derived(Mechanism):
    """A mechanism made of another one, its base, by saying how records get into a run.

    Its table is the base's with one more key, whose value is the first parameter, or a table of
    all parameters where there are several. A base that has such a key itself is nested:
    ``{"mechanism": kind, "base": {...}, key: value}``. (A parameter has no place beside the key: in
    a plan, ``times`` counts runs.) The method ``kind`` of a mechanism makes it.
    """

    base: Mechanism

    key: ClassVar[str] = ""  # in the base's table
    # the name in the table of a parameter that has another one there: ledgers keep these tables
    written: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.base, Mechanism):
            raise ParameterError(f"base must be a mechanism, got {self.base!r}")

    @classmethod
    def first(cls) -> str:
        """The name of the first parameter, beside the base."""
        return next(name for name in cls._accepted() if name not in ("base", "relation"))

    def __repr__(self) -> str:
        """Writes the base and the method that was called on it."""
        given = [f"{name}={value!r}" for name, value in self.parameters().items()]
        return f"{self.base!r}.{self.kind}({', '.join(given)})"

    def parameters(self) -> dict[str, Any]:
        return {name: value for name, value in super().parameters().items() if name != "base"}

    def to_dict(self) -> dict[str, Any]:
        base, given = self.base.to_dict(), self.parameters()
        # a group is named last in any case, and needs no nest for a base that says how to draw
        taken = {made.key for made in _derivations() if self.key != "group" or made is type(self)}
        if "base" in base or taken & base.keys():
            base = {"mechanism": self.kind, "base": base}
        alone = list(given) == [self.first()]
        named = {self.written.get(name, name): value for name, value in given.items()}
        return {**base, self.key: given[self.first()] if alone else named}

    @classmethod
    def given(cls, value: Any) -> dict[str, Any]:
        """Returns the parameters that a table gives under the key: the first one, or a table."""
        if not isinstance(value, Mapping):
            return {cls.first(): value}
        table: Mapping[str, Any] = value
        names = {written: name for name, written in cls.written.items()}
        return {names.get(name, name): entry for name, entry in table.items()}


def _derivations() -> list[type[Derived]]:
    """The classes of all mechanisms that are made of a base."""
    return [made for made in MECHANISMS.values() if issubclass(made, Derived)]


def _derived(kind: str, base: Mechanism, *given: Any) -> Mechanism:
    """Makes the mechanism of a kind that is defined after its base's class."""
    cls: Any = MECHANISMS[kind]
    made: Mechanism = cls(base, *given)
    return made


def _with(base: Mechanism, made: type[Derived], value: Any, where: str) -> Mechanism:
    """Calls the method of a mechanism that makes another one of it.

    Args:
        base: the mechanism.
        made: the class of the other one.
        value: what a plan's table has under the key of the class: the first parameter, or a table.
        where: what a refusal calls the plan's table.

    Raises:
        FileError: an unknown or missing parameter.
    """
    method = getattr(base, made.kind)
    given = made.given(value)
    if isinstance(value, Mapping) and len(given) < len(value):
        twice = next(name for name, written in made.written.items() if written in value)
        raise FileError(f"{where}.{made.key}: {twice} is given twice")
    parameters = inspect.signature(method).parameters
    for name in given:
        if name not in parameters:
            known = ", ".join(parameters)
            raise FileError(f"{where}.{made.key}: {made.kind} has no {name!r} (it has {known})")
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in given:
            raise FileError(f"{where}.{made.key}: {made.kind} needs {name}")
    mechanism: Mechanism = method(**{name: _read(entry) for name, entry in given.items()})
    return mechanism


@dataclass(frozen=True)
class Subsampled(Derived):
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

    rate: float

    kind: ClassVar[str] = "subsampled"
    key: ClassVar[str] = "rate"

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = probability(rate=self.rate)
        if 0 < rate < 1e-100:
            raise refuse("rate", "be 0 or in [1e-100, 1]", self.rate)
        way = "Poisson subsampling"
        relation = Neighbouring.of_presence(way, self.relation, self.base.relation)
        self._set(rate=rate, relation=relation)

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

    def instance(self) -> Composable | None:
        """Returns a mechanism that reveals nothing, where the base's pair is not attained.

        The data sets that attain an instance of the base need not attain its sample: their other
        records are sampled, too.
        """
        attained = self.base.instance()
        if attained is None or self.rate == 0.0:
            return None
        # guard: sample-attains-nothing
        return attained if self.rate == 1.0 else dataclasses.replace(self, rate=0.0)

    @property
    def apart(self) -> str:
        if self.rate == 1.0 or self.base.instance() is None:
            return self.base.apart if self.rate else ""
        return f"a sample of {self.base.apart or 'an epoch'}" if self.rate else ""

    def finer(self, halvings: int) -> Mechanism:
        if self.rate < 1.0:
            return self
        return dataclasses.replace(self, base=self.base.finer(halvings))

    def __repr__(self) -> str:
        return f"{self.base!r}.subsampled({self.rate!r})"


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
    if isinstance(mechanisms, Composable):
        raise refuse("mechanisms", "be a list, such as [mechanism]", mechanisms)
    parts: list[tuple[Mechanism, int]] = []
    for i, entry in enumerate(mechanisms):
        if not isinstance(entry, Composable):
            raise refuse(f"mechanisms[{i}]", "be a mechanism or a composition", entry)
        parts.extend(entry.parts)
    return Composition(tuple(parts))
