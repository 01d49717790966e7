"""The answer to one question: certified bounds, and whether they are as close as asked."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from tightbudget.errors import PrecisionError
from tightbudget.numerics.bounds import Bounds

__all__ = ["BUCKETS", "CLOSED_FORM", "SADDLE_POINT", "Answer"]

SADDLE_POINT, BUCKETS = "saddle-point", "buckets"  # the two engines
CLOSED_FORM = "closed form"  # of one run, which needs neither

# A refusal recommends a gap that an answer would reach. Bounds further apart than a factor of two
# say so little that no gap is recommended; and a repeated question may end a little wider (it
# stops at its own gap), so the recommended gap has a quarter to spare. Both only word a message.
_HOPELESS = 0.5
_MARGIN = 1.25


@dataclass(frozen=True)
class Answer:
    """An answer holds what is certified about one number, also where the gap was not reached.

    Guarantee: the exact value lies in ``bounds``, whether or not the gap was reached.

    Attributes:
        bounds: the closest bounds that were certified.
        reached: whether they are as close as asked, or on one side of the target that was given;
            for an answer :meth:`down_to` another, whether both are.
        method: "saddle-point" or "buckets", the engine that answered; "closed form" where one run
            has one; "" where none was needed.
        why: what stood in the way of the gap, as the message of a refusal; "" if it was reached.
    """

    bounds: Bounds
    reached: bool = True
    method: str = ""
    why: str = ""

    @staticmethod
    def missed(
        asked: str,
        bounds: Bounds,
        wanted: float,
        *,
        reason: str = "",
        method: str = "",
        absolute: bool = False,
    ) -> Answer:
        """An answer whose bounds are further apart than wanted.

        Args:
            asked: the question in words, as in "epsilon at delta = 1e-05".
            bounds: the closest bounds that were certified.
            wanted: the gap that was asked for.
            reason: what stood in its way, if that is known.
            method: the engine that answered.
            absolute: whether ``wanted`` is upper - lower, and not that divided by upper.
        """
        kind, gap = ("gap", bounds.width) if absolute else ("relative gap", bounds.relative_gap)
        why = f"{asked} is in {bounds} ({kind} {gap:.2g}): {kind} {wanted:g} was not reached"
        if reason:
            why += f", since {reason}"
        if gap < _HOPELESS:
            why += f"; ask for rtol={_rounded_up(_MARGIN * gap):g} or more"
        return Answer(bounds, reached=False, method=method, why=why)

    def down_to(self, below: Answer) -> Answer:
        """The answer for what lies between two pairs: this answer's upper bound, the other's lower.

        Guarantee: the value of every pair that this answer's pair dominates, and that dominates
        the other answer's pair, lies in the bounds; reached means that both answers were.

        Args:
            below: the answer to the same question, about the pair that is dominated.
        """
        missed = next((one for one in (self, below) if not one.reached), self)
        bounds = Bounds(below.bounds.lower, self.bounds.upper)
        why = missed.why
        if not missed.reached:  # the words are about one of the pairs, whose bounds they name
            pair = "dominating pair" if missed is self else "pair attained"
            why = f"the answer is in {bounds}; of the {pair}, {why}"
        return dataclasses.replace(missed, bounds=bounds, method=self.method, why=why)

    def required(self) -> Bounds:
        """The bounds, for a caller who cannot do with wider ones than asked for.

        Raises:
            PrecisionError: the gap was not reached; the error carries the bounds.
        """
        if not self.reached:
            raise self.error()
        return self.bounds

    def error(self) -> PrecisionError:
        """Returns the refusal for a caller of this answer; the error carries the bounds."""
        return PrecisionError(self.why, self.bounds.lower, self.bounds.upper)


def _rounded_up(number: float) -> float:
    """A number > 0, rounded up to one decimal digit."""
    exponent = math.floor(math.log10(number))
    return float(f"{math.ceil(number / 10.0**exponent)}e{exponent}")
