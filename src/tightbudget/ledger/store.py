"""The database: how a transaction begins, what is tried again, and what an error means.

Everything that is written goes through :meth:`Store.write`. A transaction there begins by
taking the one lock of the ledger, so that acts happen one after the other and each sees all
that was done before it. It is durable when ``write`` returns.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    column,
    create_engine,
    event,
    inspect,
    make_url,
    select,
    table,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from tightbudget.errors import ExtraError, LedgerError, ParameterError
from tightbudget.ledger.schema import VERSION, VERSION_TABLE
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.acts import Uncopied

__all__ = ["Store"]

T = TypeVar("T")

_PATIENCE = 60.0  # seconds that an act waits for its turn, and SQLite for the lock
_TRIES = 4
# "serialization_failure", "deadlock_detected": rolled back, says PostgreSQL, and to be tried again
_PASSING = ("40001", "40P01")

# Every transaction begins here. On SQLite a write takes the lock at its beginning: with the
# default ("deferred") two of them could read the same balance. On PostgreSQL the lock is the
# advisory one of this number; what is read afterwards is what others have committed.
_BEGIN = {
    ("sqlite", "write"): "BEGIN IMMEDIATE",
    ("sqlite", "read"): "BEGIN DEFERRED",
    ("postgresql", "write"): (
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;"
        " SET LOCAL synchronous_commit = on;"
        " SET LOCAL lock_timeout = '60s';"
        # who is paused in the middle of an act loses it, and does not keep the others waiting
        " SET LOCAL idle_in_transaction_session_timeout = '60s';"
        " SELECT pg_advisory_xact_lock(8386102942711423603)"
    ),
    ("postgresql", "read"): "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
}


class Store(Uncopied):
    """A ledger's tables in one database.

    Args:
        url: as SQLAlchemy has it: ``sqlite:///budget.db``, ``postgresql+psycopg://host/name``.
        create: whether to make the tables where there are none.
    """

    _instead = "open the ledger again by its address, also in another process"

    def __init__(self, url: str, create: bool) -> None:
        self._url = _checked(url, create)
        self._engine, self._turn = _engine(self._url), threading.Lock()
        self._process = os.getpid()
        self._of_parents: list[Engine] = []
        self._file: tuple[int, int] | None = None
        try:
            if self.version() != VERSION:
                self.write(lambda connection: _upgrade(connection, create))
            self._file = _file(self._url)
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return self._url.render_as_string(hide_password=True)

    @property
    def dialect(self) -> str:
        """Which database it is: sqlite or postgresql."""
        return self._engine.dialect.name

    def close(self) -> None:
        """Gives all connections back."""
        self._engine.dispose()

    def _connection(self) -> Connection:
        """A connection of this process."""
        self._arrive()
        if self._file is not None and self._file != _file(self._url):
            # connections that are open would go on writing to a file that nobody finds any more
            raise LedgerError(f"{self} is not the file that was opened: open the ledger again")
        return self._engine.connect()

    def _arrive(self) -> None:
        """In a process that was forked: what its parent has open, and waits for, is left to it."""
        if self._process != os.getpid():
            self._of_parents.append(self._engine)  # kept: to forget it would close connections
            self._engine, self._turn = _engine(self._url), threading.Lock()
            self._process = os.getpid()

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        """One thread of this process at a time: SQLite keeps no queue, and lets the last win.

        Raises:
            LedgerError: the others did not come to an end.
        """
        self._arrive()
        turn = self._turn
        if not turn.acquire(timeout=_PATIENCE):
            raise LedgerError(f"nothing was changed in {self}: too many acts are waiting")
        try:
            yield
        finally:
            turn.release()

    def version(self) -> str | None:
        """The version of the tables that are there; None if there are none."""
        with self.reading() as connection:
            return _version(connection)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One unchanging view of everything, also while others write."""
        try:
            with self._connection() as connection:
                connection.execution_options(deed="read")
                with connection.begin():
                    yield connection
        except DBAPIError as error:
            raise LedgerError(f"{self} cannot be read: {error.orig}") from error

    def write(self, act: Callable[[Connection], T]) -> T:
        """Does the act in one transaction: the whole of it is durable on return, or nothing.

        What fails before it is committed is known not to have happened. It is tried again if
        another attempt may do better: after a lost connection, a deadlock.

        Raises:
            LedgerError: the database does not do it; ``unknown`` where it may have.
        """
        for attempt in range(1, _TRIES + 1):
            committing = False
            try:
                with self._in_turn(), self._connection() as connection:
                    connection.begin()
                    result = act(connection)
                    committing = True
                    _commit(connection)
                    return result
            except DBAPIError as error:
                if committing:
                    raise LedgerError(
                        f"{self} did not say whether the act happened: {error.orig};"
                        " ask again under the same key",
                        unknown=True,
                    ) from error
                if attempt == _TRIES or not _may_pass(error):
                    raise LedgerError(f"nothing was changed in {self}: {error.orig}") from error
        raise AssertionError("the last attempt returns or raises")


def _checked(url: str, create: bool) -> URL:
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
            raise LedgerError(f"there is no ledger {parsed.database}")
        # connections are made later, too, from wherever the process is then
        return parsed.set(database=str(Path(str(parsed.database)).resolve()))
    return parsed


def _file(url: URL) -> tuple[int, int] | None:
    """Which file is there now, whatever its name; None where the ledger is none."""
    if url.get_backend_name() != "sqlite":
        return None
    try:
        found = os.stat(str(url.database))
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino


def _engine(url: URL) -> Engine:
    settings = {"timeout": _PATIENCE} if url.get_backend_name() == "sqlite" else {}
    try:
        # as many connections as there are threads: they queue for the lock, not for a connection
        engine = create_engine(url, connect_args=settings, max_overflow=-1)
    except (ImportError, NoSuchModuleError) as error:
        raise ExtraError(
            f"{url.drivername} needs a driver: pip install 'tightbudget[postgresql]'"
        ) from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin)
    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # the driver begins nothing on its own
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",  # a commit is on the disk when it returns
        "foreign_keys = ON",
        "recursive_triggers = ON",  # also what REPLACE deletes is refused
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    deed = connection.get_execution_options().get("deed", "write")
    connection.exec_driver_sql(_BEGIN[connection.dialect.name, deed])


def _commit(connection: Connection) -> None:
    """Commits; a connection that could not is closed, since its transaction may be open still."""
    try:
        connection.commit()
    except BaseException:
        connection.invalidate()
        raise


def _may_pass(error: DBAPIError) -> bool:
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _PASSING


_versions = table(VERSION_TABLE, column("version_num"))


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.scalar(select(_versions.c.version_num))
    return found


def _upgrade(connection: Connection, create: bool) -> None:
    """Brings the tables to the version of this code, whatever earlier version they have."""
    found = _version(connection)
    if found is None and not create:
        raise LedgerError("there is no ledger in this database")
    migrate(connection, VERSION)


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
    config.set_main_option("script_location", "tightbudget.ledger:migrations")
    try:
        command.upgrade(config, version)
    except CommandError as error:
        raise LedgerError(f"these tables are not of a version up to {version}: {error}") from error
