"""Parts of a whole: what they hold there, what comes back, and who may talk at the same time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tightbudget as tb

PURE = tb.OutputDP({"number": 0.1, "nothing": 0})
COIN = tb.OutputDP({"number": 0.1, "nothing": 0}, delta=1e-7)


@pytest.fixture
def ledger(url: str) -> Iterator[tb.Ledger]:
    with tb.Ledger(url) as ledger:
        yield ledger
        ledger.verify()


def numbers(budget: tb.ledger.LedgerBudget) -> tuple[float, ...]:
    """Cap, spent, held, left and saved, of epsilon."""
    now = budget.statement()
    return tuple(amount.amount for amount in (now.cap, now.spent, now.held, now.left, now.saved))


def in_parts(budget: tb.ledger.LedgerBudget) -> tuple[float, float]:
    """Epsilon and delta that open parts have spent."""
    spent = budget.statement().spent_in_parts
    assert spent is not None
    return spent.amount, spent.delta


def run(budget: tb.ledger.LedgerBudget, key: str, cell: str, guarantee: tb.OutputDP = COIN) -> None:
    hold = budget.reserve(key, guarantee)
    hold.start()
    hold.settle(cell)


def test_three_floors(ledger: tb.Ledger) -> None:
    """Nothing of what happens below shows above, until a floor is closed."""
    data = ledger.open_budget("data", epsilon=2, delta=1e-5)
    project = ledger.open_budget("project", epsilon=1, delta=1e-6, parent=data)
    ada = ledger.open_budget("ada", epsilon=0.5, delta=5e-7, parent="project")
    run(ada, "A1", "nothing")
    run(ada, "A2", "number")
    assert numbers(ada) == (0.5, 0.1, 0.0, 0.4, 0.1)
    assert numbers(project) == (1.0, 0.0, 0.5, 0.5, 0.0)
    assert numbers(data) == (2.0, 0.0, 1.0, 1.0, 0.0)
    assert [in_parts(b) for b in (ada, project, data)] == [(0.0, 0.0), (0.1, 2e-7), (0.1, 2e-7)]
    run(project, "P1", "nothing")
    ada.close()
    assert numbers(project) == (1.0, 0.1, 0.0, 0.9, 0.2)
    assert (project.spent.delta, project.left.delta) == (6e-7, 4e-7)  # all that ada had
    assert [in_parts(b) for b in (project, data)] == [(0.0, 0.0), (0.1, 6e-7)]
    project.close()
    assert numbers(data) == (2.0, 0.1, 0.0, 1.9, 0.2)
    assert (data.spent.delta, data.left.delta) == (1e-6, 9e-6)
    assert numbers(ada) == (0.5, 0.1, 0.0, 0.0, 0.1)
    assert [b.name for b in ledger.budgets()] == ["data", "project", "ada"]
    assert [b.parent for b in ledger.budgets()] == [None, "data", "project"]
    assert [b.closed for b in ledger.budgets()] == [False, True, True]


def test_the_cap_of_a_part_grows_and_shrinks_in_the_whole(ledger: tb.Ledger) -> None:
    data = ledger.open_budget("data", epsilon=1, delta=1e-6)
    ada = ledger.open_budget("ada", epsilon=0.3, delta=3e-7, parent=data)
    ada.raise_cap(epsilon=0.6, by="eve", reason="more")
    assert numbers(data) == (1.0, 0.0, 0.6, 0.4, 0.0)
    assert (data.held.delta, data.spent.delta) == (3e-7, 0.0)
    run(ada, "A1", "number")
    ada.raise_cap(epsilon=0.2, delta=2e-7, by="eve", reason="less")
    assert numbers(data) == (1.0, 0.0, 0.2, 0.8, 0.0)
    assert (data.held.delta, data.spent.delta) == (2e-7, 1e-7)  # delta is gone
    with pytest.raises(
        tb.errors.BudgetError, match=r"^requested epsilon 0.9, .* of 'data' for 'ada'; le"
    ):
        ada.raise_cap(epsilon=1.1, by="eve", reason="too much")
    with pytest.raises(
        tb.errors.BudgetError, match=r"^the cap of 'ada' cannot be epsilon 0.05, delta 2"
    ):
        ada.raise_cap(epsilon=0.05, by="eve", reason="too little")
    ada.close()
    assert numbers(data) == (1.0, 0.1, 0.0, 0.9, 0.0)
    assert data.spent.delta == 3e-7
    last = [e for e in ada.history() if e.kind == "capped"][-1]
    assert last.details == {
        "by": "eve",
        "reason": "less",
        "parameters": {"epsilon": "1/5", "delta": "1/5000000"},
    }


def test_what_happened_elsewhere_is_added_and_never_taken_off(ledger: tb.Ledger) -> None:
    data = ledger.open_budget("data", epsilon=1, delta=1e-6)
    data.correct(epsilon=0.25, by="eve", reason="a run before there was a ledger")
    data.correct(epsilon=0, delta=1e-7, by="eve", reason="its delta")
    assert (data.spent.epsilon, data.spent.delta) == (0.25, 1e-7)
    with pytest.raises(tb.ParameterError, match=r"epsilon must be a finite number >= 0, got -0.1"):
        data.correct(epsilon=-0.1, by="eve", reason="oops")
    with pytest.raises(
        tb.errors.BudgetError, match=r"does not fit into 'data': left .*; raise its cap f"
    ):
        data.correct(epsilon=0.8, by="eve", reason="too much")
    assert [event.kind for event in data.history()] == ["opened", "corrected", "corrected"]


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        (lambda b: b.raise_cap(epsilon=2, by="", reason="x"), "by must be a text of 1 to 200"),
        (lambda b: b.correct(epsilon=0, by="x", reason=" \n"), "reason must be a text of 1 to 200"),
        (lambda b: b.raise_cap(rho=2, by="x", reason="x"), "a budget of kind output_dp has no rho"),
    ],
)
def test_an_administrator_says_who_and_why(
    ledger: tb.Ledger, deed: Callable[[tb.ledger.LedgerBudget], Any], message: str
) -> None:
    data = ledger.open_budget("data", epsilon=1)
    with pytest.raises(tb.ParameterError, match=f"^{re.escape(message)}"):
        deed(data)
    assert ledger.head().sequence == 1


def test_a_plan_and_an_order_stay_what_they_are(ledger: tb.Ledger) -> None:
    plan = ledger.open_budget("plan", kind="plan", plan=tb.Gaussian(2.0), delta=1e-6)
    renyi = ledger.open_budget("renyi", kind="renyi", order=8, epsilon=1)
    for budget, change in ((plan, {"delta": 1e-5}), (renyi, {"order": 4})):
        with pytest.raises(tb.ParameterError, match=r"has a plan or an order, and keeps it$"):
            budget.raise_cap(**change, by="eve", reason="more")
    renyi.raise_cap(epsilon=2, by="eve", reason="more")
    assert renyi.cap.amount == 2.0


# -------------------------------------------------------------------------- what fits inside


def test_a_part_is_counted_as_its_whole_is(ledger: tb.Ledger) -> None:
    ledger.open_budget("data", epsilon=9, delta=1e-5)
    ledger.open_budget("rho", kind="zcdp", rho=1)
    ledger.open_budget("order 8", kind="renyi", order=8, epsilon=1)
    ledger.open_budget("advanced", kind="advanced", epsilon=5, delta=1e-5)
    ledger.open_budget("plan", kind="plan", plan=tb.Gaussian(9.0), delta=1e-6)
    refused: list[tuple[str, dict[str, Any]]] = [
        ("data", {"kind": "zcdp", "rho": 0.1}),
        ("rho", {"epsilon": 0.1}),
        ("rho", {"kind": "plan", "plan": tb.Gaussian(9.0), "delta": 1e-6}),
        ("order 8", {"kind": "renyi", "order": 4, "epsilon": 0.1}),
        ("plan", {"epsilon": 0}),
    ]
    for parent, terms in refused:
        with pytest.raises(tb.ParameterError, match=r"^'part' must be of the kind of"):
            ledger.open_budget("part", parent=parent, **terms)
    ledger.open_budget("1", parent="rho", kind="zcdp", rho=0.25)
    ledger.open_budget("2", parent="order 8", kind="renyi", order=8, epsilon=0.25)
    ledger.open_budget("3", parent="advanced", kind="advanced", epsilon=1, delta=1e-6)
    ledger.open_budget("4", parent="data", kind="plan", plan=tb.Gaussian(9.0), delta=1e-6)
    for name in ("rho", "order 8"):
        assert ledger.budget(name).held.amount == 0.25


def test_parts_of_each_other_do_not_pay_twice(ledger: tb.Ledger) -> None:
    ledger.open_budget("data", epsilon=9, delta=1e-5)
    ledger.open_budget("project", epsilon=2, delta=1e-6, parent="data")
    for name in ("ada", "bob"):
        ledger.open_budget(name, epsilon=0.5, delta=1e-7, parent="project")
    for whole in ("project", "data"):
        for names in (["ada", whole], [whole, "ada"], ["bob", "ada", whole]):
            with pytest.raises(
                tb.ParameterError, match=r"^budgets must not be parts of each other"
            ):
                ledger.reserve("k", PURE, names)
    hold = ledger.reserve("k", PURE, ["bob", "ada"])
    assert {name: charge.epsilon for name, charge in hold.charges.items()} == {
        "ada": 0.1,
        "bob": 0.1,
    }


def test_several_budgets_of_several_kinds_each_charge_their_own(ledger: tb.Ledger) -> None:
    ledger.open_budget("data", epsilon=1)
    ledger.open_budget("rho", kind="zcdp", rho=1)
    hold = ledger.reserve("k", PURE, ["rho", "data"])
    hold.start()
    assert hold.settle("nothing").epsilon == 0.0
    assert {name: charge.amount for name, charge in hold.charges.items()} == {
        "data": 0.0, "rho": 0.005
    }  # fmt: skip
    ledger.reserve("k2", tb.OutputDP.from_dp(1), ["data", "rho"])
    with pytest.raises(tb.BudgetExceeded) as caught:
        ledger.reserve("k3", PURE, ["rho", "data"])
    assert caught.value.budget == "data"
    assert ledger.budget("rho").held.amount == 0.5  # of k2 alone


# ---------------------------------------------------------------------------- conversations


def test_conversations_side_by_side_need_delta_0_in_the_whole_tree(ledger: tb.Ledger) -> None:
    ledger.open_budget("data", epsilon=9, delta=1e-3)
    ada = ledger.open_budget("ada", epsilon=1, delta=1e-4, parent="data")
    bob = ledger.open_budget("bob", epsilon=1, delta=1e-4, parent="data")
    other = ledger.open_budget("other", epsilon=1, delta=1e-4)
    first = ada.reserve("A1", PURE, interactive=True)
    second = bob.reserve("B1", PURE, interactive=True)
    with pytest.raises(
        tb.errors.SettlementError, match=r"interactive mechanism is open: settle 'A1', 'B"
    ):
        bob.reserve("B2", COIN, interactive=True)
    other.reserve("O1", COIN, interactive=True)  # of another whole
    first.void()
    second.start()
    second.settle("number")
    alone = ada.reserve("A2", COIN, interactive=True)
    for budget, guarantee in ((bob, PURE), (ada, COIN)):
        with pytest.raises(
            tb.errors.SettlementError, match=r"settle 'A2' first \(or all must have delta"
        ):
            budget.reserve("B2", guarantee, interactive=True)
        budget.reserve(f"one-shot of {budget.name}", COIN)  # these are no matter
    alone.forfeit()
    bob.reserve("B2", COIN, interactive=True)


def test_without_refunds_there_is_one_conversation_at_a_time(ledger: tb.Ledger) -> None:
    rho = ledger.open_budget("rho", kind="zcdp", rho=1)
    ledger.open_budget("data", epsilon=1)
    ledger.reserve("D1", PURE, ["data"], interactive=True)
    rho.reserve("R1", PURE, interactive=True)
    with pytest.raises(tb.errors.SettlementError, match="settle 'R1' first"):
        ledger.reserve("R2", PURE, ["data", "rho"], interactive=True)
    ledger.reserve("D2", PURE, ["data"], interactive=True)


# ---------------------------------------------------------------------------------- closing


def test_a_budget_that_somebody_holds_is_not_closed(ledger: tb.Ledger) -> None:
    data = ledger.open_budget("data", epsilon=1)
    ledger.open_budget("ada", epsilon=0, parent=data)
    hold = data.reserve("k", tb.OutputDP({"free": 0}))
    with pytest.raises(
        tb.errors.SettlementError, match=r"^'data' is still held by 'ada', 'k': settle, fo"
    ):
        data.close()
    hold.void()
    ledger.budget("ada").close()
    assert data.close() == data.close() == tb.Amount(0.0, 0.0, "epsilon")
    for deed in (
        lambda: data.reserve("k2", PURE),
        lambda: data.what_if(PURE),
        lambda: ledger.open_budget("bob", epsilon=0, parent=data),
        lambda: data.raise_cap(epsilon=2, by="eve", reason="more"),
        lambda: data.correct(epsilon=0, by="eve", reason="late"),
    ):
        with pytest.raises(tb.errors.SettlementError, match=r"^the budget 'data' is closed$"):
            deed()
    assert not data.can_afford(tb.OutputDP({"free": 0}))
