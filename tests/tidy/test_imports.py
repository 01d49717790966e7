"""Who imports whom: no module reaches itself, and an import inside a function has a reason.

The graph has every import of every module: at the top, inside functions, and those for type
checkers alone. (The floors of rooms are import-linter's: see pyproject.toml.)
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping

import pytest
from tests.tidy.test_house import PACKAGE

Graph = Mapping[str, set[str]]

# Neighbours that may be imported inside a function, and why not at the top.
LATE = {
    "alembic": "only a ledger that is made or brought up to date needs it",
    "matplotlib": "an optional extra",
    "polars": "an optional extra",
    "scipy": "some of its parts take long to load, and `import tightbudget` needs none of those",
}
# Rooms that import another one inside a function: what, and why not at the top.
START = "the command line starts without a database or a server, which most commands do not need"
INSIDE: dict[str, tuple[set[str], str]] = {
    "tightbudget.cli.serve": ({"tightbudget.web.run", "tightbudget.web.settings"}, START),
    "tightbudget.cli.token": ({"tightbudget.ledger.tokens"}, START),
    "tightbudget.cli.ledger.history": ({"tightbudget.promises.checkpoint"}, START),
    "tightbudget.cli.completion": ({"tightbudget.promises.kinds"}, START),
    "tightbudget.evidence.check": (
        {"tightbudget.adapters.dp_accounting.events"},
        "an extra that claims with events alone need",
    ),
}


# ------------------------------------------------------------------------------ the graph


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Each module of the package by its dotted name, parsed."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("tightbudget", *path.relative_to(PACKAGE).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(block: ast.AST, known: set[str], *, inside: bool = False) -> Iterator[tuple[str, bool]]:
    """The modules that a block imports, and whether inside a function.

    Of a module of this package, the innermost one that is named.
    """
    for node in ast.iter_child_nodes(block):
        if isinstance(node, ast.Import):
            yield from ((alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner if inner in known else node.module), inside
        elif isinstance(node, (ast.stmt, ast.excepthandler, ast.match_case)):
            function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from imports(node, known, inside=inside or function)


def graph_of(package: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """The modules of the package that each one imports, anywhere in its text."""
    known = set(package)
    return {
        name: {to for to, _ in imports(tree, known)} & known - {name}
        for name, tree in package.items()
    }


def circles(graph: Graph) -> list[set[str]]:
    """The largest sets of modules that all reach each other (Tarjan's components, above one)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for to in sorted(graph[name]):
            if to not in index:
                visit(to)
                low[name] = min(low[name], low[to])
            elif to in stack:
                low[name] = min(low[name], index[to])
        if low[name] == index[name]:
            place = stack.index(name)
            members = set(stack[place:])
            del stack[place:]
            if len(members) > 1:
                found.append(members)

    for name in graph:
        if name not in index:
            visit(name)
    return found


# ------------------------------------------------------------------------------ the rules


def test_no_module_reaches_itself_by_imports() -> None:
    found = [sorted(members) for members in circles(graph_of(modules()))]
    assert not found, f"modules that import each other: {found}"


def test_an_import_inside_a_function_has_a_reason() -> None:
    package = modules()
    found = {
        (name, to)
        for name, tree in package.items()
        for to, inside in imports(tree, set(package))
        if inside and to.partition(".")[0] not in LATE
    }
    listed = {(name, to) for name, (names, _) in INSIDE.items() for to in names}
    assert not found - listed, "say why these are not imported at the top"
    assert not listed - found, "these are imported at the top, or not at all: take them off"


@pytest.mark.parametrize(
    "codes",
    [
        {"a": "import b", "b": "import a"},
        {"a": "import b", "b": "import c", "c": "def f():\n    import a"},
        {"a": "import b", "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import a"},
        {"p": "", "p.a": "from p import b", "p.b": "from p.a import x"},
    ],
)
def test_a_circle_is_seen(codes: dict[str, str]) -> None:
    found = circles(graph_of({name: ast.parse(code) for name, code in codes.items()}))
    assert found == [set(codes) - {"p"}]


def test_a_tree_is_no_circle() -> None:
    codes = {"p": "", "p.a": "import p.b, p.c", "p.b": "from p import c", "p.c": "import math"}
    assert not circles(graph_of({name: ast.parse(code) for name, code in codes.items()}))


def test_an_import_inside_a_function_is_seen() -> None:
    code = "import math\nclass C:\n    def f(self):\n        from a.b import c"
    assert list(imports(ast.parse(code), {"a.b"})) == [("math", False), ("a.b", True)]
