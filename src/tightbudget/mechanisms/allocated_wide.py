"""E[(R - K)+] of one epoch of random allocation with wide noise, with W cut at a far quantile.

With W = 0 in place of e^(m z - m^2/2) where z > b, every exponential moment exists, and the excess
is an integral over a line to the left of 0: for every c > 0,

    E[(R - K)+] = 1/(2 pi i t) int_(-c - i inf)^(-c + i inf) psi(s)^t e^(s t K) / s^2 ds.

The cut lowers E[(R - K)+], by E[W; z > b] = P(N > b - m) at most, which is below 1e-64 for the
first b. The errors of a line are bounded by psi at many other points: b is the same at all of them.
The cut suits noise so wide that a single large W does not decide: for narrow noise the line loses
digits, and :mod:`tightbudget.mechanisms.allocated_tails` has them.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from tightbudget.mechanisms.allocated_transform import (
    ComplexArray,
    Logs,
    exp_less,
    log_of,
    relative_error,
    upper_transform,
)
from tightbudget.numerics.rounding import TINY, UNIT, FloatArray, outwards
from tightbudget.numerics.special import half_square_exp, log_normal_tail

# b - m: P(N > 17) is 4e-65, a share of 1e-14 of a delta of 1e-50; the other ones let a line lie
# farther to the left, which a large delta of few steps needs
_FAR = (17.0, 13.0, 9.5)
_EDGE_BITS = 11  # b is a multiple of 2^-11, so that b and a rule's nodes below it are doubles
_SPACING = 0.125  # ln of the ratio of neighbouring abscissas of the table
_SHARE = 1e-12  # of the value, for the aliasing and for the end of a line
_GOAL = 38.0  # -ln of the aliasing of a rule in z that is aimed at, relative to g(-c)
_MOST_POINTS = 500
_CLOSE = 1e-9  # relative width that is not made closer


def excess_of_cut_ratios(m: float, steps: int, k1: float, slack: float) -> tuple[float, float]:
    """Bounds E_Q[(R - K)+] for K = 1 + k1 > 1, k1 known up to ``slack``.

    (0, inf) where nothing is found.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        lower, upper = 0.0, math.inf
        for far in _FAR:
            found = _CutRatio.of(m, steps, far).excess(k1, slack)
            lower, upper = max(lower, found[0]), min(upper, found[1])
            if upper - lower <= _CLOSE * lower:
                break
        return lower, upper


@dataclass(frozen=True)
class _CutRatio:
    """The ratios of one mechanism, cut, with bounds of t (ln psi(-c) - c) at many abscissas c."""

    m: float
    steps: int
    far: float
    c: FloatArray
    most: FloatArray

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def of(m: float, steps: int, far: float) -> _CutRatio:
        """Makes the table of one mechanism."""
        top = 600.0 / math.exp(m * _cut_of(m, far) - 0.5 * m * m)
        c = np.exp(np.arange(math.log(top) - 20.0, math.log(top), _SPACING))
        parts = [_log_transform(m, far, -part + 0j) for part in np.array_split(c, 8)]
        most = np.concatenate([part.value.real + part.error for part in parts])
        most = np.where(np.isnan(most), math.inf, most)
        return _CutRatio(m, steps, far, c, steps * most * (1 + 2 * UNIT * np.sign(most)))

    def excess(self, k1: float, slack: float) -> tuple[float, float]:
        """Bounds E_Q[(R - K)+] by the line through the saddle point."""
        t = self.steps
        near = k1 - slack
        height = self.most - self.c * t * near
        index = int(np.argmin(height - 2.0 * np.log(self.c)))
        c = float(self.c[index])
        log = float(height[index])
        bend = self._bend(index)
        guess = log - math.log(c * t) - 0.5 * math.log1p(bend)
        if not abs(guess) < 600.0:
            return 0.0, math.inf
        d = 0.5 / (c * t)
        for _ in range(200):
            if self._aliased(c, d, near) <= _SHARE * math.exp(guess):
                break
            d *= 1.1
        step = 2.0 * math.pi / (d * t)
        scale = 2.0 ** (20 - math.frexp(step)[1])
        step = math.floor(step * scale) / scale  # few bits: every n D is a double
        d = 2.0 * math.pi / (step * t)
        counts = np.unique(np.geomspace(8, _MOST_POINTS, 30).astype(int))
        last = step * (counts - 1.0)
        end = t * self._falls(c, last) - c * t * near - np.log(last) - math.log(math.pi * t)
        enough = np.flatnonzero(end <= guess + math.log(_SHARE))
        at = int(enough[0]) if enough.size else counts.size - 1
        s = -c + 1j * step * np.arange(counts[at])
        logs = _log_transform(self.m, self.far, s)
        x = t * (logs.value + s * k1)
        term = np.exp(x) / (s * s)
        weight = np.full(s.size, step / (math.pi * t))
        weight[0] *= 0.5
        each = t * (logs.error + np.abs(s) * slack) + UNIT * (
            s.size + 60.0 + 12.0 * t * (np.abs(logs.value) + np.abs(s) * k1)
        )
        size = np.abs(term) * weight
        off = outwards(float(np.sum(size * relative_error(each))))
        off += math.exp(min(float(end[at]), 700.0)) * (1 + 1e-9)  # guard: allocation-wide-end
        value = float(np.sum(term.real * weight))
        more = self._aliased(c, d, near)
        if not off + more < math.inf:
            return 0.0, math.inf
        upper = value + off + _lost(self.far)
        return max(0.0, value - off - more), max(upper, TINY)

    def _bend(self, index: int) -> float:
        """Computes about c^2 times the second derivative of t ln psi, >= 0."""
        i = min(max(index, 1), self.c.size - 2)
        c, log = self.c[i - 1 : i + 2], self.most[i - 1 : i + 2]
        found = float(2.0 * c[1] ** 2 * np.polyfit(c - c[1], log, 2)[0])
        return max(found, 0.0) if math.isfinite(found) else 0.0

    def _aliased(self, c: float, d: float, k1: float) -> float:
        """Bounds the sums of E[(R - K - n d)+] e^(c t n d) over n >= 1 and over n <= -1.

        For every b > 0, E[(R - K)+] <= psi(-b)^t e^(-b t K) / (e b t); and E[(R - K + n d)+] is at
        most 1 + n d for n >= 1.
        """
        t, b = self.steps, self.c
        ratio = np.minimum(-np.abs(b - c) * t * d, -1e-300)
        log = self.most - b * t * k1 - 1.0 - np.log(t * b) + ratio
        sums = np.exp(np.minimum(log, 700.0)) / -np.expm1(ratio)
        above, below = b > c * (1 + 1e-9), b < c * (1 - 1e-9)
        q = math.exp(-min(c * t * d, 700.0))
        plain = q / (1 - q) + d * q / (1 - q) ** 2
        right = float(np.min(sums[above], initial=math.inf))
        left = min(plain, float(np.min(sums[below], initial=math.inf)))
        return (right + left) * (1 + 1e-6)  # guard: allocation-wide-aliasing

    def _falls(self, c: float, w: FloatArray) -> FloatArray:
        """Computes upper bounds of ln |psi e^s| on Re s = -c at all heights above each w.

        The path of z goes along Im z = -alpha to b and up to b itself: with omega = m alpha and
        x = w sin omega - c cos omega > 0 the first part is at most e^(alpha^2/2) psi(x) of the
        ratio that is not cut, the second one alpha phi(b) e^(alpha^2/2 + c W(b)).
        """
        m, far = self.m, self.far
        b = _cut_of(m, far)
        top = math.exp(m * b - 0.5 * m * m) * (1 + 1e-9)
        share = np.array([0.25, 0.5, 0.75, 1.0, 1.25])
        omega = np.minimum(np.multiply.outer(share, m * m * np.hypot(c, w)), 1.4)
        x = (w * np.sin(omega) - c * np.cos(omega)) - 1e-15 * (w + c)
        grown = np.exp(0.5 * (omega / m) ** 2)
        first = upper_transform(m, np.maximum(x, 0.0).ravel()).reshape(x.shape)
        other = omega / m * math.exp(-0.5 * b * b + min(c * top, 700.0)) + math.exp(-0.5 * b * b)
        log = np.log((first + other) * grown) + 1e-12
        return np.asarray(np.min(np.where(x > 0, log, math.inf), axis=0) - c)


def _cut_of(m: float, far: float) -> float:
    """Computes b, above which W counts as 0: at least m + ``far``, the same one for every s."""
    scale = 2.0**_EDGE_BITS
    return math.ceil((m + far) * scale + 1.0) / scale


def _lost(far: float) -> float:
    """Bounds E[W; z > m + far] = P(N > far)."""
    return float(np.exp(log_normal_tail(np.array([far])))[0]) * (1 + 1e-9)


def _log_transform(m: float, far: float, s: ComplexArray) -> Logs:
    """Computes ln psi(s) + s of the cut ratio at points with Re s < 0, Im s >= 0.

    The nodes of the trapezoidal sum are b - h / 2, b - 3 h / 2, and so on. Beside the aliasing it
    misses what the integrand has on Re z = b: int_0^a |f(b +- i y)| e^(-2 pi y / h) dy.
    """
    c, height, size = -s.real, s.imag, np.abs(s)
    a = np.multiply.outer(np.array([0.15, 0.3, 0.6, 1.0, 1.6, 2.4]), np.full(s.shape, 1.0))
    a = np.minimum(a, 1.5 / m)
    grown = c * np.cos(m * a) + height * np.sin(m * a)
    b = _cut_of(m, far)
    edges = np.linspace(-40.0, b, 250)
    mass = np.append(np.exp(log_normal_tail(-edges[:1])), _masses(edges))
    w_bin = np.exp(m * edges - 0.5 * m * m) * (1 + 1e-9)
    # |e^v - 1 - v| <= |v|^2 / 2 e^(max(0, Re v)); a bin counts with its right edge
    with np.errstate(over="ignore"):
        total = np.exp(np.multiply.outer(np.maximum(grown, 0.0), w_bin)) @ (mass * w_bin**2)
    log_most = 0.5 * a * a + np.log(0.5 * size**2 * total * (1 + 1e-6))
    # the aim is relative to g(-c), which is the largest value on the line
    wanted = (
        np.log(0.5 * size**2 * (np.exp(np.multiply.outer(c, w_bin)) @ (mass * w_bin**2))) - _GOAL
    )
    h = float(np.min(np.max(2.0 * math.pi * a / np.maximum(log_most - wanted, 1.0), axis=0)))
    h = max(math.floor(h * 1024.0), 20) / 1024.0
    z = b - h * (np.arange(math.ceil((b + 9.5) / h), -1.0, -1.0) + 0.5)
    w = np.exp(m * z - 0.5 * m * m)
    weight = h / math.sqrt(2.0 * math.pi) * half_square_exp(np.asarray(z, dtype=np.float64))
    u = np.multiply.outer(s, w)
    less = exp_less(u)
    g = less @ weight
    mod = np.abs(u)
    argument = 200.0 + 4.0 * m * np.abs(z) + 4.0 * m * m
    swell = np.exp(np.maximum(-u.real, 0.0))
    each = np.abs(less) * (z.size + 100.0) + mod * np.minimum(mod, 2.0) * swell * argument
    each = each + mod * mod * swell * 4.0  # direct e^-u - 1 + u loses units of |u|
    error = outwards(each @ weight) * UNIT
    reach = 2.0 * math.pi * a / h
    # guard: allocation-wide-rule
    missed = 2.0 * np.exp(log_most - reach) / -np.expm1(-reach)
    # on Re z = b: phi(b) e^(a^2/2) (e^(grown W) + 1 + |s| W), times h / (2 pi), twice
    top = math.exp(m * b - 0.5 * m * m) * (1 + 1e-9)
    log_edge = -0.5 * b * b + 0.5 * a * a + (c + height * np.sin(m * a)) * top
    # guard: allocation-wide-edge
    missed = missed + h * (2.0 + size * top) * np.exp(log_edge)
    error = error + np.min(missed, axis=0) * (1 + 1e-6)
    # to the left of the nodes |u|^2 / 2 phi rises towards 2 m, and Re -u is at most c W < c
    left = _lost(-float(z[0])) * math.exp(2.0 * m * float(z[0]) - m * m)
    error = error + 0.5 * size**2 * left * np.exp(c) * 4.0 + size * _lost(far)
    return log_of(s, g, error)


def _masses(edges: FloatArray) -> FloatArray:
    """Computes upper bounds of the normal masses of bins with these edges."""
    tail = np.exp(log_normal_tail(np.abs(edges)))
    inner = np.abs(np.diff(tail)) + 1e-12 * np.maximum(tail[1:], tail[:-1])
    return np.where((edges[:-1] < 0) & (edges[1:] > 0), 1.0, inner)
