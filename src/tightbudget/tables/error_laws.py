"""The laws of errors: they say how far off answers may be, each of one kind of answer.

Each law is made of public parameters alone, and is told released numbers alone: none of them has
seen a row, so that what it says costs nothing and tells nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from scipy.special import erfinv, ndtri

from tightbudget.numerics.rounding import double_down, double_up, next_up
from tightbudget.numerics.validate import nearest, open_probability
from tightbudget.output_dp.amount import exact
from tightbudget.release.mechanisms.quantiles import QuantileRelease

Pair = tuple[Any, Any]

# The confidence of what is shown where nobody has asked for another one.
CONFIDENCE = 0.95

# Doubles compute the half width below to a few units in their last place, 2^-52 of it each. The
# slack is over a hundred times as much, and less than a point up to a half width of 2^40 points.
_SLACK = 1 + 2.0**-40
# From this sigma on, the variance of discrete Gaussian noise is sigma^2 as a double: Poisson's
# summation leaves a relative difference below 16 pi^2 sigma^2 exp(-2 pi^2 sigma^2) < 1e-130.
_SMOOTH = 4.0


@dataclass(frozen=True, kw_only=True)
class ErrorLaw:
    """States how far the numbers of an answer may be off; each kind of answer has its own.

    What a law cannot know is None.
    """

    @property
    def std(self) -> float | None:
        """The standard deviation of each number, in the unit of the answer."""
        return None

    def half_width(self, confidence: float = CONFIDENCE) -> float | None:
        """Returns a length that the error of a number exceeds with probability 1 - confidence.

        Raises:
            ParameterError: confidence is not in (0, 1).
        """
        return None

    def rank_error(self, confidence: float = CONFIDENCE) -> int | None:
        """Returns by how many rows all answers miss their quantiles, with this confidence.

        Raises:
            ParameterError: confidence is not in (0, 1).
        """
        return None

    def intervals(self, numbers: Iterable[Any], confidence: float) -> list[Pair | None]:
        """Returns an interval around each released number; None where there is none.

        Raises:
            ParameterError: confidence is not in (0, 1).
        """
        width = self.half_width(confidence)
        return [None if width is None else around(number, width) for number in numbers]


@dataclass(frozen=True, kw_only=True)
class NoiseLaw(ErrorLaw):
    """The distribution of the noise on a number: a scale in points of a grid, and its step.

    Attributes:
        kind: "laplace", or "gaussian": discrete noise, on the points of a grid.
        scale: of the noise, in points; for "gaussian" it is sigma.
        step: the length of a point in the unit of the answer.
        rounding: the most that rounding to the grid of the noise moves the answer, in its unit.
    """

    kind: Literal["laplace", "gaussian"]
    scale: float
    step: float = 1.0
    rounding: float = 0.0

    @property
    def std(self) -> float:
        """The standard deviation of the noise, in the unit of the answer."""
        if self.kind == "laplace":
            # The variance is 2 a / (1 - a)^2 with a = e^(-2 x): the root is 1 / (sqrt(2) sinh x).
            x = 1 / (2 * self.scale)
            return self.step * math.sqrt(2) * math.exp(-x) / -math.expm1(-2 * x)
        if self.scale >= _SMOOTH:
            return self.step * self.scale
        # Beyond 40 sigma < 160 points there is less than e^-800 of the noise.
        weights = [math.exp(-(n / self.scale) * (n / self.scale) / 2) for n in range(1, 161)]
        squares = sum(n * n * weight for n, weight in enumerate(weights, start=1))
        return self.step * math.sqrt(2 * squares / (1 + 2 * sum(weights)))

    def half_width(self, confidence: float = CONFIDENCE) -> float:
        """Returns a length that noise and rounding exceed with probability 1 - confidence at most.

        Guarantee: it is at most two points more than the least such length of the noise, plus
        ``rounding``; a relative 2^-40 is added for the arithmetic of doubles.
        Source: for "gaussian", Canonne, Kamath, Steinke 2020, Proposition 25: discrete noise is
        at least m points with at most the probability with which continuous noise of this sigma
        is at least m - 1.

        Raises:
            ParameterError: confidence is not in (0, 1).
        """
        hit = open_probability(confidence=confidence)
        # A double means the decimal that it prints as, so that 0.95 misses 0.05. Of a number near 1
        # the complement is taken exactly, and of one near 0 the complement is never taken.
        miss = nearest(1 - exact(confidence=hit))
        if self.kind == "laplace":
            # P(|noise| > t) = 2 a^(t + 1) / (1 + a) with a = e^(-1 / scale)
            logs = -math.log1p(math.expm1(-1 / self.scale) / 2)  # of 2 / (1 + a)
            logs += -math.log1p(-hit) if hit < 0.5 else -math.log(miss)
            points = self.scale * logs * _SLACK - 1
        else:
            # P(|noise| >= t + 1) <= 2 P(continuous noise >= t)
            # guard: both-tails
            sigmas = math.sqrt(2) * erfinv(hit) if hit < 0.5 else -ndtri(miss / 2)
            points = self.scale * float(sigmas) * _SLACK
        whole = max(0, math.ceil(points))
        # The step is a power of two, so that the product is exact; the sum may be rounded down.
        return next_up(whole * self.step + self.rounding) if self.rounding else whole * self.step


@dataclass(frozen=True, kw_only=True)
class RankLaw(ErrorLaw):
    """The rank error of quantiles: by how many rows they miss, whatever the rows are.

    Attributes:
        mechanism: the mechanism that draws them.
    """

    mechanism: QuantileRelease

    def rank_error(self, confidence: float = CONFIDENCE) -> int:
        """Returns by how many rows all answers miss their quantiles, with this confidence.

        Guarantee: that of :meth:`QuantileRelease.rank_error`.

        Raises:
            ParameterError: confidence is not in (0, 1), or too near to 1 for so many quantiles.
        """
        return self.mechanism.rank_error(confidence)


def is_number(value: Any) -> bool:
    """Says whether a released value is a number; truth values are none."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def around(value: Any, width: float) -> Pair | None:
    """Returns value - width and value + width, rounded outwards; None if it is no number."""
    if isinstance(value, np.generic):
        value = value.item()
    if not is_number(value) or not math.isfinite(value):
        return None
    low, high = Fraction(value) - Fraction(width), Fraction(value) + Fraction(width)
    if isinstance(value, int) and low.denominator == high.denominator == 1:
        return int(low), int(high)
    return double_down(low), double_up(high)
