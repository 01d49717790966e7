"""Without what batches of a fixed size owe to replacement, an upper bound is too small."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special as sp
from tests.guards.mutants import Without, each, lose_a_truth
from tests.mechanisms.test_batches import both_ways

import tightbudget as tb
from tightbudget.mechanisms.hidden_copies import hidden_copies
from tightbudget.mechanisms.second_order import _Excess
from tightbudget.mechanisms.subsampled import RemovePair
from tightbudget.pairs.direction import Direction


def the_upper_bound_is_above_the_data_sets_in_either_order() -> bool:
    pair = tb.Gaussian(2.0).batches(1, of=4).pair(Direction.REMOVE)
    found = pair.closed_delta(-0.2)
    return found is not None and found[1] >= both_ways(-0.2, 1.0, 0.25)


def nothing_is_lost() -> bool:
    pair = tb.Gaussian(2.0).batches(1, of=4).pair(Direction.REMOVE)
    atoms = pair.atoms()
    bins = pair.bins(np.zeros(1), np.zeros(1))
    assert bins is not None
    return float(bins.p.upper.sum() + atoms.p.upper.sum()) >= 1.0


def copies_that_are_not_listed_count() -> bool:
    # 1,000 places: about 70 copies are listed; their number is told, the noise is so small
    pair = tb.Gaussian(0.01).batches(1000, of=1000, replacement=True).pair(Direction.REMOVE)
    assert isinstance(pair.above, RemovePair)  # type: ignore[attr-defined]
    return float(pair.p_only().upper[0]) > 0.0


def copies_beyond_the_given_ones_count() -> bool:
    pair = hidden_copies(1.0, np.array([0.2, 0.1]), 0.7, 1e-3)
    assert pair is not None
    return float(pair.p_only().upper[0]) >= 1e-3


def two_records_of_the_clip_are_twice_the_clip_apart() -> bool:
    # the record of norm 1 against its opposite, for certain
    whole = tb.Gaussian(2.0).batches(5, of=5)
    return whole.epsilon(1e-5).upper >= tb.Gaussian(1.0).epsilon(1e-5).lower


def a_declared_sensitivity_is_not_taken_for_another_one() -> bool:
    declared = tb.Gaussian(2.0, relation=tb.Neighbouring.ZERO_OUT)
    try:
        declared.batches(1, of=4, sensitivity_of="replace-one")
    except tb.errors.RelationError:
        return True
    return False


def the_rates_are_on_their_sides_of_the_share() -> bool:
    for size, records in ((1, 3), (2, 3), (1, 10), (7, 10), (3, 7), (5, 11)):
        step, share = tb.Gaussian(2.0).batches(size, of=records), Fraction(size, records)
        attained = step.instance().base.rate  # type: ignore[union-attr]
        if not Fraction(attained) <= share <= Fraction(step.pair(Direction.REMOVE).above.q):  # type: ignore[attr-defined]
            return False
    return True


def fewer_copies_are_claimed_than_there_are() -> bool:
    step = tb.Gaussian(2.0).batches(3, of=10, replacement=True)
    weights = step.instance().base.weights  # type: ignore[union-attr]
    total = sum(map(Fraction, weights), Fraction(0))
    claimed = [sum(map(Fraction, weights[k:]), Fraction(0)) / total for k in (3, 2, 1)]
    exact = [Fraction(1, 1000), Fraction(28, 1000), Fraction(271, 1000)]  # at least k of 3
    return all(a <= b for a, b in zip(claimed, exact, strict=True))


def excess_of_one_normal_variable() -> tuple[list[float], list[float]]:
    """What is read of S(k), and its closed form, for a move of one sigma."""
    delta = tb.Gaussian(1.0).engine.reader()
    found = _Excess.of(
        lambda x: delta(x, 1e-6).upper, lambda order: order * (order - 1) / 2, 3.0, 4.0
    )
    exact = []
    for x in found.points:
        k, z = math.exp(x), x + 0.5
        value = math.e * sp.ndtr(2 - z) - 2 * k * sp.ndtr(1 - z) + k * k * sp.ndtr(-z)
        exact.append(float(value))
    return list(found.values), exact


def a_delta_is_below_what_is_read() -> bool:
    found, exact = excess_of_one_normal_variable()
    return found[0] >= exact[0]


def what_is_beyond_counts() -> bool:
    found, exact = excess_of_one_normal_variable()
    return found[-1] >= exact[-1]


MUTATIONS = [
    Without(
        "below 0 the upper bound is mirrored",
        {"mirrored-below-zero": "return RemovePair(base, rate)"},
        the_upper_bound_is_above_the_data_sets_in_either_order,
    ),
    Without(
        "what decides nothing has its mass",
        {"undecided-mass": "left = Enclosure(np.zeros(1), np.zeros(1))"},
        nothing_is_lost,
    ),
    Without(
        "copies that are not listed count as a loss of inf",
        {"copies-not-listed": "return at_most(0.0)"},
        copies_that_are_not_listed_count,
    ),
    Without(
        "copies beyond those that are listed count where their number is hidden",
        {"more-copies-than-listed": "pass"},
        copies_beyond_the_given_ones_count,
    ),
    Without(
        "a replacement moves the sum by twice the clip",
        {"replacement-moves-twice": "times = 1.0"},
        two_records_of_the_clip_are_twice_the_clip_apart,
    ),
    Without(
        "a sensitivity that was declared is not guessed anew",
        {"sensitivity-not-guessed": "fits = self.sensitivity_of"},
        a_declared_sensitivity_is_not_taken_for_another_one,
    ),
    Without(
        "a share is rounded down below and up above",
        {
            "share-rounded-apart": (
                "return Enclosure(np.array([float(share)]), np.array([float(share)]))"
            )
        },
        the_rates_are_on_their_sides_of_the_share,
    ),
    Without(
        "no copy has all of the chance that is left",
        {"no-copy-has-the-rest": "none = 0.5"},
        fewer_copies_are_claimed_than_there_are,
    ),
    Without(
        "numbers of a user's records are left out only where they next to never happen",
        {"fewer-than-listed": "if left < 0.5:"},
        fails="tests/mechanisms/test_batches.py::test_numbers_that_next_to_never_happen_are_left_out",
    ),
    Without(
        "the rate of the pair above in second order is raised",
        {"second-order-rate": "rate = float(copies.upper[0])"},
        fails="tests/mechanisms/test_second_order.py::test_the_rate_is_not_below_the_share_times_the_factor",
    ),
    Without(
        "a chord of delta is above it",
        {"chord-above-delta": "width = math.exp(points[-2]) * (x - points[-2])"},
        a_delta_is_below_what_is_read,
    ),
    Without(
        "what lies beyond the last threshold counts",
        {"beyond-the-last": "rest = 0.0"},
        what_is_beyond_counts,
    ),
    Without(
        "what delta makes between the last threshold and a farther one counts",
        {"delta-falls": "between = 0.0"},
        fails=(
            "tests/mechanisms/test_second_order.py::"
            "test_what_is_beyond_is_at_least_the_excess_where_delta_is_read_further[1.0]"
        ),
    ),
    Without(
        "a square that meets the gain once is four times as large",
        {
            "tangent-of-the-square": (
                "least = min(least, value / (8.0 * math.exp(x) * math.expm1(epsilon - x)))"
            )
        },
        fails="tests/mechanisms/test_second_order.py::test_a_delta_is_read_off_second_moments[0.5-2.4]",
    ),
]


@pytest.mark.one_in(4)
@each(MUTATIONS)
def test_a_guard_that_is_gone_is_missed(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation, request.session)
