"""What charges over HTTP cost beside a bare endpoint, and pages of many budgets; now and before.

    python benchmarks/web.py [--quick | --large] [--before COMMIT] [--out FOLDER] [--disk FOLDER]

On SQLite and on a PostgreSQL server of its own, in turns: ``tightbudget serve`` of this tree, that
of an earlier commit (``--before``), and a server of the same framework whose one endpoint inserts
one row (``bare_server.py``). Clients and server share the machine.

- 1, 8 and 32 clients with a connection each: requests to reserve, start and settle.
- one run on 1 to 10,000 budgets, which before was refused above 100.
- the first page, a budget's page and a search in it, of a ledger with 10^4 budgets.

``--quick`` takes a second of each and writes nothing; ``--large`` takes longer, and asks for the
pages of 10^5 budgets. Without ``--quick`` the results go to web.json beside this file.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from report import web as as_markdown
from run import HERE, _machine, save
from tests.ledger.servers import OwnServer
from versions import NOW, Version, Worker, serving

from ledger import CLIENTS, arguments, measured_versions, side_by_side, summary

PROCESSES = 4  # of clients: of more, their own share of the processors would be measured
SLOW = 5.0  # a page that takes longer is asked for once
PAGES = {
    "first page": "/",
    "page of a budget": "/budget?name=budget%20000007",
    "search on it": "/budget?name=budget%20000007&search=nothing%20has%20this",
}


def _charges(
    versions: list[Version], fresh: Callable[[str], str], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    seconds, rounds = (1.0, 1) if options.quick else (5.0, 3) if options.large else (2.0, 2)
    table: dict[str, Any] = {}
    with ExitStack() as stack:
        worker = stack.enter_context(Worker(NOW))
        urls = {"bare": fresh("bare")}
        worker.does("bare", url=urls["bare"])
        words = [str(HERE / "bare_server.py"), urls["bare"]]
        places = {"bare": stack.enter_context(serving(words, NOW, folder / "log"))}
        for version in versions:
            url = fresh(version.name)
            with Worker(version) as maker:
                maker.does("opened", url=url, names=["data"])
                secret = maker.does("token", url=url)
            words = ["-m", "tightbudget", "serve", "--ledger", url, "--port", "0"]
            place = stack.enter_context(serving(words, version, folder / "log"))
            urls[version.name], places[version.name] = url, f"{place}#{secret}"
        for number in CLIENTS:
            processes = min(number, PROCESSES)

            def turn(name: str, processes: int = processes, number: int = number) -> Any:
                what = "bare requests" if name == "bare" else "requests"
                return lambda key: summary(
                    *worker.does(
                        "clients", what=what, url=places[name], name=f"{number} {key}",
                        processes=processes, threads=number // processes, seconds=seconds,
                    )
                )  # fmt: skip

            table[str(number)] = side_by_side({name: turn(name) for name in places}, rounds)
    for version in versions:
        with Worker(version) as reader:
            reader.does("verified", url=urls[version.name])
    return table


def _budgets(
    versions: list[Version], fresh: Callable[[str], str], sizes: tuple[int, ...], folder: Path
) -> dict[str, Any]:
    """One run on so many budgets, of each version."""
    table: dict[str, Any] = {str(size): {} for size in sizes}
    names = [f"budget {number:06}" for number in range(max(sizes))]
    for version in versions:
        url = fresh(f"many-{version.name}")
        with Worker(version) as worker:
            worker.does("opened", url=url, names=names)
            secret = worker.does("token", url=url)
            words = ["-m", "tightbudget", "serve", "--ledger", url, "--port", "0"]
            with serving(words, version, folder / "log") as place:
                served = f"{place}#{secret}"
                worker.does("request_on", url=served, names=names[:1], key="first")
                for size in sizes:
                    table[str(size)][version.name] = worker.does(
                        "request_on", url=served, names=names[:size], key=f"on {size}"
                    )
    return table


def _pages(version: Version, url: str, budgets: int, folder: Path) -> dict[str, Any]:
    with Worker(version) as maker:
        names = ["data", *(f"budget {number:06}" for number in range(budgets))]
        maker.does("opened", url=url, names=names)
        maker.does("run_on", url=url, names=["budget 000007"], key="one")
    words = ["-m", "tightbudget", "serve", "--ledger", url, "--port", "0"]
    with serving(words, version, folder / "log") as place:
        _asked(f"{place}/sign-in")  # loads what pages load once
        return {title: _page(place + path) for title, path in PAGES.items()}


def _page(url: str) -> dict[str, float]:
    seconds: list[float] = []
    while True:
        start = time.perf_counter()
        size = _asked(url)
        seconds.append(time.perf_counter() - start)
        if len(seconds) == 5 or seconds[0] > SLOW:
            return {"seconds": statistics.median(seconds), "kb": size / 1e3}


def _asked(url: str) -> int:
    with urllib.request.urlopen(url, timeout=600) as answer:
        return len(answer.read())


def main() -> None:
    options = arguments(argparse.ArgumentParser(description=__doc__.splitlines()[0]))
    budgets = (100,) if options.quick else (10**4, 10**5) if options.large else (10**4,)
    sizes = (1, 100) if options.quick else (1, 100, 1_000, 10_000)
    with tempfile.TemporaryDirectory(dir=options.disk) as name:
        folder, server = Path(name), OwnServer(options.disk)
        versions = measured_versions(options, folder)
        kinds: dict[str, Callable[[str], str]] = {
            "SQLite": lambda of: f"sqlite:///{folder}/{of}.db",
            "PostgreSQL": lambda of: server.create_database(),
        }
        results: dict[str, Any] = {
            "machine": _machine(),
            "load": os.getloadavg()[0],
            "before": options.before,
            **{kind: _charges(versions, fresh, folder, options) for kind, fresh in kinds.items()},
            "budgets": {
                kind: _budgets(versions, fresh, sizes, folder) for kind, fresh in kinds.items()
            },
            "pages": {
                str(number): {
                    version.name: _pages(
                        version, kinds["SQLite"](f"{number}-{version.name}"), number, folder
                    )
                    for version in versions
                }
                for number in budgets
            },
        }
        server.close()
    results["load"] = max(results["load"], os.getloadavg()[0])
    sys.stdout.write(as_markdown(results))
    out = options.out or (None if options.quick else HERE)
    if out:
        save(out, "web", results)


if __name__ == "__main__":
    main()
