"""Figure 2: noise on the error that decides whether a model is released, 95th percentile.

Of n records 70 % train and 30 % test, Lambda = 1. The error gets Laplace noise of scale
a / epsilon_2, where a is how far it can move: with a record of the test part by 2 / n_test, with
one of the training part by 2 (e^w - 1) in the paper, w = 2 / (n_train Lambda).
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

from papers.finding import Finding, Verdict
from papers.look import BLUE, GREEN, OCHRE, RED, picture

import tightbudget as tb

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers", "percentile"]

CLAIM = (
    "With enough records the noise on the test is small: with a chance of 95 % a model is not "
    "released whose error is above the threshold by more than the 95th percentile."
)
MOVES = 1e-6  # sums of doubles
RECORDS = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
EPSILONS = (0.01, 0.05, 0.1, 0.5)


def percentile(
    records: int,
    regularization: float,
    test_epsilon: float,
    sensitivity: tb.release.GateSensitivity,
    share: Fraction = Fraction(3, 10),
) -> float:
    """Of the noise that the library's own test adds, where such a share of the records tests."""
    test = int(share * records)
    perturbation = tb.release.OutputPerturbation(1.0, regularization, records - test, 10)
    scale = tb.release.logistic_with_test(
        perturbation, test, 1.0, test_epsilon, sensitivity
    ).error_scale
    return scale * math.log(10)  # e^(-x / scale) / 2 = 0.05


def numbers() -> dict[str, Any]:
    """By epsilon_2 and number of records, with the paper's sensitivity."""
    return {
        str(epsilon): {
            str(n): percentile(n, 1.0, epsilon, tb.release.GateSensitivity.PAPER) for n in RECORDS
        }
        for epsilon in EPSILONS
    }


def draw(numbers: dict[str, Any], path: Path) -> None:
    """A line for each epsilon_2."""
    with picture(path) as (ax,):
        for (epsilon, found), colour in zip(
            numbers.items(), (RED, OCHRE, GREEN, BLUE), strict=True
        ):
            label = f"ε₂ = {epsilon}"
            ax.loglog(RECORDS, list(found.values()), color=colour, marker="o", ms=3, label=label)
        ax.axhline(2.0, color="0.7", lw=0.8)
        ax.set(xlabel="records, 70 % of them for training", ylabel="95th percentile of the noise")
        ax.legend(frameon=False, fontsize=9)


def finding(numbers: dict[str, Any]) -> Finding:
    """From how many records on the noise is below 0.1, of an error in [0, 2]."""
    enough = {
        epsilon: next((int(n) for n, noise in found.items() if noise < 0.1), None)
        for epsilon, found in numbers.items()
    }
    words = ", ".join(
        f"{n:,} (epsilon_2 = {epsilon})" if n else f"more than {RECORDS[-1]:,} ({epsilon})"
        for epsilon, n in enough.items()
    )
    falls = all(
        found[str(m)] < found[str(n)]
        for found in numbers.values()
        for n, m in itertools.pairwise(RECORDS)
    )
    return Finding(
        f"The percentile falls as 1 / (n epsilon_2). It is below 0.1, where errors are in [0, 2], "
        f"from so many records on: {words}. For these parts the test record decides the "
        "sensitivity, not the training record.",
        Verdict.of(falls and all(enough.values())),
    )
