"""Processes of their own, and some that die at a chosen point of a deed.

A point is where a crash can leave something else behind: before each statement that is sent
to the database, before each commit and after it. The hooks are put in by the victim itself,
after it was born; the ledger knows nothing of them.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine.default import DefaultDialect
from tests.ledger.conformance import Deed, LedgerActor

import tightbudget as tb

__all__ = ["PROCESSES", "born", "heard", "killed_at", "killed_opening", "watched"]

PROCESSES = multiprocessing.get_context("forkserver")
# what each of them would have to load else
PROCESSES.set_forkserver_preload(
    [
        "pytest",
        "alembic.command",
        "sqlalchemy.dialects.postgresql.psycopg",
        "sqlalchemy.dialects.sqlite",
        "tests.ledger.conformance",
    ]
)


@contextlib.contextmanager
def watched(pass_by: Callable[[str], None]) -> Iterator[None]:
    """Tells of each point that this process comes to; what is raised there goes through."""

    def before(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        pass_by(f"before {statement.split(None, 1)[0].lower()}")

    def do_commit(self: DefaultDialect, connection: Any) -> None:
        pass_by("before commit")
        commit(self, connection)
        pass_by("after commit")

    commit = DefaultDialect.do_commit
    event.listen(Engine, "before_cursor_execute", before)
    DefaultDialect.do_commit = do_commit  # type: ignore[method-assign]
    try:
        yield
    finally:
        DefaultDialect.do_commit = commit  # type: ignore[method-assign]
        event.remove(Engine, "before_cursor_execute", before)


def born(target: Callable[..., None], *arguments: Any) -> tuple[Any, Connection[Any, Any]]:
    """A process of its own that does something, and a pipe to it, its last argument."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=target, args=(*arguments, theirs))
    process.start()
    theirs.close()
    return process, ours


def heard(process: Any, ear: Connection[Any, Any]) -> list[Any]:
    """All that a process had to say until its end."""
    said = []
    try:
        while True:
            said.append(ear.recv())
    except (EOFError, ConnectionResetError):
        process.join()
        ear.close()
    return said


def killed_at(url: str, line: str, tokens: Mapping[str, str | None], fatal: int) -> list[str]:
    """The points that a process passed which had to do one deed, and was killed at the last."""
    return _last_words(*born(_doomed, url, line, tokens, fatal))


def killed_opening(url: str, fatal: int) -> list[str]:
    """The points that a process passed which opened a ledger, and was killed at the last."""
    return _last_words(*born(_doomed_to_open, url, fatal))


def _last_words(process: Any, ear: Connection[Any, Any]) -> list[str]:
    points = heard(process, ear)
    assert process.exitcode == -signal.SIGKILL, f"it ended with {process.exitcode}"
    return points


def _doomed(
    url: str, line: str, tokens: Mapping[str, str | None], fatal: int, ear: Connection[Any, Any]
) -> None:
    actor = LedgerActor(url, tokens)
    with watched(_fate(fatal, ear)):
        actor.act(Deed.read(line))


def _doomed_to_open(url: str, fatal: int, ear: Connection[Any, Any]) -> None:
    with watched(_fate(fatal, ear)):
        tb.Ledger(url)


def _fate(fatal: int, ear: Connection[Any, Any]) -> Callable[[str], None]:
    points = itertools.count()

    def pass_by(point: str) -> None:
        ear.send(point)
        if next(points) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    return pass_by
