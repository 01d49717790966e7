"""Says how far the values of a column are from their mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from tightbudget.numerics.validate import plain_numbers
from tightbudget.output_dp.amount import Price
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.rows import check_width, where_true
from tightbudget.tables.source import ONE, Contribution, OnGrid, Rule, on_grid
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class Variance(NoisyVector[float]):
    r"""Says how much a column varies: the mean square of the distance from the mean.

    The value of a release is a number in [0, (high - low)^2 / 4], all that a variance can be; half
    of that if the noise leaves no rows. It is the variance of the rows that count: their squares
    are divided by their number, not by one less. Its root is their standard deviation.

    With t = (x - low) / (high - low), one scan gives the sums of (1 - t)^2, 2 t (1 - t) and t^2,
    and each gets noise. They add up to the number of rows; the last is the sum of the squares of
    t, and with half of the second it is the sum of t.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". The three amounts of a row are at least 0 and add up to 1, so a row moves the
    vector by exactly 1 in the 1-norm and at most 1 in the 2-norm, and a unit by at most
    ``rows_per_unit`` in both. On the grid all is multiplied by the square of high - low, and
    is made of integers.

    Args:
        column: a column of numbers, or a function of the rows that looks at one row alone.
        bounds: (low, high), public; a missing value counts as low.
        epsilon: > 0, nats.
        delta: in [0, 1): discrete Laplace noise at 0, and discrete Gaussian noise otherwise.
        step: of the grid, a power of two; None for the largest with at least 2^16 points. The
            bounds may be at most 2^25 points apart.
        where: a column of truth values, or a function of the rows; None for all rows.

    Raises:
        ParameterError: a parameter is refused.
    """

    column: Rule
    bounds: tuple[float, float]
    epsilon: Price
    delta: Price = 0
    step: float | None = None
    where: Rule | None = None

    def __post_init__(self) -> None:
        # squares of 2^25 points are doubles, and engines cut them into parts as such
        check_width(self._grid, bits=25)
        super().__post_init__()

    @cached_property
    def _grid(self) -> OnGrid:
        """The column as integers."""
        return on_grid(self.column, self.bounds, self.step)

    def plan(self, table: Table) -> Plan:
        """Plans the three sums, which a row moves by the square of the width."""
        source, grid = where_true(table, self.where).source, self._grid
        whole = (grid.high - grid.low) ** 2
        squares = [replace(grid, origin=end, power=2) for end in (grid.low, grid.high)]
        source.check_rules(columns=squares)

        def scan(contribution: Contribution) -> list[int]:
            rows, from_low, from_high = source.sums(contribution, [ONE, *squares])
            return [from_high, rows * whole - from_low - from_high, from_low]

        moves = table.rows * whole  # guard: variance-moves
        plan = self.noisy(
            scan,
            size=3,
            l1=moves,
            l2=moves,
            step=grid.step**2,
            value=lambda noisy: _variance(noisy.tolist()) * whole * grid.step**2,
        )
        return replace(plan, noise=None)  # the noise of a quotient depends on the data


def _variance(sums: list[float]) -> float:
    """Returns the variance of numbers t in [0, 1] from sums of (1 - t)^2, 2 t (1 - t) and t^2."""
    rows = sum(sums)
    if not rows > 0:
        return 1 / 8
    mean, squares = (sums[1] / 2 + sums[2]) / rows, sums[2] / rows
    return min(max(squares - mean**2, 0.0), 1 / 4)
