"""Sums from few sums: beside exact ones, where doubles end, and where files leave NaN out."""

from __future__ import annotations

import math
import random
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import pytest
from tests.guards.mutants import Without, each, lose_a_truth

from tightbudget.errors import ParameterError, SourceError
from tightbudget.tables import sums_of_points
from tightbudget.tables.ibis_source import IbisSource
from tightbudget.tables.opening import opened
from tightbudget.tables.source import ONE, Contribution, OnGrid
from tightbudget.tables.sums_of_points import SumsOfPoints

EACH = Contribution(unit=None, rows=1, groups=1)
HARD = [0.0, -0.0, 5e-324, -5e-324, 0.5, -0.5, 0.49999999999999994, 1.5, 2.5, -2.5, 7.0, 1e300]
HARD += [-1e300, 1.7976931348623157e308, -1.7976931348623157e308, math.inf, -math.inf, math.nan]


def exact(values: list[float | None], column: OnGrid) -> int:
    """Adds up a column in fractions."""
    if column.column is None:
        return len(values)
    total = 0
    for x in values:
        low, high = column.low * column.step, column.high * column.step
        y = low if x is None or math.isnan(x) else min(max(x, low), high)
        # the sum is rounded to a double, as engines do
        point = math.floor(Fraction(y + column.step / 2) / Fraction(column.step))
        total += (point - column.origin) ** column.power
    return total


def drawn(seed: int) -> tuple[list[float | None], list[OnGrid]]:
    """Draws numbers, and columns of which several are on one grid."""
    draw = random.Random(seed)
    values: list[float | None] = [*HARD, None]
    values += [draw.choice(HARD) * draw.random() for _ in range(40)]
    values += [draw.uniform(-300, 300) for _ in range(40)]
    columns = [ONE]
    for _ in range(3):
        step = 2.0 ** draw.randint(-12, 4)
        low = draw.randint(-(2**20), 2**20)
        high = low + draw.choice([1, 7, 2**16, 2**25])
        grid = OnGrid(column="x", low=low, high=high, step=step)
        columns += [replace(grid, origin=o) for o in (low, high, 0, draw.randint(-9, 9))]
        columns += [replace(grid, origin=end, power=2) for end in (low, high)]
    far = 2**52
    columns.append(OnGrid(column="x", low=-far + 5, high=far, step=2.0**-44, origin=-3))
    draw.shuffle(columns)
    return values, columns


@pytest.mark.parametrize("seed", range(6))
def test_sums_are_those_of_fractions(seed: int) -> None:
    import pyarrow

    values, columns = drawn(seed)
    source = opened(pyarrow.table({"x": pyarrow.array(values, "float64")}), {})
    assert source.sums(EACH, columns) == [exact(values, column) for column in columns]


def test_a_row_is_clipped_once() -> None:
    grid = OnGrid(column="x", low=0, high=64)
    squares = [OnGrid(column="x", low=0, high=64, origin=end, power=2) for end in (0, 64)]
    assert list(SumsOfPoints([ONE, grid, *squares]).points(lambda rule, _: rule)) == [
        "tightbudget_p0"
    ]


def test_two_rules_are_two_columns() -> None:
    import pyarrow

    source = opened(pyarrow.table({"x": [1.0, 2.0], "y": [3.0, 5.0]}), {})
    rules = [lambda t: t.x + 1, lambda t: t.y]
    assert source.sums(EACH, [OnGrid(column=r, low=0, high=9) for r in rules]) == [5, 8]


def test_points_that_are_too_fine_are_refused() -> None:
    with pytest.raises(
        ParameterError, match=r"step = 1\.0 is too fine: a row may add 18014398509481984 points"
    ):
        SumsOfPoints([OnGrid(column="x", low=0, high=2**27, power=2)])


# ------------------------------------------------------------------ where doubles end


def asked_twice(monkeypatch: pytest.MonkeyPatch, limit: int) -> tuple[list[int], int]:
    """Returns sums by rows whose doubles end after so many bits, and the number of queries."""
    import pyarrow

    queries, ask = list[Any](), IbisSource._columns

    def counted(self: IbisSource, query: Any) -> dict[str, list[Any]]:
        queries.append(query)
        return ask(self, query)

    monkeypatch.setattr(IbisSource, "_columns", counted)
    monkeypatch.setattr(sums_of_points, "DOUBLES", limit)
    source = opened(pyarrow.table({"x": [3.0, 2.0, 1.0, 0.0]}), {})
    found = source.sums(EACH, [OnGrid(column="x", low=0, high=3)])
    return found, len(queries)


def doubles_are_not_asked_beyond_their_end() -> bool:
    with pytest.MonkeyPatch.context() as patch:
        return asked_twice(patch, 3) == ([6], 2)


def test_integers_are_asked_where_doubles_may_be_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_twice(monkeypatch, 4) == ([6], 1)  # four rows of two bits each
    assert doubles_are_not_asked_beyond_their_end()


# ------------------------------------------------------------------ NaN that files leave out


NUMBERS = [1.0, 2.0, math.nan, 3.0] * 3
WITHIN = OnGrid(column="x", low=0, high=64)


def foreign(folder: Path) -> Path:
    """Writes a file whose range of a column leaves NaN out, as Parquet has it."""
    from pyarrow import parquet, table

    path = folder / "foreign.parquet"
    parquet.write_table(table({"x": np.array(NUMBERS)}), path)
    found = parquet.read_metadata(path).row_group(0).column(0).statistics
    assert (found.min, found.max) == (1.0, 3.0)
    return path


def view(path: Path) -> Any:
    """Returns a view of a file in a DuckDB of the user's."""
    import ibis

    connection = ibis.duckdb.connect()
    connection.raw_sql(f"CREATE VIEW rows AS SELECT * FROM read_parquet('{path}')")
    return connection.table("rows")


def nan_is_at_the_low_end(data: Any) -> bool:
    source = opened(data, {})
    rules: list[Any] = [lambda t: t.x <= 64, lambda t: t.x > 2, lambda t: t.x.isnull()]
    missing = [source.filtered(rule).counts(EACH, [None])[0] for rule in rules]
    found = [*source.sums(EACH, [WITHIN]), *source.counts(EACH, rules), *missing]
    points = source.histogram(EACH, WITHIN)
    return found == [18, 9, 3, 3, 9, 3, 3] and points == [(0, 3), (1, 3), (2, 3), (3, 3)]


def rewritten(folder: Path) -> Path:
    """Writes a file by DuckDB."""
    path = folder / "own.parquet"
    duckdb.sql(f"COPY (SELECT * FROM read_parquet('{foreign(folder)}')) TO '{path}'")
    return path


def nan_of_files_is_missing() -> bool:
    with TemporaryDirectory() as folder, suppress(duckdb.ConversionException):
        return nan_is_at_the_low_end(foreign(Path(folder)))
    return False  # NaN is no integer


def nan_of_views_is_missing() -> bool:
    with TemporaryDirectory() as folder, suppress(duckdb.ConversionException):
        return nan_is_at_the_low_end(view(foreign(Path(folder))))
    return False


def test_nan_is_missing_whoever_has_written_the_file(tmp_path: Path) -> None:
    assert nan_of_files_is_missing()
    assert nan_of_views_is_missing()
    assert nan_is_at_the_low_end(rewritten(tmp_path))
    assert nan_is_at_the_low_end(view(rewritten(tmp_path)))


def test_the_ranges_of_own_tables_are_known(tmp_path: Path) -> None:
    table = view(foreign(tmp_path))
    connection = table.get_backend()
    connection.raw_sql("CREATE TABLE own AS SELECT * FROM rows")
    assert nan_is_at_the_low_end(connection.table("own"))
    assert "CASE" not in connection.compile(opened(connection.table("own"), {}).table)
    assert "CASE" in connection.compile(opened(table, {}).table)


def files_of_another_writer_are_noticed() -> bool:
    with TemporaryDirectory() as folder:
        path = rewritten(Path(folder))
        source = opened(path, {})
        assert source.sums(EACH, [WITHIN]) == [18]
        path.unlink()
        foreign(Path(folder)).rename(path)
        try:
            source.sums(EACH, [WITHIN])
        except SourceError as error:
            return "another writer: open the table anew" in str(error)
        except duckdb.ConversionException:
            return False  # NaN is no integer
        return False


def test_files_of_another_writer_are_noticed() -> None:
    assert files_of_another_writer_are_noticed()


def only_nan_beyond_the_bounds_is_at_the_low_end() -> bool:
    import pyarrow

    values = [math.nan, None, math.inf, -math.inf, 70.0]
    source = opened(pyarrow.table({"x": pyarrow.array(values, "float64")}), {})
    return source.sums(EACH, [WITHIN]) == [128]


def test_only_nan_beyond_the_bounds_is_at_the_low_end() -> None:
    assert only_nan_beyond_the_bounds_is_at_the_low_end()


# ------------------------------------------------------------------ guards

MUTATIONS = [
    Without("NaN of files", {"nan-of-files": "return column"}, nan_of_files_is_missing),
    Without("NaN of views", {"nan-of-views": "hidden = {}"}, nan_of_views_is_missing),
    Without(
        "files of another writer in the place of known ones",
        {"ranges-of-new-files": "if False:"},
        files_of_another_writer_are_noticed,
    ),
    Without(
        "NaN is above all numbers in DuckDB",
        {"nan-at-the-low-end": "above = x > last"},
        only_nan_beyond_the_bounds_is_at_the_low_end,
    ),
    Without(
        "doubles that were rounded",
        {"sums-within-doubles": "within = True"},
        doubles_are_not_asked_beyond_their_end,
    ),
]


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_without_the_guard(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
