"""Threads of one process that share a transaction, or a flush of the log, instead of one each.

Nothing here knows a database. :class:`Turns` lets one thread write at a time, in the order in
which threads came, and hands the acts that wait to the thread that writes. :class:`SharedFlush`
lets one thread flush for all that asked before it began.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection

__all__ = ["SharedFlush", "Turns", "Waiting"]

# Seconds after which a thread that waits looks around by itself. An interrupt between the two
# instructions that pass a turn on may swallow the wake-up call, so a lost call costs this long.
_LOOK_AROUND = 1.0


class Waiting:
    """An act that a thread wants to be run, and its outcome.

    Attributes:
        act: is run in a transaction.
        is_alone: whether the act may not share a transaction with other acts.
        is_answered: whether the outcome is durable, and may be told.
        is_begun: whether another thread may have run the act when its own thread gave it up.
        is_withdrawn: whether its own thread has given the act up, so that nobody may begin it.
        result: the value that the act has returned.
        error: the exception that the act has raised, or None.
    """

    def __init__(
        self, act: Callable[[Connection], Any] = lambda _: None, *, is_alone: bool = False
    ) -> None:
        self.act = act
        self.is_alone = is_alone
        self.is_answered = False
        self.is_begun = False
        self.is_withdrawn = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.woken = threading.Event()

    def answer(self) -> None:
        """Lets the thread that waits have the outcome."""
        self.is_answered = True
        self.woken.set()

    def fail(self, error: BaseException) -> None:
        """Lets the thread that waits raise an exception."""
        self.result, self.error = None, error
        self.answer()

    def outcome(self) -> Any:
        """Returns the result of the act, or raises its exception."""
        if self.error is None:
            return self.result
        error, self.error = self.error, None  # its traceback has this object, and may go with it
        try:
            raise error
        finally:
            del error


class Turns:
    """The turn to write, which one thread of a process has at a time, first come, first served.

    The thread that has the turn may run the acts of others (:meth:`next`). A turn is passed on to
    the thread that has waited longest: a lock would let a thread that has just come overtake.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._door = threading.Lock()  # held for a few instructions
        self._leader: Waiting | None = None
        self._waiting: deque[Waiting] = deque()
        self._inside: set[int] = set()

    @contextmanager
    def entered(self) -> Iterator[bool]:
        """Notes that this thread asks for an act; False if it is in the middle of one.

        A signal handler runs in the middle of the act that it interrupts, which would wait for
        itself.
        """
        me = threading.get_ident()
        if me in self._inside:
            yield False
            return
        self._inside.add(me)
        try:
            yield True
        finally:
            self._inside.discard(me)

    def take(self, mine: Waiting, patience: float) -> bool:
        """Waits for the turn, or for another thread to run the act ``mine``.

        Returns:
            True: this thread has the turn. False: the act ``mine`` has been answered.

        Raises:
            TimeoutError: neither happened; unless ``mine.is_begun``, it never will.
        """
        with self._door:
            if self._leader is None:
                self._leader = mine
                return True
            mine.woken.clear()
            self._waiting.append(mine)
        try:
            end = time.monotonic() + patience
            while not (mine.is_answered or self._leader is mine):
                left = end - time.monotonic()
                if left <= 0 and self._is_given_up(mine, left < -patience):
                    raise TimeoutError
                mine.woken.wait(max(0.01, min(left, _LOOK_AROUND)))
        except BaseException:
            self._leave(mine)
            raise
        return not mine.is_answered

    def _is_given_up(self, mine: Waiting, at_last: bool) -> bool:
        """Says whether a thread stops to wait for its act.

        One that another thread is running is waited for once more.
        """
        if os.getpid() != self._process:
            return True  # a child of fork, in which the other threads are not there
        with self._door:
            return mine in self._waiting or at_last

    def _leave(self, mine: Waiting) -> None:
        """Withdraws the act of a thread that gives up, and passes on the turn that it got."""
        if os.getpid() != self._process:
            return
        with self._door:
            mine.is_withdrawn = True
            has_turn = self._leader is mine
            if mine in self._waiting:
                self._waiting.remove(mine)  # guard: given-up-act-withdrawn
            else:
                mine.is_begun = not has_turn
        if has_turn:
            self.pass_on(mine)

    def next(self) -> Waiting | None:
        """Takes the act that has waited longest, to be run by the thread that has the turn.

        Returns:
            None if nobody waits, or if the next act may not share a transaction.
        """
        with self._door:
            if not self._waiting or self._waiting[0].is_alone:
                return None
            return self._waiting.popleft()

    def put_back(self, acts: list[Waiting]) -> None:
        """Lets acts that were taken, and not committed, wait again in their old order."""
        with self._door:
            self._waiting.extendleft(one for one in reversed(acts) if not one.is_withdrawn)

    def pass_on(self, mine: Waiting) -> None:
        """Gives the turn of ``mine``, if it still has it, to the thread that has waited longest."""
        if os.getpid() != self._process:
            return  # the turn is the parent's, and so is the door
        with self._door:
            if self._leader is not mine:
                return
            self._leader = self._waiting.popleft() if self._waiting else None
            if self._leader is not None:
                self._leader.woken.set()


class SharedFlush:
    """A flush that one thread does for all threads that asked for it before it began.

    Args:
        flush: writes everything to the disk that was done before it was called.
    """

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._changed = threading.Condition()
        self._asked = self._done = 0
        self._leader: int | None = None  # the thread that is flushing

    def wait(self, patience: float) -> None:
        """Returns as soon as a flush has ended that began after this call.

        A flush that fails fails its own thread; the others do one of their own.

        Raises:
            TimeoutError: another thread is flushing, and does not come to an end.
        """
        me, end = threading.get_ident(), time.monotonic() + patience
        with self._changed:
            self._asked += 1
            mine = self._asked
            while self._leader not in (None, me):  # a signal handler may interrupt the leader
                if not self._changed.wait(end - time.monotonic()):
                    raise TimeoutError
                if self._done >= mine:
                    return
            outer, self._leader, covered = self._leader, me, self._asked
        try:
            self._flush()
            self._done = max(self._done, covered)
        finally:
            with self._changed:
                self._leader = outer
                self._changed.notify_all()
