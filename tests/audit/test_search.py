"""A search for inputs and outputs that tell most: what it finds, and what it does not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tightbudget as tb
from tightbudget.audit import search


def test_it_finds_the_pair_and_the_output_that_a_fault_shows() -> None:
    draws = np.random.default_rng(4)

    def answers(data: int) -> str:
        # one input in four is answered "never", which its neighbour cannot be
        if data == 6 and draws.random() < 0.2:
            return "never"
        return "yes" if draws.random() < 0.5 else "no"

    def make_neighbours(i: int) -> tuple[int, int]:
        return i + 1, i

    found = search(answers, make_neighbours, claim=(0.5, 0.01), delta=0.01, runs=4000)
    assert found.audit.verdict == "refuted"
    assert 6 in found.pair
    assert "never" in (found.event if found.pair[0] == 6 else ["never", *found.event])
    assert found.audit.test == "search"
    assert found.audit.trials == 2000


def test_numbers_are_put_into_bins_and_atoms_are_alone() -> None:
    draws = np.random.default_rng(4)

    def snapped(data: float) -> Any:
        # a clamp puts much mass at its two ends
        return np.float64(max(0.0, min(1.0, data + draws.laplace(scale=0.5))))

    found = search(
        snapped, lambda i: (0.0, 1.0), claim=tb.Laplace(1.0), delta=0.0, runs=4000, pairs=1
    )
    assert found.audit.verdict == "refuted"
    assert 0.0 in found.event
    assert 1.0 not in found.event
    assert 1.0 < found.audit.epsilon_at_least < 2.0


def test_an_honest_function_is_consistent() -> None:
    draws = np.random.default_rng(4)
    keep = 1 / (1 + math.exp(-1.0))

    def respond(data: int) -> tuple[str, int]:
        return "answer", data if draws.random() < keep else 1 - data

    found = search(respond, lambda i: (i % 2, 1 - i % 2), claim=(1.0, 0.0), delta=0.0, runs=4000)
    assert found.audit.verdict == "consistent"
    assert found.audit.epsilon_at_least == pytest.approx(1.0, abs=0.35)
    assert found.audit.epsilon_at_least < 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"runs": 100}, "runs must be 320 or more for 8 pairs, got 100"),
        ({"pairs": 0}, "pairs must be an integer >= 1, got 0"),
        ({"function": 3}, "function must be a function, got 3"),
        ({"make_neighbours": (0, 1)}, "make_neighbours must be a function, got (0, 1)"),
        ({"make_neighbours": lambda i: i}, "make_neighbours(0) must be two inputs, got 0"),
        ({"function": lambda data: {data}}, "hashable, such as a text or a tuple, got a set"),
        ({"function": lambda data: object()}, "hashable, such as a text or a tuple, got a object"),
        ({"claim": "gaussian"}, "claim must be a mechanism or a composition"),
    ],
)
def test_bad_searches_are_refused(given: dict[str, Any], message: str) -> None:
    good = {"function": str, "make_neighbours": lambda i: (i, i + 1), "claim": None, "delta": 0.0}
    with pytest.raises(tb.ParameterError) as error:
        search(**{**good, **given})
    assert message in str(error.value)
