"""Sets of blocks: which budgets a set has, by which rule, and how a range of them is named.

Rows are put into blocks by public columns, such as the day and the region of a click, and each
block has a budget of its own, which is made when a run first touches it. Source: Lecuyer, Spahn,
Vodrahalli, Geambasu, Hsu 2019 (Sage); Luo, Pan, Tholoniat, Cidon, Geambasu, Lecuyer 2021
(PrivateKube).
"""

from __future__ import annotations

import calendar
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from fractions import Fraction
from typing import Any, Literal

from tightbudget.errors import ParameterError
from tightbudget.ledger.chain import canonical
from tightbudget.ledger.pricing import BLOCK, rule_of
from tightbudget.ledger.queries import Balance
from tightbudget.ledger.text import printable
from tightbudget.ledger.units import NOTHING, Units
from tightbudget.numerics.validate import plain, positive_count, refuse
from tightbudget.output_dp.amount import Price, exact_positive, exact_probability

__all__ = ["BlockSet", "Chosen", "Values"]

# What names the values of a dimension: one value, several, or a range "a..b" with both ends.
Values = str | int | date | Iterable[str | int | date]

_MOST = 10_000  # blocks of one range; as many budgets as the ledger is measured with in one act
_CALENDAR = {"year": 4, "month": 7, "day": 10}  # characters of a value in ISO 8601
_MEANT = "=,[]"  # characters with a meaning in the name of a block
_INTEGERS = re.compile(r"-?[0-9]{1,18}\.\.-?[0-9]{1,18}")
_LARGE = 10**18
_PERIOD = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?")


@dataclass(frozen=True, kw_only=True)
class BlockSet:
    """The terms of a set of blocks, as they are declared once.

    Attributes:
        name: the name of the set.
        by: the names of the dimensions.
        epsilon: of each block, nats.
        delta: of each block.
        rows_in: the largest number of blocks that have rows of one person.
        cap_epsilon: the most that all blocks together are charged for; None for no such cap.
        cap_delta: the delta beside it.
        quota_epsilon: of each analyst, beside the blocks; None for no quota.
        quota_delta: the delta beside it.
        unlocking: the number of days over which the budget of a block is unlocked; None for all
            at once.
    """

    name: str
    by: tuple[str, ...]
    epsilon: Fraction
    delta: Fraction
    rows_in: int
    cap_epsilon: Fraction | None
    cap_delta: Fraction
    quota_epsilon: Fraction | None
    quota_delta: Fraction
    unlocking: int | None

    @staticmethod
    def of(
        name: str,
        *,
        by: Sequence[str],
        epsilon: Price,
        delta: Price,
        rows_in: int | Literal["one block"],
        cap_epsilon: Price | None,
        cap_delta: Price,
        quota_epsilon: Price | None,
        quota_delta: Price,
        unlocking: int | None,
    ) -> BlockSet:
        """Checks the terms of a set.

        Raises:
            ParameterError: one of them is refused.
        """
        one = BlockSet(
            name=_word(name=name),
            by=_dimensions(by),
            epsilon=exact_positive(epsilon=epsilon),
            delta=exact_probability(delta=delta),
            rows_in=1 if rows_in == "one block" else positive_count(rows_in=rows_in),
            cap_epsilon=None if cap_epsilon is None else exact_positive(cap_epsilon=cap_epsilon),
            cap_delta=exact_probability(cap_delta=cap_delta),
            quota_epsilon=(
                None if quota_epsilon is None else exact_positive(quota_epsilon=quota_epsilon)
            ),
            quota_delta=exact_probability(quota_delta=quota_delta),
            unlocking=None if unlocking is None else positive_count(unlocking=unlocking),
        )
        for which, most in (("cap", one.cap_epsilon), ("quota", one.quota_epsilon)):
            if most is None and getattr(one, f"{which}_delta"):
                raise ParameterError(f"{which}_delta needs {which}_epsilon beside it")
        if one.unlocking is not None and one.clock is None:
            known = ", ".join(map(repr, _CALENDAR))
            raise refuse("unlocking", f"be None unless a dimension is one of {known}", unlocking)
        return one

    @property
    def clock(self) -> str | None:
        """The finest dimension of the calendar, by which blocks unlock; None if there is none."""
        known = [name for name in self.by if name in _CALENDAR]
        return max(known, key=lambda name: _CALENDAR[name], default=None)

    @property
    def has_cap(self) -> bool:
        """True if each run is charged to the set, too."""
        return self.cap_epsilon is not None

    # ---------------------------------------------------------------------- as it is stored

    @property
    def in_blocks(self) -> tuple[Fraction, Fraction]:
        """The most that the blocks of one person are charged for together."""
        return self.rows_in * self.epsilon, min(Fraction(1), self.rows_in * self.delta)

    @property
    def person(self) -> tuple[Fraction, Fraction]:
        """The epsilon and the delta of all that is ever released about one person."""
        epsilon, delta = self.in_blocks
        if self.cap_epsilon is None:
            return epsilon, delta
        return min(epsilon, self.cap_epsilon), min(delta, self.cap_delta)

    @property
    def text(self) -> str:
        """The parameters of the set's own budget: its cap, or without one what a person's is."""
        epsilon, delta = self.in_blocks
        if self.cap_epsilon is not None:
            epsilon, delta = self.cap_epsilon, self.cap_delta
        return canonical(
            {
                "epsilon": str(epsilon),
                "delta": str(delta),
                "by": self.by,
                "block": [str(self.epsilon), str(self.delta)],
                "rows_in": self.rows_in,
                "has_cap": self.has_cap,
                "quota": (
                    None
                    if self.quota_epsilon is None
                    else [str(self.quota_epsilon), str(self.quota_delta)]
                ),
                "unlocking": self.unlocking,
            }
        )

    @staticmethod
    def of_text(name: str, text: str) -> BlockSet:
        """Reads the terms that :attr:`text` wrote."""
        said = json.loads(text)
        epsilon, delta = map(Fraction, said["block"])
        quota = said["quota"]
        return BlockSet(
            name=name,
            by=tuple(said["by"]),
            epsilon=epsilon,
            delta=delta,
            rows_in=said["rows_in"],
            cap_epsilon=Fraction(said["epsilon"]) if said["has_cap"] else None,
            cap_delta=Fraction(said["delta"]) if said["has_cap"] else Fraction(0),
            quota_epsilon=None if quota is None else Fraction(quota[0]),
            quota_delta=Fraction(0) if quota is None else Fraction(quota[1]),
            unlocking=said["unlocking"],
        )

    def fresh(self, name: str, number: int) -> Balance:
        """A budget of this set that nobody has touched; it has no number in the ledger yet.

        Args:
            name: of a block, or of the quota of an analyst.
            number: below 0, another one for each budget.
        """
        text = self._quota_text if self._is_quota(name) else self.block_text
        return Balance(
            id=number,
            name=name,
            kind=BLOCK,
            parameters=text,
            parent=None,
            root=number,
            closed=False,
            cap=Units.granted(rule_of(BLOCK, text).cap),
            spent=NOTHING,
            held=NOTHING,
            saved=NOTHING,
        )

    @property
    def block_text(self) -> str:
        """The parameters of the budget of each block."""
        return _made(self.name, self.epsilon, self.delta)

    @property
    def _quota_text(self) -> str:
        """The parameters of the budget of each analyst."""
        assert self.quota_epsilon is not None
        return _made(self.name, self.quota_epsilon, self.quota_delta)

    # -------------------------------------------------------------------------- its names

    @property
    def beginning(self) -> str:
        """The beginning of the names of its blocks."""
        return f"{self.name}["

    @property
    def _analysts(self) -> str:
        """The beginning of the names of quotas."""
        return f"{self.name}[analyst "

    def _is_quota(self, name: str) -> bool:
        """Whether it is the name of a quota; the name of a block has values after "="."""
        return name.startswith(self._analysts) and "=" not in name

    def quota_of(self, analyst: str) -> str:
        """The name of an analyst's quota."""
        return printable(analyst=f"{self._analysts}{_word(analyst=analyst)}]")

    def block(self, values: Sequence[str]) -> str:
        """The name of the block of these values, one for each dimension."""
        pairs = (f"{name}={value}" for name, value in zip(self.by, values, strict=True))
        return printable(block=f"{self.beginning}{', '.join(pairs)}]")

    def has(self, name: str) -> bool:
        """Whether it is the set's own name, or one that its rule gives."""
        return name == self.name or name.startswith(self.beginning)

    def is_block(self, name: str) -> bool:
        """Whether a name is that of a block of this set, and not of a quota."""
        return name.startswith(self.beginning) and not self._is_quota(name)

    def values(self, block: str) -> tuple[str, ...] | None:
        """The values of a block by its name, one for each dimension; None for a quota."""
        if self._is_quota(block):
            return None
        inside = block[len(self.beginning) : -1]
        return tuple(pair.partition("=")[2] for pair in inside.split(", "))

    def blocks_in(self, where: Mapping[str, Values]) -> tuple[str, ...]:
        """The names of the blocks of a range: of all combinations of the values.

        Raises:
            ParameterError: a dimension is missing, unknown or refused; the range is too large.
        """
        for name in (*where, *self.by):
            if name not in self.by or name not in where:
                must = f"name a value, several or a range for each of {', '.join(self.by)}"
                raise refuse("where", must, sorted(where))
        chosen = [_chosen(name, where[name]) for name in self.by]
        number = 1
        for values in chosen:
            number *= len(values)
        if number > _MOST:
            raise refuse("where", f"have at most {_MOST} blocks", number)
        return tuple(map(self.block, itertools.product(*chosen)))

    def unlocked(self, block: Balance, today: date) -> Balance:
        """The budget of a block with the part of its cap that is unlocked on a day.

        The share grows in proportion to the days since the block's year, month or day began.
        """
        values = self.values(block.name)
        if self.unlocking is None or self.clock is None or values is None:
            return block
        began = _period(values[self.by.index(self.clock)])[0]
        days = min(self.unlocking, max(0, (today - began).days))
        cap = Units(*(amount * days // self.unlocking for amount in block.cap))
        return replace(block, cap=cap.most(block.spent.plus(block.held)))


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The budgets of one set that a run is charged to.

    Attributes:
        set: the terms of the set.
        today: the day by the ledger's clock, on which the unlocking of blocks depends.
    """

    set: BlockSet
    today: date

    def usable(self, payer: Balance) -> Balance:
        """The budget with the part of its cap that may be used today.

        Raises:
            ParameterError: there is a budget of a block's name that is no block of this set.
        """
        if not payer.name.startswith(self.set.beginning):
            return payer
        expected = self.set.fresh(payer.name, -1)
        # guard: block-of-this-set
        if (payer.kind, payer.parameters) != (expected.kind, expected.parameters):
            raise ParameterError(
                f"there is a budget {payer.name!r} that is no block of {self.set.name!r}"
            )
        return self.set.unlocked(payer, self.today)  # guard: locked-is-not-left


def _made(of: str, epsilon: Fraction, delta: Fraction) -> str:
    """The parameters of a budget that is made by the rule of a set."""
    return canonical({"blocks": of, "delta": str(delta), "epsilon": str(epsilon)})


def _word(**given: Any) -> str:
    """A part of a block's name: printable text without the characters that the name uses.

    Raises:
        ParameterError: it is none.
    """
    ((what, value),) = given.items()
    text = printable(**given)
    if any(character in _MEANT for character in text) or ".." in text or text != text.strip():
        must = f"be without {' '.join(_MEANT)} .. and without a space at an end"
        raise refuse(what, must, value)
    return text


def _dimensions(by: Sequence[str]) -> tuple[str, ...]:
    """The names of the dimensions.

    Raises:
        ParameterError: there is none, one is there twice, or one is refused.
    """
    if not isinstance(by, (list, tuple)) or not by:
        raise refuse("by", 'be a list of dimensions, such as ["day", "region"]', by)
    names = tuple(_word(**{f"by[{i}]": name}) for i, name in enumerate(by))
    if len(set(names)) != len(names):
        raise refuse("by", "name each dimension once", by)
    return names


# ------------------------------------------------------------------------ values of ranges


def _chosen(dimension: str, values: Values) -> tuple[str, ...]:
    """The values of a dimension that are meant, each once.

    Raises:
        ParameterError: there is none, or one is refused.
    """
    # a text is iterable, too, and so are bytes, which name nothing
    one = isinstance(values, (str, bytes)) or not isinstance(values, Iterable)
    listed: Iterable[Any] = (values,) if one else values  # type: ignore[assignment]
    # whoever names more values is refused with the range that is too large
    several = map(plain, itertools.islice(listed, _MOST + 1))
    read = _dates if dimension in _CALENDAR else _words
    found: dict[str, None] = {}
    for value in several:
        found.update(dict.fromkeys(itertools.islice(read(dimension, value), _MOST + 1)))
    if not found:
        raise refuse(dimension, "name at least one value", values)
    return tuple(sorted(found))


def _words(dimension: str, value: Any) -> Iterator[str]:
    """The values that a text or an integer, or a range of integers, names."""
    if isinstance(value, str) and _INTEGERS.fullmatch(value):
        first, last = map(int, value.split(".."))
        if first > last:
            raise refuse(dimension, "have its first value before its last", value)
        yield from (str(number) for number in range(first, last + 1))
    elif isinstance(value, bool) or not isinstance(value, (str, int)):
        raise refuse(dimension, "be a text, an integer, a range such as 1..12, or several", value)
    elif isinstance(value, int) and abs(value) >= _LARGE:
        raise refuse(dimension, "be an integer of at most 18 digits", "a longer one")
    else:
        yield _word(**{dimension: str(value)})


def _dates(dimension: str, value: Any) -> Iterator[str]:
    """The years, months or days within a period, or from one period to another.

    A period is a year, a month or a day (2026, 2026-01, 2026-01-31), no finer than the dimension.
    """
    if isinstance(value, int) and abs(value) >= _LARGE:
        raise refuse(dimension, "be in the calendar", "a larger number")
    text = value.isoformat()[:10] if isinstance(value, date) else str(value)
    first, separator, last = text.partition("..")
    length = _CALENDAR[dimension]
    ends = [first, last] if separator else [first, first]
    if isinstance(value, bool) or any(
        not _PERIOD.fullmatch(end) or len(end) > length for end in ends
    ):
        must = f"be a {dimension} such as {'2026-01-31'[:length]}, or a longer period, or a..b"
        raise refuse(dimension, must, value)
    try:
        began, ended = _period(ends[0])[0], _period(ends[1])[1]
    except ValueError as error:
        raise refuse(dimension, "be in the calendar", value) from error
    if began > ended:
        raise refuse(dimension, "have its first period before its last", value)
    day = began
    while True:
        named = day.isoformat()[:length]
        yield named
        last_day = _period(named)[1]
        if last_day >= ended:
            return
        day = last_day + timedelta(days=1)


def _period(text: str) -> tuple[date, date]:
    """The first and the last day of a year, a month or a day in ISO 8601.

    Raises:
        ValueError: there is none in the calendar.
    """
    numbers = [int(part) for part in text.split("-")]
    begins = date(*(*numbers, 1, 1)[:3])
    if len(numbers) == 1:
        return begins, begins.replace(month=12, day=31)
    if len(numbers) == 2:
        return begins, begins.replace(day=calendar.monthrange(begins.year, begins.month)[1])
    return begins, begins
