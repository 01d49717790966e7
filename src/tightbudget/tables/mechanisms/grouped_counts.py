"""Counts the rows, or the units, of groups whose keys are public."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tightbudget.numerics.validate import plain_numbers
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.bases import Filtered, InGroups, RowsOrUnits
from tightbudget.tables.mechanisms.rows import root_up
from tightbudget.tables.source import Key
from tightbudget.tables.table import Table

Found = dict[Key, int]


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class GroupedCounts(Filtered[Found], RowsOrUnits[Found], InGroups[Found], NoisyVector[Found]):
    """Counts the rows, or the units, of each group; the keys are those that the table declares.

    The value of a release is a dictionary from each key of the domain (a tuple of keys where there
    are several columns) to its noisy count. Rows with other keys do not count.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". The price does not depend on the number of groups: a unit is in at most
    ``groups_per_unit`` of them, and has at most ``rows_per_unit`` rows in all of them together.

    Raises:
        ParameterError: a parameter is refused.
    """

    def plan(self, table: Table) -> Plan:
        """Plans one count for each public key, which a unit moves by its rows or its groups."""
        keys, scan = self._groups(table, self._source(table), self._columns)
        # all rows of a unit may be in one group; its units are in different groups
        # guard: grouped-counts-moves
        l1 = table.rows if self.of == "rows" else table.groups
        # guard: grouped-counts-moves-in-the-2-norm
        l2 = Fraction(l1) if self.of == "rows" else root_up(table.groups)
        return self.noisy(
            scan,
            size=len(keys),
            l1=l1,
            l2=l2,
            value=lambda noisy: dict(zip(keys, noisy.tolist(), strict=True)),
        )
