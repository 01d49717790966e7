"""Figure 20: Vuvuzela's conversation protocol with less Laplace noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.finding import Finding
from papers.meiser_mohammadi_2018.vuvuzela import HIGH, LOW, Noise, both_counts, singles
from papers.meiser_mohammadi_2018.vuvuzela_graphs import READINGS, draw_graphs, graphs, judged

__all__ = ["CLAIM", "draw", "finding", "numbers"]

CLAIM = (
    "With Laplace noise a fourth of the original meets the target: LP(37.5k, 2.3k) for 65,536 "
    "rounds, LP(112.5k, 6.9k) for 524,288."
)
CASES = {
    65536: [Noise("laplace", 37.5e3, 2.3e3), LOW, LOW.of_variance("gaussian")],
    524288: [Noise("laplace", 112.5e3, 6.9e3), HIGH, HIGH.of_variance("gaussian")],
}
VIEWS = {"both counts": both_counts, "single requests alone": singles}


def numbers() -> dict[str, Any]:
    """By rounds, reading and noise."""
    return graphs(CASES, VIEWS, list(READINGS))


def draw(numbers: dict[str, Any], path: Path) -> None:
    """A panel for each number of rounds, a row for each reading."""
    draw_graphs(numbers, path, list(READINGS))


def finding(numbers: dict[str, Any]) -> Finding:
    """What meets the target."""
    return judged(numbers, list(READINGS))
