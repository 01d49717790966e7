"""Releases the interquartile range, on a logarithmic scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tightbudget.numerics.validate import plain_numbers
from tightbudget.release.mechanisms.order_statistics import Ordered
from tightbudget.release.mechanisms.propose_test_release import (
    Pricing,
    Proposal,
    ProposeTestRelease,
)
from tightbudget.release.mechanisms.robust import LIMIT, RobustStatistic
from tightbudget.release.noise.noise import IntArray

_STEPS = 32  # of the logarithmic scale in one bin: the noise has the scale 31 / epsilon


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class InterquartileRange(RobustStatistic):
    """The range between the quartiles, x(b) - x(a) with a = ceil(n/4), b = ceil(3n/4).

    The data are one column of n >= 4 numbers, or its :class:`RunLengths`. The value of a release is
    the noisy range, or None with the cell "bottom".

    The range is counted in steps of a logarithmic scale, 32 of them to a factor of 1 + 1/ln n. The
    proposal says that no neighbour leaves the bin of 32 steps that the range lies in. There are
    two tries: the bins of the second begin in the middle of those of the first. A range that
    passes is released with noise of scale 31/epsilon steps: a factor of
    (1 + 1/ln n)^(about 1/epsilon). A range below one grid step counts as one.

    Guarantee: for data sets that differ in one record, with n public: {"value": 3 epsilon,
    "bottom": 2 epsilon} and delta, or the prices of :attr:`Pricing.IN_TURN`.
    Source: Dwork, Lei 2009; Hartmann et al. 2022, Lemma 10.

    Args:
        epsilon: >= 1e-9, nats: the price of one test, and again of the value.
        delta: in (0, 1), for both tests together.
        step: of the grid that records and answer lie on, a power of two.
        pricing: the price of two tries; see :class:`Pricing`.

    Raises:
        ParameterError: a parameter is refused.
    """

    pricing: Pricing = Pricing.ONE_MECHANISM

    @property
    def _protocol(self) -> ProposeTestRelease:
        return ProposeTestRelease(self._propose, self.epsilon, self.delta, 2, self.pricing)

    def _propose(self, records: Ordered) -> tuple[Proposal, Proposal]:
        n, scale = records.n, _scale(records.n)
        a, b = -(-n // 4), -(-3 * n // 4)
        step = int(np.searchsorted(scale, records.at(b) - records.at(a), side="right")) - 1
        return _bin(records, a, b, step, 0), _bin(records, a, b, step, _STEPS // 2)

    def _answer(self, value: int, n: int) -> float:
        step = min(max(value, 0), len(_scale(n)) - 1)
        return self.step * math.exp((step + 0.5) / _STEPS * _log_base(n))


def _bin(records: Ordered, a: int, b: int, step: int, first: int) -> Proposal:
    """Proposes that the range stays in the bin of its step; some bin begins at ``first``."""
    scale = _scale(records.n)
    begin = step - (step - first) % _STEPS
    low = int(scale[begin]) if begin >= 0 else 0  # a range of 0 has the step -1
    distance = records.to_leave(a, b, low, int(scale[begin + _STEPS]))
    return Proposal(distance, step, sensitivity=_STEPS - 1)  # guard: range-sensitivity


@lru_cache(maxsize=8)
def _scale(n: int) -> IntArray:
    """Returns the least integer range of each step 0, 1, ...: ascending, the first is 1.

    The scale does not depend on the data, so the rounding of its values costs no privacy.
    """
    steps = math.ceil(math.log(2 * LIMIT) / _log_base(n) * _STEPS) + 2 * _STEPS
    exact = np.exp(np.arange(steps) * (_log_base(n) / _STEPS))
    return np.maximum.accumulate(np.ceil(exact)).astype(np.int64)


def _log_base(n: int) -> float:
    """Returns ln(1 + 1/ln n), the logarithm of the factor of one bin."""
    return math.log1p(1 / math.log(n))
