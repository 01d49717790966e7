"""Many clients of one server, and what each of them was told.

A client reserves, starts and settles, run after run, and writes down every answer. One run in ten
is charged to a budget that is soon used up.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import tightbudget as tb
from tightbudget.ledger.tokens import Tokens

__all__ = ["COIN", "SCARCE", "Clients", "Program", "Run", "prepared"]

T = TypeVar("T")

COIN = tb.OutputDP({"yes": 1e-6, "no": 1e-7}, delta=1e-15)
SCARCE = 100  # runs that fit into the scarce budget, at the price of COIN's dearest cell


def prepared(url: str) -> str:
    """Two budgets in a new ledger, and a token to charge them with."""
    with tb.Ledger(url) as ledger:
        ledger.open_budget("plenty", epsilon=1_000, delta=1e-3)
        ledger.open_budget("scarce", epsilon=1e-6 * SCARCE, delta=1e-3)
        lasts, budgets = timedelta(hours=1), ("plenty", "scarce")
        return Tokens(ledger).create("load", "analyst", budgets=budgets, lasts=lasts)[1]


class Program:
    """``tightbudget serve`` in a process of its own; what it logs goes to a file."""

    def __init__(self, ledger: str, log: Path) -> None:
        self._ledger = ledger
        self._log = log
        self._port = "0"
        self.url = ""

    def start(self) -> None:
        """Starts it; again, at the same address."""
        words = ["serve", "--ledger", self._ledger, "--port", self._port]
        with self._log.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tightbudget", *words],
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url, f"the server did not start: {self._log.read_text(encoding='utf-8')}"
        self._port = self.url.rpartition(":")[2]

    def kill(self) -> None:
        """Ends it without a goodbye."""
        self._process.kill()
        self._process.communicate(timeout=30)

    @contextlib.contextmanager
    def running(self) -> Iterator[Program]:
        """From its start to its end."""
        self.start()
        try:
            yield self
        finally:
            self.kill()


@dataclass
class Run:
    """The answers that a client got about one key, or the failure of its last step."""

    key: str
    told: str = "nothing"  # reserved, started, settled, refused
    cell: str | None = None  # that was settled, or was to be
    token: str | None = None
    failure: tb.LedgerError | None = None


@dataclass
class Clients:
    """Runs so many clients, each of which is a thread with its own connection.

    Attributes:
        runs: what each was told, run by run.
        seconds: how long each request took that was answered.
    """

    url: str
    token: str
    number: int
    runs: list[list[Run]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """They work until the end of the block; each ends the run that it has begun."""
        self.runs = [[] for _ in range(self.number)]
        threads = [
            threading.Thread(target=self._work, args=(i, self.runs[i])) for i in range(self.number)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _work(self, number: int, runs: list[Run]) -> None:
        with tb.RemoteLedger(self.url, token=self.token) as ledger:
            while not self._over.is_set():
                run = Run(f"{number}/{len(runs)}")
                runs.append(run)
                budget = "scarce" if len(runs) % 10 == 5 else "plenty"
                try:
                    self._one(ledger, budget, run)
                except tb.BudgetExceeded:
                    run.told = "refused"
                except tb.LedgerError as failure:
                    run.failure = failure
                    self._over.wait(0.1)

    def _one(self, ledger: tb.RemoteLedger, budget: str, run: Run) -> None:
        hold = self._timed(lambda: ledger.reserve(run.key, COIN, [budget]))
        run.told = "reserved"
        self._timed(hold.start)
        run.told, run.token = "started", hold.token
        # in the scarce budget nothing comes back
        run.cell = "yes" if budget == "scarce" else "no"
        self._timed(lambda: hold.settle(run.cell or ""))
        run.told = "settled"

    def _timed(self, ask: Callable[[], T]) -> T:
        start = time.perf_counter()
        answer = ask()
        self.seconds.append(time.perf_counter() - start)
        return answer
