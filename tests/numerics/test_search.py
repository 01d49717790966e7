"""Searches end on sides that were seen, also where the test is not monotone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

import tightbudget as tb
from tightbudget.numerics.search import last_true, root_between

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


FUNCTIONS = {
    "line": lambda x, at: x - at,
    "cubic": lambda x, at: (x - at) ** 3,
    "steep": lambda x, at: math.expm1(min(700.0, 50.0 * (x - at))),
    "flat": lambda x, at: math.atan(x - at) * 1e-200,
    "step": lambda x, at: 1.0 if x >= at else -1.0,
    "clipped": lambda x, at: max(-1e300, min(1e300, math.copysign(1e308, x - at))),
    "pole": lambda x, at: 1.0 / (x - at) if x != at else 0.0,
    "waves": lambda x, at: x - at + math.sin(20.0 * (x - at)),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=50)
@given(
    at=st.floats(-10.0, 10.0),
    below=st.floats(1e-6, 1e3),
    above=st.floats(1e-6, 1e3),
    xtol=st.sampled_from([2e-12, 1e-6, 1e-2]),
    falls=st.booleans(),
    back=st.booleans(),
)
def test_a_root_is_the_one_that_scipy_finds(name, at, below, above, xtol, falls, back) -> None:
    def f(x: float) -> float:
        return (-1 if falls else 1) * FUNCTIONS[name](x, at)

    # farther than 1 from the root, no wave is high enough to change the sign
    ends = [at - 1.0 - below, at + 1.0 + above]
    low, high = reversed(ends) if back else ends
    found = root_between(f, low, high, xtol=xtol)
    assert found == optimize.brentq(f, low, high, xtol=xtol, rtol=2.0**-50, maxiter=100_000)
    if name != "waves":
        assert abs(found - at) <= xtol + 1e-12


def test_a_root_at_an_end_is_found() -> None:
    assert root_between(lambda x: x, 0.0, 1.0, xtol=1e-9) == 0.0
    assert root_between(lambda x: x - 1.0, 0.0, 1.0, xtol=1e-9) == 1.0


def test_a_function_that_keeps_its_sign_is_refused() -> None:
    with pytest.raises(tb.ParameterError, match=r"f must change its sign between 0.5 and 1.0"):
        root_between(lambda x: x, 0.5, 1.0, xtol=1e-9)


def test_a_search_ends_where_the_function_is_not_a_number() -> None:
    found = root_between(lambda x: -1.0 if x < 0.3 else math.nan, 0.0, 1.0, xtol=1e-9)
    assert 0.0 <= found <= 1.0
