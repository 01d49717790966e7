"""CSV files in DuckDB: each line is read by itself, and none can fail the scan.

Types, delimiters and line ends that DuckDB guesses depend on the records, and a record of another
form would be an error that is seen. So nothing is guessed: all columns are read as texts, and
become missing values where they are no value of the type that is declared. A line that is no row
is left out by itself.

DuckDB's own reader takes a quote that one line leaves open, or that it closes in an unusual way,
through the lines behind it: one record then erases any number of others. So lines are told apart
first, by line ends alone, and each is cut into its values afterwards.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tightbudget.credentials import hidden
from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse

# A header has at most so many bytes: 2^20, say 10,000 columns with names of 100 characters.
_LONGEST_HEADER = 2**20
# DuckDB's options with which nothing is guessed, and every line that is no row is left out.
# Without strict_mode=false a carriage return in the midst of a line is an error of the scan.
_OPTIONS = "auto_detect=false, ignore_errors=true, strict_mode=false, new_line='\\n'"
# A line of values with quotes around some of them, and blanks around these: a quote in a value is
# written twice. RE2 decides this in one pass.
_VALUE = '(?: *"(?:[^"]|"")*" *|[^",]*)'
_QUOTED_LINE = f"{_VALUE}(?:,{_VALUE})*"
# Lines that need less work, and are most of those with quotes in most files: one with quotes around
# every value, and one with no comma between quotes; neither has a quote within a value.
_ALL_QUOTED = '"[^"]*"(?:,"[^"]*")*'
_NO_COMMAS = '(?:"[^",]*"|[^",]*)(?:,(?:"[^",]*"|[^",]*))*'


def read_csv(connection: Any, path: Path, types: Mapping[str, str], *, line_breaks: bool) -> Any:
    """Opens a CSV file in DuckDB; its rows stay where they are.

    Args:
        connection: Ibis's connection to DuckDB.
        path: of the file; its first line is the header, which is public.
        types: from the name of a column to its type; other columns are texts.
        line_breaks: values in quotes may have line breaks. Then a quote that one record leaves
            open takes other records with it.

    Guarantee: without ``line_breaks``, a line that is put in, left out or changed changes no other
    row, whatever is in it.

    Raises:
        ParameterError: the header is not one line of different names, or ``types`` names a column
            that is not there. Nothing behind the header is shown.
    """
    names = _header(path)
    for name in types:
        if name not in names:
            raise refuse("types", f"name columns among {', '.join(names)}", name)
    # guard: csv-lines-by-themselves
    rows = _records(path, names) if line_breaks else _lines(path, names)
    connection.raw_sql(f"CREATE VIEW tightbudget_rows AS {rows}")
    table = connection.table("tightbudget_rows")
    return table.mutate(**{name: table[name].try_cast(kind) for name, kind in types.items()})


def _header(path: Path) -> list[str]:
    """Returns the names of the columns, from the first line of a file alone.

    Raises:
        ParameterError: the line is no list of different names.
    """
    with path.open("rb") as opened:
        first = opened.read(_LONGEST_HEADER).replace(b"\r", b"\n").split(b"\n")[0]
    must = "begin with a line of the columns' names, in UTF-8, with each quote closed"
    file = hidden(repr(str(path)))
    if len(first) >= _LONGEST_HEADER:
        raise ParameterError(f"data must {must}, got a line that does not end")
    try:
        # a header that leaves a quote open must not read on: behind it are records
        names = next(csv.reader([first.decode("utf-8-sig")], strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        raise ParameterError(f"data must {must}, got another first line in {file}") from None
    if not names:
        raise ParameterError(f"data must {must}, got an empty line in {file}")
    for number, name in enumerate(names, start=1):
        if not name or "\0" in name:
            hint = "" if name else " (pandas writes its index so: use to_csv(index=False))"
            raise ParameterError(
                f"data must have a name for each column, got none for column {number}{hint}"
            )
        if name in names[: number - 1]:
            raise refuse("data", "have columns with different names", name)
    return names


def _lines(path: Path, names: Sequence[str]) -> str:
    """Returns a query of the rows, each from one line.

    A line with no quote is cut at its commas. One with quotes around every value is cut at quotes
    with a comma between them: within a value there is no quote, so the first one ends it. Of a line
    with no comma between quotes the quotes are left out.

    Any other is cut at its quotes: its parts are outside of quotes and inside of them, by turns. In
    those outside, commas become the character 1, at which the whole is cut. An empty one between
    two quotes stands for a quote in a value. This takes three times as long.

    The character 1 also parts what DuckDB takes for columns. So a line has none: where a record has
    that character, what is behind it is left out.
    """
    lines = (
        f"SELECT line FROM read_csv({quoted_text(str(path))}, {_OPTIONS}, "
        "columns={'line': 'VARCHAR'}, header=false, skip=1, delim=chr(1), quote='', escape='') "
        "WHERE line IS NOT NULL"
    )
    forms = f"""
        SELECT line, CASE WHEN NOT contains(line, '"') THEN 0
            WHEN regexp_full_match(line, {quoted_text(_ALL_QUOTED)}) THEN 1
            WHEN regexp_full_match(line, {quoted_text(_NO_COMMAS)}) THEN 2
            WHEN regexp_full_match(line, {quoted_text(_QUOTED_LINE)}) THEN 3
        END AS form
        FROM ({lines})
    """
    cut = f"SELECT *, CASE form WHEN 3 THEN string_split(line, '\"') END AS parts FROM ({forms})"
    part = """
        CASE WHEN i % 2 = 0 THEN x WHEN x <> '' THEN replace(
            CASE i WHEN 1 THEN rtrim(x) WHEN len(parts) THEN ltrim(x) ELSE trim(x) END, ',', chr(1)
        ) WHEN i = 1 OR i = len(parts) THEN '' ELSE '"' END
    """
    values = f"""
        CASE form
            WHEN 0 THEN string_split(line, ',')
            WHEN 1 THEN string_split(line[2:-2], '","')
            WHEN 2 THEN string_split(replace(line, '"', ''), ',')
            WHEN 3 THEN string_split(
                array_to_string(list_transform(parts, lambda x, i: {part}), ''), chr(1)
            )
        END
    """
    # unnest leaves NULL out; a condition in WHERE would cut each line a second time
    found = f"""
        SELECT unnest(CASE WHEN len(found) = {len(names)} THEN [found] END) AS found
        FROM (SELECT {values} AS found FROM ({cut}))
    """
    columns = ", ".join(
        f"nullif(found[{i}], '') AS {quoted_name(name)}" for i, name in enumerate(names, start=1)
    )
    return f"SELECT {columns} FROM ({found})"


def _records(path: Path, names: Sequence[str]) -> str:
    """Returns a query of the rows, whose values may have line breaks where they are in quotes."""
    columns = ", ".join(f"{quoted_text(name)}: 'VARCHAR'" for name in names)
    return (
        f"SELECT * FROM read_csv({quoted_text(str(path))}, {_OPTIONS}, columns={{{columns}}}, "
        "header=true, delim=',', quote='\"', escape='\"')"
    )


def quoted_text(text: str) -> str:
    """Writes a text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def quoted_name(name: str) -> str:
    """Writes the name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'
