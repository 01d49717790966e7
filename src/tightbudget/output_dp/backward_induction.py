"""The value of stopping: an upper bound by backward induction, a lower bound by one stopping rule.

A run that may stop after block i pays E_i there. With a and b the likelihoods of all outputs so
far under P and Q and l = ln a/b, the value of going on from l is, per unit of a:

    V_n(l) = (1 - e^(E_n - l))_+
    V_i(l) = max( (1 - e^(E_i - l))_+ ,  E_P[ V_{i+1}(l + L_{i+1}) ] ),     delta = E_P[ V_1(L_1) ]

where an infinite loss is worth 1. W_i(u) = u V_i(ln u) is convex with slopes in [0, 1], so
replacing a block's pair by one that dominates it only raises the value: losses that are spread
over neighbouring points of the lattice give an upper bound. And any stopping rule on merged
outputs is a stopping rule of the run itself, so the value of one, on merged outputs, is a lower
bound.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tightbudget.engine.buckets.compose import MAX_LENGTH
from tightbudget.engine.buckets.measures import LowerMeasure
from tightbudget.engine.buckets.profile import LowerDelta, UpperDelta
from tightbudget.errors import PrecisionError
from tightbudget.numerics.convolve import correlate
from tightbudget.numerics.rounding import (
    UNIT,
    FloatArray,
    add_up,
    any_of,
    exp_down,
    exp_up,
    mul_down,
    mul_up,
    norm_up,
    sub_down,
    sub_up,
    sum_down,
    sum_up,
)
from tightbudget.output_dp.stopping_lattice import Kernel, Lattice, RunLosses, kernel

# states after all blocks together, a gigabyte of doubles; an eighth of it in extended precision,
# where each takes more time and memory; beyond it PrecisionError names the gap reached
_MOST = 2**27
# products that underflow are below 5e-324 each, and fewer than 2^53 are added up
_UNDERFLOW = 1e-300


@dataclass(frozen=True)
class StoppingRule:
    """A rule for when to stop: at each stop, from which total loss on.

    Attributes:
        prices: (n,), the price of each stop that the rule was found for, nats.
        from_losses: (n,), the least total loss at which it stops there, nats; inf for never.
    """

    prices: tuple[float, ...]
    from_losses: tuple[float, ...]


class BackwardInduction:
    """The losses of a run on a lattice, from which both bounds of delta follow for any prices.

    States are the points of the lattice in one window, the same number after each block. The
    value V of a state is kept as a constant (the chance of a later infinite loss, which is worth
    1 whatever is decided) and an array of the rest.

    Args:
        losses: of the run, in one direction.
        lattice: the points, and what may be cut off.

    Raises:
        PrecisionError: the window has too many states, or the tilt is too strong for doubles.
    """

    def __init__(self, losses: RunLosses, lattice: Lattice) -> None:
        self.losses, self.lattice, h = losses, lattice, lattice.step
        self.states = math.ceil((lattice.high - lattice.low) / h) + 2
        most = _MOST // (8 if lattice.extended else 1) // len(losses.blocks)
        if self.states > min(MAX_LENGTH, most):
            raise PrecisionError(f"{self.states:.3g} states of width {h:.3g} would be needed")
        try:
            made = {
                block: kernel(losses, parts, lattice) for block, parts in losses.of_block.items()
            }
        except OverflowError as error:
            raise PrecisionError("a tilted mass is out of the range of doubles") from error
        expectations = {block: _Expectation(k, h, self.states) for block, k in made.items()}
        self.kernels = [made[block] for block in losses.blocks]
        self.expectations = [expectations[block] for block in losses.blocks]
        # the window's first state after each block: in steps from the origin, and its loss
        origins: list[Fraction] = np.cumsum([k.origin for k in self.kernels]).tolist()
        self.firsts = [math.floor((Fraction(lattice.low) - o) / Fraction(h)) for o in origins]
        self.starts = [o + i * Fraction(h) for o, i in zip(origins, self.firsts, strict=True)]
        reach = self.states + 1 + max(len(k.upper) for k in made.values())
        # e^-x at the points x = 0, h, 2h, ..., at most
        fall = np.exp(-h * np.arange(reach)) * (1 - (16 + 4 * h * reach) * UNIT)
        self.fall = np.where(fall > _UNDERFLOW, fall, 0.0)

    # ------------------------------------------------------------------- from above

    # Proof: proofs/stopping.v, theorem stopping
    def upper(self, prices: Sequence[float]) -> tuple[float, StoppingRule]:
        """An upper bound of delta at these prices (n,), and a stopping rule that nearly attains it.

        Guarantee: the bound is at least the exact delta.
        """
        last = len(prices) - 1
        sure, value = 0.0, self._payoff(last, prices[last])
        from_losses = [prices[last]]
        for i in reversed(range(last)):
            go_on = self._before(i + 1, value, sure, self.firsts[i], self.expectations[i + 1])
            sure = self._sure(i + 1, sure)
            stop = np.maximum(0.0, self._payoff(i, prices[i]) - sure) * (1 + 2 * UNIT)
            # where it pays to stop, it does at all larger losses: W is convex, its slope <= 1
            pays = np.flatnonzero(stop > go_on)
            from_losses.append(self._just_below(i, int(pays[0])) if pays.size else math.inf)
            value = np.maximum(stop, go_on)
        start = self._before(0, value, sure, 0, self.expectations[0])[0]  # at loss 0
        delta = min(1.0, add_up(float(start), self._sure(0, sure)))
        return delta, StoppingRule(tuple(prices), tuple(reversed(from_losses)))

    def _just_below(self, i: int, state: int) -> float:
        """The loss in the middle between a state of stop i and the one before it.

        Atoms lie on states, so a rule with such a threshold does not depend on their rounding.
        """
        return float(self.starts[i] + (state - Fraction(1, 2)) * Fraction(self.lattice.step))

    def _payoff(self, i: int, price: float) -> FloatArray:
        """(states,): an upper bound of (1 - e^(price - l))_+ at the states l of stop i."""
        start = float(self.starts[i])
        factor = exp_down(sub_down(price - start, 8 * UNIT * (abs(price) + abs(start))))
        payoff = np.maximum(0.0, 1.0 - self.fall[: self.states] * factor)
        return np.asarray(payoff * (1 + 4 * UNIT))

    def _sure(self, i: int, sure: float) -> float:
        """An upper bound of P(block i or a later one has an infinite loss).

        ``sure`` bounds the same probability for the blocks after i.
        """
        block = self.kernels[i]
        # guard: infinite-mass-counted
        return min(1.0, add_up(block.infinity.upper, mul_up(block.total, sure)))

    def _before(
        self, i: int, value: FloatArray, sure: float, first: int, expectation: _Expectation
    ) -> FloatArray:
        """An upper bound of E_P[(V - sure)(l + L_i); L_i finite] at the states l from ``first`` on.

        Args:
            i: the block whose loss L_i is.
            value: (states,), an upper bound of V - sure after the block.
            sure: an upper bound of the probability of an infinite loss after the block.
            first: the first state before the block, in points of the lattice.
            expectation: of the block.
        """
        begin, size = first + self.kernels[i].first - self.firsts[i], expectation.decay.size
        # below the window V is at most what it is at the window's left end ...
        left = min(max(0, -begin), size)
        right = min(max(0, begin + size - self.states), size)
        inside = value[max(0, begin) : max(0, begin) + size - left - right]
        # ... and beyond it W(u) <= W(u_end) + u - u_end
        rest = max(0.0, sub_down(sub_down(1.0, sure), float(value[-1])))
        ahead = begin + size - right - self.states + 1
        fall = self.fall[ahead : ahead + right]
        # guard: value-beyond-window
        beyond = sub_up(1.0, sure) - rest * np.append(fall, np.zeros(right - fall.size))
        return expectation(
            np.concatenate([np.full(left, value[0]), inside, beyond * (1 + 4 * UNIT)])
        )  # guard: value-below-window

    # ---------------------------------------------------------------------- one stop

    def one_stop_each(self) -> Iterator[Callable[[float], float]]:
        """For each stop, an upper bound of the delta(eps) of all blocks up to it.

        Guarantee: at least the exact delta(eps) of a run that has no other stop.
        """
        total, infinity = None, 0.0
        for block in self.kernels:
            total = block.upper if total is None else total * block.upper
            total = total.trimmed(self.lattice.tolerance)
            # 1 - (1 - p)(1 - p'), and p' counts what is beyond the block's grid, too
            infinity = any_of([(infinity, 1), (block.infinity.upper, 1)], up=True)
            yield functools.partial(_with_infinity, UpperDelta(total), infinity)

    # ------------------------------------------------------------------- from below

    # Proof: proofs/stopping.v, theorem from_below
    def lower(self, rule: StoppingRule) -> float:
        """A lower bound of delta at the rule's prices: the value of this stopping rule.

        Guarantee: at most the exact delta, for any rule.
        """
        gains: list[float] = []
        running = 1.0  # the P-mass that has neither stopped nor met an infinite loss, at least
        walker = self.kernels[0].lower
        for i, (price, loss) in enumerate(zip(rule.prices, rule.from_losses, strict=True)):
            # an output that Q cannot produce wins its whole mass at the next stop
            chance = self.kernels[i].infinity
            gains.append(max(0.0, mul_down(running, chance.lower)))
            # guard: infinite-loss-each-block
            running = max(0.0, mul_down(running, sub_down(1.0, chance.upper)))
            if i and len(walker):
                walker = (walker * self.kernels[i].lower).trimmed(self.lattice.tolerance)
            cut = _cut(walker, loss)
            # guard: stopped-goes-no-further
            stopping, walker = walker.part(cut, len(walker)), walker.part(0, cut)
            if len(stopping):
                gains.append(LowerDelta(stopping)(price))
                # guard: stopped-meets-no-infinite-loss
                running = max(0.0, sub_down(running, _mass(stopping)))
            if norm_up(walker.p) <= walker.p_error:  # nothing is known to go on
                walker = walker.part(0, 0)
        return sum_down(np.array(gains))


# Proof: proofs/stopping.v, theorem from_below
def _cut(walker: LowerMeasure, loss: float) -> int:
    """The index of the first merged output from which on all have a >= e^loss b.

    The rule is decided by the masses a and b themselves and not by the losses that label them,
    since the labels err after many convolutions. Any decision is a valid rule.
    """
    if loss == math.inf:
        return len(walker)
    x, _ = walker.grid.losses(len(walker), origin=Fraction(loss))
    scale = (walker.p_exponent - walker.q_exponent) * math.log(2.0)
    with np.errstate(over="ignore", invalid="ignore"):
        go_on = walker.p * np.exp(x + scale) < walker.q
    go_on &= walker.p > walker.p_error
    return int(np.max(np.flatnonzero(go_on), initial=-1)) + 1


def _mass(walker: LowerMeasure) -> float:
    """An upper bound of the P-mass of all outputs."""
    low, _ = walker.tilt.factors(walker.grid, len(walker))
    with np.errstate(all="ignore"):
        masses = np.where(walker.p > 0, walker.p / low, 0.0)
        mass = add_up(sum_up(masses), mul_up(walker.p_error, norm_up(1.0 / low)))
    return math.ldexp(mass, walker.p_exponent) * (1 + 16 * UNIT) if mass < math.inf else 1.0


def _with_infinity(finite: UpperDelta, infinity: float, epsilon: float) -> float:
    """An upper bound of delta(epsilon) from that of the finite losses and P(infinite loss)."""
    return min(1.0, add_up(infinity, finite(epsilon)))


class _Expectation:
    """E_P of a value after one block, as a function of the state before it.

    Its tables are the same at every stop that the block comes before.

    Args:
        block: the losses of the block.
        h: the distance of states, nats.
        states: their number.
    """

    def __init__(self, block: Kernel, h: float, states: int) -> None:
        measure = block.upper
        theta, size = measure.tilt.theta, len(measure)
        left = float(measure.grid.offset - measure.tilt.anchor)
        log_scale = measure.exponent * math.log(2.0) - theta * left
        self.values = measure.values.copy()
        # what may lie left of the array is lifted to its first entry
        # guard: left-of-array-counted
        self.values[0] += mul_up(block.lifted, exp_up(-log_scale) * (1 + 1e-12))
        self.error, self.extended = measure.error, measure.extended
        reached = states + size - 1
        centre = reached // 2
        with np.errstate(over="ignore"):
            # e^(-theta (x - centre)) at the states that are reached; undone at those before
            self.decay = np.exp(-theta * h * (np.arange(reached) - centre))
            growth = np.exp(log_scale + theta * h * (np.arange(states) - centre))
        self.growth = np.maximum(growth, _UNDERFLOW)
        # the squares of the decay beyond the states that are reached, added up
        self.beyond = float(self.decay[-1]) ** 2 / -math.expm1(-2.0 * theta * h)
        reach = theta * (h * reached + abs(left)) + abs(log_scale)
        self.margin = 1.0 + (64 + 8 * reach) * UNIT

    def __call__(self, value: FloatArray) -> FloatArray:
        """(states,): an upper bound of E_P[V(l + L); L finite] at the states l before the block.

        Args:
            value: an upper bound of V at all states that are reached.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            tilted = np.where(value > 0, value * self.decay, 0.0)
            pulled, rounding = correlate(self.values, tilted, extended=self.extended)
            # the error of the losses may be anywhere to the right; beyond the window V <= 1
            square = np.cumsum((tilted * tilted)[::-1])[::-1][: pulled.size] + self.beyond
            missed = self.error * (np.sqrt(square) * (1 + 4 * tilted.size * UNIT) + 1e-145)
            # guard: rounding-induction
            total = (pulled + rounding + missed + _UNDERFLOW) * self.growth * self.margin
        # where a tilt overflows nothing is known, but that V <= 1
        return np.asarray(np.fmin(1.0, total))
