"""``make demo`` shows all it has, from data of its own that are said to be made up."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_delays_are_those_of_the_script() -> None:
    # a path, since some packages install a module that is called examples, too
    script = runpy.run_path(str(ROOT / "examples" / "delays" / "make.py"))
    for name, text in script["written"]().items():
        assert "made_up" in name
        assert (ROOT / "examples" / "delays" / name).read_text(encoding="utf-8") == text


@pytest.mark.slow  # it is the whole demo
def test_the_demo_leaves_nothing_out_and_puts_other_bounds_above_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "demo.py"), "--out", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "skipped" not in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"dp-sgd.png", "plan.png", "delays.png"}

    certified, others = 0.0, 0
    for line in done.stdout.splitlines():
        if line.startswith("  epsilon at delta = 1e-5"):
            certified = float(line.partition("[")[2].partition("]")[0].split(", ")[1])
        elif line.startswith("  by others: "):
            said = line.partition("at most ")[2].partition(" at delta")[0]
            assert float(said.replace(",", "")) > certified
            others += 1
    assert others == 7
