"""The kinds of budgets of a ledger. A new kind is one file, and one line in the list here."""

from __future__ import annotations

import functools

from tightbudget.numerics.validate import one_of
from tightbudget.output_dp.pricing import BudgetRule
from tightbudget.promises.kinds.blocks import BLOCK, BLOCKS
from tightbudget.promises.kinds.by_output import OUTPUT_DP
from tightbudget.promises.kinds.kind import Kind
from tightbudget.promises.kinds.plan import PLAN
from tightbudget.promises.kinds.worst_case import ADVANCED, GAUSSIAN_DP, RENYI, ZCDP

__all__ = ["KINDS", "Kind", "names", "openable", "rule_of"]

KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (OUTPUT_DP, ZCDP, RENYI, GAUSSIAN_DP, ADVANCED, PLAN, BLOCKS, BLOCK)
}


def openable(kind: str) -> Kind:
    """Returns the kind of this name, of a budget that is opened by itself.

    Raises:
        ParameterError: there is no such kind.
    """
    return KINDS[one_of(names(), kind=kind)]


def names() -> tuple[str, ...]:
    """Lists the names of the kinds of budgets that are opened by themselves."""
    return tuple(name for name, kind in KINDS.items() if not kind.by_set)


def rule_of(kind: str, text: str) -> BudgetRule:
    """Makes the price rule of a budget of this kind from the text of its settings."""
    return _large_rule(kind, text) if len(text) > _LONG else _rule(kind, text)


# Each budget of a page or of a reservation asks for its rule, and ten thousand budgets are opened
# on few different terms. Rules never change. A plan may have thousands of parts in memory: of
# those with long texts few are kept.
_LONG = 10_000
_large_rule = functools.lru_cache(maxsize=16)(lambda kind, text: KINDS[kind].rule_of(text))
_rule = functools.lru_cache(maxsize=1_000)(lambda kind, text: KINDS[kind].rule_of(text))
