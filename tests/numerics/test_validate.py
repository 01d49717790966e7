"""Refusals name the parameter, say what it must be, and show what it is."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tightbudget as tb
from tightbudget.numerics import validate as v

NEVER = [math.nan, True, np.True_, "1", b"1", None, 1j, np.complex128(1), [1.0], {}, object, "nan"]

# function, what its message says, values it takes, values it refuses besides NEVER
TABLE: list[tuple[Callable[..., Any], str, list[Any], list[Any]]] = [
    (v.number, "be a number", [0, -1.5, math.inf, -math.inf], []),
    (v.finite, "be a finite number", [0, -1.5, 1e308], [math.inf, -math.inf, 10**400]),
    (v.positive, "be a finite number > 0", [5e-324, 1, 1e308], [0, -0.0, -1, math.inf, 10**400]),
    (v.non_negative, "be a finite number >= 0", [0, 1, 1e308], [-5e-324, -1, math.inf]),
    (v.probability, "be in [0, 1]", [0, 1, 0.5, 1e-320], [-5e-324, 1.0000000000000002, math.inf]),
    (v.open_probability, "be in (0, 1)", [0.5, 1e-320, 1 - 1e-16], [0, 1, -0.5, math.inf]),
]
names = [function.__name__ for function, *_ in TABLE]


@pytest.mark.parametrize(("function", "must", "good", "bad"), TABLE, ids=names)
def test_real_parameters(
    function: Callable[..., Any], must: str, good: list[Any], bad: list[Any]
) -> None:
    for value in good:
        taken = function(x=value)
        assert taken == value
        assert type(taken) is float
    for value in bad + NEVER:
        with pytest.raises(tb.ParameterError) as caught:
            function(x=value)
        assert str(caught.value).startswith(f"x must {must}, got "), value
        shown = repr(value)
        assert shown[:60] in str(caught.value)


@pytest.mark.parametrize(
    "value", [np.float64(0.5), np.float32(0.5), Fraction(1, 2), Decimal("0.5")]
)
def test_other_kinds_of_real_numbers_become_doubles(value: Any) -> None:
    assert v.positive(x=value) == 0.5
    assert type(v.positive(x=value)) is float


@pytest.mark.parametrize(
    ("function", "least"), [(v.count, 0), (v.positive_count, 1)], ids=["count", "positive_count"]
)
def test_counts(function: Callable[..., int], least: int) -> None:
    assert function(k=least) == least
    assert function(k=np.int64(7)) == 7
    assert type(function(k=np.int64(7))) is int
    assert function(k=10**30) == 10**30
    for value in [least - 1, -5, 1.0, 2.5, math.inf, Fraction(2), *NEVER]:
        with pytest.raises(tb.ParameterError) as caught:
            function(k=value)
        assert str(caught.value).startswith(f"k must be an integer >= {least}, got ")


def test_one_of() -> None:
    assert v.one_of(("a", "b"), side="a") == "a"
    for value in ["c", None, 1, math.nan]:
        with pytest.raises(tb.ParameterError, match=re.escape("side must be one of a, b, got ")):
            v.one_of(("a", "b"), side=value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "p must be a non-empty one-dimensional array of finite numbers >= 0, got []"),
        ([[0.5, 0.5]], "p must be a non-empty one-dimensional array"),
        (0.5, "p must be a non-empty one-dimensional array"),
        ("abc", "p must be a non-empty one-dimensional array"),
        (None, "p must be a non-empty one-dimensional array"),
        ([0.5, [1]], "p must be a non-empty one-dimensional array"),
        ([0.5, math.nan], "p[1] must be a finite number >= 0, got nan"),
        ([math.inf, 0.5], "p[0] must be a finite number >= 0, got inf"),
        ([0.5, 0.75, -0.25], "p[2] must be a finite number >= 0, got -0.25"),
        ([0.0, 0.0], "sum(p) must be > 0, got 0.0"),
        ([0.5, 0.4], "sum(p) must be 1 (within 1e-9), got 0.9"),
    ],
)
def test_masses(value: Any, message: str) -> None:
    with pytest.raises(tb.ParameterError, match="^" + re.escape(message)):
        v.masses(p=value)


def test_masses_are_a_copy_that_cannot_be_changed() -> None:
    given = np.array([0.25, 0.75])
    taken = v.masses(p=given)
    given[0] = 9.0
    assert taken.tolist() == [0.25, 0.75]
    with pytest.raises(ValueError, match="read-only"):
        taken[0] = 1.0


def test_weights_need_not_sum_to_1() -> None:
    assert v.masses(p=[3, 2], normalised=False).tolist() == [3.0, 2.0]


def test_a_long_value_is_shown_in_short() -> None:
    message = str(v.refuse("x", "be short", "y" * 1000))
    assert len(message) < 120
    assert message.endswith("...")


def test_a_refusal_is_a_value_error_of_this_package() -> None:
    refusal = v.refuse("x", "be good", 1)
    assert isinstance(refusal, ValueError)
    assert isinstance(refusal, tb.TightBudgetError)


@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        ([1, 2.5], [1.0, 2.5]),
        ([Fraction(1, 2), np.float32(0.5), np.uint8(200)], [0.5, 0.5, 200.0]),
        (np.array([Fraction(1, 2), 2], dtype=object), [0.5, 2.0]),
        (np.array([0.5, 2.0], dtype=np.float16), [0.5, 2.0]),
        ([True, 2.0], None),
        (["1", "2"], None),
        (np.array([True, False]), None),
        ([[1.0], [1.0, 2.0]], None),
        ([1j], None),
        (None, None),
    ],
    ids=repr,
)
def test_an_array_is_of_numbers_alone(value: Any, numbers: list[float] | None) -> None:
    found = v.real_array(value)
    assert (None if found is None else found.tolist()) == numbers


@pytest.mark.slow
@given(st.text(max_size=12) | st.from_regex(r"[0-9]{1,3}(e[+-]?[0-9]{1,22})?%", fullmatch=True))
@example("1e9999999999999999999%")
@example("1e-9999999999999999999%")
@example("1e400%")
def test_every_value_can_be_refused(value: str) -> None:
    message = str(v.refuse("rate", "be in [0, 1]", value))
    assert message.startswith("rate must be in [0, 1], got ")
    written = re.search(r"\(write (.*)\)$", message)
    if written:
        assert 0.0 < float(written[1]) < math.inf
