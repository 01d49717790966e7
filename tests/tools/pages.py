"""The functions that a page on a tool shows, for the tests of what the page says about them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from docs import examples

__all__ = ["functions_of"]

HOW_TO = examples.ROOT / "docs" / "how-to"


def functions_of(page: str, *names: str, lost: Sequence[str] = (), **known: Any) -> list[Any]:
    """Defines functions that a page shows, among the names that their code knows.

    Args:
        page: the file in docs/how-to.
        names: the names of the functions.
        lost: a text of the page, and another one that stands in its place; or nothing.
        known: the values of the names that their code takes from the rest of the page.
    """
    text = (HOW_TO / page).read_text(encoding="utf-8")
    if lost:
        assert lost[0] in text
        text = text.replace(lost[0], lost[1])
    blocks = [block[2] for block in examples.BLOCK.finditer(text) if block[1] == "python"]
    found = [s for s in ast.parse("\n".join(blocks)).body if getattr(s, "name", None) in names]
    exec(compile(ast.Module(found, []), page, "exec", dont_inherit=True), known)
    return [known[name] for name in names]
