"""The base of the robust statistics: a column on a grid, and proposals about its order."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from tightbudget.numerics.validate import plain_numbers, positive, refuse
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.columns import clamped
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.mechanisms.order_statistics import Ordered
from tightbudget.release.mechanisms.propose_test_release import ProposeTestRelease
from tightbudget.release.noise.grid import AnswerGrid
from tightbudget.release.noise.noise import IntArray, Noise
from tightbudget.release.run_lengths import counted_column

LIMIT = 2**40  # grid points; records beyond are moved there


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class RobustStatistic(MechanismOnData[Any, float | None]):
    """A statistic of one column that is proposed, tested and released on integers.

    Each record becomes the nearest point of the grid, by itself. So neighbouring columns stay
    neighbours, and a proof for integers holds for the column. The order statistics move by half a
    step at most. Records beyond 2^40 steps are moved to there, and missing ones to -2^40 steps.
    """

    epsilon: Price
    delta: Price
    step: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", positive(step=self.step))
        AnswerGrid(self.step)
        super().__post_init__()

    @property
    def guarantee(self) -> OutputDP:
        """The price of each output cell, and delta."""
        return self._protocol.guarantee

    def _run(
        self, data: tuple[IntArray, IntArray | None], noise: Noise
    ) -> tuple[float | None, Cell]:
        points, counts = data
        records = Ordered.of(points, LIMIT, counts)
        value, cell = self._protocol.run(records, noise)
        return None if value is None else self._answer(value, records.n), cell

    def _admitted(self, data: Any) -> tuple[IntArray, IntArray | None]:
        """Returns the points, and how many records have each; refuses types and sizes alone."""
        values, counts = counted_column(data)
        n = len(values) if counts is None else int(counts.sum())
        if n < 4:
            raise refuse("len(data)", "be at least 4", n)
        furthest = LIMIT * self.step
        points = AnswerGrid(self.step).points(clamped(values, -furthest, furthest), len(values))
        return points, counts

    def _in_steps(self, **given: float) -> float:
        """Returns a proposed length in steps; refuses one that no noise could hide."""
        ((name, length),) = given.items()
        steps = positive(**given) / self.step
        if not steps <= LIMIT // 2 * exact_positive(epsilon=self.epsilon):
            raise refuse(name, "be at most 2^39 epsilon steps", length)
        return steps

    @property
    @abstractmethod
    def _protocol(self) -> ProposeTestRelease:
        """The mechanism that releases an integer for ordered records."""

    @abstractmethod
    def _answer(self, value: int, n: int) -> float:
        """Returns the statistic that a released integer stands for; n is public."""
