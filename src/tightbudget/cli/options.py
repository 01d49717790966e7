"""What options share: how values are read, and the options of several commands."""

from __future__ import annotations

import tomllib
from typing import Annotated, Any

import typer

__all__ = ["AsJson", "Rtol", "number", "value_of"]


def value_of(text: Any) -> Any:
    """A number, any other TOML value, or else the text itself.

    What is no number, where one is needed, is refused by the library, by name and value.
    """
    if not isinstance(text, str):
        return text  # an option's default
    for read in (int, float, _toml):
        try:
            return read(text)
        except (ValueError, RecursionError):
            continue
    return text


def _toml(text: str) -> Any:
    content = tomllib.loads(f"value = {text}")
    if len(content) > 1:
        raise ValueError("more than a value")
    return content["value"]


def number(help: str, **more: Any) -> Any:
    """A typer option for a number."""
    return typer.Option(help=help, parser=value_of, metavar="NUMBER", **more)


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, with exact doubles.")]
Rtol = Annotated[float, number("Wanted relative gap, (upper - lower) / upper.")]
