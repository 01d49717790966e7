"""Answers are the library's, to the last bit; so is what their Python and commands say."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cases import CASES, Case
from tests.explorer.same import commanded, ran

import tightbudget as tb
from tightbudget.explorer import answers, questions
from tightbudget.mechanisms.curve import DELTAS
from tightbudget.workflows import WorkflowFile

DP_SGD = [{"mechanism": "gaussian", "sigma": 1.0, "rate": 0.01, "times": 1000}]
MIXED = [
    {"mechanism": "gaussian", "sigma": 5.0, "times": 10, "relation": "replace-one"},
    {"mechanism": "laplace", "scale": 20.0, "times": 3},
]


def steps_of(run: tb.Composable) -> list[dict[str, Any]]:
    return json.loads(tb.compose([run]).to_json())["steps"]


def ends(bounds: tb.Bounds) -> dict[str, Any]:
    said = {"apart": bounds.apart} if bounds.apart else {}
    return {"lower": bounds.lower, "upper": bounds.upper, **said}


# ------------------------------------------------------------------------------ the curve


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_mechanism_has_its_curve(case: Case, tmp_path: Path) -> None:
    """Also as Python and as command lines, whatever the names of its parameters."""
    run = case.mechanism * 2
    asked = questions.Curve(steps=steps_of(run), delta=0.4, deltas=[0.6, 0.4])
    try:
        expected = run.epsilon(0.4)
    except tb.PrecisionError as error:
        with pytest.raises(tb.PrecisionError, match=re.escape(str(error))):
            answers.curve(asked)
        return
    found = answers.curve(asked)
    assert found["epsilon"] == ends(expected)
    assert found["delta"] == 0.4
    assert found["curve"] == run.curve(deltas=[0.6, 0.4]).to_dict()
    assert json.loads(json.dumps(found["steps"])) == steps_of(run)
    names = ran(found["python"])
    assert names["run"] == run
    assert names["answer"] == expected
    assert names["curve"].to_dict() == found["curve"]
    one, all_ = commanded(found["command"], tmp_path)
    one.pop("note", None)  # a rate that may have been forgotten
    for printed in (one, all_):
        printed.pop("ends", None)
    assert one == {"epsilon": ends(expected), "delta": 0.4}
    assert all_ == found["curve"]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [DP_SGD, MIXED], ids=["one", "two"])
@pytest.mark.parametrize("target", [{"delta": 1e-5}, {"epsilon": 0.5, "rtol": 1e-3}])
def test_either_way(steps: list[dict[str, Any]], target: Any, tmp_path: Path) -> None:
    found = answers.curve(questions.Curve(steps=steps, **target))
    run = questions.composition_of(steps)
    rtol = target.get("rtol", 1e-4)
    if "delta" in target:
        expected = {"delta": 1e-5, "epsilon": ends(run.epsilon(1e-5, rtol))}
    else:
        expected = {"epsilon": 0.5, "delta": ends(run.delta(0.5, rtol))}
    assert {name: found[name] for name in expected} == expected
    assert found["curve"] == run.curve(deltas=found["curve"]["delta"], rtol=rtol).to_dict()
    names = ran(found["python"])
    assert ends(names["answer"]) in expected.values()
    assert names["curve"].to_dict() == found["curve"]
    one, all_ = commanded(found["command"], tmp_path)
    assert one == expected
    assert all_ == found["curve"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("target", "first", "last"),
    [
        ({"delta": 1e-5}, 1e-2, 1e-12),
        ({"delta": 1e-20}, 1e-2, 1e-22),
        ({"delta": 0.3}, 0.3, 1e-12),
        ({"epsilon": 0.0}, None, 1e-12),
        ({"epsilon": 12.0}, 1e-2, None),
        ({"epsilon": 1000.0}, 1e-2, 1e-280),
        ({"delta": 0.0}, 1e-2, 1e-12),
    ],
)
def test_the_curve_goes_past_the_answer(
    target: Any, first: float | None, last: float | None
) -> None:
    found = answers.curve(questions.Curve(steps=DP_SGD, **target))
    deltas = found["curve"]["delta"]
    assert len(deltas) == len(DELTAS)
    assert deltas == sorted(deltas, reverse=True)
    at = found["delta"] if isinstance(found["delta"], float) else found["delta"]["upper"]
    assert at == 0.0 or deltas[-1] <= max(at, 1e-280) <= deltas[0] * 1.05
    assert first is None or deltas[0] == first
    assert last is None or deltas[-1] == pytest.approx(last, rel=0.05)


def test_infinite_ends_stay_infinite() -> None:
    steps = [{"mechanism": "worst_case", "epsilon": 0.1, "delta": 0.01}]
    found = answers.curve(questions.Curve(steps=steps, delta=1e-3))
    assert found["epsilon"] == {"lower": math.inf, "upper": math.inf}
    assert ran(found["python"])["answer"].upper == math.inf
    more = answers.one_more(questions.OneMore(steps=steps, delta=1e-3))["one_more"]
    assert more[0]["more"] == {"lower": 0.0, "upper": math.inf}


def test_bounds_of_two_kinds_are_said_to_be_so() -> None:
    steps = [{"mechanism": "gaussian", "sigma": 1.0, "shuffled": 10}]
    found = answers.curve(questions.Curve(steps=steps, delta=1e-5, deltas=[1e-3]))
    assert "below the lower bound" in found["ends"]
    assert ".shuffled(steps=10) * 1" in found["python"]
    assert "--shuffled 10 --times 1" in found["command"]
    assert "ends" not in answers.curve(questions.Curve(steps=DP_SGD, delta=1e-5, deltas=[1e-3]))


# ------------------------------------------------------------------------ what follows


@pytest.mark.one_in(4)
@pytest.mark.parametrize("steps", [DP_SGD, MIXED], ids=["one", "two"])
@pytest.mark.parametrize("target", [{"delta": 1e-5}, {"epsilon": 1.0}])
def test_one_more_run(steps: list[dict[str, Any]], target: Any, tmp_path: Path) -> None:
    found = answers.one_more(questions.OneMore(steps=steps, **target))
    run = questions.composition_of(steps)
    answered = "epsilon" if "delta" in target else "delta"

    def ask(which: tb.Composition) -> tb.Bounds:
        return getattr(which, answered)(next(iter(target.values())))

    thens = [ask(run + mechanism) for mechanism, _ in run.parts]
    assert found[answered] == ends(ask(run))
    assert [row[answered] for row in found["one_more"]] == [*map(ends, thens)]
    for row, then in zip(found["one_more"], thens, strict=True):
        exact = tb.Bounds(**row["more"])
        assert max(0.0, then.lower - ask(run).upper) in exact
        assert then.upper - ask(run).lower in exact
    names = ran(found["python"])
    assert names["now"] == ask(run)
    assert names["then"] == thens
    printed = commanded(found["command"], tmp_path)
    assert [one[answered] for one in printed] == [ends(ask(run)), *map(ends, thens)]


@pytest.mark.slow
@pytest.mark.parametrize("target", [{"delta": 1e-5}, {"epsilon": 1.0}])
def test_other_bounds(target: Any, tmp_path: Path) -> None:
    found = answers.compare(questions.Compare(steps=MIXED, **target))
    expected = tb.compare(questions.composition_of(MIXED), **target).to_dict()
    assert {name: found[name] for name in expected} == expected
    assert ran(found["python"])["answer"].to_dict() == expected
    assert commanded(found["command"], tmp_path) == [expected]


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, [1.0, 0.5, 2.0]])
@pytest.mark.parametrize(
    ("steps", "step"),
    [
        ([{"mechanism": "gaussian", "sigma": 5.0, "times": 10}], tb.Gaussian(5.0)),
        (MIXED, questions.composition_of(MIXED)),
    ],
    ids=["one", "two"],
)
def test_early_stopping(
    steps: list[dict[str, Any]],
    step: tb.Composable,
    weights: list[float] | None,
    tmp_path: Path,
) -> None:
    asked = questions.Stopping(steps=steps, delta=1e-5, stops=[2, 7, 10], weights=weights)
    found = answers.stopping(asked)
    expected = tb.early_stopping(step, [2, 7, 10], 1e-5, weights).to_dict()
    assert {name: found[name] for name in expected} == expected
    assert ran(found["python"])["answer"].to_dict() == expected
    assert commanded(found["command"], tmp_path) == [expected]


STATES: list[dict[str, Any]] = [
    {
        "state": "start",
        "moves": [
            {"to": ["quiet", 1], "mechanism": "gaussian", "sigma": 8.0, "times": 2},
            {"to": "loud", "steps": [{"mechanism": "laplace", "scale": 4.0}] * 2},
        ],
    },
    {"state": ["quiet", 1]},
    {"state": "loud", "moves": []},
]


@pytest.mark.parametrize("numbers", [{}, {"weight": 0.5}, {"price": 0.9}], ids=str)
def test_prices_of_a_workflow(numbers: dict[str, float], tmp_path: Path) -> None:
    workflow = [STATES[0], *({**state, **numbers} for state in STATES[1:])]
    delta = None if "price" in numbers else 1e-5
    found = answers.prices(questions.Prices(workflow=workflow, delta=delta))
    read = WorkflowFile.from_dict({"tightbudget": 1, "workflow": workflow})
    expected = read.priced(delta).to_dict()
    assert {name: found[name] for name in expected} == expected
    assert found["what"] == "3 states, 2 moves, from 'start' to 2 ends"
    assert ran(found["python"])["answer"].to_dict() == expected
    assert commanded(found["command"], tmp_path) == [expected]
    ends = {row["epsilon"] for row in found["states"] if row["state"] != "start"}
    assert ends == {0.9} if "price" in numbers else len(ends) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "parameter", "target"),
    [
        ({"mechanism": "gaussian", "times": 10}, "sigma", {"epsilon": 1.0, "delta": 1e-6}),
        ({"mechanism": "gaussian", "sigma": 2.0}, "times", {"epsilon": 3.0, "delta": 1e-6}),
        (
            {"mechanism": "gaussian", "sigma": 2.0, "times": 10},
            "rate",
            {"epsilon": 0.5, "delta": 1e-6},
        ),
        ({"mechanism": "laplace", "times": 3, "scale": 1.0}, "scale", {"advantage": 0.1}),
        ({"mechanism": "gaussian", "times": 5}, "sigma", {"tpr": 0.1, "fpr": 0.01}),
        (
            {"mechanism": "discrete_laplace", "scale": 30.0},
            "sensitivity",
            {"epsilon": 0.5, "delta": 1e-6},
        ),
        ({"mechanism": "staircase", "times": 3}, "epsilon", {"epsilon": 0.5, "delta": 1e-6}),
    ],
)
def test_calibrating(table: dict[str, Any], parameter: str, target: Any, tmp_path: Path) -> None:
    found = answers.calibrate(questions.Calibrate(steps=[table], parameter=parameter, **target))
    program = ran(found["python"])["answer"]
    assert found["value"] == program.value
    assert questions.composition_of(found["steps"]) == program.composition
    expected = program.to_dict()
    assert {name: found[name] for name in expected} == expected
    assert commanded(found["command"], tmp_path) == [expected]
    name = "delta" if "delta" in target else next(iter(target))
    assert program.target.most == target[name]


@pytest.mark.slow
def test_calibrating_one_of_several() -> None:
    steps = [*MIXED, {"mechanism": "laplace", "times": 2}]
    asked: Any = {"parameter": "scale", "epsilon": 4.0, "delta": 1e-6}
    found = answers.calibrate(questions.Calibrate(steps=steps, of=2, between=[1.0, 1e4], **asked))
    expected = tb.calibrate(
        lambda scale: questions.composition_of(MIXED) + tb.Laplace(scale) * 2,
        epsilon=4.0,
        delta=1e-6,
        between=(1.0, 1e4),
    )
    assert found["value"] == expected.value == ran(found["python"])["answer"].value
    assert found["command"] is None  # the command line calibrates one mechanism


@pytest.mark.slow
def test_a_shell_understands_the_commands(tmp_path: Path) -> None:
    found = answers.curve(questions.Curve(steps=MIXED, delta=1e-5, deltas=[1e-3]))
    program = tmp_path / "tightbudget"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tightbudget "$@" --json\n')
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-e", "-c", found["command"]],
        cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    one, all_ = map(json.loads, done.stdout.splitlines())
    assert one["epsilon"] == found["epsilon"]
    assert all_["epsilon"] == found["curve"]["epsilon"]


# ---------------------------------------------------------------------------- the plans


@pytest.mark.parametrize("steps", [DP_SGD, MIXED], ids=["one", "two"])
def test_a_plan_is_what_its_steps_are(steps: list[dict[str, Any]], tmp_path: Path) -> None:
    run = questions.composition_of(steps)
    tb.write_plan(run, tmp_path / "plan.toml")
    for plan in ((tmp_path / "plan.toml").read_text(), run.to_json(), f"\n {run.to_json()}"):
        assert questions.Curve(plan=plan).composition() == run


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({}, tb.ParameterError, "give exactly one of steps and plan"),
        ({"steps": DP_SGD, "plan": "x"}, tb.ParameterError, "give exactly one of steps and plan"),
        ({"plan": ""}, tb.errors.FileError, "plan: a plan needs [[steps]], and there are none"),
        ({"plan": "x"}, tb.errors.FileError, "plan: not TOML: "),
        ({"plan": "{"}, tb.errors.FileError, "not JSON: "),
        ({"steps": [{}]}, tb.errors.FileError, "steps[0].mechanism must be one of "),
        (
            {"steps": [{"mechanism": "gaussian", "sigma": -1.0}]},
            tb.ParameterError,
            "steps[0]: sigma must be a finite number > 0, got -1.0",
        ),
        (
            {"steps": [{"mechanism": "histogram", "p": [0.0] * 6000, "q": [0.0] * 6000}]},
            tb.ParameterError,
            "steps must hold at most 10,000 values, got 12,001",
        ),
        (
            {"steps": [{"mechanism": "gaussian", "sigma": 1.0, "times": 10**12 + 1}]},
            tb.ParameterError,
            "times must be at most 1,000,000,000,000 in all, got more",
        ),
        (
            {
                "plan": json.dumps(
                    {
                        "tightbudget": 1,
                        "steps": [{"mechanism": "laplace", "scale": k + 1.0} for k in range(51)],
                    }
                )
            },
            tb.ParameterError,
            "steps must be at most 50 different mechanisms, got 51",
        ),
    ],
)
def test_mechanisms_that_are_refused(asked: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        questions.Curve(**asked, delta=1e-5).composition()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("given", [{}, {"delta": 0.1, "epsilon": 1.0}])
def test_a_question_is_at_one_of_both(given: Any) -> None:
    with pytest.raises(tb.ParameterError, match=r"^give exactly one of delta and epsilon$"):
        answers.curve(questions.Curve(steps=DP_SGD, **given))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"of": 1}, tb.ParameterError, "of must be below 1, got 1"),
        (
            {"steps": [{"mechanism": "gauss"}]},
            tb.errors.FileError,
            "steps[0].mechanism must be one of ",
        ),
        (
            {"parameter": "sigmas"},
            tb.errors.FileError,
            "steps[0]: gaussian has no parameter 'sigmas'",
        ),
        ({"parameter": "mechanism"}, tb.errors.FileError, "steps[0].mechanism must be one of "),
        (
            {"epsilon": None},
            tb.ParameterError,
            "epsilon is missing: give epsilon and delta together",
        ),
    ],
)
def test_what_cannot_be_calibrated(
    changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    asked: Any = {"steps": DP_SGD, "parameter": "sigma", "epsilon": 1.0, "delta": 1e-6, **changed}
    with pytest.raises(error) as caught:
        answers.calibrate(questions.Calibrate(**asked))
    assert str(caught.value).startswith(message), caught.value
