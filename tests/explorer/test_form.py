"""An address holds the whole question, and no typed text breaks the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from starlette.testclient import TestClient
from tests.cases import CASES, Case

import tightbudget as tb
from tightbudget.accounting.plan_file import plan_text, toml_value
from tightbudget.explorer import questions
from tightbudget.explorer.form import GOALS, GOALS_IN_WORDS, KINDS, SHOWS, WAYS, Form
from tightbudget.mechanisms.derived import Derived
from tightbudget.notation.options import SAMPLERS, options_of

DP_SGD = tb.Gaussian(1.0).subsampled(0.01) * 1000


def typed(*pairs: tuple[str, str]) -> Form:
    return Form.of(pairs)


def fields_of(run: tb.Composition) -> list[tuple[str, str]]:
    """Lists the fields that somebody types for a composition."""
    tables = [mechanism.to_dict() for mechanism, _ in run.parts]
    return [
        (f"{i}.{name}", value if isinstance(value, str) else toml_value(value))
        for i, (table, (_, times)) in enumerate(zip(tables, run.parts, strict=True))
        for name, value in {
            "mechanism": table["mechanism"], **options_of(table), "times": times
        }.items()
    ]  # fmt: skip


# ----------------------------------------------------------------------- what is asked


def test_without_fields_it_is_the_default_question() -> None:
    form = Form.of([])
    assert form.curve().composition() == DP_SGD
    assert form.curve().delta == 1e-5
    assert (form.show, form.goal, form.given) == ("one-more", "delta", "delta")
    assert Form.of(parse_qsl(form.address())).curve() == form.curve()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "case",
    [c for c in CASES if not {"base", "group"} & {*c.mechanism.to_dict()}],
    ids=lambda c: c.name,
)
def test_every_mechanism_can_be_typed(case: Case) -> None:
    run = case.mechanism * 3 + tb.Gaussian(2.0, relation=case.mechanism.relation)
    form = typed(*fields_of(run), ("epsilon", "0.5"), ("given", "epsilon"))
    assert form.curve().composition() == run
    assert form.curve().epsilon == 0.5
    again = Form.of(parse_qsl(form.address(), keep_blank_values=True))
    assert again.curve() == form.curve()


@pytest.mark.parametrize("kind", KINDS)
def test_every_mechanism_starts_with_something_that_works(kind: str) -> None:
    form = typed(("0.mechanism", kind))
    assert form.curve().composition().runs == 1
    assert {name for name, _ in form.parameters} >= {"0.rate", "0.times"}


@pytest.mark.parametrize("way", WAYS)
def test_a_form_draws_records_in_each_way(way: str) -> None:
    """The fields of another way are left where they are, and count for nothing."""
    others = [("0.rate", "0.25"), ("0.shuffled", "7"), ("0.batch", "x"), ("0.each_in", "")]
    own = SAMPLERS[way].options.values()
    fields = [(name, value) for name, value in others if name[2:] not in own]
    form = typed(("0.mechanism", "gaussian"), ("0.sampler", way), *fields)
    assert [field.name for field in form.sampling(0)] == [f"0.{name}" for name in own]
    if any(cls.key == way for cls in tb.mechanisms.MECHANISMS.values() if issubclass(cls, Derived)):
        table = tb.compose([form.curve().composition()]).parts[0][0].to_dict()
        assert {*table} & {*SAMPLERS} == ({way} if way != "rate" else set())
    assert form.counted(0) == ("Epochs" if SAMPLERS[way].epoch else "Runs")
    # a number beside others of its way is no parameter that a question can name
    alone = len(SAMPLERS[way].options) == 1
    assert any(name == f"0.{SAMPLERS[way].mark}" for name, _ in form.parameters) is alone


def test_a_way_that_lacks_a_number_is_refused_with_the_step() -> None:
    form = typed(("0.mechanism", "gaussian"), ("0.batch", "6"), ("0.of", ""))
    with pytest.raises(tb.ParameterError, match=r"^steps\[0\]: batch needs of beside it, got 6 "):
        form.tables()


def test_a_form_knows_the_way_by_its_fields() -> None:
    for fields, way in (
        ([], "rate"),
        ([("0.rate", "0.1")], "rate"),
        ([("0.rate", "0.1"), ("0.at_most", "9")], "truncated_poisson"),
        ([("0.shuffled", "9")], "shuffled"),
        ([("0.batch", "9"), ("0.of", "90")], "batches"),
        ([("0.rate", "0.1"), ("0.shuffled", "9")], "rate"),  # two: neither is meant
        ([("0.sampler", "nonsense")], "rate"),
    ):
        assert typed(("0.mechanism", "gaussian"), *fields).sampler(0).key == way


def test_a_plan_takes_the_place_of_the_mechanisms() -> None:
    run = tb.Laplace(5.0) * 2
    for plan in (plan_text(run), run.to_json()):
        form = typed(("plan", plan), ("0.mechanism", "gaussian"), ("0.sigma", "x"))
        assert form.curve().composition() == run


@pytest.mark.parametrize("show", SHOWS)
def test_each_panel_asks_its_question(show: str) -> None:
    question = typed(("show", show)).panel()
    assert isinstance(
        question,
        {
            "one-more": questions.OneMore,
            "compare": questions.Compare,
            "stopping": questions.Stopping,
            "calibrate": questions.Calibrate,
        }[show],
    )
    assert question.composition() == DP_SGD


@pytest.mark.parametrize("goal", GOALS)
def test_each_goal_is_a_target(goal: str) -> None:
    found = typed(("show", "calibrate"), ("goal", goal), ("goal.fpr", "0.02")).panel()
    assert isinstance(found, questions.Calibrate)
    given = {name for name in sum(GOALS.values(), ()) if getattr(found, name) is not None}
    assert given == set(GOALS[goal])
    assert (found.of, found.parameter) == (0, "sigma")
    assert goal != "tpr" or found.fpr == 0.02


def test_stops_and_weights_are_asked_as_typed() -> None:
    stopping = typed(("stop", "3"), ("weight", "0.5"), ("stop", "9"), ("weight", "2")).stopping()
    assert (stopping.stops, stopping.weights, stopping.delta) == ([3, 9], [0.5, 2.0], 1e-5)
    assert Form.of([]).stopping().stops == [250, 500, 750, 1000]
    assert typed(("0.mechanism", "gaussian"), ("0.times", "2")).stopping().stops == [1, 2]
    assert typed(("plan", "x"), ("delta", "1e-7")).stopping().delta == 1e-7


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("0.sigma", "steps[0]: gaussian needs sigma"),
        ("delta", "delta must be a finite number, got ''"),
        ("goal.epsilon", "epsilon must be a finite number, got ''"),
        ("stopping.delta", "delta must be a finite number, got ''"),
    ],
)
def test_what_is_needed_may_not_be_blank(field: str, message: str) -> None:
    show = "calibrate" if "goal" in field else "stopping"
    form = typed(("0.mechanism", "gaussian"), (field, " "), ("show", show))
    with pytest.raises(tb.TightBudgetError, match="^" + re.escape(message)):
        (form.curve() if field in ("0.sigma", "delta") else form.panel()).composition()


def test_what_is_not_needed_may_be_blank() -> None:
    blank = [(f"0.{name}", "") for name in ("sensitivity", "rate", "relation", "times")]
    form = typed(("0.mechanism", "gaussian"), ("0.sigma", "2"), *blank, ("plan", ""))
    assert form.curve().composition() == tb.compose([tb.Gaussian(2.0)])


# ---------------------------------------------------------------------------- buttons


def test_mechanisms_are_added_and_removed() -> None:
    one = Form.of([("delta", "1e-6")])
    two = one.done("add")
    assert [two.kind(i) for i in range(two.count)] == ["gaussian", "laplace"]
    assert two.done("remove 1").curve() == one.curve()
    assert two.done("remove 0").kind(0) == "laplace"
    assert one.done("remove 0") == one  # the last one stays
    assert two.curve().delta == 1e-6


def test_stops_are_added_removed_and_spread() -> None:
    form = Form.of([])
    more = form.done("add-stop")
    assert [s for s, _ in more.stops] == ["125", "250", "500", "750", "1000"]
    assert more.done("remove-stop 0").stops == form.stops
    assert more.done("even-stops").stops == form.stops
    only = typed(("stop", "1"))
    assert only.done("remove-stop 0") == only
    assert only.done("add-stop").stops == only.stops  # there is no room
    assert typed(("stop", "x")).done("add-stop").stops == [("x", "1")]


# ------------------------------------------------------------------ whatever is typed

NAMES = st.sampled_from(
    ["0.mechanism", "1.mechanism", "0.sigma", "0.scale", "0.times", "0.rate", "0.relation", "0.p",
     "0.q", "0.epsilons", "0.kwds", "given", "delta", "epsilon", "show", "goal", "goal.delta",
     "parameter", "stop", "weight", "stopping.delta", "plan", "0.", ".mechanism", "-1.mechanism",
     "²3.mechanism"]
)  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from([*KINDS, *SHOWS, *GOALS, "1e999", "nan", "-1", "[1, 2", "{a=1}", "1" * 5000]),
    st.floats().map(repr),
    st.integers().map(str),
)
FORMS = st.lists(st.tuples(NAMES, TEXTS), max_size=8)
DEEDS = st.one_of(
    st.text(max_size=6),
    st.builds("{} {}".format, st.sampled_from(["add", "remove", "remove-stop"]), st.integers()),
    st.sampled_from(["add", "add-stop", "even-stops"]),
)


def is_answered(ask: Callable[[], questions.ExplorerQuestion]) -> bool:
    """Tells if a form is a question about a composition, or is refused in words."""
    try:
        return isinstance(ask().composition(), tb.Composition)
    except (tb.TightBudgetError, ValidationError) as error:
        return bool(str(error))


@given(FORMS, DEEDS)
def test_a_form_is_a_question_or_refused(pairs: list[tuple[str, str]], deed: str) -> None:
    form = Form.of(pairs).done(deed)
    assert Form.of(parse_qsl(form.address(), keep_blank_values=True)).count == form.count
    for ask in (form.curve, form.panel, form.stopping):
        assert is_answered(ask)


@pytest.mark.slow
@settings(max_examples=40)
@given(FORMS)
def test_the_page_shows_whatever_is_typed(explorer: TestClient, pairs: Any) -> None:
    found = explorer.get("/explorer", params=[*pairs, ("part", "curve")])
    assert found.status_code in (200, 400)
    assert "<form" in found.text


PLANS = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            ["[[steps]]\n", 'mechanism = "gaussian"\n', "sigma = 1.0\n", "times = 3\n",
             "rate = 2\n", "sigma = inf\n", "times = -1\n", "base = { mechanism = 1 }\n",
             "p = [1, 2]\n", "[",
             "tightbudget = 1\n", 'mechanism = "histogram"\n', 'relation = "x"\n', "\x00", "{", "}"]
        )
    ).map("".join),
)  # fmt: skip


@given(PLANS)
def test_a_plan_is_a_composition_or_refused(plan: str) -> None:
    assert is_answered(lambda: questions.Curve(plan=plan, delta=0.1))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
TABLES = st.dictionaries(
    st.sampled_from(["sigma", "scale", "p", "q", "times", "rate", "relation", "epsilons", "deltas",
                     "base", "kwds", "args", "distribution", "sensitivity", "bound", "noise"]),
    JSON | st.floats(0.1, 10.0),
    max_size=5,
)  # fmt: skip


@given(st.sampled_from([*KINDS, "subsampled", "x"]), TABLES)
def test_a_step_is_a_mechanism_or_refused(kind: str, table: dict[str, Any]) -> None:
    assert is_answered(lambda: questions.Curve(steps=[{"mechanism": kind, **table}], delta=0.1))


# ---------------------------------------------------------------------------- what is said


def refusal_of(form: Form) -> str:
    """The refusal of the form's question about a curve."""
    with pytest.raises((tb.TightBudgetError, ValidationError)) as refused:
        form.curve().composition()
    return str(refused.value)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "case",
    [c for c in CASES if not {"base", "group"} & {*c.mechanism.to_dict()}],
    ids=lambda c: c.name,
)
def test_every_refusal_of_a_field_names_the_field(case: Case) -> None:
    run = case.mechanism * 3 + tb.Gaussian(2.0, relation=case.mechanism.relation)
    fields = fields_of(run)
    form = typed(*fields)
    for field in [*form.fields(0), *form.fields(1)]:
        i = field.name.partition(".")[0]
        wrong = typed(*((k, v) for k, v in fields if k != field.name), (field.name, "nan"))
        problem = refusal_of(wrong)
        said = wrong.in_words(problem)
        assert "steps[" not in said
        assert said.startswith(f"Mechanism {int(i) + 1}: ")
        if problem.startswith(f"steps[{i}]: {field.name[2:]} must"):
            assert said.startswith(f"Mechanism {int(i) + 1}: {field.label} must")
            assert wrong.field_of(problem) == field.name


@pytest.mark.parametrize(
    ("pairs", "problem", "says", "field"),
    [
        ([("0.mechanism", "gaussian")], "steps[0]: rate must be in [0, 1], got 7",
         "Sampling rate must be in [0, 1], got 7", "0.rate"),
        ([("0.mechanism", "gaussian")], "steps[0].times must be an integer >= 0, got 1.5",
         "Runs must be an integer >= 0, got 1.5", "0.times"),
        ([("0.mechanism", "gaussian"), ("1.mechanism", "laplace")],
         "steps[1]: laplace needs scale", "Mechanism 2: laplace needs scale", "1.laplace"),
        ([("0.mechanism", "gaussian"), ("0.shuffled", "0")],
         "steps[0]: steps must be an integer >= 1, got 0",
         "Batches of an epoch must be an integer >= 1, got 0", "0.shuffled"),
        ([("0.mechanism", "gaussian"), ("0.batch", "6"), ("0.of", "")],
         "steps[0]: batch needs of beside it, got 6 without it",
         "Records in a batch needs of beside it, got 6 without it", "0.batch"),
        ([("plan", "x = 1")], "steps[0]: rate must be", "steps[0]: rate must be", ""),
        ([], "delta must be in [0, 1], got 3", "δ must be in [0, 1], got 3", "at"),
        ([], "tpr must be in (0, 1), got 3", "True-positive rate must be in (0, 1), got 3", ""),
        ([], "stops[1] must be above 5", "Stop 2 must be above 5", ""),
        ([], "stops.0: Input should be", "Stop 1: Input should be", ""),
        ([], "weights[0] must be", "Weight of stop 1 must be", ""),
        ([], "steps[9]: sigma must be", "sigma must be", "9.sigma"),
        ([], "something else", "something else", ""),
    ],
)  # fmt: skip
def test_refusals_have_the_words_of_the_form(
    pairs: list[tuple[str, str]], problem: str, says: str, field: str
) -> None:
    form = typed(*pairs)
    assert (form.in_words(problem), form.field_of(problem)) == (says, field)


@pytest.mark.parametrize(
    ("rate", "times", "epsilon", "asks"),
    [
        ("", "1000", 634.0, True),
        ("1", "1000", 634.0, True),
        ("1.0", "1000", 50.1, True),
        ("0.5", "1000", 634.0, False),
        ("", "1000", 50.0, False),
        ("", "1", 634.0, False),
        ("", "", 634.0, False),
    ],
)
def test_a_rate_that_was_forgotten_is_asked_for(
    rate: str, times: str, epsilon: float, asks: bool
) -> None:
    form = typed(("0.mechanism", "gaussian"), ("0.rate", rate), ("0.times", times))
    assert form.lacks_rate(epsilon) is asks


def test_goals_have_words() -> None:
    assert set(GOALS_IN_WORDS) == set(GOALS)
    form = typed(("0.mechanism", "gaussian"), ("goal", "tpr"))
    assert [f.label for f in form.goals()] == ["True-positive rate", "False-positive rate"]
    assert ("0.rate", "Sampling rate") in form.parameters
