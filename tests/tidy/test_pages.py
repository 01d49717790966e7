"""Prose of the documentation is in lines of at most 120 characters.

Lines that cannot be broken are exempt: code, rows of tables, formulas, headings, pictures, and
lines with one word, a link say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
LONGEST = 120

FENCE = re.compile(r"\s*(```|~~~)")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s")
# rows of tables, headings, pictures, HTML and comments
EXEMPT = re.compile(r"\s*(?:\||#|!\[|<)")


def long_lines(text: str) -> Iterator[int]:
    """The numbers of the lines of prose that are too long."""
    fenced = listed = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line[:1].strip():
            listed = bool(ITEM.match(line))
        if FENCE.match(line):
            fenced = not fenced
        code = fenced or (line.startswith("    ") and not listed)
        words = ITEM.sub("", line, count=1).split()
        if len(line) > LONGEST and len(words) > 1 and not code and not EXEMPT.match(line):
            yield number


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_prose_is_in_lines_of_at_most_120_characters() -> None:
    broken = [
        f"{named(page)}:{number}"
        for page in PAGES
        for number in long_lines(page.read_text(encoding="utf-8"))
    ]
    assert not broken, "break these lines of prose:\n" + "\n".join(broken)


def test_no_line_of_a_formula_reads_as_an_item_of_a_list() -> None:
    """Items begin with "-" here: a line that begins with "+" is a sum that was broken."""
    broken = []
    for page in PAGES:
        fenced = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
            fenced ^= bool(FENCE.match(line))
            if not fenced and re.match(r" {0,3}[+*] ", line):
                broken.append(f"{named(page)}:{number}")
    assert not broken, "break these sums elsewhere:\n" + "\n".join(broken)


LONG = "word " * 30


@pytest.mark.parametrize(
    "text",
    [
        LONG,
        f"- {LONG}",
        f"- An item\n\n    {LONG}",
        f"- An item\n    - {LONG}",
        f"```text\ncode\n```\n{LONG}",
        f"[a link](target.md) {LONG}",
    ],
)
def test_a_long_line_of_prose_is_seen(text: str) -> None:
    assert list(long_lines(text)) == [len(text.splitlines())]


@pytest.mark.parametrize(
    "text",
    [
        "x" * LONGEST,
        f"```python\n{LONG}\n```",
        f"| {LONG}|",
        f"# {LONG}",
        f"![{LONG}](picture.png)",
        f"Formula:\n\n    {LONG}\n    {LONG}",
        f"- [{'x' * 80}](https://example.org/{'y' * 80})",
        f"<!-- {LONG} -->",
    ],
)
def test_lines_that_cannot_be_broken_pass(text: str) -> None:
    assert not list(long_lines(text))
