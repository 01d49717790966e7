"""SQLite's own locks are lost, and no charge that was told is: forks, open and close, kills.

A story has three processes: a *parent* that opens the ledger, its *child* by fork, and a *third*
one that knows neither. Each tells what it has settled. At the end all that was told is on the disk,
as a process finds it that comes after all of them.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.guards.mutants import Without, mutate
from tests.ledger.victims import born, heard, watched

import tightbudget as tb
from tightbudget.ledger.store import file_systems, ofd_locks, sqlite_files, store
from tightbudget.ledger.store.sqlite_files import Files, ProcessState

CAP, PRICE = 1.0, 0.01
ENDS = ("", "-wal", "-shm")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ledger" / "budget.db"


@pytest.fixture
def sqlite(file: Path) -> str:
    """The address of a ledger in a folder of its own, with one budget."""
    file.parent.mkdir()
    return opened(f"sqlite:///{file}")


def opened(url: str) -> str:
    with tb.Ledger(url) as ledger:
        ledger.open_budget("data", epsilon=CAP, delta=0)
    return url


def charge(ledger: tb.Ledger, key: str, ear: Any = None) -> None:
    hold = ledger.reserve(key, tb.OutputDP.from_dp(PRICE), ["data"])
    hold.start()
    hold.settle("ran")
    if ear is not None:
        ear.send(key)


def settled(url: str) -> set[str]:
    """What a process that comes later finds; the history and the balances agree."""
    with tb.Ledger(url, create=False) as ledger:
        ledger.verify()
        keys = {str(event.key) for event in ledger.events(kind="settled")}
        assert ledger.budget("data").spent.epsilon == pytest.approx(PRICE * len(keys))
        return keys


def others(url: str, *keys: str) -> set[str]:
    """Another process opens the ledger, charges, looks, and closes it; the last one, if it can."""
    return set(heard(*born(_third, url, keys)))


def _third(url: str, keys: tuple[str, ...], ear: Any) -> None:
    with tb.Ledger(url) as ledger:
        for key in keys:
            charge(ledger, key, ear)
        ledger.statements()


@contextlib.contextmanager
def dying_at(point: int | None) -> Iterator[None]:
    """Kills this process when it has come to so many points of its acts."""
    points = itertools.count()

    def pass_by(_: str) -> None:
        if next(points) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    with watched(pass_by):
        yield


def forked(child: Callable[[], object]) -> int:
    """A child of this process that does something and ends without any cleaning up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and forks: the point of this
        number = os.fork()
    if number:
        return number
    status = 1
    try:
        child()
        status = 0
    finally:
        os._exit(status)


def is_well(child: int) -> bool:
    return os.waitpid(child, 0)[1] == 0


# ---------------------------------------------------------------------------------- forks


def _parent(url: str, end: str, whose: str, point: int | None, ear: Any) -> None:
    ledger = tb.Ledger(url)
    charge(ledger, "parent", ear)

    def child() -> None:
        mine = ledger if whose == "inherited" else tb.Ledger(url)
        if whose == "new, before":
            mine.statements()
        assert ear.recv() == "the parent has gone, and others have looked"
        with dying_at(point):
            for number in range(3):
                charge(mine, f"child-{number}", ear)
        assert ear.recv() == "others have charged"
        charge(mine, "child-last", ear)
        mine.verify()

    forked(child)
    if end == "close":
        ledger.close()
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "charge":
        charge(ledger, "parent-last", ear)


# When the process dies: each case starts processes, and `make test` shows one of them.
AT = [None, *(pytest.param(point, marks=pytest.mark.slow) for point in (5, 41))]


@pytest.mark.one_in(8)
@pytest.mark.parametrize("point", AT)
@pytest.mark.parametrize("whose", ["inherited", "new, before"])
@pytest.mark.parametrize("end", ["close", "exit", "kill", "charge"])
def test_a_child_keeps_its_charges_when_its_parent_goes(
    url: str, end: str, whose: str, point: int | None
) -> None:
    process, ear = born(_parent, opened(url), end, whose, point)
    told = {ear.recv()}
    if end == "charge":
        told.add(ear.recv())
    process.join()
    told |= others(url, "third-0")
    ear.send("the parent has gone, and others have looked")
    if point is None:
        told |= {ear.recv() for _ in range(3)}
        told |= others(url, "third-1")
        ear.send("others have charged")
    told |= set(heard(process, ear))
    told |= others(url, "third-2")
    assert told >= {"parent", "third-0", "third-2"}
    if point is None:
        assert told >= {"child-0", "child-1", "child-2", "child-last", "third-1"}
    # who was killed has perhaps done one thing more than it could tell
    assert 0 <= len(settled(url) - told) <= (point is not None)
    assert told <= settled(url)


def _with_pool(url: str, ear: Any) -> None:
    global _pooled
    _pooled = ledger = tb.Ledger(url)
    charge(ledger, "parent", ear)
    # in a daemonic process there are no children but those of a fork
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        answers = pool.map_async(_in_pool, range(8), chunksize=1)
        ledger.close()
        for answer in answers.get(60):
            ear.send(answer)


def _in_pool(number: int) -> str:
    charge(_pooled, f"pool-{number}")
    return f"pool-{number}"


_pooled: tb.Ledger


@pytest.mark.slow
def test_the_workers_of_a_pool_keep_their_charges(url: str) -> None:
    """The default of multiprocessing on Linux, below Python 3.14."""
    process, ear = born(_with_pool, opened(url))
    told = {ear.recv()} | others(url, "third-0") | set(heard(process, ear))
    assert told == {"parent", "third-0"} | {f"pool-{number}" for number in range(8)}
    assert settled(url) == told


def _with_spawn(url: str, ear: Any) -> None:
    with tb.Ledger(url) as ledger:
        charge(ledger, "parent", ear)
        for context in (
            multiprocessing.get_context("spawn"),
            multiprocessing.get_context("forkserver"),
        ):
            child: Any = context.Process(
                target=_third, args=(url, (context.get_start_method(),), ear)
            )
            child.start()
            child.join()


@pytest.mark.slow
def test_other_ways_to_start_a_process_keep_their_charges(sqlite: str) -> None:
    assert set(heard(*born(_with_spawn, sqlite))) == {"parent", "spawn", "forkserver"}
    assert settled(sqlite) == {"parent", "spawn", "forkserver"}


@pytest.mark.slow
def test_interpreters_that_end_in_order_keep_charges(sqlite: str) -> None:
    """Nobody closes anything: the parent ends first, then another looks, then the child goes on."""
    script = """
        import os, sys, tightbudget as tb
        ledger = tb.Ledger(sys.argv[1])
        ledger.budget("data").left
        goes_on, go_on = os.pipe()
        if os.fork():
            sys.exit()
        os.close(go_on)
        sys.stdin.read()  # the parent has gone, and somebody has looked
        hold = ledger.reserve("child", tb.OutputDP.from_dp(0.01), ["data"])
        hold.start()
        print(hold.settle("ran").epsilon, flush=True)
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), sqlite]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.wait(60) == 0
        assert others(sqlite, "third") == {"third"}
        assert parent.communicate("go on", timeout=60)[0] == "0.01\n"
    assert settled(sqlite) == {"child", "third"}


# --------------------------------------------------------------------- forks within an act


@contextlib.contextmanager
def in_the_middle_of(ledger: tb.Ledger, write: bool = True) -> Iterator[None]:
    """Another thread is in the middle of an act, and of nothing else, meanwhile."""
    begun, end = threading.Event(), threading.Event()

    def act(connection: Any) -> None:
        connection.exec_driver_sql("SELECT count(*) FROM events").all()
        begun.set()
        end.wait(60)

    def read() -> None:
        with ledger._store.reading() as connection:
            act(connection)

    thread = threading.Thread(target=(lambda: ledger._store.write(act)) if write else read)
    thread.start()
    begun.wait(60)
    try:
        yield
    finally:
        end.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("write", [True, False])
def test_a_child_refuses_a_file_that_was_in_use_at_the_fork(
    sqlite: str, tmp_path: Path, write: bool
) -> None:
    """Inherited or new, and its own children, too. Another file it may use; the parent goes on."""

    def refuses(ledger: Callable[[], tb.Ledger]) -> None:
        with pytest.raises(
            tb.LedgerError, match=r"forked while .* in use.* 'spawn' or 'fork"
        ) as no:
            ledger().statements()
        assert not no.value.unknown

    def child() -> None:
        refuses(lambda: ledger)
        refuses(lambda: tb.Ledger(sqlite))
        assert is_well(forked(lambda: refuses(lambda: tb.Ledger(sqlite))))
        charge(tb.Ledger(opened(f"sqlite:///{tmp_path}/other.db")), "elsewhere")

    with tb.Ledger(sqlite) as ledger:
        with in_the_middle_of(ledger, write):
            number = forked(child)
            assert is_well(number)
        charge(ledger, "parent")
        # between two acts there is nothing in use any more
        assert is_well(forked(lambda: charge(ledger, "child")))
    assert settled(sqlite) == {"parent", "child"}


def test_an_act_that_forks_is_its_parents(url: str) -> None:
    """A signal handler may do that. The child neither commits nor rolls back, nor frees a lock."""
    opened(url)

    def act(connection: Any) -> int:
        connection.exec_driver_sql("UPDATE budgets SET saved_epsilon = saved_epsilon")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return os.fork()

    with tb.Ledger(url) as ledger:
        charge(ledger, "before")
        try:
            child = ledger._store.write(act)
        except BaseException as error:
            os._exit("its parent's" not in str(error))
        assert is_well(child)
        charge(ledger, "after")
    assert settled(url) == {"before", "after"}


def test_a_read_that_forks_goes_on_in_both(sqlite: str) -> None:
    with tb.Ledger(sqlite) as ledger, ledger._store.reading() as connection:
        assert is_well(forked(lambda: None))
        connection.exec_driver_sql("SELECT count(*) FROM events").all()
    assert settled(sqlite) == set()


def test_a_fork_that_python_was_not_told_of_inherits_open_connections(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that fork in C do that; the child sees that it is another process, and refuses."""
    monkeypatch.setattr(ProcessState, "close_idle", lambda _: None)

    def child() -> None:
        with pytest.raises(tb.LedgerError, match="forked while"):
            ledger.statements()

    with tb.Ledger(sqlite) as ledger:
        charge(ledger, "before")
        assert is_well(forked(child))
        charge(ledger, "after")
    assert settled(sqlite) == {"before", "after"}


def test_children_do_not_hold_what_their_parent_gives_back(sqlite: str, file: Path) -> None:
    """Neither those that fork, nor those that start another program."""
    ledger = tb.Ledger(sqlite)
    charge(ledger, "before")
    child = forked(lambda: time.sleep(60))
    program = subprocess.Popen(["sleep", "60"])
    spawned = os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
    ledger.close()
    there = [name for end in ENDS if (name := f"{file}{end}") and os.path.exists(name)]
    for number in (child, program.pid, spawned):
        os.kill(number, signal.SIGKILL)
    program.wait()
    for number in (child, spawned):
        os.waitpid(number, 0)
    assert there == [str(file)]
    assert settled(sqlite) == {"before"}


# ---------------------------------------------------------------------------- open and close


def opened_and_closed(*files: str) -> None:
    for one in files:
        open(one, "rb").close()


def copied(file: Path) -> None:
    shutil.copytree(file.parent, file.parent.with_name("copy"), dirs_exist_ok=True)


DROPS: dict[str, Callable[[Path], None]] = {
    "database": lambda file: opened_and_closed(str(file)),
    "wal": lambda file: opened_and_closed(f"{file}-wal"),
    "shm": lambda file: opened_and_closed(f"{file}-shm"),
    "all": lambda file: opened_and_closed(*(f"{file}{end}" for end in ENDS)),
    "copytree": copied,
}


def _careless(url: str, name: str, what: str, point: int | None, ear: Any) -> None:
    ledger = tb.Ledger(url)
    charge(ledger, "before", ear)
    DROPS[what](Path(name))
    ear.recv()
    with dying_at(point):
        for number in range(3):
            charge(ledger, f"after-{number}", ear)
            DROPS[what](Path(name))
    ear.recv()
    charge(ledger, "last", ear)
    ledger.close()


@pytest.mark.slow  # each waits ten seconds for processes
@pytest.mark.parametrize("point", AT)
@pytest.mark.parametrize("what", DROPS)
def test_who_opens_and_closes_a_file_loses_no_charge(
    sqlite: str, file: Path, what: str, point: int | None
) -> None:
    """A hash, a backup, another library: all POSIX locks of the process are gone."""
    process, ear = born(_careless, sqlite, str(file), what, point)
    told = {ear.recv()} | others(sqlite, "third-0")
    ear.send("others have charged")
    if point is None:
        told |= {ear.recv() for _ in range(3)} | others(sqlite, "third-1")
        ear.send("others have charged")
    told |= set(heard(process, ear)) | others(sqlite, "third-2")
    assert told >= {"before", "third-0", "third-2"}
    if point is None:
        assert told >= {"after-0", "after-1", "after-2", "third-1", "last"}
    assert 0 <= len(settled(sqlite) - told) <= (point is not None)
    assert told <= settled(sqlite)
    assert not Path(f"{file}-wal").exists()  # the last one has tidied up


def nobody_writes_in_the_middle_of_an_act(url: str, file: Path) -> bool:
    """SQLite's locks are dropped in the middle of an act, and another process wants to write."""
    with tb.Ledger(url) as ledger:
        charge(ledger, "before")

        def act(connection: Any) -> list[str]:
            connection.exec_driver_sql("UPDATE budgets SET saved_epsilon = saved_epsilon")
            DROPS["all"](file)
            return heard(*born(_hasty, url))

        answer = ledger._store.write(act)
        others(url, "third")
        return len(answer) == 1 and "another process is in the middle of an act" in answer[0]


def _hasty(url: str, ear: Any) -> None:
    store._PATIENCE = 0.05
    with tb.Ledger(url) as ledger:
        try:
            charge(ledger, "in the middle", ear)
        except tb.LedgerError as error:
            ear.send(str(error))


@pytest.mark.slow
def test_nobody_writes_in_the_middle_of_an_act(sqlite: str, file: Path) -> None:
    assert nobody_writes_in_the_middle_of_an_act(sqlite, file)
    assert settled(sqlite) == {"before", "third"}


# ------------------------------------------------------------------------ files that change


@pytest.mark.one_in(3)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("gone", [True, False], ids=["gone", "another"])
def test_a_file_that_changes_in_an_act_leaves_its_end_unknown(
    sqlite: str, file: Path, end: str, gone: bool
) -> None:
    """Whoever does that: the answer is never that it was done. From then on nothing is asked."""
    name = Path(f"{file}{end}")
    ledger = tb.Ledger(sqlite)
    charge(ledger, "before")
    hold = ledger.reserve("now", tb.OutputDP.from_dp(PRICE), ["data"])

    def pass_by(point: str) -> None:
        if point == "before commit":
            name.rename(f"{name}.old")
            if not gone:
                shutil.copy(f"{name}.old", name)

    with watched(pass_by), pytest.raises(tb.LedgerError, match="not the file that was") as caught:
        hold.start()
    assert caught.value.unknown
    assert name.name in str(caught.value)
    assert "ask again" in str(caught.value)
    for ask in (hold.start, ledger.head):
        with pytest.raises(tb.LedgerError, match="not the file that was opened") as refused:
            ask()
        assert not refused.value.unknown
    ledger.close()


@pytest.mark.parametrize("which", [min, max], ids=["database", "shm"])
def test_descriptors_that_somebody_closed_are_noticed(
    sqlite: str, which: Callable[[Iterable[int]], int]
) -> None:
    """Daemons close all that they have inherited from themselves."""
    with tb.Ledger(sqlite) as ledger:
        charge(ledger, "before")
        files = ledger._store._here().files
        assert files is not None
        ours = files.descriptors()
        assert len(ours) == 2
        os.close(which(ours))
        with pytest.raises(tb.LedgerError, match=r"descriptors of .* were closed"):
            ledger.head()
        with pytest.raises(tb.LedgerError, match=r"descriptors of .* were closed|Bad file") as no:
            charge(ledger, "after")
        assert not no.value.unknown
    assert settled(sqlite) == {"before"}


def test_a_file_that_is_exchanged_while_it_is_opened_is_refused(sqlite: str, file: Path) -> None:
    with pytest.raises(tb.LedgerError, match="exchanged while it was opened: open it again"):
        Files(str(file), (0, 0)).lock(1)


@pytest.fixture(params=["no command", "unknown to the kernel"])
def without_ofd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that has no locks of open file descriptions."""
    monkeypatch.setattr(ofd_locks, "SET", None if request.param == "no command" else 12345)


@pytest.mark.slow
def test_without_locks_of_our_own_a_loss_is_found_out(
    sqlite: str, file: Path, without_ofd: None
) -> None:
    """Comparing the files remains: the charge is refused or unknown, and never told.

    Newer versions of SQLite have a defence of their own, and lose nothing.
    """
    kept = sqlite3.sqlite_version_info >= (3, 51)
    lost = pytest.raises(tb.LedgerError, match=r"budget.db-wal.* is not the file")
    with tb.Ledger(sqlite) as ledger:
        charge(ledger, "before")
        DROPS["database"](file)
        others(sqlite, "third")
        with contextlib.nullcontext() if kept else lost:
            charge(ledger, "after")
    with tb.Ledger(sqlite) as ledger:
        charge(ledger, "again")
    assert settled(sqlite) == {"before", "third", "again"} | ({"after"} if kept else set())


@pytest.mark.slow
def test_without_locks_of_our_own_a_wal_that_nobody_has_open_may_go(
    sqlite: str, without_ofd: None
) -> None:
    with tb.Ledger(sqlite) as ledger:
        for key in ("a", "b"):
            charge(ledger, key)
            assert is_well(forked(lambda: None))  # closes all connections: the last ones
        assert others(sqlite, "third") == {"third"}
        charge(ledger, "c")
    assert settled(sqlite) == {"a", "b", "c", "third"}


# --------------------------------------------------------------------------------- places


def test_a_file_of_two_names_is_refused(sqlite: str, file: Path) -> None:
    """Each name has a -wal of its own, and neither sees what the other has charged."""
    os.link(file, file.with_name("other.db"))
    for name in ("budget.db", "other.db"):
        with pytest.raises(tb.LedgerError, match=r"has 2 names \(hard links\).* remove the others"):
            tb.Ledger(f"sqlite:///{file.with_name(name)}")
    file.with_name("other.db").unlink()
    assert settled(sqlite) == set()


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "smb3", "9p", "fuse.sshfs"])
@pytest.mark.parametrize("there", [True, False], ids=["old", "new"])
def test_a_network_file_system_is_refused(
    file: Path, kind: str, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.parent.mkdir()
    url = f"sqlite:///{file}"
    if there:
        opened(url)
    device = os.stat(file.parent).st_dev
    mount = f"{os.major(device)}:{os.minor(device)}", "/somewhere", kind
    monkeypatch.setattr(file_systems, "mounts", lambda: iter([("0:0", "/", "ext4"), mount]))
    with pytest.raises(tb.LedgerError, match=rf"network file system \({kind}\).*PostgreSQL"):
        tb.Ledger(url)
    assert file.exists() == there


def test_a_file_that_is_mounted_alone_is_refused(
    sqlite: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container its -wal would lie in another folder than that of the others."""
    monkeypatch.setattr(file_systems, "mounts", lambda: iter([("0:0", str(file), "ext4")]))
    with pytest.raises(tb.LedgerError, match=r"mounted alone.* mount its folder"):
        tb.Ledger(sqlite)


def test_mounts_are_read_as_linux_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "36 35 98:0 /mnt1 /mnt\\040two\\134 rw,noatime master:1 - ext3 /dev/root rw\n"
        "37 35 0:45 / /home rw shared:1 - nfs4 server:/home rw,vers=4.2\n"
    )
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: lines)
    assert list(file_systems.mounts()) == [
        ("98:0", "/mnt two\\", "ext3"),
        ("0:45", "/home", "nfs4"),
    ]


def test_a_system_that_names_no_mounts_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert list(file_systems.mounts()) == []


def test_a_database_that_cannot_have_a_wal_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.parent.mkdir()

    class Stubborn(sqlite_files.GuardedConnection):
        def execute(self, *_: Any) -> Any:
            return super().execute("SELECT 'delete'")

    monkeypatch.setattr(sqlite_files, "GuardedConnection", Stubborn)
    with pytest.raises(tb.LedgerError, match=r"must be in SQLite's WAL mode.* in mode delete"):
        tb.Ledger(f"sqlite:///{file}")


# ---------------------------------------------------------------------------- open and over


def test_a_ledger_that_was_closed_opens_again(sqlite: str, file: Path) -> None:
    ledger = tb.Ledger(sqlite)
    charge(ledger, "before")
    ledger.close()
    ledger.close()
    assert not Path(f"{file}-wal").exists()
    charge(ledger, "after")
    ledger.close()
    assert settled(sqlite) == {"before", "after"}


@pytest.mark.slow
def test_a_ledger_that_is_forgotten_is_closed(sqlite: str, file: Path) -> None:
    charge(tb.Ledger(sqlite), "before")
    gc.collect()
    assert not Path(f"{file}-wal").exists()
    assert settled(sqlite) == {"before"}


def test_a_ledger_that_is_closed_in_the_middle_of_opening_another_is_closed_then(
    sqlite: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler may close it, and so may the garbage collector."""
    ledger = tb.Ledger(sqlite)
    charge(ledger, "before")
    monkeypatch.setattr(file_systems, "check_place", lambda _: ledger.close())
    tb.Ledger(f"sqlite:///{tmp_path}/other.db").close()
    assert not Path(f"{file}-wal").exists()


@pytest.mark.slow
def test_two_ledgers_of_a_file_share_its_guard(sqlite: str, file: Path) -> None:
    one, other = tb.Ledger(sqlite), tb.Ledger(sqlite)
    assert one._store._here().files is other._store._here().files
    charge(one, "one")
    one.close()
    others(sqlite, "third")
    assert Path(f"{file}-wal").exists()
    charge(other, "other")
    other.close()
    assert settled(sqlite) == {"one", "other", "third"}


def locks_of(process: int, name: str) -> list[str]:
    """The POSIX locks that Linux shows for a process and a file."""
    number = str(os.stat(name).st_ino)
    lines = Path("/proc/locks").read_text().splitlines()
    return [
        line.partition(":")[2]
        for line in lines
        if " POSIX " in line and f" {process} " in line and f":{number} " in line
    ]


def test_to_close_a_ledger_takes_no_locks_from_other_connections(sqlite: str, file: Path) -> None:
    """Somebody reads the same file in this process, in a way of his own."""
    with contextlib.closing(sqlite3.connect(file)) as reader:
        ledger = tb.Ledger(sqlite)
        cursor = reader.execute("SELECT * FROM events")
        cursor.fetchone()
        held = locks_of(os.getpid(), str(file))
        ledger.close()
        assert held
        assert locks_of(os.getpid(), str(file)) == held
    tb.Ledger(sqlite).close()
    unclosed = sqlite_files.this_process()._unclosed
    assert os.stat(file).st_ino not in [os.fstat(fd).st_ino for fd in unclosed]


# ------------------------------------------------------------------------------ all at once


def _live(
    url: str, file: Path, choice: random.Random, ear: int, ledgers: list[tb.Ledger], children: int
) -> None:
    """Opens, charges, forks, copies, closes, forgets and dies as chance has it."""
    threads: list[threading.Thread] = []

    def pay(ledger: tb.Ledger, key: str) -> None:
        with contextlib.suppress(tb.LedgerError):  # the child of a fork in the middle of an act
            charge(ledger, key)
            os.write(ear, f"{key}\n".encode())

    def go_on_in_child() -> None:
        _live(url, file, choice, ear, list(ledgers), children // 2)

    for step in range(choice.randrange(5, 25)):
        key = f"{os.getpid()}-{step}"
        do = choice.choice("oppppddcftfnxk" if ledgers else "o")
        if do == "o":
            with contextlib.suppress(tb.LedgerError):
                ledgers.append(tb.Ledger(url))
        elif do == "p":
            pay(choice.choice(ledgers), key)
        elif do == "t":
            threads.append(threading.Thread(target=pay, args=(choice.choice(ledgers), key)))
            threads[-1].start()
        elif do == "d":
            with contextlib.suppress(FileNotFoundError):
                opened_and_closed(*(f"{file}{end}" for end in ENDS if choice.random() < 0.6))
        elif do == "c":
            with contextlib.suppress(shutil.Error):  # a -wal that has been removed meanwhile
                shutil.copytree(file.parent, file.parent.with_name(f"copy-{key}"))
        elif do == "f":
            if children:
                children -= 1
                child = forked(go_on_in_child)
                if choice.random() < 0.5:
                    os.waitpid(child, 0)
        elif do in "nx":
            ledger = ledgers.pop(choice.randrange(len(ledgers)))
            if do == "x":
                ledger.close()
        elif choice.random() < 0.3:
            os.kill(os.getpid(), signal.SIGKILL)
    for thread in threads:
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_lives_of_any_kind_lose_no_charge(sqlite: str, file: Path, seed: int) -> None:
    """Three families of processes at the same time; all that one of them was told is there."""
    said, says = os.pipe()
    families = [
        forked(functools.partial(_live, sqlite, file, random.Random(f"{seed}-{i}"), says, [], 4))
        for i in range(3)
    ]
    os.close(says)
    with os.fdopen(said) as lines:
        told = {line.strip() for line in lines}  # until the last of the family has gone
    for family in families:
        os.waitpid(family, 0)
    assert told <= settled(sqlite)
    assert told


# --------------------------------------------------------------------- each guard taken away


def told_after_a_drop(url: str, file: Path) -> bool:
    """A charge that comes after the process has lost SQLite's locks is told, and is there."""
    with tb.Ledger(url) as ledger:
        charge(ledger, "before")
        DROPS["all"](file)
        others(url, "third")
        with contextlib.suppress(tb.LedgerError):
            charge(ledger, "after")
            return settled(url) == {"before", "third", "after"}
    return False


def the_index_is_not_emptied(url: str, file: Path) -> bool:
    """Who opens the ledger joins the index in -shm, and does not make it anew."""

    def changes() -> int:
        (number,) = struct.unpack_from("I", Path(f"{file}-shm").read_bytes(), 8)
        return int(number)  # how often it was written; who makes it anew begins with 0

    with tb.Ledger(url) as ledger:
        charge(ledger, "before")
        before = changes()
        others(url)
        return before == changes() > 0


def told_by_a_child(url: str, _: Path) -> bool:
    """A child that was forked between two acts charges after its parent has gone."""
    ledger = tb.Ledger(url)
    charge(ledger, "before")
    go, gone = os.pipe()

    def child() -> None:
        os.read(go, 1)
        charge(ledger, "child")

    number = forked(child)
    ledger.close()
    others(url, "third")
    os.write(gone, b"!")
    answer = is_well(number) and settled(url) == {"before", "child", "third"}
    os.close(go)
    os.close(gone)
    return answer


def in_use_at_the_fork_is_refused(url: str, _: Path) -> bool:
    def child() -> None:
        with pytest.raises(tb.LedgerError, match="forked while"):
            tb.Ledger(url).statements()

    with tb.Ledger(url) as ledger, in_the_middle_of(ledger, write=False):
        return is_well(forked(child))


def an_idle_child_holds_nothing(url: str, file: Path) -> bool:
    """It lives on when its parent is killed, and others tidy up behind them."""
    said, says = os.pipe()

    def idle() -> None:
        os.write(says, b"born")
        time.sleep(60)

    def parent() -> None:
        ledger = tb.Ledger(url)
        charge(ledger, "before")
        os.write(says, struct.pack("i", forked(idle)))
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(forked(parent), 0)
    heard_of = b""
    while len(heard_of) < 8:
        heard_of += os.read(said, 8)
    others(url, "third")
    answer = not Path(f"{file}-wal").exists()
    (child,) = struct.unpack("i", heard_of.replace(b"born", b""))
    os.kill(child, signal.SIGKILL)
    os.close(said)
    os.close(says)
    return answer


def changed_before(url: str, file: Path) -> bool:
    """What is not there any more is not written to."""
    with tb.Ledger(url) as ledger:
        charge(ledger, "before")
        Path(f"{file}-wal").rename(f"{file}-old")
        try:
            charge(ledger, "after")
        except tb.LedgerError as error:
            return not error.unknown
    return False


def changed_in_between(url: str, file: Path) -> bool:
    """What was written to a file that is not there any more was not done, as far as one knows."""
    with tb.Ledger(url) as ledger:
        charge(ledger, "before")
        try:
            ledger._store.write(lambda _: Path(f"{file}-wal").rename(f"{file}-old"))
        except tb.LedgerError as error:
            return error.unknown
    return False


GUARDS: list[tuple[Without, Callable[[str, Path], bool]]] = [
    (
        Without("nobody is the last", {"shared-lock-held": "self.is_locked = False"}, bool),
        told_after_a_drop,
    ),
    (Without("nobody empties the index", {"index-in-use": "pass"}, bool), the_index_is_not_emptied),
    (
        Without("one process writes", {"one-process-writes": "pass"}, bool),
        nobody_writes_in_the_middle_of_an_act,
    ),
    (Without("files before", {"files-checked-before": "if False:"}, bool), changed_before),
    (Without("files afterwards", {"files-checked-afterwards": "pass"}, bool), changed_in_between),
    (
        Without("nothing idle is inherited", {"nothing-idle-inherited": "pass"}, bool),
        told_by_a_child,
    ),
    (
        Without("in use is refused", {"in-use-refused": "if False:"}, bool),
        in_use_at_the_fork_is_refused,
    ),
    (
        Without("locks of a parent are its own", {"parent-keeps-its-locks": "pass"}, bool),
        an_idle_child_holds_nothing,
    ),
]


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("mutation", "true"), GUARDS, ids=[mutation.name.replace(" ", "-") for mutation, _ in GUARDS]
)
def test_without_the_guard_a_truth_is_lost(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mutation: Without,
    true: Callable[[str, Path], bool],
) -> None:
    def holds(name: str) -> bool:
        file = tmp_path / name / "budget.db"
        file.parent.mkdir()
        return true(opened(f"sqlite:///{file}"), file)

    assert holds("with"), "it does not even hold with the guard"
    mutate(monkeypatch, mutation)
    assert not holds("without"), "nothing noticed that the guard is gone"
