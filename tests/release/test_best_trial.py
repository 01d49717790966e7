"""A search that pays once: how often it runs, what it releases, and what it refuses."""

from __future__ import annotations

import itertools
import math
import warnings
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tightbudget as tb
from tightbudget.release import BestTrial
from tightbudget.release.noise.trials import number_of_trials
from tightbudget.trials import Trials

LAW = tb.trials.NegativeBinomial(4.0)


class Coins:
    """Coins of a generator, for tests alone."""

    batch = 1

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def coin(self) -> bool:
        return bool(self.random.integers(2))

    def laplace(self, scale: Any, size: int) -> Any:
        return self.random.integers(-5, 6, size)

    gaussian = laplace


class Bits:
    """The coins of one number in [0, 1)."""

    def __init__(self, u: Fraction) -> None:
        self.u = u

    def coin(self) -> bool:
        self.u *= 2
        bit, self.u = self.u >= 1, self.u % 1
        return bit


@pytest.mark.parametrize(
    "law",
    [
        LAW,
        tb.trials.Poisson(2.0),
        tb.trials.NegativeBinomial(3.0, 0.0),
        tb.trials.NegativeBinomial(3.0, 0.5),
        tb.trials.Binomial(4, 0.25),
        tb.trials.Binomial(3),
    ],
    ids=repr,
)
def test_a_number_is_where_its_coins_are_in_the_distribution_function(law: Trials) -> None:
    chances = [low for low, _ in itertools.islice(law.chances(90), 12)]
    ends = [Fraction(0), *itertools.accumulate(chances)]
    for k, (low, high) in enumerate(itertools.pairwise(ends)):
        if high - low < Fraction(1, 10**9):
            continue
        for share in (Fraction(1, 10**6), Fraction(1, 2), 1 - Fraction(1, 10**6)):
            u = low + (high - low) * share
            assert number_of_trials(law, Bits(u)) == k  # type: ignore[arg-type]


def test_coins_near_an_end_are_followed_by_more() -> None:
    """A geometric number of mean 4 is 1 below 1/4: so many equal bits take more digits."""
    quarter, tiny = Fraction(1, 4), Fraction(1, 2**500)
    assert number_of_trials(LAW, Bits(quarter - tiny)) == 1  # type: ignore[arg-type]
    assert number_of_trials(LAW, Bits(quarter + tiny)) == 2  # type: ignore[arg-type]


def test_numbers_are_as_frequent_as_the_law_says() -> None:
    coins = Coins(7)
    counted = Counter(number_of_trials(LAW, coins) for _ in range(1000))
    for k in (1, 2, 3, 4):
        chance = 0.25 * 0.75 ** (k - 1)
        assert abs(counted[k] / 1000 - chance) < 4.5 * math.sqrt(chance / 1000)


def search(trial: Any, law: Trials = LAW) -> BestTrial:
    return BestTrial(trial, run=tb.ApproximateDP(0.1), trials=law)


def test_the_best_is_released_and_paid_once() -> None:
    asked: list[int] = []

    def trial(data: list[int], noise: Any) -> tuple[float, str]:
        asked.append(len(asked))
        return [3.0, 7.0, 7.0, 1.0][len(asked) % 4], f"model {len(asked)}"

    meter = tb.OutputDPFilter(epsilon=1.0)
    found = search(trial, tb.trials.Binomial(4)).release([1], meter=meter, noise=Coins(1))
    assert asked == [0, 1, 2, 3]
    assert found.value == "model 1"  # the first of equal ones
    bound = tb.ApproximateDP(0.1).best_of(tb.trials.Binomial(4)).answer(delta=0.0).bounds.upper
    assert found.receipt.charged.epsilon == Fraction(bound)
    assert meter.spent.epsilon == Fraction(bound) <= 0.4001


def test_a_trial_that_fails_is_the_worst_one() -> None:
    answers = iter([ValueError, (math.nan, "nan"), ("7", "text"), (-3.0, "kept"), 5])

    def trial(data: object, noise: Any) -> Any:
        answer = next(answers)
        if answer is ValueError:
            raise ValueError("of the data")
        return answer

    meter = tb.OutputDPFilter(epsilon=1.0)
    found = search(trial, tb.trials.Binomial(5)).release([1], meter=meter, noise=Coins(1))
    assert found.value == "kept"


def test_no_trial_releases_nothing_and_is_paid_all_the_same() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        none = tb.release.FixedNoise([0] * 64)
    meter = tb.OutputDPFilter(epsilon=1.0)
    law = tb.trials.Poisson(0.5)
    found = search(lambda data, noise: (1.0, "model"), law).release([1], meter=meter, noise=none)
    assert found.value is None
    assert meter.spent.epsilon > 0


def test_a_search_that_does_not_fit_runs_no_trial() -> None:
    def trial(data: object, noise: Any) -> Any:
        pytest.fail("a trial has run")

    meter = tb.OutputDPFilter(epsilon=0.1)
    with pytest.raises(tb.errors.BudgetError):
        search(trial).release([1], meter=meter, noise=Coins(1))
    assert meter.spent.epsilon == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trials": 4}, "trials must be a law of tb.trials"),
        ({"run": 4}, "run must be a mechanism or a composition, got 4"),
        ({"delta": 2.0}, r"delta must be in \[0, 1\], got 2.0"),
        ({"run": tb.Gaussian(1.0)}, "delta must be above .* for a search of such runs, got 0.0"),
        ({"trial": lambda data: (1.0, 2)}, "trial must be a function of 2 arguments"),
    ],
)
def test_refusals(given: dict[str, Any], message: str) -> None:
    usual: dict[str, Any] = {
        "trial": lambda data, noise: (1.0, 2),
        "run": tb.ApproximateDP(0.1),
        "trials": LAW,
    }
    with pytest.raises(tb.ParameterError, match=message):
        BestTrial(**usual | given)
