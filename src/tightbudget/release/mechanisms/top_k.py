"""The largest entries of a vector, paid by how many there are.

Every entry gets noise, and so does a least value below which nothing is worth naming. The
entries that come before it are answered, in their order, at most k. Let the sensitivity be D.
For neighbours, move the noise of each entry named so that it ends at what it had been plus D,
a move of at most 2 D. Then the entries named stay in order, and the others, which gain at most
D, stay behind. If fewer than k are named, the least value has to stay before the others, too:
it moves by D. If all entries move the same way (monotone), either nothing has to move but by
what it lost, at most D, or the move ends at plus D from a gain, at most D as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from tightbudget.numerics.validate import plain_numbers, positive_count, refuse
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.noise.grid import AnswerGrid
from tightbudget.release.noise.noise import IntArray, Noise, scale_up
from tightbudget.release.release import answered

__all__ = ["TopK"]


@plain_numbers
@dataclass(frozen=True)
class TopK(MechanismOnData[tuple[int, ...]]):
    """Names at most k entries of a vector, the largest first, if they are worth naming.

    Guarantee: delta = 0; the cell is the number n of entries named. n = k costs epsilon, each
    entry e = epsilon / k; fewer cost n e + e/2, or (n + 1) e if the entries are monotone.
    Source: Durfee, Rogers 2019 (pay what you get; here the entries are known, the least value
    is one that the analyst chose, and the noise is discrete Laplace, so that delta = 0).

    Args:
        vector_query: from the data to a vector of integers (other numbers are rounded down);
            with a step, of real numbers.
        size: how many entries the vector has.
        k: in [1, size], how many are named at most.
        epsilon: > 0, nats, what it costs at most.
        least: what an entry must be worth; it must not depend on the data.
        sensitivity: > 0, how far each entry can move between neighbouring data sets. What
            neighbouring means, the caller says by this number.
        monotone: between neighbours, all entries move in the same direction. It is so for
            counts, where neighbours have one record more or less.
        step: of the grid on which entries are compared, a power of two; None for integers.
        bounds: (low, high): entries beyond are moved there, and what is no number counts as
            low, as does every entry of a query that raises. A query that can fail needs them:
            each entry has the sensitivity high - low, whatever it does. Without bounds what is
            no number counts as 0.

    Raises:
        ParameterError: a parameter is refused.
    """

    vector_query: Callable[[Any], Any]
    size: int
    k: int
    epsilon: Price
    least: float
    sensitivity: Price = 1
    monotone: bool = False
    step: float | None = None
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if positive_count(k=self.k) > positive_count(size=self.size):
            raise refuse("k", f"be at most size = {self.size}", self.k)
        scale_up(self.scale)
        _ = self._least
        super().__post_init__()

    @cached_property
    def guarantee(self) -> OutputDP:
        """A price for each number of entries."""
        each, end = self._each, self._each / self._moves
        cells = {n: n * each + end for n in range(self.k)} | {self.k: self.k * each}
        return OutputDP(cells)

    @cached_property
    def scale(self) -> Fraction:
        """Of the noise, in points of the grid."""
        return self._moves * self._grid.sensitivity(self.sensitivity) / self._each

    @cached_property
    def _grid(self) -> AnswerGrid:
        return AnswerGrid(self.step, self.bounds)

    @property
    def _each(self) -> Fraction:
        """What each entry costs that is named."""
        return exact_positive(epsilon=self.epsilon) / self.k

    @property
    def _moves(self) -> int:
        """By how many sensitivities the noise of an entry named has to move."""
        return 1 if self.monotone else 2

    @cached_property
    def _least(self) -> int:
        return self._grid.public(least=self.least)

    def _run(self, data: Any, noise: Noise) -> tuple[tuple[int, ...], Cell]:
        values = answered(lambda: self.vector_query(data))
        entries = self._grid.points(values, self.size)
        named = self._named(entries, noise.laplace(self.scale, self.size + 1))
        return named, len(named)

    def _named(self, entries: IntArray, noise: IntArray) -> tuple[int, ...]:
        """The mechanism itself, on integers; ties by index."""
        # entries are within 2^52, so no sum leaves int64; noise beyond 2^61 has a probability
        # below e^-(2^21) at the largest scale, as noise has that OpenDP itself has cut off
        noisy = np.append(entries, self._least) + np.clip(noise, -(2**61), 2**61)
        order = np.argsort(-noisy, kind="stable")
        ahead = int(np.flatnonzero(order == self.size)[0])
        return tuple(order[: min(self.k, ahead)].tolist())
