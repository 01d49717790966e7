"""The least noise that meets Vuvuzela's target: the search that the paper does by hand.

Over mean and scale; noise is added to the counts, and in conversation both counts are seen.
"""

from __future__ import annotations

from typing import Any

from papers.finding import Finding, Verdict
from papers.meiser_mohammadi_2018.vuvuzela import (
    CLIPPED,
    DIALING_HIGH,
    DIALING_LOW,
    LOW,
    TARGET,
    Noise,
    View,
    both_counts,
    closest_delta,
    dialing,
    minimal_noise,
)

import tightbudget as tb

__all__ = ["CLAIM", "MOVES", "finding", "numbers", "table"]

CLAIM = (
    "Tight bounds save a factor of 5 (dialing) and 10 (conversation) of the dummies with "
    "Gaussian noise, 2 and 4 with Laplace noise."
)
MOVES = 5e-3  # the scale is searched for, and the least mean hardly depends on it
CASES: dict[str, tuple[View, Noise, int, dict[str, float]]] = {
    "dialing, 1,024": (dialing, DIALING_LOW, 1024, {"laplace": 4e3, "gaussian": 1.6e3}),
    "dialing, 8,192": (dialing, DIALING_HIGH, 8192, {"laplace": 10e3, "gaussian": 4.1e3}),
    "conversation, 65,536": (both_counts, LOW, 65536, {"laplace": 37.5e3, "gaussian": 15e3}),
}
NOTHING = Noise("gaussian", -5e3, 2.5e3)  # hardly ever above 0


def numbers() -> dict[str, Any]:
    """By protocol and kind: the least noise, and what the paper proposes; delta of no noise."""
    found: dict[str, Any] = {
        case: {"original": old.mean, **{kind: _least(case, kind) for kind in proposed}}
        for case, (_, old, _, proposed) in CASES.items()
    }
    nothing = closest_delta(both_counts(NOTHING, CLIPPED) * 65536, TARGET[0])
    return found | {f"{NOTHING}, 65,536, {CLIPPED}": nothing.to_dict()}


def _least(case: str, kind: str) -> dict[str, Any]:
    view, _, rounds, proposed = CASES[case]
    least = minimal_noise(view, kind, rounds)
    return {
        "mean": least.mean.to_dict(),
        "scale": least.noise.scale,
        "delta": least.delta.to_dict(),
        "proposed": proposed[kind],
    }


def table(numbers: dict[str, Any]) -> str:
    """A row for each protocol and kind of noise."""
    lines = [
        f"{'rounds':<22} {'noise':<9} {'least mean':<20} {'scale':>6}  {'original':>8} "
        f"{'saved':>6}  {'proposed':>8} {'enough?':>7}"
    ]
    for case in CASES:
        for kind in CASES[case][3]:
            one, old = numbers[case][kind], numbers[case]["original"]
            mean = tb.Bounds(**one["mean"])
            enough = "no" if one["proposed"] < mean.lower else "yes"
            least = f"{mean.lower:.0f} .. {mean.upper:.0f}"
            cells = f"{case:<22} {kind:<9} {least:<20} {one['scale']:>6.0f}  {old:>8.0f}"
            saved = old / mean.upper
            lines.append(f"{cells} {saved:>6.2f}  {one['proposed']:>8.0f} {enough:>7}")
    return "\n".join(lines)


def finding(numbers: dict[str, Any]) -> Finding:
    """The factors saved, and what the other reading would say."""
    saved = {
        kind: [
            numbers[case]["original"] / numbers[case][kind]["mean"]["upper"]
            for case in CASES
            if kind in numbers[case]
        ]
        for kind in ("gaussian", "laplace")
    }
    said = "; ".join(
        f"{kind}: {', '.join(f'{x:.2f}' for x in factors)}" for kind, factors in saved.items()
    )
    nothing = tb.Bounds(**next(reversed(numbers.values())))
    text = (
        f"Saved, for {'; '.join(CASES)} rounds: {said}. If noise is read as clipped after moving, "
        f"the question has no answer: {NOTHING}, hardly any dummies, would have delta {nothing}."
    )
    as_claimed = [x >= y for x, y in zip(saved["gaussian"], (4.9, 4.9, 10.0), strict=True)]
    return Finding(text, Verdict.of(all(as_claimed)) if not any(as_claimed) else Verdict.IN_PART)
