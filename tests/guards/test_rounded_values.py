"""Laws of single functions that round: what they enclose, they enclose exactly.

Each compares with ball arithmetic or exact fractions, and so closely that a line that is turned,
a million units the wrong way, makes it fail: `python -m tests.guards.sweep` finds its lines here.
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from scipy import fft
from tests.balls import ball
from tests.exact import exp_ends, normalised, response_delta, stopping_delta

import tightbudget as tb
from tightbudget import privacy_buckets
from tightbudget.accounting import schedule
from tightbudget.accounting.compare import facts
from tightbudget.engine.buckets import measures, profile
from tightbudget.engine.buckets.enumerate import Outcomes
from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.engine.buckets.measures import LowerMeasure, Tilt, UpperMeasure
from tightbudget.mechanisms import batches, subsampled
from tightbudget.numerics import bounds, rounding, special
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.convolve import _PIECE, FFT_CONSTANT, convolve, correlate
from tightbudget.numerics.enclosure import Enclosure, exact
from tightbudget.numerics.rounding import TINY
from tightbudget.numerics.search import last_true
from tightbudget.output_dp import (
    amount,
    backward_induction,
    pricing,
    stopping,
    stopping_lattice,
)
from tightbudget.output_dp.backward_induction import BackwardInduction, StoppingRule
from tightbudget.output_dp.stopping_lattice import Kernel, Lattice, RunLosses
from tightbudget.pairs import atomic
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Bins, Pair
from tightbudget.release.mechanisms import propose_test_release, select_keys
from tightbudget.tables.error_laws import NoiseLaw


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = before


def within(low: float, truth: arb, high: float) -> bool:
    """Whether a ball is not outside of [low, high]."""
    return not arb(low) > truth and not truth > arb(high)


def holds(enclosure: Enclosure, truths: list[arb]) -> bool:
    pairs = zip(enclosure.lower.tolist(), truths, enclosure.upper.tolist(), strict=True)
    return all(within(low, truth, high) for low, truth, high in pairs)


# ------------------------------------------------------------------------ pairs/atomic.py

SIZES = (1e-310, 3e-200, 0.1, 0.7, 0.70001, 1.0, 1.9, 3e200)


def test_the_logarithm_of_a_quotient() -> None:
    x, y = map(np.array, zip(*itertools.product(SIZES, SIZES), strict=True))
    low, high = atomic.log_quotient(exact(x), exact(y))
    truths = [(arb(a) / arb(b)).log() for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert holds(Enclosure(low, high), truths)
    assert np.all(high - low <= 1e-12 * (1.0 + np.abs(low)))


def test_losses_of_weights_that_are_divided_by_their_totals() -> None:
    p, q = np.array([3.0, 1e-5, 7.0]), np.array([1.0, 2.0, 1e9])
    pair = AtomicPair.from_masses(
        exact(p), exact(q), p_total=exact(np.array([10.00001])), q_total=exact(np.array([1e9 + 3]))
    )
    atoms = pair.atoms()
    truths = [
        (arb(a) * arb(1e9 + 3) / arb(b) / arb(10.00001)).log()
        for a, b in zip(p.tolist(), q.tolist(), strict=True)
    ]
    assert holds(Enclosure(atoms.loss_lower, atoms.loss_upper), truths)


RATIOS = (Fraction(4, 3), Fraction(1, 7), Fraction(10**400), Fraction(3, 10**330))


@pytest.mark.parametrize("r", [*RATIOS, 1 + Fraction(1, 3**40)])
def test_the_logarithm_of_a_fraction(r: Fraction) -> None:
    assert within(*_around(atomic.log_fraction(r), ball(r).log()))


def _around(ends: tuple[float, float], truth: arb) -> tuple[float, arb, float]:
    return ends[0], truth, ends[1]


def test_a_sum_of_masses() -> None:
    for n in (1, 2, 3, 1000, 1001):
        masses = np.full(n, 0.1)
        found = atomic.total(exact(masses))
        truth = Fraction(0.1) * n
        assert Fraction(float(found.lower[0])) <= truth <= Fraction(float(found.upper[0]))


def test_fractions_lie_between_neighbouring_doubles() -> None:
    values = [Fraction(1, 3), Fraction(1, 10), Fraction(1, 2), Fraction(1, 10**330), Fraction(2, 3)]
    found = atomic._enclose(values)
    for low, value, high in zip(found.lower.tolist(), values, found.upper.tolist(), strict=True):
        assert Fraction(low) <= value <= Fraction(high)
        assert high <= low * (1 + 2.0**-51) or high == TINY


# -------------------------------------------------------------------------- pairs/pair.py


def test_a_quotient_of_masses_is_at_most_e_to_the_length_of_its_bin() -> None:
    edges = np.array([0.1, 0.7, 1.9, 30.0])
    anything = Enclosure(np.zeros(5), np.full(5, 1e300))
    bins = Bins.of(anything, anything, anything, edges, np.zeros(4))
    longest = [(arb(b) - arb(a)).exp() for a, b in itertools.pairwise(edges.tolist())]
    for truth, most in zip(longest, bins.w.upper[1:4].tolist(), strict=True):
        assert truth <= arb(most)
        assert most <= float(truth) * (1 + 1e-12)


def test_a_moment_of_bounded_losses() -> None:
    class Bounded(Pair):
        def max_loss(self) -> tuple[float, float]:
            return 0.1, 0.1

    for s in (0.3, 7.0, 1e5 + 0.1):
        assert Fraction(s) * Fraction(0.1) <= Fraction(Bounded().log_tail_moment(0.0, s)[1])


# --------------------------------------------------------------- mechanisms/subsampled.py

RATES = (1e-9, 0.1, 0.5, 0.999)
LOSSES = (-50.0, -3.0, -0.3, -1e-3, 1e-9, 0.3, 2.0, 50.0, 299.0, 301.0, 1e5)


def mixed(q: float, loss: float) -> arb:
    """ln(1 - q + q e^loss)."""
    return (1 - arb(q) + arb(q) * arb(loss).exp()).log()


def unmixed(q: float, x: arb) -> arb:
    """The loss y with ln(1 - q + q e^y) = x."""
    return ((x.exp() - 1 + arb(q)) / arb(q)).log()


@pytest.mark.parametrize("q", RATES)
def test_the_loss_of_a_sampled_step(q: float) -> None:
    low, high = subsampled._mixed_log(q, np.array(LOSSES))
    assert holds(Enclosure(low, high), [mixed(q, loss) for loss in LOSSES])


@pytest.mark.parametrize("q", RATES)
@pytest.mark.parametrize("slack", [0.0, 1e-6])
def test_the_loss_that_a_sampled_step_makes_of_another(q: float, slack: float) -> None:
    x = np.array([float(mixed(q, loss)) for loss in LOSSES])
    y, dy = subsampled._unmixed_log(q, x, np.full(x.size, slack))
    known = np.isfinite(y)
    assert np.sum(known) >= (5 if slack < q else 2)
    for at, mid, off in zip(x[known].tolist(), y[known].tolist(), dy[known].tolist(), strict=True):
        for sign in (-1.0, 1.0):  # an edge may lie at either end
            truth = unmixed(q, arb(at) + sign * arb(slack))
            assert abs(truth - arb(mid)) <= arb(off) * (1 + arb(2) ** -40)


@pytest.mark.parametrize("q", RATES)
def test_the_edge_just_above_the_smallest_loss_has_a_preimage(q: float) -> None:
    floor = np.array([math.log1p(-q)])
    for slack in (0.0, 1e-9):
        y, _ = subsampled._unmixed_log(q, *subsampled._clear_of_end(q, floor, np.array([slack])))
        assert np.isfinite(y[0])


def test_the_exponential_of_a_difference() -> None:
    x, y = np.array([0.1, 30.0, -600.0, 1e-3]), np.array([0.7, -3.3, 50.1, 1e-9])
    found = subsampled._exp_difference(x, y)
    ends = zip(x.tolist(), y.tolist(), strict=True)
    assert holds(found, [(arb(a) - arb(b)).exp() for a, b in ends])


def laplace_delta(y: arb) -> arb:
    """Delta of Laplace noise of scale 1 at e^epsilon = y."""
    return 1 - (y.sqrt() / arb(0.5).exp())


@pytest.mark.parametrize("q", [0.1, 0.5, 0.999])
def test_the_closed_delta_of_a_sampled_step(q: float) -> None:
    """Against Laplace noise, whose own is 1 - e^((y - 1)/2)."""
    base = tb.Laplace(1.0)
    for direction in Direction:
        pair = base.subsampled(q).pair(direction)
        for epsilon in (1e-9, 0.01, 0.05, 0.09):
            e, rate = arb(epsilon).exp(), arb(q)
            factor = rate if direction is Direction.REMOVE else 1 - e * (1 - rate)
            moved = 1 + (e - 1) / factor
            if not moved.log() < 0.9 or not factor > 0:
                continue
            found = pair.closed_delta(epsilon)
            assert found is not None
            assert within(found[0], factor * laplace_delta(moved), found[1])
            assert found[1] - found[0] <= 1e-11 * found[1]


def test_the_rest_of_a_sampled_step() -> None:
    class Rest(Pair):
        def log_rest(self, s: float) -> float:
            return -700.1

    for q in (0.1, 0.3, 0.7):
        found = subsampled.RemovePair(Rest(), q).log_rest(1.0)
        assert arb(-700.1) + arb(q).log() <= arb(found)


# ---------------------------------------------------------- output_dp/backward_induction.py

SPACING = math.log(3.0)  # of randomised response with p = 3/4
LEAKY = (4.0, 4.0, 1.0), (4.0, 1.0, 0.0)  # one output that only P has
NEVER = 600.0


def lattice(step: float, low: float, high: float, theta: float = 1.0) -> Lattice:
    return Lattice(step, True, theta, low, high, -700.0, -40.0, 1e-30, extended=False)


def walk(blocks: list[tb.Composition], here: Lattice) -> BackwardInduction:
    return BackwardInduction(RunLosses.of(blocks, Direction.REMOVE), here)


@pytest.mark.parametrize("window", [(-20.0, 20.0), (-20.0, 2.0), (-1.0, 2.0)])
def test_two_blocks_that_are_one(window: tuple[float, float]) -> None:
    """Also where the window ends soon above the price, from where the payoff is a line."""
    walked = walk([tb.RandomizedResponse(0.75) * 4] * 2, lattice(2 * SPACING, *window))
    for epsilon in (0.3, 1.1, 1.9):
        low, high = response_delta(Fraction(3, 4), 8, epsilon)
        upper, rule = walked.upper([NEVER, epsilon])
        assert low <= Fraction(upper)
        if window[0] < -10.0:
            assert Fraction(upper) <= high * (1 + Fraction(1, 10**11))
        assert Fraction(walked.lower(rule)) <= high


@pytest.mark.parametrize("stop", [0.5, -0.5, math.inf])
def test_a_rule_is_worth_at_most_what_it_wins(stop: float) -> None:
    """Three blocks with an output that only P has; the rule stops after the second, or not."""
    outputs = normalised(*LEAKY)
    walked = walk([tb.HistogramPair(*LEAKY) * 1] * 3, lattice(math.log(4.0), -9.0, 9.0))
    price = 0.3
    low, high = exp_ends(price)
    for rule in (
        StoppingRule((price, price, price), (math.inf, stop, -NEVER)),
        StoppingRule((price, price, price), (stop, math.inf, -NEVER)),
    ):
        truth = worth(outputs, rule, low)
        found = Fraction(walked.lower(rule))
        assert found <= truth
        assert truth <= found * (1 + Fraction(1, 10**6)) + Fraction(1, 10**9)
        assert worth(outputs, rule, high) <= Fraction(walked.upper(list(rule.prices))[0])


@pytest.mark.parametrize("prices", [(0.1, 0.4, 3.0), (0.1, 0.2, 0.3), (0.6, 0.3, 0.9)])
def test_the_best_rule_is_worth_no_more_than_the_bound(prices: tuple[float, ...]) -> None:
    """Also where it stops early."""
    walked = walk([tb.HistogramPair(*LEAKY) * 1] * 3, lattice(math.log(4.0), -9.0, 9.0))
    ends = [exp_ends(price)[1] for price in prices]
    truth = stopping_delta([normalised(*LEAKY)] * 3, [1, 2, 3], ends)
    assert truth <= Fraction(walked.upper(prices)[0]) <= truth * (1 + Fraction(1, 10**11))


def worth(
    outputs: tuple[tuple[Fraction, Fraction], ...], rule: StoppingRule, e: Fraction
) -> Fraction:
    """What a rule wins at prices of e^price = e, by the tree of all outputs."""

    def value(k: int, a: Fraction, b: Fraction) -> Fraction:
        if k and (b == 0 or float(a / b) >= math.exp(rule.from_losses[k - 1])):
            return max(Fraction(0), a - e * b)
        if k == len(rule.prices):
            return Fraction(0)
        return sum((value(k + 1, a * x, b * y) for x, y in outputs), Fraction(0))

    return value(0, Fraction(1), Fraction(1))


def test_the_payoff_at_each_state() -> None:
    walked = walk([tb.RandomizedResponse(0.75) * 1], lattice(SPACING, -9.0, 40.0))
    for price in (0.3, 7.7, 33.0):
        payoff = walked._payoff(0, price)
        for i, found in enumerate(payoff.tolist()):
            loss = ball(walked.starts[0] + i * Fraction(walked.lattice.step))
            assert not 1 - (arb(price) - loss).exp() > arb(found)


def test_a_stop_that_has_no_other() -> None:
    walked = walk([tb.HistogramPair(*LEAKY) * 1] * 3, lattice(math.log(4.0), -9.0, 9.0))
    outputs = normalised(*LEAKY)
    for k, delta in enumerate(walked.one_stop_each(), 1):
        for price in (0.1, 1.0):
            truth = stopping_delta([outputs] * k, [k], [exp_ends(price)[1]])
            assert truth <= Fraction(delta(price)) <= truth * (1 + Fraction(1, 10**11))


def block_of(values: np.ndarray, theta: float, lifted: float, error: float) -> Kernel:
    """A block whose losses are the first points of a grid from -1 on."""
    grid, tilt = Grid(Fraction(-1), 0.125), Tilt(theta, Fraction(0))
    upper = UpperMeasure(grid, tilt, values, 3, 1.0, error)
    lower = LowerMeasure(grid, tilt, values, values, 0, 0, 0.0, 0.0)
    return Kernel(upper, lower, lifted, 1.0, Bounds(0.0, 0.0), Fraction(-1), 0)


def expected(values: np.ndarray, theta: float, payoff: np.ndarray) -> arb:
    """E of a payoff from the first state on: each value stands for 2^3 e^(-theta x) of it."""
    return sum(
        (
            8 * arb(v) * (-arb(theta) * (arb(i) / 8 - 1)).exp() * arb(w)
            for i, (v, w) in enumerate(zip(values.tolist(), payoff.tolist(), strict=False))
        ),
        arb(0),
    )


@pytest.mark.parametrize("theta", [0.5, 7.0])
def test_an_expectation_is_at_least_the_exact_one(theta: float) -> None:
    """Of the values themselves, of what was lifted, and of an error in the worst direction."""
    rng, states = np.random.default_rng(5), 12
    small = math.exp(-theta)
    values, payoff = small * rng.uniform(0.001, 0.002, 8), rng.uniform(0.5, 1.0, states + 7)
    plain = backward_induction._Expectation(block_of(values, theta, 0.0, 0.0), 0.125, states)
    truth = expected(values, theta, payoff)
    found = float(plain(payoff)[0])
    assert truth <= arb(found)
    assert found <= float(truth) * (1 + 1e-10)

    lifted = backward_induction._Expectation(block_of(values, theta, 0.01, 0.0), 0.125, states)
    assert truth + arb(0.01) * arb(float(payoff[0])) <= arb(float(lifted(payoff)[0]))

    error = 1e-3 * small
    tilted = payoff * np.exp(-theta * 0.125 * np.arange(payoff.size))
    worst = error * tilted / float(np.sqrt(np.sum(tilted * tilted)))
    off = backward_induction._Expectation(block_of(values, theta, 0.0, error), 0.125, states)
    moved = np.concatenate([values, np.zeros(payoff.size - 8)]) + worst
    assert expected(moved, theta, payoff) <= arb(min(1.0, float(off(payoff)[0])))


def test_the_mass_of_a_walker() -> None:
    p = np.array([0.1, 0.2, 0.05])
    for theta in (0.0, 3.0):
        walker = LowerMeasure(
            Grid(Fraction(1, 3), 0.1), Tilt(theta, Fraction(1, 7)), p, p, -2, 0, 1e-3, 0.0
        )
        factors = [
            (arb(theta) * (ball(Fraction(1, 3) - Fraction(1, 7)) + i * arb(0.1))).exp()
            for i in range(3)
        ]
        root = sum((1 / f**2 for f in factors), arb(0)).sqrt()
        truth = sum((arb(x) / f for x, f in zip(p.tolist(), factors, strict=True)), arb(0))
        found = backward_induction._mass(walker)
        assert (truth + arb(1e-3) * root) / 4 <= arb(found)
        assert found <= float((truth + arb(1e-3) * root) / 4) * (1 + 1e-12)


# ------------------------------------------------------------ output_dp/stopping_lattice.py


def test_the_mass_left_of_an_array() -> None:
    """A tenth is missing and nothing is certain to more than 1e-3."""
    values = np.array([0.25, 0.5, 0.15])
    for total, error in ((1.0, 0.0), (1.0, 1e-3), (0.95, 0.2)):
        measure = UpperMeasure(
            Grid(Fraction(0), 0.1), Tilt(0.0, Fraction(0)), values, 0, 1.0, error
        )
        inside = sum(map(Fraction, values.tolist()), Fraction(0))
        noise = ball(Fraction(error)) * arb(3).sqrt()
        found = stopping_lattice._left_of(measure, total, 1)
        assert not ball(Fraction(total)) - (ball(inside) - noise) > arb(found)


def test_largest_losses_and_masses_of_blocks() -> None:
    run = RunLosses.of([tb.RandomizedResponse(0.75) * 1] * 3, Direction.REMOVE)
    for k, top in enumerate(run.tops, 1):
        assert k * arb(3).log() <= arb(top)
    for mechanism, finite in (
        (tb.HistogramPair(*LEAKY), Fraction(8, 9)),
        (tb.RandomizedResponse(0.75), Fraction(1)),
    ):
        walked = walk([mechanism * 3], lattice(math.log(4.0) / 8, -9.0, 9.0))
        assert finite**3 <= Fraction(walked.kernels[0].total)
        assert 1 - finite**3 <= Fraction(walked.kernels[0].infinity.upper)


# --------------------------------------------------------------- engine/buckets/measures.py

NO_TILT = Tilt(0.0, Fraction(0))


def upper_of(values: list[float], mass: float, error: float, tilt: Tilt = NO_TILT) -> UpperMeasure:
    return UpperMeasure(Grid(Fraction(0), 0.5), tilt, np.array(values), 0, mass, error)


def lower_of(p: list[float], error: float, tilt: Tilt = NO_TILT) -> LowerMeasure:
    x = np.array(p)
    return LowerMeasure(Grid(Fraction(0), 0.5), tilt, x, x, 0, 0, error, error)


def scaled(x: float, exponent: int) -> Fraction:
    return Fraction(x) * Fraction(2) ** exponent


def test_an_upper_measure_of_one_point_keeps_all_errors_of_a_product() -> None:
    """With one entry each, errors of either sign add up to exactly what the guarantee allows."""
    e, f = 1e-3, 3e-3
    found = upper_of([0.5], 0.501, e) * upper_of([0.7], 0.71, f)
    assert Fraction(e) * Fraction(0.71) + Fraction(0.5) * Fraction(f) <= scaled(
        found.error, found.exponent
    )
    assert Fraction(0.501) * Fraction(0.71) <= scaled(found.mass, found.exponent)


def test_a_lower_measure_of_one_point_keeps_all_errors_of_a_product() -> None:
    for e, f in ((1e-3, 3e-3), (0.4, 0.3)):
        found = lower_of([0.5], e) * lower_of([0.7], f)
        x, y, a, b = Fraction(0.5), Fraction(0.7), Fraction(e), Fraction(f)
        assert x * b + y * a + a * b <= scaled(found.p_error, found.p_exponent)
        assert x * b + y * a + a * b <= scaled(found.q_error, found.q_exponent)


@pytest.mark.parametrize("values", [[1e-4, 0.5], [0.5, 1e-4]])
def test_what_is_cut_joins_the_error(values: list[float]) -> None:
    found = upper_of(values, 0.51, 1e-3).trimmed(1e-3)
    assert len(found) == 1
    assert Fraction(1e-3) + Fraction(1e-4) <= Fraction(found.error)


@pytest.mark.parametrize("theta", [0.1, 5.0])
def test_a_coarser_grid_lifts_errors_by_the_norm_of_its_map(theta: float) -> None:
    tilt, error, h = Tilt(theta, Fraction(0)), 1e-3, arb(0.5)
    left, rate = 1 / (1 + h.exp()), arb(theta)
    column = max(arb(1), left * (-rate * h).exp() + (1 - left) * (rate * h).exp())
    upper = upper_of([0.25, 0.5, 0.25], 1.001, error, tilt).coarsened()
    assert arb(error) * (column * (1 + column)).sqrt() <= ball(scaled(upper.error, upper.exponent))
    assert arb(1.001) * column <= ball(scaled(upper.mass, upper.exponent))
    lower = lower_of([0.25, 0.5, 0.25], error, tilt).coarsened()
    for found, power in (
        (scaled(lower.p_error, lower.p_exponent), rate),
        (scaled(lower.q_error, lower.q_exponent), rate + 1),
    ):
        factor = (power * h).exp()
        assert arb(error) * ((1 + factor) * factor).sqrt() <= ball(found)


def test_a_coarser_lower_measure_whose_errors_are_all_there_is() -> None:
    """Nothing else pays for the map's norm where there are no masses."""
    for theta in (k / 7 for k in range(1, 60)):
        found = lower_of([1e-300, 0.0], 0.5, Tilt(theta, Fraction(0))).coarsened()
        factor = (arb(theta) * arb(0.5)).exp()
        assert arb(0.5) * ((1 + factor) * factor).sqrt() <= ball(
            scaled(found.p_error, found.p_exponent)
        )


def test_what_lies_left_of_a_grid_is_lifted_whole() -> None:
    p = [0.1, 0.2, 0.7]
    pair = tb.HistogramPair(p, [0.5, 0.4, 0.1]).pair(Direction.REMOVE)
    upper, _, beyond = measures.discretise(pair, Grid(Fraction(1), 0.5), 4, NO_TILT)
    total = sum(map(Fraction, p), Fraction(0))
    assert sum(map(Fraction, p[:2]), Fraction(0)) / total <= scaled(upper.values[0], upper.exponent)
    inside = sum(map(Fraction, upper.values.tolist()), Fraction(0))
    assert inside <= Fraction(upper.mass)
    assert inside * Fraction(2) ** upper.exponent + Fraction(beyond) >= 1


# ---------------------------------------------------------------- engine/buckets/profile.py


@pytest.mark.parametrize("theta", [0.3, 2.0, 40.0])
def test_the_error_of_an_upper_delta(theta: float) -> None:
    """Error e counts e times the 2-norm of e^(-theta y) (1 - e^-y), in closed form."""
    found = profile.UpperDelta(upper_of([1e-290], 1.0, 1e-3, Tilt(theta, Fraction(0))))
    t = arb(theta)
    integral = 1 / (2 * t * (2 * t + 1) * (t + 1))
    peak = (t * t.log() - (1 + t) * (1 + t).log()).exp()
    norm = arb(1e-3) * (integral / arb(0.5) + peak * peak).sqrt()
    assert norm <= arb(found.error) <= norm * (1 + arb(2) ** -40)
    for epsilon in (0.1, 0.7, 3.0):
        assert norm * (-t * arb(epsilon)).exp() <= arb(found(epsilon))


# -------------------------------------------------------------- engine/buckets/enumerate.py


def test_outcomes_of_no_loss_below_epsilon_0() -> None:
    nothing = Outcomes(exact(np.ones(1)), np.zeros(1), np.zeros(1), Bounds(0.0, 0.0))
    for epsilon in (-0.1, -1.0, -30.0):
        assert not arb(nothing.lower_delta(epsilon)) > -arb(epsilon).expm1()


def test_the_epsilon_of_a_delta_that_is_nearly_nothing() -> None:
    sure = Outcomes(exact(np.ones(1)), np.ones(1), np.ones(1), Bounds(0.0, 0.0))
    assert 1 + (1 - arb(1e-14)).log() <= arb(sure.epsilon(1e-14).upper)


# ---------------------------------------------------------------------------------- numerics


def test_doubles_and_roots_are_the_nearest_on_their_side() -> None:
    for x in (Fraction(1, 3), Fraction(-2, 7), Fraction(5), Fraction(1, 10**310)):
        up, down = rounding.double_up(x), rounding.double_down(x)
        assert Fraction(down) <= x <= Fraction(up)
        assert up in (down, math.nextafter(down, math.inf))
    for x in (Fraction(2), Fraction(4), Fraction(1, 3), Fraction(10**300), Fraction(7, 10**9)):
        root = rounding.root_up(x)
        assert Fraction(math.nextafter(root, 0.0)) ** 2 < x <= Fraction(root) ** 2


def test_numbers_that_are_no_doubles_are_rounded_to_their_side() -> None:
    for value in (Fraction(1, 3), Fraction(2, 3), Decimal("0.1"), 2**60 + 1):
        down, up = (bounds._end(up=up, x=value) for up in (False, True))
        assert Fraction(down) <= Fraction(value) <= Fraction(up)


def test_a_search_that_meets_no_change_has_two_ends() -> None:
    for top in (0.0, 1.0, 3.3):
        found = last_true(lambda _: True, 0.5, top)
        assert found.last_true < found.first_false


def test_chernoffs_factor() -> None:
    for c in (1e-3, 0.1, 1.0, 7.3, 1e4, 1e9):
        truth = arb(c) * arb(c).log() - (1 + arb(c)) * (1 + arb(c)).log()
        assert truth <= arb(special.log_g_up(c)) <= truth * (1 - arb(2) ** -40)


def test_errors_of_transforms_are_the_whole_formula() -> None:
    """Each norm times the constant: measured errors are far below it."""
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.0, 1.0, 400), rng.uniform(0.0, 1.0, 700)

    def eta(size: int) -> float:
        return FFT_CONSTANT * rounding.UNIT * math.log2(size)

    def norm(x: np.ndarray) -> float:
        return float(np.linalg.norm(x))

    for other in (a, b):
        made, error = convolve(a, other)
        whole = a.sum() * norm(other) + other.sum() * norm(a) + norm(made)
        size = fft.next_fast_len(a.size + other.size - 1, real=True)
        assert eta(size) * whole * (1 + 2.0**-21) <= error
    found, errors = correlate(a, b)
    assert found.size == errors.size == b.size - a.size + 1
    size = fft.next_fast_len(min(b.size, max(4 * a.size, _PIECE)), real=True)
    around = fft.irfft(np.conj(fft.rfft(a, size)) * fft.rfft(b, size), size)
    whole = a.sum() * norm(b) + b.sum() * norm(a) + norm(around)
    assert eta(size) * whole * (1 + 2.0**-21) <= float(np.min(errors))


# --------------------------------------------------------------- mechanisms/integer_noise.py


def test_tails_of_integer_noise() -> None:
    noise = tb.DiscreteGaussian(1.3)
    weights = [(-(arb(n) ** 2) / (2 * arb(1.3) ** 2)).exp() for n in range(60)]
    whole = weights[0] + 2 * sum(weights[1:], arb(0))
    for t, found in enumerate(noise.tails_up()[:12].tolist()):
        truth = sum(weights[t:], arb(0)) / whole
        assert truth <= arb(found) <= truth * (1 + arb(2) ** -40)
    laplace = tb.DiscreteLaplace(1.7)
    for t in (1, 5, 100):
        truth = (-t / arb(1.7)).exp() / (1 + (-1 / arb(1.7)).exp())
        assert truth <= arb(laplace.tail_up(t)) <= truth * (1 + arb(2) ** -40)


# --------------------------------------------------------------------- mechanisms/batches.py


def test_q_masses_of_a_batch_add_up_to_1() -> None:
    """Also where all edges are below 0 and the part above 0 is in the last bin."""
    step = tb.Batches(tb.Gaussian(1.0), 3, 10).pair(Direction.REMOVE)
    for edges in ([-0.3, -0.1], [0.1, 0.2], [-0.2, 0.3]):
        x = np.array(edges)
        bins = step.bins(x, np.zeros(2))
        assert bins is not None
        away = [(-arb(r)).exp() for r in (*edges, edges[-1])]
        low, high = (
            sum((arb(q) * f for q, f in zip(end.tolist(), away, strict=True)), arb(0))
            for end in (bins.q.lower, bins.q.upper)
        )
        apart = step.atoms().q
        low += sum(map(arb, apart.lower.tolist()), arb(0))
        high += sum(map(arb, apart.upper.tolist()), arb(0)) + arb(float(step.q_only().upper[0]))
        assert low <= 1 <= high
        assert high - low < 1e-11


def test_what_a_batch_reveals_has_moves_that_are_no_larger() -> None:
    for sensitivity in (0.1, 0.7, 1.1):
        noise = tb.Gaussian(1.0, sensitivity=sensitivity)
        found = tb.Batches(noise, 3, 10, replacement=True).instance()
        assert isinstance(found, batches._Attained)
        assert isinstance(found.base, tb.MixtureOfGaussians)
        moved = Fraction(tb.Batches(noise, 3, 10)._replaced().sensitivity)
        sizes = np.sort(np.array(found.base.sensitivities, dtype=np.float64))
        for copies, size in enumerate(sizes.tolist()):
            assert Fraction(size) <= copies * moved


# ----------------------------------------------------------------------- output_dp/pricing.py


@pytest.mark.parametrize("rho", [Fraction(1, 3), Fraction(1, 10), Fraction(7, 5)])
@pytest.mark.parametrize("delta", [Fraction(1, 3), Fraction(1, 10**9)])
def test_epsilons_of_budgets_that_are_no_doubles(rho: Fraction, delta: Fraction) -> None:
    truth = ball(rho) + 2 * (ball(rho) * -ball(delta).log()).sqrt()
    assert truth <= arb(pricing.ZCDPRule(rho=rho).epsilon(delta))
    order, log = arb(7.5), ball(delta).log()
    truth = ball(rho) + (1 - 1 / order).log() - (log + order.log()) / (order - 1)
    found = pricing.RenyiRule(order=7.5, epsilon=rho).epsilon(delta)
    assert max(arb(0), truth) <= arb(found) <= max(arb(0), truth) + arb(2) ** -40


def test_a_plan_is_asked_at_a_delta_that_is_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pricing, "_engine_epsilon", lambda _, delta: delta)
    plan = pricing.PlanRule(plan=tb.Gaussian(1.0) * 1, delta=Fraction(1, 10))
    for delta in (Fraction(1, 3), Fraction(1, 5), Fraction(3, 10)):
        assert Fraction(plan.epsilon(delta)) <= delta


# ------------------------------------------------------------------------- privacy_buckets.py


def test_the_largest_loss_and_the_edges_of_buckets() -> None:
    for factor in (1.1, 3.0, 1.0 + 1e-4):
        leaf = privacy_buckets.Buckets.of(tb.Laplace(1.0), factor=factor, n=30)
        assert 30 * Fraction(leaf.log_factor) + Fraction(leaf.rounding) <= Fraction(leaf.top)
        edges = np.arange(-30.0, 31.0) * leaf.log_factor
        bins = tb.Laplace(1.0).pair(Direction.REMOVE).bins(edges, np.zeros(61))
        assert bins is not None
        off = privacy_buckets._bins(bins, edges).misplaced
        for i, edge in zip(range(-30, 31), edges.tolist(), strict=True):
            assert 2 * abs(Fraction(edge) - i * Fraction(leaf.log_factor)) <= Fraction(off)


# --------------------------------------------------------------------- release and tables


def test_predictions_may_be_rounded() -> None:
    """p.x of d features, tanh and a mean of n numbers up to 2 move an error by some units each."""
    for n, features in ((100, 3), (7, 30)):
        training = tb.release.OutputPerturbation(1.0, 0.1, 500, features)
        tested = tb.release.logistic_with_test(training, n, 0.5, 0.1)
        radius = Fraction(training.objective.radius)
        off = 2 * Fraction(rounding.UNIT) * ((features + 4) * radius + n)
        for found, without in (
            (tested.by_test, Fraction(2, n)),
            (tested.by_training, training.sensitivity / 2),
        ):
            assert without + off <= amount.exact(found=found) <= without + off + without / 10**6


def test_a_threshold_is_reached_with_at_most_delta() -> None:
    for b in (1, 10**6, 10**12, 10**14):
        q = (-1 / arb(b)).exp()
        for delta in (0.1, 1e-9):
            found = propose_test_release._least_threshold(Fraction(b), Fraction(delta))
            assert q**found / (1 + q) <= arb(delta)
            assert found == 1 or arb(delta) * (1 - arb(1e-9)) <= q ** (found - 2) / (1 + q)


def own_keys(**known: Any) -> Any:
    return SimpleNamespace(keys_per_unit=1, scale=1.0, moves=1, _delta=1.0, **known)


def test_epsilon_and_delta_of_keys_are_no_larger() -> None:
    for given in (Fraction(1, 3), Fraction(1, 10), Fraction(1, 7)):
        keys = tb.release.KeyedCounts(epsilon=given, delta=given)
        assert Fraction(keys._epsilon) <= given
        assert Fraction(keys._delta) <= given


def test_a_key_that_does_not_appear_costs_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    for epsilon in (0.1, 1.7):
        for room, holds in ((2e-11, True), (-2e-11, False)):
            tail = float(1 - (-arb(epsilon)).exp() * (1 + arb(room)))
            noise = SimpleNamespace(tail_up=lambda _, tail=tail: tail)
            monkeypatch.setattr(select_keys, "DiscreteLaplace", lambda *_, noise=noise: noise)
            keys = own_keys(_epsilon=epsilon)
            assert select_keys.KeyedCounts._laplace_holds(keys, 1) is holds


def test_a_key_that_appears_or_whose_noise_tells() -> None:
    appears, epsilon, asked = 0.3, 1.7, []

    def noise_delta(_: int, epsilon: float) -> float:
        asked.append(epsilon)
        return 0.1

    both = Fraction(appears) + (1 - Fraction(appears)) * Fraction(0.1)
    for room, holds in ((2e-11, True), (-2e-11, False)):
        keys = own_keys(_epsilon=epsilon, _noise_delta=noise_delta)
        keys._delta = float(both * (1 + Fraction(room)))
        assert select_keys.KeyedCounts._gaussian_holds(keys, [1.0, appears], 1) is holds
    assert arb(min(asked)) <= arb(epsilon) + (1 - arb(appears)).log()


def test_a_length_that_noise_exceeds_rarely_has_room_for_rounding() -> None:
    kinds: tuple[Any, ...] = ("laplace", "gaussian")
    for kind in kinds:
        for more in (0.1, 0.7):
            noise, rounded = (
                NoiseLaw(kind=kind, scale=3.3, step=0.25, rounding=one) for one in (0.0, more)
            )
            without = Fraction(noise.half_width(0.9))
            found = Fraction(rounded.half_width(0.9))
            assert without + Fraction(more) <= found <= without + Fraction(more) + 1e-12


# ------------------------------------------------------------------------------- accounting


def test_one_delta_for_all_runs() -> None:
    """1 - (1 - delta)^n of the common delta is at least that of all runs together."""
    few, many = tb.Laplace(1.0), tb.Laplace(2.0)
    deltas = {few: 0.1, many: 1e-3}
    asked: Any = SimpleNamespace(
        _common={},
        runs=10,
        composition=tb.compose([few * 3, many * 7]),
        step_delta=lambda mechanism, _: deltas[mechanism],
    )
    truth = 1 - ((1 - arb(0.1)).log() * 3 + (1 - arb(1e-3)).log() * 7).exp()
    found = facts.Facts.common_delta(asked, 1.0)
    one = 1 - (1 - arb(found)) ** 10
    assert truth <= one <= truth * (1 + arb(1e-12))


def test_divergences_of_blocks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    known = SimpleNamespace(required=lambda: Bounds(0.1, 3.3))
    monkeypatch.setattr(schedule, "renyi_divergence", lambda *_: known)
    stops = SimpleNamespace(
        stops=(1, 2, 3), target=0.5, blocks=stopping.blocks_between(tb.Gaussian(1.0) * 3, (1, 2, 3))
    )
    found = schedule.StoppingSchedule.renyi_filter(stops, 3.0)  # type: ignore[arg-type]
    for k, price in enumerate(found, 1):
        truth = (
            ball(k * Fraction(3.3)) + (1 - 1 / arb(3)).log() - (arb(0.5).log() + arb(3).log()) / 2
        )
        assert truth <= arb(price) <= truth + arb(1e-12)
