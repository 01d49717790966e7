"""Connections that are cut when the head of a request does not arrive in time.

uvicorn limits the time that a connection is idle between two requests, and not the time in which a
head arrives byte by byte. ``guards.py`` limits the time of bodies; answers have no limit.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle


class _Timed(H11Protocol):
    """A connection with a time limit for the head of each request.

    Attributes:
        seconds: the limit, from the beginning of the connection (or the first byte of a later
            head) to the end of the head.
    """

    seconds: float
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop()

    def _look(self) -> None:
        """Starts the clock for a head that is due, and stops it when the head is whole."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first head
        if cycle is not None and not cycle.response_complete:
            self._stop()  # guard: answers-not-timed
        elif self._deadline is None:
            # guard: heads-timed
            self._deadline = self.loop.call_later(self.seconds, self.transport.close)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def with_limit(seconds: float) -> type[asyncio.Protocol]:
    """Makes a class of connections whose heads must arrive within so many seconds."""
    return type("Connection", (_Timed,), {"seconds": seconds})
