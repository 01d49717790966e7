"""A measure on several grids at once: rare large losses beside common small ones.

One grid would have to be as fine as common losses need and as long as rare ones reach. Here each
grid has four times the step of the finer one before it; a loss lies on the first grid that reaches
it. In a composition mass of a finer grid is placed on a coarser one where it meets mass that is
there, and what the end of a grid cuts off is placed on the next.

A placing is a spread (upper masses) or a merge (lower ones), so the upper measure dominates and the
lower one is dominated, whatever the grids are. It adds at most h^2 / 4 to the variance of what is
placed, and of a measure with variance V at most a share V / (n h / 2)^2 lies beyond n points of
step h (Chebyshev): a composition adds a small multiple of V / n^2 for each grid, however rare large
losses are.

What is cut is counted as lost, or left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Generic

import numpy as np

from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.engine.levels.masses import Level, Lower, Upper
from tightbudget.numerics.rounding import FloatArray, add_up, mul_up, sum_up

ABOVE = 0.6  # of a grid's points: many losses lie on both sides of the middle, large ones above


@dataclass(frozen=True)
class Room:
    """The number of points of each grid; what is beyond them goes to the next level.

    Attributes:
        sizes: points of the grid of each level from 0 on; later ones have as many as the last.
    """

    sizes: tuple[int, ...]

    def points(self, level: int) -> int:
        """Returns the number of points of the grid of one level."""
        return self.sizes[min(level, len(self.sizes) - 1)]


@dataclass(frozen=True)
class Levels(Generic[Level]):
    """Masses on grids through one point; together they are the measure.

    Attributes:
        origin: a point of all grids, nats.
        base: the step of level 0, nats; that of level k is RATIO^k as large.
        on: the masses of each level.
        room: how many points a grid may have.
        middle: the loss that a grid's points lie around, nats: about the mean that matters.
        infinite: P-mass that is counted as lost at +inf.
        decay: masses fall by e^(-decay x) where they matter, nats^-1; it decides no bound.
    """

    origin: Fraction
    base: float
    on: Mapping[int, Level]
    room: Room
    middle: float
    infinite: float
    decay: float = 0.0

    def __len__(self) -> int:
        return sum(one.mass.size for one in self.on.values())

    @property
    def finite(self) -> float:
        """Returns an upper bound of the P-mass on all grids."""
        return add_up(*(sum_up(one.mass) for one in self.on.values()))

    def step(self, level: int) -> float:
        """Returns the step of one level, nats."""
        return math.ldexp(self.base, 2 * level)

    # Proof: proofs/order.v, theorems products, adaptive, repeated, merging, bucket_spread
    def __mul__(self, other: Levels[Level]) -> Levels[Level]:
        """Convolves two measures: that of the composition, whose losses add up."""
        middle, origin = self.middle + other.middle, self.origin + other.origin
        # (f + i) (f' + i') - f f' = i (f' + i') + f i'
        infinite = 0.0
        if self.infinite or other.infinite:
            both = mul_up(self.infinite, add_up(other.finite, other.infinite))
            infinite = add_up(both, mul_up(self.finite, other.infinite))
        found: dict[int, Level] = {}
        mine: Level | None = None  # what is on finer grids, placed on this one
        theirs: Level | None = None
        beyond: Level | None = None  # what finer grids had no room for
        levels = {*self.on, *other.on}
        level, top = min(levels, default=0), max(levels, default=-1)
        while level <= top or beyond is not None:
            a, b = self.on.get(level), other.on.get(level)
            # a (b + theirs) + mine b; of a square, a (a + 2 mine), with half the products
            rest = _sum((b, theirs, mine if self is other else None))
            finer = mine if self is not other else None
            steep = self.decay * self.step(level)
            whole = _sum((
                beyond,
                a.convolved(rest, steep) if a is not None and rest is not None else None,
                finer.convolved(b, steep) if finer is not None and b is not None else None,
            ))  # fmt: skip
            beyond = None
            if whole is not None:
                kept, beyond = self._within(level, whole, middle - float(origin))
                if kept is not None:
                    found[level] = kept.settled(self.step(level))
            mine = self._placed(level, _sum((a, mine)))
            theirs = mine if self is other else self._placed(level, _sum((b, theirs)))
            level += 1
        return replace(self, origin=origin, on=found, middle=middle, infinite=infinite)

    def _within(self, level: int, whole: Level, middle: float) -> tuple[Level | None, Level | None]:
        """Splits a level around a middle: a grid keeps one part, and the next grid takes the rest.

        The middle is counted from the origin.
        """
        n, most = whole.mass.size, self.room.points(level)
        if n <= most:
            return whole, None
        at = round(middle / self.step(level)) - whole.first
        first = at - round((1.0 - ABOVE) * most)
        start, end = (min(n, max(0, i)) for i in (first, first + most))
        outside = [
            self._placed(level, whole.part(i, j)) for i, j in ((0, start), (end, n)) if i < j
        ]
        return (whole.part(start, end) if start < end else None), _sum(outside)

    def _placed(self, level: int, one: Level | None) -> Level | None:
        """The masses of one level on the next coarser grid."""
        if one is None:
            return None
        return one.placed(self.step(level))

    def trimmed(self, least: float) -> Levels[Level]:
        """Cuts both ends of all grids together, of a mass of about ``least`` each.

        Upper masses that are cut are lifted to the first point that stays, or counted as lost.
        """
        kept, lost = dict[int, Level](), [self.infinite]
        for level, one in self.on.items():
            mass = one.mass
            start = int(np.searchsorted(np.cumsum(mass), least))
            end = mass.size - int(np.searchsorted(np.cumsum(mass[::-1]), least))
            if isinstance(one, Lower):
                if start < end:
                    kept[level] = one.part(start, end)
                continue
            if start >= end:
                lost.append(sum_up(mass))
                continue
            lost.append(sum_up(mass[end:]))
            u = mass[start:end].copy()
            u[0] = add_up(float(u[0]), sum_up(mass[:start]))  # guard: levels-cut-lifted
            kept[level] = Upper(one.first + start, u)
        return replace(self, on=kept, infinite=add_up(*lost))

    def lifted(self) -> Levels[Level]:
        """Places the finest grid on the next one."""
        level = min(self.on)
        whole = _sum((self.on.get(level + 1), self._placed(level, self.on[level])))
        assert whole is not None
        on = {level + 1: whole, **{k: one for k, one in self.on.items() if k > level + 1}}
        return replace(self, on=on)

    def axes(self) -> list[tuple[Level, FloatArray, FloatArray]]:
        """Each level with its losses, nats, and how far each of them may be off."""
        found = list[tuple[Level, FloatArray, FloatArray]]()
        for level, one in self.on.items():
            grid = Grid(self.origin, self.step(level)).shifted(one.first)
            x, slack = grid.losses(one.mass.size)
            found.append((one, x, slack))
        return found


def _sum(ones: Iterable[Level | None]) -> Level | None:
    whole: Level | None = None
    for one in ones:
        if one is not None:
            whole = one if whole is None else whole + one
    return whole
