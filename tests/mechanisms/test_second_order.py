"""Bounds by second moments above a threshold: the theorem of fixed batches, and what is read."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy import special as sp

import tightbudget as tb
from tightbudget.engine.answer import Answer, Asked
from tightbudget.engine.engine import Engine
from tightbudget.engine.question import DeltaAt, EpsilonAt
from tightbudget.mechanisms.batches import rate_for_second_order
from tightbudget.mechanisms.second_order import (
    _beyond,
    _Excess,
    _log_moment,
    _rest,
    upper_by_second_order,
)
from tightbudget.numerics.bounds import Bounds

# ------------------------------------------------------------------- the inequalities behind it


@pytest.mark.parametrize("level", [Fraction(3, 2), Fraction(4), Fraction(11)])
def test_a_square_is_above_the_gain_and_meets_it_once(level: Fraction) -> None:
    for k, r in itertools.product(range(8), range(40)):
        threshold, ratio = level * k / 8, Fraction(r, 2)
        square = max(ratio - threshold, Fraction(0)) ** 2 / (4 * (level - threshold))
        assert max(ratio - level, Fraction(0)) <= square
    meet = 2 * level - 1
    assert (meet - 1) ** 2 / (4 * (level - 1)) == meet - level


# outcomes of a step: masses under P and Q, in twentieths
STEPS = [((16, 4), (19, 1)), ((10, 10), (4, 16)), ((1, 9, 10), (2, 3, 15)), ((5, 15), (6, 14))]


def excess(pairs: list[tuple[Fraction, Fraction]], k: Fraction) -> Fraction:
    """E_Q[(R - k)+^2] of outcomes with masses under P and Q."""
    return sum((max(p / q - k, Fraction(0)) ** 2 * q for p, q in pairs), Fraction(0))


def test_the_order_survives_an_adversary_who_sees_the_first_outcome() -> None:
    steps = [
        [(Fraction(p, 20), Fraction(q, 20)) for p, q in zip(*step, strict=True)] for step in STEPS
    ]
    # the excess of all outcomes together is at least that of each step; they need not add up to 1
    above = [outcome for step in steps for outcome in step]
    thresholds = [Fraction(i, 40) for i in range(400)]
    composed = [(a * c, b * d) for a, b in above for c, d in above]
    for first in steps:
        for choice in itertools.product(steps, repeat=len(first)):
            seen = [
                (p * pp, q * qq)
                for (p, q), second in zip(first, choice, strict=True)
                for pp, qq in second
            ]
            for k in thresholds[::50]:
                assert excess(seen, k) <= excess(composed, k)


# ----------------------------------------------------------------------- one step of a batch

Z1, Z2 = np.meshgrid(np.linspace(-8.0, 12.0, 201), np.linspace(-8.0, 8.0, 81), indexing="ij")
CELL = 0.1 * 0.2


def excess_of_step(q: float, v, u, other, ks: np.ndarray) -> np.ndarray:
    """E_Q[(R - k)+^2] of (1 - q) N(v) + q N(u) against (1 - q) N(v) + q N(other), in the plane."""

    def density(x):
        return np.exp(-((Z1 - x[0]) ** 2 + (Z2 - x[1]) ** 2) / 2) / (2 * math.pi)

    rest = (1 - q) * density(v)
    p, below = rest + q * density(u), rest + q * density(other)
    ratio = p / below
    return np.array([np.sum(np.maximum(ratio - k, 0.0) ** 2 * below) * CELL for k in ks])


def excess_of_sampled(rate: float, s: float, ks: np.ndarray) -> np.ndarray:
    """E_Q[(R - k)+^2] of the Gaussian mechanism that moves by s, sampled at a rate."""
    z = np.linspace(-11.0, 17.0, 28_001)
    ratio = 1 + rate * np.expm1(s * z - s * s / 2)
    weight = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * 0.001
    return np.array([np.sum(np.maximum(ratio - k, 0.0) ** 2 * weight) for k in ks])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("s", [0.25, 1.0, 2.0])
@pytest.mark.parametrize("q", [0.01, 0.4])
def test_no_step_has_a_larger_excess_at_any_threshold(s: float, q: float) -> None:
    ks = np.unique(np.concatenate([
        1 - q * np.linspace(-3.0, 1.5, 19), np.array([0.0, 0.2, 1.5, 3.0, 8.0])
    ]))  # fmt: skip
    above = excess_of_sampled(q * rate_for_second_order(s), s, ks)
    assert np.all(above >= excess_of_sampled(q, s, ks))
    angles = (0.4, 1.6, 2.4, 3.1, 4.0)
    for around, other in itertools.combinations((0.0, *angles), 2):
        points = [s / 2 * np.array([math.cos(t), math.sin(t)]) for t in (0.0, around, other)]
        for v, u, w in itertools.permutations(points):
            assert np.all(excess_of_step(q, v, u, w, ks) <= above * (1 + 1e-3) + 1e-9)


def test_the_factor_is_what_the_two_inequalities_ask_for() -> None:
    z = np.linspace(-12.0, 24.0, 36_001)
    weight = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * 1e-3
    for s in (0.1, 0.5, 1.0, 2.0, 3.0):
        f, x = rate_for_second_order(s), np.expm1(s * z - s * s / 2)
        variance, gains = np.sum(weight * x * x), np.sum(weight * np.maximum(x, 0) ** 2)
        met = False
        for at in np.linspace(0.02, 1.0, 99):
            short = np.sum(weight * np.minimum(f * x + at, 0.0) ** 2)
            right = gains - np.sum(weight * np.maximum(x - at, 0.0) ** 2)
            left = np.sum(weight * np.minimum(x, 0.0) ** 2)
            left -= np.sum(weight * np.minimum(x + at, 0.0) ** 2)
            slack = 1 + 2e-3  # `at` is a point of a grid
            met |= f * f * slack * variance - short >= variance and (
                (f * f * slack - 1) * gains >= right - left
            )
        assert met, s
        assert f <= 1.039


@pytest.mark.parametrize("s", [0.0, 1e-4, 11.0, math.inf])
def test_no_factor_is_sought_where_doubles_do_not_know_the_differences(s: float) -> None:
    assert rate_for_second_order(s) == math.inf


# -------------------------------------------------------------------------- what is read


def normal_delta(mu: float, epsilon: float) -> float:
    return float(
        sp.ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * sp.ndtr(-mu / 2 - epsilon / mu)
    )


def least_by_moments(mu: float, epsilon: float) -> float:
    """The least of S(k) / (4 (e^eps - k)) for one normal variable, from the closed form of S."""
    level = math.exp(epsilon)
    found = []
    for x in np.linspace(max(0.0, epsilon - 3.0), epsilon - 1e-3, 2000):
        k, z = math.exp(x), x / mu + mu / 2
        s = math.exp(mu * mu) * sp.ndtr(2 * mu - z) - 2 * k * sp.ndtr(mu - z) + k * k * sp.ndtr(-z)
        found.append(s / (4 * (level - k)))
    return float(min(found))


@pytest.mark.parametrize(("mu", "epsilon"), [(0.5, 2.4), (1.0, 5.0), (0.05, 0.2), (2.0, 12.0)])
def test_a_delta_is_read_off_second_moments(mu: float, epsilon: float) -> None:
    engine = tb.Gaussian(1 / mu).engine
    found = upper_by_second_order(engine, DeltaAt(epsilon), epsilon)
    assert normal_delta(mu, epsilon) < least_by_moments(mu, epsilon)
    # the closed form was asked at a grid of k, finer than the one that is read
    assert least_by_moments(mu, epsilon) * (1 - 1e-4) <= found
    assert found <= least_by_moments(mu, epsilon) * 1.05
    # and the epsilon of that delta is this one
    back = upper_by_second_order(engine, EpsilonAt(found), epsilon)
    assert back == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("a", [2.5, 100.0, 3284.0, 74817.5])
def test_what_is_beyond_is_at_least_its_closed_form(a: float) -> None:
    # c r^a y^(2 - a) in 28 digits, for a moment with which it is about 1
    for i in range(40):
        x = 0.001 + 0.37 * i
        moment = (a - 2.0) * x + 2.0 * math.log(a) + i * 0.1
        exact, one = Decimal(a), Decimal(moment)
        log = (exact - 2) * (exact - 2).ln() - exact * exact.ln() + one - (exact - 2) * Decimal(x)
        assert Decimal(_beyond(x, [(a, moment)])) >= 4 * log.exp()
        assert _beyond(x, [(a, moment), (3.0, math.inf)]) == pytest.approx(float(4 * log.exp()))


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 3.0])
def test_what_is_beyond_is_at_least_the_excess_where_delta_is_read_further(mu: float) -> None:
    # E_Q[R^a] = e^(a (a - 1) mu^2 / 2); one order that says little of itself
    moments = [(2.5, 0.5 * 2.5 * 1.5 * mu * mu)]
    for i in range(60):
        x = mu * (0.05 * i)
        k, z = math.exp(x), x / mu + mu / 2
        exact = math.exp(mu * mu) * sp.ndtr(2 * mu - z)
        exact += -2 * k * sp.ndtr(mu - z) + k * k * sp.ndtr(-z)
        found = _rest(x, normal_delta(mu, x), moments)
        assert max(0.0, exact) - 1e-13 * k * k <= found <= _beyond(x, moments)
        # between x and where moments bound the rest delta is not nothing
        assert found >= 0.02 * normal_delta(mu, x)


def test_few_thresholds_are_read_where_rare_large_losses_make_the_moments() -> None:
    # the moments are those of a loss of 1 that comes once in 1e30 times
    asked = []

    def delta(x: float) -> float:
        asked.append(x)
        return normal_delta(1e-3, x) + 1e-31 * max(0.0, 1.0 - x)

    def log_moment(a: float) -> float:
        common, rare = 0.5 * a * (a - 1.0) * 1e-6, (a - 1.0) - 69.0
        return float(np.logaddexp(common, rare))

    found = _Excess.of(delta, log_moment, 4e-3, 4500.0)
    # without the deltas in between 41 of them were read, the last one at a loss of 0.46
    assert len(asked) < 30
    assert asked[-1] < 0.02
    assert found.values[-1] <= 2e-3 * found.values[0]


def test_where_delta_falls_steeply_few_thresholds_are_read() -> None:
    mu = 1e-3
    engine = tb.Gaussian(1 / mu).engine
    asked = []

    def delta(x: float) -> float:
        asked.append(x)
        return normal_delta(mu, x)

    found = _Excess.of(delta, lambda a: _log_moment(engine, a), 4e-3, 4500.0)
    # orders up to 100 alone read 170 of them, down to a delta of 0
    assert len(asked) < 20
    assert asked[-1] < 0.01
    assert found.values[-1] <= 2e-3 * found.values[0]


def test_where_second_moments_do_not_help_the_bound_is_inf() -> None:
    flat = tb.Gaussian(0.2).engine  # delta falls slowly at 0.5
    assert upper_by_second_order(flat, DeltaAt(0.5), 0.5) == math.inf
    assert upper_by_second_order(flat, DeltaAt(0.0), 0.0) == math.inf
    certain = (tb.Gaussian(2.0) + tb.ApproximateDP(0.0, 1e-9)).engine
    assert upper_by_second_order(certain, EpsilonAt(1e-6), 2.0) == math.inf
    assert upper_by_second_order(tb.Gaussian(1.0).engine, EpsilonAt(0.0), 3.0) == math.inf


def test_the_worse_direction_counts() -> None:
    step = tb.Gaussian(1.0).subsampled(0.05) * 200
    both = step.engine
    each = [
        upper_by_second_order(Engine((d,), (p,)), EpsilonAt(1e-5), 3.0)
        for d, p in zip(both.directions, both.pairs, strict=True)
    ]
    assert len(each) == 2
    assert upper_by_second_order(both, EpsilonAt(1e-5), 3.0) == max(each)


def test_a_smaller_bound_takes_the_place_of_a_larger_one() -> None:
    asked = Asked(words="", gap=1e-2)
    wide = Answer(Bounds(1.0, 2.0, apart="batches"), method="buckets")
    assert wide.no_larger_than(2.5, asked) is wide
    assert wide.no_larger_than(math.inf, asked) is wide
    closer = wide.no_larger_than(1.5, asked)
    assert closer.bounds == Bounds(1.0, 1.5, apart="batches")
    assert wide.no_larger_than(1.005, asked).bounds == Bounds(1.0, 1.005)
    # rounding may have put a lower bound above it
    assert wide.no_larger_than(1.0 - 1e-16, asked).bounds == Bounds(1.0, 1.0)


# ------------------------------------------------------------------------- fixed batches


def hull(run: tb.Composition, delta: float) -> float:
    return run.engine.answer(EpsilonAt(delta), 1e-3).bounds.upper


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("sigma", "q", "steps", "delta", "most"),
    [
        (2.0, 100, 10_000, 1e-6, 7.193),
        (4.0, 100, 10_000, 1e-6, 2.586),
        (2.0, 100, 1000, 1e-5, 1.915),
    ],
)
def test_many_steps_have_a_closer_upper_end(
    sigma: float, q: int, steps: int, delta: float, most: float
) -> None:
    run = tb.Gaussian(sigma).batches(1, of=q) * steps
    found = run.epsilon(delta)
    assert found.lower < found.upper < most
    assert found.upper - found.lower < 0.35 * (hull(run, delta) - found.lower)
    assert found.apart == "batches of a fixed size"
    # the same at a delta, and for epsilons that are asked back
    assert run.delta(found.upper).lower < delta
    assert delta <= run.delta(found.upper).upper * 1.05


def test_little_noise_keeps_the_hull() -> None:
    run = tb.Gaussian(0.5).batches(1, of=100) * 100
    assert run.epsilon(1e-5).upper == pytest.approx(hull(run, 1e-5), rel=1e-3)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "other", [tb.Gaussian(4.0), tb.Laplace(5.0), tb.Gaussian(5.0).batches(1, of=9)]
)
def test_other_mechanisms_may_stand_between_the_steps(other: tb.Mechanism) -> None:
    run = tb.Gaussian(2.0).batches(1, of=100) * 2000 + other * 3
    found = run.epsilon(1e-5)
    alone = (tb.Gaussian(2.0).batches(1, of=100) * 2000).epsilon(1e-5)
    assert alone.upper < found.upper
    assert found.lower < found.upper < hull(run, 1e-5) - 0.1


def test_the_answer_is_above_an_adversary_who_adapts() -> None:
    # two steps; the second is the pair of the data sets or its reverse, as the first one's ratio
    # says: the larger gain at each output
    s, q, epsilon = 1.0, 0.3, 0.8
    z = np.linspace(-9.0, 12.0, 2101)
    weight = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * 0.01
    ratio, level = 1 + q * np.expm1(s * z - s * s / 2), math.exp(epsilon)
    for ratios, under_q in ((ratio, weight), (1 / ratio, weight * ratio)):
        ahead = ratios[:, None] * ratio, ratios[:, None] / ratio
        gains = [
            (np.maximum(ahead[0] - level, 0.0) * weight).sum(axis=1),
            (np.maximum(ahead[1] - level, 0.0) * (weight * ratio)).sum(axis=1),
        ]
        adaptive = float((np.maximum(*gains) * under_q).sum())
        run = tb.Gaussian(2.0).batches(3, of=10) * 2
        assert adaptive <= run.delta(epsilon).upper
    assert rate_for_second_order(s) * q < 1.0


def test_batches_without_a_second_order_pair() -> None:
    step = tb.Gaussian(2.0)
    assert step.batches(5, of=5).second_order() is None
    assert step.batches(3, of=5, replacement=True).second_order() is None
    assert step.batches(999, of=1000).second_order() is None  # the rate would be above 1
    assert step.second_order() is None


def test_the_rate_is_not_below_the_share_times_the_factor() -> None:
    factor = Fraction(rate_for_second_order(1.0))
    for size, records in ((1, 3), (2, 3), (1, 5), (3, 7), (5, 11), (1, 10**6)):
        pair = tb.Gaussian(2.0).batches(size, of=records).second_order()
        share = Fraction(size, records)
        assert share * factor <= Fraction(pair.q) <= share * factor * (1 + Fraction(1, 10**15))  # type: ignore[union-attr]
