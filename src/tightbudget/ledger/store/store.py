"""The database: the beginning and the end of each transaction, repetitions, and errors.

Every write goes through :meth:`Store.write`. A transaction there begins by taking the one lock of
the ledger, so that acts happen one after the other and each sees all that was done before it. An
act is durable when ``write`` returns, and so is everything that :meth:`Store.reading` shows. Many
acts become durable together: the acts that wait in one process share a transaction; on
PostgreSQL, it is committed without waiting for the disk, and all that are to be
answered share a flush of the log. The locks that SQLite itself does not take are in
:mod:`tightbudget.ledger.store.sqlite_files`, the turns of threads in
:mod:`tightbudget.ledger.store.turns`.
"""

from __future__ import annotations

import re
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from tightbudget.errors import LedgerCorruptError, LedgerError
from tightbudget.ledger.store import postgresql_log
from tightbudget.ledger.store.connecting import INIT, checked, commit, drop, new_engine, shown
from tightbudget.ledger.store.driver_errors import is_damaged, may_pass, said_by
from tightbudget.ledger.store.schema import VERSION
from tightbudget.ledger.store.shared_flush import SharedFlush
from tightbudget.ledger.store.sqlite_files import Files, ProcessState, abandon, this_process
from tightbudget.ledger.store.turns import Turn, Turns, UnknownOutcomeError, Waiting
from tightbudget.ledger.store.versions import migrate, version_of
from tightbudget.ledger.store.visits import run_interruptible
from tightbudget.output_dp.transactions import Uncopied

T = TypeVar("T")

# Seconds that an act waits for its turn, and SQLite for the lock. An act itself takes milliseconds;
# PostgreSQL's timeouts are the same, so that both databases refuse alike.
_PATIENCE = 60.0
_TRIES = 4  # attempts at one act, each in a new transaction
# The most acts of one transaction, and the seconds after which it takes no more of them: as much
# as a commit to a slow disk takes, so that nobody waits long for the acts of others.
_MOST_ACTS, _LONGEST_BATCH = 64, 0.02


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
        self._url = checked(url, create)
        # A forked child keeps the entries of its parents: to forget them would close connections.
        self._in: dict[ProcessState, _Here] = {}
        self._file: tuple[int, int] | None = None
        self._end: weakref.finalize[..., Store] | None = None
        try:
            found = self.version()
            if found is None and not create:
                raise LedgerError(f"there is no ledger in this database: {INIT}")
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
        return shown(self._url)

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
        return _Here(new_engine(self._url, _PATIENCE), SharedFlush(self._flush_log))

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
                drop(process, connection, driver)
                raise
        except BaseException:  # for an interrupt of the one above
            drop(process, connection, driver)
            raise
        connection.close()

    def version(self) -> str | None:
        """Reads the version of the ledger's tables; None if there are no tables."""
        with self.reading() as connection:
            return version_of(connection)

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
                if self.dialect == "postgresql" and postgresql_log.is_behind(connection):
                    self._wait_for_log()  # guard: nothing-told-before-flushed
                yield connection
                if this_process() is process:
                    commit(connection)
        except DBAPIError as error:
            kind = LedgerCorruptError if is_damaged(error) else LedgerError
            raise kind(f"{self} cannot be read: {error.orig}") from error

    def write(self, act: Callable[[Connection], T]) -> T:
        """Runs an act in one transaction: all of it is durable on return, or nothing was done.

        An act that fails before its commit is known not to have happened. It is tried again if
        another attempt may do better: after a lost connection or a deadlock.

        Guarantee: the answer, a refusal too, rests on nothing that a crash could undo.

        Raises:
            LedgerError: the database does not do it; ``unknown`` where it may have.
        """
        mine = Waiting(act)

        def may_ask() -> bool:
            turns = self._here().turns
            return turns.enter(mine, lambda: self._run(mine, turns))

        if not run_interruptible(may_ask):
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
                if tries == _TRIES or not may_pass(error):
                    raise LedgerError(f"nothing was changed in {self}: {said_by(error)}") from error

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
            mine.result, mine.error = run_interruptible(mine.act, connection), None
        except DBAPIError:
            raise
        except Exception as error:
            if this_process() is not process:
                raise
            mine.error, last = error, self._last(connection, before=True)
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
            commit(connection)
            if files is not None:
                self._check_committed(connection, files)
            self._flush(connection, mine, last)  # guard: flushed-before-answered
        except Exception as error:
            said = said_by(error) if isinstance(error, DBAPIError) else str(error)
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
                    other.result, other.error = run_interruptible(other.act, connection), None
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

    def _last(self, connection: Connection, *, before: bool = False) -> tuple[int, str] | None:
        """Reads the number and the hash of the last event that an act on PostgreSQL has seen.

        Returns:
            None on SQLite, and in a ledger without events.

        Raises:
            LedgerError: the server writes nothing to the disk.
        """
        if self.dialect != "postgresql":
            return None
        found = postgresql_log.last_event(connection, before=before)
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
        # a ledger without events, or without tables, has nothing to lose
        kept = last is None or postgresql_log.has_event(connection, *last)
        commit(connection)
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
            commit(connection)

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
