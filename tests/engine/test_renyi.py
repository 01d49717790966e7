"""Renyi divergences against sums and integrals in 40 digits, from order 1 + 1e-7 on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from unittest import mock

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from tests.cases import each_mechanism
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.engine.readings import renyi as readings
from tightbudget.mechanisms import Mechanism, subsampled
from tightbudget.mechanisms.gaussian_transform import MixedTransform
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import FloatArray
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair
from tightbudget.pairs.transform import Line

ORDERS = [1.0 + 1e-7, 1.001, 1.5, 2.0, 30.0]


@pytest.fixture(autouse=True)
def _digits() -> Iterator[None]:
    with mp.workdps(40):
        yield


def listed(p: list[mpf], q: list[mpf], order: float) -> mpf:
    """The divergence of two lists of masses."""
    s = mpf(order) - 1
    return mp.log(mp.fsum(a * (a / b) ** s for a, b in zip(p, q, strict=True))) / s


def discrete_gaussian(sigma: float, shift: int, rate: float) -> Callable[[float], mpf]:
    def truth(order: float) -> mpf:
        reach = 16 + int((order + 16) * (shift + sigma) + 16 * sigma)
        weight = {
            n: mp.exp(-(mpf(n) ** 2) / (2 * mpf(sigma) ** 2))
            for n in range(-reach - shift, reach + shift + 1)
        }
        norm = mp.fsum(weight.values())
        with_it = [weight[n] / norm for n in range(-reach, reach + 1)]
        without = [weight[n - shift] / norm for n in range(-reach, reach + 1)]
        mixed = [(1 - mpf(rate)) * b + mpf(rate) * a for a, b in zip(with_it, without, strict=True)]
        return max(listed(mixed, without, order), listed(without, mixed, order))

    return truth


def response(p: float) -> Callable[[float], mpf]:
    return lambda order: listed([mpf(p), 1 - mpf(p)], [1 - mpf(p), mpf(p)], order)


def laplace(scale: float) -> Callable[[float], mpf]:
    def truth(order: float) -> mpf:
        a, m = mpf(order), 1 / mpf(scale)
        moment = a * mp.exp((a - 1) * m) + (a - 1) * mp.exp(-a * m)
        return mp.log(moment / (2 * a - 1)) / (a - 1)

    return truth


def sampled_gaussian(sigma: float, rate: float) -> Callable[[float], mpf]:
    def truth(order: float) -> mpf:
        a, m, q = mpf(order), 1 / mpf(sigma), mpf(rate)

        def moment(power: mpf) -> mpf:
            # the mixture has a density 1 + q (e^(m x - m^2 / 2) - 1) times that of N(0, 1)
            ends = [
                -14,
                -4,
                0,
                m / 2,
                4,
                float(m * max(power, 1)) + 4,
                float(m * max(power, 1)) + 14,
            ]
            return mp.quad(
                lambda x: mp.npdf(x) * (1 + q * mp.expm1(m * x - m * m / 2)) ** power, sorted(ends)
            )

        return max(mp.log(moment(a)), mp.log(moment(1 - a))) / (a - 1)

    return truth


EXACT: list[tuple[Mechanism, Callable[[float], mpf]]] = [
    (tb.RandomizedResponse(0.75), response(0.75)),
    (tb.RandomizedResponse(0.5 + 1e-7), response(0.5 + 1e-7)),
    (tb.Laplace(3.0), laplace(3.0)),
    (tb.Laplace(1e6), laplace(1e6)),
    (tb.DiscreteGaussian(5.0), discrete_gaussian(5.0, 1, 1.0)),
    (tb.DiscreteGaussian(0.4, sensitivity=2), discrete_gaussian(0.4, 2, 1.0)),
    (tb.DiscreteGaussian(3.0).subsampled(0.01), discrete_gaussian(3.0, 1, 0.01)),
    (tb.Gaussian(1.0).subsampled(0.01), sampled_gaussian(1.0, 0.01)),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("mechanism", "truth", "order"),
    [
        (mechanism, truth, order)
        for mechanism, truth in EXACT
        for order in ORDERS
        if order <= 2 or mechanism != tb.Gaussian(1.0).subsampled(0.01)  # the quadrature's reach
    ],
)
def test_the_bounds_hold_the_divergence(
    mechanism: Mechanism, truth: Callable[[float], mpf], order: float
) -> None:
    bounds, value = (mechanism * 1).renyi(order), truth(order)
    assert bounds.lower <= value <= bounds.upper
    assert bounds.relative_gap <= 1e-4


def test_three_atoms_need_no_grid() -> None:
    one = tb.HistogramPair([5, 1000], [3, 13]).subsampled(7.6e-6)
    assert (one * 1).renyi(2.0).relative_gap < 1e-10


def test_discrete_noise_has_a_bound_at_any_order() -> None:
    # at integer orders the divergence is that of Gaussian noise
    for order in (2.0, 400.0, 5000.0):
        bounds = (tb.DiscreteGaussian(0.3, sensitivity=2) * 3).renyi(order)
        assert bounds.lower <= 3 * order * 4 / (2 * 0.3**2) * (1 + 1e-13)
        assert bounds.upper >= 3 * order * 4 / (2 * 0.3**2) * (1 - 1e-13)
        assert bounds.relative_gap <= 1e-4


def reached(mechanism: Mechanism, runs: int, order: float) -> Bounds:
    try:
        return (mechanism * runs).renyi(order, rtol=1e-2)
    except tb.PrecisionError as error:
        return Bounds(error.lower, error.upper)


@pytest.mark.one_in(6)
@each_mechanism
def test_divergences_grow_with_the_order_and_add_up(mechanism: Mechanism) -> None:
    before = Bounds(0.0, 0.0)
    for order in (1.0 + 1e-7, 1.001, 2.0, 40.0, math.inf):
        bounds = reached(mechanism, 1, order)
        assert 0.0 <= before.lower <= bounds.upper * (1 + 1e-12)
        three = reached(mechanism, 3, order)
        assert three.lower <= 3 * bounds.upper * (1 + 1e-12)
        assert three.upper >= 3 * bounds.lower * (1 - 1e-12)
        before = bounds


def grids(run: tb.Composition, order: float, rtol: float) -> tuple[Bounds, list[int]]:
    """An answer, and the number of edges of each grid that was made for it."""
    sizes: list[int] = []
    bins = readings._bins

    def counted(pair: Pair, x: FloatArray, s: float) -> readings._Terms:
        sizes.append(x.size)
        return bins(pair, x, s)

    with mock.patch.object(readings, "_bins", counted):
        return run.answer(order=order, rtol=rtol).bounds, sizes


SAMPLED = tb.Gaussian(1.0).subsampled(0.01) * 1


def test_a_formula_that_is_close_enough_for_the_whole_answers_alone() -> None:
    bounds, sizes = grids(SAMPLED, 1.25, 1.5e-8)
    assert not sizes
    assert bounds.relative_gap <= 1e-12
    # the small divergence is known to 3e-9 of itself, and to 6e-12 of the sum
    both = tb.Gaussian(0.6).subsampled(0.3) * 3 + tb.Gaussian(2.0).subsampled(0.01)
    bounds, sizes = grids(both, 1.25, 1e-9)
    assert not sizes
    assert bounds.relative_gap < 1e-11


@pytest.mark.slow
def test_grids_are_made_for_the_worse_direction_and_end_where_rounding_begins() -> None:
    # a formula with the digits of M, not of M - 1
    with mock.patch.object(subsampled, "_SMALL_MOMENT", 0.0):
        bounds, sizes = grids(SAMPLED, 1.25, 1e-9)
        assert bounds.relative_gap <= 1e-9
        assert sizes == sorted(sizes)  # of one direction alone
        bounds, sizes = grids(SAMPLED, 1.25, 1e-11)
        assert bounds.relative_gap < 5e-9
        assert 0 < sum(sizes) < 2**18
    bounds, _ = grids(tb.Laplace(3.0) * 1, 2.0, 1e-11)
    assert bounds.relative_gap < 1e-10


@pytest.mark.parametrize("rtol", [1e-4, 1e-9])
def test_a_moment_that_is_known_closely_enough_needs_no_bins(rtol: float) -> None:
    mechanism = tb.Gaussian(1.0).subsampled(0.1)  # known within 1.3e-10 of itself
    with mock.patch.object(readings, "_by_parts", side_effect=AssertionError) as asked:
        assert mechanism.renyi(1.25, rtol=rtol).relative_gap <= rtol
    assert not asked.called


# ------------------------------------------------------------------------- mutations


def holds(mechanism: Mechanism, truth: Callable[[float], mpf], order: float) -> Callable[[], bool]:
    def true() -> bool:
        bounds = reached(mechanism, 1, order)
        return bool(bounds.lower <= truth(order) <= bounds.upper)

    return true


def by_bins(true: Callable[[], bool]) -> Callable[[], bool]:
    """Asks without the sampled Gaussian's own formula of the moment."""

    def truth() -> bool:
        nothing = -math.inf, math.inf
        with mock.patch.object(subsampled, "log_moment", return_value=nothing):
            return true()

    return truth


TABLE = tb.LossTable(1.0, (0, [0.5, 0.5], 0.0))  # P has losses 0 and 1; the rest of Q is alone

MUTATIONS = [
    Without(
        "the outputs that are not listed",
        {"outputs-listed": "return -math.inf"},
        holds(tb.DiscreteGaussian(0.4, 2).subsampled(0.01), discrete_gaussian(0.4, 2, 0.01), 40.0),
    ),
    Without(
        "the Q-mass that P lacks",
        {
            "q-mass-p-lacks": (
                "return _Terms(np.concatenate([_log(atoms.p.lower, -1.0) + least, "
                "_log(q_only.lower, -1.0)]), np.concatenate([_log(atoms.p.upper, 1.0) "
                "+ np.maximum(low.upper, high.upper), np.zeros(0), [rest + 1e-12 * "
                "(1.0 + abs(rest)) if math.isfinite(rest) else rest]]))"
            )
        },
        holds(
            TABLE, lambda order: mp.log((1 + mp.exp(mpf(order) - 1)) / 2) / (mpf(order) - 1), 1.5
        ),
    ),
    Without(
        "a bin's mass goes to both ends",
        {
            "bin-mass-goes-both-ends": (
                "spread = np.minimum(g_left, g_right) + 0.0 * np.log(chord + (2.0 * "
                "EXPM1 + 2.0 * EXP + 16.0) * UNIT)"
            )
        },
        by_bins(holds(tb.Gaussian(1.0).subsampled(0.01), sampled_gaussian(1.0, 0.01), 1.001)),
    ),
    Without(
        "a small argument's series",
        {"small-argument-series": "near, far = np.abs(y) <= 1e-300, y > 30.0"},
        holds(tb.RandomizedResponse(0.5 + 1e-7), response(0.5 + 1e-7), 1.001),
    ),
]


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("sigma", "rate", "s"), [(1.0, 0.01, 0.25), (3.0, 1e-4, 2.0)])
def test_a_small_divergence_of_a_sampled_gaussian_has_its_own_digits(
    sigma: float, rate: float, s: float, direction: Direction
) -> None:
    """E[R^z] - 1 is the mean of R^z - 1 - z (R - 1), at 40 digits."""
    low, high = tb.Gaussian(sigma).subsampled(rate).pair(direction).log_moment(s)
    assert high - low <= 1e-10 * high
    with mpmath.workdps(40):
        m, q = 1 / mpmath.mpf(sigma), mpmath.mpf(rate)
        z = 1 + mpmath.mpf(s) if direction is Direction.REMOVE else -mpmath.mpf(s)

        def term(x: mpmath.mpf) -> mpmath.mpf:
            over = q * mpmath.expm1(m * x - m * m / 2)
            return mpmath.npdf(x) * ((1 + over) ** z - 1 - z * over)

        exact = mpmath.log1p(mpmath.quad(term, [-30, -8, -3, 0, 3, 8, 16, 40]))
        assert low <= exact <= high


def test_a_small_divergence_is_rounded_outwards(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = tb.Gaussian(1.0).subsampled(0.01).pair(Direction.REMOVE)
    monkeypatch.setattr(subsampled, "log_moment", lambda *_, **__: (-1.0, 0.09))
    for i in range(1, 40):
        log, off = 0.002 * i + 1e-9 / i, 3.7e-5 / i
        told = Line(np.array([complex(log)]), np.array([off]))
        monkeypatch.setattr(MixedTransform, "line", lambda *_, told=told: told)
        low, high = pair.log_moment(0.5)
        wide = Fraction(off) * (1 + 2 * Fraction(off))
        assert Fraction(low) <= Fraction(log) - wide
        assert Fraction(high) >= Fraction(log) + wide
