"""Adaptive runs of mechanisms whose loss lies in an interval of a known length.

The loss of one run lies in [t - range, t] for some t in [0, range] that nobody knows and that may
depend on all earlier outputs. With t known, the worst pair has two outputs: loss t with P-mass
p(t) = (1 - e^(t - range)) / (1 - e^-range), else loss t - range. So the worst delta of j runs,
D_j(y) at y = e^eps, obeys

    D_0(y) = (1 - y)+,    D_j(y) = sup_t p(t) D_(j-1)(y e^-t) + (1 - p(t)) D_(j-1)(y e^(range - t)).

D_j is convex and falling in y, and D_j(1 / y) = 1 - 1/y + D_j(y) / y, since the family is its own
mirror image: t becomes range - t. The grid is y = e^(i h), h = range / cells, so that both factors
of a t on it lead from grid points to grid points.

*From above*: between two grid points D_(j-1) is below its chord. For t between a h and (a + 1) h
the two arguments stay in one chord each, and the largest value over all such t has a closed form.
*From below*: some t on the grid, and of each strategy the P- and Q-mass of its rejection region.

Source: Dong, Durfee, Rogers 2020, "Optimal differential privacy composition for exponential
mechanisms and the cost of adaptivity", for the family and the recursion.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure
from tightbudget.numerics.rounding import EXP, TINY, UNIT, FloatArray, next_down, next_up
from tightbudget.pairs.atomic import AtomicPair, at_most, log_quotient
from tightbudget.pairs.pair import Atoms, zero

IndexArray = NDArray[np.intp]

# Cells of a span for the first answer; few runs have as many as take about 50 ms, since their
# delta falls to 0 within a few cells. The distance of the two bounds falls with the square: for 100
# runs of .1 and 32 cells, it is 7e-4 of epsilon at delta 1e-6.
_FEWEST, _MOST, _WORK = 32, 2048, 5e6
# At most so many nats between grid points of the first answer: deltas of large spans bend within
# one nat, too.
_WIDEST = 0.1
# Work that is done for one answer, about three minutes; more runs, or runs of a larger span, have a
# pair each: together that takes milliseconds, and their epsilon is up to 16 % larger.
_BEARABLE, _MOST_RUNS = 2e10, 10_000
# Work for bounds that are as close as they get, some five seconds for each of the two.
_CLOSEST = 3e8
# A loss beyond so many standard deviations has a chance below 1e-25 (Hoeffding); there delta is
# taken for constant from above, and for 0 from below.
_DEVIATIONS = 10.8
# Cells whose chords are one line in a first pass; it rules most of them out.
_COARSE = 8
# Grid points that share the cells which are not ruled out. Affects time, never truth.
_SEGMENT = 2048


@dataclass(frozen=True)
class _Grid:
    """The grid of a span: its steps, and the numbers that every run needs.

    ``off`` is a relative error of each of them: the exponent's rounding, twice, and the call.
    """

    span: float
    cells: int

    @property
    def step(self) -> float:
        return self.span / self.cells

    @property
    def off(self) -> float:
        return (EXP + 8.0 + 4.0 * self.span) * UNIT

    def steps(self, j: int) -> FloatArray:
        """The losses 0, h, ..., j h."""
        return np.arange(j + 1) * self.span / self.cells

    def work(self, runs: int) -> float:
        """The cells of all grid points and runs that are looked at, about."""
        return runs * self.reach(runs) * (self.cells / _COARSE + 3 * _COARSE)

    def reach(self, runs: int) -> int:
        """The grid points above 0 that so many runs need."""
        spread = math.sqrt(runs) * self.span / 2
        far = spread * (spread / 2 + _DEVIATIONS)
        return min(runs * self.cells, math.ceil(far / self.step))


def _grid(span: float, runs: int, halvings: int) -> _Grid:
    """The grid whose bounds are 2^halvings times as close together as those of the first one."""
    cells = max(_FEWEST, _COARSE * math.ceil(span / (_WIDEST * _COARSE)))
    while cells < _MOST and _Grid(span, 2 * cells).work(runs) <= _WORK:
        cells *= 2
    return _Grid(span, _COARSE * round(cells / _COARSE * 2.0 ** (halvings / 2)))


def bearable(span: float, runs: int) -> bool:
    """Says whether :func:`above` and :func:`below` take a bearable time for so many runs."""
    return runs <= _MOST_RUNS and _grid(span, runs, 0).work(runs) <= _BEARABLE


def halvings_in_reach(span: float, runs: int) -> int:
    """Counts how often the distance of the bounds of so many runs is halved in a few seconds."""
    halvings = 0
    while _grid(span, runs, halvings + 1).work(runs) <= _CLOSEST and halvings < 12:
        halvings += 1
    return halvings


# Rounding may leave the chords of D_j not quite convex. Then the joint pairs of the proof are those
# of their lower convex hulls: what the recursion makes of a hull is convex, and at most the next
# chords.
# Proof: proofs/choices.v, theorems joint_by_deltas, two_ends, bounded_range
@functools.lru_cache(maxsize=32)  # a curve asks for the same pair at each of its points
def above(span: float, runs: int, halvings: int) -> AtomicPair:
    """A pair that dominates adaptive runs of a family of bounded range.

    Guarantee: its delta is at least D_runs at every epsilon, and so dominates the runs together
    with any other mechanisms that have a dominating pair each, in any order.

    Args:
        span: the length of the interval of losses of one run, > 0, nats.
        runs: of them, >= 1.
        halvings: how often the distance of the bounds is halved, about.
    """
    grid = _grid(span, runs, halvings)
    delta = np.zeros(1)  # at y = 1, e^h, ...; beyond its last entry it is constant
    for j in range(runs):
        delta = _one_more_above(grid, delta, grid.reach(j + 1))
    return _pair_under_chords(grid, delta)


def _one_more_above(grid: _Grid, delta: FloatArray, reach: int) -> FloatArray:
    """Upper bounds of D_j at the grid points 0 ... reach, from those of D_(j-1)."""
    m = grid.cells
    best = _largest(grid, _mirrored(grid, delta, left=m, right=reach + m))
    # a falling function; where rounding has it rise, the larger value is a bound before it, too
    return np.asarray(np.maximum.accumulate(np.minimum(best, 1.0)[::-1])[::-1])


def largest_of_one_run(span: float, cells: int, values: FloatArray) -> FloatArray:
    """Upper bounds of sup_t p(t) D(y e^-t) + (1 - p(t)) D(y e^(span - t)) for a convex D.

    Args:
        span: the length of the interval of losses, > 0, nats.
        cells: the number of grid cells in it.
        values: (n + 2 cells,) falling upper bounds of D >= 0, on the grid y = e^(i span / cells).

    Returns:
        (n,) bounds at all grid points but the first and the last ``cells`` of them.
    """
    return _largest(_Grid(span, cells), values)


def _largest(grid: _Grid, whole: FloatArray) -> FloatArray:
    m = grid.cells
    n, blocks = whole.size - 2 * m, m // _COARSE
    fine = _Lines.of(grid, whole, 1)
    coarse = _Lines.of(grid, whole, _COARSE) if blocks else None
    best = np.empty(n)
    for start in range(0, n, _SEGMENT):
        part = slice(start, min(start + _SEGMENT, n))
        found = np.zeros(part.stop - start)
        if blocks * _COARSE < m:  # cells that fill no block
            last = fine.largest(part, blocks * _COARSE, m - blocks * _COARSE)
            np.maximum(found, last.max(axis=0), out=found)
        if coarse is not None:
            rough = coarse.largest(part, 0, blocks)
            # the block that is most at the middle of the part, and all that may be above it
            first = int(np.argmax(rough[:, rough.shape[1] // 2]))
            most = fine.largest(part, first * _COARSE, _COARSE).max(axis=0)
            np.maximum(found, most, out=found)
            for block in np.flatnonzero((rough > found).any(axis=1)):
                if block != first:
                    more = fine.largest(part, int(block) * _COARSE, _COARSE).max(axis=0)
                    np.maximum(found, more, out=found)
        best[part] = found
    return best


def _mirrored(grid: _Grid, delta: FloatArray, *, left: int, right: int) -> FloatArray:
    """Values of D at the grid points -left ... right, from bounds at 0, 1, ..."""
    beyond = max(left, right) + 1 - delta.size
    if beyond > 0:
        delta = np.append(delta, np.full(beyond, delta[-1]))
    x = grid.steps(left)[1:]
    shrunk = delta[1 : left + 1] * np.exp(-x) * (1.0 + grid.off)
    # expm1, its exponent, a product and a sum
    below = (shrunk - np.expm1(-x) * (1.0 + grid.off)) * (1.0 + 4 * UNIT)
    return np.concatenate([below[::-1], delta[: right + 1]])


@dataclass(frozen=True)
class _Lines:
    """Lines through (y_j, D_j) and (y_(j+width), D_(j+width)), for all grid points j.

    With y = e^(i h) and a t between a h and (a + width) h, y e^-t lies on the line at
    j = i - a - width, and y e^(range - t) on the one at j + cells. On a line,
    D(z) = A - G z / y_j with G = (D_j - D_(j+width)) / (e^(width h) - 1) and A = D_j + G. With
    u = e^t, w = e^((a + width) h) and E = e^range, the value is

        D_j - (w - 1) G + (u - 1) (c / u - d) / (E - 1),   c = w (E G - G'),   d = A - A',

    where G' and A' are of the second line. For c >= 0 it is concave in u, and largest at
    sqrt(c / d) or at the end of the range of u that is nearer to it. The lines are not drawn beyond
    their range: where D is straight, each run would multiply the rounding of a cell.
    """

    grid: _Grid
    width: int
    starts: FloatArray  # D_j, with a share of A that pays for rounding
    falls: FloatArray  # G
    ends: FloatArray  # A
    # w, w - 1 less what pays for rounding, and the ends of the range of u, by the range of t
    factors: tuple[FloatArray, FloatArray, FloatArray]

    @staticmethod
    def of(grid: _Grid, values: FloatArray, width: int) -> _Lines:
        rise = math.expm1(width * grid.span / grid.cells)
        falls = (values[:-width] - values[width:]) / rise
        starts = values[:-width]
        ends = starts + falls
        # In parts of A + w G: the errors of w, E and G move c by 4 of theirs, of which 1 / E
        # counts, d by 40 units, the roots by 4, and the sums by 8. Twice the sum is granted.
        w = np.arange(width, grid.cells + 1, width) * grid.span / grid.cells
        factors = np.exp(w), np.expm1(w) - np.exp(w) * _paid(grid), np.exp(np.append(0.0, w))
        return _Lines(grid, width, starts + ends * _paid(grid), falls, ends, factors)

    def largest(self, part: slice, start: int, count: int) -> FloatArray:
        """Upper bounds over ``count`` ranges of t, the first of which begins at ``start`` h.

        Returns:
            (count, n) for the n grid points i in ``part``.
        """
        grid, width = self.grid, self.width
        m, n = grid.cells, part.stop - part.start
        # the arrays begin at the grid point -m
        first = m + part.start - start - width

        def at(array: FloatArray, first: int) -> FloatArray:
            # rows that begin at first, first - width, ...: views, as of sliding_window_view, which
            # takes as long as the sums
            size = array.itemsize
            return np.ndarray((count, n), array.dtype, array, first * size, (-width * size, size))

        row = start // width + np.arange(count)
        w, over = self.factors[0][row][:, None], self.factors[1][row][:, None]
        fall = at(self.falls, first)
        # into one array each, which takes a third off the time
        c = math.exp(grid.span) * fall
        c -= at(self.falls, first + m)
        c *= w
        d = at(self.ends, first) - at(self.ends, first + m)
        least, most = (self.factors[2][row + i][:, None] for i in (0, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            u = np.maximum(c, 0.0)
            u /= np.maximum(d, 0.0)
        np.sqrt(u, out=u)
        # 0 / 0: the term is 0 for all u, or d < 0 and it is largest at the end
        np.fmax(np.fmin(u, most, out=u), least, out=u)
        bent = c < 0.0  # by rounding: the term is convex in u, and largest at an end
        if bent.any():
            u = np.where(bent, np.where(d * least * most < c, most, least), u)
        c /= u
        c -= d
        u -= 1.0
        c *= u
        c /= math.expm1(grid.span)
        c += at(self.starts, first)
        c -= over * fall
        return c


def _paid(grid: _Grid) -> float:
    return 4 * grid.off + 96 * UNIT


def _pair_under_chords(grid: _Grid, delta: FloatArray) -> AtomicPair:
    """The pair whose delta has the chords between these values, and their mirror image."""
    n = delta.size - 1
    whole = _mirrored(grid, delta, left=1, right=n)
    growth = math.expm1(grid.step)
    off = 2 * grid.off + 16 * UNIT
    falls = np.append((whole[:-1] - whole[1:]) / growth, 0.0)  # of the chords from -1, 0, ..., n
    # e^h G_(j-1) - G_j is the P-mass of the kink at y_j; where rounding has turned a kink, it is
    # left out, and those at smaller losses are above what they need to be
    before, after = (1.0 + growth) * falls[:-1], falls[1:]
    rest = off * (before + after)
    p = Enclosure(np.maximum(before - after - rest, 0.0), np.maximum(before - after + rest, 0.0))
    x = grid.steps(n)
    q = p * exp_enclosure(-x, 4 * UNIT * x)
    away = 4 * UNIT * x[1:]
    losses = (x[1:] - away, x[1:] + away)
    return _with_mirror(p[1:], q[1:], losses, p[:1], at_most(float(delta[-1])))


@functools.lru_cache(maxsize=32)
def below(span: float, runs: int, halvings: int) -> AtomicPair:
    """A pair that no bound of adaptive runs of a family of bounded range is below.

    Guarantee: its delta is at most D_runs at every epsilon. Each point of its trade-off curve is
    that of a strategy, so that it is also attained beside mechanisms with an exact pair, after
    which the strategy chooses.

    Args:
        span: the length of the interval of losses of one run, > 0, nats.
        runs: of them, >= 1.
        halvings: how often the distance of the bounds is halved, about.
    """
    grid = _grid(span, runs, halvings)
    # P(S) and y Q(S) of a strategy's rejection region S, for y = 1, e^h, ...; beyond: none
    p, q = np.zeros(1), np.zeros(1)
    for j in range(runs):
        p, q = _one_more_below(grid, p, q, grid.reach(j + 1))
    return _pair_of_tests(grid, p, q)


def _one_more_below(
    grid: _Grid, p: FloatArray, q: FloatArray, reach: int
) -> tuple[FloatArray, FloatArray]:
    """P(S) and y Q(S) after one run more, for the t on the grid with the largest difference."""
    m, size = grid.cells, 2 * grid.cells + reach + 1
    x = grid.steps(m)[1:]
    p, q = (np.append(part, np.zeros(max(0, size - part.size)))[:size] for part in (p, q))
    # the complement of the mirror image; rounded down and up
    decay = np.exp(-x)
    p_left = 1.0 - q[1 : m + 1] * decay * (1.0 + grid.off)
    q_left = decay * (1.0 - p[1 : m + 1]) * (1.0 + grid.off)
    p = np.concatenate([p_left[::-1] * (1.0 - 4 * UNIT), p])
    q = np.concatenate([q_left[::-1] * (1.0 + 4 * UNIT), q])
    return best_of_one_run(grid.span, m, grid.step, p, q)


def best_of_one_run(
    span: float, cells: int, step: float, p: FloatArray, q: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """P(S) and y Q(S) after one run more, for about the t with the largest difference.

    With what is done after either output fixed, the difference at u = e^t is a constant less
    u (P - P') + (E / u) (Q - Q'), for the Q-masses before the run: it is largest at
    sqrt(E (Q - Q') / (P - P')). The grid only says what is done, and losses may lie beside it.

    Args:
        span: the length of the interval of losses, > 0, nats.
        cells: about span / step.
        step: the distance of grid points, nats.
        p: (n + 2 cells,) lower bounds of P(S) on the grid y = e^(i step).
        q: the same, upper bounds of y Q(S).

    Returns:
        (n,) each: a lower bound of P(S) and an upper one of y Q(S), at all grid points but the
        first and the last ``cells`` of them.
    """
    values = p - q
    n = values.size - 2 * cells
    t = np.minimum(np.arange(cells + 1) * step, span)
    stay = np.exp(t) * np.expm1(span - t) / math.expm1(span)  # p(t)
    leave = np.expm1(t) / math.expm1(span)
    # the exponents' rounding, the calls, products and sums
    off = (3 * EXP + 16.0 * (1.0 + span)) * UNIT
    out = np.empty((2, n))
    for start in range(0, n, _SEGMENT):
        i = np.arange(start, min(start + _SEGMENT, n))
        windows = sliding_window_view(values, i.size)
        rough = _best(windows, cells + start, np.arange(0, cells + 1, _COARSE // 2), stay, leave)
        least, most = int(rough.min()) - _COARSE // 2, int(rough.max()) + _COARSE // 2
        tried = np.arange(max(0, least), min(cells, most) + 1)
        a = _best(windows, cells + start, tried, stay, leave)
        near = cells + i - a
        p_near, p_far = p[near], p[near + cells]
        q_near, q_far = q[near], q[near + cells]
        # what leads from the grid point of each output's loss to the loss for t = 0, and back
        with np.errstate(divide="ignore", invalid="ignore"):
            u = np.log((q_near - q_far * np.exp(-step * cells)) / (p_near - p_far))
            chosen = 0.5 * (u + a * step + span)
        chosen = np.where(np.isfinite(chosen), np.clip(chosen, 0.0, span), t[a])
        stays = np.exp(chosen) * np.expm1(span - chosen) / math.expm1(span)
        leaves = np.expm1(chosen) / math.expm1(span)
        behind = np.exp(a * step - chosen)
        leap = math.exp(span - cells * step)
        out[0, i] = (stays * p_near + leaves * p_far) * (1.0 - off)
        out[1, i] = (stays * q_near + leaves * leap * q_far) * behind * (1.0 + off)
    return out[0], out[1]


def _best(
    windows: FloatArray, first: int, tried: IndexArray, stay: FloatArray, leave: FloatArray
) -> IndexArray:
    """For each grid point the t, of those that are tried, with the largest difference P - y Q."""
    near, far = windows[first - tried], windows[first - tried + stay.size - 1]
    mixed = stay[tried][:, None] * near + leave[tried][:, None] * far
    return np.asarray(tried[mixed.argmax(axis=0)])


def _pair_of_tests(grid: _Grid, p: FloatArray, q: FloatArray) -> AtomicPair:
    """The pair whose trade-off curve joins these tests' errors, their mirror images and the ends.

    Args:
        grid: the grid.
        p: (n,) at most P(S) of rejection regions S, for y = 1, e^h, ...
        q: (n,) at least y Q(S).
    """
    x = grid.steps(q.size - 1)
    q = q * exp_enclosure(-x, 4 * UNIT * x).upper * (1.0 + 2 * UNIT)
    if p[0] + q[0] > 1.0:  # the mirror image of the complement is the one that rejects less
        p[0], q[0] = next_down(1.0 - q[0]), next_up(1.0 - p[0])
    p, q = _concave(np.append(p, 0.0), np.append(q, 0.0))
    while p.size > 1 and p[0] - p[1] < q[0] - q[1]:  # a loss below 0
        p, q = p[1:], q[1:]
    middle = exact(1.0) - exact(p[0]) - exact(q[0])
    rise, cost = exact(p[:-1]) - exact(p[1:]), exact(q[:-1]) - exact(q[1:])
    known = (rise.lower > 0.0) & (cost.lower > 0.0)
    rise, cost = rise[known], cost[known]
    low, high = log_quotient(rise, cost)
    return _with_mirror(rise, cost, (low, high), middle, zero())


def _concave(p: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Leaves out the tests, but the first and the last, that are not above all others' chords."""
    if p.size > 2:
        # each must have smaller errors than all before it, and more than nothing
        less = (p < np.minimum.accumulate(np.append(np.inf, p[:-1]))) & (p > 0.0)
        less &= (q < np.minimum.accumulate(np.append(np.inf, q[:-1]))) & (q > 0.0)
        less[0] = less[-1] = True
        p, q = p[less], q[less]
    while True:
        rise, cost = p[:-1] - p[1:], q[:-1] - q[1:]
        right = (rise > 0.0) & (cost > 0.0)
        # products below TINY are not rounded by units of themselves, and prove nothing
        least = rise[1:] * cost[:-1] * (1.0 - 8 * UNIT)
        steeper = (least > rise[:-1] * cost[1:]) & (least > TINY)
        kept = np.concatenate([[True], steeper & right[1:] & right[:-1], [True]])
        if kept.all():
            return p, q
        # a test is judged by its neighbours: one of two is left out, and the other asked again
        kept[2:-1] |= ~kept[1:-2]
        p, q = p[kept], q[kept]


def _with_mirror(
    p: Enclosure,
    q: Enclosure,
    losses: tuple[FloatArray, FloatArray],
    middle: Enclosure,
    only: Enclosure,
) -> AtomicPair:
    """The pair of atoms with a loss above 0, of their mirror images, and of the loss 0.

    Args:
        p: the P-masses of the atoms.
        q: their Q-masses.
        losses: lower and upper bounds of their losses.
        middle: (1,) either mass of the loss 0.
        only: (1,) the mass of P that Q does not have, and of Q that P does not have.
    """
    low, high = losses
    right, left = Atoms(p, q, low, high), Atoms(q, p, -high, -low)
    between = Atoms(middle, middle, np.zeros(1), np.zeros(1))
    return AtomicPair(left.join(between).join(right), only, only)
