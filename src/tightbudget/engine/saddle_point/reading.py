"""The saddle points' side of a question: the place of lines, and the answer that they give.

Lines hold for every epsilon, and are close near the place that they were made for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tightbudget.engine.answer import FLOOR
from tightbudget.engine.question import DeltaAt, Question
from tightbudget.engine.saddle_point.contour import Lines
from tightbudget.engine.saddle_point.saddle_points import Term, Track, epsilon_at, log_g
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import add_up, exp_up, mul_down
from tightbudget.numerics.special import log_g_up

# Lines are placed for a delta above this; the rest goes to the buckets (and ends as [0, upper]).
# The smallest normal double is 1e-308: errors of e^-31 delta stay above it with decades to spare.
_LEAST_DELTA = 1e-250
_HARDLY = -670.0  # ln delta; e^-667 is FLOOR
_RARE = -14.0  # ln delta: two large losses make much less
_LOWEST = -700.0  # ln delta; e^-700 is still a normal double, e^-709 is not


@dataclass(frozen=True)
class DeltaOnLines:
    """The reading of delta(epsilon) off lines."""

    epsilon: float

    def within_reach(self, track: Track) -> bool:
        """Whether lines can be placed for the answer."""
        return math.isfinite(self.epsilon) and track.log_delta_at(self.epsilon) >= _LOWEST

    def without_lines(self, track: Track) -> Bounds | None:
        """Returns bounds that need no line, for an epsilon far below all losses, else None."""
        return track.nearly_one(self.epsilon) if self.epsilon < track.epsilon[0] else None

    def hardly_any(self, track: Track, left_out: float) -> Bounds | None:
        """Returns bounds of a delta that is below all that is answered for, else None.

        Args:
            track: of all outputs but some of the P-mass ``left_out``.
            left_out: is part of the upper bound.
        """
        if not math.isfinite(self.epsilon):
            return None
        # Chernoff: delta <= M(c) e^(-c eps) g(c); a small c is as good as any that shows enough
        places = track.c
        if self.epsilon > max(0.0, track.epsilon[-1]):  # it may be beyond the largest sum of losses
            more = -_HARDLY / self.epsilon * 2.0 ** np.arange(4.0)
            places = np.sort(np.append(places, more[more < track.term.farthest]))
        with np.errstate(all="ignore"):  # what overflows shows nothing
            about = track.term.rough(places).value + log_g(places) - places * self.epsilon
        enough = np.flatnonzero(about < _HARDLY)
        if not enough.size:
            return None
        c = float(places[enough[0]])
        log = add_up(track.term.upper(c), log_g_up(c), -mul_down(c, self.epsilon))
        upper = add_up(left_out, exp_up(log)) if log < 0.0 else math.inf  # guard: hardly-left-out
        return Bounds(0.0, upper) if upper <= FLOOR else None

    def place(self, tracks: tuple[Track, ...]) -> float:
        """Returns the epsilon to place lines at."""
        return self.epsilon

    def log_delta(self, track: Track) -> float:
        """Returns about ln delta of the answer."""
        return track.near(self.epsilon).log_delta_at(self.epsilon)

    def log_delta_of_one(self, term: Term) -> float:
        """Returns about ln of what one large loss alone makes of the answer's delta.

        -inf where a run has so large a loss more often than once in a million compositions.
        """
        each = [
            math.log(group.count) + group.transform.about_log_delta(self.epsilon)
            for group in term.groups
        ]
        total = float(np.logaddexp.reduce(each))
        return total if total < _RARE else -math.inf

    def read_lines(self, lines: Lines, track: Track) -> Bounds | None:
        """Returns the answer that ``lines`` give, or None where they prove nothing."""
        return lines.delta(self.epsilon)

    def place_again(self, lines: Lines, track: Track) -> float | None:
        """Returns the epsilon to place better lines at, after a reading of ``lines``."""
        return self.epsilon


@dataclass(frozen=True)
class EpsilonOnLines:
    """The reading of eps*(delta) off lines."""

    delta: float

    def within_reach(self, track: Track) -> bool:
        """Whether lines can be placed for the answer."""
        return _LEAST_DELTA < self.delta < 1.0

    def without_lines(self, track: Track) -> Bounds | None:
        """Returns None, since an epsilon is read off lines only."""
        return None

    def hardly_any(self, track: Track, left_out: float) -> Bounds | None:
        """Returns None, since the delta of a question is answered for."""
        return None

    def place(self, tracks: tuple[Track, ...]) -> float:
        """Returns the epsilon to place lines at."""
        log_delta = math.log(self.delta)
        if len(tracks) == 1:
            return max(0.0, tracks[0].near(log_delta=log_delta).epsilon_at(log_delta))
        return epsilon_at(tracks, log_delta)

    def log_delta(self, track: Track) -> float:
        """Returns ln delta of the question."""
        return math.log(self.delta)

    def log_delta_of_one(self, term: Term) -> float:
        """Returns -inf, since delta is known."""
        return -math.inf

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


OnLines = DeltaOnLines | EpsilonOnLines


def on_lines(question: Question) -> OnLines:
    """Returns the reading of the answer to a question off lines."""
    if isinstance(question, DeltaAt):
        return DeltaOnLines(question.epsilon)
    return EpsilonOnLines(question.delta)
