"""Section 4.6: what the paper's buckets cost, and what the same question costs here.

Truncated Gaussian noise of variance 2 200^2; its epsilon at delta = 1e-4, both ends, by the paper's
own algorithm with as many buckets as there (direct convolutions, no FFT) and by this library's
engine. Seconds are this machine's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from papers.finding import Finding, Verdict
from papers.meiser_mohammadi_2018.settings import GAUSS

import tightbudget as tb

__all__ = ["CLAIM", "finding", "numbers", "table"]

CLAIM = "Tight bounds take 1.2 s for 2^9 runs (10,000 buckets), 237 s for 2^18 runs (100,000)."
DELTA = 1e-4
ROWS = {9: (10_000, 1.2), 18: (100_000, 237.0)}  # log2 of runs: buckets and the paper's seconds


def numbers() -> dict[str, Any]:
    """By the number of runs: both algorithms' ends and seconds."""
    return {
        f"2^{bits}": {
            "buckets": buckets,
            "published seconds": seconds,
            **_both(GAUSS * 2**bits, buckets // 2),
        }
        for bits, (buckets, seconds) in ROWS.items()
    }


def _both(runs: tb.Composition, n: int) -> dict[str, Any]:
    return {
        "paper's algorithm": _timed(lambda: tb.privacy_buckets.Trees.of(runs, n=n).epsilon(DELTA)),
        "this library": _timed(lambda: runs.epsilon(DELTA)),
    }


def _timed(question: Callable[[], tb.Bounds]) -> dict[str, Any]:
    start = time.perf_counter()
    answer = question()
    return {"epsilon": answer.to_dict(), "seconds": round(time.perf_counter() - start, 3)}


def table(numbers: dict[str, Any]) -> str:
    """A row for each of the paper's two claims."""
    lines = [f"{'runs':>5}  {'by':18}  {'buckets':>8}  {'seconds':>8}  {'epsilon':>20}  {'gap':>7}"]
    for runs, row in numbers.items():
        published = row["published seconds"]
        lines.append(f"{runs:>5}  {'paper, in 2017':18}  {row['buckets']:>8,}  {published:>8g}")
        for name, buckets in (("paper's algorithm", f"{row['buckets']:,}"), ("this library", "-")):
            ends, seconds = tb.Bounds(**row[name]["epsilon"]), row[name]["seconds"]
            lines.append(
                f"{'':5}  {name:18}  {buckets:>8}  {seconds:>8.2f}  {ends!s:>20}  "
                f"{ends.relative_gap:>7.0e}"
            )
    return "\n".join(lines)


def finding(numbers: dict[str, Any]) -> Finding:
    """How tight both are."""
    theirs, ours = (
        [tb.Bounds(**row[name]["epsilon"]) for row in numbers.values()]
        for name in ("paper's algorithm", "this library")
    )
    both = all(a.overlaps(b) for a, b in zip(theirs, ours, strict=True))
    gaps = ", ".join(
        f"{b.relative_gap:.1%} for {runs} runs" for runs, b in zip(numbers, theirs, strict=True)
    )
    text = (
        f"The paper's algorithm leaves a relative gap in epsilon of {gaps}; this library "
        f"{max(b.relative_gap for b in ours):.0e}; they {'agree' if both else 'do not agree'}. The "
        "seconds in the table are this machine's."
    )
    return Finding(text, Verdict.of(both and all(b.relative_gap < 0.05 for b in theirs)))
