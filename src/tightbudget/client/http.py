"""Requests to a ledger that is served: which are sent again, and what a lost answer leaves open.

A request that was never sent has changed nothing; one that was sent and not answered may have. An
act that a key names is sent again, since the ledger does it once; of a start, the caller is told
that it is unknown.
"""

from __future__ import annotations

import enum
import ipaddress
import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tightbudget import errors
from tightbudget.errors import (
    ExtraError,
    LedgerError,
    ParameterError,
    TightBudgetError,
)
from tightbudget.numerics.validate import positive, refuse
from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.transactions import Uncopied

try:
    import httpx
except ImportError as error:
    raise ExtraError("a remote ledger needs httpx: pip install 'tightbudget[remote]'") from error

T = TypeVar("T")

_PAUSES = (0.1, 0.4, 1.6)  # seconds before each repetition, about two in all
# Seconds after which an idle connection is not used again. Servers keep one longer (uvicorn, which
# `tightbudget serve` runs, 5 seconds), so a request rarely meets a connection that is closing.
_IDLE = 2.0
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.LocalProtocolError,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
_WORD = re.compile(r"[\x21-\x7e]{1,1000}")


class Retry(enum.Enum):
    """Says what a request does if it is sent twice."""

    READING = "nothing: it changes nothing"
    REPEATABLE = "the same as once: the key names one deed"
    ONCE = "that the second is refused, and nobody knows whether the first was done"


class Wire(Uncopied):
    """The way to a ledger that is served.

    Args:
        url: the address; plain http only to this machine, or if ``insecure`` says so.
        token: the access token. It travels in a header, and is shown nowhere.
        timeout: seconds that each step of a request may take.
        insecure: whether whoever listens on the way may learn the token.
        transport: carries the requests, if not the network.

    Raises:
        ParameterError: the url, the token or the timeout is refused.
    """

    _instead = "open the ledger again by its address, also in another process"

    def __init__(
        self,
        url: object,
        token: object,
        *,
        timeout: float,
        insecure: bool,
        transport: httpx.BaseTransport | None,
    ) -> None:
        self._url = _checked(url, insecure)
        # guard: token-one-word
        if token is not None and not (isinstance(token, str) and _WORD.fullmatch(token)):
            raise ParameterError("token must be one word of ASCII characters")  # and is not shown
        self._settings: dict[str, Any] = {
            "base_url": f"{self._url}/api/v1/",
            "headers": {} if token is None else {"Authorization": f"Bearer {token}"},
            "timeout": positive(timeout=timeout),
            "limits": httpx.Limits(keepalive_expiry=_IDLE),
            "transport": transport,
            # no proxy reads what is not encrypted
            "trust_env": self._url.startswith("https:"),
        }
        self._client, self._process = httpx.Client(**self._settings), os.getpid()

    def __str__(self) -> str:
        return self._url

    def close(self) -> None:
        """Closes all connections."""
        self._client.close()

    # ------------------------------------------------------------------------- asking

    def get(self, path: str, query: Mapping[str, object], read: Callable[[Any], T]) -> T:
        """Sends a request that changes nothing; fields of the query that are None are left out.

        Raises:
            LedgerError: it cannot be read.
            TightBudgetError: the ledger refuses.
        """
        asked = {name: str(value) for name, value in query.items() if value is not None}
        return self._ask("GET", path, {"params": asked}, read, Retry.READING)

    def post(
        self,
        path: str,
        body: Mapping[str, object],
        read: Callable[[Any], T],
        act: Retry = Retry.REPEATABLE,
    ) -> T:
        """Sends a request that may change the ledger.

        Raises:
            LedgerError: it was not done; or, if it is ``unknown``, it may have been.
            TightBudgetError: the ledger refuses.
        """
        # ASCII: a cell may hold half a character, which no encoding has
        asked = {
            "content": json.dumps(body).encode("ascii"),
            "headers": {"Content-Type": "application/json"},
        }
        return self._ask("POST", path, asked, read, act)

    def _ask(
        self, verb: str, path: str, asked: dict[str, Any], read: Callable[[Any], T], act: Retry
    ) -> T:
        """Sends a request, and again after a lost answer if that does no harm.

        Raises:
            LedgerError: no answer came; ``unknown`` if the act may have been done.
            TightBudgetError: the ledger refuses.
        """
        in_doubt = False  # whether a request was sent, and nobody has said what became of it
        for pause in (0.0, *_PAUSES):
            time.sleep(pause)
            try:
                return self._read(self._answer(verb, path, asked), read, act)
            except _NoAnswer as lost:
                why = str(lost)  # guard: why-without-failure
                in_doubt = in_doubt or lost.sent  # guard: doubt-kept
                if in_doubt and act is Retry.ONCE:  # guard: start-sent-once
                    break
            except LedgerError as refusal:  # which is about this request, not about one before
                if not in_doubt:  # guard: doubt-outlives-refusal
                    raise
                why = str(refusal)
                break
        if act is Retry.READING:
            raise LedgerError(f"{self} cannot be read: {why}")
        if not in_doubt:
            raise LedgerError(f"nothing was changed in {self}: {why}")
        now = {
            Retry.REPEATABLE: "ask again under the same key",
            Retry.ONCE: "void the reservation, or if that is refused, forfeit it",
        }
        raise LedgerError(
            f"{self} did not say whether the act happened: {why}; {now[act]}", unknown=True
        )

    def _answer(self, verb: str, path: str, asked: dict[str, Any]) -> Any:
        """Sends one request and returns the content of its answer.

        Raises:
            _NoAnswer: there is no answer of the ledger.
            TightBudgetError: the answer is a refusal.
        """
        if self._process != os.getpid():  # the connections of a parent process are left to it
            self._client, self._process = httpx.Client(**self._settings), os.getpid()
        try:
            response = self._client.request(verb, path, **asked)
        except httpx.RequestError as error:
            # guard: unanswered-is-doubtful
            raise _NoAnswer(_words(error), sent=not isinstance(error, _NOT_SENT)) from None
        try:
            content = json.loads(response.content)
        except ValueError:
            content = None
        told = content.get("error") if isinstance(content, dict) else None
        if response.is_success and told is None:
            return content
        if not isinstance(told, dict):  # of a proxy, or of something else that listens there
            status = f"{response.status_code} {response.reason_phrase}"
            told = {"type": "", "message": f"{self} answered {status}, as no ledger does"}
        doubtful = response.is_server_error  # guard: proxy-failure-doubtful
        refusal = self._read(told, lambda said: _refusal(said, doubtful), Retry.ONCE)
        if isinstance(refusal, LedgerError) and refusal.unknown:  # guard: refusal-not-asked-again
            raise _NoAnswer(str(refusal), sent=True)
        raise refusal

    def _read(self, content: Any, read: Callable[[Any], T], act: Retry) -> T:
        """Reads the content of an answer.

        Raises:
            LedgerError: it has not the form of a ledger's answer; ``unknown`` after an act.
        """
        try:
            return read(content)
        except (AttributeError, KeyError, TypeError, ValueError):
            pass
        unknown = act is not Retry.READING  # guard: unreadable-is-unknown
        raise LedgerError(f"{self} answered what no ledger answers", unknown=unknown)


class _NoAnswer(Exception):  # noqa: N818 (it never leaves this module)
    """Raised where no answer came; says why, and whether the request was sent."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


def _refusal(told: Mapping[str, Any], doubtful: bool) -> TightBudgetError:
    """Makes the exception that the ledger has raised, or a LedgerError for any other refusal."""
    kind, message = str(told["type"]), str(told["message"])
    if kind not in errors.__all__:
        return LedgerError(message, unknown=doubtful)
    # a server sends no bounds with a PrecisionError: these hold always
    always = {"lower": 0.0, "upper": math.inf}
    # guard: commit-in-doubt
    return TightBudgetError.from_dict({**always, **told, "message": message}, Amount.from_dict)


def _checked(url: object, insecure: bool) -> str:
    """Returns an address without a slash at its end.

    Raises:
        ParameterError: it is no address, has a password, or would show the token on the way.
    """
    if isinstance(url, str) and "@" in url:  # guard: address-without-password
        raise ParameterError("url must hold no user and no password")  # and is not shown
    must = "be the address of a ledger that is served, such as https://ledger.example.org"
    try:
        parsed = httpx.URL(str(url))
    except httpx.InvalidURL:
        raise refuse("url", must, url) from None
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
        raise refuse("url", must, url)
    # guard: plain-http-stays-here
    if parsed.scheme == "http" and not insecure and not _is_here(parsed.host):
        raise refuse(
            "url", "begin with https: (or else say insecure=True: the token can be read)", url
        )
    return str(parsed).rstrip("/")


def _is_here(host: str) -> bool:
    """Says whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _words(error: httpx.RequestError) -> str:
    """Names the kind of a failure, and its message if it has one."""
    return ": ".join(filter(None, (type(error).__name__, str(error))))
