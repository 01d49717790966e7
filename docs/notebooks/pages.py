"""Executes the notebooks, and writes them as pages of the site and as files for Jupyter.

    python docs/notebooks/pages.py folder                     all: NAME.md, NAME.ipynb and pictures
    python docs/notebooks/pages.py folder 01-first-budget     one notebook
    python docs/notebooks/pages.py folder --html              also NAME.html, to be looked at
    python docs/notebooks/pages.py --keep NAME                keeps the outputs of one

A notebook is a Python script in this folder, in jupytext's percent format, whose name begins with
a digit. It is executed from top to bottom by a fresh kernel in a new, empty folder. A cell that
raises, or that writes to stderr (a warning), fails the build.

Tags and metadata of cells:

- ``tags=["remove-cell"]``: the cell is executed, and shown nowhere. Such cells hold ``assert``
  statements for what the text claims.
- ``tags=["hide-input"]``: the page shows the code of the cell folded.
- ``alt="..."``: the cell draws one picture, and this text describes it.

A notebook with the line ``<!-- needs: name -->`` is executed where the module of that name is
installed (``make adapters``). Elsewhere its page shows the outputs of the file ``kept/NAME.ipynb``,
which has them from ``--keep``, and says so; they are refused once the notebook's text has changed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import itertools
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter, MarkdownExporter
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from traitlets.config import Config

from tightbudget import links

__all__ = [
    "NOTEBOOKS",
    "Page",
    "execute",
    "executed",
    "kept",
    "main",
    "missing",
    "page",
    "pictures",
    "sources",
]

NOTEBOOKS = Path(__file__).resolve().parent
KEPT = NOTEBOOKS / "kept"
NEEDS = re.compile(r"^# <!-- needs: (\w+) -->$", re.MULTILINE)
_SECONDS = (
    300  # for a cell; each whole notebook takes less than 30 s of CPU time
)
# pictures of two pixels per point
_SHARP = """
import matplotlib_inline.backend_inline

matplotlib_inline.backend_inline.set_matplotlib_formats("retina")
"""

_TEMPLATE = """
{%- extends "markdown/index.md.j2" -%}
{%- block input %}
{% if "hide-input" in cell.metadata.get("tags", []) %}
<details><summary>The code of this picture</summary>
{{ cell.source | coloured }}
</details>
{% else %}
```python
{{ cell.source }}
```
{% endif %}
{%- endblock input -%}
{%- block stream %}

```text
{{ output.text.rstrip() }}
```
{% endblock stream -%}
{%- block data_text scoped %}

```text
{{ output.data["text/plain"].rstrip() }}
```
{% endblock data_text -%}
{%- block data_html scoped %}

<div class="notebook-output">
{{ output.data["text/html"] }}
</div>
{% endblock data_html -%}
{%- block data_png scoped %}

![{{ cell.metadata.alt }}]({{ output.metadata.filenames["image/png"] | path2url }})
{% endblock data_png -%}
"""


@dataclass(frozen=True)
class Page:
    """An executed notebook as a page.

    Attributes:
        name: the name of the notebook without its ending, such as "01-first-budget".
        markdown: the text of the page NAME.md.
        files: what lies beside the page, by its path: the pictures, and NAME.ipynb.
    """

    name: str
    markdown: str
    files: dict[str, bytes]

    def write(self, folder: Path) -> None:
        """Writes the page and its files into the folder."""
        for name, content in {
            f"{self.name}.md": self.markdown.encode(),
            **self.files,
        }.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def sources() -> list[Path]:
    """The scripts of the notebooks, in the order in which they are to be read."""
    return sorted(NOTEBOOKS.glob("[0-9]*.py"))


def execute(source: Path) -> Any:
    """Executes a notebook in a new folder, and returns it with its outputs.

    The cells that are tagged ``remove-cell`` are executed, and left out of what is returned.

    Raises:
        CellExecutionError: a cell raised.
        RuntimeError: a cell wrote to stderr, or draws other pictures than its ``alt`` says.
    """
    notebook = jupytext.read(source)
    notebook.metadata["kernelspec"] = {
        "name": "python3", "display_name": "Python 3", "language": "python"
    }  # fmt: skip
    notebook.cells.insert(
        0,
        nbformat.v4.new_code_cell(
            _SHARP, metadata={"tags": ["remove-cell"]}
        ),
    )
    with (
        tempfile.TemporaryDirectory() as own,
        tempfile.TemporaryDirectory() as empty,
    ):
        # sockets in a folder of our own: what is sent over TCP anybody on the machine could read
        kernel = {"transport": "ipc", "ip": f"{own}/kernel"}
        client = NotebookClient(
            notebook,
            timeout=_SECONDS,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": empty}},
            config=Config({"KernelManager": kernel}),
        )
        client.execute(
            env={
                **os.environ,
                "IPYTHONDIR": own,
                "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            }
        )
    for cell in notebook.cells:
        _checked(source, cell)
    notebook.cells = [
        cell for cell in notebook.cells if not _tagged(cell, "remove-cell")
    ]
    _number(notebook)
    needs = NEEDS.findall(source.read_text(encoding="utf-8"))
    notebook.metadata["tightbudget_ran_with"] = {
        name: importlib.metadata.version(name) for name in needs
    }
    return notebook


def missing(source: Path) -> list[str]:
    """The modules that a notebook needs and that are not installed."""
    needs = NEEDS.findall(source.read_text(encoding="utf-8"))
    return [
        name for name in needs if importlib.util.find_spec(name) is None
    ]


def kept(source: Path) -> Any:
    """The notebook with the outputs of an earlier run, which a file has.

    Raises:
        RuntimeError: the file is not there, or its text is not that of the notebook.
    """
    path = KEPT / f"{source.stem}.ipynb"
    notebook = nbformat.read(path, as_version=4) if path.exists() else None
    if notebook is None or _texts(notebook) != _texts(
        jupytext.read(source)
    ):
        raise RuntimeError(
            f"{source.name} has changed since its outputs were kept, and needs "
            f"{', '.join(missing(source))} to run: make adapters, and then "
            f"python docs/notebooks/pages.py --keep {source.stem}"
        )
    return notebook


def _texts(notebook: Any) -> list[tuple[str, str]]:
    """The kinds and the texts of the cells that a page shows."""
    return [
        (cell.cell_type, cell.source)
        for cell in notebook.cells
        if not _tagged(cell, "remove-cell")
    ]


def pictures(notebook: Any) -> list[str]:
    """The texts that describe the pictures of an executed notebook."""
    return [
        cell.metadata["alt"]
        for cell in notebook.cells
        if "alt" in cell.metadata
    ]


def page(name: str, notebook: Any) -> Page:
    """Turns an executed notebook into a page with its files."""
    exporter = MarkdownExporter(
        raw_template=_TEMPLATE, filters={"coloured": _coloured}
    )
    text, resources = exporter.from_notebook_node(
        notebook, {"unique_key": name, "output_files_dir": f"{name}_files"}
    )
    download = f"\n---\n\n[Download this page as a Jupyter notebook]({name}.ipynb)\n"
    if ran_with := notebook.metadata.get("tightbudget_ran_with"):
        said = ", ".join(
            f"{one} {version}" for one, version in ran_with.items()
        )
        download += f"\nIts outputs are those of a run with {said}.\n"
    text = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n" + download
    content = nbformat.writes(_standing_alone(notebook)).encode()
    return Page(
        name, text, {**resources["outputs"], f"{name}.ipynb": content}
    )


def executed(source: Path) -> Page:
    """Executes a notebook and returns it as a page; one that cannot run here has kept outputs.

    Raises:
        CellExecutionError: a cell raised.
        RuntimeError: a cell wrote to stderr, draws other pictures than its ``alt`` says, or the
            kept outputs are of another text.
    """
    return page(
        source.stem, kept(source) if missing(source) else execute(source)
    )


def _checked(source: Path, cell: Any) -> None:
    """Refuses a cell that wrote to stderr, or drew other pictures than its ``alt`` says.

    The texts that a cell with a picture shows beside it are removed.

    Raises:
        RuntimeError: names the notebook and shows the cell.
    """
    if cell.cell_type != "code":
        return
    loud = [
        output.text
        for output in cell.outputs
        if output.get("name") == "stderr"
    ]
    if loud:
        raise RuntimeError(
            f"{source.name}: a cell wrote to stderr:\n{cell.source}\n{loud[0]}"
        )
    if (
        "alt" in cell.metadata
    ):  # the axes that the last line returns are no answer
        cell.outputs = [
            output
            for output in cell.outputs
            if "image/png" in output.get("data", {})
        ]
    drawn = sum(
        "image/png" in output.get("data", {}) for output in cell.outputs
    )
    if drawn != ("alt" in cell.metadata):
        raise RuntimeError(
            f"{source.name}: a cell draws {drawn} pictures; one with an alt must draw one picture, "
            f"another cell none:\n{cell.source}"
        )


def _number(notebook: Any) -> None:
    """Numbers the cells anew, since those that are not shown have left gaps."""
    numbers = itertools.count(1)
    for place, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{place}"  # in the place of a random one
        if cell.cell_type == "code":
            cell.execution_count = next(numbers)
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = cell.execution_count


def _standing_alone(notebook: Any) -> Any:
    """A copy of the notebook whose links to other pages lead to the published site."""
    alone = nbformat.from_dict(notebook)
    for cell in alone.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(
                r"\]\(([^)#:\s]+)\.md(#[^)\s]*)?\)", _published, cell.source
            )
    return alone


def _published(link: re.Match[str]) -> str:
    """The end of a Markdown link to a page, with the page's address on the published site."""
    path = os.path.normpath(f"notebooks/{link[1]}")
    return (
        f"]({links.DOCUMENTATION.rstrip('/')}/{path}.html{link[2] or ''})"
    )


def _coloured(source: str) -> str:
    """Python code as HTML, with the classes that the site's theme colours."""
    html: str = highlight(
        source, PythonLexer(), HtmlFormatter(cssclass="highlight")
    )
    return html.strip()


def _tagged(cell: Any, tag: str) -> bool:
    """True if the cell has the tag."""
    return tag in cell.metadata.get("tags", [])


def main() -> None:
    """Executes the notebooks that the command line names, and writes them into its folder."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument(
        "names", nargs="*", help="such as 01-first-budget; all if absent"
    )
    parser.add_argument(
        "--html", action="store_true", help="also write NAME.html"
    )
    parser.add_argument(
        "--keep", metavar="NAME", help="keep the outputs of this notebook"
    )
    asked = parser.parse_args()
    found = {source.stem: source for source in sources()}
    if asked.keep:
        nbformat.write(
            execute(found[asked.keep]), KEPT / f"{asked.keep}.ipynb"
        )
        return
    if asked.folder is None:
        parser.error("name a folder, or --keep NAME")
    for name in asked.names or found:
        notebook = (kept if missing(found[name]) else execute)(found[name])
        page(name, notebook).write(asked.folder)
        if asked.html:
            text, _ = HTMLExporter().from_notebook_node(notebook)
            (asked.folder / f"{name}.html").write_text(
                text, encoding="utf-8"
            )
        print(asked.folder / f"{name}.md")


if __name__ == "__main__":
    main()
