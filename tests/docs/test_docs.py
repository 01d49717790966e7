"""The documentation says what is so: examples run, generated parts are current, links lead on."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import tightbudget as tb
from docs import examples, generate
from tightbudget import errors

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
LINK = re.compile(r"(?<!`)\[[^\]`]+\]\(([^)\s]+)\)")


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors(text: str) -> set[str]:
    """What the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


# ---------------------------------------------------------------------------- examples


# Pages that calculate for more than a second, or that start a server or a shell for some lines.
SLOW = {
    "README.md",
    "docs/explanation/vuvuzela.md",
    "docs/how-to/answer-from-data.md",
    "docs/how-to/ask-many-questions.md",
    "docs/how-to/calibrate-noise.md",
    "docs/how-to/charge-a-ledger.md",
    "docs/how-to/charge-from-another-machine.md",
    "docs/how-to/compare-with-other-bounds.md",
    "docs/how-to/operate-a-ledger.md",
    "docs/how-to/serve-a-ledger.md",
    "docs/how-to/stop-early.md",
    "docs/how-to/use-with-dp-accounting.md",
    "docs/how-to/use-with-opacus.md",
    "docs/how-to/watch-budgets-in-a-browser.md",
    "docs/how-to/what-an-epsilon-means.md",
}


@pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha")  # of Opacus, by rdp
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=named(page), marks=[pytest.mark.slow] * (named(page) in SLOW))
        for page in examples.pages()
    ],
)
def test_examples_print_what_the_page_says(page: Path) -> None:
    if lacking := examples.missing(page):
        pytest.skip(f"make adapters: the page needs {', '.join(lacking)}")
    if "$ curl " in page.read_text(encoding="utf-8") and not shutil.which("curl"):
        pytest.skip("no curl: the examples in other languages are not run")
    _, differing = examples.run_page(page)
    assert not differing, [(o.said, o.printed) for o in differing]


def test_the_slow_pages_are_there() -> None:
    assert {named(page) for page in examples.pages()} >= SLOW


@pytest.mark.parametrize(
    ("line", "shell"),
    [
        ("tightbudget ledger init", False),
        ('tightbudget token create --name "ada\'s cluster" --role analyst', False),
        ("tightbudget ledger export-head > head.txt", True),
        ("tightbudget ledger start A1 | tee started.txt", True),
        ("tightbudget ledger settle A1 $CELL", True),
        ("tightbudget ledger run --budget ada --key A2 -- echo 1012", True),
        ("tightbudget serve --port 8000 &", True),
    ],
)
def test_a_line_that_needs_a_shell_has_one(line: str, shell: bool) -> None:
    assert bool(examples.NEEDS_A_SHELL.search(line)) is shell


@pytest.mark.slow  # it starts Python
@pytest.mark.parametrize(
    "line", ["$ tightbudget --version", "$ tightbudget delta laplace --scale 0 --epsilon 1"]
)
def test_a_line_prints_the_same_here_and_in_a_process(line: str) -> None:
    body = line.removeprefix("$ ")
    here, apart = examples._here(body), examples._shell(body)
    assert (here.returncode, here.stdout, here.stderr) == (
        apart.returncode,
        apart.stdout,
        apart.stderr,
    )


def test_there_are_examples_with_outputs() -> None:
    texts = [page.read_text(encoding="utf-8") for page in examples.pages()]
    assert sum(text.count("```python") for text in texts) >= 15
    assert sum(text.count("# -> ") for text in texts) >= 15


@pytest.mark.parametrize(
    ("body", "agrees"),
    [
        ("```python\n1 + 1  # -> 2\n```\n", True),
        ("```python\n1 + 1  # -> 3\n```\n", False),
        ("```python\n1.0 + 1.00001  # -> 2.0\n```\n", True),
        ("```python\n1.0 + 1.1  # -> 2.0\n```\n", False),
        ("```python\n1000  # -> 1001\n```\n", False),
        ("```python\n'ab'  # -> abc\n```\n", False),
        ("```python\nprint('a  b')\n```\n\n```text\na b\n```\n", True),
        ("```python\nprint('a')\n```\n\n```text\nb\n```\n", False),
    ],
)
def test_a_wrong_output_is_noticed(body: str, agrees: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(body)
    _, differing = examples.run_page(page)
    assert (not differing) is agrees


def test_an_example_that_raises_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nraise KeyError('x')\n```\n")
    with pytest.raises(KeyError):
        examples.run_page(page)


def test_a_page_says_which_modules_it_needs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- needs: json -->\n<!-- needs: nowhere_to_be_found -->\n")
    assert examples.missing(page) == ["nowhere_to_be_found"]


# ---------------------------------------------------------------------- generated parts


@pytest.mark.slow
def test_generated_parts_are_up_to_date() -> None:
    stale = [named(path) for path in generate.stale()]
    assert not stale, f"run python docs/generate.py: {stale}"


def test_a_stale_part_is_noticed() -> None:
    text = "<!-- generated: mechanisms-table -->\nold\n<!-- end -->"
    assert "Gaussian(sigma, sensitivity=1.0)" in generate.renewed(text)


def test_every_mechanism_is_in_the_reference() -> None:
    reference = (ROOT / "docs/reference/mechanisms.md").read_text(encoding="utf-8")
    for kind, cls in tb.MECHANISMS.items():
        assert f"## {cls.__name__}\n" in reference
        assert f"`{kind}`" in reference


def test_every_public_name_and_exception_is_in_the_reference() -> None:
    api = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    for name in errors.__all__:
        assert f"- `{name}`: " in api
        assert name in (errors.__doc__ or ""), f"{name} is missing in the tree of errors.py"
    mechanisms = {cls.__name__ for cls in tb.MECHANISMS.values()}
    for name in set(tb.__all__) - mechanisms - set(errors.__all__):
        assert f"## {name}\n" in api


# ------------------------------------------------------------------------------- links


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path) if path else page
        assert there.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in anchors(there.read_text(encoding="utf-8")), f"{target}: no such part"


def test_every_page_of_the_docs_is_linked_from_the_index() -> None:
    folder = ROOT / "docs"
    index = (folder / "index.md").read_text(encoding="utf-8")
    linked = {(folder / target).resolve() for target in LINK.findall(index)}
    unlinked = {p for p in folder.rglob("*.md") if p.name != "index.md"} - linked
    assert not unlinked
