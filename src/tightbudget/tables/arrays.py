"""Arrays in memory as a source: the six verbs in NumPy, which other sources are compared with."""

from __future__ import annotations

import datetime
import hashlib
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse
from tightbudget.release.private_number import number
from tightbudget.tables.cells import NOWHERE, ColumnCells, cell_of
from tightbudget.tables.columns import check_names
from tightbudget.tables.derived_keys import DerivedKeys, Labelled
from tightbudget.tables.rules.grid import numpy_points
from tightbudget.tables.source import HALF, Contribution, Key, OnGrid, Rule, Runs


@dataclass(frozen=True, eq=False)
class Arrays:
    """Columns as NumPy arrays, all of one length; None, NaN and masked values are missing."""

    arrays: Mapping[str, NDArray[Any]]

    @staticmethod
    def of(data: Mapping[str, Any]) -> Arrays:
        """Reads a mapping from names to columns.

        Raises:
            ParameterError: a name is no text, or a column is no array, is not one-dimensional or
                has another length than the first.
        """
        arrays = {}
        for name, column in data.items():
            if not isinstance(name, str):
                raise refuse("data", "have texts as names of columns", name)
            if not isinstance(column, np.ndarray):  # guard: typed-arrays
                # NumPy would read the type of a list off its values: one record could change it
                raise ParameterError(
                    f"data[{name!r}] must be a NumPy array, which has a type, got "
                    f"{type(column).__name__}: say np.array(column, dtype=...), or give a frame"
                )
            array = _plain(column)
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
            rows = self._rows(contribution)
            return [len({names[i] for i in rows[true[rows]]}) for true in found]
        used = [rule for rule in conditions if isinstance(rule, str)]
        kept = self._chosen(contribution, sorted(set(used)), self._rows(contribution))
        return [int(np.count_nonzero(true[kept])) for true in found]

    def sums(self, contribution: Contribution, columns: Sequence[OnGrid]) -> list[int]:
        """Adds up each of the columns, exactly."""
        used = _names(columns)
        kept = self._chosen(contribution, used, self._rows(contribution))
        return [sum(int(x) for x in self._integers(column)[kept]) for column in columns]

    def histogram(self, contribution: Contribution, column: OnGrid) -> Runs:
        """Counts the rows of each point that occurs, in ascending order of the points."""
        kept = self._chosen(contribution, _names([column]), self._rows(contribution))
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
        named, kept = self._of_groups(contribution, by, columns, keys)
        units = self._units(contribution)
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

    def histograms(
        self,
        contribution: Contribution,
        by: Sequence[str],
        column: OnGrid,
        *,
        keys: Sequence[Key] | None,
    ) -> dict[Key, Runs]:
        """Counts the rows of each point in each group that occurs."""
        named, kept = self._of_groups(contribution, by, [column], keys)
        integers, found = self._integers(column), dict[Key, Counter[int]]()
        for i in kept.tolist():
            key = named[i] if len(by) > 1 else named[i][0]
            found.setdefault(key, Counter())[int(integers[i])] += 1
        return {key: sorted(counts.items()) for key, counts in found.items()}

    def cell_counts(
        self,
        contribution: Contribution,
        cells: Mapping[str, ColumnCells],
        marginals: Sequence[Sequence[str]],
    ) -> list[Runs]:
        """Counts the rows in each cell of several marginals."""
        codes = {name: of.codes(self._named(name)) for name, of in cells.items()}
        numbered = Arrays({**self.arrays, **{cell_of(name): codes[name] for name in codes}})
        used = [cell_of(name) for name in cells]
        kept = numbered._chosen(contribution, used, numbered._rows(contribution))
        found: list[Runs] = []
        for names in marginals:
            of_row, there = np.zeros(kept.size, dtype=np.int64), np.ones(kept.size, dtype=np.bool_)
            for name in names:
                there &= codes[name][kept] != NOWHERE
                of_row = of_row * cells[name].size + codes[name][kept]
            points, numbers = np.unique(of_row[there], return_counts=True)
            found.append(list(zip(points.tolist(), numbers.tolist(), strict=True)))
        return found

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

    def together(self, scans: Sequence[Callable[[], Any]]) -> list[Any]:
        """Returns what each of several scans returns, one after the other."""
        return [scan() for scan in scans]

    def with_keys(self, name: str, rule: DerivedKeys) -> Arrays:
        """Returns the rows with a column of the keys that a rule derives; None for no key."""
        check_names([name])
        array = self._named(rule.column)
        values, labelled = _compared(array, rule.for_type(_kind(array), f"domains[{name!r}]"))
        keys = np.array([labelled.label(value) for value in values], dtype=object)
        return Arrays({**self.arrays, name: keys})

    # ------------------------------------------------------------------ which rows count

    @property
    def _length(self) -> int:
        return len(next(iter(self.arrays.values())))

    def _rows(self, contribution: Contribution) -> NDArray[np.int64]:
        """Returns the numbers of the rows that may count: not those whose unit cannot be told.

        Such a row would be a unit of its own, whoever it is of, and a person could have many.
        """
        if contribution.unit is None:
            return np.arange(self._length)
        names = _known(self.arrays[contribution.unit])
        # guard: rows-of-odd-units-left-out
        counts = [name is not _NO_NAME for name in names]
        return np.flatnonzero(counts)

    def _units(self, contribution: Contribution) -> list[Any]:
        """Returns the unit of each row; a row whose unit is missing has one of its own.

        No name has None in it.
        """
        if contribution.unit is None:
            return [(None, i) for i in range(self._length)]
        names = _known(self.arrays[contribution.unit])
        # guard: row-without-unit-alone
        return [(None, i) if _missing(u) else u for i, u in enumerate(names)]

    def _of_groups(
        self,
        contribution: Contribution,
        by: Sequence[str],
        columns: Sequence[OnGrid],
        keys: Sequence[Key] | None,
    ) -> tuple[list[tuple[Key, ...]], NDArray[np.int64]]:
        """Returns the keys of each row, and the numbers of the rows that count in some group.

        Without columns they are those of the groups in which a unit counts, however many.
        """
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
        kept = np.intersect1d(rows, self._rows(contribution))
        if not columns or contribution.groups < contribution.rows:
            kept = self._in_groups(contribution, kept, named)
        if columns:
            kept = self._chosen(contribution, sorted({*by, *_names(columns)}), kept)
        return named, kept

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


class _NoName:
    """An object of an array that names nothing: no text, number or date."""


_NO_NAME = _NoName()


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Returns an array with missing values in place of masked ones.

    Its type depends on the type of the array alone, and not on masked values.
    """
    if not isinstance(array, np.ma.MaskedArray):
        return np.asarray(array)
    # guard: masked-values-are-missing
    hidden = np.ma.getmaskarray(array)
    kind, values = array.dtype.kind, np.array(array.data)
    if kind in "fc" or kind == "M":
        values[hidden] = np.nan if kind in "fc" else np.array("NaT", values.dtype)
        return values
    values = values.astype(object)
    values[hidden] = None
    return values


def _known(array: NDArray[Any]) -> list[Any]:
    """Returns the names of units or groups that a column has, None where one is missing."""
    if array.dtype.kind == "M":
        return [
            None if lost else x for x, lost in zip(array.tolist(), np.isnat(array), strict=True)
        ]
    values: list[Any] = array.tolist()
    return [_named(value) for value in values] if array.dtype.kind == "O" else values


def _named(value: Any) -> Any:
    """Returns an object of an array in the one form that all objects equal to it have.

    Python takes True, 1, 1.0 and Decimal("1.00") for one key, and would show the form of the first
    record. A number is an integer where it is one, else a double that is equal, else a fraction.

    No code of the object itself is called, since that could raise an error, or look about. So an
    object of another type than those below names nothing: see :meth:`Arrays._rows`.
    """
    kind = type(value)
    if kind in (str, bytes, np.str_, np.bytes_, uuid.UUID, datetime.date):
        return value.item() if issubclass(kind, np.generic) else value
    if kind is datetime.datetime and value.tzinfo is None:
        return value.replace(fold=0)  # two that are equal may differ in it
    if kind is tuple:
        parts = tuple(_named(part) for part in value)
        odd = any(part is None or part is _NO_NAME for part in parts)
        return _NO_NAME if odd else parts
    if value is None or value is np.ma.masked or _is_not_a_time(value):
        return None
    if kind in _NUMBERS or issubclass(kind, (np.integer, np.floating, np.bool_)):
        return _one_form(value)  # guard: one-form-of-a-name
    return _NO_NAME  # guard: odd-objects-name-nothing


_NUMBERS = (bool, int, float, Decimal, Fraction)


def _one_form(value: Any) -> Any:
    """Returns a number in one form; None for NaN."""
    exact = number(value)
    if not isinstance(exact, Fraction):
        # str() of an integer of more digits is an error
        return _NO_NAME if isinstance(exact, int) and exact.bit_length() > 4096 else exact
    if exact.denominator == 1:
        return _one_form(int(exact))
    try:
        near = float(exact)
    except OverflowError:
        return exact
    return near if Fraction(near) == exact else exact


# Ticks of NumPy's dates: how many make a second, or how many seconds one of them has.
_IN_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SECONDS = {"W": 7 * 86_400, "D": 86_400, "h": 3_600, "m": 60}


def _compared(array: NDArray[Any], labelled: Labelled) -> tuple[list[Any], Labelled]:
    """Returns values and edges that Python compares exactly; None for a value that has no order.

    Raises:
        ParameterError: the dates are of a unit that has no fixed length.
    """
    if array.dtype.kind == "M":
        unit, many = np.datetime_data(array.dtype)
        if unit not in {**_IN_A_SECOND, **_SECONDS}:
            raise ParameterError(f"dates must be of days or seconds, got {array.dtype}")
        each, second = many * _SECONDS.get(unit, 1), _IN_A_SECOND.get(unit, 1)
        ticks: list[Any] = array.astype(np.int64).tolist()
        lost = np.isnat(array).tolist()
        values = [None if gone else n * each for n, gone in zip(ticks, lost, strict=True)]
        return values, replace(labelled, edges=tuple(_second(e) * second for e in labelled.edges))
    if array.dtype.kind != "O":
        return array.tolist(), labelled
    if isinstance(labelled.edges[-1], datetime.date):
        found = [_moment(value) for value in _known(array)]
    else:
        kinds = (int, float, Fraction)
        found = [value if type(value) in kinds else None for value in _known(array)]
    return found, labelled


def _second(edge: Any) -> int:
    """Returns the number of a date's or a timestamp's second, from 1970 on."""
    days: int = edge.toordinal() - datetime.date(1970, 1, 1).toordinal()
    return days * 86_400


def _moment(value: Any) -> datetime.datetime | None:
    """Returns a date or timestamp of an array of objects as a timestamp; None for other objects."""
    if type(value) is datetime.datetime:
        return value
    if type(value) is datetime.date:
        return datetime.datetime(value.year, value.month, value.day)
    return None


def _is_not_a_time(value: Any) -> bool:
    """Whether an object stands for a missing value: NaT of NumPy, NaT and NA of pandas."""
    if type(value) in (np.datetime64, np.timedelta64):
        return bool(np.isnat(value))
    kind = type(value)
    return kind.__module__.startswith("pandas.") and kind.__name__ in ("NaTType", "NAType")


def _missing(value: Any) -> bool:
    """Whether a name, or a value of a typed array, is missing."""
    return value is None or value is _NO_NAME or bool(value != value)


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
