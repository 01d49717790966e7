"""Which of two neighbouring data sets plays P."""

from __future__ import annotations

import enum


class Direction(enum.Enum):
    """Which of the two neighbours plays P.

    REMOVE: P is the mechanism with the record, Q without (for a mechanism given as two
    distributions: the first against the second). ADD: the other way round.
    """

    REMOVE = "remove"
    ADD = "add"

    @property
    def other(self) -> Direction:
        """The direction in which the neighbours have changed places."""
        return Direction.ADD if self is Direction.REMOVE else Direction.REMOVE
