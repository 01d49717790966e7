"""Releases a robust statistic of a column: the median, interquartile range or trimmed mean."""

from __future__ import annotations

from dataclasses import dataclass

from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release.mechanisms.interquartile_range import InterquartileRange
from tightbudget.release.mechanisms.median import Median
from tightbudget.release.mechanisms.robust import LIMIT, RobustStatistic
from tightbudget.release.mechanisms.trimmed_mean import TrimmedMean
from tightbudget.release.run_lengths import RunLengths
from tightbudget.tables.mechanism import Plan
from tightbudget.tables.mechanisms.bases import Filtered
from tightbudget.tables.mechanisms.quantiles import run_lengths
from tightbudget.tables.source import Contribution, OnGrid, Rule, Runs
from tightbudget.tables.table import Table

_LEAST, _MOST = 4, 2**41  # records of a robust statistic, and of a run-length list


@dataclass(frozen=True, kw_only=True)
class OrderStatistic(Filtered[float | None]):
    """Releases the median, interquartile range or trimmed mean of a column, one row of a unit each.

    The value of a release is that of ``statistic``, or None with the cell "bottom". The rows come
    as a histogram on the statistic's grid, from one scan.

    Guarantee: that of ``statistic``, for tables of which one has all rows of one unit more.
    Proof: its neighbours are columns of n records that differ in one. Let n be ``units``, and let
    x(1) <= ... <= x(N) be the N rows that count, with -2^40 steps before them and 2^40 steps after
    them. The statistic gets the n records from rank s = floor((N - n) / 2) + 1 on: the middle of
    the column, filled up evenly at both ends if N < n. One unit more is at most one row y more,
    since ``rows_per_unit`` is 1, and which row counts depends on the unit's rows and a random key
    alone. Then s stays, or rises by one. If it stays, the records from s on are pushed up by y or
    by a record that was below: they gain one, and lose the last. If it rises, they lose the first,
    and gain y or a record that was above, or y was below and nothing changes. In each case at most
    one of the n records is replaced.

    Args:
        column: a column of numbers, or a function of the rows that looks at one row alone; a
            missing value counts as -2^40 steps.
        statistic: a :class:`Median`, :class:`InterquartileRange` or :class:`TrimmedMean`.
        where: a column of truth values, or a function of the rows; None for all rows. Rows that
            are left out are filled up: so the table's ``units`` should be that of the other rows.

    Raises:
        ParameterError: a parameter is refused.
    """

    column: Rule
    statistic: RobustStatistic

    answered_by = (Median, InterquartileRange, TrimmedMean)

    def __post_init__(self) -> None:
        statistic: object = self.statistic
        if not isinstance(statistic, RobustStatistic):
            must = "be a Median, an InterquartileRange or a TrimmedMean"
            raise refuse("statistic", must, statistic)
        super().__post_init__()

    @property
    def guarantee(self) -> OutputDP:
        """The price of each output cell of the statistic, and delta."""
        return self.statistic.guarantee

    def plan(self, table: Table) -> Plan:
        """Plans one histogram, from which n records are taken.

        Raises:
            ParameterError: the table does not declare ``units``, or more than one row of a unit
                counts, or the column or the rule is refused.
        """
        if table.units is None or not _LEAST <= table.units <= _MOST:
            must = "be given in the Table, a public number in [4, 2^41]: how many units there are"
            raise refuse("units", must, table.units)
        if table.rows != 1:
            raise refuse("rows_per_unit", "be 1 for an order statistic", table.rows)
        source, n = self._source(table), table.units
        grid = OnGrid(column=self.column, low=-LIMIT, high=LIMIT, step=self.statistic.step)
        source.check_rules(columns=[grid])

        def scan(contribution: Contribution) -> RunLengths:
            return run_lengths(middle(source.histogram(contribution, grid), n), grid.step)

        return Plan(scan=scan, mechanism=self.statistic)


def middle(runs: Runs, n: int) -> Runs:
    """Returns the n records in the middle of a run-length list, filled up evenly at both ends.

    Guarantee: the answers to two lists of which one has one record more differ in at most one
    record; see :class:`OrderStatistic`.
    """
    many = sum(count for _, count in runs)
    first = (many - n) // 2 + 1  # guard: window-in-the-middle
    kept, rank = [(-LIMIT, max(0, 1 - first))], 1
    for point, count in runs:
        inside = min(rank + count, first + n) - max(rank, first)
        if inside > 0:
            kept.append((point, inside))
        rank += count
    return [*kept, (LIMIT, max(0, first + n - 1 - many))]
