"""Runs questions in this process, on processes of its own, or on the caller's executor."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from tightbudget.accounting.sweep.answer import Answer, answers, refusal
from tightbudget.accounting.sweep.question import Question
from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse

__all__ = ["Answered", "answered"]

Answered = Generator[tuple[Question, Answer], None, None]

# These four bound waiting and repeated work; no answer depends on them.
_TOGETHER = 16  # questions of one plan that one worker answers in a row: they share its preparation
_AHEAD = 2  # jobs in flight for each worker: one that runs, and one that waits at the worker
_TRIES = 3  # lost workers until a question is refused: once among other jobs, then twice alone
_KILLED = f"the process that answered it was lost, {_TRIES} times"


@dataclass(frozen=True)
class _Job:
    """Questions of one plan that one worker answers, and how often a worker was lost with them."""

    questions: tuple[Question, ...]
    lost: int = 0

    @property
    def arguments(self) -> tuple[str, tuple[tuple[str | None, str], ...]]:
        """The arguments of :func:`answers` for the job's questions."""
        return self.questions[0].plan, tuple((q.find, q.arguments) for q in self.questions)

    def refused(self, error: BaseException) -> Answered:
        """Answers every question of the job with one refusal."""
        yield from ((question, refusal(error)) for question in self.questions)

    def again(self) -> tuple[_Job, ...]:
        """Makes a job of each question, to be tried again; none after ``_TRIES`` lost workers."""
        lost = self.lost + 1
        # guard: killer-tried-ever
        return tuple(_Job((question,), lost) for question in self.questions if lost < _TRIES)


def answered(questions: Iterable[Question], executor: Executor | int | None) -> Answered:
    """Yields each question with its answer, in the order in which the answers come.

    The executor changes the order alone, never an answer.

    Args:
        questions: no two of them equal.
        executor: None for this process, a number of processes, or an executor.

    Raises:
        ParameterError: executor is none of these.
    """
    jobs = _jobs(questions)
    if executor is None:
        return _here(jobs)
    if isinstance(executor, Executor):
        return _there(jobs, executor)
    if type(executor) is not int or executor < 1:
        raise refuse("executor", "be None, a number of processes or an Executor", executor)
    return _on_processes(jobs, executor)


def _jobs(questions: Iterable[Question]) -> list[_Job]:
    """Groups questions into jobs: a calibration alone, other questions by their plan."""
    plans: dict[str, list[Question]] = {}
    jobs = []
    for question in questions:
        if question.find is None:
            plans.setdefault(question.plan, []).append(question)
        else:
            jobs.append(_Job((question,)))
    for together in plans.values():
        for first in range(0, len(together), _TOGETHER):
            jobs.append(_Job(tuple(together[first : first + _TOGETHER])))
    return jobs


def _here(jobs: Iterable[_Job]) -> Answered:
    for job in jobs:
        yield from zip(job.questions, answers(*job.arguments), strict=True)


def _there(jobs: Iterable[_Job], executor: Executor) -> Answered:
    """Runs jobs on the caller's executor; a job that it loses is refused, to be asked again."""
    futures: dict[Future[list[Answer]], _Job] = {}
    try:
        for job in jobs:
            try:
                futures[executor.submit(answers, *job.arguments)] = job
            except BrokenExecutor as error:
                yield from job.refused(error)
        for future in as_completed(futures):
            yield from _result(futures[future], future)
    finally:
        for future in futures:
            future.cancel()


def _result(job: _Job, future: Future[list[Answer]]) -> Answered:
    try:
        found = future.result()
    except Exception as error:  # the executor's own: a worker was lost, text did not arrive
        yield from job.refused(error)
    else:
        yield from zip(job.questions, found, strict=True)


def _on_processes(jobs: Iterable[_Job], workers: int) -> Answered:
    """Runs jobs on new processes; when one is killed, all are started anew, and the jobs go on.

    Jobs that were in flight then are tried again alone, after all others: a question that kills its
    worker is found so, and no other question is lost with it.
    """
    todo = deque(jobs)
    while todo:
        # jobs that a worker was lost with are the last ones, and go one at a time
        pool = _started(1 if todo[0].lost else workers)
        flying: dict[Future[list[Answer]], _Job] = {}
        try:
            while todo or flying:
                while todo and len(flying) < (1 if todo[0].lost else _AHEAD * workers):
                    flying[pool.submit(answers, *todo[0].arguments)] = todo[0]
                    todo.popleft()
                for future in wait(flying, return_when=FIRST_COMPLETED).done:
                    if isinstance(error := future.exception(), BrokenProcessPool):
                        raise error
                    yield from _result(flying.pop(future), future)
        except BrokenProcessPool:
            for job in flying.values():
                if again := job.again():
                    todo.extend(again)
                else:
                    yield from job.refused(BrokenProcessPool(_KILLED))
        finally:
            pool.shutdown(cancel_futures=True)


def _started(workers: int) -> ProcessPoolExecutor:
    """Starts a pool of processes, and waits until one has begun.

    Raises:
        ParameterError: no process begins, which is not the fault of any question.
    """
    # made anew, not forked: locks of other threads stay where they are. An interruption ends
    # workers without a word.
    pool = ProcessPoolExecutor(
        workers,
        multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        wait([pool.submit(os.getpid) for _ in range(workers)]).done.pop().result()
    except BrokenProcessPool as error:
        raise ParameterError(
            f"executor: {workers} processes were started and ended at once; a script must start "
            'its work under if __name__ == "__main__"'
        ) from error
    return pool
