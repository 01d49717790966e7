"""Opens a path, a frame or an Ibis table as a source: each column in its form, or left out."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tightbudget.credentials import hidden
from tightbudget.errors import ParameterError, SourceError
from tightbudget.numerics.validate import refuse
from tightbudget.release.interrupts import interrupts
from tightbudget.tables.catalogs import catalog, check_engine, knows_nan
from tightbudget.tables.columns import ROW, check_names, kind_of
from tightbudget.tables.csv_file import read_csv
from tightbudget.tables.forms import Origin, formed, without_ranges
from tightbudget.tables.frames import arrow_of, check_frame, read_columns, unread
from tightbudget.tables.ibis_source import IbisSource, stamps, unanswered
from tightbudget.tables.parquet_file import read_parquet, written_by_duckdb
from tightbudget.tables.rules.expressions import import_ibis

# Engines that answer windows, md5 and exact integers alike. Tests ask DuckDB, PostgreSQL and Spark;
# for the other three they read the queries that Ibis writes.
_ENGINES = ("duckdb", "postgres", "pyspark", "databricks", "snowflake", "bigquery")
# An address, of which a path of pathlib has kept one slash; a single letter is a drive.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9.-]+)(?:\+[A-Za-z0-9.-]+)*:/")
# Schemes of ibis.connect that are engines, beside their own names.
_SCHEMES = {"postgresql": "postgres"}
_FRAMES = ("http", "https", "ftp", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "hdfs", "hf")


def opened(data: Any, types: Mapping[str, str], *, line_breaks: bool = False) -> IbisSource:
    """Opens a path, a frame or an Ibis table.

    Args:
        data: the path, the frame or the table.
        types: of the columns of a CSV file.
        line_breaks: values of a CSV file may have line breaks; see :func:`read_csv`.

    Raises:
        ParameterError: it is none of them.
        ExtraError: Ibis is not installed.
        SourceError: the file or the engine does not answer.
    """
    ibis = import_ibis()
    if isinstance(data, ibis.Table):
        operations = ibis.expr.operations
        # guard: rows-as-they-are
        if not isinstance(data.op(), (operations.DatabaseTable, operations.InMemoryTable)):
            raise ParameterError(
                "data must be a table of the engine as it is, got an expression of Ibis: use "
                "Table.filter, Table.mutate and Table.join, which look at one row alone"
            )
        connection = data.get_backend()
        if connection.name in _ENGINES:  # guard: known-engine
            check_names(data.columns)
            return _told(data, connection)
        if connection.name != "polars":
            raise ParameterError(
                f"data must be a table of {', '.join(_ENGINES)} or polars, got one of "
                f"{connection.name}: give its rows as a frame, say table.to_pyarrow()"
            )
    elif not isinstance(data, (str, os.PathLike)) and not hasattr(data, "columns"):
        must = "be a path, a frame, an Ibis table, or a mapping from names to arrays"
        raise refuse("data", must, type(data).__name__)
    check_frame(data)
    files = str(data) if isinstance(data, (str, os.PathLike)) else None
    if files is not None and (address := _ADDRESS.match(files)):
        raise _meant(address[1], files)
    with interrupts() as seen:
        try:
            return _opened(data, types, files, line_breaks)
        except ParameterError:
            raise
        except Exception as error:  # its text may show values
            seen.check()
            file = f"the file {hidden(repr(files))} could not be read ({type(error).__name__})"
            raise SourceError(unread(data, error) if files is None else file) from None


def _meant(scheme: str, address: str) -> ParameterError:
    """Makes the refusal of an address, with the call that is meant."""
    scheme = scheme.lower()
    if _SCHEMES.get(scheme, scheme) in _ENGINES:
        call = f'tb.Table(ibis.connect("{scheme}://...").table("name"))'
    elif scheme == "file":
        call = "its path, without file://"
    elif scheme in _FRAMES:
        call = "a path of this machine, or a frame, say pandas.read_parquet(address)"
    else:
        call = f'its rows as a frame, ibis.connect("{scheme}://...").table("name").to_pyarrow()'
    return refuse("data", f"be a path, a frame or an Ibis table: give {call}", address)


def _opened(
    data: Any, types: Mapping[str, str], files: str | None, line_breaks: bool
) -> IbisSource:
    """Opens files or a frame in a DuckDB of their own."""
    connection, odd = _own_duckdb(), dict[str, str]()
    origin: Origin = "frame"
    # files that are not on this machine have no time of change here
    before, known = stamps(files), False
    if files is None:
        frame, odd = _frame(data)
        table = import_ibis().memtable(frame)
    elif Path(files).suffix == ".parquet":
        known, origin = bool(before) and written_by_duckdb(connection, files), "files"
        table, odd = read_parquet(connection, Path(files), known=known)
    elif Path(files).suffix == ".csv":
        table = read_csv(connection, Path(files), types, line_breaks=line_breaks)
        check_names(table.columns)
    else:
        raise refuse("data", "be a path that ends in .parquet or .csv", files)
    source = IbisSource(
        table,
        connection,
        still=files is None or bool(before),
        files=files,
        ranges=before if known else None,
        odd=odd,
    )
    return _in_form(source, origin)


def _frame(data: Any) -> tuple[Any, dict[str, str]]:
    """Returns a frame as a table of Arrow, and the types of the columns that it lacks."""
    # Ibis has no windows for Polars, whose rows are in this process anyway
    given = read_columns(data.to_polars() if isinstance(data, import_ibis().Table) else data)
    check_names([name for name, *_ in given])
    return arrow_of(given)


def _told(data: Any, connection: Any) -> IbisSource:
    """Opens a table of an engine, whose catalog tells the types that Ibis names otherwise.

    Raises:
        ParameterError: the engine is set to compare texts otherwise.
        SourceError: the engine does not answer.
    """
    with interrupts() as seen:
        try:
            check_engine(connection)
            types = catalog(connection, data)
            rows = data if knows_nan(connection, data) else without_ranges(data)
        except ParameterError:
            raise
        except Exception as error:
            seen.check()
            raise unanswered(error) from None
    return _in_form(IbisSource(rows, connection), "engine", types)


def _in_form(
    source: IbisSource, origin: Origin, names: Mapping[str, str] = MappingProxyType({})
) -> IbisSource:
    """Returns the rows with each column that is let in, in its form; the others are only named.

    Args:
        source: the rows.
        origin: how texts come from the engine.
        names: the types that Ibis names otherwise.
    """
    given, made, odd, own = source.table, {}, dict(source.odd), dict[str, str]()
    for name, kind in {**source.columns, **names}.items():
        if name not in given.columns:
            continue
        if kind_of(kind) is None:  # guard: kinds-let-in
            odd[name] = kind
            continue
        padded = kind.startswith("char")
        made[name] = formed(given[name], kind, "padded" if padded else origin)
        own[name] = kind
    if not made:  # rows can be counted all the same
        made[ROW] = import_ibis().literal(1, "int64")
    return replace(source, table=given.select(**made), told=own, odd=odd)


def _own_duckdb() -> Any:
    """Opens DuckDB in memory; rows that do not fit go to a folder that only this user can read.

    By default they would go to a folder ``.tmp`` of the working directory, and stay there if the
    process is killed. The folder is removed when nobody holds the connection any more.
    """
    folder = tempfile.mkdtemp(prefix="tightbudget-")
    connection = import_ibis().duckdb.connect(temp_directory=folder)
    weakref.finalize(connection, shutil.rmtree, folder, ignore_errors=True)
    return connection
