"""The tables of a new SQLite ledger, written as migrations have left them in another one.

Migrations take 35 ms of CPU for each ledger, and their last definitions a tenth of that. Tests
whose subject is how a ledger is made use the fixture ``migrations``; other processes migrate.
"""

from __future__ import annotations

import functools

from sqlalchemy import Connection, create_engine, text

from tightbudget.ledger.store import store
from tightbudget.ledger.store.schema import VERSION, VERSION_TABLE
from tightbudget.ledger.store.versions import migrate

_FOUND = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"


def install() -> None:
    """Lets the ledgers of this process make their tables so."""
    vars(store)["migrate"] = make_tables


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
    with engine.begin() as connection:
        migrate(connection, VERSION)
        return tuple(connection.exec_driver_sql(_FOUND).scalars())
