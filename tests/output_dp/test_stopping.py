"""The price of stopping early, against exact arithmetic, laws and the plain engine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import exact
from tests.cases import CASES, slow_unless_core
from tests.exact import Outputs, exp_ends, normalised, reversed_

import tightbudget as tb
from tightbudget.mechanisms.composition import Mechanism
from tightbudget.numerics.bounds import Bounds
from tightbudget.output_dp import stopping
from tightbudget.output_dp.backward_induction import BackwardInduction
from tightbudget.output_dp.stopping_lattice import Lattice, RunLosses
from tightbudget.pairs.direction import Direction

DPSGD = tb.Gaussian(1.0).subsampled(0.01)


def reached(ask: Callable[..., Bounds], *question: object) -> Bounds:
    """The bounds, also those that were too wide for the gap that was asked for."""
    try:
        return ask(*question)
    except tb.PrecisionError as error:
        return Bounds(error.lower, error.upper)


# ------------------------------------------------------------------------ exact truths


def worst_case(epsilon: Fraction, delta: Fraction) -> tuple[Outputs, Outputs]:
    """Rational pairs around that of any (epsilon, delta)-DP mechanism: milder, dearer."""
    pairs = []
    for e in exp_ends(epsilon):
        high, low = (1 - delta) * e / (1 + e), (1 - delta) / (1 + e)
        zero = Fraction(0)
        pairs.append(((delta, zero), (high, low), (low, high), (zero, delta)))
    return pairs[0], pairs[1]


def families(steps: Sequence[Outputs], factors: Sequence[Fraction]) -> Fraction:
    """Theorem 15 by its words, with a stop after each step: all prefix-free families."""
    paths = [
        path
        for k in range(1, len(steps) + 1)
        for path in itertools.product(*(range(len(step)) for step in steps[:k]))
    ]
    best = Fraction(0)
    for chosen in itertools.product((False, True), repeat=len(paths)):
        family = {path for path, taken in zip(paths, chosen, strict=True) if taken}
        if any(path[:k] in family for path in family for k in range(1, len(path))):
            continue
        total = Fraction(0)
        for path in family:
            a = math.prod((steps[k][o][0] for k, o in enumerate(path)), start=Fraction(1))
            b = math.prod((steps[k][o][1] for k, o in enumerate(path)), start=Fraction(1))
            total += a - factors[len(path) - 1] * b
        best = max(best, total)
    return best


@pytest.mark.parametrize("factors", [(2, 2), (Fraction(3, 2), 3), (3, Fraction(11, 10)), (1, 1)])
def test_the_tree_is_the_best_of_all_prefix_free_families(factors) -> None:
    halves = [
        ((Fraction(2, 3), Fraction(1, 4)), (Fraction(1, 3), Fraction(3, 4))),
        ((Fraction(1, 6), Fraction(1, 3)), (Fraction(1, 2), Fraction(0)), (Fraction(1, 3),) * 2),
    ]
    halves[1] = (*halves[1][:2], (Fraction(1, 3), Fraction(2, 3)))
    factors = [Fraction(f) for f in factors]
    assert exact.stopping_delta(halves, [1, 2], factors) == families(halves, factors)


def truth_of(parameters, stops, epsilons) -> tuple[Fraction, Fraction]:
    pairs = [worst_case(Fraction(e), Fraction(d)) for e, d in parameters]
    ends = [exp_ends(e) for e in epsilons]
    return (
        exact.stopping_delta([p[0] for p in pairs], stops, [e[1] for e in ends]),
        exact.stopping_delta([p[1] for p in pairs], stops, [e[0] for e in ends]),
    )


def test_two_steps_known_by_epsilon_and_delta() -> None:
    question = [(0.3, 0.05), (0.5, 0.1)], [1, 2], [0.2, 0.4]
    bounds = tb.optimal_delta(*question, rtol=1e-9)
    low, high = truth_of(*question)
    assert bounds.lower <= low <= high <= bounds.upper
    assert 0.24578971419346904 in bounds
    assert bounds.relative_gap <= 1e-9


SIX = [(0.3, 1e-3), (0.5, 1e-4), (0.2, 1e-3), (0.4, 0.0), (0.3, 1e-3), (0.3, 1e-4)]


def test_six_steps_known_by_epsilon_and_delta() -> None:
    question = SIX, [2, 4, 6], [0.5, 0.8, 1.0]
    bounds = tb.optimal_delta(*question, rtol=1e-8)
    low, high = truth_of(*question)
    assert bounds.lower <= low <= high <= bounds.upper
    assert bounds.lower == pytest.approx(0.1044754598, abs=1e-10)
    parts = [
        tb.compose([tb.ApproximateDP(*p) for p in SIX[:k]]).delta(e).upper
        for k, e in zip([2, 4, 6], [0.5, 0.8, 1.0], strict=True)
    ]
    assert parts == pytest.approx([0.0936728454, 0.0725255993, 0.0750431010], abs=1e-10)
    assert sum(parts) == pytest.approx(0.2412415457, abs=1e-10)


masses = st.one_of(st.integers(0, 5).map(float), st.floats(0.01, 5.0))
histograms = st.lists(st.tuples(masses, masses), min_size=2, max_size=3).filter(
    lambda bins: sum(p for p, _ in bins) > 0 and sum(q for _, q in bins) > 0
)


@st.composite
def courses(draw):
    kinds = draw(st.lists(histograms, min_size=1, max_size=2))
    steps = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5))
    stops = {len(steps), *draw(st.lists(st.integers(1, len(steps)), max_size=4))}
    prices = st.one_of(st.just(0.0), st.floats(0.0, 4.0))
    return steps, sorted(stops), [draw(prices) for _ in stops]


def masses_of(bins) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(p for p, _ in bins), tuple(q for _, q in bins)


@settings(max_examples=20)
@given(courses())
def test_some_finite_mechanisms_against_the_tree(question) -> None:
    against_the_tree(question)


@pytest.mark.slow
@settings(max_examples=80)
@given(courses())
def test_any_finite_mechanisms_against_the_tree(question) -> None:
    against_the_tree(question)


def against_the_tree(question) -> None:
    steps, stops, epsilons = question
    mechanisms = [tb.HistogramPair(*masses_of(bins)) for bins in steps]
    bounds = reached(tb.stopping_delta, mechanisms, stops, epsilons)
    outputs = [normalised(*masses_of(bins)) for bins in steps]
    ends = [exp_ends(e) for e in epsilons]
    low, high = (
        max(
            exact.stopping_delta(losses, stops, [e[i] for e in ends])
            for losses in (outputs, [reversed_(o) for o in outputs])
        )
        for i in (1, 0)
    )
    assert Fraction(bounds.lower) <= high
    assert low <= Fraction(bounds.upper)
    # the gap is met, but for what lies within rounding of an atom
    assert bounds.relative_gap <= 1e-3 or bounds.width <= 0.02


# -------------------------------------------------------------------------------- laws


def prices(mechanism: Mechanism, stops: Sequence[int], delta: float = 1e-4) -> list[float]:
    found = [reached((mechanism * k).epsilon, delta).upper for k in stops]
    return [min(e, 3.0) for e in found]


# losses of a thousand nats overflow under a tilt: the gap that is left there is wide
CALM = [case for case in CASES[::2] if case.name != "sampled-gaussian-very-narrow"]


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=slow_unless_core(c)) for c in CALM]
)
def test_between_the_dearest_single_stop_and_their_sum(case) -> None:
    stops = [1, 3, 7]
    epsilons = prices(case.mechanism, stops)
    alone = [reached((case.mechanism * k).delta, e) for k, e in zip(stops, epsilons, strict=True)]
    both = reached(tb.stopping_delta, case.mechanism, stops, epsilons)
    assert both.upper >= max(b.lower for b in alone)
    assert both.lower <= sum(b.upper for b in alone)
    if not both.apart:  # else each bound has a pair of its own
        assert both.relative_gap <= 1e-3


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=slow_unless_core(c)) for c in CASES[1::3]]
)
def test_one_stop_is_the_plain_delta(case) -> None:
    (epsilon,) = prices(case.mechanism, [5])
    plain = reached((case.mechanism * 5).delta, epsilon)
    assert reached(tb.stopping_delta, case.mechanism, [5], [epsilon]).overlaps(plain)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mechanism", [DPSGD, tb.Laplace(5.0), tb.ApproximateDP(0.3, 1e-6)])
def test_another_stop_can_only_cost_more(mechanism) -> None:
    stops, epsilons = [2, 4, 8], prices(mechanism, [2, 4, 8])
    fewer = tb.stopping_delta(mechanism, [2, 8], [epsilons[0], epsilons[2]])
    assert tb.stopping_delta(mechanism, stops, epsilons).upper >= fewer.lower


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mechanism", [DPSGD, tb.Laplace(5.0), tb.ApproximateDP(0.3, 1e-6)])
def test_a_price_above_a_later_one_may_be_lowered_to_it_for_free(mechanism) -> None:
    epsilons = prices(mechanism, [2, 4, 8])
    dear, fair = ([epsilons[0], e, epsilons[2]] for e in (epsilons[2] + 0.5, epsilons[2]))
    one, other = (tb.stopping_delta(mechanism, [2, 4, 8], e, 1e-4) for e in (dear, fair))
    assert one.overlaps(other)


def test_blocks_and_steps_are_the_same() -> None:
    a, b = tb.Gaussian(3.0), tb.Laplace(4.0)
    steps = tb.stopping_delta([a, b, a, b, b], [2, 5], [1.0, 1.5])
    blocks = tb.stopping_delta([a + b, a + b * 2], [1, 2], [1.0, 1.5])
    assert steps == blocks


def test_steps_that_never_matter() -> None:
    never = tb.compose([])
    assert tb.stopping_delta(never, [1, 2], [0.0, 1.0]) == Bounds(0.0, 0.0)
    waits = tb.stopping_delta([tb.Gaussian(1.0), never], [1, 2], [0.5, 0.5])
    assert waits.overlaps((tb.Gaussian(1.0) * 1).delta(0.5))


def test_what_nothing_can_protect() -> None:
    assert tb.stopping_delta(tb.ApproximateDP(0.1, 1.0), [1, 2], [1.0, 2.0]) == Bounds(1.0, 1.0)


def test_prices_of_the_largest_losses_leave_the_infinite_ones() -> None:
    bounds = tb.optimal_delta([(0.3, 0.01)] * 2, [1, 2], [0.3, 0.6])
    assert 1 - 0.99**2 in bounds
    assert bounds.width <= 1e-12


# ------------------------------------------------------------------------------ grids


@pytest.mark.slow
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("delta", [1e-5, 1e-12])
def test_the_answer_does_not_depend_on_the_lattice(direction, delta) -> None:
    stops = [40, 80, 160]
    epsilons = [(DPSGD * k).epsilon(delta).upper for k in stops]
    losses = RunLosses.of(stopping.blocks_between(DPSGD, tuple(stops)), direction)
    found = []
    for share, extended in [(16.0, False), (2.0, False), (2.0, True), (0.1, False)]:
        walk = BackwardInduction(losses, Lattice.of(losses, epsilons, 1e-3, share, extended))
        upper, rule = walk.upper(epsilons)
        found.append(Bounds(walk.lower(rule), upper))
    for one, other in itertools.pairwise(found):
        assert one.overlaps(other)
    if direction is Direction.REMOVE:  # the milder direction is nowhere near
        assert found[-1].relative_gap < 1e-3


@pytest.mark.one_in(4)
@pytest.mark.parametrize("delta", [1e-5, 1e-10, 1e-15])
@pytest.mark.parametrize("step", [DPSGD, tb.Gaussian(30.0)], ids=["dpsgd", "gaussian"])
def test_small_deltas(step, delta) -> None:
    stops = list(range(100, 1001, 100))
    epsilons = [(step * k).epsilon(delta).upper for k in stops]
    bounds = tb.stopping_delta(step, stops, epsilons)
    assert bounds.relative_gap <= 1e-3
    assert delta < bounds.upper < 10 * delta


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (2, 1.79e-5),
        (10, 4.49e-5),
        (50, 7.07e-5),
        pytest.param(250, 9.10e-5, marks=pytest.mark.slow),
    ],
)
def test_more_stops_of_the_same_run(number, printed) -> None:
    """Each stop alone has delta = 1e-5; the printed values are upper ends on a coarse grid."""
    stops = range(1000 // number, 1001, 1000 // number)
    epsilons = [(DPSGD * k).epsilon(1e-5).upper for k in stops]
    bounds = tb.stopping_delta(DPSGD, stops, epsilons, rtol=3e-4)
    assert 0.995 * printed < bounds.lower < bounds.upper < printed + 0.005e-5


def test_a_gap_that_cannot_be_reached_says_which_was() -> None:
    with pytest.raises(tb.PrecisionError, match=r"relative gap 1e-14 was not reached") as caught:
        tb.optimal_delta([(0.3, 0.05), (0.5, 0.1)], [1, 2], [0.2, 0.4], rtol=1e-14)
    assert 0 < caught.value.lower < caught.value.upper < 1.001 * caught.value.lower


# ---------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ((DPSGD, [], []), r"stops must name at least one number of steps, got \[\]"),
        ((DPSGD, [0, 1], [1, 1]), r"stops\[0\] must be an integer >= 1, got 0"),
        ((DPSGD, [2, 2], [1, 1]), r"stops\[1\] must be > stops\[0\] = 2, got 2"),
        ((DPSGD, [1, 2], [1]), r"epsilons must hold a price for each of the 2 stops, got \[1\]"),
        ((DPSGD, [1], [-1.0]), r"epsilons\[0\] must be a finite number >= 0, got -1.0"),
        ((DPSGD, [1], [math.nan]), r"epsilons\[0\] must be a finite number >= 0, got nan"),
        ((DPSGD, [1], [1.0], 1.0), r"rtol must be in \(0, 1\), got 1.0"),
        (([DPSGD], [2], [1.0]), r"step must hold stops\[-1\] = 2 steps, got 1"),
        ((DPSGD, 10, [1.0]), r"stops must be a list of numbers of steps, such as \[10\], got 10"),
        (([DPSGD, 3], [2], [1.0]), r"step\[1\] must be a mechanism or a composition, got 3"),
    ],
)
def test_refusals(question, message) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        tb.stopping_delta(*question)


def test_a_parameter_that_is_no_pair_is_refused() -> None:
    with pytest.raises(tb.ParameterError, match=r"parameters\[1\] must be a pair"):
        tb.optimal_delta([(0.1, 0.0), (0.1,)], [1, 2], [0.1, 0.2])  # type: ignore[list-item]


def test_relations_that_do_not_fit_are_refused() -> None:
    one = tb.Gaussian(1.0, relation=tb.Neighbouring.REPLACE_ONE)
    with pytest.raises(tb.errors.RelationError):
        tb.stopping_delta([one, DPSGD], [1, 2], [1.0, 2.0])
