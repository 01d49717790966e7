"""Counts the rows between public edges."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import finite, plain_numbers, refuse
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.bases import Filtered
from tightbudget.tables.source import Contribution, OnGrid, Rule, on_grid
from tightbudget.tables.table import Table

Bins = dict[tuple[float, float], int]


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class HistogramCounts(Filtered[Bins], NoisyVector[Bins]):
    """Counts the rows whose values are between public edges.

    The value of a release is a dictionary from each bin, a pair (from, to) of edges that follow
    one another, to its noisy count. A bin has its first edge and not its second; the last bin has
    both. Values outside of the edges do not count, and missing ones do not.

    Values and edges are rounded to a grid, up from the middle of two points, before they are
    compared. So a value less than a step below an edge may count above it. Integers and edges that
    are integers are compared exactly if the step is at most 1.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A row counts in one bin at most, so a unit moves the vector of all counts by at
    most ``rows_per_unit``, in the 1-norm and, if all its rows are in one bin, in the 2-norm. The
    price does not depend on the number of bins.

    Args:
        column: a column of numbers, or a function of the rows that looks at one row alone.
        edges: at least two public numbers that ascend; for a column that names groups, use
            :class:`GroupedCounts`.
        step: of the grid, a power of two; None for the largest with at least 2^16 points.

    Raises:
        ParameterError: a parameter is refused.
    """

    column: Rule
    edges: Sequence[float]
    step: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", _ascending(self.edges))
        _ = self._points
        super().__post_init__()

    @cached_property
    def _grid(self) -> OnGrid:
        """The column as integers, with a point below the first edge and one above the last."""
        grid = on_grid(self.column, (self.edges[0], self.edges[-1]), self.step)
        return replace(grid, low=grid.low - 1, high=grid.high + 1)

    @cached_property
    def _points(self) -> list[int]:
        """The points of the edges."""
        step = self._grid.step
        points = [
            math.floor(Fraction(edge) / Fraction(step) + Fraction(1, 2)) for edge in self.edges
        ]
        for (a, b), (i, j) in zip(
            itertools.pairwise(self.edges), itertools.pairwise(points), strict=True
        ):
            if i == j:
                raise ParameterError(f"step must be finer: the edges {a} and {b} are one point")
        return points

    def plan(self, table: Table) -> Plan:
        """Plans one count for each bin, of which a row moves one."""
        source, edges = self._source(table), self._points
        source.check_rules(columns=[self._grid])
        bins = list(itertools.pairwise(self.edges))

        def scan(contribution: Contribution) -> list[int]:
            counts = [0] * len(bins)
            for point, rows in source.histogram(contribution, self._grid):
                if edges[0] <= point <= edges[-1]:
                    # the last edge belongs to the last bin
                    counts[min(bisect_right(edges, point), len(bins)) - 1] += rows
            return counts

        moves = table.rows  # guard: histogram-moves
        return self.noisy(
            scan,
            size=len(bins),
            l1=moves,
            l2=moves,
            value=lambda noisy: dict(zip(bins, noisy.tolist(), strict=True)),
        )


def _ascending(edges: Any) -> tuple[float, ...]:
    """Returns edges as a tuple of numbers that ascend.

    Raises:
        ParameterError: they are none.
    """
    if edges is None or isinstance(edges, (str, bytes)) or not hasattr(edges, "__iter__"):
        must = "be public numbers that ascend; GroupedCounts counts the rows of public keys"
        raise refuse("edges", must, edges)
    numbers = tuple(finite(**{f"edges[{i}]": edge}) for i, edge in enumerate(edges))
    if len(numbers) < 2 or not all(a < b for a, b in itertools.pairwise(numbers)):
        raise refuse("edges", "be at least two numbers that ascend", numbers)
    return numbers
