"""Permute-and-flip: its law on small scores, in rationals, and its price on all neighbours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from tests.release.enumerated import BASE, Outcomes, power
from tests.release.test_best_trial import Coins
from tests.release.test_exponential import as_it_is, neighbours

import tightbudget as tb
from tightbudget.release import PermuteAndFlip
from tightbudget.release.mechanisms import permute_and_flip
from tightbudget.release.noise.coins import uniform

Scores = tuple[int, ...]


def of(**given: Any) -> PermuteAndFlip:
    return PermuteAndFlip(as_it_is, ("a", "b", "c"), **{"epsilon": Fraction(1, 2), **given})


@pytest.fixture(autouse=True)
def _draws_that_are_enumerated(monkeypatch: pytest.MonkeyPatch) -> None:
    def flip(x: Fraction, law: Any) -> bool:
        return x == 0 or bool(law.biased(1 / power(x)))  # no path of probability 0

    monkeypatch.setattr(permute_and_flip, "bernoulli_exp", flip)
    monkeypatch.setattr(
        permute_and_flip,
        "uniform",
        lambda n, law: law._take(dict.fromkeys(range(n), Fraction(1, n))),
    )


def law(mechanism: PermuteAndFlip, scores: Scores) -> dict[Any, Fraction]:
    """The exact probability of each candidate, over all orders and all flips."""
    found = Outcomes.of(lambda noise: mechanism.unpaid_answer(scores, noise)[0])
    assert found.missing == 0
    return found.masses


def expected(exponents: Sequence[Fraction]) -> Iterator[Fraction]:
    """The same by all orders: a candidate is taken after those before it were not."""
    chances = [1 / power(x) for x in exponents]
    orders = list(itertools.permutations(range(len(chances))))
    for i, chance in enumerate(chances):
        before = [order[: order.index(i)] for order in orders]
        missed = sum(
            math.prod((1 - chances[j] for j in some), start=Fraction(1)) for some in before
        )
        yield chance * missed / len(orders)


@pytest.mark.parametrize("scores", [(0, 0, 0), (0, 1, 3), (2, 2, 0), (5, 1, 1)])
def test_the_first_that_is_taken_is_chosen(scores: Scores) -> None:
    mechanism = of()
    masses = law(mechanism, scores)
    exponents = mechanism._exponents(scores)
    assert [masses.get(c, 0) for c in "abc"] == list(expected(exponents))


def test_each_candidate_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Fraction]()

    def third(x: Fraction, _: Any) -> bool:
        asked.append(x)
        return len(asked) == 3

    monkeypatch.setattr(permute_and_flip, "bernoulli_exp", third)
    monkeypatch.setattr(permute_and_flip, "uniform", lambda n, _: 0)
    value, _ = of(epsilon=2).unpaid_answer((0, 1, 2), Coins(1))
    assert asked == [2, 1, 0]
    assert value == "c"


@pytest.mark.parametrize("monotone", [True, False])
def test_no_probability_grows_by_more_than_epsilon(monotone: bool) -> None:
    """Exhaustive, in rationals: never more, and no less would do."""
    mechanism = of(monotone=monotone)
    known = cache(lambda scores: law(mechanism, scores))
    worst = Fraction(1)
    for moves in [[0, 1], [0, -1]] if monotone else [[-1, 0, 1]]:
        for here, there in neighbours(moves)[::3]:
            worst = max(worst, *(known(here)[c] / known(there)[c] for c in "abc"))
    price = power(Fraction(1, 2))
    assert price * Fraction(99, 100) < worst <= price
    assert BASE ** Fraction(1, 2) == price


def test_it_has_no_bounded_range() -> None:
    """So that it is charged no rho but that of pure privacy."""
    mechanism = of()
    here, there = law(mechanism, (1, 0, 0)), law(mechanism, (0, 1, 1))
    ratios = [here[c] / there[c] for c in "abc"]
    assert max(ratios) / min(ratios) > power(Fraction(1, 2))
    rho = tb.ZCDPFilter(rho=1)
    assert of(epsilon=0.4).what_if(tb.OutputDPFilter(1)).most.epsilon == 0.4
    assert rho.cost(of(epsilon=0.4).guarantee, None).counted == Fraction(2, 25)


@pytest.mark.parametrize("scores", [(0, 1, 3), (4, 4, 0), (2, 0, 0)])
def test_it_misses_by_no_more_than_the_exponential_mechanism(scores: Scores) -> None:
    mechanism = of()
    flips = law(mechanism, scores)
    weights = [1 / power(x) for x in mechanism._exponents(scores)]
    for i, c in enumerate("abc"):
        if scores[i] == max(scores):
            assert flips[c] >= weights[i] / sum(weights)


@pytest.mark.parametrize("n", range(1, 10))
def test_a_uniform_index_is_as_likely_as_any(n: int) -> None:
    found = Outcomes.of(lambda noise: uniform(n, noise), depth=(n - 1).bit_length())
    assert found.masses == dict.fromkeys(range(n), Fraction(1, 2 ** (n - 1).bit_length()))


def test_an_index_is_below_its_end() -> None:
    noise = Coins(3)
    assert {uniform(5, noise) for _ in range(200)} == {*range(5)}
