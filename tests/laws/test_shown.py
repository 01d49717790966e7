"""Laws of how values show themselves: in a line or a few in a shell, and as HTML in a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import CASES, Case
from tests.laws.notebook_cells import CELLS, SETUP

import tightbudget as tb
from tightbudget import drawing, notebook
from tightbudget.errors import ExtraError

HOSTILE = """<script>alert("1")</script>&amp;'<b title="x">&#60;"""
TAGS = {
    *("div", "style", "table", "caption", "thead", "tbody", "tr", "th", "td", "span", "details"),
    *("summary", "pre", "svg", "title", "defs", "pattern", "rect", "line", "path", "g", "use"),
    "clipPath",
}


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The values of the notebook by name, made in this process."""
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("shown"))
        exec(SETUP, names)
        yield {cell: eval(cell, names) for cell in CELLS}
        names["ledger"].close()


def parsed(text: str) -> ElementTree.Element:
    """The elements of an output, which is well-formed and has no script and no address."""
    root = ElementTree.fromstring(text)
    for element in root.iter():
        tag = element.tag.rpartition("}")[2]
        assert tag in TAGS, tag
        assert not [name for name in element.attrib if name.startswith("on")]
        links = [v for k, v in element.attrib.items() if k.rpartition("}")[2] in ("href", "src")]
        assert all(link.startswith("#") for link in links)
        loads = " ".join([*element.attrib.values(), element.text or "" if tag == "style" else ""])
        assert not re.search(r"://|@import|url\((?!#)|javascript:", loads)
    return root


def test_every_value_is_shown_in_a_notebook_and_in_a_shell(values: dict[str, Any]) -> None:
    for cell, value in values.items():
        root = parsed(value._repr_html_())
        assert root.attrib["class"] == "tightbudget"
        assert len("".join(root.itertext())) > 10
        lines = repr(value).splitlines()
        assert 0 < len(lines) <= 8, cell
        assert max(map(len, lines)) <= 260, (cell, lines)
        assert " object at 0x" not in repr(value)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("run", "Gaussian(sigma=1.0).subsampled(0.01) * 1000"),
        ("found", "[1.8282366665163, 1.8282366665168]"),
        ("curve", "<Curve of delta over epsilon: 4 points from 0.0 to 1.5>"),
        (
            "schedule",
            "<StoppingSchedule: 2 stops from 1 to 2, at prices from 0.6755 to 0.7862, delta "
            "[9.98e-06, 9.99e-06]; at the last stop, 2: 200 runs of "
            "Gaussian(sigma=1.0).subsampled(0.01)>",
        ),
        (
            "budget",
            "<OutputDPFilter: spent epsilon 0.05, delta 1e-07; held epsilon 0.3, delta 0.0; left "
            "epsilon 0.65, delta 9e-07>",
        ),
        ("zcdp", "<ZCDPFilter: spent rho 0.1; held rho 0.0; left rho 0.4>"),
        (
            "ada",
            "<LedgerBudget 'ada': left epsilon 0.95, delta 1e-07 of epsilon 1.0, delta 1e-07; "
            "spent epsilon 0.05, delta 0.0; held epsilon 0.0, delta 0.0>",
        ),
        (
            "telemetry",
            "<LedgerBudget 'telemetry': left rho 0.5 of rho 0.5; spent rho 0.0; held rho 0.0>",
        ),
        (
            "receipt",
            "<Receipt: held epsilon 0.3, delta 0.0; charged epsilon 0.05, delta 0.0; returned "
            "epsilon 0.25, delta 0.0>",
        ),
        ("answers", "<Sweep: 2 questions, 1 refused>"),
    ],
)  # fmt: skip
def test_what_a_shell_shows(values: dict[str, Any], cell: str, said: str) -> None:
    digits = re.compile(r"\d+\.\d{2,}(e-\d+)?")  # which may move in their last place
    assert digits.sub("0", repr(values[cell])) == digits.sub("0", said)


def test_what_a_notebook_shows(values: dict[str, Any]) -> None:
    def cells(cell: str) -> list[list[str]]:
        root = parsed(values[cell]._repr_html_())
        return [["".join(c.itertext()) for c in row] for row in root.iter("tr")]

    assert cells("run + laplace") == [
        ["mechanism", "runs"],
        ["Gaussian(sigma=1.0).subsampled(0.01)", "1,000"],
        ["Laplace(scale=20.0)", "3"],
        ["together", "1,003"],
    ]
    assert [row[0] for row in cells("comparison")][:3] == ["at delta 1e-05", "tightbudget", "naive"]
    assert cells("budget")[1:] == [
        ["spent", "0.05", "1e-07"],
        ["held", "0.3", "0.0"],
        ["left", "0.65", "9e-07"],
        ["cap", "1.0", "1e-06"],
    ]
    assert cells("telemetry")[0] == ["", "rho"]  # no column of deltas where none can be
    assert [row[0] for row in cells("ledger")] == ["budget", "census", "ada", "telemetry (zcdp)"]
    assert ["'found'", "0.3", ""] in cells("guarantee")
    assert cells("answers")[2][-2].startswith("ParameterError: ")


def test_a_ledger_that_is_away_says_so(tmp_path: Path) -> None:
    class Away(tb.ledger.LedgerBudget):
        def statement(self) -> Any:
            raise tb.LedgerError("there is <no> ledger")

    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        away = Away(ledger.session, "ada")
    assert repr(away) == "<Away 'ada'>"
    assert "<Away 'ada'>: there is <no> ledger" in "".join(parsed(away._repr_html_()).itertext())


# --------------------------------------------------------------------------- mechanisms


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_mechanism_is_shown_as_the_call_that_makes_it(case: Case) -> None:
    for value in (case.mechanism, case.mechanism * 3, case.mechanism * 2 + tb.Laplace(7.0)):
        assert eval(repr(value), vars(tb)) == value


@pytest.mark.parametrize("relation", tb.Neighbouring)
def test_a_relation_is_shown(relation: tb.Neighbouring) -> None:
    declared = tb.Laplace(2.0).under(relation)
    assert repr(declared) == f"Laplace(scale=2.0, relation=Neighbouring.{relation.name})"
    assert eval(repr(declared), vars(tb)) == declared


def test_long_values_are_cut() -> None:
    wide = tb.HistogramPair([1.0] * 1000, [2.0] * 500 + [0.0] * 500)
    assert repr(wide) == (
        "HistogramPair(p=(1.0, 1.0, 1.0, ... 1000 in all), q=(2.0, 2.0, 2.0, ... 1000 in all))"
    )
    table = tb.LossTable(0.5, remove=(0, [0.001] * 1000, 0.0))
    assert "... 1000 in all" in repr(table)
    assert len(repr(table)) < 120
    many = tb.compose([tb.Gaussian(float(k)) for k in range(1, 1001)])
    assert repr(many).endswith("Gaussian(sigma=6.0) * 1 + ... (994 more mechanisms)")
    assert "988 more" in many._repr_html_()
    assert repr(tb.Composition()) == "Composition()"
    cells = tb.OutputDP({k: 0.1 for k in range(1000)})
    assert len(repr(cells)) < 220
    assert "... 1000 cells in all" in repr(cells)
    assert "988 more cells" in cells._repr_html_()


# ------------------------------------------------------------------------ hostile texts


def a_ledger(folder: Path) -> str:
    with tb.Ledger(f"sqlite:///{folder}/budget.db") as ledger:
        budget = ledger.open_budget(HOSTILE, epsilon=1)
        return ledger._repr_html_() + budget._repr_html_()


def a_refusal(folder: Path) -> str:
    question = tb.sweeps.Question.of(tb.Gaussian(1.0) * 1, epsilon=1.0, labels={HOSTILE: HOSTILE})
    return tb.sweep([question])._repr_html_()


@pytest.mark.parametrize(
    "shown",
    [
        a_ledger,
        a_refusal,
        lambda _: tb.OutputDP({HOSTILE: 0.1})._repr_html_(),
        lambda _: notebook.PrintedLines(HOSTILE)._repr_html_(),
        lambda _: notebook.shown(HOSTILE, notebook.muted(HOSTILE), notebook.left(HOSTILE)),
        lambda _: notebook.shown(
            notebook.table([(HOSTILE, HOSTILE)], head=(HOSTILE,), title=HOSTILE),
            notebook.folded(HOSTILE, HOSTILE),
            notebook.indented(HOSTILE, 1),
        ),
    ],
)  # fmt: skip
def test_a_hostile_text_is_a_text(shown: Callable[[Path], str], tmp_path: Path) -> None:
    root = parsed(f"<div>{shown(tmp_path)}</div>")
    texts = "".join(root.itertext())
    assert HOSTILE in texts or repr(HOSTILE) in texts


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1))
def test_every_text_is_shown_as_it_is(text: str) -> None:
    cell = parsed(notebook.table([(text, text)], title=text))
    if not re.search("[\ufffe\uffff]", text):  # which XML has not
        assert [t for t in cell.itertext() if t == text] == [text] * 3


# ----------------------------------------------------------------------- bars, pictures


numbers = st.floats(0, 1e300)


@given(numbers, numbers, numbers)
def test_a_bar_is_as_long_as_what_it_shows(spent: float, held: float, cap: float) -> None:
    text = notebook.bar(spent=spent, held=held, cap=cap)
    if not max(spent, held, cap):
        assert text == ""
        return
    left, used, taken = (
        r
        for r in parsed(text).iter("rect")
        if "height" in r.attrib and r.get("height") in ("13", "14")
    )
    whole, wide = max(cap, spent + held), 120
    assert float(used.attrib["width"]) == pytest.approx(wide * (spent / whole), abs=0.01)
    assert float(taken.attrib["width"]) == pytest.approx(wide * (held / whole), abs=0.01)
    assert float(left.attrib["width"]) == pytest.approx(max(0, wide * (cap / whole) - 1), abs=0.01)


@given(st.floats(0), st.floats(1e-300, 1e300))
def test_a_bar_beside_others_fills_its_column_at_most(value: float, most: float) -> None:
    svg = parsed(notebook.scale(value, most))
    (rect,) = svg.iter("rect")
    assert float(rect.attrib["width"]) == pytest.approx(120 * min(1, value / most), abs=0.01)
    assert bool(list(svg.iter("path"))) is (value > most)


@given(st.integers(0, 1000), st.integers(2, 20))
def test_some_rows_are_spread_evenly(size: int, most: int) -> None:
    chosen = notebook.elided(size, most)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(size, most)
    if size:
        assert (chosen[0], chosen[-1]) == (0, size - 1)


@cache
def a_curve() -> tb.Curve:
    return (tb.Gaussian(2.0) * 3).curve(epsilons=[0.0, 0.5, 1.0, 1.5])


@pytest.mark.slow
def test_a_picture_takes_the_colours_of_its_page() -> None:
    text = a_curve()._repr_html_()
    svg = re.search(r"<svg .*</svg>", text, re.DOTALL)
    assert svg
    assert "currentColor" in svg[0]
    assert "var(--tb-spent, #" in svg[0]
    assert "#000000" not in svg[0]
    assert text == a_curve()._repr_html_()  # the same picture is the same text
    assert 'aria-label="certified bounds of delta over epsilon"' in svg[0]


def test_a_curve_without_matplotlib_is_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> Any:
        raise ExtraError("plots need matplotlib: pip install 'tightbudget[plot]'")

    monkeypatch.setattr(drawing, "_matplotlib", missing)
    root = parsed(a_curve()._repr_html_())
    assert not list(root.iter("{http://www.w3.org/2000/svg}svg"))
    assert len(list(root.iter("tr"))) == 5


def test_lines_are_shown_as_lines() -> None:
    schedule = tb.early_stopping(tb.Gaussian(10.0) * 5, stops=[1, 2], delta=1e-5)
    text = schedule.table()
    assert repr(text) == text == str(text)
    assert text.splitlines()[-1] == "at the last stop, 2: 10 runs of Gaussian(sigma=10.0)"
    assert schedule.table(unit=False).splitlines() == text.splitlines()[:-1]
    assert "<pre>" in text._repr_html_()  # type: ignore[attr-defined]
    mixed = tb.early_stopping([tb.Gaussian(10.0), tb.Gaussian(20.0)], stops=[1, 2], delta=1e-5)
    assert mixed.at_the_last_stop() == (
        "at the last stop, 2: Gaussian(sigma=10.0) * 1 + Gaussian(sigma=20.0) * 1"
    )


# ------------------------------------------------------------------------- a notebook


@pytest.mark.slow  # it starts a kernel
def test_a_notebook_shows_every_value(
    tmp_path: Path, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code) for code in (SETUP, *CELLS)]
    )
    client = nbclient.NotebookClient(
        made, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    for cell, code in zip(made.cells[1:], CELLS, strict=True):
        (output,) = cell.outputs
        assert output["output_type"] == "execute_result", code
        parsed(output["data"]["text/html"])
        assert output["data"]["text/plain"].count("\n") < 8
