"""The budgets that somebody sees: some by their names, and all blocks of the sets among them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from tightbudget.promises.block_names import is_block, quota


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Budgets by name, and all blocks of some sets, also those that nobody has touched.

    Attributes:
        names: the names of budgets.
        sets: the names of the sets whose blocks belong to them.
        with_quotas: whether the quotas of all analysts in these sets belong to them, too.
    """

    names: frozenset[str] = frozenset()
    sets: frozenset[str] = frozenset()
    with_quotas: bool = False

    @staticmethod
    def of(budgets: Collection[str] | Seen) -> Seen:
        """Returns the budgets of these names, and no others."""
        return budgets if isinstance(budgets, Seen) else Seen(names=frozenset(budgets))

    def __contains__(self, name: object) -> bool:
        """Says whether a budget of this name belongs to them."""
        if name in self.names:
            return True
        return isinstance(name, str) and any(
            name.startswith(f"{of}[") if self.with_quotas else is_block(of, name)
            for of in self.sets
        )

    def and_quotas_of(self, analyst: str) -> Seen:
        """Returns these budgets, and an analyst's quotas in the sets among them."""
        return replace(self, names=self.names.union(quota(of, analyst) for of in self.sets))
