"""The law of one step's ratio at the points of a lattice, made from the pair of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tightbudget.mechanisms.allocated_law import Piece, added
from tightbudget.mechanisms.allocated_plan import (
    LOST,
    NO_MASS,
    LatticePlan,
    Levels,
    LogLabels,
    RatioSketch,
    planned,
    planned_flat,
    planned_logs,
)
from tightbudget.numerics.enclosure import Enclosure, exp_enclosure
from tightbudget.numerics.rounding import LOG, UNIT, FloatArray, add_up, outwards, sum_up
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Pair, zero


@dataclass(frozen=True)
class OneRatio:
    """The masses of one ratio at the points of a lattice, and the plan that made them."""

    plan: LatticePlan
    grid: _Edges
    shares: _Shares
    infinite: Enclosure

    @staticmethod
    def of(
        pair: Pair,
        direction: Direction,
        steps: int,
        *,
        flat: bool = False,
        logs: LogLabels | None = None,
        finer: int = 0,
    ) -> OneRatio:
        """Asks a step's pair for its masses between the points that an average of ratios needs.

        Args:
            pair: the pair of one step.
            direction: which side of it has the record: P for ``REMOVE``, Q for ``ADD``.
            steps: of how many ratios the average is.
            flat: whether the points are those of one step of the lattice for all sums.
            logs: the labels that the points are those of, in place of ratios.
            finer: how often the distance of points is halved.
        """
        remove = direction is Direction.REMOVE
        picture = RatioSketch.of(pair, direction)
        picture = picture.reaching(pair, direction, LOST / steps)
        if logs is not None:
            plan, (least, low, high) = planned_logs(picture, steps, logs)
        elif flat:
            plan, (least, low, high) = planned_flat(picture, steps)
        else:
            plan, (least, low, high) = planned(picture, steps, finer)
        grid = _Edges.of(plan.table(1, 0, low, high)[1], least, high, zero=picture.zero > 0)
        places = plan.positions.ratio(grid.places, 1)
        shares = _Shares(places if logs is None else logs.ratio(places))
        shares.add_bins(pair, remove=remove)
        shares.add_atoms(pair.atoms(), remove=remove)
        alone = (pair.q_only(), pair.p_only())
        nothing, infinite = alone if remove else alone[::-1]
        shares.add_zero(nothing)
        return OneRatio(plan, grid, shares, infinite)


@dataclass(frozen=True)
class _Edges:
    """Lattice points with the levels of a table, ascending.

    Attributes:
        places: (n,) in units.
        runs: of each level the first index and the number of points.
    """

    places: FloatArray
    runs: tuple[tuple[int, int, int], ...]  # level, first index, number

    @staticmethod
    def of(table: Levels, low: float, high: float, *, zero: bool) -> _Edges:
        """All points from just below ``low`` to just above ``high``, and zero.

        The first level begins below ``low``, the others where the table says.
        """
        places, runs = [], []
        for j, (level, start) in enumerate(table):
            last = j == len(table) - 1
            # 2 more: what lies within rounding of the end has a point above it
            end = (
                math.ceil(high / 2.0**level) + 2
                if last
                else table[j + 1][1] << (table[j + 1][0] - level)
            )
            begin = max(0, math.floor(low / 2.0**level) - 1) if j == 0 else max(start, 0)
            if j == 0 and begin > 0 and zero:
                places.append(np.zeros(1))
                runs.append((level, 0, 1))
            if end > begin:
                places.append(np.arange(begin, end, dtype=np.float64) * 2.0**level)
                runs.append((level, begin, end - begin))
        return _Edges(np.concatenate(places), tuple(runs))

    def pieces(self, rows: FloatArray) -> tuple[Piece, ...]:
        """The pieces that hold ``rows``, one entry a point."""
        found: dict[int, list[Piece]] = {}
        at = 0
        for level, first, number in self.runs:
            piece = Piece(level, first, rows[:, at : at + number])
            found.setdefault(level, []).append(piece)
            at += number
        return tuple(added(found[level]) for level in sorted(found))


class _Shares:
    """The masses of one ratio in the cells between ascending edges, the first of which is 0 or
    the least ratio.

    Cell i ends at edge i; what lies above the last edge, or below the first one, is lost.
    """

    def __init__(self, edges: FloatArray) -> None:
        self.edges = edges
        # for the right one of an interval of ratios, and for the left one: each is an upper law in
        # one direction, and the larger of both at each edge is one in both directions
        self._high, self._low = np.zeros(edges.size), np.zeros(edges.size)
        self._lost = [(0.0, 0.0)]
        self._crowd = np.zeros(edges.size, dtype=np.intp)  # how many terms each edge is the sum of
        self._drift = [0.0]
        # of each cell that is kept below: index, absent, present, relative error
        self._cells: list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]] = []

    def add_bins(self, pair: Pair, *, remove: bool) -> None:
        """Adds the continuous part."""
        first = int(self.edges[0] == 0.0)
        e = self.edges[first:]
        losses = np.log(e) if remove else -np.log(e)[::-1]
        slack = 8 * UNIT + (LOG + 4) * UNIT * np.abs(losses)
        bins = pair.bins(losses, slack)
        if bins is None:
            return
        reference = np.append(losses, losses[-1])
        scale = exp_enclosure(-reference, np.append(slack, slack[-1]))
        q = bins.q * scale
        absent, present = (q, bins.p) if remove else (bins.p, q)
        # ratio = e^r / w, or its reverse
        ratio = (
            exp_enclosure(reference, np.append(slack, slack[-1])) / bins.w
            if remove
            else (bins.w * scale)
        )
        if remove:
            ends = slice(0, e.size)
            beyond = e.size
        else:  # from the last bin to the first: the ratio rises
            order = np.arange(e.size, -1, -1)
            absent, present, ratio = absent[order], present[order], ratio[order]
            ends, beyond = slice(0, e.size), e.size
        self._lose(absent[beyond], present[beyond])
        if not first:
            self._lose(absent[0], present[0])
            ends = slice(1, e.size)
        cell = np.arange(first, self.edges.size) if first else np.arange(1, e.size)
        self._add(cell, absent[ends], present[ends], ratio[ends], remove=remove)

    def add_atoms(self, atoms: Atoms, *, remove: bool) -> None:
        """Adds the outputs that have one ratio each."""
        if not len(atoms):
            return
        low, high = atoms.loss_lower, atoms.loss_upper
        if not remove:
            low, high = -high, -low
        middle = (low + high) / 2.0
        ratio = exp_enclosure(middle, (high - low) / 2.0 + 2 * UNIT * np.abs(middle))
        # P = e^L Q says a Q-mass that has lost its relative precision
        given = atoms.p
        other = given / ratio if remove else given * ratio
        absent, present = (other, given) if remove else (given, other)
        cell = np.searchsorted(self.edges, ratio.upper, "left")
        outside = (cell == 0) | (cell == self.edges.size)
        self._lose(absent[outside], present[outside])
        inside = ~outside
        self._add(cell[inside], absent[inside], present[inside], ratio[inside], remove=remove)

    def add_zero(self, absent: Enclosure) -> None:
        """Adds the outputs that have no mass where the record is present."""
        if not absent.upper[0] > 0:
            return
        if self.edges[0] != 0.0:
            self._lose(absent, zero())
            return
        self._high[0] += absent.upper[0]
        self._low[0] += absent.upper[0]
        self._crowd[0] += 1
        nothing = np.zeros(1)
        self._cells.append((nothing, absent.lower, nothing, nothing))

    # Proof: proofs/order.v, theorem spread_law
    def spread(self) -> FloatArray:
        """The masses at the edges of a law that is larger in convex order."""
        return np.maximum(self._high, self._low)

    def lost(self) -> tuple[float, float]:
        """The masses outside the edges where the record is absent, and present."""
        absent, present = zip(*self._lost, strict=True)
        return add_up(*absent), add_up(*present)

    def error(self) -> float:
        """The relative error that rounding may have made in an entry of :meth:`spread`.

        An entry is the sum of the terms that fall at its edge: a sum of n terms >= 0 rounds n - 1
        times in any order, each time by a unit of 2^-53 of itself at most. A term is a mass times
        its share, or times 1 less that: two roundings. The share itself may be off: it then keeps
        a mean that is off by three units of itself, which ``MARGIN`` counts. That is n + 1 units;
        16 leave room for products of errors, and for a share that sums of parts round once more.
        """
        return (int(np.max(self._crowd)) + 16) * UNIT  # guard: crowd-of-an-edge

    def drift(self) -> float:
        """By how much spreading may have moved the mean ratio, at most.

        A cell's mean ratio is known as an interval. The mass that goes to its ends keeps the upper
        end of that in one direction, and the lower one in the other: each is off by the length of
        the interval at most, and as much of the whole as the cell holds.
        """
        return add_up(*self._drift)

    # Proof: proofs/order.v, theorem merge_law
    def merged(self) -> tuple[FloatArray, float]:
        """The masses of the cells, absent and present, and how far they may be off.

        An output may be dropped with some probability: that is post-processing, and gives it
        masses whose quotient alone is uncertain.
        """
        index, absent, present, off = (
            np.concatenate([cells[i] for cells in self._cells]) for i in range(4)
        )
        worth = absent + present
        # quotients that are too uncertain are left out; which ones, is the cheaper of two costs
        best = min(
            (10.0**-k for k in range(2, 12)),
            key=lambda most: (
                float(np.sum(worth[off > most])) + float(np.max(off[off <= most], initial=0.0))
            ),
        )
        kept = off <= best
        index = index[kept].astype(np.intp)
        rows = np.array([
            np.bincount(index, part[kept], self.edges.size) for part in (absent, present)
        ])  # fmt: skip
        crowd = int(np.max(np.bincount(index), initial=0))
        error = float(np.max(off[kept], initial=0.0)) + (crowd + 16) * UNIT
        return rows, outwards(error)  # guard: uncertain-quotient

    def _lose(self, absent: Enclosure, present: Enclosure) -> None:
        self._lost.append((sum_up(absent.upper), sum_up(present.upper)))

    def _add(
        self,
        cell: NDArray[np.intp],
        absent: Enclosure,
        present: Enclosure,
        ratio: Enclosure,
        *,
        remove: bool,
    ) -> None:
        """Adds masses with a ratio inside each given cell."""
        n = self.edges.size
        left, width = self.edges[cell - 1], self.edges[cell] - self.edges[cell - 1]
        for array, at in ((self._high, ratio.upper), (self._low, ratio.lower)):
            share = np.clip((at - left) / width, 0.0, 1.0)  # guard: mean-is-kept
            array += np.bincount(cell, absent.upper * share, n)
            array += np.bincount(cell - 1, absent.upper * (1.0 - share), n)
        self._crowd += np.bincount(cell, minlength=n) + np.bincount(cell - 1, minlength=n)
        low, high = (np.clip(end, left, left + width) for end in (ratio.lower, ratio.upper))
        self._drift.append(sum_up(absent.upper * (high - low)) * (1.0 + 8 * UNIT))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            middle = (ratio.lower + ratio.upper) / 2.0
            off = (ratio.upper - ratio.lower) / (2.0 * middle) + 8 * UNIT
            known = np.isfinite(middle) & (middle > 0) & np.isfinite(off)
            if remove:
                kept, other = present.lower, present.lower / middle
                rows = other, kept
            else:
                kept, other = absent.lower, absent.lower * middle
                rows = kept, other
        known &= kept > NO_MASS
        self._cells.append((
            cell[known].astype(np.float64), rows[0][known], rows[1][known], off[known]
        ))  # fmt: skip
