"""Stopping early at its optimal price against a Renyi filter, Lemma 11, and no stopping.

Section 5.3 of the paper compares in words; these are numbers. One delta = 1e-5 covers 50 stops
in 1,000 steps: by `early_stopping` with its usual weights; by Lemma 11 with equal shares of
delta and this library's exact composition; by a Renyi filter at the order that is best at the
end. What the last two leave unused is the distance from 1e-5 to the delta that their prices
really take. For reference, both certified ends of a run whose length was fixed beforehand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.finding import Finding, Verdict
from papers.look import BLUE, OCHRE, PALE, RED, both_ends, picture, within

import tightbudget as tb

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers"]

CLAIM = "Stopping early against privacy filters is compared in words only (Section 5.3)."
MOVES = 5e-3  # schedules use up delta but for 1e-3 of it
STOPS, DELTA = range(20, 1001, 20), 1e-5
SHOWN = range(4, len(STOPS), 5)  # 100, 200, ..., 1,000 steps
KINDS: dict[str, tb.Mechanism] = {
    "DP-SGD, σ = 1, q = 0.01": tb.Gaussian(sigma=1.0).subsampled(0.01),
    "Gaussian, σ = 60": tb.Gaussian(sigma=60.0),
}
METHODS = {
    "Lemma 11": ("Lemma 11", OCHRE),
    "Renyi filter": ("Rényi filter", RED),
    "optimal": ("optimal stopping", BLUE),
}


def numbers() -> dict[str, Any]:
    """By kind of step: the prices of the stops, three times, and epsilon without a choice."""
    found = {}
    for kind, step in KINDS.items():
        schedule = tb.early_stopping(step, STOPS, DELTA)
        prices = {
            "optimal": schedule.epsilons,
            "Lemma 11": schedule.separate,
            "Renyi filter": schedule.renyi_filter(),
        }
        found[kind] = {
            "prices": {method: list(epsilons) for method, epsilons in prices.items()},
            "delta": {
                method: tb.stopping_delta(step, STOPS, epsilons).to_dict()
                for method, epsilons in prices.items()
            },
            "no stopping": [(step * STOPS[i]).epsilon(DELTA).to_dict() for i in SHOWN],
        }
    return found


def draw(numbers: dict[str, Any], path: Path) -> None:
    """A panel for each kind of step."""
    with picture(path, panels=2) as axes:
        for ax, (kind, found) in zip(axes, numbers.items(), strict=True):
            for method, (label, colour) in METHODS.items():
                label += f", takes δ in {tb.Bounds(**found['delta'][method])}"
                ax.plot(STOPS, found["prices"][method], color=colour, lw=1.6, label=label)
            fixed = [tb.Bounds(**ends) for ends in found["no stopping"]]
            label = f"length fixed beforehand, {within(fixed)}"
            both_ends(ax, [STOPS[i] for i in SHOWN], fixed, PALE, label)
            ax.set(
                xlabel="steps run before stopping",
                ylabel="price ε, δ = 1e-5 granted",
                xlim=(0, 1000),
            )
            ax.set_ylim(bottom=0.0)
            ax.set_title(kind, loc="left")
            ax.legend(frameon=False, fontsize=8.5, loc="lower right")


def finding(numbers: dict[str, Any]) -> Finding:
    """At how many stops the filter is dearer."""
    text = []
    for kind, found in numbers.items():
        prices = found["prices"]
        pairs = zip(prices["optimal"], prices["Renyi filter"], strict=True)
        dearer = sum(optimal < filtered for optimal, filtered in pairs)
        text.append(f"{kind}: the filter is dearer at {dearer} of {len(STOPS)} stops")
    return Finding("; ".join(text) + ".", Verdict.BEYOND)
