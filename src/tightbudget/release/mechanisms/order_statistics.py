"""Counts the records that must be replaced before an order statistic, or a range, has moved.

Records are integers in [-limit, limit]; neighbours differ in one record, n stays. One lemma
carries everything. Write x(1) <= ... <= x(n), and x(m) = -limit for m < 1, +limit for m > n.
If one record is replaced by a larger one, every order statistic stays or rises, x(m) at most to
x(m+1). If it is replaced by a smaller one, x(m) stays or falls, at most to x(m-1). So

    widest(k)    = max over i + j = k of  x(b+j) - x(a-i),
    narrowest(k) = min over i + j = k of  x(b-j) - x(a+i)   (not below 0),   i, j >= 0,

bound the range x(b) - x(a) of every data set that is k replacements away; and for neighbours
x, x' widest'(k) <= widest(k+1) and narrowest'(k) >= narrowest(k+1). The smallest k at which
such a bound leaves a fixed interval therefore changes by at most one from x to x'. This k is the
number of replacements that are needed, since both bounds are reached: records between the two
statistics go outwards, and records outside go between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tightbudget.release.noise.noise import IntArray


@dataclass(frozen=True, eq=False)
class Ordered:
    """Records in order, between two sentinels: a list of runs of equal records.

    Every question is answered in O(d log d) for d runs, however many records a run has, and the
    answer is exact: below 2^42 records no number of it leaves 64 bits.

    Attributes:
        points: (d + 2,), ascending; the first is -limit, the last +limit.
        starts: (d + 3,), ascending; starts[j] is the rank of the first record of run j, and the
            last entry is n + 2. The sentinels have the ranks 0 and n + 1.
    """

    points: IntArray
    starts: IntArray

    @staticmethod
    def of(values: IntArray, limit: int, counts: IntArray | None = None) -> Ordered:
        """Sorts (d,) integers, all in [-limit, limit].

        Args:
            values: the integers.
            limit: the largest that an integer may be.
            counts: (d,), how many records have each of the integers, at least 0; None for one
                record each.
        """
        if counts is None:
            points = np.concatenate(([-limit], np.sort(values), [limit]))
            return Ordered(points, np.arange(len(points) + 1))
        order = np.argsort(values)
        points = np.concatenate(([-limit], values[order], [limit]))
        return Ordered(points, np.cumsum(np.concatenate(([0, 1], counts[order], [1]))))

    @property
    def n(self) -> int:
        """The number of records, which is public."""
        return int(self.starts[-1]) - 2

    def at(self, rank: int) -> int:
        """Returns the order statistic x(rank)."""
        return int(self._at(np.asarray(rank)))

    def sum(self, a: int, b: int) -> int:
        """Returns x(a) + ... + x(b), exactly."""
        first, last = self._run_of(a), self._run_of(b)
        points = self.points[first : last + 1]
        counts = np.diff(np.clip(self.starts[first : last + 2], a, b + 1))
        # points have at most 41 bits: each of these two sums fits into 64 bits for n < 2^42
        high, low = (points >> 20) * counts, (points & 0xFFFFF) * counts
        return (int(high.sum()) << 20) + int(low.sum())

    def widest(self, a: int, b: int, k: int) -> int:
        """Returns the largest range x(b) - x(a) that k replacements can make."""
        i = np.minimum(self._outwards(a), k)
        return int(np.max(self._at(b + k - i) - self._at(a - i)))

    def narrowest(self, a: int, b: int, k: int) -> int:
        """Returns the smallest range x(b) - x(a) that k replacements can make."""
        i = np.minimum(self._inwards(a, self.n + 1), k)
        return max(0, int(np.min(self._at(b - k + i) - self._at(a + i))))

    def to_leave(self, a: int, b: int, low: int, high: int) -> int:
        """Counts the fewest replacements after which x(b) - x(a) is outside [low, high).

        The range x(b) - x(a) is inside now. This is the least k with ``widest(k) >= high or
        narrowest(k) < low``, and n + 1 if the range of every data set is inside.
        Guarantee: for two neighbours whose ranges are inside, the numbers differ by at most one.
        """
        return min(self._to_widen(a, b, high), self._to_narrow(a, b, low))  # guard: range-widens

    def to_exceed(self, a: int, b: int, bound: int) -> int:
        """Counts the fewest replacements, at least 1, that can make x(b) - x(a) exceed ``bound``.

        This is the least k >= 1 with ``widest(k) > bound``, and n + 1 if there is none.
        Guarantee: the numbers of two neighbours differ by at most one.
        """
        return max(1, self._to_widen(a, b, bound + 1))  # guard: sum-moves-by-spread

    def to_move(self, m: int, low: int, high: int) -> int:
        """Counts the fewest replacements after which x(m), inside now, is outside [low, high).

        Guarantee: for two neighbours with x(m) inside, the numbers differ by at most one.
        """
        # guard: statistic-rises
        return int(min(self._risen(m, np.array(high)), self._fallen(m, np.array(low))))

    # Each search below is one pass of fixed size: its time depends on the ranks, on n and on the
    # number of runs, and not on the number that it finds, which is private. Where each record is a
    # run of its own, this time is public. A list of longer runs has as many of them as there are
    # different records, which is private: then the time tells about this number.

    def _to_widen(self, a: int, b: int, width: int) -> int:
        """Counts the fewest replacements after which x(b) - x(a) >= width; n + 1 if none do."""
        i = self._outwards(a)
        fewest = i + self._risen(b, self._at(a - i) + width)  # guard: both-ends-move-outwards
        return min(int(fewest.min()), self.n + 1)

    def _to_narrow(self, a: int, b: int, width: int) -> int:
        """Counts the fewest replacements after which x(b) - x(a) < width; n + 1 if none do."""
        i = self._inwards(a, b)  # with i + j = b - a the two statistics have met
        fewest = i + self._fallen(b, self._at(a + i) + width)
        return min(int(fewest.min()), self.n + 1) if width > 0 else self.n + 1

    # Within a run of equal x(a - i), or x(a + i), the least i is the best: a larger one leaves
    # fewer replacements for the other statistic, and moves this one no further.

    def _outwards(self, a: int) -> IntArray:
        """Returns the least i >= 0 for each value that x(a - i) can have, in any order."""
        # for i > a the lower statistic stays at -limit
        last = self.starts[1 : self._run_of(a) + 2] - 1
        return a - np.minimum(last, a)  # guard: runs-end-below

    def _inwards(self, a: int, b: int) -> IntArray:
        """Returns the least i >= 0 for each value that x(a + i) can have up to x(b)."""
        first = self.starts[self._run_of(a) : self._run_of(b) + 1]
        return np.maximum(first, a) - a  # guard: runs-begin-above

    def _risen(self, rank: int, to: IntArray) -> IntArray:
        """Returns the least k >= 0 with x(rank + k) >= to; n + 1 if there is none."""
        first = self._below(to)
        return np.where(first > self.n + 1, self.n + 1, np.maximum(first - rank, 0))

    def _fallen(self, rank: int, below: IntArray) -> IntArray:
        """Returns the least k >= 0 with x(rank - k) < below; n + 1 if there is none."""
        last = self._below(below) - 1
        return np.where(last < 0, self.n + 1, np.maximum(rank - last, 0))

    def _below(self, values: IntArray) -> IntArray:
        """Counts the ranks 0, 1, ..., n + 1 whose records are below each of the values."""
        found: IntArray = self.starts[np.searchsorted(self.points, values)]
        return found

    def _at(self, ranks: IntArray) -> IntArray:
        """Returns the order statistics of several ranks; beyond 1, ..., n, -limit or +limit."""
        within = np.clip(ranks, 0, self.n + 1)
        found: IntArray = self.points[np.searchsorted(self.starts, within, side="right") - 1]
        return found

    def _run_of(self, rank: int) -> int:
        """Returns the number of the run that a rank in 0, 1, ..., n + 1 is in."""
        return int(np.searchsorted(self.starts, rank, side="right")) - 1
