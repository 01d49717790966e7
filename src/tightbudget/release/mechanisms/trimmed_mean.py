"""Releases the trimmed mean, given a bound on the range of the records that are kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tightbudget.numerics.validate import plain_numbers, refuse
from tightbudget.output_dp.amount import Price, exact
from tightbudget.release.mechanisms.order_statistics import Ordered
from tightbudget.release.mechanisms.propose_test_release import Proposal, ProposeTestRelease
from tightbudget.release.mechanisms.robust import LIMIT, RobustStatistic


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class TrimmedMean(RobustStatistic):
    """The mean of x(a), ..., x(b): without the floor(trim n) smallest and as many largest.

    The data are one column of n >= 4 numbers, or its :class:`RunLengths`. The value of a release is
    the noisy mean, or None with the cell "bottom".

    Replacing one record changes the sum S of x(a), ..., x(b) by at most the larger of
    x(b+1) - x(a) and x(b) - x(a-1), since each of them moves by at most one rank. The proposal
    says that both are at most ``spread``. If it passes, S is released with noise of scale
    spread / epsilon, and divided by b - a + 1.

    Guarantee: for data sets that differ in one record, with n public: {"value": 2 epsilon,
    "bottom": epsilon} and delta. Without a spread "bottom" comes out, at no cost.
    Source: Dwork, Lei 2009; Hartmann et al. 2022, Definition 9.

    Args:
        epsilon: >= 1e-9, nats: the price of one test, and again of the value.
        delta: in (0, 1).
        step: of the grid that records and answer lie on, a power of two.
        spread: > 0, public; for example three times the value of an
            :class:`InterquartileRange`, and None if its cell was "bottom". With a tenth trimmed at
            each end, normal data keep a range of 1.9 times their interquartile range.
        trim: in [0, 1/2), the part of the records that is left out at each end.

    Raises:
        ParameterError: a parameter is refused.
    """

    spread: float | None
    trim: Price = Fraction(1, 10)

    def __post_init__(self) -> None:
        if not exact(trim=self.trim) < Fraction(1, 2):
            raise refuse("trim", "be in [0, 1/2)", self.trim)
        super().__post_init__()
        if self.spread is not None:
            self._in_steps(spread=self.spread)

    @property
    def _protocol(self) -> ProposeTestRelease:
        tries = 0 if self.spread is None else 1
        return ProposeTestRelease(self._propose, self.epsilon, self.delta, tries)

    def _propose(self, records: Ordered) -> Sequence[Proposal]:
        assert self.spread is not None  # without one there are no tries
        a, b = self._kept(records.n)
        bound = math.ceil(self._in_steps(spread=self.spread))
        distance = records.to_exceed(a, b, bound)
        # guard: sum-sensitivity
        return [Proposal(distance, records.sum(a, b), sensitivity=bound)]

    def _answer(self, value: int, n: int) -> float:
        a, b = self._kept(n)
        mean = value / (b - a + 1)
        return self.step * min(max(mean, -LIMIT), LIMIT)

    def _kept(self, n: int) -> tuple[int, int]:
        """Returns the first and the last rank that are kept."""
        cut = math.floor(exact(trim=self.trim) * n)
        return cut + 1, n - cut
