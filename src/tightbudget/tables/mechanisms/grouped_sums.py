"""Adds up a column in groups whose keys are public."""

from __future__ import annotations

from dataclasses import dataclass

from tightbudget.numerics.validate import plain_numbers
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.bases import ClippedColumn, Filtered, InGroups
from tightbudget.tables.source import Key
from tightbudget.tables.table import Table

Found = dict[Key, float]


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class GroupedSums(Filtered[Found], ClippedColumn[Found], InGroups[Found], NoisyVector[Found]):
    r"""Adds up a column in each group; the keys are those that the table declares.

    The value of a release is a dictionary from each key of the domain (a tuple of keys where there
    are several columns) to its noisy sum, a multiple of the step. Rows with other keys do not
    count.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A row moves the sum of one group by at most the largest distance of low and
    high from 0, rounded to the grid: a unit moves all sums together by at most ``rows_per_unit``
    times that, in the 1-norm and, if all its rows are in one group, in the 2-norm. The price
    does not depend on the number of groups.

    Raises:
        ParameterError: a parameter is refused.
    """

    def plan(self, table: Table) -> Plan:
        """Plans one sum for each public key, of which a row moves one."""
        grid = self._grid
        keys, scan = self._groups(table, self._source(table), [grid])
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
