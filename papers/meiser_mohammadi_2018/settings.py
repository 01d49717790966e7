"""The mechanisms of the paper's evaluation (Sections 5 and 6), and how their graphs are kept.

Noise is cut off at its mean -2500 and +2500; the query moves by 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from papers.look import both_ends

import tightbudget as tb

__all__ = [
    "GAUSS",
    "HALF_VARIANCE",
    "LAPLACE",
    "RUNS",
    "as_bounds",
    "deltas",
    "factors",
    "graph",
    "spread",
]

RUNS = 512
LAPLACE = tb.TruncatedLaplace(scale=200.0, bound=2500.0)
GAUSS = tb.TruncatedGaussian(sigma=200.0 * math.sqrt(2.0), bound=2500.0)
HALF_VARIANCE = tb.TruncatedGaussian(sigma=200.0, bound=2500.0)


def spread(first: float, last: float, n: int) -> list[float]:
    """n values of e^epsilon, evenly apart, as the paper's axes have them."""
    return [first + (last - first) * i / (n - 1) for i in range(n)]


def deltas(runs: tb.Composition, e_epsilons: Sequence[float]) -> list[dict[str, float]]:
    """Certified ends of delta at each of them, for the file of numbers."""
    curve = runs.curve(epsilons=[math.log(x) for x in e_epsilons])
    return [curve[i].to_dict() for i in range(len(curve))]


def factors(epsilons: Iterable[tb.Bounds]) -> list[tb.Bounds]:
    """e^epsilon for drawing: the exponentials are not rounded outwards."""
    return [tb.Bounds(math.exp(b.lower), math.exp(b.upper)) for b in epsilons]


def as_bounds(numbers: Iterable[dict[str, float]]) -> list[tb.Bounds]:
    """Back from the file of numbers."""
    return [tb.Bounds(ends["lower"], ends["upper"]) for ends in numbers]


def graph(
    ax: Axes,
    e_epsilons: Sequence[float],
    found: Sequence[dict[str, float]],
    colour: str,
    label: str,
) -> None:
    """Both ends of delta on a log axis over e^epsilon."""
    both_ends(ax, e_epsilons, as_bounds(found), colour, label)
    ax.set_yscale("log")
    ax.set(xlabel=r"$e^{\epsilon}$", ylabel="δ")
