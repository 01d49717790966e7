"""Audits by bets, which may be looked at after every trial."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import tightbudget as tb
from tightbudget.audit import sequential
from tightbudget.audit.betting import _STAKES, Bets
from tightbudget.audit.claims import ClaimLine, ClaimLines, lines_of_gaussian


def bets(right: Any, wrong: Any) -> Bets:
    """The bets after each of the trials."""
    absent = ~(right | wrong)
    first, second, third = (np.cumsum(part).tolist() for part in (right, wrong, absent))
    return Bets(tuple(first), tuple(second), tuple(third))


@pytest.mark.parametrize("delta", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_no_guess_of_a_private_run_is_expected_to_gain(epsilon: float, delta: float) -> None:
    # the worst run: with the probability delta it publishes the coin, else it keeps epsilon
    lines = ClaimLines((ClaimLine(epsilon, delta),))
    share = math.exp(epsilon) / (1 + math.exp(epsilon))
    right = delta + (1 - delta) * share
    won, lost = [
        1 / Bets((int(one),), (int(not one),), (0,)).p_value(lines) for one in (True, False)
    ]
    # a capital below 1 reads as 1: the expectation of what is above 1 alone
    assert right * won + (1 - right) * min(1.0, lost) <= 1 + (1 - right)
    mean = 1 / np.array([Bets((n,), (n,), (0,)).p_value(lines) for n in (1, 10, 100)])
    if epsilon == delta == 0.0:
        assert mean.tolist() == [1.0, 1.0, 1.0]


def test_capital_is_that_of_the_bets_by_exact_fractions() -> None:
    epsilon, delta, n, m, k = 1.0, 0.05, 30, 4, 6
    q = Fraction(math.exp(epsilon)) / (1 + Fraction(math.exp(epsilon)))
    spent = Fraction(delta) * (1 - q)
    total = Fraction(0)
    for part in _STAKES.tolist():
        stake = Fraction(part) / (q + spent)
        absent = 1 - Fraction(part) * Fraction(delta) / (1 + Fraction(delta))
        assert absent <= 1 - stake * spent  # an absent guess loses what it does at epsilon = 0
        gains = (1 + stake * (1 - q - spent), 1 - stake * (q + spent), absent)
        total += gains[0] ** n * gains[1] ** m * gains[2] ** k
    capital = total / len(_STAKES)
    seen = Bets((n,), (m,), (k,)).p_value(ClaimLines((ClaimLine(epsilon, delta),)))
    assert float(1 / capital) <= seen <= float(1 / capital) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_capital_falls_as_the_claim_grows(seed: int) -> None:
    # so a lower bound that is ever wrong refutes the true claim at that moment
    draw = np.random.default_rng(seed)
    counts = [tuple(np.sort(draw.integers(0, 400, 5)).tolist()) for _ in range(3)]
    seen, delta = Bets(*counts), float(draw.choice([0.0, 1e-5, 0.05, 0.3]))
    at_epsilon = [
        seen.p_value(ClaimLines((ClaimLine(float(e), delta),))) for e in np.linspace(0, 6, 200)
    ]
    at_mu = [seen.p_value(seen.gaussian(float(mu))) for mu in np.linspace(0, 5, 100)]
    for values in (at_epsilon, at_mu):
        assert (np.diff(values) >= -1e-9 * np.array(values[1:])).all()


def test_the_lines_of_a_gaussian_curve_are_the_same_for_every_mu() -> None:
    seen = Bets((9,), (1,), (3,))
    curves = [seen.gaussian(mu) for mu in (0.0, 0.01, 0.7, 4.0, 30.0)]
    assert len({tuple(curve.epsilons.tolist()) for curve in curves}) == 1
    for curve, mu in zip(curves[1:], (0.01, 0.7, 4.0, 30.0), strict=True):
        exact = [tb.Gaussian(1 / mu).delta(e, rtol=1e-3) for e in (0.0, 0.5)]
        for e, bounds in zip((0.0, 0.5), exact, strict=True):
            above = [line for line in curve.points if line.epsilon <= e]
            assert above[-1].delta >= bounds.lower
    assert all(line.delta > 0.0 for line in curves[1].points)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["randomized response", "gaussian"])
def test_honest_programs_are_ever_refuted_in_at_most_five_of_a_hundred(kind: str) -> None:
    draws, refuted, n = np.random.default_rng(36), 0, 200
    for _ in range(2000):
        labels = draws.integers(0, 2, n)
        if kind == "gaussian":
            scores, lines = draws.normal(size=n) + labels, lines_of_gaussian(1.0)
            called, silent = scores > 0.5, np.abs(scores - 0.5) < 0.8
        else:
            lines = ClaimLines((ClaimLine(1.0, 0.0),))
            called = (draws.random(n) < 1 / (1 + math.exp(-1.0))) == (labels == 1)
            silent = np.zeros(n, dtype=bool)
        right = (called == (labels == 1)) & ~silent
        refuted += bets(right, ~right & ~silent).refutes(lines, 0.05)
    assert binom.sf(refuted - 1, 2000, 0.05) > 1e-3


def test_half_the_noise_is_seen_and_stays_seen() -> None:
    draws = np.random.default_rng(5)
    labels = draws.integers(0, 2, 600)
    scores = draws.normal(size=600) + 2 * labels
    guesses = (scores > 1).astype(int)
    claim = tb.Gaussian(1.0)
    found = [
        sequential(guesses[:n], labels[:n], claim=claim, delta=1e-5) for n in (20, 200, 400, 600)
    ]
    assert found[0].verdict == "consistent"
    assert [one.verdict for one in found[2:]] == ["refuted"] * 2
    p = [one.p_value for one in found]
    assert p == sorted(p, key=lambda x: -(x or 0.0))  # the largest capital so far counts
    assert 1.0 < found[-1].mu_at_least < 2.0
    assert found[-1].trials == 600
    honest = draws.normal(size=600) + labels
    fair = sequential((honest > 0.5).astype(int), labels, claim=claim, delta=1e-5)
    assert fair.verdict == "consistent"
    assert fair.mu_at_least < 1.0
    assert fair.needed is not None
    assert fair.needed.value < 400


def test_absent_guesses_count_for_little_and_many_trials_have_few_looks() -> None:
    labels = np.arange(5000) % 2
    guesses = [x if i % 5 == 0 else None for i, x in enumerate(labels.tolist())]
    found = sequential(guesses, labels, claim=(1.0, 1e-6), delta=1e-6)
    assert found.verdict == "refuted"
    assert (found.guesses, found.right) == (1000, 1000)
    assert found.epsilon_at_least > 4.0


def test_bad_trials_are_refused() -> None:
    with pytest.raises(tb.ParameterError, match="guesses must be a list of 1"):
        sequential(["x"] * 12, np.arange(12) % 2, delta=0.0)
    with pytest.raises(tb.ParameterError, match="an audit needs ten canaries or more, got 3"):
        sequential([1, 0, 1], [1, 0, 1], delta=0.0)


@pytest.mark.parametrize("confidence", [1e-9, 0.3, 0.6, 0.8])
def test_few_trials_that_show_half_the_noise_are_found(confidence: float) -> None:
    labels = np.arange(20) % 2
    found = sequential(labels, labels, delta=0.0, claim=(1.0, 0.0), confidence=confidence)
    assert found.needed is not None
    assert 0 < found.needed.value < 1000
