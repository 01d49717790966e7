"""What runs between the stops, and the lattice of losses on which it is looked at."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from tightbudget.engine.buckets.compose import (
    MAX_LENGTH,
    Measure,
    Part,
    Parts,
    Plan,
    edge_near,
    merge,
    power,
)
from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.engine.buckets.measures import LowerMeasure, Tilt, UpperMeasure, discretise
from tightbudget.engine.buckets.tilt import tilted_moments, without_tail
from tightbudget.errors import PrecisionError
from tightbudget.mechanisms.composition import Composition
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    UNIT,
    FloatArray,
    add_up,
    any_of,
    mul_up,
    norm_up,
    sub_down,
    sub_up,
    sum_down,
)
from tightbudget.pairs.pair import Direction, Sketch

__all__ = ["TILTS", "Course", "Kernel", "Lattice", "kernel"]

TILTS: FloatArray = 2.0 ** np.arange(-8.0, 20.1, 0.25)  # from which a lattice's tilt is chosen
_LOG_G = TILTS * np.log(TILTS) - (1 + TILTS) * np.log1p(TILTS)
_EASE = 3.0  # nats that Chernoff's bound may be worse under the tilt than under the best one
_NOISE = 1e-13  # what rounding costs at each stop, about, beside Chernoff's bound
_ROUNDED = 1e-11  # what a mass may be rounded up by, relative; far above what it is
_REACH = 500.0  # nats of tilt that a window may span


@dataclass(frozen=True, eq=False)
class Course:
    """What runs between the stops, in one direction; equal blocks are looked at once."""

    blocks: tuple[Composition, ...]  # (n,)
    of_block: dict[Composition, Parts]

    @staticmethod
    def of(blocks: Sequence[Composition], direction: Direction) -> Course:
        """Asks for the pairs of all blocks."""
        steps = {block: Parts.of(block.pairs(direction)) for block in dict.fromkeys(blocks)}
        return Course(tuple(blocks), steps)

    @functools.cached_property
    def steps(self) -> list[Parts]:
        """Block by block."""
        return [self.of_block[parts] for parts in self.blocks]

    @functools.cached_property
    def infinity(self) -> Bounds:
        """P(some loss is +inf), of all blocks."""
        chances = [block.infinity for block in self.steps]
        return Bounds(
            any_of([(c.lower, 1) for c in chances], up=False),
            any_of([(c.upper, 1) for c in chances], up=True),
        )

    @functools.cached_property
    def runs(self) -> int:
        """How many steps run in all."""
        return sum(part.count for block in self.steps for part in block.parts)

    @functools.cached_property
    def tops(self) -> list[float]:
        """Upper ends of the largest finite loss at each stop."""
        found, top = [], 0.0
        for block in self.steps:
            top = add_up(top, block.max_loss.upper) if block.parts else top
            found.append(top)
        return found

    def log_moments(self, log_lost: float) -> FloatArray:
        """(n, tilts): K_i(theta) = ln E_P[e^(theta L)] of the total loss at each stop, about.

        The largest losses, of P-mass e^log_lost together, are left out.
        """
        rises = {}
        for parts, block in self.of_block.items():
            rises[parts] = np.zeros(TILTS.size)
            for part in block.parts:
                sketch = self.without_tail(part, log_lost)
                one = [tilted_moments(sketch, theta)[0] for theta in TILTS]
                rises[parts] += part.count * np.array(one)
        return np.cumsum([rises[parts] for parts in self.blocks], axis=0)

    def rough_prices(self, delta: float) -> list[float]:
        """About eps(delta) of what runs until each stop: Chernoff's bound, which is above it."""
        log_delta = math.log(delta)
        bounds = self.chernoff_prices(log_delta, log_delta + math.log(1e-2))
        return [max(0.0, e) for e in np.min(bounds, axis=1).tolist()]

    def chernoff_prices(self, log_delta: float, log_lost: float = -math.inf) -> FloatArray:
        """(n, tilts): the eps at which Chernoff's bound for a tilt is delta, about."""
        return np.asarray((self.log_moments(log_lost) + _LOG_G - log_delta) / TILTS)

    def without_tail(self, part: Part, log_lost: float) -> Sketch:
        """A step's losses without its share of those that may count as infinite."""
        return without_tail(part.sketch, log_lost - math.log(max(1, self.runs)))


@dataclass(frozen=True)
class Lattice:
    """Where states and losses live. Affects width and cost, never truth.

    Attributes:
        step: h, nats.
        exact: whether all losses lie on the lattice.
        theta: the tilt under which losses are convolved.
        low, high: the window of states, nats.
        lost: ln of the P-mass of large losses that may count as infinite, in all runs.
        slip: ln of the share of the tilted mass that all other cutting may cost, in all runs.
        tolerance: 2-norm that one cut may remove.
        extended: whether to convolve in extended precision where that is offered.
    """

    step: float
    exact: bool
    theta: float
    low: float
    high: float
    lost: float
    slip: float
    tolerance: float
    extended: bool

    @staticmethod
    def of(
        course: Course,
        prices: Sequence[float],
        rtol: float,
        share: float,
        extended: bool = False,
        least: float = 0.0,
    ) -> Lattice:
        """A lattice that makes both ends a relative ``rtol`` apart, times ``share``, about.

        A delta below ``least`` need only be seen to be below.

        Chernoff's bound e^(K_i(theta) + ln g(theta) - theta E_i) on what each stop is good for
        says where delta is made; one tilt serves all stops.
        """
        n, log_delta = len(prices), 0.0
        below = math.log(max(least, 1e-280)) - 5.0
        for _ in range(3):  # what may be lost depends on delta
            lost = max(log_delta + math.log(1e-2 * rtol), -700.0)
            moments = course.log_moments(lost)
            chernoff = moments + _LOG_G - np.outer(np.array(prices), TILTS)
            chernoff = np.maximum(chernoff, below)
            peak = float(np.max(np.min(chernoff, axis=1)))
            # the bound is about sqrt(2 pi theta^2 Var) above, and theta^2 Var about -2 ln of it
            log_delta = max(peak - 0.5 * math.log1p(4 * math.pi * max(0.0, -peak)), -690.0)
        worst = np.max(chernoff, axis=0)
        theta = float(TILTS[int(np.argmin(worst))])
        # a smaller tilt keeps more of what matters less, as long as digits are to spare
        spare = log_delta + math.log(1e-2 * rtol / (_NOISE * n)) - np.min(worst)
        gentle = int(np.argmax(worst <= np.min(worst) + min(_EASE, max(0.0, float(spare)))))
        # a block's bucket of width h puts a variance of h^2/4 between the ends
        wanted = math.sqrt(8.0 * share * rtol / (n * theta * (theta + 1.0)))
        # below: what V may be there is nothing beside delta; above: so is the chance to be there
        ample = math.log(1e3 * n / rtol)
        dips = np.minimum.accumulate(np.vstack([np.zeros(TILTS.size), moments[:-1]]))
        ahead = np.max(chernoff - dips, axis=0)  # from the worst stop on
        low = float(np.max(-(ample + np.maximum(ahead - log_delta, 0.0)) / TILTS))
        reached = np.maximum(np.max(moments, axis=0), 0.0)
        high = min(float(np.min((reached + ample - log_delta) / TILTS)), max(prices) + 4.0 / theta)
        high = max(high, low + wanted)
        step, exact = _lattice_step([p for b in course.of_block.values() for p in b.parts], wanted)
        return Lattice(
            step,
            exact,
            min(float(TILTS[gentle]), _REACH / (high - low)),
            low,
            high,
            lost,
            slip=math.log(1e-2 * rtol / n),
            tolerance=1e-6 * rtol / n * math.exp(min(0.0, log_delta - float(worst[gentle]))),
            extended=extended,
        )


def _lattice_step(parts: list[Part], wanted: float) -> tuple[float, bool]:
    """A step of about the wanted width, and whether it is a fraction of a common lattice's."""
    common = 0.0
    for part in parts:
        if part.lattice is None:
            common = 0.0
            break
        # Euclid's algorithm, for numbers that are known up to rounding
        larger, common = max(common, part.lattice), min(common, part.lattice) or part.lattice
        while (rest := abs(larger - common * round(larger / common))) > 1e-9 * larger:
            larger, common = common, rest
    if common > wanted / 64:
        return common / max(1, math.ceil(common / wanted)), True
    mantissa, exponent = math.frexp(min(wanted, 1.0))  # few digits: i h is exact
    return math.ldexp(math.floor(mantissa * 2**20), exponent - 20), False


# ------------------------------------------------------------------------------ blocks


@dataclass(frozen=True, eq=False)
class Kernel:
    """One block's losses, on the lattice of all blocks.

    Guarantee: ``upper`` and ``lower`` as their types say. What the upper one's error puts left
    of its array has a P-mass of at most ``lifted``, all finite losses one of at most ``total``;
    ``infinity`` is that of the rest, with what counts as infinite in its upper end.
    """

    upper: UpperMeasure
    lower: LowerMeasure
    lifted: float
    total: float
    infinity: Bounds
    origin: Fraction  # the point of the lattice that the block's losses are counted from, nats
    first: int  # where the upper array begins, in steps from there


def kernel(course: Course, block: Parts, lattice: Lattice) -> Kernel:
    """The block's steps, composed.

    Raises:
        PrecisionError: an array would be longer than MAX_LENGTH.
    """
    runs = sum(part.count for part in block.parts)
    # first buckets so fine that all of them cost a third of what one of the lattice does
    halvings = 0 if lattice.exact or runs <= 1 else math.ceil(math.log2(3 * runs) / 2)
    plan = Plan((), 0.0, lattice.tolerance, False)
    still = Grid(Fraction(0), lattice.step), Tilt(lattice.theta, Fraction(0)), np.ones(1)
    uppers = [] if runs else [UpperMeasure(*still, 0, 1.0, 0.0)]
    lowers = [] if runs else [LowerMeasure(*still, np.ones(1), 0, 0, 0.0, 0.0)]
    lost = [(1.0, 1)] if block.certain else []
    origin, total = Fraction(0), 1.0
    for part in block.parts:
        grid, n, centre = _layout(course, part, lattice, lattice.step / 2**halvings)
        upper, lower, beyond = discretise(part.pair, grid, n, Tilt(lattice.theta, centre))
        untilted = discretise(part.pair, grid, n, Tilt(0.0, centre))[0]
        mass = math.ldexp(untilted.mass, untilted.exponent)
        total = mul_up(total, mass**part.count * (1 + 4 * UNIT * part.count))
        # outputs beyond the grid and outputs that only P has are disjoint
        lost.append((add_up(beyond, float(part.pair.p_only().upper[0])), part.count))
        origin += part.count * _atom(part, grid)
        uppers.append(power(replace(upper, extended=lattice.extended), part.count, plan))
        lowers.append(power(replace(lower, extended=lattice.extended), part.count, plan))
    upper = _aligned(merge(uppers, plan), origin, halvings)
    lower = _aligned(merge(lowers, plan), origin, halvings)
    return Kernel(
        upper,
        lower,
        _left_of(upper, total, runs),
        total,
        Bounds(block.infinity.lower, max(block.infinity.lower, any_of(lost, up=True))),
        origin,
        int((upper.grid.offset - origin) / Fraction(lattice.step)),
    )


def _layout(course: Course, part: Part, lattice: Lattice, h: float) -> tuple[Grid, int, Fraction]:
    """Edges for one run, and the mean of its tilted losses."""
    sketch = course.without_tail(part, lattice.lost)
    x = sketch.losses
    log_m, mean, _ = tilted_moments(sketch, lattice.theta)
    # what lies below x is lifted to it
    lifted = np.logaddexp.accumulate(sketch.log_masses) + lattice.theta * x - log_m
    budget = lattice.slip - math.log(course.runs)
    low = max(0, int(np.searchsorted(np.maximum.accumulate(lifted), budget)) - 1)
    right, top = float(x[-1]), part.pair.max_loss()[1]
    if x.size == part.sketch.losses.size and math.isfinite(top):
        right = max(right, top)
    start = edge_near(part, min(mean, float(x[low])), h)
    n = max(0, math.ceil((max(right, mean) - float(start)) / h)) + 2
    if n > MAX_LENGTH:
        raise PrecisionError(f"one step would need {n:.3g} buckets of width {h:.3g}")
    return Grid(start, h), n, Fraction(mean)


def _atom(part: Part, grid: Grid) -> Fraction:
    """The edge at the loss that is to stay on an edge when grids are coarsened."""
    if part.origin is None or not math.isfinite(part.origin):
        return grid.offset
    return grid.shifted(round((part.origin - float(grid.offset)) / grid.step)).offset


def _aligned(measure: Measure, origin: Fraction, halvings: int) -> Measure:
    """Coarsened onto the points ``origin + i step``."""
    ahead = int((measure.grid.offset - origin) / Fraction(measure.grid.step))
    measure = measure.padded(ahead % 2**halvings)
    for _ in range(halvings):
        measure = measure.coarsened()
    return measure


def _left_of(measure: UpperMeasure, total: float, runs: int) -> float:
    """The P-mass that may lie left of the array of a measure with ``total`` in all."""
    low, high = measure.tilt.factors(measure.grid, len(measure))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        inside = sum_down(np.where(measure.values > 0, measure.values / high, 0.0))
        noise = mul_up(measure.error, norm_up(1.0 / low))
    # each run's masses were rounded up under the tilt, so "total" may be a hair below theirs
    inside *= max(0.0, 1.0 - _ROUNDED * max(1, runs))
    seen = math.ldexp(sub_down(inside, noise), measure.exponent) if noise < math.inf else 0.0
    return sub_up(total, seen) if 0 < seen < total else 0.0 if seen >= total else total
