"""Rights that a thread has as long as it is at work, and that end with it whatever interrupts it.

An interrupt (Ctrl-C) may end a thread's work between any two instructions, also between the one
that takes a lock and the ``try`` whose ``finally`` would give it back. So nothing here is given
back, and there are no locks: a thread has a right as long as its :class:`Visit` runs, which the
interpreter knows, and whoever finds that the visit runs no more may take the right. Each step is
one operation on a dictionary or a deque, which the interpreter does as a whole; after an interrupt
between two of them, the next thread that looks goes on from there.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Generic, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
N = TypeVar("N", bound="Link")

# Seconds after which a thread that waits looks around by itself: an interrupt may swallow the
# wake-up call, so a lost call costs this long.
LOOK_AROUND = 1.0
_PAUSE = 0.001  # seconds between two attempts to begin an exclusive deed, which takes milliseconds


class Link:
    """One of those who have a right one after the other.

    Attributes:
        after: has the next one, if there is one. ``setdefault`` lets one thread alone be the next.
    """

    is_running = False

    def __init__(self) -> None:
        self.after: dict[None, Any] = {}


class Chain(Generic[N]):
    """Lists holders of a right, one after the other: the last has it while it is running."""

    def __init__(self, first: N) -> None:
        self._known = first

    def last(self) -> N:
        """Returns who came last."""
        link = self._known
        while (after := link.after.get(None)) is not None:
            link = after
        return link

    def follow(self, before: N, link: N) -> bool:
        """Lets a link be the one after another; False if there is one already."""
        if before.after.setdefault(None, link) is not link:
            return False
        self._known = link  # a shorter way to the end; an older one leads there, too
        return True


class Visit(Link):
    """A deed of the thread that makes this object.

    Whether the deed is running is the state of a generator, and so the interpreter's own: no
    interrupt leaves it wrong, and a traceback that is kept does not prolong it.
    """

    def __init__(self, deed: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.thread = threading.get_ident()
        self._steps = self._step(deed)

    @staticmethod
    def _step(deed: Callable[[], object]) -> Generator[object]:
        yield deed()

    @property
    def is_running(self) -> bool:  # type: ignore[override]
        """True between the beginning of the deed and its end, however it ends."""
        running: bool = self._steps.gi_running  # type: ignore[attr-defined]
        return running

    def run(self) -> object:
        """Does the deed, once, and returns what it returns."""
        found = next(self._steps)
        self._steps.close()  # forgets the deed, and whatever it refers to
        return found


class Exclusive:
    """Deeds of which one runs at a time."""

    def __init__(self) -> None:
        self._deeds: Chain[Visit] = Chain(Visit())

    @property
    def is_mine(self) -> bool:
        """True while this thread is in the middle of such a deed."""
        last = self._deeds.last()
        return last.is_running and last.thread == threading.get_ident()

    def run(self, deed: Callable[[], T], *, wait: bool = True) -> T | None:
        """Runs a deed, and returns what it returns.

        Args:
            deed: is run while no other is.
            wait: whether to wait for the deed of another thread.

        Returns:
            None, without running the deed, if another one is running that is not waited for, or
            that this thread is in the middle of, so that it would wait for itself.
        """

        def alone() -> T | None:
            while True:
                last = self._deeds.last()
                if not last.is_running:
                    if self._deeds.follow(last, visit):
                        return deed()
                elif wait and last.thread != visit.thread:
                    time.sleep(_PAUSE)
                else:
                    return None

        visit = Visit(alone)
        return visit.run()  # type: ignore[return-value]


def interrupt_behind(error: BaseException, before: BaseException | None) -> BaseException | None:
    """Finds the interrupt in whose handling an exception was raised; None if there was none.

    What is cleaned up behind an interrupt may fail for it, and would hide it.

    Args:
        error: the exception that came out.
        before: the exception that was being handled when all began, ``sys.exc_info()[1]``.
    """
    behind: BaseException | None = error
    while behind is not None and behind is not before:
        if not isinstance(behind, Exception):
            return behind
        behind = behind.__context__
    return None


def run_interruptible(deed: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Runs a deed; an interrupt that becomes another exception on its way stays an interrupt."""
    before = sys.exc_info()[1]
    try:
        return deed(*arguments, **named)
    except Exception as error:
        if interrupt := interrupt_behind(error, before):
            raise interrupt from None
        raise
