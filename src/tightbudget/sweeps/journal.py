"""A journal of answers on disk: a line for each answer, durable before the next is written.

A line is, in JSON, a question's key and its answer. The key is a hash of the question and of this
package's version; the line's checksum is of both together, so that an answer stays with its
question. A journal is believed as the table is that is made of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
from pathlib import Path

from tightbudget import errors
from tightbudget.durable_lines import DurableLines
from tightbudget.sweeps.answer import Answer
from tightbudget.sweeps.question import Question

_HEAD = b"tightbudget: journal of a sweep, format 1\n"


class Journal:
    """A file of answers that outlives its process.

    Guarantee: an answer that was kept is found again after any crash. A torn line is never taken
    for an answer, nor is the answer to another question or of another version.
    """

    def __init__(self, path: str | Path) -> None:
        """Opens a journal, or begins one.

        Raises:
            FileError: the file cannot be read or written, or is a file of another kind.
        """
        self._lines = DurableLines(path, _HEAD, "the journal of a sweep")
        self._known = dict(map(_read, self._lines.found))

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()

    def get(self, question: Question) -> Answer | None:
        """Returns the answer that is kept for a question, or None."""
        return self._known.get(_key(question))

    def keep(self, question: Question, answer: Answer) -> None:
        """Makes an answer durable.

        A refusal by this package is an answer and is kept; another error (a killed worker, too
        little memory) may not come again, and is not kept.

        Raises:
            FileError: the journal cannot be written.
        """
        # guard: any-refusal-kept
        if answer.refusal is not None and answer.refusal.partition(":")[0] not in errors.__all__:
            return
        self._lines.keep(json.dumps([_key(question), dataclasses.asdict(answer)]).encode())


def _key(question: Question) -> str:
    asked = [_version(), question.plan, question.find, question.arguments]  # guard: plan-key
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _version() -> str:
    return importlib.metadata.version("tightbudget")


def _read(line: bytes) -> tuple[str, Answer]:
    key, answer = json.loads(line)
    return key, Answer(**answer)
