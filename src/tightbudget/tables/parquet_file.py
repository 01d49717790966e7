"""Parquet files in DuckDB: only columns that are let in are read, so that no scan can fail."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from tightbudget.tables.columns import MILLISECONDS, ROW, check_names, kind_of
from tightbudget.tables.csv_file import quoted_name, quoted_text


def read_parquet(connection: Any, path: Path, *, known: bool) -> tuple[Any, dict[str, str]]:
    """Opens Parquet files in DuckDB; their rows stay where they are.

    DuckDB reads the least and the largest value of each column of a view, also of one that no query
    asks for, and fails where it cannot represent them. So the view has no column but those let in.

    Args:
        connection: Ibis's connection to DuckDB.
        path: of the file, or a pattern of paths.
        known: what the files say of the range of a column holds for NaN, too.

    Returns:
        The table of the columns that are let in, and from the names of the others to their types.

    Raises:
        ParameterError: a file has columns whose names differ in capital letters alone.
    """
    # a text that is no UTF-8 would be an error: one record would stop the scan
    options = ", utf8_validation='replace'"  # guard: utf8-of-files
    rows = f"read_parquet({quoted_text(str(path))}{options})"
    connection.raw_sql(f"CREATE VIEW tightbudget_file AS SELECT * FROM {rows}")
    schema = connection.table("tightbudget_file").schema()
    types = {name: str(kind).removeprefix("!") for name, kind in schema.items()}
    check_names([*types])
    far = _milliseconds(connection, path)
    types.update({name: MILLISECONDS for name in types if name.casefold() in far})
    odd = {name: kind for name, kind in types.items() if kind_of(kind) is None}
    # guard: columns-of-files
    kept = [_column(name, kind, known) for name, kind in types.items() if name not in odd]
    columns = ", ".join(kept) or f"CAST(1 AS BIGINT) AS {ROW}"
    connection.raw_sql(f"CREATE VIEW tightbudget_rows AS SELECT {columns} FROM {rows}")
    return connection.table("tightbudget_rows"), odd


def written_by_duckdb(connection: Any, path: str) -> bool:
    """Whether DuckDB has written all files, so that what they say of a column holds for NaN, too.

    The least and the largest value of a column leave NaN out, as Parquet has it, and DuckDB 2.0
    takes them for those of all values: it then does not ask a value whether it is NaN. Files that
    it has written itself say nothing of a column with NaN.
    """
    asked = "SELECT coalesce(bool_and(created_by LIKE 'DuckDB %'), false) FROM "
    ((known,),) = connection.con.execute(
        f"{asked} parquet_file_metadata({quoted_text(path)})"
    ).fetchall()
    return bool(known)


def _column(name: str, kind: str, known: bool) -> str:
    """Writes a column of a file; DuckDB does not look for its range through a CASE."""
    column = quoted_name(name)
    if known or not kind.startswith("float"):
        return column
    # guard: nan-of-files
    return f"CASE WHEN {column} IS NULL THEN NULL ELSE {column} END AS {column}"


def _milliseconds(connection: Any, path: Path) -> set[str]:
    """Names the columns of timestamps of milliseconds, which DuckDB names as microseconds.

    Returns:
        Their names in small letters, since DuckDB tells no others apart.

    Raises:
        ParameterError: a file has two columns of one name. DuckDB gives one of them another name,
            and then nothing here says which is which.
    """
    asked = (
        "SELECT file_name, name, coalesce(num_children, 0), "
        "coalesce(converted_type = 'TIMESTAMP_MILLIS', false) "
        "OR coalesce(logical_type LIKE 'TimestampType%MILLIS=MilliSeconds%', false) "
        "FROM parquet_schema(?) ORDER BY file_name, column_id"
    )
    rows = connection.con.execute(asked, [str(path)]).fetchall()
    found = set[str]()
    for _file, parts in groupby(rows, key=itemgetter(0)):
        columns = list(_top(parts))
        check_names([name for name, _ in columns])  # guard: names-of-files
        found |= {name.casefold() for name, milliseconds in columns if milliseconds}
    return found  # guard: times-of-files


def _top(parts: Iterator[tuple[str, str, int, bool]]) -> Iterator[tuple[str, bool]]:
    """Returns the columns of a file without their parts, of which each stands behind its whole."""
    _, _, many, _ = next(parts)  # the whole
    for _ in range(many):
        _, name, below, milliseconds = next(parts)
        yield name, milliseconds
        while below:
            below += next(parts)[2] - 1
