"""What the client of a served ledger makes of the network: lost answers, other voices, secrets."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import re
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

import tightbudget as tb
from tightbudget.client import http
from tightbudget.promises.values import ReservationView

TOKEN = "tb_0123456789ab_" + "5ec2e7" * 10
HOLD: dict[str, Any] = {
    "key": "A1",
    "state": "reserved",
    "charges": {"data": {"amount": 0.3, "delta": 1e-7, "unit": "epsilon"}},
    "cell": None,
    "told": None,
    "token": "3",
    "interactive": False,
    "guarantee": {"tightbudget": 1, "output_dp": {"cells": [], "delta": "0", "sup": "3/10"}},
}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_PAUSES", (0.0, 0.0, 0.0))


def remote(answer: Callable[[httpx.Request], httpx.Response], **given: Any) -> tb.RemoteLedger:
    return tb.RemoteLedger(
        "https://ledger.test", token=TOKEN, transport=httpx.MockTransport(answer), **given
    )


def error(type_: str, message: str = "no", **fields: Any) -> dict[str, Any]:
    names = ("requested", "left", "held", "budget", "holds", "unknown")
    return {"error": {"type": type_, "message": message} | dict.fromkeys(names) | fields}


# ------------------------------------------------------------------------- lost answers

# What becomes of one request: whether the act was done, and what the client gets to see.
FATES: dict[str, tuple[bool, Any]] = {
    "no connection": (False, httpx.ConnectError("refused")),
    "lost on the way": (False, httpx.ReadTimeout("timed out")),
    "answer lost": (True, httpx.RemoteProtocolError("disconnected")),
    "proxy gave up": (True, httpx.Response(502, text="Bad Gateway")),
    "commit in doubt": (True, httpx.Response(503, json=error("LedgerError", unknown=True))),
    "disk full": (False, httpx.Response(503, json=error("LedgerError", unknown=False))),
    "token expired": (False, httpx.Response(401, json=error("WrongToken"))),
    "done": (True, httpx.Response(200, json=HOLD)),
}


def acts(ledger: tb.RemoteLedger) -> dict[str, Callable[[], Any]]:
    hold = wire_hold(ledger)
    return {
        "reserve": lambda: ledger.reserve("A1", tb.OutputDP.from_dp(0.3, 1e-7), ["data"]),
        "start": hold.start,
        "settle": lambda: hold.settle("no"),
        "forfeit": hold.forfeit,
        "void": hold.void,
    }


def wire_hold(ledger: tb.RemoteLedger) -> tb.client.RemoteHold:
    return tb.client.RemoteHold(ledger._wire, ReservationView.from_dict(HOLD), "3")


@pytest.mark.slow
@pytest.mark.parametrize("act", ["reserve", "start", "settle"])
def test_whatever_happens_on_the_way_the_client_says_what_is_true(act: str) -> None:
    """Every fate of every request of an act: what it claims is what was done."""
    met: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        met.append(fates[len(met)])
        seen = FATES[met[-1]][1]
        if isinstance(seen, Exception):
            raise seen
        return httpx.Response(seen.status_code, content=seen.content)

    claims = set()
    with remote(answer) as ledger:
        for fates in itertools.product(FATES, repeat=4):
            if met and fates[: len(met)] == tuple(met):
                continue  # it differs in what is not asked any more
            met.clear()
            claim = claimed(acts(ledger)[act])
            done = [FATES[fate][0] for fate in met]
            claims.add((claim, any(done)))
            # a start that may have arrived is not sent again
            assert act != "start" or set(met[:-1]) <= {"no connection"}, met
    assert claims == {
        ("done", True), ("not done", False), ("in doubt", True), ("in doubt", False)
    }  # fmt: skip


def claimed(act: Callable[[], Any]) -> str:
    try:
        act()
    except tb.LedgerError as failure:
        return "in doubt" if failure.unknown else "not done"
    return "done"


def test_what_was_not_sent_changes_nothing_and_says_so() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    with remote(answer) as ledger:
        for act in acts(ledger).values():
            with pytest.raises(tb.LedgerError) as caught:
                act()
            assert not caught.value.unknown
            assert str(caught.value) == (
                "nothing was changed in https://ledger.test: ConnectError: Connection refused"
            )
        with pytest.raises(tb.LedgerError, match=r"^https://ledger\.test cannot be read: Connect"):
            ledger.statements()


@pytest.mark.parametrize(
    ("act", "what_now"),
    [
        ("settle", "ask again under the same key"),
        ("start", "void the reservation, or if that is refused, forfeit it"),
    ],
)
def test_what_is_in_doubt_says_what_to_do(act: str, what_now: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("timed out")

    with remote(answer) as ledger, pytest.raises(tb.LedgerError) as caught:
        acts(ledger)[act]()
    assert caught.value.unknown
    assert str(caught.value) == (
        "https://ledger.test did not say whether the act happened: ReadTimeout: timed out;"
        f" {what_now}"
    )


def test_asking_again_asks_the_same() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.url.path, request.read()))
        return httpx.Response(200, json=HOLD) if len(asked) == 4 else httpx.Response(504)

    with remote(answer) as ledger:
        assert ledger.reserve("A1", tb.OutputDP({"a": 0.3}), ["data"]).key == "A1"
    assert len(set(asked)) == 1
    assert json.loads(asked[0][1])["guarantee"]["output_dp"]["cells"] == [["a", "3/10"]]


# ------------------------------------------------------------------------- other voices


@pytest.mark.parametrize(
    ("answered", "message", "unknown"),
    [
        (httpx.Response(200, text="<html>sign in"), "answered what no ledger answers", True),
        (httpx.Response(200, json={"state": "reserved"}), "answered what no ledger answers", True),
        (httpx.Response(200, json=[1]), "answered what no ledger answers", True),
        (httpx.Response(200, json={**HOLD, "state": "odd"}), "answered what no ledger", True),
        (httpx.Response(404, text="not here"), "answered 404 Not Found, as no ledger does", False),
        (
            httpx.Response(301, headers={"location": "https://elsewhere.test"}),
            "answered 301 Moved Permanently, as no ledger does",
            False,
        ),
        (httpx.Response(409, json={"error": "odd"}), "answered 409 Conflict, as no", False),
        (httpx.Response(409, json={"error": {}}), "answered what no ledger answers", True),
        (
            httpx.Response(409, json={"error": {"type": "BudgetExceeded", "message": "no"}}),
            "answered what no ledger answers",
            True,
        ),
    ],
)
def test_who_is_no_ledger_is_not_believed(
    answered: httpx.Response, message: str, unknown: bool
) -> None:
    with remote(lambda _: answered) as ledger:
        with pytest.raises(tb.LedgerError, match=f"^https://ledger.test {message}") as caught:
            wire_hold(ledger).settle("no")
        assert caught.value.unknown is unknown
        with pytest.raises(tb.LedgerError):
            ledger.statements()


@pytest.mark.parametrize(
    ("status", "type_"),
    [(401, "NoToken"), (403, "NotAllowed"), (413, "TooLarge"), (429, "TooManyFailures")],
)
def test_what_the_server_refuses_itself_was_not_done(status: int, type_: str) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(status, json=error(type_, "this needs a token"))

    with remote(answer) as ledger, pytest.raises(tb.LedgerError, match="this needs a") as caught:
        wire_hold(ledger).settle("no")
    assert not caught.value.unknown
    assert len(asked) == 1


def test_a_refusal_comes_back_as_it_was_raised() -> None:
    amounts = {
        name: {"amount": i, "delta": 0.0, "unit": "epsilon"}
        for i, name in enumerate(("requested", "left", "held"))
    }
    fields = {**amounts, "budget": "data", "holds": ["A1", "ada"]}
    answered = httpx.Response(409, json=error("BudgetExceeded", "too much", **fields))
    with remote(lambda _: answered) as ledger, pytest.raises(tb.BudgetExceeded) as caught:
        ledger.hold("A1")
    assert str(caught.value) == "too much"
    assert vars(caught.value) == {
        "requested": tb.Amount(0.0, 0.0, "epsilon"),
        "left": tb.Amount(1.0, 0.0, "epsilon"),
        "held": tb.Amount(2.0, 0.0, "epsilon"),
        "budget": "data",
        "holds": ("A1", "ada"),
    }


# ------------------------------------------------------------------------------ secrets


def test_the_token_is_in_one_header_and_nowhere_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    requests = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        if request.method == "GET":
            return httpx.Response(401, json=error("WrongToken", "this token is unknown"))
        raise httpx.ReadTimeout("timed out", request=request)

    ledger = remote(answer)
    shown = [repr(ledger), str(ledger), ledger.url, repr(ledger._wire)]
    for act in (ledger.statements, wire_hold(ledger).void):
        with pytest.raises(tb.LedgerError) as caught:
            act()
        failure: BaseException | None = caught.value
        while failure is not None:
            shown += [repr(failure), *map(repr, vars(failure).values())]
            assert not isinstance(failure, httpx.RequestError)  # which has the request with it
            failure = failure.__cause__ or failure.__context__
    for request in requests:
        shown += [str(request.url), request.read().decode(), request.method]
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert "5ec2e7" not in " ".join(shown) + caplog.text


@pytest.mark.parametrize("token", ["two words", "", "tb_\n", "tb_é", 7, b"tb_", "x" * 1001])
def test_a_token_that_is_none_is_refused_and_not_shown(token: Any) -> None:
    with pytest.raises(tb.ParameterError) as caught:
        tb.RemoteLedger("https://ledger.test", token=token)
    assert str(caught.value) == "token must be one word of ASCII characters"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("budget.db", "url must be the address of a ledger that is served, such as https://"),
        ("sqlite:///budget.db", "url must be the address of a ledger that is served"),
        ("https://", "url must be the address of a ledger that is served"),
        ("https://ledger.test?token=x", "url must be the address of a ledger that is served"),
        ("https://ledger.test#x", "url must be the address of a ledger that is served"),
        ("https://ledger.test:port", "url must be the address of a ledger that is served"),
        (7, "url must be the address of a ledger that is served"),
        ("https://ada:hidden@ledger.test", "url must hold no user and no password"),
        ("http://ledger.test", "url must begin with https: (or else say insecure=True: the token"),
        ("http://127.0.0.1.example.org", "url must begin with https:"),
        ("http://10.0.0.1", "url must begin with https:"),
        ("http://localhost.example.org", "url must begin with https:"),
    ],
)
def test_addresses_that_are_none(url: Any, message: str) -> None:
    with pytest.raises(tb.ParameterError, match=f"^{re.escape(message)}") as caught:
        tb.RemoteLedger(url)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/",
        "http://localhost:8000",
        "http://[::1]:8000",
        "http://127.1.2.3",
        "https://ledger.test/",
    ],
)
def test_addresses(url: str) -> None:
    with tb.RemoteLedger(url) as ledger:
        assert ledger.url == url.rstrip("/")
        assert repr(ledger) == f"RemoteLedger('{url.rstrip('/')}')"


def test_plain_http_elsewhere_must_be_asked_for() -> None:
    with tb.RemoteLedger("http://ledger.test", insecure=True) as ledger:
        assert ledger.url == "http://ledger.test"


def test_a_timeout_is_a_positive_number() -> None:
    with pytest.raises(tb.ParameterError, match=r"^timeout must be a finite number > 0, got 0$"):
        tb.RemoteLedger("https://ledger.test", timeout=0)


# -------------------------------------------------------------------------- connections


class _Counted(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    connections = 0

    def setup(self) -> None:
        super().setup()
        type(self).connections += 1

    def do_GET(self) -> None:
        body = b'{"budgets": []}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """A client that does not like the certificate goes away."""


@contextlib.contextmanager
def counting(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server that answers with no budgets, and counts who connects; its port."""
    _Counted.connections = 0
    with _Quiet(("127.0.0.1", 0), _Counted) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def counted() -> Iterator[str]:
    with counting() as port:
        yield f"http://127.0.0.1:{port}"


def test_a_connection_is_kept_but_not_shared_with_a_child(
    counted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tb.RemoteLedger(counted) as ledger:
        for _ in range(3):
            assert ledger.statements() == ()
        assert _Counted.connections == 1
        parent = ledger._wire._client
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: 1)
            assert ledger.statements() == ()
            ledger.close()
        assert _Counted.connections == 2
        parent.close()


def test_no_proxy_is_asked_for_what_is_not_encrypted(
    counted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with tb.RemoteLedger(counted) as ledger:
        assert ledger.statements() == ()


def test_who_cannot_show_a_certificate_learns_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an authority that is known; one of one's own is named in SSL_CERT_FILE."""
    if not (openssl := shutil.which("openssl")):
        pytest.skip("no openssl: no certificate can be made")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with counting(context) as port:
        unknown = tb.RemoteLedger(f"https://localhost:{port}", token=TOKEN)
        with unknown, pytest.raises(tb.LedgerError, match="certificate verify failed") as caught:
            unknown.budget("data").reserve("A1", tb.OutputDP.from_dp(0.1))
        assert not caught.value.unknown
        assert _Counted.connections == 0
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with tb.RemoteLedger(f"https://localhost:{port}", token=TOKEN) as ledger:
            assert ledger.statements() == ()
        assert _Counted.connections == 1


# -------------------------------------------------------------------------------- extras


@pytest.mark.slow
def test_the_client_needs_httpx_alone() -> None:
    without = "import sys; sys.modules.update(dict.fromkeys({}))\nimport tightbudget as tb\n"
    needless = without.format(
        ["sqlalchemy", "alembic", "fastapi", "starlette", "uvicorn", "jinja2"]
    )
    code = needless + "print(tb.RemoteLedger('https://ledger.test'))"
    assert python(code) == ["RemoteLedger('https://ledger.test')"]
    code = without.format(["httpx"]) + (
        "try: tb.RemoteLedger\nexcept tb.errors.ExtraError as error: print(error)"
    )
    assert python(code) == ["a remote ledger needs httpx: pip install 'tightbudget[remote]'"]


def python(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()
