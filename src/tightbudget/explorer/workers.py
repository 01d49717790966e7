"""Processes that answer questions, each question within limits of time and memory.

A question that takes too long is ended by killing its process, which another process replaces;
other questions are answered meanwhile. Askers take turns. When too many questions wait, the newest
question of the asker with the most is refused. Processes share neither queues nor locks, so that a
process can be killed at any moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import multiprocessing
import os
import resource
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import InvalidStateError, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from tightbudget.errors import BusyError, LimitError
from tightbudget.explorer.job_queue import Job, JobQueue
from tightbudget.worker import Lost, Worker

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
    """A pool of warm processes with limits; one thread hands each process its questions.

    Args:
        processes: the number of questions that are worked on at a time.
        waiting: the number of further questions that may wait.
        seconds: the time limit of one question, counted from the beginning of its work.
        megabytes: the memory limit of one question, beside the memory of an idle process.
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
        self._processes: dict[int, Worker] = {}  # by the id of its thread

    def warm(self) -> None:
        """Starts the processes, so that the first question need not wait for that."""
        for _ in range(self.processes):
            self._threads.submit(self._worker)

    def close(self) -> None:
        """Ends the processes, even those that are working."""
        self._closed.set()
        self._threads.shutdown()  # waiting jobs end with the refusal _GIVEN_UP
        for worker in self._processes.values():
            worker.end()

    async def answer(
        self,
        answer: Callable[[Q], A],
        question: Q,
        unwanted: Callable[[], Awaitable[bool]],
        of: str = "",
    ) -> A:
        """Computes ``answer(question)`` in another process, while somebody wants it.

        Args:
            answer: a function at the top of a module, so that another process can import it.
            question: the argument of the function.
            unwanted: tells whether to give up; it is called again and again.
            of: a name of the asker, such as an address; askers take turns.

        Raises:
            BusyError: too many questions wait, and no other asker has more of them.
            LimitError: the question takes too long or too much memory, or was given up.
            TightBudgetError: the library refuses the question.
        """
        job = Job(of, lambda given_up: self._work(answer, question, given_up))
        here: asyncio.Future[A] = asyncio.wrap_future(job.found)
        out = self._queue.join(job)
        if out is not None:
            busy = BusyError("too many questions are being worked on: ask again in a moment")
            with contextlib.suppress(InvalidStateError):  # the job may be given up at this moment
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
        """Works on one job; does nothing if the job has left the queue."""
        job = self._queue.next()
        if job is None:
            return
        wanted, found, error = job.found.set_running_or_notify_cancel(), None, None
        try:
            if wanted:
                found = job.work(job.given_up)
        except BaseException as failure:
            error = failure
        self._queue.done(job)  # before the answer is given: its asker may ask again at once
        if error is not None:
            job.found.set_exception(error)
        elif wanted:
            job.found.set_result(found)

    def _work(self, answer: Callable[[Q], A], question: Q, given_up: threading.Event) -> A:
        if given_up.is_set() or self._closed.is_set():
            raise LimitError(_GIVEN_UP)
        try:
            return self._asked(answer, question, given_up)
        except Lost as lost:  # it ran out of memory where it could not report so
            self._replace()
            raise self._too_much("memory", f"{self.megabytes:,} MB") from lost
        except MemoryError as error:
            raise self._too_much("memory", f"{self.megabytes:,} MB") from error

    def _asked(self, answer: Callable[[Q], A], question: Q, given_up: threading.Event) -> A:
        """Asks the process of this thread, and ends it when the question takes too long.

        Raises:
            Lost: the process has ended.
            LimitError: the question takes too long, or was given up.
            Exception: ``answer`` raised it.
        """
        worker = self._worker()
        worker.send(_within, self.seconds, answer, question)
        until = time.monotonic() + self.seconds
        while not worker.pipe.poll(_LOOK):
            if given_up.is_set() or self._closed.is_set():
                self._replace()
                raise LimitError(_GIVEN_UP)
            if time.monotonic() > until:
                self._replace()
                raise self._too_much("time", f"{self.seconds:g} s")
        return worker.receive()  # type: ignore[no-any-return]  # what ``answer`` returned

    def _too_much(self, what: str, limit: str) -> LimitError:
        return LimitError(
            f"the question takes more {what} than one may take here ({limit}): ask for less, "
            "or ask the library or the command line, which have no such limit"
        )

    def _worker(self) -> Worker:
        """Returns the process of this thread, and starts one if none is alive."""
        own = self._processes.get(threading.get_ident())
        if own is None or not own.process.is_alive():
            # "fork" is unsafe in a process with threads, and "spawn" imports everything again
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([*_PRELOADED])
            own = Worker.start(context, functools.partial(_limit_memory, self.megabytes << 20))
            self._processes[threading.get_ident()] = own
            own.receive()  # it has begun: the time of its first question begins afterwards
        return own

    def _replace(self) -> None:
        """Ends the process of this thread; another one is started for the next question."""
        if own := self._processes.pop(threading.get_ident(), None):
            own.end()


@dataclass(frozen=True)
class Pools:
    """Two pools of workers, so that a curve never waits for slow questions.

    Attributes:
        quick: workers for curves, and for the price of one more run.
        slow: workers for other bounds, stopping, calibrating, and pictures.
    """

    quick: Workers = field(default_factory=lambda: Workers(seconds=10.0))
    slow: Workers = field(default_factory=Workers)

    def warm(self) -> None:
        """Starts the processes of both pools, so that the first question need not wait for that."""
        self.quick.warm()
        self.slow.warm()

    def close(self) -> None:
        """Ends the processes of both pools."""
        self.quick.close()
        self.slow.close()


def _within(seconds: float, answer: Callable[[Q], A], question: Q) -> A:
    """Computes ``answer(question)`` within a limit of CPU time; runs in a worker."""
    _limit_time(seconds)
    return answer(question)


def _limit_memory(more: int) -> None:
    """Limits the memory of this process to so many bytes beside those it has."""
    with open("/proc/self/statm", encoding="ascii") as pages:
        now = int(pages.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))


def _limit_time(more: float) -> None:
    """Limits the CPU time of this process to so many more seconds on each core."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    until = time.process_time() + more * (os.cpu_count() or 1)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(until), most))
