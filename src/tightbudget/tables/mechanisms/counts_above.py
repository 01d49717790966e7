"""Finds the conditions that are frequent, and releases their counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tightbudget.numerics.validate import plain_numbers
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release.mechanisms.sparse_vector import SparseVector, SparseVectorRelease
from tightbudget.tables.mechanism import Plan
from tightbudget.tables.mechanisms.bases import RowsOrUnits
from tightbudget.tables.mechanisms.counts import conditions
from tightbudget.tables.mechanisms.rows import as_it_is
from tightbudget.tables.source import Contribution, Rule
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class CountsAbove(RowsOrUnits[dict[int, int]]):
    """Finds the conditions whose counts are above a threshold, and releases these counts.

    All conditions are counted in one scan. The value of a release is a dictionary from the numbers
    of the conditions that were found to their noisy counts. A :class:`SparseVectorRelease`
    answers: the price that the search did not spend goes to the counts.

    Guarantee: delta = 0 for tables of which one has all rows of one unit more; cells
    {"nothing": the price of the search's threshold, "values": search_epsilon + epsilon}. A unit
    moves each count of rows by at most ``rows_per_unit``, and each count of units by at most 1,
    and it moves all counts in one direction.

    Args:
        where: the conditions: columns of truth values, or functions of the rows that look at one
            row alone.
        threshold: of each count, a public integer.
        epsilon: > 0, nats, for the counts alone.
        search_epsilon: > 0, nats, for the search alone.
        aboves: >= 1, the number of conditions that it finds at this price.
        adaptive: whether to look twice.

    Raises:
        ParameterError: a parameter is refused.
    """

    where: Sequence[Rule]
    threshold: int
    epsilon: Price
    search_epsilon: Price
    aboves: int
    adaptive: bool = True

    answered_by = (SparseVectorRelease,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", conditions(where=self.where))
        super().__post_init__()

    @cached_property
    def guarantee(self) -> OutputDP:
        """The output cells "nothing" and "values"."""
        return self._inner(1).guarantee

    def plan(self, table: Table) -> Plan:
        """Plans one count for each condition; a unit moves each by its rows, or by 1."""
        source = table.source
        source.check_rules(conditions=self.where)

        def scan(contribution: Contribution) -> list[int]:
            return source.counts(contribution, self.where, units=self.of == "units")

        moves = self._moves(table)
        return Plan(scan=scan, mechanism=self._inner(moves), sensitivity=float(moves))

    def _inner(self, sensitivity: int) -> SparseVectorRelease:
        """Returns the mechanism that answers from counts of a sensitivity."""
        search = SparseVector(
            self.search_epsilon, self.aboves, sensitivity, monotone=True, adaptive=self.adaptive
        )
        return SparseVectorRelease(as_it_is, len(self.where), self.threshold, search, self.epsilon)
