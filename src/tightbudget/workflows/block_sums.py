"""Sums of a function of the loss over the outputs of one block, on the points of a window."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tightbudget.engine.buckets.measures import LowerMeasure, UpperMeasure
from tightbudget.numerics.convolve import correlate
from tightbudget.numerics.rounding import UNIT, FloatArray, exp_up, mul_up
from tightbudget.output_dp.stopping_lattice import Kernel

UNDERFLOW = 1e-300  # products that underflow are below 5e-324 each, and fewer than 2^53 are added
_NEAR = 0.1  # of a step: how far losses may be from points. Affects width, never truth.


@dataclass(frozen=True, eq=False)
class BlockSums:
    """The tilted masses of a block, and what undoes their tilts, for the points of one window.

    Attributes:
        up, p, q: of the upper measure, and of the two masses of the lower one.
        first_below: the point to which the lower measure's first output leads, from 0.
    """

    up: _TiltedSums
    p: _TiltedSums
    q: _TiltedSums
    first_below: int

    @property
    def reached(self) -> int:
        """The number of points that are reached from the window by the upper measure."""
        return self.up.decay.size

    @property
    def reached_below(self) -> int:
        """The number of points that are reached by the lower measure."""
        return self.p.decay.size

    @staticmethod
    def of(block: Kernel, lower: LowerMeasure, h: float, points: int) -> BlockSums:
        """The sums of a block's masses, ``lower`` from below, at a window of so many points."""
        upper = block.upper
        up = _TiltedSums.of(upper, upper.values, upper.exponent, upper.error, h, points)
        # what may lie left of the array is lifted to its first entry
        up.values[0] += mul_up(block.lifted, exp_up(-up.log_scale) * (1 + 1e-12))
        p = _TiltedSums.of(lower, lower.p, lower.p_exponent, lower.p_error, h, points)
        label = lower.grid.offset
        first = round((label - Fraction(_behind(lower))) / Fraction(h))
        # Q e^x for the point x that an output leads to, in place of its label
        behind = float(label - first * Fraction(h))
        moved = math.exp(-behind) * (1 + (16 + 4 * abs(behind)) * UNIT)
        q = _TiltedSums.of(
            lower, lower.q * moved, lower.q_exponent, lower.q_error * moved, h, points
        )
        return BlockSums(up, p, q, first)

    def upper(self, value: FloatArray) -> FloatArray:
        """(points,): an upper bound of E_P[V(l + L); L finite]."""
        found, off = self.up(value)
        # where a tilt overflows nothing is known, but that V <= 1
        return np.asarray(np.fmin(1.0, self.up.restored(found + off, up=True)))

    def lower(self, p: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(points,) each: A at least, and e^-l B at most."""
        found, off = self.p(p)
        with np.errstate(invalid="ignore"):
            a = np.maximum(0.0, self.p.restored(np.maximum(0.0, found - off), up=False))
        found, off = self.q(q)
        b = self.q.restored(found + off, up=True)
        return np.nan_to_num(a, nan=0.0, posinf=0.0), np.nan_to_num(b, nan=np.inf)


def centred(measure: LowerMeasure, moved: Callable[[Fraction], Kernel]) -> LowerMeasure:
    """A measure whose merged outputs have losses around points of the lattice, not between them.

    What an output does is what is best at the point that it leads to. That affects width alone.
    """
    h = measure.grid.step
    away = (_behind(measure) / h - 0.5) % 1.0 - 0.5
    return moved(Fraction(away * h)).lower if abs(away) > _NEAR else measure


def _behind(measure: LowerMeasure) -> float:
    """Tells how much less the losses of merged outputs are than their labels, about, nats."""
    scale = (measure.q_exponent - measure.p_exponent) * math.log(2.0)
    some = (measure.p > 1e-3 * np.max(measure.p, initial=0.0)) & (measure.q > 0.0)
    if not some.any():
        return 0.0
    p = measure.p[some]
    return float(np.sum(p * (np.log(measure.q[some] / p) + scale)) / np.sum(p))


@dataclass(frozen=True, eq=False)
class _TiltedSums:
    """Tilted masses that are summed against a function of the point that they lead to."""

    values: FloatArray
    error: float
    extended: bool
    decay: FloatArray  # e^(-theta (x - centre)) at the points that are reached
    growth: FloatArray  # what undoes it, and the tilt, at the points of the window
    beyond: float  # the squares of the decay beyond the points that are reached, added up
    margin: float
    log_scale: float

    @staticmethod
    def of(
        measure: UpperMeasure | LowerMeasure,
        values: FloatArray,
        exponent: int,
        error: float,
        h: float,
        points: int,
    ) -> _TiltedSums:
        theta = measure.tilt.theta
        left = float(measure.grid.offset - measure.tilt.anchor)
        log_scale = exponent * math.log(2.0) - theta * left
        reached = points + values.size - 1
        centre = reached // 2
        with np.errstate(over="ignore"):
            decay = np.exp(-theta * h * (np.arange(reached) - centre))
            growth = np.exp(log_scale + theta * h * (np.arange(points) - centre))
        reach = theta * (h * reached + abs(left)) + abs(log_scale)
        return _TiltedSums(
            values.copy(),
            error,
            measure.extended,
            decay,
            growth,
            float(decay[-1]) ** 2 / -math.expm1(-2.0 * theta * h),
            (64 + 8 * reach) * UNIT,
            log_scale,
        )

    def __call__(self, value: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(points,) each: the sums, and how far they may be off. Every value is at most 1."""
        with np.errstate(over="ignore", invalid="ignore"):
            tilted = np.where(value > 0, value * self.decay, 0.0)
            pulled, rounding = correlate(self.values, tilted, extended=self.extended)
            # the error of the masses may be anywhere to the right, where the function is at most 1
            square = np.cumsum((tilted * tilted)[::-1])[::-1][: pulled.size] + self.beyond
            missed = self.error * (np.sqrt(square) * (1 + 4 * tilted.size * UNIT) + 1e-145)
            return pulled, rounding + missed

    def restored(self, sums: FloatArray, *, up: bool) -> FloatArray:
        """The sums without tilts, rounded up or down."""
        with np.errstate(over="ignore", invalid="ignore"):
            if up:
                growth = np.maximum(self.growth, UNDERFLOW)
                return np.asarray((sums + UNDERFLOW) * growth * (1 + self.margin))
            lost = np.maximum(0.0, sums - UNDERFLOW)
            kept = np.where(self.growth > UNDERFLOW, lost * self.growth, 0.0)
            return np.asarray(kept * (1 - self.margin))
