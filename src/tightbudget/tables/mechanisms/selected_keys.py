"""Publishes groups of a table whose keys are secrets, where enough units are in them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeVar

from tightbudget.numerics.validate import plain_numbers, refuse
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release.mechanisms.select_keys import KeyedCounts, SelectKeys
from tightbudget.tables.columns import check_role
from tightbudget.tables.mechanism import Plan
from tightbudget.tables.mechanisms.bases import Filtered
from tightbudget.tables.mechanisms.rows import column_names
from tightbudget.tables.source import Contribution, Key
from tightbudget.tables.table import Table

V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class _Selected(Filtered[V]):
    """A question about groups whose keys are secrets.

    Args:
        by: the column that names the group, or several: integers, text, truth values or dates.
        epsilon: > 0, nats.
        delta: in (0, 1).
    """

    by: str | tuple[str, ...]
    epsilon: Price
    delta: Price

    @property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the price epsilon, with delta."""
        return self._for(1).guarantee

    @abstractmethod
    def _for(self, groups: int) -> KeyedCounts | SelectKeys:
        """Returns the mechanism that answers from the counts, for so many groups of a unit."""

    def plan(self, table: Table) -> Plan:
        """Plans one count of units for each key; a unit moves ``groups_per_unit`` of them by 1."""
        source = self._source(table)
        names, known = column_names(self.by), source.columns
        for name in names:
            if name not in known:
                raise refuse("by", f"name a column of the table ({', '.join(known)})", name)
            check_role(known, "by", name, "secret key")

        def scan(contribution: Contribution) -> dict[Key, int]:
            found = source.groups(contribution, names, [], keys=None)
            return {key: count for key, (count,) in found.items()}

        # guard: selected-groups-move
        return Plan(scan=scan, mechanism=self._for(table.groups))


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class SelectedCounts(_Selected[dict[Key, int]]):
    """Publishes the groups of a table with noisy counts of units that reach a threshold.

    The keys need not be public: they come from the rows. The value of a release is a dictionary
    from each key that is published (a tuple where there are several columns) to its noisy count,
    in the order of the keys' texts. :class:`KeyedCounts` chooses the noise and the threshold.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A unit is counted once in at most ``groups_per_unit`` groups.

    Args:
        noise: "laplace" or "gaussian".

    Raises:
        ParameterError: a parameter is refused.
    """

    noise: Literal["laplace", "gaussian"] = "laplace"

    answered_by = (KeyedCounts,)

    def _for(self, groups: int) -> KeyedCounts:
        return KeyedCounts(
            epsilon=self.epsilon, delta=self.delta, keys_per_unit=groups, noise=self.noise
        )


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class SelectedKeys(_Selected[tuple[Key, ...]]):
    """Publishes the keys of a table's groups without counts, where enough units have them.

    The keys need not be public: they come from the rows. The value of a release is the tuple of
    the keys that are published, in the order of their texts. :class:`SelectKeys` has the
    probabilities.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A unit is counted once in at most ``groups_per_unit`` groups.

    Raises:
        ParameterError: a parameter is refused.
    """

    answered_by = (SelectKeys,)

    def _for(self, groups: int) -> SelectKeys:
        return SelectKeys(epsilon=self.epsilon, delta=self.delta, keys_per_unit=groups)
