"""The saddle points' side of a question: the place of lines, and the answer that they give.

Lines hold for every epsilon, and are close near the place that they were made for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tightbudget.engine.question import DeltaAt, Question
from tightbudget.engine.saddle_point.contour import Lines
from tightbudget.engine.saddle_point.saddle_points import Track, epsilon_at
from tightbudget.numerics.bounds import Bounds

# Lines are placed for a delta above this; the rest goes to the buckets (and ends as [0, upper]).
# The smallest normal double is 1e-308: errors of e^-31 delta stay above it with decades to spare.
_LEAST_DELTA = 1e-250
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
class EpsilonOnLines:
    """The reading of eps*(delta) off lines."""

    delta: float

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


OnLines = DeltaOnLines | EpsilonOnLines


def on_lines(question: Question) -> OnLines:
    """Returns the reading of the answer to a question off lines."""
    if isinstance(question, DeltaAt):
        return DeltaOnLines(question.epsilon)
    return EpsilonOnLines(question.delta)
