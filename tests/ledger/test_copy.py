"""A ledger moves between databases: nothing is lost, and only one of the two goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select, text
from tests.guards.mutants import Without, lose_a_truth
from tests.ledger.conformance import found
from tests.ledger.conftest import BACKENDS

import tightbudget as tb
from tightbudget.ledger import copy as copying
from tightbudget.ledger.store.schema import events, metadata
from tightbudget.promises.chain import Head, entry_after
from tightbudget.promises.units import NOTHING

SEARCH = tb.OutputDP({"found": 0.3, ("not", 1): 0.1}, 1e-9)
BOTH_WAYS = [
    pytest.param(two, marks=pytest.mark.slow)
    for two in (("sqlite", "postgresql"), ("postgresql", "sqlite"))
]
WHO: dict[str, Any] = {"by": "grace", "reason": "a test"}


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], tb.Ledger]]:
    """Makes a ledger in a new database of a backend."""
    with ExitStack() as stack:
        made: list[tb.Ledger] = []

        def new(backend: str) -> tb.Ledger:
            if backend == "sqlite":
                url = f"sqlite:///{tmp_path}/{len(made)}.db"
            else:
                server = request.getfixturevalue("postgres")
                url = server.create_database()
                stack.callback(server.drop_database, url)
            made.append(stack.enter_context(tb.Ledger(url)))
            return made[-1]

        yield new


@pytest.fixture(
    params=[
        pytest.param((a, b), marks=[pytest.mark.slow] * ("postgresql" in (a, b)))
        for a in BACKENDS
        for b in BACKENDS
    ],
    ids="-to-".join,
)
def two(
    request: pytest.FixtureRequest, place: Callable[[str], tb.Ledger]
) -> tuple[tb.Ledger, tb.Ledger]:
    """A ledger in which all has happened that can happen, and an empty one."""
    source, target = map(place, request.param)
    lived(source)
    return source, target


@pytest.fixture
def files(place: Callable[[str], tb.Ledger]) -> tuple[tb.Ledger, tb.Ledger]:
    """The same in two files."""
    source, target = place("sqlite"), place("sqlite")
    lived(source)
    return source, target


def lived(ledger: tb.Ledger) -> None:
    census = ledger.open_budget("census", epsilon=10, delta=1e-6)
    ada = ledger.open_budget("ada", parent=census, epsilon=2, delta=1e-7)
    ledger.open_budget("bob", parent=census, epsilon=1).close()
    rho = ledger.open_budget("rho", kind="zcdp", rho=0.5)
    plan = ledger.open_budget("plan", kind="plan", plan=tb.Laplace(scale=9.0) * 3, delta=0)
    census.raise_cap(epsilon=11, delta=1e-6, **WHO)
    census.correct(epsilon=0.5, **WHO)
    census.record_audit("settled", found("0.5"))
    for key, end in {
        "settled": lambda hold: hold.settle(("not", 1)),
        "forfeited": lambda hold: hold.forfeit(**WHO),
        "started": lambda hold: None,
    }.items():
        hold = ada.reserve(key, SEARCH)
        hold.start()
        end(hold)
    ada.reserve("void", SEARCH).void()
    ada.reserve("reserved", tb.OutputDP.from_dp(0.1), interactive=True)
    ada.reserve("expired", SEARCH)
    ledger.expire("expired", **WHO)
    rho.reserve("numbers", 0.02)
    plan.reserve("step", tb.Laplace(scale=9.0))
    with pytest.raises(tb.BudgetExceeded):
        ada.reserve("refused", tb.OutputDP.from_dp(5))
    left = ada.left
    told = ada.reserve("told", tb.OutputDP.from_dp(left.epsilon * (1 + 1e-10)))
    assert told.told is not None


def rows_of(ledger: tb.Ledger) -> dict[str, list[Any]]:
    """Everything that is stored."""
    with ledger._store.reading() as connection:
        return {
            table.name: list(connection.execute(select(table).order_by(*table.primary_key.columns)))
            for table in metadata.sorted_tables
        }


# ---------------------------------------------------------------------------- the same


def test_every_row_is_the_same_and_the_history_goes_on(two: tuple[tb.Ledger, tb.Ledger]) -> None:
    source, target = two
    statements, holds = source.statements(), [h.key for h in source.holds()]
    found = source.copy_to(target)
    here, there = rows_of(source), rows_of(target)
    arrived = there["events"].pop()
    assert here == there
    assert (here["events"][-1].kind, arrived.kind) == ("moved", "arrived")
    assert target.statements() == statements
    assert [h.key for h in target.holds()] == holds
    assert found.head == target.head() == Head(arrived.sequence, arrived.hash)
    assert found == target.verify()
    assert source.verify().head == Head(arrived.sequence - 1, arrived.previous)


def test_what_was_begun_in_the_source_ends_in_the_target(two: tuple[tb.Ledger, tb.Ledger]) -> None:
    source, target = two
    hold = source.budget("ada").reserve("K", tb.OutputDP({"a": 0, "b": 0}))
    hold.start()
    kept = source.head()
    source.copy_to(target)
    target.hold("K", token=hold.token).settle("a")
    target.hold("reserved").start()
    assert target.budget("ada").reserve("settled", SEARCH).cell == ("not", 1)
    with pytest.raises(tb.BudgetExceeded):
        target.hold("refused")
    target.check(kept)
    target.check(source.head())
    target.verify()
    with pytest.raises(tb.errors.LedgerCorruptError, match="3 events are missing"):
        source.check(target.head())


@pytest.mark.parametrize("two", BOTH_WAYS, ids="-to-".join, indirect=True)
def test_a_ledger_may_move_on_but_not_to_two_places(
    two: tuple[tb.Ledger, tb.Ledger], place: Callable[[str], tb.Ledger]
) -> None:
    source, target = two
    source.copy_to(target)
    third = place("sqlite")
    with pytest.raises(tb.LedgerError, match=r"was moved to .* and cannot be moved to sqlite:////"):
        source.copy_to(third)
    assert third.head().sequence == 0
    target.copy_to(third)
    assert [e.kind for e in third.events()][-4:] == ["moved", "arrived"] * 2
    third.verify()
    with pytest.raises(tb.LedgerError, match=r"was moved to .* and cannot be moved to"):
        target.copy_to(source)


# --------------------------------------------------------------------------- the source


ACTS: dict[str, Callable[[tb.Ledger], object]] = {
    "open": lambda ledger: ledger.open_budget("new", epsilon=1),
    "close": lambda ledger: ledger.budget("rho").close(),
    "raise": lambda ledger: ledger.budget("census").raise_cap(epsilon=12, **WHO),
    "correct": lambda ledger: ledger.budget("census").correct(epsilon=0.1, **WHO),
    "audit": lambda ledger: ledger.budget("census").record_audit("new", found("0.5")),
    "audit again": lambda ledger: ledger.budget("census").record_audit("settled", found("0.5")),
    "reserve": lambda ledger: ledger.budget("census").reserve("new", SEARCH),
    "reserve again": lambda ledger: ledger.budget("ada").reserve("settled", SEARCH),
    "start": lambda ledger: ledger.hold("reserved").start(),
    "settle": lambda ledger: ledger.hold("started", token=9).settle("found"),
    "forfeit": lambda ledger: ledger.hold("started").forfeit(),
    "void": lambda ledger: ledger.hold("reserved").void(),
    "expire": lambda ledger: ledger.expire("reserved", **WHO),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("act", ACTS)
def test_a_ledger_that_has_moved_is_only_read(act: str, files: tuple[tb.Ledger, tb.Ledger]) -> None:
    source, target = files
    source.copy_to(target)
    before = rows_of(source)
    with pytest.raises(tb.LedgerError, match=r"was moved to sqlite:////.*/1\.db, and can only be"):
        ACTS[act](source)
    assert rows_of(source) == before


def test_nothing_that_was_granted_while_it_moves_is_lost(
    files: tuple[tb.Ledger, tb.Ledger],
) -> None:
    source, target = files
    granted: list[str] = []
    some = threading.Event()

    def charge(name: str) -> None:
        with tb.Ledger(source.url) as mine:
            for n in range(10_000):
                try:
                    mine.budget("census").reserve(f"{name}{n}", tb.OutputDP.from_dp(1e-6))
                except tb.LedgerError:
                    return
                granted.append(f"{name}{n}")
                if len(granted) > 20:
                    some.set()

    threads = [threading.Thread(target=charge, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    assert some.wait(60)
    source.copy_to(target)
    for thread in threads:
        thread.join(60)
    kept = {hold.key for hold in target.holds()}
    assert len(granted) > 20
    assert set(granted) <= kept
    assert rows_of(source)["reservations"] == rows_of(target)["reservations"]


def test_what_is_not_as_its_history_says_is_not_moved(files: tuple[tb.Ledger, tb.Ledger]) -> None:
    source, target = files
    with source._store._engine.begin() as connection:
        connection.execute(text("UPDATE budgets SET saved_epsilon = 7"))
    with pytest.raises(
        tb.errors.LedgerCorruptError, match="the budget 'census' is not what the history"
    ):
        source.copy_to(target)
    assert source.budget("ada").reserve("later", tb.OutputDP.from_dp(0)).charge.epsilon == 0
    assert target.head().sequence == 0


# --------------------------------------------------------------------------- the target


def test_only_an_empty_place_takes_a_ledger(files: tuple[tb.Ledger, tb.Ledger]) -> None:
    source, target = files
    target.open_budget("other", epsilon=1)
    for place, events_there in [(target, 1), (source, source.head().sequence)]:
        with pytest.raises(
            tb.ParameterError, match=f"target must be empty, got a ledger of {events_there} events"
        ):
            source.copy_to(place)
    source.budget("ada").reserve("later", tb.OutputDP.from_dp(0))  # it has not moved


def test_a_place_that_is_taken_meanwhile_is_left_alone(
    files: tuple[tb.Ledger, tb.Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = files
    leave = copying._leave

    def late(*arguments: Any) -> Head:
        target.open_budget("other", epsilon=1)
        return leave(*arguments)

    monkeypatch.setattr(copying, "_leave", late)
    with pytest.raises(tb.errors.LedgerCorruptError, match="events are missing"):
        source.copy_to(target)
    assert [s.name for s in target.statements()] == ["other"]


class PowerCut(BaseException):
    """Nobody catches this."""


@pytest.mark.parametrize("two", BOTH_WAYS, ids="-to-".join, indirect=True)
@pytest.mark.parametrize("moment", ["sealed", "half-way", "arrived"])
def test_interrupted_it_is_brought_to_its_end(
    moment: str, two: tuple[tb.Ledger, tb.Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = two
    before, arrive = source.statements(), copying._arrive

    def cut(*arguments: Any, **more: Any) -> Any:
        if moment == "arrived":
            arrive(*arguments)
            arguments[0].commit()
        raise PowerCut

    name = "entry_after" if moment == "half-way" else "_arrive"
    monkeypatch.setattr(copying, name, cut)
    with pytest.raises(PowerCut):
        source.copy_to(target)
    monkeypatch.undo()
    assert (target.head().sequence > 0) == (moment == "arrived")
    with pytest.raises(tb.LedgerError, match="can only be read"):
        source.budget("ada").reserve("later", SEARCH)
    source.copy_to(target)
    assert target.statements() == before
    assert [e.kind for e in target.events()].count("arrived") == 1


def test_an_empty_ledger_moves_too(place: Callable[[str], tb.Ledger]) -> None:
    source, target = place("sqlite"), place("sqlite")
    assert source.copy_to(target).head.sequence == 2
    target.open_budget("first", epsilon=1)
    target.verify()


# --------------------------------------------------------------------------- forgeries


def forge(ledger: tb.Ledger, kind: str) -> None:
    """One more event, with the hash that it should have."""

    def act(connection: Any) -> None:
        head = ledger.head()
        entry = entry_after(
            head,
            at="now",
            kind=kind,
            key=None,
            budget="ada",
            units=NOTHING,
            cell=None,
            details="{}",
        )
        connection.execute(insert(events), entry._asdict())

    ledger._store.write(act)


def test_a_sealed_ledger_that_was_written_all_the_same_is_found_out(
    files: tuple[tb.Ledger, tb.Ledger],
) -> None:
    source, target = files
    source.copy_to(target)
    number = source.head().sequence + 1
    forge(source, "corrected")
    with pytest.raises(
        tb.errors.LedgerCorruptError, match=f"event {number} is later than the ledger's move"
    ):
        source.verify()
    with pytest.raises(tb.errors.LedgerCorruptError, match="are copies of which both were used"):
        target.check(source.head())


def test_nothing_arrives_that_has_not_left(files: tuple[tb.Ledger, tb.Ledger]) -> None:
    source, _ = files
    forge(source, "arrived")
    with pytest.raises(tb.errors.LedgerCorruptError, match="it had not moved"):
        source.verify()


def test_without_the_seal_both_copies_are_charged(
    place: Callable[[str], tb.Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_one_is_charged() -> bool:
        source, target = place("sqlite"), place("sqlite")
        source.open_budget("b", epsilon=1)
        source.copy_to(target)
        spent = 0.0
        for ledger in (source, target):
            try:
                spent += ledger.budget("b").reserve("K", tb.OutputDP.from_dp(0.75)).charge.epsilon
            except tb.LedgerError:
                continue
        return spent <= 1

    seal = Without(
        "the seal", {"moved-ledger-sealed": "if last is not None and False:"}, only_one_is_charged
    )
    lose_a_truth(monkeypatch, seal)
