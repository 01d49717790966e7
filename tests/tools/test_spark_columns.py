"""Kinds of columns on Spark: the law for each type that its catalog tells, and collated texts."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from tests.tables import kinds
from tests.tools.spark import IGNORED, Cluster

from tightbudget.tables import GroupedCounts, Table
from tightbudget.tables.source import Contribution

pytestmark = [pytest.mark.needs, pytest.mark.slow, *IGNORED]

EACH = Contribution(unit=None, rows=1, groups=1, salt="5a")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("spark"))
    yield cluster
    cluster.close()


def types() -> Iterator[str]:
    """The types of Spark that need no argument, and some that do."""
    from pyspark.sql import types

    for kind in vars(types).values():
        if inspect.isclass(kind) and issubclass(kind, types.DataType):
            with contextlib.suppress(Exception):
                yield kind().simpleString()
    yield from ("array<int>", "map<int,int>", "struct<a:int>", "decimal(38,38)", "varchar(3)")
    yield from ("char(3)", "string collate UTF8_LCASE", "string collate UNICODE_CI")


def rows(cluster: Cluster, kind: str, name: str) -> Any | None:
    """A table of Spark with a column of a type; None if it has none, or Ibis cannot open it."""
    with contextlib.suppress(Exception):
        cluster.spark.sql(f"CREATE TABLE {name} (i bigint, c {kind}) USING parquet")
        texts = ", ".join(
            "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'" for text in TEXTS
        )
        to = (
            kind.split(" collate")[0].split("(")[0] if "char" in kind else kind.split(" collate")[0]
        )
        to = "string" if "char" in kind else to
        cast = f"try_cast(t AS {to})" if to != "string" else "substr(t, 1, 3)"
        cluster.spark.sql(
            f"INSERT INTO {name} SELECT cast(row_number() OVER (ORDER BY t, n) AS bigint), {cast} "
            f"FROM (SELECT explode(array({texts}, NULL)) AS t) "
            "LATERAL VIEW explode(array(0, 1)) AS n"
        )
        return cluster.connection.table(name)
    return None


TEXTS = list(itertools.islice(kinds.TEXTS, 0, None))


def test_the_law_holds_for_each_type_of_spark(cluster: Cluster) -> None:
    served = {}
    for i, kind in enumerate(dict.fromkeys(types())):
        data = rows(cluster, kind, f"kinds{i}")
        if data is not None:
            served[kind] = kinds.law(data)
    for kind in ("string", "char(3)", "string collate UTF8_LCASE"):
        assert served[kind] == "number"
    assert {"bigint", "double", "date", "timestamp", "timestamp_ntz", "binary"} <= set(served)


def test_texts_that_are_no_utf8_are_missing(cluster: Cluster) -> None:
    frame = cluster.spark.sql("SELECT cast(X'ff61' AS string) AS c UNION ALL SELECT 'a'")
    table = Table(cluster.view("odd", frame), domains={"c": ["a"]})
    assert table.source.groups(EACH, ["c"], [], keys=None) == {"a": [1]}
    assert GroupedCounts(by="c", epsilon=1).plan(table).scan(EACH) == [1]
