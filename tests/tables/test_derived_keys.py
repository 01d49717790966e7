"""Keys that rows derive from another column: the same on arrays and engines, and refusals."""

from __future__ import annotations

import datetime
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guards.mutants import Without, each, lose_a_truth
from tests.tables import engines
from tests.tables.test_laws import Silent

import tightbudget as tb
from tightbudget.tables import Months, Quarters, Table, ValueBins, Years

pytest.importorskip("ibis")
pyarrow: Any = pytest.importorskip("pyarrow")
pandas: Any = pytest.importorskip("pandas")


def counted(data: Any, rule: Any, **declared: Any) -> dict[str, int]:
    """How many rows have each key."""
    table = Table(data, domains={"key": rule}, **declared)
    asked = tb.GroupedCounts(by="key", epsilon=1)
    found = asked.release(table, meter=tb.OutputDPOdometer(), noise=Silent())
    return dict(found.value)


# ------------------------------------------------------------------ dates

DAYS = [
    None,
    *map(
        datetime.date.fromisoformat,
        ["2025-12-31", "2026-01-01", "2026-01-31", "2026-02-01", "2026-03-31", "2026-04-01"],
    ),
    datetime.date(1, 1, 1),
    datetime.date(9999, 12, 31),
    datetime.date(2026, 12, 31),
    datetime.date(2027, 1, 1),
]
PERIODS = [
    (Months("at", "2026-01", "2026-03"), lambda d: f"{d:%Y-%m}"),
    (Months("at", "2025-12", "2026-12", other="else"), lambda d: f"{d:%Y-%m}"),
    (Quarters("at", "2026-Q1", "2026-Q4"), lambda d: f"{d.year:04}-Q{(d.month + 2) // 3}"),
    (Quarters("at", "2026-Q1", "2026-Q1", other="else"), lambda d: f"{d.year:04}-Q1"
        if d.month < 4 else "none"),
    (Years("at", 2025, "2026"), lambda d: f"{d.year:04}"),
    (Years("at", 1, 9998, other="else"), lambda d: f"{d.year:04}"),
]  # fmt: skip


def wanted(rule: Any, of: Any, days: list[Any]) -> dict[str, int]:
    """The truth, by Python's own calendar."""
    found = dict.fromkeys(rule.keys, 0)
    for day in days:
        label = "none" if day is None else of(day)
        key = label if label in rule.labels else rule.other
        if key is not None:
            found[key] += 1
    return found


def as_dates(days: list[Any], kind: str) -> Any:
    """The days as arrays of a type of NumPy, or of objects."""
    if kind == "object":
        return np.array([*days, "2026-01-01", 3], dtype=object)
    return np.array(
        [np.array("NaT", f"M8[{kind}]")[()] if d is None else d for d in days],
        dtype=f"M8[{kind}]",
    )


@pytest.mark.parametrize("kind", ["D", "s", "ms", "us", "ns", "h", "object"])
@pytest.mark.parametrize(("rule", "of"), PERIODS)
def test_arrays_have_the_periods_of_pythons_calendar(rule: Any, of: Any, kind: str) -> None:
    days = [d for d in DAYS if kind != "ns" or d is None or 1700 < d.year < 2200]
    truth = wanted(rule, of, days)
    if kind == "object" and rule.other is not None:
        truth[rule.other] += 2  # objects that are no dates
    assert counted({"at": as_dates(days, kind)}, rule) == truth


@pytest.mark.parametrize("kind", ["date32", "timestamp[us]", "timestamp[s]", "timestamp[ns]"])
@pytest.mark.parametrize(("rule", "of"), PERIODS[:5])
def test_duckdb_has_the_periods_of_pythons_calendar(rule: Any, of: Any, kind: str) -> None:
    days = [d for d in DAYS if kind != "timestamp[ns]" or d is None or 1700 < d.year < 2200]
    types = {"date32": pyarrow.date32()}
    column = pyarrow.array(days, pyarrow.date32()).cast(
        types.get(kind) or pyarrow.timestamp(kind[10:-1])
    )
    assert counted(pyarrow.table({"at": column}), rule) == wanted(rule, of, days)


def test_the_last_moment_of_a_month_is_in_it() -> None:
    moments = [datetime.datetime(2026, 1, 31, 23, 59, 59, 999_999), datetime.datetime(2026, 2, 1)]
    rule = Months("at", "2026-01", "2026-02")
    for data in (
        {"at": np.array(moments, dtype="M8[us]")},
        {"at": np.array(moments, dtype=object)},
        pandas.DataFrame({"at": moments}),
        pyarrow.table({"at": moments}),
    ):
        assert counted(data, rule) == {"2026-01": 1, "2026-02": 1}


# ------------------------------------------------------------------ numbers

NUMBERS = st.one_of(
    st.floats(width=64), st.integers(-3, 70).map(float), st.sampled_from([18.0, 40.0, math.nan])
)
EDGES = st.lists(
    st.one_of(st.integers(-3, 70), st.floats(-100, 100)), min_size=2, max_size=4, unique=True
).map(sorted)


def place(edges: list[float], x: float) -> int | None:
    """The bin of a number, by exact fractions; None outside."""
    if math.isnan(x):
        return None
    for i in range(len(edges) - 1):
        low, high = edges[i], edges[i + 1]
        above = low == -math.inf or (x != -math.inf and (x == math.inf or exact(x) >= exact(low)))
        below = high == math.inf or (x != math.inf and (x == -math.inf or exact(x) < exact(high)))
        if above and below:
            return i
    return None


def exact(x: float) -> Fraction:
    return Fraction(x)


@settings(max_examples=25, deadline=None)
@given(
    x=st.lists(NUMBERS, min_size=1, max_size=12),
    edges=EDGES,
    ends=st.tuples(st.booleans(), st.booleans()),
    other=st.sampled_from([None, "else"]),
)
def test_numbers_are_in_the_bin_of_their_exact_value(
    x: list[float], edges: list[float], ends: tuple[bool, bool], other: str | None
) -> None:
    edges = [-math.inf] * ends[0] + edges + [math.inf] * ends[1]
    names = [f"bin {i}" for i in range(len(edges) - 1)]
    rule = ValueBins("x", edges, names, other=other)
    truth = dict.fromkeys(rule.keys, 0)
    for number in x:
        i = place(edges, number)
        if (key := other if i is None else names[i]) is not None:
            truth[key] += 1
    assert counted({"x": np.array(x)}, rule) == truth
    assert counted({"x": np.array(x, dtype=object)}, rule) == truth
    assert counted(pyarrow.table({"x": x}), rule) == truth


@pytest.mark.parametrize("kind", ["int64", "int8", "uint64"])
def test_integers_are_compared_exactly(kind: str) -> None:
    ends = np.iinfo(kind)
    x = [0, 1, 2, 40, ends.min, ends.max]
    rule = ValueBins("x", [-math.inf, 0.5, 2, 40], other="else")
    truth = {"(-inf, 0.5)": 1 + (kind != "uint64") + (kind == "uint64"), "[0.5, 2)": 1}
    truth |= {"[2, 40)": 1, "else": 2}
    array = np.array(x, dtype=kind)
    assert counted({"x": array}, rule) == truth
    assert counted(pyarrow.table({"x": array}), rule) == truth


def test_a_decimal_is_in_the_bin_of_its_double() -> None:
    from decimal import Decimal

    data = pyarrow.table({"x": pyarrow.array([Decimal("0.10"), Decimal("0.09"), None])})
    assert counted(data, ValueBins("x", [0, 0.1, 1], other="else")) == {
        "[0, 0.1)": 1, "[0.1, 1)": 1, "else": 1,
    }  # fmt: skip


# ------------------------------------------------------------------ all engines alike


@pytest.mark.parametrize("by", ["age", "month"])
def test_duckdb_and_arrays_choose_the_same_rows(by: str) -> None:
    rules = {
        "age": ValueBins("x", [-3, 0.5, 2, math.inf], other="else"),
        "month": Months("day", "1999-12", "2026-01"),
    }
    declared: Any = {"unit": "unit", "rows_per_unit": 3, "groups_per_unit": 2, "domains": rules}
    arrays = {name: engines.arrays(engines.ROWS[:90]).arrays[name] for name in ("unit", "x", "day")}
    found = []
    for data in (arrays, engines.arrow(engines.shuffled(engines.ROWS[:90], 1))):
        source, bound = Table(data, **declared).source, next(iter(engines.bounds()))
        bound = type(bound)(unit="unit", rows=3, groups=2, salt=engines.SALTS[0])
        keys = list(rules[by].keys)
        found.append(
            (
                source.groups(bound, [by], [engines.X], keys=keys),
                source.histograms(bound, [by], engines.X, keys=keys),
            )
        )
    assert found[0] == found[1]
    assert len(found[0][0]) > 1


# ------------------------------------------------------------------ what a table makes of them

DAY = np.array(["2026-01-05", "2026-02-07", "2026-02-08"], dtype="M8[D]")


@pytest.mark.parametrize("engine", [False, True], ids=["arrays", "duckdb"])
def test_questions_are_asked_by_a_derived_key(engine: bool) -> None:
    columns = {"day": DAY, "x": np.array([1.0, 2.0, 4.0])}
    data: Any = pyarrow.table(columns) if engine else columns
    rules = {"month": Months("day", "2026-01", "2026-03"), "size": ValueBins("x", [0, 2, 8])}
    table = Table(data, domains=rules)
    assert list(table.columns) == ["day", "x", "month", "size"]
    assert table.domain("month") == ("2026-01", "2026-02", "2026-03")
    session = tb.Session(table, tb.OutputDPOdometer(), noise=Silent())
    means = tb.GroupedMeans(by="month", column="x", bounds=(0, 8), epsilon=1)
    assert session.ask(means).rows()[0][0] == "month"
    both = session.ask(tb.GroupedCounts(by=("month", "size"), epsilon=1))
    assert both.value["2026-02", "[2, 8)"] == 2
    assert sum(both.value.values()) == 3
    largest = session.ask(tb.TopGroups(by="month", k=1, epsilon=1, least=1))
    assert largest.value == ("2026-02",)


def a_rule_takes_no_columns_place() -> bool:
    """Else a unit would be the bin that its row is in."""
    columns = {"u": np.array([1, 2]), "x": np.array([1.0, 2.0])}
    try:
        Table(columns, unit="u", rows_per_unit=1, domains={"u": ValueBins("x", [0, 2])})
    except tb.ParameterError:
        return True
    return False


def test_a_rule_takes_the_place_of_no_column() -> None:
    assert a_rule_takes_no_columns_place()
    with pytest.raises(
        tb.ParameterError,
        match=r"^domains\['x'\] must name a new column, in which derived keys are put, got",
    ):
        Table({"x": np.array([1.0])}, domains={"x": ValueBins("x", [0, 2])})


@each(
    [
        Without(
            "a rule of keys takes the place of the unit",
            {"derived-keys-in-a-new-column": "if False:"},
            a_rule_takes_no_columns_place,
        ),
    ]
)
def test_each_guard_guards(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Months("at", "2026-13", "2027-01"), r"^first must be a month, say '2026-01', got"),
        (lambda: Months("at", "2026-01", 3), r"^last must be a month, say '2026-01', got 3$"),
        (lambda: Months("at", "2026-03", "2026-01"), r"^last must be 2026-03 or later, got '2026-"),
        (lambda: Months("at", "9999-01", "9999-02"), r"^first must be a month"),
        (lambda: Quarters("at", "2026-1", "2026-Q2"), r"^first must be a quarter, say '2026-Q1'"),
        (lambda: Years("at", 2026, 2025), r"^last must be 2026 or later, got 2025$"),
        (lambda: Years("at", 0, 2025), r"^first must be"),
        (lambda: Years("at", 2025, 9999), r"^last must be a year, say 2026, got '9999'$"),
        (lambda: Months(3, "2026-01", "2026-02"), r"^column must be the name of a column, got 3$"),  # type: ignore[arg-type]
        (lambda: Months("at", "2026-01", "2026-02", other=""), r"^other must be a text, got ''$"),
        (
            lambda: Months("at", "2026-01", "2026-02", other="2026-01"),
            r"^keys must be different from one another, and from other, got '2026-01'$",
        ),
        (lambda: ValueBins("x", [1]), r"^edges must be at least two numbers that ascend, got"),
        (lambda: ValueBins("x", [2, 1]), r"^edges must be at least two numbers that ascend"),
        (lambda: ValueBins("x", [-math.inf, math.inf]), r"^edges must be at least two numbers"),
        (lambda: ValueBins("x", [0, math.nan]), r"^edges\[1\] must be a finite number, got nan$"),
        (lambda: ValueBins("x", [math.inf, 3]), r"^edges\[0\] must be a finite number, got inf$"),
        (lambda: ValueBins("x", [0, 2.0**54]), r"^edges\[1\] must be at most 2\^53 from 0, got"),
        (lambda: ValueBins("x", [0, 1, 2], ["a"]), r"^names must be a text for each of the 2 bins"),
        (lambda: ValueBins("x", [0, 1, 2], ["a", "a"]), r"^keys must be different from"),
    ],
)  # fmt: skip
def test_a_rule_is_refused_when_it_is_made(make: Any, said: str) -> None:
    with pytest.raises(tb.ParameterError, match=said):
        make()


@pytest.mark.parametrize("engine", [False, True], ids=["arrays", "duckdb"])
@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            Months("x", "2026-01", "2026-02"),
            r"^domains\['key'\] must be made of a column of dates, or of timestamps without a "
            r"zone, got 'x of type float64'$",
        ),
        (
            ValueBins("day", [0, 1]),
            r"^domains\['key'\] must be made of a column of numbers, got 'day of type date'$",
        ),
        (ValueBins("z", [0, 1]), r"^column must be one of the columns day, x, got 'z'$"),
    ],
)
def test_a_column_that_does_not_serve_is_refused(rule: Any, said: str, engine: bool) -> None:
    columns = {"day": DAY, "x": np.array([1.0, 2.0, 4.0])}
    data: Any = pyarrow.table(columns) if engine else columns
    with pytest.raises(tb.ParameterError, match=said):
        Table(data, domains={"key": rule})


def test_dates_of_no_fixed_length_are_refused() -> None:
    with pytest.raises(tb.ParameterError, match=r"^dates must be of days or seconds, got datetim"):
        Table({"at": DAY.astype("M8[M]")}, domains={"key": Months("at", "2026-01", "2026-02")})


@pytest.mark.parametrize("engine", [False, True], ids=["arrays", "duckdb"])
def test_the_names_of_queries_are_no_columns(engine: bool) -> None:
    columns = {"x": np.array([1.0, 2.0, 4.0])}
    data: Any = pyarrow.table(columns) if engine else columns
    with pytest.raises(tb.ParameterError, match=r"^data must have no column whose name begins "):
        Table(data, domains={"tightbudget_half": ValueBins("x", [0, 1])})
