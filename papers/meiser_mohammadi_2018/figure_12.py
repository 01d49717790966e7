"""Figure 12: delta over e^epsilon for Laplace noise, Gaussian noise and DP-SGD, by every bound.

Laplace LP(0, 200) and Gaussian noise of the same variance, both cut off at 2500, after 512 runs;
stochastic gradient descent with sigma = 4 and samples of 1 %, after 2^16 steps. CoverUp's delays,
the paper's other panel, are a figure of their own here, as they need measured data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.finding import Finding, Verdict
from papers.look import picture, within
from papers.meiser_mohammadi_2018.others import (
    CDP,
    GAUSS_OTHERS,
    KOV,
    LAPLACE_OTHERS,
    MA,
    OURS,
    Others,
    draw_deltas,
    looseness,
)
from papers.meiser_mohammadi_2018.settings import RUNS, as_bounds, spread

import tightbudget as tb

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers"]

CLAIM = (
    "The certified bounds are the tightest everywhere. KOV is tight for Laplace noise, and for "
    "Gaussian noise beaten by CDP and the moments accountant at large e^epsilon."
)
MOVES = 5e-3  # KOV starts from deltas of one run that are known to 1e-3
SGD_STEP = tb.Gaussian(sigma=4.0).subsampled(0.01)
SGD = Others(
    SGD_STEP,
    largest=0.05,
    divergence=tb.theorems.renyi.RenyiTable.of(
        lambda order: tb.theorems.renyi.subsampled_gaussian(int(order), 4.0, 0.01),
        orders=range(2, 129),
    ),
)
PANELS: dict[str, tuple[Others, int, list[float]]] = {
    "Laplace": (LAPLACE_OTHERS, RUNS, spread(1.0, 2.0, 41)),
    "Gaussian": (GAUSS_OTHERS, RUNS, spread(1.0, 2.0, 41)),
    "DP-SGD": (SGD, 2**16, spread(1.0, 40.0, 40)),
}


def numbers() -> dict[str, Any]:
    """By panel and name of the bound."""
    return {
        panel: {"e^epsilon": e_epsilons, "delta": bounds.deltas(runs, e_epsilons)}
        for panel, (bounds, runs, e_epsilons) in PANELS.items()
    }


def draw(numbers: dict[str, Any], path: Path) -> None:
    """A panel for each mechanism."""
    with picture(path, panels=3) as axes:
        for ax, (panel, (_, runs, e_epsilons)) in zip(axes, PANELS.items(), strict=True):
            draw_deltas(ax, e_epsilons, numbers[panel]["delta"])
            ax.set_title(f"{panel}, {runs:,} runs", loc="left")


def finding(numbers: dict[str, Any]) -> Finding:
    """Where KOV is tight, from where on it is beaten, and how far off the others are."""
    times = {panel: looseness(numbers[panel]["delta"]) for panel in PANELS}
    tightest = all(x > 0.999 for found in times.values() for v in found.values() for x in v)
    kov = max(times["Laplace"][KOV]) - 1
    gauss = times["Gaussian"]
    beaten = [
        next(x for x, a, b in zip(PANELS["Gaussian"][2], gauss[KOV], other, strict=True) if b < a)
        for other in (gauss[CDP], gauss[MA])
    ]
    sgd = {name: values[-1] for name, values in times["DP-SGD"].items()}
    ends = [b for panel in PANELS for b in as_bounds(numbers[panel]["delta"][OURS])]
    text = (
        f"Laplace: KOV is within {kov:.1%}, as fine as its grid. Gaussian: CDP beats KOV from "
        f"e^epsilon = {beaten[0]:.3g} on, the moments accountant from {beaten[1]:.3g} on. DP-SGD "
        f"at e^epsilon = 40: the moments accountant's delta is {sgd[MA]:.0f} times too large; that "
        f"of KOV, which the paper leaves out, {sgd[KOV]:.0e} times. Certified {within(ends)}."
    )
    return Finding(text, Verdict.of(tightest and kov < 0.02 and beaten[1] < 1.5))
