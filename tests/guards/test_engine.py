"""Every guard of the engine is taken away once, and a true inequality must become false.

A mutation replaces a statement that is marked as a guard. With the guard the stated inequality
holds; without it, it does not: so no guard is there for show, and none can get lost unnoticed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest
from flint import arb, ctx
from tests.engine.test_directions import (
    QUESTIONS,
    an_uncertain_mass_proves_nothing,
    worse_direction_is_asked,
)
from tests.exact import Composed, normalised, response_delta
from tests.guards.mutants import Without, each, lose_a_truth
from tests.laws.test_pairs import slack_covers_longer_bins

import tightbudget as tb
from tightbudget.engine.buckets import compose, refine
from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.engine.buckets.measures import LowerMeasure, Tilt, discretise
from tightbudget.engine.buckets.profile import LowerDelta, Profile
from tightbudget.engine.question import EpsilonAt
from tightbudget.engine.readings import renyi
from tightbudget.numerics import convolve
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.enclosure import Enclosure, exact
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Pair

# ------------------------------------------------------------------- what must be true


def power(measure: Any, runs: int) -> Any:
    """A power of two, by squaring alone: no plan, no cutting."""
    while runs > 1:
        measure, runs = measure * measure, runs // 2
    return measure


def profile_of(
    pair: Pair,
    grid: Grid,
    n: int,
    tilt: Tilt,
    runs: int = 1,
    change: Callable[[Any], Any] = lambda measure: measure,
) -> Profile:
    upper, lower, beyond = discretise(pair, grid, n, tilt)
    lost = -math.expm1(runs * math.log1p(-beyond)) * (1 + 1e-15)
    above, below = change(power(upper, runs)), change(power(lower, runs))
    return Profile.of(above, below, Bounds(0.0, lost), math.inf, 0.0)


RESPONSES = [(p, runs) for p in (0.55, 0.6, 0.65, 0.7, 0.75, 0.8) for runs in (64, 128)]


def response(p: float, runs: int, below: float) -> tuple[Profile, float, Fraction]:
    """A profile without a tilt, an eps some losses below the largest, and delta there."""
    spacing = math.log(p / (1 - p))
    pair = tb.RandomizedResponse(p).pair(Direction.REMOVE)
    start = Fraction(-spacing) + Fraction(1, 10**14)  # both losses are a margin below an edge
    seen = profile_of(pair, Grid(start, 2 * spacing), 2, Tilt(1e-9, Fraction(0)), runs)
    epsilon = spacing * (runs - below)
    return seen, epsilon, response_delta(Fraction(p), runs, epsilon)[0]


def upper_responses() -> bool:
    """The largest loss alone has a mass below the noise of an FFT, which may hide it."""
    cases = [response(p, runs, 1.0) for p, runs in RESPONSES]
    return all(Fraction(seen.upper_delta(e)) >= truth for seen, e, truth in cases)


def lower_responses() -> bool:
    """A quarter of all losses have no mass but noise."""
    cases = [response(p, runs, runs / 4 + 1) for p, runs in RESPONSES]
    margin = Fraction(1, 10**14)
    return all(Fraction(seen.lower_delta(e)) <= truth * (1 + margin) for seen, e, truth in cases)


def gaussian_truth(m: float, epsilon: float) -> tuple[float, float]:
    with ctx.workprec(300):
        z = arb(epsilon) / arb(m)

        def above(x: arb) -> arb:
            return (x / arb(2).sqrt()).erfc() / 2

        delta = above(z - arb(m) / 2) - arb(epsilon).exp() * above(z + arb(m) / 2)
        return float(delta) * (1 - 1e-15), float(delta) * (1 + 1e-15)


def gaussian(
    first: float,
    step: float,
    n: int,
    epsilons: tuple[float, ...] = (0.0, 0.3, 1.0),
    theta: float = 1.0,
    change: Callable[[Any], Any] = lambda measure: measure,
    m: float = 1.0,
) -> bool:
    """One Gaussian step between both ends, on any grid."""
    pair = tb.Gaussian(1.0 / m).pair(Direction.REMOVE)
    seen = profile_of(pair, Grid(Fraction(first), step), n, Tilt(theta, Fraction(0)), 1, change)
    return all(
        seen.lower_delta(e) <= gaussian_truth(m, e)[1]
        and seen.upper_delta(e) >= gaussian_truth(m, e)[0]
        for e in epsilons
    )


def atoms(first: float, n: int) -> bool:
    """Two atoms at -1 and 1, of which the grid may miss one."""
    p = math.e / (1 + math.e)
    pair = tb.ApproximateDP(1.0).pair(Direction.REMOVE)
    seen = profile_of(pair, Grid(Fraction(first), 0.5), n, Tilt(1.0, Fraction(0)))
    return all(
        seen.lower_delta(e) <= truth * (1 + 1e-12) and seen.upper_delta(e) >= truth * (1 - 1e-12)
        for e in (-3.0, -0.5, 0.0, 0.9)
        for truth in [max(0.0, p - math.exp(e) * (1 - p)) + max(0.0, (1 - p) - math.exp(e) * p)]
    )


def uncertain_atoms() -> bool:
    """An output whose P-mass is only known to be in [0.5, 0.75]; the truth is 0.5."""
    between = Enclosure(np.array([0.25, 0.5]), np.array([0.5, 0.75]))
    losses = np.array([0.0, 2.0])
    pair = AtomicPair(Atoms(between, exact(np.array([0.5, 0.0677])), losses, losses))
    seen = profile_of(pair, Grid(Fraction(-1), 1.0), 5, Tilt(1.0, Fraction(0)))
    return seen.lower_delta(0.0) <= 0.5 * (1 - math.exp(-2.0)) * (1 + 1e-12)


def histogram(p: tuple[float, ...], q: tuple[float, ...], runs: int, *epsilons: float) -> bool:
    """The public answer against exact arithmetic, both directions."""
    composition = tb.HistogramPair(p, q) * runs
    outputs = normalised(p, q)
    truth = Composed.of([outputs] * runs), Composed.of([tuple((b, a) for a, b in outputs)] * runs)
    for epsilon in epsilons:
        bounds = composition.delta(epsilon)
        if bounds.lower > max(x.delta(epsilon)[1] for x in truth):
            return False
        if bounds.upper < max(x.delta(epsilon)[0] for x in truth):
            return False
    return True


def planned(p: tuple[float, ...], q: tuple[float, ...], runs: int, grid: Grid, n: int) -> bool:
    """The same, through a grid that leaves outputs out."""
    step = compose.Part.of(tb.HistogramPair(p, q).pair(Direction.REMOVE), runs)
    steps = compose.Parts.of((tb.HistogramPair(p, q) * runs).pairs(Direction.REMOVE))
    plan = compose.BucketPlan(
        (compose.Layout(step, grid, n, Tilt(1.0, Fraction(0))),), 0.0, 1e-30, False
    )
    seen = compose.profile(steps, plan)
    truth = Composed.of([normalised(p, q)] * runs)
    return all(
        Fraction(seen.upper_delta(e)) >= truth.delta(e)[0]
        and Fraction(seen.lower_delta(e)) <= truth.delta(e)[1]
        for e in (0.1, 1.0, 3.0)
    )


def gaussian_epsilon() -> bool:
    # of the buckets: the saddle-point engine would answer first; two runs have no closed form
    steps = (compose.Parts.of((tb.Gaussian(math.sqrt(2.0)) * 2).pairs(Direction.REMOVE)),)
    bounds = refine.refine(EpsilonAt(1e-3), steps, 1e-6).bounds
    met = gaussian_truth(1.0, bounds.upper)[0] <= 1e-3
    return met and gaussian_truth(1.0, bounds.lower)[1] >= 1e-3


def sampled_in_both_directions() -> bool:
    """remove: delta(eps) = q delta'(ln(1 + (e^eps - 1) / q)); add: nothing at this eps."""
    rate, epsilon = 0.3, 2.0
    # a second step, though it shows nothing, has no closed form
    bounds = (tb.Gaussian(1.0).subsampled(rate) * 1 + tb.ApproximateDP(0.0)).delta(epsilon)
    inner = math.log1p(math.expm1(epsilon) / rate)
    return bounds.upper >= rate * gaussian_truth(1.0, inner)[0] * (1 - 1e-12)


def refused_knows_a_wider_gap() -> bool:
    """Arrays are too long at once for a gap of 1e-10: the bounds are those of a wider gap."""
    steps = (compose.Parts.of((tb.Laplace(20.0) * 50).pairs(Direction.REMOVE)),)
    few = 2**11
    with (
        mock.patch.object(compose, "MAX_LENGTH", few),
        mock.patch.object(refine, "MAX_LENGTH", few),
        mock.patch.object(refine, "FIRST_LENGTH", few),
    ):
        found = refine.refine(EpsilonAt(1e-5), steps, 1e-10)
    return found.why != "" and found.bounds.relative_gap < 1e-4


def gaussian_renyi() -> bool:
    """The tail beyond the grid carries all of a high order's mass."""
    step = compose.Part.of(tb.Gaussian(1.0).pair(Direction.REMOVE), 1)
    bounds = renyi._divergence(renyi._bins(step.pair, np.linspace(-8.0, 2.0, 1000), 7.0), 7.0)
    return bounds.lower <= 4.0 <= bounds.upper


# ------------------------------------------------------------------------- mutations


def cut(measure: Any) -> Any:
    return measure.trimmed(0.05)


def coarser(measure: Any) -> Any:
    return measure.coarsened().coarsened()


def displaced_masses_hold(which: str, theta: float) -> bool:
    """A lower answer of two outputs, where the second mass is off by all that its error says.

    With a large theta its weight is e^-480, whose square is no double.
    """
    losses = np.array([0.0, 8.0])
    a = np.array([1.0, math.exp(-8.0 * theta - 3.0)])
    b = a * np.exp(-losses)
    p, q = np.zeros(9), np.zeros(9)
    p[[0, 8]] = q[[0, 8]] = a * np.exp(theta * losses)
    error = 0.01 * p[-1]
    (p if which == "p" else q)[-1] += error if which == "p" else -error
    errors: dict[str, Any] = {f"{one}_error": error if one == which else 0.0 for one in "pq"}
    measure = LowerMeasure(Grid(Fraction(0), 1.0), Tilt(theta, Fraction(0)), p, q, 0, 0, **errors)
    return all(
        LowerDelta(measure)(epsilon)
        <= float(np.sum(np.maximum(a - math.exp(epsilon) * b, 0.0))) * (1 + 1e-12)
        for epsilon in (1.5, 5.0, 7.0)
    )


def longer_bins_hold() -> bool:
    """The law of edges that are closer than their slack, for one Laplace step."""
    try:
        slack_covers_longer_bins(tb.Laplace(1.0).pair(Direction.REMOVE))
    except AssertionError:
        return False
    return True


MUTATIONS = [
    Without(
        "the second direction is asked",
        {"other-direction-below": "if True:"},
        lambda: all(map(worse_direction_is_asked, QUESTIONS)),
    ),
    Without(
        "the upper end of the mass at infinity decides",
        {"infinity-certainly-covered": "sure = parts.infinity.lower <= delta"},
        an_uncertain_mass_proves_nothing,
    ),
    Without(
        "a bin may be longer than its edges say",
        {
            "bins-are-longer-by-slack": (
                "most = exp_enclosure(lengths, UNIT * np.abs(lengths)).upper"
            )
        },
        longer_bins_hold,
    ),
    Without(
        "the sum that is carried from one piece to the next",
        {"carried-between-pieces": "pass"},
        lambda: convolve.discounted_sums(np.ones(10_000), 0.999)[8192] > 1.5,
    ),
    Without(
        "rounding of the upper convolution",
        {
            "rounding-upper-convolution": (
                "error = add_up(0.0, mul_up(self.error, other.mass), "
                "mul_up(sum_up(self.values), other.error))"
            )
        },
        upper_responses,
    ),
    Without(
        "rounding of the lower convolution",
        {
            "rounding-lower-convolution": (
                "return add_up(0.0, mul_up(sum_up(x), f), mul_up(sum_up(y), e), cross)"
            )
        },
        lower_responses,
    ),
    Without(
        "error term of the upper answer",
        {"error-term-upper-answer": "self.error = 0.0"},
        upper_responses,
    ),
    Without(
        "the error of P-masses in the lower answer",
        {"error-term-lower-answer-1": "self.p_correction = 0.0 * w * (1 + at.margin)"},
        lambda: displaced_masses_hold("p", 1.0),
    ),
    Without(
        "the error of Q-masses in the lower answer",
        {"error-term-lower-answer-2": "self.q_correction = 0.0 * v * (1 + at.margin)"},
        lambda: displaced_masses_hold("q", 1.0),
    ),
    Without(
        "the weights of an error of P-masses where their squares are no doubles",
        {"error-weights-their-squares-1": "w = np.sqrt(_suffix_sums(at.decay**2))"},
        lambda: displaced_masses_hold("p", 60.0),
    ),
    Without(
        "the weights of an error of Q-masses where their squares are no doubles",
        {"error-weights-their-squares-2": "v = np.sqrt(_suffix_sums(at.decay**2, ratio**2))"},
        lambda: displaced_masses_hold("q", 60.0),
    ),
    Without(
        "what is cut from an upper measure",
        {
            "cut-upper-measure": (
                "return dataclasses.replace(self, grid=self.grid.shifted(first), "
                "values=self.values[first:last], error=self.error)"
            )
        },
        lambda: gaussian(-6.0, 0.05, 300, change=cut),
    ),
    Without("lift of the left tail", {"lift-left-tail": "pass"}, lambda: gaussian(0.6, 0.01, 1000)),
    Without(
        "lift of atoms left of the grid",
        {"lift-atoms-left-grid": "up[0] += sum_up(mass[where == 0])"},
        lambda: atoms(0.75, 5) and atoms(1.5, 3),
    ),
    Without(
        "mass beyond the grid",
        {"mass-beyond-grid": "return upper, lower, 0.0"},
        lambda: gaussian(-4.0, 0.01, 500),
    ),
    Without(
        "bins beyond the grid", {"bins-beyond-grid": "pass"}, lambda: gaussian(-4.0, 0.01, 500)
    ),
    Without(
        "mass at infinity",
        {"mass-infinity": "return zero()"},
        lambda: histogram((1.0, 2.0, 3.0), (0.0, 3.0, 3.0), 3, 0.1, 1.0),
    ),
    Without(
        "mass at infinity and mass beyond the grid are disjoint",
        {
            "mass-infinity-mass-beyond-grid": (
                "lost += [(x, part.count) for x in (beyond, part.pair.p_only().upper[0])]"
            )
        },
        lambda: planned((1.0, 1.0, 1.0), (0.0, 1e-13, 3.0), 3, Grid(Fraction(-2), 0.25), 9),
    ),
    Without(
        "lower masses for the lower bound",
        {
            "lower-masses-lower-bound": (
                "label, mass, ahead = label[kept], atoms.p.upper[kept], ahead[kept]"
            )
        },
        uncertain_atoms,
    ),
    Without(
        "upper masses for the upper bound",
        {"upper-masses-upper-bound": "up[1:n] += p.lower[1:n] * (1.0 - stay) * (1 - 1e-3)"},
        lambda: gaussian(-6.0, 1e-3, 14_000),
    ),
    Without(
        "a bin is spread, not merged to its left edge",
        {"bin-spread-merged-left-edge": "return np.ones_like(w_low)"},
        lambda: gaussian(-6.0, 0.25, 60),
    ),
    Without(
        "a coarser upper measure is spread, not merged to the left",
        {"coarser-upper-measure-spread": "left = 1.0"},
        lambda: gaussian(-6.0, 0.1, 150, change=coarser),
    ),
    Without(
        "a coarser upper measure keeps the tilt of what goes right",
        {"coarser-upper-measure-keeps-tilt": "to_right = (1.0 - left)"},
        lambda: gaussian(-6.0, 0.1, 150, theta=4.0, change=coarser),
    ),
    Without(
        "a coarser lower measure keeps the tilt of its Q-masses",
        {
            "coarser-lower-measure-keeps-tilt": (
                "for values, error, rate in ((self.p, self.p_error, theta), (self.q, "
                "self.q_error, theta)):"
            )
        },
        lambda: gaussian(-6.0, 0.1, 150, change=coarser),
    ),
    Without(
        "Q-masses of a merged bin",
        {"q-masses-merged-bin": "heavy = scale_up(p.lower[1:n] * (1 + slack[1:]), 2)"},
        lambda: gaussian(-6.0, 0.25, 60),
    ),
    Without(
        "an end of eps is where delta was seen to be small enough",
        {
            "end-eps-delta-seen-small-enough": (
                "return Bounds(low.last_true, max(low.last_true, 0.999 * high.last_true))"
            )
        },
        gaussian_epsilon,
    ),
    Without(
        "the worse direction counts",
        {
            "worse-direction-counts": (
                "return Bounds(lower, max(lower, min(one.upper for one in numbers)))"
            )
        },
        sampled_in_both_directions,
    ),
    Without(
        "the tail of a Renyi moment", {"tail-renyi-moment": "upper = -math.inf"}, gaussian_renyi
    ),
    Without(
        "a question that is refused knows what wider gaps prove",
        {"ladder-of-wider-gaps": "while False:"},
        refused_knows_a_wider_gap,
    ),
    Without(
        "fewer runs are asked alone",
        {"fewer-runs-alone": "alone = inquiry"},
        fails="tests/engine/test_fewer_runs.py::test_profiles_of_fewer_runs_say_nothing_about_all",
    ),
    Without(
        "an epsilon is zero where delta covers all variations",
        {"variation-covered": "if True:"},
        fails="tests/engine/test_closed_forms.py::"
        "test_an_epsilon_is_zero_where_delta_covers_the_variation_of_each_run[two mechanisms]",
    ),
    Without(
        "pairs above all runs count as often as these run",
        {"variation-counts-all": "above[-1] = both, above[-1][1]"},
        fails="tests/engine/test_closed_forms.py::test_no_delta_below_the_variation_is_covered",
    ),
    Without(
        "an epsilon is zero where a sum of variations is covered, not everywhere",
        {"variation-dominated": "if True:"},
        fails="tests/engine/test_closed_forms.py::test_no_delta_below_the_variation_is_covered",
    ),
    Without(
        "an epsilon is zero where half the root of chi-square is covered",
        {"variation-chi-square": "return 0.02 * root_up(Fraction(expm1_up(log_growth))) <= delta"},
        fails="tests/engine/test_closed_forms.py::test_no_delta_below_the_variation_is_covered",
    ),
    Without(
        "runs that are no part of a chi-square divergence are summed",
        {"variation-split": "if rest < 1.0 and 0.5 * root_up(Fraction(expm1_up(rest))) <= delta:"},
        fails="tests/engine/test_closed_forms.py::test_some_variations_are_summed_and_others_not",
    ),
]


@pytest.mark.one_in(4)
@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without, request: pytest.FixtureRequest
) -> None:
    lose_a_truth(monkeypatch, mutation, request.session)


def test_histograms_are_answered_with_all_guards_on() -> None:
    assert histogram((0.5, 0.25, 0.25, 1e-8), (1e-20, 0.25, 0.75, 0.0), 2, 0.5, 1.0)


@pytest.mark.slow
def test_rare_samples_are_answered_with_all_guards_on() -> None:
    """Three runs, of which one at most samples the record: delta is three times a single one."""
    rate, epsilon = 1e-12, 1.0
    inner = math.log1p(math.expm1(epsilon) / rate)
    truth = 3 * rate * gaussian_truth(1.0, inner)[0]
    try:
        bounds = (tb.Gaussian(1.0).subsampled(rate) * 3).delta(epsilon)
    except tb.PrecisionError as error:
        bounds = Bounds(error.lower, error.upper)
    assert bounds.lower <= truth * (1 + 1e-6)
    assert bounds.upper >= truth * (1 - 1e-6)
