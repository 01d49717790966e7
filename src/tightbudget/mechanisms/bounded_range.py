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
Where it rises to one of their ends tells which few of these ranges of t need to be looked at.
*From below*: some t on the grid, and of each strategy the P- and Q-mass of its rejection region.
Where there are many runs, smooth functions are closer than both by far
(:mod:`tightbudget.mechanisms.smooth_range`).

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

from tightbudget.mechanisms.smooth_range import seconds, smooth, tried
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
# Work that is done for one answer, about a minute; more runs, or runs of a larger span, have a
# pair each: together that takes milliseconds, and their epsilon is up to 16 % larger.
_BEARABLE, _MOST_RUNS = 2e10, 10_000
# Work for bounds that are as close as they get, some five seconds for each of the two.
_CLOSEST = 5e8
# A loss beyond so many standard deviations has a chance below 1e-25 (Hoeffding); there delta is
# taken for constant from above, and for 0 from below.
_DEVIATIONS = 10.8
# Grid points that are treated together. Affects time, never truth.
_SEGMENT = 4096
# Every so many t are tried first, at so many grid points together. Affects width, never truth.
_SKIPPED, _WINDOW = 4, 2048
# Relative: a D that is so little below the line over all that one run reaches is on it.
_STRAIGHT = 2.0**-44


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
        """The time that all grid points and runs take, about, in parts of 10 ns."""
        # next to nothing at points where D is straight, near 1
        spread = math.sqrt(runs) * self.span / 2
        straight = max(0.0, (spread - 20.0) / (spread + 20.0))
        return runs * self.reach(runs) * (20.0 - 15.0 * straight)

    def reach(self, runs: int) -> int:
        """The grid points above 0 that so many runs need."""
        spread = math.sqrt(runs) * self.span / 2
        far = spread * (spread / 2 + _DEVIATIONS)
        return min(runs * self.cells, math.ceil(far / self.step))


def _grid(span: float, runs: int, halvings: int) -> _Grid:
    """The grid whose bounds are 2^halvings times as close together as those of the first one."""
    cells = max(_FEWEST, 2 * math.ceil(span / (2 * _WIDEST)))
    while 2 * cells <= _MOST and _Grid(span, 2 * cells).work(runs) <= _WORK:
        cells *= 2
    return _Grid(span, 2 * round(cells / 2 * 2.0 ** (halvings / 2)))


def bearable(span: float, runs: int) -> bool:
    """Says whether :func:`above` and :func:`below` take a bearable time for so many runs."""
    return runs <= _MOST_RUNS and _work(span, runs, 0) <= _BEARABLE


def _work(span: float, runs: int, halvings: int) -> float:
    """The time that one of the two takes, about, in parts of 10 ns."""
    if tried(span, runs):
        return 1e8 * seconds(span, runs, halvings)
    return _grid(span, runs, halvings).work(runs)


def halvings_in_reach(span: float, runs: int) -> int:
    """Counts how often the distance of the bounds of so many runs is halved in a few seconds."""
    halvings = 0
    while _work(span, runs, halvings + 1) <= _CLOSEST and halvings < 12:
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
    found = smooth(span, runs, halvings)
    if found is not None:
        return _pair_under_chords(_Grid(span, found.cells), found.above())
    return above_by_chords(span, runs, halvings)


def above_by_chords(span: float, runs: int, halvings: int) -> AtomicPair:
    """The pair of :func:`above`, from chords of each D_j."""
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
    n, part = whole.size - 2 * m, max(_SEGMENT, 4 * m)
    found = [_of_part(grid, whole[i : min(i + part, n) + 2 * m]) for i in range(0, n, part)]
    return found[0] if len(found) == 1 else np.concatenate(found)


def _of_part(grid: _Grid, whole: FloatArray) -> FloatArray:
    m, paid = grid.cells, _paid(grid)
    n = whole.size - 2 * m
    # D is below the line through y / E and y E, which no interval of losses changes at y
    less = math.exp(-grid.span)
    best = (whole[:n] + less * whole[2 * m :]) / (1.0 + less)
    bent = np.flatnonzero(best > whole[m : m + n] * (1.0 + _STRAIGHT))
    best *= 1.0 + paid
    if not bent.size:
        return best
    lines = _Lines.of(grid, whole)
    first, last = (k[bent] for k in lines.searched())
    found = np.maximum(lines.largest(bent, first), lines.largest(bent, last))
    # the cells between both; most points have none
    more = np.flatnonzero(last - first > 1)
    counts = last[more] - first[more] - 1
    ends = np.append(0, np.cumsum(counts))
    start = 0
    while start < more.size:
        stop = max(start + 1, int(np.searchsorted(ends, ends[start] + _SEGMENT)) - 1)
        here, count = more[start:stop], counts[start:stop]
        begins = ends[start:stop] - ends[start]
        k = np.arange(count.sum()) + np.repeat(first[here] + 1 - begins, count)
        between = lines.largest(np.repeat(bent[here], count), k)
        found[here] = np.maximum(found[here], np.maximum.reduceat(between, begins))
        start = stop
    best[bent] = np.minimum(best[bent], found)
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
    """Lines through (y_k, D_k) and (y_(k+1), D_(k+1)), for all grid points k.

    With z = y e^-t in the cell k, E z is in the cell k + cells, for E = e^range. On a line,
    D(z) = A - G z / y_k with G = (D_k - D_(k+1)) / (e^h - 1) and A = D_k + G. At the grid point
    y = w y_k and u = e^t, w e^-h <= u <= w, the value is

        D_k - (w - 1) G + (u - 1) (w c / u - d) / (E - 1),   c = E G - G',   d = A - A',

    where G' and A' are of the second line. Its slope in u has the sign of w c - d u^2. So in the
    whole cell it rises in z if y >= y_k e^(2 h) c / d, and falls in z if y <= y_k c / d, provided
    that c and d are positive. It is continuous in z: cells at the left that all rise, and cells at
    the right that all fall, are nowhere above those between them. For c >= 0 it is concave in u,
    and largest at sqrt(w c / d) or at the end of the range of u that is nearer to it. The lines are
    not drawn beyond their range: where D is straight, each run would multiply the rounding of a
    cell.

    Cells are counted from the first of all grid points.
    """

    grid: _Grid
    values: FloatArray  # D_k
    falls: FloatArray  # G
    ends: FloatArray  # A
    bends: FloatArray  # c
    drops: FloatArray  # d
    starts: FloatArray  # D_k, with a share of A that pays for rounding
    edges: FloatArray  # w
    over: FloatArray  # w - 1 less what pays for rounding

    @staticmethod
    def of(grid: _Grid, values: FloatArray) -> _Lines:
        m = grid.cells
        falls = (values[:-1] - values[1:]) / math.expm1(grid.step)
        ends = values[:-1] + falls
        # In parts of A + w G: the errors of w, E and G move w c by 4 of theirs, of which 1 / E
        # counts, d by 40 units, the roots by 4, and the sums by 8. Twice the sum is granted.
        paid, t = _paid(grid), np.arange(m + 1) * grid.span / m
        return _Lines(
            grid,
            values,
            falls,
            ends,
            bends=math.exp(grid.span) * falls[:-m] - falls[m:],
            drops=ends[:-m] - ends[m:],
            starts=values[:-1] + ends * paid,
            edges=np.exp(t),
            over=np.expm1(t) - np.exp(t) * paid,
        )

    def searched(self) -> tuple[IndexArray, IndexArray]:
        """(n,) each: the first and the last cell where the largest value may be.

        Rounding of c and d is granted, and a hundredth of a cell for that of logarithms.
        """
        known, at, margin = self._turns
        rises = np.where(known, at + 2.0 + margin, -np.inf)
        falls = np.where(known, at - margin, np.inf)
        rises = np.maximum.accumulate(rises)
        falls = np.minimum.accumulate(falls[::-1])[::-1]
        # the numbers of cells with rises <= i, and with falls < i
        first, last = self._counts(np.ceil(rises)), self._counts(np.floor(falls) + 1.0) - 1
        first, last = np.minimum(first, last), np.maximum(first, last)
        # where D is constant there is nothing to find; of what rounding may have turned all is open
        still = (self.bends == 0.0) & (self.drops == 0.0) & (self.falls[: known.size] == 0.0)
        if not (known | still).all():
            k, width = np.arange(known.size), self.grid.cells
            unknown = ~(known | still)
            after = np.minimum.accumulate(np.where(unknown, k, k.size)[::-1])[::-1][: first.size]
            before = np.maximum.accumulate(np.where(unknown, k, -1))[width - 1 :]
            i = k[: first.size]
            first = np.where(after < i + width, np.minimum(first, after), first)
            last = np.where(before >= i, np.maximum(last, before), last)
        return self._inside(first), self._inside(last)

    def likely(self) -> IndexArray:
        """(n,): a cell near which the largest value is likely to be, if D is hardly straight."""
        known, at, _ = self._turns
        turns = np.maximum.accumulate(np.where(known, at + 1.0, -np.inf))
        return self._inside(self._counts(np.ceil(turns)))

    @functools.cached_property
    def _turns(self) -> tuple[NDArray[np.bool_], FloatArray, FloatArray]:
        """For each cell: whether rounding spares it, where it begins to fall, and how far off."""
        c, d, paid = self.bends, self.drops, _paid(self.grid)
        m, h = self.grid.cells, self.grid.step
        off = paid * (math.exp(self.grid.span) * self.falls[:-m] + self.falls[m:])
        more = paid * (self.ends[:-m] + self.ends[m:])
        with np.errstate(divide="ignore", invalid="ignore"):
            at = np.arange(c.size) + np.log(c / d) / h
            margin = 0.01 + 2.0 * (off / c + more / d) / h
            known = (c > 8.0 * off) & (d > 8.0 * more)
        return known, np.where(known, at, 0.0), np.where(known, margin, 0.0)

    def _counts(self, steps: FloatArray) -> IndexArray:
        """(n,): how many of these whole numbers are at most each grid point's own."""
        most = self.values.size - self.grid.cells
        at = np.clip(steps, 0.0, float(most)).astype(np.intp)
        return np.asarray(np.cumsum(np.bincount(at, minlength=most + 1))[self.grid.cells : most])

    def _inside(self, k: IndexArray) -> IndexArray:
        """The nearest cells that each grid point can reach."""
        i = np.arange(k.size)
        return np.asarray(np.clip(k, i, i + self.grid.cells - 1))

    def largest(self, i: IndexArray, k: IndexArray) -> FloatArray:
        """Upper bounds at grid points i, over the t that lead to cells k."""
        a = i + self.grid.cells - k  # 1 ... cells
        least, most = self.edges[a - 1], self.edges[a]
        c = self.bends[k]
        c *= most
        d = self.drops[k]
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
        c /= math.expm1(self.grid.span)
        c += self.starts[k]
        c -= self.over[a] * self.falls[k]
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
    found = smooth(span, runs, halvings)
    if found is not None:
        return _pair_of_tests(_Grid(span, found.cells), *found.lines())
    return below_by_tests(span, runs, halvings)


def below_by_tests(span: float, runs: int, halvings: int) -> AtomicPair:
    """The pair of :func:`below`, from tests of strategies that choose among points of a grid."""
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
    # D is smooth: one end of the cell with the best t of straight lines is next to the best one
    n, part = p.size - 2 * m, max(_SEGMENT, 4 * m)
    parts = [slice(i, min(i + part, n) + 2 * m) for i in range(0, n, part)]
    found = [_at_likely(grid, p[part], q[part]) for part in parts]
    better, worse = zip(*found, strict=True)
    return np.concatenate(better), np.concatenate(worse)


def _at_likely(grid: _Grid, p: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    m, values = grid.cells, p - q
    stay, leave = _chances(grid.span, grid.steps(m))
    likely = _Lines.of(grid, values).likely()
    at = np.arange(likely.size) + m

    def mixed(k: IndexArray) -> FloatArray:
        return np.asarray(stay[at - k] * values[k] + leave[at - k] * values[k + m])

    near = np.where(mixed(likely + 1) > mixed(likely), likely + 1, likely)
    return _at_best_t(grid.span, grid.step, m, p, q, near)


def _chances(span: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The chances p(t) of the loss t, and of the other one."""
    return np.exp(t) * np.expm1(span - t) / math.expm1(span), np.expm1(t) / math.expm1(span)


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
    stay, leave = _chances(span, np.minimum(np.arange(cells + 1) * step, span))
    near = np.empty(n, dtype=np.intp)
    for start in range(0, n, _WINDOW):
        i = np.arange(start, min(start + _WINDOW, n))
        windows = sliding_window_view(values, i.size)
        rough = _best(windows, cells + start, np.arange(0, cells + 1, _SKIPPED), stay, leave)
        least, most = int(rough.min()) - _SKIPPED, int(rough.max()) + _SKIPPED
        tried = np.arange(max(0, least), min(cells, most) + 1)
        near[i] = cells + i - _best(windows, cells + start, tried, stay, leave)
    return _at_best_t(span, step, cells, p, q, near)


def _best(
    windows: FloatArray, first: int, tried: IndexArray, stay: FloatArray, leave: FloatArray
) -> IndexArray:
    """For each grid point the t, of those that are tried, with the largest difference P - y Q."""
    near, far = windows[first - tried], windows[first - tried + stay.size - 1]
    mixed = stay[tried][:, None] * near + leave[tried][:, None] * far
    return np.asarray(tried[mixed.argmax(axis=0)])


def _at_best_t(
    span: float, step: float, cells: int, p: FloatArray, q: FloatArray, near: IndexArray
) -> tuple[FloatArray, FloatArray]:
    """P(S) and y Q(S) if after a loss of about t one does what is done at these grid points.

    The other output leads ``cells`` grid points further.
    """
    a = cells + np.arange(near.size) - near
    # the exponents' rounding, the calls, products and sums
    off = (3 * EXP + 16.0 * (1.0 + span)) * UNIT
    p_near, p_far = p[near], p[near + cells]
    q_near, q_far = q[near], q[near + cells]
    # what leads from the grid point of each output's loss to the loss for t = 0, and back
    with np.errstate(divide="ignore", invalid="ignore"):
        u = np.log((q_near - q_far * np.exp(-step * cells)) / (p_near - p_far))
        chosen = 0.5 * (u + a * step + span)
    chosen = np.where(np.isfinite(chosen), np.clip(chosen, 0.0, span), np.minimum(a * step, span))
    stays, leaves = _chances(span, chosen)
    behind = np.exp(a * step - chosen)
    leap = math.exp(span - cells * step)
    return (
        (stays * p_near + leaves * p_far) * (1.0 - off),
        (stays * q_near + leaves * leap * q_far) * behind * (1.0 + off),
    )


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
