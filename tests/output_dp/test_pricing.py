"""Laws of all price rules: values without state, and prices that an account adds up as they are."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tightbudget as tb
from tightbudget.output_dp.account import Account
from tightbudget.output_dp.amount import ZERO, ExactAmount
from tightbudget.output_dp.pricing import (
    AdvancedRule,
    BudgetRule,
    GaussianDPRule,
    OutputDPOdometerRule,
    OutputDPRule,
    PlanRule,
    PriceRule,
    RenyiRule,
    ZCDPRule,
)

PURE = tb.OutputDP({"number": 0.1, "nothing": 0.01})
COIN = tb.OutputDP({"number": 0.1, "nothing": 0.01}, delta=1e-7)
PLAN = tb.Gaussian(2.0) * 3

# the terms of a rule of each kind, guarantees that it takes, and the filter with these terms
CASES: dict[type[BudgetRule], tuple[dict[str, Any], list[Any], Callable[..., Account] | None]] = {
    OutputDPRule: ({"epsilon": 1, "delta": 1e-6}, [PURE, COIN], tb.OutputDPFilter),
    AdvancedRule: ({"epsilon": 1, "delta": 1e-5, "slack": 1e-6}, [PURE, COIN], tb.AdvancedFilter),
    ZCDPRule: ({"rho": 0.5}, [PURE, 0.01, tb.Bounds(0.0, 0.02)], tb.ZCDPFilter),
    RenyiRule: ({"order": 8.5, "epsilon": 2}, [PURE, 0.01], tb.RenyiFilter),
    GaussianDPRule: ({"mu": 1}, [0.1, Fraction(1, 3)], tb.GaussianDPFilter),
    PlanRule: ({"plan": PLAN, "delta": 1e-6}, [tb.Gaussian(2.0) * 2], None),
}
each = pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)


def concrete(kind: type[PriceRule]) -> set[type[PriceRule]]:
    """All classes below ``kind`` of which there are values."""
    found = {kind} if not getattr(kind, "__abstractmethods__", None) else set()
    return found.union(*(concrete(below) for below in kind.__subclasses__()))


def test_every_rule_has_a_case() -> None:
    everyone = {
        kind
        for kind in concrete(PriceRule)  # type: ignore[type-abstract]
        if kind.__module__.startswith("tightbudget.")  # tests have rules of their own
    }
    assert everyone == {*CASES, OutputDPOdometerRule}


@each
def test_a_rule_is_a_value(kind: type[BudgetRule]) -> None:
    terms = CASES[kind][0]
    rule, twin = kind(**terms), kind(**terms)
    assert (rule, hash(rule), repr(rule)) == (twin, hash(twin), repr(twin))
    for name in [field.name for field in dataclasses.fields(rule)]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(rule, name, 0)
    assert rule == twin


@each
def test_terms_are_given_by_name(kind: type[BudgetRule]) -> None:
    with pytest.raises(TypeError, match="positional"):
        kind(*CASES[kind][0].values())


@each
def test_a_rule_that_was_used_is_as_it_was(kind: type[BudgetRule]) -> None:
    """Nothing that is charged by a rule changes what it answers."""
    terms, guarantees, _ = CASES[kind]
    rule = kind(**terms)
    first = [rule.cost(guarantee, None) for guarantee in guarantees]
    account = Account(rule)
    for guarantee in guarantees:
        account.reserve(guarantee).forfeit()
    assert [rule.cost(guarantee, None) for guarantee in guarantees] == first
    assert rule == kind(**terms)
    total = ZERO
    for amount in first:
        total = total.plus(amount)
    assert account._spent == total
    assert account.cap == rule.cap


@each
def test_no_output_costs_more_than_the_worst_case(kind: type[BudgetRule]) -> None:
    terms, guarantees, _ = CASES[kind]
    rule = kind(**terms)
    for guarantee in guarantees:
        held = rule.cost(guarantee, None)
        for cell in ("number", "nothing", "not declared", 3, ("a", 1)):
            price = rule.cost(guarantee, cell)
            assert price.fits(held)
            assert price.delta == held.delta  # a delta never comes back
            # only prices by cell depend on what came out
            assert price == held or isinstance(rule, OutputDPRule)
        assert ZERO.fits(held)


@each
def test_a_filter_charges_by_the_rule_of_its_terms(kind: type[BudgetRule]) -> None:
    terms, guarantees, make = CASES[kind]
    if make is None:
        return
    account, rule = make(**terms), kind(**terms)
    assert (account.unit, account.cap) == (rule.unit, rule.cap)
    for guarantee in guarantees:
        for cell in (None, "number", "not declared"):
            assert account.cost(guarantee, cell) == rule.cost(guarantee, cell)
    if hasattr(account, "epsilon"):
        assert account.epsilon(1e-5) == rule.epsilon(1e-5)


@each
def test_a_larger_delta_never_has_a_larger_epsilon(kind: type[BudgetRule]) -> None:
    rule = kind(**CASES[kind][0])
    found = [rule.epsilon(delta) for delta in (1e-5, 1e-3, 0.1, 0.9)]
    assert found == sorted(found, reverse=True)
    assert min(found) >= 0


@pytest.mark.parametrize("kind", [OutputDPRule, AdvancedRule])
def test_below_its_own_delta_a_budget_has_no_epsilon(kind: type[BudgetRule]) -> None:
    rule = kind(epsilon=Fraction(1, 3), delta=1e-5)  # type: ignore[call-arg]
    for delta in (1e-5, 0.5, 1):
        assert Fraction(repr(rule.epsilon(delta))) >= Fraction(1, 3)
    message = "delta must be at least the budget's, 1e-05, got 9e-06"
    with pytest.raises(tb.ParameterError, match=f"^{re.escape(message)}$"):
        rule.epsilon(9e-6)


def test_an_advanced_filter_says_its_epsilon() -> None:
    account = tb.AdvancedFilter(1, 1e-5)
    assert account.epsilon(1e-5) == account.epsilon(1) == 1.0
    with pytest.raises(tb.ParameterError, match=r"^delta must be at least the budget's, 1e-05"):
        account.epsilon(9e-6)


def test_parts_of_a_plan_cost_nothing_and_others_are_refused() -> None:
    rule = PlanRule(plan=PLAN, delta=1e-6)
    assert rule.cost(tb.Gaussian(2.0) * 1, None) == ZERO
    for other in (COIN, 0.1, tb.Gaussian(2.0)):
        with pytest.raises(tb.ParameterError, match=r"^guarantee must be steps of the plan, got"):
            rule.cost(other, None)


@given(st.fractions(0, 10), st.fractions(0, 1))
def test_an_exact_amount_is_shown_from_the_safe_side(counted: Fraction, delta: Fraction) -> None:
    amount = ExactAmount(counted=counted, delta=delta)
    up, down = amount.up("rho"), amount.down("rho")
    assert up.unit == down.unit == "rho"
    for high, low, exact in ((up.amount, down.amount, counted), (up.delta, down.delta, delta)):
        assert Fraction(repr(low)) <= exact <= Fraction(repr(high))
        assert high - low <= 1e-15 * max(high, 5e-324)
    assert tb.Amount.from_dict(up.to_dict()) == up
