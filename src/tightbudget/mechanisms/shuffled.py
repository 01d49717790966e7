"""A noisy sum over each batch of a loader that permutes the records and cuts equal batches."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from scipy import special as sp

from tightbudget.errors import ParameterError, RelationError
from tightbudget.mechanisms.allocated import MOST_STEPS, Allocated
from tightbudget.mechanisms.attained import telling_most
from tightbudget.mechanisms.composition import Composable, Mechanism
from tightbudget.mechanisms.derived import Derived
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.mechanisms.shuffled_above import above_shuffled
from tightbudget.mechanisms.shuffled_below import SumOfExponentials, masses_between
from tightbudget.mechanisms.unhidden import Unhidden
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure, stack, where
from tightbudget.numerics.rounding import EXPM1, LOG1P, UNIT, FloatArray, mul_up, root_up
from tightbudget.numerics.special import (
    log_normal_tail,
    log_normal_tail_slack,
)
from tightbudget.numerics.validate import count, positive_count, refuse
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

# Cells that the largest sum is cut into. With their neighbours' losses merged, the lower bound
# falls short of that of all cells by a share that falls with the square of this number: at 16,000
# by 1e-6 of epsilon at most, measured against 64,000 cells for sigma from 0.3 to 20. Below 2^14
# outputs one run is enumerated, without a grid.
_CELLS = 16_000
_TAIL = 39.0  # a standard normal variable lies further out with less than the least mass, TINY
# Below this clip over sigma, and up to so many batches, a sum of exponentials may tell most: with
# less noise the largest sum does, and with more batches the lattice of the sum is too coarse.
_STEEP, _MANY = 0.9, 10**5
_MOST_STEPS = 10**9  # batches; up to here the powers' exponents keep seven digits


@dataclass(frozen=True)
class Shuffled(Derived):
    """One epoch over shuffled batches: each record is in exactly one of ``steps`` batches.

    The records are permuted afresh for every epoch, each order as likely, and cut into ``steps``
    batches of equal size, but that ``smaller`` of them have fewer records, as a last batch may.
    Each batch's sum of clipped records is released with Gaussian noise. The neighbour has one
    record zeroed: its place in the permutation stays, empty (``Neighbouring.ZERO_OUT``).
    ``mechanism * epochs`` is a training run.

    Guarantee: the exact epsilon and delta lie between two bounds.

    The upper bound hides the record among other ones (:mod:`tightbudget.mechanisms.shuffled_above`
    has the theorem and its proof): with much noise the noisy sum of a batch looks like one with an
    empty place with a probability that is known, whatever its records are, and the record may be in
    any of the batches that do. It is at most that of one ``base`` per epoch, a permutation that the
    attacker is told, but for a share of some 1e-3: with little noise both are the same.

    The lower bound is attained by two data sets: all other records are -c v and the one record is
    c v, for a unit vector v and the clip c. Beside the common -(batch size) c in the direction v,
    the batch of the record has mean 2 c where it is there and c where it is zeroed, at a random
    place. The largest of the noisy sums, cut into cells, is a function of the outputs; so is a sum
    over the batches of exponentials of them, rounded to a lattice; and the sum of all batches, a
    Gaussian mechanism with steps^(1/2) times the noise. The lower bound is that of the one that
    tells most at delta = 1e-6.

    In an epoch on a sample (``shuffled(steps).subsampled(rate)``) all places are permuted and cut,
    and a record that is not in the sample leaves its place empty. Empty places hide the record: its
    upper bound is that of random allocation to at least the share 1 - rate of the batches. Its
    lower bound is that of data in which all other records are 0. An epoch that draws its sample
    first, and cuts it into equal batches, has no bound here.

    Examples at delta = 1e-5: ``Gaussian(0.5).shuffled(1000)`` has an epsilon in [9.9966, 9.9973],
    where Poisson sampling with the same batch size has 3.24; 10 epochs of
    ``Gaussian(1.0).shuffled(1000)`` one in [4.48, 6.36], where a permutation that is told has 17.9.
    10 epochs of ``Gaussian(1.0).shuffled(1000).subsampled(0.1)`` have one in [0.0379, 0.0413].

    Renyi divergences have the upper bound of one ``base`` per epoch, or of a sample of it.
    Source: Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha, Zhang 2024, "How private are DP-SGD
    implementations?", for the data sets; Feldman, McMillan, Talwar 2021, "Hiding among the clones",
    for the idea of the upper bound.

    Args:
        base: the Gaussian mechanism of one batch; its sensitivity is the norm that each record is
            clipped to, and its sigma the standard deviation of the noise on a batch's sum.
        steps: how many batches an epoch has, an integer from 1 to 10^9.
        smaller: how many of them have fewer records than the others, an integer from 0 to
            ``steps - 1``: 1 where a last batch has what is left.

    Raises:
        ParameterError: ``base`` is not a :class:`~tightbudget.Gaussian`, or ``steps`` or
            ``smaller`` is out of its range.
        RelationError: ``base`` was declared for another relation than ``Neighbouring.ZERO_OUT``.
    """

    steps: int
    smaller: int = 0

    kind: ClassVar[str] = "shuffled"
    key: ClassVar[str] = "shuffled"
    # the pair is that of one Gaussian mechanism, or of a curve that bounds both directions
    symmetric: ClassVar[bool] = True
    mutual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.base, Gaussian):
            raise ParameterError(
                f"base must be a Gaussian, got {self.base!r}: shuffled batches have two certified "
                "ends for Gaussian noise alone (any mechanism that runs once per epoch on the "
                "record is an upper bound for its own shuffle)"
            )
        steps = positive_count(steps=self.steps)
        if steps > _MOST_STEPS:
            raise refuse("steps", f"be at most {_MOST_STEPS}", self.steps)
        for relation in (self.relation, self.base.relation):
            if relation not in (None, Neighbouring.ZERO_OUT):
                raise RelationError(
                    f"shuffled batches hold for {Neighbouring.ZERO_OUT} (a record's place stays, "
                    f"empty), but {relation} was declared"
                )
        smaller = count(smaller=self.smaller)
        if smaller >= steps:
            raise refuse("smaller", f"be below steps ({steps})", self.smaller)
        self._set(steps=steps, smaller=smaller, relation=Neighbouring.ZERO_OUT)

    def _hiding(self) -> int:
        """Counts the batches that the upper bound hides a record in, which have one size."""
        return self.steps - self.smaller  # guard: small-batches-hide-less

    def pair(self, direction: Direction) -> Pair:
        """Returns the upper bound for a direction: that of hidden records, or of one ``base``."""
        return self.pair_in_sample(direction, 1.0)

    def pair_in_sample(self, direction: Direction, rate: float) -> Pair:
        """Returns the upper bound of an epoch that has the record, the others with chance rate."""
        assert isinstance(self.base, Gaussian)
        hiding = self._hiding()
        above = above_shuffled(self.base, hiding, rate) if hiding > 1 else None
        return (above or self.base).pair(direction)

    def worst_of_order(self, order: float) -> Mechanism | None:
        return Unhidden(self, self.base, relation=self.relation)

    def instance(self) -> Mechanism | None:
        """Returns the largest of the noisy sums of the two data sets that the class describes.

        Returns:
            None for a single batch, where the pair itself is attained.
        """
        if self.steps == 1:
            return None
        assert isinstance(self.base, Gaussian)
        quotient = self.base.sensitivity / self.base.sigma
        return LargestSum(quotient, self.steps, relation=self.relation)

    def instance_of_runs(self, runs: int) -> Composable | None:
        """Returns so many epochs of that one of three sums which tells most.

        All are functions of the outputs for the data sets that the class describes.
        """
        largest = self.instance()
        if largest is None:
            return None
        assert isinstance(self.base, Gaussian)
        each = [largest, self._all_batches()]
        quotient = self.base.sensitivity / self.base.sigma
        if quotient < _STEEP and self.steps <= _MANY:
            sums = SumOfExponentials(quotient, self.steps, relation=self.relation)
            each += [sums] * sums.is_close(runs)
        return telling_most(tuple(each), runs) * runs

    def _all_batches(self) -> Gaussian:
        """The sum of all batches, in which the record counts once and the noise so often."""
        assert isinstance(self.base, Gaussian)
        # guard: noise-of-all-batches
        sigma = mul_up(self.base.sigma, root_up(Fraction(self.steps)))
        return Gaussian(sigma, self.base.sensitivity, relation=self.relation)

    def instance_alone(self) -> Mechanism | None:
        """Returns an epoch of one record that is in a random batch, where all others are 0.

        Returns:
            None for more batches than random allocation takes.
        """
        if self.steps > MOST_STEPS:
            return None
        # guard: shuffled-alone
        alone = Allocated(self.base, self.steps).instance()
        return alone if isinstance(alone, Mechanism) else None

    @property
    def apart(self) -> str:
        return "shuffled batches" if self.steps > 1 else ""


@dataclass(frozen=True)
class LargestSum(Mechanism):
    """The largest of ``steps`` normal variables, one of which has a mean that tells the data set.

    All have variance 1. The odd one has mean 2 m with the record and mean m without; the others
    have mean 0. The largest of all is at most x with probability Phi(x - mean) Phi(x)^(steps - 1).

    Guarantee: the pair that it offers has enclosed masses of cells of the largest value: what an
    observer of shuffled batches can compute. It bounds from below what the batches reveal.

    Args:
        m: the clip over sigma; the exact quotient may be 2^-53 off, relatively.
        steps: how many variables there are, at least 2.
    """

    m: float
    steps: int

    def pair(self, direction: Direction) -> Pair:
        return _pair_of_largest(self.m, self.steps, direction)


@functools.lru_cache(maxsize=64)
def _pair_of_largest(m: float, steps: int, direction: Direction) -> AtomicPair:
    """The cells of the largest value with the record against those without it, or in reverse."""
    masses = cell_masses(_cuts(m, steps), steps)
    # guard: zeroed-record-leaves-its-mark
    present, zeroed = masses(2.0 * m), masses(m)
    p, q = (present, zeroed) if direction is Direction.REMOVE else (zeroed, present)
    # a Q-mass that no double holds is raised to one that does: the cell then shows less, and for
    # a sigma below a thirtieth of the clip nothing would be left of the bound without it
    vanished = (p.lower > 0) & (q.lower == 0)
    return AtomicPair.from_masses(p, where(vanished, exact(q.upper), q))


def cell_masses(cuts: FloatArray, steps: int) -> Callable[[float], Enclosure]:
    """The masses of cells of the largest of ``steps`` variables, as a function of the odd mean.

    A cell (a, b] has the mass (Phi(b - s) - Phi(a - s)) Phi(b)^k + Phi(a - s) (Phi(b)^k -
    Phi(a)^k) for the mean s and k = steps - 1: two terms >= 0, neither of which cancels.

    Args:
        cuts: (n,) ascending values that cut the line into n + 1 cells.
        steps: how many variables there are, at least 2.
    """
    k = steps - 1
    log_phi, off = _log_phi(cuts)
    # Phi(b)^k, where Phi(inf) = 1
    powers = exp_enclosure(k * log_phi, k * off + 2 * UNIT * np.abs(k * log_phi))
    powers = stack(powers, exact(np.ones(1)))
    # 1 - (Phi(a) / Phi(b))^k, where ln(Phi(b) / Phi(a)) = ln(1 + mass of (a, b] / Phi(a))
    inner = masses_between(cuts, 0.0)[1:-1] / exp_enclosure(log_phi, off)[:-1]
    low = np.log1p(inner.lower) * (1 - LOG1P * UNIT)
    high = np.log1p(inner.upper) * (1 + LOG1P * UNIT)
    last = -log_phi[-1:]  # for b = inf
    rise = k * np.append(low, last - off[-1:]), k * np.append(high, last + off[-1:])
    # k times it rounds once, and expm1 passes a relative error on without enlarging it
    margin = (EXPM1 + 2.0) * UNIT
    gain = Enclosure(
        -np.expm1(-np.maximum(rise[0], 0.0)) * (1 - margin),
        np.minimum(-np.expm1(-rise[1]) * (1 + margin), 1.0),
    )
    gain = stack(exact(np.zeros(1)), gain)  # nothing is below the first cell

    def largest(mean: float) -> Enclosure:
        moved = cuts - mean
        # the mean is m, rounded, times 1 or 2
        slack = 2 * UNIT * (np.abs(cuts) + mean)
        below, wrong = _log_phi(moved)
        # d ln Phi(z) / dz is at most |z| + 1
        before = exp_enclosure(below, wrong + slack * (np.abs(moved) + 1.0 + slack))
        before = stack(exact(np.zeros(1)), before)
        # guard: others-may-be-the-largest
        mass = (masses_between(cuts, mean) + before * gain) * powers
        return mass.clipped(0.0, 1.0)  # for a mean of 1e11 rounding alone leaves more than that

    return largest


def _cuts(m: float, steps: int) -> FloatArray:
    """Ascending values that cut the line into cells, where the largest of the variables may lie.

    Any cuts give a true lower bound; equal lengths give losses whose steps are at most m times
    the length.
    """
    # below this value all steps - 1 variables lie with less than the least mass
    low = max(-_TAIL, float(sp.ndtri_exp(-700.0 / (steps - 1))))
    parts = [low, _TAIL], [m - _TAIL, m + _TAIL], [2.0 * m - _TAIL, 2.0 * m + _TAIL]
    # where the means are far apart, nothing lies between them
    spans: list[list[float]] = []
    for begin, end in parts:
        begin = max(begin, low)
        if spans and begin <= spans[-1][1]:
            spans[-1][1] = end
        else:
            spans.append([begin, end])
    whole = math.fsum(end - begin for begin, end in spans)
    return np.unique(
        np.concatenate(
            [
                np.linspace(begin, end, math.ceil(_CELLS * (end - begin) / whole))
                for begin, end in spans
            ]
        )
    )


def _log_phi(z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """ln Phi(z) at each point, and how far it may be off: a share of itself for z > 0."""
    tail = np.exp(log_normal_tail(np.maximum(z, 0.0)))
    right = np.log1p(-np.minimum(tail, 0.5))
    # log_normal_tail is off by its slack, exp by 8 units, and ln(1 - x) moves by 2 dx for x <= 1/2
    relative = log_normal_tail_slack(np.maximum(z, 0.0)) + 8 * UNIT
    right_off = 2.02 * tail * relative + LOG1P * UNIT * np.abs(right)
    left, left_off = log_normal_tail(-z), log_normal_tail_slack(-z)
    return np.where(z > 0, right, left), np.where(z > 0, right_off, left_off)
