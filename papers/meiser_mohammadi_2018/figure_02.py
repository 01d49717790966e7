"""Figure 2: truncated Gaussian noise against the worst mechanism with one of its guarantees.

Left e^epsilon over the number of runs at delta = 1e-4. Knowing nothing of a mechanism but one pair
(epsilon, delta) means to compose the randomised response M that is no better; two choices of this
pair: the one that starts at the same point, and one that has something left for 512 runs. Right
what one run shows: the densities of the noise (the shift 200 times as large), M's four outputs.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from papers.finding import Finding, Verdict
from papers.look import BLUE, INK, OCHRE, RED, both_ends, picture
from papers.meiser_mohammadi_2018.settings import GAUSS, RUNS, as_bounds, factors

import tightbudget as tb

__all__ = ["CLAIM", "draw", "finding", "numbers"]

CLAIM = "At delta = 1e-4 both graphs start at the same point, but quickly diverge."
DELTA, SPENT = 1e-4, 1e-7  # of all runs together, and of one run for the other choice
COUNTS = [1, 2, 4, 8, *range(16, RUNS + 1, 16)]


def worst(delta: float) -> tb.ApproximateDP:
    """The randomised response M with what the Gaussian guarantees at this delta."""
    # a hair less than delta: M's first output has exactly this mass, and no double is exact
    return tb.ApproximateDP(epsilon=(GAUSS * 1).epsilon(delta).upper, delta=delta * (1 - 1e-9))


def numbers() -> dict[str, Any]:
    """Epsilon by number of runs; and what tells the inputs apart after two runs of the first M."""
    return {
        "runs": COUNTS,
        "Gaussian": [(GAUSS * k).epsilon(DELTA).to_dict() for k in COUNTS],
        "other pair": [(worst(SPENT) * k).epsilon(DELTA).to_dict() for k in COUNTS],
        "same start": (worst(DELTA) * 1).epsilon(DELTA).to_dict(),
        "apart after 2 runs": (worst(DELTA) * 2).delta(math.inf).to_dict(),
    }


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Left the graphs, then the densities, then the four outputs."""
    with picture(path, panels=3) as (left, middle, right):
        ours = factors(as_bounds(numbers["Gaussian"]))
        both_ends(left, COUNTS, ours, BLUE, "truncated Gaussian")
        other = factors(as_bounds(numbers["other pair"]))
        both_ends(left, COUNTS, other, OCHRE, f"M with its δ = {SPENT:g} for one run")
        top = 1.1 * other[-1].upper
        start = math.exp(numbers["same start"]["upper"])
        left.plot([1, 1], [start, top], color=RED, lw=2, label="M that starts at the same point")
        left.set(xlabel="runs", ylabel=r"$e^{\epsilon}$ at δ = 1e-4", ylim=(0.95, top))
        left.legend(frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(0.05, 1.0))

        x = np.linspace(-1000.0, 1200.0, 441)
        for mean, colour, name in ((0.0, INK, "A"), (200.0, BLUE, "B")):
            density = np.exp(-(((x - mean) / GAUSS.sigma) ** 2) / 2)
            density /= GAUSS.sigma * math.sqrt(2 * math.pi)
            middle.plot(x, density, color=colour, lw=1.6, label=name)
        middle.set(xlabel="output", ylabel="density")
        middle.set_ylim(bottom=0.0)
        middle.set_title("truncated Gaussian, the shift enlarged 200 times", loc="left")

        m = worst(DELTA)
        likely = (1 - m.delta) / (1 + math.exp(-m.epsilon))
        masses = [m.delta, likely, 1 - m.delta - likely, 0.0]
        for name, colour, heights, side in (
            ("A", INK, masses, -0.2), ("B", BLUE, masses[::-1], 0.2),
        ):  # fmt: skip
            bars = right.bar([i + side for i in range(4)], heights, 0.38, color=colour, label=name)
            right.bar_label(bars, [f"{h:.3g}" for h in heights], fontsize=8, color=colour)
        right.set_xticks(range(4), ["only A", "more A", "more B", "only B"])
        right.set(ylabel="probability", ylim=(0.0, 0.65))
        right.set_title("M that starts at the same point", loc="left")
        for ax in (middle, right):
            ax.legend(frameon=False, fontsize=8.5, loc="upper right")


def finding(numbers: dict[str, Any]) -> Finding:
    """Where both start, and what becomes of M."""
    gaussian, other = as_bounds(numbers["Gaussian"]), as_bounds(numbers["other pair"])
    start, apart = tb.Bounds(**numbers["same start"]), tb.Bounds(**numbers["apart after 2 runs"])
    same = math.isclose(start.upper, gaussian[0].upper, rel_tol=1e-3)
    gone = apart.lower > DELTA
    ratio = [b.lower / a.upper for a, b in zip(gaussian, other, strict=True)]
    text = (
        f"They start at epsilon = {gaussian[0].upper:.4g} and {start.upper:.4g}. With this M no "
        f"epsilon has delta = {DELTA:g} from the second run on, as outputs with a mass of "
        f"{apart.lower:.2g} tell the inputs apart. The M of the pair at delta = {SPENT:g} has "
        f"{ratio[0]:.3g} times the Gaussian's epsilon, after {RUNS} runs {ratio[-1]:.3g} times."
    )
    return Finding(text, Verdict.of(same and gone and ratio[-1] > ratio[0]))
