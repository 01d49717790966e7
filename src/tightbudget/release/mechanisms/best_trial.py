"""The best of a random number of trials: a search that pays once."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.mechanisms.best_of import BestOf
from tightbudget.mechanisms.composition import Composable
from tightbudget.numerics.validate import number, plain_numbers, probability, refuse
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.noise.noise import Noise
from tightbudget.release.noise.trials import number_of_trials
from tightbudget.release.release import answered
from tightbudget.trials import Trials

_BEST = "best"  # the one output cell


@plain_numbers
@dataclass(frozen=True)
class BestTrial(MechanismOnData[Any, Any]):
    """Runs a private trial a random number of times on the data, and releases the best one.

    So hyperparameters are chosen: a trial draws a setting, trains with noise, and scores with
    noise. The number of trials is drawn before the first one; it is not released, and neither are
    the other trials. The value is None where no trial was made, or none has answered.

    Guarantee: if one call of ``trial`` is as private as ``run`` says, its score included, and calls
    are independent of one another, the release is (epsilon, delta)-DP with the epsilon of
    ``run.best_of(trials)``. How long it takes tells the number of trials: show the value at a time
    that was fixed before.

    Args:
        trial: a function of the data and a source of noise that returns a pair (score, value). The
            best score is the largest; of equal ones the first counts. A trial that raises, or whose
            score is no number, is the worst.
        run: a mechanism or a composition: what one call of ``trial`` costs.
        trials: the law of the number of trials, such as ``tb.trials.NegativeBinomial(mean=20)``.
        delta: of the price, in [0, 1]; the epsilon follows.

    Raises:
        ParameterError: an argument is refused, or no epsilon is proved at this ``delta``.
    """

    trial: Callable[[Any, Noise], tuple[float, Any]]
    run: Composable
    trials: Trials
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", probability(delta=self.delta))
        if not isinstance(self.run, Composable):
            raise refuse("run", "be a mechanism or a composition", self.run)
        super().__post_init__()

    @functools.cached_property
    def best(self) -> BestOf:
        """The best of many runs as a mechanism, which answers other questions."""
        found = self.run.best_of(self.trials)
        assert isinstance(found, BestOf)
        return found

    @functools.cached_property
    def guarantee(self) -> OutputDP:
        """The guarantee: one cell, at the epsilon of the best of many runs."""
        epsilon = self.best.answer(delta=self.delta).bounds.upper
        if math.isinf(epsilon):
            lost = self.best.answer(epsilon=math.inf).bounds.upper
            raise ParameterError(
                f"delta must be above {lost:.3g} for a search of such runs, got {self.delta!r}"
            )
        return OutputDP.from_dp(epsilon, self.delta, cells=[_BEST])

    def _run(self, data: Any, noise: Noise) -> tuple[Any, Cell]:
        # before the search, so that no trial can change it
        number = number_of_trials(self.best.trials, noise)
        best: tuple[float, Any] = (-math.inf, None)
        for _ in range(number):
            found = answered(lambda: _scored(self.trial(data, noise)))
            if found is not None and found[0] > best[0]:
                best = found
        return best[1], _BEST


def _scored(answer: Any) -> tuple[float, Any]:
    """Returns a score and a value; raises for anything else."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise ParameterError(f"a trial must answer with a pair (score, value), got {answer!r:.80}")
    return number(**{"the score of an answer": answer[0]}), answer[1]
