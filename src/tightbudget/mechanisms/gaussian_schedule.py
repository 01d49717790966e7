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

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tightbudget.mechanisms.gaussian_integrand import MOST_NESTED
from tightbudget.mechanisms.gaussian_transform_bounds import After
from tightbudget.mechanisms.smooth_end import SmoothEnd
from tightbudget.numerics.rounding import (
    EXP,
    LOG,
    LOG1P,
    TURN,
    UNIT,
    FloatArray,
    add_up,
    next_up,
    outwards,
)
from tightbudget.numerics.special import log_normal_tail, log_normal_tail_slack
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
# Widths of a smooth end, as shares of the least m: a narrow one takes more nodes, and beyond a wide
# one those that are left over may still make M.
_WIDTHS = tuple(2.0**-i for i in range(3, 10))
_BEYOND = 3.0  # widths of a smooth end: what is larger there is not the end's own
# Shares of the widest strip that a plan looks at: a large power of S asks for a narrow one.
_SHARES = np.append([0.001, 0.004, 0.012], [0.03, 0.06, 0.12, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 0.97])
# Cells of a bound beyond the nodes. Any values are sound.
_CELL, _MOST_CELLS = 1.0 / 64.0, 10_000
_NO_TAIL = 40.0  # standard deviations: the mass beyond is below 1e-300


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


class _Grown(NamedTuple):
    """How much larger a modulus may be on a line Im y = width than at the nodes on the real axis.

    Attributes:
        near: (b - 1,) in each cell between nodes, over its value at the left node.
        far: (b - 1,) the same, over its value at the right node; the larger of both is the bound.
        before: to the left of all nodes, over its value there.
        after: to the right of all nodes, over its value there.
    """

    near: FloatArray
    far: FloatArray
    before: float
    after: float


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
class Schedule(Transform):
    """The product of the moment generating functions of many sampled Gaussian steps.

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
        return Schedule(m, q, count, self.remove, self.end)

    def power(self, c: float) -> float:
        """The real part of the exponent z on the line Re s = c."""
        return 1.0 + c if self.remove else -c

    # --------------------------------------------------- without the largest losses

    def without_tail(self, log_mass: float, c: float) -> tuple[Schedule, float]:
        # the losses of an added record have an end
        if self.end is not None or not self.remove:
            return self, 0.0
        # 1 - w is at least Phi(-1 / width) everywhere
        log_each = log_mass - math.log(float(np.sum(self.count)))
        widest = min(0.5, float(self.m.min()), 4.0 / math.sqrt(1.0 - min(log_each, 0.0)))
        scale = 2.0 ** math.floor(math.log2(widest))
        end = self._end(log_mass, scale * _WIDTHS[0])
        # narrow enough for the edge of the widest: those of others hardly differ
        for share in _WIDTHS:
            width = scale * share
            if self._falls_beyond(SmoothEnd(end.edge, width), self.power(c)):
                break
        if width != end.width:
            end = self._end(log_mass, width)
        return dataclasses.replace(self, end=end, _kept={}), self.mass_beyond(end, log_mass)

    def _end(self, log_mass: float, width: float) -> SmoothEnd:
        """The first edge, of those with this width, beyond which there is about e^log_mass."""
        means = self.odds + 0.5 * self.m**2
        low, high = float(np.min(self.odds)), float(np.max(means + _NO_TAIL * self.m))
        while high - low > 0.01 * width:
            middle = 0.5 * (low + high)
            many = math.log(self.mass_beyond(SmoothEnd.near(middle, width), log_mass)) > log_mass
            low, high = (middle, high) if many else (low, middle)
        return SmoothEnd.near(high, width)

    def mass_beyond(self, end: SmoothEnd, log_mass: float) -> float:
        """An upper bound, above 0, of the P-mass of all runs together that an end leaves out.

        1 - w rises with y. It is at most a sum of steps, each from a place on, beyond which the
        normal tails without the record and with it say how much there is.
        """
        half = 0.5 * self.m**2
        places, steps = end.steps(log_mass - math.log(float(np.sum(self.count))))
        total = np.zeros_like(self.m)
        for place, step in zip(places.tolist(), steps.tolist(), strict=True):
            if place == -math.inf:
                total = total + step
                continue
            u = (place - np.stack([self.odds - half, self.odds + half])) / self.m
            # a by its error; the place, m^2 / 2, the sum and the difference; m and the quotient
            off = self.odds_error + 5.0 * UNIT * (abs(place) + np.abs(self.odds) + half)
            off = off / self.m + 2.0 * UNIT * np.abs(u)
            # |d ln tail(u) / du| <= |u| + 1
            log = log_normal_tail(u) + log_normal_tail_slack(u)
            without, lifted = np.exp(log + off * (np.abs(u) + 1.0 + off))  # pays: schedule-left-out
            total = total + step * (without + self.q * lifted)
        # exp, the roundings of q, products and the sums; a tail that underflows is below 1e-300
        spare = 1.0 + (self.m.size + MOST_NESTED + EXP + 30.0) * UNIT
        return add_up(float(self.count @ total) * spare, float(np.sum(self.count)) * 1e-300)

    def _falls_beyond(self, end: SmoothEnd, power: float) -> bool:
        """Whether w phi R^power is nowhere beyond the edge larger than at the edge, about."""
        y = end.places(power, _GOAL)
        y = y[(end.depth(y) > _BEYOND) | (y == end.edge)]
        log_s = _log_s(y)
        log = power * (log_s - log_s[0]) - 0.5 * end.depth(y) ** 2
        x = np.maximum((end.edge - self.odds) / self.m + 0.5 * self.m, 0.0)[:, None]
        step = (y - end.edge) / self.m[:, None]
        log = log - np.min(step * (x + 0.5 * step), axis=0)
        return bool(np.all(log <= log[0]))

    # ------------------------------------------------------------------- planning

    @property
    def farthest(self) -> float:
        # the integrand of the largest losses peaks at x = c m: a thousand standard deviations
        most = 1000.0 / float(self.m.max()) if self.remove else math.inf
        if self.end is None:
            return most
        # ... or it ends, where S^c is still a double
        return max(most, _RANGE / float(_log_s(np.array(self.end.edge))))

    def rough(self, c: FloatArray) -> Rough:
        some = self.some
        h = some.fine
        ends = [some._ends(float(end), h, _GOAL) for end in (np.min(c), np.max(c))]
        y = h * np.arange(min(e[0] for e in ends), max(e[1] for e in ends) + 1, dtype=np.float64)
        log_s, log_share = _log_s(y), some._log_share(y)[0]
        powers = 1.0 + c if self.remove else -c
        total = np.zeros((3, c.size))
        for m, odds, rest, count in zip(some.m, some.odds, some.log_rest, some.count, strict=True):
            x = (y - odds) / m + 0.5 * m
            log_r = log_s + rest
            base = math.log(h * _DENSITY_0 / m) - 0.5 * x * x + log_share
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
        least = float(self.m.min())
        smooth = math.inf if self.end is None else 0.5 * self.end.width
        return float(2.0 ** math.floor(math.log2(min(0.3 * least, 0.8, smooth))))

    def shifts(self, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        some = self.some
        at = some._weights(c, some._rule(c, some.fine, 0.0))
        found = np.full_like(t, np.inf), np.zeros_like(t)
        if at is None:
            return found
        rise = at.weight @ np.exp(at.y - at.log_s) / at.total
        # a^2 / (2 m^2) - t a E[d ln S / dy], summed over the steps, is least here
        best = t * float(some.count @ rise) / float(some.count @ some.m**-2.0)
        most = 0.9 * min(math.pi, 6.0 * float(self.m.max()))
        if self.end is not None:
            most = min(most, self.end.strip)
        for factor in (0.03, 0.1, 0.3, 1.0):
            shift = np.minimum(factor * best, most)
            shrink, turn, _ = _turned(at.y, shift[:, None], self.power(c))
            moved = np.exp(np.minimum(self.power(c) * shrink - t[:, None] * turn, _RANGE))
            moved = at.weight @ moved.T
            if self.end is not None:
                over = [some._spilled(at, float(a), x) for a, x in zip(shift, turn * t[:, None])]
                moved = moved + np.array(over).T
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
        last = float(np.max(m * (far - 0.5 * m) + self.odds))
        if power < 0.0:  # M(c) is 1 or more, and R^power rises no more
            most = goal / -power - float(np.min(self.log_rest))
            last = min(last, math.log(math.expm1(min(most, _RANGE))))
        if self.end is not None:
            y = self.end.places(power, goal)
            x = (y - self.odds[:, None]) / m[:, None] + 0.5 * m[:, None]
            log = power * self.log_rest[:, None] - 0.5 * np.maximum(x, 0.0) ** 2
            log = power * _log_s(y) + np.max(log, axis=0) + self.end.log_share(y)[0]
            above = np.flatnonzero(log >= -goal)
            last = float(y[min(int(above[-1]) + 1 if above.size else 1, y.size - 1)])
        return math.floor(float(np.min(m * (near - 0.5 * m) + self.odds)) / h), math.ceil(last / h)

    def _rule(self, c: float, h: float, width: float, goal: float = _GOAL) -> _Rule:
        """A rule with a step of at most h, whose nodes reach to where the terms are e^-goal."""
        scale = 2.0 ** (_STEP_BITS - math.frexp(h)[1])
        h = math.floor(h * scale) / scale
        return _Rule(h, *self._ends(c, h, goal), width)

    def _rule_of_line(self, c: float, t: float, tolerance: float) -> _Rule | None:
        """About the shortest rule for values up to c + i t, or None where none is short enough."""
        goal = min(_GOAL, 6.0 - math.log(tolerance / float(np.sum(self.count))))
        rule = self._shortest(c, goal, math.pi, lambda some, at, w: some._moved(c, t, at, w))
        return rule if rule is not None and rule.size * self.m.size <= _MOST else None

    def _moved_rule(self, c: float, shift: float) -> _Rule | None:
        """About the shortest rule for the integral of the modulus on Im y = shift, or None."""
        widest = min(0.5 * math.pi, math.pi - shift)
        return self._shortest(
            c, _GOAL, widest, lambda some, at, w: some._moved_twice(c, at, w, shift)
        )

    def _shortest(
        self, c: float, goal: float, widest: float,
        moved: Callable[[Schedule, _Tilted, float], FloatArray],
    ) -> _Rule | None:  # fmt: skip
        """The rule with the fewest nodes of those for strips up to ``widest``.

        ``moved`` bounds the integral of the modulus on both sides of a strip.
        """
        some, least = self.some, float(self.m.min())
        widest = min(widest, 12.0 * least)
        if self.end is not None:
            widest = min(widest, self.end.strip)
        widths = _SHARES * widest
        at = some._weights(c, some._rule(c, some.fine, 0.0))
        if at is None:
            return None
        logs = [float(np.max(np.log(moved(some, at, w) / at.total))) for w in widths.tolist()]
        # the largest share of the widest density belongs to the least m, which ``some`` may lack
        density = 0.5 * (widths / least) ** 2
        needed = np.nan_to_num(np.maximum(np.array(logs), density) + goal + 2.0, nan=np.inf)
        best = int(np.argmax(widths / needed))
        h = 2.0 * math.pi * float(widths[best] / needed[best])
        return self._rule(c, h, float(widths[best]), goal) if h > 1e-6 else None

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
        log_share, share_error = self._log_share(y)
        tilt = power * log_s + log_share
        base = np.log(rule.h * _DENSITY_0 / m) + power * self.log_rest
        weight = np.empty((n, y.size))
        square = np.empty(n)  # sums of weight x^2
        rows = max(1, _BLOCK // y.size)
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
        error = np.where(worst <= _VAGUE, error * (1.0 + _VAGUE), np.inf)
        # a weight that underflows is below 1e-300 of a step that runs
        error = error + y.size * 1e-300
        # outside: phi falls like e^(-x dy / m), and R^power grows by power S' / S per unit of y
        left = -ends[0] / m - max(0.0, -power) * math.exp(y[0] - log_s[0])
        right = ends[1] / m - max(power, 0.0)
        right = right + max(0.0, -power) * math.exp(y[-1] - log_s[-1])
        falls = np.stack([left, right])
        steps = np.expm1(np.minimum(rule.h * falls, _RANGE))
        with np.errstate(divide="ignore", invalid="ignore"):
            outer = np.where(steps > 0, np.stack([weight[:, 0], weight[:, -1]]) / steps, np.inf)
        if self.end is not None:
            after = self.end.after(power, float(y[-1]))
            more = after.log_nodes(rule.h) if after.rate > 0.0 else math.inf
            beyond = weight[:, -1] * (math.exp(more) if more < _RANGE else math.inf)
            # there phi falls
            outer[1] = np.where(ends[1] > 0.0, beyond, np.inf)
        outer = outwards(outer) + 1e-300
        made = _Tilted(
            y, log_s, weight, total, lever, outwards(error), outer[0], outer[1], falls,
            outwards(worst), np.stack([log_share[:-1], log_share[1:]]),
        )  # fmt: skip
        self._kept.clear()  # the matrix is large, and the next line is elsewhere
        self._kept[key] = made
        return made

    def _moved(self, c: float, t: float, at: _Tilted, width: float) -> FloatArray:
        """Bounds the integral of the modulus on Im y = +-width, for |Im s| <= t: shape (n,).

        There |phi| = phi e^(width^2 / (2 m^2)), and arg S rises with y. ln phi has the second
        derivative -1 / m^2: between two nodes it exceeds its chord by h^2 / 8 times that.
        """
        m, h = self.m, float(at.y[1] - at.y[0])
        angle = np.arctan2(math.sin(width), np.exp(-at.y) + math.cos(width))
        turn = np.exp(np.minimum(t * angle, _RANGE))
        turn = np.where(t * angle <= _RANGE, turn, np.inf)
        grown = self._grown(c, at, width)
        # each cell takes the larger weight of its ends, and the argument of the right one
        near, far = grown.near * turn[1:], grown.far * turn[1:]
        inner = at.weight @ (np.append(near, 0.0) + np.append(0.0, far))
        inner = inner * np.exp(0.125 * h * h / (m * m))
        # beyond the nodes the modulus falls as exponentials do, and arg S < width
        tails = np.where(at.falls > 0, np.stack([at.weight[:, 0], at.weight[:, -1]]), np.inf)
        tails = (tails + 1e-300) / (h * np.where(at.falls > 0, at.falls, 1.0))
        most = math.exp(t * width) if t * width <= _RANGE else math.inf
        right = tails[1] * (most * grown.after)
        if self.end is not None or self.power(c) < 0.0:
            right = np.minimum(right, self._after(c, at, t, width))
        whole = inner + tails[0] * (turn[0] * grown.before) + right
        with np.errstate(over="ignore"):
            return np.asarray(outwards(whole) * np.exp(0.5 * (width / m) ** 2))

    def _grown(self, c: float, at: _Tilted, width: float) -> _Grown:
        """Bounds |w S^s| on Im y = +-width over what w S^power is at the nodes, for Im s = 0."""
        power, cells = self.power(c), np.zeros(at.y.size - 1)
        if self.end is not None:  # |S| is at most what it is on the real axis, and S^power convex
            cells = self.end.log_cells(at.y, width)
            with np.errstate(over="ignore"):
                near, far = (np.exp(cells - share) for share in at.sides)
            return _Grown(near, far, self.end.growth_before(float(at.y[0]), width), math.inf)
        if power > 0.0:
            return _Grown(np.ones_like(cells), np.ones_like(cells), 1.0, 1.0)
        # |S| >= S cos(width / 2), and ln S has a second derivative of at most 1 / 4
        h = float(at.y[1] - at.y[0])
        most = power * math.log(math.cos(0.5 * width))
        near = far = np.full_like(cells, most - 0.125 * h * h * 0.25 * power)
        before = after = most
        if width <= 0.5 * math.pi:  # |S| rises with y, and |S| / S falls up to y = 0
            less = power * (_turned(at.y, np.array(width), power)[0] * (1.0 + 1e-9) - 1e-15)
            rise = -power * np.diff(at.log_s) * (1.0 + 1e-9) + 1e-12
            better = less[:-1] + rise < near
            near, far = np.where(better, less[:-1], near), np.where(better, less[:-1] + rise, far)
            before, after = float(less[0]) if at.y[0] <= 0.0 else most, float(less[-1])
        with np.errstate(over="ignore"):
            return _Grown(np.exp(near), np.exp(far), *np.exp([before, after]).tolist())

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
        rule = self._moved_rule(c, shift)
        at = None if rule is None else self._weights(c, rule)
        if rule is None or at is None:
            return math.inf
        less, turn, off = _turned(at.y, np.array(shift), power, t)
        moved = np.exp(power * less - t * turn)
        total = np.matmul(at.weight, moved * (1.0 + outwards(np.expm1(off))))
        # |moved| <= cos(shift / 2)^min(power, 0)
        least = math.exp(min(min(power, 0.0) * math.log(math.cos(0.5 * shift)), _RANGE))
        rounding = np.minimum(least * at.error, at.vague * total)
        # the exponential, and the sum in any order
        rounding = rounding + (at.y.size + EXP + 4.0) * UNIT * total  # pays: schedule-beyond
        grown = self._grown(c, at, shift)
        ends = at.left * grown.before
        if self.end is None:
            ends = ends + at.right * grown.after
        decay = 2.0 * math.pi * rule.width / rule.h
        # guard: schedule-moved-aliasing
        missed = 2.0 * self._moved_twice(c, at, rule.width, shift) / math.expm1(min(decay, _RANGE))
        whole = total + outwards(outwards(rounding) + ends + missed)
        if self.end is not None:
            turned = t * turn * (1.0 - 1e-9)
            later = self._after(c, at, 0.0, shift) * math.exp(-float(turned[-1]))
            whole = whole + self._spilled(at, shift, turned) + later
        # e^(shift^2 / (2 m^2)) of the moved density belongs to all terms
        logs = 0.5 * (shift / m) ** 2  # guard: schedule-shift-costs
        most = float(self.count @ logs)
        # the square, its quotient and the sum in any order
        most = most + outwards(most * (m.size + 8.0) * UNIT)
        return next_up(most + self._sum_up(whole))

    def _log_share(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """ln of the weight that ends the losses, and its error, three sums included."""
        if self.end is None:
            return np.zeros_like(y), np.zeros_like(y)
        return self.end.log_share(y)

    def _spilled(self, at: _Tilted, shift: float, turned: FloatArray) -> FloatArray:
        """Bounds what |w| on Im y = shift adds to the integrals that w weighs: shape (n,).

        In a cell phi R^power is at most the larger of its ends, but for the second derivative of
        its logarithm, and e^-turned falls.
        """
        assert self.end is not None
        cells = self.end.log_spilled(at.y, shift) - turned[:-1]
        with np.errstate(over="ignore"):
            left, right = (np.exp(cells - share) for share in at.sides)
        h = float(at.y[1] - at.y[0])
        bend = np.exp(0.125 * (h / self.m) ** 2)
        both = at.weight @ (np.append(left, 0.0) + np.append(0.0, right))
        before = (at.weight[:, 0] + at.left) * self.end.growth_before(float(at.y[0]), shift)
        return outwards(bend * (1.0 + _VAGUE) * both + before)

    def _after(self, c: float, at: _Tilted, t: float, shift: float) -> FloatArray:
        """Bounds the integrals of |w phi R^s| beyond the nodes, on Im y = shift: shape (n,).

        They hold for |Im s| <= t. What phi grows by on the line is left out.
        """
        if self.end is not None:
            after = self.end.after(self.power(c), float(at.y[-1]), t, shift)
        elif self.power(c) < 0.0 and shift <= 0.5 * math.pi:
            slope = float(np.min((at.y[-1] - self.odds) / self.m**2 + 0.5))
            after = _after_added(self.power(c), at, t, shift, slope)
        else:
            return np.full_like(self.m, np.inf)
        if not after.rate > 0.0:
            return np.full_like(self.m, np.inf)
        h = float(at.y[1] - at.y[0])
        log = float(after.log_integral()[0])
        most = math.exp(log) if log < _RANGE else math.inf
        # phi falls beyond its mean
        falls = at.y[-1] > self.odds - 0.5 * self.m**2
        return np.where(falls, outwards((at.weight[:, -1] + 1e-300) / h * most), np.inf)

    def _moved_twice(self, c: float, at: _Tilted, width: float, shift: float) -> FloatArray:
        """Bounds the integral of the modulus on Im y = shift, moved by +-width more: shape (n,).

        The moved density is e^(shift^2 / (2 m^2)) phi, and that factor is left out. |S| is at most
        S on both lines. Where the power is below 0, it is at least what it is on the farther one.
        """
        if self.power(c) > 0.0:
            return self._moved(c, 0.0, at, width)
        both = shift + width
        back = np.exp(0.5 * (width - both) * (width + both) / (self.m * self.m))
        return np.asarray(self._moved(c, 0.0, at, both) * back)


def _log_s(y: FloatArray) -> FloatArray:
    """ln S = ln(1 + e^y)."""
    return np.asarray(np.maximum(y, 0.0) + np.log1p(np.exp(-np.abs(y))))


def _after_added(power: float, at: _Tilted, t: float, shift: float, slope: float) -> After:
    """Bounds |phi S^s| beyond the nodes on Im y = shift over phi S^power at the last of them.

    For Re s = power < 0, |Im s| <= t and shift <= pi / 2: |S| and arg S rise with y, and phi falls
    as fast as e^(-slope y), at least.
    """
    start = float(at.y[-1])
    # beyond it |S|^power is below e^(-t shift), or nearly so
    far = max(start, math.log(math.expm1(min((t * shift + _GOAL) / -power, _RANGE))))
    cells = math.ceil((far - start) / _CELL) + 1
    if cells > _MOST_CELLS:
        return After(np.zeros(0), np.zeros((1, 0)), np.array([math.inf]), 1.0)
    y = start + _CELL * np.arange(cells + 1.0)
    log_s = _log_s(y)
    log = log_s + _turned(y, np.array(shift), power)[0]
    fall = power * (log - log_s[0]) - slope * (y - start)
    # logarithms within a relative 1e-9
    fall = fall + 1e-9 * (-power * (np.abs(log) + log_s[0]) + slope * (y - start)) + 1e-12
    angles = t * np.arctan2(math.sin(shift), np.exp(-y) + math.cos(shift)) * (1.0 + 1e-9)
    logs = fall[:-1] + angles[1:]
    return After(np.diff(y), logs[None, :], fall[-1:] + t * shift, slope)


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
