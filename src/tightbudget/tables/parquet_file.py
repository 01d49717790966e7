"""Parquet files in DuckDB: only columns that are let in are read, so that no scan can fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tightbudget.tables.columns import MILLISECONDS, ROW, check_names, kind_of
from tightbudget.tables.csv_file import quoted_name, quoted_text


def read_parquet(connection: Any, path: Path) -> tuple[Any, dict[str, str]]:
    """Opens Parquet files in DuckDB; their rows stay where they are.

    DuckDB reads the least and the largest value of each column of a view, also of one that no query
    asks for, and fails where it cannot represent them. So the view has no column but those let in.

    Args:
        connection: Ibis's connection to DuckDB.
        path: of the file, or a pattern of paths.

    Returns:
        The table of the columns that are let in, and from the names of the others to their types.
    """
    # a text that is no UTF-8 would be an error: one record would stop the scan
    options = ", utf8_validation='replace'"  # guard: utf8-of-files
    rows = f"read_parquet({quoted_text(str(path))}{options})"
    connection.raw_sql(f"CREATE VIEW tightbudget_file AS SELECT * FROM {rows}")
    schema = connection.table("tightbudget_file").schema()
    types = {name: str(kind).removeprefix("!") for name, kind in schema.items()}
    check_names([*types])
    types.update({name: MILLISECONDS for name in _milliseconds(connection, path) & types.keys()})
    odd = {name: kind for name, kind in types.items() if kind_of(kind) is None}
    kept = [quoted_name(name) for name in types if name not in odd]  # guard: columns-of-files
    columns = ", ".join(kept) or f"CAST(1 AS BIGINT) AS {ROW}"
    connection.raw_sql(f"CREATE VIEW tightbudget_rows AS SELECT {columns} FROM {rows}")
    return connection.table("tightbudget_rows"), odd


def _milliseconds(connection: Any, path: Path) -> set[str]:
    """Names the columns of timestamps of milliseconds, which DuckDB names as microseconds."""
    asked = (
        "SELECT DISTINCT name FROM parquet_schema(?) WHERE converted_type = 'TIMESTAMP_MILLIS' "
        "OR logical_type LIKE 'TimestampType%MILLIS=MilliSeconds%'"
    )
    rows = connection.con.execute(asked, [str(path)]).fetchall()
    return {name for (name,) in rows}  # guard: times-of-files
