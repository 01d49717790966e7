"""PostgreSQL behind a pooler, after a promotion, and with settings that lose what was answered."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from tests.guards.mutants import Without, mutate
from tests.ledger import test_kill_loops as loops
from tests.ledger.conftest import own_server
from tests.ledger.poolers import POOLERS, Pooler, pgbouncer
from tests.ledger.servers import OwnServer, Server
from tests.ledger.test_group_commit import Thread, forgetful, keys, reserve
from tests.ledger.victims import watched

import tightbudget as tb
from tightbudget.ledger.testing import TABLES, LedgerActor

__all__ = ["forgetful"]

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def crash_after_commit(
    server: OwnServer, then: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Kills the server after the next commit of this process, and starts it again."""
    left = [1]

    def pass_by(point: str) -> None:
        if point == "after commit" and left and left.pop():
            server.kill()
            server.start()
            then()

    with watched(pass_by):
        yield


def reserved(ledger: tb.Ledger, key: str) -> str:
    """What the client of a reservation is told."""
    thread = Thread(reserve(ledger, key))
    thread.join()
    return thread.answer


@pytest.mark.parametrize("table", TABLES, ids=str)
@POOLERS
def test_a_ledger_behind_a_pooler_answers_as_the_tables_say(
    postgres: Server, pooler: Pooler, table: object
) -> None:
    url = postgres.create_database()
    with pooler(postgres) as through:
        with contextlib.closing(LedgerActor(through(url))) as actor:
            table.check(actor)  # type: ignore[attr-defined]
    postgres.drop_database(url)


# ------------------------------------------------- a crash between the commit and the flush


def nothing_told_is_lost(server: OwnServer, pooler: Pooler) -> bool:
    """A server is killed before the act that it has committed is on the disk."""
    url = server.create_database()
    with pooler(server) as through, tb.Ledger(through(url)) as ledger:
        ledger.open_budget("data", epsilon=1, delta=0)
        server.execute("CHECKPOINT")
        with crash_after_commit(server):
            told = reserved(ledger, "A1")
        assert told in ("done", "unknown")
        found = keys(ledger)
        ledger.verify()
    return told == "unknown" or found == ["A1"]


def nothing_told_is_lost_where_another_act_follows(server: OwnServer, pooler: Pooler) -> bool:
    """After the crash another act gets the place of the lost one, and its transaction's number."""
    url = server.create_database()
    with pooler(server) as through, tb.Ledger(through(url)) as ledger:
        ledger.open_budget("data", epsilon=1, delta=0)
        server.execute("CHECKPOINT")

        def other_act() -> None:
            with tb.Ledger(url) as other:
                assert reserved(other, "B1") == "done"

        with crash_after_commit(server, other_act):
            told = reserved(ledger, "A1")
        found = keys(ledger)
        ledger.verify()
    return told == "unknown" or "A1" in found


def nothing_refused_is_lost(server: OwnServer, pooler: Pooler) -> bool:
    """A refusal that rests on an act which the crash undoes."""
    url = server.create_database()
    with pooler(server) as through, tb.Ledger(through(url)) as ledger, tb.Ledger(url) as other:
        ledger.open_budget("data", epsilon=1, delta=0)
        server.execute("CHECKPOINT")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(other._store, "_flush", lambda *_: None)
            reserve(other, "A1")()

        flush = ledger._store._flush

        def after_the_crash(*given: object) -> None:
            server.kill()
            server.start()
            flush(*given)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger._store, "_flush", after_the_crash)
            thread = Thread(lambda: ledger.reserve("A1", tb.OutputDP.from_dp(0.5), ["data"]))
            thread.join()
        found = keys(ledger)
    assert thread.answer == "unknown" or thread.answer.startswith("KeyConflictError")
    return thread.answer == "unknown" or found == ["A1"]


TRUTHS: list[Callable[[OwnServer, Pooler], bool]] = [
    nothing_told_is_lost,
    nothing_told_is_lost_where_another_act_follows,
    nothing_refused_is_lost,
]
UNASKED = Without("the flush asks for the act", {"answered-if-still-there": "if False:"}, bool)


@POOLERS
@pytest.mark.parametrize("true", TRUTHS, ids=lambda truth: truth.__name__)
def test_what_was_answered_behind_a_pooler_survives_a_crash(
    forgetful: OwnServer,
    monkeypatch: pytest.MonkeyPatch,
    pooler: Pooler,
    true: Callable[[OwnServer, Pooler], bool],
) -> None:
    assert true(forgetful, pooler), "it does not even hold with the guard"
    mutate(monkeypatch, UNASKED)
    assert not true(forgetful, pooler), "nothing noticed that the guard is gone"
