"""The gap between Lemma 11 and the optimal delta, for different mechanisms.

Each mechanism has the noise with which 100 runs are (1, 1e-5)-DP. They may stop after each
100/n-th, n = 2, 10, 50, and each stop is priced so that alone it takes delta = 1e-5.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from papers.finding import Finding, Verdict
from papers.hartmann_2022.gap import LEFT_OPEN, MOVES, Gap, Stops
from papers.look import BLUE, OCHRE, RED, picture, within

import tightbudget as tb

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers"]

CLAIM = LEFT_OPEN
STEPS, DELTA, EPSILON = 100, 1e-5, 1.0
NUMBERS = {2: OCHRE, 10: RED, 50: BLUE}  # of stops
# from x, of which more is more noise, to the mechanism
KINDS: dict[str, Callable[[float], tb.Mechanism]] = {
    "Gaussian": lambda x: tb.Gaussian(sigma=x),
    "Laplace": lambda x: tb.Laplace(scale=x),
    "Gaussian, sampled at q = 0.1": lambda x: tb.Gaussian(sigma=x).subsampled(0.1),
    "Gaussian, sampled at q = 0.01": lambda x: tb.Gaussian(sigma=x).subsampled(0.01),
    "randomised response": lambda x: tb.RandomizedResponse(p=0.5 + 0.25 / x),
    "any (ε, 0)-DP": lambda x: tb.ApproximateDP(epsilon=1.0 / x, delta=0.0),
    "any (ε, 5e-8)-DP": lambda x: tb.ApproximateDP(epsilon=1.0 / x, delta=5e-8),
}


def numbers() -> dict[str, Any]:
    """By mechanism and number of stops: both deltas."""
    found = {}
    for kind, mechanism in KINDS.items():
        step = mechanism(_noise(mechanism))
        apart = STEPS // max(NUMBERS)
        stops = Stops(step, range(apart, STEPS + 1, apart), DELTA)
        found[kind] = {str(n): stops.gap(every=max(NUMBERS) // n).to_dict() for n in NUMBERS}
    return found


def _noise(mechanism: Callable[[float], tb.Mechanism]) -> float:
    return tb.calibrate(
        lambda x: mechanism(x) * STEPS, epsilon=EPSILON, delta=DELTA, between=(0.6, 1e3), rtol=1e-3
    ).value


def draw(numbers: dict[str, Any], path: Path) -> None:
    """A line for each mechanism, a dot for each number of stops."""
    with picture(path) as (ax,):
        for n, colour in NUMBERS.items():
            factors = [Gap.of(numbers[kind][str(n)]).factor for kind in KINDS]
            for ends in ([b.lower for b in factors], [b.upper for b in factors]):
                (dots,) = ax.plot(ends, range(len(KINDS)), "o", color=colour, ms=5)
            dots.set_label(f"{n} stops, {within(factors)}")
        ax.set_yticks(range(len(KINDS)), list(KINDS))
        ax.invert_yaxis()
        ax.set_xscale("log", base=2)
        ax.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
        ax.set_xlabel("Lemma 11 / optimal")
        ax.set_title("By how much Lemma 11 is too large", loc="left")
        ax.legend(frameon=False, fontsize=8.5, loc="upper center", bbox_to_anchor=(0.3, -0.15))


def finding(numbers: dict[str, Any]) -> Finding:
    """The least and the largest factor of each number of stops."""
    text = []
    for n in NUMBERS:
        factors = {kind: Gap.of(numbers[kind][str(n)]).factor for kind in KINDS}
        least, most = (end(KINDS, key=lambda kind: factors[kind].lower) for end in (min, max))
        text.append(
            f"at {n} stops {factors[least]} times ({least}) to {factors[most]} times ({most})"
        )
    return Finding(f"Lemma 11 is too large, {'; '.join(text)}.", Verdict.BEYOND)
