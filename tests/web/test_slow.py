"""Who sends slowly is cut off; who waits for an answer is not, however long it takes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import uvicorn
from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response
from tests.guards.mutants import Without, lose_a_truth

import tightbudget as tb
from tightbudget.web import app as web_app
from tightbudget.web.access import PUBLIC, allow
from tightbudget.web.run import _config, _listening
from tightbudget.web.settings import Settings

LIMIT = 0.5
SLACK = 20.0  # a busy machine is late; without a limit nothing is ever cut
HEAD = b"POST /api/v1/verify HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n"
WHOLE = b"GET /api/v1/health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


@contextlib.contextmanager
def running(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server in a thread, with a short limit and a route that takes longer."""
    router = APIRouter()

    @router.get("/slow", dependencies=[allow(PUBLIC)])
    async def slow() -> Response:
        await asyncio.sleep(3 * LIMIT)
        return PlainTextResponse("at last")

    monkeypatch.setattr(web_app, "ROUTERS", [*web_app.ROUTERS, router])
    settings = Settings(ledger_url, request_seconds=LIMIT)
    server = uvicorn.Server(_config(settings, web_app.create_app(settings)))
    with _listening("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=lambda: server.run(sockets=[listening]))
        thread.start()
        try:
            yield listening.getsockname()[:2]
        finally:
            server.should_exit = server.force_exit = True
            thread.join()


@pytest.fixture
def place(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    with running(ledger_url, monkeypatch) as found:
        yield found


def sent(place: tuple[str, int], *parts: bytes, every: float = 0.0, most: float = SLACK) -> bytes:
    """Sends the parts one by one, and returns the answer until the connection is closed."""
    with socket.create_connection(place, timeout=most) as one:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                one.sendall(part)
                time.sleep(every)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while received := one.recv(4096):
                answer += received
        return answer


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "parts",
    [(), (b"G",), (HEAD,), (WHOLE[:-2],), (WHOLE[:1], *[b"x-%d: 1\r\n" % i for i in range(99)])],
    ids=["nothing", "a byte", "half a head", "all but its end", "line by line"],
)
def test_a_head_has_its_time(place: tuple[str, int], parts: tuple[bytes, ...]) -> None:
    began = time.monotonic()
    assert sent(place, *parts, every=0.02) == b""
    assert time.monotonic() - began >= LIMIT * 0.9


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "parts",
    [(HEAD + b"\r\n",), (HEAD + b"\r\nhalf",), (HEAD + b"\r\n", *[b"x"] * 60)],
    ids=["no body", "half a body", "byte by byte"],
)
def test_a_body_has_its_time(place: tuple[str, int], parts: tuple[bytes, ...]) -> None:
    answer = sent(place, *parts, every=0.02)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the body of a request must arrive within 0.5 seconds" in answer
    assert b"connection: close" in answer.lower()


def test_a_later_head_has_its_time_too(place: tuple[str, int]) -> None:
    answer = sent(place, WHOLE, b"GET /", *[b"x"] * 60, every=0.02)
    assert answer.count(b"HTTP/1.1 200 ") == 1


@pytest.mark.slow
def test_an_answer_may_take_longer(place: tuple[str, int]) -> None:
    asked = b"GET /slow HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    assert sent(place, asked).endswith(b"at last")
    assert sent(place, asked[:30], asked[30:], every=LIMIT / 5).endswith(b"at last")


def test_others_are_answered_while_many_send_slowly(place: tuple[str, int]) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(place, SLACK)) for _ in range(50)]
        for i, one in enumerate(slow):
            one.sendall(HEAD + (b"\r\nhalf" if i % 2 else b""))
        closing = WHOLE.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
        assert sent(place, closing).startswith(b"HTTP/1.1 200 ")
        for one in slow:  # and all of them are gone
            with contextlib.suppress(ConnectionError):
                while one.recv(4096):
                    pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"request_seconds": 0}, "request_seconds must be a finite number > 0, got 0"),
        ({"request_seconds": float("inf")}, "request_seconds must be a finite number > 0, got inf"),
        ({"most_cells": 0}, "most_cells must be an integer >= 1, got 0"),
        ({"most_open": 0.5}, "most_open must be an integer >= 1, got 0.5"),
        ({"largest_body": "1_0"}, "largest_body must be an integer >= 1, got '1_0'"),
    ],
)
def test_limits_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tb.ParameterError) as refusal:
        Settings("sqlite:///x.db", **options)
    assert str(refusal.value) == message


def cut(place: tuple[str, int], *parts: bytes) -> bool:
    """Tells if the connection is closed, or refused, within a few limits."""
    try:
        return b" 200 " not in sent(place, *parts, most=6 * LIMIT)
    except TimeoutError:
        return False


GUARDS: list[tuple[Without, Callable[[tuple[str, int]], bool]]] = [
    (
        Without("heads", {"heads-timed": "self._deadline = None"}, bool),
        lambda place: cut(place, HEAD),
    ),
    (
        Without("answers", {"answers-not-timed": "pass"}, bool),
        lambda place: not cut(place, WHOLE.replace(b"/api/v1/health", b"/slow")),
    ),
    (
        Without("bodies", {"bodies-timed": "async with asyncio.timeout(None):"}, bool),
        lambda place: cut(place, HEAD + b"\r\n"),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutation", "true"), GUARDS, ids=[mutation.name for mutation, _ in GUARDS]
)
def test_a_guard_that_is_gone_is_missed(
    mutation: Without,
    true: Callable[[tuple[str, int]], bool],
    ledger_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def holds() -> bool:
        with running(ledger_url, monkeypatch) as place:
            return true(place)

    lose_a_truth(monkeypatch, replace(mutation, true=holds))
