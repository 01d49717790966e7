"""Which private values count as numbers: decided for each by itself, and never by raising."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

__all__ = ["FAILURES", "double", "listed", "number"]

# what code that sees private values may raise; an interrupt comes from a person, and passes
FAILURES = (Exception, SystemExit, GeneratorExit)

_NUMBERS = (int, float, Fraction, Decimal, np.integer, np.floating, np.bool_)
_DIGITS = 400  # the largest double has 309


def number(value: Any) -> int | Fraction | float | None:
    """The exact value of a number, +-inf, or None for everything that is no number.

    NaN, None, texts (also "7"), complex numbers, dates and lists are no numbers; truth values are
    0 and 1. Nothing is raised and nothing is warned of, whatever the value is: both would be seen.
    """
    try:
        return _exact(value)
    except FAILURES:
        return None


def _exact(value: Any) -> int | Fraction | float | None:
    if not isinstance(value, _NUMBERS):
        array = np.asarray(value)
        if array.ndim or array.dtype.kind not in "biuf":
            return None
        value = array[()]
    if isinstance(value, (int, np.integer, np.bool_)):
        return int(value)
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) > _DIGITS:
        value = float(value)  # 0 or infinite: as a ratio it may not fit into memory
    try:
        return Fraction(*value.as_integer_ratio())
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def listed(values: Any) -> list[Any] | None:
    """The entries of a plain sequence; None for a text, an array, or one thing alone.

    A sequence that declares no type has none: NumPy's guess at it can depend on one entry.
    """
    try:
        if isinstance(values, (list, tuple, deque)):
            return list(values)
        typed = isinstance(values, (str, bytes)) or hasattr(values, "__array__")
        return list(values) if isinstance(values, Sequence) and not typed else None
    except FAILURES:
        return None


def double(value: Any) -> float:
    """The double nearest to a number, +-inf beyond the largest one; NaN for what is no number."""
    known = number(value)
    try:
        return math.nan if known is None else float(known)
    except OverflowError:
        return math.inf if known is not None and known > 0 else -math.inf
