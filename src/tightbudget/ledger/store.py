"""The database: the beginning and the end of each transaction, repetitions, and errors.

Every write goes through :meth:`Store.write`. A transaction there begins by taking the one lock of
the ledger, so that acts happen one after the other and each sees all that was done before it. It
is durable when ``write`` returns. The module :mod:`tightbudget.ledger.guard` adds the locks that
SQLite itself does not take.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
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
from tightbudget.ledger.guard import (
    Files,
    GuardedConnection,
    ProcessState,
    abandon,
    this_process,
)
from tightbudget.ledger.schema import VERSION, VERSION_TABLE
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.transactions import Uncopied

__all__ = ["Store"]

T = TypeVar("T")

_INIT = "tightbudget ledger init makes one"
# Seconds that an act waits for its turn, and SQLite for the lock. An act itself takes milliseconds;
# PostgreSQL's timeouts below are the same, so that both databases refuse alike.
_PATIENCE = 60.0
_TRIES = 4  # attempts at one act, each in a new transaction
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


@dataclass
class _Here:
    """The engine, the turn and the guarded files that one process has for a ledger."""

    engine: Engine
    turn: threading.Lock = field(default_factory=threading.Lock)
    files: Files | None = None  # of SQLite, while it is open


class Store(Uncopied):
    """A ledger's tables in one database.

    Args:
        url: the database, as SQLAlchemy has it: ``sqlite:///budget.db``, ``postgresql+psycopg://host/name``.
        create: whether to make the tables where there are none.
    """

    _instead = "open the ledger again by its address, also in another process"

    def __init__(self, url: str, create: bool) -> None:
        self._url = _checked(url, create)
        # A forked child keeps the entries of its parents: to forget them would close connections.
        self._in: dict[ProcessState, _Here] = {}
        self._file: tuple[int, int] | None = None
        self._end: weakref.finalize[..., Store] | None = None
        try:
            if self.version() != VERSION:
                self.write(lambda connection: _upgrade(connection, create))
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return self._url.render_as_string(hide_password=True)

    @property
    def dialect(self) -> str:
        """The name of the database system: sqlite or postgresql."""
        return self._url.get_backend_name()

    def close(self) -> None:
        """Gives all connections back."""
        here = self._in.get(this_process())
        if here is None:
            return
        files, here.files = here.files, None
        if files is None:
            here.engine.dispose()
        else:
            this_process().detach(files, here.engine, wait=True)
        if self._end is not None:
            self._end.detach()

    @property
    def _engine(self) -> Engine:
        return self._here().engine

    def _here(self) -> _Here:
        """Returns this process's own engine and files; a forked child makes its own."""
        process = this_process()
        here = self._in.get(process) or self._in.setdefault(process, _Here(_engine(self._url)))
        if here.files is None and self.dialect == "sqlite":
            try:
                files = process.attach(str(self._url.database), here.engine, _PATIENCE)
            except (OSError, sqlite3.Error) as error:
                raise LedgerError(f"{self} cannot be read: {error}") from error
            # a ledger that is forgotten without close() is closed all the same
            self._end = weakref.finalize(self, process.detach, files, here.engine, wait=False)
            if self._file not in (None, files.identity):
                process.detach(files, here.engine, wait=True)
                raise LedgerError(f"{self} is not the file that was opened: open the ledger again")
            self._file, here.turn, here.files = files.identity, files.turn, files
        return here

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """Opens a connection of this process to the files that it opened first.

        A child that is forked meanwhile neither uses nor closes the connection.
        """
        process, here = this_process(), self._here()
        if here.files is not None:
            here.files.check()  # SQLite would make the files that are not there
        connection = here.engine.connect()
        try:
            yield connection
        finally:
            if this_process() is process:
                connection.close()
            else:
                abandon(connection)

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Lets one thread of this process write at a time, in the order in which they came.

        SQLite keeps no queue of its own: a thread that has just come may overtake all others.

        Raises:
            LedgerError: the other threads did not come to an end.
        """
        turn = self._here().turn
        if not turn.acquire(timeout=_PATIENCE):
            raise LedgerError(f"nothing was changed in {self}: too many acts are waiting")
        try:
            yield
        finally:
            turn.release()

    def _alone(self) -> AbstractContextManager[None]:
        """Lets one process write at a time to SQLite; PostgreSQL sees to that by itself."""
        files = self._here().files
        return nullcontext() if files is None else files.writing(_PATIENCE)

    def version(self) -> str | None:
        """Reads the version of the ledger's tables; None if there are no tables."""
        with self.reading() as connection:
            return _version(connection)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Opens one unchanging view of the whole ledger, also while others write.

        Raises:
            LedgerError: the database cannot be read.
        """
        try:
            with self._connection() as connection:
                process = this_process()
                connection.execution_options(deed="read")
                connection.begin()
                yield connection
                if this_process() is process:
                    _commit(connection)
        except DBAPIError as error:
            raise LedgerError(f"{self} cannot be read: {error.orig}") from error

    def write(self, act: Callable[[Connection], T]) -> T:
        """Runs an act in one transaction: all of it is durable on return, or nothing was done.

        An act that fails before its commit is known not to have happened. It is tried again if
        another attempt may do better: after a lost connection or a deadlock.

        Raises:
            LedgerError: the database does not do it; ``unknown`` where it may have.
        """
        for attempt in range(1, _TRIES + 1):
            committing = False
            try:
                with self._in_turn(), self._alone(), self._connection() as connection:
                    process, files = this_process(), self._here().files
                    connection.begin()
                    result = act(connection)
                    if this_process() is not process:
                        raise LedgerError(f"an act on {self} is its parent's, not a child's")
                    committing = True
                    _commit(connection)
                    if files is not None:
                        self._check_committed(connection, files)
                    return result
            except DBAPIError as error:
                if committing:
                    raise self._unknown(error.orig) from error
                if attempt == _TRIES or not _may_pass(error):
                    raise LedgerError(f"nothing was changed in {self}: {error.orig}") from error
        raise AssertionError("the last attempt returns or raises")

    def _check_committed(self, connection: Connection, files: Files) -> None:
        """Finds out whether SQLite has written to the files that other processes see.

        Raises:
            LedgerError: it has not, or nobody can tell; ``unknown`` is set.
        """
        try:
            files.check()  # guard: files-checked-afterwards
        except LedgerError as error:
            connection.invalidate()
            raise self._unknown(error) from error

    def _unknown(self, reason: object) -> LedgerError:
        """Makes the error of an act that may have been done."""
        return LedgerError(
            f"{self} did not say whether the act happened: {reason}; ask again under the same key",
            unknown=True,
        )


def _checked(url: str, create: bool) -> URL:
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
            raise LedgerError(f"there is no ledger {parsed.database}: {_INIT}")
        # connections are made later, too, from wherever the process is then
        return parsed.set(database=str(Path(str(parsed.database)).resolve()))
    return parsed


def _engine(url: URL) -> Engine:
    """Makes the engine that connects to a database.

    Raises:
        ExtraError: the database's driver is not installed.
    """
    settings: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        settings = {"timeout": _PATIENCE, "factory": GuardedConnection}
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
        files.remember(_PATIENCE)


def _begin(connection: Connection) -> None:
    """Begins a transaction with the statements for its deed, reading or writing."""
    deed = connection.get_execution_options().get("deed", "write")  # guard: write-lock-first
    connection.exec_driver_sql(_BEGIN[connection.dialect.name, deed])


def _commit(connection: Connection) -> None:
    """Commits a transaction; after a failure it closes the connection.

    The transaction of such a connection may still be open.
    """
    try:
        connection.commit()
    except BaseException:
        connection.invalidate()
        raise


def _may_pass(error: DBAPIError) -> bool:
    """Says whether an act that failed before its commit may succeed in another attempt."""
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _PASSING


_versions = table(VERSION_TABLE, column("version_num"))


def _version(connection: Connection) -> str | None:
    """Reads the version of the ledger's tables; None if there are no tables."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.scalar(select(_versions.c.version_num))
    return found


def _upgrade(connection: Connection, create: bool) -> None:
    """Brings the tables of any earlier version to the version of this code.

    Raises:
        LedgerError: there are no tables and none may be made, or a later version made them.
    """
    found = _version(connection)
    if found is None and not create:
        raise LedgerError(f"there is no ledger in this database: {_INIT}")
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
