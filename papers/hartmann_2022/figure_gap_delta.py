"""The gap between Lemma 11 and the optimal delta, over delta.

A run of 1,024 steps may stop after each 128th of them, at 8 stops; each is priced so that alone it
takes a delta from 1e-2 down to 1e-12.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.finding import Finding, Verdict
from papers.hartmann_2022.gap import LEFT_OPEN, MOVES, Gap, Stops
from papers.look import BLUE, GREEN, RED, both_ends, picture, within

import tightbudget as tb

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers"]

CLAIM = LEFT_OPEN
STOPS = range(128, 1025, 128)
DELTAS = [1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12]
KINDS: dict[str, tuple[tb.Mechanism, str]] = {
    "DP-SGD, σ = 1, q = 0.01": (tb.Gaussian(sigma=1.0).subsampled(0.01), BLUE),
    "DP-SGD, σ = 2, q = 0.05": (tb.Gaussian(sigma=2.0).subsampled(0.05), GREEN),
    "any 0.02-DP steps": (tb.ApproximateDP(epsilon=0.02, delta=0.0), RED),
}


def numbers() -> dict[str, Any]:
    """By kind of step and delta of one stop: both deltas."""
    return {
        kind: {f"{delta:g}": Stops(step, STOPS, delta).gap().to_dict() for delta in DELTAS}
        for kind, (step, _) in KINDS.items()
    }


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Their quotient."""
    with picture(path) as (ax,):
        for kind, (_, colour) in KINDS.items():
            factors = [Gap.of(numbers[kind][f"{delta:g}"]).factor for delta in DELTAS]
            both_ends(ax, DELTAS, factors, colour, f"{kind}, {within(factors)}")
        ax.set_xscale("log")
        ax.set_ylim(bottom=0.0)
        ax.set(xlabel="δ of one stop alone", ylabel="Lemma 11 / optimal")
        ax.set_title(f"{len(STOPS)} stops: by how much Lemma 11 is too large", loc="left")
        ax.legend(frameon=False, fontsize=8.5)


def finding(numbers: dict[str, Any]) -> Finding:
    """The factors of the largest and the least delta."""
    ends = f"{DELTAS[0]:g}", f"{DELTAS[-1]:g}"
    text = "; ".join(
        f"{kind}: {Gap.of(found[ends[0]]).factor} and {Gap.of(found[ends[1]]).factor} times"
        for kind, found in numbers.items()
    )
    return Finding(
        f"Lemma 11 is too large, at delta = {ends[0]} and {ends[1]} of one stop. {text}.",
        Verdict.BEYOND,
    )
