"""Sessions of browsers: each sign-in begins one, and signing out ends it, here on the server.

They live in the memory of the server, so they end with it. A cookie is 256 random bits, of which
the hash is kept: what a page or a dump of the memory shows opens nothing.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Session", "Sessions"]


@dataclass(frozen=True)
class Session:
    """A browser that has signed in.

    Attributes:
        id: the hash of its cookie; no secret. The forms that it is shown carry it.
        token: the id of the token that it began with, which must still be valid.
        ends: when it is over, by the clock of the sessions.
    """

    id: str
    token: str
    ends: float


class Sessions:
    """The sessions that have begun and not ended.

    Args:
        lasts: seconds from its beginning to its end.
        most: of one token at a time; one more ends the oldest.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        lasts: float = 12 * 3600.0,
        most: int = 20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lasts = lasts
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[str, Session] = {}  # by id, the oldest first

    def begin(self, token: str) -> str:
        """A new session of a token; what its cookie says, which is another one each time."""
        cookie, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            alive = {id: one for id, one in self._open.items() if now < one.ends}
            own = [id for id, one in alive.items() if one.token == token]
            for id in own[: max(0, len(own) - self._most + 1)]:
                del alive[id]
            alive[_id(cookie)] = Session(_id(cookie), token, now + self.lasts)
            self._open = alive
        return cookie

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie; None if there is none, or it is over."""
        with self._lock:
            found = self._open.get(_id(cookie))
        return found if found is not None and self._clock() < found.ends else None

    def end(self, cookie: str) -> None:
        """Ends the session of a cookie, for whoever has a copy of it, too."""
        with self._lock:
            self._open.pop(_id(cookie), None)


def _id(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "backslashreplace")).hexdigest()
