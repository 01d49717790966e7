"""Columns and tables of NumPy, pandas, Polars or plain lists, as arrays.

What is refused here is a type, a shape or a name: the schema, which is public. No value is
refused, none is shown, and none is warned of. Each record is read by itself, whatever stands
beside it: a number is the nearest double (infinite beyond the largest), and everything else is
NaN, a missing number. What a missing number counts as, each mechanism says.

An array has a type of its own; a plain list, and a column of objects, has not, as one record can
change what NumPy or pandas makes of it. So there a text or a list is a record that is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tightbudget.errors import ParameterError
from tightbudget.numerics.rounding import FloatArray
from tightbudget.release.private_number import FAILURES, double, listed

__all__ = ["clamped", "column", "table"]


def column(**given: Any) -> FloatArray:
    """A one-dimensional array of doubles: ``column(ages=frame["age"])``.

    Raises:
        ParameterError: it is not one column of numbers by its type or shape; names it, and shows
            no value.
    """
    ((name, value),) = given.items()
    return _refused_or(name, "a column of numbers", value, 1, _column(value))


def table(width: int, **given: Any) -> FloatArray:
    """A two-dimensional array of doubles, (n, width), one row for each record.

    A row of a plain list that has another length is missing altogether.

    Raises:
        ParameterError: it is not such a table by its type or shape; names it, and shows no value.
    """
    ((name, value),) = given.items()
    kind = f"a table of numbers with {width} column{'s' * (width != 1)}"
    array = _refused_or(name, kind, value, 2, _table(value, width))
    if array.shape[1] != width:
        raise ParameterError(f"{name} must be {kind}, got {array.shape[1]}")
    return array


def clamped(values: FloatArray, lower: float, upper: float) -> FloatArray:
    """The values, moved into [lower, upper]; a missing one becomes ``lower``.

    It acts on each record by itself, so it brings no two neighbouring data sets further apart.
    """
    return np.clip(np.where(np.isnan(values), lower, values), lower, upper)


def _refused_or(
    name: str, kind: str, value: Any, dimensions: int, array: FloatArray | None
) -> FloatArray:
    if array is None or array.ndim != dimensions:
        shape = "" if array is None else f" of {array.ndim} dimensions"
        raise ParameterError(
            f"{name} must be {kind}, got something else ({type(value).__name__}{shape})"
        )
    return array


def _column(value: Any) -> FloatArray | None:
    """The numbers of one column; None if its type has none."""
    records = listed(value)
    if records is not None:
        return _listed(records)
    library = type(value).__module__.partition(".")[0]
    dtype = getattr(value, "dtype", None)
    if library == "polars" and dtype is not None:
        if str(dtype) in ("Object", "Null", "Boolean") or dtype.is_decimal():
            return _listed(value.to_list())
        return _doubles(value.to_numpy()) if dtype.is_numeric() else None
    if library == "pandas" and dtype is not None:
        if dtype.kind in "biuf":
            with np.errstate(all="ignore"):
                return np.array(value.to_numpy(dtype=np.float64, na_value=np.nan))
        if dtype.kind == "O" and dtype.name not in ("str", "string"):
            return _each(value.to_numpy(dtype=object))
        return None
    try:
        with np.errstate(all="ignore"):
            return _doubles(np.asarray(value))
    except FAILURES:
        return None


def _table(value: Any, width: int) -> FloatArray | None:
    rows = listed(value)
    if rows is not None:
        return np.array([_row(row, width) for row in rows]).reshape(-1, width)
    if type(value).__module__.partition(".")[0] in ("pandas", "polars") and hasattr(
        value, "columns"
    ):
        # by number: two columns may have one name
        numbers = range(value.shape[1])
        parts = [
            _column(value.iloc[:, i] if hasattr(value, "iloc") else value[:, i]) for i in numbers
        ]
        known = [part for part in parts if part is not None]
        return np.column_stack(known) if len(known) == len(parts) > 0 else None
    return _column(value)


def _row(row: Any, width: int) -> FloatArray:
    try:
        numbers = _column(row)
    except FAILURES:
        numbers = None
    if numbers is None or numbers.shape != (width,):
        return np.full(width, np.nan)
    return numbers


def _listed(records: list[Any]) -> FloatArray:
    """Each record of a list by itself; those that NumPy reads so, at once."""
    try:
        with np.errstate(all="ignore"):
            array: NDArray[Any] = np.asarray(records)
    except FAILURES:
        return _each(records)
    if array.ndim != 1 or array.dtype.kind not in "biuf" or array.itemsize > 8:
        return _each(records)
    return _as_doubles(array)


def _doubles(array: NDArray[Any]) -> FloatArray | None:
    if array.dtype.kind == "O" and array.ndim:
        return _each(array.ravel()).reshape(array.shape)
    return _as_doubles(array) if array.dtype.kind in "biuf" else None


def _as_doubles(array: NDArray[Any]) -> FloatArray:
    with np.errstate(all="ignore"):  # a warning would tell that some record is too large
        return np.array(array, dtype=np.float64)


def _each(records: Iterable[Any]) -> FloatArray:
    return np.array([double(record) for record in records], dtype=np.float64)
