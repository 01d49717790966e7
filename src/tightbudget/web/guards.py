"""Checks that every request passes first, and headers that every answer carries."""

from __future__ import annotations

import asyncio
import logging
import re
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tightbudget.web.refusals import HttpRefusal
from tightbudget.web.refused import refused
from tightbudget.web.settings import Settings

_log = logging.getLogger("tightbudget.web")

# No page needs anything from another host, and no page has inline scripts or styles.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # "no-referrer" would make the origin of our own forms null
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_SAFE = ("GET", "HEAD", "OPTIONS")
_HOST = re.compile(r"(?:\[(?P<bare>[0-9a-fA-F:.]+)\]|(?P<name>[^:\[\]@/?#\s]+))(?::[0-9]{0,5})?")
_TOKEN = re.compile(r"(tb_[0-9a-f]{1,12})_\w*")


class Guards:
    """Checks host, origin and size of a request; adds headers to the answer; logs one line.

    The log has the path without its query: keys and names of budgets stay out of it.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, answered = time.perf_counter(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if not scope["path"].startswith("/static/"):
                    headers["cache-control"] = "no-store"
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, await self._whole(scope, receive), send_guarded)
        except Exception as error:
            if answered:
                raise
            if not isinstance(error, HttpRefusal):
                _log.exception("%s failed", _shown(scope))
            await refused(Request(scope), error)(scope, receive, send_guarded)
        finally:
            took = 1000 * (time.perf_counter() - began)
            _log.info("%s %d %.0f ms", _shown(scope), answered, took)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._settings.answers_to(_name(host)):  # guard: hosts-checked
            raise HttpRefusal(400, "WrongHost", f"this server does not answer for {host[:200]!r}")
        if scope["method"] in _SAFE:
            return
        # Browsers name the origin of each request that a page of another site makes them send.
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        # guard: site-and-origin
        if site not in ("same-origin", "none") or not self._is_own(origin, host):
            raise HttpRefusal(403, "WrongOrigin", "this was sent by a page of another site")

    def _is_own(self, origin: str | None, host: str) -> bool:
        own = (f"http://{host}", f"https://{host}", (self._settings.public_url or "").rstrip("/"))
        return origin is None or origin in own

    async def _whole(self, scope: Scope, receive: Receive) -> Receive:
        """Reads the request's whole body, up to the limits; later readers get it unchanged."""
        most, size, more = self._settings.largest_body, 0, True
        seconds = self._settings.request_seconds
        messages: list[Message] = []
        try:
            async with asyncio.timeout(seconds):  # guard: bodies-timed
                while more:
                    messages.append(message := await receive())
                    size += len(message.get("body", b""))
                    more = message.get("more_body", False)
                    if size > most:  # guard: bodies-counted
                        raise HttpRefusal(
                            413, "TooLarge", f"a request must have at most {most} bytes"
                        )
        except TimeoutError:
            late = f"the body of a request must arrive within {seconds:g} seconds"
            raise HttpRefusal(408, "TooSlow", late, {"connection": "close"}) from None

        async def again() -> Message:
            return messages.pop(0) if messages else await receive()

        return again


def _name(host: str) -> str:
    """Returns the name in a Host header without its port; "" if the header is malformed."""
    found = _HOST.fullmatch(host)
    return "" if found is None else (found["bare"] or found["name"]).lower()


def _shown(scope: Scope) -> str:
    """Returns method and path for the log; the secret part of a token is cut out."""
    path = scope.get("raw_path") or scope["path"].encode("unicode_escape")
    return _TOKEN.sub(r"\1_...", f"{scope['method']} {path.partition(b'?')[0].decode('latin-1')}")
