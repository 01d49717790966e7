"""The integrand of a sampled Gaussian's moment generating function, at the nodes of a rule in x.

With R(x) = 1 - q + q e^y, y = m x - m^2/2, and x standard normal without the record,

    remove: P = R phi, L =  ln R;        add: P = phi, L = -ln R;

and M(s) = E_P[e^(s L)] is an integral over x. A trapezoidal rule takes it: R has no zero for
|Im x| < pi / m. This file says where the integrand is large, and evaluates its ingredients at the
nodes of such a rule, each with a bound of its rounding error.

``loss_error`` and ``weight_error`` belong to the ingredients at one node. An operation on doubles
costs one ``UNIT`` of its result, a call costs what ``numerics.rounding`` grants it (``EXP``,
``LOG``, ...). A line that ends in "pays: name" pays for what docs/explanation/rounding.md says
under that name.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

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
from tightbudget.numerics.special import (
    LESS_ULPS,
    expm1_less,
    log_normal_tail,
    log_normal_tail_slack,
)

# samplings within samplings, each of which rounds q once; each of them is paid for at every node,
# so that a larger number would widen the answers for a sampling that is not nested
MOST_NESTED = 8
# nodes of a rule, 0.4 MB an array: where a line needs more, it says nothing and the buckets answer
MOST_NODES = 50_000

_LOOKS = 40  # at the slope of ln R, for a peak; each takes a microsecond
_BEYOND = 3.0  # widths of a smooth step: what is larger there is not the step's own
_STEP_BITS = 12  # of the trapezoidal step: i h is a double for |i| < 2^41
_FAR = 600.0  # y beyond which q e^y may overflow; (1 - q) / (q e^y) < 1e-245 there
_DENSITY_0 = 1.0 / math.sqrt(2.0 * math.pi)  # within 3 units of 2^-53


class Rule(NamedTuple):
    """A trapezoidal rule with the nodes first h ... last h, for a strip |Im x| < width."""

    h: float
    first: int
    last: int
    width: float
    log_moved: float = math.inf  # ln of a bound of the integral of |f| at its width

    def error(self, log_growth: FloatArray | float) -> FloatArray:
        """The aliasing 2 N / (e^(2 pi a / h) - 1) of the rule, for given ln N.

        N is an upper bound of the integral of |f| on Im x = a and on Im x = -a, a the width.
        Source: Trefethen, Weideman 2014, Theorem 5.1.
        """
        decay = 2.0 * math.pi * self.width / self.h
        with np.errstate(over="ignore", divide="ignore"):
            # guard: error-rule-x
            error = 2.0 / -np.expm1(-decay) * np.exp(np.asarray(log_growth) - decay)
        return outwards(error)


class DensityRatio(NamedTuple):
    """The density ratio R at points x on the real axis: arrays have the shape (n,)."""

    log_r: FloatArray
    log_error: FloatArray  # how far log_r may be off, without the error of its last logarithm
    pull: FloatArray  # d ln R / dx over m, in [0, 1]
    scale: FloatArray  # about ln of the largest term of R


class Rotated(NamedTuple):
    """The values R(x + i a) = e^scale (real + i side): arrays have the shape (k, n) or (n,)."""

    real: FloatArray
    side: FloatArray
    scale: FloatArray


class RotatedUnits(NamedTuple):
    """Errors of R(x + i a) in units of 2^-53: arrays have the shape (n,)."""

    share: FloatArray  # at least about |arg R| and |ln |R(x + i a)| / R(x)|
    argument: FloatArray  # absolute error of arg R(x + i a)
    modulus: FloatArray  # relative error of |R(x + i a)|


class LeftOut(NamedTuple):
    """The P-mass and the share of E_P[1 - e^-L] that a part leaves out, with their errors."""

    mass: float
    slope: float
    mass_error: float
    slope_error: float


@dataclass(frozen=True)
class Nodes:
    """The integrand's ingredients at the n nodes of a rule: arrays have the shape (n,)."""

    x: FloatArray
    scale: FloatArray  # about ln of the largest term of R
    loss: FloatArray
    loss_error: FloatArray  # how far the loss may be off, with the rounding of s times it
    pull: FloatArray  # d ln R / dx over m, in [0, 1]
    log_weight: FloatArray  # ln of the weight h w P, w the share of the part
    weight: FloatArray
    weight_error: FloatArray  # relative, of weight; its largest part is also that of log_weight
    inverse: FloatArray  # weight e^-L
    mean: float  # E_P[w (e^-L - 1 + L)]
    mean_error: float

    def powers(self, c: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """The arrays c L and weight e^(c L); ``power_error`` bounds the error of the second."""
        a = np.multiply.outer(c, self.loss)
        return a, np.exp(a + self.log_weight)

    def power_error(self, a: FloatArray) -> FloatArray:
        """A bound of the relative error of weight e^a for a = c L, apart from the error of a."""
        return self.weight_error + UNIT * np.abs(a + self.log_weight)  # pays: power

    def excess(self, a: FloatArray, wa: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The arrays weight (e^a - 1) and weight (e^a - 1 - a), where ``wa`` is weight e^a."""
        w, small = self.weight, np.abs(a) < 0.5
        near = np.where(small, a, 0.0)
        return (
            np.where(small, w * np.expm1(near), wa - w),
            np.where(small, w * expm1_less(near), wa - w * (1.0 + a)),
        )


@dataclass(frozen=True)
class Integrand:
    """w P e^(s L) over x, for a Gaussian step that sees the record with probability q < 1.

    ``part`` limits M to one side of a smooth step: "bulk" weighs the integrand by
    w = Phi((edge - x) / width), "rare" by w = Phi((x - edge) / width); their sum is M. Without a
    part w = 1.

    Attributes:
        m: sensitivity / sigma of the step.
        q: the sampling rate, in (0, 1).
        remove: whether P is the side that has the record.
        part: "", "bulk" or "rare".
        edge: where the smooth step is, in units of x; a multiple of 1/16.
        width: how wide the smooth step is.
        nested: how many rates have been multiplied to make q, each product with one rounding.
    """

    m: float
    q: float
    remove: bool
    part: str = ""
    edge: float = 0.0
    width: float = 0.25
    # not compared: equal integrands have equal values, with a margin for MOST_NESTED roundings
    nested: int = field(default=1, compare=False, kw_only=True)

    @property
    def strip(self) -> float:
        """The widest strip |Im x| that is worth a look: a smooth step grows by e^(a^2 / 2w^2)."""
        return min(math.pi / self.m, 16.0 * self.width if self.part else 12.0)

    def power(self, c: float) -> float:
        """The exponent z for which P e^(c L) = phi R^z."""
        return 1.0 + c if self.remove else -c

    def log_r(self, at: Nodes) -> FloatArray:
        """ln R at the nodes."""
        return at.loss if self.remove else -at.loss

    def farthest_peak(self, power: float) -> float:
        """About the largest x at which phi R^power may have a peak.

        Beyond a bulk's edge d ln R / dx may be far below m: what it is there decides.
        """
        peak = max(0.0, power) * self.m
        if self.part == "bulk" and peak > self.edge:
            peak = self.edge if self.ends_at_edge(power) else self._beyond_edge(peak)
        return max(peak, self.m, self.edge if self.part == "rare" else 0.0)

    def ends_at_edge(self, power: float) -> bool:
        """Whether w phi R^power is nowhere beyond a bulk's edge larger than at the edge, about."""
        last = max(2.0 * _BEYOND, 1.5 * power * self.m * self.width)
        u = np.append(0.0, np.geomspace(_BEYOND, last, 64))
        x = self.edge + self.width * u
        log = power * self.about_log_r(x) - 0.5 * x * x - 0.5 * u * u
        return bool(np.all(log[1:] <= log[0]))

    def _beyond_edge(self, steepest: float) -> float:
        # beyond the edge the weight falls like a normal density
        inside = self.width**2 / (1.0 + self.width**2)
        peak = self.edge + (steepest - self.edge) * inside
        for _ in range(_LOOKS):
            before, peak = peak, self.edge
            peak += max(0.0, steepest * self.rise(before) - self.edge) * inside
            if before - peak < 0.5:
                break
        return before

    def nearest_peak(self, power: float) -> float:
        """About the least x at which phi R^power may have a peak: there x = power m q e^y / R."""
        low, high = min(power, 0.0) * self.m, 0.0
        for _ in range(18 if low < -0.1 else 0):
            middle = 0.5 * (low + high)
            below = middle < power * self.m * self.rise(middle)
            low, high = (middle, high) if below else (low, middle)
        return high if low < -0.1 else 0.0

    def rise(self, x: float) -> float:
        """q e^y / R at x, uncertified; m times it is d ln R / dx."""
        y = math.log(self.q) - math.log1p(-self.q) + self.m * (x - 0.5 * self.m)
        return 1.0 / (1.0 + math.exp(min(-y, 700.0)))

    def rule(self, power: float, goal: float, h: float, width: float) -> Rule:
        """A rule with a step of at most h, whose nodes reach to where phi R^power is e^-goal."""
        scale = 2.0 ** (_STEP_BITS - math.frexp(h)[1])
        h = math.floor(h * scale) / scale
        reach = math.sqrt(2.0 * goal) + h
        last = math.ceil((self.farthest_peak(power) + reach) / h)
        return Rule(h, math.floor((self.nearest_peak(power) - reach) / h), last, float(width))

    def ratio(self, x: FloatArray) -> DensityRatio:
        """Returns R at points x of the real axis, with the errors of its parts."""
        m, q = self.m, self.q
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
        log_error = pull * y_error + np.where(moved < 0.5, moved * (1.0 + moved), np.inf)
        far = np.where(y > _FAR, abs(log_q), 0.0)
        log_error = log_error + LOG * far * UNIT  # pays: loss-far
        return DensityRatio(log_r, log_error, pull, np.maximum(y, 0.0))

    def about_log_r(self, x: FloatArray) -> FloatArray:
        """Returns ln R at points x of the real axis, within a relative 1e-9, without errors."""
        y = self.m * (x - 0.5 * self.m)
        return np.asarray(np.logaddexp(math.log1p(-self.q), math.log(self.q) + y))

    def rotated(self, x: FloatArray, a: FloatArray) -> Rotated:
        """Returns R at the points x + i a, for each a in [0, pi / m): arrays of shape (k, n)."""
        turn = self.m * a[:, None]
        y = self.m * (x - 0.5 * self.m)
        rise = self.q * np.exp(np.minimum(y, 0.0))
        real = (1.0 - self.q) * np.exp(-np.maximum(y, 0.0)) + rise * np.cos(turn)
        return Rotated(real, rise * np.sin(turn), np.maximum(y, 0.0))

    def rotated_units(self, at: Nodes, least: float) -> RotatedUnits:
        """Returns errors of R(x + i a) at the nodes, in units of 2^-53.

        Args:
            at: the nodes.
            least: a lower bound of |R(x + i a)| / R(x).
        """
        # R(x + ia) is 1 - q and a multiple of e^(ima), by exp, cos, sin and some ten operations: at
        # y < 0 they touch the share q e^y / R only. 1 - q, a square and two sums cost 6 units more;
        # y costs what it does for the loss, q its roundings
        y = self.m * (at.x - 0.5 * self.m)
        share = np.where(y > 0, 1.0, at.pull) / least
        turn = share * (3.0 * np.abs(y) + 0.5 * self.m**2 + EXP + 2.0 * TURN + 10.0)
        turn += share * 2.0 * MOST_NESTED
        rest = 6.0 + MOST_NESTED * np.exp(math.log(self.q) - self.log_r(at))
        return RotatedUnits(share, turn / least, turn + rest / least)

    def at(self, rule: Rule) -> Nodes:
        """The integrand's ingredients at the nodes of a rule, with their errors."""
        x = rule.h * np.arange(rule.first, rule.last + 1, dtype=np.float64)
        log_r, loss_error, pull, scale = self.ratio(x)
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
        return Nodes(
            x, scale, loss, loss_error, pull, log_weight, weight, weight_error, inverse, mean,
            mean_error,
        )  # fmt: skip

    @functools.cached_property
    def left_out(self) -> LeftOut:
        """E_P[1 - w] and E_P[(1 - w)(1 - e^-L)] of a bulk, with their errors; else 0.

        E_P[w e^(s L)] - 1 is E_P[w (e^(s L) - 1 - s L)] + s E_P[w (e^-L - 1 + L)] without the first
        and without s times the second.
        """
        if self.part != "bulk":
            return LeftOut(0.0, 0.0, 0.0, 0.0)
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
        return LeftOut(
            first, more if self.remove else -more, float(outwards(error)),
            float(outwards(slope_error)),
        )  # fmt: skip
