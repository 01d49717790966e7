"""Runs questions in this process, on processes of its own, or on the caller's executor."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse
from tightbudget.sweeps.answer import Answer, answers, refusal
from tightbudget.sweeps.question import Question
from tightbudget.worker import Lost, Worker

Answered = Generator[tuple[Question, Answer], None, None]

# These bound waiting and repeated work; no answer depends on them.
_TOGETHER = 16  # questions of one plan that one worker answers in a row: they share its preparation
_TRIES = 3  # workers that are lost with a question alone until it is refused
_STARTS = 10  # workers in a row that are killed before they begin, until the sweep ends

_KILLED = "the process that answered it was lost, {} times ({})"
_NOT_BEGUN = (
    "executor: {} processes were started and ended at once; a script must start its work under "
    'if __name__ == "__main__"'
)


@dataclass(frozen=True)
class _Job:
    """Questions of one plan that one worker answers.

    Attributes:
        questions: at least one.
        alone: whether the job is one question that is asked with no other beside it, since a worker
            was lost before.
        lost: how many workers were lost with the job alone.
    """

    questions: tuple[Question, ...]
    alone: bool = False
    lost: int = 0

    @property
    def arguments(self) -> tuple[str, tuple[tuple[str | None, str], ...]]:
        """The arguments of :func:`answers` for the job's questions."""
        return self.questions[0].plan, tuple((q.find, q.arguments) for q in self.questions)

    def answered(self, found: Iterable[Answer]) -> Answered:
        """Yields each question of the job with its answer."""
        yield from zip(self.questions, found, strict=True)

    def refused(self, error: BaseException) -> Answered:
        """Answers every question of the job with one refusal."""
        yield from ((question, refusal(error)) for question in self.questions)

    def again(self) -> tuple[_Job, ...]:
        """Makes a job of each question after a worker was lost with this job.

        A worker that is lost with several questions blames none of them, and neither does one that
        is lost while others work, since the memory may have been theirs. None is tried again after
        ``_TRIES`` losses alone.
        """
        lost = self.lost + self.alone  # guard: innocent-blamed
        # guard: killer-tried-ever
        return tuple(_Job((q,), True, lost) for q in self.questions if lost < _TRIES)


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
        yield from job.answered(answers(*job.arguments))


def _there(jobs: Iterable[_Job], executor: Executor) -> Answered:
    """Runs jobs on the caller's executor, and those that it loses once more, each question alone.

    A question that is lost alone is refused, to be asked again in another sweep.
    """
    futures: dict[Future[list[Answer]], _Job] = {}
    lost: list[_Job] = []

    def results(asked: Iterable[_Job]) -> Answered:
        for job in asked:
            try:
                futures[executor.submit(answers, *job.arguments)] = job
            except BrokenExecutor as error:
                yield from job.refused(error)
        for future in as_completed(list(futures)):
            job = futures.pop(future)
            try:
                found = future.result()
            except Exception as error:  # the executor's own: a worker was lost, text did not arrive
                if job.alone or isinstance(error, BrokenExecutor):  # it takes no more jobs
                    yield from job.refused(error)
                else:
                    lost.extend(job.again())
            else:
                yield from job.answered(found)

    try:
        yield from results(jobs)
        for job in lost:
            yield from results([job])
    finally:
        for future in futures:
            future.cancel()


def _on_processes(jobs: Iterable[_Job], workers: int) -> Answered:
    """Runs jobs on new processes, of which each that is lost is replaced.

    The questions that a process was lost with are asked again alone, after all others: a question
    that kills its process is found so, and no other question is lost with it.
    """
    todo = deque(jobs)
    found: list[tuple[_Job, list[Answer]]] = []
    with contextlib.closing(_Crew(min(workers, len(todo)))) as crew:
        while todo or crew.busy or found:
            crew.give(todo)  # before answers are handed on: the caller may take its time with them
            for job, given in found:
                yield from job.answered(given)
            found = []
            for job, ended in crew.ended():
                if not isinstance(ended, Lost):
                    found.append((job, ended))
                elif again := job.again():
                    todo.extend(again)  # at the end, where all jobs are that go alone
                else:
                    yield from job.refused(BrokenProcessPool(_KILLED.format(job.lost + 1, ended)))


class _Crew:
    """Some processes, each of which begins, is idle, or works on one job.

    Attributes:
        busy: the processes that work, with their jobs, by their pipes.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._beginning: dict[Connection, Worker] = {}
        self._idle: list[Worker] = []
        self.busy: dict[Connection, tuple[Worker, _Job]] = {}
        self._killed = 0  # processes in a row that were killed before they had begun

    def give(self, todo: deque[_Job]) -> None:
        """Gives the first jobs to idle processes; one that goes alone waits for all others."""
        self._start()
        while todo and self._idle and not (todo[0].alone and self.busy):
            if todo[0].alone:
                self._keep_one()
            worker, job = self._idle.pop(), todo.popleft()
            self.busy[worker.pipe] = worker, job
            with contextlib.suppress(Lost):  # :meth:`ended` finds it lost with its job
                worker.send(answers, *job.arguments)

    def ended(self) -> list[tuple[_Job, list[Answer] | Lost]]:
        """Waits until a process has begun or has ended a job; lists the jobs that have ended.

        Raises:
            ParameterError: processes do not begin, which is not the fault of any question.
        """
        found: list[tuple[_Job, list[Answer] | Lost]] = []
        if not self._beginning and not self.busy:
            return found
        for pipe in wait([*self._beginning, *self.busy]):
            if worker := self._beginning.pop(pipe, None):  # type: ignore[call-overload]
                self._begun(worker)
                continue
            worker, job = self.busy.pop(pipe)  # type: ignore[call-overload]
            try:
                found.append((job, worker.receive()))
                self._idle.append(worker)
            except Lost as lost:
                worker.end()
                found.append((job, lost))
        return found

    def close(self) -> None:
        """Ends all processes, even those that are working."""
        for worker in (*self._beginning.values(), *self._idle, *(w for w, _ in self.busy.values())):
            worker.end()

    def _start(self) -> None:
        # made anew, not forked: locks of other threads stay where they are
        context = multiprocessing.get_context("spawn")
        while len(self._beginning) + len(self._idle) + len(self.busy) < self._size:
            worker = Worker.start(context)
            self._beginning[worker.pipe] = worker

    def _begun(self, worker: Worker) -> None:
        """Takes a process that has begun among the idle ones.

        Raises:
            ParameterError: it has ended by itself instead, or too many were killed.
        """
        try:
            worker.receive()
        except Lost as lost:
            worker.end()
            self._killed += 1
            if not lost.killed or self._killed == _STARTS:
                raise ParameterError(_NOT_BEGUN.format(self._size)) from lost
        else:
            self._killed = 0
            self._idle.append(worker)

    def _keep_one(self) -> None:
        """Ends all processes but one idle one, so that a job has the memory for itself."""
        for worker in (*self._beginning.values(), *self._idle[1:]):
            worker.end()
        self._size, self._beginning, self._idle = 1, {}, self._idle[:1]
