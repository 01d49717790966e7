"""Writes the delays beside it: made up, from a seed, and the same on every machine.

    python examples/delays/make.py

A page asks a server now and then; whoever takes part in a protocol asks a little later. Both kinds
of delay are made of the same parts: a network (log-normal), and a timer that is late now and then
(exponential). No person and no machine was measured.
"""

from __future__ import annotations

import random
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEED, COUNT = 20_261_122, 5_000


def delay(source: random.Random, later: float) -> float:
    """A delay in milliseconds, with one digit."""
    # chosen by eye: some tens of milliseconds, one in five with a tail as long again
    network = 20.0 + source.lognormvariate(2.5, 0.5)
    late = source.expovariate(1 / 30.0) if source.random() < 0.2 else 0.0
    return round(network + late + later, 1)


def written() -> dict[str, str]:
    """The text of each file, by its name."""
    source = random.Random(SEED)
    return {
        f"{name}_made_up.csv": "".join(f"{delay(source, later)}\n" for _ in range(COUNT))
        for name, later in (("active", 4.0), ("passive", 0.0))
    }


if __name__ == "__main__":
    for name, text in written().items():
        (HERE / name).write_text(text, encoding="utf-8")
