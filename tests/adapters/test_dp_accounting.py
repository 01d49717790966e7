"""Events of dp-accounting: every type under every relation, beside its own accountants."""

from __future__ import annotations

import copy
import importlib
import itertools
import logging
import math
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting import dp_event as events
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as plds
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exact import Composed, Outputs

import tightbudget as tb
from tightbudget.adapters.dp_accounting import (
    EventError,
    TightPrivacyAccountant,
    from_dp_event,
)
from tightbudget.adapters.dp_accounting import events as adapter
from tightbudget.theorems.best_of_many import Repetitions

Relation = dp.NeighboringRelation
ADD, ONE, SPECIAL = Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE, Relation.REPLACE_SPECIAL
GAUSSIAN = events.GaussianDpEvent(1.5)
EVERY = tuple(Relation)
SAMPLED = events.PoissonSampledDpEvent(0.1, GAUSSIAN)
CUT = events.TruncatedSubsampledGaussianDpEvent(6, 0.75, 2, 2.5)

# every type of event, and the relations under which it has a mechanism
EVENTS: list[tuple[Any, tuple[Any, ...]]] = [
    (events.NoOpDpEvent(), EVERY),
    (events.NonPrivateDpEvent(), EVERY),
    (events.UnsupportedDpEvent(), ()),
    (GAUSSIAN, EVERY),
    (events.GaussianDpEvent(0), EVERY),
    (events.LaplaceDpEvent(2.0), EVERY),
    (events.LaplaceDpEvent(0.0), EVERY),
    (events.DiscreteLaplaceDpEvent(0.7, 2), EVERY),
    (events.DiscreteLaplaceDpEvent(0.0, 2), EVERY),
    (events.RandomizedResponseDpEvent(0.3, 10), (ONE, SPECIAL)),
    (events.RandomizedResponseDpEvent(1.0, 3), (ONE, SPECIAL)),
    (events.RandomizedResponseDpEvent(0.0, 3), (ONE, SPECIAL)),
    (events.MixtureOfGaussiansDpEvent(1.0, [0, 1, 2], [0.2, 0.6, 0.2]), (ADD, SPECIAL)),
    (events.MixtureOfGaussiansDpEvent(0.0, [0, 1], [0.2, 0.8]), (ADD, SPECIAL)),
    (events.MixtureOfGaussiansDpEvent(1.0, [0, 1], [1.0, 0.0]), (ADD, SPECIAL)),
    (events.ZCDpEvent(0.01), EVERY),
    (events.ZCDpEvent(0.0, 0.3), EVERY),
    (events.SingleEpochTreeAggregationDpEvent(4.0, [7, 12]), (ONE, SPECIAL)),
    (events.SingleEpochTreeAggregationDpEvent(4.0, 8), (ONE, SPECIAL)),
    (events.ComposedDpEvent([GAUSSIAN, events.LaplaceDpEvent(3.0), GAUSSIAN]), EVERY),
    (events.SelfComposedDpEvent(events.ComposedDpEvent([GAUSSIAN, SAMPLED]), 3), EVERY),
    (SAMPLED, EVERY),
    (events.PoissonSampledDpEvent(0.0, GAUSSIAN), EVERY),
    (events.PoissonSampledDpEvent(1.0, events.LaplaceDpEvent(2.0)), EVERY),
    (events.PoissonSampledDpEvent(0.1, events.NonPrivateDpEvent()), EVERY),
    (events.PoissonSampledDpEvent(0.1, events.NoOpDpEvent()), EVERY),
    (events.PoissonSampledDpEvent(0.1, events.SelfComposedDpEvent(GAUSSIAN, 3)), EVERY),
    (events.PoissonSampledDpEvent(0.1, events.LaplaceDpEvent(1.0)), EVERY),
    (events.PoissonSampledDpEvent(0.1, events.DiscreteLaplaceDpEvent(0.7, 2)), EVERY),
    (events.PoissonSampledDpEvent(0.5, SAMPLED), EVERY),
    (events.PoissonSampledDpEvent(0.1, events.ZCDpEvent(0.1)), EVERY),
    (events.PoissonSampledDpEvent(0.1, events.RandomizedResponseDpEvent(0.3, 3)), (ONE, SPECIAL)),
    (events.PoissonSampledDpEvent(0.1, events.ComposedDpEvent([GAUSSIAN, SAMPLED])), EVERY),
    (
        events.PoissonSampledDpEvent(
            0.1, events.MixtureOfGaussiansDpEvent(1.0, [0, 1], [0.5, 0.5])
        ),
        (ADD, SPECIAL),
    ),
    (events.SampledWithReplacementDpEvent(100, 3, GAUSSIAN), EVERY),
    (events.SampledWithReplacementDpEvent(100, 0, GAUSSIAN), EVERY),
    (events.SampledWithReplacementDpEvent(1, 2, GAUSSIAN), ()),
    (events.SampledWithReplacementDpEvent(100, 10, events.LaplaceDpEvent(1.0)), ()),
    (events.SampledWithoutReplacementDpEvent(100, 10, GAUSSIAN), EVERY),
    (events.SampledWithoutReplacementDpEvent(9, 9, GAUSSIAN), (ONE, SPECIAL)),
    (events.SampledWithoutReplacementDpEvent(9, 0, GAUSSIAN), EVERY),
    (
        events.SampledWithoutReplacementDpEvent(9, 2, events.RandomizedResponseDpEvent(0.3, 3)),
        EVERY,
    ),
    (events.SampledWithoutReplacementDpEvent(9, 2, events.ZCDpEvent(0.1)), (ONE,)),
    (
        events.SampledWithoutReplacementDpEvent(
            9, 2, events.ComposedDpEvent([GAUSSIAN, events.LaplaceDpEvent(2.0)])
        ),
        EVERY,
    ),
    (events.SampledWithoutReplacementDpEvent(12, 8, CUT), EVERY),
    (events.RepeatAndSelectDpEvent(GAUSSIAN, 3.0, 1.0), EVERY),
    (events.RepeatAndSelectDpEvent(events.LaplaceDpEvent(4.0), 5.0, 0.0), EVERY),
    (events.RepeatAndSelectDpEvent(events.ZCDpEvent(0.1), 5.0, 0.5), EVERY),
    (events.RepeatAndSelectDpEvent(GAUSSIAN, 5.0, math.inf), EVERY),
    (events.RepeatAndSelectDpEvent(GAUSSIAN, 1.0, 2.0), EVERY),
    (events.RepeatAndSelectDpEvent(events.NoOpDpEvent(), 3.0, 1.0), EVERY),
    (events.RepeatAndSelectDpEvent(events.NonPrivateDpEvent(), 3.0, 1.0), ()),
    (events.TruncatedSubsampledGaussianDpEvent(1000, 0.1, 120, 1.0), EVERY),
    (events.TruncatedSubsampledGaussianDpEvent(1000, 0.1, 120, 0.0), EVERY),
    (events.TruncatedSubsampledGaussianDpEvent(1000, 0.1, 1000, 1.0), EVERY),
    (events.TruncatedSubsampledGaussianDpEvent(1000, 0.1, 0, 1.0), EVERY),
    (events.TruncatedSubsampledGaussianDpEvent(0, 0.1, 5, 1.0), EVERY),
]
SUPPORTED = [
    (event, relation) for event, some in EVENTS for relation in Relation if relation in some
]
# curves of 257 points, of which each is a question about several mechanisms
TWO = events.PoissonSampledDpEvent(0.1, events.ComposedDpEvent([GAUSSIAN, SAMPLED]))
LONG = [
    *((events.SampledWithoutReplacementDpEvent(12, 8, CUT), relation) for relation in Relation),
    (events.SampledWithReplacementDpEvent(100, 3, GAUSSIAN), SPECIAL),
    (TWO, ONE),
    (TWO, SPECIAL),
    *(
        (
            events.SampledWithoutReplacementDpEvent(
                9, 2, events.ComposedDpEvent([GAUSSIAN, events.LaplaceDpEvent(2.0)])
            ),
            relation,
        )
        for relation in Relation
    ),
]


def marked(event: Any, *more: Any, slow: bool) -> Any:
    return pytest.param(event, *more, marks=[pytest.mark.slow] if slow else [])


def named(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(named, value)) or "none"
    return value.name if isinstance(value, Relation) else str(value)[:60]


asked = pytest.mark.parametrize(
    ("event", "relation"),
    [marked(event, relation, slow=(event, relation) in LONG) for event, relation in SUPPORTED],
    ids=named,
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Its accountants warn of orders that did not converge."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def composed(event: Any, relation: Any, count: int = 1) -> TightPrivacyAccountant:
    accountant = TightPrivacyAccountant(relation)
    assert accountant.compose(event, count) is accountant
    return accountant


# ----------------------------------------------------------------------------------- laws


def test_no_type_of_event_is_forgotten() -> None:
    defined = {
        thing
        for thing in vars(events).values()
        if isinstance(thing, type) and issubclass(thing, events.DpEvent)
    }
    assert defined - {events.DpEvent} == {type(event) for event, _ in EVENTS}


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("event", "some", "relation"),
    [
        marked(event, some, relation, slow=(event, relation) in LONG)
        for event, some in EVENTS
        for relation in Relation
    ],
    ids=named,
)
def test_what_is_supported_is_composed_and_what_is_not_is_refused(
    event: Any, some: tuple[Any, ...], relation: Any
) -> None:
    accountant = TightPrivacyAccountant(relation)
    assert accountant.supports(event) is (relation in some)
    if relation not in some:
        with pytest.raises(tb.ParameterError, match="is not supported: "):
            from_dp_event(event, relation)
        with pytest.raises(dp.UnsupportedEventError, match="caused by subevent"):
            accountant.compose(event)
        assert accountant.composition == tb.Composition()


@pytest.mark.one_in(4)
@asked
def test_composing_with_a_count_is_composing_so_many_times(event: Any, relation: Any) -> None:
    at_once = composed(event, relation, 3)
    one_by_one = composed(event, relation).compose(event).compose(event)
    in_a_tree = from_dp_event(events.SelfComposedDpEvent(event, 3), relation)
    in_a_list = from_dp_event(events.ComposedDpEvent([event, event, event]), relation)
    assert at_once.composition == one_by_one.composition == in_a_tree == in_a_list
    if not any(isinstance(m, tb.FromCurve) for m, _ in in_a_tree.parts):
        # zero-concentrated parts are turned into one curve: of the sum of all of them
        assert in_a_tree == from_dp_event(event, relation) * 3


@pytest.mark.one_in(4)
@asked
def test_the_composition_is_declared_for_the_relation(event: Any, relation: Any) -> None:
    declared = {
        ADD: tb.Neighbouring.ADD_OR_REMOVE,
        ONE: tb.Neighbouring.REPLACE_ONE,
        SPECIAL: tb.Neighbouring.ZERO_OUT,
    }[relation]
    composition = from_dp_event(event, relation)
    assert {m.relation for m, _ in composition.parts} <= {declared}
    assert tb.Composition.from_json(composition.to_json()) == composition


@pytest.mark.one_in(6)
@asked
def test_a_replaced_record_is_at_least_as_visible_as_one_made_special(
    event: Any, relation: Any
) -> None:
    if relation is SPECIAL and (event, ONE) in SUPPORTED:
        for epsilon in (0.0, 0.5, 2.0):
            special = composed(event, SPECIAL).get_delta_bounds(epsilon)
            slack = 1e-2 * any(
                isinstance(m, tb.FromCurve) for m, _ in from_dp_event(event, SPECIAL).parts
            )
            slack = max(slack, 1e-2 * ("SampledWith" in str(event)))  # chords of a curve
            assert special.lower <= composed(event, ONE).get_delta(epsilon) * (1 + slack)


# Its PLD accountant forgets how often a randomised response runs, and its Renyi accountant takes
# a replaced record for an added one.
def sound(accountant: Any, event: Any, relation: Any, count: int) -> bool:
    if event in (events.LaplaceDpEvent(0.0), events.RandomizedResponseDpEvent(1.0, 3)):
        return False  # one of them divides by zero, the other wants some noise
    if isinstance(accountant, PLDAccountant):
        return count == 1 or "RandomizedResponse" not in str(event)
    return relation is not ONE or "RandomizedResponse" in str(event)


@pytest.mark.one_in(8)
@asked
@pytest.mark.parametrize("count", [1, 4])
def test_no_sound_accountant_of_its_own_is_below_ours(
    event: Any, relation: Any, count: int
) -> None:
    if "MixtureOfGaussians" in str(event):
        pytest.skip("half a minute for one mixture: the published values are in tests/mechanisms")
    ours = composed(event, relation, count)
    for theirs in (PLDAccountant(relation, 1e-3), RdpAccountant(neighboring_relation=relation)):
        if not theirs.supports(event) or not sound(theirs, event, relation, count):
            continue
        theirs.compose(event, count)
        for delta in (1e-2, 1e-6):
            # what its grids round, and for Renyi divergences the chords of our curve
            slack = 1e-10 + 1e-3 * ("ZCDp" in str(event)) + 0.03 * ("RepeatAnd" in str(event))
            lower = ours.get_epsilon_bounds(delta).lower
            assert lower <= theirs.get_epsilon(delta) * (1 + slack) + 1e-10
        for epsilon in (0.0, 1.0):
            assert ours.get_delta_bounds(epsilon).lower <= theirs.get_delta(epsilon) + 1e-4


def test_where_its_accountants_are_below_what_is_proved() -> None:
    response = events.RandomizedResponseDpEvent(0.3, 10)
    ours = composed(response, ONE, 3).get_epsilon_bounds(1e-5)
    assert PLDAccountant(ONE).compose(response, 3).get_epsilon(1e-5) < 0.4 * ours.lower
    for event in (GAUSSIAN, events.LaplaceDpEvent(2.0)):
        ours = composed(event, ONE, 3).get_epsilon_bounds(1e-5)
        renyi = RdpAccountant(neighboring_relation=ONE).compose(event, 3)
        assert renyi.get_epsilon(1e-5) < 0.6 * ours.lower


@pytest.mark.parametrize(
    ("event", "relation", "epsilon", "delta"),
    [
        (events.GaussianDpEvent(1.0), ADD, 1.0, 0.1269367375066439),
        (events.GaussianDpEvent(1.0), ONE, 1.0, 0.509861660055),
        (
            events.PoissonSampledDpEvent(0.8, events.GaussianDpEvent(1.0)),
            ADD,
            1.0,
            0.08169517865853,
        ),
        (events.PoissonSampledDpEvent(0.8, events.GaussianDpEvent(2.0)), ONE, 1.0, 0.0580866565448),
        (events.LaplaceDpEvent(1.0), SPECIAL, 0.0, 0.39346934028736658),
        (events.LaplaceDpEvent(0.5), ADD, 0.5, 0.52763344725898531),
        (events.PoissonSampledDpEvent(0.8, events.LaplaceDpEvent(0.5)), ADD, 0.5, 0.40395646350321),
        (events.DiscreteLaplaceDpEvent(0.5, 4), ADD, 1.0, 0.39346934028736658),
        (
            events.PoissonSampledDpEvent(0.7, events.DiscreteLaplaceDpEvent(0.5, 4)),
            ADD,
            0.5,
            0.3523838505224567,
        ),
        (
            events.SelfComposedDpEvent(
                events.PoissonSampledDpEvent(0.2, events.GaussianDpEvent(0.5)), 3
            ),
            ADD,
            1.0,
            0.15593,
        ),
    ],
)  # published by its own tests
def test_published_values(event: Any, relation: Any, epsilon: float, delta: float) -> None:
    got = composed(event, relation).get_delta_bounds(epsilon)
    digits = 1e-3 if delta == 0.15593 else 1e-10
    assert got.lower * (1 - digits) <= delta <= got.upper * (1 + digits)


# ------------------------------------------------------------------ trees, against rationals


def response(p: float, k: int, relation: Any) -> Outputs:
    """P- and Q-masses of a randomised response, exactly."""
    noise = Fraction(p)
    true, other = 1 - noise + noise / k, noise / k
    if relation is ONE:
        return ((true, other), (other, true), ((k - 2) * other, (k - 2) * other))
    return ((true, Fraction(1, k)), ((k - 1) * other, Fraction(k - 1, k)))


def leaves() -> st.SearchStrategy[tuple[Any, list[Any]]]:
    """An event, and the responses in it, as (p, k)."""
    responses = st.tuples(st.sampled_from([0.1, 0.3, 0.5, 0.9, 1.0]), st.integers(2, 5))
    return st.one_of(
        st.just((events.NoOpDpEvent(), [])),
        responses.map(lambda r: (events.RandomizedResponseDpEvent(*r), [r])),
    )


def grown(inner: Any) -> st.SearchStrategy[tuple[Any, list[Any]]]:
    lists = st.lists(inner, min_size=1, max_size=3).map(
        lambda found: (
            events.ComposedDpEvent([event for event, _ in found]),
            list(itertools.chain.from_iterable(some for _, some in found)),
        )
    )
    repeated = st.tuples(inner, st.integers(0, 2)).map(
        lambda pair: (events.SelfComposedDpEvent(pair[0][0], pair[1]), pair[0][1] * pair[1])
    )
    return st.one_of(lists, repeated)


@settings(max_examples=60)
@given(
    st.recursive(leaves(), grown, max_leaves=4).filter(lambda tree: len(tree[1]) <= 5),
    st.sampled_from([ONE, SPECIAL]),
    st.sampled_from([0.0, 0.25, 1.0, 3.0]),
)
def test_trees_of_responses_are_what_rationals_say(
    tree: tuple[Any, list[Any]], relation: Any, epsilon: float
) -> None:
    event, responses = tree
    there = Composed.of(response(p, k, relation) for p, k in responses)
    back = Composed.of(tuple((b, a) for a, b in response(p, k, relation)) for p, k in responses)
    low, high = (max(ends) for ends in zip(there.delta(epsilon), back.delta(epsilon), strict=True))
    got = composed_or_nothing(event, relation).delta(epsilon, rtol=1e-9)
    assert Fraction(got.upper) >= low
    # parameters are rounded to the less private side: by 2^-53 of a true answer's chance
    assert Fraction(got.lower) <= high * (1 + Fraction(1, 2**48))
    assert got.relative_gap <= 1e-9


def composed_or_nothing(event: Any, relation: Any) -> tb.Composition:
    composition = from_dp_event(event, relation)
    if not isinstance(event, events.NoOpDpEvent) and composition.runs:
        assert composed(event, relation).composition == composition
    return composition


@pytest.mark.parametrize("a", [0.1, 0.3, 0.7, 1.0, 3.0])
def test_discrete_laplace_noise_is_never_less_than_asked_for(a: float) -> None:
    ((mechanism, _),) = from_dp_event(events.DiscreteLaplaceDpEvent(a, 1)).parts
    assert isinstance(mechanism, tb.DiscreteLaplace)
    assert 1 - Fraction(1, 2**52) <= Fraction(mechanism.scale) * Fraction(a) <= 1


def test_several_gaussians_on_one_sample_are_one_with_the_sum_of_squares() -> None:
    inner = events.ComposedDpEvent(
        [events.GaussianDpEvent(2.0), events.SelfComposedDpEvent(events.GaussianDpEvent(3.0), 2)]
    )
    ((mechanism, runs),) = from_dp_event(events.PoissonSampledDpEvent(0.1, inner)).parts
    assert runs == 1
    assert isinstance(mechanism, tb.Subsampled)
    assert isinstance(mechanism.base, tb.Gaussian)
    square = Fraction(1, 4) + 2 * Fraction(1, 9)
    assert square <= Fraction(mechanism.base.sensitivity) ** 2 <= square * (1 + Fraction(1, 2**50))
    four = events.SelfComposedDpEvent(events.GaussianDpEvent(2.0), 4)
    assert from_dp_event(events.PoissonSampledDpEvent(0.1, four)) == from_dp_event(
        events.PoissonSampledDpEvent(0.1, events.GaussianDpEvent(1.0))
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("rho", "xi"), [(0.01, 0.0), (0.5, 0.0), (0.02, 0.1), (30.0, 0.0)])
def test_a_concentrated_part_is_as_good_as_its_renyi_divergences(rho: float, xi: float) -> None:
    event = events.SelfComposedDpEvent(events.ZCDpEvent(rho, xi), 2)
    renyi = RdpAccountant([1 + x / 50 for x in range(1, 2000)]).compose(event)
    for delta in (1e-3, 1e-8):
        assert composed(event, ADD).get_epsilon(delta) <= renyi.get_epsilon(delta) * 1.002
    # and it is no better than a Gaussian of that rho, which meets the line
    gaussian = tb.Gaussian(1 / math.sqrt(4 * rho)) * 1
    assert composed(event, ADD).get_delta(1.0) >= gaussian.delta(1.0).lower


def test_a_sample_without_replacement_is_its_share_of_the_curve() -> None:
    """delta'(eps') = r delta(eps) at eps' = ln(1 + r (e^eps - 1)), and chords between."""
    for inner in (events.RandomizedResponseDpEvent(0.3, 3), GAUSSIAN, events.NonPrivateDpEvent()):
        whole = from_dp_event(inner, ONE)
        sampled = from_dp_event(events.SampledWithoutReplacementDpEvent(4, 1, inner), ONE)
        for epsilon in (0.0, 0.1, 1.0, 2.0):
            got = sampled.delta(math.log1p(0.25 * math.expm1(epsilon)))
            truth = 0.25 * whole.delta(epsilon, 1e-6).lower
            assert truth * (1 - 1e-12) <= got.upper
            assert got.lower <= truth * 1.005


def test_of_several_releases_on_one_sample_the_curve_is_sampled() -> None:
    # Gaussians, as a curve and as the one Gaussian that they are
    both = events.ComposedDpEvent([events.GaussianDpEvent(2.0), events.GaussianDpEvent(2.0)])
    steps = tuple(step for part in both.events for step in from_dp_event(part).parts)
    curve = adapter._curve_of(steps, tb.Neighbouring.ADD_OR_REMOVE).subsampled(0.1) * 20
    one = from_dp_event(events.PoissonSampledDpEvent(0.1, both)) * 20
    for delta in (1e-3, 1e-6):
        exact = one.epsilon(delta)
        assert exact.lower <= curve.epsilon(delta).upper <= exact.upper * 1.002


def test_what_never_runs_is_nothing() -> None:
    assert from_dp_event(events.SelfComposedDpEvent(GAUSSIAN, 0)) == tb.Composition()
    never = events.PoissonSampledDpEvent(0.1, events.SelfComposedDpEvent(SAMPLED, 0))
    assert from_dp_event(never) == tb.Composition()


def test_trees_have_as_many_levels_as_a_leaf_has_ancestors() -> None:
    for steps, depth in ((1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4), ([3, 9, 2], 4)):
        event = events.SingleEpochTreeAggregationDpEvent(2.0, steps)
        assert from_dp_event(event, SPECIAL).runs == depth


# ------------------------------------------------------- samples, against data sets that exist


Mixed = dict[float, float]  # the centre of a Gaussian, and its share


def loss_area(p: Mixed, q: Mixed, sigma: float, epsilon: float) -> float:
    """Integrates (p - e^eps q)+ for mixtures of normal densities, by a fine sum."""
    xs = sigma * (np.arange(16001) / 200 - 40)
    above, below = (
        sum(w * np.exp(-(((xs - c) / sigma) ** 2) / 2) for c, w in mix.items()) for mix in (p, q)
    )
    total = np.maximum(0.0, above - math.exp(epsilon) * below).sum()
    return float(total) / 200 / math.sqrt(2 * math.pi)


def sums(
    records: list[float], draw: Callable[[list[float]], Iterator[tuple[float, float]]]
) -> Mixed:
    found: Mixed = {}
    for total, chance in draw(records):
        found[total] = found.get(total, 0.0) + chance
    return found


def poisson_cut(q: float, most: int) -> Callable[[list[float]], Iterator[tuple[float, float]]]:
    def draw(records: list[float]) -> Iterator[tuple[float, float]]:
        for coins in itertools.product((0, 1), repeat=len(records)):
            sample = [r for r, coin in zip(records, coins, strict=True) if coin]
            chance = q ** len(sample) * (1 - q) ** (len(records) - len(sample))
            kept = list(itertools.combinations(sample, min(most, len(sample))))
            for some in kept:
                yield sum(some), chance / len(kept)

    return draw


def without_replacement(size: int) -> Callable[[list[float]], Iterator[tuple[float, float]]]:
    def draw(records: list[float]) -> Iterator[tuple[float, float]]:
        batches = list(itertools.combinations(records, size))
        return ((sum(batch), 1 / len(batches)) for batch in batches)

    return draw


def with_replacement(size: int) -> Callable[[list[float]], Iterator[tuple[float, float]]]:
    def draw(records: list[float]) -> Iterator[tuple[float, float]]:
        batches = list(itertools.product(records, repeat=size))
        return ((sum(batch), 1 / len(batches)) for batch in batches)

    return draw


OTHERS = [[-1.0] * 3, [0.0] * 3, [1.0, -1.0, -1.0]]
WAYS: list[tuple[Any, Any]] = [
    (events.TruncatedSubsampledGaussianDpEvent(4, 0.5, 2, 1.5), poisson_cut(0.5, 2)),
    (events.TruncatedSubsampledGaussianDpEvent(4, 0.9, 1, 1.5), poisson_cut(0.9, 1)),
    (events.TruncatedSubsampledGaussianDpEvent(4, 1.0, 2, 1.5), poisson_cut(1.0, 2)),
    (events.SampledWithoutReplacementDpEvent(4, 2, GAUSSIAN), without_replacement(2)),
    (events.SampledWithReplacementDpEvent(4, 2, GAUSSIAN), with_replacement(2)),
]


@pytest.mark.slow
@pytest.mark.parametrize("relation", Relation, ids=named)
@pytest.mark.parametrize(("event", "draw"), WAYS, ids=[named(event) for event, _ in WAYS])
def test_no_data_sets_reveal_more_than_the_upper_bound(
    event: Any, draw: Any, relation: Any
) -> None:
    whole = from_dp_event(event, relation)
    upper = {epsilon: whole.delta(epsilon).upper * (1 + 1e-6) for epsilon in (0.0, 0.3, 1.0)}
    for others in OTHERS:
        for record in (1.0, -1.0):
            some: dict[Any, list[list[float]]] = {ADD: [[]], SPECIAL: [[0.0]]}
            neighbours = some.get(relation, [[-1.0], [1.0], [0.0]])
            p = sums([record, *others], draw)
            for rest in neighbours:
                q = sums([*rest, *others], draw)
                for epsilon, most in upper.items():
                    assert loss_area(p, q, 1.5, epsilon) <= most
                    assert loss_area(q, p, 1.5, epsilon) <= most


def test_batches_of_opposite_records_attain_the_bound_of_one_added() -> None:
    batch = from_dp_event(events.SampledWithoutReplacementDpEvent(4, 2, GAUSSIAN))
    added = tb.Gaussian(1.5, 2.0, relation=tb.Neighbouring.ADD_OR_REMOVE)
    assert batch == added.subsampled(0.5) * 1
    drawn = from_dp_event(events.SampledWithReplacementDpEvent(4, 2, GAUSSIAN))
    copies = tb.MixtureOfGaussians(1.5, (0.0, 2.0, 4.0), (9.0, 6.0, 1.0))
    got, exact = drawn.delta(0.5), copies.delta(0.5)
    assert got.lower <= exact.upper
    assert exact.lower <= got.upper
    one = from_dp_event(events.SampledWithoutReplacementDpEvent(4, 2, GAUSSIAN), ONE)
    assert one == tb.Gaussian(1.5).batches(2, of=4) * 1


@pytest.mark.parametrize("relation", [ONE, SPECIAL], ids=named)
def test_a_sampled_response_is_a_response_with_that_chance(relation: Any) -> None:
    event = events.RandomizedResponseDpEvent(0.3, 3)
    sampled = from_dp_event(events.PoissonSampledDpEvent(0.25, event), relation)
    for epsilon in (0.0, 0.5, 1.0):
        whole = from_dp_event(event, relation).delta(epsilon, 1e-9)
        got = sampled.delta(epsilon, 1e-9)
        assert whole.lower / 4 <= got.upper
        assert got.lower <= whole.upper / 4 * (1 + 1e-12)


def test_sampled_laplace_noise_with_a_record_replaced() -> None:
    event = events.PoissonSampledDpEvent(0.25, events.LaplaceDpEvent(2.0))
    sampled, unsampled = from_dp_event(event, ONE), from_dp_event(event.event, ONE)

    def density(x: float, centre: float) -> float:
        return 0.75 * math.exp(-abs(x) / 2) / 4 + 0.25 * math.exp(-abs(x - centre) / 2) / 4

    for epsilon in (0.0, 0.1, 0.2):
        xs = [-80 + i / 50 for i in range(8001)]
        # opposite records, of which one may be in the sample in place of the other
        area = sum(max(0.0, density(x, 1) - math.exp(epsilon) * density(x, -1)) for x in xs) / 50
        assert area * (1 - 1e-3) <= sampled.delta(epsilon).upper
        assert sampled.delta(epsilon).upper < unsampled.delta(epsilon).lower / 3


def test_a_sample_of_a_sample_is_a_sample_at_the_product_of_the_rates() -> None:
    twice = events.PoissonSampledDpEvent(0.5, events.PoissonSampledDpEvent(0.25, GAUSSIAN))
    once = events.PoissonSampledDpEvent(0.125, GAUSSIAN)
    assert from_dp_event(twice, ONE) == from_dp_event(once, ONE)


@pytest.mark.slow
def test_truncated_batches_are_no_worse_than_published() -> None:
    """dp-accounting prints 17.904330 for this course of truncated batches."""
    cut = events.TruncatedSubsampledGaussianDpEvent
    event = events.ComposedDpEvent(
        [
            events.SelfComposedDpEvent(cut(4, 0.5, 2, 1.0), 3),
            events.SelfComposedDpEvent(cut(3, 0.5, 2, 1.0), 2),
        ]
    )
    theirs = PLDAccountant().compose(event).get_epsilon(1e-6)
    assert theirs == pytest.approx(17.904330, abs=1e-3)
    for relation in Relation:
        assert 7 < composed(event, relation).get_epsilon(1e-6) <= theirs


# ----------------------------------------------------------------------- the best of many runs


def best_of(masses: list[float], mean: float, shape: float, gamma: float) -> list[float]:
    """Returns how likely each output is the best of a random number of runs, the last being best.

    With f the generating function of the number of runs, no run is better than y with f(F(y)).
    """

    def f(x: float) -> float:
        if math.isinf(shape):
            return math.exp(mean * (x - 1))
        if shape == 0:
            return math.log1p(-(1 - gamma) * x) / math.log(gamma)
        return ((1 - (1 - gamma) * x) ** -shape - 1) / (gamma**-shape - 1)

    below = [f(x) for x in itertools.accumulate(masses)]
    none = f(0.0)  # no run at all, with its own output
    return [none, *(b - a for a, b in itertools.pairwise([none, *below]))]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("mean", "shape", "gamma"),
    [
        (4.0, 1.0, 0.25),
        (6.0, math.inf, 0.0),
        (3.0, 2.0, 0.5),
        (1 / (0.1 * math.log(10)) * 0.9, 0.0, 0.1),
    ],
)  # for shape 2 the mean is 2 (1 / gamma - 1) / (1 - gamma^2)
def test_the_best_of_many_responses_is_below_its_bound(
    mean: float, shape: float, gamma: float
) -> None:
    if shape == 2.0:
        mean = 2 * (1 / gamma - 1) / (1 - gamma**2)
    response = events.RandomizedResponseDpEvent(0.6, 3)
    bound = from_dp_event(events.RepeatAndSelectDpEvent(response, mean, shape), ONE)
    true, other = 0.6, 0.2
    answers = [[true, other, other], [other, true, other], [other, other, true]]
    for a, b in itertools.permutations(answers, 2):
        p, q = (best_of(x, mean, shape, gamma) for x in (a, b))
        for epsilon in (0.0, 0.5, 1.5, 2.5):
            exact = sum(max(0.0, x - math.exp(epsilon) * y) for x, y in zip(p, q, strict=True))
            assert exact <= bound.delta(epsilon).upper
    assert bound.delta(4.0).upper < 1


# ------------------------------------- where its own tests expect something else: peers/ lists them


@pytest.mark.parametrize("noise", [events.GaussianDpEvent(0), events.LaplaceDpEvent(0)], ids=named)
@pytest.mark.parametrize("relation", [ADD, SPECIAL], ids=named)
def test_a_release_without_noise_on_a_sample_costs_the_rate(noise: Any, relation: Any) -> None:
    """P shows the record with the rate as its chance, Q never: delta(eps) is the rate."""
    accountant = composed(events.PoissonSampledDpEvent(0.1, noise), relation)
    for epsilon in (0.0, 1.0, math.inf):
        got = accountant.get_delta_bounds(epsilon)
        assert Fraction(got.lower) <= Fraction(0.1) <= Fraction(got.upper)
        assert got.relative_gap < 1e-12
    assert accountant.get_epsilon(0.2) == 0.0
    assert accountant.get_epsilon(0.05) == math.inf


@pytest.mark.parametrize("k", [2, 3, 10])
def test_a_response_without_noise_beside_a_uniform_one(k: int) -> None:
    truth = Composed.of([response(0.0, k, SPECIAL)])
    back = Composed.of([tuple((b, a) for a, b in response(0.0, k, SPECIAL))])
    accountant = composed(events.RandomizedResponseDpEvent(0.0, k), SPECIAL)
    for epsilon in (0.0, 1.0, 2.0):
        exact = [d for one in (truth, back) for d in one.delta(epsilon)]
        got = accountant.get_delta_bounds(epsilon)
        assert Fraction(got.upper) >= max(exact[0], exact[2])
        assert Fraction(got.lower) <= max(exact[1], exact[3])
        assert got.relative_gap < 1e-12
    assert accountant.get_delta(1.0) < 1.0


def test_many_laplace_releases_cost_less_than_their_largest_losses() -> None:
    event = events.LaplaceDpEvent(1.0)
    ours = composed(event, ADD, 100).get_epsilon_bounds(1e-10)
    # masses of the loss, to the right of where they are and to the left
    theirs = [
        plds.from_laplace_mechanism(
            1.0, pessimistic_estimate=right, value_discretization_interval=1e-3
        )
        .self_compose(100)
        .get_epsilon_for_delta(1e-10)
        for right in (False, True)
    ]
    assert theirs[0] <= ours.upper
    assert ours.lower <= theirs[1] < 82 < 100


def test_the_divergence_of_a_sampled_gaussian_at_a_low_order() -> None:
    """ln of the integral of p^a q^(1 - a), by a sum of so many points that it has 10 digits."""
    sigma, rate, order = 2.5, 0.01, 1.5
    x = np.linspace(-40 * sigma, 40 * sigma, 200_001)
    without = np.exp(-((x / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))
    with_it = without * (1 - rate + rate * np.exp((2 * x - 1) / (2 * sigma**2)))
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [
            np.nan_to_num(p**order * q ** (1 - order))
            for p, q in ((with_it, without), (without, with_it))
        ]
    truth = max(math.log(float(part.sum() * (x[1] - x[0]))) / (order - 1) for part in parts)
    event = events.PoissonSampledDpEvent(rate, events.GaussianDpEvent(sigma))
    got = composed(event, ADD, 50).composition.renyi(order)
    assert got.lower * (1 - 1e-6) <= 50 * truth <= got.upper * (1 + 1e-6)
    theirs = RdpAccountant([order]).compose(event, 50)._rdp[0]
    assert theirs > 1.03 * got.upper


def tabulated(event: Any) -> Callable[[float], float]:
    """The upper bound of the divergence of a best of many runs, by order."""
    inner = tuple(adapter.steps_of(event.event, tb.Neighbouring.ADD_OR_REMOVE))
    number = Repetitions(mean=event.mean, shape=event.shape)
    table = adapter._selected(inner, tb.Neighbouring.ADD_OR_REMOVE, number)
    assert table is not None
    return lambda order: float(table(order).upper)


@pytest.mark.parametrize(
    ("rho", "gamma"), [(0.01, 0.01), (1.0, 0.1), (-math.log(0.99), 0.99)], ids=str
)
@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 5.0])
def test_a_negative_binomial_number_of_runs_is_as_the_theorem_says(
    rho: float, gamma: float, shape: float
) -> None:
    """Corollary 4 of Papernot and Steinke, for Gaussian noise with rho <= ln(1 / gamma)."""
    less = -math.expm1(shape * math.log(gamma)) / shape if shape else -math.log(gamma)
    mean = (1 / gamma - 1) / less
    at = tabulated(
        events.RepeatAndSelectDpEvent(events.GaussianDpEvent(math.sqrt(0.5 / rho)), mean, shape)
    )
    best = 1 + math.sqrt(math.log(mean) / rho)
    selection = 2 * (1 + shape) * math.sqrt(-rho * math.log(gamma)) - shape * rho
    for order in (1.1, 2.0, best, 3.0, 5.0, 10.0, 100.0, 1000.0, 10_000.0):
        s = max(order, best) - 1  # lower orders are bounded by the best one
        truth = rho * s + math.log(mean) / s + selection
        assert truth * (1 - 1e-9) <= at(order) <= truth * (1 + 1e-8)


def of_gaussian(sigma: float) -> tuple[Any, Callable[[float], float], Callable[[float], float]]:
    """The event of Gaussian noise, its divergence by order and its delta by epsilon."""

    def delta(eps: float) -> float:
        mu = 1 / sigma
        return normal(mu / 2 - eps / mu) - math.exp(eps) * normal(-mu / 2 - eps / mu)

    return events.GaussianDpEvent(sigma), lambda order: order / (2 * sigma**2), delta


def of_laplace(m: float) -> tuple[Any, Callable[[float], float], Callable[[float], float]]:
    """The event of Laplace noise with the largest loss m, its divergence and its delta."""

    def divergence(order: float) -> float:
        s, whole = order - 1, 2 * order - 1
        rest = math.log(order / whole + s / whole * math.exp(-whole * m))
        return m + rest / s

    return (
        events.LaplaceDpEvent(1 / m),
        divergence,
        lambda eps: max(0.0, -math.expm1((eps - m) / 2)),
    )


@pytest.mark.parametrize(
    ("noise", "mean"),
    [
        (of_laplace(10.0), 10.0),
        (of_laplace(1.0), 1e10),
        pytest.param(of_gaussian(1000.0), 1000.0, marks=pytest.mark.slow),
        (of_gaussian(1.0), 1000.0),
    ],
    ids=["pure 10", "pure 1", "Gaussian 1000", "Gaussian 1"],
)
def test_a_poisson_number_of_runs_is_as_the_theorem_says(noise: Any, mean: float) -> None:
    """Theorem 6 of Papernot and Steinke, with closed forms of the divergence and of delta."""
    event, divergence, delta = noise
    at = tabulated(events.RepeatAndSelectDpEvent(event, mean, math.inf))

    def theorem(order: float) -> float:
        more = mean * delta(math.log1p(1 / (order - 1))) + math.log(mean) / (order - 1)
        return float(divergence(order) + more)

    fine = [1 + 2.0 ** (j / 32) for j in range(-128, 450)]
    if isinstance(event, events.LaplaceDpEvent):
        # at higher orders delta is above 0
        fine.append(1 + 1 / math.expm1(1 / event.noise_multiplier) * (1 - 1e-9))
    coarse = [1 + 2.0 ** (j / 4) for j in range(-16, 57)]
    for order in (1.1, 1.5, 3.0, 20.0, 1e4):
        # the divergence of a higher order is a bound, too
        least = min(theorem(one) for one in [order, *fine] if one >= order)
        assert at(order) >= least * (1 - 1e-3)
        assert at(order) <= min(theorem(one) for one in coarse if one >= order) * (1 + 1e-3)


def test_the_best_of_one_run_is_that_run() -> None:
    for shape in (0.0, 1.0, 2.0):
        event = events.RepeatAndSelectDpEvent(SAMPLED, 1.0, shape)
        assert from_dp_event(event) == from_dp_event(SAMPLED)


def test_laplace_noise_with_a_record_replaced() -> None:
    """Means 2 C apart: delta(eps) = 1 - e^((eps - 2 / b) / 2); discrete noise is summed."""
    for b in (0.5, 2.0, 10.0):
        accountant = composed(events.LaplaceDpEvent(b), ONE)
        for epsilon in (0.0, 0.1, 3.0):
            truth = max(0.0, -math.expm1((epsilon - 2 / b) / 2))
            got = accountant.get_delta_bounds(epsilon)
            assert got.lower * (1 - 1e-9) <= truth <= got.upper * (1 + 1e-9)
    for a, moved in ((0.5, 1), (0.3, 2)):
        accountant = composed(events.DiscreteLaplaceDpEvent(a, moved), ONE)
        for epsilon in (0.0, 0.4):
            truth = math.fsum(
                math.tanh(a / 2)
                * max(0.0, math.exp(-a * abs(x)) - math.exp(epsilon - a * abs(x - 2 * moved)))
                for x in range(-400, 400)
            )
            got = accountant.get_delta_bounds(epsilon)
            assert got.lower * (1 - 1e-9) <= truth <= got.upper * (1 + 1e-9)


def test_a_tree_with_a_record_replaced_is_gaussian_noise() -> None:
    """A replaced record is in one node of each of four levels, and moves each by 2 C."""
    got = composed(events.SingleEpochTreeAggregationDpEvent(4.0, 8), ONE).get_delta_bounds(1.0)
    mu = 2 / 4.0 * math.sqrt(4)
    truth = normal(mu / 2 - 1 / mu) - math.e * normal(-mu / 2 - 1 / mu)
    assert got.lower * (1 - 1e-9) <= truth <= got.upper * (1 + 1e-9)


def normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


# ------------------------------------------------------------------------- as theirs has it


@pytest.mark.parametrize("relation", Relation, ids=named)
@pytest.mark.parametrize(
    "event",
    [
        events.NonPrivateDpEvent(),
        events.GaussianDpEvent(0.0),
        events.DiscreteLaplaceDpEvent(0.0, 1),
        events.ComposedDpEvent([GAUSSIAN, events.SelfComposedDpEvent(events.LaplaceDpEvent(0), 2)]),
    ],
    ids=named,
)
def test_what_reveals_the_record_costs_inf_at_every_delta(event: Any, relation: Any) -> None:
    accountant = composed(event, relation)
    assert {accountant.get_epsilon(delta) for delta in (0.0, 1e-5, 0.99, 1.0)} == {math.inf}
    assert {accountant.get_delta(epsilon) for epsilon in (0.0, 100.0, math.inf)} == {1.0}
    assert accountant.get_epsilon_bounds(1.0) == tb.Bounds(0.0, 0.0)  # everything is (0, 1)-DP
    assert accountant.get_gdp_parameter_estimate() == math.inf


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("event", "relation"),
    [*SUPPORTED[:40], (events.NoOpDpEvent(), ADD)],
    ids=named,
)
def test_epsilon_at_delta_1_is_0_unless_the_record_is_revealed(event: Any, relation: Any) -> None:
    accountant = composed(event, relation)
    reveals = accountant.get_delta_bounds(math.inf).upper == 1.0
    assert accountant.get_epsilon(1) == (math.inf if reveals else 0.0)


INVALID = [
    events.GaussianDpEvent(-1.0),
    events.LaplaceDpEvent(-1.0),
    events.DiscreteLaplaceDpEvent(-1.0, 1),
    events.DiscreteLaplaceDpEvent(1.0, 0),
    events.MixtureOfGaussiansDpEvent(-1.0, [1.0], [1.0]),
    events.PoissonSampledDpEvent(-0.1, GAUSSIAN),
    events.PoissonSampledDpEvent(1.1, GAUSSIAN),
    events.PoissonSampledDpEvent(math.nan, GAUSSIAN),
    events.ZCDpEvent(-1.0),
    events.RandomizedResponseDpEvent(-0.1, 3),
    events.RandomizedResponseDpEvent(0.1, 0),
    events.SingleEpochTreeAggregationDpEvent(-1.0, 3),
    events.SingleEpochTreeAggregationDpEvent(1.0, -3),
    events.SelfComposedDpEvent(events.ComposedDpEvent([GAUSSIAN, events.GaussianDpEvent(-1)]), 2),
]


@pytest.mark.parametrize("event", INVALID, ids=named)
def test_a_parameter_out_of_range_is_a_value_error_and_nothing_is_noted(event: Any) -> None:
    relation = ADD if isinstance(event, events.MixtureOfGaussiansDpEvent) else SPECIAL
    accountant = composed(GAUSSIAN, relation)
    assert accountant.supports(event) is False
    with pytest.raises(ValueError, match=r" is not supported: .* got -?[\dn]") as caught:
        accountant.compose(event)
    assert isinstance(caught.value, EventError)
    assert caught.value.invalid
    assert accountant.ledger == GAUSSIAN
    assert accountant.composition == from_dp_event(GAUSSIAN, relation)


def test_an_event_without_a_mechanism_is_no_value_error() -> None:
    with pytest.raises(EventError, match="no mechanism for this type") as caught:
        from_dp_event(events.ComposedDpEvent([GAUSSIAN, events.UnsupportedDpEvent()]))
    assert caught.value.event == events.UnsupportedDpEvent()
    assert not caught.value.invalid
    with pytest.raises(dp.UnsupportedEventError) as refused:
        TightPrivacyAccountant().compose(events.UnsupportedDpEvent())
    assert not isinstance(refused.value, ValueError)


@pytest.mark.parametrize(
    ("event", "relation", "must"),
    [
        (events.RandomizedResponseDpEvent(0.1, 3), ADD, "`REPLACE_ONE` or `REPLACE_SPECIAL`"),
        (
            events.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5]),
            ONE,
            "`ADD_OR_REMOVE_ONE` or `REPLACE_SPECIAL`",
        ),
        (
            events.SingleEpochTreeAggregationDpEvent(1.0, 1),
            ADD,
            "`REPLACE_SPECIAL` or `REPLACE_ONE`",
        ),
    ],
    ids=named,
)
def test_a_refused_relation_names_those_that_are_answered(
    event: Any, relation: Any, must: str
) -> None:
    with pytest.raises(dp.UnsupportedEventError, match=f"neighboring_relation must be {must}"):
        TightPrivacyAccountant(relation).compose(event)


# ------------------------------------------------------- tests that tell the neighbours apart


def test_true_positive_rates_of_gaussian_noise_are_the_closed_form() -> None:
    accountant = composed(events.GaussianDpEvent(2.0), ADD, 4)  # mu = 1
    rates = np.array([1e-6, 0.01, 0.3])
    exact = [1 - NormalDist().cdf(NormalDist().inv_cdf(1 - a) - 1) for a in rates]
    got = accountant.get_true_positive_rates(rates)
    assert isinstance(got, np.ndarray)
    assert np.all(got >= np.array(exact) * (1 - 1e-9))
    assert np.all(got <= np.array(exact) * (1 + 2e-4))
    assert accountant.get_true_positive_rates(0.01) == got[1]
    assert type(accountant.get_true_positive_rates(0.01)) is float
    mu = accountant.get_gdp_parameter_estimate()
    assert 1.0 - 1e-3 <= mu <= 1.0 + 2e-4


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "event",
    [GAUSSIAN, SAMPLED, events.LaplaceDpEvent(2.0), events.DiscreteLaplaceDpEvent(0.7, 2)],
    ids=named,
)
def test_no_test_is_better_than_its_bounds_say(event: Any) -> None:
    accountant = composed(event, ADD, 3)
    slack = 1e-6
    mu = accountant.get_gdp_parameter_estimate([0.1, slack])
    assert 0 < mu < math.inf
    for rate in (0.0, 1e-4, 0.5, 1.0):
        caught = accountant.get_true_positive_rates(rate)
        assert rate <= caught <= 1.0
        for epsilon in (0.0, 0.5, 2.0):  # P(S) <= e^eps Q(S) + delta(eps)
            most = math.exp(epsilon) * rate + accountant.get_delta(epsilon)
            assert caught <= min(1.0, most) * (1 + 2e-4) + 1e-12
        if 0 < rate < 1:
            exact = accountant.composition.answer(fpr=rate, rtol=1e-2).bounds.lower
            line = NormalDist().cdf(NormalDist().inv_cdf(rate) + mu)
            assert exact <= line + slack


def test_the_rates_that_are_refused() -> None:
    accountant = composed(GAUSSIAN, ADD)
    with pytest.raises(tb.ParameterError, match=r"fpr must be in \[0, 1\], got 1.5"):
        accountant.get_true_positive_rates([0.5, 1.5])
    with pytest.raises(tb.ParameterError, match="false_positive_rates must have at least one rate"):
        accountant.get_gdp_parameter_estimate([])
    with pytest.raises(tb.ParameterError, match=r"false_positive_rates must be in \[0, 1\], got -"):
        accountant.get_gdp_parameter_estimate([0.5, -1.0])


# ----------------------------------------------------- events of later versions than the tests'


class Later:
    """An event of a later dp-accounting: a name, and values."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__dict__})"


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    def mechanisms(name: str, relation: Any = ADD, **values: Any) -> list[Any]:
        event = type(name, (Later,), {})(**values)
        return list(adapter._LATER[name](event, adapter.RELATIONS[relation]))

    return mechanisms


def test_an_event_of_which_only_parameters_are_known_is_the_worst_case(
    later: Callable[..., list[Any]],
) -> None:
    ((mechanism, runs),) = later("EpsilonDeltaDpEvent", epsilon=1.0, delta=1e-3)
    assert mechanism == tb.ApproximateDP(1.0, 1e-3, relation=tb.Neighbouring.ADD_OR_REMOVE)
    assert runs == 1
    ((mechanism, _),) = later("PermuteAndFlipDpEvent", ONE, epsilon=0.5)
    assert mechanism == tb.ApproximateDP(0.5, relation=tb.Neighbouring.REPLACE_ONE)


def test_a_choice_has_a_bounded_range(later: Callable[..., list[Any]]) -> None:
    ((mechanism, runs),) = later("ExponentialMechanismDpEvent", ONE, epsilon=0.1)
    assert mechanism == tb.ExponentialMechanism(0.1, relation=tb.Neighbouring.REPLACE_ONE)
    assert runs == 1
    assert (mechanism * 100).epsilon(1e-6).upper < 2.252  # 4.774 as pairs of pure privacy
    for epsilon in (0.0, 1e-5, 50.0):  # beyond the epsilons that are composed so
        ((mechanism, _),) = later("ExponentialMechanismDpEvent", ONE, epsilon=epsilon)
        assert mechanism == tb.ApproximateDP(epsilon, relation=tb.Neighbouring.REPLACE_ONE)


@pytest.mark.parametrize("relation", Relation, ids=named)
def test_discrete_gaussian_noise_is_exact_in_one_dimension(
    later: Callable[..., list[Any]], relation: Any
) -> None:
    apart = 2 if relation is ONE else 1
    noise = {"sigma": 3.0, "sensitivity": 1.5}  # an integer moves by 1, or by 3 if it is replaced
    ((mechanism, _),) = later("DiscreteGaussianDpEvent", relation, dimension=1, **noise)
    assert isinstance(mechanism, tb.DiscreteGaussian)
    assert mechanism.sensitivity == math.floor(1.5 * apart)
    for dimension in (None, 2):
        ((line, _),) = later("DiscreteGaussianDpEvent", relation, dimension=dimension, **noise)
        truth = Fraction(1.5 * apart) ** 2 / 18
        assert line.xi == 0.0
        assert truth <= Fraction(line.rho) <= truth * (1 + Fraction(1, 2**52))
        # and the line is above the exact divergence
        for order in (1.5, 2.0, 20.0):
            assert mechanism.renyi(order).lower <= line.rho * order
    for nothing in ({"sensitivity": 0.0}, {"sensitivity": 0.4, "dimension": 1}):
        values = {"sigma": 3.0, "dimension": None, **nothing}
        assert later("DiscreteGaussianDpEvent", ADD, **values) == []
    ((revealed, _),) = later("DiscreteGaussianDpEvent", ADD, sigma=0, sensitivity=1, dimension=1)
    assert revealed == tb.ApproximateDP(0.0, 1.0, relation=tb.Neighbouring.ADD_OR_REMOVE)
    with pytest.raises(tb.ParameterError, match="dimension must be an integer >= 1, got 0"):
        later("DiscreteGaussianDpEvent", ADD, dimension=0, **noise)
    with pytest.raises(tb.ParameterError, match="sigma must be a finite number >= 0, got -3"):
        later("DiscreteGaussianDpEvent", ADD, sigma=-3.0, sensitivity=1, dimension=1)


def test_an_event_that_the_package_has_is_registered() -> None:
    for name, converter in adapter._LATER.items():
        kind = getattr(events, name, None)
        assert kind is None or adapter._steps.dispatch(kind) is converter


# ------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("event", "relation", "culprit", "reason"),
    [
        (events.UnsupportedDpEvent(), ADD, "UnsupportedDpEvent", "no mechanism for this type"),
        (
            events.ComposedDpEvent([SAMPLED, events.UnsupportedDpEvent()]),
            ADD,
            "UnsupportedDpEvent",
            "no mechanism for this type",
        ),
        (
            events.SelfComposedDpEvent(events.RandomizedResponseDpEvent(0.5, 2), 3),
            ADD,
            "RandomizedResponseDpEvent",
            "tells neighbours apart",
        ),
        (
            events.PoissonSampledDpEvent(0.1, events.GaussianDpEvent(-1.0)),
            ADD,
            "GaussianDpEvent(noise_multiplier=-1.0)",
            "noise_multiplier must be a finite number >= 0, got -1.0",
        ),
        (
            events.PoissonSampledDpEvent(1.5, GAUSSIAN),
            ADD,
            "PoissonSampledDpEvent",
            "sampling_probability must be in [0, 1], got 1.5",
        ),
        (
            events.SampledWithoutReplacementDpEvent(9, 9, GAUSSIAN),
            ADD,
            "SampledWithoutReplacementDpEvent",
            "a batch of all records cannot be drawn once one is removed",
        ),
        (
            events.SampledWithoutReplacementDpEvent(10, 11, GAUSSIAN),
            ONE,
            "SampledWithoutReplacementDpEvent",
            "sample_size / source_dataset_size must be in [0, 1], got 1.1",
        ),
        (
            events.SampledWithoutReplacementDpEvent(
                9, 2, events.SelfComposedDpEvent(events.ZCDpEvent(0.0, 0.1), 2)
            ),
            SPECIAL,
            "SampledWithoutReplacementDpEvent",
            "a ZCDpEvent says nothing of that under this relation: use REPLACE_ONE",
        ),
        (
            events.SampledWithReplacementDpEvent(9, 2, events.LaplaceDpEvent(1.0)),
            ADD,
            "SampledWithReplacementDpEvent",
            "a sample with replacement needs Gaussian noise",
        ),
        (
            events.SampledWithReplacementDpEvent(1, 2, GAUSSIAN),
            ADD,
            "SampledWithReplacementDpEvent",
            "no sample can be drawn once the only record is removed",
        ),
        (
            events.PoissonSampledDpEvent(0.1, events.RandomizedResponseDpEvent(0.3, 3)),
            ADD,
            "RandomizedResponseDpEvent",
            "tells neighbours apart",
        ),
        (
            events.RepeatAndSelectDpEvent(events.NonPrivateDpEvent(), 3.0, 1.0),
            ADD,
            "RepeatAndSelectDpEvent",
            "no Renyi divergence is known to be finite",
        ),
        (
            events.RepeatAndSelectDpEvent(GAUSSIAN, 0.5, 1.0),
            ADD,
            "RepeatAndSelectDpEvent",
            "mean must be in [1, 1e12], got 0.5",
        ),
        (
            events.RepeatAndSelectDpEvent(GAUSSIAN, 2.0, -1.0),
            ADD,
            "RepeatAndSelectDpEvent",
            "shape must be >= 0, got -1.0",
        ),
        (
            events.TruncatedSubsampledGaussianDpEvent(9, 0.1, -1, 1.0),
            ADD,
            "TruncatedSubsampledGaussianDpEvent",
            "truncated_batch_size must be an integer >= 0",
        ),
        (events.SelfComposedDpEvent(GAUSSIAN, -1), ADD, "SelfComposed", "count must be an integer"),
        (events.SingleEpochTreeAggregationDpEvent(1.0, 3), ADD, "SingleEpoch", "REPLACE_SPECIAL"),
        (
            events.SingleEpochTreeAggregationDpEvent(1.0, [3, 0]),
            SPECIAL,
            "Single",
            "step_counts[1]",
        ),
        (events.MixtureOfGaussiansDpEvent(1.0, [1], [1.0]), ONE, "Mixture", "there or not"),
        (events.MixtureOfGaussiansDpEvent(1.0, [1], [0.9]), ADD, "Mixture", "sampling_probs) must"),
        (events.DiscreteLaplaceDpEvent(-0.1, 1), ADD, "DiscreteLaplace", "noise_parameter must be"),
        (events.LaplaceDpEvent(math.nan), ADD, "Laplace", "noise_multiplier must be"),
        (
            events.MixtureOfGaussiansDpEvent(-1.0, [1], [1.0]),
            ADD,
            "Mixture",
            "standard_deviation must be a finite number >= 0, got -1.0",
        ),
        (events.SingleEpochTreeAggregationDpEvent(1.0, []), SPECIAL, "Single", "at least one tree"),
        (events.SampledWithReplacementDpEvent(2, 3, GAUSSIAN), ONE, "Sampled", "more records than"),
        (
            events.DiscreteLaplaceDpEvent(1e-310, 1),
            ADD,
            "DiscreteLaplace",
            "sensitivity / scale must be in",
        ),
        (events.DiscreteLaplaceDpEvent(1.0, 0), ADD, "DiscreteLaplace", "sensitivity must be"),
        (events.RandomizedResponseDpEvent(1.5, 2), ONE, "RandomizedResponse", "noise_parameter"),
        (events.RandomizedResponseDpEvent(0.5, 0), ONE, "RandomizedResponse", "num_buckets must"),
        (events.ZCDpEvent(-0.1), ADD, "ZCDpEvent", "rho must be a finite number >= 0"),
        (events.ZCDpEvent(0.1, -0.1), ADD, "ZCDpEvent", "xi must be a finite number >= 0"),
        ("gaussian", ADD, "'gaussian'", "no mechanism for this type"),
    ],
)
def test_a_refusal_shows_the_event_and_the_reason(
    event: Any, relation: Any, culprit: str, reason: str
) -> None:
    with pytest.raises(tb.ParameterError) as caught:
        from_dp_event(event, relation)
    shown, _, why = str(caught.value).partition(" is not supported: ")
    assert culprit in shown
    assert reason in why


def test_other_refusals() -> None:
    with pytest.raises(tb.ParameterError, match="neighboring_relation must be one of dp_acc"):
        from_dp_event(GAUSSIAN, "replace")
    with pytest.raises(TypeError, match="must be `DpEvent`"):
        TightPrivacyAccountant().compose("gaussian")
    with pytest.raises(tb.ParameterError, match=r"target_delta|delta must be in \[0, 1\], got 2"):
        composed(GAUSSIAN, ADD).get_epsilon(2)
    with pytest.raises(tb.ParameterError, match="rtol must be in"):
        TightPrivacyAccountant(rtol=2.0).get_epsilon(0.1)


# --------------------------------------------------------------------------- an accountant


def test_nothing_composed_costs_nothing() -> None:
    accountant = TightPrivacyAccountant()
    assert accountant.get_epsilon(1e-5) == accountant.get_delta(0.0) == 0.0
    assert isinstance(accountant.ledger, events.NoOpDpEvent)


def test_answers_are_upper_ends_and_follow_what_is_composed() -> None:
    accountant = TightPrivacyAccountant(rtol=1e-6)
    accountant.compose(SAMPLED, 10)
    one = accountant.get_epsilon_bounds(1e-5)
    assert one == accountant.composition.epsilon(1e-5, 1e-6)
    assert accountant.get_epsilon(1e-5) == one.upper
    assert accountant.get_delta(1.0) == accountant.get_delta_bounds(1.0).upper
    accountant.compose(GAUSSIAN)
    assert accountant.get_epsilon(1e-5) > one.upper
    assert accountant.ledger == events.ComposedDpEvent(
        [events.SelfComposedDpEvent(SAMPLED, 10), GAUSSIAN]
    )


def test_a_gap_out_of_reach_gives_the_upper_end_that_was_reached() -> None:
    accountant = TightPrivacyAccountant(rtol=1e-15)
    accountant.compose(events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(1.0)), 100)
    with pytest.raises(tb.PrecisionError) as caught:
        accountant.composition.epsilon(1e-2, 1e-15)
    assert accountant.get_epsilon(1e-2) == caught.value.upper < 1.0


def test_a_copy_goes_its_own_way() -> None:
    accountant = composed(SAMPLED, ADD)
    before = accountant.get_epsilon(1e-5)
    copy.deepcopy(accountant).compose(SAMPLED)
    assert accountant.get_epsilon(1e-5) == before


def test_its_calibration_takes_the_accountant() -> None:
    def made(sigma: float) -> Any:
        sampled = events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(sigma))
        return events.SelfComposedDpEvent(sampled, 1000)

    sigma = dp.calibrate_dp_mechanism(TightPrivacyAccountant, made, 1.0, 1e-5)
    assert composed(made(sigma), ADD).get_epsilon(1e-5) <= 1.0
    assert composed(made(sigma - 1e-4), ADD).get_epsilon(1e-5) > 1.0
    found = tb.calibrate(
        lambda s: tb.Gaussian(s).subsampled(0.01) * 1000,
        epsilon=1.0,
        delta=1e-5,
        between=(0.5, 5.0),
    )
    assert sigma == pytest.approx(found.value, rel=1e-4)


def test_its_calibration_finds_the_largest_number_of_steps() -> None:
    def made(steps: int) -> Any:
        return events.SelfComposedDpEvent(SAMPLED, steps)

    bracket = dp.LowerEndpointAndGuess(1, 128)
    steps = dp.calibrate_dp_mechanism(
        TightPrivacyAccountant, made, 2.0, 1e-5, bracket, discrete=True
    )
    assert composed(made(steps), ADD).get_epsilon(1e-5) <= 2.0
    assert composed(made(steps + 1), ADD).get_epsilon_bounds(1e-5).upper > 2.0


def test_its_calibration_of_a_count_refuses_to_run_nothing() -> None:
    """Its bracket begins at 0, and an event that never runs is refused by its ledger."""

    def made(steps: int) -> Any:
        return events.SelfComposedDpEvent(SAMPLED, steps)

    for accountant in (TightPrivacyAccountant, PLDAccountant):
        with pytest.raises(ValueError, match=r"`count` must be positive\. Found 0"):
            dp.calibrate_dp_mechanism(accountant, made, 2.0, 1e-5, discrete=True)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.delitem(sys.modules, "tightbudget.adapters.dp_accounting")
    with pytest.raises(tb.errors.ExtraError, match=r"pip install 'tightbudget\[dp-accounting\]'"):
        importlib.import_module("tightbudget.adapters.dp_accounting")


def test_the_repr_says_what_was_composed_and_an_epsilon() -> None:
    accountant = TightPrivacyAccountant()
    assert repr(accountant) == "<TightPrivacyAccountant: nothing yet>"
    accountant.compose(events.GaussianDpEvent(20.0), 5)
    said = repr(accountant)
    assert said.startswith(f"<TightPrivacyAccountant: {accountant.composition!r}; epsilon is at ")
