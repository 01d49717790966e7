"""Every guard of workflows is taken away once, and a truth must be lost."""

from __future__ import annotations

import pytest
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.workflows import Workflow, residue_filter

COSTLY, CHEAP = tb.Laplace(1.0), tb.Laplace(4.0)
SHUFFLED = tb.Gaussian(1.0).shuffled(20)


def the_costlier_move_counts() -> bool:
    choice = Workflow({"s": [(COSTLY, "end"), (CHEAP, "end")], "end": []})
    other = Workflow({"s": [(CHEAP, "end"), (COSTLY, "end")], "end": []})
    least = (COSTLY * 1).delta(0.2).lower
    return all(one.delta({"end": 0.2}).upper >= least for one in (choice, other))


def infinite_losses_count() -> bool:
    leaky = tb.ApproximateDP(0.1, 0.01)
    found = Workflow.chain(leaky, [1, 2]).delta({1: 0.05, 2: 0.1})
    return found.upper >= tb.stopping_delta(leaky, [1, 2], [0.05, 0.1]).lower


def one_way_of_choosing_gains_the_lower_bound() -> bool:
    found = Workflow.chain(COSTLY, [1, 2]).delta({1: 0.5, 2: 0.7})
    exact = tb.stopping_delta(COSTLY, [1, 2], [0.5, 0.7])
    return found.lower <= exact.upper


def the_lower_bound_is_that_of_data_sets() -> bool:
    found = Workflow.chain(SHUFFLED, [1, 2]).delta({1: 3.0, 2: 4.0})
    return found.lower <= 1.01 * tb.stopping_delta(SHUFFLED, [1, 2], [3.0, 4.0]).lower


def a_filter_that_looks_ahead_keeps_delta() -> bool:
    pure, gaussian = tb.Laplace(1.5), tb.Gaussian(2.0)
    found = residue_filter({"a": pure, "b": gaussian}, epsilon=1.5, delta=0.01)
    return found.workflow.delta(1.5).upper <= 0.01


WORKFLOWS = [
    Without(
        "a choice that is not covered",
        {"residue-covered": "covered = True"},
        a_filter_that_looks_ahead_keeps_delta,
        slow=True,
    ),
    Without(
        "the last move alone",
        {"any-move-is-chosen": "rest[:] = np.maximum(0.0, value - sub_down(sure, own))"},
        the_costlier_move_counts,
    ),
    Without(
        "infinite losses of one block alone",
        {"infinite-loss-on-the-way": "return k.infinity.upper if sure == 0.0 else sure"},
        infinite_losses_count,
    ),
    Without(
        "a gain without its cost",
        {"cost-goes-with-the-gain": "p = np.where(better, a, p)"},
        one_way_of_choosing_gains_the_lower_bound,
    ),
    Without(
        "a lower bound of pairs that only dominate",
        {"workflow-lower-bound-attained": "lower = found.lower"},
        the_lower_bound_is_that_of_data_sets,
        slow=True,
    ),
]


@each(WORKFLOWS)
def test_without_the_guard_a_truth_is_lost(
    mutation: Without, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_a_truth(monkeypatch, mutation)
