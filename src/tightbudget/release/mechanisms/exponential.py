"""Chooses one of many candidates, the likelier the larger its score: the exponential mechanism.

Candidate i has the score s_i, and is chosen with probability e^(f s_i) / Z, where Z is the sum of
e^(f s_j) over all candidates. Between two neighbours the privacy loss of candidate i is
f (s_i - s'_i) + ln(Z' / Z). The second term is the same for all candidates. So the losses lie in an
interval of the length f (max - min) of the moves s_i - s'_i. With the sensitivity D, that is at
most f 2 D, and f D if all scores move in one direction (monotone). With this length set to epsilon,
the mechanism has the bounded range epsilon. The interval contains 0, since both distributions sum
to 1, so that it is epsilon-DP, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from tightbudget.mechanisms.exponential import ExponentialMechanism
from tightbudget.numerics.rounding import double_up
from tightbudget.numerics.validate import plain_numbers
from tightbudget.output_dp.amount import exact_positive
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanisms.scores import ScoredChoice
from tightbudget.release.noise.choices import chosen
from tightbudget.release.noise.noise import Noise


@plain_numbers
@dataclass(frozen=True)
class ExponentialRelease(ScoredChoice):
    """Chooses one of many candidates, with a chance proportional to e^(factor * score).

    The value of a release is the candidate. The factor is ``epsilon / (2 * sensitivity)``, or
    ``epsilon / sensitivity`` if the scores are ``monotone``. The noisy maximum with Gumbel noise of
    the scale 1 / factor is the same mechanism. The choice is exact: it is made from fair coins and
    rational scores, and no probability is rounded.

    Guarantee: bounded range epsilon, so epsilon-DP with delta = 0 and (epsilon^2 / 8)-zCDP; one
    cell, "value". A budget of epsilon charges epsilon, one that counts rho charges epsilon^2 / 8.
    What many choices cost together, :attr:`mechanism` answers. How long a run takes is not hidden:
    it depends on ``scores`` and on how many different scores there are, but hardly on the choice,
    which takes 64 coins unless more have to decide (once in 2^64 / k runs for k candidates).
    Source: McSherry, Talwar 2007; Dong, Durfee, Rogers 2020 (bounded range); Cesar, Rogers 2021
    (its zCDP).

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
        "scale": "Gumbel noise of a scale has epsilon = 2 * sensitivity / scale",
    }

    @cached_property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the price epsilon, with rho = epsilon^2 / 8."""
        epsilon = exact_positive(epsilon=self.epsilon)
        return OutputDP({"value": epsilon}, rho=epsilon**2 / 8)

    @property
    def mechanism(self) -> ExponentialMechanism:
        """One run as a mechanism that composes: ``picked.mechanism * 100`` prices 100 runs.

        Raises:
            ParameterError: epsilon is not in the range of :class:`tb.ExponentialMechanism`.
        """
        return ExponentialMechanism(double_up(exact_positive(epsilon=self.epsilon)))

    def _run(self, data: Any, noise: Noise) -> tuple[Any, Cell]:
        return self.candidates[chosen(self._scored(data), noise)], "value"
