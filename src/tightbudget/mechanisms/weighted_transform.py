"""The moment generating function of a disjoint union of pairs: a weighted sum of theirs.

A line that ends in "pays: name" pays for what docs/explanation/rounding.md says under that name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tightbudget.mechanisms.gaussian_transform import logarithm
from tightbudget.numerics.rounding import (
    EXP,
    EXPM1,
    TURN,
    UNIT,
    FloatArray,
    add_up,
    exp_up,
    expm1_up,
    log1p_up,
    log_up,
    mul_up,
    outwards,
    sub_up,
)
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.transform import Line, Rough, Transform

_FAR = 600.0  # ln of the largest value of M that is computed: e^709 leaves the range of doubles


@dataclass(frozen=True)
class WeightedTransform(Transform):
    """M = sum_i w_i M_i for weights w_i > 0; their exact sum is 1, but for a rare part.

    Attributes:
        parts: (k,) each weight with its transform.
        off: the relative error that each weight may have.
        rare: whether M is a part that may be small, computed as it is and not as M - 1.
    """

    parts: tuple[tuple[float, Transform], ...]
    off: float
    rare: bool = False

    @property
    def farthest(self) -> float:
        return min(transform.farthest for _, transform in self.parts)

    def rough(self, c: FloatArray) -> Rough:
        found = [(math.log(weight), transform.rough(c)) for weight, transform in self.parts]
        logs = np.array([log + one.value for log, one in found])
        if self.rare:
            value = np.logaddexp.reduce(logs, axis=0)
        else:  # near 0, of M - 1
            with np.errstate(over="ignore"):
                less = sum(w * np.expm1(one.value) for (w, _), (_, one) in zip(
                    self.parts, found, strict=True))  # fmt: skip
            near = np.abs(less) < 0.5
            value = np.where(
                near, np.log1p(np.where(near, less, 0.0)), np.logaddexp.reduce(logs, axis=0)
            )
        shares = np.exp(logs - np.logaddexp.reduce(logs, axis=0))
        slopes = np.array([one.slope for _, one in found])
        slope = np.sum(shares * slopes, axis=0)
        bends = np.array([one.curvature for _, one in found]) + (slopes - slope) ** 2
        return Rough(value, slope, np.sum(shares * bends, axis=0))

    def nodes(self, c: float, t: float, tolerance: float) -> int:
        return sum(transform.nodes(c, t, tolerance) for _, transform in self.parts)

    def line(self, c: float, t: FloatArray, tolerance: float) -> Line:
        value, error = np.zeros_like(t, dtype=np.complex128), np.zeros_like(t)
        for weight, transform in self.parts:
            line = transform.line(c, t, tolerance)
            a, b = np.minimum(line.log.real, _FAR), line.log.imag
            size = np.exp(a)
            if self.rare:
                one = size * (np.cos(b) + 1j * np.sin(b))
                parts = size
            else:
                # e^(a + ib) - 1 = (e^a - 1) cos b - 2 sin^2(b / 2) + i e^a sin b
                bend = 2.0 * np.sin(0.5 * b) ** 2
                one = np.expm1(a) * np.cos(b) - bend + 1j * size * np.sin(b)
                parts = np.abs(np.expm1(a)) + bend + size * np.abs(np.sin(b))
            value = value + weight * one
            # the weight; the functions, products, differences and the sum so far; M_i itself
            off = parts * self.off
            units = EXP + EXPM1 + 2.0 * TURN + 6.0 + len(self.parts)
            off = off + parts * units * UNIT  # pays: either-value
            off = off + size * np.expm1(np.minimum(line.error, _FAR))
            error = error + weight * np.where(line.log.real > a, np.inf, off)
        return logarithm(value, outwards(error), 0.0 if self.rare else 1.0)

    def upper(self, c: float) -> float:
        logs = [(mul_up(weight, 1.0 + self.off), one.upper(c)) for weight, one in self.parts]
        top = max(log for _, log in logs)
        if self.rare or not abs(top) < 1.0:
            return self._log_sum([log for _, log in logs])
        # weights of M_i < 1 are not raised above the exact ones: M - 1 = sum w_i (M_i - 1)
        less = add_up(*(
            mul_up(weight, expm1_up(log)) if log > 0 else
            mul_up(weight * (1.0 - 3.0 * self.off), expm1_up(log))
            for weight, log in logs
        ))  # fmt: skip
        return log1p_up(less)

    def shifts(self, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        logs = [math.log(weight) + one.shifts(c, t)[0] for weight, one in self.parts]
        # each transform finds its own shift in ``beyond``
        return np.asarray(np.logaddexp.reduce(logs)), np.zeros_like(t)

    def beyond(self, c: float, t: float, shift: float) -> float:
        heights = np.array([t])
        return self._log_sum(
            [one.beyond(c, t, float(one.shifts(c, heights)[1][0])) for _, one in self.parts]
        )

    def _log_sum(self, logs: list[float]) -> float:
        """An upper bound of ln of the sum of w_i e^x_i."""
        top = max(logs)
        if not abs(top) < math.inf:
            return top
        total = add_up(*(
            mul_up(mul_up(weight, 1.0 + 2.0 * self.off), exp_up(sub_up(log, top)))
            for (weight, _), log in zip(self.parts, logs, strict=True)
        ))  # fmt: skip
        return add_up(top, log_up(total))

    def rare_split(self, c: float) -> tuple[Transform, Transform] | None:
        splits = [(weight, one, one.rare_split(c)) for weight, one in self.parts]
        rare = tuple((weight, split[1]) for weight, _, split in splits if split is not None)
        if not rare:
            return None
        bulk = tuple((weight, one if split is None else split[0]) for weight, one, split in splits)
        return (
            WeightedTransform(bulk, self.off),
            WeightedTransform(rare, self.off, rare=True),
        )

    def sampled(self, rate: float, direction: Direction) -> Transform | None:
        found = [(weight, one.sampled(rate, direction)) for weight, one in self.parts]
        kept = tuple((weight, one) for weight, one in found if one is not None)
        return WeightedTransform(kept, self.off) if len(kept) == len(found) else None
