"""The moment transform M(s) = E_P[e^(s L)] of the Gaussian family, on lines of the complex plane.

For the Gaussian mechanism and its Poisson-subsampled form M is an entire function, and
delta(eps) an integral over it (``tightbudget.engine.saddle_point``). What that integral needs
of one pair is here: M with an error bound along a vertical line, an upper end of M on the
real axis, and a bound of |M| on the rest of the line.

With R(x) = 1 - q + q e^(m x - m^2/2) and x standard normal without the record,

    remove: P = R phi, L =  ln R;        add: P = phi, L = -ln R;

and E_P[e^-L] = 1 exactly. So

    M(s) - 1 = E_P[e^(s L) - 1 - s L] + s E_P[e^-L - 1 + L],

whose integrands are of the order of their value: no digits are lost, however small q and s
are, and a million runs cost none. The integral over x is a trapezoidal sum: R has no zero
for |Im x| < pi / m.

An error's name says whose it is: ``loss_error`` and ``weight_error`` belong to the ingredients at
one node, ``Line.error`` to a value of ln M. An operation on doubles costs one ``UNIT`` of its
result, a call costs what ``numerics.rounding`` grants it (``EXP``, ``LOG``, ...). A line that
ends in "pays: name" pays for what docs/explanation/rounding.md says under that name.

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

from tightbudget.numerics.rounding import (
    EXP,
    EXPM1,
    LOG,
    LOG1P,
    TURN,
    UNIT,
    FloatArray,
    add_up,
    exp_up,
    log1p_up,
    log_up,
    mul_up,
    outwards,
)
from tightbudget.numerics.special import (
    LESS_ULPS,
    SIN_LESS_ULPS,
    expm1_less,
    log_normal_tail,
    log_normal_tail_slack,
    sin_less,
)

__all__ = [
    "MOST_NESTED",
    "ComplexArray",
    "Line",
    "MixedTransform",
    "NormalTransform",
    "Rough",
    "Transform",
]

ComplexArray = NDArray[np.complex128]

_LARGE_M = 8.0  # beyond it |M| hardly falls along a line
_MOST_NODES = 50_000
_FARTHEST = 1000.0  # standard deviations
_STEP_BITS = 12  # of the trapezoidal step, so that every node is a double
_FAR = 600.0  # y = m x - m^2/2 beyond which q e^y may overflow; (1 - q) / (q e^y) < 1e-245 there
_GOAL = 40.0  # -ln of the error of a bound beyond a line's end
_DENSITY_0 = 1.0 / math.sqrt(2.0 * math.pi)  # within 3 units of 2^-53
_LOG_DENSITY_0 = math.log(_DENSITY_0)
MOST_NESTED = 8  # samplings within samplings, each of which rounds q once
_SLOWEST = 0.01  # a fall per unit of x below which nothing is said about the nodes left out


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

    def rare_split(self, c: float) -> tuple[Transform, Transform] | None:
        """(bulk, rare), two transforms that sum to M: at c, rare large losses stand apart.

        None where the losses of the pair tilted by e^(c L) are one lump, or no split is known.
        """
        return None

    def gaussian_mu(self) -> float | None:
        """The smallest mu for which delta(eps) <= delta_mu(eps) for all eps, if it is known.

        delta_mu(eps) is the delta of N(0, 1) against N(mu, 1). The returned mu is within two
        units of 2^-53 of the exact one, relatively; the square of mu adds up over independent runs.
        """
        return None


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
        # m^2 is off by three units (m twice, its square once), each part by three more, for its
        # factors; the real part is a difference: one more. The eighth is for the second order
        size = up + down + along
        return Line((up - down) + 1j * along, 8 * UNIT * size)  # pays: normal-line

    def upper(self, c: float) -> float:
        log = self.half * c * (c + 1.0)  # six units, as on a line
        return log + 8 * UNIT * abs(log)  # pays: normal-upper

    def shifts(self, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.half * (c * (c + 1.0) - t * t), np.zeros_like(t)

    def beyond(self, c: float, t: float, shift: float) -> float:
        up, down = self.half * c * (c + 1.0), self.half * t * t
        return up - down + 8 * UNIT * (up + down)  # pays: normal-beyond

    def rare_split(self, c: float) -> None:
        """None: the losses of a Gaussian pair are one lump, however they are tilted."""
        return None

    def gaussian_mu(self) -> float:
        """The Gaussian pair's own m."""
        return self.m


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
        decay = 2.0 * math.pi * self.width / self.h
        with np.errstate(over="ignore", divide="ignore"):
            error = 2.0 / -np.expm1(-decay) * np.exp(np.asarray(log_growth) - decay)
        return outwards(error)


class _Lost(NamedTuple):
    """The P-mass that a part leaves out, and its share of E_P[1 - e^-L]; with their errors."""

    mass: float
    slope: float
    mass_error: float
    slope_error: float


@dataclass(frozen=True)
class _At:
    """The integrand's ingredients at the nodes of a rule, each (n,)."""

    x: FloatArray
    y: FloatArray  # m x - m^2/2
    loss: FloatArray
    loss_error: FloatArray  # how far the loss may be off, with the rounding of s times it
    pull: FloatArray  # q e^y / R = d ln R / dy
    log_weight: FloatArray  # ln of the weight h w P, w the share of the part
    weight: FloatArray
    weight_error: FloatArray  # relative, of weight; its largest part is also that of log_weight
    inverse: FloatArray  # weight e^-L
    mean: float  # E_P[w (e^-L - 1 + L)]
    mean_error: float

    def powers(self, c: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """(c L, weight e^(c L)); the error of the second is ``power_error``."""
        a = np.multiply.outer(c, self.loss)
        return a, np.exp(a + self.log_weight)

    def power_error(self, a: FloatArray) -> FloatArray:
        """Relative error of weight e^a for a = c L, but for that of a itself."""
        return self.weight_error + UNIT * np.abs(a + self.log_weight)  # pays: power

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

    def rare_split(self, c: float) -> tuple[MixedTransform, MixedTransform] | None:
        """(bulk, rare), split below the valley between them; None where there is no valley at c."""
        valley = self.valley(c)
        # one standard deviation below it, so that the bulk is free of rare losses at larger c, too
        return None if valley is None else self.split(valley - 1.0)

    def gaussian_mu(self) -> float | None:
        """The m of the Gaussian step that is sampled, for a removed record; else None.

        A sampled step is no more revealing than the step itself. It is no less revealing either:
        where delta <= delta_mu the moments are ordered, mu^2 >= 2 ln M(c) / (c (c + 1)) for all
        c > 0, and for a removed record M(c) >= q^(c + 1) e^(c (c + 1) m^2 / 2): with c -> inf
        follows mu >= m. For an added record the losses have an end, and no such limit.
        """
        return self.m if self.remove else None

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
                lost = self._lost
                centred = np.sum(less, axis=1) + c * (at.mean - lost.slope) - lost.mass
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
        for _ in range(18 if low < -0.1 else 0):
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

        Cell by bin the largest value of each factor: |phi(x + ia)| = phi(x) e^(a^2/2),
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
        # beyond the bins: phi R^power falls by the rate there, at least
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
        return np.asarray(
            np.log(outwards(total)) + 0.5 * widths**2 + shrink + smooth + _LOG_DENSITY_0
        )

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
        v = q * np.expm1(np.minimum(y, _FAR))
        log_q = math.log(q)
        log_r = np.where(y > _FAR, log_q + y, np.log1p(v))
        # y: m is rounded (once, relative: m x - m^2 = y - m^2/2), so are x - m/2 and the product;
        # d ln R / dy = q e^y / R
        y_error = (3.0 * np.abs(y) + 0.5 * m * m) * UNIT  # pays: loss-exponent
        pull = np.exp(np.minimum(log_q + y - log_r, 0.0))
        # v: q is rounded MOST_NESTED times, expm1 and the product; d ln (1 + v) = dv / (1 + v)
        moved = np.abs(v) / (1.0 + v) * (MOST_NESTED + EXPM1 + 1.0) * UNIT  # pays: loss-excess
        # -ln(1 - e) <= e + e^2 up to 1/2; an error as large as 1 + v says nothing of the loss
        loss_error = pull * y_error + np.where(moved < 0.5, moved * (1.0 + moved), np.inf)
        far = np.where(y > _FAR, abs(log_q), 0.0)
        loss_error = loss_error + LOG * far * UNIT  # pays: loss-far
        # log1p; and the product of the loss with c or t, which is later paid as if the loss moved
        loss_error = loss_error + (LOG1P + 1.0) * np.abs(log_r) * UNIT  # pays: loss-log
        loss_error = outwards(loss_error)
        # ln (h phi(x)): the product is off by 4 units; then the logarithm, x^2 and the difference
        base = math.log(rule.h * _DENSITY_0)
        log_weight = base - 0.5 * x * x
        weight_error = np.full_like(x, (LOG * abs(base) + 4.0) * UNIT)  # pays: weight-step
        rounded = 0.5 * x * x + np.abs(log_weight)
        if self.remove:
            log_weight = log_weight + log_r
            rounded += np.abs(log_weight)
            weight_error += loss_error  # pays: weight-loss
        if self.part:
            u = np.asarray((x - self.edge) / self.width)
            u = u if self.part == "bulk" else -u
            log_weight = log_weight + log_normal_tail(u)
            rounded += np.abs(log_weight)
            weight_error += log_normal_tail_slack(u)  # pays: weight-share
        loss = log_r if self.remove else -log_r
        # for add e^-L = R may overflow where its weight does not
        log_inverse = np.minimum(log_weight - loss, 700.0)
        # one unit of x^2 / 2 and of each sum; that of ln (weight e^-L) is paid with the weight
        weight_error += (rounded + np.abs(log_inverse)) * UNIT  # pays: weight-sums
        weight_error = outwards(weight_error + EXP * UNIT)  # pays: weight-exp
        weight, inverse = np.exp(log_weight), np.exp(log_inverse)
        # e^-L - 1 + L
        small = np.abs(loss) < 0.5
        less = weight * expm1_less(np.where(small, -loss, 0.0))
        terms = np.where(small, less, inverse - weight + weight * loss)
        size = np.where(small, less, inverse + weight * (1.0 + np.abs(loss)))
        # the weights; expm1_less; and what makes a term and adds all of them, in any order, to
        # those of a value: n + 12 operations
        error = np.zeros_like(x)
        error += size * weight_error  # pays: mean-weight
        error += size * 2.0 * LESS_ULPS * UNIT  # pays: mean-less
        error += size * (x.size + 12.0) * UNIT  # pays: mean-order
        # the loss, by the derivative 1 - e^-L
        slope = np.where(small, weight * 2.0 * np.abs(loss), weight + inverse)
        error += slope * loss_error  # pays: mean-loss
        mean_error = float(outwards(np.sum(error)))
        mean = float(np.sum(terms))
        return _At(
            x, y, loss, loss_error, pull, log_weight, weight, weight_error, inverse, mean,
            mean_error,
        )  # fmt: skip

    @functools.cached_property
    def _lost(self) -> _Lost:
        """E_P[1 - w] and E_P[(1 - w)(1 - e^-L)] for the bulk, else 0.

        E_P[w e^(s L)] - 1 is E_P[w (e^(s L) - 1 - s L)] + s E_P[w (e^-L - 1 + L)] without the first
        and without s times the second.
        """
        if self.part != "bulk":
            return _Lost(0.0, 0.0, 0.0, 0.0)
        ends = np.array([self.edge, self.edge - self.m]) / math.hypot(1.0, self.width)
        tails = np.exp(log_normal_tail(ends))
        # m, the difference, hypot and the quotient move an end by 4 + TURN units (m alone by m),
        # and |d ln tail(u) / du| <= |u| + 1
        reach = (np.abs(ends) + self.m) * (np.abs(ends) + 1.0) * (4.0 + TURN)
        off = log_normal_tail_slack(ends) + (reach + EXP) * UNIT  # pays: lost-tails
        without, lifted = (float(tail) for tail in tails)
        more = self.q * (lifted - without)
        # q by its roundings, then the product, the difference, and the two sums that follow
        both = tails * (off + (MOST_NESTED + 4.0) * UNIT)  # pays: lost-sums
        slope_error = self.q * float(np.sum(both))
        first = without + more if self.remove else without
        error = float(both[0]) + (slope_error if self.remove else 0.0)
        return _Lost(
            first, more if self.remove else -more, float(outwards(error)),
            float(outwards(slope_error)),
        )  # fmt: skip

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
            close = np.abs(value) < 0.5
            near = np.where(close, value, 0.0)
            near_log = 0.5 * np.log1p(2.0 * near.real + near.real**2 + near.imag**2)
            modulus = np.where(close, near_log, np.log(known))
            # 2 re + re^2 + im^2 is off by 6 |d| units, which is divided by 2 |1 + d|^2; 1 + d and
            # its modulus are off by 2 and by TURN units
            rounded = np.where(close, 3.0 * np.abs(value) / known**2, TURN + 2.0)
            rounded = rounded * UNIT  # pays: line-modulus
        else:
            modulus, rounded = np.log(known), np.full_like(known, TURN * UNIT)  # pays: rare-modulus
        angle = np.arctan2(value.imag, centre + value.real)
        rounded = rounded + max(LOG, LOG1P) * np.abs(modulus) * UNIT  # pays: line-log
        rounded = rounded + (TURN + 1.0) * np.abs(angle) * UNIT  # pays: line-angle
        log = np.where(lost, np.log(3.0 * error + 1e-300), modulus + 1j * angle)
        # |M^k - B^k| <= B^k (3^k - 1) for B = 3 error, |M| <= B
        rounded = np.where(lost, math.log(3.0), rounded - np.log1p(-relative))
        return Line(log, outwards(rounded))

    def _values(
        self, c: float, t: FloatArray, rule: _Rule, at: _At
    ) -> tuple[ComplexArray, FloatArray]:
        """M - 1 (of the rare part M) at c + i t, and a bound of its error."""
        a, wa = at.powers(c)
        n = at.x.size
        wa_error = at.power_error(a)
        s = abs(c) + t  # >= |s|
        b = np.multiply.outer(t, at.loss)
        if self.part == "rare":
            value = np.matmul(np.cos(b), wa) + 1j * np.matmul(np.sin(b), wa)
            # the weights, cos and sin, their products and sums in any order; and the loss, by
            # d/dL = s e^(s L), with which the rounding of c L and t L is paid
            node = wa_error + TURN * UNIT  # pays: rare-turn
            node = node + (n + 9.0) * UNIT  # pays: rare-order
            error = np.full_like(t, float(np.matmul(wa, node)))
            error = error + s * float(np.matmul(wa, at.loss_error))  # pays: rare-loss
        else:
            # e^(a + ib) - 1 - a - ib = (e^a - 1 - a) - 2 e^a sin^2(b / 2)
            #                            + i ((e^a - 1) b + e^a (sin b - b))
            excess, less = at.excess(a, wa)
            lost, loss = self._lost, np.abs(at.loss)
            real = float(np.sum(less)) + c * (at.mean - lost.slope) - lost.mass
            slope = float(np.matmul(excess, at.loss)) + (at.mean - lost.slope)
            value = real - 2.0 * np.matmul(np.sin(0.5 * b) ** 2, wa)
            value = value + 1j * (t * slope + np.matmul(sin_less(b), wa))
            # each term by its weight, and by the n + 14 operations that make it and add all of them
            # in any order; then by its function
            node = wa_error + (n + 14.0) * UNIT  # pays: value-order
            small = np.abs(a) < 0.5
            size = np.where(small, np.abs(less), wa + at.weight * (1.0 + np.abs(a)))
            step = np.where(small, np.abs(excess), wa + at.weight)
            of_less = node + 2.0 * LESS_ULPS * UNIT  # paid by: value-less
            error = np.zeros_like(t)
            error = error + float(np.matmul(size, of_less))  # pays: value-less
            of_step = step * loss * (node + EXPM1 * UNIT)  # paid by: value-excess
            error = error + t * float(np.sum(of_step))  # pays: value-excess
            # 2 sin^2(b / 2) <= min(b^2 / 2, 2)
            of_sine = wa * (node + 2.0 * TURN * UNIT)  # paid by: value-cosine
            bend = 0.5 * t * t * float(np.matmul(of_sine, loss**2))
            error = error + np.minimum(bend, 2.0 * float(np.sum(of_sine)))  # pays: value-cosine
            # |sin b - b| <= min(|b|^3 / 6, 2 |b|)
            of_line = wa * loss * (node + 2.0 * SIN_LESS_ULPS * UNIT)  # paid by: value-sine
            cube = t**3 / 6.0 * float(np.matmul(of_line, loss**2))
            line = 2.0 * t * float(np.sum(of_line))
            error = error + np.minimum(cube, line)  # pays: value-sine
            # the loss, by d/dL = s (e^(s L) - 1), with which the rounding of c L and t L is paid:
            # |e^(a + ib) - 1| <= |e^a - 1| + e^a min(|b|, 2)
            off = at.loss_error
            turned = np.minimum(t * float(np.matmul(wa * loss, off)), 2.0 * np.matmul(wa, off))
            error = error + s * (float(np.matmul(step, off)) + turned)  # pays: value-loss
            error = error + s * at.mean_error  # pays: value-mean
            error = error + (lost.mass_error + s * lost.slope_error)  # pays: value-lost
        error = outwards(error) + self._cut(c, s, rule, at, wa)
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
        right = right / math.expm1(min(rule.h * rate, 700.0)) if rate > _SLOWEST else s + np.inf
        # left: R <= 1, and R^power grows by m q e^y / R per step, which falls; w is at least 1/2
        # and grows to 1 (rare: it falls)
        rate = first - max(0.0, -power) * self.m * outwards(self._rise(-first))
        left = also * 2.0 * math.exp(-0.5 * first**2) * rule.h
        left = left + float(wa[0]) * (1.0 if rare else 2.0)
        left = left / math.expm1(min(rule.h * rate, 700.0)) if rate > _SLOWEST else s + np.inf
        # weights and exponents are within a relative 1e-9 there, and so is a rate that is not tiny
        return outwards(right + left)

    def _aliased(self, s: FloatArray, rule: _Rule) -> FloatArray:
        """The error of the trapezoidal rule for w P (e^(s L) - 1 + s (e^-L - 1))."""
        moved = rule.error(rule.log_moved)
        if self.part == "rare":
            return np.full_like(s, moved)
        still = rule.error(float(self._log_growth(1.0, np.array(rule.width))))
        return outwards(moved + still * 2.0 * (1.0 + s))

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
        most = add_up(float(value[0].real), float(error[0]))
        if not most < math.inf:
            return math.inf
        if self.part == "rare":
            return log_up(most) if most > 0 else -700.0
        return log1p_up(most)

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
        # R(x + ia) is 1 - q and a multiple of e^(ima), by exp, cos, sin and some ten operations: at
        # y < 0 they touch the share q e^y / R only. 1 - q, a square and two sums cost 6 units more;
        # y costs what it does for the loss, q its roundings. |R(x + ia)| >= R(x) cos(m a / 2)
        least = math.cos(0.5 * self.m * shift)
        share = np.where(at.y > 0, 1.0, at.pull) / least
        turn = share * (3.0 * np.abs(at.y) + 0.5 * self.m**2 + EXP + 2.0 * TURN + 10.0)
        turn += share * 2.0 * MOST_NESTED
        stretch = turn + (6.0 + MOST_NESTED * np.exp(math.log(self.q) - self._log_r(at))) / least
        off = t * turn / least * UNIT  # pays: beyond-argument
        off = off + abs(power) * stretch * UNIT  # pays: beyond-modulus
        # logarithm, multiples and sums of the exponent; its weight, whose error has room for exp,
        # and the sum in any order
        size = np.abs(log) + t * self.m * shift + 1.0
        size += abs(power) * (np.abs(at.loss) + np.maximum(at.y, 0.0) + 2.0 * share)
        off = off + (LOG + 4.0) * size * UNIT  # pays: beyond-exponent
        off = off + at.weight_error + (log.size + 3.0) * UNIT  # pays: beyond-weight
        total = float(np.sum(np.exp(log) * (1.0 + outwards(np.expm1(off)))))
        wa = at.powers(c)[1]
        cut = float(self._cut(c, np.zeros(1), rule, at, wa)[0])
        # e^growth times the integral of w P e^(c L), which its own sum bounds
        missed = float(rule.error(float(self._log_growth(power, np.array(rule.width)))))
        whole = (float(np.sum(wa)) + cut) / (1.0 - missed) if missed < 0.5 else math.inf
        # a bulk's factor above is at most 2 A + 3 <= 5 A < e^3 A
        outside = mul_up(exp_up(float(self._log_growth(power, np.array(shift))) + 3.0), cut)
        total = add_up(
            total,
            mul_up(float(rule.error(growth[best])), outwards(whole)),
            outside,
        )
        return log_up(max(total, 1e-300)) if total < math.inf else math.inf


@functools.lru_cache(maxsize=256)
def _planned(transform: MixedTransform, rule: _Rule) -> _At:
    """What all planning of one transform shares."""
    return transform._at(rule)


@functools.lru_cache(maxsize=256)
def _ruled(transform: MixedTransform, c: float, t: float, tolerance: float) -> _Rule:
    """What a line costs is asked before its values."""
    return transform._rule(c, t, tolerance)
