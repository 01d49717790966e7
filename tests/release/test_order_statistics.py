"""A(x) on every tiny column, against brute force over all columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.release.small import Column, apart, columns, neighbours, ordered

from tightbudget.release.mechanisms.order_statistics import Ordered

SIZES = pytest.mark.parametrize(("n", "limit"), [(4, 2), (5, 2), (6, 1), (7, 1)])


@cache
def distances(n: int, limit: int) -> tuple[list[Column], np.ndarray]:
    everything = columns(n, range(-limit, limit + 1))
    return everything, np.array([[apart(x, y) for y in everything] for x in everything])


def fewest(statistic: np.ndarray, far: np.ndarray, inside: Callable[[int], bool], n: int) -> int:
    """The nearest column whose statistic is not inside."""
    outside = np.array([not inside(s) for s in statistic])
    return int(far[outside].min()) if outside.any() else n + 1


@pytest.mark.one_in(4)
@SIZES
def test_ranges_reach_as_far_as_any_column(n: int, limit: int) -> None:
    everything, far = distances(n, limit)
    for a in range(1, n + 1):
        for b in range(a + 1, n + 1):
            ranges = np.array([x[b - 1] - x[a - 1] for x in everything])
            for x, row in zip(everything, far, strict=True):
                records = ordered(x, limit)
                for k in range(n + 1):
                    reached = ranges[row <= k]
                    assert records.widest(a, b, k) == reached.max()
                    assert records.narrowest(a, b, k) == reached.min()


@SIZES
def test_a_range_leaves_every_interval_when_some_column_has(n: int, limit: int) -> None:
    everything, far = distances(n, limit)
    a, b = -(-n // 4), -(-3 * n // 4)
    ranges = np.array([x[b - 1] - x[a - 1] for x in everything])
    for x, row, r in zip(everything, far, ranges, strict=True):
        for low in range(r + 1):
            for high in range(r + 1, 2 * limit + 2):
                truth = fewest(ranges, row, lambda s, i=range(low, high): s in i, n)  # type: ignore[misc]
                assert ordered(x, limit).to_leave(a, b, low, high) == truth


@SIZES
def test_an_order_statistic_leaves_every_interval_when_some_column_has(n: int, limit: int) -> None:
    everything, far = distances(n, limit)
    for m in range(1, n + 1):
        values = np.array([x[m - 1] for x in everything])
        for x, row, v in zip(everything, far, values, strict=True):
            for low in range(-limit, v + 1):
                for high in range(v + 1, limit + 2):
                    truth = fewest(values, row, lambda s, i=range(low, high): s in i, n)  # type: ignore[misc]
                    assert ordered(x, limit).to_move(m, low, high) == truth


@pytest.mark.one_in(3)
@SIZES
def test_what_one_more_record_can_do_to_a_sum(n: int, limit: int) -> None:
    """``to_exceed`` counts to where a column's own neighbours can be too far: one less than
    that many replacements away there is a column with ``widest(1)`` above the bound."""
    everything, far = distances(n, limit)
    for a, b in [(1, n), (2, n - 1)]:
        worst = np.array([ordered(x, limit).widest(a, b, 1) for x in everything])
        for x, row in zip(everything, far, strict=True):
            for bound in range(2 * limit + 1):
                truth = fewest(worst, row, lambda w, bound=bound: w <= bound, n) + 1  # type: ignore[misc]
                assert ordered(x, limit).to_exceed(a, b, bound) == min(truth, n + 1)
        sums = {x: ordered(x, limit).sum(a, b) for x in everything}
        assert all(total == sum(x[a - 1 : b]) for x, total in sums.items())
        for x, y in neighbours(everything):
            assert abs(sums[x] - sums[y]) <= ordered(x, limit).widest(a, b, 1)


class Counted(np.ndarray[Any, Any]):
    """Records that count what is done with them, and how much of it."""

    seen: ClassVar[list[tuple[str, int]]] = []

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        args = tuple(np.asarray(x) if isinstance(x, Counted) else x for x in args)
        self.seen.append((func.__name__, sum(map(np.size, args))))
        return func(*args, **kwargs)

    def __getitem__(self, index: Any) -> Any:
        found = np.asarray(self)[index]
        self.seen.append(("get", np.size(found)))
        return found


def test_a_search_takes_as_many_steps_whatever_the_distance_is() -> None:
    """How long it takes would tell the distance, before any noise."""
    n = 101
    data = [
        np.zeros(n), np.full(n, 10_000), np.arange(n) * 50, np.arange(n) ** 2,
        np.append(np.zeros(n - 1), 10_000), np.repeat([0, 9999], [51, 50]),
        np.repeat([-10_000, 10_000], [50, 51]),
    ]  # fmt: skip
    steps, found = set[Any](), set[int]()
    for column in data:
        whole = Ordered.of(column.astype(np.int64), 10_000)
        counted = Ordered(whole.points.view(Counted), whole.starts.view(Counted))
        Counted.seen.clear()
        for width in (1, 40, 5000, 30_000):
            found |= {
                counted.to_exceed(11, 91, width),
                counted.to_leave(26, 76, width // 2, width),
                counted.to_move(51, -width, width),
            }
        steps.add(tuple(Counted.seen))
    assert len(steps) == 1
    assert len(found) > 8  # and yet the distances are many


def test_sums_are_exact_beyond_64_bits() -> None:
    limit = 2**62
    records = Ordered.of(np.array([limit - 1, limit - 3, -limit + 5, limit] * 4), limit)
    assert records.sum(1, 16) == 4 * (2 * limit + 1)
    assert records.sum(5, 16) == 4 * (3 * limit - 4)
