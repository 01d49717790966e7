"""Linear models by output perturbation, and logistic regression with a test."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np

from tightbudget.errors import ParameterError
from tightbudget.numerics.rounding import UNIT, FloatArray, expm1_up, next_up
from tightbudget.numerics.validate import plain_numbers, positive, positive_count, refuse
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release.grid import Grid
from tightbudget.release.lattice import LatticeNoise, sqrt_up
from tightbudget.release.meter import Meter
from tightbudget.release.minimum import LONGEST, Loss, Objective
from tightbudget.release.noise import Noise, OpenDPNoise
from tightbudget.release.release import Release, WhatIf, paid, what_if
from tightbudget.release.tested import TestedRelease, power_of_two_down

__all__ = ["OutputPerturbation", "TestSensitivity", "logistic_with_test", "mean_error"]

_FINENESS = 2**20  # steps of the grid that parameters are rounded to, in their sensitivity


@plain_numbers
@dataclass(frozen=True)
class OutputPerturbation:
    """The minimum of a regularised mean loss, perturbed: a linear model.

    The minimum is rounded to a grid, integer noise is added (see :class:`LatticeNoise`), and the
    sum is projected on the ball that is known to hold the minimum.

    Guarantee: epsilon-DP, delta = 0, for data sets of n records of which one is replaced, if
    rows have |x|_2 <= 1 and labels are -1 or 1; n and the number of features are public. How
    long the minimisation takes is not hidden.
    Source: Chaudhuri, Monteleoni, Sarwate 2011; Hartmann et al. 2022, Algorithm 4, Theorem 16.

    Args:
        epsilon: > 0, nats.
        regularization: Lambda > 0, of (Lambda / 2) |p|^2.
        records: n, >= 1.
        features: d, >= 1.
        loss: convex, differentiable, |l'| <= 1: ``Loss.LOGISTIC``, ``Loss.HUBER_SVM``, or another.

    Raises:
        ParameterError: a parameter is refused.
    """

    epsilon: Price
    regularization: float
    records: int
    features: int
    loss: Loss = Loss.LOGISTIC

    def __post_init__(self) -> None:
        exact_positive(epsilon=self.epsilon)
        regularization = positive(regularization=self.regularization)
        if not 1e-9 <= regularization <= 1e9:
            raise refuse("regularization", "be in [1e-9, 1e9]", self.regularization)
        object.__setattr__(self, "regularization", regularization)
        positive_count(records=self.records)
        positive_count(features=self.features)
        _ = self.noise

    @property
    def objective(self) -> Objective:
        """What is minimised."""
        return Objective(self.loss, self.regularization, self.records, self.features)

    @property
    def grid(self) -> Grid:
        """Where the parameters lie before they are projected."""
        return Grid(power_of_two_down(self.objective.sensitivity / _FINENESS))

    @property
    def noise(self) -> LatticeNoise:
        """In steps of the grid."""
        return LatticeNoise(self.features, self.grid.steps(self.sensitivity), self.epsilon)

    @property
    def sensitivity(self) -> Fraction:
        """How far the model moves, in the 2-norm, if a record is replaced and the noise is not."""
        # rounding moves two coordinates apart by at most one step
        step = Fraction(self.grid.step or 1)
        return self.objective.sensitivity + sqrt_up(Fraction(self.features)) * step

    @property
    def guarantee(self) -> OutputDP:
        """One cell, "value"."""
        return OutputDP({"value": self.epsilon})

    def what_if(self, meter: Meter) -> WhatIf:
        """What it would cost, and whether it fits; nothing is touched."""
        return what_if(self.guarantee, meter)

    def release(
        self, data: tuple[Any, Any], *, meter: Meter, noise: Noise | None = None
    ) -> Release[FloatArray]:
        """The parameters, (d,).

        Args:
            data: rows (n, d) and labels (n,).
            meter: what pays.
            noise: the operating system's, if absent.

        Raises:
            BudgetError: it does not fit; nothing was touched.
            ReleaseError: rows or labels are not what the guarantee needs: all is charged.
        """
        source = noise or OpenDPNoise()
        return paid(meter, self.guarantee, data, lambda d: (self.model(d, source), "value"))

    def model(self, data: tuple[Any, Any], noise: Noise) -> FloatArray:
        """The parameters, not paid for."""
        x, y = _records(data, self.features)
        if len(y) != self.records:
            raise ValueError("another number of records than was declared")
        exact = self.grid.points(self.objective.minimum(x, y), self.features)
        p = np.asarray(self.grid.noisy(exact, self.noise.draw(noise)), dtype=np.float64)
        length, radius = float(np.linalg.norm(p)), self.objective.radius
        return p if length <= radius else p * (radius / length)


class TestSensitivity(StrEnum):
    """How far the mean error moves, at most, for two training parts that differ in a record.

    Attributes:
        TIGHT: w / 2, about 1 / (n Lambda), for models that are w = 2 / (n Lambda) apart: the
            slope of tanh(z / 2) is at most 1/2.
        PAPER: 2 (e^w - 1), about 4 / (n Lambda). Source: Hartmann et al. 2022, Theorem 17.
    """

    __test__ = False  # no test, though it is called one

    TIGHT = "tight"
    PAPER = "paper"

    def bound(self, apart: Fraction) -> Fraction:
        """For models that are so far apart, and never above 2, the largest error."""
        if self is TestSensitivity.TIGHT:
            return min(apart / 2, Fraction(2))
        # the float may lie below the fraction; beyond 1 the bound is above 2
        w = next_up(float(min(apart, Fraction(1))))
        return min(2 * Fraction(expm1_up(w)), Fraction(2))


def logistic_with_test(
    perturbation: OutputPerturbation,
    test_records: int,
    threshold: float,
    test_epsilon: Price,
    sensitivity: TestSensitivity = TestSensitivity.TIGHT,
) -> TestedRelease[FloatArray]:
    """Logistic regression whose model is released if its mean error on held-out records is small.

    Guarantee: see :class:`TestedRelease`; if epsilon >= test_epsilon a model costs epsilon, and
    none costs test_epsilon. The two parts share no record.
    Source: Hartmann et al. 2022, Algorithm 5.

    Args:
        perturbation: with the logistic loss.
        test_records: how many are held out, >= 1, public.
        threshold: of the mean of |h(x) - y|, in [0, 2], where h(x) = tanh(p.x / 2).
        test_epsilon: > 0, nats.
        sensitivity: the tight one, or the paper's.

    Raises:
        ParameterError: a parameter is refused.
    """
    if perturbation.loss != Loss.LOGISTIC:
        raise refuse("loss", "be logistic where there is a test", perturbation.loss)
    n = positive_count(test_records=test_records)
    # p.x to d + 4 roundings of |p|, tanh, a sum of n terms up to 2
    off = Fraction(
        4 * UNIT * ((perturbation.features + 4) * perturbation.objective.radius + n + 40)
    )
    apart = perturbation.sensitivity * (1 + Fraction(1, 2**29)) + off
    return TestedRelease(
        train=perturbation.model,
        epsilon=perturbation.epsilon,
        error=lambda p, data: mean_error(p, *_held_out(data, perturbation.features, n)),
        threshold=threshold,
        test_epsilon=test_epsilon,
        by_test=Fraction(2, n) + 2 * off,
        by_training=sensitivity.bound(apart) + 2 * off,
    )


def mean_error(p: FloatArray, x: FloatArray, y: FloatArray) -> float:
    """The mean of |h(x) - y| with h(x) = tanh(p.x / 2), in [0, 2]."""
    return float(np.mean(np.abs(np.tanh(x @ p / 2) - y)))


def _held_out(data: tuple[Any, Any], features: int, records: int) -> tuple[FloatArray, FloatArray]:
    x, y = _records(data, features)
    if len(y) != records:
        raise ValueError("another number of records than was declared")
    return x, y


def _records(data: tuple[Any, Any], features: int) -> tuple[FloatArray, FloatArray]:
    """Rows and labels, if they are what the guarantee is for."""
    x, y = (np.asarray(part, dtype=np.float64) for part in data)
    if x.ndim != 2 or x.shape[1] != features or y.shape != x.shape[:1]:
        raise ParameterError("rows must be (n, d) and labels (n,)")
    if not (np.linalg.norm(x, axis=1) <= LONGEST).all():
        raise ParameterError("rows must have a 2-norm of at most 1")
    if not ((y == -1) | (y == 1)).all():
        raise ParameterError("labels must be -1 or 1")
    return x, y
