"""Counts the rows, or the units, of many conditions in one scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tightbudget.numerics.validate import plain_numbers, refuse
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.bases import RowsOrUnits
from tightbudget.tables.mechanisms.rows import root_up
from tightbudget.tables.source import Contribution, Rule
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class Counts(RowsOrUnits[tuple[int, ...]], NoisyVector[tuple[int, ...]]):
    """Counts the rows of a table, or its units, for each of several conditions, in one scan.

    The value of a release is the tuple of noisy counts, in the order of the conditions.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A row may fulfil all conditions, so with n of them a unit moves the vector of
    counts by at most n ``rows_per_unit`` in the 1-norm, and sqrt(n) ``rows_per_unit`` in the
    2-norm; counts of units by n and sqrt(n). For conditions of which a row fulfils one at most,
    :class:`HistogramCounts` and :class:`GroupedCounts` have less noise.

    Args:
        where: the conditions: columns of truth values, or functions of the rows that look at one
            row alone.

    Raises:
        ParameterError: a parameter is refused.
    """

    where: Sequence[Rule]

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", conditions(where=self.where))
        super().__post_init__()

    def plan(self, table: Table) -> Plan:
        """Plans one count for each condition; a unit may move all of them."""
        source, size = table.source, len(self.where)
        source.check_rules(conditions=self.where)

        def scan(contribution: Contribution) -> list[int]:
            return source.counts(contribution, self.where, units=self.of == "units")

        each = self._moves(table)
        l1 = size * each  # guard: counts-moves
        l2 = root_up(size * each**2)  # guard: counts-moves-in-the-2-norm
        return self.noisy(
            scan,
            size=size,
            l1=l1,
            l2=l2,
            value=lambda noisy: tuple(noisy.tolist()),
        )


def conditions(**given: Any) -> tuple[Rule, ...]:
    """Returns conditions as a tuple.

    Raises:
        ParameterError: they are no list, or there is none.
    """
    ((name, rules),) = given.items()
    if not isinstance(rules, (tuple, list)) or not rules:
        raise refuse(name, "be a list of conditions, at least one", rules)
    return tuple(rules)
