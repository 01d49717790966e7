"""The losses of a run that may stop early, and the lattice on which their values are worked out."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

import numpy as np

from tightbudget.engine.buckets.compose import (
    MAX_LENGTH,
    BucketPlan,
    Measure,
    Part,
    Parts,
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
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Sketch

TILTS: FloatArray = 2.0 ** np.arange(-8.0, 20.1, 0.25)  # from which a lattice's tilt is chosen
_LOG_G = TILTS * np.log(TILTS) - (1 + TILTS) * np.log1p(TILTS)
_EASE = 3.0  # nats that Chernoff's bound may be worse under the tilt than under the best one
_NOISE = 1e-13  # the error of rounding at each stop relative to Chernoff's bound, about
# relative, how far one run's mass may have been rounded up under the tilt; far above what it is,
# since e^x errs by about 2e-13 for |x| <= 700
_ROUNDED = 1e-11
_REACH = 500.0  # nats of tilt that a window may span: e^500 is a double, with room for products


class Losses(Protocol):
    """A run of blocks, as far as the kernel of one of them asks for it."""

    @property
    def count(self) -> int:
        """The number of mechanisms that run in all, repetitions counted."""

    def without_tail(self, part: Part, log_lost: float) -> Sketch:
        """The losses of one run of ``part`` without the largest, which may count as infinite."""


@dataclass(frozen=True, eq=False)
class RunLosses:
    """The privacy losses of a run in one direction, block by block.

    A block is the composition that runs between one stop and the next.

    Attributes:
        blocks: (n,), in the order in which they run.
        of_block: the pairs of each block; equal blocks share one entry.
    """

    blocks: tuple[Composition, ...]
    of_block: dict[Composition, Parts]

    @staticmethod
    def of(blocks: Sequence[Composition], direction: Direction) -> RunLosses:
        """The losses of ``blocks`` in one direction."""
        of_block = {block: Parts.of(block.pairs(direction)) for block in dict.fromkeys(blocks)}
        return RunLosses(tuple(blocks), of_block)

    @functools.cached_property
    def parts(self) -> list[Parts]:
        """The pairs of each block, in the order in which the blocks run."""
        return [self.of_block[block] for block in self.blocks]

    @functools.cached_property
    def infinity(self) -> Bounds:
        """P(some loss of the run is +inf)."""
        chances = [parts.infinity for parts in self.parts]
        return Bounds(
            any_of([(c.lower, 1) for c in chances], up=False),
            any_of([(c.upper, 1) for c in chances], up=True),
        )

    @functools.cached_property
    def count(self) -> int:
        """The number of mechanisms that run in all, repetitions counted."""
        return sum(part.count for parts in self.parts for part in parts.parts)

    @functools.cached_property
    def tops(self) -> list[float]:
        """(n,): an upper bound of the largest finite total loss at each stop, nats."""
        found, top = [], 0.0
        for parts in self.parts:
            top = add_up(top, parts.max_loss.upper) if parts.parts else top
            found.append(top)
        return found

    def log_moments(self, log_lost: float) -> FloatArray:
        """(n, tilts): K_i(theta) = ln E_P[e^(theta L)] of the total loss at each stop, about.

        The largest losses, of P-mass e^log_lost together, are left out.
        """
        rises = {}
        for block, parts in self.of_block.items():
            rises[block] = np.zeros(TILTS.size)
            for part in parts.parts:
                sketch = self.without_tail(part, log_lost)
                one = [tilted_moments(sketch, theta)[0] for theta in TILTS]
                rises[block] += part.count * np.array(one)
        return np.cumsum([rises[block] for block in self.blocks], axis=0)

    def rough_prices(self, delta: float) -> list[float]:
        """(n,): about the eps(delta) of all blocks up to each stop, by Chernoff's bound on delta.

        The bound is above the exact delta, so these prices are too high rather than too low; no
        guarantee rests on them.
        """
        log_delta = math.log(delta)
        bounds = self.chernoff_prices(log_delta, log_delta + math.log(1e-2))
        return [max(0.0, e) for e in np.min(bounds, axis=1).tolist()]

    def chernoff_prices(self, log_delta: float, log_lost: float = -math.inf) -> FloatArray:
        """(n, tilts): about the eps at which Chernoff's bound on delta(eps) is e^log_delta.

        The largest losses, of P-mass e^log_lost together, are left out.
        """
        return np.asarray((self.log_moments(log_lost) + _LOG_G - log_delta) / TILTS)

    def without_tail(self, part: Part, log_lost: float) -> Sketch:
        """The losses of one run of ``part`` without the largest, which may count as infinite.

        The P-mass left out is e^log_lost, divided by the number of mechanisms that run.
        """
        return without_tail(part.sketch, log_lost - math.log(max(1, self.count)))


@dataclass(frozen=True)
class Lattice:
    """The points on which total losses (states) lie, and what may be cut off.

    The choice of a lattice affects width and cost, never truth: all that is moved or cut off is
    accounted for.

    Attributes:
        step: h, the distance between points, nats.
        exact: True if all losses of all parts lie on the lattice.
        theta: the tilt under which losses are convolved.
        low, high: the window of states, nats.
        lost: ln of the P-mass of large losses that may count as infinite, in the whole run.
        slip: ln of the share of the tilted mass that all other cuts may take, in the whole run.
        tolerance: the 2-norm that one cut may remove.
        extended: True to convolve in extended precision where the platform has it.
        aligned: True if the points are the multiples of the step; else they are counted from a
            loss of each block.
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
    aligned: bool = False

    @staticmethod
    def of(
        losses: RunLosses,
        prices: Sequence[float],
        rtol: float,
        share: float,
        extended: bool = False,
        least: float = 0.0,
    ) -> Lattice:
        """A lattice on which both bounds of delta are about ``share`` times ``rtol`` apart.

        Chernoff's bound e^(K_i(theta) + ln g(theta) - theta E_i) on what each stop adds to delta
        says which losses matter; one tilt serves all stops.

        Args:
            losses: of the run.
            prices: (n,), of each stop, nats.
            rtol: wanted relative gap.
            share: how much wider than ``rtol`` the gap may be, in variance.
            extended: True to convolve in extended precision.
            least: a delta below this need only be shown to be below it.
        """
        n, log_delta = len(prices), 0.0
        below = math.log(max(least, 1e-280)) - 5.0
        for _ in range(3):  # what may be lost depends on delta
            lost = max(log_delta + math.log(1e-2 * rtol), -700.0)
            moments = losses.log_moments(lost)
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
        step, exact = _lattice_step([p for b in losses.of_block.values() for p in b.parts], wanted)
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
    """A distance of points near ``wanted``, and True if all losses of the parts lie on the points.

    The losses do if the distance divides one that all their own lattices have in common.
    """
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
    """The losses of one block on the lattice of all blocks.

    Guarantee: ``upper`` and ``lower`` bound the block's losses as the docstrings of their types
    say; the masses below are bounds, too.

    Attributes:
        upper, lower: the finite losses.
        lifted: at least the P-mass that the error of ``upper`` may put left of its array.
        total: at least the P-mass of all finite losses.
        infinity: the P-mass of all other losses; its upper bound includes finite losses that are
            counted as infinite.
        origin: the point of the lattice that the block's losses are counted from, nats.
        first: the first entry of ``upper``, in points of the lattice from ``origin``.
    """

    upper: UpperMeasure
    lower: LowerMeasure
    lifted: float
    total: float
    infinity: Bounds
    origin: Fraction
    first: int


# Proof: proofs/stopping.v, theorem node_by_node
def kernel(losses: Losses, block: Parts, lattice: Lattice, ahead: Fraction = Fraction(0)) -> Kernel:
    """The losses of ``block``, composed on the lattice.

    Args:
        losses: of the run.
        block: the pairs of the block.
        lattice: the points.
        ahead: how far the labels of all losses are moved to the right, nats; for the lower
            measure alone.

    Raises:
        PrecisionError: an array would be longer than MAX_LENGTH.
    """
    runs = sum(part.count for part in block.parts)
    # first buckets so fine that all of them cost a third of what one of the lattice does
    halvings = 0 if lattice.exact or runs <= 1 else math.ceil(math.log2(3 * runs) / 2)
    plan = BucketPlan((), 0.0, lattice.tolerance, False)
    still = Grid(Fraction(0), lattice.step), Tilt(lattice.theta, Fraction(0)), np.ones(1)
    uppers = [] if runs else [UpperMeasure(*still, 0, 1.0, 0.0)]
    lowers = [] if runs else [LowerMeasure(*still, np.ones(1), 0, 0, 0.0, 0.0)]
    lost = [(1.0, 1)] if block.certain else []
    origin, total = Fraction(0), 1.0
    for part in block.parts:
        grid, n, centre = _layout(losses, part, lattice, lattice.step / 2**halvings)
        grid = replace(grid, offset=grid.offset + ahead / runs) if ahead else grid
        upper, lower, beyond = discretise(part.pair, grid, n, Tilt(lattice.theta, centre))
        untilted = discretise(part.pair, grid, n, Tilt(0.0, centre))[0]
        mass = math.ldexp(untilted.mass, untilted.exponent)
        # guard: all-finite-mass
        total = mul_up(total, mass**part.count * (1 + 4 * UNIT * part.count))
        # outputs beyond the grid and outputs that only P has are disjoint
        lost.append((add_up(beyond, float(part.pair.p_only().upper[0])), part.count))
        if not lattice.aligned:
            origin += part.count * _atom(part, grid)
        uppers.append(power(replace(upper, extended=lattice.extended), part.count, plan))
        lowers.append(power(replace(lower, extended=lattice.extended), part.count, plan))
    upper = _aligned(merge(uppers, plan), origin, halvings)
    lower = _aligned(merge(lowers, plan), origin + ahead, halvings)
    return Kernel(
        upper,
        lower,
        _left_of(upper, total, runs),
        total,
        Bounds(block.infinity.lower, max(block.infinity.lower, any_of(lost, up=True))),
        origin,
        int((upper.grid.offset - origin) / Fraction(lattice.step)),
    )


def _layout(losses: Losses, part: Part, lattice: Lattice, h: float) -> tuple[Grid, int, Fraction]:
    """The grid for one run of ``part``, its number of buckets, and the mean of the tilted losses.

    Raises:
        PrecisionError: more than MAX_LENGTH buckets would be needed.
    """
    sketch = losses.without_tail(part, lattice.lost)
    x = sketch.losses
    log_m, mean, _ = tilted_moments(sketch, lattice.theta)
    # what lies below x is lifted to it
    lifted = np.logaddexp.accumulate(sketch.log_masses) + lattice.theta * x - log_m
    budget = lattice.slip - math.log(losses.count)
    low = max(0, int(np.searchsorted(np.maximum.accumulate(lifted), budget)) - 1)
    right, top = float(x[-1]), part.pair.max_loss()[1]
    if x.size == part.sketch.losses.size and math.isfinite(top):
        right = max(right, top)
    first = min(mean, float(x[low]))
    start = math.floor(first / h) * Fraction(h) if lattice.aligned else edge_near(part, first, h)
    n = max(0, math.ceil((max(right, mean) - float(start)) / h)) + 2
    if n > MAX_LENGTH:
        raise PrecisionError(f"one step would need {n:.3g} buckets of width {h:.3g}")
    return Grid(start, h), n, Fraction(mean)


def _atom(part: Part, grid: Grid) -> Fraction:
    """The edge of ``grid`` nearest to the part's origin: it stays an edge when grids are coarsened.

    The first edge, if the part has no origin.
    """
    if part.origin is None or not math.isfinite(part.origin):
        return grid.offset
    return grid.shifted(round((part.origin - float(grid.offset)) / grid.step)).offset


def _aligned(measure: Measure, origin: Fraction, halvings: int) -> Measure:
    """``measure`` coarsened ``halvings`` times, onto the points ``origin + i step``."""
    ahead = int((measure.grid.offset - origin) / Fraction(measure.grid.step))
    measure = measure.padded(ahead % 2**halvings)
    for _ in range(halvings):
        measure = measure.coarsened()
    return measure


def _left_of(measure: UpperMeasure, total: float, runs: int) -> float:
    """The P-mass that may lie left of the array of ``measure``, whose P-mass is ``total`` in all.

    Guarantee: at least that mass, where the measure is made of ``runs`` runs.
    """
    low, high = measure.tilt.factors(measure.grid, len(measure))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        inside = sum_down(np.where(measure.values > 0, measure.values / high, 0.0))
        noise = mul_up(measure.error, norm_up(1.0 / low))
    # each run's masses were rounded up under the tilt, so "total" may be below theirs by _ROUNDED
    inside *= max(0.0, 1.0 - _ROUNDED * max(1, runs))
    seen = math.ldexp(sub_down(inside, noise), measure.exponent) if noise < math.inf else 0.0
    return sub_up(total, seen) if 0 < seen < total else 0.0 if seen >= total else total
