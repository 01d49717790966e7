"""Values as a person types them: numbers, quotients, and other TOML values."""

from __future__ import annotations

import contextlib
import tomllib
from decimal import Decimal
from typing import Any

from tightbudget.numerics.validate import nearest, quotient_of, writes_number


def value_of(text: Any) -> Any:
    """Reads what a person typed: a number, another TOML value, or else the text itself.

    A number has the digits 0 to 9, a point and an exponent: no underscores, no blanks around. One
    with an exponent that is an integer below 2^53, such as 1e3, is that integer. A quotient of two
    integers, such as 256/60000, is the double nearest to it. A text that is no number, where one
    is needed, is refused by the mechanism, by name and value.
    """
    if not isinstance(text, str):
        return text  # a default
    for read in (int, _number) if writes_number(text) else ():
        with contextlib.suppress(ValueError):
            return read(text)
    quotient = quotient_of(text)
    if quotient is not None:
        return nearest(quotient)
    try:
        value = _toml(text)
    except (ValueError, RecursionError):
        return text
    # a number that only TOML writes so (1_000, 0x10, blanks around) is none here
    return text if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _number(text: str) -> float:
    """Reads a number that is not written as an integer: an int if it has an exponent and is one.

    What is written decides, not the double nearest to it: 1e-400 is no 0, and 0.99999999999999999e0
    is no 1.
    """
    value = float(text)
    if "e" not in text.lower() or not value.is_integer() or abs(value) >= 2**53:
        return value
    with contextlib.suppress(ArithmeticError):  # an exponent beyond those of decimals
        if Decimal(text) == int(value):  # guard: whole-as-written
            return int(value)
    return value


def _toml(text: str) -> Any:
    """Reads the one TOML value that a text is.

    Raises:
        ValueError: the text is no TOML value, or more than one.
    """
    content = tomllib.loads(f"value = {text}")
    if len(content) > 1:
        raise ValueError("more than a value")
    return content["value"]
