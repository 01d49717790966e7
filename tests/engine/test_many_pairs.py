"""Compositions of many different pairs: few that dominate them, and few that resemble them."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tightbudget as tb
from tightbudget.engine import methods
from tightbudget.engine.buckets import compose
from tightbudget.engine.buckets.compose import Parts
from tightbudget.engine.buckets.reading import on_buckets
from tightbudget.engine.levels import refine
from tightbudget.engine.question import DeltaAt, EpsilonAt, Question
from tightbudget.mechanisms.gaussian import GaussianPair
from tightbudget.mechanisms.subsampled import AddPair, RemovePair
from tightbudget.numerics.bounds import Bounds
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


def as_mechanisms(parts: Parts) -> tb.Composition:
    pairs = [(part.pair, part.count) for part in parts.parts]
    return tb.compose([
        tb.Gaussian(1.0, pair.base.m).subsampled(pair.q) * count
        for pair, count in pairs
        if isinstance(pair, RemovePair) and isinstance(pair.base, GaussianPair)
    ])  # fmt: skip


@pytest.mark.parametrize("most", [1, 3, 7, 20])
def test_few_pairs_dominate_many(most: int) -> None:
    exact = schedule([0.8 + 0.2 * i for i in range(7)], 0.05, 3)
    above = parts_of(exact).above(most)
    assert above is not None
    assert len(above.parts) <= most
    assert sum(part.count for part in above.parts) == 21
    for epsilon in (0.3, 2.0):
        assert as_mechanisms(above).delta(epsilon).upper >= exact.delta(epsilon).lower


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


def test_of_mixed_kinds_no_pairs_above_are_known() -> None:
    mixed = tb.Laplace(1.0) * 2 + tb.Gaussian(1.0) * 3
    assert parts_of(mixed).above(1) is None


def test_pairs_that_dominate_give_an_upper_bound_only() -> None:
    run = schedule([0.8, 1.0, 1.2, 1.4], 1e-3, 5)
    parts, asked = parts_of(run), on_buckets(EpsilonAt(1e-6))
    start = Bounds(0.0, math.inf)
    search = refine._Search(asked, parts, asked.first_tilt(parts), None, 0, start, math.inf)
    search.learn(refine._Goal(0.02, 1e-9, None, rough=True), few=1)
    exact = run.epsilon(1e-6)
    assert search.known.upper >= exact.lower
    assert search.known.lower <= exact.upper


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_schedule_is_answered_as_by_all_its_pairs(seed: int) -> None:
    draw = np.random.default_rng([32, seed])
    noises = np.exp(draw.uniform(math.log(0.6), math.log(4.0), 30)).tolist()
    rate, delta = (float(10.0 ** draw.uniform(*ends)) for ends in ((-7.0, -3.5), (-11.0, -6.0)))
    runs = int(draw.integers(1, 100))
    slow = schedule(noises, rate, runs).epsilon(delta)
    with mock.patch.object(refine, "_MANY", 8), mock.patch.object(methods, "_MANY", 8):
        fast = schedule(noises, rate, runs).epsilon(delta)
    assert fast.relative_gap <= 1e-4
    assert fast.lower <= slow.upper
    assert slow.lower <= fast.upper
