"""Releases the median, given a scale of the data."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tightbudget.numerics.validate import plain_numbers
from tightbudget.release.mechanisms.order_statistics import Ordered
from tightbudget.release.mechanisms.propose_test_release import (
    Pricing,
    Proposal,
    ProposeTestRelease,
)
from tightbudget.release.mechanisms.robust import LIMIT, RobustStatistic


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class Median(RobustStatistic):
    """The median: the record x(m), m = ceil(n/2), of a column of n records.

    The data are one column of n >= 4 numbers, or its :class:`RunLengths`. The value of a release is
    the noisy median, or None with the cell "bottom".

    The proposal says that the median of no neighbour leaves the bin of x(m), whose width is
    scale / n^(1/3), at least two grid steps. There are two tries: the bins of the second begin
    in the middle of those of the first. A median that passes is released with noise of scale
    (width - 1) / epsilon.

    Guarantee: for data sets that differ in one record, with n public: {"value": 3 epsilon,
    "bottom": 2 epsilon} and delta, or the prices of :attr:`Pricing.IN_TURN`. Without a scale
    "bottom" comes out, at no cost.
    Source: Dwork, Lei 2009; Hartmann et al. 2022, section 4.2.

    Args:
        epsilon: >= 1e-9, nats: the price of one test, and again of the value.
        delta: in (0, 1), for both tests together.
        step: of the grid that records and answer lie on, a power of two.
        scale: > 0, public: the value of an :class:`InterquartileRange`; None if its cell was
            "bottom".
        pricing: the price of two tries; see :class:`Pricing`.

    Raises:
        ParameterError: a parameter is refused.
    """

    scale: float | None
    pricing: Pricing = Pricing.ONE_MECHANISM

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale is not None:
            self._in_steps(scale=self.scale)

    @property
    def _protocol(self) -> ProposeTestRelease:
        tries = 0 if self.scale is None else 2
        return ProposeTestRelease(self._propose, self.epsilon, self.delta, tries, self.pricing)

    def _propose(self, records: Ordered) -> tuple[Proposal, Proposal]:
        m, width = -(-records.n // 2), self._width(records.n)
        return _bin(records, m, width, 0), _bin(records, m, width, width // 2)

    def _width(self, n: int) -> int:
        """Returns the width of a bin, in grid steps: it is public."""
        assert self.scale is not None  # without one there are no tries
        return max(2, round(self._in_steps(scale=self.scale) / math.cbrt(n)))

    def _answer(self, value: int, n: int) -> float:
        return self.step * min(max(value, -LIMIT), LIMIT)


def _bin(records: Ordered, m: int, width: int, first: int) -> Proposal:
    """Proposes that x(m) stays in its bin of this width; some bin begins at ``first``."""
    value = records.at(m)
    low = value - (value - first) % width
    # guard: median-bin-width
    return Proposal(records.to_move(m, low, low + width), value, sensitivity=width - 1)
