"""A kind of budget as one value: its parameters, its price rule, and what sets it apart."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.mechanisms.composition import Composable, Composition, compose
from tightbudget.output_dp.amount import exact
from tightbudget.output_dp.pricing import BudgetRule
from tightbudget.promises.chain import canonical
from tightbudget.promises.units import Units


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of budget of a ledger.

    A budget is charged by the same frozen rules as an account in memory
    (:mod:`tightbudget.output_dp.pricing`).

    Attributes:
        name: the kind in tables, events and requests, which never changes.
        words: the kind for people.
        rule: makes the price rule from the kind's parameters by name.
        offered: what a form says of the kind; "" where no form opens such a budget.
        in_wholes: the kinds, beside its own, of the budgets that such a budget may be a part of.
        fixed: the parameters that never change, and that a part has in common with its whole.
        charged_whole: whether the whole cap is charged when such a budget is opened, and each run
            takes from the runs that its rule has ``declared``.
        by_set: whether such budgets are opened and charged through their set of blocks alone.
    """

    name: str
    words: str
    rule: Callable[..., BudgetRule]
    offered: str = ""
    in_wholes: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()
    charged_whole: bool = False
    by_set: bool = False

    def settings(self, parameters: Mapping[str, Any]) -> str:
        """Writes the parameters as one JSON text, prices as exact fractions.

        :meth:`rule_of` makes the price rule from this text.

        Raises:
            ParameterError: a parameter is unknown, missing or refused.
        """
        accepted = inspect.signature(self.rule).parameters
        for name in parameters:
            if name not in accepted:
                raise ParameterError(
                    f"a budget of kind {self.name} has no {name} (it has {', '.join(accepted)})"
                )
        told = {name: p.default for name, p in accepted.items()} | dict(parameters)
        for name, value in told.items():
            if value is inspect.Parameter.empty:
                raise ParameterError(f"a budget of kind {self.name} needs {name}")
        self.rule(**told)
        return canonical({name: _plain(name, v) for name, v in told.items() if v is not None})

    def given(self, text: str) -> dict[str, Any]:
        """Reads the parameters by name from the text of :meth:`settings`."""
        return {name: _given(name, value) for name, value in json.loads(text).items()}

    def rule_of(self, text: str) -> BudgetRule:
        """Makes the price rule from the text of :meth:`settings`."""
        return self.rule(**self.given(text))

    def cap_of(self, rule: BudgetRule) -> Units:
        """Returns the units that spent and held may come to.

        A cap is a promise, and is rounded down; but the cap of a budget that is charged whole is
        what it costs.
        """
        rounded = Units.charged if self.charged_whole else Units.granted  # guard: plan-is-a-charge
        return rounded(rule.cap)

    def fits_in(self, text: str, whole: Kind, text_of_whole: str) -> bool:
        """Says whether a budget on these settings is counted as a whole on those settings is."""
        if whole.name != self.name:
            return whole.name in self.in_wholes
        ours, theirs = json.loads(text), json.loads(text_of_whole)
        return all(ours.get(name) == theirs.get(name) for name in self.fixed)


def _plain(name: str, value: Any) -> Any:
    """Writes a parameter of a kind as a plain JSON value."""
    if isinstance(value, Composable):
        return compose([value]).to_dict()
    if name == "order":  # a double, not the decimal that it prints as
        return float(value)
    return str(exact(**{name: value}))


def _given(name: str, value: Any) -> Any:
    """Reads a parameter that :func:`_plain` wrote."""
    if isinstance(value, dict):
        return Composition.from_dict(value)
    return value if name == "order" else Fraction(value)
