"""Without what a mechanism has to say about itself, an upper bound is too small."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import pytest
from tests.guards.mutants import Without, each, lose_a_truth

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.pair import Direction, Pair


@dataclass(frozen=True)
class Coin(Mechanism):
    """A mechanism as a newcomer writes it: two coins, and not a word about its directions."""

    def pair(self, direction: Direction) -> Pair:
        p = [Fraction(1, 10), Fraction(9, 10)]
        q = [Fraction(1, 2), Fraction(1, 2)]
        both = (p, q) if direction is Direction.REMOVE else (q, p)
        return AtomicPair.from_fractions(*both)


def the_worse_direction_counts() -> bool:
    """At e^eps = 2, P - 2 Q is at most 0 everywhere for REMOVE; for ADD it is 3/10 on one side."""
    return abs((Coin() * 1).delta(math.log(2.0)).upper - 0.3) < 1e-3


MUTATIONS = [
    Without(
        "both directions are asked",
        {"both-directions-asked": "return True"},
        the_worse_direction_counts,
    ),
]


@each(MUTATIONS)
def test_a_guard_that_is_gone_is_missed(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)


def test_a_new_mechanism_is_not_symmetric_until_it_says_so() -> None:
    assert not Coin().is_symmetric()
    assert not Coin().is_mutual()
    assert (Coin() * 3).directions == tuple(Direction)
