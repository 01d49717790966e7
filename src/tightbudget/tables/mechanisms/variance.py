"""Says how far the values of a column are from their mean."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tightbudget.numerics.validate import plain_numbers
from tightbudget.tables.error_laws import NoiseLaw, QuotientLaw
from tightbudget.tables.mechanism import NoisyVector, Plan
from tightbudget.tables.mechanisms.bases import ClippedColumn, Filtered
from tightbudget.tables.source import ONE, Contribution
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class Variance(Filtered[float], ClippedColumn[float], NoisyVector[float]):
    r"""Says how much a column varies: the mean square of the distance from the mean.

    The value of a release is a number in [0, (high - low)^2 / 4], all that a variance can be; half
    of that if the noise leaves no rows. It is the variance of the rows that count: their squares
    are divided by their number, not by one less. Its root is their standard deviation.

    With t = (x - low) / (high - low), one scan gives the sums of (1 - t)^2, 2 t (1 - t) and t^2,
    and each gets noise. They add up to the number of rows; the last is the sum of the squares of
    t, and with half of the second it is the sum of t. An answer of a session has an interval
    (:class:`QuotientLaw` has the proof).

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". The three amounts of a row are at least 0 and add up to 1, so a row moves the
    vector by exactly 1 in the 1-norm and at most 1 in the 2-norm, and a unit by at most
    ``rows_per_unit`` in both. On the grid all is multiplied by the square of high - low, and
    is made of integers.

    Args:
        step: of the grid, a power of two; None for the largest with at least 2^16 points. The
            bounds may be at most 2^25 points apart.

    Raises:
        ParameterError: a parameter is refused.
    """

    # squares of 2^25 points are doubles, and engines cut them into parts as such
    _bits = 25

    def plan(self, table: Table) -> Plan:
        """Plans the three sums, which a row moves by the square of the width."""
        source, grid = self._source(table), self._grid
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
        assert isinstance(plan.error, NoiseLaw)
        most = whole * grid.step**2 / 4
        return replace(
            plan,
            noisy_rows=lambda noisy: (float(sum(noisy.tolist()) / whole),),
            error=QuotientLaw(noise=plan.error, sums=3, factor=1.25, low=0.0, high=most),
        )


def _variance(sums: list[float]) -> float:
    """Returns the variance of numbers t in [0, 1] from sums of (1 - t)^2, 2 t (1 - t) and t^2."""
    rows = sum(sums)
    if not rows > 0:
        return 1 / 8
    mean, squares = (sums[1] / 2 + sums[2]) / rows, sums[2] / rows
    nearest = min(max(mean, 0.0), 1.0)  # a number in [0, 1] from which squares are least
    return min(max(squares - mean**2 + (mean - nearest) ** 2, 0.0), 1 / 4)
