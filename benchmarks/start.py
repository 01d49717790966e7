"""How long Python takes to import the package, beside what it needs of NumPy and SciPy.

    python benchmarks/start.py

The least CPU seconds of several new processes each: what a start costs on an idle machine. The
package aims at 1.6 times the import of NumPy and scipy.special, and the command line at 1.25
times the import of the package.
"""

from __future__ import annotations

import os
import subprocess
import sys

TRIES = 9
STARTS = {
    "python": ["-c", ""],
    "numpy, scipy.special": ["-c", "import numpy, scipy.special"],
    "tightbudget": ["-c", "import tightbudget"],
    "tightbudget --version": ["-m", "tightbudget", "--version"],
}


def cpu_seconds(arguments: list[str]) -> float:
    """CPU seconds of one new Python, with its compiled modules in their places."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    subprocess.run(
        [sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL
    )
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def main() -> None:
    # in turn, so that a busy moment of the machine falls on all of them
    rounds = [[cpu_seconds(arguments) for arguments in STARTS.values()] for _ in range(TRIES)]
    least = dict(zip(STARTS, map(min, zip(*rounds, strict=True)), strict=True))
    base = least["numpy, scipy.special"]
    for name, seconds in least.items():
        print(f"{name:22} {seconds:5.2f} s  {seconds / base:4.2f} of numpy, scipy.special")


if __name__ == "__main__":
    main()
