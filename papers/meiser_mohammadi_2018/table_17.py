"""Figure 17: the parameters of the analysis of Vuvuzela, and what each of them costs and gives.

delta is that of the conversation protocol at e^epsilon = 2, both counts seen, in both readings; for
the numbers of rounds that the original analysis grants, and that the captions of Figure 19 name.
"""

from __future__ import annotations

from typing import Any

from papers.finding import Finding, Verdict
from papers.meiser_mohammadi_2018.vuvuzela import (
    ADDED,
    CLIPPED,
    HIGH,
    LOW,
    MEDIUM,
    NEW_1,
    NEW_2,
    TARGET,
    Noise,
    both_counts,
    closest_delta,
)
from papers.meiser_mohammadi_2018.vuvuzela_graphs import original

import tightbudget as tb

__all__ = ["CLAIM", "finding", "numbers", "table"]

CLAIM = (
    "new_1 is (15k, 2.5k), new_2 (45k, 7.5k); low, medium and high are (150k, 7.3k), (300k, "
    "13.8k), (450k, 20k). 7.1 has 7.5k for low."
)
ROWS: dict[str, tuple[Noise, int]] = {
    "new_1": (NEW_1, 65536),
    "new_2": (NEW_2, 524288),
    "low": (LOW, 65536),
    "medium": (MEDIUM, 262144),
    "high": (HIGH, 524288),
}


def numbers() -> dict[str, Any]:
    """By name: the noise, the rounds, and what they give."""
    return {name: _row(noise, rounds) for name, (noise, rounds) in ROWS.items()}


def _row(noise: Noise, rounds: int) -> dict[str, Any]:
    found = {
        reading: closest_delta(both_counts(noise, reading) * rounds, TARGET[0]).to_dict()
        for reading in (CLIPPED, ADDED)
    }
    row = {"mean": noise.mean, "scale": noise.scale, "rounds": rounds, "delta": found}
    if noise.kind == "laplace":
        epsilon, delta = original(noise, both_counts, rounds)
        row["original"] = {"epsilon": epsilon, "delta": delta}
    return row


def table(numbers: dict[str, Any]) -> str:
    """A row for each."""
    lines = [
        f"{'name':<7} {'mean':>7} {'scale':>6} {'rounds':>8}  {'original (e, d)':<18} "
        f"{'clipped':<24} added"
    ]
    for name, row in numbers.items():
        old = row.get("original")
        said = f"{old['epsilon']:.3f}, {old['delta']:.2g}" if old else "-"
        clipped, added = (str(tb.Bounds(**row["delta"][r])) for r in (CLIPPED, ADDED))
        lines.append(
            f"{name:<7} {row['mean']:>7.0f} {row['scale']:>6.0f} {row['rounds']:>8} "
            f" {said:<18} {clipped:<24} {added}"
        )
    return "\n".join(lines)


def finding(numbers: dict[str, Any]) -> Finding:
    """Whether the original analysis grants these rounds to the old noise, about."""
    olds = [row["original"] for row in numbers.values() if "original" in row]
    about = all(old["epsilon"] < 1.1 * TARGET[0] and old["delta"] < 1.1 * TARGET[1] for old in olds)
    text = (
        "With 7.3k for low the original analysis meets the target for each of the old noises, "
        f"within a tenth: {about}. The means are those of the single requests; pairs have half."
    )
    return Finding(text, Verdict.of(about))
