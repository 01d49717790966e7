"""Searches on a line: where a monotone test changes, where a function is zero or least."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tightbudget.numerics.rounding import next_up
from tightbudget.numerics.validate import refuse


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


def root_between(
    f: Callable[[float], float], low: float, high: float, xtol: float, rtol: float = 2.0**-50
) -> float:
    """A place between low and high where f is about zero, by Brent's method.

    A heuristic for smooth functions; any function that changes its sign between low and high
    is answered, after bisections at worst. The package searches here instead of in
    scipy.optimize, which would take longer to import than all of scipy that is needed.

    Args:
        f: the function; f(low) and f(high) have different signs, or one of them is zero.
        low: one end.
        high: the other end; it may be the smaller one.
        xtol: how near a change of sign is to be, absolute.
        rtol: how near a change of sign is to be, relative; both tolerances add up.

    Raises:
        ParameterError: f has the same sign at both ends.

    Source: Brent 1973, Algorithms for Minimization without Derivatives, chapter 4; the steps
    and the test at the end are those of scipy.optimize.brentq, so that answers are the same.
    """
    before, now = low, high
    f_before, f_now = float(f(before)), float(f(now))
    if f_before == 0.0 or f_now == 0.0:
        return before if f_before == 0.0 else now
    if (f_before < 0.0) == (f_now < 0.0):
        raise refuse("f", f"change its sign between {low} and {high}", (f_before, f_now))
    across, f_across = before, f_before  # f has the other sign here than at `now`
    step = last_step = now - before
    while True:
        if (f_before < 0.0) != (f_now < 0.0):
            across, f_across = before, f_before
            step = last_step = now - before
        if abs(f_across) < abs(f_now):
            before, now, across = now, across, now
            f_before, f_now, f_across = f_now, f_across, f_now
        near = (xtol + rtol * abs(now)) / 2.0
        half = (across - now) / 2.0
        if f_now == 0.0 or abs(half) < near:
            return now
        guess = math.inf
        if abs(last_step) > near and abs(f_now) < abs(f_before):
            guess = _interpolated((before, f_before), (now, f_now), (across, f_across))
        # a guess that does not shrink the steps is not believed; nan fails the test, too
        if 2.0 * abs(guess) < min(abs(last_step), 3.0 * abs(half) - near):
            last_step, step = step, guess
        else:
            last_step = step = half
        before, f_before = now, f_now
        now += step if abs(step) > near else math.copysign(near, half)
        f_now = float(f(now))


def _interpolated(
    before: tuple[float, float], now: tuple[float, float], across: tuple[float, float]
) -> float:
    """The step from ``now`` to the root of a curve through three points (x, f(x)).

    The curve is a line where two of the points are one, otherwise an inverse parabola. The
    step is inf where the curve has no root.
    """
    (a, f_a), (b, f_b), (c, f_c) = before, now, across
    if a == c:
        return -f_b * (b - a) / (f_b - f_a) if f_a != f_b else math.inf
    slope_a, slope_c = (f_a - f_b) / (a - b), (f_c - f_b) / (c - b)
    scale = slope_c * slope_a * (f_c - f_a)
    return -f_b * (f_c * slope_c - f_a * slope_a) / scale if scale else math.inf
