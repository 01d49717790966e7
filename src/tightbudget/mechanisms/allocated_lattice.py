"""The law of an average of ratios on a lattice, certified from above and from below.

A record that is in one of t steps, chosen uniformly, has the ratio R = (X_1 + ... + X_t) / t: X_i
is the density of step i's output with the record present over the density with it absent, and all
X_i are independent where the record is absent. Each delta of that pair, and of any composition with
it, is an expectation of a convex function of R. So two laws on a lattice of positions certify it:

- *spread*: the mass between two lattice points goes to both of them, in shares that keep its mean.
  That law is larger in convex order, for the average, too: its pair dominates.
- *merged*: all outputs between two lattice points become one output. That is post-processing: the
  exact pair dominates the merged one.

A law is a list of pieces, each on the multiples of its own step: fine ones near zero and around the
mean, coarser ones far to the right, where single large ratios lie. Sums are taken by adding
products of masses, never by a transform, so that each entry keeps its relative precision in both
tails.

Source: convex order, Shaked, Shanthikumar 2007, Theorem 3.A.12; Feldman, Shenfeld 2025, "Privacy
amplification by random allocation", for the pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.convolve import convolve_directly
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure
from tightbudget.numerics.rounding import (
    LOG,
    UNIT,
    FloatArray,
    add_up,
    any_of,
    exp_down,
    exp_up,
    mul_down,
    mul_up,
    next_down,
    next_up,
    outwards,
    sub_down,
    sub_up,
    sum_down,
    sum_up,
)
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Pair, zero

# The variance that spreading may add, and merging may take, beside the variance of the average. An
# epsilon is proportional to the root of the variance, and half of this is its relative gap.
_VARIANCE = 4e-5
# Away from zero and beyond the bulk a step is at most this share of the distance from zero, and
# from the mean. A quarter of its square is variance of the logarithm: 1e-6, below _VARIANCE.
_RELATIVE = 1.0 / 512.0
_SHORT = 2048  # entries: shorter pieces are not made coarser, a product of two takes 0.4 ms
# Mass that may be cut off at both ends of all laws together. It counts as a certain loss above, so
# that deltas far above it are known closely; each factor of e^-12 costs a piece some 3 % of length.
_LOST = 1e-42
# An entry below this is no mass: products of two that are above it are normal doubles.
_NO_MASS = 1e-140
# Two to the power of this is the ratio of the steps of neighbouring pieces.
_APART = 2
# The step of the first piece right of the bulk is 2^3 steps of the bulk, since the bulk is made of
# so many more entries than _RELATIVE asks for.
_FIRST_APART = 3
# A ratio above it has less than _NO_MASS where the record is absent, but for a factor of 1e20.
_HUGE = 1e120
_FINER = 30  # pieces at most finer than the bulk's
_FINEST = _APART * _FINER  # levels at most below the bulk's
_MANY = 12  # pieces; with as many an average of a thousand ratios takes about half a second
_LEVELS = 128  # levels that a piece can rise by at once, at most
_FEW = 8  # outputs of a step: their ratios begin the lattice, so that two of them fit it exactly

_Table = tuple[tuple[int, int], ...]  # levels, ascending, each with the first index that has it


@dataclass(frozen=True)
class _Piece:
    """Masses at the positions (first + i) 2^level, i = 0, 1, ..., in units of the lattice.

    Row 0 is the mass of the outputs where the record is absent; row 1, if there is one, their mass
    where it is present. A spread law has row 0 alone: the position says what row 1 would be.
    """

    level: int
    first: int
    rows: FloatArray  # (1, n) or (2, n)

    @property
    def end(self) -> int:
        """The index after the last position."""
        return self.first + int(self.rows.shape[1])

    def part(self, start: int, end: int) -> _Piece:
        """Returns the positions with index ``start`` .. ``end`` - 1 alone."""
        start = min(max(start, self.first), self.end)
        end = max(min(end, self.end), start)
        return _Piece(self.level, start, self.rows[:, start - self.first : end - self.first])

    def coarser(self, levels: int, *, merged: bool) -> _Piece:
        """Returns this piece, spread or merged to a step that is 2^levels as wide."""
        piece = self
        for _ in range(levels):
            piece = piece._doubled(merged=merged)
        return piece

    def _doubled(self, *, merged: bool) -> _Piece:
        # an odd number of entries, from an even position to an even one
        before = self.first % 2
        size = self.rows.shape[1] + before
        rows = np.zeros((self.rows.shape[0], size + 1 - size % 2))
        rows[:, before:size] = self.rows
        even, odd = rows[:, 0::2].copy(), rows[:, 1::2]
        if merged:
            # each odd position joins the even one after it, so that position 0 stays alone
            even[:, 1:] += odd
        else:
            # halves are exact; an odd point lies in the middle of its neighbours
            even[:, :-1] += odd / 2.0  # guard: odd-point-spread
            even[:, 1:] += odd / 2.0
        return _Piece(self.level + 1, self.first // 2, even)


@dataclass(frozen=True)
class _Law:
    """The law of a sum of ``steps`` ratios.

    Guarantee: exact entries are within the relative ``error`` of the rows, and outputs that are in
    no row have at most ``lost`` of the mass where the record is absent, and present.
    """

    steps: int
    pieces: tuple[_Piece, ...]
    error: float
    lost: tuple[float, float]
    base: int = 0  # the level of the bulk
    merged: bool = False  # else spread

    def placed(self) -> Iterable[tuple[_Piece, FloatArray]]:
        """Each piece with the places of its entries in units of the lattice."""
        for piece in self.pieces:
            index = np.arange(piece.first, piece.end, dtype=np.float64)
            yield piece, index * 2.0**piece.level

    def ends(self, plan: _LatticePlan) -> tuple[float, float]:
        """The places between which this sum matters for the whole average."""
        places = np.concatenate([index for _, index in self.placed()])
        masses = np.concatenate([piece.rows[0] for piece in self.pieces])
        order = np.argsort(places, kind="stable")
        below = np.cumsum(masses[order])
        # the average is as small only if all its sums are
        rare = np.log(np.maximum(below, 1e-320)) * (plan.steps / self.steps) < math.log(_LOST)
        first = min(int(np.sum(rare)), places.size - 1)
        return float(places[order[first]]), float(places[order[-1]])


# Proof: proofs/order.v, theorems scaled_law, averages, law_of_pair
@dataclass(frozen=True)
class Spread:
    """The law of R = (X_1 + ... + X_t) / t from above.

    Guarantee: the pair of this law dominates the pair of R, in both directions.
    """

    law: _Law
    positions: _Positions
    infinite: Enclosure  # the mass that only the output with the record present has
    ends: tuple[float, float] = (0.0, math.inf)  # no ratio > 0 is below or above these

    @staticmethod
    def of(
        pair: Pair,
        direction: Direction,
        steps: int,
        finer: int = 0,
        *,
        reverse: Pair | None = None,
    ) -> Spread:
        """The law for ``steps`` ratios of one step's pair.

        Args:
            pair: the dominating pair of one step.
            direction: which side of it has the record: P for ``REMOVE``, Q for ``ADD``.
            steps: t >= 1.
            reverse: the pair with both sides exchanged, if it is known.
            finer: how often the width of the lattice is halved: each time spreading adds about a
                quarter of the variance.
        """
        one = _OneRatio.of(pair, direction, steps, finer=finer)
        rows = one.shares.spread()
        law = _Law(1, one.grid.pieces(rows[None, :]), one.shares.error(), one.shares.lost())
        ends = _ends_of_ratio(pair, reverse or pair.reversed(), direction)
        return Spread(_power(law, steps, one.plan), one.plan.positions, one.infinite, ends)

    def pair(self, direction: Direction) -> AtomicPair:
        """The pair for a direction."""
        remove = direction is Direction.REMOVE
        law = self.law
        places = [self.positions.ratio(index, law.steps) for _, index in law.placed()]
        ratio = np.concatenate(places)
        rows = np.concatenate([piece.rows[0] for piece in law.pieces])
        most = rows * (1.0 + law.error)  # guard: spread-rounding
        masses = Enclosure(rows * max(0.0, 1.0 - law.error), most)
        nothing = rows[ratio == 0.0]
        ratio, absent = _clipped(ratio, masses, *self.ends, above=remove)
        # a certain loss: what is in no piece, and an output that no record can leave behind
        # guard: lost-is-infinite
        only = [law.lost[1], float(self.infinite.upper[0])] if remove else [law.lost[0]]
        if not remove:
            only.append(sum_up(absent[ratio == 0.0]))  # guard: zero-ratio-is-infinite
        kept = (ratio > 0.0) & (absent > 0.0)
        ratio, absent = ratio[kept], absent[kept]
        loss = np.log(ratio) if remove else -np.log(ratio)
        p = absent * ratio * (1.0 + 8 * UNIT) if remove else absent
        margin = _MARGIN + (LOG + 2) * UNIT * np.abs(loss)
        # rounding upwards has made P more than 1: what is too much is in the upper bounds alone
        certain = min(1.0, add_up(*only))
        whole = float(np.sum(p)) * (1.0 + 1e-12)
        spare = 1.0 if whole <= 1.0 - certain else (1.0 - certain) / whole
        ends = Enclosure(p * spare, p)
        q = ends * exp_enclosure(-loss, margin)
        if remove:
            # guard: nothing-summed-outwards
            alone = sum_down(nothing), add_up(mul_up(sum_up(nothing), 1.0 + law.error), law.lost[0])
        else:
            alone = float(self.infinite.lower[0]), float(self.infinite.upper[0]) + law.lost[1]
        spare = 1.0 / max(1.0, (float(np.sum(q.lower)) + alone[0]) * (1.0 + 1e-12))
        q = Enclosure(q.lower * spare, q.upper)
        rest = Enclosure(np.array([alone[0] * spare]), np.array([min(1.0, alone[1])]))
        return AtomicPair(
            Atoms(ends, q, loss - margin, loss + margin),
            only_p=exact(certain),
            only_q=rest,
            tail_cut=not 0.0 < self.ends[1 if remove else 0] < math.inf,
        )


def _ends_of_ratio(pair: Pair, reverse: Pair | None, direction: Direction) -> tuple[float, float]:
    """A lower and an upper bound of the ratios > 0 and finite of one step; (0, inf) if unknown.

    The lower one is 0 where the ratio may be 0.
    """
    one, other = (pair, reverse) if direction is Direction.REMOVE else (reverse, pair)
    # guard: least-ratio-not-zero
    never = pair.q_only() if direction is Direction.REMOVE else pair.p_only()
    least, most = 0.0, math.inf
    if one is not None:
        most = exp_up(min(one.max_loss()[1], 1e3))
    if other is not None and not never.upper[0] > 0.0:
        least = exp_down(-other.max_loss()[1])
    return least, most


# Between a lattice point and the end of all ratios there is at least this share of the end, so that
# the difference keeps 24 bits: nearer points are passed over. Affects width, never truth.
_CLEAR = 2.0**-28


def _clipped(
    ratio: FloatArray, masses: Enclosure, least: float, most: float, *, above: bool
) -> tuple[FloatArray, FloatArray]:
    """The points of a spread law and upper bounds of their masses, none beyond the end of ratios.

    A law from above has points beyond the largest ratio M that there is. Where R stands for the
    exact average, E[(R - k)+] is convex in k and 0 at M: between a point a and M it is below the
    chord that ends there, and so is a law that has the points beyond a moved to a and M. With
    ``above`` the largest ratio is that end, for deltas of the form E[(R - k)+]; else it is the
    least one, for E[(k - R)+].

    Args:
        ratio: (n,) the points, each known within 4 units of 2^-53.
        masses: (n,) their masses.
        least: no exact ratio is below it.
        most: no exact ratio is above it.
        above: which end.
    """
    order = np.argsort(ratio, kind="stable")
    ratio, masses = ratio[order], masses[order]
    end = most if above else least
    beyond = ratio > end if above else ratio < end
    if not beyond.any() or not 0.0 < end < math.inf:
        return ratio, masses.upper
    if not above:  # from the last one to the first
        ratio, masses = ratio[::-1], masses[::-1]
    distance = np.abs(ratio - end)
    inside = np.flatnonzero(~beyond[:: 1 if above else -1] & (distance > _CLEAR * end))
    off = 8 * UNIT * np.maximum(ratio, end)
    for i in inside[::-1].tolist():
        # what the points from i on have at the end, if the rest of them is at i
        apart = np.abs(ratio[i:] - ratio[i])
        there = distance[i] - off[i]
        high = sum_up(masses.upper[i:] * (apart + 2 * off[i:])) / there * (1.0 + 8 * UNIT)
        low = sum_down(masses.lower[i:] * np.maximum(apart - 2 * off[i:], 0.0))
        low *= (1.0 - 8 * UNIT) / (distance[i] + off[i])
        if high <= sum_down(masses.lower[i:]):
            rest = sub_up(sum_up(masses.upper[i:]), low)
            return np.append(ratio[: i + 1], end), np.append(masses.upper[:i], [rest, high])
    return (ratio, masses.upper) if above else (ratio[::-1], masses.upper[::-1])


# Proof: proofs/order.v, theorems merging, law_of_pair
@dataclass(frozen=True)
class Merged:
    """The law of R = (X_1 + ... + X_t) / t from below: labels that are near t R, and their masses.

    Guarantee: the pair of this law is a post-processing of all outputs, in both directions.
    """

    law: _Law
    infinite: Enclosure  # the mass that only the output with the record present has

    @staticmethod
    def of(pair: Pair, direction: Direction, steps: int, finer: int = 0) -> Merged:
        """The law for ``steps`` ratios of one step's pair.

        Args:
            pair: a pair that one step attains.
            direction: which side of it has the record: P for ``REMOVE``, Q for ``ADD``.
            steps: t >= 1.
            finer: how often the width of the lattice is halved: each time merging takes about a
                quarter of the variance.
        """
        one = _OneRatio.of(pair, direction, steps, finer=finer)
        rows, error = one.shares.merged()
        law = _Law(1, one.grid.pieces(rows), error, (0.0, 0.0), merged=True)
        return Merged(_power(law, steps, one.plan), one.infinite)

    def pair(self, direction: Direction) -> AtomicPair:
        """The pair for a direction."""
        rows = np.concatenate([piece.rows for piece in self.law.pieces], axis=1)
        return _pair_below(rows, self.law.error, self.infinite, direction)


# Proof: proofs/order.v, theorem merging
@dataclass(frozen=True)
class Sums:
    """The law of a sum of labels near X_1, ..., X_t, of which a record changes several.

    The record is in some of the t steps, each set of as many steps being as likely. The label of
    a ratio does not depend on its step, nor the sum of labels on their order: so the
    record may as well be in the first steps.

    Guarantee: the pair of this law is a post-processing of all outputs, in both directions.
    """

    rows: FloatArray  # (2, n): the masses of the sums where the record is absent, and present
    error: float
    infinite: Enclosure

    @staticmethod
    def of(pair: Pair, direction: Direction, steps: int, times: int) -> Sums:
        """The law for ``steps`` ratios of one step's pair, ``times`` of which have the record.

        Args:
            pair: a pair that one step attains.
            direction: which side of it has the record: P for ``REMOVE``, Q for ``ADD``.
            steps: t >= 1.
            times: in [1, t].
        """
        one = _OneRatio.of(pair, direction, steps, flat=True)
        rows, error = one.shares.merged()
        without, with_record = (
            _Law(1, one.grid.pieces(row[None, :]), error, (0.0, 0.0), merged=True) for row in rows
        )
        absent = _power(without, steps, one.plan)
        present = _power(with_record, times, one.plan)
        if times < steps:
            present = _sum(present, _power(without, steps - times, one.plan), one.plan)
        (q,), (p,) = absent.pieces, present.pieces
        first, end = max(q.first, p.first), min(q.end, p.end)
        both = np.concatenate([q.part(first, end).rows, p.part(first, end).rows])
        # what was cut off may belong to any sum: only those count that it cannot change much
        lost = max(absent.lost[0], present.lost[0])
        both = both[:, np.min(both, axis=0) > lost / _UNCHANGED]
        # guard: cut-below-is-added
        error = max(absent.error, present.error) + 2.0 * _UNCHANGED
        chances = [[(float(end[0]), times)] for end in (one.infinite.lower, one.infinite.upper)]
        infinite = Enclosure(
            np.array([any_of(chances[0], up=False)]), np.array([any_of(chances[1], up=True)])
        )
        return Sums(both, error, infinite)

    def pair(self, direction: Direction) -> AtomicPair:
        """The pair for a direction."""
        return _pair_below(self.rows, self.error, self.infinite, direction)


_UNCHANGED = 1e-9  # the share of a mass that mass which was cut off may add to it


def _pair_below(
    rows: FloatArray, error: float, infinite: Enclosure, direction: Direction
) -> AtomicPair:
    """A pair of outputs with these masses, absent and present, each known within ``error``."""
    p, q = rows[::-1] if direction is Direction.REMOVE else rows
    p, q = p[p > 0], q[p > 0]
    remove = direction is Direction.REMOVE
    # all outputs that were dropped are one more, with at least this much of P and at most that of Q
    # little is left of 1, so that the sums are exact but for one rounding
    # guard: dropped-of-p
    whole = mul_up(add_up(1.0, error), next_up(math.fsum(p)))
    lost = sub_down(sub_down(1.0, whole), float(infinite.upper[0]) if remove else 0.0)
    # guard: dropped-of-q
    kept = mul_down(sub_down(1.0, error), next_down(math.fsum(q)))
    if lost > error:
        p = np.append(p, lost * (1.0 - 1e-9))
        q = np.append(q, max(sub_up(1.0, kept), error) * (1.0 + 1e-9))
    # an output is worth less with less of P and more of Q
    least, most = p * max(0.0, 1.0 - error), q * (1.0 + error)  # guard: merged-rounding
    # the record shows for certain where one of its ratios is infinite
    certain = exact(infinite.lower) if remove else exact(0.0)
    # what rounding leaves P short of 1 belongs to upper bounds, which hold for this pair alone
    whole = min(1.0, float(np.sum(p)) + float(certain.lower[0]))
    p_ends = Enclosure(least, p * ((1.0 + error) / whole))
    q_ends = Enclosure(q * (max(0.0, 1.0 - error) / max(1.0, float(np.sum(q)))), most)
    rest = max(0.0, 1.0 - float(np.sum(q_ends.lower)))
    pair = AtomicPair.from_masses(p_ends, q_ends, rest_q=rest)
    return replace(pair, only_p=pair.only_p + certain)


# Positions, means and edges are off by less than this, as a share of themselves: some ten roundings
# on the way from a step's loss to the logarithm of an average.
_MARGIN = 64 * UNIT


@dataclass(frozen=True)
class _Positions:
    """The places of lattice points: index k of a sum of m ratios stands at m origin + k unit."""

    origin: float
    unit: float

    def ratio(self, index: FloatArray, steps: int) -> FloatArray:
        """The averages of ``steps`` ratios at the points ``index``, within 4 units of 2^-53."""
        return np.asarray(self.origin + index * (self.unit / steps))


@dataclass(frozen=True)
class _Picture:
    """A rough law of one ratio, for planning only: it decides widths, no bound.

    Attributes:
        x: (n,) ratios, ascending.
        absent: (n,) their masses where the record is absent.
        present: (n,) their masses where it is present.
        zero: the mass of the ratio 0 where the record is absent.
    """

    x: FloatArray
    absent: FloatArray
    present: FloatArray
    zero: float

    @staticmethod
    def of(pair: Pair, direction: Direction) -> _Picture:
        """The sketch of one step's pair as a law of ratios."""
        sketch = pair.sketch().sorted()
        loss = np.clip(sketch.losses, -300.0, 300.0)
        p, q = np.exp(sketch.log_masses), np.exp(sketch.log_masses - sketch.losses)
        if direction is Direction.REMOVE:
            return _Picture(np.exp(loss), q, p, float(pair.q_only().upper[0]))
        return _Picture(np.exp(-loss)[::-1], p[::-1], q[::-1], float(pair.p_only().upper[0]))

    def fits(self) -> bool:
        """Whether the ratios that a present record makes have masses that are normal doubles."""
        return bool(self.x.size) and float(np.sum(self.present[self.x > _HUGE])) < 1e-12

    def reaching(self, pair: Pair, direction: Direction, most: float) -> _Picture:
        """Returns this picture with ends beyond which the pair has a mass of at most ``most``.

        A sketch shows where most of the mass is. A lump of mass may lie at an end of a continuous
        part, or just beyond it: the search begins with a tiny step.
        """
        sign = 1.0 if direction is Direction.REMOVE else -1.0
        ends = []
        for x, way in ((float(self.x[0]), -sign), (float(self.x[-1]), sign)):
            end = sign * math.log(x)
            for power in range(-42, 10, 3):
                bins = pair.bins(np.array([end]), np.zeros(1))
                if bins is None:
                    break
                beyond = 1 if way > 0 else 0
                q = float(bins.q.upper[beyond]) * math.exp(-min(max(end, -600.0), 600.0))
                if float(bins.p.upper[beyond]) + q <= most or abs(end) > 300.0:
                    break
                end += way * math.ldexp(1.0, power)
            ends.append(math.exp(sign * end))
        # points whose masses say no more than that the lattice is to reach them
        low = [ends[0]] if ends[0] < self.x[0] else []
        high = [ends[1]] if ends[1] > self.x[-1] else []
        ratios = np.concatenate([low, self.x, high])
        absent, present = (
            np.pad(masses, (len(low), len(high)), constant_values=2.0 * most)
            for masses in (self.absent, self.present)
        )
        return _Picture(ratios, absent, present, self.zero)

    def bulk(self, steps: int) -> tuple[float, float]:
        """The mean and the standard deviation of one ratio, without those that are rare.

        A ratio is rare if less than one of its size or larger is expected among all steps.
        """
        beyond = np.cumsum(self.absent[::-1])[::-1]
        kept = beyond * steps >= 1.0
        x, q = self.x[kept], self.absent[kept]
        whole = float(np.sum(q)) + self.zero
        if not x.size or not whole > 0:  # all are rare: no bulk is to be resolved
            return 1.0, 0.0
        mean = float(np.sum(q * x)) / whole
        square = float(np.sum(q * (x - mean) ** 2)) + self.zero * mean**2
        return mean, math.sqrt(square / whole)

    def reach(self, steps: int) -> tuple[float, float, float]:
        """The least ratio that matters in a sum, the least that matters alone, and the largest."""
        below = np.cumsum(self.absent) + self.zero
        # all steps have to be as small to make a small average
        low = np.log(np.maximum(below, 1e-320)) * steps > math.log(_LOST)
        beyond = np.cumsum((self.present + self.absent)[::-1]) > _LOST / steps
        high = beyond[::-1]
        first = int(np.argmax(low)) if low.any() else 0
        least = int(np.argmax(below > _LOST / steps))
        last = self.x.size - 1 - int(np.argmax(high[::-1])) + 1
        ends = np.clip([least - 1, first - 1, last], 0, self.x.size - 1)
        low_, first_, last_ = (float(x) for x in self.x[ends])
        return low_, first_, last_


@dataclass(frozen=True)
class _LatticePlan:
    """Which step a sum of m ratios has at which place.

    Attributes:
        steps: of the whole average.
        positions: of lattice points.
        mean, deviation: of the bulk of one ratio, in units of the lattice.
        share: the widest step of the bulk, as a share of its standard deviation.
        relative: the widest step elsewhere, as a share of the distance from 0 or from the mean.
        flat: whether all sums have the step of the lattice.
        short: entries; a piece with fewer is not made coarser.
    """

    steps: int
    positions: _Positions
    mean: float
    deviation: float
    share: float
    relative: float = _RELATIVE
    flat: bool = False
    short: int = _SHORT

    def table(self, runs: int, current: int, low: float, high: float) -> tuple[int, _Table]:
        """The level of the bulk of a sum of ``runs`` ratios, and all levels with their places.

        Args:
            runs: the number of ratios.
            current: the level that the bulk already has: it is not made finer.
            low: the place (in units) from which on a sum matters.
            high: the largest place.
        """
        if self.flat:
            return 0, ((0, 0),)
        deviation, middle = math.sqrt(runs) * self.deviation, runs * self.mean
        length = min(high, middle + 14 * deviation) - max(low, middle - 14 * deviation)
        step = min(self.share * deviation, length / self.short)
        base = max(current, math.floor(math.log2(step) + 1e-9)) if step > 0 else current
        zero = -runs * self.positions.origin / self.positions.unit
        table = [base]
        starts = [zero + 2.0**base / self.relative]
        while starts[0] > low and len(table) < _FINER:
            table.insert(0, _APART * (math.ceil(table[0] / _APART) - 1))
            starts.insert(0, zero + 2.0 ** table[0] / self.relative)
        # the same levels again and again, whatever the bulk's: pieces of more levels cost time
        level = _APART * math.ceil((base + _FIRST_APART) / _APART)
        while (start := middle + 2.0**level / self.relative) < high:
            if start > starts[-1]:
                table.append(level)
                starts.append(start)
            level += _APART
        return base, tuple(
            (level, math.ceil(start / 2.0**level))
            for level, start in zip(table, starts, strict=True)
        )


def _arranged(pieces: Iterable[_Piece], table: _Table, *, merged: bool) -> tuple[_Piece, ...]:
    """Brings pieces to the levels of a table, and adds up those of one level."""
    found: dict[int, list[_Piece]] = {}
    for piece in pieces:
        wide = [(level - piece.level, start) for level, start in table if level >= piece.level]
        # a piece that is coarser than the table wants at some place stays as it is there
        if not wide or (wide[0][0] > 0 and len(wide) < len(table)):
            wide.insert(0, (0, piece.first))
        edges = [start << up for up, start in wide[1:]]
        begins = [piece.first, *edges]
        ends = [*edges, piece.end]
        for (up, _), begin, end in zip(wide, begins, ends, strict=True):
            part = piece.part(begin, end)
            if part.rows.size:
                found.setdefault(piece.level + up, []).append(part.coarser(up, merged=merged))
    return tuple(_added(found[level]) for level in sorted(found))


def _added(pieces: list[_Piece]) -> _Piece:
    """The sum of pieces of one level."""
    first, end = min(piece.first for piece in pieces), max(piece.end for piece in pieces)
    rows = np.zeros((pieces[0].rows.shape[0], end - first))
    for piece in pieces:
        rows[:, piece.first - first : piece.end - first] += piece.rows
    return _Piece(pieces[0].level, first, rows)


def _product(a: _Piece, b: _Piece, runs: tuple[int, int], *, twice: bool) -> _Piece:
    """The law of a sum of two parts, of ``runs`` ratios, from a piece of each, of one level.

    ``twice`` says that both parts have both pieces.
    """
    factor = 2.0 if twice else 1.0
    rows = [factor * convolve_directly(a.rows[0], b.rows[0])]
    if len(a.rows) == 2:
        # the record is in one of all the ratios, uniformly: labels depend on the order of the
        # ratios, so that its place counts
        left, right = (1.0, 0.0) if a is b else (factor * part / sum(runs) for part in runs)
        rows.append(left * convolve_directly(a.rows[1], b.rows[0]))
        if right:
            rows[1] += right * convolve_directly(a.rows[0], b.rows[1])
    return _Piece(a.level, a.first + b.first, np.array(rows))


# Proof: proofs/order.v, theorem sums_of_laws
def _sum(a: _Law, b: _Law, plan: _LatticePlan) -> _Law:
    """The law of the sum of two independent sums of ratios."""
    steps, runs = a.steps + b.steps, (a.steps, b.steps)
    one, other = ({piece.level: piece for piece in law.pieces} for law in (a, b))
    # all pieces of lower levels, at this level
    finer: list[_Piece | None] = [None, None]
    products, shorter = [], 0
    level = min(one | other)
    for following in [*sorted(one | other)[1:], None]:
        left, right = one.get(level), other.get(level)
        below_left, below_right = finer
        crossed = ((left, right), (left, below_right), (below_left, right))
        for x, y in crossed[:2] if a is b else crossed:
            if x is not None and y is not None:
                # the third product of a square is its second one
                products.append(_product(x, y, runs, twice=a is b and y is not x))
                shorter = max(shorter, min(x.rows.shape[1], y.rows.shape[1]))
        if following is None:
            break
        for i, (piece, below) in enumerate(((left, below_left), (right, below_right))):
            both = [x for x in (piece, below) if x is not None]
            finer[i] = _added(both).coarser(following - level, merged=a.merged) if both else None
        level = following
    error = a.error + b.error + a.error * b.error
    # a product rounds once for each entry of the shorter piece, and a few times more; the sum of
    # products once for each; a coarser level twice
    error += (shorter + len(products) + 4 * _LEVELS + 16) * UNIT  # guard: sum-rounding
    # outputs that are lost in one part are lost whatever the other part shows
    absent = add_up(a.lost[0], b.lost[0])
    of_left, of_right = a.steps / steps, b.steps / steps
    present = add_up(
        of_left * add_up(a.lost[1], b.lost[0]), of_right * add_up(b.lost[1], a.lost[0])
    )
    lost = (absent, outwards(present))
    base = max(a.base, b.base)
    law = _Law(steps, tuple(products), outwards(error), lost, base, a.merged)
    return _tidied(law, plan)


def _tidied(law: _Law, plan: _LatticePlan) -> _Law:
    """Cuts off the ends of a law that hold next to nothing, and gives it the steps of the plan."""
    law = _trimmed(law, plan)
    low, high = law.ends(plan)
    base, table = plan.table(law.steps, law.base, low, high)
    pieces = _arranged(law.pieces, table, merged=law.merged)
    return replace(law, pieces=pieces, base=base)


# Proof: proofs/order.v, theorem cut_law
def _trimmed(law: _Law, plan: _LatticePlan) -> _Law:
    """Cuts off what holds next to nothing; it joins the mass that is lost."""
    most = _LOST * law.steps / (8 * plan.steps * len(law.pieces))
    absent, present, kept = [law.lost[0]], [law.lost[1]], []
    for piece, index in law.placed():
        q = piece.rows[0]
        p = q * plan.positions.ratio(index, law.steps) if len(piece.rows) == 1 else piece.rows[1]
        mass = p + q
        first = int(np.searchsorted(np.cumsum(mass), most, "right"))
        last = mass.size - int(np.searchsorted(np.cumsum(mass[::-1]), most, "right"))
        none = mass < _NO_MASS
        none[:first] = none[last:] = True
        # guard: cut-is-lost
        absent.append(sum_up(q[none]) * (1.0 + 2.0 * law.error))
        present.append(sum_up(p[none]) * (1.0 + 2.0 * law.error) * (1.0 + 8 * UNIT))
        if first < last:
            rows = np.where(none, 0.0, piece.rows)
            kept.append(_Piece(piece.level, piece.first + first, rows[:, first:last]))
    if not kept:  # one place without mass, so that a law has places
        empty = law.pieces[0]
        kept.append(_Piece(empty.level, empty.first, np.zeros((len(empty.rows), 1))))
    return replace(law, pieces=tuple(kept), lost=(add_up(*absent), add_up(*present)))


def _power(law: _Law, runs: int, plan: _LatticePlan) -> _Law:
    """The law of a sum of ``runs`` ratios: binary exponentiation from the lowest bit up."""
    square, result = law, None
    while True:
        if runs & 1:
            result = square if result is None else _sum(result, square, plan)
        runs >>= 1
        if not runs:
            assert result is not None
            return result
        square = _sum(square, square, plan)


def within_reach(pair: Pair, direction: Direction) -> bool:
    """Whether a lattice can hold the ratios of a step's pair; with next to no noise it cannot."""
    return _Picture.of(pair, direction).fits()


def _planned(
    picture: _Picture, steps: int, finer: int
) -> tuple[_LatticePlan, tuple[float, float, float]]:
    """The plan for an average, and three places of one ratio.

    They are the least that matters in a sum, the least that matters by itself, and the largest.
    ``finer`` says how often all widths are halved.
    """
    mean, deviation = picture.bulk(steps)
    least, low, high = picture.reach(steps)
    share = math.sqrt(4.0 * _VARIANCE / (1.0 + math.log2(steps) / 2.0)) / 2**finer
    few = picture.x.size <= _FEW and picture.zero == 0.0
    origin = float(picture.x[0]) * (1.0 - _MARGIN) if few else 0.0
    if few and high > low:
        unit = (high - origin) / (1 if picture.x.size == 2 else _SHORT << finer)
    else:
        length = min(high, mean + 14 * deviation) - max(least, mean - 14 * deviation)
        unit = min(share * deviation, length / (_SHORT << finer))
        # a power of two: places are exact; one ratio alone has no width to resolve
        unit = 2.0 ** math.floor(math.log2(unit if unit > 0 else mean * share))
    positions = _Positions(origin, unit)
    # the ratios of a step of little noise lie on many levels: fewer points on each keep the cost
    levels = math.log2(max(high, unit) / max(low, unit * 2.0**-_FINEST)) / _APART
    relative = _RELATIVE / 2**finer * math.sqrt(max(1.0, levels / _MANY))
    plan = _LatticePlan(
        steps,
        positions,
        (mean - origin) / unit,
        deviation / unit,
        share,
        relative,
        short=_SHORT << finer,
    )
    return plan, ((least - origin) / unit, (low - origin) / unit, (high - origin) / unit)


def _planned_flat(picture: _Picture, steps: int) -> tuple[_LatticePlan, tuple[float, float, float]]:
    """The plan for sums of ratios on one lattice, and three places of one ratio."""
    # larger ratios than those of the bulk count here, too: what lies above the points is dropped
    mean, deviation = picture.bulk(10_000 * steps)
    least, _, high = picture.reach(steps)
    # labels take a twelfth of the square of this share from the variance; sums then have about
    # _FLAT entries
    share = max(0.02, 28.0 * math.sqrt(steps) / _FLAT)
    # a ratio that is mostly 0 may have no other one near its mean: the least of them is reached
    first = float(picture.x[0])
    unit = max(share * (deviation or mean), first / _FLAT)
    high = min(high, max(first, mean + 14.0 * math.sqrt(steps) * deviation))
    plan = _LatticePlan(
        steps, _Positions(0.0, unit), mean / unit, deviation / unit, share, flat=True
    )
    return plan, (least / unit, least / unit, high / unit)


_FLAT = 8192  # entries: a product of two takes 10 ms


@dataclass(frozen=True)
class _OneRatio:
    """The masses of one ratio at the points of a lattice, and the plan that made them."""

    plan: _LatticePlan
    grid: _Edges
    shares: _Shares
    infinite: Enclosure

    @staticmethod
    def of(
        pair: Pair, direction: Direction, steps: int, *, flat: bool = False, finer: int = 0
    ) -> _OneRatio:
        """Asks a step's pair for its masses between the points that an average of ratios needs.

        With ``flat`` the points are those of one step of the lattice for all sums. ``finer`` says
        how often the distance of points is halved.
        """
        remove = direction is Direction.REMOVE
        picture = _Picture.of(pair, direction)
        picture = picture.reaching(pair, direction, _LOST / steps)
        plan, (least, low, high) = (
            _planned_flat(picture, steps) if flat else _planned(picture, steps, finer)
        )
        grid = _Edges.of(plan.table(1, 0, low, high)[1], least, high, zero=picture.zero > 0)
        shares = _Shares(plan.positions.ratio(grid.places, 1))
        shares.add_bins(pair, remove=remove)
        shares.add_atoms(pair.atoms(), remove=remove)
        alone = (pair.q_only(), pair.p_only())
        nothing, infinite = alone if remove else alone[::-1]
        shares.add_zero(nothing)
        return _OneRatio(plan, grid, shares, infinite)


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
    def of(table: _Table, low: float, high: float, *, zero: bool) -> _Edges:
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

    def pieces(self, rows: FloatArray) -> tuple[_Piece, ...]:
        """The pieces that hold ``rows``, one entry a point."""
        found: dict[int, list[_Piece]] = {}
        at = 0
        for level, first, number in self.runs:
            piece = _Piece(level, first, rows[:, at : at + number])
            found.setdefault(level, []).append(piece)
            at += number
        return tuple(_added(found[level]) for level in sorted(found))


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
        """The relative error that rounding may have made in an entry of :meth:`spread`."""
        crowd = sum(cells[0].size for cells in self._cells)
        return (crowd + 16) * UNIT

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
        known &= kept > _NO_MASS
        self._cells.append((
            cell[known].astype(np.float64), rows[0][known], rows[1][known], off[known]
        ))  # fmt: skip
