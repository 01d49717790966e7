"""An ideal audit of Gaussian mechanisms in one run: tests of one (epsilon, delta) and of the curve.

1,000 canaries, whose scores are N(mu, 1) and N(0, 1), in numbers that are their expectations. Each
test guesses so many of them as serve it best, as many to be in as to be out. Lower bounds are of
epsilon at delta = 1e-5: that of a lower bound of mu is the epsilon of its curve.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.finding import Finding, Verdict
from papers.look import BLUE, INK, PALE, RED, picture
from papers.mahloujifar_2024.recursion import least_mu
from papers.steinke_2023.ideal import IdealRun
from papers.steinke_2023.theorem import MOVES, least_epsilon

import tightbudget as tb

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers"]

CLAIM = "A test of the whole Gaussian trade-off curve shows more than one of (ε, δ) alone."
CANARIES, DELTA = 1000, 1e-5
MUS = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0]


def numbers() -> dict[str, Any]:
    """By mu: its epsilon, and the lower bounds of both papers' tests and of ours."""
    return {f"{mu:g}": _of(mu) for mu in MUS}


def _of(mu: float) -> dict[str, Any]:
    each = IdealRun.gaussian(CANARIES, mu).each_number()
    seen = max(each, key=least_mu)
    curve, ours = least_mu(seen), seen.audit(DELTA).mu_at_least
    return {
        "truth": _epsilon(mu),
        "one epsilon": max(least_epsilon(seen, DELTA) for seen in each),
        "mu by the paper": curve,
        "mu by ours": ours,
        "curve by the paper": _epsilon(curve)["upper"],
        "curve by ours": _epsilon(ours)["upper"],
    }


def _epsilon(mu: float) -> dict[str, float]:
    return tb.Gaussian(1.0 / mu).epsilon(DELTA).to_dict()


def draw(numbers: dict[str, Any], path: Path) -> None:
    """The three lower bounds below the truth."""
    with picture(path) as (ax,):
        found = [numbers[f"{mu:g}"] for mu in MUS]
        truth = [one["truth"]["upper"] for one in found]
        ax.plot(MUS, truth, ":", color=PALE, label="ε of the mechanism")
        for name, colour, dash, label in (
            ("curve by ours", BLUE, "-", "the curve, both theorems"),
            ("curve by the paper", INK, "--", "the curve, by the paper's recursion"),
            ("one epsilon", RED, "-", "one (ε, δ), Steinke et al. 2023"),
        ):
            ax.plot(MUS, [one[name] for one in found], dash, color=colour, marker="o", ms=3,
                    lw=1.4, label=label)  # fmt: skip
        ax.set_ylim(bottom=0.0)
        ax.set(xlabel="μ of the mechanism", ylabel=f"ε at least, at δ = {DELTA:g}")
        ax.set_title(f"{CANARIES:,} canaries, ideal scores", loc="left", color=INK)
        ax.legend(frameon=False, fontsize=8.5)


def finding(numbers: dict[str, Any]) -> Finding:
    """By how much the curve shows more, and whether both audits of the curve agree."""
    found = list(numbers.values())
    times = [one["curve by the paper"] / one["one epsilon"] for one in found]
    parts = [one["curve by the paper"] / one["truth"]["upper"] for one in found]
    ours = [one["mu by ours"] / one["mu by the paper"] for one in found]
    text = (
        f"The curve's lower bounds of ε are {min(times):.3g} to {max(times):.3g} times those of "
        f"one (ε, δ), and {100 * min(parts):.0f} % to {100 * max(parts):.0f} % of the truth. Ours "
        f"of μ, of 49 lines of the curve and rounded outwards, are {min(ours):.4g} to "
        f"{max(ours):.4g} of the recursion's."
    )
    return Finding(text, Verdict.of(min(times) > 1.0))
