"""The states of a workflow, the privacy losses of its moves, and a lattice for both."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tightbudget.engine.buckets.compose import Part, Parts
from tightbudget.engine.buckets.tilt import tilted_moments, without_tail
from tightbudget.mechanisms.composition import Composition
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    UNIT,
    FloatArray,
    add_down,
    add_up,
    mul_down,
    mul_up,
    sub_down,
    sub_up,
)
from tightbudget.output_dp.stopping_lattice import TILTS, Lattice
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Sketch
from tightbudget.workflows.choices import Choices, split

LOG_G = TILTS * np.log(TILTS) - (1 + TILTS) * np.log1p(TILTS)
_EASE = 3.0  # nats that Chernoff's bound may be worse under the tilt than under the best one
_NOISE = 1e-13  # the error of rounding at each node relative to Chernoff's bound, about
_REACH = 500.0  # nats of tilt that a window may span: e^500 is a double, with room for products
# Above the largest price, in units of the tilt: beyond it what may still go wrong after going on is
# e^-10 of what matters. Affects width, never truth.
_AHEAD = 10.0
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
