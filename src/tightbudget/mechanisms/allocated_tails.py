"""The call of one epoch of random allocation far out on the right, without cancellation.

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

import math
from dataclasses import dataclass

import numpy as np

from tightbudget.mechanisms.allocated_transform import ComplexArray, log_transform, upper_transform
from tightbudget.numerics.rounding import TINY, UNIT, FloatArray, outwards

__all__ = ["call_beside_cut"]

_ROOT = math.sqrt(2.0 * math.pi)
# Edges of the bins that bound an integral over v; the rest beyond the last one has a closed bound.
_BINS = np.concatenate([np.arange(0.0, 2.0, 0.05), np.geomspace(2.0, 12.0, 30)])
# Aims, relative to the call: they decide about widths, the bounds are computed.
_AIM = 1e-13
# Half the length of a panel in ln r, and the sum of the half-axes of the ellipse around [-1, 1]
# in which the integrand is bounded: there |Im ln r| <= 0.94 < pi / 2.
_HALF, _RHO = 0.7, 3.0
_MOST_NODES = 160


def call_beside_cut(m: float, steps: int, k1: float, slack: float) -> tuple[float, float]:
    """Bounds E_Q[(R - K)+] for K = 1 + k1 > 1, k1 known up to ``slack``.

    (0, inf) where nothing is found.
    """
    cut = _Cut(m, steps, k1, slack)
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        return cut.call()


@dataclass(frozen=True)
class _Cut:
    """Both integrals for one K."""

    m: float
    steps: int
    k1: float
    slack: float

    def call(self) -> tuple[float, float]:
        """Bounds E_Q[(R - K)+]."""
        found = self._plan()
        if found is None:
            return 0.0, math.inf
        low, c, rough = found
        value, error = self._along(low, c, rough)
        rest = self._near_zero(low) + self._vertical(c)
        lower, upper = value - error - rest, value + error + rest
        if not upper < math.inf:
            return 0.0, math.inf
        return max(0.0, lower), max(upper, TINY)

    # ------------------------------------------------------------------- planning

    def _plan(self) -> tuple[float, float, float] | None:
        """Finds the ends of the integral along the cut, and about its value; no bound rests on it."""
        m, t = self.m, self.steps
        top = math.exp(0.5 * m * m - 1.0) / m**2
        # the bulk's saddle point, and no farther than psi stays away from 0
        c = min(self.k1 / math.expm1(m * m) * 1.5, 0.9 * top, 60.0 / (t * self.k1) * 20.0)
        r = c * np.exp(-0.5 * np.arange(0.0, 160.0))
        r = r[r * t * (1.0 + self.k1) > 1e-8]
        z = saddle(m, r)
        r, z = r[z < 30.0], z[z < 30.0]
        if r.size < 2:
            return None
        beta = np.exp(-0.5 * z * z + z / m) / np.sqrt(np.maximum(m * z - 1.0, 0.3))
        logs = log_transform(m, -r + 0j, np.full(r.size, math.pi)).value.real
        height = t * (logs - r * self.k1)
        part = np.exp(height) * np.sin(np.minimum(t * beta, 1.0)) / r
        rough = np.cumsum(part[::-1])[::-1] * 0.5 / math.pi / t
        vertical = np.exp(height) / (2.0 * r * t)
        # the least c whose vertical line does not matter, else the one where it matters least
        total = np.max(part) * 0.5 / math.pi / t
        enough = np.flatnonzero(vertical <= 0.01 * _AIM * total)
        at = int(enough[-1]) if enough.size else int(np.argmin(vertical))
        total = float(rough[at])
        if not total > 0:
            return None
        bounds = [self._near_zero(float(one)) for one in r[at:]]
        low = [one for one, bound in zip(r[at:], bounds, strict=True) if bound <= _AIM * total]
        return (float(low[0]) if low else float(r[-1])), float(r[at]), total

    # ------------------------------------------------------------- along the cut

    def _along(self, low: float, c: float, rough: float) -> tuple[float, float]:
        """Computes the integral over [low, c] by Gauss and Legendre in ln r, with its error."""
        t = self.steps
        length = math.log(c / low)
        panels = max(1, math.ceil(length / (2.0 * _HALF)))
        half = 0.5 * length / panels
        centre = math.log(low) + half * (2.0 * np.arange(panels) + 1.0)
        aim = math.log(_AIM * rough * math.pi * t / panels)
        log_most = np.array([self._most(float(x), half) for x in centre])
        rate = 2.0 * math.log(_RHO)
        counts = np.ceil((log_most + math.log(half * 64.0 / 15.0) - aim) / rate) + 2
        counts = np.clip(np.where(np.isfinite(counts), counts, _MOST_NODES), 4, _MOST_NODES)
        u, weights = [], []
        missed = 0.0
        for x, n, most in zip(centre, counts.astype(int), log_most, strict=True):
            nodes, w = np.polynomial.legendre.leggauss(n)
            u.append(x + half * nodes)
            weights.append(half * w)
            # Trefethen, Approximation Theory and Approximation Practice, theorem 19.3
            bound = 64.0 / 15.0 * math.exp(min(most - rate * (n - 1), 700.0))
            missed += half * bound / (1.0 - _RHO**-2)  # guard: allocation-panels
        r, weight = np.exp(np.concatenate(u)), np.concatenate(weights)
        value, error = self._integrand(r)
        # a node and its weight are off by 64 units each: d ln(integrand) / d ln r is paid there
        factor = 1.0 / (math.pi * t)
        total = float(np.sum(weight * value)) * factor
        error = error + np.abs(value) * UNIT * (80.0 + r.size)
        off = outwards(float(np.sum(weight * error))) * factor
        return total, off + missed * factor * (1 + 1e-9)

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
        # arcsin has a slope of at most 1.2 up to 1/2
        turn_error = np.where(share < 0.5, 1.2 * turn * (share_error + 8 * UNIT), math.inf)
        relative = t * logs.error + t * r * self.slack
        # the node: d / d ln r of the exponent, of beta (z / m at most) and of the turn
        z = saddle(self.m, r)
        moved = 64.0 * (2.0 * t * (r * k1 + np.abs(log)) + 4.0 * z / self.m + 4.0)
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
        beta = _beta_most(m, least, most, math.exp(centre), high)
        psi = max(0.0, (t - 1) * self._psi_most(most, math.pi + high))
        real = least * math.cos(high)
        log = math.log(t) + math.log(max(beta, 1e-300)) + psi - t * self.k1 * real
        return log - math.log(least) + 1e-6

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
        return math.exp(min(float(np.min(log)) + psi, 700.0)) / math.pi * (1 + 1e-9)  # guard: allocation-near-zero

    def _vertical(self, c: float) -> float:
        """Bounds the integral on the line Re s = -c."""
        m, t = self.m, self.steps
        w = np.concatenate([[0.0], np.geomspace(0.02 * c, 50.0 * max(c, 1.0), 80)])
        s = -c + 1j * w
        # beyond the point i psi falls: moved by omega, |psi(s)| <= e^(omega^2 / (2 m^2)) psi(x)
        theta = np.angle(s)
        omega = theta - 0.5 * math.pi + np.multiply.outer(
            np.array([0.1, 0.2, 0.4, 0.6]), math.pi - theta
        )
        least = np.minimum(np.cos(theta - omega), np.sin(omega))
        x = np.abs(s) * np.maximum(least, 0.0) * (1 - 1e-9)
        tail = 0.5 * (omega / m) ** 2 + np.log(upper_transform(m, x.ravel()).reshape(x.shape))
        tail = np.min(np.where(least > 0, tail, math.inf), axis=0) - c
        logs = log_transform(m, s, theta)
        # between points |psi e^s| moves by at most |s| (E[W^2] + 1) e^(alpha^2/2) e^-c
        steps = np.diff(w)
        grown = np.exp(0.5 * (np.maximum(theta - 0.5 * math.pi, 0.0) / m) ** 2)
        lip = np.abs(s[1:]) * (math.exp(m * m) + 1.0) * grown[:-1] * math.exp(-c)
        size = np.exp(logs.value.real + logs.error)
        ends = np.maximum(size[:-1], size[1:])
        between = np.log(ends + 0.5 * steps * lip)
        so_far = np.maximum.accumulate(np.append(-math.inf, between))
        log = t * (float(np.min(np.maximum(so_far, tail))) + 1e-9)
        log = log - c * t * (self.k1 - self.slack) - math.log(2.0 * c * t)
        return math.exp(min(log, 700.0)) * (1 + 1e-9)  # guard: allocation-vertical


def saddle(m: float, r: FloatArray) -> FloatArray:
    """Computes about the larger z with z = m r e^(m z - m^2/2), at least 1.2 / m."""
    z = np.full(r.shape, 40.0)
    for _ in range(40):
        z = np.maximum(np.log(z / (m * r)) / m + 0.5 * m, 1.2 / m)
    return z


def discontinuity(m: float, r: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Computes beta(r) > 0 and a bound of its relative error (inf where it is not told from 0)."""
    z = saddle(m, r)
    a = r * np.exp(m * z - 0.5 * m * m)
    strips = np.array([0.12, 0.25, 0.4, 0.55, 0.7])
    log_most = np.stack([np.logaddexp(_log_edge(m, z, a, y), _log_edge(m, z, a, -y)) for y in strips])
    guess = a - 0.5 * z * z - 0.5 * np.log(2.0 * np.maximum(z / m, 1.0))
    spare = np.maximum(log_most - guess + 36.0, 1.0)
    h = float(np.min(np.max(2.0 * math.pi * strips[:, None] / spare, axis=0)))
    far = min(math.sqrt(float(np.max((50.0 + 6.0 / m**2) / a))), 12.0)
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
    size = size + (a * (20.0 + 4.0 * m * z + m * m))[:, None] * (1.0 + v * v) + v.size
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


def _beta_most(m: float, least: float, most: float, near: float, high: float) -> float:
    """Computes an upper bound of |beta(r)| for least <= |r| <= most, |arg r| <= high.

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
    total = float(np.sum(np.exp(np.minimum(log, 690.0)) * width))
    return 2.0 * total / (m * _ROOT) * (1 + 1e-6)
