"""Counts wrong tokens, so that guessing a right one takes too long."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from tightbudget.web.refusals import HttpRefusal


class Failures:
    """Counts the wrong tokens of each address, and of all addresses together.

    Only requests with a wrong token are told to wait: a right token is never counted.

    Args:
        most: failures of one address in a window.
        most_in_all: failures of all addresses in a window; addresses may be made up.
        window: seconds.
        clock: seconds, monotonic.
    """

    _REMEMBERED = 10_000  # addresses: a bound on memory, not on safety (see most_in_all)

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
        """Refuses an address with too many failures, or any address after too many in all.

        Raises:
            HttpRefusal: the address has to wait; the refusal says how long.
        """
        with self._lock:
            times = self._times.get(address, deque(maxlen=self._most))
            # guard: failures-limit
            wait, whence = max((self._wait(times), f" from {address}"), (self._wait(self._all), ""))
        if wait > 0:
            raise HttpRefusal(
                429,
                "TooManyFailures",
                f"too many wrong tokens came{whence}: wait {wait:.0f} seconds",
                {"retry-after": str(int(wait) + 1)},
            )

    def _wait(self, times: deque[float]) -> float:
        """Returns the seconds until another failure is allowed; 0 if one is allowed now."""
        return times[0] + self._window - self._clock() if len(times) == times.maxlen else 0.0

    def add(self, address: str) -> None:
        """Counts one more failure of an address."""
        with self._lock:
            times = self._times.setdefault(address, deque(maxlen=self._most))
            times.append(self._clock())
            self._all.append(self._clock())
            self._times.move_to_end(address)
            if len(self._times) > self._REMEMBERED:
                self._times.popitem(last=False)
