"""Threads of one process that share a flush of the database's log, instead of one each.

Nothing here knows a database: :class:`SharedFlush` lets one thread flush for all that asked before
it began.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from tightbudget.ledger.store.visits import LOOK_AROUND, Chain, Visit


class SharedFlush:
    """A flush that one thread does for all threads that asked for it before it began.

    Args:
        flush: writes everything to the disk that was done before it was called.
    """

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._flushes: Chain[_Flush] = Chain(_Flush())

    def wait(self, patience: float) -> None:
        """Returns as soon as a flush has ended that began after this call.

        A flush that fails fails its own thread; the others do one of their own.

        Raises:
            TimeoutError: another thread is flushing, and does not come to an end.
        """
        end = time.monotonic() + patience
        last = self._flushes.last()  # began before this call; those after it did not
        while True:
            if last.is_running and last.thread == threading.get_ident():
                self._flush()  # a signal handler in the middle of the flush that it interrupts
                return
            if not last.is_running:
                if self._try(last):
                    return
            elif not last.sleep(end - time.monotonic()):
                raise TimeoutError
            while (after := last.after.get(None)) is not None:
                last = after
                if last.is_done:
                    return

    def _try(self, before: _Flush) -> bool:
        """Flushes after another flush, unless another thread has begun to; then False."""

        def flush() -> bool:
            if not self._flushes.follow(before, mine):
                return False
            try:
                self._flush()
                mine.is_done = True
            finally:
                mine.is_over = True
                mine.wake()
            return True

        mine = _Flush(flush)
        return bool(mine.run())


class _Flush(Visit):
    """A flush by one thread, for which others wait.

    Attributes:
        is_done: whether it came to a good end.
        is_over: whether it came to any end, and those who wait may be woken.
    """

    def __init__(self, deed: Callable[[], object] = lambda: None) -> None:
        super().__init__(deed)
        self.is_done = self.is_over = False
        self._bells: deque[threading.Lock] = deque()

    @property
    def is_running(self) -> bool:  # type: ignore[override]
        """True until the flush is over, or the thread has gone."""
        return not self.is_over and super().is_running

    def sleep(self, longest: float) -> bool:
        """Waits for the end of the flush, or for a while; False if there is no time left."""
        if longest <= 0:
            return False
        bell = threading.Lock()
        bell.acquire()
        self._bells.append(bell)
        if self.is_running:
            bell.acquire(timeout=min(longest, LOOK_AROUND))
        return True

    def wake(self) -> None:
        """Wakes all threads that wait."""
        with suppress(IndexError):
            while True:
                self._bells.popleft().release()
