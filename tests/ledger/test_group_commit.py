"""Acts that become durable together: each has its own outcome, and none is answered too early."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from tests.guards.mutants import Without, mutate
from tests.ledger.conftest import own_server
from tests.ledger.servers import OwnServer
from tests.ledger.victims import born, heard, watched

import tightbudget as tb
from tightbudget.ledger.store import ofd_locks, store
from tightbudget.ledger.store.shared_flush import SharedFlush
from tightbudget.ledger.store.sqlite_files import Files
from tightbudget.ledger.store.turns import Turns, Waiting

SOME = tb.OutputDP.from_dp(1e-3)


@pytest.fixture
def ledger(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tb.Ledger]:
    monkeypatch.setattr(store, "_LONGEST_BATCH", 60.0)  # a busy machine takes long for one act
    with tb.Ledger(url) as ledger:
        ledger.open_budget("data", epsilon=1, delta=0)
        yield ledger


class Thread(threading.Thread):
    """A thread that notes what came of its deed."""

    def __init__(self, deed: Callable[[], object]) -> None:
        super().__init__()
        self.deed, self.answer = deed, ""
        self.start()

    def run(self) -> None:
        try:
            self.deed()
            self.answer = "done"
        except tb.LedgerError as error:
            self.answer = "unknown" if error.unknown else str(error)
        except Exception as error:
            self.answer = f"{type(error).__name__}: {error}"


def waiting(ledger: tb.Ledger, many: int) -> None:
    """Returns when so many acts of this process are waiting for their turn."""
    turns, end = ledger._store._here().turns, time.monotonic() + 30
    while len(turns._waiting) < many:
        assert time.monotonic() < end
        time.sleep(0.001)


def together(
    ledger: tb.Ledger, *deeds: Callable[[], object], first: Callable[[Any], object] | None = None
) -> list[str]:
    """Does deeds in threads, in one transaction: that of an act which the others wait for."""
    turn, answers = threading.Event(), []

    def act(connection: Any) -> object:
        turn.wait(30)
        return first(connection) if first else None

    leader = Thread(lambda: ledger._store.write(act))
    while not ledger._store._here().turns._turns.last().is_running:
        time.sleep(0.001)
    threads = []
    for number, deed in enumerate(deeds, start=1):
        threads.append(Thread(deed))
        waiting(ledger, number)
    turn.set()
    for thread in (leader, *threads):
        thread.join()
        answers.append(thread.answer)
    return answers


def reserve(ledger: tb.Ledger, key: str) -> Callable[[], object]:
    return lambda: ledger.reserve(key, SOME, ["data"])


def write(ledger: tb.Ledger, act: Callable[[Any], object]) -> Callable[[], object]:
    return lambda: ledger._store.write(act)


def keys(ledger: tb.Ledger) -> list[str]:
    with ledger._store.reading() as connection:
        found = connection.exec_driver_sql("SELECT key FROM events WHERE kind = 'reserved'")
        return [key for (key,) in found]


@contextlib.contextmanager
def commits(ledger: tb.Ledger) -> Iterator[list[str]]:
    """Lists the commits of acts of this process, without those that flush the log after each."""
    seen: list[str] = []
    with watched(lambda point: seen.append(point) if point == "before commit" else None):
        yield seen
    if ledger._store.dialect == "postgresql":
        del seen[::2]


def broken(connection: Any) -> None:
    """Writes something, and fails."""
    connection.exec_driver_sql("UPDATE budgets SET saved_epsilon = saved_epsilon + 1")
    raise ValueError("broken")


def ended(connection: Any) -> None:
    """Ends the transaction, as SQLite does by itself when a disk is full."""
    connection.exec_driver_sql("ROLLBACK")
    raise OperationalError("INSERT", None, Exception("disk is full"))


# -------------------------------------------------------------------------- acts together


def test_acts_that_wait_share_one_commit(ledger: tb.Ledger) -> None:
    with commits(ledger) as seen:
        answers = together(ledger, *(reserve(ledger, f"A{number}") for number in range(8)))
    assert answers == ["done"] * 9
    assert len(seen) == 1
    assert keys(ledger) == [f"A{number}" for number in range(8)]  # first come, first served
    ledger.verify()


def test_an_act_that_raises_leaves_nothing_and_fails_alone(ledger: tb.Ledger) -> None:
    too_much = tb.OutputDP.from_dp(2)
    answers = together(
        ledger,
        reserve(ledger, "A1"),
        write(ledger, broken),
        reserve(ledger, "A2"),
        lambda: ledger.reserve("A3", too_much, ["data"]),
        reserve(ledger, "A1"),
    )
    assert answers[:4] == ["done", "done", "ValueError: broken", "done"]
    assert answers[4].startswith("BudgetExceeded")
    assert answers[5] == "done"
    assert keys(ledger) == ["A1", "A2"]
    ledger.verify()


def test_the_act_of_the_leader_may_raise(ledger: tb.Ledger) -> None:
    answers = together(ledger, reserve(ledger, "A1"), reserve(ledger, "A2"), first=broken)
    assert answers == ["ValueError: broken", "done", "done"]
    ledger.verify()


def test_an_act_that_ends_the_transaction_fails_alone(ledger: tb.Ledger) -> None:
    """What shared the transaction with it is run again, and nothing of it is answered before."""
    answers = together(ledger, reserve(ledger, "A1"), write(ledger, ended), reserve(ledger, "A2"))
    assert answers[:2] == ["done", "done"]
    assert answers[2].startswith("nothing was changed in ")
    assert answers[2].endswith("disk is full")
    assert answers[3] == "done"
    assert sorted(keys(ledger)) == ["A1", "A2"]
    ledger.verify()


@pytest.mark.parametrize("moment", ["before commit", "after commit"])
def test_a_commit_that_fails_is_unknown_to_all(ledger: tb.Ledger, moment: str) -> None:
    passed: list[str] = []

    def pass_by(point: str) -> None:
        passed.append(point)
        if point == moment and passed.count(moment) == 1:
            raise OperationalError("COMMIT", None, Exception("no answer"))

    with watched(pass_by):
        answers = together(ledger, reserve(ledger, "A1"), reserve(ledger, "A2"))
    assert answers == ["unknown"] * 3
    assert keys(ledger) == ([] if moment == "before commit" else ["A1", "A2"])
    reserve(ledger, "A1")()
    ledger.verify()


def test_a_batch_takes_no_more_acts_than_it_may(
    ledger: tb.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_MOST_ACTS", 3)
    with commits(ledger) as seen:
        answers = together(ledger, *(reserve(ledger, f"A{number}") for number in range(6)))
    assert answers == ["done"] * 7
    assert len(seen) == 3


def test_a_long_batch_takes_no_more_acts(
    ledger: tb.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_LONGEST_BATCH", 0)
    with commits(ledger) as seen:
        assert together(ledger, reserve(ledger, "A1"), reserve(ledger, "A2")) == ["done"] * 3
    assert len(seen) == 3


# ------------------------------------------------------------------ interrupts and patience


def test_an_act_that_is_given_up_is_not_run_later(
    ledger: tb.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert given_up_is_not_run(ledger, monkeypatch)


def given_up_is_not_run(ledger: tb.Ledger, monkeypatch: pytest.MonkeyPatch) -> bool:
    """An act of the thread that leads takes those along that wait; this one waits no more."""
    late: list[Thread] = []

    def act(_: Any) -> None:
        late.append(Thread(reserve(ledger, "late")))
        late[0].join()

    with monkeypatch.context() as patch:
        patch.setattr(store, "_PATIENCE", 0.05)
        ledger._store.write(act)
    assert "too many acts are waiting" in late[0].answer
    return not keys(ledger)


def nobody_claims_what_is_given_up(_: tb.Ledger, __: pytest.MonkeyPatch) -> bool:
    """Its thread has given up, and is not gone yet."""
    turns, leader, late = Turns(), Waiting(), Waiting()
    given_up, over, found = threading.Event(), threading.Event(), []

    def gives_up() -> None:
        with pytest.raises(TimeoutError):
            turns.take(late, 0.01)
        given_up.set()
        over.wait(30)

    def leads() -> None:
        turn = turns.take(leader, 1)
        assert turn is not None
        thread = Thread(lambda: turns.enter(late, gives_up))
        given_up.wait(30)
        found.append(turns.next(turn))
        over.set()
        thread.join()

    turns.enter(leader, leads)
    return found == [None]


@pytest.mark.slow
def test_an_act_that_is_being_run_when_it_is_given_up_is_unknown(
    ledger: tb.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()
    monkeypatch.setattr(store, "_PATIENCE", 0.5)
    slow = lambda _: done.wait(30)  # noqa: E731
    answers = []

    def release() -> None:
        time.sleep(2)
        done.set()

    threading.Thread(target=release).start()
    answers = together(ledger, write(ledger, slow))
    assert answers == ["done", "unknown"]


def test_a_signal_handler_in_an_act_is_refused_at_once(ledger: tb.Ledger) -> None:
    told: list[str] = []

    def handle(*_: object) -> None:
        try:
            reserve(ledger, "B1")()
        except tb.LedgerError as error:
            told.append(str(error))

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        ledger._store.write(lambda _: signal.raise_signal(signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(told) == 1
    assert told[0].startswith("nothing was changed in ")
    assert told[0].endswith("this thread is in the middle of another act")
    reserve(ledger, "B1")()
    assert keys(ledger) == ["B1"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_the_leader_leaves_the_others_to_the_next(
    ledger: tb.Ledger, kind: type[BaseException]
) -> None:
    """The thread is interrupted while it runs the act of another."""
    leader, others = threading.get_ident(), []

    def interrupted(_: Any) -> None:
        if threading.get_ident() == leader:
            raise kind

    def act(_: Any) -> None:
        others.append(Thread(reserve(ledger, "A1")))
        waiting(ledger, 1)
        others.append(Thread(write(ledger, interrupted)))
        waiting(ledger, 2)

    with pytest.raises(kind):
        ledger._store.write(act)
    for thread in others:
        thread.join()
    assert [thread.answer for thread in others] == ["done", "done"]
    assert keys(ledger) == ["A1"]
    ledger.verify()


def test_a_fork_in_the_act_of_another_is_the_parents(tmp_path: Path) -> None:
    """The child has the thread that leads, and nothing to commit."""
    url = f"sqlite:///{tmp_path}/budget.db"
    process, ear = born(_forking, url)
    assert heard(process, ear) == ["done", "done"]
    assert process.exitcode == 0
    with tb.Ledger(url) as ledger:
        assert keys(ledger) == ["A1"]
        ledger.verify()


def _forking(url: str, ear: Any) -> None:
    ledger, parent, threads = tb.Ledger(url), os.getpid(), []
    ledger.open_budget("data", epsilon=1, delta=0)

    def act(_: Any) -> None:
        threads.append(Thread(write(ledger, lambda _: os.fork())))
        waiting(ledger, 1)
        threads.append(Thread(reserve(ledger, "A1")))
        waiting(ledger, 2)

    try:
        ledger._store.write(act)
    except tb.LedgerError as error:
        os._exit(os.getpid() == parent or "its parent's" not in str(error))
    assert os.wait()[1] == 0
    for thread in threads:
        thread.join()
        ear.send(thread.answer)


# --------------------------------------------------------------------------- flushes


def test_threads_share_a_flush_that_began_after_they_asked() -> None:
    begun, may_end, flushes = threading.Event(), threading.Event(), []

    def flush() -> None:
        flushes.append(threading.get_ident())
        begun.set()
        may_end.wait(30)

    shared = SharedFlush(flush)
    first = Thread(lambda: shared.wait(30))
    begun.wait(30)
    others = [Thread(lambda: shared.wait(30)) for _ in range(8)]
    while len(shared._flushes.last()._bells) < 8:
        time.sleep(0.001)
    may_end.set()
    for thread in (first, *others):
        thread.join()
        assert thread.answer == "done"
    assert len(flushes) == 2  # the first had begun before the others asked


def test_a_flush_that_fails_fails_its_own_thread() -> None:
    outcomes = iter([RuntimeError("no"), None])

    def flush() -> None:
        if error := next(outcomes):
            raise error

    shared = SharedFlush(flush)
    with pytest.raises(RuntimeError):
        shared.wait(1)
    shared.wait(1)


def test_a_flush_that_does_not_end_is_waited_for_no_longer_than_patience() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def flush() -> None:
        begun.set()
        may_end.wait(30)

    shared = SharedFlush(flush)
    thread = Thread(lambda: shared.wait(30))
    begun.wait(30)
    with pytest.raises(TimeoutError):
        shared.wait(0.02)
    may_end.set()
    thread.join()


def test_a_log_that_is_not_flushed_is_told(
    ledger: tb.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(_: float) -> None:
        raise TimeoutError

    monkeypatch.setattr(ledger._store._here().flush, "wait", hang)
    with pytest.raises(tb.LedgerError, match="does not write its log to the disk"):
        ledger._store._wait_for_log()


@pytest.fixture
def forgetful() -> Iterator[OwnServer]:
    """A server that flushes its log only when it must."""
    server = own_server()
    server.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
    server.execute("ALTER SYSTEM SET wal_writer_flush_after = 0")
    server.execute("ALTER SYSTEM SET autovacuum = off")
    server.execute("SELECT pg_reload_conf()")
    yield server
    server.close()


def survives_a_crash(server: OwnServer) -> bool:
    """Kills a server as soon as it has answered an act."""
    url = server.create_database()
    with tb.Ledger(url) as ledger:
        ledger.open_budget("data", epsilon=1, delta=0)
        server.execute("CHECKPOINT")
        reserve(ledger, "A1")()
        server.kill()
    server.start()
    with tb.Ledger(url) as ledger:
        ledger.verify()
        return keys(ledger) == ["A1"]


def what_was_told_survives_a_crash(server: OwnServer) -> bool:
    """Kills a server as soon as a reader was told of an act that is not answered yet."""
    url = server.create_database()
    with tb.Ledger(url) as ledger, tb.Ledger(url) as reader:
        ledger.open_budget("data", epsilon=1, delta=0)
        server.execute("CHECKPOINT")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger._store, "_flush", lambda *_: None)
            reserve(ledger, "A1")()
        told = reader.head()
        server.kill()
    server.start()
    with tb.Ledger(url) as ledger:
        try:
            ledger.check(told)
        except tb.errors.LedgerCorruptError:
            return False
    return True


def what_was_refused_survives_a_crash(server: OwnServer) -> bool:
    """Kills a server as soon as an act was refused for the sake of one not answered yet."""
    url = server.create_database()
    with tb.Ledger(url) as ledger, tb.Ledger(url) as other:
        ledger.open_budget("data", epsilon=1, delta=0)
        server.execute("CHECKPOINT")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger._store, "_flush", lambda *_: None)
            reserve(ledger, "A1")()
        with pytest.raises(tb.KeyConflictError):
            other.reserve("A1", tb.OutputDP.from_dp(0.5), ["data"])
        server.kill()
    server.start()
    with tb.Ledger(url) as ledger:
        return keys(ledger) == ["A1"]


GUARDS = [
    (Without("flushed", {"flushed-before-answered": "pass"}, bool), survives_a_crash),
    (
        Without("flushed for a reader", {"nothing-told-before-flushed": "pass"}, bool),
        what_was_told_survives_a_crash,
    ),
    (
        Without(
            "flushed for a refusal",
            {"nothing-refused-before-flushed": "pass"},
            bool,
        ),
        what_was_refused_survives_a_crash,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutation", "true"), GUARDS, ids=[mutation.name.replace(" ", "-") for mutation, _ in GUARDS]
)
def test_what_was_answered_is_on_the_disk(
    forgetful: OwnServer,
    monkeypatch: pytest.MonkeyPatch,
    mutation: Without,
    true: Callable[[OwnServer], bool],
) -> None:
    assert true(forgetful), "it does not even hold with the guard"
    mutate(monkeypatch, mutation)
    assert not true(forgetful), "nothing noticed that the guard is gone"


# ------------------------------------------------------------------------------ mutations


def one_that_raises_leaves_nothing(ledger: tb.Ledger, _: pytest.MonkeyPatch) -> bool:
    together(ledger, write(ledger, broken))
    with ledger._store.reading() as connection:
        saved = connection.exec_driver_sql("SELECT saved_epsilon FROM budgets").scalar()
    return saved == 0


LOCAL = [
    (
        Without("savepoints rolled back", {"savepoint-rolled-back": "pass"}, bool),
        one_that_raises_leaves_nothing,
    ),
    (
        Without("given up is withdrawn", {"given-up-act-withdrawn": "claimed = True"}, bool),
        nobody_claims_what_is_given_up,
    ),
]


@pytest.mark.parametrize(
    ("mutation", "true"), LOCAL, ids=[mutation.name.replace(" ", "-") for mutation, _ in LOCAL]
)
def test_without_the_guard_acts_are_mixed_up(
    ledger: tb.Ledger,
    monkeypatch: pytest.MonkeyPatch,
    mutation: Without,
    true: Callable[[tb.Ledger, pytest.MonkeyPatch], bool],
) -> None:
    assert true(ledger, monkeypatch), "it does not even hold with the guard"
    mutate(monkeypatch, mutation)
    assert not true(ledger, monkeypatch), "nothing noticed that the guard is gone"


# ---------------------------------------------------------------------------------- turns


def test_threads_write_in_the_order_in_which_they_came() -> None:
    turns, order = Turns(), list[int]()
    threads: list[Thread] = []

    def visit(number: int) -> None:
        mine = Waiting(is_alone=True)

        def deed() -> None:
            assert turns.take(mine, 30)
            order.append(number)

        assert turns.enter(mine, deed)

    def first() -> None:
        assert turns.take(leader, 1)
        for number in range(16):
            threads.append(Thread(lambda number=number: visit(number)))  # type: ignore[misc]
            while len(turns._waiting) <= number:
                time.sleep(0.001)

    leader = Waiting()
    assert turns.enter(leader, first)
    for thread in threads:
        thread.join()
    assert order == list(range(16))


def descriptors(file: Path, many: int) -> list[int]:
    """Opens a file so often; locks of these are apart, as if each were a process's."""
    return [os.open(file, os.O_RDWR | os.O_CREAT) for _ in range(many)]


@pytest.mark.skipif(ofd_locks.SET is None, reason="no OFD locks")
def test_processes_stand_in_line_by_ticket(tmp_path: Path) -> None:
    one, two, three = (Files(str(tmp_path / "file"), (0, 0)) for _ in range(3))
    for files, number in zip((one, two, three), descriptors(tmp_path / "file", 3), strict=True):
        files._database = number
    with one._line.place(one._database) as first:
        with two._line.place(two._database) as second:
            with three._line.place(three._database) as third:
                assert [first() > 0, second() > 0, third() > 0] == [False, True, True]
                assert third() > second()
            os.close(three._database)  # the end of a process frees its ticket
        assert not first()
    with two._line.place(two._database) as second:
        assert not second()
    os.close(one._database)
    os.close(two._database)


@pytest.mark.skipif(ofd_locks.SET is None, reason="no OFD locks")
def test_a_process_that_lets_its_turn_go_by_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be stopped while it waits; others pass it, and the next need not find out again."""
    monkeypatch.setattr(ofd_locks, "_LONGEST_PAUSE", 0.05)
    stopped, other = (Files(str(tmp_path / "file"), (0, 0)) for _ in range(2))
    stopped._database, other._database = descriptors(tmp_path / "file", 2)
    with stopped._line.place(stopped._database):
        other.writing(5, lambda: None)
        with other._line.place(other._database) as ahead:
            assert not ahead()
    os.close(stopped._database)
    os.close(other._database)


@pytest.mark.slow
def test_processes_get_equal_shares(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/budget.db"
    with tb.Ledger(url) as ledger:
        ledger.open_budget("data", epsilon=1000, delta=0)
    born_now = [born(_client, url, str(number)) for number in range(16)]
    for _, ear in born_now:
        assert ear.recv() == "ready"
    for _, ear in born_now:
        ear.send("go")
    served = [heard(process, ear)[0] for process, ear in born_now]
    assert max(served) <= 2 * min(served) + 2
    with tb.Ledger(url) as ledger:
        ledger.verify()


def _client(url: str, name: str, ear: Any) -> None:
    with tb.Ledger(url) as ledger:
        ear.send("ready")
        ear.recv()
        end, served = time.monotonic() + 5, 0
        while time.monotonic() < end:
            reserve(ledger, f"{name}-{served}")()
            served += 1
        ear.send(served)
