"""Exact values of delta in sixty digits, by formulas that share nothing with the package.

Each formula is that of a pair (P, Q): delta(eps) = sup over events S of P(S) - e^eps Q(S), for any
real eps. A parameter is the double that it is; nothing else is rounded but by mpmath.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import mpmath as mp

import tightbudget as tb
from tightbudget.mechanisms import Mechanism

Curve = Callable[[mp.mpf], mp.mpf]

DIGITS = 60
ENOUGH = mp.mpf(10) ** -45  # the relative error that the formulas may have, with much to spare


def truth(mechanism: Mechanism, direction: tb.mechanisms.Direction) -> Curve | None:
    """Returns delta(eps) of one run in a direction, or None where this file has no formula."""
    if isinstance(mechanism, tb.Subsampled):
        return _sampled(mechanism, direction)
    if isinstance(mechanism, tb.Either):
        return _either(mechanism, direction)
    if isinstance(mechanism, tb.Group):
        return _group(mechanism, direction)
    if isinstance(mechanism, tb.Allocated):
        return truth(mechanism.base, direction) if mechanism.steps == 1 else None
    outputs = _outputs(mechanism)
    if outputs is not None:
        return _of_outputs(outputs, direction)
    return _of_noise(mechanism, 1)


def _number(x: Any) -> mp.mpf:
    exact = Fraction(x)
    return mp.mpf(exact.numerator) / exact.denominator


# ------------------------------------------------------------------------------- finite pairs


def _outputs(mechanism: Mechanism) -> list[tuple[mp.mpf, mp.mpf]] | None:
    """The masses (P, Q) of all outputs with the record against without it, if they are few."""
    if isinstance(mechanism, tb.RandomizedResponse):
        true, k = _number(mechanism.p), mechanism.categories
        other = (1 - true) / (k - 1)
        return [(true, other), (other, true), *[(other, other)] * (k - 2)]
    if isinstance(mechanism, tb.ApproximateDP):
        lost, e = _number(mechanism.delta), mp.exp(_number(mechanism.epsilon))
        high, low = (1 - lost) * e / (1 + e), (1 - lost) / (1 + e)
        return [(lost, mp.mpf(0)), (high, low), (low, high), (mp.mpf(0), lost)]
    if isinstance(mechanism, tb.HistogramPair) and mechanism.noise is None:
        p, q = ([_number(x) + _number(mechanism.smoothing) for x in side]
                for side in _sides(mechanism))  # fmt: skip
        return [(a / sum(p), b / sum(q)) for a, b in zip(p, q, strict=True)]
    if isinstance(mechanism, tb.DiscreteLaplace):
        a, s = mp.exp(-1 / _number(mechanism.scale)), mechanism.sensitivity
        # the ratio is the same for all x <= 0, and for all x >= s
        ends = [(1 / (1 + a), a**s / (1 + a)), (a**s / (1 + a), 1 / (1 + a))]
        mass = (1 - a) / (1 + a)
        return ends + [(mass * a**x, mass * a ** (s - x)) for x in range(1, s)]
    if isinstance(mechanism, tb.FromCurve):
        return _outputs_of_curve(mechanism)
    return None


def _points(curve: Any) -> tuple[Any, Any]:
    return curve.epsilons, curve.deltas


def _sides(histogram: Any) -> tuple[Any, Any]:
    return histogram.p, histogram.q


def _outputs_of_curve(curve: tb.FromCurve) -> list[tuple[mp.mpf, mp.mpf]]:
    """The smallest pair under the lower convex hull of the points, by the gift-wrapping way."""
    points = [(mp.mpf(0), mp.mpf(1))]
    for epsilon, delta in zip(*_points(curve), strict=True):
        t = mp.exp(_number(epsilon))
        d = max(_number(delta), 1 - t)
        points.append((t, d))
        if curve.both_ways:
            points.append((1 / t, 1 - 1 / t + d / t))
    hull = [points[0]]
    while True:
        t, d = hull[-1]
        slopes = [((y - d) / (x - t), x, y) for x, y in points if x > t]
        if not slopes or min(slopes)[0] >= 0:
            break
        least = min(slopes)[0]
        # the farthest of the points that lie on the steepest line, but for rounding
        _, x, y = max((s for s in slopes if s[0] <= least + mp.mpf(10) ** -50), key=lambda s: s[1])
        hull.append((x, y))
    slope = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(hull)]
    q = [after - before for before, after in zip(slope, [*slope[1:], mp.mpf(0)], strict=True)]
    found = [(t * mass, mass) for (t, _), mass in zip(hull[1:], q, strict=True)]
    return [*found, (hull[-1][1], mp.mpf(0)), (mp.mpf(0), 1 - sum(q))]


def _of_outputs(
    outputs: Sequence[tuple[mp.mpf, mp.mpf]], direction: tb.mechanisms.Direction
) -> Curve:
    if direction is tb.mechanisms.Direction.ADD:
        outputs = [(b, a) for a, b in outputs]
    return lambda epsilon: mp.fsum(max(mp.mpf(0), a - mp.exp(epsilon) * b) for a, b in outputs)


# ----------------------------------------------------------------------------- additive noise


def _of_noise(mechanism: Mechanism, times: int) -> Curve | None:
    """Noise with a log-concave density: the best event is that of all outputs above a point."""
    if isinstance(mechanism, tb.Gaussian):
        m = times * _number(mechanism.sensitivity) / _number(mechanism.sigma)
        return lambda eps: mp.ncdf(m / 2 - eps / m) - mp.exp(eps) * mp.ncdf(-m / 2 - eps / m)
    if isinstance(mechanism, tb.Laplace):
        m = times * _number(mechanism.sensitivity) / _number(mechanism.scale)

        def laplace(eps: mp.mpf) -> mp.mpf:
            inside = -mp.expm1((eps - m) / 2) if eps < m else mp.mpf(0)
            return inside if eps > -m else -mp.expm1(eps)

        return laplace
    if isinstance(mechanism, tb.Logistic):
        m = times * _number(mechanism.sensitivity) / _number(mechanism.scale)

        def logistic(eps: mp.mpf) -> mp.mpf:
            if not -m < eps < m:
                return max(mp.mpf(0), -mp.expm1(eps))
            # where f(y - m) = e^eps f(y), in v = e^-y: the root of it is a quotient of two lines
            root, half = mp.exp(eps / 2), mp.exp(m / 2)
            v = (root - half) / (half - root * half**2)
            w = half**2 * v
            return w / (1 + w) - root**2 * v / (1 + v)

        return logistic
    if isinstance(mechanism, (tb.TruncatedGaussian, tb.TruncatedLaplace)):
        return _truncated(mechanism, times)
    return None


def _truncated(mechanism: tb.TruncatedGaussian | tb.TruncatedLaplace, times: int) -> Curve:
    s, bound = times * _number(mechanism.sensitivity), _number(mechanism.bound)
    if isinstance(mechanism, tb.TruncatedGaussian):
        scale = _number(mechanism.sigma)

        def tail(x: mp.mpf) -> mp.mpf:
            return mp.ncdf(-x / scale)

        def best(eps: mp.mpf) -> mp.mpf:
            return s / 2 + eps * scale**2 / s
    else:
        scale = _number(mechanism.scale)

        def tail(x: mp.mpf) -> mp.mpf:
            return mp.exp(-x / scale) / 2 if x > 0 else 1 - mp.exp(x / scale) / 2

        def best(eps: mp.mpf) -> mp.mpf:
            # the loss rises from -s / scale at 0 to s / scale at s, and is constant beyond
            at = (s + eps * scale) / 2
            return -mp.inf if at < 0 else mp.inf if at > s else at

    whole = tail(-bound) - tail(bound)

    def above(x: mp.mpf) -> mp.mpf:  # noise above x
        return mp.mpf(1) if x <= -bound else max(mp.mpf(0), tail(x) - tail(bound)) / whole

    def delta(eps: mp.mpf) -> mp.mpf:
        at = min(max(best(eps), s - bound), bound)
        ends = [at, bound, s - bound]
        everything = max(mp.mpf(0), -mp.expm1(eps))
        return max(everything, *(above(x - s) - mp.exp(eps) * above(x) for x in ends))

    return delta


# ---------------------------------------------------------------------------- ways to draw records


def _sampled(mechanism: tb.Subsampled, direction: tb.mechanisms.Direction) -> Curve | None:
    base, q = truth(mechanism.base, direction), _number(mechanism.rate)
    if base is None:
        return None
    if q == 0:
        return lambda eps: max(mp.mpf(0), -mp.expm1(eps))

    def remove(eps: mp.mpf) -> mp.mpf:
        # (1 - q) Q + q P against Q
        t = (mp.exp(eps) - 1 + q) / q
        return -mp.expm1(eps) if t <= 0 else q * base(mp.log(t))

    def add(eps: mp.mpf) -> mp.mpf:
        # of the base P against Q, P against (1 - q) P + q Q: here P is without the record
        left = 1 - mp.exp(eps) * (1 - q)
        return mp.mpf(0) if left <= 0 else left * base(mp.log(mp.exp(eps) * q / left))

    return remove if direction is tb.mechanisms.Direction.REMOVE else add


def _either(mechanism: tb.Either, direction: tb.mechanisms.Direction) -> Curve | None:
    first, second = (truth(m, direction) for m in (mechanism.first, mechanism.second))
    if first is None or second is None:
        return None
    p = _number(mechanism.probability)
    return lambda eps: p * first(eps) + (1 - p) * second(eps)


def _group(mechanism: tb.Group, direction: tb.mechanisms.Direction) -> Curve | None:
    base = mechanism.base
    return None if isinstance(base, (tb.Subsampled, tb.Either)) else _of_noise(base, mechanism.size)
