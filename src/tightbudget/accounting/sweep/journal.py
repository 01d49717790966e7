"""Answers on disk: a line for each, durable before the next; found again by their question.

The first line says what the file is. Every other line is a checksum and, in JSON, a question's
key and its answer. The key is a hash of the question and of this package's version. A line whose
checksum is wrong (the last one, after a crash) counts as not there.
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
from tightbudget.accounting.sweep.answer import Answer
from tightbudget.accounting.sweep.question import Question
from tightbudget.accounting.text_file import reason
from tightbudget.errors import FileError

__all__ = ["Journal"]

_HEAD = b"tightbudget: journal of a sweep, format 1\n"


class Journal:
    """Answers that outlive this process.

    Guarantee: an answer that was kept is found again after any crash, and nothing else is found:
    neither a torn line nor the answer to another question or of another version.
    """

    def __init__(self, path: str | Path) -> None:
        """Opens a journal, or begins one.

        Raises:
            FileError: it cannot be read or written there, or is a file of another kind.
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
        """The answer that is kept for a question, or None."""
        return self._known.get(_key(question))

    def keep(self, question: Question, answer: Answer) -> None:
        """Makes an answer durable.

        Refusals of this package are answers, too; any other (a killed worker, too little memory)
        may not come again, and is not kept.

        Raises:
            FileError: it cannot be written.
        """
        if answer.refusal is not None and answer.refusal.partition(":")[0] not in errors.__all__:
            return
        body = json.dumps([_key(question), dataclasses.asdict(answer)]).encode()
        try:
            self._write(_checksum(body) + b" " + body + b"\n")
        except OSError as error:
            raise FileError(f"{self._path}: {reason(error)}") from error

    def _begun(self) -> dict[str, Answer]:
        """What is kept; an empty file, or one that was torn in its first line, begins anew."""
        self._file.seek(0)
        content = self._file.read()
        if _HEAD.startswith(content):
            self._write(_HEAD[len(content) :])
            _make_durable(self._path.parent)
            return {}
        if not content.startswith(_HEAD):
            raise FileError(f"{self._path}: not the journal of a sweep")
        if not content.endswith(b"\n"):
            self._write(b"\n")  # so that the next line begins a line
        return dict(filter(None, map(_read, content.splitlines()[1:])))

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())


def _key(question: Question) -> str:
    asked = [_version(), question.plan, question.find, question.arguments]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _version() -> str:
    return importlib.metadata.version("tightbudget")


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()


def _read(line: bytes) -> tuple[str, Answer] | None:
    checksum, _, body = line.partition(b" ")
    if checksum != _checksum(body):
        return None
    key, answer = json.loads(body)
    return key, Answer(**answer)


def _make_durable(folder: Path) -> None:
    """Also the name of a new file is on disk then."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
