"""Without what shuffled batches owe to their data sets, a lower bound is too large."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from tests.balls import contains
from tests.guards.mutants import Without, each, lose_a_truth
from tests.mechanisms.test_shuffled import below, delta_of_two
from tests.mechanisms.test_shuffled_above import deltas_of, deltas_of_sizes

import tightbudget as tb
from tightbudget import privacy_buckets as classic
from tightbudget.mechanisms import shuffled, shuffled_above, shuffled_below


def two_batches_show_at_least_the_lower_bound() -> bool:
    shuffled._pair_of_largest.cache_clear()
    truth = max(delta_of_two(0.3, 1.0, direction) for direction in tb.mechanisms.Direction)
    attained = tb.Gaussian(1.0).shuffled(2).instance()
    return attained is not None and attained.delta(0.3).lower <= truth * (1 + 1e-9)


def cells_hold_the_largest_variable() -> bool:
    ctx.prec = 400
    cuts = np.array([-1.0, 0.25, 1.0, 1.001])
    found = shuffled.cell_masses(cuts, 7)(0.5)
    exact = [below(Fraction(c), Fraction(0.5), 7) for c in cuts.tolist()]
    truths = [b - a for a, b in itertools.pairwise([arb(0), *exact, arb(1)])]
    return all(contains(found, i, truth) for i, truth in enumerate(truths))


def no_lower_bound_is_above_what_is_attained() -> bool:
    epoch = tb.Gaussian(2.0).shuffled(100)
    attained = epoch.instance_of_runs(1)
    assert attained is not None
    most = (attained * 1).delta(0.5).upper
    found = tb.stopping_delta(epoch, [1], [0.5]), classic.delta(epoch, 0.5, n=200)
    return all(bounds.lower <= most for bounds in found)


def a_sample_of_truncated_batches_is_not_known_from_below() -> bool:
    truncated = tb.Gaussian(2.0).truncated_poisson(0.1, 12, 100)
    return truncated.subsampled(0.1).delta(0.1).lower == 0.0


def a_sample_of_a_shuffle_is_not_above_a_record_alone() -> bool:
    # two batches, a sample of .3, all other records 0: by sums over a lattice of outputs
    return tb.Gaussian(1.0).shuffled(2).subsampled(0.3).delta(0.1).lower <= 0.0606


def the_sum_of_all_batches_tells_no_more_than_the_batches() -> bool:
    epoch: Any = tb.Gaussian(5.0).shuffled(100)
    whole = epoch._all_batches() * 100
    return whole.epsilon(1e-5).lower <= (tb.Gaussian(5.0).allocated(100) * 100).epsilon(1e-5).upper


def a_sample_of_a_shuffle_shows_what_two_batches_do() -> bool:
    shuffled_above.above_shuffled.cache_clear()
    (truth,) = deltas_of(0.5, (-1.0,), (0.0,), 0.4)
    return tb.Gaussian(0.5).shuffled(2).subsampled(0.4).delta(0.0).upper >= truth * (1 - 1e-9)


def a_small_last_batch_shows_what_it_does() -> bool:
    (truth,) = deltas_of_sizes(20.0, (0.0,) * 9, 9, (0.0,))
    epoch = tb.Gaussian(20.0).shuffled(2, smaller=1)
    return epoch.delta(0.0).upper >= truth * (1 - 1e-9)


def a_hidden_record_shows_what_the_theorem_says(least: float = 1e-9, rate: float = 1.0) -> bool:
    """Of 9 batches, each other one shows an empty place with probability 1/2."""
    base, fall = tb.Gaussian(2.0), math.log(rate / (rate - 0.5)) if rate > 0.5 else math.inf
    shuffled_above._Average.of.cache_clear()
    pair = base.pair(tb.mechanisms.Direction.REMOVE)
    found = shuffled_above._Hidden.of(pair, 9, rate, fall, least)
    upper = found.delta(np.zeros(1), shuffled_above._delta(pair, np.zeros(1)))[0]
    changed = 8 * (rate - 0.5) * base.delta(fall).lower if rate > 0.5 else 0.0
    hidden = (
        math.comb(8, j) / 2**8 * (base.allocated(j + 1) * 1).delta(0.0).lower for j in range(9)
    )
    return bool(upper >= (math.fsum(hidden) + 2 * changed) * (1 - 1e-9))


def two_batches_show_at_least_a_sum_of_exponentials() -> bool:
    shuffled_below._sums.cache_clear()
    truth = max(delta_of_two(0.3, 0.5, direction) for direction in tb.mechanisms.Direction)
    return shuffled_below.SumOfExponentials(0.5, 2).delta(0.3).lower <= truth * (1 + 1e-9)


MUTATIONS = [
    Without(
        "a zeroed record adds to the sum as others do",
        {"zeroed-record-adds-to-the-sum": "absent = sum_of_two(others, rest, one.plan)"},
        two_batches_show_at_least_a_sum_of_exponentials,
    ),
    Without(
        "other records change nothing",
        {"change-of-all-batches": "each = 0.0"},
        a_hidden_record_shows_what_the_theorem_says,
    ),
    Without(
        "other records show an empty place more often",
        {"chance-of-a-clone-rounded-down": "kappa = Fraction(9, 10)"},
        a_hidden_record_shows_what_the_theorem_says,
    ),
    Without(
        "places of records that are not in the sample look empty, and all others",
        {"empty-place-or-clone": "kappa = Fraction(9, 10)"},
        lambda: a_hidden_record_shows_what_the_theorem_says(rate=0.5),
    ),
    Without(
        "batches of all sizes hide the record",
        {"small-batches-hide-less": "return self.steps"},
        a_small_last_batch_shows_what_it_does,
    ),
    Without(
        "other records are in the sample as often as the record is",
        {"others-in-the-sample": "base = self.base.pair_in_sample(direction, self.rate / 8)"},
        a_sample_of_a_shuffle_shows_what_two_batches_do,
    ),
    Without(
        "what others change is in one of both data sets alone",
        {"changed-on-both-sides": "whole = self.changed + 0.0 * epsilons"},
        a_hidden_record_shows_what_the_theorem_says,
    ),
    Without(
        "fewer empty places than are listed never occur",
        {
            "fewer-hidden-than-listed": "at_least = [binomial_tails(8, kappa, j - 1)[1]"
            " for j in (hidden[0], *hidden)]"
        },
        lambda: a_hidden_record_shows_what_the_theorem_says(0.4),
    ),
    Without(
        "a zeroed record leaves the mark of the records beside it",
        {"zeroed-record-leaves-its-mark": "present, zeroed = masses(2.0 * m), masses(0.0)"},
        two_batches_show_at_least_the_lower_bound,
        slow=True,
    ),
    Without(
        "another batch than the record's may have the largest sum",
        {"others-may-be-the-largest": "mass = masses_between(cuts, mean) * powers"},
        cells_hold_the_largest_variable,
    ),
    Without(
        "data sets that attain truncated batches do not attain those of a sample",
        {"sample-attains-nothing": "return None"},
        a_sample_of_truncated_batches_is_not_known_from_below,
    ),
    Without(
        "a record that is alone is in a random batch, not in a known one",
        {"shuffled-alone": "alone = self.base"},
        a_sample_of_a_shuffle_is_not_above_a_record_alone,
    ),
    Without(
        "the sum of all batches has the noise of each of them",
        {"noise-of-all-batches": "sigma = self.base.sigma"},
        the_sum_of_all_batches_tells_no_more_than_the_batches,
    ),
    Without(
        "a stop's lower bound is that of what is attained",
        {"stopping-lower-bound-attained": "return bounds"},
        no_lower_bound_is_above_what_is_attained,
    ),
    Without(
        "the lower bound of buckets is that of what is attained",
        {"buckets-lower-bound-attained": "return Trees(trees)"},
        no_lower_bound_is_above_what_is_attained,
    ),
]


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_a_guard_that_is_gone_is_missed(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
