"""Canaries until a training with half of its noise is refuted: one epsilon, Gaussian, exact curve.

Two DP-SGD trainings run with half of the sigma that is claimed. Each canary has a parameter of its
own, as in "I doubt that the code keeps what is certified", and the attack sees the sum of all steps
there. Scores are in numbers that are their expectations. Without an accountant that has the
curve, a training is known by its epsilon at delta = 1e-5 alone, or by the Gaussian curve that has
the same epsilon there, which a training need not keep; its own curve stands beside them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers.finding import Finding, Verdict
from papers.look import BLUE, INK, OCHRE, PALE, RED, picture
from papers.mahloujifar_2024 import recursion
from papers.steinke_2023 import theorem
from papers.steinke_2023.ideal import LEVEL, IdealRun

import tightbudget as tb

__all__ = ["CLAIM", "MOVES", "draw", "finding", "numbers"]

CLAIM = "Left open: what the exact trade-off curve of a training shows, beside a Gaussian one."
MOVES = 3e-3  # p-values are searched to 0.1 %
CANARIES = [125, 250, 500, 1000, 2000, 4000, 8000]
DELTA = 1e-5
TESTS = {
    "one epsilon": ("one (ε, δ), Steinke et al. 2023", RED),
    "gaussian": ("Gaussian curve of this (ε, δ)", OCHRE),
    "exact": ("the training's own curve", BLUE),
}


@dataclass(frozen=True)
class Training:
    """DP-SGD, with a parameter for each canary that nothing else moves.

    Attributes:
        sigma: the noise of the claim, for a clip of 1.
        rate: of Poisson sampling.
        steps: how many there are.
    """

    sigma: float
    rate: float
    steps: int

    @property
    def plan(self) -> tb.Composition:
        """What is claimed."""
        return tb.Gaussian(self.sigma).subsampled(self.rate) * self.steps

    def half_the_noise(self, canaries: int) -> IdealRun:
        """Makes the run with half of sigma, by the sums of its steps."""
        n, q = self.steps, self.rate
        spread = self.sigma / 2 * math.sqrt(n)
        weights = [1.0] * (n + 1)  # of so many steps that take a canary, over that of the mode
        mode = int(n * q)
        for k in range(mode, n):
            weights[k + 1] = weights[k] * (n - k) / (k + 1) * q / (1 - q)
        for k in range(mode, 0, -1):
            weights[k - 1] = weights[k] * k / (n - k + 1) * (1 - q) / q
        likely, total = [k for k in range(n + 1) if weights[k] > 1e-9], sum(weights)
        return IdealRun.mixed(
            canaries, [k / spread for k in likely], [weights[k] / total for k in likely]
        )


TRAININGS = {
    "σ = 2, q = 0.1, 200 steps": Training(2.0, 0.1, 200),
    "σ = 1, q = 0.02, 1,000 steps": Training(1.0, 0.02, 1000),
}


def numbers() -> dict[str, Any]:
    """By training: its epsilon, the Gaussian mu of it, and by canaries the tests' p-values."""
    return {name: _of(training) for name, training in TRAININGS.items()}


def _of(training: Training) -> dict[str, Any]:
    epsilon = training.plan.epsilon(DELTA)
    mu = 1.0 / tb.calibrate(tb.Gaussian, epsilon=epsilon.upper, delta=DELTA).value
    found: dict[str, Any] = {"epsilon": epsilon.to_dict(), "mu": mu}
    for m in CANARIES:
        run = training.half_the_noise(m)
        each = run.each_number()
        audit = tb.audit.one_run(run.scores, run.labels, claim=training.plan, delta=DELTA)
        found[str(m)] = {
            "one epsilon": min(theorem.p_value(seen, epsilon.upper, DELTA) for seen in each),
            "gaussian": min(recursion.p_value(seen, mu) for seen in each),
            "exact": audit.p_value,
        }
    return found


def draw(numbers: dict[str, Any], path: Path) -> None:
    """The p-values by the number of canaries."""
    with picture(path, panels=2) as axes:
        for ax, name in zip(axes, TRAININGS, strict=True):
            for test, (label, colour) in TESTS.items():
                p = [numbers[name][str(m)][test] for m in CANARIES]
                ax.plot(CANARIES, p, color=colour, marker="o", ms=3, lw=1.4, label=label)
            ax.axhline(LEVEL, ls=":", color=PALE, label="refuted at 95 %")
            ax.set_xscale("log", base=2)
            ax.set_xticks(CANARIES, [f"{m:,}" for m in CANARIES])
            ax.set_yscale("log")
            ax.set(xlabel="canaries", ylabel="p-value of the claim, at half the noise")
            ax.set_title(f"DP-SGD, {name}", loc="left", color=INK)
            ax.legend(frameon=False, fontsize=8.5)


def finding(numbers: dict[str, Any]) -> Finding:
    """From how many canaries on each test refutes."""
    said = []
    for name in TRAININGS:
        tests = [f"{test}: {_from(numbers[name], kind)}" for kind, (test, _) in TESTS.items()]
        said.append(f"{name}: {'; '.join(tests)}")
    return Finding(f"Half the noise is refuted. {'. '.join(said)}.", Verdict.BEYOND)


def _from(found: dict[str, Any], test: str) -> str:
    """Says from how many canaries on a test refutes."""
    enough = [m for m in CANARIES if found[str(m)][test] <= LEVEL]
    last = f"p-value {found[str(CANARIES[-1])][test]:.2g} with {CANARIES[-1]:,}"
    return f"from {enough[0]:,} canaries on ({last})" if enough else f"not ({last})"
