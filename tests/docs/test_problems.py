"""What the pages of docs/problems advise, held against oracles that share nothing with them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from statistics import NormalDist

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

import tightbudget as tb

# Ten passes of 100 batches, or 1,000 steps at rate 0.01, with noise multiplier 1, at delta 1e-5.
BATCHES, PASSES, DELTA = 100, 10, 1e-5


# ------------------------------------------------------------------------- shuffled batches


def largest_of_a_pass(moved: float) -> list[mpmath.mpf]:
    """The cells of the page's histogram, with 50 digits."""
    with mpmath.workdps(50):
        cuts = [mpmath.mpf(j) / 40 for j in range(221)]
        below = [mpmath.ncdf(c - moved) * mpmath.ncdf(c) ** (BATCHES - 1) for c in cuts]
        return [b - a for a, b in itertools.pairwise([mpmath.mpf(0), *below, mpmath.mpf(1)])]


@pytest.mark.slow
@pytest.mark.parametrize("moved", [1.0, 2.0])
def test_the_cells_of_the_attack_are_right_to_seven_digits(moved: float) -> None:
    below = NormalDist(sigma=1.0).cdf
    cuts = np.linspace(0, 5.5, 221)
    cells = np.diff([0.0, *(below(c - moved) * below(c) ** (BATCHES - 1) for c in cuts), 1.0])
    for ours, exact in zip(cells, largest_of_a_pass(moved), strict=True):
        # a mass below 1e-20 moves no delta of 1e-5
        assert abs(ours - float(exact)) <= 1e-7 * float(exact) + 1e-20


def test_an_attack_on_shuffled_batches_is_above_poisson_and_below_one_run_for_each_pass() -> None:
    # one threshold for the largest sum of one pass: P(max > c) - e^eps Q(max > c) = delta
    best = 0.0
    for c in (j / 20 for j in range(140)):
        p, q = (
            1 - mpmath.ncdf(c - moved) * mpmath.ncdf(c) ** (BATCHES - 1) for moved in (2.0, 1.0)
        )
        best = max(best, float(mpmath.log((p - DELTA) / q))) if p > 2 * DELTA else best
    one_pass = tb.Gaussian(1.0) * 1
    poisson = tb.Gaussian(1.0).subsampled(1 / BATCHES) * BATCHES
    assert poisson.epsilon(DELTA).upper < best / 5 < best < one_pass.epsilon(DELTA).upper


def fixed_size(share: float, runs: int, top: float, sigma: float) -> tb.Composition:
    """The page's recipe for batches of a fixed size."""
    batch = tb.Gaussian(sigma=sigma, sensitivity=2.0) * 1
    epsilons = np.linspace(0, top, 300)
    deltas = batch.curve(epsilons=epsilons).upper
    step = tb.FromCurve(
        np.log1p(share * np.expm1(epsilons)) * (1 + 1e-12), share * deltas * (1 + 1e-12)
    )
    return step * runs


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("sigma", "share", "runs"), [(1.0, 0.01, 1000), (2.0, 0.01, 100), (1.0, 0.5, 2), (3.0, 1.0, 5)]
)
def test_fixed_size_batches_cost_at_least_what_two_data_sets_show(
    sigma: float, share: float, runs: int
) -> None:
    # all others have the gradient -C, the record +C or -C: a step is a sample, in one direction
    recipe = fixed_size(share, runs, top=14 / sigma, sigma=sigma).epsilon(DELTA)
    pair = tb.MixtureOfGaussians(sigma, (0.0, 2.0), (1 - share, share))
    instance = (pair * runs).epsilon(DELTA)
    assert instance.lower <= recipe.upper < 1.35 * instance.upper


def test_the_rows_of_the_table_on_fixed_size_batches() -> None:
    rows = {1.0: (13.36, 14.83), 2.0: (1.83, 2.20)}  # by sigma / C: at least, at most
    for sigma, (least, most) in rows.items():
        recipe = fixed_size(0.01, 1000, top=14 / sigma, sigma=sigma).epsilon(DELTA)
        instance = tb.Gaussian(sigma, sensitivity=2.0).subsampled(0.01) * 1000
        assert instance.epsilon(DELTA).lower == pytest.approx(least, abs=0.01)
        assert recipe.upper == pytest.approx(most, abs=0.01)


def test_a_renyi_accountant_s_number_is_a_bound_for_the_multiplier_by_twice_the_norm() -> None:
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting.rdp import RdpAccountant

    event = dp.SampledWithoutReplacementDpEvent(60_000, 600, dp.GaussianDpEvent(1.0))
    accountant = RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    printed = accountant.compose(event, 1000).get_epsilon(DELTA)
    assert printed == pytest.approx(3.58, abs=0.01)
    instance = {z: tb.Gaussian(z, sensitivity=2.0).subsampled(0.01) * 1000 for z in (1.0, 2.0)}
    assert instance[2.0].epsilon(DELTA).upper < printed < instance[1.0].epsilon(DELTA).lower


def test_the_published_bound_for_fixed_size_batches_is_above_small_data_sets() -> None:
    # two of four records are drawn, and a randomised response says whether any of them is 1
    keep = Fraction(3, 4)

    def outputs(record: int) -> dict[int, Fraction]:
        found: dict[int, Fraction] = {0: Fraction(0), 1: Fraction(0)}
        batches = list(itertools.combinations(range(4), 2))
        for batch in batches:
            bit = record if 0 in batch else 0  # all other records are 0
            found[bit] += keep / len(batches)
            found[1 - bit] += (1 - keep) / len(batches)
        return found

    p, q = outputs(1), outputs(0)
    share = 0.5
    base = tb.RandomizedResponse(0.75) * 1
    for epsilon in (0.0, 0.2, 0.5, 0.9):
        moved = math.log1p(share * math.expm1(epsilon))
        bound = share * base.delta(epsilon).upper * (1 + 1e-12)
        for a, b in ((p, q), (q, p)):
            exact = sum(max(0.0, float(a[o]) - math.exp(moved) * float(b[o])) for o in a)
            assert exact <= bound + 1e-15, epsilon


# ----------------------------------------------------------------------- user-level privacy


def group(k: int, rate: float, sigma: float = 1.0) -> tb.MixtureOfGaussians:
    weights = [math.comb(k, i) * rate**i * (1 - rate) ** (k - i) for i in range(k + 1)]
    return tb.MixtureOfGaussians(sigma, range(k + 1), weights)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_user_s_records_cost_what_an_integral_says(k: int) -> None:
    rate, epsilon = 0.05, 1.0

    def excess(x: mpmath.mpf) -> mpmath.mpf:
        p = sum(
            mpmath.binomial(k, i) * mpmath.mpf(rate) ** i * (1 - mpmath.mpf(rate)) ** (k - i)
            * mpmath.npdf(x, i, 1)
            for i in range(k + 1)
        )  # fmt: skip
        return max(mpmath.mpf(0), p - mpmath.exp(epsilon) * mpmath.npdf(x))

    def kink(x: float) -> float:
        p = sum(
            math.comb(k, i) * rate**i * (1 - rate) ** (k - i) * math.exp(i * x - i * i / 2)
            for i in range(k + 1)
        )
        return p - math.exp(epsilon)

    start = mpmath.findroot(kink, 3.0, tol=1e-10)
    exact = float(mpmath.quad(excess, [start, 5, 8, 12, 30]))
    found = (group(k, rate) * 1).delta(epsilon)
    assert found.lower <= exact * (1 + 1e-6)
    assert found.upper >= exact * (1 - 1e-6)
    assert found.upper < 1.01 * exact


def test_fewer_records_cost_less_and_one_is_a_sampled_step() -> None:
    costs = [(group(k, 0.01) * 100).epsilon(DELTA).upper for k in (1, 2, 3, 5)]
    assert costs == sorted(costs)
    sampled = (tb.Gaussian(1.0).subsampled(0.01) * 100).epsilon(DELTA)
    assert costs[0] == pytest.approx(sampled.upper, rel=1e-6)


@pytest.mark.slow
def test_a_mixture_costs_less_than_the_rule_for_groups() -> None:
    one = tb.Gaussian(1.0).subsampled(0.01) * 1000
    for k, epsilon in ((2, 2.2), (5, 3.785)):
        delta = one.delta(epsilon).upper * math.expm1(k * epsilon) / math.expm1(epsilon)
        assert (group(k, 0.01) * 1000).delta(k * epsilon).upper <= delta


# ------------------------------------------------------------------------ correlated noise


def square_root(n: int, bands: int | None = None) -> NDArray[np.float64]:
    column = [1.0]
    for i in range(1, n):
        column.append(column[-1] * (2 * i - 1) / (2 * i))
    matrix = np.zeros((n, n))
    for i, j in itertools.product(range(n), range(n)):
        if 0 <= i - j < (bands or n):
            matrix[i, j] = column[i - j]
    return matrix


def test_the_column_is_that_of_the_square_root_of_prefix_sums() -> None:
    matrix = square_root(40)
    assert np.allclose(matrix @ matrix, np.tril(np.ones((40, 40))), atol=1e-12)
    norms = np.linalg.norm(matrix, axis=0)
    assert norms.argmax() == 0


def test_columns_that_do_not_overlap_add_up_as_squares() -> None:
    b, k, n = 8, 4, 32
    matrix = square_root(n, bands=b)
    longest = np.linalg.norm(matrix, axis=0).max()
    directions = np.random.default_rng(7).normal(size=(200, k, 3))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    for first in range(b):
        rows = range(first, n, b)
        worst = max(np.linalg.norm(matrix[:, list(rows)] @ g) for g in directions)
        assert worst <= longest * math.sqrt(k) * (1 + 1e-12)


def test_columns_without_negative_entries_move_most_in_one_direction() -> None:
    matrix, rows = square_root(32), [0, 5, 9, 30]
    sum_of_columns = np.linalg.norm(matrix[:, rows].sum(axis=1))
    directions = np.random.default_rng(7).normal(size=(200, len(rows), 3))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    assert max(np.linalg.norm(matrix[:, rows] @ g) for g in directions) <= sum_of_columns
    assert sum_of_columns <= len(rows) * np.linalg.norm(matrix, axis=0).max()


def test_a_record_is_in_one_node_of_each_level_of_a_tree() -> None:
    for steps in (1, 2, 3, 8, 9, 1000):
        levels = (steps - 1).bit_length() + 1
        width, counted = 1, 1
        while width < steps:
            width, counted = 2 * width, counted + 1
        assert levels == counted


# --------------------------------------------------------------------------- local reports


def published(epsilon0: float, people: int, delta: float) -> float:
    grown = math.exp(epsilon0)
    bracket = 8 * math.sqrt(grown * math.log(4 / delta) / people) + 8 * grown / people
    return math.log1p((grown - 1) / (grown + 1) * bracket) * (1 + 1e-12)


def shuffled_delta(report: Callable[[int], list[float]], people: int, epsilon: float) -> float:
    """The exact delta of shuffled binary reports, one of them replaced, all others 0."""
    others = np.array([1.0])
    for _ in range(people - 1):
        others = np.convolve(others, report(0))
    p, q = np.convolve(others, report(1)), np.convolve(others, report(0))
    return float(max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p))))


@pytest.mark.parametrize(
    ("epsilon0", "people", "delta"), [(0.5, 1000, 1e-4), (1.0, 1000, 1e-3), (1.5, 2000, 1e-5)]
)
def test_the_theorem_on_shuffled_reports_is_above_what_is_exact(
    epsilon0: float, people: int, delta: float
) -> None:
    assert epsilon0 <= math.log(people / (16 * math.log(2 / delta)))
    p = math.exp(epsilon0) / (1 + math.exp(epsilon0))
    exact = shuffled_delta(lambda x: [p, 1 - p] if x == 0 else [1 - p, p], people, 0.0)
    assert exact > 0
    epsilon = published(epsilon0, people, delta)
    assert epsilon < epsilon0
    assert shuffled_delta(lambda x: [p, 1 - p] if x == 0 else [1 - p, p], people, epsilon) <= delta


@pytest.mark.parametrize(
    ("epsilon0", "people", "delta"), [(0.5, 600, 1e-4), (1.0, 800, 1e-6), (2.0, 3000, 1e-4)]
)
def test_the_theorem_on_shuffled_reports_is_above_the_pair_that_it_stands_for(
    epsilon0: float, people: int, delta: float
) -> None:
    # reports of any kind: (A + D, C - A + 1 - D) against the same with D exchanged, where
    # C ~ Bin(people - 1, e^-epsilon0), A ~ Bin(C, 1/2), D ~ Bern(e^epsilon0 / (1 + e^epsilon0))
    assert epsilon0 <= math.log(people / (16 * math.log(2 / delta)))
    epsilon = published(epsilon0, people, delta)
    sure = math.exp(epsilon0) / (1 + math.exp(epsilon0))
    total = 0.0
    for copies in range(people):
        weight = binom.pmf(copies, people - 1, math.exp(-epsilon0))
        if weight > 1e-30:
            a = np.arange(copies + 2)
            shifted, plain = binom.pmf(a - 1, copies, 0.5), binom.pmf(a, copies, 0.5)
            p = sure * shifted + (1 - sure) * plain
            q = sure * plain + (1 - sure) * shifted
            total += weight * float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
    assert total <= delta


def test_a_report_costs_the_epsilon_that_its_probability_was_chosen_for() -> None:
    for epsilon, k in ((0.1, 2), (1.0, 4), (3.0, 100)):
        p = math.exp(epsilon) / (math.exp(epsilon) + k - 1)
        assert (tb.RandomizedResponse(p, k) * 1).epsilon(0.0).upper == pytest.approx(epsilon)


# ---------------------------------------------------------------------------- data in parts


def test_parts_that_share_nobody_cost_as_much_as_one_of_them() -> None:
    # a bit of one person in each part; what is asked of the second depends on the first answer
    first, seconds = Fraction(3, 4), (Fraction(2, 3), Fraction(4, 5))

    def answers(a: int, b: int) -> dict[tuple[int, int], Fraction]:
        return {
            (i, j): (first if i == a else 1 - first) * (seconds[i] if j == b else 1 - seconds[i])
            for i in (0, 1)
            for j in (0, 1)
        }

    runs = [tb.RandomizedResponse(float(p)) * 1 for p in (first, *seconds)]
    for factor in (Fraction(1), Fraction(2), Fraction(7, 2)):
        worst = none = Fraction(0)
        for a, b in itertools.product((0, 1), repeat=2):
            p = answers(a, b)
            for q in (answers(1 - a, b), answers(a, 1 - b)):  # another person, in one part
                worst = max(worst, sum((max(p[o] - factor * q[o], none) for o in p), none))
        most = max(run.delta(math.log(factor)).upper for run in runs)
        assert float(worst) <= most * (1 + 1e-12)
        alone = [max(Fraction(0), p - factor * (1 - p)) for p in (first, min(seconds))]
        assert worst >= max(alone)


# ------------------------------------------------------------------- choose hyperparameters


def test_the_best_of_a_geometric_number_is_within_its_bound() -> None:
    # one run says 0 or 1, and 1 is better: the best of K runs is 0 only if all are
    from tightbudget.theorems import best_of_many, renyi

    keep, mean = Fraction(3, 4), 20
    run = tb.RandomizedResponse(float(keep)) * 1
    best = best_of_many.BestOfMany(
        lambda order: run.renyi(order, rtol=1e-6), best_of_many.Repetitions(mean=mean, shape=1)
    )

    def law(zero: Fraction) -> tuple[Fraction, Fraction]:
        stop = Fraction(1, mean)
        none = stop * zero / (1 - (1 - stop) * zero)
        return none, 1 - none

    for delta in (1e-3, 1e-6):
        epsilon = renyi.epsilon(best.table, delta=delta).upper
        for p, q in ((law(keep), law(1 - keep)), (law(1 - keep), law(keep))):
            grown = Fraction(math.exp(epsilon))
            assert sum(max(Fraction(0), a - grown * b) for a, b in zip(p, q, strict=True)) <= delta


# ---------------------------------------------------------------------------- choose delta


def test_who_publishes_each_record_with_probability_delta_is_zero_delta_private() -> None:
    delta = Fraction(1, 100)
    # outputs for one record: published or not, against a neighbour without it
    p, q = {"record": delta, "nothing": 1 - delta}, {"record": Fraction(0), "nothing": Fraction(1)}
    assert sum(max(Fraction(0), p[o] - q[o]) for o in p) == delta
    assert sum(max(Fraction(0), q[o] - p[o]) for o in p) == delta
    assert (tb.ApproximateDP(0.0, 0.01) * 1).delta(7.0).overlaps(tb.Bounds(0.01, 0.01))
