"""Figure 22: the moments accountant's bound on DP-SGD, from privacy buckets and in closed form.

Left delta over e^epsilon after 2^16 steps with sigma = 4 and samples of 1 %. Right the log moments
of one step: by how much the paper's sum over buckets, ln(sum of B(i) f^(lambda i)), exceeds the
closed form.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from papers.finding import Finding, Verdict
from papers.look import BLUE, INK, OCHRE, picture
from papers.meiser_mohammadi_2018.settings import as_bounds, spread

import tightbudget as tb

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers"]

CLAIM = "Both ways of computing the moments accountant coincide."
MOVES = 1e-9  # a sum of many numbers, in whatever order
STEP = tb.Gaussian(sigma=4.0).subsampled(0.01)
RUNS, DELTA = 2**16, 1e-5
E_EPSILONS = spread(1.0, 40.0, 40)
ORDERS = range(1, 33)  # lambda, as far as its authors went
N = {10_000: INK, 100_000: OCHRE}  # buckets on either side


def numbers() -> dict[str, Any]:
    """Log moments by lambda."""
    closed = [tb.theorems.renyi.subsampled_gaussian(k + 1, 4.0, 0.01) * k for k in ORDERS]
    return {
        "lambda": list(ORDERS),
        "buckets": {str(n): from_buckets(n) for n in N},
        "closed form": [b.to_dict() for b in closed],
        "certified": [((STEP * 1).renyi(k + 1.0) * k).to_dict() for k in ORDERS],
    }


def from_buckets(n: int) -> list[float]:
    """The paper's sum, over leaves with 2n + 1 buckets; B(inf) is left out, as there."""
    buckets = tb.privacy_buckets.Buckets.of(STEP, n=n)
    losses = buckets.log_factor * buckets.indexes
    return [math.log(float(np.sum(buckets.masses * np.exp(k * losses)))) for k in ORDERS]


def draw(numbers: dict[str, Any], path: Path) -> None:
    """The bounds, and by how much the sums are above the closed form."""
    closed = [b.upper for b in as_bounds(numbers["closed form"])]
    with picture(path, panels=2) as (left, right):
        left.plot(E_EPSILONS, _deltas(closed), color=BLUE, lw=4, alpha=0.5, label="closed form")
        for n, colour in N.items():
            moments = numbers["buckets"][str(n)]
            label = f"buckets, n = {n:,}"
            left.plot(E_EPSILONS, _deltas(moments), "--", color=colour, lw=1.6, label=label)
            off = [x / b - 1 for x, b in zip(moments, closed, strict=True)]
            right.plot(ORDERS, off, "-o", color=colour, ms=3, lw=1.4, label=label)
        left.set(xlabel=r"$e^{\epsilon}$", ylabel="δ by the moments accountant")
        left.set_title(f"{RUNS:,} steps", loc="left")
        right.set(xlabel="λ", ylabel=r"λ $D_{λ+1}$, buckets / closed form - 1")
        right.set_title("one step", loc="left")
        for ax in (left, right):
            ax.set_yscale("log")
            ax.legend(frameon=False, fontsize=8.5)


def _deltas(moments: list[float]) -> list[float]:
    """The moments accountant's, at each e^epsilon."""
    ways = [
        [RUNS * x - k * math.log(e) for k, x in zip(ORDERS, moments, strict=True)]
        for e in E_EPSILONS
    ]
    return [math.exp(min(0.0, *way)) for way in ways]


def _epsilon(moments: list[float]) -> float:
    """The moments accountant's at DELTA."""
    return min((RUNS * x - math.log(DELTA)) / k for k, x in zip(ORDERS, moments, strict=True))


def finding(numbers: dict[str, Any]) -> Finding:
    """How far apart epsilon and the moments are."""
    closed, ours = as_bounds(numbers["closed form"]), as_bounds(numbers["certified"])
    agree = all(a.overlaps(b) for a, b in zip(closed, ours, strict=True))
    upper = [b.upper for b in closed]
    off = {n: _epsilon(numbers["buckets"][str(n)]) / _epsilon(upper) - 1 for n in N}
    text = (
        f"Closed form and certified moments {'agree' if agree else 'do not agree'} at all "
        f"{len(ours)} orders. At delta = {DELTA:g} epsilon from buckets is above that of the "
        f"closed form by {' and '.join(f'{x:.1%} (n = {n:,})' for n, x in off.items())}: each loss "
        "is rounded up to its bucket's edge, which weighs most at small orders."
    )
    return Finding(text, Verdict.of(agree and 0 <= off[max(N)] < 0.03))
