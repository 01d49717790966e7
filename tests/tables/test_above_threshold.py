"""A conversation about the counts of one scan."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.release.test_laws import Broken, Journal, Seeded, Untouchable
from tests.tables.cases import COLUMNS, in_duckdb, table
from tests.tables.test_laws import Silent, fails, scans_fail

import tightbudget as tb
from tightbudget.errors import SourceError
from tightbudget.tables import AboveThreshold

QUESTIONS = (("w", 20), ("v", 30), ("v", 1))
SEARCH = AboveThreshold(questions=QUESTIONS, epsilon=1, aboves=3)
NOTHING = tb.Amount(0.0, 0.0, "epsilon")


def test_questions_are_answered_in_any_order_and_settled_by_what_was_found() -> None:
    meter = tb.OutputDPFilter(1)
    with SEARCH.open(table(COLUMNS), meter=meter, noise=Silent()) as run:
        assert [run.ask(1), run.ask(1), run.ask(1)] == [False] * 3
    release = run.release()
    assert release.value == (False,) * 3
    assert release.cell == 0
    assert meter._spent.counted == SEARCH.guarantee.price(0)
    with SEARCH.open(table(COLUMNS), meter=tb.OutputDPFilter(1), noise=Silent()) as run:
        assert [run.ask(2), run.ask(0)] == [True, True]
        assert not run.done
    assert run.release().cell == 4  # both at the second look, which counts 2


def test_all_questions_in_turn_are_the_conversation() -> None:
    for seed in range(20):
        whole = SEARCH.release(table(COLUMNS), meter=tb.OutputDPFilter(1), noise=Seeded(seed))
        with SEARCH.open(table(COLUMNS), meter=tb.OutputDPFilter(1), noise=Seeded(seed)) as run:
            for number in range(3):
                if not run.done:
                    run.ask(number)
        assert run.release() == whole


def beyond(i: int) -> Callable[[Any], Any]:
    return lambda t: t.j * 100 > i


def test_many_questions_are_one_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    data, asked = in_duckdb(60), list[Any]()
    source: Any = data.source
    backend = type(source.connection)
    answer = backend.to_pyarrow

    def counted(self: Any, query: Any) -> Any:
        asked.append(query)
        return answer(self, query)

    monkeypatch.setattr(backend, "to_pyarrow", counted)
    j = COLUMNS["j"]
    many = AboveThreshold(
        questions=[(beyond(i), 5) for i in range(0, 300, 10)],
        epsilon=1,
        aboves=30,
    )
    answer_ = many.release(data, meter=tb.OutputDPFilter(1), noise=Silent())
    assert len(asked) == 2  # the first asks for no row: it finds a connection that was lost
    truth = [int(np.count_nonzero(j * 100 > i)) >= 5 for i in range(0, 300, 10)]
    assert list(answer_.value) == truth
    assert {True, False} == set(truth)


@pytest.mark.parametrize("number", [3, -1, True, 1.0, "w", None])
def test_a_number_of_no_question_is_refused_and_costs_nothing(number: Any) -> None:
    meter = tb.OutputDPFilter(1)
    must = rf"^number must be the number of a question, in 0, \.\.\., 2, got {number!r}$"
    with (
        pytest.raises(tb.ParameterError, match=must),
        SEARCH.open(table(COLUMNS), meter=meter, noise=Silent()) as run,
    ):
        run.ask(number)
    assert run.release().cell == 0
    assert meter._spent.counted == SEARCH.guarantee.price(0)


def refusal_is_free() -> bool:
    meter = tb.OutputDPFilter(1)
    try:
        with SEARCH.open(table(COLUMNS), meter=meter, noise=Silent()) as run:
            run.ask(7)
    except tb.ParameterError:
        pass
    return meter._spent.counted == SEARCH.guarantee.price(0)


@each(
    [
        Without(
            "the refusal of a number ends the run",
            {"number-refused-unpaid": "raise refuse('number', must, number)"},
            refusal_is_free,
        ),
        Without(
            "an error that is kept keeps the table",
            {"kept-error-without-table": "pass"},
            lambda: error_keeps_no_table(),
        ),
    ]
)
def test_each_guard_guards(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)


def test_the_order_is_reserve_start_settle() -> None:
    journal = Journal(tb.OutputDPFilter(1))
    with SEARCH.open(table(COLUMNS), meter=journal, noise=Silent()) as run:
        assert journal.asked == ["reserve", "start"]
        run.ask(0)
    assert journal.asked == ["reserve", "start", "settle"]


def test_what_does_not_fit_is_refused_before_the_table_is_touched() -> None:
    touched: Any = Untouchable()
    meter = tb.OutputDPFilter(0.9)
    with pytest.raises(tb.errors.BudgetError), SEARCH.open(touched, meter=meter, noise=Silent()):
        pass
    assert meter.spent == meter.held == NOTHING


def test_what_is_no_table_costs_nothing() -> None:
    no_table: Any = dict(COLUMNS)
    meter = tb.OutputDPFilter(1)
    with (
        pytest.raises(tb.ParameterError, match=r"^data must be a Table, got 'dict'$"),
        SEARCH.open(no_table, meter=meter, noise=Silent()),
    ):
        pass
    assert meter.spent == meter.held == NOTHING


def test_a_scan_that_fails_costs_the_worst_case_price(monkeypatch: pytest.MonkeyPatch) -> None:
    given, meter = [in_duckdb()], tb.OutputDPFilter(1)
    source: Any = given[0].source
    gone = weakref.ref(source.turn)  # which all tables share that are derived from this one
    del source
    scans_fail(monkeypatch)
    with (
        pytest.raises(tb.ReleaseError) as caught,
        SEARCH.open(given.pop(), meter=meter, noise=Silent()),
    ):
        pass
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert meter.spent.amount == 1
    gc.collect(1)
    assert gone() is None


def error_keeps_no_table() -> bool:
    given, meter = [table(COLUMNS)], tb.OutputDPFilter(1)
    gone = weakref.ref(given[0])
    try:
        with SEARCH.open(given.pop(), meter=meter, noise=Broken()):
            pass
    except tb.ReleaseError as error:
        kept = error  # with its frames
    gc.collect(1)
    return gone() is None and kept.__traceback__ is not None and meter.spent.amount == 1


def test_noise_that_fails_costs_the_worst_case_price_and_keeps_no_table() -> None:
    assert error_keeps_no_table()


def test_a_conversation_that_has_ended_keeps_no_table() -> None:
    given = [table(COLUMNS)]
    gone = weakref.ref(given[0])
    with SEARCH.open(given.pop(), meter=tb.OutputDPFilter(1), noise=Silent()) as run:
        run.ask(0)
    gc.collect(1)
    assert gone() is None
    assert run.release().value == (True,)


def test_a_connection_that_was_lost_before_the_scan_costs_nothing() -> None:
    engine, meter = in_duckdb(), tb.OutputDPFilter(1)
    source: Any = engine.source
    source.connection.disconnect()
    with (
        pytest.raises(SourceError, match=r"^the table's engine does not answer"),
        SEARCH.open(engine, meter=meter, noise=Silent()),
    ):
        pass
    assert meter.spent == meter.held == NOTHING


def test_a_block_that_an_error_leaves_is_charged_the_worst_case_price() -> None:
    meter = tb.OutputDPFilter(1)
    with (
        pytest.raises(ZeroDivisionError),
        SEARCH.open(table(COLUMNS), meter=meter, noise=Silent()) as run,
    ):
        fails()
    assert meter.spent.amount == 1
    with pytest.raises(tb.errors.SettlementError, match="the run was not settled"):
        run.release()
    with pytest.raises(tb.errors.SettlementError, match="the run is over: it answers no more"):
        run.ask(0)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_conversation_is_not_copied(copied: Any) -> None:
    with SEARCH.open(table(COLUMNS), meter=tb.OutputDPFilter(1), noise=Silent()) as run:
        with pytest.raises(tb.errors.SettlementError, match="cannot be copied"):
            copied(run)
        run.ask(0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"questions": []}, r"^questions must be pairs of a condition and a threshold, at least"),
        ({"questions": "w"}, r"^questions must be pairs of a condition and a threshold"),
        ({"questions": ["w"]}, r"^questions\[0\] must be a pair, \(condition, threshold\)"),
        ({"questions": [("w", 0.5)]}, r"^questions\[0\]\[1\] must be an integer, got 0.5"),
        ({"aboves": 0}, r"^aboves must be"),
        ({"epsilon": 0}, r"^epsilon must be"),
        ({"of": "records"}, r"^of must be one of rows, units, got 'records'"),
    ],
)
def test_refusals_of_parameters(given: Any, said: str) -> None:
    asked: dict[str, Any] = {"questions": QUESTIONS, "epsilon": 1, "aboves": 3, **given}
    with pytest.raises(tb.ParameterError, match=said):
        AboveThreshold(**asked)


def test_a_condition_that_is_not_there_costs_nothing() -> None:
    search = AboveThreshold(questions=[("z", 3)], epsilon=1, aboves=1)
    meter = tb.OutputDPFilter(1)
    for data in (table(COLUMNS), in_duckdb()):
        with pytest.raises(
            tb.ParameterError, match=r"be one of the columns u, x, k, j, w, v, bin, got"
        ):
            search.release(data, meter=meter)
    assert meter.spent == meter.held == NOTHING
