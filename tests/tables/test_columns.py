"""Kinds of columns: each is brought to one form, or refused by its type before anything is paid."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.ledger.conftest import own_server
from tests.ledger.servers import Server
from tests.tables import kinds

import tightbudget as tb
from tightbudget.errors import ParameterError
from tightbudget.tables import Count, GroupedCounts, Sum, Table, catalogs, columns, forms
from tightbudget.tables.source import ONE, Contribution, OnGrid

EACH = Contribution(unit=None, rows=1, groups=1, salt="5a")

# ------------------------------------------------------------------ the law, for each declared type


def test_a_type_that_is_not_let_in_serves_no_role_and_is_in_nobodys_way() -> None:
    assert kinds.law(kinds.in_duckdb("INTERVAL")) == ", ".join(kinds.ROLES)


def one_record_moves_no_other(kind: str, data: Any | None = None) -> bool:
    """Whether each record, taken away alone, moves every answer by its own amount at most."""
    data = kinds.in_duckdb(kind) if data is None else data
    assert data is not None
    connection = data.get_backend()
    name = kinds.beside_in_sql(connection.con.execute, "rows", kind)
    try:
        return kinds.law_of_one_record(connection.table(name)) > 0
    except AssertionError:
        return False


WITHOUT_CASE = "VARCHAR COLLATE nocase"


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(kinds.duckdb_types()))
def test_the_law_holds_for_each_type_of_duckdb(kind: str) -> None:
    data = kinds.in_duckdb(kind)
    if data is None:
        pytest.skip("no column has this type by its name alone")
    refused = kinds.law(data)
    assert refused == "number" or kind != WITHOUT_CASE
    assert one_record_moves_no_other(kind, data)


def test_texts_that_are_compared_without_case_are_among_the_types() -> None:
    assert WITHOUT_CASE in kinds.duckdb_types()


@pytest.mark.slow
def test_the_law_holds_for_each_type_of_a_frame() -> None:
    """DuckDB reads every frame as a table of Arrow: a type there is asked about once, with the
    values that it has in all frames."""
    alike, served = dict[Any, list[Any]](), set[tuple[str, str]]()
    for library in ("arrow", "polars", "pandas"):
        names = list[str]()
        for column in getattr(kinds, f"of_{library}")():
            names.append(column.name)
            read = kinds.read_by_duckdb(column.data)
            if read is None:  # rows can be counted all the same
                kinds.law(column.data)
                kinds.law_of_one_record(kinds.beside_in_frame(column.data))
            else:
                alike.setdefault(read[0], []).append(read[1])
                served.add((library, column.name))
        assert len(names) > 20
    for asked, frames in alike.items():
        data = kinds.together(frames)
        read = kinds.read_by_duckdb(data)
        assert read is not None
        assert read[0] == asked
        kinds.law(data)
        kinds.law_of_one_record(kinds.beside_in_frame(data))
    assert len(alike) > 20
    assert served >= {("arrow", "string"), ("polars", "String"), ("pandas", "string")}
    assert served >= {("pandas", name) for name in ("bool", "uint8", "int64", "float64", "Int64")}


@pytest.mark.slow
def test_one_record_moves_no_other_in_a_file_of_each_type(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    asked = {
        column.name: kinds.law_of_one_record(path)
        for column in kinds.of_arrow()
        if kinds.beside_in_file(column.data, path)
    }
    assert len(asked) > 20


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """A database of the tests' own server, or of one that has citext and ICU."""
    given = os.environ.get("TIGHTBUDGET_TEST_POSTGRES")
    server = Server(given) if given else own_server()
    url = server.create_database()
    yield url.replace("postgresql+psycopg", "postgresql")
    if given:
        server.drop_database(url)
    else:
        server.close()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_law_holds_for_each_type_of_postgresql(database: str) -> None:
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        for statement in (
            "CREATE EXTENSION citext",
            "CREATE COLLATION ci (provider=icu, locale='und-u-ks-level2', deterministic=false)",
            "CREATE TYPE mood AS ENUM ('a', 'A', 'ab', '1')",
            "CREATE DOMAIN word AS text",
        ):
            with contextlib.suppress(psycopg.Error):  # not all servers have them
                connection.execute(statement)
        opened = ibis.connect(database)
        served = dict[str, str]()
        for i, kind in enumerate(kinds.postgres_types(connection)):
            data = kinds.in_postgres(connection, opened, kind, f"rows{i}")
            if data is not None:
                served[kind] = kinds.law(data)
                name = kinds.beside_in_sql(connection.execute, f"rows{i}", kind)
                kinds.law_of_one_record(opened.table(name))
        opened.disconnect()
    assert served["character(3)"] == served["mood"] == served["text"] == "number"
    assert served["money"] == served["oid"] == served["word"] == ", ".join(kinds.ROLES)
    assert served.get("citext", "number") == served.get("text COLLATE ci", "number") == "number"


# ------------------------------------------------------------------ texts that are no UTF-8

ODD = [b"caf\xe9", b"\xed\xa0\x80", b"a\xff"]


def texts(values: list[bytes | None]) -> Any:
    """Returns a column of texts with these bytes, whatever they are."""
    odd = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(odd), odd.buffers(), null_count=odd.null_count)


def parquet(folder: Path, values: list[bytes | None]) -> Path:
    path = folder / "rows.parquet"
    pa.parquet.write_table(pa.table({"c": texts(values)}), path)
    return path


def texts_of_files_are_no_error(folder: Path) -> bool:
    table = Table(parquet(folder, [b"a", None, *ODD]), domains={"c": ["a"]})
    try:
        found = table.source.groups(EACH, ["c"], [], keys=None)
    except Exception:
        return False
    return found["a"] == [1] and sum(n for (n,) in found.values()) == 4


def no_record_hides_others(folder: Path) -> bool:
    """Rows that are no UTF-8 count alike, whatever is beside them in the file."""
    found = set()
    for more in ([], [b"a"], [b"caf?"]):
        rows: list[bytes | None] = [*[b"caf\xe9"] * 100, b"cafx", b"zz", *more]
        data = parquet(folder, rows)
        (n,) = Table(data).source.counts(EACH, [lambda t: t.c == "caf?"])
        found.add(n - (more == [b"caf?"]))
    return len(found) == 1


def texts_of_frames_are_no_error() -> bool:
    try:
        table = Table(pa.table({"c": texts([b"a", None, *ODD])}))
        found = table.source.groups(EACH, ["c"], [], keys=None)
    except Exception:
        return False
    return found["a"] == [1] and sum(n for (n,) in found.values()) == 4


def test_texts_that_are_no_utf8_are_no_error(tmp_path: Path) -> None:
    assert texts_of_files_are_no_error(tmp_path)
    assert no_record_hides_others(tmp_path)
    assert texts_of_frames_are_no_error()


def test_missing_texts_of_files_stay_missing(tmp_path: Path) -> None:
    source = Table(parquet(tmp_path, [b"", None, b"a"])).source
    rules = [lambda t: t.c.isnull(), lambda t: t.c == "", lambda t: t.c.length() == 0]
    assert source.counts(EACH, rules) == [1, 1, 1]


# ------------------------------------------------------------------ times beyond an engine's years


def far(unit: str) -> Any:
    ends = pa.array([0, 2**63 - 1, -(2**63)], pa.int64()).view(pa.timestamp(unit))
    return pa.table({"c": ends})


def times_of_frames_are_no_error() -> bool:
    try:
        return Table(far("s")).source.counts(EACH, [lambda t: t.c.isnull()]) == [2]
    except Exception:
        return False


def times_of_engines_are_no_error() -> bool:
    connection = ibis.duckdb.connect()
    connection.con.register("given", far("us"))
    connection.con.execute("CREATE TABLE kept AS SELECT * FROM given")
    table = Table(connection.table("kept"), unit="c", rows_per_unit=1)
    try:
        return table.source.sums(table.contribution(), [ONE]) == [3]
    except Exception:
        return False


def no_column_that_is_not_asked_for_fails(folder: Path) -> bool:
    """Whether rows of a file are counted whose milliseconds are beyond DuckDB's years."""
    path, found = folder / "far.parquet", set[int]()
    for more in ([], [2**62], [-(2**62)]):
        times = pa.array([0, *more, 0], pa.int64()).view(pa.timestamp("ms"))
        rows = {"c": times, "d": pa.array(range(len(times)), pa.int64())}
        pa.parquet.write_table(pa.table(rows), path, version="2.6")
        source = Table(path, unit="d", rows_per_unit=1).source
        bound = Contribution(unit="d", rows=1, groups=1, salt="5a")
        try:
            n = source.counts(EACH, [None, lambda t: t.d >= 0]) + source.sums(bound, [ONE])
        except Exception:
            return False
        found.update(one - len(more) for one in n)
    return found == {2}


def columns_of_one_name_are_refused(folder: Path) -> bool:
    """Whether a file is refused of which DuckDB would give a column another name."""
    times = pa.array([0], pa.timestamp("ms"))
    for names in (["c", "C"], ["c", "c"], ["c", "c", "c_1"]):
        rows = pa.table([pa.array([1]), times, pa.array([2])][: len(names)], names=names)
        pa.parquet.write_table(rows, folder / "names.parquet", version="2.6")
        with contextlib.suppress(ParameterError):
            Table(folder / "names.parquet")
            return False
    return True


def test_columns_of_files_have_names_of_their_own(tmp_path: Path) -> None:
    assert columns_of_one_name_are_refused(tmp_path)
    for number, (name, unit) in enumerate([("c", "us"), ("C", "ms")]):
        times = pa.array([0], pa.timestamp(unit))
        rows = pa.table({name: times, "d": pa.array([{"c": 1, "C": times[0]}])})
        pa.parquet.write_table(rows, tmp_path / f"part{number}.parquet", version="2.6")
    found = Table(tmp_path / "part*.parquet").columns
    assert columns.kind_of(found["c"]) is None


def milliseconds_of_files_are_not_let_in(folder: Path) -> bool:
    path = folder / "times.parquet"
    rows = pa.table(
        {"c": pa.array([0], pa.timestamp("ms")), "d": pa.array([0], pa.timestamp("us"))}
    )
    pa.parquet.write_table(rows, path, version="2.6")
    found = Table(path).columns
    return found["d"] == "timestamp(6)" and columns.kind_of(found["c"]) is None


def test_times_beyond_an_engines_years_are_no_error(tmp_path: Path) -> None:
    assert times_of_frames_are_no_error()
    assert times_of_engines_are_no_error()
    assert milliseconds_of_files_are_not_let_in(tmp_path)
    assert no_column_that_is_not_asked_for_fails(tmp_path)
    with pytest.raises(
        ParameterError,
        match=r"^where must not look at columns of type timestamp of milliseconds in Parquet, got "
        r"'c': DuckDB fails at one that is too far away; write microseconds into the file$",
    ):
        Count(epsilon=1, where=lambda t: t.c.isnull()).rehearse(Table(tmp_path / "times.parquet"))


# ------------------------------------------------------------------ integers of 128 bits


def huge_integers_are_exact() -> bool:
    """Whether integers of DuckDB's 128 bits are told apart, and those of 39 digits are no error."""
    numbers = (2**63, 2**63 + 1, 5, 10**38 - 1, 2**127 - 1, -(2**127))
    table = Table(in_duckdb("HUGEINT", *map(str, numbers)))
    rules = [
        *(lambda t, n=n: t.c == ibis.literal(n, "decimal(38, 0)") for n in numbers[:4]),
        lambda t: t.c > ibis.literal(2**63, "uint64"),
        lambda t: t.c.isnull(),
    ]
    on_grid = OnGrid(column="c", low=0, high=10)
    try:
        found = table.source.counts(EACH, rules)
        return [*found, *table.source.sums(EACH, [on_grid])] == [1, 1, 1, 1, 2, 2, 35]
    except Exception:
        return False


def test_integers_of_128_bits_are_exact_up_to_38_digits() -> None:
    assert huge_integers_are_exact()
    assert Table(in_duckdb("HUGEINT", "1")).columns["c"] == "hugeint"


# ------------------------------------------------------------------ columns that are not let in


def with_an_interval() -> Any:
    connection = ibis.duckdb.connect()
    connection.con.execute("CREATE TABLE kept AS SELECT INTERVAL 1 DAY AS c, 1 AS d, 'a' AS e")
    return connection.table("kept")


def nobody_asks_about_it() -> bool:
    try:
        meter = tb.OutputDPOdometer()
        table = Table(with_an_interval())
        Count(epsilon=1).release(table, meter=meter, noise=tb.release.FixedNoise([0] * 99))
    except Exception:
        return False
    return True


@pytest.mark.filterwarnings("ignore:FixedNoise")
def test_a_column_that_is_not_let_in_is_refused_by_its_type_and_costs_nothing() -> None:
    assert nobody_asks_about_it()
    table, meter = Table(with_an_interval()), tb.OutputDPFilter(1)
    said = r"must not look at columns of type interval.*, got 'c': cast it to a type that is let in"
    for question in (
        Count(epsilon=1, where=lambda t: t.c.isnull()),
        Count(epsilon=1, where=lambda t: t["c"].isnull()),
        Count(epsilon=1, where="c"),
        Sum(epsilon=1, column="c", bounds=(0, 1)),
    ):
        with pytest.raises(ParameterError, match=said):
            question.release(table, meter=meter)
    assert meter.spent.epsilon == 0
    with pytest.raises(ParameterError, match=r"unit must be a column of .*, got 'c' of type inter"):
        Table(with_an_interval(), unit="c", rows_per_unit=1)
    derived = table.mutate(c=lambda t: t.d)
    assert derived.columns["c"] == derived.columns["d"]
    assert derived.source.counts(EACH, [lambda t: t.c == 1]) == [1]
    many = pa.table({"c": pa.array([10**60], pa.decimal256(70, 2))})
    with pytest.raises(ParameterError, match=r"decimal\(70, 2\), got 'c': declare how many digits"):
        Sum(epsilon=1, column="c", bounds=(0, 1)).rehearse(Table(many))


def floats_name_no_unit() -> bool:
    with contextlib.suppress(ParameterError):
        Table(pa.table({"c": [1.5]}), unit="c", rows_per_unit=1)
        return False
    return True


def test_a_table_of_which_nothing_is_let_in_has_rows() -> None:
    table = Table(pa.table({"c": pa.array([1, 2], pa.duration("s"))}))
    assert table.source.counts(EACH, [None]) == [2]
    assert list(table.columns) == ["c"]


def test_types_are_named_by_their_whole_names() -> None:
    assert columns.kind_of("int64") is columns.KINDS["integers"]
    for kind in ("interval('s')", "int128", "timestamptz", "datetime", "decimal", "decimal(39, 0)"):
        assert columns.kind_of(kind) is None
    assert columns.kind_of("decimal(3, 4)") is None
    # all but objects, which no engine has, stand for types of Ibis
    assert [name for name, kind in columns.KINDS.items() if not kind.roles] == []


# ------------------------------------------------------------------ public keys

DAY, NOON = datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 12)
ID = uuid.UUID("5b5f2a2e-0000-4000-8000-0123456789ab")
KEYS: dict[str, tuple[Any, Any, list[Any], list[Any], str]] = {
    # a type, a value, spellings of it, keys that are refused, and what the refusal says
    "int8": (pa.int8(), 1, [1, np.int64(1)], [128, -129, 1.0, True, "1"], "integers from -128 to"),
    "uint64": (pa.uint64(), 2**64 - 1, [2**64 - 1], [2**64, -1], "integers from 0 to"),
    "bool": (pa.bool_(), True, [True, np.True_], [1, "true"], "True and False"),
    "string": (pa.string(), "a", ["a"], [1, b"a", ID], "texts"),
    "date": (pa.date32(), DAY, [DAY, "2020-01-01"], [NOON, "1.1.2020", 0], "dates, or texts like"),
    "timestamp": (
        pa.timestamp("us"),
        NOON,
        [NOON, "2020-01-01T12:00:00"],
        [DAY, NOON.replace(tzinfo=datetime.UTC), "2020-01-01T12:00:00Z", "noon"],
        "timestamps without a time zone",
    ),
    "seconds": (
        pa.timestamp("us"), NOON, [NOON], [DAY], "timestamps without a time zone"
    ),
}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", KEYS)
def test_keys_are_counted_rightly_or_refused_for_nothing(name: str) -> None:
    kind, value, spelled, refused, said = KEYS[name]
    data = pa.table({"c": pa.array([value, value, None], kind)})
    for key in spelled:
        table = Table(data, domains={"c": [key]})
        assert table.domain("c") == (value,)
        assert GroupedCounts(by="c", epsilon=1).plan(table).scan(EACH) == [2]
    for key in refused:
        with pytest.raises(ParameterError, match=rf"^domains\['c'\] must have .*{said}.*, got"):
            Table(data, domains={"c": [key]})


def in_duckdb(kind: str, *values: str) -> Any:
    connection = ibis.duckdb.connect()
    connection.con.execute(f"CREATE TABLE kept (c {kind})")
    for value in values:
        connection.con.execute("INSERT INTO kept VALUES (?)", [value])
    return connection.table("kept")


def test_uuids_are_texts_with_small_letters() -> None:
    data = in_duckdb("UUID", str(ID))
    for key in (ID, str(ID), str(ID).upper()):
        table = Table(data, domains={"c": [key]})
        assert table.columns["c"] == "uuid"
        assert table.domain("c") == (str(ID),)
        assert GroupedCounts(by="c", epsilon=1).plan(table).scan(EACH) == [1]
    with pytest.raises(ParameterError, match=r"column's type, uuid \(UUIDs, or their texts\), got"):
        Table(data, domains={"c": ["a"]})
    # under another name it is what it was
    assert Table(data).mutate(d=lambda t: t.c).columns["d"] == "uuid"


def test_a_key_that_an_enum_lacks_is_counted_as_none() -> None:
    table = Table(in_duckdb("ENUM('a', 'b')", "a"), domains={"c": ["a", "b", "z"]})
    assert GroupedCounts(by="c", epsilon=1).plan(table).scan(EACH) == [1, 0, 0]


@pytest.mark.parametrize(
    ("kind", "key", "said"),
    [
        ("string", "a\0", "have texts of Unicode without the character 0"),
        ("string", "\ud800", "have texts of Unicode without the character 0"),
        (
            "char(3)",
            "ab ",
            "have keys without blanks at their end, as the column's",
        ),
        ("timestamp(3)", "2020-01-01T00:00:00.000001", "no finer than the column"),
        ("timestamp(9)", NOON, "be a column of integers, texts, truth values or dates"),
        ("timestamp('UTC', 6)", NOON, "be a column of integers, texts, truth values or dates"),
        ("float64", 1.0, "missing ones make pandas turn integers into floats: use Int64"),
        ("date", None, "have no missing key"),
    ],
)
def test_refusals_of_keys(kind: str, key: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(said)):
        columns.public_keys({"c": kind}, "c", [key])


def test_one_key_that_is_spelled_twice_is_there_twice() -> None:
    with pytest.raises(ParameterError, match=r"must have each key once, got '2020-01-01'"):
        columns.public_keys({"c": "date"}, "c", [DAY, "2020-01-01"])


def test_arrays_of_times_are_named_by_what_python_makes_of_them() -> None:
    times = {unit: np.array(["2020-01-01"], f"datetime64[{unit}]") for unit in ("D", "s", "ns")}
    found = Table(times).columns
    assert found == {"D": "date", "s": "timestamp(0)", "ns": "timestamp(9)"}
    table = Table(times, domains={"D": ["2020-01-01"], "s": ["2020-01-01T00:00:00"]})
    for by in ("D", "s"):
        assert GroupedCounts(by=by, epsilon=1).plan(table).scan(EACH) == [1]
    with pytest.raises(ParameterError, match="got 'ns' of type timestamp"):
        Table(times, domains={"ns": [NOON]})


def test_a_key_of_a_number_is_asked_for_as_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keys_of_the_type_alone()


def keys_of_the_type_alone() -> bool:
    with contextlib.suppress(ParameterError):
        columns.public_keys({"c": "int8"}, "c", [128])
        return False
    return True


# ------------------------------------------------------------------ engines that compare otherwise


def one_name_is_not_taken_for_another() -> bool:
    data = in_duckdb("VARCHAR COLLATE nocase", "A", "a", "a")
    table = Table(data, domains={"c": ["a"]})
    return bool(GroupedCounts(by="c", epsilon=1).plan(table).scan(EACH) == [2])


def a_collation_for_all_texts_is_refused() -> bool:
    data = in_duckdb("VARCHAR", "A")
    table = Table(data)
    data.get_backend().con.execute("SET default_collation = 'nocase'")
    for again in (table.source.check, lambda: Table(data)):
        with contextlib.suppress(ParameterError):
            again()
            return False
    return True


def another_encoding_is_refused() -> bool:
    @contextlib.contextmanager
    def asked(query: str) -> Iterator[Any]:
        yield SimpleNamespace(fetchall=lambda: [("SQL_ASCII",)])

    try:
        catalogs.check_engine(SimpleNamespace(name="postgres", _safe_raw_sql=asked))
    except ParameterError as error:
        return "be of a PostgreSQL database with the encoding UTF8, got 'SQL_ASCII'" in str(error)
    return False


def test_an_engine_that_compares_texts_otherwise() -> None:
    data = in_duckdb("VARCHAR")
    data.get_backend().con.execute("SET default_collation = 'nocase'")
    said = "data must be of a DuckDB whose default_collation is 'binary', got 'nocase'"
    with pytest.raises(ParameterError, match=said):
        Table(data)
    assert one_name_is_not_taken_for_another()
    assert a_collation_for_all_texts_is_refused()
    assert another_encoding_is_refused()


@pytest.mark.parametrize(
    ("dialect", "written"),
    [
        ("duckdb", '(CAST("t0"."c" AS TEXT) COLLATE "C")'),
        ("postgres", '(CAST("t0"."c" AS TEXT) COLLATE "C")'),
        ("pyspark", "TRY_VALIDATE_UTF8(CAST(`t0`.`c` AS STRING))"),
        ("databricks", "TRY_VALIDATE_UTF8(CAST(`t0`.`c` AS STRING))"),
        ("snowflake", 'COLLATE(CAST("t0"."c" AS VARCHAR), \'utf8\')'),
        ("bigquery", "COLLATE(CAST(`t0`.`c` AS STRING), '')"),
    ],
)
def test_texts_are_written_in_their_form_for_each_engine(dialect: str, written: str) -> None:
    table = ibis.table({"c": "string"}, name="rows")
    form = forms.formed(table.c, "string", "engine")
    query = ibis.to_sql(table.select(c=form), dialect=dialect)
    assert (
        written.lower() in re.sub(r"\s+", " ", query).replace("( ", "(").replace(" )", ")").lower()
    )


def in_a_folder(true: Callable[[Path], bool]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return true(Path(folder))


MUTATIONS = [
    Without(
        "texts of files that are no UTF-8",
        {"utf8-of-files": 'options = ""'},
        lambda: in_a_folder(texts_of_files_are_no_error),
    ),
    Without(
        "blocks of files are skipped",
        {"texts-of-files": "return arg"},
        lambda: in_a_folder(no_record_hides_others),
    ),
    Without(
        "milliseconds of files are let in",
        {"times-of-files": "return set()"},
        lambda: in_a_folder(milliseconds_of_files_are_not_let_in),
    ),
    Without(
        "columns of one name in a file",
        {"names-of-files": "pass"},
        lambda: in_a_folder(columns_of_one_name_are_refused),
    ),
    Without(
        "all columns of files are read",
        {"columns-of-files": "kept = [_column(name, kind, known) for name, kind in types.items()]"},
        lambda: in_a_folder(no_column_that_is_not_asked_for_fails),
    ),
    Without(
        "huge integers are as they are", {"huge-integers": "return value"}, huge_integers_are_exact
    ),
    Without(
        "texts are compared by their collation",
        {"texts-by-their-bytes": "return text"},
        one_name_is_not_taken_for_another,
    ),
    Without(
        "one record names the group of others",
        {"texts-by-their-bytes": "return text"},
        lambda: one_record_moves_no_other(WITHOUT_CASE),
        slow=True,
    ),
    Without("keys beyond the type", {"keys-of-the-type": "pass"}, keys_of_the_type_alone),
    Without(
        "a type serves all roles", {"roles-of-types": "if found is None:"}, floats_name_no_unit
    ),
    Without("all types are let in", {"kinds-let-in": "if False:"}, nobody_asks_about_it),
    Without(
        "texts of frames are as they are",
        {"texts-of-frames": "except ZeroDivisionError:"},
        texts_of_frames_are_no_error,
    ),
    Without(
        "times of frames are as they are",
        {"times-of-frames": "usual = compute.is_valid(points)"},
        times_of_frames_are_no_error,
    ),
    Without(
        "times of engines are as they are",
        {"times-of-engines": "return value"},
        times_of_engines_are_no_error,
    ),
    Without(
        "any collation for all texts",
        {"default-collation": "if False:"},
        a_collation_for_all_texts_is_refused,
    ),
    Without(
        "any encoding", {"encoding-of-the-server": "if False:"}, another_encoding_is_refused
    ),
]  # fmt: skip


@pytest.mark.one_in(4)
@each(MUTATIONS)
@pytest.mark.filterwarnings("ignore:FixedNoise")
def test_without_the_guard(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
