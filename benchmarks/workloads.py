"""What is timed: one question each, asked of tightbudget and of its neighbour.

Every call builds its mechanisms and composition anew, so nothing is left from the call
before. The neighbour is dp-accounting with the defaults of its accountant: one upper end,
pessimistic, on a grid of 1e-4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tightbudget as tb


@dataclass(frozen=True)
class Workload:
    """One row of the table.

    ``ours`` gives a Composition, to be asked for eps at ``delta``, or a Calibration for it;
    ``theirs`` gives the neighbour's number.
    """

    key: str
    title: str
    delta: float
    ours: Callable[[], Any]
    theirs: Callable[[], float]
    calibrates: bool = False

    def answer(self) -> tb.Bounds:
        """The certified ends (for a calibration: of eps at the value found)."""
        asked = self.ours()
        return asked.epsilon if self.calibrates else asked.epsilon(self.delta)


# ------------------------------------------------------------------- the neighbour
# Imported on use: with --no-peers it need not be installed.


def _accountant_epsilon(event: Callable[[Any], Any], delta: float) -> Callable[[], float]:
    def ask() -> float:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant

        return PLDAccountant().compose(event(dp_accounting)).get_epsilon(delta)

    return ask


def _gaussian(dp: Any, sigma: float, rate: float, steps: int) -> Any:
    event = dp.GaussianDpEvent(sigma)
    if rate < 1.0:
        event = dp.PoissonSampledDpEvent(rate, event)
    return dp.SelfComposedDpEvent(event, steps)


def _randomized_response(p: float, steps: int, delta: float) -> Callable[[], float]:
    def ask() -> float:
        # not through the accountant: it counts a repeated randomised response once
        from dp_accounting.pld import privacy_loss_distribution as pld

        one = pld.from_randomized_response(noise_parameter=2.0 * (1.0 - p), num_buckets=2)
        return one.self_compose(steps).get_epsilon_for_delta(delta)

    return ask


def _calibrated_sigma(rate: float, steps: int, epsilon: float, delta: float) -> Callable[[], float]:
    def ask() -> float:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant

        return dp_accounting.calibrate_dp_mechanism(
            PLDAccountant,
            lambda sigma: _gaussian(dp_accounting, sigma, rate, steps),
            epsilon,
            delta,
        )

    return ask


# ------------------------------------------------------------------------- the list


def _gaussians(
    key: str, title: str, parts: list[tuple[float, float, int]], delta: float
) -> Workload:
    """Gaussian mechanisms (sigma, sampling rate, number of runs)."""

    def one(sigma: float, rate: float) -> tb.Mechanism:
        base = tb.Gaussian(sigma=sigma)
        return base if rate == 1.0 else base.subsampled(rate=rate)

    return Workload(
        key,
        title,
        delta,
        lambda: tb.compose([one(sigma, rate) * k for sigma, rate, k in parts]),
        _accountant_epsilon(
            lambda dp: dp.ComposedDpEvent([_gaussian(dp, *part) for part in parts]), delta
        ),
    )


def _calibration(key: str, epsilon: float, delta: float, rate: float, steps: int) -> Workload:
    return Workload(
        key,
        f"calibrate σ for ε = {epsilon:g}, q = {rate:g}, × {steps:,}",
        delta,
        lambda: tb.calibrate(
            lambda sigma: tb.Gaussian(sigma=sigma).subsampled(rate=rate) * steps,
            epsilon=epsilon,
            delta=delta,
        ),
        _calibrated_sigma(rate, steps, epsilon, delta),
        calibrates=True,
    )


_DP_SGD = [
    (4.0, 0.01, 65_536),
    (0.8, 0.001, 10_000),
    (1.0, 0.01, 1_000),
    (2.0, 0.25, 200),
    (1.5, 1e-4, 1_000_000),
]

# twenty training runs with rising noise and rising sampling rates
_TWENTY = [
    (0.8, 0.00173, 206),
    (0.871, 0.00112, 318),
    (0.948, 0.001, 369),
    (1.031, 0.00235, 319),
    (1.123, 0.00484, 349),
    (1.222, 0.00503, 330),
    (1.33, 0.00296, 162),
    (1.447, 0.00458, 470),
    (1.575, 0.00359, 92),
    (1.715, 0.00865, 470),
    (1.866, 0.02213, 174),
    (2.031, 0.00734, 210),
    (2.211, 0.02678, 429),
    (2.406, 0.01867, 157),
    (2.619, 0.01967, 80),
    (2.85, 0.05909, 426),
    (3.102, 0.03323, 289),
    (3.377, 0.07242, 423),
    (3.675, 0.1, 331),
    (4.0, 0.1, 500),
]

WORKLOADS = [
    _gaussians("gaussian-100", "Gaussian σ = 100, × 10,000", [(100.0, 1.0, 10_000)], 1e-5),
    Workload(
        "laplace-20",
        "Laplace b = 20, × 1,024",
        1e-5,
        lambda: tb.Laplace(scale=20.0) * 1_024,
        _accountant_epsilon(
            lambda dp: dp.SelfComposedDpEvent(dp.LaplaceDpEvent(20.0), 1_024), 1e-5
        ),
    ),
    *(
        _gaussians(
            f"dpsgd-{sigma:g}-{rate:g}-{steps}-{delta:g}",
            f"DP-SGD σ = {sigma:g}, q = {rate:g}, × {steps:,}",
            [(sigma, rate, steps)],
            delta,
        )
        for sigma, rate, steps in _DP_SGD
        for delta in (1e-5, 1e-10, 1e-15)
    ),
    Workload(
        "rr-0.51",
        "randomised response p = 0.51, × 65,536",
        1e-5,
        lambda: tb.RandomizedResponse(p=0.51) * 65_536,
        _randomized_response(0.51, 65_536, 1e-5),
    ),
    _gaussians("twenty", "20 different subsampled Gaussians, × 50 to 500 each", _TWENTY, 1e-5),
    _gaussians("gaussian-0.02", "Gaussian σ = 0.02, once", [(0.02, 1.0, 1)], 1e-5),
    _gaussians(
        "gaussian-5000", "Gaussian σ = 5,000, × 25,000,000", [(5_000.0, 1.0, 25_000_000)], 1e-5
    ),
    _calibration("calibrate-1", 1.0, 1e-6, 0.01, 10_000),
    _calibration("calibrate-0.01", 0.01, 1e-6, 0.01, 10_000),
]
