"""Gaussian DP asks for the smallest mu whose Gaussian mechanism is at least as revealing.

One run of N(0, 1) against N(mu, 1) has delta_mu(eps) = P(N > u) - e^eps P(N > v), with
u = eps/mu - mu/2 and v = eps/mu + mu/2. Looked for is the smallest mu with

    delta(eps) <= delta_mu(eps) + slack   for all eps >= 0.

Finitely many eps prove it. Both sides are convex in t = e^eps: between neighbouring eps,
delta is below its chord and delta_mu above its tangents, so lines are compared with lines; and
beyond the eps from which delta is at most the slack there is nothing left to prove.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tightbudget.engine.engine import Engine, Reader
from tightbudget.engine.question import EpsilonAt
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.enclosure import Enclosure, exp_enclosure
from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.numerics.search import last_true
from tightbudget.numerics.special import log_normal_tail, log_normal_tail_slack

# All of them move width and time, never truth: each eps that is asked proves what it proves.
_FIRST = 9  # eps to begin with: eight intervals, of which those that prove too little are parted
# The relative gap with which a delta is read first, and how many times closer each time that it is
# read again: few eps ask for nearly as much mu as the whole curve does.
_ROUGH, _CLOSER = 0.05, 20.0
_MOST = 4000  # eps in all, each of them a reading of delta
_SOME = 1e-10  # the slack for which a lower bound is proved where a smaller one has no last eps
_GAP = 0.1  # of delta, relative to the wanted one: then the chords take most of the wanted gap


def gaussian_mu_bounds(losses: Engine, slack: float, rtol: float) -> Bounds:
    """Bounds of the smallest mu with delta(eps) <= delta_mu(eps) + slack for all eps >= 0.

    Guarantee: the exact value lies inside; the inequality holds at ``upper``, for all eps, and
    in both directions. The relative gap is rtol, or as close as delta is known: where delta is
    nearly 1, that says little of mu. inf, where more than the slack tells the neighbours apart
    for certain. Source: Dong, Roth, Su 2022, Corollary 2.13, for slack 0.
    """
    if max(parts.infinity.lower for parts in losses.parts) > slack:
        return Bounds(math.inf, math.inf)  # guard: mass-infinity-above-slack-1
    read, end = losses.reader(), _end(losses, slack)
    if end == 0.0:
        return Bounds(0.0, 0.0)
    if end == math.inf:
        return _without_end(losses, slack, rtol)  # guard: mass-infinity-above-slack-2
    with np.errstate(all="ignore"):  # what leaves the range of doubles proves nothing
        return _smallest(read, end, slack, rtol)


def _smallest(read: Reader, end: float, slack: float, rtol: float) -> Bounds:
    """Reads delta closer where it asks for the most mu, and parts intervals that prove too little.

    It ends when mu is known, or where delta is not close enough.
    """
    points, low = _Points.at(read, np.linspace(0.0, end, _FIRST), slack), 0.0
    while True:
        low = last_true(points.refute, low or 1.0, math.inf, 0.01 * rtol).last_true
        goal = low * (1.0 + rtol)
        open_ones = points.unproved(goal)
        if low > 0.0 and not open_ones.any():
            return Bounds(low, goal)
        rough = (points.gap > _GAP * rtol) & ~points.proved(goal)
        if rough.any():
            points = points.closer(read, points.most_asking(rough, goal), _GAP * rtol)
            continue
        # shorter intervals help where both of their ends are proved
        ends = points.proved(goal)
        parted = open_ones & ends[:-1] & ends[1:]
        if not parted.any() or len(points.epsilon) > _MOST:
            break
        middles = 0.5 * (points.epsilon[:-1] + points.epsilon[1:])[parted]
        points = points.joined(_Points.at(read, middles, slack))
    high = last_true(lambda mu: bool(points.unproved(mu).any()), goal or 1.0, math.inf, 0.1 * rtol)
    return Bounds(low, high.first_false)


def _without_end(losses: Engine, slack: float, rtol: float) -> Bounds:
    """Returns bounds of mu where no eps is known from which delta is at most the slack.

    Without slack Gaussian parts have an exact answer. A sampled step is no more revealing than the
    step itself: mu^2 <= sum of k m^2. And where delta <= delta_mu, the moments are ordered, too:
    mu^2 >= 2 ln M(c) / (c (c + 1)) for all c > 0; a removed record has
    M(c) >= q^(c + 1) e^(c (c + 1) m^2 / 2), so the limit of c -> inf is the same sum.
    """
    known = losses.saddle_points if slack == 0.0 else ()
    groups = known[0].term.groups if known else ()
    squares = [
        group.count * mu * mu
        for group in groups
        if (mu := group.transform.gaussian_mu()) is not None
    ]
    if squares and len(squares) == len(groups):
        mu = math.sqrt(math.fsum(squares))
        return Bounds(mu * (1 - 16 * UNIT), mu * (1 + 16 * UNIT))
    some = gaussian_mu_bounds(losses, _SOME, rtol) if slack < _SOME else Bounds(0.0, math.inf)
    return Bounds(some.lower, math.inf)


def _end(losses: Engine, slack: float) -> float:
    """Returns an eps from which delta is at most the slack; inf where none is known."""
    return losses.answer(EpsilonAt(slack), 0.01).bounds.upper  # guard: eps-up-slack-covers-rest


@dataclass(frozen=True)
class _Points:
    """delta at ascending eps from 0 on, each with its gap. It is at most ``slack`` at the last."""

    epsilon: FloatArray  # (n,)
    lower: FloatArray
    upper: FloatArray
    gap: FloatArray
    slack: float

    @staticmethod
    def at(read: Reader, epsilon: FloatArray, slack: float) -> _Points:
        """Reads delta at each of these eps, with a wide gap."""
        found = [read(float(e), _ROUGH) for e in epsilon]
        lower, upper = np.array([b.lower for b in found]), np.array([b.upper for b in found])
        return _Points(epsilon, lower, upper, np.full(epsilon.size, _ROUGH), slack)

    def joined(self, other: _Points) -> _Points:
        """Returns the points of ``self`` and of ``other``, ascending."""
        order = np.argsort(np.concatenate([self.epsilon, other.epsilon]))
        epsilon, lower, upper, gap = (
            np.concatenate([mine, theirs])[order]
            for mine, theirs in (
                (self.epsilon, other.epsilon),
                (self.lower, other.lower),
                (self.upper, other.upper),
                (self.gap, other.gap),
            )
        )
        return _Points(epsilon, lower, upper, gap, self.slack)

    def closer(self, read: Reader, i: int, least: float) -> _Points:
        """Returns the same points, of which one is read again, with a gap of at least ``least``."""
        lower, upper, gap = self.lower.copy(), self.upper.copy(), self.gap.copy()
        gap[i] = max(least, gap[i] / _CLOSER)
        found = read(float(self.epsilon[i]), float(gap[i]))
        lower[i], upper[i] = max(lower[i], found.lower), min(upper[i], found.upper)
        return replace(self, lower=lower, upper=upper, gap=gap)

    def most_asking(self, among: NDArray[np.bool_], goal: float) -> int:
        """Returns which of these points is proved last when mu grows from ``goal``."""
        found = last_true(
            lambda mu: bool(np.any(among & ~self.proved(mu))), goal or 1.0, math.inf, 1e-6
        )
        return int(np.argmax(among & ~self.proved(max(goal, found.last_true))))

    def refute(self, mu: float) -> bool:
        """Whether delta is above delta_mu + slack at some of the points."""
        if mu == 0.0:
            return True
        delta, _ = _gaussian(mu, self.epsilon)
        return bool(np.any(self.lower * (1 - 4 * UNIT) > (delta.upper + self.slack)))

    def proved(self, mu: float) -> NDArray[np.bool_]:
        """(n,) the points at which delta <= delta_mu + slack is proved."""
        if mu == 0.0:
            return np.zeros(self.epsilon.size, dtype=np.bool_)
        delta, _ = _gaussian(mu, self.epsilon)
        return self._below(self.upper, delta.lower, np.zeros(self.epsilon.size))

    def unproved(self, mu: float) -> NDArray[np.bool_]:
        """(n - 1,) the intervals in which delta <= delta_mu + slack is not proved."""
        if mu == 0.0:
            return np.ones(self.epsilon.size - 1, dtype=np.bool_)
        delta, tilted = _gaussian(mu, self.epsilon)
        h = np.diff(self.epsilon)
        # where the share x of the interval's length in t is behind, the tangents of delta_mu are
        # delta_mu(left) - x fall and delta_mu(right) + (1 - x) rise
        fall = tilted.upper[:-1] * np.expm1(h) * (1 + (16 + 2 * h) * UNIT)
        rise = tilted.lower[1:] * -np.expm1(-h) * (1 - 16 * UNIT)
        left, right = delta.lower[:-1], delta.lower[1:]
        # any x will do to change from the one line to the other; they cross about here
        x = np.clip(np.nan_to_num((left - right - rise) / (fall - rise), nan=0.5), 0.0, 1.0)
        chord = self.upper[:-1] * (1.0 - x) + self.upper[1:] * x
        proved = self._below(chord, left, fall * x)  # guard: tangent-gaussian-falls-1
        proved &= self._below(chord, right, -rise * (1.0 - x))  # guard: tangent-gaussian-falls-2
        # lines that are in order at both ends of a stretch are in order on it
        ends = self.proved(mu)
        return ~(proved & ends[:-1] & ends[1:])  # guard: chord-compared-between-ends-too

    def _below(self, upper: FloatArray, lower: FloatArray, less: FloatArray) -> NDArray[np.bool_]:
        """Whether upper <= lower - less + slack, whatever the rounding."""
        margin = 16 * UNIT * (upper + lower + np.abs(less) + self.slack)
        return np.asarray(upper + margin <= lower - less + self.slack)


def _gaussian(mu: float, epsilon: FloatArray) -> tuple[Enclosure, Enclosure]:
    """Returns delta_mu(eps), and e^eps P(N > v): the slope of its tangent in units of t."""
    u, v = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    off = 4 * UNIT * (epsilon / mu + mu / 2)
    above, tilted = (
        exp_enclosure(
            log_normal_tail(x) + more,
            # |d ln P(N > x)| <= (|x| + 1) |dx|, and the rounding of both terms
            log_normal_tail_slack(x) + off * (np.abs(x) + off + 1.0) + 2 * UNIT * (more + x * x),
        )
        for x, more in ((u, 0.0 * epsilon), (v, epsilon))
    )
    return above - tilted, tilted
