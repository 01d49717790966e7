"""Figure 1: delta(epsilon) of truncated Gaussian noise, and the area that delta is.

Left delta over e^epsilon with both certified ends. Right the two densities and the part of B above
e^epsilon A, whose area is delta. The paper does not say which noise it draws; here it is
N(0, 1) cut off at 3.5, moved by 1, so that the cut can be seen.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from papers.finding import Finding, Verdict
from papers.look import BLUE, INK, OCHRE, RED, picture, within
from papers.meiser_mohammadi_2018.settings import as_bounds, deltas, graph, spread

import tightbudget as tb

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers"]

CLAIM = "delta(epsilon) is the area by which the density of B exceeds e^epsilon times that of A."
MOVES = 1e-9  # sums of many numbers, in whatever order
NOISE = tb.TruncatedGaussian(sigma=1.0, bound=3.5)
E_EPSILONS = spread(1.0, 25.0, 49)
SHOWN = 2  # the index of what is on the right
OUTPUTS, WIDTH = np.linspace(-3.5, 4.5, 800_001), 1e-5


def numbers() -> dict[str, Any]:
    """By e^epsilon: both certified ends, and the area by adding up narrow strips."""
    return {
        "e^epsilon": E_EPSILONS,
        "delta": deltas(NOISE * 1, E_EPSILONS),
        "area": [_area(factor) for factor in E_EPSILONS],
        "levels out": (NOISE * 1).delta(math.inf).to_dict(),
    }


def density(moved: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Of the noise around ``moved``, at OUTPUTS."""
    x = OUTPUTS - moved
    inside = np.abs(x) <= NOISE.bound + 1e-9
    total = math.sqrt(2 * math.pi) * math.erf(NOISE.bound / math.sqrt(2.0))
    return np.where(inside, np.exp(-x * x / 2), 0.0) / total


def _area(factor: float) -> float:
    above = np.maximum(density(1.0) - factor * density(0.0), 0.0)
    return float((above[1:] + above[:-1]).sum() / 2 * WIDTH)


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Graph and area."""
    ends, factor = as_bounds(numbers["delta"]), E_EPSILONS[SHOWN]
    with picture(path, panels=2) as (left, right):
        graph(left, E_EPSILONS, numbers["delta"], BLUE, f"δ(ε), {within(ends)}")
        level = numbers["levels out"]["upper"]
        left.axhline(level, color=OCHRE, lw=1.2, ls="--", label="outputs that A never has")
        left.plot(factor, ends[SHOWN].upper, "o", mfc="none", mec=RED, ms=10, label="on the right")
        left.legend(frameon=False, fontsize=8.5)
        thin = slice(None, None, 500)
        x, a, b = OUTPUTS[thin], density(0.0)[thin], density(1.0)[thin]
        raised = factor * a
        right.plot(x, a, color=INK, lw=1.2, label="A")
        right.plot(x, b, color=BLUE, lw=1.6, label="B")
        right.plot(
            x, raised, color=INK, lw=1.2, ls="--", label=rf"$e^{{\epsilon}}$ A = {factor:g} A"
        )
        label = f"area {numbers['area'][SHOWN]:.5f}, δ in {ends[SHOWN]}"
        right.fill_between(
            x, raised, b, where=b > raised, color=BLUE, alpha=0.25, lw=0, label=label
        )
        right.set(xlabel="output", ylabel="density", ylim=(0.0, 1.2))
        right.legend(frameon=False, fontsize=8.5, loc="upper left")


def finding(numbers: dict[str, Any]) -> Finding:
    """Whether the areas are where the certified ends are."""
    pairs = list(zip(numbers["area"], as_bounds(numbers["delta"]), strict=True))
    # a strip's error: its width where B ends, times a density below 1
    inside = sum(b.lower - WIDTH <= area <= b.upper + WIDTH for area, b in pairs)
    text = (
        f"At {inside} of {len(pairs)} epsilons the area, added up in strips of width {WIDTH:.0e}, "
        f"is where it is certified to be, {within(b for _, b in pairs)}."
    )
    return Finding(text, Verdict.of(inside == len(pairs)))
