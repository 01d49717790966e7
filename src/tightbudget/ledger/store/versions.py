"""The version of a ledger's tables, and the way from an earlier one to this one."""

from __future__ import annotations

from sqlalchemy import Connection, column, inspect, select, table

from tightbudget.errors import LedgerError
from tightbudget.ledger.store.schema import VERSION_TABLE

_versions = table(VERSION_TABLE, column("version_num"))


def version_of(connection: Connection) -> str | None:
    """Reads the version of the ledger's tables; None if there are no tables."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.scalar(select(_versions.c.version_num))
    return found


def migrate(connection: Connection, version: str) -> None:
    """Runs the migrations up to a version, in the transaction that has begun.

    Raises:
        LedgerError: the tables were made by a later version of this package.
    """
    # not needed by those who open a ledger that is up to date
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "tightbudget.ledger.store:migrations")
    try:
        command.upgrade(config, version)
    except CommandError as error:
        raise LedgerError(f"these tables are not of a version up to {version}: {error}") from error
