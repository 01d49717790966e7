"""JAX Privacy, where it takes an accountant: training, calibration, execution plans."""

from __future__ import annotations

from typing import Any

import dp_accounting as dp
import pytest

from tightbudget.adapters.dp_accounting import TightPrivacyAccountant

accounting: Any = pytest.importorskip("jax_privacy.accounting", reason="needs make adapters")


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
