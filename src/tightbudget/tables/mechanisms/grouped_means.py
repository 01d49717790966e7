"""Averages a column in groups whose keys are public."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from tightbudget.numerics.validate import plain_numbers
from tightbudget.output_dp.amount import Price
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.mean import mean_of
from tightbudget.tables.mechanisms.rows import (
    both_ends,
    check_width,
    grouped,
    public_keys,
    where_true,
)
from tightbudget.tables.source import Contribution, Key, OnGrid, Rule, on_grid
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class GroupedMeans(NoisyVector[dict[Key, float]]):
    r"""Averages a column in each group; the keys are those that the table declares.

    The value of a release is a dictionary from each key of the domain (a tuple of keys where there
    are several columns) to a number within the bounds: the mean of the group, or the middle of the
    bounds if the noise leaves no rows. Rows with other keys do not count.

    Each group has two noisy sums, of x - low and of high - x, as in :class:`Mean`.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A row adds to the two sums of one group, high - low in the 1-norm and at most
    that in the 2-norm, so a unit moves all sums together by at most ``rows_per_unit``
    (high - low) in both. The price does not depend on the number of groups.

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
        check_width(self._grid, bits=51)
        super().__post_init__()

    @cached_property
    def _grid(self) -> OnGrid:
        """The column as integers."""
        return on_grid(self.column, self.bounds, self.step)

    def plan(self, table: Table) -> Plan:
        """Plans two sums for each public key; a row moves those of one key by the width."""
        rows, grid = where_true(table, self.where), self._grid
        by, keys = public_keys(table, self.by)
        ends = both_ends(grid)
        rows.source.check_rules(columns=ends)

        def scan(contribution: Contribution) -> list[int]:
            return [x for sums in grouped(rows.source, contribution, by, ends, keys) for x in sums]

        moves = table.rows * (grid.high - grid.low)  # guard: grouped-means-moves
        plan = self.noisy(
            scan,
            size=2 * len(keys),
            l1=moves,
            l2=moves,
            step=grid.step,
            value=lambda noisy: {
                key: mean_of(grid, *noisy[2 * i : 2 * i + 2].tolist()) for i, key in enumerate(keys)
            },
        )
        return replace(plan, noise=None)  # the noise of a quotient depends on the data
