"""Searches end on sides that were seen, also where the test is not monotone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tightbudget.numerics.search import last_true

positive = st.floats(1e-12, 1e12)


@given(positive, positive)
def test_the_change_is_found_from_any_guess(change: float, guess: float) -> None:
    found = last_true(lambda x: x < change, guess, math.inf)
    assert found.last_true < change <= found.first_false
    assert found.first_false - found.last_true <= 1e-12 * change


@given(positive, positive, st.floats(1.0, 10.0))
def test_the_search_never_looks_at_or_above_its_top(change: float, guess: float, x: float) -> None:
    top, seen = change * x, []

    def test(at: float) -> bool:
        seen.append(at)
        return at < change

    found = last_true(test, guess, top)
    assert max(seen) < top
    assert found.last_true < change <= found.first_false <= top


@given(positive, positive)
def test_a_test_that_holds_up_to_the_top_ends_there(top: float, guess: float) -> None:
    found = last_true(lambda x: x < top, guess, top)
    assert found.first_false == pytest.approx(top, rel=1e-12)
    assert found.first_false <= top


@given(st.integers(0, 2**60), positive)
def test_both_ends_were_evaluated_whatever_the_test(seed: int, guess: float) -> None:
    answers: dict[float, bool] = {}

    def erratic(x: float) -> bool:
        answers[x] = x == 0.0 or (hash((seed, x)) % 3 > 0 and x < 1e6)
        return answers[x]

    found = last_true(erratic, guess, math.inf)
    assert found.last_true == 0.0 or answers[found.last_true]
    assert math.isinf(found.first_false) or not answers[found.first_false]
    assert found.last_true < found.first_false


def test_nothing_holds() -> None:
    found = last_true(lambda x: False, 1.0, math.inf)
    assert (found.last_true, found.first_false) == (0.0, 0.0)


def test_everything_holds() -> None:
    found = last_true(lambda x: True, 1.0, math.inf)
    assert found.first_false == math.inf
    assert found.last_true > 1e299


@pytest.mark.parametrize("change", [1e-280, 1e-100, 1e-5])
def test_a_tiny_change_is_found_from_afar(change: float) -> None:
    found = last_true(lambda x: x < change, 1.0, math.inf)
    assert found.last_true < change <= found.first_false


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
def test_a_loose_tolerance_costs_fewer_evaluations(tolerance: float) -> None:
    seen: list[float] = []

    def test(x: float) -> bool:
        seen.append(x)
        return x < math.pi

    found = last_true(test, 3.0, math.inf, tolerance)
    assert found.first_false - found.last_true <= tolerance * found.first_false
    assert len(seen) < 60
