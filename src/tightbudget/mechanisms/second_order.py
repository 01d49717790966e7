"""Upper bounds of delta and epsilon from second moments above a threshold.

For R = dP / dQ the excess S(k) = E_Q[(R - k)+^2] bounds delta(eps), since
(r - e^eps)+ <= (r - k)+^2 / (4 (e^eps - k)) for every k < e^eps (the two meet at r = 2 e^eps - k):

    delta(eps) <= S(k) / (4 (e^eps - k)),        e^eps*(delta) <= k + S(k) / (4 delta).

One pair is above another *in second order* if its S is, at all k > 0. That order survives
composition, also of steps that are chosen after seeing earlier outputs: with the ratio r of the
outputs so far, (r R - k)+^2 = r^2 (R - k / r)+^2. It is weaker than the order of all deltas,
in which a pair may have to be larger than any that data sets attain.

S is read from deltas: S(k) = 2 int_k^inf delta(ln y) dy, where delta(ln y) = E_Q[(R - y)+] is
convex in y, so that chords are above it. Beyond the last y it is at most its value there, as far as
that helps, and then bounded by a Renyi divergence, (r - y)+^2 <= c r^a y^(2 - a) for
c = 4 (a - 2)^(a - 2) / a^a and every a > 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tightbudget.engine.engine import Engine
from tightbudget.engine.question import DeltaAt, EpsilonAt, Question
from tightbudget.engine.readings.renyi import renyi_divergence
from tightbudget.numerics.rounding import UNIT

# The gap of each delta that is read: S moves by as much, as chords move it, and epsilon by that
# over the slope of ln delta, which is 3 to 20. With 2e-3 one of six drawn questions took nearly
# twice the time, the others as much, and no answer was closer. Affects width, never truth.
_GAP = 8e-3
# ln delta falls by so much from one y to the next: chords are then a hundredth above a power of y.
_FALL = 0.25
_MOST = 200  # values of y: a second for sampled Gaussians
_FARTHER = tuple(0.01 * 2.0**i for i in range(13))  # nats beyond the last y that are tried
_REST = 2e-3  # of S, that what is beyond the last y may add. Affects width, never truth.
# Below this slope of ln delta the bound is twice as large as delta or more.
_SLOPE = 1.5
_ORDERS = (2.5, 3.0, 4.0, 6.0, 9.0, 14.0, 20.0, 30.0, 45.0, 65.0, 100.0)  # tried for a
# Where delta falls steeply, as for much noise, the best a is about the slope of ln delta: so many
# times the slope are tried, each half as much again as the one before. Affects width and time,
# never truth: without them 1,320 steps with a slope of 5,000 took 90 values of y in place of 11.
_STEEP, _LARGEST = 4.0, 1e5
# Pays for all roundings here: sums of 200 terms, each some units off, and differences of values
# that are apart by a share of 1e-4 or more.
_ROUNDED = 1e-10
_APART = 1e-4  # neighbouring values of y, and y and e^eps, are apart by more than this share


def upper_by_second_order(engine: Engine, question: Question, near: float) -> float:
    """Bounds a delta or an epsilon of all that ``engine``'s pairs are above in second order.

    Args:
        engine: pairs that are above the steps in second order, by direction.
        question: delta at an epsilon, or epsilon at a delta.
        near: an epsilon at which the answer is about delta: where thresholds are sought.

    Returns:
        An upper bound; inf where none is found.
    """
    return max(_of_direction(one, question, near) for one in engine.apart())


def _of_direction(engine: Engine, question: Question, near: float) -> float:
    """The bound for the one direction of ``engine``."""
    read = engine.reader()

    def delta(x: float) -> float:
        return read(x, _GAP).upper

    start = _first(delta, near)
    if start is None:
        return math.inf
    excess = _Excess.of(delta, lambda order: _log_moment(engine, order), *start)
    if isinstance(question, DeltaAt):
        return excess.delta(question.epsilon)
    assert isinstance(question, EpsilonAt)
    return excess.epsilon(question.delta)


def _log_moment(engine: Engine, order: float) -> float:
    """An upper bound of ln E_Q[R^order]."""
    return (order - 1.0) * renyi_divergence(engine.parts, order, 0.1).bounds.upper


def _first(delta: Callable[[float], float], near: float) -> tuple[float, float] | None:
    """The ln k to begin with, and the slope of -ln delta there; None where S does not help."""
    step = 0.02 * near
    if not 0.0 < step < math.inf:
        return None
    here, there = delta(near), delta(near + step)
    if not 0.0 < there < here:
        return None
    slope = math.log(here / there) / step
    if not slope > _SLOPE:
        return None
    # for a power of y with this slope the best k is e^eps (1 - 1 / slope)
    return max(0.0, near + math.log1p(-1.0 / slope) - 0.1 / slope), slope


@dataclass(frozen=True)
class _Excess:
    """Upper bounds of S(k) at some values of k.

    Attributes:
        points: ln k, ascending.
        values: upper bounds of S(k).
    """

    points: tuple[float, ...]
    values: tuple[float, ...]

    @staticmethod
    def of(
        delta: Callable[[float], float],
        log_moment: Callable[[float], float],
        first: float,
        slope: float,
    ) -> _Excess:
        """Reads S from upper bounds of deltas.

        Args:
            delta: an upper bound of delta(x) at x >= 0.
            log_moment: an upper bound of ln E_Q[R^a] at an order a.
            first: ln k of the first value.
            slope: of -ln delta around there.
        """
        moments = [(a, log_moment(a)) for a in _orders(slope)]
        points, deltas, parts, known, rest = [first], [delta(first)], [0.0], 0.0, math.inf
        while len(points) < _MOST and not rest <= _REST * known:
            x = points[-1] + max(2.0 * _APART, _FALL / max(slope, _FALL))
            points.append(x)
            deltas.append(delta(x))
            # guard: chord-above-delta
            width = math.exp(points[-2]) * math.expm1(x - points[-2])
            parts.append(width * (deltas[-2] + deltas[-1]))
            known += parts[-1]
            if 0.0 < deltas[-1] < deltas[-2]:
                slope = math.log(deltas[-2] / deltas[-1]) / (x - points[-2])
            rest = _rest(x, deltas[-1], moments)  # guard: beyond-the-last
            if deltas[-1] <= 0.0:
                break
        values = [rest]
        for part in parts[:0:-1]:
            values.append(values[-1] + part)
        return _Excess(tuple(points), tuple(value * (1.0 + _ROUNDED) for value in values[::-1]))

    def epsilon(self, delta: float) -> float:
        """An upper bound of the epsilon at ``delta``."""
        if not delta > 0.0:
            return math.inf
        best = min(
            math.exp(x) + value / (4.0 * delta)
            for x, value in zip(self.points, self.values, strict=True)
        )
        return math.log(best) + _ROUNDED * (1.0 + abs(math.log(best)))

    def delta(self, epsilon: float) -> float:
        """An upper bound of the delta at ``epsilon``."""
        least = math.inf
        for x, value in zip(self.points, self.values, strict=True):
            if x < epsilon - _APART:
                # guard: tangent-of-the-square
                least = min(least, value / (4.0 * math.exp(x) * math.expm1(epsilon - x)))
        return least * (1.0 + _ROUNDED)


def _orders(slope: float) -> list[float]:
    """The orders a whose moments bound S far out, where -ln delta has so much slope."""
    orders = list(_ORDERS)
    while orders[-1] < min(_STEEP * slope, _LARGEST):
        orders.append(1.5 * orders[-1])
    return orders


def _rest(x: float, delta: float, moments: list[tuple[float, float]]) -> float:
    """An upper bound of S(e^x), for an upper bound of delta(x).

    Delta falls: what is between x and any later place is at most its value at x times the width.
    Moments alone say little where rare large losses make them, long before these make delta.
    """
    least = _beyond(x, moments)
    for step in _FARTHER:
        between = 2.0 * delta * math.exp(x) * math.expm1(step)  # guard: delta-falls
        least = min(least, (between + _beyond(x + step, moments)) * (1.0 + _ROUNDED))
    return least


def _beyond(x: float, moments: list[tuple[float, float]]) -> float:
    """An upper bound of S(e^x) from moments of R, each an order a and ln E_Q[R^a]."""
    logs = []
    for a, moment in moments:
        terms = (a - 2.0) * math.log(a - 2.0), -a * math.log(a), moment, -(a - 2.0) * x
        # two units for each term and four for the sums; nothing is known of a moment of inf
        if moment < math.inf:
            off = 8 * UNIT * sum(abs(term) for term in terms)
            logs.append(math.log(4.0) + sum(terms) + off)
    least = min(logs, default=math.inf)
    return math.exp(least) * (1.0 + 1e-9) if least < 300.0 else math.inf
