"""Kinds of columns on Spark: texts that are collated, padded or no UTF-8, dates and timestamps.

A query takes a cluster as long as a hundred in memory, so the law for each declared type and role
runs on the other engines, and here each form once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.tools.spark import IGNORED, Cluster

from tightbudget.tables import GroupedCounts, Table
from tightbudget.tables.source import Contribution

pytestmark = [pytest.mark.needs, *IGNORED]

EACH = Contribution(unit=None, rows=1, groups=1, salt="5a")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("spark"))
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def rows(cluster: Cluster) -> Any:
    columns = "c string COLLATE UTF8_LCASE, d char(5), e timestamp_ntz, f date"
    cluster.spark.sql(f"CREATE TABLE columns ({columns}) USING parquet")
    cluster.spark.sql(
        "INSERT INTO columns VALUES ('A', 'ab', timestamp_ntz'2020-01-01', date'2020-01-01'), "
        "('a', 'ab', NULL, NULL), ('a', 'x', NULL, NULL)"
    )
    return cluster.connection.table("columns")


@pytest.mark.parametrize(
    ("by", "keys", "counts"),
    [
        ("c", ["a", "A"], [2, 1]),
        ("d", ["ab", "x"], [2, 1]),
        ("e", ["2020-01-01"], [1]),
        ("f", ["2020-01-01"], [1]),
    ],
)
def test_keys_are_counted_rightly(rows: Any, by: str, keys: list[str], counts: list[int]) -> None:
    table = Table(rows, domains={by: keys})
    assert GroupedCounts(by=by, epsilon=1).plan(table).scan(EACH) == counts


def test_a_collated_text_is_a_unit_and_stands_in_rules_by_its_bytes(rows: Any) -> None:
    table = Table(rows, unit="c", rows_per_unit=1)
    table.source.check()
    assert table.source.counts(table.contribution(), [None]) == [2]
    assert table.source.counts(EACH, [lambda t: t.c == "a"]) == [2]
    public = pa.table({"c": ["a", "A", "AA"], "w": [1, 1, 1]})
    assert table.join(public, on="c").source.counts(EACH, [None]) == [3]


def test_a_text_that_is_no_utf8_is_missing(cluster: Cluster) -> None:
    frame = cluster.spark.sql("SELECT cast(X'ff61' AS string) AS c UNION ALL SELECT 'a'")
    table = Table(cluster.view("odd", frame))
    assert table.source.groups(EACH, ["c"], [], keys=None) == {"a": [1]}
