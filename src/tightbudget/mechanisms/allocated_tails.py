"""E[(R - K)+] for large K, where R is the density ratio of one epoch of random allocation.

It is computed without subtracting nearly equal numbers, and called the *excess* of R over K;
E[(K - R)+] is the *shortfall*.

psi(s) = E[e^(-s W)] has a cut along s < 0, since W has no exponential moments. Pulling the line of
:mod:`tightbudget.mechanisms.allocated_line` to the left, around the cut, leaves a residue of
t (K - 1) at s = 0, and so, for every c > 0,

    t E[(R - K)+] = 1/pi int_0^c Im[psi(-r - i0)^t] e^(-r t K) / r^2 dr
                  + 1/pi Re int_0^inf psi(-c + i w)^t e^((-c + i w) t K) / (-c + i w)^2 dw.

The first integral is positive where single large W decide; the second one is what many together
do. Beside the cut, psi(-r - i0) = a + i beta with (W = e^(m z - m^2/2), f its density)

    beta(r) = 1/(2 i) int f(w) e^(r w) dw  around w <= 0
            = 1/(m sqrt(2 pi)) int exp(A (1 + i v)^2 - z(v)^2 / 2) / (1 + i v) dv,
    w(v) = w_0 (1 + i v)^2,  A = r w_0,  z(v) = z_0 + 2 / m ln(1 + i v),

a trapezoidal sum whose terms do not oscillate if z_0 = m r w_0: beta is known relatively, however
small it is.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tightbudget.mechanisms.allocated_transform import (
    ComplexArray,
    log_transform,
    relative_error,
    upper_transform,
)
from tightbudget.numerics.rounding import TINY, UNIT, FloatArray, outwards

_ROOT = math.sqrt(2.0 * math.pi)
# Edges of the bins that bound an integral over v; the rest beyond the last one has a closed bound.
_BINS = np.concatenate([np.arange(0.0, 2.0, 0.05), np.geomspace(2.0, 12.0, 30)])
# Aims, relative to the excess: they decide about widths, the bounds are computed.
_AIM = 1e-11
# Half the length of a panel in ln r, and the sum of the half-axes of the ellipse around [-1, 1]
# in which the integrand is bounded: there |Im ln r| <= 0.94 < pi / 2.
_HALF, _RHO = 0.7, 3.0
_MOST_NODES = 120
# Terms of a sum for beta; 60 are usual.
_MOST_TERMS = 400
# ln of the aliasing of that sum that is aimed at, relatively: e^-36 is two units of 2^-53.
_GOAL = 36.0
# Nodes of all panels of one integral; beyond it nothing is said.
_MOST_IN_ALL = 2500
# A panel that would take more nodes is halved.
_ENOUGH = 40.0
# A path bends to the left by this angle for at most 16 m^2 steps: psi^t then grows by less than
# e^5, which costs two digits at most.
_BENT, _FEW = 0.25 * math.pi, 16.0
# Points on the upper half of that ellipse of [-1, 1], and the most that neighbours are apart.
_TURN = np.linspace(0.0, math.pi, 33)
_ELLIPSE = 0.5 * (_RHO * np.exp(1j * _TURN) + np.exp(-1j * _TURN) / _RHO)
_SPACED = float(np.max(np.abs(np.diff(_ELLIPSE))))
# ln of what a closed bound of psi^t may cost before it is sampled instead.
_CRUDE = 12.0


def excess_beside_cut(m: float, steps: int, k1: float, slack: float) -> tuple[float, float]:
    """Bounds E_Q[(R - K)+] for K = 1 + k1 > 1, k1 known up to ``slack``.

    (0, inf) where nothing is found.
    """
    cut = _Cut(m, steps, k1, slack)
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        return cut.excess()


@dataclass(frozen=True)
class _Cut:
    """The excess at one K by two integrals, along the cut of psi and upwards from its end."""

    m: float
    steps: int
    k1: float
    slack: float

    def excess(self) -> tuple[float, float]:
        """Bounds E_Q[(R - K)+]."""
        found = self._plan()
        if found is None:
            return 0.0, math.inf
        low, c, rough = found
        value, error = self._along(low, c, rough)
        rest = self._near_zero(low)
        across = self._vertical(c)
        if across > _AIM * abs(value):
            more, off = self._across(c, max(abs(value), rough))
            if off < across:
                value, error, across = (
                    value + more,
                    error + off,
                    4 * UNIT * (abs(value) + abs(more)),
                )
        rest += across
        lower, upper = value - error - rest, value + error + rest
        if not upper < math.inf:
            return 0.0, math.inf
        return max(0.0, lower), max(upper, TINY)

    # ------------------------------------------------------------------- planning

    def _plan(self) -> tuple[float, float, float] | None:
        """Finds the ends of the integral along the cut, and its rough value, for planning."""
        m, t = self.m, self.steps
        top = math.exp(0.5 * m * m - 1.0) / m**2
        # the bulk's saddle point, and no farther than psi stays away from 0
        c = min(self.k1 / math.expm1(m * m) * 1.5, 0.9 * top, 60.0 / (t * self.k1) * 20.0)
        r = c * np.exp(-0.5 * np.arange(0.0, 160.0))
        r = r[r * t * (1.0 + self.k1) > 1e-8]
        z = saddle(m, r)
        r, z = r[z < 30.0], z[z < 30.0]
        if r.size < 2 or not 0 < c < math.inf:
            return None
        beta = np.exp(-0.5 * z * z + z / m) / np.sqrt(np.maximum(m * z - 1.0, 0.3))
        logs = log_transform(m, -r + 0j, np.full(r.size, math.pi)).value.real
        height = t * (logs - r * self.k1)
        part = np.exp(height) * np.sin(np.minimum(t * beta, 1.0)) / r
        rough = np.cumsum(part[::-1])[::-1] * 0.5 / math.pi / t
        vertical = np.exp(height) / (2.0 * r * t)
        # the least c whose vertical line does not matter, else the one where it matters least
        total = float(np.max(part)) * 0.5 / math.pi / t
        enough = np.flatnonzero(vertical <= 0.01 * _AIM * total)
        at = int(enough[-1]) if enough.size else int(np.argmin(vertical))
        total = float(rough[at])
        if not 0 < total < math.inf:
            return None
        bounds = [self._near_zero(float(one)) for one in r[at:]]
        low = [one for one, bound in zip(r[at:], bounds, strict=True) if bound <= _AIM * total]
        return min(float(low[0]) if low else float(r[-1]), 0.5 * float(r[at])), float(r[at]), total

    # ------------------------------------------------------------- along the cut

    def _along(self, low: float, c: float, rough: float) -> tuple[float, float]:
        """Computes the integral over [low, c] by Gauss and Legendre in ln r, with its error."""
        factor = 1.0 / (math.pi * self.steps)
        count = max(2, math.ceil(math.log(c / low) / (2.0 * _HALF)) + 1)
        edges = np.linspace(math.log(low), math.log(c), count)
        x, weight, missed = _panels(self._most, edges, math.log(_AIM * rough / factor))
        value, error = self._integrand(np.exp(x))
        # a weight is off by 64 units, the sum adds them in any order
        error = error + np.abs(value) * UNIT * (80.0 + x.size)
        off = outwards(float(np.sum(weight * error))) + missed
        return float(np.sum(weight * value)) * factor, off * factor * (1 + 1e-9)

    def _integrand(self, r: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Computes Im[psi(-r - i0)^t] e^(-r t K) / r and a bound of its error."""
        t, k1 = self.steps, self.k1
        logs = log_transform(self.m, -r + 0j, np.full(r.size, math.pi))
        beta, beta_error = discontinuity(self.m, r)
        log = logs.value.real  # ln |psi| - r
        share = np.minimum(beta * np.exp(-log - r), 1.0)
        share_error = beta_error + logs.error + UNIT * (30.0 + 4.0 * (np.abs(log) + r))
        turn = t * np.arcsin(share)
        size = np.exp(t * log - t * r * k1) / r
        value = size * np.sin(turn)
        # arcsin has a slope of at most 1.2 up to 0.55. It is arg psi if psi is to the right of 0
        # guard: allocation-right-half
        right = np.abs(logs.value.imag) + logs.error < 1.5
        known = right & (share < 0.5) & (share_error < 0.1)
        turn_error = np.where(known, 1.2 * turn * (share_error + 8 * UNIT), math.inf)
        relative = t * logs.error + t * r * self.slack
        # the node: d / d ln r of the exponent, of beta (z / m at most) and of the turn
        z = saddle(self.m, r)
        moved = 2.0 * t * (r * k1 + np.abs(log)) + 4.0 * z / self.m + 4.0
        # ln r is off by 64 units, and by the rounding of itself
        moved = (64.0 + 2.0 * np.abs(np.log(r))) * moved
        moved = moved * np.maximum(1.0, turn)
        relative = relative + UNIT * (8.0 * t * (np.abs(log) + r * k1) + moved + 40.0)
        error = np.abs(value) * np.expm1(np.minimum(relative, 700.0)) * 1.01
        error = error + size * np.minimum(turn_error, 2.0) * np.exp(np.minimum(relative, 700.0))
        return value, error

    def _most(self, centre: float, half: float) -> float:
        """Computes an upper bound of ln |integrand| in the ellipse around a panel in ln r.

        At a complex r both continuations psi(r e^(+-i pi)) are bounded, and their difference is
        2 i beta(r): |psi_+^t - psi_-^t| / 2 <= t |beta| max |psi|^(t - 1).
        """
        m, t = self.m, self.steps
        wide, high = 0.5 * half * (_RHO + 1 / _RHO), 0.5 * half * (_RHO - 1 / _RHO)
        least, most = math.exp(centre - wide), math.exp(centre + wide)
        beta = _log_beta_most(m, least, most, math.exp(centre), high)
        psi = max(0.0, (t - 1) * self._psi_most(most, math.pi + high))
        real = least * math.cos(high)
        if psi > _CRUDE:
            x = centre + half * _ELLIPSE
            angle = np.concatenate([math.pi + x.imag, math.pi - x.imag])
            size = np.exp(np.tile(x.real, 2))
            # on the ellipse, points are half a spacing from the nearest one, at most
            reach = 0.5 * _SPACED * half * size * 1.1
            bound = self._psi_near(size * np.exp(1j * angle), angle, reach)
            each = (t - 1) * bound - t * self.k1 * (
                np.tile(np.exp(x.real) * np.cos(x.imag), 2) - reach
            )
            psi = min(psi, float(np.max(each)) + t * self.k1 * real)
        log = math.log(t) + beta + psi - t * self.k1 * real
        return log - math.log(least) + 1e-6

    def _psi_near(self, s: ComplexArray, angle: FloatArray, reach: FloatArray) -> FloatArray:
        """Computes upper bounds of ln |psi e^s| at all points within ``reach`` of each s."""
        m = self.m
        logs = log_transform(m, s, angle)
        size = np.abs(s) + reach
        turned = np.maximum(angle + np.arcsin(np.minimum(reach / np.abs(s), 1.0)), 0.5 * math.pi)
        grown = np.exp(0.5 * ((turned - 0.5 * math.pi) / m) ** 2)
        # |d/ds (psi e^s)| = |psi' + psi| |e^s|, and |psi' + 1| <= |s| E[W^2] grown, |psi - 1| too
        slope = size * (math.exp(m * m) + 1.0) * grown
        log = logs.value.real + logs.error - s.real
        # and |psi'| <= grown itself, which is closer where |s| is large
        one = np.log(np.exp(log + s.real) + reach * slope * np.exp(s.real + reach))
        other = np.logaddexp(log, np.log(reach * grown + 1e-300)) + s.real + reach
        return np.asarray(np.minimum(one, other) + 1e-9)

    def _psi_most(self, r: float, angle: float) -> float:
        """Computes an upper bound of ln |psi(s) e^s| for |s| <= r, pi / 2 <= |arg s| <= angle."""
        m = self.m
        grown = math.exp(0.5 * ((angle - 0.5 * math.pi) / m) ** 2) * (1 + 1e-9)
        x = r * grown  # |psi - 1| is at most this
        if x > 0.5:
            return 0.5 * ((angle - 0.5 * math.pi) / m) ** 2 + 1e-9 + r
        return (0.5 * r * r * math.exp(m * m) * grown + x * x) * (1 + 1e-9)

    # -------------------------------------------------------------------- the rest

    def _near_zero(self, low: float) -> float:
        """Bounds the integral over [0, low] by moments of W.

        |beta(r)| <= r^n E[W^n] / n! e^(pi^2 / (8 m^2)) for every n, the remainder of a Taylor
        polynomial with real values.
        """
        m, t = self.m, self.steps
        n = np.arange(2.0, 400.0)
        log = 0.5 * m * m * n * (n - 1.0) + math.pi**2 / (8.0 * m * m)
        log = log - np.cumsum(np.log(n)) + (n - 1.0) * math.log(low) - np.log(n - 1.0)
        psi = max(0.0, (t - 1) * self._psi_most(low, math.pi))
        most = math.exp(min(float(np.min(log)) + psi, 700.0))
        return most / math.pi * (1 + 1e-9)  # guard: allocation-near-zero

    # ------------------------------------------------------- across the cut, upwards

    def _falls(self, c: float, w: FloatArray) -> FloatArray:
        """Computes upper bounds of ln |psi e^s| at all points of Re s = -c above each w > 0.

        With the path at Im z = -omega / m, |psi(s)| <= e^(omega^2 / (2 m^2)) psi(x) for
        x = Re(s e^(-i omega)) = w sin omega - c cos omega > 0 and 0 < omega < pi / 2; less at
        larger w.
        """
        m = self.m
        s = -c + 1j * w
        theta = np.angle(s)
        share = np.array([0.0005, 0.002, 0.008, 0.025, 0.08, 0.2, 0.35, 0.5, 0.7])
        past = theta - 0.5 * math.pi
        omega = past + np.multiply.outer(share, math.pi - theta)
        # for many steps the best one is m^2 |s|, where psi is e^(-|s| cos(theta - omega))
        best = np.clip(m * m * np.abs(s), past + 1e-3 * (math.pi - theta), 1.5)
        omega = np.vstack([omega, best])
        x = w * np.sin(omega) - c * np.cos(omega)
        x -= 1e-15 * (w * np.sin(omega) + abs(c))
        tail = 0.5 * (omega / m) ** 2 + np.log(
            upper_transform(m, np.maximum(x.ravel(), 0.0)).reshape(x.shape)
        )
        return np.asarray(
            np.min(np.where((x > 0) & (omega > 0), tail, math.inf), axis=0) - c + 1e-12
        )

    def _vertical(self, c: float) -> float:
        """Bounds the integral on the line Re s = -c by the largest modulus of psi there."""
        t = self.steps
        w = np.concatenate([[0.0], np.geomspace(0.05 * c, 50.0 * max(c, 1.0), 60)])
        s = -c + 1j * w
        reach = 0.5 * np.append(np.diff(w), 0.0)
        reach = np.maximum(reach, np.append(0.0, reach[:-1]))
        near = self._psi_near(s, np.where(w > 0, np.angle(s), math.pi), reach)
        crude = np.array([self._psi_most(float(r), math.pi) for r in np.abs(s) + reach])
        near = np.minimum(near, crude)
        tail = np.append(math.inf, self._falls(c, w[1:]))
        log = t * float(np.min(np.maximum(np.maximum.accumulate(near), tail)))
        log = log - c * t * (self.k1 - self.slack) - math.log(2.0 * c * t)
        return math.exp(min(log, 700.0)) * (1 + 1e-9)  # guard: allocation-vertical

    def _across(self, c: float, rough: float) -> tuple[float, float]:
        """Computes the integral from -c upwards, off the cut, with its error."""
        return self._path(-c, rough)

    def _path(self, start: float, rough: float) -> tuple[float, float]:
        """Computes Im 1/(pi t) int psi^t e^(s t K) / s^2 ds from a real start to infinity.

        The path is the vertical line, or, where a few steps let psi^t fall too slowly for that, a
        ray to the left, along which e^(s t K) falls: |psi| <= e^((arg s - pi / 2)^2 / (2 m^2)).
        """
        t, k1, m = self.steps, self.k1, self.m
        factor = 1.0 / (math.pi * t)
        aim = math.log(_AIM * rough / factor)
        scale = abs(start)
        w = np.geomspace(scale, 1e4 * max(scale, 1.0 / (t * (1.0 + k1)), 1.0), 120)
        turn = 0.5 * math.pi + (_BENT if t <= _FEW * m * m else 0.0)
        along = complex(math.cos(turn), math.sin(turn)) if t <= _FEW * m * m else 1j
        s = start + along * w
        if along == 1j:
            rest = t * self._falls(-start, w) + start * t * k1 - np.log(w)
            rest = rest + scale * t * self.slack
        else:
            most = np.maximum(np.angle(s), turn) - 0.5 * math.pi
            fall = t * (1.0 + k1 - self.slack) * (1 - 1e-12)
            rest = 0.5 * t * (most / m) ** 2 - 2.0 * np.log(s.imag) - math.log(-along.real * fall)
            rest = rest + np.where(s.real < 0, fall, t * (1.0 + k1 + self.slack)) * s.real + 1e-6
        enough = np.flatnonzero(rest <= aim)
        at = int(enough[0]) if enough.size else int(np.argmin(rest))
        if not rest[at] < 700.0:
            return 0.0, math.inf
        last = float(w[at])
        # a panel is as long as it is far from s = 0
        edges = scale * 2.0 ** np.arange(0.0, max(math.ceil(math.log2(last / scale)), 1))
        edges = np.concatenate([[0.0], edges[edges < last * (1 - 1e-9)], [last]])
        most_on = functools.partial(self._most_across, start, along)
        x, weight, missed = _panels(most_on, edges, aim)
        s = start + along * x
        logs = log_transform(m, s, np.abs(np.angle(s)))
        log = t * (logs.value + s * k1)
        term = np.exp(log) / (s * s) * along
        size = np.abs(term) * weight
        each = t * (logs.error + np.abs(s) * self.slack)
        # as on a line to the right; the nodes are off by 64 units, times the exponent's slope
        each = each + UNIT * (
            x.size + 200.0 + 80.0 * (t * np.abs(logs.value) + t * np.abs(s) * abs(k1))
        )
        off = outwards(float(np.sum(size * relative_error(each)))) + missed
        off += math.exp(rest[at]) * (1 + 1e-9)
        return float(np.sum(term.imag * weight)) * factor, off * factor * (1 + 1e-9)

    def _most_across(self, start: float, along: complex, centre: float, half: float) -> float:
        """Computes an upper bound of ln |integrand| in the ellipse around a panel of the path."""
        t, k1 = self.steps, self.k1
        x = centre + half * np.concatenate([_ELLIPSE, _ELLIPSE.conj()])
        s = start + along * x
        reach = np.full(s.shape, 0.5 * _SPACED * half * 1.1)
        # the ellipse has to stay away from s = 0 and, begun on the cut, on its own side of 0
        least = abs(start) if along == 1j else abs(start) * math.sin(_BENT)
        if centre - half < abs(start) and half * 1.7 > least + max(centre - half, 0.0):
            return math.inf
        if start > 0:
            angle = np.abs(np.angle(s))
        else:
            angle = np.where(s.imag >= 0, np.angle(s), 2.0 * math.pi + np.angle(s))
            if np.any((s.imag < 0) & (s.real > 0)):
                return math.inf
        bound = self._psi_near(s, angle, reach)
        exponent = t * k1 * s.real + t * (abs(k1) + self.slack) * reach
        log = t * bound + exponent - 2.0 * np.log(np.abs(s) - reach)
        return float(np.max(log)) + 1e-6

    def shortfall(self, start: float) -> tuple[float, float]:
        """Bounds E_Q[(K - R)+] by a path that begins at ``start`` > 0."""
        log = float(log_transform(self.m, np.array([start + 0j])).value.real[0])
        log = self.steps * (log + self.k1 * start) - math.log(start * self.steps)
        if not abs(log) < 690.0:
            return 0.0, math.inf
        value, error = self._path(start, 0.1 * math.exp(log))
        if not error < math.inf:
            return 0.0, math.inf
        return max(0.0, value - error), max(value + error, TINY)


def _panels(
    most: Callable[[float, float], float], edges: FloatArray, aim: float
) -> tuple[FloatArray, FloatArray, float]:
    """Computes nodes and weights of Gauss and Legendre on panels, and a bound of what they miss.

    Args:
        most: from the centre of a panel and half its length, an upper bound of ln |f| in the
            ellipse whose half-axes sum to half times _RHO, around the panel.
        edges: of the panels to begin with, ascending.
        aim: ln of the error to aim at.
    """
    count = len(edges) - 1
    todo = [(float(a), float(b), 0) for a, b in itertools.pairwise(edges)][::-1]
    aim -= math.log(count) + 1.0
    nodes: list[FloatArray] = []
    weights: list[FloatArray] = []
    missed = 0.0
    rate = 2.0 * math.log(_RHO)
    while todo:
        if _ENOUGH * (len(nodes) + len(todo)) > _MOST_IN_ALL:
            return np.ones(1), np.ones(1), math.inf
        a, b, depth = todo.pop()
        centre, length = 0.5 * (a + b), 0.5 * (b - a)
        log = most(centre, length * (1 + 1e-9)) + math.log(length * 64.0 / 15.0)
        log = math.inf if math.isnan(log) else max(log, -1e4)
        n = (log - aim) / rate + 2.0
        if n > _ENOUGH and depth < 5:
            todo += [(centre, b, depth + 1), (a, centre, depth + 1)]
            continue
        n = math.ceil(min(max(n, 4.0), _MOST_NODES))
        x, w = _legendre(n)
        nodes.append(centre + length * x)
        weights.append(length * w)
        # Trefethen, Approximation Theory and Approximation Practice, theorem 19.3
        bound = math.exp(min(log - rate * (n - 1), 700.0)) / (1.0 - _RHO**-2)
        missed += bound  # guard: allocation-panels
    return np.concatenate(nodes), np.concatenate(weights), missed * (1 + 1e-9)


@functools.cache
def _legendre(n: int) -> tuple[FloatArray, FloatArray]:
    """Computes the nodes and weights of a rule on [-1, 1], each within 64 units of 2^-53."""
    x, w = np.polynomial.legendre.leggauss(n)
    return np.asarray(x), np.asarray(w)


def shortfall_on_a_path(
    m: float, steps: int, k1: float, slack: float, start: float
) -> tuple[float, float]:
    """Bounds E_Q[(K - R)+] for K = 1 + k1, k1 known up to ``slack``, for few steps.

    (0, inf) where nothing is found. The path begins at ``start`` > 0, best a saddle point.
    """
    if steps > _FEW * m * m:
        return 0.0, math.inf
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        return _Cut(m, steps, k1, slack).shortfall(start)


def saddle(m: float, r: FloatArray) -> FloatArray:
    """Computes about the larger z with z = m r e^(m z - m^2/2), at least 1.2 / m."""
    z = np.full(r.shape, 40.0)
    for _ in range(40):
        z = np.maximum(np.log(z / (m * r)) / m + 0.5 * m, 1.2 / m)
    return z


def discontinuity(m: float, r: FloatArray, goal: float = _GOAL) -> tuple[FloatArray, FloatArray]:
    """Computes beta(r) > 0 and a bound of its relative error (inf where it is not told from 0).

    The aliasing of its sum is aimed at e^-``goal``.
    """
    z = saddle(m, r)
    a = r * np.exp(m * z - 0.5 * m * m)
    strips = np.array([0.12, 0.25, 0.4, 0.55, 0.7])
    log_most = np.stack(
        [np.logaddexp(_log_edge(m, z, a, y), _log_edge(m, z, a, -y)) for y in strips]
    )
    guess = a - 0.5 * z * z - 0.5 * np.log(2.0 * np.maximum(z / m, 1.0))
    spare = np.maximum(log_most - guess + goal, 1.0)
    h = float(np.min(np.max(2.0 * math.pi * strips[:, None] / spare, axis=0)))
    far = min(math.sqrt(float(np.max((50.0 + 6.0 / m**2) / a))), 12.0)
    h = max(h, far / _MOST_TERMS)  # where that is too wide, the error says so
    v = h * np.arange(math.ceil(far / h) + 1)
    log_1v = np.log1p(1j * v)
    point = z[:, None] + 2.0 / m * log_1v
    x = np.multiply.outer(a, (1.0 + 1j * v) ** 2) - 0.5 * point * point
    term = np.exp(x) / (1.0 + 1j * v)
    weight = np.full(v.size, 2.0 * h / (m * _ROOT))
    weight[0] *= 0.5
    beta = np.sum(term.real * weight, axis=1)
    # parts of the exponent, and A: exp of m z
    size = 20.0 * (a[:, None] * (1.0 + v * v) + np.abs(point) ** 2 + 4.0)
    size = size + (a * (20.0 + 4.0 * m * z + 4.0 * m * m))[:, None] * (1.0 + v * v) + v.size
    error = outwards(np.sum(np.abs(term) * weight * size, axis=1)) * UNIT
    reach = 2.0 * math.pi * strips[:, None] / h
    missed = np.min(np.exp(log_most - reach) / -np.expm1(-reach), axis=0)
    error = error + missed / (m * _ROOT)  # guard: allocation-parabola
    # beyond the last v the modulus falls: an integral bounds the sum, on both sides
    last = float(v[-1])
    log = a * (1.0 - last**2) + 0.5 * (math.pi / m) ** 2
    log = log - 0.5 * np.maximum(z + np.log1p(last**2) / m, 0.0) ** 2 - np.log(a * last)
    error = error + np.exp(log) / (m * _ROOT) * (1 + 1e-9)
    with np.errstate(divide="ignore", invalid="ignore"):
        return beta, np.where(beta > 2.0 * error, error / (beta - error), math.inf)


def _log_edge(m: float, z: FloatArray, a: FloatArray, y: float) -> FloatArray:
    """Computes ln of a bound of int |exp(A (1 + i v)^2 - z(v)^2/2) / (1 + i v)| on Im v = y."""
    left = 1.0 - y
    edge = np.log(left * left + _BINS * _BINS) / m + z[:, None]
    # the least |Re z(v)| of each bin; it rises with v
    near = np.where(edge[:, :-1] > 0, edge[:, :-1], np.minimum(edge[:, 1:], 0.0))
    near = np.append(near, np.maximum(edge[:, -1:], 0.0), axis=1)
    turn = 2.0 / m * np.append(np.arctan2(_BINS[1:], left), 0.5 * math.pi)
    log = np.multiply.outer(a, left * left - _BINS**2) - 0.5 * near**2 + 0.5 * turn**2
    width = np.broadcast_to(np.append(np.diff(_BINS), 0.0), log.shape).copy()
    width[:, -1] = 1.0 / (2.0 * a * _BINS[-1])  # int_V^inf e^(-A v^2) dv <= e^(-A V^2) / (2 A V)
    peak = np.max(log, axis=1)
    total = np.sum(np.exp(log - peak[:, None]) * width, axis=1)
    return np.asarray(peak + np.log(2.0 * total) - math.log(left) + 1e-6)


def _log_beta_most(m: float, least: float, most: float, near: float, high: float) -> float:
    """Computes an upper bound of ln |beta(r)| for least <= |r| <= most, |arg r| <= high.

    The path of w turns by -arg r, so that A stays real; Im z then is 2 / m atan v + arg r / m.
    """
    z = float(saddle(m, np.array([near]))[0])
    w = math.exp(m * z - 0.5 * m * m)
    v = _BINS
    a = np.where(v < 1.0, most, least) * w
    edge = np.maximum(z + np.log1p(v * v) / m, 0.0)
    turn = (2.0 * np.append(np.arctan(v[1:]), 0.5 * math.pi) + high) / m
    log = a * (1.0 - v * v) - 0.5 * edge**2 + 0.5 * turn**2
    width = np.append(np.diff(v), 1.0 / (2.0 * least * w * v[-1]))
    peak = float(np.max(log))
    total = float(np.sum(np.exp(log - peak) * width))
    return peak + math.log(2.0 * total / (m * _ROOT)) + 1e-6
