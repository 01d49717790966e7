"""A ledger that is served: in this process, or by a program of its own."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO

import pytest
from starlette.testclient import TestClient

import tightbudget as tb
from tightbudget.ledger.tokens import Tokens
from tightbudget.web.app import create_app
from tightbudget.web.settings import Settings

HERE = "http://127.0.0.1:8000"
SEARCH = tb.OutputDP({"found": 0.3, "not found": 0.1}, 1e-9)
TOKEN_OF_A2 = "0123456789abcdef0123456789abcdef"  # that of the examples in the document, too


@dataclass(frozen=True)
class Served:
    """A server that runs, its program, and the file of its log (a pipe would fill)."""

    url: str
    process: subprocess.Popen[str]
    log: IO[str]

    def logged(self) -> str:
        """Waits for the end of the process, and returns its log."""
        self.process.communicate(timeout=30)
        self.log.seek(0)
        return self.log.read()

    def end(self) -> str:
        """Ends the process, and returns its log."""
        self.process.terminate()
        return self.logged()


Serve = Callable[..., Served]


@contextmanager
def servers() -> Iterator[Serve]:
    """``serve(ledger_url, "--option", ...)`` runs ``tightbudget serve`` on a free port."""
    running: list[Served] = []
    files = ExitStack()

    def serve(ledger: str, *options: str) -> Served:
        words = ["-m", "tightbudget", "serve", "--ledger", ledger, "--port", "0", *options]
        log = files.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))  # noqa: SIM115
        process = subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdout is not None
        running.append(Served(process.stdout.readline().strip(), process, log))
        if not running[-1].url:
            pytest.fail(f"the server did not start: {running[-1].logged()}")
        return running[-1]

    try:
        yield serve
    finally:
        for one in running:
            if one.process.poll() is None:
                one.process.kill()
            one.process.communicate(timeout=30)
        files.close()


@pytest.fixture
def served() -> Iterator[Serve]:
    """Servers for one test."""
    with servers() as serve:
        yield serve


@pytest.fixture
def ledger_url(tmp_path: Path) -> str:
    """A ledger with a census, of which ada and bob have parts, and eve has one of ada's.

    A1 is reserved and A2 started (with TOKEN_OF_A2), both of ada; B1 is of bob, AB of both.
    """
    (tmp_path / "budget.db").write_bytes(_census())
    return f"sqlite:///{tmp_path}/budget.db"


@functools.cache
def _census() -> bytes:
    """The file of that ledger, which is made once: its acts take 50 ms."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "budget.db")
        with tb.Ledger(f"sqlite:///{path}") as ledger:
            ledger.open_budget("census", epsilon=4, delta=1e-6)
            ledger.open_budget("ada", parent="census", epsilon=2, delta=1e-7)
            ledger.open_budget("bob", parent="census", epsilon=1, delta=1e-7)
            ledger.open_budget("eve", parent="ada", epsilon=0.25, delta=1e-9)
            ledger.reserve("A1", SEARCH, ["ada"])
            ledger.reserve("A2", SEARCH, ["ada"]).start(token=TOKEN_OF_A2)
            ledger.reserve("B1", SEARCH, ["bob"])
            ledger.reserve("AB", tb.OutputDP.from_dp(0.01), ["ada", "bob"])
        assert [one.name for one in Path(folder).iterdir()] == [path.name]  # nothing beside it
        return path.read_bytes()


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[tb.Ledger]:
    with tb.Ledger(ledger_url, create=False) as it:
        yield it


@pytest.fixture
def token(ledger: tb.Ledger) -> Callable[..., str]:
    """``token("analyst", "ada")`` is a token that lasts for an hour."""

    def make(role: str, *budgets: str, name: str = "") -> str:
        made = Tokens(ledger).create(name or role, role, budgets=budgets, lasts=timedelta(hours=1))
        return made[1]

    return make


Client = Callable[..., TestClient]


@pytest.fixture
def client(ledger_url: str) -> Iterator[Client]:
    """``client("tb_...", host=...)`` asks a server in this process, with a token or without."""
    open_clients: list[TestClient] = []

    def make(token: str | None = None, **settings: str) -> TestClient:
        app = create_app(Settings(ledger_url, **settings))  # type: ignore[arg-type]
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        one = TestClient(app, HERE, headers=headers, client=("127.0.0.1", 50000))
        open_clients.append(one)
        return one.__enter__()

    yield make
    for one in open_clients:
        one.__exit__(None, None, None)
