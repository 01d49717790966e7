"""Adaptive runs of bounded range by smooth functions, and how far off these are at most.

A run turns D into T D, T D(y) = sup over w in [y / E, y] of l_w(y), where l_w is the line through
(w, D(w)) and (E w, D(E w)), and E = e^range. That is what :mod:`.bounded_range` says, with
w = y e^-t. T is monotone and sublinear, and the worst deltas D_1, D_2, ... are T D_0, T T D_0, ...
Functions F_1, F_2, ... are found that obey, at all y > 0,

    |D_j(y) - F_j(y)| <= off_j (D_j(y) + W_j(y)),    W_j(y) = min over some s of c(s)^j y^-s,

where c(s) is the largest moment, T y^-s <= c(s) y^-s. So T W_j <= W_(j+1), and the distance of
D_(j+1) and T F_j is at most off_j (D_(j+1) + W_(j+1)). It is left to find F_(j+1) and to bound its
distance from T F_j, the *residual*, of which (F + W) / (1 + off) <= D + W is taken as the unit.

F_j is a cubic in each cell between the points y_i = e^(i h), with given values and slopes there.
E is some power of e^h. For w in one cell, w = w_k (1 + g r) with 0 <= r <= 1, both p = F(w) and
q = F(E w) are cubics in r. With K = E - 1, A = w (q' - E p') and B = p - q - w (p' - q'), where '
is the derivative by w, the line l_w touches the envelope of all lines at y*(w) = w A / B. Its value
at y changes with w by B (y - y*(w)) / (K w^2). So T F has known values and slopes at the points
y*(w_k), and:

- *Between them*, let G be the cubic with those values and slopes, and y(r) be linear. Then
  (1 + g r) (l_w(y(r)) - G(y(r))) is of degree 4 in r, and 0 with its slope at both ends: it is
  c r^2 (1 - r)^2. That is the residual of one line for each y.
- *Other lines* are hardly above it. If |y* - y(r)| <= d in the cell, the best w of the cell is
  within d / (slope of y) of that one, and gains 2 d^2 max(B / (K w^2)) / (slope of y) at most. The
  difference B y(r) - w A is of degree 4, too, and 0 at both ends. Where B > 0 and y* keeps on the
  inner side of both ends in each cell, l_w(y) rises before the cell with y, and falls after it.
- *From G to F_(j+1)*, which has G's values and slopes at the points y_i: a function that is 0 with
  its slope at both ends of a cell of length b, and whose second derivative is within m, is within
  m b^2 / 8. These second derivatives are linear between all y_i and y*_k.

D_j is its own mirror image, D(1 / y) = 1 - 1/y + D(y) / y. Below 1, F has mirrored values and
slopes, and its cubics are off by their fourth derivative. Above its last point F falls as a power
of y, and both F and D_j are a small part of W_j.

All values, slopes and points that F and G are made from are doubles, and taken for exact. What is
computed from them is off by some units of the values and slopes that it is computed from.

Source: ours. The recursion is that of Dong, Durfee, Rogers 2020. Residuals of monotone operators
are how supersolutions of differential equations are verified.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.rounding import FloatArray

# Spans for which this is tried: narrower ones have cells of a few million units.
_LEAST_SPAN, _MOST_SPAN = 0.01, 1.0
# Losses beyond so many standard deviations are possible where this is tried: elsewhere chords reach
# to the largest loss, and are an upper bound of the smallest deltas, too.
_DEVIATIONS = 10.8
# Cells of a span: at the first run, and the fourth power of those at the last times the runs. Then
# ``off`` is about 1e-7, and the bounds are some 20 off apart where delta > 1e-18.
_FIRST, _LEAST_STEP, _LAST = 8192, 4e-5, 1e8
_WIDE = 0.1
# The tilts s of W go up to so many standard deviations, in so many parts.
_TILTED, _TILTS = 9.0, 12
# F ends where it is below this part of W, or falls by so much in one cell.
_ENDS, _STEEP = 1e-13, 0.5
# Powers of e^span by which F falls at the end without underflow.
_STEEPEST = 50.0
# What rounding adds to a residual, relative to the values and slopes that it is found from: points
# are off by 2 x + EXP units, x <= _FAR, and 30 sums and products by one each. 2,048 are granted.
_PAID, _FAR = 2.0**-42, 300.0
# Points of a cell for chords; the slope of D at a point is known from its neighbours at so many
# standard deviations times the root of ``off``. Both affect width, never truth.
_MOST_PARTS, _REACH = 32, 20.0
# Beyond, nothing is proved.
_MOST_OFF = 2.0**-10
# Seconds for a point and a run, about.
_WORK = 2e-7


@dataclass(frozen=True)
class Smooth:
    """D_runs at points y = e^(i span / cells), i = -left, ..., n, of a finer grid.

    Attributes:
        cells: of one span, in the finer grid.
        left: points before y = 1.
        values: F there.
        slopes: y F'(y) there, at most 0.
        within: |D - F| is at most that; it falls.
        bent: whether F is known to be convex between a point and the next one.
        reach: how many points the window of :meth:`lines` has on both sides.
    """

    span: float
    cells: int
    left: int
    values: FloatArray
    slopes: FloatArray
    within: FloatArray
    bent: NDArray[np.bool_]
    reach: int

    def above(self) -> FloatArray:
        """Upper bounds of D at 1 and all later points; the last one also holds beyond."""
        found = ((self.values + self.within) * (1.0 + _PAID))[self.left :]
        return np.asarray(np.minimum(np.maximum.accumulate(found[::-1])[::-1], 1.0))

    def lines(self) -> tuple[FloatArray, FloatArray]:
        """Lines p - q y that D is nowhere below: p and q y, for y at 1 and all later points.

        The tangent of F at y_i is lowered by ``within`` at y_(i - reach). Up to y_(i + reach), D is
        above it, where F is convex. Farther off it is, too, if the slope of D between these points
        and y_i is seen to be on the right side of that of F at y_i: D is convex. Others
        have the line of the next such point.
        """
        r, f, a, off = self.reach, self.values, self.slopes, self.within
        here = slice(r, f.size - r)
        near = r * self.span / self.cells
        before = f[: -2 * r] - (f + math.expm1(-near) * a)[here] - off[: -2 * r]
        after = f[2 * r :] - (f + math.expm1(near) * a)[here] - off[2 * r :]
        paid = _PAID * (f - a)[: -2 * r]
        known = (before > off[here] + paid) & (after > off[here] + paid)
        bent = np.append(0, np.cumsum(self.bent))
        known &= bent[2 * r :] - bent[: -2 * r] == 2 * r
        p = (f - a)[here] - off[: -2 * r] - paid
        known &= p > 0.0
        q = -a[here] * (1.0 + _PAID)
        # instead of one of which nothing is known, the next one
        i = np.arange(p.size)
        after = np.minimum.accumulate(np.where(known, i, p.size)[::-1])[::-1]
        i, after = i[after < p.size], after[after < p.size]
        if i.size <= self.left - r:
            return np.zeros(1), np.zeros(1)
        same = np.exp((i - after) * self.span / self.cells) * (1.0 + _PAID * (after > i))
        return p[after][self.left - r :], (q[after] * same)[self.left - r :]


class _UnprovedError(Exception):
    """The conditions of the proof do not hold, at this span and number of runs."""


def cells_of_last_run(span: float, runs: int, halvings: int) -> int:
    """The cells of a span after all runs."""
    wide = math.pow(max(1.0, span / _WIDE), 1.5)
    return 2 * max(
        3, round(math.sqrt(math.sqrt(_LAST * wide / runs)) / 2 * math.exp2(halvings / 4))
    )


def seconds(span: float, runs: int, halvings: int) -> float:
    """About how long :func:`smooth` takes."""
    spread = math.sqrt(runs) * span / 2
    reach = (16.0 + spread / 2) * spread / span * cells_of_last_run(span, runs, halvings)
    early = 12 * max(_FIRST, span / _LEAST_STEP) * math.exp2(halvings / 2)
    return _WORK * (runs * (reach + 500.0) + early)


def tried(span: float, runs: int) -> bool:
    """Says whether :func:`smooth` is tried for so many runs."""
    spread = math.sqrt(runs) * span / 2
    many = spread * (spread / 2 + _DEVIATIONS) < runs * span
    near = spread * (spread / 2 + 18.0) < _FAR
    return _LEAST_SPAN <= span <= _MOST_SPAN and many and near


@functools.lru_cache(maxsize=32)
def smooth(span: float, runs: int, halvings: int) -> Smooth | None:
    """Finds the worst delta of so many adaptive runs; None where its error is not proved small.

    Args:
        span: the length of the interval of losses of one run, nats.
        runs: of them.
        halvings: how often the distance of the bounds is halved, about.
    """
    if not tried(span, runs):
        return None
    try:
        return _all_runs(span, runs, halvings)
    except _UnprovedError:
        return None


def _all_runs(span: float, runs: int, halvings: int) -> Smooth:
    least = cells_of_last_run(span, runs, halvings)

    def doublings(j: int) -> int:
        # F_j has a width of sqrt(j); the kinks of D_1'' halve with each run
        late = math.ceil(math.log2(runs / j) / 2 - 0.5)
        first = max(_FIRST, span / _LEAST_STEP)
        early = math.ceil(math.log2(first / least) - 0.4 * (j - 1) + halvings / 2)
        return max(0, late, early)

    weight = _Weight.of(span, runs)
    now = _first_run(span, least * 2 ** doublings(1), weight)
    for j in range(2, runs + 1):
        while now.cells > least * 2 ** doublings(j):
            now = _coarser(now, weight)
        now = _one_more(now, weight)
    return _finer(now, weight)


def _finer(run: _Run, weight: _Weight) -> Smooth:
    """F at more points, so that its chords are hardly farther off than ``off``."""
    m, h, g = run.cells, run.step, math.expm1(run.step)
    f, a = _mirrored(run, run.values.size)
    off = run.off + _off_of_mirror(f[m : 2 * m + 1], a[m : 2 * m + 1], g)
    # chords are off by F'' / 8, some s^2 F, and W is some 20 F
    most = float(weight.tilts[-1])
    parts = min(_MOST_PARTS, max(1, math.ceil(most * h / math.sqrt(80.0 * off))))
    i = np.arange(parts) * h / parts
    r = np.expm1(i)[:, None] / g
    c = _of_run(f, a, g)
    values = c.a0 + r * (c.a1 + r * (c.a2 + r * c.a3))
    slopes = (c.a1 + r * (2.0 * c.a2 + r * (3.0 * c.a3))) * (np.exp(i)[:, None] / g)
    values, slopes = (
        np.append(each.T.ravel(), last) for each, last in ((values, f[-1]), (slopes, a[-1]))
    )
    x = np.arange(-m * parts, values.size - m * parts, dtype=np.float64) * (h / parts)
    # |D - F| <= off (D + W), so D + W <= (F + W) / (1 - off)
    within = (values + weight.at(run.runs, x)) * (off / (1.0 - off) * (1.0 + 2.0**-30))
    within += _PAID * (values - slopes)
    within = np.maximum.accumulate(within[::-1])[::-1]
    paid = _PAID * g * -a[:-1]
    bent = (2.0 * c.a2 > paid) & (2.0 * c.a2 + 6.0 * c.a3 > paid)
    reach = math.ceil(_REACH * _TILTED / most * math.sqrt(off) / h * parts)
    return Smooth(
        span=run.span,
        cells=m * parts,
        left=m * parts,
        values=values,
        slopes=slopes,
        within=within,
        bent=np.repeat(bent, parts),
        reach=min(reach, m * parts),
    )


@dataclass(frozen=True)
class _Weight:
    """W, from the tilts s and the logarithms of c(s), which are rounded up."""

    tilts: FloatArray
    logs: FloatArray

    @staticmethod
    def of(span: float, runs: int) -> _Weight:
        tilts = np.linspace(0.0, _TILTED / (math.sqrt(runs) * span / 2), _TILTS + 1)
        return _Weight(tilts, np.array([_log_moment(span, s) for s in tilts.tolist()]))

    def at(self, runs: int, x: FloatArray) -> FloatArray:
        """W after so many runs at e^x, rounded down."""
        turns = runs * np.diff(self.logs) / np.diff(self.tilts)
        k = np.searchsorted(turns, x)
        found: FloatArray = np.exp(runs * self.logs[k] - self.tilts[k] * x)
        return found * (1.0 - 2.0**-40)


def _log_moment(span: float, s: float) -> float:
    """An upper bound of the largest ln E_P[e^(s L)] of one run, for s >= 0.

    At u = e^t it is ln((E - u) u^s + (u - 1) (u / E)^s) - ln(E - 1), largest at
    u = s / (s + 1) (E - E^-s) / (1 - E^-s).
    """
    if s == 0.0:
        return 0.0
    below = -math.log(s / (s + 1.0) * math.expm1(-(s + 1.0) * span) / math.expm1(-s * span))
    below = min(max(below, 0.0), span)
    t, whole = span - below, -math.expm1(-span)
    p, q = -math.expm1(-below) / whole, math.exp(-below) * -math.expm1(-t) / whole
    # An error of t by some units moves the largest value by none. For small s the two terms are
    # s span / 2 or less, and their sum is s span^2 / 8: 100 / span units.
    if s * span < 1.0:
        log = math.log1p(p * math.expm1(s * t) + q * math.expm1(-s * below))
    else:
        log = s * t + math.log(p + q * math.exp(-s * span))
    return log * (1.0 + 2.0**-36)


@dataclass(frozen=True)
class _Run:
    """F_j, by its values and slopes y F'(y) at the points e^(i h)."""

    span: float
    cells: int
    runs: int
    values: FloatArray
    slopes: FloatArray
    off: float

    @property
    def step(self) -> float:
        return self.span / self.cells

    @property
    def points(self) -> FloatArray:
        return np.arange(self.values.size, dtype=np.float64) * self.step


def _first_run(span: float, cells: int, weight: _Weight) -> _Run:
    """D_1(y) = (sqrt E - sqrt y)^2 / (E - 1) for 1 <= y <= E, and what its cubics are off."""
    x = np.arange(cells - 3) * span / cells
    least = np.exp(x / 2) * np.expm1((span - x) / 2)  # sqrt E - sqrt y
    values, slopes = least**2 / math.expm1(span), -least * np.exp(x / 2) / math.expm1(span)
    # the fourth derivative of sqrt y, and b^4 / 384
    g = math.expm1(span / cells)
    off = 4.0 * math.exp(span) / math.expm1(span) * g**4 / 384 + _PAID * (1.0 + 2.0 / span)
    off /= float(weight.at(1, np.array([span]))[0])
    return _ended(_Run(span, cells, 1, values, slopes, off), weight)


def _ended(run: _Run, weight: _Weight) -> _Run:
    """Cuts F where it is a small part of W, or steep, and adds what is beyond to ``off``."""
    w, g = weight.at(run.runs, run.points), math.expm1(run.step)
    ends = (run.values < _ENDS * w) | (-run.slopes * g > _STEEP * run.values)
    n = int(np.argmax(ends)) if ends.any() else ends.size - 1
    if n < 8 or not 0.0 < run.points[n] < _FAR:
        raise _UnprovedError
    values, slopes = run.values[: n + 1], run.slopes[: n + 1]
    s = -float(slopes[n] / values[n])
    # Both fall faster than W from here on: F by its power, D by Markov's bound for the power s,
    # since (1 - y)+ <= s^s / (1 + s)^(1 + s) y^-s. F is at most its value at the point before.
    most = float(weight.tilts[-1])
    if s < most or most * run.step > 0.5:
        raise _UnprovedError
    log = run.runs * _log_moment(run.span, s) - s * run.points[n]
    log += s * math.log(s) - (1.0 + s) * math.log1p(s)
    there = max(2.0 * float(values[n]), math.exp(log) * (1.0 + 2.0**-30))
    off = max(run.off, there / float(w[n]))
    if not off <= _MOST_OFF:
        raise _UnprovedError
    return _Run(run.span, run.cells, run.runs, values, slopes, off)


@dataclass(frozen=True)
class _Cubics:
    """Cubics a0 + a1 r + a2 r^2 + a3 r^3, 0 <= r <= 1, one in each cell."""

    a0: FloatArray
    a1: FloatArray
    a2: FloatArray
    a3: FloatArray

    @staticmethod
    def of(values: FloatArray, starts: FloatArray, ends: FloatArray) -> _Cubics:
        """From the values at all points, and the slopes by r at both ends of each cell."""
        rise = values[1:] - values[:-1]
        return _Cubics(
            values[:-1], starts, 3.0 * rise - 2.0 * starts - ends, starts + ends - 2.0 * rise
        )


def _of_run(values: FloatArray, slopes: FloatArray, g: float) -> _Cubics:
    return _Cubics.of(values, g * slopes[:-1], g / (1.0 + g) * slopes[1:])


def _mirrored(run: _Run, size: int) -> tuple[FloatArray, FloatArray]:
    """Values and slopes at the points -cells ... size - 1: mirror images, and a power beyond."""
    f, a, m, h = run.values, run.slopes, run.cells, run.step
    more = max(size, m + 1) - f.size
    if more > 0:
        beyond, falls = _beyond(-float(a[-1] / f[-1]), h * np.arange(1.0, more + 1.0), run.span)
        f, a = np.append(f, f[-1] * beyond), np.append(a, f[-1] * beyond * falls)
    k = np.arange(m, 0, -1)
    z = np.exp(-h * k)
    # F(z) = 1 - z + z F(1 / z), and its slope times z
    before = -np.expm1(-h * k) + z * f[k], z * (f[k] - a[k] - 1.0)
    return np.concatenate([before[0], f]), np.concatenate([before[1], a])


def _beyond(s: float, x: FloatArray, span: float) -> tuple[FloatArray, FloatArray]:
    """Extends F by the power s after its last point: what it falls to, and its slope in parts of F.

    A steep one flattens, so that it is not 0 soon. Up to two spans on it stays above 16 / span.
    """
    if s * span < _STEEPEST:
        return np.exp(-s * x), np.full(x.size, -s)
    slower = 1.0 + s * x / _STEEPEST
    return slower**-_STEEPEST, -s / slower


def _one_more(run: _Run, weight: _Weight) -> _Run:
    """F_(j+1) from F_j."""
    m, h, g = run.cells, run.step, math.expm1(run.step)
    e, k1 = math.exp(run.span), math.expm1(run.span)
    n = run.values.size + 2 * m  # the lines from the points -m, ..., size + m - 1
    f, a = _mirrored(run, n)
    lines = _LineFamily.of(f[:n], f[m:], a[:n], a[m:], np.exp(h * np.arange(-m, n - m)), g, e)
    good, other = lines.others(k1)
    # Of y up to the point w before which all cells are good, only lines before it matter: w <= y.
    last = n - 1 if good.all() else int(np.argmin(good))
    if last < m + 8 or not lines.knots[last] > 1.0:
        raise _UnprovedError
    lasts = min(last - m, int(math.log(lines.knots[last]) / h))
    y = np.exp(h * np.arange(lasts + 1))
    between = _Knots.of(lines, last, y, k1)
    values, slopes = between.at_points()
    k = between.before
    u = lines.turns[k[0] : k[-1] + 2]
    # from below it is a strategy: t is in [0, range]
    if not ((u > 1.0 + _PAID) & (u < e * (1.0 - _PAID))).all():
        raise _UnprovedError
    if lasts < 8 or not ((values > 0.0) & (slopes < 0.0)).all():
        raise _UnprovedError
    total = values + weight.at(run.runs + 1, h * np.arange(lasts + 1.0))
    total *= 1.0 - 2 * _MOST_OFF  # D + W, from below
    # of one line for each y, with what rounding adds; of other lines, of
    # which that of w matters to y <= E w; of the points; of what is below 1
    cells = slice(k[0], k[-1] + 1)
    one = (np.abs(between.degree4(lines, g, e)) / 16 + _PAID * lines.read[:last])[cells]
    off = float((one / total[np.minimum(between.after[1:][cells], lasts)]).max())
    ends = np.minimum(np.arange(1, last + 1), lasts)
    off += float((other[:last] / total[ends]).sum())
    off += between.off(values, slopes, g, total)
    off += _off_of_mirror(f[m : 2 * m + 1], a[m : 2 * m + 1], g)
    return _ended(_Run(run.span, m, run.runs + 1, values, slopes, run.off + off), weight)


@dataclass(frozen=True)
class _LineFamily:
    """The lines l_w at the points w_k, and what is known of those between them."""

    starts: FloatArray  # p
    ends: FloatArray  # q
    first: _Cubics
    second: _Cubics
    w: FloatArray
    low: FloatArray  # B
    turns: FloatArray  # u = y* / w = A / B
    knots: FloatArray  # y*
    read: FloatArray  # a bound of all values and slopes in a cell's formulas
    g: float
    e: float

    @staticmethod
    def of(
        p: FloatArray,
        q: FloatArray,
        rise: FloatArray,
        later: FloatArray,
        w: FloatArray,
        g: float,
        e: float,
    ) -> _LineFamily:
        low = p - q - rise + later
        with np.errstate(divide="ignore", invalid="ignore"):
            u = (later - e * rise) / low
        # |F'| falls, so that slopes y |F'| grow by e^h at most in a cell
        read = p - 2.0 * (rise + later)
        return _LineFamily(
            p, q, _of_run(p, rise, g), _of_run(q, later, g), w, low, u, w * u, read, g, e
        )

    def others(self, k1: float) -> tuple[NDArray[np.bool_], FloatArray]:
        """For each cell: whether y* keeps inside, and how far lines are above that of y(r)."""
        g, e, p, q = self.g, self.e, self.first, self.second
        # B, and -w A / w_k = (1 + g r)^2 (c1 + c2 r + c3 r^2), as polynomials in r
        d2, d3 = 2.0 * (p.a2 - q.a2) / g, 3.0 * (p.a3 - q.a3) / g
        b0, b1 = self.low[:-1], -d2
        b2, b3 = p.a2 - q.a2 - d3 - g * d2, p.a3 - q.a3 - g * d3
        c1, c2, c3 = (e * p.a1 - q.a1) / g, 2.0 * (e * p.a2 - q.a2) / g, 3.0 * (e * p.a3 - q.a3) / g
        u, long = self.turns[:-1], (self.knots[1:] - self.knots[:-1]) / self.w[:-1]
        # B y(r) - w A = r (1 - r) (s0 + s1 r + s2 r^2), in parts of w_k
        s0 = u * b1 + long * b0 + c2 + 2.0 * g * c1
        s1 = s0 + u * b2 + long * b1 + c3 + 2.0 * g * c2 + g * g * c1
        s2 = -(long * b3 + g * g * c3)
        paid = _PAID * self.read[:-1]
        largest = np.maximum(np.abs(s0), np.abs(s0 + s1 / 2))
        largest = np.maximum(largest, np.abs(s0 + s1 + s2)) + paid
        # the coefficients of B for (1 - r)^3, 3 r (1 - r)^2, ... enclose it
        least, most = b0, b0
        for b in (b0 + b1 / 3, b0 + (2 * b1 + b2) / 3, b0 + b1 + b2 + b3):
            least, most = np.minimum(least, b), np.maximum(most, b)
        least, most = least - paid, most + paid
        with np.errstate(divide="ignore", invalid="ignore"):
            d = (largest / 4 + paid) / least
            above = 10.0 * (1.0 + _PAID) * d**2 * most * g / (k1 * long)
            good = (least > 0.0) & (largest < 0.9 * least * long) & (self.starts[1:] > 0.0)
        return good & (above >= 0.0), above


@dataclass(frozen=True)
class _Knots:
    """G, the cubics between the knots y*, and the points y_i among them.

    Attributes:
        after: for each knot the first point at it or after it.
        before: for each point the last knot at it or before it.
        at: where in that knot's cell the point is.
    """

    cubics: _Cubics
    knots: FloatArray
    long: FloatArray
    y: FloatArray
    after: NDArray[np.intp]
    before: NDArray[np.intp]
    at: FloatArray

    @staticmethod
    def of(lines: _LineFamily, last: int, y: FloatArray, k1: float) -> _Knots:
        p, q, u = lines.starts[: last + 1], lines.ends[: last + 1], lines.turns[: last + 1]
        knots = lines.knots[: last + 1]
        values = p - (u - 1.0) * (p - q) / k1
        slopes = (q - p) / (k1 * lines.w[: last + 1])
        long = knots[1:] - knots[:-1]
        cubics = _Cubics.of(values, slopes[:-1] * long, slopes[1:] * long)
        after = np.searchsorted(y, knots)
        before = np.cumsum(np.bincount(after, minlength=y.size + 1))[: y.size] - 1
        if before[0] < 0 or before[-1] >= last:
            raise _UnprovedError
        at = (y - knots[before]) / long[before]
        return _Knots(cubics, knots, long, y, after, before, at)

    def at_points(self) -> tuple[FloatArray, FloatArray]:
        """The values of G at the points y, and its slopes times y."""
        c, k, r = self.cubics, self.before, self.at
        a1, a2, a3 = c.a1[k], c.a2[k], c.a3[k]
        values = c.a0[k] + r * (a1 + r * (a2 + r * a3))
        return values, self.y * (a1 + r * (2.0 * a2 + r * (3.0 * a3))) / self.long[k]

    def degree4(self, lines: _LineFamily, g: float, e: float) -> FloatArray:
        """For each cell of knots the coefficient of r^4 in (1 + g r) (l_w(y) - G(y))."""
        n = self.long.size
        p, q = lines.first.a3[:n], lines.second.a3[:n]
        long = self.long / lines.w[:n]
        return (g * (e * p - q) - long * (p - q)) / (e - 1.0) - g * self.cubics.a3

    def off(self, values: FloatArray, slopes: FloatArray, g: float, total: FloatArray) -> float:
        """The largest distance of G from the cubics between the points, in parts of ``total``."""
        c, f, y = self.cubics, _of_run(values, slopes, g), self.y
        # second derivatives, times the square of the length of a point's cell
        square = (g * y / self.long[self.before]) ** 2
        here = (2.0 * c.a2[self.before] + 6.0 * c.a3[self.before] * self.at) * square
        start, end = 2.0 * f.a2, 2.0 * f.a2 + 6.0 * f.a3
        most = np.abs(here[:-1] - start)
        most = np.maximum(most, np.abs(here[1:] / (1.0 + g) ** 2 - end))
        off = float((most / total[1:]).max())
        # knots inside the cells
        inside = np.flatnonzero((self.after > 0) & (self.after < y.size))
        inside = inside[(inside > 0) & (inside < self.long.size)]
        i = self.after[inside] - 1
        r = (self.knots[inside] / y[i] - 1.0) / g
        square = (g * y[i]) ** 2
        left = (2.0 * c.a2 + 6.0 * c.a3)[inside - 1] / self.long[inside - 1] ** 2 * square
        right = 2.0 * c.a2[inside] / self.long[inside] ** 2 * square
        here = start[i] + 6.0 * f.a3[i] * r
        most = np.maximum(np.abs(left - here), np.abs(right - here))
        # rounding may turn the order of a knot and a point: on so small a part of a cell
        most += _PAID / g * (np.abs(left) + np.abs(right) + np.abs(here))
        off = max(off, float((most / total[i + 1]).max(initial=0.0)))
        return off / 8 * (1.0 + 2.0**-20)


def _off_of_mirror(values: FloatArray, slopes: FloatArray, g: float) -> float:
    """Bounds how far the cubics below 1 are from mirror images of those above it, where W >= 1.

    The fourth derivative of z p(1 / z) is y^5 (12 p'' + 8 y p''') at y = 1 / z, for a cubic p.
    """
    p = _of_run(values, slopes, g)
    second = np.maximum(np.abs(2.0 * p.a2), np.abs(2.0 * p.a2 + 6.0 * p.a3))
    most = float((12.0 * g**2 * second + 48.0 * g * np.abs(p.a3)).max())
    return 1.01 * ((1.0 + g) ** 2 * most / 384 + _PAID * (1.0 + float((values - 2 * slopes).max())))


def _coarser(run: _Run, weight: _Weight) -> _Run:
    """The cubics through every other point, and how far off they are."""
    n = run.values.size - 1 - (run.values.size - 1) % 2
    f, a, g = run.values[: n + 1], run.slopes[: n + 1], math.expm1(run.step)
    fine, long = _of_run(f, a, g), g * (2.0 + g)
    coarse = _of_run(f[::2], a[::2], long)
    most = np.zeros(n // 2)
    for i, start, length in ((0, 0.0, g), (1, g, g * (1.0 + g))):
        for r in (0.0, 1.0):
            theirs = (2.0 * fine.a2[i::2] + 6.0 * fine.a3[i::2] * r) * (long / length) ** 2
            ours = 2.0 * coarse.a2 + 6.0 * coarse.a3 * ((start + r * length) / long)
            most = np.maximum(most, np.abs(theirs - ours))
    total = f[::2] + weight.at(run.runs, run.points[: n + 1 : 2])
    total *= 1.0 - 2 * _MOST_OFF
    off = float((most / 8 / total[1:]).max()) * (1.0 + 2.0**-20)
    off += _PAID * float(((f - 2 * a)[:-1:2] / total[1:]).max())
    found = _Run(run.span, run.cells // 2, run.runs, f[::2], a[::2], run.off + off)
    return _ended(found, weight)
