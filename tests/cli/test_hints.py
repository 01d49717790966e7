"""A mistake is answered with what was meant, an answer says what was asked, and help fits."""

from __future__ import annotations

import itertools
import json
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.cli.terminal import ASKED, answer, refusal, run

import tightbudget as tb
from tightbudget.cli.ledger.options import as_written
from tightbudget.mechanisms.derived import Derived
from tightbudget.notation.options import OPTIONS, options_of_kind
from tightbudget.output_dp.amount import exact

GAUSSIAN = ["gaussian", "--sigma", "1"]
AT = ["--delta", "1e-5"]
NONE = ["--ledger", "sqlite:///none.db"]

HINTS = {
    "noise multiplier": (
        ["epsilon", "gaussian", "--noise-multiplier", "1", *AT],
        "No such option: --noise-multiplier (sigma is the noise multiplier times the sensitivity,",
    ),
    "noise multiplier, before the name": (
        ["epsilon", "--noise-multiplier", "1", "gaussian", *AT],
        "No such option: --noise-multiplier (sigma is the noise multiplier times the sensitivity,",
    ),
    "noise multiplier of nobody": (
        ["epsilon", "--noise-multiplier", "1", *AT],
        "No such option: --noise-multiplier (sigma is the noise multiplier times the sensitivity,",
    ),
    "sampling rate": (
        ["epsilon", *GAUSSIAN, "--sampling-rate", "0.1", *AT],
        "No such option: --sampling-rate (the chance of each record to be in a run is rate,",
    ),
    "runs": (
        ["epsilon", *GAUSSIAN, "--runs", "10", *AT],
        "No such option: --runs (how often it runs is times on the command line",
    ),
    "step for steps": (
        ["epsilon", *GAUSSIAN, "--step", "100", *AT],
        "MECHANISM: gaussian has no parameter 'step' (it has sigma, sensitivity): "
        "how often it runs is times on the command line",
    ),
    "percent": (
        ["epsilon", *GAUSSIAN, "--rate", "1%", *AT],
        "rate must be in [0, 1], got '1%' (write 0.01)",
    ),
    "a percentage of delta": (
        ["epsilon", *GAUSSIAN, "--delta", "0.1%"],
        "delta must be in [0, 1], got '0.1%' (write 0.001)",
    ),
    "epsilon for delta": (
        ["epsilon", *GAUSSIAN, "--epsilon", "1"],
        "No such option: --epsilon (epsilon is the answer here, at a --delta; "
        "tightbudget delta takes --epsilon; calibrate finds the sigma for an epsilon and a delta)",
    ),
    "delta for epsilon": (
        ["delta", *GAUSSIAN, *AT],
        "No such option: --delta (delta is the answer here, at an --epsilon; "
        "tightbudget epsilon takes --delta; calibrate finds the sigma for an epsilon and a delta)",
    ),
    "epsilon of a choice": (
        ["epsilon", "exponential", "--epsilon", "0.1", *AT],
        "No such option: --epsilon (epsilon is the answer here, at a --delta; "
        "tightbudget delta takes --epsilon; that of exponential is --step-epsilon)",
    ),
    "half a target": (
        ["calibrate", "gaussian", "--epsilon", "1"],
        "delta is missing: give epsilon and delta together",
    ),
    "no hint": (["epsilon", *GAUSSIAN, "--colour", "1", *AT], "No such option: --colour"),
}
NO_LEDGER = "there is no ledger none.db: tightbudget ledger init makes one"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", HINTS)
def test_a_mistake_is_answered_with_what_was_meant(name: str) -> None:
    args, message = HINTS[name]
    assert refusal(*args).startswith(message)


@pytest.mark.parametrize(
    "command",
    [["ledger", "open", "ada", "--epsilon", "1"], ["ledger", "show"], ["serve"], ["token", "list"]],
)
def test_where_there_is_no_ledger_the_command_that_makes_one_is_named(command: list[str]) -> None:
    assert refusal(*command, *NONE, code=6) == NO_LEDGER


@pytest.mark.parametrize("kind", ["zcdp", "zCDP", "ZCDP"])
def test_the_kind_of_a_budget_is_taken_in_any_case(kind: str) -> None:
    ledger = ["--ledger", "sqlite:///budget.db"]
    assert run("ledger", "init", *ledger).exit_code == 0
    opened = run("ledger", "open", "a", "--kind", kind, "--rho", "1", *ledger, "--json")
    assert json.loads(opened.stdout)["kind"] == "zcdp"
    message = refusal("ledger", "open", "b", "--kind", "friend", *ledger)
    assert message.startswith("kind must be one of ")


# ------------------------------------------------------------------------------- numbers


def test_numbers_are_taken_as_people_write_them() -> None:
    found = answer("epsilon", *GAUSSIAN, "--rate", "256/60000", "--times", "1e3", *AT)
    step = tb.Gaussian(1.0).subsampled(256 / 60000)
    assert found["epsilon"] == (step * 1000).epsilon(1e-5).to_dict()


@pytest.mark.parametrize(("written", "exact"), [("1/3", "1/3"), ("4/8", "1/2"), ("0/7", "0")])
def test_a_ledger_charges_a_quotient_exactly(written: str, exact: str) -> None:
    ledger = ["--ledger", "sqlite:///budget.db"]
    assert run("ledger", "init", *ledger).exit_code == 0
    assert run("ledger", "open", "a", "--epsilon", "1", *ledger).exit_code == 0
    asked = ["--budget", "a", "--key", "k", "--epsilon", written, "--json"]
    hold = json.loads(run("ledger", "reserve", *asked, *ledger).stdout)
    assert hold["guarantee"]["output_dp"]["sup"] == exact


digits = st.text("0123456789", min_size=1, max_size=25)
exponents = st.one_of(
    st.just(""),
    st.integers(-30, 30).map(lambda n: f"e{n}"),
    st.sampled_from(
        ["e-324", "E-400", "e309", "e-999999999999999999999", "e999999999999999999999"]
    ),
)


@given(digits, st.one_of(st.just(""), digits.map(lambda d: f".{d}")), exponents)
@example("1", "", "e-400")
@example("0", ".99999999999999999", "e0")
@example("10", ".00000000000000000001", "e-1")
@example("1", "", "e3")
def test_a_ledger_charges_what_is_written_or_refuses_it(whole: str, part: str, power: str) -> None:
    text = whole + part + power
    try:
        charged = exact(price=as_written(text))
    except tb.ParameterError:  # for instance beyond what a ledger counts
        return
    assert charged == Fraction(text)


@pytest.mark.parametrize("amount", ["1e-400", "1e-999999999999999999999"])
def test_a_delta_that_no_double_holds_is_not_nothing(amount: str) -> None:
    ledger = ["--ledger", "sqlite:///budget.db"]
    assert run("ledger", "init", *ledger).exit_code == 0
    opened = ["--kind", "zcdp", "--rho", "1", *ledger]
    assert run("ledger", "open", "z", *opened).exit_code == 0
    asked = ["--budget", "z", "--key", "k", "--epsilon", "1", "--delta", amount]
    assert refusal("ledger", "reserve", *asked, *ledger).startswith("delta must be ")


FORGOTTEN = "without --rate every run sees all records; did you forget --rate?"


@pytest.mark.parametrize(
    ("more", "noted"),
    [
        (["--times", "1000"], True),
        (["--times", "200"], True),  # nothing is private
        (["--times", "10"], False),
        (["--sensitivity", "100"], False),
        (["--sigma", "50", "--times", "1000"], True),
        (["--sigma", "50", "--times", "999"], False),
        (["--sigma", "50", "--times", "1000", "--rate", "1"], False),
        (["--sigma", "50", "--times", "1000", "--rate", "0.01"], False),
    ],
)
def test_a_forgotten_rate_is_noted(more: list[str], noted: bool) -> None:
    asked = ["epsilon", "gaussian", "--sigma", "1", *more, *AT]
    assert answer(*asked).get("note") == (FORGOTTEN if noted else None)
    assert run(*asked).stdout.count(FORGOTTEN) == noted


@pytest.mark.parametrize(
    "asked",
    [
        ["delta", "--epsilon", "1"],
        ["curve", "--deltas", "0.1,0.01"],
        ["risk", "--epsilon", "1"],
        ["compare", *AT],
        ["calibrate", "--epsilon", "1", *AT],
    ],
    ids=lambda asked: asked[0],
)
@pytest.mark.parametrize("runs", [999, 1000])
def test_every_question_asks_once_whether_a_rate_was_forgotten(asked: list[str], runs: int) -> None:
    command, *rest = asked
    sigma = [] if command == "calibrate" else ["--sigma", "50"]
    whole = [command, "gaussian", *sigma, "--times", runs, *rest]
    assert answer(*whole).get("note") == (FORGOTTEN if runs == 1000 else None)
    assert run(*whole).stdout.count(FORGOTTEN) == (runs == 1000)


def test_a_plan_without_a_rate_is_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    tb.write_plan(tb.Gaussian(50.0) * 600 + tb.Gaussian(60.0) * 500, path)
    said = "no sampling rate: each of 1,100 Gaussian runs sees all records; is that meant?"
    assert answer("epsilon", path, *AT)["note"] == said
    tb.write_plan(tb.Gaussian(50.0).subsampled(0.1) * 6000, path)
    assert "note" not in answer("epsilon", path, *AT)


# ------------------------------------------------------------------------------- JSON

QUESTIONS = {
    "epsilon": AT,
    "delta": ["--epsilon", "1"],
    "curve": ["--deltas", "0.1,0.01"],
    "risk": ["--epsilon", "1"],
    "compare": ["--delta", "0.1"],
    "stopping": ["--every", "1", *AT],
}


@pytest.mark.parametrize("command", QUESTIONS)
def test_json_says_what_was_asked(command: str) -> None:
    answer(command, *GAUSSIAN, "--rate", "0.1", "--times", "2", *QUESTIONS[command])
    asked = ASKED[-1]
    common = {"mechanism": "gaussian", "parameters": {"sigma": 1}, "rate": 0.1, "times": 2}
    assert {name: asked[name] for name in common} == common
    given = {option.lstrip("-") for option in QUESTIONS[command] if option.startswith("--")}
    assert given - {"every"} <= asked.keys()


def test_json_tells_a_plan_and_a_search() -> None:
    tb.write_plan(tb.Gaussian(1.0) * 2, "plan.toml")
    answer("epsilon", "plan.toml", *AT)
    assert ASKED[-1] == {"plan": "plan.toml", "times": 1, "delta": 1e-5, "rtol": 1e-4}
    answer("calibrate", "gaussian", "--epsilon", "1", *AT)
    assert ASKED[-1] == {
        "mechanism": "gaussian",
        "parameters": {},
        "times": 1,
        "parameter": "sigma",
        "epsilon": 1,
        "delta": 1e-5,
        "rtol": 1e-5,
    }
    answer("delta", "worst-case", "--step-epsilon", "1", "--step-delta", "0.1", "--epsilon", "2")
    assert ASKED[-1]["parameters"] == {"epsilon": 1, "delta": 0.1}
    assert ASKED[-1]["epsilon"] == 2


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["epsilon", "gausian", *AT], ("ParameterError", 2)),
        (["epsilon", "none.toml", *AT], ("FileError", 2)),
        (["epsilon", *GAUSSIAN], ("ParameterError", 2)),
        (["epsilon", *GAUSSIAN, "--colour", "1"], ("ParameterError", 2)),
        (["epsilon", *GAUSSIAN, *AT, "--rtol", "1e-16"], ("PrecisionError", 3)),
        (["calibrate", "gaussian"], ("ParameterError", 2)),
        (["sweep", "none.toml"], ("FileError", 2)),
        (["histogram", "a", "b", *AT], ("FileError", 2)),
        (["ledger", "show", *NONE], ("LedgerError", 6)),
        (["token", "list", *NONE], ("LedgerError", 6)),
    ],
)
def test_refusals_are_objects_for_programs(args: list[str], error: tuple[str, int]) -> None:
    result = run(*args, "--json")
    assert result.exit_code == error[1]
    assert result.stdout.count("\n") == 1
    found = json.loads(result.stdout)["error"]
    assert (found["type"], found["exit_code"]) == error
    assert result.stderr == f"error: {' '.join(found['message'].split())}\n"
    assert run(*args).stdout == ""


def test_another_program_s_json_is_not_ours() -> None:
    asked = ["--budget", "a", "--key", "k", "--epsilon", "1", *NONE]
    assert run("ledger", "run", *asked, "--", "cat", "--json").stdout == ""


# ------------------------------------------------------------------------------- help


def test_the_mechanisms_are_listed() -> None:
    shown = run("mechanisms").stdout
    found = json.loads(run("mechanisms", "--json").stdout)
    assert found["version"] == tb.__version__
    derived = {kind for kind, cls in tb.mechanisms.MECHANISMS.items() if issubclass(cls, Derived)}
    assert [m["mechanism"] for m in found["mechanisms"]] == sorted(
        {*tb.mechanisms.MECHANISMS} - derived
    )
    assert [m["mechanism"] for m in found["samplers"]] == sorted(derived)
    for sampler in found["samplers"]:
        line = next(x for x in shown.splitlines() if x.startswith(sampler["options"] + " "))
        assert line.endswith(sampler["summary"])
    for mechanism in found["mechanisms"]:
        line = next(x for x in shown.splitlines() if x.startswith(mechanism["mechanism"] + " "))
        assert line.endswith(mechanism["summary"])
        assert all(parameter["help"] for parameter in mechanism["parameters"]), mechanism
    gaussian = next(m for m in found["mechanisms"] if m["mechanism"] == "gaussian")
    assert [(p["name"], p["needed"], p["default"]) for p in gaussian["parameters"]] == [
        ("sigma", True, None),
        ("sensitivity", False, 1.0),
    ]


@pytest.mark.parametrize("columns", [80, 120])
def test_help_is_about_the_mechanism_that_is_named(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for args in (
        ["gaussian", "--help"],
        ["--help", "Gaussian"],
        ["--delta", "1", "gaussian", "-h"],
    ):
        shown = run("epsilon", *args).stdout
        assert "gaussian: Adds N(0, sigma^2) noise" in shown
        assert "--sigma" in shown
        assert "Needed." in shown
        assert "--scale" not in shown
        assert "Default: 1.0." in shown
    for args in (["--help"], ["plan.toml", "--help"]):
        shown = run("epsilon", *args).stdout
        assert "tightbudget mechanisms" in " ".join(re.sub("[│ ]+", " ", shown).split())
        assert "Parameters of" not in shown
        assert "--rate" in shown


@pytest.mark.parametrize("kind", tb.mechanisms.MECHANISMS)
def test_help_of_a_mechanism_has_each_of_its_parameters(kind: str) -> None:
    shown = run("delta", kind, "--help").stdout
    parameters = [name for name in options_of_kind(kind) if name not in OPTIONS]
    assert shown.count("Needed.") + shown.count("Default:") >= len(parameters)
    for name in options_of_kind(kind):
        assert re.search(rf"--(step-)?{name.replace('_', '-')}\b", shown)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "command", [["calibrate"], ["reproduce"], ["sweep"], ["serve"], ["ledger", "run"]]
)
def test_paragraphs_of_help_fill_their_lines(
    command: list[str], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = run(*command, "--help").stdout.split("╭")[0]
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in paragraph.splitlines() if line.strip()]
        for line, following in itertools.pairwise(lines):
            word = following.split()[0]
            assert len(line) + 1 + len(word) > columns - 4, (line, following)


# -------------------------------------------------------------------- sampled in other ways


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--shuffled", "100", "--steps", "1000"],
            "No such option: --steps (how often it runs is times on the command line and in a plan "
            "file, in Python mechanism * times; of a shuffle or an allocation one run is an epoch)",
        ),
        (
            ["--shuffled", "100", "--epochs", "3"],
            "No such option: --epochs (how often it runs is times on the command line",
        ),
        (["--rate", "0.1", "--shuffled", "9"], "rate and shuffled are different ways to draw"),
        (["--batch", "6"], "batch needs of beside it, got 6 without it"),
        (["--at-most", "6", "--of", "9"], "at_most needs rate beside it, got 6 without it"),
        (["--at-most", "6", "--rate", "0.1"], "at_most needs of beside it, got 6 without it"),
        (["--allocated", "0"], "allocated must be an integer >= 1, got 0"),
        (
            ["--allocated", "100", "--each-in", "200"],
            "each_in must be at most allocated (100), got 200",
        ),
        (["--shuffled", "x"], "shuffled must be an integer >= 1, got 'x'"),
        (["--group", "0"], "group must be an integer >= 1, got 0"),
        (["--rate", "2", "--group", "3"], "rate must be in [0, 1], got 2"),
        (["--batch", "6", "--of", "5"], "batch must be at most of (5), got 6"),
        (["--each-in", "3"], "each_in needs allocated beside it, got 3 alone"),
        (["--shuffled", "9", "--times", "1.5"], "times must be an integer >= 0, got 1.5"),
    ],
)
def test_a_way_to_sample_is_told_as_it_is_meant(args: list[str], message: str) -> None:
    assert refusal("epsilon", *GAUSSIAN, *args, *AT).startswith(message)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "question",
    [
        ["epsilon", *AT],
        ["delta", "--epsilon", "1"],
        ["curve", "--deltas", "1e-3,1e-5"],
        pytest.param(["risk", "--epsilon", "1"], marks=pytest.mark.slow),
        pytest.param(["compare", *AT], marks=pytest.mark.slow),
        ["calibrate", "--parameter", "sigma", "--delta", "1e-5", "--epsilon", "1"],
    ],
    ids=lambda question: question[0],
)
def test_two_ends_are_named_where_they_are_apart(question: list[str]) -> None:
    """Of 24 records with a chance of 0.1 more than 2 are often in a sample, more than 23 never."""
    command, *at = question
    sigma = [] if command == "calibrate" else ["--sigma", "2"]
    for at_most, apart in (("2", True), ("23", False)):
        ways = ["--rate", "0.1", "--at-most", at_most, "--of", "24"]
        assert tb.Gaussian(2.0).truncated_poisson(0.1, int(at_most), 24).attained is not None
        assert ("ends" in answer(command, "gaussian", *sigma, *ways, *at)) is apart


def test_times_count_epochs_of_a_shuffle() -> None:
    args = [*GAUSSIAN, "--shuffled", "100", "--times", "2"]
    found = answer("epsilon", *args, *AT)
    run_ = tb.Gaussian(1.0).shuffled(100) * 2
    assert found["epsilon"] == run_.epsilon(1e-5).to_dict()
    assert ASKED[-1] == {
        "mechanism": "gaussian", "parameters": {"sigma": 1}, "shuffled": 100, "times": 2,
        "delta": 1e-5, "rtol": 1e-4,
    }  # fmt: skip
    assert "below the lower bound" in found["ends"]
    shown = run("epsilon", *args, *AT).stdout
    assert "gaussian sigma=1.0 shuffled=100, 2 epochs" in shown
    assert found["ends"] in shown
    assert "gap" not in shown
    found = answer("calibrate", "gaussian", *args[3:], "--epsilon", "4", *AT)
    assert ASKED[-1]["times"] == 2
    assert "sigma" not in ASKED[-1]["parameters"]
    stops = answer("stopping", *args, "--every", "1", "--delta", "1e-5")
    assert stops["stops"] == [1, 2]


def test_replacement_is_a_flag() -> None:
    args = ["--batch", "2", "--of", "8", "--with-replacement"]
    found = answer("delta", *args, *GAUSSIAN, "--epsilon", "1")
    step = tb.Gaussian(1.0).batches(2, of=8, replacement=True)
    assert found["delta"] == step.delta(1.0).to_dict()
