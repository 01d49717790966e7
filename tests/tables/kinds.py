"""Columns of every type that an engine can declare, with values at the edges of each type.

Types come from the engines' own catalogs. Values come from one list of texts: an engine keeps those
that it can read as the type. So a type or a value that a later version has is there by itself.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import functools
import inspect
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.tables import GroupedCounts, SelectedCounts
from tightbudget.tables.columns import check_role, public_keys
from tightbudget.tables.source import ONE, Contribution, OnGrid, Source
from tightbudget.tables.table import Table

__all__ = [
    "Column",
    "beside_in_file",
    "beside_in_frame",
    "beside_in_sql",
    "duckdb_types",
    "in_duckdb",
    "in_postgres",
    "law",
    "law_of_one_record",
    "of_arrow",
    "of_pandas",
    "of_polars",
    "postgres_types",
    "read_by_duckdb",
    "together",
]

# Values that a collation, a pad or a change of type may take for one another stand side by side,
# so that they are in different parts.
TEXTS = [
    *("a", "A", "\u00e1", "ab", "ab ", "AB", "", " ", "%", "|", "\U0001f418", "e\u0301", "\u00e9"),
    *("0", "1", "-1", "-0", "127", "-128", "255", "32767", "65535", "2147483647", "4294967295"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808"),
    *("18446744073709551615", "9007199254740993", "9007199254740992", "1" + "0" * 37, "9" * 38),
    *("1e308", "-1e308", "5e-324", "nan", "inf", "-inf", "0.1", "0.10", "1e-30", "true", "false"),
    *("infinity", "-infinity", "2020-01-01", "2020-01-01 00:00:00", "2020-01-01 00:00:00.000001"),
    *("1970-01-01 00:00:00.123456789", "9999-12-31 23:59:59.999999", "0001-01-01"),
    *("200000-01-01", "4000-01-01 (BC)", "2020-10-25 01:30:00+01", "2020-10-25 01:30:00+02"),
    *("00:00:00", "1 day", "24 hours", "30 days", "1 month", "100000000 years"),
    *("5b5f2a2e-0000-4000-8000-0123456789ab", "5B5F2A2E-0000-4000-8000-0123456789AC"),
    *('{"a":1}', '{"a": 1}', "[1]", "{1}", "\\x00", "\\xff", "101", "127.0.0.1"),
    "08:00:2b:01:02:03",
]  # fmt: skip
# The same for frames, which are made of Python's values.
VALUES: list[Any] = [
    *TEXTS,
    *(True, False, 0, 1, -1, 127, -128, 255, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**53 + 1),
    *(0.1, -0.0, 1e308, 5e-324, float("nan"), float("inf"), decimal.Decimal("1.0")),
    *(datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.datetime(2020, 1, 1)),
    *(datetime.timedelta(1), datetime.time(1), b"a", b"\xff", uuid.UUID(int=1), [1], {"a": 1}),
]
PARTS = 2  # row i is in part i % PARTS


@dataclass(frozen=True)
class Column:
    """Rows of (i, c), where c has a type and all of the values that the type has."""

    name: str
    data: Any


def law(data: Any) -> str:
    """Checks every role of the column c; returns the roles that its type does not serve.

    The law: what is asked of rows together is the sum of what is asked of each part of them, and
    each row adds at most the sensitivity. So one record more moves an answer by its own amount.
    """
    try:
        table = Table(data)
    except ParameterError as error:  # of pandas, whose objects have no type
        if "must have a type in each column" not in str(error):
            raise
        return "table"
    rows = Rows(table)  # nobody asks about c here, whatever its type is
    assert rows.many > 0
    refused = []
    for role, ask in ROLES.items():
        try:
            ask(rows)
        except ParameterError as error:
            if "c" not in str(error):
                raise
            refused.append(role)
    return ", ".join(refused)


EACH = Contribution(unit=None, rows=1, groups=1, salt="5a")


class Rows:
    """A table and its parts, with the number of rows of each, which add up.

    The engine says of each once that it answers, and not again before each question.
    """

    def __init__(self, table: Table) -> None:
        self.table, self.source = table, table.source
        self.parts = [table.filter(_in_part(i)).source for i in range(PARTS)]
        for source in (self.source, *self.parts):
            source.check()
        self.many, *self.each = (s.counts(EACH, [None])[0] for s in (self.source, *self.parts))
        assert sum(self.each) == self.many


def _in_part(i: int) -> Callable[[Any], Any]:
    """The rule of the rows of a part."""
    return lambda t: t.i % PARTS == i


def _adds_up(rows: Rows, ask: Callable[[Source], Any]) -> Any:
    """Asks all rows and each part of them, and returns the answer for all."""
    whole = Counter(ask(rows.source))
    parts = [Counter(ask(part)) for part in rows.parts]
    together = Counter[Any]()
    for part in parts:
        for key, number in part.items():
            together[key] += number
    assert whole == together, (whole, parts)
    return whole


def _secret_keys(rows: Rows) -> None:
    plan = SelectedCounts(by="c", epsilon=1, delta=1e-6).plan(rows.table)
    found = _adds_up(rows, counts_of_keys)
    assert plan.scan(EACH) == dict(found)
    assert all(isinstance(key, (int, str, bool, datetime.date)) for key in found)


def counts_of_keys(source: Source) -> dict[Any, int]:
    found = source.groups(EACH, ["c"], [], keys=None)
    return {key: count for key, (count,) in found.items()}


def _public_keys(rows: Rows) -> None:
    table, admitted = rows.table, list[Any]()
    for value in VALUES:
        with contextlib.suppress(ParameterError):
            (key,) = public_keys(table.columns, "c", [value])
            if key not in admitted:
                admitted.append(key)
    if not admitted:  # all are refused; say why
        Table(table, domains={"c": [VALUES[0]]})
    public = Table(table, domains={"c": admitted})
    question = GroupedCounts(by="c", epsilon=1)

    def counted(source: Source) -> dict[Any, int]:
        plan = question.plan(public._over(source))
        return dict(zip(admitted, plan.scan(EACH), strict=True))

    assert public.source is rows.source
    found = _adds_up(rows, counted)
    # by the table of keys that many of them are sent as
    wide = [*admitted, *_more(table, admitted[0])]
    longer = public.source.groups(EACH, ["c"], [ONE], keys=wide)
    assert {key: n for key, (n,) in longer.items() if key in set(admitted)} == {
        key: n for key, n in found.items() if n
    }
    with contextlib.suppress(ParameterError):  # types whose keys may be secrets, too
        check_role(table.columns, "by", "c", "secret key")
        there = {k: n for k, n in counts_of_keys(table.source).items() if k in set(admitted)}
        assert there == {k: n for k, n in found.items() if n}


def _more(table: Table, key: Any) -> list[Any]:
    """More than a thousand keys of one type, if it has so many."""
    numbers = range(1000, 2001)
    lists: dict[type, list[Any]] = {
        str: [f"more {n}" for n in numbers],
        int: list(numbers),
        datetime.date: [datetime.date.fromordinal(n) for n in numbers],
        datetime.datetime: [datetime.datetime.fromordinal(n) for n in numbers],
    }
    with contextlib.suppress(ParameterError):
        return list(public_keys(table.columns, "c", lists.get(type(key), [])))
    return []


def _units(rows: Rows) -> None:
    """Takes all rows but a part away: no more units are lost than rows."""
    assert Table(rows.table, unit="c", rows_per_unit=1).source is rows.source
    whole = _questions_of_units(rows.source)
    for part, number in zip(rows.parts, rows.each, strict=True):
        for name, fewer in _questions_of_units(part).items():
            assert 0 <= whole[name] - fewer <= rows.many - number, name


def _questions_of_units(source: Any) -> dict[str, int]:
    bound = Contribution(unit="c", rows=1, groups=1, salt="5a")
    return {
        "rows": source.counts(bound, [None])[0],
        "units": source.counts(bound, [None], units=True)[0],
        "chosen": source.counts(bound, [lambda t: t.i >= 0])[0],
        "sum": source.sums(bound, [ONE])[0],
        "groups": sum(n for (n,) in source.groups(bound, ["i"], [], keys=None).values()),
        "half": source.with_half(bound).counts(EACH, [None])[0],
    }


def _of_c(rule: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A rule of the column c."""
    return lambda t: rule(t.c)


def _sum_on(grid: OnGrid, source: Any) -> dict[int, Any]:
    return {0: source.sums(EACH, [grid])[0]}


def _number(rows: Rows) -> None:
    grids = [
        OnGrid(column="c", low=-(2**40), high=2**40, step=2.0**-10),
        OnGrid(column="c", low=0, high=2**52, step=2.0**12, power=1),
    ]
    for grid in grids:
        found = _adds_up(rows, functools.partial(_sum_on, grid))
        assert abs(found[0]) <= rows.many * grid.most
    low = OnGrid(column="c", low=-3, high=3)
    assert sum(_adds_up(rows, lambda s: dict(s.histogram(EACH, low))).values()) == rows.many


# one rule of each sort that a column of some kind may serve
RULES: Mapping[str, Callable[[Any], Any]] = {
    "missing": lambda c: c.isnull(),
    "equal": lambda c: c == "a",
    "one of": lambda c: c.isin(["a", "ab", "1"]),
    "contains": lambda c: c.contains("a"),
    "starts": lambda c: c.startswith("A"),
    "ends": lambda c: c.endswith("b"),
    "length": lambda c: c.length() == 1,
    "part": lambda c: c.substr(0, 1) == "a",
    "as a number": lambda c: c.try_cast("float64") > 0,
    "positive": lambda c: c > 0,
    "odd": lambda c: c % 2 == 1,
    "arithmetic": lambda c: (c * c + c / 3).floor() > 1,
    "true": lambda c: c & True,
    "year": lambda c: c.year() == 2020,
    "day": lambda c: c.day_of_week.index() == 2,
    "later": lambda c: c >= datetime.date(2020, 1, 1),
    "at": lambda c: c < datetime.datetime(2020, 1, 1, 12),
}


def _rules(rows: Rows) -> None:
    served = []
    for rule in RULES.values():
        try:
            rows.source.check_rules(conditions=[_of_c(rule)])
        except ParameterError:
            continue
        served.append(rule)
    if not served:
        rows.source.check_rules(conditions=[lambda t: t.c.isnull()])
    asked = [_of_c(rule) for rule in served]
    found = _adds_up(rows, lambda s: dict(enumerate(s.counts(EACH, asked))))
    assert all(0 <= number <= rows.many for number in found.values())


def _joined(rows: Rows) -> None:
    """Joins with public keys that are spelled otherwise: each row stays one row."""
    joined = Rows(rows.table.join(_public(rows.table), on="c"))
    w = OnGrid(column="w", low=0, high=1000)
    _adds_up(joined, lambda s: {"w": s.sums(EACH, [w])[0]})
    assert (joined.many, joined.each) == (rows.many, rows.each)


def _public(table: Table) -> Any:
    """A public table of all keys that a column c of this type can have."""
    import pyarrow

    rows: Any = table.source
    column = rows.table["c"] if "c" in rows.table.columns else None
    kind = pyarrow.string() if column is None else column.type().to_pyarrow()
    found = []
    for value in VALUES:
        with contextlib.suppress(Exception):
            array = pyarrow.array([value], kind)
            if array[0].as_py() == array[0].as_py() and array[0] not in found:
                found.append(array[0])
    keys = pyarrow.array([one.as_py() for one in found], kind)
    return pyarrow.table({"c": keys, "w": pyarrow.array(range(len(keys)), pyarrow.int64())})


ROLES: Mapping[str, Callable[[Rows], None]] = {
    "unit": _units,
    "secret key": _secret_keys,
    "public key": _public_keys,
    "number": _number,
    "rule": _rules,
    "join": _joined,
}


# ------------------------------------------------------------------ one record more, one by one

ALL = -1  # the number of the rows of which none is taken away


def beside(rows: int) -> tuple[list[int], list[int]]:
    """The numbers (r, i) of all rows i != r: those of every table that lacks one record."""
    pairs = [(r, i) for r in range(ALL, rows) for i in range(rows) if i != r]
    return [r for r, _ in pairs], [i for _, i in pairs]


def beside_in_sql(execute: Callable[[str], Any], rows: str, kind: str) -> str:
    """Makes such a table of a table of (i, c) in a database, and returns its name."""
    execute(f"CREATE TABLE {rows}_beside (r bigint, i bigint, c {kind})")
    execute(
        f"INSERT INTO {rows}_beside SELECT n.i, t.i, t.c FROM {rows} AS t JOIN "
        f"(SELECT i FROM {rows} UNION ALL SELECT {ALL}) AS n ON n.i <> t.i"
    )
    return f"{rows}_beside"


def beside_in_frame(data: Any) -> Any:
    """The same of a frame with the columns i and c."""
    missing, chosen = beside(len(data))
    if hasattr(data, "iloc"):
        return data.iloc[chosen].reset_index(drop=True).assign(r=missing)
    if hasattr(data, "get_columns"):
        import polars as pl

        return data[chosen].with_columns(pl.Series("r", missing, dtype=pl.Int64))
    import pyarrow as pa

    try:
        rows = data.take(chosen)
    except pa.ArrowNotImplementedError:  # texts that are views cannot be taken out
        columns = [data[name].to_pylist() for name in ("i", "c")]
        rows = pa.table([[column[i] for i in chosen] for column in columns], schema=data.schema)
    return rows.append_column("r", pa.array(missing, pa.int64()))


def law_of_one_record(data: Any) -> int:
    """Checks that no record moves an answer by more than the sensitivity; returns what was asked.

    One scan answers for every table that lacks one record, since each question is grouped by the
    number r of that record: ``data`` has the rows of :func:`beside`.
    """
    try:
        table = Table(data)
    except ParameterError:
        return 0
    table.source.check()
    asked = 0
    for ask in (_secrets_beside, _publics_beside, _sums_beside, _joined_beside, _units_beside):
        with contextlib.suppress(_NotServedError):
            found, most = ask(table)
            whole = found.pop(ALL, Counter[Any]())  # of missing keys alone there are no groups
            for r, fewer in found.items():
                for name in whole.keys() | fewer.keys():
                    moved = abs(whole[name] - fewer[name])
                    assert moved <= most(name), (ask.__name__, r, name)
                if ask in (_secrets_beside, _publics_beside):  # a row has one key
                    assert sum((whole - fewer).values()) + sum((fewer - whole).values()) <= 1
            asked += 1
    return asked


class _NotServedError(Exception):
    """The type serves no question of this sort, and the plan is refused for nothing."""


_Beside = tuple[dict[int, "Counter[Any]"], Callable[[Any], int]]


def _served(check: Callable[[], Any]) -> Any:
    try:
        return check()
    except ParameterError as error:
        if "c" not in str(error):
            raise
        raise _NotServedError from None


def _by_record(found: Mapping[Any, list[int]]) -> dict[int, Counter[Any]]:
    """Counts of (r, key), or sums of r, by the number of the record that is taken away."""
    parts: dict[int, Counter[Any]] = {}
    for key, numbers in found.items():
        if isinstance(key, tuple):
            parts.setdefault(key[0], Counter())[key[1]] += numbers[0]
        else:
            parts[key] = Counter(dict(enumerate(numbers)))
    return parts


def _secrets_beside(table: Table) -> _Beside:
    _served(lambda: check_role(table.columns, "by", "c", "secret key"))
    found = table.source.groups(EACH, ["r", "c"], [], keys=None)
    return _by_record(found), lambda name: 1


def _publics_beside(table: Table) -> _Beside:
    admitted: list[Any] = []
    for value in VALUES:
        with contextlib.suppress(ParameterError):
            (key,) = public_keys(table.columns, "c", [value])
            if key not in admitted:
                admitted.append(key)
    if not admitted:
        raise _NotServedError
    numbers = table.source.groups(EACH, ["r"], [ONE], keys=None)
    keys = [(r, key) for r in numbers for key in admitted]
    found = table.source.groups(EACH, ["r", "c"], [ONE], keys=keys)
    return {r: Counter() for r in numbers} | _by_record(found), lambda name: 1


def _sums_beside(table: Table) -> _Beside:
    """Numbers and rules: each is a column of integers, and all are added up in one scan."""
    grids = [ONE, OnGrid(column="c", low=-(2**40), high=2**40, step=2.0**-10)]
    grids += [OnGrid(column=_of_c(rule)) for rule in RULES.values()]
    served = []
    for grid in grids:
        with contextlib.suppress(ParameterError):
            table.source.check_rules(columns=[grid])
            served.append(grid)
    found = table.source.groups(EACH, ["r"], served, keys=None)
    return _by_record(found), lambda i: served[i].most


def _joined_beside(table: Table) -> _Beside:
    joined = _served(lambda: table.join(_public(table), on="c"))
    w = OnGrid(column="w", low=0, high=1000)
    joined.source.check()
    found = joined.source.groups(EACH, ["r"], [ONE, w], keys=None)
    return _by_record(found), lambda i: [1, w.most][i]


def _units_beside(table: Table) -> _Beside:
    """Units of every table in one scan; the rows of some tables that count, each by itself."""
    rows = _served(lambda: Table(table, unit="c", rows_per_unit=1))
    many = Contribution(unit="c", rows=10**6, groups=10**6, salt="5a")
    found = _by_record(rows.source.groups(many, ["r"], [], keys=None))
    bound = Contribution(unit="c", rows=1, groups=1, salt="5a")
    for r in [*sorted(found)[:: max(1, len(found) // 3)], ALL]:
        part = rows.filter(functools.partial(lambda r, t: t.r == r, r))
        found[r]["rows"] = part.source.sums(bound, [ONE])[0]
    for r, numbers in found.items():
        if "rows" not in numbers:
            found[r]["rows"] = found[ALL]["rows"]
    return found, lambda name: 1


def beside_in_file(data: Any, path: Path) -> bool:
    """Writes the rows of :func:`beside` to a file of Parquet; False for a type that no file has.

    A file tells the least and the largest value of each row group. There are 200 of few rows, so
    that many values are told by the file itself, and not only read.
    """
    import pyarrow as pa
    import pyarrow.parquet

    rows = beside_in_frame(data)
    size = 1 + len(rows) // 200
    with contextlib.suppress(pa.ArrowException):
        pa.parquet.write_table(rows, path, version="2.6", row_group_size=size)
        return True
    return False


# ------------------------------------------------------------------ frames that are read alike


def read_by_duckdb(data: Any) -> tuple[Any, Any] | None:
    """What DuckDB is asked for a frame's rows, and the table of Arrow that it reads them from.

    None where the column c is not let in. Whatever the frame was: what is asked alike, of tables of
    the same types, is answered alike for the same values.
    """
    import ibis

    try:
        source: Any = Table(data).source
    except ParameterError:
        return None
    if "c" in source.odd:
        return None
    (held,) = source.table.op().find(ibis.expr.operations.InMemoryTable)
    query = str(ibis.to_sql(source.table, dialect="duckdb")).replace(held.name, "rows")
    rows = held.data.obj
    also = (source.told, source.odd, source.still, source.files, source.ranges)
    return (query, str(rows.schema.remove_metadata()), *map(str, also)), rows


def together(frames: list[Any]) -> Any:
    """One table of the values in several tables of Arrow, each value in two rows."""
    import pyarrow as pa

    column = pa.concat_tables([one.select(["c"]).combine_chunks() for one in frames])
    values: Any = column["c"].combine_chunks()
    first = dict[Any, int]()
    for i, one in enumerate(_as_they_are(values)):
        first.setdefault(repr(one), i)
    places = [*first.values(), *first.values()]
    try:
        chosen = values.take(places)
    except pa.ArrowNotImplementedError:  # texts that are views cannot be taken out
        held = values.to_pylist()
        chosen = pa.array([held[i] for i in places], values.type)
    return pa.table({"i": pa.array(range(len(places)), pa.int64()), "c": chosen})


def _as_they_are(values: Any) -> list[Any]:
    """The values of an array as Python has them: times as numbers, texts as bytes."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_temporal(kind):
        values = values.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        like = pa.binary() if pa.types.is_string(kind) else pa.large_binary()
        values = pa.Array.from_buffers(like, len(values), values.buffers())
    found: list[Any] = values.to_pylist()
    return found


# --------------------------------------------------------------------------------- the catalogs


def duckdb_types() -> Iterator[str]:
    """The types of DuckDB by one name each, nested ones of each sort, and texts collated."""
    import duckdb

    connection = duckdb.connect()
    asked = "SELECT min(type_name) FROM duckdb_types() GROUP BY logical_type, type_size ORDER BY 1"
    yield from (name for (name,) in connection.execute(asked).fetchall())
    yield from ("INTEGER[]", "INTEGER[2]", "STRUCT(a INTEGER)", "MAP(INTEGER, INTEGER)")
    yield from ("UNION(a INTEGER)", "ENUM('a', 'A', 'ab', '1')", "DECIMAL(38, 38)", "CHAR(3)")
    yield from ("DECIMAL(1, 0)", "DECIMAL(38, 0)", "DECIMAL(18, 3)")
    yield from (f"VARCHAR COLLATE {name}" for name in ("nocase", "noaccent", "nfc", "de", "C"))
    yield "VARCHAR COLLATE nocase.noaccent"


def in_duckdb(kind: str) -> Any | None:
    """A table of DuckDB; None if a table cannot have this type."""
    import ibis

    connection = ibis.duckdb.connect()
    execute = connection.con.execute
    with contextlib.suppress(Exception):
        execute(f"CREATE TABLE rows (i BIGINT, c {kind})")
        many = 0
        for text in (None, *TEXTS):
            with contextlib.suppress(Exception):
                execute("INSERT INTO rows VALUES (?, ?)", [many, text])
                many += 1
        execute("INSERT INTO rows SELECT i + ?, c FROM rows", [many])
        return connection.table("rows")
    return None


def postgres_types(connection: Any) -> list[str]:
    """The types of a PostgreSQL database, and those that have lengths or collations."""
    asked = (
        "SELECT format_type(t.oid, NULL) FROM pg_type AS t JOIN pg_namespace AS n "
        "ON n.oid = t.typnamespace WHERE typtype IN ('b', 'e', 'd', 'r', 'm') "
        "AND nspname IN ('pg_catalog', 'public') AND typcategory <> 'A' "
        "AND t.typname !~ '^(pg_|reg)' ORDER BY 1"
    )
    more = ["character(3)", "character varying(3)", "numeric(18, 3)", "numeric(38)", "text[]"]
    more += ["numeric(500)", "numeric(3, -300)", "numeric(50, 40)", "timestamp(0)", "time(0)"]
    collated = "SELECT quote_ident(collname) FROM pg_collation WHERE NOT collisdeterministic"
    more += [f"text COLLATE {name}" for (name,) in connection.execute(collated).fetchall()]
    return [name for (name,) in connection.execute(asked).fetchall()] + more


def in_postgres(connection: Any, ibis_connection: Any, kind: str, name: str) -> Any | None:
    """A table of PostgreSQL; None if a table cannot have this type, or Ibis cannot open it."""
    with contextlib.suppress(Exception):
        connection.execute(f"CREATE TABLE {name} (i bigint, c {kind})")
        many = 0
        for text in (None, *TEXTS):
            with contextlib.suppress(Exception):
                connection.execute(f"INSERT INTO {name} VALUES (%s, %s)", (many, text))
                many += 1
        connection.execute(f"INSERT INTO {name} SELECT i + %s, c FROM {name}", (many,))
        return ibis_connection.table(name)
    return None


def of_arrow() -> Iterator[Column]:
    """A table of Arrow for each type that a function of PyArrow makes."""
    import pyarrow as pa

    kinds: list[Any] = []
    for make in list(vars(pa).values()):
        # some print, or change the memory that all others use
        if inspect.isroutine(make) and re.match(r"\w+\(.*\)\n\nCreate ", make.__doc__ or ""):
            with contextlib.suppress(Exception):
                kind = make()
                if isinstance(kind, pa.DataType):
                    kinds.append(kind)
    for unit in ("s", "ms", "us", "ns"):
        kinds += [pa.timestamp(unit), pa.timestamp(unit, "Europe/Berlin"), pa.duration(unit)]
    kinds += [pa.time32("s"), pa.time64("ns"), pa.binary(1), pa.list_(pa.int64())]
    kinds += [pa.decimal128(38, 0), pa.decimal128(5, 2), pa.decimal256(50, 2)]
    kinds += [pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.int64())]
    kinds += [pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())]
    kinds += [pa.run_end_encoded(pa.int32(), pa.string()), pa.list_view(pa.int64())]
    for kind in dict.fromkeys(kinds):
        values = _accepted(functools.partial(pa.array, type=kind))
        edges = _raw(kind)
        column = (
            pa.concat_arrays([*(pa.array([v], kind) for v in values), *edges])
            if (not pa.types.is_run_end_encoded(kind))
            else pa.array(values, kind)
        )
        yield Column(
            str(kind), pa.table({"i": pa.array(range(len(column)), pa.int64()), "c": column})
        )


def _raw(kind: Any) -> list[Any]:
    """Values that no value of Python stands for: the ends of times, and texts that are none."""
    import pyarrow as pa

    if pa.types.is_temporal(kind) and not pa.types.is_time(kind):
        with contextlib.suppress(Exception):
            width = kind.bit_width
            ends = [2 ** (width - 1) - 1, -(2 ** (width - 1)), 86_400_000, 10**9 % 2 ** (width - 1)]
            return [pa.array(ends, pa.int64() if width == 64 else pa.int32()).view(kind)]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        like = pa.binary() if pa.types.is_string(kind) else pa.large_binary()
        odd = pa.array([b"\xff", b"a\xe9", b"\xed\xa0\x80", b"a\xff"], like)
        return [pa.Array.from_buffers(kind, len(odd), odd.buffers())]
    return []


def _accepted(make: Callable[[list[Any]], Any]) -> list[Any]:
    """The values of which a frame can make a column, each of them twice."""
    found: list[Any] = [None]
    for value in VALUES:
        with contextlib.suppress(Exception):
            make([value])
            found.append(value)
    return found + found


def of_polars() -> Iterator[Column]:
    """A frame of Polars for each of its types."""
    import polars as pl

    kinds: list[Any] = [
        kind
        for kind in vars(pl.datatypes).values()
        if inspect.isclass(kind) and issubclass(kind, pl.DataType) and not kind.is_nested()
    ]
    kinds += [pl.Enum(["a", "A", "1"]), pl.Decimal(38, 0), pl.Decimal(5, 2), pl.List(pl.Int64)]
    kinds += [pl.Datetime(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC")]
    kinds += [pl.Array(pl.Int64, 1), pl.Struct({"a": pl.Int64}), pl.Duration("ns")]
    for kind in dict.fromkeys(kinds):
        with contextlib.suppress(Exception):
            values = _accepted(functools.partial(pl.Series, dtype=kind, strict=True))
            column = pl.Series("c", values, dtype=kind)
            yield Column(str(kind), pl.DataFrame({"i": range(len(column)), "c": column}))


def of_pandas() -> Iterator[Column]:
    """A frame of pandas for each type of NumPy and each that pandas registers."""
    import numpy as np
    import pandas as pd

    kinds: list[Any] = [np.dtype(code) for code in np.typecodes["All"]]
    kinds += [f"datetime64[{unit}]" for unit in ("s", "ms", "us", "ns")]
    for cls in _below(pd.api.extensions.ExtensionDtype):
        with contextlib.suppress(Exception):
            kinds.append(cls())
    kinds += ["string", "Int64", "UInt64", "boolean", "Float64", "datetime64[ns, UTC]"]
    kinds += ["period[D]", "interval[int64]", "Sparse[float]", "category", "int64[pyarrow]"]
    names = []
    for kind in kinds:
        with contextlib.suppress(NotImplementedError):  # a class that is above others
            names.append(str(kind))
    for name in dict.fromkeys(names):
        with contextlib.suppress(Exception):
            values = _accepted(functools.partial(pd.Series, dtype=name))
            own, parts = pd.Series([], dtype=name).dtype, []
            for value in values:
                with contextlib.suppress(Exception):
                    part = pd.Series([value], dtype=name)
                    # NumPy's types have no missing value: pandas makes an object of it
                    if not isinstance(own, np.dtype) or part.dtype == own:
                        parts.append(part)
            column = pd.concat(parts, ignore_index=True)
            if len(column):
                yield Column(name, pd.DataFrame({"i": range(len(column)), "c": column}))


def _below(kind: type) -> list[type]:
    """All classes below a class."""
    subs: list[type] = kind.__subclasses__()
    return [one for sub in subs for one in (sub, *_below(sub))]
