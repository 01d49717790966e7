"""Propose-test-release as it is really drawn: no cell is told apart better than it is priced."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.release.test_statistics import MISSED, Stock

import tightbudget as tb
from tightbudget.output_dp.guarantee import Cell


def seen(
    proposals: list[tb.release.Proposal], runs: int, noise: Stock
) -> Counter[tuple[Cell, bool]]:
    """How often each cell came, and in it a value of at most 0."""
    protocol = tb.release.ProposeTestRelease(lambda data: data, 1, 0.3, len(proposals))
    counts: Counter[tuple[Cell, bool]] = Counter()
    for _ in range(runs):
        value, cell = protocol.run(proposals, noise)
        counts[cell, value is not None and value <= 0] += 1
    return counts


def audited(
    tries: int,
    event: tuple[Cell, bool],
    distance: int,
    price: float,
    runs: int,
    noise: Stock,
) -> tb.audit.Audit:
    """Tests the price of an event on neighbours that are as far apart as they may be.

    It is likelier at the first. Distances 2 and more: there the bound holds and no delta is needed.
    """
    step = -1 if event[0] == "bottom" else 1
    x = [tb.release.Proposal(distance + step, 0, 1)] * tries
    y = [tb.release.Proposal(distance, 1, 1)] * tries
    p, q = (seen(proposals, runs, noise)[event] for proposals in (x, y))
    return tb.audit.histograms(
        [p, runs - p], [q, runs - q], claim=(price, 0.0), delta=0.0, confidence=1 - MISSED
    )


EVENTS = pytest.mark.parametrize(
    ("tries", "event", "distance", "price"),
    [(1, ("value", True), 1, 2), (1, ("bottom", False), 3, 1), (2, ("bottom", False), 3, 2)],
    ids=["value", "bottom", "bottom-of-two"],
)


@pytest.mark.slow
@EVENTS
def test_no_cell_says_more_than_it_costs(
    tries: int, event: tuple[Cell, bool], distance: int, price: float
) -> None:
    """An audit that sees less than this share of the price is too weak to say anything."""
    found = audited(tries, event, distance, price, 120_000, Stock())
    assert found.verdict == "consistent"
    assert 0.72 * price < found.epsilon_at_least <= price


@pytest.mark.slow
@EVENTS
def test_half_of_the_noise_is_caught(
    tries: int, event: tuple[Cell, bool], distance: int, price: float
) -> None:
    assert audited(tries, event, distance, price, 20_000, Stock(0.5)).verdict == "refuted"


@pytest.mark.slow
def test_a_bound_that_fails_passes_with_delta_at_most() -> None:
    """At distance 1; at distance 2 more often: the test is no stricter than it must be."""
    runs = 50_000
    for distance, within in [(1, True), (2, False)]:
        passed = runs - seen([tb.release.Proposal(distance, 0, 1)], runs, Stock())["bottom", False]
        # beside a neighbour at which nothing passes
        found = tb.audit.histograms(
            [passed, runs - passed], [0, runs], claim=(1.0, 0.3), delta=0.3, confidence=1 - MISSED
        )
        assert found.verdict == ("consistent" if within else "refuted")
