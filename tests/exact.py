"""Exact rational privacy: the truth that certified bounds are held against.

Outputs are pairs of rationals (P-mass, Q-mass). e^eps is enclosed by two rationals with
python-flint's ball arithmetic, so that every comparison below is one of exact numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import flint

Outputs = tuple[tuple[Fraction, Fraction], ...]


def normalised(p: Sequence[float], q: Sequence[float]) -> Outputs:
    """What ``tb.HistogramPair(p, q)`` stands for: the doubles are exact, the totals are theirs."""
    a, b = [Fraction(x) for x in p], [Fraction(x) for x in q]
    return tuple((x / sum(a), y / sum(b)) for x, y in zip(a, b, strict=True) if x or y)


def reversed_(outputs: Outputs) -> Outputs:
    return tuple((b, a) for a, b in outputs)


def subsampled(outputs: Outputs, rate: float) -> Outputs:
    """((1 - q) Q + q P, Q): the direction ``remove``. For ``add`` reverse before and after."""
    q = Fraction(rate)
    return tuple(((1 - q) * b + q * a, b) for a, b in outputs)


def exp_ends(x: float | Fraction) -> tuple[Fraction, Fraction]:
    """Two rationals around e^x, some 200 bits apart."""
    with flint.ctx.workprec(256):
        x = Fraction(x)
        ball = (flint.arb(x.numerator) / flint.arb(x.denominator)).exp()
        return _fraction(ball.lower()), _fraction(ball.upper())


def _fraction(ball: flint.arb) -> Fraction:
    # an end of a ball is a ball of radius 0
    mantissa, exponent = ball.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


@dataclass(frozen=True)
class Composed:
    """The product of finite pairs: integer masses over two common denominators."""

    masses: tuple[tuple[int, int], ...]
    p_total: int
    q_total: int

    @staticmethod
    def of(steps: Iterable[Outputs]) -> Composed:
        """All steps run once each."""
        return reduce(Composed._times, map(Composed._single, steps), Composed(((1, 1),), 1, 1))

    @staticmethod
    def _single(outputs: Outputs) -> Composed:
        p_total = math.lcm(*(a.denominator for a, _ in outputs))
        q_total = math.lcm(*(b.denominator for _, b in outputs))
        masses = tuple((int(a * p_total), int(b * q_total)) for a, b in outputs)
        return Composed(masses, p_total, q_total)

    def _times(self, other: Composed) -> Composed:
        # outputs with one likelihood ratio are as good as one
        merged: dict[tuple[int, int], int] = {}
        for a, b in self.masses:
            for c, d in other.masses:
                if x := math.gcd(a * c, b * d):
                    key = (a * c // x, b * d // x)
                    merged[key] = merged.get(key, 0) + x
        masses = tuple((a * x, b * x) for (a, b), x in merged.items())
        return Composed(masses, self.p_total * other.p_total, self.q_total * other.q_total)

    def delta_at(self, e: Fraction) -> Fraction:
        """delta at e^eps = e."""
        left, right = self.q_total * e.denominator, self.p_total * e.numerator
        total = sum(max(0, a * left - b * right) for a, b in self.masses)
        return Fraction(total, self.p_total * left)

    def delta(self, epsilon: float | Fraction) -> tuple[Fraction, Fraction]:
        """Ends of the exact delta(eps), some 200 bits apart (it decreases in e^eps)."""
        low, high = exp_ends(epsilon)
        return self.delta_at(high), self.delta_at(low)

    @property
    def infinity(self) -> Fraction:
        """The P-mass of outputs that Q cannot produce."""
        return Fraction(sum(a for a, b in self.masses if not b), self.p_total)

    def renyi(self, order: float) -> tuple[Fraction | float, Fraction | float]:
        """Ends of the exact Renyi divergence, some 200 bits apart."""
        if self.infinity:
            return math.inf, math.inf
        with flint.ctx.workprec(512):
            s = flint.arb(order) - 1
            total = flint.arb(0)
            for a, b in self.masses:
                if a:
                    p, q = flint.arb(a) / self.p_total, flint.arb(b) / self.q_total
                    total += p * (s * (p / q).log()).exp()
            divergence = total.log() / s
            return _fraction(divergence.lower()), _fraction(divergence.upper())

    def meets(self, epsilon: float, delta: float) -> bool:
        """Whether delta(eps) <= delta may hold (False is certain)."""
        return self.delta(epsilon)[0] <= Fraction(delta)

    def misses(self, epsilon: float, delta: float) -> bool:
        """Whether delta(eps) > delta may hold (False is certain)."""
        return self.delta(epsilon)[1] > Fraction(delta)


def response_delta(p: Fraction, runs: int, epsilon: float) -> tuple[Fraction, Fraction]:
    """Ends of delta(eps) of randomised response, for any number of runs: a binomial sum."""
    a, b = p.numerator, p.denominator - p.numerator
    low, high = (
        Fraction(
            sum(
                math.comb(runs, j)
                * max(
                    0, a**j * b ** (runs - j) * e.denominator - e.numerator * b**j * a ** (runs - j)
                )
                for j in range(runs + 1)
            ),
            e.denominator * p.denominator**runs,
        )
        for e in reversed(exp_ends(epsilon))
    )
    return low, high


def stopping_delta(
    steps: Sequence[Outputs], stops: Sequence[int], factors: Sequence[Fraction]
) -> Fraction:
    """What the best way of stopping wins at the prices ln(factors), by the tree of all outputs."""

    def value(k: int, a: Fraction, b: Fraction) -> Fraction:
        stop = max(Fraction(0), a - factors[stops.index(k)] * b) if k in stops else Fraction(0)
        if k == stops[-1]:
            return stop
        return max(stop, sum((value(k + 1, a * x, b * y) for x, y in steps[k]), Fraction(0)))

    return value(0, Fraction(1), Fraction(1))
