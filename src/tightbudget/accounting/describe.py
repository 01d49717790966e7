"""Mechanisms as plain tables: the common ground of JSON, plan files and the command line."""

from __future__ import annotations

import contextlib
import tomllib
from typing import TYPE_CHECKING, Any, get_type_hints

from tightbudget.mechanisms import MECHANISMS
from tightbudget.numerics.validate import writes_number

if TYPE_CHECKING:
    from tightbudget.mechanisms.composition import Composition

__all__ = ["in_words", "search_of", "value_of"]

_SHOWN = 5  # steps of a plan that are listed


def value_of(text: Any) -> Any:
    """What a person typed, as in a plan file: a number, any other TOML value, or else the text.

    A number has the digits 0 to 9, a point and an exponent: no underscores, no blanks around.
    What is no number, where one is needed, is refused by the mechanism, by name and value.
    """
    if not isinstance(text, str):
        return text  # a default
    for read in (int, float) if writes_number(text) else ():
        with contextlib.suppress(ValueError):
            return read(text)
    try:
        value = _toml(text)
    except (ValueError, RecursionError):
        return text
    # a number that only TOML writes so (1_000, 0x10, blanks around) is none here
    return text if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _toml(text: str) -> Any:
    content = tomllib.loads(f"value = {text}")
    if len(content) > 1:
        raise ValueError("more than a value")
    return content["value"]


def search_of(kind: str, name: str) -> dict[str, Any]:
    """How :func:`tightbudget.calibrate` looks for a parameter: ``integer`` and ``between``."""
    return {
        "integer": name in ("steps", "times") or get_type_hints(MECHANISMS[kind]).get(name) is int,
        "between": (1e-6, 1.0) if name == "rate" else None,
    }


# -------------------------------------------------------------------------- in words


def in_words(composition: Composition) -> str:
    """The steps as lines for a person: ``gaussian sigma=1.0 rate=0.01, 1000 times``."""
    lines = []
    for mechanism, times in composition.parts[:_SHOWN]:
        lines.append(f"{_words(mechanism.to_dict())}, {times} time{'s' * (times != 1)}")
    if len(composition.parts) > _SHOWN:
        lines.append(f"and {len(composition.parts) - _SHOWN} more, {composition.runs} times in all")
    return "\n".join(lines) or "nothing"


def _words(table: dict[str, Any]) -> str:
    kind, *rest = table.items()
    return " ".join([str(kind[1]), *(f"{name}={_word(value)}" for name, value in rest)])


def _word(value: Any) -> str:
    if isinstance(value, dict) and "mechanism" in value:
        return f"({_words(value)})"
    if isinstance(value, (tuple, list)) and len(value) > 4:
        return f"({len(value)} values)"
    return str(value)
