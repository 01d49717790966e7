"""Estimates how many trials a test needs to see a program with half the noise of its claim."""

from __future__ import annotations

import math
from collections.abc import Callable

from tightbudget.numerics.bounds import Estimate

_MOST = 10_000_000  # trials; an answer beyond is inf
_CLOSE = 1.05  # of an answer: how close it is to the least number that shows


def least_shown(shows: Callable[[int], bool], first: int, mu: float, trials: str) -> Estimate:
    """Estimates the least number of trials that shows half the noise, with a power of a half.

    Args:
        shows: whether so many trials, each with its mean outcome, refute the claim.
        first: where the search begins.
        mu: of a Gaussian mechanism like the claim; at 0 no number shows anything.
        trials: what they are called.
    """
    method = f"{trials} of Gaussian scores at half the noise, a power of about a half"
    if mu == 0.0:
        return Estimate(math.inf, method)
    high = first
    while not shows(high):
        high *= 2
        if high > _MOST:
            return Estimate(math.inf, method)
    low = high // 2
    while high > max(_CLOSE * low, low + 1):
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle, high)
    return Estimate(high, method)
