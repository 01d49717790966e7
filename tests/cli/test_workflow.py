"""``tightbudget workflow``: as in Python, for programs and for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.terminal import answer, refusal, run

import tightbudget as tb
from tightbudget.workflows import Workflow, priced, write_workflow

LOUD, QUIET = tb.Gaussian(5.0), tb.Gaussian(9.0)
WORKFLOW = Workflow(
    {
        "start": [(LOUD, ("loud", 1)), (QUIET, "quiet")],
        ("loud", 1): [(QUIET, "end")],
        "quiet": [(QUIET, "end")],
        "end": [],
    }
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_workflow(WORKFLOW, tmp_path / "epochs.toml")
    return tmp_path / "epochs.toml"


def test_the_answer_is_that_of_python(file: Path) -> None:
    found = priced(WORKFLOW, 1e-5)
    said = answer("workflow", file, "--delta", "1e-5")
    assert said == found.to_dict()
    assert [row["state"] for row in said["states"]] == ["end", ["loud", 1], "quiet"]
    assert said["states"][0]["costliest_way"] == ["start", ["loud", 1], "end"]
    assert said["states"][2] == {
        "state": "quiet",
        "epsilon": found.prices["quiet"],
        "costliest_way": ["start", "quiet"],
    }


def test_weights_of_the_file_count(file: Path) -> None:
    weights: dict[Any, float] = {"end": 0.5, "quiet": 1.0}
    write_workflow(WORKFLOW, file, weights=weights)
    found = priced(WORKFLOW, 1e-5, weights)
    assert answer("workflow", file, "--delta", "1e-5") == found.to_dict()


def test_of_prices_the_answer_is_delta(file: Path) -> None:
    prices: dict[Any, float] = {"end": 1.0, "quiet": 0.6}
    write_workflow(WORKFLOW, file, prices=prices)
    found = WORKFLOW.delta(prices)
    assert answer("workflow", file)["delta"] == found.to_dict()


def test_prices_above_all_losses_need_no_delta(file: Path) -> None:
    write_workflow(Workflow.chain(tb.Laplace(10.0), [1, 2]), file, prices={1: 0.2, 2: 0.3})
    found = answer("workflow", file)
    assert found["delta"]["upper"] < 1e-15
    assert found["states"][0] == {"state": 2, "epsilon": 0.3, "costliest_way": [0, 1, 2]}


def test_what_people_read(file: Path, tmp_path: Path) -> None:
    result = run(
        "workflow", file, "--delta", "1e-5", "--plot", tmp_path / "prices.png", "--most", "2"
    )
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "what     4 states, 4 moves, from 'start' to 1 end"
    assert lines[2].split(maxsplit=1)[1] == "'end': 'start' > ('loud', 1) > 'end'"
    assert lines[4].strip() == "1 more states"
    assert lines[5].startswith("delta")
    assert (tmp_path / "prices.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "give --delta, or a price for each end in the file"),
        (["--delta", "2"], "delta must be in (0, 1), got 2"),
        (["--delta", "x"], "delta must be in (0, 1), got 'x'"),
        (["--delta", "1e-5", "--rtol", "1"], "rtol must be in (0, 1), got 1.0"),
        (["--delta", "1e-5", "--most", "0"], "most must be an integer >= 1, got 0"),
        (["--delta", "1e-5", "--plot", "a.jpeg"], "a.jpeg: the name must end in .png, .svg, .pdf"),
    ],
)
def test_refusals(given: list[str], message: str, file: Path) -> None:
    assert refusal("workflow", file, *given) == message


def test_a_delta_beside_prices_is_refused(file: Path) -> None:
    write_workflow(WORKFLOW, file, prices={"end": 1.0})
    message = f"{file} has prices, for which delta is the answer: leave out --delta or the prices"
    assert refusal("workflow", file, "--delta", "1e-5") == message


def test_a_bad_file_is_refused_by_name(file: Path) -> None:
    file.write_text('[[workflow]]\nstate = "a"\nmoves = [{ to = "b", steps = [] }]')
    message = f"{file}: moves['a'][0][1] must be a state of the workflow, got 'b'"
    assert refusal("workflow", file, "--delta", "1e-5") == message
