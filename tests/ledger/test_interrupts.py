"""An interrupt (Ctrl-C) anywhere in an act: nobody waits for it, and it stays an interrupt.

The interrupt is raised at each line, and at each instruction, of the modules that take turns and
locks. The traceback is kept, as notebooks keep it, and with it all objects of the interrupted act.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from sqlalchemy.engine import CursorResult, make_url
from tests.ledger.victims import born

import tightbudget as tb
from tightbudget.ledger.store import (
    connecting,
    driver_errors,
    file_systems,
    idle_connections,
    ofd_locks,
    postgresql_log,
    shared_flush,
    sqlite_files,
    store,
    turns,
    versions,
    visits,
)
from tightbudget.ledger.store.shared_flush import SharedFlush
from tightbudget.ledger.store.turns import Turns, Waiting
from tightbudget.ledger.store.visits import Exclusive, Visit

SOME = tb.OutputDP.from_dp(1e-6)
TRACED = {
    module.__file__
    for module in (
        connecting,
        driver_errors,
        file_systems,
        idle_connections,
        ofd_locks,
        postgresql_log,
        shared_flush,
        sqlite_files,
        store,
        turns,
        versions,
        visits,
    )
}
# called by the collector of garbage, where the interpreter reports an exception and drops it
COLLECTED = {"ProcessState.add.<locals>.<lambda>"}
BOUND = 10.0  # seconds within which everybody has acted; the patience of a ledger is 60


@pytest.fixture(autouse=True)
def _look_around_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wake-up call that an interrupt has swallowed costs this long."""
    for module in (turns, shared_flush):
        monkeypatch.setattr(module, "LOOK_AROUND", 0.01)


class Interrupts:
    """Raises one KeyboardInterrupt at each place in turn, or at each second one.

    Args:
        opcodes: whether each instruction is a place, or each line.
        which: of each two places, the first or the second; by default both.
    """

    def __init__(self, opcodes: bool, which: int | None = None) -> None:
        self._opcodes, self._which = opcodes, which
        self._known: set[tuple[object, int]] = set()
        self.raised: tuple[str, int] | None = None

    @contextlib.contextmanager
    def next(self) -> Iterator[None]:
        """Interrupts what this thread does, at the first place where it was not interrupted yet."""
        self.raised, before = None, sys.gettrace()
        gc.disable()  # it finalizes a forgotten ledger, and drops the exceptions of that
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)
            gc.enable()

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code.co_filename not in TRACED or code.co_qualname in COLLECTED:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = self._opcodes, not self._opcodes
        return self._passed

    def _passed(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "opcode") and self.raised is None:
            place = frame.f_code, frame.f_lasti if event == "opcode" else frame.f_lineno
            if place not in self._known:
                self._known.add(place)
                if self._which not in (None, len(self._known) % 2):
                    return self._passed
                self.raised = frame.f_code.co_qualname, frame.f_lineno
                raise KeyboardInterrupt
        return self._passed


class Another:
    """Another process that has the same ledger open, and acts when it is asked to."""

    def __init__(self, url: str) -> None:
        self._process, self._ear = born(_another, url)

    def acts(self) -> None:
        self._ear.send("act")
        assert self._ear.poll(BOUND), "another process waits"
        assert self._ear.recv() == "done"

    def close(self) -> None:
        self._ear.send("end")
        self._process.join()
        self._ear.close()


def _another(url: str, ear: Any) -> None:
    with tb.Ledger(url) as ledger:
        for number in itertools.count():
            if ear.recv() == "end":
                return
            ledger.reserve(f"another-{number}", SOME, ["data"])
            ear.send("done")


class Thread(threading.Thread):
    """A thread that notes what came of its deed, and how long it took."""

    def __init__(self, deed: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.deed, self.answer = deed, "waits"
        self.start()

    def run(self) -> None:
        try:
            self.deed()
            self.answer = "done"
        except tb.LedgerError as error:
            self.answer = "unknown" if error.unknown else str(error)
        except BaseException as error:
            self.answer = repr(error)

    def told(self) -> str:
        self.join(BOUND)
        return self.answer


def act(ledger: tb.Ledger) -> None:
    """Has the turn, the locks and the transaction of an act, and changes nothing."""
    ledger._store.write(lambda connection: connection.exec_driver_sql("SELECT 1").scalar())


def made(url: str) -> str:
    """Makes a ledger with one budget."""
    with tb.Ledger(url) as ledger:
        ledger.open_budget("data", epsilon=1, delta=0)
    return url


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return made(f"sqlite:///{tmp_path}/budget.db")


# ------------------------------------------------------------------------------- what is done


class Deed:
    """Something that a thread does with a ledger, again and again under new keys."""

    def __init__(self, name: str, ledger: tb.Ledger) -> None:
        self.name, self.ledger = name, ledger
        self.hold: tb.ledger.LedgerHold | None = None

    def prepare(self, key: str) -> None:
        if self.name in ("start", "settle"):
            self.hold = self.ledger.reserve(key, SOME, ["data"])
        if self.hold is not None and self.name == "settle":
            self.hold.start()

    def do(self, key: str) -> None:
        if self.name == "reserve":
            self.ledger.reserve(key, SOME, ["data"])
        elif self.name == "refused":
            with contextlib.suppress(tb.BudgetExceeded):
                self.ledger.reserve(key, tb.OutputDP.from_dp(2), ["data"])
        elif self.name == "read":
            self.ledger.head()
        elif self.name == "open":
            with tb.Ledger(self.ledger.url) as other:
                other.head()
        elif self.name == "start":
            assert self.hold is not None
            self.hold.start()
        elif self.name == "settle":
            assert self.hold is not None
            self.hold.settle("ran")

    def again(self, key: str) -> None:
        """Whatever the interrupt has left: the deed is done once, now or before."""
        with contextlib.suppress(
            tb.errors.SettlementError
        ):  # it was started, and the token is lost
            self.do(key)


def interrupted_everywhere(
    deed: Deed,
    interrupts: Interrupts,
    *,
    check: Callable[[], None],
    step: Callable[[Deed, str], None],
) -> int:
    """Interrupts a deed once at each place that it comes to; the number of interrupts."""
    for number in itertools.count():
        key = f"key-{number}"
        deed.prepare(key)
        came: BaseException | None = None
        with interrupts.next():
            try:
                step(deed, key)
            except BaseException as error:
                came = error
        if interrupts.raised is None:
            assert came is None
            return number
        assert isinstance(came, KeyboardInterrupt), f"{interrupts.raised}: {came!r}"
        sys.last_value = came  # with all that the traceback keeps
        try:
            check()
            deed.again(key)
        except BaseException as error:
            raise AssertionError(f"after an interrupt at {interrupts.raised}") from error
    raise AssertionError


def alone(deed: Deed, key: str) -> None:
    deed.do(key)


class Everybody:
    """Another thread, another connection or process, and this thread, who act at once.

    Args:
        url: the ledger, which another connection has open until ``close``.
        another: the other process, if there is one.
    """

    def __init__(self, url: str, another: Another | None = None) -> None:
        self._another = another
        self._connection: sqlite3.Connection | None = None
        if url.startswith("sqlite"):
            path = str(make_url(url).database)
            self._connection = sqlite3.connect(path, timeout=0, isolation_level=None)
            self._file = open(path, "rb")  # noqa: SIM115

    def act(self, ledger: tb.Ledger) -> None:
        if self._connection is not None:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("ROLLBACK")
            assert ofd_locks.taken(self._file.fileno(), ofd_locks.TURN_AND_TICKETS) is None
        if self._another is not None:
            self._another.acts()
        assert Thread(lambda: act(ledger)).told() == "done"
        begun = time.monotonic()
        act(ledger)
        assert time.monotonic() - begun < BOUND

    def close(self) -> None:
        """Frees, as a side effect, SQLite's own locks of this process."""
        if self._connection is not None:
            self._connection.close()
            self._file.close()
        if self._another is not None:
            self._another.close()


def closed_and_opened(ledger: tb.Ledger) -> None:
    ledger.close()
    with tb.Ledger(ledger.url) as again:
        act(again)
    ledger.verify()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    "name",
    [
        "reserve",
        "read",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("refused", "settle")),
    ],
)
def test_an_interrupt_at_any_line_stops_nobody(sqlite: str, name: str, which: int) -> None:
    interrupts = Interrupts(opcodes=False, which=which)
    with contextlib.closing(Everybody(sqlite)) as everybody, tb.Ledger(sqlite) as ledger:
        places = interrupted_everywhere(
            Deed(name, ledger), interrupts, check=lambda: everybody.act(ledger), step=alone
        )
        assert places > (10 if name == "read" else 40)
        closed_and_opened(ledger)


@pytest.mark.slow
# an interrupt in the pool loses a connection, which has no transaction, to the collector of garbage
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("name", "opcodes"),
    [("reserve", False), ("read", False), ("settle", False), ("open", False), ("reserve", True)],
)
def test_an_interrupt_anywhere_stops_no_process(url: str, name: str, opcodes: bool) -> None:
    made(url)
    everybody = Everybody(url, Another(url))
    with contextlib.closing(everybody), tb.Ledger(url) as ledger:
        interrupted_everywhere(
            Deed(name, ledger),
            Interrupts(opcodes),
            check=lambda: everybody.act(ledger),
            step=alone,
        )
        closed_and_opened(ledger)


# -------------------------------------------------------------- with acts of other threads


class Beside:
    """Two other threads whose acts wait while the act of this thread is run."""

    def __init__(self, ledger: tb.Ledger) -> None:
        self.ledger = ledger
        self.threads: dict[str, Thread] = {}

    def lead(self, deed: Deed, key: str) -> None:
        """Does a deed, after which the acts of the others are run in the same transaction."""
        self.threads = {}

        def first(_: Any) -> None:
            tracer = sys.gettrace()
            sys.settrace(None)
            waiting = self.ledger._store._here().turns._waiting
            for name in (f"{key}-a", f"{key}-b"):
                many, deed = len(waiting), Deed("reserve", self.ledger)
                self.threads[name] = Thread(lambda deed=deed, name=name: deed.do(name))  # type: ignore[misc]
                while len(waiting) == many:
                    time.sleep(0)
            sys.settrace(tracer)

        self.ledger._store.write(first)

    def answered(self) -> None:
        """They are done, or nobody knows; whatever was told is there."""
        reserved = {event.key for event in self.ledger.events(kind="reserved")}
        for name, thread in self.threads.items():
            answer = thread.told()
            assert answer in ("done", "unknown"), answer
            if answer == "done":
                reserved = {event.key for event in self.ledger.events(kind="reserved")}
                assert name in reserved


# a connection of an earlier test on PostgreSQL, lost to an interrupt, may be collected in this one
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("opcodes", "which"),
    [(False, 0), (False, 1), pytest.param(True, None, marks=pytest.mark.slow)],
)
def test_an_interrupt_of_the_leader_stops_none_of_its_followers(
    sqlite: str, monkeypatch: pytest.MonkeyPatch, opcodes: bool, which: int | None
) -> None:
    monkeypatch.setattr(store, "_LONGEST_BATCH", 60.0)
    with contextlib.closing(Everybody(sqlite)) as everybody, tb.Ledger(sqlite) as ledger:
        beside = Beside(ledger)
        places = interrupted_everywhere(
            Deed("lead", ledger),
            Interrupts(opcodes, which),
            check=beside.answered,
            step=beside.lead,
        )
        assert places > 40
        everybody.act(ledger)
        closed_and_opened(ledger)


@pytest.mark.slow
def test_an_interrupt_of_who_waits_withdraws_its_act(sqlite: str) -> None:
    """At each line of a thread that waits for another's turn; the other one does not notice."""
    with contextlib.closing(Everybody(sqlite)) as everybody, tb.Ledger(sqlite) as ledger:
        interrupts, told = Interrupts(opcodes=False), list[str]()

        def waits(key: str) -> None:
            with interrupts.next(), contextlib.suppress(KeyboardInterrupt):
                ledger.reserve(key, SOME, ["data"])
                told.append(key)

        def leads(key: str) -> Callable[[Any], None]:
            def first(_: Any) -> None:
                threads.append(Thread(lambda: waits(key)))
                threads[-1].join(0.05)  # it waits, or has gone

            return first

        for number in itertools.count():
            threads: list[Thread] = []
            ledger._store.write(leads(f"key-{number}"))
            assert threads[0].told() == "done"
            if interrupts.raised is None:
                break
        assert number > 15
        assert set(told) <= {event.key for event in ledger.events(kind="reserved")}
        everybody.act(ledger)
        closed_and_opened(ledger)


# ------------------------------------------------------------------------ one deterministic case


def test_an_interrupt_while_a_result_is_read_locks_nobody(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cursor of the result is in the traceback, and with it the connection."""
    with contextlib.closing(Everybody(sqlite)) as everybody:
        ledger = tb.Ledger(sqlite)
        ledger.head()

        def interrupted(*_: object, **__: object) -> None:
            signal.raise_signal(signal.SIGINT)

        with monkeypatch.context() as patch:
            patch.setattr(CursorResult, "__init__", interrupted)
            with pytest.raises(KeyboardInterrupt) as kept:
                ledger.reserve("A", SOME, ["data"])
        everybody.act(ledger)
        ledger.close()
        closed_and_opened(ledger)
        assert kept.value.__traceback__ is not None


# ------------------------------------------------------------------------------- its parts


def test_an_interrupt_behind_a_cleaning_up_is_found() -> None:
    def act(connection: Any) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise AssertionError("cleaning up")

    with pytest.raises(KeyboardInterrupt):
        visits.run_interruptible(act, None)


def test_an_earlier_interrupt_hides_no_error() -> None:
    """Who forfeits a run in the handler of Ctrl-C is told what is wrong with that."""

    def act(connection: Any) -> None:
        raise ValueError("wrong")

    def handles() -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            visits.run_interruptible(act, None)

    with pytest.raises(ValueError, match="wrong"):
        handles()


def interrupted_in(deed: Callable[[], object]) -> None:
    with pytest.raises(KeyboardInterrupt):
        deed()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_flush_that_is_interrupted_is_done_by_the_next() -> None:
    flushes: list[Callable[[], None]] = [interrupt, lambda: None, lambda: None]
    shared = SharedFlush(lambda: flushes.pop(0)())
    interrupted_in(lambda: shared.wait(1))
    shared.wait(1)
    assert Thread(lambda: shared.wait(1)).told() == "done"


def test_a_signal_handler_in_a_flush_does_one_of_its_own() -> None:
    flushes: list[str] = []

    def flush() -> None:
        flushes.append("begun")
        if len(flushes) == 1:
            shared.wait(1)  # as a handler does

    shared = SharedFlush(flush)
    shared.wait(1)
    assert len(flushes) == 2


def test_an_exclusive_deed_does_not_wait_for_itself() -> None:
    exclusive = Exclusive()
    assert exclusive.run(lambda: exclusive.run(lambda: "inside")) is None
    interrupted_in(lambda: exclusive.run(interrupt))
    assert exclusive.run(lambda: "afterwards") == "afterwards"


def test_exclusive_deeds_are_done_one_at_a_time() -> None:
    exclusive, inside, most = Exclusive(), list[int](), list[int]()

    def deed() -> None:
        inside.append(1)
        time.sleep(0.002)
        most.append(len(inside))
        inside.pop()

    threads = [Thread(lambda: exclusive.run(deed)) for _ in range(8)]
    assert [thread.told() for thread in threads] == ["done"] * 8
    assert set(most) == {1}


def test_a_turn_whose_thread_has_gone_is_taken_over() -> None:
    """It was neither passed on nor given back."""
    left, gone, mine = Turns(), Waiting(), Waiting()

    def takes() -> None:
        assert left.take(gone, 1)
        gone.visit = Visit()  # as if the thread had been interrupted on its way out

    left.enter(gone, takes)
    assert left.enter(mine, lambda: left.take(mine, 1))


def test_few_idle_connections_are_kept(sqlite: str) -> None:
    with tb.Ledger(sqlite) as ledger:
        engine = ledger._store._engine
        connections = [engine.connect() for _ in range(8)]
        for connection in connections:
            connection.close()
        assert engine.pool.status() == "5 idle connections"
        engine.dispose()
        assert engine.pool.status() == "0 idle connections"
