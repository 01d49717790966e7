"""A history that no ledger writes is found out, even where every hash is right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

import tightbudget as tb
from tightbudget.ledger import verification
from tightbudget.promises.chain import Entry, canonical, entry_after
from tightbudget.promises.replay import ReplayedLedger
from tightbudget.promises.units import NOTHING, Units

TENTH, WHOLE = Units(10**11, 10**11), Units(10**12, 10**12)
TERMS = {"kind": "output_dp", "parameters": {"epsilon": "1", "delta": "1/1000000"}}

# kind, key, budget, amounts, cell, details
Line = tuple[str, str | None, str | None, Units, str | None, dict[str, Any]]

ASKED = {"digest": "d", "interactive": False, "told": None}
OPENED: Line = ("opened", None, "data", WHOLE, None, {**TERMS, "parent": None})
RESERVED: Line = ("reserved", "k", "data", TENTH, None, ASKED)
STARTED: Line = ("started", "k", "data", NOTHING, None, {})
SETTLED: Line = ("settled", "k", "data", Units(0, 10**11), '"nothing"', {})
FORFEITED: Line = ("forfeited", "k", "data", TENTH, None, {})
VOID: Line = ("void", "k", "data", NOTHING, None, {})
REFUSED: Line = ("refused", "k", "data", WHOLE, None, {**ASKED, "message": "no"})
CLOSED: Line = ("closed", None, "data", NOTHING, None, {})
PART: Line = ("opened", None, "ada", TENTH, None, {**TERMS, "parent": "data"})
LENT: Line = ("lent", None, "data", TENTH, None, {"part": "ada"})
PART_CLOSED: Line = ("closed", None, "ada", NOTHING, None, {})
RETURNED: Line = ("returned", None, "data", Units(0, 10**11), None, {"part": "ada", "saved": 0})
MOVED: Line = ("moved", None, None, NOTHING, None, {"to": "elsewhere"})
ARRIVED: Line = ("arrived", None, None, NOTHING, None, {"from": "here"})
FOUND = {"audit_sha256": "0" * 64, "verdict": "refuted", "confidence": 0.95, "said": "refuted"}
AUDITED: Line = ("audited", "k", "data", NOTHING, None, FOUND)


def play(*lines: Line) -> ReplayedLedger:
    history = ReplayedLedger()
    for kind, key, budget, units, cell, details in lines:
        history.add(
            entry_after(
                history.head, at="2026", kind=kind,
                key=key, budget=budget, units=units, cell=cell, details=canonical(details),
            )
        )  # fmt: skip
    return history


def changed(line: Line, **changes: Any) -> Line:
    names = ("kind", "key", "budget", "units", "cell", "details")
    kind, key, budget, units, cell, details = (
        dict(zip(names, line, strict=True)) | changes
    ).values()
    return kind, key, budget, units, cell, details


def test_what_a_ledger_writes_makes_sense() -> None:
    history = play(
        OPENED, PART, LENT, RESERVED, STARTED, SETTLED, PART_CLOSED, RETURNED, MOVED, ARRIVED,
    )  # fmt: skip
    data = history.budgets["data"]
    assert (data.spent, data.held, data.saved) == ([0, 2 * 10**11], [0, 0], 10**11)
    assert history.runs["k"].state == "settled"


BAD: dict[str, tuple[list[Line], str]] = {
    "opened twice": ([OPENED, OPENED], "opened before"),
    "on nothing": ([RESERVED], "KeyError('data')"),
    "without a budget": ([changed(OPENED, budget=None)], "no budget"),
    "without a key": ([OPENED, changed(RESERVED, key=None)], "no key"),
    "reserved twice": ([OPENED, RESERVED, RESERVED], "reserved before"),
    "reserved after its end": ([OPENED, RESERVED, VOID, RESERVED], "reserved before"),
    "reserved after closing": ([OPENED, CLOSED, RESERVED], "reserved before"),
    "refused after all": ([OPENED, RESERVED, REFUSED], "known before"),
    "started unreserved": ([OPENED, STARTED], "KeyError('k')"),
    "started after its end": ([OPENED, RESERVED, VOID, STARTED], "started before"),
    "settled unstarted": ([OPENED, RESERVED, SETTLED], "it is reserved"),
    "settled twice": ([OPENED, RESERVED, STARTED, SETTLED, SETTLED], "it is settled"),
    "settled and forfeited": ([OPENED, RESERVED, STARTED, SETTLED, FORFEITED], "it is settled"),
    "settled for more": (
        [OPENED, RESERVED, STARTED, changed(SETTLED, units=Units(10**11 + 1, 10**11))],
        "more than was held, or less delta",
    ),
    "settled without delta": (
        [OPENED, RESERVED, STARTED, changed(SETTLED, units=NOTHING)],
        "more than was held, or less delta",
    ),
    "forfeited cheaply": (
        [OPENED, RESERVED, changed(FORFEITED, units=NOTHING)],
        "not the worst-case price",
    ),
    "void after the start": ([OPENED, RESERVED, STARTED, VOID], "it is started"),
    "void at a price": (
        [OPENED, RESERVED, changed(VOID, units=TENTH)],
        "a charge for what never ran",
    ),
    "returned from an open part": ([OPENED, PART, LENT, RETURNED], "not what the part has cost"),
    "returned with its delta": (
        [OPENED, PART, LENT, PART_CLOSED, changed(RETURNED, units=NOTHING)],
        "not what the part has cost",
    ),
    "returned unlent": ([OPENED, PART, PART_CLOSED, RETURNED], "KeyError('ada')"),
    "arrived from nowhere": ([OPENED, ARRIVED], "it had not moved"),
    "audited at a price": ([OPENED, changed(AUDITED, units=TENTH)], "an audit with an amount"),
    "audited in a cell": ([OPENED, changed(AUDITED, cell='"a"')], "an audit with an amount"),
    "audited without a key": ([OPENED, changed(AUDITED, key=None)], "no key"),
    "audited without a budget": ([OPENED, changed(AUDITED, budget=None)], "no budget"),
    "audited an unknown budget": ([OPENED, changed(AUDITED, budget="eve")], "KeyError('eve')"),
    "audited without a verdict": (
        [OPENED, changed(AUDITED, details={**FOUND, "verdict": "fine"})],
        "not an audit",
    ),
    "audited without a digest": (
        [OPENED, changed(AUDITED, details={**FOUND, "audit_sha256": "0"})],
        "not an audit",
    ),
    "audited surely": (
        [OPENED, changed(AUDITED, details={**FOUND, "confidence": 1.0})],
        "a confidence outside of (0, 1)",
    ),
    "of no kind": ([changed(OPENED, kind="guessed")], "KeyError('guessed')"),
    "without details": ([changed(OPENED, details={})], "KeyError('kind')"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_makes_no_sense_is_found_out(name: str) -> None:
    lines, reason = BAD[name]
    play(*lines[:-1])
    message = rf"^event {len(lines)} \({lines[-1][0]}\) makes no sense: .*{re.escape(reason)}"
    with pytest.raises(tb.errors.LedgerCorruptError, match=message):
        play(*lines)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [OPENED, changed(RESERVED, units=Units(10**12 + 1, 0))],
            "event 2 takes more from 'data' than its cap",
        ),
        (
            [OPENED, changed(OPENED, kind="corrected", units=Units(0, 10**12 + 1), details={})],
            "event 2 takes more from 'data' than its cap",
        ),
        (
            [
                OPENED,
                changed(
                    PART,
                    kind="lent",
                    budget="data",
                    units=Units(0, 10**13),
                    details={"part": "ada"},
                ),
            ],
            "event 2 takes more from 'data' than its cap",
        ),
        ([OPENED, MOVED, RESERVED], "event 3 is later than the ledger's move"),
    ],
)
def test_what_leaves_the_limits_is_found_out(lines: list[Line], message: str) -> None:
    with pytest.raises(tb.errors.LedgerCorruptError, match=f"^{re.escape(message)}$"):
        play(*lines)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DROP TRIGGER events_stay", "the ledger has lost the trigger events_stay"),
        ("INSERT INTO charges VALUES (2, 1, 0, 0)", "the reservation 'k' is not what the history"),
        ("INSERT INTO steps VALUES (1, 'x', 3, 0)", "the steps of 'data' are not what the history"),
        (
            "INSERT INTO budgets SELECT 9, 'eve', kind, parameters, parent, root, closed, 0, 0, 0,"
             " 0, 0, 0, 0 FROM budgets",
            "the budget 'eve' is not what the history says",
        ),
        (
            "INSERT INTO reservations SELECT 9, 'eve', body, digest, interactive, state,"
             " started, cell, told, token FROM reservations",
            "the reservation 'eve' is not what the history says",
        ),
    ],
)  # fmt: skip
def test_rows_without_a_history_are_found_out(tmp_path: Path, statement: str, message: str) -> None:
    def deed(connection: Connection) -> None:
        connection.exec_driver_sql(statement)

    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        data = ledger.open_budget("data", epsilon=1, delta=1e-6)
        with pytest.raises(tb.BudgetExceeded):
            data.reserve("k", tb.OutputDP.from_dp(2))
        ledger.verify()
        ledger._store.write(deed)
        with pytest.raises(tb.errors.LedgerCorruptError, match=f"^{re.escape(message)}"):
            ledger.verify()


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification reads 4 events at once, and 3 reservations."""
    monkeypatch.setattr(verification, "_PAGE", 4)
    monkeypatch.setattr(verification, "_AT_ONCE", 3)


@pytest.mark.usefixtures("small_pages")
def test_runs_that_ended_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[int] = []

    class Watched(ReplayedLedger):
        def add(self, entry: Entry) -> None:
            super().add(entry)
            known.append(len(self.runs))

    monkeypatch.setattr(verification, "ReplayedLedger", Watched)
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        data = ledger.open_budget("data", epsilon=1, delta=1e-6)
        ledger.open_budget("more", epsilon=1, delta=1e-6)
        for i in range(20):
            data.reserve(f"void{i}", tb.OutputDP.from_dp(0.01)).void()
            both = ledger.reserve(f"both{i}", tb.OutputDP.from_dp(0.01), budgets=["data", "more"])
            both.start()
            both.forfeit()
        with pytest.raises(tb.BudgetExceeded):
            data.reserve("refused", tb.OutputDP.from_dp(2))
        data.reserve("open", tb.OutputDP.from_dp(0.01))
        assert ledger.verify().reservations == 42
    assert len(known) == 2 + 20 * 8 + 2
    assert max(known) <= 4  # those that end in a page, or are open


@pytest.mark.one_in(4)
@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["DELETE FROM charges WHERE reservation = 2"], "the reservation 'k0' is not what the"),
        (
            ["DELETE FROM charges WHERE reservation = 2", "DELETE FROM reservations WHERE id = 2"],
            "the reservation 'k0' is missing",
        ),
        (
            [
                "INSERT INTO reservations SELECT 3, 'eve', body, digest, interactive, state,"
                " started, token, cell, told FROM reservations WHERE key = 'k0'"
            ],
            "the reservation 'eve' is not what the history says it is",
        ),
        (
            [
                "INSERT INTO reservations SELECT 64, 'eve', body, digest, interactive, state,"
                " started, token, cell, told FROM reservations WHERE key = 'k0'"
            ],
            "there are 1 reservations that the history does not know",
        ),
        (["INSERT INTO charges VALUES (99, 1, 0, 0)"], "there are charges that belong to no"),
    ],
)
def test_rows_of_runs_that_ended_are_compared(
    tmp_path: Path, statements: list[str], message: str
) -> None:
    """The last run charges two budgets, and the number of its second event is no reservation's."""

    def deed(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        for trigger in (
            connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'")
            .scalars()
            .all()
        ):
            connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
        for statement in statements:
            connection.exec_driver_sql(statement)
        with pytest.raises(tb.errors.LedgerCorruptError, match=f"^{re.escape(message)}"):
            verification.verify(connection, iter)
        raise KeyboardInterrupt

    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        data = ledger.open_budget("data", epsilon=1, delta=1e-6)
        for i in range(20):
            run = data.reserve(f"k{i}", tb.OutputDP.from_dp(0.01))
            run.start()
            run.forfeit()
        ledger.open_budget("more", epsilon=1, delta=1e-6)
        ledger.reserve("both", tb.OutputDP.from_dp(0.01), budgets=["data", "more"]).void()
        monkey = pytest.MonkeyPatch()
        with monkey.context() as patch:
            patch.setattr(verification, "check_shape", lambda connection: None)
            with pytest.raises(KeyboardInterrupt):
                ledger._store.write(deed)
        ledger.verify()
