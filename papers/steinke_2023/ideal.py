"""Ideal runs, without a draw: the scores of m canaries are quantiles of the laws that they have."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

import tightbudget as tb

__all__ = ["LEVEL", "Guesses", "IdealRun"]

LEVEL = 0.05


@dataclass(frozen=True)
class Guesses:
    """Counts of guesses about the canaries of one run.

    Attributes:
        canaries: how many there are.
        made: how many of them were guessed.
        right: how many guesses are right.
    """

    canaries: int
    made: int
    right: int

    def audit(self, delta: float, claim: Any = None) -> tb.audit.Audit:
        """Audits a run with these counts."""
        labels = np.arange(self.canaries) % 2
        guesses = np.full(self.canaries, np.nan)
        guesses[: self.made] = np.abs(labels - 1)[: self.made]
        guesses[: self.right] = labels[: self.right]
        return tb.audit.one_run_of_guesses(guesses, labels, delta=delta, claim=claim)


@dataclass(frozen=True)
class IdealRun:
    """Scores of canaries of a run: half of them are those of included ones.

    Attributes:
        scores: (m,) numbers.
        labels: (m,) 1 for an included canary, 0 for one that was left out.
    """

    scores: Any
    labels: Any

    @staticmethod
    def gaussian(canaries: int, mu: float) -> IdealRun:
        """Makes the run of a Gaussian mechanism, whose scores are N(mu, 1) and N(0, 1)."""
        return IdealRun.mixed(canaries, [mu], [1.0])

    @staticmethod
    def mixed(canaries: int, means: Any, weights: Any) -> IdealRun:
        """Makes a run whose scores are a mixture of N(mean, 1) for included canaries."""
        half = (canaries + 1) // 2
        shares = (np.arange(half) + 0.5) / half
        x = np.linspace(-8.0, 8.0 + max(means), 4001)
        cdf = np.vectorize(NormalDist().cdf)
        laws = (cdf(x), sum(w * cdf(x - mean) for mean, w in zip(means, weights, strict=True)))
        scores = np.concatenate([np.interp(shares, law, x) for law in laws])
        labels = np.repeat([0, 1], half)
        return IdealRun(scores[:canaries], labels[:canaries])

    def guesses(self, each: int) -> Guesses:
        """Guesses so many canaries with the highest scores to be in, and so many to be out."""
        ranked = self.labels[np.argsort(-self.scores, kind="stable")]
        right = int(ranked[:each].sum() + (1 - ranked[ranked.size - each :]).sum())
        return Guesses(ranked.size, 2 * each, right)

    def each_number(self) -> list[Guesses]:
        """Counts for each number of guesses that is tried: a half on each side, a quarter, ..."""
        found = [self.labels.size // 2]
        while found[-1] >= 10:
            found.append(found[-1] // 2)
        return [self.guesses(each) for each in found]
