"""Laws of single functions that round: what they enclose, they enclose exactly.

Each compares with ball arithmetic or exact fractions, and so closely that a line that is turned,
a million units the wrong way, makes it fail: `python -m tests.guards.sweep` finds its lines here.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from tests.balls import ball
from tests.exact import exp_ends, normalised, response_delta, stopping_delta

import tightbudget as tb
from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.engine.buckets.measures import LowerMeasure, Tilt, UpperMeasure
from tightbudget.mechanisms import subsampled
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.enclosure import Enclosure, exact
from tightbudget.numerics.rounding import TINY
from tightbudget.output_dp import backward_induction, stopping_lattice
from tightbudget.output_dp.backward_induction import BackwardInduction, StoppingRule
from tightbudget.output_dp.stopping_lattice import Kernel, Lattice, RunLosses
from tightbudget.pairs import atomic
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Bins, Pair


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
