"""Trains, tests on records that were held out, and releases a good enough output alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Generic, TypeVar

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import finite, plain_numbers
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.noise.grid import AnswerGrid
from tightbudget.release.noise.noise import Noise, scale_up
from tightbudget.release.release import answered

V = TypeVar("V")

# Steps of the grid of errors in their sensitivity: rounding adds a part of 1e-6 to it.
_FINENESS = 2**20


@plain_numbers
@dataclass(frozen=True)
class GatedRelease(MechanismOnData[tuple[Any, Any], V | None], Generic[V]):
    """Runs a mechanism on training records and releases its output if its error is small.

    Its data are a pair, the training part and the test part, which share no record. The value of
    a release is the output, or None with the cell "bottom".

    Let a be the larger of ``by_test`` and ``by_training``. The output v is released if
    error(v, test) + Lap(a / test_epsilon) <= threshold, compared on a grid of integers.

    A record of the test part is seen through the comparison alone, which then costs
    (by_test / a) test_epsilon. For a record of the training part a released output costs
    ``epsilon``, as the test comes after it. If none is released, the same coupling of the noise
    moves the error by at most ``by_training``, so that costs at most test_epsilon.

    Guarantee: {"value": max(epsilon, (by_test / a) test_epsilon), "bottom": test_epsilon or
    the price of "value", whichever is less}, delta = 0, for neighbours that differ in one record
    of one part. Without ``by_training`` "bottom" costs as much as "value".

    A failure is an output: ``train`` that raises has the output None, which must be as private
    as its others, and an error that is no number (None has none) counts as the largest error.
    An error that can fail needs ``bounds`` for that: with (low, high) it moves by high - low at
    most, whatever it does.

    Source: Hartmann et al. 2022, section 6, Theorem 17.

    Args:
        train: from the training part and the source of noise to an output: epsilon-DP.
        epsilon: > 0, nats.
        error: from an output and the test part to a number, which needs not be private.
        threshold: the largest error that passes, in the error's unit; it is public.
        test_epsilon: > 0, nats.
        by_test: > 0, how far the error of any output can move with one test record.
        by_training: > 0, how far the error can move, on any test part, between neighbouring
            training parts if the randomness of ``train`` is coupled; None if nothing is known.
        bounds: (low, high): errors beyond are moved there; None for no bounds.
        admit: from the data of the caller to the two parts, before anything is charged. It may
            refuse types, shapes and names of columns, never values; None takes data as they are.

    Raises:
        ParameterError: a parameter is refused.
    """

    __test__ = False  # pytest would collect it by its name

    train: Callable[[Any, Noise], V]
    epsilon: Price
    error: Callable[[V, Any], float]
    threshold: float
    test_epsilon: Price
    by_test: Price
    by_training: Price | None = None
    bounds: tuple[float, float] | None = None
    admit: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        exact_positive(epsilon=self.epsilon)
        finite(threshold=self.threshold)
        exact_positive(by_test=self.by_test)
        if self.by_training is not None:
            exact_positive(by_training=self.by_training)
        exact_positive(test_epsilon=self.test_epsilon)
        scale_up(self._scale)
        _ = self._grid
        super().__post_init__()

    @cached_property
    def _grid(self) -> AnswerGrid:
        """The grid that errors are rounded to."""
        coarsest = max(exact_positive(a=a) for a in (self.by_test, self.by_training) if a)
        return AnswerGrid(power_of_two_down(coarsest / _FINENESS), self.bounds, math.inf)

    @cached_property
    def _moves(self) -> tuple[int, int]:
        """The largest moves of the error, in grid points, for a test record and for any record."""
        by_test = self._grid.sensitivity(self.by_test)
        if self.by_training is None:
            return by_test, by_test
        return by_test, max(by_test, self._grid.sensitivity(self.by_training))

    @property
    def _scale(self) -> Fraction:
        """The scale of the noise on the error, in points of the grid."""
        return self._moves[1] / exact_positive(test_epsilon=self.test_epsilon)

    @property
    def error_scale(self) -> float:
        """The scale of the noise on the error, in the error's unit."""
        return float(self._scale) * float(self._grid.step or 1)

    @property
    def guarantee(self) -> OutputDP:
        """The prices of the output cells "value" and "bottom"."""
        test_epsilon = exact_positive(test_epsilon=self.test_epsilon)
        by_test, any_record = self._moves
        value = max(
            exact_positive(epsilon=self.epsilon), Fraction(by_test, any_record) * test_epsilon
        )
        bottom = value if self.by_training is None else min(value, test_epsilon)
        return OutputDP({"value": value, "bottom": bottom})

    def _admitted(self, data: Any) -> tuple[Any, Any]:
        """Returns the training part and the test part; refuses types and shapes alone."""
        parts = data if self.admit is None else self.admit(data)
        if not isinstance(parts, (tuple, list)) or len(parts) != 2:
            kind = type(parts).__name__
            raise ParameterError(f"data must be two parts, (training, test), got {kind}")
        return parts[0], parts[1]

    def _run(self, data: Any, noise: Noise) -> tuple[V | None, Cell]:
        training, test = data
        output = answered(lambda: self.train(training, noise))
        # an output that is None has no error: it counts as the largest
        known = math.inf if output is None else answered(lambda: self.error(output, test))
        error, threshold = self._grid.point(known), self._grid.public(threshold=self.threshold)
        if error + int(noise.laplace(self._scale, 1)[0]) <= threshold:  # guard: noisy-test
            return output, "value"
        return None, "bottom"


def power_of_two_down(x: Fraction) -> float:
    """Returns the largest power of two <= x, for x > 0."""
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    return 2.0**exponent if Fraction(2) ** exponent <= x else 2.0 ** (exponent - 1)
