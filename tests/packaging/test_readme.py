"""README leads on from wherever it is shown, and its picture shows what was measured."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

import tightbudget as tb
from tightbudget.links import DOCUMENTATION, REPOSITORY

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TARGET = re.compile(r"(?<!`)\]\(([^)\s]+)\)")
PRINTED = json.loads((ROOT / "benchmarks" / "printed.json").read_text(encoding="utf-8"))

# written by `make docs`, or kept in the root of the repository
BUILT = ("reference/",)


def relative(text: str) -> list[str]:
    """Targets of links and pictures that lead on only from a checkout."""
    return [target for target in TARGET.findall(text) if not target.startswith("https://")]


def test_readme_has_no_relative_link() -> None:
    assert TARGET.findall(README)
    assert not relative(README)


def test_a_relative_link_is_seen() -> None:
    assert relative("[a](docs/a.md) ![b](images/b.png) [c](https://example.org)") == [
        "docs/a.md",
        "images/b.png",
    ]


def test_readme_leads_to_pages_that_are_there() -> None:
    pages = [t.removeprefix(DOCUMENTATION) for t in TARGET.findall(README) if DOCUMENTATION in t]
    assert len(pages) > 10
    for page in filter(None, pages):
        assert page.endswith(".html"), page
        source = ROOT / "docs" / f"{page.removesuffix('.html')}.md"
        assert source.exists() or page.startswith(BUILT), page


def test_readme_leads_to_files_of_the_repository_that_are_there() -> None:
    files = re.findall(rf"{re.escape(REPOSITORY)}/(?:raw|blob)/main/([^)\s]+)", README)
    assert "docs/images/printed.png" in files
    for file in files:
        assert (ROOT / file).is_file(), file


def test_readme_has_six_doors_and_is_short() -> None:
    assert len(re.findall(r"^- \*\*I .*\*\*", README, re.MULTILINE)) == 6
    assert README.count("\n") < 120
    assert "<!-- generated" not in README


# ------------------------------------------------------------------------------- picture


def test_what_others_print_has_its_provenance() -> None:
    assert PRINTED["made"].keys() >= {"by", "date", "python", "opacus", "dp-accounting"}
    assert (ROOT / PRINTED["made"]["by"]).is_file()
    assert len(PRINTED["said"]) == 5


@pytest.mark.parametrize(
    ("name", "below", "above"),
    [
        ("Opacus GDP", [1e-5, 1e-12], []),
        ("Opacus PRV", [1e-12, 1e-13], [1e-5, 1e-10]),
        ("Opacus RDP", [], [1e-5, 1e-12]),
        ("dp-accounting PLD", [], [1e-5, 1e-12]),
    ],
)
def test_the_picture_says_on_which_side_each_is(
    name: str, below: list[float], above: list[float]
) -> None:
    run = tb.Gaussian(sigma=PRINTED["sigma"]).subsampled(rate=PRINTED["rate"]) * PRINTED["steps"]
    said = dict(zip(PRINTED["many_deltas"], PRINTED["said"][name]["by_delta"], strict=True))
    at = {round(-math.log10(delta)): value for delta, value in said.items()}
    for delta in below + above:
        truth = run.epsilon(delta)
        value = at[round(-math.log10(delta))]
        assert value < truth.lower if delta in below else value > truth.upper
