"""Coins that anybody can throw again: an order of canaries that knows nothing of their labels.

They decide between equal scores, and which half of the data chooses a threshold. They are no
noise: no privacy depends on them, and the same seed gives the same audit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.validate import count

IntArray = NDArray[np.int64]

# Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators": SplitMix64
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def coins(n: int, seed: int) -> NDArray[np.uint64]:
    """Returns (n,) integers of 64 bits, which a seed decides."""
    start = np.uint64((count(seed=seed) * _FIRST) % 2**64)
    x = start + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_FIRST)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_SECOND)
    return np.asarray(x ^ (x >> np.uint64(31)))


def shuffled(n: int, seed: int) -> IntArray:
    """Returns the numbers 0 ... n - 1 in an order that a seed decides."""
    return np.argsort(coins(n, seed), kind="stable")


def halved(n: int, seed: int) -> NDArray[np.bool_]:
    """Returns (n,) bools, half of them True, of places that a seed decides."""
    first = np.zeros(n, dtype=bool)
    first[shuffled(n, seed + 1)[: n // 2]] = True
    return first


def ranked(scores: FloatArray, seed: int) -> IntArray:
    """Returns the places of scores from the highest to the lowest; coins decide between equals."""
    return np.lexsort((coins(scores.size, seed), -scores))
