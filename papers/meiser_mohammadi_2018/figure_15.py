"""Figure 15: Vuvuzela's dialing protocol over the number of rounds.

The original analysis gives 1e-5 to advanced composition, as Vuvuzela's authors do. epsilon of
the new noise is at the delta, its delta at the epsilon, that the original has for its highest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.finding import Finding
from papers.meiser_mohammadi_2018.vuvuzela import (
    DIALING_HIGH,
    DIALING_LOW,
    DIALING_MEDIUM,
    DIALING_NEW_2,
    dialing,
)
from papers.meiser_mohammadi_2018.vuvuzela_graphs import (
    draw_over_rounds,
    judged_over_rounds,
    over_rounds,
)

__all__ = ["CLAIM", "draw", "finding", "numbers"]

CLAIM = (
    "The bounds of GS(4.1k, 833), nearly 5 times less noise, are below those of the original "
    "analysis for LP(20k, 1130)."
)
COUNTS = [2**k for k in range(8, 15)]


def numbers() -> dict[str, Any]:
    """By rounds, reading and noise."""
    return over_rounds([DIALING_LOW, DIALING_MEDIUM, DIALING_HIGH], DIALING_NEW_2, dialing, COUNTS)


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Left e^epsilon, right delta."""
    draw_over_rounds(numbers, DIALING_NEW_2, path)


def finding(numbers: dict[str, Any]) -> Finding:
    """From how many rounds on the new noise is no longer better."""
    return judged_over_rounds(numbers)
