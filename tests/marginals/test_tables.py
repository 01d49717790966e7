"""Marginals of the rows of a table: an engine counts as memory does, and what is refused."""

from __future__ import annotations

import datetime
import itertools
import math
import operator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.marginals.test_marginal_run import CHOICES, GAUSSIAN, Recorded, budget
from tests.tables import engines
from tests.tables.test_laws import with_one_key

import tightbudget as tb
from tightbudget.errors import ReleaseError
from tightbudget.marginals.domains import domains_of
from tightbudget.marginals.merged_cells import merged_counts
from tightbudget.marginals.rows import InTable, rows_of
from tightbudget.release.mechanisms.exponential import ExponentialRelease
from tightbudget.tables.ibis_source import IbisSource

pyarrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")
polars: Any = pytest.importorskip("polars")
pytest.importorskip("ibis")

DAY = datetime.date(2026, 1, 2)
TIMES = [None, datetime.datetime(2026, 1, 2), datetime.datetime(9999, 12, 31, 23, 59, 59)]
# for each column its type of Arrow, the values that rows have, and domains
COLUMNS: dict[str, tuple[str, list[Any], list[Any]]] = {
    "text": (
        "string",
        [*engines.TEXTS, "a ", "\n", "'", "c"],
        [
            ["a", "A", "", "%"],
            ["|b", None, "'", "ä", "🐘"],
            [None],
            ["c", *(f"v{i}" for i in range(40)), "A", None],
        ],
    ),
    "whole": (
        "int64",
        engines.INTEGERS,
        [
            [0, 7, 2**53 + 1],
            [None, -(2**63), 2**63 - 1, 2**53],
            [*range(-1, 40), None],
            tb.marginals.NumericBins([-1, 0.5, 7], integers=True),
            tb.marginals.NumericBins([-(2.0**63), 2.0**53, 2.0**63], other=True),
        ],
    ),
    "small": ("uint8", [None, 0, 1, 255], [[255, 0], tb.marginals.NumericBins([0.5, 255])]),
    "real": (
        "float64",
        engines.NUMBERS,
        [
            [0, 0.5, 0.1, 1e16],
            [-0.0, None, math.inf, -3.25, 5e-324],
            tb.marginals.NumericBins([0, 0.1, 0.5, 7.0]),
            tb.marginals.NumericBins([-3.25, 0.0, 5e-324, 1.7976931348623157e308], other=True),
            tb.marginals.NumericBins(np.linspace(-4, 8, 50).tolist(), other=True),
        ],
    ),
    "short": (
        "float32",
        [None, math.nan, 0.5, -0.0, 7.0, 0.1],
        [[0.1, 0.5, 0.10000000149011612, None], tb.marginals.NumericBins([0.1, 7.0], other=True)],
    ),
    "truth": (
        "bool_",
        [True, False, None],
        [[True], [False, None], tb.marginals.NumericBins([0, 1])],
    ),
    "day": (
        "date32",
        [None, DAY, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
        [[DAY, datetime.date(2026, 1, 3), None], [datetime.date(9999, 12, 31)]],
    ),
    "time": ("timestamp", TIMES, [[TIMES[1], None], [TIMES[2], TIMES[1]]]),
}  # fmt: skip


def type_of(name: str) -> Any:
    """The type of Arrow that a column has."""
    kind = COLUMNS[name][0]
    return pyarrow.timestamp("us") if kind == "timestamp" else getattr(pyarrow, kind)()


def drawn(seed: int, rows: int = 60) -> dict[str, list[Any]]:
    """Rows of nasty values."""
    rng = np.random.default_rng(seed)
    return {
        name: [values[i] for i in rng.integers(0, len(values), rows)]
        for name, (_, values, _) in COLUMNS.items()
    } | {"unit": [[None, 1, 2, 3][i] for i in rng.integers(0, 4, rows)]}


def arrow(rows: dict[str, list[Any]]) -> Any:
    """The rows as a table of Arrow, in which NULL and NaN differ."""
    kinds = {name: pyarrow.int64() if name == "unit" else type_of(name) for name in rows}
    return pyarrow.table({name: pyarrow.array(rows[name], kinds[name]) for name in rows})


def arrays(rows: dict[str, list[Any]]) -> dict[str, Any]:
    """The rows as arrays of NumPy; floating-point numbers have their type."""
    return {
        name: np.array(
            [math.nan if x is None else x for x in column],
            dtype=COLUMNS[name][0],
        )
        if name in ("real", "short")
        else np.array(column, dtype=object)
        for name, column in rows.items()
    }


def counted(rows: Any, domains: Any, cliques: Any, **given: Any) -> list[Any]:
    """The counts of marginals without noise."""
    known = domains_of(domains)
    counts = rows_of(rows, known, given.get("unit"), given.get("rows_per_unit"))
    sizes = [math.prod(known[name].size for name in clique) for clique in cliques]
    return [found.tolist() for found in counts.counts(cliques, sizes)]


@pytest.mark.one_in(6)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["parquet", "polars", "arrays"])
def test_engines_count_as_memory_does(kind: str, seed: int, tmp_path: Path) -> None:
    rows = drawn(seed)
    domains = {name: choices[seed % len(choices)] for name, (_, _, choices) in COLUMNS.items()}
    cliques = [*((name,) for name in domains), *itertools.combinations(domains, 2)][seed % 3 :: 3]
    truth = counted(arrays(rows), domains, cliques)
    data: Any = arrays(rows)
    if kind == "parquet":
        data = tmp_path / "rows.parquet"
        parquet.write_table(arrow(rows), data)
    elif kind == "polars":
        data = polars.from_arrow(arrow(rows))
    else:
        assert counted(pd.DataFrame(data), domains, cliques) == truth
    # no bound on a unit binds, and a row without a unit is one of its own
    given: Any = {"unit": "unit", "rows_per_unit": 60} if seed % 2 else {}
    assert counted(tb.Table(data, **given), domains, cliques) == truth


def test_every_domain_of_every_type_is_counted_as_memory_does() -> None:
    rows = drawn(11, 120)
    for name, (_, _, choices) in COLUMNS.items():
        of_arrays = {name: arrays(rows)[name]}
        table = tb.Table(arrow({name: rows[name]}))
        for domain in choices:
            truth = counted(of_arrays, {name: domain}, [(name,)])
            assert sum(truth[0]) > 0
            assert counted(table, {name: domain}, [(name,)]) == truth
            assert counted(tb.Table(of_arrays), {name: domain}, [(name,)]) == truth


def test_arrays_of_dates_have_dates() -> None:
    days = np.array([DAY, None, DAY], dtype="M8[D]")
    moments = np.array([DAY, None], dtype="M8[ns]")
    for rows, value in (({"a": days}, DAY), ({"a": moments}, TIMES[1])):
        for data in (rows, tb.Table(rows)) if value is DAY else (rows,):
            (found,) = counted(data, {"a": [value, None]}, [("a",)])
            assert found == [len(rows["a"]) - 1, 1]


# -------------------------------------------------------------------------- the rows of a unit

UNITS = pd.DataFrame(
    {
        "who": pd.array([1, 1, 1, 2, 2, 3, None, None, None], dtype="Int64"),
        "a": pd.array([0, 1, 1, 0, None, 2, 0, 0, 1], dtype="Int64"),
        "b": ["x", "y", "y", "x", "x", "z", "x", "y", "y"],
    }
).astype({"b": "string"})
DOMAINS: dict[str, Any] = {"a": [0, 1, 2], "b": ["x", "y", None]}
CLIQUES: list[tuple[str, ...]] = [("a",), ("b",), ("a", "b")]


def in_table(table: tb.Table, salt: str) -> Any:
    """A table's rows, of which one key of the hash chooses those that count."""
    rows = InTable(table, domains_of(DOMAINS))
    rows._contribution = replace(rows._contribution, salt=salt)
    return rows


def as_arrays(frame: pd.DataFrame) -> dict[str, Any]:
    values = frame.astype(object).where(frame.notna(), None)
    return {name: values[name].to_numpy(dtype=object) for name in frame}


@pytest.mark.parametrize("most", [1, 2])
def test_so_many_rows_of_a_unit_count_in_each_marginal(most: int) -> None:
    whole = [c.sum() for c in in_table(tables(UNITS, most)[0], "0a").counts(CLIQUES, [3, 3, 9])]
    # all rows have a cell of b; each of three rows without a unit counts
    assert whole[1] == sum(min(most, n) for n in (3, 2, 1)) + 3
    for salt in ("0a", "0b"):
        engine, memory = (
            [c.tolist() for c in in_table(table, salt).counts(CLIQUES, [3, 3, 9])]
            for table in tables(UNITS, most)
        )
        assert engine == memory


def tables(frame: pd.DataFrame, most: int) -> list[tb.Table]:
    """The rows in DuckDB, and as arrays."""
    given = (pyarrow.Table.from_pandas(frame, preserve_index=False), as_arrays(frame))
    return [tb.Table(data, unit="who", rows_per_unit=most) for data in given]


# ------------------------------------------------------------ exact audits of the two primitives


@pytest.mark.slow
@pytest.mark.parametrize("merged", [None, {"a": (0, 2)}, {"a": (0, 1), "b": (1, 2)}])
@pytest.mark.parametrize("relation", ["add-or-remove", "replace-one"])
@pytest.mark.parametrize("most", [1, 2])
def test_no_unit_moves_an_answer_by_more_than_is_paid_for(
    most: int, relation: str, merged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, Fraction]] = []

    def unpaid(self: Any, data: Any, noise: Any) -> Any:
        asked.append((data, Fraction(self.epsilon) / (2 * Fraction(self.sensitivity))))
        return self.candidates[0], "value"

    monkeypatch.setattr(ExponentialRelease, "unpaid_answer", unpaid)
    with_one_key(monkeypatch)
    models = {
        ("a",): np.array([0.3, 1, 0]),
        ("b",): np.array([1, 2, 0.5]),
        ("a", "b"): np.ones((3, 3)) / 4,
    }
    models = {clique: merged_counts(of, clique, merged or {}) for clique, of in models.items()}

    def answers(rows: pd.DataFrame) -> tuple[Any, Any]:
        """The counts in units of the noise that is drawn, and the log chances of a selection."""
        table = tables(rows, most)[0]
        with run_of(table, GAUSSIAN, relation=relation) as run:
            measured = run.measure(CLIQUES, weights=[1.0, 2.0, 0.5], merged=merged)
        with run_of(table, CHOICES, relation=relation) as run:
            run.select(models, weights=[1.0, 0.25, 0.5], merged=merged)
        scores, factor = asked.pop()
        odds = np.array([float(factor * score) for score in scores])
        counts = np.concatenate([one.counts.ravel() / one.sigma for one in measured])
        return counts, odds - np.logaddexp.reduce(odds)

    # all tables of some of these units, and all pairs of which one has one unit more, or another
    units = [[0, 1, 2], [3, 4], [5], [6]]
    found = {
        kept: answers(UNITS.iloc[list(itertools.compress(range(7), np.repeat(kept, [3, 2, 1, 1])))])
        for kept in itertools.product([False, True], repeat=len(units))
    }
    farthest, widest = 0.0, 0.0
    apart = [1] if relation == "add-or-remove" else [0, 1]
    for kept, beside in itertools.combinations(found, 2):
        if sum(map(operator.ne, kept, beside)) > 2 or abs(sum(kept) - sum(beside)) not in apart:
            continue
        (one, chances), (two, others) = found[kept], found[beside]
        # sigma 2 is declared, and an epsilon of 1 for the selection
        farthest = max(farthest, 4 * ((one - two) ** 2).sum())
        widest = max(widest, np.abs(chances - others).max(), np.ptp(chances - others))
    # A unit whose rows are all in one cell of each marginal moves them so far, and none further.
    # Which rows count depends on the keys: with two rows a unit, .488 was the least of six cases.
    assert 0.45 < farthest <= 1.0
    assert 0.2 < widest <= 1.0 + 1e-12


def run_of(table: tb.Table, plan: Any, **given: Any) -> tb.marginals.MarginalRun:
    given = {"meter": budget(), "noise": Recorded(), **given}
    return tb.marginals.MarginalRun(plan, table, given.pop("domains", DOMAINS), **given)


# ------------------------------------------------------------------------------ what is refused

ODD = pyarrow.table(
    {
        "t": pyarrow.array(["f"]),
        "n": pyarrow.array([1]),
        "x": pyarrow.array([1.5]),
        "d": pyarrow.array([DAY]),
        "c": pyarrow.array([1], pyarrow.decimal128(5, 2)),
        "l": pyarrow.array([[1]]),
    }
)
BINS = tb.marginals.NumericBins([0, 1])


@pytest.mark.parametrize(
    ("domains", "given", "message"),
    [
        ({"z": [1]}, {}, r"domains\['z'\] must be one of the columns t, n, x, d, c, l, got 'z'"),
        ({"t": [1]}, {}, r"domains\['t'\] must have keys of the column's type, string"),
        ({"n": ["1", None]}, {}, r"domains\['n'\] must have keys of the column's type, int64"),
        ({"n": [1.0]}, {}, r"domains\['n'\] must have keys of the column's type, int64"),
        ({"n": [2**63]}, {}, r"domains\['n'\] must have keys of the column's type, int64"),
        ({"x": ["a"]}, {}, r"domains\['x'\] must have values of the column's type, float64"),
        ({"x": [2**53 + 1]}, {}, r"domains\['x'\] must have values of the column's type, float64"),
        ({"x": [10**400]}, {}, r"domains\['x'\] must have values of the column's type, float64"),
        ({"x": range(1001)}, {}, r"domains\['x'\] must list at most 1000 floating-point numbers"),
        ({"d": [3]}, {}, r"domains\['d'\] must have keys of the column's type, date"),
        ({"t": BINS}, {}, r"domains\['t'\] must list values, since NumericBins are made of a"),
        ({"d": BINS}, {}, r"got 'bins of a column of type date'"),
        ({"c": [1]}, {}, r"domains\['c'\] must be a column of integers, texts"),
        ({"c": [None]}, {}, r"domains\['c'\] must be a column of integers, texts"),
        ({"l": [1]}, {}, r"domains\['l'\] must be a column of integers, texts"),
        ({"t": ["f"]}, {"unit": "t"}, "unit must be left out beside a Table, which declares it"),
        ({"t": ["f"]}, {"rows_per_unit": 1}, "rows_per_unit must be left out beside a Table"),
    ],
)
def test_what_is_refused_of_a_table_charges_nothing(domains: Any, given: Any, message: str) -> None:
    meter = budget()
    with pytest.raises(tb.ParameterError, match=message):
        run_of(tb.Table(ODD), GAUSSIAN, domains=domains, meter=meter, **given)
    assert meter.spent.epsilon == 0


def test_decimals_have_bins() -> None:
    table = tb.Table(ODD)
    assert counted(table, {"c": tb.marginals.NumericBins([0, 0.5, 1])}, [("c",)]) == [[0, 1]]


def test_an_engine_that_is_away_is_refused_before_the_charge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(*given: Any) -> Any:
        raise tb.errors.SourceError("the table's engine does not answer")

    meter, table = budget(), tables(UNITS, 1)[0]
    plan = tb.marginals.mst(2, 0.5).priced(1e-6)
    with run_of(table, plan, meter=meter) as run:
        monkeypatch.setattr(IbisSource, "check", lost)
        with pytest.raises(tb.errors.SourceError, match="the table's engine does not answer"):
            run.measure(CLIQUES)
        assert run.state == 0
    # whoever enters a run pays for the cheapest state
    assert meter.spent.epsilon == pytest.approx(plan.prices[1])
    meter = budget()
    with pytest.raises(tb.errors.SourceError), run_of(table, GAUSSIAN, meter=meter):
        raise AssertionError("it was opened")
    assert meter.spent.epsilon == 0


@pytest.mark.parametrize("ask", ["measure", "select"])
def test_an_engine_that_fails_after_the_start_is_paid(
    ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*given: Any) -> Any:
        raise ValueError("row 7 of ann")

    meter = budget()
    monkeypatch.setattr(IbisSource, "_columns", lost)
    with run_of(tables(UNITS, 1)[0], GAUSSIAN if ask == "measure" else CHOICES, meter=meter) as run:
        with pytest.raises(ReleaseError, match="failed after it had started") as found:
            run.measure(CLIQUES) if ask == "measure" else run.select({("a",): [0, 0, 0]})
        assert "ann" not in str(found.value)
        assert run.state == 1
    assert meter.spent.epsilon > 0


def test_a_synthetic_table_of_a_parquet_file(tmp_path: Path) -> None:
    n, rng = 4000, np.random.default_rng(1)
    a = rng.integers(0, 3, n)
    frame = pd.DataFrame({"who": np.arange(n) // 2, "a": a, "b": np.array(list("xyz"))[a]})
    frame.to_parquet(tmp_path / "people.parquet")
    table = tb.Table(tmp_path / "people.parquet", unit="who", rows_per_unit=2)
    domains = {"a": [0, 1, 2], "b": ["x", "y", "z"]}
    given: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-6, "seed": 1}
    one = tb.marginals.synthesize(table, domains, meter=budget(), **given)
    assert one.size == pytest.approx(n, rel=0.05)
    found = one.frame()
    assert (found["b"] == np.array(list("xyz"))[found["a"]]).mean() > 0.97
    assert one.pairs == (("a", "b"),)
    assert len(found) == one.size
