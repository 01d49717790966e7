"""A run-length list answers like the column that it stands for, in the time of its length."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import numpy as np
import pytest
from tests.release.small import Column, columns, ordered
from tests.release.test_laws import Broken
from tests.release.test_robust import STATISTICS, Statistic, answer

import tightbudget as tb
from tightbudget.errors import ParameterError
from tightbudget.release.mechanisms.order_statistics import Ordered

SIZES = pytest.mark.parametrize(
    ("n", "limit"),
    [(3, 2), (5, 1), *(pytest.param(*size, marks=pytest.mark.slow) for size in [(5, 2), (7, 1)])],
)
every = pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: type(s).__name__)


def lists(x: Column, limit: int) -> list[Ordered]:
    """A column as runs of its values, of all values of the domain, and of runs cut in two."""
    present, domain = sorted(set(x), reverse=True), range(-limit, limit + 1)
    halves = [(v, x.count(v) - x.count(v) // 2) for v in present] + [
        (v, x.count(v) // 2) for v in present
    ]
    written = [[(v, x.count(v)) for v in present], [(v, x.count(v)) for v in domain], halves]
    return [
        Ordered.of(np.array([v for v, _ in runs]), limit, np.array([c for _, c in runs]))
        for runs in written
    ]


@pytest.mark.slow
@SIZES
def test_runs_answer_all_questions_like_the_records(n: int, limit: int) -> None:
    ranks, widths = range(1, n + 1), range(2 * limit + 3)
    for x in columns(n, range(-limit, limit + 1)):
        whole = ordered(x, limit)
        for runs in lists(x, limit):
            assert runs.n == n
            assert [runs.at(m) for m in range(-1, n + 3)] == [whole.at(m) for m in range(-1, n + 3)]
            for m, low in itertools.product(ranks, range(-limit, limit + 1)):
                high = low + 1 + (m + low) % 3  # any width
                assert runs.to_move(m, low, high) == whole.to_move(m, low, high)
            for a, b in itertools.combinations(ranks, 2):
                assert runs.sum(a, b) == sum(x[a - 1 : b])
                for k in range(n + 1):
                    assert runs.widest(a, b, k) == whole.widest(a, b, k)
                    assert runs.narrowest(a, b, k) == whole.narrowest(a, b, k)
                for width in widths:
                    assert runs.to_exceed(a, b, width) == whole.to_exceed(a, b, width)
                    low = width // 2
                    assert runs.to_leave(a, b, low, width) == whole.to_leave(a, b, low, width)


def test_sums_of_a_million_million_records_are_exact() -> None:
    limit, values = 2**40, [-(2**40), -(2**40) + 3, 17, 2**40 - 1]
    counts = [2**39 - 1, 2**38 + 5, 12345, 2**40]
    runs, n = Ordered.of(np.array(values), limit, np.array(counts)), sum(counts)
    assert runs.n == n
    total = sum(v * c for v, c in zip(values, counts, strict=True))
    assert runs.sum(1, n) == total
    assert runs.sum(1001, n - 1000) == total - 1000 * (values[0] + values[-1])


@every
@pytest.mark.parametrize("passes", [True, False])
def test_a_statistic_of_a_run_length_list_is_that_of_the_column(
    statistic: Statistic, passes: bool
) -> None:
    values = np.array([180.5, 160.25, np.nan, -np.inf, 170.0, 171.5])
    counts = np.array([90, 110, 1, 2, 200, 300])
    runs = tb.release.RunLengths(values, counts)
    assert answer(statistic, runs, passes) == answer(statistic, np.repeat(values, counts), passes)


@every
def test_a_thousand_million_records_are_as_quick_as_their_values(statistic: Statistic) -> None:
    values = np.arange(140, 200)
    counts = np.full(60, 20_000_000)
    assert answer(statistic, tb.release.RunLengths(values, counts)).cell == "value"


@every
def test_an_error_that_is_kept_keeps_no_run_length_list(statistic: Statistic) -> None:
    given = [tb.release.RunLengths(np.arange(160, 180), np.full(20, 9))]
    gone = weakref.ref(given[0])
    with pytest.raises(tb.ReleaseError) as caught:
        statistic.release(given.pop(), meter=tb.OutputDPOdometer(), noise=Broken())
    gc.collect(1)
    assert gone() is None
    assert caught.value.__traceback__ is not None


@every
def test_too_few_records_are_refused_and_not_charged(statistic: Statistic) -> None:
    meter = tb.OutputDPOdometer()
    with pytest.raises(ParameterError, match=r"len\(data\) must be at least 4, got 3"):
        statistic.release(
            tb.release.RunLengths(np.arange(9), [0, 1, 0, 0, 2, 0, 0, 0, 0]), meter=meter
        )
    assert meter.spent.amount == 0


@pytest.mark.parametrize(
    ("values", "counts", "message"),
    [
        (["a", 1.5], [1.5, 2], "counts must be a column of integers, got something else"),
        (np.array(["a"]), [1], "values must be a column of numbers, got something else"),
        ([1, 2], [1], "counts must have an entry for each of the values"),
        (np.zeros((1, 2)), [1], "values must be a column of numbers"),
        ([1, 2], [12345, -54321], "counts must be integers >= 0, got a negative one"),
        ([1, 2], [2**41, 1], r"counts must be at most 2\^41 together"),
        ([1], np.array([2**64 - 1], dtype=np.uint64), r"counts must be at most 2\^41 together"),
        ([1], [2**70], "counts must be a column of integers, got something else"),
        ([1], [True], "counts must be a column of integers, got something else"),
    ],
)
def test_what_is_no_run_length_list_is_refused(values: Any, counts: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as refusal:
        tb.release.RunLengths(values, counts)
    assert not any(number in str(refusal.value) for number in ("1.5", "12345", "54321"))


def test_a_run_length_list_keeps_and_shows_no_array_of_the_caller() -> None:
    values, counts = np.array([7.25, 8.5]), np.array([31, 32])
    runs = tb.release.RunLengths(values, counts)
    values[0], counts[0] = 0, 0
    assert (runs.values[0], runs.counts[0], runs.total) == (7.25, 31, 63)
    with pytest.raises(ValueError, match="read-only"):
        runs.counts[0] = 1
    assert not any(text in repr(runs) for text in ("7", "8", "31", "63"))


def test_an_empty_list_has_no_records() -> None:
    assert tb.release.RunLengths(np.array([]), np.array([])).total == 0
