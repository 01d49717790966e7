"""Conditions on rows as a person types them: ``fare > 10``, one column, one sign and one value."""

from __future__ import annotations

import datetime
import importlib
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from tightbudget import ParameterError

_SIGNS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_FORM = re.compile(r"\s*([^=!<>]*[^=!<>\s])\s*(==|!=|<=|>=|<|>)\s*([^=!<>].*?|)\s*", re.DOTALL)
# A text in quotes, in which the same quote is written twice.
_QUOTED = """'(?:[^']|'')*'|"(?:[^"]|"")*\""""
_TEXT = re.compile(_QUOTED, re.DOTALL)
# One of the keys, up to the comma behind it or the end.
_KEY = re.compile(rf"\s*(?P<key>{_QUOTED}|(?!['\"])[^,]*?)\s*(?P<end>,|\Z)", re.DOTALL)
# What looks like a second condition.
_MORE = re.compile(r"[=!<>]|\b(?:and|or)\b", re.IGNORECASE)
_ONE = (
    "must be one condition: give --where again for another one, which must hold, too; a text that "
    "has such words or signs stands in quotes, and a quote in it is written twice: 'it''s a or b'"
)
# Engines order texts in different ways, so that texts are compared for equality alone.
_EQUAL = ("==", "!=")


def condition(text: str, columns: Mapping[str, str]) -> Callable[[Any], Any]:
    """Reads one condition, and returns it as a rule on the rows of a table.

    A row whose value is missing does not count, whatever the sign.

    Args:
        text: a column, one of the signs == != < <= > >=, and a value; a text may stand in quotes,
            and a quote in it is then written twice.
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
    if type(value) is int and not -(2**63) <= value < 2**63:
        if columns[name] != "uint64" or not 0 <= value < 2**64:
            raise ParameterError(f"where {text!r} must have a value of type {columns[name]}")
        value = importlib.import_module("ibis").literal(value, "uint64")
    return lambda rows: compare(rows[name], value)


def keys_of(text: str, kind: str, column: str) -> list[Any]:
    """Reads public keys of a column of this type, with commas between them.

    A key that has a comma, or blanks at its ends, stands in quotes.

    Raises:
        ParameterError: a key is none of this type, a quote is not closed, or the type does not
            name groups.
    """
    if not kind.startswith(("int", "uint", "string", "boolean")):
        must = "name a column of integers, texts or truth values"
        raise ParameterError(f"column must {must}, got {column!r} of type {kind}")
    keys, rest = [], text.strip()
    while True:
        found = _KEY.match(rest)
        if found is None:
            raise ParameterError(
                "keys must have commas between them, and a key with a comma or a quote at its "
                f"beginning must stand in quotes, say a,'b, c','d''s': got {text!r}, at {rest!r}"
            )
        if not found["key"]:
            raise ParameterError(
                f"keys must not be empty, got {text!r}: write '' for an empty text"
            )
        keys.append(_value(found["key"], kind, f"key {found['key']!r}"))
        if not found["end"]:
            return keys
        rest = rest[found.end() :]


def _value(text: str, kind: str, what: str) -> Any:
    """Reads a value of a column's type; a text may stand in quotes.

    Raises:
        ParameterError: it is none of this type.
    """
    if kind.startswith("string"):
        if text[:1] not in ("'", '"'):
            if what.startswith("where") and _MORE.search(text):
                raise ParameterError(f"{what} {_ONE}")
            return text
        if _TEXT.fullmatch(text) is None:
            raise ParameterError(f"{what} {_ONE}")
        return text[1:-1].replace(text[0] * 2, text[0])
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
