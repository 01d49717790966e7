"""Figure 3: Vuvuzela's conversation protocol, read as the paper writes it, both counts seen.

Figure 19 has the same noise in the other reading too, and seen by other observers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.finding import Finding
from papers.meiser_mohammadi_2018.vuvuzela import CLIPPED, HIGH, LOW, NEW_1, NEW_2, both_counts
from papers.meiser_mohammadi_2018.vuvuzela_graphs import draw_graphs, graphs, judged

__all__ = ["CLAIM", "draw", "finding", "numbers"]

CLAIM = (
    "With Gaussian noise GS(15k, 2.5k) meets e^epsilon <= 2, delta <= 1e-4 for 65,536 rounds, "
    "and GS(45k, 7.5k) for 524,288: a tenth of the original noise."
)
CASES = {
    65536: [NEW_1, LOW, LOW.of_variance("gaussian")],
    524288: [NEW_2, HIGH, HIGH.of_variance("gaussian")],
}
VIEWS = {"both counts": both_counts}


def numbers() -> dict[str, Any]:
    """By rounds, reading and noise."""
    return graphs(CASES, VIEWS, [CLIPPED])


def draw(numbers: dict[str, Any], path: Path) -> None:
    """A panel for each number of rounds, a row for each reading."""
    draw_graphs(numbers, path, [CLIPPED])


def finding(numbers: dict[str, Any]) -> Finding:
    """What meets the target."""
    return judged(numbers, [CLIPPED])
