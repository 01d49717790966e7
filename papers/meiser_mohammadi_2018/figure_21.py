"""Figure 21: Vuvuzela's dialing protocol with less Laplace noise, in both readings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.finding import Finding
from papers.meiser_mohammadi_2018.vuvuzela import DIALING_HIGH, DIALING_LOW, Noise, dialing
from papers.meiser_mohammadi_2018.vuvuzela_graphs import READINGS, draw_graphs, graphs, judged

__all__ = ["CLAIM", "draw", "finding", "numbers"]

CLAIM = (
    "With Laplace noise half of the original meets the target: LP(4k, 330) for 1,024 rounds, "
    "LP(10k, 827) for 8,192; it does as well as Gaussian noise of half its variance, and "
    "reaches 2.5 times as far."
)
CASES = {
    1024: [Noise("laplace", 4e3, 330.0), DIALING_LOW, DIALING_LOW.of_variance("gaussian")],
    8192: [Noise("laplace", 10e3, 827.0), DIALING_HIGH, DIALING_HIGH.of_variance("gaussian")],
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
