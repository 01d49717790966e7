"""Without the pair that is attained, a lower bound is that of the dominating pair: too large."""

from __future__ import annotations

import pytest
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb


def no_lower_bound_is_above_what_is_attained() -> bool:
    epoch = tb.Gaussian(2.0).shuffled(100)
    attained = epoch.instance()
    assert attained is not None
    return (epoch * 2).delta(0.5).lower <= (attained * 2).delta(0.5).upper


MUTATIONS = [
    Without(
        "the lower bound of an answer is that of what is attained",
        {"lower-bound-attained": "joint = above"},
        no_lower_bound_is_above_what_is_attained,
    ),
    Without(
        "what is attained has the instances in place of the mechanisms",
        {"instance-taken": "return compose(mechanism * runs for mechanism, runs in self.parts)"},
        no_lower_bound_is_above_what_is_attained,
    ),
]


@each(MUTATIONS)
def test_a_guard_that_is_gone_is_missed(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
