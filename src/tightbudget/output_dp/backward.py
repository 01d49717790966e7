"""The value of stopping: from above by induction backwards, from below by a rule run forwards.

A run that may stop after block i is priced E_i there. With a and b the likelihoods of what
was seen and l = ln a/b, per unit of a:

    V_n(l) = (1 - e^(E_n - l))_+
    V_i(l) = max( (1 - e^(E_i - l))_+ ,  E_P[ V_{i+1}(l + L_{i+1}) ] ),     delta = E_P[ V_1(L_1) ]

W_i(u) = u V_i(ln u) is convex and increasing with slope <= 1, so replacing a block's pair by one
that dominates it only raises the value: spread losses give an upper end. Any rule on
merged outputs is a rule, so what the rule found above wins on merged outputs is a lower one.

All states lie on one lattice of step h, V in one window of losses: below it V is at most its
value at the left end, beyond the right end W rises by at most 1.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tightbudget.errors import PrecisionError
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.convolve import correlate
from tightbudget.numerics.rounding import (
    UNIT,
    FloatArray,
    add_down,
    add_up,
    exp_down,
    mul_down,
    mul_up,
    norm_up,
    sub_down,
    sub_up,
    sum_down,
    sum_up,
)
from tightbudget.pairs.pair import Direction
from tightbudget.pld.compose import (
    MAX_LENGTH,
    Measure,
    Parts,
    Plan,
    Step,
    Steps,
    any_of,
    edge_near,
    merge,
    power,
)
from tightbudget.pld.grid import Grid
from tightbudget.pld.measures import LowerMeasure, Tilt, UpperMeasure, discretise
from tightbudget.pld.profile import lower_delta, upper_delta
from tightbudget.pld.tilt import tilted_moments, without_tail

__all__ = ["Course", "Kernel", "Lattice", "Rule", "Walk", "plan_walk"]

_TILTS: FloatArray = 2.0 ** np.arange(-8.0, 20.1, 0.25)  # from which tilts are chosen
_UNDERFLOW = 1e-300  # what products that are no doubles may add up to
_REACH = 500.0  # nats of tilt that a window may span


# ------------------------------------------------------------------------- what runs


@dataclass(frozen=True, eq=False)
class Course:
    """What runs between the stops, in one direction; equal blocks are one object."""

    blocks: tuple[Parts, ...]  # (n,)
    of_block: dict[Parts, Steps]

    @staticmethod
    def of(blocks: Sequence[Parts], direction: Direction) -> Course:
        """The pairs of all blocks."""
        return Course(
            tuple(blocks), {parts: Steps.of(parts, direction) for parts in dict.fromkeys(blocks)}
        )

    @functools.cached_property
    def steps(self) -> list[Steps]:
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
        return sum(step.runs for block in self.steps for step in block.steps)

    def tops(self) -> list[float]:
        """Upper ends of the largest finite loss at each stop."""
        total, found = 0.0, []
        for block in self.steps:
            total = add_up(total, block.max_loss.upper) if block.steps else total
            found.append(total)
        return found

    def log_moments(self, log_lost: float) -> FloatArray:
        """(n, tilts): ln E_P[e^(theta L)] of the total loss at each stop, about.

        The largest losses, of P-mass e^log_lost together, are left out.
        """
        share = log_lost - math.log(max(1, self.runs))
        rises = {}
        for parts, block in self.of_block.items():
            total = np.zeros(_TILTS.size)
            for step in block.steps:
                sketch = without_tail(step.sketch, share)
                total += step.runs * np.array([tilted_moments(sketch, t)[0] for t in _TILTS])
            rises[parts] = total
        return np.cumsum([rises[parts] for parts in self.blocks], axis=0)


# --------------------------------------------------------------------------- planning


@dataclass(frozen=True)
class Lattice:
    """Where states and losses live. Affects width and cost, never truth.

    Attributes:
        step: h, nats.
        tilts: the tilts under which losses are convolved.
        low, high: the window of states, nats.
        lost: ln of the P-mass of large losses that may count as infinite, in all runs.
        slip: ln of the share of the tilted mass that all other cutting may cost, in all runs.
        tolerance: 2-norm that one cut may remove.
        exact: whether all losses lie on the lattice.
    """

    step: float
    tilts: tuple[float, ...]
    low: float
    high: float
    lost: float
    slip: float
    tolerance: float
    exact: bool


def plan_walk(
    course: Course, prices: Sequence[float], rtol: float, share: float, tilts: int = 1
) -> Lattice:
    """A lattice on which both ends should be a relative ``rtol`` apart, times ``share``.

    Chernoff's bound e^(K_i(theta) + ln g(theta) - theta E_i) says where each stop's part of delta
    is made. A block's bucket of width h costs the two ends a variance of h^2/4.
    """
    n = len(course.blocks)
    log_delta = 0.0
    log_g = _TILTS * np.log(_TILTS) - (1 + _TILTS) * np.log1p(_TILTS)
    for _ in range(3):
        moments = course.log_moments(max(log_delta + math.log(1e-2 * rtol), -700.0))
        bounds = moments + log_g - np.outer(np.array(prices), _TILTS)  # ln Chernoff
        best = np.min(bounds, axis=1)
        # the bound is about sqrt(2 pi theta^2 Var) above the truth, and theta^2 Var ~ -2 ln of it
        peak = float(np.max(best))
        log_delta = max(peak - 0.5 * math.log1p(4 * math.pi * max(0.0, -peak)), -690.0)
    tilt_of = _TILTS[np.argmin(bounds, axis=1)]
    counts = best > peak - 5.0
    excess = float(np.max((np.arange(1, n + 1) * tilt_of * (tilt_of + 1.0))[counts]))
    wanted = math.sqrt(8.0 * share * rtol / max(excess, 1e-12))

    tops = np.max(bounds, axis=0)
    ample = math.log(1e3 * n / rtol)
    low = float(np.max(-(ample + np.maximum(tops - log_delta, 0.0)) / _TILTS))
    reached = np.max(np.vstack([moments, np.zeros_like(_TILTS)]), axis=0)
    high = float(np.min((reached + ample - log_delta) / _TILTS))
    chosen = _spread_tilts(tops, tilt_of[counts], tilts)
    high = max(min(high, max(prices) + 4.0 / min(chosen)), low + 1e-6)
    spacing = _common_spacing([step for block in course.of_block.values() for step in block.steps])
    if spacing is not None and wanted > spacing / 64:
        step, exact = spacing / max(1, math.ceil(spacing / wanted)), True
    else:
        mantissa, exponent = math.frexp(min(wanted, 1.0))
        step, exact = math.ldexp(math.floor(mantissa * 2**20), exponent - 20), False
    limit = _REACH / (high - low)
    return Lattice(
        step,
        tuple(min(theta, limit) for theta in chosen),
        low,
        high,
        log_delta + math.log(1e-2 * rtol),
        math.log(1e-2 * rtol / n),
        1e-6 * rtol / n * math.exp(min(0.0, log_delta - float(np.min(tops)))),
        exact,
    )


def _spread_tilts(tops: FloatArray, tilt_of: FloatArray, number: int) -> list[float]:
    """The tilt that serves all stops best, or several between those that serve one each."""
    if number == 1:
        return [float(_TILTS[int(np.argmin(tops))])]
    return np.geomspace(float(np.min(tilt_of)), float(np.max(tilt_of)), number).tolist()


def _common_spacing(steps: list[Step]) -> float | None:
    """The spacing of a lattice that holds all losses, if each step has one and they fit."""
    spacings = [step.lattice for step in steps]
    common = 0.0
    for spacing in spacings:
        if spacing is None:
            return None
        a, b = max(common, spacing), min(common, spacing)
        while b > 1e-6 * a:
            ratio = round(a / b)
            a, b = b, abs(a - ratio * b) if abs(a - ratio * b) > 1e-9 * a else 0.0
        common = a
    return common if common > 0 and min(filter(None, spacings)) / common < 2**10 else None


# ------------------------------------------------------------------------------ blocks


@dataclass(frozen=True, eq=False)
class Kernel:
    """One block's losses under one tilt, on the lattice of all blocks.

    Guarantee: ``upper`` as its type says, and what its error puts left of its array has a
    P-mass of at most ``lifted``; the block's outputs that are in none of the two have P-mass
    ``infinity.upper`` at most. ``lower`` as its type says.
    """

    upper: UpperMeasure
    lower: LowerMeasure
    lifted: float
    total: float  # P-mass of all finite losses, at most
    infinity: Bounds
    first: int  # where the array begins, in steps from the block's origin
    origin: Fraction  # of the block, nats

    @staticmethod
    def of(block: Steps, theta: float, lattice: Lattice, total_runs: int) -> Kernel:
        """The block's steps, composed."""
        runs = sum(step.runs for step in block.steps)
        # first buckets so fine that all of them cost a third of what one of the lattice does
        halvings = 0 if lattice.exact or runs == 1 else math.ceil(math.log2(3 * runs) / 2)
        h = lattice.step / 2**halvings
        plan = Plan((), 0.0, lattice.tolerance, False)
        uppers: list[UpperMeasure] = []
        lowers: list[LowerMeasure] = []
        lost = [(1.0, 1)] if block.certain else []
        origin, total = Fraction(0), 1.0
        for step in block.steps:
            grid, n = _layout(step, h, lattice, total_runs)
            tilt = Tilt(theta, _centre(step, theta, lattice, total_runs))
            upper, lower, beyond = discretise(step.pair, grid, n, tilt)
            whole = discretise(step.pair, grid, n, Tilt(0.0, Fraction(0)))[0]
            lost.append((add_up(beyond, float(step.pair.p_only().upper[0])), step.runs))
            origin += step.runs * grid.offset
            total *= math.ldexp(whole.mass, whole.exponent) ** step.runs * (1 + 4 * UNIT * step.runs)
            uppers.append(power(upper, step.runs, plan))
            lowers.append(power(lower, step.runs, plan))
        infinity = Bounds(block.infinity.lower, max(block.infinity.lower, any_of(lost, up=True)))
        if not block.steps:  # no loss at all: certainly 0
            tilt, grid = Tilt(theta, Fraction(0)), Grid(Fraction(0), lattice.step)
            one = np.ones(1)
            still = UpperMeasure(grid, tilt, one, 0, 1.0, 0.0)
            same = LowerMeasure(grid, tilt, one, one, 0, 0, 0.0, 0.0)
            return Kernel(still, same, 0.0, 1.0, infinity, 0, origin)
        upper = _aligned(merge(uppers, plan), origin, halvings)
        lower = _aligned(merge(lowers, plan), origin, halvings)
        first = (upper.grid.offset - origin) / Fraction(lattice.step)
        lifted = _left_out(upper, total)
        return Kernel(upper, lower, lifted, total, infinity, int(first), origin)


def _centre(step: Step, theta: float, lattice: Lattice, total_runs: int) -> Fraction:
    sketch = without_tail(step.sketch, lattice.lost - math.log(total_runs))
    return Fraction(tilted_moments(sketch, theta)[1])


def _layout(step: Step, h: float, lattice: Lattice, total_runs: int) -> tuple[Grid, int]:
    """Edges for one run, the same for all tilts."""
    sketch = without_tail(step.sketch, lattice.lost - math.log(total_runs))
    x = sketch.losses
    top = step.pair.max_loss()[1]
    right = float(x[-1])
    if x.size == step.sketch.losses.size and math.isfinite(top):
        right = max(right, top)
    left = right
    for theta in lattice.tilts:
        log_m, mean, _ = tilted_moments(sketch, theta)
        lifted = np.logaddexp.accumulate(sketch.log_masses) + theta * x - log_m
        budget = lattice.slip - math.log(total_runs)
        low = max(0, int(np.searchsorted(np.maximum.accumulate(lifted), budget)) - 1)
        left, right = min(left, mean, float(x[low])), max(right, mean)
    start = edge_near(step, left, h)
    n = max(0, math.ceil((right - float(start)) / h)) + 2
    if n > MAX_LENGTH:
        raise PrecisionError(f"one step would need {n:.3g} buckets of width {h:.3g}")
    return Grid(start, h), n


def _aligned(measure: Measure, origin: Fraction, halvings: int) -> Measure:
    """Coarsened onto the points ``origin + i step``."""
    ahead = (measure.grid.offset - origin) / Fraction(measure.grid.step)
    measure = measure.padded(int(ahead) % 2**halvings)
    for _ in range(halvings):
        measure = measure.coarsened()
    return measure


def _left_out(measure: UpperMeasure, total: float) -> float:
    """P-mass of a measure with ``total`` in all that may lie left of its array."""
    factors = measure.tilt.factors(measure.grid, len(measure))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        inside = np.where(measure.values > 0, measure.values / factors[1], 0.0)
        noise = mul_up(measure.error, norm_up(1.0 / factors[0]))
    scale = measure.exponent
    found = sub_down(math.ldexp(sum_down(inside) * (1 - 8 * UNIT), scale), math.ldexp(noise, scale))
    return max(0.0, min(total, sub_up(total, found))) if found < math.inf else total


# ------------------------------------------------------------------------- the induction


@dataclass(frozen=True)
class Rule:
    """A price at each stop, and the loss from which on it pays to stop there (inf: never)."""

    prices: tuple[float, ...]
    from_losses: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class _Pull:
    """What carries V one block back under one tilt: tables that are the same at every stop."""

    kernel: Kernel
    values: FloatArray  # (K,) the block's tilted masses, with what was lifted
    decay: FloatArray  # (n + K - 1,) e^(-theta (x - centre)) on the states after the block
    beyond: float  # 2-norm of the decay on all states after these
    growth: FloatArray  # (n,) undoes the tilt on the states before it
    margin: float

    @staticmethod
    def of(kernel: Kernel, h: float, n: int) -> _Pull:
        """For n states before the block."""
        measure = kernel.upper
        theta, size = measure.tilt.theta, len(measure)
        centre = (n + size) // 2
        # the P-mass of one whole unit at the first entry, tilted
        left = float(measure.grid.offset - measure.tilt.anchor)
        log_scale = measure.exponent * math.log(2.0) - theta * left
        values = measure.values.copy()
        if kernel.lifted > 0:
            values[0] += kernel.lifted * math.exp(min(700.0, -log_scale)) * (1 + 1e-12)
        decay = np.exp(-theta * h * (np.arange(n + size - 1) - centre))
        beyond = float(decay[-1]) / math.sqrt(-math.expm1(-2.0 * theta * h))
        growth = np.exp(log_scale + theta * h * (np.arange(n) - centre))
        reach = theta * (h * (n + size) + abs(left)) + abs(log_scale)
        return _Pull(kernel, values, decay, beyond, growth, 64 * UNIT * (1.0 + reach))

    def __call__(self, after: FloatArray) -> FloatArray:
        """E_P[V(l + L); L finite] before the block, at most, from V on the states after it."""
        tilted = after * self.decay
        pulled, rounding = correlate(self.values, tilted)
        missed = mul_up(self.kernel.upper.error, add_up(norm_up(tilted), self.beyond))
        return (pulled + add_up(rounding, missed, _UNDERFLOW)) * self.growth * (1 + self.margin)


class Walk:
    """A course on a lattice: both ends of delta for any prices."""

    def __init__(self, course: Course, lattice: Lattice) -> None:
        self.course, self.lattice = course, lattice
        runs = max(1, course.runs)
        made = {
            parts: [Kernel.of(block, theta, lattice, runs) for theta in lattice.tilts]
            for parts, block in course.of_block.items()
        }
        self.kernels = [made[parts] for parts in course.blocks]
        h = lattice.step
        self.states = math.ceil((lattice.high - lattice.low) / h) + 2
        if self.states > MAX_LENGTH:
            raise PrecisionError(f"{self.states:.3g} states of width {h:.3g} would be needed")
        pulls = {
            parts: [_Pull.of(kernel, h, self.states) for kernel in kernels]
            for parts, kernels in made.items()
        }
        self.pulls = [pulls[parts] for parts in course.blocks]
        # the first state of the window after each block: (loss, in steps from its origin)
        origins = np.cumsum([kernels[0].origin for kernels in self.kernels])
        self.firsts = [math.floor((Fraction(lattice.low) - o) / Fraction(h)) for o in origins]
        self.starts = [o + f * Fraction(h) for o, f in zip(origins, self.firsts, strict=True)]
        longest = self.states + 1 + max(len(k.upper) for ks in made.values() for k in ks)
        # e^-x, at most an ulp or so above the truth and at least as given
        self.fall = np.exp(-h * np.arange(longest)) * (1 - (16 + 4 * h * longest) * UNIT)

    def upper(self, prices: Sequence[float]) -> tuple[float, Rule]:
        """An upper end of delta, and the rule that attains it, about.

        Guarantee: at least the exact value.
        """
        n = len(prices)
        # V = sure + value: what a later infinite loss wins anyhow, and the rest
        sure, value = 0.0, self._payoff(n - 1, prices[n - 1])
        from_losses = [prices[n - 1]]
        for i in reversed(range(n - 1)):
            go_on = self._before(i + 1, value, sure, self.firsts[i], self.pulls[i + 1])
            sure = self._sure(i + 1, sure)
            stop = np.maximum(0.0, self._payoff(i, prices[i]) - sure) * (1 + 2 * UNIT)
            # W is convex with slope <= 1: where it pays to stop, it does at all larger losses
            pays = np.flatnonzero(stop > go_on)
            at = float(self.starts[i]) + float(pays[0]) * self.lattice.step if pays.size else math.inf
            from_losses.append(at)
            value = np.maximum(stop, go_on)
        single = [_Pull.of(kernel, self.lattice.step, 1) for kernel in self.kernels[0]]
        first = float(self._before(0, value, sure, 0, single)[0])
        delta = min(1.0, add_up(first, self._sure(0, sure)))
        return delta, Rule(tuple(prices), tuple(reversed(from_losses)))

    def _sure(self, i: int, sure: float) -> float:
        """P(block i or a later one has an infinite loss), at most."""
        kernel = self.kernels[i][0]
        return min(1.0, add_up(kernel.infinity.upper, mul_up(kernel.total, sure)))

    def _payoff(self, i: int, price: float) -> FloatArray:
        """(1 - e^(E - l))_+ at the states of stop i, at most."""
        factor = exp_down(sub_down(price, float(self.starts[i])) - 4 * UNIT * abs(price))
        return np.maximum(0.0, 1.0 - self.fall[: self.states] * factor) * (1 + 4 * UNIT)

    def _before(
        self, i: int, value: FloatArray, sure: float, first: int, pulls: list[_Pull]
    ) -> FloatArray:
        """E_P[(V - sure)(l + L_i); L_i finite] at most, at states from ``first`` on."""
        best = None
        for pull in pulls:
            begin = first + pull.kernel.first - self.firsts[i]
            found = pull(self._extended(value, sure, begin, pull.decay.size))
            best = found if best is None else np.minimum(best, found)
        assert best is not None
        return np.minimum(1.0, best)

    def _extended(self, value: FloatArray, sure: float, begin: int, size: int) -> FloatArray:
        """V - sure at ``size`` states from ``begin`` on, counted from the window's first."""
        left = min(max(0, -begin), size)
        right = min(max(0, begin + size - value.size), size)
        inside = value[max(0, begin) : max(0, begin) + size - left - right]
        # W(u) <= W(u_end) + u - u_end
        ahead = begin + size - right - value.size + 1
        most = sub_up(1.0, sure)
        rest = max(0.0, sub_down(most, float(value[-1])))
        beyond = (most - rest * self.fall[ahead : ahead + right]) * (1 + 4 * UNIT)
        return np.concatenate([np.full(left, value[0]), inside, beyond])

    def lower(self, rule: Rule) -> float:
        """A lower end of delta: what the rule wins on merged outputs.

        Guarantee: at most the exact value.
        """
        gains: list[float] = []
        # P-mass that may have stopped, at most; P(no infinite loss yet), at least
        stopped, finite = 0.0, 1.0
        tilts = slice(None)
        if self.course.infinity.upper > 0:
            # what a cut drops never stops, so that "stopped" is known: a rule of one tilt
            tilts = slice(len(self.lattice.tilts) // 2, len(self.lattice.tilts) // 2 + 1)
        walkers = [kernel.lower for kernel in self.kernels[0][tilts]]
        for i, (price, loss) in enumerate(zip(rule.prices, rule.from_losses, strict=True)):
            kernels = self.kernels[i][tilts]
            # an output that Q cannot produce wins its whole mass at the next stop
            chance = kernels[0].infinity
            gains.append(mul_down(max(0.0, sub_down(finite, stopped)), chance.lower))
            finite = mul_down(finite, max(0.0, sub_down(1.0, chance.upper)))
            if i:
                walkers = [
                    (walker * kernel.lower).trimmed(self.lattice.tolerance)
                    if len(walker) and norm_up(walker.p) > walker.p_error
                    else walker.part(0, 0)
                    for walker, kernel in zip(walkers, kernels, strict=True)
                ]
            # one rule for all tilts: that of the tilt under which it wins most
            labels = [_label(walker, loss) for walker in walkers]
            won = [
                lower_delta(stop, price) if len(stop) else 0.0
                for stop in map(_from_label, walkers, labels)
            ]
            best = int(np.argmax(won))
            gains.append(won[best])
            stopped = add_up(stopped, _mass(_from_label(walkers[best], labels[best])))
            walkers = [_before_label(walker, labels[best]) for walker in walkers]
        return sum_down(np.array(gains))


def _label(walker: LowerMeasure, loss: float) -> Fraction | None:
    """The first label from which on all outputs have a >= e^loss b, as far as is known.

    Labels drift, masses do not: any rule is a rule, and this one looks at the masses.
    """
    if loss == math.inf or not len(walker):
        return None
    x, _ = walker.grid.losses(len(walker), origin=Fraction(loss))
    scale = (walker.p_exponent - walker.q_exponent) * math.log(2.0)
    with np.errstate(over="ignore"):
        go_on = walker.p * np.exp(x + scale) < walker.q
    go_on &= walker.p > walker.p_error
    cut = int(np.max(np.flatnonzero(go_on), initial=-1)) + 1
    return walker.grid.shifted(cut).offset


def _place(walker: LowerMeasure, label: Fraction | None) -> int:
    if label is None:
        return len(walker)
    ahead = (label - walker.grid.offset) / Fraction(walker.grid.step)
    return min(max(0, math.ceil(ahead)), len(walker))


def _from_label(walker: LowerMeasure, label: Fraction | None) -> LowerMeasure:
    return walker.part(_place(walker, label), len(walker))


def _before_label(walker: LowerMeasure, label: Fraction | None) -> LowerMeasure:
    return walker.part(0, _place(walker, label))


def _mass(walker: LowerMeasure) -> float:
    """The P-mass of all outputs, at most."""
    if not len(walker):
        return 0.0
    low, _ = walker.tilt.factors(walker.grid, len(walker))
    with np.errstate(divide="ignore", over="ignore"):
        mass = add_up(sum_up(walker.p / low), mul_up(walker.p_error, norm_up(1.0 / low)))
    return math.ldexp(mass, walker.p_exponent) * (1 + 16 * UNIT)
