"""Compositions of many different pairs: few between which they lie, and few that resemble them."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tightbudget as tb
from tightbudget.engine import engine, methods
from tightbudget.engine.buckets import compose
from tightbudget.engine.buckets.compose import Demand, Part, Parts
from tightbudget.engine.buckets.reading import on_buckets
from tightbudget.engine.buckets.tilt import Saddle
from tightbudget.engine.levels import refine
from tightbudget.engine.levels.profile import LevelProfile, plan_levels
from tightbudget.engine.methods import ByLines, Inquiry, Proved
from tightbudget.engine.question import DeltaAt, EpsilonAt, Question
from tightbudget.mechanisms.gaussian import GaussianPair
from tightbudget.mechanisms.subsampled import AddPair, RemovePair
from tightbudget.pairs.direction import Direction

rates = st.floats(1e-6, 0.9)
multipliers = st.floats(0.05, 5.0)


@pytest.mark.parametrize("kind", [RemovePair, AddPair])
@given(multipliers, multipliers, rates, rates, st.floats(-3.0, 5.0))
@settings(max_examples=60)
def test_a_pair_dominates_both(
    kind: type[RemovePair | AddPair], m: float, n: float, q: float, r: float, epsilon: float
) -> None:
    one, other = kind(GaussianPair(m), q), kind(GaussianPair(n), r)
    both = one.dominating_both(other)
    assert both is not None
    known = both.closed_delta(epsilon)
    for pair in (one, other):
        least = pair.closed_delta(epsilon)
        assert known is None or least is None or known[1] >= least[0]
    assert both == other.dominating_both(one)


def test_pairs_of_different_kinds_have_no_known_one_above() -> None:
    gauss = GaussianPair(1.0)
    laplace = tb.Laplace(1.0).pair(Direction.REMOVE)
    removed, added = RemovePair(gauss, 0.1), AddPair(gauss, 0.1)
    for one, other in ((gauss, laplace), (laplace, gauss), (removed, added), (removed, gauss)):
        assert one.dominating_both(other) is None
    assert RemovePair(laplace, 0.1).dominating_both(removed) is None
    assert laplace.dominating_both(laplace) is laplace


def schedule(noises: list[float], rate: float, runs: int) -> tb.Composition:
    return tb.compose([tb.Gaussian(sigma).subsampled(rate) * runs for sigma in noises])


def parts_of(run: tb.Composition) -> Parts:
    return Parts.of(run.pairs(Direction.REMOVE))


def as_mechanisms(chosen: tuple[Part, ...]) -> tb.Composition:
    pairs = [(part.pair, part.count) for part in chosen]
    return tb.compose([
        tb.Gaussian(1.0, pair.base.m).subsampled(pair.q) * count
        for pair, count in pairs
        if isinstance(pair, RemovePair) and isinstance(pair.base, GaussianPair)
    ])  # fmt: skip


def near(epsilon: float) -> Demand:
    """A demand for delta near an epsilon, with a plain tilt."""
    return Demand(Saddle(3.0, epsilon, math.log(1e-4), 1.0, 0.0, 3.0), 1e-4, 1e-6, 1e-6)


@pytest.mark.parametrize("apart", [0.0, 0.5, 1e9])
def test_many_pairs_lie_between_few(apart: float) -> None:
    exact = schedule([0.8 + 0.2 * i for i in range(7)], 0.05, 3)
    both = parts_of(exact).between(near(1.0), apart)
    assert len(both) in ({0.0: [7], 0.5: [2, 3, 4, 5, 6], 1e9: [1]}[apart])
    below, above = (as_mechanisms(side) for side in zip(*both, strict=True))
    for epsilon in (0.3, 2.0):
        known = exact.delta(epsilon)
        assert below.delta(epsilon).lower <= known.upper
        assert above.delta(epsilon).upper >= known.lower
    assert sum(part.count for part, _ in both) == sum(part.count for _, part in both) == 21


@pytest.mark.parametrize("many", [25, 60, 1000])
def test_the_ends_of_a_schedule_stand_for_themselves(many: int) -> None:
    pairs = schedule([0.8 + 0.01 * i for i in range(many)], 0.05, 3).pairs(Direction.REMOVE)
    few = engine._few(pairs)
    assert len(few) == 12
    assert few[0] == pairs[0]
    assert few[-1] == pairs[-1]
    assert sum(count for _, count in few) == 3 * many


def test_noises_and_rates_in_no_order_lie_between_few() -> None:
    """Pairs of which neither is known to dominate the other are not put together."""
    sampled = [(1.0, 0.1), (1.5, 0.2), (2.0, 0.1), (2.2, 0.1), (0.9, 0.05)]
    exact = tb.compose([tb.Gaussian(sigma).subsampled(rate) for sigma, rate in sampled])
    parts = parts_of(exact)
    both = parts.between(near(1.0), 1e9)
    assert 1 < len(both) < len(parts.parts)
    for one, other in both:
        assert other.pair.dominating_both(one.pair) == other.pair
    below, above = (as_mechanisms(side) for side in zip(*both, strict=True))
    assert below.delta(1.0).lower <= exact.delta(1.0).lower
    assert above.delta(1.0).upper >= exact.delta(1.0).upper


def test_pairs_of_which_one_may_see_an_infinite_loss_are_not_put_together() -> None:
    truncated = tb.TruncatedGaussian(1.0, 3.0)
    run = tb.compose([truncated.subsampled(0.1), truncated.subsampled(0.2)])
    assert run.delta(50.0).lower > 0.0
    assert len(parts_of(run).between(near(1.0), 1e9)) == 2


@pytest.mark.parametrize("direction", Direction)
def test_grids_of_pairs_above_and_below_hold_the_exact_delta(direction: Direction) -> None:
    run = schedule([0.8, 1.0, 1.2, 1.4], 1e-2, 5)
    parts = Parts.of(run.pairs(direction))
    plan = plan_levels(parts, near(0.1), 256, parts.between(near(0.1), 1e9))
    assert len(plan.runs) == 1
    profile = LevelProfile(parts, plan)
    (alone,) = (one for one in run.engine.apart() if one.directions == (direction,))
    exact, bounds = alone.answer(DeltaAt(0.1), 1e-3).bounds, profile.delta(0.1)
    assert 0.0 < bounds.lower < 0.9 * exact.lower
    assert 1.0 > bounds.upper > 1.1 * exact.upper


def test_few_pairs_resemble_many() -> None:
    parts = parts_of(schedule([0.8 + 0.1 * i for i in range(20)], 0.05, 3))
    like = parts.like(4)
    assert len(like.parts) == 4
    assert sum(part.count for part in like.parts) == 60
    assert {part.pair for part in like.parts} <= {part.pair for part in parts.parts}


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("question", [EpsilonAt(1e-30), DeltaAt(1.5)])
def test_a_tilt_that_few_parts_begin_is_that_of_all(kinds: int, question: Question) -> None:
    whole = schedule([0.9 + 0.05 * i for i in range(60)], 1e-3, 4)
    if kinds == 2:  # few that resemble all by their means resemble their tails less
        whole = whole + tb.compose([tb.Laplace(15.0 + i) for i in range(30)])
    asked, parts = on_buckets(question), parts_of(whole)
    assert parts.outline is not parts.picture
    fast = asked.first_tilt(parts)
    with mock.patch.object(compose, "_OUTLINE", 100):
        parts = parts_of(whole)
        assert parts.outline is parts.picture
        slow = asked.first_tilt(parts)
    assert fast.theta == pytest.approx(slow.theta, rel=0.15)
    assert fast.log_delta == pytest.approx(slow.log_delta, rel=0.02, abs=1.0)
    assert fast.epsilon == pytest.approx(slow.epsilon, rel=0.02)


def test_of_mixed_kinds_none_is_above_another() -> None:
    mixed = tb.Laplace(1.0) * 2 + tb.Gaussian(1.0) * 3
    assert len(parts_of(mixed).between(near(1.0), 1e9)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_schedule_is_answered_as_by_all_its_pairs(seed: int) -> None:
    draw = np.random.default_rng([32, seed])
    noises = np.exp(draw.uniform(math.log(0.6), math.log(4.0), 30)).tolist()
    rate, delta = (float(10.0 ** draw.uniform(*ends)) for ends in ((-7.0, -3.5), (-11.0, -6.0)))
    runs = int(draw.integers(1, 100))
    slow = schedule(noises, rate, runs).epsilon(delta)
    with mock.patch.object(refine, "_MANY", 12), mock.patch.object(methods, "_MANY", 12):
        fast = schedule(noises, rate, runs).epsilon(delta)
    assert fast.relative_gap <= 1e-4
    assert fast.lower <= slow.upper
    assert slow.lower <= fast.upper


@pytest.mark.slow
def test_methods_that_few_alike_know_to_be_in_vain_are_not_asked_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lines of thirty noises prove nothing here, which lines of twelve have shown."""
    run = tb.compose([tb.Gaussian(0.5 + i / 60.0).subsampled(5e-9) * 16_000 for i in range(30)])
    asked, plain = list[int](), ByLines.bounds

    def counted(lines: ByLines, inquiry: Inquiry) -> Proved | None:
        asked.append(max(len(one.term.groups) for one in lines.directions))
        return plain(lines, inquiry)

    monkeypatch.setattr(ByLines, "bounds", counted)
    found = run.epsilon(1e-10)
    assert max(asked) <= 12
    monkeypatch.setattr(engine, "_MANY", 1000)
    assert found.overlaps(run.epsilon(1e-10))
    assert max(asked) == 30
    assert found.relative_gap <= 1e-4
