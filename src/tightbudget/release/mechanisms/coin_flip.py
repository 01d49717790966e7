"""The smallest mechanism whose outputs differ in price: a coin decides if it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tightbudget.numerics.validate import plain_numbers
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.mechanisms.additive import LaplaceRelease, NoisyAnswer
from tightbudget.release.noise.noise import Noise
from tightbudget.release.release import answered


@plain_numbers
@dataclass(frozen=True)
class ToyRelease(MechanismOnData[Any, NoisyAnswer | None]):
    """Tosses a fair coin: a number with Laplace noise, or nothing, which is free.

    The value of a release is the noisy number, or None with the cell "nothing".

    Guarantee: cells {"number": epsilon, "nothing": 0}, delta = 0: the coin does not know the
    data, so "nothing" has the same probability for all of them.
    Source: Hartmann et al. 2022, section 3 (M_toy).

    Args:
        query: from the data to an integer (other numbers are rounded down); with a step, to
            any real number.
        sensitivity: > 0, how far the query can move between neighbouring data sets. The caller
            says by this number which data sets are neighbours.
        epsilon: > 0, nats.
        step: of the grid that answers lie on, a power of two; None for integers.
        bounds: as for :class:`LaplaceRelease`; a query that can fail needs them.

    Raises:
        ParameterError: a parameter is refused.
    """

    query: Callable[[Any], Any]
    sensitivity: Price
    epsilon: Price
    step: float | None = None
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _ = self._noisy
        super().__post_init__()

    @cached_property
    def _noisy(self) -> LaplaceRelease:
        """The mechanism that answers if the coin says so."""
        return LaplaceRelease(
            self.query, self.sensitivity, self.epsilon, step=self.step, bounds=self.bounds
        )

    @cached_property
    def guarantee(self) -> OutputDP:
        """The output cell "number" costs epsilon, and "nothing" is free."""
        return OutputDP({"number": self.epsilon, "nothing": 0})

    def _run(self, data: Any, noise: Noise) -> tuple[NoisyAnswer | None, Cell]:
        # the query is asked in any case: its side effects must not depend on the coin
        grid = self._noisy._grid
        point = grid.points(answered(lambda: self.query(data)), None)
        if not noise.coin():
            return None, "nothing"
        return grid.noisy(point, noise.laplace(self._noisy.scale, 1)).item(), "number"
