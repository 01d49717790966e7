"""Every column of every row of every table is changed once, behind the ledger's back.

Whoever changes a row has switched the triggers off, as the owner of a database can; those the
database refuses all the same, for a constraint, count as detected. What even the owner cannot
do unseen is tested against an exported head.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    create_engine,
    select,
    text,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from tests.ledger.conformance import LedgerActor
from tests.ledger.make_shape import FILE
from tests.ledger.servers import Server

import tightbudget as tb
from tightbudget.ledger import verification
from tightbudget.ledger.store.schema import VERSION_TABLE, metadata, with_access
from tightbudget.ledger.tokens import Tokens
from tightbudget.output_dp.amount import ZERO
from tightbudget.output_dp.pricing import OutputDPRule
from tightbudget.promises.chain import Head

VERSIONS = Table(VERSION_TABLE, MetaData(), Column("version_num", String, primary_key=True))
TABLES = [*metadata.sorted_tables, *with_access.sorted_tables, VERSIONS]
SHAPES = json.loads(FILE.read_text(encoding="utf-8"))
TRIGGERS = {
    name.removeprefix("trigger ")
    for shape in SHAPES.values()
    for name in shape
    if name.startswith("trigger ")
}

STORY = """
open data 2 1e-5
open ada 0.6 1e-6 in data
open bob 0.6 1e-6 in data
reserve A1 yes=0.3,no=0.1+1e-7 on ada
start A1
settle A1 no
close ada
reserve B1 0.2 on bob
reserve B2 0.9 on bob
reserve B3 yes=0.1,no=0 on bob
start B3
reserve B4 0.01 on data
void B4
reserve B5 0.01 on data
expire B5
reserve B6 0.01 on data
start B6
forfeit B6
reserve B7 0.3900000001 on bob
raise bob 0.61 1e-6
"""


@pytest.fixture
def busy(actor: LedgerActor) -> LedgerActor:
    """Somebody on a ledger in which everything has happened."""
    actor.told(*STORY.strip().splitlines())
    plan = tb.compose([tb.Gaussian(sigma=5.0) * 3])
    actor.ledger.open_budget("plan", kind="plan", plan=plan, delta=1e-6)
    actor.ledger.reserve("C1", tb.Gaussian(sigma=5.0), budgets=["plan"]).start()
    actor.ledger.reserve("C2", tb.OutputDP.from_dp(0.01), budgets=["data"], interactive=True)
    tokens = Tokens(actor.ledger)
    for name, budgets in {"ada": ["bob", "data"], "lost": ["bob"]}.items():
        token, _ = tokens.create(name, "analyst", budgets=budgets, lasts=timedelta(days=1))
    tokens.revoke(token.id)
    return actor


@contextlib.contextmanager
def owner(engine: Engine) -> Iterator[Connection]:
    """A connection of somebody for whom no triggers, foreign keys and, on SQLite, checks hold."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL session_replication_role = replica"))
            yield connection
            return
        connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
        connection.exec_driver_sql("BEGIN")  # the driver would not, before a DROP
        found = connection.execute(
            text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        ).all()
        for name, _ in found:
            connection.execute(text(f"DROP TRIGGER {name}"))
        yield connection
        for _, sql in found:
            connection.exec_driver_sql(sql)


def others(column: Column[Any], value: Any) -> Iterator[Any]:
    """Other values of the same type, as near as there are, and one that is out of its range."""
    number = column.type.python_type is int
    if value is None:
        yield 1 if number else '"x"'
    elif number:
        yield from (value + 1, -value - 1)
    else:
        yield value + " "
    if column.nullable and value is not None:
        yield None


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("most", "page"),
    [
        (4, 10_000),
        (1, 1),
        pytest.param(10**6, 10_000, marks=pytest.mark.slow),
        pytest.param(10**6, 1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("table", TABLES, ids=str)
def test_no_value_is_changed_unseen(
    url: str,
    busy: LedgerActor,
    table: Table,
    most: int,
    page: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In some rows, or in all; with pages of one event, each ended run is forgotten at once."""
    monkeypatch.setattr(verification, "_PAGE", page)
    busy.ledger.verify()
    engine = create_engine(url)
    unseen = []
    with engine.connect() as connection:
        rows = connection.execute(select(table)).all()
    assert rows
    for row in rows[:: max(1, len(rows) // most)]:
        for column in table.columns:
            for other in others(column, row._asdict()[column.name]):
                changed = row._asdict() | {column.name: other}
                if replaced(engine, table, row._asdict(), changed):
                    if not detected(busy):
                        unseen.append(f"{column} of {row} is {other}")
                    assert replaced(engine, table, changed, row._asdict())
    assert not unseen
    busy.ledger.verify()
    engine.dispose()


HOSTILE = {
    "very deep": "[" * 10**5,
    "a deep object": '{"a":' * 10**5,
    "very long": "x" * 10**6,
    "empty": "",
    "infinite": "1e999",
    "not a number": "NaN",
    "too many digits": "9" * 10**4,
    "divided by zero": "1/0",
    "half a character": r'"\ud800"',
    "a character that ends texts": "a\0b",
    "another type": "[]",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(
            text, id=name, marks=[] if name in ("very deep", "empty") else pytest.mark.slow
        )
        for name, text in HOSTILE.items()
    ],
)
def test_what_cannot_be_read_is_a_finding(url: str, busy: LedgerActor, hostile: str) -> None:
    """In each cell of text of a row of each table; no other exception comes out."""
    engine, unseen = create_engine(url), []
    for table in TABLES:
        with engine.connect() as connection:
            row = connection.execute(select(table)).all()[-1]._asdict()
        for column in table.columns:
            changed = row | {column.name: hostile}
            is_text = column.type.python_type is str
            if is_text and row != changed and replaced(engine, table, row, changed):
                if not detected(busy):
                    unseen.append(str(column))
                assert replaced(engine, table, changed, row)
    assert not unseen
    busy.ledger.verify()
    engine.dispose()


@pytest.mark.parametrize("version", ["", "[" * 10**5, "NaN", "a\0b", b"\xff"])
def test_a_version_that_cannot_be_read_is_a_finding(tmp_path: Path, version: str | bytes) -> None:
    """A ledger is opened, and brought up to date, before it is verified."""
    url = f"sqlite:///{tmp_path}/budget.db"
    tb.Ledger(url).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "budget.db")) as connection, connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = CAST(? AS TEXT)", [version])
    with pytest.raises(tb.errors.LedgerCorruptError, match="version"):
        tb.Ledger(url)


def replaced(engine: Engine, table: Table, old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether the database lets its owner put a row in the place of another."""
    primary = [column == old[column.name] for column in table.primary_key.columns]
    try:
        with owner(engine) as connection:
            connection.execute(table.update().where(*primary).values(new))
    except DBAPIError:
        return False
    return True


def detected(someone: LedgerActor) -> bool:
    try:
        someone.ledger.verify()
    except tb.errors.LedgerCorruptError:
        return True
    return False


@pytest.mark.one_in(6)
@pytest.mark.parametrize("table", TABLES, ids=str)
def test_no_row_is_taken_out_or_put_in_unseen(url: str, busy: LedgerActor, table: Table) -> None:
    engine = create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(select(table)).all()
    for row in rows:
        primary = [column == row._asdict()[column.name] for column in table.primary_key.columns]
        with owner(engine) as connection:
            connection.execute(table.delete().where(*primary))
        assert detected(busy), f"{row} was deleted"
        with owner(engine) as connection:
            connection.execute(table.insert().values(row._asdict()))
    new = {
        column.name: value + 1000 if isinstance(value, int) else f"{value}+"
        for column, value in zip(table.columns, rows[-1], strict=True)
        if column.primary_key or column.unique
    }
    with owner(engine) as connection:
        connection.execute(table.insert().values(rows[-1]._asdict() | new))
    assert detected(busy)
    engine.dispose()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("table", metadata.sorted_tables, ids=str)
def test_the_triggers_refuse_what_only_an_owner_can_do(
    url: str, busy: LedgerActor, table: Table
) -> None:
    engine = create_engine(url)
    with engine.connect() as connection:
        row = connection.execute(select(table)).first()
    assert row is not None
    primary = [column == row._asdict()[column.name] for column in table.primary_key.columns]
    with pytest.raises(DBAPIError, match="never deleted"), engine.begin() as connection:
        connection.execute(table.delete().where(*primary))
    busy.ledger.verify()
    engine.dispose()


@pytest.mark.parametrize("line", ["settle A1 yes", "reserve A2 yes=0.3,no=0.1"])
def test_a_cheap_act_is_seen_although_its_event_is_in_the_chain(
    actor: LedgerActor, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who writes events as the ledger does, for less than what they cost."""
    actor.told("open data 1 1e-6", "reserve A1 yes=0.3,no=0", "start A1")
    with monkeypatch.context() as patch:
        patch.setattr(OutputDPRule, "cost", lambda *_: ZERO)
        assert actor.told(line) == ["ok"]
    with pytest.raises(tb.errors.LedgerCorruptError, match=r"another (price|amount)"):
        actor.ledger.verify()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted(TRIGGERS))
def test_a_trigger_that_is_gone_is_missed(actor: LedgerActor, url: str, name: str) -> None:
    engine = create_engine(url)
    postgresql = url.startswith("postgresql")
    if name.endswith("_all") and not postgresql:
        return  # SQLite has no TRUNCATE
    with engine.begin() as connection:
        on = f" ON {table_of(name)}" if postgresql else ""
        connection.execute(text(f"DROP TRIGGER {name}{on}"))
    with pytest.raises(
        tb.errors.LedgerCorruptError, match=f"^the ledger has lost the trigger {name}$"
    ):
        actor.ledger.verify()
    engine.dispose()


def table_of(trigger: str) -> str:
    """The table that a trigger guards: the beginning of its name."""
    (found,) = (table.name for table in TABLES if trigger.startswith(table.name))
    return str(found)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted(TRIGGERS))
def test_a_trigger_that_does_nothing_is_noticed(actor: LedgerActor, url: str, name: str) -> None:
    """Its name is there; what it refuses never happens."""
    engine, table = create_engine(url), table_of(name)
    postgresql = url.startswith("postgresql")
    if name.endswith("_all") and not postgresql:
        return
    with engine.connect() as connection:
        definition = connection.scalar(
            text(
                f"SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = '{name}'"
                if postgresql
                else f"SELECT sql FROM sqlite_master WHERE name = '{name}'"
            )
        )
    before, sep, after = definition.rpartition(" EXECUTE " if postgresql else " BEGIN ")
    harmless, _, _ = before.partition(" WHEN ")
    if postgresql:
        changed = definition.replace("EXECUTE FUNCTION", "WHEN (1 = 0) EXECUTE FUNCTION")
        if " WHEN (" in before:
            changed = f"{harmless} WHEN (1 = 0){sep}{after}"
    else:
        changed = f"{harmless} WHEN 1 = 0{sep}{after}"
    with engine.begin() as connection:
        connection.execute(text(f"DROP TRIGGER {name}" + (f" ON {table}" if postgresql else "")))
        connection.exec_driver_sql(changed.replace("%", "%%"))
    message = f"^the trigger {name} is not what the ledger has made$"
    with pytest.raises(tb.errors.LedgerCorruptError, match=message):
        actor.ledger.verify()
    engine.dispose()


CHANGED = "is not what the ledger has made"
SAME = ""  # what may be added
EDITED = "PRAGMA writable_schema = ON", "UPDATE sqlite_master SET sql = replace(sql, '{}', '{}')"
# by database: what an owner can do to definitions, and what is said about it
DEFINITIONS: dict[str, list[tuple[str, ...]]] = {
    "postgresql": [
        (
            "CREATE OR REPLACE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql"
            " AS 'BEGIN RETURN NEW; END'",
            f"the function ledger_refuse {CHANGED}",
        ),
        ("ALTER TABLE events DISABLE TRIGGER events_stay", f"the trigger events_stay {CHANGED}"),
        ("ALTER TABLE charges DISABLE TRIGGER ALL", f"the trigger charges_remain {CHANGED}"),
        (
            "ALTER TABLE budgets DROP CONSTRAINT held_is_not_negative",
            "the ledger has lost the constraint budgets.held_is_not_negative",
        ),
        (
            "ALTER TABLE budgets DROP CONSTRAINT held_is_not_negative",
            "ALTER TABLE budgets ADD CONSTRAINT held_is_not_negative CHECK (true)",
            f"the constraint budgets.held_is_not_negative {CHANGED}",
        ),
        (
            "ALTER TABLE reservations DROP CONSTRAINT reservations_key_key",
            "the ledger has lost the constraint reservations.reservations_key_key",
        ),
        (
            "ALTER TABLE charges DROP CONSTRAINT charges_budget_fkey",
            "the ledger has lost the constraint charges.charges_budget_fkey",
        ),
        (
            "DROP INDEX events_of_a_key",
            "CREATE INDEX events_of_a_key ON events (kind)",
            f"the index events_of_a_key {CHANGED}",
        ),
        ("DROP INDEX open_reservations", "the ledger has lost the index open_reservations"),
        (
            "CREATE RULE nothing AS ON UPDATE TO charges DO INSTEAD NOTHING",
            "the ledger has made no rule nothing",
        ),
        (
            "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "CREATE TRIGGER aaa BEFORE UPDATE ON budgets FOR EACH ROW EXECUTE FUNCTION skip()",
            "the ledger has made no function skip",
        ),
        (
            "CREATE TRIGGER aaa BEFORE UPDATE ON budgets FOR EACH ROW"
            " EXECUTE FUNCTION ledger_refuse('no')",
            "the ledger has made no trigger aaa",
        ),
        (
            "CREATE TRIGGER events_stay BEFORE UPDATE ON budgets FOR EACH ROW"
            " EXECUTE FUNCTION ledger_refuse('no')",
            f"the trigger events_stay {CHANGED}",
        ),
        (
            "ALTER TABLE budgets ALTER COLUMN name DROP NOT NULL",
            f"the column budgets.name {CHANGED}",
        ),
        ("ALTER TABLE events ADD COLUMN more text", "the ledger has made no column events.more"),
        ("CREATE INDEX more ON events (kind)", "CREATE TABLE more_of_it (a text)", SAME),
    ],
    "sqlite": [
        (
            "CREATE TABLE copy AS SELECT * FROM charges",
            "DROP TABLE charges",
            "ALTER TABLE copy RENAME TO charges",
            f"the table charges {CHANGED}",
        ),
        (
            EDITED[0],
            EDITED[1].format("held_epsilon >= 0 AND held_delta >= 0", "1"),
            f"the table budgets {CHANGED}",
        ),
        (
            EDITED[0],
            EDITED[1].format('UNIQUE ("key")', "CHECK (1)"),
            f"the table reservations {CHANGED}",
        ),
        (
            EDITED[0],
            EDITED[1].format("held_epsilon >= 0", "/* held_epsilon >= 0 */ 1 > 0"),
            f"the table budgets {CHANGED}",
        ),
        (
            "DROP INDEX events_of_a_key",
            "CREATE INDEX events_of_a_key ON events (kind)",
            f"the index events_of_a_key {CHANGED}",
        ),
        ("DROP INDEX open_reservations", "the ledger has lost the index open_reservations"),
        (
            "CREATE TRIGGER aaa BEFORE UPDATE ON budgets BEGIN SELECT RAISE(IGNORE); END",
            "the ledger has made no trigger aaa",
        ),
        ("ALTER TABLE events ADD COLUMN more TEXT", f"the table events {CHANGED}"),
        ("CREATE INDEX more ON events (kind)", "CREATE TABLE more_of_it (a TEXT)", SAME),
        (EDITED[0], EDITED[1].format("CREATE TABLE", "create  /* one */ table"), SAME),
    ],
}


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("backend", "number"), [(b, i) for b, lines in DEFINITIONS.items() for i in range(len(lines))]
)
def test_a_definition_that_was_changed_is_noticed(
    backend: str, number: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    *changes, message = DEFINITIONS[backend][number]
    server: Server | None = None
    url = f"sqlite:///{tmp_path}/budget.db"
    if backend == "postgresql":
        server = request.getfixturevalue("postgres")
        url = server.create_database()
    with contextlib.closing(LedgerActor(url)) as actor:
        actor.told("open data 1 1e-6", "reserve A1 yes=0.3,no=0", "start A1")
        actor.ledger.verify()
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for change in changes:
                connection.exec_driver_sql(change)
        engine.dispose()
        if message == SAME:
            actor.ledger.verify()
        else:
            with pytest.raises(tb.errors.LedgerCorruptError, match=f"^{re.escape(message)}$"):
                actor.ledger.verify()
    if server is not None:
        server.drop_database(url)


EARLY = (
    "INSERT INTO events SELECT {}, at, kind, key, budget, epsilon, delta, cell, details, previous,"
    " hash FROM events WHERE sequence = 1"
)
# what was put into rows, or taken out, and what is said about it
ROWS = {
    EARLY.format(0): "1 events are before the first",
    EARLY.format(-7): "1 events are before the first",
    (
        "INSERT INTO tokens (id, name, role, budgets, created, expires, hash)"
        " VALUES ('0', 'eve', 'administrator', '[]', '2026', '2027', '0')"
    ): "the access token '0' is not what the history says it is",
    "UPDATE tokens SET revoked = '2026'": "is not what the history says it is",
    "UPDATE tokens SET hash = 'x'": "is not what the history says it is",
    "DELETE FROM tokens": "2 access tokens are missing",
    "DELETE FROM ledger_version": "ledger_version must have the row 0004, got []",
    "UPDATE reservations SET interactive = 2 WHERE interactive = 1": "a truth value of a row must"
    " be 0 or 1, got 2",
    "UPDATE budgets SET closed = 2 WHERE closed = 1": "a truth value of a row must be 0 or 1, got",
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("statement", ROWS)
def test_a_row_that_no_event_explains_is_noticed(
    url: str, busy: LedgerActor, statement: str
) -> None:
    engine = create_engine(url)
    try:
        with owner(engine) as connection:
            connection.execute(text(statement))
    except DBAPIError:
        assert "= 2" in statement
        assert url.startswith("postgresql")  # where checks hold for owners, too
        return
    finally:
        engine.dispose()
    with pytest.raises(tb.errors.LedgerCorruptError, match=re.escape(ROWS[statement])):
        busy.ledger.verify()


# ---------------------------------------------------------------- backups and copies


Pair = tuple[LedgerActor, LedgerActor]


def copied(server: Server | None, url: str, folder: Path) -> str:
    """The same database once more, as a backup or a copied file has it; nobody is connected."""
    if url.startswith("sqlite"):
        shutil.copy(str(make_url(url).database), folder / "copy.db")
        return f"sqlite:///{folder}/copy.db"
    assert server is not None
    return server.create_database(template=url)


@pytest.fixture
def pair(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Somebody on a ledger, and on a copy of what it was when nobody was connected."""
    with contextlib.closing(LedgerActor(url)) as actor:
        actor.told("open data 1 1e-6", "reserve A1 yes=0.3,no=0", "start A1")
        tokens = actor.tokens
    server = None if url.startswith("sqlite") else request.getfixturevalue("postgres")
    copy = LedgerActor(copied(server, url, tmp_path), tokens)
    now = LedgerActor(url, tokens)
    yield now, copy
    now.close()
    copy.close()


def test_a_restored_backup_is_detected(pair: Pair) -> None:
    """It would let the run settle once more, and forget what was spent since."""
    now, backup = pair
    early = now.ledger.head()
    assert now.told("settle A1 yes") == ["ok"]
    late = Head.from_text(str(now.ledger.head()))
    backup.ledger.verify()  # nothing is wrong with it in itself
    for ledger, head in ((backup.ledger, early), (now.ledger, early), (now.ledger, late)):
        ledger.check(head)
    with pytest.raises(tb.errors.LedgerCorruptError, match="an earlier state of the ledger"):
        backup.ledger.check(late)
    # going on from the backup does not help
    assert backup.told("settle A1 no", "reserve B1 0.1", "start B1") == ["ok"] * 3
    with pytest.raises(tb.errors.LedgerCorruptError, match="copies of which both were used"):
        backup.ledger.check(late)


def test_two_copies_in_use_are_detected(pair: Pair) -> None:
    """Both spend what is left, each for itself."""
    one, two = pair
    assert one.told("settle A1 yes") == two.told("settle A1 no") == ["ok"]
    heads = one.ledger.head(), two.ledger.head()
    assert heads[0].sequence == heads[1].sequence
    for actor, head in zip((two, one), heads, strict=True):
        actor.ledger.verify()
        with pytest.raises(tb.errors.LedgerCorruptError, match="copies of which both were used"):
            actor.ledger.check(head)
