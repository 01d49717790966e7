"""Without what a mechanism has to say about itself, an upper bound is too small."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from tests.exact import exp_ends
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.engine.buckets.compose import Part
from tightbudget.engine.readings.renyi import _by_parts
from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.either import either_within
from tightbudget.mechanisms.exponential import _Strategy, of_group
from tightbudget.numerics.rounding import UNIT
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair


@dataclass(frozen=True)
class Coin(Mechanism):
    """A mechanism as a newcomer writes it: two coins, and not a word about its directions."""

    def pair(self, direction: Direction) -> Pair:
        p = [Fraction(1, 10), Fraction(9, 10)]
        q = [Fraction(1, 2), Fraction(1, 2)]
        both = (p, q) if direction is Direction.REMOVE else (q, p)
        return AtomicPair.from_fractions(*both)


def the_worse_direction_counts() -> bool:
    """At e^eps = 2, P - 2 Q is at most 0 everywhere for REMOVE; for ADD it is 3/10 on one side."""
    return abs((Coin() * 1).delta(math.log(2.0)).upper - 0.3) < 1e-3


def a_multiplier_s_sigma_is_at_most_the_product() -> bool:
    return all(
        Fraction(tb.Gaussian.of_noise_multiplier(z, sensitivity=0.1).sigma)
        <= Fraction(z) * Fraction(0.1)
        for z in (1.1, 1.3, 1.7, 2.3)
    )


def a_scale_of_an_epsilon_is_at_most_the_quotient() -> bool:
    return all(
        Fraction(made.scale) <= 1 / Fraction(epsilon)
        for epsilon in (0.1, 0.3, 0.7, 0.9)
        for made in (tb.Laplace.of_epsilon(epsilon), tb.DiscreteLaplace.of_epsilon(epsilon))
    )


def a_response_of_an_epsilon_loses_at_least_that() -> bool:
    # e^epsilon from below is enough: the exact odds are above it
    return all(
        Fraction(p) / (1 - Fraction(p)) >= Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**52))
        for epsilon in (0.1, 0.5, 1.0, 3.0, 10.0, 17.0, 18.0, 19.0)
        for p in [tb.RandomizedResponse.of_epsilon(epsilon).p]
    )


def a_point_on_the_line_of_all_curves_is_not_raised() -> bool:
    """No curve is below 1 - e^eps: a delta that rounding put there is taken to lie on it."""
    curve = tb.FromCurve((-0.7,), (math.nextafter(-math.expm1(-0.7), 0.0) - 1e-16,))
    lowest = min(delta for t, delta in curve._points(up=False) if 0 < t < 1)
    return lowest <= 1 - exp_ends(-0.7)[1]


def an_uncertain_chance_is_the_worse_one() -> bool:
    runs = either_within(tb.Bounds(0.1, 0.3), tb.Laplace(0.5), tb.Laplace(5.0)) * 1
    worst = tb.either(0.3, tb.Laplace(0.5), tb.Laplace(5.0)) * 1
    return runs.delta(1.0).upper >= worst.delta(1.0).lower


def above_the_largest_loss_is_only_what_is_near_it() -> bool:
    """At most what lies within 64 units of 2^-53 of the largest loss is counted above it."""
    found = []
    for sigma, q in ((0.3, 0.01), (0.25, 0.3), (1.0, 0.25), (0.3, 0.9)):
        end = -math.log1p(-q)
        bins = (
            tb.Gaussian(sigma).subsampled(q).pair(Direction.ADD).bins(np.array([end]), np.zeros(1))
        )
        assert bins is not None
        # L > y for the loss y of the base at end - 64 units
        y = -math.log((1.0 - q) * math.expm1(64.0 * UNIT * end) / q)
        most = math.erfc((y * sigma - 0.5 / sigma) / math.sqrt(2.0)) / 2.0
        found.append(bins.p.lower[1] <= most)
    return all(found)


def bins_do_not_contradict_the_formula_of_a_moment() -> bool:
    """The Renyi divergence from bins is not below what the formula of the moment says."""
    step = Part.of(tb.Gaussian(0.3).subsampled(0.9).pair(Direction.ADD), 1)
    return _by_parts(step, 2.0, 0.5).upper >= step.pair.log_moment(2.0)[0] / 2.0


def a_group_of_choices_is_inside_its_ends() -> bool:
    groups = {k: of_group(tb.ExponentialMechanism(0.1), k) for k in range(2, 12)}
    return all(
        Fraction(whole.least_epsilon) <= k * Fraction(0.1) <= Fraction(whole.epsilon)
        for k, whole in groups.items()
    )


def only_one_mechanism_s_runs_come_last() -> bool:
    """Of runs that are chosen after all else was seen, those of two mechanisms cannot both be."""
    run = tb.ExponentialMechanism(0.5) * 3 + tb.ExponentialMechanism(0.1) * 9
    attained = run.attained
    return attained is not None and sum(isinstance(m, _Strategy) for m, _ in attained.parts) == 1


MUTATIONS = [
    Without(
        "only the last runs see all others",
        {"strategy-comes-last": "comes_last = True"},
        only_one_mechanism_s_runs_come_last,
    ),
    Without(
        "a group's epsilon is rounded up",
        {"group-of-choices-rounds-up": "most = float(whole)"},
        a_group_of_choices_is_inside_its_ends,
    ),
    Without(
        "a group's epsilon is rounded down for lower bounds",
        {"group-of-choices-rounds-down": "least = most"},
        a_group_of_choices_is_inside_its_ends,
    ),
    Without(
        "a lifted point is below the exact one in the pair below",
        {"lifted-point-below": "pass"},
        a_point_on_the_line_of_all_curves_is_not_raised,
    ),
    Without(
        "a chance is its lower bound",
        {"uncertain-chance-reveals": "lost = 0.0"},
        an_uncertain_chance_is_the_worse_one,
    ),
    Without(
        "mass is moved above the largest loss only from within rounding of it",
        {"clear-of-largest-loss": "return np.maximum(x, floor) + 60 * reach, np.zeros(x.size)"},
        above_the_largest_loss_is_only_what_is_near_it,
    ),
    Without(
        "a cut near the largest loss is far enough from it to be made",
        {"clear-of-largest-loss": "return np.maximum(x, floor) + 4 * reach, np.zeros(x.size)"},
        above_the_largest_loss_is_only_what_is_near_it,
    ),
    Without(
        "mass below the largest loss is not counted above it",
        {"below-largest-loss": "if False:"},
        bins_do_not_contradict_the_formula_of_a_moment,
    ),
    Without(
        "a sigma is rounded down",
        {"multiplier-rounded-down": "sigma = z * s"},
        a_multiplier_s_sigma_is_at_most_the_product,
    ),
    Without(
        "a scale is rounded down",
        {"laplace-scale-rounded-down": "scale = s / e"},
        a_scale_of_an_epsilon_is_at_most_the_quotient,
    ),
    Without(
        "a scale of integer noise is rounded down",
        {"discrete-laplace-scale-rounded-down": "scale = s / e"},
        a_scale_of_an_epsilon_is_at_most_the_quotient,
    ),
    Without(
        "the chance of a true answer is rounded up",
        {"response-rounded-up": "p = float(1 / (1 + (k - 1) * Fraction(2.718281828459045**-e)))"},
        a_response_of_an_epsilon_loses_at_least_that,
    ),
    Without(
        "both directions are asked",
        {"both-directions-asked": "return True"},
        the_worse_direction_counts,
    ),
]


@each(MUTATIONS)
def test_a_guard_that_is_gone_is_missed(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)


def test_a_new_mechanism_is_not_symmetric_until_it_says_so() -> None:
    assert not Coin().is_symmetric()
    assert not Coin().is_mutual()
    assert (Coin() * 3).directions == tuple(Direction)
