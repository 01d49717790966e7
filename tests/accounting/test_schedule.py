"""Schedules of prices for stopping early: covered by one delta, and cheaper than others'."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

import tightbudget as tb

DPSGD = tb.Gaussian(1.0).subsampled(0.01)
STOPS = range(20, 1001, 20)
TENTHS = [STOPS.index(k) for k in (100, 200, 500, 1000)]


@pytest.fixture(scope="module")
def schedule() -> tb.StoppingSchedule:
    return tb.early_stopping(DPSGD, STOPS, delta=1e-5)


def at_tenths(prices: tuple[float, ...]) -> list[float]:
    return [prices[i] for i in TENTHS]


def test_fifty_stops_of_a_thousand_steps(schedule) -> None:
    """At least as good as what was found on a coarse grid."""
    coarse = [0.955, 1.151, 1.582, 1.922]
    for price, known in zip(at_tenths(schedule.epsilons), coarse, strict=True):
        assert known - 0.003 < price < known + 0.0005


def test_delta_covers_the_prices_and_is_used_up(schedule) -> None:
    assert schedule.delta.upper <= schedule.target == 1e-5
    assert schedule.delta.lower > 0.997 * 1e-5
    again = tb.stopping_delta(DPSGD, schedule.stops, schedule.epsilons)
    assert again.overlaps(schedule.delta)


def test_each_stop_accounted_separately(schedule) -> None:
    assert at_tenths(schedule.separate) == pytest.approx([1.143, 1.336, 1.765, 2.329], abs=0.004)
    exact = [(DPSGD * k).epsilon(1e-5 / 50) for k in (100, 1000)]
    for price, bounds in zip(np.array(schedule.separate)[[4, 49]], exact, strict=True):
        assert bounds.lower <= price <= bounds.upper * 1.001


def test_renyi_filters(schedule) -> None:
    fixed = schedule.renyi_filter()
    assert fixed[-1] == pytest.approx(2.101, abs=1e-3)
    # the best order at each stop, which no filter has
    orders = [7.75, 8.25, 8.625, 8.875]
    best = np.min([at_tenths(schedule.renyi_filter(a)) for a in orders], axis=0)
    assert best == pytest.approx([1.214, 1.340, 1.653, 2.101], abs=1.5e-3)
    assert (np.array(schedule.epsilons) < fixed).all()
    assert (at_tenths(schedule.epsilons) < best).all()


def test_prices_rise_with_the_stops(schedule) -> None:
    assert list(schedule.epsilons) == sorted(schedule.epsilons)
    without = [(DPSGD * k).epsilon(1e-5).lower for k in (100, 200, 500, 1000)]
    assert (np.array(at_tenths(schedule.epsilons)) > without).all()


def test_the_guarantee_has_a_cell_for_each_stop(schedule) -> None:
    guarantee = schedule.guarantee()
    assert isinstance(guarantee, tb.OutputDP)
    assert guarantee.price(100) == Fraction(schedule.epsilons[4])
    assert guarantee.worst_case() == (
        Fraction(schedule.epsilons[-1]),
        Fraction(schedule.delta.upper),
    )
    account = tb.OutputDPFilter(2.0, 1e-5)
    account.reserve(guarantee).settle(100)
    assert account.left.epsilon > 1.0


def test_a_schedule_is_frozen(schedule) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        schedule.epsilons = ()


def test_the_table_has_a_line_for_each_stop_shown(schedule) -> None:
    *lines, unit = schedule.table().splitlines()
    assert len(lines) == 11
    assert unit.startswith("at the last stop, 1,000: 1,000 runs of ")
    assert lines[1].split()[:2] == ["100", f"{schedule.epsilons[4]:.4f}"]
    assert lines[-1].split()[0] == "1,000"
    assert len(schedule.table(3, unit=False).splitlines()) == 4


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "step",
    [
        tb.Gaussian(20.0),
        tb.Laplace(20.0),
        tb.DiscreteGaussian(10.0),
        tb.ApproximateDP(0.1, 1e-9),
        tb.RandomizedResponse(0.52),
        tb.Gaussian(2.0).subsampled(0.1) + tb.Laplace(50.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_any_mechanism_gets_prices_that_delta_covers(step, delta) -> None:
    found = tb.early_stopping(step, [5, 10, 20], delta)
    assert found.delta.upper <= delta
    assert found.delta.lower > 0
    assert list(found.epsilons) == sorted(found.epsilons)
    # dearer than a run that must go on to the end, cheaper than equal shares
    assert found.epsilons[-1] >= (step * 20).epsilon(delta).lower
    assert found.epsilons[-1] <= found.separate[-1] * (1 + 1e-6)


def test_one_stop_is_the_plain_epsilon() -> None:
    found = tb.early_stopping(DPSGD, [1000], 1e-5)
    plain = (DPSGD * 1000).epsilon(1e-5)
    assert plain.lower <= found.epsilons[0] <= plain.upper * 1.0005


def test_a_heavier_weight_makes_a_stop_cheaper() -> None:
    stops = [10, 20, 40]
    equal = tb.early_stopping(DPSGD, stops, 1e-5, weights=[1, 1, 1])
    late = tb.early_stopping(DPSGD, stops, 1e-5, weights=[1, 1, 50])
    assert equal.epsilons[0] < late.epsilons[0]
    assert equal.epsilons[-1] > late.epsilons[-1]


def test_a_list_of_steps() -> None:
    steps = [tb.Gaussian(20.0)] * 3 + [tb.Laplace(30.0)] * 3
    found = tb.early_stopping(steps, [3, 6], 1e-5)
    assert found.delta.upper <= 1e-5


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ((DPSGD, [1, 2], 0.0), r"delta must be in \(0, 1\), got 0.0"),
        ((DPSGD, [1, 2], 1e-5, [1]), r"weights must hold a weight for each of the 2 stops"),
        ((DPSGD, [1, 2], 1e-5, [1, 0]), r"weights\[1\] must be a finite number > 0, got 0"),
        ((DPSGD, [1, 2], 1e-5, None, 2.0), r"rtol must be in \(0, 1\), got 2.0"),
        ((DPSGD, [2, 1], 1e-5), r"stops\[1\] must be > stops\[0\] = 2, got 1"),
    ],
)
def test_refusals(question, message) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        tb.early_stopping(*question)


def test_no_price_is_high_enough() -> None:
    with pytest.raises(
        tb.errors.CalibrationError, match="delta = 1e-05 must be well above the chance"
    ):
        tb.early_stopping(tb.ApproximateDP(0.1, 1e-4), [1, 2], 1e-5)
