"""Interquartile range, median and trimmed mean: what they answer, take and refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats
from tests.release.small import Script

import tightbudget as tb
from tightbudget.release.mechanisms.robust import LIMIT
from tightbudget.release.noise.noise import IntArray

pandas: Any = pytest.importorskip("pandas")  # without types of its own

Statistic = tb.release.InterquartileRange | tb.release.Median | tb.release.TrimmedMean

GIVEN: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "step": 2.0**-6}
STATISTICS: list[Statistic] = [
    tb.release.InterquartileRange(**GIVEN),
    tb.release.Median(**GIVEN, scale=10),
    tb.release.TrimmedMean(**GIVEN, spread=30),
]
every = pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: type(s).__name__)
HEIGHTS = np.round(stats.norm(170, 8).ppf((np.arange(1000) + 0.5) / 1000), 2)


def answer(
    statistic: Statistic, data: Any, passes: bool = True
) -> tb.release.Release[float | None]:
    """Without noise on the value; every test passes, or none does."""
    source = Script(statistic._protocol.test.scale, [10**9 if passes else -(10**9)] * 2)
    return statistic.release(data, meter=tb.OutputDPOdometer(), noise=source)


def value(statistic: Statistic, data: Any) -> float:
    found = answer(statistic, data).value
    assert found is not None
    return found


# -------------------------------------------------------------------------- what is answered


def test_the_interquartile_range_is_found_to_half_a_step_of_its_scale() -> None:
    truth = float(HEIGHTS[749] - HEIGHTS[249])  # in order
    base = 1 + 1 / math.log(1000)
    off = math.log(value(STATISTICS[0], HEIGHTS) / truth, base)
    assert abs(off) <= 0.5 / 32 + 2.0**-6 / truth / math.log(base)


def test_the_median_is_found_on_the_grid() -> None:
    assert abs(value(STATISTICS[1], HEIGHTS) - HEIGHTS[499]) <= 2.0**-7


def test_the_trimmed_mean_is_found() -> None:
    truth = float(stats.trim_mean(HEIGHTS, 0.1))
    assert abs(value(STATISTICS[2], HEIGHTS) - truth) <= 2.0**-7


@pytest.mark.parametrize("trim", [0, 0.25, Fraction(1, 3), 0.49])
def test_as_much_is_trimmed_as_is_said(trim: float) -> None:
    data = np.arange(100) ** 2
    statistic = tb.release.TrimmedMean(epsilon=1, delta=0.1, step=1, spread=10**4, trim=trim)
    assert value(statistic, data) == pytest.approx(stats.trim_mean(data, float(trim)), rel=1e-15)


@every
def test_a_shuffled_column_is_the_same_column(statistic: Statistic) -> None:
    shuffled = HEIGHTS.reshape(10, 100).T.ravel()
    assert answer(statistic, shuffled) == answer(statistic, HEIGHTS)


@every
def test_bottom_where_the_test_fails(statistic: Statistic) -> None:
    released = answer(statistic, HEIGHTS, passes=False)
    assert (released.value, released.cell) == (None, "bottom")
    assert released.receipt.returned.epsilon == 1


@every
def test_two_groups_far_apart_do_not_pass(statistic: Statistic) -> None:
    """Half of the records here and half there: one record moves every one of the three."""
    apart = np.repeat([0.0, 1000.0], [500, 500])
    if isinstance(statistic, tb.release.InterquartileRange):
        apart = np.repeat([0.0, 1000.0], [250, 750])
    assert statistic.release(apart, meter=tb.OutputDPOdometer()).cell == "bottom"


@pytest.mark.parametrize("statistic", [
    tb.release.Median(**GIVEN, scale=None), tb.release.TrimmedMean(**GIVEN, spread=None)
], ids=lambda s: type(s).__name__)  # fmt: skip
def test_bottom_in_bottom_out_at_no_cost(statistic: Statistic) -> None:
    meter = tb.OutputDPFilter(0)
    released = statistic.release(HEIGHTS, meter=meter)
    assert (released.value, released.cell) == (None, "bottom")
    assert released.receipt.charged == tb.Amount(0.0, 0.0, "epsilon")


def test_extreme_noise_stays_within_what_records_can_be() -> None:
    class Extreme(Script):
        def laplace(self, scale: Any, size: int) -> IntArray:
            return np.array([2**62])

    for statistic in STATISTICS:
        released = statistic.release(
            HEIGHTS, meter=tb.OutputDPOdometer(), noise=Extreme(Fraction(1), [])
        )
        assert released.value is not None
        assert 0 < released.value <= 3 * LIMIT * statistic.step


def test_a_range_below_one_step_counts_as_one() -> None:
    assert value(STATISTICS[0], np.full(100, 7.0)) == pytest.approx(2.0**-6, rel=0.01)


# ----------------------------------------------------------------------------- what is taken


@every
@pytest.mark.parametrize("column", [list, pandas.Series, pl.Series, np.float32])
def test_columns_of_every_kind(statistic: Statistic, column: Callable[[Any], Any]) -> None:
    whole = np.rint(HEIGHTS)
    assert answer(statistic, column(whole)) == answer(statistic, whole)


@every
def test_missing_and_endless_records_are_moved_to_the_ends(statistic: Statistic) -> None:
    odd = np.concatenate((HEIGHTS, [np.nan, -np.inf, np.inf, 1e300]))
    end = LIMIT * statistic.step
    assert answer(statistic, odd) == answer(
        statistic, np.concatenate((HEIGHTS, [-end, -end, end, end]))
    )


@every
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([1, 2, 3], r"len\(data\) must be at least 4, got 3"),
        (np.array(["a", "b", "c", "d"]), "data must be a column of numbers, got something else"),
        (np.zeros((4, 4)), "data must be a column of numbers, got something else"),
    ],
)
def test_what_is_no_column_is_refused_and_not_charged(
    statistic: Statistic, data: Any, message: str
) -> None:
    meter = tb.OutputDPFilter(10, 0.1)
    with pytest.raises(tb.ParameterError, match=message):
        statistic.release(data, meter=meter)
    assert meter.spent == meter.held == tb.Amount(0.0, 0.0, "epsilon")


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (tb.release.InterquartileRange, {"step": 0}, r"step must be a finite number > 0, got 0"),
        (tb.release.InterquartileRange, {"step": 0.1}, r"step must be a power of two .*, got 0\.1"),
        (
            tb.release.InterquartileRange,
            {"epsilon": -1},
            r"epsilon must be a finite number > 0, got -1",
        ),
        (tb.release.InterquartileRange, {"pricing": 2}, r"pricing must be one of .*, got 2"),
        (tb.release.Median, {"scale": 0}, r"scale must be a finite number > 0, got 0"),
        (
            tb.release.Median,
            {"scale": 1e12},
            r"scale must be at most 2\^39 epsilon steps, got 1\d*\.0",
        ),
        (tb.release.Median, {"scale": 1, "delta": 1}, r"delta must be in \[1e-300, 1\), got 1"),
        (
            tb.release.TrimmedMean,
            {"spread": float("nan")},
            r"spread must be a finite number > 0, got nan",
        ),
        (
            tb.release.TrimmedMean,
            {"spread": 1e12},
            r"spread must be at most 2\^39 epsilon steps, .*",
        ),
        (
            tb.release.TrimmedMean,
            {"spread": 1, "trim": 0.5},
            r"trim must be in \[0, 1/2\), got 0\.5",
        ),
        (
            tb.release.TrimmedMean,
            {"spread": 1, "trim": -1},
            r"trim must be a finite number >= 0, got -1",
        ),
    ],
)
def test_refusals(kind: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(tb.ParameterError, match=f"^{message}$"):
        kind(**(GIVEN | given))


def test_the_largest_lengths_can_be_drawn_for() -> None:
    for epsilon in (1e-9, 1 / 3, 1):
        given = GIVEN | {"epsilon": epsilon}
        length = 2.0**39 * epsilon * GIVEN["step"] * 0.999
        for statistic in (
            tb.release.Median(**given, scale=length),
            tb.release.TrimmedMean(**given, spread=length),
        ):
            assert statistic.release(HEIGHTS, meter=tb.OutputDPOdometer()).cell in (
                "value",
                "bottom",
            )


# ------------------------------------------------------------------------------------ size


@every
def test_a_million_records_are_answered(statistic: Statistic) -> None:
    records = np.arange(10**6) * 7919 % 1_000_003 * 2.0**-12
    release = statistic.release(records, meter=tb.OutputDPOdometer())
    assert release.cell in statistic.guarantee.cells
