"""The exponential mechanism: values that others computed, compositions and refusals."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp
from tests.guards.mutants import Without, lose_a_truth

import tightbudget as tb
from tightbudget.errors import ParameterError
from tightbudget.mechanisms import bounded_range
from tightbudget.mechanisms.composition import Composable
from tightbudget.mechanisms.exponential import _Close, _Even, _lost, _Strategy, of_group

Choice = tb.ExponentialMechanism


# Source: a fine grid of the recursion, extrapolated, within 2e-4, and the best common interval
# (binomial sums over one t), which is what runs attain that are not chosen adaptively.
@pytest.mark.parametrize(
    ("runs", "epsilon", "alike", "adaptive", "off"),
    [(100, 0.1, 2.24357, 2.2508, 2e-4), (20, 0.5, 5.38837, 5.426, 2e-3)],
)
def test_values_of_the_recursion(
    runs: int, epsilon: float, alike: float, adaptive: float, off: float
) -> None:
    found = (Choice(epsilon) * runs).epsilon(1e-6)
    assert found.relative_gap <= 1e-4
    assert alike < found.lower
    assert found.lower - off <= adaptive <= found.upper + off
    assert found.upper < tb.compose([tb.ApproximateDP(epsilon)] * runs).epsilon(1e-6).lower


def test_delta_of_many_runs_has_the_default_gap() -> None:
    """Also within the upper end of a fine grid, extrapolated: 2.2508."""
    found = (Choice(0.1) * 100).delta(2.0)
    assert found.relative_gap <= 1e-4
    assert (Choice(0.1) * 100).epsilon(1e-6).upper <= 2.2510
    assert (Choice(0.1) * 100 + tb.Gaussian(8.0) * 2).delta(2.0).relative_gap <= 1e-4


@pytest.mark.slow
def test_a_thousand_runs_have_the_default_gap() -> None:
    """Delta as well, and beside sampled Gaussians."""
    many = Choice(0.1) * 1000
    for epsilon in (2.0, 8.3, 12.0):
        assert many.delta(epsilon).relative_gap <= 1e-4
    steps = tb.Gaussian(1.0).subsampled(0.01) * 1000
    assert (many + steps).epsilon(1e-6).relative_gap <= 3e-5


def test_the_distance_of_the_bounds_is_halved_as_often_as_takes_seconds() -> None:
    assert bounded_range.halvings_in_reach(0.1, 100) == 12
    assert bounded_range.halvings_in_reach(0.1, 1000) == 8
    assert (Choice(0.1) * 100 + tb.Gaussian(8.0))._most_halvings == 12
    assert (Choice(0.1) * 1000)._most_halvings == 8
    assert tb.compose([tb.Gaussian(8.0)])._most_halvings == 6


@pytest.mark.parametrize(("runs", "epsilon"), [(30, 0.1), (5, 1.0), (3, 8.0)])
def test_runs_of_one_common_interval_are_below(runs: int, epsilon: float) -> None:
    found = (Choice(epsilon) * runs).delta(runs * epsilon / 3)
    i = np.arange(runs + 1)
    for t in np.linspace(0.0, epsilon, 41).tolist():
        p = math.expm1(t - epsilon) / math.expm1(-epsilon)
        chances = [math.comb(runs, k) * p**k * (1 - p) ** (runs - k) for k in i.tolist()]
        loss = i * t + (runs - i) * (t - epsilon)
        value = float(np.dot(chances, np.maximum(0.0, -np.expm1(runs * epsilon / 3 - loss))))
        assert value <= found.upper * (1 + 1e-12)


def test_one_run_is_logistic_noise() -> None:
    for epsilon in (1e-4, 0.3, 1.0, 20.0):
        one = (Choice(epsilon) * 1).epsilon(1e-6)
        logistic = tb.Logistic(1.0, sensitivity=epsilon).epsilon(1e-6)
        assert one.lower <= logistic.upper
        assert logistic.lower <= one.upper


@pytest.mark.parametrize("epsilon", [1e-4, 0.05, 2.0, 12.0])
def test_more_runs_cost_more_and_less_than_pure_privacy(epsilon: float) -> None:
    found = [(Choice(epsilon) * runs).answer(delta=1e-6, rtol=1e-2).bounds for runs in (1, 2, 6)]
    for before, after in itertools.pairwise(found):
        assert before.lower < after.upper
    for runs, bounds in zip((1, 2, 6), found, strict=True):
        assert bounds.upper <= runs * epsilon * (1 + 1e-9)


@pytest.mark.parametrize("delta", [1e-15, 1e-3, 0.3])
def test_small_and_large_deltas(delta: float) -> None:
    found = (Choice(0.3) * 12).epsilon(delta)
    assert found.relative_gap <= 1e-4


def test_more_runs_than_are_taken_together_say_so() -> None:
    found = (Choice(0.01) * 10_001).epsilon(1e-6)
    assert found.apart == "more runs of exponential than are taken together"
    assert found.lower < found.upper < 1.3 * found.lower


def test_beside_gaussians_it_costs_more_than_either() -> None:
    steps = tb.Gaussian(2.0) * 3
    both, choices = (steps + Choice(0.3) * 4).epsilon(1e-6), (Choice(0.3) * 4).epsilon(1e-6)
    assert both.relative_gap <= 1e-4
    assert choices.upper < both.lower
    assert steps.epsilon(1e-6).upper < both.lower
    assert both.upper < choices.lower + steps.epsilon(1e-6).lower


def test_several_epsilons_are_apart_and_in_order() -> None:
    mixed = (Choice(0.2) * 5 + Choice(0.1) * 5).epsilon(1e-6)
    assert mixed.apart == "several choices of what runs next"
    assert (Choice(0.1) * 10).epsilon(1e-6).upper < mixed.lower
    assert mixed.upper < (Choice(0.2) * 10).epsilon(1e-6).lower
    assert mixed.relative_gap < 0.05


def strategies(asked: Composable | None) -> list[tuple[float, int]]:
    assert asked is not None
    return [(m.span, m.runs) for m, _ in asked.parts if isinstance(m, _Strategy)]


def test_only_the_last_runs_are_a_strategy() -> None:
    """A strategy sees everything before it: two of them cannot both come last."""
    mixed = Choice(0.5) * 3 + tb.Gaussian(2.0) + Choice(0.1) * 9
    assert strategies(mixed.attained) == [(0.5, 3)]
    assert strategies(mixed.attained_early) == []
    assert mixed.attained is not None
    assert (_Even(0.1), 9) in mixed.attained.parts


def test_before_other_blocks_nothing_is_a_strategy() -> None:
    """Of blocks that may be the last one to run, only the last one's runs see all others."""
    early = tb.stopping_delta(Choice(0.5), [2, 4], [1.2, 2.0])
    assert early.lower <= early.upper
    assert early.apart == "choices of what runs next before the last stop"
    never = tb.compose([Choice(0.5) * 4]).delta(2.0)
    assert early.upper >= never.lower


@pytest.mark.parametrize("order", [1.0001, 1.5, 2.0, 16.0, 300.0, math.inf])
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 4.0])
def test_renyi_is_that_of_the_worst_interval(order: float, epsilon: float) -> None:
    found = (Choice(epsilon) * 3).renyi(order)
    if order == math.inf or epsilon * order > 600:
        assert found.lower <= 3 * epsilon
        assert found.upper >= 3 * epsilon * (1 - 2 / order)
        return
    worst, s = 0.0, order - 1.0
    for t in np.linspace(0.0, epsilon, 2001).tolist():
        p = math.expm1(t - epsilon) / math.expm1(-epsilon)
        value = p * math.expm1(s * t) + (1 - p) * math.expm1(s * (t - epsilon))
        worst = max(worst, 3 * math.log1p(value) / s)
    assert worst <= found.upper * (1 + 1e-9)
    assert found.lower <= worst * (1 + 1e-5)


# Each run has the loss epsilon - x with a chance for every x > 0: so the largest losses add up.
@pytest.mark.parametrize(
    ("whole", "exact"),
    [
        (Choice(0.1) * 100, 10.0),
        (Choice(0.1) * 3 + Choice(0.25) * 2, 0.8),
        (Choice(0.1) * 2 + tb.Laplace(scale=2.0) * 3, 1.7),
        (Choice(0.1) * 7 + tb.RandomizedResponse(p=0.75), 0.7 + math.log(3.0)),
        (Choice(0.5) * 20_000, 10_000.0),
    ],
)
def test_without_a_delta_the_largest_losses_add_up(whole: tb.Composition, exact: float) -> None:
    found = whole.epsilon(0.0)
    assert found.lower <= exact * (1 + 1e-15)
    assert found.upper >= exact * (1 - 1e-15)
    assert found.relative_gap <= 1e-13
    assert not found.apart
    assert whole.answer(delta=0.0, target=exact * 0.99).bounds.lower > exact * 0.99
    assert whole.explain(delta=0.0).bounds == found


def test_without_a_delta_some_mass_at_infinity_is_never_covered() -> None:
    for other in (tb.Gaussian(2.0), tb.ApproximateDP(epsilon=0.1, delta=1e-9)):
        assert (Choice(0.1) * 5 + other).epsilon(0.0) == tb.Bounds(math.inf, math.inf)


def test_a_delta_below_the_mass_at_infinity_needs_no_choices() -> None:
    told = tb.TruncatedLaplace(scale=2.0, bound=9.0) * 25
    mass = told.engine.parts[0].infinity
    below, above = np.nextafter(mass.lower, 0.0), mass.upper * (1.0 + 1e-12)
    whole = told + Choice(0.403) * 7830
    assert whole.epsilon(below) == tb.Bounds(math.inf, math.inf)
    assert "engine" not in vars(whole)  # more than a minute on a slow machine
    few = told + Choice(0.1) * 2
    assert few.epsilon(below) == tb.Bounds(math.inf, math.inf)
    assert few.epsilon(above).upper < math.inf
    assert few.explain(delta=below).bounds.upper == math.inf


def test_a_delta_below_all_that_is_computed_is_bounded_by_the_largest_loss() -> None:
    answer = (Choice(0.1) * 100).answer(delta=1e-200)
    assert not answer.reached
    assert answer.bounds.upper == pytest.approx(10.0)


def test_a_group_is_a_mechanism_of_a_larger_epsilon() -> None:
    group = Choice(0.1).group(3)
    found, whole = (group * 5).epsilon(1e-6), (Choice(0.3) * 5).epsilon(1e-6)
    assert found.upper == pytest.approx(whole.upper, rel=1e-9)
    assert found.relative_gap <= 1e-4
    assert (group.group(2) * 1).epsilon(1e-6).upper == pytest.approx(
        (Choice(0.6) * 1).epsilon(1e-6).upper
    )
    assert (group * 5).renyi(3.0).upper == pytest.approx((Choice(0.3) * 5).renyi(3.0).upper)


@pytest.mark.parametrize("x", [1e-4, 0.3, 7.0])
def test_masses_of_the_worst_interval_are_enclosed(x: float) -> None:
    with mp.workdps(30):
        exact, found = -mp.expm1(-mp.mpf(x)), _lost(x, 0.0)
        assert found.lower[0] <= exact <= found.upper[0]


@pytest.mark.parametrize("size", [2, 3, 6, 7, 9])
def test_a_group_s_ends_are_rounded_apart(size: int) -> None:
    whole, exact = of_group(Choice(0.1), size), size * Fraction(0.1)
    assert isinstance(whole, _Close)
    assert Fraction(whole.least) <= exact <= Fraction(whole.epsilon)


def test_on_a_sample_it_says_what_is_not_known() -> None:
    found = (Choice(1.0).subsampled(0.1) * 10).epsilon(1e-6)
    assert found.apart == "a sample of choices of what runs next"
    assert found.lower < found.upper < (Choice(1.0) * 10).epsilon(1e-6).lower


def test_risk_does_not_take_the_losses_of_a_pair_for_those_of_a_mechanism() -> None:
    """P(L > 0.25) is 0.83 for an interval that begins there, and 0.52 for logistic noise."""
    risk = Choice(1.0).risk(0.25)
    p = math.expm1(0.2501 - 1.0) / math.expm1(-1.0)
    assert risk.exceedance.lower <= risk.delta.upper
    assert p <= risk.exceedance.upper


def test_what_is_kept_is_made_once() -> None:
    bounded_range.above.cache_clear()
    run = Choice(0.2) * 7
    run.curve(epsilons=[0.5, 0.7, 0.9])
    assert bounded_range.above.cache_info().misses <= 2


@pytest.mark.parametrize(
    ("epsilon", "message"),
    [
        (1e-5, r"epsilon must be in \[0.0001, 20\], got 1e-05"),
        (20.1, r"epsilon must be in \[0.0001, 20\], got 20.1"),
        (0.0, "epsilon must be a finite number > 0, got 0.0"),
        (math.nan, "epsilon must be a finite number > 0, got nan"),
        (math.inf, "epsilon must be a finite number > 0, got inf"),
        (-1.0, "epsilon must be a finite number > 0, got -1.0"),
    ],
)
def test_refusals(epsilon: float, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Choice(epsilon)


def test_refusals_of_groups_and_of_names() -> None:
    with pytest.raises(ParameterError, match=r"size \* epsilon must be at most 20, got 30"):
        Choice(10.0).group(3)
    with pytest.raises(ParameterError, match="epsilon is that of the whole mechanism"):
        Choice(epsilon=1.0, sensitivity=2.0)  # type: ignore[call-arg]


def a_sampled_group_attains_its_lower_bound() -> bool:
    # three records of which one or more are in a sample: no more than one run of an even interval
    # less than the base's pair, whose interval is chosen by what is asked
    grouped = (tb.ExponentialMechanism(1.0).subsampled(0.1).group(3) * 10).answer(delta=1e-6)
    p = 1 / (1 + math.exp(-0.5))
    even = tb.HistogramPair((p, 1 - p), (1 - p, p)).subsampled(1 - 0.9**3)
    return grouped.bounds.lower <= 1.001 * (even * 10).epsilon(1e-6).upper


def test_a_sampled_group_attains_its_lower_bound() -> None:
    assert a_sampled_group_attains_its_lower_bound()


def test_a_sampled_pair_that_no_data_set_attains_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without = Without(
        "the sampled pair of a strategy for an instance of a group",
        {"sampled-group-attained": "return sampled"},
        a_sampled_group_attains_its_lower_bound,
    )
    lose_a_truth(monkeypatch, without)
