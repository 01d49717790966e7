"""What a charge over HTTP costs: one client, ten and fifty, against ``tightbudget serve``.

    python benchmarks/web.py [--quick] [--out FOLDER] [--disk FOLDER]

Clients are threads of this process, each with a connection of its own; the server is a process
beside it, on the same machine. A run is reserve + start + settle: three requests, each durable
when it is answered. On SQLite and on a PostgreSQL server of its own: requests per second, and the
time within which half, 95 and 99 of 100 are answered. Afterwards the ledger is verified. A full run
writes web.json beside this file.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from report import web as as_markdown
from run import HERE, _machine, save
from tests.ledger.servers import OwnServer
from tests.web.load import Clients, Program, prepared

import tightbudget as tb

CLIENTS = (1, 10, 50)


def _measured(url: str, folder: Path, clients: int, seconds: float) -> dict[str, float]:
    token = prepared(url)
    with Program(url, folder / "log").running() as program:
        them = Clients(program.url, token, clients)
        start = time.perf_counter()
        with them.at_work():
            time.sleep(seconds)
        took = time.perf_counter() - start
    with tb.Ledger(url) as ledger:
        ledger.verify()
    slowest = sorted(them.seconds)
    failed = sum(run.failure is not None for runs in them.runs for run in runs)
    within = {f"p{p}": slowest[len(slowest) * p // 100] for p in (50, 95, 99)}
    return {"requests_per_s": len(slowest) / took, "failed": failed, **within}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two seconds of each")
    parser.add_argument("--out", type=Path, help="folder for web.json")
    parser.add_argument("--disk", type=Path, help="folder for the databases")
    options = parser.parse_args()
    results: dict[str, Any] = {
        "machine": _machine(),
        "load": os.getloadavg()[0],
        "seconds": 2 if options.quick else 30,
    }
    with tempfile.TemporaryDirectory(dir=options.disk) as name:
        folder, server = Path(name), OwnServer(options.disk)
        for clients in CLIENTS:
            urls = f"sqlite:///{folder}/{clients}.db", server.create_database()
            for kind, url in zip(("SQLite", "PostgreSQL"), urls, strict=True):
                row = _measured(url, folder, clients, results["seconds"])
                results.setdefault(kind, {})[str(clients)] = row
        server.close()
    text = as_markdown(results)
    sys.stdout.write(text)
    out = options.out or (None if options.quick else HERE)
    if out:
        save(out, "web", results)


if __name__ == "__main__":
    main()
