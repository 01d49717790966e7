"""Figure 16: Vuvuzela's dialing protocol with Gaussian noise, in both readings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.finding import Finding
from papers.meiser_mohammadi_2018.vuvuzela import (
    DIALING_HIGH,
    DIALING_LOW,
    DIALING_NEW_1,
    DIALING_NEW_2,
    dialing,
)
from papers.meiser_mohammadi_2018.vuvuzela_graphs import READINGS, draw_graphs, graphs, judged

__all__ = ["CLAIM", "draw", "finding", "numbers"]

CLAIM = (
    "A fifth of the noise meets the target: GS(1.6k, 320) for 1,024 rounds, GS(4.1k, 833) for "
    "8,192; LP(8k, 500) is 2, LP(20k, 1130) almost 3 and GS(20k, 1598) more than 4 orders of "
    "magnitude below the original bound."
)
CASES = {
    1024: [DIALING_NEW_1, DIALING_LOW, DIALING_LOW.of_variance("gaussian")],
    8192: [DIALING_NEW_2, DIALING_HIGH, DIALING_HIGH.of_variance("gaussian")],
}
VIEWS = {"one count": dialing}


def numbers() -> dict[str, Any]:
    """By rounds, reading and noise."""
    return graphs(CASES, VIEWS, list(READINGS))


def draw(numbers: dict[str, Any], path: Path) -> None:
    """A panel for each number of rounds, a row for each reading."""
    draw_graphs(numbers, path, list(READINGS))


def finding(numbers: dict[str, Any]) -> Finding:
    """What meets the target."""
    return judged(numbers, list(READINGS))
