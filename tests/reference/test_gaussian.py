"""Closed forms in ball arithmetic, made here: no file of reference values is needed.

Gaussian: k runs at sigma are one at mu = sqrt(k) / sigma, and delta(eps) = Phi(mu/2 - eps/mu) -
e^eps Phi(-mu/2 - eps/mu) (Balle, Wang 2018). Laplace, once: delta(eps) = 1 - e^((eps - m)/2)
for 0 <= eps <= m. Randomised response: a binomial sum of rationals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from flint import arb, ctx
from tests.balls import ball
from tests.exact import response_delta

import tightbudget as tb
from tightbudget.numerics.bounds import Bounds

BITS = 2000  # delta down to 1e-100 at eps up to 2,000, after cancellation
RTOL = 1e-4


def phi(z: arb) -> arb:
    return (-z / arb(2).sqrt()).erfc() / 2


def gaussian_delta(mu: arb, epsilon: float | arb) -> arb:
    eps = arb(epsilon)
    return phi(mu / 2 - eps / mu) - eps.exp() * phi(-mu / 2 - eps / mu)


def mu_of(sigma: float, runs: int, sensitivity: float = 1.0) -> arb:
    return arb(runs).sqrt() * arb(sensitivity) / arb(sigma)


def holds_delta(bounds: Bounds, truth: arb, gap: float = RTOL) -> None:
    assert truth.rel_accuracy_bits() > 60
    assert arb(bounds.lower) <= truth
    assert truth <= arb(bounds.upper)
    assert bounds.upper - bounds.lower <= gap * bounds.upper


def holds_epsilon(
    bounds: Bounds, delta: float, truth: Callable[[float], arb], gap: float = RTOL
) -> None:
    """eps* is between the ends exactly if delta(lower) >= delta >= delta(upper)."""
    assert truth(bounds.upper) <= arb(delta)
    if bounds.lower > 0:
        assert truth(bounds.lower) >= arb(delta)
    assert bounds.upper - bounds.lower <= gap * bounds.upper


DELTAS = [0.5, 0.1, 1e-3, 1e-5, 1e-8, 1e-12, 1e-15, 1e-20, 1e-30, 1e-50, 1e-75, 1e-100]
GAUSSIANS = [
    (0.02, 1),
    (0.3, 1),
    (1.0, 1),
    (1.0, 7),
    (0.5, 64),
    (5.0, 1),
    (5.0, 64),
    (5.0, 1024),
    (20.0, 100),
    (100.0, 1),
    (100.0, 10_000),
    (100.0, 40_000),
    (3.7, 12_345),
]


@pytest.mark.parametrize(("sigma", "runs"), GAUSSIANS)
def test_gaussian_epsilon_down_to_delta_1e_100(sigma: float, runs: int) -> None:
    with ctx.workprec(BITS):
        mu = mu_of(sigma, runs)
        composition = tb.Gaussian(sigma) * runs
        for delta in DELTAS:
            holds_epsilon(composition.epsilon(delta), delta, lambda e: gaussian_delta(mu, e))


@pytest.mark.parametrize(("sigma", "runs"), GAUSSIANS)
def test_gaussian_delta_down_to_1e_100(sigma: float, runs: int) -> None:
    with ctx.workprec(BITS):
        mu = mu_of(sigma, runs)
        composition = tb.Gaussian(sigma) * runs
        epsilons = {0.0, 1e-6, 0.1, 1.0, 10.0} | {
            composition.epsilon(delta, 0.1).upper for delta in DELTAS[::3]
        }
        for epsilon in epsilons:
            truth = gaussian_delta(mu, epsilon)
            if truth > 1e-100:
                holds_delta(composition.delta(epsilon), truth)


def test_ten_million_runs() -> None:
    with ctx.workprec(BITS):
        mu = mu_of(5_000.0, 25_000_000)
        composition = tb.Gaussian(5_000.0) * 25_000_000
        for delta in DELTAS[2:]:
            holds_epsilon(composition.epsilon(delta), delta, lambda e: gaussian_delta(mu, e))
        holds_delta(composition.delta(0.0, 1e-3), gaussian_delta(mu, 0.0), 1e-3)


@pytest.mark.parametrize("sensitivity", [0.25, 3.0])
def test_gaussian_sensitivity(sensitivity: float) -> None:
    with ctx.workprec(BITS):
        mu = mu_of(2.0, 10, sensitivity)
        composition = tb.Gaussian(2.0, sensitivity=sensitivity) * 10
        for delta in DELTAS[1:8]:
            holds_epsilon(composition.epsilon(delta), delta, lambda e: gaussian_delta(mu, e))


def test_different_gaussians_are_one() -> None:
    # variances of the losses add up: mu^2 = sum k / sigma^2
    parts = [(1.5, 3), (10.0, 200), (4.0, 17), (100.0, 1000)]
    with ctx.workprec(BITS):
        mu = sum((arb(k) / arb(s) ** 2 for s, k in parts), arb(0)).sqrt()
        composition = tb.compose([tb.Gaussian(s) * k for s, k in parts])
        for delta in DELTAS:
            holds_epsilon(composition.epsilon(delta), delta, lambda e: gaussian_delta(mu, e))


@pytest.mark.parametrize("rtol", [1e-2, 1e-3, 1e-5, 1e-6, 1e-7])
def test_the_gap_that_is_asked_for(rtol: float) -> None:
    with ctx.workprec(BITS):
        mu = mu_of(5.0, 64)
        composition = tb.Gaussian(5.0) * 64
        for delta in (1e-5, 1e-30):
            bounds = composition.epsilon(delta, rtol)
            holds_epsilon(bounds, delta, lambda e: gaussian_delta(mu, e), rtol)
        holds_delta(composition.delta(5.0, rtol), gaussian_delta(mu, 5.0), rtol)


@pytest.mark.parametrize("scale", [0.05, 0.5, 1.0, 3.0, 20.0, 1e4])
def test_laplace_once(scale: float) -> None:
    with ctx.workprec(300):
        m = arb(1) / arb(scale)
        composition = tb.Laplace(scale) * 1
        for share in (0.0, 0.1, 0.5, 0.9, 0.999):
            epsilon = share / scale
            truth = 1 - ((arb(epsilon) - m) / 2).exp()
            holds_delta(composition.delta(epsilon), truth)
        for delta in (0.01, 1e-3, 1e-5, 1e-10, 1e-30):
            if delta >= 1 - math.exp(-0.49 / scale):
                continue
            exact = m + 2 * (1 - arb(delta)).log()
            bounds = composition.epsilon(delta)
            assert arb(bounds.lower) <= exact
            assert exact <= arb(bounds.upper)
            assert bounds.relative_gap <= RTOL


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("p", "runs"), [(0.75, 1), (0.75, 3), (0.9, 30), (0.51, 64), (0.51, 512)])
def test_randomised_response_is_exact(p: float, runs: int) -> None:
    composition = tb.RandomizedResponse(p) * runs
    top = runs * math.log(p / (1 - p))
    for share in (0.0, 0.05, 0.2, 0.5, 0.9):
        epsilon = share * top
        low, high = response_delta(Fraction(p), runs, epsilon)
        # a lattice has no discretisation error at all
        bounds = composition.delta(epsilon, rtol=1e-9)
        assert Fraction(bounds.lower) <= high
        assert low <= Fraction(bounds.upper)
        assert bounds.relative_gap <= 1e-9


def test_balls_of_rationals_are_exact() -> None:
    with ctx.workprec(100):
        assert ball(Fraction(1, 4)) == arb(0.25)
