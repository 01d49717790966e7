"""Tables with odd names, types and values: no unit moves more than its bound, no record fails."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.guards.mutants import Without, each, lose_a_truth

from tightbudget.errors import ParameterError
from tightbudget.output_dp.filter import OutputDPFilter
from tightbudget.tables import SelectedCounts, Session, Table
from tightbudget.tables.ibis_source import IbisSource
from tightbudget.tables.opening import opened
from tightbudget.tables.source import ONE, Contribution, OnGrid, Source

# Names that queries have used for columns of their own, with capital letters or without.
NAMES = ("_rank", "_order", "_entries", "x0_0", "x0", "s0_0", "rows", "n", "n0", "m0", "c0")
# Objects of which some cannot be hashed, compared or written.
ODD: list[Any] = [
    pd.NA, None, float("nan"), [1], {}, np.array([1, 2]), 10**5000, "\ud800", object(), b"x", 1j,
]  # fmt: skip


def of_duckdb(columns: Any) -> IbisSource:
    """Rows that are a table of DuckDB, which may change between two statements."""
    connection = ibis.duckdb.connect()
    connection.con.register("given", pa.table(columns))
    connection.con.execute("CREATE TABLE kept AS SELECT * FROM given")
    return opened(connection.table("kept"), {})


def of_memory(columns: Any) -> IbisSource:
    """Rows in memory."""
    return opened(pa.table(columns), {})


def bit(column: str) -> OnGrid:
    return OnGrid(column=column, low=0, high=1)


def bounded(unit: str | None, **more: Any) -> Contribution:
    return Contribution(unit=unit, rows=1, groups=1, **more)


def accepted(read: Callable[[], Any]) -> Any:
    """The answer, or None if the table is refused, which its names alone decide."""
    with contextlib.suppress(ParameterError):
        return read()
    return None


# -------------------------------------------------------------------------------------- names


@pytest.mark.slow
@pytest.mark.parametrize("rows_of", [of_duckdb, of_memory])
@pytest.mark.parametrize("name", [spelled for name in NAMES for spelled in (name, name.upper())])
def test_no_name_of_a_column_is_taken_for_one_of_a_query(
    rows_of: Callable[[Any], IbisSource], name: str
) -> None:
    missing = pa.array([None] * 4 + [7, 7, 7], pa.int64())
    values = rows_of({"u": missing, name: [1000] * 7})
    assert values.sums(bounded("u"), [ONE, bit(name)]) == [5, 5]
    assert values.histogram(bounded("u"), bit(name)) == [(1, 5)]
    assert values.groups(bounded("u"), [name], [], keys=None) == {1000: [5]}
    assert values.groups(bounded("u"), [name], [bit(name)], keys=None) == {1000: [5]}
    units = rows_of({name: missing, "v": [1000] * 7})
    assert units.counts(bounded(name), [None]) == [5]
    assert units.counts(bounded(name), [None], units=True) == [5]
    assert units.sums(bounded(name), [ONE, bit("v")]) == [5, 5]
    assert units.groups(bounded(name), ["v"], [], keys=None) == {1000: [5]}


def a_unit_is_read_from_its_own_column() -> bool:
    columns = {"ID": list(range(9)), "id": [1] * 9}
    return accepted(lambda: of_memory(columns).counts(bounded("id"), [None])) in (None, [1])


def names_of_queries_are_refused() -> bool:
    columns = {"u": [1], "Tightbudget_rank": [0]}
    return accepted(lambda: of_memory(columns)) is None


def test_names_that_differ_in_capital_letters_alone_are_refused() -> None:
    assert a_unit_is_read_from_its_own_column()
    assert names_of_queries_are_refused()
    table = Table(pa.table({"id": [1], "v": [1]}), unit="id", rows_per_unit=1)
    says = "more than capital letters"
    with pytest.raises(ParameterError, match=says):
        Table(pa.table({"ID": [1], "id": [1]}))
    with pytest.raises(ParameterError, match=says):
        table.mutate(ID=lambda t: t.v)
    with pytest.raises(ParameterError, match=says):
        table.join(pa.table({"id": [1], "V": [1]}), on="id")
    with pytest.raises(ParameterError, match="begins with tightbudget_"):
        table.mutate(tightbudget_half=lambda t: t.v)


# --------------------------------------------------------------------------------------- joins

KEYS = {
    "double": pa.array([2.0**53]),
    "integer": pa.array([2**53, 2**53 + 1]),
    "small": pa.array([1, 2], pa.int8()),
    "date": pa.array([datetime.date(2020, 1, 1)]),
    "seconds": pa.array([10**9], pa.timestamp("s")),
    "micros": pa.array([10**15, 10**15 + 1], pa.timestamp("us")),
    "nanos": pa.array([10**18, 10**18 + 1], pa.timestamp("ns")),
    "text": pa.array(["1", "01", "2020-01-01", "no date"]),
    "truth": pa.array([True, False]),
    "decimal": pa.array([2**53, 2**53 + 1], pa.decimal128(38, 0)),
}


def joined_rows(one: str, other: str) -> Any:
    private = Table(pa.table({"k": KEYS[one]}))
    public = pa.table({"k": KEYS[other], "w": [1] * len(KEYS[other])})
    return accepted(lambda: private.join(public, on="k").source.counts(bounded(None), [None]))


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), list(itertools.product(KEYS, KEYS)))
def test_a_join_keeps_each_row_one_row(one: str, other: str) -> None:
    assert joined_rows(one, other) in (None, [len(KEYS[one])])


def test_a_join_of_two_types_is_refused() -> None:
    table = Table(pa.table({"k": KEYS["double"]}))
    with pytest.raises(ParameterError, match="one type, got float64 and int64"):
        table.join(pa.table({"k": KEYS["integer"]}), on="k")
    assert joined_rows("small", "integer") == [2]


# ---------------------------------------------------------------------------------------- ties


def order_changes_nothing(rows_of: Callable[[Any], IbisSource], **more: Any) -> bool:
    """The points of one row of each unit, whose values differ by less than hashes can tell."""
    units = np.repeat(np.arange(200), 4)
    values = np.tile([0.0, 2.0**-13, 2.0**-12, 2.0**-11], 200)
    bound = bounded("u", salt="5a", **more)
    fine = OnGrid(column="x", low=0, high=2**10, step=2.0**-20)

    def points(order: Any) -> Any:
        same = np.zeros(800, dtype=np.int64)
        return rows_of({"u": units[order], "x": values[order], "r": same}).histogram(bound, fine)

    return points(np.arange(800)) == points(np.arange(800)[::-1])


def rows_of_one_text_are_ordered() -> bool:
    return order_changes_nothing(of_duckdb)


def rows_of_one_row_id_are_ordered() -> bool:
    return order_changes_nothing(of_duckdb, row_id="r")


def test_the_order_of_rows_that_hashes_cannot_tell_apart_changes_nothing() -> None:
    assert rows_of_one_text_are_ordered()
    assert rows_of_one_row_id_are_ordered()
    assert order_changes_nothing(of_memory)


# ------------------------------------------------------------------------------------- records


def a_date_far_away_is_no_error() -> bool:
    days = pa.array([0, 20_000_000], pa.date32())
    try:
        found = of_memory({"d": days}).groups(bounded(None), ["d"], [], keys=None)
    except OverflowError:
        return False
    return found == {datetime.date(1970, 1, 1): [1]}


def answers_of(source: Source) -> list[Any]:
    """An answer of each verb, with the odd column as the unit, the group and what is hashed."""
    bound = bounded("u")
    return [
        source.counts(bound, [None]),
        source.counts(bound, [None], units=True),
        source.sums(bound, [bit("u")]),
        source.groups(bound, ["u"], [], keys=["a"]),
        source.groups(bounded("k"), ["u"], [ONE], keys=None)["a"],
        source.histogram(bounded("k"), bit("u")),
        len(source.with_half(bound).columns),
    ]


def objects_make_no_error() -> bool:
    """An odd object more or less in a column of objects moves each answer by one row at most."""
    for odd in ODD:
        column = np.empty(2, dtype=object)
        column[:] = ["a", odd]
        table = Table(
            {"u": column, "k": np.array([1, 2])},
            unit="u",
            rows_per_unit=1,
            domains={"u": ["a"]},
        )
        try:
            counts, units, _, groups, group, *_ = answers_of(table.source)
        except (TypeError, ValueError):
            return False
        if not counts == units in ([1], [2]) or (groups, group) != ({"a": [1]}, [1]):
            return False
    return True


def test_a_record_of_a_file_that_is_no_text_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\n1,x\n2,\xff\xfe\n3,z\n")
    found = opened(path, {}).groups(bounded(None), ["a"], [], keys=None)
    assert found["1"] == found["3"] == [1]


def test_no_record_is_an_error() -> None:
    assert a_date_far_away_is_no_error()
    assert objects_make_no_error()


def test_the_type_of_a_column_of_objects_does_not_depend_on_its_records() -> None:
    kinds = set()
    for odd in [*ODD, "a", 1, True]:
        column = np.empty(1, dtype=object)
        column[0] = odd
        kinds.add(Table({"u": column}, unit="u", rows_per_unit=1).columns["u"])
    assert kinds == {"object"}


# --------------------------------------------------------------------------- frames and threads


def types_of_a_frame_do_not_depend_on_records() -> bool:
    """Whether columns without a type are refused for all records alike."""
    for kind in ("object", "category", pd.SparseDtype(object)):
        told = set[str]()
        for records in ([None, None], ["a", None], ["a", "b"], [1, "b"], [1, 2], [1, 2.5]):
            frame = pd.DataFrame({"u": pd.Series(records, dtype=kind), "x": [1.0, 2.0]})
            try:
                told.add(str(Table(frame, unit="u", rows_per_unit=1).columns))
            except Exception as error:
                told.add(str(error))
        if len(told) != 1:
            return False
    return True


@pytest.mark.filterwarnings("ignore:.*[Ss]parse")
def test_a_frame_with_objects_is_refused_whatever_they_are() -> None:
    assert types_of_a_frame_do_not_depend_on_records()
    with pytest.raises(
        ParameterError,
        match=r"data must have a type in each column, got day \(object\), kind \(category\): drop "
        r"them, or say frame\.astype\(\{\.\.\.\}\) with string, Int64, boolean, float64 or a type ",
    ):
        Table(
            pd.DataFrame(
                {"day": [datetime.date(2026, 1, 1)], "x": [1.0], "kind": pd.Categorical(["a"])}
            )
        )


def test_columns_of_pandas_that_have_types_are_read() -> None:
    frame = pd.DataFrame(
        {
            "i": pd.Series([1, None], dtype="Int64"),
            "s": pd.Series(["a", None], dtype="string"),
            "b": pd.Series([True, None], dtype="boolean"),
            "a": pd.Series(["a", "b"], dtype=pd.ArrowDtype(pa.string())),
            "d": pd.to_datetime(["2020", "2021"]),
        }
    )
    kinds = ["int64", "string", "boolean", "string", "timestamp(6)"]
    assert list(Table(frame).columns.values()) == kinds


@pytest.mark.parametrize(("kind", "value"), [(pl.Int128, 1), (pl.Object, object())])
def test_a_column_that_cannot_be_read_is_named_where_it_is_asked_about(
    kind: Any, value: Any
) -> None:
    table = Table(pl.DataFrame({"x": [1.0], "o": pl.Series([value], dtype=kind)}))
    assert table.source.counts(table.contribution(), [None]) == [1]
    with pytest.raises(ParameterError, match=f"'o' of type {kind}"):
        Session(table, OutputDPFilter(1)).ask(SelectedCounts(by="o", epsilon=0.5, delta=1e-6))


@pytest.mark.slow
def test_threads_take_turns_on_a_table() -> None:
    table = Table(pd.DataFrame({"u": [1, 1, 2], "x": [1.0, 2.0, 3.0]}), unit="u", rows_per_unit=2)
    found = list[Any]()

    def ask() -> None:
        for _ in range(10):
            found.append(table.source.sums(table.contribution(), [ONE]))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[3]] * 40


MUTATIONS = [
    Without(
        "a frame's types are read off its records",
        {"typed-frame": "objects = []"},
        types_of_a_frame_do_not_depend_on_records,
    ),
    Without(
        "names differ in capital letters",
        {"names-told-apart": "if False:"},
        a_unit_is_read_from_its_own_column,
    ),
    Without(
        "a column may have a name of queries",
        {"names-of-queries": "if False:"},
        names_of_queries_are_refused,
    ),
    Without(
        "keys of two types are joined",
        {"join-of-one-type": "if False:"},
        lambda: joined_rows("double", "integer") in (None, [1]),
    ),
    Without(
        "rows of one text are not ordered",
        {"ties-by-content": "ties = []"},
        rows_of_one_text_are_ordered,
    ),
    Without(
        "rows of one row_id are not ordered",
        {"rank-by-content": "first = [told.tightbudget_order]"},
        rows_of_one_row_id_are_ordered,
    ),
    Without(
        "dates beyond Python's", {"dates-of-python": "known = key"}, a_date_far_away_is_no_error
    ),
    Without(
        "an odd object is a name",
        {"odd-objects-name-nothing": "return value"},
        objects_make_no_error,
    ),
]


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_without_the_guard(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
