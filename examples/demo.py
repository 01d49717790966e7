"""A first look: what four things cost, between certified bounds, and a ledger that remembers.

Run by ``make demo``. The pictures put the certified curve beside what people use instead: the
epsilons of all runs added up, advanced composition, and Renyi divergences.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import tightbudget as tb
from tightbudget.cli.histogram import read_numbers
from tightbudget.drawing import picture
from tightbudget.theorems import advanced, naive, renyi

HERE = Path(__file__).resolve().parent
DELTAS = [10.0**-k for k in range(2, 13)]
FEW = [1e-2, 1e-5, 1e-8, 1e-11]  # at which the other bounds are asked

COLOURS = {"added up": "#b07d12", "advanced": "#7b4ea3", "Rényi": "#b3452c"}

T = TypeVar("T")
Bound = Callable[[float], float]  # from delta to epsilon


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
    delays(out)
    ledger()
    print(f"\n{time.perf_counter() - start:.1f} s in all. The pictures are in {out}")


def dp_sgd(out: Path) -> None:
    title("DP-SGD: 65,536 steps, noise sigma = 4, sampling rate 0.01")
    run = tb.Gaussian(sigma=4.0).subsampled(rate=0.01) * 65_536
    say("epsilon at delta = 1e-5", lambda: run.epsilon(delta=1e-5))
    say("the same, a hundred times closer", lambda: run.epsilon(delta=1e-5, rtol=1e-6))
    say("delta at epsilon = 3", lambda: run.delta(epsilon=3.0))
    others = {"added up": added_up(run), "advanced": by_advanced(run), "Rényi": by_renyi(run)}
    beside(run, others, out / "dp-sgd.png", "DP-SGD: σ = 4, q = 0.01, 65,536 steps")


def plan(out: Path) -> None:
    title("A plan file with four different mechanisms: examples/plan.toml")
    run = tb.read_plan(HERE / "plan.toml")
    print(f"  {run.runs:,} runs of {len(run.parts)} mechanisms")
    say("epsilon at delta = 1e-5", lambda: run.epsilon(delta=1e-5))
    say("delta at epsilon = 0 (total variation)", run.total_variation)
    others = {"added up": added_up(run), "Rényi": by_renyi(run)}
    beside(run, others, out / "plan.png", f"examples/plan.toml: {run.runs:,} runs")


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


def delays(out: Path) -> None:
    title("Who takes part, as 512 delays tell that have Gaussian noise of 100 ms?")
    print("  (examples/delays: 5,000 delays of each kind in ms, made up, from a seed)")
    seen = tb.HistogramPair.from_samples(
        read_numbers(str(HERE / "delays" / "active_made_up.csv")),
        read_numbers(str(HERE / "delays" / "passive_made_up.csv")),
        bin_width=1.0,  # ms
        noise="gaussian:100",  # ms
    )
    run = seen * 512
    say("epsilon at delta = 1e-5", lambda: run.epsilon(delta=1e-5))
    say("delta at epsilon = 1", lambda: run.delta(epsilon=1.0))
    say("advantage of whoever guesses", run.total_variation)
    others = {"added up": added_up(run), "advanced": by_advanced(run)}
    beside(run, others, out / "delays.png", "Made-up delays: 512 seen, Gaussian noise of 100 ms")


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


# ------------------------------------------------------------- what people use instead


def added_up(run: tb.Composition) -> Bound:
    """The epsilons of all runs added up, each at an equal share of delta."""

    def epsilon(delta: float) -> float:
        share = delta / run.runs
        steps = [(tb.compose([m]).epsilon(share).upper, share, k) for m, k in run.parts]
        return naive.total(steps)[0].upper

    return epsilon


def by_advanced(run: tb.Composition) -> Bound:
    """Advanced composition of equal runs, each at a share of half of delta."""
    ((step, times),) = run.parts

    def epsilon(delta: float) -> float:
        share = 0.5 * delta / times
        return advanced.epsilon(tb.compose([step]).epsilon(share).upper, share, times, delta).upper

    return epsilon


def by_renyi(run: tb.Composition) -> Bound:
    """Renyi divergences, at the best order."""
    divergence = functools.cache(run.renyi)
    return lambda delta: renyi.epsilon(divergence, delta).upper


def beside(run: tb.Composition, others: dict[str, Bound], path: Path, heading: str) -> None:
    """Prints and draws the certified curve of a composition beside other bounds."""
    curve = timed("curve, 11 points", lambda: run.curve(deltas=DELTAS))
    with picture(path, heading) as ax:
        curve.plot(ax=ax)
        for name, bound in others.items():
            start = time.perf_counter()
            found = [bound(delta) for delta in FEW]
            seconds = time.perf_counter() - start
            at = f"at most {found[1]:,.4g} at delta = {FEW[1]:g}"
            print(f"  {f'by others: {name}':<42} {at:<46} {seconds:7.3f} s")
            times = found[1] / run.epsilon(FEW[1]).upper
            label = f"{name}: {times:.3g} times that at δ = 1e-5"
            ax.plot(found, FEW, "s--", color=COLOURS[name], lw=1.2, ms=3.5, label=label)
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.get_legend().remove()
        ax.figure.legend(loc="outside lower left", frameon=False, fontsize="small", ncols=2)


# --------------------------------------------------------------------------- printing


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
