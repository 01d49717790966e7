"""Masses on the points of a grid: upper ones are not below exact values, lower ones not above.

An exact value is what the formula gives for the doubles that go in, in balls or in fractions.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from tests.balls import ball

from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.engine.levels.levels import Levels, Room
from tightbudget.engine.levels.masses import Lower, Upper, lowered
from tightbudget.engine.levels.placing import LevelPlan, Run, placed
from tightbudget.mechanisms import Gaussian, Mechanism, RandomizedResponse
from tightbudget.pairs.direction import Direction

STEP, ROOM = 0.37, Room((1024,))
SIZES = [5, 400, 3000]  # products one by one, and by blocks


@pytest.fixture(autouse=True)
def precise() -> Iterator[None]:
    with ctx.workprec(200):
        yield


def drawn(n: int, seed: int, low: float = -12.0) -> np.ndarray:
    """n masses of different sizes."""
    return np.exp(np.random.default_rng(seed).uniform(low, 0.0, n))


def summed(a: np.ndarray, b: np.ndarray, at: int) -> Fraction:
    """The exact sum of a[i] b[at - i]."""
    return sum(
        (
            Fraction(float(a[i])) * Fraction(float(b[at - i]))
            for i in range(max(0, at - b.size + 1), min(at, a.size - 1) + 1)
        ),
        Fraction(0),
    )


def places(n: int) -> list[int]:
    return sorted({0, 1, n // 3, n // 2, n - 1})


@pytest.mark.parametrize("n", SIZES)
def test_a_product_of_upper_masses_is_not_below_the_exact_one(n: int) -> None:
    a, b = drawn(n, 1), drawn(n, 2)
    found = Upper(3, a).convolved(Upper(-7, b))
    assert found.first == -4
    for at in places(2 * n - 1):
        exact = summed(a, b, at)
        assert exact <= Fraction(float(found.u[at])) <= exact + Fraction(1, 10**12) * n


@pytest.mark.parametrize("n", SIZES)
def test_a_product_of_lower_masses_has_less_p_and_more_excess(n: int) -> None:
    p, r, other_p, other_r = drawn(n, 1), drawn(n, 2, -30.0), drawn(n, 3), drawn(n, 4, -30.0)
    one, other = Lower(0, p, r, 0.1), Lower(0, other_p, other_r, 0.2)
    found = one.convolved(other)
    q = [Fraction(float(x)) + Fraction(float(y)) for x, y in zip(other_p, other_r, strict=True)]
    wider = arb(found.shift) - arb(0.1) - arb(0.2)
    for at in places(2 * n - 1):
        exact = summed(p, other_p, at)
        assert exact - Fraction(1, 10**12) * n <= Fraction(float(found.p[at])) <= exact
        excess = summed(p, other_r, at) + sum(
            Fraction(float(r[i])) * q[at - i] for i in range(max(0, at - n + 1), min(at, n - 1) + 1)
        )
        # the Q-mass is (p + r) e^-(x + shift), and the shift was rounded
        least = ball(excess) + (ball(excess) + arb(float(found.p[at]))) * (wider.exp() - 1)
        assert arb(float(found.r[at])) >= least


def test_sums_on_one_grid_round_outwards() -> None:
    a, b = drawn(7, 1), drawn(9, 2)
    found = Upper(2, a) + Upper(0, b)
    for i in range(7):
        assert Fraction(float(found.u[i + 2])) >= Fraction(float(a[i])) + Fraction(float(b[i + 2]))
    small, more = Lower(2, a, b[:7], 0.1), Lower(0, b, drawn(9, 3), 0.1)
    both = small + more
    for i in range(7):
        assert Fraction(float(both.p[i + 2])) <= Fraction(float(a[i])) + Fraction(float(b[i + 2]))
        assert Fraction(float(both.r[i + 2])) >= Fraction(float(b[i])) + Fraction(
            float(more.r[i + 2])
        )


@pytest.mark.parametrize("step", [1e-9, STEP, 3.0])
def test_a_spread_moves_mass_to_the_right(step: float) -> None:
    u = np.array([0.0, 0.7, 0.0])
    found = Upper(0, u).doubled(step)
    left, right = arb(float(found.u[0])), arb(float(found.u[1]))
    moved = arb(0.7)
    # shares that keep both masses, each rounded: mass is added, and goes right
    assert right >= moved / (1 + (-arb(step)).exp())
    assert left + right >= moved
    assert left <= moved / (1 + arb(step).exp()) * (1 + arb(1e-14))
    assert right <= moved / (1 + (-arb(step)).exp()) * (1 + arb(1e-14))


@pytest.mark.parametrize("shift", [0.1, 1e-9])
def test_a_larger_shift_has_a_larger_excess(shift: float) -> None:
    p, r = drawn(6, 1), drawn(6, 2, -40.0)
    found = Lower(0, p, r, 0.5 * shift).shifted(shift)
    moved = (arb(shift) - arb(0.5 * shift)).exp()
    for i in range(6):
        exact = (arb(float(p[i])) + arb(float(r[i]))) * moved - arb(float(p[i]))
        assert exact <= arb(float(found.r[i])) <= exact * (1 + arb(1e-13))


@pytest.mark.parametrize("step", [1e-9, 0.01])
def test_a_shift_is_cut_back_at_the_price_of_no_loss(step: float) -> None:
    p, r = drawn(40, 1), drawn(40, 2, -40.0)
    found = Lower(0, p, r, 21.0 * step).settled(step)
    moved = (arb(found.shift) - arb(21.0 * step)).exp()
    for i in range(40):
        exact = (arb(float(p[i])) + arb(float(r[i]))) * moved - arb(float(p[i]))
        assert arb(float(found.r[i])) >= exact
        assert float(found.r[i]) <= max(0.0, float(exact)) + 1e-14 * (float(r[i]) + step)


@pytest.mark.parametrize("step", [1e-9, 0.01, 2.0])
def test_a_merge_keeps_both_masses_of_its_points(step: float) -> None:
    p, r = drawn(9, 1), drawn(9, 2, -40.0)
    found = Lower(-4, p, r, step).placed(step)
    # -4 .. 4 go to -1, 0 and 1: ties towards the origin
    assert (found.first, found.p.size) == (-1, 3)
    groups = [range(2), range(2, 7), range(7, 9)]
    for group, at in zip(groups, range(3), strict=True):
        assert Fraction(float(found.p[at])) <= sum(Fraction(float(p[i])) for i in group)
        label = (at - 1) * 4 * arb(step) + arb(found.shift)
        exact, light = arb(0), arb(0)
        for i in group:
            own = (i - 4) * arb(step) + arb(step)
            exact += (arb(float(p[i])) + arb(float(r[i]))) * (label - own).exp()
            light += arb(float(p[i]))
        assert light + arb(float(found.r[at])) >= exact
        assert float(found.r[at]) <= float(exact - light) * (1 + 1e-12)


def test_p_is_lowered_and_an_excess_raised_by_their_errors() -> None:
    p, r = lowered(np.array([0.5, 1e-3]), np.array([0.1, 0.2]), np.array([0.1, 1.0]), np.ones(2))
    assert 0.4 * (1 - 1e-15) <= p[0] <= 0.4
    assert p[1] == r[1] == 0.0
    assert Fraction(float(r[0])) >= Fraction(0.1) + 1


@pytest.mark.parametrize("epsilon", [-1.0, 0.3, 1.1])
def test_readings_are_on_their_side_of_the_sum(epsilon: float) -> None:
    p, r = drawn(9, 1, -3.0), drawn(9, 2, -6.0) * 1e-3
    x, slack = Grid(Fraction(-1, 3), STEP).losses(9)
    points = [arb(-1) / 3 + i * arb(STEP) for i in range(9)]
    above = sum(
        (arb(float(p[i])) * (1 - (arb(epsilon) - points[i]).exp()) for i in range(9)
         if points[i] > arb(epsilon)), arb(0),
    )  # fmt: skip
    assert above <= arb(Upper(0, p).delta(x, slack, epsilon)) <= above * (1 + arb(1e-13))
    below, shift = arb(0), 0.01
    for i in range(9):
        odds = (arb(epsilon) - points[i] - arb(shift)).exp()
        gain = arb(float(p[i])) - odds * (arb(float(p[i])) + arb(float(r[i])))
        below += gain if gain > 0 else 0
    found = arb(Lower(0, p, r, shift).delta(x, slack, epsilon))
    assert below * (1 - arb(1e-12)) <= found <= below


def test_lost_mass_of_either_measure_is_lost() -> None:
    u, v = np.array([0.3, 0.2]), np.array([0.1, 0.7])
    one = Levels(Fraction(0), 1.0, {0: Upper(0, u)}, ROOM, 0.0, 0.1)
    other = Levels(Fraction(0), 1.0, {0: Upper(0, v)}, ROOM, 0.0, 0.3)
    finite = [sum(Fraction(float(x)) for x in masses) for masses in (u, v)]
    i, j = Fraction(0.1), Fraction(0.3)
    exact = (finite[0] + i) * (finite[1] + j) - finite[0] * finite[1]
    assert exact <= Fraction((one * other).infinite) <= exact * (1 + Fraction(1, 10**14))


def test_what_is_cut_is_kept_or_lost() -> None:
    u = drawn(30, 5)
    cut = Levels(Fraction(0), 1.0, {0: Upper(0, u)}, ROOM, 0.0, 0.0).trimmed(1e-3)
    assert cut.on[0].mass.size < 30
    kept = sum(Fraction(float(x)) for x in cut.on[0].mass) + Fraction(cut.infinite)
    assert kept >= sum(Fraction(float(x)) for x in u)


def test_grids_that_are_cut_whole_are_lost() -> None:
    u = drawn(30, 5)
    cut = Levels(Fraction(0), 1.0, {0: Upper(0, u)}, ROOM, 0.0, 0.0).trimmed(100.0)
    assert not cut.on
    assert Fraction(cut.infinite) >= sum(Fraction(float(x)) for x in u)


def run_of(mechanism: Mechanism, low: float, high: float) -> tuple[Levels[Upper], Levels[Lower]]:
    """One run on a grid of step 1/4."""
    run = Run(mechanism.pair(Direction.REMOVE), 1, Fraction(0), 0, low, high, 0.0)
    return placed(run, LevelPlan((run,), 0.25, ROOM, 0.0, 0.0))


def test_atoms_off_the_grid_are_lifted_or_lost() -> None:
    upper, _ = run_of(RandomizedResponse(0.75), -0.25, 0.25)
    assert Fraction(upper.infinite) >= Fraction(3, 4)
    assert sum(Fraction(float(x)) for x in upper.on[0].mass) >= Fraction(1, 4)


def test_one_run_keeps_its_masses() -> None:
    """Of N(1, 1) and N(0, 1), whose losses lie on 12 standard deviations of a grid."""
    upper, lower = run_of(Gaussian(1.0), -12.0, 12.0)
    (u, x, _), (pair, y, _) = upper.axes()[0], lower.axes()[0]
    assert isinstance(u, Upper)
    assert isinstance(pair, Lower)
    heavy = [arb(float(mass)) for mass in u.u]
    assert sum(heavy, arb(0)) + arb(upper.infinite) >= 1
    # mass that went further to the left than it may would have more Q-mass than there is
    assert sum((m * (-arb(float(at))).exp() for m, at in zip(heavy, x, strict=True)), arb(0)) <= (
        1 + arb(1e-12)
    )
    light = [arb(float(a)) + arb(float(b)) for a, b in zip(pair.p, pair.r, strict=True)]
    assert sum((m * (-arb(float(at))).exp() for m, at in zip(light, y, strict=True)), arb(0)) >= (
        1 - arb(1e-12)
    )
