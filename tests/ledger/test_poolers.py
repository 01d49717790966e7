"""PostgreSQL behind a pooler, after a promotion, and with settings that lose what was answered."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy.engine import make_url
from tests.guards.mutants import Without, mutate
from tests.ledger import test_kill_loops as loops
from tests.ledger.conformance import TABLES, LedgerActor
from tests.ledger.conftest import own_server
from tests.ledger.poolers import POOLERS, Pooler, Proxy, pgbouncer
from tests.ledger.servers import OwnServer, Server
from tests.ledger.test_group_commit import Thread, forgetful, keys, reserve, survives_a_crash
from tests.ledger.victims import watched

import tightbudget as tb

__all__ = ["forgetful"]

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def after_commit(then: Callable[[], object]) -> Iterator[None]:
    """Does something after the next commit of this process."""
    left = [then]

    def pass_by(point: str) -> None:
        if point == "after commit" and left:
            left.pop()()

    with watched(pass_by):
        yield


def crash(server: OwnServer) -> None:
    server.kill()
    server.start()


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
    with pooler(postgres) as through, contextlib.closing(LedgerActor(through(url))) as actor:
        table.check(actor)  # type: ignore[attr-defined]
    postgres.drop_database(url)


# ------------------------------------------------- a crash between the commit and the flush


def nothing_told_is_lost(server: OwnServer, pooler: Pooler) -> bool:
    """A server is killed before the act that it has committed is on the disk."""
    url = server.create_database()
    with pooler(server) as through, tb.Ledger(through(url)) as ledger:
        ledger.open_budget("data", epsilon=1, delta=0)
        server.execute("CHECKPOINT")
        with after_commit(lambda: crash(server)):
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

        def crash_and_another_act() -> None:
            crash(server)
            with tb.Ledger(url) as other:
                assert reserved(other, "B1") == "done"

        with after_commit(crash_and_another_act):
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
            crash(server)
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


@POOLERS
def test_a_server_behind_a_pooler_is_killed(
    forgetful: OwnServer, monkeypatch: pytest.MonkeyPatch, pooler: Pooler
) -> None:
    monkeypatch.setattr(loops, "SECONDS", min(10.0, loops.SECONDS))
    url = loops.opened(forgetful.create_database())
    with pooler(forgetful) as through:
        record = loops.killed_again_and_again(forgetful, through(url), careless=False)
    record.check(url)
    print(f"{record.answered} acts answered, {len(record.heads)} heads read")


def test_a_pooler_that_ends_no_transaction_is_refused_in_its_own_words(postgres: Server) -> None:
    """In the mode "statement", each statement may go to another connection."""
    url = postgres.create_database()
    with (
        pgbouncer(postgres, mode="statement") as through,
        pytest.raises(tb.LedgerError, match="statement pooling"),
    ):
        tb.Ledger(through(url))
    postgres.drop_database(url)


# ---------------------------------------------------------------------- a standby's promotion


@contextlib.contextmanager
def with_standby(synchronous: bool) -> Iterator[tuple[OwnServer, OwnServer]]:
    """A server, and another one that follows it."""
    server = own_server()
    standby = OwnServer(primary=server)
    try:
        if synchronous:
            server.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            server.execute("SELECT pg_reload_conf()")
        yield server, standby
    finally:
        standby.close()
        server.close()


@pytest.mark.parametrize("synchronous", [True, False])
def test_a_standby_that_is_waited_for_has_what_was_answered(synchronous: bool) -> None:
    """Of one that nobody waits for, the head that was kept says that charges are missing."""
    with with_standby(synchronous) as (server, standby):
        url = server.create_database()
        with tb.Ledger(url) as ledger:
            ledger.open_budget("data", epsilon=1, delta=0)
            if not synchronous:
                wait_for(standby, url)
                standby.kill()
            assert reserved(ledger, "A1") == "done"
            head = ledger.head()
        server.kill()
        standby.start()
        standby.promote()
        with tb.Ledger(at(standby, url)) as ledger:
            ledger.verify()
            if synchronous:
                assert keys(ledger) == ["A1"]
                ledger.check(head)
            else:
                assert keys(ledger) == []
                with pytest.raises(tb.errors.LedgerCorruptError):
                    ledger.check(head)


def test_a_standby_that_takes_over_before_the_flush_is_noticed() -> None:
    with with_standby(synchronous=False) as (server, standby):
        url = server.create_database()
        with Proxy(server) as proxy, tb.Ledger(proxy.through(url)) as ledger:
            ledger.open_budget("data", epsilon=1, delta=0)
            wait_for(standby, url)
            standby.kill()

            def take_over() -> None:
                server.kill()
                standby.start()
                standby.promote()
                proxy.server = standby

            with after_commit(take_over):
                assert reserved(ledger, "A1") == "unknown"
            assert keys(ledger) == []
            assert reserved(ledger, "A1") == "done"


def at(server: Server, url: str) -> str:
    """The address of the same database on another server."""
    return server.url.set(database=make_url(url).database).render_as_string(hide_password=False)


def wait_for(standby: OwnServer, url: str) -> None:
    """Returns when a standby has the budget that was opened last."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(tb.LedgerError), tb.Ledger(at(standby, url), create=False) as it:
            if it.budgets():
                return
        time.sleep(0.1)
    raise AssertionError("the standby does not follow")


# ---------------------------------------------------------------------------------- settings


def test_a_database_that_does_not_wait_for_its_log_loses_nothing(forgetful: OwnServer) -> None:
    """The ledger asks for ``synchronous_commit`` itself."""
    forgetful.execute("ALTER SYSTEM SET synchronous_commit = off")
    forgetful.execute("SELECT pg_reload_conf()")
    assert survives_a_crash(forgetful)


def test_nothing_is_charged_where_nothing_is_flushed(
    mortal: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> bool:
        with tb.Ledger(url) as ledger:
            before = ledger.head()
            for setting, answer in (("off", refusal), ("on", "done")):
                mortal.execute(f"ALTER SYSTEM SET fsync = {setting}")
                mortal.execute("SELECT pg_reload_conf()")
                time.sleep(0.5)
                if reserved(ledger, "A1") != answer:
                    return False
                assert (ledger.head() == before) == (answer == refusal)
        return True

    url = mortal.create_database()
    with tb.Ledger(url) as ledger:
        ledger.open_budget("data", epsilon=1, delta=0)
        refusal = (
            f"nothing was changed in {ledger._store}: its server runs with fsync = off, and may"
            " lose after a power cut what was charged; set fsync = on"
        )
    assert refused()
    with tb.Ledger(url) as ledger:
        ledger.hold("A1").void()
    mutate(
        monkeypatch,
        Without("fsync", {"nothing-charged-without-fsync": "if False:"}, bool),
    )
    assert not refused()
