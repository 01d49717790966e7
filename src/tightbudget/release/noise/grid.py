"""Rounds the answers of queries to a grid of integers, on which noise is added and compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.validate import plain, plain_numbers, positive, positive_count, refuse
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.release.noise.noise import IntArray
from tightbudget.release.private_number import FAILURES, listed, number
from tightbudget.release.rehearsal import in_rehearsal

_FURTHEST = 2**52  # in steps; up to here the integer nearest to a double over the step is exact
_WHOLE = 2**53  # every integer up to here is a double
_LAST = 2**61  # of answers: a point plus noise, cut off at 2 _LAST, stays within int64


@plain_numbers
@dataclass(frozen=True)
class AnswerGrid:
    """The multiples of a step, a power of two; without a step, the integers: exact counts.

    Guarantee: two numbers that are at most D apart become points that are at most
    ``sensitivity(D)`` apart, whatever types they have. Two vectors of n numbers that are at most
    D apart in the 1-norm become points that are at most ``sensitivity(D, n)`` apart in the 1-norm;
    without a step only if their numbers are integers.
    Proof: with a step, rounding moves each number by at most half a step. Without one, numbers
    are rounded down, and y <= x <= y + D has floor(y) <= floor(x) <= floor(y) + ceil(D). In a
    vector of real numbers, rounding down can move each number by one more; so a mechanism takes a
    vector without a step only if its caller declares that all numbers are integers. A number
    beyond the bounds, or beyond 2^52 points, is moved to the last point, which brings no two
    points further apart.

    Every answer of a query has a point, since an error would be seen: an answer that is no number
    becomes the fallback. The fallback is an answer like any other, so the sensitivity D must be
    that of *the query with the fallback in place of its failures*. With bounds (low, high) every
    query has the sensitivity high - low, whether it fails or not; n numbers have n times that.

    Args:
        step: a power of two, in the query's unit; None where queries are integers.
        bounds: (low, high); answers beyond are moved there.
        fallback: the answer that stands for one that is no number; if None, low, or 0 without
            bounds.

    Raises:
        ParameterError: the step is not a power of two in [2^-500, 2^500]; bounds are not two
            numbers that ascend.
    """

    step: float | None = None
    bounds: tuple[float, float] | None = None
    fallback: float | None = None

    def __post_init__(self) -> None:
        if self.step is not None:
            step = positive(step=self.step)
            if math.frexp(step)[0] != 0.5 or not 2.0**-500 <= step <= 2.0**500:
                raise refuse("step", "be a power of two in [2^-500, 2^500]", self.step)
            object.__setattr__(self, "step", step)
        _ = self._ends

    def sensitivity(self, real: Price, size: int = 1) -> int:
        """Returns the number of points, >= 1, that a query of sensitivity ``real`` can move.

        Args:
            real: > 0, in the query's unit; for several numbers, in the 1-norm.
            size: the number of numbers that the query answers.
        """
        steps = math.ceil(self.steps(exact_positive(sensitivity=real)))
        # guard: rounding-adds-one
        return steps if self.step is None else steps + positive_count(size=size)

    def steps(self, length: Fraction) -> Fraction:
        """Divides a length by the step, exactly."""
        return length if self.step is None else length / Fraction(self.step)

    def point(self, value: Any) -> int:
        """Returns the point of one number, or of the fallback if it is none.

        It never raises but in a rehearsal.
        """
        if in_rehearsal():
            self._check(value, None)
        low, high = self._ends
        if type(value) is int and self.step is None:  # a count: the other paths take longer
            return max(low, min(value, high))
        if _is_double(value):
            return self._of_double(float(value), low, high)
        return int(self.points(value, None)[0])

    def points(self, values: Any, size: int | None) -> IntArray:
        """Returns the points of ``size`` numbers, or of one number if that is None.

        Numbers beyond ``size`` are left out, and missing ones become the fallback. It never raises
        but in a rehearsal.
        """
        if in_rehearsal():
            self._check(values, size)
        points = np.full(1 if size is None else size, self._fallback, dtype=np.int64)
        # guard: integer-beside-double-exact
        found = _entries(values, exactly=self._doubles_are_too_coarse)[: len(points)]
        points[: len(found)] = self._rounded(found)
        return points

    def public(self, **given: Any) -> int:
        """Returns the point of a number that does not depend on the data; bounds do not move it.

        Raises:
            ParameterError: it is no number, or no integer where there is no step.
        """
        ((name, value),) = given.items()
        value = plain(value)
        if type(value) is int and self.step is None:
            return max(-_FURTHEST, min(value, _FURTHEST))
        if self.step is not None and _is_double(value) and value == value:
            return self._of_double(float(value), -_FURTHEST, _FURTHEST)
        known = None if isinstance(value, (bool, np.bool_)) else number(value)
        if self.step is None and not isinstance(known, int):
            raise refuse(name, "be an integer", value)
        if known is None:
            raise refuse(name, "be a number", value)
        return self._nearest(known, -_FURTHEST, _FURTHEST)

    def _check(self, values: Any, size: int | None) -> None:
        """Refuses the answer of a query that a paid run would replace, cut off or round down.

        Raises:
            ParameterError: it has another count of numbers than ``size``, or an entry that is no
                number, or no integer where there is no step.
        """
        entries = _entries(values, exactly=True)
        if len(entries) != (1 if size is None else size):
            wanted = "one number (size= is for more)" if size is None else f"{size} numbers"
            raise refuse("the query's answer", f"be {wanted}", values)
        for entry in map(number, entries.tolist()):
            if entry is None or entry != entry:
                raise refuse("the query's answer", "have numbers alone", values)
            if self.step is None and isinstance(entry, Fraction) and entry.denominator != 1:
                must = "be of integers, as there is no step (a paid run rounds others down)"
                raise refuse("the query's answer", must, values)

    @cached_property
    def _ends(self) -> tuple[int, int]:
        """The first and the last point that an answer can have."""
        if self.bounds is None:
            return -_FURTHEST, _FURTHEST
        try:
            low, high = self.bounds
        except (TypeError, ValueError):
            raise refuse("bounds", "be two numbers, (low, high)", self.bounds) from None
        ends = self.public(**{"bounds[0]": low}), self.public(**{"bounds[1]": high})
        if not low <= high:
            raise refuse("bounds", "ascend", self.bounds)
        return ends

    @cached_property
    def _fallback(self) -> int:
        """The point that stands for an answer that is no number."""
        low, high = self._ends
        if self.fallback is None:
            return low if self.bounds is not None else 0
        return max(low, min(self.public(fallback=self.fallback), high))

    @property
    def _doubles_are_too_coarse(self) -> bool:
        """True if some integers on the grid are no doubles."""
        return self.step is not None and self.step * _FURTHEST > _WHOLE

    def _nearest(self, known: int | Fraction | float, low: int, high: int) -> int:
        """Returns the point of a number that is known exactly; with a step, ties go to even."""
        if isinstance(known, float):  # infinite
            return high if known > 0 else low
        steps = self.steps(Fraction(known))
        return max(low, min(math.floor(steps) if self.step is None else round(steps), high))

    def _of_double(self, x: float, low: int, high: int) -> int:
        """Returns the point of a double, in [low, high], or the fallback for NaN."""
        if math.isnan(x):
            return self._fallback
        steps = x if self.step is None else x / self.step  # inf where it overflows
        if not low < steps < high:
            return high if steps > low else low
        return math.floor(steps) if self.step is None else round(steps)  # guard: number-floored

    def _rounded(self, entries: NDArray[Any]) -> IntArray:
        """Returns the points of an array of numbers or objects, (n,)."""
        low, high = self._ends  # guard: answers-within-bounds
        if entries.dtype.kind == "O" or entries.itemsize > 8:
            known = (number(entry) for entry in entries)
            return np.array(
                [self._fallback if x is None else self._nearest(x, low, high) for x in known],
                dtype=np.int64,
            )  # guard: failure-near-answers
        if entries.dtype.kind != "f":
            if self.step is None:
                whole: IntArray = np.clip(entries, low, high).astype(np.int64)
                return whole
            nearer = np.clip(entries, -_WHOLE, _WHOLE)
            # guard: integers-beyond-coarse-doubles
            if self._doubles_are_too_coarse and (nearer != entries).any():
                return self._rounded(entries.astype(object))
            entries = nearer
        with np.errstate(all="ignore"):
            doubles = entries.astype(np.float64)
            # guard: numbers-floored
            steps = np.floor(doubles) if self.step is None else np.rint(doubles / self.step)
        # guard: failure-has-point
        steps = np.where(np.isnan(steps), self._fallback, np.clip(steps, low, high))
        points: IntArray = steps.astype(np.int64)
        return points

    def noisy(self, points: IntArray, noise: IntArray) -> IntArray | FloatArray:
        """Adds noise to points, and returns the numbers that the sums stand for.

        Answers are kept within 2^61 points. Noise of more than 2^62 points is cut off there, which
        changes no answer: the point of a query is within 2^52, so such a sum is beyond 2^61.
        """
        sums = points + np.clip(noise, -2 * _LAST, 2 * _LAST)
        answer: IntArray = np.clip(sums, -_LAST, _LAST)  # guard: noise-clipped
        return answer if self.step is None else np.float64(self.step) * answer


def _entries(values: Any, exactly: bool) -> NDArray[Any]:
    """Returns the values as an array of numbers or objects, (n,); an empty one for no numbers.

    Args:
        values: the answer of a query.
        exactly: whether integers stay exact that NumPy would turn into doubles, because a double
            is beside them or because they have more than 64 bits.
    """
    try:
        with np.errstate(all="ignore"):
            array: NDArray[Any] = np.asarray(values)
        typed = hasattr(values, "dtype")
    except FAILURES:
        array, typed = _objects(values), True
    if array.dtype.kind not in "biufO" or (exactly and array.dtype.kind == "f" and not typed):
        # texts beside numbers have made texts of them; large integers have become doubles
        array = np.empty(0) if typed else _objects(values)
    return array.astype(np.int8).ravel() if array.dtype.kind == "b" else array.ravel()


def _is_double(value: Any) -> bool:
    """True if the type alone says that the value is a double, or an integer that is one."""
    kind = type(value)
    return kind is float or kind is np.float64 or (kind is int and -_WHOLE <= value <= _WHOLE)


def _objects(values: Any) -> NDArray[Any]:
    """Returns an array of the entries of a list as they are; NumPy would unpack lists in it."""
    several = listed(values)
    entries = [values] if several is None else several
    array = np.empty(len(entries), dtype=object)
    for i, entry in enumerate(entries):
        array[i] = entry
    return array
