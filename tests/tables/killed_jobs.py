"""A job of a few questions that dies at one of its places, and is started again.

The places of a job are what lasts: each transaction of the ledger, and each write to the file of
answers; and between them, the scan of each question. A death is before a place, after it or, of a
write to the file, in the midst of it. In a test a death is an exception, after which nothing lasts
any more; in a process of its own, it is SIGKILL. Run as a program, this starts such processes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import tightbudget as tb
from tightbudget.durable_lines import DurableLines
from tightbudget.ledger.session import LedgerSession

PRICE = 0.25
# each list is a run: its questions are asked at once, and cost PRICE together
QUESTIONS: list[list[Any]] = [
    [tb.Count(epsilon=PRICE)],
    [tb.GroupedCounts(by="zone", epsilon=PRICE / 2), tb.Count(epsilon=PRICE / 2, of="units")],
    [tb.Mean(column="fare", bounds=(0, 64), epsilon=PRICE)],
]
ROWS = {
    "rider": np.array([1, 1, 1, 2, 2, 3]),
    "zone": np.array(["a", "a", "b", "a", "b", "b"]),
    "fare": np.array([5.0, 12.0, 30.0, 8.0, 15.0, 20.0]),
}
DEATHS = ("before", "after", "within")
# in the order of their lines: the file is begun; then for each run reserve, start, a draw for
# each question, keep, settle
PLACES = 2 + sum(4 + len(run) for run in QUESTIONS)


class Killed(BaseException):
    """Raised in place of a death."""


@dataclass
class Life:
    """One life of a job.

    Attributes:
        place: the number of the place at which it ends, from 0; None for a long one.
        death: how it ends there.
        die: ends it.
        passed: how many places were passed.
        over: whether it has ended: then nothing lasts any more.
        answers: what was returned before the end.
    """

    place: int | None
    death: str
    die: Callable[[], None]
    passed: int = 0
    over: bool = False
    answers: list[Any] = field(default_factory=list)

    def at(self, deed: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        """Comes to a place, and does what lasts."""
        if self.over:
            raise Killed
        here, self.passed = self.passed == self.place, self.passed + 1
        if here and self.death == "before":
            self.end()
        if here and self.death == "within":
            if half is not None:
                half()
            self.end()
        done = deed()
        if here:
            self.end()
        return done

    def end(self) -> None:
        self.over = True
        self.die()


class Draws:
    """Noise that is never the same twice, in any process: each draw is a line of a file.

    A line is the price of the draw.
    """

    batch, price = 1, 0.0

    def __init__(self, life: Life, file: Path) -> None:
        self.life, self.file = life, file

    def laplace(self, scale: object, size: int) -> Any:
        def draw() -> Any:
            with self.file.open("a") as drawn:
                drawn.write(f"{self.price}\n")
            return np.full(size, count(self.file), dtype=np.int64)

        return self.life.at(draw)

    gaussian = laplace

    def coin(self) -> bool:
        return False


def count(file: Path) -> int:
    return len(prices(file))


def prices(file: Path) -> list[float]:
    return [float(line) for line in file.read_text().splitlines()] if file.exists() else []


@contextmanager
def placed(life: Life) -> Iterator[None]:
    """Lets a life come to its places."""
    write, act = DurableLines._write, LedgerSession.write

    def written(self: DurableLines, line: bytes) -> None:
        life.at(lambda: write(self, line), lambda: write(self, line[: len(line) // 2]))

    def acted(self: LedgerSession, deed: Any) -> Any:
        return life.at(lambda: act(self, deed))

    with (
        mock.patch.object(DurableLines, "_write", written),
        mock.patch.object(LedgerSession, "write", acted),
    ):
        yield


def job(folder: Path, life: Life) -> list[Any]:
    """Asks all questions, in one life."""
    table = tb.Table(ROWS, unit="rider", rows_per_unit=3, domains={"zone": ["a", "b", "c"]})
    with tb.Ledger(f"sqlite:///{folder}/budget.db") as ledger:
        budget = ledger.budget("ada")
        noise = Draws(life, folder / "drawn")
        with placed(life):
            session = tb.Session(
                table,
                budget.keyed("2026-11"),
                noise=noise,
                answers=folder / "answers",
                again=True,
            )
            for run in QUESTIONS:
                noise.price = PRICE / len(run)
                if len(run) == 1:
                    life.answers.append(session.ask(run[0]))
                else:
                    life.answers.extend(session.ask_all(run))
    return life.answers


def opened(folder: Path, epsilon: float = 100) -> None:
    """Makes the ledger of a job."""
    with tb.Ledger(f"sqlite:///{folder}/budget.db") as ledger:
        ledger.open_budget("ada", epsilon=epsilon)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _alone(folder: Path, life: Life) -> None:
    """One life, in a process of its own; what was answered is in a file."""
    found = job(folder, life)
    (folder / "found").write_text(f"{[answer.value for answer in found]}")


def main() -> None:
    """Answers each line (a folder, a place, a death) with how a process with that life has ended.

    A process is a fork of this one, which has loaded all modules and opened nothing.
    """
    for line in sys.stdin:
        folder, place, death = json.loads(line)
        process = os.fork()
        if process == 0:
            try:
                _alone(Path(folder), Life(place, death, _kill))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
