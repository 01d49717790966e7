"""The worst delta of a graph of states, by backward induction with an analyst who chooses.

At a state the analyst may stop, where it has a price, or run the mechanism of one of its moves and
go on at that move's next state. With l the privacy loss of all outputs so far, the value of a state
per unit of P-mass is

    V(l) = max( (1 - e^(price - l))_+ ,  max over moves of E_P[ V_next(l + L) ] ),

where an infinite loss is worth 1, and delta is the value of the first state at l = 0. The function
W(u) = u V(ln u) is convex with slopes in [0, 1], since maxima and mixtures of such functions are
such. So a pair that dominates a move's mechanism, also one that was chosen after seeing earlier
outputs, only raises the value, and losses that are spread over neighbouring points of a lattice
give an upper bound.

From below: all that the analyst does from a state on is a set S of outputs at which they stop. It
has a P-mass A, and B is the sum of e^price times its Q-masses. From any loss l on, the analyst
gains A - e^-l B with it. So a merged output may go on at any point of the lattice: what is done
there may be done at its loss. A and e^-l B are each one correlation, with the masses that a merged
output has at least under P and at most under Q, and at each point the larger difference is kept.

An exponential mechanism has no worst pair, but a family of them: its loss is t or t - eps, for a t
in [0, eps] that may depend on all that was seen. Before it

    V(l) = sup over t of p(t) V(l + t) + (1 - p(t)) V(l + t - eps).

Both are points of the lattice for a t on it, and for the others the supremum along chords is known
(:mod:`tightbudget.mechanisms.bounded_range`). In a block with other mechanisms the choices come
last, which is the worst order.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tightbudget.engine.buckets.compose import MAX_LENGTH, Part, Parts
from tightbudget.engine.buckets.measures import LowerMeasure, UpperMeasure
from tightbudget.engine.buckets.tilt import tilted_moments, without_tail
from tightbudget.errors import PrecisionError
from tightbudget.mechanisms.bounded_range import best_of_one_run, largest_of_one_run
from tightbudget.mechanisms.composition import Composition
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.convolve import correlate
from tightbudget.numerics.rounding import (
    UNIT,
    FloatArray,
    add_down,
    add_up,
    exp_down,
    exp_up,
    mul_down,
    mul_up,
    sub_down,
    sub_up,
)
from tightbudget.output_dp.stopping_lattice import TILTS, Kernel, Lattice, kernel
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Sketch
from tightbudget.workflows.choices import Choices, split
from tightbudget.workflows.own_points import OwnPoints

LOG_G = TILTS * np.log(TILTS) - (1 + TILTS) * np.log1p(TILTS)
# points of all nodes together, each of which keeps an array of doubles, or two: up to 2 GiB
_MOST = 2**27
_EASE = 3.0  # nats that Chernoff's bound may be worse under the tilt than under the best one
_NOISE = 1e-13  # the error of rounding at each node relative to Chernoff's bound, about
_REACH = 500.0  # nats of tilt that a window may span: e^500 is a double, with room for products
_UNDERFLOW = 1e-300  # products that underflow are below 5e-324 each, and fewer than 2^53 are added
# Above the largest price, in units of the tilt: beyond it what may still go wrong after going on is
# e^-10 of what matters. Affects width, never truth.
_AHEAD = 10.0
_NEAR = 0.1  # of a step: how far losses may be from points. Affects width, never truth.
_EXACT = 64  # a lattice that holds all losses is taken if it has at most so many points too many


@dataclass(frozen=True)
class Node:
    """A state: what may run there and where that leads, and the price of stopping, nats.

    Attributes:
        moves: for each move the index of its block and that of the next node, which is smaller.
        price: None where one may not stop.
    """

    moves: tuple[tuple[int, int], ...]
    price: float | None


@dataclass(frozen=True, eq=False)
class Graph:
    """The nodes of a workflow, each after the nodes that its moves lead to; the last one is first.

    Attributes:
        nodes: in this order.
        blocks: what the moves run.
    """

    nodes: tuple[Node, ...]
    blocks: tuple[Composition, ...]

    def most(self, of_block: Sequence[float]) -> float:
        """The largest sum of these numbers over the blocks of a path from the last node."""
        sums: list[float] = []
        for node in self.nodes:
            sums.append(max((of_block[b] + sums[after] for b, after in node.moves), default=0.0))
        return sums[-1]


class GraphLosses:
    """The privacy losses of each block in one direction, and what planning asks of them.

    Args:
        graph: of the blocks.
        direction: the direction.
    """

    def __init__(self, graph: Graph, direction: Direction) -> None:
        self.graph, self.direction = graph, direction
        halves = [split(block) for block in graph.blocks]
        self.parts = [Parts.of(rest.pairs(direction)) for rest, _ in halves]
        self.choices = [Choices.of(chosen) for _, chosen in halves]
        runs = [sum(part.count for part in parts.parts) for parts in self.parts]
        self.count = max(1, round(graph.most(runs)))

    @property
    def _widened(self) -> int:
        """The number of times that points' distance parts the bounds, on the longest way."""
        each = [
            bool(parts.parts) + chosen.runs
            for parts, chosen in zip(self.parts, self.choices, strict=True)
        ]
        return max(1, round(self.graph.most(each)))

    @functools.cached_property
    def infinity(self) -> Bounds:
        """The largest chance of an infinite loss that a way of choosing has."""
        found: list[Bounds] = []
        for node in self.graph.nodes:
            ways = [(self.parts[block].infinity, found[after]) for block, after in node.moves]
            lower = max(
                (
                    add_down(one.lower, mul_down(sub_down(1.0, one.upper), later.lower))
                    for one, later in ways
                ),
                default=0.0,
            )
            upper = max(
                (
                    add_up(one.upper, mul_up(sub_up(1.0, one.upper), later.upper))
                    for one, later in ways
                ),
                default=0.0,
            )
            found.append(Bounds(max(0.0, lower), min(1.0, upper)))
        return found[-1]

    @functools.cached_property
    def gain(self) -> float:
        """An upper bound of what finite losses can gain, from the largest one alone."""
        tops = [max(-math.inf, parts.max_loss.upper) for parts in self.parts]
        reached = [-math.inf] * len(self.graph.nodes)
        reached[-1] = 0.0
        gain = 0.0
        for i, node in reversed(list(enumerate(self.graph.nodes))):
            if node.price is not None and reached[i] > -math.inf:
                gain = max(gain, -math.expm1(min(0.0, node.price - reached[i])))
            for block, after in node.moves:
                # a block without a mechanism has no loss but 0
                top = tops[block] if self.parts[block].parts or self.parts[block].certain else 0.0
                top = add_up(top, mul_up(self.choices[block].runs, self.choices[block].span))
                reached[after] = max(reached[after], add_up(reached[i], top))
        return gain

    def without_tail(self, part: Part, log_lost: float) -> Sketch:
        """The losses of one run of ``part`` without the largest, which may count as infinite."""
        return without_tail(part.sketch, log_lost - math.log(self.count))

    def rises(self, log_lost: float) -> list[FloatArray]:
        """(tilts,) for each block: about ln E_P[e^(theta L); L finite].

        The largest losses, of P-mass e^log_lost together, are left out.
        """
        rises = []
        for parts, chosen in zip(self.parts, self.choices, strict=True):
            rise = chosen.rise()
            for part in parts.parts:
                sketch = self.without_tail(part, log_lost)
                rise += part.count * np.array([tilted_moments(sketch, t)[0] for t in TILTS])
            rises.append(rise)
        return rises

    def log_moments(self, rises: Sequence[FloatArray]) -> FloatArray:
        """(nodes, tilts): the largest ln E_P[e^(theta L)] of the paths to each node."""
        found = np.full((len(self.graph.nodes), TILTS.size), -np.inf)
        found[-1] = 0.0
        for i, node in reversed(list(enumerate(self.graph.nodes))):
            for block, after in node.moves:
                np.maximum(found[after], found[i] + rises[block], out=found[after])
        return found

    def ahead(self, rises: Sequence[FloatArray]) -> FloatArray:
        """(tilts,): ln of Chernoff's bound on the value at loss 0 of the node with the largest."""
        found = np.full((len(self.graph.nodes), TILTS.size), -np.inf)
        for i, node in enumerate(self.graph.nodes):
            if node.price is not None:
                found[i] = LOG_G - node.price * TILTS
            for block, after in node.moves:
                np.maximum(found[i], rises[block] + found[after], out=found[i])
        return np.asarray(np.max(found, axis=0))

    @functools.cached_property
    def drop(self) -> float:
        """About how far losses may fall after a node that has no price, until the next that has."""
        drops = []
        for parts, chosen in zip(self.parts, self.choices, strict=True):
            looks = [(part.count, tilted_moments(part.sketch, 0.0)) for part in parts.parts]
            mean = sum(count * mean for count, (_, mean, _) in looks)
            spread = sum(count * v for count, (_, _, v) in looks)
            # the t in the middle of a span has the variance span^2 / 4, and half of it as the mean
            more = chosen.runs * chosen.span**2 / 4
            drops.append(4.0 * math.sqrt(spread + more) - mean - more / 2)
        found: list[float] = []
        for node in self.graph.nodes[:-1]:
            ahead = max((drops[block] + found[after] for block, after in node.moves), default=0.0)
            found.append(max(0.0, ahead) if node.price is None else 0.0)
        return max(found, default=0.0)

    def lattice(
        self,
        rtol: float,
        share: float,
        *,
        at_most: float = math.inf,
        extended: bool = False,
        least: float = 0.0,
    ) -> Lattice:
        """A lattice on which both bounds of delta are about ``share`` times ``rtol`` apart.

        Chernoff's bound e^(K(theta) + ln g(theta) - theta price) on what stopping at a node adds to
        delta says which losses matter; one tilt serves all nodes.

        Args:
            rtol: wanted relative gap.
            share: how much wider than ``rtol`` the gap may be, in variance.
            at_most: the largest distance of two points, nats.
            extended: True to convolve in extended precision.
            least: a delta below this need only be shown to be below it.
        """
        n, log_delta = self._widened, 0.0
        priced = [i for i, node in enumerate(self.graph.nodes) if node.price is not None]
        prices = np.array([self.graph.nodes[i].price for i in priced])
        # what finite losses add need not be known better than what is certain
        below = math.log(max(least, self.infinity.lower, 1e-280)) - 5.0
        for _ in range(3):  # what may be lost depends on delta
            lost = max(log_delta + math.log(1e-2 * rtol), -700.0)
            rises = self.rises(lost)
            moments = self.log_moments(rises)
            chernoff = np.maximum(moments[priced] + LOG_G - np.outer(prices, TILTS), below)
            peak = float(np.max(np.min(chernoff, axis=1)))
            # the bound is about sqrt(2 pi theta^2 Var) above, and theta^2 Var about -2 ln of it
            log_delta = max(peak - 0.5 * math.log1p(4 * math.pi * max(0.0, -peak)), -690.0)
        worst = np.max(chernoff, axis=0)
        # a smaller tilt keeps more of what matters less, as long as digits are to spare
        spare = log_delta + math.log(1e-2 * rtol / (_NOISE * n)) - float(np.min(worst))
        best = int(np.argmax(worst <= np.min(worst) + min(_EASE, max(0.0, spare))))
        theta = float(TILTS[best])
        # a block's bucket of width h puts a variance of h^2/4 between the ends, and a chord as much
        saddle = float(TILTS[int(np.argmin(worst))])
        wanted = min(at_most, math.sqrt(8.0 * share * rtol / (n * saddle * (saddle + 1.0))))
        # below: what V may be there is nothing beside delta; above: so is the chance to be there
        ample = math.log(1e3 * n / rtol)
        ahead = np.maximum(self.ahead(rises) - log_delta, 0.0)
        low = float(np.max(-(ample + ahead) / TILTS))
        reached = np.maximum(np.max(moments, axis=0), 0.0)
        high = min(
            float(np.min((reached + ample - log_delta) / TILTS)),
            max(prices) + _AHEAD / theta + self.drop,
        )
        high = max(high, low + wanted, 0.0)
        step, exact = self._step(wanted)
        return Lattice(
            step,
            exact,
            min(theta, _REACH / (high - low)),
            low,
            high,
            lost,
            slip=math.log(1e-2 * rtol / n),
            tolerance=1e-6 * rtol / n * math.exp(min(0.0, log_delta - float(worst[best]))),
            extended=extended,
            aligned=True,
        )

    def _step(self, wanted: float) -> tuple[float, bool]:
        """A distance of points near ``wanted``; True if all losses are multiples of it.

        Losses of much mass are multiples if one distance can be found for all of them.
        """
        parts = [part for every in self.parts for part in every.parts]
        exact = all(part.lattice is not None for part in parts)
        spacings = [part.lattice for part in parts if part.lattice is not None]
        spacings += [part.origin for part in parts if part.origin is not None]
        common = _common([abs(x) for x in spacings if math.isfinite(x)])
        spans = [chosen.span for chosen in self.choices if chosen.runs]
        if spans:  # that are no multiple of the least one are rounded up to points
            common, exact = min(spans), False
        if common > wanted / _EXACT:
            # a little more, so that no multiple of a loss > 0 is beyond its point by rounding
            return common * (1 + 64 * UNIT) / max(1, math.ceil(common / wanted)), exact
        mantissa, exponent = math.frexp(min(wanted, 1.0))  # few digits: i h is exact
        return math.ldexp(math.floor(mantissa * 2**20), exponent - 20), False


def _common(lengths: Sequence[float]) -> float:
    """A length of which all these are multiples, up to rounding; 0 for none or if there is none."""
    common = 0.0
    for length in lengths:
        larger, common = max(common, length), min(common, length) or max(common, length)
        # Euclid's algorithm, for numbers that are known up to rounding
        while common and (rest := abs(larger - common * round(larger / common))) > 1e-9 * larger:
            larger, common = common, rest
    return common


class WorkflowInduction:
    """Bounds delta from both sides on one lattice.

    States of the lattice are its points in one window, the same at each node. The value V of a
    node is kept as a constant (the chance of a later infinite loss, which is worth 1 whatever is
    decided) and an array of the rest.

    Args:
        losses: of the blocks, in one direction.
        lattice: the points, and what may be cut off.

    Raises:
        PrecisionError: the window has too many states, or the tilt is too strong for doubles.
    """

    def __init__(self, losses: GraphLosses, lattice: Lattice) -> None:
        self.graph, h = losses.graph, lattice.step
        self.step = h
        self.still = [not parts.parts and not parts.certain for parts in losses.parts]
        self.first = math.floor(lattice.low / h)
        self.points = math.ceil(lattice.high / h) + 2 - self.first
        if self.points > min(MAX_LENGTH, _MOST // len(self.graph.nodes)):
            raise PrecisionError(f"{self.points:.3g} states of width {h:.3g} would be needed")
        try:
            self.kernels = [kernel(losses, parts, lattice) for parts in losses.parts]
            lowers = [
                _centred(k.lower, functools.partial(kernel, losses, parts, lattice))
                for k, parts in zip(self.kernels, losses.parts, strict=True)
            ]
        except OverflowError as error:
            raise PrecisionError("a tilted mass is out of the range of doubles") from error
        self.x = (self.first + np.arange(self.points)) * h
        self.choices = losses.choices
        above, below = (
            [OwnPoints.of(span, h, self.first, self.points) for span in spans]
            for spans in ([c.span for c in self.choices], [c.least for c in self.choices])
        )
        self.own_above, self.own_below = above, below
        margins = max(points.margin for points in above)
        reach = self.points + 1 + max(margins, *(len(k.upper) for k in self.kernels))
        # e^-x at the points x = 0, h, 2h, ..., at most
        fall = np.exp(-h * np.arange(reach)) * (1 - (16 + 4 * h * reach) * UNIT)
        self.fall = np.where(fall > _UNDERFLOW, fall, 0.0)
        self.sums = [
            _BlockSums.of(k, lower, h, self.points)
            for k, lower in zip(self.kernels, lowers, strict=True)
        ]

    def priced(self, graph: Graph) -> WorkflowInduction:
        """The induction on the same lattice for other prices of the same nodes."""
        other = copy.copy(self)
        other.graph = graph
        return other

    # Proof: proofs/choices.v, theorems choices, induction_covers
    def upper(self) -> float:
        """An upper bound of delta.

        Guarantee: at least the exact delta, whatever the analyst does.
        """
        found: list[tuple[float, FloatArray]] = []
        for node in self.graph.nodes:
            moves = [
                (self._sure(block, found[after][0]), self._before(block, *found[after]))
                for block, after in node.moves
            ]
            sure = max((own for own, _ in moves), default=0.0)
            rest = np.zeros(self.points)
            for own, value in moves:
                # what a larger chance of an infinite loss elsewhere is worth counts once
                np.maximum(rest, value - sub_down(sure, own), out=rest)  # guard: any-move-is-chosen
            if node.price is not None:
                np.maximum(rest, self._payoff(node.price) - sure, out=rest)
            found.append((sure, rest * (1 + 2 * UNIT)))
        sure, value = found[-1]
        return min(1.0, add_up(float(value[-self.first]), sure))

    def _payoff(self, price: float) -> FloatArray:
        """(points,): an upper bound of (1 - e^(price - l))_+ at the points l."""
        start = float(self.x[0])
        factor = exp_down(sub_down(price - start, 8 * UNIT * (abs(price) + abs(start))))
        payoff = np.maximum(0.0, 1.0 - self.fall[: self.points] * factor)
        return np.asarray(payoff * (1 + 4 * UNIT))

    def _sure(self, block: int, sure: float) -> float:
        """An upper bound of P(the block or a later one has an infinite loss)."""
        k = self.kernels[block]
        # guard: infinite-loss-on-the-way
        return min(1.0, add_up(k.infinity.upper, mul_up(k.total, sure)))

    def _before(self, block: int, sure: float, value: FloatArray) -> FloatArray:
        """An upper bound of E_P[(V - sure)(l + L); L finite] at the points l before a block."""
        own = self.own_above[block]
        for _ in range(self.choices[block].runs):
            # a rising function; where rounding has it fall, the larger value is a bound after it
            whole = np.maximum.accumulate(self._extended(sure, value, -own.margin, 2 * own.margin))
            whole = largest_of_one_run(own.span, own.cells, own.above(whole)[::-1])[::-1]
            value = np.minimum(own.back_above(np.maximum.accumulate(whole)), 1.0)
        if self.still[block]:
            return value
        more = self.sums[block].reached - self.points
        return self.sums[block].upper(self._extended(sure, value, self.kernels[block].first, more))

    def _extended(self, sure: float, value: FloatArray, begin: int, more: int) -> FloatArray:
        """(points + more,): upper bounds of V - sure from the point ``begin`` of the window on."""
        reached = self.points + more
        left, right, inside = self._window(begin, reached)
        # below the window V is at most what it is at the window's left end, and beyond it
        # W(u) <= W(u_end) + u - u_end
        rest = max(0.0, sub_down(sub_down(1.0, sure), float(value[-1])))
        ahead = begin + reached - right - self.points + 1
        fall = self.fall[ahead : ahead + right]
        beyond = sub_up(1.0, sure) - rest * np.append(fall, np.zeros(right - fall.size))
        return np.concatenate([np.full(left, value[0]), value[inside], beyond * (1 + 4 * UNIT)])

    def _window(self, begin: int, reached: int) -> tuple[int, int, slice]:
        """Counts the points reached that lie left and right of the window, and those inside."""
        left = min(max(0, -begin), reached)
        right = min(max(0, begin + reached - self.points), reached)
        return left, right, slice(max(0, begin), max(0, begin) + reached - left - right)

    # Proof: proofs/choices.v, theorem from_below
    def lower(self) -> float:
        """A lower bound of delta: what one way of choosing and stopping gains.

        Guarantee: at most the exact delta.
        """
        found: list[tuple[float, FloatArray, FloatArray]] = []
        for node in self.graph.nodes:
            options = [self._go_on(block, *found[after]) for block, after in node.moves]
            # to stop after an infinite loss alone gains the chance of one
            sure = max(
                (self._surely(block, found[after][0]) for block, after in node.moves), default=0.0
            )
            p, q = np.full(self.points, sure), np.zeros(self.points)
            if node.price is not None:
                cost = node.price - self.x
                cost = cost + (4 * UNIT) * (abs(node.price) + np.abs(self.x))
                with np.errstate(over="ignore"):
                    options.append((np.ones(self.points), np.exp(cost) * (1 + 16 * UNIT)))
            for a, b in options:
                better = a - b > p - q
                # guard: cost-goes-with-the-gain
                p, q = np.where(better, a, p), np.where(better, b, q)
            found.append((sure, p, q))
        _, p, q = found[-1]
        start = -self.first
        return max(0.0, sub_down(float(p[start]), float(q[start])))

    def _surely(self, block: int, sure: float) -> float:
        """A lower bound of P(the block or a later one has an infinite loss)."""
        chance = self.kernels[block].infinity
        return max(0.0, add_down(chance.lower, mul_down(sub_down(1.0, chance.upper), sure)))

    def _go_on(
        self, block: int, sure: float, p: FloatArray, q: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """A at least and e^-l B at most, at the points l before a block."""
        k, weights, own = self.kernels[block], self.sums[block], self.own_below[block]
        for _ in range(self.choices[block].runs):
            reached = self._reached(sure, p, q, -own.margin, self.points + 2 * own.margin)
            p, q = own.below(*reached)
            p, q = best_of_one_run(self.choices[block].least, own.cells, own.step, p[::-1], q[::-1])
            p, q = own.back_below(p[::-1], q[::-1])
        if self.still[block]:
            return p, q
        a, b = weights.lower(*self._reached(sure, p, q, weights.first_below, weights.reached_below))
        # an output that Q cannot produce wins its whole mass at the next stop
        return np.minimum(1.0, a + k.infinity.lower) * (1 - 2 * UNIT), b

    def _reached(
        self, sure: float, p: FloatArray, q: FloatArray, begin: int, reached: int
    ) -> tuple[FloatArray, FloatArray]:
        """(reached,) each: A at least and e^-l B at most, from the point ``begin`` on."""
        left, right, inside = self._window(begin, reached)
        # beyond the window one does what one does at its end, at no more than its cost there
        return (
            np.concatenate([np.full(left, sure), p[inside], np.full(right, p[-1])]),
            np.concatenate([np.zeros(left), q[inside], np.full(right, q[-1])]),
        )


@dataclass(frozen=True, eq=False)
class _BlockSums:
    """The tilted masses of a block, and what undoes their tilts, for the points of one window.

    Attributes:
        reached: points that are reached from the window, by the upper measure.
        reached_below: the same, by the lower one.
        first_below: the point to which the lower measure's first output leads, from 0.
    """

    up: _TiltedSums
    p: _TiltedSums
    q: _TiltedSums
    first_below: int

    @property
    def reached(self) -> int:
        return self.up.decay.size

    @property
    def reached_below(self) -> int:
        return self.p.decay.size

    @staticmethod
    def of(block: Kernel, lower: LowerMeasure, h: float, points: int) -> _BlockSums:
        upper = block.upper
        up = _TiltedSums.of(upper, upper.values, upper.exponent, upper.error, h, points)
        # what may lie left of the array is lifted to its first entry
        up.values[0] += mul_up(block.lifted, exp_up(-up.log_scale) * (1 + 1e-12))
        p = _TiltedSums.of(lower, lower.p, lower.p_exponent, lower.p_error, h, points)
        label = lower.grid.offset
        first = round((label - Fraction(_behind(lower))) / Fraction(h))
        # Q e^x for the point x that an output leads to, in place of its label
        behind = float(label - first * Fraction(h))
        moved = math.exp(-behind) * (1 + (16 + 4 * abs(behind)) * UNIT)
        q = _TiltedSums.of(
            lower, lower.q * moved, lower.q_exponent, lower.q_error * moved, h, points
        )
        return _BlockSums(up, p, q, first)

    def upper(self, value: FloatArray) -> FloatArray:
        """(points,): an upper bound of E_P[V(l + L); L finite]."""
        found, off = self.up(value)
        # where a tilt overflows nothing is known, but that V <= 1
        return np.asarray(np.fmin(1.0, self.up.restored(found + off, up=True)))

    def lower(self, p: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(points,) each: A at least, and e^-l B at most."""
        found, off = self.p(p)
        with np.errstate(invalid="ignore"):
            a = np.maximum(0.0, self.p.restored(np.maximum(0.0, found - off), up=False))
        found, off = self.q(q)
        b = self.q.restored(found + off, up=True)
        return np.nan_to_num(a, nan=0.0, posinf=0.0), np.nan_to_num(b, nan=np.inf)


def _centred(measure: LowerMeasure, moved: Callable[[Fraction], Kernel]) -> LowerMeasure:
    """A measure whose merged outputs have losses around points of the lattice, not between them.

    What an output does is what is best at the point that it leads to. That affects width alone.
    """
    h = measure.grid.step
    away = (_behind(measure) / h - 0.5) % 1.0 - 0.5
    return moved(Fraction(away * h)).lower if abs(away) > _NEAR else measure


def _behind(measure: LowerMeasure) -> float:
    """Tells how much less the losses of merged outputs are than their labels, about, nats."""
    scale = (measure.q_exponent - measure.p_exponent) * math.log(2.0)
    some = (measure.p > 1e-3 * np.max(measure.p, initial=0.0)) & (measure.q > 0.0)
    if not some.any():
        return 0.0
    p = measure.p[some]
    return float(np.sum(p * (np.log(measure.q[some] / p) + scale)) / np.sum(p))


@dataclass(frozen=True, eq=False)
class _TiltedSums:
    """Tilted masses that are summed against a function of the point that they lead to."""

    values: FloatArray
    error: float
    extended: bool
    decay: FloatArray  # e^(-theta (x - centre)) at the points that are reached
    growth: FloatArray  # what undoes it, and the tilt, at the points of the window
    beyond: float  # the squares of the decay beyond the points that are reached, added up
    margin: float
    log_scale: float

    @staticmethod
    def of(
        measure: UpperMeasure | LowerMeasure,
        values: FloatArray,
        exponent: int,
        error: float,
        h: float,
        points: int,
    ) -> _TiltedSums:
        theta = measure.tilt.theta
        left = float(measure.grid.offset - measure.tilt.anchor)
        log_scale = exponent * math.log(2.0) - theta * left
        reached = points + values.size - 1
        centre = reached // 2
        with np.errstate(over="ignore"):
            decay = np.exp(-theta * h * (np.arange(reached) - centre))
            growth = np.exp(log_scale + theta * h * (np.arange(points) - centre))
        reach = theta * (h * reached + abs(left)) + abs(log_scale)
        return _TiltedSums(
            values.copy(),
            error,
            measure.extended,
            decay,
            growth,
            float(decay[-1]) ** 2 / -math.expm1(-2.0 * theta * h),
            (64 + 8 * reach) * UNIT,
            log_scale,
        )

    def __call__(self, value: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(points,) each: the sums, and how far they may be off. Every value is at most 1."""
        with np.errstate(over="ignore", invalid="ignore"):
            tilted = np.where(value > 0, value * self.decay, 0.0)
            pulled, rounding = correlate(self.values, tilted, extended=self.extended)
            # the error of the masses may be anywhere to the right, where the function is at most 1
            square = np.cumsum((tilted * tilted)[::-1])[::-1][: pulled.size] + self.beyond
            missed = self.error * (np.sqrt(square) * (1 + 4 * tilted.size * UNIT) + 1e-145)
            return pulled, rounding + missed

    def restored(self, sums: FloatArray, *, up: bool) -> FloatArray:
        """The sums without tilts, rounded up or down."""
        with np.errstate(over="ignore", invalid="ignore"):
            if up:
                growth = np.maximum(self.growth, _UNDERFLOW)
                return np.asarray((sums + _UNDERFLOW) * growth * (1 + self.margin))
            lost = np.maximum(0.0, sums - _UNDERFLOW)
            kept = np.where(self.growth > _UNDERFLOW, lost * self.growth, 0.0)
            return np.asarray(kept * (1 - self.margin))
