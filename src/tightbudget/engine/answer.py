"""The answer to one question: certified bounds, and whether they are as close as asked."""

from __future__ import annotations

from dataclasses import dataclass

from tightbudget.errors import PrecisionError
from tightbudget.numerics.bounds import Bounds

__all__ = ["Answer"]


@dataclass(frozen=True)
class Answer:
    """What is certified about one number. A gap that was not reached is an answer, too.

    Guarantee: the exact value lies in ``bounds``, whether or not the gap was reached.

    Attributes:
        bounds: the closest bounds that were certified.
        reached: whether they are as close as asked, or on one side of the target that was given.
        why: what stood in the way of the gap, as the message of a refusal; "" if it was reached.
    """

    bounds: Bounds
    reached: bool = True
    why: str = ""

    def required(self) -> Bounds:
        """The bounds, for a caller who cannot do with wider ones than asked for.

        Raises:
            PrecisionError: the gap was not reached; the error carries the bounds.
        """
        if not self.reached:
            raise PrecisionError(self.why, self.bounds.lower, self.bounds.upper)
        return self.bounds
