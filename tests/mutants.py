"""Taking a guard away: one line of one function becomes another, and a truth must be lost."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import tightbudget as tb

__all__ = ["Mutation", "each", "lose_a_truth", "mutate"]


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
