"""The paper's test, in plain doubles: what r guesses, of which v are right, say of one run."""

from __future__ import annotations

import math

import numpy as np
from papers.steinke_2023.ideal import LEVEL, Guesses

__all__ = ["MOVES", "least_epsilon", "p_value"]

MOVES = 1e-5  # of a lower bound that a bisection has found


def p_value(seen: Guesses, epsilon: float, delta: float) -> float:
    """Computes the paper's bound of the probability of so many right guesses.

    With W = Bin(r, e^eps / (1 + e^eps)) and beta = Pr[W >= v], it is beta + 2 m delta times the
    largest (Pr[W >= v - i] - beta) / i for i = 1, ..., v.
    """
    if seen.right == 0:
        return 1.0
    r, k = seen.made, np.arange(seen.made + 1)
    # log Pr[W = k], by quotients of neighbours
    ways = np.concatenate([[0.0], np.cumsum(np.log((r - k[:-1]) / (k[:-1] + 1)))])
    log = ways + k * epsilon - r * (epsilon + math.log1p(math.exp(-epsilon)))
    tails = np.cumsum(np.exp(log)[::-1])[::-1]  # Pr[W >= k]
    beta, i = float(tails[seen.right]), np.arange(1, seen.right + 1)
    steepest = float(np.max((tails[seen.right - i] - beta) / i))
    return min(1.0, beta + 2 * seen.canaries * delta * steepest)


def least_epsilon(seen: Guesses, delta: float) -> float:
    """Finds the largest epsilon that the paper's test refutes at 95 %, or 0."""
    low, high = 0.0, 20.0
    if p_value(seen, low, delta) > LEVEL:
        return 0.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(seen, middle, delta) <= LEVEL else (low, middle)
    return low
