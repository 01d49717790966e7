"""Engines that hold the same rows: NumPy, DuckDB, PostgreSQL, Polars and, where it runs, Spark."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tightbudget.marginals.domains import Domain, NumericBins, domains_of
from tightbudget.tables.arrays import Arrays
from tightbudget.tables.cells import ColumnCells, cells_of_ranges, listed_cells
from tightbudget.tables.ibis_source import IbisSource
from tightbudget.tables.one_statement import OneStatement
from tightbudget.tables.source import Contribution, OnGrid, Source

__all__ = [
    "QUESTIONS",
    "ROWS",
    "answers",
    "answers_together",
    "arrays",
    "arrow",
    "bounds",
    "shuffled",
]

Rows = list[dict[str, Any]]

# the type of each column, as Arrow, PostgreSQL and Ibis name it
TYPES = {
    "id": ("int64", "bigint", "int64"),
    "unit": ("int64", "bigint", "int64"),
    "name": ("string", "text", "string"),
    "x": ("float64", "double precision", "float64"),
    "n": ("int64", "bigint", "int64"),
    "yes": ("bool_", "boolean", "boolean"),
    "key": ("string", "text", "string"),
    "zone": ("int64", "bigint", "int64"),
    "day": ("date32", "date", "date"),
}

# numbers at which engines, types and roundings differ; halves of the grid, and just below one
NUMBERS = [
    None,
    math.nan,
    math.inf,
    -math.inf,
    -0.0,
    0.0,
    5e-324,
    -1.7976931348623157e308,
    1.7976931348623157e308,
    0.5,
    -0.5,
    1.5,
    2.5,
    0.49999999999999994,
    -3.25,
    7.0,
    0.1,
    1e16,
]
INTEGERS = [None, 0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, 7]
# texts in which a separator, an escape, no letter, or a letter beyond 16 bits stands
TEXTS: list[Any] = ["a", "b", "a|", "|b", "", " ", "%", "A", "ä", "🐘", None]


# two units whose names are the ends of int64
ENDS = {18: 2**63 - 1, 19: -(2**63)}


def _rows() -> Rows:
    """Returns 240 rows of 20 units; each twelfth has no unit, and some rows are there twice."""
    draw = random.Random(20)
    rows: Rows = []
    for i in range(240):
        named = draw.randrange(20)
        unit = None if i % 12 == 0 else ENDS.get(named, named)
        rows.append(
            {
                "id": i,
                "unit": unit,
                "name": None if unit is None else TEXTS[unit % 10] + str(unit % 3),
                "x": NUMBERS[i % len(NUMBERS)],
                "n": INTEGERS[draw.randrange(len(INTEGERS))],
                "yes": draw.choice([True, False, None]),
                "key": draw.choice(TEXTS),
                "zone": draw.choice([1, 2, 2**53 + 1, None]),
                "day": draw.choice([None, datetime.date(1999, 12, 31), datetime.date(2026, 1, 2)]),
            }
        )
    return rows + [{**row, "id": 240 + i} for i, row in enumerate(rows[30:50])]


ROWS = _rows()


def shuffled(rows: Sequence[dict[str, Any]], seed: int) -> Rows:
    """Returns the rows in an order that the seed decides."""
    return random.Random(seed).sample(list(rows), len(rows))


def arrays(rows: Rows) -> Arrays:
    """Returns the rows as NumPy arrays, with None where a value is missing."""
    columns = {}
    for name, (kind, *_) in TYPES.items():
        values = [row[name] for row in rows]
        whole = kind == "float64"
        columns[name] = np.array(
            [math.nan if value is None and whole else value for value in values],
            dtype=np.float64 if whole else object,
        )
    return Arrays(columns)


def arrow(rows: Rows) -> Any:
    """Returns the rows as a table of Arrow, in which NULL and NaN differ."""
    import pyarrow

    schema = pyarrow.schema([(name, getattr(pyarrow, t[0])()) for name, t in TYPES.items()])
    return pyarrow.Table.from_pylist(rows, schema=schema)


def parquet(rows: Rows, folder: Path, files: int) -> Path:
    """Writes the rows into so many files of Parquet, and returns their folder."""
    from pyarrow import parquet

    folder.mkdir()
    for i in range(files):
        parquet.write_table(arrow(rows[i::files]), folder / f"{i}.parquet")
    return folder


def polars(rows: Rows) -> Any:
    """Returns the rows as a table of Polars."""
    import ibis
    from polars import from_arrow

    return ibis.polars.connect({"trips": from_arrow(arrow(rows))}).table("trips")


def postgresql(rows: Rows, address: str) -> Any:
    """Returns the rows as a table of a PostgreSQL database that has no table yet."""
    import ibis
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS trips")
        columns = ", ".join(f"{name} {t[1]}" for name, t in TYPES.items())
        connection.execute(f"CREATE TABLE trips ({columns})")
        marks = ", ".join(["%s"] * len(TYPES))
        with connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO trips VALUES ({marks})", [tuple(row.values()) for row in rows]
            )
    return ibis.connect(address).table("trips")


# ----------------------------------------------------------------------- what is asked

SALTS = ["00000000000000000000000000000000", "5eed5eed5eed5eed5eed5eed5eed5eed"]


def bounds() -> Iterator[Contribution]:
    """Yields each kind of bound: rows as units, units with NULLs, so many rows and groups."""
    yield Contribution(unit=None, rows=1, groups=1, salt=SALTS[0])
    for salt in SALTS:
        for unit in ("unit", "name"):
            for rows, groups in [(1, 1), (3, 3), (3, 2), (50, 2)]:
                for row_id in (None, "id")[: 2 if salt == SALTS[0] else 1]:
                    yield Contribution(
                        unit=unit, rows=rows, groups=groups, row_id=row_id, salt=salt
                    )


X = OnGrid(column="x", low=-3, high=5)
FINE = OnGrid(column="x", low=-(2**51), high=2**52, step=2.0**-20, origin=12345)
N = OnGrid(column="n", low=-(2**40), high=2**40, step=2.0**10)
SQUARED = OnGrid(column="x", low=-100, high=160, step=0.25, origin=30, power=2)
ONE = OnGrid(column=None)

# listed values and bins, with a cell for all others or without; long lists are joined as tables
DOMAINS = domains_of(
    {
        "key": ["a", "A", "%", "|b", "absent", None],
        "zone": [None, 2**53 + 1, 1],
        "x": NumericBins([-3.25, 0.0, 0.1, 0.5, 7.0], other=True),
        "yes": [False, True],
        "day": [datetime.date(2026, 1, 2), datetime.date(2026, 1, 3)],
        "n": [*range(-20, 20), 2**63 - 1, None, -(2**63)],
        "name": [text + str(i) for i in range(4) for text in TEXTS if text is not None],
    }
)


def cells_of(columns: Mapping[str, str], name: str, domain: Domain) -> ColumnCells:
    """Returns the cells of a domain for the type of a column."""
    if isinstance(domain, NumericBins):
        return cells_of_ranges(columns, name, domain.edges, domain.codes, other=domain.other)
    return listed_cells(columns, name, vars(domain)["cells"], domain.codes)


CELLS = {name: cells_of({name: TYPES[name][2]}, name, domain) for name, domain in DOMAINS.items()}
MARGINALS = [("x", "zone"), ("yes", "day", "key"), ("n",), ("name", "yes")]

# a name, and a question that a source answers under bounds on a unit's contribution
QUESTIONS: Mapping[str, Callable[[Source, Contribution], Any]] = {
    "rows": lambda source, bound: source.counts(bound, ["yes", None]),
    "units": lambda source, bound: source.counts(bound, ["yes", None], units=True),
    "sums": lambda source, bound: source.sums(bound, [X, N, SQUARED, ONE, FINE]),
    "one sum": lambda source, bound: source.sums(bound, [FINE]),
    "histogram": lambda source, bound: source.histogram(bound, X),
    "fine histogram": lambda source, bound: source.histogram(bound, N),
    "histograms by key": lambda source, bound: source.histograms(bound, ["key"], X, keys=None),
    "histograms by both": lambda source, bound: source.histograms(
        bound, ["zone", "key"], N, keys=[(1, "a"), (1, "|b"), (3, ""), (9, "a")]
    ),
    "histograms by zone": lambda source, bound: source.histograms(
        bound, ["zone"], FINE, keys=[2, 2**53, 2**53 + 1]
    ),
    "units by key": lambda source, bound: source.groups(bound, ["key"], [], keys=None),
    "units by zone": lambda source, bound: source.groups(
        bound, ["zone"], [], keys=[2, 2**53, 2**53 + 1]
    ),
    "units by both": lambda source, bound: source.groups(bound, ["key", "zone"], [], keys=None),
    "rows by both": lambda source, bound: source.groups(
        bound, ["zone", "key"], [ONE], keys=[(1, "a"), (1, "|b"), (3, ""), (9, "a")]
    ),
    "sums by day": lambda source, bound: source.groups(bound, ["day"], [X, FINE], keys=None),
    "cells": lambda source, bound: source.cell_counts(bound, CELLS, MARGINALS),
    "units by texts": lambda source, bound: source.groups(bound, ["name", "key"], [], keys=None),
}


def answers(source: Source, bound: Contribution) -> dict[str, Any]:
    """Returns the answers of a source to all questions."""
    return {name: ask(source, bound) for name, ask in QUESTIONS.items()}


def answers_together(source: IbisSource, bound: Contribution) -> dict[str, Any]:
    """Returns the answers of an engine to all questions, asked in one statement."""
    one = replace(source, statement=OneStatement())
    found = one.together([partial(ask, one, bound) for ask in QUESTIONS.values()])
    return dict(zip(QUESTIONS, found, strict=True))
