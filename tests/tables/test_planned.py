"""A question is planned once, and what was planned is what is asked and paid for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.tables.cases import CASES, COLUMNS, Case, in_duckdb, table
from tests.tables.test_laws import Silent

import tightbudget as tb
from tightbudget.release.mechanisms.additive import GaussianRelease

COUNT = tb.Count(epsilon=0.5)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_question_is_planned_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    plans, kind = list[Any](), type(case.mechanism)
    plan = kind.plan

    def counted(self: Any, data: Any) -> Any:
        plans.append(plan(self, data))
        return plans[-1]

    monkeypatch.setattr(kind, "plan", counted)
    asks = tb.Session(case.data, tb.OutputDPFilter(10), noise=Silent())
    asked = asks.ask(case.mechanism)
    assert len(plans) == 1
    assert asked.error is plans[0].error
    plans.clear()
    case.mechanism.release(case.data, meter=tb.OutputDPFilter(10), noise=Silent())
    assert len(plans) == 1


def counted(rule: Callable[[Any], Any], calls: list[str]) -> Callable[[Any], Any]:
    """A rule that keeps the columns that it was called with."""

    def called(t: Any) -> Any:
        calls.append(" ".join(t.columns))
        return rule(t)

    return called


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "make",
    [
        lambda x, w: tb.Count(epsilon=0.5, where=w),
        lambda x, w: tb.Mean(column=x, bounds=(-1, 4), epsilon=0.5, where=w),
        lambda x, w: tb.GroupedMeans(by="k", column=x, bounds=(-1, 4), epsilon=0.5, where=w),
        lambda x, w: tb.HistogramCounts(column=x, edges=(-1, 0, 4), epsilon=0.5, where=w),
        lambda x, w: tb.Counts(where=(w, lambda t: x(t) > 1), epsilon=0.5),
    ],
    ids=["count", "mean", "grouped means", "histogram", "counts"],
)
@pytest.mark.parametrize("keyed", [False, True])
def test_a_rule_is_called_once_for_a_question(make: Any, keyed: bool) -> None:
    """Once for the key, the plan and the scan together; and anew for the next question."""
    x_calls, w_calls = list[str](), list[str]()
    question = make(
        counted(lambda t: t.x * 2, x_calls),
        counted(lambda t: t.j > 0, w_calls),
    )
    asks = tb.Session(in_duckdb(2), Keys(10) if keyed else tb.OutputDPFilter(10), noise=Silent())
    for asked in (1, 2):
        asks.ask(question)
        assert len(w_calls) == asked
        assert len(x_calls) == (0 if isinstance(question, tb.Count) else asked)
    asks.what_if([question])
    assert len(w_calls) == 3


def test_a_rule_is_called_before_the_price_is_held() -> None:
    """A function that gives another expression when it is called again is not called again."""
    columns = iter("xj")
    changes = tb.Sum(column=lambda t: t[next(columns)] * 1, bounds=(-1, 4), epsilon=0.5)
    meter = tb.OutputDPFilter(1)
    asked = tb.Session(in_duckdb(), meter, noise=Silent()).ask(changes)
    plain = tb.Sum(column=lambda t: t.x * 1, bounds=(-1, 4), epsilon=0.5)
    assert asked.value == plain.release(in_duckdb(), meter=meter, noise=Silent()).value


class Keys(tb.OutputDPFilter):
    """A budget that wants a key for each run."""

    def keyed(self, key: str) -> tb.OutputDPFilter:
        return tb.OutputDPFilter(10)


def test_noise_is_calibrated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[Any]()
    of_epsilon = GaussianRelease.of_epsilon

    def counted(*given: Any, **named: Any) -> GaussianRelease:
        made.append(of_epsilon(*given, **named))
        return made[-1]

    monkeypatch.setattr(GaussianRelease, "of_epsilon", counted)
    asks = tb.Session(in_duckdb(), tb.OutputDPFilter(10, 1e-3), noise=Silent())
    asks.ask(tb.Count(epsilon=0.5, delta=1e-6))
    assert len(made) == 1


def a_plan_is_paid_by_its_own_question() -> bool:
    dear = tb.Count(epsilon=5).planned(table(COLUMNS))
    meter = tb.OutputDPFilter(1)
    try:
        COUNT.release(dear, meter=meter, noise=Silent())
    except tb.ParameterError:
        return meter.spent == meter.held == tb.Amount(0.0, 0.0, "epsilon")
    return False


def test_the_plan_of_another_question_is_refused_and_costs_nothing() -> None:
    assert a_plan_is_paid_by_its_own_question()
    said = r"^data must be planned by this very question, got 'Count'$"
    with pytest.raises(tb.ParameterError, match=said):
        COUNT.release(tb.Count(epsilon=0.5).planned(table(COLUMNS)), meter=tb.OutputDPFilter(1))


def test_what_was_planned_is_released_and_rehearsed() -> None:
    planned = COUNT.planned(table(COLUMNS))
    done = COUNT.release(planned, meter=tb.OutputDPFilter(1), noise=Silent())
    assert done.value == np.size(COLUMNS["x"])
    assert COUNT.rehearse(planned, noise=Silent()).cost.epsilon == 0.5


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_question_is_answered_by_the_mechanism_that_it_names(case: Case) -> None:
    mechanism: Any = case.mechanism.plan(case.data).mechanism
    answered_by = case.mechanism.answered_by
    # a search that is asked all questions in turn stands in a mechanism of its own
    assert isinstance(mechanism, answered_by) or isinstance(mechanism.search, answered_by)


@dataclass(frozen=True, kw_only=True)
class Cheap(tb.Count):
    """Counts at the price of another cell, delta or epsilon than its noise is made for."""

    price: tb.OutputDP

    @property
    def guarantee(self) -> tb.OutputDP:
        """What it says that it costs."""
        return self.price


def a_plan_costs_no_more_than_its_question() -> bool:
    meter = tb.OutputDPFilter(1)
    try:
        Cheap(epsilon=0.5, price=tb.OutputDP({"value": 0.4})).release(
            table(COLUMNS), meter=meter, noise=Silent()
        )
    except tb.ParameterError:
        return meter.spent == meter.held == tb.Amount(0.0, 0.0, "epsilon")
    return False


@pytest.mark.parametrize(
    ("delta", "price", "said"),
    [
        (
            0,
            tb.OutputDP({"value": 0.4}),
            "the plan costs more than its question in the cell 'value",
        ),
        (0, tb.OutputDP({"all": 0.5}), "the plan costs more than its question in the cell 'val"),
        (1e-6, tb.OutputDP({"value": 0.5}, 1e-7), "the plan has a larger delta than its question"),
        (0, tb.OutputDP({"value": 0.5}, rho=0.1), "the plan has a larger rho than its question"),
    ],
)
def test_a_question_with_a_wrong_price_is_refused(
    delta: float, price: tb.OutputDP, said: str
) -> None:
    asks = tb.Session(table(COLUMNS), tb.OutputDPFilter(1, 1e-3), noise=Silent())
    with pytest.raises(tb.ParameterError, match=said):
        asks.ask(Cheap(epsilon=0.5, delta=delta, price=price))
    assert asks.left == tb.Amount(1.0, 1e-3, "epsilon")


def test_a_question_may_cost_more_than_its_plan() -> None:
    asks = tb.Session(table(COLUMNS), tb.OutputDPFilter(1), noise=Silent())
    dear = Cheap(epsilon=0.5, price=tb.OutputDP({"value": 0.6, "other": 0.7}))
    assert asks.ask(dear).receipt.charged.epsilon == 0.6


@each(
    [
        Without(
            "the plan of a question at the price of another one",
            {"plan-of-this-question": "if False:"},
            a_plan_is_paid_by_its_own_question,
        ),
        Without(
            "a plan that costs more than its question",
            {"plan-within-its-price": "pass"},
            a_plan_costs_no_more_than_its_question,
        ),
    ]
)
def test_each_guard_guards(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
