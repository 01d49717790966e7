"""Reads columns and tables of NumPy, pandas, Polars or plain lists as arrays of doubles.

Types, shapes and names of columns may be refused: they are the schema, which is public. No value
is refused, shown or warned of. Each record is read by itself, whatever the other records are: a
number becomes the nearest double (infinite beyond the largest), and everything else becomes NaN,
a missing number. Each mechanism says what a missing number counts as.

An array has a type of its own. A plain list and a column of objects have none, since one record
can change the type that NumPy or pandas chooses. So a text or a list among their records is a
missing record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tightbudget.errors import ParameterError
from tightbudget.numerics.rounding import FloatArray
from tightbudget.release.private_number import FAILURES, double, listed


def column(**given: Any) -> FloatArray:
    """Returns one column as a one-dimensional array of doubles: ``column(ages=frame["age"])``.

    Raises:
        ParameterError: the type or the shape is not that of one column of numbers. The message
            names the argument and its type, and shows no value.
    """
    ((name, value),) = given.items()
    return _refused_or(name, "a column of numbers", value, 1, _column(value))


def table(width: int, **given: Any) -> FloatArray:
    """Returns a table as an array of doubles, (n, width), one row for each record.

    In a plain list, a row of another length becomes a row of missing numbers.

    Raises:
        ParameterError: the type or the shape is not that of such a table. The message names the
            argument and its type, and shows no value.
    """
    ((name, value),) = given.items()
    kind = f"a table of numbers with {width} column{'s' * (width != 1)}"
    array = _refused_or(name, kind, value, 2, _table(value, width))
    if array.shape[1] != width:
        raise ParameterError(f"{name} must be {kind}, got {array.shape[1]}")
    return array


def clamped(values: FloatArray, lower: float, upper: float) -> FloatArray:
    """Moves each value into [lower, upper], and a missing one to ``lower``.

    Guarantee: neighbouring columns stay neighbours, since each record is moved by itself.
    """
    return np.clip(np.where(np.isnan(values), lower, values), lower, upper)


def _refused_or(
    name: str, kind: str, value: Any, dimensions: int, array: FloatArray | None
) -> FloatArray:
    """Returns the array, or refuses one that is None or has other dimensions, by type alone."""
    if array is None or array.ndim != dimensions:
        shape = "" if array is None else f" of {array.ndim} dimensions"
        raise ParameterError(
            f"{name} must be {kind}, got something else ({type(value).__name__}{shape})"
        )
    return array


def _column(value: Any) -> FloatArray | None:
    """Reads one column as doubles; returns None if the column's type has no numbers."""
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
    """Reads a table as doubles; returns None if the type of some column has no numbers."""
    rows = listed(value)
    if rows is not None:
        return np.array([_row(row, width) for row in rows]).reshape(-1, width)
    if type(value).__module__.partition(".")[0] in ("pandas", "polars") and hasattr(
        value, "columns"
    ):
        # columns are taken by number, since two columns may have one name
        numbers = range(value.shape[1])
        parts = [
            _column(value.iloc[:, i] if hasattr(value, "iloc") else value[:, i]) for i in numbers
        ]
        known = [part for part in parts if part is not None]
        return np.column_stack(known) if len(known) == len(parts) > 0 else None
    return _column(value)


def _row(row: Any, width: int) -> FloatArray:
    """Reads one row of a list; all its numbers are missing if it is not ``width`` numbers."""
    try:
        numbers = _column(row)
    except FAILURES:
        numbers = None
    if numbers is None or numbers.shape != (width,):
        return np.full(width, np.nan)
    return numbers


def _listed(records: list[Any]) -> FloatArray:
    """Reads each record of a list by itself; all at once where NumPy gives the same numbers."""
    try:
        with np.errstate(all="ignore"):
            array: NDArray[Any] = np.asarray(records)
    except FAILURES:
        return _each(records)
    # numbers of more than 8 bytes (longdouble) would be rounded twice
    if array.ndim != 1 or array.dtype.kind not in "biuf" or array.itemsize > 8:
        return _each(records)
    return _as_doubles(array)


def _doubles(array: NDArray[Any]) -> FloatArray | None:
    """Converts an array to doubles; returns None if its type has no numbers."""
    if array.dtype.kind == "O" and array.ndim:
        return _each(array.ravel()).reshape(array.shape)
    return _as_doubles(array) if array.dtype.kind in "biuf" else None


def _as_doubles(array: NDArray[Any]) -> FloatArray:
    """Converts an array of numbers to doubles, without a warning."""
    with np.errstate(all="ignore"):  # a warning would tell that some record is too large
        return np.array(array, dtype=np.float64)


def _each(records: Iterable[Any]) -> FloatArray:
    """Reads each record as a double: NaN for one that is no number."""
    return np.array([double(record) for record in records], dtype=np.float64)
