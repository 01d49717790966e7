"""The staircase mechanism against its density, in 400-bit ball arithmetic."""

# Refusals are shown what a type checker would have refused before.
# mypy: disable-error-code="arg-type"

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from flint import arb
from tests.mechanisms.checks import REMOVE, assert_atoms, assert_comes_back, assert_consistent

from tightbudget.errors import ParameterError
from tightbudget.mechanisms import Staircase


def masses_from_the_density(epsilon, gamma):
    """P-masses of the losses +eps, 0, -eps: the density f(x) against f(x - 1), piece by piece."""
    eps, g = arb(epsilon), arb(gamma)
    height = (1 - (-eps).exp()) / (2 * (g + (-eps).exp() * (1 - g)))
    ends = sorted([arb(0), g, 1 - g, arb(1)], key=float)
    found = {+1: arb(1) / 2, 0: arb(0), -1: (-eps).exp() / 2}  # x < 0 and x > 1
    for a, b in pairwise(ends):
        middle = float(a + b) / 2
        here, there = middle >= gamma, 1 - middle >= gamma  # steps down from the height
        found[int(there) - int(here)] += (b - a) * height * (-eps * int(here)).exp()
    return found


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0, 40.0, 300.0])
@pytest.mark.parametrize("gamma", [None, 0.0, 0.2, 0.5, 0.9, 1.0])
def test_masses_are_those_of_the_density(epsilon, gamma):
    mechanism = Staircase(epsilon, gamma=gamma)
    truth = masses_from_the_density(epsilon, mechanism.gamma)
    present = [k for k in (1, 0, -1) if k or truth[0] > 0]
    p = [truth[k] for k in present]
    assert_atoms(mechanism.pair(REMOVE), p, p[::-1], [k * arb(epsilon) for k in present])


@pytest.mark.parametrize("epsilon", [1e-9, 0.5, 3.0, 800.0, 1e4])
def test_directions_agree_and_parameters_come_back(epsilon):
    assert_consistent(Staircase(epsilon))
    assert_comes_back(Staircase(epsilon))
    assert_comes_back(Staircase(epsilon, 2.0, 0.25))


def test_the_default_step_has_the_least_expected_noise():
    def expected(gamma):  # Geng, Viswanath 2014: E|X| for sensitivity 1
        b = math.exp(-2.0)
        height = (1 - b) / (2 * (gamma + b * (1 - gamma)))
        steps = sum(
            b**k * (((k + gamma) ** 2 - k**2) / 2 + b * ((k + 1) ** 2 - (k + gamma) ** 2) / 2)
            for k in range(60)
        )
        return 2 * height * steps

    best = Staircase(2.0).gamma
    assert best is not None
    assert best == pytest.approx(1 / (1 + math.e), rel=1e-15)
    assert all(expected(best) < expected(best + d) for d in (-0.05, -0.01, 0.01, 0.05))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Staircase(0.0), "epsilon must be a finite number > 0, got 0.0"),
        (lambda: Staircase(math.nan), "epsilon must be a finite number > 0, got nan"),
        (lambda: Staircase("1"), "epsilon must be a finite number > 0, got '1'"),
        (lambda: Staircase(1.0, -1.0), "sensitivity must be a finite number > 0, got -1.0"),
        (lambda: Staircase(1.0, gamma=1.5), r"gamma must be in \[0, 1\], got 1.5"),
        (lambda: Staircase(1.0, gamma=True), r"gamma must be in \[0, 1\], got True"),
    ],
)
def test_refusals_name_the_parameter(build, message):
    with pytest.raises(ParameterError, match=message):
        build()
