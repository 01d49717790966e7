"""Searches on a line: for the place where a monotone test changes, and for a least value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tightbudget.numerics.rounding import next_up

__all__ = ["Change", "last_true", "least_between"]


@dataclass(frozen=True)
class Change:
    """Two numbers between which a test changes.

    ``test(last_true)`` was evaluated and holds, or ``last_true`` is 0; ``test(first_false)`` was
    evaluated and fails, or ``first_false`` is the limit of the search.
    """

    last_true: float
    first_false: float


def last_true(
    test: Callable[[float], bool], guess: float, top: float, tolerance: float = 1e-13
) -> Change:
    """Finds two close numbers between which a monotone test of x >= 0 turns from true to false.

    Args:
        test: the test; it fails at ``top`` (when top is finite).
        guess: where to begin.
        top: the search never goes above; inf if there is no such limit.
        tolerance: how close the two numbers come, relative.

    Guarantee: the test was evaluated at both numbers, but for last_true = 0 and for
    first_false = top or inf.
    """
    if not test(0.0):
        return Change(0.0, 0.0)
    low, high = 0.0, math.inf
    x = min(max(guess, 1e-300), top if math.isfinite(top) else 1e300)
    # The step grows eightfold each time: a guess that is right to 1e-9 is bracketed by two
    # evaluations, one that is wrong by its whole size by about ten. Beyond 1e300 the answer counts
    # as inf, below 1e-290 as 0: there a relative tolerance means nothing.
    step = max(1e-9 * x, 1e-300)
    while math.isinf(high) or low == 0.0:
        if x < top and test(x):
            low = x
            if math.isfinite(high):
                break
            x = min(x + step, top)
            if x > 1e300:
                return Change(low, math.inf)
        else:
            high = min(x, top)
            if low > 0.0 or x <= 1e-290:
                break
            x = x - step if x - step > 0 else x / 1e6
        step *= 8.0
    while high - low > tolerance * high:
        x = 0.5 * (low + high)
        if not low < x < high:
            break
        if test(x):
            low = x
        else:
            high = x
    return Change(low, high if high > low else next_up(low))


def least_between(
    f: Callable[[float], float], low: float, high: float, tolerance: float
) -> tuple[float, float]:
    """Searches for the least value of ``f`` between two points by golden section.

    A heuristic: the value is the least of all if f falls, then grows. It ends when the place is
    known within ``tolerance``. ``f`` may be inf.

    Returns:
        The least value that was seen, and its place.
    """
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    a, b = high - golden * (high - low), low + golden * (high - low)
    at_a, at_b = f(a), f(b)
    best = min((at_a, a), (at_b, b))
    while high - low > tolerance:
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - golden * (high - low)
            at_a = f(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + golden * (high - low)
            at_b = f(b)
        best = min(best, (at_a, a), (at_b, b))
    return best
