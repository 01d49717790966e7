"""What breaks while a deed is done: disks, connections, servers, clocks, and who asks badly."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError
from tests.ledger.conformance import Deed, LedgerActor
from tests.ledger.model import Model
from tests.ledger.servers import OwnServer, Server
from tests.ledger.victims import born, heard, watched

import tightbudget as tb
from tightbudget.ledger.store import connecting, store
from tightbudget.ledger.store.turns import Waiting

NOBODY = 65534
TEN_YEARS = timedelta(days=3653)
COIN = tb.OutputDP({"yes": 0.3, "no": 0.1}, delta=1e-7)
STORY = ("open data 1 1e-6", "reserve A1 yes=0.3,no=0.1+1e-7", "start A1")  # of COIN


@contextlib.contextmanager
def at_every_connect(statement: str) -> Iterator[None]:
    def connected(connection: Any, _: object) -> None:
        connection.execute(statement)

    event.listen(Engine, "connect", connected)
    try:
        yield
    finally:
        event.remove(Engine, "connect", connected)


# ------------------------------------------------------------------------------- disks


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/budget.db"
    actor = LedgerActor(url)
    assert actor.told(*STORY) == ["ok"] * 3
    actor.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "budget.db")) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    with at_every_connect(f"PRAGMA max_page_count = {pages + 4}"):
        actor = LedgerActor(url, actor.tokens)
        granted = 0
        with contextlib.suppress(tb.LedgerError):
            while granted < 100:
                assert actor.told(f"reserve B{granted} 1e-3") == ["ok"]
                granted += 1
        assert 0 < granted < 100
        with pytest.raises(tb.LedgerError, match=r"nothing was changed .* full: free some space"):
            actor.told(f"reserve B{granted} 1e-3")
        balance = actor.act(Deed.read("epsilon data"))
        actor.close()
    actor = LedgerActor(url, actor.tokens)
    assert actor.act(Deed.read("epsilon data")) == balance
    # there is room again: the same request goes through, and the run that had begun is settled
    assert actor.told(f"reserve B{granted} 1e-3", "settle A1 no") == ["ok", "ok"]
    actor.ledger.verify()
    spent, held = actor.act(Deed.read("epsilon data")).split()[1:4:2]
    assert (spent, Fraction(held)) == ("0.1", Fraction(granted + 1, 1000))
    actor.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte, where this user may mount one."""
    asked = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(asked, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_full_disk_says_that_space_helps(small_disk: Path) -> None:
    """Nobody knows whether the commit was written; to ask again is answered when there is room."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    with tb.Ledger(f"sqlite:///{small_disk}/budget.db") as ledger:
        data = ledger.open_budget("data", epsilon=1, delta=0)
        charged = itertools.count()

        def charge() -> None:
            while True:
                data.reserve(f"A{next(charged)}", tb.OutputDP.from_dp(1e-4))

        with pytest.raises(tb.LedgerError) as full:
            charge()
        assert full.value.unknown
        assert str(full.value).endswith(
            "did not say whether the act happened: database or disk is full: free some space on its"
            " disk; ask again under the same key"
        )
        before = ledger.head()
        ledger.verify()
        ballast.unlink()
        tried = next(charged)  # the last of them is asked for again
        data.reserve(f"A{tried - 1}", tb.OutputDP.from_dp(1e-4))
        ledger.check(before)
        assert data.held.epsilon == pytest.approx(1e-4 * tried)
        ledger.verify()


class DiskFullError(Exception):
    """What PostgreSQL's driver raises."""

    sqlstate = "53100"


@pytest.mark.parametrize(("moment", "unknown"), [("before insert", False), ("before commit", True)])
def test_a_full_disk_of_a_server_says_that_space_helps(
    actor: LedgerActor, moment: str, unknown: bool
) -> None:
    actor.told(*STORY)
    passed = set()

    def pass_by(point: str) -> None:
        passed.add(point)
        if point == moment and "before insert" in passed:
            raise OperationalError(point, None, DiskFullError("could not extend file"))

    with watched(pass_by), pytest.raises(tb.LedgerError, match="file: free some space on") as full:
        actor.told("settle A1 no")
    assert full.value.unknown is unknown
    assert actor.told("settle A1 no") == ["ok"]


@pytest.mark.slow
def test_a_disk_that_stops_in_the_middle_of_a_write_changes_nothing(tmp_path: Path) -> None:
    """The operating system lets no file grow beyond a length that falls into the deed."""
    url = f"sqlite:///{tmp_path}/budget.db"
    actor = LedgerActor(url)
    actor.told(*STORY)
    balance = actor.act(Deed.read("epsilon data"))
    log = tmp_path / "budget.db-wal"
    outcomes = set()
    for more in range(0, 60_000, 8_000):
        process, ear = born(_limited, url, actor.tokens, log.stat().st_size + more)
        heard(process, ear)
        outcomes.add(process.exitcode)
        assert process.exitcode in (0, 1)
        if process.exitcode == 0:
            break
        assert actor.act(Deed.read("epsilon data")) == balance
    assert outcomes == {0, 1}
    assert actor.told("settle A1 no") == ["again"]
    actor.ledger.verify()
    actor.close()


def _limited(url: str, tokens: dict[str, str | None], length: int, _: Any) -> None:
    actor = LedgerActor(url, tokens)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, length))
    try:
        actor.told("settle A1 no")
    except tb.LedgerError:
        os._exit(1)


def test_a_read_only_file_can_be_read_and_nothing_else() -> None:
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)  # the reader is somebody else, and needs a log of his own
        url = f"sqlite:///{name}/budget.db"
        with contextlib.closing(LedgerActor(url)) as actor:
            actor.told(*STORY)
            balance = actor.act(Deed.read("epsilon data"))
        os.chmod(f"{name}/budget.db", 0o444)
        said = heard(*born(_reader, url, actor.tokens))
    assert said[0] == balance
    assert "nothing was changed" in said[1]
    assert "readonly" in said[1]


def _reader(url: str, tokens: dict[str, str | None], ear: Any) -> None:
    if os.geteuid() == 0:  # whom no file mode stops
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    with contextlib.closing(LedgerActor(url, tokens)) as reader:
        ear.send(reader.act(Deed.read("epsilon data")))
        try:
            reader.told("settle A1 no")
        except tb.LedgerError as error:
            ear.send(str(error))


@pytest.mark.parametrize("instead", ["nothing", "backup"])
def test_a_file_that_was_exchanged_is_not_written_to(tmp_path: Path, instead: str) -> None:
    """An open connection would go on with the old file, which nobody finds any more."""
    file, backup = tmp_path / "budget.db", tmp_path / "backup.db"
    with tb.Ledger(f"sqlite:///{file}") as ledger:
        ledger.open_budget("data", epsilon=1, delta=1e-6)
    shutil.copy(file, backup)
    with tb.Ledger(f"sqlite:///{file}") as ledger:
        hold = ledger.reserve("A1", COIN, ["data"])
        file.rename(tmp_path / "old.db")
        if instead == "backup":
            backup.rename(file)
        for ask in (hold.start, ledger.head):
            with pytest.raises(tb.LedgerError, match="not the file that was opened"):
                ask()
    assert file.exists() == (instead == "backup")  # and no empty one was made


# -------------------------------------------------------------------------- connections


def dropped_at(server: Server, url: str, at: int) -> Callable[[str], None]:
    """Cuts all connections when the deed has come to a point, once."""
    points = iter(range(at))
    dropped: list[str] = []

    def pass_by(point: str) -> None:
        if next(points, None) is None and not dropped:
            dropped.append(point)
            server.drop_connections(url)

    return pass_by


ACTS: dict[str, Callable[[tb.Ledger, tb.ledger.LedgerHold], object]] = {
    "reserve": lambda ledger, hold: ledger.reserve(f"{hold.key}'", COIN, ["data"]),
    "settle": lambda ledger, hold: hold.settle("no"),
    "forfeit": lambda ledger, hold: hold.forfeit(),
    "open": lambda ledger, hold: ledger.open_budget(hold.key, epsilon=1, delta=0, parent="data"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ACTS)
def test_a_lost_connection_is_survived_or_told(postgres: Server, name: str) -> None:
    """Wherever it breaks, asking again under the same key ends as if it had not."""
    url = postgres.create_database()
    outcomes = set()
    with tb.Ledger(url) as ledger:
        data = ledger.open_budget("data", epsilon=100, delta=1e-3)
        for at in range(16):
            hold = data.reserve(f"A{at}", COIN)
            hold.start()
            before = ledger.head().sequence
            with watched(dropped_at(postgres, url, at)):
                outcomes.add(outcome(functools.partial(ACTS[name], ledger, hold)))
            ACTS[name](ledger, hold)
            assert ledger.head().sequence - before == (2 if name == "open" else 1)
        ledger.verify()
    postgres.drop_database(url)
    assert outcomes == {"done", "unknown"}


def outcome(ask: Callable[[], object]) -> str:
    try:
        ask()
    except tb.LedgerError as error:
        return "unknown" if error.unknown else "not done"
    return "done"


@pytest.mark.parametrize("moment", ["before commit", "after commit"])
def test_a_commit_without_an_answer_is_said_to_be_unknown(
    url: str, actor: LedgerActor, moment: str
) -> None:
    """Nobody can know whether it happened; asking again under the same key finds out."""
    actor.told(*STORY)

    passed = set()

    def pass_by(point: str) -> None:
        passed.add(point)
        if point == moment and "before insert" in passed:  # not that of a transaction that reads
            raise OperationalError("COMMIT", None, Exception("no answer"))

    with watched(pass_by), pytest.raises(tb.LedgerError, match="ask again") as caught:
        actor.told("settle A1 no")
    assert caught.value.unknown
    assert actor.told("settle A1 no") == ["ok" if moment == "before commit" else "again"]
    assert actor.act(Deed.read("epsilon data")) == "spent 0.1 held 0 left 0.9 saved 0.2"
    actor.close()


@pytest.mark.slow
def test_the_server_is_killed_and_comes_back(mortal: OwnServer) -> None:
    with tb.Ledger(mortal.create_database()) as ledger:
        data = ledger.open_budget("data", epsilon=1, delta=1e-6)
        hold = data.reserve("A1", COIN)
        hold.start()
        before = data.statement()
        mortal.kill()
        with pytest.raises(tb.LedgerError, match="nothing was changed"):
            hold.settle("no")
        mortal.start()
        assert data.statement() == before
        assert hold.settle("no").epsilon == 0.1
        assert hold.settle("no").epsilon == 0.1
        assert data.spent.epsilon == 0.1
        ledger.verify()


# ---------------------------------------------------------------------------- processes


def test_a_process_that_slept_while_another_took_over_frees_nothing(
    url: str, actor: LedgerActor
) -> None:
    """It wakes with a cheap cell in its hand; the run was given up as lost, at its full price."""
    actor.told(*STORY[:2])
    process, ear = born(_sleeper, url)
    assert ear.recv() == "started"
    os.kill(process.pid, signal.SIGSTOP)
    assert actor.told("start A1", "void A1", "expire A1") == ["too late"] * 3
    assert actor.told("forfeit A1") == ["ok"]
    os.kill(process.pid, signal.SIGCONT)
    ear.send("go on")
    assert ear.recv() == "fenced"
    process.join()
    assert actor.act(Deed.read("epsilon data")) == "spent 0.3 held 0 left 0.7 saved 0"
    actor.close()


def _sleeper(url: str, ear: Any) -> None:
    actor = LedgerActor(url)
    actor.told("start A1")
    ear.send("started")
    ear.recv()
    ear.send(actor.act(Deed(verb="settle", name="A1", words=("no",))))


@pytest.mark.slow
def test_a_process_paused_in_the_middle_of_an_act_does_not_stop_the_others_for_ever(
    url: str, actor: LedgerActor
) -> None:
    """It has the lock. SQLite takes it from nobody, but says so; PostgreSQL takes it back."""
    actor.told(*STORY[:2])
    process, ear = born(_paused, url)
    while ear.recv() != "before insert":
        pass
    with hasty():
        other = LedgerActor(url)
        asked = outcome(lambda: other.told("start A1"))
        if url.startswith("sqlite"):
            assert asked == "not done"
        elif asked == "not done":
            assert other.told("start A1") == ["ok"]
        os.kill(process.pid, signal.SIGCONT)
        awake = heard(process, ear)[-1]
        other.close()
    assert awake == (["ok"] if url.startswith("sqlite") else ["too late"])
    assert actor.act(Deed.read("state A1")) == "started"
    actor.ledger.verify()


@contextlib.contextmanager
def hasty() -> Iterator[None]:
    """Nobody waits for a lock, or is waited for, longer than a second or two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_PATIENCE", 1.0)
        begin = connecting.BEGIN["postgresql", "write"].replace("60s", "1s")
        patch.setitem(connecting.BEGIN, ("postgresql", "write"), begin)
        yield


def _paused(url: str, ear: Any) -> None:
    def pass_by(point: str) -> None:
        ear.send(point)
        if point == "before insert":
            os.kill(os.getpid(), signal.SIGSTOP)

    with hasty(), contextlib.closing(LedgerActor(url)) as actor, watched(pass_by):
        try:
            ear.send(actor.told("start A1"))
        except tb.LedgerError as error:
            ear.send("unknown" if error.unknown else "not done")


@pytest.mark.slow
def test_a_child_of_fork_has_connections_of_its_own(url: str) -> None:
    """In a process that was forked, the parent's connections would be two processes' at once."""
    process, ear = born(_forking, url)
    heard(process, ear)
    assert process.exitcode == 0
    actor = LedgerActor(url)
    assert actor.act(Deed.read("epsilon data")) == "spent 0 held 0.7 left 0.3 saved 0"
    actor.ledger.verify()
    actor.close()


def _forking(url: str, _: Any) -> None:
    actor = LedgerActor(url)
    actor.told("open data 1 1e-6")
    os._exit(_lineage(actor, 0))


def _lineage(actor: LedgerActor, generation: int) -> int:
    """Acts, forks, and acts again while the child does the same; 0 if all went well."""
    answers = actor.told(f"reserve A{generation} 0.1")
    status = 0
    if generation < 3:
        child = os.fork()
        if not child:
            os._exit(_lineage(actor, generation + 1))
        answers += actor.told(f"reserve B{generation} 0.1")
        status = os.waitpid(child, 0)[1]
    return int(bool(status) or set(answers) != {"ok"})


def test_a_child_of_fork_does_not_wait_for_a_turn_of_its_parent(url: str) -> None:
    process, ear = born(_forking_in_turn, url)
    heard(process, ear)
    assert process.exitcode == 0


def _forking_in_turn(url: str, _: Any) -> None:
    actor = LedgerActor(url)

    def fork() -> None:
        child = os.fork()
        if not child:
            os._exit(int(actor.told("open data 1 1e-6") != ["ok"]))
        os._exit(int(bool(os.waitpid(child, 0)[1])))

    in_turn(actor.ledger, fork)


def in_turn(ledger: tb.Ledger, deed: Callable[[], object]) -> None:
    """Does a deed while this thread has the turn to write, before any transaction begins."""
    turns, mine = ledger._store._here().turns, Waiting(is_alone=True)

    def taken() -> None:
        assert turns.take(mine, 1)
        deed()

    assert turns.enter(mine, taken)


def test_an_act_that_does_not_get_its_turn_changes_nothing(
    url: str, actor: LedgerActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread of the process is in the middle of an act, and stays there."""
    actor.told(*STORY)
    monkeypatch.setattr(store, "_PATIENCE", 0.05)
    begun, over = threading.Event(), threading.Event()

    def stay() -> None:
        begun.set()
        over.wait(30)

    other = threading.Thread(target=in_turn, args=[actor.ledger, stay])
    other.start()
    begun.wait(30)
    with pytest.raises(tb.LedgerError, match=r"^nothing was changed in .*: too many acts") as no:
        actor.told("settle A1 no")
    assert not no.value.unknown
    assert actor.told("state A1") == ["started"]
    over.set()
    other.join()
    assert actor.told("settle A1 no") == ["ok"]


# ------------------------------------------------------------------------------- clocks


def test_a_clock_that_jumps_changes_nothing(url: str) -> None:
    """Nothing is ever released because time has passed, and nothing waits for it to pass."""
    actor, model = LedgerActor(url), Model()
    now = datetime.now(UTC)
    times = itertools.cycle((now, now + TEN_YEARS, now - TEN_YEARS, now + 2 * TEN_YEARS))
    actor.close()
    actor.ledger = tb.Ledger(url, clock=lambda: next(times))
    for line in (*STORY, "reserve A2 0.4", "settle A1 no", "reserve A3 0.6", "start A2"):
        deed = Deed.read(line)
        assert actor.act(deed) == model.act(deed)
        assert actor.act(Deed.read("epsilon data")) == model.act(Deed.read("epsilon data"))
    actor.ledger.verify()
    years = {event.at[:4] for event in actor.ledger.events()}
    assert years >= {str(now.year - 10), str(now.year + 20)}
    actor.close()


# ----------------------------------------------------------------------- who asks badly


@pytest.mark.parametrize(
    "cell", [math.nan, math.inf, 0.5, None, True, b"no", ["no"], "x" * 10**5, "\ud800"]
)
def test_what_is_no_cell_settles_nothing(url: str, actor: LedgerActor, cell: object) -> None:
    actor.told(*STORY)
    with pytest.raises(tb.ParameterError, match="cell must "):
        actor.ledger.hold("A1", token=actor.tokens["A1"]).settle(cell)  # type: ignore[arg-type]
    assert actor.act(Deed.read("epsilon data")) == "spent 0 held 0.3 left 0.7 saved 0"
    actor.close()


@pytest.mark.parametrize("cell", ["nan", -1, 10**30, "no ", "No", "", "\x00", (), ("no",)])
def test_a_cell_that_nobody_declared_costs_the_sup(
    url: str, actor: LedgerActor, cell: tb.Cell
) -> None:
    actor.told(*STORY)
    actor.ledger.hold("A1", token=actor.tokens["A1"]).settle(cell)
    assert actor.act(Deed.read("epsilon data")) == "spent 0.3 held 0 left 0.7 saved 0"
    actor.ledger.verify()
    actor.close()


@pytest.mark.parametrize("epsilon", [math.nan, math.inf, -0.1, -1e-300, "0.1", None, True])
def test_amounts_that_are_none_are_refused(url: str, actor: LedgerActor, epsilon: Any) -> None:
    actor.told("open data 1 1e-6")
    before = actor.ledger.head()
    for ask in (
        lambda: actor.ledger.open_budget("ada", epsilon=epsilon, delta=0, parent="data"),
        lambda: actor.ledger.open_budget("ada", epsilon=0.1, delta=epsilon, parent="data"),
        lambda: actor.ledger.reserve("A1", epsilon, budgets=["data"]),
        lambda: actor.ledger.budget("data").raise_cap(epsilon=epsilon, by="ada", reason="why not"),
    ):
        with pytest.raises(tb.ParameterError):
            ask()
    assert actor.ledger.head() == before
    actor.close()


def test_amounts_beyond_the_integers_of_a_database_are_refused(
    url: str, actor: LedgerActor
) -> None:
    actor.told("open data 9e6 1")
    assert actor.told("open more 1e7 1", "reserve A1 1e7", "reserve A2 1e300") == ["refused"] * 3
    assert actor.told("reserve A3 9e6+1", "reserve A4 1e-12") == ["ok", "exceeded"]
    assert actor.told("start A3", "settle A3 no") == ["ok"] * 2
    actor.ledger.verify()
    actor.close()
