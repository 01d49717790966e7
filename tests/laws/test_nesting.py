"""Laws of mechanisms made of mechanisms: a table has all that is in them, however nested."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest
from tests.cases import each_mechanism

import tightbudget as tb
from tightbudget.errors import ParameterError, RelationError
from tightbudget.mechanisms import Mechanism

WAYS: dict[str, Callable[[Mechanism], Mechanism]] = {
    "subsampled": lambda base: base.subsampled(0.25),
    "allocated": lambda base: base.allocated(5),
    "allocated-twice": lambda base: base.allocated(5, 2),
    "shuffled": lambda base: base.shuffled(4),
    "batches": lambda base: base.batches(3, 10),
    "replacement": lambda base: base.batches(3, 10, True),
    "replace-one": lambda base: base.batches(3, 10, sensitivity_of="replace-one"),
    "truncated": lambda base: base.truncated_poisson(0.25, 2, 5),
    "group": lambda base: base.group(2),
    "either": lambda base: tb.either(0.25, base, tb.ApproximateDP(0.5)),
    **{
        str(relation): lambda base, relation=relation: base.under(relation)  # type: ignore[misc]
        for relation in tb.Neighbouring
    },
}


def nested(base: Mechanism, depth: int) -> list[Mechanism]:
    """All mechanisms that ``depth`` ways make of a base; a way that is refused makes none."""
    found = []
    for ways in itertools.product(WAYS.values(), repeat=depth):
        made = base
        try:
            for way in ways:
                made = way(made)
        except (ParameterError, RelationError):
            continue
        found.append(made)
    return found


def comes_back(mechanism: Mechanism) -> None:
    back = Mechanism.from_dict(json.loads(json.dumps(mechanism.to_dict())))
    assert back == mechanism
    assert hash(back) == hash(mechanism)
    assert back.relation is mechanism.relation


@each_mechanism
def test_what_one_way_makes_comes_back_from_its_table(mechanism: Mechanism) -> None:
    for made in nested(mechanism, 1):
        comes_back(made)


@pytest.mark.parametrize(
    "base", [tb.Gaussian(2.0), tb.Laplace(2.0), tb.ApproximateDP(0.5)], ids=str
)
@pytest.mark.parametrize("depth", [2, 3])
def test_what_several_ways_make_comes_back_from_its_table(base: Mechanism, depth: int) -> None:
    found = nested(base, depth)
    assert len(found) > 20
    for made in found:
        comes_back(made)


def test_a_group_refuses_a_relation_that_its_base_was_not_declared_for() -> None:
    base = tb.Gaussian(1.0, relation=tb.Neighbouring.ADD_OR_REMOVE)
    with pytest.raises(RelationError, match=r"was declared for Neighbouring\.ADD_OR_REMOVE and"):
        tb.mechanisms.Group(base, 2, relation=tb.Neighbouring.ZERO_OUT)
