"""What a sparse vector finds, in expectation: all that can come out, weighed with its chance.

Nothing is sampled. Given the noise on the threshold, entries are independent of each other, so
the chance of (entries found, budget spent) follows entry by entry. The noise on the threshold
is summed over up to 30 of its scales; what is beyond has a chance of e^-30.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tightbudget as tb

__all__ = ["EPSILON", "SIZE", "THRESHOLD", "Found", "chebyshev", "noise_on_values"]

Array = NDArray[np.float64]

SIZE, THRESHOLD = 100, 500  # entries of the vector, and from where on they are released
EPSILON = 0.5  # for the values, as for the search
_POINTS = 200  # on each side, of the noise on the threshold


@dataclass(frozen=True)
class Found:
    """The chances of what a search finds.

    Attributes:
        search: the sparse vector.
        chances: by entries found and by what was spent (the cell), both from 0 on.
    """

    search: tb.release.SparseVector
    chances: Array

    @staticmethod
    def of(search: tb.release.SparseVector, large: int, value: int) -> Found:
        """For a vector of so many entries of this value, and then zeros."""
        stride = math.ceil(30 * search.threshold_scale / _POINTS)
        rho = np.arange(-_POINTS, _POINTS + 1) * stride
        # all noise between two of these points is put onto the nearer one
        edge = rho - stride // 2
        weights = _at_least(edge, search.threshold_scale) - _at_least(
            edge + stride, search.threshold_scale
        )
        state = np.zeros((rho.size, search.units + 1, search.units + 1))
        state[:, 0, 0] = weights / weights.sum()
        for i in range(SIZE):
            ahead = (value if i < large else 0) - THRESHOLD - rho
            state = _looked(search, state, ahead)
        return Found(search, state.sum(axis=0))

    def expected(self, what: Callable[[int, int], float]) -> float:
        """Of something that depends on the entries found and the cell, where any were found."""
        n, k = np.nonzero(self.chances[1:])
        found = [what(int(i) + 1, int(j)) for i, j in zip(n, k, strict=True)]
        return float(self.chances[1:][n, k] @ np.array(found) / self.chances[1:].sum())


def noise_on_values(search: tb.release.SparseVector, entries: int, cell: int) -> float:
    """The scale of the noise on each value: what the search did not spend goes to the values."""
    prices = search.guarantee
    return entries / (EPSILON + float(prices.sup - prices.price(cell)))


def chebyshev(search: tb.release.SparseVector, large: int) -> float:
    """An upper bound on the expected scale, by Chebyshev's inequality for each small entry.

    The scale is convex in the number found, so it is below the chord from what there is to find
    to what can be found at most.
    """
    variance = 2 * float(search.threshold_scale**2 + search.scale**2)
    false = (SIZE - large) * variance / THRESHOLD**2
    least, most = (noise_on_values(search, n, n) for n in (large, search.units))
    if large == search.units:
        return most
    return least + (most - least) * min(1.0, false / (search.units - large))


def _looked(search: tb.release.SparseVector, state: Array, ahead: Any) -> Array:
    """After one more entry, which is this far ahead of the noisy threshold."""
    second = _at_least(-ahead, search.scale)[:, None, None]
    after = np.zeros_like(state)
    dear = 2 if search.adaptive else 1
    going = state.copy()
    going[:, :, search.units - dear + 1 :] = 0  # the others have found what they may
    if search.adaptive:
        first = _at_least(search.margin - ahead, 2 * search.scale)[:, None, None]
        after[:, 1:, 1:] += (going * first)[:, :-1, :-1]
        going, done = going * (1 - first), state - going
    else:
        done = state - going
    after[:, 1:, dear:] += (going * second)[:, :-1, :-dear]
    return np.asarray(after + going * (1 - second) + done)


def _at_least(k: Any, scale: Any) -> Array:
    """The chance that discrete Laplace noise is at least the integer k."""
    a = math.exp(-1 / float(scale))
    return np.asarray(np.where(k > 0, a ** np.abs(k) / (1 + a), 1 - a ** (1 + np.abs(k)) / (1 + a)))
