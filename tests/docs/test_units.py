"""What pages and docstrings say about units, each with a number."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import tightbudget as tb

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
        lambda u: tb.Histogram((3, 2, 1), (1, 2, 3), noise=("uniform", 2.0 * u), bin_width=u),
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
    run = tb.WorstCase(0.0, 1e-3) * 10
    assert run.delta(0.0).upper == pytest.approx(1 - (1 - 1e-3) ** 10)
    assert run.epsilon(1e-3).upper == math.inf


def test_rate_is_the_chance_that_a_record_is_in_one_run() -> None:
    # all is lost for a sampled record: delta is the rate
    assert (tb.WorstCase(0.0, 1.0).subsampled(0.03) * 1).delta(1.0).upper == pytest.approx(0.03)
    whole = (tb.Gaussian(1.0).subsampled(1.0) * 5).delta(1.0)
    assert whole.overlaps((tb.Gaussian(1.0) * 5).delta(1.0))


def test_mu_is_sensitivity_by_sigma() -> None:
    assert (tb.Gaussian(4.0, sensitivity=3.0) * 1).risk(1.0, slack=0.0).mu.upper == pytest.approx(
        0.75
    )
    of_samples = tb.theorems.gaussian_dp.mu_of_sampling(4.0, 0.01, 100, sensitivity=3.0)
    assert of_samples.value == pytest.approx(0.01 * math.sqrt(100 * math.expm1(0.75**2)))


def test_a_release_takes_sigma_and_scale_in_the_query_s_unit() -> None:
    release = tb.GaussianRelease(len, sensitivity=3, sigma=12.0, delta=1e-6)
    once = (tb.Gaussian(12.0, sensitivity=3.0) * 1).epsilon(1e-6).upper
    assert float(release.guarantee.sup) == pytest.approx(once, rel=1e-2)
    noisy = tb.LaplaceRelease(len, sensitivity=3, epsilon=0.5)
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
