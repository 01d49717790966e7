"""Questions that wait for a process, taken in turn from those who ask.

Whoever asks a hundred questions waits for them; another one's question waits for one of each other
at most, and is not refused because those hundred fill the room.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Job", "JobQueue"]


@dataclass(frozen=True, eq=False)
class Job:
    """A question, who asks it, and the answer to come.

    Attributes:
        of: who asks.
        work: answers it, or raises.
        given_up: set when nobody wants the answer any more.
        found: the answer.
    """

    of: str
    work: Callable[[threading.Event], Any]
    given_up: threading.Event = field(default_factory=threading.Event)
    found: Future[Any] = field(default_factory=Future)


class JobQueue:
    """Who waits and who is worked on.

    Args:
        most: questions of all, those that are worked on included.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Job]] = {}  # by who asks, the next one's turn first
        self._working: Counter[str] = Counter()

    def join(self, job: Job) -> Job | None:
        """Puts a job at the end of the line of who asks.

        Returns:
            the job that there is no room for: where the line is full, the newest of who has more
            in it than the one who comes; or else the new one. None if there is room.
        """
        with self._lock:
            self._waiting.setdefault(job.of, deque()).append(job)
            if sum(map(self._load, {*self._waiting, *self._working})) <= self._most:
                return None
            greediest = max(self._waiting, key=self._load)
            out = greediest if self._load(greediest) > self._load(job.of) else job.of
            newest = self._waiting[out][-1]
            self._remove(newest)
            return newest

    def next(self) -> Job | None:
        """The job whose turn it is: of those who wait, who has fewest at work; None if nobody is.

        Whoever takes it says when it is done.
        """
        with self._lock:
            if not self._waiting:
                return None
            of = min(self._waiting, key=lambda name: self._working[name])
            job = self._waiting[of][0]
            self._remove(job)
            if of in self._waiting:  # the next turn is somebody else's
                self._waiting[of] = self._waiting.pop(of)
            self._working[of] += 1
            return job

    def done(self, job: Job) -> None:
        """It is worked on no more."""
        with self._lock:
            self._working[job.of] -= 1
            self._working += Counter()  # forgets who has none

    def leave(self, job: Job) -> None:
        """It is not waited for any more; nothing, if it does not wait."""
        with self._lock:
            if job in self._waiting.get(job.of, ()):
                self._remove(job)

    def _load(self, of: str) -> int:
        return len(self._waiting.get(of, ())) + self._working[of]

    def _remove(self, job: Job) -> None:
        self._waiting[job.of].remove(job)
        if not self._waiting[job.of]:
            del self._waiting[job.of]
