"""An ideal audit of a Gaussian mechanism in one run: how many canaries to guess, and what it shows.

Scores of the canaries are N(mu, 1) and N(0, 1), in numbers that are their expectations; the audit
guesses as many to be in as to be out. Its mu is 1, which costs epsilon = 4.38 at delta = 1e-5.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.finding import Finding, Verdict
from papers.look import BLUE, GREEN, INK, PALE, RED, picture
from papers.steinke_2023.ideal import IdealRun
from papers.steinke_2023.theorem import MOVES, least_epsilon

import tightbudget as tb

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers"]

CLAIM = (
    "Left open: how far the lower bound of an ideal attack in one run is below the epsilon of the "
    "run, by the numbers of canaries and guesses."
)
MU, DELTA = 1.0, 1e-5
CANARIES = {100: RED, 1000: GREEN, 10_000: BLUE}


def numbers() -> dict[str, Any]:
    """The mechanism's epsilon; by canaries, each number of guesses with the paper's lower bound."""
    found: dict[str, Any] = {"truth": tb.Gaussian(1.0 / MU).epsilon(DELTA).to_dict()}
    for m in CANARIES:
        tried = [
            {"guesses": seen.made, "right": seen.right, "paper": least_epsilon(seen, DELTA)}
            for seen in IdealRun.gaussian(m, MU).each_number()
        ]
        best = max(tried, key=lambda one: one["paper"])
        seen = IdealRun.gaussian(m, MU).guesses(int(best["guesses"]) // 2)
        found[str(m)] = {"tried": tried, "exact": seen.audit(DELTA).epsilon_at_least}
    return found


def draw(numbers: dict[str, Any], path: Path) -> None:
    """The lower bounds by the part of the canaries that is guessed."""
    with picture(path) as (ax,):
        for m, colour in CANARIES.items():
            tried = numbers[str(m)]["tried"]
            shares, bounds = [one["guesses"] / m for one in tried], [one["paper"] for one in tried]
            ax.plot(shares, bounds, color=colour, lw=1.4, marker="o", ms=3, label=f"{m:,} canaries")
        ax.axhline(numbers["truth"]["upper"], ls=":", color=PALE, label="ε of the mechanism")
        ax.set_xscale("log")
        ax.set_ylim(0.0, 6.5)
        ax.set(xlabel="part of the canaries that is guessed", ylabel="ε at least")
        ax.set_title(f"Gaussian mechanism, μ = {MU:g}, δ = {DELTA:g}", loc="left", color=INK)
        ax.legend(frameon=False, fontsize=8.5, loc="upper left")


def finding(numbers: dict[str, Any]) -> Finding:
    """The best number of guesses by canaries, and what is lost."""
    said = []
    for m in CANARIES:
        best = max(numbers[str(m)]["tried"], key=lambda one: one["paper"])
        said.append(
            f"{m:,} canaries show {best['paper']:.3g} with {best['guesses']:,} guesses (the exact "
            f"test of these: {numbers[str(m)]['exact']:.3g})"
        )
    truth = numbers["truth"]["upper"]
    return Finding(f"Of ε = {truth:.3g} at δ = {DELTA:g}: {'; '.join(said)}.", Verdict.BEYOND)
