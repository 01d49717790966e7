"""Both papers on audits of one run: their tests against exact sums, and what is said of them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from papers.finding import Verdict
from papers.mahloujifar_2024 import figure_gaussian, figure_training, recursion
from papers.steinke_2023 import figure_guesses, figure_right, theorem
from papers.steinke_2023.ideal import Guesses, IdealRun
from tests.papers.committed import committed

import tightbudget as tb


@pytest.mark.parametrize("seen", [Guesses(40, 40, 31), Guesses(60, 20, 20), Guesses(50, 30, 1)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.5, 1e-3), (2.0, 1e-5)])
def test_the_first_papers_p_value_is_its_sum(seen: Guesses, epsilon: float, delta: float) -> None:
    q = Fraction(math.exp(epsilon)) / (1 + Fraction(math.exp(epsilon)))
    r, v = seen.made, seen.right
    mass = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    beta = sum(mass[v:])
    steepest = max((sum(mass[v - i :]) - beta) / i for i in range(1, v + 1))
    exact = min(1.0, float(beta + 2 * seen.canaries * Fraction(delta) * steepest))
    assert theorem.p_value(seen, epsilon, delta) == pytest.approx(exact, rel=1e-9)


def test_a_lower_bound_is_where_the_first_papers_p_value_is_the_level() -> None:
    for seen in (Guesses(100, 100, 80), Guesses(1000, 60, 58)):
        found = theorem.least_epsilon(seen, 1e-5)
        assert theorem.p_value(seen, found, 1e-5) == pytest.approx(0.05, rel=1e-6)
    assert theorem.least_epsilon(Guesses(100, 100, 50), 1e-5) == 0.0
    assert theorem.p_value(Guesses(100, 100, 0), 0.0, 0.0) == 1.0


def test_the_second_papers_p_value_is_where_its_recursion_refutes() -> None:
    seen = Guesses(300, 100, 93)
    mu = recursion.least_mu(seen)
    assert recursion.p_value(seen, mu) == pytest.approx(0.05, rel=2e-3)
    assert recursion.refuted(seen, mu * 0.999, 0.05)
    assert not recursion.refuted(seen, mu * 1.001, 0.05)
    # published canaries: all of few guesses are right for any mu that is large
    assert recursion.p_value(Guesses(100, 10, 10), 9.0) == 1.0


def test_guesses_are_audited_as_counted() -> None:
    audit = Guesses(50, 30, 21).audit(0.0)
    assert (audit.trials, audit.guesses, audit.right) == (50, 30, 21)


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_an_ideal_run_has_the_right_guesses_that_are_expected(mu: float) -> None:
    run, draws = IdealRun.gaussian(20_000, mu), np.random.default_rng(5)
    labels = draws.integers(0, 2, 200_000)
    drawn = IdealRun(draws.normal(size=200_000) + mu * labels, labels)
    for part in (2, 8):
        seen, by_chance = run.guesses(10_000 // part), drawn.guesses(100_000 // part)
        assert seen.right / seen.made == pytest.approx(by_chance.right / by_chance.made, abs=0.01)
    assert [seen.made for seen in IdealRun.gaussian(80, mu).each_number()] == [80, 40, 20, 10]


def test_sums_of_steps_have_the_mean_and_the_variance_of_a_training() -> None:
    training = figure_training.Training(2.0, 0.1, 200)
    run = training.half_the_noise(4000)
    scores = run.scores[run.labels == 1]
    spread = math.sqrt(200)  # of noise with sigma = 1
    assert scores.mean() == pytest.approx(20 / spread, rel=1e-3)
    assert scores.var() == pytest.approx(1 + 18 / spread**2, rel=0.01)
    assert training.plan == tb.Gaussian(2.0).subsampled(0.1) * 200


def test_findings_follow_the_numbers() -> None:
    right = committed("steinke_2023/figure_right")
    assert figure_right.finding(right).verdict is Verdict.MATCHES
    for cell in ("0", "0.0001"):
        moved = {**right, "100": {**right["100"], cell: {"0.6": {"paper": 0.2, "exact": 0.1}}}}
        assert figure_right.finding(moved).verdict is Verdict.DIFFERS
    curve = committed("mahloujifar_2024/figure_gaussian")
    assert figure_gaussian.finding(curve).verdict is Verdict.MATCHES
    moved = {**curve, "2": {**curve["2"], "one epsilon": 99.0}}
    assert figure_gaussian.finding(moved).verdict is Verdict.DIFFERS
    guesses = figure_guesses.finding(committed("steinke_2023/figure_guesses")).text
    assert "1,000 canaries show 1.79 with 62 guesses" in guesses
    training = figure_training.finding(committed("mahloujifar_2024/figure_training")).text
    assert "Gaussian curve of this (ε, δ): not (p-value 0.063 with 8,000)" in training
    assert "own curve: from 8,000 canaries on (p-value 0.045 with 8,000)" in training
