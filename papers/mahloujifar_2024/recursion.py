"""The paper's test of a Gaussian trade-off curve, in plain doubles."""

from __future__ import annotations

from statistics import NormalDist

from papers.steinke_2023.ideal import LEVEL, Guesses

__all__ = ["MOVES", "least_mu", "p_value", "refuted"]

MOVES = 1e-5  # of what a bisection has found
_NORMAL = NormalDist()


def refuted(seen: Guesses, mu: float, level: float) -> bool:
    """Says whether the recursion refutes the curve of mu at a level.

    r = level c / m, h = level (c' - c) / m, and for i = c - 1, ..., 0: h' = max(h, Phi(Phi^-1(r) -
    mu)), r = min(1, r + i / (c' - i) (h' - h)), h = h'; it is refuted if r + h > c' / m.
    """
    m, made, right = seen.canaries, seen.made, seen.right
    r, h = level * right / m, level * (made - right) / m
    for i in range(right - 1, -1, -1):
        following = h
        if 0.0 < r < 1.0:
            following = max(h, _NORMAL.cdf(_NORMAL.inv_cdf(r) - mu))
        r, h = min(1.0, r + i / (made - i) * (following - h)), following
    return r + h > made / m


def p_value(seen: Guesses, mu: float) -> float:
    """Finds the least level at which the recursion refutes the curve, to 0.1 %; at most 1."""
    low, high = 1e-9, 0.999
    if not refuted(seen, mu, high):
        return 1.0
    while high > 1.001 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if refuted(seen, mu, middle) else (middle, high)
    return high


def least_mu(seen: Guesses) -> float:
    """Finds the largest mu that the recursion refutes at 95 %, or 0."""
    low, high = 0.0, 10.0
    while high - low > 1e-8:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(seen, middle, LEVEL) else (low, middle)
    return low
