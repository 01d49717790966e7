"""A sweep answers as if each question were asked alone: equal ones once, in the order asked."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from tests.cases import each_case
from tests.sweeps.small import GRID, PLAN, QUESTIONS, REFUSED

import tightbudget as tb
from tightbudget.engine.engine import Engine
from tightbudget.sweeps import pool

RUNS = (1, 7)
RTOL = 0.01


def alone(ask, argument) -> tb.sweeps.Answer:
    """What the composition itself answers."""
    try:
        bounds = ask(argument, RTOL)
    except tb.PrecisionError as error:
        return tb.sweeps.Answer(error.lower, error.upper, refusal=f"PrecisionError: {error}")
    return tb.sweeps.Answer(bounds.lower, bounds.upper, apart=bounds.apart)


@pytest.mark.one_in(8)
@each_case
def test_every_mechanism_is_answered_as_if_asked_alone(case) -> None:
    runs = [case.mechanism * k for k in RUNS]
    asked = [
        *(
            tb.sweeps.Question.of(run, delta=delta, rtol=RTOL)
            for delta in (1e-2, 1e-6)
            for run in runs
        ),
        *(tb.sweeps.Question.of(run, epsilon=0.3, rtol=RTOL) for run in runs),
    ]
    assert list(tb.sweep(asked)) == [
        *(alone(run.epsilon, delta) for delta in (1e-2, 1e-6) for run in runs),
        *(alone(run.delta, 0.3) for run in runs),
    ]


def test_a_mix_is_answered_like_its_composition() -> None:
    run = tb.Gaussian(2.0).subsampled(0.01) * 300 + tb.Laplace(20.0) * 5
    assert tb.sweep([tb.sweeps.Question.of(run, delta=1e-5)])[0].bounds == run.epsilon(1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    [
        {"epsilon": 1.0, "delta": 1e-5},
        {"advantage": 0.1},
        {"tpr": 0.1, "fpr": 0.01},
        {"epsilon": 1.0, "delta": 1e-5, "between": [0.5, 50.0], "rtol": 1e-3},
    ],
    ids=str,
)
def test_the_noise_found_is_that_of_calibrate(target) -> None:
    (found,) = tb.sweep(tb.sweeps.questions(PLAN, {"runs": [300]}, find="sigma", **target))
    same = tb.calibrate(lambda s: tb.Gaussian(s).subsampled(0.01) * 300, **target)
    assert found == tb.sweeps.Answer(same.met.lower, same.met.upper, same.value)


def test_an_integer_can_be_found() -> None:
    plan = [{"mechanism": "laplace", "scale": 20.0, "times": "$most"}]
    target: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "integer": True}
    (found,) = tb.sweep([tb.sweeps.Question.of(plan, find="most", **target)])
    assert found.value == tb.calibrate(lambda k: tb.Laplace(20.0) * int(k), **target).value
    assert isinstance(found.value, int)


def test_both_ends_of_a_small_sweep_are_close() -> None:
    for answer in tb.sweep(tb.sweeps.questions(PLAN, GRID, delta="$delta")):
        assert 0 < answer.lower <= answer.upper
        assert answer.bounds.relative_gap <= 1e-4


# ------------------------------------------------------------------ one by one, and once


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """(plan, number of questions) of each piece of work that is really done."""
    done = []

    def counted(plan, asked):
        done.append((plan, len(asked)))
        return answers(plan, asked)

    answers = pool.answers  # type: ignore[attr-defined]
    monkeypatch.setattr(pool, "answers", counted)
    return done


def test_equal_questions_are_answered_once(work) -> None:
    asked = tb.sweeps.questions(PLAN, GRID, delta="$delta")
    named = [tb.sweeps.Question(q.plan, q.find, q.arguments, (("again", True),)) for q in asked]
    thrice = tb.sweep([*asked, *reversed(asked), *named])
    once = tb.sweep(asked)
    assert sum(n for _, n in work) == 2 * len(asked)
    assert list(thrice) == [*once, *reversed(list(once)), *once]


def test_targets_of_one_plan_are_answered_together(work) -> None:
    tb.sweep(tb.sweeps.questions(PLAN, {"delta": GRID["delta"], **GRID}, delta="$delta"))
    assert len(work) == len({plan for plan, _ in work}) == 4
    assert {n for _, n in work} == {3}


def test_very_many_targets_of_one_plan_are_shared_out(work) -> None:
    deltas = [10.0 ** -(2 + k / 10) for k in range(40)]
    tb.sweep([tb.sweeps.Question.of(tb.Gaussian(1.0), delta=delta) for delta in deltas])
    assert sorted(n for _, n in work) == [8, 16, 16]


def test_the_composition_is_prepared_once_for_all_its_targets(monkeypatch) -> None:
    made: list[object] = []
    of = Engine.of

    def counted(parts):
        made.append(parts)
        return of(parts)

    monkeypatch.setattr(Engine, "of", staticmethod(counted))
    tb.sweep(tb.sweeps.questions(PLAN, GRID, delta="$delta"))
    assert len(made) == 4
    assert len(set(map(repr, made))) == 4


@pytest.mark.slow
def test_a_calibration_is_a_piece_of_its_own(work) -> None:
    over: dict[str, list[Any]] = {"runs": [100], "e": [1.0, 2.0]}
    tb.sweep(tb.sweeps.questions(PLAN, over, find="sigma", epsilon="$e", delta=1e-5))
    assert [n for _, n in work] == [1, 1]


def test_nothing_asked_is_nothing_answered(work) -> None:
    assert list(tb.sweep([])) == []
    assert work == []


def test_progress_wraps_what_is_left() -> None:
    seen = []

    def progress(left: range):
        for i in left:
            seen.append((i, len(left)))
            yield i

    asked = tb.sweeps.questions(PLAN, GRID, delta="$delta")
    tb.sweep([*asked, *asked], progress=progress)
    assert seen == [(i, len(asked)) for i in range(len(asked))]


# ----------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_question_is_a_row_that_says_why(name) -> None:
    question, message = REFUSED[name]
    good = tb.sweeps.Question.of(tb.Gaussian(2.0), delta=1e-5)
    found = tb.sweep([good, question, good])
    assert found.refused == (1,)
    assert str(found[1].refusal).startswith(message)
    assert found[1].value is None
    assert found[0] == found[2] == tb.sweep([good])[0]


def test_a_refused_row_claims_nothing_that_is_not_proved() -> None:
    for question, message in REFUSED.values():
        (found,) = tb.sweep([question])
        if message.startswith("PrecisionError"):
            assert found.bounds.overlaps((tb.Gaussian(1.0) * 1000).epsilon(1e-5, rtol=1e-12))
            assert found.bounds.relative_gap < 1e-6
        else:
            assert (found.lower, found.upper) == (0.0, math.inf)


@pytest.mark.slow
def test_an_exception_that_nobody_has_thought_of_is_a_row_too(monkeypatch) -> None:
    real = tb.Composition.answer

    def broken(self, **question):
        if "delta" in question:
            raise ZeroDivisionError("of all things")
        return real(self, **question)

    monkeypatch.setattr(tb.Composition, "answer", broken)
    found = tb.sweep(QUESTIONS)
    said = [a.refusal for a, q in zip(found, QUESTIONS, strict=True) if q.asked == "epsilon"]
    assert said.count("ZeroDivisionError: of all things") == 14
    assert len(said) == 15  # one of them does not get that far


def test_what_is_no_question_is_refused() -> None:
    with pytest.raises(
        tb.ParameterError, match=r"questions\[1\] must be a tightbudget.sweeps.Question, got 'a'"
    ):
        tb.sweep([QUESTIONS[0], "a"])  # type: ignore[list-item]


@pytest.mark.parametrize("executor", [0, -1, True, 1.5, "4"])
def test_what_is_no_executor_is_refused(executor) -> None:
    with pytest.raises(tb.ParameterError, match="executor must be None, a number of processes"):
        tb.sweep(QUESTIONS, executor)


# -------------------------------------------------------------------------------- files

TOML = """
tightbudget = 1
delta = "$delta"

[over]
sigma = [0.9, 2.0]
runs = { first = 300, last = 1000, points = 2, whole = true }
delta = { first = 1e-5, last = 1e-9, points = 3, log = true }

[[steps]]
mechanism = "gaussian"
sigma = "$sigma"
rate = 0.01
times = "$runs"
"""


def test_a_file_lists_the_questions_of_its_grid(tmp_path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(TOML)
    asked = tb.sweeps.read_questions(path)
    assert asked == tb.sweeps.questions(PLAN, GRID, delta="$delta")
    assert json.loads(asked[0].plan)[0]["times"] == 300


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        ("[3, 1, 2]", [3, 1, 2]),
        ("{ first = 1, last = 2, points = 5 }", [1.0, 1.25, 1.5, 1.75, 2.0]),
        ("{ first = 2, last = 0.5, points = 3, log = true }", [2.0, 1.0, 0.5]),
        ("{ first = 1, last = 4, points = 30, whole = true }", [1, 2, 3, 4]),
        ("{ first = 1, last = 1000, points = 4, log = true, whole = true }", [1, 10, 100, 1000]),
        ("{ first = 1, last = 2, points = 4 }", [1.0, 1.33333, 1.66667, 2.0]),
    ],
)
def test_an_axis_is_a_list_or_points_between_two_ends(axis, values, tmp_path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(
        f'delta = 0.1\nover.s = {axis}\nsteps = [{{ mechanism = "laplace", scale = "$s" }}]'
    )
    found = [dict(q.labels)["s"] for q in tb.sweeps.read_questions(path)]
    assert found == values
    assert [type(x) for x in found] == [type(x) for x in values]


STEPS = 'steps = [{ mechanism = "laplace", scale = "$s" }]\n'
BAD_FILES = {
    "no TOML": ("a b", "not TOML: "),
    "another version": ("tightbudget = 2", r"tightbudget \(the version\) must be 1, got 2"),
    "no steps": ("delta = 0.1", r"steps must be \[\[steps\]\] of a plan file, got None"),
    "empty steps": ("steps = []\ndelta = 0.1", r"steps must be .*, got \[\]"),
    "an unknown key": (f"{STEPS}delt = 0.1", r"'delt' must be one of tightbudget, \[\[steps\]\], "),
    "axes": (f"{STEPS}over = 1\ndelta = 0.1", "over must be a table of axes, got 1"),
    "an axis": (f"{STEPS}over.s = 1", "over.s must be a list, or a table of first, last, points, "),
    "an end missing": (
        f"{STEPS}over.s = {{ first = 1, points = 3 }}",
        "over.s must be a list, or ",
    ),
    "another word": (
        f"{STEPS}over.s = {{ first = 1, last = 2, points = 3, lgo = true }}",
        "over.s must be a list, or a table of first, last, points, log, whole, got ",
    ),
    "an end": (
        f"{STEPS}over.s = {{ first = 'a', last = 2, points = 3 }}",
        "over.s.first must be a finite number, got 'a'",
    ),
    "a log scale from 0": (
        f"{STEPS}over.s = {{ first = 0, last = 2, points = 3, log = true }}",
        "over.s.first must be a finite number > 0, got 0",
    ),
    "a flag": (
        f"{STEPS}over.s = {{ first = 1, last = 2, points = 3, log = 1 }}",
        "over.s.log must be true or false, got 1",
    ),
    "too many points": (
        f"{STEPS}over.s = {{ first = 1, last = 2, points = 10_001 }}",
        "over.s.points must be an integer from 2 to 10000, got 10001",
    ),
    "one point": (
        f"{STEPS}over.s = {{ first = 1, last = 2, points = 1 }}",
        "over.s.points must be an integer from 2 to 10000, got 1",
    ),
    "half a point": (
        f"{STEPS}over.s = {{ first = 1, last = 2, points = 2.5 }}",
        "over.s.points must be an integer from 2 to 10000, got 2.5",
    ),
    "what no axis is": (f"{STEPS}delta = 0.1", r"'\$s' must be axes of over; there are none"),
    "no question": (f"{STEPS}over.s = [1.0]", "give exactly one of delta and epsilon"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_what_is_no_file_of_questions_is_refused(name, tmp_path) -> None:
    text, message = BAD_FILES[name]
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    with pytest.raises(tb.errors.FileError, match=rf"sweep.toml: {message}"):
        tb.sweeps.read_questions(path)


def test_bad_values_of_a_file_are_rows(tmp_path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(f"{STEPS}over.s = [2.0, -2.0]\ndelta = 0.1")
    found = tb.sweep(tb.sweeps.read_questions(path))
    assert found.refused == (1,)
    assert (
        found[1].refusal == "ParameterError: steps[0]: scale must be a finite number > 0, got -2.0"
    )
