"""The answer to one question: certified bounds, and whether they are as close as asked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from tightbudget.errors import PrecisionError
from tightbudget.numerics.bounds import Bounds

SADDLE_POINT, BUCKETS = "saddle-point", "buckets"  # the two engines
CLOSED_FORM = "closed form"  # of one run, which needs neither

# A width, in nats or of a delta, that the rounding of the losses alone may account for, some 4,500
# units of 2^-52. Public docstrings promise it. It decides what counts as reached, no bound.
ROUNDED = 1e-12
FLOOR = 1e-290  # a delta below this is answered with [0, upper]; public docstrings name it

# A refusal recommends a gap that an answer would reach. Bounds further apart than a factor of two
# say so little that no gap is recommended; and a repeated question may end a little wider (it
# stops at its own gap), so the recommended gap has a quarter to spare. Both only word a message.
_HOPELESS = 0.5
_MARGIN = 1.25


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question in words, and how close the bounds of its answer are to be.

    Attributes:
        words: the question, as in "epsilon at delta = 1e-05".
        gap: the wanted gap.
        target: a value that the answer is compared with: bounds on one side of it do.
        floor: an answer whose upper bound is at most this needs no closer lower one.
        absolute: whether ``gap`` is upper - lower, and not that divided by upper.
        settled: says whether no engine knows the answer closer than the rounding of the losses
            does, as at an epsilon that is the largest loss.
        unbounded: whether an upper bound of inf is an answer, since no bound of a tail is known.
    """

    words: str
    gap: float
    target: float | None = None
    floor: float = FLOOR
    absolute: bool = False
    settled: Callable[[], bool] = lambda: False
    unbounded: bool = False

    def met_by(self, bounds: Bounds) -> bool:
        """Whether bounds are as close as asked, or on one side of the target."""
        gap = bounds.width if self.absolute else bounds.relative_gap
        return gap <= self.gap or bounds.decides(self.target) or bounds.upper <= self.floor

    def halvings(self, bounds: Bounds, above: Bounds, below: Bounds) -> int:
        """Counts how often the distance of two pairs is to be halved for bounds that are close.

        Args:
            bounds: from both pairs, not close enough.
            above: the bounds of the dominating pair.
            below: the bounds of the pair that is dominated.

        Returns:
            0 where the engine's errors alone are as wide as what was asked for.
        """
        wanted = self.gap * (1.0 if self.absolute else bounds.upper)
        own = above.width + below.width
        if not own < wanted < math.inf:
            return 0
        # a fifth more than it takes, since a distance is not halved exactly
        return max(1, math.ceil(math.log2(1.2 * max(bounds.width - own, own) / (wanted - own))))

    def known_no_closer(self, above: Answer, below: Answer) -> bool:
        """Whether the upper bound of one answer and the lower one of another are an exception.

        An upper bound of inf is an answer where the pair that is dominated has none either; and at
        the largest loss the rounding of the losses alone may be the distance.
        """
        if math.isinf(above.bounds.upper):  # guard: infinite-below-too
            infinite = self.unbounded or (below.reached and math.isinf(below.bounds.upper))
            return infinite and above.reached
        return above.bounds.upper - below.bounds.lower <= ROUNDED and self.settled()


@dataclass(frozen=True)
class Answer:
    """An answer holds what is certified about one number, also where the gap was not reached.

    Guarantee: the exact value lies in ``bounds``, whether or not the gap was reached.

    Attributes:
        bounds: the closest bounds that were certified.
        reached: whether they are as close as asked, or on one side of the target that was given;
            for an answer that is :meth:`down_to` another one, and whose bounds say that they are
            ``apart``, whether both answers were.
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

    def down_to(self, below: Answer, asked: Asked, *, apart: str = "") -> Answer:
        """The answer for what lies between two pairs: this answer's upper bound, the other's lower.

        Guarantee: the value of every pair that this answer's pair dominates, and that dominates
        the other answer's pair, lies in the bounds. Reached means that these bounds are as close
        as asked; or, where the pairs are not meant to meet, that both answers were reached: then
        the bounds say ``apart``.

        Args:
            below: the answer to the same question, about the pair that is dominated.
            asked: the question, and how close its answer is to be.
            apart: "" if the two pairs enclose one that is exact; else what draws the records so
                that nobody knows an exact one.
        """
        bounds = Bounds(below.bounds.lower, self.bounds.upper)
        if asked.met_by(bounds):  # guard: joint-gap-decides
            return Answer(bounds, method=self.method)
        missed = next((one for one in (self, below) if not one.reached), None)
        if apart and missed is None:
            return Answer(dataclasses.replace(bounds, apart=apart), method=self.method)
        if asked.known_no_closer(self, below):
            return Answer(bounds, method=self.method)
        if apart:  # the words are about one of the pairs, whose bounds they name
            assert missed is not None
            pair = "dominating pair" if missed is self else "pair attained"
            why = f"the answer is in {bounds}; of the {pair}, {missed.why}"
            return Answer(bounds, reached=False, method=self.method, why=why)
        return Answer.missed(
            asked.words,
            bounds,
            asked.gap,
            reason="the pairs above and below the exact one are not closer",
            method=self.method,
            absolute=asked.absolute,
        )

    def no_larger_than(self, least: float, asked: Asked) -> Answer:
        """This answer with another upper bound, where that is smaller than its own.

        Args:
            least: an upper bound of the same number.
            asked: the question: bounds that it makes close enough are not ``apart``.
        """
        if not least < self.bounds.upper:
            return self
        # rounding may have put a lower bound that is attained a unit above it
        bounds = Bounds(self.bounds.lower, max(least, self.bounds.lower))
        if not asked.met_by(bounds):
            bounds = dataclasses.replace(bounds, apart=self.bounds.apart)
        return dataclasses.replace(self, bounds=bounds)

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
