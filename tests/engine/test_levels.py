"""Measures on several grids: lower <= exact <= upper whatever the plan, and both ends meet."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.test_soundness import Step, compositions, epsilons
from tests.exact import Composed, response_delta

import tightbudget as tb
from tightbudget.engine.buckets.compose import Parts, edge_near
from tightbudget.engine.levels.levels import Room
from tightbudget.engine.levels.placing import LevelPlan, Run
from tightbudget.engine.levels.profile import LevelProfile
from tightbudget.engine.levels.refine import by_levels
from tightbudget.engine.question import DeltaAt
from tightbudget.errors import CalibrationError
from tightbudget.pairs.direction import Direction

# ------------------------------------------------------------- any plan whatever, in rationals


@st.composite
def level_plans(
    draw: st.DrawFn,
) -> tuple[
    list[tuple[Step, int]], list[tuple[float, int, float, float]], float, Room, tuple[float, ...]
]:
    """Runs, and a plan of them; each plan is sound, few are wise."""
    runs = draw(compositions())
    kinds = [(step, sum(other == step for other in runs)) for step in dict.fromkeys(runs)]
    wild = st.floats(-40.0, 40.0)
    places = [
        (
            draw(wild),
            draw(st.integers(0, 2)),
            draw(st.floats(0.0, 60.0)),
            draw(st.floats(0.0, 60.0)),
        )
        for _ in kinds
    ]
    base = draw(st.one_of(st.floats(1e-2, 3.0), st.sampled_from([0.25, math.log(2), 1e-3, 10.0])))
    sizes = draw(st.lists(st.sampled_from([16, 16, 32, 64]), min_size=1, max_size=4))
    room = Room(tuple(sizes))
    least = draw(st.sampled_from([0.0, 1e-12, 1e-6, 1e-2, 0.3]))
    coarsening = draw(st.sampled_from([0.0, 1e-6, 1e-2, 10.0]))
    decay = draw(st.sampled_from([0.0, 0.5, 30.0]))
    return kinds, places, base, room, (least, coarsening, decay)


@pytest.mark.slow
@given(
    level_plans(),
    st.sampled_from(Direction),
    st.lists(st.one_of(epsilons, st.floats(-60.0, 0.0)), min_size=1, max_size=5),
)
@settings(max_examples=400)
def test_bounds_hold_whatever_the_plan(task, direction: Direction, at: list[float]) -> None:
    runs, places, base, room, rest = task
    exact = Composed.of(
        step.remove if direction is Direction.REMOVE else step.add
        for step, count in runs
        for _ in range(count)
    )
    pairs = tuple((step.mechanism.pair(direction), count) for step, count in runs)
    levels = tuple(
        Run(pair, count, Fraction(edge), level, edge - left, edge + right, edge)
        for (pair, count), (edge, level, left, right) in zip(pairs, places, strict=True)
    )
    with np.errstate(all="ignore"):  # an overflow is allowed to widen, not to lie
        profile = LevelProfile(Parts.of(pairs), LevelPlan(levels, base, room, *rest))
        for epsilon in at:
            low, high = exact.delta(epsilon)
            bounds = profile.delta(epsilon)
            assert Fraction(bounds.lower) <= high
            assert Fraction(bounds.upper) >= low


# ------------------------------------------------------------------------ closed forms


def seen(run: tb.Composition, reach: int, step: float, direction: int = 0) -> LevelProfile:
    """The profile of a composition with a finest step and so many points of one grid."""
    parts = run.engine.parts[direction]
    levels = []
    for part in parts.parts:
        x, masses = part.sketch.losses, np.exp(part.sketch.log_masses)
        kept = np.cumsum(masses[::-1])[::-1] > 1e-30
        low, high = float(x[0]), float(x[kept][-1])
        edge = edge_near(part, 0.0, step)
        levels.append(Run(part.pair, part.count, edge, 0, low, high, 0.0))
    plan = LevelPlan(tuple(levels), step, Room((reach,)), 1e-30, 1e-9)
    return LevelProfile(parts, plan)


@pytest.mark.parametrize("runs", [1, 7, 64, 301])
def test_losses_on_one_grid_are_exact(runs: int) -> None:
    step = math.log(3.0)  # randomised response with p = 3/4: losses are plus and minus ln 3
    profile = seen(tb.RandomizedResponse(0.75) * runs, 4096, step)
    for epsilon in (0.0, step / 2, 3.2 * step, 40.3 * step):
        low, high = response_delta(Fraction(3, 4), runs, epsilon)
        bounds = profile.delta(epsilon)
        assert Fraction(bounds.lower) <= high
        assert Fraction(bounds.upper) >= low
        assert bounds.relative_gap < 1e-9 or bounds.upper < 1e-25


ROOM = Room((64,))
RARE = tb.Gaussian(0.917).subsampled(1.94e-5) * 407


def test_both_ends_meet_as_grids_grow() -> None:
    gaps = []
    for reach, step in ((512, 9e-6), (1024, 4.5e-6), (2048, 2.2e-6)):
        bounds = seen(RARE, reach, step).delta(0.017797)
        # by buckets of one grid, in extended precision, and by a prototype in doubles
        assert bounds.lower <= 6.61397e-12 <= bounds.upper
        gaps.append(bounds.relative_gap)
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2]
    assert gaps[2] < 1e-3


def test_a_part_without_a_finite_loss_loses_all() -> None:
    run = (tb.RandomizedResponse(0.75) * 2).engine.parts[0]
    (part,) = run.parts
    plan = LevelPlan((Run(part.pair, 2, Fraction(0), 0, -2.0, 2.0, 0.0),), 0.25, ROOM, 0.0, 0.0)
    assert LevelProfile(run, plan).delta(0.5).upper < 0.7
    assert LevelProfile(dataclasses.replace(run, certain=True), plan).delta(0.5).upper == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "delta", "epsilon"),
    [
        # before several grids this was refused; the epsilon is from a prototype in doubles
        (RARE, 6.6e-12, 0.0178038),
        pytest.param(
            tb.Gaussian(1.05).subsampled(1.48e-5) * 385_372,
            1.64e-11,
            0.0635195,
            marks=pytest.mark.slow,
        ),
        # refused before, since a measure would need millions of buckets
        (tb.Gaussian(14.4).subsampled(3.56e-8) * 39_700, 5.48e-10, 1.32518e-6),
        # a first look takes three passes; the epsilon is a line's through a saddle point
        (tb.Gaussian(41.2).subsampled(4.1e-8) * 76_400, 9.74e-8, 2.565618e-8),
    ],
    ids=["a few hundred runs", "a year of runs", "a rate of a few billionths", "much noise"],
)
def test_rare_samples_are_answered_at_the_default_gap(
    run: tb.Composition, delta: float, epsilon: float
) -> None:
    bounds = run.epsilon(delta)
    assert bounds.relative_gap <= 1e-4
    assert bounds.lower * (1 - 2e-5) <= epsilon <= bounds.upper * (1 + 2e-5)


# -------------------------------------------------------- losses beyond the last point

CUT = {
    "gaussian": tb.Gaussian(0.7),
    "sampled": tb.Gaussian(0.3).subsampled(0.1),
    "laplace": tb.Laplace(0.4),
    "atoms": tb.DiscreteLaplace(2.0, 3),
    "only under P": tb.HistogramPair((5, 1, 2), (1, 4, 0)),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mechanism", CUT.values(), ids=CUT)
@given(
    top=st.floats(-1.0, 5.0),
    step=st.sampled_from([0.25, 0.01, 1 / 3]),
    points=st.sampled_from([16, 64, 256]),
    epsilon=st.floats(0.0, 5.0),
)
@settings(max_examples=30)
def test_a_grid_may_end_anywhere(mechanism, top: float, step: float, points: int, epsilon: float):
    run = tb.compose([mechanism])
    for parts, one in zip(run.engine.parts, run.engine.apart(), strict=True):
        edge = edge_near(parts.parts[0], 0.0, step)
        plan = LevelPlan(
            (Run(parts.parts[0].pair, 1, edge, 0, -9.0, max(top, float(edge)), 0.0),),
            step,
            Room((points,)),
            0.0,
            0.0,
        )
        bounds = LevelProfile(parts, plan).delta(epsilon)
        exact = one.answer(DeltaAt(epsilon), 1e-6, insist=False).bounds
        assert bounds.lower <= exact.upper
        assert exact.lower <= bounds.upper


def test_losses_beyond_the_last_point_count_there() -> None:
    parts = tb.compose([tb.Gaussian(0.1)]).engine.parts[0]  # a loss is 50 on average
    edge = edge_near(parts.parts[0], 0.0, 0.5)
    plan = LevelPlan(
        (Run(parts.parts[0].pair, 1, edge, 0, -9.0, 5.0, 0.0),), 0.5, Room((64,)), 0.0, 0.0
    )
    bounds = LevelProfile(parts, plan).delta(1.0)
    assert bounds.lower > 0.999 * -math.expm1(1.0 - 5.0)
    assert bounds.upper == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("sigma", [1e-3, 1e-4, 1e-8])
def test_samples_with_hardly_any_noise_are_answered(sigma: float) -> None:
    """Whoever is in a sample is seen: delta is the chance to be in one."""
    run = tb.Gaussian(sigma).subsampled(0.01) * 20
    for epsilon in (0.1, 1.0, 30.0):
        bounds = run.delta(epsilon)
        assert bounds.lower <= 1 - 0.99**20 * (1 - 1e-12)
        assert bounds.upper >= 1 - 0.99**20 * (1 + 1e-12)


def test_a_target_that_any_noise_meets_is_refused() -> None:
    """A record is in no sample with a chance of 0.82: no attack with fpr .1 has a tpr of .3."""
    with pytest.raises(CalibrationError, match="all meet the target"):
        tb.calibrate(lambda s: tb.Gaussian(s).subsampled(0.01) * 20, tpr=0.3, fpr=0.1)


@pytest.mark.slow
def test_many_noises_are_answered_where_one_loss_makes_delta() -> None:
    """Grids that were shorter the more noises there are left a gap of 2 % at any number of points.

    The delta is at least that of the runs with the least noise alone.
    """
    noises = [0.684 + 1.106 * i / 37 for i in range(38)]
    steps = [tb.Gaussian(sigma).subsampled(1.97e-6) * 27 for sigma in noises]
    bounds, least = tb.compose(steps).delta(5.53), steps[0].delta(5.53)
    assert bounds.relative_gap <= 1e-4
    assert least.upper < bounds.lower < 1.02 * least.lower


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "epsilon", "direction"),
    [
        (1e-3, 3e-3, Direction.REMOVE),
        (1e-3, 5e-4, Direction.ADD),
        (1e-8, 3e-8, Direction.REMOVE),
        (1e-8, 5e-9, Direction.ADD),
        (1e-3, 9.0, Direction.REMOVE),  # 8.8e-58
    ],
)
def test_two_rare_runs_hold_the_integral(rate: float, epsilon: float, direction: Direction) -> None:
    """Delta of two runs is the mean of one run's closed form over the other one's losses."""
    mp = mpmath.mp.clone()
    mp.dps = 80
    q, sign = mp.mpf(rate), -1 if direction is Direction.ADD else 1

    def loss(x: mpmath.mpf) -> mpmath.mpf:
        """The loss at x, of a density N(0, 1) and a mixture with N(1, 1)."""
        return sign * mp.log(1 - q + q * mp.exp(x - mp.mpf(1) / 2))

    def masses(x: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
        """The mixture's mass and the plain one above x."""
        plain, moved = (mp.erfc((x - m) / mp.sqrt(2)) / 2 for m in (0, 1))
        return (1 - q) * plain + q * moved, plain

    def one(epsilon: mpmath.mpf) -> mpmath.mpf:
        odds = (mp.exp(sign * epsilon) - 1 + q) / q  # e^(x - 1/2) where the loss is epsilon
        if odds <= 0:
            return 1 - mp.exp(epsilon) if sign > 0 else mp.mpf(0)
        mixed, plain = masses(mp.log(odds) + mp.mpf(1) / 2)
        if sign > 0:
            return mixed - mp.exp(epsilon) * plain
        return (1 - plain) - mp.exp(epsilon) * (1 - mixed)

    def weight(x: mpmath.mpf) -> mpmath.mpf:
        plain, moved = (mp.npdf(x, m, 1) for m in (0, 1))
        return (1 - q) * plain + q * moved if sign > 0 else plain

    # the other run's formula changes where it is asked for its least loss
    kink = mp.log((mp.exp(sign * mp.mpf(epsilon)) / (1 - q) - 1 + q) / q) + mp.mpf(1) / 2
    at = [kink + k for k in (-50, *range(-30, 21), 40)]
    exact = mp.quad(lambda x: weight(x) * one(epsilon - loss(x)), at)
    parts = (tb.Gaussian(1.0).subsampled(rate) * 2).engine.parts
    found = by_levels(
        DeltaAt(epsilon), (parts[list(Direction).index(direction)],), 1e-4, None, None
    )
    assert found is not None
    assert found.relative_gap <= 1e-4
    assert found.lower <= float(exact) * (1 + 1e-9)
    assert found.upper >= float(exact) * (1 - 1e-9)
