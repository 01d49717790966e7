"""Points of which a span is a multiple, beside the points of a lattice.

Upper bounds move between both along chords, which are straight in e^-l. Of lower bounds, what is
done at the better of two neighbours is done at a point's own loss.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.rounding import UNIT, FloatArray


@dataclass(frozen=True)
class OwnPoints:
    """The points i ``step`` of which a span is a multiple, beside the points of the lattice.

    Attributes:
        span: at least the length of the interval of losses, and ``cells`` steps, nats.
        cells: steps in the span.
        step: the distance of points; that of the lattice, if the span is a multiple of it.
        margin: how many points of the lattice a window needs on either side.
        lattice: the distance of its points, its first point, and their number in the window.
    """

    span: float
    cells: int
    step: float
    margin: int
    lattice: tuple[float, int, int]

    @staticmethod
    def of(span: float, h: float, first: int, points: int) -> OwnPoints:
        """Makes the points for a window of a lattice.

        Args:
            span: the length of the interval of losses, nats; 0 for none.
            h: the distance of the lattice's points, nats.
            first: the first point of the window, in steps from 0.
            points: the number of points in the window.
        """
        cells = math.ceil(Fraction(span) / Fraction(h))
        if cells * h <= span * (1 + 256 * UNIT):
            return OwnPoints(cells * h * (1 + 2 * UNIT), cells, h, cells, (h, first, points))
        step = span / cells * (1 + 4 * UNIT)
        return OwnPoints(cells * step * (1 + 2 * UNIT), cells, step, cells + 3, (h, first, points))

    @property
    def _aligned(self) -> bool:
        return self.step == self.lattice[0]

    @functools.cached_property
    def _between(self) -> _Between:
        """Places the own points between points of the lattice and its margins."""
        h, first, points = self.lattice
        inner = self._inner
        return _Between.of(
            (inner[0] - self.cells) * self.step,
            self.step,
            inner[1] + 2 * self.cells,
            (first - self.margin) * h,
            h,
            points + 2 * self.margin,
        )

    @functools.cached_property
    def _back(self) -> _Between:
        h, first, points = self.lattice
        inner = self._inner
        return _Between.of(first * h, h, points, inner[0] * self.step, self.step, inner[1])

    @property
    def _inner(self) -> tuple[int, int]:
        """The first own point at or before the window, and how many reach beyond its end."""
        h, first, points = self.lattice
        start = math.floor(first * h / self.step - 1e-3)
        return start, math.ceil((first + points - 1) * h / self.step + 1e-3) - start + 1

    def above(self, value: FloatArray) -> FloatArray:
        """Upper bounds at own points, from those at the window's points and its margins."""
        return value if self._aligned else self._between.above(value)

    def back_above(self, value: FloatArray) -> FloatArray:
        """Upper bounds at the window's points from those at own points."""
        return value if self._aligned else self._back.above(value)

    def below(self, p: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A at least and e^-l B at most, at own points."""
        return (p, q) if self._aligned else self._between.below(p, q)

    def back_below(self, p: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A at least and e^-l B at most, at the window's points."""
        return (p, q) if self._aligned else self._back.below(p, q)


@dataclass(frozen=True)
class _Between:
    """Points, each of which lies between two neighbours of other points.

    Attributes:
        left: (n,) the index of the left neighbour.
        behind: (n,) how far each point is from it, nats; off by at most ``off``.
        h: the distance of the other points, nats.
    """

    left: NDArray[np.intp]
    behind: FloatArray
    h: float
    off: float

    @staticmethod
    def of(start: float, step: float, n: int, first: float, h: float, points: int) -> _Between:
        x = start + np.arange(n) * step
        left = np.clip(np.floor((x - first) / h).astype(np.intp), 0, points - 2)
        behind = x - (first + left * h)
        off = 8 * UNIT * (abs(start) + abs(first) + n * step + points * h)
        assert float(behind.min()) >= -off
        assert float(behind.max()) <= h + off
        return _Between(left, np.clip(behind, 0.0, h), h, off)

    def above(self, value: FloatArray) -> FloatArray:
        """Upper bounds of a rising function on chords, which are straight in e^-l."""
        share = -np.expm1(-self.behind) / -math.expm1(-self.h)
        share = np.minimum(1.0, share * (1 + 16 * UNIT) + 2 * self.off / min(1.0, self.h))
        left, right = value[self.left], value[self.left + 1]
        return np.asarray((left + share * (right - left)) * (1 + 4 * UNIT))

    def below(self, p: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A and e^-l B of what is done at the better neighbour, at each point's own loss."""
        fall = np.exp(-self.behind) * (1 + 16 * UNIT + 2 * self.off)
        rise = np.exp(self.h - self.behind) * (1 + 16 * UNIT + 2 * self.off)
        options = [(p[self.left], q[self.left] * fall), (p[self.left + 1], q[self.left + 1] * rise)]
        (p, q), (other_p, other_q) = options
        better = other_p - other_q > p - q
        return np.where(better, other_p, p), np.where(better, other_q, q)
