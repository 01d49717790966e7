"""The same numbers wherever they are computed, and whatever dies while they are."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

import pytest
from tests.sweeps import victims
from tests.sweeps.small import PLAN, QUESTIONS, whole

import tightbudget as tb
from tightbudget.sweeps import pool

JOBS = len(pool._jobs(QUESTIONS))
FATAL = tb.sweeps.questions(PLAN, {"sigma": [0.666], "runs": [300], "d": [1e-5, 1e-6]}, delta="$d")
MIXED = [*QUESTIONS[:6], *FATAL, *QUESTIONS[6:]]
LOST = "BrokenProcessPool: the process that answered it was lost, 3 times (signal 9)"


@pytest.fixture(scope="module", autouse=True)
def _before_anything_is_changed() -> None:
    whole()


class Backwards(Executor):
    """Does everything in the end, last things first."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def submit(self, function, /, *args, **kwargs):
        future: Future[Any] = Future()
        self.waiting.append((future, function, args, kwargs))
        if len(self.waiting) == JOBS:
            for later, work, given, named in reversed(self.waiting):
                later.set_result(work(*given, **named))
        return future


def same_bits(a: tb.sweeps.Sweep, b: tb.sweeps.Sweep) -> bool:
    def bits(answer: tb.sweeps.Answer) -> list[object]:
        value = None if answer.value is None else float(answer.value).hex()
        return [answer.lower.hex(), answer.upper.hex(), value, answer.refusal]

    return list(map(bits, a)) == list(map(bits, b)) and a.questions == b.questions


@pytest.mark.slow
def test_threads_answer_the_same() -> None:
    with ThreadPoolExecutor(3) as executor:
        assert same_bits(tb.sweep(QUESTIONS, executor), whole())


@pytest.mark.slow
def test_an_executor_of_processes_answers_the_same() -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as executor:
        assert same_bits(tb.sweep(QUESTIONS, executor), whole())


@pytest.mark.slow
def test_rows_are_in_order_whatever_comes_first() -> None:
    assert same_bits(tb.sweep(QUESTIONS, Backwards()), whole())


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_processes_of_our_own_answer_the_same(workers, tmp_path) -> None:
    path = tmp_path / "sweep.journal"
    assert same_bits(tb.sweep(QUESTIONS, workers, journal=path), whole())
    assert same_bits(tb.sweep(QUESTIONS, journal=path), whole())


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_nothing(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(pool, "answers", victims.dies_once)
    monkeypatch.setenv(victims.FLAG, str(tmp_path / "died"))
    found = tb.sweep(MIXED, 2)
    assert (tmp_path / "died").exists()
    monkeypatch.undo()
    assert same_bits(found, tb.sweep(MIXED))
    assert found.refused == tuple(range(len(MIXED) - 5, len(MIXED)))  # the bad ones


@pytest.mark.slow
def test_a_question_that_kills_every_worker_is_refused_and_the_others_go_on(
    monkeypatch, tmp_path
) -> None:
    path = tmp_path / "sweep.journal"
    with monkeypatch.context() as patched:
        patched.setattr(pool, "answers", victims.dies_always)
        found = tb.sweep(MIXED, 2, journal=path)
    assert [found[i].refusal for i in (6, 7)] == [LOST] * 2
    assert [*found][:6] + [*found][8:] == [*whole()]
    # a process may live longer next time: that it died is not kept
    assert same_bits(tb.sweep(MIXED, journal=path), tb.sweep(MIXED))


def test_only_the_question_that_kills_is_refused_not_its_plan() -> None:
    """A killer is known by its arguments too: the same plan with another target goes on."""
    apart = pool._Job(tuple(FATAL)).again()
    assert [job.questions for job in apart] == [(FATAL[0],), (FATAL[1],)]
    assert all(job.alone for job in apart)


def test_a_question_is_refused_for_losses_alone_and_for_no_others() -> None:
    """A worker that is lost while others work may have been lost for their memory."""
    tries = [pool._Job((FATAL[0],))]
    while again := tries[-1].again():
        tries.extend(again)
    assert [(job.alone, job.lost) for job in tries] == [
        (False, 0), (True, 0), (True, 1), (True, 2),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_question_is_not_blamed_for_another_of_its_plan(monkeypatch) -> None:
    """Questions of one plan are one job: the one that kills is refused, the others are answered."""
    together = tb.sweeps.questions(
        PLAN, {"sigma": [0.9], "runs": [300], "d": victims.DELTAS}, delta="$d"
    )
    assert len(pool._jobs(together)) == 1
    monkeypatch.setattr(pool, "answers", victims.dies_of_a_target)
    found = tb.sweep(together, 2)
    monkeypatch.undo()
    assert [answer.refusal for answer in found if answer.refusal] == [LOST]
    assert found[1].refusal == LOST
    assert [*found][2:] == [*tb.sweep(together)][2:]
    assert found[0] == tb.sweep(together)[0]


@pytest.mark.slow
def test_an_exception_in_the_callers_code_ends_workers_in_the_middle_of_a_call(monkeypatch) -> None:
    def interrupted(left):
        yield 0
        raise KeyboardInterrupt

    monkeypatch.setattr(pool, "answers", victims.holds_always)
    before = multiprocessing.active_children()
    with pytest.raises(KeyboardInterrupt):
        tb.sweep(MIXED, 2, progress=interrupted)  # and not after minutes
    assert multiprocessing.active_children() == before


@pytest.mark.slow
def test_workers_that_are_killed_before_they_begin_are_started_again(monkeypatch) -> None:
    start, left = pool.Worker.start, [3]  # type: ignore[attr-defined]

    def killed(context):
        found = start(context)
        if left[0] > 0:
            left[0] -= 1
            found.process.kill()
        return found

    monkeypatch.setattr(pool.Worker, "start", staticmethod(killed))  # type: ignore[attr-defined]
    assert same_bits(tb.sweep(QUESTIONS, 2), whole())
    left[0] = pool._STARTS
    with pytest.raises(tb.ParameterError, match="executor: 1 processes were started and"):
        tb.sweep(QUESTIONS, 1)


@pytest.mark.slow
def test_what_a_broken_executor_has_not_answered_is_refused_and_may_be_asked_again(
    monkeypatch, tmp_path
) -> None:
    path = tmp_path / "sweep.journal"
    with monkeypatch.context() as patched, ProcessPoolExecutor(1, get_context("spawn")) as executor:
        patched.setattr(pool, "answers", victims.dies_always)
        found = tb.sweep(MIXED, executor, journal=path)
    lost = {i for i in found.refused if "BrokenProcessPool" in str(found[i].refusal)}
    assert {6, 7} <= lost
    answered = set(range(len(MIXED))) - lost
    again = tb.sweep(MIXED, journal=path)
    assert all(found[i] == again[i] for i in answered)
    assert same_bits(again, tb.sweep(MIXED))


class Losing(Executor):
    """Loses every job that has a certain question."""

    def __init__(self, lost: tb.sweeps.Question) -> None:
        self.lost, self.asked = lost, 0

    def submit(self, function, /, *args, **kwargs):
        future: Future[Any] = Future()
        self.asked += 1
        if args[0] == self.lost.plan and (self.lost.find, self.lost.arguments) in args[1]:
            future.set_exception(RuntimeError("KilledWorker"))
        else:
            future.set_result(function(*args, **kwargs))
        return future


def test_an_executor_of_the_callers_blames_only_what_it_loses_alone() -> None:
    together = [tb.sweeps.Question.of(tb.Gaussian(1.0), delta=10.0**-k) for k in range(2, 12)]
    executor = Losing(together[3])
    found = tb.sweep(together, executor)
    assert executor.asked == 1 + len(together)
    assert found.refused == (3,)
    assert found[3].refusal == "RuntimeError: KilledWorker"
    assert [*found][:3] + [*found][4:] == [a for k, a in enumerate(tb.sweep(together)) if k != 3]


def test_an_executor_that_takes_no_more_refuses_the_rest() -> None:
    class Broken(Executor):
        def submit(self, function, /, *args, **kwargs):
            raise BrokenProcessPool("gone")

    found = tb.sweep(QUESTIONS, Broken())
    assert {answer.refusal for answer in found} == {"BrokenProcessPool: gone"}
    assert len(found) == len(QUESTIONS)


def test_an_interrupted_sweep_withdraws_what_it_has_submitted() -> None:
    class Patient(Executor):
        def __init__(self) -> None:
            self.futures: list[Future[Any]] = []

        def submit(self, function, /, *args, **kwargs):
            future: Future[Any] = Future()
            if not self.futures:
                future.set_result(function(*args))
            self.futures.append(future)
            return future

    executor = Patient()

    def interrupted(left):
        yield 0
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tb.sweep(QUESTIONS, executor, progress=interrupted)
    assert len(executor.futures) == JOBS
    assert all(future.cancelled() for future in executor.futures[1:])


@pytest.mark.slow
def test_processes_that_do_not_begin_are_nobodys_refusal(tmp_path) -> None:
    """A script without the usual guard starts itself again in every process."""
    script = tmp_path / "script.py"
    script.write_text(
        "import tightbudget as tb\n"
        "tb.sweep([tb.sweeps.Question.of(tb.Gaussian(2.0), delta=1e-5)], 1)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        "ParameterError: executor: 1 processes were started and ended at once; a script must "
        'start its work under if __name__ == "__main__"' in done.stderr
    )


# --------------------------------------------------------------------------------- Dask


@pytest.fixture(scope="module")
def cluster():
    """A real one: a scheduler and two worker processes, on this machine only."""
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    # a worker that is started again on a busy machine has time to connect: one that has not gives
    # up, and a cluster without workers waits for ever
    quiet = {
        "distributed.scheduler.allowed-failures": 1,
        "distributed.comm.timeouts.connect": "30s",
    }
    with dask.config.set(quiet), distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None,
        silence_logs="CRITICAL",
    ) as found:  # fmt: skip
        yield found


@pytest.fixture
def client(cluster):
    with cluster.get_client() as found:
        found.wait_for_workers(2, timeout=120)
        yield found


@pytest.mark.slow
def test_a_cluster_answers_the_same(client) -> None:
    assert len(client.scheduler_info()["workers"]) == 2
    with client.get_executor() as executor:
        assert same_bits(tb.sweep(QUESTIONS, executor), whole())


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_loses_nothing(client, monkeypatch, tmp_path) -> None:
    flag = tmp_path / "died"
    monkeypatch.setenv(victims.FLAG, str(flag))  # for workers that begin later
    client.run(victims.set_flag, str(flag))
    monkeypatch.setattr(pool, "answers", victims.dies_once)
    with client.get_executor() as executor:
        found = tb.sweep(MIXED, executor)
    assert flag.exists()
    monkeypatch.undo()
    assert same_bits(found, tb.sweep(MIXED))


@pytest.mark.slow
def test_a_question_that_kills_the_workers_of_a_cluster_is_refused(client, monkeypatch) -> None:
    monkeypatch.setattr(pool, "answers", victims.dies_always)
    with client.get_executor() as executor:
        found = tb.sweep(MIXED, executor)
    said = [found[i].refusal for i in (6, 7)]
    assert all(text is not None and text.startswith("KilledWorker: ") for text in said)
    assert [*found][:6] + [*found][8:] == [*whole()]


@pytest.mark.slow
def test_a_cluster_blames_no_question_for_another_of_its_plan(client, monkeypatch) -> None:
    together = tb.sweeps.questions(
        PLAN, {"sigma": [0.9], "runs": [300], "d": victims.DELTAS}, delta="$d"
    )
    monkeypatch.setattr(pool, "answers", victims.dies_of_a_target)
    with client.get_executor() as executor:
        found = tb.sweep(together, executor)
    monkeypatch.undo()
    assert found.refused == (1,)
    assert str(found[1].refusal).startswith("KilledWorker: ")
    assert [found[0], found[2]] == [*tb.sweep(together)][::2]
