"""Audits of many runs and of measured outputs: published arithmetic, coverage, power, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, binom, norm

import tightbudget as tb
from tightbudget.audit import histograms, many_runs
from tightbudget.audit.asked import least_epsilon, least_mu
from tightbudget.audit.rates import Rates

COUNTS = [(3, 500, 300, 500), (0, 1000, 700, 1000), (50, 100, 2, 100), (0, 10, 0, 10)]


def upper(k: int, n: int, level: float) -> float:
    return 1.0 if k == n else float(beta.ppf(1 - level, k + 1, n - k))


@pytest.mark.parametrize("counts", COUNTS)
def test_one_threshold_has_the_numbers_of_jax_privacy(counts: tuple[int, ...]) -> None:
    # the lower bounds of JAX Privacy's auditing.py, two-sided, at one threshold
    seen = Rates(*counts)
    fpr, fnr = upper(counts[0], counts[1], 0.025), upper(counts[2], counts[3], 0.025)
    for delta in (0.0, 1e-5, 0.1):
        either = ((1 - delta - one, other) for one, other in ((fnr, fpr), (fpr, fnr)))
        theirs = max(0.0, *(math.log(max(p, 1e-300) / q) for p, q in either))
        assert least_epsilon(seen, delta, 0.05) == pytest.approx(theirs, abs=1e-6)
    mu = max(0.0, norm.isf(fpr) - norm.ppf(fnr))
    # 49 tangents are below the Gaussian curve
    assert mu * 0.997 <= least_mu(seen, 0.05) + 1e-9 <= mu + 2e-9


@pytest.mark.slow
def test_honest_programs_are_refuted_in_at_most_five_of_a_hundred() -> None:
    draws, refuted, claim = np.random.default_rng(36), 0, tb.Gaussian(1.0)
    labels = np.arange(300) % 2
    for _ in range(2000):
        scores = draws.normal(size=300) + labels
        found = many_runs(scores, labels, claim=claim, delta=1e-5, rates=[0.1])
        refuted += found.verdict == "refuted" or found.mu_at_least > 1.0
    assert binom.sf(refuted - 1, 2000, 0.05) > 1e-3


@pytest.mark.slow
def test_honest_histograms_are_refuted_in_at_most_five_of_a_hundred() -> None:
    draws, refuted = np.random.default_rng(36), 0
    kept, epsilon = 0.6, math.log(3)
    for _ in range(400):  # k-ary randomised response of three categories, at its epsilon
        p = draws.multinomial(300, [kept, 0.2, 0.2])
        q = draws.multinomial(300, [0.2, kept, 0.2])
        refuted += histograms(p, q, claim=(epsilon, 0.0), delta=0.0).verdict == "refuted"
    assert binom.sf(refuted - 1, 400, 0.05) > 1e-3


@pytest.mark.parametrize("held_out", [True, False])
def test_half_the_noise_is_seen_by_many_runs(held_out: bool) -> None:
    draws, labels = np.random.default_rng(3), np.arange(400) % 2
    rates = [0.05, 0.2]
    wrong = draws.normal(size=400) + 2 * labels
    found = many_runs(
        wrong, labels, claim=tb.Gaussian(1.0), delta=1e-5, rates=rates, held_out=held_out
    )
    assert found.verdict == "refuted"
    assert 1.0 < found.mu_at_least < 2.0
    assert found.trials == (200 if held_out else 400)
    right = many_runs(
        draws.normal(size=400) + labels, labels, claim=tb.Gaussian(1.0), delta=1e-5,
        rates=rates, held_out=held_out,
    )  # fmt: skip
    assert right.verdict == "consistent"
    assert right.needed is not None
    assert right.needed.value <= 200


def test_the_false_positives_of_a_threshold_are_fixed_beforehand() -> None:
    labels = np.repeat([0, 1], 100)
    scores = np.arange(200.0)
    found = many_runs(scores, labels, delta=0.0, rates=[0.07])
    (point,) = found.points
    assert (point.false_positives, point.negatives, point.positives) == (7, 100, 100)
    assert point.false_negatives == 0
    assert many_runs(-scores, labels, delta=0.0, rates=[0.07]).epsilon_at_least == 0.0


def test_measured_outputs_refute_a_claim_that_is_too_small() -> None:
    draws = np.random.default_rng(1)
    p = draws.multinomial(20_000, [0.5, 0.3, 0.2])
    q = draws.multinomial(20_000, [0.25, 0.3, 0.45])
    exact = math.log(0.45 / 0.2)
    found = histograms(p, q, delta=0.0, claim=(math.log(2), 0.0))
    assert found.verdict == "refuted"
    assert 0.9 * exact < found.epsilon_at_least < exact
    assert histograms(p, q, delta=0.0, claim=(exact, 0.0)).verdict == "consistent"
    # the other way round, and with outcomes in another order
    assert histograms(q, p, delta=0.0, claim=(math.log(2), 0.0)).verdict == "refuted"
    # a split has all counts, and the same one with the same seed
    assert found.trials == 20_000
    assert found == histograms(p.tolist(), q.tolist(), delta=0.0, claim=(math.log(2), 0.0))


@pytest.mark.slow
def test_laplace_noise_in_bins_is_consistent_and_half_of_it_is_not() -> None:
    draws = np.random.default_rng(2)

    def counts(scale: float, shift: float) -> Any:
        x = np.clip(np.floor(4 * (draws.laplace(scale=scale, size=2000) + shift)), -30, 30)
        return np.bincount(x.astype(int) + 30, minlength=61)

    claim = tb.Laplace(1.0)
    assert histograms(counts(1, 0), counts(1, 1), claim=claim, delta=0).verdict == "consistent"
    assert histograms(counts(0.5, 0), counts(0.5, 1), claim=claim, delta=0).verdict == "refuted"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"included": [0, 1, 2] * 4}, "included[2] must be 0 or 1, got 2"),
        ({"scores": [1.0] * 9}, "an audit needs ten canaries or more, got 9"),
        ({"rates": []}, "rates must have a false-positive rate, got none"),
        ({"rates": 0.1}, "rates must be a list of numbers, got 0.1: write [0.1]"),
        ({"rates": [1.5]}, "rates[0] must be in [0, 1], got 1.5"),
        ({"included": [1] + [0] * 11}, "included must have 0 and 1 in the half that"),
        ({"confidence": 0}, "confidence must be in (0, 1), got 0"),
    ],
)
def test_bad_runs_are_refused(given: dict[str, Any], message: str) -> None:
    good = {"scores": np.arange(12.0), "included": np.arange(12) % 2, "delta": 0.0}
    with pytest.raises(tb.ParameterError) as error:
        many_runs(**{**good, **given})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("p", "message"),
    [
        ([5, 6, 7], "p_counts and q_counts must have the same outcomes, got 3 and 2"),
        ([5.0, 6.0], "p_counts must be a list of two integers >= 0 or more, one an outcome"),
        ([12], "p_counts must be a list of two integers >= 0 or more, one an outcome"),
        ([-1, 20], "p_counts[0] must be an integer >= 0, got -1"),
        ([1, 2], "sum(p_counts) must be in 10 ... 10,000,000, got 3"),
        ([1, 10**8], "sum(p_counts) must be in 10 ... 10,000,000, got 100000001"),
    ],
)
def test_bad_counts_are_refused(p: list[int], message: str) -> None:
    with pytest.raises(tb.ParameterError) as error:
        histograms(p, [10, 10], delta=0.0)
    assert message in str(error.value)
