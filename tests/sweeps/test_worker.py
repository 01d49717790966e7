"""Workers answer calls, say how they were lost, and never outlive the process that started them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tightbudget.worker import Lost, Worker

ROOT = Path(__file__).resolve().parents[2]
MARK = "TIGHTBUDGET_TEST_FAMILY"  # an environment variable that a process's children inherit
SLACK = 60.0  # seconds that a busy machine may take; a process that is left stays for minutes


def left(mark: str) -> list[int]:
    """The processes that live and have the mark in their environment."""
    marked, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").iterdir():
        # one that has ended meanwhile, or that is another user's, is not ours
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and marked in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


# Each script starts workers, and each worker writes its id before a call into C that holds the
# interpreter for minutes. {end} is how the parent ends.
HOLDING = """
import os, sys
from pathlib import Path

def holding(*_):
    Path(sys.argv[1], str(os.getpid())).touch()
    pow(3, 3 * 10**8)
"""
SWEEP = (
    HOLDING
    + """
import threading, time
import tightbudget as tb
from tightbudget import worker
from tightbudget.sweeps import pool

{patch}

def end():
    while len(os.listdir(sys.argv[1])) < 2:
        time.sleep(0.05)
    {end}

if __name__ == "__main__":
    pool.answers = holding
    threading.Thread(target=end, daemon=True).start()
    tb.sweep([tb.sweeps.Question.of(tb.Gaussian(s), delta=1e-5) for s in (1.0, 2.0, 3.0)], 2)
"""
)
SERVER = (
    HOLDING
    + """
import asyncio
from tightbudget.explorer.workers import Workers

async def main():
    workers = Workers(processes=2, seconds=600.0)
    asked = [workers.answer(holding, None, asyncio.Event().wait) for _ in range(2)]
    await asyncio.gather(*asked)

if __name__ == "__main__":
    asyncio.run(main())
"""
)
ENDS = {
    "SIGKILL": f"os.kill(os.getpid(), {int(signal.SIGKILL)})",
    "SIGTERM": f"os.kill(os.getpid(), {int(signal.SIGTERM)})",
    "SIGHUP": f"os.kill(os.getpid(), {int(signal.SIGHUP)})",
    "SIGINT": f"os.kill(os.getpid(), {int(signal.SIGINT)})",
    "os._exit": "os._exit(0)",
}


@pytest.fixture
def family(tmp_path: Path) -> Iterator[str]:
    """A mark for the processes of a test; none of them is left after it."""
    mark = f"{os.getpid()}-{tmp_path.name}"
    yield mark
    for pid in left(mark):
        os.kill(pid, signal.SIGKILL)


def started(source: str, mark: str, tmp_path: Path) -> subprocess.Popen[bytes]:
    """Starts a script in a session of its own, with a folder in which its workers say who works."""
    (tmp_path / "working").mkdir()
    script = tmp_path / "script.py"
    script.write_text(source)
    return subprocess.Popen(
        [sys.executable, script, tmp_path / "working"],
        cwd=tmp_path,
        env={**os.environ, MARK: mark},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )


def soon(met: object) -> bool:
    """Whether ``met()`` becomes true."""
    until = time.monotonic() + SLACK
    while not met():  # type: ignore[operator]
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_no_worker_of_a_sweep_outlives_its_parent(end, family, tmp_path) -> None:
    with started(SWEEP.format(end=end, patch=""), family, tmp_path) as parent:
        assert soon(lambda: parent.poll() is not None)
    assert len(list((tmp_path / "working").iterdir())) == 2
    assert soon(lambda: not left(family)), left(family)


@pytest.mark.slow
@pytest.mark.parametrize("guard", ["_end_with_parent", "_killed_when_closed"])
def test_without_its_guard_a_worker_is_left_in_its_call(guard, family, tmp_path) -> None:
    """A thread alone does not end a process whose interpreter is held."""
    without = SWEEP.format(end=ENDS["SIGKILL"], patch=f"worker.{guard} = lambda *_: None")
    with started(without, family, tmp_path) as parent:
        assert soon(lambda: parent.poll() is not None)
    time.sleep(2.0)
    assert len({*map(str, left(family))} & {*os.listdir(tmp_path / "working")}) == 2


FORKED = """
import os, sys, time
from multiprocessing import get_context
from pathlib import Path
from tightbudget import worker

{patch}

if __name__ == "__main__":
    found = worker.Worker.start(get_context("spawn"))
    found.receive()
    if os.fork() == 0:  # it keeps a copy of everything that is open here
        Path(sys.argv[1], str(os.getpid())).touch()
        time.sleep(600)
        os._exit(0)
    found.send(time.sleep, 600)
    while not os.listdir(sys.argv[1]):
        time.sleep(0.05)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("without", [False, True], ids=["guarded", "without its guard"])
def test_a_forked_child_keeps_no_worker_alive(without, family, tmp_path) -> None:
    patch = "worker.os.pidfd_open = lambda *_: worker.os.pipe()[0]" if without else ""
    with started(FORKED.format(patch=patch), family, tmp_path) as parent:
        assert soon(lambda: parent.poll() is not None)
    (child,) = map(int, os.listdir(tmp_path / "working"))
    if without:
        time.sleep(2.0)
        assert set(left(family)) > {child}
        return
    # the tracker of multiprocessing has a copy of its own pipe in the child: it computes nothing
    assert soon(lambda: not any(computes(pid) for pid in {*left(family)} - {child}))


def computes(pid: int) -> bool:
    """Whether a process is a worker, and not the resource tracker of multiprocessing."""
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.slow
def test_no_worker_of_a_server_outlives_it(family, tmp_path) -> None:
    with started(SERVER, family, tmp_path) as parent:
        assert soon(lambda: len(list((tmp_path / "working").iterdir())) == 2)
        parent.kill()
    assert soon(lambda: not left(family)), left(family)


GRID = """
find = "sigma"
epsilon = "$epsilon"
delta = 1e-6
[over]
epsilon = { first = 0.1, last = 8.0, points = 5_000 }
[[steps]]
mechanism = "gaussian"
sigma = "$sigma"
rate = 0.01
times = 3000
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_of_the_command_outlives_it(number, family, tmp_path) -> None:
    (tmp_path / "sweep.toml").write_text(GRID)
    command = [sys.executable, "-m", "tightbudget", "sweep", "sweep.toml", "--workers", "2"]
    with subprocess.Popen(
        [*command, "--out", "table.csv"],
        cwd=tmp_path,
        env={**os.environ, MARK: family},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    ) as parent:
        journal = tmp_path / "table.csv.journal"
        try:  # the grid takes an hour, for which the end of Popen would wait
            assert soon(lambda: journal.exists() and journal.read_bytes().count(b"\n") > 3)
            assert soon(lambda: sum(map(computes, left(family))) == 2)
            parent.send_signal(number)
            assert soon(lambda: parent.poll() is not None)
        finally:
            parent.kill()
    assert soon(lambda: not left(family)), left(family)


# ------------------------------------------------------------------ calls and their losses


def dying(code: int) -> None:
    os._exit(code)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def refusing() -> None:
    raise KeyError("bug")


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    found = Worker.start(multiprocessing.get_context("spawn"))
    assert found.receive() == "ready"
    yield found
    found.end()


@pytest.mark.slow
def test_a_worker_answers_call_after_call_also_after_an_error(worker: Worker) -> None:
    for k in range(3):
        worker.send(divmod, 7 + k, 2)
        assert worker.receive() == divmod(7 + k, 2)
        worker.send(refusing)
        with pytest.raises(KeyError, match="bug"):
            worker.receive()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "arguments", "how"),
    [(dying, (3,), "exit code 3"), (dying, (0,), "exit code 0"), (killed, (), "signal 15")],
)
def test_a_worker_that_is_lost_says_how(function, arguments, how) -> None:
    worker = Worker.start(multiprocessing.get_context("spawn"))
    worker.receive()
    worker.send(function, *arguments)
    with pytest.raises(Lost, match=f"^{how}$") as lost:
        worker.receive()
    assert lost.value.killed is how.startswith("signal")
    with pytest.raises(Lost, match=f"^{how}$"):
        worker.send(divmod, 1, 2)
    worker.end()


@pytest.mark.slow
def test_a_worker_that_is_ended_leaves_nothing() -> None:
    worker = Worker.start(multiprocessing.get_context("spawn"))
    worker.end()
    assert not worker.process.is_alive()
    assert worker.process not in multiprocessing.active_children()
