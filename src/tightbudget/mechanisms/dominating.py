"""Mechanisms that dominate others: a privacy curve above a composition, or above divergences."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from tightbudget.mechanisms.composition import Composition
from tightbudget.mechanisms.from_curve import FromCurve
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import add_up, mul_up
from tightbudget.theorems import renyi
from tightbudget.theorems.best_of_many import BestOfMany
from tightbudget.theorems.concentrated import Line
from tightbudget.theorems.sampling import without_replacement

# These trade tightness for time, and a certified answer stays one for any of them.
_LARGEST = 1e4  # nats: the largest epsilon of a curve
_POINTS = 1000  # of the curve of a line
_DOTS = 256  # of a curve whose points take long
_GAP = 1e-4  # wanted relative gap of delta at each point
_NEVER = 1e-30  # a delta beyond which a curve is not followed


def above_composition(whole: Composition, relation: Neighbouring, rate: float = 1.0) -> FromCurve:
    """Makes one mechanism that dominates all mechanisms of a composition together.

    Guarantee: it dominates the composition, made on a sample without replacement that has at most
    the share ``rate`` of the records.

    Args:
        whole: the composition; at a rate below 1, for records that are replaced.
        relation: the relation that the mechanism is declared for.
        rate: in [0, 1].
    """
    lost = whole.delta(math.inf).upper
    top = whole.answer(delta=min(1.0, lost + _NEVER), rtol=1e-2).bounds.upper if lost < 1 else 0.0
    read = whole.engine.reader()
    points: dict[float, float] = {}  # a point is moved right, or up, by rounding
    for j in range(_DOTS + 1):
        # denser at small epsilons, which people ask about: a chord of two is an upper bound
        epsilon = min(top, _LARGEST) * (j / _DOTS) ** 2
        moved, delta = without_replacement(epsilon, read(epsilon, _GAP).upper, rate)
        points.setdefault(moved, delta)
    return FromCurve(tuple(points), tuple(points.values()), relation=relation)


@functools.lru_cache(maxsize=64)
def above_divergences(
    line: Line, bests: tuple[tuple[BestOfMany, int], ...], relation: Neighbouring
) -> FromCurve:
    """Makes the worst mechanism with the (eps, delta) that a sum of Renyi divergences allows.

    Args:
        line: a bound of the divergences of some releases together.
        bests: bounds of those of other releases, each with the number of its runs.
        relation: the relation that the mechanism is declared for.
    """

    def divergence(order: float) -> Bounds:
        of_bests = (mul_up(runs, best(order).upper) for best, runs in bests)
        return Bounds(0.0, add_up(line(order).upper, *of_bests))

    known: Callable[[float], Bounds] = divergence
    if bests:
        # adding up takes long: once for each order of the tables
        orders = {order for best, _ in bests for order in best.table.orders}
        known = renyi.RenyiTable.of(divergence, sorted(orders))
        top, points = renyi.epsilon(known, _NEVER).upper, _DOTS
    else:
        # at the last point ln delta <= -645: delta is below 1e-280
        points = _POINTS
        top = line.xi + line.rho + 2 * math.sqrt(645 * line.rho)
    epsilons = [min(top, _LARGEST) * j / points for j in range(points + 1)] if top else [0.0]
    deltas = [renyi.delta(known, epsilon).upper for epsilon in epsilons]
    return FromCurve(epsilons, deltas, relation=relation)
