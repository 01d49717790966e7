"""The laws of an average of ratios, and of a sum of labels of ratios, on a lattice, from below.

The ratio of a step is the density of its output with the record present over the density with it
absent. All outputs whose ratio is between two lattice points become one output, and sums of such
outputs one output for each lattice point. That is post-processing: the exact pair dominates.

Source: post-processing, Dong, Roth, Su 2022; Feldman, Shenfeld 2025, "Privacy amplification by
random allocation", for the pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tightbudget.mechanisms.allocated_law import Law, sum_of_many, sum_of_two
from tightbudget.mechanisms.allocated_plan import LogLabels
from tightbudget.mechanisms.allocated_ratio import OneRatio
from tightbudget.numerics.enclosure import Enclosure, exact
from tightbudget.numerics.rounding import (
    UNIT,
    FloatArray,
    add_up,
    any_of,
    mul_down,
    mul_up,
    next_down,
    next_up,
    sub_down,
    sub_up,
    sum_down,
)
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair


# Proof: proofs/order.v, theorems merging, law_of_pair
@dataclass(frozen=True)
class Merged:
    """The law of R = (X_1 + ... + X_t) / t from below: labels that are near t R, and their masses.

    Guarantee: the pair of this law is a post-processing of all outputs, in both directions.
    """

    law: Law
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
        one = OneRatio.of(pair, direction, steps, finer=finer)
        rows, error = one.shares.merged()
        law = Law(1, one.grid.pieces(rows), error, (0.0, 0.0), merged=True)
        return Merged(sum_of_many(law, steps, one.plan), one.infinite)

    def pair(self, direction: Direction) -> AtomicPair:
        """The pair of the average from below: the exact one dominates it.

        Args:
            direction: ``REMOVE`` where P has the record, ``ADD`` where Q has it.
        """
        rows = np.concatenate([piece.rows for piece in self.law.pieces], axis=1)
        return _pair_below(rows, self.law.error, self.infinite, direction)


# Proof: proofs/order.v, theorem merging
@dataclass(frozen=True)
class Sums:
    """The law of a sum of labels near ln(1 + c X), over t ratios X, of which a record changes k.

    The record is in some of the t steps, each set of k steps being as likely. The label of a ratio
    does not depend on its step, nor the sum of labels on their order: so the record may as well be
    in the first steps.

    The ratio of all outputs is the mean of the products of k of the X. It is a coefficient of the
    polynomial in c that multiplies out all 1 + c X, up to a factor; the value of the polynomial at
    one c tells nearly as much, where the powers near the k-th one weigh most.

    Guarantee: the pair of this law is a post-processing of all outputs, in both directions.
    """

    rows: FloatArray  # (2, n): the masses of the sums where the record is absent, and present
    error: float
    infinite: Enclosure

    @staticmethod
    def of(pair: Pair, direction: Direction, steps: int, times: int, logs: LogLabels) -> Sums:
        """The law for ``steps`` ratios of one step's pair, ``times`` of which have the record.

        Args:
            pair: a pair that one step attains.
            direction: which side of it has the record: P for ``REMOVE``, Q for ``ADD``.
            steps: t >= 1.
            times: k, in [1, t].
            logs: the labels, with c as their share: they decide how much the sum tells.
        """
        one = OneRatio.of(pair, direction, steps, logs=logs)
        rows, error = one.shares.merged()
        without, with_record = (
            Law(1, one.grid.pieces(row[None, :]), error, (0.0, 0.0), merged=True) for row in rows
        )
        absent = sum_of_many(without, steps, one.plan)
        present = sum_of_many(with_record, times, one.plan)
        if times < steps:
            present = sum_of_two(present, sum_of_many(without, steps - times, one.plan), one.plan)
        chances = [[(float(end[0]), times)] for end in (one.infinite.lower, one.infinite.upper)]
        infinite = Enclosure(
            np.array([any_of(chances[0], up=False)]), np.array([any_of(chances[1], up=True)])
        )
        return Sums.between(absent, present, infinite)

    @staticmethod
    def between(absent: Law, present: Law, infinite: Enclosure) -> Sums:
        """The law of sums of labels whose laws, each on one piece, are those given.

        Args:
            absent: where the record is absent.
            present: where it is present.
            infinite: the mass that only outputs with the record present have.
        """
        (q,), (p,) = absent.pieces, present.pieces
        first, end = max(q.first, p.first), min(q.end, p.end)
        both = np.concatenate([q.part(first, end).rows, p.part(first, end).rows])
        # what was cut off may belong to any sum: only those count that it cannot change much
        lost = max(absent.lost[0], present.lost[0])
        both = both[:, np.min(both, axis=0) > lost / _UNCHANGED]
        # guard: cut-below-is-added
        error = max(absent.error, present.error) + 2.0 * _UNCHANGED
        return Sums(both, error, infinite)

    def is_close(self, runs: int) -> bool:
        """Says whether rounding leaves the loss of so many runs known at all."""
        absent, present = self.rows
        deviation = math.sqrt(runs * float(np.sum(absent * np.log(present / absent) ** 2)))
        return runs * self.error <= _KNOWN * deviation

    def pair(self, direction: Direction) -> AtomicPair:
        """The pair of the sum, whose record is in several steps: the exact one dominates it.

        Args:
            direction: ``REMOVE`` where P has the record, ``ADD`` where Q has it.
        """
        return _pair_below(self.rows, self.error, self.infinite, direction)


_KNOWN = 0.01  # the error of all masses of all runs, in deviations of their loss
_UNCHANGED = 1e-9  # the share of a mass that mass which was cut off may add to it


def _pair_below(
    rows: FloatArray, error: float, infinite: Enclosure, direction: Direction
) -> AtomicPair:
    """A pair of outputs with these masses, absent and present, each known within ``error``."""
    p, q = rows[::-1] if direction is Direction.REMOVE else rows
    never, (p, q) = q[p == 0], (p[p > 0], q[p > 0])
    remove = direction is Direction.REMOVE
    # the record shows for certain where one of its ratios is infinite
    certain = exact(infinite.lower) if remove else exact(0.0)
    # all outputs that were dropped are one more, with at least this much of P and at most that of Q
    # little is left of 1, so that the sums are exact but for one rounding
    # guard: dropped-of-p
    whole = mul_up(add_up(1.0, error), next_up(math.fsum(p)))
    lost = sub_down(sub_down(1.0, whole), float(infinite.upper[0]) if remove else 0.0)
    # guard: dropped-of-q
    kept = mul_down(sub_down(1.0, error), next_down(math.fsum(q)))
    if lost <= _TELLING * error:
        unseen = float(infinite.lower[0])
        if remove:
            unseen = sum_down(never) * max(0.0, 1.0 - 2.0 * error)
        whole_pair = _with_totals(p, q, error, float(certain.lower[0]), unseen)
        if whole_pair is not None:
            p, q = whole_pair
            # quotients of doubles are in order but for some units, and so they are for less of P
            ends = Enclosure(p * (1.0 - 8 * UNIT), p)
            pair = AtomicPair.from_masses(ends, exact(q), rest_q=max(0.0, 1.0 - sum_down(q)))
            return replace(pair, only_p=pair.only_p + certain)
    if lost > error:
        p = np.append(p, lost * (1.0 - 1e-9))
        q = np.append(q, max(sub_up(1.0, kept), error) * (1.0 + 1e-9))
    # an output is worth less with less of P and more of Q
    least, most = p * max(0.0, 1.0 - error), q * (1.0 + error)  # guard: merged-rounding
    # what rounding leaves P short of 1 belongs to upper bounds, which hold for this pair alone
    whole = min(1.0, float(np.sum(p)) + float(certain.lower[0]))
    p_ends = Enclosure(least, p * ((1.0 + error) / whole))
    q_ends = Enclosure(q * (max(0.0, 1.0 - error) / max(1.0, float(np.sum(q)))), most)
    rest = max(0.0, 1.0 - float(np.sum(q_ends.lower)))
    pair = AtomicPair.from_masses(p_ends, q_ends, rest_q=rest)
    return replace(pair, only_p=pair.only_p + certain)


# Where outputs that were dropped have more than this many times the error of a mass, they are one
# output, whose quotient tells more than the error takes. Measured: up to 4 times the error where a
# record is in one step of an epoch, and 50,000 times in two of 20 steps, whose epsilon would lose
# 1 % of its lower bound. Affects width, never truth.
_TELLING = 100.0
# Outputs between both halves are joined while they have at most this share of all masses: around
# the median of a normal law they have 2e-6 of its variance. Affects width, never truth.
_JOINED = 1.0 / 64.0


def _with_totals(
    p: FloatArray, q: FloatArray, error: float, certain: float, unseen: float
) -> tuple[FloatArray, FloatArray] | None:
    """The masses of a pair that is dominated, with sums of 1, or None if outputs are too few.

    Tests say "with the record" for the first outputs of a list, the more the later they end. In
    the first half, P of such a test is at least its sum of p (1 - e), and Q at most that of
    q (1 + e). In the second half P is at least 1 less the sum of p (1 + e) of the other outputs,
    and Q at most 1 less that of q (1 - e). What these bounds grow by from test to test are masses
    again, of which one output between the halves has the rest. If they grow ever more slowly, they
    are a trade-off curve, and no exact one is worse: the exact pair dominates theirs. So the
    quotients have to fall along the list; outputs around the middle are joined until they do.

    Args:
        p, q: (n,) masses of all outputs with p > 0, each known within the relative ``error``.
        error: see there.
        certain: a lower bound of the mass of P where Q has none.
        unseen: a lower bound of the mass of Q where P has none.
    """
    most = 1.01 * error + 8 * UNIT  # guard: chain-rounding
    if most > 0.5:
        return None
    with np.errstate(divide="ignore"):
        order = np.argsort(-(p / q), kind="stable")
    p, q = p[order], q[order]
    middle = int(np.searchsorted(np.cumsum(p + q), 0.5 * float(np.sum(p + q))))
    first = np.arange(p.size) < middle
    p, q = (
        np.where(first, p * (1.0 - most), p * (1.0 + most)),
        np.where(first, q * (1.0 + most), q * (1.0 - most)),
    )
    for power in range(p.size.bit_length()):
        left, right = max(middle - 2**power, 0), min(middle + 2**power, p.size)
        if float(np.sum(p[left:right] + q[left:right])) > 2.0 * _JOINED:
            break
        of_p, of_q = (np.concatenate([x[:left], x[right:]]) for x in (p, q))
        rest_p = sub_down(sub_down(1.0, certain), next_up(math.fsum(of_p)))
        rest_q = sub_up(sub_up(1.0, unseen), next_down(math.fsum(of_q)))
        if rest_p > 0.0 and rest_q > 0.0:
            p_, q_ = np.insert(of_p, left, rest_p), np.insert(of_q, left, rest_q)
            around = slice(max(left - 1, 0), left + 2)
            with np.errstate(divide="ignore"):
                quotients = p_[around] / q_[around]
            if np.all(quotients[:-1] * (1.0 - 8 * UNIT) >= quotients[1:]):
                return p_, q_
    return None
