"""Checks of what an audit is given: labels, scores, guesses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tightbudget.errors import ParameterError
from tightbudget.numerics.rounding import FloatArray, sub_down
from tightbudget.numerics.validate import open_probability, real_array, refuse

Labels = NDArray[np.bool_]

FEWEST = 10  # with fewer canaries no test at 95 % says anything of an epsilon above 2
_MOST_MEASURED = 10_000_000  # each of them gets a coin


def level_of(confidence: float) -> float:
    """The probability that an audit may be wrong with, rounded down, of a checked confidence."""
    return sub_down(1.0, open_probability(confidence=confidence))


def scores_of(scores: Any) -> FloatArray:
    """Accepts a list of ten or more numbers, one a canary; infinite ones are allowed."""
    numbers = real_array(scores)
    if numbers is None or numbers.ndim != 1:
        raise refuse("scores", "be a list of numbers, one a canary", scores)
    array = np.asarray(numbers, dtype=np.float64)
    _enough(array.size)
    bad = np.isnan(array)
    if bad.any():
        raise refuse(f"scores[{int(np.argmax(bad))}]", "be a number", math.nan)
    return array


def labels_of(included: Any, canaries: int) -> Labels:
    """Accepts a list of zeros and ones, or of bools, one a canary, and not all alike."""
    array = np.asarray(included)
    if array.ndim != 1 or array.dtype.kind not in "buif":
        raise refuse("included", "be a list of 0 and 1, one a canary", included)
    if array.size != canaries:
        raise ParameterError(
            f"included must say of each canary if it was in, got {array.size} for {canaries}"
        )
    bad = (array != 0) & (array != 1)
    if bad.any():
        i = int(np.argmax(bad))
        raise refuse(f"included[{i}]", "be 0 or 1", array[i].item())
    labels = np.asarray(array == 1)
    if labels.all() or not labels.any():
        said = "in" if labels.any() else "out"
        raise ParameterError(
            f"included must have both 0 and 1, got {canaries} canaries that are all {said}: "
            "a coin decides for each"
        )
    return labels


def guesses_of(guesses: Any) -> FloatArray:
    """Accepts a list of 1 (in), 0 (out) and None or nan (no guess), one a canary.

    Returns:
        (n,) 1, 0 and nan.
    """
    must = "be a list of 1 (in), 0 (out) and None (no guess), one a canary"
    try:
        listed = [math.nan if x is None else x for x in guesses]
        array = np.asarray(listed)
    except (TypeError, ValueError):
        raise refuse("guesses", must, guesses) from None
    if array.ndim != 1 or array.dtype.kind not in "buif":
        raise refuse("guesses", must, guesses)
    _enough(array.size)
    array = array.astype(np.float64)
    bad = ~((array == 0) | (array == 1) | np.isnan(array))
    if bad.any():
        i = int(np.argmax(bad))
        raise refuse(f"guesses[{i}]", "be 1, 0 or None", array[i].item())
    if np.isnan(array).all():
        raise ParameterError("guesses must have some 1 or 0, got None for all canaries")
    return array


def _enough(canaries: int) -> None:
    if canaries < FEWEST:
        raise ParameterError(f"an audit needs ten canaries or more, got {canaries}")


def counts_of(**given: Any) -> NDArray[np.int64]:
    """Accepts ten or more outcomes that were counted: a list of integers >= 0, two or more."""
    ((name, value),) = given.items()
    array = np.asarray(value)
    if array.ndim != 1 or array.size < 2 or array.dtype.kind not in "ui":
        raise refuse(name, "be a list of two integers >= 0 or more, one an outcome", value)
    bad = array < 0
    if bad.any():
        i = int(np.argmax(bad))
        raise refuse(f"{name}[{i}]", "be an integer >= 0", array[i].item())
    total = sum(map(int, array.tolist()))
    if not FEWEST <= total <= _MOST_MEASURED:
        raise refuse(f"sum({name})", "be in 10 ... 10,000,000", total)
    return array.astype(np.int64)
