"""Takes the rounding out of one line of the package at a time, and asks the room's fast tests.

A line rounds if it names ``UNIT`` or calls one of the directed functions of
``tightbudget.numerics.rounding`` (``add_up``, ``log_down``, ...). It is *gone* where ``UNIT`` is 0
and the functions round to nearest. It is *turned* where ``UNIT`` is minus a million units and the
functions are off by as much in the wrong direction: a unit is less than many tests can see, a
million of them is not. A line survives if no fast test of its room fails.

    python -m tests.guards.sweep engine/readings           # all lines of a folder or file
    python -m tests.guards.sweep --turned engine/readings  # of those, each line turned

says of each line whether it was noticed or survives, which takes as long as its room's tests need
to fail. Lines that survive are in ``survivors.toml``, each with its reason.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import functools
import importlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest
from tests.guards.mutants import PACKAGE, _function, _functions, _holds_line, _lines

from tightbudget.numerics import rounding

__all__ = ["Line", "files", "lines_of", "survives"]

ROOT = Path(__file__).resolve().parents[2]
MILLION = 1e6 * rounding.UNIT  # how far a line that is turned is off, relative to what it rounds
LIMIT = 300  # seconds; a search that no longer ends has been noticed, too

# The fast tests that are asked about a folder or file, in this order: what fails soon comes first.
ROOMS: dict[str, tuple[str, ...]] = {
    "engine/readings/renyi.py": ("guards/test_rounding.py", "engine/test_renyi.py"),
    "engine/readings": ("guards/test_rounding.py", "guards/test_risk.py",
                        "mechanisms/test_curve.py", "mechanisms/test_risk.py"),
    "engine/buckets": ("guards/test_rounding.py", "guards/test_engine.py",
                       "engine/test_soundness.py", "engine/test_one_run.py"),
    "engine/saddle_point": ("guards/test_rounding.py", "guards/test_saddle_point.py",
                            "engine/test_smoothed.py", "engine/test_contour.py",
                            "reference/test_contour.py"),
    "engine": ("engine",),
    "pairs": ("guards/test_rounding.py", "guards/test_engine.py", "mechanisms/test_histogram.py",
              "engine/test_soundness.py"),
    "numerics": ("guards/test_rounding.py", "numerics"),
    "output_dp": ("guards/test_rounding.py", "guards/test_stopping.py", "guards/test_output_dp.py",
                  "output_dp"),
}  # fmt: skip


# ------------------------------------------------------------------------- the lines that round

_NEAREST: dict[str, Callable[..., Any]] = {
    "add": lambda *terms: float(np.float64(sum(terms))) if len(terms) < 3 else _sum(terms),
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "exp": lambda x: float(np.exp(min(x, 709.0))) if x == x else np.inf,
    "expm1": lambda x: float(np.expm1(min(x, 709.0))),
    "log": lambda x: float(np.log(x)),
    "log1p": lambda x: float(np.log1p(x)),
    "next": lambda x: x,
    "double": float,
    "root": lambda x: float(np.sqrt(float(x))),
    "sum": lambda x: float(np.sum(x)),
    "norm": lambda x: float(np.sqrt(np.sum(x * x))),
    "scale": lambda x, _: x,
    "outwards": lambda x: x,
}
DIRECTED = {
    name: -1.0 if name.endswith("_down") else 1.0
    for name in vars(rounding)
    if name.endswith(("_up", "_down")) or name == "outwards"
}


def _sum(terms: Sequence[float]) -> float:
    return functools.reduce(lambda x, y: x + y, terms)


def _instead(name: str, turned: bool) -> Callable[..., Any]:
    """What a directed function becomes."""
    plain = _NEAREST[name.rpartition("_")[0] or name]
    if not turned:
        return plain
    # an error that is raised by 2^-20 of itself has to be seen to be too small
    wrong = DIRECTED[name] * (2.0**-10 if name == "outwards" else MILLION)
    return lambda *given: (x := plain(*given)) - wrong * abs(x)


@dataclass(frozen=True)
class Line:
    """One line of a function that rounds."""

    path: str  # inside the package
    number: int  # from 1 on
    text: str  # without its comment; with "(2)" behind it where the file has it a second time

    @property
    def name(self) -> str:
        return f"{self.path}: {self.text}"


class _Rounded(ast.NodeTransformer):
    """Takes the rounding out of one line, or all lines; counts what it has found."""

    def __init__(self, number: int | None, turned: bool = False) -> None:
        self.number, self.turned, self.found = number, turned, set[int]()

    def visit_Name(self, node: ast.Name) -> ast.expr:
        rounds = node.id == "UNIT" or node.id in DIRECTED
        if not rounds or not isinstance(node.ctx, ast.Load):
            return node
        self.found.add(node.lineno)
        if node.lineno != self.number:
            return node
        if node.id == "UNIT":
            return ast.copy_location(ast.Constant(-MILLION if self.turned else 0.0), node)
        return ast.copy_location(ast.Name(f"_without_{node.id}", ast.Load()), node)


@functools.cache
def _source(path: str) -> str:
    return (PACKAGE / path).read_text(encoding="utf-8")


def lines_of(path: str) -> Iterator[Line]:
    """All lines of a file that round, in functions."""
    source = _source(path)
    tree = ast.parse(source)
    within = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for line in range(node.lineno, int(node.end_lineno or 0) + 1)
    }
    rounds, texts = _Rounded(None), source.splitlines()
    rounds.visit(tree)
    seen: dict[str, int] = {}
    for number in sorted(rounds.found & within):
        text = texts[number - 1].partition("  # ")[0].strip()
        seen[text] = seen.get(text, 0) + 1
        again = f" ({seen[text]})" if seen[text] > 1 else ""
        yield Line(path, number, text + again)


def files(places: Iterable[str]) -> list[str]:
    """The files of the package in these folders, or with these names."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for place in places
        for path in (
            [PACKAGE / place] if place.endswith(".py") else (PACKAGE / place).rglob("*.py")
        )
    }
    return sorted(found)


def room_of(path: str) -> tuple[str, ...]:
    """The tests that are asked about a file: those of the longest name that it begins with."""
    return ROOMS[max((room for room in ROOMS if path.startswith(room)), key=len)]


# ------------------------------------------------------------------------------- one at a time


def _take_away(line: Line, turned: bool) -> None:
    """Gives the function that the line is in other code, for the rest of this process."""
    for name in DIRECTED:
        setattr(builtins, f"_without_{name}", _instead(name, turned))
    module = importlib.import_module("tightbudget." + line.path[:-3].replace("/", "."))
    tree = _Rounded(line.number, turned).visit(ast.parse(_source(line.path)))
    code = compile(ast.fix_missing_locations(tree), str(module.__file__), "exec")
    inner: CodeType = min(
        (one for one in _functions(code) if _holds_line(one, line.number)),
        key=lambda one: len(set(_lines(one))),
    )
    outer = inner.co_qualname.partition(".<locals>")[0]  # of a function inside, the outer one
    if outer != inner.co_qualname:
        inner = next(one for one in _functions(code) if one.co_qualname == outer)
    _function(module, outer).__code__ = inner


def survives(line: Line, turned: bool) -> bool:
    """Whether the fast tests of the room stay green, in a process of their own."""
    child = os.fork()
    if child == 0:  # its own process: whatever happens here, it ends
        status = 2
        with contextlib.suppress(BaseException):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LIMIT)
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            os.environ["TEST_CPU_SECONDS"] = "inf"
            os.environ["CI"] = "1"  # hypothesis draws the same examples each time
            _take_away(line, turned)
            tests = [str(ROOT / "tests" / name) for name in room_of(line.path)]
            given = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]
            status = int(pytest.main([*given, *tests]))
        os._exit(status)
    _, ended = os.waitpid(child, 0)
    if os.WIFEXITED(ended) and os.WEXITSTATUS(ended) not in (0, 1):
        raise RuntimeError(f"the tests of {line.name} did not run: {os.WEXITSTATUS(ended)}")
    return ended == 0


def sweep(lines: Sequence[Line], turned: bool, jobs: int) -> Iterator[tuple[Line, bool]]:
    """Each line, and whether it survives."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from zip(lines, pool.map(lambda line: survives(line, turned), lines), strict=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Takes the rounding out of one line at a time.")
    parser.add_argument("places", nargs="+", help="folders or files of the package")
    parser.add_argument("--turned", action="store_true", help="a million units the wrong way")
    parser.add_argument("--line", action="append", help="only the lines of these names")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    lines = [line for path in files(given.places) for line in lines_of(path)]
    if given.line:
        lines = [line for line in lines if line.name in given.line]
    for line, alive in sweep(lines, given.turned, given.jobs):
        print("survives" if alive else "noticed ", line.name, flush=True)


if __name__ == "__main__":
    main()
