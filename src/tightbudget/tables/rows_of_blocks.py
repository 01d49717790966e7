"""The rows of a table that are in blocks of a ledger, by the columns that blocks follow from."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse
from tightbudget.promises.block_names import CALENDAR, period
from tightbudget.tables.columns import KINDS, kind_of
from tightbudget.tables.table import Table, check_column

_DAY = datetime.timedelta(days=1)


def rows_in_blocks(
    table: Table, chosen: Mapping[str, Sequence[str]], columns: Mapping[str, str]
) -> Table:
    """Returns the table of the rows that are in one of the blocks; those of no block are left out.

    Guarantee: whether a row is left depends on that row alone, and each row that is left is in a
    block of the range, as far as the columns say.

    Args:
        table: the table.
        chosen: for each dimension of the blocks the values, all combinations of which are blocks.
        columns: for each dimension the column whose value is the block's: texts, integers or
            dates. ``day``, ``month`` and ``year`` take timestamps, too.

    Raises:
        ParameterError: a dimension has no column; a column is not there, or of another type.
    """
    given: Any = columns
    if not isinstance(given, Mapping) or set(given) != set(chosen):
        must = f"name a column for each dimension of the blocks: {', '.join(chosen)}"
        raise refuse("columns", must, given)
    for dimension, values in chosen.items():
        table = table.filter(_rule(table, dimension, columns[dimension], values))
    return table


def _rule(table: Table, dimension: str, column: str, values: Sequence[str]) -> Any:
    """Returns the rule of the rows whose value in one dimension is among these.

    Raises:
        ParameterError: the column's type has no such values.
    """
    what = f"columns[{dimension!r}]"
    check_column(table.source, what, column)
    told = table.columns[column]
    kind = kind_of(told)
    if kind in (KINDS["texts"], KINDS["padded texts"]):
        return lambda t: t[column].isin(list(values))
    if kind is KINDS["integers"]:
        numbers = [_integer(dimension, value) for value in values]
        return lambda t: t[column].isin(numbers)
    if dimension in CALENDAR and kind in (KINDS["dates"], KINDS["timestamps"]):
        periods = _together([period(value) for value in values])
        return lambda t: _within(t[column], periods, at_midnight=kind is KINDS["timestamps"])
    if kind is KINDS["dates"]:
        days = _together([(day, day) for day in (_date(dimension, value) for value in values)])
        return lambda t: _within(t[column], days, at_midnight=False)
    more = ", or of dates or timestamps without a time zone" if dimension in CALENDAR else ""
    raise refuse(what, f"be a column of texts, integers or dates{more}", f"{column} ({told})")


def _integer(dimension: str, value: str) -> int:
    """Reads a value of a dimension whose column has integers.

    Raises:
        ParameterError: it is none as they are written: another block would have the rows.
    """
    try:
        found = int(value)
    except ValueError:
        found = None
    if found is None or str(found) != value:
        raise ParameterError(
            f"{dimension} must be an integer as it is written (7 and not 07), since its column has "
            f"integers, got {value!r}"
        )
    return found


def _date(dimension: str, value: str) -> datetime.date:
    """Reads a value of a dimension whose column has dates.

    Raises:
        ParameterError: it is no date.
    """
    try:
        found = datetime.date.fromisoformat(value)
    except ValueError:
        found = None
    if found is None or found.isoformat() != value:
        raise ParameterError(
            f"{dimension} must be a date such as 2026-01-31, since its column has dates, "
            f"got {value!r}"
        )
    return found


_Period = tuple[datetime.date, datetime.date]


def _together(periods: Sequence[_Period]) -> list[_Period]:
    """Joins periods that follow each other: a year of days is one comparison."""
    joined: list[_Period] = []
    for first, last in sorted(periods):
        if joined and first.toordinal() == joined[-1][1].toordinal() + 1:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def _within(value: Any, periods: Sequence[_Period], *, at_midnight: bool) -> Any:
    """Says of a column of dates or timestamps whether it is in one of the periods."""

    def moment(day: datetime.date) -> datetime.date:
        return datetime.datetime(day.year, day.month, day.day) if at_midnight else day

    found = None
    for first, last in periods:
        inside = value >= moment(first)
        if last < datetime.date.max:  # there is no day after it
            inside = inside & (value < moment(last + _DAY))
        found = inside if found is None else found | inside
    return found
