"""The words of the house: docstrings that can be read alone, standard terms, one meaning a name.

A room or page that still has to be rewritten is in ``NOT_YET``, so that the rules hold everywhere
else. The list only gets shorter.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tightbudget"
MODULES = sorted(PACKAGE.rglob("*.py"))
# texts that a browser shows; *.min.* are other people's
TEXTS = sorted(
    path
    for kind in ("*.html", "*.js")
    for path in PACKAGE.rglob(kind)
    if ".min." not in path.name and "vendor" not in path.parts
)
# decisions are quoted by their words of the day, but a standard term is a standard term there, too
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])

# beginnings of paths, from the root of the checkout, that a rule does not hold for yet
NOT_YET: dict[str, tuple[str, ...]] = {
    "docstrings": (),
    "terms": (),
}

# a docstring that begins so continues the name above it, or a neighbour's docstring
OPENINGS = re.compile(
    r"(What|Of|The same|Both|Likewise|As|Those|These|Its?|They|Where|How|Whose?|Also)\b(?!-)"
)

# a word of the house's own, and the term of the field that stands for it
TERMS = {
    r"dear(er|est|ly)?": "a worst-case price; cost more, costlier",
    r"upper[ -]ends?": "upper bound",
    r"lower[ -]ends?": "lower bound",
    r"contour engine": "saddle-point engine",
    r"two[- ]mass(es)? engine": "buckets engine",
    r"hair('s breadth)?": "a relative margin, and how large it is",
    r"dust": "an absolute error, and how large it is",
    r"fuzz": "a rounding margin",
}
STANDARD = {
    # a letter on either side makes it another word; `_dust` and `dust_of` are the same word
    re.compile(rf"(?<![A-Za-z])(?:{term})(?![A-Za-z])", re.IGNORECASE): standard
    for term, standard in TERMS.items()
}

# class names with more than one meaning, and why that does not confuse anybody
TWICE: dict[str, str] = {
    "Amount": "the public value, and its form over HTTP",
    "Group": "public, of records; the engine's is a step with its count, inside the package",
    "Answer": "public in the sweep; the engine's is a question's answer, too, inside the package",
    "Curve": "public; the explorer's is the question that asks for one",
    "Event": "the ledger's value, and its form over HTTP",
    "Hold": "the account's value, and its form over HTTP",
    "OpenHold": "the ledger's value, and its form over HTTP",
    "Statement": "the ledger's value, and its form over HTTP",
    # to be told apart, where it helps
    "Head": "of the chain; of an answer over HTTP",
    "Line": "of divergences (public in theorems); of a transform's values; who waits for a lock",
}

# a Python file in backquotes on a page, from one of these folders
NAMED_FILE = re.compile(r"`((?:[\w-]+/)+[\w-]+\.py)`")
FOLDERS = (ROOT, ROOT / "src", PACKAGE)
EXAMPLE = "cauchy"  # the mechanism that pages tell the reader to add

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def docstrings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the text of each docstring of a module, private ones too."""
    left: list[ast.AST] = [module]
    while left:
        node = left.pop()
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text
        # expressions have no docstrings, and are most of the nodes
        kinds = (ast.stmt, ast.excepthandler, ast.match_case)
        left.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, kinds))


def faults(text: str) -> Iterator[str]:
    """What is wrong with the words of one docstring."""
    first = text.split("\n\n")[0].rstrip()
    if found := OPENINGS.match(text):
        yield f"begins with {found[0]!r}: {first[:60]!r}"
    if not first.endswith("."):
        yield f"the first paragraph does not end with a full stop: {first[-60:]!r}"


def unusual_terms(text: str) -> Iterator[tuple[int, str]]:
    """The line of each word that has a standard term, and that term."""
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, standard in STANDARD.items():
            if found := pattern.search(line):
                yield number, f"{found[0]!r}: say {standard}"


def held(rule: str, paths: list[Path]) -> list[Path]:
    return [p for p in paths if not p.relative_to(ROOT).as_posix().startswith(NOT_YET[rule])]


# by room, so that no test parses the whole package
ROOMS = sorted({path.relative_to(PACKAGE).parts[0] for path in MODULES})


@pytest.mark.parametrize("room", ROOMS)
def test_every_docstring_can_be_read_alone(room: str) -> None:
    broken = [
        f"{path.relative_to(ROOT)}:{line} {fault}"
        for path in held("docstrings", MODULES)
        if path.relative_to(PACKAGE).parts[0] == room
        for line, text in docstrings(parsed(path))
        for fault in faults(text)
    ]
    assert not broken, "subject, verb, object, and the argument's name:\n" + "\n".join(broken)


def test_code_and_pages_use_the_terms_of_the_field() -> None:
    broken = [
        f"{path.relative_to(ROOT)}:{line} {fault}"
        for path in held("terms", [*MODULES, *TEXTS, *PAGES])
        for line, fault in unusual_terms(path.read_text(encoding="utf-8"))
    ]
    assert not broken, "\n".join(broken)


def test_the_map_of_the_house_has_every_room() -> None:
    package = parsed(PACKAGE / "__init__.py")
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    rooms |= {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    named = set(re.findall(r"``(\w+)``", ast.get_docstring(package) or ""))
    assert rooms <= named


def missing_files(text: str) -> Iterator[str]:
    """The files that a page names and that are not there."""
    for name in NAMED_FILE.findall(text):
        if EXAMPLE not in name and not any((folder / name).exists() for folder in FOLDERS):
            yield name


def test_files_that_pages_name_are_there() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in PAGES
        for name in missing_files(path.read_text(encoding="utf-8"))
    ]
    assert not broken, "\n".join(broken)


def test_a_file_that_has_moved_is_seen() -> None:
    assert list(missing_files("see `pld/engines.py` and `engine/engine.py`")) == ["pld/engines.py"]


def classes() -> dict[str, list[str]]:
    """Names the files of each class of the package."""
    where: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(path.relative_to(PACKAGE).as_posix())
    return where


def test_a_class_name_has_one_meaning() -> None:
    broken = [
        f"class {name} is in {' and in '.join(paths)}"
        for name, paths in classes().items()
        if len(paths) > 1 and name not in TWICE
    ]
    assert not broken, "\n".join(broken)


def test_no_name_is_excused_that_one_class_has_alone() -> None:
    where = classes()
    assert not [name for name in TWICE if len(where.get(name, [])) < 2]


@pytest.mark.parametrize(
    "text",
    [
        "What a line answers.",
        "Of all runs together.",
        "The same for another form.",
        "Both, in order.",
        "Likewise for the lower one.",
        "As many as the gap supports.",
        "Those that nobody matches.",
        "Its questions one by one.",
        "Where the test changes.",
        "How far it may be off.",
        "Whose theorem it is.",
        "A line without an end",
        "Does a question end a line?",
    ],
)
def test_a_docstring_that_continues_another_is_seen(text: str) -> None:
    assert list(faults(text))


@pytest.mark.parametrize(
    "text",
    [
        "Whether two intervals have a number in common.",
        "Offers a cell.",
        "Asks the engine.",
        "Returns the largest loss of ``pair``.\n\n    >>> print(1)\n    1",
    ],
)
def test_a_docstring_that_stands_alone_passes(text: str) -> None:
    assert not list(faults(text))


def test_private_docstrings_are_read_too() -> None:
    module = ast.parse('class _A:\n    def _b(self):\n        """Both ends."""\n')
    assert [text for _, text in docstrings(module)] == ["Both ends."]


@pytest.mark.parametrize(
    "text", ["the dearest cell", "an upper end", "upper ends", "self.dust", "_HAIR = 1", "a_fuzz"]
)
def test_a_word_with_a_standard_term_is_seen(text: str) -> None:
    assert list(unusual_terms(text))


@pytest.mark.parametrize("text", ["the upper endpoint", "industry", "chair", "endear"])
def test_other_words_pass(text: str) -> None:
    assert not list(unusual_terms(text))
