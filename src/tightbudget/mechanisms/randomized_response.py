"""Randomised response, binary and k-ary."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.numerics.validate import count, open_probability, refuse
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.pair import Direction, Pair

__all__ = ["RandomizedResponse"]


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

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(p=open_probability(p=self.p), categories=count(categories=self.categories))
        if self.categories < 2:
            raise refuse("categories", "be an integer >= 2", self.categories)

    def pair(self, direction: Direction) -> Pair:
        true = Fraction(self.p)
        other = (1 - true) / (self.categories - 1)
        neither = (self.categories - 2) * other
        return AtomicPair.from_fractions([true, neither, other], [other, neither, true])
