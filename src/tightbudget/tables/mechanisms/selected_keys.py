"""Publishes groups of a table whose keys are secrets, where enough units are in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tightbudget.numerics.validate import plain_numbers, refuse
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.mechanisms.select_keys import KeyedCounts, SelectKeys
from tightbudget.tables.columns import check_role
from tightbudget.tables.mechanism import Plan, TableMechanism
from tightbudget.tables.mechanisms.rows import where_true
from tightbudget.tables.source import Contribution, Key, Rule
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class SelectedCounts(TableMechanism[dict[Key, int]]):
    """Publishes the groups of a table with noisy counts of units that reach a threshold.

    The keys need not be public: they come from the rows. The value of a release is a dictionary
    from each key that is published (a tuple where there are several columns) to its noisy count,
    in the order of the keys' texts. :class:`KeyedCounts` chooses the noise and the threshold.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A unit is counted once in at most ``groups_per_unit`` groups.

    Args:
        by: the column that names the group, or several: integers, text, truth values or dates.
        epsilon: > 0, nats.
        delta: in (0, 1).
        noise: "laplace" or "gaussian".
        where: a column of truth values, or a function of the rows that looks at one row alone;
            None for all rows.

    Raises:
        ParameterError: a parameter is refused.
    """

    by: str | tuple[str, ...]
    epsilon: Price
    delta: Price
    noise: Literal["laplace", "gaussian"] = "laplace"
    where: Rule | None = None

    @property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the price epsilon, with delta."""
        return self._for(1).guarantee

    def plan(self, table: Table) -> Plan:
        """Plans one count of units for each key; a unit moves ``groups_per_unit`` of them by 1."""
        # guard: selected-counts-move
        return _plan(table, self.by, self.where, self._for(table.groups))

    def _for(self, groups: int) -> KeyedCounts:
        """Returns the mechanism that answers from the counts, for so many groups of a unit."""
        return KeyedCounts(
            epsilon=self.epsilon, delta=self.delta, keys_per_unit=groups, noise=self.noise
        )


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class SelectedKeys(TableMechanism[tuple[Key, ...]]):
    """Publishes the keys of a table's groups without counts, where enough units have them.

    The keys need not be public: they come from the rows. The value of a release is the tuple of
    the keys that are published, in the order of their texts. :class:`SelectKeys` has the
    probabilities.

    Guarantee: (epsilon, delta)-DP for tables of which one has all rows of one unit more; one
    cell, "value". A unit is counted once in at most ``groups_per_unit`` groups.

    Args:
        by: the column that names the group, or several: integers, text, truth values or dates.
        epsilon: > 0, nats.
        delta: in (0, 1).
        where: a column of truth values, or a function of the rows that looks at one row alone;
            None for all rows.

    Raises:
        ParameterError: a parameter is refused.
    """

    by: str | tuple[str, ...]
    epsilon: Price
    delta: Price
    where: Rule | None = None

    @property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the price epsilon, with delta."""
        return self._for(1).guarantee

    def plan(self, table: Table) -> Plan:
        """Plans one count of units for each key; a unit moves ``groups_per_unit`` of them by 1."""
        # guard: selected-keys-move
        return _plan(table, self.by, self.where, self._for(table.groups))

    def _for(self, groups: int) -> SelectKeys:
        """Returns the mechanism that answers from the counts, for so many groups of a unit."""
        return SelectKeys(epsilon=self.epsilon, delta=self.delta, keys_per_unit=groups)


def _plan(
    table: Table,
    by: str | tuple[str, ...],
    where: Rule | None,
    mechanism: MechanismOnData[Any, Any],
) -> Plan:
    """Plans a scan for the units of each key that occurs.

    Raises:
        ParameterError: a column is not there, is named twice, or is of a type that is no key.
    """
    rows = where_true(table, where)
    names = (by,) if isinstance(by, str) else tuple(by)
    if not names or len(set(names)) < len(names):
        raise refuse("by", "name one column, or several different ones", by)
    for name in names:
        if name not in rows.columns:
            raise refuse("by", f"name a column of the table ({', '.join(rows.columns)})", name)
        check_role(rows.columns, "by", name, "secret key")

    def scan(contribution: Contribution) -> dict[Key, int]:
        found = rows.source.groups(contribution, names, [], keys=None)
        return {key: count for key, (count,) in found.items()}

    return Plan(scan=scan, mechanism=mechanism)
