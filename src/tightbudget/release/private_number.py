"""Decides which private values count as numbers, each by itself, and never raises."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

# code that sees private values may raise any of these, and nobody may see it; a
# KeyboardInterrupt comes from a person, and passes
FAILURES = (Exception, SystemExit, GeneratorExit)

_NUMBERS = (int, float, Fraction, Decimal, np.integer, np.floating, np.bool_)
_DIGITS = 400  # the largest double has 309 digits before the point, the least one 324 behind it


def number(value: Any) -> int | Fraction | float | None:
    """Returns the exact value of a number, +-inf, or None for everything that is no number.

    NaN, None, texts (also "7"), complex numbers, dates and lists are no numbers; truth values are
    0 and 1. No value raises an error or a warning: the analyst would see either.
    """
    try:
        return _exact(value)
    except FAILURES:
        return None


def _exact(value: Any) -> int | Fraction | float | None:
    """Returns the exact value of a number, or None; it may raise for an odd type."""
    if not isinstance(value, _NUMBERS):
        array = np.asarray(value)
        if array.ndim or array.dtype.kind not in "biuf":
            return None
        value = array[()]
    if isinstance(value, (int, np.integer, np.bool_)):
        return int(value)
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) > _DIGITS:
        # the float is 0 or infinite; as a ratio, 10**(10**9) would not fit into memory
        value = float(value)
    try:
        return Fraction(*value.as_integer_ratio())
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def listed(values: Any) -> list[Any] | None:
    """Returns the entries of a plain sequence; None for a text, an array, or a single value.

    A plain sequence declares no type of its entries: NumPy's guess can depend on one entry.
    """
    try:
        if isinstance(values, (list, tuple, deque)):
            return list(values)
        typed = isinstance(values, (str, bytes)) or hasattr(values, "__array__")
        return list(values) if isinstance(values, Sequence) and not typed else None
    except FAILURES:
        return None


def double(value: Any) -> float:
    """Returns the double nearest to a number, +-inf beyond the largest; NaN for no number."""
    known = number(value)
    try:
        return math.nan if known is None else float(known)
    except OverflowError:
        return math.inf if known is not None and known > 0 else -math.inf
