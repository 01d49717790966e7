"""Questions are text: equal ones are equal, and what is not one question is refused."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pickle
from typing import Any

import numpy as np
import pytest
from tests.cases import CASES
from tests.sweeps.small import GRID, PLAN

import tightbudget as tb

GAUSSIAN = [{"mechanism": "gaussian", "sigma": 2.0, "times": 10}]
FIND = [{"mechanism": "gaussian", "sigma": "$s", "times": 10}]


def test_a_grid_is_every_combination_with_the_last_axis_fastest() -> None:
    asked = tb.sweeps.questions(PLAN, GRID, delta="$delta")
    assert [q.labels for q in asked] == [
        tuple(zip(GRID, cell, strict=True)) for cell in itertools.product(*GRID.values())
    ]
    assert len(set(asked)) == len(asked) == 12


def test_a_cell_of_a_grid_is_the_question_about_its_composition() -> None:
    for question in tb.sweeps.questions(PLAN, GRID, delta="$delta"):
        sigma, runs, delta = (value for _, value in question.labels)
        run = tb.Gaussian(sigma).subsampled(0.01) * runs
        assert question == tb.sweeps.Question.of(run, delta=delta)
        assert question.asked == "epsilon"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_plan_is_the_composition_that_it_is_made_of(case) -> None:
    run = case.mechanism * 3 + tb.ApproximateDP(0.1, 1e-9)
    plan = tb.sweeps.Question.of(run, epsilon=1.0).plan
    assert tb.Composition.from_json(f'{{"tightbudget": 1, "steps": {plan}}}') == run


def test_labels_are_no_part_of_a_question() -> None:
    named = tb.sweeps.Question.of(GAUSSIAN, delta=1e-5, labels={"name": "a"})
    assert named == tb.sweeps.Question.of(GAUSSIAN, delta=1e-5)
    assert hash(named) == hash(tb.sweeps.Question.of(GAUSSIAN, delta=1e-5))
    assert named.labels == (("name", "a"),)


def test_without_labels_a_row_has_the_plan_and_the_target() -> None:
    labels = dict(tb.sweeps.Question.of(FIND, find="s", epsilon=1.0, delta=1e-5).labels)
    assert json.loads(labels.pop("plan")) == FIND
    assert labels == {"epsilon": 1.0, "delta": 1e-5}


def test_fixed_targets_are_labels_beside_the_axes() -> None:
    (question,) = tb.sweeps.questions(PLAN, {"sigma": [1.0], "runs": [10]}, delta=1e-5, rtol=1e-3)
    assert question.labels == (("sigma", 1.0), ("runs", 10), ("delta", 1e-5))


def test_what_differs_is_another_question() -> None:
    asked = [
        tb.sweeps.Question.of(GAUSSIAN, delta=1e-5),
        tb.sweeps.Question.of(GAUSSIAN, delta=1e-6),
        tb.sweeps.Question.of(GAUSSIAN, epsilon=1e-5),
        tb.sweeps.Question.of(GAUSSIAN, delta=1e-5, rtol=1e-3),
        tb.sweeps.Question.of(FIND, find="s", delta=1e-5, epsilon=1.0),
        tb.sweeps.Question.of(FIND, find="s", delta=1e-5, epsilon=1.0, rtol=1e-3),
        tb.sweeps.Question.of(tb.Gaussian(2.0) * 11, delta=1e-5),
    ]
    assert len(set(asked)) == len(asked)


def test_numbers_of_numpy_are_numbers() -> None:
    over: dict[str, Any] = {"sigma": np.array([0.9, 2.0]), "runs": np.array([300, 1000])}
    ours: dict[str, list[Any]] = {"sigma": [0.9, 2.0], "runs": [300, 1000]}
    of_numpy = tb.sweeps.questions(PLAN, over, delta=np.float64(1e-5))
    assert of_numpy == tb.sweeps.questions(PLAN, ours, delta=1e-5)
    kinds = {type(value) for q in of_numpy for _, value in q.labels[:2]}
    assert kinds == {int, float}
    assert tb.sweeps.Question.of(GAUSSIAN, epsilon=np.int64(1)) == tb.sweeps.Question.of(
        GAUSSIAN, epsilon=1
    )


def test_a_question_does_not_change_and_travels() -> None:
    question = tb.sweeps.questions(PLAN, GRID, delta="$delta")[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        question.plan = ""  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(question)) == question


def test_an_axis_may_be_in_several_steps_and_inside_lists() -> None:
    plan: list[dict[str, Any]] = [
        {"mechanism": "gaussian", "sigma": "$s"},
        {"mechanism": "histogram", "p": ["$s", 1.0], "q": [1.0, 1.0]},
    ]
    (question,) = tb.sweeps.questions(plan, {"s": [3.0]}, delta=0.1)
    assert json.loads(question.plan) == [
        {"mechanism": "gaussian", "sigma": 3.0},
        {"mechanism": "histogram", "p": [3.0, 1.0], "q": [1.0, 1.0]},
    ]


REFUSED = {
    "no target": (
        lambda: tb.sweeps.Question.of(GAUSSIAN),
        "give exactly one of delta and epsilon, or both and what to find",
    ),
    "two targets": (
        lambda: tb.sweeps.Question.of(GAUSSIAN, delta=1e-5, epsilon=1.0),
        "give exactly one of delta and epsilon, or both and what to find",
    ),
    "nothing to find": (
        lambda: tb.sweeps.Question.of(GAUSSIAN, epsilon=1.0, between=(1, 2)),
        "between: only with find",
    ),
    "no target for what to find": (
        lambda: tb.sweeps.Question.of(FIND, find="s"),
        "to find 's' takes a target: epsilon, delta, advantage, tpr, fpr",
    ),
    "what to find is nowhere": (
        lambda: tb.sweeps.Question.of(GAUSSIAN, find="s", epsilon=1.0, delta=1e-5),
        r"find must be in the steps as '\$s', and is not",
    ),
    "an argument": (
        lambda: tb.sweeps.Question.of(GAUSSIAN, delt=1e-5),
        "a question takes find, epsilon, .*, got 'delt'",
    ),
    "a dollar without an axis": (
        lambda: tb.sweeps.Question.of(FIND, delta=1e-5),
        r"'\$s' must be values, or what to find",
    ),
    "a column's name": (
        lambda: tb.sweeps.Question.of(GAUSSIAN, delta=1e-5, labels={"upper": 1}),
        "a label must have another name than 'upper', a column itself",
    ),
    "no text": (
        lambda: tb.sweeps.Question.of(GAUSSIAN, delta=1e-5j),
        r"arguments must be made of numbers, texts, lists and tables, got 1e-05j",
    ),
    "an empty axis": (
        lambda: tb.sweeps.questions(FIND, {"s": []}, delta=1e-5),
        r"over.s must be a list of one value or more, got \[\]",
    ),
    "an axis used nowhere": (
        lambda: tb.sweeps.questions(FIND, {"s": [1.0], "q": [0.1]}, delta=1e-5),
        r"over.q must be in the plan or the target as '\$q'",
    ),
    "an axis to be found": (
        lambda: tb.sweeps.questions(FIND, {"s": [1.0]}, find="s", epsilon=1.0, delta=1e-5),
        r"over.s must be in the plan or the target as '\$s'",
    ),
    "no such axis": (
        lambda: tb.sweeps.questions(FIND, {}, delta="$d"),
        r"'\$d', '\$s' must be axes of over; there are none",
    ),
    "no such axis, and others": (
        lambda: tb.sweeps.questions(FIND, {"s": [1.0]}, delta="$d"),
        r"'\$d' must be axes of over; there are '\$s'",
    ),
    "an axis like the target, and another thing": (
        lambda: tb.sweeps.questions(
            [{"mechanism": "worst_case", "epsilon": "$epsilon"}], {"epsilon": [0.1]}, epsilon=1.0
        ),
        "over.epsilon must be the target's epsilon, or be called otherwise",
    ),
    "an axis like a column": (
        lambda: tb.sweeps.questions(
            [{"mechanism": "gaussian", "sigma": "$value"}], {"value": [1.0]}, delta=0.1
        ),
        "a label must have another name than 'value', a column itself",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_one_question_is_refused(name) -> None:
    ask, message = REFUSED[name]
    with pytest.raises(tb.ParameterError, match=f"^{message}$"):
        ask()
