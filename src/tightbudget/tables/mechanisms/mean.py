"""Averages a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tightbudget.numerics.validate import plain_numbers
from tightbudget.tables.error_laws import NoiseLaw, QuotientLaw
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.bases import ClippedColumn, Filtered
from tightbudget.tables.mechanisms.rows import both_ends, whole_range
from tightbudget.tables.source import Contribution, OnGrid
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class Mean(Filtered[float], ClippedColumn[float], NoisyVector[float]):
    r"""Averages a column whose values are moved into bounds and rounded to a grid.

    The value of a release is a number within the bounds: the mean of the rows that count, or the
    middle of the bounds if the noise leaves no rows.

    One scan adds up the distances from both ends, A = sum(x - low) and B = sum(high - x), and both
    get noise. The mean is low + (high - low) A / (A + B), and A + B is the number of rows times
    high - low, so that no epsilon is spent on the number by itself.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A row adds (x - low, high - x) to (A, B), which is high - low in the 1-norm and
    at most that in the 2-norm, so a unit adds at most ``rows_per_unit`` (high - low) in both.

    An answer of a session has an interval (:class:`QuotientLaw` has the proof): both sums are
    released with noise, and they tell a noisy number of rows m. Where neither noise exceeds h, the
    mean is off by at most h / m.

    With Laplace noise, the variance of A - B is half that of a sum of distances from the middle
    beside a count, at epsilon / 2 each: there a row moves each by its most, here their sum.

    Raises:
        ParameterError: a parameter is refused.
    """

    _bits = 51

    meant: ClassVar[Mapping[str, str]] = {"by": "GroupedMeans(by=...) has the mean of each group"}

    def plan(self, table: Table) -> Plan:
        """Plans the sums of the distances from both ends, which a row moves by the width."""
        source, grid = self._source(table), self._grid
        ends = both_ends(grid)
        source.check_rules(columns=ends)

        def scan(contribution: Contribution) -> list[int]:
            return source.sums(contribution, ends)

        moves = table.rows * (grid.high - grid.low)  # guard: mean-moves
        plan = self.noisy(
            scan,
            size=2,
            l1=moves,
            l2=moves,
            step=grid.step,
            value=lambda noisy: mean_of(grid, *noisy.tolist()),
        )
        return replace(
            plan,
            noisy_rows=lambda noisy: (rows_of(grid, *noisy.tolist()),),
            error=error_of_mean(grid, plan),
        )


def error_of_mean(grid: OnGrid, plan: Plan) -> QuotientLaw:
    """Returns what is known of a mean of values on a grid, from the noise on both of its sums."""
    assert isinstance(plan.error, NoiseLaw)
    low, high = grid.low * grid.step, grid.high * grid.step
    return QuotientLaw(noise=plan.error, sums=2, factor=1.0, low=low, high=high)


def rows_of(grid: OnGrid, from_low: Any, from_high: Any) -> float:
    """Returns the number of rows from the sums of x - low and of x - high."""
    return float((from_low - from_high) / (grid.high - grid.low))


def mean_of(grid: OnGrid, from_low: Any, from_high: Any) -> float:
    """Returns a mean from the sums of x - low and of x - high; the middle if no rows are left.

    Args:
        grid: the grid, of which the result is within the ends.
        from_low: the sum of x - low, or about that.
        from_high: the sum of x - high, which is negative, or about that.
    """
    rows = from_low - from_high
    return whole_range(grid, from_low / rows if rows > 0 else 0.5)
