"""The bases of questions: which rows, rows or units, which groups, which column.

A question names the bases whose parameters it has, and says the rest. Each parameter is declared,
described and checked here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, TypeVar

from tightbudget.numerics.validate import one_of
from tightbudget.tables.mechanism import TableMechanism
from tightbudget.tables.mechanisms.rows import check_width, grouped, public_keys
from tightbudget.tables.source import ONE, Contribution, Key, OnGrid, Rule, Source, on_grid
from tightbudget.tables.table import Table

V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class Filtered(TableMechanism[V]):
    """A question about the rows for which a condition is true.

    Args:
        where: a column of truth values, or a function of the rows that looks at one row alone;
            None for all rows.
    """

    where: Rule | None = None

    def _source(self, table: Table) -> Source:
        """Returns the rows for which the condition is true.

        Raises:
            ParameterError: the condition is refused.
        """
        return (table if self.where is None else table.filter(self.where)).source


@dataclass(frozen=True, kw_only=True)
class RowsOrUnits(TableMechanism[V]):
    """A question that counts rows, or units of privacy.

    Args:
        of: "rows", or "units".
    """

    of: Literal["rows", "units"] = "rows"

    def __post_init__(self) -> None:
        one_of(("rows", "units"), of=self.of)
        super().__post_init__()

    @property
    def _columns(self) -> list[OnGrid]:
        """The column to add up in each group: 1 for each row; none for units, which are counted."""
        return [ONE] if self.of == "rows" else []

    def _moves(self, table: Table) -> int:
        """Returns how far one unit moves a count: by the number of its rows, or by 1."""
        # guard: count-moves
        return 1 if self.of == "units" else table.rows


@dataclass(frozen=True, kw_only=True)
class InGroups(TableMechanism[V]):
    """A question about each group of rows, of which the table declares the keys.

    Args:
        by: the column that names the group, or several.
    """

    by: str | tuple[str, ...]

    def _groups(
        self, table: Table, source: Source, columns: Sequence[OnGrid]
    ) -> tuple[list[Key], Callable[[Contribution], list[int]]]:
        """Returns the public keys, and a scan for the sums of columns in the group of each.

        Args:
            table: the table, which declares the keys.
            source: its rows that count.
            columns: what is added up; none to count the units of each group.

        Raises:
            ParameterError: a column is refused, or has no public keys.
        """
        by, keys = public_keys(table, self.by)
        source.check_rules(columns=columns)

        def scan(contribution: Contribution) -> list[int]:
            return [x for sums in grouped(source, contribution, by, columns, keys) for x in sums]

        return keys, scan


@dataclass(frozen=True, kw_only=True)
class ClippedColumn(TableMechanism[V]):
    """A question about a column whose values are moved into bounds and rounded to a grid.

    Args:
        column: a column of numbers, or a function of the rows that looks at one row alone.
        bounds: (low, high), public: values beyond are moved there, and missing ones to low.
        step: of the grid, a power of two; None for the largest with at least 2^16 points.
    """

    column: Rule
    bounds: tuple[float, float]
    step: float | None = None

    # the bits that the distance of the bounds has at most, in points; None for any grid
    _bits: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        if self._bits is not None:
            check_width(self._grid, bits=self._bits)
        _ = self._grid
        super().__post_init__()

    @cached_property
    def _grid(self) -> OnGrid:
        """The column as integers."""
        return on_grid(self.column, self.bounds, self.step)
