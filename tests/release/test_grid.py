"""From real numbers to integers, and from tables to arrays."""

from __future__ import annotations

import contextlib
import itertools
import math
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import tightbudget as tb
from tightbudget.release.columns import clamped, column, table
from tightbudget.release.noise.grid import AnswerGrid

STEPS = [1.0, 0.25, 2.0**-20, 64.0]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("size", [1, 5])
def test_numbers_that_are_close_stay_close(step: float, size: int) -> None:
    random, grid = Random(f"{step} {size}"), AnswerGrid(step)
    for _ in range(300):
        x = [random.choice((random.uniform(-9, 9), step / 2, 1e200)) for _ in range(size)]
        y = [a + random.choice((0.0, step, -step / 2, random.uniform(-3, 3))) for a in x]
        apart = sum(abs(Fraction(a) - Fraction(b)) for a, b in zip(x, y, strict=True))
        if apart:
            moved = abs(grid.points(x, size) - grid.points(y, size)).sum()
            assert moved <= grid.sensitivity(apart, size)


def test_the_sensitivity_is_one_point_more_and_that_can_be_reached() -> None:
    assert AnswerGrid(0.25).sensitivity(0.7) == 4
    assert AnswerGrid(0.25).sensitivity(0.7, 3) == 6
    assert AnswerGrid(1.0).point(0.5 + 1e-9) - AnswerGrid(1.0).point(-0.5 - 1e-9) == 2
    assert AnswerGrid(1.0).sensitivity(1.1) == 3


@pytest.mark.parametrize("size", [1, 5])
def test_integers_that_are_close_stay_close_without_a_step(size: int) -> None:
    random, grid = Random(f"integers {size}"), AnswerGrid()
    for _ in range(300):
        x = [random.choice((random.randrange(-9, 9), 2**52, -(10**30))) for _ in range(size)]
        y = [a + random.choice((0, 0, 1, -7)) for a in x]
        apart = sum(abs(a - b) for a, b in zip(x, y, strict=True))
        if apart:
            moved = abs(grid.points(x, size) - grid.points(y, size)).sum()
            assert moved <= grid.sensitivity(apart, size) == apart


def test_a_vector_of_real_numbers_needs_a_step() -> None:
    """Rounding down moves each of them by one more, which no sensitivity without a step covers."""
    x, y = [0.9375] * 10, [1.0625] * 10  # 1.25 apart in the 1-norm
    apart = sum(b - a for a, b in zip(x, y, strict=True))
    grid, fine = AnswerGrid(), AnswerGrid(1.0)
    assert abs(grid.points(x, 10) - grid.points(y, 10)).sum() == 10 > grid.sensitivity(apart, 10)
    assert abs(fine.points(x, 10) - fine.points(y, 10)).sum() <= fine.sensitivity(apart, 10)


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
    points = AnswerGrid(step).points(np.array(ends, dtype=kind), len(ends)).tolist()
    unit = Fraction(step or 1)
    for point, value in zip(points, values, strict=True):
        most = 2**52
        exact = most if abs(value) == math.inf else abs(Fraction(value)) / unit
        assert abs(abs(point) - min(most, exact)) <= Fraction(1, 2)
        assert point == 0 or (point < 0) == (value < 0)
    assert points == sorted(points)


def test_large_integers_are_not_rounded_twice() -> None:
    """Beyond 2^53 doubles have gaps as wide as a step may be: integers end there."""
    x, y = 2**62 - 2**9 - 1, 2**62 - 2**9
    grid = AnswerGrid(1024.0)
    assert grid.point(np.int64(y)) - grid.point(np.int64(x)) <= 1
    assert grid.point(np.longdouble(2**62)) == 2**52


SAME = [
    0,
    1,
    -3,
    511,
    512,
    513,
    1536,
    2**53 + 1,
    2**60 + 512,
    2**61,
    2**62 - 2**9 - 1,
    2**63,
    2**64,
]


@pytest.mark.parametrize("step", [None, 0.5, 1.0, 1024.0, 2.0**70])
def test_a_number_has_one_point_whatever_its_type_and_its_neighbours_are(
    step: float | None,
) -> None:
    """Types can depend on a record: then they must not move a number, nor the ones beside it."""
    grid = AnswerGrid(step)
    for value in [*SAME, *(-x for x in SAME)]:
        point = grid.point(value)
        kinds: list[Any] = [Fraction(value), Decimal(value), np.longdouble(value)]
        for kind in (float, np.float32, np.int64, np.uint64):
            with contextlib.suppress(OverflowError):
                kinds += [kind(value)] if int(kind(value)) == value else []
        for same in kinds:
            if int(same) == value:
                assert grid.point(same) == point, type(same)
                assert grid.point(np.array([same])) == point
        for beside in (0, -1, 0.5, 2**63, 2**70, -(10**400), None, "7", math.nan):
            assert grid.points([value, beside], 2)[0] == point, beside


@pytest.mark.parametrize("step", [None, 0.5, 1.0, 1024.0, 2.0**-500, 2.0**500])
@pytest.mark.parametrize("bounds", [None, (-3, 5)])
def test_one_number_and_many_have_the_same_points(
    step: float | None, bounds: tuple[int, int] | None
) -> None:
    """There is a quick way for one, one for arrays, and an exact one: they agree."""
    random, grid = Random("ways"), AnswerGrid(step, bounds)
    halves = [x * (step or 1) for x in (0.5, 1.5, -0.5, -2.5, 3.0)]
    ends = [math.inf, -math.inf, math.nan, 1e308, -1e308, 5e-324, -0.0, 2.0**52, 2.0**53 + 2]
    numbers = [
        *halves,
        *ends,
        *(random.uniform(-1, 1) * 2.0 ** random.randrange(60) for _ in "x" * 99),
    ]
    points = [grid.point(x) for x in numbers]
    assert grid.points(np.array(numbers), len(numbers)).tolist() == points
    assert grid.points([*numbers, None], len(numbers) + 1).tolist()[:-1] == points
    assert [grid.point(np.float64(x)) for x in numbers] == points
    for x, point in zip(numbers, points, strict=True):
        if not math.isnan(x):
            public = AnswerGrid(step).point(x)
            assert bounds or public == point
            if step is not None:
                assert AnswerGrid(step).public(least=x) == public


def test_numbers_are_rounded_down_where_there_is_no_step() -> None:
    random, grid = Random("floor"), AnswerGrid()
    for _ in range(1000):
        x = random.choice((random.uniform(-5, 5), float(random.randrange(-5, 5))))
        y = random.choice((x, x + 0.25, x + 1, x - 2, x + random.uniform(-3, 3)))
        assert grid.point(x) == math.floor(x)
        if x != y:
            apart = abs(Fraction(x) - Fraction(y))
            assert abs(grid.point(x) - grid.point(y)) <= grid.sensitivity(apart)


FAILURES = [
    None, "7", "x", b"7", math.nan, 1j, object(), {}, [], [[1], [1, 2]], (), set(), ...,
    np.datetime64("2020-01-01"), np.array(["7"]), np.array([]), Decimal("nan"), Decimal("snan"),
]  # fmt: skip


@pytest.mark.parametrize("value", FAILURES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("step", [None, 0.5])
def test_what_is_no_number_is_the_fallback(value: Any, step: float | None) -> None:
    assert AnswerGrid(step).point(value) == 0
    assert AnswerGrid(step, (-3, 5)).point(value) == (-3 if step is None else -6)
    assert AnswerGrid(step, (-3, 5), 5).point(value) == (5 if step is None else 10)
    assert AnswerGrid(step, (-3, 5)).points([4, value, 2], 3)[[0, 2]].tolist() == (
        [4, 2] if step is None else [8, 4]
    )


def test_the_harmless_is_read_as_it_was_meant() -> None:
    grid = AnswerGrid(bounds=(-9, 9))
    for value in (
        True,
        np.True_,
        1,
        1.5,
        [1],
        (1,),
        np.array(1),
        np.array([[1.0]]),
        Decimal("1.5"),
    ):
        assert grid.point(value) == 1
    assert grid.points([1, 2], 3).tolist() == [1, 2, -9]
    assert grid.points([1, 2, 3, 4], 3).tolist() == [1, 2, 3]
    assert grid.points(np.array([[1], [2]]), 2).tolist() == [1, 2]


@pytest.mark.parametrize("step", [None, 0.25])
@pytest.mark.parametrize("size", [None, 3])
def test_with_bounds_every_query_has_the_sensitivity_of_its_bounds(
    step: float | None, size: int | None
) -> None:
    """Whatever a query answers, and for whomever: the law that failures rest on."""
    grid, n = AnswerGrid(step, (-1, 2)), size or 1
    answers = [
        *FAILURES, 0, -1, 2, 1.9, 2**64, -(10**400), math.inf, [-1] * 3, [2**63, -1, math.nan],
        [5, None, "x"], [[2, 2, 2]], np.array([9, 9, 9], dtype=np.uint8),
    ]  # fmt: skip
    points = [grid.points(answer, size) for answer in answers]
    moved = max(abs(p - q).sum() for p in points for q in points)
    assert n * 3 * (1 if step is None else 4) <= moved <= grid.sensitivity(3 * n, n)


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (5, r"bounds must be two numbers, \(low, high\), got 5"),
        ((1, 2, 3), r"bounds must be two numbers, \(low, high\), got \(1, 2, 3\)"),
        ((2, 1), r"bounds must ascend, got \(2, 1\)"),
        ((0.5, 1), r"bounds\[0\] must be an integer, got 0\.5"),
        ((0, None), r"bounds\[1\] must be an integer, got None"),
    ],
)
def test_bounds_are_refused_by_name(bounds: Any, said: str) -> None:
    with pytest.raises(tb.ParameterError, match=f"^{said}$"):
        AnswerGrid(bounds=bounds)


def test_a_bound_that_is_no_number_is_refused() -> None:
    with pytest.raises(tb.ParameterError, match=r"^bounds\[1\] must be a number, got nan"):
        AnswerGrid(0.5, (0, math.nan))


def test_counts_are_exact() -> None:
    grid = AnswerGrid()
    assert grid.sensitivity(1) == 1
    assert grid.sensitivity(0.3) == 1
    assert [grid.point(x) for x in (7, np.int32(-3), 10**30)] == [7, -3, 2**52]
    assert grid.points([1, -(2**60)], 2).tolist() == [1, -(2**52)]


@pytest.mark.parametrize("value", [1.0, "1", None, [1], True, math.nan])
def test_no_count(value: Any) -> None:
    assert AnswerGrid().point(value) in (0, 1)
    with pytest.raises(tb.ParameterError, match=r"^threshold must be an integer, got "):
        AnswerGrid().public(threshold=value)


def test_nan_is_no_number() -> None:
    with pytest.raises(tb.ParameterError, match=r"^least must be a number, got nan"):
        AnswerGrid(0.5).public(least=math.nan)


@pytest.mark.parametrize("step", [0.1, 3.0, 2.0**501])
def test_a_step_that_is_no_power_of_two_is_refused(step: float) -> None:
    with pytest.raises(tb.ParameterError, match=r"^step must be a power of two in "):
        AnswerGrid(step)


def test_noise_that_int64_has_cut_off_does_not_show() -> None:
    """An answer is the same for all noise beyond 2^62, on both sides, whatever the query."""
    ends = (2**62, 2**63 - 1, -(2**62), -(2**63))
    for query in (-(2**52), 0, 2**52):
        shown = AnswerGrid().noisy(np.full(4, query), np.array(ends))
        assert shown.tolist() == [2**61, 2**61, -(2**61), -(2**61)]
    assert AnswerGrid(0.25).noisy(np.array([3]), np.array([-5])).tolist() == [-0.5]


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
    assert table(2, rows=frame).tolist() == [[1, 0.5], [2, 1]]


SECRET = "Ada Lovelace"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (np.array([SECRET]), "ndarray"),
        (pd.Series([SECRET]), "Series"),
        (pl.Series([SECRET]), "Series"),
        (np.array([[1.0]]), "ndarray of 2 dimensions"),
        (np.array([1j]), "ndarray"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "ndarray"),
        (pd.Series(["7"]), "Series"),
        (pd.Series(pd.to_datetime(["2020-01-01"])), "Series"),
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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.array([1, 2]), "got something else \\(ndarray of 1 dimensions\\)"),
        (np.ones((2, 3)), "got 3"),
        (pd.DataFrame({"a": [1.0], "b": ["x"]}), "got something else \\(DataFrame\\)"),
        (pl.DataFrame({"a": [1.0], "b": ["x"]}), "got something else \\(DataFrame\\)"),
        (pl.DataFrame({"a": [1.0]}), "got 1"),
    ],
)
def test_no_table(given: Any, said: str) -> None:
    with pytest.raises(
        tb.ParameterError, match=f"^rows must be a table of numbers with 2 columns, {said}$"
    ):
        table(2, rows=given)


RECORDS: list[Any] = [
    1, 2.5, True, np.float32(0.1), np.int8(3), np.longdouble(1) / 3, Fraction(1, 3), Decimal("0.1"),
    np.array(4), 2**53 + 1, 2**64, -(2**63) - 1, 10**400, -(10**400), math.inf, math.nan, None, "7",
    "x", b"7", 1j, [1], [], {}, object(), np.datetime64("2020-01-01"), np.array([1.0]), SECRET,
    Decimal("1e999999"), np.str_("7"), pd.NA, pd.NaT,
]  # fmt: skip


def test_a_record_is_read_by_itself_whatever_stands_beside_it() -> None:
    """The law that every proof of a mechanism rests on: one record moves one record."""

    def read(*records: Any) -> list[str]:
        return list(map(repr, column(data=list(records)).tolist()))

    for record in RECORDS:
        (alone,) = read(record)
        for other in RECORDS:
            assert read(record, other)[0] == alone, other
            assert read(other, record)[1] == alone, other
        held = np.empty(2, dtype=object)
        held[:] = [None, 0]
        held[1] = record
        for of_objects in (held, pd.Series(held, dtype=object)):
            assert repr(column(data=of_objects)[1].item()) == alone
        rows = table(2, rows=[[1.0, record], [0.5, 2.0]]).tolist()
        assert [*map(repr, rows[0])] == ["1.0", alone]
        assert rows[1] == [0.5, 2.0]


@pytest.mark.parametrize(
    ("record", "counts_as"),
    [
        *[(x, math.nan) for x in (None, "7", "x", math.nan, 1j, [1.0], Decimal("snan"))],
        *[(x, math.inf) for x in (10**400, math.inf, Decimal("1e999999"), np.longdouble("1e4000"))],
        *[(x, -math.inf) for x in (-(10**400), Decimal("-inf"))],
        *[(x, 0.1) for x in (0.1, Decimal("0.1"), Fraction(1, 10))],
        (2**64, 2.0**64),
        (True, 1.0),
    ],
    ids=repr,
)
def test_what_a_record_counts_as(record: Any, counts_as: float) -> None:
    assert repr(column(data=[record, 1.0]).tolist()) == repr([counts_as, 1.0])


def test_columns_of_polars_that_are_no_arrays_of_numbers() -> None:
    for given, counts_as in (
        (pl.Series([True, None, False]), [1.0, math.nan, 0.0]),
        (pl.Series([None, None]), [math.nan] * 2),
        (pl.Series([Decimal("0.5"), None]), [0.5, math.nan]),
        (pl.Series([object(), 7, "7"], dtype=pl.Object), [math.nan, 7.0, math.nan]),
        (pd.Series([1, 2, 1], dtype="category"), [1.0, 2.0, 1.0]),
        (pd.Series([True, None], dtype="boolean"), [1.0, math.nan]),
    ):
        assert repr(column(data=given).tolist()) == repr(counts_as)
    with pytest.raises(tb.ParameterError, match=r"^data must be a column of numbers"):
        column(data=pl.Series(["7"]))


def test_no_conversion_warns() -> None:
    """A warning would name a record at no price; here it would be an error."""
    signalling = np.array([0x7F800001, 0], dtype=np.uint32).view(np.float32)
    too_long = np.array([1, 10], dtype=np.longdouble) ** 4000
    for given in (signalling, too_long, pd.Series(signalling), signalling.tolist()):
        assert column(data=given)[0] in (1.0, math.inf) or math.isnan(column(data=given)[0])
        for step in (None, 0.5, 2.0**-500, 2.0**500):
            assert len(AnswerGrid(step).points(given, 2)) == 2


def test_rows_of_another_length_are_missing_by_themselves() -> None:
    rows = table(2, rows=[[1, 2], [3], [4, 5, 6], 7, "89", None, (8, None), np.array([9, 10])])
    assert repr(rows.tolist()) == repr(
        [[1.0, 2.0], *[[math.nan] * 2] * 5, [8.0, math.nan], [9.0, 10.0]]
    )
    assert table(2, rows=[]).shape == (0, 2)


def test_clamping_brings_no_two_records_further_apart() -> None:
    for a, b in itertools.product([-math.inf, -1.0, 0.5, 3.0, math.inf], repeat=2):
        low, high = clamped(np.array([a, b]), 0, 1)
        assert abs(low - high) <= abs(a - b) or a == b
