"""Processes that answer questions, each within its time and its memory.

A question that takes too long is ended with its process, which another one replaces at once;
the server answers everybody else meanwhile. When too many questions wait, the next is refused.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import multiprocessing
import resource
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from tightbudget.errors import BusyError, LimitError

__all__ = ["Pools", "Workers"]

Q = TypeVar("Q")
A = TypeVar("A")

_LOOK = 0.1  # seconds between two looks whether somebody still wants the answer
_PRELOADED = (
    "scipy.stats",
    "tightbudget.web.explorer.picture",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
)


class Workers:
    """A pool of warm processes with limits.

    Args:
        processes: how many questions are worked on at a time.
        waiting: how many more may wait.
        seconds: for one question, from when it is worked on.
        megabytes: of memory for one question, beside what an idle process has.
    """

    def __init__(
        self,
        *,
        processes: int = 2,
        waiting: int = 16,
        seconds: float = 30.0,
        megabytes: int = 2048,
    ) -> None:
        self.seconds, self.megabytes = seconds, megabytes
        # neither fork, in a process with threads, nor spawn, which imports everything again
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*_PRELOADED])
        self._pool = ProcessPool(
            max_workers=processes,
            initializer=_limit_memory,
            initargs=(megabytes * 2**20,),
            context=context,
        )
        self._free = threading.BoundedSemaphore(processes + waiting)

    def warm(self) -> None:
        """Starts the processes, so that the first question need not wait for that."""
        self._pool.schedule(_nothing)

    def close(self) -> None:
        """Ends the processes, whatever they work on."""
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()

    async def answer(
        self,
        answer: Callable[[Q], A],
        question: Q,
        unwanted: Callable[[], Awaitable[bool]],
    ) -> A:
        """``answer(question)``, worked out in another process, unless nobody wants it any more.

        Args:
            answer: a function of a module.
            question: its argument.
            unwanted: whether to give up, asked again and again.

        Raises:
            BusyError: too many others wait.
            LimitError: it takes too long or too much memory.
            TightBudgetError: what is asked is refused.
            asyncio.CancelledError: it was given up.
        """
        future = self._started(answer, question)
        here = asyncio.wrap_future(future)
        try:
            while not (await asyncio.wait([here], timeout=_LOOK))[0]:
                if await unwanted():
                    raise asyncio.CancelledError
            return here.result()
        except Exception as error:
            raise self._refusal(error) from error
        finally:  # nothing, if it is done; ends the process, if it is not
            here.cancel()

    def _started(self, answer: Callable[[Q], A], question: Q) -> ProcessFuture[A]:
        if not self._free.acquire(blocking=False):
            raise BusyError("too many questions are being worked on: ask again in a moment")
        try:
            future = self._pool.schedule(answer, args=(question,), timeout=self.seconds)
        except BaseException:
            self._free.release()
            raise
        future.add_done_callback(lambda _: self._free.release())
        return future

    def _refusal(self, error: Exception) -> Exception:
        """What is said of an error in the other process."""
        match error:
            case concurrent.futures.TimeoutError():
                limit, took = f"{self.seconds:g} s", "time"
            case MemoryError() | ProcessExpired():
                limit, took = f"{self.megabytes:,} MB", "memory"
            case _:
                return error
        return LimitError(
            f"the question takes more {took} than one may take here ({limit}): ask for less, "
            "or ask the library or the command line, which have no such limit"
        )


@dataclass(frozen=True)
class Pools:
    """Two pools, so that a curve never waits for what takes long by nature.

    Attributes:
        quick: for curves, what one more run costs, and pictures.
        slow: for other bounds, stopping and calibrating.
    """

    quick: Workers = field(default_factory=lambda: Workers(seconds=10.0))
    slow: Workers = field(default_factory=Workers)

    def warm(self) -> None:
        """Starts the processes, so that the first question need not wait for that."""
        self.quick.warm()
        self.slow.warm()

    def close(self) -> None:
        """Ends them."""
        self.quick.close()
        self.slow.close()


def _nothing() -> None:
    pass


def _limit_memory(more: int) -> None:
    """Of this process, to so many bytes beside what it has."""
    with open("/proc/self/statm", encoding="ascii") as pages:
        now = int(pages.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))
