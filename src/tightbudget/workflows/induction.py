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

import numpy as np

from tightbudget.engine.buckets.compose import MAX_LENGTH
from tightbudget.errors import PrecisionError
from tightbudget.mechanisms.bounded_range import best_of_one_run, largest_of_one_run
from tightbudget.numerics.rounding import (
    UNIT,
    FloatArray,
    add_down,
    add_up,
    exp_down,
    mul_down,
    mul_up,
    sub_down,
    sub_up,
)
from tightbudget.output_dp.stopping_lattice import Lattice, kernel
from tightbudget.workflows.block_sums import UNDERFLOW, BlockSums, centred
from tightbudget.workflows.graph_losses import Graph, GraphLosses
from tightbudget.workflows.own_points import OwnPoints

# points of all nodes together, each of which keeps an array of doubles, or two: up to 2 GiB
_MOST = 2**27


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
                centred(k.lower, functools.partial(kernel, losses, parts, lattice))
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
        self.fall = np.where(fall > UNDERFLOW, fall, 0.0)
        self.sums = [
            BlockSums.of(k, lower, h, self.points)
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
