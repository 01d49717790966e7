"""Every kind of budget charges what its in-memory account charges, and refunds where it may."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tightbudget as tb
from tightbudget.engine.answer import Answer
from tightbudget.output_dp.account import Account
from tightbudget.output_dp.amount import ExactAmount
from tightbudget.output_dp.pricing import PlanRule, RenyiRule
from tightbudget.promises.kinds import KINDS, rule_of
from tightbudget.promises.pricing import content_of, guarantee_of

PURE = tb.OutputDP({"number": 0.1, "nothing": 0.01})
COIN = tb.OutputDP({"number": 0.1, "nothing": 0.01}, delta=1e-7)
NOISY = tb.release.GaussianRelease(len, sensitivity=1, sigma=20, delta=1e-7).guarantee
PLAN = tb.Gaussian(2.0) * 3 + tb.Laplace(3.0).subsampled(0.1) * 2

# kind: (parameters, guarantees that it takes)
CASES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "output_dp": ({"epsilon": 1, "delta": 1e-6}, [PURE, COIN]),
    "zcdp": ({"rho": 0.5}, [PURE, NOISY, 0.01, tb.Bounds(0.0, 0.02), Fraction(1, 3)]),
    "renyi": ({"order": 8.5, "epsilon": 2}, [PURE, NOISY, 0.01, tb.Bounds(0.0, 0.02)]),
    "gaussian_dp": ({"mu": 1}, [PURE, 0.1, tb.Bounds(0.0, 0.2)]),
    "advanced": ({"epsilon": 1, "delta": 1e-5, "slack": 1e-6}, [PURE, COIN]),
}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[tb.Ledger]:
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        yield ledger
        ledger.verify()


def test_every_kind_has_a_case() -> None:
    assert {*CASES, "plan", "blocks", "block"} == set(KINDS)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", CASES)
def test_the_ledger_charges_what_the_account_in_memory_charges(
    ledger: tb.Ledger, kind: str
) -> None:
    parameters, guarantees = CASES[kind]
    account = Account(KINDS[kind].rule(**parameters))
    assert account.cap is not None
    budget = ledger.open_budget("data", kind=kind, **parameters)
    unit = Fraction(1, 10**12)
    for i, guarantee in enumerate(guarantees):
        hold, twin = budget.reserve(f"k{i}", guarantee), account.reserve(guarantee)
        assert hold.charge.unit == twin.charge.unit == account.unit
        hold.start()
        twin.start()
        for ours, theirs in (
            (hold.charge, twin.charge),
            (hold.settle("nothing"), twin.settle("nothing")),
        ):
            assert 0 <= Fraction(str(ours.amount)) - Fraction(str(theirs.amount)) <= unit
            assert ours.delta == theirs.delta
    refunds = kind == "output_dp"
    assert (budget.saved.amount > 0) == refunds
    spent, cap = Fraction(str(budget.spent.amount)), Fraction(str(budget.cap.amount))
    assert 0 <= account.cap.counted - cap <= unit
    assert Fraction(str(budget.left.amount)) == cap - spent


@pytest.mark.parametrize("kind", [kind for kind in CASES if kind != "output_dp"])
def test_no_other_kind_gives_anything_back(ledger: tb.Ledger, kind: str) -> None:
    parameters, guarantees = CASES[kind]
    budget = ledger.open_budget("data", kind=kind, **parameters)
    hold = budget.reserve("k", guarantees[0])
    held = hold.charge
    hold.start()
    assert hold.settle("nothing") == held == budget.spent
    assert budget.saved.amount == 0


def test_a_price_that_is_summed_is_summed_and_nothing_else(ledger: tb.Ledger) -> None:
    """Advanced composition charges the rare price, although only common cells come out."""
    mostly = tb.OutputDP({"common": Fraction(1, 10**6), "rare": Fraction(1845, 10**4)})
    budget = ledger.open_budget("data", kind="advanced", epsilon=1, delta=1e-6, slack=1e-6)
    hold = budget.reserve("first", mostly)
    hold.start()
    hold.settle("common")
    with pytest.raises(tb.BudgetExceeded):
        budget.reserve("second", mostly)


def test_what_a_budget_lets_through_is_known_at_any_delta(ledger: tb.Ledger) -> None:
    for kind, account in (
        ("zcdp", tb.ZCDPFilter(0.5)),
        ("renyi", tb.RenyiFilter(8.5, 2)),
        ("gaussian_dp", tb.GaussianDPFilter(1)),
    ):
        budget = ledger.open_budget(kind, kind=kind, **CASES[kind][0])
        assert budget.epsilon(1e-6) == account.epsilon(1e-6)
    for kind in ("output_dp", "advanced"):
        budget = ledger.open_budget(kind, kind=kind, epsilon=0.3, delta=1e-5)
        assert budget.epsilon(1e-5) == budget.epsilon(1) == 0.3
        with pytest.raises(tb.ParameterError, match=r"^delta must be at least the budget's, 1e-05"):
            budget.epsilon(9e-6)


# -------------------------------------------------------------------------------- plans


@pytest.mark.slow
def test_a_plan_is_charged_whole_at_the_upper_end_of_the_engine(ledger: tb.Ledger) -> None:
    plan = ledger.open_budget("plan", kind="plan", plan=PLAN, delta=1e-6)
    proved = PLAN.epsilon(1e-6)
    spent = Fraction(str(plan.spent.epsilon))
    assert Fraction(proved.upper) <= spent <= Fraction(proved.upper) + Fraction(2, 10**12)
    assert (plan.left.epsilon, plan.left.delta, plan.spent.delta) == (0.0, 0.0, 1e-6)
    for delta in (1e-9, 1e-3):
        assert plan.epsilon(delta) == PLAN.epsilon(delta).upper


def test_a_plan_runs_what_it_declares_and_no_more(ledger: tb.Ledger) -> None:
    plan = ledger.open_budget("plan", kind="plan", plan=PLAN, delta=1e-6)
    noise, sampled = tb.Gaussian(2.0), tb.Laplace(3.0).subsampled(0.1)
    assert plan.can_afford(noise, 3)
    assert not plan.can_afford(noise, 4)
    assert not plan.can_afford(noise * 2, 2)
    first = plan.reserve("first", noise * 2)
    with pytest.raises(tb.BudgetExceeded) as caught:
        plan.reserve("second", noise * 2)
    assert str(caught.value) == (
        'requested 2 runs of {"mechanism":"gaussian","sigma":2.0}; 1 left of 3 declared'
        " in the plan 'plan'"
    )
    first.void()
    plan.reserve("third", noise * 2 + sampled * 2).start()
    plan.reserve("fourth", noise).forfeit()
    for i, step in enumerate((noise, sampled, tb.Gaussian(2.5))):
        assert not plan.can_afford(step)
        with pytest.raises(tb.BudgetExceeded, match="0 left of"):
            plan.reserve(f"more {i}", step)
    with pytest.raises(tb.BudgetExceeded, match="1 left of 3"):
        plan.reserve("second", noise * 2)  # as it was refused the first time


def test_a_plan_inside_a_budget_costs_it_all_also_if_nothing_ran(ledger: tb.Ledger) -> None:
    data = ledger.open_budget("data", epsilon=9, delta=1e-5)
    plan = ledger.open_budget("plan", kind="plan", plan=PLAN, delta=1e-6, parent=data)
    whole = plan.spent
    assert data.held == whole
    plan.reserve("first", tb.Gaussian(2.0)).void()
    plan.close()
    assert (data.spent, data.held.epsilon) == (whole, 0.0)


def test_a_plan_without_a_finite_epsilon_is_refused(ledger: tb.Ledger) -> None:
    with pytest.raises(tb.ParameterError, match="delta must be large enough"):
        ledger.open_budget("plan", kind="plan", plan=tb.Gaussian(1.0), delta=0)
    assert ledger.budgets() == ()


def test_an_upper_end_that_the_engine_finds_too_wide_is_still_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_wide(*_: Any, **__: Any) -> Answer:
        return Answer(tb.Bounds(1.0, 1.25), reached=False, why="too wide")

    monkeypatch.setattr(tb.Composition, "answer", too_wide)
    assert PlanRule(plan=PLAN, delta=1e-6).cap == ExactAmount(
        counted=Fraction(5, 4), delta=Fraction(1, 10**6)
    )


@given(st.fractions(0, 1).filter(bool))
@settings(max_examples=30)
def test_the_delta_that_the_engine_is_asked_is_not_above_the_plan_s(delta: Fraction) -> None:
    asked = []

    class Asked(tb.Composition):
        def answer(self, **question: Any) -> Answer:
            asked.append(question["delta"])
            return Answer(tb.Bounds(0.0, 1.0))

    plan = PlanRule(plan=PLAN, delta=delta)
    object.__setattr__(plan, "plan", Asked(PLAN.parts))
    plan.epsilon(delta)
    assert delta - Fraction(1, 2**50) * delta <= Fraction(asked[0]) <= delta


# -------------------------------------------------------------------- what is written down


@pytest.mark.parametrize(
    "guarantee",
    [PURE, COIN, NOISY, tb.OutputDP({(1, "a"): 1, 5: 0.5}, sup=2), PLAN, Fraction(1, 3)],
)
def test_a_guarantee_is_read_as_it_was_written(guarantee: Any) -> None:
    assert guarantee_of(content_of(guarantee)) == guarantee


def test_equal_guarantees_are_written_alike() -> None:
    one = tb.OutputDP({"a": 0.1, 1: 0.2, ("a", 2): 0.3}, 1e-6)
    other = tb.OutputDP({("a", 2): 0.3, "a": 0.1, 1: 0.2}, 1e-6)
    assert content_of(one) == content_of(other)
    assert content_of(tb.Gaussian(2.0)) == content_of(tb.Gaussian(2.0) * 1)
    assert content_of(0.1) == content_of(Fraction(1, 10))


@pytest.mark.parametrize("kind", [*CASES, "plan"])
def test_a_kind_is_read_as_it_was_written(kind: str) -> None:
    parameters = CASES[kind][0] if kind in CASES else {"plan": PLAN, "delta": 1e-6}
    again = rule_of(kind, KINDS[kind].settings(parameters))
    rule = KINDS[kind].rule(**parameters)
    assert again == rule
    assert again.cap == rule.cap


@given(st.floats(1.0001, 100))
def test_the_order_is_a_double_and_stays_the_same_one(order: float) -> None:
    text = KINDS["renyi"].settings({"order": order, "epsilon": 1})
    rule = rule_of("renyi", text)
    assert isinstance(rule, RenyiRule)
    assert rule.order == Fraction(order)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda led: led.open_budget("b", kind="pure", epsilon=1), "kind must be one of output_dp"),
        (lambda led: led.open_budget("b"), "a budget of kind output_dp needs epsilon"),
        (
            lambda led: led.open_budget("b", kind="zcdp", epsilon=1),
            "a budget of kind zcdp has no epsilon (it has rho)",
        ),
        (
            lambda led: led.open_budget("b", epsilon=math.nan),
            "epsilon must be a finite number >= 0, got nan",
        ),
        (
            lambda led: led.open_budget("b", epsilon=-1),
            "epsilon must be a finite number >= 0, got -1",
        ),
        (
            lambda led: led.open_budget("b", epsilon=tb.Estimate(1.0, "guess")),
            "epsilon must be certified",
        ),
        (
            lambda led: led.open_budget("b", epsilon=10**7),
            "epsilon must be at least 0 and fit into the ledger's integers, got 10000000.0",
        ),
        (lambda led: led.open_budget("b", epsilon=1, delta=2), "delta must be in [0, 1], got 2"),
        (
            lambda led: led.open_budget("b", kind="plan", plan=3, delta=1e-6),
            "plan must be a mechanism or a composition, got 3",
        ),
        (
            lambda led: led.open_budget("p", kind="plan", plan=PLAN, delta=1e-6).reserve("k", COIN),
            "guarantee must be steps of the plan",
        ),
        (
            lambda led: led.open_budget("z", kind="zcdp", rho=1).reserve("k", COIN),
            "guarantee must have delta = 0, or a known rho, in a budget that counts rho (a budget",
        ),
        (
            lambda led: led.open_budget("z", kind="gaussian_dp", mu=1).reserve("k", NOISY),
            "guarantee must have delta = 0, in a budget that counts mu^2 (a budget of",
        ),
        (
            lambda led: led.open_budget("z", kind="zcdp", rho=1).reserve("k", PLAN),
            "rho must be a finite number >= 0, got Gaussian(sigma=2.0) * 3 + Laplace",
        ),
        (
            lambda led: led.open_budget("d", epsilon=1).reserve("k", 0.1),
            "guarantee must be an OutputDP",
        ),
        (
            lambda led: led.open_budget("d", epsilon=1).reserve("k", tb.Estimate(0.1, "guess")),
            "guarantee must be certified",
        ),
        (
            lambda led: led.open_budget("d", epsilon=1).reserve("k", tb.OutputDP({"a": 10**7})),
            "epsilon must be at least 0 and fit into",
        ),
        (
            lambda led: led.open_budget("d", epsilon=1).reserve("k", "0.1"),
            "guarantee must be a finite number >= 0, got '0.1'",
        ),
    ],
)
def test_refusals(ledger: tb.Ledger, refused: Callable[[tb.Ledger], Any], message: str) -> None:
    with pytest.raises(tb.ParameterError, match=f"^{re.escape(message)}"):
        refused(ledger)
    assert all(event.kind == "opened" for event in ledger.events())


def test_a_run_from_before_there_was_a_rho_is_found_by_its_key(ledger: tb.Ledger) -> None:
    budget = ledger.open_budget("data", epsilon=1, delta=1e-6)
    before = tb.OutputDP(NOISY.cells, NOISY.delta, sup=NOISY.sup)
    first = budget.reserve("A1", before)
    again = budget.reserve("A1", NOISY)
    assert again.charge == first.charge == budget.held
    assert again.guarantee == before
    budget.reserve("A2", NOISY)
    with pytest.raises(tb.KeyConflictError):
        budget.reserve("A2", before)
