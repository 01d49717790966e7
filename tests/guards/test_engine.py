"""Every guard of the engine is taken away once, and a true inequality must become false.

A mutation replaces one line of one function. With the guard the stated inequality holds;
without it, it does not: so no guard is there for show, and none can get lost unnoticed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from tests.exact import Composed, normalised, response_delta
from tests.guards.mutants import Mutation, each, lose_a_truth

import tightbudget as tb
from tightbudget.engine.buckets import compose, measures, profile, refine
from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.engine.buckets.measures import LowerMeasure, Tilt, UpperMeasure, discretise
from tightbudget.engine.buckets.profile import Profile
from tightbudget.engine.question import EpsilonAt
from tightbudget.engine.readings import renyi
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.enclosure import Enclosure, exact
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.pair import Atoms, Direction, Pair

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
    pair = tb.WorstCase(1.0).pair(Direction.REMOVE)
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
    composition = tb.Histogram(p, q) * runs
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
    step = compose.Part.of(tb.Histogram(p, q).pair(Direction.REMOVE), runs)
    steps = compose.Parts.of((tb.Histogram(p, q) * runs).pairs(Direction.REMOVE))
    plan = compose.Plan((compose.Layout(step, grid, n, Tilt(1.0, Fraction(0))),), 0.0, 1e-30, False)
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
    bounds = (tb.Gaussian(1.0).subsampled(rate) * 1 + tb.WorstCase(0.0)).delta(epsilon)
    inner = math.log1p(math.expm1(epsilon) / rate)
    return bounds.upper >= rate * gaussian_truth(1.0, inner)[0] * (1 - 1e-12)


def rare_samples() -> bool:
    """Three runs, of which one at most samples the record: delta is three times a single one."""
    rate, epsilon = 1e-12, 1.0
    inner = math.log1p(math.expm1(epsilon) / rate)
    truth = 3 * rate * gaussian_truth(1.0, inner)[0]
    try:
        bounds = (tb.Gaussian(1.0).subsampled(rate) * 3).delta(epsilon)
    except tb.PrecisionError as error:
        bounds = Bounds(error.lower, error.upper)
    return bounds.lower <= truth * (1 + 1e-6) and bounds.upper >= truth * (1 - 1e-6)


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


MUTATIONS = [
    Mutation(
        "rounding of the upper convolution",
        UpperMeasure,
        "__mul__",
        (("rounding,\n", "0.0,\n"),),
        upper_responses,
    ),
    Mutation(
        "rounding of the lower convolution",
        LowerMeasure,
        "__mul__",
        (("return add_up(rounding, ", "return add_up(0.0, "),),
        lower_responses,
    ),
    Mutation(
        "error term of the upper answer",
        profile.UpperDelta,
        "__init__",
        (("self.error = mul_up(measure.error, norm)", "self.error = 0.0"),),
        upper_responses,
    ),
    Mutation(
        "error term of the lower answer",
        profile.LowerDelta,
        "__init__",
        (
            ("measure.p_error * w", "0.0 * w"),
            ("measure.q_error * v", "0.0 * v"),
        ),
        lower_responses,
    ),
    Mutation(
        "the error's weights where their squares are no doubles",
        profile.LowerDelta,
        "__init__",
        (
            (
                "at.decay * _geometric_norm(2.0 * at.theta * measure.grid.step, at.d.size)",
                "np.sqrt(_suffix_sums(at.decay**2))",
            ),
            (
                "at.decay * _geometric_norm(2.0 * (at.theta + 1.0) * measure.grid.step, at.d.size)",
                "np.sqrt(_suffix_sums(at.decay**2, ratio**2))",
            ),
        ),
        rare_samples,
        slow=True,
    ),
    Mutation(
        "what is cut from an upper measure",
        UpperMeasure,
        "trimmed",
        (("error=add_up(self.error, cut)", "error=self.error"),),
        lambda: gaussian(-6.0, 0.05, 300, change=cut),
    ),
    Mutation(
        "lift of the left tail",
        measures,
        "discretise",
        (("up[0] += p.upper[0]\n", "pass\n"),),
        lambda: gaussian(0.6, 0.01, 1000),
    ),
    Mutation(
        "lift of atoms left of the grid",
        measures,
        "discretise",
        (("up[0] += sum_up(mass[where <= 0])", "up[0] += sum_up(mass[where == 0])"),),
        lambda: atoms(0.75, 5) and atoms(1.5, 3),
    ),
    Mutation(
        "mass beyond the grid",
        measures,
        "discretise",
        (("float(scale_up(up[n:], ulps)[0])", "0.0"),),
        lambda: gaussian(-4.0, 0.01, 500),
    ),
    Mutation(
        "bins beyond the grid",
        measures,
        "discretise",
        (("up[n] += p.upper[n]\n", "pass\n"),),
        lambda: gaussian(-4.0, 0.01, 500),
    ),
    Mutation(
        "mass at infinity",
        AtomicPair,
        "p_only",
        (("return self.only_p", "return zero()"),),
        lambda: histogram((1.0, 2.0, 3.0), (0.0, 3.0, 3.0), 3, 0.1, 1.0),
    ),
    Mutation(
        "mass at infinity and mass beyond the grid are disjoint",
        compose,
        "_profile",
        (
            (
                "lost.append((add_up(beyond, float(part.pair.p_only().upper[0])), part.count))",
                "lost += [(x, part.count) for x in (beyond, part.pair.p_only().upper[0])]",
            ),
        ),
        # a third of P at +inf, a third at a loss of 30, and Q elsewhere
        lambda: planned((1.0, 1.0, 1.0), (0.0, 1e-13, 3.0), 3, Grid(Fraction(-2), 0.25), 9),
    ),
    Mutation(
        "lower masses for the lower end",
        measures,
        "discretise",
        (("atoms.p.lower[kept]", "atoms.p.upper[kept]"),),
        uncertain_atoms,
    ),
    Mutation(
        "upper masses for the upper end",
        measures,
        "discretise",
        (
            (
                "up[1:n] += p.upper[1:n] * (1.0 - stay)\n",
                "up[1:n] += p.lower[1:n] * (1.0 - stay) * (1 - 1e-3)\n",
            ),
        ),
        lambda: gaussian(-6.0, 1e-3, 14_000),
    ),
    Mutation(
        "a bin is spread, not merged to its left edge",
        measures,
        "_left_share",
        (
            (
                "np.clip(share * (1 - 4 * UNIT), 0.0, 1.0)",
                "np.ones_like(w_low)",
            ),
        ),
        lambda: gaussian(-6.0, 0.25, 60),
    ),
    Mutation(
        "a coarser upper measure is spread, not merged to the left",
        UpperMeasure,
        "coarsened",
        (("left = next_down(1.0 / add_up(1.0, exp_up(h)))", "left = 1.0"),),
        lambda: gaussian(-6.0, 0.1, 150, change=coarser),
    ),
    Mutation(
        "a coarser upper measure keeps the tilt of what goes right",
        UpperMeasure,
        "coarsened",
        (("to_right = (1.0 - left) * math.exp(theta * h)", "to_right = (1.0 - left)"),),
        lambda: gaussian(-6.0, 0.1, 150, theta=4.0, change=coarser),
    ),
    Mutation(
        "a coarser lower measure keeps the tilt of its Q-masses",
        LowerMeasure,
        "coarsened",
        (("(self.q, self.q_error, theta + 1.0)", "(self.q, self.q_error, theta)"),),
        lambda: gaussian(-6.0, 0.1, 150, change=coarser),
    ),
    Mutation(
        "Q-masses of a merged bin",
        measures,
        "discretise",
        (("p.lower[1:n] * w.upper[1:n] *", "p.lower[1:n] *"),),
        lambda: gaussian(-6.0, 0.25, 60),
    ),
    Mutation(
        "an end of eps is where delta was seen to be small enough",
        Profile,
        "epsilon",
        (("high.first_false", "0.999 * high.last_true"),),
        gaussian_epsilon,
    ),
    Mutation(
        "the worse direction counts",
        refine,
        "_worst",
        (
            (
                "max(found.bounds.upper for found in known)",
                "max(max(a.bounds.lower for a in known), min(a.bounds.upper for a in known))",
            ),
        ),
        sampled_in_both_directions,
    ),
    Mutation(
        "the tail of a Renyi moment",
        renyi,
        "_tail",
        (("upper = most - log_s + margin", "upper = -math.inf"),),
        gaussian_renyi,
    ),
]


@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Mutation
) -> None:
    lose_a_truth(monkeypatch, mutation)


def test_histograms_are_answered_with_all_guards_on() -> None:
    assert histogram((0.5, 0.25, 0.25, 1e-8), (1e-20, 0.25, 0.75, 0.0), 2, 0.5, 1.0)
