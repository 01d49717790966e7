"""Columns: which types a question may use, for what, and the form that each is brought to.

Every column that a question uses is brought to a form in which equality, order and functions of
texts are those of one definition on every engine, and cannot fail for any value; or the column is
refused by its type, before a budget is touched. A type that :data:`KINDS` does not name is refused.
Types are those that a catalog tells, and never those that records have.

Why: where an engine holds two values for equal that Python tells apart, one record may name the
group of all others, and a group of 100 rows counts as 0. Where a function of a value can fail, an
error says that a record is there.

The form is made once, by the projection in which a table is opened: all that asks rows, rules too,
sees the form alone.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal
from uuid import UUID

import numpy as np

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse
from tightbudget.tables import rules

# The one column of a table of which no column is let in.
ROW = "tightbudget_row"
# The name and the type of a column of a frame, and what makes it one of Arrow.
_Read = tuple[str, str, Callable[[], Any]]
# A row_id has the role of a unit: its equality decides which rows are one.
Role = Literal["unit", "public key", "secret key", "join", "number", "rule"]
# How texts come from an engine: with the collation of their column, padded with blanks, from files
# of Parquet, or as they are in tables that are made from frames.
Origin = Literal["engine", "padded", "files", "frame"]


@dataclass(frozen=True, kw_only=True)
class ColumnKind:
    """A kind of columns.

    Attributes:
        types: the names of its types as Ibis writes them, a regular expression.
        form: what its values are brought to, in words.
        roles: what a column of this kind may be used for.
        key: makes a public key one of the form's values; raises ValueError with what a key must be.
    """

    types: str
    form: str
    roles: frozenset[Role]
    key: Callable[[str, Any], Any] | None = None


def _integer(kind: str, key: Any) -> Any:
    """Returns an integer that the type has."""
    bits, signed = int(kind.lstrip("uint")), kind.startswith("int")
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    # an engine may fail at a number that its type has not, when the budget is already spent
    if type(key) is not int or not low <= key <= high:
        raise ValueError(f"have keys of the column's type, {kind} (integers from {low} to {high})")
    return key


def _truth(kind: str, key: Any) -> Any:
    """Returns a truth value."""
    if type(key) is not bool:
        raise ValueError(f"have keys of the column's type, {kind} (True and False)")
    return key


def _text(kind: str, key: Any) -> Any:
    """Returns a text that every engine can be asked for."""
    if type(key) is not str:
        raise ValueError(f"have keys of the column's type, {kind} (texts)")
    if "\0" in key or any("\ud800" <= c <= "\udfff" for c in key):
        raise ValueError("have texts of Unicode without the character 0")
    if kind.startswith("char") and key.endswith(" "):
        raise ValueError(f"have keys without blanks at their end, as the column's type is {kind}")
    return key


def _uuid(kind: str, key: Any) -> Any:
    """Returns the text of a UUID, with small letters."""
    try:
        return str(key if isinstance(key, UUID) else UUID(key))
    except (ValueError, AttributeError, TypeError):
        raise ValueError("have keys of the column's type, uuid (UUIDs, or their texts)") from None


def _date(kind: str, key: Any) -> Any:
    """Returns a date, which may be given as its text."""
    if type(key) is datetime.date:
        return key
    try:
        return datetime.date.fromisoformat(key)
    except (ValueError, TypeError):
        must = "have keys of the column's type, date (dates, or texts like '2026-01-31')"
        raise ValueError(must) from None


def _timestamp(kind: str, key: Any) -> Any:
    """Returns a timestamp without a time zone, no finer than its type."""
    found = key
    if type(key) is str:
        with contextlib.suppress(ValueError):
            found = datetime.datetime.fromisoformat(key)
    digits = re.fullmatch(r"timestamp\((\d)\)", kind)
    finest = 10 ** max(0, 6 - (int(digits[1]) if digits else 6))
    if not (
        isinstance(found, datetime.datetime)
        and found.tzinfo is None
        and found.microsecond % finest == 0
        and not getattr(found, "nanosecond", 0)  # of pandas
    ):
        raise ValueError(
            f"have keys of the column's type, {kind} (timestamps without a time zone and no finer "
            "than the column, or texts like '2026-01-31T12:00:00')"
        )
    return datetime.datetime(*found.timetuple()[:6], found.microsecond)


_ALL: frozenset[Role] = frozenset(("unit", "public key", "secret key", "join", "rule"))

#: The types that are let in, and what each may be used for.
KINDS: Mapping[str, ColumnKind] = {
    "integers": ColumnKind(
        types=r"u?int(8|16|32|64)", form="as they are", roles=_ALL | {"number"}, key=_integer
    ),
    "truth values": ColumnKind(
        types="boolean", form="as they are", roles=_ALL | {"number"}, key=_truth
    ),
    "texts": ColumnKind(
        types=r"string(\(\d+\))?",
        form="texts of UTF-8 that are compared byte by byte, whatever the column's collation",
        roles=_ALL,
        key=_text,
    ),
    "padded texts": ColumnKind(
        types=r"char\(\d+\)",
        form="texts without the blanks at their end, compared byte by byte",
        roles=_ALL,
        key=_text,
    ),
    "UUIDs": ColumnKind(types="uuid", form="texts with small letters", roles=_ALL, key=_uuid),
    "dates": ColumnKind(types="date", form="as they are", roles=_ALL, key=_date),
    "timestamps": ColumnKind(
        types=r"timestamp(\([0-6]\))?",
        form="as they are; outside of the years 1 to 9999 they are missing",
        roles=_ALL - {"secret key"},
        key=_timestamp,
    ),
    "timestamps of nanoseconds": ColumnKind(
        types=r"timestamp\([7-9]\)",
        form="as they are",
        roles=frozenset(("unit", "join", "rule")),  # nor nanoseconds
    ),
    "timestamps with a time zone": ColumnKind(
        types=r"timestamp\('.*", form="as they are", roles=frozenset(("unit", "join"))
    ),
    "floating-point numbers": ColumnKind(
        types=r"float(16|32|64)", form="as they are", roles=frozenset(("join", "number", "rule"))
    ),
    "decimals": ColumnKind(
        types=r"decimal\(\d+, \d+\)",
        form="as they are, of at most 38 digits",
        roles=frozenset(("join", "number", "rule")),
    ),
    # an array of NumPy without a type, which no catalog tells and no engine reads
    "objects": ColumnKind(
        types="object",
        form="what can be hashed, compared and written, else missing",
        roles=_ALL | {"number"},
        key=lambda kind, key: key,
    ),
}
# The first and the last second of the years 1 to 9999, from 1970 on.
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
# DuckDB reads them as microseconds, and fails at one that has too many of them.
_MILLISECONDS = "timestamp of milliseconds in Parquet"
# An engine may fail to make a double of a decimal with more digits.
_DIGITS = 38


def kind_of(kind: str) -> ColumnKind | None:
    """Returns the kind of a type by its whole name; None for a type that is not let in."""
    for known in KINDS.values():
        if re.fullmatch(known.types, kind):
            return None if kind.startswith("decimal") and not _small(kind) else known
    return None


def _small(kind: str) -> bool:
    """Says whether a decimal has few digits, of which no more are behind the point than in all."""
    digits, scale = (int(number) for number in re.findall(r"\d+", kind))
    return scale <= digits <= _DIGITS


def why(kind: str) -> str:
    """Says what to do about a type that is not let in, as the end of a refusal."""
    if kind == _MILLISECONDS:
        return ": DuckDB fails at one that is too far away; write microseconds into the file"
    if kind.startswith("decimal"):
        return f": declare how many digits it has, at most {_DIGITS}, say NUMERIC(18, 2)"
    return ": cast it to a type that is let in, in a view or a frame"


def check_role(columns: Mapping[str, str], argument: str, name: str, role: Role) -> None:
    """Refuses a column whose type does not serve a role.

    Args:
        columns: from names to types.
        argument: what the column was given as.
        name: the column.
        role: what it is for.

    Raises:
        ParameterError: the message names the column and its type.
    """
    kind = columns[name]
    found = kind_of(kind)
    if found is None or role not in found.roles:  # guard: roles-of-types
        must = "be a column of integers, texts, truth values or dates"
        hint = " (missing ones make pandas turn integers into floats: use Int64)"
        raise ParameterError(
            f"{argument} must {must}, got {name!r} of type {kind}{hint * ('float' in kind)}"
        )


def alike(one: str, other: str) -> bool:
    """Says whether no engine changes a value when it compares columns of two types."""
    kinds = [kind_of(kind) for kind in (one, other)]
    if None in kinds:
        return False
    groups = [{"padded texts": "texts"}.get(name, name) for name in map(_name, (one, other))]
    return groups[0] == groups[1] and (groups[0] in ("integers", "texts") or one == other)


def _name(kind: str) -> str:
    return next(name for name, known in KINDS.items() if re.fullmatch(known.types, kind))


def public_keys(columns: Mapping[str, str], by: str, keys: Any) -> tuple[Any, ...]:
    """Returns public keys of a column in the column's form.

    Args:
        columns: from names to types.
        by: the column.
        keys: its keys.

    Raises:
        ParameterError: the column's type names no groups; keys are no list, none, missing, twice
            there, or no values of the column's type.
    """
    argument, kind = f"domains[{by!r}]", columns[by]
    check_role(columns, argument, by, "public key")
    if isinstance(keys, (str, bytes)) or not hasattr(keys, "__iter__"):
        raise refuse(argument, "be a list of keys", keys)
    make = KINDS[_name(kind)].key
    listed, seen = [], set[Any]()
    for given in keys:
        key = given.item() if isinstance(given, np.generic) else given
        if key is None or key != key:
            raise refuse(argument, "have no missing key", key)
        if make is not None:
            try:
                key = make(kind, key)  # guard: keys-of-the-type
            except ValueError as error:
                raise refuse(argument, str(error), given) from None
        if key in seen:
            raise refuse(argument, "have each key once", given)
        seen.add(key)
        listed.append(key)
    if not listed:
        raise refuse(argument, "have at least one key", ())
    return tuple(listed)


# -------------------------------------------------------------------------------- forms in queries


def formed(value: Any, kind: str, origin: Origin) -> Any:
    """Returns the Ibis expression of a column in its form.

    Args:
        value: the column.
        kind: the name of its type.
        origin: how its texts come from the engine.
    """
    name = _name(kind)
    if name == "UUIDs" and origin in ("frame", "files"):
        return value.cast("string")
    if name == "timestamps" and origin != "frame":
        if kind != "timestamp(6)" and value.get_backend().name == "duckdb":
            # it has timestamps of seconds that no comparison can be made with
            value = value.try_cast("timestamp(6)")
        return rules.usual_timestamp(value)  # guard: times-of-engines
    if name not in ("texts", "padded texts", "UUIDs") or origin == "frame":
        return value
    return _text_form()(value, origin).to_expr()


@cache
def _text_form() -> Any:
    """Returns the operation of Ibis that writes the form of a text.

    Ibis has no COLLATE, and leaves out casts from texts to texts. It looks up how an operation is
    written by the operation's name among the methods of its compilers, so the one for all engines
    is put there.
    """
    operations = importlib.import_module("ibis.expr.operations")
    datatypes = importlib.import_module("ibis.expr.datatypes")
    compilers = importlib.import_module("ibis.backends.sql.compilers.base")

    body = {
        "__module__": __name__,
        "__annotations__": {"arg": operations.Value[datatypes.Any], "origin": str},
        "dtype": datatypes.string,
        "shape": importlib.import_module("ibis.expr.rules").shape_like("arg"),
    }
    made = type(operations.Value)("TightbudgetText", (operations.Value,), body)
    compilers.SQLGlotCompiler.visit_TightbudgetText = lambda compiler, op, **parts: _written(
        compiler, op, **parts
    )
    return made


def _written(compiler: Any, op: Any, *, arg: Any, origin: str) -> Any:
    """Writes the form of a text for the engine of a compiler."""
    f, dialect = compiler.f, str(compiler.dialect.__name__).lower()
    sql = importlib.import_module("sqlglot.expressions")
    if origin == "files":
        # DuckDB has put another text in the place of one that is no UTF-8, but it skips blocks of
        # rows, and whole files, by the bytes that stand in them: so one record would decide whether
        # others count. It does not look through concat, whose NULL is an empty text.
        # guard: texts-of-files
        return sql.Case(
            ifs=[sql.If(this=sql.Not(this=arg.copy().is_(sql.Null())), true=_joined(arg))]
        )
    text = sql.Cast(this=arg, to=sql.DataType.build("text", dialect="postgres"))
    if dialect in ("duckdb", "postgres"):
        # guard: texts-by-their-bytes
        return sql.Paren(
            this=sql.Collate(this=text, expression=sql.to_identifier("C", quoted=True))
        )
    if dialect in ("spark", "pyspark", "databricks"):
        # a cast takes the collation off; no text that is no UTF-8 can be read by Python
        valid = f.anon.try_validate_utf8(text)
        return f.anon.rtrim(valid) if origin == "padded" else valid
    return f.anon.collate(text, sql.Literal.string("utf8" if dialect == "snowflake" else ""))


def _joined(text: Any) -> Any:
    sql = importlib.import_module("sqlglot.expressions")
    return sql.Anonymous(this="concat", expressions=[text, sql.Literal.string("")])


# ------------------------------------------------------------------------------ what catalogs tell


def catalog(connection: Any, table: Any) -> dict[str, str]:
    """Returns the types that an engine's catalog tells, of columns that Ibis names otherwise.

    Ibis calls the types char(n), enum and citext a string, money a decimal, and oid an integer.

    Args:
        connection: the backend of Ibis.
        table: one of its tables.
    """
    op = table.op()
    place = getattr(op, "namespace", None)
    if place is None:  # a table of this process
        return {}
    path = [part for part in (place.catalog, place.database, op.name) if part is not None]
    if connection.name == "postgres":
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in path[-2:])
        query = (
            "SELECT a.attname, t.typname, t.typtype, format_type(a.atttypid, a.atttypmod) "
            "FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid WHERE a.attnum > 0 "
            f"AND a.attrelid = {_quoted(quoted)}::regclass"
        )
        with connection._safe_raw_sql(query) as cursor:
            rows = cursor.fetchall()
        return {name: found for name, *told in rows if (found := _postgres(*told)) is not None}
    if connection.name == "pyspark":
        quoted = ".".join("`" + part.replace("`", "``") + "`" for part in path)
        rows = connection.raw_sql(f"DESCRIBE TABLE {quoted}").collect()
        return {name: kind for name, kind, *_ in rows if re.fullmatch(r"char\(\d+\)", kind or "")}
    return {}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# The types of PostgreSQL that are let in as Ibis names them. Texts of others are none of UTF-8
# ("char"), or no cast makes a double of them (money).
_POSTGRES = (
    *("int2", "int4", "int8", "bool", "float4", "float8", "numeric", "text", "varchar", "name"),
    *("citext", "date", "timestamp", "timestamptz", "uuid"),
)


def _postgres(name: str, sort: str, whole: str) -> str | None:
    """Returns a type of PostgreSQL that Ibis names otherwise; None where its name is right."""
    if name == "citext":
        return "string"
    if name == "bpchar":
        length = re.search(r"\d+", whole)
        return f"char({length[0] if length else 0})"
    if sort == "e" or name in _POSTGRES:
        return "string" if sort == "e" else None
    return whole


def of_parquet(connection: Any, files: str) -> dict[str, str]:
    """Returns the types in files of Parquet that DuckDB names otherwise.

    Args:
        connection: of Ibis, to DuckDB.
        files: the pattern of their paths.
    """
    asked = (
        "SELECT DISTINCT name FROM parquet_schema(?) WHERE converted_type = 'TIMESTAMP_MILLIS' "
        "OR logical_type LIKE 'TimestampType%MILLIS=MilliSeconds%'"
    )
    rows = connection.con.execute(asked, [files]).fetchall()
    return dict.fromkeys((name for (name,) in rows), _MILLISECONDS)  # guard: times-of-files


def check_engine(connection: Any) -> None:
    """Refuses an engine that is set to compare or encode texts otherwise.

    Raises:
        ParameterError: a text without a collation would be compared by another one, or the
            database does not keep texts in UTF-8.
    """
    if connection.name == "duckdb":
        ((found,),) = connection.con.execute(
            "SELECT current_setting('default_collation')"
        ).fetchall()
        if (found or "").lower() not in ("", "binary", "c", "posix"):  # guard: default-collation
            raise refuse("data", "be of a DuckDB whose default_collation is 'binary'", found)
    if connection.name == "postgres":
        with connection._safe_raw_sql("SHOW server_encoding") as cursor:
            ((found,),) = cursor.fetchall()
        if found != "UTF8":  # guard: encoding-of-the-server
            raise refuse("data", "be of a PostgreSQL database with the encoding UTF8", found)


# ---------------------------------------------------------------------------------------- frames


def arrow_of(given: Sequence[_Read]) -> tuple[Any, dict[str, str]]:
    """Returns a frame as a table of Arrow in the form of each column, and what is left out.

    Args:
        given: what :func:`read_columns` returns.

    Returns:
        The table, and from the names of columns that are not let in to their types.
    """
    arrow = importlib.import_module("pyarrow")
    made, odd, rows = {}, {}, 0
    for name, told, read in given:
        try:
            column = read()
        except Exception:  # the type has no counterpart, which no record decides
            odd[name] = told
            continue
        rows = len(column)
        column = _plain(column, told, odd, name)
        if column is not None:
            made[name] = column
    if not made:  # rows can be counted all the same
        made[ROW] = arrow.array([1] * rows, arrow.int64())
    return arrow.table(made), odd


def read_columns(data: Any) -> Sequence[_Read]:
    """Returns the name and the type of each column of a frame, and what makes it one of Arrow."""
    arrow = importlib.import_module("pyarrow")
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):  # lazy, of Polars
        data = data.collect()
    if hasattr(data, "get_columns"):  # Polars
        return [(c.name, str(c.dtype), c.to_arrow) for c in data.get_columns()]
    if hasattr(data, "iloc"):  # pandas
        return [
            (
                str(name),
                str(data.dtypes.iloc[i]),
                partial(lambda i: arrow.Array.from_pandas(data.iloc[:, i]), i),
            )
            for i, name in enumerate(data.columns)
        ]
    if not isinstance(data, arrow.Table):
        data = importlib.import_module("ibis").memtable(data).to_pyarrow()
    return [
        (field.name, str(field.type), partial(data.column, i))
        for i, field in enumerate(data.schema)
    ]


def _plain(column: Any, told: str, odd: dict[str, str], name: str) -> Any:
    """Returns a column of Arrow in its form; None, and a word in ``odd``, if it is not let in."""
    arrow = importlib.import_module("pyarrow")
    formats = importlib.import_module("ibis.formats.pyarrow")
    if isinstance(column, arrow.Array):
        column = arrow.chunked_array([column])
    kind = column.type
    types = arrow.types
    if types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type), told, odd, name)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _valid(column)
    if types.is_float16(kind):
        column = column.cast(arrow.float32())
    if types.is_timestamp(kind) and kind.unit != "ns":
        column = _usual_times(column)
    try:
        found = str(formats.PyArrowType.to_ibis(column.type)).removeprefix("!")
    except Exception:
        found = told
    if kind_of(found) is None:
        odd[name] = found
        return None
    return column


def _usual_times(column: Any) -> Any:
    """Returns timestamps of microseconds, of the years 1 to 9999; others are missing.

    DuckDB has fewer years than int64 has seconds, and a cast of another one is an error.
    """
    arrow = importlib.import_module("pyarrow")
    compute = importlib.import_module("pyarrow.compute")
    points = column.cast(arrow.int64())
    second = {"s": 1, "ms": 10**3, "us": 10**6}[column.type.unit]
    # guard: times-of-frames
    usual = compute.and_(
        compute.greater_equal(points, _FIRST * second), compute.less_equal(points, _LAST * second)
    )
    kept = compute.if_else(usual, column, arrow.scalar(None, column.type))
    return kept.cast(arrow.timestamp("us", column.type.tz))


def _valid(column: Any) -> Any:
    """Returns texts of UTF-8: bytes that are none become U+FFFD, in each text by itself."""
    arrow = importlib.import_module("pyarrow")
    try:
        column.validate(full=True)
    except arrow.ArrowInvalid:  # guard: texts-of-frames
        told = column.cast(arrow.binary()).to_pylist()
        texts = [None if text is None else text.decode(errors="replace") for text in told]
        return arrow.chunked_array([arrow.array(texts, arrow.string())])
    return column
