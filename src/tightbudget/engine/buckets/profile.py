"""A profile reads bounds on delta(eps) and eps(delta) off a pair of measures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tightbudget.engine.buckets.measures import LowerMeasure, UpperMeasure
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.convolve import discounted_sums
from tightbudget.numerics.rounding import (
    EXP,
    EXPM1,
    TINY,
    UNIT,
    FloatArray,
    add_down,
    add_up,
    exp_down,
    exp_up,
    expm1_up,
    mul_down,
    mul_up,
    next_down,
    next_up,
    sub_down,
)
from tightbudget.numerics.search import last_true
from tightbudget.numerics.special import log_g_up

_LN2 = math.log(2.0)
_RANGE = 650.0  # nats below the peak where a weight is a normal double: e^-650 is 1e-282
# Sums of weights relative to the peak lose what is below 1e-308; 1e-290 is more than MAX_LENGTH
# such losses on both sides of a difference.
_UNDERFLOWED = 1e-290


def _suffix_sums(x: FloatArray, ratio: float = 1.0) -> FloatArray:
    """Returns s[i] = x[i] + ratio s[i + 1]: the sum above i, discounted per grid step."""
    return discounted_sums(x[::-1], ratio)[::-1]


def _geometric_norm(rate: float, n: int) -> FloatArray:
    """Returns sqrt(sum of e^(-rate j) over j < n - i) for i = 0 .. n - 1, in closed form.

    Adding up squares of weights would not do: they leave the range of doubles first.
    """
    squares = np.expm1(-rate * np.arange(n, 0, -1)) / math.expm1(-rate)
    # under the root both expm1 with their arguments, and the quotient; then the root and this
    return np.asarray(np.sqrt(squares) * (1 + (EXPM1 + 4.0) * UNIT))  # pays: geometric-norm


class _Weights:
    """Points of a tilted array relative to its peak, and e^(-theta (x - peak))."""

    def __init__(self, measure: UpperMeasure | LowerMeasure, values: FloatArray) -> None:
        peak = int(np.argmax(values))
        self.centre = measure.grid.shifted(peak).offset
        self.d, slack = measure.grid.losses(values.size, origin=self.centre)
        theta = measure.tilt.theta
        with np.errstate(over="ignore"):
            self.decay = np.exp(-theta * self.d)
        # relative error of the weights: their exponents' rounding, where they do not overflow,
        # and that of adding up
        reach = np.minimum(np.abs(self.d), 710.0 / (theta + 1.0))
        span = float(np.max(reach))
        moved = float(np.max(slack)) + 2 * UNIT * span  # pays: weight-exponents
        # n times: the ratio of neighbours by two units in the last place, the product and the sum
        self.margin = (8.0 * values.size + 64.0) * UNIT  # pays: suffix-sums
        self.margin += (theta + 1.0) * moved
        # e^(-theta (centre - anchor)): the tilt at the peak
        self.tilt_at_peak = -theta * float(self.centre - measure.tilt.anchor)
        self.theta = theta

    def log_factor(self, exponent: int) -> tuple[float, float]:
        """Returns ln(2^exponent e^(-theta (centre - anchor))) and how far it may be off."""
        value = exponent * _LN2 + self.tilt_at_peak
        # ln 2 and its multiple; the distance and its multiple; and the sum
        size = abs(exponent * _LN2) + abs(self.tilt_at_peak)
        return value, 4 * UNIT * size  # pays: log-factor


class UpperDelta:
    """delta(eps) <= F (S - e^(eps - x) D + |error|_2 |weights|_2), sums over x_i >= x > eps.

    S adds up u e^(-theta x_i) and D the same times e^(x - x_i); F undoes tilt and scale.
    """

    def __init__(self, measure: UpperMeasure) -> None:
        at = _Weights(measure, measure.values)
        with np.errstate(invalid="ignore", over="ignore"):
            # what is not a number stays one, and ends as inf below
            kept = np.where(measure.values == 0, 0.0, measure.values * at.decay)
            self.mass = _suffix_sums(kept)
            self.discounted = _suffix_sums(kept, math.exp(-measure.grid.step))
        self.at = at
        self.log_factor, self.log_error = at.log_factor(measure.exponent)
        # 2-norm of w(y) = e^(-theta y) (1 - e^-y) over any grid of step h on y > 0:
        # sum of squares <= (1/h) * integral + maximum, both in closed form
        theta, h = at.theta, measure.grid.step
        least = mul_down(mul_down(2.0 * theta, add_down(2.0 * theta, 1.0)), add_down(theta, 1.0))
        integral, peak = next_up(1.0 / least), exp_up(log_g_up(theta))
        norm = next_up(math.sqrt(add_up(next_up(integral / h), mul_up(peak, peak))))
        self.error = mul_up(measure.error, norm)  # guard: error-term-upper-answer

    def __call__(self, epsilon: float) -> float:
        """Returns an upper bound of the finite losses' share of delta(eps)."""
        at = self.at
        # where weights are not doubles any more, a delta at a smaller eps is an upper bound, too
        e = min(float(Fraction(epsilon) - at.centre), _RANGE / at.theta)
        i = int(np.searchsorted(at.d, e, side="right"))
        total = 0.0
        if i < at.d.size:
            most = float(self.mass[i]) * (1.0 + at.margin)
            behind = sub_down(next_down(e), float(at.d[i]))
            total = most - float(self.discounted[i]) * (1.0 - at.margin) * exp_down(behind)
            if not total < math.inf:
                return math.inf
        least = mul_down(at.theta, next_down(e))
        total = add_up(max(0.0, total), mul_up(self.error, exp_up(-least)), TINY)
        if not total < math.inf:
            return math.inf
        return mul_up(exp_up(add_up(self.log_factor, self.log_error)), total)

    def cut_error(self, epsilon: float) -> float:
        """Returns about what cutting and rounding add to the upper bound of delta(epsilon)."""
        e = float(Fraction(epsilon) - self.at.centre)
        return self.error * exp_up(self.log_factor - self.at.theta * e)


class LowerDelta:
    """delta(eps) >= F (A - e^(eps - x) B - errors), sums over x_i >= x, for the best x."""

    def __init__(self, measure: LowerMeasure) -> None:
        at = _Weights(measure, measure.p)
        ratio = math.exp(-measure.grid.step)
        with np.errstate(invalid="ignore", over="ignore"):
            a = _suffix_sums(np.where(measure.p > 0, measure.p * at.decay, 0.0))
            b = _suffix_sums(np.where(measure.q == 0, 0.0, measure.q * at.decay), ratio)
            # guard: error-weights-their-squares-1
            w = at.decay * _geometric_norm(2.0 * at.theta * measure.grid.step, at.d.size)
            # guard: error-weights-their-squares-2
            v = at.decay * _geometric_norm(2.0 * (at.theta + 1.0) * measure.grid.step, at.d.size)
            # guard: error-term-lower-answer-1
            self.p_correction = measure.p_error * w * (1 + at.margin)
            # guard: error-term-lower-answer-2
            self.q_correction = measure.q_error * v * (1 + at.margin)
            self.a = a * (1 - at.margin) - self.p_correction
            self.b = b * (1 + at.margin) + self.q_correction
        self.at = at
        self.scale = (measure.q_exponent - measure.p_exponent) * _LN2
        self.reach = float(np.max(np.abs(at.d)))
        self.log_factor, self.log_error = at.log_factor(measure.p_exponent)

    def __call__(self, epsilon: float) -> float:
        """Returns a lower bound of the outputs' share of delta(eps)."""
        total, _ = self._totals(epsilon)
        best = float(np.max(total, initial=0.0, where=np.isfinite(total)))
        # sums far below the range of doubles are lost, on both sides of the difference
        least = exp_down(sub_down(self.log_factor, self.log_error))
        return max(0.0, mul_down(least, max(0.0, best - _UNDERFLOWED)))

    def cut_error(self, epsilon: float) -> float:
        """Returns about what cutting and rounding take from the lower bound of delta(epsilon)."""
        total, discount = self._totals(epsilon)
        best = int(np.argmax(np.where(np.isfinite(total), total, -np.inf)))
        with np.errstate(invalid="ignore"):
            error = float(self.p_correction[best] + discount[best] * self.q_correction[best])
        return exp_up(self.log_factor) * error

    def _totals(self, epsilon: float) -> tuple[FloatArray, FloatArray]:
        """Returns A - e^(eps - x) B - errors for every x, and the e^(eps - x)."""
        e = float(Fraction(epsilon) - self.at.centre)
        if self.at.theta * e > _RANGE:  # the weights are not doubles there: nothing is proved
            return np.zeros(1), np.zeros(1)
        shift = e + self.scale
        # eps - centre, ln 2 and its multiple, both sums, and the product of what follows
        shift += 5 * UNIT * (abs(e) + abs(self.scale) + self.reach)  # pays: lower-shift
        with np.errstate(invalid="ignore", over="ignore"):
            discount = np.exp(shift - self.at.d) * (1 + (EXP + 2.0) * UNIT)  # pays: lower-discount
            return self.a - self.b * discount, discount


@dataclass(frozen=True)
class Profile:
    """Certified delta(eps) of one composition in one direction, good near one tilt.

    Guarantee: ``delta(eps)`` holds the exact delta_{P||Q}(eps) of the composition.

    Attributes:
        infinity: bounds of the probability that some step's loss is +inf; the upper one
            includes the mass that the discretisation counts as infinite.
        max_loss: an upper bound of the largest finite total loss (inf if unbounded).
    """

    upper: UpperDelta
    lower: LowerDelta
    infinity: Bounds
    max_loss: float
    truly_infinite: float

    @staticmethod
    def of(
        upper: UpperMeasure,
        lower: LowerMeasure,
        infinity: Bounds,
        max_loss: float,
        truly_infinite: float,
    ) -> Profile:
        """The profile of a composition's two measures."""
        return Profile(UpperDelta(upper), LowerDelta(lower), infinity, max_loss, truly_infinite)

    def upper_delta(self, epsilon: float) -> float:
        """Returns an upper bound of delta(eps)."""
        if epsilon >= self.max_loss:  # no finite loss exceeds eps
            return self.truly_infinite
        return min(1.0, add_up(self.infinity.upper, self.upper(epsilon)))

    def lower_delta(self, epsilon: float) -> float:
        """Returns a lower bound of delta(eps)."""
        finite = self.lower(epsilon) if epsilon < self.max_loss else 0.0
        proved = add_down(self.infinity.lower, finite)
        if epsilon < 0.0:  # delta(eps) >= 1 - e^eps always
            return max(proved, -expm1_up(epsilon))
        return max(proved, 0.0)

    def delta(self, epsilon: float) -> Bounds:
        """Bounds of delta(eps), for any finite eps (also negative)."""
        return Bounds(self.lower_delta(epsilon), self.upper_delta(epsilon))

    def describe(self, epsilon: float) -> list[dict[str, float | str]]:
        """Returns the upper measure's tilt and buckets, and what cuts and rounding add to delta."""
        at, total = self.upper.at, self.upper_delta(epsilon)
        step = float(at.d[1] - at.d[0]) if at.d.size > 1 else 0.0
        rounding = self.upper.cut_error(epsilon) / total if total > 0 else 0.0
        return [
            {"tilt": at.theta, "bucket": step, "buckets": str(at.d.size), "rounding": rounding},
        ]

    def share_of_cuts(self, epsilon: float) -> float:
        """Returns the share of delta's gap that finer cuts, not buckets, would close."""
        bounds = self.delta(epsilon)
        gap = bounds.upper - bounds.lower
        by_cuts = self.upper.cut_error(epsilon) + self.lower.cut_error(epsilon)
        by_cuts += self.infinity.upper - self.truly_infinite
        return min(1.0, by_cuts / gap) if gap > 0 else 0.0

    def epsilon(self, delta: float, guess: float, tolerance: float) -> Bounds:
        """Bounds of inf{eps >= 0: delta(eps) <= delta}; ``upper`` may be inf.

        Each bound is proved by one evaluation of delta(eps) there, and searched for to a
        relative tolerance.
        """
        low = last_true(lambda e: self.lower_delta(e) > delta, guess, self.max_loss, tolerance)
        high = last_true(lambda e: self.upper_delta(e) > delta, guess, self.max_loss, tolerance)
        # guard: end-eps-delta-seen-small-enough
        return Bounds(low.last_true, max(low.last_true, high.first_false))
