"""Kinds of budgets: what a guarantee costs in each, by the formulas of ``output_dp``.

A budget of a ledger is priced by the in-memory account of its kind, which is never charged
itself. Only ``output_dp`` gives anything back; all others charge the worst case.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, Protocol

from tightbudget.errors import ParameterError, PrecisionError
from tightbudget.ledger.chain import canonical
from tightbudget.mechanisms.composition import Composable, Composition, compose
from tightbudget.numerics.rounding import next_down
from tightbudget.numerics.validate import one_of, refuse
from tightbudget.output_dp.account import Amount
from tightbudget.output_dp.amount import Price, exact, exact_probability, printed_up
from tightbudget.output_dp.filter import OutputDPFilter
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.output_dp.worst_case_filters import (
    AdvancedFilter,
    GaussianDPFilter,
    RenyiFilter,
    ZCDPFilter,
)

__all__ = [
    "KINDS",
    "Guarantee",
    "Plan",
    "Rule",
    "Stored",
    "cap_of",
    "content_of",
    "guarantee_of",
    "order_of",
    "rule_of",
    "settings",
]

# what a reservation may be for: prices by cell, a number (rho, mu, a divergence), steps of a plan
Guarantee = OutputDP | Price | Composable
# the same, as it is read back
Stored = OutputDP | Fraction | Composition


class Plan:
    """A fixed plan: mechanisms that are declared in advance, accounted by the engine.

    Guarantee: all that the analyst sees is (epsilon, delta)-DP if each mechanism runs at most
    as often as the plan says, in any order and with anything else in between. It is charged
    whole when it is opened, also if only some of it runs: the engine's epsilon is a theorem
    about all of it, and stopping early for what came out is covered by the whole alone.

    One lemma: a mechanism that a pair (P, Q) dominates answers as if it had looked at a draw
    from that pair alone. So the plan is no better for the analyst than one mechanism that
    shows all draws at once, before anything else.

    Args:
        plan: a composition.
        delta: in [0, 1], the delta at which the plan's epsilon is charged.
    """

    unit: ClassVar[str] = "epsilon"
    side_by_side: ClassVar[bool] = False

    def __init__(self, plan: Composable, delta: Price) -> None:
        if not isinstance(plan, Composable):
            raise refuse("plan", "be a mechanism or a composition", plan)
        self.plan = compose([plan])
        self.delta = exact_probability(delta=delta)

    @property
    def cap(self) -> Amount:
        """The plan's epsilon at its delta, the engine's upper end; and this delta."""
        epsilon = self.epsilon(self.delta)
        if not epsilon < math.inf:
            raise refuse("delta", "be large enough for the plan's epsilon to be finite", self.delta)
        return Amount(Fraction(epsilon), self.delta)

    def epsilon(self, delta: Price) -> float:
        """The plan's epsilon at any delta, the engine's upper end."""
        whole = exact_probability(delta=delta)
        d = float(whole)
        try:
            return self.plan.epsilon(d if Fraction(d) <= whole else next_down(d)).upper
        except PrecisionError as error:  # too wide for the engine, and true all the same
            return error.upper

    def cost(self, guarantee: Any, cell: Cell | None) -> Amount:
        """Nothing more: the plan was charged whole."""
        if not isinstance(guarantee, Composition):
            raise refuse("guarantee", "be steps of the plan", guarantee)
        return Amount(Fraction(0), Fraction(0))


class Rule(Protocol):
    """What the ledger asks of the in-memory account of a kind."""

    unit: ClassVar[str]
    side_by_side: ClassVar[bool]

    @property
    def cap(self) -> Amount | None:
        """What may be spent and held together."""
        ...

    def cost(self, guarantee: Any, cell: Cell | None) -> Amount:
        """What an output in the cell costs; at most, if the cell is None."""
        ...


KINDS: Mapping[str, Callable[..., Rule]] = {
    "output_dp": OutputDPFilter,
    "zcdp": ZCDPFilter,
    "renyi": RenyiFilter,
    "gaussian_dp": GaussianDPFilter,
    "advanced": AdvancedFilter,
    "plan": Plan,
}


def settings(kind: str, parameters: Mapping[str, Any]) -> str:
    """A kind's parameters as one text, prices as exact fractions; :func:`rule_of` reads it.

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


@functools.lru_cache(maxsize=1024)
def rule_of(kind: str, text: str) -> Rule:
    """The account by whose formulas a budget is charged."""
    return KINDS[kind](**given(text))


def given(text: str) -> dict[str, Any]:
    """The parameters that :func:`settings` wrote down."""
    return {name: _given(name, value) for name, value in json.loads(text).items()}


def cap_of(kind: str, text: str) -> Amount:
    """What may be spent and held in a budget of this kind."""
    cap = rule_of(kind, text).cap
    assert cap is not None, "every kind has a cap"
    return cap


def epsilon_at(kind: str, text: str, delta: Price) -> float:
    """The epsilon at which all that such a budget lets through is (epsilon, delta)-DP.

    Raises:
        ParameterError: delta is refused.
    """
    rule = rule_of(kind, text)
    if isinstance(rule, (ZCDPFilter, RenyiFilter, GaussianDPFilter, Plan)):
        return rule.epsilon(delta)
    terms = given(text)
    least = terms.get("delta", Fraction(0))
    if exact_probability(delta=delta) < least:
        raise refuse("delta", f"be at least the budget's, {printed_up(least)}", delta)
    return printed_up(terms["epsilon"])


def order_of(text: str) -> float | None:
    """The order of a Renyi budget; amounts of different ones do not add up."""
    order: float | None = json.loads(text).get("order")
    return order


def content_of(guarantee: Guarantee) -> dict[str, Any]:
    """A guarantee as plain JSON, the same for equal ones; :func:`guarantee_of` reads it.

    Raises:
        ParameterError: it is none.
    """
    if isinstance(guarantee, OutputDP):
        content = guarantee.to_dict()
        content["output_dp"]["cells"].sort(key=json.dumps)
        return content
    if isinstance(guarantee, Composable):
        return compose([guarantee]).to_dict()
    return {"amount": str(exact(guarantee=guarantee))}


def guarantee_of(content: dict[str, Any]) -> Stored:
    """The guarantee that :func:`content_of` wrote down."""
    if "output_dp" in content:
        return OutputDP.from_dict(content)
    if "steps" in content:
        return Composition.from_dict(content)
    return Fraction(content["amount"])


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Composable):
        return compose([value]).to_dict()
    if name == "order":  # a double, not the decimal that it prints as
        return float(value)
    return str(exact(**{name: value}))


def _given(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return Composition.from_dict(value)
    return value if name == "order" else Fraction(value)
