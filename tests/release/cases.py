"""The one list of mechanisms on data: every law of the release room is checked on every case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tightbudget as tb
from tightbudget.release import Meter, Noise


def _release(
    mechanism: Any, data: Any, meter: Meter, noise: Noise | None
) -> tb.release.Release[Any]:
    answer: tb.release.Release[Any] = mechanism.release(data, meter=meter, noise=noise)
    return answer


@dataclass(frozen=True)
class Case:
    """A mechanism, data for it, and how it is run where ``release`` is not enough."""

    name: str
    mechanism: Any
    data: Any
    run: Callable[[Any, Any, Meter, Noise | None], tb.release.Release[Any]] = _release


def _converse(
    mechanism: Any, data: Any, meter: Meter, noise: Noise | None
) -> tb.release.Release[Any]:
    with mechanism.open(data, meter=meter, noise=noise) as run:
        for age in range(37):
            if not run.done:
                run.ask(lambda ages, age=age: int(np.count_nonzero(ages == age)), 1 + age % 2)
    answer: tb.release.Release[Any] = run.release()
    return answer


AGES = np.arange(100) % 37
KEYS = {"a": 1, "b": 30, "c": 7}

ROWS = np.column_stack([np.cos(AGES), np.sin(AGES)]) * 0.99
SIGNS = np.where(np.cos(AGES) > 0, 1.0, -1.0)
PARTS = (ROWS[:60], SIGNS[:60]), (ROWS[60:], SIGNS[60:])
MODEL = tb.release.OutputPerturbation(0.5, 0.1, 60, 2)
SCHEDULE = replace(  # what is dearer is true, too; and these print exactly
    tb.early_stopping(tb.DiscreteGaussian(10), (2, 4), 1e-5),
    epsilons=(0.5625, 0.75),
    delta=tb.Bounds(0.0, 2.0**-16),
)


def noisy_count(data: Any, _: tuple[int, ...], noise: Noise) -> int:
    return len(data) + int(noise.gaussian(10, 1)[0])


CASES: list[Case] = [
    Case("laplace-count", tb.release.LaplaceRelease(len, 1, 0.5), AGES),
    Case("laplace-real", tb.release.LaplaceRelease(np.mean, 0.37, 0.5, step=2.0**-10), AGES),
    Case(
        "laplace-vector",
        tb.release.LaplaceRelease(np.bincount, 2, 0.5, size=37, integers=True),
        AGES,
    ),
    Case("gaussian-count", tb.release.GaussianRelease(len, 1, 5, 1e-6), AGES),
    Case("gaussian-real", tb.release.GaussianRelease(np.mean, 0.37, 5, 1e-6, step=0.125), AGES),
    Case(
        "gaussian-vector",
        tb.release.GaussianRelease(np.bincount, 2, 20, 1e-6, size=37, integers=True),
        AGES,
    ),
    Case("svt", tb.release.SparseVector(1, 5, adaptive=False), AGES, _converse),
    Case("svt-adaptive", tb.release.SparseVector(1, 5), AGES, _converse),
    Case("svt-monotone", tb.release.SparseVector(1, 5, monotone=True, step=0.5), AGES, _converse),
    Case(
        "svt-values",
        tb.release.SparseVectorRelease(np.bincount, 37, 3, tb.release.SparseVector(0.5, 4), 0.5),
        AGES,
    ),
    Case("top-k", tb.release.TopK(np.bincount, 37, 5, 1, 2), AGES),
    Case(
        "exponential",
        tb.release.ExponentialRelease(np.bincount, range(37), 0.5, monotone=True),
        AGES,
    ),
    Case(
        "exponential-real",
        tb.release.ExponentialRelease(
            lambda ages: [-abs(np.mean(ages) - c) for c in (10, 20)],
            candidates=("young", "old"),
            epsilon=1,
            sensitivity=0.5,
            bounds=(-37, 0),
        ),
        AGES,
    ),
    Case(
        "permute-and-flip",
        tb.release.PermuteAndFlip(np.bincount, range(37), 0.5, monotone=True),
        AGES,
    ),
    Case(
        "gradual",
        tb.release.GradualRelease(len, 1, (0.1, 0.5, 2), lambda answers: answers[-1] > 100),
        AGES,
    ),
    Case(
        "gradual-real",
        tb.release.GradualRelease(np.mean, 0.37, (0.1, 0.5), lambda _: False, step=0.125),
        AGES,
    ),
    Case(
        "iterative",
        tb.release.Iterative(noisy_count, (2, 4), lambda outputs: sum(outputs) > 200, SCHEDULE),
        AGES,
    ),
    Case(
        "tested",
        tb.release.GatedRelease(
            lambda a, noise: noisy_count(a, (), noise),
            0.1,
            lambda a, b: abs(a - len(b)),
            10,
            0.05,
            1,
            1,
        ),
        (AGES, AGES),
    ),
    Case("linear-model", MODEL, PARTS[0]),
    Case(
        "svm", tb.release.OutputPerturbation(0.5, 0.1, 60, 2, tb.release.Loss.HUBER_SVM), PARTS[0]
    ),
    Case("logistic-tested", tb.release.logistic_with_test(MODEL, 40, 1.0, 0.1), PARTS),
    Case(
        "best-trial",
        tb.release.BestTrial(
            lambda data, noise: (noisy := len(data) + int(noise.laplace(2, 1)[0]), noisy),
            run=tb.DiscreteLaplace(2.0),
            trials=tb.trials.NegativeBinomial(3),
        ),
        AGES,
    ),
    Case("toy", tb.release.ToyRelease(len, 1, 0.5), AGES),
    Case(
        "propose-test-release",
        tb.release.ProposeTestRelease(lambda _: [tb.release.Proposal(2, 0, 1)], 1, 0.1),
        AGES,
    ),
    Case("interquartile-range", tb.release.InterquartileRange(epsilon=1, delta=0.1, step=1), AGES),
    Case(
        "interquartile-range-in-turn",
        tb.release.InterquartileRange(
            epsilon=1, delta=0.1, step=1, pricing=tb.release.Pricing.IN_TURN
        ),
        AGES,
    ),
    Case("median", tb.release.Median(epsilon=1, delta=0.1, step=1, scale=18), AGES),
    Case(
        "median-in-turn",
        tb.release.Median(
            epsilon=1, delta=0.1, step=1, scale=18, pricing=tb.release.Pricing.IN_TURN
        ),
        AGES,
    ),
    Case(
        "quantiles",
        tb.release.QuantileRelease(
            probabilities=(0.25, 0.5), bounds=(0, 100), epsilon=0.5, step=1, rows_per_unit=2
        ),
        AGES,
    ),
    Case("trimmed-mean", tb.release.TrimmedMean(epsilon=1, delta=0.1, step=1, spread=40), AGES),
    Case("keyed-counts", tb.release.KeyedCounts(epsilon=1, delta=0.1, keys_per_unit=2), KEYS),
    Case(
        "keyed-counts-gaussian",
        tb.release.KeyedCounts(epsilon=1, delta=0.1, noise="gaussian"),
        KEYS,
    ),
    Case("select-keys", tb.release.SelectKeys(epsilon=1, delta=0.1, keys_per_unit=2), KEYS),
]
