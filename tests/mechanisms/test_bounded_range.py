"""Both ends of adaptive runs of bounded range against strategies and other arithmetic."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp

from tightbudget.mechanisms import bounded_range
from tightbudget.numerics.rounding import next_down, next_up
from tightbudget.pairs.atomic import AtomicPair

SPANS = [1e-4, 0.01, 0.1, 0.5, 1.0, 3.0, 8.0, 20.0]


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(30):
        yield


def delta(pair: AtomicPair, x: float, *, up: bool) -> mp.mpf:
    """One end of a pair's delta at e^x, from its enclosures, in 30 digits."""
    atoms = pair.given
    masses, losses = (atoms.p.upper, atoms.loss_upper) if up else (atoms.p.lower, atoms.loss_lower)
    certain = pair.only_p.upper[0] if up else pair.only_p.lower[0]
    above = losses > x
    gains = (1 - mp.exp(mp.mpf(x) - loss) for loss in losses[above].tolist())
    return certain + mp.fsum(
        p * gain for p, gain in zip(masses[above].tolist(), gains, strict=True)
    )


def of_one(y: mp.mpf, e: mp.mpf) -> mp.mpf:
    """The largest delta of one run, in closed form: of logistic noise."""
    if y >= e:
        return mp.mpf(0)
    return 1 - y if y * e <= 1 else (mp.sqrt(e) - mp.sqrt(y)) ** 2 / (e - 1)


def of_two(x: float, span: float) -> mp.mpf:
    """The largest delta of two runs: the best first interval by a golden section."""
    length, e = mp.mpf(span), mp.exp(span)

    def value(t: mp.mpf) -> mp.mpf:
        u, y = mp.exp(t), mp.exp(x)
        return ((e - u) * of_one(y / u, e) + (u - 1) * of_one(y * e / u, e)) / (e - 1)

    # elsewhere the value is 0, or 1 - y
    low, high = max(mp.mpf(0), x - length), min(length, x + 2 * length)
    ts = [low + (high - low) * k / 24 for k in range(25)]
    k = max(range(25), key=lambda k: value(ts[k]))
    low, high = ts[max(0, k - 1)], ts[min(24, k + 1)]
    ratio = (mp.sqrt(5) - 1) / 2
    for _ in range(35):
        first, second = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (first, high) if value(first) < value(second) else (low, second)
    return max(value(low), value(ts[k]))


@pytest.mark.parametrize("span", SPANS)
def test_two_runs_are_between_the_ends_and_close(span: float) -> None:
    above, below = (
        end(span, 2, 0) for end in (bounded_range.above_by_chords, bounded_range.below_by_tests)
    )
    for share in (-0.7, 0.3, 0.99):
        x = 2 * span * share
        exact = of_two(x, span)
        lower, upper = delta(below, x, up=False), delta(above, x, up=True)
        assert lower <= exact <= upper
        assert upper - lower <= 1e-2 * exact + 1e-16


@pytest.mark.one_in(3)
@pytest.mark.parametrize("span", [0.01, 1.0, 4.0])
@pytest.mark.parametrize("runs", [3, 40])
def test_one_run_more_obeys_the_recursion(span: float, runs: int) -> None:
    """No interval's mixture of lower bounds of D_(j-1) is above the upper bound of D_j."""
    before = bounded_range.below_by_tests(span, runs - 1, 0)
    after = [
        end(span, runs, 0) for end in (bounded_range.above_by_chords, bounded_range.below_by_tests)
    ]
    e = mp.exp(span)
    for share in (0.1, 0.6):
        x = math.sqrt(runs) * span * share
        found = []
        for t in np.linspace(0.0, span, 7).tolist():
            u = mp.exp(t)
            near = delta(before, next_up(x - t), up=False)
            far = delta(before, next_up(next_up(x - t + span)), up=False)
            found.append(((e - u) * near + (u - 1) * far) / (e - 1))
        lower, upper = delta(after[1], x, up=False), delta(after[0], x, up=True)
        assert max(found) <= upper
        assert max(found) >= lower * (1 - mp.mpf("5e-2"))
        assert lower <= upper


@pytest.mark.parametrize("e", [Fraction(101, 100), Fraction(3, 2), Fraction(3), Fraction(20)])
@pytest.mark.parametrize("runs", [2, 3, 4])
def test_no_strategy_beats_the_upper_bound(e: Fraction, runs: int) -> None:
    """All strategies that choose among six intervals, in exact fractions."""
    us = (
        [1 + (e - 1) * Fraction(i, 5) for i in range(6)]
        if runs < 4
        else [Fraction(1), (e + 1) / 2, e]
    )

    @functools.cache
    def best(j: int, y: Fraction) -> Fraction:
        if j == 0:
            return max(Fraction(0), 1 - y)
        return max(
            ((e - u) * best(j - 1, y / u) + (u - 1) * best(j - 1, y * e / u)) / (e - 1) for u in us
        )

    pair = bounded_range.above_by_chords(next_up(next_up(math.log(e))), runs, 0)
    for y in (Fraction(1, 2), Fraction(1), (e + 1) / 2, e, e ** (runs - 1) * (e + 3) / 4):
        x = next_down(next_down(math.log(y)))
        assert mp.mpf(best(runs, y).numerator) / best(runs, y).denominator <= delta(
            pair, x, up=True
        )


@pytest.mark.one_in(4)
@pytest.mark.parametrize("span", [1e-4, 0.1, 2.0, 20.0])
@pytest.mark.parametrize("runs", [2, 5, 30])
def test_ends_are_their_own_mirror_images(span: float, runs: int) -> None:
    """D(1 / y) = 1 - 1/y + D(y) / y, and each end is a pair of distributions."""
    for end, up in ((bounded_range.above_by_chords, True), (bounded_range.below_by_tests, False)):
        pair = end(span, runs, 0)
        for mass in (pair.given.p, pair.given.q):
            certain = pair.only_p
            assert mass.lower.sum() + certain.lower[0] <= 1 + 1e-12
            assert mass.upper.sum() + certain.upper[0] >= 1 - 1e-12
        for x in (0.2 * span, span, 1.5 * span):
            y = mp.exp(x)
            there = delta(pair, -x, up=up)
            here = 1 - 1 / y + delta(pair, x, up=up) / y
            assert abs(there - here) <= 1e-10


@pytest.mark.parametrize(("span", "runs"), [(0.1, 40), (0.7, 30), (1e-4, 20)])
def test_more_halvings_nest(span: float, runs: int) -> None:
    x = span * math.sqrt(runs)
    ends = [
        (
            delta(bounded_range.below_by_tests(span, runs, halvings), x, up=False),
            delta(bounded_range.above_by_chords(span, runs, halvings), x, up=True),
        )
        for halvings in (0, 2)
    ]
    for (low, high), (closer_low, closer_high) in itertools.pairwise(ends):
        off = 1e-9 * high
        assert low <= closer_low + off
        assert closer_low <= closer_high <= high + off
        assert closer_high - closer_low <= 0.7 * (high - low) + off


@pytest.mark.parametrize(("span", "runs"), [(0.05, 60), (1.0, 12), (6.0, 5)])
def test_tests_of_the_lower_end_are_concave(span: float, runs: int) -> None:
    """Losses fall along the trade-off curve: otherwise atoms in their order are no strategy's."""
    atoms = bounded_range.below_by_tests(span, runs, 0).given
    p, q = atoms.p.lower, atoms.q.upper
    half = atoms.loss_lower > 0
    assert (np.diff(atoms.loss_lower[half]) > 0).all()
    ratios = p[half] / q[half]
    assert (np.diff(ratios) >= -1e-12 * ratios[1:]).all()


def test_tests_that_no_double_tells_apart_are_left_out() -> None:
    p = np.array([0.5, 0.5, 0.3, 0.3, 0.25, 0.1, 0.0, 0.0])
    q = np.array([0.3, 0.2, 0.1, 0.1, 0.09, 1e-310, 0.0, 0.0])
    kept_p, kept_q = bounded_range._concave(p, q)
    points = list(zip(kept_p.tolist(), kept_q.tolist(), strict=True))
    assert points[0] == (0.5, 0.3)
    assert points[-1] == (0.0, 0.0)
    assert set(points) <= set(zip(p.tolist(), q.tolist(), strict=True))
    rise, cost = -np.diff(kept_p)[1:], -np.diff(kept_q)[1:]
    assert (rise > 0).all()
    assert (rise[1:] * cost[:-1] > rise[:-1] * cost[1:]).all()


@pytest.mark.parametrize(("span", "runs"), [(4.0, 200), (8.0, 60), (20.0, 20)])
def test_what_rounding_has_raised_to_one_does_not_spread(span: float, runs: int) -> None:
    """Where D is 1 to the last place, a line through two values may begin far above 1."""
    above, below = (
        end(span, runs, 0) for end in (bounded_range.above_by_chords, bounded_range.below_by_tests)
    )
    middle = runs * span * (1 + math.exp(-span)) / (1 - math.exp(-span)) - 2.0 * runs
    for x in (middle, middle + 2.0 * math.sqrt(runs)):
        lower, upper = delta(below, x, up=False), delta(above, x, up=True)
        assert lower <= upper <= 1.2 * lower
    assert above.given.p.upper.sum() <= 1 + 1e-9


@pytest.mark.parametrize("span", [1e-4, 0.3, 5.0, 20.0])
def test_one_run_on_the_grid_is_attained_to_the_last_digits(span: float) -> None:
    """At y = e^(i h), the best t is (span + i h) / 2: on the grid for every other i."""
    grid = bounded_range._grid(span, 2, 0)
    above = bounded_range._one_more_above(grid, np.zeros(1), grid.cells)
    p, q = bounded_range._one_more_below(grid, np.zeros(1), np.zeros(1), grid.cells)
    for i in range(0, grid.cells, max(2, grid.cells // 32 * 2)):
        exact = of_one(mp.exp(mp.mpf(span) * i / grid.cells), mp.exp(span))
        assert mp.mpf(p[i]) - mp.mpf(q[i]) <= exact <= mp.mpf(above[i])
        assert p[i] - q[i] >= exact - 1e-12
        assert above[i] <= exact + 1e-12 * math.exp(span) + (span / grid.cells) ** 2


@pytest.mark.parametrize(("span", "runs"), [(0.05, 1), (0.3, 12), (4.0, 20), (20.0, 9)])
def test_no_range_of_t_is_above_the_few_that_are_searched(span: float, runs: int) -> None:
    """Neither where D is 0, nor where it is 1 to the last place, nor straight up to rounding."""
    grid = bounded_range._Grid(span, 40)
    delta = np.zeros(1)
    for j in range(runs):
        delta = bounded_range._one_more_above(grid, delta, grid.reach(j + 1))
    whole = bounded_range._mirrored(grid, delta, left=40, right=delta.size + 50)
    found = bounded_range._largest(grid, whole)
    lines = bounded_range._Lines.of(grid, whole)
    i = np.arange(found.size)
    every = np.max([lines.largest(i, i + k) for k in range(40)], axis=0)
    assert (found >= every * (1 - 1e-13)).all()
    assert (found <= every * (1 + 2e-12)).all()


def test_kinks_and_noise_hide_no_range_of_t() -> None:
    """Also of a function that is not convex the largest value of all lines is found."""
    grid, rng = bounded_range._Grid(0.7, 24), np.random.default_rng(7)
    for noise in (0.0, 1e-15, 1e-9, 1e-3):
        y = np.exp(grid.step * np.arange(-24, 200))
        values = np.maximum(np.maximum(0.0, 1 - y / 3), 0.4 - y / 20) + 1e-3
        values = np.sort(values * (1 + noise * rng.standard_normal(y.size)))[::-1]
        found = bounded_range._largest(grid, values)
        lines = bounded_range._Lines.of(grid, values)
        i = np.arange(found.size)
        every = np.max([lines.largest(i, i + k) for k in range(24)], axis=0)
        chord = (values[:-48] + math.exp(-0.7) * values[48:]) / (1 + math.exp(-0.7))
        # below the line over all that one run reaches is what a convex function is
        assert (found >= np.minimum(every, chord) * (1 - 1e-13)).all()
        assert (found <= every * (1 + 2e-12)).all()


@pytest.mark.parametrize(("span", "runs"), [(0.1, 30), (2.0, 8), (20.0, 6)])
def test_the_likely_t_is_hardly_below_the_best(span: float, runs: int) -> None:
    grid = bounded_range._grid(span, runs, 0)
    p, q = np.zeros(1), np.zeros(1)
    for j in range(runs - 1):
        p, q = bounded_range._one_more_below(grid, p, q, grid.reach(j + 1))
    after = bounded_range._one_more_below(grid, p, q, grid.reach(runs))
    far = np.append(p - q, np.zeros(4 * grid.cells))
    padded = bounded_range._mirrored(grid, far, left=grid.cells, right=after[0].size + grid.cells)
    t = np.minimum(np.arange(grid.cells + 1) * grid.step, span)
    stay = np.exp(t) * np.expm1(span - t) / math.expm1(span)
    n, m = after[0].size, grid.cells
    best = np.max(
        [
            stay[a] * padded[m - a : m - a + n] + (1 - stay[a]) * padded[2 * m - a : 2 * m - a + n]
            for a in range(m + 1)
        ],
        axis=0,
    )
    assert (after[0] - after[1] >= best * (1 - 1e-6) - 1e-13).all()


def test_losses_of_the_upper_end_enclose_the_grid() -> None:
    span, runs = 0.7, 3
    cells, atoms = (
        bounded_range._grid(span, runs, 0).cells,
        bounded_range.above_by_chords(span, runs, 0).given,
    )
    low, high = atoms.loss_lower[atoms.loss_lower > 0], atoms.loss_upper[atoms.loss_lower > 0]
    for i in range(1, low.size + 1, 17):
        exact = Fraction(span) * i / cells
        assert Fraction(low[i - 1]) <= exact <= Fraction(high[i - 1])


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ([0.5, 0.3, 0.1, 0.02], [0.25, 0.1, 0.02, 0.002]),
        ([0.9, 0.5, 0.25, 0.08], [0.2, 0.04, 0.01, 0.0009]),
    ],
)
def test_the_pair_of_tests_keeps_their_errors(p: list[float], q: list[float]) -> None:
    """From each test on, the atoms have at most its P-mass and at least its Q-mass."""
    grid = bounded_range._grid(1.0, 2, 0)
    largest = Fraction(p[0]), Fraction(q[0])
    if p[0] + q[0] > 1:  # the mirror image of the complement
        largest = 1 - largest[1], 1 - largest[0]
    pair = bounded_range._pair_of_tests(grid, np.array(p), np.array(q)).given
    right = pair.loss_lower > 0
    masses_p, masses_q = pair.p.lower[right], pair.q.upper[right]
    assert mp.fsum(masses_p.tolist()) <= mp.mpf(largest[0].numerator) / largest[0].denominator
    assert mp.fsum(masses_q.tolist()) >= mp.mpf(largest[1].numerator) / largest[1].denominator
    for i in (1, 2, 3):
        there = mp.fsum(masses_q[i:].tolist())
        assert there >= mp.mpf(q[i]) * mp.exp(-mp.mpf(i) / grid.cells)


def test_a_test_on_the_chord_of_others_is_left_out() -> None:
    p, q = np.array([0.5, 0.25 * (1 - 2e-10), 0.0]), np.array([0.25, 0.125, 0.0])
    assert bounded_range._concave(p, q)[0].tolist() == [0.5, 0.0]


def test_what_would_take_hours_is_not_taken_together() -> None:
    assert bounded_range.bearable(0.01, 10_000)
    assert not bounded_range.bearable(0.01, 10_001)
    assert not bounded_range.bearable(20.0, 10_000)
