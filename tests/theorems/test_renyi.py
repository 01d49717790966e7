"""Renyi divergences and their conversions: against ball arithmetic, the engine and others."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import example, given
from hypothesis import strategies as st
from tests.balls import ball, inside

import tightbudget as tb
from tightbudget.theorems import renyi
from tightbudget.theorems.renyi import Conversion, RenyiTable


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 600
    yield
    ctx.prec = before


# -------------------------------------------------------------------------- closed forms


def laplace(order: float, scale: float, sensitivity: float) -> arb:
    a, m = ball(order), ball(sensitivity) / ball(scale)
    up, down = ((a - 1) * m).exp(), (-a * m).exp()
    return (a / (2 * a - 1) * up + (a - 1) / (2 * a - 1) * down).log() / (a - 1)


def response(order: float, p: float) -> arb:
    a, p_ = ball(order), ball(p)
    return (p_**a * (1 - p_) ** (1 - a) + (1 - p_) ** a * p_ ** (1 - a)).log() / (a - 1)


def sampled(order: int, sigma: float, rate: float) -> arb:
    q, v = ball(rate), 1 / (2 * ball(sigma) ** 2)
    terms = [
        math.comb(order, i) * (1 - q) ** (order - i) * q**i * ((i * i - i) * v).exp()
        for i in range(order + 1)
    ]
    return sum(terms, arb(0)).log() / (order - 1)


ORDERS = st.one_of(st.floats(1.0001, 3.0), st.floats(3.0, 1e4))


@given(ORDERS, st.floats(1e-4, 1e4), st.floats(1e-2, 1e2))
def test_laplace(order: float, scale: float, sensitivity: float) -> None:
    bounds, exact = renyi.laplace(order, scale, sensitivity), laplace(order, scale, sensitivity)
    assert inside(bounds, exact)
    assert bounds.relative_gap < 1e-12


@given(ORDERS, st.floats(1e-6, 1 - 1e-6).filter(lambda p: p != 0.5))
@example(order=2.0, p=0.498115463410649)
@example(order=2.0, p=0.4999999)
def test_randomized_response(order: float, p: float) -> None:
    bounds, exact = renyi.randomized_response(order, p), response(order, p)
    assert inside(bounds, exact)
    assert bounds.relative_gap < 1e-12


@given(ORDERS, st.floats(1e-3, 1e3), st.floats(1e-2, 1e2))
def test_gaussian(order: float, sigma: float, sensitivity: float) -> None:
    m = ball(sensitivity) / ball(sigma)
    assert inside(renyi.gaussian(order, sigma, sensitivity), ball(order) * m * m / 2)


@given(st.integers(2, 60), st.floats(0.2, 50), st.floats(1e-6, 1 - 1e-6))
def test_subsampled_gaussian(order: int, sigma: float, rate: float) -> None:
    bounds, exact = renyi.subsampled_gaussian(order, sigma, rate), sampled(order, sigma, rate)
    assert inside(bounds, exact)
    assert bounds.relative_gap < 1e-10


def test_subsampled_gaussian_of_high_order_and_at_the_ends() -> None:
    for order in (256, 1000):
        assert inside(renyi.subsampled_gaussian(order, 4.0, 0.01), sampled(order, 4.0, 0.01))
    assert renyi.subsampled_gaussian(5, 2.0, 1.0) == renyi.gaussian(5, 2.0)
    assert renyi.subsampled_gaussian(5, 2.0, 0.0) == tb.Bounds(0.0, 0.0)


def test_the_order_inf_is_the_largest_loss() -> None:
    assert 0.5 in renyi.laplace(math.inf, 2.0)
    assert inside(renyi.randomized_response(math.inf, 0.2), ball(4.0).log())
    assert renyi.randomized_response(math.inf, 0.5).upper < 1e-290
    assert renyi.gaussian(math.inf, 2.0) == tb.Bounds(math.inf, math.inf)


CLOSED: list[tuple[tb.Mechanism, Callable[[float], tb.Bounds]]] = [
    (tb.Gaussian(2.0), lambda a: renyi.gaussian(a, 2.0)),
    (tb.Laplace(3.0, 2.0), lambda a: renyi.laplace(a, 3.0, 2.0)),
    (tb.RandomizedResponse(0.7), lambda a: renyi.randomized_response(a, 0.7)),
]


@pytest.mark.parametrize(("mechanism", "closed"), CLOSED, ids=["gaussian", "laplace", "response"])
def test_the_engine_finds_the_same(
    mechanism: tb.Mechanism, closed: Callable[[float], tb.Bounds]
) -> None:
    for order in (1.25, 2.0, 7.5, 40.0):
        assert closed(order).overlaps((mechanism * 1).renyi(order))


def test_the_engine_finds_the_same_for_samples_the_larger_direction() -> None:
    for order in (2, 3, 16):
        bounds = renyi.subsampled_gaussian(order, 1.5, 0.1)
        assert bounds.overlaps((tb.Gaussian(1.5).subsampled(0.1) * 1).renyi(order))


# ---------------------------------------------------------------------------- conversions


def exact_epsilon(order: float, divergence: float, delta: float, whose: Conversion) -> arb:
    a, log = ball(order), -ball(delta).log()
    if whose is Conversion.MIRONOV:
        return ball(divergence) + log / (a - 1)
    return ball(divergence) + ((a - 1) / a).log() + (log - a.log()) / (a - 1)


@given(
    st.floats(1.001, 1e4), st.floats(0, 50), st.floats(1e-300, 1), st.sampled_from(list(Conversion))
)
def test_a_conversion_is_rounded_up_and_hardly(
    order: float, divergence: float, delta: float, whose: Conversion
) -> None:
    exact = exact_epsilon(order, divergence, delta, whose)
    found = renyi.epsilon_at(order, divergence, delta, whose)
    assert exact <= found
    size = divergence + (abs(math.log(delta)) + math.log(order)) / (order - 1) + 10
    assert found - exact < 1e-14 * size
    # and back: the exact delta of that epsilon is the one we began with
    if found >= 0:
        back = renyi.log_delta_at(order, divergence, found, whose)
        assert abs(back - math.log(delta)) < 1e-12 * (size * order + 700)
        exact_back = ball(delta).log() - (order - 1) * (ball(found) - exact)
        assert exact_back <= back


class OneOrder:
    """A divergence that is known at one order only."""

    def __init__(self, order: float, value: float) -> None:
        self.order, self.value = order, value

    def __call__(self, order: float) -> tb.Bounds:
        return tb.Bounds(0.0, self.value if order <= self.order else math.inf)


def test_what_google_publishes() -> None:
    """peers.md 42 - 45, 48."""
    orders = (2, 5, 50, 100)
    for order, value in zip(orders[1:], (2.18075656e-3, 2.38460375e-2, 167.416308), strict=True):
        assert 50 * renyi.subsampled_gaussian(order, 2.5, 0.01).upper == pytest.approx(value)
    # one order, 32, with the sharper conversion
    assert renyi.epsilon_at(32, 1.1, 1e-5) == pytest.approx(1.32783806176, rel=1e-10)
    sigma = 4.530877117
    found = renyi.epsilon(lambda a: renyi.gaussian(a, sigma), 1e-6)
    assert found.upper == pytest.approx(1.0, rel=1e-7)
    for order, value in ((2, 0.0053455023143), (4, 1.8618755130), (25, 45.2029477)):
        assert renyi.subsampled_gaussian(order, 0.5, 0.01).upper == pytest.approx(value, rel=1e-8)


def test_the_rdp_accountant_of_dp_accounting_agrees() -> None:
    """An independent implementation; its orders are a list, ours a continuum."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its dependencies
        import dp_accounting
        from dp_accounting.rdp import RdpAccountant
    orders = [float(a) for a in range(2, 200)]
    accountant = RdpAccountant(orders)
    accountant.compose(dp_accounting.GaussianDpEvent(5.0), 40)
    for delta in (1e-3, 1e-6, 1e-10):
        theirs = accountant.get_epsilon(delta)
        ours = renyi.epsilon(lambda a: renyi.gaussian(a, 5.0), delta, runs=40).upper
        assert theirs * (1 - 1e-2) < ours <= theirs * (1 + 1e-12)
    accountant = RdpAccountant(orders)
    accountant.compose(
        dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(1.5)), 300
    )
    table = RenyiTable(
        [*orders, math.inf],
        [*(renyi.subsampled_gaussian(int(a), 1.5, 0.02).upper for a in orders), math.inf],
    )
    for delta in (1e-4, 1e-8):
        theirs = accountant.get_epsilon(delta)
        ours = renyi.epsilon(table, delta, runs=300).upper
        assert ours == pytest.approx(theirs, rel=2e-3)


def test_the_best_order_is_found_on_a_continuum() -> None:
    """For Gaussian noise Mironov's epsilon has its least value in closed form."""
    m = 1 / 4.0
    for k, delta in ((1, 1e-5), (100, 1e-5), (10_000, 1e-9), (1, 0.3)):
        rho, log = k * m * m / 2, math.log(1 / delta)
        found = renyi.epsilon(lambda a: renyi.gaussian(a, 4.0), delta, k, Conversion.MIRONOV)
        assert found.upper == pytest.approx(rho + 2 * math.sqrt(rho * log), rel=1e-8)
        eps = rho + 2 * math.sqrt(rho * log)
        back = renyi.delta(lambda a: renyi.gaussian(a, 4.0), eps, k, Conversion.MIRONOV)
        assert back.upper == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize(("mechanism", "closed"), CLOSED, ids=["gaussian", "laplace", "response"])
@pytest.mark.parametrize("whose", list(Conversion))
def test_it_is_never_below_the_truth(
    mechanism: tb.Mechanism, closed: Callable[[float], tb.Bounds], whose: Conversion
) -> None:
    for k in (1, 30, 1000):
        for delta in (1e-2, 1e-6):
            found = renyi.epsilon(closed, delta, k, whose)
            truth = (mechanism * k).epsilon(delta, 1e-3)
            assert truth.lower <= found.upper < 4 * truth.upper + 1.0
            assert renyi.delta(closed, truth.lower, k, whose).upper >= delta * (1 - 1e-6)
        sharper = renyi.epsilon(closed, 1e-6, k).upper
        assert sharper <= renyi.epsilon(closed, 1e-6, k, Conversion.MIRONOV).upper


def test_at_delta_0_the_largest_loss_counts() -> None:
    assert 5.0 <= renyi.epsilon(lambda a: renyi.laplace(a, 2.0), 0.0, 10).upper < 5.0 + 1e-9
    assert renyi.epsilon(lambda a: renyi.gaussian(a, 2.0), 0.0, 10).upper == math.inf
    assert renyi.delta(lambda a: renyi.laplace(a, 2.0), 5.1, 10) == tb.Bounds(0.0, 0.0)


def test_a_divergence_that_is_known_at_one_order_is_used_there() -> None:
    found = renyi.epsilon(OneOrder(3.0, 0.5), 1e-5).upper
    assert found == pytest.approx(renyi.epsilon_at(3.0, 0.5, 1e-5), rel=1e-4)
    assert renyi.epsilon(lambda a: tb.Bounds(0.0, math.inf), 1e-5).upper == math.inf
    assert renyi.delta(lambda a: tb.Bounds(0.0, math.inf), 1.0).upper == 1.0


# --------------------------------------------------------------------------------- tables


@pytest.mark.parametrize(("mechanism", "closed"), CLOSED, ids=["gaussian", "laplace", "response"])
def test_between_its_orders_a_table_is_above_and_close(
    mechanism: tb.Mechanism, closed: Callable[[float], tb.Bounds]
) -> None:
    table = RenyiTable.of(closed, renyi.orders(closed(math.inf).upper))
    for order in 1 + np.geomspace(1e-5, 60, 200):
        bound = table(float(order)).upper
        exact = closed(float(order))
        assert exact.lower <= bound
        assert order < 1.001 or bound <= exact.upper * 1.03
    assert table(math.inf).upper == closed(math.inf).upper
    truth = renyi.epsilon(closed, 1e-6, 100).upper
    assert truth * (1 - 1e-9) <= renyi.epsilon(table, 1e-6, 100).upper <= truth * 1.01


def test_a_chord_is_exact_where_the_divergence_is_one() -> None:
    """(order - 1) D = 3 (order - 1): a constant divergence."""
    table = RenyiTable([2.0, 5.0], [3.0, 3.0])
    for order in (1.1, 2.0, 3.3, 5.0):
        assert 3.0 <= table(order).upper < 3.0 + 1e-12
    assert table(5.5).upper == math.inf
    assert RenyiTable([2.0, math.inf], [3.0, 4.0])(9.0).upper == 4.0


def test_a_divergence_is_at_most_that_of_any_higher_order() -> None:
    table = RenyiTable([2.0, 3.0, 5.0, math.inf], [math.inf, 0.7, 0.9, 0.8])
    assert table.divergences == (0.7, 0.7, 0.8, 0.8)
    assert 0.7 <= table(2.5).upper < 0.7 + 1e-12


def test_orders_reach_as_far_as_the_losses_need() -> None:
    for largest in (1e-3, 0.5, 20.0):
        orders = renyi.orders(largest)
        assert orders[0] < 1.001
        assert orders[-2] - 1 >= min(32 / largest, 1e7)
        assert orders[-1] == math.inf
    assert renyi.orders(0.0)[-2] == 2.0**24 + 1
    assert renyi.orders(math.inf)[-2] == 1025.0


# ------------------------------------------------------------------------------- refusals

NO_INTEGER: Any = 2.5


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: renyi.gaussian(1.0, 2.0), "order must be > 1, got 1.0"),
        (lambda: renyi.laplace(math.nan, 2.0), "order must be a number, got nan"),
        (lambda: renyi.laplace(2.0, 0.0), "scale must be a finite number > 0, got 0.0"),
        (lambda: renyi.randomized_response(2.0, 1.0), r"p must be in \(0, 1\), got 1.0"),
        (
            lambda: renyi.subsampled_gaussian(1, 1.0, 0.5),
            r"order must be an integer in \[2, 10000\]",
        ),
        (lambda: renyi.subsampled_gaussian(NO_INTEGER, 1.0, 0.5), "order must be an integer >= 1"),
        (lambda: renyi.epsilon(OneOrder(3, 1), 2.0), r"delta must be in \[0, 1\], got 2.0"),
        (lambda: renyi.epsilon(OneOrder(3, 1), 0.1, 0), "runs must be an integer >= 1, got 0"),
        (lambda: renyi.delta(OneOrder(3, 1), -1.0), "epsilon must be a finite number >= 0"),
        (
            lambda: RenyiTable([], []),
            r"divergences must have as many entries as orders \(0\), got 0",
        ),
        (lambda: RenyiTable([2.0], [1.0, 2.0]), r"as many entries as orders \(1\), got 2"),
        (
            lambda: RenyiTable([3.0, 2.0], [1.0, 2.0]),
            r"orders\[1\] must be above orders\[0\], got 2.0",
        ),
        (lambda: RenyiTable([2.0], [-1.0]), r"divergences\[0\] must be >= 0, got -1.0"),
        (lambda: RenyiTable([2.0], [1.0])(1.0), "order must be > 1, got 1.0"),
        (lambda: renyi.orders(-1.0), "largest_loss must be >= 0, got -1.0"),
    ],
)
def test_refusals(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        ask()


def test_fractions_are_not_lost() -> None:
    """Orders near 1 leave their distance from 1 exact."""
    order = 1.0 + 2.0**-30
    assert Fraction(order) - 1 == Fraction(order - 1.0)
    assert inside(renyi.laplace(order, 2.0), laplace(order, 2.0, 1.0))
