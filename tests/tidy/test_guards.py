"""Every statement that is marked as a guard is taken away by a test, and no other."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.guards import mutants
from tests.guards.mutants import Without, company, guards, mutate

from tightbudget.numerics import search

TESTS = Path(__file__).resolve().parents[1]


def taken_away(text: str) -> Iterator[frozenset[str]]:
    """The names of guards in each call of ``Without`` in the source of a test."""
    if "Without(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Without":
            for changes in (one for one in node.args if isinstance(one, ast.Dict)):
                yield frozenset(str(ast.literal_eval(key)) for key in changes.keys if key)


@cache
def groups() -> tuple[frozenset[str], ...]:
    """The guards of each mutation."""
    return tuple(
        group
        for path in TESTS.rglob("test_*.py")
        if path != Path(__file__).resolve()
        for group in taken_away(path.read_text(encoding="utf-8"))
    )


def test_every_guard_has_a_mutation_and_every_mutation_a_guard() -> None:
    assert frozenset().union(*groups()) == set(guards())


def test_every_guard_is_taken_away_alone_or_has_a_reason_why_not() -> None:
    alone = frozenset().union(*(group for group in groups() if len(group) == 1))
    assert set(guards()) - alone == set(company())


SOURCE = textwrap.dedent("""
    class Sum:
        def of(self, values):
            total = 0.0
            if values:  # guard: header
                total = sum(  # not the end of the statement
                    values
                )  # guard: simple
            # guard: before
            return (
                total
            )
""")


def test_a_mark_names_a_statement_or_its_header() -> None:
    found = {
        one.name: (one.function, SOURCE[one.start : one.end])
        for one in mutants._guards_of(SOURCE, "sum.py")
    }
    assert found["header"] == ("Sum.of", "if values:")
    assert found["simple"][1].startswith("total = sum(")
    assert found["simple"][1].endswith("\n            )")
    assert found["before"][1].split() == ["return", "(", "total", ")"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1  # guard: nowhere\n", "is in no function"),
        ("def f():\n    x = (  # guard: inside\n        1)\n", "no statement, or more than one"),
    ],
)
def test_a_mark_that_names_nothing_is_seen(source: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        list(mutants._guards_of(source, "f.py"))


def test_a_mutation_without_a_mark_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="no statement is marked with '# guard: of-nothing'"):
        mutate(monkeypatch, Without("of nothing", {"of-nothing": "pass"}, lambda: True))


def test_a_statement_is_replaced_for_all_who_import_its_function(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = Path(search.__file__).read_text(encoding="utf-8")
    line = "    golden = (math.sqrt(5.0) - 1.0) / 2.0\n"
    assert line in real
    (tmp_path / "numerics").mkdir()
    marked = real.replace(line, line.rstrip() + "  # guard: golden\n")
    (tmp_path / "numerics" / "search.py").write_text(marked, encoding="utf-8")
    monkeypatch.setattr(mutants, "PACKAGE", tmp_path)
    guards.cache_clear()
    try:
        mutate(monkeypatch, Without("golden", {"golden": "raise KeyError"}, lambda: True))
    finally:
        guards.cache_clear()
    with pytest.raises(KeyError):
        search.least_between(abs, -1.0, 1.0, 1e-3)
