"""The main path of a sweep: equal questions are answered once, on any executor, into a table."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path

from tightbudget.numerics.validate import refuse
from tightbudget.sweeps.answer import Answer
from tightbudget.sweeps.journal import Journal
from tightbudget.sweeps.pool import answered
from tightbudget.sweeps.question import Question
from tightbudget.sweeps.table import Sweep


def sweep(
    questions: Iterable[Question],
    executor: Executor | int | None = None,
    *,
    journal: str | Path | None = None,
    progress: Callable[[range], Iterable[int]] = iter,
) -> Sweep:
    """Answers many questions: equal ones once, those in the journal not again.

    ``progress`` wraps the range of questions that are left while they are answered (a progress
    bar).

    Guarantee: the result has a row for each question, in their order, with the numbers that the
    question has when it is asked alone, whatever the executor and however often the sweep was
    interrupted. A question that is refused, or with which alone a process is lost three times, is a
    row with a refusal; the others go on. No process of the sweep outlives this one.

    Args:
        questions: from :func:`tightbudget.sweeps.questions` or :meth:`Question.of`.
        executor: None for this process; a number of processes, replaced if they are killed;
            or an executor, also of other machines (``Client.get_executor()`` of Dask).
        journal: a file that answers are appended to, each durable before the next; a question that
            it has an answer to is not asked again. At most one sweep at a time may write it.

    Raises:
        ParameterError: an entry is not a question, or executor is none of the three.
        FileError: the journal cannot be read or written, or is a file of another kind.
    """
    asked = tuple(questions)
    for i, question in enumerate(asked):
        if not isinstance(question, Question):
            raise refuse(f"questions[{i}]", "be a tightbudget.sweeps.Question", question)
    with contextlib.ExitStack() as stack:
        book = None if journal is None else stack.enter_context(Journal(journal))
        known: dict[Question, Answer] = {}
        if book is not None:
            found = ((question, book.get(question)) for question in asked)
            known = {question: answer for question, answer in found if answer is not None}
        left = [question for question in dict.fromkeys(asked) if question not in known]
        answers = stack.enter_context(contextlib.closing(answered(left, executor)))
        for _, (question, answer) in zip(progress(range(len(left))), answers, strict=True):
            known[question] = answer
            if book is not None:
                book.keep(question, answer)
    return Sweep(asked, tuple(known[question] for question in asked))
