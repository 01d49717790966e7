"""The pair above an epoch of shuffled batches, among whose places others are, or look, empty.

Take one record of each batch: the record in question, and of each other batch one at random. Give
away which records are taken, and in which batches all others are. Every order of those taken is
equally likely, whether the record is there or its place is empty: there are as many ways to take
them in one order as in another.

Let c be the clip, m = c / sigma, and s the sum of the others of a batch. With a taken record y its
noisy sum has the law N(s + g(y)), |g(y)| <= c, and with an empty place N(s). What kappa N(s) has
above N(s + g(y)) is at most

    D  =  kappa delta_m(ln 1/kappa),

where delta_m is that of the Gaussian mechanism. So a law that differs from N(s + g(y)) by D in
total variation is N(s) with probability kappa, and something else otherwise: y is then a *clone*
of an empty place. Give away which of those taken are no clones, and their batches. What is left is
a record in one of M batches, each as likely, beside M - 1 that have noise alone, where M - 1 has
the law Bin(steps - 1, kappa): random allocation to M steps.

**Theorem.** For every kappa in (0, 1) and all epsilon >= 0, in both directions,

    delta(eps)  <=  sum_j P(M = j) delta_j(eps)  +  (1 + e^eps) (steps - 1) D,

where delta_j is that of random allocation to j steps.

Proof. Gradients may depend on all earlier outputs: given these, each of the steps - 1 other batches
changes the law of all outputs by D at most, in total variation, and P(A) - e^eps Q(A) by
(1 + e^eps) (steps - 1) D. The laws with clones are mixtures over what is given away and over M,
which have the same weights on both sides, and delta is jointly convex. Random allocation bounds
steps that are chosen after seeing earlier outputs. ∎

A sample. Let each record be in the sample with the chance q, or leave its place empty. A batch with
a taken record then has the law (1 - q) N(s) + q N(s + g(y)), which is N(s) with probability
1 - q (1 - kappa), but for q D. So the theorem holds for an epoch that has the record, with these in
place of kappa and D, and with D = 0 for kappa = 0, where only places that are empty hide it. The
pair of an epoch whose record is in the sample with the chance q, too, is made of that one
(``Subsampled``).

Batches of different sizes. Let b be the largest size. Take a record of a batch of b_i records with
probability b_i / b only, and that of the record in question for certain. Each order of those taken
is as likely again: where the batches T have one each, a way to take them has the probability
b^-(|T| - 1) times that the other batches have none, whichever batch the record in question is in.
T has all batches of the largest size. Give away so many of the others in T, chosen at random, and
their batches, that as many are left as there are batches of the largest size: the record is in any
of those left, each as likely. So the theorem holds with their number in place of ``steps``.

delta_j falls as j rises: the average of j ratios rises in convex order where some are left out. So
a j may stand for all larger ones. Each epsilon has a best kappa, and the curve of the best ones is
the pair's. The idea of clones is that of Feldman, McMillan, Talwar 2021, "Hiding among the clones",
for reports whose ratios are bounded; here the ratio to nothing is bounded but for D.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from scipy import special as sp

from tightbudget.mechanisms.allocated_above import Spread
from tightbudget.mechanisms.allocated_plan import within_reach
from tightbudget.mechanisms.from_curve import FromCurve
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.binomial import binomial_tails
from tightbudget.numerics.enclosure import exp_enclosure
from tightbudget.numerics.rounding import (
    TINY,
    FloatArray,
    exp_down,
    exp_up,
    mul_up,
    scale_down,
    scale_up,
    sub_up,
)
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

# What may be changed, (steps - 1) D, in shares of four deltas of allocation at epsilon = 0: one
# kappa each. A larger share hides the record among more clones, a smaller one reaches deltas that
# are smaller.
_SHARES = (3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-11, 1e-16)
# How many ratios an average is taken of; up to the last one its rounding errors are known. Many
# ratios need few averages, so that these may be close. With a ratio of 1.05 for all, epsilon was up
# to 4 % smaller, in twice the time.
_NUMBERS = (
    *sorted({math.floor(1.2**i) for i in range(30)}),
    *(math.floor(1.07**i) for i in range(80, 273)),
)
# The lattice of an average is so often made twice as coarse (minus): deltas rise by 1e-4 to 6e-4 of
# themselves, in a fifth of the time, where sigma is 1 to 10 and the steps are 10 to 1e6.
_COARSER = -3
# Points: the ratio of neighbouring epsilons, and the fall of ln delta between them, at least and in
# shares of itself. A chord of a function that falls by a fifth is at most half a percent above it.
_RATIO, _FALL, _SHARE = 1.15, 0.1, 0.02
_HALVINGS = 20
_LAST = 1e-290  # a delta beyond which the curve is not followed
_FARTHEST = 600.0  # nats
_GAIN = 0.7  # the least share of the delta of one Gaussian run that is worth a curve


# A curve takes half a second.
@functools.lru_cache(maxsize=64)
def above_shuffled(base: Gaussian, steps: int, rate: float = 1.0) -> FromCurve | None:
    """Makes the pair above an epoch of ``steps`` shuffled batches, which has the record.

    Guarantee: it dominates the epoch in both directions, for ``Neighbouring.ZERO_OUT``.

    Args:
        base: the Gaussian mechanism of one batch.
        steps: how many batches of the largest size an epoch has, at least 2.
        rate: the chance of each other record to be in the sample that is shuffled, in (0, 1]; the
            places of those that are not stay empty.

    Returns:
        None where no delta is below that of one run of ``base`` by much: clones are too rare.
    """
    pair = base.pair(Direction.REMOVE)
    m = base.sensitivity / base.sigma
    # about four deltas of random allocation at epsilon = 0
    deviation = math.sqrt(math.expm1(min(m, 1.0) ** 2) / steps)
    shares = [share * deviation for share in _SHARES]
    each = [(_least_fall(pair, steps, rate, share), share) for share in shares]
    falls = [(fall, share) for fall, share in each if fall is not None]
    if rate < 1.0:  # empty places alone change nothing
        falls.append((math.inf, shares[-1]))
    if not falls or not within_reach(pair, Direction.REMOVE):
        return None
    ways = [_Hidden.of(pair, steps, rate, fall, share) for fall, share in falls]

    def best(epsilons: FloatArray) -> FloatArray:
        alone = _delta(pair, epsilons)
        each = [alone, *(way.delta(epsilons, alone) for way in ways)]
        return np.asarray(np.min(each, axis=0))

    epsilons, deltas = _points(best, deviation / 20.0)
    if not np.any(deltas < _GAIN * _delta(pair, epsilons)):
        return None
    return FromCurve(epsilons, np.minimum(deltas, 1.0), relation=Neighbouring.ZERO_OUT)


def _change(pair: Pair, steps: int, rate: float, fall: float) -> float:
    """An upper bound of (steps - 1) rate D for kappa = e^-fall."""
    if fall == math.inf:
        return 0.0
    # guard: change-of-all-batches
    each = mul_up(exp_up(-fall), float(_delta(pair, np.array([fall]))[0]))
    return mul_up(float(steps - 1), mul_up(rate, each))


def _least_fall(pair: Pair, steps: int, rate: float, changed: float) -> float | None:
    """The least fall, about, that changes at most ``changed``; None where it leaves no clone."""
    low, high = 0.0, math.log(steps)
    if _change(pair, steps, rate, high) > changed:
        return None
    # a fall below 1e-3 hides the record among 0.1 % more
    while high - low > 5e-3 * high and high > 1e-3:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _change(pair, steps, rate, middle) > changed else (low, middle)
        )
    return high


def _delta(pair: Pair, epsilons: FloatArray) -> FloatArray:
    """Upper bounds of the deltas of one run of the base alone, at ascending epsilons."""
    cells = pair.bins(epsilons, np.zeros(epsilons.size))
    assert cells is not None
    # a cell with the P-mass p has p (1 - e^(eps - r) w) of delta, for its reference r
    p, right = cells.p.upper[::-1], np.append(epsilons, epsilons[-1])[::-1]
    q = p * cells.w.lower[::-1] * exp_enclosure(-right).lower
    off = 2.0 * p.size + 16.0
    more, less = scale_up(np.cumsum(p), off), scale_down(np.cumsum(q), off)
    # of all cells above each epsilon
    above = more[-2::-1] - exp_enclosure(epsilons).lower * less[-2::-1]
    return scale_up(np.maximum(above, TINY), 4.0)


def _points(
    best: Callable[[FloatArray], FloatArray], first: float
) -> tuple[FloatArray, FloatArray]:
    """Ascending epsilons, so near that chords are close to the curve ``best``, and its values.

    Args:
        best: upper bounds of the deltas at ascending epsilons.
        first: an epsilon > 0 at which delta is about that at 0.
    """
    number = math.ceil(math.log(_FARTHEST / first) / math.log(_RATIO))
    x = np.append(0.0, first * _RATIO ** np.arange(number))
    y = best(x)
    last = int(np.argmax(np.append(y, 0.0) <= _LAST))
    x, y = x[: last + 1], y[: last + 1]
    for _ in range(_HALVINGS):
        fall = -np.log(np.maximum(y, _LAST))
        far = np.diff(fall) > _FALL + _SHARE * fall[:-1]
        if not far.any():
            break
        between = (x[:-1][far] + x[1:][far]) / 2
        x, y = np.append(x, between), np.append(y, best(between))
        order = np.argsort(x)
        x, y = x[order], y[order]
    return x, y


@dataclass(frozen=True)
class _Hidden:
    """The deltas of the theorem for one kappa.

    Attributes:
        changed: (steps - 1) D.
        chances: upper bounds of the chances that the record is hidden among so many batches.
        averages: the curves of random allocation to that many; None for one batch.
    """

    changed: float
    chances: tuple[float, ...]
    averages: tuple[_Average | None, ...]

    @staticmethod
    def of(pair: Pair, steps: int, rate: float, fall: float, least: float) -> _Hidden:
        """The deltas for kappa = e^-fall.

        Args:
            pair: that of one batch.
            steps: batches of an epoch.
            rate: the chance of each other record to be in the sample.
            fall: > 0; inf where no record is a clone of an empty place.
            least: a chance; numbers that are less likely to be undercut are not listed.
        """
        # guard: chance-of-a-clone-rounded-down
        kappa = Fraction(exp_down(-fall)) if fall < math.inf else Fraction(0)
        # guard: empty-place-or-clone
        kappa = 1 - Fraction(rate) * (1 - kappa)
        expected = (steps - 1) * float(kappa)
        deviation = math.sqrt(expected * (1.0 - float(kappa)))
        few = 1.0 + expected + deviation * float(sp.ndtri(max(min(least, 0.5), 1e-300)))
        first = max(0, bisect.bisect(_NUMBERS, few) - 1)
        last = bisect.bisect(_NUMBERS, 1.0 + expected + deviation)
        hidden = _NUMBERS[first:last]
        # guard: fewer-hidden-than-listed
        at_least = [(1.0, 1.0)] + [binomial_tails(steps - 1, kappa, j - 1)[1] for j in hidden]
        chances = [
            max(0.0, sub_up(upper, lower))
            for (_, upper), (lower, _) in pairwise([*at_least, (0.0, 0.0)])
        ]
        averages = [None if j == 1 else _Average.of(pair, j) for j in (1, *hidden)]
        return _Hidden(_change(pair, steps, rate, fall), tuple(chances), tuple(averages))

    def delta(self, epsilons: FloatArray, alone: FloatArray) -> FloatArray:
        """Upper bounds of delta at the epsilons, where ``alone`` are those of one batch."""
        # guard: changed-on-both-sides
        whole = self.changed * (1.0 + exp_enclosure(epsilons).upper)
        for chance, average in zip(self.chances, self.averages, strict=True):
            whole = whole + chance * (alone if average is None else average.delta(epsilons))
        return scale_up(whole, 2.0 * len(self.chances) + 16.0)


@dataclass(frozen=True)
class _Average:
    """The deltas of random allocation, for the worse direction.

    Attributes:
        falls: for each direction minus the losses, ascending, of all outputs but the certain ones.
        p, q: sums of all masses up to that place, P's rounded up and Q's rounded down.
        certain: the mass of a loss of inf.
    """

    falls: tuple[FloatArray, ...]
    p: tuple[FloatArray, ...]
    q: tuple[FloatArray, ...]
    certain: tuple[float, ...]

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def of(pair: Pair, steps: int) -> _Average:
        """The deltas of allocation to one of ``steps`` runs of a pair, the same for P and Q."""
        side = Direction.REMOVE
        spread = Spread.of(pair, side, steps, _COARSER, reverse=pair)
        sums = [_sums(spread.pair(direction)) for direction in Direction]
        return _Average(*zip(*sums, strict=True))

    def delta(self, epsilons: FloatArray) -> FloatArray:
        """Upper bounds of delta at the epsilons."""
        growth = exp_enclosure(epsilons).lower
        found = np.zeros(epsilons.size)
        for falls, p, q, certain in zip(self.falls, self.p, self.q, self.certain, strict=True):
            above = np.searchsorted(falls, -epsilons)  # outputs whose loss is larger
            found = np.maximum(found, scale_up(p[above] - growth * q[above] + certain, 4.0))
        return found


def _sums(pair: AtomicPair) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """A direction's entries of an average: minus the losses, both sums, the mass of loss inf.

    An output with the P-mass p and the loss x has p (1 - e^(eps - x)) of delta, which rises in
    both: upper bounds of them give one of it.
    """
    atoms = pair.given
    order = np.argsort(-atoms.loss_upper)
    loss, p = atoms.loss_upper[order], atoms.p.upper[order]
    off = 2.0 * loss.size + 16.0
    more = np.append(0.0, scale_up(np.cumsum(p), off))
    less = scale_down(np.cumsum(p * exp_enclosure(-loss).lower), off)
    return -loss, more, np.append(0.0, less), float(pair.p_only().upper[0])
