"""The laws of errors: they say how far off answers may be, each of one kind of answer.

Each law is made of public parameters alone, and is told released numbers alone: none of them has
seen a row, so that what it says costs nothing and tells nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
# The noisy number of rows is a quotient of doubles, off by a few units in its last place; a mean or
# a variance by a few units of 8 times the ends of its range, or less, if its half width is within
# the range.
_QUOTIENT_SLACK, _ARITHMETIC = 1 + Fraction(1, 2**40), Fraction(1, 2**40)
# From this sigma on, the variance of discrete Gaussian noise is sigma^2 as a double: Poisson's
# summation leaves a relative difference below 16 pi^2 sigma^2 exp(-2 pi^2 sigma^2) < 1e-130.
_SMOOTH = 4.0


@dataclass(frozen=True, kw_only=True)
class ErrorLaw:
    """States how far the numbers of an answer may be off; each kind of answer has its own.

    It also says which numbers are mostly noise: those whose interval of 95 % says little more than
    was known before. The interval of a count or a sum reaches 0, so that noise alone may be the
    number; so does that of a ratio, or its denominator may be 0. That of a mean, a variance or the
    rank of a quantile is at least half as long as the whole range: the bounds, all that a variance
    can be, or all ranks. And a mean or a variance is mostly noise at an end of its range, where it
    was moved when noise had brought it out of it.

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

    def half_width_times_rows(self, confidence: float = CONFIDENCE) -> float | None:
        """Returns what the half width of a mean or a variance is, times its number of rows.

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

    def intervals(
        self, numbers: Sequence[Any], confidence: float, noisy_rows: Sequence[float] | None = None
    ) -> list[Pair | None]:
        """Returns an interval around each released number; None where there is none.

        Args:
            numbers: the released numbers.
            confidence: in (0, 1), of each interval by itself.
            noisy_rows: the noisy number of rows behind each number, from the same noise.

        Raises:
            ParameterError: confidence is not in (0, 1).
        """
        width = self.half_width(confidence)
        return [None if width is None else around(number, width) for number in numbers]

    def mostly_noise(
        self, numbers: Sequence[Any], noisy_rows: Sequence[float] | None = None
    ) -> list[bool | None]:
        """Says of each released number whether it is mostly noise; None where nobody can know.

        Args:
            numbers: the released numbers.
            noisy_rows: the noisy number of rows behind each number, from the same noise.
        """
        return [None] * len(numbers)

    def surely_mostly_noise(self, rows: int, largest: float | None) -> bool:
        """Says before the question is asked whether its answer can be nothing but mostly noise.

        Args:
            rows: a public number of rows that do not count more often.
            largest: how far a number can be from 0 with so many rows; None where it is not known.
        """
        return False


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

    def half_width(self, confidence: float = CONFIDENCE, numbers: int = 1) -> float:
        """Returns a length that noise and rounding exceed with probability 1 - confidence at most.

        Of several numbers, none exceeds it with this confidence: the probability to miss is shared
        out among them, whether their noise is independent or not.

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
        share = (1 - exact(confidence=hit)) / numbers  # guard: union-of-numbers
        miss = nearest(share)
        if numbers > 1:
            hit = nearest(1 - share)
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

    def mostly_noise(
        self, numbers: Sequence[Any], noisy_rows: Sequence[float] | None = None
    ) -> list[bool | None]:
        """Says of each count or sum whether its interval of 95 % reaches 0."""
        width = self.half_width()
        return [abs(n) <= width if is_number(n) else None for n in numbers]

    def surely_mostly_noise(self, rows: int, largest: float | None) -> bool:
        """Says whether the interval of every number that can be without noise reaches 0."""
        return largest is not None and self.half_width() >= largest


@dataclass(frozen=True, kw_only=True)
class QuotientLaw(ErrorLaw):
    """The error of a mean or a variance: noisy sums that were divided by their noisy total.

    The sums of a column's parts add up to the number n of rows, times the most that one row adds.
    So the released sums tell a noisy number of rows m, and the error is at most h / m times a
    constant, where h is a length that none of the noises exceeds.

    Proof for a mean. In parts of the way from low to high, let t be the mean of n rows, and let
    A = t n and B = (1 - t) n be the sums of the distances from both ends, with the noise x and y.
    With m = n + x + y > 0 the noisy mean is s = (A + x) / m. As (1 - t) A = t B,

        (s - t) m = (1 - t) (A + x) - t (B + y) = (1 - t) x - t y,

    which is at most h from 0. Moving s to [0, 1], where t is, brings it no further from t. Without
    rows this holds for every t, and so for the middle, which then stands for the mean.

    Proof for a variance. Let C, D and A be the sums of t^2, 2 t (1 - t) and (1 - t)^2, with
    noise. For all z the sum of (t - z)^2 is Q(z) = C (1 - z)^2 - D z (1 - z) + A z^2, and n v is
    its least value on [0, 1], at the mean. The noisy variance w is the least value of its noisy
    counterpart, divided by m = n + the sum of the noises. At the mean z of the rows,

        (w - v) m <= the sum of the noises times (1 - z)^2 - v, -z (1 - z) - v and z^2 - v,

    and at the place of w's least value, (w - v) m is at least such a sum. Its factors have
    absolute values of together at most 5/4 for z in [0, 1] and v in [0, 1/4]: they are convex in
    v, at v = 0 their sum is 1 - z + z^2, and at v = 1/4 it is 5/4 - z - z^2 up to z = 1/2, and
    the same of 1 - z beyond. So |w - v| is at most 5/4 h / m. Without rows this holds for every v.

    Attributes:
        noise: the distribution of the noise on each sum, in the unit of the answer.
        sums: how many sums there are.
        factor: the constant: 1 for a mean, and 5/4 for a variance.
        low: the least value that the answer can have.
        high: the largest value that the answer can have.
    """

    noise: NoiseLaw
    sums: int
    factor: float
    low: float
    high: float

    def half_width_times_rows(self, confidence: float = CONFIDENCE) -> float:
        """Returns the half width for m noisy rows, times m.

        Raises:
            ParameterError: confidence is not in (0, 1).
        """
        return next_up(self.factor * self.noise.half_width(confidence, self.sums))

    def intervals(
        self, numbers: Sequence[Any], confidence: float, noisy_rows: Sequence[float] | None = None
    ) -> list[Pair | None]:
        """Returns for each mean or variance the values that are near enough to it.

        Guarantee: each interval by itself has the mean or variance of the rows that count, with at
        least this probability. It is within low and high, and is all of that where the noise has
        left no rows.

        Raises:
            ParameterError: confidence is not in (0, 1).
        """
        width = Fraction(self.half_width_times_rows(confidence)) * _QUOTIENT_SLACK
        if noisy_rows is None:
            return [None] * len(numbers)
        # of the doubles in which the released number was divided and moved into its range
        arithmetic = Fraction(max(abs(self.low), abs(self.high))) * _ARITHMETIC
        found = list[Pair | None]()
        for number, rows in zip(numbers, noisy_rows, strict=True):
            if not rows > 0:  # guard: no-rows-no-knowledge
                found.append((self.low, self.high))
                continue
            half = width / Fraction(rows) + arithmetic
            low = max(self.low, double_down(Fraction(number) - half))
            found.append((low, min(self.high, double_up(Fraction(number) + half))))
        return found

    def mostly_noise(
        self, numbers: Sequence[Any], noisy_rows: Sequence[float] | None = None
    ) -> list[bool | None]:
        """Says of each mean or variance whether it is mostly noise, by its interval of 95 %.

        That is so if the interval has half of the range or more, or the number is at an end of it.
        """
        ends, half = (self.low, self.high), (self.high - self.low) / 2
        pairs = self.intervals(numbers, CONFIDENCE, noisy_rows)
        return [
            None if pair is None else number in ends or pair[1] - pair[0] >= half
            for number, pair in zip(numbers, pairs, strict=True)
        ]

    def surely_mostly_noise(self, rows: int, largest: float | None) -> bool:
        """Says whether an interval has half of the range for as many rows as there can be."""
        return self.half_width_times_rows() >= rows * (self.high - self.low) / 2


@dataclass(frozen=True, kw_only=True)
class RatioLaw(ErrorLaw):
    """The error of a noisy number that was divided by another one.

    Proof. The probability to miss is shared out between both noises. Where neither misses, the
    number n without noise is within half a width of the noisy numerator, and the number d is within
    half a width of the noisy denominator. If that is above 0 as a whole, so is d; then n / d grows
    with n, falls with d where n is at least 0, and grows with d elsewhere. So it is least and
    largest where both are at an end.

    Attributes:
        numerator: the distribution of the noise on the numerator.
        denominator: the distribution of the noise on the denominator.
    """

    numerator: NoiseLaw
    denominator: NoiseLaw

    def intervals(
        self, numbers: Sequence[Any], confidence: float, noisy_rows: Sequence[float] | None = None
    ) -> list[Pair | None]:
        """Returns an interval for each quotient; None where the denominator may be 0.

        Guarantee: each interval by itself has the quotient of the numbers without noise, with at
        least this probability.

        Args:
            numbers: the quotients of noisy numbers; None where there is none.
            confidence: in (0, 1).
            noisy_rows: the noisy denominators.

        Raises:
            ParameterError: confidence is not in (0, 1).
        """
        over, under = (
            Fraction(law.half_width(confidence, 2)) for law in (self.numerator, self.denominator)
        )
        found = list[Pair | None]()
        for number, by in zip(numbers, noisy_rows or [0.0] * len(numbers), strict=True):
            # a denominator of more than 53 bits was rounded to a double
            half = under + abs(Fraction(by)) * _ARITHMETIC
            least, most = Fraction(by) - half, Fraction(by) + half
            if number is None or not least > 0:  # guard: ratio-without-a-denominator
                found.append(None)
                continue
            middle = Fraction(number) * Fraction(by)
            # the quotient was rounded to a double, half a unit in its last place, or a tiny number
            width = over + abs(middle) * _ARITHMETIC + Fraction(by) / 2**1074
            low, high = middle - width, middle + width
            # guard: ratio-at-both-ends
            ends = low / (most if low >= 0 else least), high / (least if high >= 0 else most)
            found.append((double_down(ends[0]), double_up(ends[1])))
        return found

    def mostly_noise(
        self, numbers: Sequence[Any], noisy_rows: Sequence[float] | None = None
    ) -> list[bool | None]:
        """Says of each quotient whether its interval of 95 % has 0, or there is none."""
        pairs = self.intervals(numbers, CONFIDENCE, noisy_rows)
        return [pair is None or pair[0] <= 0 <= pair[1] for pair in pairs]


@dataclass(frozen=True, kw_only=True)
class RankLaw(ErrorLaw):
    """The rank error of quantiles: by how many rows they miss, whatever the rows are.

    Where the number N of the same rows was released, quantiles of one answer are intervals of one
    another, for no further price.

    Proof. Let x be the rank error, let the answer s to p have at most p N + x rows below it, and
    let t be a quantile of q: at most q N rows are below t, and at most (1 - q) N above. If s is
    above t, then all rows that are not above t are below s, so that q N <= p N + x. So where
    (q - p) N > x, s is at most t; and in the same way at least t where (p - q) N > x. A smaller
    number than N proves no more. The probability to miss is shared out between the rank error and
    the count.

    Attributes:
        mechanism: the mechanism that draws them.
        low: the least value that an answer can have.
        high: the largest value that an answer can have.
        groups: in how many groups the quantiles are drawn; None for those of all rows as one.
        rows: a public or released number of rows, beyond which no more count; None for none.
        count: a released number of the same rows, with its noise; None for none.
    """

    mechanism: QuantileRelease
    low: float
    high: float
    groups: int | None = None
    rows: int | None = None
    count: tuple[int, NoiseLaw] | None = None

    def rank_error(self, confidence: float = CONFIDENCE) -> int:
        """Returns by how many rows all answers miss their quantiles, with this confidence.

        Guarantee: that of :meth:`QuantileRelease.rank_error`, for the answers of all groups.

        Raises:
            ParameterError: confidence is not in (0, 1), or too near to 1 for so many quantiles.
        """
        return self.mechanism.rank_error(confidence, columns=self.groups or 1)

    def intervals(
        self, numbers: Sequence[Any], confidence: float, noisy_rows: Sequence[float] | None = None
    ) -> list[Pair | None]:
        """Returns for each quantile two answers, or ends of the range, that it lies between.

        Guarantee: with at least this probability all of them have their quantile of the rows that
        count, if the table was the same when these rows were counted.

        Raises:
            ParameterError: confidence is not in (0, 1), or too near to 1 for so many quantiles.
        """
        # above the half of the way to 1, so that the rest is at most half of the chance to miss
        half = next_up(nearest((1 + exact(confidence=confidence)) / 2))
        if self.count is None or half >= 1:
            return [None] * len(numbers)
        value, noise = self.count
        rows = max(Fraction(0), value - Fraction(noise.half_width(confidence, 2)))
        error = self.rank_error(half)
        parts = [exact(q=q) for q in self.mechanism.probabilities]
        found = list[Pair | None]()
        for i in range(len(numbers)):
            q, first = parts[i % len(parts)], i - i % len(parts)
            answers = list(zip(parts, numbers[first : first + len(parts)], strict=True))
            # guard: quantiles-between-answers
            below = [s for p, s in answers if (q - p) * rows > error]
            above = [s for p, s in answers if (p - q) * rows > error]
            found.append((max(below, default=self.low), min(above, default=self.high)))
        return found

    def mostly_noise(
        self, numbers: Sequence[Any], noisy_rows: Sequence[float] | None = None
    ) -> list[bool | None]:
        """Says of each quantile whether its ranks of 95 % are half of all ranks or more.

        With fewer rows than the number that is known they are a larger part of all, so that True
        stays true. With no number, or one that is large enough, nobody can know.
        """
        if self.rows is None:
            return [None] * len(numbers)
        error, n = self.rank_error(), Fraction(self.rows)
        ranks = [n * exact(q=q) for q in self.mechanism.probabilities]
        parts = [min(n, rank + error) - max(Fraction(0), rank - error) for rank in ranks]
        flags = [True if 2 * part >= n else None for part in parts]
        return [flags[i % len(flags)] for i in range(len(numbers))]

    def surely_mostly_noise(self, rows: int, largest: float | None) -> bool:
        """Says whether all quantiles are mostly noise for as many rows as there can be."""
        return all(replace(self, rows=rows).mostly_noise(self.mechanism.probabilities))


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
