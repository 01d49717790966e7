"""A ledger keeps audits beside its budgets: no balance changes, and wherever it is read they show.

The conformance tables have what is answered; crashes, copies and texts are where all acts are.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli import terminal
from tests.ledger.conformance import Deed, LedgerActor, found
from tests.ledger.test_races import Answers, race
from tests.ledger.victims import killed_at
from tests.web.conftest import Client, client, ledger, ledger_url, token
from tests.web.test_pages import rows_of_the_timeline

import tightbudget as tb
from tightbudget.evidence import statement_of_budget
from tightbudget.ledger import balance_history
from tightbudget.promises import replay
from tightbudget.promises.audited import AuditRecord
from tightbudget.promises.stored_words import EventKind

__all__ = ["client", "ledger", "ledger_url", "token"]

SEARCH = tb.OutputDP({"found": 0.3, "not found": 0.1}, 1e-9)
SAID = "refuted; at 95 %: epsilon at least 0.5000, at delta 1e-05 (one run, 400 trials)"
# every kind that a person opens
KINDS: dict[str, dict[str, Any]] = {
    "output_dp": {"epsilon": 1, "delta": 1e-6},
    "zcdp": {"rho": 0.5},
    "renyi": {"order": 8.0, "epsilon": 2},
    "gaussian_dp": {"mu": 1},
    "advanced": {"epsilon": 1, "delta": 1e-5, "slack": 1e-6},
    "plan": {"plan": tb.Laplace(9.0) * 2, "delta": 0},
}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tb.Ledger]:
    with tb.Ledger(f"sqlite:///{tmp_path}/own.db", by="ann") as opened:
        ada = opened.open_budget("ada", epsilon=2, delta=1e-6)
        opened.open_budget("part", parent=ada, epsilon=0.5)
        yield opened


# ------------------------------------------------------------------------- no balance changes


def test_no_balance_of_any_kind_changes(own: tb.Ledger) -> None:
    for kind, terms in KINDS.items():
        own.open_budget(kind, kind=kind, **terms)
    own.blocks("days", by=["day"], epsilon=1, cap_epsilon=2).where(day="2026-01-01").reserve(
        "D", tb.OutputDP.from_dp(0.1)
    )
    run = own.budget("ada").reserve("A1", SEARCH)
    before, holds = own.statements(), [hold.key for hold in own.holds()]
    for budget in own.budgets():
        for key in ("A1", "another"):
            event = budget.record_audit(key, found("0.01"))
            assert (event.kind, event.key, event.budget) == ("audited", key, budget.name)
            assert (event.epsilon, event.delta, event.cell) == (0.0, 0.0, None)
            assert budget.balance_history(1) == ((event, budget.balance_history(2)[0][1]),)
    assert own.statements() == before
    assert [hold.key for hold in own.holds()] == holds
    assert (run.state.value, own.hold("another") if own.is_reserved("another") else None) == (
        "reserved",
        None,
    )
    assert own.verify().reservations == 2


def test_what_is_kept_is_the_verdict_and_the_digest_of_the_whole(own: tb.Ledger) -> None:
    audit = found("0.01")
    event = own.budget("ada").record_audit("A1", audit, by="grace")
    assert event.details == {
        "verdict": "refuted",
        "confidence": 0.95,
        "said": SAID,
        "audit_sha256": AuditRecord.of(audit).audit_sha256,
        "by": "grace",
    }
    assert list(own.events(kind="audited")) == [event]
    other = AuditRecord.of(replace(audit, right=99))
    assert (other.said, other.audit_sha256) != (SAID, event.details["audit_sha256"])
    assert other.said == SAID


def test_a_real_audit_is_kept_also_with_a_claim_and_with_nothing_to_claim(own: tb.Ledger) -> None:
    labels = np.arange(40) % 2
    ada = own.budget("ada")
    with_claim = tb.audit.many_runs(labels, labels, claim=(0.25, 0.0), delta=0.0)
    assert (
        ada.record_audit("A1", with_claim)
        .details["said"]
        .startswith("refuted; at 95 %: epsilon at least")
    )
    assert (
        "claimed at most 0.2500, at delta 0.0 (many runs, "
        in (ada.record_audit("A1", with_claim).details["said"])
    )
    none = tb.audit.many_runs(labels, labels, delta=0.0)
    assert ada.record_audit("A2", none).details["said"].startswith("no claim was tested; at 95 %")
    own.verify()


def test_a_moved_key_is_spelt_as_that_of_its_run(own: tb.Ledger) -> None:
    ada = own.budget("ada")
    ada.reserve("caf\u00e9", SEARCH, question="how many")
    event = ada.record_audit("cafe\u0301", found("0.5"))
    assert (event.key, event.question) == ("caf\u00e9", "how many")


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("deed", "error", "message"),
    [
        (
            lambda b: b.budget("eve").record_audit("A1", found("0.5")),
            tb.ParameterError,
            "budget must be the name of a budget in this ledger, got 'eve'",
        ),
        (
            lambda b: b.budget("ada").record_audit("", found("0.5")),
            tb.ParameterError,
            "key must be a text of 1 to 200 printable characters, got ''",
        ),
        (
            lambda b: b.budget("ada").record_audit("A1", found("0.5"), by=""),
            tb.ParameterError,
            "by must be a text of 1 to 200 printable characters, got ''",
        ),
        (
            lambda b: b.budget("days[day=2026-01-02]").record_audit("A1", found("0.5")),
            tb.ParameterError,
            "budget must have been touched before it is audited: this block or quota was not, got",
        ),
        (
            lambda b: b.budget("ada").record_audit("old", found("0.01")),
            tb.KeyConflictError,
            "the key 'old' was used before for another audit of 'ada' (consistent; at 95 %: epsilon"
            " at least 0.5000, at delta 1e-05 (one run, 400 trials)): give this one a key of its",
        ),
    ],
)
def test_refusals(
    own: tb.Ledger, deed: Callable[[tb.Ledger], Any], error: type[Exception], message: str
) -> None:
    own.blocks("days", by=["day"], epsilon=1)
    own.budget("ada").record_audit("old", found("0.5"))
    before = own.head()
    with pytest.raises(error) as refusal:
        deed(own)
    assert str(refusal.value).startswith(message)
    assert own.head() == before


class _Says:
    """Something that has plain values, as an audit has."""

    def __init__(self, **changes: Any) -> None:
        self._said = found("0.5").to_dict() | changes

    verdict = "consistent"

    def to_dict(self) -> Any:
        return self._said


NO_AUDITS: dict[str, Any] = {
    "nothing": None,
    "a verdict": "refuted",
    "plain values": found("0.5").to_dict(),
    "the class": tb.audit.Audit,
    "bounds": tb.Bounds(0.0, 1.0),
    "a whole search": tb.audit.SearchedAudit(found("0.5"), (0, 1), ()),
    "another verdict": _Says(verdict="fine"),
    "a sure one": _Says(confidence=1.0),
    "an unsure one": _Says(confidence=float("nan")),
    "no number": _Says(epsilon_at_least="much"),
    "a negative bound": _Says(epsilon_at_least=-0.5),
    "no delta": _Says(delta=2),
    "no trials": _Says(trials=0),
    "endless trials": _Says(trials=float("inf")),
    "a test without a name": _Says(test=""),
    "what no JSON has": _Says(points={1, 2}),
}


@pytest.mark.parametrize("name", NO_AUDITS)
def test_what_is_no_audit_is_refused(own: tb.Ledger, name: str) -> None:
    before = own.head()
    with pytest.raises(tb.ParameterError, match=r"^audit must be the result of an audit, as tb\."):
        own.budget("ada").record_audit("A1", NO_AUDITS[name])
    assert own.head() == before
    assert own.budget("ada").record_audit("A1", _Says()).details["verdict"] == "consistent"


# -------------------------------------------------------------------------- once, and for good


def tell(actor: LedgerActor, who: str) -> Answers:
    return [(who, actor.act(Deed.read(f"audit A1 {word} on data"))) for word in ("0.5", "0.5")]


def test_one_that_many_tell_at_once_is_one_event(url: str, actor: LedgerActor) -> None:
    actor.told("open data 1 1e-6")
    answers = [answer for _, answer in race(url, tell, processes=2, threads=3)]
    assert {*answers} <= {"ok", "again"}  # "ok" to all that hear that somebody has written
    assert [event.kind for event in actor.ledger.events()] == ["opened", "audited"]
    actor.ledger.verify()


@pytest.mark.slow
def test_who_is_killed_has_recorded_all_of_it_or_nothing(url: str, actor: LedgerActor) -> None:
    actor.told("open data 1 1e-6", "reserve A1 0.3", "start A1")
    before, deed, points = actor.ledger.statements(), "audit A1 0.01 on data", list[str]()
    while not (told := list(actor.ledger.events(kind="audited"))):
        points = killed_at(url, deed, actor.tokens, fatal=len(points))
        assert actor.ledger.statements() == before
    assert points[-2:] == ["before commit", "after commit"]
    assert (len(told), actor.act(Deed.read(deed))) == (1, "again")
    actor.ledger.verify()


@pytest.mark.parametrize(
    "change",
    ["verdict = 'consistent'", "said", "key = 'A2'", "budget = 'part'", "kind = 'corrected'"],
)
def test_an_audit_that_was_changed_is_found(own: tb.Ledger, tmp_path: Path, change: str) -> None:
    own.budget("ada").record_audit("A1", found("0.01"))
    own.verify()
    column = change if "=" in change and "verdict" not in change else (
        "details = replace(details, 'refuted', 'consistent')"
    )  # fmt: skip
    with sqlite3.connect(tmp_path / "own.db") as file:
        (made,) = file.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'events_stay'"
        ).fetchone()
        file.execute("DROP TRIGGER events_stay")
        file.execute(f"UPDATE events SET {column} WHERE kind = 'audited'")
        file.execute(made)
    file.close()
    with pytest.raises(tb.errors.LedgerCorruptError, match=r"event 4 was changed"):
        own.verify()


def test_software_that_does_not_know_audits_refuses_and_misreads_no_balance(
    own: tb.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It charges as before: balances are rows, which an audit does not change."""
    ada = own.budget("ada")
    ada.record_audit("A1", found("0.01"))
    for module, table in ((replay, "_REPLAY"), (balance_history, "_UNDO")):
        known = {k: v for k, v in getattr(module, table).items() if k != EventKind.AUDITED}
        monkeypatch.setattr(module, table, known)
    ada.reserve("A2", SEARCH).start()
    assert (ada.held.epsilon, ada.left.epsilon) == (0.8, 1.2)
    with pytest.raises(tb.errors.LedgerCorruptError, match=r"event 4 \(audited\) makes no sense"):
        own.verify()
    with pytest.raises(tb.errors.LedgerCorruptError, match="event 4 is of no known kind: 'audited"):
        ada.balance_history()


def test_a_verification_goes_on_after_an_audit(own: tb.Ledger) -> None:
    kept: list[Any] = []
    own.budget("ada").record_audit("A1", found("0.01"))
    own.verify(keep=kept.append)
    own.budget("part").record_audit("A1", found("0.01"))
    assert own.verify(since=kept[-1]).head == own.head()


# ------------------------------------------------------------------------------ where it shows


def test_a_statement_says_what_audits_have_found(own: tb.Ledger) -> None:
    ada = own.budget("ada")
    field = "does the code keep the claim"

    def rows() -> dict[str, str]:
        statement = statement_of_budget(own, "ada")
        return dict(row for section in statement.sections for row in section.rows)

    none = replace(found("0.5"), p_value=None)
    ada.record_audit("A0", none)
    assert rows()[field] == "not tested; audits: 1 no claim"
    ada.record_audit("A1", found("0.5"))
    assert rows()[field] == "not refuted, and not proved; audits: 1 consistent, 1 no claim"
    ada.record_audit("A2", found("0.01"))
    own.budget("part").record_audit("A3", found("0.01"))
    shown = rows()
    assert shown[field] == "no: refuted by an audit; audits: 1 consistent, 1 no claim, 1 refuted"
    assert [name for name in shown if name.startswith("audit ")] == [
        "audit A2", "audit A0", "audit A1",
    ]  # fmt: skip
    assert shown["audit A2"].startswith(f"{SAID}, recorded by ann, 20")
    assert shown["runs"] == "none was charged"
    assert f"{SAID}, recorded" in statement_of_budget(own, "ada").model_card()


def test_a_terminal_records_and_shows_an_audit(own: tb.Ledger, tmp_path: Path) -> None:
    labels = np.arange(60) % 2
    lines = ["score,included", *(f"{i},{label}" for i, label in enumerate(labels))]
    file = tmp_path / "scores.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ("audit", file, "--delta", "1e-5")
    place = ("--ledger", own.url, "--budget", "ada", "--key", "A1", "--by", "eve")
    assert "audit" not in terminal.run("ledger", "history", "--ledger", own.url).stdout
    answer = terminal.answer(*words, *place)
    (event,) = own.events(kind="audited")
    assert (answer["event"], answer["verdict"]) == (event.sequence, "no claim")
    assert (event.budget, event.key, event.details["by"]) == ("ada", "A1", "eve")
    assert terminal.run(*words, *place).stdout.count("\nevent") == 1
    assert own.head().sequence == event.sequence
    history = terminal.run("ledger", "history", "--ledger", own.url).stdout
    assert event.details["said"] in history
    assert (
        json.loads(terminal.run("ledger", "history", "--ledger", own.url, "--json").stdout)[
            "events"
        ][-1]["details"]
        == event.details
    )
    refused = terminal.refusal(*words, "--confidence", "0.9", *place, code=5)
    assert "the key 'A1' was used before for another audit of 'ada'" in refused
    for missing, given in (
        ("--budget and --key", place[:2]),
        ("--ledger and --key", place[2:4]),
        ("--ledger and --budget and --key", place[6:]),
    ):
        refused = terminal.refusal(*words, *given)
        assert f"with --ledger, --budget and --key: {missing} is missing" in refused


def test_the_timeline_shows_an_audit_as_a_row_of_its_own(client: Client, ledger: tb.Ledger) -> None:
    bob = ledger.budget("bob")
    hold = bob.reserve("R1", SEARCH)
    hold.start()
    hold.settle("not found")
    bob.record_audit("R1", found("0.01"), by="eve")
    audited, settled = rows_of_the_timeline(client().get("/budget?name=bob").text)[:2]
    assert "audited" in audited
    assert f"{SAID}; by eve" in audited
    assert "before" not in audited
    assert "settled reserved, started before" in settled
    only = rows_of_the_timeline(client().get("/budget?name=bob&kind=audited").text)
    assert len(only) == 1
    events = client().get("/api/v1/events?budget=bob&kind=audited").json()["events"]
    assert [event["details"]["said"] for event in events] == [SAID]
