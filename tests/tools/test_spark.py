"""Tables on a cluster of Spark: the same integers as elsewhere, and only they leave it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet
import pytest
from tests.guards.mutants import Without, lose_a_truth
from tests.tables import engines
from tests.tables.cases import BINS, CASES, COLUMNS, DOMAINS, arrow
from tests.tables.engines import ROWS, answers, arrays, shuffled
from tests.tables.test_laws import Silent, with_one_key
from tests.tools.spark import IGNORED, Cluster

import tightbudget as tb
from tightbudget.tables import (
    GroupedQuantiles,
    OrderStatistic,
    Quantiles,
    SelectedCounts,
    SelectedKeys,
    Table,
)
from tightbudget.tables.opening import opened
from tightbudget.tables.source import Contribution, OnGrid

pytestmark = [pytest.mark.needs, *IGNORED]

# a query takes a cluster as long as a hundred in memory: each kind of bound once
BOUNDS = [
    Contribution(unit=unit, rows=rows, groups=groups, row_id=row_id, salt=engines.SALTS[0])
    for unit, rows, groups, row_id in [
        (None, 1, 1, None),
        ("unit", 3, 2, "id"),
        ("name", 3, 2, None),
    ]
]
EACH_ROW = BOUNDS[0]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("spark"))
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def rows(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The rows on the cluster, in seven files in another order."""
    folder = tmp_path_factory.mktemp("rows") / "many"
    engines.parquet(shuffled(ROWS, 6), folder, 7)
    return cluster.view("trips", cluster.spark.read.parquet(str(folder)))


def test_tasks_run_in_two_other_processes(cluster: Cluster, rows: Any) -> None:
    assert Table(rows).source.counts(EACH_ROW, [None]) == [len(ROWS)]
    assert len(cluster.executors()) == 2


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda b: f"{b.unit}-{b.rows}-{b.row_id}")
def test_spark_answers_as_numpy(rows: Any, bound: Contribution) -> None:
    assert answers(opened(rows, {}), bound) == answers(arrays(ROWS), bound)


def test_partitions_change_nothing(cluster: Cluster, rows: Any) -> None:
    frame = cluster.spark.table("trips")
    expected = arrays(ROWS).sums(BOUNDS[1], [engines.X, engines.FINE])
    for number in (1, 13):
        again = opened(cluster.view(f"trips{number}", frame.repartition(number)), {})
        assert again.sums(BOUNDS[1], [engines.X, engines.FINE]) == expected


def test_no_row_at_all(cluster: Cluster, rows: Any) -> None:
    none = opened(cluster.view("none", cluster.spark.table("trips").where("id < 0")), {})
    bound = BOUNDS[1]
    assert none.counts(bound, [None, "yes"]) == [0, 0]
    assert none.counts(bound, [None, "yes"], units=True) == [0, 0]
    assert none.sums(bound, [engines.X, engines.FINE]) == [0, 0]
    assert none.histogram(bound, engines.X) == []
    assert none.groups(bound, ["zone"], [], keys=None) == {}


def test_a_sum_beyond_int64_is_exact(cluster: Cluster) -> None:
    number = 5000
    frame = cluster.spark.range(number).selectExpr("cast(4503599627370496 as double) as x")
    table = cluster.view("large", frame)
    column = OnGrid(column="x", low=-(2**52), high=2**52)
    assert opened(table, {}).sums(EACH_ROW, [column]) == [number * 2**52]
    # Spark's own sum of these integers either fails or wraps around
    asked = "SELECT sum(cast(x AS bigint)) FROM large"
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        cluster.spark.sql(asked).collect()
    cluster.spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        ((wrapped,),) = cluster.spark.sql(asked).collect()
        assert wrapped == (number * 2**52 + 2**63) % 2**64 - 2**63
        assert opened(table, {}).sums(EACH_ROW, [column]) == [number * 2**52]
    finally:
        cluster.spark.conf.unset("spark.sql.ansi.enabled")


# ------------------------------------------------------------------ releases

# the first case of each mechanism: a query takes a cluster a second or more
MECHANISMS: dict[str, Any] = {
    **{type(case.mechanism).__name__: case.mechanism for case in reversed(CASES)},
    "SelectedCounts": SelectedCounts(by="k", epsilon=1, delta=0.1),
    "SelectedKeys": SelectedKeys(by="k", epsilon=1, delta=0.1),
    "Quantiles": Quantiles(column="x", probabilities=(0.25, 0.5), bounds=(-1, 4), epsilon=1),
    "GroupedQuantiles": GroupedQuantiles(
        by="k", column="x", probabilities=(0.25, 0.5), bounds=(-1, 4), epsilon=1
    ),
}
MEDIAN = OrderStatistic(
    column="x", statistic=tb.release.Median(epsilon=1, delta=0.1, step=1, scale=18)
)


@pytest.fixture(scope="module")
def on_spark(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The columns of the list of mechanisms, on the cluster."""
    file = tmp_path_factory.mktemp("columns") / "columns.parquet"
    pyarrow.parquet.write_table(arrow(COLUMNS), file)
    return cluster.view("columns", cluster.spark.read.parquet(str(file)).repartition(3))


class Seeded(Silent):
    """NOT NOISE: zeros, and the same coins each time; a quantile draws until its coins fit."""

    def __init__(self) -> None:
        self.random = random.Random(0)

    def coin(self) -> bool:
        return self.random.random() < 0.5


def without_noise(mechanism: Any, table: Table) -> Any:
    """The answer without noise, which is paid for."""
    meter = tb.OutputDPFilter(*mechanism.guarantee.worst_case())
    release = mechanism.release(table, meter=meter, noise=Seeded())
    assert meter.spent == release.receipt.charged
    return release.value


@pytest.mark.parametrize("name", MECHANISMS)
def test_each_mechanism_answers_as_on_arrays(
    on_spark: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_one_key(monkeypatch)
    bounds: dict[str, Any] = {"unit": "u", "rows_per_unit": 3, "groups_per_unit": 2}
    here, there = (
        without_noise(MECHANISMS[name], Table(data, **bounds, domains={**DOMAINS, "bin": BINS}))
        for data in (dict(COLUMNS), on_spark)
    )
    assert here == there


def test_an_order_statistic_answers_as_on_arrays(
    on_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_one_key(monkeypatch)
    here, there = (
        without_noise(MEDIAN, Table(data, unit="u", rows_per_unit=1, units=20))
        for data in (dict(COLUMNS), on_spark)
    )
    assert here == there


def test_only_the_small_vector_leaves_the_cluster(cluster: Cluster) -> None:
    frame = cluster.spark.range(1_000_000).selectExpr("id AS person", "id % 1000 / 8 AS x")
    table = Table(cluster.view("people", frame), unit="person", rows_per_unit=2)
    bound = table.contribution()
    # the cluster refuses to send more than a megabyte to its driver: the rows are too many
    with pytest.raises(Exception, match=r"spark\.driver\.maxResultSize"):
        frame.collect()
    assert table.source.counts(bound, [lambda t: t.x > 8, None]) == [935_000, 1_000_000]
    column = OnGrid(column="x", low=0, high=1024, step=0.125)
    assert table.source.sums(bound, [column]) == [1000 * sum(range(1000))]
    assert table.source.histogram(bound, column) == [(x, 1000) for x in range(1000)]


def texts_are_as_they_are(cluster: Cluster) -> bool:
    """Whether ``${name}`` in a rule or a key is that text, and no variable of Spark."""
    import pyarrow as pa

    texts = ["${env:HOME}", "${x}", "$", "a${x}b", "{x}", "plain"]
    frame = cluster.spark.createDataFrame([(text,) for text in texts], "z string")
    table = Table(cluster.view("dollars", frame))
    arrays_ = Table(pa.table({"z": texts}))
    name = "spark.sql.variable.substitute"
    before = cluster.spark.conf.get(name)
    for text in texts:
        rules: list[Any] = [
            lambda t, text=text: t.z.contains(text),
            lambda t, text=text: t.z.isin([text, "no"]),
            lambda t, text=text: t.z == text,
        ]
        if table.source.counts(EACH_ROW, rules) != arrays_.source.counts(EACH_ROW, rules):
            return False
    groups = table.source.groups(EACH_ROW, ["z"], [], keys=texts[:4])
    return groups == {text: [1] for text in texts[:4]} and cluster.spark.conf.get(name) == before


def test_texts_of_rules_are_no_variables(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_a_truth(
        monkeypatch,
        Without(
            "Spark replaces variables",
            {"texts-as-they-are": "pass"},
            lambda: texts_are_as_they_are(cluster),
        ),
    )
