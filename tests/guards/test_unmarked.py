"""A line that rounds is noticed when it is turned, marked or not, or it is a listed survivor."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.guards.mutants import PACKAGE, SURVIVORS
from tests.guards.sweep import lines_of

ROOT = Path(__file__).resolve().parents[2]
ROWS = tomllib.loads(SURVIVORS.read_text(encoding="utf-8"))
DRAWN = 40  # of all lines that were swept, other ones for each commit; SWEEP=all takes all


@pytest.mark.slow
def test_every_listed_survivor_is_a_line_that_rounds_and_has_a_reason() -> None:
    names = {line.name for path in ROWS["swept"] for line in lines_of(path)}
    assert set(ROWS["lines"]) <= names
    assert all(len(reason.split()) > 3 for reason in ROWS["lines"].values())


def test_every_known_test_is_in_a_file_of_tests() -> None:
    known = {test.partition("::")[0] for tests in ROWS["swept"].values() for test in tests}
    assert [one for one in known if not (ROOT / "tests" / one).is_file()] == []
    assert all((PACKAGE / path).is_file() for path in ROWS["swept"])


def seed() -> str:
    """The commit, so that each draws other lines, and the same ones each time it is tested."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return os.environ.get("SWEEP_SEED") or commit.stdout.strip()


@pytest.mark.slow
def test_a_line_that_is_turned_is_noticed_or_listed() -> None:
    lines = [line for path in ROWS["swept"] for line in lines_of(path)]
    if os.environ.get("SWEEP") != "all":
        lines = random.Random(seed()).sample(lines, min(DRAWN, len(lines)))
    asked = [part for line in lines for part in ("--line", f"{line.path}:{line.number}")]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.guards.sweep", "--turned", *ROWS["swept"], *asked],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, f"seed {seed()}\n{ran.stdout}\n{ran.stderr}"
    assert f"{len(lines)} lines" in ran.stdout, ran.stdout
