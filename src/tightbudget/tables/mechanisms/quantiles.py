"""Finds quantiles of a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np

from tightbudget.numerics.validate import plain_numbers
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release.mechanisms.quantiles import QuantileRelease
from tightbudget.release.run_lengths import RunLengths
from tightbudget.tables.error_laws import RankLaw
from tightbudget.tables.mechanism import Plan
from tightbudget.tables.mechanisms.bases import ClippedColumn, Filtered
from tightbudget.tables.source import Contribution, Runs
from tightbudget.tables.table import Table

V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class DrawnQuantiles(ClippedColumn[V]):
    """A question for quantiles of a column, which a :class:`QuantileRelease` draws.

    Args:
        probabilities: at least one number in [0, 1], ascending: 0.5 is the median.
        epsilon: nats, at least 1e-9 for each probability: the price of all answers together.
    """

    probabilities: Sequence[Price]
    epsilon: Price

    answered_by = (QuantileRelease,)

    @property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the price epsilon."""
        return self._points.guarantee

    @cached_property
    def _points(self) -> QuantileRelease:
        """The mechanism that answers points of the grid, for one row of a unit."""
        return QuantileRelease(
            probabilities=self.probabilities,
            bounds=(self._grid.low, self._grid.high),
            epsilon=self.epsilon,
            step=1.0,
        )

    def _law(self, mechanism: QuantileRelease, groups: int | None = None) -> RankLaw:
        """Returns what is known of the error of what a mechanism draws on the grid."""
        low, high = self._grid.low * self._grid.step, self._grid.high * self._grid.step
        return RankLaw(mechanism=mechanism, low=low, high=high, groups=groups)


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class Quantiles(Filtered[tuple[float, ...]], DrawnQuantiles[tuple[float, ...]]):
    """Finds quantiles of a column over the rows of a table; how many rows there are is secret.

    The value of a release is a tuple of one number for each probability, in ascending order. The
    rows come as a histogram on the grid, from one scan, and a :class:`QuantileRelease` answers.
    Its rank error says by how many rows the answers may miss, before and after they are asked. It
    grows with ``rows_per_unit``, with the number of quantiles, and with the logarithm of the number
    of grid points: where values are integers, say ``step=1``. After a :class:`Count` of all rows in
    the same session, quantiles of all rows have intervals in values, too.

    Guarantee: epsilon-DP, delta = 0, for tables of which one has all rows of one unit more; one
    cell, "value". A unit has at most ``rows_per_unit`` rows that count.

    Raises:
        ParameterError: a parameter is refused.
    """

    meant: ClassVar[Mapping[str, str]] = {
        "by": "tb.tables.GroupedQuantiles(by=...) has quantiles of each group"
    }

    def plan(self, table: Table) -> Plan:
        """Plans one histogram, in which a unit has at most its rows that count."""
        source, grid = self._source(table), self._grid
        source.check_rules(columns=[grid])

        def scan(contribution: Contribution) -> RunLengths:
            return run_lengths(source.histogram(contribution, grid))

        mechanism = replace(self._points, rows_per_unit=table.rows)
        return Plan(
            scan=scan,
            mechanism=mechanism,
            value=lambda points: tuple(point * grid.step for point in points),
            error=self._law(mechanism),
        )


def run_lengths(runs: Runs, step: float = 1.0) -> RunLengths:
    """Returns the histogram of a column as a run-length list of multiples of a step.

    Args:
        runs: points of at most 53 bits, and how many rows have each.
        step: a power of two, so that the products are exact.
    """
    points = np.array([point for point, _ in runs], dtype=np.float64)
    return RunLengths(points * step, np.array([count for _, count in runs], dtype=np.int64))
