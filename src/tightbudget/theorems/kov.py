"""The optimal composition theorem for k runs of one (epsilon, delta)-DP mechanism.

Every (eps, delta)-DP mechanism is a post-processing of one that with probability delta tells
all and else answers by randomised response at eps. With l of k answers on the unlikelier side
the loss is (k - 2 l) eps, so, with X ~ Binomial(k, 1 / (1 + e^eps)),

    delta' = 1 - (1 - delta)^k (1 - delta_m) at eps' = (k - 2 m) eps,
    delta_m = sum over l < m of P(X = l) (1 - e^(-2 (m - l) eps)),

which is the theorem's formula with each difference of exponentials written as a product: all terms
are positive, and none overflows. A mechanism is (eps, delta)-DP where delta is an upper
bound of delta(eps) for both orders of its pair, P against Q and Q against P. One order is not
enough: a loss of 1/2 for certain is (1/2, 0) for P against Q alone, and three of them have
delta = 0.4147 at eps = 0.9644, where the formula for (1/2, 0) says 0.1000.

Between two of its points the exact curve is their chord in e^eps', because no loss lies between
them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.convolve import discounted_sums
from tightbudget.numerics.rounding import (
    TINY,
    UNIT,
    FloatArray,
    add_down,
    add_up,
    any_of,
    mul_down,
    mul_up,
    sub_down,
    sub_up,
)
from tightbudget.numerics.search import last_true
from tightbudget.numerics.special import log1p_less
from tightbudget.numerics.validate import non_negative, positive_count, probability, refuse

__all__ = ["Front", "delta", "epsilon", "grid", "points"]

# Below it the index of an answer and its distance from the mean are exact doubles, and arrays have
# at most some millions of entries: about sqrt(2 * 700 * 2^32 / 4) on either side of the mean.
_MOST_RUNS = 2**32
_NATS = 700.0  # masses below e^-700 = 1e-304 count as lost: doubles are still normal there


def delta(step_epsilon: float, step_delta: float, runs: int, epsilon: float) -> Bounds:
    """Bounds the smallest delta at ``epsilon`` that holds for all ``runs`` mechanisms of this kind.

    Guarantee: any (step_epsilon, step_delta)-DP mechanisms, also adaptively chosen ones, are
    (epsilon, result.upper)-DP together; some are not (epsilon, d)-DP for any d < result.lower.
    Source: Kairouz, Oh, Viswanath 2017, Theorem 3.3.

    Args:
        step_epsilon: of each mechanism, >= 0, nats.
        step_delta: of each mechanism, in [0, 1]: an upper bound of delta(step_epsilon) for both
            orders of its pair.
        runs: in [1, 2^32].
        epsilon: of all together, >= 0, nats.

    Raises:
        ParameterError: an argument is refused.
    """
    return _Composed.of(step_epsilon, step_delta, runs).delta(non_negative(epsilon=epsilon))


def epsilon(step_epsilon: float, step_delta: float, runs: int, delta: float) -> Bounds:
    """Bounds the smallest epsilon at ``delta``: the inverse of :func:`delta`.

    Guarantee: as for :func:`delta`; inf if ``delta`` is below the chance that some run tells all.

    Args:
        step_epsilon, step_delta, runs: as for :func:`delta`.
        delta: of all together, in [0, 1].

    Raises:
        ParameterError: an argument is refused.
    """
    return _Composed.of(step_epsilon, step_delta, runs).epsilon(probability(delta=delta))


def points(step_epsilon: float, step_delta: float, runs: int) -> list[tuple[Bounds, Bounds]]:
    """Lists the (eps', delta') that the theorem names, for i = 0 .. runs / 2, eps' descending.

    Source: Kairouz, Oh, Viswanath 2017, Theorem 3.3.

    Args:
        step_epsilon, step_delta, runs: as for :func:`delta`.

    Raises:
        ParameterError: an argument is refused.
    """
    runs = positive_count(runs=runs)
    composed = _Composed.of(step_epsilon, step_delta, runs)
    losses = Bounds(composed.answers.eps, composed.answers.eps)
    return [
        (losses * (runs - 2 * i), composed.with_lost(composed.answers.at(i)))
        for i in range(runs // 2 + 1)
    ]


def grid(largest: float) -> FloatArray:
    """Makes the paper's grid of step epsilons: e^eps = (1 + 1e-14)^(1.1^j), up to ``largest``.

    Source: Meiser, Mohammadi 2018, section 5.6.

    Args:
        largest: the last one, > 1e-14, nats; it is on the grid whatever its place.

    Returns:
        (n,) ascending.

    Raises:
        ParameterError: the argument is refused.
    """
    top = non_negative(largest=largest)
    if not top > 1e-14:
        raise refuse("largest", "be > 1e-14", largest)
    n = math.ceil(math.log(top / 1e-14) / math.log(1.1))
    below = math.log1p(1e-14) * 1.1 ** np.arange(n)
    return np.append(below[below < top], top)


@dataclass(frozen=True, eq=False)
class Front:
    """The theorem for a mechanism with many known points (eps, delta(eps)); the best point answers.

    The work for a point is done once, when an answer first needs it.

    Guarantee: ``runs`` runs of a mechanism whose delta(eps) is at most deltas[i] at
    epsilons[i], for all i, are (epsilon, delta)-DP for each answer's upper bound.
    Source: Kairouz, Oh, Viswanath 2017, Theorem 3.3; Meiser, Mohammadi 2018, section 5.6.

    Args:
        epsilons: (n,) >= 0, ascending, nats, such as :func:`grid`.
        deltas: (n,) in [0, 1]; upper bounds for both orders of its pair.
        runs: in [1, 2^32].

    Raises:
        ParameterError: an argument is refused.
    """

    epsilons: Sequence[float] | FloatArray = field(repr=False)
    deltas: Sequence[float] | FloatArray = field(repr=False)
    runs: int

    def __post_init__(self) -> None:
        eps = [non_negative(**{f"epsilons[{i}]": e}) for i, e in enumerate(self.epsilons)]
        deltas = [probability(**{f"deltas[{i}]": d}) for i, d in enumerate(self.deltas)]
        if not eps:
            raise refuse("epsilons", "hold at least one point", self.epsilons)
        if len(deltas) != len(eps):
            raise refuse("deltas", f"have as many entries as epsilons ({len(eps)})", len(deltas))
        for i, (before, after) in enumerate(itertools.pairwise(eps), start=1):
            if not before < after:
                raise refuse(f"epsilons[{i}]", f"be above epsilons[{i - 1}]", after)
        object.__setattr__(self, "epsilons", tuple(eps))
        object.__setattr__(self, "deltas", tuple(deltas))
        object.__setattr__(self, "runs", _runs(self.runs))

    def delta(self, epsilon: float) -> Bounds:
        """Bounds delta of all runs together at ``epsilon`` by the best point.

        Raises:
            ParameterError: ``epsilon`` is not a finite number >= 0.
        """
        at, best = non_negative(epsilon=epsilon), 1.0
        for point in self._points:  # guard: best-of-points
            if point.lost.upper < best:
                best = min(best, point.delta(at).upper)
        return Bounds(0.0, best)

    def epsilon(self, delta: float) -> Bounds:
        """Bounds epsilon of all runs together at ``delta`` by the best point; inf if none answers.

        Raises:
            ParameterError: ``delta`` is not in [0, 1].
        """
        target, best = probability(delta=delta), math.inf
        for point in self._points:
            # a point that is no better at the best epsilon so far is not looked at closely
            if point.lost.upper <= target and (
                math.isinf(best) or point.delta(best).upper <= target
            ):
                best = min(best, point.epsilon(target).upper)
        return Bounds(0.0, best)

    @functools.cached_property
    def _points(self) -> list[_Composed]:
        """The points that may be the best of some question, composed, epsilons descending.

        A point is left out if another one has no larger eps and no larger delta.
        """
        kept: list[_Composed] = []
        given = list(zip(self.epsilons, self.deltas, strict=True))
        least = math.inf
        for eps, d in given:
            if d < least:  # else an earlier point has no larger eps and no larger delta
                kept.append(_Composed.of(eps, d, self.runs))
                least = d
        return kept[::-1]


# ------------------------------------------------------------------------ one pair, k runs


@dataclass(frozen=True)
class _Composed:
    """k runs of the worst (eps, delta)-DP mechanism."""

    eps: float
    runs: int
    lost: Bounds  # 1 - (1 - delta)^k

    @staticmethod
    def of(step_epsilon: float, step_delta: float, runs: int) -> _Composed:
        """Composes ``runs`` mechanisms after a check of the arguments."""
        eps, k = non_negative(step_epsilon=step_epsilon), _runs(runs)
        chances = [(probability(step_delta=step_delta), k)]
        return _Composed(eps, k, Bounds(any_of(chances, up=False), any_of(chances, up=True)))

    @functools.cached_property
    def answers(self) -> _Answers:
        """The randomised responses; their masses below e^-50 of ``lost`` count as lost, too.

        e^-50 is 2e-22: far below the rounding of ``lost`` itself.
        """
        hidden = 50.0 - math.log(self.lost.lower) if self.lost.lower > 0 else _NATS
        return _Answers.of(self.eps, self.runs, min(_NATS, hidden))

    def delta(self, at: float) -> Bounds:
        """Bounds of delta' at eps' = ``at``."""
        return self.with_lost(self.answers.delta(at))

    def with_lost(self, told: Bounds) -> Bounds:
        """Bounds lost + (1 - lost) told, the delta' of both ways to tell the neighbours apart."""
        lost = self.lost
        lower = add_down(lost.lower, mul_down(max(0.0, sub_down(1.0, lost.lower)), told.lower))
        # guard: lost-beside-told
        upper = add_up(lost.upper, mul_up(max(0.0, sub_up(1.0, lost.upper)), told.upper))
        return Bounds(max(lost.lower, lower), min(1.0, upper) if told.upper > 0 else lost.upper)

    def epsilon(self, target: float) -> Bounds:
        """Bounds of the least eps' with delta' <= target."""
        top = math.inf if self.lost.upper > target else self.eps * self.runs * (1 + 4 * UNIT)
        if self.lost.lower > target:
            return Bounds(math.inf, math.inf)
        guess = self.eps * math.sqrt(self.runs)
        end = self.eps * self.runs * (1 + 4 * UNIT)
        lower = last_true(lambda e: self.delta(e).lower > target, guess, end).last_true
        if math.isinf(top):
            return Bounds(lower, math.inf)
        return Bounds(
            lower, last_true(lambda e: self.delta(e).upper > target, guess, top).first_false
        )


@dataclass(frozen=True, eq=False)
class _Answers:
    """The sums delta_m of k randomised responses with losses +-eps, for the m that matter.

    Guarantee: delta_m is within ``margin`` (relative) and ``absolute`` (absolute) of totals[m -
    first] for first <= m < first + totals.size; below it is at most ``absolute``; above it
    is totals[-1] + rest (1 - e^(-2 (m - last) eps)).
    """

    eps: float
    runs: int
    first: int
    totals: FloatArray
    rest: float
    margin: float
    absolute: float

    @staticmethod
    def of(eps: float, runs: int, nats: float) -> _Answers:
        """Computes all delta_m whose terms are not all below e^-nats."""
        k, odds = runs, math.exp(-eps)
        v = odds / (1 + odds)
        # P(X <= k v - R) <= e^(-R^2 / 2 k v); P(X >= k v + R) <= e^(-R^2 / (2 k v + 2 R / 3)), by
        # Chernoff and Bernstein: R = sqrt(2 nats k v) + nats is enough for both
        reach = math.sqrt(2 * nats * k * v)
        first = max(0, math.floor(k * v - reach) - 1)
        last = min(k // 2 + 1, math.ceil(k * v + reach + nats) + 1)
        x = np.arange(first, last, dtype=np.float64)
        log_masses, slack = _log_binomial(x, k, eps)
        with np.errstate(under="ignore"):
            a = np.exp(log_masses)
        # c_m = a_m + w c_(m - 1), w = e^(-2 eps); delta_(m + 1) = delta_m + (1 - w) c_m: sums
        # of positive terms alone
        w, gain = math.exp(-2 * eps), -math.expm1(-2 * eps)
        c = discounted_sums(a, w)
        totals = np.concatenate([[0.0], gain * np.cumsum(c)])
        # In each step of the first sum, w is off by EXP = 8 units and the sum adds 2; the second
        # sum adds 1: 11 of the 16 units that are granted to each of n terms. 64 are for exp, the
        # gain and products. Each of the two tails is below e^-nats, twice that pays for R's
        # rounding
        margin = math.expm1(slack) + (16.0 * x.size + 64.0) * UNIT
        return _Answers(eps, k, first, totals, float(w * c[-1]), margin, 4 * math.exp(-nats) + TINY)

    def at(self, m: int) -> Bounds:
        """Bounds of delta_m."""
        i = m - self.first
        if m <= 0 or self.eps == 0.0:
            return Bounds(0.0, 0.0)
        if i < 0:
            return Bounds(0.0, self.absolute)  # guard: below-window-counted
        value = float(self.totals[min(i, self.totals.size - 1)])
        if i >= self.totals.size:
            value -= self.rest * math.expm1(-2 * (i - self.totals.size + 1) * self.eps)
        # guard: binomial-sum-rounded-down
        lower = max(0.0, value * (1 - self.margin) - self.absolute)
        # guard: binomial-sum-rounded-up
        return Bounds(min(1.0, lower), min(1.0, value * (1 + self.margin) + self.absolute))

    def delta(self, at: float) -> Bounds:
        """Bounds of delta at eps' = ``at``: on the chord between two points, in e^eps'."""
        eps, k = Fraction(self.eps), self.runs
        if Fraction(at) >= k * eps:
            return Bounds(0.0, 0.0)
        m = math.ceil((k - Fraction(at) / eps) / 2)  # guard: later-point
        short = float((k - 2 * (m - 1)) * eps - Fraction(at))  # of the earlier point, <= 2 eps
        low, high = self.at(m - 1), self.at(m)
        # share is off by 18 units (two expm1 of 8, the quotient, `short`), and moves the chord by
        # no more, since high >= low; the chord's four operations and the margin's make 23 of the 32
        share = math.expm1(-short) / math.expm1(-2 * self.eps)
        lower = (low.lower * (1 - share) + high.lower * share) * (1 - 32 * UNIT)
        # guard: chord-between-points
        upper = (low.upper * (1 - share) + high.upper * share) * (1 + 32 * UNIT)
        return Bounds(max(0.0, lower), min(1.0, upper))


def _runs(runs: int) -> int:
    k = positive_count(runs=runs)
    if k > _MOST_RUNS:
        raise refuse("runs", "be in [1, 2^32]", runs)
    return k


# ------------------------------------------------------------------------ binomial masses


def _log_binomial(x: FloatArray, k: int, eps: float) -> tuple[FloatArray, float]:
    """Computes ln P(X = x) for X ~ Binomial(k, 1 / (1 + e^eps)), and a bound of its error.

    Source: Loader 2000, Fast and accurate computation of binomial probabilities.
    """
    odds = math.exp(-eps)
    log_v = -eps - math.log1p(odds)
    rest = k - x
    far = _deviance(x, k, odds / (1 + odds), log_v)
    far += _deviance(rest, k, 1 / (1 + odds), -math.log1p(odds))
    inner = (x > 0) & (rest > 0)
    both = np.where(inner, x * (rest / k), 1.0)
    stirling = _stirling(np.array([float(k)])) - _stirling(x) - _stirling(rest)
    edges = np.where(inner, stirling - 0.5 * np.log(2 * math.pi * both), 0.0)
    # Granted, in units: 1024 for three of Stirling's rests and a logarithm; 128 for each of the two
    # deviances, relative; and 128 of |x - k v|, by which k v's rounding moves them. Measured
    # against balls for k from 40 to 10^6 and eps from 0.001 to 3: at most a tenth of all that (k =
    # 10^5, eps = 3), else below a fiftieth
    off = 1024 + 128 * np.max(np.abs(x - k * odds / (1 + odds))) + 256 * np.max(far)
    return edges - far, float(off) * UNIT


def _deviance(x: FloatArray, k: int, share: float, log_share: float) -> FloatArray:
    """Computes the deviance x ln(x / n) + n - x for n = k share; ``log_share`` is ln(share)."""
    n = k * share
    with np.errstate(divide="ignore", invalid="ignore"):
        direct = np.where(x > 0, x * (np.log(x / k) - log_share), 0.0) + (n - x)
    z = (x - n) / n if n > 1e-200 else np.full_like(x, math.inf)
    near = np.abs(z) <= 0.1
    z = np.where(near, z, 0.0)
    less = log1p_less(z)
    # (1 + z) ln(1 + z) - z
    return np.where(near, n * (z * (z + less) + less), direct)


_SMALL = np.array(
    [0.0]
    + [math.log(math.factorial(n)) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2 * math.pi)
       for n in range(1, 16)]
)  # fmt: skip


def _stirling(n: FloatArray) -> FloatArray:
    """Computes the rest of Stirling's formula, ln n! - ln(sqrt(2 pi n) (n / e)^n); 0 at n = 0.

    From 16 on it is a series, which is off by less than its first term left out, 691/360360 n^-11:
    below 2^-53 at n = 16. Below 16 it is a table.
    """
    far = np.maximum(n, 16.0)
    square = far * far
    series = np.full_like(far, 1 / 1188)
    for term in (1 / 1680, 1 / 1260, 1 / 360, 1 / 12):
        series = term - series / square
    series /= far
    return np.where(n < 16, _SMALL[np.minimum(n, 15).astype(int)], series)
