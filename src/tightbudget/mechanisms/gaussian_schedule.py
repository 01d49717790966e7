"""Many sampled Gaussian steps, each with a noise and a rate of its own, as one transform.

A step with sensitivity / sigma = m and sampling rate q has the moment generating function
M(s) = E[R(x)^z], x standard normal, z = 1 + s (remove) or z = -s (add), with
R(x) = 1 - q + q e^(m x - m^2/2) (``gaussian_integrand``). Let a = ln(q / (1 - q)), and substitute
y = m x - m^2/2 + a. Then R = (1 - q) S(y) with S(y) = 1 + e^y, which is the same function for all
steps. Only a normal density tells the steps apart:

    M(s) = (1 - q)^z  integral of  phi(x(y)) / m  S(y)^z dy,    x(y) = (y - a) / m + m / 2.

One trapezoidal rule in y therefore serves all steps at once. On a line s = c + i t the terms are
weights, a matrix with a row for each step, times e^(+-i t ln S), a matrix with a column for each t:
a thousand steps cost one product of matrices, and the exponentials of one step.

Every bound is one of ``gaussian_transform_bounds`` (docs/explanation/contour.md) in the variable y,
which is m times as wide as x:

- *The rule.* S has its zeros at Im y = +-pi. In |Im y| <= b < pi the density grows by
  e^(b^2 / (2 m^2)), |S| lies between S cos(b/2) and S, and arg S(y + i b) rises with y. The
  integral of the modulus is bounded cell by cell between the nodes: ln of the integrand has a
  second derivative of at least -1/m^2 - max(0, -p)/4, p the real part of z, so that between two
  nodes it exceeds its chord by h^2/8 times that at most. Beyond the nodes the integrand falls as
  exponentials do: by x/m, less the growth of R^p, per unit of y.
- *The rest of the line.* The lemma holds with S for R and Im y = b for Im x = b/m; one b serves all
  steps. |S(y + i b) / S(y)|^2 = 1 - 4 sin^2(b/2) e^y / (1 + e^y)^2. The rule on the moved line may
  be widened to min(pi/2, pi - b).

Values are M and not M - 1: a step is known to some 1e-14, and k runs to k times that. For a
schedule of a thousand steps, that leaves ten digits of delta. A line that ends in "pays: name" pays
for what docs/explanation/rounding.md says under that name.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tightbudget.mechanisms.gaussian_integrand import MOST_NESTED
from tightbudget.numerics.rounding import (
    EXP,
    LOG,
    LOG1P,
    TURN,
    UNIT,
    FloatArray,
    next_up,
    outwards,
)
from tightbudget.pairs.transform import ComplexArray, Line, Rough, Transform

_DENSITY_0 = 1.0 / math.sqrt(2.0 * math.pi)  # within 3 units of 2^-53
# -ln of the relative error of each step's value: e^-36 = 2e-16 is below the rounding of its weights
_GOAL = 36.0
# A panel's steps share one rule, which is as fine as the least m asks for and as long as the
# largest: beyond a factor of three two rules have fewer terms than one. It affects time only.
_PANEL = 3.0
_STEP_BITS = 12  # of h: i h is a double for |i| < 2^41
# numbers of a matrix of weights, 160 MB: a longer rule says nothing, and the buckets answer
_MOST = 20_000_000
_BLOCK = 2**18  # numbers of the matrix that are made at a time: temporary arrays of 2 MiB
# On one core a complex exponential took 17 ns, and a logarithm of one value with its error 74 ns. A
# multiplication and addition in a product of matrices took 0.05 ns, and is counted as 0.3 ns, for
# processors with narrower vectors.
_PRODUCTS = 50.0
_LOGARITHMS = 5.0
# The planner represents steps with about the same m and q by one of them: so far apart, relatively.
# The second order of the difference is 1e-3 of ln M; plans need no more.
_ALIKE = 0.06
# a relative error of a weight from which on nothing is said, so that second orders are negligible
_VAGUE = 1e-6
# ln of what a double holds, with room for sums
_RANGE = 690.0


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


class _Rule(NamedTuple):
    """A trapezoidal rule in y: the nodes first h ... last h, and the strip |Im y| < width."""

    h: float
    first: int
    last: int
    width: float

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self.last - self.first + 1


class _Tilted(NamedTuple):
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


@dataclass(frozen=True, eq=False)
class Schedule(Transform):
    """The product of the moment generating functions of many sampled Gaussian steps.

    Attributes:
        m: (n,) sensitivity / sigma of each step.
        q: (n,) the sampling rate of each step, in (0, 1).
        count: (n,) how often each step runs, integers as doubles.
        remove: whether P is the side that has the record.
    """

    m: FloatArray
    q: FloatArray
    count: FloatArray
    remove: bool
    _kept: dict[tuple[float, float], _Tilted] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(steps: Sequence[Step], remove: bool) -> tuple[Schedule, ...]:
        """Makes one schedule for each panel of similar m, which together have all ``steps``."""
        ordered = sorted(steps)
        found: list[Schedule] = []
        while ordered:
            end = next(
                (i for i, one in enumerate(ordered) if one.m > _PANEL * ordered[0].m), len(ordered)
            )
            rows = zip(*ordered[:end], strict=True)
            m, q, count = (np.array(row, dtype=np.float64) for row in rows)
            found.append(Schedule(m, q, count, remove))
            ordered = ordered[end:]
        return tuple(found)

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
    def some(self) -> Schedule:
        """A schedule of few steps that stands for this one in plans."""
        log_m, log_q = np.log(self.m), np.log(self.q)
        wide = max(_ALIKE, float(np.ptp(log_q)) / 8.0)
        cell_m = np.floor((log_m - log_m.min()) / _ALIKE).astype(np.int64)
        cell_q = np.floor((log_q - log_q.min()) / wide).astype(np.int64)
        cells = cell_m * (int(cell_q.max()) + 1) + cell_q
        # at large c one step decides, the one with the least noise: it stands for itself
        cells[int(np.argmax(self.m))] = -1
        # about ln M(1), which says how much a step weighs
        size = self.count * self.q**2 * np.expm1(np.minimum(self.m**2, _RANGE))
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
        return Schedule(m, q, count, self.remove)

    def power(self, c: float) -> float:
        """The real part of the exponent z on the line Re s = c."""
        return 1.0 + c if self.remove else -c

    # ------------------------------------------------------------------- planning

    @property
    def farthest(self) -> float:
        # the integrand of the largest losses peaks at x = c m: a thousand standard deviations
        return 1000.0 / float(self.m.max()) if self.remove else math.inf

    def rough(self, c: FloatArray) -> Rough:
        some = self.some
        h = some.fine
        ends = [some._ends(float(end), h, _GOAL) for end in (np.min(c), np.max(c))]
        y = h * np.arange(min(e[0] for e in ends), max(e[1] for e in ends) + 1, dtype=np.float64)
        log_s = _log_s(y)
        powers = 1.0 + c if self.remove else -c
        total = np.zeros((3, c.size))
        for m, odds, rest, count in zip(some.m, some.odds, some.log_rest, some.count, strict=True):
            x = (y - odds) / m + 0.5 * m
            log_r = log_s + rest
            base = math.log(h * _DENSITY_0 / m) - 0.5 * x * x
            weight = np.exp(base + np.multiply.outer(powers, log_r))
            value = np.sum(weight, axis=1)
            mean = weight @ log_r / value
            square = weight @ (log_r * log_r) / value
            total += count * np.array([np.log(value), mean, square - mean * mean])
        sign = 1.0 if self.remove else -1.0
        return Rough(total[0], sign * total[1], total[2])

    @functools.cached_property
    def fine(self) -> float:
        """A step that tells M to some digits: a third of a standard deviation of the narrowest."""
        return float(2.0 ** math.floor(math.log2(min(0.3 * float(self.m.min()), 0.8))))

    def shifts(self, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        some = self.some
        at = some._weights(c, some._rule(c, some.fine, 0.0))
        found = np.full_like(t, np.inf), np.zeros_like(t)
        if at is None:
            return found
        rise = at.weight @ np.exp(at.y - at.log_s) / at.total
        # a^2 / (2 m^2) - t a E[d ln S / dy], summed over the steps, is least here
        best = t * float(some.count @ rise) / float(some.count @ some.m**-2.0)
        for factor in (0.03, 0.1, 0.3, 1.0):
            shift = np.minimum(factor * best, 0.9 * min(math.pi, 6.0 * float(self.m.max())))
            shrink, turn, _ = _turned(at.y, shift[:, None], self.power(c))
            moved = at.weight @ np.exp(self.power(c) * shrink - t[:, None] * turn).T
            each = np.log(moved) + 0.5 * (shift / some.m[:, None]) ** 2
            bound = some.count @ each
            better = bound < found[0]
            found = np.where(better, bound, found[0]), np.where(better, shift, found[1])
        return found

    def nodes(self, c: float, t: float, tolerance: float) -> int:
        rule = self._rule_of_line(c, t, tolerance)
        if rule is None:
            return 2**62
        n = self.m.size
        return math.ceil(rule.size * (1.0 + n / _PRODUCTS) + n * _LOGARITHMS)

    def _ends(self, c: float, h: float, goal: float) -> tuple[int, int]:
        """The first and last node of a rule outside which each step has about e^-goal of M(c)."""
        m, power = self.m, self.power(c)
        reach = math.sqrt(2.0 * goal) + h / m
        far = np.maximum(m, max(power, 0.0) * m) + reach
        # the least peak of phi R^power is where x = power m q e^y / R
        low, high = min(power, 0.0) * m, np.zeros_like(m)
        for _ in range(18 if power < 0 else 0):
            x = 0.5 * (low + high)
            below = x < power * m * _logistic(m * (x - 0.5 * m) + self.odds)
            low, high = np.where(below, x, low), np.where(below, high, x)
        near = low - reach
        return (
            math.floor(float(np.min(m * (near - 0.5 * m) + self.odds)) / h),
            math.ceil(float(np.max(m * (far - 0.5 * m) + self.odds)) / h),
        )

    def _rule(self, c: float, h: float, width: float, goal: float = _GOAL) -> _Rule:
        """A rule with a step of at most h, whose nodes reach to where the terms are e^-goal."""
        scale = 2.0 ** (_STEP_BITS - math.frexp(h)[1])
        h = math.floor(h * scale) / scale
        return _Rule(h, *self._ends(c, h, goal), width)

    def _rule_of_line(self, c: float, t: float, tolerance: float) -> _Rule | None:
        """About the shortest rule for values up to c + i t, or None where none is short enough."""
        goal = min(_GOAL, 6.0 - math.log(tolerance / float(np.sum(self.count))))
        some = self.some
        widths = np.array([0.03, 0.06, 0.12, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 0.97])
        widths = widths * min(math.pi, 12.0 * float(self.m.min()))
        at = some._weights(c, some._rule(c, some.fine, 0.0))
        if at is None:
            return None
        logs = [float(np.max(np.log(some._moved(c, t, at, w) / at.total))) for w in widths]
        # the largest share of the widest density belongs to the least m, which ``some`` may lack
        least = 0.5 * (widths / float(self.m.min())) ** 2
        needed = np.nan_to_num(np.maximum(np.array(logs), least) + goal + 2.0, nan=np.inf)
        best = int(np.argmax(widths / needed))
        h = 2.0 * math.pi * float(widths[best] / needed[best])
        if not h > 1e-6:
            return None
        rule = self._rule(c, h, float(widths[best]), goal)
        return rule if rule.size * self.m.size <= _MOST else None

    # --------------------------------------------------------------------- values

    def _weights(self, c: float, rule: _Rule) -> _Tilted | None:
        """The weights at the nodes of a rule, with their errors; None where there are too many."""
        key = (c, rule.h)
        if (found := self._kept.get(key)) is not None and found.y.size == rule.size:
            return found
        m, n = self.m, self.m.size
        if n * rule.size > _MOST:
            return None
        y = rule.h * np.arange(rule.first, rule.last + 1, dtype=np.float64)
        log_s, power = _log_s(y), self.power(c)
        base = np.log(rule.h * _DENSITY_0 / m) + power * self.log_rest
        weight = np.empty((n, y.size))
        square = np.empty(n)  # sums of weight x^2
        rows = max(1, _BLOCK // y.size)
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            x = (y - self.odds[part, None]) / m[part, None]
            x += 0.5 * m[part, None]
            x *= x
            w = np.exp(base[part, None] + power * log_s - 0.5 * x)
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
        # ln S, by e^-|y| and log1p and a sum; 1 + c and the product; both sums of the exponent
        spread = abs(power) * (EXP + LOG1P + 5.0) * UNIT
        error = error + spread * lever  # pays: schedule-loss
        # at most |x| = (y - a) / m + m / 2 at one of the ends, for the largest error of a weight
        ends = (y[[0, -1], None] - self.odds) / m + 0.5 * m
        top = np.max(np.abs(ends), axis=0)
        worst = slide * top + slide**2 + 6.0 * UNIT * top**2 + fixed + spread * log_s[-1]
        error = np.where(worst <= _VAGUE, error * (1.0 + _VAGUE), np.inf)
        # a weight that underflows is below 1e-300 of a step that runs
        error = error + y.size * 1e-300
        # outside: phi falls like e^(-x dy / m), and R^power grows by power S' / S per unit of y
        left = -ends[0] / m - max(0.0, -power) * math.exp(y[0] - log_s[0])
        right = ends[1] / m - max(power, 0.0)
        falls = np.stack([left, right])
        steps = np.expm1(np.minimum(rule.h * falls, _RANGE))
        with np.errstate(divide="ignore", invalid="ignore"):
            outer = np.where(steps > 0, np.stack([weight[:, 0], weight[:, -1]]) / steps, np.inf)
        outer = outwards(outer) + 1e-300
        made = _Tilted(y, log_s, weight, total, lever, outwards(error), outer[0], outer[1], falls)
        self._kept.clear()  # the matrix is large, and the next line is elsewhere
        self._kept[key] = made
        return made

    def _moved(self, c: float, t: float, at: _Tilted, width: float) -> FloatArray:
        """Bounds the integral of the modulus on Im y = +-width, for |Im s| <= t: shape (n,).

        There |phi| = phi e^(width^2 / (2 m^2)), |S| lies between S cos(width / 2) and S, and
        arg S rises with y. ln of the modulus on the real axis has a second derivative of at least
        -1 / m^2 - max(0, -p) / 4: between two nodes it exceeds the chord by h^2 / 8 times that.
        """
        power, m = self.power(c), self.m
        h = float(at.y[1] - at.y[0])
        angle = np.arctan2(math.sin(width), np.exp(-at.y) + math.cos(width))
        turn = np.exp(np.minimum(t * angle, _RANGE))
        turn = np.where(t * angle <= _RANGE, turn, np.inf)
        after = np.append(turn[1:], turn[-1])
        # each cell takes the larger weight of its ends, and the argument of the right one
        inner = at.weight @ (turn + after)
        bend = 0.125 * h * h * (m**-2.0 + 0.25 * max(0.0, -power))
        inner = inner * np.exp(bend)
        # beyond the nodes the modulus falls as exponentials do, and arg S < width
        tails = np.where(at.falls > 0, np.stack([at.weight[:, 0], at.weight[:, -1]]), np.inf)
        tails = (tails + 1e-300) / (h * np.where(at.falls > 0, at.falls, 1.0))
        most = math.exp(t * width) if t * width <= _RANGE else math.inf
        whole = inner + tails[0] * turn[0] + tails[1] * most
        grown = 0.5 * (width / m) ** 2 + min(power, 0.0) * math.log(math.cos(0.5 * width))
        with np.errstate(over="ignore"):
            return np.asarray(outwards(whole) * np.exp(grown))

    def _aliased(self, c: float, t: float, rule: _Rule, at: _Tilted) -> FloatArray:
        """Bounds the error of the rule for all steps, for |Im s| <= t: shape (n,)."""
        decay = 2.0 * math.pi * rule.width / rule.h
        most = self._moved(c, t, at, rule.width)
        # in two halves: e^-decay and ``most`` may be near the ends of what doubles hold
        half = math.exp(-0.5 * min(decay, 2.0 * _RANGE))
        # Trefethen, Weideman 2014, Theorem 5.1
        error = 2.0 * (most * half) * half / -math.expm1(-decay)  # guard: schedule-aliasing
        return outwards(error) + 1e-300

    def _off(self, c: float, t: float, rule: _Rule, at: _Tilted) -> FloatArray:
        """Bounds of the errors that no point changes: the rule's ends, its step, the weights."""
        rounding = at.error + (at.y.size + 4.0) * 2.0 * UNIT * at.total  # pays: schedule-order
        ends = at.left + at.right  # guard: schedule-ends
        return outwards(rounding) + ends + self._aliased(c, t, rule, at)

    def line(self, c: float, t: FloatArray, tolerance: float) -> Line:
        rule = self._rule_of_line(c, float(t[-1]), tolerance)
        at = None if rule is None else self._weights(c, rule)
        if rule is None or at is None:  # not worth it: nothing is said
            return Line(np.zeros_like(t, dtype=np.complex128), np.full_like(t, math.inf))
        off = self._off(c, float(t[-1]), rule, at)
        both = _circle(at.log_s, t)
        log, error = np.zeros_like(t, dtype=np.complex128), np.zeros_like(t)
        rows = max(1, _BLOCK // t.size)
        for start in range(0, self.m.size, rows):
            part = slice(start, start + rows)
            value, value_error = self._values(part, t, both, off, at)
            one, one_error = self._logarithm(part, t, value, value_error)
            log = log + self.count[part] @ one
            error = error + self.count[part] @ one_error
        return Line(log if self.remove else np.conj(log), outwards(error))

    def _values(
        self, part: slice, t: FloatArray, both: FloatArray, off: FloatArray, at: _Tilted
    ) -> tuple[ComplexArray, FloatArray]:
        """The sums of weight e^(i t ln S) of some steps, and how far they may be off.

        Args:
            part: the steps, n of them.
            t: (k,) the heights on the line.
            both: (b, 2 k) what :func:`_circle` returns for these heights.
            off: the part of the error that does not depend on t, of all steps.
            at: the weights.

        Returns:
            Two arrays of shape (n, k).
        """
        sums = np.matmul(at.weight[part], both)
        value = sums[:, : t.size] + 1j * sums[:, t.size :]
        total, lever = at.total[part, None], at.lever[part, None]
        error = np.zeros_like(t) + off[part, None]
        # cos and sin; ln S and its product with t
        error = error + 2.0 * TURN * UNIT * total  # pays: schedule-turn
        error = error + t * ((EXP + LOG1P + 2.0) * UNIT * lever)  # pays: schedule-angle
        return value, outwards(error)

    def _logarithm(
        self, part: slice, t: FloatArray, value: ComplexArray, error: FloatArray
    ) -> tuple[ComplexArray, FloatArray]:
        """ln of M at c + i t for its sums, and how far it may be off: shapes (n, k).

        For an added record the result is the conjugate.
        """
        size = np.abs(value)
        # where M is not told from 0, |M| <= size + error <= 3 error is all that is said
        lost = ~(size > 2.0 * error)  # guard: schedule-lost
        relative = np.where(lost, 0.0, error / np.where(lost, 1.0, size))
        modulus = np.log(np.where(lost, 3.0 * error + 1e-300, size))
        # (1 - q)^(it) has the modulus 1
        across = t * self.log_rest[part, None]
        turned = np.arctan2(value.imag, value.real)
        angle = np.where(lost, 0.0, turned + across)
        made = TURN + LOG * np.abs(modulus) + TURN * np.abs(turned) + np.abs(across)
        # modulus and logarithm; the argument, the product with t and their sum; and the product
        # with the count and one unit of the sum over the steps for each of them
        made = made + np.abs(angle) + (self.m.size + 2.0) * (np.abs(modulus) + np.abs(angle))
        rounded = np.zeros_like(size)
        rounded = rounded + made * UNIT  # pays: schedule-log
        rounded = rounded + t * self.log_rest_error[part, None]  # pays: schedule-across
        # |M^k - B^k| <= B^k (3^k - 1) for B = 3 error, |M| <= B
        rounded = rounded + np.where(lost, math.log(3.0), -np.log1p(-relative))
        return modulus + 1j * angle, rounded

    def upper(self, c: float) -> float:
        rule = self._rule_of_line(c, 0.0, 1e-15)
        at = None if rule is None else self._weights(c, rule)
        if rule is None or at is None:
            return math.inf
        return self._sum_up(at.total + self._off(c, 0.0, rule, at))

    def _sum_up(self, most: FloatArray) -> float:
        """An upper bound of the sum of ln of the numbers ``most``, each times its count."""
        if not bool(np.all(most < math.inf)):
            return math.inf
        each = self.count * np.log(most)
        # the logarithm, the product, and the sum in any order; and two units of each number, which
        # is itself the sum of three
        size = float(np.sum(np.abs(each))) * (LOG + each.size + 2.0)
        spare = (size + 2.0 * float(np.sum(self.count))) * UNIT  # pays: schedule-upper
        return next_up(float(np.sum(each)) + outwards(spare))

    # ------------------------------------------------------- the rest of the line

    def beyond(self, c: float, t: float, shift: float) -> float:
        power, m = self.power(c), self.m
        strips = np.linspace(0.05, 0.97, 24)
        strips = strips * min(0.5 * math.pi, math.pi - shift, 6.0 * float(m.min()))
        shrink = min(power, 0.0) * np.log(np.cos(0.5 * (shift + strips)))
        growth = 0.5 * (shift**2 + strips**2) / float(m.min()) ** 2 + shrink
        best = int(np.argmax(strips / (growth + _GOAL)))
        width = float(strips[best])
        h = 2.0 * math.pi * width / (float(growth[best]) + _GOAL)
        rule = self._rule(c, h, width)
        at = self._weights(c, rule)
        if at is None:
            return math.inf
        less, turn, off = _turned(at.y, np.array(shift), power, t)
        moved = np.exp(power * less - t * turn)
        total = np.matmul(at.weight, moved * (1.0 + outwards(np.expm1(off))))
        # |moved| <= cos(shift / 2)^min(power, 0)
        least = math.exp(min(power, 0.0) * math.log(math.cos(0.5 * shift)))
        # the exponential, and the sum in any order
        rounding = at.error + (at.y.size + EXP + 4.0) * UNIT * at.total  # pays: schedule-beyond
        ends = at.left + at.right
        decay = 2.0 * math.pi * width / rule.h
        # guard: schedule-moved-aliasing
        still = 2.0 * self._still(c, rule, at) / math.expm1(min(decay, _RANGE))
        # e^(shift^2 / (2 m^2)) of the moved density belongs to all terms
        strip = np.exp(0.5 * (width / m) ** 2 + float(shrink[best]))
        whole = total + outwards(least * (outwards(rounding) + ends) + strip * still)
        logs = 0.5 * (shift / m) ** 2  # guard: schedule-shift-costs
        most = float(self.count @ logs)
        # the square, its quotient and the sum in any order
        most = most + outwards(most * (m.size + 8.0) * UNIT)
        return next_up(most + self._sum_up(whole))

    def _still(self, c: float, rule: _Rule, at: _Tilted) -> FloatArray:
        """Bounds M(c) of each step: the integral of the modulus on the real axis."""
        return self._moved(c, 0.0, at, 0.0)


def _log_s(y: FloatArray) -> FloatArray:
    """ln S = ln(1 + e^y)."""
    return np.asarray(np.maximum(y, 0.0) + np.log1p(np.exp(-np.abs(y))))


def _circle(log_s: FloatArray, t: FloatArray) -> FloatArray:
    """cos and sin of the products of ``log_s`` (b,) and ``t`` (k,), side by side: (b, 2 k)."""
    turn = np.multiply.outer(log_s, t)
    return np.concatenate([np.cos(turn), np.sin(turn)], axis=1)


def _logistic(y: FloatArray) -> FloatArray:
    """e^y / (1 + e^y)."""
    return np.asarray(np.exp(y - _log_s(y)))


def _turned(
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
