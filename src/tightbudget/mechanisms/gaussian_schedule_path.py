"""The transforms of many sampled Gaussian steps at great heights, by one path of y for all steps.

``gaussian_schedule`` has y, S and the density that tells the steps apart. The density of a removed
record has the integral 1, and with it S - 1 = e^y has the mean q / (1 - q). So with z = 1 + s

    M(s) = (1 - q)^z (1 + z q / (1 - q) + V),
    V = integral of phi(x(y)) / m (S^z - 1 - z (S - 1)) dy,

whose terms are of second order where S is close to 1: small rates lose no digits. At s = c + i t
the integrand turns with t ln S along the real axis. On the path Im y = b, 0 < b < pi / 2, the
argument of S lies between 0 and b, so that |S^(i t)| = e^(-t arg S) falls with t: one rule of some
hundred nodes serves all t, and all steps, and a line is a product of two matrices.

- *The rule.* On every line Im y = b', 0 <= b' <= 2 b < pi, the modulus of the integrand is at most
  e^(b'^2 / (2 m^2)) phi (S^(1 + c) + 1 + |z| e^y), of which the integral is e^(b'^2 / (2 m^2))
  times M(c) (1 - q)^-(1 + c) + 1 + |z| q / (1 - q) = N. So the rule is off by
  2 e^(2 b^2 / m^2) N / (e^(2 pi b / h) - 1) at most.
- *Nodes.* Where |z ln S| < 1/2 the exponential is its power series, whose coefficients are moments
  of ln S. Where |S^z| is below e^-50 it is left out. In between it is taken as it stands; as the
  heights of a line double, that is a window of nodes which moves to the left.
- *Logarithms.* Any branch of ln M will do, since M enters with a whole number of runs. So some
  values are multiplied up, by (1 + a) (1 + b) = 1 + (a + b + a b), and have one logarithm.

The errors are counted with room to spare: smoothed lines want few digits (docs/explanation/
contour.md). A line that ends in "pays: name" pays for what docs/explanation/rounding.md says under
that name.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from tightbudget.mechanisms.gaussian_integrand import MOST_NESTED
from tightbudget.mechanisms.gaussian_path import log_less
from tightbudget.mechanisms.gaussian_schedule_nodes import DENSITY_0, RANGE, Steps, ln_s
from tightbudget.numerics.rounding import (
    EXP,
    LOG,
    LOG1P,
    TURN,
    UNIT,
    BoolArray,
    FloatArray,
    outwards,
)
from tightbudget.pairs.transform import ComplexArray, Line

# -ln of what the rule may be off, beside the factors that it multiplies
_GOAL = 62.0
_REACH = 12.25  # of x beyond the largest terms: phi is e^-75 there
# The highest path, in units of the least m: e^(b^2 / (2 m^2)) = 2 is what the moduli grow by
_HIGHEST = 1.25
_MOST = 5_000_000  # weights, 160 MB with their moduli and errors
_MOST_EXPONENT = 600.0  # of |S^z|
_STEP_BITS = 12  # of h: every node is a double
_SMALL, _POWERS = 0.5, 20  # |z ln S| of the power series, and its length: 0.5^20 / 20! < 1e-24
_GONE = 50.0  # nats below 1 where |S^z| is left out
_CHUNK = 4096  # heights at a time: some hundred exponentials of each, 8 MiB
_BLOCK = 2**19  # values of all steps at a time, 8 MiB
_DOUBLED = 3  # products of 2^3 steps have one logarithm
# Values below _NEAR are multiplied up without their 1: eight of 1 + v are together at least
# 0.75^8 > _LEAST
_NEAR, _LEAST = 0.25, 0.1
# A relative error from which on nothing is said
_VAGUE = 0.05
# The relative error of ln S and of z ln S, in units: e^y, the argument of log1p, its terms, the
# argument of S; both products, and the sums of the parts
_OF_POWER = EXP + LOG1P + 2.0 * TURN + 14.0
# ... and of S - 1: e^y, the cosine or sine, their product, the product with z
_OF_EXCESS = EXP + TURN + 6.0


@dataclass(frozen=True)
class _SharedPath:
    """The weights of n steps at the b nodes of a rule on Im y = height.

    Attributes:
        height: the imaginary part.
        h: the distance of two nodes.
        y: (b,) the real parts.
        log_s: (b,) ln S.
        v: (b,) S - 1.
        less: (b,) ln S - (S - 1).
        less_error: (b,) how far ``less`` may be off.
        x: (2, n) the real part of x at the first and at the last node.
        weight: (n, b) h phi(x) / m.
        size: (n, b) its modulus.
        wrong: (n, b) how far it may be off.
    """

    height: float
    h: float
    y: FloatArray
    log_s: ComplexArray
    v: ComplexArray
    less: ComplexArray
    less_error: FloatArray
    x: FloatArray
    weight: ComplexArray
    size: FloatArray
    wrong: FloatArray


def _path(steps: Steps, c: float) -> _SharedPath | None:
    """Returns the path of a line Re s = c; None where it would be too long."""
    m, odds = steps.m, steps.odds
    least = float(m.min())
    height = min(_HIGHEST * least, 0.49 * math.pi)
    h = 2.0 * math.pi * height / (_GOAL + 2.0 * (height / least) ** 2)
    scale = 2.0 ** (_STEP_BITS - math.frexp(h)[1])
    h = math.floor(h * scale) / scale
    # phi S^(1 + c) peaks at x = (1 + c) m, at most
    ends = m * (-_REACH - 0.5 * m) + odds, m * ((0.5 + c) * m + _REACH) + odds
    first, last = math.floor(float(np.min(ends[0])) / h), math.ceil(float(np.max(ends[1])) / h)
    if m.size * (last - first + 1.0) > _MOST or (1.0 + c) * max(last * h, 1.0) > _MOST_EXPONENT:
        return None
    y = h * np.arange(first, last + 1, dtype=np.float64)
    # ln S is y + i b more than ln(1 + e^-(y + i b)): neither logarithm has terms that cancel
    fall = np.exp(-np.abs(y))
    modulus = np.asarray(0.5 * np.log1p(fall * (2.0 * math.cos(height) + fall)))
    angle = np.arctan2(
        np.exp(np.minimum(y, 0.0)) * math.sin(height),
        np.exp(-np.maximum(y, 0.0)) + np.exp(np.minimum(y, 0.0)) * math.cos(height),
    )
    x = (y - odds[:, None]) / m[:, None] + 0.5 * m[:, None]
    up = (height / m)[:, None]
    base = np.log(h * DENSITY_0 / m)[:, None]
    log_size, phase = base - 0.5 * (x - up) * (x + up), -x * up
    size = np.exp(log_size)
    # x: a moves it by da / m; y - a, the quotient (m twice) and the sum by 4 |x| + 5/2 m units
    moved = (steps.odds_error / m + 2.5 * UNIT * m)[:, None] + 4.0 * UNIT * np.abs(x)
    # the height over m by two units; products, squares and sums of the exponent
    made = 4.0 * x * x + 6.0 * up * up + 4.0 * np.abs(x) * up
    # h phi(0) / m and its logarithm; two exponentials, their products
    made = made + (LOG + 6.0) * (1.0 + np.abs(base)) + 2.0 * EXP + 2.0 * TURN + 6.0
    off = 1.01 * ((np.abs(x) + up) * moved + made * UNIT)  # pays: far-weight
    if not float(np.max(off)) < 1e-3:
        return None
    log_s = np.maximum(y, 0.0) + modulus + 1j * angle
    v = np.exp(y) * complex(math.cos(height), math.sin(height))
    less, less_error = log_less(v, log_s, _OF_POWER * UNIT * np.abs(log_s))
    # d (ln S - v) = -v / S dv, where |S| >= 1
    less_error = less_error + _OF_EXCESS * UNIT * np.minimum(np.abs(v) ** 2, np.abs(v))
    return _SharedPath(
        height, h, y, log_s, v, less, less_error, x[:, [0, -1]].T,
        size * np.exp(1j * phase), size, size * off,
    )  # fmt: skip


def line(steps: Steps, c: float, t: FloatArray, log_upper: float) -> Line | None:
    """ln M of all steps together at c + i t, or None where it says nothing.

    Args:
        steps: sampled Gaussian steps of a removed record, without an end.
        c: the real part, > 0.
        t: (k,) the imaginary parts, ascending, >= 0.
        log_upper: an upper bound of ln M(c).
    """
    path = _path(steps, c)
    if path is None or not log_upper < 300.0:
        return None
    fixed = _fixed(path, steps, c, float(t[-1]), log_upper)
    log, error = np.zeros_like(t, dtype=np.complex128), np.zeros_like(t)
    start = 0
    while start < t.size:
        # within a chunk |z| at most doubles, so that the window of nodes is narrow
        stop = int(np.searchsorted(t, 2.0 * max(float(t[start]), c + 1.0), side="right"))
        part = slice(start, min(max(stop, start + 1), start + _CHUNK))
        found = _sums(path, steps, c, t[part], fixed)
        if found is None:
            return None
        log[part], error[part] = found
        start = part.stop
    # (1 - q)^z, for all steps at once
    rest = float(steps.count @ steps.log_rest)
    log += rest * ((1.0 + c) + 1j * t)
    off = float(steps.count @ steps.log_rest_error) + (steps.m.size + 6.0) * UNIT * abs(rest)
    error += (1.0 + c + t) * off  # pays: far-rest
    return Line(log, outwards(error + np.abs(log) * UNIT))


def _fixed(path: _SharedPath, steps: Steps, c: float, t: float, log_upper: float) -> FloatArray:
    """Bounds the errors of V up to the height ``t`` by the rule's step and ends. Shape (n,)."""
    m, power, size = steps.m, 1.0 + c, 1.0 + c + t
    decay = 2.0 * math.pi * path.height / path.h
    # each ln M(c) is 0 or more, so that one of them, as often as it runs, is at most their sum
    whole = np.exp(log_upper / steps.count - power * steps.log_rest) + 1.0
    whole = whole + size * steps.q / (1.0 - steps.q)
    # Trefethen, Weideman 2014, Theorem 5.1
    grown = np.exp(2.0 * (path.height / m) ** 2 - decay)
    aliased = 2.0 * whole * grown / -math.expm1(-decay)  # guard: far-rule
    # to the left of the nodes phi falls, and the rest; to their right phi falls by x h / m from
    # one to the next, and the rest rises by max(1 + c, 1) h at most
    ends = np.exp(power * ln_s(path.y[[0, -1]])) + 1.0 + size * np.abs(path.v[[0, -1]])
    falls = np.stack([-path.x[0] / m, path.x[1] / m - power]) * path.h
    # a weight that underflows is below 1e-300
    outer = (path.size[:, [0, -1]].T + 1e-300) / np.expm1(np.minimum(falls, RANGE))
    left, right = outer * ends[:, None]
    ends_off = left + right  # guard: far-ends
    return np.asarray(1.01 * (aliased + ends_off))


def _sums(
    path: _SharedPath, steps: Steps, c: float, t: FloatArray, fixed: FloatArray
) -> tuple[ComplexArray, FloatArray] | None:
    """The sum of ln(1 + z q / (1 - q) + V) over all steps and runs at c + i t, and its error.

    None where some of these is not told from 0. ``fixed`` is what V may be off at any height.
    """
    z = (1.0 + c) + 1j * t
    most, n = float(1.0 + c + t[-1]), path.y.size
    power, excess = most * np.abs(path.log_s), most * np.abs(path.v)
    falls = (1.0 + c) * path.log_s.real - float(t[0]) * path.log_s.imag
    small, gone = _kinds(power, falls)
    window = ~(small | gone)
    if not float(np.max(power)) * _OF_POWER * UNIT < 0.125:
        return None
    # the largest modulus of S^z - 1 - z (S - 1) at a node, and how many units it is off: where
    # |w| < 1/2, w = z ln S, e^w - 1 - w is below 0.7 |w|^2, its derivative below 1.3 |w|, and the
    # power series loses 16 units of |w|^2
    near = most * np.abs(path.less) + 0.7 * power**2
    near_off = (1.3 * _OF_POWER + 16.0) * power**2
    # in the window |e^w| is largest at the least height: e^d <= 1.2, e^d - 1 <= 1.1 d up to 1/8
    grown = np.where(window, np.exp(np.where(window, falls, 0.0)), 0.0)
    far_off = 1.1 * power * _OF_POWER * grown + (EXP + TURN + 4.0) * (grown + 1.0)
    size = np.where(small, near, grown + 1.0 + excess)
    off = np.where(small, near_off, far_off + excess * _OF_EXCESS)
    # a product of matrices adds complex products in any order
    off = np.asarray(UNIT * (off + (3.0 * n + 60.0) * size))  # pays: far-nodes
    off[small] += most * path.less_error[small]
    off[gone] += 1.2 * np.exp(falls[gone])  # guard: far-gone
    odds = steps.q / (1.0 - steps.q)
    mean_off = UNIT * (MOST_NESTED / (1.0 - steps.q) + 8.0) * most * odds  # pays: far-mean
    # a weight that underflows is below 1e-300
    error = fixed + path.wrong @ size + path.size @ off + mean_off + 1e-300 * float(np.sum(size))
    factorials = np.array([math.factorial(p) for p in range(1, _POWERS + 1)], dtype=np.float64)
    powers = np.cumprod(np.repeat(path.log_s[small, None], _POWERS, axis=1), axis=1)
    powers[:, 0] = path.less[small]
    series = path.weight[:, small] @ (powers / factorials)
    left = np.concatenate([series, path.weight[:, window]], axis=1)
    z_powers = np.cumprod(np.repeat(z[None, :], _POWERS, axis=0), axis=0)
    right = np.concatenate([z_powers, _terms(path, window, c, t)])
    constant = -np.sum(path.weight[:, gone], axis=1)
    lever = odds - path.weight[:, gone] @ path.v[gone]
    log, wrong, reach, terms = np.zeros_like(z), np.zeros_like(t), np.zeros_like(t), 0
    rows = max(1, _BLOCK // t.size)
    for start in range(0, steps.m.size, rows):
        part = slice(start, start + rows)
        value = left[part] @ right
        value += constant[part, None] + np.multiply.outer(lever[part], z)
        most_of, least_of = np.max(np.abs(value), axis=1), np.min(np.abs(1.0 + value), axis=1)
        share = error[part] / np.maximum(least_of, 1e-300)
        if not float(np.max(share)) < _VAGUE:
            return None
        runs, near_1 = steps.count[part], most_of < _NEAR
        # -ln(1 - d) <= 1.03 d up to _VAGUE; the rest is for the roundings of an error itself
        wrong += 1.1 * float(runs @ share)  # guard: far-value
        for count, close in itertools.product(np.unique(runs).tolist(), (True, False)):
            alike = (runs == count) & (near_1 == close)
            if not alike.any():
                continue
            if close:
                logs, made = _logs_of_small(value[alike], most_of[alike])
            else:
                logs, made = _logs_of_large(value[alike])
            log += count * np.sum(logs, axis=0)
            terms += len(logs)
            lengths = np.sum(np.abs(logs.real) + np.abs(logs.imag), axis=0)
            # the logarithm and the argument; the sum, and its product with the count
            rounded = (max(LOG, LOG1P) + TURN + 4.0 + len(logs)) * lengths
            wrong += count * (made + rounded * UNIT)  # pays: far-log
            reach += count * lengths
    # no partial sum is larger than the sum of all lengths
    return log, outwards(wrong + (terms + 2.0) * UNIT * reach)


def _kinds(power: FloatArray, falls: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Which nodes have a power series of S^z, and at which S^z is left out.

    Args:
        power: (b,) at least |z ln S|.
        falls: (b,) ln |S^z|, at most.
    """
    small = power < _SMALL
    return small, ~small & (falls < -_GONE)


def _logs_of_small(value: ComplexArray, most: FloatArray) -> tuple[ComplexArray, float]:
    """ln of products of some of 1 + ``value``, and how far they may be off but for ln's rounding.

    Args:
        value: (n, k) at n steps and k heights.
        most: (n,) the largest modulus of each step, at most _NEAR.

    Returns:
        An array of shape (p, k), p <= n, and the sum of p errors.
    """
    units = 0.0
    for _ in range(_DOUBLED):
        half = len(value) // 2
        a, b, rest = slice(0, half), slice(half, 2 * half), slice(2 * half, None)
        # (1 + a) (1 + b) is 1 more than a + b + a b
        product = value[a] + value[b]
        product += value[a] * value[b]
        value = np.concatenate([product, value[rest]])
        joined = most[a] + most[b] + most[a] * most[b]
        # a complex product, and two sums, relative to |1 + v|
        units += float(np.sum(5.0 * joined / np.maximum(1.0 - joined, _LEAST)))
        most = np.append(joined, most[rest])
    size = 2.0 * value.real + value.real**2 + value.imag**2
    # its three terms and their sums, of which a half is divided by |1 + v|^2; the sum 1 + v turns
    least = np.maximum(1.0 - most, _LEAST)
    units += float(np.sum((4.0 * most + 2.0 * most * most) / least**2 + most / least))
    logs: ComplexArray = 0.5 * np.log1p(size) + 1j * np.arctan2(value.imag, 1.0 + value.real)
    return logs, 1.01 * UNIT * units  # pays: far-small


def _logs_of_large(value: ComplexArray) -> tuple[ComplexArray, float]:
    """ln of products of some of 1 + ``value``, as :func:`_logs_of_small` does."""
    steps, value = len(value), 1.0 + value
    for _ in range(_DOUBLED):
        half = len(value) // 2
        value = np.concatenate([value[:half] * value[half : 2 * half], value[2 * half :]])
    logs = np.log(np.abs(value)) + 1j * np.arctan2(value.imag, value.real)
    # the sum with 1 and a complex product, of each step; the modulus
    return logs, (4.0 * steps + TURN * len(value)) * UNIT  # pays: far-large


def _terms(path: _SharedPath, window: BoolArray, c: float, t: FloatArray) -> ComplexArray:
    """S^z - 1 - z (S - 1) at the nodes of a window for z = 1 + c + i t: shape (nodes, heights)."""
    log_s = path.log_s[window, None]
    grown = np.exp((1.0 + c) * log_s.real - log_s.imag * t)
    turn = (1.0 + c) * log_s.imag + log_s.real * t
    value = np.empty(grown.shape, dtype=np.complex128)
    np.multiply(grown, np.cos(turn), out=value.real)
    np.multiply(grown, np.sin(turn), out=value.imag)
    value.real -= 1.0
    value -= np.multiply.outer(path.v[window], (1.0 + c) + 1j * t)
    return value
