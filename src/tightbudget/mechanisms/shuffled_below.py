"""A lower bound of shuffled batches: a sum over the batches, where all others are opposite."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from tightbudget.mechanisms.allocated_below import Sums
from tightbudget.mechanisms.allocated_law import Law, sum_of_many, sum_of_two
from tightbudget.mechanisms.allocated_ratio import OneRatio
from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.gaussian import GaussianPair
from tightbudget.numerics.enclosure import Enclosure
from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.numerics.special import normal_masses
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import zero

_LEAST = 1e-280  # a mass of an interval below it is dropped, with all outputs that have it
_CERTAIN = 1e-6  # so is one that is not known to this share
# The error of all masses of all runs, in deviations of their loss: an epsilon of a tenth of that
# is known to 1e-4 of itself. Affects which sum a lower bound is that of, never truth.
_CLOSE = 5e-6


@dataclass(frozen=True)
class SumOfExponentials(Mechanism):
    """The sum of e^(2 m z) over ``steps`` normal variables z, one of which tells the data set.

    All have variance 1. The odd one has mean 2 m with the record and mean m without; the others
    have mean 0. Each e^(2 m z) is rounded to a lattice, and what is seen is the sum.

    Guarantee: the pair that it offers is a post-processing of the outputs of shuffled batches for
    two data sets. It bounds from below what the batches reveal. The density with the record over
    that without is the sum of e^(2 m z - 2 m^2) over that of e^(m z - m^2/2), whose sum varies
    less: with much noise this sum tells most of what there is.

    Args:
        m: the clip over sigma; the exact quotient may be 2^-53 off, relatively.
        steps: how many variables there are, at least 2.
    """

    m: float
    steps: int

    def pair(self, direction: Direction) -> AtomicPair:
        return _sums(self.m, self.steps).pair(direction)

    def is_close(self, runs: int) -> bool:
        """Says whether rounding leaves the bounds of so many runs close to each other."""
        deviation = math.sqrt(runs * math.expm1(min(self.m, 1.0) ** 2) / self.steps)
        return runs * _sums(self.m, self.steps).error <= _CLOSE * deviation


@functools.lru_cache(maxsize=16)
def _sums(m: float, steps: int) -> Sums:
    """The law of the sum of labels, without the record (absent) and with it (present)."""
    one = OneRatio.of(GaussianPair(2.0 * m), Direction.REMOVE, steps, flat=True)
    edges = one.plan.positions.ratio(one.grid.places, 1)
    first = int(edges[0] == 0.0)
    # a cell's label is that of its right end; what is left or right of all of them is dropped
    cuts = np.log(edges[first:]) / (2.0 * m) + m
    rows, error = _labelled(cuts, (0.0, m, 2.0 * m), drop_first=not first)
    others, zeroed, there = (
        Law(1, one.grid.pieces(row[None, :]), error, (0.0, 0.0), merged=True) for row in rows
    )
    rest = sum_of_many(others, steps - 1, one.plan)
    # guard: zeroed-record-adds-to-the-sum
    absent = sum_of_two(zeroed, rest, one.plan)
    return Sums.between(absent, sum_of_two(there, rest, one.plan), zero())


def _labelled(
    cuts: FloatArray, means: tuple[float, ...], *, drop_first: bool
) -> tuple[FloatArray, float]:
    """Masses of the cells that end at each cut, for each mean, and how far they may be off.

    Args:
        cuts: (n,) ascending.
        means: those of normal variables of variance 1; each may be 2^-52 off, relatively.
        drop_first: whether the first cell is dropped; else a cell that is empty stands before it.
    """
    each = [masses_between(cuts, mean) for mean in means]
    kept = np.ones(cuts.size + 1, dtype=bool)
    off = np.zeros(cuts.size + 1)
    for cell in each:
        kept &= cell.lower > _LEAST
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.fmax(off, (cell.upper - cell.lower) / (2.0 * cell.lower) + 8 * UNIT)
    kept &= off < _CERTAIN
    kept[-1] = False
    if drop_first:
        kept[0] = False
    rows = np.array([np.where(kept, (cell.lower + cell.upper) / 2.0, 0.0) for cell in each])[:, :-1]
    if not drop_first:
        rows = np.pad(rows, ((0, 0), (1, 0)))
    return rows, float(np.max(off[kept], initial=0.0))


def masses_between(cuts: FloatArray, mean: float) -> Enclosure:
    """The n + 1 masses of N(mean, 1) between n ascending cuts."""
    slack = 2 * UNIT * (np.abs(cuts) + mean)
    # cuts are doubles, a difference rounds once
    gaps = np.diff(cuts, prepend=-np.inf, append=np.inf)
    return normal_masses(cuts - mean, slack, gaps, 2 * UNIT * np.abs(gaps))
