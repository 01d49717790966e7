"""Kinds of budgets of a ledger: the price rule of each, as text that a row of it stores.

A budget of a ledger is charged by the same frozen rules as an account in memory
(:mod:`tightbudget.output_dp.pricing`). Only the kind ``output_dp`` gives anything back; all
others charge the worst case.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.mechanisms.composition import Composable, Composition, compose
from tightbudget.numerics.validate import one_of
from tightbudget.output_dp.amount import exact
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.output_dp.pricing import (
    AdvancedRule,
    BudgetRule,
    GaussianDPRule,
    Guarantee,
    OutputDPRule,
    PlanRule,
    RenyiRule,
    ZCDPRule,
)
from tightbudget.promises.chain import canonical

__all__ = [
    "BLOCK",
    "BLOCKS",
    "KINDS",
    "Guarantee",
    "Stored",
    "content_of",
    "given",
    "guarantee_of",
    "order_of",
    "rule_of",
    "settings",
]

# a guarantee as it is read back from a ledger
Stored = OutputDP | Fraction | Composition

KINDS: Mapping[str, Callable[..., BudgetRule]] = {
    "output_dp": OutputDPRule,
    "zcdp": ZCDPRule,
    "renyi": RenyiRule,
    "gaussian_dp": GaussianDPRule,
    "advanced": AdvancedRule,
    "plan": PlanRule,
}
# The kinds that :mod:`tightbudget.promises.blocks` opens: a set of blocks, and a budget of the set
# that was made by rule. Their parameters are written there; both are charged as ``output_dp`` is.
BLOCKS, BLOCK = "blocks", "block"


def settings(kind: str, parameters: Mapping[str, Any]) -> str:
    """Writes the parameters of a kind as one JSON text, prices as exact fractions.

    :func:`rule_of` makes the price rule from this text.

    Raises:
        ParameterError: a parameter is unknown, missing or refused.
    """
    rule = KINDS[one_of(tuple(KINDS), kind=kind)]
    accepted = inspect.signature(rule).parameters
    for name in parameters:
        if name not in accepted:
            raise ParameterError(
                f"a budget of kind {kind} has no {name} (it has {', '.join(accepted)})"
            )
    told = {name: p.default for name, p in accepted.items()} | dict(parameters)
    for name, value in told.items():
        if value is inspect.Parameter.empty:
            raise ParameterError(f"a budget of kind {kind} needs {name}")
    rule(**told)
    return canonical({name: _plain(name, v) for name, v in told.items() if v is not None})


def rule_of(kind: str, text: str) -> BudgetRule:
    """Makes the price rule of a budget of this kind from the text of :func:`settings`."""
    return _plan_rule(text) if kind == "plan" else _rule(kind, text)


# Each budget of a page or of a reservation asks for its rule, and ten thousand budgets are opened
# on few different terms. Rules never change. A plan may have thousands of parts in memory.
@functools.lru_cache(maxsize=16)
def _plan_rule(text: str) -> BudgetRule:
    """Makes the price rule of a plan from the text of :func:`settings`."""
    return PlanRule(**given(text))


@functools.lru_cache(maxsize=1_000)
def _rule(kind: str, text: str) -> BudgetRule:
    """Makes the price rule of a kind other than a plan from the text of :func:`settings`."""
    if kind in (BLOCKS, BLOCK):
        terms = json.loads(text)
        return OutputDPRule(epsilon=Fraction(terms["epsilon"]), delta=Fraction(terms["delta"]))
    return KINDS[kind](**given(text))


def given(text: str) -> dict[str, Any]:
    """Reads the parameters by name from the text of :func:`settings`."""
    return {name: _given(name, value) for name, value in json.loads(text).items()}


def order_of(text: str) -> float | None:
    """Reads the order of a Renyi budget from its settings: amounts at two orders do not add up.

    None for a budget of another kind.
    """
    order: float | None = json.loads(text).get("order")
    return order


def content_of(guarantee: Guarantee) -> dict[str, Any]:
    """Writes a guarantee as plain JSON values, equal ones alike; :func:`guarantee_of` reads them.

    Raises:
        ParameterError: ``guarantee`` is neither prices by cell, nor a plan, nor a number >= 0.
    """
    if isinstance(guarantee, OutputDP):
        content = guarantee.to_dict()
        content["output_dp"]["cells"].sort(key=json.dumps)
        return content
    if isinstance(guarantee, Composable):
        return compose([guarantee]).to_dict()
    return {"amount": str(exact(guarantee=guarantee))}


def guarantee_of(content: dict[str, Any]) -> Stored:
    """Reads a guarantee that :func:`content_of` wrote."""
    if "output_dp" in content:
        return OutputDP.from_dict(content)
    if "steps" in content:
        return Composition.from_dict(content)
    return Fraction(content["amount"])


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
