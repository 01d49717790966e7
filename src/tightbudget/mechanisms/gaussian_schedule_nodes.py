"""The integrands of many sampled Gaussian steps at the nodes of one rule in y.

``gaussian_schedule`` has y, S and the density that tells the steps apart. This file has the steps,
and their weights at the nodes of a trapezoidal rule, each step with a bound of its rounding error.
A line that ends in "pays: name" pays for what docs/explanation/rounding.md says under that name.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np

from tightbudget.mechanisms.gaussian_integrand import MOST_NESTED
from tightbudget.mechanisms.smooth_end import SmoothEnd
from tightbudget.numerics.rounding import (
    EXP,
    LOG,
    LOG1P,
    TURN,
    UNIT,
    FloatArray,
    outwards,
)

DENSITY_0 = 1.0 / math.sqrt(2.0 * math.pi)  # within 3 units of 2^-53
# -ln of the relative error of each step's value: e^-36 = 2e-16 is below the rounding of its weights
LOG_ERROR = 36.0
# numbers of a matrix of weights, 160 MB: a longer rule says nothing, and the buckets answer
MOST = 20_000_000
BLOCK = 2**18  # numbers of the matrix that are made at a time: temporary arrays of 2 MiB
# a relative error of a weight from which on nothing is said, so that second orders are negligible
VAGUE = 1e-6
# ln of what a double holds, with room for sums
RANGE = 690.0

_STEP_BITS = 12  # of h: i h is a double for |i| < 2^41
# The planner represents steps with about the same m and q by one of them: so far apart, relatively.
# The second order of the difference is 1e-3 of ln M; plans need no more.
_ALIKE = 0.06


class Step(NamedTuple):
    """One sampled Gaussian step of a schedule.

    Attributes:
        m: sensitivity / sigma, rounded once.
        q: the sampling rate in (0, 1), rounded at most MOST_NESTED times.
        runs: how often the step runs, below 2^53.
    """

    m: float
    q: float
    runs: int


class RuleInY(NamedTuple):
    """A trapezoidal rule in y: the nodes first h ... last h, and the strip |Im y| < width."""

    h: float
    first: int
    last: int
    width: float

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self.last - self.first + 1


class TiltedSteps(NamedTuple):
    """The matrix of weights of n steps at the b nodes of a rule, tilted to Re s = c.

    Attributes:
        y: (b,) the nodes.
        log_s: (b,) ln S at the nodes.
        weight: (n, b) h phi(x) / m R^p, p = Re z.
        total: (n,) the sums of the rows, about M(c).
        lever: (n,) the sums of weight ln S.
        error: (n,) a bound of the error of any sum of weight times numbers of modulus <= 1.
        left: (n,) a bound of the terms at all nodes to the left of the rule.
        right: (n,) a bound of the terms at all nodes to the right of the rule.
        falls: (2, n) how fast R^p phi falls to the left and to the right, per unit of y.
        vague: (n,) a bound of the relative error of each weight.
        sides: (2, b - 1) ln w at the left and at the right end of the cells between the nodes.
    """

    y: FloatArray
    log_s: FloatArray
    weight: FloatArray
    total: FloatArray
    lever: FloatArray
    error: FloatArray
    left: FloatArray
    right: FloatArray
    falls: FloatArray
    vague: FloatArray
    sides: FloatArray


@dataclass(frozen=True, eq=False)
class Steps:
    """Many sampled Gaussian steps of one direction.

    Attributes:
        m: (n,) sensitivity / sigma of each step.
        q: (n,) the sampling rate of each step, in (0, 1).
        count: (n,) how often each step runs, integers as doubles.
        remove: whether P is the side that has the record.
        end: weighs all integrands, where the largest losses of a removed record are left out.
    """

    m: FloatArray
    q: FloatArray
    count: FloatArray
    remove: bool
    end: SmoothEnd | None = None
    _kept: dict[tuple[float, float], TiltedSteps] = field(default_factory=dict, repr=False)

    @functools.cached_property
    def odds(self) -> FloatArray:
        """The array a = ln(q / (1 - q)), shape (n,)."""
        return np.asarray(np.log(self.q) - np.log1p(-self.q))

    @functools.cached_property
    def odds_error(self) -> FloatArray:
        """The array of bounds of the error of ``odds``, shape (n,)."""
        # q moves ln(q / (1 - q)) by dq / (q (1 - q)); then two logarithms and their difference
        moved = MOST_NESTED / (1.0 - self.q)
        made = LOG * np.abs(np.log(self.q)) + LOG1P * np.abs(np.log1p(-self.q))
        return outwards((moved + made + np.abs(self.odds)) * UNIT)  # pays: schedule-odds

    @functools.cached_property
    def log_rest(self) -> FloatArray:
        """The array ln(1 - q), shape (n,)."""
        return np.asarray(np.log1p(-self.q))

    @functools.cached_property
    def log_rest_error(self) -> FloatArray:
        """The array of bounds of the error of ``log_rest``, shape (n,)."""
        moved = MOST_NESTED * self.q / (1.0 - self.q)
        made = moved + LOG1P * np.abs(self.log_rest)
        return outwards(made * UNIT)  # pays: schedule-rest

    @functools.cached_property
    def some(self) -> Self:
        """Few steps that stand for all in plans."""
        log_m, log_q = np.log(self.m), np.log(self.q)
        wide = max(_ALIKE, float(np.ptp(log_q)) / 8.0)
        cell_m = np.floor((log_m - log_m.min()) / _ALIKE).astype(np.int64)
        cell_q = np.floor((log_q - log_q.min()) / wide).astype(np.int64)
        cells = cell_m * (int(cell_q.max()) + 1) + cell_q
        # at large c one step decides, the one with the least noise: it stands for itself
        cells[int(np.argmax(self.m))] = -1
        # about ln M(1), which says how much a step weighs
        size = self.count * self.q**2 * np.expm1(np.minimum(self.m**2, RANGE))
        rows: list[tuple[float, float, float]] = []
        for cell in np.unique(cells):
            inside = np.flatnonzero(cells == cell)
            weight = size[inside] / np.sum(size[inside])
            off = np.abs(log_m[inside] - weight @ log_m[inside])
            off += np.abs(log_q[inside] - weight @ log_q[inside])
            one = inside[int(np.argmin(off))]
            share = float(np.sum(size[inside]) / size[one]) * float(self.count[one])
            rows.append((float(self.m[one]), float(self.q[one]), share))
        m, q, count = (np.array(row) for row in zip(*rows, strict=True))
        return dataclasses.replace(self, m=m, q=q, count=count, _kept={})

    @functools.cached_property
    def fine(self) -> float:
        """A step that tells M to some digits: a third of a standard deviation of the narrowest."""
        least = float(self.m.min())
        smooth = math.inf if self.end is None else 0.5 * self.end.width
        return float(2.0 ** math.floor(math.log2(min(0.3 * least, 0.8, smooth))))

    def power(self, c: float) -> float:
        """The real part of the exponent z on the line Re s = c."""
        return 1.0 + c if self.remove else -c

    def ends(self, c: float, h: float, goal: float) -> tuple[int, int]:
        """The first and last node of a rule outside which each step has about e^-goal of M(c)."""
        m, power = self.m, self.power(c)
        reach = math.sqrt(2.0 * goal) + h / m
        far = np.maximum(m, max(power, 0.0) * m) + reach
        # the least peak of phi R^power is where x = power m q e^y / R
        low, high = min(power, 0.0) * m, np.zeros_like(m)
        for _ in range(18 if power < 0 else 0):
            x = 0.5 * (low + high)
            below = x < power * m * logistic(m * (x - 0.5 * m) + self.odds)
            low, high = np.where(below, x, low), np.where(below, high, x)
        near = low - reach
        last = float(np.max(m * (far - 0.5 * m) + self.odds))
        if power < 0.0:  # M(c) is 1 or more, and R^power rises no more
            most = goal / -power - float(np.min(self.log_rest))
            last = min(last, math.log(math.expm1(min(most, RANGE))))
        if self.end is not None:
            y = self.end.places(power, goal)
            x = (y - self.odds[:, None]) / m[:, None] + 0.5 * m[:, None]
            log = power * self.log_rest[:, None] - 0.5 * np.maximum(x, 0.0) ** 2
            log = power * ln_s(y) + np.max(log, axis=0) + self.end.log_share(y)[0]
            above = np.flatnonzero(log >= -goal)
            last = float(y[min(int(above[-1]) + 1 if above.size else 1, y.size - 1)])
        return math.floor(float(np.min(m * (near - 0.5 * m) + self.odds)) / h), math.ceil(last / h)

    def rule(self, c: float, h: float, width: float, goal: float = LOG_ERROR) -> RuleInY:
        """A rule with a step of at most h, whose nodes reach to where the terms are e^-goal."""
        scale = 2.0 ** (_STEP_BITS - math.frexp(h)[1])
        h = math.floor(h * scale) / scale
        return RuleInY(h, *self.ends(c, h, goal), width)

    def log_share(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """ln of the weight that ends the losses, and its error, three sums included."""
        if self.end is None:
            return np.zeros_like(y), np.zeros_like(y)
        return self.end.log_share(y)

    def weights(self, c: float, rule: RuleInY) -> TiltedSteps | None:
        """The weights at the nodes of a rule, with their errors; None where there are too many."""
        key = (c, rule.h)
        if (found := self._kept.get(key)) is not None and found.y.size == rule.size:
            return found
        m, n = self.m, self.m.size
        if n * rule.size > MOST:
            return None
        y = rule.h * np.arange(rule.first, rule.last + 1, dtype=np.float64)
        log_s, power = ln_s(y), self.power(c)
        log_share, share_error = self.log_share(y)
        tilt = power * log_s + log_share
        base = np.log(rule.h * DENSITY_0 / m) + power * self.log_rest
        weight = np.empty((n, y.size))
        square = np.empty(n)  # sums of weight x^2
        rows = max(1, BLOCK // y.size)
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            x = (y - self.odds[part, None]) / m[part, None]
            x += 0.5 * m[part, None]
            x *= x
            w = np.exp(base[part, None] + tilt - 0.5 * x)
            weight[part] = w
            square[part] = np.einsum("ib,ib->i", w, x)
        total, lever = np.sum(weight, axis=1), np.matmul(weight, log_s)
        # x: a moves it by da / m; y - a, the quotient (m twice) and the sum by 4 |x| + 5/2 m units
        slide = self.odds_error / m + 2.5 * UNIT * m
        error = np.zeros(n)
        # |x| |dx| with sum w |x| <= (sum w sum w x^2)^(1/2); the second order of dx
        error = error + slide * (np.sqrt(total * square) + slide * total)  # pays: schedule-place
        # 4 units of x^2 by x; x^2 / 2 and both sums of the exponent
        error = error + 6.0 * UNIT * square  # pays: schedule-square
        # ln(h phi(0) / m), whose argument has 6 units; the product with ln(1 - q); the exponential
        fixed = np.abs(base) + 2.0 * abs(power) * np.abs(self.log_rest)
        fixed = (LOG + 4.0) * fixed * UNIT + abs(power) * self.log_rest_error
        fixed = fixed + (6.0 + EXP) * UNIT
        error = error + fixed * total  # pays: schedule-weight
        # ln S, by e^-|y| and log1p and a sum; 1 + c and the product; three sums of the exponent
        spread = abs(power) * (EXP + LOG1P + 6.0) * UNIT
        error = error + spread * lever  # pays: schedule-loss
        error = error + np.matmul(weight, share_error)  # pays: schedule-share
        # at most |x| = (y - a) / m + m / 2 at one of the ends, for the largest error of a weight
        ends = (y[[0, -1], None] - self.odds) / m + 0.5 * m
        top = np.max(np.abs(ends), axis=0)
        worst = slide * top + slide**2 + 6.0 * UNIT * top**2 + fixed + spread * log_s[-1]
        worst = worst + float(np.max(share_error))
        error = np.where(worst <= VAGUE, error * (1.0 + VAGUE), np.inf)
        # a weight that underflows is below 1e-300 of a step that runs
        error = error + y.size * 1e-300
        # outside: phi falls like e^(-x dy / m), and R^power grows by power S' / S per unit of y
        left = -ends[0] / m - max(0.0, -power) * math.exp(y[0] - log_s[0])
        right = ends[1] / m - max(power, 0.0)
        falls = np.stack([left, right])
        steps = np.expm1(np.minimum(rule.h * falls, RANGE))
        with np.errstate(divide="ignore", invalid="ignore"):
            outer = np.where(steps > 0, np.stack([weight[:, 0], weight[:, -1]]) / steps, np.inf)
        if self.end is not None:
            after = self.end.after(power, float(y[-1]))
            more = after.log_nodes(rule.h) if after.rate > 0.0 else math.inf
            beyond = weight[:, -1] * (math.exp(more) if more < RANGE else math.inf)
            # there phi falls
            outer[1] = np.where(ends[1] > 0.0, beyond, np.inf)
        outer = outwards(outer * (1.0 + VAGUE)) + 1e-300
        vague = np.where(worst <= VAGUE, outwards(worst * (1.0 + VAGUE)), np.inf)
        made = TiltedSteps(
            y, log_s, weight, total, lever, outwards(error), outer[0], outer[1], falls,
            vague, np.stack([log_share[:-1], log_share[1:]]),
        )  # fmt: skip
        self._kept.clear()  # the matrix is large, and the next line is elsewhere
        self._kept[key] = made
        return made


def ln_s(y: FloatArray) -> FloatArray:
    """ln S = ln(1 + e^y)."""
    return np.asarray(np.maximum(y, 0.0) + np.log1p(np.exp(-np.abs(y))))


def logistic(y: FloatArray) -> FloatArray:
    """e^y / (1 + e^y)."""
    return np.asarray(np.exp(y - ln_s(y)))


def turned_s(
    y: FloatArray, shift: FloatArray, power: float, t: float = 0.0
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """ln |S(y + i a) / S(y)| and arg S(y + i a) for a = ``shift``.

    The third array bounds the error of ``power`` times the first, minus ``t`` times the second.
    """
    fall = np.exp(-np.abs(y))
    # |S(y + ia)|^2 = S^2 (1 - w), w = 4 sin^2(a / 2) e^y / (1 + e^y)^2 <= sin^2(a / 2)
    w = 4.0 * np.sin(0.5 * shift) ** 2 * fall / (1.0 + fall) ** 2
    less = 0.5 * np.log1p(-w)
    # numerator and denominator of tan arg S, over max(1, e^y)
    near, far = np.exp(np.minimum(y, 0.0)), np.exp(-np.maximum(y, 0.0))
    up, along = near * np.sin(shift), far + near * np.cos(shift)
    angle = np.arctan2(up, along)
    # w: e^-|y| once and its square, sin twice, and eight operations
    off_w = w / (1.0 - w) * (2.0 * EXP + 2.0 * TURN + 8.0)
    off = abs(power) * (0.5 * off_w + (LOG1P + 2.0) * np.abs(less))
    # each part moves the argument by its error over the modulus; 1 + e^y cos a by one unit of it
    made = (2.0 * (EXP + TURN + 1.0) * near) / np.hypot(up, along)
    made = made + np.where(y > 0, EXP * far / np.hypot(up, along), 0.0)
    off = off + t * (made + (TURN + 3.0) * angle)
    return less, angle, outwards(off * UNIT)  # pays: schedule-turned
