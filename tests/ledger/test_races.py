"""Many processes, each with many threads, want the same thing at the same time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, func, select
from sqlalchemy.engine import make_url
from tests.ledger.conformance import Deed, LedgerActor, number
from tests.ledger.victims import PROCESSES, born, heard

import tightbudget as tb
from tightbudget.ledger.store import connecting

Answers = list[tuple[str, str]]  # key, answer
Run = Callable[[LedgerActor, str], Answers]


def race(
    url: str, run: Run, processes: int, threads: int, tokens: dict[str, str | None] | None = None
) -> Answers:
    """What each thread of each process heard, all of them let go at once."""
    gate = PROCESSES.Barrier(processes)
    lives = [born(_runner, url, run, f"P{i}", threads, tokens, gate) for i in range(processes)]
    answers = [said for life in lives for said in heard(*life)]
    assert len(answers) == processes, "somebody died"
    return [answer for one in answers for answer in one]


def _runner(
    url: str,
    run: Run,
    who: str,
    threads: int,
    tokens: dict[str, str | None] | None,
    gate: Any,
    ear: Connection[Any, Any],
) -> None:
    gate.wait(60)
    actor = LedgerActor(url, tokens)
    answers: Answers = []

    def thread(name: str) -> None:
        answers.extend(run(actor, name))

    runners = [threading.Thread(target=thread, args=(f"{who}-{i}",)) for i in range(threads)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    ear.send(answers)
    actor.close()


def reserve_until_refused(actor: LedgerActor, who: str) -> Answers:
    answers: Answers = []
    while not answers or answers[-1][1] == "ok":
        key = f"{who}-{len(answers)}"
        answers.append((key, actor.act(Deed.read(f"reserve {key} 0.1+1e-8"))))
    return answers


def start_the_one(actor: LedgerActor, who: str) -> Answers:
    return [(who, actor.act(Deed.read("start A1")))]


def settle_as_i_like(actor: LedgerActor, who: str) -> Answers:
    return [(who, actor.act(Deed(verb="settle", name="A1", words=(who,))))]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("cap", "grants"),
    [("2.05 1e-6", 20), ("1000 1.2e-7", 12), ("0.1 1e-6", 1), ("0.09999 1e-6", 0)],
)
def test_the_last_unit_is_granted_once(url: str, actor: LedgerActor, cap: str, grants: int) -> None:
    """Exactly floor(left / sup) grants, of epsilon or of delta, whichever ends first."""
    actor.told(f"open data {cap}")
    answers = [answer for _, answer in race(url, reserve_until_refused, processes=3, threads=3)]
    assert sorted(answers) == 9 * ["exceeded"] + grants * ["ok"]
    assert actor.act(Deed.read("epsilon data")).split()[3] == number(grants / 10)
    actor.ledger.verify()


@pytest.mark.slow
@pytest.mark.parametrize("run", [start_the_one, settle_as_i_like])
def test_one_of_many_wins(url: str, actor: LedgerActor, run: Run) -> None:
    actor.told("open data 1 1e-6", "reserve A1 0.3")
    if run is settle_as_i_like:
        actor.told("start A1")
    answers = race(url, run, processes=3, threads=3, tokens=actor.tokens)
    assert sorted(answer for _, answer in answers) == ["ok"] + 8 * ["too late"]
    actor.ledger.verify()


@pytest.mark.slow
@pytest.mark.usefixtures("migrations")
def test_many_make_the_same_ledger_at_once(url: str) -> None:
    """Nobody has made its tables yet."""
    assert race(url, reserve_until_refused, processes=4, threads=0) == []
    with tb.Ledger(url, create=False) as ledger:
        ledger.verify()


@pytest.mark.slow
@pytest.mark.parametrize("careful", [True, False], ids=["as-the-ledger-begins", "by-default"])
def test_a_transaction_that_begins_by_default_overspends_without_an_error(
    url: str, careful: bool
) -> None:
    """Why the ledger says how a transaction begins: it reads, decides, and writes what it decided.

    As SQLAlchemy and the drivers begin one by themselves, two of them read the same balance.
    """
    engine = connecting.new_engine(make_url(url), 60) if careful else create_engine(url)
    spent = Table("spent", MetaData(), Column("amount", Integer))
    spent.create(engine)
    both_have_read = threading.Barrier(2)

    def spend_the_last_unit() -> None:
        with engine.begin() as connection:
            left = 1 - (connection.scalar(select(func.sum(spent.c.amount))) or 0)
            with contextlib.suppress(threading.BrokenBarrierError):
                both_have_read.wait(0.5)
            if left:
                connection.execute(spent.insert().values(amount=1))

    with ThreadPoolExecutor(2) as pool:
        for spending in [pool.submit(spend_the_last_unit) for _ in range(2)]:
            spending.result()
    with engine.begin() as connection:
        assert connection.scalar(select(func.sum(spent.c.amount))) == (1 if careful else 2)
    engine.dispose()
