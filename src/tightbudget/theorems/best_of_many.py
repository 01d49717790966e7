"""The best of many runs: a mechanism runs a random number of times, and one output is kept.

Hyperparameters are chosen so: each run trains a model, and the best one is published. Its Renyi
divergences follow from those of one run. The number of runs has to be random, and is not told.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    UNIT,
    add_up,
    expm1_up,
    log1p_down,
    log_up,
    mul_up,
    next_down,
    next_up,
)
from tightbudget.numerics.search import least_between
from tightbudget.numerics.validate import number, refuse
from tightbudget.theorems import renyi
from tightbudget.theorems.renyi import Divergence, RenyiTable

__all__ = ["ORDERS", "BestOfMany", "Repetitions"]

# Between two of these orders the best one is searched for; 2^14 costs ln(mean) / 16384 at most.
ORDERS = (*(1 + 2.0 ** (j / 4) for j in range(-16, 57)), math.inf)
_LOWEST = 1 + 2.0**-16  # of the search; the order 1 itself is a limit, and counts, too
# The mean at t = ln(1/gamma) is at least (e^t - 1) / t, that of the shape 0: at 40 above 1e15
_MOST_LOG = 40.0


@dataclass(frozen=True, kw_only=True)
class Repetitions:
    """The distribution of a number of runs, which nobody is told.

    It is the truncated negative binomial one of a shape, which is at least 1: logarithmic for the
    shape 0, geometric for the shape 1. For the shape inf it is a Poisson number, which may be 0.
    Source: Papernot, Steinke 2022, Definition 1.

    Args:
        mean: of the number of runs, in [1, 1e12].
        shape: >= 0; may be inf.

    Raises:
        ParameterError: an argument is refused.
    """

    mean: float
    shape: float

    def __post_init__(self) -> None:
        mean, shape = number(mean=self.mean), number(shape=self.shape)
        if not 1 <= mean <= 1e12:
            raise refuse("mean", "be in [1, 1e12]", self.mean)
        if not shape >= 0:
            raise refuse("shape", "be >= 0", self.shape)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "shape", shape)

    @property
    def once(self) -> bool:
        """Says whether there is exactly one run."""
        return self.mean == 1 and not math.isinf(self.shape)

    def log_stop(self) -> float:
        """Bounds ln(1 / gamma) from above, of the parameter gamma for a finite shape.

        With t = ln(1 / gamma) the mean is (e^t - 1) shape / (1 - e^(-shape t)), (e^t - 1) / t for
        the shape 0. It rises with t, and falls as gamma rises.
        """

        def mean(t: float) -> float:
            # for tiny shapes the quotient is t up to a relative shape t / 2, and at most t
            less = -math.expm1(-self.shape * t) / self.shape if self.shape > 1e-20 else t
            return math.expm1(t) / less

        # two calls of expm1, and four operations that pass a relative error on without enlarging it
        enough = self.mean * (1 + 32 * UNIT)  # guard: number-of-runs-rounded-up
        low, high = 0.0, _MOST_LOG
        while low < (middle := (low + high) / 2) < high:
            low, high = (low, middle) if mean(middle) >= enough else (middle, high)
        return high


@dataclass(frozen=True, eq=False)
class BestOfMany:
    """The Renyi divergences of the best of a random number of runs, by order.

    What is best may be decided by any score that each output has by itself.

    Guarantee: where ``one`` and ``delta`` bound one run in both directions, a call's upper bound is
    at least the divergence of the output that is kept, in both directions, rounding included.
    Source: Papernot, Steinke 2022, Theorem 2 (a truncated negative binomial number of runs) and
    Theorem 6 (a Poisson number).

    The bound of an order is the least of the theorem's at this order and at the higher ones of
    ``table``, and of chords between them. The best orders are searched for, which is a heuristic:
    every order gives a valid bound.

    Args:
        one: the divergence of one run, by order > 1, inf included; its upper bounds count.
        repetitions: how often it runs.
        delta: delta of one run by epsilon >= 0, in nats, which a Poisson number of runs needs; None
            takes the one that follows from ``one``.
        orders: the orders of the table, ascending; the last is inf.

    Raises:
        ParameterError: the orders are refused.

    Attributes:
        table: the divergences at ``orders`` and at the best one.
    """

    one: Divergence = field(repr=False)
    repetitions: Repetitions
    delta: Callable[[float], Bounds] | None = field(default=None, repr=False)
    orders: Sequence[float] = field(default=ORDERS, repr=False)
    table: RenyiTable = field(init=False, repr=False)
    _at: Callable[[float], float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        told = RenyiTable(self.orders, [0.0] * len(self.orders)).orders  # which refuses wrong ones
        object.__setattr__(self, "orders", told)
        at = functools.cache(self._theorem())
        orders = {*told, _best(at, told)}
        largest = self.one(math.inf).upper
        if math.isinf(self.repetitions.shape) and 0 < largest < math.inf:
            # up to this order a Poisson number adds no delta: e^largest <= 1 + 1 / (order - 1)
            last = next_down(1 + next_down(1 / expm1_up(largest)))
            orders |= {last} if last > 1 else set()
        table = RenyiTable.of(lambda order: Bounds(0.0, at(order)), sorted(orders))
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "_at", at)

    def __call__(self, order: float) -> Bounds:
        """Bounds the divergence of any order > 1; the upper bound is inf where none is known."""
        known = self.table(order).upper
        return Bounds(0.0, min(known, self._at(float(order))))

    def _theorem(self) -> Callable[[float], float]:
        """Makes the function from an order to the theorem's bound of its divergence."""
        one = functools.cache(lambda order: self.one(order).upper)
        mean, shape = self.repetitions.mean, self.repetitions.shape
        log_mean = log_up(mean)
        if math.isinf(shape):
            table = RenyiTable.of(lambda order: Bounds(0.0, one(order)), self.orders)
            delta = self.delta or (lambda epsilon: renyi.delta(table, epsilon))

            def more(order: float) -> float:
                # delta is asked for at an epsilon with e^epsilon <= 1 + 1 / (order - 1)
                epsilon = log1p_down(next_down(1 / next_up(order - 1.0)))
                return mul_up(mean, delta(max(0.0, epsilon)).upper)  # guard: poisson-delta-counted

        else:
            log = self.repetitions.log_stop()

            def at_another(order: float) -> float:
                if math.isinf(order):
                    return one(order)
                share = next_up((order - 1.0) / order)
                return add_up(mul_up(share, one(order)), next_up(log / order))

            # In the limit of the order 1 a divergence counts nothing if it is finite at some order
            limit = log if one(self.orders[0]) < math.inf else math.inf
            other = min(limit, at_another(_best(at_another, self.orders)))
            constant = mul_up(next_up(1 + shape), other)  # guard: other-order-counted

            def more(order: float) -> float:
                return constant

        def theorem(order: float) -> float:
            # order - 1 is exact up to 2^53
            # guard: mean-number-of-runs-counted
            chosen = next_up(log_mean / next_down(order - 1.0))
            return add_up(one(order), chosen, more(order))

        return theorem


def _best(at: Callable[[float], float], orders: Sequence[float]) -> float:
    """Searches for the order with the least value: the best of ``orders``, and beside it."""
    best = min(orders, key=at)
    i = orders.index(best)
    ends = orders[i - 1] if i else _LOWEST, orders[min(i + 1, len(orders) - 1)]
    if math.isinf(ends[1]):
        return best
    # near the least value an error of the exponent by 1e-4 changes it to second order: by 1e-8
    low, high = (math.log2(end - 1.0) for end in ends)
    least, x = least_between(lambda x: at(1.0 + 2.0**x), low, high, 1e-4)
    return 1.0 + 2.0**x if least < at(best) else best
