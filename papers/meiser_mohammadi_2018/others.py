"""The bounds that the paper compares with (Sections 5.6 and 5.7), for runs of one mechanism."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from papers.look import BLUE, GREEN, OCHRE, RED, both_ends, picture
from papers.meiser_mohammadi_2018.settings import GAUSS, LAPLACE, as_bounds, deltas, factors

import tightbudget as tb

__all__ = [
    "CDP",
    "GAUSS_OTHERS",
    "KOV",
    "LAPLACE_OTHERS",
    "MA",
    "OURS",
    "Others",
    "concentrated_delta",
    "draw_both",
    "draw_deltas",
    "kov_points",
    "looseness",
]

OURS, KOV, MA, CDP = "certified", "KOV", "moments accountant", "concentrated DP"
COLOURS = {OURS: BLUE, KOV: OCHRE, MA: RED, CDP: GREEN}


@dataclass(frozen=True, eq=False)
class Others:
    """KOV, the moments accountant and concentrated DP where they apply, beside our own bounds.

    Noise that is cut off has infinite Renyi divergences. But on the outputs that both inputs can
    have it is the noise that is not cut off, normalised. So the last two are taken from that
    noise, divided by the mass kept, and the mass of the other outputs is added.

    Args:
        mechanism: one run.
        largest: the step epsilons for KOV go up to here.
        divergence: Renyi divergences of one run of the noise that is not cut off.
        line: one above all of them, for concentrated DP; None if there is none.
        kept: the mass of the noise within the cut.
    """

    mechanism: tb.Mechanism
    largest: float
    divergence: tb.theorems.renyi.Divergence
    line: tb.theorems.concentrated.Line | None = None
    kept: float = 1.0

    def deltas(self, runs: int, e_epsilons: Sequence[float]) -> dict[str, list[Any]]:
        """By name of the bound, delta at each e^epsilon: both ends of ours, upper ends else."""
        renyi, front, lost = tb.theorems.renyi, self._front(runs), self._lost(runs)
        epsilons = [math.log(x) for x in e_epsilons]

        def cut(uncut: float) -> float:
            return min(1.0, lost + uncut / self.kept**runs)

        found: dict[str, list[Any]] = {
            OURS: deltas(self.mechanism * runs, e_epsilons),
            KOV: [front.delta(e).upper for e in epsilons],
            MA: [
                cut(renyi.delta(self.divergence, e, runs, renyi.Conversion.MIRONOV).upper)
                for e in epsilons
            ],
        }
        if self.line is not None:
            line = self.line * runs
            found[CDP] = [cut(concentrated_delta(line, e)) for e in epsilons]
        return found

    def growth(self, counts: Sequence[int], delta: float) -> dict[str, list[Any]]:
        """By name of the bound: epsilon at delta for each number of runs."""
        renyi = tb.theorems.renyi
        uncut = {k: (delta - self._lost(k)) * self.kept**k for k in counts}
        found: dict[str, list[Any]] = {
            OURS: [(self.mechanism * k).epsilon(delta).to_dict() for k in counts],
            KOV: [self._front(k).epsilon(delta).upper for k in counts],
            MA: [
                renyi.epsilon(self.divergence, uncut[k], k, renyi.Conversion.MIRONOV).upper
                for k in counts
            ],
        }
        if self.line is not None:
            found[CDP] = [_concentrated_epsilon(self.line * k, uncut[k]) for k in counts]
        return found

    def _lost(self, runs: int) -> float:
        lost: tb.Bounds = (self.mechanism * runs).delta(math.inf)
        return lost.upper

    def _front(self, runs: int) -> tb.theorems.kov.Front:
        return tb.theorems.kov.Front(*self._points, runs)

    @cached_property
    def _points(self) -> tuple[Any, Any]:
        return kov_points(self.mechanism, self.largest)


GAUSS_OTHERS = Others(
    GAUSS,
    largest=0.1,
    divergence=lambda order: tb.theorems.renyi.gaussian(order, GAUSS.sigma),
    line=tb.theorems.concentrated.Line.gaussian(GAUSS.sigma),
    kept=math.erf(GAUSS.bound / GAUSS.sigma / math.sqrt(2.0)),
)
LAPLACE_OTHERS = Others(
    LAPLACE,
    largest=1 / LAPLACE.scale,
    divergence=lambda order: tb.theorems.renyi.laplace(order, LAPLACE.scale),
    line=tb.theorems.concentrated.Line.pure(1 / LAPLACE.scale),
    kept=-math.expm1(-LAPLACE.bound / LAPLACE.scale),
)


def kov_points(mechanism: tb.Mechanism, largest: float) -> tuple[Any, Any]:
    """Epsilons on the paper's grid up to the largest, and one run's deltas there."""
    grid = tb.theorems.kov.grid(largest)
    grid = grid[grid > 1e-4 * largest]  # below, delta hardly differs from delta(0)
    return grid, (mechanism * 1).curve(epsilons=grid, rtol=1e-3).upper


def concentrated_delta(line: tb.theorems.concentrated.Line, epsilon: float) -> float:
    """delta of (xi, rho)-concentrated DP, by the sharper of the two translations.

    Source: Bun, Steinke 2016, Lemma 3.6, which is about epsilon >= xi + rho.
    """
    rho, plain = line.rho, line.delta(epsilon).upper
    if epsilon < line.xi + rho:
        return plain
    far = 1 + (epsilon - line.xi - rho) / (2 * rho)
    return plain * min(
        1.0,
        math.sqrt(math.pi * rho),
        1 / far,
        2 / (far + math.sqrt(far * far + 4 / (math.pi * rho))),
    )


def _concentrated_epsilon(line: tb.theorems.concentrated.Line, delta: float) -> float:
    """Where it falls to delta, within 1e-9, by halving."""
    low, high = 0.0, line.epsilon(delta).upper
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if concentrated_delta(line, middle) <= delta else (middle, high)
    return high


def draw_deltas(ax: Axes, e_epsilons: Sequence[float], found: dict[str, list[Any]]) -> None:
    """delta on a log axis over e^epsilon."""
    for name, values in found.items():
        if name == OURS:
            both_ends(ax, e_epsilons, as_bounds(values), COLOURS[name], f"{name}, both ends")
        else:
            ax.plot(e_epsilons, values, "--", color=COLOURS[name], lw=1.6, label=name)
    ax.set_yscale("log")
    ax.set(xlabel=r"$e^{\epsilon}$", ylabel="δ")
    ax.legend(frameon=False, fontsize=8.5)


def _draw_growth(ax: Axes, counts: Sequence[int], found: dict[str, list[Any]]) -> None:
    """e^epsilon over the number of runs."""
    for name, values in found.items():
        if name == OURS:
            ends = factors(as_bounds(values))
            both_ends(ax, counts, ends, COLOURS[name], f"{name}, both ends")
        else:
            upper = [math.exp(e) for e in values]
            ax.plot(counts, upper, "--", color=COLOURS[name], lw=1.6, label=name)
    ax.set(xlabel="runs", ylabel=r"$e^{\epsilon}$")
    ax.legend(frameon=False, fontsize=8.5)


def draw_both(numbers: dict[str, Any], runs: int, delta: float, path: Path) -> None:
    """delta over e^epsilon, and e^epsilon over the number of runs, side by side."""
    with picture(path, panels=2) as (left, right):
        draw_deltas(left, numbers["e^epsilon"], numbers["delta"])
        left.set_title(f"{runs} runs", loc="left")
        _draw_growth(right, numbers["runs"], numbers["epsilon"])
        right.set_title(f"δ = {delta:g}", loc="left")


def looseness(found: dict[str, list[Any]]) -> dict[str, list[float]]:
    """By name of the other bounds: how many times as large as the certified upper end each is."""
    ours = [b.upper for b in as_bounds(found[OURS])]
    return {
        name: [x / b if b else math.inf for x, b in zip(values, ours, strict=True)]
        for name, values in found.items()
        if name != OURS
    }
