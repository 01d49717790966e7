"""Taking a guard away: one line of one function becomes another, and a truth must be lost."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

import tightbudget as tb

__all__ = ["Mark", "Mutation", "each", "lose_a_truth", "marks", "mutate", "unpaid"]

PACKAGE = Path(tb.__file__).parent


@dataclass(frozen=True)
class Mutation:
    """Lines of a function, what they become, and what is then no longer true."""

    name: str
    owner: Any
    function: str
    changes: tuple[tuple[str, str], ...]  # (line, what it becomes)
    true: Callable[[], bool]


def each(mutations: list[Mutation]) -> pytest.MarkDecorator:
    """One test for each."""
    return pytest.mark.parametrize(
        "mutation", mutations, ids=lambda mutation: mutation.name.replace(" ", "-")
    )


def lose_a_truth(monkeypatch: pytest.MonkeyPatch, mutation: Mutation) -> None:
    """What is true with the guard must be false without it."""
    assert mutation.true(), "it does not even hold with the guard"
    mutate(monkeypatch, mutation)
    assert not _holds(mutation), "nothing noticed that the guard is gone"


def mutate(monkeypatch: pytest.MonkeyPatch, mutation: Mutation) -> None:
    """Puts the changed function in the place of the real one."""
    original = inspect.getattr_static(mutation.owner, mutation.function)
    source = textwrap.dedent(inspect.getsource(original))
    for line, becomes in mutation.changes:
        assert source.count(line) == 1, f"the guard has moved: {line!r}"
        source = source.replace(line, becomes)
    space = dict(inspect.unwrap(original).__globals__)  # of what a decorator has wrapped
    exec(compile("from __future__ import annotations\n" + source, "mutant", "exec"), space)
    mutant = space[mutation.function]
    monkeypatch.setattr(mutation.owner, mutation.function, mutant)
    # modules that have imported the function by name
    for name, module in list(sys.modules.items()):
        ours = name.partition(".")[0] in ("tightbudget", "tests")
        if ours and vars(module).get(mutation.function) is original:
            monkeypatch.setattr(module, mutation.function, mutant)


def _holds(mutation: Mutation) -> bool:
    try:
        return mutation.true()
    except tb.ParameterError:  # two ends that contradict each other are noticed, too
        return False


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
