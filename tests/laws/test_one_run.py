"""A mechanism that is asked by itself answers for one run."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
from tests.cases import each_mechanism

import tightbudget as tb
from tightbudget.mechanisms import Mechanism
from tightbudget.mechanisms.questions import Questions

ASKED: dict[str, dict[str, Any]] = {
    "epsilon": {"delta": 1e-3, "rtol": 1e-2},
    "delta": {"epsilon": 0.25, "rtol": 0.1},
    "answer": {"delta": 1e-2, "rtol": 0.1},
    "explain": {"delta": 1e-3, "rtol": 1e-2},
    "total_variation": {"rtol": 1e-2},
    "curve": {"epsilons": [0.25], "rtol": 1e-2},
    "tradeoff": {"false_positive_rates": [0.1], "rtol": 1e-2},
    "renyi": {"order": 2.0, "rtol": 1e-1},
    "risk": {"epsilon": 0.25, "slack": 1e-3, "rtol": 1e-2},
}
# parameters that have the name of a question; they are asked as a composition of one run
OWN = {
    "worst_case": {"epsilon", "delta"},
    "staircase": {"epsilon"},
    "exponential": {"epsilon"},
}


def test_every_question_is_asked() -> None:
    public = {name for name in vars(Questions) if not name.startswith("_")}
    others = {
        "engine",
        "attained",
        "apart",
        "by_formula",
        "upper_by_theorem",
        "finer",
        "largest_loss_by",
    }
    others |= {"plot", "doubt"}  # a picture of a curve; a word about many runs
    assert public == {*ASKED, *others}


@pytest.mark.parametrize("kind", tb.mechanisms.MECHANISMS)
def test_a_parameter_hides_a_question_only_where_that_is_known(kind: str) -> None:
    names = {field.name for field in dataclasses.fields(tb.mechanisms.MECHANISMS[kind])}
    assert names & {*ASKED, "engine", "attained", "pairs", "directions"} == OWN.get(kind, set())


@pytest.mark.one_in(4)
@each_mechanism
def test_one_run_has_the_answers_of_a_composition_of_one(mechanism: Mechanism) -> None:
    once = mechanism * 1
    assert mechanism.directions == once.directions
    for name in {"answer", "delta"} - OWN.get(mechanism.kind, set()):
        assert _asked(mechanism, name) == _asked(once, name), name
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism == once.parts[0][0]


@pytest.mark.parametrize("mechanism", [tb.Gaussian(1.0), tb.Staircase(1.0), tb.ApproximateDP(0.5)])
@pytest.mark.parametrize("name", ASKED)
def test_every_question_has_the_answer_of_a_composition_of_one(
    name: str, mechanism: Mechanism
) -> None:
    if name in OWN.get(mechanism.kind, ()):
        assert getattr(mechanism, name) == mechanism.to_dict().get(name, 0.0)
    else:
        assert _asked(mechanism, name) == _asked(mechanism * 1, name)


def _asked(value: Any, name: str) -> object:
    """The answer in values that compare, or the refusal's message."""
    try:
        found = getattr(value, name)(**ASKED[name])
    except tb.TightBudgetError as error:
        return str(error)
    return found.to_dict() if name in ("curve", "risk") else found


def test_a_number_in_the_place_of_a_list_is_answered_with_the_list() -> None:
    once = tb.Gaussian(1.0)
    asked: list[tuple[Any, str]] = [
        (lambda: once.tradeoff(0.01), "false_positive_rates"),  # type: ignore[arg-type]
        (lambda: once.curve(epsilons=0.01), "epsilons"),  # type: ignore[arg-type]
        (lambda: once.curve(deltas=0.01), "deltas"),  # type: ignore[arg-type]
    ]
    for ask, name in asked:
        with pytest.raises(
            tb.ParameterError,
            match=rf"^{name} must be a list of numbers, got 0\.01: write \[0\.01\]$",
        ):
            ask()
    with pytest.raises(tb.ParameterError, match=r"^epsilons must be a list of numbers, got '0'$"):
        once.curve(epsilons="0")  # type: ignore[arg-type]
