"""Figure 14: Laplace noise against Gaussian noise of the same and of half the variance.

Above e^epsilon over the number of runs, for three deltas; below delta over e^epsilon after 512
runs. Left LP(200) against a Gaussian of its variance 2 200^2, right against one of half of it. All
noise is cut off at 2500.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from papers.finding import Finding, Verdict
from papers.look import BLUE, RED, picture
from papers.meiser_mohammadi_2018.settings import (
    GAUSS,
    HALF_VARIANCE,
    LAPLACE,
    RUNS,
    as_bounds,
    deltas,
    factors,
    graph,
    spread,
)

import tightbudget as tb

__all__ = ["CLAIM", "draw", "finding", "numbers"]

CLAIM = (
    "At the same variance Gaussian noise leaks less, and its delta levels out 4 orders of "
    "magnitude lower; at half the variance the graphs almost coincide but for their ends."
)
KINDS = {"Laplace": LAPLACE, "same variance": GAUSS, "half the variance": HALF_VARIANCE}
DELTAS = {0.01: "-", 0.001: "--", 0.0001: ":"}
COUNTS = [1, 2, 4, 8, 16, *range(32, RUNS + 1, 32)]
E_EPSILONS = spread(1.0, 2.0, 41)


def numbers() -> dict[str, Any]:
    """By noise: epsilon by delta over the runs, delta over e^epsilon, and where it levels out."""
    return {
        kind: {
            "epsilon": {
                str(delta): [(noise * k).epsilon(delta).to_dict() for k in COUNTS]
                for delta in DELTAS
            },
            "delta": deltas(noise * RUNS, E_EPSILONS),
            "levels out": (noise * RUNS).delta(math.inf).to_dict(),
        }
        for kind, noise in KINDS.items()
    }


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Two panels above, two below."""
    with picture(path, panels=2, rows=2) as axes:
        for column, other in enumerate(["same variance", "half the variance"]):
            above, below = axes[column], axes[2 + column]
            for kind, colour, name in ((other, RED, "Gaussian"), ("Laplace", BLUE, "Laplace")):
                for delta, style in DELTAS.items():
                    found = factors(as_bounds(numbers[kind]["epsilon"][str(delta)]))
                    upper = [b.upper for b in found]
                    above.plot(
                        COUNTS, upper, style, color=colour, lw=1.6, label=f"{name}, δ = {delta:g}"
                    )
                graph(below, E_EPSILONS, numbers[kind]["delta"], colour, name)
            above.set(xlabel="runs", ylabel=r"$e^{\epsilon}$")
            above.set_title(f"Gaussian of {other}", loc="left")
            below.set_title(f"{RUNS} runs", loc="left")
            for ax in (above, below):
                ax.legend(frameon=False, fontsize=8.5)


def finding(numbers: dict[str, Any]) -> Finding:
    """Who leaks less, how far apart the levels are, and how close the right graphs come."""
    laplace, same, half = (numbers[kind] for kind in KINDS)
    from_run = max(_dearer(laplace, same, delta) for delta in DELTAS)
    level = tb.Bounds(**laplace["levels out"])
    orders = math.log10(level.lower / same["levels out"]["upper"])
    ends = zip(as_bounds(laplace["delta"]), as_bounds(half["delta"]), strict=True)
    apart = max(
        max(ours.upper, other.upper) / min(ours.lower, other.lower) - 1
        for ours, other in ends
        if ours.lower > 20 * level.upper
    )
    text = (
        f"Same variance: from {from_run} runs on the Gaussian has the smaller epsilon at all three "
        f"deltas, and its delta levels out {orders:.1f} orders of magnitude lower, at "
        f"{same['levels out']['upper']:.2g} against {level.upper:.2g}; 4 orders are too few, as "
        "these levels are the exact mass of outputs that only one input has. Half the variance: "
        f"where the Laplace delta is above 20 times its level, both are within {apart:.1%}."
    )
    return Finding(text, Verdict.IN_PART if orders > 5 and apart < 0.05 else Verdict.DIFFERS)


def _dearer(laplace: dict[str, Any], gauss: dict[str, Any], delta: float) -> int:
    """From which of the numbers of runs on Laplace noise certainly has the larger epsilon."""
    found = [as_bounds(noise["epsilon"][str(delta)]) for noise in (laplace, gauss)]
    surely = [
        ours.lower > other.upper or ours.upper == other.upper == 0.0
        for ours, other in zip(*found, strict=True)
    ]
    first: int = COUNTS[next(i for i in range(len(COUNTS)) if all(surely[i:]))]
    return first
