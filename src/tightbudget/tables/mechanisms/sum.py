"""Adds up a column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tightbudget.numerics.validate import plain_numbers
from tightbudget.output_dp.amount import Price
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.rows import where_true
from tightbudget.tables.source import Contribution, OnGrid, Rule, on_grid
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class Sum(NoisyVector[float]):
    r"""Adds up a column whose values are moved into bounds and rounded to a grid.

    The value of a release is the noisy sum, a multiple of the step.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A unit moves the sum by ``rows_per_unit`` times the largest distance of
    low and high from 0, rounded to the grid.

    Args:
        epsilon: > 0, nats.
        delta: in [0, 1): discrete Laplace noise at 0, and discrete Gaussian noise otherwise.
        column: a column of numbers, or a function of the rows that looks at one row alone.
        bounds: (low, high), public; a missing value counts as low.
        step: of the grid, a power of two; None for the largest with at least 2^16 points.
        where: a column of truth values, or a function of the rows; None for all rows.

    Raises:
        ParameterError: a parameter is refused.
    """

    column: Rule
    bounds: tuple[float, float]
    epsilon: Price
    delta: Price = 0
    step: float | None = None
    where: Rule | None = None

    def __post_init__(self) -> None:
        _ = self._grid
        super().__post_init__()

    @cached_property
    def _grid(self) -> OnGrid:
        """The column as integers."""
        return on_grid(self.column, self.bounds, self.step)

    def plan(self, table: Table) -> Plan:
        """Plans one sum of points, which a unit moves by the most that its rows can add."""
        source, grid = where_true(table, self.where).source, self._grid
        source.check_rules(columns=[grid])

        def scan(contribution: Contribution) -> int:
            (total,) = source.sums(contribution, [grid])
            return total

        moves = table.rows * grid.most  # guard: sum-moves
        return self.noisy(
            scan, size=None, l1=moves, l2=moves, step=grid.step, value=lambda n: n * grid.step
        )
