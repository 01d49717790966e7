"""A question asks for delta at an epsilon, or for epsilon at a delta.

It knows of no engine: :mod:`.buckets.reading` and :mod:`.saddle_point.reading` say where an engine
places its curve for a question, and how the answer is read off it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class DeltaAt:
    """The question which delta(epsilon) a composition has.

    Attributes:
        epsilon: nats; any finite number, or inf.
    """

    epsilon: float

    most: ClassVar[float] = 1.0  # no answer exceeds it

    def __str__(self) -> str:
        return f"delta at epsilon = {self.epsilon:g}"

    def at(self, answer: float) -> tuple[float, float]:
        """The point (epsilon, delta) of the curve with this answer."""
        return self.epsilon, answer


@dataclass(frozen=True)
class EpsilonAt:
    """The question which eps*(delta) = inf{eps >= 0: delta(eps) <= delta} a composition has.

    Attributes:
        delta: in [0, 1].
    """

    delta: float

    most: ClassVar[float] = math.inf  # no answer exceeds it

    def __str__(self) -> str:
        return f"epsilon at delta = {self.delta:g}"

    def at(self, answer: float) -> tuple[float, float]:
        """The point (epsilon, delta) of the curve with this answer."""
        return answer, self.delta


Question = DeltaAt | EpsilonAt
