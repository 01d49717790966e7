"""Adds up a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tightbudget.numerics.validate import plain_numbers
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.bases import ClippedColumn, Filtered
from tightbudget.tables.source import Contribution
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class Sum(Filtered[float], ClippedColumn[float], NoisyVector[float]):
    r"""Adds up a column whose values are moved into bounds and rounded to a grid.

    The value of a release is the noisy sum, a multiple of the step.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A unit moves the sum by ``rows_per_unit`` times the largest distance of
    low and high from 0, rounded to the grid.

    Raises:
        ParameterError: a parameter is refused.
    """

    meant: ClassVar[Mapping[str, str]] = {"by": "GroupedSums(by=...) has the sum of each group"}

    def plan(self, table: Table) -> Plan:
        """Plans one sum of points, which a unit moves by the most that its rows can add."""
        source, grid = self._source(table), self._grid
        source.check_rules(columns=[grid])

        def scan(contribution: Contribution) -> int:
            (total,) = source.sums(contribution, [grid])
            return total

        moves = table.rows * grid.most  # guard: sum-moves
        return self.noisy(
            scan, size=None, l1=moves, l2=moves, step=grid.step, value=lambda n: n * grid.step
        )
