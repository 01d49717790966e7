"""Counts rows, or units of privacy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tightbudget.numerics.validate import plain_numbers
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.bases import Filtered, RowsOrUnits
from tightbudget.tables.source import Contribution
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class Count(Filtered[int], RowsOrUnits[int], NoisyVector[int]):
    """Counts the rows of a table, or its units, for which a condition is true.

    The value of a release is the noisy count, an integer that may be negative.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A unit moves the count of rows by the table's ``rows_per_unit``, and the count
    of units by 1.

    Raises:
        ParameterError: a parameter is refused.
    """

    meant: ClassVar[Mapping[str, str]] = {"by": "GroupedCounts(by=...) counts each group"}

    def plan(self, table: Table) -> Plan:
        """Plans one count, which a unit moves by the number of its rows, or by 1."""
        source = self._source(table)

        def scan(contribution: Contribution) -> int:
            (count,) = source.counts(contribution, [None], units=self.of == "units")
            return count

        moves = self._moves(table)
        return self.noisy(scan, size=None, l1=moves, l2=moves)
