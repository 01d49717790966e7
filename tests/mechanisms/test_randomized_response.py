"""Randomised response against exact rationals."""

# Refusals are shown what a type checker would have refused before.
# mypy: disable-error-code="arg-type"

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from tests.mechanisms.checks import REMOVE, assert_atoms, assert_comes_back, assert_consistent, ball

from tightbudget.errors import ParameterError
from tightbudget.mechanisms import RandomizedResponse

CLOSE = [0.5, 0.75, 0.9, 0.1, 1 / 3, 0.5 + 2**-53, 1 - 2**-53, 1e-17, 1e-200]


@pytest.mark.parametrize("k", [2, 3, 10, 10**6])
@pytest.mark.parametrize("p", CLOSE)
def test_masses_and_losses_are_those_of_the_exact_double(p, k):
    true = Fraction(p)
    other = (1 - true) / (k - 1)
    rest = [(k - 2) * other] if k > 2 else []
    loss = ball(true / other).log() if true != other else ball(0.0)
    losses = [loss, *[ball(0.0)] * len(rest), -loss]
    pair = RandomizedResponse(p, k).pair(REMOVE)
    assert_atoms(pair, [true, *rest, other], [other, *rest, true], losses, width=5e-16)
    low, high = pair.atoms().loss_lower, pair.atoms().loss_upper
    # relative, also where p (k - 1) is close to 1 - p
    assert max(abs(high - low)) <= 2e-15 * max(abs(high))


def test_a_fair_coin_says_nothing():
    assert RandomizedResponse(0.5).pair(REMOVE).max_loss() == (0.0, 0.0)


@pytest.mark.parametrize("mechanism", [RandomizedResponse(0.8), RandomizedResponse(0.3, 7)])
def test_directions_agree_and_parameters_come_back(mechanism):
    assert_consistent(mechanism)
    assert_comes_back(mechanism)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RandomizedResponse(0.0), r"p must be in \(0, 1\), got 0.0"),
        (lambda: RandomizedResponse(1), r"p must be in \(0, 1\), got 1"),
        (lambda: RandomizedResponse(math.nan), r"p must be in \(0, 1\), got nan"),
        (lambda: RandomizedResponse(True), r"p must be in \(0, 1\), got True"),
        (lambda: RandomizedResponse("0.5"), r"p must be in \(0, 1\), got '0.5'"),
        (lambda: RandomizedResponse(0.5, 1), "categories must be an integer >= 2, got 1"),
        (lambda: RandomizedResponse(0.5, 2.0), "categories must be an integer >= 0, got 2.0"),
    ],
)
def test_refusals_name_the_parameter(build, message):
    with pytest.raises(ParameterError, match=message):
        build()
