"""The best of a random number of runs: what choosing hyperparameters costs.

Let Q be the law of one run's output, G the Q-probability that an output's score is exceeded (ties
are broken by coins, so that G is uniform), and phi the generating function of the number K of runs.
The best run has the density phi'(1 - G) q, for each of two neighbours Q and Q' with the same score.

*Upper bound.* Let f(G) = inf_t (t G + delta(t)) be the most that the neighbour's probability of an
event can be, over t = e^epsilon. Then G' <= f(G), phi' rises, and with x = q' / q

    delta_best(t) = E_Q (phi'(1 - G) - t x phi'(1 - G'))+ <= E_Q H(t x),
    H(y) = sup_G (phi'(1 - G) - y phi'(1 - f(G)))+ .

H is convex, falls from the mean number m of runs to 0, and is a sum of c_j (1 - y / y_j)+ where it
is a polygon. E_Q (1 - t x / y_j)+ is delta(t / y_j). So

    delta_best(t) <= sum_j c_j delta(t / y_j),  sum_j c_j = m.

It holds for every law of K and every score. With the largest y_j alone, c, it is m delta(t / c).
There c <= max(e^e, 1 + kappa delta(e))^(1 + shape) for a truncated negative binomial number and
every e >= 0, c <= e^(m delta(0)) for a Poisson number, and
c <= max(e^e, 1 + p delta(e) / (1 - p))^(n - 1) for a binomial one of n and p.
Source: of the density and of m delta(t / c) with a larger c, Papernot, Steinke 2022, arXiv
2110.03620, and Koskela, Redberg, Wang 2024, arXiv 2402.06701; the sum is proved above.

*Lower bound.* Any score is allowed. The one here puts outputs whose loss is below a threshold
first, which makes the neighbour's best more often one of them, and then the largest losses.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from tightbudget.mechanisms.composition import Composable, Composition, Mechanism, from_steps
from tightbudget.mechanisms.from_curve import FromCurve
from tightbudget.mechanisms.polygon_below import MASS_ERROR, Cells, Points, polygon_below
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.enclosure import Enclosure, exact, stack
from tightbudget.numerics.rounding import (
    TINY,
    UNIT,
    FloatArray,
    double_down,
    double_up,
    exp_down,
    exp_up,
    log_up,
    mul_up,
    next_up,
)
from tightbudget.numerics.validate import refuse
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair
from tightbudget.trials import Binomial, Trials, trials_of

# These trade tightness for time, and a certified answer stays one for any of them.
_DOTS = 400  # points of the curve of one run
_LARGEST = 5e3  # nats: the largest epsilon of that curve
_MOST_LOG = 690.0  # nats: e^690 and its inverse are doubles
_GAP = 1e-5  # wanted relative gap of delta at each point
_NEVER = 1e-30  # a delta beyond which a curve is not followed
_RANKS = 3000  # probabilities to be exceeded, at which the lines of H are made
_DECADES = 6.0  # so far below the inverse of the mean they begin
_CLOSE = 1e-7  # a distance of ranks, relative to that from 0 or 1, below which one is left out
_CHORD = 1e-6  # a relative error of delta that a point is left out for
_MOST_TOGETHER = 1000  # trials whose composition is asked for, too
_REFERENCE = 1e-6  # the delta at which the score of the lower bound is the worst, about


@dataclass(frozen=True)
class BestOf(Mechanism):
    """Runs ``run`` a random number of times, and releases the best output alone.

    So hyperparameters are chosen: each run draws a setting, trains, and is scored; ``run`` holds
    all that one trial asks of the records, the score included. The number of trials is drawn before
    the search from a law that does not depend on the records. Nothing else is released: not the
    number, not the other trials, not how long the search took.

    Guarantee: the exact epsilon and delta lie between two bounds, for any score that each
    output has by itself. The upper bound is sum_j c_j delta(epsilon - s_j), for the delta of one
    run and constants of the law of the number. The lower bound is attained: by two data sets that
    ``run`` can tell apart as well as its lower bound says, and by a rule that ranks its outputs in
    a certain order. The two are mostly within a few percent.
    Source: Papernot, Steinke 2022, "Hyperparameter tuning with Renyi differential privacy", for
    the laws; the bounds are proved in ``tightbudget.mechanisms.best_of``.

    Args:
        run: a mechanism or a composition: what one trial costs. In JSON and TOML a list of tables.
        trials: the law of the number of trials, of :mod:`tightbudget.trials`; or its table.

    Raises:
        ParameterError: ``run`` is no mechanism or composition, or runs nothing, or ``trials`` is no
            law.
    """

    run: Composition
    trials: Trials

    kind: ClassVar[str] = "best_of"
    symmetric: ClassVar[bool] = True
    mutual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        run: Any = self.run
        if isinstance(run, dict):
            run = [run]
        if isinstance(run, (list, tuple)) and all(isinstance(step, dict) for step in run):
            run = from_steps(list(run))
        if not isinstance(run, Composable):
            raise refuse("run", "be a mechanism or a composition", self.run)
        whole = Composition(run.parts)
        if not whole.runs:
            raise refuse("run", "have a mechanism that runs", whole)
        relation = self.relation or whole.relation
        if relation is not None:
            # a table stores the relation of the whole alone
            whole = Composition(tuple((m.under(relation), times) for m, times in whole.parts))
        self._set(run=whole, trials=trials_of(self.trials), relation=relation)

    def __repr__(self) -> str:
        one = len(self.run.parts) == 1 and self.run.runs == 1
        run = repr(self.run.parts[0][0]) if one else f"({self.run!r})"
        return f"{run}.best_of({self.trials!r})"

    def parameters(self) -> dict[str, Any]:
        return {"run": self.run.to_dict()["steps"], "trials": self.trials.to_dict()}

    def pair(self, direction: Direction) -> Pair:
        return _above(self.run, self.trials).pair(direction)

    def instance(self) -> Mechanism | None:
        return _Ranked(self.run, self.trials, relation=self.relation)

    @property
    def apart(self) -> str:
        return "the best of many"


@dataclass(frozen=True)
class _Ranked(Mechanism):
    """The best of many runs by a certain score, of a run that is below the exact one."""

    run: Composition
    trials: Trials

    def is_symmetric(self) -> bool:
        return len((self.run.attained_early or self.run).directions) == 1

    def pair(self, direction: Direction) -> Pair:
        return _below(self.run, self.trials, direction)


# ------------------------------------------------------------------------------- one run


@functools.lru_cache(maxsize=64)
def _profile(whole: Composable) -> tuple[Points, ...]:
    """The deltas of a composition, in each direction that matters, at the same epsilons."""
    lost = whole.answer(epsilon=math.inf).bounds.upper
    top = 0.0
    if lost < 1:
        least = min(1.0, lost * (1 + 1e-6) + _NEVER)
        top = whole.answer(delta=least, rtol=1e-2).bounds.upper
    # a run of bounded losses has no delta beyond the largest one
    largest = whole.answer(order=math.inf, rtol=1e-2).bounds.upper if lost == 0 else math.inf
    top = min(top, largest, _LARGEST)
    # denser at small epsilons, which people ask about
    epsilons = sorted({top * (j / _DOTS) ** 1.5 for j in range(_DOTS + 1)})
    if top < largest <= _LARGEST:
        epsilons.append(largest)
    found = []
    for engine in whole.engine.apart():
        read = engine.reader()
        deltas: list[Bounds] = []
        for epsilon in epsilons:
            if epsilon >= largest:
                deltas.append(Bounds(0.0, 0.0))
            elif deltas and deltas[-1].upper <= _NEVER:
                # the other direction's may still count, and delta falls
                deltas.append(Bounds(0.0, deltas[-1].upper))
            else:
                deltas.append(read(epsilon, _GAP))
        # it falls, so that a later lower bound holds before, and an earlier upper one after
        lower = np.maximum.accumulate([d.lower for d in deltas][::-1])[::-1]
        upper = np.minimum.accumulate([d.upper for d in deltas])
        rest = read(math.inf, _GAP).lower
        found.append(Points(tuple(epsilons), tuple(lower.tolist()), tuple(upper.tolist()), rest))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _Polygon:
    """An upper bound of delta(t) in both directions, over t = e^epsilon > 0.

    The points are joined by chords, since delta is convex in t; on the right it is constant. With
    delta(t) that of the other direction is known, too: delta'(1 / t) = 1 - 1 / t + delta(t) / t.
    """

    t: FloatArray  # (n,) ascending, the first one is 0, where delta is 1
    delta: FloatArray  # (n,)

    @staticmethod
    def of(points: Sequence[Points]) -> _Polygon:
        worst = np.max([p.upper for p in points], axis=0).tolist()
        known = [at for at in zip(points[0].epsilons, worst, strict=True) if at[0] <= _MOST_LOG]
        found: dict[float, float] = {0.0: 1.0}
        for epsilon, delta in reversed(known):
            # a point may be moved right or up
            t, mirrored = exp_down(epsilon), 1 - (1 - Fraction(delta)) / Fraction(exp_up(epsilon))
            if epsilon > 0:
                found[next_up(1.0 / t)] = double_up(mirrored)
        for epsilon, delta in known:
            found.setdefault(exp_up(epsilon), delta)
        ends = sorted(found)
        return _Polygon(np.array(ends), np.array([found[end] for end in ends]))

    def at(self, t: FloatArray) -> FloatArray:
        """Upper bounds of delta at each t >= 0."""
        if self.t.size == 1:
            return np.ones(t.shape)
        i = np.clip(np.searchsorted(self.t, t, side="right") - 1, 0, self.t.size - 2)
        before, after = self.delta[i], self.delta[i + 1]
        with np.errstate(over="ignore"):
            part = np.minimum((t - self.t[i]) / (self.t[i + 1] - self.t[i]), 1.0)
        # seven roundings, of numbers that are at most the value before
        chord = before - (before - after) * part + 16 * UNIT * before
        return np.asarray(np.where(t >= self.t[i + 1], after, np.minimum(chord, 1.0)))

    def most(self, g: FloatArray) -> FloatArray:
        """Upper bounds of f(g) = min over the points of t g + delta, concave but for rounding."""
        lines = self.t[None, :] * g[:, None] + self.delta[None, :]
        return np.asarray(np.minimum(lines.min(axis=1) * (1 + 4 * UNIT), 1.0))

    def kinks(self) -> FloatArray:
        """Lists the g in (0, 1) where f(g) goes from the line of a point to the next one, about."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            found = -np.diff(self.delta) / np.diff(self.t)
        return np.asarray(found[(found > 0.0) & (found < 1.0)])


# ------------------------------------------------------------------------------- from above


@functools.lru_cache(maxsize=64)
def _above(run: Composition, trials: Trials) -> FromCurve:
    """A mechanism that dominates the best of many runs, in both directions."""
    polygon = _Polygon.of(_profile(run))
    epsilons = _profile(run)[0].epsilons
    shifts, shares = _hinges(polygon, trials)
    most = log_up(float(np.max(shifts)))
    # a little beyond the last shifted point, so that rounding does not end before it
    top = (epsilons[-1] + most) * (1 + 1e-13) + 1e-13
    asked = [min(top, 1e4) * (j / _DOTS) ** 1.5 for j in range(_DOTS + 1 if top else 1)]
    t = np.array([exp_down(epsilon) for epsilon in asked])
    values = polygon.at(t[:, None] * (1 - 4 * UNIT) / shifts[None, :]) * shares[None, :]
    # sums of non-negative terms: each is rounded at most so often
    found = values.sum(axis=1) * (1 + (shares.size + 4) * UNIT)
    deltas = np.minimum(found, 1.0)
    # K runs have at most K times the total variation of one
    mean = float(trials.density(exact(np.zeros(1))).upper[0])
    deltas[0] = min(deltas[0], mul_up(mean, float(polygon.at(np.ones(1))[0])))
    points = dict(zip(asked, deltas.tolist(), strict=True))
    if isinstance(trials, Binomial) and trials.n <= _MOST_TOGETHER:
        # the best of at most n runs is a function of n runs
        for epsilon, delta in zip(*_all_of(run, trials.n), strict=True):
            points[epsilon] = min(delta, points.get(epsilon, 1.0))
    ends = _thinned(points)
    return FromCurve(tuple(ends), tuple(points[e] for e in ends), relation=run.relation)


def _thinned(points: dict[float, float]) -> list[float]:
    """The epsilons of points that say more than chords of others do: any of them are enough."""
    falling: list[float] = []
    for epsilon in sorted(points):
        if not falling or points[epsilon] < points[falling[-1]]:
            falling.append(epsilon)
    kept = falling[:1]
    begin = 0
    for i in range(1, len(falling)):
        if i + 1 < len(falling):
            t = np.exp(np.array(falling[begin : i + 2]) - falling[begin])
            d = np.array([points[e] for e in falling[begin : i + 2]])
            chord = d[0] + (d[-1] - d[0]) * (t - 1.0) / (t[-1] - 1.0)
            if np.all(chord <= d * (1 + _CHORD)):
                continue
        kept.append(falling[i])
        begin = i
    return kept


def _all_of(run: Composition, n: int) -> tuple[tuple[float, ...], FloatArray]:
    """Points above the delta of n runs together."""
    found = _profile(run * n)
    return tuple(found[0].epsilons), np.max([points.upper for points in found], axis=0)


def _hinges(polygon: _Polygon, trials: Trials) -> tuple[FloatArray, FloatArray]:
    """Numbers y_j, rounded up, and shares c_j, rounded up, with H(y) <= sum c_j (1 - y / y_j)+ ."""
    begin = 10.0**-_DECADES / _steep(trials)
    small, near = np.geomspace(begin, 0.5, _RANKS), np.geomspace(0.5, 8 * UNIT, _RANKS // 2)
    kinks = polygon.kinks()
    ranks = np.unique(np.concatenate([[0.0], small, 1.0 - near, kinks, [1.0]]))
    # rounding is a large part of a difference of values at ranks that are too close
    gap = _CLOSE * np.minimum(ranks, 1.0 - ranks)[1:]
    ranks = np.append(0.0, ranks[1:][np.diff(ranks) > gap])
    most = polygon.most(ranks)
    a = trials.density(exact(ranks)).upper
    # f is known from above up to 16 units, and phi' of it from both sides
    low = trials.density(exact(most)).lower
    high = trials.density(exact(most * (1 - 16 * UNIT))).upper
    # Between two ranks a line is at most on the chord of the lines of both, if these are lowered by
    # how far phi'(1 - f) sags. Where it sags by more than is left, it falls, and so does phi'.
    sagging = _sagging(ranks, low, high)
    steep = 2.0 * sagging > np.minimum(low[:-1], low[1:])
    sagging[steep] = 0.0
    slopes = low - np.maximum(np.append(sagging, 0.0), np.append(0.0, sagging))
    a, slopes = np.append(a, a[:-1][steep]), np.append(slopes, low[1:][steep])
    lines = [(Fraction(x), Fraction(y)) for x, y in zip(a.tolist(), slopes.tolist(), strict=True)]
    corners = _envelope([*lines, (Fraction(0), Fraction(0))])
    y = np.array([double_up(corner) for corner, _ in corners])
    c = np.array([double_up(share) for _, share in corners])
    rest = max((a for a, b in lines if b == 0), default=Fraction(0))
    if rest:  # what no slope bounds is there for every y
        y, c = np.append(y, np.inf), np.append(c, double_up(rest))
    return np.maximum(y, 1.0), c


def _steep(trials: Trials) -> float:
    """Estimates how fast phi'(1 - G) falls with G near 0, relatively; at least 1."""
    top, beside = trials.density(exact(np.array([0.0, 1e-6 / (1.0 + trials.expected())]))).lower
    return max(1.0, float(top / beside - 1.0) * 1e6 * (1.0 + trials.expected()))


def _sagging(x: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Bounds how far a convex falling function is below each chord of two neighbouring points.

    Args:
        x: (n,) ascending.
        low, high: (n,) bounds of its values.

    Returns:
        (n - 1,) upper bounds.
    """
    width = np.diff(x)
    n = width.size
    # the chord is above the larger of two lines by at most what it is where they meet: of what a
    # line through the two points on the left leaves at the right end, and vice versa
    left, right = np.full(n, np.inf), np.full(n, np.inf)
    falls = (high[:-1] - low[1:]) / width  # at most so fast, to the left of the points on the right
    rises = (low[:-1] - high[1:]) / width  # at least so fast, to the right of those on the left
    left[1:] = high[2:] - low[1:-1] + falls[:-1] * width[1:]
    right[:-1] = high[:-2] - low[1:-1] - rises[1:] * width[:-1]
    # seven roundings of numbers that are at most the value on the left, and of the line's rise
    left[1:] += 16 * UNIT * (high[1:-1] + falls[:-1] * width[1:])
    right[:-1] += 16 * UNIT * (high[:-2] + np.abs(rises[1:]) * width[:-1])
    left, right = np.maximum(left, TINY), np.maximum(right, TINY)
    with np.errstate(over="ignore", invalid="ignore"):
        chord = left / (1.0 + left / right) * (1 + 8 * UNIT)
    return np.asarray(np.where(np.isinf(left), right, np.where(np.isinf(right), left, chord)))


def _envelope(lines: list[tuple[Fraction, Fraction]]) -> list[tuple[Fraction, Fraction]]:
    """Writes max_i (a_i - y b_i) over y >= 0 as a sum of c (1 - y / corner)+, in rationals.

    Lines without a slope, but the last one (0, 0), are left out.
    """
    steep = sorted({line for line in lines if line[1] > 0}, key=lambda line: (-line[1], line[0]))
    hull: list[tuple[Fraction, Fraction]] = []
    for a, b in [*steep, lines[-1]]:
        if hull and b == hull[-1][1]:
            hull.pop()  # the same slope, and not higher
        while hull:
            if a >= hull[-1][0]:
                hull.pop()
                continue
            if len(hull) > 1:
                (a0, b0), (a1, b1) = hull[-2:]
                if (a0 - a1) * (b1 - b) >= (a1 - a) * (b0 - b1):
                    hull.pop()
                    continue
            break
        hull.append((a, b))
    corners = []
    for (a0, b0), (a1, b1) in pairwise(hull):
        corner = (a0 - a1) / (b0 - b1)
        corners.append((corner, corner * (b0 - b1)))
    return corners


# ------------------------------------------------------------------------------- from below


@functools.lru_cache(maxsize=64)
def _below(run: Composition, trials: Trials, direction: Direction) -> AtomicPair:
    """The best of many runs by a score that ranks the cells of a run below the exact one."""
    whole = run.attained_early or run  # guard: one-run-is-below-the-best
    profile = _profile(whole)
    directions = whole.directions
    own = profile[directions.index(direction) if len(directions) > 1 else 0]
    # the pair in reverse is the other direction's, where that is known
    mutual = all(mechanism.is_mutual() for mechanism, _ in whole.parts)
    other = profile[-1 if direction is directions[0] else 0] if mutual else None
    cells = polygon_below(own, other)
    ranked = cells.ranked(_threshold(cells, trials, own))
    p = _masses([cell.p for cell in ranked], trials)
    q = _masses([cell.q for cell in ranked], trials)
    return AtomicPair.from_masses(p, q)


def _masses(cells: list[Fraction], trials: Trials) -> Enclosure:
    """The probability that the best run is in each of the cells, the best cell first; then none."""
    off = MASS_ERROR * (len(cells) + 1)
    starts = [Fraction(0), *itertools.accumulate(cells)][:-1]
    start = Enclosure(
        np.array([double_down(max(Fraction(0), x - off)) for x in starts]),
        np.array([double_up(min(Fraction(1), x + off)) for x in starts]),
    )
    width = Enclosure(
        np.array([double_down(max(Fraction(0), x - off)) for x in cells]),
        np.array([double_up(x + off) if x else 0.0 for x in cells]),
    )
    return stack(trials.best_in(start, width), trials.none())


def _threshold(cells: Cells, trials: Trials, points: Points) -> float:
    """The loss below which outputs are ranked first: about the worst one, and any is allowed."""
    first = [cell for cell in cells.ascending() if cell.loss < 0]
    if not first:
        return -math.inf
    above = (
        np.cumsum([float(mass) for mass in masses])
        for masses in ([cell.p for cell in first], [cell.q for cell in first])
    )
    here, there = (trials.density(exact(np.minimum(x, 1.0))).upper for x in above)
    # outputs with at most a loss first: the best is later one of them with these densities
    logs = np.log(np.maximum(np.array(points.lower), TINY))
    reached = np.interp(np.log(here) - math.log(_REFERENCE), -logs, points.epsilons)
    best = np.log(here) - np.log(there) + reached
    k = int(np.argmax(best))
    plain = float(np.interp(math.log(trials.expected() / _REFERENCE), -logs, points.epsilons))
    return first[k].loss if best[k] > plain else -math.inf
