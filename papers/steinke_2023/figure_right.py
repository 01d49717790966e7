"""The lower bound of epsilon when a share of all guesses is right, at 95 % confidence.

All canaries are guessed. At delta = 0 the paper's test is exact: randomised response attains it.
With delta the exact probability is known, too (see ``tb.audit.one_run``), so that the largest
epsilon that can be refuted stands beside the paper's.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from papers.finding import Finding, Verdict
from papers.look import BLUE, INK, PALE, RED, picture
from papers.steinke_2023.ideal import Guesses
from papers.steinke_2023.theorem import MOVES, least_epsilon

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers"]

CLAIM = (
    "With δ = 0 at most Bin(r, e^ε / (1 + e^ε)) of r guesses are right; δ adds at most 2 m δ times "
    "the steepest mean slope of its tail."
)
CANARIES = {100: RED, 1000: BLUE}
SHARES = [0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0]
DELTAS = [0.0, 1e-4]


def numbers() -> dict[str, Any]:
    """By canaries, delta and share of right guesses: the paper's lower bound, and the largest."""
    return {
        str(m): {f"{delta:g}": {f"{x:g}": _bounds(m, x, delta) for x in SHARES} for delta in DELTAS}
        for m in CANARIES
    }


def _bounds(m: int, share: float, delta: float) -> dict[str, float]:
    seen = Guesses(m, m, round(share * m))
    return {"paper": least_epsilon(seen, delta), "exact": seen.audit(delta).epsilon_at_least}


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Left the lower bounds at delta = 0, right by how much the paper's are too low with delta."""
    with picture(path, panels=2) as (left, right):
        limits = [math.log(x / (1 - x)) for x in SHARES if x < 1]
        left.plot(SHARES[:-1], limits, ":", color=PALE, label="ln(right / wrong)")
        for m, colour in CANARIES.items():
            plain, paid = ([*numbers[str(m)][f"{delta:g}"].values()] for delta in DELTAS)
            label = f"{m:,} canaries, all guessed"
            left.plot(SHARES, [one["exact"] for one in plain], color=colour, lw=1.4, label=label)
            quotients = [one["exact"] / one["paper"] for one in paid]
            right.plot(SHARES, quotients, color=colour, marker="o", ms=3, lw=1.4, label=label)
        left.set(ylabel="ε at least")
        left.set_title("δ = 0: both tests", loc="left", color=INK)
        right.set(ylabel="exact / paper")
        right.set_title(f"δ = {DELTAS[1]:g}: the exact test, over the paper's", loc="left")
        for ax in (left, right):
            ax.set(xlabel="share of right guesses")
            ax.legend(frameon=False, fontsize=8.5)


def finding(numbers: dict[str, Any]) -> Finding:
    """At delta = 0 both are the same; with delta the paper's is at most the exact one."""
    cells = [
        (float(delta), cell["paper"], cell["exact"])
        for by_delta in numbers.values()
        for delta, by_share in by_delta.items()
        for cell in by_share.values()
    ]
    plain = [(paper, exact) for delta, paper, exact in cells if delta == 0]
    with_delta = [(paper, exact) for delta, paper, exact in cells if delta > 0]
    same = sum(math.isclose(paper, exact, rel_tol=1e-6) for paper, exact in plain)
    below = all(paper <= exact * (1 + 1e-6) for paper, exact in with_delta)
    most = max(exact / paper for paper, exact in with_delta)
    text = (
        f"At δ = 0 {same} of {len(plain)} lower bounds are the same, and exact. With δ the paper's "
        f"{'are never above' if below else 'are sometimes above'} the exact ones, which are up to "
        f"{most:.3g} times as large."
    )
    return Finding(text, Verdict.of(same == len(plain) and below))
