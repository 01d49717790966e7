"""Laws of mechanisms: their masses, losses, chances and readings enclose the exact ones.

As in ``test_rounded_values.py``, they compare with ball arithmetic so closely that a line that is
turned, a million units the wrong way, makes one fail: `python -m tests.guards.sweep` finds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from scipy import stats
from tests.balls import ball, mass
from tests.guards.test_rounded_engine import Flat, just_above, just_below
from tests.guards.test_rounded_values import holds, within

import tightbudget as tb
from tightbudget.mechanisms import (
    clipped_sum,
    correlated_noise,
    dominating,
    group,
    histogram,
    interval_masses,
    mixture_of_gaussians,
    risk,
    staircase,
    truncated,
    wide_discrete_gaussian,
)
from tightbudget.mechanisms.either import EitherPair, either_within
from tightbudget.mechanisms.gaussian import GaussianPair
from tightbudget.mechanisms.weighted_transform import WeightedTransform
from tightbudget.mechanisms.wide_discrete_gaussian import WideDiscreteGaussianPair
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.enclosure import Enclosure, exact
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Bins, Pair, no_atoms
from tightbudget.theorems import renyi
from tightbudget.theorems.concentrated import Line


@pytest.fixture(autouse=True)
def _bits() -> Iterator[None]:
    before, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = before


def around(low: float, truth: Fraction, high: float) -> bool:
    return Fraction(low) <= truth <= Fraction(high)


# ------------------------------------------------------------------------------------ risk


def test_a_belief_after_a_loss() -> None:
    for prior in (0.1, 0.3, 0.7):
        odds = risk._against(prior)
        assert around(odds.lower, (1 - Fraction(prior)) / Fraction(prior), odds.upper)
        for epsilon in (0.1, 3.3, 30.1):
            found = risk._belief(odds, epsilon)
            low, high = (1 / (1 + arb(o) * (-arb(epsilon)).exp()) for o in (odds.upper, odds.lower))
            assert just_below(low, found.lower)
            assert just_above(high, found.upper)


def test_the_risk_of_a_guess() -> None:
    asked: list[float] = []

    def read(epsilon: float, _: float) -> Bounds:
        asked.append(epsilon)
        return Bounds(0.3, 0.7)

    losses: Any = SimpleNamespace(reader=lambda: read)
    for prior in (0.1, 0.3):
        asked.clear()
        odds = risk._against(prior)
        found = risk._bayes_risk(losses, prior, odds, 1.0)
        assert just_below(arb(prior) * (1 - arb(0.7)), found.lower)
        assert just_above(arb(prior) * (1 - arb(0.3)), found.upper)
        assert arb(asked[1]).exp() <= arb(odds.lower)
        assert arb(odds.upper) <= arb(asked[0]).exp()


def test_a_mass_above_epsilon_by_delta_below_it() -> None:
    for epsilon in (0.1, 1.7, 30.0):
        truth = arb(0.01) / (1 - (-arb(epsilon)).exp())
        if truth < 1:
            found = risk._exceeded(lambda *_: Bounds(0.0, 0.01), epsilon)
            assert just_above(truth, found)
    # where delta is known only near epsilon, the nearest place decides
    near = 0.95 * 3.3
    found = risk._exceeded(lambda e, _: Bounds(0.0, 1e-3 if e == near else 1.0), 3.3)
    assert just_above(arb(1e-3) / (1 - (arb(near) - arb(3.3)).exp()), found)


# --------------------------------------------------------------------- weighted transforms


@pytest.mark.parametrize(
    "logs", [(0.1, 0.7), (-0.3, 0.5), (-0.1, -0.4), (3.3, -0.7), (-40.1, 30.3)]
)
@pytest.mark.parametrize("rare", [False, True])
def test_a_weighted_transform_is_bounded_by_its_parts(logs: tuple[float, ...], rare: bool) -> None:
    weights = (0.25, 0.75)
    parts = tuple((w, Flat(log, 1e-5, log)) for w, log in zip(weights, logs, strict=True))
    both = WeightedTransform(parts, 0.0, rare)
    truth = sum((arb(w) * arb(x).exp() for w, x in zip(weights, logs, strict=True)), arb(0)).log()
    assert just_above(truth, both.upper(1.0))
    assert just_above(truth, both.beyond(1.0, 1.0, 0.0))
    assert arb(1e-5) <= arb(float(both.line(1.0, np.zeros(1), 1e-9).error[0]))


# ---------------------------------------------------------------------------------- either


class Known(Pair):
    """A pair of which a few numbers are known."""

    def __init__(self, number: float, bins: Bins | None = None) -> None:
        self.number, self.known = number, bins

    def log_moment(self, s: float) -> tuple[float, float]:
        return self.number, self.number

    def closed_delta(self, epsilon: float) -> tuple[float, float]:
        return self.number, self.number

    def bins(self, edges: np.ndarray, slack: np.ndarray) -> Bins | None:
        return self.known


def either_of(first: Pair, second: Pair) -> EitherPair:
    return EitherPair(first, second, share=(0.3, 0.3), rest=(0.7, 0.7))


def test_either_of_two_pairs_adds_up() -> None:
    for x, y in ((0.1, 0.2), (1e-9, 0.3), (0.7, 0.01)):
        pair = either_of(Known(x), Known(y))
        low, high = pair.log_moment(1.0)
        assert within(low, (arb(0.3) * arb(x).exp() + arb(0.7) * arb(y).exp()).log(), high)
        found = pair.closed_delta(1.0)
        assert found is not None
        truth = Fraction(0.3) * Fraction(x) + Fraction(0.7) * Fraction(y)
        assert around(found[0], truth, found[1])
        assert found[1] - found[0] <= 1e-12


def test_a_quotient_of_either_is_the_mean_of_both() -> None:
    wide = Enclosure(np.full(2, 0.0), np.full(2, 1.0))
    p, w = (0.1, 0.3), (1.1, 1.9)
    bins = [
        Bins(exact(np.full(2, a)), wide, exact(np.full(2, b))) for a, b in zip(p, w, strict=True)
    ]
    found = either_of(Known(0.0, bins[0]), Known(0.0, bins[1])).bins(np.zeros(1), np.zeros(1))
    assert found is not None
    a, b = Fraction(0.3) * Fraction(0.1), Fraction(0.7) * Fraction(0.3)
    truth = (a * Fraction(1.1) + b * Fraction(1.9)) / (a + b)
    assert around(float(found.w.lower[0]), truth, float(found.w.upper[0]))


def test_shares_of_either() -> None:
    both = tb.mechanisms.Either(0.3, tb.Gaussian(1.0), tb.Gaussian(2.0)).pair(Direction.REMOVE)
    assert isinstance(both, EitherPair)
    assert around(both.rest[0], 1 - Fraction(0.3), both.rest[1])
    transform = both.transform()
    assert isinstance(transform, WeightedTransform)
    off = Fraction(transform.off)
    for (weight, _), truth in zip(transform.parts, (Fraction(0.3), 1 - Fraction(0.3)), strict=True):
        assert Fraction(weight) * (1 - off) <= truth <= Fraction(weight) * (1 + off)
    for low, high in ((0.1, 0.3), (0.0, 0.7), (0.2, 0.9)):
        found = either_within(Bounds(low, high), tb.Gaussian(1.0), tb.Gaussian(2.0))
        assert isinstance(found, tb.mechanisms.Either)
        lost = (Fraction(high) - Fraction(low)) / (1 - Fraction(low))
        assert lost <= Fraction(found.probability)


# ---------------------------------------------------------------------------- masses, losses


def laplace_mass(low: float, high: float, mean: float, scale: float) -> arb:
    def below(x: arb) -> arb:
        return x.exp() / 2 if x < 0 else 1 - (-x).exp() / 2

    return below((arb(high) - arb(mean)) / arb(scale)) - below((arb(low) - arb(mean)) / arb(scale))


@pytest.mark.parametrize("mean", [0.0, 0.3, -7.7])
@pytest.mark.parametrize("scale", [0.7, 3.3, 1001.0])
def test_masses_of_intervals(mean: float, scale: float) -> None:
    low = np.array([-30.0, -9.0, -1.0, 0.0, 5.0, 40.0])
    high = np.array([-2.0, -8.0, 2.0, 1.0, 6.0, 90.0])
    ends = list(zip(low.tolist(), high.tolist(), strict=True))
    gaussians = [
        mass((arb(a) - arb(mean)) / arb(scale), (arb(b) - arb(mean)) / arb(scale)) for a, b in ends
    ]
    for found, truths in (
        (
            interval_masses.laplace_masses(low, high, mean, scale),
            [laplace_mass(a, b, mean, scale) for a, b in ends],
        ),
        (interval_masses.gaussian_masses(low, high, mean, scale), gaussians),
    ):
        masses = found.masses()
        assert holds(masses, truths)
        assert np.all(masses.upper <= masses.lower * (1 + 1e-10) + 1e-290)
        others = interval_masses.IntervalMasses(
            found.exponent[::-1], found.slack[::-1], found.factor[[*range(5, -1, -1)]]
        )
        quotients = [(x / y).log() for x, y in zip(truths, truths[::-1], strict=True)]
        assert holds(Enclosure(*found.losses_against(others)), quotients)


@pytest.mark.parametrize("m", [0.01, 0.7, 3.3])
def test_one_gaussian_step(m: float) -> None:
    pair = GaussianPair(m)
    edges = m * np.array([-2.0, -0.3, 0.1, 0.11, 1.7, 4.0])
    bins = pair.bins(edges, np.zeros(6))
    for k, (a, b) in enumerate(pairwise(edges.tolist()), 1):
        p, q = (
            mass(arb(a) / m_ + side * m_ / 2, arb(b) / m_ + side * m_ / 2)
            for m_ in (arb(m),)
            for side in (-1, 1)
        )
        assert within(float(bins.p.lower[k]), p, float(bins.p.upper[k]))
        assert within(float(bins.q.lower[k]), q * arb(b).exp(), float(bins.q.upper[k]))
        assert within(float(bins.w.lower[k]), q * arb(b).exp() / p, float(bins.w.upper[k]))
    for epsilon in (-3.0 * m, -m * m, -0.1 * m, 0.1 * m, m, 3.0 * m):
        p, q = (mass(arb(epsilon) / arb(m) + side * arb(m) / 2, None) for side in (-1, 1))
        found = pair.closed_delta(epsilon)
        assert found is not None
        assert within(found[0], p - arb(epsilon).exp() * q, found[1])
    for s in (0.3, 7.7):
        low, high = pair.log_moment(s)
        assert around(low, Fraction(m) ** 2 * Fraction(s) * (Fraction(s) + 1) / 2, high)


def test_noise_multipliers_and_groups() -> None:
    for z, s in ((1.1, 0.3), (0.7, 0.1), (3.3, 1.9)):
        noise = tb.Gaussian.of_noise_multiplier(z, s)
        assert Fraction(noise.sigma) <= Fraction(z) * Fraction(s)
        cut = tb.mechanisms.TruncatedLaplace(10.0, 100.0, sensitivity=s)
        moved = group.scaled(cut, 3)
        assert isinstance(moved, tb.mechanisms.TruncatedLaplace)
        assert 3 * Fraction(s) <= Fraction(moved.sensitivity)


def test_losses_of_a_table() -> None:
    masses = [0.1, 0.2, 0.3]
    table = tb.mechanisms.LossTable(step=0.1, remove=(3, masses, 0.4))
    found = table.pair(Direction.REMOVE).atoms()
    for i, (low, high) in enumerate(zip(found.loss_lower, found.loss_upper, strict=True), 3):
        assert around(float(low), i * Fraction(0.1), float(high))
    for i, (low, high) in enumerate(zip(found.q.lower, found.q.upper, strict=True)):
        total = sum(map(Fraction, masses), Fraction(0.4))
        q = ball(Fraction(masses[i]) / total) * (-ball((i + 3) * Fraction(0.1))).exp()
        assert within(float(low), q, float(high))


def test_a_number_within_units() -> None:
    for x in (0.1, 0.7):
        found = staircase._within(x, 1.0)
        assert around(float(found.lower[0]), Fraction(x), float(found.upper[0]))
        less = truncated._less_than_1(exact(1.0), x)
        assert within(float(less.lower[0]), 1 - (-arb(x)).exp(), float(less.upper[0]))
        power = truncated._exp(x)
        assert within(float(power.lower[0]), arb(x).exp(), float(power.upper[0]))


def test_responses_of_an_epsilon() -> None:
    for epsilon in (0.1, 1.0, 3.3):
        for k in (2, 7):
            found = tb.RandomizedResponse.of_epsilon(epsilon, k)
            assert arb(epsilon).exp() / (arb(epsilon).exp() + k - 1) <= arb(found.p)


def test_divergences_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Callable[[float], Bounds]] = []

    def of(divergence: Callable[[float], Bounds], orders: Any) -> Any:
        kept.append(divergence)
        raise NotImplementedError

    monkeypatch.setattr(renyi, "RenyiTable", SimpleNamespace(of=of))

    class Best:
        table = SimpleNamespace(orders=(2.0, math.inf))

        def __call__(self, order: float) -> Bounds:
            return Bounds(0.0, 0.3)

    best: Any = Best()
    with pytest.raises(NotImplementedError):
        dominating.above_divergences.__wrapped__(Line(0.1, 0.7), ((best, 3), (best, 7)), None)
    for order in (1.1, 7.7):
        truth = Fraction(0.1) + Fraction(0.7) * Fraction(order) + 10 * Fraction(0.3)
        assert truth <= Fraction(kept[0](order).upper)


def test_a_record_in_a_batch_that_is_full() -> None:
    n, k = 12, 3
    for q in (0.1, 0.3):
        noise = tb.mechanisms.TruncatedPoisson(tb.Gaussian(1.0), q, k, n)
        rate = Fraction(q)

        def above(of: int, least: int, rate: Fraction = rate) -> Fraction:
            chances = (
                math.comb(of, i) * rate**i * (1 - rate) ** (of - i) for i in range(least, of + 1)
            )
            return sum(chances, Fraction(0))

        full = above(n - 1, k)
        truth = above(n, k + 1) * Fraction(k, n) / full
        low, high = noise._in_when_full
        assert around(low, truth, high)
        assert high - low <= 1e-11
        least = noise.instance()
        assert isinstance(least, tb.mechanisms.Subsampled)
        assert Fraction(least.rate) <= (1 - full) * rate + full * truth


# ---------------------------------------------------------------------------- many numbers


def test_sums_of_products() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.uniform(0.1, 1.0, 7), rng.uniform(0.1, 1.0, 5)
    truths = [
        sum((Fraction(x[i]) * Fraction(y[n - i]) for i in range(7) if 0 <= n - i < 5), Fraction(0))
        for n in range(11)
    ]
    for found in (
        histogram._convolved(exact(x), exact(y)),
        clipped_sum._tilted(exact(x), exact(y), 0.0),
        clipped_sum._tilted(exact(x), exact(y), 0.7),
    ):
        assert holds(found, [ball(truth) for truth in truths])
        assert np.all(found.upper <= found.lower * (1 + 2e-10))
    powers = clipped_sum._powers(0.7, np.arange(5.0))
    assert holds(powers, [(arb(0.7) * n).exp() for n in range(5)])


def test_what_is_not_listed_of_a_sum() -> None:
    x, rest = np.array([0.1, 0.3]), 1e-7
    counts: Any = [SimpleNamespace(listed=lambda *_: (exact(x), rest))] * 2
    found, left = clipped_sum._sum(counts, (0, 0))
    assert 2 * Fraction(rest) <= Fraction(left)
    for n, truth in enumerate((Fraction(0.1) ** 2, 2 * Fraction(0.1) * Fraction(0.3))):
        assert truth + 2 * Fraction(rest) <= Fraction(float(found.upper[n]))


def norm(x: list[Fraction]) -> Fraction:
    return sum((y * y for y in x), Fraction(0))


def test_moves_of_correlated_noise() -> None:
    c = np.array([1.0, 0.7, 0.3, 0.1])
    exactly = list(map(Fraction, c.tolist()))
    for apart, times in ((2, 2), (1, 3), (4, 2)):
        column = [Fraction(0)] * 6
        for start in range(0, min(6, apart * times), apart):
            for i, x in enumerate(exactly[: 6 - start]):
                column[start + i] += x
        found = Fraction(correlated_noise._toeplitz_norm(c, 6, apart, times))
        assert norm(column) <= found**2 <= norm(column) * (1 + Fraction(1, 10**12))
    matrix = np.array([[1.0, 0.0, 0.0], [0.7, 1.1, 0.0], [0.3, 0.1, 0.9]])
    rows = [[Fraction(x) for x in column] for column in matrix.T.tolist()]
    one = max(map(norm, rows))
    assert one <= Fraction(correlated_noise._matrix_norm(matrix, 3, 1, 1)) ** 2
    all_three = norm([sum(row, Fraction(0)) for row in zip(*rows, strict=True)])
    assert all_three <= Fraction(correlated_noise._matrix_norm(matrix, 3, 1, 3)) ** 2
    eye = np.diag([0.1, 0.3, 0.7])
    sides = norm([Fraction(0.1), Fraction(0.3), Fraction(0.7)])
    assert sides <= Fraction(correlated_noise._matrix_norm(eye, 1, 1, 3)) ** 2
    longest, shared = correlated_noise._products(c, 6, 2)
    sums = [[Fraction(0)] * 6 for _ in range(2)]
    for t in range(6):
        for i, x in enumerate(exactly[: 6 - t]):
            sums[t % 2][t + i] += x
    assert max(map(norm, sums)) <= Fraction(longest)
    assert sum(a * b for a, b in zip(*sums, strict=True)) <= Fraction(shared)


def test_coefficients_of_buffers() -> None:
    d, w = (0.9, 0.3), (0.7, 0.1)
    found = tb.CorrelatedNoise.buffered(d, w, 9)._entries
    for t in range(1, 9):
        truth = sum(Fraction(a) ** (t - 1) * Fraction(b) for a, b in zip(d, w, strict=True))
        assert truth <= Fraction(float(found[t])) <= truth * (1 + Fraction(1, 10**12))


def test_parts_of_correlated_noise_add_up() -> None:
    noise = tb.CorrelatedNoise.buffered((0.9,), (0.7,), 9)
    longest, shared = correlated_noise._products(noise._entries, 9, 3)
    run = noise.allocated(1.0, 3)
    (both, _), (alone, _) = run.parts
    assert isinstance(both, tb.Gaussian)
    rest = alone.base  # type: ignore[attr-defined]
    assert Fraction(shared) <= Fraction(both.sensitivity) ** 2
    assert Fraction(longest) - Fraction(shared) <= Fraction(rest.sensitivity) ** 2


def test_cuts_of_wide_integer_noise() -> None:
    """The loss at a cut, and so right of it, is at most its edge."""
    sigma, shift = 1e9, 7
    pair = WideDiscreteGaussianPair(sigma, shift)
    edges = np.linspace(-2e-7, 2e-7, 41)
    for edge, cut in zip(edges.tolist(), pair._cuts(edges, np.zeros(41)).tolist(), strict=True):
        loss = shift * (shift - 2 * Fraction(cut)) / (2 * Fraction(sigma) ** 2)
        assert loss <= Fraction(edge)


def test_chances_within_a_group_that_is_sampled() -> None:
    """Each size has at most its chance among itself and all larger ones."""
    rate, size = Fraction(1, 3), 4
    found: Any = group._SampledGroup(tb.Laplace(1.0), rate, size).pair(Direction.REMOVE)
    chances = [math.comb(size, i) * rate**i * (1 - rate) ** (size - i) for i in range(size + 1)]
    mixed = found.base
    for i in range(1, size):
        assert isinstance(mixed, EitherPair)
        assert Fraction(mixed.share[1]) <= chances[i] / sum(chances[i:], Fraction(0))
        mixed = mixed.second


def test_noise_that_may_reach_every_bin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histogram, "_gaussian", lambda _: (exact(np.ones(1)), 1e-20))
    monkeypatch.setattr(histogram, "_convolved", lambda *_: exact(np.array([0.1, 0.3])))
    pair = tb.HistogramPair([0.1, 0.3], [0.2, 0.2], noise=("gaussian", 1.0))
    found, whole, beyond = pair._weights(pair.p)
    far = Fraction(float(whole.upper[0])) * Fraction(beyond)
    for x, high in zip((0.1, 0.3), found.upper.tolist(), strict=True):
        assert Fraction(x) + far <= Fraction(high)


# ------------------------------------------------------------- noise with any density, mixtures


def test_a_bin_of_one_loss_has_one_quotient() -> None:
    """Left of 0 all losses of Laplace noise are m, and so far below the edge of their bin."""
    pair: Any = tb.mechanisms.Additive("laplace", accuracy=1e-13).pair(Direction.REMOVE)
    for end in (21.0, 31.7):
        edges = np.array([1.0 - 1e-11, end])
        bins = pair.bins(edges, np.zeros(2))
        assert (arb(end) - 1).exp() * (1 - arb(1e-12)) <= arb(float(bins.w.upper[1]))


def test_a_largest_loss_within_a_support() -> None:
    """Losses of a normal density between two ends fall: the largest one is at the left end."""
    for end, sensitivity in ((3.3, 1.1), (7.7, 0.3)):
        noise = stats.truncnorm(-end, end)
        pair = tb.mechanisms.Additive(noise, sensitivity=sensitivity).pair(Direction.REMOVE)
        low, high = pair.max_loss()
        s, x = Fraction(sensitivity), -Fraction(end) + Fraction(sensitivity)
        truth = (-(x**2) + (x - s) ** 2) / 2
        assert truth * (1 - Fraction(1, 10**6)) <= Fraction(low) <= truth
        assert high == math.inf


def mixture(shares: tuple[float, ...]) -> mixture_of_gaussians.Mixture:
    return mixture_of_gaussians.Mixture(np.array([0.0, 0.7, 3.3]), np.array(shares))


def ratio_of(mixed: mixture_of_gaussians.Mixture, z: float) -> arb:
    """The density of a mixture over that of N(0, 1)."""
    weights = [ball(Fraction(w)) for w in mixed.weights.tolist()]
    parts = [
        w * (arb(m) * arb(z) - arb(m) ** 2 / 2).exp()
        for m, w in zip(mixed.shifts.tolist(), weights, strict=True)
    ]
    return sum(parts, arb(0)) / sum(weights, arb(0))


MIXTURES = [mixture((0.5, 0.3, 0.2)), mixture((0.999, 9e-4, 1e-4)), mixture((1e-9, 0.7, 0.3))]


@pytest.mark.parametrize("mixed", MIXTURES)
def test_the_ratio_of_a_mixture(mixed: mixture_of_gaussians.Mixture) -> None:
    alone = mixture_of_gaussians.Mixture(np.zeros(1), np.ones(1))
    z = np.array([-30.1, -3.3, -0.1, 0.0, 0.1, 0.3, 1.9, 7.7, 33.3])
    found, off = mixed.log_ratio(z)
    low, high = mixture_of_gaussians.MixturePair(mixed, mixed)._loss(z)
    for i, x in enumerate(z.tolist()):
        truth = ratio_of(mixed, x).log()
        assert abs(truth - arb(float(found[i]))) <= arb(float(off[i]))
        loss = truth - ratio_of(mixed, -x).log()
        assert within(float(low[i]), loss, float(high[i]))
        assert float(high[i]) - float(low[i]) <= 1e-11
    # where one part is all of it, its ratio has no error, and only its rounding is paid for
    assert float(alone.log_ratio(z)[1].max()) <= 1e-13
    # a share that is far from 1 has a logarithm, and so a rounding, of its own
    rare = mixture_of_gaussians.Mixture(np.array([0.0, 1e-9]), np.array([1e-100, 1.0]))
    found, off = rare.log_ratio(np.array([1e9]))
    assert abs(ratio_of(rare, 1e9).log() - arb(float(found[0]))) <= arb(float(off[0]))


@pytest.mark.parametrize("mixed", MIXTURES)
def test_masses_of_a_mixture(mixed: mixture_of_gaussians.Mixture) -> None:
    cuts = np.array([-30.1, -3.3, -0.1, 0.3, 1.9, 7.7, 33.3])
    found, total = mixed.masses(cuts), sum(map(Fraction, mixed.weights.tolist()), Fraction(0))
    shifts = list(zip(mixed.shifts.tolist(), map(Fraction, mixed.weights.tolist()), strict=True))
    for i, (a, b) in enumerate(pairwise([None, *map(arb, cuts.tolist()), None])):
        truth = sum(
            (ball(w / total) * mass(a and a - arb(m), b and b - arb(m)) for m, w in shifts),
            arb(0),
        )
        assert within(float(found.lower[i]), truth, max(float(found.upper[i]), 1e-300))


def test_a_mixture_under_q_has_a_largest_loss_that_many_outputs_have() -> None:
    mixed = mixture_of_gaussians.Mixture(np.array([0.0, 40.0]), np.array([0.3, 0.7]))
    alone = mixture_of_gaussians.Mixture(np.zeros(1), np.ones(1))
    top = -ball(Fraction(0.3) / (Fraction(0.3) + Fraction(0.7))).log()
    edges = np.array([float(top) - 1e-11, float(top) + 21.0])
    bins = mixture_of_gaussians.MixturePair(alone, mixed).bins(edges, np.zeros(2))
    truth = (arb(float(edges[1])) - top).exp()
    assert truth * (1 - arb(1e-12)) <= arb(float(bins.w.upper[1])) <= truth * (1 + arb(1e-9))


# ------------------------------------------------------------------- truncated and integer noise


def test_a_largest_loss_that_is_rounded_ends_no_bin_too_early() -> None:
    base, top = GaussianPair(1.0), 3.3 * (1 - 8 * 2.0**-53)
    pair = truncated.TruncatedPair(base, top, exact(np.ones(1)), no_atoms(), exact(np.zeros(1)))
    edge = 3.3 * (1 - 100 * 2.0**-53)
    for edges in (np.array([edge]), np.array([edge, 23.3])):
        bins = pair.bins(edges, np.zeros(edges.size))
        assert bins is not None
        p = mass(arb(edge) - arb(0.5), arb(3.3) - arb(0.5))
        assert p <= arb(float(bins.p.upper[1]))
        if edges.size == 2:
            q = mass(arb(edge) + arb(0.5), arb(3.3) + arb(0.5)) * arb(23.3).exp()
            assert q <= arb(float(bins.q.upper[1]))


def test_q_masses_beyond_the_largest_loss_refer_to_their_edge() -> None:
    pair = truncated.TruncatedPair(
        GaussianPair(1.0), 3.3, exact(np.ones(1)), no_atoms(), exact(np.zeros(1))
    )
    bins = pair.bins(np.array([1.1, 23.3]), np.zeros(2))
    assert bins is not None
    truth = mass(arb(1.6), arb(3.8)) * arb(23.3).exp()
    assert within(float(bins.q.lower[1]), truth, float(bins.q.upper[1]))


def test_a_bin_of_one_integer_has_its_quotient() -> None:
    """An edge that is the loss of an integer leaves the integer to the bin above it."""
    for sigma, shift, n, above in ((2e4, 2 * 10**7, 0, 0.01), (2e4, 8 * 10**9, 4 * 10**9, 15.0)):
        pair = WideDiscreteGaussianPair(sigma, shift)
        loss = ball(Fraction(shift * (shift - 2 * n)) / (2 * Fraction(sigma) ** 2))
        edges = np.array([float(loss), float(loss) + above])
        bins = pair.bins(edges, np.zeros(2))
        truth = (arb(float(edges[1])) - loss).exp()
        assert just_above(truth, float(bins.w.upper[1]), 1e-6)


def test_masses_of_ranges_of_integers() -> None:
    sigma = 2e4
    total = arb(sigma) * (2 * arb.pi()).sqrt()
    for start in (0, 100, -70_000, 300_000):
        first, last = np.array([float(start)]), np.array([start + 3.0])
        found = wide_discrete_gaussian.range_masses(first, last, sigma).masses()
        terms = [(-((arb(start + i) / arb(sigma)) ** 2) / 2).exp() for i in range(4)]
        assert holds(found, [sum(terms, arb(0)) / total])
