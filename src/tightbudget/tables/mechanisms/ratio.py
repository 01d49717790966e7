"""Divides one sum or count by another, of the same scan."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release.mechanisms.additive import GaussianRelease, LaplaceRelease
from tightbudget.tables.error_laws import NoiseLaw, RatioLaw
from tightbudget.tables.mechanism import Plan, TableMechanism
from tightbudget.tables.mechanisms.count import Count
from tightbudget.tables.mechanisms.grouped_counts import GroupedCounts
from tightbudget.tables.mechanisms.grouped_sums import GroupedSums
from tightbudget.tables.mechanisms.rows import column_names
from tightbudget.tables.mechanisms.sum import Sum
from tightbudget.tables.source import Key
from tightbudget.tables.table import Table
from tightbudget.tables.together import Together

Quotients = float | None | dict[Key, float | None]


@dataclass(frozen=True, kw_only=True)
class Ratio(TableMechanism[Quotients]):
    """Divides the answer of a count or a sum by that of another one, from one scan.

    The value of a release is the noisy numerator divided by the noisy denominator; for two
    questions by group a dictionary from each key to that. It is None where the noise leaves no
    denominator above 0. An answer of a session has an interval, from the two noisy numbers alone
    (:class:`RatioLaw` has the proof).

    The share of rows for which a condition is true has less noise as a :class:`Mean` of the
    condition with the bounds (0, 1), and so has a mean of values by rows.

    Guarantee: the product of both guarantees, whose prices and deltas add up; one cell,
    ("value", "value"). The quotient is made of what both have released.

    Args:
        numerator: a :class:`Count`, :class:`Sum`, :class:`GroupedCounts` or :class:`GroupedSums`.
        denominator: another one; both are by the same groups, or none is.

    Raises:
        ParameterError: a parameter is refused.
    """

    numerator: TableMechanism[Any]
    denominator: TableMechanism[Any]

    answered_by = (LaplaceRelease, GaussianRelease)

    def __post_init__(self) -> None:
        groups = []
        for name in ("numerator", "denominator"):
            question = getattr(self, name)
            if not isinstance(question, (Count, Sum, GroupedCounts, GroupedSums)):
                must = "be a Count, a Sum, a GroupedCounts or a GroupedSums"
                raise refuse(name, must, type(question).__name__)
            by = getattr(question, "by", None)
            groups.append(None if by is None else column_names(by))
        if groups[0] != groups[1]:
            raise ParameterError("numerator and denominator must be by the same groups, or by none")
        super().__post_init__()

    @property
    def by(self) -> tuple[str, ...]:
        """The columns that name a group; none where there are no groups."""
        return column_names(getattr(self.numerator, "by")) if self._grouped else ()  # noqa: B009

    @property
    def _grouped(self) -> bool:
        return hasattr(self.numerator, "by")

    @property
    def guarantee(self) -> OutputDP:
        """The product of both guarantees."""
        return self._both.guarantee

    @property
    def _both(self) -> Together:
        return Together(questions=(self.numerator, self.denominator))

    def plan(self, table: Table) -> Plan:
        """Plans both questions, and the division of their answers."""
        both = self._both.plan(table)
        above, below = (part.error for part in both.parts)
        assert isinstance(above, NoiseLaw)
        assert isinstance(below, NoiseLaw)

        def numbers(found: Any) -> list[tuple[Any, Any, Any]]:
            (one, _, _), (other, _, _) = both.value(found)
            if not self._grouped:
                return [(None, one, other)]
            return [(key, number, other[key]) for key, number in one.items()]

        def value(found: Any) -> Quotients:
            divided = {key: quotient(number, by) for key, number, by in numbers(found)}
            return divided if self._grouped else divided[None]

        return replace(
            both,
            value=value,
            noisy_rows=lambda found: tuple(float(by) for _, _, by in numbers(found)),
            error=RatioLaw(numerator=above, denominator=below),
        )


def quotient(number: Any, by: Any) -> float | None:
    """Returns a quotient; None where the divisor is not above 0, or no double is as large."""
    found = float(number) / float(by) if by > 0 else math.inf
    return found if math.isfinite(found) else None
