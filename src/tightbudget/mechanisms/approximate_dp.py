"""The worst of all (epsilon, delta)-DP mechanisms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.numerics.enclosure import exact, exp_enclosure, stack
from tightbudget.numerics.validate import non_negative, probability
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Pair, no_atoms


@dataclass(frozen=True)
class ApproximateDP(Mechanism):
    """Any mechanism of which nothing is known but that it is (epsilon, delta)-DP.

    Guarantee: every (epsilon, delta)-DP mechanism, also one chosen after seeing earlier
    outputs, is a post-processing of the pair with four outputs P = (delta,
    (1 - delta) e^eps / (1 + e^eps), (1 - delta) / (1 + e^eps), 0) and Q its mirror.
    Source: Kairouz, Oh, Viswanath 2015; Murtagh, Vadhan 2016.

    ``epsilon`` and ``delta`` are its parameters: ``(mechanism * 1).epsilon(delta)`` asks.

    Args:
        epsilon: >= 0, nats.
        delta: in [0, 1].

    Raises:
        ParameterError: a parameter is out of its range.
    """

    # a question of the base has the name of each: the parameter takes its place
    epsilon: float = field()  # type: ignore[assignment]
    delta: float = 0.0  # type: ignore[assignment]

    kind: ClassVar[str] = "worst_case"
    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True  # Q is P with its outputs in reverse order

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(epsilon=non_negative(epsilon=self.epsilon), delta=probability(delta=self.delta))

    def pair(self, direction: Direction) -> Pair:
        lost = exact(self.delta)
        if self.delta == 1.0:
            return AtomicPair(no_atoms(), only_p=lost, only_q=lost)
        down = exp_enclosure(np.array([-self.epsilon]))
        high = (exact(1.0) - lost) / (exact(1.0) + down)
        p = stack(high, high * down)
        losses = np.array([self.epsilon, 0.0 - self.epsilon])
        return AtomicPair(Atoms(p, p[::-1], losses, losses), only_p=lost, only_q=lost)
