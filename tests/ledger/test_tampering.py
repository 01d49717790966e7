"""Every column of every row of every table is changed once, behind the ledger's back.

Whoever changes a row has switched the triggers off, as the owner of a database can; those the
database refuses all the same, for a constraint, count as detected. What even the owner cannot
do unseen is tested against an exported head.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Engine, Table, create_engine, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from tests.ledger.servers import Server

import tightbudget as tb
from tightbudget.ledger.chain import Head
from tightbudget.ledger.schema import TRIGGERS, metadata, without_history
from tightbudget.ledger.testing import LedgerActor
from tightbudget.output_dp.account import Amount

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
    return actor


@contextlib.contextmanager
def owner(engine: Engine) -> Iterator[Connection]:
    """A connection of somebody for whom neither triggers nor foreign keys hold."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL session_replication_role = replica"))
            yield connection
            return
        connection.exec_driver_sql("BEGIN")  # the driver would not, before a DROP
        found = connection.execute(
            text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        ).all()
        for name, _ in found:
            connection.execute(text(f"DROP TRIGGER {name}"))
        yield connection
        for _, sql in found:
            connection.exec_driver_sql(sql)


def other(column: Column[Any], value: Any) -> Any:
    """Another value of the same type, as near as there is."""
    if value is None:
        return 1 if column.type.python_type is int else '"x"'
    return value + 1 if isinstance(value, int) else value + " "


@pytest.mark.parametrize("table", metadata.sorted_tables, ids=str)
def test_no_value_is_changed_unseen(url: str, busy: LedgerActor, table: Table) -> None:
    busy.ledger.verify()
    engine = create_engine(url)
    unseen = []
    with engine.connect() as connection:
        rows = connection.execute(select(table)).all()
    assert rows
    for row in rows[:: max(1, len(rows) // 8)]:
        for column in table.columns:
            changed = row._asdict() | {column.name: other(column, row._asdict()[column.name])}
            if replaced(engine, table, row._asdict(), changed):
                if not detected(busy):
                    unseen.append(f"{column} of {row}")
                assert replaced(engine, table, changed, row._asdict())
    assert not unseen
    busy.ledger.verify()
    engine.dispose()


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
    except tb.LedgerCorruptError:
        return True
    return False


@pytest.mark.parametrize("table", metadata.sorted_tables, ids=str)
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
        patch.setattr(tb.OutputDPFilter, "cost", lambda *_: Amount(Fraction(0), Fraction(0)))
        assert actor.told(line) == ["ok"]
    with pytest.raises(tb.LedgerCorruptError, match=r"another (price|amount)"):
        actor.ledger.verify()


@pytest.mark.parametrize("name", sorted(TRIGGERS))
def test_a_trigger_that_is_gone_is_missed(actor: LedgerActor, url: str, name: str) -> None:
    engine = create_engine(url)
    tables = (*metadata.tables, *without_history.tables)
    (table,) = (table for table in tables if name.startswith(table))
    with engine.begin() as connection:
        on = f" ON {table}" if url.startswith("postgresql") else ""
        connection.execute(text(f"DROP TRIGGER {name}{on}"))
    with pytest.raises(tb.LedgerCorruptError, match=f"lost the triggers {name}"):
        actor.ledger.verify()
    engine.dispose()


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
    with pytest.raises(tb.LedgerCorruptError, match="an earlier state of the ledger"):
        backup.ledger.check(late)
    # going on from the backup does not help
    assert backup.told("settle A1 no", "reserve B1 0.1", "start B1") == ["ok"] * 3
    with pytest.raises(tb.LedgerCorruptError, match="copies of which both were used"):
        backup.ledger.check(late)


def test_two_copies_in_use_are_detected(pair: Pair) -> None:
    """Both spend what is left, each for itself."""
    one, two = pair
    assert one.told("settle A1 yes") == two.told("settle A1 no") == ["ok"]
    heads = one.ledger.head(), two.ledger.head()
    assert heads[0].sequence == heads[1].sequence
    for actor, head in zip((two, one), heads, strict=True):
        actor.ledger.verify()
        with pytest.raises(tb.LedgerCorruptError, match="copies of which both were used"):
            actor.ledger.check(head)
