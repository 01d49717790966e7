"""The site is whole: each name and each page is on it once, and links lead on.

``make docs`` builds the site in strict mode, which checks the links between its pages once more,
with every anchor; these tests need nothing that is installed for it.
"""

from __future__ import annotations

import collections
import functools
import inspect
import pydoc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs.building import pages, parts
from docs.building.docstrings import rewritten
from docs.building.public import public

import tightbudget as tb
from tightbudget import errors, links
from tightbudget.cli.refusals import EXIT_CODES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
REFERENCE = sorted((DOCS / "reference").rglob("*.md"))
LINK = re.compile(r"(?<!`)\[[^\]`]+\]\(([^)\s]+)\)")
# parts that are quickly written, and that say what the reference holds
QUICK = (
    "mechanisms-table",
    "mechanisms",
    "mechanisms-on-data",
    "mechanisms-on-tables",
    "questions-to-tables",
    "refusals",
    "ledger-tables",
)
LONG = {"http-api", "reproductions", "agreement"}


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# ---------------------------------------------------------------------- generated parts


def test_every_part_has_its_place_on_one_page() -> None:
    asked = [name for page in sorted(DOCS.rglob("*.md")) for name in parts.PART.findall(read(page))]
    assert sorted(asked) == sorted(parts.PARTS)


@pytest.mark.parametrize("name", QUICK)
def test_nothing_that_is_generated_is_kept_in_a_page(name: str) -> None:
    lines = {
        line for line in parts.PARTS[name]().splitlines() if len(line) > 40 or line[:3] == ":::"
    }
    assert lines
    kept = {line for page in DOCS.rglob("*.md") for line in read(page).splitlines()}
    assert not lines & kept


def test_a_part_takes_the_place_of_its_mark() -> None:
    page = parts.whole("before\n\n<!-- generated: mechanisms-table -->\n\nafter\n")
    assert page.startswith("before\n\n| mechanism")
    assert page.endswith("\n\nafter\n")
    assert "| [`Gaussian`][tightbudget.Gaussian] | `gaussian` | Adds N(0, sigma^2) noise" in page


def test_a_mark_that_nobody_knows_is_noticed() -> None:
    with pytest.raises(KeyError, match="mechanism-table"):
        parts.whole("<!-- generated: mechanism-table -->\n")


def described() -> collections.Counter[str]:
    """How often the reference describes each dotted name."""
    texts = [
        parts.PART.sub(lambda asked: parts.PARTS[asked[1]]() if asked[1] in QUICK else "", read(p))
        for p in REFERENCE
    ]
    names = [name for text in texts for name in parts.DESCRIBED.findall(text)]
    return collections.Counter(names)


def test_every_public_name_is_described_once() -> None:
    found = described()
    assert {path: found[path] for path in public().values() if found[path] != 1} == {}
    assert max(found.values()) == 1


def test_every_mechanism_is_in_the_table_with_its_name_in_plans() -> None:
    table = parts.mechanisms_table()
    for kind, cls in tb.mechanisms.MECHANISMS.items():
        assert table.count(f"| [`{cls.__name__}`][tightbudget.{cls.__name__}] | `{kind}` | ") == 1


def test_every_exception_is_in_the_tree_of_errors() -> None:
    for name in errors.__all__:
        assert name in (errors.__doc__ or ""), f"{name} is missing in the tree of errors.py"


def test_the_command_line_is_described_with_every_command_option_and_exit_code() -> None:
    import typer

    from tightbudget.cli import app

    text = parts.command_line()

    def look(group: Any, path: str) -> None:
        for name, command in group.commands.items():
            assert text.count(f"# `{path} {name}`\n") == 1
            for option in command.params:
                if "--help" not in option.opts and option.param_type_name == "option":
                    assert f"| `{option.opts[0]}` |" in text
            if hasattr(command, "commands"):
                look(command, f"{path} {name}")

    look(typer.main.get_command(app), "tightbudget")
    for _, code, meaning in EXIT_CODES:
        assert f"| {code} | {meaning} |" in text


@pytest.mark.parametrize("name", sorted(set(parts.PARTS) - set(QUICK) - {"command-line"}))
@pytest.mark.slow
def test_every_other_part_can_be_written(name: str) -> None:
    assert len(parts.PARTS[name]().splitlines()) > 3


# --------------------------------------------------------------------------- docstrings


@pytest.mark.parametrize(
    ("docstring", "markdown"),
    [
        ("Adds noise.", "Adds noise."),
        (
            "Adds noise.\n\nGuarantee: it is\nenough.",
            "Adds noise.\n\n**Guarantee:** it is\nenough.\n{: .guarantee }",
        ),
        (
            "Guarantee: enough. Source: Dong 2022.",
            "**Guarantee:** enough.\n{: .guarantee }\n\n**Source:** Dong 2022.\n{: .source }",
        ),
        ("A sum.\nSource: Dong 2022.", "A sum.\n\n**Source:** Dong 2022.\n{: .source }"),
        ("Args:\n    source: Source: a text.", "Args:\n    source: Source: a text."),
        ("See :class:`~tightbudget.Bounds`.", "See [`Bounds`][tightbudget.Bounds]."),
        (
            "See :meth:`Ledger.verify`.",
            "See [`Ledger.verify`][tightbudget.Ledger].",
        ),
        ("See :func:`hidden`.", "See `hidden`."),
        (">>> 1 + 1\n2", "```pycon\n>>> 1 + 1\n2\n```"),
    ],
)
def test_a_docstring_becomes_markdown(docstring: str, markdown: str) -> None:
    assert rewritten(docstring) == markdown


@pytest.mark.slow
def test_the_reference_shows_the_docstrings_that_methods_inherit() -> None:
    griffe: Any = pytest.importorskip("griffe")
    extensions = griffe.load_extensions(str(DOCS / "building" / "griffe_extension.py"))
    found = griffe.load("tightbudget", search_paths=[str(ROOT / "src")], extensions=extensions)
    silent = [
        f"{name}.{member}"
        for name, path in public().items()
        if inspect.isclass(kind := getattr(tb, name, None) or pydoc.locate(path))
        and kind.__module__.startswith(("tightbudget.ledger.", "tightbudget.client."))
        for member, shown in found[kind.__module__.partition(".")[2]][name].members.items()
        if shown.is_function and not member.startswith("_") and shown.docstring is None
    ]
    assert silent == []
    remote, beside = found["client.remote"]["RemoteHold"], found["ledger.hold"]["LedgerHold"]
    assert "a receipt, to travel with the answer" in remote["settle"].docstring.value
    assert remote["settle"].docstring.value == beside["settle"].docstring.value
    assert found["client.remote"]["RemoteBlockRange"]["left"].docstring.value.startswith("The amo")


# --------------------------------------------------------------------------- navigation


def in_navigation() -> Iterator[Path]:
    """Every page that mkdocs.yml names in its navigation; a folder stands for all its pages."""
    _, _, navigation = read(ROOT / "mkdocs.yml").partition("\nnav:\n")
    for entry in re.findall(r"[-:] ([\w./-]+(?:\.md|/))$", navigation, re.MULTILINE):
        yield from sorted((DOCS / entry).glob("*.md")) if entry.endswith("/") else [DOCS / entry]


def test_every_page_is_in_the_navigation_once() -> None:
    found = collections.Counter(in_navigation())
    outside = {DOCS / page for page in pages.FROM_THE_ROOT}
    assert set(found) == {*DOCS.rglob("*.md")} | outside
    assert max(found.values()) == 1


def test_a_page_begins_with_its_title() -> None:
    # behind anything else it is no title to MkDocs, which then takes the name of the file
    begin = {page: re.sub(r"\A---\n.*?\n---\n\s*", "", read(page), flags=re.DOTALL) for page in
             DOCS.rglob("*.md")}  # fmt: skip
    assert [named(page) for page, text in begin.items() if not text.startswith("# ")] == []


def test_a_neighbour_is_a_data_set_in_the_navigation() -> None:
    _, _, navigation = read(ROOT / "mkdocs.yml").partition("\nnav:\n")
    shown = navigation.splitlines()
    for page in in_navigation():
        shown += re.findall(r"^# .*$", read(page), re.MULTILINE)[:1] if page.exists() else []
    assert [line for line in shown if "neighbour" in line.lower()] == []


# -------------------------------------------------------------------------------- links


@functools.cache
def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links; the page must be one without long parts."""
    text = parts.PART.sub(lambda asked: parts.PARTS[asked[1]](), read(page))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    by_title = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    return by_title | set(parts.DESCRIBED.findall(text))


def leads_somewhere(page: Path, anchor: str) -> bool:
    if page.parent == DOCS / "notebooks":
        return page.with_suffix(".py").exists()  # the page is made when the site is built
    if not page.exists() or not anchor:
        return page.exists()
    # an anchor inside a part that takes long to write is left to `make docs`
    return bool(LONG & set(parts.PART.findall(read(page)))) or anchor in anchors(page)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(read(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert leads_somewhere(there, anchor), f"{target} leads nowhere"


def on_the_site(text: str) -> Iterator[str]:
    """What comes after the site's address, wherever a text names a page of it."""
    whole = re.escape(links.DOCUMENTATION) + r"([\w/.#-]*)"
    joined = r"\bDOCUMENTATION(?:\}| \+ f?[\"'])([\w/.#-]*)"
    for found in re.finditer(f"{whole}|{joined}", text):
        yield (found[1] or found[2] or "").rstrip(".")


def page_of(address: str) -> tuple[Path, str]:
    """The page that is served under an address of the site, and the anchor."""
    path, _, anchor = address.partition("#")
    page = (path or "index.html").removesuffix(".html") + ".md"
    return ROOT / pages.FROM_THE_ROOT.get(page, f"docs/{page}"), anchor


def test_addresses_of_the_site_are_those_of_pages() -> None:
    outside = [*ROOT.glob("*.md"), *ROOT.glob("*.cff"), ROOT / "pyproject.toml"]
    inside = [p for kind in ("py", "html", "js") for p in (ROOT / "src").rglob(f"*.{kind}")]
    for path in [*outside, *inside, *(ROOT / "docs").rglob("*.py")]:
        for address in on_the_site(read(path)):
            assert not address or ".html" in address, f"{named(path)}: {address} needs .html"
            assert leads_somewhere(*page_of(address)), f"{named(path)}: no page {address}"


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        (f"see {links.DOCUMENTATION}tutorial.html#many-steps.", ["tutorial.html#many-steps"]),
        (f"see <{links.DOCUMENTATION}>", [""]),
        ('f"{links.DOCUMENTATION}how-to/stop-early.html"', ["how-to/stop-early.html"]),
        ('links.DOCUMENTATION + "tutorial.html"', ["tutorial.html"]),
    ],
)
def test_addresses_are_found(text: str, addresses: list[str]) -> None:
    assert list(on_the_site(text)) == addresses


@pytest.mark.parametrize(
    ("address", "page", "there"),
    [
        ("tutorial.html#many-steps", "docs/tutorial.md", True),
        ("tutorial.html#no-steps", "docs/tutorial.md", False),
        ("changelog.html", "CHANGELOG.md", True),
        ("", "docs/index.md", True),
        ("nowhere.html", "docs/nowhere.md", False),
    ],
)
def test_an_address_is_that_of_a_page_or_is_noticed(address: str, page: str, there: bool) -> None:
    path, anchor = page_of(address)
    assert named(path) == page
    assert leads_somewhere(path, anchor) is there


def test_a_page_from_the_root_has_the_links_of_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "CONTRIBUTING.md").write_text(
        "[a](docs/tutorial.md#x) [b](CHANGELOG.md) [c](src/a.py) [d](#here) [e](https://e.org/)"
    )
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    assert pages.from_the_root("CONTRIBUTING.md") == (
        f"[a](tutorial.md#x) [b](changelog.md) [c]({links.REPOSITORY}/blob/main/src/a.py) "
        "[d](#here) [e](https://e.org/)"
    )


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ('<a href="https://example.org/">', []),
        ('<link rel="canonical" href="https://example.org/">', []),
        ('<link rel="stylesheet" href="../a.css">', []),
        ('<link rel="stylesheet" href="https://example.org/a.css">', ["https://example.org/a.css"]),
        ('<link rel="preconnect" href="//fonts.example.org">', ["//fonts.example.org"]),
        ('<script src="https://example.org/a.js"></script>', ["https://example.org/a.js"]),
        ('<img alt="" src="//example.org/a.png">', ["//example.org/a.png"]),
        ('<img alt="" src="images/a.png">', []),
    ],
)
def test_what_a_page_loads_from_another_host_is_found(html: str, found: list[str]) -> None:
    assert list(pages.loaded_from_elsewhere(html)) == found
