"""What pages and docstrings say about units, each with a number."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from scipy import special, stats

import tightbudget as tb
from tightbudget.cli import main

ROOT = Path(__file__).resolve().parents[2]
# 1,000 steps of DP-SGD with noise multiplier 1, at delta 1e-5 (the tutorial's)
TUTORIAL = 1.8282366665165


def epsilon(mechanism: tb.Mechanism, runs: int = 1, delta: float = 1e-5) -> float:
    return (mechanism * runs).epsilon(delta).upper


@pytest.mark.parametrize("clip", [1.0, 0.1, 7.5])
def test_sigma_is_the_noise_multiplier_times_the_sensitivity(clip: float) -> None:
    step = tb.Gaussian(sigma=1.0 * clip, sensitivity=clip).subsampled(rate=0.01)
    assert epsilon(step, 1000) == pytest.approx(TUTORIAL, rel=1e-12)


def test_sigma_is_not_in_units_of_the_sensitivity() -> None:
    # a multiplier in sigma's place, beside a clipping norm of 0.1, is noise of ten times that
    mistaken = tb.Gaussian(sigma=1.0, sensitivity=0.1).subsampled(rate=0.01)
    right = tb.Gaussian(sigma=10.0).subsampled(rate=0.01)
    assert epsilon(mistaken, 1000) == pytest.approx(epsilon(right, 1000), rel=1e-12)
    assert epsilon(mistaken, 1000) < TUTORIAL / 10


UNITS: list[tuple[Callable[[float], tb.Mechanism], str]] = [
    (lambda u: tb.Gaussian(2.0 * u, sensitivity=1.5 * u), "sigma and sensitivity"),
    (lambda u: tb.Laplace(2.0 * u, sensitivity=1.5 * u), "scale and sensitivity"),
    (lambda u: tb.TruncatedGaussian(2.0 * u, 9.0 * u, 1.5 * u), "sigma, bound, sensitivity"),
    (lambda u: tb.TruncatedLaplace(2.0 * u, 9.0 * u, 1.5 * u), "scale, bound, sensitivity"),
    (lambda u: tb.Staircase(0.7, sensitivity=u), "sensitivity alone"),
    (lambda u: tb.MixtureOfGaussians(2.0 * u, (0.0, 1.5 * u), (1, 1)), "sigma and sensitivities"),
    (
        lambda u: tb.HistogramPair((3, 2, 1), (1, 2, 3), noise=("uniform", 2.0 * u), bin_width=u),
        "noise and bin_width",
    ),
]


@pytest.mark.parametrize(("in_unit", "what"), UNITS, ids=[what for _, what in UNITS])
def test_a_change_of_unit_changes_nothing(
    in_unit: Callable[[float], tb.Mechanism], what: str
) -> None:
    one, other = ((in_unit(unit) * 2).delta(0.5) for unit in (1.0, 1024.0))
    assert one.upper == pytest.approx(other.upper, rel=1e-3), what
    assert one.upper > 1e-4


def test_laplace_noise_costs_sensitivity_by_scale() -> None:
    assert epsilon(tb.Laplace(20.0, sensitivity=3.0), delta=0.0) == pytest.approx(3 / 20)
    assert epsilon(tb.DiscreteLaplace(20.0, sensitivity=3), delta=0.0) == pytest.approx(3 / 20)


def test_a_discrete_gaussian_costs_what_the_same_sigma_costs() -> None:
    whole, rounded = tb.Gaussian(10.0, sensitivity=3.0), tb.DiscreteGaussian(10.0, sensitivity=3)
    assert epsilon(rounded, 20) == pytest.approx(epsilon(whole, 20), rel=1e-2)


def test_clipped_noise_is_in_the_unit_of_its_integer_outputs() -> None:
    # Laplace noise of scale 50, far from where it is clipped: shift / scale, nearly
    assert epsilon(tb.ClippedNoise(2000.0, 50.0, shift=3), delta=1e-9) == pytest.approx(3 / 50)


def test_epsilon_is_in_nats() -> None:
    assert epsilon(tb.RandomizedResponse(0.75), delta=0.0) == pytest.approx(math.log(3))  # not log2
    assert (tb.RandomizedResponse(0.75) * 1).renyi(math.inf).upper == pytest.approx(math.log(3))


def test_delta_is_that_of_all_runs_together() -> None:
    run = tb.ApproximateDP(0.0, 1e-3) * 10
    assert run.delta(0.0).upper == pytest.approx(1 - (1 - 1e-3) ** 10)
    assert run.epsilon(1e-3).upper == math.inf


def test_rate_is_the_chance_that_a_record_is_in_one_run() -> None:
    # all is lost for a sampled record: delta is the rate
    assert (tb.ApproximateDP(0.0, 1.0).subsampled(0.03) * 1).delta(1.0).upper == pytest.approx(0.03)
    whole = (tb.Gaussian(1.0).subsampled(1.0) * 5).delta(1.0)
    assert whole.overlaps((tb.Gaussian(1.0) * 5).delta(1.0))


def test_mu_is_sensitivity_by_sigma() -> None:
    assert (tb.Gaussian(4.0, sensitivity=3.0) * 1).risk(1.0, slack=0.0).mu.upper == pytest.approx(
        0.75
    )
    of_samples = tb.theorems.gaussian_dp.mu_of_sampling(4.0, 0.01, 100, sensitivity=3.0)
    assert of_samples.value == pytest.approx(0.01 * math.sqrt(100 * math.expm1(0.75**2)))


def test_a_release_takes_sigma_and_scale_in_the_query_s_unit() -> None:
    release = tb.release.GaussianRelease(len, sensitivity=3, sigma=12.0, delta=1e-6)
    once = (tb.Gaussian(12.0, sensitivity=3.0) * 1).epsilon(1e-6).upper
    assert float(release.guarantee.sup) == pytest.approx(once, rel=1e-2)
    noisy = tb.release.LaplaceRelease(len, sensitivity=3, epsilon=0.5)
    assert float(noisy.guarantee.sup) == 0.5


def test_no_text_takes_sigma_for_a_noise_multiplier() -> None:
    texts = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "src").rglob("*.py")]
    false = re.compile(r"(sigma|scale)`?\s+(is|are)\s+in\s+units\s+of", re.IGNORECASE)
    assert [path.name for path in texts if false.search(path.read_text(encoding="utf-8"))] == []
    # and each mechanism with noise and sensitivity says that they have one unit
    for mechanism in (tb.Gaussian, tb.Laplace, tb.TruncatedGaussian, tb.TruncatedLaplace):
        names = {field.name for field in dataclasses.fields(mechanism)}
        assert "sensitivity" in names
        assert mechanism.__doc__ is not None
        arguments = mechanism.__doc__.partition("Args:")[2].partition("Raises:")[0]
        assert arguments.count("in the query's unit") >= 2, mechanism


@pytest.mark.needs
def test_opacus_takes_the_multiplier() -> None:
    pytest.importorskip("opacus")
    from tightbudget.adapters.opacus import dp_sgd_step

    assert epsilon(dp_sgd_step(1.0, 0.01), 1000) == pytest.approx(TUTORIAL, rel=1e-12)


def test_an_event_takes_the_multiplier() -> None:
    dp = pytest.importorskip("dp_accounting")
    from tightbudget.adapters.dp_accounting import from_dp_event

    event = dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.0))
    run = from_dp_event(dp.SelfComposedDpEvent(event, 1000))
    assert run.epsilon(1e-5).upper == pytest.approx(TUTORIAL, rel=1e-12)


# --------------------------------------------------------------------- more mechanisms, by name


def test_logistic_noise_costs_sensitivity_by_scale_and_is_as_wide_as_it_says() -> None:
    assert epsilon(tb.Logistic(20.0, sensitivity=3.0), delta=0.0) == pytest.approx(3 / 20)
    assert stats.logistic(scale=20.0).std() == pytest.approx(math.pi * 20 / math.sqrt(3))


def test_a_staircase_costs_the_epsilon_that_it_is_given() -> None:
    assert epsilon(tb.Staircase(0.7, sensitivity=5.0), delta=0.0) == pytest.approx(0.7)


def test_any_noise_of_scipy_is_in_the_unit_of_its_sensitivity() -> None:
    one, other = (
        (tb.Additive(stats.logistic(scale=2.0 * u), 1.5 * u) * 2).delta(0.5) for u in (1.0, 1024.0)
    )
    assert one.upper == pytest.approx(other.upper, rel=1e-3)
    assert one.upper > 1e-4


def test_measurements_their_bins_limits_and_noise_are_in_one_unit() -> None:
    grid = (np.arange(2_000) + 0.5) / 2_000
    passive = 100 - 15 * np.log(1 / grid - 1)

    def delta(unit: float) -> float:
        pair = tb.HistogramPair.from_samples(
            (passive + 1.0) * unit,
            passive * unit,
            bin_width=5.0 * unit,
            keep_below=160.0 * unit,
            noise=f"uniform:{200 * unit}",
        )
        return (pair * 4).delta(0.01).upper

    assert delta(1.0) == pytest.approx(delta(8.0), rel=1e-6)
    assert delta(1.0) > 1e-5


# ------------------------------------------------------------------------------------ questions


def test_the_gap_is_relative_to_the_upper_bound() -> None:
    found = (tb.Laplace(20.0) * 50).epsilon(1e-5, rtol=1e-3)
    assert found.relative_gap == pytest.approx((found.upper - found.lower) / found.upper, rel=1e-9)
    assert found.relative_gap <= 1e-3


def test_rates_of_attacks_are_fractions_and_not_percent() -> None:
    risk = (tb.Gaussian(1.0) * 1).risk(epsilon=1.0, fpr=0.01, prior=0.5)
    # N(0, 1) against N(1, 1), by the test that is best at this false-positive rate
    assert risk.tpr.upper == pytest.approx(stats.norm.sf(stats.norm.isf(0.01) - 1.0), rel=1e-3)
    assert risk.bayes_risk.upper == pytest.approx(stats.norm.sf(0.5), rel=1e-3)
    assert risk.advantage.upper == pytest.approx(2 * stats.norm.cdf(0.5) - 1, rel=1e-3)
    assert risk.belief.upper == pytest.approx(math.e / (1 + math.e), rel=1e-3)


def test_a_renyi_divergence_is_in_nats() -> None:
    found = (tb.Gaussian(5.0, sensitivity=2.0) * 3).renyi(order=8)
    assert found.upper == pytest.approx(3 * 8 * (2 / 5) ** 2 / 2, rel=1e-4)


def test_stops_count_what_is_handed_over() -> None:
    step = tb.Gaussian(1.0).subsampled(0.01)
    in_steps = tb.early_stopping(step, stops=[100, 200], delta=1e-5)
    in_hundreds = tb.early_stopping(step * 100, stops=[1, 2], delta=1e-5)
    assert in_steps.epsilons == pytest.approx(in_hundreds.epsilons, rel=1e-6)


def test_steps_on_the_command_line_are_all_steps(capsys: pytest.CaptureFixture[str]) -> None:
    line = "stopping gaussian --sigma 1 --rate 0.01 --times 200 --every 100 --delta 1e-5 --json"
    with mock.patch("sys.argv", ["tightbudget", *line.split()]), contextlib.suppress(SystemExit):
        main()
    found = json.loads(capsys.readouterr().out)
    assert found["stops"] == [100, 200]


def test_weights_of_stops_are_proportions() -> None:
    step = tb.Gaussian(1.0)
    one, other = (
        tb.early_stopping(step, stops=[1, 2], delta=1e-5, weights=weights)
        for weights in ([1, 3], [10, 30])
    )
    assert one.epsilons == pytest.approx(other.epsilons, rel=1e-9)


# -------------------------------------------------------------------------------------- budgets


def test_budgets_at_other_rates_are_charged_for_a_gaussian_run_by_its_noise_multiplier() -> None:
    sigma, sensitivity = 20.0, 3.0
    z = sigma / sensitivity
    run = tb.Gaussian(sigma, sensitivity) * 1
    order = 16
    assert run.renyi(order).upper == pytest.approx(order / (2 * z**2), rel=1e-4)
    assert run.risk(1.0, slack=0.0).mu.upper == pytest.approx(1 / z)
    # one run in a budget of rho, or of mu, is what the run costs
    zcdp, gdp = tb.ZCDPFilter(rho=1 / (2 * z**2)), tb.GaussianDPFilter(mu=1 / z)
    exact = run.epsilon(1e-6).upper
    assert zcdp.epsilon(1e-6) >= exact
    assert gdp.epsilon(1e-6) == pytest.approx(exact, rel=1e-6)


def test_rising_prices_are_a_first_one_and_equal_rises() -> None:
    rising = tb.OutputDP.rising(first=0.5, rise=0.5, steps=20)
    assert [float(rising.price(k)) for k in (0, 3, 20)] == pytest.approx([0.5, 0.575, 1.0])


# ------------------------------------------------------------------------------------- releases


def test_a_release_on_a_grid_takes_its_noise_in_the_query_s_unit_too() -> None:
    plain = tb.release.GaussianRelease(len, sensitivity=3, sigma=12.0, delta=1e-6)
    fine = tb.release.GaussianRelease(len, sensitivity=3, sigma=12.0, delta=1e-6, step=2.0**-10)
    assert float(fine.guarantee.sup) == pytest.approx(float(plain.guarantee.sup), rel=1e-2)


def test_the_test_of_a_model_is_twice_the_chance_of_the_wrong_label() -> None:
    for margin in (-3.0, 0.0, 0.4, 5.0):
        right = special.expit(margin)
        assert abs(math.tanh(margin / 2) - 1) == pytest.approx(2 * (1 - right))
        assert abs(math.tanh(margin / 2) + 1) == pytest.approx(2 * right)


# ------------------------------------------------------------------------------------- adapters


def test_events_with_other_noise_take_their_parameters_by_sensitivity() -> None:
    dp = pytest.importorskip("dp_accounting")
    from tightbudget.adapters.dp_accounting import from_dp_event

    replaced = dp.NeighboringRelation.REPLACE_ONE
    assert from_dp_event(dp.LaplaceDpEvent(5.0)).epsilon(0.0).upper == pytest.approx(1 / 5)
    assert from_dp_event(dp.LaplaceDpEvent(5.0), replaced).epsilon(0.0).upper == pytest.approx(
        2 / 5
    )
    gaussian = from_dp_event(dp.GaussianDpEvent(5.0), replaced).epsilon(1e-5)
    assert gaussian.overlaps((tb.Gaussian(2.5) * 1).epsilon(1e-5))
