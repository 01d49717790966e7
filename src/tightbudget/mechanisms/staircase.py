"""The staircase mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure, stack
from tightbudget.numerics.rounding import UNIT
from tightbudget.numerics.validate import positive, probability
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Pair


@dataclass(frozen=True)
class Staircase(Mechanism):
    """Adds noise whose density falls by e^-epsilon at each (k + gamma) * sensitivity.

    Guarantee: the noise against itself moved by ``sensitivity`` dominates the mechanism
    (also for queries that move by less: the losses are the same, and the total variation
    of a unimodal symmetric density from its shift grows with the shift). The masses do not
    depend on the unit, hence not on ``sensitivity``.
    Source: Geng, Viswanath 2014, "The optimal mechanism in differential privacy".

    Args:
        epsilon: the pure-DP parameter, > 0, nats.
        sensitivity: how far the query can move, > 0, in the noise's unit.
        gamma: where in a step the density falls, in [0, 1]; by default
            1 / (1 + e^(epsilon/2)), which has the least expected absolute noise.

    Raises:
        ParameterError: a parameter is out of its range.
    """

    # a question of the base has this name: the parameter takes its place
    epsilon: float = field()  # type: ignore[assignment]
    sensitivity: float = 1.0
    gamma: float | None = None

    kind: ClassVar[str] = "staircase"
    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = (
        True  # noise and its mirror image: x -> sensitivity - x exchanges P and Q
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        epsilon = positive(epsilon=self.epsilon)
        # e^-x/(1 + e^-x) is 1/(1 + e^x) without overflow
        least = math.exp(-epsilon / 2) / (1 + math.exp(-epsilon / 2))
        gamma = least if self.gamma is None else probability(gamma=self.gamma)
        self._set(epsilon=epsilon, sensitivity=positive(sensitivity=self.sensitivity), gamma=gamma)

    def pair(self, direction: Direction) -> Pair:
        # With g = gamma + (1 - gamma) e^-eps the density is (1 - e^-eps) / (2 g) (times
        # e^-eps after the step, in units of the sensitivity). Left of 0 the loss is eps, right
        # of 1 it is -eps; on [0, 1] it is eps up to m = min(gamma, 1 - gamma), 0 up to
        # 1 - m, then -eps. So P(eps) = 1/2 + m (1 - e^-eps) / (2 g) and
        # P(-eps) = e^-eps P(eps); on the middle, of length |1 - 2 gamma|, both densities are
        # those after the step (gamma < 1/2) or before it.
        assert self.gamma is not None
        eps = np.array([self.epsilon])
        gamma, rest = exact(self.gamma), _within(1 - self.gamma, 1)
        falls = _within(-math.expm1(-self.epsilon), 8)
        down, half = exp_enclosure(-eps), exact(0.5)
        density = half * falls / (gamma + rest * down)
        high = half + density * (gamma if self.gamma < 0.5 else rest)
        length = _within(abs(1 - 2 * self.gamma), 1)
        # for gamma < 1/2 the step e^-eps goes into g: g e^eps = gamma e^eps + 1 - gamma
        after = half * falls / (gamma * exp_enclosure(eps) + rest)
        middle = length * (after if self.gamma < 0.5 else density)
        p = stack(high, middle, high * down).clipped(0.0, 1.0)
        losses = np.array([self.epsilon, 0.0, -self.epsilon])
        keep = p.upper > 0
        return AtomicPair(Atoms(p[keep], p[::-1][keep], losses[keep], losses[keep]))


def _within(x: float, ulps: float) -> Enclosure:
    """The enclosure of a number >= 0 that was rounded by so many units in the last place."""
    margin = ulps * 2 * UNIT * x
    return Enclosure(np.array([x - margin]), np.array([x + margin]))
