"""delta(eps) alone gives the most true positives of a test with a rate of false ones.

With t = e^eps, D(t) = delta(eps) = sup over S of P(S) - t Q(S) is convex in t, and a test with
Q-mass alpha has at most the P-mass

    tpr(alpha) = min over t >= 0 of D(t) + alpha t          (Dong, Roth, Su 2022: 1 - f(alpha)).

Every t proves an upper bound. A convex function lies above its chords prolonged, so between two
neighbouring t a line from either side proves a lower bound, and the next t is
where the two lines cross.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from tightbudget.engine.answer import Answer
from tightbudget.engine.buckets.compose import Parts
from tightbudget.engine.engine import Engine, Reader
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    UNIT,
    add_up,
    exp_up,
    log_down,
    log_up,
    mul_up,
    sub_down,
    sub_up,
)

# Every t that is tried proves its bounds: the first five constants move width and time alone.
_PROBES = 60  # t in one search: halving the interval each time would use up a double's 53 bits
_ROUGH = 0.5  # the relative gap at which a rate's size is seen
_SHARES = (0.25, 0.02)  # of the gap, for delta's own: the second where the first did not do
_WIDE = math.e**2  # neighbours further apart than this are parted in the middle, on a log scale
_CLEAR = 0.05  # of an interval: how far from its ends it is parted, so that both parts shrink
NEGLIGIBLE = 1e-100  # so few true positives need no relative gap; public docstrings name it
_FAR = 690.0  # nats: e^690 is a double, with a margin for rounding; e^709.8 is none
_LEAST = 1e-290  # for a rate below it, the upper bound is that of this rate; 2 / rate is a double


class _Sample(NamedTuple):
    """D at an exact t, between two ends."""

    t: float
    lower: float
    upper: float


def least_false_negatives(losses: Engine, alpha: float, atol: float) -> Answer:
    """Bounds of the least false-negative rate at false-positive rate alpha in [0, 1].

    Guarantee: the exact value of the smaller direction lies inside; reached means within ``atol``.
    """
    caught = _larger(losses, alpha, _within(_ROUGH), _ROUGH)
    rtol = atol / max(caught.upper, atol)
    if rtol < _ROUGH:
        caught = _larger(losses, alpha, _within(rtol), rtol)
    missed = Bounds(
        max(0.0, sub_down(1.0, caught.upper)) if caught.upper > 0 else 1.0,
        min(1.0, sub_up(1.0, caught.lower)) if caught.lower < 1 else 0.0,
    )
    if not caught.width <= atol:
        return Answer.missed(words_of_false_negatives(alpha), missed, atol, absolute=True)
    return Answer(missed)


def words_of_false_negatives(alpha: float) -> str:
    """The question of the least false-negative rate, in words."""
    return f"the false-negative rate at a false-positive rate of {alpha:g}"


def words_of_true_positives(alpha: float) -> str:
    """The question of the largest true-positive rate, in words."""
    return f"the true-positive rate at a false-positive rate of {alpha:g}"


def most_true_positives(
    losses: Engine, alpha: float, rtol: float, target: float | None = None
) -> Answer:
    """Bounds of the largest P-mass of a test with Q-mass alpha, the larger of the directions.

    Guarantee: the exact value lies inside. Reached means (upper - lower) <= rtol * upper, unless
    upper is below 1e-100 or alpha is 0 (then it is the mass that Q lacks, as the pairs know it).
    With a ``target`` it stops as soon as both bounds are on one side of it.
    """
    close = _within(rtol, target)
    worst = _larger(losses, alpha, close, rtol)
    # without false positives it is a mass of the pairs, which nothing narrows
    if alpha > 0.0 and not close(worst):
        return Answer.missed(words_of_true_positives(alpha), worst, rtol)
    return Answer(worst)


def _within(rtol: float, target: float | None = None) -> Callable[[Bounds], bool]:
    def close(found: Bounds) -> bool:
        if target is None:
            return found.relative_gap <= rtol or found.upper <= NEGLIGIBLE
        return found.decides(target) or found.relative_gap <= rtol

    return close


def _larger(losses: Engine, alpha: float, close: Callable[[Bounds], bool], rtol: float) -> Bounds:
    """The larger of the directions, as close as it gets."""
    ends = [_of_direction(one, alpha, rtol, close) for one in losses.apart()]
    # guard: test-worse-direction
    return Bounds.worst(ends)


def _of_direction(
    losses: Engine, alpha: float, rtol: float, close: Callable[[Bounds], bool]
) -> Bounds:
    """Returns bounds of the true-positive rate in one direction, as close as it gets."""
    (parts,) = losses.parts
    if alpha == 1.0:
        return Bounds(1.0, 1.0)
    if alpha == 0.0:  # only outputs that Q cannot produce may be taken
        return parts.infinity
    if alpha < _LEAST:
        above = _of_direction(losses, _LEAST, rtol, close)
        # where e^-T <= alpha, all outputs with a loss above T may be taken: P(L > T) >= delta(T)
        least = losses.reader()(-log_down(alpha), _SHARES[0] * rtol).lower
        return Bounds(max(parts.infinity.lower, alpha, least), above.upper)
    read, best = losses.reader(), Bounds(alpha, 1.0)  # guessing is always possible
    for share in _SHARES:
        found = _search(read, alpha, share * rtol, _guess(parts, alpha), parts, close)
        best = best.meet(found)
        if close(best):
            break
    return best


def _guess(parts: Parts, alpha: float) -> float:
    """About the loss above which Q has mass alpha; Q's losses are P's tilted by -1."""
    if not parts.parts:
        return 0.0
    _, mean, variance = parts.picture.cumulants(-1.0)
    reach = math.sqrt(2.0 * max(0.0, -math.log(min(alpha, 0.5)))) - 0.5
    return max(-600.0, min(mean + math.sqrt(variance) * reach, -math.log(alpha)))


def _search(
    read: Reader,
    alpha: float,
    gap: float,
    guess: float,
    parts: Parts,
    close: Callable[[Bounds], bool],
) -> Bounds:
    """Looks where the lower bound is lowest, until both bounds are close; ``gap`` is for delta."""
    # D(0) = 1, and D(t) + alpha t > 1 from t = 2 / alpha on
    lost = parts.infinity.lower  # where D ends
    samples = [_Sample(0.0, 1.0, 1.0), _Sample(2.0 / alpha, lost, 1.0)]
    if parts.max_loss.upper < _FAR:  # and beyond the largest loss only infinite ones are left
        top = exp_up(max(0.0, parts.max_loss.upper))
        if top < samples[-1].t:
            samples.insert(1, _Sample(top, lost, parts.infinity.upper))
    t, best = math.exp(guess), Bounds(alpha, 1.0)
    for _ in range(_PROBES):
        samples.append(_sample(read, t, alpha, gap))
        samples.sort()
        upper = min(1.0, *(add_up(s.upper, mul_up(alpha, s.t)) for s in samples))
        valleys = [_valley(samples, i, alpha) for i in range(len(samples) - 1)]
        # guard: lowest-interval-lower-bound-test
        i = min(range(len(valleys)), key=lambda i: valleys[i].floor)
        best = Bounds(min(upper, max(alpha, valleys[i].floor)), upper)
        left, right = samples[i].t, samples[i + 1].t
        t = _between(left, right, valleys[i].t)
        if close(best) or not left < t < right:
            break
    return best


def _sample(read: Reader, t: float, alpha: float, gap: float) -> _Sample:
    # ln t is rounded, and delta falls with eps
    low, high = (log_down(t), log_up(t)) if t != 1.0 else (0.0, 0.0)
    # a delta that is small beside alpha t need not be known as closely
    size = max(read(low, _ROUGH).upper, 1e-300)
    gap = min(_ROUGH, gap * (1.0 + alpha * t / size))
    # guard: lower-bounds-delta-lower-bound-test
    return _Sample(t, read(high, gap).lower, read(low, gap).upper)


class _Valley(NamedTuple):
    """A valley is the t of one interval at which D(t) + alpha t may be least, and a floor of it."""

    floor: float
    t: float


def _valley(samples: list[_Sample], i: int, alpha: float) -> _Valley:
    """Between samples i and i + 1: above the line through each that the others allow."""
    a, b = samples[i], samples[i + 1]
    # D falls, by 1 for each t at most; a chord that ends in a is steeper than what follows,
    # and one that begins in b less steep than what is before it
    fall = max([-1.0, *(_slope(s.t, s.upper, a.t, a.lower) for s in samples[:i])])
    # guard: line-before-point-steeper-chord
    rise = min([0.0, *(_slope(b.t, b.lower, s.t, s.upper) for s in samples[i + 2 :])])
    fall, rise = fall - 8 * UNIT * abs(fall) + alpha, rise + 8 * UNIT * abs(rise) + alpha
    at_a, at_b = a.lower + alpha * a.t, b.lower + alpha * b.t
    if fall >= 0.0:
        return _Valley(at_a * (1 - 16 * UNIT), a.t)
    if rise <= 0.0:
        return _Valley(at_b * (1 - 16 * UNIT), b.t)
    margin = 16 * UNIT * (at_a + at_b + (abs(fall) + abs(rise) + alpha) * b.t)
    t = (at_b - at_a + fall * a.t - rise * b.t) / (fall - rise)
    t = min(max(t, a.t), b.t)
    # any t will do: left of it the one line is above its value there, right of it the other
    floor = min(at_a + fall * (t - a.t), at_b - rise * (b.t - t)) - margin
    # so far left that the falling line is surely the higher one (the difference of both rounds by
    # the margin at most, as t does), the floor is the other one's value, which rounds by itself
    left = t - 2 * margin / (rise - fall)
    if left > a.t:
        rounding = 16 * UNIT * (at_b + rise * b.t)
        floor = max(floor, at_b - rise * (b.t - left) - rounding)
    # D falls: never below its last value
    return _Valley(max(floor, (samples[-1].lower + alpha * a.t) * (1 - 16 * UNIT)), t)


def _slope(s: float, d: float, t: float, e: float) -> float:
    return (e - d) / (t - s)


def _between(left: float, right: float, t: float) -> float:
    """Returns the next t to look at: ``t``, but clear of ``left`` and ``right``."""
    if left > 0 and right > _WIDE * left:
        return math.sqrt(left) * math.sqrt(right)
    clear = _CLEAR * (right - left)
    return min(max(t, left + clear), right - clear)
