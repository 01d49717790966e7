"""Section 6 and beyond: how fast noise turns into Gaussian noise under composition.

Left the paper's own pair, LP(200) against a Gaussian of half its variance, neither cut off: how
far apart their epsilons are, relative, as the number of runs grows. Right the noise grows with the
runs so that the limit stays the same, r runs at sigma = sqrt(r), and the distance is the largest
difference of the two deltas over epsilon = 0, 1/4, ..., 3. There also staircase noise, discrete
Gaussian noise, and Laplace noise with uniform noise on top, twice as wide as its scale. Each is
held against the Gaussian whose sigma is one over the root of its Fisher information.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from papers.finding import Finding, Verdict
from papers.look import BLUE, GREEN, INK, OCHRE, RED, both_ends, picture
from papers.meiser_mohammadi_2018.settings import RUNS, as_bounds

import tightbudget as tb

__all__ = ["CLAIM", "draw", "finding", "numbers"]

CLAIM = "Laplace noise converges to Gaussian noise of half its variance, already after 512 runs."
SCALE = 200.0
COUNTS = [2**j for j in range(4, 19)]
DELTAS = {0.01: BLUE, 0.001: OCHRE, 0.0001: RED}
EPSILONS = [0.25 * i for i in range(13)]
GROWING = [4**j for j in range(1, 7)]  # runs, with noise that grows with their root
RTOL = 1e-5  # of what is subtracted


def numbers() -> dict[str, Any]:
    """Relative distances of epsilons by delta; distances of deltas by noise."""
    laplace, gauss = tb.Laplace(scale=SCALE), tb.Gaussian(sigma=SCALE)
    return {
        "runs": COUNTS,
        "epsilons": {
            str(delta): [_apart(laplace * k, gauss * k, delta) for k in COUNTS] for delta in DELTAS
        },
        "growing": GROWING,
        "deltas": {
            kind: [_distance(*noise(k), k).to_dict() for k in GROWING]
            for kind, (noise, _) in KINDS.items()
        },
    }


def _apart(one: tb.Composition, other: tb.Composition, delta: float) -> dict[str, float] | None:
    """|epsilon - epsilon'| / epsilon', certified; None while epsilon' is 0."""
    ours, theirs = one.epsilon(delta, RTOL), other.epsilon(delta, RTOL)
    if theirs.lower <= 0:
        return None
    off = _size(ours - theirs)
    return tb.Bounds(off.lower / theirs.upper, off.upper / theirs.lower).to_dict()


def _distance(noise: tb.Mechanism, sigma: float, runs: int) -> tb.Bounds:
    """The largest difference of the two deltas."""
    ours = (noise * runs).curve(epsilons=EPSILONS, rtol=RTOL)
    theirs = (tb.Gaussian(sigma=sigma) * runs).curve(epsilons=EPSILONS, rtol=RTOL / 1000)
    off = [_size(ours[i] - theirs[i]) for i in range(len(EPSILONS))]
    return tb.Bounds(max(b.lower for b in off), max(b.upper for b in off))


def _size(difference: tb.Bounds) -> tb.Bounds:
    lower, upper = difference.lower, difference.upper
    return tb.Bounds(max(lower, -upper, 0.0), max(-lower, upper))


def with_uniform(runs: int) -> tuple[tb.Mechanism, float]:
    """Laplace noise on whole numbers with uniform noise on top, and the sigma of its limit."""
    width = round(2 * math.sqrt(runs * INFORMATION))
    scale = width / 2
    reach = math.ceil(40 * scale)  # the masses beyond it are below 1e-17
    k = np.arange(-reach, reach + 2)
    p, q = np.exp(-np.abs(k) / scale), np.exp(-np.abs(k - 1) / scale)
    return tb.HistogramPair(p, q, noise=("uniform", float(width))), scale / math.sqrt(INFORMATION)


def _information() -> float:
    """The Fisher information of a standard Laplace and a uniform variable on [-1, 1], added up."""
    # for |x| < 1 the density is (1 - cosh(x) / e) / 2, beyond it falls by the factor e^-|x|
    x = (np.arange(100_000) + 0.5) / 100_000
    inside = np.mean(np.sinh(x) ** 2 / (math.e - np.cosh(x))) / (2 * math.e)
    return float(2 * inside + math.sinh(1) / math.e)


INFORMATION = _information()
KINDS: dict[str, tuple[Callable[[int], tuple[tb.Mechanism, float]], str]] = {
    "Laplace": (lambda r: (tb.Laplace(scale=math.sqrt(r)), math.sqrt(r)), BLUE),
    "Laplace + uniform": (with_uniform, GREEN),
    "staircase": (lambda r: (tb.Staircase(epsilon=1 / math.sqrt(r)), math.sqrt(r)), OCHRE),
    "discrete Gaussian": (lambda r: (tb.DiscreteGaussian(sigma=math.sqrt(r)), math.sqrt(r)), RED),
}


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Distances over the number of runs, with the power of r by which they shrink."""
    with picture(path, panels=2) as (left, right):
        for delta, colour in DELTAS.items():
            found = numbers["epsilons"][str(delta)]
            some = [(k, tb.Bounds(**ends)) for k, ends in zip(COUNTS, found, strict=True) if ends]
            both_ends(left, [k for k, _ in some], [b for _, b in some], colour, f"δ = {delta:g}")
        left.axhline(
            1 / (3 * SCALE), color=INK, lw=1.2, ls="--", label="1 / 3b, the distance of means"
        )
        left.set(xlabel="runs", ylabel="distance of both ε, relative")
        left.set_title("b = σ = 200: the noise stays", loc="left")
        for kind, (_, colour) in KINDS.items():
            ends = as_bounds(numbers["deltas"][kind])
            label = f"{kind}, as $r^{{{_power(ends):.2f}}}$"
            both_ends(right, GROWING, ends, colour, label)
        right.set(xlabel="runs r", ylabel="largest distance of both δ")
        right.set_title("σ = √r: the noise grows, the limit stays", loc="left")
        for ax in (left, right):
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
            ax.legend(frameon=False, fontsize=8.5)


def finding(numbers: dict[str, Any]) -> Finding:
    """How close after 512 runs, whether closer later, and the powers."""
    found = {
        delta: [tb.Bounds(**ends) for ends in numbers["epsilons"][str(delta)] if ends]
        for delta in DELTAS
    }
    at_512 = max(ends[COUNTS.index(RUNS) - len(COUNTS)].upper for ends in found.values())
    last = min(ends[-1].lower for ends in found.values())
    closer = all(
        after.upper < before.lower for ends in found.values() for before, after in pairwise(ends)
    )
    powers = ", ".join(
        f"{kind} {_power(as_bounds(ends)):.2f}" for kind, ends in numbers["deltas"].items()
    )
    text = (
        f"After {RUNS} runs both epsilons are within {at_512:.2%}, relative. Further runs do not "
        f"close the gap: at {COUNTS[-1]:,} it is still {last:.2%}, as the mean losses of one run "
        f"differ by 1/(3b) = {1 / (3 * SCALE):.2%}. With noise that grows with the root of the "
        f"runs the deltas do converge, as a power of r: {powers}. The kink in its density makes "
        "Laplace noise slow."
    )
    return Finding(text, Verdict.IN_PART if at_512 < 0.005 and not closer else Verdict.DIFFERS)


def _power(distances: list[tb.Bounds]) -> float:
    """By which the distance falls with r, where the ends still tell it within 1 %."""
    known = [b.upper for b in distances if b.relative_gap < 0.01]
    return math.log(known[-1] / known[-2]) / math.log(GROWING[1] / GROWING[0])
