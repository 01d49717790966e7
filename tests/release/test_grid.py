"""From real numbers to integers, and from tables to arrays."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import tightbudget as tb
from tightbudget.release.columns import clamped, column, table
from tightbudget.release.grid import Grid

STEPS = [1.0, 0.25, 2.0**-20, 64.0]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("size", [1, 5])
def test_numbers_that_are_close_stay_close(step: float, size: int) -> None:
    random, grid = Random(f"{step} {size}"), Grid(step)
    for _ in range(300):
        x = [random.choice((random.uniform(-9, 9), step / 2, 1e200)) for _ in range(size)]
        y = [a + random.choice((0.0, step, -step / 2, random.uniform(-3, 3))) for a in x]
        apart = sum(abs(Fraction(a) - Fraction(b)) for a, b in zip(x, y, strict=True))
        if apart:
            moved = abs(grid.points(x, size) - grid.points(y, size)).sum()
            assert moved <= grid.sensitivity(apart, size)


def test_the_sensitivity_is_one_point_more_and_that_can_be_reached() -> None:
    assert Grid(0.25).sensitivity(0.7) == 4
    assert Grid(0.25).sensitivity(0.7, 3) == 6
    assert Grid(1.0).point(0.5 + 1e-9) - Grid(1.0).point(-0.5 - 1e-9) == 2
    assert Grid(1.0).sensitivity(1.1) == 3


@pytest.mark.parametrize("step", [None, 0.5, 2.0**-30, 2.0**-500, 1024.0])
@pytest.mark.parametrize("kind", "bBhHiIlLqQefd")
def test_every_kind_of_number_keeps_its_order_up_to_the_ends(kind: str, step: float | None) -> None:
    """No wrapping, no overflow, no warning: what is beyond the ends is moved to them."""
    ends: list[float]
    if kind in "efd":
        if step is None:
            return
        largest = float(np.finfo(kind).max)
        ends = [-math.inf, -largest, -1, 0, 1, largest, math.inf]
    else:
        least, largest = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
        ends = sorted({least, least + 1, 0, 1, largest})
    values: list[float] = np.array(ends, dtype=kind).tolist()
    points = Grid(step).points(np.array(ends, dtype=kind), len(ends)).tolist()
    unit = Fraction(step or 1)
    for point, value in zip(points, values, strict=True):
        most = 2**52 if kind in "efd" else min(2**52, int(2**53 / unit))
        exact = most if abs(value) == math.inf else abs(Fraction(value)) / unit
        assert abs(abs(point) - min(most, exact)) <= Fraction(1, 2)
        assert point == 0 or (point < 0) == (value < 0)
    assert points == sorted(points)


def test_large_integers_are_not_rounded_twice() -> None:
    """Beyond 2^53 doubles have gaps as wide as a step may be: integers end there."""
    x, y = 2**62 - 2**9 - 1, 2**62 - 2**9
    grid = Grid(1024.0)
    assert grid.point(np.int64(y)) - grid.point(np.int64(x)) <= 1
    with pytest.raises(TypeError):
        grid.point(np.longdouble(1))


def test_counts_are_exact() -> None:
    grid = Grid()
    assert grid.sensitivity(1) == 1
    assert grid.sensitivity(0.3) == 1
    assert [grid.point(x) for x in (7, np.int32(-3), 10**30)] == [7, -3, 2**52]
    assert grid.points([1, -(2**60)], 2).tolist() == [1, -(2**52)]


@pytest.mark.parametrize("value", [1.0, "1", None, [1], True, math.nan])
def test_no_count(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Grid().point(value)
    with pytest.raises(tb.ParameterError, match=r"^threshold must be an integer, got "):
        Grid().public(threshold=value)


def test_nan_is_no_number() -> None:
    with pytest.raises(tb.ParameterError, match=r"^least must be a number, got nan"):
        Grid(0.5).public(least=math.nan)


@pytest.mark.parametrize("step", [0.1, 3.0, 2.0**501])
def test_a_step_that_is_no_power_of_two_is_refused(step: float) -> None:
    with pytest.raises(tb.ParameterError, match=r"^step must be a power of two in "):
        Grid(step)


def test_noise_that_int64_has_cut_off_does_not_show() -> None:
    """An answer is the same for all noise beyond 2^62, on both sides, whatever the query."""
    ends = (2**62, 2**63 - 1, -(2**62), -(2**63))
    for query in (-(2**52), 0, 2**52):
        shown = Grid().noisy(np.full(4, query), np.array(ends))
        assert shown.tolist() == [2**61, 2**61, -(2**61), -(2**61)]
    assert Grid(0.25).noisy(np.array([3]), np.array([-5])).tolist() == [-0.5]


# ---------------------------------------------------------------------------- columns

NUMBERS = [3.0, 1.0, math.nan]


@pytest.mark.parametrize(
    "given",
    [
        NUMBERS,
        np.array(NUMBERS, dtype=np.float32),
        pd.Series(NUMBERS),
        pd.Series([3, 1, None], dtype="Int64"),
        pl.Series([3, 1, None]),
        pl.Series(NUMBERS),
    ],
)
def test_every_kind_of_column(given: Any) -> None:
    values = column(ages=given)
    assert values.dtype == np.float64
    assert np.array_equal(values, NUMBERS, equal_nan=True)
    assert clamped(values, 0, 2).tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": [1, 2], "b": [0.5, 1]}),
        pl.DataFrame({"a": [1, 2], "b": [0.5, 1]}),
        [[1, 0.5], [2, 1]],
    ],
)
def test_every_kind_of_table(frame: Any) -> None:
    assert table(rows=frame).tolist() == [[1, 0.5], [2, 1]]


SECRET = "Ada Lovelace"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([SECRET], "list"),
        (pd.Series([SECRET]), "Series"),
        (pl.Series([SECRET]), "Series"),
        ([[1.0], [1.0, 2.0]], "list"),
        ([[1.0]], "list of 2 dimensions"),
        (SECRET, "str"),
        (10**400, "int"),
    ],
)
def test_what_is_no_column_is_refused_without_showing_it(given: Any, shown: str) -> None:
    with pytest.raises(tb.ParameterError) as caught:
        column(ages=given)
    assert str(caught.value) == f"ages must be a column of numbers, got something else ({shown})"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_no_table() -> None:
    with pytest.raises(tb.ParameterError, match=r"^rows must be a table of numbers.* of 1 dim"):
        table(rows=[1, 2])


def test_clamping_brings_no_two_records_further_apart() -> None:
    for a, b in itertools.product([-math.inf, -1.0, 0.5, 3.0, math.inf], repeat=2):
        low, high = clamped(np.array([a, b]), 0, 1)
        assert abs(low - high) <= abs(a - b) or a == b
