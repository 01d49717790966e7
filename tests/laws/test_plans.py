"""Laws of a plan: what its grid leaves out is what the demand allows, and finer is not worse."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.cases import each_mechanism
from tests.guards.mutants import Without, lose_a_truth

import tightbudget as tb
from tightbudget.engine.buckets.compose import Demand, Layout, Parts, make_plan
from tightbudget.engine.buckets.tilt import tilted_moments
from tightbudget.mechanisms import Mechanism
from tightbudget.numerics.bounds import Bounds
from tightbudget.pairs.direction import Direction

RUNS = 100


def layouts(mechanism: Mechanism, direction: Direction, slip: float) -> tuple[Layout, ...]:
    """Where 100 runs are bucketed to find eps at some deltas."""
    steps = Parts.of((mechanism * RUNS).pairs(direction))
    if not steps.parts:
        return ()
    saddles = [steps.picture.for_delta(delta) for delta in (0.1, 1e-10)]
    # buckets far finer than what a sketch shows
    plans = [
        make_plan(steps, Demand(s, max(1e-6 * s.spread**2, 1e-280), slip, slip)) for s in saddles
    ]
    return tuple(layout for plan in plans for layout in plan.layouts)


def tilted_mass_below(layout: Layout) -> float:
    """The share of the tilted measure that is left of the grid: atoms and bins."""
    pair, theta = layout.part.pair, layout.tilt.theta
    edges, slack = layout.grid.losses(1)
    edges -= 1e-12 * (1 + np.abs(edges))  # a lump at the first edge lies within rounding of it
    bins, atoms = pair.bins(edges, slack), pair.atoms()
    mass = 0.0 if bins is None else float(bins.p.upper[0])
    mass += float(np.sum(atoms.p.upper[atoms.loss_upper < edges[0]]))
    log_total = tilted_moments(layout.part.sketch, theta)[0]
    return math.exp(min(0.0, math.log(mass) + theta * edges[0] - log_total)) if mass > 0 else 0.0


def nothing_is_lost_on_the_left(mechanism: Mechanism, slip: float) -> bool:
    return all(
        tilted_mass_below(layout) <= 2 * slip / layout.part.count
        for direction in Direction
        for layout in layouts(mechanism, direction, slip)
    )


@pytest.mark.one_in(4)
@each_mechanism
@pytest.mark.parametrize("slip", [1e-4, 1e-10])
def test_the_grid_begins_where_no_more_mass_is_left_than_may_be_cut(
    mechanism: Mechanism, slip: float
) -> None:
    assert nothing_is_lost_on_the_left(mechanism, slip)


def test_a_grid_that_trusts_the_sketch_loses_mass_on_the_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trusting = Without(
        "the pair is asked where its least loss is",
        {"asked-at-least-loss": "mass = 0.0"},
        lambda: nothing_is_lost_on_the_left(tb.TruncatedGaussian(20.0, bound=60.0), 1e-6),
    )
    lose_a_truth(monkeypatch, trusting)


# --------------------------------------------------------------------------- finer gaps


def answered(composition: tb.Composition, epsilon: float, rtol: float) -> Bounds | None:
    try:
        return composition.delta(epsilon, rtol=rtol)
    except tb.PrecisionError:
        return None


@pytest.mark.slow
@each_mechanism
def test_an_answer_at_a_fine_gap_is_an_answer_at_a_rough_one(mechanism: Mechanism) -> None:
    composition = mechanism * 5 + tb.TruncatedGaussian(3.0, bound=7.0) * 2
    epsilon = composition.epsilon(1e-2, rtol=1e-2).lower
    if not 0 < epsilon < math.inf:
        epsilon = 0.3
    fine = answered(composition, epsilon, 1e-5)
    for rtol in (1e-2, 1e-3, 1e-4):
        rough = answered(composition, epsilon, rtol)
        if fine is None:
            continue
        assert rough is not None, f"refused at {rtol}, answered at 1e-5"
        if composition.attained is None:
            assert rough.relative_gap <= rtol
        else:  # each end is close to that of its own pair
            assert rough.lower >= fine.lower * (1 - rtol)
            assert rough.upper * (1 - rtol) <= fine.upper
        assert rough.overlaps(fine)


@pytest.mark.slow
def test_a_refusal_says_what_the_gap_is_made_of() -> None:
    with pytest.raises(tb.PrecisionError) as caught:
        (tb.Laplace(1e7) * 10**13).epsilon(1e-5)
    assert "the rounding of doubles stands in the way (of the last gap " in str(caught.value)
    assert "% came from cuts and rounding, the rest from buckets)" in str(caught.value)


@pytest.mark.parametrize(
    ("composition", "epsilon", "rtol"),
    [
        # five passes stay at a gap of 2e-3; the next one tells the atoms apart
        (tb.ClippedNoise(2.09, 1.15, "laplace", 1, "clipped") * 4
         + tb.DiscreteGaussian(1.48, 3) * 6, 1.85, 1e-4),
        # equally fine grids have gaps that differ by a fifth
        (tb.Laplace(1.0) * 5, 1.0, 1e-6),
    ],
)  # fmt: skip
def test_passes_that_do_not_narrow_the_gap_are_not_the_last(
    composition: tb.Composition, epsilon: float, rtol: float
) -> None:
    assert composition.delta(epsilon, rtol=rtol).relative_gap <= rtol


def test_a_truncated_step_is_answered_at_every_gap() -> None:
    # the first three were refused, and a finer gap was answered
    composition = (
        tb.ClippedNoise(0.5, 2.74, shift=3).subsampled(0.28) * 2
        + tb.HistogramPair([13, 1000], [3, 3], smoothing=1.0) * 4
        + tb.TruncatedGaussian(1.37, bound=2.92)
    )
    found = [composition.delta(1.51, rtol=rtol) for rtol in (1e-4, 5e-5, 1e-5, 1e-6)]
    assert all(one.overlaps(found[-1]) for one in found)
    assert (tb.TruncatedGaussian(20.0, bound=60.0) * 100).delta(0.05).relative_gap <= 1e-4
