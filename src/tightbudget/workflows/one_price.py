"""The least epsilon that covers a graph of states, if all its prices are that one."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tightbudget.errors import CalibrationError, PrecisionError
from tightbudget.mechanisms.composition import compose
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import FloatArray
from tightbudget.output_dp.stopping_lattice import TILTS
from tightbudget.workflows.graph_losses import LOG_G, Graph, GraphLosses
from tightbudget.workflows.induction import WorkflowInduction

_PASSES = 4  # lattices, each finer than the one before
_STEPS = 12  # evaluations of a bound on one lattice; it takes three or four
# A tilt beyond which the sketch of a loss shows its largest values alone, and no saddle point.
_LARGEST_TILT = 256.0
_WIDEST = 0.3  # the widest relative gap of delta that a lattice is asked for


def least_price(
    at: Callable[[float], Graph], attained_at: Callable[[float], Graph], delta: float, rtol: float
) -> Bounds:
    """Bounds the least price that delta covers, for a family of graphs that differ in it alone.

    Args:
        at: the graph at a price, nats.
        attained_at: the same with moves that are attained, for the lower bound.
        delta: in (0, 1).
        rtol: wanted relative gap.

    Raises:
        CalibrationError: no price is high enough: an infinite loss is likelier than delta.
        PrecisionError: the bounds are farther apart, or the lattice that is needed is too long.
    """
    upper = _Side(at, delta)
    infinite = max(losses.infinity.upper for losses in upper.losses)
    if infinite >= delta:
        raise CalibrationError(
            f"delta = {delta:g} must be above the chance of an infinite loss, {infinite:g}"
        )
    lower = upper if attained_at is at else _Side(attained_at, delta)
    found = Bounds(0.0, math.inf)
    gap = min(_WIDEST, max(1e-6, 0.5 * rtol * upper.steepness))
    for _ in range(_PASSES):
        above = upper.on_lattices(gap)
        most = _last(above.upper, delta, upper.guess, upper.tilt, gap)
        below, guess = above, most - 0.5 * gap / upper.tilt
        if lower is not upper:
            below, guess = lower.on_lattices(gap), lower.guess
        least = _first(below.lower, delta, guess, lower.tilt, gap)
        found = found.meet(Bounds(min(least, most), most))
        if lower is not upper or found.relative_gap <= rtol:
            return found
        gap *= max(1e-2, 0.4 * rtol / found.relative_gap)
    raise PrecisionError(
        f"epsilon is in {found} (relative gap {found.relative_gap:.2g}): "
        f"relative gap {rtol:g} was not reached",
        found.lower,
        found.upper,
    )


class _Side:
    """A family of graphs in all directions that matter, with a rough answer."""

    def __init__(self, at: Callable[[float], Graph], delta: float) -> None:
        self.at = at
        graph = at(0.0)
        self.losses = [GraphLosses(graph, d) for d in compose(graph.blocks).directions]
        found = [self._rough(losses, delta) for losses in self.losses]
        self.guess, self.tilt = max(found)

    @staticmethod
    def _rough(losses: GraphLosses, delta: float) -> tuple[float, float]:
        """About the price, and the tilt where Chernoff's bound on it is least."""
        priced = [i for i, node in enumerate(losses.graph.nodes) if node.price is not None]
        log_delta = math.log(delta)
        moments = losses.log_moments(losses.rises(log_delta - 10.0))[priced]
        prices = [own_price(one, log_delta) for one in moments]
        worst = int(np.argmax(prices))
        best = int(np.argmin((moments[worst] + LOG_G - log_delta) / TILTS))
        return prices[worst], float(TILTS[best])

    @property
    def steepness(self) -> float:
        """About how much ln delta falls if the price grows by all of itself."""
        return max(1e-3, self.tilt * self.guess)

    def on_lattices(self, gap: float) -> _OnLattices:
        """Bounds of delta whose relative gap is about ``gap`` near the price."""
        graph = self.at(self.guess)
        inductions = []
        for losses in self.losses:
            here = GraphLosses(graph, losses.direction)
            inductions.append(WorkflowInduction(here, here.lattice(gap, 0.7)))
        return _OnLattices(self.at, inductions)


@dataclass(frozen=True, eq=False)
class _OnLattices:
    """The bounds of delta at any price, on the same lattices."""

    at: Callable[[float], Graph]
    inductions: Sequence[WorkflowInduction]

    def upper(self, price: float) -> float:
        """An upper bound of delta at a price."""
        return max(one.priced(self.at(price)).upper() for one in self.inductions)

    def lower(self, price: float) -> float:
        """A lower bound of delta at a price."""
        return max(one.priced(self.at(price)).lower() for one in self.inductions)


def _last(
    f: Callable[[float], float], delta: float, guess: float, tilt: float, gap: float
) -> float:
    """A price with f <= delta, close to the least one; f falls by about e^-tilt in a nat."""
    return _search(f, guess, tilt, delta, -0.1 * gap, 1)


def _first(
    f: Callable[[float], float], delta: float, guess: float, tilt: float, gap: float
) -> float:
    """A price with f >= delta, close to the largest one; 0 if there is none."""
    return _search(f, guess, tilt, delta, 0.1 * gap, -1)


def _search(
    f: Callable[[float], float], guess: float, tilt: float, delta: float, aim: float, sign: int
) -> float:
    """The price nearest to where f = delta among those tried on one side of it.

    Args:
        f: a falling function.
        guess: where to begin.
        tilt: about how fast ln f falls.
        delta: the value that is looked for.
        aim: how far beside the value the search ends, about.
        sign: 1 for prices with f <= delta, -1 for those with f >= delta.
    """

    @functools.cache
    def off(price: float) -> float:
        value = f(price)
        log = (math.log(value) if value > 0 else -745.0) - log_delta
        # the values decide, and not their rounded logarithms
        return 0.0 if value == delta else max(log, 1e-300) if value > delta else min(log, -1e-300)

    log_delta = math.log(delta)
    best = math.inf if sign > 0 else 0.0
    low, high = 0.0, math.inf  # off(low) > 0 >= off(high), once they were tried
    price = max(0.0, guess)
    for _ in range(_STEPS):
        here = off(price)
        if here > 0:
            low = max(low, price)
        else:
            high = min(high, price)
        if sign * here <= 0:
            best = min(best, price) if sign > 0 else max(best, price)
            if abs(here) <= 3 * abs(aim):
                break
        if price == 0.0 and here <= 0:
            break  # no price is needed
        # the tilt grows with the price: the secant if there is one
        if low > 0.0 and high < math.inf and off(low) > off(high):
            tilt = (off(low) - off(high)) / (high - low)
        following = price + (here - aim) / tilt
        if not low < following < high:
            following = 0.5 * (low + high) if high < math.inf else 2.0 * max(low, 0.5 / tilt)
        price = max(0.0, following)
    if math.isinf(best):
        raise PrecisionError("no price was found that delta covers", 0.0, math.inf)
    return best


def own_price(moments: FloatArray, log_delta: float) -> float:
    """About the eps at which losses with these ln E_P[e^(theta L)] have a delta of e^log_delta.

    By the saddle point where that is in the range of the tilts, else by Chernoff's bound.
    """
    chernoff = float(np.min((moments + LOG_G - log_delta) / TILTS))
    if chernoff <= 0.0:
        return 0.0
    with np.errstate(all="ignore"):
        epsilons = np.gradient(moments, TILTS)
        variances = np.gradient(epsilons, TILTS)
        logs = moments - TILTS * epsilons - np.log(TILTS * (1 + TILTS))
        logs -= 0.5 * np.log(2 * np.pi * variances)
    before = np.isfinite(logs) & (logs > log_delta)
    i = int(np.argmin(before))  # the first tilt whose delta is small enough
    # under a larger tilt only losses next to the largest one count, which no saddle point shows
    if i == 0 or not np.isfinite(logs[i]) or TILTS[i] > _LARGEST_TILT:
        return chernoff
    share = (logs[i - 1] - log_delta) / (logs[i - 1] - logs[i])
    near = float(epsilons[i - 1] + share * (epsilons[i] - epsilons[i - 1]))
    return min(chernoff, max(0.0, near))
