"""The database: the beginning and the end of each transaction, repetitions, and errors.

Every write goes through :meth:`Store.write`. A transaction there begins by taking the one lock of
the ledger, so that acts happen one after the other and each sees all that was done before it. An
act is durable when ``write`` returns, and so is everything that :meth:`Store.reading` shows. Many
acts become durable together: the acts that wait in one process share a transaction; on
PostgreSQL, it is committed without waiting for the disk, and all that are to be
answered share a flush of the log. The module :mod:`tightbudget.ledger.guard` adds the locks that
SQLite itself does not take, and :mod:`tightbudget.ledger.turns` the turns of threads.
"""

from __future__ import annotations

import re
import sqlite3
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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

from tightbudget.errors import ExtraError, LedgerCorruptError, LedgerError, ParameterError
from tightbudget.ledger.guard import (
    Files,
    GuardedConnection,
    ProcessState,
    abandon,
    this_process,
)
from tightbudget.ledger.idle_connections import IdleConnections
from tightbudget.ledger.schema import VERSION, VERSION_TABLE
from tightbudget.ledger.turns import (
    SharedFlush,
    Turn,
    Turns,
    UnknownOutcomeError,
    Waiting,
    interrupt_behind,
)
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.transactions import Uncopied

T = TypeVar("T")

_INIT = "tightbudget ledger init makes one"
# Seconds that an act waits for its turn, and SQLite for the lock. An act itself takes milliseconds;
# PostgreSQL's timeouts below are the same, so that both databases refuse alike.
_PATIENCE = 60.0
_TRIES = 4  # attempts at one act, each in a new transaction
# The most acts of one transaction, and the seconds after which it takes no more of them: as much
# as a commit to a slow disk takes, so that nobody waits long for the acts of others.
_MOST_ACTS, _LONGEST_BATCH = 64, 0.02
# "serialization_failure", "deadlock_detected": rolled back, says PostgreSQL, and to be tried again
_PASSING = ("40001", "40P01")

# Every transaction begins here: the drivers begin nothing on their own. On SQLite a write takes the
# lock at its beginning: with the default ("deferred") two of them could read the same balance. On
# PostgreSQL the lock is the advisory one of this number; what is read afterwards is what others
# have committed. It is freed when a commit is in the log, which may not be on the disk yet: the log
# keeps the order of acts, and a flush afterwards, with the commit of a message that says nothing,
# waits for the disk and for the standby servers that are to be waited for.
_BEGIN = {
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
# Asked by the last statement of an act: the last event that it has written or seen, whose hash is
# of all events before it, and whether the server writes anything to the disk at all.
_LAST = """
SELECT sequence, hash, current_setting('fsync') = 'on'
FROM events ORDER BY sequence DESC LIMIT 1
"""
# The same for an act that is rolled back: what it has written itself is no event that stays. It
# is the first of its transaction, outside of all savepoints, so its rows have the transaction's id.
_LAST_BEFORE = """
SELECT sequence, hash, current_setting('fsync') = 'on' FROM events
WHERE xmin IS DISTINCT FROM pg_current_xact_id_if_assigned()::xid
ORDER BY sequence DESC LIMIT 1
"""
_HAS_EVENTS = "SELECT to_regclass('events') IS NOT NULL"
# Asked by a flush. Its connection need not lead to the server of the act: a pooler keeps it open
# when the server has crashed or another one has taken its place, and the act is gone. A
# transaction that sees the event comes after the act in the log, and is the proof.
_HASH = "SELECT hash FROM events WHERE sequence = %(sequence)s"
# Asked by the first statement of a reading, so after its snapshot was made: all that the snapshot
# shows is in the log before the place at which the log ends now. A standby server has only what
# is on the disk of its primary.
_IS_BEHIND = """
SELECT CASE WHEN pg_is_in_recovery() THEN false ELSE
    current_setting('synchronous_standby_names') <> ''
    OR pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn() END
"""


class _SharedError(Exception):
    """A transaction that cannot be shared with other acts."""


@dataclass
class _Here:
    """The engine, the turns and the guarded files that one process has for a ledger."""

    engine: Engine
    flush: SharedFlush
    turns: Turns = field(default_factory=Turns)
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
            found = self.version()
            if found is None and not create:
                raise LedgerError(f"there is no ledger in this database: {_INIT}")
            if found is not None and not re.fullmatch("[0-9]{4}", found):
                said = f"{found[:100]!r}"
                raise LedgerCorruptError(f"the version of the ledger's tables is none: {said}")
            if found != VERSION:
                self.write(lambda connection: migrate(connection, VERSION))
                if self.version() != VERSION:  # a reading shows what is durable
                    raise LedgerError(f"{self} has lost the tables that were just made in it")
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
        here = self._in.get(process) or self._in.setdefault(process, self._new())
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
            self._file, here.turns, here.files = files.identity, files.turns, files
        return here

    def _new(self) -> _Here:
        """Makes what this process has for the ledger: an engine, and turns."""
        return _Here(_engine(self._url), SharedFlush(self._flush_log))

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

    def _write_on_connection(self, deed: Callable[[Connection], None]) -> None:
        """Does a deed on a connection of its own, whose transaction ends with the deed.

        A deed that raises, an interrupt too, costs the connection: it is closed, however much of it
        a traceback keeps.
        """
        process, here = this_process(), self._here()
        if here.files is not None:
            here.files.check()  # SQLite would make the files that are not there
        connection = here.engine.connect()
        driver = connection.connection.dbapi_connection
        try:
            try:
                deed(connection)
            except BaseException:
                _drop(process, connection, driver)
                raise
        except BaseException:  # for an interrupt of the one above
            _drop(process, connection, driver)
            raise
        connection.close()

    def version(self) -> str | None:
        """Reads the version of the ledger's tables; None if there are no tables."""
        with self.reading() as connection:
            return _version(connection)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Opens one unchanging view of the whole ledger, also while others write.

        Guarantee: all that the view shows is durable.

        Raises:
            LedgerError: the database cannot be read.
            LedgerCorruptError: it has something in it that is no text, or no row.
        """
        try:
            with self._connection() as connection:
                process = this_process()
                connection.execution_options(deed="read")
                connection.begin()
                if self.dialect == "postgresql" and connection.exec_driver_sql(_IS_BEHIND).scalar():
                    self._wait_for_log()  # guard: nothing-told-before-flushed
                yield connection
                if this_process() is process:
                    _commit(connection)
        except DBAPIError as error:
            kind = LedgerCorruptError if _is_damaged(error) else LedgerError
            raise kind(f"{self} cannot be read: {error.orig}") from error

    def write(self, act: Callable[[Connection], T]) -> T:
        """Runs an act in one transaction: all of it is durable on return, or nothing was done.

        An act that fails before its commit is known not to have happened. It is tried again if
        another attempt may do better: after a lost connection or a deadlock.

        Guarantee: the answer, a refusal too, rests on nothing that a crash could undo.

        Raises:
            LedgerError: the database does not do it; ``unknown`` where it may have.
        """
        mine, before = Waiting(act), sys.exc_info()[1]
        try:
            turns = self._here().turns
            may_ask = turns.enter(mine, lambda: self._run(mine, turns))
        except Exception as error:
            if interrupt := interrupt_behind(error, before):
                raise interrupt from None
            raise
        if not may_ask:
            raise LedgerError(
                f"nothing was changed in {self}: this thread is in the middle of another act"
            )
        found: T = mine.outcome()
        return found

    def _run(self, mine: Waiting, turns: Turns) -> None:
        """Has an act run, by this thread or by another, until it is committed or has raised.

        Raises:
            LedgerError: the database does not do it; ``unknown`` where it may have.
        """
        tries = 0
        while True:
            turn = self._turn(mine, turns)
            if turn is None:
                return
            try:
                self._lead(mine, turn, turns)
                return
            except _SharedError:
                turns.pass_on(mine)  # the next time it is alone
            except DBAPIError as error:
                turns.pass_on(mine)
                tries += 1
                if tries == _TRIES or not _may_pass(error):
                    raise LedgerError(f"nothing was changed in {self}: {_said(error)}") from error

    def _turn(self, mine: Waiting, turns: Turns) -> Turn | None:
        """Waits for the turn of this thread; None if another one has done the act ``mine``.

        Raises:
            LedgerError: the other threads did not come to an end.
        """
        try:
            return turns.take(mine, _PATIENCE)
        except TimeoutError as error:
            raise LedgerError(
                f"nothing was changed in {self}: too many acts are waiting"
            ) from error
        except UnknownOutcomeError as error:
            raise self._unknown(error) from error

    def _lead(self, mine: Waiting, turn: Turn, turns: Turns) -> None:
        """Runs an act, and the acts that wait for this process's turn, and commits once.

        Raises:
            DBAPIError: nothing was changed.
            LedgerError: nothing was changed; ``unknown`` where it may have been.
        """
        files = self._here().files

        def deed(connection: Connection) -> None:
            self._transact(connection, mine, turn, turns)

        if files is None:  # PostgreSQL lets one process write at a time
            self._write_on_connection(deed)
        else:
            files.writing(_PATIENCE, lambda: self._write_on_connection(deed))

    def _transact(self, connection: Connection, mine: Waiting, turn: Turn, turns: Turns) -> None:
        """Runs the acts of a turn in one transaction of a connection; see :meth:`_lead`."""
        process, files = this_process(), self._here().files
        connection.begin()
        try:
            mine.result, mine.error = _done(mine.act, connection), None
        except DBAPIError:
            raise
        except Exception as error:
            if this_process() is not process:
                raise
            mine.error, last = error, self._last(connection, _LAST_BEFORE)
            connection.rollback()
            self._flush(connection, mine, last)  # guard: nothing-refused-before-flushed
            return
        if not mine.is_alone and this_process() is process:
            self._run_others(connection, mine, turn, turns)
        if this_process() is not process:
            raise LedgerError(f"an act on {self} is its parent's, not a child's")
        last = self._last(connection)
        turn.is_committing = True
        try:
            _commit(connection)
            if files is not None:
                self._check_committed(connection, files)
            self._flush(connection, mine, last)  # guard: flushed-before-answered
        except Exception as error:
            said = _said(error) if isinstance(error, DBAPIError) else str(error)
            turn.fail(f"the commit of several acts failed: {said}")
            if isinstance(error, DBAPIError):
                raise self._unknown(said) from error
            raise
        turn.settle()

    def _run_others(self, connection: Connection, mine: Waiting, turn: Turn, turns: Turns) -> None:
        """Runs the acts that wait, each in a savepoint of the transaction that has begun.

        Args:
            connection: a connection in a transaction.
            mine: the act of this thread, which was run.
            turn: the turn of this thread, which claims the others.
            turns: of this process.

        Raises:
            _SharedError: the transaction cannot be shared; nothing may be committed.
        """
        process, end = this_process(), time.monotonic() + _LONGEST_BATCH
        while len(turn.others) < _MOST_ACTS - 1 and time.monotonic() < end:
            other = turns.next(turn)
            if other is None:
                return
            try:
                connection.exec_driver_sql("SAVEPOINT act")
                try:
                    other.result, other.error = _done(other.act, connection), None
                except DBAPIError:
                    raise
                except Exception as error:
                    if this_process() is not process:
                        raise
                    other.error = error
                    connection.exec_driver_sql("ROLLBACK TO act")  # guard: savepoint-rolled-back
                if this_process() is not process:
                    return
                connection.exec_driver_sql("RELEASE act")
            except DBAPIError as error:
                # the error may have ended the transaction of all: each of the two is run alone
                mine.is_alone = other.is_alone = True
                raise _SharedError from error

    def _last(self, connection: Connection, asked: str = _LAST) -> tuple[int, str] | None:
        """Reads the number and the hash of the last event that an act on PostgreSQL has seen.

        Returns:
            None on SQLite, and in a ledger without events.

        Raises:
            LedgerError: the server writes nothing to the disk.
        """
        if self.dialect != "postgresql":
            return None
        # an act that was to make the tables has failed
        is_new = asked is _LAST_BEFORE and not connection.exec_driver_sql(_HAS_EVENTS).scalar()
        found = None if is_new else connection.exec_driver_sql(asked).one_or_none()
        if found is None:
            return None
        sequence, hash, is_durable = found
        if not is_durable:  # guard: nothing-charged-without-fsync
            raise LedgerError(
                f"nothing was changed in {self}: its server runs with fsync = off, and may lose"
                " after a power cut what was charged; set fsync = on"
            )
        return sequence, hash

    def _flush(self, connection: Connection, mine: Waiting, last: tuple[int, str] | None) -> None:
        """Passes the turn on, and waits until all that an act has done or seen is on the disk.

        SQLite needs nothing of that.

        Args:
            connection: the connection of the act, whose transaction has ended.
            mine: the act, which has the turn.
            last: the number and the hash of the last event that the act has written or seen.

        Raises:
            DBAPIError: the server does not do it.
            LedgerError: the server has lost that event; ``unknown`` is set.
        """
        if self.dialect != "postgresql":
            return
        self._here().turns.pass_on(mine)
        connection.execution_options(deed="flush")
        connection.begin()
        kept = True  # a ledger without events, or without tables, has nothing to lose
        if last is not None:
            sequence, hash = last
            kept = connection.exec_driver_sql(_HASH, {"sequence": sequence}).scalar() == hash
        _commit(connection)
        if not kept:  # guard: answered-if-still-there
            raise self._unknown("the server has lost it, or another server has taken its place")

    def _wait_for_log(self) -> None:
        """Waits until the log of PostgreSQL is on the disk as far as this thread has seen it.

        Raises:
            DBAPIError: the server does not do it.
            LedgerError: another thread waits for the server, and gets no answer.
        """
        try:
            self._here().flush.wait(_PATIENCE)
        except TimeoutError as error:
            raise LedgerError(f"{self} does not write its log to the disk") from error

    def _flush_log(self) -> None:
        """Commits a message to the log of PostgreSQL, which is on the disk then up to there."""
        with self._connection() as connection:
            connection.execution_options(deed="flush")
            connection.begin()
            _commit(connection)

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
    # as many connections as there are threads: they queue for the lock, not for a connection
    pool: dict[str, Any] = {"poolclass": IdleConnections}
    if url.get_backend_name() == "sqlite":
        settings = {"timeout": _PATIENCE, "factory": GuardedConnection}
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


def _done(act: Callable[[Connection], T], connection: Connection) -> T:
    """Runs an act; an interrupt that becomes another exception on its way stays an interrupt."""
    before = sys.exc_info()[1]
    try:
        return act(connection)
    except Exception as error:
        if interrupt := interrupt_behind(error, before):
            raise interrupt from None
        raise


def _drop(process: ProcessState, connection: Connection, driver: Any) -> None:
    """Closes a connection for good, and with it a transaction; a child leaves it to its parent."""
    if this_process() is not process:
        abandon(connection)
        return
    try:
        with suppress(Exception):  # an interrupt leaves SQLAlchemy's own state anywhere
            connection.invalidate()
    finally:
        driver.close()


def _said(error: DBAPIError) -> str:
    """Returns what the database has said, and on a full disk what helps: to ask again does not."""
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "sqlite_errorcode", None)
    is_full = code in ("53100", sqlite3.SQLITE_FULL)  # of PostgreSQL, "disk_full"
    return f"{error.orig}: free some space on its disk" if is_full else str(error.orig)


def _is_damaged(error: DBAPIError) -> bool:
    """Says whether SQLite has found what is no text, or no row, which it never writes."""
    is_corrupt = getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_CORRUPT
    return is_corrupt or "Could not decode to UTF-8" in str(error.orig)


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
