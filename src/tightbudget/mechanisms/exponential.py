"""The exponential mechanism, and every other mechanism of bounded range."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np

from tightbudget.mechanisms import bounded_range
from tightbudget.mechanisms.composition import Composable, Mechanism
from tightbudget.mechanisms.logistic import LogisticPair
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure, stack
from tightbudget.numerics.rounding import EXPM1, UNIT, double_down, double_up
from tightbudget.numerics.validate import positive, refuse
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Pair

# Below, the rounding of D shows in its differences; above, one run has hardly a delta below 1.
_LEAST_EPSILON, _LARGEST_EPSILON = 1e-4, 20.0


# Proof: proofs/choices.v, theorems families, families_private
@dataclass(frozen=True)
class ExponentialMechanism(Mechanism):
    """Chooses one of many candidates, each with a chance proportional to e^(factor * score).

    Its ``epsilon`` is that of the textbook: the factor is ``epsilon / (2 * sensitivity)``, or
    ``epsilon / sensitivity`` if one record can only raise all scores, or only lower them. So is
    the noisy maximum with Gumbel noise of the scale 1 / factor, and every other mechanism whose
    privacy losses lie in an interval of the length ``epsilon`` (bounded range), wherever in
    [-epsilon, epsilon] that interval is.

    Guarantee: all candidates, scores and their number may be chosen after earlier outputs were
    seen. No single pair is the worst one for several runs: the upper bound is that of a pair which
    dominates every strategy of choosing them, beside and between any other mechanisms, and the
    lower bound that of a strategy. They are as close as ``rtol`` asks, unless several
    ``epsilon`` come together, or more than 10,000 runs (2,000 of ``epsilon`` 20).
    Source: Dong, Durfee, Rogers 2020, "Optimal differential privacy composition for exponential
    mechanisms and the cost of adaptivity".

    Args:
        epsilon: the length of the interval of losses, in [0.0001, 20], nats. One run is
            epsilon-DP.

    Raises:
        ParameterError: ``epsilon`` is not such a number.
    """

    # a question of the base has this name: the parameter takes its place
    epsilon: float = field()  # type: ignore[assignment]

    kind: ClassVar[str] = "exponential"
    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True  # the mirror image of a pair of bounded range is one, too
    strategic: ClassVar[bool] = True

    meant: ClassVar[Mapping[str, str]] = {
        "sensitivity": "epsilon is that of the whole mechanism, with the scores' sensitivity in it",
        "scale": "Gumbel noise of a scale has epsilon = 2 * sensitivity / scale",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        epsilon = positive(epsilon=self.epsilon)
        if not _LEAST_EPSILON <= epsilon <= _LARGEST_EPSILON:
            raise refuse("epsilon", f"be in [{_LEAST_EPSILON}, {_LARGEST_EPSILON:g}]", epsilon)
        self._set(epsilon=epsilon)

    def pair(self, direction: Direction) -> Pair:
        # sup_t delta_t(y) = (sqrt E - sqrt y)^2 / (E - 1) for 1 / E <= y <= E = e^epsilon: that is
        # the delta of logistic noise
        return LogisticPair(self.epsilon)

    def pairs_of_runs(self, direction: Direction, runs: int) -> tuple[tuple[Pair, int], ...]:
        if runs == 1 or not bounded_range.bearable(self.epsilon, runs):
            return super().pairs_of_runs(direction, runs)
        return ((bounded_range.above(self.epsilon, runs, self._halvings()), 1),)

    def instance(self) -> Composable:
        """Returns the worst that needs no choice: a fair interval, the losses +-epsilon / 2."""
        return _Even(self.least_epsilon)

    def instance_of_runs(self, runs: int) -> Composable:
        if not bounded_range.bearable(self.epsilon, runs):
            return self.instance() * runs
        return _Strategy(self.least_epsilon, runs, self._halvings())

    @property
    def weight(self) -> float:
        return self.epsilon**2

    @property
    def apart_inside(self) -> str:
        return "choices of what runs next"

    def apart_of_runs(self, runs: int) -> str:
        if bounded_range.bearable(self.epsilon, runs):
            return ""
        return f"more runs of {self.kind} than are taken together"

    def worst_of_order(self, order: float) -> Mechanism:
        return _OfOrder(self.epsilon, order)

    def most_halvings(self, runs: int) -> int:
        return max(super().most_halvings(runs), bounded_range.halvings_in_reach(self.epsilon, runs))

    def _halvings(self) -> int:
        """Says how often the distance of the bounds of many runs is halved, about."""
        return 0

    @property
    def least_epsilon(self) -> float:
        """The length of the interval of losses that lower bounds count with."""
        return self.epsilon

    def finer(self, halvings: int) -> Mechanism:
        return _Close(
            self.epsilon, relation=self.relation, halvings=halvings, least=self.least_epsilon
        )


@dataclass(frozen=True, repr=False)
class _Close(ExponentialMechanism):
    """The exponential mechanism with bounds of many runs that are closer together.

    Attributes:
        halvings: how often their distance is halved, about.
        least: the length of the interval in lower bounds, at most ``epsilon``.
    """

    halvings: int = 0
    least: float = field(default=0.0)

    def _halvings(self) -> int:
        return self.halvings

    @property
    def least_epsilon(self) -> float:
        return self.least


def of_group(base: ExponentialMechanism, size: int) -> ExponentialMechanism:
    """Returns ``base`` for scores that ``size`` records move, each by at most the sensitivity.

    Raises:
        ParameterError: ``size * epsilon`` is above the largest epsilon of an exponential mechanism.
    """
    whole = size * Fraction(base.epsilon)
    if whole > _LARGEST_EPSILON:
        raise refuse("size * epsilon", f"be at most {_LARGEST_EPSILON:g}", float(whole))
    most = double_up(whole)  # guard: group-of-choices-rounds-up
    least = double_down(size * Fraction(base.least_epsilon))  # guard: group-of-choices-rounds-down
    return _Close(most, relation=base.relation, halvings=base._halvings(), least=least)


@dataclass(frozen=True)
class _Even(Mechanism):
    """Two outputs with the losses epsilon / 2 and -epsilon / 2: a pair of the family."""

    span: float

    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True
    # two candidates, of which no other record changes a score
    alone: ClassVar[bool] = True

    def pair(self, direction: Direction) -> Pair:
        half = self.span / 2  # exact
        share = exact(1.0) / (exact(1.0) + exp_enclosure(-half))
        masses = stack(share, share * exp_enclosure(-half))
        losses = np.array([half, -half])
        return AtomicPair(Atoms(masses, masses[::-1], losses, losses))


@dataclass(frozen=True)
class _Strategy(Mechanism):
    """Runs that are chosen one after the other, each for the worst of what was seen.

    Also of one run, whose pair above is no mechanism's: each of its deltas is attained by another
    interval, and chances of losses by none.
    """

    span: float
    runs: int
    halvings: int

    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True

    def pair(self, direction: Direction) -> Pair:
        if self.runs == 1:
            return LogisticPair(self.span)  # at each epsilon, that of some t
        return bounded_range.below(self.span, self.runs, self.halvings)


@dataclass(frozen=True)
class _OfOrder(Mechanism):
    """The pair of the family with the largest Renyi divergence of an order.

    E_P[e^(s L)] = ((E - u) u^s + (u - 1) (u / E)^s) / (E - 1) at u = e^t, for E = e^span, is
    largest at u = s / (s + 1) (E - E^-s) / (1 - E^-s). The divergence of runs that are chosen one
    after the other is at most the sum of these largest ones, and any order of them attains it.
    """

    span: float
    order: float

    mutual: ClassVar[bool] = False
    symmetric: ClassVar[bool] = True

    def pair(self, direction: Direction) -> Pair:
        if self.order == math.inf:
            return LogisticPair(self.span)
        e, s = self.span, self.order - 1.0
        below = -math.log(s / (s + 1.0) * math.expm1(-(s + 1.0) * e) / math.expm1(-s * e))
        below = min(max(below, 0.0), e)
        t = e - below
        # order - 1 and s + 1, which the quotient of expm1 forgets: 4; two exponents and calls: 20;
        # the quotients: 4; then log and the difference, relative to below and e
        off = (40.0 + 10.0 * (below + e)) * UNIT
        high, low = _lost(t, off), _lost(below, off)
        p, q = low / _lost(e, 0.0), high / _lost(e, 0.0)
        masses_p = stack(p, q * exp_enclosure(-below, off))
        masses_q = stack(p * exp_enclosure(-t, off), q)
        losses = np.array([t, -below])
        return AtomicPair(Atoms(masses_p, masses_q, losses - off, losses + off))


def _lost(x: float, off: float) -> Enclosure:
    """Encloses 1 - e^-y for all y >= 0 in [x - off, x + off]."""
    low, high = -math.expm1(-max(x - off, 0.0)), -math.expm1(-(x + off))
    return Enclosure(
        np.array([low * (1.0 - (EXPM1 + 2.0) * UNIT)]),
        np.array([high * (1.0 + (EXPM1 + 2.0) * UNIT)]),
    )
