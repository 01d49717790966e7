"""Sessions of browsers: signing in begins a session, signing out ends it on the server.

Sessions live in the memory of the server, and end with it. A cookie is 256 random bits. The server
keeps its hash alone, so that a dump of the memory opens no session.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BrowserSession:
    """The session of a browser that has signed in.

    Attributes:
        id: the hash of the cookie, which is no secret: forms of the session carry it.
        token: the id of the token that began the session; the token must still be valid.
        ends: when the session is over, by the clock of the sessions.
    """

    id: str
    token: str
    ends: float


class Sessions:
    """The sessions that have begun and not ended.

    Args:
        lasts: seconds from the beginning of a session to its end.
        most: sessions of one token at a time; one more ends the oldest.
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
        self._open: dict[str, BrowserSession] = {}  # by id, the oldest first

    def begin(self, token: str) -> str:
        """Begins a session of a token, and returns the value of its new cookie."""
        cookie, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            alive = {id: one for id, one in self._open.items() if now < one.ends}
            own = [id for id, one in alive.items() if one.token == token]
            for id in own[: max(0, len(own) - self._most + 1)]:
                del alive[id]
            alive[_id(cookie)] = BrowserSession(id=_id(cookie), token=token, ends=now + self.lasts)
            self._open = alive
        return cookie

    def find(self, cookie: str) -> BrowserSession | None:
        """Returns the session of a cookie; None if the session is unknown or over."""
        with self._lock:
            found = self._open.get(_id(cookie))
        # guard: sessions-over
        return found if found is not None and self._clock() < found.ends else None

    def end(self, cookie: str) -> None:
        """Ends the session of a cookie and of all copies of the cookie."""
        with self._lock:
            self._open.pop(_id(cookie), None)  # guard: sessions-end


def _id(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "backslashreplace")).hexdigest()
