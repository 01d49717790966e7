"""The API answers what the library does."""

from __future__ import annotations

from collections.abc import Callable

import httpx
from tests.web.conftest import Client, Serve

import tightbudget as tb


def test_a_server_answers_and_is_ended(served: Serve, ledger_url: str) -> None:
    server = served(ledger_url)
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/api/v1/health").json() == {"ok": True, "version": tb.__version__}
        names = [b["name"] for b in client.get("/api/v1/budgets").json()["budgets"]]
    assert names == ["census", "ada", "bob", "eve"]
    assert "GET /api/v1/budgets 200" in server.end()


def test_a_run_is_paid_for(client: Client, token: Callable[..., str], ledger: tb.Ledger) -> None:
    ask = client(token("analyst", "ada"))
    body = {"key": "A1", "budgets": ["ada"], "guarantee": {"epsilon": 0.1}}
    for _ in "twice":
        held = ask.post("/api/v1/reserve", json=body)
        assert held.status_code == 200, held.text
        assert held.json()["charges"]["ada"] == {"amount": 0.1, "delta": 0.0, "unit": "epsilon"}
    started = ask.post("/api/v1/start", json={"key": "A1"}).json()
    settled = ask.post(
        "/api/v1/settle", json={"key": "A1", "token": started["token"], "cell": "x"}
    ).json()
    assert settled["state"] == "settled"
    assert ledger.budget("ada").spent.epsilon == 0.1
