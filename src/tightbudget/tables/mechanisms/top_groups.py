"""Names the largest groups, of those whose keys are public."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tightbudget.numerics.validate import plain_numbers, positive_count, refuse
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release.mechanisms.top_k import TopK
from tightbudget.tables.mechanism import Plan
from tightbudget.tables.mechanisms.bases import Filtered, InGroups, RowsOrUnits
from tightbudget.tables.mechanisms.rows import as_it_is
from tightbudget.tables.source import Key
from tightbudget.tables.table import Table

Keys = tuple[Key, ...]


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class TopGroups(Filtered[Keys], RowsOrUnits[Keys], InGroups[Keys]):
    """Names at most k groups, the largest first, if they are large enough.

    The value of a release is the tuple of the keys that were named, and its cell is their number.
    The keys are public: they are those that the table declares. :class:`TopK` answers from the
    counts of one scan.

    Guarantee: delta = 0 for tables of which one has all rows of one unit more; the cell is the
    number n of groups named. n = k costs epsilon, and fewer cost (n + 1) epsilon / k. A unit moves
    each count of rows by at most ``rows_per_unit``, and each count of units by at most 1,
    and it moves all counts in one direction, so that the entries are ``monotone``.

    Args:
        k: >= 1, the largest number of groups that are named, at most the number of keys.
        epsilon: > 0, nats, the worst-case price.
        least: the count that a group must have to be named, a public integer.

    Raises:
        ParameterError: a parameter is refused.
    """

    k: int
    epsilon: Price
    least: int

    answered_by = (TopK,)

    @cached_property
    def guarantee(self) -> OutputDP:
        """The output cells 0, 1, ..., k: the price of each number of groups named."""
        return self._inner(positive_count(k=self.k), 1).guarantee

    def plan(self, table: Table) -> Plan:
        """Plans one count for each public key; a unit moves each by its rows, or by 1."""
        keys, scan = self._groups(table, self._source(table), self._columns)
        if self.k > len(keys):
            raise refuse("k", f"be at most the number of keys, {len(keys)}", self.k)
        moves = self._moves(table)
        return Plan(
            scan=scan,
            mechanism=self._inner(len(keys), moves),
            value=lambda named: tuple(keys[i] for i in named),
            sensitivity=float(moves),
        )

    def _inner(self, size: int, sensitivity: int) -> TopK:
        """Returns the mechanism that answers from so many counts of a sensitivity."""
        return TopK(as_it_is, size, self.k, self.epsilon, self.least, sensitivity, monotone=True)
