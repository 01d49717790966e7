"""Laws that every composition keeps, asked of the public value."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

import pytest
from flint import arb, ctx
from tests.cases import CASES, each_mechanism, slow_unless_core

import tightbudget as tb
from tightbudget.engine.buckets.compose import Parts
from tightbudget.engine.buckets.refine import refine
from tightbudget.engine.question import DeltaAt, EpsilonAt
from tightbudget.mechanisms import Mechanism
from tightbudget.numerics.bounds import Bounds
from tightbudget.pairs.direction import Direction

# every third one, for laws that cost more
some = pytest.mark.parametrize(
    "mechanism",
    [pytest.param(c.mechanism, id=c.name, marks=slow_unless_core(c)) for c in CASES[::3]],
)
runs = pytest.mark.parametrize("times", [1, 2, 7, 64])
DELTA = 1e-5


def reached(ask: Callable[..., Bounds], *question: object) -> Bounds:
    """The bounds, also those that were too wide for the gap that was asked for."""
    try:
        return ask(*question)
    except tb.PrecisionError as error:
        return Bounds(error.lower, error.upper)


# ------------------------------------------------------------------------- the value


@each_mechanism
def test_composing_k_times_is_k_compositions(mechanism: Mechanism) -> None:
    three = mechanism * 3
    assert three == mechanism + mechanism + mechanism
    assert three == 3 * mechanism == tb.compose([mechanism] * 3)
    assert three == tb.compose([mechanism, mechanism * 2]) == sum([mechanism, mechanism * 2])
    assert three == (mechanism * 1) * 3 == mechanism * 1 + mechanism * 2
    assert three.runs == 3
    assert three.parts == ((mechanism, 3),)
    assert hash(three) == hash(mechanism * 2 + mechanism)
    assert three != mechanism * 4


@each_mechanism
def test_compositions_do_not_change(mechanism: Mechanism) -> None:
    value = mechanism * 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.parts = ()  # type: ignore[misc]
    longer = value + tb.Gaussian(17.0)
    assert value == mechanism * 2
    assert longer != value
    assert len({value, mechanism * 2, longer}) == 2


@each_mechanism
def test_json_builds_the_same_value(mechanism: Mechanism) -> None:
    value = mechanism * 5 + tb.RandomizedResponse(0.51)
    assert tb.Composition.from_json(value.to_json()) == value


@pytest.mark.parametrize("relation", tb.Neighbouring, ids=str)
def test_json_of_everything_at_once(relation: tb.Neighbouring) -> None:
    fitting = [case.mechanism for case in CASES if case.mechanism.relation in (None, relation)]
    value = tb.compose([mechanism * (i + 1) for i, mechanism in enumerate(fitting)])
    again = tb.Composition.from_json(value.to_json())
    assert again == value
    assert again.to_json() == value.to_json()
    assert again.runs == value.runs


@each_mechanism
def test_nothing_costs_nothing(mechanism: Mechanism) -> None:
    for nothing in (mechanism * 0, tb.compose([]), tb.Composition()):
        assert nothing == tb.Composition()
        assert nothing.delta(0.0) == nothing.delta(3.0) == Bounds(0.0, 0.0)
        assert nothing.epsilon(0.0) == nothing.epsilon(0.5) == Bounds(0.0, 0.0)
        assert nothing.total_variation() == Bounds(0.0, 0.0)
        assert nothing.renyi(2.0) == nothing.renyi(math.inf) == Bounds(0.0, 0.0)
    assert mechanism * 2 + mechanism * 0 == mechanism * 2


# ---------------------------------------------------------------------- eps and delta


@pytest.mark.one_in(4)
@each_mechanism
@runs
def test_the_gap_of_epsilon_is_the_default_one(mechanism: Mechanism, times: int) -> None:
    composition = mechanism * times
    bounds = composition.epsilon(DELTA)
    lost = composition.delta(math.inf)
    if lost.lower > DELTA:
        assert bounds == Bounds(math.inf, math.inf)
    else:
        assert lost.upper <= DELTA
        assert bounds.upper < math.inf
        if composition.attained is not None and not composition.apart:
            assert bounds.relative_gap <= 1e-4  # two pairs that meet: their joint gap counts
            return
        below = composition.attained or composition
        # where a dominating pair and one that is attained answer, each end is close to its own
        dominating = composition.engine.answer(EpsilonAt(DELTA), rtol=1e-4)
        assert dominating.reached
        assert bounds == Bounds(below.epsilon(DELTA).lower, dominating.bounds.upper)
        for end in (below.epsilon(DELTA), dominating.bounds):
            assert end.upper - end.lower <= 1e-4 * end.upper


@pytest.mark.one_in(4)
@each_mechanism
@pytest.mark.parametrize("times", [1, 7])
def test_epsilon_and_delta_are_inverse(mechanism: Mechanism, times: int) -> None:
    composition = mechanism * times
    for delta in (0.1, 1e-3):
        epsilon = composition.epsilon(delta)
        if epsilon.upper < math.inf:
            assert reached(composition.delta, epsilon.upper, 1e-3).lower <= delta
        if 0 < epsilon.lower < math.inf:
            below = epsilon.lower * (1 - 1e-9)
            assert reached(composition.delta, below, 1e-3).upper >= delta


@pytest.mark.one_in(4)
@each_mechanism
def test_more_runs_cost_more_and_more_epsilon_costs_less(mechanism: Mechanism) -> None:
    answers = {
        (k, e): reached((mechanism * k).delta, e, 1e-2) for k in (1, 2, 3) for e in (0.0, 0.5, 2.0)
    }
    for (k, e), bounds in answers.items():
        assert 0 <= bounds.lower <= bounds.upper
        for (other_k, other_e), other in answers.items():
            if k <= other_k and e >= other_e:
                assert bounds.lower <= other.upper


@pytest.mark.one_in(3)
@some
def test_anything_more_costs_more(mechanism: Mechanism) -> None:
    extra = tb.Laplace(3.0)
    for epsilon in (0.0, 0.8):
        alone = reached((mechanism * 2).delta, epsilon, 1e-2)
        both = reached((mechanism * 2 + extra).delta, epsilon, 1e-2)
        assert alone.lower <= both.upper
        # and never more than both together
        other = (extra * 1).delta(0.0)
        assert both.lower <= alone.upper + other.upper or alone.upper == math.inf


@pytest.mark.one_in(4)
@each_mechanism
def test_a_chance_of_failure_beside_it_costs_just_that(mechanism: Mechanism) -> None:
    # a step whose one finite loss is 0 is on an edge of any grid: it makes none finer or coarser
    chance, plan = 1e-4, mechanism * 7
    alone, beside = (reached(c.delta, 0.5) for c in (plan, plan + tb.ApproximateDP(0.0, chance)))
    lower, upper = (chance + (1.0 - chance) * end for end in (alone.lower, alone.upper))
    assert beside.lower <= upper * (1 + 1e-9)
    assert lower <= beside.upper * (1 + 1e-9)
    assert beside.relative_gap <= max(1e-4, 2 * alone.relative_gap)


@each_mechanism
def test_beside_a_release_of_the_record_everything_is_lost(mechanism: Mechanism) -> None:
    both = mechanism * 2 + tb.ApproximateDP(0.0, 1.0, relation=mechanism.relation)
    assert both.delta(1.0).lower == both.delta(1.0).upper == 1.0
    assert both.epsilon(delta=DELTA).lower == math.inf


@pytest.mark.one_in(4)
@each_mechanism
def test_total_variation_is_delta_at_0(mechanism: Mechanism) -> None:
    composition = mechanism * 2
    bounds = reached(composition.total_variation)
    assert bounds == reached((mechanism * 2).delta, 0.0)
    assert bounds.lower <= 1.0


@pytest.mark.one_in(4)
@each_mechanism
def test_the_answer_is_the_worse_direction(mechanism: Mechanism) -> None:
    for epsilon in (0.0, 0.4):
        whole = reached((mechanism * 3).delta, epsilon, 1e-2)
        for direction in Direction:
            steps = Parts.of((mechanism * 3).pairs(direction))
            one = refine(DeltaAt(epsilon), (steps,), 1e-2).bounds
            assert one.lower <= whole.upper
    if mechanism.is_symmetric():
        both = [Parts.of((mechanism * 3).pairs(direction)) for direction in Direction]
        first, second = (refine(DeltaAt(0.4), (s,), 1e-2).bounds for s in both)
        assert first.overlaps(second)


@some
def test_a_closer_answer_is_inside_a_rough_one(mechanism: Mechanism) -> None:
    rough, close = (reached((mechanism * 3).epsilon, 1e-4, rtol) for rtol in (1e-1, 1e-5))
    assert rough.overlaps(close)


@pytest.mark.parametrize(
    "mechanism",
    [tb.RandomizedResponse(0.75), tb.RandomizedResponse(0.51), tb.ApproximateDP(0.3, 1e-6)],
)
@runs
def test_a_lattice_has_no_discretisation_error(mechanism: Mechanism, times: int) -> None:
    # what is left is the share of delta that cutting may cost, a hundredth of the gap
    for epsilon in (0.0, 0.1):
        bounds = (mechanism * times).delta(epsilon, rtol=1e-6)
        assert bounds.relative_gap <= 1e-8 or bounds.upper <= 1e-6 * (1 + 1e-8) * times


def test_delta_below_the_mass_at_infinity_costs_everything() -> None:
    run = tb.ApproximateDP(0.1, 0.01) * 2
    lost = 1 - 0.99**2
    assert run.epsilon(lost * (1 - 1e-9)) == Bounds(math.inf, math.inf)
    assert run.epsilon(lost * (1 + 1e-9)).upper < 0.2 + 1e-9
    assert lost in run.delta(math.inf) or run.delta(math.inf).width < 1e-15


# ------------------------------------------------------------ curves, f-DP, divergences


def test_a_curve_is_its_points() -> None:
    run = tb.Gaussian(2.0) * 3
    by_epsilon = run.curve(epsilons=[0.0, 0.5, 1.0])
    assert all(by_epsilon[i].overlaps(run.delta(e)) for i, e in enumerate((0.0, 0.5, 1.0)))
    assert (by_epsilon.given, by_epsilon.answered) == ("epsilon", "delta")
    by_delta = run.curve(deltas=[1e-3, 1e-6], rtol=1e-3)
    assert all(by_delta[i].overlaps(run.epsilon(d, 1e-3)) for i, d in enumerate((1e-3, 1e-6)))
    assert all(0 < by_delta[i].relative_gap <= 1e-3 for i in range(2))
    assert len(by_delta) == 2
    table = by_delta.to_dict()
    assert table["delta"] == [1e-3, 1e-6]
    assert table["epsilon"]["lower"] == [by_delta[0].lower, by_delta[1].lower]
    assert table["epsilon"]["upper"] == [by_delta[0].upper, by_delta[1].upper]


TRADED = [tb.Laplace(1.0), tb.Gaussian(1.0).subsampled(0.25), tb.RandomizedResponse(0.75)]


def traded(run: tb.Composition, rate: float) -> Bounds:
    return run.tradeoff([rate])[0]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mechanism", TRADED, ids=["laplace", "sampled", "response"])
@pytest.mark.parametrize("times", [1, 3])
def test_the_tradeoff_is_consistent_with_delta(mechanism: Mechanism, times: int) -> None:
    run = mechanism * times
    rates = [0.0, 1e-3, 0.05, 0.3, 0.7, 1.0]
    missed = [reached(traded, run, a) for a in rates]
    for rate, bounds in zip(rates, missed, strict=True):
        assert 0 <= bounds.lower <= bounds.upper <= 1 - rate + 1e-12
        for epsilon in (0.0, 0.3, 1.0):
            # f(a) >= 1 - delta(eps) - e^eps a, for every eps
            least = 1 - run.delta(epsilon).upper - math.exp(epsilon) * rate
            assert bounds.upper >= least - 1e-12
    for one, two in itertools.pairwise(missed):
        assert one.upper >= two.lower  # more false alarms, fewer misses
    assert missed[-1] == Bounds(0.0, 0.0)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_the_tradeoff_of_gaussians_is_closed(mu: float) -> None:
    run = tb.Gaussian(2.0 / mu) * 4
    for z in (-3.0, -1.0, 0.0, 0.5, 2.0):
        with ctx.workprec(200):
            root = arb(2).sqrt()
            rate = (arb(z) / root).erfc() / 2  # P(N > z)
            truth = 1 - ((arb(z) - arb(mu)) / root).erfc() / 2  # P(N + mu <= z)
        bounds = run.tradeoff([float(rate)], rtol=1e-4)[0]
        assert bounds.upper - bounds.lower <= 1e-4
        assert bounds.lower - 1e-14 <= float(truth) <= bounds.upper + 1e-14


def renyi_laplace(a: float, m: float) -> float:
    return math.log(
        a / (2 * a - 1) * math.exp((a - 1) * m) + (a - 1) / (2 * a - 1) * math.exp(-a * m)
    ) / (a - 1)


def renyi_response(a: float, p: float) -> float:
    return math.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / (a - 1)


def renyi_sampled(a: int, q: float, sigma: float) -> float:
    return math.log(
        math.fsum(
            math.comb(a, i) * (1 - q) ** (a - i) * q**i * math.exp((i * i - i) / (2 * sigma**2))
            for i in range(a + 1)
        )
    ) / (a - 1)


RENYI: list[tuple[tb.Mechanism, float, float]] = [
    *[
        (tb.Gaussian(s), a, a / (2 * s * s))
        for s in (0.5, 1.0, 20.0)
        for a in (1.5, 2.0, 8.0, 64.0)
    ],
    *[
        (tb.Laplace(b), a, renyi_laplace(a, 1 / b))
        for b in (0.5, 1.0, 20.0)
        for a in (1.5, 2.0, 32.0)
    ],
    *[
        (tb.RandomizedResponse(p), a, renyi_response(a, p))
        for p in (0.51, 0.75, 0.99)
        for a in (1.5, 2.0, 32.0)
    ],
    *[
        (tb.Gaussian(s).subsampled(q), float(a), renyi_sampled(a, q, s))
        for s, q in ((1.0, 0.01), (4.0, 0.1), (0.7, 0.5))
        for a in (2, 3, 16)
    ],
]


@pytest.mark.parametrize(("mechanism", "order", "truth"), RENYI)
def test_renyi_divergences_are_the_closed_forms(
    mechanism: tb.Mechanism, order: float, truth: float
) -> None:
    for times in (1, 10):
        bounds = (mechanism * times).renyi(order, rtol=1e-3)
        assert bounds.lower <= truth * times * (1 + 1e-11) + 1e-13
        assert bounds.upper >= truth * times * (1 - 1e-11) - 1e-13
        assert bounds.relative_gap <= 1e-3


def test_the_largest_order_gives_the_largest_loss() -> None:
    assert (tb.Gaussian(1.0) * 1).renyi(math.inf).upper == math.inf
    assert 3 * math.log(3.0) == pytest.approx(
        (tb.RandomizedResponse(0.75) * 3).renyi(math.inf).upper
    )
    bounds = (tb.Laplace(4.0) * 8).renyi(math.inf)
    assert bounds.lower <= 2.0 <= bounds.upper
    assert bounds.relative_gap <= 1e-14
    assert (tb.ApproximateDP(1.0, 1e-9) * 1).renyi(2.0) == Bounds(math.inf, math.inf)


@some
def test_renyi_divergences_grow_with_the_order(mechanism: Mechanism) -> None:
    small, large, largest = (reached((mechanism * 2).renyi, a, 1e-2) for a in (2.0, 5.0, math.inf))
    assert 0 <= small.lower <= large.upper
    assert large.lower <= largest.upper * (1 + 1e-12)


# ------------------------------------------------------------------------- refusals


def test_mechanisms_of_different_relations_do_not_compose() -> None:
    sampled = tb.Gaussian(1.0).subsampled(0.1)
    replaced = tb.Laplace(1.0).under(tb.Neighbouring.REPLACE_ONE)
    for mixed in (
        lambda: sampled + replaced,
        lambda: tb.compose([sampled * 3, tb.Gaussian(2.0), replaced]),
        lambda: (tb.Gaussian(2.0) + replaced) + sampled * 2,
    ):
        with pytest.raises(tb.errors.RelationError) as caught:
            mixed()
        assert str(tb.Neighbouring.ADD_OR_REMOVE) in str(caught.value)
        assert str(tb.Neighbouring.REPLACE_ONE) in str(caught.value)
        assert "a way to draw records may hold for one relation alone" in str(caught.value)
    # what was not declared composes with everything, and what ran 0 times says nothing
    assert (sampled + tb.Gaussian(2.0)).relation is tb.Neighbouring.ADD_OR_REMOVE
    assert (replaced + tb.Gaussian(2.0)).relation is tb.Neighbouring.REPLACE_ONE
    assert (tb.Gaussian(2.0) * 2).relation is None
    assert (sampled * 0 + replaced).relation is tb.Neighbouring.REPLACE_ONE


def test_a_gap_out_of_reach_is_refused_with_the_one_that_was_reached() -> None:
    run = tb.Gaussian(1.0).subsampled(1e-3) * 1000
    with pytest.raises(tb.PrecisionError) as caught:
        run.epsilon(1e-5, rtol=1e-14)
    error = caught.value
    message = str(error)
    assert message.startswith("epsilon at delta = 1e-05 is in [")
    assert "relative gap 1e-14 was not reached" in message
    assert "(relative gap " in message
    rough = run.epsilon(1e-5, rtol=1e-3)
    assert rough.overlaps(Bounds(error.lower, error.upper))
