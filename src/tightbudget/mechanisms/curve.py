"""Many points of delta(eps), each with both ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import FloatArray

__all__ = ["DELTAS", "Curve"]

# Where a curve is asked for if nothing is said: 1e-2, 3e-3, 1e-3, ..., 1e-12
DELTAS = tuple([float(f"{m}e-{k}") for k in range(2, 13) for m in (1, 0.3)][:-1])


@dataclass(frozen=True, eq=False)
class Curve:
    """Certified points: ``x`` is exact, the exact ``y`` lies in [lower, upper].

    Attributes:
        given: "epsilon" or "delta", the name of ``x``; ``y`` is the other one.
        x: (n,) as asked. lower, upper: (n,).
    """

    given: str
    x: FloatArray
    lower: FloatArray
    upper: FloatArray

    @staticmethod
    def of_deltas(epsilons: Sequence[float], deltas: Sequence[Bounds]) -> Curve:
        """delta at given eps."""
        return _curve("epsilon", epsilons, deltas)

    @staticmethod
    def of_epsilons(deltas: Sequence[float], epsilons: Sequence[Bounds]) -> Curve:
        """eps at given delta."""
        return _curve("delta", deltas, epsilons)

    @property
    def answered(self) -> str:
        """The name of ``y``."""
        return "delta" if self.given == "epsilon" else "epsilon"

    def __len__(self) -> int:
        return int(self.x.size)

    def __getitem__(self, i: int) -> Bounds:
        return Bounds(float(self.lower[i]), float(self.upper[i]))

    def to_dict(self) -> dict[str, Any]:
        """``{"epsilon": [...], "delta": {"lower": [...], "upper": [...]}}`` or the reverse."""
        return {
            self.given: self.x.tolist(),
            self.answered: {"lower": self.lower.tolist(), "upper": self.upper.tolist()},
        }

    def plot(self, ax: Any = None, label: str | None = None) -> Any:
        """Draws both ends over eps, delta on a log axis; returns the matplotlib axes.

        Needs the extra ``plot``.
        """
        from tightbudget.accounting.plot import plot_curve

        return plot_curve(self, ax=ax, label=label)


def _curve(given: str, x: Sequence[float], y: Sequence[Bounds]) -> Curve:
    return Curve(
        given,
        np.array(x, dtype=np.float64),
        np.array([b.lower for b in y], dtype=np.float64),
        np.array([b.upper for b in y], dtype=np.float64),
    )
