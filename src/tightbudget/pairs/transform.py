"""The moment transform M(s) = E_P[e^(s L)] of the Gaussian family, on lines of the complex plane.

For the Gaussian mechanism and its Poisson-subsampled form M is an entire function, and
delta(eps) an integral over it (``tightbudget.pld.contour``). What that integral needs of
one pair is here: M with an error bound along a vertical line, an upper end of M on the
real axis, and a bound of |M| on the rest of the line.

With R(x) = 1 - q + q e^(m x - m^2/2) and x standard normal without the record,

    remove: P = R phi, L =  ln R;        add: P = phi, L = -ln R;

and E_P[e^-L] = 1 exactly. So

    M(s) - 1 = E_P[e^(s L) - 1 - s L] + s E_P[e^-L - 1 + L],

whose integrands are of the order of their value: no digits are lost, however small q and s
are, and a million runs cost none. The integral over x is a trapezoidal sum: R has no zero
for |Im x| < pi / m.

A transform may be split in two, M = bulk + rare, by a smooth step in x: where one rare
large loss decides, each number of rare losses has a line of its own.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.rounding import UNIT, FloatArray, exp_up
from tightbudget.numerics.special import (
    LESS_ULPS,
    expm1_less,
    log_normal_tail,
    log_normal_tail_slack,
    sin_less,
)

__all__ = ["ComplexArray", "Line", "MixedTransform", "NormalTransform", "Rough", "Transform"]

ComplexArray = NDArray[np.complex128]

_LARGE_M = 8.0  # beyond it |M| hardly falls along a line
_MOST_NODES = 50_000
_FARTHEST = 1000.0  # standard deviations
_STEP_BITS = 12  # of the trapezoidal step, so that every node is a double
_FAR = 30.0  # y = m x - m^2/2 beyond which q e^y may overflow
_GOAL = 40.0  # -ln of the error of a bound beyond a line's end
_LOG_DENSITY_0 = -0.5 * math.log(2.0 * math.pi)


class Line(NamedTuple):
    """ln M at points of a vertical line.

    Guarantee: for every k >= 1 the exact M^k is within |e^(k log)| (e^(k error) - 1) of
    e^(k log).
    """

    log: ComplexArray  # (n,)
    error: FloatArray  # (n,)


class Rough(NamedTuple):
    """ln M and its first two derivatives on the real axis, uncertified: for planning."""

    value: FloatArray  # (n,)
    slope: FloatArray
    curvature: FloatArray


class Transform(Protocol):
    """M(s) = E_P[e^(s L); L < inf] of one pair, for Re s > 0.

    ``tolerance`` is the relative error that one run may have; it decides on cost only.
    """

    @property
    def farthest(self) -> float:
        """The largest c that is worth looking at."""

    def rough(self, c: FloatArray) -> Rough:
        """ln M at c > 0 and its derivatives, for planning."""

    def nodes(self, c: float, t: float, tolerance: float) -> int:
        """How many terms one value of M on the line costs, up to the height t."""

    def line(self, c: float, t: FloatArray, tolerance: float) -> Line:
        """ln M(c + i t), t >= 0 ascending."""

    def upper(self, c: float) -> float:
        """An upper end of ln M(c), c > 0 or -1 < c < 0."""

    def shifts(self, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """About ``beyond(c, t, shift)`` at its best, and the best shifts, for planning."""

    def beyond(self, c: float, t: float, shift: float) -> float:
        """An upper end of ln |M(c + i t')| for all t' >= t."""


@dataclass(frozen=True)
class NormalTransform:
    """Loss N(m^2/2, m^2): M(s) = e^(s (s + 1) m^2 / 2)."""

    m: float

    @property
    def half(self) -> float:
        return 0.5 * self.m**2

    @property
    def farthest(self) -> float:
        return math.inf

    def rough(self, c: FloatArray) -> Rough:
        h = self.half
        return Rough(h * c * (c + 1.0), h * (2.0 * c + 1.0), np.full_like(c, 2.0 * h))

    def nodes(self, c: float, t: float, tolerance: float) -> int:
        return 1

    def line(self, c: float, t: FloatArray, tolerance: float) -> Line:
        up, along = self.half * (c * (c + 1.0)), self.half * t * (2.0 * c + 1.0)
        down = self.half * t * t
        # m is rounded, and each factor; the real part is a difference
        return Line((up - down) + 1j * along, 16 * UNIT * (up + down + along))

    def upper(self, c: float) -> float:
        log = self.half * c * (c + 1.0)
        return log + 16 * UNIT * abs(log)

    def shifts(self, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.half * (c * (c + 1.0) - t * t), np.zeros_like(t)

    def beyond(self, c: float, t: float, shift: float) -> float:
        up, down = self.half * c * (c + 1.0), self.half * t * t
        return up - down + 16 * UNIT * (up + down)


class _Rule(NamedTuple):
    """The trapezoidal rule with nodes first h ... last h, for a strip |Im x| < width."""

    h: float
    first: int
    last: int
    width: float
    log_moved: float = math.inf  # what ``_log_moved`` says at its width

    def error(self, log_growth: FloatArray | float) -> FloatArray:
        """2 N / (e^(2 pi a / h) - 1) for ln N, N >= the integral of |f| on Im x = a and -a.

        Source: Trefethen, Weideman 2014, Theorem 5.1.
        """
        decay = 2.0 * math.pi * self.width / self.h * (1 - 8 * UNIT)
        with np.errstate(over="ignore"):
            return (
                np.asarray(2.01 * np.exp(log_growth - decay)) if decay > 6 else np.asarray(np.inf)
            )


@dataclass(frozen=True)
class _At:
    """The integrand's ingredients at the nodes of a rule, each (n,)."""

    x: FloatArray
    y: FloatArray  # m x - m^2/2
    loss: FloatArray
    slack: FloatArray  # how far the loss may be off, with the rounding of s times it
    log_weight: FloatArray  # ln of the weight h w P, w the share of the part
    weight: FloatArray
    fuzz: FloatArray  # relative error of the weights, and of adding up
    inverse: FloatArray  # weight e^-L
    mean: float  # E_P[w (e^-L - 1 + L)]
    mean_error: float

    def powers(self, c: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """(c L, weight e^(c L))."""
        a = np.multiply.outer(c, self.loss)
        return a, np.exp(a + self.log_weight)

    def excess(self, a: FloatArray, wa: FloatArray) -> tuple[FloatArray, FloatArray]:
        """weight times (e^a - 1) and (e^a - 1 - a)."""
        w, small = self.weight, np.abs(a) < 0.5
        near = np.where(small, a, 0.0)
        return (
            np.where(small, w * np.expm1(near), wa - w),
            np.where(small, w * expm1_less(near), wa - w * (1.0 + a)),
        )


@dataclass(frozen=True)
class MixedTransform:
    """The loss of a Gaussian step that sees the record with probability q < 1.

    ``part`` limits M to one side of a smooth step: "bulk" weighs the integrand by
    w = Phi((edge - x) / width), "rare" by Phi((x - edge) / width); their sum is M.
    """

    m: float
    q: float
    remove: bool
    part: str = ""
    edge: float = 0.0
    width: float = 0.25

    @staticmethod
    def of(m: float, q: float, remove: bool) -> MixedTransform | None:
        """The transform, where it is worth having."""
        return MixedTransform(m, q, remove) if m <= _LARGE_M and 1e-15 <= q < 1.0 else None

    def sampled(self, rate: float) -> MixedTransform | None:
        """Sampling what is sampled multiplies the rates."""
        return MixedTransform.of(self.m, self.q * rate, self.remove)

    def split(self, edge: float) -> tuple[MixedTransform, MixedTransform]:
        """(bulk, rare), whose sum this is."""
        edge = round(edge * 16.0) / 16.0  # so that (x - edge) / width is exact
        m, q, remove = self.m, self.q, self.remove
        bulk = MixedTransform(m, q, remove, "bulk", edge)
        return bulk, MixedTransform(m, q, remove, "rare", edge)

    def valley(self, c: float) -> float | None:
        """An x between the bulk and the rare large losses of the tilted pair, if there is one."""
        power = self._power(c)
        x = np.arange(0.0, max(power, 0.0) * self.m + 9.0, 1.0 / 16.0)
        log = np.logaddexp(math.log1p(-self.q), math.log(self.q) + self.m * (x - self.m / 2))
        rises = np.diff(power * log - x * x / 2) > 0
        if not rises.any():
            return None
        rare = int(np.flatnonzero(rises)[-1])  # the last maximum is behind it
        falls = np.flatnonzero(~rises[:rare])
        return float(x[int(falls[-1]) + 1]) if falls.size else None

    def _power(self, c: float) -> float:
        """The z for which P e^(c L) = phi R^z."""
        return 1.0 + c if self.remove else -c

    # ------------------------------------------------------------------- planning

    @property
    def farthest(self) -> float:
        # the integrand of the largest losses peaks at about c m; beyond the bulk's edge slower
        if not self.remove:
            return math.inf
        slower = 1.0 + 1.0 / self.width**2 if self.part == "bulk" else 1.0
        return slower * _FARTHEST / self.m

    def rough(self, c: FloatArray) -> Rough:
        at = self._rough_at(float(np.max(c)))
        with np.errstate(over="ignore", invalid="ignore"):
            a, wa = at.powers(c)
            slope, second = wa @ at.loss, wa @ at.loss**2
            if self.part == "rare":
                value = np.sum(wa, axis=1)
                log = np.log(value)
            else:
                low = np.minimum(a, 1.0)
                less = np.where(
                    a < 1.0, at.weight * (np.expm1(low) - low), wa - at.weight * (1 + a)
                )
                lost, lost_slope = self._lost
                centred = np.sum(less, axis=1) + c * (at.mean - lost_slope) - lost
                value, log = 1.0 + centred, np.log1p(centred)
            slope = slope / value
            return Rough(log, slope, second / value - slope**2)

    def shifts(self, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        at = self._rough_at(c)
        weight = at.powers(c)[1]
        # a^2/2 - t a E[dL/dx] is least at a = t E[dL/dx]
        rise = np.exp(np.minimum(math.log(self.q) + at.y - self._log_r(at), 0.0))
        best = t * self.m * float(weight @ rise) / float(np.sum(weight))
        if self.part == "rare":  # there w costs (a / width)^2 / 2 everywhere
            best = best / (1.0 + 1.0 / self.width**2)
        most = 0.9 * min(math.pi / self.m, 6.0)
        found = np.full_like(t, np.inf), np.zeros_like(t)
        for factor in (0.03, 0.1, 0.3, 1.0):
            shift = np.minimum(factor * best, most)
            with np.errstate(over="ignore"):
                moved = np.exp(self._moved(self._power(c), at, shift, t))
            bound = np.log(np.sum(moved, axis=1))
            better = bound < found[0]
            found = np.where(better, bound, found[0]), np.where(better, shift, found[1])
        return found

    def _rough_at(self, c: float) -> _At:
        return _planned(self, self._rough_rule(c))

    def _rough_rule(self, c: float) -> _Rule:
        # a step with few bits, so that every node is a double
        finest = min(0.3, 0.8 / self.m, 0.5 * self.width if self.part else 1.0)
        h = 2.0 ** math.floor(math.log2(finest))
        last = 16 * math.ceil((self._farthest(self._power(c)) + 9.0) / (16 * h))
        first = 16 * math.floor((self._nearest(self._power(c)) - 9.0) / (16 * h))
        return _Rule(h, first, last, 0.0)

    def _farthest(self, power: float) -> float:
        """About the largest x at which the integrand may peak."""
        peak = max(0.0, power) * self.m
        if self.part == "bulk":  # beyond the edge the weight falls like a normal density
            inside = self.width**2 / (1.0 + self.width**2)
            peak = min(peak, self.edge) + max(0.0, peak - self.edge) * inside
        return max(peak, self.m, self.edge if self.part == "rare" else 0.0)

    def _nearest(self, power: float) -> float:
        """About the least x at which the integrand may peak: x = power m q e^y / R."""
        low, high = min(power, 0.0) * self.m, 0.0
        for _ in range(30 if low < -0.1 else 0):
            middle = 0.5 * (low + high)
            below = middle < power * self.m * self._rise(middle)
            low, high = (middle, high) if below else (low, middle)
        return high if low < -0.1 else 0.0

    def _rise(self, x: float) -> float:
        """q e^y / R, a rounded number: d ln R / dx is m times it."""
        y = math.log(self.q) - math.log1p(-self.q) + self.m * (x - 0.5 * self.m)
        return 1.0 / (1.0 + math.exp(min(-y, 700.0)))

    # -------------------------------------------------------------- the rule in x

    def _rule(self, c: float, t: float, tolerance: float) -> _Rule:
        """Few nodes for an error of about tolerance relative to M(c)."""
        goal = math.log(8.0 / tolerance) + 4.0
        widths = np.array([0.03, 0.06, 0.12, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 0.97]) * min(
            math.pi / self.m, 12.0
        )
        moved = self._log_moved(c, t, widths, goal)
        needed = np.nan_to_num(moved - self._log_size(c) + goal, nan=np.inf)
        best = int(np.argmax(widths / needed))
        h = 2.0 * math.pi * max(float(widths[best] / needed[best]), 1e-6)
        rule = self._with_step(self._power(c), goal, h, float(widths[best]))
        return rule._replace(log_moved=float(moved[best]))

    def _log_size(self, c: float) -> float:
        """About ln M(c), where that is not about 0."""
        size = float(self.rough(np.array([c])).value[0]) if self.part == "rare" else 0.0
        return size if math.isfinite(size) else 0.0

    def _log_moved(self, c: float, t: float, widths: FloatArray, goal: float) -> FloatArray:
        """ln of upper ends of the integral of |w P e^(s L)| on Im x = +-width, |Im s| <= t.

        Cell by cell the largest value of each factor: |phi(x + ia)| = phi(x) e^(a^2/2),
        |R(x + ia)| between R(x) cos(m a / 2) and R(x), |erfc(u + iv)| <= e^(v^2) erfc(u), and
        arg R(x + ia) <= m a rises with x.
        """
        m, q, power = self.m, self.q, self._power(c)
        reach = math.sqrt(2.0 * goal) + 1.0
        start, end = self._nearest(power) - reach, self._farthest(power) + reach
        n = math.ceil(min(400.0, max(4.0, 0.5 * abs(power) * m) * (end - start)))
        x = np.linspace(start, end, n + 1)
        y = np.minimum(m * (x - 0.5 * m), 600.0)
        log_r = np.logaddexp(math.log1p(-q), math.log(q) + m * (x - 0.5 * m))
        nearest = np.where(x[1:] < 0, x[1:], np.maximum(x[:-1], 0.0))
        log = np.maximum(power * log_r[1:], power * log_r[:-1]) - 0.5 * nearest**2
        last = power * float(log_r[-1]) - 0.5 * end**2
        rate = end - max(power, 0.0) * m
        if self.part:  # P(N > u) <= e^(-u^2/2) for u >= 0
            u = (x - self.edge) / self.width
            log = log - 0.5 * np.maximum(u[:-1] if self.part == "bulk" else -u[1:], 0.0) ** 2
        if self.part == "bulk":
            beyond = max(0.0, (end - self.edge) / self.width)
            rate += beyond / self.width
            last -= 0.5 * beyond**2
        turn = m * widths[:, None]
        rise = q * np.exp(np.minimum(y, 0.0))
        real = (1.0 - q) * np.exp(-np.maximum(y, 0.0)) + rise * np.cos(turn)
        angle = t * np.arctan2(rise * np.sin(turn), real)
        with np.errstate(over="ignore"):  # what overflows is inf, and not chosen
            total = np.sum(np.exp(log + angle[:, 1:]), axis=1) * ((end - start) / n)
        # beyond the cells: phi R^power falls by the rate there, at least
        if not rate > 0:
            return np.full_like(widths, math.inf)
        # and to the left: d ln R / dx = m q e^y / R rises with x
        slower = -start - max(0.0, -power) * m * self._rise(start)
        if not slower > 0:
            return np.full_like(widths, math.inf)
        first = power * float(log_r[0]) - 0.5 * start**2
        with np.errstate(over="ignore"):
            total += np.exp(last + t * turn[:, 0]) / rate + np.exp(first + angle[:, 0]) / slower
        shrink = min(power, 0.0) * np.log(np.cos(0.5 * m * widths))
        smooth = 0.5 * (widths / self.width) ** 2 if self.part else 0.0
        return np.asarray(np.log(total) + 0.5 * widths**2 + shrink + smooth + _LOG_DENSITY_0 + 0.01)

    def _with_step(self, power: float, goal: float, h: float, width: float) -> _Rule:
        scale = 2.0 ** (_STEP_BITS - math.frexp(h)[1])
        h = math.floor(h * scale) / scale
        reach = math.sqrt(2.0 * goal) + h
        last = math.ceil((self._farthest(power) + reach) / h)
        return _Rule(h, math.floor((self._nearest(power) - reach) / h), last, float(width))

    def _log_growth(self, power: float, a: FloatArray) -> FloatArray:
        """ln of an upper end of |w phi R^power|(x + i a') / (w phi R^power)(x), |a'| <= a."""
        # |phi(x + ia)| = phi(x) e^(a^2/2); |R(x + ia)| lies between R(x) cos(m a / 2) and R(x);
        # |erfc(u + iv)| <= e^(v^2) erfc(u)
        shrink = min(power, 0.0) * np.log(np.cos(0.5 * self.m * a))
        smooth = 0.5 * (a / self.width) ** 2 if self.part else 0.0
        return np.asarray(0.5 * a * a + shrink + smooth)

    def _at(self, rule: _Rule) -> _At:
        m, q = self.m, self.q
        x = rule.h * np.arange(rule.first, rule.last + 1, dtype=np.float64)
        y = m * (x - 0.5 * m)
        # ln R: y and q are rounded, d ln R / dy = q e^y / R and d ln R / d ln q = (R - 1) / R
        v = q * np.expm1(np.minimum(y, _FAR))
        big = np.logaddexp(math.log1p(-q), math.log(q) + y)
        log_r = np.where(y > _FAR, big, np.log1p(v))
        pull = np.exp(np.minimum(math.log(q) + y - log_r, 0.0)) * 1.001
        off_y = 8 * UNIT * (np.abs(m * x) + m * m)
        slack = pull * off_y + 16 * UNIT * np.abs(log_r)
        slack += 8 * UNIT * np.where(y > _FAR, np.abs(y) + 80.0, np.abs(v) / (1.0 + v))
        log_weight = (math.log(rule.h) + _LOG_DENSITY_0) - 0.5 * x * x
        fuzz = UNIT * (x * x + 2.0 * abs(math.log(rule.h)) + 2.0 * LESS_ULPS + 32.0 + x.size)
        if self.remove:
            log_weight = log_weight + log_r
            fuzz = fuzz + slack + 2 * UNIT * np.abs(log_r)
        if self.part:
            u = np.asarray((x - self.edge) / self.width)
            u = u if self.part == "bulk" else -u
            log_weight = log_weight + log_normal_tail(u)
            fuzz = fuzz + log_normal_tail_slack(u)
        weight = np.exp(log_weight)
        loss = log_r if self.remove else -log_r
        # e^-L - 1 + L; for add e^-L = R may overflow where its weight does not
        inverse = np.exp(np.minimum(log_weight - loss, 700.0))
        small = np.abs(loss) < 0.5
        less = weight * expm1_less(np.where(small, -loss, 0.0))
        terms = np.where(small, less, inverse - weight + weight * loss)
        size = np.where(small, less, inverse + weight * (1.0 + np.abs(loss)))
        # its derivative is 1 - e^-L
        moved = np.where(small, weight * 2.0 * np.abs(loss), weight + inverse) * slack
        moved += np.where(small, 0.0, 4 * UNIT * inverse * np.abs(loss))
        error = float(np.sum(size * fuzz + moved))
        mean = float(np.sum(terms))
        return _At(x, y, loss, slack, log_weight, weight, fuzz, inverse, mean, error)

    @property
    def _lost(self) -> tuple[float, float]:
        """E_P[1 - w] and E_P[(1 - w)(1 - e^-L)] for the bulk, else 0.

        E_P[w e^(s L)] - 1 is E_P[w (e^(s L) - 1 - s L)] + s E_P[w (e^-L - 1 + L)] without the first
        and without s times the second.
        """
        if self.part != "bulk":
            return 0.0, 0.0
        ends = np.array([self.edge, self.edge - self.m]) / math.hypot(1.0, self.width)
        without, lifted = (float(x) for x in np.exp(log_normal_tail(ends)))
        with_record = without + self.q * (lifted - without)
        first, other = (with_record, without) if self.remove else (without, with_record)
        return first, first - other

    # --------------------------------------------------------------------- values

    def nodes(self, c: float, t: float, tolerance: float) -> int:
        rule = _ruled(self, c, t, tolerance)
        return rule.last - rule.first + 1

    def line(self, c: float, t: FloatArray, tolerance: float) -> Line:
        rule = _ruled(self, c, float(t[-1]), tolerance)
        if rule.last - rule.first > _MOST_NODES:  # not worth it: nothing is said
            return Line(np.zeros_like(t, dtype=np.complex128), np.full_like(t, math.inf))
        value, error = self._values(c, t, rule, self._at(rule))
        centre = 0.0 if self.part == "rare" else 1.0
        size = np.abs(centre + value)
        # where M is not told from 0, |M| <= size + error <= 3 error is all that is said
        lost = size <= 2.0 * error
        known = np.where(lost, 1.0, size)
        relative = np.where(lost, 0.0, error / known)
        if centre:
            # ln |1 + d| without cancellation where d is small
            near = np.where(np.abs(value) < 0.5, value, 0.0)
            near_log = 0.5 * np.log1p(2.0 * near.real + near.real**2 + near.imag**2)
            modulus = np.where(np.abs(value) < 0.5, near_log, np.log(known))
            rounded = 8 * UNIT * (np.abs(modulus) + 2.0 * np.minimum(np.abs(value), 2.0))
        else:
            modulus, rounded = np.log(known), 8 * UNIT * np.ones_like(known)
        angle = np.arctan2(value.imag, centre + value.real)
        rounded = rounded + 8 * UNIT * (np.abs(angle) + np.abs(modulus))
        log = np.where(lost, np.log(3.0 * error + 1e-300), modulus + 1j * angle)
        return Line(log, np.where(lost, math.log(3.0) + 1e-9, -np.log1p(-relative) + rounded))

    def _values(
        self, c: float, t: FloatArray, rule: _Rule, at: _At
    ) -> tuple[ComplexArray, FloatArray]:
        """M - 1 (of the rare part M) at c + i t, and a bound of its error."""
        a, wa = at.powers(c)
        loss, slack, fuzz = np.abs(at.loss), at.slack, at.fuzz + 4 * UNIT * np.abs(a)
        s = abs(c) + t  # >= |s|
        b = np.multiply.outer(t, at.loss)
        if self.part == "rare":
            value = np.cos(b) @ wa + 1j * (np.sin(b) @ wa)
            error = float(wa @ (fuzz + 16 * UNIT)) + s * float(wa @ slack)
        else:
            # e^(a + ib) - 1 - a - ib = (e^a - 1 - a) - 2 e^a sin^2(b / 2)
            #                            + i ((e^a - 1) b + e^a (sin b - b))
            excess, less = at.excess(a, wa)
            lost, lost_slope = self._lost
            real = float(np.sum(less)) + c * (at.mean - lost_slope) - lost
            slope = float(excess @ at.loss) + (at.mean - lost_slope)
            value = real - 2.0 * (np.sin(0.5 * b) ** 2 @ wa) + 1j * (t * slope + sin_less(b) @ wa)
            # the weights, the functions and the sums ...
            small = np.abs(a) < 0.5
            size = np.where(small, np.abs(less), wa + at.weight * (1.0 + np.abs(a)))
            step = np.where(small, np.abs(excess), wa + at.weight)
            error = float(size @ fuzz) + s * at.mean_error + t * float((step * loss) @ fuzz)
            error = error + np.minimum(t * t * float((wa * loss**2) @ fuzz), 2.0 * float(wa @ fuzz))
            cube, flat = float((wa * loss**3) @ fuzz), float((wa * loss) @ fuzz)
            error = error + np.minimum(t**3 * cube, 2.0 * t * flat)
            # ... the loss, by d/dL = s (e^(s L) - 1); what the part has lost; and the last sums
            error = error + s * (float(step @ slack) + t * float((wa * loss) @ slack))
            error = error + 1e-11 * (lost + s * abs(lost_slope)) + 8 * UNIT * np.abs(value)
        error = 1.01 * error + self._cut(c, s, rule, at, wa)
        return value, error + self._aliased(s, rule)

    def _cut(self, c: float, s: FloatArray, rule: _Rule, at: _At, wa: FloatArray) -> FloatArray:
        """The most that the nodes beyond both ends add up to.

        The integrand is w P (e^(s L) - 1 + s (e^-L - 1)), and P and P e^-L are phi and phi R.
        """
        power, last, first = self._power(c), float(at.x[-1]), -float(at.x[0])
        # right: R^power and R grow by e^(max(power, 1) m h) per node at most, phi falls by
        # e^(-x h), and Phi(-u) by e^(-u h / width) for u > 0; the share of the rare part, at
        # least 1/2 here, grows to 1
        rate = last - max(power, 1.0) * self.m
        if self.part == "bulk":
            rate += max(0.0, (last - self.edge) / self.width**2)
        rare = self.part == "rare"  # and the integrand is w P e^(s L) alone
        also = np.zeros_like(s) if rare else 1.0 + s
        right = also * float(at.weight[-1] + at.inverse[-1])
        right = right + float(wa[-1]) * (2.0 if rare else 1.0)
        ratio = math.exp(-rule.h * rate) if rate > 0 else 1.0
        right = right * (ratio / (1.0 - ratio)) if ratio < 1.0 else np.full_like(s, np.inf)
        # left: R <= 1, and R^power grows by m q e^y / R per step, which falls; w is at least 1/2
        # and grows to 1 (rare: it falls)
        rate = first - max(0.0, -power) * self.m * self._rise(-first) * 1.001
        left = also * 2.0 * math.exp(-0.5 * first**2) * rule.h
        left = left + float(wa[0]) * (1.0 if rare else 2.0)
        ratio = math.exp(-rule.h * rate) if rate > 0 else 1.0
        left = left * (ratio / (1.0 - ratio)) if ratio < 1.0 else np.full_like(s, np.inf)
        return np.asarray(1.01 * (right + left))

    def _aliased(self, s: FloatArray, rule: _Rule) -> FloatArray:
        """The error of the trapezoidal rule for w P (e^(s L) - 1 + s (e^-L - 1))."""
        moved = rule.error(rule.log_moved)
        if self.part == "rare":
            return np.full_like(s, moved)
        still = rule.error(float(self._log_growth(1.0, np.array(rule.width))))
        return np.asarray(1.01 * (moved + still * 2.0 * (1.0 + s)))

    def upper(self, c: float) -> float:
        # the nodes of planning often do: it is a bound, not a value
        rule = self._rough_rule(c)
        if rule.last - rule.first > _MOST_NODES:
            return math.inf
        at = self._rough_at(c)
        widths = np.linspace(0.05, 0.95, 9) * min(math.pi / self.m, 12.0)
        moved = self._log_moved(c, 0.0, widths, _GOAL)
        spare = 2.0 * math.pi * widths / rule.h - moved
        best = int(np.argmax(spare))
        if spare[best] > _GOAL:
            rule = rule._replace(width=float(widths[best]), log_moved=float(moved[best]))
        else:
            rule = self._rule(c, 0.0, 1e-15)
            if rule.last - rule.first > _MOST_NODES:
                return math.inf
            at = self._at(rule)
        value, error = self._values(c, np.zeros(1), rule, at)
        most = float(value[0].real + error[0])
        if not most < math.inf:
            return math.inf
        if self.part == "rare":
            log = math.log(most) if most > 0 else -700.0
            return log + 8 * UNIT * (abs(log) + 1.0)
        log = math.log1p(most)
        return log + 8 * UNIT * (abs(log) + min(abs(most), 1.0))

    # ------------------------------------------------------- the rest of the line

    def _log_r(self, at: _At) -> FloatArray:
        return at.loss if self.remove else -at.loss

    def _moved(self, power: float, at: _At, shift: FloatArray, t: FloatArray) -> FloatArray:
        """ln of h |w P e^(s L)| on the line Im x = +-shift, (len(t), n); w by an upper end.

        There |R^(+-i t)| = e^(-t arg R), arg R > 0; ``shift`` and ``t``: (len(t),).
        """
        turn, square = self.m * shift[:, None], 0.5 * shift[:, None] ** 2
        y = np.minimum(at.y, 600.0)
        rise = self.q * np.exp(np.minimum(y, 0.0))
        real = (1.0 - self.q) * np.exp(-np.maximum(y, 0.0)) + rise * np.cos(turn)
        side = rise * np.sin(turn)
        modulus = 0.5 * np.log(real * real + side * side) + np.maximum(at.y, 0.0)
        base = at.log_weight - at.loss if self.remove else at.log_weight
        log = power * modulus + (base + square)
        if self.part == "rare":
            log = log + square / self.width**2
        if self.part == "bulk":
            # |w(x + ia)| <= min(A w, 1 + A (1 - w)) <= w (1 + (2 A + 2) (1 - w))
            spread = 2.0 * np.exp(square / self.width**2) + 2.0
            log = log + np.log1p(spread * np.exp(log_normal_tail((self.edge - at.x) / self.width)))
        return np.asarray(log - t[:, None] * np.arctan2(side, real))

    def beyond(self, c: float, t: float, shift: float) -> float:
        """By moving the line of x to Im x = +-shift, where |R^(i t)| only falls with t.

        The integral of the modulus is a trapezoidal sum, too: |R(x + ia)|^2 =
        R(x + ia) R(x - ia) is analytic in the strip of width pi / m - a.
        """
        power = self._power(c)
        # up to pi / 2 m, arg R(x + i (b + a)) >= arg R(x + i (b - a)): e^(-t arg R) stays below 1
        strips = np.linspace(0.05, 0.97, 24)
        strips *= min(0.5 * math.pi / self.m, math.pi / self.m - shift, 6.0)
        growth = self._log_growth(power, shift + strips) + 0.5 * strips**2
        if self.part == "bulk":
            growth = growth + ((shift + strips) / self.width) ** 2 + 3.0
        best = int(np.argmax(strips / (growth + _GOAL)))
        h = 2.0 * math.pi * float(strips[best] / (growth[best] + _GOAL))
        rule = self._with_step(power, _GOAL, h, strips[best])
        if rule.last - rule.first > _MOST_NODES:
            return math.inf
        at = self._at(rule)
        log = self._moved(power, at, np.array([shift]), np.array([t]))[0]
        # rounding of the exponent, and what ln R and its argument are off by
        off = 8 * UNIT * (np.abs(log) + np.abs(power * at.loss) + t * self.m * shift + 4.0)
        off += (abs(power) + 1.0 + t) * 2.0 * at.slack + at.fuzz
        total = float(np.sum(np.exp(log) * (1.0 + off)))
        wa = at.powers(c)[1]
        cut = float(self._cut(c, np.zeros(1), rule, at, wa)[0])
        # e^growth times the integral of w P e^(c L), which its own sum bounds
        share = float(rule.error(float(self._log_growth(power, np.array(rule.width)))))
        whole = 1.01 * (float(np.sum(wa)) + cut) / (1.0 - share) if share < 0.5 else math.inf
        total += float(rule.error(growth[best])) * whole
        total += exp_up(float(self._log_growth(power, np.array(shift))) + 3.0) * cut
        if not total < math.inf:
            return math.inf
        log = math.log(max(total, 1e-300))
        return log + 8 * UNIT * (1.0 + abs(log))


@functools.lru_cache(maxsize=256)
def _planned(transform: MixedTransform, rule: _Rule) -> _At:
    """What all planning of one transform shares."""
    return transform._at(rule)


@functools.lru_cache(maxsize=256)
def _ruled(transform: MixedTransform, c: float, t: float, tolerance: float) -> _Rule:
    """What a line costs is asked before its values."""
    return transform._rule(c, t, tolerance)
