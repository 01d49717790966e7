"""The transform of a sampled Gaussian step on a path of x above the real axis: few nodes, any t.

For a removed record M(s) is the integral of phi R^z, z = 1 + s, with
R(x) = 1 - q + q e^(m x - m^2/2) (``gaussian_integrand``). At s = c + i t the integrand turns with
t ln R along the real axis, and a rule needs a number of nodes proportional to t. On the path
Im x = a, 0 < m a < pi / 2, the argument of R lies between 0 and m a, so that
|R^(i t)| = e^(-t arg R) falls with t, and one rule serves all t. Since R has mean 1 without the
record,

    M(s) - 1 = integral of phi (R^z - 1 - z (R - 1)) over the path,

whose terms are of second order in R - 1: no digits are lost where R is close to 1. On every line
Im x = b, 0 <= b <= 2 a with 2 m a < pi, the modulus of the integrand is at most
e^(b^2 / 2) phi (R^(1 + c) + 1 + |z| (R + 1)), of which the integral is
e^(b^2 / 2) (M(c) + 1 + 2 |z|). So one rule of some hundred nodes serves all t, with the error
2 N / (e^(2 pi a / h) - 1) for N = e^(2 a^2) (M(c) + 1 + 2 |z|). There is no bound if |R| falls
below 2^-20 on the path, for a q that close to 1: ln R has too few digits there.

The errors are those of :mod:`.gaussian_integrand`, counted with room to spare: the lines that ask
here want six digits of M^k, not twelve (docs/explanation/contour.md).
A line that ends in "pays: name" pays for what docs/explanation/rounding.md says under that name.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from tightbudget.mechanisms.gaussian_integrand import MOST_NESTED
from tightbudget.numerics.rounding import (
    EXP,
    EXPM1,
    LOG,
    LOG1P,
    TURN,
    UNIT,
    FloatArray,
    outwards,
)
from tightbudget.pairs.transform import ComplexArray, Line

# -ln of what the rule may be off, beside the factors that it multiplies: e^-62 = 1e-27 is 1e-18 of
# the answer after 10^9 runs
_GOAL = 62.0
_REACH = (
    12.25  # of the nodes beyond the largest terms: phi is e^-75 there, and grows by powers of R
)
# The highest path: e^(a^2/2) = 2 is what the moduli of the terms grow by, a third of a digit; a
# path at 2 would have half the nodes and lose a digit
_HIGHEST = 1.25
_MOST_AXIS = 300_000  # nodes of log_moment, some 20 ms
_MOST_NODES = 20_000  # of a path; beyond it lines say nothing
_MOST_EXPONENT = 600.0  # of e^y: e^709 leaves the range of doubles
_SMALL = 0.5  # |z ln R| up to which the exponential is summed as a power series
_POWERS = 20  # of that series: 0.5^20 / 20! < 1e-24, below a unit of its first term
_LEAST_RATIO = 2.0**-20  # of |R|: an error of 2^-47 in it is 2^-27 of its logarithm
_CHUNK = 2**17  # exponentials at a time: arrays of 2 MiB


@dataclass(frozen=True)
class _Path:
    """The ingredients at the nodes x of a rule on Im x = a: arrays have the shape (n,).

    Attributes:
        phase: the argument of h phi(x + i a).
        log_size: ln |h phi(x + i a)|.
        size: |h phi(x + i a)|.
        weight: h phi(x + i a).
        weight_error: the relative error of ``weight``, and of ``size``.
        v: R - 1.
        v_error: how far ``v`` may be off.
        log_r: ln R.
        log_r_error: how far ``log_r`` may be off.
        less: ln R - (R - 1).
        less_error: how far ``less`` may be off.
    """

    a: float
    h: float
    x: FloatArray
    phase: FloatArray
    log_size: FloatArray
    size: FloatArray
    weight: ComplexArray
    weight_error: FloatArray
    v: ComplexArray
    v_error: FloatArray
    log_r: ComplexArray
    log_r_error: FloatArray
    less: ComplexArray
    less_error: FloatArray


@functools.lru_cache(maxsize=64)  # a schedule's pairs of one question; it decides on time only
def _path(m: float, q: float, end: int) -> _Path | None:
    """The path for all c with max(c + 1, 1) m <= ``end``; None where it would be too long."""
    a = min(_HIGHEST, 0.49 * math.pi / m)
    h = 2.0 * math.pi * a / (_GOAL + 2.0 * a * a)
    h = math.ldexp(math.floor(math.ldexp(h, 12)), -12) if h > 2.0**-8 else 0.0
    if not h or (end + 2.0 * _REACH) / h > _MOST_NODES:
        return None
    if m * (end + _REACH) > _MOST_EXPONENT:
        return None
    # h has few bits: every node is a double
    x = h * np.arange(math.floor(-_REACH / h), math.ceil((end + _REACH) / h) + 1, dtype=np.float64)
    base = math.log(h / math.sqrt(2.0 * math.pi))
    phase, log_size = -a * x, base + 0.5 * (a - x) * (a + x)
    size = np.exp(log_size)
    weight = np.asarray(size * np.exp(1j * phase))
    # h / sqrt(2 pi) by four units and its logarithm; (a - x)(a + x) / 2 by three roundings, the
    # sum, a x; two exponentials and two products
    weight_error = LOG * abs(base) + 4.0 + 4.0 * (a * a + x * x) + a * np.abs(x)
    weight_error = (weight_error + 2.0 * EXP + TURN + 4.0) * UNIT  # pays: path-weight
    v, v_error = _excess(m, q, a, x)
    found = _logarithm(v, v_error)
    if found is None:
        return None
    log_r, log_r_error, less, less_error = found
    return _Path(
        a, h, x, phase, log_size, size, weight, outwards(weight_error), v, outwards(v_error), log_r,
        outwards(log_r_error), less, outwards(2.0 * less_error),
    )  # fmt: skip


def _excess(m: float, q: float, a: float, x: FloatArray) -> tuple[ComplexArray, FloatArray]:
    """R - 1 at the nodes x + i a, and how far it may be off."""
    # y = b + i turn
    b, turn = m * (x - 0.5 * m), m * a
    rise = np.exp(b)
    real = np.expm1(b) * math.cos(turn) - 2.0 * math.sin(0.5 * turn) ** 2
    v: ComplexArray = np.asarray(q * (real + 1j * (rise * math.sin(turn))))
    # m by a rounding, and both products: b moves by three units and by m^2 / 2, the turn by two.
    # The parts of e^y - 1 by their functions, products and sum; q by MOST_NESTED roundings, and
    # the last product
    parts = np.abs(np.expm1(b)) + 2.0 * math.sin(0.5 * turn) ** 2 + rise * math.sin(turn)
    v_error = parts * (max(EXPM1 + TURN, EXP + TURN, 2.0 * TURN + 2.0) + MOST_NESTED + 5.0)
    v_error = v_error + rise * (3.0 * np.abs(b) + 0.5 * m * m + 2.0 * turn)
    return v, q * UNIT * v_error  # pays: path-excess


def _logarithm(
    v: ComplexArray, v_error: FloatArray
) -> tuple[ComplexArray, FloatArray, ComplexArray, FloatArray] | None:
    """ln R and ln R - (R - 1), each with how far it may be off, from v = R - 1 up to ``v_error``.

    None where R is too close to 0 at some node.
    """
    # |R| >= 1 - q and >= |q e^y|, since both parts of R are at an angle of at most a right one
    modulus = np.abs(1.0 + v)
    # q near 1 and a record far away: ln R has lost its digits, and the first order below its truth
    if not float(np.min(modulus)) > _LEAST_RATIO:
        return None
    log_modulus = 0.5 * np.log1p(2.0 * v.real + v.real**2 + v.imag**2)
    angle = np.arctan2(v.imag, 1.0 + v.real)
    log_r = log_modulus + 1j * angle
    # d ln R = dv / R, and its second order is far below a thousandth of that; the argument of log1p
    # is off by four units of 2 |v| + |v|^2, and half of it counts
    spread = 2.0 * (2.0 * np.abs(v) + np.abs(v) ** 2) / modulus**2
    made = spread + (LOG1P + 1.0) * np.abs(log_modulus) + (TURN + 2.0) * angle
    log_r_error = 1.001 * (v_error / modulus + made * UNIT)  # pays: path-log
    less, less_error = log_less(v, log_r, log_r_error)
    # d (ln R - v) = -v / R dv
    return log_r, log_r_error, less, np.abs(v) / modulus * v_error + less_error


def log_less(
    v: ComplexArray, log: ComplexArray, log_error: FloatArray
) -> tuple[ComplexArray, FloatArray]:
    """ln(1 + v) - v, and how far it may be off for v itself; ``log`` is ln(1 + v)."""
    small = np.abs(v) < 0.25
    near = np.where(small, v, 0.0)
    series = np.zeros_like(near)
    for n in range(30, 1, -1):  # 0.25^29 / 31 < 2^-60: what is left out is below a unit
        series = (-1.0) ** (n + 1) / n + near * series
    # Horner's rule by 4 units of each sum, which converges by quarters
    summed = 16.0 * np.abs(v) ** 2 * UNIT  # pays: path-series
    plain = log_error + (np.abs(v) + np.abs(log)) * UNIT  # pays: path-less
    return np.where(small, near * near * series, log - v), np.where(small, summed, plain)


def line(m: float, q: float, c: float, t: FloatArray, log_upper: float) -> Line | None:
    """ln M at c + i t for a removed record and ascending t >= 0, or None where it says nothing.

    Args:
        m: sensitivity / sigma of the step.
        q: the sampling rate, in (0, 1).
        c: the real part, > 0.
        t: (n,) the imaginary parts.
        log_upper: an upper bound of ln M(c).
    """
    path = _path(m, q, math.ceil(max(1.0, (c + 1.0) * m)))
    if path is None or not log_upper < 300.0:
        return None
    value, error = np.zeros_like(t, dtype=np.complex128), np.zeros_like(t)
    start = 0
    while start < t.size:
        # within a chunk |z| at most doubles, so that the power series takes most small nodes
        stop = int(np.searchsorted(t, 2.0 * max(float(t[start]), c + 1.0), side="right"))
        stop = min(max(stop, start + 1), start + max(1, _CHUNK // path.x.size))
        value[start:stop], error[start:stop] = _values(path, c, t[start:stop])
        start = stop
    z = 1.0 + c + t  # >= |z|
    error = outwards(error) + _ends(path, m, q, c, z)
    # On each line Im x = b, 0 <= b <= 2 a, |phi| = phi(x) e^(b^2/2) and |R^z| <= R(x)^(1 + c), of
    # which the integrals are e^(b^2/2) and M(c); R has mean 1. Source: Trefethen, Weideman 2014,
    # Theorem 5.1
    whole = math.exp(log_upper) + 1.0 + 2.0 * z
    decay = 2.0 * math.pi * path.a / path.h
    aliased = 2.0 * whole * math.exp(2.0 * path.a**2 - decay) / -math.expm1(-decay)
    error = error + outwards(aliased)  # guard: path-rule
    size = np.abs(1.0 + value)
    lost = size <= 2.0 * error
    known = np.where(lost, 1.0, size)
    close = np.abs(value) < 0.5
    near = np.where(close, value, 0.0)
    near_log = 0.5 * np.log1p(2.0 * near.real + near.real**2 + near.imag**2)
    modulus = np.where(close, near_log, np.log(known))
    angle = np.arctan2(value.imag, 1.0 + value.real)
    rounded = 6.0 * np.abs(value) / known + (LOG + LOG1P) * np.abs(modulus)
    rounded = rounded + np.where(close, 0.0, TURN + 2.0) + (TURN + 2.0) * np.abs(angle)
    rounded = rounded * UNIT  # pays: path-value
    rounded = rounded - np.log1p(-np.where(lost, 0.0, error / known))
    # where M is not told from 0, |M| <= 3 error, and |M^k - B^k| <= B^k (3^k - 1) for B = 3 error
    log = np.where(lost, np.log(3.0 * error + 1e-300), modulus + 1j * angle)
    return Line(log, outwards(np.where(lost, math.log(3.0), 2.0 * rounded)))


def _values(path: _Path, c: float, t: FloatArray) -> tuple[ComplexArray, FloatArray]:
    """M - 1 at c + i t by the nodes of a path, and a bound of the error of the sum."""
    z = (1.0 + c) + 1j * t
    size = np.abs(z)
    n = path.x.size
    # each sum adds halves to each other: two roundings for each halving, and a dozen operations
    # that make a term
    order = path.weight_error + (2.0 * n.bit_length() + 14.0) * UNIT  # pays: path-order
    small = np.abs(path.log_r) * float(size[-1]) < _SMALL
    # nodes near R = 1: e^w - 1 - w for w = z ln R, by the moments of ln R
    log_r, weight = path.log_r[small], path.weight[small]
    value: ComplexArray = np.zeros_like(z)
    factor: ComplexArray = np.asarray(z, dtype=np.complex128)
    powers: ComplexArray = np.asarray(weight * log_r, dtype=np.complex128)
    for i in range(2, _POWERS):
        powers, factor = powers * log_r, np.asarray(factor * z / i, dtype=np.complex128)
        value += factor * _total(powers)
    # a term of degree i by 8 i units of itself, all together below 16 units of |w|^2; the terms
    # left out are below a unit. |e^w - 1 - w| < 0.7 |w|^2, and |e^w - 1| < 1.3 |w| for |w| < 1/2
    each = order[small] + 16.0 * UNIT  # pays: path-squares
    squares = path.size[small] * np.abs(log_r) ** 2 * each
    moved = path.size[small] * np.abs(log_r) * path.log_r_error[small]
    error = size**2 * (0.7 * float(np.sum(squares)) + 1.3 * float(np.sum(moved)))
    value += z * _total(weight * path.less[small])
    lost = path.less_error[small] + np.abs(path.less[small]) * order[small]
    error = error + size * float(np.sum(path.size[small] * lost))
    # the others: e^w - 1 - z v as it stands
    large = ~small
    log_r, weight, v = path.log_r[large], path.weight[large], path.v[large]
    if log_r.size:
        # h phi e^w as one exponential: either factor alone may leave the range of doubles
        turned = np.multiply.outer(z, log_r)
        turned += path.log_size[large] + 1j * path.phase[large]
        turned = np.exp(turned)
        moduli = np.abs(turned)
        value += _total(turned) - _total(weight) - z * _total(weight * v)
        own, relative = path.size[large], order[large]
        slack = path.log_r_error[large] + 4.0 * UNIT * np.abs(log_r)  # pays: path-power
        # e^w by |w| of its relative error, the sum with the weight's exponent, exp, cos, sin;
        # e^d - 1 <= 1.1 d up to 1/8
        if float(size[-1]) * float(np.max(slack)) > 0.125:
            return value, np.full_like(t, math.inf)
        added = np.abs(path.log_size[large]) + np.abs(path.phase[large]) + EXP + TURN
        plain = moduli @ (relative + added * UNIT)  # pays: path-turn
        error = error + 1.1 * (plain + size * (moduli @ slack))
        error = error + float(np.sum(own * relative))
        fixed = own * (path.v_error[large] + np.abs(v) * relative)
        error = error + size * float(np.sum(fixed))
    return value, error


def _total(x: ComplexArray) -> ComplexArray:
    """The sums along the last axis, by adding halves to each other."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        rest = x[..., 2 * half :]
        x = x[..., :half] + x[..., half : 2 * half]
        if rest.shape[-1]:
            x[..., 0] += rest[..., 0]
    return np.asarray(x[..., 0] if x.shape[-1] else np.zeros(x.shape[:-1], dtype=np.complex128))


def _ends(path: _Path, m: float, q: float, c: float, z: FloatArray) -> FloatArray:
    """An upper bound of the sum over the nodes beyond both ends of a path, for each |z| in ``z``.

    There |R(x + i a)| <= R(x), and the terms are at most e^(a^2/2) phi (R^(1 + c) + 1 + z (R + 1)).
    """
    first, last, power = -float(path.x[0]), float(path.x[-1]), 1.0 + c
    y = m * (last - 0.5 * m)
    log_r = math.log1p(-q + q * math.exp(y)) if y < 30.0 else y + math.log(q + math.exp(-y))
    # right: R^(1 + c) grows by e^((1 + c) m h) per node at most, and phi falls by e^(-x h)
    falling = math.expm1(path.h * (last - power * m))
    height = power * log_r - 0.5 * last**2
    grown = math.exp(log_r - 0.5 * last**2)
    right = (math.exp(height) + math.exp(-0.5 * last**2) + 2.0 * z * grown) / falling
    # left: R <= 1
    left = (2.0 + 2.0 * z) * math.exp(-0.5 * first**2) / math.expm1(path.h * first)
    lift = path.h * math.exp(0.5 * path.a**2)
    # guard: path-ends
    return outwards(2.0 * lift * (left + right))


def log_moment(m: float, q: float, remove: bool, c: float) -> tuple[float, float]:
    """Lower and upper bound of ln M(c) of a sampled Gaussian step, c > 0, where M may be huge.

    All terms of the rule on the real axis are positive, so that their logarithms are added up: no
    order is too large. (-inf, inf) where a rule would have too many nodes.

    Args:
        m: sensitivity / sigma of the step.
        q: the sampling rate, in (0, 1).
        remove: whether P is the side that has the record.
        c: the order of the Renyi divergence minus one.
    """
    power = 1.0 + c if remove else -c
    widths = np.geomspace(0.01, 0.95, 30) * math.pi / m
    # on Im x = a the moduli are those on the axis times e^(a^2/2), and for a negative power at
    # most cos(m a / 2)^power: |R(x + i a)| lies between R(x) cos(m a / 2) and R(x)
    grown = 0.5 * widths**2 + min(power, 0.0) * np.log(np.cos(0.5 * m * widths))
    steps = 2.0 * math.pi * widths / (grown + 42.0)
    best = int(np.argmax(steps))
    a, h = float(widths[best]), float(steps[best])
    h = math.ldexp(math.floor(math.ldexp(h, 12)), -12)
    reach = 10.0
    # phi R^power is largest between 0 and m power; beyond, its slope is at least the distance
    low, high = min(0.0, power * m) - reach, max(0.0, power * m) + reach
    if not h > 0.0 or (high - low) / h > _MOST_AXIS:
        return -math.inf, math.inf
    x = h * np.arange(math.floor(low / h), math.ceil(high / h) + 1, dtype=np.float64)
    y = m * (x - 0.5 * m)
    log_q, log_rest = math.log(q), math.log1p(-q)
    log_r = np.where(
        y > 30.0, np.logaddexp(log_q + y, log_rest), np.log1p(q * np.expm1(np.minimum(y, 30.0)))
    )
    terms = power * log_r - 0.5 * x * x
    top = float(np.max(terms))
    total = float(np.sum(np.exp(terms - top)))
    log = top + math.log(total) + math.log(h / math.sqrt(2.0 * math.pi))
    # Each exponent, where its term counts, with a factor of two to spare: m and y by four units of
    # |y| + m^2; q by MOST_NESTED, and the functions, of |R - 1| / R, which is at most the pull and
    # q / (1 - q) together; ln R; x^2 / 2 and the sums. A term
    # below e^-60 of the largest may be off by a factor of e
    pull = np.exp(np.minimum(log_q + y - log_r, 0.0))  # d ln R / dy
    sizes = pull * (4.0 * (np.abs(y) + m * m) + 1.0) + 12.0 * np.abs(log_r)
    sizes = sizes + (MOST_NESTED + 16.0) * (pull + q / (1.0 - q))
    sizes = sizes + np.where(y > 30.0, LOG * (abs(log_q) + np.abs(y)), 0.0)
    sizes = 2.0 * abs(power) * sizes + 4.0 * x * x + 4.0 * abs(top)
    off = float(np.max(np.where(terms > top - 60.0, sizes, 0.0))) * UNIT  # pays: moment-terms
    if not float(np.max(sizes)) * UNIT < 1.0:
        return -math.inf, math.inf
    summed = x.size + 4.0 * LOG * (abs(math.log(total)) + 8.0) + EXP + 2.0 * abs(log)
    off += summed * UNIT  # pays: moment-sum
    # aliasing, relative to M; then the nodes at both ends, which are below e^-50 of the largest
    # term each and fall by e^(-10 h) from one to the next; and the terms below e^-60
    alias = 2.0 * math.exp(float(grown[best]) - 2.0 * math.pi * a / h)
    ends = 4.0 * (math.exp(float(terms[0]) - top) + math.exp(float(terms[-1]) - top))
    rest = alias + ends / math.expm1(h * (reach - 1.0)) / total + x.size * math.exp(-55.0) / total
    if not rest < 1e-3:
        return -math.inf, math.inf
    off = outwards(off + 2.0 * rest)
    return log - off, log + off
