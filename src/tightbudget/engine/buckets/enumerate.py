"""Few outcomes are enumerated one by one: no grid, no width beyond rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tightbudget.engine.buckets.compose import Parts
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.enclosure import Enclosure, exact
from tightbudget.numerics.rounding import (
    EXPM1,
    UNIT,
    FloatArray,
    add_down,
    add_up,
    expm1_up,
    next_up,
    sum_down,
    sum_up,
)
from tightbudget.numerics.search import last_true

_MOST = 2**14  # outcomes: arrays of 128 KiB, which stay in a processor's cache


@dataclass(frozen=True)
class Outcomes:
    """All finite losses of a composition with their P-masses.

    Guarantee: the k-th outcome's mass is in ``p`` and its loss in [loss_lower, loss_upper].
    """

    p: Enclosure  # (n,)
    loss_lower: FloatArray
    loss_upper: FloatArray
    infinity: Bounds

    @staticmethod
    def of(parts: Parts) -> Outcomes | None:
        """The product of all parts' outputs; None if there are too many, or a continuum."""
        number = 1  # an int: no power of it overflows
        for part in parts.parts:
            if part.count > 64 or part.is_continuous:
                return None
            number *= len(part.pair.atoms()) ** part.count
            if number > _MOST:
                return None
        p, low, high = exact(1.0), np.zeros(1), np.zeros(1)
        for part in parts.parts:
            atoms = part.pair.atoms()
            for _ in range(part.count):
                p = Enclosure(
                    np.repeat(p.lower, len(atoms)), np.repeat(p.upper, len(atoms))
                ) * Enclosure(np.tile(atoms.p.lower, len(low)), np.tile(atoms.p.upper, len(low)))
                low = _outer_sum(low, atoms.loss_lower, -1)
                high = _outer_sum(high, atoms.loss_upper, +1)
        return Outcomes(p, low, high, parts.infinity)

    def upper_delta(self, epsilon: float) -> float:
        """Returns an upper bound of delta(eps)."""
        # the difference is rounded by a unit of itself, and expm1 does not magnify a relative error
        gain = -np.expm1(np.minimum(epsilon - self.loss_upper, 0.0))
        gain = gain * (1 + (EXPM1 + 2.0) * UNIT)  # pays: outcome-up
        total = sum_up(self.p.upper * np.minimum(gain, 1.0))
        return min(1.0, add_up(self.infinity.upper, total))

    def lower_delta(self, epsilon: float) -> float:
        """Returns a lower bound of delta(eps)."""
        gain = -np.expm1(np.minimum(epsilon - self.loss_lower, 0.0))
        gain = gain * (1 - (EXPM1 + 2.0) * UNIT)  # pays: outcome-down
        total = sum_down(self.p.lower * np.maximum(gain, 0.0))
        proved = add_down(self.infinity.lower, total)
        if epsilon < 0.0:  # outputs that only Q has count here, and delta >= 1 - e^eps
            return max(proved, -expm1_up(epsilon))
        return max(proved, 0.0)

    def delta(self, epsilon: float) -> Bounds:
        """Bounds of delta(eps), for any finite eps."""
        return Bounds(self.lower_delta(epsilon), self.upper_delta(epsilon))

    def epsilon(self, delta: float) -> Bounds:
        """Bounds of inf{eps >= 0: delta(eps) <= delta}, delta > P(loss = inf)."""
        top = next_up(float(np.max(self.loss_upper)))
        guess = max(0.5 * top, 1e-300)
        low = last_true(lambda e: self.lower_delta(e) > delta, guess, top)
        high = last_true(lambda e: self.upper_delta(e) > delta, guess, top)
        return Bounds(low.last_true, max(low.last_true, high.first_false))


def _outer_sum(a: FloatArray, b: FloatArray, sign: int) -> FloatArray:
    total = np.add.outer(a, b).ravel()
    # the sum, and this one
    return np.asarray(total + sign * 2 * UNIT * np.abs(total))  # pays: outcome-losses
