"""Bounds on delta(eps) of a composition from measures on several grids.

The main path: nested grids for a demand, one run's masses on them, powers, products, and then the
hockey-stick sums of all points.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tightbudget.engine.buckets.compose import (
    Between,
    Demand,
    Parts,
    base_step,
    edge_near,
    largest_kept,
)
from tightbudget.engine.buckets.tilt import tilted_moments
from tightbudget.engine.levels.levels import ABOVE, Levels, Room
from tightbudget.engine.levels.masses import RATIO, Level
from tightbudget.engine.levels.placing import LevelPlan, Run, placed
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import add_down, add_up
from tightbudget.numerics.search import last_true
from tightbudget.pairs.pair import Sketch


class LevelProfile:
    """Certified bounds of delta(eps) of one composition in one direction, on several grids."""

    def __init__(self, parts: Parts, plan: LevelPlan) -> None:
        measures = [placed(run, plan) for run in plan.runs]
        upper = composed([one for one, _ in measures], plan)
        lowers = [
            one if run.below is None else placed(replace(run, pair=run.below), plan)[1]
            for run, (_, one) in zip(plan.runs, measures, strict=True)
        ]
        lower = composed(lowers, plan)
        self._uppers, self._lowers = upper.axes(), lower.axes()
        # a part without a finite loss loses all
        self.lost = 1.0 if parts.certain else upper.infinite  # guard: levels-certain
        self.infinity, self.max_loss = parts.infinity, parts.max_loss.upper

    def upper_delta(self, epsilon: float) -> float:
        """Returns an upper bound of delta(epsilon)."""
        if epsilon >= self.max_loss:  # no finite loss exceeds epsilon
            return self.infinity.upper
        found = [one.delta(x, slack, epsilon) for one, x, slack in self._uppers]
        return min(1.0, add_up(self.lost, *found))

    def lower_delta(self, epsilon: float) -> float:
        """Returns a lower bound of delta(epsilon)."""
        if epsilon >= self.max_loss:
            return self.infinity.lower
        found = [one.delta(x, slack, epsilon) for one, x, slack in self._lowers]
        return max(0.0, add_down(self.infinity.lower, *found))

    def delta(self, epsilon: float) -> Bounds:
        """Bounds of delta(epsilon), for any finite epsilon."""
        return Bounds(self.lower_delta(epsilon), self.upper_delta(epsilon))

    def describe(self, epsilon: float) -> list[dict[str, float | str]]:
        """Returns the width and the number of the buckets of each grid."""
        return [
            {"bucket": float(x[1] - x[0]) if x.size > 1 else 0.0, "buckets": str(x.size)}
            for _, x, _ in self._uppers
        ]

    def epsilon(self, delta: float, guess: float, tolerance: float) -> Bounds:
        """Bounds of inf{eps >= 0: delta(eps) <= delta}; ``upper`` may be inf."""
        low = last_true(lambda e: self.lower_delta(e) > delta, guess, self.max_loss, tolerance)
        high = last_true(lambda e: self.upper_delta(e) > delta, guess, self.max_loss, tolerance)
        return Bounds(low.last_true, max(low.last_true, high.first_false))


# With n points of a grid the finest step is this, over the root of n, times how far common losses
# lie apart. Drawn questions of rare sampling want a hundredth of that for 4,096 points.
_RESOLVED = 0.7
# The variance that placing losses on the next grid may add, at each level, as a share of what all
# first buckets may: a share of 1 took a tenth more time, since more passes were needed.
_SHARE = 0.5
_BEYOND = 20.0  # the P-mass above epsilon + 20 / theta is about 2e-9 of delta: coarse grids do
_LONGEST = 2.0**17  # points of a grid: two seconds for a few hundred runs, and more for more
# Nats above epsilon from which on a sum counts as infinite above and as its label below. Of a
# relative gap that is e^-45 = 3e-20; affects width, never truth.
_SURE = 45.0
_LEVELS = 64  # sizes that are planned: steps from 1 to 4^64


def _common(sketch: Sketch) -> float:
    """Returns how far the middle nine tenths of the losses of one run lie apart, nats."""
    below = np.exp(np.logaddexp.accumulate(sketch.log_masses))
    low, high = np.searchsorted(below, np.array([0.05, 0.95]) * below[-1])
    apart = float(sketch.losses[min(high, below.size - 1)] - sketch.losses[low])
    return apart if apart > 0.0 else math.inf


def _typical(sketch: Sketch, rare: float, most: float) -> float:
    """The mean loss of one run without its largest losses, of so much mass, nats.

    Losses above ``most`` count as that.
    """
    masses = np.exp(sketch.log_masses)
    kept = np.cumsum(masses[::-1])[::-1] > rare
    losses = np.minimum(sketch.losses[kept], most)
    return float(np.average(losses, weights=masses[kept]))


def _least(sketch: Sketch, mass: float) -> float:
    """Returns a loss of one run below which there is hardly so much P-mass, nats."""
    below = np.logaddexp.accumulate(sketch.log_masses)
    first = int(np.searchsorted(below, math.log(mass)))
    return float(sketch.losses[max(0, first - 1)])


def plan_levels(
    parts: Parts, demand: Demand, reach: int, between: Between | None = None
) -> LevelPlan:
    """Grids and cuts for a demand.

    Args:
        parts: the composition.
        demand: what is asked.
        reach: points of one grid.
        between: few parts below and above those of the composition; these themselves if None.
    """
    total = sum(part.count for part in parts.parts)
    below, above = zip(*between, strict=True) if between else (parts.parts, parts.parts)
    parts = replace(parts, parts=above)
    # half of what may be added goes to the first buckets, of h^2 / 4 each; and common losses are
    # resolved, too, which a tilt for rare large ones hardly sees
    step = min(1.0, math.sqrt(2.0 * demand.variance / total))  # a spread is of second order below
    step = min(step, *(_RESOLVED / math.sqrt(reach) * _common(part.sketch) for part in parts.parts))
    least = demand.cut_share * math.exp(demand.saddle.log_delta)
    # no tilt: what is lifted on the left counts as P-mass
    lows = [_least(part.sketch, least / total) for part in parts.parts]
    # a loss with which the sum is far above epsilon, whatever the others are: larger ones count as
    # infinite from above and as this one from below, which costs e^-45 of their mass
    most = max(0.0, demand.saddle.epsilon) + _SURE
    most -= sum(part.count * min(0.0, low) for part, low in zip(parts.parts, lows, strict=True))
    middles = [_typical(part.sketch, 0.1 / total, most) for part in parts.parts]
    far = demand.saddle.epsilon + _BEYOND / max(demand.saddle.theta, 1e-300)
    far -= sum(part.count * middle for part, middle in zip(parts.parts, middles, strict=True))
    # the step of a grid that a loss that makes delta alone may be placed on
    widest = max(2.0 * math.sqrt(_SHARE * demand.variance), far / _LONGEST)
    # at the largest loss no tilt tells how fine and how long grids have to be
    tilted = demand.saddle.spread > far / _LONGEST
    if tilted:
        step = min(step, widest / RATIO ** max(0, math.ceil(math.log(widest / step, RATIO))))
    step = base_step(parts.parts, [step] * len(parts.parts))
    runs = list[Run]()
    for part, other, low, middle in zip(parts.parts, below, lows, middles, strict=True):
        high = min(most, largest_kept(part, demand, total))
        edge = edge_near(part, middle, step)
        beneath = None if other.pair == part.pair else other.pair  # guard: levels-below
        runs.append(Run(part.pair, part.count, edge, 0, low, high, middle, beneath))
    doublings = 2 * math.ceil(math.log2(total + 1)) + 2 * len(runs)
    room = _room(parts, middles, most, demand, step, far, reach) if tilted else Room((reach,))
    coarsening = 0.3 * demand.variance / doublings
    decay = max(0.0, demand.saddle.theta)
    return LevelPlan(tuple(runs), step, room, least / doublings, coarsening, decay)


def _room(
    parts: Parts,
    middles: Sequence[float],
    most: float,
    demand: Demand,
    step: float,
    far: float,
    reach: int,
) -> Room:
    """The number of points of each grid.

    Beyond them are few of the losses that make delta: placing those on the next grid adds no more
    variance than a share of what first buckets may. Where one loss makes delta, the grid whose step
    would add more reaches that far; it may be much longer than others.
    """
    theta, tail = demand.saddle.theta, math.log(demand.tail) + demand.saddle.log_delta
    where, number = [np.array([far])], [np.ones(1)]  # the sum
    sketches = parts.picture.without_tail(tail).sketches
    for (sketch, count), middle in zip(sketches, middles, strict=True):
        where.append(np.abs(np.minimum(sketch.losses, most) - middle))
        log_m = tilted_moments(sketch, theta)[0]
        number.append(count * np.exp(theta * sketch.losses + sketch.log_masses - log_m))
    distance, many = np.concatenate(where), np.concatenate(number)
    order = np.argsort(distance)
    distance, beyond = distance[order], np.cumsum(many[order][::-1])[::-1]
    sizes, h = [reach], step
    while ABOVE * reach * h < distance[-1] and len(sizes) < _LEVELS:
        # (4h)^2 / 4 for each loss that is placed on the next grid
        moved = int(np.searchsorted(-beyond, -_SHARE * demand.variance / (4.0 * h * h)))
        need = float(distance[moved - 1]) / (ABOVE * h) if moved else 0.0
        sizes[-1] = max(reach, math.ceil(min(need, _LONGEST)))
        sizes.append(reach)
        h *= RATIO
    return Room(tuple(sizes))


def composed(measures: Sequence[Levels[Level]], plan: LevelPlan) -> Levels[Level]:
    """The composition of one measure of each run of the plan, each as often as it runs.

    Measures that run equally often are convolved first: then they have one power, not one each.
    """
    alike = dict[int, list[Levels[Level]]]()
    for run, one in zip(plan.runs, measures, strict=True):
        alike.setdefault(run.count, []).append(one)
    powers = list[tuple[int, Levels[Level]]]()
    for count, ones in alike.items():
        whole = merged([(1, one) for one in ones], count, plan)
        powers.append((count * len(ones), power(whole, count, plan)))
    return merged(powers, 1, plan)


def power(one: Levels[Level], runs: int, plan: LevelPlan) -> Levels[Level]:
    """The composition of so many runs: binary exponentiation from the lowest bit up."""
    square, result = one, None
    while True:
        if runs & 1:
            result = square if result is None else (result * square).trimmed(plan.least)
        runs >>= 1
        if not runs:
            assert result is not None
            return result
        square = tidied(square * square, runs, plan)


def tidied(measure: Levels[Level], uses: int, plan: LevelPlan) -> Levels[Level]:
    """Cuts the ends of ``measure``, and leaves its finest grid where that costs little."""
    measure = measure.trimmed(plan.least / uses)
    while len(measure.on) > 1 and uses > 1:
        finest = min(measure.on)
        h = measure.step(finest)
        share = float(np.sum(measure.on[finest].mass))
        # two doublings add 5/2 h^2 to the upper variance and take 5/4 h^2 from the lower
        if 3.75 * h * h * uses * share > plan.coarsening:
            break
        measure = measure.lifted()
    return measure


def merged(
    measures: Sequence[tuple[int, Levels[Level]]], uses: int, plan: LevelPlan
) -> Levels[Level]:
    """Convolves all measures for so many uses in the composition, those of the fewest runs first.

    So a measure is placed on coarser grids as rarely as in a power.

    Args:
        measures: each with the number of its runs.
        uses: how often the result runs.
        plan: what may be cut.
    """
    heap = [(runs, i, one) for i, (runs, one) in enumerate(measures)]
    heapq.heapify(heap)
    number = len(heap)
    while len(heap) > 1:
        (runs, _, one), (more, _, other) = (heapq.heappop(heap) for _ in range(2))
        both = (one * other).trimmed(plan.least / uses)
        number += 1
        heapq.heappush(heap, (runs + more, number, both))
    return heap[0][2]
