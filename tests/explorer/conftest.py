"""One server in this process, whose workers are warm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.web.conftest import HERE

import tightbudget as tb
from tightbudget.web.app import create_app
from tightbudget.web.settings import Settings


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    path: Path = tmp_path_factory.mktemp("explorer") / "budget.db"
    tb.Ledger(f"sqlite:///{path}").close()
    app = create_app(Settings(f"sqlite:///{path}"))
    with TestClient(app, HERE, client=("127.0.0.1", 50000)) as client:
        yield client
