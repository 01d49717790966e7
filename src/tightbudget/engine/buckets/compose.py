"""The main path of the buckets engine: plan -> bucket -> convolve -> profile.

A composition is a list of (mechanism, number of runs). For one direction:

1. *plan*: a tilt from the best Chernoff bound of a rough sketch, a grid step for each mechanism
   from the variance that the wanted gap allows (a bucket of width h adds about
   h^2/6 to the variance of the upper measure and takes h^2/12 from the lower one's);
2. *bucket*: one step of each mechanism becomes an upper and a lower measure;
3. *convolve*: powers by right-to-left binary exponentiation, each measure trimmed and,
   when long, coarsened; then different mechanisms, finest grid first;
4. *profile*: bounds on delta(eps) near the tilt.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

import numpy as np

from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.engine.buckets.measures import LowerMeasure, Tilt, UpperMeasure, discretise
from tightbudget.engine.buckets.profile import Profile
from tightbudget.engine.buckets.tilt import Picture, Saddle, tilted_moments, without_tail
from tightbudget.errors import PrecisionError
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    UNIT,
    FloatArray,
    add_down,
    add_up,
    any_of,
    mul_down,
    mul_up,
)
from tightbudget.pairs.pair import Pair, Sketch

# Entries of one array; beyond it PrecisionError names the gap reached. 2^21 doubles are 16 MiB, and
# an FFT needs several such arrays at a time.
MAX_LENGTH = 2**21
# The first buckets get this share of the variance; later doublings of a step share the rest. A
# doubling halves all that follows, but is paid once more; no bound depends on where the cut is.
_FIRST = 0.7
# Above half a nat of width the variances that a plan counts on hold no more. Only an array of this
# length, an eighth of the longest, is coarsened nevertheless.
_LONG = 2**18
# More than twice so many different pairs: a tilt is searched for with so many that resemble them
# first. Of 12, 24 and 48 the time hardly differed. Affects time, never truth.
_OUTLINE = 24
_SHORT = 1024  # an FFT of so few entries takes microseconds: coarsening would only cost width

Pairs = tuple[tuple[Pair, int], ...]  # each pair with its count: how often it runs


@dataclass(frozen=True)
class Part:
    """A pair, how often it runs, and what is known of it beforehand."""

    pair: Pair
    count: int
    sketch: Sketch
    lattice: float | None  # the spacing, if all losses are on one lattice
    origin: float | None  # a loss that should be on an edge

    @staticmethod
    def of(pair: Pair, count: int) -> Part:
        """Asks the pair for everything that planning needs."""
        sketch = pair.sketch().sorted()
        lattice = _lattice(pair)
        # a lattice hangs on any of its atoms
        origin = pair.grid_origin() if lattice is None else float(pair.atoms().loss_upper[0])
        return Part(pair, count, sketch, lattice, origin)

    @functools.cached_property
    def is_continuous(self) -> bool:
        """Whether the pair has a continuous part."""
        return self.pair.bins(np.zeros(1), np.zeros(1)) is not None

    @functools.cached_property
    def has_formula(self) -> bool:
        """Whether the pair has a formula of one run's delta."""
        return self.pair.closed_delta(0.0) is not None

    @property
    def is_shift(self) -> bool:
        """Whether there is one finite loss only: it is on an edge of any grid, however wide."""
        return self.lattice is not None and self.sketch.losses[0] == self.sketch.losses[-1]


@dataclass(frozen=True)
class Parts:
    """A composition in one direction."""

    parts: tuple[Part, ...]  # those that have finite losses
    certain: bool  # whether some other part has no finite loss at all
    infinity: Bounds  # P(some loss is +inf), of the pairs themselves
    max_loss: Bounds  # the largest finite total loss; ends may be inf

    @staticmethod
    def of(pairs: Pairs) -> Parts:
        """Asks each pair once, and adds up what is certain of all runs."""
        parts = tuple(Part.of(pair, count) for pair, count in pairs)
        chances = [(part.pair.p_only(), part.count) for part in parts]
        infinity = Bounds(
            any_of([(float(p.lower[0]), k) for p, k in chances], up=False),
            any_of([(float(p.upper[0]), k) for p, k in chances], up=True),
        )
        tops = [_times(part.pair.max_loss(), part.count) for part in parts]
        # a part without a finite loss (-inf) leaves no finite total, however large others are
        least, most = [top.lower for top in tops], [top.upper for top in tops]
        max_loss = Bounds(
            -math.inf if -math.inf in least else add_down(*least),
            -math.inf if -math.inf in most else add_up(*most),
        )
        finite = tuple(part for part in parts if part.sketch.losses.size)
        certain = len(finite) < len(parts)
        if certain:
            infinity = Bounds(infinity.lower, 1.0)
        return Parts(finite, certain, infinity, max_loss)

    def like(self, most: int) -> Parts:
        """A composition of at most so many different pairs that resembles this one.

        It shows what a method will bring, for a small part of the time: no bound rests on it.
        """
        groups = self._groups(most)
        return Parts.of(
            tuple(
                (group[len(group) // 2].pair, sum(one.count for one in group)) for group in groups
            )
        )

    # Proof: proofs/order.v, theorems products, adaptive, repeated
    def between(self, demand: Demand, most: float) -> Between:
        """Few parts between which these lie: (dominated, dominating) ones with the same counts.

        Guarantee: a composition with any of the dominating parts in place of these dominates this
        one, and one with any of the others is dominated. No part with a loss of +inf is replaced.

        Args:
            demand: where on the curve both are to be near each other.
            most: how far ln delta of both may be apart there, about.
        """
        saddle = demand.saddle
        logs = []
        for sketch, _ in self.picture.without_tail(
            math.log(demand.tail) + saddle.log_delta
        ).sketches:
            # many losses make delta, or one large one, which a tilt may say little about
            gain = -np.expm1(np.minimum(0.0, saddle.epsilon - sketch.losses))
            alone = float(np.dot(np.exp(sketch.log_masses - saddle.log_delta), gain))
            logs.append(tilted_moments(sketch, saddle.theta)[0] + alone)
        share, groups = most / len(logs), [[i] for i in range(len(logs))]
        while most > 0.0:
            found, apart = list[list[int]](), 0.0
            for chain in self._chains:
                group, runs, off = list[int](), 0, 0.0
                for i in chain:
                    runs += self.parts[i].count
                    wider = runs * abs(logs[i] - logs[group[0]]) if group else 0.0
                    if wider > share:
                        found.append(group)
                        apart += off
                        group, runs, wider = [], self.parts[i].count, 0.0
                    group.append(i)
                    off = wider
                found.append(group)
                apart += off
            if apart <= most:
                groups = found
            if apart > most or len(found) == len(self._chains):
                break
            share *= 2.0
        both: Between = []
        for group in groups:
            count = sum(self.parts[i].count for i in group)  # guard: between-counts-all
            first, last = (replace(self.parts[group[i]], count=count) for i in (0, -1))
            both.append((first, last))
        return both

    @functools.cached_property
    def _chains(self) -> list[list[int]]:
        """The numbers of the parts in rows, in which each part is dominated by the next one."""
        means = [tilted_moments(part.sketch, 0.0)[1] for part in self.parts]
        kinds = [type(part.pair).__name__ for part in self.parts]
        rows = list[list[int]]()
        for i in sorted(range(len(means)), key=lambda i: (kinds[i], means[i])):
            if rows and _dominates(self.parts[i].pair, self.parts[rows[-1][-1]].pair):
                rows[-1].append(i)
            else:
                rows.append([i])
        return rows

    def _groups(self, most: int) -> list[tuple[Part, ...]]:
        """The parts in at most so many groups of about the same mean loss.

        Those with the largest losses, which matter most, are in small groups.
        """
        order = sorted(self.parts, key=lambda part: tilted_moments(part.sketch, 0.0)[1])
        ends = [round(len(order) * (1.0 - (1.0 - i / most) ** 2)) for i in range(most + 1)]
        return [tuple(order[i:j]) for i, j in itertools.pairwise(ends) if i < j]

    @functools.cached_property
    def picture(self) -> Picture:
        """Returns the sketches of all parts, which the tilt is chosen from."""
        return Picture(tuple((part.sketch, part.count) for part in self.parts))

    @functools.cached_property
    def outline(self) -> Picture:
        """Returns the sketches of few parts that resemble all, from which a search may begin."""
        if len(self.parts) <= 2 * _OUTLINE:
            return self.picture
        kinds = dict[type[Pair], list[Part]]()
        for part in self.parts:
            kinds.setdefault(type(part.pair), []).append(part)
        # of two kinds, the same mean loss says little about the large ones
        groups = [
            group
            for parts in kinds.values()
            for group in replace(self, parts=tuple(parts))._groups(_OUTLINE)
        ]
        middles = [(group[len(group) // 2], group) for group in groups]
        return Picture(
            tuple((one.sketch, sum(each.count for each in group)) for one, group in middles)
        )


Between = list[tuple[Part, Part]]  # parts that are dominated, and dominate, with the same counts


def _dominates(pair: Pair, other: Pair) -> bool:
    """Whether a pair is known to dominate another one, where neither has a loss of +inf."""
    finite = pair.p_only().upper[0] == other.p_only().upper[0] == 0.0
    return bool(finite) and pair.dominating_both(other) == pair


@dataclass(frozen=True)
class Demand:
    """A demand says what one profile is to be good for: it affects width and cost, never truth.

    Attributes:
        saddle: where on the curve.
        variance: how much the upper measure's variance may exceed the lower one's, nats^2.
        tail: the relative share of delta that may count as infinite.
        cut_share: the relative share of delta that all other cutting may cost.
        extended: whether rounding to doubles would cost too much.
    """

    saddle: Saddle
    variance: float
    tail: float
    cut_share: float
    extended: bool = False


@dataclass(frozen=True)
class Layout:
    """A layout is the grid and the tilt at which one run of a part is bucketed."""

    part: Part
    grid: Grid
    n: int
    tilt: Tilt


@dataclass(frozen=True)
class BucketPlan:
    """Grids and tolerances that meet a demand.

    Attributes:
        coarsening: variance that one doubling of a step may cost, nats^2.
        tolerance: 2-norm that one cut may remove, for a measure used once.
        clamped: whether a limit on lengths made the grids coarser than demanded.
        extended: whether convolutions are made in extended precision.
    """

    layouts: tuple[Layout, ...]
    coarsening: float
    tolerance: float
    clamped: bool
    extended: bool = False

    @property
    def variance(self) -> float:
        """The variance that a demand for just these grids would allow."""
        return sum(s.part.count * s.grid.step**2 for s in self.layouts) / (4 * _FIRST)

    @property
    def longest(self) -> int:
        """The most buckets of one step."""
        return max(layout.n for layout in self.layouts)


def make_plan(parts: Parts, demand: Demand, most: int = MAX_LENGTH) -> BucketPlan:
    """Grids for a demand, with at most ``most`` buckets for each step."""
    total_count = sum(part.count for part in parts.parts)
    theta = demand.saddle.theta
    spans = [span_of(part, demand, theta, total_count) for part in parts.parts]
    wanted = _widths(parts.parts, spans, _FIRST * demand.variance)
    excess = max(span.width / h for span, h in zip(spans, wanted, strict=True)) / most
    clamped = excess > 1.0
    if clamped:
        wanted = [2.0 * excess * h for h in wanted]
    # a tilt that changes by e^40, beyond the 36 nats of a double's digits, from one edge to the
    # next keeps one bucket only, and overflows soon
    if theta * max(wanted) > 40.0:
        theta = 40.0 / max(wanted)
        spans = [span_of(part, demand, theta, total_count) for part in parts.parts]
    base = base_step(parts.parts, wanted)
    layouts = []
    for part, span, h in zip(parts.parts, spans, wanted, strict=True):
        # all parts are base * 2^-j, so that grids meet when the finer one is coarsened
        lattice = None if part.is_shift else part.lattice
        if lattice is not None and _fits(lattice, base) and lattice <= base * 64:
            h = max(h, lattice)
        # 1e-9: a width that is a power of two times the base up to rounding is not halved
        h = base * 2.0 ** math.floor(math.log2(h / base) + 1e-9)
        layouts.append(_layout(part, span, h, theta))
    doublings = (math.ceil(math.log2(total_count + 1) / 2) + 2) * len(layouts)
    return BucketPlan(
        tuple(layouts),
        coarsening=(1 - _FIRST) * demand.variance / doublings,
        # a cut is repeated in every later squaring and convolution, and a 2-norm counts about the
        # root of the array's length in a sum: 1e-6 for both, which affects lengths by few entries
        tolerance=1e-6 * demand.cut_share * math.exp(-demand.saddle.slack),
        clamped=clamped,
        extended=demand.extended,
    )


def base_step(parts: tuple[Part, ...], wanted: list[float]) -> float:
    """A grid step that all others are power-of-two fractions or multiples of."""
    if len(parts) == 1 and parts[0].lattice:
        return parts[0].lattice
    for part, h in zip(parts, wanted, strict=True):
        spacing = part.lattice
        if spacing is None or part.is_shift:
            continue
        # a power of two of it: widths are powers of two times the base, and one that is the spacing
        # places each atom on an edge
        return math.ldexp(spacing, -max(0, math.ceil(math.log2(spacing / max(h, 1e-300)))))
    # few digits: then i * h is exact for every index that occurs
    mantissa, exponent = math.frexp(min(wanted))
    return math.ldexp(math.floor(mantissa * 2**20), exponent - 20)


def _fits(spacing: float, base: float) -> bool:
    ratio = spacing / base
    return abs(ratio - round(ratio)) < 1e-9 * ratio and round(ratio) >= 1


def _layout(part: Part, span: _Span, h: float, theta: float) -> Layout:
    start = edge_near(part, span.low, h)
    n = max(0, math.ceil((span.high - float(start)) / h)) + 2
    if n > 4 * MAX_LENGTH:
        raise PrecisionError(f"one step would need {n:.3g} buckets of width {h:.3g}")
    return Layout(part, Grid(start, h), n, Tilt(theta, Fraction(span.mean)))


def edge_near(part: Part, low: float, h: float) -> Fraction:
    """An edge at most h below ``low``, on the grid of width h through the step's origin."""
    origin = part.origin
    if origin is None or not math.isfinite(origin):
        return Fraction(low)
    start = Fraction(origin) + math.floor((low - origin) / h) * Fraction(h)
    # what is meant to lie on the origin's edge must not end up in the bin beyond it by
    # rounding. So the edge is placed a margin above atoms and largest losses, and a margin below
    # a smallest one: 32 units of all the magnitudes that the position of a loss is computed from
    reach = abs(origin) + abs(low) + h
    if part.lattice is not None:  # every atom is meant to lie on an edge
        reach += abs(float(part.sketch.losses[0])) + abs(float(part.sketch.losses[-1]))
    margin = Fraction(32 * UNIT * reach)
    above = part.lattice is not None or origin >= part.pair.max_loss()[0]
    return start + margin if above else start - margin


@dataclass(frozen=True)
class _Span:
    low: float
    high: float
    mean: float  # of the tilted losses
    spread: float  # their standard deviation

    @property
    def resolution(self) -> float:
        """Returns a width, nats, below which the losses themselves may not be told apart."""
        # by rounding, or by a pair that knows its masses to a stated accuracy only, finer buckets
        # show nothing: one that is never narrower than this costs no digits that can be had
        return 1e-7 * (abs(self.low) + abs(self.high))

    @property
    def width(self) -> float:
        return max(self.high - self.low, self.resolution, 1e-300)


def span_of(part: Part, demand: Demand, theta: float, total_count: int) -> _Span:
    """The losses worth keeping: what lies outside costs a share of ``demand.cut_share``."""
    sketch, right = _right_end(part, demand, total_count)
    x = sketch.losses
    log_m, mean, variance = tilted_moments(sketch, theta)
    # left: mass lifted to x, as a share of the tilted measure
    lifted = np.logaddexp.accumulate(sketch.log_masses) + theta * x - log_m
    budget = math.log(demand.cut_share / total_count)
    low = max(0, int(np.searchsorted(np.maximum.accumulate(lifted), budget)) - 1)
    left = _left_end(part.pair, x, low, theta, budget + log_m)
    return _Span(min(left, mean), max(right, mean), mean, math.sqrt(variance))


def largest_kept(part: Part, demand: Demand, total_count: int) -> float:
    """The largest loss worth keeping, as for :func:`span_of`."""
    return _right_end(part, demand, total_count)[1]


def _right_end(part: Part, demand: Demand, total_count: int) -> tuple[Sketch, float]:
    """The sketch without what becomes infinite, as a share of delta, and where it ends."""
    infinite = math.log(demand.tail / total_count) + demand.saddle.log_delta
    sketch = without_tail(part.sketch, infinite)
    # no further than the tilt was chosen for: the next point may weigh more than all others
    right, top = float(sketch.losses[-1]), part.pair.max_loss()[1]
    if sketch.losses.size == part.sketch.losses.size and math.isfinite(top):
        right = max(right, top)
    return sketch, right


def _left_end(pair: Pair, x: FloatArray, low: int, theta: float, log_most: float) -> float:
    """A loss below which the pair itself has less tilted P-mass than e^log_most.

    A sketch shows where most of the mass is, not where the least loss is: what it leaves out at
    the left would be lifted on every run of the upper measure and missing from the lower one, and
    finer buckets would not bring it back. The search starts at ``x[low]`` and moves left, first
    by a tiny step, since a lump of mass may end there up to rounding. Atoms need no search: a
    sketch lists the least of them as it is.
    """
    end = float(x[low])
    spacing = float(x[-1] - x[0]) / x.size
    for power in range(-42, 42, 3):
        bins = pair.bins(np.array([end]), np.zeros(1))
        mass = 0.0 if bins is None else float(bins.p.upper[0])  # guard: asked-at-least-loss
        if mass <= 0.0 or math.log(mass) + theta * end <= log_most:
            break
        end -= math.ldexp(spacing, power)
    return end


def _widths(parts: tuple[Part, ...], spans: list[_Span], variance: float) -> list[float]:
    """Bucket widths for which the first buckets cost this variance, k h^2 / 4 each.

    The arrays are shortest when h ~ (range / k)^(1/3). A bucket is never wider than what it
    is to resolve, nor than a nat, where "second order" ends. A single loss has nothing to resolve.
    """
    widest = max(span.width for span in spans)
    weights = [
        (max(span.width, 1e-6 * widest) / part.count) ** (1 / 3)
        for span, part in zip(spans, parts, strict=True)
    ]
    total = sum(part.count * w * w for part, w in zip(parts, weights, strict=True))
    unit = math.sqrt(4.0 * max(variance, 1e-290) / total)
    widths = [
        min(unit * w, 1.0, max(2.0 * span.spread, 1e-3 * span.width, span.resolution))
        for span, w in zip(spans, weights, strict=True)
    ]
    resolving = [h for h, part in zip(widths, parts, strict=True) if not part.is_shift]
    return [
        max(resolving, default=1.0) if part.is_shift else h
        for h, part in zip(widths, parts, strict=True)
    ]


def profile(parts: Parts, plan: BucketPlan) -> Profile:
    """Certified bounds on delta(eps), tight where the plan's demand says.

    Guarantee: see :class:`Profile`.

    Raises:
        PrecisionError: an array would be longer than MAX_LENGTH, or numbers overflow.
    """
    try:
        # what overflows ends as an infinite upper bound and a missing lower one
        with np.errstate(over="ignore", invalid="ignore"):
            return _profile(parts, plan)
    except OverflowError as error:
        raise PrecisionError("a tilted mass is out of the range of doubles") from error


def _profile(parts: Parts, plan: BucketPlan) -> Profile:
    uppers: list[UpperMeasure] = []
    lowers: list[LowerMeasure] = []
    lost = [(1.0, 1)] if parts.certain else []
    for layout in plan.layouts:
        part = layout.part
        upper, lower, beyond = discretise(part.pair, layout.grid, layout.n, layout.tilt)
        # outputs beyond the grid and outputs that only P has are disjoint
        # guard: mass-infinity-mass-beyond-grid
        lost.append((add_up(beyond, float(part.pair.p_only().upper[0])), part.count))
        uppers.append(power(replace(upper, extended=plan.extended), part.count, plan))
        lowers.append(power(replace(lower, extended=plan.extended), part.count, plan))
    return Profile.of(
        merge(uppers, plan),
        merge(lowers, plan),
        infinity=Bounds(parts.infinity.lower, max(parts.infinity.lower, any_of(lost, up=True))),
        max_loss=parts.max_loss.upper,
        truly_infinite=parts.infinity.upper,
    )


Measure = TypeVar("Measure", UpperMeasure, LowerMeasure)


def power(measure: Measure, runs: int, plan: BucketPlan) -> Measure:
    """The runs-fold composition: binary exponentiation from the lowest bit up.

    The result so far holds fewer runs than the next square, so bringing it to the
    square's grid is always the cheap direction.
    """
    square, result = measure, None
    while True:
        if runs & 1:
            if result is None:
                result = square
            else:
                result = _coarsened_to(result, square.grid.step) * square
                result = result.trimmed(plan.tolerance)
        runs >>= 1
        if not runs:
            assert result is not None
            return result
        square = _tidied(square * square, runs, plan)


def _tidied(measure: Measure, uses: int, plan: BucketPlan) -> Measure:
    """Trims ``measure``, and coarsens it while that pays, for ``uses`` uses in the composition."""
    measure = measure.trimmed(plan.tolerance / uses)
    while len(measure) > _SHORT:
        h = measure.grid.step
        # doubling adds h^2/2 to the upper variance and takes h^2/4 from the lower; beyond a
        # nat that is no longer so, and only an array that would be too long pays for it
        if 0.75 * h * h * uses > plan.coarsening or (h > 0.5 and len(measure) < _LONG):
            break
        measure = measure.coarsened()
    if len(measure) > MAX_LENGTH:
        raise PrecisionError(f"a measure would need {len(measure)} buckets")
    return measure


def _coarsened_to(measure: Measure, step: float) -> Measure:
    while measure.grid.step < step:
        measure = measure.coarsened()
    return measure


def merge(measures: list[Measure], plan: BucketPlan) -> Measure:
    """Convolves all measures, finest grids first (they have the smallest variance)."""
    heap = [(m.grid.step, len(m), i, m) for i, m in enumerate(measures)]
    heapq.heapify(heap)
    number = len(heap)
    while len(heap) > 1:
        a, b = heapq.heappop(heap)[3], heapq.heappop(heap)[3]
        step = max(a.grid.step, b.grid.step)
        both = _tidied(_coarsened_to(a, step) * _coarsened_to(b, step), 1, plan)
        number += 1
        heapq.heappush(heap, (both.grid.step, len(both), number, both))
    return heap[0][3]


def _lattice(pair: Pair) -> float | None:
    """The spacing of the losses if they are atoms on one lattice of at most 2^16 points."""
    atoms = pair.atoms()
    if not len(atoms) or pair.bins(np.zeros(1), np.zeros(1)) is not None:
        return None
    losses = np.unique(atoms.loss_upper)
    if losses.size == 1:
        return max(abs(float(losses[0])), 1.0)
    gaps = np.diff(losses)
    spread = float(losses[-1] - losses[0])
    gaps = gaps[gaps > 1e-11 * spread]
    spacing = float(np.min(gaps))
    if spread / spacing > 2**16:
        return None
    index = (losses - losses[0]) / spacing
    spacing = spread / float(np.rint(index[-1]))
    index = (losses - losses[0]) / spacing
    return spacing if float(np.max(np.abs(index - np.rint(index)))) < 1e-7 else None


def _times(ends: tuple[float, float], runs: int) -> Bounds:
    lower, upper = ends
    return Bounds(
        mul_down(lower, runs) if lower and math.isfinite(lower) else lower,
        mul_up(upper, runs) if upper and math.isfinite(upper) else upper,
    )
