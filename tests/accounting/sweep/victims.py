"""Workers that die by SIGKILL, as the out-of-memory killer would have it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from tightbudget.accounting.sweep.answer import Answer, answers

__all__ = ["FATAL", "FLAG", "dies_always", "dies_once", "set_flag"]

FATAL = '"sigma": 0.666'  # in the plan of whose question a worker dies
FLAG = "TIGHTBUDGET_TEST_FLAG"  # names a file that says that somebody has died already


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


def set_flag(path: str) -> None:
    """For a worker that is there already."""
    os.environ[FLAG] = path
