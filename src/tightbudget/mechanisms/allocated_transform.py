"""The Laplace transform of a Gaussian step's ratio W = e^(m z - m^2/2), with its error.

W = dP/dQ has mean 1 under Q, where z is standard normal. For a complex s

    psi(s) = E[e^(-s W)],   ln psi(s) + s = g + ln(1 + x) - x,
    g = E[e^(-s W) - 1 + s W],   x = g - s.

g is of the order of s^2, so a million steps multiply no cancellation. The expectation is a
trapezoidal sum over z on the line Im z = -alpha: there s W becomes |s| e^(i (arg s - m alpha)) W,
which oscillates less. A rule of step h misses at most 2 M / (e^(2 pi a / h) - 1) of an integrand
whose modulus has an integral of at most M on each line of the strip |Im| <= a (Trefethen, Weideman
2014, theorem 5.1). In the strip Re (s W) >= 0, and so |e^-u - 1 + u| <= min(|u|^2 / 2, 2 |u|).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.rounding import TINY, UNIT, FloatArray, outwards
from tightbudget.numerics.special import half_square_exp, log_normal_tail

# values, of any precision that a sum of complex128 has in NumPy's types
ComplexArray = NDArray[np.complexfloating[Any, Any]]

# A shift alpha multiplies the terms by e^(alpha^2/2), 3 at 1.5; a wider one saves few nodes.
_MOST_SHIFT = 1.5
# From this angle on, the line moves so far that the strip above it is of half-width 0.7 or, for
# narrow noise, of an angle of 1.2: more costs digits, less costs nodes.
_EDGE, _NARROW, _WIDEST = 0.5 * math.pi * (1 + 1e-9), 0.7, 1.2
# ln of the aliasing that is aimed at, relative to the integrand's bound: e^-40 is 4e-18.
_GOAL = 40.0
# A rule's step in units of 1/1024: 1,200 nodes, where 100 to 400 are usual.
_LEAST_STEP = 20
# P(N > 9) = 1e-19: what lies beyond is paid, and is below the rounding of the sum.
_REACH = 9.0
# |x| up to which ln(1 + x) - x is summed: the first term left out is 0.1^17 / 20 of the first.
_SMALL = 0.1
_LOG_TERMS = [(-1.0) ** (n + 1) / n for n in range(2, 20)]
_EXP_TERMS = [1.0 / math.factorial(n) for n in range(2, 17)]


@dataclass(frozen=True)
class Logs:
    """Values of ln psi(s) + s at points s, each with a bound of its error.

    Attributes:
        value: (n,) complex.
        error: (n,) the modulus of the error is at most this; inf where psi is not told from 0: the
            value is then an upper bound of ln |psi| + Re s.
    """

    value: ComplexArray
    error: FloatArray


def _series(x: ComplexArray, terms: list[float]) -> ComplexArray:
    """Sums x^2 (terms[0] + terms[1] x + ...)."""
    total = np.full_like(x, terms[-1])
    for term in terms[-2::-1]:
        total *= x
        total += term
    return np.asarray(x * x * total)


def exp_less(u: ComplexArray) -> ComplexArray:
    """Computes e^-u - 1 + u for Re u >= 0, within 100 units of 2^-53 of |u| min(|u|, 2)."""
    # a complex product is off by 2.3 units, the 15 of the series by less than 40 of |u|^2 / 2
    small = np.abs(u) < 0.5
    result = np.exp(-u) - 1.0 + u
    result[small] = _series(-u[small], _EXP_TERMS)
    return np.asarray(result)


def upper_transform(m: float, s: FloatArray) -> FloatArray:
    """Computes upper bounds of psi(s) at real s >= 0, at most a factor of three above it.

    Each of the bins of z counts with the largest value of e^(-s W) in it, at its left edge.
    """
    z = np.linspace(-40.0, 10.0, 1001)
    log_tail = log_normal_tail(-z)  # ln P(N <= z)
    mass = np.exp(log_tail)
    w = np.exp(np.maximum(m * z - 0.5 * m * m, -700.0))
    each = np.diff(mass, append=1.0)
    # a sum of positive terms: its roundings are within the factor of 1 + 1e-6; the mass of a bin
    # is a difference, off by at most 1e-12 of its upper edge's
    each = np.maximum(each, 0.0) + 1e-12 * np.append(mass[1:], 1.0)
    total = np.exp(-np.multiply.outer(s, w * (1 - 1e-9))) @ each + mass[0]
    # and e^-y <= 1 - y + y^2 / 2, which is close near 1, where many steps need it
    near = 1.0 - s + 0.5 * s * s * math.exp(m * m) * (1 + 1e-12) + 4 * UNIT
    most = np.where(s < 0.5, near, 1.0)
    return np.asarray(np.minimum(np.minimum(1.0, total * (1 + 1e-9) + TINY), most))


def relative_error(exponent: FloatArray) -> FloatArray:
    """Computes how far e^y is from the computed one, relatively, for an error of its exponent.

    An infinite ``exponent`` is that of :class:`Logs`: the modulus is known, and 2 is granted.
    """
    bounded = np.expm1(np.minimum(exponent, 700.0))
    return np.asarray(np.where(exponent == np.inf, 2.0 + 1e-6, bounded))


def log_transform(m: float, s: ComplexArray, angle: FloatArray | None = None) -> Logs:
    """Computes ln psi(s) + s at points of the logarithm's surface.

    psi continues analytically to every angle: Im z moves until Re (s W) >= 0 on the line. Beyond
    pi / 2 this costs the digits of e^(alpha^2/2), alpha > (angle - pi / 2) / m.

    Args:
        m: sensitivity / sigma of the Gaussian step, > 0.
        s: (n,) complex, not 0.
        angle: (n,) arg s >= 0; for s with Im s >= 0 it can be left out.
    """
    s = np.asarray(s, dtype=np.complex128)
    size: FloatArray = np.abs(s)
    found = np.angle(s) if angle is None else angle
    turned: FloatArray = np.asarray(found, dtype=np.float64)
    left = np.where(turned > _EDGE, 0.5 * math.pi - min(_WIDEST, _NARROW * m), turned)
    turn = turned * min(1.0, 2.0 * _MOST_SHIFT / math.pi * m)
    alpha = np.where(turned > _EDGE, turned - left, turn) / m
    left = turned - m * alpha
    direct = (s.real > 0) & (upper_transform(m, np.maximum(s.real, 0.0)) < 0.2)
    value = np.zeros_like(s)
    error = np.full(s.shape, math.inf)
    for mode in (False, True):
        at = direct == mode
        if not at.any():
            continue
        sum_of = _direct if mode else _less
        value[at], error[at] = sum_of(m, s[at], size[at], alpha[at], left[at])
    return Logs(value, error)


def _strips(m: float, alpha: FloatArray, left: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Computes half-widths (6, n) of strips where Re (s W) >= 0, and ln of what |phi| grows by."""
    widest = np.minimum((0.5 * math.pi * (1 - 1e-12) - left) / m, 6.0)
    a = np.multiply.outer(np.array([0.2, 0.35, 0.5, 0.65, 0.8, 0.95]), widest)
    return a, 0.5 * (alpha + a) ** 2


def _step(a: FloatArray, log_bound: FloatArray, log_goal: FloatArray) -> float:
    """Computes the step of a rule that misses e^log_goal at most, for every column of strips."""
    h = float(np.min(np.max(2.0 * math.pi * a / np.maximum(log_bound - log_goal, 1.0), axis=0)))
    # its multiples are exact; where it is too wide, the error says so
    return max(math.floor(h * 1024.0), _LEAST_STEP) / 1024.0


def _missed(a: FloatArray, log_bound: FloatArray, h: float) -> FloatArray:
    """Computes an upper bound of a rule's aliasing: the least one over the strips."""
    reach = 2.0 * math.pi * a / h
    missed = np.min(2.0 * np.exp(log_bound - reach) / -np.expm1(-reach), axis=0)
    return np.asarray(missed * (1 + 1e-9))  # guard: allocation-quadrature


def _less(
    m: float, s: ComplexArray, size: FloatArray, alpha: FloatArray, left: FloatArray
) -> tuple[ComplexArray, FloatArray]:
    """Computes ln psi + s by g, where psi is not small."""
    # min(|s|^2 E[W^2] / 2, 2 |s|), the integral of the bound of |e^-u - 1 + u|
    log_most = np.minimum(2.0 * np.log(size) + m * m - math.log(2.0), np.log(2.0 * size))
    a, grown = _strips(m, alpha, left)
    h = _step(a, grown + log_most, log_most - _GOAL)
    z = h * np.arange(math.floor(-_REACH / h), math.ceil((2.0 * m + _REACH) / h) + 1)
    w = np.exp(m * z - 0.5 * m * m)
    weight = h / math.sqrt(2.0 * math.pi) * half_square_exp(np.asarray(z, dtype=np.float64))
    u = np.multiply.outer(size * np.exp(1j * left), w)
    term = weight * np.exp(0.5 * alpha * alpha)[:, None] * np.exp(1j * np.multiply.outer(alpha, z))
    less = exp_less(u)
    g = np.sum(term * less, axis=1)
    # every term: weight and phase (the products alpha^2 and alpha z by a unit each), the sum
    # in any order; and u, whose W is off by EXP and the roundings of its exponent, |s| and the
    # angle by TURN each: d/du (e^-u - 1 + u) = 1 - e^-u, at most min(|u|, 2)
    mod_u = np.abs(u)
    mod = np.abs(term)
    relative = z.size + 100.0 + 4.0 * np.abs(z)
    relative = relative + (alpha * alpha)[:, None] + np.multiply.outer(alpha, np.abs(z))
    argument = 200.0 + 4.0 * m * np.abs(z) + 4.0 * m * m
    rounded = np.sum(
        mod * (np.abs(less) * relative + mod_u * np.minimum(mod_u, 2.0) * argument), axis=1
    )
    error = outwards(rounded) * UNIT  # guard: allocation-rounding
    error = error + _missed(a, grown + log_most, h)
    # beyond the ends |u|^2 / 2 phi falls away from z = 2 m: an integral bounds the sum
    outside = np.exp(log_normal_tail(np.array([_REACH, _REACH + 2.0 * m])))  # 2m right, left
    outside = outside[0] + outside[1]
    error = error + outwards(0.5 * size**2 * math.exp(m * m) * outside) * np.exp(0.5 * alpha**2)
    logs = log_of(s, g, error)
    return logs.value, logs.error


def log_of(s: ComplexArray, g: ComplexArray, error: FloatArray) -> Logs:
    """Computes ln psi(s) + s from g = psi - 1 + s, known up to ``error``."""
    x = g - s
    small = np.abs(x) < _SMALL
    value = np.empty_like(g)
    value[small] = _series(x[small], _LOG_TERMS) + g[small]
    value[~small] = np.log(1.0 + x[~small]) + s[~small]
    # ln(1 + x) - x has the slope -x / (1 + x); where x is not small the logarithm's own is paid
    known = np.abs(1.0 + x) - error - 4 * UNIT * (1.0 + np.abs(x))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(known > 0, 1.0 / known, math.inf)
        far = slope * (error + 4 * UNIT * (1.0 + np.abs(s) + np.abs(g)))
        far = far + 8 * UNIT * (np.abs(value) + 2.0 * np.abs(s) + 4.0)
        near = error * slope + UNIT * (64.0 * np.abs(x) ** 2 + 4.0 * np.abs(g))
        # x itself is rounded: by units of |g| + |s|, times the slope x / (1 + x)
        near = near + slope * np.abs(x) * 4 * UNIT * (np.abs(g) + np.abs(s))
    found = np.where(small, near, far)
    # where psi is not told from 0, the value is an upper bound of its modulus
    lost = ~np.isfinite(found)
    value[lost] = (np.log(np.abs(1.0 + x) + error + 8 * UNIT * (1.0 + np.abs(x))) + s.real)[lost]
    return Logs(value, np.where(lost, math.inf, found))


def _direct(
    m: float, s: ComplexArray, size: FloatArray, alpha: FloatArray, left: FloatArray
) -> tuple[ComplexArray, FloatArray]:
    """Computes ln psi + s by psi itself, where it is small."""
    a, grown = _strips(m, alpha, left)
    fall = upper_transform(m, (size * np.cos(left + m * a)).ravel() * (1 - 1e-12)).reshape(a.shape)
    log_most = grown + np.log(fall)
    floor = np.log(upper_transform(m, np.asarray(s.real, dtype=np.float64)))
    h = _step(a, log_most, np.minimum(floor, floor[0]) - _GOAL)
    # where phi e^(-c W) is not small against its peak at the smallest and the largest real part
    grid = np.linspace(-40.0, 10.0, 501)
    w_grid = np.exp(m * grid - 0.5 * m * m)
    body = -0.5 * grid**2 - np.multiply.outer([float(s.real.min()), float(s.real.max())], w_grid)
    near = grid[np.any(body > np.max(body, axis=1, keepdims=True) - 45.0, axis=0)]
    z = h * np.arange(math.floor((near[0] - 0.2) / h), math.ceil((near[-1] + 0.2) / h) + 1)
    w = np.exp(m * z - 0.5 * m * m)
    weight = h / math.sqrt(2.0 * math.pi) * half_square_exp(np.asarray(z, dtype=np.float64))
    u = np.multiply.outer(size * np.exp(1j * left), w)
    term = weight * np.exp(-u) * np.exp(1j * np.multiply.outer(alpha, z))
    term = term * np.exp(0.5 * alpha * alpha)[:, None]
    psi = np.sum(term, axis=1)
    relative = z.size + 100.0 + 4.0 * np.abs(z)
    relative = relative + (alpha * alpha)[:, None] + np.multiply.outer(alpha, np.abs(z))
    argument = 200.0 + 4.0 * m * np.abs(z) + 4.0 * m * m
    rounded = np.sum(np.abs(term) * (relative + np.abs(u) * argument), axis=1)
    error = outwards(rounded) * UNIT
    error = error + _missed(a, log_most, h)
    # left of the ends phi, right of them phi e^(-|s| cos W): integral and one more term
    below = math.exp(float(log_normal_tail(np.array([-z[0]]))[0])) + weight[0]
    last = size * np.cos(left) * w[-1] * (1 - 1e-9)
    tail = math.exp(float(log_normal_tail(np.array([z[-1]]))[0]))
    above = np.exp(-last) * (tail + (weight[-1] if z[-1] > 0 else h))
    error = error + outwards((below + above) * np.exp(0.5 * alpha * alpha))
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(psi) + s
        share = np.where(error < 0.5 * np.abs(psi), error / np.abs(psi), math.inf)
        off = share / (1.0 - np.minimum(share, 0.5)) + 8 * UNIT * (
            np.abs(value) + 2.0 * np.abs(s) + 4.0
        )
    lost = ~np.isfinite(off)
    value[lost] = (np.log(np.abs(psi) + error + TINY) + s.real)[lost]
    return value, np.where(lost, math.inf, off)
