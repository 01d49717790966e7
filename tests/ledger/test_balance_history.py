"""The course of a budget: its last events, each with the balance that was stored then."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.guards.mutants import Without, each, lose_a_truth
from tests.ledger.conformance import Deed, LedgerActor
from tests.ledger.test_model import deeds

import tightbudget as tb
from tightbudget.ledger import balance_history
from tightbudget.promises.values import Event, Statement

# every kind of event that changes a balance, also of budgets in budgets, with caps up and down
STORY = """
open data 2 1e-6
open other 1 1e-6
open ada 1 5e-7 in data
reserve A yes=0.3,no=0.1+1e-8 on ada,other
start A
reserve B 0.2 on data
raise ada 1.5 6e-7
settle A no
raise ada 0.5 4e-7
void B
reserve C 0.3 on ada
start C
reserve D 0.1 on ada
expire D
audit C 0.01 on ada
forfeit C
audit whole 0.5 on data
reserve E 0.9 on ada
close ada
raise data 1.7 1e-6
reserve F yes=0.25,no=0 on data
start F
settle F perhaps
open ada2 0.1 0 in data
close ada2
""".strip().splitlines()


def parts_add_up(statements: Iterable[Statement]) -> None:
    """The sum for open parts is that of all open budgets below, to the last unit."""
    budgets = {statement.name: statement for statement in statements}
    sums = {name: (Decimal(0), Decimal(0)) for name in budgets}
    for one in budgets.values():
        over = one
        while not over.closed and over.parent is not None:
            epsilon, delta = sums[over.parent]
            spent = Decimal(repr(one.spent.amount)), Decimal(repr(one.spent.delta))
            sums[over.parent] = (epsilon + spent[0], delta + spent[1])
            over = budgets[over.parent]
    for name, one in budgets.items():
        found = one.spent_in_parts
        assert found is not None
        assert (Decimal(repr(found.amount)), Decimal(repr(found.delta))) == sums[name]
        assert found.amount <= one.held.amount


class Witness:
    """Reads every budget after each act: what its course must say later."""

    def __init__(self, ledger: tb.Ledger) -> None:
        self.ledger = ledger
        self.seen: dict[str, dict[int, Statement]] = {}

    def look(self) -> None:
        statements = self.ledger.statements()
        parts_add_up(statements)
        for statement in statements:
            statement = replace(statement, spent_in_parts=None)  # no earlier moment has it
            (event,) = self.ledger.latest(1, budget=statement.name)
            self.seen.setdefault(statement.name, {})[event.sequence] = statement

    def agrees(self, last: int) -> bool:
        return all(
            [
                (event.sequence, then)
                for event, then in self.ledger.budget(name).balance_history(last)
            ]
            == list(seen.items())[-last:]
            for name, seen in self.seen.items()
        )


def told(actor: LedgerActor) -> Witness:
    witness = Witness(actor.ledger)
    for line in STORY:
        assert actor.act(Deed.read(line)) == ("exceeded" if " E " in line else "ok"), line
        witness.look()
    actor.ledger.budget("data").correct(epsilon=0.01, by="grace", reason="a lost disk")
    witness.look()
    return witness


def test_the_course_is_what_was_read_at_the_time(actor: LedgerActor) -> None:
    witness = told(actor)
    kinds = {event.kind for event in actor.ledger.events()}
    assert kinds == {
        *("opened", "lent", "reserved", "refused", "started", "settled", "forfeited", "void"),
        *("expired", "capped", "corrected", "closed", "returned", "audited"),
    }
    for last in (1, 2, 3, 5, 1000):
        assert witness.agrees(last)
    for statement in actor.ledger.statements():
        assert statement == actor.ledger.budget(statement.name).statement()


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(acts=st.lists(deeds, min_size=5, max_size=40), last=st.integers(1, 50))
def test_after_any_deeds(acts: list[Deed], last: int, tmp_path: Path) -> None:
    path = tmp_path / f"{next(NUMBERS)}.db"
    with contextlib.closing(LedgerActor(f"sqlite:///{path}")) as actor:
        witness = Witness(actor.ledger)
        for deed in (Deed.read("open data 1 1e-6"), Deed.read("open ada 0.5 5e-7 in data"), *acts):
            actor.act(deed)
            witness.look()
        assert witness.agrees(last)


NUMBERS = itertools.count()


def test_a_plan_is_spent_from_the_beginning(actor: LedgerActor) -> None:
    plan = tb.Gaussian(sigma=20.0) * 3
    data = actor.ledger.open_budget("data", epsilon=3, delta=1e-6)
    part = actor.ledger.open_budget("plan", kind="plan", plan=plan, delta=1e-7, parent="data")
    part.reserve("P", tb.Gaussian(sigma=20.0))
    assert all(then.spent == then.cap for _, then in part.balance_history())
    assert [then.held.amount > 0 for _, then in data.balance_history()] == [False, True]


def test_a_length_that_is_none_is_refused(actor: LedgerActor) -> None:
    actor.ledger.open_budget("data", epsilon=1, delta=0)
    with pytest.raises(tb.ParameterError, match=r"last must be .* got 0"):
        actor.ledger.budget("data").balance_history(0)


# --------------------------------------------------------------------- the other questions


def test_the_last_events_come_first_and_go_on_before_one(actor: LedgerActor) -> None:
    told(actor)
    ledger = actor.ledger
    forwards = list(ledger.events())
    assert ledger.latest(1000) == tuple(reversed(forwards))
    pages: list[Event] = []
    before = None
    while page := ledger.latest(7, before=before):
        pages += page
        before = page[-1].sequence
    assert pages == forwards[::-1]


def test_filters_agree_with_looking_at_each_event(actor: LedgerActor) -> None:
    told(actor)
    ledger = actor.ledger
    everything = list(ledger.events())
    for name in ("data", "ada"):
        assert list(ledger.events(budget=name)) == [e for e in everything if e.budget == name]
    both = [e for e in everything if e.budget in ("ada", "other")]
    assert list(ledger.events(budgets=("ada", "other"))) == both
    for kind in ("settled", "refused", "nothing"):
        assert list(ledger.events(kind=kind)) == [e for e in everything if e.kind == kind]
    assert list(ledger.events(kind="settled", key="A", after=1, limit=1)) == [
        next(e for e in everything if (e.kind, e.key) == ("settled", "A"))
    ]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a_1", {"A_1"}),
        ("%", {"50%"}),
        ("grün", {"grün", "cell"}),
        ('"no"', {"quoted"}),
        ("", {"A_1", "AB1", "50%", "grün", "cell", "quoted"}),
        ("'; DROP TABLE events; --", set()),
    ],
)
def test_search_finds_a_part_of_the_text_and_no_pattern(
    actor: LedgerActor, text: str, keys: set[str]
) -> None:
    data = actor.ledger.open_budget("data", epsilon=1, delta=0)
    cells = {"cell": "ist grün", "quoted": 'says "no"'}
    for key in ("A_1", "AB1", "50%", "grün", "cell", "quoted"):
        hold = data.reserve(key, tb.OutputDP({cells.get(key, "x"): 0.01}))
        hold.start()
        hold.settle(cells.get(key, "x"))
    assert {e.key for e in actor.ledger.events(search=text) if e.key} == keys


def test_since_is_the_time_of_the_state(actor: LedgerActor) -> None:
    data = actor.ledger.open_budget("data", epsilon=1, delta=0)
    hold = data.reserve("A", tb.OutputDP.from_dp(0.1))
    times = {event.kind: event.at for event in actor.ledger.events()}
    assert hold.since == times["reserved"]
    hold.start()
    times = {event.kind: event.at for event in actor.ledger.events()}
    assert hold.since == times["started"] != times["reserved"]
    (seen,) = actor.ledger.holds()
    assert seen.since == hold.since


# ------------------------------------------------------------------------------ mutations

LINES = [
    Without(
        "what was held comes back",
        {
            "held-again": (
                "return after._replace(held=after.held, spent=after.spent.minus(cost), "
                "saved=after.saved.minus(Units(epsilon=saved, delta=0)))"
            )
        },
        bool,
    ),
    Without(
        "what it cost goes",
        {
            "held-again": (
                "return after._replace(held=after.held.plus(held), spent=after.spent, "
                "saved=after.saved.minus(Units(epsilon=saved, delta=0)))"
            )
        },
        bool,
    ),
    Without(
        "what was saved goes",
        {
            "held-again": (
                "return after._replace(held=after.held.plus(held), "
                "spent=after.spent.minus(cost), saved=after.saved)"
            )
        },
        bool,
    ),
    Without("an event is undone: lent", {"undo-lent": "gone = Units(epsilon=0, delta=0)"}, bool),
    Without(
        "an event is undone: capped",
        {"undo-capped": "cap = self._earlier(entry, EventKind.OPENED)"},
        bool,
    ),
    Without("an event is undone: closed", {"undo-closed": "return after"}, bool),
    Without(
        "an event is undone: settled",
        {"undo-settled": "return _held_again(after, held=held, cost=cost, saved=0)"},
        bool,
    ),
    Without(
        "an event is undone: ended",
        {
            "undo-ended": (
                "return _held_again(after, held=self._held_by(entry), "
                "cost=_amount(entry), saved=self._held_by(entry).epsilon)"
            )
        },
        bool,
    ),
    Without("an event is undone: corrected", {"undo-corrected": "return after"}, bool),
    Without("an event is undone: reserved", {"undo-reserved": "return after"}, bool),
    Without(
        "an event is undone: returned",
        {
            "undo-returned": (
                "return _held_again(after, held=_known(entry, lent), cost=_amount(entry), saved=0)"
            )
        },
        bool,
    ),
]


def _true(tmp_path: Path) -> bool:
    with contextlib.closing(LedgerActor(f"sqlite:///{tmp_path}/{next(NUMBERS)}.db")) as actor:
        witness = told(actor)
        return all(witness.agrees(last) for last in (1, 3, 1000))


@pytest.mark.one_in(6)
@each(LINES)
def test_without_a_line_the_course_is_wrong(
    mutation: Without, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = dict(balance_history._UNDO)

    def true() -> bool:
        """The table has the methods that there are now, the changed one among them."""
        now = {kind: getattr(balance_history._Undo, undo.__name__) for kind, undo in table.items()}
        monkeypatch.setattr(balance_history, "_UNDO", now)
        return _true(tmp_path)

    lose_a_truth(monkeypatch, replace(mutation, true=true))


def test_an_end_without_a_beginning_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    with tb.Ledger(f"sqlite:///{path}") as ledger:
        data = ledger.open_budget("data", epsilon=1, delta=0)
        data.reserve("A", tb.OutputDP.from_dp(0.5)).void()
        assert [statement.held.amount for _, statement in data.balance_history()] == [0, 0.5, 0]
        with contextlib.closing(sqlite3.connect(path)) as tampered, tampered:
            for (name,) in tampered.execute("SELECT name FROM sqlite_master WHERE type='trigger'"):
                tampered.execute(f"DROP TRIGGER {name}")
            tampered.execute("DELETE FROM events WHERE kind = 'reserved'")
        with pytest.raises(tb.errors.LedgerCorruptError, match="event 3 ends what no event began"):
            data.balance_history()


def test_the_old_name_says_the_new_one(tmp_path: Path) -> None:
    ledger = tb.Ledger(f"sqlite:///{tmp_path}/budget.db")
    budget = ledger.open_budget("ada", epsilon=1)
    with pytest.raises(AttributeError, match=r"LedgerBudget\.course is .*\.balance_history now"):
        _ = budget.course  # type: ignore[attr-defined]
    ledger.close()
