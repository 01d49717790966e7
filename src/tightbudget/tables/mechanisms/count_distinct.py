"""Counts the values of a public domain that occur."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tightbudget.numerics.validate import plain_numbers
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.bases import Filtered
from tightbudget.tables.mechanisms.rows import grouped, public_keys
from tightbudget.tables.source import Contribution
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class CountDistinct(Filtered[int], NoisyVector[int]):
    """Counts the keys of a public domain that occur in a table, in at least one row that counts.

    The value of a release is the noisy number, an integer that may be negative or above the number
    of keys. Which keys occur is not told: :class:`SelectedKeys` names keys, of secret domains, too.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". Proof: which rows of a unit count depends on that unit alone. So with one unit
    more, each key that occurred still does, and a key that is new is one of the groups in which
    this unit counts: at most ``groups_per_unit``, and at most all keys.

    Args:
        column: the column whose keys are counted, which the table declares; or several columns,
            whose combinations are counted.

    Raises:
        ParameterError: a parameter is refused.
    """

    column: str | tuple[str, ...]

    # for a session: a number of units in groups, of which none is larger than the number of rows
    of: ClassVar[str] = "units"

    def plan(self, table: Table) -> Plan:
        """Plans a count of units for each public key; a unit moves the number of those above 0."""
        source, (by, keys) = self._source(table), public_keys(table, self.column)

        def scan(contribution: Contribution) -> int:
            return sum(units > 0 for (units,) in grouped(source, contribution, by, [], keys))

        moves = min(table.groups, len(keys))  # guard: distinct-keys-move
        return self.noisy(scan, size=None, l1=moves, l2=moves)
