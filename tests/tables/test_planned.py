"""A question is planned once, and what was planned is what is asked and paid for."""

from __future__ import annotations

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
    assert asked.noise is plans[0].noise
    plans.clear()
    case.mechanism.release(case.data, meter=tb.OutputDPFilter(10), noise=Silent())
    assert len(plans) == 1


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


@each(
    [
        Without(
            "the plan of a question at the price of another one",
            {"plan-of-this-question": "if False:"},
            a_plan_is_paid_by_its_own_question,
        )
    ]
)
def test_each_guard_guards(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
