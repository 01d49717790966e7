from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ledger.conformance import LedgerActor
from tests.ledger.servers import OwnServer, Server

from tightbudget.ledger.store import store
from tightbudget.ledger.store.versions import migrate

BACKENDS = ["sqlite", "postgresql"]


def own_server() -> OwnServer:
    """One more server; a skip that says so where there is no binary, and an error in CI."""
    try:
        return OwnServer()
    except ImportError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no PostgreSQL server: {error}; TIGHTBUDGET_TEST_POSTGRES may name one")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server that the tests share, one for each worker of pytest."""
    if url := os.environ.get("TIGHTBUDGET_TEST_POSTGRES"):
        yield Server(url)
        return
    server = own_server()
    yield server
    server.close()


@pytest.fixture
def mortal() -> Iterator[OwnServer]:
    """A server that a test may kill."""
    server = own_server()
    yield server
    server.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database with nothing in it, on each backend.

    Databases of a server are made, and waited for, at every test: only `make slow` has them.
    """
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/budget.db"
        return
    server: Server = request.getfixturevalue("postgres")
    address = server.create_database()
    yield address
    server.drop_database(address)


@pytest.fixture
def actor(url: str) -> Iterator[LedgerActor]:
    """Somebody who acts on a ledger in which nothing has happened, on each backend."""
    with contextlib.closing(LedgerActor(url)) as someone:
        yield someone


@pytest.fixture
def migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """New SQLite ledgers run all migrations, as they do outside of tests."""
    monkeypatch.setattr(store, "migrate", migrate)
