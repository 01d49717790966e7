"""Connections that are cut when the head of a request does not arrive in time.

The server program has a limit for connections that are idle between two requests, and none for a
head that arrives byte by byte. Bodies have theirs in ``guards.py``; answers may take as long as
they do.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

__all__ = ["with_limit"]


class _Timed(H11Protocol):
    """One connection.

    Attributes:
        seconds: from its beginning, or from the first byte of a later head, to the head's end.
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
        """Begins to wait for a head, or ends it where one is whole: then an answer is due."""
        cycle: RequestResponseCycle | None = self.cycle  # there is none before the first head
        if cycle is not None and not cycle.response_complete:
            self._stop()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self.transport.close)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def with_limit(seconds: float) -> type[asyncio.Protocol]:
    """Connections for uvicorn, whose heads must arrive within so many seconds."""
    return type("Connection", (_Timed,), {"seconds": seconds})
