"""Counts the rows, or the units, of groups whose keys are public."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from tightbudget.numerics.validate import one_of, plain_numbers
from tightbudget.output_dp.amount import Price
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.rows import grouped, public_keys, root_up, where_true
from tightbudget.tables.source import ONE, Contribution, Key, Rule
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class GroupedCounts(NoisyVector[dict[Key, int]]):
    """Counts the rows, or the units, of each group; the keys are those that the table declares.

    The value of a release is a dictionary from each key of the domain (a tuple of keys where there
    are several columns) to its noisy count. Rows with other keys do not count.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". The price does not depend on the number of groups: a unit is in at most
    ``groups_per_unit`` of them, and has at most ``rows_per_unit`` rows in all of them together.

    Args:
        by: the column that names the group, or several.
        epsilon: > 0, nats.
        delta: in [0, 1): discrete Laplace noise at 0, and discrete Gaussian noise otherwise.
        of: "rows", or "units".
        where: a column of truth values, or a function of the rows that looks at one row alone;
            None for all rows.

    Raises:
        ParameterError: a parameter is refused.
    """

    by: str | tuple[str, ...]
    epsilon: Price
    delta: Price = 0
    of: Literal["rows", "units"] = "rows"
    where: Rule | None = None

    def __post_init__(self) -> None:
        one_of(("rows", "units"), of=self.of)
        super().__post_init__()

    def plan(self, table: Table) -> Plan:
        """Plans one count for each public key, which a unit moves by its rows or its groups."""
        rows = where_true(table, self.where)
        by, keys = public_keys(table, self.by)
        columns = [ONE] if self.of == "rows" else []

        def scan(contribution: Contribution) -> list[int]:
            return [count for (count,) in grouped(rows.source, contribution, by, columns, keys)]

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
