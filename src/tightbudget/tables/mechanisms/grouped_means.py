"""Averages a column in groups whose keys are public."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tightbudget.numerics.validate import plain_numbers
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.bases import ClippedColumn, Filtered, InGroups
from tightbudget.tables.mechanisms.mean import error_of_mean, mean_of, rows_of
from tightbudget.tables.mechanisms.rows import (
    both_ends,
)
from tightbudget.tables.source import Key
from tightbudget.tables.table import Table

Found = dict[Key, float]


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class GroupedMeans(Filtered[Found], ClippedColumn[Found], InGroups[Found], NoisyVector[Found]):
    r"""Averages a column in each group; the keys are those that the table declares.

    The value of a release is a dictionary from each key of the domain (a tuple of keys where there
    are several columns) to a number within the bounds: the mean of the group, or the middle of the
    bounds if the noise leaves no rows. Rows with other keys do not count.

    Each group has two noisy sums, of x - low and of high - x, as in :class:`Mean`.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A row adds to the two sums of one group, high - low in the 1-norm and at most
    that in the 2-norm, so a unit moves all sums together by at most ``rows_per_unit``
    (high - low) in both. The price does not depend on the number of groups.

    Raises:
        ParameterError: a parameter is refused.
    """

    _bits = 51

    def plan(self, table: Table) -> Plan:
        """Plans two sums for each public key; a row moves those of one key by the width."""
        grid = self._grid
        keys, scan = self._groups(table, self._source(table), both_ends(grid))
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
        return replace(
            plan,
            noisy_rows=lambda noisy: tuple(
                rows_of(grid, *noisy[2 * i : 2 * i + 2].tolist()) for i in range(len(keys))
            ),
            error=error_of_mean(grid, plan),
        )
