"""Permute-and-flip: chooses one of many candidates, with fewer misses at the same epsilon.

The candidates come in random order, and one of the score s is taken with probability e^(f (s - m)),
where m is the largest score; the first that is taken is chosen. That is the candidate with the
largest score plus exponential noise of mean 1 / f (Ding et al. 2021). Proof of epsilon-DP: with the
noise of all others fixed, candidate i is chosen if its own noise is above some t. Between
neighbours t grows by at most 2 D, for the sensitivity D, and by at most D if all scores move in one
direction. Noise above t + a is at least e^(-f a) times as likely as noise above t.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from tightbudget.numerics.validate import plain_numbers
from tightbudget.output_dp.amount import exact_positive
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanisms.scores import ScoredChoice
from tightbudget.release.noise.coins import bernoulli_exp, uniform
from tightbudget.release.noise.noise import Noise


@plain_numbers
@dataclass(frozen=True)
class PermuteAndFlip(ScoredChoice):
    """Chooses one of many candidates, the likelier the larger its score, by permute-and-flip.

    The value of a release is the candidate. At the same epsilon it misses the best score by no more
    on average than :class:`ExponentialRelease`, and in some cases by half as much. It has no
    bounded range: where many choices are composed, or a budget counts rho, that one is cheaper. The
    noisy maximum with exponential noise is the same mechanism. The choice is exact: it is made from
    fair coins and rational scores, and no probability is rounded.

    Guarantee: epsilon-DP, delta = 0; one cell, "value". How long a run takes tells of the scores:
    candidates are looked at until one is taken. Show the value at a time that was fixed before.
    Source: McKenna, Sheldon 2020; Ding, Kifer, Steinke et al. 2021 (exponential noise).

    Args:
        scores: from the data to one number for each candidate, in their order. A float counts as
            its exact binary value.
        candidates: what is chosen from: different hashable values, which must not depend on the
            data.
        epsilon: > 0, nats.
        sensitivity: > 0, how far each score can move between neighbouring data sets, as it is
            computed. The caller says by this number which data sets are neighbours.
        monotone: whether all scores move in one direction between neighbours, as counts do when
            neighbours have one record more or less.
        bounds: (low, high): scores beyond are moved there, and a score that is no number counts as
            low, as does every score of a query that raises. A query that can fail needs them: it
            has the sensitivity high - low, whatever it does. Without bounds a score that is no
            finite number counts as 0.

    Raises:
        ParameterError: a parameter is refused.
    """

    meant: ClassVar[Mapping[str, str]] = {
        "score": "scores is a function from the data to a score for each candidate",
        "scale": "exponential noise of a scale has epsilon = 2 * sensitivity / scale",
    }

    @cached_property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the price epsilon."""
        return OutputDP({"value": exact_positive(epsilon=self.epsilon)})

    def _run(self, data: Any, noise: Noise) -> tuple[Any, Cell]:
        left = list(enumerate(self._scored(data)))
        while True:
            i, below = left.pop(uniform(len(left), noise))  # guard: each-candidate-once
            if bernoulli_exp(below, noise):
                return self.candidates[i], "value"
