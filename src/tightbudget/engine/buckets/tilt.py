"""The tilt is chosen where Chernoff's bound on delta is smallest, or a little lower.

With K(theta) = ln E_P[e^(theta L)] and ln g(theta) = theta ln theta - (1 + theta)
ln(1 + theta), delta(eps) <= e^(K(theta) - theta eps + ln g(theta)) for every theta > 0.
The best theta puts the tilted losses where delta is made. Nothing here affects truth,
only cost and width: K comes from a rough picture of the losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.search import root_between
from tightbudget.pairs.pair import Sketch

Indices = NDArray[np.intp]

# Tilts that are tried. Below, e^(theta L) is 1 for every loss that matters; above, one loss is all
# there is of the tilted measure. A tilt at either end is a worse choice, never a wrong one.
_RANGE = (1e-9, 1e9)
# ln of the least delta that is answered for: e^-655 is 1e-284, so that the masses that make it are
# still normal doubles.
_LEAST = -655.0


@dataclass(frozen=True)
class Saddle:
    """A tilt and what is roughly known there."""

    theta: float
    epsilon: float  # about where the curve is read
    log_delta: float  # about ln delta there
    spread: float  # standard deviation of the tilted total loss
    slack: float  # ln(Chernoff's bound at theta / the best one), >= 0
    slope: float  # the best tilt, which is about -d ln delta / d eps


@dataclass(frozen=True)
class Picture:
    """The sketches of a composition's steps with their numbers of runs."""

    sketches: tuple[tuple[Sketch, int], ...]

    def without_tail(self, log_mass: float) -> Picture:
        """Leaves out the largest losses that together have P-mass e^log_mass in all runs.

        A rare large loss that may count as infinite must not pull at the tilt.
        """
        share = log_mass - math.log(sum(k for _, k in self.sketches))
        return Picture(tuple((without_tail(sketch, share), k) for sketch, k in self.sketches))

    def cumulants(self, theta: float) -> tuple[float, float, float]:
        """K, K' and K'' of the whole composition at theta."""
        x, log_masses, starts, sizes, counts = self._joined
        exponents = theta * x + log_masses
        tops = np.maximum.reduceat(exponents, starts)
        weights = np.exp(exponents - np.repeat(tops, sizes))
        totals = np.add.reduceat(weights, starts)
        means = np.add.reduceat(weights * x, starts) / totals
        apart = x - np.repeat(means, sizes)
        variances = np.add.reduceat(weights * apart * apart, starts) / totals
        k0, k1, k2 = (float(counts @ one) for one in (tops + np.log(totals), means, variances))
        return k0, k1, k2

    @cached_property
    def _joined(self) -> tuple[FloatArray, FloatArray, Indices, Indices, FloatArray]:
        """All losses and masses in a row, where each sketch begins, its length and its runs."""
        losses, log_masses = (
            np.concatenate([getattr(sketch, name) for sketch, _ in self.sketches])
            for name in ("losses", "log_masses")
        )
        sizes = np.array([sketch.losses.size for sketch, _ in self.sketches], dtype=np.intp)
        counts = np.array([float(k) for _, k in self.sketches])
        return losses, log_masses, np.cumsum(sizes) - sizes, sizes, counts

    def for_epsilon(self, epsilon: float, slack_nats: float = 0.0, start: float = 1.0) -> Saddle:
        """Returns the tilt for delta(epsilon), or one that is up to ``slack_nats`` nats worse.

        ``start`` is a tilt to begin the search at.
        """

        def slope(theta: float) -> float:
            return self.cumulants(theta)[1] + math.log(theta / (1.0 + theta)) - epsilon

        def chernoff(theta: float) -> float:
            return self.cumulants(theta)[0] + _log_g(theta) - theta * epsilon

        theta = _root(slope, start)
        if chernoff(theta) < _LEAST:
            # masses that small are not doubles: the least delta that is asks for less tilt
            theta = _root(lambda t: _LEAST - chernoff(t) if t < theta else math.inf, theta)
        k0, _, k2 = self.cumulants(theta)
        bound = max(k0 + _log_g(theta) - theta * epsilon, _LEAST)
        log_delta = bound - _log_loss(theta, k2)
        return self._narrower(theta, epsilon, log_delta, bound, slack_nats)

    def for_delta(self, delta: float, slack_nats: float = 0.0, start: float = 1.0) -> Saddle:
        """Returns the tilt of the best Renyi bound on eps(delta), or one ``slack_nats`` worse."""
        log_delta = max(math.log(delta), _LEAST)

        def slope(theta: float) -> float:
            k0, k1, _ = self.cumulants(theta)
            rise = theta * (k1 + math.log(theta / (1.0 + theta)))
            return rise - k0 - _log_g(theta) + log_delta

        theta = _root(slope, start)
        k0, _, k2 = self.cumulants(theta)
        bound = (k0 + _log_g(theta) - log_delta) / theta
        epsilon = bound - _log_loss(theta, k2) / theta
        return self._narrower(
            theta, epsilon, log_delta, k0 + _log_g(theta) - theta * bound, slack_nats
        )

    def _narrower(
        self, best: float, epsilon: float, log_delta: float, chernoff: float, slack_nats: float
    ) -> Saddle:
        """Returns a tilt below ``best`` if that makes the tilted losses much narrower.

        A rare large loss can dominate the best tilt and stretch every array; the FFT has
        digits to spare for a tilt that is a few nats worse. A nat of slack counts as 15 percent
        of an array's length, since it asks for finer cuts: a heuristic, which moves costs only.
        """
        k0, _, k2 = self.cumulants(best)
        saddle = Saddle(best, epsilon, log_delta, math.sqrt(k2), 0.0, best)
        edge = (k0 + _log_g(best) - chernoff) / best
        lowest = math.log(saddle.spread + 1e-300)
        for eighths in range(1, 9 if slack_nats > 0 else 1):
            theta = best * 2.0 ** (-eighths / 8)
            k0, _, k2 = self.cumulants(theta)
            slack = max(0.0, k0 + _log_g(theta) - theta * edge - chernoff)
            price = 0.5 * math.log(k2 + 1e-300) + 0.15 * slack
            if slack > slack_nats or price > lowest + 0.5:
                break
            if price < lowest:
                lowest = price
                saddle = Saddle(theta, epsilon, log_delta, math.sqrt(k2), slack, best)
        return saddle


def _log_g(theta: float) -> float:
    return theta * math.log(theta) - (1.0 + theta) * math.log1p(theta)


def _log_loss(theta: float, variance: float) -> float:
    # Chernoff's bound over the saddle-point approximation, roughly
    return max(0.0, 0.5 * math.log1p(2.0 * math.pi * theta * theta * variance))


def _root(slope: Callable[[float], float], start: float) -> float:
    """Finds the tilt at which the increasing ``slope`` is zero, or the nearest end of the range."""
    low, high = (math.log(t) for t in _RANGE)
    # march away from the start: most answers are near, and extreme tilts cost many evaluations
    u, step = math.log(start), 0.5
    direction = 1.0 if slope(start) < 0 else -1.0
    while True:
        v = min(high, max(low, u + direction * step))
        if (slope(math.exp(v)) < 0) != (direction > 0):
            break
        if v in (low, high):
            return math.exp(v)
        u, step = v, 2.0 * step
    root = root_between(
        lambda w: max(-1e300, min(1e300, slope(math.exp(w)))), min(u, v), max(u, v), xtol=1e-2
    )
    return math.exp(root)


def without_tail(sketch: Sketch, log_mass: float) -> Sketch:
    """Returns ``sketch`` without the largest losses, of P-mass e^log_mass or less together."""
    tail = np.logaddexp.accumulate(sketch.log_masses[::-1])
    keep = max(1, sketch.losses.size - int(np.searchsorted(tail, log_mass)))
    return Sketch(sketch.losses[:keep], sketch.log_masses[:keep])


def tilted_moments(sketch: Sketch, theta: float) -> tuple[float, float, float]:
    """Returns ln E[e^(theta L)], and mean and variance of L under the tilted sketch."""
    exponents = theta * sketch.losses + sketch.log_masses
    top = float(np.max(exponents))
    weights: FloatArray = np.exp(exponents - top)
    total = float(np.sum(weights))
    mean = float(np.dot(weights, sketch.losses)) / total
    variance = float(np.dot(weights, (sketch.losses - mean) ** 2)) / total
    return top + math.log(total), mean, variance
