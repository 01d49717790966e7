"""``tightbudget stopping``: as in Python, for programs and for people."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.terminal import answer, refusal, run

import tightbudget as tb

ASKED = ["stopping", "gaussian", "--sigma", "5", "--times", "10", "--every", "4", "--delta", "1e-5"]


def test_the_answer_is_that_of_python() -> None:
    schedule = tb.early_stopping(tb.Gaussian(5.0), [4, 8, 10], 1e-5)
    assert answer(*ASKED) == {
        "stops": [4, 8, 10],
        "epsilons": list(schedule.epsilons),
        "renyi_filter": list(schedule.renyi_filter()),
        "separate": list(schedule.separate),
        "delta": schedule.delta.to_dict(),
    }


def test_stops_and_weights_are_given_one_by_one() -> None:
    asked = ["--times", "10", "--stops", "2,7,10", "--weights", "1,0.5,2", "--delta", "1e-5"]
    schedule = tb.early_stopping(tb.Gaussian(5.0), [2, 7, 10], 1e-5, [1, 0.5, 2])
    assert answer("stopping", "gaussian", "--sigma", "5", *asked) == schedule.to_dict()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "give exactly one of --every and --stops"),
        (["--every", "2", "--stops", "10"], "give exactly one of --every and --stops"),
        (["--stops", "2,7"], "stops must end with times = 10, got '2,7'"),
        (["--stops", "2,a,10"], "stops[1] must be an integer >= 1, got 'a'"),
        (
            ["--stops", "2,10", "--weights", "1"],
            "weights must hold a weight for each of the 2 stops, got [1]",
        ),
        (
            ["--stops", "2,10", "--weights", "1,x"],
            "weights[1] must be a finite number > 0, got 'x'",
        ),
    ],
)
def test_refusals_of_stops(given: list[str], message: str) -> None:
    asked = ["stopping", "gaussian", "--sigma", "5", "--times", "10", "--delta", "1e-5"]
    assert refusal(*asked, *given) == message


def test_what_people_read(tmp_path: Path) -> None:
    result = run(*ASKED, "--plot", tmp_path / "prices.png")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["what", "gaussian", "sigma=5.0,", "10", "times"]
    assert [line.split()[0] for line in lines[2:5]] == ["4", "8", "10"]
    assert lines[5].startswith("delta")
    assert (tmp_path / "prices.png").stat().st_size > 1000


def test_a_plan_is_one_step(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    tb.write_plan(tb.Gaussian(5.0) * 2 + tb.Laplace(20.0), plan)
    found = answer("stopping", plan, "--times", 4, "--every", 2, "--delta", "1e-5")
    assert found["stops"] == [2, 4]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--every", "0"], "every must be an integer >= 1, got 0"),
        (["--every", "11"], "every must be at most times = 10, got 11"),
        (["--times", "0"], "times must be an integer >= 1, got 0"),
        (["--delta", "2"], "delta must be in (0, 1), got 2"),
        (["--plot", "a.jpeg"], "a.jpeg: the name must end in .png, .svg, .pdf"),
    ],
)
def test_refusals(changed: list[str], message: str) -> None:
    assert refusal(*ASKED, *changed) == message
