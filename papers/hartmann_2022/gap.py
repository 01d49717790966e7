"""The gap that the paper leaves open: Lemma 11's sum of deltas against the optimum.

Both answer which delta covers a run that may stop early. Lemma 11 adds up the delta that each
stop takes alone; Theorem 15 takes the maximum over what an observer can really see, and no run
stops twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tightbudget as tb

__all__ = ["LEFT_OPEN", "MOVES", "Gap", "Stops"]

LEFT_OPEN = "Left open: how far Lemma 11, the sum of the deltas of all stops, is from the optimum."
RTOL = 1e-3
# delta is some 20 times as sensitive as a price, which is known to 1e-4
MOVES = 5e-3


@dataclass(frozen=True)
class Gap:
    """Both deltas for the same stops at the same prices.

    Attributes:
        added: Lemma 11, certified.
        optimal: Theorem 15, certified.
    """

    added: tb.Bounds
    optimal: tb.Bounds

    @property
    def factor(self) -> tb.Bounds:
        """added / optimal, for drawing: its two divisions are not rounded outwards."""
        return tb.Bounds(
            self.added.lower / self.optimal.upper, self.added.upper / self.optimal.lower
        )

    def to_dict(self) -> dict[str, Any]:
        """What goes into the file of numbers."""
        return {"added": self.added.to_dict(), "optimal": self.optimal.to_dict()}

    @staticmethod
    def of(numbers: dict[str, Any]) -> Gap:
        """The gap that was written there."""
        return Gap(tb.Bounds(**numbers["added"]), tb.Bounds(**numbers["optimal"]))


class Stops:
    """Stops priced so that each of them alone takes the same delta.

    Args:
        step: what runs again and again.
        stops: numbers of steps after which it may stop.
        delta: what each stop takes alone, about: the price is the upper end of its epsilon.
    """

    def __init__(self, step: tb.Mechanism, stops: Sequence[int], delta: float) -> None:
        self.step, self.stops = step, list(stops)
        self.prices = [(step * k).epsilon(delta).upper for k in stops]
        self.alone = [
            (step * k).delta(price, RTOL) for k, price in zip(stops, self.prices, strict=True)
        ]

    def gap(self, every: int = 1) -> Gap:
        """The gap if each so many-th stop is one, the last among them."""
        some = slice(every - 1, None, every)
        return Gap(
            sum(self.alone[some], start=tb.Bounds(0.0, 0.0)),
            tb.stopping_delta(self.step, self.stops[some], self.prices[some], RTOL),
        )
