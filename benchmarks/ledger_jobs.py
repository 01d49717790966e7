"""A worker of ``ledger.py`` and ``web.py``: reads jobs from its input, and answers each.

A job is a line of JSON: the name of a function below and its arguments. The worker imports the
version of tightbudget that is on its path. Clients are children of this process, which opens no
ledger itself, so that many of them cost one import.
"""

from __future__ import annotations

import contextlib
import http.client
import inspect
import json
import multiprocessing
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from sqlalchemy import Connection, Engine, event, insert, select, update

import tightbudget as tb
from tightbudget.ledger.acts import budget_acts
from tightbudget.ledger.tokens import Tokens
from tightbudget.promises.chain import Entry, Head, entry_after
from tightbudget.promises.units import Units

try:
    from tightbudget.ledger.store.schema import budgets, charges, events, reservations
except ImportError:  # an earlier version
    from tightbudget.ledger.schema import budgets, charges, events, reservations

COIN = tb.OutputDP({"yes": 1e-6, "no": 1e-7}, delta=1e-15)
BATCH = 5_000  # rows that are written at once
# earlier versions wrote the text of an event's details themselves
DETAILS_ARE_TEXT = inspect.signature(entry_after).parameters["details"].annotation == "str"
FORK = multiprocessing.get_context("fork")
Act = Callable[[], None]


def where() -> str:
    return str(Path(tb.__file__).resolve())


# ----------------------------------------------------------------- ledgers to measure with


def opened(url: str, names: list[str]) -> None:
    """Makes a ledger with these budgets, many of them in a transaction."""
    with tb.Ledger(url) as ledger:
        terms = budget_acts.Terms.of("output_dp", {"epsilon": 1_000, "delta": 1e-3})
        for first in range(0, len(names), BATCH):
            some = names[first : first + BATCH]
            ledger.session.write(
                lambda act, some=some: (
                    [
                        budget_acts.open_budget(act, name=name, terms=terms, parent=None)
                        for name in some
                    ]
                    and None
                )
            )


def token(url: str) -> str:
    """Makes a token that charges every budget."""
    with tb.Ledger(url, create=False) as ledger:
        return Tokens(ledger).create("load", "administrator", lasts=timedelta(hours=1))[1]


def history(url: str, size: int) -> None:
    """Makes a ledger with so many events, nearly all of them of runs like its first."""
    opened(url, ["data"])
    with tb.Ledger(url, create=False) as ledger:
        for key in ("run", "open"):
            hold = ledger.reserve(key, COIN, ["data"])
            hold.start()
            if key == "run":
                hold.settle("no")
        ledger._store.write(lambda connection: _repeat(connection, (size - 6) // 3))


def _repeat(connection: Connection, runs: int) -> None:
    """Writes the first run many times more, as the ledger would have; ``verify`` agrees."""
    in_order = select(events).order_by(events.c.sequence)
    past = [Entry(*row) for row in connection.execute(in_order)]
    steps = [entry for entry in past if entry.key == "run"]
    held = connection.execute(select(reservations).where(reservations.c.key == "run")).one()
    charge = connection.execute(select(charges).where(charges.c.reservation == held.id)).one()
    head = Head(past[-1].sequence, past[-1].hash)
    for first in range(0, runs, BATCH):
        entries, holds, lines = [], [], []
        for number in range(first, min(first + BATCH, runs)):
            name, start = f"run-{number}", head.sequence + 1
            for step in steps:
                entry = entry_after(
                    head, at=step.at, kind=step.kind, key=name, budget=step.budget,
                    units=Units(step.epsilon, step.delta), cell=step.cell,
                    details=step.details if DETAILS_ARE_TEXT else json.loads(step.details),
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


# ---------------------------------------------------------------------- many clients at once

# What clients do again and again: for an address, a function that makes a client of a name, which
# is a function in turn that does it once.
Client = Callable[[str], "contextlib.AbstractContextManager[Callable[[str], Act]]"]


@contextlib.contextmanager
def _runs(url: str) -> Iterator[Callable[[str], Act]]:
    """Runs of a ledger: reserve, start and settle, three transactions."""
    with tb.Ledger(url, create=False) as ledger:
        data = ledger.budget("data")

        def client(name: str) -> Act:
            numbers = iter(range(10**9))

            def run() -> None:
                hold = data.reserve(f"{name}-{next(numbers)}", COIN)
                hold.start()
                hold.settle("no")

            return run

        yield client


@contextlib.contextmanager
def _rows(url: str) -> Iterator[Callable[[str], Act]]:
    """Rows that are inserted into a bare table, each in a transaction of its own."""
    yield lambda name: _insert_into(url, name)


def _insert_into(url: str, name: str) -> Act:
    if url.startswith("sqlite"):
        file = bare_file(url)
        numbers = iter(range(10**9))

        def row() -> None:
            file.execute("BEGIN IMMEDIATE")
            file.execute("INSERT INTO bare VALUES (?, ?)", (f"{name}-{next(numbers)}", 0.5))
            file.execute("COMMIT")

        return row
    server = psycopg.connect(plain(url), autocommit=True)
    numbers = iter(range(10**9))

    def one() -> None:
        server.execute("INSERT INTO bare VALUES (%s, %s)", (f"{name}-{next(numbers)}", 0.5))

    return one


def bare_file(url: str) -> sqlite3.Connection:
    """Connects to a file of SQLite, as durable as the ledger is."""
    connection = sqlite3.connect(
        url.removeprefix("sqlite:///"), timeout=60, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def plain(url: str) -> str:
    """The address of a PostgreSQL database as psycopg has it."""
    return url.replace("+psycopg", "", 1)


def bare(url: str) -> None:
    """Makes the bare table."""
    made = "CREATE TABLE IF NOT EXISTS bare (name text, value double precision)"
    if url.startswith("sqlite"):
        with contextlib.closing(bare_file(url)) as file:
            file.execute("PRAGMA journal_mode = WAL")
            file.execute(made)
    else:
        with psycopg.connect(plain(url), autocommit=True) as server:
            server.execute(made)


class RefusedError(Exception):
    """An answer with a status other than 200: its arguments are the status and what it said."""


class _Connection:
    """A connection to a server, which stays open from request to request."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        parts = urlsplit(url)
        self._http = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=300)
        self._headers = headers | {"Content-Type": "application/json"}

    def post(self, path: str, **body: object) -> Any:
        self._http.request("POST", path, json.dumps(body), self._headers)
        answer = self._http.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RefusedError(answer.status, f"{path}: {content[:200]!r}")
        return json.loads(content)


@contextlib.contextmanager
def _requests(url: str) -> Iterator[Callable[[str], Act]]:
    """Requests to a served ledger: reserve, start, settle, and so on, one at each call."""
    address, _, secret = url.rpartition("#")
    guarantee = COIN.to_dict()

    def client(name: str) -> Act:
        wire = _Connection(f"{address}/", {"Authorization": f"Bearer {secret}"})

        def steps() -> Iterator[None]:
            for number in range(10**9):
                key = f"{name}-{number}"
                wire.post("/api/v1/reserve", key=key, guarantee=guarantee, budgets=["data"])
                yield
                started = wire.post("/api/v1/start", key=key)
                yield
                wire.post("/api/v1/settle", key=key, token=started["token"], cell="no")
                yield

        one = steps()
        return lambda: next(one)

    yield client


@contextlib.contextmanager
def _bare_requests(url: str) -> Iterator[Callable[[str], Act]]:
    """Requests to a server that inserts one row for each (``bare_server.py``)."""

    def client(name: str) -> Act:
        wire, numbers = _Connection(url, {}), iter(range(10**9))
        return lambda: wire.post("/insert", name=f"{name}-{next(numbers)}", value=0.5) and None

    yield client


CLIENTS: dict[str, Client] = {
    "runs": _runs,
    "rows": _rows,
    "requests": _requests,
    "bare requests": _bare_requests,
}


def clients(what: str, url: str, name: str, processes: int, threads: int, seconds: float) -> Any:
    """Lets clients work at the same time.

    Args:
        what: the work, a name in ``CLIENTS``.
        url: the ledger, table or server.
        name: a text that no other call has used, for keys.
        processes: how many processes.
        threads: how many clients each of them has.
        seconds: for how long.

    Returns:
        the seconds from the beginning to the last answer, and those of each answer of each client.
    """
    gate = FORK.Barrier(processes)
    ears = []
    for number in range(processes):
        ours, theirs = FORK.Pipe()
        process = FORK.Process(
            target=_client,
            args=(what, url, f"{name}-{number}", threads, seconds, gate, theirs),
            daemon=True,
        )
        process.start()
        theirs.close()
        ears.append((process, ours))
    took, answers = 0.0, []
    for process, ear in ears:
        one, some = ear.recv()
        took = max(took, one)
        answers += some
        process.join()
    return [took, answers]


def _client(
    what: str, url: str, name: str, threads: int, seconds: float, gate: Any, ear: Any
) -> None:
    answers: list[list[float]] = [[] for _ in range(threads)]
    failures: list[BaseException] = []
    with CLIENTS[what](url) as client:
        acts = [client(f"{name}-{thread}") for thread in range(threads)]
        acts[0]()  # what is loaded on first use is nobody's wait
        gate.wait(120)
        start = time.perf_counter()

        def work(act: Act, mine: list[float]) -> None:
            now = start
            try:
                while now < start + seconds:
                    act()
                    was, now = now, time.perf_counter()
                    mine.append(now - was)
            except BaseException as failure:
                failures.append(failure)

        workers = [
            threading.Thread(target=work, args=pair) for pair in zip(acts, answers, strict=True)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        took = time.perf_counter() - start
    if failures:
        raise failures[0]
    ear.send((took, answers))


# ------------------------------------------------------------------- a run on many budgets


def run_on(url: str, names: list[str], key: str) -> dict[str, Any]:
    """Times one run on all of these budgets, while another client charges the budget ``data``."""
    return _run(url, key, lambda ledger: ledger.reserve(key, COIN, names))


def run_on_blocks(url: str, blocks: int, key: str, small: int) -> dict[str, Any]:
    """Times one run on so many blocks, after small acts of the same client.

    Between the small acts PostgreSQL gathers its statistics, as it does by itself every minute. The
    plans of the small acts, and these statistics, are what the run on many blocks finds.
    """

    def reserve(ledger: tb.Ledger) -> Any:
        pages = ledger.blocks("pages", by=["page"], epsilon=1, delta=1e-3, rows_in="one block")
        return pages.where(page=f"1..{blocks}").reserve(key, COIN)

    def acts(ledger: tb.Ledger) -> None:
        for number in range(2 * small):
            ledger.reserve(f"{key} small {number}", COIN, ["data"]).void()
            if number == small and url.startswith("postgresql"):
                with psycopg.connect(plain(url), autocommit=True) as server:
                    server.execute("VACUUM ANALYZE")

    return _run(url, key, reserve, acts)


def _run(
    url: str,
    key: str,
    reserve: Callable[[tb.Ledger], Any],
    before: Callable[[tb.Ledger], object] = tb.Ledger.head,
) -> dict[str, Any]:
    """Times one run, while another client charges the budget ``data``.

    Args:
        url: the ledger.
        key: the key of the run.
        reserve: reserves it.
        before: what is done before, by the same client.

    Returns:
        for each act, and for ``hold(key)``, its seconds, its CPU seconds and its statements; the
        peak memory of the process; and the longest that the other client has waited for an act.
    """
    ours, theirs = FORK.Pipe()
    other = FORK.Process(target=_other, args=(url, f"{key} beside", theirs), daemon=True)
    other.start()
    theirs.close()
    ours.recv()
    row: dict[str, Any] = {}
    with tb.Ledger(url, create=False) as ledger:
        before(ledger)
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
        hold, row["reserve"] = _counted(lambda: reserve(ledger))
        _, row["start"] = _counted(hold.start)
        _, row["settle"] = _counted(lambda: hold.settle("no"))
        _, row["hold"] = _counted(lambda: ledger.hold(key))
        row["peak_mb"] = _megabytes("VmHWM")
    ours.send("stop")
    row["worst_wait"] = ours.recv()
    other.join()
    return row


def _counted(ask: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    sent: list[str] = []

    def count(_: object, __: object, statement: str, *___: object) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", count)
    cpu, start = time.process_time(), time.perf_counter()
    answer = ask()
    row = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    event.remove(Engine, "before_cursor_execute", count)
    return answer, row | {"statements": len(sent)}


def _other(url: str, name: str, ear: Any) -> None:
    waits = []

    def waited(ask: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        answer = ask()
        waits.append(time.perf_counter() - start)
        return answer

    with tb.Ledger(url, create=False) as ledger:
        data, number = ledger.budget("data"), 0
        data.reserve(name, COIN).void()  # what is loaded on first use is no wait
        ear.send("ready")
        while not ear.poll():
            key = f"{name} {number}"
            hold = waited(lambda key=key: data.reserve(key, COIN))
            waited(hold.start)
            waited(lambda hold=hold: hold.settle("no"))
            number += 1
            time.sleep(0.01)  # one that waits, and is no load of its own
    ear.send(max(waits))


def request_on(url: str, names: list[str], key: str) -> dict[str, Any]:
    """Times one run on all of these budgets over HTTP; or says with which status it was refused."""
    address, _, secret = url.rpartition("#")
    wire = _Connection(f"{address}/", {"Authorization": f"Bearer {secret}"})
    row: dict[str, Any] = {}

    def timed(act: str, **body: object) -> Any:
        start = time.perf_counter()
        answer = wire.post(f"/api/v1/{act}", key=key, **body)
        row[act] = time.perf_counter() - start
        return answer

    try:
        timed("reserve", guarantee=COIN.to_dict(), budgets=names)
        started = timed("start")
        timed("settle", token=started["token"], cell="no")
    except RefusedError as refusal:
        return {"refused": f"refused ({refusal.args[0]})"}
    return row


# --------------------------------------------------------------------------- long histories


def verified(url: str) -> dict[str, float]:
    """Verifies a ledger in this process, which has done nothing else."""
    before = _megabytes("VmRSS")
    with tb.Ledger(url, create=False) as ledger:
        cpu, start = time.process_time(), time.perf_counter()
        found = ledger.verify()
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {
        "events": found.head.sequence,
        "seconds": seconds,
        "cpu": cpu,
        "peak_mb": _megabytes("VmHWM"),
        "idle_mb": before,
    }


def _megabytes(what: str) -> float:
    """A size of this process, as Linux has it: VmHWM is the most that it has held."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return float(line.split()[1]) / 2**10
    raise RuntimeError(f"this system does not say {what}")


# -------------------------------------------------------------------------------------- main

JOBS = {
    job.__name__: job
    for job in (
        where,
        opened,
        token,
        history,
        bare,
        clients,
        run_on,
        run_on_blocks,
        request_on,
        verified,
    )
}


def main() -> None:
    answers = os.dup(1)  # what anything else prints goes to the errors
    os.dup2(2, 1)
    with os.fdopen(answers, "w") as out:
        for line in sys.stdin:
            job, arguments = json.loads(line)
            out.write(json.dumps(JOBS[job](**arguments)) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
