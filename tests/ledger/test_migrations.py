"""A ledger of every earlier version is brought up to date, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, create_engine, inspect, text
from tests.ledger.make_version import COIN, FOLDER, tell_a_story

import tightbudget as tb
from tightbudget.ledger import ledger as ledger_module
from tightbudget.ledger import store
from tightbudget.ledger.migrations import guards
from tightbudget.ledger.schema import (
    CHECKS,
    TRIGGERS,
    VERSION,
    VERSION_TABLE,
    metadata,
    without_history,
)
from tightbudget.ledger.store import Store, migrate
from tightbudget.ledger.tokens import Tokens
from tightbudget.ledger.verification import _TRIGGERS

FILES = sorted(FOLDER.glob("*.json"))


def old_ledger(url: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database as that version has left it."""
    rows: dict[str, list[list[Any]]] = json.loads(file.read_text(encoding="utf-8"))

    def fill(connection: Connection) -> None:
        for table in metadata.sorted_tables:
            for row in rows[table.name]:
                names = [column.name for column in table.columns]
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
        triggers = set(connection.scalars(text(_TRIGGERS[engine.dialect.name])))
        tables = set(inspect(connection).get_table_names())
    engine.dispose()
    return version, tables, triggers


def test_there_is_a_ledger_of_every_earlier_version() -> None:
    scripts = ScriptDirectory(str(Path(ledger_module.__file__).parent / "migrations"))
    versions = [script.revision for script in scripts.walk_revisions()]
    assert versions[0] == VERSION
    assert sorted(versions[1:]) == [file.stem for file in FILES]


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
    with pytest.raises(tb.LedgerError, match=r"these tables are not of a version up to 0003"):
        tb.Ledger(url)


def test_the_tables_are_those_that_the_code_sees(url: str) -> None:
    with tb.Ledger(url) as ledger, ledger._store.reading() as connection:
        options = {"version_table": VERSION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        seen = MetaData()
        for table in (*metadata.tables.values(), *without_history.tables.values()):
            table.to_metadata(seen)
        assert compare_metadata(context, seen) == []
        for name in seen.tables:
            found = {check["name"] for check in inspect(connection).get_check_constraints(name)}
            assert found == CHECKS.get(name, set())
    _, _, triggers = shape(url)
    ours = {name.removesuffix("_all") for name in triggers if not name.startswith("RI_")}
    assert ours == TRIGGERS


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
    ("UPDATE reservations SET token = 1 WHERE key = 'B2'", "starts once"),
    ("UPDATE reservations SET state = 'started', token = 1 WHERE key = 'A1'", "ends once"),
    ("UPDATE reservations SET state = 'unheard of' WHERE key = 'B3'", "state_is_known"),
    ("UPDATE reservations SET state = 'started' WHERE key = 'B3'", "started_has_a_token"),
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
