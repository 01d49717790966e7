"""Every line that pays for a rounding error is marked, and has a row in the page about rounding."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.guards.mutants import PACKAGE, marks

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "rounding.md"

# files in which each use of the unit is one line that pays
HELD = [
    "numerics/convolve.py",
    "numerics/enclosure.py",
    "mechanisms/gaussian_integrand.py",
    "mechanisms/gaussian_transform.py",
    "mechanisms/gaussian_transform_bounds.py",
    "mechanisms/mixture_transform.py",
    "mechanisms/weighted_transform.py",
    "engine/readings/renyi.py",
    "engine/saddle_point/contour.py",
    "engine/buckets/enumerate.py",
    "engine/buckets/loss_grid.py",
    "engine/buckets/measures.py",
    "engine/buckets/profile.py",
    "engine/saddle_point/saddle_points.py",
]
# the step of a search, the gap from which a part is summed, and a name for either unit: they pay
# for nothing, since no bound is computed from them
FREE = [
    "max(room, 4 * UNIT * abs(epsilon))",
    "room = rtol - 8 * UNIT * (len(each) + 1)",
    "kind, unit =",
]


def test_every_mark_has_a_row_and_every_row_a_mark() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\S+) \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert sorted(rows) == sorted((mark.name, mark.path) for mark in marks())


def test_a_name_stands_for_one_line() -> None:
    names = [mark.name for mark in marks()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("path", HELD)
def test_every_use_of_the_unit_is_marked(path: str) -> None:
    source = (PACKAGE / path).read_text(encoding="utf-8")
    lines = source.splitlines()
    marked = {mark.line for mark in marks() if mark.path == path}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id == "UNIT" and node.lineno not in marked:
            line = lines[node.lineno - 1]
            # a part of what a marked line pays
            assert any(free in line for free in FREE) or "# paid by: " in line, (
                f"{path}:{node.lineno}: mark what this line pays for (# pays: name): {line.strip()}"
            )


@pytest.mark.parametrize("path", HELD)
def test_a_part_names_the_line_that_pays_it(path: str) -> None:
    names = {mark.name for mark in marks() if mark.path == path}
    for name in re.findall(r"# paid by: (.*)$", (PACKAGE / path).read_text(encoding="utf-8"), re.M):
        assert name in names
