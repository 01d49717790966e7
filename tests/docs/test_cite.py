"""The page on citing names the version that this is, and the title of ``CITATION.cff``."""

from __future__ import annotations

import re
from pathlib import Path

import tightbudget as tb

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/cite.md").read_text(encoding="utf-8")


def test_the_version_is_this_one() -> None:
    named = re.findall(r"version = \{(.*?)\}|tightbudget (\d\S*),", PAGE)
    assert [first or second for first, second in named] == [tb.__version__] * 2


def test_the_title_is_that_of_the_citation_file() -> None:
    cited = re.search(r'^title: "(.*)"$', (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert cited is not None
    assert f"title   = {{{cited[1]}}}" in PAGE
