"""Every table and figure: computed anew, held against what is committed, drawn, judged."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from papers.finding import Verdict
from tests.papers.committed import PAPERS, SCRIPTS, committed, module

from tightbudget.cli.reproduce import differences

# the command has the name of its module
COMMAND = importlib.import_module("tightbudget.cli.reproduce")
SLOW = {
    "hartmann_2022/figure_01",
    "hartmann_2022/figure_filter",
    "hartmann_2022/figure_gap_delta",
    "hartmann_2022/figure_gap_mechanism",
    "hartmann_2022/figure_gap_stops",
    "hartmann_2022/figure_refinements",
    "meiser_mohammadi_2018/figure_01",
    "meiser_mohammadi_2018/figure_02",
    "meiser_mohammadi_2018/figure_03",
    "meiser_mohammadi_2018/figure_11",
    "meiser_mohammadi_2018/figure_12",
    "meiser_mohammadi_2018/figure_12_coverup",
    "meiser_mohammadi_2018/figure_13",
    "meiser_mohammadi_2018/figure_14",
    "meiser_mohammadi_2018/figure_15",
    "meiser_mohammadi_2018/figure_16",
    "meiser_mohammadi_2018/figure_18",
    "meiser_mohammadi_2018/figure_19",
    "meiser_mohammadi_2018/figure_20",
    "meiser_mohammadi_2018/figure_21",
    "meiser_mohammadi_2018/figure_22",
    "meiser_mohammadi_2018/figure_convergence",
    "meiser_mohammadi_2018/table_17",
    "meiser_mohammadi_2018/table_minimal_noise",
    "meiser_mohammadi_2018/table_timing",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", [pytest.param(s, marks=[pytest.mark.slow] if s in SLOW else []) for s in SCRIPTS]
)
def test_the_numbers_are_those_committed(
    script: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source, (paper, name) = module(script), script.split("/")
    if hasattr(source, "NEEDS"):
        request.getfixturevalue("shared")
    result = COMMAND._run(PAPERS / paper / f"{name}.py", tmp_path)
    assert result.different == ()
    # all that is said and drawn follows from the numbers that were written
    numbers = json.loads((tmp_path / paper / f"{name}.json").read_text(encoding="utf-8"))
    assert result.entry.said["found"] == source.finding(numbers).text
    if name.startswith("figure"):
        for suffix, least in ((".png", 10_000), (".svg", 5_000)):
            drawn = (tmp_path / paper / name).with_suffix(suffix)
            assert drawn.stat().st_size > least
            again = tmp_path / f"{name}{suffix}"
            source.draw(numbers, again)
            assert again.read_bytes() == drawn.read_bytes()


def test_what_is_committed_is_what_there_is() -> None:
    assert {f"{p.parents[1].name}/{p.stem}" for p in PAPERS.glob("*/expected/*")} == {*SCRIPTS}
    assert {*SCRIPTS} >= SLOW


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_says_what_it_shows_and_what_its_paper_claims(script: str) -> None:
    source = module(script)
    assert (source.__doc__ or "").partition("\n")[0].endswith(".")
    assert source.CLAIM.endswith(".")
    assert "\n" not in source.CLAIM
    assert len(source.CLAIM) < 250
    finding = source.finding(committed(script))
    assert isinstance(finding.verdict, Verdict)
    assert finding.text.endswith(".")


@pytest.mark.one_in(6)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_number_that_moves_is_seen(script: str) -> None:
    """Each of them, but for those that are 0 or known to a tenth only."""
    expected, moves = committed(script), getattr(module(script), "MOVES", 0.0)
    places = list(_moved(expected))
    assert places
    seen = [bool(list(differences(changed, expected, moves))) for changed in places]
    assert all(seen)


def _moved(x: Any) -> Any:
    """The same content with one number 10 % larger, for each number in turn."""
    if isinstance(x, dict) and x.keys() == {"lower", "upper"}:
        if x["lower"] * 1.1 > x["upper"] * 1.01:
            yield {"lower": x["lower"] * 1.1, "upper": x["upper"] * 1.1}
    elif isinstance(x, dict):
        for name, inside in x.items():
            yield from ({**x, name: y} for y in _moved(inside) if name != "seconds")
    elif isinstance(x, list):
        for i, inside in enumerate(x):
            yield from ([*x[:i], y, *x[i + 1 :]] for y in _moved(inside))
    elif isinstance(x, (int, float)) and x:
        yield x * 1.1
