"""A queue of questions that wait for a process; those who ask take turns.

Somebody who asks a hundred questions waits for all of them. A question of somebody else waits for
at most one question of each other asker, and is not refused because the hundred fill the queue.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Job:
    """A question to be answered, its asker, and the future answer.

    Attributes:
        of: a name of the asker, such as an address.
        work: computes the answer, or raises an error.
        given_up: is set when nobody wants the answer any more.
        found: the future answer.
    """

    of: str
    work: Callable[[threading.Event], Any]
    given_up: threading.Event = field(default_factory=threading.Event)
    found: Future[Any] = field(default_factory=Future)


class JobQueue:
    """The questions that wait and those that are worked on, by asker.

    Args:
        most: the most questions of all askers, including those that are worked on.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Job]] = {}  # by asker; the first asker has the next turn
        self._working: Counter[str] = Counter()

    def join(self, job: Job) -> Job | None:
        """Puts a job at the end of its asker's queue.

        Returns:
            the job that is refused because the queue is full; None if there is room. The newest
            job of the asker with the most jobs is refused, if that asker has more than this one;
            otherwise the new job is refused.
        """
        with self._lock:
            self._waiting.setdefault(job.of, deque()).append(job)
            if sum(map(self._load, {*self._waiting, *self._working})) <= self._most:
                return None
            greediest = max(self._waiting, key=self._load)
            # guard: room-of-others
            out = greediest if self._load(greediest) > self._load(job.of) else job.of
            newest = self._waiting[out][-1]
            self._remove(newest)
            return newest

    def next(self) -> Job | None:
        """Takes the next job: that of the waiting asker with the fewest jobs at work.

        The caller reports the end of its work to :meth:`done`. The result is None if no job waits.
        """
        with self._lock:
            if not self._waiting:
                return None
            of = min(self._waiting, key=lambda name: self._working[name])
            job = self._waiting[of][0]
            self._remove(job)
            # guard: turns-taken
            if of in self._waiting:  # moved to the end: the next turn is another asker's
                self._waiting[of] = self._waiting.pop(of)
            self._working[of] += 1
            return job

    def done(self, job: Job) -> None:
        """Removes a job from those that are worked on."""
        with self._lock:
            self._working[job.of] -= 1
            self._working += Counter()  # drops askers without jobs

    def leave(self, job: Job) -> None:
        """Removes a job that still waits; any other job changes nothing."""
        with self._lock:
            if job in self._waiting.get(job.of, ()):
                self._remove(job)

    def _load(self, of: str) -> int:
        return len(self._waiting.get(of, ())) + self._working[of]

    def _remove(self, job: Job) -> None:
        self._waiting[job.of].remove(job)
        if not self._waiting[job.of]:
            del self._waiting[job.of]
