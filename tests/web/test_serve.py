"""``tightbudget serve``: where it listens, what it refuses, and how it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.cli.terminal import refusal
from tests.web.conftest import Serve

import tightbudget as tb
from tightbudget.web.run import _listening


@pytest.mark.slow
def test_it_says_where_it_is_and_ends_when_it_is_interrupted(
    served: Serve, ledger_url: str
) -> None:
    server = served(ledger_url)
    assert httpx.get(f"{server.url}/api/v1/health").json()["ok"]
    server.process.send_signal(signal.SIGINT)
    log = server.logged()
    assert server.process.returncode == 130
    assert "Traceback" not in log


@pytest.mark.slow
def test_elsewhere_reading_needs_a_token(served: Serve, ledger_url: str) -> None:
    server = served(ledger_url, "--host", "0.0.0.0")
    url = server.url.replace("0.0.0.0", "127.0.0.1")
    assert httpx.get(f"{url}/api/v1/budgets").status_code == 401
    assert httpx.get(f"{url}/api/v1/health").status_code == 200


@pytest.mark.slow
def test_behind_a_proxy_failures_are_counted_for_who_sent_them(
    served: Serve, ledger_url: str
) -> None:
    server = served(ledger_url, "--public-url", "http://budget.example.org")
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/api/v1/budgets").status_code == 401
        wrong = {"authorization": "Bearer x"}
        for _ in range(10):
            sent = {**wrong, "x-forwarded-for": "192.0.2.1"}
            assert client.get("/api/v1/me", headers=sent).status_code == 401
        sent = {**wrong, "x-forwarded-for": "192.0.2.1"}
        assert client.get("/api/v1/me", headers=sent).status_code == 429
        sent = {**wrong, "x-forwarded-for": "192.0.2.2"}
        assert client.get("/api/v1/me", headers=sent).status_code == 401


@pytest.mark.slow
def test_alone_nobody_says_for_whom_a_failure_counts(served: Serve, ledger_url: str) -> None:
    server = served(ledger_url)
    with httpx.Client(base_url=server.url) as client:
        for i in range(11):
            sent = {"authorization": "Bearer x", "x-forwarded-for": f"192.0.2.{i}"}
            status = client.get("/api/v1/me", headers=sent).status_code
            assert status == (401 if i < 10 else 429)


@pytest.mark.slow
def test_what_cannot_be_served_is_refused(ledger_url: str, tmp_path: Path) -> None:
    nowhere = f"sqlite:///{tmp_path}/none.db"
    assert "there is no ledger" in refusal("serve", "--ledger", nowhere, code=6)
    for words, message in (
        (["--port", "70000"], "port must be in [0, 65535], got 70000"),
        (["--port", "x"], "port must be an integer >= 0, got 'x'"),
        (["--port", "8_000"], "port must be an integer >= 0, got '8_000'"),
        (["--largest-body", "0"], "largest_body must be an integer >= 1, got 0"),
        (["--most-cells", "0"], "most_cells must be an integer >= 1, got 0"),
        (["--most-open", "1.5"], "most_open must be an integer >= 1, got 1.5"),
        (["--request-seconds", "x"], "request_seconds must be a finite number > 0, got 'x'"),
        (
            ["--public-url", "budget"],
            "public_url must be an address such as https:",
        ),
    ):
        assert message in refusal("serve", "--ledger", ledger_url, *words)
    assert "url must be" in refusal("serve", "--ledger", "budget.db")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = refusal("serve", "--ledger", ledger_url, "--port", port, code=6)
    assert found.startswith(f"cannot listen on 127.0.0.1 port {port}: Address already in use")


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_the_extra_is_named_where_it_is_missing(
    missing: str, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in sys.modules if n.startswith("tightbudget.web")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    found = refusal("serve", "--ledger", ledger_url)
    assert found.startswith("a server needs")
    assert found.endswith("pip install 'tightbudget[web]'")


@pytest.mark.slow
def test_the_command_line_loads_no_server_before_it_serves() -> None:
    code = "import sys, tightbudget.cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "tightbudget.cli.serve" in loaded
    heavy = {"fastapi", "starlette", "uvicorn", "jinja2", "httpx", "itsdangerous"}
    assert not (heavy | {"sqlalchemy", "pydantic"}) & set(loaded)
    assert tb.__version__


def test_an_answer_is_sent_at_once() -> None:
    with _listening("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
