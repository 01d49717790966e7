"""Statistical audits: the real samplers, many runs, and what they prove about epsilon at least.

``tb.audit.histograms`` tests the worst-case price: it is wrong in one case in 10^9, and refutes
half the noise. No single (epsilon, delta) says that each output has a price of its own. For that,
k of n runs on x and k' of n on a neighbour have an output: with Clopper-Pearson bounds, ln(lower
bound for x / upper bound for x') is below the true price of this output, but for one case in 10^9.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any

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


def audits(
    x: Counter[Any], y: Counter[Any], price: Price, *, delta: float = 0.0
) -> list[tb.audit.Audit]:
    """Tests a worst-case price by how often each output came, in either direction."""
    outputs = list({**x, **y})
    p, q = ([counts[output] for output in outputs] for counts in (x, y))
    claim = (float(exact(price=price)), delta)
    return [
        tb.audit.histograms(*pair, claim=claim, delta=delta, confidence=1 - MISSED)
        for pair in ((p, q), (q, p))
    ]


def verdicts(found: Iterable[tb.audit.Audit]) -> set[str]:
    """What several audits have found."""
    return {audit.verdict for audit in found}


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


def laplace_audits(runs: int, factor: float) -> list[tb.audit.Audit]:
    """A count of 0 against one of 1."""
    mechanism = tb.release.LaplaceRelease(len, 1, 1)
    scale, counts = float(mechanism.scale) * factor, list[Counter[Any]]()
    for value in (0, 1):
        draws = value + tb.release.OpenDPNoise().laplace(scale, runs)
        outputs, times = np.unique(draws, return_counts=True)
        counts.append(Counter(dict(zip(outputs.tolist(), times.tolist(), strict=True))))
    x, y = counts
    return audits(x, y, mechanism.guarantee.price("value"))


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


def svt_found(
    svt: tb.release.SparseVector, runs: int, factor: float = 1
) -> tuple[int, list[tb.audit.Audit]]:
    """Answers whose own price is violated, and the audits of the worst-case price."""
    noise = Stock(factor)
    x, y = (transcripts(svt, values, runs, noise) for values in ((0, 0, 0, 1), (1, 1, 1, 0)))
    dear = violations(x, y, lambda seen: float(svt.guarantee.price(seen[0])))  # type: ignore[index]
    return dear, audits(x, y, svt.guarantee.sup)


PLAIN = tb.release.SparseVector(2, 1, adaptive=False)
ADAPTIVE = tb.release.SparseVector(2, 1)


def top_k_found(runs: int, factor: float = 1) -> tuple[int, list[tb.audit.Audit]]:
    """Answers whose own price is violated, and the audits of the worst-case price."""
    top, noise = tb.release.TopK(list, 2, 1, 2, 0), tb.release.OpenDPNoise()
    scale = float(top.scale) * factor
    x, y = (
        Counter[Hashable](
            top._named(np.array(values), row)
            for row in noise.laplace(scale, 3 * runs).reshape(runs, 3)
        )
        for values in ((0, 1), (1, 0))
    )
    dear = violations(x, y, lambda named: float(top.guarantee.price(len(named))))  # type: ignore[arg-type]
    return dear, audits(x, y, top.guarantee.sup)


@pytest.mark.slow
def test_laplace_keeps_its_price_in_many_runs() -> None:
    found = laplace_audits(RUNS, 1)
    assert verdicts(found) == {"consistent"}
    # an audit that sees nothing is consistent, too
    assert all(audit.epsilon_at_least > 0.7 for audit in found)


@pytest.mark.slow
@pytest.mark.parametrize("svt", [PLAIN, ADAPTIVE], ids=["plain", "adaptive"])
def test_sparse_vector_keeps_its_price_in_many_runs(svt: tb.release.SparseVector) -> None:
    dear, found = svt_found(svt, RUNS // 2)
    assert (dear, verdicts(found)) == (0, {"consistent"})


@pytest.mark.slow
def test_top_k_keeps_its_price_in_many_runs() -> None:
    dear, found = top_k_found(RUNS // 2)
    assert (dear, verdicts(found)) == (0, {"consistent"})


@pytest.mark.slow
def test_half_the_noise_is_caught() -> None:
    assert verdicts(laplace_audits(10_000, 0.5)) == {"refuted"}
    # one transcript alone is out of line, and 10,000 runs missed it once
    for dear, found in (svt_found(PLAIN, 40_000, 0.5), svt_found(ADAPTIVE, 40_000, 0.5)):
        assert dear
        assert verdicts(found) == {"refuted"}
    dear, found = top_k_found(10_000, 0.5)
    assert dear
    assert "refuted" in verdicts(found)
