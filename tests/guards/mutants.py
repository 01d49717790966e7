"""Taking a guard away: one statement becomes another, and a truth must be lost.

A guard is a statement of the package that is marked with a comment ``# guard: name``, at the end
of its last line or, where that line would be too long, on a line of its own before the statement.
Of an ``if``, a ``with`` or another statement with a body, the guard is the header up to the colon.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import io
import os
import re
import sys
import textwrap
import tokenize
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.runner import SetupState, runtestprotocol

import tightbudget as tb

__all__ = [
    "GUARD",
    "Guard",
    "Mark",
    "Without",
    "company",
    "each",
    "guards",
    "lose_a_truth",
    "marks",
    "mutate",
    "unpaid",
]

PACKAGE = Path(tb.__file__).parent
SURVIVORS = Path(__file__).with_name("survivors.toml")
GUARD = re.compile(r"# guard: ([a-z0-9-]+)$")


@dataclass(frozen=True)
class Without:
    """Guards, the statements that take their places, and what is then no longer true.

    That is a truth which only the guards' tests ask for, or better the name of a test of the room:
    it shows that those who change the room would notice.
    """

    name: str
    changes: Mapping[str, str]  # name of a guard -> what its statement becomes
    true: Callable[[], bool] | None = None
    fails: str | None = None  # the test that turns red: "tests/ROOM/test_FILE.py::test_NAME[...]"
    slow: bool = False  # the truth takes more than half a second to find out


def company() -> Mapping[str, str]:
    """The guards that are never taken away alone, each with its reason."""
    rows = tomllib.loads(SURVIVORS.read_text(encoding="utf-8"))
    return dict[str, str](rows["company"])


def each(mutations: Sequence[Without]) -> pytest.MarkDecorator:
    """One test for each mutation."""
    return pytest.mark.parametrize(
        "mutation",
        [
            pytest.param(
                mutation,
                id=mutation.name.replace(" ", "-"),
                marks=[pytest.mark.slow] if mutation.slow else [],
            )
            for mutation in mutations
        ],
    )


def lose_a_truth(
    monkeypatch: pytest.MonkeyPatch, mutation: Without, session: pytest.Session | None = None
) -> None:
    """What is true with the guard must be false without it; a test that is named must turn red.

    Args:
        monkeypatch: puts the guard back.
        mutation: what takes its place.
        session: of this test, where the mutation names another one.
    """
    if mutation.fails is not None:
        assert session is not None
        if mutation.fails not in _PASSED:
            assert _verdict(session, mutation.fails) == "passed", "it fails with the guard, too"
            _PASSED.add(mutation.fails)
        mutate(monkeypatch, mutation)
        assert _verdict(session, mutation.fails) == "failed", f"{mutation.fails} has not noticed"
        return
    assert mutation.true is not None
    assert mutation.true(), "it does not even hold with the guard"
    mutate(monkeypatch, mutation)
    try:
        assert not _holds(mutation.true), "nothing noticed that the guard is gone"
    finally:
        _forget()


def _forget() -> None:
    """Empties the caches of all mechanisms: what a mutant has left there must answer no test."""
    kept = type(functools.lru_cache(_forget))
    for name, module in list(sys.modules.items()):
        if not name.startswith("tightbudget.mechanisms."):
            continue
        classes = [one for one in vars(module).values() if isinstance(one, type)]
        for owner in (module, *(one for one in classes if one.__module__ == name)):
            for one in list(vars(owner).values()):
                found = one.__func__ if isinstance(one, staticmethod | classmethod) else one
                if isinstance(found, kept):
                    found.cache_clear()


def mutate(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    """Puts the changed functions in the place of the real ones."""
    _change_guards(monkeypatch, mutation.changes)


def _replace(monkeypatch: pytest.MonkeyPatch, owner: Any, function: str, source: str) -> None:
    """Puts a function of other source in the place of a real one, wherever it is imported."""
    original = inspect.getattr_static(owner, function)
    space = dict(inspect.unwrap(original).__globals__)  # of what a decorator has wrapped
    exec(compile("from __future__ import annotations\n" + source, "mutant", "exec"), space)
    mutant = space[function]
    monkeypatch.setattr(owner, function, mutant)
    # modules that have imported the function by name
    for name, module in list(sys.modules.items()):
        ours = name.partition(".")[0] in ("tightbudget", "tests")
        if ours and vars(module).get(function) is original:
            monkeypatch.setattr(module, function, mutant)


def _holds(true: Callable[[], bool]) -> bool:
    try:
        return true()
    except tb.ParameterError:  # two ends that contradict each other are noticed, too
        return False


# ------------------------------------------------------------------- another test, as it is now

_SILENT = ("_pytest.faulthandler", "WorkerInteractor")
_PASSED: set[str] = set()  # tests that have passed with every guard in its place
_VERDICTS = ("passed", "failed", "skipped", "not found, or its fixtures fail")


def _verdict(session: pytest.Session, name: str) -> str:
    """Runs another test in a forked child of this process, with all that is changed here."""
    child = os.fork()
    if child == 0:
        found = _VERDICTS[-1]
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            found = _run(session, name)
        finally:
            os._exit(_VERDICTS.index(found))
    return _VERDICTS[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


def _run(session: pytest.Session, name: str) -> str:
    # One would wait for a thread that a forked child has not, the other one would report for two.
    plugins = session.config.pluginmanager
    for plugin in list(plugins.get_plugins()):
        if getattr(plugin, "__name__", type(plugin).__name__) in _SILENT:
            plugins.unregister(plugin)
    session.config.option.markexpr = session.config.option.keyword = ""
    found = [item for item in session.items if item.nodeid == name]
    for plugin in plugins.get_plugins():  # a folder that is collected again has its fixtures again
        if str(getattr(plugin, "__file__", "")).endswith("conftest.py"):
            folder = Path(plugin.__file__).parent
            session._fixturemanager._pending_conftests[folder] = plugin
    (item,) = found or session.perform_collect([str(session.config.rootpath / name)])
    session._setupstate = SetupState()  # the test that asks stands in the other one
    reports = runtestprotocol(item, log=False, nextitem=None)
    outcomes = {report.when: report.outcome for report in reports}
    return outcomes["call"] if outcomes["setup"] == "passed" else _VERDICTS[-1]


# ------------------------------------------------------------------ a statement that is a guard


@dataclass(frozen=True)
class Guard:
    """One statement of the package that is marked with ``# guard: name``."""

    name: str
    path: str  # inside the package
    function: str  # with the names of its classes: "Class.method"
    lines: tuple[int, int]  # of the function with its decorators, from 1 on
    start: int  # of the statement, in characters of the file
    end: int


@functools.cache
def guards() -> Mapping[str, Guard]:
    """All guards of the package by name; a name that occurs twice is an error."""
    found: dict[str, Guard] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for guard in _guards_of(text, path.relative_to(PACKAGE).as_posix()):
            assert guard.name not in found, f"two guards are called {guard.name}"
            found[guard.name] = guard
    return found


def _guards_of(text: str, path: str) -> Iterator[Guard]:
    lines = text.splitlines(keepends=True)
    marked = {i: m[1] for i, line in enumerate(lines, 1) if (m := GUARD.search(line.rstrip()))}
    if not marked:
        return
    functions = list(_methods(ast.parse(text), ""))
    for number, name in marked.items():
        alone = lines[number - 1].lstrip().startswith("# guard: ")
        for function, node in functions:
            decorators = [one.lineno for one in node.decorator_list]
            first, last = min([node.lineno, *decorators]), int(node.end_lineno or 0)
            if not first <= number + alone <= last:
                continue
            spans = [
                (start, end)
                for start, end in _statements(text, lines, node)
                if text.count("\n", 0, start if alone else end) == (number if alone else number - 1)
            ]
            assert len(spans) == 1, f"{path}:{number}: no statement, or more than one, is marked"
            yield Guard(name, path, function, (first, last), *spans[0])
            break
        else:
            raise AssertionError(f"{path}:{number}: the guard {name} is in no function")


def _methods(node: ast.AST, before: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module and of its classes, not those inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _methods(child, f"{before}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield before + child.name, child  # type: ignore[misc]
        elif isinstance(child, ast.If | ast.Try):
            yield from _methods(child, before)


def _statements(text: str, lines: list[str], function: ast.AST) -> Iterator[tuple[int, int]]:
    """Where the statements of a function start and end; of one with a body, its header."""

    def at(line: int, column: int) -> int:  # the syntax tree counts a line's bytes in UTF-8
        within = lines[line - 1].encode()[:column].decode()
        return sum(map(len, lines[: line - 1])) + len(within)

    for node in ast.walk(function):
        if not isinstance(node, ast.stmt | ast.ExceptHandler):
            continue
        start = at(node.lineno, node.col_offset)
        body = getattr(node, "body", None)
        if body is None:
            yield start, at(int(node.end_lineno or 0), int(node.end_col_offset or 0))
        else:
            first = min(
                [body[0].lineno, *(d.lineno for d in getattr(body[0], "decorator_list", []))]
            )
            header = text[start : at(first, 0)]
            colons = [
                token.end
                for token in tokenize.generate_tokens(io.StringIO(header).readline)
                if token.exact_type == tokenize.COLON
            ]
            row, column = colons[-1]
            rows = header.splitlines(keepends=True)
            yield start, start + sum(map(len, rows[: row - 1])) + column


def _change_guards(monkeypatch: pytest.MonkeyPatch, changes: Mapping[str, str]) -> None:
    """Puts other statements in the place of guards, function by function."""
    places: dict[tuple[str, str], list[tuple[Guard, str]]] = {}
    for name, becomes in changes.items():
        assert name in guards(), f"no statement is marked with '# guard: {name}'"
        guard = guards()[name]
        places.setdefault((guard.path, guard.function), []).append((guard, becomes))
    for (path, function), found in places.items():
        text = (PACKAGE / path).read_text(encoding="utf-8")
        first, last = found[0][0].lines
        rows = text.splitlines(keepends=True)
        begin, end = (sum(map(len, rows[:row])) for row in (first - 1, last))
        source = text[begin:end]
        for guard, becomes in sorted(found, key=lambda one: -one[0].start):
            column = guard.start - text.rindex("\n", 0, guard.start) - 1
            stated = textwrap.indent(becomes.strip("\n"), " " * column)[column:]
            source = source[: guard.start - begin] + stated + source[guard.end - begin :]
        module = importlib.import_module("tightbudget." + path[:-3].replace("/", "."))
        *classes, name = function.split(".")
        owner = functools.reduce(getattr, classes, module)
        _replace(monkeypatch, owner, name, textwrap.dedent(source))


# ---------------------------------------------------------------- a line that pays for an error


@dataclass(frozen=True)
class Mark:
    """One line of the package that ends in "# pays: name"."""

    name: str
    path: str  # inside the package
    line: int  # from 1 on

    @property
    def module(self) -> Any:
        """The module that the line is in."""
        return importlib.import_module("tightbudget." + self.path[:-3].replace("/", "."))


@functools.cache
def marks() -> tuple[Mark, ...]:
    """All of them."""
    return tuple(
        Mark(found[1], path.relative_to(PACKAGE).as_posix(), i)
        for path in sorted(PACKAGE.rglob("*.py"))
        for i, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (found := re.search(r"# pays: ([a-z0-9-]+)$", line))
    )


def unpaid(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Makes the marked lines pay nothing: what adds to an error is left out, else its unit is 0.

    The function stays the same object and gets other code, so every caller notices.
    """
    found = [mark for mark in marks() if mark.name == name]
    assert found, f"no line pays for {name}"
    for mark in found:
        module = mark.module
        lines = inspect.getsource(module).splitlines()
        line = lines[mark.line - 1]
        space = line[: len(line) - len(line.lstrip())]
        adds = re.match(r"\s*(\w+) (\+= |= \1 \+ )", line)
        free = space + "pass" if adds else re.sub(r"\b(UNIT|unit)\b|2\.0\*\*-20", "0.0", line)
        assert free != line, f"{name} neither adds to an error nor has a unit"
        lines[mark.line - 1] = free
        code = compile("\n".join(lines), str(module.__file__), "exec")
        inner = min(
            (one for one in _functions(code) if _holds_line(one, mark.line)),
            key=lambda one: len(set(_lines(one))),
        )
        monkeypatch.setattr(_function(module, inner.co_qualname), "__code__", inner)


def _functions(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _functions(one)
            if not one.co_name.startswith("<") and one.co_flags & inspect.CO_OPTIMIZED:
                yield one


def _lines(code: CodeType) -> list[int]:
    return [line for _, _, line in code.co_lines() if line is not None]


def _holds_line(code: CodeType, line: int) -> bool:
    return min(_lines(code)) <= line <= max(_lines(code))


def _function(module: Any, name: str) -> FunctionType:
    found = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    for wrapper in ("func", "fget", "__func__"):
        found = getattr(found, wrapper, found)
    plain = inspect.unwrap(found)
    assert isinstance(plain, FunctionType)
    return plain
