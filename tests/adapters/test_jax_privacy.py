"""JAX Privacy, where it takes an accountant: training, calibration, execution plans."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import dp_accounting as dp
import pytest

import tightbudget as tb
from tightbudget.adapters.dp_accounting import TightPrivacyAccountant, from_dp_event

accounting: Any = pytest.importorskip("jax_privacy.accounting", reason="needs make adapters")

from tightbudget.adapters.jax_privacy import from_batch_selection  # noqa: E402


@pytest.fixture(name="tight")
def of_training() -> Any:
    class Tight(accounting.DpAccountantConfig):  # type: ignore[misc]
        def create_accountant(self) -> TightPrivacyAccountant:
            return TightPrivacyAccountant()

    return accounting.DpsgdTrainingAccountant(Tight())


def parameters(sigma: float) -> Any:
    return accounting.DpParams(
        noise_multipliers=sigma, batch_size=100, num_samples=1000, delta=1e-6
    )


def test_a_training_is_accounted_for(tight: Any) -> None:
    epsilon = tight.compute_epsilon(512, parameters(3.0))
    assert 3.7695 < epsilon < 3.7700  # its own documentation: 3.77


def test_noise_and_updates_are_calibrated(tight: Any) -> None:
    sigma = accounting.calibrate_noise_multiplier(
        target_epsilon=1.0,
        accountant=tight,
        batch_sizes=100,
        num_updates=512,
        num_samples=1000,
        target_delta=1e-6,
    )
    assert sigma == pytest.approx(9.66, abs=0.01)
    assert tight.compute_epsilon(512, parameters(sigma)) <= 1.0
    updates = accounting.calibrate_num_updates(
        target_epsilon=2.0,
        accountant=tight,
        noise_multipliers=3.0,
        batch_sizes=100,
        num_samples=1000,
        target_delta=1e-6,
    )
    assert updates == 155  # its own documentation, too


def test_an_execution_plan_takes_the_accountant() -> None:
    plans: Any = pytest.importorskip("jax_privacy.experimental.execution_plan")
    special = dp.NeighboringRelation.REPLACE_SPECIAL
    plan = plans.BandMFExecutionPlanConfig(
        iterations=64,
        strategy=[1.0, 0.5],
        epsilon=1.0,
        delta=1e-6,
        sampling_prob=0.1,
        accountant=TightPrivacyAccountant(special),
    ).plan
    accountant = TightPrivacyAccountant(special).compose(plan.dp_event)
    assert 0.999 < accountant.get_epsilon(1e-6) <= 1.0


# ------------------------------------------------------------------------- selected batches

selections: Any = pytest.importorskip("jax_privacy.batch_selection", reason="needs make adapters")
Z: dict[str, Any] = {"noise_multiplier": 2.0, "num_examples": 1000}
ZEROED = tb.Neighbouring.ZERO_OUT
BANDS = tb.CorrelatedNoise.toeplitz([1.0, 0.5], 20)
EQUAL, APART = selections.PartitionType.EQUAL_SPLIT, selections.PartitionType.INDEPENDENT


def poisson(**given: Any) -> Any:
    return selections.CyclicPoissonSampling(**{"sampling_prob": 0.1, "iterations": 20, **given})


def gaussian(sensitivity: float = 1.0, relation: tb.Neighbouring | None = None) -> tb.Gaussian:
    return tb.Gaussian(2.0, sensitivity, relation=relation)


CUT = dp.dp_event.TruncatedSubsampledGaussianDpEvent
ADDED = tb.Neighbouring.ADD_OR_REMOVE
SELECTED: list[tuple[Any, dict[str, Any], Callable[[], tb.Composition]]] = [
    (poisson(), {}, lambda: gaussian().subsampled(0.1) * 20),
    (poisson(iterations=0), {}, tb.Composition),
    (poisson(cycle_length=3), {}, lambda: gaussian(relation=ZEROED).subsampled(0.1) * 7),
    (
        poisson(cycle_length=3, partition_type=APART),
        {"noise": BANDS},
        lambda: gaussian(BANDS.sensitivity()).subsampled(0.1) * 7,
    ),
    (poisson(truncated_batch_size=120), {}, lambda: from_dp_event(CUT(1000, 0.1, 120, 2.0)) * 20),
    (
        poisson(truncated_batch_size=60, cycle_length=2),
        {},
        lambda: from_dp_event(CUT(500, 0.1, 60, 2.0), dp.NeighboringRelation.REPLACE_SPECIAL) * 10,
    ),
    (
        selections.BallsInBinsSampling(iterations=20, cycle_length=5),
        {},
        lambda: tb.CorrelatedNoise.toeplitz([1.0], 20).allocated(2.0, 5, relation=ADDED),
    ),
    (
        selections.BallsInBinsSampling(iterations=20, cycle_length=5),
        {"noise": BANDS},
        lambda: BANDS.allocated(2.0, 5, relation=ADDED),
    ),
    (selections.FixedBatchSampling(50, 20), {}, lambda: gaussian().batches(50, 1000) * 20),
    (selections.FixedBatchSampling(0, 20), {}, tb.Composition),
    (
        selections.FixedBatchSampling(50, 20, replace=True),
        {},
        lambda: gaussian().batches(50, 1000, replacement=True) * 20,
    ),
    (
        selections.BMinSepSampling(0.1, 20, 5),
        {"noise": BANDS},
        lambda: gaussian(BANDS.sensitivity(apart=5), ADDED) * 1,
    ),
    (
        selections.BMinSepSampling(0.1, 20, 1, warm_start=False),
        {},
        lambda: gaussian().subsampled(0.1) * 20,
    ),
    (
        selections.UserSelectionStrategy(poisson(), 3),
        {},
        lambda: gaussian().subsampled(0.1) * 20,
    ),
]


@pytest.mark.parametrize(
    ("selection", "more", "expected"), SELECTED, ids=[str(one)[:50] for one, *_ in SELECTED]
)
def test_a_selection_is_accounted_as_what_it_draws(
    selection: Any, more: dict[str, Any], expected: Callable[[], tb.Composition]
) -> None:
    assert from_batch_selection(selection, **Z, **more) == expected()


def test_no_way_to_select_is_forgotten() -> None:
    known = {type(selection) for selection, _, _ in SELECTED}
    defined = {
        thing
        for thing in vars(selections).values()
        if isinstance(thing, type) and hasattr(thing, "batch_iterator")
    }
    assert defined - {selections.BatchSelectionStrategy} == known


@pytest.mark.parametrize(
    ("selection", "more", "message"),
    [
        ("poisson", {}, "selection.iterations must be an integer >= 0, got 'poisson'"),
        (poisson(), {"noise_multiplier": 0.0}, "noise_multiplier must be a finite number > 0"),
        (poisson(), {"num_examples": 0}, "num_examples must be an integer >= 1, got 0"),
        (
            poisson(),
            {"noise": tb.CorrelatedNoise.toeplitz([1.0], 9)},
            "noise must be a CorrelatedNoise of 20 steps, got <CorrelatedNoise: 9 steps, 1 bands>",
        ),
        (poisson(), {"noise": BANDS}, "groups must be at least bands = 2, got 1"),
        (
            poisson(truncated_batch_size=5),
            {"noise": BANDS},
            "selection.cycle_length must be at least bands = 2, got 1",
        ),
        (
            poisson(truncated_batch_size=5, cycle_length=2, partition_type=APART),
            {},
            "how often a batch is cut depends on the size of a group",
        ),
        (
            selections.FixedBatchSampling(50, 20),
            {"noise": BANDS},
            r"nothing is known of FixedBatchSampling.* with correlated noise: account for the run "
            r"as Gaussian\(sigma, 2 \* noise",
        ),
        (
            selections.FixedBatchSampling(50, 20, replace=True),
            {"noise": BANDS},
            r"account for the run as Gaussian\(sigma, 100 \* noise",
        ),
        (
            selections.BMinSepSampling(0.1, 20, 5, truncated_batch_size=9),
            {},
            "selection.truncated_batch_size must be None: a record decides which others are cut",
        ),
    ],
)
def test_a_selection_that_is_refused(selection: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        from_batch_selection(selection, **{**Z, **more})


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax_privacy", None)
    monkeypatch.delitem(sys.modules, "tightbudget.adapters.jax_privacy")
    with pytest.raises(tb.ExtraError, match=r"pip install jax-privacy.*pip install 'tightbudget"):
        importlib.import_module("tightbudget.adapters.jax_privacy")
