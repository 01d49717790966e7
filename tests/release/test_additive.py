"""Noise that is added to a query covers every query that its parameters admit."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.release.cases import CASES, Case

import tightbudget as tb

NEAR = 2.0**-20
SIZES = [None, 1, 4, 10]
STEPS = [None, 0.25, 1.0, 2.0]


def moves(random: Random, norm: int, whole: bool, n: int, most: Fraction) -> list[Fraction]:
    """A difference of two answers, at most ``most`` long, that rounding likes least."""
    unit = most if whole else most / random.choice([1, n])
    if norm == 2 and not whole:  # equal parts: 1/n of the length is less than 1/sqrt(n) of it
        unit = most / n
    parts = [Fraction(0)] * n
    for i in random.sample(range(n), n):
        part = random.choice([unit, -unit, unit / 2])
        part = Fraction(round(part)) if whole else part
        longer = [*parts[:i], part, *parts[i + 1 :]]
        if sum(abs(x) ** norm for x in longer) <= most**norm:
            parts = longer
    return parts


def neighbours(
    random: Random, norm: int, whole: bool, size: int | None, most: Fraction
) -> tuple[Any, Any]:
    """Answers of a query on two neighbours, of mixed types."""
    n = size or 1
    edges = [Fraction(0), Fraction(1), Fraction(1) - Fraction(NEAR), Fraction(-7, 2)]
    edge = random.choice(edges)  # all at one edge: rounding then moves all of them
    x = [Fraction(random.randrange(-9, 9)) if whole else edge for _ in range(n)]
    y = [a + b for a, b in zip(x, moves(random, norm, whole, n, most), strict=True)]

    def typed(values: list[Fraction]) -> Any:
        kinds: list[Callable[[Fraction], Any]] = [float, Fraction, np.float64]
        made = [int(v) if v == int(v) and random.random() < 0.5 else random.choice(kinds)(v)
                for v in values]  # fmt: skip
        exact = all(Fraction(a) == b for a, b in zip(made, values, strict=True))
        return made if exact else values

    a, b = typed(x), typed(y)
    return (a, b) if size is not None else (a[0], b[0])


def covered(kind: str, size: int | None, step: float | None, integers: bool) -> bool | None:
    """Whether noise covers all that its declaration admits; None if it is refused.

    Two shifts of Laplace noise of this scale are epsilon-close if the points are at most
    epsilon scale apart in the 1-norm; of Gaussian noise, rho-close if their squared distance in the
    2-norm is at most 2 rho scale^2.
    """
    random, most = Random(f"{kind} {size} {step} {integers}"), Fraction(1)
    given: dict[str, Any] = {"size": size, "step": step, "integers": integers}
    norm = 1 if kind == "laplace" else 2
    try:
        if norm == 1:
            mechanism: Any = tb.release.LaplaceRelease(len, most, 1, **given)
            pays = mechanism.scale
        else:
            mechanism = tb.release.GaussianRelease(len, most, 8, 1e-6, **given)
            pays = 2 * mechanism.guarantee.rho * mechanism.scale**2
    except tb.ParameterError:
        return None
    grid = mechanism._grid
    for _ in range(150):
        x, y = neighbours(random, norm, integers, size, most)
        apart = grid.points(x, size) - grid.points(y, size)
        if sum(abs(int(d)) ** norm for d in apart) > pays:
            return False
    return True


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("size", SIZES)
def test_noise_covers_what_its_declaration_admits(kind: str, size: int | None) -> None:
    for step, integers in itertools.product(STEPS, [False, True]):
        found = covered(kind, size, step, integers)
        undeclared = size is not None and step is None and not integers
        contradicted = step is not None and integers
        assert found is (None if undeclared or contradicted else True), (step, integers)


def test_a_vector_of_integers_gets_no_more_noise_than_its_sensitivity_asks_for() -> None:
    assert tb.release.LaplaceRelease(len, 2, 0.5, size=1000, integers=True).scale == 4


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"size": 3},
            "step must be given where size is: a power of two for real numbers, which pays for "
            "rounding them, or integers=True if all numbers of the query are integers, got None",
        ),
        (
            {"size": 3, "step": 0.5, "integers": True},
            "step must be None where integers=True says that answers are integers, got 0.5",
        ),
        ({"size": 3, "integers": 1}, "integers must be True or False, got 1"),
    ],
)
def test_a_vector_declares_its_grid(kind: str, given: dict[str, Any], said: str) -> None:
    make: Any = tb.release.LaplaceRelease if kind == "laplace" else tb.release.GaussianRelease
    needs = {"epsilon": 1} if kind == "laplace" else {"sigma": 5, "delta": 1e-6}
    with pytest.raises(tb.ParameterError, match=f"^{re.escape(said)}$"):
        make(len, 1, **needs, **given)


# ------------------------------------------------------------------------------ rates


def divergence(order: int, sigma: Fraction, shift: int) -> Any:
    """The Renyi divergence of discrete Gaussian noise and the same noise moved, in nats.

    With mass e^(-x^2 / (2 s^2)), P^a Q^(1-a) is e^(a (a-1) t^2 / (2 s^2)) times the mass of noise
    around (1 - a) t: a sum of the same terms, so for integers nothing but the factor is left.
    Here all is summed by mpmath.
    """
    with mpmath.workdps(60):
        square = mpmath.mpf(sigma.numerator) / sigma.denominator
        square = 2 * square**2
        reach = int(40 * sigma) + (order + 1) * shift + 10

        def mass(x: int) -> Any:
            return mpmath.exp(-(mpmath.mpf(x) ** 2) / square)

        whole = mpmath.fsum(mass(x) for x in range(-reach, reach + 1))
        total = mpmath.fsum(
            mass(x) ** order * mass(x - shift) ** (1 - order) for x in range(-reach, reach + 1)
        )
        return mpmath.log(total / whole) / (order - 1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("sigma", [Fraction(1, 2), Fraction(3, 2), Fraction(4)])
@pytest.mark.parametrize("sensitivity", [Fraction(1, 3), Fraction(1), Fraction(5, 2)])
def test_a_gaussian_answer_has_the_rho_that_is_charged(
    sigma: Fraction, sensitivity: Fraction
) -> None:
    release = tb.release.GaussianRelease(len, sensitivity, sigma, 1e-3)
    shift = math.ceil(sensitivity)
    assert release.guarantee.rho == release.rho == Fraction(shift**2) / (2 * sigma**2)
    for order in (2, 3, 8):
        for moved in range(1, shift + 1):
            found = divergence(order, sigma, moved)
            assert found <= order * mpmath.mpf(float(release.rho)) * (1 + 1e-12)
        assert found >= order * mpmath.mpf(float(release.rho)) * (1 - 1e-12)


def test_the_rho_of_a_number_on_a_grid_pays_for_its_rounding() -> None:
    release = tb.release.GaussianRelease(len, 0.7, 2, 1e-3, step=0.25)
    assert release.rho == Fraction(4**2, 2 * 8**2)  # 0.7 is 2.8 steps, and 4 with rounding


def test_the_rho_of_a_vector_is_that_of_its_parts_together() -> None:
    """(3, 4) are 5 apart in the 2-norm, and independent parts add up."""
    sigma = Fraction(2)
    release = tb.release.GaussianRelease(len, 5, sigma, 1e-3, size=2, integers=True)
    for order in (2, 4):
        found = divergence(order, sigma, 3) + divergence(order, sigma, 4)
        assert mpmath.almosteq(found, order * mpmath.mpf(float(release.rho)), 1e-12)
    on_grid = tb.release.GaussianRelease(len, 5, 2, 1e-3, size=3, step=1.0).rho
    assert on_grid == pytest.approx((5 + math.sqrt(3)) ** 2 / 8, rel=1e-9)
    assert on_grid >= (5 + math.sqrt(3)) ** 2 / 8


def test_noise_on_integers_is_not_gaussian_dp() -> None:
    """For some epsilon its delta is above that of N(0, 1) and N(mu, 1), mu = 1 / sigma."""
    discrete, continuous = tb.DiscreteGaussian(1.0) * 1, tb.Gaussian(1.0) * 1
    assert discrete.delta(epsilon=0.0).lower > 1.04 * continuous.delta(epsilon=0.0).upper
    with pytest.raises(tb.ParameterError, match=r"^guarantee must have delta = 0, in a budget"):
        tb.release.GaussianRelease(len, 1, 1, 1e-6).release([], meter=tb.GaussianDPFilter(9))


KINDS: dict[str, Callable[[], Any]] = {
    "rho": lambda: tb.ZCDPFilter(50),
    "divergence": lambda: tb.RenyiFilter(4, 50),
    "mu^2": lambda: tb.GaussianDPFilter(50),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("unit", KINDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_release_is_charged_at_its_rate_or_refused_in_words(case: Case, unit: str) -> None:
    meter, guarantee = KINDS[unit](), case.mechanism.guarantee
    rates = [] if guarantee.rho is None or unit == "mu^2" else [guarantee.rho]
    rates += [] if guarantee.delta else [guarantee.sup**2 / 2]
    if not rates:
        with pytest.raises(tb.ParameterError, match=f"in a budget that counts {re.escape(unit)}"):
            case.run(case.mechanism, case.data, meter, None)
        assert meter.spent == meter.held == tb.Amount(0.0, 0.0, unit)
        return
    answer = case.run(case.mechanism, case.data, meter, None)
    charged = meter._spent
    if unit == "mu^2":
        assert 0 <= charged.counted - Fraction(math.pi) * min(rates) <= Fraction(1, 10**14)
    elif unit == "rho":
        assert charged.counted == min(rates)
    else:
        pure = [] if guarantee.delta else [guarantee.sup]
        assert charged.counted == min([4 * rate for rate in rates] + pure)
    assert charged.delta == 0
    assert answer.receipt.held == answer.receipt.charged == meter.spent


@pytest.mark.one_in(4)
@pytest.mark.parametrize("epsilon", [0.05, 1, Fraction(20)])
@pytest.mark.parametrize("delta", [1e-10, 1e-6, 0.05])
@pytest.mark.parametrize(
    "grid", [{}, {"step": 0.5}, {"size": 3, "integers": True}, {"size": 3, "step": 2.0**-6}]
)
def test_a_gaussian_release_of_an_epsilon_costs_no_more_and_hardly_less(
    epsilon: Any, delta: float, grid: dict[str, Any]
) -> None:
    release: Any = tb.release.GaussianRelease.of_epsilon(len, 2, epsilon, delta, **grid)
    assert release.guarantee.sup <= Fraction(str(epsilon))
    assert release.guarantee.delta == Fraction(repr(delta))
    assert {name: getattr(release, name) for name in grid} == grid
    less = tb.release.GaussianRelease(len, 2, float(release.sigma) / 1.002, delta, **grid)
    assert less.guarantee.sup > Fraction(str(epsilon))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epsilon": 0, "delta": 1e-6}, "epsilon must be a finite number > 0, got 0"),
        ({"epsilon": 1, "delta": 0}, "delta must be in (0, 1), got 0.0"),
        ({"epsilon": 1, "delta": 1}, "delta must be in (0, 1), got 1.0"),
        ({"epsilon": 1e-9, "delta": 1e-6}, "sigma must be in (0, 500000.0], got"),
        ({"epsilon": 1, "delta": 1e-6, "size": 2}, "step must be given where size is"),
    ],
)
def test_an_epsilon_that_no_sigma_has_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(tb.ParameterError, match=f"^{re.escape(said)}"):
        tb.release.GaussianRelease.of_epsilon(len, 1, **given)
