"""Without the pair that is attained, a lower bound is that of the dominating pair: too large."""

from __future__ import annotations

import math

import pytest
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.engine.answer import Answer, Asked


def no_lower_bound_is_above_what_is_attained() -> bool:
    epoch = tb.Gaussian(2.0).shuffled(100)
    attained = epoch.instance_of_runs(2)
    assert attained is not None
    return (epoch * 2).delta(0.5).lower <= (attained * 1).delta(0.5).upper


def a_joint_gap_is_compared_with_what_was_asked() -> bool:
    above, below = Answer(tb.Bounds(1.0, 1.00008)), Answer(tb.Bounds(0.9999, 1.0))
    return not above.down_to(below, Asked(words="it", gap=1e-4)).reached


def no_upper_bound_is_no_answer_where_the_other_pair_has_one() -> bool:
    above, below = Answer(tb.Bounds(1.7, math.inf)), Answer(tb.Bounds(1.7, 1.70001))
    return not above.down_to(below, Asked(words="it", gap=1e-4)).reached


def a_tail_that_is_cut_is_not_known_to_be_nothing() -> bool:
    # of so many epochs that what they cut off is more than an upper bound alone is given for
    return not (tb.Gaussian(2.61).allocated(50) * 10**9).answer(epsilon=1e13).reached


MUTATIONS = [
    Without(
        "the gap of the joint bounds decides",
        {"joint-gap-decides": "if self.reached and below.reached:\n    return Answer(bounds)"},
        a_joint_gap_is_compared_with_what_was_asked,
    ),
    Without(
        "an upper bound of inf is an answer where the pair below has none either",
        {"infinite-below-too": "if math.isinf(above.bounds.upper):\n    return above.reached"},
        no_upper_bound_is_no_answer_where_the_other_pair_has_one,
    ),
    Without(
        "a loss beyond a lattice is not beyond the largest loss",
        {"cut-tail-not-settled": "cut = False"},
        a_tail_that_is_cut_is_not_known_to_be_nothing,
    ),
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


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_a_guard_that_is_gone_is_missed(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
