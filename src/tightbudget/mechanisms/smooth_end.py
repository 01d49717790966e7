"""A smooth end of the losses of a schedule, in the variable y of ``gaussian_schedule``.

The weight w(y) = Phi(-u(y)), u(y) = (e^(y - edge) - 1) / width, falls from nearly 1 to 0 at the
edge. A schedule whose integrands it weighs has lost the outputs of the largest losses, which may be
so rare that they make no delta, and yet make M large. u is linear in the density ratio, so that w
falls faster beyond the edge than any power of the ratio rises.

For y + i b the real and the imaginary part of u are

    U = (e^(y - edge) cos b - 1) / width,        V = e^(y - edge) sin b / width,

both rise with y, and |Phi(-(U + i V))| <= e^(V^2 / 2) Phi(-U) (docs/explanation/contour.md). So
|w| <= e^(V^2 / 2) Phi(-U), with V at the right end of a cell and U at its left end; and by
w = 1 - Phi(u), |w(y + i b)| <= 1 + e^(V^2 / 2) Phi(U). A line that ends in "pays: name" pays for
what docs/explanation/rounding.md says under that name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tightbudget.mechanisms.gaussian_transform_bounds import GOAL, After
from tightbudget.numerics.rounding import EXPM1, UNIT, FloatArray, outwards
from tightbudget.numerics.special import log_normal_tail, log_normal_tail_slack

# Edges are multiples of 2^-12, and so are differences to nodes: doubles.
_EDGES = 2.0**12
_WIDEST = math.pi / 8.0  # a strip in which w falls as fast as in the proof beyond the nodes
_FARTHEST = 300.0  # e^300 squared is a double
# Cells of a bound beyond the nodes, and places at which a plan looks. Any values are sound.
_CELL, _LOOKS = 1.0 / 64.0, 96


@dataclass(frozen=True)
class SmoothEnd:
    """A smooth end is the weight w(y) = Phi(-(e^(y - edge) - 1) / width).

    Attributes:
        edge: a multiple of 2^-12.
        width: a power of two, below 1.
    """

    edge: float
    width: float

    @staticmethod
    def near(edge: float, width: float) -> SmoothEnd:
        """Returns the smooth end whose edge is ``edge``, rounded."""
        return SmoothEnd(round(edge * _EDGES) / _EDGES, width)

    @property
    def strip(self) -> float:
        """The widest strip |Im y| that is worth a look: w grows by about e^(b^2 / (2 width^2))."""
        return min(12.0 * self.width, _WIDEST)

    def depth(self, y: FloatArray) -> FloatArray:
        """Returns u at y: how far beyond the edge that is, in widths."""
        return np.asarray(np.expm1(np.minimum(y - self.edge, _FARTHEST)) / self.width)

    def log_share(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns ln w at the nodes y; and its error, with that of three sums that it is part of.

        The nodes are such that y - edge is exact.
        """
        u = self.depth(y)
        log = log_normal_tail(u)
        # expm1 moves u, and |d ln Phi(-u) / du| <= max(u, 0) + 1
        off = EXPM1 * np.abs(u) * (np.maximum(u, 0.0) + 1.0) + 3.0 * np.abs(log)
        return log, outwards(log_normal_tail_slack(u) + off * UNIT)

    def log_cells(self, y: FloatArray, shift: float) -> FloatArray:
        """Bounds ln |w| on Im = shift in each cell between neighbours of y: (k,) for k + 1."""
        real, side = self._moved(y, shift)
        log = 0.5 * side[1:] ** 2 + log_normal_tail(real[:-1])
        return np.asarray(log + self._slack(y, real[:-1], side[1:], log))

    def log_spilled(self, y: FloatArray, shift: float) -> FloatArray:
        """Bounds ln of how far |w(y + i shift)| is above w(y), in each cell: (k,) for k + 1."""
        real, side = self._moved(y, shift)
        # w itself is at least 0, or at least 1 less what is gone at the right end
        gone = np.logaddexp(
            log_normal_tail(-self.depth(y)[1:]),
            0.5 * side[1:] ** 2 + log_normal_tail(-real[1:]),
        )
        log = gone + self._slack(y, real[1:], side[1:], gone)
        return np.minimum(log, self.log_cells(y, shift))

    def _slack(
        self, y: FloatArray, real: FloatArray, side: FloatArray, log: FloatArray
    ) -> FloatArray:
        # V and the logarithms are within a relative 1e-13; U by some units of e^(y - edge) / width,
        # and |d ln Phi(-U) / dU| <= |U| + 1
        ratio = np.exp(np.minimum(y[1:] - self.edge, _FARTHEST)) / self.width
        moved = 16.0 * UNIT * (np.abs(real) + 1.0) * ratio
        return np.asarray(1e-12 * (1.0 + side**2 + np.abs(log)) + moved)

    def growth_before(self, y: float, shift: float) -> float:
        """Bounds |w| on Im = shift to the left of y, over w(y)."""
        _, side = self._moved(np.array([y]), shift)
        log = 0.5 * float(side[0]) ** 2 - float(self.log_share(np.array([y]))[0][0])
        return math.exp(min(log, _FARTHEST)) * (1.0 + 1e-9)

    def _moved(self, y: FloatArray, shift: float) -> tuple[FloatArray, FloatArray]:
        ratio = np.exp(np.minimum(y - self.edge, _FARTHEST))
        return (ratio * math.cos(shift) - 1.0) / self.width, ratio * math.sin(shift) / self.width

    def places(self, power: float, goal: float) -> FloatArray:
        """Returns places from the edge to where w S^power is below e^-goal, ascending."""
        most = math.sqrt(2.0 * (goal + power * (max(0.0, self.edge) + 30.0))) + 1.0
        u = np.append(0.0, np.geomspace(0.1, most, _LOOKS))
        return np.asarray(self.edge + np.log1p(u * self.width))

    def steps(self, log_mass: float) -> tuple[FloatArray, FloatArray]:
        """Returns places and numbers for which 1 - w(y) is at most the sum of those before y.

        Args:
            log_mass: ln of what the number before all places is to be below, about.

        Returns:
            Places (k,), the first of which is -inf, and numbers (k,) that belong to them.
        """
        least = max(-math.sqrt(2.0 * max(1.0, -log_mass)) - 1.0, -1.0 / self.width)
        u = np.linspace(least, 2.0, 12)
        with np.errstate(divide="ignore"):
            places = self.edge + np.log1p(u * self.width)
        # a place is rounded, which moves u by some units of itself over the width
        moved = 8.0 * UNIT * (abs(self.edge) + 1.0) / self.width * (np.abs(u) + 2.0)
        gone = np.append(np.exp(log_normal_tail(-u)) * (1.0 + 1e-9 + 2.0 * moved), 1.0)
        return np.append(-np.inf, places), np.append(gone[0], np.diff(gone))

    def after(self, power: float, start: float, t: float = 0.0, shift: float = 0.0) -> After:
        """Bounds |w S^s| on Im = shift beyond ``start``, over w S^power at ``start``.

        It holds for Re s = power > 0 and |Im s| <= t; its rate is negative where shift > pi / 8, of
        which nothing is said. |S|, arg S and V are at most what they are at the right end of a
        cell, and Phi(-U) <= e^(-U^2 / 2) / 2 for U >= 0.
        """
        # -U^2 / 2 + V^2 / 2 is about -e^(2 (y - edge)) cos(2 shift) / (2 width^2): less than
        # -power y - t shift - GOAL from here on
        large = 4.0 * (power * (max(0.0, self.edge) + 30.0) + t * shift + GOAL)
        far = max(start, self.edge + 0.5 * math.log(large * self.width**2 + 4.0))
        k = max(1, math.ceil((far - start) / _CELL))
        y = start + _CELL * np.arange(k + 1.0)
        log_s = np.logaddexp(0.0, y)
        real, side = self._moved(y, shift)
        fall = np.where(real > 0.0, 0.5 * real**2 + math.log(2.0), 0.0)
        share = float(self.log_share(np.array([start]))[0][0])
        rise = power * (log_s[1:] - log_s[0]) + 0.5 * side[1:] ** 2
        # logarithms and squares within a relative 1e-9
        off = 1e-9 * (power * (log_s[1:] + log_s[0]) + side[1:] ** 2 + abs(share)) + 1e-12
        angles = t * np.arctan2(math.sin(shift), np.exp(-y[1:]) + math.cos(shift))
        logs = rise - share + off + angles * (1.0 + 1e-9)
        # from the end on U^2 - V^2 rises as fast as e^(2 (y - edge)) cos(2 shift) - ..., at least
        ratio = math.exp(min(float(y[-1]) - self.edge, _FARTHEST))
        if shift > _WIDEST:
            ratio = 0.0
        rate = ratio * (ratio * math.cos(2.0 * shift) - math.cos(shift)) / self.width**2 - power
        rest = logs[-1:] - fall[-1:] * (1.0 - 1e-9) + t * shift
        return After(np.diff(y), (logs - fall[:-1] * (1.0 - 1e-9))[None, :], rest, rate)
