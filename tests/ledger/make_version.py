"""Writes tests/ledger/versions/<version>.json: what a ledger of that version has in its tables.

Run once for each version, when the next one is made: python -m tests.ledger.make_version 0001
"""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

import tightbudget as tb
from tightbudget.ledger.store import store
from tightbudget.ledger.store.schema import metadata, tokens
from tightbudget.ledger.store.store import Store
from tightbudget.ledger.tokens import Tokens

FOLDER = Path(__file__).parent / "versions"
COIN = tb.OutputDP({"number": 0.1, "nothing": 0}, delta=1e-7)


def tell_a_story(ledger: tb.Ledger) -> None:
    """Something of every kind, and some of it open in the end."""
    data = ledger.open_budget("data", epsilon=2, delta=1e-5)
    ada = ledger.open_budget("ada", epsilon=0.5, delta=1e-6, parent=data)
    bob = ledger.open_budget("bob", epsilon=0.5, delta=1e-6, parent=data)
    ledger.open_budget("plan", kind="plan", plan=tb.Gaussian(9.0) * 3, delta=1e-6)
    ledger.open_budget("rho", kind="zcdp", rho=0.5)
    settled = ada.reserve("A1", COIN)
    settled.start()
    settled.settle("nothing")
    ada.reserve("A2", COIN).forfeit(by="eve", reason="lost")
    ada.reserve("A3", COIN).void()
    ada.raise_cap(epsilon=0.6, by="eve", reason="more")
    ada.correct(epsilon=0.05, by="eve", reason="before the ledger")
    ada.close()
    bob.reserve("B2", COIN).start()
    bob.reserve("B3", COIN)
    with pytest.raises(tb.BudgetExceeded):
        bob.reserve("B4", tb.OutputDP.from_dp(3))
    ledger.reserve("P1", tb.Gaussian(9.0) * 2, ["plan"])
    ledger.reserve("R1", 0.125, ["rho"])
    ledger.expire("R1", by="eve", reason="left lying")


def tell_more(ledger: tb.Ledger) -> None:
    """Runs on two budgets in every state, and tokens of every role, one of them revoked."""
    for name in ("eve", "fay"):
        ledger.open_budget(name, epsilon=1, delta=1e-5)
    for key, interactive in {
        "T1": False,
        "T2": False,
        "T3": True,
        "T4": False,
        "T5": False,
    }.items():
        ledger.reserve(key, COIN, ["eve", "fay"], interactive=interactive)
    for key, end in {"T1": "settle", "T2": "forfeit", "T3": None}.items():
        hold = ledger.hold(key)
        hold.start()
        if end == "settle":
            hold.settle("nothing")
        elif end == "forfeit":
            ledger.hold(key).forfeit(reason="the machine is gone")
    ledger.hold("T4").void()
    them, month = Tokens(ledger), timedelta(days=30)
    them.create("grace", "administrator", lasts=month)
    lost, _ = them.create("ada's laptop", "analyst", budgets=["ada", "bob"], lasts=month)
    them.create("keeper of heads", "viewer", lasts=month)
    them.revoke(lost.id)


def rows_of(version: str) -> dict[str, list[list[object]]]:
    """The rows of all tables after the story."""
    clock = iter(datetime(2026, 11, 21, 18, tzinfo=UTC) + timedelta(minutes=m) for m in range(99))
    with tempfile.TemporaryDirectory() as folder:
        vars(store)["VERSION"] = version
        with tb.Ledger(f"sqlite:///{folder}/budget.db", clock=lambda: next(clock)) as ledger:
            tell_a_story(ledger)
            tell_more(ledger)
        reader = Store(f"sqlite:///{folder}/budget.db", create=False)
        with reader.reading() as connection:
            return {
                table.name: [
                    list(row) for row in connection.execute(text(f"SELECT * FROM {table}"))
                ]
                for table in (*metadata.sorted_tables, tokens)
            }


if __name__ == "__main__":
    (found,) = sys.argv[1:]
    FOLDER.mkdir(exist_ok=True)
    content = json.dumps(rows_of(found), indent=1) + "\n"
    (FOLDER / f"{found}.json").write_text(content, encoding="utf-8")
