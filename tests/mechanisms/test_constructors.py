"""Mechanisms made from what people have: a noise multiplier, an epsilon, a relation's name."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

import tightbudget as tb
from tightbudget.errors import ParameterError
from tightbudget.mechanisms import MECHANISMS, Mechanism

numbers = st.floats(1e-6, 1e6)


@given(numbers, numbers)
def test_sigma_is_the_largest_double_up_to_the_exact_product(z: float, s: float) -> None:
    made = tb.Gaussian.of_noise_multiplier(z, sensitivity=s)
    exact = Fraction(z) * Fraction(s)
    assert made.sensitivity == s
    assert Fraction(made.sigma) <= exact < Fraction(math.nextafter(made.sigma, math.inf))
    assert tb.Gaussian.of_noise_multiplier(z) == tb.Gaussian(z)


@given(numbers, numbers)
def test_the_scale_of_laplace_noise_is_the_largest_double_up_to_the_exact_quotient(
    epsilon: float, s: float
) -> None:
    made = tb.Laplace.of_epsilon(epsilon, sensitivity=s)
    exact = Fraction(s) / Fraction(epsilon)
    assert made.sensitivity == s
    assert Fraction(made.scale) <= exact < Fraction(math.nextafter(made.scale, math.inf))


@given(st.floats(1e-3, 1e3), st.integers(1, 1000))
def test_the_scale_of_integer_noise_is_the_largest_double_up_to_the_exact_quotient(
    epsilon: float, s: int
) -> None:
    made = tb.DiscreteLaplace.of_epsilon(epsilon, s)
    exact = s / Fraction(epsilon)
    assert made.sensitivity == s
    assert Fraction(made.scale) <= exact < Fraction(math.nextafter(made.scale, math.inf))


@given(st.floats(1e-9, 20.0), st.integers(2, 10**6))
def test_a_response_loses_its_epsilon_and_hardly_more(epsilon: float, categories: int) -> None:
    made = tb.RandomizedResponse.of_epsilon(epsilon, categories)
    before, ctx.prec = ctx.prec, 200
    try:
        p = Fraction(made.p)
        odds = p * (categories - 1) / (1 - p)
        loss = (arb(odds.numerator) / arb(odds.denominator)).log()
        assert loss > arb(epsilon) or loss.overlaps(arb(epsilon))
        assert loss < arb(epsilon) + (1e-14 if epsilon <= 1 else 1e-7)
    finally:
        ctx.prec = before


@settings(max_examples=25)
@given(st.floats(0.01, 5.0))
def test_one_run_costs_the_epsilon_that_it_was_made_of(epsilon: float) -> None:
    for made in (
        tb.Laplace.of_epsilon(epsilon, sensitivity=0.3),
        tb.DiscreteLaplace.of_epsilon(epsilon, sensitivity=2),
        tb.RandomizedResponse.of_epsilon(epsilon, categories=3),
    ):
        found = made.epsilon(0.0)
        assert epsilon <= found.upper <= epsilon * (1 + 1e-10)
        assert found.lower >= epsilon * (1 - 1e-10)


def test_a_clip_below_one_does_not_make_it_cheap() -> None:
    # 1.82824 is what the multiplier 1 costs; sigma = 1 with this sensitivity would cost 0.098
    trained = tb.Gaussian.of_noise_multiplier(1.0, sensitivity=0.1).subsampled(0.01) * 1000
    assert 1.8282 < trained.epsilon(1e-5).lower < trained.epsilon(1e-5).upper < 1.8283


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: tb.Gaussian.of_noise_multiplier(0.0),
            "noise_multiplier must be a finite number > 0, got 0.0",
        ),
        (
            lambda: tb.Gaussian.of_noise_multiplier(1.0, sensitivity=-1.0),
            "sensitivity must be a finite number > 0, got -1.0",
        ),
        (
            lambda: tb.Gaussian.of_noise_multiplier(1e300),
            "sensitivity / sigma must be in [1e-100, 1e12], got 1e-300",
        ),
        (lambda: tb.Laplace.of_epsilon(0), "epsilon must be a finite number > 0, got 0"),
        (
            lambda: tb.Laplace.of_epsilon(1e-300),
            "sensitivity / scale must be in [1e-100, 1e12], got 1e-300",
        ),
        (
            lambda: tb.DiscreteLaplace.of_epsilon(1.0, 0.5),  # type: ignore[arg-type]
            "sensitivity must be an integer >= 1, got 0.5",
        ),
        (
            lambda: tb.RandomizedResponse.of_epsilon(21.0),
            "epsilon must be in (0, 20], got 21.0",
        ),
        (
            lambda: tb.RandomizedResponse.of_epsilon(1.0, categories=1),
            "categories must be an integer >= 2, got 1",
        ),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=f"^{re.escape(message)}"):
        make()


# ------------------------------------------------------------------------- unknown names


COLOUR: dict[str, Any] = {"colour": 1}


@pytest.mark.parametrize("kind", MECHANISMS)
def test_every_mechanism_refuses_a_name_that_it_does_not_have(kind: str) -> None:
    with pytest.raises(ParameterError, match=f"^{kind} has no parameter 'colour' \\(it has "):
        MECHANISMS[kind](**COLOUR)
    with pytest.raises(
        tb.errors.FileError, match=f"^step: {kind} (has no parameter 'colour'|needs )"
    ):
        Mechanism.from_dict({"mechanism": kind, "colour": 1})


HINTS = [
    (tb.Gaussian, "noise_multiplier", "in Python Gaussian.of_noise_multiplier(z, sensitivity)"),
    (tb.Gaussian, "std", "sigma is the standard deviation of the noise, in the query's unit"),
    (tb.Gaussian, "epsilon", "calibrate finds the sigma for an epsilon and a delta"),
    (tb.Laplace, "epsilon", "in Python Laplace.of_epsilon(epsilon, sensitivity)"),
    (tb.DiscreteLaplace, "epsilon", "in Python DiscreteLaplace.of_epsilon(epsilon, sensitivity)"),
    (
        tb.RandomizedResponse,
        "epsilon",
        "in Python RandomizedResponse.of_epsilon(epsilon, categories)",
    ),
    (tb.Gaussian, "rate", "in Python .subsampled(rate)"),
    (tb.Laplace, "sampling_probability", "in Python .subsampled(rate)"),
    (tb.Gaussian, "steps", "in Python mechanism * times"),
    (tb.Logistic, "stddev", "the noise has sigma (its standard deviation) or scale"),
    (tb.Gaussian, "sgima", "did you mean sigma?"),
    (tb.Gaussian, "relaton", "did you mean relation?"),
]


@pytest.mark.parametrize(("mechanism", "name", "hint"), HINTS)
def test_a_name_that_people_expect_is_answered_with_the_right_one(
    mechanism: type[Mechanism], name: str, hint: str
) -> None:
    given: dict[str, Any] = {name: 1.0}
    with pytest.raises(ParameterError, match=f"has no parameter '{name}'.*{re.escape(hint)}"):
        mechanism(**given)


def test_every_hint_is_for_a_name_that_the_mechanism_does_not_have() -> None:
    for mechanism in MECHANISMS.values():
        assert not set(mechanism.meant) & set(mechanism._accepted())


# ------------------------------------------------------------------------- relations


@pytest.mark.parametrize("relation", tb.Neighbouring)
def test_a_relation_is_taken_by_its_name(relation: tb.Neighbouring) -> None:
    for name in (relation.value, relation.name, relation.value.upper(), relation):
        named: Any = name
        assert tb.Gaussian(1.0, relation=named).relation is relation
        assert tb.Gaussian(1.0).under(named).relation is relation


@pytest.mark.parametrize("bad", ["friends", "", 1, b"zero-out", object])
def test_what_is_no_relation_is_refused(bad: Any) -> None:
    message = "^relation must be one of add-or-remove, replace-one, zero-out, got "
    with pytest.raises(ParameterError, match=message):
        tb.Gaussian(1.0, relation=bad)
    with pytest.raises(ParameterError, match=message):
        tb.Gaussian(1.0).under(bad)
