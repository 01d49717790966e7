"""A first look: what four things cost, with two certified ends each, and a ledger that remembers.

Run by ``make demo``.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

import tightbudget as tb
from tightbudget.accounting.plot import save_plot
from tightbudget.cli.histogram import read_numbers

HERE = Path(__file__).resolve().parent
MEASURED = HERE.parents[1] / "shared" / "data" / "coverup"  # beside the repository
DELTAS = [10.0**-k for k in range(2, 13)]

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE.parent / "demo-output")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    print("Every answer is an interval in which the exact value is certified to lie.")
    start = time.perf_counter()
    dp_sgd(out)
    plan(out)
    calibration()
    coverup(out)
    ledger()
    print(f"\n{time.perf_counter() - start:.1f} s in all. The pictures are in {out}")


def dp_sgd(out: Path) -> None:
    title("DP-SGD: 65,536 steps, noise sigma = 4, sampling rate 0.01")
    run = tb.Gaussian(sigma=4.0).subsampled(rate=0.01) * 65_536
    say("epsilon at delta = 1e-5", lambda: run.epsilon(delta=1e-5))
    say("the same, a hundred times closer", lambda: run.epsilon(delta=1e-5, rtol=1e-6))
    say("delta at epsilon = 3", lambda: run.delta(epsilon=3.0))
    curve = timed("curve, 11 points", lambda: run.curve(deltas=DELTAS))
    save_plot({"": curve}, out / "dp-sgd.png", "DP-SGD: σ = 4, q = 0.01, 65,536 steps")


def plan(out: Path) -> None:
    title("A plan file with four different mechanisms: examples/plan.toml")
    run = tb.read_plan(HERE / "plan.toml")
    print(f"  {run.runs:,} runs of {len(run.parts)} mechanisms")
    say("epsilon at delta = 1e-5", lambda: run.epsilon(delta=1e-5))
    say("delta at epsilon = 0 (total variation)", run.total_variation)
    curve = timed("curve, 11 points", lambda: run.curve(deltas=DELTAS))
    save_plot({"": curve}, out / "plan.png", f"examples/plan.toml: {run.runs:,} runs")


def calibration() -> None:
    title("How much noise is enough? 10,000 DP-SGD steps for epsilon = 1, delta = 1e-6")
    found = timed(
        "search",
        lambda: tb.calibrate(
            lambda sigma: tb.Gaussian(sigma).subsampled(rate=0.01) * 10_000,
            epsilon=1.0,
            delta=1e-6,
        ),
    )
    print(f"  {'smallest sigma that meets it':<42} {found.value!r}")
    print(f"  {'epsilon there':<42} {found.epsilon}")


def coverup(out: Path) -> None:
    title("Measured: who takes part in CoverUp, after 512 timer delays with 200 ms of noise?")
    if not MEASURED.is_dir():
        print("  skipped: no measurements in ../shared/data/coverup")
        return
    delays = tb.Histogram.from_samples(
        read_numbers(str(MEASURED / "active.csv.gz")),
        read_numbers(str(MEASURED / "passive.csv.gz")),
        bin_width=1.0,  # ms
        keep_below=300.0,  # ms: the tab is in the foreground
        noise="uniform:200",  # ms
    )
    run = delays * 512
    floor = say("delta at any epsilon: certain give-aways", lambda: run.delta(epsilon=math.inf))
    say("epsilon at delta = 1e-4, below that floor", lambda: run.epsilon(delta=1e-4))
    say("epsilon at delta = 1e-2", lambda: run.epsilon(delta=1e-2))
    say("delta at epsilon = 1", lambda: run.delta(epsilon=1.0))
    curve = timed("curve, 49 points", lambda: run.curve(epsilons=np.linspace(0.0, 12.0, 49)))
    save_plot(
        {"": curve},
        out / "coverup.png",
        "CoverUp timer delays: 512 observed, foreground, uniform noise of 200 ms\n"
        f"(some delays give it away for certain: δ ≥ {floor.lower:.3g} for every ε)",
    )


def ledger() -> None:
    title("A ledger: ten searches, 0.3 if they find something and 0.1 if not, from epsilon = 2")
    search = tb.OutputDP({"found": 0.3, "not found": 0.1})
    with tempfile.TemporaryDirectory() as folder, tb.Ledger(f"sqlite:///{folder}/b.db") as book:
        ada = book.open_budget("ada", epsilon=2.0, delta=1e-6)
        for i in range(10):
            hold = ada.reserve(f"search {i}", search)
            hold.start()
            if i != 4:  # the fifth never comes back: its worst case stays held
                hold.settle("found" if i % 3 == 0 else "not found")
        for name in ("spent", "held", "left", "saved"):
            print(f"  {name:<42} {getattr(ada, name)}")
        found = timed("the whole history again, and all balances", book.verify)
        print(f"  {'the head of the history, to be kept elsewhere':<42} {str(found.head)[:40]}...")


def title(text: str) -> None:
    print(f"\n{text}")


def timed(name: str, ask: Callable[[], T]) -> T:
    start = time.perf_counter()
    answer = ask()
    seconds = time.perf_counter() - start
    shown = str(answer) if isinstance(answer, tb.Bounds) else ""
    print(f"  {name:<42} {shown:<46} {seconds:7.3f} s")
    return answer


def say(name: str, ask: Callable[[], tb.Bounds]) -> tb.Bounds:
    return timed(name, ask)


if __name__ == "__main__":
    main()
