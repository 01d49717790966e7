"""Choosing the tilt: where Chernoff's bound on delta is smallest, or a little below.

With K(theta) = ln E_P[e^(theta L)] and ln g(theta) = theta ln theta - (1 + theta)
ln(1 + theta), delta(eps) <= e^(K(theta) - theta eps + ln g(theta)) for every theta > 0.
The best theta puts the tilted losses where delta is made. Nothing here affects truth,
only cost and width: K comes from a rough picture of the losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from tightbudget.numerics.rounding import FloatArray
from tightbudget.pairs.pair import Sketch

__all__ = ["Picture", "Saddle", "tilted_moments", "without_tail"]

_RANGE = (1e-9, 1e9)


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
        """Without the largest losses that together have P-mass e^log_mass in all runs.

        A rare large loss that may count as infinite must not pull at the tilt.
        """
        share = log_mass - math.log(sum(k for _, k in self.sketches))
        return Picture(tuple((without_tail(sketch, share), k) for sketch, k in self.sketches))

    def cumulants(self, theta: float) -> tuple[float, float, float]:
        """K, K' and K'' of the whole composition at theta."""
        k0 = k1 = k2 = 0.0
        for sketch, k in self.sketches:
            one, mean, variance = tilted_moments(sketch, theta)
            k0, k1, k2 = k0 + k * one, k1 + k * mean, k2 + k * variance
        return k0, k1, k2

    def for_epsilon(self, epsilon: float, ease: float = 0.0) -> Saddle:
        """The tilt for delta(epsilon), or one that is up to ``ease`` nats worse."""

        def slope(theta: float) -> float:
            return self.cumulants(theta)[1] + math.log(theta / (1.0 + theta)) - epsilon

        theta = _root(slope)
        k0, _, k2 = self.cumulants(theta)
        chernoff = k0 + _log_g(theta) - theta * epsilon
        return self._eased(theta, epsilon, chernoff - _log_loss(theta, k2), chernoff, ease)

    def for_delta(self, delta: float, ease: float = 0.0) -> Saddle:
        """The tilt of the best Renyi bound on eps(delta), or one up to ``ease`` nats worse."""
        log_delta = max(math.log(delta), -800.0)

        def slope(theta: float) -> float:
            k0, k1, _ = self.cumulants(theta)
            rise = theta * (k1 + math.log(theta / (1.0 + theta)))
            return rise - k0 - _log_g(theta) + log_delta

        theta = _root(slope)
        k0, _, k2 = self.cumulants(theta)
        bound = (k0 + _log_g(theta) - log_delta) / theta
        epsilon = bound - _log_loss(theta, k2) / theta
        return self._eased(theta, epsilon, log_delta, k0 + _log_g(theta) - theta * bound, ease)

    def _eased(
        self, best: float, epsilon: float, log_delta: float, chernoff: float, ease: float
    ) -> Saddle:
        """A somewhat smaller tilt where that makes the tilted losses much narrower.

        A rare large loss can dominate the best tilt and stretch every array; the FFT has
        digits to spare for a tilt that is a few nats worse.
        """
        edge = (chernoff - self.cumulants(best)[0] - _log_g(best)) / -best
        found = None
        for theta in best * 2.0 ** (-np.arange(9) / 8.0):
            k0, _, k2 = self.cumulants(float(theta))
            slack = max(0.0, k0 + _log_g(float(theta)) - float(theta) * edge - chernoff)
            if found is not None and slack > ease:
                break
            saddle = Saddle(float(theta), epsilon, log_delta, math.sqrt(k2), slack, best)
            price = math.log(saddle.spread + 1e-300) + 0.15 * slack
            if found is None or price < found[0]:
                found = price, saddle
        assert found is not None
        return found[1]


def _log_g(theta: float) -> float:
    return theta * math.log(theta) - (1.0 + theta) * math.log1p(theta)


def _log_loss(theta: float, variance: float) -> float:
    # Chernoff's bound over the saddle-point approximation, roughly
    return max(0.0, 0.5 * math.log1p(2.0 * math.pi * theta * theta * variance))


def _root(slope: Callable[[float], float]) -> float:
    """Where an increasing function of the tilt is zero (or the nearest end of the range)."""
    low, high = (math.log(t) for t in _RANGE)
    # march from a tilt of 1: most answers are near, and extreme tilts are dear
    u, step = 0.0, 1.0
    direction = 1.0 if slope(1.0) < 0 else -1.0
    while True:
        v = min(high, max(low, u + direction * step))
        if (slope(math.exp(v)) < 0) != (direction > 0):
            break
        if v in (low, high):
            return math.exp(v)
        u, step = v, 1.5 * step
    root = optimize.brentq(lambda w: slope(math.exp(w)), min(u, v), max(u, v), xtol=1e-2)
    return math.exp(float(root))


def without_tail(sketch: Sketch, log_mass: float) -> Sketch:
    """The sketch without the largest losses, of P-mass e^log_mass or less together."""
    tail = np.logaddexp.accumulate(sketch.log_masses[::-1])
    keep = max(1, sketch.losses.size - int(np.searchsorted(tail, log_mass)))
    return Sketch(sketch.losses[:keep], sketch.log_masses[:keep])


def tilted_moments(sketch: Sketch, theta: float) -> tuple[float, float, float]:
    """ln E[e^(theta L)], mean and variance of L under the tilted sketch."""
    exponents = theta * sketch.losses + sketch.log_masses
    top = float(np.max(exponents))
    weights: FloatArray = np.exp(exponents - top)
    total = float(np.sum(weights))
    mean = float(np.dot(weights, sketch.losses)) / total
    variance = float(np.dot(weights, (sketch.losses - mean) ** 2)) / total
    return top + math.log(total), mean, variance
