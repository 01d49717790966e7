"""One run of a pair on nested grids: an upper and a lower measure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.engine.levels.levels import ABOVE, Levels, Room
from tightbudget.engine.levels.masses import RATIO, Lower, Upper, lowered
from tightbudget.numerics.rounding import (
    TINY,
    UNIT,
    FloatArray,
    add_up,
    expm1_up,
    scale_up,
    sum_up,
)
from tightbudget.pairs.pair import Pair


@dataclass(frozen=True)
class Run:
    """One run of a pair, and where its losses are to be placed.

    Attributes:
        pair, count: the pair and how often it runs.
        edge: a point of all grids, nats.
        level: that of the finest grid.
        low, high: the losses that the grids reach, nats.
        middle: the mean of the losses that matter, nats.
        below: a pair that the lower measure is made of, where it is another one.
    """

    pair: Pair
    count: int
    edge: Fraction
    level: int
    low: float
    high: float
    middle: float
    below: Pair | None = None


@dataclass(frozen=True)
class LevelPlan:
    """A plan says where losses are placed, and what may be cut.

    Attributes:
        base: the step of level 0, nats.
        room: points of the grids of the composition.
        least: P-mass that cuts may cost in all.
        coarsening: variance that placing all of a grid on the next one may add, nats^2.
    """

    runs: tuple[Run, ...]
    base: float
    room: Room
    least: float
    coarsening: float


def nested(run: Run, plan: LevelPlan) -> list[tuple[Grid, int]]:
    """The grids of one run, from the finest to the coarsest, each with its number of points."""
    grids: list[tuple[Grid, int]] = []
    room, level = plan.room, run.level
    h, left, right, edge = math.ldexp(plan.base, 2 * run.level), 0, 0, float(run.edge)
    while True:
        most = int(ABOVE * room.points(level)) // RATIO * RATIO  # on each side
        need_left, need_right = (
            max(0, math.ceil((edge - run.low) / h)) + 1,
            max(0, math.ceil((run.high - edge) / h)) + 2,
        )
        # the ends of a grid are points of the next one
        left = RATIO * -(-max(-(-left // RATIO), min(most, need_left)) // RATIO)
        right = RATIO * -(-max(-(-right // RATIO), min(most, need_right)) // RATIO)
        grids.append((Grid(run.edge - left * Fraction(h), h), left + right + 1))
        if left >= need_left and right >= need_right:
            return grids
        h, level = RATIO * h, level + 1


def placed(run: Run, plan: LevelPlan) -> tuple[Levels[Upper], Levels[Lower]]:
    """One run of a pair on nested grids: its upper and lower measure.

    Guarantee: as the types say. A loss lies on the first grid that reaches it. Below the last grid
    the upper measure lifts it to the first point; above, it counts it as lost at +inf. The lower
    measure drops the first, and counts the second at the last point, with the Q-mass of a loss
    there: it is larger than the exact one, which makes no delta larger.
    """
    grids = nested(run, plan)
    # the edges of all bins, and where the bins of each grid lie among them
    axes = [grid.losses(n) for grid, n in grids]
    pieces, xs, slacks = [(0, 0, grids[0][1] - 1)], [axes[0][0]], [axes[0][1]]
    for level in range(1, len(grids)):
        (inner, m), (outer, n) = grids[level - 1], grids[level]
        left = (inner.offset - outer.offset) / Fraction(outer.step)
        right = left + Fraction(m - 1, RATIO)
        assert left.denominator == right.denominator == 1
        x, slack = axes[level]
        xs = [x[: int(left)], *xs, x[int(right) + 1 :]]
        slacks = [slack[: int(left)], *slacks, slack[int(right) + 1 :]]
        pieces = [(level, 0, int(left)), *pieces, (level, int(right), n - 1 - int(right))]
    u = [np.zeros(n) for _, n in grids]
    p, r = [np.zeros(n) for _, n in grids], [np.zeros(n) for _, n in grids]
    lost = [float(run.pair.p_only().upper[0])]
    x, slack = np.concatenate(xs), np.concatenate(slacks)
    bins = run.pair.bins(x, slack)
    if bins is not None:
        m = x.size
        mass, light = bins.p.upper[1:m], bins.p.lower[1:m]
        low, high = (bound[1:m] for bound in bins.over_one())
        usable = np.isfinite(high) & (light > 0)
        light, high = np.where(usable, light, 0.0), np.where(usable, high, 0.0)
        # an edge that is off by its slack moves w by e^slack
        off = np.expm1(slack[1:]) * (1 + 8 * UNIT)
        least = low - off * (1 + np.abs(low)) - 4 * UNIT * np.abs(low)
        excess = light * np.maximum(0.0, high + off * (1 + high) + 4 * UNIT * np.abs(high))
        u[-1][0] += bins.p.upper[0]  # guard: levels-lift-left-tail
        lost.append(float(bins.p.upper[m]))  # guard: levels-bins-beyond
        before = 0
        for level, first, count in pieces:
            here, to = slice(before, before + count), slice(first + 1, first + 1 + count)
            stay = _share_left(least[here], grids[level][0].step)
            u[level][first : first + count] += mass[here] * stay
            u[level][to] += mass[here] * (1.0 - stay)
            p[level][to] += light[here]
            r[level][to] += excess[here]
            before += count
        # beyond the last edge, or up to its slack before it
        p[-1][-1] += bins.p.lower[m]
        r[-1][-1] += bins.p.lower[m] * off[-1]
    crowd = [1] * len(grids)
    atoms = run.pair.atoms()
    if len(atoms):
        for above in (True, False):  # the upper masses, then the lower ones
            losses = atoms.loss_upper if above else atoms.loss_lower
            masses = atoms.p.upper if above else atoms.p.lower
            waiting = np.ones(len(atoms), dtype=bool)
            for level, (grid, n) in enumerate(grids):
                # loss <= point[where], by at least ``behind``
                where, behind = grid.locate(losses)
                taken = waiting & (where > 0) & (where < n)
                if level == len(grids) - 1 and not above:
                    # larger losses count at the last point
                    taken = waiting & (where > 0)
                    where = np.minimum(where, n - 1)
                waiting &= ~taken
                place, some = where[taken], masses[taken]
                crowd[level] += int(np.max(np.bincount(place), initial=0))
                if above:
                    gap = np.expm1(np.clip(behind[taken], 0.0, 700.0)) * (1 - 8 * UNIT)
                    stay = _share_left(gap, grid.step)
                    u[level] += np.bincount(place, some * (1.0 - stay), n)
                    u[level] += np.bincount(place - 1, some * stay, n)
                else:
                    # at most this far: ``behind`` and what locating may be off
                    ahead = np.maximum(0.0, grid.ahead(losses[taken], place))
                    kept = ahead < 700.0
                    place, some, ahead = place[kept], some[kept], ahead[kept]
                    p[level] += np.bincount(place, some, n)
                    raised = some * np.expm1(ahead) * (1 + 8 * UNIT)
                    r[level] += np.bincount(place, raised, n)
            if above:
                lowest = waiting & (grids[-1][0].locate(losses)[0] <= 0)
                u[-1][0] += sum_up(masses[lowest])  # guard: levels-lift-atoms
                lost.append(sum_up(masses[waiting & ~lowest]))  # guard: levels-atoms-beyond
    uppers, lowers = dict[int, Upper](), dict[int, Lower]()
    for k, (grid, _) in enumerate(grids):
        first = int((grid.offset - run.edge) / Fraction(grid.step))
        ulps = 4.0 + 2 * crowd[k]
        uppers[run.level + k] = Upper(first, scale_up(u[k], ulps) + TINY * (u[k] > 0.0))
        low, excess = lowered(p[k], r[k], p[k] * ulps * 2 * UNIT, r[k] * ulps * 2 * UNIT)
        lowers[run.level + k] = Lower(first, low, excess, 0.0)
    rest = run.edge, plan.base
    return (
        Levels(*rest, uppers, plan.room, run.middle, add_up(*lost)),
        # labels are right edges: half a step above the losses
        Levels(*rest, lowers, plan.room, run.middle + grids[0][0].step / 2, 0.0),
    )


# Proof: proofs/order.v, theorem bucket_spread
def _share_left(over: FloatArray, h: float) -> FloatArray:
    # s / a = (w - 1) / (e^h - 1) for w = Q e^x / P in [1, e^h]; the quotient and this product by a
    # unit each
    return np.clip(over / expm1_up(h) * (1 - 4 * UNIT), 0.0, 1.0)
