"""Statements that an act or a reading executes often: compiled once, and given to the driver.

SQLAlchemy looks a statement up in its cache at each execution, and arranges its values anew: two
thirds of the processor time of an act on one budget, and a third of one on 10,000 budgets.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, Dialect
from sqlalchemy.sql.expression import Executable

__all__ = ["execute", "execute_each"]


def execute(connection: Connection, statement: Executable, **values: Any) -> Any:
    """Executes a statement that a module keeps, and returns the cursor's result.

    Values and rows are as the driver has them: the ledger stores integers and texts only.
    """
    return execute_each(connection, statement, [values])


def execute_each(
    connection: Connection, statement: Executable, values: Sequence[Mapping[str, Any]]
) -> CursorResult[Any]:
    """Executes a statement that a module keeps, once for each set of values, of the same names."""
    sql, order, fixed = _compiled(statement, connection.dialect, tuple(values[0]))
    given: list[Any] = [{**fixed, **row} for row in values] if fixed else list(values)
    if order is not None:
        given = [tuple(map(row.__getitem__, order)) for row in given]
    return connection.exec_driver_sql(sql, given if len(given) > 1 else given[0])


# A ledger has some thirty such statements, on two databases.
@functools.lru_cache(maxsize=200)
def _compiled(
    statement: Executable, dialect: Dialect, names: tuple[str, ...]
) -> tuple[str, Sequence[str] | None, Mapping[str, Any]]:
    """Returns a statement's text, the order of its values, and those that it has itself."""
    compiled: Any = statement.compile(dialect=dialect, column_keys=list(names))  # type: ignore[attr-defined]
    fixed = {name: value for name, value in compiled.params.items() if name not in names}
    return str(compiled), compiled.positiontup, fixed
