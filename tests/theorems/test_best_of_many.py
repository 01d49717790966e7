"""The best of many runs: against the theorems' closed forms in mpmath, and against exact truths."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

import tightbudget as tb
from tightbudget.numerics.bounds import Bounds
from tightbudget.theorems import renyi
from tightbudget.theorems.best_of_many import ORDERS, BestOfMany, Repetitions

MEANS = (1.5, 10.0, 1000.0, 1e10)
SHAPES = (0.0, 0.5, 1.0, 2.0, 5.0)
ASKED = (1 + 1e-8, 1.1, 2.0, 3.0, 5.0, 10.0, 99.0, 1000.0, 10_000.0, 1e10)


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(40):
        yield


# ------------------------------------------------------------------------------- in mpmath


def mean_of(t: mpf, shape: float) -> mpf:
    """The mean of Definition 1 for gamma = e^-t."""
    gamma, eta = mp.exp(-t), mpf(shape)
    if shape == 0:
        return (1 / gamma - 1) / t
    return eta * (1 - gamma) / (gamma * -mp.expm1(-eta * t))


def log_stop(mean: float, shape: float) -> mpf:
    """Solves the mean for ln(1 / gamma), by bisection."""
    if shape == 1:
        return mp.log(mpf(mean))
    low, high = mpf(0), mpf(60)
    for _ in range(160):
        middle = (low + high) / 2
        low, high = (low, middle) if mean_of(middle, shape) >= mean else (middle, high)
    return high


def gaussian_truth(order: float, rho: float, mean: float, shape: float) -> mpf:
    """Theorem 2 with the best other order and the best one >= ``order``: Corollary 4."""
    r, t, log_mean = mpf(rho), log_stop(mean, shape), mp.log(mpf(mean))
    other = 2 * mp.sqrt(r * t) - r if t > r else t  # of r (x - 1) + t / x, over x > 1
    s = max(mpf(order) - 1, mp.sqrt(log_mean / r))
    return r * (s + 1) + log_mean / s + (1 + mpf(shape)) * other


def exactly(value: float) -> Bounds:
    return Bounds(value, value)


def gaussian(rho: float) -> Callable[[float], Bounds]:
    return lambda order: exactly(order * rho) if order < math.inf else Bounds(0.0, math.inf)


def gaussian_delta(mu: float, epsilon: mpf) -> mpf:
    m = mpf(mu)
    above, below = m / 2 - epsilon / m, -m / 2 - epsilon / m
    return mp.ncdf(above) - mp.exp(epsilon) * mp.ncdf(below)


# ------------------------------------------------------------------------------- closed forms


@pytest.mark.one_in(6)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("rho", [0.01, 0.5, 7.0])
def test_gaussian_noise_is_the_closed_form(rho: float, mean: float, shape: float) -> None:
    best = BestOfMany(gaussian(rho), Repetitions(mean=mean, shape=shape))
    for order in ASKED:
        truth = gaussian_truth(order, rho, mean, shape)
        assert truth * (1 - mpf(10) ** -15) <= best(order).upper <= truth * (1 + 1e-8)
    assert best(math.inf).upper == math.inf


@pytest.mark.parametrize(("rho", "gamma"), [(0.01, 0.01), (1.0, 0.1), (-math.log(0.99), 0.99)])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_closed_form_by_gamma(rho: float, gamma: float, shape: float) -> None:
    """Where the mean follows from gamma, and rho is at most ln(1 / gamma): Corollary 4 itself."""
    t = -mp.log(mpf(gamma))
    mean = float(mean_of(t, shape))
    best = BestOfMany(gaussian(rho), Repetitions(mean=mean, shape=shape))
    selection = 2 * (1 + shape) * mp.sqrt(rho * t) - shape * mpf(rho)
    least = mp.sqrt(mp.log(mpf(mean)) / rho)
    for order in (*ASKED, float(1 + least), float(mp.sqrt(t / rho)) + 1e-9):
        s = max(mpf(order) - 1, least)
        truth = rho * s + mp.log(mpf(mean)) / s + selection
        # the mean as a double moves gamma by 1e-14
        assert truth * (1 - mpf(10) ** -12) <= best(order).upper <= truth * (1 + 1e-14) + 1e-8


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", MEANS)
def test_pure_privacy_costs_2_plus_shape(mean: float, shape: float) -> None:
    """Corollary 3: the best of many epsilon-DP runs is (2 + shape) epsilon-DP."""
    best = BestOfMany(lambda _: exactly(1.0), Repetitions(mean=mean, shape=shape))
    truth = min(mpf(1), log_stop(mean, shape)) * (1 + mpf(shape)) + 1
    assert truth <= best(math.inf).upper <= truth * (1 + 1e-12)


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("mean", [10.0, 1000.0])
def test_laplace_noise_is_theorem_2_at_its_best_orders(mean: float, shape: float) -> None:
    scale, m = 0.5, mpf(2)

    def one(a: mpf) -> mpf:
        up, down = mp.exp((a - 1) * m), mp.exp(-a * m)
        return mp.log(a / (2 * a - 1) * up + (a - 1) / (2 * a - 1) * down) / (a - 1)

    best = BestOfMany(lambda a: renyi.laplace(a, scale), Repetitions(mean=mean, shape=shape))
    fine = [1 + mpf(2) ** (mpf(j) / 8) for j in range(-64, 72)]
    t = log_stop(mean, shape)
    other = min(*((1 - 1 / a) * one(a) + t / a for a in fine), m)
    for asked in (1.1, 2.0, 3.3, 40.0):
        at = (a for a in [mpf(asked), *fine] if a >= asked)
        finite = min(one(a) + mp.log(mpf(mean)) / (a - 1) for a in at)
        truth = min(finite, m) + (1 + mpf(shape)) * other  # m at the order inf
        # a factor 2^(1/8) between orders costs 0.1 %
        assert truth * (1 - 1e-3) <= best(asked).upper <= truth * (1 + 1e-9)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("sigma", "mean"),
    [(1.0, 1.0), (1.0, 1000.0), (1.0, 1e9), (0.3, 10.0), (30.0, 1000.0), (1000.0, 1.0)],
)
def test_a_poisson_number_is_theorem_6(sigma: float, mean: float) -> None:
    def delta(epsilon: float) -> Bounds:
        return Bounds(0.0, float(gaussian_delta(1 / sigma, mpf(epsilon))) * (1 + 1e-15))

    def theorem(a: mpf) -> mpf:
        more = mean * gaussian_delta(1 / sigma, mp.log1p(1 / (a - 1))) + mp.log(mean) / (a - 1)
        return a / (2 * mpf(sigma) ** 2) + more

    rho = 0.5 / sigma**2
    best = BestOfMany(gaussian(rho), Repetitions(mean=mean, shape=math.inf), delta)
    fine = [1 + mpf(2) ** (mpf(j) / 16) for j in range(-64, 224)]
    for asked in (1.1, 1.5, 3.0, 20.0, 1e4):
        truth = min(theorem(a) for a in [mpf(asked), *fine] if a >= asked)
        assert truth * (1 - 1e-3) <= best(asked).upper <= truth * (1 + 1e-7)


def test_the_delta_of_a_poisson_number_follows_from_the_divergences() -> None:
    """Without a delta, that of the conversion counts, which is above the exact one."""
    repetitions = Repetitions(mean=10.0, shape=math.inf)
    exact = tb.Gaussian(1.0) * 1
    known = BestOfMany(gaussian(0.5), repetitions, lambda e: exact.answer(epsilon=e).bounds)
    found = BestOfMany(gaussian(0.5), repetitions)
    for order in (1.1, 2.0, 8.0):
        assert known(order).upper <= found(order).upper <= 5 * known(order).upper


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("mean", [1.0, 10.0, 1e10])
def test_a_poisson_number_of_pure_runs_adds_no_delta_below_an_order(
    epsilon: float, mean: float
) -> None:
    def delta(asked: float) -> Bounds:
        return exactly(0.0 if asked >= epsilon else 1.0)

    best = BestOfMany(lambda _: exactly(epsilon), Repetitions(mean=mean, shape=math.inf), delta)
    alpha = 1 + 1 / mp.expm1(mpf(epsilon))
    # the order inf needs no logarithm, but all of delta
    truth = mpf(epsilon) + min(mp.log(mpf(mean)) / (alpha - 1), mpf(mean))
    assert truth * (1 - 1e-12) <= best(float(alpha) * (1 - 1e-9)).upper <= truth * (1 + 1e-6)


# ------------------------------------------------------------------- the truth of a small case


def none_above(x: mpf, mean: float, shape: float) -> mpf:
    """E[x^K], the chance that each of K runs has an outcome of probability x."""
    if math.isinf(shape):
        return mp.exp(mpf(mean) * (x - 1))
    gamma, eta = mp.exp(-log_stop(mean, shape)), mpf(shape)
    rest = 1 - (1 - gamma) * x
    return mp.log(rest) / mp.log(gamma) if eta == 0 else (rest**-eta - 1) / (gamma**-eta - 1)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("shape", [*SHAPES, math.inf])
@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("p", [0.52, 0.7, 0.95])
def test_the_best_of_many_answers_is_below_its_bound(p: float, mean: float, shape: float) -> None:
    """Each run answers 0 or 1, and 1 is better: the distribution of the best answer is exact."""

    def outcomes(zero: mpf) -> list[mpf]:
        none, below = (none_above(x, mean, shape) for x in (mpf(0), zero))
        return [none, below - none, 1 - below]

    def delta(epsilon: float) -> Bounds:
        return (tb.RandomizedResponse(p) * 1).answer(epsilon=epsilon).bounds

    best = BestOfMany(
        lambda a: renyi.randomized_response(a, p), Repetitions(mean=mean, shape=shape), delta
    )
    there, gone = outcomes(mpf(p)), outcomes(1 - mpf(p))
    for order in (1.01, 1.7, 4.0, 60.0):
        for one, other in ((there, gone), (gone, there)):
            a = mpf(order)
            total = sum(x**a * y ** (1 - a) for x, y in zip(one, other, strict=True) if x)
            assert mp.log(total) / (a - 1) <= best(order).upper


# ---------------------------------------------------------------------------------- the rest


@given(st.floats(1.0, 1e12), st.one_of(st.just(0.0), st.floats(0.0, 50.0), st.floats(1e-30, 1e-9)))
def test_the_parameter_of_a_number_of_runs(mean: float, shape: float) -> None:
    with mp.workdps(60):
        found = mpf(Repetitions(mean=mean, shape=shape).log_stop())
        assert mean_of(found, shape) >= mean
        # the margin is 32 units of 2^-53 of the mean, which grows at least as 1 + t / 2 does
        below = found * (1 - mpf(10) ** -13) - mpf(10) ** -13
        assert below <= 0 or mean_of(below, shape) < mean


def test_an_asked_order_is_no_worse_than_a_chord() -> None:
    best = BestOfMany(gaussian(0.1), Repetitions(mean=20.0, shape=0.5))
    asked = [1.01 * 1.3**j for j in range(40)]
    values = [best(order).upper for order in asked]
    assert all(v <= best.table(order).upper for v, order in zip(values, asked, strict=True))
    assert any(v < 0.999 * best.table(a).upper for v, a in zip(values, asked, strict=True))
    assert set(ORDERS) <= set(best.table.orders)


def test_a_divergence_that_is_nowhere_finite_bounds_nothing() -> None:
    for shape in (0.0, 2.0, math.inf):
        best = BestOfMany(lambda _: Bounds(0.0, math.inf), Repetitions(mean=5.0, shape=shape))
        assert best(2.0).upper == best(math.inf).upper == math.inf


def test_there_is_one_run_where_the_mean_is_1() -> None:
    assert Repetitions(mean=1.0, shape=0.0).once
    assert not Repetitions(mean=1.0, shape=math.inf).once
    assert not Repetitions(mean=1.5, shape=2.0).once


@pytest.mark.parametrize(
    ("mean", "shape", "message"),
    [
        (0.5, 1.0, r"mean must be in \[1, 1e12\], got 0.5"),
        (math.nan, 1.0, "mean must be .*, got nan"),
        (2e12, 1.0, r"mean must be in \[1, 1e12\], got 2000000000000.0"),
        (2.0, -1.0, "shape must be >= 0, got -1.0"),
        (2.0, math.nan, "shape must be .*, got nan"),
    ],
)
def test_refusals(mean: float, shape: float, message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        Repetitions(mean=mean, shape=shape)
