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
from collections.abc import Callable, Sequence
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

# Every t that is tried proves its bounds: the first seven constants move width and time alone.
_PROBES = 60  # t in one search: halving the interval each time would use up a double's 53 bits
_ROUGH = 0.5  # the relative gap at which a rate's size is seen
# Delta's own gaps while the place of the least value is looked for: which t are near the least
# value, a gap tells as closely as it is narrow
_FIRST, _CLOSER = 0.05, 0.05
# Of the gap, for delta's own: each where the one before did not do. The first two are for delta at
# the place of the least value alone, the others for every delta that is read
_AT_PLACE, _EVERYWHERE = (0.6, 0.3, 0.1), 0.02
# Of the gap: what neighbouring t may still leave open where only a closer delta is worth its time
_SETTLED = 0.2
_STALLED = 4  # probes in which bounds come hardly closer
_FRESH = 3  # times in one search that delta is then asked closely where the bounds are lowest
_WIDE = math.e**2  # neighbours further apart than this are parted in the middle, on a log scale
_CLEAR = 0.05  # of an interval: how far from its ends it is parted, so that both parts shrink
NEGLIGIBLE = 1e-100  # so few true positives need no relative gap; public docstrings name it
_FAR = 690.0  # nats: e^690 is a double, with a margin for rounding; e^709.8 is none
_LEAST = 1e-290  # for a rate below it, the upper bound is that of this rate; 2 / rate is a double

Close = Callable[[Bounds], bool]


class _Sample(NamedTuple):
    """D at an exact t, between two ends."""

    t: float
    lower: float
    upper: float


class _Place(NamedTuple):
    """A place says where D(t) + alpha t is least, and about how large it is there.

    Attributes:
        near: t beside it, the nearest one first; none where nothing is known.
        most: about the least value; 0 where nothing is known.
    """

    near: tuple[float, ...] = ()
    most: float = 0.0


class BestTest:
    """The largest P-mass of a test with Q-mass alpha, in the worse direction.

    It keeps what it has learned of delta: asked again, it goes on from there.

    Args:
        losses: the composition.
        alpha: the false-positive rate, in [0, 1].
        near: the test of a similar composition, which says where to begin.
    """

    def __init__(self, losses: Engine, alpha: float, near: BestTest | None = None) -> None:
        self._alpha = alpha
        self._directions = [_Direction(one, alpha) for one in losses.apart()]
        if near is not None:
            for one, other in zip(self._directions, near._directions, strict=False):
                one.place = other.place

    def answer(self, rtol: float, target: float | None = None) -> Answer:
        """Bounds of the true-positive rate, as :func:`most_true_positives` says."""
        close = _within(rtol, target)
        worst = _larger(self._directions, close, rtol)
        # without false positives it is a mass of the pairs, which nothing narrows
        if self._alpha > 0.0 and not close(worst):
            return Answer.missed(words_of_true_positives(self._alpha), worst, rtol)
        return Answer(worst)


def least_false_negatives(losses: Engine, alpha: float, atol: float) -> Answer:
    """Bounds of the least false-negative rate at false-positive rate alpha in [0, 1].

    Guarantee: the exact value of the smaller direction lies inside; reached means within ``atol``.
    """
    directions = [_Direction(one, alpha) for one in losses.apart()]
    caught = _larger(directions, _within(_ROUGH), _ROUGH)
    rtol = atol / max(caught.upper, atol)
    if rtol < _ROUGH:
        caught = _larger(directions, _within(rtol), rtol)
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
    return BestTest(losses, alpha).answer(rtol, target)


def _within(rtol: float, target: float | None = None) -> Close:
    def close(found: Bounds) -> bool:
        if target is None:
            return found.relative_gap <= rtol or found.upper <= NEGLIGIBLE
        return found.decides(target) or found.relative_gap <= rtol

    return close


def _larger(directions: Sequence[_Direction], close: Close, rtol: float) -> Bounds:
    """The larger of the directions, as close as it gets."""
    ends: list[Bounds] = []
    for one in directions:
        # what is below another direction need not be known closer
        floor = max((found.lower for found in ends), default=0.0)
        ends.append(one.closer(rtol, _close_or_below(close, floor)))
    # guard: test-worse-direction
    return Bounds.worst(ends)


def _close_or_below(close: Close, floor: float) -> Close:
    return lambda found: close(found) or found.upper <= floor


class _Direction:
    """A test in one direction of a composition, and what is known of its true-positive rate.

    Attributes:
        place: where the least value lies, as far as that is known.
    """

    def __init__(self, losses: Engine, alpha: float) -> None:
        (self.parts,) = losses.parts
        self.alpha, self.read = alpha, losses.reader()
        self.place = _Place()
        self.best = Bounds(min(alpha, 1.0), 1.0)  # guessing is always possible

    def closer(self, rtol: float, close: Close) -> Bounds:
        """Returns bounds of the true-positive rate, as close as it gets."""
        parts, alpha = self.parts, self.alpha
        if alpha == 1.0:
            return Bounds(1.0, 1.0)
        if alpha == 0.0:  # only outputs that Q cannot produce may be taken
            return parts.infinity
        if alpha < _LEAST:
            above = self._searched(_LEAST, rtol, close)
            # where e^-T <= alpha, all outputs with a loss above T may be taken, and P(L > T) is at
            # least delta(T)
            least = self.read(-log_down(alpha), _EVERYWHERE * rtol).lower
            return Bounds(max(parts.infinity.lower, alpha, least), above.upper)
        return self._searched(alpha, rtol, close)

    def _searched(self, alpha: float, rtol: float, close: Close) -> Bounds:
        steps = [_Step(share * rtol, _SETTLED * rtol) for share in _AT_PLACE]
        steps.append(_Step(_EVERYWHERE * rtol))
        if not self.place.near:
            self.place = _Place((math.exp(_guess(self.parts, alpha)),))
            gap, rough = _FIRST, []
            while gap > steps[0].gap:
                rough.append(_Step(gap, _SETTLED * rtol))
                gap *= _CLOSER
            steps = rough + steps
        for step in steps:
            found, self.place = _search(self.read, alpha, step, self.place, self.parts, close)
            self.best = self.best.meet(found)
            if close(self.best):
                break
        return self.best


class _Step(NamedTuple):
    """A step says how closely a search asks for delta.

    Attributes:
        gap: delta's own relative gap.
        settled: 0 if each delta is asked with this gap. Else only the first one is, and the others
            are what is known by then; and the search ends where its bounds would have the relative
            gap ``settled``, were delta exact.
    """

    gap: float
    settled: float = 0.0


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
    step: _Step,
    place: _Place,
    parts: Parts,
    close: Close,
) -> tuple[Bounds, _Place]:
    """Looks where the lower bound is lowest, until both bounds are close.

    Args:
        read: answers delta.
        alpha: the false-positive rate, > 0.
        step: how closely it asks for delta.
        place: where to look first.
        parts: the composition.
        close: whether bounds are close enough.

    Returns:
        The bounds, and where the least value lies.
    """
    # D(0) = 1, and D(t) + alpha t > 1 from t = 2 / alpha on
    lost = parts.infinity.lower  # where D ends
    ends = [_Sample(0.0, 1.0, 1.0), _Sample(2.0 / alpha, lost, 1.0)]
    if parts.max_loss.upper < _FAR:  # and beyond the largest loss only infinite ones are left
        top = exp_up(max(0.0, parts.max_loss.upper))
        if top < ends[-1].t:
            ends.insert(1, _Sample(top, lost, parts.infinity.upper))
    samples, fresh = list(ends), 0
    gap, planned, best = (
        step.gap,
        [t for t in place.near if 0.0 < t < ends[1].t],
        Bounds(alpha, 1.0),
    )
    start, widths = planned[0] if planned else 0.0, list[float]()
    for _ in range(_PROBES):
        upper = _upper(samples, alpha)
        floor, i, t = _lowest(samples, alpha)
        best = Bounds(min(upper, max(alpha, floor)), upper)
        left, right = samples[i].t, samples[i + 1].t
        most = best.upper if best.lower > _ROUGH * best.upper else place.most
        first = next((s for s in samples if s.t == start), None)
        kept = first is None or first.lower + alpha * first.t <= upper
        near = place.near if kept else (t, *(s.t for s in samples[i : i + 2] if s not in ends))
        place = _Place(tuple(dict.fromkeys(near)), most)
        if close(best):
            break
        if planned:
            t = planned.pop(0)
        else:
            exact = [_middle(s, known=s not in ends) for s in samples]
            seen = _upper(exact, alpha)
            stalled = len(widths) > _STALLED and best.width > 0.95 * widths[-_STALLED]
            widths.append(best.width)
            if stalled and seen - _lowest(exact, alpha)[0] <= step.settled * seen:
                if fresh == _FRESH:
                    break
                # delta is not known as closely here
                fresh, gap, widths = fresh + 1, step.gap, []
            t = _between(left, right, t)
            if not left < t < right:
                break
        if all(t != s.t for s in samples):
            samples.append(_sample(read, t, alpha, gap, most))
            if step.settled:
                if gap < _ROUGH and len(samples) > len(ends) + 1:
                    # and others are known closer now
                    samples = [s if s in ends else _again(s, read, alpha) for s in samples]
                gap = _ROUGH
            samples.sort()
    return best, place


def _again(sample: _Sample, read: Reader, alpha: float) -> _Sample:
    """Returns a sample with all that is known of it now."""
    seen = _sample(read, sample.t, alpha, _ROUGH)
    return _Sample(sample.t, max(sample.lower, seen.lower), min(sample.upper, seen.upper))


def _middle(sample: _Sample, *, known: bool) -> _Sample:
    """Returns about what an exact delta would show: the lower bound where little is known."""
    middle = 0.5 * (sample.lower + sample.upper) if known else sample.lower
    return _Sample(sample.t, middle, middle)


def _upper(samples: list[_Sample], alpha: float) -> float:
    """Returns the least upper bound by one sample."""
    return min(1.0, *(add_up(s.upper, mul_up(alpha, s.t)) for s in samples))


def _lowest(samples: list[_Sample], alpha: float) -> tuple[float, int, float]:
    """Returns the lowest floor, of which interval it is, and the t there."""
    valleys = [_valley(samples, i, alpha) for i in range(len(samples) - 1)]
    # guard: lowest-interval-lower-bound-test
    i = min(range(len(valleys)), key=lambda i: valleys[i].floor)
    return valleys[i].floor, i, valleys[i].t


def _sample(read: Reader, t: float, alpha: float, gap: float, most: float = 0.0) -> _Sample:
    """D at t; ``most`` is about D(t) + alpha t, or 0 where that is not known."""
    # ln t is rounded, and delta falls with eps
    low, high = (log_down(t), log_up(t)) if t != 1.0 else (0.0, 0.0)
    # a delta that is small beside alpha t need not be known as closely
    if gap < _ROUGH:
        size = most - alpha * t
        if not size > 0.1 * most:
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
