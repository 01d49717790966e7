"""Statistical audits of the choice of rows: each row of a unit counts equally often.

Keys of the hash are drawn from a generator with a fixed seed, so that a test answers alike each
time; a release draws its key from the operating system.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2
from tests.tables.cases import in_duckdb, small, table
from tests.tables.test_neighbours import Row

import tightbudget as tb
from tightbudget.tables import Count, GroupedCounts, Session, Sum
from tightbudget.tables.source import Contribution

# With this significance a choice that is right fails one of a million seeds; this seed does not.
SIGNIFICANCE = 1e-6
KEYS = 600
BITS: dict[str, Any] = {"column": "x", "bounds": (0, 2**30), "step": 1.0}


def drawn(seed: int, number: int = KEYS) -> list[str]:
    """So many keys of the hash, of 32 hexadecimal digits each."""
    random = np.random.default_rng(seed)
    return [random.bytes(16).hex() for _ in range(number)]


def unlikely(counts: list[int], expected: float, of: int) -> bool:
    """Whether counts of a choice without replacement are far from what is expected of each.

    Each of n rows is chosen with the probability p = expected / of. The counts have the variance
    of * p (1 - p) and add up to a constant, so that (n - 1) / n times the sum of the squares of
    their distances, divided by this variance, has nearly the law chi2 with n - 1 degrees.
    """
    n, p = len(counts), expected / of
    squares = sum((count - expected) ** 2 for count in counts) / (of * p * (1 - p))
    return bool(chi2.sf(squares * (n - 1) / n, n - 1) < SIGNIFICANCE)


def rows_chosen(rows: list[Row], most: int, key: str) -> frozenset[int]:
    """The rows that count among arrays: the value of each row is a bit of its own."""
    data = table(small(rows), most, most)
    total = Sum(epsilon=1, **BITS).plan(data).scan(replace(data.contribution(), salt=key))
    return frozenset(i for i in range(len(rows)) if total >> i & 1)


def bits(units: list[str | None]) -> list[Row]:
    return [(unit, float(2**i), "p", 0, True, True) for i, unit in enumerate(units)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("most", [1, 2, 4])
def test_each_row_of_a_unit_counts_equally_often(most: int) -> None:
    rows, found = bits(["a"] * 5), Counter[int]()
    for key in drawn(1):
        chosen = rows_chosen(rows, most, key)
        assert len(chosen) == most
        found.update(chosen)
    assert not unlikely([found[i] for i in range(5)], KEYS * most / 5, KEYS)


def test_equal_rows_and_rows_with_missing_values_count_as_often_as_others() -> None:
    """Each of four rows counts as often: two are equal, and one is missing its value."""
    values = [3.0, 3.0, float("nan"), 1.0]  # a missing value counts as 0, the low bound
    rows: list[Row] = [("a", value, "p", 0, True, True) for value in values]
    found = Counter[int]()
    for key in drawn(2):
        data = table(small(rows), 1, 1)
        scan = Sum(epsilon=1, column="x", bounds=(0, 4), step=1.0).plan(data).scan
        found[scan(replace(data.contribution(), salt=key))] += 1
    assert set(found) == {0, 1, 3}
    equal = found[3] / 2
    squares = (found[0] - KEYS / 4) ** 2 + (found[1] - KEYS / 4) ** 2 + 2 * (equal - KEYS / 4) ** 2
    assert chi2.sf(squares / (KEYS / 4), 2) > SIGNIFICANCE


def test_choices_of_different_units_are_independent() -> None:
    """Four rows of each of two units: sixteen pairs of choices, all equally frequent."""
    rows, found = bits(["a", "b"] * 4), Counter[frozenset[int]]()
    for key in drawn(3):
        found[rows_chosen(rows, 1, key)] += 1
    pairs = [found[frozenset({2 * i, 2 * j + 1})] for i in range(4) for j in range(4)]
    assert sum(pairs) == KEYS
    squares = sum((count - KEYS / 16) ** 2 for count in pairs) / (KEYS / 16)
    assert chi2.sf(squares, 15) > SIGNIFICANCE


def test_each_group_of_a_unit_counts_equally_often() -> None:
    rows: list[Row] = [("a", 0.0, key, 0, True, True) for key in "ppppq"]
    found = Counter[str]()
    for key in drawn(4):
        data = table(small(rows), 5, 1)
        question = GroupedCounts(by="k", epsilon=1, of="units")
        counts = question.plan(data).scan(replace(data.contribution(), salt=key))
        assert sum(counts) == 1
        found["pq"[counts.index(1)]] += 1
    # however many rows a unit has in a group
    assert not unlikely([found["p"], found["q"]], KEYS / 2, KEYS)


def test_a_choice_by_content_alone_is_caught() -> None:
    """The law above fails for a hash without a key, which chooses the same row each time."""
    found = Counter[int]()
    for _ in range(100):
        found.update(rows_chosen(bits(["a"] * 5), 1, "5a"))
    assert unlikely([found[i] for i in range(5)], 20, 100)


@pytest.mark.parametrize("most", [1, 2])
def test_all_rows_without_a_unit_count(most: int) -> None:
    rows = bits([None, "a", None, "a", "a", None])
    for key in drawn(5, 20):
        chosen = rows_chosen(rows, most, key)
        assert {0, 2, 5} <= chosen
        assert len(chosen) == 3 + most


@pytest.mark.slow
def test_duckdb_chooses_each_row_equally_often() -> None:
    data, found = in_duckdb(2, 2, small(bits(["a"] * 4 + ["b"] * 4 + [None]))), Counter[int]()
    scan, number = Sum(epsilon=1, **BITS).plan(data).scan, 60
    for key in drawn(6, number):
        total = scan(replace(data.contribution(), salt=key))
        found.update(i for i in range(9) if total >> i & 1)
    assert found[8] == number
    for unit in (range(4), range(4, 8)):
        assert not unlikely([found[i] for i in unit], number / 2, number)


# ------------------------------------------------------------------ the key of the hash


def test_each_release_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    data, seen = table(small(bits(["a", "a"])), 1, 1), list[str]()
    asked = type(data.source).counts

    def counts(source: Any, contribution: Contribution, *args: Any, **named: Any) -> list[int]:
        seen.append(contribution.salt)
        return asked(source, contribution, *args, **named)

    monkeypatch.setattr(type(data.source), "counts", counts)
    meter = tb.OutputDPFilter(epsilon=20.0)
    for _ in range(10):
        Count(epsilon=1).release(data, meter=meter)
    assert len(set(seen)) == 10
    assert all(len(key) == 32 and int(key, 16) >= 0 for key in seen)


@pytest.mark.operating_system_noise
def test_keys_come_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    def token_hex(size: int) -> str:
        asked.append(size)
        return "0f" * size

    monkeypatch.setattr(secrets, "token_hex", token_hex)
    assert Contribution(unit="u", rows=1, groups=1).salt == "0f" * 16
    assert asked == [16]  # 128 bits


@pytest.mark.operating_system_noise
def test_the_key_is_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = "c0ffee" * 5 + "aa"
    monkeypatch.setattr(secrets, "token_hex", lambda size: key)
    caplog.set_level(logging.DEBUG)
    data = in_duckdb(1, 1)
    meter = tb.OutputDPFilter(epsilon=20.0)
    session = Session(data, meter)
    answer = session.ask(Count(epsilon=1))
    release = GroupedCounts(by="k", epsilon=1).release(data, meter=meter)
    shown = [data, data.contribution(), session, answer, answer.receipt, release, meter]
    texts = [text for value in shown for text in (repr(value), str(value))]
    texts += [answer._repr_html_(), str(answer.receipt.to_dict()), caplog.text]

    def fails(*_: Any, **__: Any) -> list[Any]:
        raise OSError(f"lost the query with the key {key}")

    monkeypatch.setattr(type(data.source), "_columns", fails)
    with pytest.raises(tb.ReleaseError) as lost:
        Count(epsilon=1).release(data, meter=meter)
    error: BaseException | None = lost.value
    while error is not None:
        texts.append(repr(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert not [text for text in texts if key in text]
    assert math.isclose(meter.left.epsilon, 17)  # the scan that failed has its worst-case price
