"""Adds up a column in groups whose keys are public."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tightbudget.numerics.validate import plain_numbers
from tightbudget.output_dp.amount import Price
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.rows import grouped, public_keys, where_true
from tightbudget.tables.source import Contribution, Key, OnGrid, Rule, on_grid
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class GroupedSums(NoisyVector[dict[Key, float]]):
    r"""Adds up a column in each group; the keys are those that the table declares.

    The value of a release is a dictionary from each key of the domain (a tuple of keys where there
    are several columns) to its noisy sum, a multiple of the step. Rows with other keys do not
    count.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A row moves the sum of one group by at most the largest distance of low and
    high from 0, rounded to the grid: a unit moves all sums together by at most ``rows_per_unit``
    times that, in the 1-norm and, if all its rows are in one group, in the 2-norm. The price
    does not depend on the number of groups.

    Args:
        by: the column that names the group, or several.
        column: a column of numbers, or a function of the rows that looks at one row alone.
        bounds: (low, high), public; a missing value counts as low.
        epsilon: > 0, nats.
        delta: in [0, 1): discrete Laplace noise at 0, and discrete Gaussian noise otherwise.
        step: of the grid, a power of two; None for the largest with at least 2^16 points.
        where: a column of truth values, or a function of the rows; None for all rows.

    Raises:
        ParameterError: a parameter is refused.
    """

    by: str | tuple[str, ...]
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
        """Plans one sum for each public key, of which a row moves one."""
        rows, grid = where_true(table, self.where), self._grid
        by, keys = public_keys(table, self.by)
        rows.source.check_rules(columns=[grid])

        def scan(contribution: Contribution) -> list[int]:
            return [total for (total,) in grouped(rows.source, contribution, by, [grid], keys)]

        moves = table.rows * grid.most  # guard: grouped-sums-moves
        return self.noisy(
            scan,
            size=len(keys),
            l1=moves,
            l2=moves,
            step=grid.step,
            value=lambda noisy: {
                key: total * grid.step for key, total in zip(keys, noisy.tolist(), strict=True)
            },
        )
