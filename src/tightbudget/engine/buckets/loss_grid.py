"""Loss axis and index: points ``offset + i step``, with an exact rational offset."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tightbudget.errors import GridError
from tightbudget.numerics.rounding import UNIT, FloatArray


@dataclass(frozen=True)
class Grid:
    """Points x_i = offset + i * step (nats), i = 0, 1, ...; step is an exact double > 0."""

    offset: Fraction
    step: float

    def __add__(self, other: Grid) -> Grid:
        """The grid of sums; mixing different steps is refused."""
        if self.step != other.step:
            raise GridError(f"grids differ: step {self.step!r} and {other.step!r}")
        return Grid(self.offset + other.offset, self.step)

    def shifted(self, first: int) -> Grid:
        """The grid that begins at point ``first``."""
        if first == 0:
            return self
        return dataclasses.replace(self, offset=self.offset + first * Fraction(self.step))

    def doubled(self) -> Grid:
        """Returns the grid of every second point."""
        return dataclasses.replace(self, step=2.0 * self.step)

    def losses(self, n: int, origin: Fraction = Fraction(0)) -> tuple[FloatArray, FloatArray]:
        """The first n points minus ``origin``, as doubles, and how far each may be off."""
        start = float(self.offset - origin)
        rise: FloatArray = np.arange(n, dtype=np.float64) * self.step
        x = start + rise
        # the start, each product, and each sum by a unit of itself
        return x, 2 * UNIT * (abs(start) + np.abs(rise))  # pays: grid-points

    def locate(self, losses: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
        """Returns the first point surely >= each loss, and a lower bound of the distance."""
        position, off = self._position(losses)
        index = np.ceil(position + off)
        return index.astype(np.intp), (index - position - off) * self.step

    def nearest(self, losses: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
        """Returns the nearest point to each loss, and an upper bound of (point - loss)."""
        index = np.rint(self._position(losses)[0]).astype(np.intp)
        return index, self.ahead(losses, index)

    def ahead(self, losses: FloatArray, points: NDArray[np.intp]) -> FloatArray:
        """Returns upper bounds of (point - loss) for the numbers of points near the losses."""
        position, off = self._position(losses)
        return (points - position + off) * self.step

    def _position(self, losses: FloatArray) -> tuple[FloatArray, FloatArray]:
        start = float(self.offset)
        position = (losses - start) / self.step
        # the start, the difference and the quotient; and the sums of the callers
        size = (np.abs(losses) + abs(start)) / self.step + np.abs(position) + 1.0
        off = 4 * UNIT * size  # pays: grid-position
        bound = 2.0**52  # beyond it not every integer plus a half is a double, and no array reaches
        return np.clip(position, -bound, bound), np.minimum(off, bound)
