"""How records get into a run: one key in a plan, an option for each number on the command line."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.cases import CASES, Case

import tightbudget as tb
from tightbudget.mechanisms.derived import Derived
from tightbudget.notation.options import (
    OPTIONS,
    SAMPLERS,
    options_of,
    options_of_kind,
    runs_are_epochs,
    table_of,
)

DERIVED = {kind: cls for kind, cls in tb.mechanisms.MECHANISMS.items() if issubclass(cls, Derived)}


def test_every_way_to_sample_has_options() -> None:
    assert {cls.key for cls in DERIVED.values()} == SAMPLERS.keys()
    for kind, cls in DERIVED.items():
        of_base = {"base", "relation"}
        parameters = [name for name in cls._accepted() if name not in of_base]
        assert parameters == [*SAMPLERS[cls.key].options]
        assert parameters[0] == cls.first()
        assert {*options_of_kind(kind)} - {"base"} == {*SAMPLERS[cls.key].options.values()}


def test_an_option_means_one_thing() -> None:
    options = {option for sampler in SAMPLERS.values() for option in sampler.options.values()}
    assert options == OPTIONS.keys()
    marks = [sampler.mark for sampler in SAMPLERS.values()]
    assert len(marks) == len({*marks})
    for sampler in SAMPLERS.values():
        assert sampler.mark in sampler.options.values()
    for cls in {*tb.mechanisms.MECHANISMS.values()} - {*DERIVED.values()}:
        assert not options & {*cls._accepted()}, cls


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_options_say_what_a_table_says(case: Case) -> None:
    for mechanism in (case.mechanism, *nested(case.mechanism)):
        table = mechanism.to_dict()
        again = table_of(table["mechanism"], options_of(table))
        assert again == table
        assert tb.Mechanism.from_dict(json.loads(json.dumps(again))) == mechanism
        # in a plan, times beside the parameters is the number of runs
        run = mechanism * 3
        assert tb.Composition.from_json(run.to_json()) == run


def nested(mechanism: tb.Mechanism) -> list[tb.Mechanism]:
    """Samples a mechanism in each way that takes it, once more."""
    ways: dict[str, list[Any]] = {
        "subsampled": [0.25],
        "allocated": [4, 2],
        "shuffled": [4],
        "batches": [2, 8, True],
        "truncated_poisson": [0.25, 3, 8],
        "group": [2],
    }
    found = []
    for kind, given in ways.items():
        if kind in DERIVED:
            try:
                found.append(getattr(mechanism, kind)(*given))
            except tb.TightBudgetError:
                continue  # declared for another relation, or for Gaussian noise alone
    return found


@pytest.mark.parametrize(
    ("options", "table"),
    [
        ({}, {}),
        ({"rate": 0.1}, {"rate": 0.1}),
        ({"allocated": 10}, {"allocated": 10}),
        ({"allocated": 10, "each_in": 3}, {"allocated": {"steps": 10, "times": 3}}),
        ({"shuffled": 10, "group": 2}, {"shuffled": 10, "group": 2}),
        ({"batch": 6, "of": 60}, {"batches": {"batch": 6, "of": 60}}),
        (
            {"batch": 6, "of": 60, "with_replacement": True},
            {"batches": {"batch": 6, "of": 60, "replacement": True}},
        ),
        (
            {"rate": 0.1, "at_most": 9, "of": 60},
            {"truncated_poisson": {"rate": 0.1, "at_most": 9, "of": 60}},
        ),
        ({"rate": 0.1, "group": 2}, {"rate": 0.1, "group": 2}),
    ],
)
def test_options_become_one_key(options: dict[str, Any], table: dict[str, Any]) -> None:
    expected = {"mechanism": "gaussian", "sigma": 1.0, **table}
    assert table_of("gaussian", {"sigma": 1.0, **options}) == expected
    assert options_of(expected) == {"sigma": 1.0, **options}
    of_epochs = any(name in options for name in ("allocated", "shuffled"))
    assert runs_are_epochs(options) is of_epochs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0.1, "allocated": 10}, "rate and allocated are different ways to draw records"),
        ({"rate": 0.1, "batch": 6, "of": 60}, "rate and batch are different ways"),
        ({"shuffled": 10, "allocated": 10}, "allocated and shuffled are different ways"),
        ({"of": 60}, "of needs batch or at_most beside it, got 60 alone"),
        ({"each_in": 3}, "each_in needs allocated beside it, got 3 alone"),
        ({"rate": 0.1, "of": 60}, "of needs batch or at_most beside it, got 60 alone"),
        ({"batch": 6}, "batch needs of beside it, got 6 without it"),
        ({"rate": 0.1, "at_most": 6}, "at_most needs of beside it, got 6 without it"),
        ({"with_replacement": True}, "with_replacement needs batch beside it, got True alone"),
    ],
)
def test_options_that_contradict_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tb.ParameterError, match="^" + re.escape(message)):
        table_of("gaussian", {"sigma": 1.0, **options})
