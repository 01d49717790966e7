"""Running what the explorer says gives the same answer: its Python, and its command lines."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from tests.cli.terminal import answer

__all__ = ["commanded", "ran"]

_PLAN = re.compile(r"cat > plan\.toml <<'END'\n(.*?)\nEND\n", re.DOTALL)


def ran(program: str) -> dict[str, Any]:
    """The names that a program leaves."""
    names: dict[str, Any] = {}
    exec(compile(program, "<page>", "exec"), names)
    return names


def commanded(lines: str, folder: Path) -> list[dict[str, Any]]:
    """Returns the JSON that each command line prints; plan files are written before."""
    found, at = [], 0
    while at < len(lines):
        if plan := _PLAN.match(lines, at):
            (folder / "plan.toml").write_text(plan[1], encoding="utf-8")
            at = plan.end()
        line, _, _ = lines[at:].partition("\n")
        program, *words = shlex.split(line)
        assert program == "tightbudget"
        found.append(answer(*(folder / w if w == "plan.toml" else w for w in words)))
        at += len(line) + 1
    return found
