"""The cases that the laws ask in `make test` are of every kind."""

from __future__ import annotations

import math

from tests.cases import CASES, CORE, Case, with_every_kind

import tightbudget as tb
from tightbudget.pairs.direction import Direction

OURS = [case for case in CASES if case.name in CORE]


def traits(case: Case) -> tuple[object, ...]:
    """What an engine may treat in a way of its own."""
    one, other = (case.mechanism.pair(direction) for direction in Direction)
    return (
        case.mechanism.is_symmetric(),
        case.mechanism.is_mutual(),
        len(one.atoms()) > 0,
        one.max_loss()[1] < math.inf,
        bool(one.p_only().upper[0] > 0),
        bool(other.p_only().upper[0] > 0),
        one.transform() is not None,
        one.grid_origin() is not None,
    )


def test_the_names_are_those_of_cases() -> None:
    assert {case.name for case in CASES} >= CORE


def test_a_mechanism_whose_cases_are_not_named_is_asked_about_its_first_one() -> None:
    named = frozenset({"laplace-1"})
    cases = [Case("laplace-1", tb.Laplace(1.0)), Case("a", tb.Logistic(1.0))]
    assert with_every_kind(named, [*cases, Case("b", tb.Logistic(2.0))]) == {"laplace-1", "a"}


def test_every_mechanism_is_there() -> None:
    assert {case.mechanism.kind for case in OURS} == set(tb.mechanisms.MECHANISMS)


def test_every_trait_of_a_case_is_there() -> None:
    ours = [traits(case) for case in OURS]
    for i, values in enumerate(zip(*map(traits, CASES), strict=True)):
        assert {value[i] for value in ours} == set(values), i
