"""Catalogs of engines: types that Ibis names otherwise, and settings that are refused."""

from __future__ import annotations

import re
from typing import Any

from tightbudget.numerics.validate import refuse

# The types of PostgreSQL that are let in as Ibis names them. Texts of others are none of UTF-8
# ("char"), or no cast makes a double of them (money).
_POSTGRES = (
    *("int2", "int4", "int8", "bool", "float4", "float8", "numeric", "text", "varchar", "name"),
    *("citext", "date", "timestamp", "timestamptz", "uuid"),
)


def catalog(connection: Any, table: Any) -> dict[str, str]:
    """Returns the types that an engine's catalog tells, of columns that Ibis names otherwise.

    Ibis calls the types char(n), enum and citext a string, money and hugeint a decimal, and oid an
    integer.

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
    if connection.name == "duckdb":
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in path)
        rows = connection.con.execute(f"DESCRIBE {quoted}").fetchall()
        return {name: "hugeint" for name, kind, *_ in rows if kind == "HUGEINT"}
    if connection.name == "pyspark":
        quoted = ".".join("`" + part.replace("`", "``") + "`" for part in path)
        rows = connection.raw_sql(f"DESCRIBE TABLE {quoted}").collect()
        return {name: kind for name, kind, *_ in rows if re.fullmatch(r"char\(\d+\)", kind or "")}
    return {}


def knows_nan(connection: Any, table: Any) -> bool:
    """Whether what an engine knows of the range of a column holds for NaN, too.

    DuckDB knows it of its own tables. A view may read files of another writer, whose least and
    largest values leave NaN out, and DuckDB 2.0 takes them for those of all values.
    """
    place = getattr(table.op(), "namespace", None)
    if connection.name != "duckdb" or place is None:
        return True
    found = connection.con.execute(
        "SELECT count(*) FROM duckdb_tables() JOIN duckdb_databases() USING (database_name) "
        "WHERE type = 'duckdb' AND table_name = ? AND schema_name = coalesce(?, current_schema()) "
        "AND database_name = coalesce(?, current_database())",
        [table.op().name, place.database, place.catalog],
    ).fetchall()
    return bool(found[0][0])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


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
