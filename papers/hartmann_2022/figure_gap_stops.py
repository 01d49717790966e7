"""The gap between Lemma 11 and the optimal delta, over the number of stops.

1,024 steps may stop after each 1024/n-th, n = 1, 2, 4, ..., 64, and each stop is priced so that
alone it takes delta = 1e-5. Two kinds of steps: those of DP-SGD (sigma = 1, q = 0.01), and any
(0.02, 1e-9)-DP mechanisms, adaptively chosen, which is the setting of Theorem 15.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.finding import Finding, Verdict
from papers.hartmann_2022.gap import LEFT_OPEN, MOVES, Gap, Stops
from papers.look import BLUE, RED, both_ends, picture, within

import tightbudget as tb

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers"]

CLAIM = LEFT_OPEN
STEPS, MOST, DELTA = 1024, 64, 1e-5
NUMBERS = [1, 2, 4, 8, 16, 32, 64]  # of stops
KINDS: dict[str, tuple[tb.Mechanism, str]] = {
    "DP-SGD, σ = 1, q = 0.01": (tb.Gaussian(sigma=1.0).subsampled(0.01), BLUE),
    "any (0.02, 1e-9)-DP steps": (tb.ApproximateDP(epsilon=0.02, delta=1e-9), RED),
}


def numbers() -> dict[str, Any]:
    """By kind of step and number of stops: both deltas."""
    apart = STEPS // MOST
    found = {}
    for kind, (step, _) in KINDS.items():
        stops = Stops(step, range(apart, STEPS + 1, apart), DELTA)
        found[kind] = {str(n): stops.gap(every=MOST // n).to_dict() for n in NUMBERS}
    return found


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Left the deltas, right their quotient."""
    with picture(path, panels=2) as (left, right):
        for kind, (_, colour) in KINDS.items():
            gaps = [Gap.of(numbers[kind][str(n)]) for n in NUMBERS]
            optimal, factors = [gap.optimal for gap in gaps], [gap.factor for gap in gaps]
            both_ends(left, NUMBERS, optimal, colour, f"{kind}: optimal")
            both_ends(right, NUMBERS, factors, colour, f"{kind}, {within(factors)}")
        # both kinds have the same sum, within a line's width: n delta
        added = [gap.added.upper for gap in gaps]
        left.plot(NUMBERS, added, "--", color="0.4", lw=1.2, label="Lemma 11, both kinds")
        for ax in (left, right):
            ax.set_xscale("log", base=2)
            ax.set_xticks(NUMBERS, [str(n) for n in NUMBERS])
            ax.set_xlabel("stops")
            ax.legend(frameon=False, fontsize=8.5)
        left.set_yscale("log")
        left.set_ylabel("δ of all stops together")
        left.set_title("Stops that take δ = 1e-5 each", loc="left")
        right.set_ylabel("Lemma 11 / optimal")
        right.set_ylim(bottom=0.0)
        right.set_title("By how much Lemma 11 is too large", loc="left")


def finding(numbers: dict[str, Any]) -> Finding:
    """The factors of most stops."""
    factors = {kind: Gap.of(found[str(MOST)]).factor for kind, found in numbers.items()}
    text = "; ".join(f"{kind}: {factor} times" for kind, factor in factors.items())
    return Finding(f"At {MOST} stops Lemma 11 is too large. {text}.", Verdict.BEYOND)
