"""From real numbers to integers: what is decided, is decided on a common grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.validate import plain, plain_numbers, positive, positive_count, refuse
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.release.noise import IntArray

__all__ = ["Grid"]

_FURTHEST = 2**52  # in steps: up to here every double over the step is exact
_WHOLE = 2**53  # up to here every integer is a double
_LAST = 2**61


@plain_numbers
@dataclass(frozen=True)
class Grid:
    """The multiples of a step, a power of two; without a step, the integers: exact counts.

    Guarantee: numbers that are at most D apart are at most ``sensitivity(D)`` points apart
    (so are n of them, in the 1-norm, for ``sensitivity(D, n)``): rounding moves each number by
    at most half a step, and nothing else is rounded. What is beyond 2^52 steps, or an integer
    beyond 2^53, is moved to there, which brings no two numbers further apart.

    Args:
        step: a power of two, in the query's unit; None where queries are integers.

    Raises:
        ParameterError: the step is not a power of two in [2^-500, 2^500].
    """

    step: float | None = None

    def __post_init__(self) -> None:
        if self.step is not None:
            step = positive(step=self.step)
            if math.frexp(step)[0] != 0.5 or not 2.0**-500 <= step <= 2.0**500:
                raise refuse("step", "be a power of two in [2^-500, 2^500]", self.step)
            object.__setattr__(self, "step", step)

    def sensitivity(self, real: Price, size: int = 1) -> int:
        """How many points a query of this sensitivity can move, >= 1."""
        steps = math.ceil(self.steps(exact_positive(sensitivity=real)))
        return steps if self.step is None else steps + positive_count(size=size)

    def steps(self, length: Fraction) -> Fraction:
        """A length in steps, exactly."""
        return length if self.step is None else length / Fraction(self.step)

    def point(self, value: Any) -> int:
        """The point nearest to one number."""
        if type(value) is int and self.step is None:
            return max(-_FURTHEST, min(value, _FURTHEST))
        return int(self.points(value, None)[0])

    def points(self, values: Any, size: int | None) -> IntArray:
        """The points nearest to the numbers: ``size`` of them, or one, if that is None.

        Raises:
            TypeError, ValueError: not so many numbers, not integers where there is no step,
                or NaN. These speak of private values: catch them.
        """
        array: NDArray[Any] = np.asarray(values)
        if array.shape != (() if size is None else (size,)):
            raise ValueError("another shape than was declared")
        if array.dtype.kind not in ("iu" if self.step is None else "iuf") or array.itemsize > 8:
            raise TypeError("not numbers, or not integers where there is no grid")
        if self.step is not None:
            if array.dtype.kind != "f":
                array = np.clip(array, -_WHOLE, _WHOLE)
            with np.errstate(over="ignore"):
                steps = array.astype(np.float64) / self.step
            array = np.rint(np.clip(steps, -_FURTHEST, _FURTHEST))
        if np.isnan(array).any():
            raise ValueError("not a number")
        points: IntArray = np.clip(np.atleast_1d(array), -_FURTHEST, _FURTHEST).astype(np.int64)
        return points

    def public(self, **given: Any) -> int:
        """The point nearest to a number that does not depend on the data.

        Raises:
            ParameterError: it is no number, or no integer where there is no step.
        """
        ((name, value),) = given.items()
        value = plain(value)
        if isinstance(value, (Fraction, Decimal)) and self.step is not None:
            value = float(value)  # any point near it will do
        try:
            return self.point(value)
        except (TypeError, ValueError):
            kind = "an integer" if self.step is None else "a number"
            raise refuse(name, f"be {kind}", value) from None

    def noisy(self, points: IntArray, noise: IntArray) -> IntArray | FloatArray:
        """The numbers that points with noise stand for.

        int64 cuts noise off at 2^63; an answer that is kept within 2^61, as it is here, does
        not know that anything was cut off.
        """
        sums = points + np.clip(noise, -2 * _LAST, 2 * _LAST)
        answer: IntArray = np.clip(sums, -_LAST, _LAST)
        return answer if self.step is None else np.float64(self.step) * answer
