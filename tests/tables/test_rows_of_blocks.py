"""The rows that a session by blocks reads are those of the blocks that pay, and no others."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables.test_session import Zeros

import tightbudget as tb
from tightbudget.promises.block_names import BlockNames
from tightbudget.tables.rows_of_blocks import _together, rows_in_blocks

DAYS = [
    datetime.date(2025, 12, 31), datetime.date(2026, 1, 1), datetime.date(2026, 1, 31),
    datetime.date(2026, 2, 1), datetime.date(2026, 2, 28), datetime.date(2026, 3, 1),
    datetime.date(2026, 12, 31), datetime.date(2027, 1, 1), datetime.date(9999, 12, 31), None,
]  # fmt: skip
_LATE = datetime.time(23, 59, 59, 999_999)
FRAME = pa.table(
    {
        "day": pa.array(DAYS, pa.date32()),
        "at": pa.array(
            [None if d is None else datetime.datetime.combine(d, _LATE) for d in DAYS],
            pa.timestamp("us"),
        ),
        "month": pa.array([None if d is None else d.isoformat()[:7] for d in DAYS], pa.string()),
        "number": pa.array([None if d is None else d.month for d in DAYS], pa.int64()),
        "wide": pa.array([0.5] * len(DAYS)),
    }
)


def chosen(**values: Any) -> dict[str, tuple[str, ...]]:
    return BlockNames(name="visits", by=tuple(values)).values_in(values)


def counted(values: dict[str, tuple[str, ...]], columns: dict[str, str]) -> int:
    table = rows_in_blocks(tb.Table(FRAME), values, columns)
    meter = tb.OutputDPFilter(epsilon=1)
    value: int = tb.Session(table, meter, noise=Zeros()).ask(tb.Count(epsilon=1)).value
    return value


RANGES: dict[str, list[Any]] = {
    "month": ["2026-01", "2026-02", "2025-12..2026-01", ["2026-01", "2026-12"], "2026", "9999-12"],
    "year": ["2026", "2025..2027", [2025, 2027]],
    "day": ["2026-01-31", "2026-01-31..2026-02-01", ["2025-12-31", "2027-01-01"], "2026-02"],
}


@pytest.mark.parametrize("column", ["day", "at"])
@pytest.mark.parametrize(
    ("dimension", "said"), [(name, one) for name, several in RANGES.items() for one in several]
)
def test_the_rows_of_periods_are_those_whose_date_is_in_them(
    column: str, dimension: str, said: Any
) -> None:
    values = chosen(**{dimension: said})
    if (column, said) == ("at", "9999-12"):
        with pytest.raises(tb.ParameterError, match="timestamps of the years 1700 to 2260"):
            counted(values, {dimension: column})
        return
    length = len(values[dimension][0])
    named = [d.isoformat()[:length] for d in DAYS if d is not None]
    assert counted(values, {dimension: column}) == sum(n in values[dimension] for n in named)


def test_texts_and_integers_are_compared_as_they_are() -> None:
    assert counted(chosen(month=["2026-01", "2026-12"]), {"month": "month"}) == 3
    assert counted(chosen(number="1..2"), {"number": "number"}) == 5
    both = chosen(month="2026-01", number=[1, 3])
    assert counted(both, {"month": "day", "number": "number"}) == 2
    assert counted(chosen(opened="2026-03-01"), {"opened": "day"}) == 1


def test_every_row_is_in_one_block_at_most() -> None:
    months = chosen(month="2025-12..2027-01")["month"]
    each = [counted({"month": (month,)}, {"month": "at"}) for month in months]
    assert sum(each) == 8  # all but the one without a date and the one of the year 9999
    assert counted({"month": months}, {"month": "at"}) == 8


@settings(max_examples=40)
@given(days=st.lists(st.integers(0, 40), min_size=1, unique=True))
def test_periods_that_are_joined_are_the_same_days(days: list[int]) -> None:
    start = datetime.date(9999, 11, 21)
    given_days = [start + datetime.timedelta(days=day) for day in days]
    joined = _together([(day, day) for day in given_days])
    inside = {
        start + datetime.timedelta(days=day)
        for day in range(41)
        if any(first <= start + datetime.timedelta(days=day) <= last for first, last in joined)
    }
    assert inside == set(given_days)
    assert all(
        after[0] - before[1] > datetime.timedelta(days=1)
        for before, after in itertools.pairwise(joined)
    )


@pytest.fixture
def months(tmp_path: Path) -> Iterator[tb.ledger.Blocks]:
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        yield ledger.blocks("visits", by=["month"], epsilon=1, rows_in=12, cap_epsilon=1.5)


def test_a_question_is_charged_to_its_month_and_to_the_year(months: tb.ledger.Blocks) -> None:
    """The year has a cap: what its months have left together is not all that may be asked."""
    table = tb.Table(FRAME)
    for month, rows in (("2026-01", 2), ("2026-02", 2)):
        there = months.where(month=month)
        asks = tb.Session(table, there, columns={"month": "day"}, noise=Zeros())
        assert asks.ask(tb.Count(epsilon=0.75)).value == rows
        assert there.left.epsilon == 0.25
    march = tb.Session(table, months.where(month="2026-03"), columns={"month": "day"})
    with pytest.raises(tb.BudgetExceeded, match=r"of 'visits'; left epsilon 0\.0"):
        march.ask(tb.Count(epsilon=0.75))
    assert months.where(month="2026-03").left.epsilon == 1
    assert months.person.epsilon == 1.5


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "columns must name a column for each dimension of the blocks: month, got {}"),
        ("day", "columns must name a column for each dimension of the blocks: month, got 'day'"),
        ({"month": "day", "town": "day"}, "columns must name a column for each dimension"),
        ({"month": "nowhere"}, r"columns\['month'\] must be one of the columns day, at"),
        (
            {"month": "wide"},
            r"columns\['month'\] must be a column of texts, integers or dates, or of dates or "
            "timestamps without a time zone, got 'wide .float64.'",
        ),
        ({"month": "number"}, "month must be an integer as it is written .7 and not 07., since"),
    ],
)
def test_columns_are_refused_by_name(months: tb.ledger.Blocks, columns: Any, said: str) -> None:
    with pytest.raises(tb.ParameterError, match=said):
        tb.Session(tb.Table(FRAME), months.where(month="2026-01"), columns=columns)


def test_values_that_a_column_cannot_have_are_refused() -> None:
    for values, column, said in (
        (chosen(number="07"), "number", "number must be an integer as it is written"),
        (chosen(opened="tomorrow"), "day", "opened must be a date such as 2026-01-31"),
        (chosen(opened="20260131"), "day", "opened must be a date such as 2026-01-31"),
    ):
        with pytest.raises(tb.ParameterError, match=said):
            rows_in_blocks(tb.Table(FRAME), values, dict.fromkeys(values, column))
