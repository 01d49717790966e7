"""Statistical audits: the real samplers, many runs, and what they prove about epsilon at least.

Of a set S of outputs in a cell, k of n runs on x and k' of n on a neighbour fall into S. With
Clopper-Pearson ends, ln(lower end for x / upper end for x') is below the true price, but for
one case in 10^9: it must be below the price that is claimed, and for half the noise it is not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from functools import partial

import numpy as np
import pytest

import tightbudget as tb
from tightbudget.numerics.binomial import most_chance
from tightbudget.output_dp.amount import Price, exact
from tightbudget.release.mechanisms.sparse_vector import Search
from tightbudget.release.noise.noise import IntArray, Pool

# at these many runs half the noise is caught by a wide margin; more take minutes in pure Python
RUNS = 300_000
MISSED = 1e-9


def proved(k: int, other: int, runs: int) -> float:
    """At least this is ln p / p', if k of the runs and ``other`` of the other runs hit."""
    lower = 1 - most_chance(runs - k, runs, MISSED)
    upper = most_chance(other, runs, MISSED)
    return math.log(lower / upper) if lower else -math.inf


def violations(
    x: Counter[Hashable], y: Counter[Hashable], price: Callable[[Hashable], float]
) -> int:
    """Answers of which more is proved than is claimed, in either direction."""
    runs = x.total()
    assert y.total() == runs
    return sum(
        proved(a[answer], b[answer], runs) > price(answer)
        for a, b in ((x, y), (y, x))
        for answer in a
    )


class Stock:
    """The real noise from large batches; with a factor, too little of it."""

    batch = 1

    def __init__(self, factor: float = 1) -> None:
        self.factor, self.source = factor, tb.release.OpenDPNoise()
        self.pools: dict[Price, Pool] = {}

    def laplace(self, scale: Price, size: int) -> IntArray:
        wanted = float(exact(scale=scale)) * self.factor
        if scale not in self.pools:
            self.pools[scale] = Pool(partial(self.source.laplace, wanted), 2**15)
        return np.array([self.pools[scale].take() for _ in range(size)])

    gaussian = laplace

    def coin(self) -> bool:
        return self.source.coin()


def tails(draws: IntArray, cuts: Iterable[int]) -> Counter[Hashable]:
    """How many draws are at least each cut; the rest are "other"."""
    return Counter({cut: int(np.count_nonzero(draws >= cut)) for cut in cuts})


def laplace_violations(runs: int, factor: float) -> int:
    """A count of 0 against one of 1: every upper tail is a set of outputs."""
    mechanism = tb.release.LaplaceRelease(len, 1, 1)
    x, y = (
        value + tb.release.OpenDPNoise().laplace(float(mechanism.scale) * factor, runs)
        for value in (0, 1)
    )
    price = float(mechanism.guarantee.price("value"))
    return sum(
        proved(tails(b, [cut])[cut], tails(a, [cut])[cut], runs) > price
        for a, b in ((x, y), (-y, -x))
        for cut in range(-3, 6)
    )


def transcripts(
    svt: tb.release.SparseVector, values: tuple[int, ...], runs: int, noise: Stock
) -> Counter[Hashable]:
    """What the searches answer, and what they have found, which says at which look."""
    seen: Counter[Hashable] = Counter()
    for _ in range(runs):
        search, answers = Search(svt, noise), []
        for value in values:
            if not search.done:
                answers.append(search.above(value, 0))
        seen[search.found, tuple(answers)] += 1
    return seen


def svt_violations(svt: tb.release.SparseVector, runs: int, factor: float = 1) -> int:
    noise = Stock(factor)
    x, y = (transcripts(svt, values, runs, noise) for values in ((0, 0, 0, 1), (1, 1, 1, 0)))
    return violations(x, y, lambda seen: float(svt.guarantee.price(seen[0])))  # type: ignore[index]


PLAIN = tb.release.SparseVector(2, 1, adaptive=False)
ADAPTIVE = tb.release.SparseVector(2, 1)


def top_k_violations(runs: int, factor: float = 1) -> int:
    top, noise = tb.release.TopK(list, 2, 1, 2, 0), tb.release.OpenDPNoise()
    scale = float(top.scale) * factor
    x, y = (
        Counter[Hashable](
            top._named(np.array(values), row)
            for row in noise.laplace(scale, 3 * runs).reshape(runs, 3)
        )
        for values in ((0, 1), (1, 0))
    )
    return violations(x, y, lambda named: float(top.guarantee.price(len(named))))  # type: ignore[arg-type]


@pytest.mark.slow
def test_laplace_keeps_its_price() -> None:
    assert not laplace_violations(RUNS // 10, 1)


@pytest.mark.slow
def test_laplace_keeps_its_price_in_many_runs() -> None:
    assert not laplace_violations(RUNS, 1)


@pytest.mark.slow
@pytest.mark.parametrize("svt", [PLAIN, ADAPTIVE], ids=["plain", "adaptive"])
def test_sparse_vector_keeps_its_price_in_many_runs(svt: tb.release.SparseVector) -> None:
    assert not svt_violations(svt, RUNS // 2)


@pytest.mark.slow
def test_top_k_keeps_its_price_in_many_runs() -> None:
    assert not top_k_violations(RUNS // 2)


@pytest.mark.slow
def test_half_the_noise_is_caught() -> None:
    assert laplace_violations(10_000, 0.5)
    # one transcript alone is out of line, and 10,000 runs missed it once
    assert svt_violations(PLAIN, 40_000, 0.5)
    assert svt_violations(ADAPTIVE, 40_000, 0.5)
    assert top_k_violations(10_000, 0.5)
