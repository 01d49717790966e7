"""Frames as tables of Arrow: each column in its form, or left out by its type."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.tables.columns import ROW, kind_of
from tightbudget.tables.rules.expressions import import_ibis

# The name and the type of a column of a frame, and what makes it one of Arrow.
_Read = tuple[str, str, Callable[[], Any]]
# The first and the last second of the years 1 to 9999, from 1970 on.
_FIRST, _LAST = -62_135_596_800, 253_402_300_799


def arrow_of(given: Sequence[_Read]) -> tuple[Any, dict[str, str]]:
    """Returns a frame as a table of Arrow in the form of each column, and what is left out.

    Args:
        given: what :func:`read_columns` returns.

    Returns:
        The table, and from the names of columns that are not let in to their types.
    """
    arrow = importlib.import_module("pyarrow")
    made, odd, rows = {}, {}, 0
    for name, told, read in given:
        try:
            column = read()
        except Exception:  # the type has no counterpart, which no record decides
            odd[name] = told
            continue
        rows = len(column)
        column = _plain(column, told, odd, name)
        if column is not None:
            made[name] = column
    if not made:  # rows can be counted all the same
        made[ROW] = arrow.array([1] * rows, arrow.int64())
    return arrow.table(made), odd


def read_columns(data: Any) -> Sequence[_Read]:
    """Returns the name and the type of each column of a frame, and what makes it one of Arrow."""
    arrow = importlib.import_module("pyarrow")
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):  # lazy, of Polars
        data = data.collect()
    if hasattr(data, "get_columns"):  # Polars
        return [(c.name, str(c.dtype), c.to_arrow) for c in data.get_columns()]
    if hasattr(data, "iloc"):  # pandas
        return [
            (
                str(name),
                str(data.dtypes.iloc[i]),
                partial(lambda i: arrow.Array.from_pandas(data.iloc[:, i]), i),
            )
            for i, name in enumerate(data.columns)
        ]
    if not isinstance(data, arrow.Table):
        data = import_ibis().memtable(data).to_pyarrow()
    return [
        (field.name, str(field.type), partial(data.column, i))
        for i, field in enumerate(data.schema)
    ]


def _plain(column: Any, told: str, odd: dict[str, str], name: str) -> Any:
    """Returns a column of Arrow in its form; None, and a word in ``odd``, if it is not let in."""
    arrow = importlib.import_module("pyarrow")
    formats = importlib.import_module("ibis.formats.pyarrow")
    if isinstance(column, arrow.Array):
        column = arrow.chunked_array([column])
    kind = column.type
    types = arrow.types
    if types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type), told, odd, name)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _valid(column)
    if types.is_float16(kind):
        column = column.cast(arrow.float32())
    if types.is_timestamp(kind) and kind.unit != "ns":
        column = _usual_times(column)
    try:
        found = str(formats.PyArrowType.to_ibis(column.type)).removeprefix("!")
    except Exception:
        found = told
    if kind_of(found) is None:
        odd[name] = found
        return None
    return column


def _usual_times(column: Any) -> Any:
    """Returns timestamps of microseconds, of the years 1 to 9999; others are missing.

    DuckDB has fewer years than int64 has seconds, and a cast of another one is an error.
    """
    arrow = importlib.import_module("pyarrow")
    compute = importlib.import_module("pyarrow.compute")
    points = column.cast(arrow.int64())
    second = {"s": 1, "ms": 10**3, "us": 10**6}[column.type.unit]
    # guard: times-of-frames
    usual = compute.and_(
        compute.greater_equal(points, _FIRST * second), compute.less_equal(points, _LAST * second)
    )
    kept = compute.if_else(usual, column, arrow.scalar(None, column.type))
    return kept.cast(arrow.timestamp("us", column.type.tz))


def _valid(column: Any) -> Any:
    """Returns texts of UTF-8: bytes that are none become U+FFFD, in each text by itself."""
    arrow = importlib.import_module("pyarrow")
    try:
        column.validate(full=True)
    except arrow.ArrowInvalid:  # guard: texts-of-frames
        told = column.cast(arrow.binary()).to_pylist()
        texts = [None if text is None else text.decode(errors="replace") for text in told]
        return arrow.chunked_array([arrow.array(texts, arrow.string())])
    return column


def check_frame(data: Any) -> None:
    """Refuses a pandas frame with columns whose types would be read off the records.

    Those are objects, categories and the like: one record could change such a type, and with it
    what is refused before anything is paid.
    """
    kinds: Any = getattr(data, "dtypes", None)
    if not hasattr(kinds, "items"):
        return
    # guard: typed-frame
    objects = [f"{name} ({kind})" for name, kind in kinds.items() if not _has_type(kind)]
    if objects:
        raise ParameterError(
            f"data must have a type in each column, got {', '.join(objects)}: drop "
            "them, or say frame.astype({...}) with string, Int64, boolean, float64 or a type of "
            "Arrow"
        )


def _has_type(kind: Any) -> bool:
    """Whether a type of pandas says what values are: one of NumPy, of Arrow, or of texts."""
    texts = type(kind).__name__ in ("ArrowDtype", "StringDtype")
    return texts or getattr(kind, "kind", "O") != "O"


def unread(frame: Any, error: Exception) -> str:
    """Says which column of a frame could not be read, by its name and type."""
    for name in getattr(frame, "columns", ()):
        try:
            import_ibis().memtable(frame[[name]].head(0)).schema()
        except Exception:
            kind = getattr(frame[name], "dtype", "unknown")
            return f"the frame's column {name!r} of type {kind} could not be read"
    return f"the frame could not be read ({type(error).__name__})"
