"""Many processes, each with many threads, want the same thing at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest
from tests.ledger.victims import PROCESSES

from tightbudget.ledger.testing import Deed, LedgerActor

Answers = list[tuple[str, str]]  # key, answer


def race(url: str, run: Callable[[LedgerActor, str], Answers], processes: int, threads: int) -> Any:
    """What each thread of each process heard, all of them let go at once."""
    gate = PROCESSES.Barrier(processes)
    pipes = []
    for who in range(processes):
        ours, theirs = PROCESSES.Pipe(duplex=False)
        arguments = (url, run, f"P{who}", threads, gate, theirs)
        process = PROCESSES.Process(target=_runner, args=arguments)
        process.start()
        theirs.close()
        pipes.append((process, ours))
    heard: Answers = []
    for process, ours in pipes:
        heard += ours.recv()
        process.join()
    return heard


def _runner(url: str, run: Any, who: str, threads: int, gate: Any, ear: Connection[Any, Any]) -> None:
    actor = LedgerActor(url)
    heard: Answers = []

    def thread(name: str) -> None:
        heard.extend(run(actor, name))

    runners = [threading.Thread(target=thread, args=(f"{who}-{i}",)) for i in range(threads)]
    gate.wait(60)
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    ear.send(heard)
    actor.ledger.close()


def reserve_until_refused(actor: LedgerActor, who: str) -> Answers:
    heard: Answers = []
    while not heard or heard[-1][1] == "ok":
        key = f"{who}-{len(heard)}"
        heard.append((key, actor.act(Deed.read(f"reserve {key} 0.1+1e-8"))))
    return heard


def start_the_one(actor: LedgerActor, who: str) -> Answers:
    return [(who, actor.act(Deed("start", "A1")))]


def settle_as_i_like(actor: LedgerActor, who: str) -> Answers:
    return [(who, actor.act(Deed("settle", "A1", (who,))))]


@pytest.mark.parametrize(
    ("cap", "grants"),
    [("2.05 1e-6", 20), ("1000 1.2e-7", 12), ("0.1 1e-6", 1), ("0.09999 1e-6", 0)],
)
def test_the_last_unit_is_granted_once(url: str, cap: str, grants: int) -> None:
    """Exactly floor(left / sup) grants, of epsilon or of delta, whichever ends first."""
    actor = LedgerActor(url)
    actor.act(Deed.read(f"open data {cap}"))
    heard = race(url, reserve_until_refused, processes=3, threads=3)
    assert [answer for _, answer in heard].count("ok") == grants
    assert [answer for _, answer in heard].count("exceeded") == 9
    assert len(heard) == grants + 9
    assert actor.act(Deed("epsilon", "data")).split()[3] == str(grants / 10)
    assert actor.act(Deed("verify")) == "ok"


@pytest.mark.parametrize("run", [start_the_one, settle_as_i_like])
def test_one_of_many_wins(url: str, run: Callable[[LedgerActor, str], Answers]) -> None:
    actor = LedgerActor(url)
    for line in ("open data 1 1e-6", "reserve A1 0.3"):
        actor.act(Deed.read(line))
    if run is settle_as_i_like:
        actor.act(Deed("start", "A1"))
    heard = race(url, run, processes=3, threads=3)
    assert sorted(answer for _, answer in heard) == ["ok"] + 8 * ["too late"]
    assert actor.act(Deed("verify")) == "ok"


def test_many_make_the_same_ledger_at_once(url: str) -> None:
    """Nobody has made its tables yet."""
    heard = race(url, reserve_until_refused, processes=4, threads=0)
    assert heard == []
    assert LedgerActor(url).act(Deed("verify")) == "ok"


