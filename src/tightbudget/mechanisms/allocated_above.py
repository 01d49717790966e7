"""The law of an average of ratios on a lattice, from above.

A record that is in one of t steps, chosen uniformly, has the ratio R = (X_1 + ... + X_t) / t: X_i
is the density of step i's output with the record present over the density with it absent, and all
X_i are independent where the record is absent. Each delta of that pair, and of any composition with
it, is an expectation of a convex function of R. So a law that is larger in convex order is that of
a pair which dominates: here the mass between two lattice points goes to both of them, in shares
that keep its mean.

Source: convex order, Shaked, Shanthikumar 2007, Theorem 3.A.12; Feldman, Shenfeld 2025, "Privacy
amplification by random allocation", for the pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tightbudget.mechanisms.allocated_law import Law, sum_of_many
from tightbudget.mechanisms.allocated_plan import MARGIN, Positions
from tightbudget.mechanisms.allocated_ratio import OneRatio
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure
from tightbudget.numerics.rounding import (
    LOG,
    UNIT,
    FloatArray,
    add_down,
    add_up,
    exp_down,
    exp_up,
    mul_down,
    mul_up,
    next_down,
    next_up,
    sub_down,
    sub_up,
    sum_down,
    sum_up,
)
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Pair


# Proof: proofs/order.v, theorems scaled_law, averages, law_of_pair
@dataclass(frozen=True)
class Spread:
    """The law of R = (X_1 + ... + X_t) / t from above.

    Guarantee: the pair of this law dominates the pair of R, in both directions.
    """

    law: Law
    positions: Positions
    infinite: Enclosure  # the mass that only the output with the record present has
    ends: tuple[float, float] = (0.0, math.inf)  # no ratio > 0 is below or above these
    drift: float = math.inf  # how far the mean of one ratio may have moved; inf if it is unknown

    @staticmethod
    def of(
        pair: Pair,
        direction: Direction,
        steps: int,
        finer: int = 0,
        *,
        reverse: Pair | None = None,
        whole: bool = False,
    ) -> Spread:
        """The law for ``steps`` ratios of one step's pair.

        Args:
            pair: the dominating pair of one step.
            direction: which side of it has the record: P for ``REMOVE``, Q for ``ADD``.
            steps: t >= 1.
            reverse: the pair with both sides exchanged, if it is known.
            finer: how often the width of the lattice is halved: each time spreading adds about a
                quarter of the variance. Below 0 it is doubled as often.
            whole: whether both sides of the pair are known to have a mass of 1 in all, and not only
                upper bounds of masses.
        """
        one = OneRatio.of(pair, direction, steps, finer=finer)
        rows = one.shares.spread()
        law = Law(1, one.grid.pieces(rows[None, :]), one.shares.error(), one.shares.lost())
        ends = _ends_of_ratio(pair, reverse or pair.reversed(), direction)
        drift = one.shares.drift() if whole else math.inf
        summed = sum_of_many(law, steps, one.plan)
        return Spread(summed, one.plan.positions, one.infinite, ends, drift)

    def pair(self, direction: Direction) -> AtomicPair:
        """The pair of the average from above: it dominates the exact one.

        Args:
            direction: ``REMOVE`` where P has the record, ``ADD`` where Q has it.
        """
        remove = direction is Direction.REMOVE
        law = self.law
        places = [self.positions.ratio(index, law.steps) for _, index in law.placed()]
        ratio = np.concatenate(places)
        rows = np.concatenate([piece.rows[0] for piece in law.pieces])
        most = rows * (1.0 + law.error)  # guard: spread-rounding
        nothing = rows[ratio == 0.0]
        # before points beyond an end move: until then each mass is an upper bound of its own
        most = _without_excess(ratio, most, *self._known(above=remove), above=remove)
        ratio, absent = _clipped(ratio, most, *self.ends, above=remove)
        # a certain loss: what is in no piece, and an output that no record can leave behind
        # guard: lost-is-infinite
        only = [law.lost[1], float(self.infinite.upper[0])] if remove else [law.lost[0]]
        if not remove:
            only.append(sum_up(absent[ratio == 0.0]))  # guard: zero-ratio-is-infinite
        kept = (ratio > 0.0) & (absent > 0.0)
        ratio, absent = ratio[kept], absent[kept]
        loss = np.log(ratio) if remove else -np.log(ratio)
        p = absent * ratio * (1.0 + 8 * UNIT) if remove else absent
        margin = MARGIN + (LOG + 2) * UNIT * np.abs(loss)
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
        # a mean that is kept from below leaves Q short of 1: outputs of Q alone are worth nothing
        most_rest = min(1.0, max(alone[1], sub_up(1.0, next_down(math.fsum(q.upper)))))
        rest = Enclosure(np.array([alone[0] * spare]), np.array([most_rest]))
        return AtomicPair(
            Atoms(ends, q, loss - margin, loss + margin),
            only_p=exact(certain),
            only_q=rest,
            tail_cut=not 0.0 < self.ends[1 if remove else 0] < math.inf,
        )

    def _known(self, *, above: bool) -> tuple[float, float]:
        """Returns bounds of the sum of the exact masses that are listed, and of their mean ratio.

        The law that the masses are bounds of has the mean that one ratio was given. Where the
        record is absent its masses sum to 1 with those that are lost; and where it is present,
        with the lost ones and those of an infinite ratio.

        Args:
            above: whether a lower bound of the sum and an upper one of the sum of masses times
                ratios are asked for, or the reverse.
        """
        off = add_up(self.drift, MARGIN)  # guard: mean-has-moved
        if above:
            return sub_down(1.0, self.law.lost[0]), add_up(1.0, -float(self.infinite.lower[0]), off)
        gone = add_up(float(self.infinite.upper[0]), self.law.lost[1])
        return 1.0, add_down(1.0, -gone, -off)


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


def _without_excess(
    ratio: FloatArray, most: FloatArray, whole: float, mean: float, *, above: bool
) -> FloatArray:
    """Upper bounds of masses, without what their sum and their mean have too much.

    Each exact mass is at most ``most``, so that the differences are the masses of a law times
    E = sum(most) - sum(exact), with a mean M = (sum(most r) - sum(exact r)) / E. By Jensen's
    inequality their sum of a convex function, linear between neighbouring ratios, is at least E
    times its value at M, and this what two neighbours around M have of it. So the bounds may
    do without as much at these two: their sum of such a function is still at least the exact one.
    And all that is asked of a law is its sums of (r - k)+, or of (k - r)+, for k at its ratios and
    at 0. The first one is the larger, the more E M there is, and the less E; the second one is the
    reverse.

    Args:
        ratio: (n,) >= 0, in any order.
        most: (n,) upper bounds of the masses.
        whole: a lower bound of the sum of exact masses, or with ``above`` false an upper bound.
        mean: an upper bound of the sum of exact masses times ratios, or then a lower bound.
        above: whether the law is for (r - k)+, else it is for (k - r)+.

    Returns:
        (n,) masses whose sums of either are at least those of the exact ones.
    """
    total, moment = math.fsum(most), math.fsum(most * ratio)
    if above:
        excess = add_up(next_up(total), -whole)
        product = add_down(moment * (1.0 - 4 * UNIT), -mean)
    else:
        excess = add_down(next_down(total), -whole)
        product = add_up(moment * (1.0 + 4 * UNIT), -mean)
    if not (excess > 0.0 and product > 0.0):
        return most
    held = most > 0.0
    low, high = held & (ratio <= product / excess), held & (ratio > product / excess)
    if not (low.any() and high.any()):
        return most
    i = int(np.argmax(np.where(low, ratio, -math.inf)))
    j = int(np.argmin(np.where(high, ratio, math.inf)))
    x, y = float(ratio[i]), float(ratio[j])
    if not x > 0.0:
        return most
    if above:  # enough at k = x and at k = 0: both sides are linear between them
        of_y = sub_down(product, mul_up(x, excess)) / sub_up(y, x) * (1.0 - 4 * UNIT)
        of_x = sub_down(product, mul_up(of_y, y)) / x * (1.0 - 4 * UNIT)
    else:  # enough at k = y, and as k grows
        of_x = sub_down(mul_down(y, excess), product) / sub_up(y, x) * (1.0 - 4 * UNIT)
        of_y = sub_down(excess, of_x)
    if not (of_x > 0.0 and of_y > 0.0):
        return most
    share = min(1.0, float(most[i]) / of_x, float(most[j]) / of_y) * (1.0 - 4 * UNIT)
    less = most.copy()
    less[i] = max(0.0, sub_up(float(most[i]), mul_down(share, of_x)))
    less[j] = max(0.0, sub_up(float(most[j]), mul_down(share, of_y)))
    return less


# Between a lattice point and the end of all ratios there is at least this share of the end, so that
# the difference keeps 24 bits: nearer points are passed over. Affects width, never truth.
_CLEAR = 2.0**-28
# Points that are tried, from the end inwards: a few beside the end do as a rule, and each sums over
# all points behind it. If none does, the law stays as it is, which is wider and as true.
_TRIED = 2**12


def _clipped(
    ratio: FloatArray, masses: FloatArray, least: float, most: float, *, above: bool
) -> tuple[FloatArray, FloatArray]:
    """The points of a spread law and upper bounds of their masses, none beyond the end of ratios.

    A law from above has points beyond the largest ratio M that there is. Where R stands for the
    exact average, E[(R - k)+] is convex in k and 0 at M: between a point a and M it is below the
    chord that ends there, and so is a law that has the points beyond a moved to a and M. With
    ``above`` the largest ratio is that end, for deltas of the form E[(R - k)+]; else it is the
    least one, for E[(k - R)+].

    Args:
        ratio: (n,) the points, each known within 4 units of 2^-53.
        masses: (n,) their masses, exactly: upper bounds of those of another law, or its own.
        least: no exact ratio is below it.
        most: no exact ratio is above it.
        above: which end.
    """
    order = np.argsort(ratio, kind="stable")
    order = order[masses[order] > 0.0]  # most points of a law of few ratios have no mass
    ratio, masses = ratio[order], masses[order]
    end = most if above else least
    beyond = ratio > end if above else ratio < end
    if not beyond.any() or not 0.0 < end < math.inf:
        return ratio, masses
    if not above:  # from the last one to the first
        ratio, masses = ratio[::-1], masses[::-1]
    distance = np.abs(ratio - end)
    inside = np.flatnonzero(~beyond[:: 1 if above else -1] & (distance > _CLEAR * end))
    off = 8 * UNIT * np.maximum(ratio, end)  # pays: clipped-places
    for i in inside[::-1][:_TRIED].tolist():
        # what the points from i on have at the end, if the rest of them is at i
        apart = np.abs(ratio[i:] - ratio[i])
        there = distance[i] - off[i]
        high = sum_up(masses[i:] * (apart + 2 * off[i:])) / there * (1.0 + 8 * UNIT)
        low = sum_down(masses[i:] * np.maximum(apart - 2 * off[i:], 0.0))
        low *= (1.0 - 8 * UNIT) / (distance[i] + off[i])
        if high <= sum_down(masses[i:]):
            rest = sub_up(sum_up(masses[i:]), low)
            return np.append(ratio[: i + 1], end), np.append(masses[:i], [rest, high])
    return (ratio, masses) if above else (ratio[::-1], masses[::-1])
