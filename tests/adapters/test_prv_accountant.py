"""What the tests of prv_accountant 0.2.0 ask, asked of its names here, beside exact truths.

Its own tests (microsoft/prv_accountant, tests/, MIT) run against this module with their imports
changed: all pass but one, ``test_throw_error_small_delta``, where theirs gives up and ours answers.
"""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import pytest
from mpmath import mp

import tightbudget as tb
from tightbudget.adapters import prv_accountant as prv


def delta_of_gaussian(epsilon: float, square: Fraction) -> Any:
    """The exact delta of Gaussian noise of this mu^2, with 40 digits."""
    with mp.workdps(40):
        mu = mp.sqrt(mp.mpf(square.numerator) / square.denominator)
        return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-epsilon / mu - mu / 2)


@pytest.mark.parametrize("eps_error", [1.0, 0.01])
@pytest.mark.parametrize("runs", [10_000, 10_001, 10_002])
def test_many_runs_of_gaussian_noise(runs: int, eps_error: float) -> None:
    step = prv.PoissonSubsampledGaussianMechanism(sampling_probability=1.0, noise_multiplier=100.0)
    accountant = prv.PRVAccountant(
        prvs=[step], max_self_compositions=[runs], eps_error=eps_error, delta_error=1e-11
    )
    low, middle, up = accountant.compute_delta(4, [runs])
    truth = delta_of_gaussian(4, Fraction(runs, 10_000))
    assert low <= truth <= up
    assert low <= middle <= up <= low * (1 + 1e-6)


def test_two_kinds_of_gaussian_noise() -> None:
    steps = [prv.PoissonSubsampledGaussianMechanism(1.0, sigma) for sigma in (10.0, 5.0)]
    accountant = prv.PRVAccountant(
        steps, max_self_compositions=[50, 50], eps_error=0.1, delta_error=1e-9
    )
    low, _, up = accountant.compute_delta(4, [50, 50])
    assert low <= delta_of_gaussian(4, Fraction(5, 2)) <= up
    one = prv.PRVAccountant(prv.GaussianMechanism(20.0, l2_sensitivity=2.0), 0.1, 1e-9)
    low, _, up = one.compute_delta(0.1)
    assert low <= delta_of_gaussian(0.1, Fraction(1, 100)) <= up


def test_more_runs_than_were_announced_are_refused() -> None:
    step = prv.PoissonSubsampledGaussianMechanism(1.0, 100.0)
    accountant = prv.PRVAccountant(
        [step], eps_error=0.01, delta_error=1e-11, max_self_compositions=[10_000]
    )
    for asked in ([10_001], 10_001):
        with pytest.raises(tb.ParameterError, match="at most max_self_compositions"):
            accountant.compute_epsilon(1e-5, asked)
    assert accountant.compute_composition(10_000).runs == 10_000
    assert accountant.compute_composition().runs == 1


@pytest.mark.slow  # a small delta at the whole precision
def test_a_delta_at_which_theirs_gives_up_has_an_answer() -> None:
    step = prv.PoissonSubsampledGaussianMechanism(0.00038, 4)
    accountant = prv.PRVAccountant(
        [step], max_self_compositions=[10_000], eps_error=0.01, delta_error=1e-21
    )
    low, _, up = accountant.compute_epsilon(num_self_compositions=[1000], delta=1.13e-18)
    assert 0.0246 < low <= up < 0.0247


def test_the_announced_number_changes_nothing() -> None:
    step = prv.PoissonSubsampledGaussianMechanism(256 / 100_000, 0.9)
    asked = [
        prv.PRVAccountant([step], 0.1, 1e-8, [most]).compute_epsilon(1e-5, [4900])
        for most in (4900, 4999)
    ]
    assert asked[0] == asked[1]
    assert asked[0][2] - asked[0][0] < 1e-6


def test_the_composition_of_its_readme() -> None:
    accountant = prv.PRVAccountant(
        prvs=[
            prv.PoissonSubsampledGaussianMechanism(noise_multiplier=0.8, sampling_probability=5e-3),
            prv.GaussianMechanism(noise_multiplier=8.0),
            prv.LaplaceMechanism(mu=0.1),
        ],
        max_self_compositions=[1_000, 1_000, 1_000],
        eps_error=0.1,
        delta_error=1e-10,
    )
    low, estimate, up = accountant.compute_epsilon(1e-6, num_self_compositions=[100, 200, 100])
    # prv_accountant 0.2.0 says (11.049..., 11.149..., 11.249...)
    assert 11.049 < low <= estimate <= up < 11.25
    assert up - low < 1e-3


@pytest.mark.parametrize("runs", [10_000, 100_000])
def test_many_runs_of_a_delta(runs: int) -> None:
    step = prv.ApproximateDPMechanism(epsilon=0.0, delta=1e-7)
    accountant = prv.PRVAccountant([step], 0.1, 1e-9, [runs])
    low, _, up = accountant.compute_delta(0.0, [runs])
    with mp.workdps(40):
        truth = 1 - (1 - mp.mpf(1e-7)) ** runs
    assert low <= truth <= up <= truth * (1 + 1e-6)


def test_many_pure_mechanisms_cost_less_than_advanced_composition_says() -> None:
    runs, epsilon = 10_000, 0.01
    advanced = epsilon * math.sqrt(2 * runs * math.log(1e5)) + runs**2 * epsilon * math.tanh(
        epsilon / 2
    )
    for step in (prv.PureDPMechanism(epsilon), prv.ApproximateDPMechanism(epsilon, 1e-12)):
        accountant = prv.PRVAccountant([step], 0.1, 1e-9, [runs])
        assert accountant.compute_epsilon(1e-5 + 1e-8, [runs])[2] < advanced


@pytest.mark.parametrize(
    ("rate", "steps", "epsilon", "delta", "expected"),
    [
        (2e-3, 10_000, 4.0, 1e-7, 0.6737676),
        pytest.param(256 / 50_000, 9765, 10.0, 1e-5, 0.6146054, marks=pytest.mark.slow),
        pytest.param(
            0.26058631921824105, 18800, 4.0, 0.00011448277499759097, 33.9973, marks=pytest.mark.slow
        ),
    ],
)
def test_the_noise_for_a_target(
    rate: float, steps: int, epsilon: float, delta: float, expected: float
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        noise = prv.find_noise_multiplier(rate, steps, epsilon, delta)
    assert noise == pytest.approx(expected, rel=1e-5)
    accountant = prv.DPSGDAccountant(noise, rate, max_steps=steps, eps_error=0.5)
    low, estimate, up = accountant.compute_epsilon(delta=delta, num_steps=steps)
    assert epsilon - 1e-4 < low <= estimate <= up <= epsilon


def test_the_oldest_name_warns_and_answers() -> None:
    with pytest.deprecated_call():
        old = prv.Accountant(0.8, 5e-3, delta=1e-6, max_compositions=1000, eps_error=0.1)
    low, _, up = old.compute_epsilon(num_compositions=10)
    truth = (tb.Gaussian(0.8).subsampled(5e-3) * 10).epsilon(1e-6)
    assert (low, up) == (truth.lower, truth.upper)


def test_what_no_epsilon_answers_is_inf() -> None:
    accountant = prv.PRVAccountant(prv.ApproximateDPMechanism(0.1, 0.5), 0.1, 1e-9)
    assert accountant.compute_epsilon(1e-5) == (math.inf, math.inf, math.inf)


def test_bad_arguments_are_refused_by_name() -> None:
    other: Any = object()
    step = prv.GaussianMechanism(1.0)
    for call, reason in (
        (lambda: prv.PRVAccountant([], 0.1, 1e-9), "have at least one mechanism"),
        (lambda: prv.PRVAccountant([step, other], 0.1, 1e-9), "be mechanisms of this module or"),
        (lambda: prv.PRVAccountant(other, 0.1, 1e-9), "be mechanisms of this module or"),
        (lambda: prv.PRVAccountant([step], -0.1, 1e-9), "eps_error must be"),
        (lambda: prv.PRVAccountant([step], 0.1, math.nan), "delta_error must be"),
        (lambda: prv.PRVAccountant([step], 0.1, 1e-9, [1, 2]), "max_self_compositions must have 1"),
        (lambda: prv.PRVAccountant([step], 0.1, 1e-9, [0.5]), "max_self_compositions must be"),  # type: ignore[list-item]
        (lambda: prv.DPSGDAccountant(1.0, 2.0, 10), "rate must be"),
        (lambda: prv.DPSGDAccountant(1.0, 0.1, 0), "max_steps must be"),
        (lambda: prv.find_noise_multiplier(0.1, 10, 1.0, 1e-5, eps_error=-1.0), "eps_error must"),
    ):
        with pytest.raises(tb.ParameterError, match=reason):
            call()
    with pytest.raises(tb.errors.CalibrationError, match=r"needs a noise multiplier of .*mu_max"):
        prv.find_noise_multiplier(0.1, 10, 0.1, 1e-5, mu_max=0.5)
