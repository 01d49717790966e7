"""Processes that do what a table says, and die at a chosen point of it.

A point is where a crash can leave something else behind: before each statement that is sent
to the database, before each commit and after it. The hooks are put in by the victim itself,
after it was born; the ledger knows nothing of them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine.default import DefaultDialect
from tightbudget.ledger.testing import Deed, LedgerActor

__all__ = ["PROCESSES", "Life", "live", "watched"]

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tightbudget.ledger.testing", "sqlalchemy.dialects", "psycopg"])


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


@dataclass(frozen=True)
class Life:
    """What a process lived to tell."""

    answers: tuple[str, ...]  # to the deeds that came back
    points: tuple[str, ...]  # that the last deed passed, the one it died at included
    killed: bool


def live(url: str, lines: Sequence[str], fatal: int | None = None) -> Life:
    """Does all the deeds in a process of its own, which dies at a point of the last one."""
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_life, args=(url, tuple(lines), fatal, theirs))
    process.start()
    theirs.close()
    heard: list[tuple[str, str]] = []
    try:
        while True:
            heard.append(ours.recv())
    except EOFError:
        process.join()
    killed = process.exitcode == -signal.SIGKILL
    assert killed or process.exitcode == 0, f"it ended with {process.exitcode}"
    return Life(
        tuple(text for what, text in heard if what == "answer"),
        tuple(text for what, text in heard if what == "point"),
        killed,
    )


def _life(url: str, lines: tuple[str, ...], fatal: int | None, ear: Connection[Any, Any]) -> None:
    actor = LedgerActor(url)
    for line in lines[:-1]:
        ear.send(("answer", actor.act(Deed.read(line))))
    passed = 0

    def pass_by(point: str) -> None:
        nonlocal passed
        ear.send(("point", point))
        if passed == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        passed += 1

    with watched(pass_by):
        answer = actor.act(Deed.read(lines[-1]))
    ear.send(("answer", answer))


