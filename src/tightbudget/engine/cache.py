"""The cache keeps lines and profiles of one composition for later questions about it."""

from __future__ import annotations

from collections import deque

from tightbudget.engine.buckets.profile import Profile
from tightbudget.engine.levels.profile import LevelProfile
from tightbudget.engine.saddle_point.contour import Lines

# A curve is asked point by point, and its next point lies close to the last ones; each curve that
# is kept is read once more for every question, and profiles hold millions of numbers.
_REMEMBERED = 3


class Cache:
    """The latest lines and profiles of each direction of one composition.

    Lines and profiles hold for every epsilon. One that was made for a neighbouring question is
    read first; only where its bounds are too wide there is a new one made. A cache serves one
    composition: the engine numbers the composition's directions 0 and 1.

    Attributes:
        once: whether no other question is read from what is kept, so that none of it is finer than
            one answer takes.
    """

    def __init__(self, *, once: bool = False) -> None:
        self.once = once
        # questions in turn that lines proved nothing of, smooth ones and others
        self.in_vain: dict[bool, int] = {}
        # the kind of method that answered last
        self.answered: type[object] | None = None
        self._lines: dict[int, deque[Lines]] = {}
        self._profiles: dict[int, deque[Profile | LevelProfile]] = {}

    def only_method(self) -> Cache:
        """Returns a cache for one question that holds which kind of method answered last, alone."""
        found = Cache(once=True)
        found.answered = self.answered
        return found

    def lines(self, direction: int) -> tuple[Lines, ...]:
        """Returns the lines that answered last in a direction, the latest first."""
        return tuple(reversed(self._lines.get(direction, ())))

    def profiles(self, direction: int) -> tuple[Profile | LevelProfile, ...]:
        """Returns the profiles that were made last in a direction, the latest first."""
        return tuple(reversed(self._profiles.get(direction, ())))

    def remember_lines(self, direction: int, lines: Lines) -> None:
        """Keeps lines that answered a question in this direction."""
        self._lines.setdefault(direction, deque(maxlen=_REMEMBERED)).append(lines)

    def remember_profile(self, direction: int, profile: Profile | LevelProfile) -> None:
        """Keeps a profile that was made for a question in this direction."""
        self._profiles.setdefault(direction, deque(maxlen=_REMEMBERED)).append(profile)
