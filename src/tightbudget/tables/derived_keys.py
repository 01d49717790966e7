"""Public keys of a column that each row derives from another one: months, quarters, years, bins.

A rule of keys is a list of public edges that ascend, and a public label between two edges that
follow one another. A row has the label of the place where its value is, from an edge on and before
the next one. So a row's key depends on that row alone, and a unit is in no more groups than it has
rows. What is missing, or outside of the edges, has no key: in answers by group, such rows go
nowhere. Or they have the one label that ``other`` names, which is public, too.
"""

from __future__ import annotations

import datetime
import itertools
import math
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import finite, listed, plain_numbers, positive_count, refuse
from tightbudget.tables.columns import kind_of, name_of

# Dates and numbers are compared with edges; where an edge is None, there is no end.
Edge = datetime.date | datetime.datetime | int | float | None

_DATES = ("dates", "timestamps", "timestamps of nanoseconds", "objects")
_NUMBERS = ("integers", "floating-point numbers", "decimals", "huge integers", "objects")
# Doubles count integers one by one up to here, so that an edge of each is exact.
_LARGEST = 2**53


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """The edges of a rule of keys, for the type of one column, and the labels between them.

    Attributes:
        edges: n + 1 edges that ascend; the first and the last may be None, for no end.
        labels: n texts.
        other: the label of rows that are missing or outside; None for no key.
    """

    edges: tuple[Edge, ...]
    labels: tuple[str, ...]
    other: str | None

    def label(self, value: Any) -> str | None:
        """Returns the label of one value, which can be compared with the edges; None is missing."""
        if value is None or value != value:
            return self.other
        ends: list[Any] = [edge for edge in self.edges if edge is not None]
        place = bisect_right(ends, value) - (self.edges[0] is not None)
        return self.labels[place] if 0 <= place < len(self.labels) else self.other


@dataclass(frozen=True)
class DerivedKeys(ABC):
    """The base of rules that give rows public keys; a table takes one in ``domains``.

    Args:
        column: the column that keys are derived from.
        other: the label of rows that are missing or outside of the edges, a public text; None if
            such rows have no key, and do not count in groups.
    """

    column: str
    other: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        column: Any = self.column
        if not isinstance(column, str):
            raise refuse("column", "be the name of a column", column)
        other: Any = self.other
        if other is not None and (not isinstance(other, str) or not other):
            raise refuse("other", "be a text", other)
        twice = [key for key, many in Counter(self.keys).items() if many > 1]
        if twice:
            raise refuse("keys", "be different from one another, and from other", twice[0])

    @property
    def keys(self) -> tuple[str, ...]:
        """All public keys, in order; ``other`` is the last."""
        return (*self.labels, *self._others)

    @property
    def _others(self) -> tuple[str, ...]:
        return () if self.other is None else (self.other,)

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The labels between the edges, in order."""

    @abstractmethod
    def for_type(self, kind: str, argument: str) -> Labelled:
        """Returns the edges as values that a column of a type can be compared with.

        Args:
            kind: the name of the column's type.
            argument: what the rule was given as, for a refusal.

        Raises:
            ParameterError: the type does not serve.
        """

    def _check_type(self, kind: str, argument: str, served: Sequence[str], what: str) -> str:
        """Returns the name of the kind of a type; refuses one that does not serve."""
        if kind_of(kind) is None or name_of(kind) not in served:
            must = f"be made of a column of {what}"
            raise refuse(argument, must, f"{self.column} of type {kind}")
        return name_of(kind)


@dataclass(frozen=True)
class _Periods(DerivedKeys):
    """Keys of the period of a calendar that a date is in.

    Args:
        column: a column of dates, or of timestamps without a time zone.
        first: the first period that has a key.
        last: the last one, not before the first.
    """

    first: Any
    last: Any

    def __post_init__(self) -> None:
        first, last = self._number("first", self.first), self._number("last", self.last)
        if not first <= last:
            raise refuse("last", f"be {self.first} or later", self.last)
        super().__post_init__()

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all periods from the first to the last."""
        return tuple(map(self._label, self._numbers()))

    def for_type(self, kind: str, argument: str) -> Labelled:
        """Returns the first days of the periods, and of the one after the last."""
        name = self._check_type(kind, argument, _DATES, "dates, or of timestamps without a zone")
        numbers = self._numbers()
        days = [self._start(number) for number in (*numbers, numbers[-1] + 1)]
        edges: tuple[Edge, ...] = tuple(days)
        if name != "dates":
            edges = tuple(datetime.datetime(day.year, day.month, day.day) for day in days)
        return Labelled(edges=edges, labels=self.labels, other=self.other)

    def _numbers(self) -> range:
        return range(self._number("first", self.first), self._number("last", self.last) + 1)

    @abstractmethod
    def _number(self, argument: str, given: Any) -> int:
        """Returns the number of a period that is given, which counts from the year 0 on."""

    @abstractmethod
    def _label(self, number: int) -> str:
        """Returns the label of a period."""

    @abstractmethod
    def _start(self, number: int) -> datetime.date:
        """Returns the first day of a period."""


@plain_numbers
@dataclass(frozen=True)
class Months(_Periods):
    """Public keys of the month that a date is in: texts like "2026-03".

    Give them to a table: ``domains={"month": Months("visited", "2026-01", "2026-12")}`` makes a
    column ``month``, and questions can be asked by it. A date that is missing, or in another month,
    has no key, or the key ``other``. The calendar is that of the column: a timestamp is taken as
    it is stored.

    Args:
        column: a column of dates, or of timestamps without a time zone.
        first: the first month that has a key, "2026-01".
        last: the last month that has a key, not before the first.
        other: the label of rows that are missing or in other months, a public text; None if such
            rows have no key, and do not count in groups.

    Raises:
        ParameterError: a parameter is refused.
    """

    def _number(self, argument: str, given: Any) -> int:
        year, month = _read(argument, given, r"(\d{4})-(0[1-9]|1[0-2])", "a month, say '2026-01'")
        return 12 * year + month - 1

    def _label(self, number: int) -> str:
        return f"{number // 12:04}-{number % 12 + 1:02}"

    def _start(self, number: int) -> datetime.date:
        return datetime.date(number // 12, number % 12 + 1, 1)


@plain_numbers
@dataclass(frozen=True)
class Quarters(_Periods):
    """Public keys of the quarter that a date is in: texts like "2026-Q1", as :class:`Months`.

    Args:
        column: a column of dates, or of timestamps without a time zone.
        first: the first quarter that has a key, "2026-Q1".
        last: the last quarter that has a key, not before the first.
        other: the label of rows that are missing or in other quarters, a public text; None if such
            rows have no key, and do not count in groups.

    Raises:
        ParameterError: a parameter is refused.
    """

    def _number(self, argument: str, given: Any) -> int:
        year, quarter = _read(argument, given, r"(\d{4})-Q([1-4])", "a quarter, say '2026-Q1'")
        return 4 * year + quarter - 1

    def _label(self, number: int) -> str:
        return f"{number // 4:04}-Q{number % 4 + 1}"

    def _start(self, number: int) -> datetime.date:
        return datetime.date(number // 4, number % 4 * 3 + 1, 1)


@plain_numbers
@dataclass(frozen=True)
class Years(_Periods):
    """Public keys of the year that a date is in: texts like "2026", as :class:`Months`.

    Args:
        column: a column of dates, or of timestamps without a time zone.
        first: the first year that has a key, 2026 or "2026".
        last: the last year that has a key, not before the first.
        other: the label of rows that are missing or in other years, a public text; None if such
            rows have no key, and do not count in groups.

    Raises:
        ParameterError: a parameter is refused.
    """

    def _number(self, argument: str, given: Any) -> int:
        text = f"{positive_count(**{argument: given}):04}" if not isinstance(given, str) else given
        (year,) = _read(argument, text, r"(\d{4})", "a year, say 2026")
        return year

    def _label(self, number: int) -> str:
        return f"{number:04}"

    def _start(self, number: int) -> datetime.date:
        return datetime.date(number, 1, 1)


@plain_numbers
@dataclass(frozen=True)
class ValueBins(DerivedKeys):
    """Public keys of the bin that a number is in: texts like "[18, 40)".

    Give them to a table: ``domains={"age group": ValueBins("age", [0, 18, 65, math.inf])}`` makes a
    column ``age group``, and questions can be asked by it. A bin has its first edge and not its
    second; a bin whose edge is infinite has no end there. Numbers are compared with the edges as
    they are, and are not rounded. A number that is missing, or outside of the edges, has no key, or
    the key ``other``.

    Args:
        column: a column of numbers.
        edges: at least two public numbers that ascend, of at most 2^53; the first may be
            -infinity, and the last infinity.
        names: the keys of the bins, in order; None for texts like "[18, 40)".
        other: the label of rows that are missing or outside of the edges, a public text; None if
            such rows have no key, and do not count in groups.

    Raises:
        ParameterError: a parameter is refused.
    """

    edges: Sequence[float]
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", _edges(self.edges))
        if self.names is not None:
            listed(names=self.names)
            names = tuple(self.names)
            if len(names) != len(self.edges) - 1 or not all(isinstance(x, str) for x in names):
                must = f"be a text for each of the {len(self.edges) - 1} bins"
                raise refuse("names", must, names)
            object.__setattr__(self, "names", names)
        super().__post_init__()

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the bins, or both of their edges."""
        if self.names is not None:
            return tuple(self.names)
        return tuple(
            f"{'(' if low == -math.inf else '['}{_short(low)}, {_short(high)})"
            for low, high in itertools.pairwise(self.edges)
        )

    def for_type(self, kind: str, argument: str) -> Labelled:
        """Returns the edges; an integer is at an edge or above if it is at its ceiling or above."""
        name = self._check_type(kind, argument, _NUMBERS, "numbers")
        edges: tuple[Edge, ...] = tuple(
            None if math.isinf(edge) else math.ceil(edge) if name == "integers" else edge
            for edge in self.edges
        )
        return Labelled(edges=edges, labels=self.labels, other=self.other)


def _read(argument: str, given: Any, pattern: str, what: str) -> tuple[int, ...]:
    """Reads the numbers of a text; years are 1 to 9998, so that the next one has a date.

    Raises:
        ParameterError: the text is no such period.
    """
    found = re.fullmatch(pattern, given, re.ASCII) if isinstance(given, str) else None
    if found is None or not 1 <= int(found[1]) <= 9998:
        raise refuse(argument, f"be {what}", given)
    return tuple(map(int, found.groups()))


def _edges(edges: Any) -> tuple[float, ...]:
    """Returns edges as a tuple of numbers that ascend.

    Raises:
        ParameterError: they are none.
    """
    listed(edges=edges)
    given, numbers = list(edges), []
    for i, edge in enumerate(given):
        ends = {0: -math.inf, len(given) - 1: math.inf}
        if isinstance(edge, float) and edge == ends.get(i):
            numbers.append(edge)
            continue
        number = finite(**{f"edges[{i}]": edge})
        if abs(number) > _LARGEST:
            raise refuse(f"edges[{i}]", "be at most 2^53 from 0", edge)
        numbers.append(number)
    ascend = all(a < b for a, b in itertools.pairwise(numbers))
    if len(numbers) < 2 or not ascend or all(map(math.isinf, numbers)):
        raise ParameterError(f"edges must be at least two numbers that ascend, got {given!r}")
    return tuple(numbers)


def _short(number: float) -> str:
    """Writes an edge; a whole number has no point."""
    return str(int(number)) if math.isfinite(number) and number == int(number) else str(number)
