"""A line that rounds is noticed when it no longer does, marked or not, or is a listed survivor."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tomllib
import zlib
from pathlib import Path

import pytest
from tests.guards.mutants import PACKAGE, SURVIVORS
from tests.guards.sweep import Line, files, lines_of

ROOT = Path(__file__).resolve().parents[2]
ROWS = tomllib.loads(SURVIVORS.read_text(encoding="utf-8"))
SWEPT = files(ROWS["swept"])
LINES = [line for path in SWEPT for line in lines_of(path)]

# Each line takes 5 to 30 seconds. Which ones are drawn changes with these files, and with nothing
# else; SWEEP=all takes all of them.
DRAWN = 3


def drawn() -> list[Line]:
    if os.environ.get("SWEEP") == "all":
        return LINES
    sources = b"".join((PACKAGE / path).read_bytes() for path in SWEPT)
    return random.Random(zlib.crc32(sources)).sample(LINES, min(DRAWN, len(LINES)))


def test_every_listed_survivor_is_a_line_that_rounds_and_has_a_reason() -> None:
    assert set(ROWS["lines"]) <= {line.name for line in LINES}
    assert all(len(reason.split()) > 3 for reason in ROWS["lines"].values())


@pytest.mark.slow
@pytest.mark.parametrize("line", drawn(), ids=lambda line: f"{line.path}:{line.number}")
def test_a_line_that_does_not_round_is_noticed_or_listed(line: Line) -> None:
    command = [sys.executable, "-m", "tests.guards.sweep", line.path, "--line", line.name]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    survives = ran.stdout.startswith("survives")
    assert ran.stdout.endswith(f"{line.name}\n"), "the line was not asked about"
    assert survives == (line.name in ROWS["lines"]), ran.stdout
