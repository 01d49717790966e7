"""Guards of measures on several grids taken away: an exact delta is then above its upper bound."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.engine.buckets.compose import Parts
from tightbudget.engine.levels.levels import Room
from tightbudget.engine.levels.placing import LevelPlan, Run
from tightbudget.engine.levels.profile import LevelProfile
from tightbudget.pairs.direction import Direction


def above(mechanism: tb.Mechanism, epsilon: float, exact: float, **place: float) -> bool:
    """Whether the upper bound of two runs is above the exact delta of one run."""
    pair = mechanism.pair(Direction.REMOVE)
    low, high = place.get("low", -9.0), place.get("high", 9.0)
    run = Run(pair, 2, Fraction(0), 0, low, high, 0.0)
    plan = LevelPlan((run,), 0.25, Room((32,)), place.get("least", 0.0), 0.0)
    return LevelProfile(Parts.of(((pair, 2),)), plan).delta(epsilon).upper >= exact


GAUSS, COIN = tb.Gaussian(1.0), tb.RandomizedResponse(0.75)
NEARLY_ALL = 1.0 - 1.01 * math.exp(-30.0)  # delta(-30) of any two distributions of these

MUTATIONS = [
    Without(
        "left tails are lifted",
        {"levels-lift-left-tail": "pass"},
        lambda: above(GAUSS, -30.0, NEARLY_ALL, low=0.25),
    ),
    Without(
        "losses beyond the last grid are lost",
        {"levels-bins-beyond": "pass"},
        lambda: above(GAUSS, 2.0, 0.1, low=-0.25, high=0.5),
    ),
    Without(
        "atoms below the last grid are lifted",
        {"levels-lift-atoms": "pass"},
        lambda: above(COIN, -30.0, NEARLY_ALL, low=-0.25, high=0.25),
    ),
    Without(
        "atoms beyond the last grid are lost",
        {"levels-atoms-beyond": "pass"},
        lambda: above(COIN, 1.5, 0.1, low=-0.25, high=0.25),
    ),
    Without(
        "masses that are cut are lifted",
        {"levels-cut-lifted": "pass"},
        lambda: above(GAUSS, -30.0, NEARLY_ALL, least=0.2),
    ),
    Without(
        "an excess goes only where sums are known",
        {"levels-sums-known": "if False:"},
        fails="tests/engine/test_totals.py::test_an_excess_is_kept_where_sums_are_not_known",
    ),
    Without(
        "what placing takes of the Q-mass is not in the sum",
        {"levels-q-missing": "pass"},
        fails="tests/engine/test_totals.py::"
        "test_the_q_mass_that_placing_takes_away_is_known[0.2-0.05--2.0-1.0]",
    ),
    Without(
        "a part without a finite loss loses all",
        {"levels-certain": "self.lost = upper.infinite"},
        fails="tests/engine/test_levels.py::test_a_part_without_a_finite_loss_loses_all",
    ),
    Without(
        "less noise dominates more",
        {"less-noise-above": "return GaussianPair(min(self.m, other.m))"},
        fails="tests/engine/test_many_pairs.py::test_a_pair_dominates_both[RemovePair]",
    ),
    Without(
        "the larger rate dominates the smaller one",
        {"larger-rate-above": "return type(self)(base, min(self.q, other.q))"},
        fails="tests/engine/test_many_pairs.py::test_a_pair_dominates_both[RemovePair]",
    ),
    Without(
        "all runs are dominated, not one of each kind",
        {"between-counts-all": "count = len(group)"},
        fails="tests/engine/test_many_pairs.py::test_many_pairs_lie_between_few[1000000000.0]",
    ),
    Without(
        "pairs that dominate others say nothing of their lower bounds",
        {"levels-below": "beneath = None"},
        fails="tests/engine/test_many_pairs.py::"
        "test_grids_of_pairs_above_and_below_hold_the_exact_delta[Direction.REMOVE]",
    ),
]


@each(MUTATIONS)
def test_without_the_guard_an_upper_bound_is_false(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation, request.session)
