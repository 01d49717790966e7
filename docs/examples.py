"""Runs the examples of README and docs, and compares what they print.

    python docs/examples.py            say which outputs are out of date, and exit with 1
    python docs/examples.py --write    write the outputs anew
    python docs/examples.py PAGE ...   the same of some pages

In a ``python`` block, an expression followed by ``# -> text`` has that value, and a ``text``
block right after a block is what it printed. In a ``console`` block, lines after
``$ tightbudget ...`` (or ``curl``, ``sed``) are its output, and ``$ export NAME=value`` holds for
the rest of the page. What ends in ``&`` runs until its end; for 8000, a page is given a free port.
A plain ``tightbudget`` command runs in this process, a line that needs a shell in one of its own.
A ``toml`` or ``sh`` block that begins with ``# name.toml`` or ``# name.sh`` is a file of that
name. One page is run as one program, in an empty folder; one with ``<!-- needs: name -->`` only
where a module or a program of that name is installed, and with ``postgresql`` where DATABASE_URL
names a database.

Certified ends may move within their gap when the engine or NumPy changes, so numbers with a
point or an exponent are compared to one part in a thousand; everything else exactly, but for
spacing, seconds, gaps, moments, hashes and the errors that `explain` lists.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import itertools
import math
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(python|text|console|toml|sh)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NEEDS = re.compile(r"^<!-- needs: (\w+) -->$", re.MULTILINE)
ARROW = re.compile(r"# -> (.*)$")
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")
UNSTABLE = re.compile(
    r'(gap|seconds"?:?|aliasing|beyond|values|rounding) *[\d.e-]+'
    r"|\d{4}-\d\d-\d\dT[\d:.+]+|[0-9a-f]{64}"
    r"|(?<![0-9a-z.])(?:[0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-z])"  # of a token
)
PORT = re.compile(r"(?<=[: ])8000\b")
MAIN = "from tightbudget.cli import main; main()"
# a pipe, another program's output or a variable needs a shell; what `ledger run` starts writes
# to the real standard output
NEEDS_A_SHELL = re.compile(r"[|<>&;$`*?~]| -- ")


@dataclass(frozen=True)
class Output:
    """An output that a page shows, its place in the page's text, and the output of the run."""

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
    """True for two numbers with a point or an exponent within one part in a thousand."""
    if a.replace(",", "").isdigit() and b.replace(",", "").isdigit():
        return False
    return math.isclose(float(a.replace(",", "")), float(b.replace(",", "")), rel_tol=1e-3)


def outputs(text: str) -> Iterator[Output]:
    """Runs a page's blocks in order, in the current folder."""
    names: dict[str, Any] = {"__name__": "__page__"}
    printed, ended = "", 0  # of the last block of Python, its output and the place of its end
    with contextlib.ExitStack() as page:
        page.enter_context(mock.patch.dict(os.environ, COLUMNS="100", TERM="dumb", LOGNAME="ada"))
        for block in BLOCK.finditer(text):
            language, body, at = block[1], block[2], block.start(2)
            if language == "python":
                (found, printed), ended = _run_python(body, names), block.end()
                for start, end, value in found:
                    yield Output(at + start, at + end, body[start:end], value)
            elif language == "console":
                yield from _run_console(body, at, page)
            elif name := re.match(r"# (\S+\.(?:toml|sh))\n", body):
                Path(name[1]).write_text(body, encoding="utf-8")
            elif language == "text" and (printed or 0 < ended == _before(block)):
                # a text right after a block says what was printed, also where that is nothing
                yield Output(at, block.end(2), body, printed)
                printed = ""


def _before(block: re.Match[str]) -> int:
    """Finds where the text before a block ends, without its last empty lines."""
    return len(block.string[: block.start()].rstrip())


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
                value = str(eval(compile(code, "<example>", "eval", dont_inherit=True), names))
                found.append((starts[last] + arrow.start(1), starts[last] + arrow.end(1), value))
            else:
                exec(compile(code, "<example>", "exec", dont_inherit=True), names)
    return found, stdout.getvalue()


def _run_console(body: str, at: int, page: contextlib.ExitStack) -> Iterator[Output]:
    """Runs the commands of a console block, and yields an output for each."""
    for line in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE):
        if name := re.fullmatch(r"export (\w+)=(.*)", line[1]):
            os.environ[name[1]] = _shell(f"printf %s {name[2]}").stdout
        if not line[1].startswith(("tightbudget ", "curl ", "sed ")):
            continue
        if line[1].endswith(" &"):
            printed = _started(line[1].removesuffix(" &"), page)
        else:
            alone = line[1].startswith("tightbudget ") and not NEEDS_A_SHELL.search(line[1])
            done = _here(line[1]) if alone else _shell(line[1])
            printed = (done.stdout + done.stderr).replace(f"{Path.cwd()}/", "")
        text = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
        yield Output(at + line.start(2), at + line.end(2), line[2], text)


def _here(line: str) -> subprocess.CompletedProcess[str]:
    """Runs a ``tightbudget`` command in this process: a Python that starts takes a second."""
    from tightbudget.cli import main  # loads the terminal, which pages of Python alone do without

    words, out, err = shlex.split(line), io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def _shell(line: str) -> subprocess.CompletedProcess[str]:
    """Runs a line in a shell, in which ``tightbudget`` is the package of this process."""
    program = f'tightbudget() {{ {sys.executable} -c "{MAIN}" "$@"; }}\n{line}'
    return subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=False)


def _started(line: str, page: contextlib.ExitStack) -> str:
    """Starts a program that runs until the page has ended; the first line that it prints."""
    words = [sys.executable, "-c", MAIN, *shlex.split(line)[1:]]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    page.enter_context(running)
    page.callback(running.kill)
    assert running.stdout is not None
    return running.stdout.readline()


def _free_port() -> str:
    """A port of four digits, as 8000 has, so that texts keep their places; one for each worker."""
    for port in itertools.count(2000 + os.getpid() % 7000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return str(port)
    raise AssertionError("one is free")


def run_page(path: Path) -> tuple[str, list[Output]]:
    """The page with its outputs written anew, and those that differ."""
    text = path.read_text(encoding="utf-8")
    port = _free_port() if PORT.search(text) else "8000"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        found = list(outputs(PORT.sub(port, text)))
    differing = [output for output in found if not output.agrees]
    for output in reversed(differing):
        printed = output.printed.replace(f":{port}", ":8000")
        text = text[: output.start] + printed + text[output.end :]
    return text, differing


def pages() -> list[Path]:
    """README and the pages of the docs that people write."""
    written = (p for p in (ROOT / "docs").rglob("*.md") if "reference" not in p.parts)
    return [ROOT / "README.md", *sorted(written)]


def missing(path: Path) -> list[str]:
    """The modules, and the programs, that the page needs and that are not there."""
    needed = NEEDS.findall(path.read_text(encoding="utf-8"))
    return [
        name
        for name in needed
        if (name != "postgresql" or "DATABASE_URL" not in os.environ)
        and importlib.util.find_spec(name) is None
        and shutil.which(name) is None
    ]


def main(arguments: list[str]) -> int:
    """Tells, and with --write rewrites; of all pages, or of those whose paths are given."""
    found, asked = False, [Path(one).resolve() for one in arguments if one != "--write"]
    for path in asked or pages():
        if lacking := missing(path):
            sys.stdout.write(f"{path.relative_to(ROOT)}: left out, needs {', '.join(lacking)}\n")
            continue
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
