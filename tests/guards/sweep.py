"""Takes the rounding out of one line of the package at a time, and asks fast tests.

A line rounds if it names ``UNIT`` or a directed function (``add_up``, ``log_down``, ...) that its
file has from ``tightbudget.numerics.rounding``. It is *turned* where ``UNIT`` is
minus a million units and the functions are off by as much in the wrong direction: a unit is less
than many tests can see, a million of them is not. It is *gone* where ``UNIT`` is 0 and the
functions round to nearest. A line survives if no test that is asked fails.

    python -m tests.guards.sweep engine/readings          # how many lines of each file round
    python -m tests.guards.sweep --turned engine/readings # of each, whether a known test notices
    python -m tests.guards.sweep --gone engine/readings   # the same, with the rounding gone
    python -m tests.guards.sweep --search --write engine/readings

The known tests of a file are in ``survivors.toml`` under its name. ``--search`` first runs all fast
tests of the room once to see which of them reach which line, then asks the known ones, then those
that reach the line, cheap ones first; ``--write`` makes those that noticed the file's known tests.
Every line is asked about in a fork of one process that has collected the tests.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import functools
import importlib
import os
import pickle
import signal
import sys
import time
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import IO, Any

import numpy as np
import pytest
from tests.guards.mutants import PACKAGE, SURVIVORS, _function, _functions, _holds_line, _lines

from tightbudget.numerics import rounding

__all__ = ["Line", "files", "known_tests", "lines_of"]

TESTS = Path(__file__).resolve().parents[1]
MILLION = 1e6 * rounding.UNIT  # how far a line that is turned is off, relative to what it rounds
LIMIT = 12.0  # CPU seconds for the tests of one line; a search that no longer ends is noticed, too
SLOWER = 4  # how many times what they take with the line in place the tests may take without it

# The fast tests that are searched for every file; and for a folder or file, those of the longest
# name that it begins with, and the file of tests that has its name.
ALWAYS = (
    "guards/test_rounded_values.py",
    "guards/test_rounded_engine.py",
    "guards/test_rounded_mechanisms.py",
    "guards/test_rounded_gaussian.py",
    "guards/test_rounding.py",
)
ROOMS: dict[str, tuple[str, ...]] = {
    "accounting": ("accounting",),
    "adapters": ("guards/test_dp_accounting.py", "guards/test_rounded_adapters.py"),
    "adapters/opendp": ("adapters/test_opendp.py", "adapters/test_opendp_context.py"),
    "engine": ("engine",),
    "engine/buckets": ("guards/test_engine.py", "mechanisms/test_histogram.py"),
    "engine/readings": (
        "guards/test_risk.py",
        "mechanisms/test_curve.py",
        "mechanisms/test_risk.py",
    ),
    "engine/readings/renyi.py": ("engine/test_renyi.py",),
    "engine/saddle_point": (
        "guards/test_saddle_point.py",
        "engine/test_smoothed.py",
        "engine/test_contour.py",
    ),
    "audit": ("guards/test_rounded_audit.py", "guards/test_audits.py", "audit"),
    "evidence": ("evidence",),
    "marginals": ("marginals",),
    "mechanisms": ("guards/test_mechanisms.py", "guards/test_two_ends.py", "mechanisms"),
    "mechanisms/allocated": (
        "guards/test_allocated.py",
        "guards/test_allocated_line.py",
        "guards/test_rounded_allocated.py",
        "mechanisms/test_allocated.py",
        "mechanisms/test_allocated_line.py",
    ),
    "mechanisms/batches.py": ("guards/test_batches.py", "mechanisms/test_batches.py"),
    "mechanisms/best_of.py": ("mechanisms/test_best_of.py",),
    "mechanisms/gaussian_": (
        "guards/test_saddle_point.py",
        "guards/test_gaussian_schedule.py",
        "mechanisms",
    ),
    "mechanisms/risk.py": ("guards/test_risk.py", "mechanisms/test_risk.py"),
    "mechanisms/shuffled_reports.py": ("mechanisms/test_shuffled_reports.py",),
    "mechanisms/shuffled.py": ("guards/test_shuffled.py", "mechanisms/test_shuffled.py"),
    "numerics": ("numerics",),
    "output_dp": ("guards/test_stopping.py", "guards/test_output_dp.py", "output_dp"),
    "pairs": (),
    "privacy_buckets.py": ("guards/test_privacy_buckets.py", "engine/test_privacy_buckets.py"),
    "release": ("guards/test_release.py", "guards/test_propose_test_release.py", "release"),
    "tables": ("guards/test_table_counts.py", "tables"),
    "trials.py": ("mechanisms/test_best_of.py",),
    "theorems": ("guards/test_theorems.py", "theorems"),
    "workflows": ("guards/test_rounded_workflows.py", "guards/test_workflows.py", "workflows"),
}


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
    """Takes the rounding out of one line, or makes all lines report; counts what it has found."""

    def __init__(
        self, number: int | None = None, turned: bool = False, report: str | None = None
    ) -> None:
        self.number, self.turned, self.report = number, turned, report
        self.found = set[int]()
        self.names = {"UNIT", *DIRECTED}

    def visit_Module(self, node: ast.Module) -> ast.AST:
        if not any(
            isinstance(one, ast.FunctionDef) and one.name == "outwards" for one in node.body
        ):
            imports = (one for one in node.body if isinstance(one, ast.ImportFrom))
            ours = (one for one in imports if one.module == rounding.__name__)
            self.names &= {name.name for one in ours for name in one.names}
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.names or not isinstance(node.ctx, ast.Load):
            return node
        self.found.add(node.lineno)
        if self.report is not None:  # (_reached(path, 12) or add_up)(x, y)
            given: list[ast.expr] = [ast.Constant(self.report), ast.Constant(node.lineno)]
            reached = ast.Call(ast.Name("_reached", ast.Load()), given, keywords=[])
            return ast.copy_location(ast.BoolOp(ast.Or(), [reached, node]), node)
        if node.lineno != self.number:
            return node
        if node.id == "UNIT":
            return ast.copy_location(ast.Constant(-MILLION if self.turned else 0.0), node)
        return ast.copy_location(ast.Name(f"_without_{node.id}", ast.Load()), node)


@functools.cache
def _source(path: str) -> str:
    return (PACKAGE / path).read_text(encoding="utf-8")


@functools.cache
def lines_of(path: str) -> tuple[Line, ...]:
    """All lines of a file that round, in functions."""
    source = _source(path)
    tree = ast.parse(source)
    within = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for line in range(node.lineno, int(node.end_lineno or 0) + 1)
    }
    rounds, texts = _Rounded(), source.splitlines()
    rounds.visit(tree)
    seen: dict[str, int] = {}
    found = []
    for number in sorted(rounds.found & within):
        text = texts[number - 1].partition("  # ")[0].strip()
        seen[text] = seen.get(text, 0) + 1
        again = f" ({seen[text]})" if seen[text] > 1 else ""
        found.append(Line(path, number, text + again))
    return tuple(found)


def files(places: Iterable[str]) -> list[str]:
    """The files of the package in these folders, or with these names, that have such lines."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for place in places
        for path in (
            [PACKAGE / place] if place.endswith(".py") else (PACKAGE / place).rglob("*.py")
        )
    }
    return sorted(path for path in found if lines_of(path))


def room_of(path: str) -> tuple[str, ...]:
    """The tests that are searched for a file."""
    room = ROOMS[max((room for room in ROOMS if path.startswith(room)), key=len)]
    folder, _, name = path.rpartition("/")
    own = f"{folder}/test_{name}"
    return (*ALWAYS, *([own] if (TESTS / own).is_file() else []), *room)


# ------------------------------------------------------------------------- the known tests


def known_tests() -> dict[str, list[str]]:
    """The files that were swept, and of each the tests that notice its lines."""
    rows = tomllib.loads(SURVIVORS.read_text(encoding="utf-8"))
    return dict[str, list[str]](rows["swept"])


def survivors() -> dict[str, str]:
    """The lines that may survive when they are turned, each with its reason."""
    rows = tomllib.loads(SURVIVORS.read_text(encoding="utf-8"))
    return dict[str, str](rows["lines"])


def _write(known: Mapping[str, Sequence[str]]) -> None:
    """Puts the known tests in the place of those that are there, behind the line ``[swept]``."""

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = SURVIVORS.read_text(encoding="utf-8")
    rows = [
        f"{quoted(path)} = [\n" + "".join(f"  {quoted(one)},\n" for one in tests) + "]\n"
        for path, tests in sorted(known.items())
    ]
    before, _, _ = text.partition("\n[swept]\n")
    SURVIVORS.write_text(before + "\n[swept]\n" + "".join(rows), encoding="utf-8")


# ------------------------------------------------------------------------------- one at a time


def _module(path: str) -> Any:
    return importlib.import_module("tightbudget." + path[:-3].replace("/", "."))


def _replace_code(path: str, visitor: _Rounded, numbers: Iterable[int]) -> None:
    """Gives the functions that hold these lines other code, for the rest of this process."""
    module = _module(path)
    tree = ast.fix_missing_locations(visitor.visit(ast.parse(_source(path))))
    codes = list(_functions(compile(tree, str(module.__file__), "exec")))
    outermost = {}
    for number in numbers:
        inner: CodeType = min(
            (one for one in codes if _holds_line(one, number)),
            key=lambda one: len(set(_lines(one))),
        )
        name = inner.co_qualname.partition(".<locals>")[0]  # of a function inside, the outer one
        outermost[name] = next(one for one in codes if one.co_qualname == name)
    for name, code in outermost.items():
        _function(module, name).__code__ = code


def _take_away(line: Line, turned: bool) -> None:
    for name in DIRECTED:
        vars(builtins)[f"_without_{name}"] = _instead(name, turned)
    _replace_code(line.path, _Rounded(line.number, turned), [line.number])


@dataclass
class Fork:
    """A child process that has one thing to say."""

    process: int
    pipe: IO[bytes]

    @classmethod
    def of(cls, work: Callable[[], object]) -> Fork:
        read, write = os.pipe()
        sys.stdout.flush()
        process = os.fork()
        if process == 0:  # whatever happens here, it ends
            loud = os.dup(2)
            try:
                os.close(read)
                silent = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silent, 1)
                os.dup2(silent, 2)
                said = pickle.dumps(work())
                with os.fdopen(write, "wb") as pipe:
                    pipe.write(said)
                os._exit(0)
            except BaseException:
                os.dup2(loud, 2)
                traceback.print_exc()
            finally:
                os._exit(3)
        os.close(write)
        return cls(process, os.fdopen(read, "rb"))

    def said(self) -> Any:
        """What it said; None if a signal ended it before."""
        with self.pipe:
            text = self.pipe.read()
        _, ended = os.waitpid(self.process, 0)
        if os.WIFEXITED(ended) and os.WEXITSTATUS(ended) != 0:
            raise RuntimeError("a fork of the sweep did not work")
        return pickle.loads(text) if text else None


def _in_turn(work: Iterable[Callable[[], object]], jobs: int) -> Iterator[Any]:
    """The answers of forks, in their order; ``jobs`` at a time."""
    running: list[Fork] = []
    for one in work:
        running.append(Fork.of(one))
        if len(running) == jobs:
            yield running.pop(0).said()
    for fork in running:
        yield fork.said()


def _name(item: pytest.Item) -> str:
    return item.nodeid.removeprefix("tests/")


@dataclass(eq=False)
class Sweep:
    """A plugin of pytest: in the place of the tests it asks about each line in a fork."""

    lines: Sequence[Line]
    turned: bool
    search: bool
    jobs: int
    known: dict[str, list[str]]
    noticed: dict[Line, str | None] = field(default_factory=dict)
    failed: bool = False  # whether a test has, in this process
    items: dict[str, pytest.Item] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {_name(item): item for item in session.items}
        for path in {line.path for line in self.lines}:
            _module(path)
        reach: dict[tuple[str, int], dict[str, float]] = {}
        if self.search:
            print(f"{len(self.items)} tests", flush=True)
            for part in _in_turn(
                (functools.partial(self._reached, one) for one in range(self.jobs)), self.jobs
            ):
                for at, tests in part.items():
                    reach.setdefault(at, {}).update(tests)

        def tests_of(line: Line) -> list[str]:
            known = self.known.setdefault(line.path, [])
            reaching = reach.get((line.path, line.number), {})
            others = sorted(set(reaching) - set(known), key=lambda one: reaching[one])
            return [one for one in known if not self.search or one in reaching] + others

        limit = 2 * LIMIT if self.search else LIMIT / 3
        work = (functools.partial(self._noticed, one, tests_of(one), limit) for one in self.lines)
        start = time.perf_counter()
        for line, found in zip(self.lines, _in_turn(work, self.jobs), strict=True):
            if found is None and not self.search:
                found = self._noticed_in_time(line, tests_of(line))
            by = "the end of its process" if found is None else found
            self.noticed[line] = by or None
            if by and found and by not in self.known[line.path]:
                self.known[line.path].append(by)
            took = f"{time.perf_counter() - start:7.1f} s  " if self.search else ""
            at = f"{line.path}:{line.number}: {line.text}"
            print(f"{took}{'noticed ' if by else 'survives'} {at}", flush=True)
            if by and self.search:
                print(f"                    by {by}", flush=True)
        return True

    def _run(self, item: pytest.Item) -> bool:
        """Whether the test passes."""
        self.failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self.failed

    def _noticed(self, line: Line, tests: Sequence[str], limit: float) -> str:
        """The first of the tests that fails, "" if none does; its process ends at the limit."""
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, limit)
        _take_away(line, self.turned)
        start = time.process_time()
        for test in tests:
            if self.search and time.process_time() - start > LIMIT:
                break
            if test in self.items and not self._run(self.items[test]):
                return test
        return ""

    def _noticed_in_time(self, line: Line, tests: Sequence[str]) -> str | None:
        """The same with a limit that the tests keep to with the line in place, on any machine."""
        took: float = Fork.of(functools.partial(self._seconds, tests)).said()
        limit = max(LIMIT / 3, SLOWER * took)
        again: str | None = Fork.of(functools.partial(self._noticed, line, tests, limit)).said()
        return again

    def _seconds(self, tests: Sequence[str]) -> float:
        """The CPU seconds that the tests take."""
        start = time.process_time()
        for test in tests:
            if test in self.items:
                self._run(self.items[test])
        return time.process_time() - start

    def _reached(self, part: int) -> dict[tuple[str, int], dict[str, float]]:
        """The passing tests that reach each line, each with its CPU seconds."""
        hit = set[tuple[str, int]]()
        vars(builtins)["_reached"] = lambda path, number: hit.add((path, number))
        for path in {line.path for line in self.lines}:
            numbers = [line.number for line in self.lines if line.path == path]
            _replace_code(path, _Rounded(report=path), numbers)
        found: dict[tuple[str, int], dict[str, float]] = {}
        for k, (name, item) in enumerate(self.items.items()):
            if (k // 8) % self.jobs != part:
                continue
            hit.clear()
            start = time.process_time()
            passes = self._run(item)
            took = time.process_time() - start
            for at in hit if passes else ():
                found.setdefault(at, {})[name] = took
        return found


def sweep(
    lines: Sequence[Line],
    *,
    turned: bool = True,
    search: bool = False,
    among: Sequence[str] = (),
    jobs: int = 1,
) -> Sweep:
    """Asks about lines; without a search only the known tests, else those of the room, or these."""
    os.environ["TEST_CPU_SECONDS"] = "inf"
    os.environ["CI"] = "1"  # hypothesis draws the same examples each time
    os.environ["TEST_EVERY_CASE"] = "1"
    asked = Sweep(lines, turned, search, jobs, known_tests())
    paths = dict.fromkeys(line.path for line in lines)
    if search:
        tests = dict.fromkeys(among or (test for path in paths for test in room_of(path)))
    else:
        tests = dict.fromkeys(one.partition("::")[0] for p in paths for one in asked.known[p])
    marks = "not slow" if search else ""  # the known tests are few, whatever their marks
    given = ["-q", "-m", marks, "-p", "no:cacheprovider", "-p", "no:xdist", "-s"]
    status = pytest.main([*given, *(str(TESTS / test) for test in tests)], plugins=[asked])
    if status != 0:
        raise RuntimeError(f"the tests could not be collected: {status}")
    return asked


def main() -> None:
    parser = argparse.ArgumentParser(description="Takes the rounding out of one line at a time.")
    parser.add_argument("places", nargs="+", help="folders or files of the package")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--turned", action="store_true", help="a million units the wrong way")
    how.add_argument("--gone", action="store_true", help="no unit, and nearest")
    parser.add_argument("--search", action="store_true", help="all fast tests of the room")
    parser.add_argument("--among", action="append", default=[], help="not of the room, but these")
    parser.add_argument("--write", action="store_true", help="make those that notice known")
    parser.add_argument("--line", action="append", help="only lines like FILE:12")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    paths = files(given.places)
    lines = [line for path in paths for line in lines_of(path)]
    if not (given.turned or given.gone or given.search):
        for path in paths:
            print(f"{len(lines_of(path)):4d} {path}")
        return
    if given.line:
        lines = [line for line in lines if f"{line.path}:{line.number}" in given.line]
    asked = sweep(
        lines, turned=not given.gone, search=given.search, among=given.among, jobs=given.jobs
    )
    alive = {line.name for line, by in asked.noticed.items() if by is None}
    print(f"{len(lines)} lines, {len(lines) - len(alive)} noticed, {len(alive)} survive")
    if given.write and not given.line:
        _write(known_tests() | {path: asked.known[path] for path in paths})
    listed = set(survivors()) & {line.name for line in lines}
    if not given.gone and alive != listed:
        for name in sorted(alive - listed):
            print(f"survives, and is not listed: {name}")
        for name in sorted(listed - alive):
            print(f"is listed, and is noticed: {name}")
        sys.exit(1)


if __name__ == "__main__":
    main()
