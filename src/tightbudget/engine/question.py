"""A question asks for delta at an epsilon, or for epsilon at a delta.

An engine makes a curve (a profile of buckets, or lines through saddle points) that holds for
every epsilon and is close near one place. A question says the same four things to both engines:
where to place the curve, how to read the answer off it, at which epsilon that was, and how wide
the curve may be for the gap that is wanted.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

from tightbudget.engine.answer import ROUNDED
from tightbudget.engine.buckets.compose import Parts
from tightbudget.engine.buckets.enumerate import Outcomes
from tightbudget.engine.buckets.one_run import OneRun
from tightbudget.engine.buckets.profile import Profile
from tightbudget.engine.buckets.tilt import Saddle
from tightbudget.engine.saddle_point.contour import Lines
from tightbudget.engine.saddle_point.saddle_points import Track, epsilon_at
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import add_up

# Masses that stand for an exact pair know an epsilon about as closely: where more is asked for, a
# formula answers. A quarter of the default rtol, as either of two pairs is asked for, is not more:
# the search takes seconds, masses half a second. It decides no bound.
NEAR = 2.5e-5
# The share of delta that may count as infinite while the tilt is looked for. A rare huge loss must
# not pull the first guess; later passes cut at the share that the gap allows. No effect on truth.
_ROUGH = 0.02
# An epsilon is searched for on a profile this closely, as a share of the wanted gap: the search
# then adds a thousandth to the gap, for ten bisections more than a search at the gap itself.
_SEARCH = 1e-3
# Lines are placed for a delta above this; the rest goes to the buckets (and ends as [0, upper]).
# The smallest normal double is 1e-308: errors of e^-31 delta stay above it with decades to spare.
_LEAST_DELTA = 1e-250
_LOWEST = -700.0  # ln delta; e^-700 is still a normal double, e^-709 is not


@dataclass(frozen=True)
class DeltaAt:
    """The question which delta(epsilon) a composition has.

    Attributes:
        epsilon: nats; any finite number, or inf.
    """

    epsilon: float

    most: ClassVar[float] = 1.0  # no answer exceeds it

    def __str__(self) -> str:
        return f"delta at epsilon = {self.epsilon:g}"

    def at(self, answer: float) -> tuple[float, float]:
        """The point (epsilon, delta) of the curve with this answer."""
        return self.epsilon, answer

    def exactly(self, runs: tuple[OneRun, ...], rtol: float) -> Bounds | None:
        """Bounds of the worst of single runs, each with the formula of an exact pair."""
        found = [run.delta(self.epsilon) for run in runs if math.isfinite(self.epsilon)]
        return _worst(found) if found else None

    def in_closed_form(self, directions: tuple[Parts, ...]) -> Bounds | None:
        """Bounds of the worse direction where each one is one run with a formula, or None.

        Such a formula is closer than the engines and faster: a sampled Gaussian's takes a
        twentieth of the time of its lines through saddle points. None where a pair says that lines
        are closer.
        """
        found = []
        for parts in directions:
            run = OneRun.of(parts)
            if run is None or run.pair.lines_are_closer():
                return None
            settled = self.settled(parts)
            found.append(run.delta(self.epsilon) if settled is None else settled)
        return _worst(found)

    # ------------------------------------------------------------ put to the buckets engine

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
        # what may count as infinite depends on delta, and the guess of delta on that
        whole, guess = parts.picture, min(guess, math.log(min(1.0, most)))
        for _ in range(100):
            cut = max(guess + math.log(tail), -700.0)
            saddle = whole.without_tail(cut).for_epsilon(self.epsilon, start=start)
            start = saddle.slope
            if max(saddle.log_delta, cut) > guess - 0.5:
                break
            guess = max(saddle.log_delta, cut)
        if slack_nats > 0:
            saddle = whole.without_tail(cut).for_epsilon(self.epsilon, slack_nats, start)
        return dataclasses.replace(saddle, log_delta=min(guess, saddle.log_delta))

    def read(self, profile: Profile, saddle: Saddle, rtol: float) -> Bounds:
        """Returns the answer that ``profile`` gives."""
        return profile.delta(self.epsilon)

    def read_at(self, bounds: Bounds) -> float:
        """The epsilon at which a profile was read for these bounds."""
        return self.epsilon

    def allowed_variance(self, saddle: Saddle, rtol: float) -> float:
        """Returns the variance, nats^2, that buckets may add to the losses for this ``rtol``."""
        # d ln delta = theta (theta + 1) / 2 * d variance
        return 2.0 * rtol / (saddle.slope * (saddle.slope + 1.0))

    # ------------------------------------------------------ put to the saddle-point engine

    def within_reach(self, track: Track) -> bool:
        """Whether lines can be placed for the answer."""
        return math.isfinite(self.epsilon) and track.log_delta_at(self.epsilon) >= _LOWEST

    def without_lines(self, track: Track) -> Bounds | None:
        """Returns bounds that need no line, for an epsilon far below all losses, else None."""
        return track.nearly_one(self.epsilon) if self.epsilon < track.epsilon[0] else None

    def place(self, tracks: tuple[Track, ...]) -> float:
        """Returns the epsilon to place lines at."""
        return self.epsilon

    def read_lines(self, lines: Lines, track: Track) -> Bounds | None:
        """Returns the answer that ``lines`` give, or None where they prove nothing."""
        return lines.delta(self.epsilon)

    def place_again(self, lines: Lines, track: Track) -> float | None:
        """Returns the epsilon to place better lines at, after a reading of ``lines``."""
        return self.epsilon


@dataclass(frozen=True)
class EpsilonAt:
    """The question which eps*(delta) = inf{eps >= 0: delta(eps) <= delta} a composition has.

    Attributes:
        delta: in [0, 1].
    """

    delta: float

    most: ClassVar[float] = math.inf  # no answer exceeds it

    def __str__(self) -> str:
        return f"epsilon at delta = {self.delta:g}"

    def at(self, answer: float) -> tuple[float, float]:
        """The point (epsilon, delta) of the curve with this answer."""
        return answer, self.delta

    def exactly(self, runs: tuple[OneRun, ...], rtol: float) -> Bounds | None:
        """Bounds of the worst of single runs, each with the formula of an exact pair.

        None where masses know the answer as closely as ``rtol`` asks, for a search takes seconds.
        """
        if rtol >= NEAR or not _LEAST_DELTA < self.delta < 1.0:
            return None
        # any guess will do: it is bracketed by steps that grow eightfold
        return _worst([run.epsilon(self.delta, 1.0, rtol / 4.0) for run in runs])

    def in_closed_form(self, directions: tuple[Parts, ...]) -> Bounds | None:
        """None: an epsilon is searched for, and lines through saddle points know it closer."""
        return None

    # ------------------------------------------------------------ put to the buckets engine

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
        left = self._left(parts)
        return parts.picture.without_tail(math.log(_ROUGH) + math.log(left)).for_delta(left)

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
        left = self._left(parts)
        losses = parts.picture.without_tail(math.log(tail) + math.log(left))
        return losses.for_delta(left, slack_nats, start=first.slope)

    def read(self, profile: Profile, saddle: Saddle, rtol: float) -> Bounds:
        """Searches ``profile`` for the answer."""
        return profile.epsilon(self.delta, _positive(saddle), _SEARCH * rtol)

    def read_at(self, bounds: Bounds) -> float:
        """The epsilon at which a profile was read for these bounds."""
        return bounds.upper

    def allowed_variance(self, saddle: Saddle, rtol: float) -> float:
        """Returns the variance, nats^2, that buckets may add to the losses for this ``rtol``."""
        # d eps = (theta + 1) / 2 * d variance
        return 2.0 * rtol * _positive(saddle) / (saddle.slope + 1.0)

    def _left(self, parts: Parts) -> float:
        """Returns delta minus the mass of infinite losses, which is > 0 after :meth:`settled`."""
        return self.delta - parts.infinity.upper

    # ------------------------------------------------------ put to the saddle-point engine

    def within_reach(self, track: Track) -> bool:
        """Whether lines can be placed for the answer."""
        return _LEAST_DELTA < self.delta < 1.0

    def without_lines(self, track: Track) -> Bounds | None:
        """Returns None, since an epsilon is read off lines only."""
        return None

    def place(self, tracks: tuple[Track, ...]) -> float:
        """Returns the epsilon to place lines at."""
        log_delta = math.log(self.delta)
        if len(tracks) == 1:
            return max(0.0, tracks[0].near(log_delta=log_delta).epsilon_at(log_delta))
        return epsilon_at(tracks, log_delta)

    def read_lines(self, lines: Lines, track: Track) -> Bounds | None:
        """Returns the answer that ``lines`` give, or None where they prove nothing."""
        return lines.epsilon_of(self.delta, self._guess(lines, track))

    def place_again(self, lines: Lines, track: Track) -> float | None:
        """Returns the epsilon to place better lines at, after a reading of ``lines``."""
        solved = lines.solve(self.delta, self._guess(lines, track))
        return None if solved is None else solved[0]

    def _guess(self, lines: Lines, track: Track) -> float:
        # from where these lines were placed, as far as the saddle points lie apart
        apart = track.epsilon_at(math.log(self.delta)) - track.epsilon_at(lines.log_delta)
        return lines.epsilon + apart


Question = DeltaAt | EpsilonAt


def _worst(found: list[Bounds]) -> Bounds:
    """Bounds of the largest of several numbers, from the bounds of each."""
    return Bounds(max(one.lower for one in found), max(one.upper for one in found))


def _positive(saddle: Saddle) -> float:
    """Returns the epsilon of ``saddle``, or a small one > 0 where that epsilon is not positive."""
    # a thousandth of a standard deviation: it starts a search and scales a width, no more
    return max(saddle.epsilon, 1e-3 * saddle.spread)
