"""Acts on many budgets: a constant number of statements, and all of it or nothing."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, event
from tests.ledger.servers import Server

import tightbudget as tb
from tightbudget.ledger.acts.budget_acts import Terms, open_budget
from tightbudget.ledger.acts.unit_of_work import Act, Exchange
from tightbudget.ledger.rows.budget_rows import balance
from tightbudget.ledger.store import connecting
from tightbudget.promises.units import Units

PRICES = tb.OutputDP({"yes": 0.3, "no": 0.1}, delta=1e-7)
TALK = tb.OutputDP({"yes": 0.3, "no": 0.1})
PLAN = tb.Gaussian(1.0) * 10


@pytest.fixture
def ledger(url: str) -> Iterator[tb.Ledger]:
    with tb.Ledger(url) as ledger:
        yield ledger


@contextmanager
def counted() -> Iterator[list[str]]:
    """Lists the statements that are executed."""
    seen: list[str] = []

    def listen(*about: Any) -> None:
        seen.append(about[2])

    event.listen(Engine, "before_cursor_execute", listen)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", listen)


def opened(ledger: tb.Ledger, number: int, epsilon: float = 1.0) -> list[str]:
    """Opens budgets in one act, each the part of another; the parts' names."""
    terms, whole = (Terms.of("output_dp", {"epsilon": e, "delta": 1e-5}) for e in (epsilon, 5))
    names = [f"part {number}/{i:05d}" for i in range(number)]

    def act(act: Act) -> None:
        for name in names:
            open_budget(act, name=f"whole of {name}", terms=whole, parent=None)
            open_budget(act, name=name, terms=terms, parent=f"whole of {name}")

    ledger.session.write(act)
    return names


def reserved(ledger: tb.Ledger, number: int, **more: Any) -> Any:
    guarantee = TALK if more else PRICES
    return ledger.reserve(f"{number} {more}", guarantee, opened(ledger, number), **more)


def run(ledger: tb.Ledger, number: int) -> Any:
    hold = reserved(ledger, number)
    hold.start()
    return hold


ACTS: dict[str, tuple[Callable[[tb.Ledger, int], Any], Callable[[tb.Ledger, int, Any], Any]]] = {
    "reserve": (opened, lambda ledger, n, names: ledger.reserve(f"k{n}", PRICES, names)),
    "converse": (
        opened,
        lambda ledger, n, names: ledger.reserve(f"k{n}", TALK, names, interactive=True),
    ),
    "again": (reserved, lambda ledger, n, hold: ledger.reserve(hold.key, PRICES, [*hold.charges])),
    "start": (reserved, lambda ledger, n, hold: hold.start()),
    "settle": (run, lambda ledger, n, hold: hold.settle("no")),
    "forfeit": (run, lambda ledger, n, hold: hold.forfeit()),
    "void": (reserved, lambda ledger, n, hold: hold.void()),
    "expire": (
        reserved,
        lambda ledger, n, hold: ledger.expire(hold.key, by="root", reason="left lying"),
    ),
    "hold": (run, lambda ledger, n, hold: ledger.hold(hold.key)),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", ACTS)
def test_an_act_has_as_many_statements_for_one_budget_as_for_many(
    ledger: tb.Ledger, name: str
) -> None:
    before, act = ACTS[name]
    numbers = []
    for number in (1, 2, 7, 100):
        given = before(ledger, number)
        with counted() as seen:
            act(ledger, number, given)
        # parts are looked for where several budgets pay: one statement for each level of parts
        numbers.append(len([one for one in seen if "SELECT budgets.id, budgets.parent" not in one]))
        assert len(seen) - numbers[-1] <= 2
    assert len(set(numbers)) == 1, numbers
    ledger.verify()


def test_plans_are_used_together(ledger: tb.Ledger) -> None:
    names = [f"plan {i}" for i in range(5)]
    for name in names:
        ledger.open_budget(name, kind="plan", plan=PLAN, delta=1e-6)
    hold = ledger.reserve("run", tb.Gaussian(1.0) * 7, names)
    with pytest.raises(tb.BudgetExceeded, match=r"3 left of 10 declared in the plan 'plan 0'"):
        ledger.reserve("more", tb.Gaussian(1.0) * 4, names)
    hold.void()
    ledger.reserve("again", tb.Gaussian(1.0) * 10, names)
    ledger.verify()


def test_one_budget_that_cannot_pay_refuses_for_all(ledger: tb.Ledger) -> None:
    names = opened(ledger, 50)
    ledger.open_budget("poor", epsilon=0.2, delta=1e-5)
    ledger.open_budget("poorer", epsilon=0.1, delta=1e-5)
    before = ledger.statements()
    with pytest.raises(tb.BudgetExceeded, match=r"of 'poor'; left epsilon 0\.2"):
        ledger.reserve("run", PRICES, [*names, "poorer", "poor"])
    assert ledger.statements() == before
    ledger.verify()


def test_the_first_unknown_name_is_told(ledger: tb.Ledger) -> None:
    with pytest.raises(tb.ParameterError, match="'part 2'"):
        ledger.reserve("run", PRICES, [*opened(ledger, 2), "part 3", "part 2"])


def test_a_budget_that_is_named_twice_is_charged_twice_or_not_at_all(ledger: tb.Ledger) -> None:
    """PostgreSQL changes a row once in a statement: the act that meant twice is undone."""
    ledger.open_budget("data", epsilon=1)
    with ledger.session.read() as connection:
        data = balance(connection, "data").id
    twice = [Exchange(budget=data, held=Units(10**11, 0))] * 2
    with contextlib.suppress(tb.errors.LedgerCorruptError):
        ledger.session.write(lambda act: act.exchange_each(twice))
    assert ledger.budget("data").held.amount in (0.0, 0.2)


@pytest.mark.parametrize("name", ["\U0001f600", "\\", '"', "%(x)s", ":x ?", "é", "'"])
def test_texts_are_stored_as_they_are_whatever_reads_them(ledger: tb.Ledger, name: str) -> None:
    """Rows and names travel as JSON, and statements have marks for values."""
    names = [f"{name} {i}" for i in range(3)]
    for one in names:
        ledger.open_budget(one, epsilon=1)
    hold = ledger.reserve(f"key {name}", tb.OutputDP({name: 0.3, "no": 0.1}), names)
    hold.start()
    hold.settle(name)
    assert ledger.hold(f"key {name}").cell == name
    assert [*ledger.hold(f"key {name}").charges] == sorted(names)
    assert ledger.within(names).names == set(names)
    assert ledger.count_open_in_each(names) == {}
    ledger.verify()


@pytest.mark.slow
def test_ten_thousand_budgets_pay_for_one_run(ledger: tb.Ledger) -> None:
    clicks = ledger.blocks("clicks", by=["page"], epsilon=1, delta=1e-5, rows_in=9)
    hold = clicks.where(page="1..10000").reserve("run", PRICES)
    names = [*hold.charges]
    assert len(names) == 10_000
    hold.start()
    hold.settle("no")
    assert {str(one) for one in hold.charges.values()} == {"epsilon 0.1, delta 1e-07"}
    assert ledger.hold("run").charges == hold.charges
    spent = {str(one.spent) for one in ledger.statements(budgets=names)}
    assert spent == {"epsilon 0.1, delta 1e-07"}
    ledger.verify()


# ------------------------------------------------------- plans, whatever the statistics say

# rows and pages that a table had when PostgreSQL last counted them
COUNTS = {
    "never counted": (-1, 0),
    "one row": (1, 1),
    "one row, many pages": (1, 10_000),
    "many rows, one page": (10_000_000, 1),
}


@contextmanager
def explained() -> Iterator[list[dict[str, Any]]]:
    """Lists the plans of the statements that are executed on PostgreSQL."""
    plans: list[dict[str, Any]] = []

    def listen(_: Any, cursor: Any, statement: str, parameters: Any, *__: Any) -> None:
        if statement.lstrip().startswith(("SELECT", "UPDATE", "INSERT")):
            found = cursor.connection.execute(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
            plans.append(found.fetchone()[0][0]["Plan"])

    event.listen(Engine, "before_cursor_execute", listen)
    try:
        yield plans
    finally:
        event.remove(Engine, "before_cursor_execute", listen)


def read_again(plan: dict[str, Any]) -> list[str]:
    """The parts of a plan that read a whole table or text again for each row of another."""
    below = plan.get("Plans", [])
    found = [part for one in below for part in read_again(one)]
    if plan["Node Type"] == "Nested Loop" and not _is_searched(below[1]):
        found.append(str(below[1]))
    return found


def _is_searched(plan: dict[str, Any]) -> bool:
    """Whether an index is searched for what the other side of a join has in a column."""
    condition = plan.get("Index Cond", "")
    return re.search(r"\w\.\w", condition) is not None or any(
        map(_is_searched, plan.get("Plans", []))
    )


def read_without_index(url: str) -> int:
    """The rows that acts have read while they looked through a whole table."""
    with psycopg.connect(plain(url), autocommit=True) as connection:
        (rows,) = connection.execute(
            "SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname IN"
            " ('budgets', 'charges', 'reservations')"
        ).fetchone() or (0,)
    return int(rows)


def plain(url: str) -> str:
    return url.replace("+psycopg", "", 1)


@pytest.mark.slow
def test_many_rows_are_searched_for_one_by_one(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after small acts, whose plans a session keeps for the checks of foreign keys."""
    found, read = acts_on_many(postgres)
    assert found == []
    assert read < 10_000  # by the verification, once
    begin = connecting.BEGIN["postgresql", "write"]
    careless = re.sub(r" SET LOCAL enable_\w+ = off;", "", begin)
    monkeypatch.setitem(connecting.BEGIN, ("postgresql", "write"), careless)
    found, read = acts_on_many(postgres)
    assert found
    assert read > 20_000


def acts_on_many(postgres: Server, many: int = 1_200) -> tuple[list[str], int]:
    """Runs on many blocks, by each of the statistics; what was read again and again."""
    url = postgres.create_database()
    found = []
    with psycopg.connect(plain(url), autocommit=True) as root, tb.Ledger(url) as ledger:
        ledger.open_budget("data", epsilon=10, delta=1e-3)
        clicks = ledger.blocks("clicks", by=["page"], epsilon=9, delta=1e-3, rows_in=9)
        for number in range(12):
            ledger.reserve(f"small {number}", PRICES, ["data"]).void()
        for table in ("budgets", "charges", "reservations", "events"):
            # the server counts tables by itself, at its own times: the counts below shall stay
            root.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        for number, (count, counted) in enumerate(COUNTS.items()):
            root.execute(
                "UPDATE pg_class SET reltuples = %s, relpages = %s WHERE relname IN"
                " ('budgets', 'charges', 'reservations', 'events')",
                counted,
            )
            first = number * many // 2  # half of the blocks are there already
            some = clicks.where(page=f"{first + 1}..{first + many}")
            with explained() as plans:
                hold = some.reserve(f"many {number}", PRICES)
                hold.start()
                hold.settle("no")
            assert len(plans) > 10
            found += [f"{count}: {part}" for plan in plans for part in read_again(plan)]
        ledger.verify()
    # a session has counted all that it has read when it is closed
    read = read_without_index(url)
    postgres.drop_database(url)
    return found, read
