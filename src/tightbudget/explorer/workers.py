"""Processes that answer questions, each within its time and its memory.

A question that takes too long is ended with its process, which another one replaces; the server
answers everybody else meanwhile. Those who ask take turns; when too many questions wait, the newest
of who asks the most is refused. Processes share nothing, no queue and no lock, so that one can be
ended at any moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import InvalidStateError, ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from tightbudget.errors import BusyError, LimitError
from tightbudget.explorer.job_queue import Job, JobQueue

__all__ = ["Pools", "Workers"]

Q = TypeVar("Q")
A = TypeVar("A")

_LOOK = 0.1  # seconds between two looks whether somebody still wants the answer
_GIVEN_UP = "the question was given up: nobody waits for its answer any more"
_PRELOADED = (
    "scipy.stats",
    "tightbudget.explorer.picture",
    "tightbudget.explorer.workers",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
)


class Workers:
    """A pool of warm processes with limits: a thread for each, which hands it its questions.

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
        self.processes, self.seconds, self.megabytes = processes, seconds, megabytes
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="explorer")
        self._queue = JobQueue(processes + waiting)
        self._closed = threading.Event()
        self._processes: dict[int, _Process] = {}  # by the thread

    def warm(self) -> None:
        """Starts the processes, so that the first question need not wait for that."""
        for _ in range(self.processes):
            self._threads.submit(self._process)

    def close(self) -> None:
        """Ends the processes, whatever they work on."""
        self._closed.set()
        self._threads.shutdown()  # those who wait are told that they are given up
        for process in self._processes.values():
            process.end()

    async def answer(
        self,
        answer: Callable[[Q], A],
        question: Q,
        unwanted: Callable[[], Awaitable[bool]],
        of: str = "",
    ) -> A:
        """``answer(question)``, worked out in another process, unless nobody wants it any more.

        Args:
            answer: a function of a module.
            question: its argument.
            unwanted: whether to give up, asked again and again.
            of: who asks, for instance an address; they take turns.

        Raises:
            BusyError: too many questions wait, and nobody has more of them.
            LimitError: it takes too long or too much memory, or was given up.
            TightBudgetError: what is asked is refused.
        """
        job = Job(of, lambda given_up: self._work(answer, question, given_up))
        here: asyncio.Future[A] = asyncio.wrap_future(job.found)
        out = self._queue.join(job)
        if out is not None:
            busy = BusyError("too many questions are being worked on: ask again in a moment")
            with contextlib.suppress(InvalidStateError):  # it was given up at this moment
                out.found.set_exception(busy)
        if out is not job:
            self._threads.submit(self._work_on_next)
        try:
            while not (await asyncio.wait([here], timeout=_LOOK))[0]:
                if await unwanted():
                    raise LimitError(_GIVEN_UP)
            return here.result()
        finally:
            job.given_up.set()
            self._queue.leave(job)
            here.cancel()

    # ------------------------------------------------------------------- in a thread

    def _work_on_next(self) -> None:
        """One job; none, where one that had a place has left the line."""
        job = self._queue.next()
        if job is None:
            return
        wanted, found, error = job.found.set_running_or_notify_cancel(), None, None
        try:
            if wanted:
                found = job.work(job.given_up)
        except BaseException as failure:
            error = failure
        self._queue.done(job)  # first: who has the answer may ask again at once
        if error is not None:
            job.found.set_exception(error)
        elif wanted:
            job.found.set_result(found)

    def _work(self, answer: Callable[[Q], A], question: Q, given_up: threading.Event) -> A:
        if given_up.is_set() or self._closed.is_set():
            raise LimitError(_GIVEN_UP)
        try:
            process = self._process()
            process.pipe.send((answer, question))
            until = time.monotonic() + self.seconds
            while not process.pipe.poll(_LOOK):
                if given_up.is_set() or self._closed.is_set():
                    raise LimitError(_GIVEN_UP)
                if time.monotonic() > until:
                    raise self._too_much("time", f"{self.seconds:g} s")
            found, error = process.pipe.recv()
        except (EOFError, OSError) as gone:  # memory was refused where nothing can be said of it
            self._replace()
            raise self._too_much("memory", f"{self.megabytes:,} MB") from gone
        except BaseException:
            self._replace()
            raise
        if isinstance(error, MemoryError):
            raise self._too_much("memory", f"{self.megabytes:,} MB") from error
        if error is not None:
            raise error
        return found  # type: ignore[no-any-return]  # the other process has asked the function

    def _too_much(self, what: str, limit: str) -> LimitError:
        return LimitError(
            f"the question takes more {what} than one may take here ({limit}): ask for less, "
            "or ask the library or the command line, which have no such limit"
        )

    def _process(self) -> _Process:
        """The one of this thread, started if there is none that lives."""
        own = self._processes.get(threading.get_ident())
        if own is None or not own.process.is_alive():
            own = _Process.start(self.seconds, self.megabytes << 20)
            self._processes[threading.get_ident()] = own
        return own

    def _replace(self) -> None:
        """Ends the process of this thread; another one is started for the next question."""
        if own := self._processes.pop(threading.get_ident(), None):
            own.end()


@dataclass(frozen=True)
class Pools:
    """Two pools, so that a curve never waits for what takes long by nature.

    Attributes:
        quick: for curves, and what one more run costs.
        slow: for other bounds, stopping, calibrating, and pictures.
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


@dataclass(frozen=True)
class _Process:
    process: BaseProcess
    pipe: Connection

    @staticmethod
    def start(seconds: float, memory: int) -> _Process:
        # neither fork, in a process with threads, nor spawn, which imports everything again
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*_PRELOADED])
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, seconds, memory), daemon=True)
        process.start()
        theirs.close()
        ours.recv()  # it is ready: the time of the first question begins no earlier
        return _Process(process, ours)

    def end(self) -> None:
        """Ends it, whatever it works on."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection, seconds: float, memory: int) -> None:
    """What a process does: it answers, until there is nobody to ask it any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the server ends its processes
    _limit_memory(memory)
    pipe.send("ready")
    while True:
        try:
            answer, question = pipe.recv()
        except EOFError:
            return
        _limit_time(seconds)
        said: tuple[Any, BaseException | None]
        try:
            said = answer(question), None
        except Exception as error:
            said = None, error
        pipe.send(said)


def _limit_memory(more: int) -> None:
    """Of this process, to so many bytes beside what it has."""
    with open("/proc/self/statm", encoding="ascii") as pages:
        now = int(pages.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))


def _limit_time(more: float) -> None:
    """Likewise the time it computes, on all cores: the server that would end it may be gone."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    until = time.process_time() + more * (os.cpu_count() or 1)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(until), most))
