"""A ledger of every earlier version is brought up to date, whole or not at all."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    Connection,
    Engine,
    MetaData,
    Table,
    create_engine,
    event,
    inspect,
    select,
    text,
)
from tests.ledger.make_shape import FILE, shape_of
from tests.ledger.make_version import COIN, FOLDER, tell_a_story
from tests.ledger.victims import killed_opening

import tightbudget as tb
from tightbudget.ledger.store import store
from tightbudget.ledger.store.migrations import guards
from tightbudget.ledger.store.schema import (
    VERSION,
    VERSION_TABLE,
    events,
    metadata,
    reservations,
    with_access,
)
from tightbudget.ledger.store.store import Store
from tightbudget.ledger.store.versions import migrate
from tightbudget.ledger.tokens import Tokens
from tightbudget.promises.chain import Head, canonical, digest, entry_after
from tightbudget.promises.units import NOTHING

TRIGGERS = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": "SELECT tgname FROM pg_trigger WHERE tgenabled IN ('O', 'A')",
}
FILES = sorted(FOLDER.glob("*.json"))

pytestmark = pytest.mark.usefixtures("migrations")


def old_ledger(url: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database as that version has left it."""
    rows: dict[str, list[list[Any]]] = json.loads(file.read_text(encoding="utf-8"))

    def fill(connection: Connection) -> None:
        for name in (table.name for table in (*metadata.sorted_tables, *with_access.sorted_tables)):
            if name in rows:
                table = Table(name, MetaData(), autoload_with=connection)
                names = [column.name for column in table.columns]
                for row in rows[name]:
                    connection.execute(table.insert(), dict(zip(names, row, strict=True)))

    with monkeypatch.context() as patch:
        patch.setattr(store, "VERSION", file.stem)
        old = Store(url, create=True)
        old.write(fill)
        assert old.version() == file.stem
        old.close()


def shape(url: str) -> tuple[str, set[str], set[str]]:
    """The version, and the names of tables and triggers, as anybody sees them."""
    engine = create_engine(url)
    with engine.connect() as connection:
        version = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
        triggers = set(connection.scalars(text(TRIGGERS[engine.dialect.name])))
        tables = set(inspect(connection).get_table_names())
    engine.dispose()
    return version, tables, triggers


def test_there_is_a_ledger_of_every_earlier_version() -> None:
    scripts = ScriptDirectory(str(Path(store.__file__).parent / "migrations"))
    versions = [script.revision for script in scripts.walk_revisions()]
    assert versions[0] == VERSION
    assert sorted(versions[1:]) == [file.stem for file in FILES]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_brought_up_to_date_and_goes_on(
    url: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_ledger(url, file, monkeypatch)
    with tb.Ledger(url, create=False) as ledger:
        before = ledger.head()
        assert ledger._store.version() == VERSION
        ledger.verify()
        bob = ledger.budget("bob")
        assert (bob.held.epsilon, bob.left.epsilon) == (0.2, 0.3)
        with pytest.raises(tb.BudgetExceeded, match=r"requested epsilon 3.0"):
            ledger.hold("B4")
        started = next(event for event in ledger.events(key="B2") if event.kind == "started")
        ledger.hold("B2", token=started.sequence).settle("nothing")
        ledger.hold("B3").start()
        assert (bob.held.epsilon, bob.saved.epsilon) == (0.1, 0.1)
        ledger.verify()
        ledger.check(before)


NEWEST = FILES[-1]
AT_0003 = json.loads(NEWEST.read_text(encoding="utf-8"))


@pytest.fixture
def upgraded(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tb.Ledger]:
    """The ledger of version 0003, opened by this one."""
    old_ledger(url, NEWEST, monkeypatch)
    with tb.Ledger(url, create=False) as ledger:
        yield ledger


@pytest.mark.parametrize("as_it_was", [int, str])
def test_a_run_that_was_open_is_settled_with_its_old_number(
    upgraded: tb.Ledger, as_it_was: type
) -> None:
    (started, *_) = (e for e in upgraded.events(key="T3") if e.kind == "started")
    for wrong in (started.sequence + 1, "", None, digest(str(started.sequence))):
        with pytest.raises(tb.errors.FencingError, match="settled with the token of its start"):
            upgraded.hold("T3", token=wrong).settle("nothing")
    hold = upgraded.hold("T3", token=as_it_was(started.sequence))
    assert (hold.since, hold.by) == (started.at, None)
    hold.settle("nothing")
    assert upgraded.budget("eve").spent.epsilon == 0.1
    upgraded.verify()


def test_what_was_over_stays_over(upgraded: tb.Ledger) -> None:
    (number, *_) = (e.sequence for e in upgraded.events(key="T2") if e.kind == "started")
    with pytest.raises(tb.errors.FencingError, match="it is forfeited, at the worst-case price"):
        upgraded.hold("T2", token=number).settle("nothing")
    upgraded.hold("T1").settle("nothing")  # as it was settled
    for key, state in {"T1": "settled", "T2": "forfeited", "T4": "void"}.items():
        assert upgraded.hold(key).state.value == state
        with pytest.raises(tb.errors.SettlementError):
            upgraded.hold(key).start()
    upgraded.hold("T5").start()
    upgraded.verify()


def test_the_database_has_no_number_in_the_place_of_a_token(upgraded: tb.Ledger) -> None:
    with upgraded._store.reading() as connection:
        found = connection.execute(select(reservations)).all()
    assert {row.key for row in found if row.started is not None} == {"A1", "B2", "T1", "T2", "T3"}
    for row in found:
        assert row.token == (None if row.started is None else digest(str(row.started)))


def test_access_tokens_that_were_there_are_explained(upgraded: tb.Ledger) -> None:
    them = Tokens(upgraded)
    assert [token.name for token in them.all()] == ["grace", "ada's laptop", "keeper of heads"]
    told = [event for event in upgraded.events() if event.kind.startswith("token_")]
    assert [(event.kind, event.details["id"]) for event in told] == [
        ("token_created", them.all()[0].id),
        ("token_created", them.all()[1].id),
        ("token_revoked", them.all()[1].id),
        ("token_created", them.all()[2].id),
    ]
    assert {event.details["reason"] for event in told} == {"created before version 0004"}
    assert upgraded.verify().tokens == 3
    them.revoke(them.all()[0].id)
    assert upgraded.verify().tokens == 3


def sealed(url: str, to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger of version 0003 that was being moved, and its process was killed."""
    old_ledger(url, NEWEST, monkeypatch)
    engine = create_engine(url)
    with engine.begin() as connection:
        last = connection.execute(select(events).order_by(events.c.sequence.desc())).first()
        assert last is not None
        moved = entry_after(
            Head(sequence=last.sequence, hash=last.hash), at="2026", kind="moved",
            key=None, budget=None, units=NOTHING, cell=None, details=canonical({"to": to}),
        )  # fmt: skip
        connection.execute(events.insert(), moved._asdict())
    engine.dispose()


def test_a_ledger_that_was_moved_gets_no_events_and_arrives_with_its_tokens(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = f"sqlite:///{tmp_path}/there.db"
    sealed(url, there, monkeypatch)
    with tb.Ledger(url, create=False) as ledger, tb.Ledger(there) as target:
        before = ledger.head()
        assert ledger.verify().tokens == 0
        assert [event.kind for event in ledger.latest(1)] == ["moved"]
        ledger.copy_to(target)
        assert ledger.head() == before
        assert target.verify().tokens == len(Tokens(target).all()) == 3
        ledger.copy_to(target)
        assert [event.kind for event in target.latest(5)][-1] == "arrived"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_step_that_fails_half_way_leaves_the_old_ledger(
    url: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_ledger(url, file, monkeypatch)
    before = shape(url)
    real = guards.guard

    def half(*wanted: guards.Guard) -> None:
        real(*wanted[:2])
        raise RuntimeError("the power is gone")

    monkeypatch.setattr(guards, "guard", half)
    with pytest.raises(RuntimeError, match="the power is gone"):
        tb.Ledger(url)
    assert shape(url) == before
    monkeypatch.undo()
    with tb.Ledger(url) as ledger:
        ledger.verify()


@pytest.mark.slow
def test_a_migration_that_stops_before_any_of_its_statements_has_done_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_ledger(url, NEWEST, monkeypatch)
    before, engine = shape(url), create_engine(url)

    def rows() -> list[Any]:
        with engine.connect() as connection:
            wanted = (f"SELECT * FROM {name} ORDER BY 1" for name in AT_0003)
            return [connection.execute(text(each)).all() for each in wanted]

    kept, sent = rows(), itertools.count()
    for fatal in itertools.count():

        def stop(_: Any, __: Any, statement: str, *___: Any) -> None:
            flushes = "pg_logical_emit_message" in statement  # after the commit of all others
            if not flushes and next(sent) == fatal:  # noqa: B023
                raise RuntimeError("the power is gone")

        sent = itertools.count()
        event.listen(Engine, "before_cursor_execute", stop)
        try:
            tb.Ledger(url).close()
            break
        except RuntimeError:
            if shape(url) != before:  # what came after the commit: all was done
                break
            assert rows() == kept
        finally:
            event.remove(Engine, "before_cursor_execute", stop)
    assert fatal > 10  # statements, of which each was the last one
    engine.dispose()
    with tb.Ledger(url) as ledger:
        assert ledger.verify().tokens == 3


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_migrates_leaves_the_old_ledger(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_ledger(url, NEWEST, monkeypatch)
    before = shape(url)
    for fatal in (6, 12, 18):
        assert len(killed_opening(url, fatal)) == fatal + 1
        assert shape(url) == before
    with tb.Ledger(url) as ledger:
        assert ledger.verify().tokens == 3


def test_a_new_ledger_that_fails_half_way_is_none(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: guards.Guard) -> None:
        raise RuntimeError("the power is gone")

    with monkeypatch.context() as patch:
        patch.setattr(guards, "guard", nothing)
        with pytest.raises(RuntimeError, match="the power is gone"):
            tb.Ledger(url)
    with pytest.raises(tb.LedgerError, match="there is no ledger"):
        tb.Ledger(url, create=False)
    tb.Ledger(url).close()


def test_a_ledger_of_a_later_version_is_left_alone(url: str) -> None:
    with tb.Ledger(url) as ledger:
        ledger.open_budget("data", epsilon=1)
        ledger._store.write(
            lambda connection: connection.execute(
                text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
            )
        )
    with pytest.raises(tb.LedgerError, match=r"these tables are not of a version up to 0004"):
        tb.Ledger(url)


def test_the_tables_are_those_that_the_code_sees(url: str) -> None:
    with tb.Ledger(url) as ledger, ledger._store.reading() as connection:
        options = {"version_table": VERSION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        seen = MetaData()
        for table in (*metadata.tables.values(), *with_access.tables.values()):
            table.to_metadata(seen)
        assert compare_metadata(context, seen) == []


def test_the_definitions_of_a_new_ledger_are_those_that_verify_compares_with(url: str) -> None:
    """If this fails after a change of the tables: python -m tests.ledger.make_shape."""
    expected = json.loads(FILE.read_text(encoding="utf-8"))
    assert shape_of(url) == expected[url.partition(":")[0].partition("+")[0]]


def test_migrating_to_a_version_that_is_there_changes_nothing(url: str) -> None:
    with tb.Ledger(url) as ledger:
        tell_a_story(ledger)
        head = ledger.head()
        ledger._store.write(lambda connection: migrate(connection, VERSION))
        assert ledger.head() == head
        assert ledger.hold("B3").guarantee == COIN


REFUSED = [
    ("UPDATE events SET epsilon = 0", "events are never changed"),
    ("DELETE FROM events", "events are never deleted"),
    ("DELETE FROM charges", "charges are never deleted"),
    ("DELETE FROM steps", "steps are never deleted"),
    ("DELETE FROM reservations", "reservations are never deleted"),
    ("DELETE FROM budgets", "budgets are never deleted"),
    ("UPDATE budgets SET spent_epsilon = spent_epsilon - 1 WHERE spent_epsilon > 0", "stays spent"),
    ("UPDATE budgets SET closed = 0 WHERE closed = 1", "stays spent"),
    ("UPDATE budgets SET name = 'x' WHERE name = 'bob'", "a budget stays what it is"),
    ("UPDATE budgets SET spent_epsilon = cap_epsilon + 1", "epsilon_is_within_the_cap"),
    ("UPDATE budgets SET held_delta = cap_delta + 1", "delta_is_within_the_cap"),
    ("UPDATE budgets SET held_epsilon = -1", "held_is_not_negative"),
    ("UPDATE budgets SET cap_epsilon = 0 WHERE name = 'bob'", "epsilon_is_within_the_cap"),
    ("UPDATE charges SET epsilon = -1", "charge_is_not_negative"),
    ("UPDATE steps SET used = times + 1", "step_runs_as_often_as_declared"),
    ("UPDATE reservations SET body = '{}'", "keeps its key and its prices"),
    ("UPDATE reservations SET state = 'reserved' WHERE key = 'B2'", "starts once"),
    ("UPDATE reservations SET state = 'void' WHERE key = 'B2'", "starts once and ends once"),
    ("UPDATE reservations SET token = 'x' WHERE key = 'B2'", "starts once"),
    ("UPDATE reservations SET token = NULL WHERE key = 'B2'", "starts once"),
    ("UPDATE reservations SET started = 1 WHERE key = 'B2'", "starts once"),
    ("UPDATE reservations SET started = NULL WHERE key = 'B2'", "starts once"),
    ("UPDATE reservations SET state = 'started', started = 1 WHERE key = 'B3'", "starts once"),
    ("UPDATE reservations SET state = 'started', token = 'x' WHERE key = 'A1'", "ends once"),
    ("UPDATE reservations SET state = 'unheard of' WHERE key = 'B3'", "state_is_known"),
    ("UPDATE reservations SET state = 'started', token = 'x' WHERE key = 'B3'", "started_has_a"),
    ("DELETE FROM tokens", "tokens are never deleted"),
    ("UPDATE tokens SET role = 'administrator'", "a token keeps what it may do"),
    ("UPDATE tokens SET budgets = '[]'", "a token keeps what it may do"),
    ("UPDATE tokens SET expires = '9999'", "a token keeps what it may do"),
    ("UPDATE tokens SET hash = '0'", "a token keeps what it may do"),
    ("UPDATE tokens SET revoked = NULL WHERE name = 'lost'", "is revoked once"),
    ("INSERT INTO tokens VALUES ('0', 'x', 'root', '[]', '0', '9', '0', NULL)", "role_is_known"),
]


def test_the_database_refuses_what_the_code_never_does(url: str) -> None:
    with tb.Ledger(url) as ledger:
        tell_a_story(ledger)
        tokens = Tokens(ledger)
        for name in ("ada", "lost"):
            token, _ = tokens.create(name, "analyst", budgets=["bob"], lasts=timedelta(days=1))
        tokens.revoke(token.id)
        for statement, message in REFUSED:
            with pytest.raises(tb.LedgerError, match=message):
                ledger._store.write(lambda connection: connection.execute(text(statement)))  # noqa: B023
        ledger.verify()


def test_replacing_an_event_is_refused_too(tmp_path: Path) -> None:
    """SQLite deletes what it replaces without a trigger, unless it is told otherwise."""
    replace: Callable[[Connection], object] = lambda connection: connection.execute(  # noqa: E731
        text("INSERT OR REPLACE INTO events SELECT * FROM events WHERE sequence = 1")
    )
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        tell_a_story(ledger)
        with pytest.raises(tb.LedgerError, match="events are never deleted"):
            ledger._store.write(replace)
