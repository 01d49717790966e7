"""``tightbudget stopping``: as in Python, for programs and for people."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.terminal import answer, refusal, run

import tightbudget as tb

ASKED = ["stopping", "gaussian", "--sigma", "5", "--steps", "10", "--every", "4", "--delta", "1e-5"]


def test_the_answer_is_that_of_python() -> None:
    schedule = tb.early_stopping(tb.Gaussian(5.0), [4, 8, 10], 1e-5)
    assert answer(*ASKED) == {
        "stops": [4, 8, 10],
        "epsilons": list(schedule.epsilons),
        "renyi_filter": list(schedule.renyi_filter()),
        "separate": list(schedule.separate),
        "delta": schedule.delta.to_dict(),
    }


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
    found = answer("stopping", plan, "--steps", 4, "--every", 2, "--delta", "1e-5")
    assert found["stops"] == [2, 4]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--every", "0"], "every must be an integer >= 1, got 0"),
        (["--every", "11"], "every must be at most steps = 10, got 11"),
        (["--steps", "0"], "steps must be an integer >= 1, got 0"),
        (["--delta", "2"], "delta must be in (0, 1), got 2"),
        (["--plot", "a.jpeg"], "a.jpeg: the name must end in .png, .svg, .pdf"),
    ],
)
def test_refusals(changed: list[str], message: str) -> None:
    assert refusal(*ASKED, *changed) == message
