"""Central limits are estimates: near the truth where they should be, and never bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import tightbudget as tb
from tightbudget.pairs.direction import Direction
from tightbudget.theorems import gaussian_dp


def test_of_gaussian_noise_it_is_the_truth() -> None:
    for mu, eps in ((1.0, 1.0), (0.1, 0.0), (3.0, 8.0), (0.5, 2.5)):
        truth = (tb.Gaussian(1 / mu) * 1).delta(eps)
        assert gaussian_dp.delta(mu, eps).value == pytest.approx(truth.upper, rel=1e-9)
        found = gaussian_dp.epsilon(mu, truth.upper)
        assert found.value == pytest.approx(eps, abs=1e-8)
        assert "not certified" in str(found)


def test_published_values() -> None:
    """peers.md 1, 10, 39 and 59."""
    assert gaussian_dp.delta(1.0, 1.0).value == pytest.approx(0.1269367375066439)
    assert gaussian_dp.epsilon(1.0, 1e-5).value == pytest.approx(4.37717809568122)
    assert gaussian_dp.epsilon(1.0, 1e-15).value == pytest.approx(8.16557969550425)


def test_the_mu_of_samples() -> None:
    found = gaussian_dp.mu_of_sampling(1.0, 0.01, 1000)
    assert found.value == pytest.approx(0.01 * math.sqrt(1000 * (math.e - 1)))
    assert gaussian_dp.mu_of_sampling(2.0, 0.01, 1000, 2.0) == found
    assert gaussian_dp.mu_of_sampling(1e-3, 0.1, 1).value == math.inf
    # many mild steps: close to the truth, but below it, so it must not be charged
    run = tb.Gaussian(1.0).subsampled(1e-3) * 10**6
    mu = gaussian_dp.mu_of_sampling(1.0, 1e-3, 10**6).value
    truth = run.epsilon(1e-5, 1e-3)
    assert gaussian_dp.epsilon(mu, 1e-5).value == pytest.approx(truth.upper, rel=0.03)
    with pytest.raises(tb.ParameterError, match="an Estimate cannot be charged"):
        tb.GaussianDPFilter(5).reserve(gaussian_dp.mu_of_sampling(1.0, 1e-3, 10**6))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mechanism", "mean", "variance"),
    [
        (tb.Gaussian(4.0), 1 / 32, 1 / 16),
        (tb.Laplace(2.0), 0.5 + math.exp(-0.5) - 1, None),
        (tb.RandomizedResponse(0.6), 0.2 * math.log(1.5), None),
        (tb.Gaussian(1.0).subsampled(1e-4), 1e-8 * (math.e - 1) / 2, 1e-8 * (math.e - 1)),
    ],
)
def test_moments_of_one_run(mechanism: tb.Mechanism, mean: float, variance: float | None) -> None:
    for direction in Direction:
        found = gaussian_dp.moments(mechanism.pair(direction))
        assert found[0] == pytest.approx(mean, rel=2e-2)
        assert variance is None or found[1] == pytest.approx(variance, rel=2e-2)


def test_the_central_limit_is_close_after_many_runs() -> None:
    step = tb.Laplace(30.0)
    mean, variance = gaussian_dp.moments(step.pair(Direction.REMOVE))
    limit = gaussian_dp.Normal(1000 * mean, 1000 * variance)
    truth = (step * 1000).epsilon(1e-4)
    assert limit.epsilon(1e-4).value == pytest.approx(truth.upper, rel=0.02)
    assert limit.delta(truth.upper).value == pytest.approx(1e-4, rel=0.1)


def test_the_ends_of_the_scale() -> None:
    assert gaussian_dp.delta(0.0, 0.0).value == 0.0
    assert gaussian_dp.epsilon(0.0, 0.1).value == 0.0
    assert gaussian_dp.Normal(2.0, 0.0).delta(1.0).value == pytest.approx(1 - math.exp(-1))
    assert gaussian_dp.Normal(2.0, 0.0).delta(1e100).value == 0.0
    assert gaussian_dp.Normal(2.0, 0.0).epsilon(0.5).value == pytest.approx(2 - math.log(2))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: gaussian_dp.delta(-1.0, 1.0), "mu must be a finite number >= 0, got -1.0"),
        (lambda: gaussian_dp.epsilon(1.0, 0.0), r"delta must be in \(0, 1\), got 0.0"),
        (lambda: gaussian_dp.Normal(math.nan, 1.0), "mean must be a finite number, got nan"),
        (lambda: gaussian_dp.Normal(1.0, -1.0), "variance must be a finite number >= 0"),
        (lambda: gaussian_dp.Normal(1.0, 1.0).delta(-1.0), "epsilon must be a finite number >= 0"),
        (lambda: gaussian_dp.mu_of_sampling(0.0, 0.1, 1), "sigma must be a finite number > 0"),
        (lambda: gaussian_dp.mu_of_sampling(1.0, 2.0, 1), r"rate must be in \[0, 1\], got 2.0"),
        (lambda: gaussian_dp.mu_of_sampling(1.0, 0.1, 0), "runs must be an integer >= 1, got 0"),
    ],
)
def test_refusals(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        ask()
