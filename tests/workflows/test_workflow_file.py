"""Workflows in files: what is written is read back, what is not understood is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tightbudget as tb
from tightbudget.workflows import (
    Workflow,
    WorkflowFile,
    priced,
    read_workflow,
    write_workflow,
)

LOUD, QUIET = tb.Gaussian(sigma=5.0), tb.Laplace(scale=20.0)
WORKFLOW = Workflow(
    {
        "start": [
            (LOUD * 10, ("loud", 1)),
            (QUIET, "quiet"),
            (tb.Gaussian(9.0).shuffled(3), "end"),
        ],
        ("loud", 1): [(LOUD * 10 + QUIET * 2, "end"), (tb.Composition(), "quiet")],
        "quiet": [(tb.ExponentialMechanism(0.1) * 3, "end")],
        "end": [],
    }
)
GOOD = """
[[workflow]]
state = "a"
moves = [{ to = "b", mechanism = "gaussian", sigma = 2.0 }]
[[workflow]]
state = "b"
"""


def in_file(folder: Path, text: str, name: str = "workflow.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["a.toml", "a.toml.gz", "a.json", "a.json.gz"])
@pytest.mark.parametrize(
    ("weights", "prices"),
    [(None, None), ({"end": 1.0, "quiet": 0.3}, None), (None, {"quiet": 0.5, "end": 2.0})],
)
def test_what_is_written_is_read_back(
    name: str, weights: object, prices: object, tmp_path: Path
) -> None:
    write_workflow(WORKFLOW, tmp_path / name, weights=weights, prices=prices)  # type: ignore[arg-type]
    found = read_workflow(tmp_path / name)
    assert found == WorkflowFile(WORKFLOW, weights, prices)  # type: ignore[arg-type]
    assert found.workflow.start == "start"


@pytest.mark.parametrize("name", ["a.toml", "a.json"])
def test_an_epoch_of_steps_is_read_back(name: str, tmp_path: Path) -> None:
    epochs = Workflow.chain(tb.Gaussian(9.0).shuffled(3), [1, 2])
    write_workflow(epochs, tmp_path / name)
    assert read_workflow(tmp_path / name).workflow == epochs


def test_a_file_is_as_a_person_writes_it(tmp_path: Path) -> None:
    found = read_workflow(in_file(tmp_path, GOOD))
    assert found.workflow == Workflow({"a": [(tb.Gaussian(2.0), "b")], "b": []})
    assert found.weights is None
    assert found.prices is None
    write_workflow(found.workflow, tmp_path / "again.toml")
    assert (tmp_path / "again.toml").read_text() == (
        'tightbudget = 1\n\n[[workflow]]\nstate = "a"\nmoves = [\n'
        '    { to = "b", mechanism = "gaussian", sigma = 2.0, times = 1 },\n]\n\n'
        '[[workflow]]\nstate = "b"\n'
    )


def test_json_is_what_to_dict_has(tmp_path: Path) -> None:
    path = in_file(tmp_path, json.dumps(WORKFLOW.to_dict()), "a.json")
    assert read_workflow(path).workflow == WORKFLOW


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workflow = [", "not TOML: "),
        ("tightbudget = 2\n" + GOOD, r"tightbudget \(the version\) must be 1, got 2"),
        ("", r"a workflow needs \[\[workflow\]\], a table for each state, and there is none"),
        ("workflow = 3", r"a workflow needs \[\[workflow\]\]"),
        ("workflow = [3]", r"workflow\[0\] must be a table with state and moves, got 3"),
        ("delta = 1e-5\n" + GOOD, "expected the keys tightbudget and workflow, a list, got"),
        (GOOD + "stop = true", r"workflow\[1\] must be a table with state and moves, got .*stop"),
        (GOOD + GOOD, r"workflow\[2\] must be a new state, got 'a' again"),
        (GOOD + "moves = 3", "the moves of state 'b' must be a list, got 3"),
        (GOOD + "moves = [3]", r"state 'b': moves\[0\] must be a table with to and steps, got 3"),
        (GOOD + "moves = [{ steps = [] }]", r"state 'b': moves\[0\] must be a table with to and s"),
        (
            GOOD + 'moves = [{ to = "a", steps = [], sigma = 1.0 }]',
            r"state 'b': moves\[0\] must have steps or a mechanism's keys, got 'sigma'",
        ),
        (
            GOOD + 'moves = [{ to = "a", mechanism = "laplace", scale = -1.0 }]',
            r"state 'b': moves\[0\]: steps\[0\]: scale must be .* > 0, got -1.0",
        ),
        (
            GOOD + 'moves = [{ to = "a", mechanism = "gausian", sigma = 1.0 }]',
            r"state 'b': moves\[0\]: steps\[0\].mechanism must be one of .*, got 'gausian'",
        ),
        (
            GOOD + 'moves = [{ to = "a", steps = [] }]',
            "a workflow must come to an end, but 'a' to 'b' to 'a' is a circle",
        ),
        (GOOD + '[[workflow]]\nstate = "c"', "state 'c' is never reached from 'a'"),
        (GOOD + 'moves = [{ to = "c", steps = [] }]', r"must be a state of the workflow, got 'c'"),
        (GOOD + "[[workflow]]\nstate = 1.5", "cell must be a text, an integer, or a tuple of"),
        (GOOD + "weight = 0", "the weight of state 'b' must be a finite number > 0, got 0"),
        (GOOD + "price = -1.0", "the price of state 'b' must be a finite number >= 0, got -1.0"),
        (GOOD + "price = nan", "the price of state 'b' must be a finite number >= 0, got nan"),
        (
            GOOD.replace('"a"', '"a"\nweight = 1') + "price = 1.0",
            "states have weights, for which prices are found, or prices, and not both",
        ),
        (GOOD.replace('"a"', '"a"\nweight = 1'), "state 'b' is an end, and must have a weight"),
        (GOOD.replace('"a"', '"a"\nprice = 1'), "state 'b' is an end, and must have a price"),
        (
            GOOD.replace('"a"', '"a"\nprice = 1.5') + "price = 1.0",
            "the price of state 'a' must be at most 1.0, that of state 'b', which can come",
        ),
    ],
)
def test_what_is_no_workflow_is_refused_with_path_and_reason(
    text: str, said: str, tmp_path: Path
) -> None:
    path = in_file(tmp_path, text)
    with pytest.raises(tb.errors.FileError, match=said) as refused:
        read_workflow(path)
    assert str(refused.value).startswith(f"{path}: ")


def test_a_price_is_compared_with_all_that_can_come_after_it(tmp_path: Path) -> None:
    chain = Workflow.chain(QUIET, [1, 2, 3])
    write_workflow(chain, tmp_path / "a.toml", prices={1: 0.5, 3: 0.5})  # 2 is no stop
    with pytest.raises(
        tb.ParameterError, match=r"price of state 1 must be at most 0.4, that of state 3, which"
    ):
        write_workflow(chain, tmp_path / "b.toml", prices={1: 0.5, 3: 0.4})
    assert not (tmp_path / "b.toml").exists()


def test_what_is_no_json_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tb.errors.FileError, match=r"a.json: not JSON: "):
        read_workflow(in_file(tmp_path, "{", "a.json"))
    with pytest.raises(tb.errors.FileError, match=r"a.json: a workflow needs"):
        read_workflow(in_file(tmp_path, "[]", "a.json"))
    with pytest.raises(tb.errors.FileError, match=r"b.toml: no such file"):
        read_workflow(tmp_path / "b.toml")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workflow": "w.toml"}, "workflow must be a Workflow, before the path, got 'w.toml'"),
        ({"prices": {9: 0.5}}, "prices must name states of the workflow, got 9"),
        ({"weights": {9: 0.5}}, "weights must name states of the workflow, got 9"),
        ({"prices": {1: "x"}}, r"prices\[1\] must be"),
        ({"weights": {1: 0.0}}, r"weights\[1\] must be"),
    ],
)
def test_what_cannot_be_written_leaves_no_file(
    given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    chain = Workflow.chain(tb.Gaussian(5.0), [1, 2])
    with pytest.raises(tb.ParameterError, match=message):
        write_workflow(**{"workflow": chain, "path": tmp_path / "a.toml", **given})
    assert list(tmp_path.iterdir()) == []


def test_a_file_prices_its_states_or_bounds_the_delta_of_its_prices(tmp_path: Path) -> None:
    chain = Workflow.chain(tb.Gaussian(5.0), [1, 2])
    write_workflow(chain, tmp_path / "a.toml", weights={1: 0.5, 2: 1.0})
    read = read_workflow(tmp_path / "a.toml")
    found = read.priced(1e-5)
    assert found.prices == priced(chain, 1e-5, {1: 0.5, 2: 1.0}).prices
    assert WorkflowFile.from_dict(read.to_dict()) == read
    with pytest.raises(tb.ParameterError, match=r"has no prices, got delta = None$"):
        read.priced()
    write_workflow(chain, tmp_path / "b.toml", prices=found.prices)
    again = read_workflow(tmp_path / "b.toml")
    assert again.priced().delta.overlaps(found.delta)
    assert again.priced().prices == found.prices
    with pytest.raises(tb.ParameterError, match=r"has prices, got delta = 1e-05$"):
        again.priced(1e-5)
