"""Names one of the most frequent keys, of those that are public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tightbudget.numerics.validate import plain_numbers
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release.mechanisms.exponential import ExponentialRelease
from tightbudget.tables.mechanism import Plan
from tightbudget.tables.mechanisms.bases import Filtered, InGroups, RowsOrUnits
from tightbudget.tables.mechanisms.rows import as_it_is
from tightbudget.tables.source import Key
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class MostFrequent(Filtered[Key], RowsOrUnits[Key], InGroups[Key]):
    """Chooses a public key: the more rows have it, or units, the likelier.

    The value of a release is the key. It is chosen among those that the table declares, by the
    exponential mechanism: :class:`ExponentialRelease` answers from the counts of one scan.

    Guarantee: epsilon-DP, delta = 0, for tables of which one has all rows of one unit more; one
    cell, "value". A budget that counts rho charges epsilon^2 / 8. A unit moves each count of rows
    by at most ``rows_per_unit``, and each count of units by at most 1, and it moves all counts in
    one direction, so that the scores are ``monotone``.

    Args:
        epsilon: > 0, nats.

    Raises:
        ParameterError: a parameter is refused.
    """

    epsilon: Price

    answered_by = (ExponentialRelease,)

    @property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the price epsilon, with rho = epsilon^2 / 8."""
        return self._inner((0,), 1).guarantee

    def plan(self, table: Table) -> Plan:
        """Plans one count for each public key; a unit moves each by its rows, or by 1."""
        keys, scan = self._groups(table, self._source(table), self._columns)
        moves = self._moves(table)
        return Plan(scan=scan, mechanism=self._inner(keys, moves), sensitivity=float(moves))

    def _inner(self, keys: Sequence[Key], sensitivity: int) -> ExponentialRelease:
        """Returns the mechanism that chooses one of the keys from counts of a sensitivity."""
        return ExponentialRelease(as_it_is, keys, self.epsilon, sensitivity, monotone=True)
