"""Columns and tables of NumPy, pandas, Polars or plain lists, as arrays.

What is refused here is a type, a shape or a name: the schema, which is public. Values are
never shown, and no value is refused: a number that is missing is NaN, and what NaN means is
said by :func:`clamped`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tightbudget.errors import ParameterError
from tightbudget.numerics.rounding import FloatArray

__all__ = ["clamped", "column", "table"]


def column(**given: Any) -> FloatArray:
    """A one-dimensional array of doubles: ``column(ages=frame["age"])``.

    Raises:
        ParameterError: it is not one column of numbers; names it, and shows no value.
    """
    return _array(1, "a column", given)


def table(**given: Any) -> FloatArray:
    """A two-dimensional array of doubles, one row for each record.

    Raises:
        ParameterError: it is not a table of numbers; names it, and shows no value.
    """
    return _array(2, "a table", given)


def clamped(values: FloatArray, lower: float, upper: float) -> FloatArray:
    """The values, moved into [lower, upper]; a missing one becomes ``lower``.

    It acts on each record by itself, so it brings no two neighbouring data sets further apart.
    """
    return np.clip(np.where(np.isnan(values), lower, values), lower, upper)


def _array(dimensions: int, kind: str, given: dict[str, Any]) -> FloatArray:
    ((name, value),) = given.items()
    try:
        array = np.array(_doubles(value), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = None  # the original message may show a value
    if array is None or array.ndim != dimensions:
        shape = "" if array is None else f" of {array.ndim} dimensions"
        raise ParameterError(
            f"{name} must be {kind} of numbers, got something else ({type(value).__name__}{shape})"
        )
    return array


def _doubles(value: Any) -> Any:
    """pandas must be told what stands for a missing number; nobody's texts are numbers."""
    if type(value).__module__.partition(".")[0] == "pandas":
        value = value.to_numpy(dtype=np.float64, na_value=np.nan)
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError("no numbers")
    return array
