"""Notebooks run from top to bottom, draw what they promise, and lead on to pages that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from tightbudget import links

for name in ("jupytext", "nbclient", "nbconvert"):
    pytest.importorskip(name, reason="notebooks need requirements/docs.txt")

import nbformat  # noqa: E402
from nbclient.exceptions import CellExecutionError  # noqa: E402

pages: Any = importlib.import_module("docs.notebooks.pages")
jupytext: Any = importlib.import_module("jupytext")

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {source.stem: source for source in pages.sources()}
# what a notebook promises to show; its claims in numbers are asserted in its hidden cells
PICTURES = {
    "01-first-budget": 2,
    "02-a-classifier-with-opacus": 2,
    "03-a-ledger-for-a-team": 2,
    "04-tables-from-data": 2,
    "05-reading-a-papers-claim": 1,
    "06-noise-for-a-target": 2,
    "07-monthly-tables-of-a-survey": 2,
    "08-a-mixed-study-for-a-paper": 1,
    "09-a-synthetic-table-of-a-survey": 3,
}
WITH_NEEDS = [name for name, source in SOURCES.items() if pages.NEEDS.search(source.read_text())]
LINK = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")


def written(tmp_path: Path, *cells: str) -> Path:
    """A notebook with these cells of code."""
    path = tmp_path / "0-made-up.py"
    path.write_text("".join(f"# %%{cell}\n\n" for cell in cells), encoding="utf-8")
    return path


def test_each_notebook_is_here() -> None:
    assert list(SOURCES) == list(PICTURES)


@pytest.mark.parametrize("name", SOURCES)
def test_a_notebook_asks_and_leads_on(name: str) -> None:
    cells = jupytext.read(SOURCES[name]).cells
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    assert re.match(r"# .+\n\n\*\*", texts[0])
    assert "?" in texts[0]
    assert "## Where to go on" in texts[-1]
    shown = [cell for cell in cells if cell.cell_type == "code" and not hidden(cell)]
    assert len(shown) <= 12


def hidden(cell: Any) -> bool:
    return bool({"remove-cell", "hide-input"} & set(cell.metadata.get("tags", [])))


@pytest.mark.parametrize("name", SOURCES)
def test_links_lead_on(name: str) -> None:
    found = [link for link, _ in LINK.findall(SOURCES[name].read_text(encoding="utf-8")) if link]
    assert found
    for link in found:
        target = (SOURCES[name].parent / link).resolve()
        assert target.is_file() or target.with_suffix(".py").is_file(), link


def run_where(name: str) -> Any:
    """A notebook that needs a large package is run by `make adapters`."""
    return pytest.param(name, marks=[pytest.mark.needs] if name in WITH_NEEDS else [])


@pytest.mark.slow
@pytest.mark.parametrize("name", [run_where(name) for name in SOURCES])
def test_a_notebook_runs_and_draws_what_it_promises(name: str, tmp_path: Path) -> None:
    if lacking := pages.missing(SOURCES[name]):
        pytest.skip(f"make adapters: the notebook needs {', '.join(lacking)}")
    draws_what_it_promises(name, pages.page(name, pages.execute(SOURCES[name])), tmp_path)


@pytest.mark.parametrize("name", WITH_NEEDS)
def test_where_a_notebook_cannot_run_its_page_has_kept_outputs(name: str, tmp_path: Path) -> None:
    page = pages.page(name, pages.kept(SOURCES[name]))
    draws_what_it_promises(name, page, tmp_path)
    assert re.search(r"\nIts outputs are those of a run with opacus \d[\w.]+\.\n$", page.markdown)


def test_outputs_of_another_text_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "KEPT", tmp_path)
    source = written(tmp_path, "\n1 + 1")
    text = f"# %% [markdown]\n# <!-- needs: nowhere_to_be_found -->\n\n{source.read_text()}"
    source.write_text(text, encoding="utf-8")
    run = jupytext.read(source)
    nbformat.write(run, tmp_path / "0-made-up.ipynb")
    assert "1 + 1" in pages.executed(source).markdown
    source.write_text(text.replace("1 + 1", "1 + 2"), encoding="utf-8")
    with pytest.raises(RuntimeError, match="has changed since its outputs were kept, and needs no"):
        pages.executed(source)
    (tmp_path / "0-made-up.ipynb").unlink()
    with pytest.raises(RuntimeError, match="--keep 0-made-up"):
        pages.executed(source)


def draws_what_it_promises(name: str, page: Any, tmp_path: Path) -> None:
    page.write(tmp_path)
    text = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    drawn = re.findall(r"^!\[(.*)\]\((.*)\)$", text, re.MULTILINE)
    assert len(drawn) == PICTURES[name]
    for alt, file in drawn:
        assert len(alt) > 80
        assert (tmp_path / file).read_bytes().startswith(b"\x89PNG")
    assert "assert " not in text
    notebook = nbformat.read(tmp_path / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    outside = [link for cell in notebook.cells for link, _ in LINK.findall(cell.source)]
    assert all(link.startswith(links.DOCUMENTATION) for link in outside if link)
    assert any(outside)


@pytest.mark.slow
def test_a_cell_that_fails_fails_the_build(tmp_path: Path) -> None:
    with pytest.raises(CellExecutionError, match="no such thing"):
        pages.execute(written(tmp_path, "\nraise ValueError('no such thing')"))


@pytest.mark.slow
def test_a_cell_that_warns_fails_the_build(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"0-made-up\.py: a cell wrote to stderr:\nimport w"):
        pages.execute(written(tmp_path, "\nimport warnings\nwarnings.warn('old', stacklevel=1)"))


@pytest.mark.slow
def test_what_is_printed_at_length_is_one_text(tmp_path: Path) -> None:
    cell = "\nimport time\nprint('one')\ntime.sleep(0.5)\nprint('two')"
    text = pages.executed(written(tmp_path, cell)).markdown
    assert "```text\none\ntwo\n```" in text


# ------------------------------------------------------------- outputs without a kernel


def code(source: str, *outputs: Any, **metadata: Any) -> Any:
    return nbformat.v4.new_code_cell(source, metadata=metadata, outputs=list(outputs))


def shown(**data: str) -> Any:
    kinds = {"text": "text/plain", "html": "text/html", "png": "image/png"}
    mime = {kinds[name]: value for name, value in data.items()}
    return nbformat.v4.new_output("display_data", data=mime)


def paged(*cells: Any) -> Any:
    return pages.page("0-made-up", nbformat.v4.new_notebook(cells=list(cells)))


@pytest.mark.parametrize(
    ("cell", "drawn"),
    [
        (code("plot()", shown(text="Axes"), alt="a line"), 0),
        (code("plot()", shown(png="", text="Axes"), shown(png="", text="Axes"), alt="a line"), 2),
        (code("plot()", shown(png="", text="Axes")), 1),
    ],
)
def test_a_picture_and_its_description_come_together(cell: Any, drawn: int) -> None:
    with pytest.raises(RuntimeError, match=f"0-made-up.py: a cell draws {drawn} pictures"):
        pages._checked(Path("0-made-up.py"), cell)


def test_the_axes_beside_a_picture_are_not_shown() -> None:
    cell = code("ax.plot()", shown(text="[<Line2D>]"), shown(png="", text="Axes"), alt="a line")
    pages._checked(Path("0-made-up.py"), cell)
    assert [list(output.data) for output in cell.outputs] == [["image/png", "text/plain"]]


def test_tables_of_values_stay_html() -> None:
    page = paged(code("b", shown(text="[1, 2]", html="<table><tr><td>1</td></tr></table>")))
    assert '<div class="notebook-output">\n<table>' in page.markdown
    assert "[1, 2]" not in page.markdown


def test_the_code_of_a_picture_is_folded_and_escaped() -> None:
    page = paged(code("if a < b: plot()", tags=["hide-input"]))
    assert "<details><summary>The code of this picture</summary>" in page.markdown
    assert "&lt;" in page.markdown
    assert "```python" not in page.markdown


def test_a_file_for_jupyter_links_to_the_site() -> None:
    text = "[a](../how-to/stop-early.md#stops) [b](02-x.md) [c](#here) [d](https://x.org/y.md)"
    content = paged(nbformat.v4.new_markdown_cell(text)).files["0-made-up.ipynb"].decode()
    site = links.DOCUMENTATION
    assert f"[a]({site}how-to/stop-early.html#stops) [b]({site}notebooks/02-x.html)" in content
    assert "[c](#here) [d](https://x.org/y.md)" in content
