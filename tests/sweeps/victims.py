"""Workers that die by SIGKILL, as the out-of-memory killer would have it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from tightbudget.sweeps.answer import Answer, answers

__all__ = [
    "DELTAS",
    "FATAL",
    "FLAG",
    "dies_always",
    "dies_of_a_target",
    "dies_once",
    "holds_always",
    "set_flag",
]

FATAL = '"sigma": 0.666'  # in the plan of whose question a worker dies
FLAG = "TIGHTBUDGET_TEST_FLAG"  # names a file that says that somebody has died already

DELTAS = [1e-4, 1e-5, 1e-6]  # of which a worker dies of the second


def dies_always(plan: str, asked: Sequence[tuple[str | None, str]]) -> list[Answer]:
    if FATAL in plan:
        os.kill(os.getpid(), signal.SIGKILL)
    return answers(plan, asked)


def dies_once(plan: str, asked: Sequence[tuple[str | None, str]]) -> list[Answer]:
    flag = Path(os.environ[FLAG])
    if FATAL in plan and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return answers(plan, asked)


def dies_of_a_target(plan: str, asked: Sequence[tuple[str | None, str]]) -> list[Answer]:
    if any(f'"delta": {DELTAS[1]}' in text for _, text in asked):
        os.kill(os.getpid(), signal.SIGKILL)
    return answers(plan, asked)


def holds_always(plan: str, asked: Sequence[tuple[str | None, str]]) -> list[Answer]:
    """Holds the interpreter for minutes, in a call into C."""
    if FATAL in plan:
        pow(3, 3 * 10**8)
    return answers(plan, asked)


def set_flag(path: str) -> None:
    """For a worker that is there already."""
    os.environ[FLAG] = path
