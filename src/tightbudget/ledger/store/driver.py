"""Statements that an act or a reading executes often: compiled once, and given to the driver.

SQLAlchemy looks a statement up in its cache at each execution, and arranges its values anew: two
thirds of the processor time of an act on one budget, and a third of one on 10,000 budgets.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    CursorResult,
    Dialect,
    Insert,
    Text,
    bindparam,
    column,
    func,
    insert,
    select,
)
from sqlalchemy.sql.elements import BindParameter
from sqlalchemy.sql.expression import Executable
from sqlalchemy.sql.visitors import replacement_traverse

Row = Sequence[Any]


def execute(connection: Connection, statement: Executable, **values: Any) -> Any:
    """Executes a statement that a module keeps, and returns the cursor's result.

    Values and rows are as the driver has them: the ledger stores integers and texts only.
    """
    return execute_each(connection, statement, tuple(values), [tuple(values.values())])


def execute_each(
    connection: Connection, statement: Executable, names: tuple[str, ...], rows: Sequence[Row]
) -> CursorResult[Any]:
    """Executes a statement that a module keeps, once for each row of values.

    PostgreSQL gets all rows in one statement: one for each was half of the time of an act on
    10,000 budgets.

    Args:
        connection: a connection in a transaction.
        statement: an INSERT or an UPDATE; where there are several rows, an UPDATE changes for
            each of them another row of its table.
        names: the names of the values, in the order of a row.
        rows: at least one.
    """
    if len(rows) > 1 and connection.dialect.name == "postgresql":
        kinds = tuple(map(type, rows[0]))
        sql, fixed = _set_based(statement, connection.dialect, names, kinds)
        return connection.exec_driver_sql(sql, {**fixed, _GIVEN: _as_json(names, rows)})
    sql, arranged = _compiled(statement, connection.dialect, names)
    given = rows if arranged is None else list(map(arranged, rows))
    return connection.exec_driver_sql(sql, given if len(given) > 1 else given[0])


# A ledger has some thirty such statements, on two databases.
@functools.lru_cache(maxsize=200)
def _compiled(
    statement: Executable, dialect: Dialect, names: tuple[str, ...]
) -> tuple[str, Callable[[Row], Any] | None]:
    """Returns a statement's text, and what arranges a row for it, or None if nothing has to."""
    compiled: Any = statement.compile(dialect=dialect, column_keys=list(names))  # type: ignore[attr-defined]
    fixed = {name: value for name, value in compiled.params.items() if name not in names}
    if compiled.positiontup is None:
        return str(compiled), lambda row: {**fixed, **dict(zip(names, row, strict=True))}
    known = (*names, *fixed)
    places = tuple(map(known.index, compiled.positiontup))
    if places == tuple(range(len(names))):
        return str(compiled), None
    if len(places) == 1:
        return str(compiled), lambda row: (row[places[0]],)
    order, constants = itemgetter(*places), tuple(fixed.values())
    return str(compiled), lambda row: order((*row, *constants))


_GIVEN = "given"


@functools.lru_cache(maxsize=200)
def _set_based(
    statement: Executable, dialect: Dialect, names: tuple[str, ...], kinds: tuple[type, ...]
) -> tuple[str, dict[str, Any]]:
    """Makes a statement that does for all rows of a JSON text what another does for one.

    Args:
        statement: an INSERT of these columns, or an UPDATE with parameters of these names.
        dialect: that of PostgreSQL.
        names: the names of the values.
        kinds: the types of the values of an UPDATE, int or str; an INSERT has its table's.

    Returns:
        its text, and the values that it has itself.
    """
    if isinstance(statement, Insert):
        types = [statement.table.c[name].type for name in names]
    else:
        types = [BigInteger() if kind is int else Text() for kind in kinds]
    columns = [column(name, type) for name, type in zip(names, types, strict=True)]
    rows = func.json_to_recordset(bindparam(_GIVEN)).table_valued(*columns, name=_GIVEN)
    of = rows.render_derived(with_types=True).c

    def of_the_row(part: Any, **_: Any) -> Any:
        """Puts the value of a row in the place of the parameter of its name."""
        return of[part.key] if isinstance(part, BindParameter) and part.key in of else None

    if isinstance(statement, Insert):
        each: Any = insert(statement.table).from_select(list(names), select(*of))
    else:
        each = replacement_traverse(statement, {}, of_the_row)  # type: ignore[call-overload]
    compiled = each.compile(dialect=dialect)
    fixed = {name: value for name, value in compiled.params.items() if name != _GIVEN}
    return str(compiled), fixed


def _as_json(names: tuple[str, ...], rows: Sequence[Row]) -> str:
    """Writes rows as a JSON array of objects."""
    return json.dumps([dict(zip(names, row, strict=True)) for row in rows])
