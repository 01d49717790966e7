"""Threads of one process that share a transaction, instead of one each.

Nothing here knows a database. :class:`Turns` lets one thread write at a time, in the order in
which threads came, and hands the acts that wait to the thread that writes. What an interrupt
leaves behind, :mod:`tightbudget.ledger.store.visits` says.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection

from tightbudget.ledger.store.visits import LOOK_AROUND, Chain, Link, Visit


def _nothing(_: Connection) -> None:
    """Is an act that does nothing."""


class UnknownOutcomeError(Exception):
    """Nobody can tell whether the act of a thread that waited was done."""


class Waiting:
    """An act that a thread wants to be run, and its outcome.

    Attributes:
        act: is run in a transaction.
        is_alone: whether the act may not share a transaction with other acts.
        result: the value that the act has returned.
        error: the exception that the act has raised, or None.
        visit: the time that its thread spends on it.
    """

    def __init__(
        self, act: Callable[[Connection], Any] = _nothing, *, is_alone: bool = False
    ) -> None:
        self.act = act
        self.is_alone = is_alone
        self.result: Any = None
        self.error: BaseException | None = None
        self.visit = Visit()
        self._claims: dict[None, Turn] = {}
        self._bell = threading.Lock()  # a thread that waits for it waits to be woken

    def outcome(self) -> Any:
        """Returns the result of the act, or raises its exception."""
        if self.error is None:
            return self.result
        error, self.error = self.error, None  # its traceback has this object, and may go with it
        try:
            raise error
        finally:
            del error

    @property
    def claimed(self) -> Turn | None:
        """The turn in which the act is run; None as long as nobody has begun it."""
        return self._claims.get(None)

    def claim(self, turn: Turn) -> Turn:
        """Lets a turn run the act, unless another one does; returns the one that does."""
        return self._claims.setdefault(None, turn)

    def ask_anew(self) -> None:
        """Lets the act be claimed again, for its thread, which knows that nothing came of it."""
        self._claims = {}

    def wake(self) -> None:
        """Wakes the thread that waits."""
        with suppress(RuntimeError):  # it was woken before, and has not looked yet
            self._bell.release()

    def sleep(self, longest: float) -> bool:
        """Waits to be woken; False after so many seconds."""
        return self._bell.acquire(timeout=longest)


class Turn(Link):
    """The turn of one thread, in which it may run the acts of others, too.

    Attributes:
        of: the act of the thread that has the turn.
        others: the acts of others that it has claimed.
        is_over: whether the thread has passed the turn on. It may still wait for the disk.
        is_committing: whether the commit was begun, so that all that was run may be done.
        is_durable: whether all that was run is on the disk, and its outcomes may be told.
        has_failed: whether the commit, or what makes it durable, has failed.
        failure: the reason for which the commit failed, if it is known.
    """

    def __init__(self, of: Waiting) -> None:
        super().__init__()
        self.of = of
        self.others: list[Waiting] = []
        self.is_over = self.is_committing = self.is_durable = self.has_failed = False
        self.failure = "the thread that committed it was interrupted"

    @property
    def is_running(self) -> bool:  # type: ignore[override]
        """True until the turn is passed on, or the thread has gone without that."""
        return not self.is_over and self.of.visit.is_running

    @property
    def is_at_work(self) -> bool:
        """True as long as its thread may still come to an end with what was run in the turn.

        Until the commit is begun, that is as long as the thread has the turn. Afterwards it may
        have passed the turn on, and wait for the disk.
        """
        may_have_turn = self.is_committing or not self.is_over
        return may_have_turn and not self.has_failed and self.of.visit.is_running

    def settle(self) -> None:
        """Says that all that was run is durable, and wakes those who wait for it."""
        self.is_durable = True
        self._wake_others()

    def fail(self, why: str) -> None:
        """Says that nobody knows what became of all that was run, and wakes those who wait."""
        self.failure, self.has_failed = why, True
        self._wake_others()

    def _wake_others(self) -> None:
        for other in self.others:
            other.wake()


class Turns:
    """The turn to write, which one thread of a process has at a time, first come, first served.

    The thread that has the turn may run the acts of others (:meth:`next`). A turn is passed on to
    the thread that has waited longest: a lock would let a thread that has just come overtake.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._turns: Chain[Turn] = Chain(Turn(Waiting()))
        self._waiting: deque[Waiting] = deque()  # the order; an act is run by who claims it
        self._inside: dict[int, Visit] = {}

    def enter(self, mine: Waiting, deed: Callable[[], object]) -> bool:
        """Does a deed for an act, unless this thread is in the middle of another; then False.

        A signal handler runs in the middle of the act that it interrupts, which would wait for
        itself. A turn that the deed leaves behind is passed on.
        """
        me = threading.get_ident()
        before = self._inside.get(me)
        if before is not None and before.is_running:
            return False

        def entered() -> None:
            self._inside[me] = mine.visit
            try:
                try:
                    deed()
                finally:
                    self.pass_on(mine)
            finally:  # for an interrupt of the one above
                self.pass_on(mine)

        mine.visit = Visit(entered)
        try:
            mine.visit.run()
        finally:
            mine.act = (
                _nothing  # the last turn is kept, and must not keep a ledger from being closed
            )
            self._inside.pop(me, None)  # what an interrupt leaves there is not running
        return True

    def take(self, mine: Waiting, patience: float) -> Turn | None:
        """Waits for the turn, or for another thread to run the act ``mine``.

        Returns:
            the turn, which this thread has now; or None: the act ``mine`` is done and durable.

        Raises:
            TimeoutError: neither happened, and nobody will begin the act.
            UnknownOutcomeError: another thread may have done the act.
        """
        end = time.monotonic() + patience
        mine.ask_anew()
        self._waiting.append(mine)
        try:
            while True:
                now = self._hand_over()
                if now.of is mine and mine.claim(now) is now:
                    return now
                run = mine.claimed
                if run is not None and self._is_done(run):
                    return None
                if run is not None and not run.is_at_work:
                    mine.ask_anew()
                    self._waiting.appendleft(mine)
                    continue
                left = end - time.monotonic()
                if os.getpid() != self._process:
                    left = -patience - 1  # a child of fork, in which the other threads are not
                if left <= 0 and mine.claim(Turn(mine)).of is mine:
                    raise TimeoutError
                if left < -patience:  # one that another thread is running is waited for once more
                    raise UnknownOutcomeError("another thread does not come to an end")
                was_woken = mine.sleep(max(0.01, min(left, LOOK_AROUND)))
                if not was_woken and mine.claimed is None and mine not in self._waiting:
                    self._waiting.appendleft(mine)  # who took it out was interrupted
        except BaseException:
            mine.claim(Turn(mine))  # nobody is to begin the act any more
            raise

    @staticmethod
    def _is_done(run: Turn) -> bool:
        """Says whether the acts that were run in a turn are durable.

        Raises:
            UnknownOutcomeError: the turn ended in the middle of its commit.
        """
        # in this order: who is seen to have ended has said before how it ended
        is_at_work, is_committing = run.is_at_work, run.is_committing
        if run.is_durable:
            return True
        if is_committing and not is_at_work:
            raise UnknownOutcomeError(run.failure)
        return False

    def _hand_over(self) -> Turn:
        """Gives the turn, if nobody has it, to the thread that has waited longest.

        Returns:
            the turn of the thread that has it, or the last one if nobody has it.
        """
        while True:
            now = self._turns.last()
            if now.is_running:
                return now
            try:
                first = self._waiting.popleft()
            except IndexError:
                return now
            if first.claimed is not None or not first.visit.is_running:
                continue  # it has given up, or is there twice
            if self._turns.follow(now, Turn(first)):
                first.wake()
            else:
                self._waiting.appendleft(first)  # another thread was faster

    def next(self, turn: Turn) -> Waiting | None:
        """Claims the act that has waited longest for the turn of this thread.

        Returns:
            None if nobody waits, or if the next act may not share a transaction.
        """
        while True:
            try:
                first = self._waiting.popleft()
            except IndexError:
                return None
            if first.is_alone:
                self._waiting.appendleft(first)
                return None
            # guard: given-up-act-withdrawn
            claimed = first.visit.is_running and first.claim(turn) is turn
            if claimed:
                turn.others.append(first)
                return first

    def pass_on(self, mine: Waiting) -> None:
        """Gives the turn of ``mine``, if it still has it, to the thread that has waited longest."""
        now = self._turns.last()
        if now.of is mine:
            now.is_over = True
            now._wake_others()
        self._hand_over()
