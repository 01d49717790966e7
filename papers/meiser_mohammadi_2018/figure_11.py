"""Figure 11: randomised response with p = 0.51 against KOV, the moments accountant and CDP.

Left delta over e^epsilon after 512 runs, right e^epsilon over the number of runs at delta = 1e-4.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from papers.finding import Finding, Verdict
from papers.meiser_mohammadi_2018.others import (
    CDP,
    KOV,
    MA,
    Others,
    draw_both,
    looseness,
)
from papers.meiser_mohammadi_2018.settings import RUNS, spread

import tightbudget as tb

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers"]

CLAIM = (
    "The certified bounds are clearly tighter than CDP, and CDP than the moments accountant; KOV "
    "is tight."
)
MOVES = 1e-6  # the other bounds are searched for over orders
DELTA, P = 1e-4, 0.51
LOSS = math.log(P / (1 - P))
COUNTS = [1, 2, 4, 8, 16, *range(32, RUNS + 1, 32)]
E_EPSILONS = spread(1.0, 40.0, 40)
RESPONSE = Others(
    tb.RandomizedResponse(p=P),
    largest=LOSS,
    divergence=lambda order: tb.theorems.renyi.randomized_response(order, P),
    line=tb.theorems.concentrated.Line.pure(LOSS),
)


def numbers() -> dict[str, Any]:
    """delta and epsilon by name of the bound."""
    return {
        "e^epsilon": E_EPSILONS,
        "delta": RESPONSE.deltas(RUNS, E_EPSILONS),
        "runs": COUNTS,
        "epsilon": RESPONSE.growth(COUNTS, DELTA),
    }


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Two panels."""
    draw_both(numbers, RUNS, DELTA, path)


def finding(numbers: dict[str, Any]) -> Finding:
    """How many times too large the others are."""
    times = looseness(numbers["epsilon"])
    apart = max(times[KOV]) - 1
    order = [1 < a < b for a, b in zip(times[CDP], times[MA], strict=True)]
    first = COUNTS[next(i for i in range(len(order)) if all(order[i:]))]
    text = (
        f"KOV is within {max(apart, 0.0):.0e} of the certified upper ends. At delta = {DELTA:g} "
        f"and {RUNS} runs epsilon is {times[CDP][-1]:.3g} times too large by CDP, "
        f"{times[MA][-1]:.3g} times by the moments accountant; from {first} runs on CDP is better."
    )
    return Finding(text, Verdict.of(apart < 1e-3 and first < RUNS / 10))
