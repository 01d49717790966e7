"""The four-output pair against 400-bit ball arithmetic."""

# Refusals are shown what a type checker would have refused before.
# mypy: disable-error-code="arg-type"

from __future__ import annotations

import math

import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from tests.mechanisms.checks import (
    REMOVE,
    assert_atoms,
    assert_comes_back,
    assert_consistent,
    assert_holds,
    delta,
)

from tightbudget.errors import ParameterError
from tightbudget.mechanisms import ApproximateDP


@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 0.1, 1.0, 30.0, 600.0, 1e4])
@pytest.mark.parametrize("lost", [0.0, 1e-30, 1e-5, 0.5, 1 - 2**-53])
def test_masses_are_those_of_the_definition(epsilon, lost):
    pair = ApproximateDP(epsilon, lost).pair(REMOVE)
    down = (-arb(epsilon)).exp()
    p = [(1 - arb(lost)) / (1 + down), (1 - arb(lost)) * down / (1 + down)]
    assert_atoms(pair, p, p[::-1], [arb(epsilon), -arb(epsilon)])
    assert pair.p_only().lower[0] == pair.p_only().upper[0] == lost
    assert_holds(pair.q_only().lower, pair.q_only().upper, [arb(lost)])
    assert delta(pair, epsilon) == pytest.approx(lost, rel=1e-12, abs=1e-290)


def test_everything_lost_leaves_no_atom():
    pair = ApproximateDP(1.0, 1.0).pair(REMOVE)
    assert not len(pair.atoms())
    assert pair.p_only().lower[0] == 1.0
    assert pair.max_loss() == (-math.inf, -math.inf)


@pytest.mark.parametrize(
    "mechanism", [ApproximateDP(1.0), ApproximateDP(0.0, 0.1), ApproximateDP(1e4, 1e-9)]
)
def test_directions_agree_and_parameters_come_back(mechanism):
    assert_consistent(mechanism)
    assert_comes_back(mechanism)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ApproximateDP(-0.1), "epsilon must be a finite number >= 0, got -0.1"),
        (lambda: ApproximateDP(math.inf), "epsilon must be a finite number >= 0, got inf"),
        (lambda: ApproximateDP(False), "epsilon must be a finite number >= 0, got False"),
        (lambda: ApproximateDP(1.0, math.nan), r"delta must be in \[0, 1\], got nan"),
        (lambda: ApproximateDP(1.0, 1.1), r"delta must be in \[0, 1\], got 1.1"),
        (lambda: ApproximateDP(1.0, "0"), r"delta must be in \[0, 1\], got '0'"),
    ],
)
def test_refusals_name_the_parameter(build, message):
    with pytest.raises(ParameterError, match=message):
        build()


@given(st.floats(0.0, 5.0), st.floats(1e-300, 0.9))
def test_one_run_at_its_own_delta_has_its_own_epsilon(epsilon, delta):
    found = (ApproximateDP(epsilon, delta) * 1).epsilon(delta)
    assert found.lower <= epsilon <= found.upper <= epsilon * (1 + 1e-12) + 1e-300
