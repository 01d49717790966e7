"""Proposes a bound on the effect of one record, tests it, and releases only if it holds.

The distance A(x) >= 1 of a *proposal* for one data set x is the least number of records that must
be replaced before the bound fails; A(x) = 1 means that it may fail now. Two things are asked:

1. neighbours x, x' have |A(x) - A(x')| <= 1;
2. if A(x) >= 2, the values proposed for x and for every neighbour x' differ by at most the
   sensitivity that is proposed for both.

The test adds integer noise, Pr(Z = z) ~ e^(-eps |z|), and passes iff A(x) + Z > t, where t is
the smallest integer with Pr(1 + Z > t) <= delta. By 1 both answers of the test are e^eps-close.
Where A(x) = 1 it passes with probability at most delta; where A(x) >= 2 the value with noise
Pr(Z = z) ~ e^(-eps |z| / sensitivity) is e^eps-close once more. So the prices are
{value: 2 eps, bottom: eps}, with delta: Definition 9 of Hartmann et al. 2022. Everything is
decided on integers, so a tie A(x) + Z = t is a tie for every data set, and fails.

*Several tries.* Bounds may be tried in turn until one passes: a value at try j of k costs
(j + 1) eps, and no value k eps. For the same two data sets all bounds can fail at once; then
some test passes with up to the sum of their deltas. So each try gets delta / k.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from tightbudget.numerics.rounding import add_down, exp_down, log_down, next_down
from tightbudget.numerics.validate import count, one_of, plain_numbers, positive_count, refuse
from tightbudget.output_dp.amount import Price, exact_positive, exact_probability
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.noise.noise import LARGEST_SCALE, Noise, scale_up
from tightbudget.release.rehearsal import in_rehearsal
from tightbudget.release.release import answered

_LEAST_EPSILON, _LEAST_DELTA = Fraction(1, 10**9), Fraction(1, 10**300)


class Pricing(enum.Enum):
    """The price of k tries, each with delta / k of its own.

    Attributes:
        ONE_MECHANISM: {"value": (k + 1) epsilon, "bottom": k epsilon}; the cell does not tell
            which try gave the value. Source: Hartmann et al. 2022, Lemma 10.
        IN_TURN: {("value", j): (j + 1) epsilon, "bottom": k epsilon}, each try a mechanism of
            its own, in the order of the proposals or the reverse, as a coin falls.
            Source: Hartmann et al. 2022, section 4.2.
    """

    ONE_MECHANISM = "one mechanism"
    IN_TURN = "in turn"


@plain_numbers
@dataclass(frozen=True)
class Proposal:
    """A proposal for one data set, in integers: it is as private as the data.

    Attributes:
        distance: A(x) >= 1, in records to replace.
        value: the answer, before noise.
        sensitivity: >= 1; how much one record can change the value if the distance is >= 2.
    """

    distance: int
    value: int
    sensitivity: int

    def __post_init__(self) -> None:
        # integers of Python: those of NumPy overflow, and a float would round with the noise
        object.__setattr__(self, "distance", positive_count(distance=self.distance))
        object.__setattr__(self, "value", operator.index(self.value))
        object.__setattr__(self, "sensitivity", positive_count(sensitivity=self.sensitivity))


_FAILED = Proposal(distance=1, value=0, sensitivity=1)


@plain_numbers
@dataclass(frozen=True)
class StabilityTest:
    """A noisy test of whether a proposed bound holds for a data set and its neighbours.

    Guarantee: both answers of the test are e^epsilon-close for neighbours whose distances differ
    by at most one; at distance 1 the test passes with probability at most delta.

    Args:
        epsilon: > 0, nats.
        delta: in (0, 1].
    """

    epsilon: Fraction
    delta: Fraction

    @cached_property
    def scale(self) -> Fraction:
        """The scale of the noise: the least double b with 1/b <= epsilon."""
        return Fraction(scale_up(1 / self.epsilon))

    @cached_property
    def threshold(self) -> int:
        """The largest noisy distance that does not pass."""
        return _least_threshold(self.scale, self.delta)

    def passes(self, distance: int, draw: int) -> bool:
        """Returns True if the noisy distance is above the threshold; a tie does not pass."""
        return distance + draw > self.threshold  # guard: tie-does-not-pass

    def value(self, proposal: Proposal, noise: Noise) -> int | None:
        """Returns the proposed value with noise if the proposal passes, else None."""
        if not self.passes(proposal.distance, int(noise.laplace(self.scale, 1)[0])):
            return None
        # guard: noise-for-sensitivity
        draw = noise.laplace(proposal.sensitivity * self.scale, 1)[0]
        return proposal.value + int(draw)


def _least_threshold(b: Fraction, delta: Fraction) -> int:
    """Returns the least integer t >= 1 with Pr(Z >= t) = q^t / (1 + q) <= delta, q = e^(-1/b).

    If doubles cannot decide, it returns the next integer, which is safe.
    """
    q = exp_down(next_down(float(-1 / b)))  # guard: least-threshold
    log = add_down(log_down(next_down(float(delta))), log_down(add_down(1.0, q)))
    return max(1, math.ceil(b * -Fraction(log)))  # guard: threshold-rounded-up


@plain_numbers
@dataclass(frozen=True)
class ProposeTestRelease(MechanismOnData[Any, int | None]):
    """Tests a bound on the effect of one record, and releases an integer with noise for it.

    The value of a release is the integer with noise, or None with the cell "bottom".

    Guarantee: the prices of ``pricing``, and delta, if each proposal keeps its promises: for
    neighbouring data sets the distances differ by at most one; and at a distance >= 2 the values
    proposed for x and any neighbour differ by at most the sensitivity, which is equal for both. A
    proposal that is missing, has another type, or has a sensitivity too large for any noise,
    counts as one at distance 1, where nothing is promised. If ``propose`` raises, all proposals
    count so. The promises must hold for the proposals with these in place of failures.
    Sensitivity and neighbouring relation: those of the proposals.
    Source: Dwork, Lei 2009; Hartmann et al. 2022, Definition 9.

    Args:
        propose: from the data to its proposals, as many as there are tries, in their order.
        epsilon: >= 1e-9, nats: the price of one test, and again of one value.
        delta: in (0, 1), for all tests together.
        tries: the number of proposals. With 0 the answer is "bottom", and costs nothing.
        pricing: the price of several tries.

    Raises:
        ParameterError: a parameter is refused.
    """

    propose: Callable[[Any], Sequence[Proposal]]
    epsilon: Price
    delta: Price
    tries: int = 1
    pricing: Pricing = Pricing.ONE_MECHANISM

    def __post_init__(self) -> None:
        one_of(tuple(Pricing), pricing=self.pricing)
        count(tries=self.tries)
        super().__post_init__()

    @cached_property
    def test(self) -> StabilityTest:
        """The test of each try."""
        epsilon = exact_positive(epsilon=self.epsilon)
        if epsilon < _LEAST_EPSILON:
            raise refuse("epsilon", "be at least 1e-9", self.epsilon)
        delta = exact_probability(delta=self.delta)
        if not _LEAST_DELTA <= delta < 1:
            raise refuse("delta", "be in [1e-300, 1)", self.delta)
        return StabilityTest(epsilon, delta / max(self.tries, 1))

    @cached_property
    def guarantee(self) -> OutputDP:
        """The price of each output cell, and delta."""
        k, epsilon = self.tries, self.test.epsilon
        prices: dict[Cell, Fraction] = {"bottom": k * epsilon}
        for j in range(1, k + 1):
            last = j if self.pricing is Pricing.IN_TURN else k
            prices[self._cell(j)] = (last + 1) * epsilon
        return OutputDP(prices, k * self.test.delta)

    def _run(self, data: Any, noise: Noise) -> tuple[int | None, Cell]:
        return self.run(data, noise)

    def run(self, data: Any, noise: Noise) -> tuple[int | None, Cell]:
        """Returns a value and its cell, without paying: for mechanisms built on this one."""
        if not self.tries:
            return None, "bottom"
        proposals = self._proposals(data)
        if self.pricing is Pricing.IN_TURN and noise.coin():
            proposals.reverse()
        for j, proposal in enumerate(proposals, start=1):
            value = self.test.value(proposal, noise)
            if value is not None:
                return value, self._cell(j)
        return None, "bottom"

    def _proposals(self, data: Any) -> list[Proposal]:
        """Returns one proposal for each try, whatever ``propose`` does."""
        found = answered(lambda: list(self.propose(data))) or []
        widest = LARGEST_SCALE / self.test.scale
        if in_rehearsal() and not (len(found) == self.tries and all(map(_is_proposal, found))):
            raise refuse("propose", f"answer {self.tries} of Proposal", found)
        usable = [p if _is_proposal(p) and p.sensitivity <= widest else _FAILED for p in found]
        return [*usable, *[_FAILED] * self.tries][: self.tries]

    def _cell(self, j: int) -> Cell:
        """Returns the output cell of a value that passed at try j."""
        return ("value", j) if self.pricing is Pricing.IN_TURN else "value"


def _is_proposal(value: Any) -> bool:
    """True for a proposal; a subclass could answer otherwise each time that it is asked."""
    return type(value) is Proposal
