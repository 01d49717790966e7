"""The buckets' side of a question: the place of a profile, and the answer that it gives.

A profile holds for every epsilon, and is close near one place.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Protocol

from tightbudget.engine.answer import ROUNDED
from tightbudget.engine.buckets.compose import Parts
from tightbudget.engine.buckets.enumerate import Outcomes
from tightbudget.engine.buckets.one_run import OneRun
from tightbudget.engine.buckets.tilt import Picture, Saddle
from tightbudget.engine.question import DeltaAt, Question
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import add_up

# The share of delta that may count as infinite while the tilt is looked for. A rare huge loss must
# not pull the first guess; later passes cut at the share that the gap allows. No effect on truth.
_ROUGH = 0.02
# An epsilon is searched for on a profile this closely, as a share of the wanted gap: the search
# then adds a thousandth to the gap, for ten bisections more than a search at the gap itself.
_SEARCH = 1e-3


class Readable(Protocol):
    """A profile, of whatever grids, that answers at every epsilon."""

    def delta(self, epsilon: float) -> Bounds:
        """Bounds of delta(epsilon)."""

    def epsilon(self, delta: float, guess: float, tolerance: float) -> Bounds:
        """Bounds of epsilon at ``delta``."""


@dataclass(frozen=True)
class DeltaOnBuckets:
    """The reading of delta(epsilon) off a profile."""

    epsilon: float

    def settled(self, parts: Parts) -> Bounds | None:
        """Returns bounds no grid makes closer (beyond the largest loss, few outcomes), or None."""
        if self.epsilon == math.inf:
            return parts.infinity
        top = parts.max_loss.upper
        if parts.parts and self.epsilon < top - ROUNDED / 4 * min(1.0, abs(top)):
            few = Outcomes.of(parts)
            return None if few is None else few.delta(self.epsilon)
        # at the largest loss, up to rounding: delta <= P(inf) + 1 - e^(eps - top)
        certain = max(0.0, -math.expm1(self.epsilon)) if self.epsilon < 0 else 0.0
        above = -math.expm1(min(0.0, self.epsilon - top)) if parts.parts else 0.0
        # eps - top is exact (Sterbenz: they are that close); expm1 is granted EXPM1 = 8 units of
        # 2^-53 and the product costs one more: 1e-15 is just above nine units
        lower = min(1.0, max(parts.infinity.lower, certain * (1 - 1e-15)))
        upper = add_up(parts.infinity.upper, above * (1 + 1e-15))
        return Bounds(lower, min(1.0, max(upper, certain * (1 + 1e-15))))

    def by_formula(self, run: OneRun, parts: Parts, rtol: float) -> Bounds:
        """Returns the answer of the closed form of ``run``."""
        return run.delta(self.epsilon)

    def first_tilt(self, parts: Parts) -> Saddle:
        """A first guess of where delta(epsilon) is made."""
        return self._tilt(parts, _ROUGH, slack_nats=0.0, most=1.0, guess=0.0, start=1.0)

    def size(self, first: Saddle) -> float:
        """Returns about the answer, by the ``first`` guess."""
        return math.exp(first.log_delta)

    def tilt(
        self, parts: Parts, first: Saddle, tail: float, slack_nats: float, known: Bounds
    ) -> Saddle:
        """Returns the tilt to place a profile at.

        Args:
            parts: the composition in one direction.
            first: what :meth:`first_tilt` guessed.
            tail: the share of delta that may count as infinite.
            slack_nats: how much worse than the best tilt it may be.
            known: bounds of the answer so far.
        """
        # delta may be more than guessed: e times it is where the search goes down from
        guess = min(0.0, first.log_delta + 1.0)
        return self._tilt(parts, tail, slack_nats, known.upper, guess, first.slope)

    def _tilt(
        self, parts: Parts, tail: float, slack_nats: float, most: float, guess: float, start: float
    ) -> Saddle:
        guess = min(guess, math.log(min(1.0, most)))
        found, cut = self._fixed(parts.outline, tail, guess, start)
        if parts.outline is not (whole := parts.picture):
            # few parts were searched fast, and all of them are near that: as a rule one look more
            found, cut = self._fixed(whole, tail, found.log_delta, found.slope)
        if slack_nats > 0:
            losses = whole.without_tail(cut)
            best = losses.for_epsilon(self.epsilon, slack_nats, found.slope)
            found = dataclasses.replace(best, log_delta=min(found.log_delta, best.log_delta))
        return found

    def _fixed(
        self, whole: Picture, tail: float, guess: float, start: float
    ) -> tuple[Saddle, float]:
        """Searches for the tilt of what is left without the losses that may count as infinite.

        What may count as infinite depends on delta, and the guess of delta on that.

        Returns:
            The tilt, and ln of the mass that was left out.
        """
        before, leap = guess, 1.0
        for _ in range(100):
            cut = max(guess + math.log(tail), -700.0)
            saddle = whole.without_tail(cut).for_epsilon(self.epsilon, start=start)
            start = saddle.slope
            if leap > 1.0 and saddle.log_delta > guess + 0.5:  # too far
                guess, leap = before, 1.0
                continue
            if max(saddle.log_delta, cut) > guess - 0.5:
                break
            before, guess = guess, max(saddle.log_delta, guess + leap * math.log(tail))
            leap = 2.0 * leap if guess > saddle.log_delta else 1.0
        return dataclasses.replace(saddle, log_delta=min(guess, saddle.log_delta)), cut

    def read(self, profile: Readable, saddle: Saddle, rtol: float) -> Bounds:
        """Returns the answer that ``profile`` gives."""
        return profile.delta(self.epsilon)

    def allowed_variance(self, saddle: Saddle, rtol: float) -> float:
        """Returns the variance, nats^2, that buckets may add to the losses for this ``rtol``."""
        # d ln delta = theta (theta + 1) / 2 * d variance
        return 2.0 * rtol / (saddle.slope * (saddle.slope + 1.0))


@dataclass(frozen=True)
class EpsilonOnBuckets:
    """The reading of eps*(delta) off a profile."""

    delta: float

    def settled(self, parts: Parts) -> Bounds | None:
        """Returns bounds no grid makes closer (no finite loss matters, few outcomes), or None."""
        delta = self.delta
        if delta >= 1.0:
            return Bounds(0.0, 0.0)
        if parts.infinity.lower > delta:
            return Bounds(math.inf, math.inf)
        if not parts.parts:
            return Bounds(0.0, 0.0 if parts.infinity.upper <= delta else math.inf)
        if add_up(parts.infinity.upper, max(0.0, parts.max_loss.upper)) <= delta:
            return Bounds(0.0, 0.0)  # delta(0) = P(infinite) + E[(1 - e^-L)_+] is at most this
        if delta <= parts.infinity.upper:
            # nothing is left for finite losses: the largest of them, if there is one
            proved = max(0.0, parts.max_loss.lower) if delta <= parts.infinity.lower else 0.0
            sure = parts.infinity.upper <= delta  # guard: infinity-certainly-covered
            return Bounds(proved, max(0.0, parts.max_loss.upper) if sure else math.inf)
        few = Outcomes.of(parts)
        return None if few is None else few.epsilon(delta)

    def by_formula(self, run: OneRun, parts: Parts, rtol: float) -> Bounds:
        """Searches the closed form of ``run`` for the answer."""
        return run.epsilon(self.delta, _positive(self.first_tilt(parts)), _SEARCH * rtol)

    def first_tilt(self, parts: Parts) -> Saddle:
        """A first guess of where the answer lies."""
        return self._tilt(parts, _ROUGH, 0.0, 1.0)

    def size(self, first: Saddle) -> float:
        """Returns about the answer, by the ``first`` guess."""
        return first.epsilon

    def tilt(
        self, parts: Parts, first: Saddle, tail: float, slack_nats: float, known: Bounds
    ) -> Saddle:
        """Returns the tilt to place a profile at.

        Args:
            parts: the composition in one direction.
            first: what :meth:`first_tilt` guessed.
            tail: the share of delta that may count as infinite.
            slack_nats: how much worse than the best tilt it may be.
            known: bounds of the answer so far.
        """
        return self._tilt(parts, tail, slack_nats, first.slope)

    def _tilt(self, parts: Parts, tail: float, slack_nats: float, start: float) -> Saddle:
        left = self._left(parts)
        log_mass = math.log(tail) + math.log(left)
        if parts.outline is not parts.picture:
            start = parts.outline.without_tail(log_mass).for_delta(left, start=start).slope
        return parts.picture.without_tail(log_mass).for_delta(left, slack_nats, start=start)

    def read(self, profile: Readable, saddle: Saddle, rtol: float) -> Bounds:
        """Searches ``profile`` for the answer."""
        return profile.epsilon(self.delta, _positive(saddle), _SEARCH * rtol)

    def allowed_variance(self, saddle: Saddle, rtol: float) -> float:
        """Returns the variance, nats^2, that buckets may add to the losses for this ``rtol``."""
        # d eps = (theta + 1) / 2 * d variance
        return 2.0 * rtol * _positive(saddle) / (saddle.slope + 1.0)

    def _left(self, parts: Parts) -> float:
        """Returns delta minus the mass of infinite losses, which is > 0 after :meth:`settled`."""
        return self.delta - parts.infinity.upper


OnBuckets = DeltaOnBuckets | EpsilonOnBuckets


def on_buckets(question: Question) -> OnBuckets:
    """Returns the reading of the answer to a question off a profile."""
    if isinstance(question, DeltaAt):
        return DeltaOnBuckets(question.epsilon)
    return EpsilonOnBuckets(question.delta)


def _positive(saddle: Saddle) -> float:
    """Returns the epsilon of ``saddle``, or a small one > 0 where that epsilon is not positive."""
    # a thousandth of a standard deviation: it starts a search and scales a width, no more
    return max(saddle.epsilon, 1e-3 * saddle.spread)
