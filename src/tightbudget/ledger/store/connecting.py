"""Connections to the database: its address, how they are made, begun, committed and dropped."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from tightbudget.errors import ExtraError, LedgerError, ParameterError
from tightbudget.ledger.store.idle_connections import IdleConnections
from tightbudget.ledger.store.sqlite_files import (
    GuardedConnection,
    ProcessState,
    abandon,
    this_process,
)
from tightbudget.numerics.validate import refuse

INIT = "tightbudget ledger init makes one"

# Parameters of libpq that hold a secret, or name a file of one; the others help to find a mistake.
_SECRET_PARAMETER = re.compile(r"([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*", re.IGNORECASE)

# Every transaction begins here: the drivers begin nothing on their own. On SQLite a write takes the
# lock at its beginning: with the default ("deferred") two of them could read the same balance. On
# PostgreSQL the lock is the advisory one of this number; what is read afterwards is what others
# have committed. It is freed when a commit is in the log, which may not be on the disk yet: the log
# keeps the order of acts, and a flush afterwards, with the commit of a message that says nothing,
# waits for the disk and for the standby servers that are to be waited for.
BEGIN = {
    ("sqlite", "write"): "BEGIN IMMEDIATE",
    ("sqlite", "read"): "BEGIN DEFERRED",
    ("postgresql", "write"): (
        "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE;"
        " SET LOCAL synchronous_commit = off;"
        " SET LOCAL lock_timeout = '60s';"
        # who is paused in the middle of an act loses it, and does not keep the others waiting
        " SET LOCAL idle_in_transaction_session_timeout = '60s';"
        # Rows are searched for in an index, one by one: no table and no index is read through. By
        # statistics of a table of one row that would be cheap; and the plan of a foreign key's
        # check lives as long as its session. What cannot be searched for costs so much by these
        # settings that it would be compiled.
        " SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off;"
        " SET LOCAL enable_indexonlyscan = off; SET LOCAL jit = off;"
        " SELECT pg_advisory_xact_lock(8386102942711423603)"
    ),
    ("postgresql", "flush"): (
        "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE;"
        " SET LOCAL synchronous_commit = on;"
        " SELECT pg_logical_emit_message(true, 'tightbudget', '')"
    ),
    ("postgresql", "read"): "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
}


def checked(url: str, create: bool) -> URL:
    """Reads a database's address; the path of a file becomes absolute.

    Raises:
        ParameterError: no ledger can be there.
        LedgerError: there is no such file, and none may be made.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise refuse("url", "be a database URL such as sqlite:///budget.db", url) from None
    backend = parsed.get_backend_name()
    if backend not in ("sqlite", "postgresql"):
        raise ParameterError(f"url must be one of sqlite or postgresql, got {backend}")
    if backend == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise ParameterError("url must name a file: a budget in memory is forgotten")
        if not create and not Path(str(parsed.database)).is_file():
            raise LedgerError(f"there is no ledger {parsed.database}: {INIT}")
        # connections are made later, too, from wherever the process is then
        return parsed.set(database=str(Path(str(parsed.database)).resolve()))
    return parsed


def shown(url: URL) -> str:
    """Writes a database's address with ``***`` for its passwords, also those in its parameters."""
    rendered = url.render_as_string(hide_password=True)
    return _SECRET_PARAMETER.sub(r"\1***", rendered)  # guard: parameters-hidden


def new_engine(url: URL, patience: float) -> Engine:
    """Makes the engine that connects to a database.

    Args:
        url: of the database.
        patience: the seconds that SQLite waits for a lock.

    Raises:
        ExtraError: the database's driver is not installed.
    """
    settings: dict[str, Any] = {}
    # as many connections as there are threads: they queue for the lock, not for a connection
    pool: dict[str, Any] = {"poolclass": IdleConnections}
    if url.get_backend_name() == "sqlite":
        settings = {"timeout": patience, "factory": GuardedConnection}
    else:
        # No statement is prepared. Behind a pooler, a name would be that of another client's
        # statement; and a plan that is kept is one for the rows that there were.
        settings = {"prepare_threshold": None}
        # the driver begins nothing on its own: a BEGIN of its would be one more way to the server
        pool["isolation_level"] = "AUTOCOMMIT"
        pool["pool_size"] = 32  # threads that wait for the same flush, each with its connection
    try:
        engine = create_engine(url, connect_args=settings, **pool)
    except (ImportError, NoSuchModuleError) as error:
        raise ExtraError(
            f"{url.drivername} needs a driver: pip install 'tightbudget[postgresql]'"
        ) from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda made, _: _set_up_sqlite(made, patience))
    event.listen(engine, "begin", _begin)
    return engine


def _set_up_sqlite(connection: Any, patience: float) -> None:
    """Sets a new connection to SQLite up: WAL mode, full durability, all constraints."""
    connection.isolation_level = None  # the driver begins nothing on its own
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",  # a commit is on the disk when it returns
        "foreign_keys = ON",
        "recursive_triggers = ON",  # also what REPLACE deletes is refused
        "schema_version",  # reads: from here on, -wal and -shm are there
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    files = this_process().files_of(connection)
    if files is not None:
        files.remember(patience)


def _begin(connection: Connection) -> None:
    """Begins a transaction with the statements for its deed, reading or writing."""
    deed = connection.get_execution_options().get("deed", "write")  # guard: write-lock-first
    connection.exec_driver_sql(BEGIN[connection.dialect.name, deed])


def commit(connection: Connection) -> None:
    """Commits a transaction; after a failure it closes the connection.

    The transaction of such a connection may still be open.
    """
    try:
        connection.commit()
    except BaseException:
        connection.invalidate()
        raise


def drop(process: ProcessState, connection: Connection, driver: Any) -> None:
    """Closes a connection for good, and with it a transaction; a child leaves it to its parent."""
    if this_process() is not process:
        abandon(connection)
        return
    try:
        with suppress(Exception):  # an interrupt leaves SQLAlchemy's own state anywhere
            connection.invalidate()
    finally:
        driver.close()
