"""Points of a grid: a number is moved between bounds and rounded, in queries and in NumPy alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.validate import refuse
from tightbudget.release.columns import column as read_column
from tightbudget.tables.rules.expressions import as_double, cases, check_number, double, floor

# Beyond 2^52 steps, doubles are a step apart: x + step/2 could then round above the bounds.
_POINTS = 2**52


def points(value: Any, low: int, high: int, step: float) -> Any:
    """Returns the integer expression floor(clip(x, low * step, high * step) / step + 1/2).

    NULL and NaN have the point ``low``. The same function in NumPy is :func:`numpy_points`.

    Guarantee: the value is in [low, high] for every double, and no record makes the query fail.

    Args:
        value: an Ibis expression of integers, doubles, decimals or truth values.
        low: the first point, in [-2^52, 2^52].
        high: the last point, in [low, 2^52].
        step: of the grid, a power of two in [2^-900, 2^900].

    Raises:
        ParameterError: the value is no number, or a parameter is out of its range.
    """
    return double_points(value, low, high, step).cast("int64")


def double_points(value: Any, low: int, high: int, step: float) -> Any:
    """Returns the expression of :func:`points` as a double, which is exact."""
    _check_grid(low, high, step)
    check_number(value, "column")
    x = as_double(value)
    first, last = double(low * step), double(high * step)
    # Some engines hold NaN for larger than all numbers, in others no comparison with it is true.
    # Nowhere is it at most infinity. Values within the bounds, which are most, meet one condition.
    # guard: nan-at-the-low-end
    above = (x > last) & (x <= double(math.inf))
    clipped = cases(((x >= first) & (x <= last), x), (above, last), first)
    # (x + step/2) / step is x / step + 1/2 to the bit, since a power of two scales exactly. Unlike
    # x / step it cannot underflow: x + step/2 is 0 or at least 2^-54 steps. The inverse of a step
    # is a double, too, and an engine need not look for divisors that are 0.
    return floor((clipped + double(step / 2)) * double(1 / step))


def numpy_points(values: Any, low: int, high: int, step: float) -> NDArray[np.int64]:
    """Returns floor(clip(x, low * step, high * step) / step + 1/2) for each x of an array.

    NULL (None) and NaN have the point ``low``.

    Guarantee: equal to the bit to :func:`points` on an engine, for every double.

    Raises:
        ParameterError: the array is no column of numbers, or a parameter is out of its range.
    """
    _check_grid(low, high, step)
    x = read_column(column=values)
    x = np.clip(np.where(np.isnan(x), low * step, x), low * step, high * step)
    found: NDArray[np.int64] = np.floor((x + step / 2) / step).astype(np.int64)
    return found


def _check_grid(low: int, high: int, step: float) -> None:
    """Refuses a grid whose points are not exact."""
    if not math.isfinite(step) or step <= 0 or math.frexp(step)[0] != 0.5:
        raise refuse("step", "be a power of two", step)
    if not 2.0**-900 <= step <= 2.0**900:
        raise refuse("step", "be in [2^-900, 2^900]", step)
    for name, point in (("low", low), ("high", high)):
        if not -_POINTS <= point <= _POINTS:
            raise refuse(name, "be at most 2^52 steps from 0: choose a coarser step", point)
    if low > high:
        raise refuse("low", f"be at most high = {high}", low)
