"""Fifty clients of one server, and a server that is killed under them, again and again."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from tests.ledger.conftest import own_server
from tests.web.load import COIN, SCARCE, Clients, Program, Run, prepared

import tightbudget as tb
from tightbudget.output_dp.account import State

pytestmark = pytest.mark.slow

# What may have become of a run of which a client was told so much: an answer can get lost.
BECOMES: dict[str, set[str | None]] = {
    "nothing": {None, "reserved", "refused"},
    "reserved": {"reserved", "started"},
    "started": {"started", "settled"},
    "settled": {"settled"},
    "refused": {"refused"},
}


def test_fifty_clients_for_half_a_minute(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/budget.db"
    token = prepared(url)
    with Program(url, tmp_path / "log").running() as program:
        clients = Clients(program.url, token, 50)
        with clients.at_work():
            time.sleep(30)
        assert token.rpartition("_")[2] not in (tmp_path / "log").read_text(encoding="utf-8")
    runs = list(itertools.chain(*clients.runs))
    assert [run for run in runs if run.failure] == []
    told = Counter(run.told for run in runs)
    assert set(told) <= {"settled", "refused"}
    assert told["settled"] >= 50
    slowest = sorted(clients.seconds)[len(clients.seconds) * 95 // 100]
    print(f"{len(clients.seconds)} requests; 95 of 100 answered within {slowest:.3f} s")
    check(url, runs)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new database on each backend."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/budget.db"
        return
    server = own_server()
    yield server.create_database()
    server.close()


def test_a_server_that_is_killed_has_done_what_it_said(url: str, tmp_path: Path) -> None:
    token = prepared(url)
    program = Program(url, tmp_path / "log")
    with program.running():
        clients = Clients(program.url, token, 20)
        with clients.at_work():
            for life in range(3):
                time.sleep(1 + 0.37 * life)
                program.kill()
                program.start()
            time.sleep(1)
    runs = list(itertools.chain(*clients.runs))
    assert any(run.failure for run in runs)
    assert any(run.told == "settled" for run in runs)
    check(url, runs)


def check(url: str, runs: list[Run]) -> None:
    """The ledger verifies, is what the clients were told, and has charged nobody twice."""
    with tb.Ledger(url, create=False) as ledger:
        ledger.verify()
        due = {"plenty": [Fraction(0), Fraction(0)], "scarce": [Fraction(0), Fraction(0)]}
        for run in runs:
            state = became(ledger, run)
            assert state in BECOMES[run.told], run
            if state in (None, "refused"):
                continue
            hold = ledger.hold(run.key)
            (budget,) = hold.charges
            if state == "settled":
                assert hold.cell == run.cell
                due[budget][0] += COIN.price(hold.cell or "")
            else:
                due[budget][1] += COIN.sup
        for name, (spent, held) in due.items():
            statement = ledger.budget(name).statement()
            amounts = (statement.spent.amount, statement.held.amount)
            assert amounts == (float(spent), float(held))
        assert len({event.key for event in ledger.events() if event.key}) <= len(runs)
        scarce = ledger.budget("scarce")
        assert scarce.spent.amount + scarce.held.amount <= scarce.cap.amount
        refused = [run for run in runs if run.told == "refused"]
        assert not refused or scarce.left.amount < float(COIN.sup)
        assert len([run for run in runs if run.cell == "yes" and run.told == "settled"]) <= SCARCE


def became(ledger: tb.Ledger, run: Run) -> str | None:
    """Returns the state of a run; None if the ledger has never heard of the run."""
    try:
        state = ledger.hold(run.key).state
    except tb.BudgetExceeded:
        return "refused"
    except tb.errors.SettlementError:
        return None
    assert state in (State.RESERVED, State.STARTED, State.SETTLED)
    return state.value
