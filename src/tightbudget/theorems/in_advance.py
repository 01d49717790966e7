"""The optimal composition theorem for k exponential mechanisms that are all chosen in advance.

A mechanism of bounded range e is dominated by the pairs of t in [0, e], b = exp(-e), a = exp(-t):
under Q the loss is t - e with the chance (1 - a) / (1 - b), else t; under P with b / a times that
chance. Nobody chooses t after seeing outputs. N is the number of lower losses, and y = exp(eps).

- *One t for all is the worst, also beside other mechanisms.* Let these have one pair each, and R be
  the ratio of all their chances. All losses follow from U = sum t_i, N and R: delta is E_Q[g(N)]
  for g(n) = (R exp(U - n e) - y)+. For two of the runs, with a_1 a_2 = c, it changes with a_1 + a_2
  by the mean over all else of (g(n + 1) - g(n + 2)) - b (g(n) - g(n + 1)), over (1 - b)^2, which is
  0 where all three are positive, and else at most 0. So equal a are the worst for a given U. Runs
  of another e are such other mechanisms: those of each e have a t of their own. Three of .5 and two
  of 1.5 are worst at y = 3 for .23 and .84, neither equal nor in proportion.
- *The best t for each number.* delta is the largest over l of D(l, t) = P(N <= l) - y Q(N <= l).
  Its derivative by a has the sign of b^(l + 1) a^-(k + 1) - y: the largest is at
  t = (eps + (l + 1) e) / (k + 1), if that is in [0, e]; else 0 is larger.

Runs that are chosen after earlier answers may cost more: :class:`~tightbudget.ExponentialMechanism`
has their price.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy import special as sp

from tightbudget.numerics.binomial import binomial_tails
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import exp_down, exp_up, mul_up, next_down, next_up
from tightbudget.numerics.search import last_true
from tightbudget.numerics.validate import non_negative, positive_count, probability, refuse

__all__ = ["delta", "epsilon"]

_LEAST, _LARGEST = 1e-6, 50.0  # of the range
_MOST_RUNS = 20_000
# SciPy's binomial sums are granted so much, relative: they agree with exact ones to 1e-11 (tested).
_SEEN = 1e-6
_NATS = 690.0  # e^690 is a double; from there on delta is bounded by its value there


def delta(step_epsilon: float, runs: int, epsilon: float) -> Bounds:
    """Bounds the smallest delta at ``epsilon`` that holds for all such runs together.

    Guarantee: ``runs`` mechanisms of bounded range ``step_epsilon``, such as exponential mechanisms
    at this epsilon, whose scores are all fixed before the first one runs, are
    (epsilon, result.upper)-DP together; some are not (epsilon, d)-DP for any d < result.lower.
    Source: Dong, Durfee, Rogers 2020, arXiv 1909.13830; proved again in the module's docstring.

    Args:
        step_epsilon: the range of each mechanism, in [1e-6, 50], nats.
        runs: in [1, 20,000].
        epsilon: of all together, >= 0, nats.

    Raises:
        ParameterError: an argument is refused.
    """
    return _delta(_range(step_epsilon), _runs(runs), non_negative(epsilon=epsilon))


def epsilon(step_epsilon: float, runs: int, delta: float) -> Bounds:
    """Bounds the smallest epsilon at ``delta``: the inverse of :func:`delta`.

    Guarantee: as for :func:`delta`.

    Args:
        step_epsilon, runs: as for :func:`delta`.
        delta: of all together, in [0, 1].

    Raises:
        ParameterError: an argument is refused.
    """
    span, k, most = _range(step_epsilon), _runs(runs), probability(delta=delta)
    top = mul_up(k, span)
    high = last_true(lambda x: _delta(span, k, x).upper > most, span * math.sqrt(k), top)
    low = last_true(lambda x: _delta(span, k, x).lower > most, high.first_false, top)
    return Bounds(low.last_true, high.first_false)


def _range(step_epsilon: float) -> float:
    span = non_negative(step_epsilon=step_epsilon)
    if not _LEAST <= span <= _LARGEST:
        raise refuse("step_epsilon", f"be in [{_LEAST:g}, {_LARGEST:g}]", step_epsilon)
    return span


def _runs(runs: int) -> int:
    k = positive_count(runs=runs)
    if k > _MOST_RUNS:
        raise refuse("runs", f"be at most {_MOST_RUNS:,}", runs)
    return k


def _delta(span: float, k: int, epsilon: float) -> Bounds:
    """The largest D(l, t) over all l, each at its best t."""
    if epsilon >= mul_up(k, span):
        return Bounds(0.0, 0.0)
    if epsilon > _NATS:
        return Bounds(0.0, _delta(span, k, _NATS).upper)
    few = np.arange(k, dtype=np.float64)
    t = (epsilon + (few + 1.0) * span) / (k + 1.0)
    few, t = few[t < span], t[t < span]
    if not few.size:
        return Bounds(0.0, 0.0)
    a, near = np.exp(-t), -math.expm1(-span)
    q = np.clip(-np.expm1(-t) / near, 1e-300, 1.0 - 2.0**-53)
    p = np.clip(np.exp(t - span) * q, 1e-300, 1.0 - 2.0**-53)
    # those that may be the largest, by other digits of both chances
    few_p, few_q = sp.bdtr(few, k, p), math.exp(epsilon) * sp.bdtr(few, k, q)
    roughly, off_by = few_p - few_q, _SEEN * (few_p + few_q)
    likely = np.flatnonzero(roughly + off_by >= np.max(roughly - off_by))
    b = exp_down(-span), exp_up(-span)
    lower = upper = 0.0
    for i in likely.tolist():
        found = _at(float(a[i]), b, k, int(few[i]), epsilon)
        lower, upper = max(lower, found.lower), max(upper, found.upper)
    return Bounds(lower, min(upper, 1.0))


def _at(a: float, b: tuple[float, float], k: int, few: int, epsilon: float) -> Bounds:
    """Bounds D(few, t) for a = exp(-t), from bounds of b = exp(-e)."""
    a = min(max(a, next_up(b[1])), next_down(1.0))
    whole = [Fraction(x) for x in b]
    q = [(1 - Fraction(a)) / (1 - x) for x in whole]
    p = [x / Fraction(a) * rate for x, rate in zip(whole, q, strict=True)]
    # more chance of a hit is less of few hits
    few_p = binomial_tails(k, p[1], few + 1)[0][0], binomial_tails(k, p[0], few + 1)[0][1]
    few_q = binomial_tails(k, q[1], few + 1)[0][0], binomial_tails(k, q[0], few + 1)[0][1]
    # a is within 2e-14 of itself from where the derivative is 0, which has terms of this size
    off = few_p[1] * 1e-27 * k * (k + 1.0) * b[1] / (a - b[1])
    least = next_down(few_p[0] - next_up(exp_up(epsilon) * few_q[1]))
    most = next_up(few_p[1] - next_down(exp_down(epsilon) * few_q[0]))
    return Bounds(max(0.0, least), max(0.0, next_up(most + off)))
