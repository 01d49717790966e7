"""Groups whose keys are secrets: counts of units, in NumPy and in DuckDB."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tightbudget as tb
from tightbudget.tables import SelectedCounts, SelectedKeys, Table

pytestmark = pytest.mark.filterwarnings("ignore:FixedNoise")

COLUMNS = {
    "u": np.array([1, 1, 2, 2, 3, 4]),
    "k": np.array(["b", "b", "b", "a", "b", "c"]),
    "x": np.arange(6.0),
}


def table(kind: str, groups: int = 3) -> Table:
    data: Any = COLUMNS if kind == "arrays" else pa.table(COLUMNS)
    return Table(data, unit="u", rows_per_unit=9, groups_per_unit=groups)


@pytest.mark.parametrize("kind", ["arrays", "engine"])
def test_units_are_counted_once_in_each_group(kind: str) -> None:
    given = table(kind)
    question = SelectedCounts(by="k", epsilon=1, delta=1e-6)
    noise = tb.release.FixedNoise([10**4] * 3)
    answer = question.release(given, meter=tb.OutputDPOdometer(), noise=noise)
    assert answer.value == {"a": 10**4 + 1, "b": 10**4 + 3, "c": 10**4 + 1}
    assert list(answer.value) == ["a", "b", "c"]
    pairs = SelectedCounts(by=("k", "u"), epsilon=1, delta=1e-6)
    noise = tb.release.FixedNoise([10**4] * 5)
    found = pairs.release(given, meter=tb.OutputDPOdometer(), noise=noise).value
    assert set(found) == {("b", 1), ("b", 2), ("a", 2), ("b", 3), ("c", 4)}
    keys = SelectedKeys(by="k", epsilon=1, delta=1e-6)
    noise = tb.release.FixedNoise([0] * 999)  # the smallest uniform number: every key is published
    assert keys.release(given, meter=tb.OutputDPOdometer(), noise=noise).value == ("a", "b", "c")


@pytest.mark.parametrize("groups", [1, 3])
def test_the_noise_is_that_for_all_groups_of_a_unit(groups: int) -> None:
    given = table("arrays", groups)
    counts = SelectedCounts(by="k", epsilon=1, delta=1e-6).plan(given).mechanism
    assert counts == tb.release.KeyedCounts(epsilon=1, delta=1e-6, keys_per_unit=groups)
    keys = SelectedKeys(by="k", epsilon=1, delta=1e-6).plan(given).mechanism
    assert keys == tb.release.SelectKeys(epsilon=1, delta=1e-6, keys_per_unit=groups)


@pytest.mark.parametrize("kind", [SelectedCounts, SelectedKeys])
@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("z", "by must name a column of the table (u, k, x), got 'z'"),
        (
            "x",
            "by must be a column of integers, texts, truth values or dates, got 'x' of type float",
        ),
        (("k", "k"), "by must name one column, or several different ones, got ('k', 'k')"),
        ((), "by must name one column, or several different ones, got ()"),
    ],
)
def test_refusals_cost_nothing(kind: Any, by: Any, said: str) -> None:
    meter = tb.OutputDPFilter(1, 1e-6)
    with pytest.raises(tb.ParameterError, match=f"^{re.escape(said)}"):
        kind(by=by, epsilon=1, delta=1e-6).release(table("arrays"), meter=meter)
    assert meter.spent.epsilon == 0
