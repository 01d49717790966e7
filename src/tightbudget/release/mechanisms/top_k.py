"""Names the largest entries of a vector, and pays for each entry that is named.

Every entry gets noise, and so does a least value below which no entry is named. The entries that
come before the least value are named, in their order, at most k. Let the sensitivity be D. For
neighbours, move the noise of each entry named so that its noisy value grows by D, a move of at
most 2 D. Then the entries named stay in order, and the others, which gain at most D, stay behind.
If fewer than k are named, the least value has to stay before the others, too: it moves by D.
If all entries move in one direction (monotone), moves of at most D are enough: where entries
fall, the noise of each entry named makes up for its loss; where they rise, it adds D minus the
gain.
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


@plain_numbers
@dataclass(frozen=True)
class TopK(MechanismOnData[Any, tuple[int, ...]]):
    """Names at most k entries of a vector, the largest first, if they are worth naming.

    The value of a release is the tuple of the indices named; its cell is their number.

    Guarantee: delta = 0; the cell is the number n of entries named. n = k costs epsilon, each
    entry e = epsilon / k; fewer cost n e + e/2, or (n + 1) e if the entries are monotone.
    Source: Durfee, Rogers 2019 (pay what you get; here the entries are known, the least value
    is one that the analyst chose, and the noise is discrete Laplace, so that delta = 0).

    Args:
        vector_query: from the data to a vector of integers (other numbers are rounded down);
            with a step, of real numbers.
        size: the number of entries of the vector.
        k: in [1, size], the largest number of entries that are named.
        epsilon: > 0, nats, the worst-case price.
        least: the value that an entry must have to be named; it must not depend on the data.
        sensitivity: > 0, how far each entry can move between neighbouring data sets. The caller
            says by this number which data sets are neighbours.
        monotone: whether all entries move in one direction between neighbours, as counts do when
            neighbours have one record more or less.
        step: of the grid on which entries are compared, a power of two; None for integers.
        bounds: (low, high): entries beyond are moved there, and an entry that is no number
            counts as low, as does every entry of a query that raises. A query that can fail needs
            them: each entry has the sensitivity high - low, whatever it does. Without bounds an
            entry that is no number counts as 0.

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
        """The output cells 0, 1, ..., k: the price of each number of entries named."""
        each, end = self._each, self._each / self._moves
        cells = {n: n * each + end for n in range(self.k)} | {self.k: self.k * each}
        return OutputDP(cells)

    @cached_property
    def scale(self) -> Fraction:
        """The scale of the noise, in points of the grid."""
        return self._moves * self._grid.sensitivity(self.sensitivity) / self._each

    @cached_property
    def _grid(self) -> AnswerGrid:
        """The grid that entries are compared on."""
        return AnswerGrid(self.step, self.bounds)

    @property
    def _each(self) -> Fraction:
        """The price of each entry that is named."""
        return exact_positive(epsilon=self.epsilon) / self.k

    @property
    def _moves(self) -> int:
        """The number of sensitivities by which the noise of a named entry has to move."""
        return 1 if self.monotone else 2

    @cached_property
    def _least(self) -> int:
        """The least value as a point of the grid."""
        return self._grid.public(least=self.least)

    def _run(self, data: Any, noise: Noise) -> tuple[tuple[int, ...], Cell]:
        values = answered(lambda: self.vector_query(data))
        entries = self._grid.points(values, self.size)
        named = self._named(entries, noise.laplace(self.scale, self.size + 1))
        return named, len(named)

    def _named(self, entries: IntArray, noise: IntArray) -> tuple[int, ...]:
        """Names entries of which points and noise are given; ties are broken by the index."""
        # entries are within 2^52, so no sum leaves int64. At the largest scale, noise beyond 2^61
        # has a probability below e^-(2^21), which is as negligible as OpenDP's own cut at 2^63.
        noisy = np.append(entries, self._least) + np.clip(noise, -(2**61), 2**61)
        order = np.argsort(-noisy, kind="stable")
        ahead = int(np.flatnonzero(order == self.size)[0])
        return tuple(order[: min(self.k, ahead)].tolist())  # guard: top-k-cut-off
