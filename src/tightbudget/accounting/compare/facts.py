"""The certified facts about a composition that published theorems take.

A theorem takes points of each mechanism's delta(eps), its Renyi divergences, its largest loss. A
search chooses the best point or order. Any choice is valid, so an answer that is called proved is
proved.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tightbudget.mechanisms.composition import Composition, Mechanism, compose
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.integer_noise import DiscreteGaussian
from tightbudget.mechanisms.laplace import Laplace
from tightbudget.mechanisms.randomized_response import RandomizedResponse
from tightbudget.mechanisms.subsampled import Subsampled
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import TINY, UNIT
from tightbudget.numerics.search import least_between
from tightbudget.theorems import renyi
from tightbudget.theorems.concentrated import Line

# These choose where the theorems are asked: a worse choice gives a wider bound, which is as valid.
GAP = 1e-3  # relative gap of the facts that theorems take: three digits of a theorem's bound
# The best point of a mechanism's curve for a theorem is searched for among _COARSE points, then by
# golden section near the best, until its epsilon is known within a relative _FINE.
_COARSE, _FINE = 17, 0.005
_FAR = 100.0  # (order - 1) times the largest loss from which on the divergence is about that loss
# An order so near 1 that a divergence which is infinite there is taken to be infinite everywhere.
_NEAR = 1.0625

_ONE_WAY = "it needs delta(eps) of P against Q and of Q against P, and one is not known"
NO_LINE = "no such line is known: the largest loss is infinite"
_APART = "some outputs tell the neighbours apart for certain: all divergences are infinite"


class NotApplicable(Exception):  # noqa: N818 (an answer, not an error)
    """The reason why a theorem does not apply to a composition."""


@dataclass(frozen=True, eq=False)
class Facts:
    """A question about a composition, and the facts about it that several theorems share."""

    composition: Composition
    name: str  # "delta" or "epsilon"
    at: float
    target: float  # the delta asked about, or about the delta to be answered

    @property
    def runs(self) -> int:
        """The number of runs of all parts together."""
        return self.composition.runs

    def ask(self, of: Any, *arguments: Any, **more: Any) -> Any:
        """Calls ``of.epsilon(*arguments, delta)`` or ``of.delta(*arguments, epsilon)``."""
        answer = of.epsilon if self.name == "delta" else of.delta
        return answer(*arguments, self.at, **more)

    @functools.cached_property
    def in_both_orders(self) -> list[Facts]:
        """The question about each direction's pairs with their reverses.

        Where the composition consists of such pairs, the list is the question itself.
        """
        found: list[Facts] = []
        for direction in self.composition.directions:
            whole = self.composition._in_both_orders(direction)
            if whole is None:
                raise NotApplicable(_ONE_WAY)
            if whole == self.composition:
                return [self]
            found.append(dataclasses.replace(self, composition=whole))
        return found

    # ----------------------------------------------------------- the steps' own delta(eps)

    @functools.cached_property
    def single(self) -> dict[Mechanism, Composition]:
        """One run of each mechanism, as a composition."""
        return {m: compose([m]) for m, _ in self.composition.parts}

    def step_epsilon(self, mechanism: Mechanism, delta: float) -> float:
        """Bounds from above the epsilon of one run of a mechanism at ``delta``."""
        return self.single[mechanism].answer(delta=delta, rtol=GAP).bounds.upper

    def step_delta(self, mechanism: Mechanism, epsilon: float) -> float:
        """Bounds from above the delta of one run of a mechanism at ``epsilon``."""
        return self.single[mechanism].answer(epsilon=epsilon, rtol=GAP).bounds.upper

    @functools.cached_property
    def _common(self) -> dict[float, float]:
        return {}

    def common_delta(self, epsilon: float) -> float:
        """Finds one delta for all runs at one epsilon, for theorems that take equal mechanisms.

        With it, 1 - (1 - delta)^runs is an upper bound of the chance that any run tells all, and
        runs times delta of the sum of all deltas: a geometric mean is below the arithmetic one.
        """
        if epsilon not in self._common:
            deltas = [(self.step_delta(m, epsilon), k) for m, k in self.composition.parts]
            most = max(d for d, _ in deltas)
            if len(deltas) > 1 and 0.0 < most < 1.0:
                log = math.fsum(k * math.log1p(-d) for d, k in deltas) / self.runs
                most = min(most, max(TINY, -math.expm1(log) * (1 + 64 * UNIT)))
            self._common[epsilon] = most
        return self._common[epsilon]

    def over_points(self, theorem: Any) -> Bounds:
        """Searches for the (epsilon, delta) of all runs at which a theorem answers least."""

        def at(epsilon: float) -> float:
            found: Bounds = self.ask(theorem, epsilon, self.common_delta(epsilon), self.runs)
            return found.upper

        low, high = self._range
        if low >= 0.99 * high:
            return Bounds(0.0, min(at(low), at(high)))
        coarse = np.geomspace(low, high, _COARSE).tolist()
        values = [at(e) for e in coarse]
        best = int(np.argmin(values))
        left, right = coarse[max(0, best - 1)], coarse[min(best + 1, _COARSE - 1)]
        found, _ = least_between(lambda x: at(math.exp(x)), math.log(left), math.log(right), _FINE)
        return Bounds(0.0, min(*values, found))

    @functools.cached_property
    def _range(self) -> tuple[float, float]:
        """The epsilons of one run between which the best point is searched for.

        (0, 0) if no run has a loss.
        """
        directions = self.composition.engine.parts
        high = max(
            [0.0, *(part.pair.max_loss()[1] for parts in directions for part in parts.parts)]
        )
        steps = self.composition.parts
        # far above, the deltas have become nothing; below, they alone are too much
        # (and past an atom, where the engine is slow)
        far = max(self.step_epsilon(m, 1e-4 * self.target / self.runs) for m, _ in steps)
        far *= 1 + GAP
        high = far if far < 0.99 * high else high
        low = 0.0
        if self.name == "delta":
            low = max(self.step_epsilon(m, self.target / k) for m, k in steps) * (1 - GAP)
        if math.isinf(high):  # then anything may do
            high = max(1.0, self.at, 8.0 * low) if math.isfinite(low) else 1.0
        return min(max(low, 1e-6 * high), high), high

    # ------------------------------------------------------------------------ divergences

    @functools.cached_property
    def divergence(self) -> renyi.Divergence:
        """The divergence of the composition by order, remembered; the worse direction counts."""
        if self.composition.delta(math.inf).lower > 0:
            raise NotApplicable(_APART)
        steps = [(self.step_divergence(m), k) for m, k in self.composition.parts]

        @functools.cache
        def of_order(order: float) -> Bounds:
            return sum((of_step(order) * k for of_step, k in steps), start=Bounds(0.0, 0.0))

        if math.isinf(of_order(_NEAR).upper):
            raise NotApplicable("no divergence is known to be finite")
        return of_order

    def step_divergence(self, mechanism: Mechanism) -> renyi.Divergence:
        """Returns the divergence of one run by order: in closed form, or else by the engine."""
        match mechanism:
            case Gaussian():
                return functools.partial(
                    renyi.gaussian, sigma=mechanism.sigma, sensitivity=mechanism.sensitivity
                )
            case Laplace():
                return functools.partial(
                    renyi.laplace, scale=mechanism.scale, sensitivity=mechanism.sensitivity
                )
            case RandomizedResponse(categories=2):
                return functools.partial(renyi.randomized_response, p=mechanism.p)
            case Subsampled(base=Gaussian() as base, rate=q):
                orders = [*range(2, 65), *(round(2 ** (j / 8)) for j in range(49, 81))]
                found = [
                    renyi.subsampled_gaussian(a, base.sigma, q, base.sensitivity).upper
                    for a in orders
                ]
                return renyi.RenyiTable(orders, found)
        single = self.single[mechanism]
        top = single.answer(order=math.inf).bounds  # at whatever gap: its upper bound counts

        def of_order(order: float) -> Bounds:
            # never more than the largest loss, and so far up hardly less
            if (order - 1.0) * top.upper > _FAR and math.isfinite(top.upper):
                return Bounds(0.0, top.upper)
            return Bounds(0.0, min(top.upper, single.answer(order=order, rtol=GAP).bounds.upper))

        return of_order

    @property
    def largest_loss(self) -> float:
        """The largest loss of any one run."""
        return max(
            self.single[m].answer(order=math.inf).bounds.upper for m, _ in self.composition.parts
        )

    @functools.cached_property
    def lines(self) -> tuple[list[Line], renyi.RenyiTable | None]:
        """The lines known above some parts' divergences, and a table for the other parts."""
        known = [(_known_line(m), m, k) for m, k in self.composition.parts]
        lines = [line * k for line, _, k in known if line is not None]
        rest = Composition(tuple((m, k) for line, m, k in known if line is None))
        asked = dataclasses.replace(self, composition=rest) if lines else self
        if not rest.runs:
            return lines, None
        divergence, top = asked.divergence, asked.largest_loss
        if math.isinf(top):  # no line lies above a table that ends in inf: so none is made
            raise NotApplicable(NO_LINE)
        return lines, renyi.RenyiTable.of(divergence, renyi.orders(top))


def _known_line(mechanism: Mechanism) -> Line | None:
    """Returns the line above the divergences of a mechanism with a Gaussian's tail, or None.

    Source: Bun, Steinke 2016 (Gaussian); Canonne, Kamath, Steinke 2020 (discrete). A sample's
    divergence is at most the whole's, by quasi-convexity.
    """
    if isinstance(mechanism, Subsampled):
        return _known_line(mechanism.base)
    if isinstance(mechanism, (Gaussian, DiscreteGaussian)):
        return Line.gaussian(mechanism.sigma, mechanism.sensitivity)
    return None
