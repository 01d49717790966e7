"""What each new ledger costs, paid once: its tables and the texts of its statements.

The tables of a new SQLite ledger are written as migrations have left them in another one.
Migrations take 35 ms of CPU for each ledger, and their last definitions a tenth of that. Tests
whose subject is how a ledger is made use the fixture ``migrations``; other processes migrate.

A statement is compiled for an engine, and each ledger has its own; SQLite's texts are all alike.
"""

from __future__ import annotations

import functools
from typing import Any

from sqlalchemy import Connection, Dialect, create_engine, text

from tightbudget.ledger.store import driver, store
from tightbudget.ledger.store.schema import VERSION, VERSION_TABLE
from tightbudget.ledger.store.versions import migrate

_compiled_for = driver._compiled
_FOUND = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"


def install() -> None:
    """Lets the ledgers of this process make their tables and their statements so."""
    vars(store)["migrate"] = make_tables
    vars(driver)["_compiled"] = _compiled


def make_tables(connection: Connection, version: str) -> None:
    """Does what ``migrate`` does; in an empty SQLite file, without running migrations again."""
    is_new = (
        version == VERSION
        and connection.dialect.name == "sqlite"
        and not connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar()
    )
    if not is_new:
        migrate(connection, version)
        return
    for statement in _statements():
        connection.exec_driver_sql(statement)
    connection.execute(text(f"INSERT INTO {VERSION_TABLE} VALUES (:version)"), {"version": version})


@functools.cache
def _statements() -> tuple[str, ...]:
    engine = create_engine("sqlite://")
    try:
        with engine.begin() as connection:
            migrate(connection, VERSION)
            return tuple(connection.exec_driver_sql(_FOUND).scalars())
    finally:
        engine.dispose()  # Python 3.13 warns of a connection that is left open


def _compiled(statement: Any, dialect: Dialect, names: tuple[str, ...]) -> Any:
    if dialect.name == "sqlite":
        dialect = _SQLITE.setdefault("sqlite", dialect)
    return _compiled_for(statement, dialect, names)


_SQLITE: dict[str, Dialect] = {}  # the first one that was asked for
