"""AIM beside mbi: its models of noisy marginals, and the rows that are drawn from them."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import tightbudget as tb

pytest.importorskip("mbi", reason="make adapters")
pytestmark = pytest.mark.needs

import jax  # noqa: E402

N = 4000
RNG = np.random.default_rng(5)
A = RNG.integers(0, 3, N)
ROWS: dict[str, Any] = {
    "a": A,
    "b": np.array(list("xyz"))[np.where(RNG.random(N) < 0.9, A, RNG.integers(0, 3, N))],
    "c": RNG.random(N) < 0.3,
}
DOMAINS: dict[str, Any] = {"b": ["x", "y", "z", None], "a": [0, 1, 2], "c": [True, False]}


def noisy(*cliques: tuple[str, ...], sigma: float = 3.0) -> list[tb.marginals.NoisyMarginal]:
    """Marginals of the rows, with the noise of a seed: here nothing is private."""
    rng, cells = np.random.default_rng(1), {name: list(of) for name, of in DOMAINS.items()}
    found = []
    for clique in cliques:
        counts = np.zeros([len(cells[name]) for name in clique])
        codes = [[cells[name].index(v) for v in ROWS[name].tolist()] for name in clique]
        np.add.at(counts, tuple(np.array(codes)), 1)
        noise = rng.normal(size=counts.shape) * sigma
        found.append(tb.marginals.NoisyMarginal(clique, counts + noise, sigma))
    return found


def test_a_model_has_the_marginals_that_were_measured() -> None:
    marginals = noisy(("a",), ("b",), ("c",), ("a", "b"), ("c", "b"))
    model = tb.marginals.mbi_model(marginals, DOMAINS)
    assert model.total == pytest.approx(N, abs=20)
    assert {frozenset(clique) for clique in model.cliques} == {
        frozenset({"a", "b"}),
        frozenset({"b", "c"}),
    }
    for one in marginals:
        assert model.expected(one.columns) == pytest.approx(one.counts, abs=12)
    # mbi itself says the same, also of what was not measured
    names = list(DOMAINS)
    for columns in (("a", "c"), ("c", "a"), ("a", "b", "c"), ("b",)):
        asked = tuple(str(names.index(name)) for name in columns)
        with jax.enable_x64(True):
            theirs = model._fitted.theirs.project(asked).datavector(flatten=False)
            assert model.expected(columns) == pytest.approx(np.asarray(theirs), rel=1e-6)


def test_a_fit_goes_on_where_another_one_was(caplog: pytest.LogCaptureFixture) -> None:
    marginals = noisy(("a",), ("b",), ("c",), ("a", "b"))
    first = tb.marginals.mbi_model(marginals[:3], DOMAINS, iterations=50)
    model = tb.marginals.mbi_model(marginals, DOMAINS, iterations=1000, warm=first)
    assert model.expected(("a", "b")) == pytest.approx(marginals[3].counts, abs=12)
    with caplog.at_level(logging.WARNING):
        drawn = model.draw(3000, seed=1)
    assert not caplog.records
    assert drawn == model.draw(3000, seed=1)
    table = np.array([[np.mean((np.array(drawn["a"]) == i) & (np.array(drawn["b"]) == j))
                       for j in ("x", "y", "z")] for i in range(3)])  # fmt: skip
    assert table == pytest.approx(model.expected(("a", "b"))[:, :3] / model.total, abs=2e-3)
    # the order of the rows says nothing
    assert abs(np.corrcoef(np.array(drawn["a"]), np.arange(3000))[0, 1]) < 0.1
    assert not jax.config.jax_enable_x64


def test_measurements_of_one_marginal_are_fitted_as_their_weighted_mean() -> None:
    ones = noisy(("a",), ("b",), ("c",), ("a", "b"), sigma=20.0)
    twos = noisy(("b", "a"), ("a",), sigma=10.0)
    counts = np.asarray(twos[0].counts).T
    merged = [
        tb.marginals.NoisyMarginal(("a",), (ones[0].counts + 4 * twos[1].counts) / 5, 80**0.5),
        *ones[1:3],
        tb.marginals.NoisyMarginal(("a", "b"), (ones[3].counts + 4 * counts) / 5, 80**0.5),
    ]
    both = tb.marginals.mbi_model([*ones, *twos], DOMAINS)
    mean = tb.marginals.mbi_model(merged, DOMAINS)
    assert both.total == pytest.approx(mean.total, rel=1e-12)
    for columns in (("a",), ("a", "b"), ("b", "c")):  # up to where mirror descent stops
        assert both.expected(columns) == pytest.approx(mean.expected(columns), rel=1e-3, abs=0.05)


def test_aim_finds_the_columns_that_go_together() -> None:
    meter = tb.OutputDPFilter(1, 1e-6)
    found = tb.marginals.run_aim(ROWS, DOMAINS, epsilon=1.0, delta=1e-6, meter=meter, rounds=12)
    assert found.ended is None
    assert meter.spent == found.receipt.charged
    assert ("b", "a") in [one.columns for one in found.marginals]
    table = found.synthesize(seed=2)
    assert table.size == pytest.approx(N, rel=0.05)
    frame = table.frame()
    assert (frame["b"].map({"x": 0, "y": 1, "z": 2}) == frame["a"]).mean() > 0.85
    assert max(table.distances().values()) < 0.1
    assert table.receipt == found.receipt
    again = found.model(iterations=100)
    assert again.marginals == found.marginals
    assert found.synthesize(size=10, model=again).size == 10


def test_a_model_that_is_too_large_is_refused_before_it_is_fitted() -> None:
    domains = {name: range(300) for name in "abc"}
    counts = np.ones((300, 300))
    marginals = [
        tb.marginals.NoisyMarginal(pair, counts, 1.0)
        for pair in (("a", "b"), ("b", "c"), ("a", "c"))
    ]
    with pytest.raises(tb.ParameterError, match=r"megabytes must be at least 206 .*, got 80"):
        tb.marginals.mbi_model(marginals, domains)
