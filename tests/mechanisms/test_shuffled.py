"""Shuffled batches: each of the two ends against an oracle that shares nothing with the code."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from flint import arb, ctx
from scipy import stats
from tests.balls import ball, contains, mass

import tightbudget as tb
from tightbudget.mechanisms.shuffled import LargestSum, cell_masses
from tightbudget.mechanisms.shuffled_above import above_shuffled
from tightbudget.mechanisms.shuffled_below import SumOfExponentials, _labelled
from tightbudget.output_dp.pricing import PlanRule, RenyiRule

DIRECTIONS = tuple(tb.mechanisms.Direction)


# ------------------------------------------------------------------------- the two data sets


@pytest.mark.parametrize(("records", "steps"), [(6, 3), (6, 2), (4, 4), (5, 1)])
def test_the_two_data_sets_move_one_random_batch_by_two_and_by_one(
    records: int, steps: int
) -> None:
    size = records // steps
    for first, moved in ((1, 2), (0, 1)):  # the record is there, or zeroed
        data = [first] + [-1] * (records - 1)
        sums: Counter[tuple[int, ...]] = Counter()
        for order in itertools.permutations(range(records)):
            batches = [order[i * size : (i + 1) * size] for i in range(steps)]
            sums[tuple(sum(data[i] for i in batch) + size for batch in batches)] += 1
        wanted = {tuple(moved * (i == place) for i in range(steps)) for place in range(steps)}
        assert set(sums) == wanted
        assert len(set(sums.values())) == 1


# ------------------------------------------------------------------------ the cells' masses


def below(cut: Fraction, mean: Fraction, steps: int) -> arb:
    """The chance that the largest variable is at most ``cut``."""
    return mass(None, ball(cut - mean)) * mass(None, ball(cut)) ** (steps - 1)


@pytest.mark.parametrize("steps", [2, 100, 10**6, 10**9])
@pytest.mark.parametrize("mean", [0.05, 1.0, 7.0])
def test_cells_have_the_masses_of_the_largest_variable(steps: int, mean: float) -> None:
    rng = np.random.default_rng(steps)
    ctx.prec = 2500
    around = math.sqrt(2 * math.log(steps)) if steps > 2 else 0.0
    cuts = np.unique(np.concatenate([
        rng.uniform(-6.0, 9.0, 12), rng.normal(around, 0.3, 12), rng.normal(mean + around, 1.0, 12),
        around + np.arange(12) * 1e-3,
    ]))  # fmt: skip
    found = cell_masses(cuts, steps)(mean)
    exact = [below(Fraction(c), Fraction(mean), steps) for c in cuts.tolist()]
    truths = [b - a for a, b in itertools.pairwise([arb(0), *exact, arb(1)])]
    for i, truth in enumerate(truths):
        assert contains(found, i, truth)
        if truth > 1e-290:
            assert found.upper[i] - found.lower[i] <= 1e-9 * found.upper[i]


@pytest.mark.parametrize("steps", [2, 1000, 10**6])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 20.0])
def test_the_cells_are_everything(sigma: float, steps: int) -> None:
    pair = LargestSum(1 / sigma, steps).pair(tb.mechanisms.Direction.REMOVE)
    atoms = pair.atoms()
    for side in (atoms.p, atoms.q):
        assert 1 - 1e-12 <= float(np.sum(side.lower)) <= 1 <= float(np.sum(side.upper)) + 1e-15
        assert float(np.sum(side.upper)) <= 1 + 1e-12
    assert pair.p_only().upper[0] <= 1e-200
    assert len(atoms) < 2**14  # so that one run is enumerated


# ------------------------------------------------------------------------------- the lower end


def delta_of_largest(
    epsilon: float, m: float, steps: int, direction: tb.mechanisms.Direction
) -> mpmath.mpf:
    """delta(eps) of the largest variable itself: P - e^eps Q of where the densities say so."""
    k = steps - 1
    means = (2 * mpmath.mpf(m), mpmath.mpf(m))
    p_mean, q_mean = means if direction is tb.mechanisms.Direction.REMOVE else means[::-1]

    def density(x: mpmath.mpf, mean: mpmath.mpf) -> mpmath.mpf:
        others = k * mpmath.ncdf(x - mean) * mpmath.npdf(x)
        return mpmath.ncdf(x) ** (k - 1) * (mpmath.npdf(x - mean) * mpmath.ncdf(x) + others)

    def gain(x: mpmath.mpf) -> mpmath.mpf:
        return density(x, p_mean) - mpmath.exp(epsilon) * density(x, q_mean)

    def below(x: mpmath.mpf, mean: mpmath.mpf) -> mpmath.mpf:
        return mpmath.ncdf(x - mean) * mpmath.ncdf(x) ** k

    with mpmath.workdps(40):
        points = [mpmath.mpf(i) / 16 for i in range(-80, int(16 * (2 * m + 12)))]
        gains = [gain(x) for x in points]
        turns = [
            mpmath.findroot(gain, (a, b), solver="illinois")
            for (a, left), (b, right) in itertools.pairwise(zip(points, gains, strict=True))
            if left * right < 0
        ]
        ends = [points[0], *turns, points[-1]]
        return mpmath.fsum(
            max(
                mpmath.mpf(0),
                below(b, p_mean)
                - below(a, p_mean)
                - mpmath.exp(epsilon) * (below(b, q_mean) - below(a, q_mean)),
            )
            for a, b in itertools.pairwise(ends)
        )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("sigma", "steps", "epsilon"), [(1.0, 100, 1.0), (2.0, 10, 0.2)])
def test_the_lower_end_is_delta_of_the_largest_sum(
    sigma: float, steps: int, epsilon: float, direction: tb.mechanisms.Direction
) -> None:
    truth = float(delta_of_largest(epsilon, 1 / sigma, steps, direction))
    alone = LargestSum(1 / sigma, steps).engine.apart()[DIRECTIONS.index(direction)]
    found = alone.reader()(epsilon, 1e-6)
    # cells merge losses, so that they show less, by little
    assert truth * (1 - 1e-3) <= found.lower <= truth * (1 + 1e-9)


def delta_of_two(epsilon: float, m: float, direction: tb.mechanisms.Direction) -> float:
    """delta(eps) of two shuffled batches themselves, for the two data sets.

    With u = (x + y) / sqrt(2) and v = (x - y) / sqrt(2) the densities, relative to noise around 0,
    are exp(-2 m^2 + sqrt(2) m u) cosh(sqrt(2) m v) with the record and exp(-m^2/2 + m u / sqrt(2))
    cosh(m v / sqrt(2)) without. Given v, the loss rises in u.
    """
    root, m = mpmath.sqrt(2), mpmath.mpf(m)
    sign = 1 if direction is tb.mechanisms.Direction.REMOVE else -1

    def given(v: mpmath.mpf) -> mpmath.mpf:
        ratio = mpmath.cosh(root * m * v) / mpmath.cosh(m * v / root)
        u = (sign * epsilon + 1.5 * m * m - mpmath.log(ratio)) * root / m
        there = mpmath.exp(-m * m) * mpmath.cosh(root * m * v) * mpmath.ncdf(sign * (root * m - u))
        zeroed = (
            mpmath.exp(-m * m / 4) * mpmath.cosh(m * v / root) * mpmath.ncdf(sign * (m / root - u))
        )
        p, q = (there, zeroed) if sign > 0 else (zeroed, there)
        return mpmath.npdf(v) * (p - mpmath.exp(epsilon) * q)

    return float(mpmath.quad(given, mpmath.linspace(-14, 14, 15)))


@pytest.mark.one_in(6)
@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.5])
def test_two_batches_are_between_the_two_ends(sigma: float, epsilon: float) -> None:
    truth = max(delta_of_two(epsilon, 1 / sigma, direction) for direction in DIRECTIONS)
    found = tb.Gaussian(sigma).shuffled(2).delta(epsilon)
    assert found.lower <= truth * (1 + 1e-9)
    assert truth <= found.upper
    assert found.lower >= 0.5 * truth or truth < 1e-3  # and the largest sum shows much of it


@pytest.mark.parametrize("sigma", [1.2, 3.0, 20.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.02, 0.3])
def test_two_batches_show_at_least_a_sum_of_exponentials(sigma: float, epsilon: float) -> None:
    for direction in DIRECTIONS:
        truth = delta_of_two(epsilon, 1 / sigma, direction)
        alone = SumOfExponentials(1 / sigma, 2).engine.apart()[DIRECTIONS.index(direction)]
        found = alone.reader()(epsilon, 1e-4).lower
        assert found <= truth * (1 + 1e-9)
        # and most of what they show at all
        assert found >= 0.9 * truth or truth < 1e-6


@pytest.mark.parametrize("drop_first", [False, True])
def test_labels_have_the_masses_of_their_cells_within_the_error(drop_first: bool) -> None:
    cuts, means = np.array([-3.0, -0.5, 0.1, 0.11, 2.5, 9.0]), (0.0, 0.75, 1.5)
    rows, error = _labelled(cuts, means, drop_first=drop_first)
    assert rows.shape == (3, 6 if drop_first else 7)
    assert np.all(rows[:, 0] == 0.0)
    assert error < 1e-9
    ctx.prec = 200
    first = 1 if drop_first else 0
    for row, mean in zip(rows, means, strict=True):
        for place, i in zip(range(1, rows.shape[1]), range(first, 6), strict=True):
            begin = Fraction(cuts[i - 1]) - Fraction(mean) if i else None
            truth = mass(None if begin is None else ball(begin), ball(Fraction(cuts[i] - mean)))
            assert abs(truth - arb(float(row[place]))) <= arb(error) * arb(float(row[place]))


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "steps"), [(1.3, 30), (2.0, 200), (5.0, 1000)])
def test_a_sum_of_exponentials_shows_no_more_than_drawn_outputs(sigma: float, steps: int) -> None:
    """Against the densities' ratio of drawn outputs, which shows all that there is."""
    rng = np.random.default_rng(steps)
    m, number = 1 / sigma, 4 * 10**6 // steps
    outputs = rng.normal(size=(number, steps))
    outputs[:, 0] += 2 * m
    over = np.exp(2 * m * outputs - 2 * m * m).mean(axis=1)
    under = np.exp(m * outputs - m * m / 2).mean(axis=1)
    scale = float(np.std(np.log(over / under)))
    sums = SumOfExponentials(m, steps).engine.apart()[0].reader()
    for epsilon in (0.0, 0.5 * scale, scale):
        gains = np.maximum(1.0 - math.exp(epsilon) * under / over, 0.0)
        truth, off = float(gains.mean()), 5 * float(gains.std()) / math.sqrt(number)
        found = sums(epsilon, 1e-3).lower
        assert found <= truth + off
        assert found >= 0.9 * truth - off


# ----------------------------------------------------------------------------- known numbers


@pytest.mark.parametrize(
    ("sigma", "steps", "lower", "upper"),
    [
        # delta = 1e-5; the lower ends by one threshold on the largest coordinate, in 50 digits
        (0.4, 10_000, 13.20669, 13.20671),
        (0.5, 1_000, 9.99663, 9.99726),
        (0.7, 1_000, 6.5286, 6.6531),
        (1.0, 1_000, 2.8821, 3.6807),
        (2.0, 100, 0.4837, 0.9408),
    ],
)
def test_both_ends_of_an_epoch(sigma: float, steps: int, lower: float, upper: float) -> None:
    found = tb.Gaussian(sigma).shuffled(steps).epsilon(1e-5)
    assert found.lower == pytest.approx(lower, abs=1e-4)
    assert found.upper == pytest.approx(upper, abs=1e-4)


@pytest.mark.parametrize("epochs", [1, 10])
@pytest.mark.parametrize(("sigma", "steps"), [(0.5, 1000), (3.0, 1000), (20.0, 30)])
def test_each_end_is_that_of_its_pair(sigma: float, steps: int, epochs: int) -> None:
    epoch = tb.Gaussian(sigma).shuffled(steps)
    found = (epoch * epochs).epsilon(1e-6)
    above = above_shuffled(tb.Gaussian(sigma), steps) or tb.Gaussian(sigma)
    assert found.upper == (above * epochs).epsilon(1e-6).upper
    attained = epoch.instance_of_runs(epochs)
    assert attained is not None
    assert found.lower == (attained * 1).epsilon(1e-6).lower
    assert found.lower <= found.upper


@pytest.mark.one_in(3)
@pytest.mark.parametrize("delta", [1e-5, 1e-9])
@pytest.mark.parametrize(
    ("sigma", "steps", "epochs", "largest"),
    [(3.3, 2823, 42, 0.031), (5.0, 100, 100, 0.352), (2.0, 9, 3, None), (1.0, 100, 4, None)],
)
def test_the_sum_of_all_batches_tells_no_more_than_the_batches(
    sigma: float, steps: int, epochs: int, largest: float | None, delta: float
) -> None:
    """Where the other records are 0, the batches are random allocation, whose price is exact."""
    epoch: Any = tb.Gaussian(sigma).shuffled(steps)
    whole = epoch._all_batches() * epochs
    of_the_sum = whole.epsilon(delta).lower
    assert of_the_sum <= (tb.Gaussian(sigma).allocated(steps) * epochs).epsilon(delta).lower
    found = (tb.Gaussian(sigma).shuffled(steps) * epochs).epsilon(delta)
    if largest is None:  # the largest sum tells more
        assert of_the_sum < found.lower
    else:
        assert found.lower >= of_the_sum * (1 - 1e-9)
        assert delta < 1e-5 or found.lower > 2 * largest


@pytest.mark.parametrize("steps", [2, 3, 10, 100, 2823, 10**9])
@pytest.mark.parametrize("sigma", [0.1, 1 / 3, 1.0, 7.7, 1e5 / 3])
def test_the_noise_of_all_batches_is_rounded_up(sigma: float, steps: int) -> None:
    epoch: Any = tb.Gaussian(sigma).shuffled(steps)
    square, exact = Fraction(epoch._all_batches().sigma) ** 2, Fraction(sigma) ** 2 * steps
    assert exact <= square <= exact * (1 + Fraction(1, 2**49))


@pytest.mark.parametrize("sigma", [0.02, 1e-3])
def test_little_noise_has_a_lower_end_of_hundreds(sigma: float) -> None:
    found = (tb.Gaussian(sigma).shuffled(1000) * 2).epsilon(1e-6)
    # masses below 1e-300 are raised to it: a loss is at least 690 less the ln of the cell's mass
    assert found.lower >= 2 * 650.0
    assert found.lower < found.upper


def test_hardly_any_noise_has_true_ends() -> None:
    found = tb.Gaussian(1e-11).shuffled(5).epsilon(1e-6)
    assert 0.0 <= found.lower <= found.upper < math.inf


def test_an_epoch_of_one_batch_is_the_base() -> None:
    epoch = tb.Gaussian(1.3).shuffled(1)
    assert epoch.instance() is None
    assert epoch.epsilon(1e-6) == tb.Gaussian(1.3).epsilon(1e-6)


def test_more_batches_show_less_of_the_record() -> None:
    lowers = [tb.Gaussian(0.8).shuffled(t).epsilon(1e-5).lower for t in (2, 10, 100, 10**4, 10**6)]
    assert lowers == sorted(lowers, reverse=True)


def test_only_the_clip_over_sigma_counts() -> None:
    one, scaled = (tb.Gaussian(s, sensitivity=c).shuffled(50) for s, c in ((1.0, 1.0), (4.0, 4.0)))
    assert one.epsilon(1e-5) == scaled.epsilon(1e-5)


# ------------------------------------------------------------------------ whatever asks it

EPOCH = tb.Gaussian(2.0).shuffled(100)
STEP = tb.Gaussian(2.0).batches(6, of=600)
TWO_ENDS = pytest.mark.parametrize("run", [EPOCH * 3, STEP * 20], ids=["shuffled", "batches"])


@TWO_ENDS
def test_one_stop_early_is_delta(run: tb.Composition) -> None:
    stopped, asked = tb.stopping_delta(run, [1], [0.5]), run.delta(0.5)
    assert stopped.lower == pytest.approx(asked.lower, rel=2e-3)
    assert stopped.upper == pytest.approx(asked.upper, rel=2e-3)


@TWO_ENDS
def test_a_schedule_has_both_ends_of_its_delta(run: tb.Composition) -> None:
    schedule = tb.early_stopping(run, [1, 2], delta=1e-5)
    assert 0.98e-5 <= schedule.delta.upper <= 1e-5
    again = tb.stopping_delta(run, [1, 2], schedule.epsilons)
    assert schedule.delta.lower == pytest.approx(again.lower, rel=3e-3)
    assert schedule.delta.lower < 0.9 * schedule.delta.upper
    # each price is at least that of the upper bound alone
    assert schedule.epsilons[-1] >= (run * 2).epsilon(1e-5).upper * (1 - 1e-3)


@pytest.mark.slow
@TWO_ENDS
def test_a_gap_out_of_reach_of_stops_is_refused_with_true_bounds(run: tb.Composition) -> None:
    with pytest.raises(tb.PrecisionError, match="relative gap 1e-12 was not reached") as caught:
        tb.stopping_delta(run, [1], [0.5], rtol=1e-12)
    asked = run.delta(0.5)
    assert caught.value.lower <= asked.lower * (1 + 1e-3)
    assert caught.value.upper >= asked.upper * (1 - 1e-3)


@TWO_ENDS
def test_buckets_of_a_published_algorithm_have_both_ends(run: tb.Composition) -> None:
    rough, fine = tb.privacy_buckets.delta(run, 0.5, n=2000), run.delta(0.5)
    assert rough.lower <= fine.lower * (1 + 1e-9)
    assert fine.upper <= rough.upper * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [lambda x: tb.Gaussian(x).shuffled(100) * 3, lambda x: tb.Gaussian(x).batches(6, 600) * 20],
)
def test_noise_is_calibrated_by_the_upper_end(make: Callable[[float], tb.Composition]) -> None:
    found = tb.calibrate(make, epsilon=1.0, delta=1e-5)
    assert found.met.upper <= 1e-5
    assert found.met.lower < 0.99e-5
    assert make(found.value * (1 - 2e-5)).delta(1.0).upper > 1e-5
    assert found.epsilon.lower < found.epsilon.upper <= 1.0


@pytest.mark.slow
def test_noise_for_a_shuffle_is_a_third_of_that_of_one_release_an_epoch() -> None:
    shuffled = tb.calibrate(lambda x: tb.Gaussian(x).shuffled(100) * 3, epsilon=1.0, delta=1e-5)
    released = tb.calibrate(lambda x: tb.Gaussian(x) * 3, epsilon=1.0, delta=1e-5)
    assert 0.3 * released.value < shuffled.value < 0.35 * released.value


@TWO_ENDS
def test_budgets_charge_the_upper_end(run: tb.Composition) -> None:
    plan = PlanRule(plan=run, delta=1e-5)
    assert plan.cap.counted == Fraction(run.epsilon(1e-5).upper)
    price = run.renyi(4.0)
    assert 0.0 < price.lower < price.upper < math.inf
    rule = RenyiRule(order=4.0, epsilon=100.0)
    assert rule.cost(price, None).counted == Fraction(price.upper)


def delta_of_two_alone(epsilon: float, sigma: float, rate: float) -> float:
    """Delta of two batches of a sample whose other records are 0, by sums over a fine lattice."""
    x, h = np.linspace(-8.0 * sigma, 1.0 + 8.0 * sigma, 1001, retstep=True)
    zero, one = stats.norm.pdf(x, 0.0, sigma), stats.norm.pdf(x, 1.0, sigma)
    absent = np.outer(zero, zero)
    there = (np.outer(one, zero) + np.outer(zero, one)) / 2
    present = (1 - rate) * absent + rate * there
    t = math.exp(epsilon)
    gains = np.maximum(present - t * absent, 0.0), np.maximum(absent - t * present, 0.0)
    return max(float(gain.sum()) * h * h for gain in gains)


@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.3), (0.5, 0.3), (2.0, 0.9)])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
def test_a_sample_of_a_shuffle_attains_that_of_a_record_alone(
    sigma: float, rate: float, epsilon: float
) -> None:
    truth = delta_of_two_alone(epsilon, sigma, rate)
    found = tb.Gaussian(sigma).shuffled(2).subsampled(rate).delta(epsilon)
    assert 0.999 * truth <= found.lower <= truth * (1 + 1e-4)
    assert truth <= found.upper
    assert found.upper <= tb.Gaussian(sigma).subsampled(rate).delta(epsilon).upper * (1 + 5e-3)


def test_a_sample_of_more_batches_than_allocation_takes_has_bounds() -> None:
    run = tb.Gaussian(1.8).shuffled(150_840_477).subsampled(0.1) * 11
    found = run.epsilon(1e-7)
    assert 0.0 == found.lower < found.upper < 1e-4
    assert run.delta(0.0).upper < 1e-5


@pytest.mark.slow
def test_a_sum_that_rounding_leaves_wide_is_not_taken() -> None:
    assert SumOfExponentials(1 / 2.0, 1000).is_close(500)
    assert not SumOfExponentials(1 / 1.54, 61_911).is_close(1719)
    found = (tb.Gaussian(1.54).shuffled(61_911) * 1719).epsilon(0.00034)
    assert 0.0 < found.lower < found.upper


def test_a_sample_of_all_or_none_is_what_it_is() -> None:
    assert EPOCH.subsampled(1.0).delta(0.5) == EPOCH.delta(0.5)
    assert EPOCH.subsampled(0.0).delta(0.5) == tb.Bounds(0.0, 0.0)
    assert (EPOCH.subsampled(0.1) * 4).epsilon(1e-5).lower > 0.0


# ----------------------------------------------------------------------------- words


def test_an_epoch_is_declared_for_a_zeroed_record() -> None:
    assert tb.Gaussian(1.0).shuffled(7).relation is tb.Neighbouring.ZERO_OUT
    declared = tb.Gaussian(1.0, relation=tb.Neighbouring.ZERO_OUT).shuffled(7)
    assert repr(declared) == (
        "Gaussian(sigma=1.0, relation=Neighbouring.ZERO_OUT).shuffled(steps=7)"
    )
    assert tb.Composition.from_dict((declared * 2).to_dict()) == declared * 2
    assert (tb.Gaussian(1.0).shuffled(7) * 2).to_dict()["steps"] == [
        {"mechanism": "gaussian", "sigma": 1.0, "shuffled": 7, "times": 2}
    ]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: tb.Laplace(1.0).shuffled(7), tb.ParameterError, "base must be a Gaussian, got"),
        (lambda: tb.Gaussian(1.0).shuffled(0), tb.ParameterError,
         "steps must be an integer >= 1, got 0"),
        (lambda: tb.Gaussian(1.0).shuffled(1.0), tb.ParameterError,  # type: ignore[arg-type]
         "steps must be an integer >= 1, got 1.0"),
        (lambda: tb.Gaussian(1.0).shuffled(10**9 + 1), tb.ParameterError,
         "steps must be at most 1000000000, got 1000000001"),
        (lambda: tb.Gaussian(1.0).shuffled(5, 5), tb.ParameterError,
         "smaller must be below steps (5), got 5"),
        (lambda: tb.Gaussian(1.0).shuffled(5, smaller=True), tb.ParameterError,
         "smaller must be an integer >= 0, got True"),
        (lambda: tb.Gaussian(1.0, relation=tb.Neighbouring.ADD_OR_REMOVE).shuffled(7),
         tb.errors.RelationError, "shuffled batches hold for Neighbouring.ZERO_OUT"),
        (lambda: tb.Gaussian(1.0).shuffled(7).under("replace-one"), tb.errors.RelationError,
         "cannot be declared for Neighbouring.REPLACE_ONE"),
        (lambda: tb.Shuffled(tb.Gaussian(1.0), 7, relation=tb.Neighbouring.REPLACE_ONE),
         tb.errors.RelationError, "but Neighbouring.REPLACE_ONE was declared"),
    ],
)  # fmt: skip
def test_refusals(make: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        make()  # type: ignore[operator]
