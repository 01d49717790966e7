"""Marginals on a cluster of Spark: the same counts as in memory, and only they leave it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.marginals.test_tables import COLUMNS, arrays, arrow, counted, drawn
from tests.tables.test_laws import Silent, with_one_key
from tests.tools.spark import IGNORED, Cluster

import tightbudget as tb

pyarrow_parquet: Any = pytest.importorskip("pyarrow.parquet")

pytestmark = [pytest.mark.needs, *IGNORED]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("spark"))
    yield cluster
    cluster.close()


def on(cluster: Cluster, rows: dict[str, list[Any]], name: str, folder: Any) -> Any:
    """The rows on the cluster, in files of another order."""
    table = arrow(rows)
    shuffled = table.take(np.random.default_rng(5).permutation(table.num_rows))
    pyarrow_parquet.write_table(shuffled, folder / f"{name}.parquet", coerce_timestamps="us")
    frame = cluster.spark.read.parquet(str(folder / f"{name}.parquet"))
    return cluster.view(name, frame.repartition(5))


def test_every_domain_of_every_type_is_counted_as_memory_does(
    cluster: Cluster, tmp_path: Any
) -> None:
    rows = {name: of for name, of in drawn(11, 120).items() if name != "unit"}
    table, memory = tb.Table(on(cluster, rows, "kinds", tmp_path)), arrays(rows)
    for name, (_, _, choices) in COLUMNS.items():
        for domain in choices:
            truth = counted({name: memory[name]}, {name: domain}, [(name,)])
            assert sum(truth[0]) > 0
            assert counted(table, {name: domain}, [(name,)]) == truth, (name, domain)


def test_a_synthetic_table_is_that_of_arrays(
    cluster: Cluster, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_one_key(monkeypatch)
    rows = drawn(3, 300)
    domains = {name: COLUMNS[name][2][1] for name in ("text", "whole", "real", "truth")}
    made = []
    for data in (arrays(rows), on(cluster, rows, "people", tmp_path)):
        budget = tb.OutputDPFilter(epsilon=1.0, delta=1e-6)
        found = tb.marginals.synthesize(
            tb.Table(data, unit="unit", rows_per_unit=20),
            domains,
            epsilon=1.0,
            delta=1e-6,
            meter=budget,
            seed=1,
            noise=Silent(),
        )
        assert budget.spent == found.receipt.charged
        made.append(found)
    here, there = made
    assert [one.columns for one in here.marginals] == [one.columns for one in there.marginals]
    for one, other in zip(here.marginals, there.marginals, strict=True):
        assert one.counts.tolist() == other.counts.tolist()
    # three units have 20 rows at most, and the others are rows without a unit
    alone = sum(unit is None for unit in rows["unit"])
    assert sum(here.marginals[0].counts.ravel()) <= 60 + alone
    assert here.columns == there.columns


def test_only_the_counts_leave_the_cluster(cluster: Cluster) -> None:
    frame = cluster.spark.range(400_000).selectExpr("id % 7 AS a", "id % 11 AS b", "id / 8 AS x")
    table = tb.Table(cluster.view("many", frame))
    # the cluster refuses to send more than a megabyte to its driver: the rows are too many
    with pytest.raises(Exception, match=r"spark\.driver\.maxResultSize"):
        frame.collect()
    domains = {
        "a": range(7),
        "b": [*range(10), None],
        "x": tb.marginals.NumericBins(np.linspace(0, 50_000, 41).tolist()),
    }
    ones = counted(table, domains, [("a",), ("b",), ("x",)])
    assert [sum(one) for one in ones] == [400_000] * 3
    (pairs,) = counted(table, domains, [("b", "x")])
    expected = np.zeros((11, 40), dtype=int)
    numbers = np.arange(400_000)
    np.add.at(expected, (numbers % 11, np.minimum(numbers // 10_000, 39)), 1)
    assert pairs == expected.ravel().tolist()
    assert math.prod(expected.shape) == len(pairs)


def test_bounds_on_a_unit_hold_on_the_cluster(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_one_key(monkeypatch)
    frame = cluster.spark.range(1000).selectExpr("id % 50 AS who", "id % 3 AS a", "id % 2 AS b")
    rows = cluster.view("bound", frame)
    numbers = np.arange(1000)
    memory = {"who": numbers % 50, "a": numbers % 3, "b": numbers % 2}
    for most in (1, 7):
        asked: dict[str, Any] = {"unit": "who", "rows_per_unit": most}
        found, truth = (
            counted(tb.Table(data, **asked), {"a": range(3), "b": [0, 1]}, [("a",), ("a", "b")])
            for data in (rows, memory)
        )
        assert [sum(one) for one in found] == [50 * most] * 2
        assert found == truth
