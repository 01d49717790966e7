"""Times every workload beside dp-accounting, all in one process: ``make bench``.

    python benchmarks/run.py [--only TEXT] [--quick] [--no-peers] [--runs N] [--out FOLDER]

For each workload: the median time of tightbudget's two certified bounds at rtol = 1e-4, the
gap between them, the gap at delta = 1e-50, the peak memory of a fresh process that answers
the question once, and the median time and answer of the neighbour. A full run writes
results.json beside this file; a partial one only prints.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from report import HEADINGS, cells, summary
from rich.console import Console
from rich.table import Table
from workloads import WORKLOADS, Workload

HERE = Path(__file__).resolve().parent
RTOL = 1e-4  # tightbudget's default
FAR = 1e-50  # a delta in the far tail
LIMIT = 60.0  # seconds for one call of the neighbour
SLOW = 5.0  # a call that takes longer is made once


# -------------------------------------------------------------------------- measuring


class _OutOfTimeError(Exception):
    pass


@contextlib.contextmanager
def _limit(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _timed(ask: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """Median seconds, and the answer; one run if that takes long."""
    seconds: list[float] = []
    while True:
        start = time.perf_counter()
        answer = ask()
        seconds.append(time.perf_counter() - start)
        if len(seconds) >= runs or seconds[0] > SLOW:
            return statistics.median(seconds), answer


def _ours(workload: Workload, runs: int) -> dict[str, Any]:
    try:
        seconds, bounds = _timed(workload.answer, runs)
        row: dict[str, Any] = {
            "seconds": seconds,
            "epsilon": bounds.to_dict(),
            "relative_gap": bounds.relative_gap,
        }
        if workload.calibrates:
            row["value"] = workload.ours().value
    except Exception as error:
        return {"failure": f"{type(error).__name__}: {error}"}
    return row


def _far_tail(workload: Workload) -> dict[str, Any]:
    if workload.calibrates:
        return {}
    start = time.perf_counter()
    try:
        bounds = workload.ours().epsilon(FAR)
    except Exception as error:
        return {"far_tail": {"failure": f"{type(error).__name__}: {error}"}}
    seconds = time.perf_counter() - start
    return {"far_tail": {"relative_gap": bounds.relative_gap, "seconds": seconds}}


def _theirs(workload: Workload, runs: int) -> dict[str, Any]:
    try:
        with _limit(LIMIT), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds, answer = _timed(workload.theirs, runs)
    except _OutOfTimeError:
        return {"seconds": LIMIT, "failure": f"no answer in {LIMIT:g} s"}
    except Exception as error:
        return {"failure": f"{type(error).__name__}: {error}"}
    return {"seconds": seconds, "answer": float(answer)}


def _peak_memory(key: str) -> dict[str, Any]:
    """Megabytes that a fresh process holds at most, interpreter and NumPy included."""
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py"), "--memory-of", key],
        capture_output=True,
        text=True,
        check=False,
    )
    return {"peak_mb": float(done.stdout)} if done.returncode == 0 else {}


def _memory_of(key: str) -> None:
    with contextlib.suppress(Exception):  # a failure is reported by the timed run
        next(w for w in WORKLOADS if w.key == key).answer()
    sys.stdout.write(str(_peak_of_this_process()))


def _peak_of_this_process() -> float:
    with contextlib.suppress(OSError):  # Linux: getrusage there remembers the parent's peak
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) / 2**10
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def save(folder: Path, name: str, results: dict[str, Any]) -> None:
    """Writes the measured values; the documentation makes a table of them when it is built."""
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(results, indent=1, ensure_ascii=False)
    (folder / f"{name}.json").write_text(content + "\n", encoding="utf-8")


def _machine() -> dict[str, Any]:
    model = platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "scipy": version("scipy"),
        "tightbudget": version("tightbudget"),
        "date": date.today().isoformat(),
    }


# ------------------------------------------------------------------------------ telling


def _print(console: Console, results: dict[str, Any]) -> None:
    table = Table(box=None, header_style="bold")
    for i, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if i in (0, 2, 9) else "right")
    for row in results["rows"]:
        table.add_row(*cells(row))
    console.print(table)
    mean = results["geometric_mean_ratio"]
    if mean is not None:
        console.print(f"ratios of the times: {summary(results)}")


# --------------------------------------------------------------------------------- main


def measure(workload: Workload, runs: int, peers: bool, extras: bool) -> dict[str, Any]:
    """One row."""
    row: dict[str, Any] = {
        "key": workload.key,
        "title": workload.title,
        "delta": workload.delta,
        "calibrates": workload.calibrates,
        "ours": _ours(workload, runs),
        "ratio": None,
    }
    if extras:
        row |= _far_tail(workload) | _peak_memory(workload.key)
    if peers:
        row["theirs"] = _theirs(workload, runs)
        if "seconds" in row["theirs"] and "seconds" in row["ours"]:
            row["ratio"] = row["theirs"]["seconds"] / row["ours"]["seconds"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="workloads whose key contains this text")
    parser.add_argument("--quick", action="store_true", help="one call each, no memory, no tail")
    parser.add_argument("--no-peers", action="store_true", help="tightbudget alone")
    parser.add_argument("--runs", type=int, default=5, help="calls that a median is taken of")
    parser.add_argument("--out", type=Path, help="folder for results.json")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        _memory_of(options.memory_of)
        return
    chosen = [w for w in WORKLOADS if options.only in w.key]
    runs = 1 if options.quick else options.runs
    console = Console(width=None if sys.stdout.isatty() else 240)
    rows = []
    with console.status("") as status:
        WORKLOADS[0].answer()  # what loads on first use is nobody's cost
        if not options.no_peers:
            WORKLOADS[0].theirs()
        for workload in chosen:
            status.update(f"{workload.title}, δ = {workload.delta:g}")
            rows.append(measure(workload, runs, not options.no_peers, not options.quick))
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    results = {
        "machine": _machine(),
        "dp_accounting": None if options.no_peers else version("dp-accounting"),
        "runs": runs,
        "rtol": RTOL,
        "geometric_mean_ratio": statistics.geometric_mean(ratios) if ratios else None,
        "smallest_ratio": min(ratios, default=None),
        "median_ratio": statistics.median(ratios) if ratios else None,
        "rows": rows,
    }
    _print(console, results)
    partial = options.only or options.quick or options.no_peers
    folder = options.out or (None if partial else HERE)
    if folder:
        save(folder, "results", results)


if __name__ == "__main__":
    main()
