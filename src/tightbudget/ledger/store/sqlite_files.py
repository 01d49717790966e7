"""Locks on the files of a SQLite ledger, for writing and removing them, and care after a fork.

SQLite locks its files with POSIX locks. The operating system drops those of a whole process as
soon as anything in that process closes one of the files, and gives none of them to a forked
child, whose copy of SQLite believes to hold them all the same. A connection elsewhere then takes
itself for the last one and removes ``-wal``, and commits go into a file that has no name.

So a process that has a ledger open holds locks of its own (:mod:`ofd_locks`). Nothing that others
open, close or fork takes them away, and SQLite in every process respects them.

Source: https://www.sqlite.org/howtocorrupt.html (2.1 to 2.6), ``os_unix.c`` of SQLite
(``unixLock``, ``unixLockSharedMemory``), ``wal.c`` (``sqlite3WalClose``).
"""

from __future__ import annotations

import ctypes
import errno
import os
import sqlite3
import time
import weakref
from collections import ChainMap, deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from sqlalchemy import Engine

from tightbudget.errors import LedgerError
from tightbudget.ledger.store import file_systems, ofd_locks
from tightbudget.ledger.store.file_systems import Identity, identity_of, still_open
from tightbudget.ledger.store.ofd_locks import LONGEST_WAIT, TURN, TURN_AND_TICKETS, Line, Range
from tightbudget.ledger.store.turns import Turns
from tightbudget.ledger.store.visits import Exclusive

# SQLite locks these for reading while a connection is open. It must lock them for writing before
# it removes -wal and -shm, changes the journal mode or rolls a journal back (SHARED_FIRST).
_SHARED: Range = (0x40000002, 510)
# This byte of -shm says that somebody has it open: who finds it free empties -shm (UNIX_SHM_DMS).
_IN_USE: Range = (128, 1)


class GuardedConnection(sqlite3.Connection):
    """A connection to SQLite that a forked child can tell to be its parent's."""

    file: Identity | None = None

    def __init__(self, database: str, *arguments: Any, **settings: Any) -> None:
        self.path = database
        this_process().add(self)
        super().__init__(database, *arguments, **settings)
        self.file = identity_of(database)

    def close(self) -> None:
        """Closes the connection; a child that is forked from then on does not inherit it.

        SQLite closes it for good when the last cursor has gone, which the traceback of an interrupt
        may keep. Its transaction, with the lock, ends here.
        """
        try:
            self.rollback()
        except sqlite3.Error:
            pass  # there is no database behind it
        finally:
            super().close()
            this_process().discard(self)


class Files:
    """The database of one SQLite ledger, ``-wal`` and ``-shm``, guarded by this process.

    Guarantee: as long as one engine is attached, SQLite removes or empties ``-wal`` or ``-shm`` in
    no process; and in all processes together at most one thread is inside of :meth:`writing`, if
    each has its turn by :attr:`turns`. Where the system has no OFD locks, :attr:`is_locked` is
    False, and only :meth:`check` remains.

    Args:
        path: the path of the database, absolute and without symbolic links.
        identity: the device and the number of the database's file.
    """

    def __init__(self, path: str, identity: Identity) -> None:
        self.path, self.identity = path, identity
        self._names = path, f"{path}-wal", f"{path}-shm"
        self.turns = Turns()
        self.engines: dict[int, Engine] = {}
        self.is_locked = False
        self._opening = Exclusive()
        self._seen: tuple[Identity | None, ...] | None = None
        self._ours: dict[int, Identity] = {}  # our own descriptors, and what they were opened on
        self._database = self._index = -1
        self._is_writable = True
        self._line = Line()

    def lock(self, patience: float) -> None:
        """Guards the database, before its first connection is opened.

        Raises:
            LedgerError: it cannot be in WAL mode, or another process does not let it go.
            OSError: it cannot be opened.
            sqlite3.Error: it is no database.
        """
        try:
            self._database = self._open(self.path, os.O_RDWR)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            self._database, self._is_writable = self._open(self.path, os.O_RDONLY), False
        if self._ours[self._database] != self.identity:
            raise LedgerError(f"{self.path} was exchanged while it was opened: open it again")
        if not self._is_wal():
            _make_wal(self.path, patience)
        # guard: shared-lock-held
        self.is_locked = self._take("read", self._database, _SHARED, patience)

    def _open(self, path: str, mode: int) -> int:
        """Opens a file and notes which file its descriptor belongs to."""
        descriptor = os.open(path, mode)
        found = os.fstat(descriptor)
        self._ours[descriptor] = found.st_dev, found.st_ino
        return descriptor

    def _is_wal(self) -> bool:
        """Says whether the file is a database in WAL mode, with no change of mode half done."""
        os.lseek(self._database, 18, os.SEEK_SET)
        formats = os.read(self._database, 2)
        return formats == b"\2\2" and not os.path.exists(f"{self.path}-journal")

    def remember(self, patience: float) -> None:
        """Guards ``-shm``, too, and notes which files there are: a connection has them open now."""
        if self._seen is None:
            self._opening.run(lambda: self._remember(patience))

    def _remember(self, patience: float) -> None:
        """Does it, unless another thread has."""
        if self._seen is None:
            if self.is_locked:
                self._index = self._open(self._names[2], os.O_RDONLY)
                self._take("read", self._index, _IN_USE, patience)  # guard: index-in-use
            self._seen = self._now()

    def check(self) -> None:
        """Compares the files that are there now with those that were opened.

        Raises:
            LedgerError: one is another, or gone; or a descriptor of this object was closed.
        """
        if not self.is_locked and not this_process().has_open(self.identity):
            self._seen = None  # a -wal that no connection of this process has open may go
        seen, now = self._seen or (self.identity,), self._now()
        compared = zip(self._names, now, seen, strict=False)  # at first, the database alone
        changed = [name for name, new, old in compared if new != old]
        if changed:  # guard: files-checked-before
            raise LedgerError(
                f"{', '.join(changed)} is not the file that was opened: open the ledger again"
            )
        if len(self.descriptors()) < len(self._ours):
            raise LedgerError(
                f"the descriptors of {self.path} were closed by something else in this process:"
                " open the ledger after that"
            )

    def _now(self) -> tuple[Identity | None, ...]:
        """Reads which files have the names of the database, ``-wal`` and ``-shm`` now."""
        return tuple(map(identity_of, self._names))

    def writing(self, patience: float, deed: Callable[[], None]) -> None:
        """Does a deed while no other process writes, whatever has become of SQLite's own locks.

        Processes write in the order in which they came. The order is a courtesy, kept by tickets;
        that one process writes at a time is a promise, kept by the lock of the byte ``TURN``.

        Raises:
            LedgerError: the file is readonly, or another process does not come to an end.
        """
        if not self._is_writable:
            raise LedgerError(f"nothing was changed in {self.path}, which is readonly")
        try:
            try:
                with self._locking(), self._line.place(self._database) as ahead:
                    # guard: one-process-writes
                    self._take("write", self._database, TURN, patience, ahead)
                deed()
            finally:
                # in a child, the descriptor is closed
                ofd_locks.unlock(self._database, TURN_AND_TICKETS)
        finally:  # for an interrupt of the one above: other processes cannot tell that we have gone
            ofd_locks.unlock(self._database, TURN_AND_TICKETS)

    @contextmanager
    def _locking(self) -> Iterator[None]:
        """Raises a LedgerError where the system cannot lock the file."""
        try:
            yield
        except OSError as error:
            raise LedgerError(
                f"nothing was changed in {self.path}, which cannot be locked: {error.strerror}"
            ) from error

    def _take(
        self,
        kind: str,
        descriptor: int,
        where: Range,
        patience: float,
        ahead: Callable[[], int] | None = None,
    ) -> bool:
        """Waits for a lock, as :func:`ofd_locks.wait_for`; False where the system has none.

        Raises:
            LedgerError: another process did not give it back in time, or it cannot be locked.
        """
        with self._locking():
            taken = ofd_locks.wait_for(descriptor, kind, where, patience, ahead)
        if taken is False:
            raise LedgerError(
                f"nothing was changed in {self.path}: another process is in the middle of an act"
            )
        return taken is not None

    def unlock(self) -> None:
        """Allows the last connection to remove ``-wal`` and ``-shm``."""
        for descriptor in self.descriptors():
            ofd_locks.unlock(descriptor, _SHARED)
            ofd_locks.unlock(descriptor, _IN_USE)

    def tidy_up(self) -> None:
        """Lets SQLite remove ``-wal``, where a fork has closed the connections that would do it."""
        with suppress(LedgerError, sqlite3.Error):
            self.check()
            if self._seen:
                with closing(sqlite3.connect(self.path, factory=GuardedConnection)) as connection:
                    connection.execute("PRAGMA schema_version").fetchone()

    def descriptors(self) -> dict[int, Identity]:
        """Lists the open descriptors of this object, each with the file that it was opened on."""
        return still_open(self._ours)

    def forget(self) -> None:
        """Forgets the descriptors, whose numbers may soon belong to others."""
        self._ours.clear()


class ProcessState:
    """The SQLite ledgers that one process has open; a forked child begins with a new state.

    Args:
        lost: files whose connections were in use when an ancestor forked.
    """

    def __init__(self, lost: frozenset[Identity] = frozenset()) -> None:
        self.number = os.getpid()
        self.lost = lost
        self._door = Exclusive()  # for those who open a file, or give it back
        self._files: dict[Identity, Files] = {}
        self._leaving: deque[tuple[Files, Engine]] = deque()
        self._unclosed: dict[int, Identity] = {}
        self._connections: dict[int, weakref.ref[GuardedConnection]] = {}

    def add(self, connection: GuardedConnection) -> None:
        """Notes a connection before it is opened."""
        key, connections = id(connection), self._connections
        connections[key] = weakref.ref(connection, lambda _: connections.pop(key, None))

    def discard(self, connection: GuardedConnection) -> None:
        """Forgets a connection that is closed."""
        self._connections.pop(id(connection), None)

    def has_open(self, file: Identity) -> bool:
        """Says whether a connection has this file open."""
        there = (reference() for reference in list(self._connections.values()))
        return any(one is not None and one.file == file for one in there)

    def files_of(self, connection: GuardedConnection) -> Files | None:
        """Returns the guarded files that a connection has open."""
        return self._files.get(connection.file) if connection.file else None

    def attach(self, path: str, engine: Engine, patience: float) -> Files:
        """Guards the files of a ledger as long as an engine may have connections to them.

        Raises:
            LedgerError: SQLite cannot keep its promises there, or not in this process.
            OSError: the database cannot be opened.
            sqlite3.Error: it is none, or SQLite cannot use it.
        """

        def guarded() -> Files:
            while self._leaving:  # also what an interrupt has left half done
                self._let_one_go()
            files = self._guarded(path, patience)
            files.engines[id(engine)] = engine
            return files

        try:
            files = self._door.run(guarded)
        finally:
            self._let_go(wait=False)
        if files is None:
            raise LedgerError(f"this thread is in the middle of opening or closing {path}")
        return files

    def _guarded(self, path: str, patience: float) -> Files:
        """Returns the guarded files of a path; makes the database if there is none."""
        if not os.path.exists(path):
            file_systems.check_place(os.path.dirname(path))
            _make_wal(path, patience)
        file_systems.check_place(path)
        identity = file_systems.only_name_of(path)
        if identity in self.lost:  # guard: in-use-refused
            raise LedgerError(
                f"this process was forked while a connection to {path} was in use, and cannot use"
                " that file: start it with the method 'spawn' or 'forkserver', or fork between"
                " two acts"
            )
        if identity not in self._files:
            files = Files(path, identity)
            try:
                files.lock(patience)
            except BaseException:
                self._close(files)
                raise
            self._files[identity] = files
        return self._files[identity]

    def detach(self, files: Files, engine: Engine, *, wait: bool) -> None:
        """Closes the connections of an engine; with the last engine, the files are given back.

        Args:
            files: that the engine was attached to.
            engine: whose connections are closed.
            wait: whether to wait for other threads; otherwise, one of them does it. The thread
                that is interrupted in the middle of :meth:`attach`, by a signal or because garbage
                is collected, does it after that.
        """
        if self is this_process():
            self._leaving.append((files, engine))
            self._let_go(wait)

    def _let_go(self, wait: bool) -> None:
        """Lets all engines go that are to be detached, one after the other."""
        while self._leaving:
            if not self._door.run(self._let_one_go, wait=wait):
                return  # another thread does it, or this one, behind what it is in the middle of

    def _let_one_go(self) -> bool:
        """Closes the connections of one engine, and after the last one removes ``-wal``."""
        with suppress(IndexError):  # another thread was faster
            files, engine = self._leaving[0]
            is_last = files.engines.keys() == {id(engine)}
            if is_last:
                # who opens the file after an interrupt of this locks it anew
                if self._files.get(files.identity) is files:
                    del self._files[files.identity]
                files.unlock()  # before the connections are closed: the last of all tidies up
            engine.dispose()
            if is_last:
                files.tidy_up()  # does nothing, where the last connection did it
                self._close(files)
            files.engines.pop(id(engine), None)
            self._leaving.popleft()
        return True

    def _close(self, files: Files) -> None:
        """Closes descriptors, unless that would take their locks from connections of others."""
        ours = still_open(self._unclosed) | files.descriptors()
        in_use = {identity_of(fd) for fd in file_systems.open_descriptors() if fd not in ours}
        self._unclosed = {fd: file for fd, file in ours.items() if file in in_use}
        files.forget()
        for descriptor in ours.keys() - self._unclosed.keys():
            os.close(descriptor)

    def close_idle(self) -> None:
        """Closes the connections that are not in use: a child must inherit none."""
        for files in list(self._files.values()):
            for engine in list(files.engines.values()):
                engine.pool.dispose()  # guard: nothing-idle-inherited

    def left_by_parent(self) -> frozenset[Identity]:
        """Gives up, in a child, all that is its parent's; returns the files it must not use."""
        inherited = (files.descriptors() for files in self._files.values())
        for descriptor in ChainMap(still_open(self._unclosed), *inherited):
            # guard: parent-keeps-its-locks
            os.close(descriptor)  # the lock of the parent lives as long as any copy of it
        busy = [one for reference in self._connections.values() if (one := reference())]
        abandon(*busy)
        files_in_use = (one.file or identity_of(one.path) for one in busy)
        return self.lost | frozenset(file for file in files_in_use if file)


def abandon(*inherited: object) -> None:
    """Keeps objects for ever, also when the interpreter ends.

    A child that closes an inherited connection, or only rolls it back, writes to the files by what
    SQLite knew of them at the fork.
    """
    for one in inherited:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


def this_process() -> ProcessState:
    """Returns the state of this process: in a child a new one, even if Python missed the fork."""
    if _state.number != os.getpid():
        _begin_anew()
    return _state


def _begin_anew() -> None:
    """Gives a forked child a state of its own, once."""
    global _state
    if _state.number != os.getpid():
        _state = ProcessState(_state.left_by_parent())


_state = ProcessState()
if hasattr(os, "register_at_fork"):
    # neither of them takes a lock that another thread keeps for more than a few instructions
    os.register_at_fork(
        before=lambda: this_process().close_idle(), after_in_child=lambda: _begin_anew()
    )


def _make_wal(path: str, patience: float) -> None:
    """Makes the database, where there is none, and puts it into WAL mode.

    Raises:
        LedgerError: it cannot be in WAL mode.
        sqlite3.Error: SQLite cannot use it.
    """
    end = time.monotonic() + patience
    while True:
        try:
            with closing(
                sqlite3.connect(path, timeout=patience, factory=GuardedConnection)
            ) as connection:
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.Error as error:
            # of two that do this at the same time, SQLite turns one away at once
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(LONGEST_WAIT)
            continue
        if mode != "wal":
            raise LedgerError(f"{path} must be in SQLite's WAL mode, and stays in mode {mode}")
        return
