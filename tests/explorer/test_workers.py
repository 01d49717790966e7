"""A question has its time and its memory, no more; others are answered meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.explorer.asked import big, ending, endless, process, refusing, sleeping, wanted

import tightbudget as tb
from tightbudget.explorer.workers import Workers

ROOT = Path(__file__).resolve().parents[2]
# a busy machine starts a process late, and a short question takes longer there
SECONDS, SLACK = 3.0, 20.0


def pool(*, processes: int = 2, waiting: int = 2, seconds: float = 60.0) -> Iterator[Workers]:
    """Workers whose limit of time no question meets but one without an end."""
    one = Workers(processes=processes, waiting=waiting, seconds=seconds, megabytes=256)
    one.warm()
    yield one
    one.close()


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    yield from pool()


@pytest.fixture(scope="module")
def hurried() -> Iterator[Workers]:
    yield from pool(seconds=SECONDS)


@pytest.fixture
def alone() -> Iterator[Workers]:
    """One process: two that are free at a time answer two questions in either order."""
    yield from pool(processes=1, waiting=3)


def ask(workers: Workers, *questions: tuple[Callable[[Any], Any], Any]) -> list[Any]:
    """All at a time; answers, or what was raised."""

    async def all_() -> list[Any]:
        asked = [workers.answer(answer, question, wanted) for answer, question in questions]
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(all_())


def test_another_process_answers_again_and_again(workers: Workers) -> None:
    found = ask(workers, *[(process, None)] * 3)
    assert os.getpid() not in found
    assert len(set(found + ask(workers, (process, None)))) <= 2


@pytest.mark.slow
def test_a_question_that_takes_too_long_is_ended(hurried: Workers) -> None:
    began = time.monotonic()
    (error,) = ask(hurried, (endless, None))
    assert SECONDS <= time.monotonic() - began < SECONDS + SLACK
    assert isinstance(error, tb.errors.LimitError)
    assert str(error).startswith("the question takes more time than one may take here (3 s): ")
    assert isinstance(ask(hurried, (process, None))[0], int)


@pytest.mark.slow
def test_others_are_answered_meanwhile(hurried: Workers) -> None:
    slow, *quick = ask(hurried, (endless, None), (process, None), (process, None))
    assert isinstance(slow, tb.errors.LimitError)
    assert all(isinstance(pid, int) for pid in quick)


@pytest.mark.parametrize(("answer", "question"), [(big, 1024), (ending, 1)])
def test_a_question_that_takes_too_much_memory_is_refused(
    workers: Workers, answer: Callable[[Any], Any], question: int
) -> None:
    assert ask(workers, (big, 8)) == [8 << 17]
    (error,) = ask(workers, (answer, question))
    assert isinstance(error, tb.errors.LimitError)
    assert "takes more memory than one may take here (256 MB)" in str(error)
    assert isinstance(ask(workers, (process, None))[0], int)


@pytest.mark.slow
def test_too_many_at_a_time_are_refused_at_once_and_none_later(workers: Workers) -> None:
    found = ask(workers, *[(sleeping, 0.3)] * 6)
    busy = [error for error in found if isinstance(error, tb.BusyError)]
    assert len(busy) == 2
    assert found.count(0.3) == 4
    assert str(busy[0]).startswith("too many questions are being worked on")
    assert ask(workers, *[(sleeping, 0.1)] * 4) == [0.1] * 4


@pytest.mark.slow
def test_who_asks_much_does_not_keep_another_out(alone: Workers) -> None:
    """24 questions of one fill the room; the one of another is answered, and is not the last."""
    ended: list[str] = []

    async def one(of: str) -> None:
        try:
            await alone.answer(sleeping, 1.0, wanted, of)
        except tb.BusyError:
            ended.append(f"{of} refused")
        else:
            ended.append(of)

    async def all_() -> None:
        greedy = [asyncio.create_task(one("greedy")) for _ in range(24)]
        await asyncio.sleep(0)  # each of them has asked
        await asyncio.gather(one("honest"), *greedy)

    asyncio.run(all_())
    assert ended.count("greedy refused") == 21
    answered = [of for of in ended if not of.endswith("refused")]
    assert sorted(answered) == ["greedy", "greedy", "greedy", "honest"]
    assert answered.index("honest") <= 2  # after the one at work, and at most one more


@pytest.mark.parametrize(
    "error",
    [
        tb.ParameterError("sigma must be > 0"),
        tb.PrecisionError("wide", 1.0, 2.0),
        tb.errors.BudgetError("too much", requested=0.3, left=0.1, held=0.2),
        KeyError("bug"),
    ],
)
def test_refusals_arrive_as_they_are(workers: Workers, error: Exception) -> None:
    (found,) = ask(workers, (refusing, error))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(error).items() <= vars(found).items()


def test_what_nobody_wants_any_more_is_given_up(workers: Workers) -> None:
    async def gone() -> bool:
        return True

    def given_up() -> Awaitable[Any]:
        return workers.answer(sleeping, 0.9, gone)

    async def all_() -> list[Any]:
        return await asyncio.gather(*[given_up() for _ in range(4)], return_exceptions=True)

    for error in asyncio.run(all_()):
        assert isinstance(error, tb.errors.LimitError)
        assert str(error).startswith("the question was given up")
    # and its place is free again, soon
    until = time.monotonic() + SLACK
    while any(isinstance(found, tb.BusyError) for found in ask(workers, *[(process, None)] * 4)):
        assert time.monotonic() < until


KILLED = """
import asyncio, os
from tests.explorer.asked import endless, process, wanted
from tightbudget.explorer.workers import Workers

async def main():
    workers = Workers(processes=1, seconds=1.0)
    print(await workers.answer(process, None, wanted), flush=True)
    asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), 9)
    await workers.answer(endless, None, wanted)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_server_that_is_killed_leaves_nothing_that_computes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    stat = Path(f"/proc/{int(done.stdout)}/stat")
    until = time.monotonic() + SLACK
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until
        time.sleep(0.1)
