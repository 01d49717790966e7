"""The public cells of a column, so numbered that an engine can say of each row in which one it is.

A cell is a listed value, or a range of numbers, or the one cell of all other rows. A row's cell
depends on that row alone, and no value makes a query fail.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.validate import refuse
from tightbudget.tables.columns import OWN, check_role, name_of, public_keys
from tightbudget.tables.rules.expressions import as_double, double, import_ibis

NOWHERE = -1  # the cell of a row that counts in no cell
# So many values are compared one by one; more of them are joined as a table.
_COMPARED = 32
_MOST_NUMBERS = 1000  # listed floating-point numbers, which are not joined


@dataclass(frozen=True, kw_only=True)
class ColumnCells:
    """The cells of one column.

    Attributes:
        column: the column.
        size: the number of cells.
        keys: the listed values, in the column's form, each with its cell; none where cells are
            ranges of numbers.
        edges: n + 1 ascending numbers: cell i has the numbers from edge i on and before the next
            one, and the last cell has its last edge, too; none where cells are listed values.
        other: the cell of what is missing or in no other cell; :data:`NOWHERE` for none.
        codes: from an array of the column's values to the cell of each.
    """

    column: str
    size: int
    keys: Sequence[tuple[Any, int]] = ()
    edges: Sequence[float] = ()
    other: int = NOWHERE
    codes: Callable[[Any], NDArray[np.int64]]

    def on(self, table: Any, name: str) -> Any:
        """Returns a table of Ibis with one more column, which has the cell of each row.

        Args:
            table: the table.
            name: of the new column.
        """
        value = table[self.column]
        if self.edges:
            return table.mutate(**{name: self._range(as_double(value))})
        if len(self.keys) > _COMPARED and not value.type().is_floating():
            return self._joined(table, name)
        if value.type().is_floating():  # of one length, since 0.1 has two
            places = [(as_double(value) == double(key), cell) for key, cell in self.keys]
        else:
            places = [(value == _literal(key, value.type()), cell) for key, cell in self.keys]
        return table.mutate(**{name: _chosen(places, self.other)})

    def _range(self, x: Any) -> Any:
        """Returns the expression of the range that a double is in."""
        edges = list(self.edges)
        # NaN is not at most the last edge on any engine, and neither is what is missing
        within = (x >= double(edges[0])) & (x <= double(edges[-1]))  # guard: nan-in-no-range

        def between(first: int, last: int) -> Any:
            if last - first == 1:
                return _number(first)
            middle = (first + last) // 2
            below = (x < double(edges[middle]), between(first, middle))
            return import_ibis().cases(below, else_=between(middle, last))

        inside = (within, between(0, len(edges) - 1))
        return import_ibis().cases(inside, else_=_number(self.other)).cast("int32")

    def _joined(self, table: Any, name: str) -> Any:
        """Joins the listed values, each of which is there once: so each row stays one row."""
        ibis, arrow = import_ibis(), _arrow()
        kind = table.schema()[self.column].to_pyarrow()
        keys, cells = zip(*self.keys, strict=True)
        known = ibis.memtable(
            arrow.table({self.column: arrow.array(keys, kind), name: arrow.array(cells, "int32")})
        )
        joined = table.left_join(known, self.column)
        found = joined[name].fill_null(_number(self.other)).cast("int32")
        return joined.select(*table.columns, **{name: found})


def cell_of(name: str) -> str:
    """Returns the name of the column that has the cells of a column."""
    return f"{OWN}cell_{name}"


def listed_cells(
    columns: Mapping[str, str], name: str, values: Sequence[Any], codes: Callable[[Any], Any]
) -> ColumnCells:
    """Returns cells that are single values; None among them is the cell of all others.

    Args:
        columns: from the names of a source's columns to their types.
        name: the column.
        values: the value of each cell, no two of which are equal.
        codes: from an array of the column's values to the cell of each.

    Raises:
        ParameterError: the column is not there, its type has no such values, or two values are one
            in the column's form.
    """
    argument = f"domains[{name!r}]"
    _check_column(columns, argument, name)
    other = list(values).index(None) if None in values else NOWHERE
    cells = [i for i, value in enumerate(values) if value is not None]
    keys: Sequence[Any] = [values[i] for i in cells]
    if name_of(columns[name]) == "floating-point numbers":
        keys = [_double(argument, columns[name], key) for key in keys]
        if len(keys) > _MOST_NUMBERS:
            must = f"list at most {_MOST_NUMBERS} floating-point numbers, or be NumericBins"
            raise refuse(argument, must, f"{len(keys)} values")
    elif keys:
        keys = public_keys(columns, name, keys)
    else:
        check_role(columns, argument, name, "public key")
    numbered = list(zip(keys, cells, strict=True))
    return ColumnCells(column=name, size=len(values), keys=numbered, other=other, codes=codes)


def cells_of_ranges(
    columns: Mapping[str, str],
    name: str,
    edges: Sequence[float],
    codes: Callable[[Any], Any],
    *,
    other: bool,
) -> ColumnCells:
    """Returns cells that are ranges of numbers, and the last one of all others if ``other``.

    Raises:
        ParameterError: the column is not there, or has no numbers.
    """
    argument = f"domains[{name!r}]"
    _check_column(columns, argument, name)
    if name_of(columns[name]) not in _NUMBERS:
        must = "list values, since NumericBins are made of a column of numbers"
        raise refuse(argument, must, f"bins of a column of type {columns[name]}")
    last = len(edges) - 1 if other else NOWHERE
    size = len(edges) - 1 + other
    return ColumnCells(column=name, size=size, edges=edges, other=last, codes=codes)


_NUMBERS = (
    *("integers", "truth values", "floating-point numbers", "decimals", "huge integers"),
    "objects",
)


def _check_column(columns: Mapping[str, str], argument: str, name: str) -> None:
    """Refuses a column that is not there, or whose type is not let in."""
    if name not in columns:
        raise refuse(argument, f"be one of the columns {', '.join(columns)}", name)
    check_role(columns, argument, name, "rule")


def _double(argument: str, kind: str, key: Any) -> float:
    """Returns the double that a listed number is.

    Raises:
        ParameterError: it is no number, or no double is equal to it.
    """
    try:
        found = float(key) if type(key) in (int, float) else None
    except OverflowError:
        found = None
    if found is None or found != key:
        raise refuse(argument, f"have values of the column's type, {kind} (numbers)", key)
    return found


def _chosen(places: Sequence[tuple[Any, int]], other: int) -> Any:
    if not places:
        return _number(other)
    numbered = [(condition, _number(cell)) for condition, cell in places]
    return import_ibis().cases(*numbered, else_=_number(other)).cast("int32")


def _number(cell: int) -> Any:
    return import_ibis().literal(cell, "int32")


def _literal(key: Any, kind: Any) -> Any:
    return import_ibis().literal(key, kind)


def _arrow() -> Any:
    return importlib.import_module("pyarrow")
