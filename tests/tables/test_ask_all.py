"""Several questions in one run: one hold, one statement, and a price for each answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.tables.cases import CASES, COLUMNS, in_duckdb, table
from tests.tables.test_laws import Silent, with_one_key

import tightbudget as tb
from tightbudget.errors import BudgetError

X: dict[str, Any] = {"column": "x", "bounds": (-1, 4), "step": 0.125}
NIGHT = tb.Count(epsilon=0.5, where="w")
QUESTIONS: list[Any] = [
    NIGHT,
    tb.Mean(epsilon=1, **X),
    tb.GroupedCounts(by=("k", "j"), of="units", epsilon=0.25),
    tb.Variance(epsilon=1, **X, where="w"),
]
ENGINES = pytest.mark.parametrize(
    "data", [lambda: table(COLUMNS), in_duckdb], ids=["arrays", "duckdb"]
)


def same(one: Any, other: Any) -> bool:
    return str(one) == str(other)


def test_all_questions_together_are_answered_as_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_one_key(monkeypatch)  # a new key puts the units into other halves of GatedCounts
    session = tb.Session(table(COLUMNS), tb.OutputDPOdometer(), noise=Silent())
    questions = [case.mechanism for case in CASES]
    for question, answer in zip(questions, session.ask_all(questions), strict=True):
        alone = session.ask(question)
        assert same(answer.value, alone.value)
        assert answer.cell == alone.cell
        assert answer.receipt == alone.receipt
        assert answer.error == alone.error
        assert same(answer.noisy_rows, alone.noisy_rows)
        assert answer.question is question


def statements(session: tb.Session, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The queries that are sent to the engine, from now on."""
    source: Any = session.table.source
    sent, kind = list[Any](), type(source.connection)
    ask = kind.to_pyarrow

    def counted(self: Any, query: Any, **more: Any) -> Any:
        sent.append(query)
        return ask(self, query, **more)

    monkeypatch.setattr(kind, "to_pyarrow", counted)
    return sent


def test_an_engine_gets_one_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    session = tb.Session(in_duckdb(), tb.OutputDPOdometer(), noise=Silent())
    arrays = tb.Session(table(COLUMNS), tb.OutputDPOdometer(), noise=Silent())
    sent = statements(session, monkeypatch)
    answers = session.ask_all(QUESTIONS)
    # one that asks for no row, before the price is held, and one for all answers
    assert len(sent) == 2
    expected = [arrays.ask(question).value for question in QUESTIONS]
    assert [same(a.value, b) for a, b in zip(answers, expected, strict=True)] == [True] * 4


@ENGINES
def test_each_answer_has_its_own_price_and_all_have_one_hold(data: Callable[[], Any]) -> None:
    session = tb.Session(data(), tb.OutputDPFilter(2.75), noise=Silent())
    plan = session.what_if(QUESTIONS)
    assert (plan.most, plan.fits) == (tb.Amount(2.75, 0.0, "epsilon"), True)
    answers = session.ask_all(QUESTIONS)
    assert [a.receipt.charged.epsilon for a in answers] == [0.5, 1, 0.25, 1]
    assert [a.receipt.held for a in answers] == [asked.most for asked in plan.questions]
    assert session.left == tb.Amount(0.0, 0.0, "epsilon")


def test_the_output_cells_decide_what_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with_one_key(monkeypatch)  # one key in thirty puts enough units into the half that is tested
    gated = tb.GatedCounts(by="k", epsilon=1, threshold=0, test_epsilon=0.5)
    top = tb.TopGroups(by="k", k=2, epsilon=1, least=10**6)
    meter = tb.OutputDPFilter(9)
    answers = tb.Session(table(COLUMNS), meter, noise=Silent()).ask_all([gated, NIGHT, top])
    assert [a.cell for a in answers] == ["bottom", "value", 0]
    charged = [a.receipt.charged.epsilon for a in answers]
    assert charged == [0.5, 0.5, 0.5]
    assert [a.receipt.returned.epsilon for a in answers] == [0.5, 0, 0.5]
    assert meter.spent.amount == sum(charged)


def test_a_count_tells_later_questions_how_many_rows_there_are() -> None:
    session = tb.Session(table(COLUMNS), tb.OutputDPOdometer())
    session.ask_all([tb.Count(epsilon=1), NIGHT])
    assert session._rows() is not None


def test_a_run_of_several_questions_has_one_key(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    with tb.Ledger(f"sqlite:///{tmp_path / 'b.db'}") as ledger:
        ledger.open_budget("ada", epsilon=2)
        budget = ledger.budget("ada")
        session = tb.Session(table(COLUMNS), budget, name="t", noise=Silent())
        first, second = session.ask_all([NIGHT, tb.Count(epsilon=1)])
        assert first.key is not None
        assert first.key == second.key
        assert first.key.startswith("t/Count(epsilon=0.5, where='w'); Count(epsilon=1) ")
        assert budget.spent.amount == 1.5


# ------------------------------------------------------------------ all or none


NOTHING = tb.Amount(0.0, 0.0, "epsilon")


@ENGINES
@pytest.mark.parametrize(
    ("questions", "said"),
    [
        ([NIGHT, tb.Count(epsilon=1, where="z")], r"^question 2, Count\(epsilon=1, where='z'\): "),
        ([], r"^questions must be a list of questions, at least one, got \[\]$"),
        (NIGHT, r"^questions must be a list of questions, at least one, got"),
        ([NIGHT, 3], r"^question must be a mechanism on tables, say Count\(epsilon=0.1\)"),
    ],
)  # fmt: skip
def test_one_refused_question_charges_nothing(
    data: Callable[[], Any], questions: Any, said: str
) -> None:
    meter = tb.OutputDPFilter(9)
    session = tb.Session(data(), meter, noise=Silent())
    with pytest.raises(tb.ParameterError, match=said):
        session.ask_all(questions)
    assert meter.spent == meter.held == NOTHING


def several_cost_their_sum() -> bool:
    """Two questions of 0.5 do not fit into 0.9, and are charged 1.0."""
    small, large = tb.OutputDPFilter(0.9), tb.OutputDPFilter(2)
    try:
        tb.Session(table(COLUMNS), small, noise=Silent()).ask_all([NIGHT, NIGHT])
    except BudgetError:
        tb.Session(table(COLUMNS), large, noise=Silent()).ask_all([NIGHT, NIGHT])
        return small.spent == small.held == NOTHING and large.spent.amount == 1
    except (tb.ParameterError, tb.ReleaseError):
        return False
    return False


def test_questions_that_do_not_fit_together_charge_nothing() -> None:
    assert several_cost_their_sum()


@each(
    [
        Without(
            "several questions cost what the first costs",
            {"prices-of-all-questions": "return mechanisms[0].guarantee"},
            several_cost_their_sum,
        ),
    ]
)
def test_each_guard_guards(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)


def test_a_failing_scan_charges_all_worst_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    meter, data = tb.OutputDPFilter(9), table(COLUMNS)
    top = tb.TopGroups(by="k", k=2, epsilon=1, least=10**6)

    def lost(*_: Any, **__: Any) -> Any:
        raise ConnectionError("secret 42")

    monkeypatch.setattr(type(data.source), "groups", lost)
    with pytest.raises(tb.ReleaseError) as failure:
        tb.Session(data, meter, noise=Silent()).ask_all([NIGHT, top])
    assert "42" not in str(failure.value)
    assert meter.spent.amount == 1.5


def test_a_meter_of_another_unit_is_refused() -> None:
    meter = tb.ZCDPFilter(rho=1)
    session = tb.Session(table(COLUMNS), meter, noise=Silent())
    with pytest.raises(tb.ParameterError, match=r"^meter must count epsilon, got 'rho'$"):
        session.ask_all([tb.Count(epsilon=0.5, delta=1e-6)])
    assert meter.spent.amount == 0


def test_too_many_output_cells_are_refused() -> None:
    questions = tuple((lambda t, i=i: t.x > i, 5) for i in range(3))
    search = tb.AboveThreshold(questions=questions, epsilon=1, aboves=200)
    meter = tb.OutputDPFilter(9)
    with pytest.raises(
        tb.ParameterError, match=r"^questions must have at most 10000 combinations of output cells"
    ):
        tb.Session(in_duckdb(), meter).ask_all([search, search])
    assert meter.spent == NOTHING


def test_answers_of_the_same_noise_are_independent() -> None:
    """The same question twice has noise of its own each time."""
    session = tb.Session(table(COLUMNS), tb.OutputDPOdometer())
    values = np.array(
        [[a.value for a in session.ask_all([tb.Count(epsilon=0.05)] * 2)] for _ in range(200)]
    )
    assert abs(np.corrcoef(values.T)[0, 1]) < 0.3
