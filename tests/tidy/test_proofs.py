"""The machine-checked theorems and the code that relies on them name each other.

proofs/README.md has a table of theorems and the places that rely on them. Each of these places
has the comment ``# Proof: proofs/FILE.v, theorem NAME`` (or ``theorems NAME, NAME``) above it.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tightbudget"
PROOFS = ROOT / "proofs"
MARK = re.compile(r"# Proof: proofs/(\w+\.v), theorems? ([\w, ]+)")
QUOTED = re.compile(r"`([^`]+)`")


class Place(NamedTuple):
    """A function or class: the path of its module below src/tightbudget, and its name there."""

    path: str
    name: str


Theorems = dict[tuple[str, str], set[Place]]  # (file, theorem) -> the places that rely on it


@functools.cache
def table() -> Theorems:
    """The rows of the table in proofs/README.md."""
    rows: Theorems = {}
    file = ""
    for line in (PROOFS / "README.md").read_text("utf-8").splitlines():
        if not line.startswith("| `") and not line.startswith("| | `"):
            continue
        first, theorems, _, code = (cell.strip() for cell in line.strip("|\n").split("|"))
        file = first.strip("`") or file
        places = set()
        for module in code.split(";"):
            path, *names = QUOTED.findall(module)
            places |= {Place(path, name) for name in names}
        for theorem in QUOTED.findall(theorems):
            rows[file, theorem] = places
    return rows


@functools.cache
def proved() -> frozenset[tuple[str, str]]:
    """All theorems of the proofs, each with its file."""
    return frozenset(
        (path.name, name)
        for path in PROOFS.glob("*.v")
        for name in re.findall(r"^Theorem (\w+)", path.read_text("utf-8"), re.MULTILINE)
    )


def places_of(module: Path) -> dict[int, Place]:
    """The functions and classes of a module, by the line that each begins in."""
    path = module.relative_to(PACKAGE).as_posix()
    found: dict[int, Place] = {}

    def visit(node: ast.AST, outer: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{outer}{child.name}"
                begins = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                found[begins] = Place(path, name)
                visit(child, f"{name}.")

    visit(ast.parse(module.read_text("utf-8")), "")
    return found


@functools.cache
def marks() -> Theorems:
    """The comments in the code: (file, theorem) -> the places that name it."""
    found: Theorems = defaultdict(set)
    for module in sorted(PACKAGE.rglob("*.py")):
        lines = module.read_text("utf-8").splitlines()
        marked = [i for i, line in enumerate(lines) if "Proof: proofs/" in line]
        places = places_of(module) if marked else {}
        for i in marked:
            mark = MARK.fullmatch(lines[i].strip())
            assert mark, f"{module}:{i + 1}: the mark is not as proofs/README.md says"
            below = next(j for j in range(i, len(lines)) if lines[j].strip()[:1] != "#")
            assert below + 1 in places, f"{module}:{i + 1}: no function or class is below the mark"
            for theorem in mark[2].split(", "):
                found[mark[1], theorem].add(places[below + 1])
    return dict(found)


def test_every_theorem_is_in_the_table_and_every_row_is_a_theorem() -> None:
    assert set(table()) == proved()


def test_every_theorem_names_code_that_relies_on_it() -> None:
    assert [name for name, places in table().items() if not places] == []


def test_the_places_of_the_table_name_their_theorems() -> None:
    assert marks() == table()
