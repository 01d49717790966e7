"""Ways to sample, beside two neighbours: ``make bench``.

    python benchmarks/sampling.py [--limit SECONDS] [--out FOLDER]

Every answer is asked of a fresh process, which is stopped after some time: its seconds are those of
the question alone, with everything imported and one small question asked before; its memory is the
peak of the whole process. The neighbours are PLD_accounting with Numba, which bounds random
allocation, and dp-accounting. A full run writes sampling.json beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIMIT = 60.0  # seconds for one answer
Ends = tuple[float | None, float]  # a lower bound, where there is one, and an upper one
DELTA = 1e-6


def _tight(run: Callable[[Any], Any]) -> Callable[[], Ends]:
    def ask() -> Ends:
        import tightbudget as tb

        bounds = run(tb).epsilon(DELTA)
        return bounds.lower, bounds.upper

    return ask


def _allocation(sigma: float, steps: int, epochs: int) -> Callable[[], Ends]:
    def ask() -> Ends:
        import PLD_accounting

        upper, lower = PLD_accounting.gaussian_allocation_epsilon_range(
            delta=DELTA, sigma=sigma, num_steps=steps, num_epochs=epochs
        )
        return float(lower), float(upper)

    return ask


def _event(make: Callable[[Any], Any], count: int) -> Callable[[], Ends]:
    def ask() -> Ends:
        from dp_accounting import dp_event
        from dp_accounting.pld import PLDAccountant

        return None, float(PLDAccountant().compose(make(dp_event), count).get_epsilon(DELTA))

    return ask


def _copies(size: int, rate: float) -> Callable[[Any], Any]:
    def make(events: Any) -> Any:
        from scipy import stats

        sizes = list(range(size + 1))
        shares = [float(stats.binom.pmf(copies, size, rate)) for copies in sizes]
        return events.MixtureOfGaussiansDpEvent(1.0, sizes, shares)

    return make


# title, ours, the neighbour's name, theirs
ROWS: dict[str, tuple[str, Callable[[], Ends], str, Callable[[], Ends] | None]] = {
    "allocation-1": (
        "random allocation, σ = 1, 1,000 steps, one epoch",
        _tight(lambda tb: tb.Gaussian(1.0).allocated(1000)),
        "PLD_accounting",
        _allocation(1.0, 1000, 1),
    ),
    "allocation-10": (
        "random allocation, σ = 1, 1,000 steps, ten epochs",
        _tight(lambda tb: tb.Gaussian(1.0).allocated(1000) * 10),
        "PLD_accounting",
        _allocation(1.0, 1000, 10),
    ),
    "allocation-100": (
        "random allocation, σ = 2, 100 steps, one epoch",
        _tight(lambda tb: tb.Gaussian(2.0).allocated(100)),
        "PLD_accounting",
        _allocation(2.0, 100, 1),
    ),
    "shuffled": (
        "a real shuffle, σ = 0.5, 1,000 batches, ten epochs",
        _tight(lambda tb: tb.Gaussian(0.5).shuffled(1000) * 10),
        "",
        None,
    ),
    "truncated": (
        "Poisson, rate 0.001 of 60,000, at most 80, σ = 1, × 1,000",
        _tight(lambda tb: tb.Gaussian(1.0).truncated_poisson(0.001, 80, 60_000) * 1000),
        "dp-accounting",
        _event(
            lambda events: events.TruncatedSubsampledGaussianDpEvent(60_000, 0.001, 80, 1.0), 1000
        ),
    ),
    "batches": (
        "fixed batches, 600 of 60,000, σ = 4, × 10,000",
        _tight(lambda tb: tb.Gaussian(4.0).batches(600, 60_000) * 10_000),
        "",
        None,
    ),
    "group-4": (
        "groups of 4, rate 0.01, σ = 1, × 1,000",
        _tight(lambda tb: tb.Gaussian(1.0).subsampled(0.01).group(4) * 1000),
        "dp-accounting",
        _event(_copies(4, 0.01), 1000),
    ),
    "group-16": (
        "groups of 16, rate 0.01, σ = 1, × 1,000",
        _tight(lambda tb: tb.Gaussian(1.0).subsampled(0.01).group(16) * 1000),
        "dp-accounting",
        _event(_copies(16, 0.01), 1000),
    ),
    "best": (
        "banded noise (4 bands), 100 balls in bins, σ = 8, 1,000 steps",
        _tight(
            lambda tb: tb.CorrelatedNoise.toeplitz([1.0, 0.5, 0.25, 0.125], 1000).allocated(
                8.0, 100
            )
        ),
        "",
        None,
    ),
}


def _peak_mb() -> float:
    # of this process alone: getrusage remembers the parent's peak
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) / 2**10
    return 0.0


def _answer(key: str, ours: bool) -> None:
    """Asks one question, and prints what is measured as JSON."""
    warnings.simplefilter("ignore")
    _, mine, _, theirs = ROWS[key]
    ask = mine if ours or theirs is None else theirs
    if ours:
        _tight(lambda tb: tb.Gaussian(5.0))()
    else:  # what is compiled or imported on first use is nobody's cost
        _event(lambda events: events.GaussianDpEvent(5.0), 1)()
        if "allocation" in key:
            _allocation(20.0, 2, 1)()
    wall, cpu = time.perf_counter(), time.process_time()
    lower, upper = ask()
    found = {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "lower": lower,
        "upper": upper,
        "peak_mb": _peak_mb(),
    }
    sys.stdout.write(json.dumps(found))


def _measured(key: str, who: str, limit: float) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).resolve()), "--one", key, who]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=limit + 15
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"no answer in {limit:g} s"}
    if done.returncode:
        return {"failure": (done.stderr.strip().splitlines() or ["stopped"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _shown(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "–"
    if "failure" in cell:
        return str(cell["failure"])
    ends = f"≤ {cell['upper']:.6g}"
    if cell["lower"] is not None:
        ends = f"[{cell['lower']:.6g}, {cell['upper']:.6g}]"
    return f"{ends}, {cell['seconds']:.2g} s, {cell['peak_mb']:.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for one answer")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for sampling.json")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        _answer(options.one[0], options.one[1] == "ours")
        return
    rows = []
    for key, (title, _, name, theirs) in ROWS.items():
        row: dict[str, Any] = {
            "key": key,
            "title": title,
            "delta": DELTA,
            "ours": _measured(key, "ours", options.limit),
            "neighbour": name,
            "theirs": _measured(key, "theirs", options.limit) if theirs else None,
        }
        sys.stdout.write(f"{title}\n  {_shown(row['ours'])}\n")
        sys.stdout.write(f"  {name}: {_shown(row['theirs'])}\n" if theirs else "")
        sys.stdout.flush()
        rows.append(row)
    results = {
        "date": date.today().isoformat(),
        "load": os.getloadavg()[0],
        "cores": os.cpu_count(),
        "limit": options.limit,
        "versions": {name: _version(name) for name in ("dp-accounting", "PLD_accounting", "numba")},
        "rows": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    content = json.dumps(results, indent=1, ensure_ascii=False)
    (options.out / "sampling.json").write_text(content + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
