"""Renyi differential privacy and the moments accountant: divergences of one order add up.

The caller hands in a divergence as a function from an order to bounds: one of the closed forms
here, a :class:`RenyiTable`, or ``composition.renyi``. The best order is searched for on a
continuum.

Differs from ``dp_accounting.rdp`` in four ways: (1) orders come from a continuum, not from a fixed
list; (2) every step rounds towards the safe side, so that no divergence comes out negative;
(3) Renyi divergences alone are converted, not the Kullback-Leibler divergence by Bretagnolle and
Huber, which that package adds at orders near 1; (4) the sampled Gaussian's closed form is for
integer orders, and chords of a :class:`RenyiTable` stand between them.
"""

from __future__ import annotations

import bisect
import enum
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    UNIT,
    add_up,
    exp_up,
    log_down,
    log_up,
    mul_up,
    next_up,
    sub_up,
)
from tightbudget.numerics.search import least_between
from tightbudget.numerics.special import expm1_less
from tightbudget.numerics.validate import (
    non_negative,
    number,
    open_probability,
    positive,
    positive_count,
    probability,
    refuse,
)

__all__ = [
    "Conversion",
    "Divergence",
    "RenyiTable",
    "delta",
    "epsilon",
    "gaussian",
    "laplace",
    "orders",
    "randomized_response",
    "subsampled_gaussian",
]

Divergence = Callable[[float], Bounds]  # from an order > 1 (also inf) to the divergence, nats

_MOST_ORDER = 10_000  # terms of the closed form's sum: some milliseconds
# Powers of 2 of order - 1 between which the best order is searched for, beginning at order 17. At
# 1 + 2^-16 the conversion's ln(1/delta) / (order - 1) is above 45,000 nats for delta = 1/2; at
# 1 + 2^24 it is below 10^-4 nats for any delta that a double holds.
_LOWEST, _START, _HIGHEST = -16, 4, 24


class Conversion(enum.Enum):
    """The theorem that leads from a Renyi divergence to (epsilon, delta), by its authors.

    MIRONOV: eps = D + ln(1/delta) / (order - 1). Source: Mironov 2017, Proposition 3; the
    moments accountant's (Abadi et al. 2016, Theorem 2). CANONNE: the sharper eps = D +
    ln((order - 1) / order) - (ln(delta) + ln(order)) / (order - 1). Source: Canonne, Kamath,
    Steinke 2020, Proposition 12.
    """

    MIRONOV = "Mironov 2017"
    CANONNE = "Canonne, Kamath, Steinke 2020"


# ----------------------------------------------------------------- to (epsilon, delta)


def epsilon(
    divergence: Divergence,
    delta: float,
    runs: int = 1,
    conversion: Conversion = Conversion.CANONNE,
) -> Bounds:
    """Bounds epsilon at ``delta`` by the best order.

    Guarantee: a mechanism with at most ``runs`` times these divergences, at each order, is
    (result.upper, delta)-DP, rounding included.

    Args:
        divergence: of one run, by order > 1; its upper bounds count.
        delta: in [0, 1]; at 0 only the order inf helps.
        runs: >= 1.
        conversion: whose theorem.

    Raises:
        ParameterError: an argument is refused.
    """
    d, k = probability(delta=delta), positive_count(runs=runs)

    def at(order: float) -> float:
        return epsilon_at(order, mul_up(k, divergence(order).upper), d, conversion)

    return Bounds(0.0, max(0.0, _least(at) if d > 0 else at(math.inf)))


def delta(
    divergence: Divergence,
    epsilon: float,
    runs: int = 1,
    conversion: Conversion = Conversion.CANONNE,
) -> Bounds:
    """Bounds delta at ``epsilon`` by the best order.

    Guarantee: a mechanism with at most ``runs`` times these divergences, at each order, is
    (epsilon, result.upper)-DP, rounding included.

    Args:
        divergence, runs, conversion: as for :func:`epsilon`.
        epsilon: >= 0, nats.

    Raises:
        ParameterError: an argument is refused.
    """
    e, k = non_negative(epsilon=epsilon), positive_count(runs=runs)

    def at(order: float) -> float:
        return log_delta_at(order, mul_up(k, divergence(order).upper), e, conversion)

    least = _least(at)
    return Bounds(0.0, min(1.0, exp_up(least)) if least > -math.inf else 0.0)


def epsilon_at(
    order: float, divergence: float, delta: float, conversion: Conversion = Conversion.CANONNE
) -> float:
    """Converts the divergence of one order to an upper bound of epsilon at ``delta``.

    ``delta`` is > 0, or the order is inf.
    """
    if math.isinf(order):
        return divergence
    s = order - 1.0  # exact
    log = -log_down(delta)  # guard: conversion-rounded-up-1
    if conversion is Conversion.MIRONOV:
        return add_up(divergence, next_up(log / s))  # guard: conversion-rounded-up-2
    log = sub_up(log, log_down(order))
    return add_up(divergence, log_up(next_up(s / order)), next_up(log / s))


def log_delta_at(
    order: float, divergence: float, epsilon: float, conversion: Conversion = Conversion.CANONNE
) -> float:
    """Converts the divergence of one order to an upper bound of ln delta at ``epsilon``."""
    if math.isinf(order):
        return -math.inf if divergence <= epsilon else 0.0
    if math.isinf(divergence):
        return math.inf
    s = order - 1.0  # exact
    log = mul_up(s, sub_up(divergence, epsilon))  # guard: conversion-inverse-rounded-up
    if conversion is Conversion.CANONNE:
        # guard: conversion-inverse-order
        log = add_up(log, mul_up(s, log_up(next_up(s / order))), -log_down(order))
    return log


def _least(at: Callable[[float], float]) -> float:
    """Searches the orders > 1 for the least value of ``at``, which falls, then grows.

    Every order gives a valid bound, so a search that misses the best order costs tightness alone.
    """
    seen: dict[float, float] = {}

    def of_exponent(x: float) -> float:
        order = 1.0 + 2.0**x
        if order not in seen:
            seen[order] = at(order)
        return seen[order]

    # downhill in steps of a factor 2 (high orders may be infinite), then in between
    x = _START
    while math.isinf(of_exponent(x)) and x > _LOWEST:
        x -= 1
    for step in (-1, 1):
        while _LOWEST < x < _HIGHEST and of_exponent(x + step) < of_exponent(x):
            x += step
    if math.isfinite(of_exponent(x)):
        # near the least value an error of the exponent by 1e-5 changes it to second order: by 1e-10
        least_between(of_exponent, x - 1.0, x + 1.0, 1e-5)
    return min(at(math.inf), *seen.values())


# ---------------------------------------------------------------------------- closed forms


def gaussian(order: float, sigma: float, sensitivity: float = 1.0) -> Bounds:
    """Bounds the divergence of Gaussian noise: order sensitivity^2 / (2 sigma^2).

    Guarantee: the divergence between N(0, sigma^2) and N(sensitivity, sigma^2) lies inside.
    Source: Mironov 2017, Proposition 7.

    Raises:
        ParameterError: an argument is refused.
    """
    a, sigma = _order(order), positive(sigma=sigma)
    m = positive(sensitivity=sensitivity) / sigma
    return _around(a * m * m / 2)


def laplace(order: float, scale: float, sensitivity: float = 1.0) -> Bounds:
    """Bounds the divergence of Laplace noise.

    It is ln(a / (2a - 1) e^((a - 1) m) + (a - 1) / (2a - 1) e^(-a m)) / (a - 1), for the order a
    and m = sensitivity / scale.

    Guarantee: the divergence between Laplace noises that are
    ``sensitivity`` apart lies inside. Source: Mironov 2017, Proposition 6.

    Raises:
        ParameterError: an argument is refused.
    """
    a, scale = _order(order), positive(scale=scale)
    m = positive(sensitivity=sensitivity) / scale
    if math.isinf(a):
        return _around(m)
    s = a - 1.0
    whole = 1.0 + 2.0 * s
    if s * m > 30.0:  # e^-30 = 1e-13: nothing cancels any more, and e^(s m) may overflow
        log = s * m + math.log(a / whole + s / whole * math.exp(-whole * m))
    else:  # first orders cancel: with g(x) = e^x - 1 - x what remains is positive
        log = math.log1p((a * _beyond(s * m) + s * _beyond(-a * m)) / whole)
    return _around(log / s)


def randomized_response(order: float, p: float) -> Bounds:
    """Bounds the divergence of binary randomised response.

    It is ln(p^a (1 - p)^(1 - a) + (1 - p)^a p^(1 - a)) / (a - 1), for the order a.

    Guarantee: the divergence of the answers of binary randomised response with probability
    p lies inside. Source: Mironov 2017, Proposition 5.

    Raises:
        ParameterError: an argument is refused.
    """
    a, p = _order(order), open_probability(p=p)
    rare = min(p, 1.0 - p)
    often = 1.0 - rare
    gap = 1.0 - 2.0 * rare  # not often - rare: near p = 1/2 that has lost the digits of often
    loss = math.log1p(gap / rare)
    if math.isinf(a):
        return _around(loss)
    y = (a - 1.0) * loss
    if y > 30.0:
        log = y + math.log(often + rare * math.exp(-2.0 * y))
    else:
        log = math.log1p(often * _beyond(y) + rare * _beyond(-y) + gap * y)
    return _around(log / (a - 1.0))


def subsampled_gaussian(order: int, sigma: float, rate: float, sensitivity: float = 1.0) -> Bounds:
    """Bounds the divergence of Gaussian noise on a Poisson sample, for an integer order.

    It is ln(sum over i of C(a, i) (1 - q)^(a - i) q^i e^((i^2 - i) m^2 / 2)) / (a - 1), for the
    order a, the rate q and m = sensitivity / sigma.

    Guarantee: the divergence of a Gaussian on a Poisson sample of
    rate q lies inside, the larger one of both directions (that of removing a record).
    Source: Mironov, Talwar, Zhang 2019, section 3.3.

    Args:
        order: an integer a in [2, 10000].
        sigma: standard deviation of the noise, > 0.
        rate: q, in [0, 1].
        sensitivity: norm of one record's contribution, > 0, in the unit of ``sigma``.

    Raises:
        ParameterError: an argument is refused.
    """
    a, sigma, q = positive_count(order=order), positive(sigma=sigma), probability(rate=rate)
    if not 2 <= a <= _MOST_ORDER:
        raise refuse("order", f"be an integer in [2, {_MOST_ORDER}]", order)
    m = positive(sensitivity=sensitivity) / sigma
    if q in (0.0, 1.0):
        return Bounds(0.0, 0.0) if q == 0.0 else gaussian(a, sigma, sensitivity)
    i = np.arange(2.0, a + 1.0)
    choices = itertools.accumulate(range(1, a + 1), lambda c, j: c * (a - j + 1) // j, initial=1)
    log_choices = np.array([math.log(c) for c in choices])[2:]
    # 1 is what the powers alone add up to: terms e^y - 1 are left, and all are positive
    y = (i * i - i) * (m * m / 2)
    log_powers = (a - i) * math.log1p(-q) + i * math.log(q)
    with np.errstate(divide="ignore"):  # y = 0 where m * m is
        log_terms = np.where(y > 1, y + np.log1p(-np.exp(-y)), np.log(np.expm1(np.minimum(y, 1))))
    logs = log_choices + log_powers + log_terms
    log_sum = float(np.logaddexp.reduce(logs))
    if math.isinf(log_sum):
        return _around(0.0)
    # Each summand of a logarithm rounds in proportion to itself: 16 units are granted, and 4 for
    # each of the a terms of the sum. ln(1 + x) is off by no more than ln x, and relatively by no
    # more where it is below 1. Measured for a up to 300: at most a twentieth of the grant
    off = 16.0 * float(np.max(log_choices + np.abs(log_powers) + np.abs(log_terms))) + 4.0 * a
    log = float(np.logaddexp(0.0, log_sum))
    return _around(log / (a - 1), 256.0 + off / max(1.0, log))


def _around(value: float, units: float = 256.0) -> Bounds:
    """Makes the bounds of a number >= 0 that is known within ``units`` of 2^-53, relative.

    256 are granted to a closed form of some dozen operations; at most 4 were measured for Laplace
    noise and randomised response.
    """
    least = 1e-300  # where rounding is not relative any more
    lower = value * (1 - units * UNIT) if value > least else 0.0  # guard: closed-form-rounds-1
    return Bounds(lower, max(value * (1 + units * UNIT), least))  # guard: closed-form-rounds-2


def _beyond(x: float) -> float:
    """Computes e^x - 1 - x without cancellation."""
    # guard: first-orders-cancel
    return float(expm1_less(np.asarray(x))) if abs(x) <= 0.5 else math.expm1(x) - x


def _order(order: float) -> float:
    a = number(order=order)
    if not a > 1:
        raise refuse("order", "be > 1", order)
    return a


# ------------------------------------------------------------------------------- a table


def orders(largest_loss: float) -> tuple[float, ...]:
    """Makes the orders of a table: order - 1 grows by factors 2^(1/4), and the last order is inf.

    The chords between such orders are above the divergences by 0.2 % to 0.8 % (measured for Laplace
    noise, randomised response and a sampled Gaussian).

    Args:
        largest_loss: of one run, >= 0, nats; may be inf. From the order 32 / largest_loss on, the
            divergence is nearly the largest loss, which is the divergence of the order inf.

    Raises:
        ParameterError: the argument is refused.
    """
    top = number(largest_loss=largest_loss)
    if not top >= 0:
        raise refuse("largest_loss", "be >= 0", largest_loss)
    highest = 2.0**10 if math.isinf(top) else 32.0 / max(top, 32.0 * 2.0**-24)
    octaves = math.log2(max(highest, 1.0))
    return (*(1.0 + 2.0 ** (j / 4) for j in range(-48, math.ceil(4 * octaves) + 1)), math.inf)


@dataclass(frozen=True, eq=False)
class RenyiTable:
    """A table of divergences at some orders, which implies upper bounds at all others.

    Guarantee: where each divergence is at most the one given, a call's upper bound is at least
    the divergence of its order. (order - 1) D is convex in the order (0 at order 1), so chords
    are above it; and D grows with the order, so the divergence of the order inf, if it is given,
    bounds all others. Source: van Erven, Harremoes 2014, Theorem 3 and Corollary 2.

    Args:
        orders: (n,) > 1, ascending; the last may be inf.
        divergences: (n,) >= 0, nats; may be inf.

    Raises:
        ParameterError: an argument is refused.
    """

    orders: Sequence[float] = field(repr=False)
    divergences: Sequence[float] = field(repr=False)

    def __post_init__(self) -> None:
        orders = tuple(_order(a) for a in self.orders)
        values = tuple(number(**{f"divergences[{i}]": d}) for i, d in enumerate(self.divergences))
        if not orders or len(values) != len(orders):
            raise refuse(
                "divergences", f"have as many entries as orders ({len(orders)})", len(values)
            )
        for i, (before, after) in enumerate(itertools.pairwise(orders), start=1):
            if not before < after:
                raise refuse(f"orders[{i}]", f"be above orders[{i - 1}]", after)
        for i, d in enumerate(values):
            if not d >= 0:
                raise refuse(f"divergences[{i}]", "be >= 0", d)
        least = itertools.accumulate(reversed(values), min)  # a later, smaller one counts
        object.__setattr__(self, "orders", orders)
        object.__setattr__(self, "divergences", tuple(least)[::-1])

    @staticmethod
    def of(divergence: Divergence, orders: Sequence[float]) -> RenyiTable:
        """Tabulates the upper bounds of a divergence at some orders, such as :func:`orders`."""
        return RenyiTable(orders, [divergence(a).upper for a in orders])

    def __call__(self, order: float) -> Bounds:
        """Bounds the divergence of any order > 1; the upper bound is inf where none is known."""
        a = _order(order)
        i = bisect.bisect_left(self.orders, a)
        if i == len(self.orders):
            return Bounds(0.0, math.inf)
        right = self.divergences[i]
        if math.isinf(self.orders[i]) or self.orders[i] == a or math.isinf(right):
            return Bounds(0.0, right)
        s, s_right = a - 1.0, self.orders[i] - 1.0
        s_left, left = (self.orders[i - 1] - 1.0, self.divergences[i - 1]) if i else (0.0, 0.0)
        share = (s - s_left) / (s_right - s_left)
        chord = ((1 - share) * s_left * left + share * s_right * right) / s
        # Three differences, a quotient and four operations: below 32 units of the chord. 1 - share
        # is off by the rounding of share, which is large beside it near 1: but it is an absolute
        # 2^-53, and s_left * left is no larger than s_right * right
        return Bounds(0.0, min(right, chord * (1 + 32 * UNIT)))  # guard: chord-rounded-up
