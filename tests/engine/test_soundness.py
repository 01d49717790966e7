"""lower <= exact <= upper, against exact rational arithmetic, whatever is asked and planned.

Two doors: the public one (any eps, delta, rtol, number of runs), and the measures themselves
with grids, tilts, coarsenings and cuts that no sensible plan would choose.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from tests.exact import Composed, Outputs, normalised, reversed_, subsampled

import tightbudget as tb
from tightbudget.engine.buckets.enumerate import Outcomes
from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.engine.buckets.measures import LowerMeasure, Tilt, UpperMeasure, discretise
from tightbudget.engine.buckets.profile import Profile
from tightbudget.numerics.bounds import Bounds
from tightbudget.pairs.direction import Direction

# ------------------------------------------------------------------------- small pairs

weights = st.one_of(
    st.just(0.0),
    st.integers(1, 1000).map(float),
    st.integers(1, 4).map(float),
    st.builds(lambda m, e: m * 10.0**-e, st.integers(1, 9), st.integers(1, 40)),
)


@st.composite
def masses(draw: st.DrawFn, n: int) -> list[float]:
    values = draw(st.lists(weights, min_size=n, max_size=n))
    values[draw(st.integers(0, n - 1))] = draw(st.integers(1, 9).map(float))  # not all are zero
    return values


@st.composite
def small_pairs(draw: st.DrawFn) -> tuple[tuple[float, ...], tuple[float, ...]]:
    n = draw(st.integers(2, 5))
    p = draw(masses(n))
    shape = draw(st.sampled_from(["any", "any", "near", "lattice", "mirror"]))
    if shape == "near":  # losses of 1e-9 and below
        shift = draw(st.sampled_from([1e-3, 1e-9, 1e-13]))
        q = [x * (1 + shift * draw(st.integers(-3, 3))) for x in p]
    elif shape == "lattice":  # losses are multiples of ln 2, before normalising
        q = [x * 2.0 ** draw(st.integers(-5, 5)) for x in p]
    elif shape == "mirror":
        q = p[::-1]
    else:
        q = draw(masses(n))
    return tuple(p), tuple(q)


rates = st.one_of(
    st.none(), st.none(), st.floats(1e-6, 1 - 1e-6), st.sampled_from([1e-9, 0.01, 0.5, 0.999])
)


@dataclass(frozen=True)
class Step:
    """A mechanism and what it is, exactly, in both directions."""

    mechanism: tb.Mechanism
    remove: Outputs
    add: Outputs


@st.composite
def steps(draw: st.DrawFn) -> Step:
    p, q = draw(small_pairs())
    base, outputs = tb.HistogramPair(p, q), normalised(p, q)
    rate = draw(rates)
    if rate is None:
        return Step(base, outputs, reversed_(outputs))
    mixed = subsampled(outputs, rate)
    return Step(base.subsampled(rate), mixed, reversed_(mixed))


@st.composite
def compositions(draw: st.DrawFn) -> list[Step]:
    """Up to 6 runs of up to 3 different mechanisms, small enough for exact arithmetic."""
    kinds = draw(st.lists(steps(), min_size=1, max_size=3))
    runs = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6))
    size = 1
    kept = []
    for step in runs:
        size *= len(step.remove)
        if size > 4000:
            break
        kept.append(step)
    return kept


epsilons = st.one_of(
    st.just(0.0), st.floats(1e-12, 100.0), st.floats(0.01, 3.0), st.integers(1, 60).map(float)
)
deltas = st.one_of(
    st.sampled_from([0.0, 1.0, 0.5]),
    st.floats(1e-3, 0.999),
    st.builds(lambda m, e: m * 10.0**-e, st.floats(1.0, 9.0), st.integers(1, 60)),
)
rtols = st.integers(1, 8).map(lambda e: 10.0**-e)


def answered(ask: Callable[[], Bounds], rtol: float) -> Bounds:
    """The bounds, or those that a refusal says were reached: these must be true as well."""
    try:
        bounds = ask()
    except tb.PrecisionError as error:
        event("PrecisionError")
        return Bounds(error.lower, error.upper)
    event("answered")
    assert (
        bounds.upper - bounds.lower <= rtol * bounds.upper
        or not 1e-290 < bounds.upper < math.inf
        or bounds.upper - bounds.lower <= 1e-12  # the rounding of the losses themselves
    )
    return bounds


# few outcomes are enumerated; the buckets must be right about them, too
bucketed = st.booleans()


@contextlib.contextmanager
def without_enumeration(active: bool) -> Iterator[None]:
    with mock.patch.object(Outcomes, "of", return_value=None) if active else nullcontext():
        yield


def test_outcomes_that_no_double_can_count_are_too_many() -> None:
    once = tb.HistogramPair(np.arange(70_000), np.arange(1, 70_001))  # 70,000^64 is about 10^310
    (parts, _) = (once * 64).engine.parts
    assert Outcomes.of(parts) is None


def both_directions(runs: list[Step]) -> tuple[tb.Composition, Composed, Composed]:
    return (
        tb.compose([step.mechanism for step in runs]),
        Composed.of(step.remove for step in runs),
        Composed.of(step.add for step in runs),
    )


def single(p: tuple[float, ...], q: tuple[float, ...]) -> Step:
    outputs = normalised(p, q)
    return Step(tb.HistogramPair(p, q), outputs, reversed_(outputs))


@pytest.mark.slow
@example([single((0.5, 0.25, 0.25, 1e-8), (1e-20, 0.25, 0.75, 0.0))], 1.0, 1e-4, True)
@example([single((0.5, 0.25, 0.25, 1e-8), (0.0, 0.25, 0.75, 1e-9))] * 2, 0.0, 1e-4, True)
@example([single((0.5, 0.5, 1e-7), (0.0, 1.0, 1e-30))] * 2, 1.0, 1e-4, True)
@given(compositions(), epsilons, rtols, bucketed)
@settings(max_examples=120)
def test_delta_holds_the_exact_value(
    runs: list[Step], epsilon: float, rtol: float, buckets: bool
) -> None:
    composition, remove, add = both_directions(runs)
    with without_enumeration(buckets):
        bounds = answered(lambda: composition.delta(epsilon, rtol), rtol)
    ends = remove.delta(epsilon), add.delta(epsilon)
    assert bounds.lower <= max(high for _, high in ends)
    assert bounds.upper >= max(low for low, _ in ends)


@pytest.mark.slow
@given(compositions(), deltas, rtols, bucketed)
@settings(max_examples=120)
def test_epsilon_holds_the_exact_value(
    runs: list[Step], delta: float, rtol: float, buckets: bool
) -> None:
    composition, remove, add = both_directions(runs)
    with without_enumeration(buckets):
        bounds = answered(lambda: composition.epsilon(delta, rtol), rtol)
    infinity = max(remove.infinity, add.infinity)
    if bounds.upper == math.inf:  # exactly if delta is below the mass at infinity
        given_up = bounds.lower < math.inf and delta > 0
        assert given_up or Fraction(delta) <= infinity * (1 + Fraction(1, 10**12))
    else:  # eps* <= upper exactly if delta(upper) <= delta
        assert remove.meets(bounds.upper, delta)
        assert add.meets(bounds.upper, delta)
    # eps* >= lower exactly if delta(e) > delta for all e < lower
    if bounds.lower == math.inf:
        assert infinity > Fraction(delta)
    elif bounds.lower > 0:
        below = math.nextafter(bounds.lower, 0.0)
        assert remove.misses(below, delta) or add.misses(below, delta)


@pytest.mark.slow
@given(compositions())
@settings(max_examples=100)
def test_the_mass_at_infinity_is_exact(runs: list[Step]) -> None:
    composition, remove, add = both_directions(runs)
    bounds = composition.delta(math.inf)
    exact = max(remove.infinity, add.infinity)
    assert Fraction(bounds.lower) <= exact <= Fraction(bounds.upper)
    assert bounds.upper - bounds.lower <= 1e-12 * bounds.upper


@pytest.mark.slow
@given(compositions(), st.floats(1.001, 50.0), rtols)
@settings(max_examples=80)
def test_renyi_holds_the_exact_value(runs: list[Step], order: float, rtol: float) -> None:
    composition, remove, add = both_directions(runs)
    bounds = answered(lambda: composition.renyi(order, rtol), math.inf)
    ends = remove.renyi(order), add.renyi(order)
    assert 0 <= bounds.lower <= max(high for _, high in ends)
    assert bounds.upper >= max(low for low, _ in ends)


# -------------------------------------------------------- any plan whatever, on measures

Measure = UpperMeasure | LowerMeasure


@dataclass(frozen=True)
class Plan:
    """A tree of operations; each is sound, few are wise."""

    theta: float
    step: float
    leaves: tuple[tuple[float, int, float], ...]  # (first edge, number of edges, anchor)
    tidying: tuple[tuple[int, float], ...]  # (coarsenings, tolerance) after each operation
    order: tuple[int, ...]


@st.composite
def plans(draw: st.DrawFn, runs: int) -> Plan:
    wild = st.floats(-40.0, 40.0)
    theta = draw(st.one_of(st.floats(0.01, 50.0), st.sampled_from([1e-9, 1e-3, 1.0, 300.0])))
    step = draw(st.one_of(st.floats(1e-3, 5.0), st.sampled_from([0.25, math.log(2), 1e-6, 40.0])))
    first = draw(wild)
    leaves = []
    for _ in range(runs):
        if draw(st.booleans()):
            first = draw(wild)
        leaves.append((first, draw(st.integers(1, 60)), draw(st.floats(-5.0, 5.0))))
    tidying = st.tuples(
        st.sampled_from([0, 0, 0, 1, 2, 5]),
        st.sampled_from([0.0, 0.0, 1e-12, 1e-6, 1e-2, 0.3, 2.0]),
    )
    return Plan(
        theta,
        step,
        tuple(leaves),
        tuple(draw(st.lists(tidying, min_size=2 * runs, max_size=2 * runs))),
        tuple(draw(st.lists(st.integers(0, 5), min_size=runs, max_size=runs))),
    )


def merged(measures: list[Measure], plan: Plan) -> Measure:
    """All leaves together, in the plan's order, tidied as it says."""
    tidying = iter(plan.tidying)

    def tidied(measure: Measure) -> Measure:
        coarsenings, tolerance = next(tidying)
        for _ in range(coarsenings):
            measure = measure.coarsened()
        return measure.trimmed(tolerance) if tolerance else measure

    queue = [tidied(measure) for measure in measures]
    for pick in plan.order:
        if len(queue) == 1:
            break
        a = queue.pop(pick % len(queue))
        b = queue.pop(pick % len(queue))
        while a.grid.step < b.grid.step:
            a = a.coarsened()
        while b.grid.step < a.grid.step:
            b = b.coarsened()
        queue.append(tidied(a * b))  # type: ignore[operator]
    assert len(queue) == 1
    return queue[0]


def planned(runs: list[Step], direction: Direction, plan: Plan) -> Profile:
    uppers: list[Measure] = []
    lowers: list[Measure] = []
    none_lost = none_infinite = Fraction(1)
    top = 0.0
    for step, (first, n, anchor) in zip(runs, plan.leaves, strict=True):
        pair = step.mechanism.pair(direction)
        grid, tilt = Grid(Fraction(first), plan.step), Tilt(plan.theta, Fraction(anchor))
        upper, lower, beyond = discretise(pair, grid, n, tilt)
        uppers.append(upper)
        lowers.append(lower)
        infinite = pair.p_only()
        none_lost *= max(Fraction(0), 1 - Fraction(infinite.upper[0]) - Fraction(beyond))
        none_infinite *= 1 - Fraction(infinite.lower[0])
        top += pair.max_loss()[1]
    lost, infinite_ = float(1 - none_lost) * (1 + 1e-15), float(1 - none_infinite) * (1 - 1e-15)
    above, below = merged(uppers, plan), merged(lowers, plan)
    assert isinstance(above, UpperMeasure)
    assert isinstance(below, LowerMeasure)
    return Profile.of(above, below, Bounds(infinite_, max(lost, infinite_)), math.inf, lost)


@st.composite
def planned_runs(draw: st.DrawFn) -> tuple[list[Step], Plan]:
    runs = draw(compositions())
    return runs, draw(plans(len(runs)))


@pytest.mark.slow
@given(
    planned_runs(),
    st.sampled_from(Direction),
    st.lists(st.one_of(epsilons, st.floats(-60.0, 0.0)), min_size=1, max_size=5),
)
@settings(max_examples=600)
def test_bounds_hold_whatever_the_plan(
    task: tuple[list[Step], Plan], direction: Direction, at: list[float]
) -> None:
    runs, plan = task
    exact = Composed.of(s.remove if direction is Direction.REMOVE else s.add for s in runs)
    with np.errstate(all="ignore"):  # an overflow is allowed to widen, not to lie
        try:
            profile = planned(runs, direction, plan)
        except (OverflowError, tb.PrecisionError):
            event("refused")
            return
    for epsilon in at:
        low, high = exact.delta(epsilon)
        lower, upper = profile.lower_delta(epsilon), profile.upper_delta(epsilon)
        event("useful" if upper < 2 * lower else "wide")
        assert Fraction(lower) <= high
        assert upper == math.inf or low <= Fraction(upper)


@pytest.mark.slow
@given(planned_runs(), st.floats(0.01, 3.0))
@settings(max_examples=100)
def test_a_coarser_grid_and_a_cut_never_tighten(
    task: tuple[list[Step], Plan], epsilon: float
) -> None:
    runs, plan = task
    plain = replace(plan, tidying=tuple((0, 0.0) for _ in plan.tidying))
    rough = replace(plan, tidying=tuple((max(1, c), 0.0) for c, _ in plan.tidying))
    with np.errstate(all="ignore"):
        try:
            fine, coarse = (planned(runs, Direction.REMOVE, x) for x in (plain, rough))
        except (OverflowError, tb.PrecisionError):
            return
    hair = 1e-9
    upper, lower = fine.upper_delta(epsilon), fine.lower_delta(epsilon)
    # each bound pays for its own rounding, of which a coarser grid may have less
    with np.errstate(all="ignore"):
        above, below = (x.cut_error(epsilon) * 1.1 + 1e-11 for x in (fine.upper, fine.lower))
    if math.isfinite(upper):
        assert coarse.upper_delta(epsilon) >= upper * (1 - hair) - above
    assert coarse.lower_delta(epsilon) <= lower * (1 + hair) + below


@pytest.mark.one_in(3)
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("epsilon", [-900.0, -720.0, -700.0, 0.0, 3.0])
def test_far_from_the_tilt_an_upper_end_is_high_not_zero(
    direction: Direction, epsilon: float
) -> None:
    # 1,600 nats of losses: e^-loss overflows on one side, and inf * 0 must not become 0
    step = tb.Gaussian(0.02).pair(direction)
    for theta in (1e-9, 0.5, 1.0, 40.0):
        grid, tilt = Grid(Fraction(-500), 0.25), Tilt(theta, Fraction(1250))
        try:
            upper, lower, beyond = discretise(step, grid, 16_000, tilt)
        except tb.PrecisionError:  # the tilt overflows: no measure, no bound
            continue
        profile = Profile.of(upper * upper, lower * lower, Bounds(0.0, 2 * beyond), math.inf, 0.0)
        assert profile.upper_delta(epsilon) >= 1 - 1e-12
        assert profile.lower_delta(epsilon) <= 1


# -------------------------------------------------------------------- very many atoms


def test_a_heavy_smallest_loss_is_on_the_grid() -> None:
    """The output 0 of clipped noise, which everything below 0 was moved to: one atom in 1e5."""
    noise = tb.ClippedNoise(7500.0, 2500.0, "gaussian", shift=2, reading="clipped")
    assert noise.pair(Direction.ADD).atoms().p.lower[0] > 1e-3
    assert (noise * 65536).delta(math.log(2), rtol=1e-2).relative_gap <= 1e-2


def test_atoms_beyond_the_grid_do_not_blur_those_on_it() -> None:
    """A hundred thousand of them used to cost as many units in the last place everywhere."""
    pair = tb.DiscreteGaussian(1e4).pair(Direction.REMOVE)
    upper, lower, beyond = discretise(
        pair, Grid(Fraction(-1, 1000), 1e-5), 200, Tilt(0.0, Fraction(0))
    )
    outside = np.abs(pair.atoms().loss_upper) > 1e-3
    assert np.count_nonzero(outside) > 5e5
    assert math.fsum(pair.atoms().p.upper[outside]) < 1e-20
    mass = math.ldexp(math.fsum(upper.values), upper.exponent) + beyond
    assert 0.0 <= mass - 1.0 < 1e-12
    assert 0.0 <= 1.0 - math.ldexp(math.fsum(lower.p), lower.p_exponent) < 1e-12
