"""Conditions on rows as a person types them: ``fare > 10``, one column, one sign and one value."""

from __future__ import annotations

import datetime
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from tightbudget import ParameterError

__all__ = ["condition", "key_of"]

_SIGNS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_FORM = re.compile(r"\s*([^=!<>]*[^=!<>\s])\s*(==|!=|<=|>=|<|>)\s*([^=!<>].*?|)\s*", re.DOTALL)
# Engines order texts in different ways, so that texts are compared for equality alone.
_EQUAL = ("==", "!=")


def condition(text: str, columns: Mapping[str, str]) -> Callable[[Any], Any]:
    """Reads one condition, and returns it as a rule on the rows of a table.

    A row whose value is missing does not count, whatever the sign.

    Args:
        text: a column, one of the signs == != < <= > >=, and a value.
        columns: the names of the columns, with the names of their types.

    Raises:
        ParameterError: the text has another form, the column is not there, or the value is none of
            its type.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ParameterError(
            "where must be COLUMN SIGN VALUE with one of the signs "
            f"{' '.join(_SIGNS)}, got {text!r}"
        )
    name, sign, written = found.groups()
    if name not in columns:
        raise ParameterError(
            f"where must name one of the columns {', '.join(columns)}, got {name!r}"
        )
    value = _value(written, columns[name], f"where {text!r}")
    if isinstance(value, (str, bool)) and sign not in _EQUAL:
        must = f"compare {name!r} of type {columns[name]} by == or !="
        raise ParameterError(f"where must {must}, got {text!r}")
    compare = _SIGNS[sign]
    return lambda rows: compare(rows[name], value)


def key_of(text: str, kind: str, column: str) -> Any:
    """Reads a public key of a column of this type.

    Raises:
        ParameterError: it is none of this type, or the type does not name groups.
    """
    if not kind.startswith(("int", "uint", "string", "boolean")):
        must = "name a column of integers, texts or truth values"
        raise ParameterError(f"column must {must}, got {column!r} of type {kind}")
    return _value(text, kind, f"key {text!r}")


def _value(text: str, kind: str, what: str) -> Any:
    """Reads a value of a column's type; a text may stand in quotes.

    Raises:
        ParameterError: it is none of this type.
    """
    if kind.startswith("string"):
        quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "'\""
        return text[1:-1] if quoted else text
    readers: tuple[tuple[str, Callable[[str], Any]], ...] = (
        ("int", int),
        ("uint", int),
        ("float", _finite),
        ("decimal", _finite),
        ("boolean", {"true": True, "false": False}.__getitem__),
        ("date", datetime.date.fromisoformat),
        ("timestamp", datetime.datetime.fromisoformat),
    )
    for start, read in readers:
        if kind.startswith(start):
            try:
                return read(text)
            except (ValueError, KeyError):
                # an integer is compared with a number that is none: passengers > 1.5
                if read is int and what.startswith("where"):
                    return _value(text, "float64", what)
                raise ParameterError(f"{what} must have a value of type {kind}") from None
    raise ParameterError(f"{what} must be about a type that can be typed in, got {kind}")


def _finite(text: str) -> float:
    """Reads a finite number."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
