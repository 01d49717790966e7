"""The upper bound of shuffled batches: no data set that can be computed shows more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import tightbudget as tb
from tightbudget.mechanisms import Direction, shuffled_above
from tightbudget.mechanisms.shuffled_above import (
    _Average,
    _change,
    _delta,
    _Hidden,
    _least_fall,
    _sums,
    above_shuffled,
)
from tightbudget.numerics.enclosure import exact
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.pair import Atoms

Array = NDArray[np.float64]


# ------------------------------------------------------------------------------- data sets


def deltas_of(
    sigma: float, others: Sequence[float], epsilons: Sequence[float], rate: float = 1.0
) -> list[float]:
    """Delta of one epoch of batches of one record each, by sums over a lattice of outputs.

    The record is 1, or zeroed; the others are numbers in [-1, 1]. Each is in the sample with the
    chance ``rate``, or leaves its place empty.
    """
    number = {1: 401, 2: 101}[len(others)]
    x, h = np.linspace(-1 - 7 * sigma, 1 + 7 * sigma, number, retstep=True)
    empty = stats.norm.pdf(x, 0.0, sigma) * h

    def law(first: float) -> Array:
        each = [
            rate * stats.norm.pdf(x, mean, sigma) * h + (1 - rate) * empty
            for mean in (first, *others)
        ]
        orders = list(itertools.permutations(each))
        whole = sum(math.prod(np.ix_(*order)) for order in orders)
        return np.asarray(whole) / len(orders)

    p, q = law(1.0), law(0.0)
    return [
        max(float(np.maximum(a - math.exp(e) * b, 0.0).sum()) for a, b in ((p, q), (q, p)))
        for e in epsilons
    ]


@pytest.mark.parametrize("sigma", [1.0, 3.0, 8.0, 20.0, 60.0])
@pytest.mark.parametrize(
    "others", [(-1.0,), (0.0,), (1.0,), (0.37,), (-1.0, -1.0), (1.0, -1.0), (0.2, -0.6)]
)
def test_no_data_set_of_two_or_three_batches_shows_more(
    sigma: float, others: tuple[float, ...]
) -> None:
    epsilons = [share / sigma for share in (0.0, 0.1, 0.3, 0.7, 1.5)]
    truths = deltas_of(sigma, others, epsilons)
    epoch = tb.Gaussian(sigma).shuffled(len(others) + 1)
    for epsilon, truth in zip(epsilons, truths, strict=True):
        assert truth <= epoch.delta(epsilon).upper * (1 + 1e-9)
    if sigma == 60.0:  # and the bound is close where noise hides all records
        assert epoch.delta(0.0).upper <= 1.04 * truths[0]


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.9])
@pytest.mark.parametrize("sigma", [0.5, 2.0, 20.0])
@pytest.mark.parametrize("others", [(-1.0,), (0.0,), (1.0,), (0.2, -0.6)])
def test_no_sample_of_two_or_three_batches_shows_more(
    sigma: float, others: tuple[float, ...], rate: float
) -> None:
    epsilons = [rate * share / sigma for share in (0.0, 0.1, 0.3, 0.7, 1.5)]
    truths = deltas_of(sigma, others, epsilons, rate)
    sample = tb.Gaussian(sigma).shuffled(len(others) + 1).subsampled(rate)
    for epsilon, truth in zip(epsilons, truths, strict=True):
        assert truth <= sample.delta(epsilon).upper * (1 + 1e-9)
    if rate == 0.05:  # and the bound is close where most places are empty
        assert sample.delta(0.0).upper <= 1.06 * truths[0]


def deltas_of_sizes(
    sigma: float, others: Sequence[float], size: int, epsilons: Sequence[float]
) -> list[float]:
    """Delta of one epoch of two batches, the first of ``size`` records, the second of the rest."""
    most = len(others) + 1
    x, h = np.linspace(-most - 7 * sigma, most + 7 * sigma, 601, retstep=True)

    def law(first: float) -> Array:
        records = (first, *others)
        whole = np.zeros((x.size, x.size))
        for chosen in itertools.combinations(range(most), size):
            here = sum(records[i] for i in chosen)
            each = [stats.norm.pdf(x, mean, sigma) * h for mean in (here, sum(records) - here)]
            whole += np.outer(*each)
        return whole / math.comb(most, size)

    p, q = law(1.0), law(0.0)
    return [
        max(float(np.maximum(a - math.exp(e) * b, 0.0).sum()) for a, b in ((p, q), (q, p)))
        for e in epsilons
    ]


@pytest.mark.parametrize("sigma", [2.0, 20.0])
@pytest.mark.parametrize(
    ("others", "size"),
    [((0.0,) * 9, 9), ((0.0, 0.0), 2), ((-1.0, -1.0), 2), ((1.0, -0.5, 0.3, -1.0), 3)],
)
def test_no_epoch_whose_last_batch_is_smaller_shows_more(
    sigma: float, others: tuple[float, ...], size: int
) -> None:
    epsilons = [share / sigma for share in (0.0, 0.1, 0.3, 0.7, 1.5)]
    truths = deltas_of_sizes(sigma, others, size, epsilons)
    epoch = tb.Gaussian(sigma).shuffled(2, smaller=1)
    for epsilon, truth in zip(epsilons, truths, strict=True):
        found = epoch.delta(epsilon)
        assert truth <= found.upper * (1 + 1e-9)
        if set(others) == {-1.0}:
            assert found.lower <= truth * (1 + 1e-9)
    if len(others) == 9 and sigma == 20.0:  # as if both batches had one size, it would be below
        assert tb.Gaussian(sigma).shuffled(2).delta(0.0).upper < truths[0]


@pytest.mark.parametrize(("steps", "smaller"), [(2, 1), (5, 1), (100, 1), (1000, 300)])
def test_smaller_batches_hide_nothing_and_show_something(steps: int, smaller: int) -> None:
    base = tb.Gaussian(2.0)
    found = base.shuffled(steps, smaller).delta(0.01)
    hiding = base.shuffled(steps - smaller) if steps - smaller > 1 else base
    assert found.upper == hiding.delta(0.01).upper
    assert found.lower == base.shuffled(steps).delta(0.01).lower


def log_mean_ratio(z: Array, there: float, zeroed: float) -> Array:
    """ln of the density with the record over that without it, where all others have noise alone."""
    each = [shift * z - shift**2 / 2 for shift in (there, zeroed)]
    tops = [x.max(axis=1, keepdims=True) for x in each]
    means = [
        np.log(np.exp(x - top).mean(axis=1)) + top[:, 0] for x, top in zip(each, tops, strict=True)
    ]
    return np.asarray(means[0] - means[1])


@pytest.mark.slow
@pytest.mark.parametrize("other", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize(("sigma", "steps"), [(2.0, 200), (1.0, 1000), (0.8, 4000)])
def test_drawn_outputs_show_no_more(sigma: float, steps: int, other: float) -> None:
    rng = np.random.default_rng(steps)
    number, there, zeroed = 2 * 10**6 // steps, (1.0 - other) / sigma, -other / sigma
    noise = rng.normal(size=(number, steps))
    scale = math.sqrt(math.expm1(min(1.0, sigma**-2)) / steps)
    epoch = tb.Gaussian(sigma).shuffled(steps)
    losses = []
    for mean, sign in ((there, 1.0), (zeroed, -1.0)):
        outputs = noise.copy()
        outputs[:, 0] += mean
        losses.append(sign * log_mean_ratio(outputs, there, zeroed))
    for epsilon in (0.0, 0.5 * scale, scale, 2 * scale):
        for loss in losses:
            gains = np.maximum(-np.expm1(epsilon - loss), 0.0)
            certainly = gains.mean() - 5 * gains.std() / math.sqrt(number)
            assert certainly <= epoch.delta(epsilon).upper


# ------------------------------------------------------------------------------ the theorem


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("clones", [0.3, 5.0, 60.0])
@pytest.mark.parametrize(("sigma", "steps"), [(2.0, 40), (1.0, 3000), (5.0, 17), (3.3, 2823)])
def test_each_delta_is_that_of_the_theorem(
    sigma: float, steps: int, clones: float, rate: float
) -> None:
    """Against the theorem's formula, with the library's own bounds of random allocation."""
    base, fall = tb.Gaussian(sigma), math.log(max(steps / clones, 1.2))
    pair = base.pair(Direction.REMOVE)
    found = _Hidden.of(pair, steps, rate, fall, 1e-9)
    with mpmath.workdps(40):
        m, x = 1 / mpmath.mpf(sigma), mpmath.mpf(fall)
        one = mpmath.ncdf(m / 2 - x / m) - mpmath.exp(x) * mpmath.ncdf(-m / 2 - x / m)
        changed = (steps - 1) * rate * mpmath.exp(-x) * one
        assert changed <= found.changed <= changed * (1 + 1e-6)
    empty = 1 - rate + rate * math.exp(-fall)
    chances = stats.binom.pmf(np.arange(steps), steps - 1, empty)
    likely = [j for j in range(1, steps + 1) if chances[j - 1] > 1e-3]
    epsilons = np.array([0.0, 0.3, 1.0]) / sigma / math.sqrt(likely[0])
    upper = found.delta(epsilons, _delta(pair, epsilons))
    for epsilon, most in zip(epsilons.tolist(), upper.tolist(), strict=True):
        # allocation to more steps shows less: few of all numbers say from where the sum comes
        some = sorted({*likely[:: max(1, len(likely) // 6)], likely[-1]})
        exact = {j: (base.allocated(j) * 1).delta(epsilon, rtol=1e-3) for j in some}
        least = most_of = found.changed * (1 + math.exp(epsilon))
        for j in likely:
            later = min(i for i in some if i >= j)
            earlier = max(i for i in some if i <= j)
            least += float(chances[j - 1]) * exact[later].lower
            most_of += float(chances[j - 1]) * exact[earlier].upper
        assert least * (1 - 1e-6) <= most
        assert most <= 1.25 * most_of + 1e-3


@pytest.mark.parametrize("steps", [2, 7, 100, 10**4])
@pytest.mark.parametrize("sigma", [0.7, 2.0, 10.0])
def test_averages_are_above_random_allocation(sigma: float, steps: int) -> None:
    base = tb.Gaussian(sigma)
    average = _Average.of(base.pair(Direction.REMOVE), steps)
    epsilons = np.array([0.0, 0.2, 1.0, 3.0]) * math.sqrt(math.expm1(sigma**-2) / steps)
    found = average.delta(epsilons)
    for epsilon, upper in zip(epsilons.tolist(), found.tolist(), strict=True):
        exact = (base.allocated(steps) * 1).delta(epsilon)
        assert exact.lower <= upper <= exact.upper * (1 + 1e-2)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 10.0, 1e4])
def test_one_run_of_the_base_is_known_at_all_epsilons_together(sigma: float) -> None:
    pair = tb.Gaussian(sigma).pair(Direction.REMOVE)
    m = 1 / sigma
    epsilons = np.append(0.0, np.geomspace(1e-3 * m, m * m / 2 + 15 * m, 40))
    for epsilon, upper in zip(epsilons.tolist(), _delta(pair, epsilons).tolist(), strict=True):
        with mpmath.workdps(40):
            x, y = mpmath.mpf(m) / 2, mpmath.mpf(epsilon) / mpmath.mpf(m)
            truth = mpmath.ncdf(x - y) - mpmath.exp(mpmath.mpf(epsilon)) * mpmath.ncdf(-x - y)
            assert truth <= upper <= truth * (1 + 1e-6)


# -------------------------------------------------------------------------------- rounding


@pytest.mark.parametrize("fall", [0.1, 1.0, 4.0])
@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 2), (1.0, 1000), (0.7, 10**9)])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_what_other_records_change_is_not_below_it(
    sigma: float, steps: int, rate: float, fall: float
) -> None:
    found = _change(tb.Gaussian(sigma).pair(Direction.REMOVE), steps, rate, fall)
    with mpmath.workdps(40):
        m, x = 1 / mpmath.mpf(sigma), mpmath.mpf(fall)
        one = mpmath.ncdf(m / 2 - x / m) - mpmath.exp(x) * mpmath.ncdf(-m / 2 - x / m)
        truth = (steps - 1) * mpmath.mpf(rate) * mpmath.exp(-x) * one
        assert truth <= found <= truth * (1 + 1e-9)


@pytest.mark.parametrize("fall", [0.1, 0.7, 2.0, math.inf])
@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("steps", [2, 3, 9])
def test_no_number_of_hidden_batches_is_too_unlikely(steps: int, rate: float, fall: float) -> None:
    """Fewer hidden batches show more: each tail of the chances is at least the exact one."""
    found = _Hidden.of(tb.Gaussian(2.0).pair(Direction.REMOVE), steps, rate, fall, 1e-9)
    assert (found.changed == 0.0) == (fall == math.inf)
    with mpmath.workdps(40):
        kappa, n = 1 - mpmath.mpf(rate) * (1 - mpmath.exp(-mpmath.mpf(fall))), steps - 1
        truths = [mpmath.binomial(n, j) * kappa**j * (1 - kappa) ** (n - j) for j in range(n + 1)]
        # 1, which stands for fewer than are listed, and then each number up to the last one
        most = len(found.chances) - 1
        for number in range(1, most):
            listed = mpmath.fsum(mpmath.mpf(c) for c in found.chances[: number + 1])
            assert mpmath.fsum(truths[:number]) <= listed <= 1
        for number, chance in enumerate(found.chances[1:-1]):
            assert truths[number] <= chance * (1 + mpmath.mpf(10) ** -14)


def test_sums_over_outputs_are_rounded_apart() -> None:
    p = np.array([0.1, 0.3, 0.2, 1e-17, 0.1])
    losses = np.array([0.7, -0.2, 1.3, 5.0, 0.1])
    q = p * np.exp(-losses)
    pair = AtomicPair(
        Atoms(exact(p), exact(q), losses - 1e-3, losses), only_p=exact(np.array([1e-9]))
    )
    falls, more, less, certain = _sums(pair)
    assert certain == 1e-9
    assert falls.tolist() == [-5.0, -1.3, -0.7, -0.1, 0.2]
    order = np.argsort(-losses)
    with mpmath.workdps(40):
        for n in range(len(p) + 1):
            some = [(mpmath.mpf(p[i]), mpmath.mpf(losses[i])) for i in order[:n].tolist()]
            whole = mpmath.fsum(a for a, _ in some)
            other = mpmath.fsum(a * mpmath.exp(-x) for a, x in some)
            assert whole <= more[n] <= whole * (1 + 1e-13)
            assert other * (1 - mpmath.mpf(10) ** -13) <= less[n] <= other


def test_deltas_of_averages_and_of_all_together_are_rounded_up() -> None:
    part = (
        np.array([-2.0, -1.0, 0.3]),
        np.array([0.0, 0.1, 0.4, 0.9]),
        np.array([0, 0.01, 0.1, 0.7]),
    )
    falls, more, less = ((one, one) for one in part)
    average = _Average(falls, more, less, (1e-3, 1e-4))
    epsilons = np.array([0.0, 0.5, 1.0, 1.5])
    found = average.delta(epsilons)
    alone = np.array([0.5, 0.4, 0.3, 0.2])
    whole = _Hidden(0.01, (0.25, 0.75), (None, average)).delta(epsilons, alone)
    with mpmath.workdps(40):
        for k, (above, epsilon) in enumerate(zip((2, 2, 1, 1), epsilons.tolist(), strict=True)):
            growth = mpmath.exp(mpmath.mpf(epsilon))
            first = mpmath.mpf(part[1][above]) - growth * mpmath.mpf(part[2][above]) + 1e-3
            assert first <= found[k] <= first * (1 + 1e-12)
            both = (1 + growth) * mpmath.mpf(0.01) + alone[k] / 4 + first * mpmath.mpf(0.75)
            assert both <= whole[k] <= both * (1 + 1e-12)


# ------------------------------------------------------------------------------ what comes out


@pytest.mark.parametrize(
    ("sigma", "steps", "epochs", "least", "most"),
    [
        # delta = 1e-5: the lower bound, and the upper one; alone a permutation that is told has
        # 17.86, 9.776, 17.86, 7.511 and 1.993
        (1.0, 1000, 10, 4.480, 6.358),
        (3.3, 2823, 42, 0.1403, 0.2794),
        (10.0, 10**5, 1000, 0.02721, 0.0393),
        (2.0, 1000, 10, 0.2821, 0.6483),
        (20.0, 3, 100, 1.084, 1.199),
    ],
)
def test_known_intervals(sigma: float, steps: int, epochs: int, least: float, most: float) -> None:
    found = (tb.Gaussian(sigma).shuffled(steps) * epochs).epsilon(1e-5)
    assert found.lower == pytest.approx(least, rel=1e-3)
    assert found.upper == pytest.approx(most, rel=1e-2)


@pytest.mark.parametrize("epochs", [1, 30])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize(("sigma", "steps"), [(0.3, 10**9), (0.6, 1000), (1.0, 100), (4.0, 10)])
def test_no_upper_bound_is_above_that_of_a_permutation_that_is_told(
    sigma: float, steps: int, epochs: int, delta: float
) -> None:
    found = (tb.Gaussian(sigma).shuffled(steps) * epochs).epsilon(delta)
    assert found.upper <= (tb.Gaussian(sigma) * epochs).epsilon(delta).upper * (1 + 5e-3)


def test_more_batches_hide_more() -> None:
    uppers = [
        (tb.Gaussian(2.0).shuffled(steps) * 5).epsilon(1e-6).upper
        for steps in (2, 10, 100, 1000, 10**4, 10**6)
    ]
    assert uppers == sorted(uppers, reverse=True)
    assert uppers[-1] < uppers[0] / 50


def test_others_that_are_hardly_ever_there_leave_little_to_search() -> None:
    pair = tb.Gaussian(1.1).pair(Direction.REMOVE)
    fall = _least_fall(pair, 1510, 2.4e-8, 1e-4)
    assert fall is not None
    assert 1e-4 < fall <= 1e-3


def test_clones_that_are_too_rare_make_no_curve() -> None:
    assert above_shuffled(tb.Gaussian(0.5), 1000) is None
    assert above_shuffled(tb.Gaussian(0.01), 10**9) is None
    curve = above_shuffled(tb.Gaussian(2.0), 1000)
    assert curve is not None
    assert len(np.asarray(curve.epsilons)) < 500


def test_a_sample_of_a_shuffle_is_hidden_too() -> None:
    sampled = (tb.Gaussian(1.0).shuffled(1000).subsampled(0.1) * 10).epsilon(1e-5)
    told = (tb.Gaussian(1.0).subsampled(0.1) * 10).epsilon(1e-5)
    assert sampled.lower < sampled.upper < 0.7 * told.upper


@pytest.mark.parametrize(
    ("sigma", "steps", "rate", "epochs", "least", "most"),
    [
        # with the order told: 2.855, 0.7896, 12.26 and 10.46
        (1.0, 1000, 0.1, 10, 0.03793, 0.0413),
        (3.3, 2823, 0.1, 42, 0.00913, 0.009672),
        (0.5, 1000, 0.1, 10, 1.174, 1.28),
        (1.0, 1000, 0.5, 10, 0.2207, 0.3327),
    ],
)
def test_known_intervals_of_samples(
    sigma: float, steps: int, rate: float, epochs: int, least: float, most: float
) -> None:
    found = (tb.Gaussian(sigma).shuffled(steps).subsampled(rate) * epochs).epsilon(1e-5)
    assert found.lower == pytest.approx(least, rel=1e-3)
    assert found.upper == pytest.approx(most, rel=1e-2)


def test_a_sample_of_a_sample_has_at_most_the_others_of_the_first() -> None:
    epoch = tb.Gaussian(1.0).shuffled(1000)
    twice, once = epoch.subsampled(0.2).subsampled(0.5), epoch.subsampled(0.1)
    assert once.delta(0.01).upper <= twice.delta(0.01).upper
    assert twice.delta(0.01).upper < tb.Gaussian(1.0).subsampled(0.1).delta(0.01).lower / 2


def test_the_record_of_an_epoch_on_all_is_hidden_as_that_of_an_epoch() -> None:
    epoch = tb.Gaussian(2.0).shuffled(100)
    assert epoch.subsampled(1.0).delta(0.1) == epoch.delta(0.1)
    rarely = epoch.subsampled(1.0 - 1e-9).delta(0.1).upper
    assert rarely == pytest.approx(epoch.delta(0.1).upper, rel=1e-2)


def test_divergences_are_those_of_one_run_an_epoch() -> None:
    run = tb.Gaussian(2.0).shuffled(100) * 3
    found = run.renyi(4.0)
    assert found.upper == (tb.Gaussian(2.0) * 3).renyi(4.0).upper
    assert 0.0 < found.lower < found.upper


@pytest.mark.parametrize("rate", [0.1, 1.0])
@pytest.mark.parametrize("relation", [None, tb.Neighbouring.ZERO_OUT])
def test_divergences_of_a_sample_are_those_of_a_sampled_run(
    rate: float, relation: tb.Neighbouring | None
) -> None:
    base = tb.Gaussian(2.0, relation=relation)
    run = base.shuffled(100).subsampled(rate) * 3
    for order in (2.0, 4.0, 30.0):
        found = run.renyi(order)
        assert found.upper == (base.subsampled(rate) * 3).renyi(order).upper
        assert 0.0 < found.lower < found.upper
    twice = base.shuffled(100).subsampled(0.5).subsampled(rate) * 3
    assert twice.renyi(4.0).upper == pytest.approx(
        (base.subsampled(0.5 * rate) * 3).renyi(4.0).upper, rel=1e-4
    )
    assert run.renyi(math.inf).upper == math.inf


def test_the_numbers_of_averages_ascend() -> None:
    numbers = shuffled_above._NUMBERS
    assert list(numbers) == sorted(set(numbers))
    assert numbers[0] == 1
    assert numbers[-1] <= 10**8
