"""Randomised response, binary and k-ary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.rounding import double_up, exp_down
from tightbudget.numerics.validate import count, open_probability, positive, refuse
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

# 1 - p is at least e^-20 = 2e-9 there, and a step between doubles next to 1 is 2^-53 = 1.1e-16
_LARGEST_EPSILON = 20.0


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Answers the true category with probability p, each other one with (1 - p)/(k - 1).

    Guarantee: the pair of two different true categories dominates the mechanism; its losses
    are +-ln(p (k - 1) / (1 - p)), and 0 for the categories that are neither. Computed from
    the exact value of the double ``p``. Source: Warner 1965; Kairouz, Oh, Viswanath 2016.

    Args:
        p: probability of the true answer, in (0, 1).
        categories: how many answers there are, k >= 2.

    Raises:
        ParameterError: a parameter is out of its range.
    """

    p: float
    categories: int = 2

    kind: ClassVar[str] = "randomized_response"
    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True  # swapping the two true categories exchanges P and Q

    meant: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("epsilon", "eps"),
            "p is e^epsilon / (e^epsilon + categories - 1), "
            "in Python RandomizedResponse.of_epsilon(epsilon, categories)",
        ),
        "k": "the number of answers is categories",
    }

    @classmethod
    def of_epsilon(
        cls, epsilon: float, categories: int = 2, *, relation: Neighbouring | None = None
    ) -> RandomizedResponse:
        """Makes the mechanism of which one run is ``epsilon``-DP.

        Its p is e^epsilon / (e^epsilon + categories - 1).

        Guarantee: p is rounded up, so that an upper bound for it is one for the exact p, too. One
        run's largest loss is above ``epsilon`` by at most 1e-7, and by at most 1e-14 for an
        ``epsilon`` up to 1.

        Args:
            epsilon: of one run, in (0, 20], nats. For larger ones a double next to 1 is too far
                from the exact p.
            categories: how many answers there are, k >= 2.
            relation: the neighbouring relation that holds between two answers, if any.

        Raises:
            ParameterError: a parameter is out of its range.
        """
        e, k = positive(epsilon=epsilon), _categories(categories=categories)
        if not e <= _LARGEST_EPSILON:
            raise refuse("epsilon", f"be in (0, {_LARGEST_EPSILON:g}]", epsilon)
        # guard: response-rounded-up
        p = double_up(1 / (1 + (k - 1) * Fraction(exp_down(-e))))
        return cls(p, k, relation=relation)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(p=open_probability(p=self.p), categories=_categories(categories=self.categories))

    def pair(self, direction: Direction) -> Pair:
        true = Fraction(self.p)
        other = (1 - true) / (self.categories - 1)
        neither = (self.categories - 2) * other
        return AtomicPair.from_fractions([true, neither, other], [other, neither, true])


def _categories(*, categories: int) -> int:
    """Accepts a number of categories, an integer >= 2."""
    if count(categories=categories) < 2:
        raise refuse("categories", "be an integer >= 2", categories)
    return count(categories=categories)
