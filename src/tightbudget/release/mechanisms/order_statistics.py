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

__all__ = ["Ordered"]


@dataclass(frozen=True, eq=False)
class Ordered:
    """Records in order, between two sentinels.

    Attributes:
        records: (n + 2,), ascending; the first is -limit, the last +limit.
    """

    records: IntArray

    @staticmethod
    def of(values: IntArray, limit: int) -> Ordered:
        """Sorts (n,) integers, all in [-limit, limit]."""
        return Ordered(np.concatenate(([-limit], np.sort(values), [limit])))

    @property
    def n(self) -> int:
        """The number of records, which is public."""
        return len(self.records) - 2

    def at(self, rank: int) -> int:
        """Returns the order statistic x(rank)."""
        return int(self._at(np.asarray(rank)))

    def sum(self, a: int, b: int) -> int:
        """Returns x(a) + ... + x(b), exactly."""
        kept = self.records[a : b + 1]
        # records have at most 41 bits: each of these two sums fits into 64 bits for n < 2^43
        high, low = kept >> 20, kept & 0xFFFFF
        return (int(high.sum()) << 20) + int(low.sum())

    def widest(self, a: int, b: int, k: int) -> int:
        """Returns the largest range x(b) - x(a) that k replacements can make."""
        i = np.arange(k + 1)
        return int(np.max(self._at(b + k - i) - self._at(a - i)))

    def narrowest(self, a: int, b: int, k: int) -> int:
        """Returns the smallest range x(b) - x(a) that k replacements can make."""
        i = np.arange(k + 1)
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

    # Each search below is one pass of fixed size: its time depends on n and the ranks alone, which
    # are public, and not on the number that it finds, which is private.

    def _to_widen(self, a: int, b: int, width: int) -> int:
        """Counts the fewest replacements after which x(b) - x(a) >= width; n + 1 if none do."""
        i = np.arange(a + 1)  # for i > a the lower statistic stays at -limit
        fewest = i + self._risen(b, self.records[a - i] + width)  # guard: both-ends-move-outwards
        return min(int(fewest.min()), self.n + 1)

    def _to_narrow(self, a: int, b: int, width: int) -> int:
        """Counts the fewest replacements after which x(b) - x(a) < width; n + 1 if none do."""
        i = np.arange(b - a + 1)  # with i + j = b - a the two statistics have met
        fewest = i + self._fallen(b, self.records[a + i] + width)
        return min(int(fewest.min()), self.n + 1) if width > 0 else self.n + 1

    def _risen(self, rank: int, to: IntArray) -> IntArray:
        """Returns the least k >= 0 with x(rank + k) >= to; n + 1 if there is none."""
        first = np.searchsorted(self.records, to)
        return np.where(first > self.n + 1, self.n + 1, np.maximum(first - rank, 0))

    def _fallen(self, rank: int, below: IntArray) -> IntArray:
        """Returns the least k >= 0 with x(rank - k) < below; n + 1 if there is none."""
        last = np.searchsorted(self.records, below) - 1
        return np.where(last < 0, self.n + 1, np.maximum(rank - last, 0))

    def _at(self, ranks: IntArray) -> IntArray:
        """Returns the order statistics of several ranks; beyond 1, ..., n, -limit or +limit."""
        return self.records[np.clip(ranks, 0, self.n + 1)]
