"""Figure 13: Gaussian noise of variance 2 200^2 against KOV, the moments accountant and CDP.

Left delta over e^epsilon after 512 runs, right e^epsilon over the number of runs at delta = 1e-5.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.finding import Finding, Verdict
from papers.meiser_mohammadi_2018.others import (
    CDP,
    GAUSS_OTHERS,
    KOV,
    MA,
    draw_both,
    looseness,
)
from papers.meiser_mohammadi_2018.settings import RUNS, spread

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers"]

CLAIM = (
    "The certified bounds are the tightest, CDP is tighter than the moments accountant, and KOV "
    "becomes inaccurate with an increasing number of runs."
)
MOVES = 5e-3  # KOV starts from deltas of one run that are known to 1e-3
DELTA = 1e-5
COUNTS = [1, 2, 4, 8, 16, *range(32, RUNS + 1, 32)]
E_EPSILONS = spread(1.0, 1.8, 33)


def numbers() -> dict[str, Any]:
    """delta and epsilon by name of the bound."""
    return {
        "e^epsilon": E_EPSILONS,
        "delta": GAUSS_OTHERS.deltas(RUNS, E_EPSILONS),
        "runs": COUNTS,
        "epsilon": GAUSS_OTHERS.growth(COUNTS, DELTA),
    }


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Two panels."""
    draw_both(numbers, RUNS, DELTA, path)


def finding(numbers: dict[str, Any]) -> Finding:
    """How many times too large the others are, for few and for many runs."""
    times = looseness(numbers["epsilon"])
    tightest = all(x >= 1 for values in times.values() for x in values)
    order = all(a <= b for a, b in zip(times[CDP], times[MA], strict=True))
    worse = times[KOV][-1] > 2 * min(times[KOV])
    last = ", ".join(f"{name} {values[-1]:.3g}" for name, values in times.items())
    text = (
        f"At delta = {DELTA:g} and {RUNS} runs epsilon is too large by these factors: {last}. For "
        f"one run KOV's is {times[KOV][0]:.3g}. CDP is {'always' if order else 'not always'} below "
        "the moments accountant."
    )
    return Finding(text, Verdict.of(tightest and order and worse))
