"""What a durable charge costs: alone, with many processes, and after a million events.

    python benchmarks/ledger.py [--quick] [--out FOLDER] [--disk FOLDER]

A run is reserve + start + settle: three transactions, each on the disk when it returns. On SQLite
and on a PostgreSQL server of its own: the median time of a run in one process, the runs of
several processes per second, and with a history of a million events the time to open the
ledger, to show all budgets and open holds, and to verify everything. A full run writes
ledger.json beside this file.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from report import ledger as as_markdown
from run import HERE, _machine, save
from sqlalchemy import Connection, insert, select, update
from tests.ledger.servers import OwnServer

import tightbudget as tb
from tightbudget.ledger.chain import Entry, Head, entry_after
from tightbudget.ledger.schema import budgets, charges, events, reservations
from tightbudget.ledger.units import Units

COIN = tb.OutputDP({"yes": 1e-6, "no": 1e-7}, delta=1e-15)
PROCESSES = (1, 2, 4, 8)
BATCH = 5_000  # runs that are written at once


def _run(budget: tb.LedgerBudget, key: str) -> None:
    hold = budget.reserve(key, COIN)
    hold.start()
    hold.settle("no")


def _opened(url: str) -> tb.Ledger:
    ledger = tb.Ledger(url)
    ledger.open_budget("data", epsilon=1_000, delta=1e-3)
    return ledger


# ------------------------------------------------------------------------------ a charge


def _latency(url: str, runs: int) -> dict[str, float]:
    seconds = []
    with _opened(url) as ledger:
        budget = ledger.budget("data")
        for i in range(runs):
            start = time.perf_counter()
            _run(budget, f"run-{i}")
            seconds.append(time.perf_counter() - start)
    seconds.sort()
    return {"ms": 1e3 * statistics.median(seconds), "slow_ms": 1e3 * seconds[runs * 99 // 100]}


def _flush(folder: Path, writes: int) -> float:
    """Milliseconds that the disk itself takes to make one page durable: the floor under all."""
    seconds = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(writes):
            start = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - start)
    return 1e3 * statistics.median(seconds)


# ------------------------------------------------------------------------ many processes


def _throughput(url: str, processes: int, seconds: float) -> float:
    """Runs per second of all processes together."""
    _opened(url).close()
    context = multiprocessing.get_context("spawn")
    gate, counts = context.Barrier(processes), context.Queue()
    workers = [
        context.Process(target=_worker, args=(url, i, seconds, gate, counts))
        for i in range(processes)
    ]
    for worker in workers:
        worker.start()
    total: int = sum(counts.get() for _ in workers)
    for worker in workers:
        worker.join()
    return total / seconds


def _worker(url: str, number: int, seconds: float, gate: Any, counts: Any) -> None:
    with tb.Ledger(url) as ledger:
        budget = ledger.budget("data")
        gate.wait()
        end, runs = time.perf_counter() + seconds, 0
        while time.perf_counter() < end:
            _run(budget, f"run-{number}-{runs}")
            runs += 1
    counts.put(runs)


# ---------------------------------------------------------------------- a million events


def _history(url: str, size: int) -> dict[str, float]:
    with _opened(url) as ledger:
        for key in ("run", "open"):
            hold = ledger.reserve(key, COIN, ["data"])
            hold.start()
            if key == "run":
                hold.settle("no")
        ledger._store.write(lambda connection: _repeat(connection, (size - 6) // 3))
    row = {"open_s": _timed(lambda: tb.Ledger(url, create=False).close())}
    with tb.Ledger(url, create=False) as ledger:
        row["events"] = ledger.head().sequence
        row["show_s"] = _timed(lambda: (ledger.statements(), ledger.holds()))
        row["verify_s"] = _timed(ledger.verify)
    return row


def _timed(ask: Callable[[], object]) -> float:
    start = time.perf_counter()
    ask()
    return time.perf_counter() - start


def _repeat(connection: Connection, runs: int) -> None:
    """Writes the first run many times more, as the ledger would have; ``verify`` agrees."""
    in_order = select(events).order_by(events.c.sequence)
    history = [Entry(*row) for row in connection.execute(in_order)]
    steps = [entry for entry in history if entry.key == "run"]
    held = connection.execute(select(reservations).where(reservations.c.key == "run")).one()
    charge = connection.execute(select(charges).where(charges.c.reservation == held.id)).one()
    head = Head(history[-1].sequence, history[-1].hash)
    for first in range(0, runs, BATCH):
        entries, holds, lines = [], [], []
        for number in range(first, min(first + BATCH, runs)):
            name, start = f"run-{number}", head.sequence + 1
            for step in steps:
                entry = entry_after(
                    head, step.at, step.kind, key=name, budget=step.budget,
                    units=Units(step.epsilon, step.delta), cell=step.cell,
                    details=json.loads(step.details),
                )  # fmt: skip
                entries.append(entry._asdict())
                head = Head(entry.sequence, entry.hash)
            holds.append(held._asdict() | {"id": start, "key": name, "started": start + 1})
            lines.append(charge._asdict() | {"reservation": start})
        for table, rows in ((events, entries), (reservations, holds), (charges, lines)):
            connection.execute(insert(table), rows)
    saved = steps[0].epsilon - charge.epsilon
    connection.execute(
        update(budgets).values(
            spent_epsilon=budgets.c.spent_epsilon + runs * charge.epsilon,
            spent_delta=budgets.c.spent_delta + runs * charge.delta,
            saved_epsilon=budgets.c.saved_epsilon + runs * saved,
        )
    )


# --------------------------------------------------------------------------------- main


def _measured(fresh: Callable[[str], str], quick: bool) -> dict[str, Any]:
    seconds = 0.5 if quick else 5.0
    return {
        **_latency(fresh("latency"), 50 if quick else 2_000),
        "runs_per_s": {
            str(n): _throughput(fresh(f"with-{n}"), n, seconds)
            for n in PROCESSES[: 2 if quick else 4]
        },
        **_history(fresh("history"), 3_000 if quick else 1_000_000),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few of each")
    parser.add_argument("--out", type=Path, help="folder for ledger.json")
    parser.add_argument("--disk", type=Path, help="folder for the databases")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.disk) as name:
        folder = Path(name)
        results: dict[str, Any] = {"machine": _machine(), "flush_ms": _flush(folder, 500)}
        results["SQLite"] = _measured(lambda of: f"sqlite:///{folder}/{of}.db", options.quick)
        server = OwnServer(options.disk)
        results["PostgreSQL"] = _measured(lambda of: server.create_database(), options.quick)
        server.close()
    text = as_markdown(results)
    sys.stdout.write(text)
    out = options.out or (None if options.quick else HERE)
    if out:
        save(out, "ledger", results)


if __name__ == "__main__":
    main()
