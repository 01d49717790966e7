"""Groups of records of one user: known values, laws, and mechanisms that are refused."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import tightbudget as tb
from tightbudget.engine.engine import Engine
from tightbudget.engine.question import DeltaAt
from tightbudget.errors import ParameterError
from tightbudget.mechanisms.group import merged

STEP = tb.Gaussian(1.0).subsampled(0.01)


@pytest.mark.parametrize(
    ("size", "lower", "upper"),
    [
        (2, 4.55396, 4.55433),
        (4, 10.0150, 10.0158),
        (8, 23.0819, 23.0836),
        pytest.param(16, 57.0751, 57.0794, marks=pytest.mark.slow),
    ],
)  # by the buckets, from mixtures with binomial weights
def test_known_values_of_a_thousand_sampled_steps(size: int, lower: float, upper: float) -> None:
    found = (STEP.group(size) * 1000).answer(delta=1e-6, rtol=1e-9)
    assert found.reached
    assert found.method == "saddle-point"
    assert lower <= found.bounds.lower <= found.bounds.upper <= upper


def test_a_group_of_one_record_is_the_step_itself() -> None:
    for step in (STEP, tb.Laplace(2.0), tb.ApproximateDP(0.5, 1e-3)):
        assert (step.group(1) * 3).delta(0.3) == (step * 3).delta(0.3)


def test_a_group_without_a_sample_moves_the_query_by_so_much_more() -> None:
    assert (tb.Gaussian(6.0).group(3) * 2).epsilon(1e-5) == (tb.Gaussian(2.0) * 2).epsilon(1e-5)
    exact = tb.DiscreteLaplace(4.0, sensitivity=6)
    assert tb.DiscreteLaplace(4.0, sensitivity=2).group(3).delta(0.5) == exact.delta(0.5)
    assert tb.Laplace(4.0).group(2).group(2).delta(0.3) == tb.Laplace(1.0).delta(0.3)
    always = tb.Gaussian(6.0).subsampled(1.0).group(3)
    assert always.delta(0.3).overlaps(tb.Gaussian(2.0).delta(0.3))
    never = tb.Gaussian(6.0).subsampled(0.0)
    assert never.group(3).delta(0.0).upper == 0.0
    assert never.subsampled(0.5).group(3).delta(0.0).upper == 0.0


@pytest.mark.parametrize("step", [STEP, tb.Laplace(3.0).subsampled(0.2)], ids=str)
def test_more_records_reveal_more(step: tb.Mechanism) -> None:
    found = [(step.group(size) * 20).epsilon(1e-4) for size in (1, 2, 3, 6)]
    for smaller, larger in itertools.pairwise(found):
        assert smaller.upper < larger.lower


@pytest.mark.parametrize("direction", tb.mechanisms.Direction, ids=str)
def test_one_run_is_what_lies_beyond_an_output(direction: tb.mechanisms.Direction) -> None:
    # delta at the output z whose loss is eps, from normal tails alone
    size, q = 3, 0.2
    weights = [math.comb(size, i) * q**i * (1 - q) ** (size - i) for i in range(size + 1)]

    def tail(z: float) -> float:
        return 0.5 * math.erfc(z / math.sqrt(2))

    def log_ratio(z: float) -> float:
        return math.log(sum(w * math.exp(i * z - i * i / 2) for i, w in enumerate(weights)))

    pair = tb.Gaussian(1.0).subsampled(q).group(size).pair(direction)
    for z in (0.5, 1.0, 2.5) if direction is tb.mechanisms.Direction.REMOVE else (-0.5, -1.0, -2.5):
        with_it, without = sum(w * tail(z - i) for i, w in enumerate(weights)), tail(z)
        if direction is tb.mechanisms.Direction.REMOVE:
            epsilon = log_ratio(z)
            truth = with_it - math.exp(epsilon) * without
        else:
            epsilon = -log_ratio(z)
            truth = (1 - without) - math.exp(epsilon) * (1 - with_it)
        engine = Engine.of({direction: ((pair, 1),)})
        bounds = engine.answer(DeltaAt(epsilon), 1e-4).bounds
        assert bounds.lower <= truth * (1 + 1e-9)
        assert truth * (1 - 1e-9) <= bounds.upper


def test_sampling_a_sample_is_one_sample() -> None:
    one = (tb.Gaussian(1.0).subsampled(0.25).group(3) * 10).epsilon(1e-6)
    two = (tb.Gaussian(1.0).subsampled(0.5).subsampled(0.5).group(3) * 10).epsilon(1e-6)
    assert one == two


def test_other_noise_is_between_one_record_s_reach_and_public_numbers() -> None:
    # one run at eps 0, where all of the group's numbers count: the exact value lies inside
    q, size, scale = 0.2, 3, 2.0
    found = tb.Laplace(scale).subsampled(q).group(size).delta(0.0)
    weights = [math.comb(size, i) * q**i * (1 - q) ** (size - i) for i in range(size + 1)]
    x = np.linspace(-60.0, 70.0, 2_000_001)
    p = sum(w * np.exp(-np.abs(x - i) / scale) for i, w in enumerate(weights)) / (2 * scale)
    apart = np.maximum(p - np.exp(-np.abs(x) / scale) / (2 * scale), 0.0)
    exact = float(np.sum(apart)) * float(x[1] - x[0])
    assert found.lower <= exact * (1 + 1e-5)
    assert exact * (1 - 1e-5) <= found.upper
    assert found.upper <= 1.3 * found.lower


def test_merged_chances_are_ordered() -> None:
    size, rate = 60, Fraction(1e-6)
    up, down = merged(size, rate, 1000, up=True), merged(size, rate, 1000, up=False)
    assert up != down
    few = merged(size, rate, 20, up=True), merged(size, rate, 20, up=False)
    exact = [math.comb(size, i) * rate**i * (1 - rate) ** (size - i) for i in range(size + 1)]

    def at_least(found: tuple, i: int) -> Fraction:
        return sum((Fraction(s) for n, s in zip(*found, strict=True) if n >= i), Fraction(0))

    for larger, smaller in ((up, down), few):
        assert len(larger[0]) <= 1000
        for i in range(1, size + 1):
            truth = sum(exact[i:])
            assert at_least(smaller, i) <= truth * (1 + Fraction(1, 10**25))
            assert truth * (1 - Fraction(1, 10**25)) <= at_least(larger, i)


def test_a_large_group_s_two_ends_meet() -> None:
    large = tb.Gaussian(200.0).subsampled(0.01).group(2000)
    assert large.instance() is not None
    assert STEP.group(8).instance() is None
    assert (large * 10).epsilon(1e-6).relative_gap <= 1e-9


@pytest.mark.slow
def test_many_different_groups_are_no_schedule_of_sampled_gaussians() -> None:
    steps = [tb.Gaussian(2.0 + i / 16).subsampled(0.01).group(4) for i in range(14)]
    run = tb.compose(steps)
    found = (tb.compose([steps[-1]] * 14)).epsilon(1e-5)
    assert found.upper < run.epsilon(1e-5).lower


def test_an_either_of_groups_is_a_group_of_the_either() -> None:
    both = tb.either(0.25, STEP, tb.Laplace(3.0))
    apart = tb.either(0.25, STEP.group(3), tb.Laplace(3.0).group(3))
    assert both.group(3).delta(0.5) == apart.delta(0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: STEP.group(0), "size must be an integer >= 1, got 0"),
        (lambda: STEP.group(100_001), "size must be at most 100000, got 100001"),
        (
            lambda: tb.ApproximateDP(1.0).group(2),
            "nothing is proved for a group of records under worst_case: ask for a group of",
        ),
        (
            lambda: tb.Staircase(1.0).subsampled(0.1).group(2),
            "nothing is proved for a group of records under staircase",
        ),
        (
            lambda: tb.Laplace(1.0).subsampled(1e-80).subsampled(1e-80).group(2),
            "the rate of a sample of a sample must be 0 or at least 1e-100 for a group",
        ),
    ],
)
def test_refusals(make, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make()


def test_it_is_read_back_from_its_table_and_shown_as_it_was_made() -> None:
    group = STEP.group(4)
    assert repr(group) == "Gaussian(sigma=1.0).subsampled(0.01).group(size=4)"
    assert tb.Mechanism.from_dict(group.to_dict()) == group
    table = {"mechanism": "gaussian", "sigma": 1.0, "rate": 0.01, "group": 4}
    assert tb.Mechanism.from_dict(table) == group
