"""One run of a pair on nested grids: an upper and a lower measure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.engine.levels.levels import ABOVE, Levels, Room
from tightbudget.engine.levels.masses import RATIO, Lower, Upper, lowered
from tightbudget.engine.levels.totals import with_rest, without_excess
from tightbudget.numerics.enclosure import exact, exp_enclosure
from tightbudget.numerics.rounding import (
    EXPM1,
    TINY,
    UNIT,
    FloatArray,
    add_up,
    expm1_up,
    scale_up,
    sum_up,
)
from tightbudget.pairs.pair import Atoms, Pair


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
        decay: how steeply masses fall where they matter, nats^-1.
    """

    runs: tuple[Run, ...]
    base: float
    room: Room
    least: float
    coarsening: float
    decay: float = 0.0


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
    found = _Masses.on(grids)
    found.lost.append(float(run.pair.p_only().upper[0]))
    found.take_bins(run.pair)
    found.take_atoms(run.pair.atoms())
    uppers, lowers = found.bounds(summed=run.pair.sums_to_one())
    firsts = [int((grid.offset - run.edge) / Fraction(grid.step)) for grid, _ in grids]
    upper, lower = dict[int, Upper](), dict[int, Lower]()
    for k, first in enumerate(firsts):
        upper[run.level + k] = Upper(first, uppers[k])
        lower[run.level + k] = Lower(first, *lowers[k], 0.0)
    rest = run.edge, plan.base
    return (
        Levels(*rest, upper, plan.room, run.middle, add_up(*found.lost), plan.decay),
        # labels are right edges: half a step above the losses
        Levels(*rest, lower, plan.room, run.middle + grids[0][0].step / 2, 0.0, plan.decay),
    )


@dataclass
class _Masses:
    """Masses at the points of nested grids, which one run's outputs are added to.

    Attributes:
        grids: each with its number of points.
        axes: the losses of the points of each grid, nats, and how far each may be off.
        u: upper masses, spread on two neighbouring points each.
        p, r: lower masses, and their excess.
        over: of the lower masses' quotient of Q-mass and P e^-x, what it has above 1 at least.
        crowd: the number of atoms at one point of each grid, and 1.
        lost: P-masses that count as +inf.
        missing: the Q-mass of what is not in the upper masses, or was moved away there.
    """

    grids: list[tuple[Grid, int]]
    axes: list[tuple[FloatArray, FloatArray]]
    u: list[FloatArray]
    p: list[FloatArray]
    r: list[FloatArray]
    over: list[FloatArray]
    crowd: list[int]
    lost: list[float]
    missing: float = 0.0

    @classmethod
    def on(cls, grids: list[tuple[Grid, int]]) -> _Masses:
        """No masses yet."""
        u, p, r, over = ([np.zeros(n) for _, n in grids] for _ in range(4))
        axes = [grid.losses(n) for grid, n in grids]
        return cls(grids, axes, u, p, r, over, [1] * len(grids), [])

    def _edges(self) -> tuple[list[tuple[int, int, int]], FloatArray, FloatArray]:
        """The edges of all bins, and where the bins of each grid lie among them.

        Returns:
            for each run of bins of one grid its number, its first bin there and how many they are,
            in the order of losses; all edges, nats; how far each may be off.
        """
        pieces = [(0, 0, self.grids[0][1] - 1)]
        xs, slacks = [self.axes[0][0]], [self.axes[0][1]]
        for level in range(1, len(self.grids)):
            (inner, m), (outer, n) = self.grids[level - 1], self.grids[level]
            left = (inner.offset - outer.offset) / Fraction(outer.step)
            right = left + Fraction(m - 1, RATIO)
            assert left.denominator == right.denominator == 1
            x, slack = self.axes[level]
            xs = [x[: int(left)], *xs, x[int(right) + 1 :]]
            slacks = [slack[: int(left)], *slacks, slack[int(right) + 1 :]]
            pieces = [(level, 0, int(left)), *pieces, (level, int(right), n - 1 - int(right))]
        return pieces, np.concatenate(xs), np.concatenate(slacks)

    def take_bins(self, pair: Pair) -> None:
        """Adds the continuous part of a pair."""
        pieces, x, slack = self._edges()
        bins = pair.bins(x, slack)
        if bins is None:
            return
        m = x.size
        mass, light = bins.p.upper[1:m], bins.p.lower[1:m]
        low, high = (bound[1:m] for bound in bins.over_one())
        # an edge that is off by its slack moves w by e^slack
        off = np.expm1(slack[1:]) * (1 + 8 * UNIT)
        least = low - off * (1 + np.abs(low)) - 4 * UNIT * np.abs(low)
        usable = np.isfinite(high) & (light > 0)
        light, high = np.where(usable, light, 0.0), np.where(usable, high, 0.0)
        most = np.maximum(0.0, high + off * (1 + high) + 4 * UNIT * np.abs(high))
        excess = light * most
        self.u[-1][0] += bins.p.upper[0]  # guard: levels-lift-left-tail
        self.lost.append(float(bins.p.upper[m]))  # guard: levels-bins-beyond
        moved = np.zeros(m - 1)
        before = 0
        for level, first, count in pieces:
            here, to = slice(before, before + count), slice(first + 1, first + 1 + count)
            step = self.grids[level][0].step
            stay = _share_left(least[here], step)
            self.u[level][first : first + count] += mass[here] * stay
            self.u[level][to] += mass[here] * (1.0 - stay)
            self.p[level][to] += light[here]
            self.r[level][to] += excess[here]
            self.over[level][to] = np.maximum(0.0, least[here])
            # w - 1 is at least this share of e^h - 1, and two roundings less
            moved[here] = most[here] - stay * np.expm1(min(step, 700.0)) * (1 - (EXPM1 + 2) * UNIT)
            before += count
        # Q-masses times e^x: of what lies below all points, of what spreading takes away, and of
        # what lies beyond, where they are less than those of P
        moved = np.where(usable, mass * np.maximum(0.0, moved) * (1 + 4 * UNIT), np.inf)
        gone = np.concatenate([
            bins.q.upper[:1], np.minimum(bins.q.upper[1:m], moved), bins.p.upper[m:]
        ])  # fmt: skip
        x, slack = np.append(x, x[-1]), np.append(slack, slack[-1])
        gone_q = (exact(gone) * exp_enclosure(-x, slack)).upper
        self.missing += sum_up(gone_q)  # guard: levels-q-missing
        # beyond the last edge, or up to its slack before it
        self.p[-1][-1] += bins.p.lower[m]
        self.r[-1][-1] += bins.p.lower[m] * off[-1]

    def take_atoms(self, atoms: Atoms) -> None:
        """Adds the atoms of a pair."""
        if not len(atoms):
            return
        for above in (True, False):  # the upper masses, then the lower ones
            losses = atoms.loss_upper if above else atoms.loss_lower
            masses = atoms.p.upper if above else atoms.p.lower
            waiting = np.ones(len(atoms), dtype=bool)
            for level, (grid, n) in enumerate(self.grids):
                # loss <= point[where], by at least ``behind``
                where, behind = grid.locate(losses)
                taken = waiting & (where > 0) & (where < n)
                if level == len(self.grids) - 1 and not above:
                    # larger losses count at the last point
                    taken = waiting & (where > 0)
                    where = np.minimum(where, n - 1)
                waiting &= ~taken
                place, some = where[taken], masses[taken]
                self.crowd[level] += int(np.max(np.bincount(place), initial=0))
                if above:
                    gap = np.expm1(np.clip(behind[taken], 0.0, 700.0)) * (1 - 8 * UNIT)
                    stay = _share_left(gap, grid.step)
                    self.u[level] += np.bincount(place, some * (1.0 - stay), n)
                    self.u[level] += np.bincount(place - 1, some * stay, n)
                else:
                    # at most this far: ``behind`` and what locating may be off
                    ahead = np.maximum(0.0, grid.ahead(losses[taken], place))
                    kept = ahead < 700.0
                    place, some, ahead = place[kept], some[kept], ahead[kept]
                    self.p[level] += np.bincount(place, some, n)
                    raised = some * np.expm1(ahead) * (1 + 8 * UNIT)
                    self.r[level] += np.bincount(place, raised, n)
            if above:
                lowest = waiting & (self.grids[-1][0].locate(losses)[0] <= 0)
                self.u[-1][0] += sum_up(masses[lowest])  # guard: levels-lift-atoms
                self.lost.append(sum_up(masses[waiting & ~lowest]))  # guard: levels-atoms-beyond

    def bounds(
        self, *, summed: bool
    ) -> tuple[list[FloatArray], list[tuple[FloatArray, FloatArray]]]:
        """Upper masses, and lower ones with their excess, at the points of each grid.

        Args:
            summed: whether the masses of P and those of Q have the sum 1, without atoms.
        """
        ulps = [4.0 + 2 * crowd for crowd in self.crowd]
        uppers = [
            scale_up(u, each) + TINY * (u > 0.0) for u, each in zip(self.u, ulps, strict=True)
        ]
        lowers = [
            lowered(p, r, p * each * 2 * UNIT, r * each * 2 * UNIT)
            for p, r, each in zip(self.p, self.r, ulps, strict=True)
        ]
        if not summed:  # guard: levels-sums-known
            return uppers, lowers
        x, slack = (np.concatenate(each) for each in zip(*self.axes, strict=True))
        over = np.concatenate(self.over)
        # the Q-mass of what lies beyond is not known from below
        over[-1] = -1.0
        u = without_excess(np.concatenate(uppers), x, slack, self.missing)
        p, r = (np.concatenate(each) for each in zip(*lowers, strict=True))
        p, r = with_rest(p, r, x, slack, over)
        ends = np.cumsum([n for _, n in self.grids])[:-1]
        uppers, ps, rs = (np.split(each, ends) for each in (u, p, r))
        return uppers, list(zip(ps, rs, strict=True))


# Proof: proofs/order.v, theorem bucket_spread
def _share_left(over: FloatArray, h: float) -> FloatArray:
    # s / a = (w - 1) / (e^h - 1) for w = Q e^x / P in [1, e^h]; the quotient and this product by a
    # unit each
    return np.clip(over / expm1_up(h) * (1 - 4 * UNIT), 0.0, 1.0)
