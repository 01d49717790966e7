"""The one list of mechanisms on tables: every law of the room is checked on every case.

A case says what its answer is without noise where no bound on a unit binds, from the columns in
NumPy alone: the truth shares no code with the sources.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tests.release import cases as release_cases

from tightbudget import tables
from tightbudget.tables import (
    AboveThreshold,
    Count,
    Counts,
    CountsAbove,
    GatedCounts,
    GradualCount,
    GradualSum,
    GroupedCounts,
    GroupedMeans,
    GroupedSums,
    HistogramCounts,
    Mean,
    Sum,
    Table,
    TopGroups,
    Variance,
)

__all__ = ["CASES", "COLUMNS", "DOMAINS", "Case", "in_duckdb", "small", "table"]

Columns = Mapping[str, NDArray[Any]]
DOMAINS = {"k": ("p", "q"), "j": (0, 1)}
# a public key that is derived from x, with a key for all other rows
BINS = tables.ValueBins("x", (-1, 0.5, 9), other="else")


@dataclass(frozen=True)
class Case(release_cases.Case):
    """A mechanism on a table, and the table of :data:`COLUMNS`.

    Attributes:
        truth: from the columns to the answer without noise, where all rows of a unit count.
        norm: the norm in which the sensitivity is stated: 1, or "max" where each number of the
            vector moves by at most that, and all numbers in one direction.
    """

    truth: Callable[[Columns], Any] = len
    norm: Literal[1, "max"] = 1


def case(
    name: str, mechanism: Any, truth: Callable[[Columns], Any], norm: Literal[1, "max"] = 1
) -> Case:
    """One line of the list: a mechanism with Laplace noise, or with a search."""
    return Case(name, mechanism, table(COLUMNS), truth=truth, norm=norm)


def table(columns: Columns, rows: int = 9, groups: int | None = None) -> Table:
    """A table of units "u", of which so many rows count."""
    return Table(
        dict(columns),
        unit="u",
        rows_per_unit=rows,
        groups_per_unit=groups,
        domains={**DOMAINS, "bin": BINS},
    )


def in_duckdb(rows: int = 9, groups: int | None = None, columns: Columns | None = None) -> Table:
    """A table of units "u" in DuckDB, of which so many rows count."""
    frame = arrow(COLUMNS if columns is None else columns)
    return Table(
        frame,
        unit="u",
        rows_per_unit=rows,
        groups_per_unit=groups,
        domains={**DOMAINS, "bin": BINS},
    )


def arrow(columns: Columns) -> Any:
    """The columns as a table of Arrow."""
    kinds = {
        "u": pa.string(),
        "x": pa.float64(),
        "k": pa.string(),
        "j": pa.int64(),
        "w": pa.bool_(),
        "v": pa.bool_(),
    }
    return pa.table(
        {name: pa.array(column.tolist(), kinds[name]) for name, column in columns.items()}
    )


def small(rows: list[tuple[Any, ...]]) -> dict[str, NDArray[Any]]:
    """The columns of a few rows, (unit, x, k, j, w, v)."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * 6
    kinds: list[Any] = [object, np.float64, object, np.int64, np.bool_, np.bool_]
    return {
        name: np.array(column, dtype=kind)
        for name, column, kind in zip("uxkjwv", columns, kinds, strict=True)
    }


def _columns() -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(7)
    n = 60
    x = np.round(random.normal(2, 3, n), 3)
    x[::17] = np.nan
    x[5], x[6] = np.inf, -np.inf
    units = np.array([f"u{i}" for i in random.integers(0, 12, n)], dtype=object)
    units[::13] = None
    return {
        "u": units,
        "x": x,
        "k": random.choice(np.array(["p", "q", "r"]), n).astype(object),
        "j": random.integers(0, 3, n),
        "w": random.random(n) < 0.5,
        "v": random.random(n) < 0.2,
    }


COLUMNS = _columns()
GRID = 2.0**-3


def points(x: NDArray[Any], low: float, high: float) -> NDArray[Any]:
    """Values within bounds, on the grid; a missing one is low."""
    moved = np.clip(np.where(np.isnan(x), low, x), low, high)
    return np.floor(moved / GRID + 0.5) * GRID


def x_in(columns: Columns, low: float = -1, high: float = 4) -> NDArray[Any]:
    return points(columns["x"], low, high)


def of(columns: Columns, true: NDArray[np.bool_]) -> Columns:
    return {name: column[true] for name, column in columns.items()}


def units(columns: Columns) -> int:
    known = {u for u in columns["u"] if u is not None}
    return len(known) + sum(u is None for u in columns["u"])


def by_key(answer: Callable[[Columns], Any]) -> Callable[[Columns], Any]:
    return lambda columns: {key: answer(of(columns, columns["k"] == key)) for key in DOMAINS["k"]}


def by_both(answer: Callable[[Columns], Any]) -> Callable[[Columns], Any]:
    return lambda columns: {
        (key, j): answer(of(columns, (columns["k"] == key) & (columns["j"] == j)))
        for key in DOMAINS["k"]
        for j in DOMAINS["j"]
    }


def by_bin(answer: Callable[[Columns], Any]) -> Callable[[Columns], Any]:
    def of_bins(columns: Columns) -> dict[str, Any]:
        x = columns["x"]
        low, high = (x >= -1) & (x < 0.5), (x >= 0.5) & (x < 9)
        bins = {"[-1, 0.5)": low, "[0.5, 9)": high, "else": ~low & ~high}
        return {key: answer(of(columns, true)) for key, true in bins.items()}

    return of_bins


def mean(columns: Columns) -> float:
    return float(x_in(columns).mean()) if len(columns["x"]) else 1.5


def rows(columns: Columns) -> int:
    return len(columns["x"])


def histogram(columns: Columns) -> dict[tuple[float, float], int]:
    x = points(columns["x"][~np.isnan(columns["x"])], -99, 99)
    edges = [-1.0, 0.5, 2.0, 4.0]
    counts, _ = np.histogram(x, edges)
    return dict(zip(itertools.pairwise(edges), counts.tolist(), strict=True))


X: dict[str, Any] = {"column": "x", "bounds": (-1, 4), "step": GRID}


def enough(answers: tuple[float, ...]) -> bool:
    return False


CASES: list[Case] = [
    case("count", Count(epsilon=1), rows),
    case("count-units", Count(epsilon=1, of="units"), units),
    case("count-where", Count(epsilon=1, where="w"), lambda c: int(c["w"].sum())),
    case(
        "count-units-where",
        Count(epsilon=1, of="units", where="w"),
        lambda c: units(of(c, c["w"])),
    ),
    case("sum", Sum(epsilon=1, **X), lambda c: float(x_in(c).sum())),
    case("sum-where", Sum(epsilon=1, where="w", **X), lambda c: float(x_in(c)[c["w"]].sum())),
    case("mean", Mean(epsilon=1, **X), mean),
    case("mean-where", Mean(epsilon=1, where="v", **X), lambda c: mean(of(c, c["v"]))),
    case("variance", Variance(epsilon=1, **X), lambda c: float(x_in(c).var())),
    case(
        "histogram",
        HistogramCounts(epsilon=1, column="x", edges=(-1, 0.5, 2, 4), step=GRID),
        histogram,
    ),
    case("grouped-counts", GroupedCounts(by="k", epsilon=1), by_key(rows)),
    case(
        "grouped-counts-where",
        GroupedCounts(by="k", epsilon=1, where="w"),
        lambda c: by_key(rows)(of(c, c["w"])),
    ),
    case("grouped-counts-of-two", GroupedCounts(by=("k", "j"), epsilon=1), by_both(rows)),
    case("grouped-units", GroupedCounts(by="k", epsilon=1, of="units"), by_key(units)),
    case(
        "grouped-units-of-two",
        GroupedCounts(by=("k", "j"), epsilon=1, of="units"),
        by_both(units),
    ),
    case(
        "count-distinct",
        tables.CountDistinct(column="k", epsilon=1),
        lambda c: sum(n > 0 for n in by_key(rows)(c).values()),
    ),
    case(
        "count-distinct-of-two",
        tables.CountDistinct(column=("k", "bin"), epsilon=1, where="w"),
        lambda c: len(
            {
                (k, b)
                for k in DOMAINS["k"]
                for b, n in by_bin(rows)(of(c, c["w"] & (c["k"] == k))).items()
                if n
            }
        ),
    ),
    case("grouped-by-bin", GroupedCounts(by="bin", epsilon=1), by_bin(rows)),
    case("grouped-units-by-bin", GroupedCounts(by="bin", epsilon=1, of="units"), by_bin(units)),
    case("grouped-means-by-bin", GroupedMeans(by="bin", epsilon=1, **X), by_bin(mean)),
    case("grouped-sums", GroupedSums(by="k", epsilon=1, **X), by_key(lambda c: x_in(c).sum())),
    case("grouped-means", GroupedMeans(by="k", epsilon=1, **X), by_key(mean)),
    case("counts", Counts(where=("w", "v"), epsilon=1), lambda c: (c["w"].sum(), c["v"].sum())),
    case(
        "counts-units",
        Counts(where=("w", "v"), epsilon=1, of="units"),
        lambda c: (units(of(c, c["w"])), units(of(c, c["v"]))),
    ),
    case(
        "above-threshold",
        AboveThreshold(questions=(("w", 20), ("v", 30), ("v", 1)), epsilon=1, aboves=3),
        lambda c: (c["w"].sum() >= 20, c["v"].sum() >= 30, c["v"].sum() >= 1),
        "max",
    ),
    case(
        "above-threshold-units",
        AboveThreshold(
            questions=(("w", 5), ("v", 50)), epsilon=1, aboves=1, adaptive=False, of="units"
        ),
        lambda c: (True,),
        "max",
    ),
    case(
        "counts-above",
        CountsAbove(where=("w", "v"), threshold=20, epsilon=1, search_epsilon=0.5, aboves=2),
        lambda c: {0: c["w"].sum()},
        "max",
    ),
    case(
        "top-groups",
        TopGroups(by="k", k=2, epsilon=1, least=2),
        lambda c: tuple(sorted(DOMAINS["k"], key=lambda key: -(c["k"] == key).sum())),
        "max",
    ),
    case(
        "top-groups-units",
        TopGroups(by="k", k=1, epsilon=1, least=2, of="units"),
        lambda c: tuple(sorted(DOMAINS["k"], key=lambda k: -by_key(units)(c)[k])[:1]),
        "max",
    ),
    case(
        "most-frequent",
        tables.MostFrequent(by="k", epsilon=0.5),
        lambda _: DOMAINS["k"][-1],  # which a number next to 1 chooses, whatever the counts are
        "max",
    ),
    case(
        "most-frequent-units",
        tables.MostFrequent(by=("k", "j"), epsilon=0.5, of="units", where="w"),
        lambda _: (DOMAINS["k"][-1], DOMAINS["j"][-1]),
        "max",
    ),
    case(
        "gradual-count",
        GradualCount(epsilons=(0.5, 1), good_enough=enough, where="w"),
        lambda c: (c["w"].sum(),) * 2,
    ),
    case(
        "gradual-sum",
        GradualSum(epsilons=(0.5, 1), good_enough=enough, **X),
        lambda c: (x_in(c).sum(),) * 2,
    ),
    case(
        "tested-counts",
        GatedCounts(by="k", epsilon=1, threshold=0, test_epsilon=0.5),
        lambda _: None,
    ),
    case(
        "tested-counts-units",
        GatedCounts(by=("k", "j"), epsilon=0.5, threshold=1, test_epsilon=1, of="units"),
        lambda _: None,
    ),
]
