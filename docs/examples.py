"""Runs the examples of README and docs, and compares what they print.

    python docs/examples.py            say which outputs are out of date, and exit with 1
    python docs/examples.py --write    write the outputs anew

In a ``python`` block, an expression followed by ``# -> text`` has that value, and a ``text``
block right after a block is what it printed. In a ``console`` block, lines after
``$ tightbudget ...`` are its output. A ``toml`` block that begins with ``# name.toml`` is a
file of that name. One page is run as one program, in an empty folder.

Certified ends may move within their gap when the engine or NumPy changes, so numbers with a
point or an exponent are compared to one part in a thousand; everything else exactly, but for
spacing, seconds, gaps and the errors that `explain` lists.
"""

from __future__ import annotations

import ast
import contextlib
import io
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(python|text|console|toml)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ARROW = re.compile(r"# -> (.*)$")
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")
UNSTABLE = re.compile(r'(gap|seconds"?:?|aliasing|beyond|values|rounding) *[\d.e-]+')
MAIN = "from tightbudget.cli import main; main()"


@dataclass(frozen=True)
class Output:
    """What a page says is printed, where it says so, and what really is."""

    start: int
    end: int
    said: str
    printed: str

    @property
    def agrees(self) -> bool:
        """Equal text, and numbers that are equal or near (see above)."""
        said, printed = (
            " ".join(UNSTABLE.sub(r"\1", x).split()) for x in (self.said, self.printed)
        )
        if NUMBER.sub("0", said) != NUMBER.sub("0", printed):
            return False
        pairs = zip(NUMBER.findall(said), NUMBER.findall(printed), strict=True)
        return all(a == b or _near(a, b) for a, b in pairs)


def _near(a: str, b: str) -> bool:
    if a.replace(",", "").isdigit() and b.replace(",", "").isdigit():
        return False
    return math.isclose(float(a.replace(",", "")), float(b.replace(",", "")), rel_tol=1e-3)


def outputs(text: str) -> Iterator[Output]:
    """Runs a page's blocks in order, in the current folder."""
    names: dict[str, Any] = {"__name__": "__page__"}
    printed = ""
    for block in BLOCK.finditer(text):
        language, body, at = block[1], block[2], block.start(2)
        if language == "python":
            found, printed = _run_python(body, names)
            for start, end, value in found:
                yield Output(at + start, at + end, body[start:end], value)
        elif language == "console":
            yield from _run_console(body, at)
        elif language == "toml" and (name := re.match(r"# (\S+\.toml)\n", body)):
            Path(name[1]).write_text(body, encoding="utf-8")
        elif language == "text" and printed:
            yield Output(at, block.end(2), body, printed)
            printed = ""


def _run_python(body: str, names: dict[str, Any]) -> tuple[list[tuple[int, int, str]], str]:
    """(start, end, value) of each ``# ->`` text, and what was printed."""
    lines = body.splitlines(keepends=True)
    starts = [sum(map(len, lines[:i])) for i in range(len(lines))]
    found, stdout = [], io.StringIO()
    with contextlib.redirect_stdout(stdout):
        for statement in ast.parse(body).body:
            code: ast.Module | ast.Expression = ast.Module([statement], [])
            last = (statement.end_lineno or 1) - 1
            arrow = ARROW.search(lines[last].rstrip("\n"))
            if isinstance(statement, ast.Expr) and arrow:
                code = ast.Expression(statement.value)
                value = str(eval(compile(code, "<example>", "eval"), names))
                found.append((starts[last] + arrow.start(1), starts[last] + arrow.end(1), value))
            else:
                exec(compile(code, "<example>", "exec"), names)
    return found, stdout.getvalue()


def _run_console(body: str, at: int) -> Iterator[Output]:
    for command in re.finditer(r"^\$ tightbudget (.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE):
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *shlex.split(command[1])],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "COLUMNS": "100", "TERM": "dumb"},
        )
        text = "".join(f"{line.rstrip()}\n" for line in (done.stdout + done.stderr).splitlines())
        yield Output(at + command.start(2), at + command.end(2), command[2], text)


def run_page(path: Path) -> tuple[str, list[Output]]:
    """The page with its outputs written anew, and those that differ."""
    text = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        differing = [output for output in outputs(text) if not output.agrees]
    for output in reversed(differing):
        text = text[: output.start] + output.printed + text[output.end :]
    return text, differing


def pages() -> list[Path]:
    """README and the pages of the docs that people write."""
    written = (p for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "reference")
    return [ROOT / "README.md", *sorted(written)]


def main(arguments: list[str]) -> int:
    """Tells, and with --write rewrites."""
    found = False
    for path in pages():
        text, differing = run_page(path)
        for output in differing:
            found = True
            where = path.relative_to(ROOT)
            sys.stdout.write(f"{where}: said {output.said!r}, printed {output.printed!r}\n")
        if differing and "--write" in arguments:
            path.write_text(text, encoding="utf-8")
    return 1 if found and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
