"""Finds quantiles of a column in groups whose keys are public."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tightbudget.numerics.validate import plain_numbers, refuse
from tightbudget.output_dp.amount import exact
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.mechanisms.quantiles import LEAST_EPSILON, QuantileRelease
from tightbudget.release.noise.noise import Noise
from tightbudget.release.run_lengths import RunLengths
from tightbudget.tables.mechanism import Plan
from tightbudget.tables.mechanisms.bases import Filtered, InGroups
from tightbudget.tables.mechanisms.quantiles import DrawnQuantiles, run_lengths
from tightbudget.tables.mechanisms.rows import public_keys
from tightbudget.tables.source import Contribution, Key
from tightbudget.tables.table import Table

Found = dict[Key, tuple[float, ...]]


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class GroupedQuantiles(Filtered[Found], DrawnQuantiles[Found], InGroups[Found]):
    """Finds quantiles of a column in each group; the keys are those that the table declares.

    The value of a release is a dictionary from each key of the domain (a tuple of keys where there
    are several columns) to a tuple of one number for each probability, in ascending order: with
    ``probabilities=(0.5,)``, to the median of the group. Rows with other keys do not count. One
    scan counts the points of all groups, and in each group the answers are drawn as by
    :class:`Quantiles`. A group without rows gets random points between the bounds.

    The rank error holds for the quantiles of all groups together. It is in rows, and most groups
    are small: see that it is less than the rows that you expect in a group.

    Guarantee: epsilon-DP, delta = 0, for tables of which one has all rows of one unit more; one
    cell, "value". The price does not depend on the number of groups. Proof: of at most r =
    ``rows_per_unit`` rows, let a unit have r_g in the group g. The rate of a
    :class:`QuantileRelease` is made for r rows more, and r_g rows move the logarithm of each of
    its probabilities by at most r_g / r of that. Where they are none, nothing moves. The r_g add
    up to r at most, and draws in different groups are independent. A unit is in at most
    ``groups_per_unit`` groups, so that roundings are paid for with an epsilon of at least 1e-9 for
    each probability and each of these groups.

    Raises:
        ParameterError: a parameter is refused.
    """

    def plan(self, table: Table) -> Plan:
        """Plans a histogram of each public key, in all of which a unit has at most its rows.

        Raises:
            ParameterError: epsilon is too small for so many groups of a unit.
        """
        source, grid = self._source(table), self._grid
        by, keys = public_keys(table, self.by)
        source.check_rules(columns=[grid])
        touched = min(len(keys), table.groups)
        least = LEAST_EPSILON * len(self._points.probabilities) * touched
        if exact(epsilon=self.epsilon) < least:  # guard: roundings-of-groups
            must = f"be at least 1e-9 for each probability and each of {touched} groups of a unit"
            raise refuse("epsilon", must, self.epsilon)

        def scan(contribution: Contribution) -> list[RunLengths]:
            found = source.histograms(contribution, by, grid, keys=keys)
            return [run_lengths(found.get(key, [])) for key in keys]

        # guard: grouped-quantiles-moves
        mechanism = replace(self._points, rows_per_unit=table.rows)
        return Plan(
            scan=scan,
            mechanism=QuantilesOfGroups(search=mechanism),
            value=lambda found: {
                key: tuple(point * grid.step for point in points)
                for key, points in zip(keys, found, strict=True)
            },
            error=self._law(mechanism, len(keys)),
        )


@dataclass(frozen=True, kw_only=True)
class QuantilesOfGroups(MechanismOnData[list[RunLengths], list[tuple[float, ...]]]):
    """Draws quantiles of several columns, each by the same mechanism; it answers for a plan.

    Guarantee: epsilon-DP as its search, for data of which one has at most ``rows_per_unit``
    records more, in all columns together; :class:`GroupedQuantiles` has the proof.

    Args:
        search: draws the quantiles of one column.
    """

    search: QuantileRelease

    @property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the price of the search."""
        return self.search.guarantee

    def _run(self, data: list[RunLengths], noise: Noise) -> tuple[list[tuple[float, ...]], Cell]:
        return [self.search.unpaid_answer(column, noise)[0] for column in data], "value"
