"""Locks of open file descriptions ("OFD locks", Linux 3.15), and the line of those who wait.

A POSIX lock belongs to a process: it is gone as soon as anything in that process closes the file.
A lock of an open file description stays until the description is closed, or the process dies.

Source: ``fcntl(2)``.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Range = tuple[int, int]  # first byte, how many

# SQLite locks nothing there, far beyond the end of any database: the byte of the process that
# writes, and the bytes of those that wait. Who comes takes the first byte behind all that are
# taken; their number starts again whenever nobody waits.
TURN: Range = (1 << 62, 1)
_FIRST_TICKET = TURN[0] + 16
TURN_AND_TICKETS: Range = (TURN[0], 0)  # without an end

# elsewhere the structure that describes a lock has another order
SET = getattr(fcntl, "F_OFD_SETLK", None) if sys.platform == "linux" else None
_GET = getattr(fcntl, "F_OFD_GETLK", None) if sys.platform == "linux" else None
# Seconds between two attempts to take a lock: an act takes a few milliseconds, so that the process
# whose turn is next loses little by the shortest wait.
_SHORTEST_WAIT, LONGEST_WAIT = 0.0005, 0.02
# Seconds for which a process may let its turn go by before others pass it: far above the longest
# wait, so that only a process that is stopped, or that gets no time at all, loses its place.
_LONGEST_PAUSE = 0.5


def lock(descriptor: int, kind: str, where: Range) -> bool | None:
    """Tries to take an OFD lock, and says whether it could; None where the system has none."""
    if SET is None:
        return None
    try:
        fcntl.fcntl(descriptor, SET, _flock(kind, where))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        if error.errno == errno.EINVAL:  # an older kernel, or one that imitates Linux
            return None
        raise
    return True


def unlock(descriptor: int, where: Range) -> None:
    """Frees an OFD lock, where the system has them."""
    if SET is not None:
        with suppress(OSError):  # who has closed the descriptor has freed the lock
            fcntl.fcntl(descriptor, SET, _flock("free", where))


def taken(descriptor: int, where: Range) -> int | None:
    """Finds a byte in a range that another open file description has locked; None if there is none.

    A range of length 0 has no end. Where the system has no OFD locks, no byte is locked.
    """
    if _GET is None:
        return None
    try:
        found = fcntl.fcntl(descriptor, _GET, _flock("write", where))
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise
    kind, _, start, _, _ = struct.unpack("hhqqi", found)
    return None if kind == fcntl.F_UNLCK else max(start, where[0])


def wait_for(
    descriptor: int,
    kind: str,
    where: Range,
    patience: float,
    ahead: Callable[[], int] | None = None,
) -> bool | None:
    """Waits for an OFD lock.

    Args:
        descriptor: the open file.
        kind: read or write.
        where: the bytes to lock.
        patience: the longest wait in seconds.
        ahead: counts those who have the right to take it first.

    Returns:
        True if the lock was taken, False if another process did not give it back in time; None
        where the system has no such locks.

    Raises:
        OSError: the file cannot be locked.
    """
    end, wait = time.monotonic() + patience, _SHORTEST_WAIT
    while (first := ahead() if ahead else 0) or (found := lock(descriptor, kind, where)) is False:
        if time.monotonic() > end:
            return False
        time.sleep(wait)
        # who stands in line asks the more often the sooner its turn may come
        longer = (1 + first) * _SHORTEST_WAIT if ahead else 2 * wait
        wait = min(longer, LONGEST_WAIT)
    return found


class Line:
    """The processes that wait to write to one file, in the order in which they came."""

    def __init__(self) -> None:
        self._ignored = 0  # the last ticket of a process that let its turn go by

    @contextmanager
    def place(self, descriptor: int) -> Iterator[Callable[[], int]]:
        """Takes a ticket behind all others; the value says how far it is behind the first.

        A ticket is a lock on a byte, which the system frees when its process dies.

        Raises:
            OSError: the file cannot be locked.
        """
        ticket = _FIRST_TICKET
        try:
            while (found := taken(descriptor, (ticket, 0))) is not None:
                ticket = found + 1
            # of two that come at the same moment, one takes the byte behind the other's
            while lock(descriptor, "write", (ticket, 1)) is False:
                ticket += 1
            place = _PlaceInLine(descriptor, ticket, ignored=self._ignored)
            yield place.ahead
            self._ignored = place.ignored
        finally:
            unlock(descriptor, (ticket, 1))


class _PlaceInLine:
    """The place of one process among those that wait to write to a file.

    Args:
        descriptor: the open database.
        ticket: the byte that this process has locked.
        ignored: tickets up to this one are of processes that do not take their turn.
    """

    def __init__(self, descriptor: int, ticket: int, *, ignored: int) -> None:
        self._descriptor, self._ticket = descriptor, ticket
        self.ignored = ignored if ignored < ticket else 0  # else the numbers have begun anew
        self._first, self._since = 0, 0.0

    def ahead(self) -> int:
        """Returns how far the ticket is behind the first one of others; 0 if it is the first."""
        first, start = self._ticket, max(_FIRST_TICKET, self.ignored + 1)
        while first > start:
            found = taken(self._descriptor, (start, first - start))
            if found is None:
                break
            first = found
        if first < self._ticket:
            self._look_at(first)
        return self._ticket - first

    def _look_at(self, first: int) -> None:
        """Ignores a ticket whose process lets its turn go by: it may be stopped, and not dead."""
        now = time.monotonic()
        if first != self._first or taken(self._descriptor, TURN) is not None:
            self._first, self._since = first, now
        elif now - self._since > _LONGEST_PAUSE:
            self.ignored = first


def _flock(kind: str, where: Range) -> bytes:
    """Packs a ``struct flock`` for OFD locks: type, whence, start, length, and process 0."""
    types = {"read": fcntl.F_RDLCK, "write": fcntl.F_WRLCK, "free": fcntl.F_UNLCK}
    return struct.pack("hhqqi", types[kind], os.SEEK_SET, *where, 0)
