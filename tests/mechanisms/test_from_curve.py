"""Pairs from curves: the curve of the pair is the hull of the points, exactly."""

# Refusals are shown what a type checker would have refused before.
# mypy: disable-error-code="arg-type"

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mechanisms.checks import ADD, REMOVE, assert_comes_back, assert_consistent, delta

from tightbudget.errors import ParameterError
from tightbudget.mechanisms import ApproximateDP, FromCurve, RandomizedResponse
from tightbudget.pairs.direction import Direction


def normal_curve(epsilon, m=1.0):
    """delta(eps) of the Gaussian mechanism with m = sensitivity / sigma."""

    def cdf(x):
        return (-x / arb(2).sqrt()).erfc() / 2

    e, m = arb(epsilon), arb(m)
    return float(cdf(m / 2 - e / m) - e.exp() * cdf(-m / 2 - e / m))


def assert_curve(pair, epsilons, deltas):
    """The pair's delta, in balls from the lower and upper ends, meets these values."""
    atoms = pair.atoms()
    for epsilon, wanted in zip(epsilons, deltas, strict=True):
        ends = []
        for p, loss, lost in (
            (atoms.p.lower, atoms.loss_lower, pair.p_only().lower),
            (atoms.p.upper, atoms.loss_upper, pair.p_only().upper),
        ):
            gain = (
                arb(float(mass)) * (1 - (arb(epsilon) - arb(float(x))).exp())
                for mass, x in zip(p, loss, strict=True)
                if x > epsilon
            )
            ends.append(arb(float(lost[0])) + sum(gain, arb(0)))
        assert ends[0] <= wanted + 1e-15 <= ends[1] + 3e-14


@pytest.mark.slow
def test_the_pair_goes_through_the_points_of_a_true_curve():
    epsilons = np.linspace(0.0, 6.0, 61)
    deltas = [normal_curve(e) for e in epsilons]
    mechanism = FromCurve(epsilons, deltas)
    assert_curve(mechanism.pair(REMOVE), epsilons, deltas)
    # between the points it lies above the curve, and touches it where they are dense
    for e in np.linspace(-5.95, 5.95, 120):
        assert 0 <= delta(mechanism.pair(REMOVE), e) - normal_curve(e) < 1e-3
    assert delta(mechanism.pair(REMOVE), 50.0) == pytest.approx(deltas[-1], rel=1e-12)


def test_two_points_give_back_the_worst_case():
    for epsilon, lost in ((1.0, 0.0), (0.3, 1e-6), (700.0, 0.1)):
        atoms = FromCurve([epsilon], [lost]).pair(REMOVE).atoms()
        worst = ApproximateDP(epsilon, lost).pair(REMOVE).atoms()
        np.testing.assert_allclose(atoms.p.upper[::-1], worst.p.upper, rtol=1e-14, atol=1e-299)
        np.testing.assert_allclose(atoms.loss_upper[::-1], worst.loss_upper, rtol=1e-14)


def test_a_curve_of_atoms_gives_back_the_atoms():
    p, loss = 0.8, math.log(4)
    curve = FromCurve([0.0, loss], [2 * p - 1, 0.0])
    truth = RandomizedResponse(p).pair(REMOVE)
    for e in np.linspace(-3, 3, 31):
        assert delta(curve.pair(REMOVE), e) == pytest.approx(delta(truth, e), abs=1e-14)


def test_points_that_are_not_convex_or_not_falling_are_replaced_by_their_hull():
    wavy = FromCurve([0.0, 0.5, 1.0, 2.0, 3.0], [0.4, 0.39, 0.05, 0.2, 0.01])
    hull = FromCurve([0.0, 1.0, 3.0], [0.4, 0.05, 0.01])
    for e in np.linspace(-4, 4, 41):
        assert delta(wavy.pair(REMOVE), e) == delta(hull.pair(REMOVE), e)


def test_one_direction_alone_implies_the_other():
    alone = FromCurve([-1.0, 0.0, 1.0], [0.7, 0.3, 0.1], both_ways=False)
    assert not alone.is_symmetric()
    assert FromCurve([0.0], [0.1]).is_symmetric()
    assert alone.pair(ADD).p_only().upper[0] > 0.1


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=8, unique=True),
    st.lists(st.floats(0, 1), min_size=8, max_size=8),
    st.booleans(),
)
def test_any_points_give_a_pair_below_them(epsilons, heights, both_ways):
    epsilons = sorted(epsilons)
    # heights above the smallest delta that is possible
    least = [max(0.0, -math.expm1(e)) for e in epsilons]
    deltas = [min(1.0, d * (1 - h) + h) for d, h in zip(least, heights, strict=False)]
    mechanism = FromCurve(epsilons, deltas, both_ways)
    assert_consistent(mechanism)
    pair = mechanism.pair(REMOVE)
    atoms = pair.atoms()
    assert np.sum(atoms.p.lower) + pair.p_only().lower[0] == pytest.approx(1, abs=1e-12)
    for e, d in zip(epsilons, deltas, strict=True):
        assert delta(pair, e) <= d + 1e-12
        if both_ways:
            assert delta(pair, -e) <= 1 - math.exp(-e) + math.exp(-e) * d + 1e-12
    for direction in Direction:
        curve = [delta(mechanism.pair(direction), e) for e in np.linspace(-4, 4, 33)]
        assert np.all(np.diff(curve) <= 1e-12)


def test_large_and_tiny_losses_stay_exact():
    atoms = FromCurve([1e-12, 1e4], [1e-13, 1e-20]).pair(REMOVE).atoms()
    assert atoms.loss_lower[-2] == pytest.approx(1e-12, rel=1e-14)
    assert atoms.loss_lower[-1] == pytest.approx(1e4, rel=1e-14)


@pytest.mark.parametrize(
    "mechanism",
    [
        FromCurve([0.0, 1.0], [0.4, 0.1]),
        FromCurve([-1.0, 0.0, 1.0], [0.7, 0.4, 0.1], False),
        FromCurve([2.0], [1.0]),
    ],
    ids=lambda m: f"{m.epsilons}-{m.both_ways}",
)
def test_directions_agree_and_parameters_come_back(mechanism):
    assert_consistent(mechanism)
    assert_comes_back(mechanism)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FromCurve([], []), "epsilons must be a non-empty one-dimensional array"),
        (lambda: FromCurve("01", [1.0]), "epsilons must be a non-empty one-dimensional array"),
        (lambda: FromCurve([0.0], [True]), "deltas must be a non-empty one-dimensional array"),
        (lambda: FromCurve([0.0, 1.0], [0.1]), r"deltas must have as many entries as epsilons"),
        (lambda: FromCurve([math.nan], [0.1]), r"epsilons\[0\] must be in .*, got nan"),
        (lambda: FromCurve([math.inf], [0.1]), r"epsilons\[0\] must be in .*, got inf"),
        (lambda: FromCurve([1.0, 1.0], [0.1, 0.1]), r"epsilons\[1\] must be above epsilons\[0\]"),
        (lambda: FromCurve([0.0], [math.nan]), r"deltas\[0\] must be in \[0, 1\], got nan"),
        (lambda: FromCurve([0.0], [-0.1]), r"deltas\[0\] must be in \[0, 1\], got -0.1"),
        (lambda: FromCurve([-1.0], [0.5]), r"deltas\[0\] must be at least 1 - e\^-1.0, got 0.5"),
        (lambda: FromCurve([0.0], [0.1], 1), "both_ways must be True or False, got 1"),
    ],
)
def test_refusals_name_the_parameter(build, message):
    with pytest.raises(ParameterError, match=message):
        build()
