"""Coins against exact probabilities."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests import exact
from tests.release.enumerated import Outcomes

from tightbudget.release.noise.coins import bernoulli, bernoulli_exp


@pytest.mark.parametrize("p", [Fraction(k, 12) for k in range(13)])
def test_a_coin_of_any_bias(p: Fraction) -> None:
    found = Outcomes.of(lambda noise: bernoulli(p, noise), depth=14)
    assert found.missing <= Fraction(2, 2**14)
    assert 0 <= p - found.masses.get(True, 0) <= found.missing
    assert 0 <= 1 - p - found.masses.get(False, 0) <= found.missing


@pytest.mark.parametrize("x", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(5, 2)])
def test_a_coin_of_an_exponential(x: Fraction) -> None:
    found = Outcomes.of(lambda noise: bernoulli_exp(x, noise), depth=12)
    assert found.missing < Fraction(1, 20)
    low, high = exact.exp_ends(-x)
    assert found.masses.get(True, 0) <= high
    assert low <= found.masses.get(True, 0) + found.missing
