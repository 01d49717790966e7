"""Tokens that were wrong, counted: guessing must take longer than anybody has time."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from tightbudget.web.refusals import HttpRefusal

__all__ = ["Failures"]


class Failures:
    """How often tokens failed, by the address that sent them, and in all.

    Only who sends another wrong one is told to wait: a right one is never counted.

    Args:
        most: failures of one address in a window.
        most_in_all: failures of all addresses in a window: a proxy may pass on made-up ones.
        window: seconds.
        clock: seconds, monotonic.
    """

    _REMEMBERED = 10_000  # addresses

    def __init__(
        self,
        most: int = 10,
        window: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        *,
        most_in_all: int = 100,
    ) -> None:
        self._most = most
        self._all: deque[float] = deque(maxlen=most_in_all)
        self._window = window
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, address: str) -> None:
        """Refuses an address with too many failures, or any after too many in all.

        Raises:
            HttpRefusal: it has to wait, and how long.
        """
        with self._lock:
            times = self._times.get(address, deque(maxlen=self._most))
            wait, whence = max((self._wait(times), f" from {address}"), (self._wait(self._all), ""))
        if wait > 0:
            raise HttpRefusal(
                429,
                "TooManyFailures",
                f"too many wrong tokens came{whence}: wait {wait:.0f} seconds",
                {"retry-after": str(int(wait) + 1)},
            )

    def _wait(self, times: deque[float]) -> float:
        """Seconds until the oldest of too many failures is old enough; 0 if they are not."""
        return times[0] + self._window - self._clock() if len(times) == times.maxlen else 0.0

    def add(self, address: str) -> None:
        """One more failure."""
        with self._lock:
            times = self._times.setdefault(address, deque(maxlen=self._most))
            times.append(self._clock())
            self._all.append(self._clock())
            self._times.move_to_end(address)
            if len(self._times) > self._REMEMBERED:
                self._times.popitem(last=False)
