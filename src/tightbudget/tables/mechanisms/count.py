"""Counts rows, or units of privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tightbudget.numerics.validate import one_of, plain_numbers
from tightbudget.output_dp.amount import Price
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.rows import where_true
from tightbudget.tables.source import Contribution, Rule
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class Count(NoisyVector[int]):
    """Counts the rows of a table, or its units, for which a condition is true.

    The value of a release is the noisy count, an integer that may be negative.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A unit moves the count of rows by the table's ``rows_per_unit``, and the count
    of units by 1.

    Args:
        epsilon: > 0, nats.
        delta: in [0, 1): discrete Laplace noise at 0, and discrete Gaussian noise otherwise.
        of: "rows", or "units".
        where: a column of truth values, or a function of the rows that looks at one row alone;
            None for all rows.

    Raises:
        ParameterError: a parameter is refused.
    """

    epsilon: Price
    delta: Price = 0
    of: Literal["rows", "units"] = "rows"
    where: Rule | None = None

    def __post_init__(self) -> None:
        one_of(("rows", "units"), of=self.of)
        super().__post_init__()

    def plan(self, table: Table) -> Plan:
        """Plans one count, which a unit moves by the number of its rows, or by 1."""
        source = where_true(table, self.where).source

        def scan(contribution: Contribution) -> int:
            (count,) = source.counts(contribution, [None], units=self.of == "units")
            return count

        # guard: count-moves
        moves = 1 if self.of == "units" else table.rows
        return self.noisy(scan, size=None, l1=moves, l2=moves)
