"""The tutorial shows what a Python shell shows, since a reader types along."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from docs import examples

TUTORIAL = Path(__file__).resolve().parents[2] / "docs/tutorial.md"


@pytest.mark.slow  # it runs the whole page, as the test of all pages does
def test_what_stands_after_an_arrow_is_what_a_shell_shows() -> None:
    """A text is the one exception: a shell puts it in quotes."""
    names: dict[str, Any] = {}
    seen = 0
    for block in examples.BLOCK.finditer(TUTORIAL.read_text(encoding="utf-8")):
        if block[1] != "python":
            continue
        lines = block[2].splitlines()
        for statement in ast.parse(block[2]).body:
            last = (statement.end_lineno or 1) - 1
            arrow = examples.ARROW.search(lines[last])
            if not (isinstance(statement, ast.Expr) and arrow):
                exec(compile(ast.Module([statement], []), "<tutorial>", "exec"), names)
                continue
            value = eval(compile(ast.Expression(statement.value), "<tutorial>", "eval"), names)
            shown = value if isinstance(value, str) else repr(value)
            assert examples.Output(0, 0, arrow[1], shown).agrees, (arrow[1], shown)
            seen += 1
    assert seen >= 15
