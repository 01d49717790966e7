"""The same rows on every engine: each verb of a source answers the same integers."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.ledger.conftest import own_server
from tests.ledger.servers import OwnServer
from tests.tables import engines
from tests.tables.engines import ROWS, answers, answers_together, arrays, shuffled

import tightbudget as tb
from tightbudget.errors import SourceError
from tightbudget.tables import Count, GroupedCounts, Sum, Table, rows_of_units
from tightbudget.tables.ibis_source import IbisSource
from tightbudget.tables.opening import opened
from tightbudget.tables.source import Contribution, OnGrid

# what Ibis calls in DuckDB, which has a new name there
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")

BOUNDS = list(engines.bounds())
REFERENCE = arrays(ROWS)


def named(bound: Contribution) -> str:
    salt = "first" if bound.salt == engines.SALTS[0] else "second"
    return f"{bound.unit}-{bound.rows}-{bound.groups}-{bound.row_id}-{salt}"


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    server = own_server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def sources(
    server: OwnServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """The rows in other orders and partitions on each engine that these tests reach."""
    folder = tmp_path_factory.mktemp("rows")
    address = server.create_database().replace("postgresql+psycopg", "postgresql")
    many = engines.parquet(shuffled(ROWS, 2), folder / "many", 7)
    data = {
        "Arrow": engines.arrow(shuffled(ROWS, 1)),
        "Parquet": many / "*.parquet",
        "Polars": engines.polars(shuffled(ROWS, 3)),
        "PostgreSQL": engines.postgresql(shuffled(ROWS, 4), address),
    }
    read = {name: opened(rows, {}) for name, rows in data.items()}
    yield {"NumPy": arrays(shuffled(ROWS, 5)), **read}
    for source in read.values():
        source.connection.disconnect()


SIZES = list(dict.fromkeys((b.rows, b.groups) for b in BOUNDS if b.unit))


def ways(bound: Contribution) -> dict[str, bool]:
    """From the engines that are asked to whether all questions are asked together, or one by one.

    A query is not cheap, since most of its time goes into its text, and Arrow, Parquet and Polars
    are all read by DuckDB: frames of Polars as Arrow. So each bound is asked of PostgreSQL and of
    one of the three, in one way and in the other. The test below says what meets where.
    """
    if bound.unit is None:  # no rows of units are chosen
        return {"Arrow": True, "Parquet": False, "Polars": False, "PostgreSQL": True}
    unit, size = int(bound.unit == "name"), SIZES.index((bound.rows, bound.groups))
    choice = 2 if bound.salt != engines.SALTS[0] else int(bound.row_id is not None)
    frame = "Polars" if (unit + size // 2) % 2 else "Arrow"
    together = (size // 2 + choice) % 2 == 1
    read = frame if (unit + size + choice) % 2 else "Parquet"
    return {"PostgreSQL": together, read: not together}


def properties(bound: Contribution) -> set[tuple[str, Any]]:
    size = (bound.rows, bound.groups)
    return {("unit", bound.unit), ("size", size), ("row", bound.row_id), ("salt", bound.salt)}


def test_files_and_frames_meet_any_two_properties_of_a_bound_and_each_in_both_ways() -> None:
    """PostgreSQL and DuckDB meet each bound; DuckDB answers from files or from frames."""
    there = set[Any]().union(*map(properties, BOUNDS))
    together = {pair for b in BOUNDS for pair in itertools.permutations(properties(b), 2)}
    for of in ({"Parquet"}, {"Arrow", "Polars"}, {"Arrow"}, {"Polars"}):
        asked = [(b, ways(b)[name]) for b in BOUNDS for name in of & set(ways(b))]
        assert there == set[Any]().union(*(properties(b) for b, _ in asked))
        assert {way for _, way in asked} == {False, True}
        if of not in ({"Arrow"}, {"Polars"}):
            met = {pair for b, _ in asked for pair in itertools.permutations(properties(b), 2)}
            assert met == together
            both = {(way, one) for b, way in asked for one in properties(b) if b.unit}
            assert both == {(way, one) for way in (False, True) for one in units()}
    for bound in BOUNDS:
        found = ways(bound)
        assert list(found.values()).count(True) == list(found.values()).count(False)
        assert "PostgreSQL" in found


def units() -> set[tuple[str, Any]]:
    """The properties of bounds that choose rows of units."""
    return set[Any]().union(*(properties(b) for b in BOUNDS if b.unit))


@pytest.mark.slow
@pytest.mark.parametrize("bound", BOUNDS, ids=named)
def test_each_engine_answers_each_question_alike(
    sources: dict[str, Any], bound: Contribution
) -> None:
    expected = answers(REFERENCE, bound)
    assert answers(sources["NumPy"], bound) == expected
    for name, together in ways(bound).items():
        ask = answers_together if together else answers
        assert ask(sources[name], bound) == expected, name


@pytest.mark.slow
def test_duckdb_answers_as_numpy() -> None:
    bound = Contribution(unit="unit", rows=3, groups=2, salt=engines.SALTS[0])
    source = opened(engines.arrow(shuffled(ROWS, 1)), {})
    assert answers(source, bound) == answers(REFERENCE, bound)


def test_duckdb_answers_as_numpy_in_one_statement() -> None:
    bound = Contribution(unit="unit", rows=3, groups=2, salt=engines.SALTS[0])
    source = opened(engines.arrow(shuffled(ROWS, 1)), {})
    assert answers_together(source, bound) == answers(REFERENCE, bound)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("bound", BOUNDS, ids=named)
def test_the_order_of_rows_changes_nothing_in_numpy(bound: Contribution) -> None:
    assert answers(arrays(shuffled(ROWS, 1)), bound) == answers(REFERENCE, bound)


def test_the_questions_tell_bounds_apart() -> None:
    # a law about equal answers is worth nothing where all bounds have one answer
    bite = [bound for bound in BOUNDS if bound.rows < 50]
    assert len({str(answers(REFERENCE, bound)) for bound in bite}) == len(bite)


# ------------------------------------------------------------------ groups whose keys read alike


def odd_keys() -> Any:
    """Returns one unit in two groups whose keys, put together with a bar, are one text."""
    import pyarrow

    return pyarrow.table({"unit": [1, 1], "one": ["a|", "a"], "two": ["b", "|b"]})


def groups_of(source: Any, groups: int) -> dict[Any, list[int]]:
    bound = Contribution(unit="unit", rows=2, groups=groups)
    found: dict[Any, list[int]] = source.groups(bound, ["one", "two"], [], keys=None)
    return found


def test_a_unit_counts_in_no_more_groups_where_keys_read_alike() -> None:
    source = opened(odd_keys(), {})
    for _ in range(3):  # the key of the hash is another one each time
        assert len(groups_of(source, 1)) == 1
    assert len(groups_of(source, 2)) == 2


# ------------------------------------------------------------------ sums that leave int64


def large(rows: int) -> Any:
    """Returns rows whose sum is beyond int64 from 2^12 rows on, at the finest grid allowed."""
    import pyarrow

    return pyarrow.table({"x": np.full(rows, 2.0**52)})


LARGE = OnGrid(column="x", low=-(2**52), high=2**52)


def test_a_sum_beyond_int64_is_exact() -> None:
    rows = 5000
    bound = Contribution(unit=None, rows=1, groups=1)
    assert opened(large(rows), {}).sums(bound, [LARGE]) == [rows * 2**52]
    assert rows * 2**52 > 2**63


# ------------------------------------------------------------------ engines that are not asked


def in_sqlite() -> Any:
    import ibis

    return ibis.sqlite.connect().create_table("t", schema=ibis.schema({"x": "int64"}))


def sqlite_is_refused() -> bool:
    try:
        Table(in_sqlite())
    except tb.ParameterError:
        return True
    return False


def test_an_engine_that_nobody_tried_is_refused() -> None:
    with pytest.raises(
        tb.ParameterError,
        match=r"data must be a table of duckdb, postgres, pyspark, databricks, snowflake, bigquery "
        r"or polars, got one of sqlite: give its rows as a frame, say table\.to_pyarrow\(\)",
    ):
        Table(in_sqlite())


def doubled_rows() -> Any:
    """An expression of Ibis that makes two rows of each."""
    ibis = pytest.importorskip("ibis")
    rows = ibis.memtable({"x": [1, 2, 3]})
    return rows.union(rows)


def an_expression_is_refused() -> bool:
    try:
        Table(doubled_rows())
    except tb.ParameterError:
        return True
    return False


def test_an_expression_is_no_table() -> None:
    with pytest.raises(
        tb.ParameterError,
        match=r"data must be a table of the engine as it is, got an expression of Ibis: use "
        r"Table\.filter, Table\.mutate and Table\.join, which look at one row alone",
    ):
        Table(doubled_rows())


class Reader:
    """A connection that writes each query for another engine, and runs none."""

    def __init__(self, dialect: str) -> None:
        self.name = dialect
        self.dialect, self.queries = dialect, list[str]()

    def to_pyarrow(self, query: Any) -> Any:
        import ibis

        self.queries.append(str(ibis.to_sql(query, dialect=self.dialect)))
        raise NotImplementedError


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dialect", ["databricks", "snowflake", "bigquery"])
def test_queries_are_written_for_engines_that_the_tests_do_not_reach(dialect: str) -> None:
    import ibis

    kinds = {name: ibis_type for name, (_, _, ibis_type) in engines.TYPES.items()}
    reader = Reader(dialect)
    source = IbisSource(ibis.table(kinds, name="trips"), reader)
    bound = Contribution(unit="unit", rows=3, groups=2)
    for ask in engines.QUESTIONS.values():
        with pytest.raises(NotImplementedError):
            ask(source, bound)
    assert len(reader.queries) == len(engines.QUESTIONS)
    assert sum("MD5" in query for query in reader.queries) > 6


# ------------------------------------------------------------------ a server that is gone


class Spent:
    """A budget, and what was spent of it."""

    def __init__(self) -> None:
        self.meter = tb.OutputDPFilter(4)

    @property
    def amount(self) -> float:
        return float(self.meter._spent.counted)


MECHANISMS: list[Any] = [
    Count(epsilon=1),
    Sum(column="x", bounds=(0, 8), epsilon=1),
    GroupedCounts(by="zone", epsilon=1),
]


@pytest.mark.slow
def test_a_postgresql_server_that_is_gone_before_the_scan_costs_nothing() -> None:
    server, spent = own_server(), Spent()
    try:
        address = server.create_database().replace("postgresql+psycopg", "postgresql")
        table = Table(
            engines.postgresql(ROWS, address),
            unit="unit",
            rows_per_unit=2,
            domains={"zone": [1, 2]},
        )
        for mechanism in MECHANISMS:
            mechanism.release(table, meter=spent.meter)
        assert spent.amount == len(MECHANISMS)
        server.kill()
        for mechanism in MECHANISMS:
            with pytest.raises(SourceError, match=r"^the table's engine does not answer \(\w+\)$"):
                mechanism.release(table, meter=spent.meter)
        assert spent.amount == len(MECHANISMS)
    finally:
        server.close()


@pytest.mark.slow
def test_a_postgresql_server_that_is_gone_during_the_scan_costs_the_worst_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, spent = own_server(), Spent()
    try:
        address = server.create_database().replace("postgresql+psycopg", "postgresql")
        table = Table(engines.postgresql(ROWS, address), unit="unit", rows_per_unit=2)
        one = IbisSource._one

        def killed(self: IbisSource, query: Any) -> Any:
            server.kill()
            return one(self, query)

        monkeypatch.setattr(IbisSource, "_one", killed)
        with pytest.raises(tb.ReleaseError) as caught:
            Count(epsilon=1).release(table, meter=spent.meter)
        assert caught.value.__context__ is None
        assert spent.amount == 1
        monkeypatch.undo()
        with pytest.raises(SourceError):
            Count(epsilon=1).release(table, meter=spent.meter)
        assert spent.amount == 1
    finally:
        server.close()


def test_a_path_that_is_gone_is_refused_before_the_scan(tmp_path: Path) -> None:
    folder = engines.parquet(ROWS[:5], tmp_path / "rows", 1)
    table, spent = Table(folder / "0.parquet"), Spent()
    (folder / "0.parquet").unlink()
    with pytest.raises(SourceError):
        Count(epsilon=1).release(table, meter=spent.meter)
    assert spent.amount == 0


# ------------------------------------------------------------------ rows that change meanwhile


def unsteady() -> Any:
    """Returns a table of DuckDB that has other rows of its one unit each time that it is read."""
    import ibis

    connection = ibis.duckdb.connect()
    connection.raw_sql(
        "CREATE VIEW unsteady AS SELECT 1 AS unit, i::VARCHAR AS one, 'b' AS two, 1 AS number "
        "FROM range(4) AS r(i) WHERE random() < 0.5"
    )
    return connection.table("unsteady")


def a_unit_has_one_row_at_most() -> bool:
    source = opened(unsteady(), {})
    bound = Contribution(unit="unit", rows=1, groups=1)
    ones = OnGrid(column="number", low=1, high=2)
    return all(source.sums(bound, [ones]) <= [1] for _ in range(40))


def rows_of_a_view_are_not_joined_with_themselves() -> bool:
    # DuckDB may keep the rows of one read for a second one, and Spark does not
    reader = Reader("databricks")
    bound = Contribution(unit="unit", rows=1, groups=1)
    with contextlib.suppress(NotImplementedError):
        IbisSource(opened(unsteady(), {}).table, reader).sums(bound, [OnGrid(column="number")])
    return "JOIN" not in reader.queries[0]


def a_unit_has_one_group_at_most() -> bool:
    source = opened(unsteady(), {})
    return all(len(groups_of(source, 1)) <= 1 for _ in range(40))


def keys_that_read_alike_are_two() -> bool:
    """Whether a unit is in one of two groups, though all hashes are the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_of_units, "_md5", lambda: lambda text: text.substr(0, 1))
        bound = Contribution(unit="unit", rows=2, groups=1, salt=engines.SALTS[0])
        return len(opened(odd_keys(), {}).groups(bound, ["one", "two"], [], keys=None)) == 1


def keys_that_read_alike_have_two_hashes() -> bool:
    source = opened(odd_keys(), {})
    texts = [rows_of_units.text(source.table[name]) for name in ("one", "two")]
    hashes = source.table.select(hash=rows_of_units.hashed("", texts))
    return len(set(source.connection.to_pyarrow(hashes)["hash"].to_pylist())) == 2


@pytest.mark.slow
def test_rows_that_change_are_read_once() -> None:
    assert a_unit_has_one_row_at_most()
    assert a_unit_has_one_group_at_most()


class Meddler:
    """A connection during whose queries somebody writes a file."""

    name = "duckdb"

    def __init__(self, connection: Any, meddle: Callable[[], object]) -> None:
        self.connection, self.meddle, self.con = connection, meddle, connection.con

    def to_pyarrow(self, query: Any) -> Any:
        answer = self.connection.to_pyarrow(query)
        self.meddle()
        return answer


def changed(folder: Path) -> tuple[BaseException | None, float]:
    """Releases a count from a file that is written meanwhile: the error, and what it cost."""
    path = engines.parquet(ROWS[:5], folder, 1) / "0.parquet"
    table, spent = Table(path, unit="unit", rows_per_unit=1), Spent()
    source = table.source
    assert isinstance(source, IbisSource)
    assert source.still
    meddler = Meddler(source.connection, lambda: path.write_bytes(path.read_bytes()))
    object.__setattr__(table, "source", replace(source, connection=meddler))
    try:
        Count(epsilon=1).release(table, meter=spent.meter)
    except tb.ReleaseError as error:
        return error, spent.amount
    return None, spent.amount


def a_file_that_changed_is_noticed() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return changed(Path(folder) / "rows")[0] is not None


def test_a_file_that_is_written_while_it_is_read_gives_no_answer(tmp_path: Path) -> None:
    error, spent = changed(tmp_path / "rows")
    assert isinstance(error, tb.ReleaseError)
    assert error.__context__ is None
    assert spent == 1
    # the reason, as a scan by itself tells it
    path = tmp_path / "rows" / "0.parquet"
    source = opened(path, {})
    source = replace(source, connection=Meddler(source.connection, lambda: os.utime(path)))
    bound = Contribution(unit=None, rows=1, groups=1)
    with pytest.raises(
        SourceError, match=r"^files of the table have changed while they were read$"
    ):
        source.counts(bound, [None])


def test_rows_that_nobody_holds_still_are_not_called_still(tmp_path: Path) -> None:
    engines.parquet(ROWS[:5], tmp_path / "rows", 1)
    assert opened(tmp_path / "rows" / "*.parquet", {}).still
    assert opened(engines.arrow(ROWS[:5]), {}).still
    assert not opened(unsteady(), {}).still


def test_entries_of_units_are_counted_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    queries, ask = list[str](), IbisSource._columns

    def told(self: IbisSource, query: Any) -> dict[str, list[Any]]:
        queries.append(str(self.connection.compile(query)))
        return ask(self, query)

    monkeypatch.setattr(IbisSource, "_columns", told)
    source = opened(engines.parquet(ROWS[:5], tmp_path / "rows", 1) / "0.parquet", {})
    source.sums(Contribution(unit="unit", rows=1, groups=1), [OnGrid(column="x", high=9)])
    assert [query.count("GROUP BY") for query in queries] == [1]


MUTATIONS = [
    Without(
        "rows of a table of the user's are read twice",
        {"rows-read-once": "if True:"},
        rows_of_a_view_are_not_joined_with_themselves,
    ),
    Without(
        "groups of a table of the user's are read twice",
        {"groups-read-once": "if True:"},
        a_unit_has_one_group_at_most,
    ),
    Without(
        "a file may change between two reads",
        {"files-unchanged": "if False:"},
        a_file_that_changed_is_noticed,
    ),
    Without(
        "groups are told apart by their hashes alone",
        {"keys-follow-the-hash": "first = [order]"},
        keys_that_read_alike_are_two,
    ),
    Without(
        "texts keep their separators",
        {"separator-escaped": "value = value"},
        keys_that_read_alike_have_two_hashes,
    ),
    Without(
        "an expression that looks across rows",
        {"rows-as-they-are": "if False:\n    pass"},
        an_expression_is_refused,
    ),
    Without(
        "an engine that nobody tried",
        {"known-engine": "if True:"},
        sqlite_is_refused,
    ),
]


@pytest.mark.one_in(4)
@each(MUTATIONS)
def test_without_the_guard(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
