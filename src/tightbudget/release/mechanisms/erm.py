"""Trains linear models by output perturbation, and tests a logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from tightbudget.errors import ParameterError
from tightbudget.numerics.rounding import UNIT, FloatArray, expm1_up, next_up
from tightbudget.numerics.validate import plain_numbers, positive, positive_count, refuse
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.columns import column, table
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.mechanisms.objective import LONGEST, Loss, Objective
from tightbudget.release.mechanisms.tested import GatedRelease, power_of_two_down
from tightbudget.release.noise.grid import AnswerGrid
from tightbudget.release.noise.lattice import LatticeNoise, sqrt_up
from tightbudget.release.noise.noise import Noise
from tightbudget.release.release import answered

Records = tuple[FloatArray, FloatArray]  # rows, (n, d), and labels, (n,)

# Steps of the grid of parameters in their sensitivity: rounding adds a part of sqrt(d) 2e-6 to it.
_FINENESS = 2**20


@plain_numbers
@dataclass(frozen=True)
class OutputPerturbation(MechanismOnData[tuple[Any, Any], FloatArray]):
    """The minimum of a regularised mean loss, perturbed: a linear model.

    The minimum is rounded to a grid, integer noise is added (see :class:`LatticeNoise`), and the
    sum is projected on the ball that is known to hold the minimum. Its data are a pair: rows,
    (n, d), and labels, (n,). The value of a release is the parameters, (d,).

    Guarantee: epsilon-DP, delta = 0, for data sets of n records of which one is replaced; n and
    the number of features are public. A row with |x|_2 > 1 is shortened to 1. A record is missing,
    and counts as a row of zeros, if its row has a number that is missing or infinite, or its
    label is not -1 or 1. So every record has a meaning by itself, and no error shows one.
    The time that the minimisation takes is not hidden.
    Source: Chaudhuri, Monteleoni, Sarwate 2011; Hartmann et al. 2022, Algorithm 4, Theorem 16.

    Args:
        epsilon: > 0, nats.
        regularization: Lambda > 0, of (Lambda / 2) |p|^2.
        records: n, >= 1.
        features: d, >= 1.
        loss: convex, differentiable, |l'| <= 1: ``Loss.LOGISTIC``, ``Loss.HUBER_SVM``, or another,
            for every margin; where it raises, the model is 0 before its noise.

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
        super().__post_init__()

    @property
    def objective(self) -> Objective:
        """The function that is minimised, without the data."""
        return Objective(self.loss, self.regularization, self.records, self.features)

    @property
    def grid(self) -> AnswerGrid:
        """The grid that the parameters lie on before they are projected."""
        return AnswerGrid(power_of_two_down(self.objective.sensitivity / _FINENESS))

    @property
    def noise(self) -> LatticeNoise:
        """The noise on the parameters, in steps of the grid."""
        return LatticeNoise(self.features, self.grid.steps(self.sensitivity), self.epsilon)

    @property
    def sensitivity(self) -> Fraction:
        """The largest move of the model at fixed noise, in the 2-norm, if a record is replaced."""
        # rounding moves each coordinate of two models apart by at most one step
        step = Fraction(self.grid.step or 1)
        return self.objective.sensitivity + sqrt_up(Fraction(self.features)) * step

    @property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the price epsilon."""
        return OutputDP({"value": self.epsilon})

    def _run(self, data: Any, noise: Noise) -> tuple[FloatArray, Cell]:
        return self.model(data, noise), "value"

    def model(self, data: tuple[Any, Any], noise: Noise) -> FloatArray:
        """Returns the parameters, (d,), without paying: for mechanisms built on this one."""
        x, y = _usable(*self._admitted(data))
        # a loss of the caller may fail: the minimum then counts as 0
        found = answered(lambda: self.objective.minimum(x, y))
        exact = self.grid.points(found, self.features)
        p = np.asarray(self.grid.noisy(exact, self.noise.draw(noise)), dtype=np.float64)
        length, radius = float(np.linalg.norm(p)), self.objective.radius
        return p if length <= radius else p * (radius / length)

    def _admitted(self, data: Any) -> Records:
        """Returns rows and labels; refuses types and shapes alone."""
        return _records(data, self.features, self.records)


class GateSensitivity(StrEnum):
    """A bound on the change of the mean error if one record of the training part is replaced.

    Attributes:
        TIGHT: w / 2, about 1 / (n Lambda), for models that are w = 2 / (n Lambda) apart, since
            the slope of tanh(z / 2) is at most 1/2.
        PAPER: 2 (e^w - 1), about 4 / (n Lambda). Source: Hartmann et al. 2022, Theorem 17.
    """

    __test__ = False  # pytest would collect it by its name

    TIGHT = "tight"
    PAPER = "paper"

    def bound(self, apart: Fraction) -> Fraction:
        """Returns the bound for models that are ``apart`` in the 2-norm; it is never above 2."""
        if self is GateSensitivity.TIGHT:
            return min(apart / 2, Fraction(2))  # guard: error-sensitivity
        # the float may lie below the fraction; for w > 1 the bound 2 (e^w - 1) is above 2
        w = next_up(float(min(apart, Fraction(1))))
        return min(2 * Fraction(expm1_up(w)), Fraction(2))


def logistic_with_test(
    perturbation: OutputPerturbation,
    test_records: int,
    threshold: float,
    test_epsilon: Price,
    sensitivity: GateSensitivity = GateSensitivity.TIGHT,
) -> GatedRelease[FloatArray]:
    """Logistic regression whose model is released if its mean error on held-out records is small.

    Guarantee: that of :class:`GatedRelease`. If epsilon >= test_epsilon, a model costs epsilon,
    and no model costs test_epsilon. The two parts share no record.
    Source: Hartmann et al. 2022, Algorithm 5.

    Args:
        perturbation: the training, with the logistic loss.
        test_records: the number of records that are held out, >= 1, public.
        threshold: the largest mean of |h(x) - y| that passes, in [0, 2], where
            h(x) = tanh(p.x / 2).
        test_epsilon: > 0, nats.
        sensitivity: the bound on the change of the mean error: the tight one, or the paper's.

    Raises:
        ParameterError: a parameter is refused.
    """
    if perturbation.loss != Loss.LOGISTIC:
        raise refuse("loss", "be logistic where there is a test", perturbation.loss)
    n = positive_count(test_records=test_records)
    # p.x is off by d + 4 roundings of |p|; tanh and the sum of n terms up to 2 add n + 40
    off = Fraction(
        4 * UNIT * ((perturbation.features + 4) * perturbation.objective.radius + n + 40)
    )
    apart = perturbation.sensitivity * (1 + Fraction(1, 2**29)) + off
    return GatedRelease(
        train=perturbation.model,
        epsilon=perturbation.epsilon,
        error=lambda p, data: mean_error(p, *_usable(*data)),
        threshold=threshold,
        test_epsilon=test_epsilon,
        by_test=Fraction(2, n) + 2 * off,
        by_training=sensitivity.bound(apart) + 2 * off,
        bounds=(0, 2),
        admit=partial(_both_parts, perturbation, n),
    )


def mean_error(p: FloatArray, x: FloatArray, y: FloatArray) -> float:
    """Returns the mean of |h(x) - y| with h(x) = tanh(p.x / 2), in [0, 2]."""
    return float(np.mean(np.abs(np.tanh(x @ p / 2) - y)))


def _both_parts(perturbation: OutputPerturbation, held_out: int, data: Any) -> tuple[Any, Any]:
    """Returns the training part and the test part; refuses types and shapes alone."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ParameterError(f"data must be two parts, got {type(data).__name__}")
    training, test = data
    return perturbation._admitted(training), _records(test, perturbation.features, held_out)


def _records(data: Any, features: int, records: int) -> Records:
    """Returns rows and labels; refuses types and shapes alone, since every value has a meaning."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ParameterError(f"data must be rows and labels, got {type(data).__name__}")
    rows, labels = table(features, rows=data[0]), column(labels=data[1])
    for name, part in (("rows", rows), ("labels", labels)):
        if len(part) != records:
            raise refuse(f"len({name})", f"be {records}, as was declared", len(part))
    return rows, labels


def _usable(rows: FloatArray, labels: FloatArray) -> Records:
    """Brings each record, by itself, to |x|_2 <= 1 and a label of -1 or 1."""
    # guard: missing-numbers-seen
    present = np.isfinite(rows).all(axis=1) & ((labels == -1) | (labels == 1))
    rows = np.where(present[:, None], rows, 0.0)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    # guard: rows-scaled-first
    unit = np.where(largest > 2, largest, 1.0)  # the square of a larger number could overflow
    scaled = rows / unit
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    long = (unit > 1) | (length > LONGEST)  # guard: rows-not-too-long
    return np.where(long, scaled / np.where(long, length, 1.0), rows), np.where(
        present, labels, 1.0
    )
