"""Times of compositions of many different steps, and the gaps of their answers, on one processor.

    OPENBLAS_NUM_THREADS=1 python benchmarks/schedules.py [--neighbours]

Schedules of sampled Gaussian steps and of Laplace scales, and a calibration of a schedule's factor.
With ``--neighbours`` dp-accounting answers the same schedules, where it is installed. The seconds
are those of the processor, the smallest of three rounds, with the making of the composition.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import tightbudget as tb

DELTA = 1e-5


def gaussians(sigmas: np.ndarray, rates: np.ndarray | float) -> tb.Composition:
    """One sampled Gaussian step for each noise and rate."""
    rates = np.broadcast_to(rates, sigmas.shape)
    return tb.compose(
        [
            tb.Gaussian(float(sigma)).subsampled(float(q))
            for sigma, q in zip(sigmas, rates, strict=True)
        ]
    )


def noise(count: int, rate: np.ndarray | float = 0.01) -> Callable[[], tb.Bounds]:
    """The epsilon of a schedule whose noise multipliers go from 0.8 to 2."""
    return lambda: gaussians(np.linspace(0.8, 2.0, count), rate).epsilon(DELTA)


def laplace(count: int) -> Callable[[], tb.Bounds]:
    """The epsilon of a schedule of Laplace scales from 20 to 60."""
    scales = np.linspace(20.0, 60.0, count)
    return lambda: tb.compose([tb.Laplace(float(scale)) for scale in scales]).epsilon(DELTA)


def factor(count: int) -> Callable[[], tb.Bounds]:
    """The epsilon at the factor for which a schedule has epsilon 1."""
    sigmas = np.linspace(0.8, 2.0, count)
    return lambda: tb.calibrate(lambda f: gaussians(f * sigmas, 0.01), epsilon=1.0, delta=DELTA).met


WORKLOADS: dict[str, Callable[[], tb.Bounds]] = {
    "40 settings": noise(40),
    "1,000 settings": noise(1_000),
    "10,000 settings": noise(10_000),
    "1,000 settings, rates from 0.005 to 0.02": noise(1_000, np.linspace(0.005, 0.02, 1_000)),
    "1,000 settings, rate 0.002": noise(1_000, 0.002),
    "500 Laplace scales": laplace(500),
    "calibrate a factor on 1,000 settings": factor(1_000),
}


def neighbour(count: int) -> float:
    """Seconds of dp-accounting for the schedule of :func:`noise`."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    start = time.process_time()
    accountant = PLDAccountant()
    for sigma in np.linspace(0.8, 2.0, count):
        accountant.compose(PoissonSampledDpEvent(0.01, GaussianDpEvent(float(sigma))))
    print(f"{'dp-accounting':>45} {accountant.get_epsilon(DELTA):.6f}", end=" ")
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--neighbours", action="store_true")
    arguments = parser.parse_args()
    print(f"{'workload':45} {'seconds':>8} {'gap':>8}")
    for name, answer in WORKLOADS.items():
        seconds = []
        for _ in range(3):
            start = time.process_time()
            bounds = answer()
            seconds.append(time.process_time() - start)
        print(f"{name:45} {min(seconds):8.2f} {bounds.relative_gap:8.1e}  {bounds}")
    if arguments.neighbours:
        for count in (40, 1_000):
            print(f"{neighbour(count):.2f} s for {count} settings")


if __name__ == "__main__":
    main()
