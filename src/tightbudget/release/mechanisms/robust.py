"""What the robust statistics share: a column on a grid, and proposals about its order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from tightbudget.numerics.validate import plain_numbers, positive, refuse
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.columns import clamped, column
from tightbudget.release.mechanisms.order_statistics import Ordered
from tightbudget.release.mechanisms.propose_test_release import ProposeTestRelease
from tightbudget.release.meter import Meter
from tightbudget.release.noise.grid import Grid
from tightbudget.release.noise.noise import IntArray, Noise, OpenDPNoise
from tightbudget.release.release import Release, WhatIf, paid

__all__ = ["LIMIT", "RobustStatistic"]

LIMIT = 2**40  # grid points


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class RobustStatistic(ABC):
    """A statistic of one column: proposed, tested and released on integers.

    Each record becomes the nearest point of the grid, by itself: neighbouring columns stay
    neighbours, so what is proved for integers holds for the column, and the order statistics
    move by half a step at most. Records beyond 2^40 steps are moved there, missing ones to
    the lower end.
    """

    epsilon: Price
    delta: Price
    step: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", positive(step=self.step))
        Grid(self.step)
        _ = self.guarantee  # refuses the others

    @property
    def guarantee(self) -> OutputDP:
        """What each kind of output costs."""
        return self._protocol.guarantee

    def what_if(self, meter: Meter) -> WhatIf:
        """The price, and whether it fits; touches nothing."""
        return self._protocol.what_if(meter)

    def release(
        self, data: Any, *, meter: Meter, noise: Noise | None = None
    ) -> Release[float | None]:
        """The statistic with noise, or None with the cell "bottom".

        Args:
            data: (n,) numbers, n >= 4: NumPy, pandas, Polars or a list.
            meter: what pays.
            noise: where draws come from; OpenDP's samplers if None.

        Raises:
            ParameterError: it is not one column of at least 4 numbers; nothing is charged.
            BudgetError: it does not fit; the data was not touched.
        """
        source = noise or OpenDPNoise()

        def run(points: IntArray) -> tuple[float | None, Cell]:
            value, cell = self._protocol.run(Ordered.of(points, LIMIT), source)
            return None if value is None else self._answer(value, len(points)), cell

        return paid(meter, self.guarantee, data, run, self._points)

    def _points(self, data: Any) -> IntArray:
        """Each record on the grid; refuses by type and size alone."""
        records = column(data=data)
        n = len(records)
        if n < 4:
            raise refuse("len(data)", "be at least 4", n)
        furthest = LIMIT * self.step
        return Grid(self.step).points(clamped(records, -furthest, furthest), n)

    def _in_steps(self, **given: float) -> float:
        """A proposed length, in steps; refuses what the noise could not cover."""
        ((name, length),) = given.items()
        steps = positive(**given) / self.step
        if not steps <= LIMIT // 2 * exact_positive(epsilon=self.epsilon):
            raise refuse(name, "be at most 2^39 epsilon steps", length)
        return steps

    @property
    @abstractmethod
    def _protocol(self) -> ProposeTestRelease:
        """From ordered records to an integer."""

    @abstractmethod
    def _answer(self, value: int, n: int) -> float:
        """What the integer stands for; n is public."""
