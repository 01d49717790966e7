"""A journal of answers on disk: a line for each answer, durable before the next is written.

The first line names the format. Every other line is a checksum and, in JSON, a question's
key and its answer. The key is a hash of the question and of this package's version. The checksum is
of both together, so that an answer stays with its question: a line whose checksum is wrong (the
last one, after a crash) counts as not there. It shows damage, and not who wrote the file: a journal
is believed as the table is that is made of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
from pathlib import Path

from tightbudget import errors
from tightbudget.errors import FileError
from tightbudget.sweeps.answer import Answer
from tightbudget.sweeps.question import Question
from tightbudget.text_file import reason

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
        self._path = Path(path)
        with contextlib.ExitStack() as stack:
            try:
                self._file = stack.enter_context(self._path.open("a+b"))
                self._known = self._begun()
            except OSError as error:
                raise FileError(f"{path}: {reason(error)}") from error
            stack.pop_all()  # it stays open

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

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
        body = json.dumps([_key(question), dataclasses.asdict(answer)]).encode()
        try:
            self._write(_checksum(body) + b" " + body + b"\n")
        except OSError as error:
            raise FileError(f"{self._path}: {reason(error)}") from error

    def _begun(self) -> dict[str, Answer]:
        """Reads the kept answers; begins the journal anew if its first line is not whole."""
        self._file.seek(0)
        content = self._file.read()
        if _HEAD.startswith(content):
            self._write(_HEAD[len(content) :])
            _make_durable(self._path.parent)
            return {}
        if not content.startswith(_HEAD):  # guard: any-file-journal
            raise FileError(f"{self._path}: not the journal of a sweep")
        if not content.endswith(b"\n"):  # guard: torn-line-takes-next-along
            self._write(b"\n")  # so that the next line begins a line
        return dict(filter(None, map(_read, content.splitlines()[1:])))

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())


def _key(question: Question) -> str:
    asked = [_version(), question.plan, question.find, question.arguments]  # guard: plan-key
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _version() -> str:
    return importlib.metadata.version("tightbudget")


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()


def _read(line: bytes) -> tuple[str, Answer] | None:
    checksum, _, body = line.partition(b" ")
    if checksum != _checksum(body):  # guard: changed-line-believed
        return None
    key, answer = json.loads(body)
    return key, Answer(**answer)


def _make_durable(folder: Path) -> None:
    """Writes a folder's names to disk, so that a new file in it is found after a crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
