"""Releases quantiles by the exponential mechanism on a public grid, from a run-length list.

Let N be the number of records, and let L(t) and U(t) be the numbers of records below and above a
grid point t. The score of t, for a probability q, is

    e(t) = max(L(t) - q N, U(t) - (1 - q) N).

If it is positive, it is the number of records by which t misses being a q-quantile. If it is
negative, t is the quantile, and this many records may be added or taken away before it is not.
Some point has a score of at most 0. One record more moves L - q N by 1 - q or by -q, and
U - (1 - q) N by q or by -(1 - q). So the moves of e(t), over all t, lie between -s and s, where
s = max(q, 1 - q); and for q = 0, where e is L, or q = 1, where e is U, they lie between 0 and 1.
Let m be the length of this interval: 2 s, or 1. For r records more it is r m.

A point is drawn with a probability proportional to the integer

    W(e) = floor(10^K x), x = e^(-clip(lambda e + 20, 0, C)) to 45 decimal digits,

where C depends on the number of grid points alone. Proof of epsilon-DP: lambda is at most
(1 - 10^-12) epsilon / (r m), and W is at least 10^26. So W is 10^K e^(-clip(lambda e + 20, 0, C))
but for a relative error below 10^-25, and the moves of ln W(e(t)) over all t lie in an interval of
length lambda r m + 4 10^-25 <= epsilon, if epsilon >= 10^-9. The logarithm of the sum of W over
all points moves by an amount in the same interval, since the sum's factor is a mean of the factors
of W. So the probability of no point moves by more than e^epsilon. The draw itself is one uniform
integer, made of fair coins: no rounding of it counts.

Between two values that occur the score is constant: d values that occur make 2 d + 1 cells of
equal weight, however many points the grid has. And all cells whose score is above (C - 20) / lambda
have the least weight, so that only the cells near the quantile are looked at one by one.

Proof of the rank error. Let there be P points and k probabilities, let beta be in (0, 1), and let
x = ln(k P / beta) / lambda, with ln(k P / beta) <= C - 20. Some point has a score of at most 0, so
its W is at least that of 0. A point whose score is above x has at most beta / (k P) times that
weight, and there are at most P - 1 such points: so one of them is drawn with a probability below
beta / k, and 1 - 1 / P pays for the relative error of W and of the logarithm. Of k points that are
drawn, all have a score of at most their x, and so of at most the largest x, with a probability of
at least 1 - beta. Sorted, they keep this: the i-th is at most the largest of the first i that were
drawn, which has at most q_i N + x records below it, and at least the least of those from i on,
which has at most (1 - q_i) N + x records above it. Nothing here looks at the records.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from tightbudget.numerics.validate import (
    finite,
    listed,
    open_probability,
    plain,
    plain_numbers,
    positive,
    positive_count,
    refuse,
)
from tightbudget.output_dp.amount import Price, exact, exact_positive, exact_probability
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.columns import clamped
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.noise.grid import AnswerGrid
from tightbudget.release.noise.noise import IntArray, Noise
from tightbudget.release.run_lengths import counted_column

# Of each probability: _PAID pays for the roundings of all weights with it.
LEAST_EPSILON = Fraction(1, 10**9)
_PAID = 1 - Fraction(1, 10**12)  # the part of epsilon that is left when roundings are paid for

# Negative scores count down to -20 / lambda: a quantile so far from both ends of its run has
# e^20 times the weight of the points beside the run.
_INSIDE = 20
# The points at the least weight have a probability of at most e^-40 together, about 4e-18, since
# some point has at least the weight of e = 0.
_TAIL = 40
# At most 2^54 points: C is at most 98, e^-98 is above 10^-43, and the least weight above 10^26.
_K = 69
# libmpdec's products and exponentials are correctly rounded to this many digits, by its
# documentation. No signal is trapped, whatever the context of the caller traps.
_DECIMAL = Context(prec=45, traps=[])
_DOWN = Context(prec=40, rounding=ROUND_FLOOR, traps=[])


@dataclass(frozen=True, kw_only=True)
class Weighted:
    """Neighbouring grid points of equal weight.

    Attributes:
        first: the first of the points.
        size: how many points there are.
        weight: the weight of each of them.
    """

    first: int
    size: int
    weight: int


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class QuantileRelease(MechanismOnData[Any, tuple[float, ...]]):
    """Draws a point of a grid for each quantile: the nearer in rank, the more likely.

    The data are one column of numbers, or its :class:`RunLengths`. The number of records is not
    public, and may be 0. The value of a release is a tuple of one number for each probability, in
    ascending order. :meth:`rank_error` says by how many records they may miss: it grows with the
    logarithm of the number of grid points, so that a coarser step makes it less.

    Guarantee: epsilon-DP, delta = 0, for data sets of which one has all records of the other and
    at most ``rows_per_unit`` more; one cell, "value". Each of k quantiles costs epsilon / k.
    Source: McSherry, Talwar 2007 (the exponential mechanism); Smith 2011 (for quantiles). Here
    weights are integers, and the score counts records at the answer on the better side.

    Args:
        probabilities: at least one number in [0, 1], ascending: 0.5 is the median.
        bounds: (low, high), public; records beyond are moved there, and missing ones to low.
        epsilon: nats, at least 1e-9 for each probability: the price of all of them together.
        step: of the grid that records and answers lie on, a power of two.
        rows_per_unit: r >= 1, how many records a unit of privacy may have.

    Raises:
        ParameterError: a parameter is refused.
    """

    probabilities: Sequence[Price]
    bounds: tuple[float, float]
    epsilon: Price
    step: float
    rows_per_unit: int = 1

    def __post_init__(self) -> None:
        positive_count(rows_per_unit=self.rows_per_unit)
        object.__setattr__(self, "step", positive(step=self.step))
        low, high = self._ends
        if not low < high:
            raise refuse("step", f"be finer: bounds = {self.bounds} have one point", self.step)
        object.__setattr__(self, "probabilities", _ascending(self.probabilities))
        if exact_positive(epsilon=self.epsilon) < LEAST_EPSILON * len(self.probabilities):
            raise refuse("epsilon", "be at least 1e-9 for each probability", self.epsilon)
        super().__post_init__()

    @property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the price epsilon."""
        return OutputDP({"value": exact_positive(epsilon=self.epsilon)})

    def rank_error(self, confidence: float = 0.95, *, columns: int = 1) -> int:
        """Returns by how many records all answers miss their quantiles at most.

        Guarantee: with at least this probability, whatever the N records are, each answer to a
        probability q has at most q N + x of them below it and at most (1 - q) N + x above it,
        where x is the number that is returned. It depends on the parameters alone.
        Source: McSherry, Talwar 2007, Theorem 6, for the score of this mechanism; the proof is at
        the beginning of the module.

        Args:
            confidence: in (0, 1).
            columns: of how many columns, each with records of its own, all answers keep to it.

        Raises:
            ParameterError: the confidence is not in (0, 1), or is within k e^-40 of 1 for k
                quantiles.
        """
        miss = 1 - exact(confidence=open_probability(confidence=confidence))
        first, last = self._ends
        # the probability to miss is shared out among the quantiles of all columns
        quantiles = len(self.probabilities) * columns  # guard: rank-error-of-all-columns
        odds = quantiles * (last - first + 1) / miss
        above, below = Decimal(odds.numerator), Decimal(odds.denominator)
        log = _DECIMAL.subtract(_DECIMAL.ln(above), _DECIMAL.ln(below))
        if not log <= self._most - _INSIDE:  # guard: rank-error-before-the-cut
            must = f"be further from 1 than {quantiles} e^-40, for so many quantiles"
            raise refuse("confidence", must, confidence)
        parts = [exact(q=q) for q in self.probabilities]
        # guard: rank-error-of-the-worst
        rate = min(Fraction(self._rate(part)) * part.denominator for part in parts)
        return math.ceil(Fraction(log) / rate)

    def weights(self, points: IntArray, counts: IntArray | None, q: Price) -> list[Weighted]:
        """Returns all points of the grid, in order, with the weight of each for one probability.

        Args:
            points: (d,) points of the grid, in any order.
            counts: (d,) how many records each of them has, or None for one record each.
            q: in [0, 1].
        """
        first, last = self._ends
        known, below = _runs(points, counts)
        n, part = int(below[-1]), exact(q=q)
        a, c = part.numerator, part.denominator
        rate = self._rate(part)

        def cell(begin: int, end: int, lower: int, upper: int) -> Weighted:
            # the score in 1/c, an integer
            score = max(c * lower - a * n, c * upper - (c - a) * n)  # guard: score
            return Weighted(first=begin, size=end - begin, weight=self._weight(rate, score))

        if not n:
            return [cell(first, last + 1, 0, 0)]
        # all cells with more records above or below than these have the least weight
        far = math.ceil((self._most - _INSIDE) / Fraction(rate))
        upper, lower = min(n, ((c - a) * n + far) // c), min(n, (a * n + far) // c)
        i = int(np.searchsorted(below[1:], n - upper))
        j = int(np.searchsorted(below[:-1], lower, side="right"))
        near, ranks = known[i:j].tolist(), below[i : j + 1].tolist()
        cells = [cell(first, near[0], 0, n)]
        for k, point in enumerate(near):
            cells.append(cell(point, point + 1, ranks[k], n - ranks[k + 1]))
            if k + 1 < len(near):
                cells.append(cell(point + 1, near[k + 1], ranks[k + 1], n - ranks[k + 1]))
        return [*cells, cell(near[-1] + 1, last + 1, n, 0)]

    def _admitted(self, data: Any) -> tuple[IntArray, IntArray | None]:
        """Returns the points, and how many records have each; refuses types and shapes alone."""
        values, counts = counted_column(data)
        low, high = map(float, self.bounds)
        return self._grid.points(clamped(values, low, high), len(values)), counts

    def _run(
        self, data: tuple[IntArray, IntArray | None], noise: Noise
    ) -> tuple[tuple[float, ...], Cell]:
        drawn = [_drawn(self.weights(*data, q), noise) for q in self.probabilities]
        # what is sorted is released already, and in order each answer is no further from its
        # quantile than the worst of them was
        return tuple(self.step * point for point in sorted(drawn)), "value"

    @cached_property
    def _grid(self) -> AnswerGrid:
        """The grid that records and answers lie on."""
        if self.bounds is None:
            raise refuse("bounds", "be given: public numbers (low, high)", None)
        return AnswerGrid(self.step, self.bounds)

    @cached_property
    def _ends(self) -> tuple[int, int]:
        """The first and the last point of the grid."""
        given = dict(zip(("bounds[0]", "bounds[1]"), self._grid.bounds or (), strict=True))
        first, last = (self._grid.public(**{name: finite(**{name: given[name]})}) for name in given)
        return first, last

    @cached_property
    def _most(self) -> int:
        """The number C, which lambda e + 20 is cut off at."""
        low, high = self._ends
        return math.ceil((high - low + 1).bit_length() * math.log(2)) + _TAIL + _INSIDE

    def _rate(self, q: Fraction) -> Decimal:
        """Returns lambda / c for q = a / c, rounded down; scores are counted in 1/c."""
        epsilon = exact_positive(epsilon=self.epsilon) / len(self.probabilities)
        a, c = q.numerator, q.denominator
        moves = c if a in (0, c) else 2 * max(a, c - a)  # m, counted in 1/c
        rate = _PAID * epsilon / (self.rows_per_unit * moves)  # guard: noise-for-moves
        return _DOWN.divide(Decimal(rate.numerator), Decimal(rate.denominator))

    def _weight(self, rate: Decimal, score: int) -> int:
        """Returns W(e) for a score that is counted in 1/c, as the rate is."""
        x = _DECIMAL.fma(rate, Decimal(score), Decimal(_INSIDE))
        x = max(Decimal(0), min(x, Decimal(self._most)))
        return int(_DECIMAL.scaleb(_DECIMAL.exp(x.copy_negate()), _K))


def _ascending(probabilities: Any) -> tuple[Any, ...]:
    """Returns probabilities as a tuple.

    Raises:
        ParameterError: they are no list, there is none, one is not in [0, 1], or they do not
            ascend.
    """
    listed(probabilities=probabilities)
    several = tuple(plain(q) for q in probabilities)
    for i, q in enumerate(several):
        exact_probability(**{f"probabilities[{i}]": q})
    known = [exact(q=q) for q in several]
    if not known or any(p >= q for p, q in itertools.pairwise(known)):
        raise refuse("probabilities", "be at least one number, and ascend", several)
    return several


def _runs(points: IntArray, counts: IntArray | None) -> tuple[IntArray, IntArray]:
    """Sorts points, and adds up the records of equal ones.

    Returns:
        (d,) the points that some record has, ascending, and (d + 1,) the number of records below
        each of them; the last entry is the number of all records.
    """
    if counts is not None:
        points, counts = points[counts > 0], counts[counts > 0]
    order = np.argsort(points)
    ordered = points[order]
    ends = np.flatnonzero(np.append(np.diff(ordered) > 0, len(ordered) > 0))
    ranks = np.arange(1, len(points) + 1) if counts is None else np.cumsum(counts[order])
    return ordered[ends], np.append([0], ranks[ends])


def _drawn(cells: Sequence[Weighted], noise: Noise) -> int:
    """Draws a point with a probability proportional to its weight, exactly.

    A uniform integer below a power of two is read bit by bit, until all integers that begin so
    belong to one point; one that belongs to no point is drawn again.
    """
    ends = list(itertools.accumulate(cell.size * cell.weight for cell in cells))
    bits = (ends[-1] - 1).bit_length()
    while True:
        low, left = 0, bits
        while low < ends[-1]:
            i = bisect.bisect_right(ends, low)
            cell = cells[i]
            place, after = divmod(low - (ends[i] - cell.size * cell.weight), cell.weight)
            if after + 2**left <= cell.weight:
                return cell.first + place
            left -= 1
            low += noise.coin() << left  # guard: uniform-integer
