"""The questions of a mechanism to a table, as a protocol: six verbs, answered by integers.

A source holds the rows, in memory or in an engine. A mechanism gets one small vector of integers
from it, from one scan: so the order of the rows, partitions and engines change no bit of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, Protocol

from tightbudget.numerics.validate import finite, plain_numbers, positive, refuse
from tightbudget.release.noise.salt import fresh_salt
from tightbudget.tables.cells import ColumnCells
from tightbudget.tables.derived_keys import DerivedKeys

# A column's name, or a function of the rows that Ibis turns into an expression.
Rule = str | Callable[[Any], Any]
# What groups are named by: one value, or a tuple where there are several columns.
Key = Any
# The name of the column that says to which half a unit belongs.
HALF = "tightbudget_half"
# Ascending points, and how many rows have each: a run-length list.
Runs = list[tuple[int, int]]


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class OnGrid:
    """A column of integers: (point - origin)^power, or 1 for each row if there is no column.

    The point of a number x is floor(clip(x, low, high) / step + 1/2), and a missing number has
    the point of ``low``: so each row is rounded by itself, before anything is added up.

    Args:
        column: the column, or a function of the rows; None for 1 in each row.
        low: the first point.
        high: the last point, >= low.
        step: of the grid, a power of two.
        origin: the point that counts as 0.
        power: 1, or 2 for squares.
    """

    column: Rule | None
    low: int = 0
    high: int = 1
    step: float = 1.0
    origin: int = 0
    power: Literal[1, 2] = 1

    @property
    def most(self) -> int:
        """The largest amount that one row can add to a sum, or take from it."""
        if self.column is None:
            return 1
        return int(max(abs(self.low - self.origin), abs(self.high - self.origin)) ** self.power)


ONE = OnGrid(column=None)


def on_grid(column: Rule, bounds: Any, step: float | None) -> OnGrid:
    """Returns a column that is clipped to bounds and rounded to a grid.

    Args:
        column: the column, or a function of the rows.
        bounds: (low, high), finite and public.
        step: of the grid, a power of two; None for the largest that has at least 2^16 points.

    Raises:
        ParameterError: bounds are missing or do not ascend; the step is no power of two, or makes
            fewer than two points or more than 2^52.
    """
    if bounds is None:
        raise refuse(
            "bounds", "be given: public numbers (low, high) that values are moved to", None
        )
    try:
        low, high = bounds
    except (TypeError, ValueError):
        raise refuse("bounds", "be two numbers, (low, high)", bounds) from None
    low, high = finite(**{"bounds[0]": low}), finite(**{"bounds[1]": high})
    if not low < high:
        raise refuse("bounds", "ascend", bounds)
    if step is None:
        step = 2.0 ** math.floor(math.log2(high - low) - 16)
    step = positive(step=step)
    if math.frexp(step)[0] != 0.5:
        raise refuse("step", "be a power of two", step)
    first, last = (
        math.floor(Fraction(end) / Fraction(step) + Fraction(1, 2)) for end in (low, high)
    )
    if not first < last:
        raise refuse("step", f"be finer: bounds = {bounds} have one point on this grid", step)
    if max(abs(first), abs(last)) > 2**52:
        raise refuse("step", f"be coarser: bounds = {bounds} have more than 2^52 points", step)
    return OnGrid(column=column, low=first, high=last, step=step)


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """The bounds on a unit of privacy: how many rows count, and in how many groups.

    Args:
        unit: the column that names the unit; None where each row is a unit. A row whose unit is
            missing is a unit of its own.
        rows: the number of rows of a unit that count.
        groups: the number of groups in which a unit counts.
        row_id: a column that tells the rows of a unit apart; None to tell them apart by content.
        salt: the key of the hash that chooses rows and groups: a text of hexadecimal digits.
    """

    unit: str | None
    rows: int
    groups: int
    row_id: str | None = None
    salt: str = field(repr=False, default_factory=fresh_salt)


class Source(Protocol):
    """Rows that answer six verbs; an answer is made of Python integers.

    The rows of a unit that count are the first in the order of a keyed hash, over a unit's rows
    by themselves: so one unit more or less changes what counts of no other unit.
    """

    @property
    def columns(self) -> Mapping[str, str]:
        """The names of the columns, with the names of their types: both are public."""
        ...

    def check(self) -> None:
        """Asks the engine for no row, so that a connection that is lost is found before a scan.

        Raises:
            SourceError: the source does not answer.
        """
        ...

    def check_rules(
        self, conditions: Sequence[Rule | None] = (), columns: Sequence[OnGrid] = ()
    ) -> None:
        """Refuses rules that this source cannot answer; it asks the rows nothing.

        Raises:
            ParameterError: a column is not there or has another type, or a rule looks across rows.
        """
        ...

    def with_half(self, contribution: Contribution) -> Source:
        """Returns the rows with a column :data:`HALF`: 0 or 1, by a keyed hash of the unit's name.

        Rows without a unit have 0. The rows are asked nothing.
        """
        ...

    def together(self, scans: Sequence[Callable[[], Any]]) -> list[Any]:
        """Returns what several scans of this source return; an engine gets one statement for all.

        Args:
            scans: each asks this source, or sources that are made of it, by the verbs below.
        """
        ...

    def with_keys(self, name: str, rule: DerivedKeys) -> Source:
        """Returns the rows with a column of the keys that a rule derives from each row by itself.

        The rows are asked nothing.

        Raises:
            ParameterError: the column is not there, or has another type than the rule takes.
        """
        ...

    def counts(
        self, contribution: Contribution, conditions: Sequence[Rule | None], *, units: bool = False
    ) -> list[int]:
        """Counts the rows, or the units, for which each of the conditions is true; None for all."""
        ...

    def sums(self, contribution: Contribution, columns: Sequence[OnGrid]) -> list[int]:
        """Adds up each of the columns, exactly."""
        ...

    def histogram(self, contribution: Contribution, column: OnGrid) -> Runs:
        """Counts the rows of each point that occurs, in ascending order of the points."""
        ...

    def groups(
        self,
        contribution: Contribution,
        by: Sequence[str],
        columns: Sequence[OnGrid],
        *,
        keys: Sequence[Key] | None,
    ) -> dict[Key, list[int]]:
        """Adds up columns in each group that occurs, or counts units where there are no columns.

        Groups in which a key is missing do not count.

        Args:
            contribution: the rows and groups of a unit that count.
            by: the columns that name a group.
            columns: what is added up; none to count the units of each group.
            keys: the public keys, outside of which nothing counts; None for all that occur.
        """
        ...

    def histograms(
        self,
        contribution: Contribution,
        by: Sequence[str],
        column: OnGrid,
        *,
        keys: Sequence[Key] | None,
    ) -> dict[Key, Runs]:
        """Counts the rows of each point in each group that occurs, in ascending order of points.

        A unit has no more rows in all groups together than it has in sums by group.

        Args:
            contribution: the rows and groups of a unit that count.
            by: the columns that name a group.
            column: the column whose points are counted.
            keys: the public keys, outside of which nothing counts; None for all that occur.
        """
        ...

    def cell_counts(
        self,
        contribution: Contribution,
        cells: Mapping[str, ColumnCells],
        marginals: Sequence[Sequence[str]],
    ) -> list[Runs]:
        """Counts the rows in each cell of several marginals, from one scan.

        The same rows of a unit count in all of them, at most ``contribution.rows``.

        Args:
            contribution: the rows of a unit that count.
            cells: the cells of each column.
            marginals: the columns of each marginal. A row that is in no cell of one of them counts
                in no cell of the marginal.

        Returns:
            For each marginal the cells that occur, in ascending order, and how many rows each has.
            They are numbered with the last column's cell first to change.
        """
        ...
