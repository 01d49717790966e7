"""Answers a count or a sum at growing precision: the last answer pays for all before it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from tightbudget.numerics.validate import plain_numbers
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release.mechanisms.additive import LaplaceRelease
from tightbudget.release.mechanisms.gradual import GradualRelease
from tightbudget.tables.mechanism import Plan, TableMechanism
from tightbudget.tables.mechanisms.bases import ClippedColumn, Filtered, RowsOrUnits
from tightbudget.tables.mechanisms.count import Count
from tightbudget.tables.mechanisms.rows import as_it_is
from tightbudget.tables.mechanisms.sum import Sum
from tightbudget.tables.table import Table

Answers = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class _Gradual(TableMechanism[Answers]):
    """The base of mechanisms that answer one number at growing precision.

    Args:
        epsilons: ascending, > 0, nats.
        good_enough: a rule that is told all answers so far, and says whether to stop. It must not
            see the data. If it raises, the price of the last answer is charged.
    """

    epsilons: tuple[Price, ...]
    good_enough: Callable[[tuple[float, ...]], bool]

    answered_by = (GradualRelease,)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._once

    @cached_property
    def guarantee(self) -> OutputDP:
        """The output cells 1, 2, ...: the price epsilon_j of j answers."""
        return GradualRelease(as_it_is, 1, self.epsilons, self.good_enough).guarantee

    @property
    @abstractmethod
    def _once(self) -> Count | Sum:
        """The mechanism that answers the number once, at the last epsilon."""

    def plan(self, table: Table) -> Plan:
        """Plans the scan of one answer, and the noise of all of them."""
        plan = self._once.plan(table)
        once = plan.mechanism
        assert isinstance(once, LaplaceRelease)  # it has no delta

        def in_its_unit(answers: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(plan.value(answer) for answer in answers)

        def good_enough(answers: tuple[float, ...]) -> bool:
            return self.good_enough(in_its_unit(answers))

        # the grid and the sensitivity are those of the single answer
        return replace(
            plan,
            mechanism=GradualRelease(
                as_it_is, once.sensitivity, self.epsilons, good_enough, step=once.step
            ),
            value=in_its_unit,
            error=None,  # each answer has another scale
        )


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class GradualCount(Filtered[Answers], RowsOrUnits[Answers], _Gradual):
    """Counts rows or units with less and less noise, until an answer is good enough.

    The value of a release is the tuple of all answers; the last is the most precise. All of them
    come from one scan, and a :class:`GradualRelease` answers.

    Guarantee: {j: epsilon_j} for the number j of answers, delta = 0, for tables of which one has
    all rows of one unit more. A unit moves the count of rows by ``rows_per_unit``, and the
    count of units by 1.

    Raises:
        ParameterError: a parameter is refused.
    """

    @property
    def _once(self) -> Count:
        return Count(epsilon=self.epsilons[-1], of=self.of, where=self.where)


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class GradualSum(Filtered[Answers], ClippedColumn[Answers], _Gradual):
    """Adds up a column with less and less noise, until an answer is good enough.

    The value of a release is the tuple of all answers; the last is the most precise. All of them
    come from one scan, and a :class:`GradualRelease` answers. Values are moved into bounds and
    rounded to a grid, as in :class:`Sum`.

    Guarantee: {j: epsilon_j} for the number j of answers, delta = 0, for tables of which one has
    all rows of one unit more. A unit moves the sum by ``rows_per_unit`` times the largest
    distance of low and high from 0, rounded to the grid.

    Raises:
        ParameterError: a parameter is refused.
    """

    @property
    def _once(self) -> Sum:
        return Sum(
            column=self.column,
            bounds=self.bounds,
            epsilon=self.epsilons[-1],
            step=self.step,
            where=self.where,
        )
