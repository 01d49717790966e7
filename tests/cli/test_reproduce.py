"""``tightbudget reproduce``: what matches, what does not, and what it refuses."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.terminal import answer, refusal, run
from typer.testing import Result

from tightbudget import Bounds
from tightbudget.cli.reproduce import differences

# the command has the name of its module
MODULE = importlib.import_module("tightbudget.cli.reproduce")

TABLE = '''"""How many n there are.

Details.
"""
from papers.finding import Finding, Verdict

CLAIM = "n is < 3"
MOVES = 1e-3

def numbers():
    return {"n": 3, "delta": {"lower": 0.5, "upper": 0.5001}, "price": 1.25, "seconds": 0.1}

def table(numbers):
    return f"n is {numbers['n']}"

def finding(numbers):
    return Finding(f"n = {numbers['n']} & more", Verdict.of(numbers["n"] < 3))
'''
FIGURE = '''"""Sizes."""
from pathlib import Path
from papers.finding import Finding, Verdict
from papers.{paper}.sizes import SIZE

CLAIM = "It is large."

def numbers():
    return {{"sizes": [SIZE]}}

def draw(numbers, path):
    path.write_text(f"{{path.suffix}} {{numbers['sizes']}}")

def finding(numbers):
    return Finding("It is.", Verdict.of(numbers["sizes"] > [6]))
'''


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A paper of one table and one figure, which is all that adding a paper takes."""
    paper = tmp_path / "papers" / "toy_1999"
    (paper / "expected").mkdir(parents=True)
    (paper / "table_1.py").write_text(TABLE)
    (paper / "figure_02.py").write_text(FIGURE.format(paper=paper.name))
    (paper / "sizes.py").write_text("SIZE = 7\n")
    expect(paper, "table_1", {"n": 3, "delta": {"lower": 0.4, "upper": 0.50005}, "price": 1.2501,
                              "seconds": 7.0})  # fmt: skip
    expect(paper, "figure_02", {"sizes": [7]})
    monkeypatch.setattr(MODULE, "_PAPERS", paper.parent)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    yield paper.parent
    for name in [name for name in sys.modules if name.startswith("papers.toy_1999")]:
        del sys.modules[name]


def expect(paper: Path, name: str, numbers: dict[str, Any]) -> None:
    (paper / "expected" / f"{name}.json").write_text(json.dumps(numbers))


def reproduce(*asked: object) -> Result:
    """In this process: the fixture's folder is where papers are."""
    return run("reproduce", *asked, "--processes", 1)


def test_all_as_expected(papers: Path) -> None:
    result = reproduce()
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[:-1] == [
        "toy_1999/figure_02 paper It is large.",
        "found It is.",
        "verdict matches",
        "numbers 1, as expected",
        "toy_1999/table_1 paper n is < 3",
        "found n = 3 & more",
        "verdict does not match",
        "numbers 4, as expected",
        "n is 3",
        "wrote out/report.html",
    ]
    out = Path("out") / "toy_1999"
    assert (out / "figure_02.png").read_text() == ".png [7]"
    assert (out / "figure_02.svg").read_text() == ".svg [7]"
    assert json.loads((out / "figure_02.json").read_text()) == {"sizes": [7]}
    assert json.loads((out / "table_1.json").read_text())["n"] == 3


def test_the_report_says_claim_finding_and_verdict(papers: Path) -> None:
    expect(papers / "toy_1999", "figure_02", {"sizes": [8]})
    assert reproduce().exit_code == 1
    assert (
        Path("out/report.md").read_text()
        == """\
# Reproductions

## toy_1999/figure_02: Sizes

**paper**: It is large.

**found**: It is.

**verdict**: matches

**numbers**: 1, of which these differ:
  * sizes[0]: 7, expected 8

![toy_1999/figure_02](toy_1999/figure_02.png)

## toy_1999/table_1: How many n there are

**paper**: n is < 3

**found**: n = 3 & more

**verdict**: does not match

**numbers**: 4, as expected

```text
n is 3
```
"""
    )
    page = Path("out/report.html").read_text()
    for part in (
        "<h2>toy_1999/table_1: How many n there are</h2>",
        "<dt>paper</dt><dd>n is &lt; 3</dd>",
        "<dt>found</dt><dd>n = 3 &amp; more</dd>",
        "<dt>verdict</dt><dd>does not match</dd>",
        "<dt>numbers</dt><dd>1, of which these differ:\nsizes[0]: 7, expected 8</dd>",
        '<img src="toy_1999/figure_02.svg" alt="toy_1999/figure_02">',
        "<pre>n is 3</pre>",
    ):
        assert part in page


@pytest.mark.slow
def test_two_processes_find_the_same(papers: Path) -> None:
    reproduce("--out", "one")
    run("reproduce", "--out", "two", "--processes", 2)
    for path in Path("one").rglob("*.*"):
        assert path.read_bytes() == (Path("two") / path.relative_to("one")).read_bytes()


def test_what_differs_is_named_and_the_exit_code_is_1(papers: Path) -> None:
    expect(papers / "toy_1999", "figure_02", {"sizes": [8]})
    result = reproduce("toy-1999")
    assert result.exit_code == 1
    assert "1, of which these differ:" in result.stdout
    assert "sizes[0]: 7, expected 8" in result.stdout
    assert "4, as expected" in result.stdout
    assert reproduce("--table", "1").exit_code == 0


def test_numbers_that_nobody_committed_differ(papers: Path) -> None:
    shutil.rmtree(papers / "toy_1999" / "expected")
    result = reproduce("--table", "1")
    assert result.exit_code == 1
    assert "nothing is committed: no expected/table_1.json" in result.stdout


def test_what_needs_other_data_is_skipped_without_them(papers: Path) -> None:
    figure = papers / "toy_1999" / "figure_02.py"
    figure.write_text(figure.read_text() + "NEEDS = Path('data')\n")
    result = reproduce("--figure", "2")
    assert result.exit_code == 0
    assert "skipped  data is not there" in result.stdout
    assert "verdict" not in result.stdout
    assert "**skipped**: data is not there" in Path("out/report.md").read_text()
    assert not Path("out/toy_1999").exists()
    Path("data").mkdir()
    assert "verdict" in reproduce("--figure", "2").stdout


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["--figure", "2"], ["figure_02", "figure_02_part"]),
        (["--figure", "02"], ["figure_02", "figure_02_part"]),
        (["--figure", "2-part"], ["figure_02_part"]),
        (["--figure", "2_part", "--table", "1"], ["figure_02_part", "table_1"]),
        (["--table", "01"], ["table_1"]),
        (["toy-1999"], ["figure_02", "figure_02_part", "table_1"]),
    ],
)
def test_names(papers: Path, asked: list[str], found: list[str]) -> None:
    paper = papers / "toy_1999"
    shutil.copy(paper / "figure_02.py", paper / "figure_02_part.py")
    expect(paper, "figure_02_part", {"sizes": [7]})
    assert [*answer("reproduce", *asked, "--processes", 1)["results"]] == [
        f"toy_1999/{name}" for name in found
    ]


def test_json(papers: Path) -> None:
    assert answer("reproduce", "--out", "there", "--processes", 1) == {
        "results": {
            "toy_1999/figure_02": {
                "paper": "It is large.", "found": "It is.", "verdict": "matches",
                "numbers": 1, "different": [],
            },
            "toy_1999/table_1": {
                "paper": "n is < 3", "found": "n = 3 & more", "verdict": "does not match",
                "numbers": 4, "different": [],
            },
        },
        "wrote": "there",
    }  # fmt: skip


B = {"lower": 1.0, "upper": 1.0001}


@pytest.mark.parametrize(
    ("found", "expected", "lines"),
    [
        (B, {"lower": 1.00005, "upper": 2.0}, []),
        (B, {"lower": 1.0, "upper": 1.0}, []),
        (B, {"lower": 1.001, "upper": 1.2}, []),
        ({"lower": 1.201, "upper": 1.202}, {"lower": 1.1, "upper": 1.2}, []),
        (B, {"lower": 1.1, "upper": 1.2},
         ["x: [1.00000, 1.00010] does not overlap [1.100, 1.200]"]),
        ({"lower": 0.9, "upper": 1.1}, B,
         [f"x: {Bounds(0.9, 1.1)} is wider than [1.00000, 1.00010]"]),
        ({"lower": 0.9, "upper": 1.1}, {"lower": 0.8, "upper": 1.1}, []),
        (1.0005, 1.0, []),
        (1.0015, 1.0, ["x: 1.0015, expected 1.0"]),
        (float("nan"), 1.0, ["x: nan, expected 1.0"]),
        (float("inf"), float("inf"), []),
        (3, 4, ["x: 3, expected 4"]),
        ("a", "b", ["x: 'a', expected 'b'"]),
        ([1, 2], [1], ["x: [1, 2], expected [1]"]),
        ([1, 2], [1, 3], ["x[1]: 2, expected 3"]),
        ({"seconds": 1.0, "a": 1}, {"seconds": 2.0, "a": 1}, []),
        ({"a": {"b": 1}, "c": 2}, {"a": {"b": 2}, "d": 2},
         ["x/a/b: 1, expected 2", "x/d: missing", "x/c: not expected"]),
        (B, 1.0, [f"x: {B}, expected 1.0"]),
    ],
)  # fmt: skip
def test_differences(found: Any, expected: Any, lines: list[str]) -> None:
    assert list(differences(found, expected, 1e-3, "x")) == lines


@pytest.mark.parametrize(
    ("found", "expected", "agree"),
    [
        (B, {"lower": 1.0001, "upper": 1.2}, True),
        (B, {"lower": 1.00011, "upper": 1.2}, False),
        (1.0, 1.0, True),
        (1.0 + 1e-15, 1.0, False),
    ],
)
def test_what_was_not_searched_for_does_not_move(found: Any, expected: Any, agree: bool) -> None:
    assert (not list(differences(found, expected, 0.0))) is agree


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["swift_1726"], "paper must be one of toy_1999, got 'swift_1726'"),
        (["--figure", "9"], "figure must be one of 02, got '9'"),
        (["--table", "2"], "table must be one of 1, got '2'"),
        (["--processes", "0"], "processes must be an integer >= 1, got 0"),
        (["--out", "papers/toy_1999/sizes.py/x"], "papers/toy_1999/sizes.py/x/toy_1999: not a "
         "directory"),
    ],
)  # fmt: skip
def test_refusals(papers: Path, asked: list[str], message: str) -> None:
    assert refusal("reproduce", *asked) == message


def test_without_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(MODULE, "_PAPERS", tmp_path / "papers")
    assert refusal("reproduce") == (
        f"{tmp_path / 'papers'}: no such folder; tables and figures of papers are in a checkout "
        "of the project, not in the installed package"
    )


def test_without_matplotlib(papers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (papers / "toy_1999" / "sizes.py").write_text("import matplotlib.figure\n")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    assert refusal("reproduce", "--figure", "2") == (
        "figures need matplotlib: pip install 'tightbudget[plot]'"
    )


def test_any_other_missing_module_is_a_fault_of_the_script(papers: Path) -> None:
    (papers / "toy_1999" / "sizes.py").write_text("import no_such_module\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        run("reproduce", "--figure", "2")
