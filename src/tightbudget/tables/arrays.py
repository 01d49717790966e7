"""Arrays in memory as a source: the four verbs in NumPy, which other sources are compared with."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse
from tightbudget.tables.rules import numpy_points
from tightbudget.tables.source import HALF, Contribution, Key, OnGrid, Rule, Runs

__all__ = ["Arrays"]


@dataclass(frozen=True, eq=False)
class Arrays:
    """Columns as NumPy arrays, all of one length; None and NaN are missing."""

    arrays: Mapping[str, NDArray[Any]]

    @staticmethod
    def of(data: Mapping[str, Any]) -> Arrays:
        """Reads a mapping from names to columns.

        Raises:
            ParameterError: a name is no text, or a column is not one-dimensional or has another
                length than the first.
        """
        arrays = {}
        for name, column in data.items():
            if not isinstance(name, str):
                raise refuse("data", "have texts as names of columns", name)
            array = np.asarray(column)
            if array.ndim != 1:
                raise ParameterError(f"data[{name!r}] must be one column, got {array.ndim} axes")
            arrays[name] = array
        if len({len(array) for array in arrays.values()}) != 1:
            lengths = ", ".join(f"{name}: {len(a)}" for name, a in arrays.items())
            raise ParameterError(f"data must have columns of one length, got {lengths or 'none'}")
        return Arrays(arrays)

    @property
    def columns(self) -> Mapping[str, str]:
        """The names of the columns, with the names of their types."""
        return {name: _kind(array) for name, array in self.arrays.items()}

    def check(self) -> None:
        """Does nothing: memory is there."""

    def check_rules(
        self, conditions: Sequence[Rule | None] = (), columns: Sequence[OnGrid] = ()
    ) -> None:
        """Refuses rules that are no names of columns of the right type."""
        for rule in conditions:
            self._true(rule)
        for column in columns:
            self._integers(column)

    def counts(
        self, contribution: Contribution, conditions: Sequence[Rule | None], *, units: bool = False
    ) -> list[int]:
        """Counts the rows, or the units, for which each of the conditions is true; None for all."""
        found = [self._true(rule) for rule in conditions]
        if units:
            names = self._units(contribution)
            return [len({names[i] for i in np.flatnonzero(true)}) for true in found]
        used = [rule for rule in conditions if isinstance(rule, str)]
        kept = self._chosen(contribution, sorted(set(used)), np.arange(self._length))
        return [int(np.count_nonzero(true[kept])) for true in found]

    def sums(self, contribution: Contribution, columns: Sequence[OnGrid]) -> list[int]:
        """Adds up each of the columns, exactly."""
        used = _names(columns)
        kept = self._chosen(contribution, used, np.arange(self._length))
        return [sum(int(x) for x in self._integers(column)[kept]) for column in columns]

    def histogram(self, contribution: Contribution, column: OnGrid) -> Runs:
        """Counts the rows of each point that occurs, in ascending order of the points."""
        kept = self._chosen(contribution, _names([column]), np.arange(self._length))
        return sorted(Counter(int(x) for x in self._integers(column)[kept]).items())

    def groups(
        self,
        contribution: Contribution,
        by: Sequence[str],
        columns: Sequence[OnGrid],
        *,
        keys: Sequence[Key] | None,
    ) -> dict[Key, list[int]]:
        """Adds up columns in each group that occurs, or counts units where there are no columns."""
        named = list(zip(*(_known(self.arrays[name]) for name in by), strict=True))
        known = None if keys is None else {key if len(by) > 1 else (key,) for key in keys}
        rows = np.array(
            [
                i
                for i, key in enumerate(named)
                if not any(_missing(part) for part in key) and (known is None or key in known)
            ],
            dtype=np.int64,
        )
        kept, units = rows, self._units(contribution)
        if not columns or contribution.groups < contribution.rows:
            kept = self._in_groups(contribution, kept, named)
        if columns:
            kept = self._chosen(contribution, sorted({*by, *_names(columns)}), kept)
        integers = [self._integers(column) for column in columns]
        pairs = set[tuple[Any, Any]]()
        answer: dict[Key, list[int]] = {}
        for i in kept.tolist():
            sums = answer.setdefault(
                named[i] if len(by) > 1 else named[i][0], [0] * max(1, len(columns))
            )
            for j, column in enumerate(integers):
                sums[j] += int(column[i])
            if not columns and (units[i], named[i]) not in pairs:
                pairs.add((units[i], named[i]))
                sums[0] += 1
        return answer

    def filtered(self, rule: Rule) -> Arrays:
        """Returns the rows for which a column of truth values is true."""
        true = self._true(rule)
        return Arrays({name: array[true] for name, array in self.arrays.items()})

    def with_half(self, contribution: Contribution) -> Arrays:
        """Returns the rows with the half, 0 or 1, that a keyed hash puts each unit into."""
        units = [] if contribution.unit is None else _known(self.arrays[contribution.unit])
        half = [
            int(not _missing(u) and hashed(contribution.salt, ["half", text(u)]) >= "8")
            for u in units
        ]
        return Arrays({**self.arrays, HALF: np.array(half, dtype=np.int64)})

    # ------------------------------------------------------------------ which rows count

    @property
    def _length(self) -> int:
        return len(next(iter(self.arrays.values())))

    def _units(self, contribution: Contribution) -> list[Any]:
        """Returns the unit of each row; a row whose unit is missing has one of its own."""
        if contribution.unit is None:
            return [("row", i) for i in range(self._length)]
        names = _known(self.arrays[contribution.unit])
        # guard: row-without-unit-alone
        return [("row", i) if _missing(u) else u for i, u in enumerate(names)]

    def _in_groups(
        self, contribution: Contribution, rows: NDArray[np.int64], named: Sequence[Key]
    ) -> NDArray[np.int64]:
        """Returns the rows in the groups of each unit that come first in the order of the hash."""
        if contribution.unit is None:
            return rows
        units, first = self._units(contribution), dict[Any, dict[Key, str]]()
        for i in rows.tolist():
            first.setdefault(units[i], {})[named[i]] = hashed(
                contribution.salt, [text(part) for part in (units[i], *named[i])]
            )
        # guard: groups-in-arrays-bounded
        allowed = {
            unit: set(sorted(keys, key=keys.__getitem__)[: contribution.groups])
            for unit, keys in first.items()
        }
        return np.array([i for i in rows.tolist() if named[i] in allowed[units[i]]], dtype=np.int64)

    def _chosen(
        self, contribution: Contribution, used: Sequence[str], rows: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Returns the rows of each unit that come first in the order of the hash."""
        if contribution.unit is None:
            return rows
        told = list(used) if contribution.row_id is None else [contribution.row_id]
        units, copies = self._units(contribution), Counter[Any]()
        values = [_known(self.arrays[name]) for name in told]
        of_unit: dict[Any, list[tuple[str, int]]] = {}
        for i in rows.tolist():
            content = tuple(text(column[i]) for column in values)
            if contribution.row_id is None:
                copies[units[i], content] += 1  # equal rows are told apart by a number
                content = (*content, str(copies[units[i], content]))
            order = hashed(contribution.salt, [text(units[i]), *content])
            of_unit.setdefault(units[i], []).append((order, i))
        # guard: rows-in-arrays-bounded
        kept = [i for order in of_unit.values() for _, i in sorted(order)[: contribution.rows]]
        return np.array(sorted(kept), dtype=np.int64)

    # ------------------------------------------------------------------ columns

    def _true(self, rule: Rule | None) -> NDArray[np.bool_]:
        if rule is None:
            return np.ones(self._length, dtype=np.bool_)
        array = self._named(rule)
        if array.dtype.kind != "b" and array.dtype.kind != "O":
            raise ParameterError(f"where must be a column of truth values, got {rule!r}")
        return np.array([x is True or x is np.True_ for x in array.tolist()], dtype=np.bool_)

    def _integers(self, column: OnGrid) -> NDArray[np.object_]:
        """Returns a column of Python integers."""
        if column.column is None:
            return np.full(self._length, 1, dtype=object)
        points = numpy_points(self._named(column.column), column.low, column.high, column.step)
        centred: NDArray[np.object_] = (points.astype(object) - column.origin) ** column.power
        return centred

    def _named(self, rule: Rule) -> NDArray[Any]:
        if not isinstance(rule, str):
            raise ParameterError(
                "a rule on arrays must be a column's name: give a frame or a path for functions"
            )
        if rule not in self.arrays:
            raise refuse("column", f"be one of the columns {', '.join(self.arrays)}", rule)
        return self.arrays[rule]


def hashed(salt: str, texts: Sequence[str]) -> str:
    """Returns the keyed hash of texts, as engines write it: 32 hexadecimal digits."""
    told = "|".join([salt, *texts])
    return hashlib.md5(told.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()


def text(value: Any) -> str:
    """Writes a value as engines do before they hash it: no text has "|" in it."""
    if _missing(value):
        return "%"
    if isinstance(value, (bool, np.bool_)):
        return "1" if value else "0"
    if isinstance(value, (float, np.floating)):
        return str(int(numpy_points(np.array([value]), -(2**40), 2**40, 2.0**-10)[0]))
    return str(value).replace("%", "%0").replace("|", "%1")


def _known(array: NDArray[Any]) -> list[Any]:
    """Returns the values of a column; None for an object that cannot name a unit or a group.

    A name is hashed, compared and written. An object of which one of these fails is a missing
    name: an error would tell that its record is there.
    """
    values: list[Any] = array.tolist()
    return [_named(value) for value in values] if array.dtype.kind == "O" else values


def _named(value: Any) -> Any:
    """Returns an object that can be hashed, compared and written; None for any other."""
    try:
        hash(value)
        text(value)
        return None if _missing(value) else value
    except Exception:
        return None  # guard: odd-objects-are-missing


def _missing(value: Any) -> bool:
    return value is None or bool(value != value)


def _names(columns: Sequence[OnGrid]) -> list[str]:
    return sorted({column.column for column in columns if isinstance(column.column, str)})


def _kind(array: NDArray[Any]) -> str:
    """Names the type of a column as Ibis does; an array of objects is "object", whatever it holds.

    What an array of objects holds is no public fact: a refusal of its type could tell of a record.
    """
    if array.dtype.kind == "O":
        return "object"
    if array.dtype.kind == "M":  # NumPy gives nanoseconds as integers
        units = {"D": "date", "s": "timestamp(0)", "ms": "timestamp(3)", "us": "timestamp(6)"}
        return units.get(np.datetime_data(array.dtype)[0], "timestamp(9)")
    names_by_kind = {"U": "string", "b": "boolean"}
    return names_by_kind.get(array.dtype.kind, array.dtype.name)
