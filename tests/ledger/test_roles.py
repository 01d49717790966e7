"""The roles that the page for operators recommends: they suffice, and they bar the way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url
from tests.ledger.servers import Server

import tightbudget as tb
from tightbudget.ledger.tokens import Tokens

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/operate-a-ledger.md"
SEARCH = tb.OutputDP({"found": 0.3, "not found": 0.1}, 1e-9)

pytestmark = pytest.mark.slow  # all of it waits for PostgreSQL


@pytest.fixture
def roles(postgres: Server) -> Iterator[tuple[str, str]]:
    """URLs of one ledger as its owner and as an analyst, made as the page says."""
    database = postgres.create_database()
    name = make_url(database).database
    found = re.search(r"^```sql\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert found is not None
    sql = re.sub(r"ledger_(owner|analyst)", rf"{name}_\1", found[1]).replace("budget OWNER", "-")
    statements = [line.partition("--")[0] for line in sql.splitlines() if ";" in line]
    owner, analyst = (
        make_url(database).set(username=f"{name}_{who}") for who in ("owner", "analyst")
    )
    urls = tuple(url.render_as_string(hide_password=False) for url in (owner, analyst))
    for statement in statements[:2]:
        assert statement.startswith("CREATE ROLE")
        postgres.execute(statement)
    assert statements[2].startswith("CREATE DATABASE")
    postgres.execute(f'ALTER DATABASE "{name}" OWNER TO {name}_owner')
    with tb.Ledger(urls[0]) as ledger:
        ledger.open_budget("b", epsilon=1, delta=1e-6)
    for statement in statements[3:]:
        run(urls[0], statement)
    yield urls[0], urls[1]
    postgres.drop_database(database)
    for who in ("owner", "analyst"):
        postgres.execute(f"DROP ROLE {name}_{who}")


def run(url: str, statement: str) -> None:
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_who_may_read_tokens_verifies_them(roles: tuple[str, str]) -> None:
    with tb.Ledger(roles[0]) as ledger:
        Tokens(ledger).create("vera", "viewer", lasts=timedelta(days=1))
        assert ledger.verify().tokens == 1
    with tb.Ledger(roles[1], create=False) as ledger:
        assert ledger.verify().tokens is None


def test_an_analyst_can_charge(roles: tuple[str, str]) -> None:
    with tb.Ledger(roles[1], create=False) as ledger:
        for key, end in {"A": lambda h: h.settle("found"), "B": lambda h: h.forfeit()}.items():
            hold = ledger.budget("b").reserve(key, SEARCH)
            hold.start()
            end(hold)
        ledger.budget("b").reserve("C", SEARCH).void()
        with pytest.raises(tb.BudgetExceeded):
            ledger.budget("b").reserve("D", tb.OutputDP.from_dp(1))
        assert ledger.verify().tokens is None  # which this role may not read


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET epsilon = 0",
        "DELETE FROM events",
        "TRUNCATE events",
        "DELETE FROM reservations",
        "DROP TABLE charges",
        "DROP TRIGGER events_stay ON events",
        "ALTER TABLE events DISABLE TRIGGER ALL",
        "ALTER TABLE budgets DROP CONSTRAINT held_is_not_negative",
        "SET session_replication_role = 'replica'",
        "UPDATE ledger_version SET version_num = '0001'",
        "SELECT hash FROM tokens",
        "INSERT INTO tokens SELECT * FROM tokens",
        "UPDATE tokens SET revoked = NULL",
    ],
)
def test_an_analyst_can_take_no_wall_down(statement: str, roles: tuple[str, str]) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(roles[1], statement)
