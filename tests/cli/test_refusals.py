"""Every refusal is one line that names what is wrong, and an exit code."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from tests.cli.terminal import refusal, run

import tightbudget as tb
from tightbudget.cli import app

GAUSSIAN = ["gaussian", "--sigma", "1"]
AT = ["--delta", "1e-5"]
TARGET = ["--epsilon", "1", "--delta", "1e-6"]

REFUSED = {
    # what is asked about
    "unknown mechanism": (
        ["epsilon", "gausian", *AT],
        r"MECHANISM must be a plan file or one of additive, .*got 'gausian' "
        r"\(did you mean gaussian\?\)",
    ),
    "no such plan": (["epsilon", "none.toml", *AT], "none.toml: no such file or directory"),
    "a folder": (["epsilon", "..", *AT], r"\.\.: is a directory"),
    "missing parameter": (["epsilon", "gaussian", *AT], "MECHANISM: gaussian needs sigma"),
    "another's parameter": (
        ["epsilon", *GAUSSIAN, "--scale", "2", *AT],
        r"MECHANISM: gaussian has no parameter 'scale' \(it has sigma, sensitivity\)",
    ),
    "nan": (
        ["epsilon", "gaussian", "--sigma", "nan", *AT],
        "sigma must be a finite number > 0, got nan",
    ),
    "negative": (
        ["epsilon", "gaussian", "--sigma", "-1", *AT],
        "sigma must be a finite number > 0, got -1",
    ),
    "infinite": (
        ["epsilon", "gaussian", "--sigma", "inf", *AT],
        "sigma must be a finite number > 0, got inf",
    ),
    "a word": (
        ["epsilon", "gaussian", "--sigma", "one", *AT],
        "sigma must be a finite number > 0, got 'one'",
    ),
    "a broken sensitivity": (
        ["epsilon", "discrete-gaussian", "--sigma", "1", "--sensitivity", "1.5", *AT],
        r"sensitivity must be an integer >= 1, got 1\.5",
    ),
    "two values in one": (
        ["epsilon", "gaussian", "--sigma", "1\nsensitivity = 2", *AT],
        "sigma must be a finite number > 0, got '1.nsensitivity = 2'",
    ),
    "rate": (["epsilon", *GAUSSIAN, "--rate", "2", *AT], r"rate must be in .*, got 2"),
    "relation": (
        ["epsilon", *GAUSSIAN, "--relation", "friends", *AT],
        "MECHANISM.relation must be one of add-or-remove, .*, got 'friends'",
    ),
    "broken times": (
        ["epsilon", *GAUSSIAN, "--times", "1.5", *AT],
        r"times must be an integer >= 0, got 1\.5",
    ),
    "negative times": (
        ["epsilon", *GAUSSIAN, "--times", "-1", *AT],
        "times must be an integer >= 0, got -1",
    ),
    # what is asked
    "delta missing": (["epsilon", *GAUSSIAN], "Missing option.*--delta"),
    "delta nan": (["epsilon", *GAUSSIAN, "--delta", "nan"], r"delta must be in \[0, 1\], got nan"),
    "delta too large": (
        ["epsilon", *GAUSSIAN, "--delta", "1.5"],
        r"delta must be in \[0, 1\], got 1\.5",
    ),
    "delta a word": (
        ["epsilon", *GAUSSIAN, "--delta", "small"],
        r"delta must be in \[0, 1\], got 'small'",
    ),
    "epsilon negative": (
        ["delta", *GAUSSIAN, "--epsilon", "-1"],
        "epsilon must be a finite number >= 0, got -1",
    ),
    "rtol": (["epsilon", *GAUSSIAN, *AT, "--rtol", "1"], r"rtol must be in \(0, 1\), got 1"),
    "unknown option": (["epsilon", *GAUSSIAN, *AT, "--sgima", "1"], "No such option.*--sgima"),
    "unknown command": (["spend", "gaussian"], "No such command 'spend'"),
    # curves
    "both lists": (
        ["curve", *GAUSSIAN, "--epsilons", "1", "--deltas", "0.1"],
        "give one of --epsilons and --deltas, got both",
    ),
    "points": (
        ["curve", *GAUSSIAN, "--epsilons", "0:1"],
        "epsilons must be like 0:5:11 or 0.5,1,2, got '0:1'",
    ),
    "points with underscores": (
        ["curve", *GAUSSIAN, "--epsilons", "0:1:1_0"],
        "epsilons must be like .*, got '0:1:1_0'",
    ),
    "points of another script": (
        ["curve", *GAUSSIAN, "--deltas", "\u0661e-5,1e-6"],
        "deltas must be like .*, got '\u0661e-5,1e-6'",
    ),
    "a parameter with underscores": (
        ["epsilon", "gaussian", "--sigma", "1_0", "--delta", "1e-5"],
        "sigma must be .*, got '1_0'",
    ),
    "too many points": (
        ["curve", *GAUSSIAN, "--epsilons", "0:1:1000000"],
        "epsilons must be like .*, got '0:1:1000000'",
    ),
    "infinite points": (
        ["curve", *GAUSSIAN, "--epsilons", "0:inf:5"],
        "epsilons must be like .*, got '0:inf:5'",
    ),
    "a log scale from 0": (
        ["curve", *GAUSSIAN, "--deltas", "0:0.1:5"],
        "deltas must be like 1e-2:1e-12:21 or 1e-5,1e-6, got '0:0.1:5'",
    ),
    "an ending": (["curve", *GAUSSIAN, "--out", "curve.jpeg"], "curve.jpeg: the name must end in"),
    # calibration
    "nothing to find": (
        ["calibrate", *GAUSSIAN, *TARGET],
        "parameter must be named, or left out of the mechanism: gaussian has all it needs",
    ),
    "unknown parameter": (
        ["calibrate", *GAUSSIAN, *TARGET, "--parameter", "scale"],
        "parameter must be one of sigma, sensitivity, rate, allocated, shuffled, batch, at_most, "
        "group, times, got 'scale'",
    ),
    "given and sought": (
        ["calibrate", *GAUSSIAN, *TARGET, "--parameter", "sigma"],
        "sigma must be left out to be calibrated, got 1",
    ),
    "two missing": (
        ["calibrate", "truncated-gaussian", *TARGET],
        "MECHANISM: truncated_gaussian needs bound",
    ),
    "a plan": (
        ["calibrate", "plan.toml", *TARGET],
        "MECHANISM must be one of .* to calibrate, got 'plan.toml'",
    ),
    "between full-width digits": (
        ["calibrate", "gaussian", *TARGET, "--between", "\uff11:10"],
        "between must be like 0.1:10, got '\uff11:10'",
    ),
    "between": (
        ["calibrate", "gaussian", *TARGET, "--between", "1"],
        "between must be like 0.1:10, got '1'",
    ),
    "a target of nothing": (
        ["calibrate", "gaussian", "--epsilon", "1", "--delta", "0"],
        "delta must be .*, got 0",
    ),
    # histograms
    "no question": (["histogram", "a", "b"], "give one of --delta and --epsilon, got neither"),
    "two questions": (
        ["histogram", "a", "b", *TARGET],
        "give one of --delta and --epsilon, got both",
    ),
    "no file": (["histogram", "a", "b", *AT], "a: no such file or directory"),
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_by_name(name: str) -> None:
    args, message = REFUSED[name]
    assert re.match(message, refusal(*args))


def test_options_do_not_change_a_plan_file(tmp_path: Path) -> None:
    tb.write_plan(tb.Gaussian(1.0) * 2, tmp_path / "plan.toml")
    message = refusal("epsilon", "plan.toml", "--rate", 0.1, *AT)
    assert message == "rate must be in the plan file itself, got the option beside plan.toml"


def test_a_bad_plan_file_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("[[steps]]\n")
    assert refusal("delta", "plan.toml", "--epsilon", 1).startswith(
        "plan.toml: steps[0].mechanism must be one of "
    )


def test_a_file_without_an_ending_can_be_a_plan(tmp_path: Path) -> None:
    (tmp_path / "plan").write_bytes(b"\xff")
    assert refusal("epsilon", "plan", *AT) == "plan: not UTF-8 text (byte 0)"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a.csv: no numbers in it"),
        ("delay\n", "a.csv: no numbers in it"),
        ("1.5\ntwo\n", "a.csv: line 2 must be one finite number, got 'two'"),
        ("1.5\n1_0\n", "a.csv: line 2 must be one finite number, got '1_0'"),
        ("\uff11\n", "a.csv: line 1 must be one finite number, got '\uff11'"),
        ("1.5,2.5\n", "a.csv: line 1 must be one finite number, got '1.5,2.5'"),
        ("1.5\nnan\n", "a.csv: line 2 must be one finite number, got 'nan'"),
        ("inf\n", "a.csv: line 1 must be one finite number, got 'inf'"),
        ("7" * 50 + "x", f"a.csv: line 1 must be one finite number, got '{'7' * 37}...'"),
    ],
)
def test_a_bad_column_is_refused_with_its_line(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content)
    assert refusal("histogram", "a.csv", "b.csv", *AT) == message


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--bin-width", "0"], "bin_width must be a finite number > 0, got 0"),
        (["--keep-below", "0"], "keep_below must be above some value of active, got 0"),
        (["--add-noise", "200"], 'noise must be like "uniform:200" .*, got '),
        (["--smoothing", "-1"], "smoothing must be a finite number >= 0, got -1"),
        (["--times", "-1"], "times must be an integer >= 0, got -1"),
    ],
)
def test_bad_histograms_are_refused(args: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1\n2\n")
    assert re.match(message, refusal("histogram", "a.csv", "a.csv", *args, *AT))


def test_a_gap_that_cannot_be_reached_has_its_own_exit_code() -> None:
    message = refusal("epsilon", *GAUSSIAN, *AT, "--rtol", "1e-16", code=3)
    assert message.startswith("epsilon at delta = 1e-05 is in [4.377")
    assert "relative gap 1e-16 was not reached" in message


def test_no_picture_is_promised_before_the_place_is_known(tmp_path: Path) -> None:
    message = refusal("curve", *GAUSSIAN, "--deltas", "0.1", "--out", "no/curve.png")
    assert message == "no/curve.png: no such file or directory"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    message = refusal("curve", *GAUSSIAN, "--deltas", "0.1", "--out", "curve.png")
    assert message == "plots need matplotlib: pip install 'tightbudget[plot]'"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, EOFError])
def test_an_interruption_is_quiet(
    interruption: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise interruption

    monkeypatch.setattr(tb.Composition, "epsilon", interrupted)
    result = run("epsilon", *GAUSSIAN, *AT)
    assert result.exit_code == 130
    assert result.output.strip() == ""


def test_what_is_not_a_refusal_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(tb.Composition, "epsilon", broken)
    with pytest.raises(AssertionError, match="a bug"):
        app(["epsilon", *GAUSSIAN, *AT])
