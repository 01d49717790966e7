"""Truncated batches whose others are one vector: no more than two data sets show, and as much."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import tightbudget as tb
from tightbudget.mechanisms.truncated_below import (
    _REACH,
    _SIDE,
    OthersTurned,
    _chances,
    _masses,
    _merged,
    _rectangles,
    _sizes,
)
from tightbudget.numerics.enclosure import Enclosure, exact

Array = NDArray[np.float64]
SMALL = [(0.5, 2, 4), (0.25, 1, 6), (0.875, 3, 5), (0.4, 2, 7)]


def turned(sigma: float, rate: float, at_most: int, of: int) -> OthersTurned:
    """Others at 120 degrees to the record."""
    across, along = _sizes(tb.Gaussian(sigma), math.sqrt(0.75))
    return OthersTurned(across, along, rate, at_most, of)


def sums_of_all_samples(
    rate: float, at_most: int, others: int, there: bool
) -> dict[tuple[int, int], float]:
    """The chance of each (other records, copies of the record) of a batch, over all samples."""
    found: dict[tuple[int, int], float] = {}
    for sample in itertools.product((0, 1), repeat=others + 1):
        chance = math.prod(rate if here else 1.0 - rate for here in sample)
        chosen = [i for i, here in enumerate(sample) if here and (there or i > 0)]
        cuts = list(itertools.combinations(chosen, min(at_most, len(chosen))))
        for batch in cuts:
            place = sum(i > 0 for i in batch), int(0 in batch)
            found[place] = found.get(place, 0.0) + chance / len(cuts)
    return found


def deltas_of(mechanism: OthersTurned, epsilons: list[float]) -> list[float]:
    """Delta of one run, larger direction, by sums over a lattice of the plane."""
    a, b = mechanism.across, mechanism.along
    record, other = np.array([a, b]), np.array([-a, b])
    h = 0.05
    x = np.arange(-2 * a * mechanism.at_most - 7.5, 2 * a + 7.5, h)
    y = np.arange(-7.5, b * (mechanism.at_most + 1) + 7.5, h)

    def law(there: bool) -> Array:
        chances = sums_of_all_samples(mechanism.rate, mechanism.at_most, mechanism.of - 1, there)
        whole = np.zeros((x.size, y.size))
        for (others, copies), chance in chances.items():
            mean = others * other + copies * record
            whole += chance * np.outer(stats.norm.pdf(x - mean[0]), stats.norm.pdf(y - mean[1]))
        return whole * h * h

    p, q = law(True), law(False)
    assert abs(p.sum() - 1.0) < 1e-9
    return [
        max(float(np.maximum(s - math.exp(e) * t, 0.0).sum()) for s, t in ((p, q), (q, p)))
        for e in epsilons
    ]


@pytest.mark.parametrize("sigma", [0.7, 2.0])
@pytest.mark.parametrize(("rate", "at_most", "of"), SMALL)
def test_two_data_sets_show_as_much_and_no_less(
    sigma: float, rate: float, at_most: int, of: int
) -> None:
    mechanism = turned(sigma, rate, at_most, of)
    epsilons = [0.0, 0.2, 0.7]
    for epsilon, truth in zip(epsilons, deltas_of(mechanism, epsilons), strict=True):
        found = mechanism.delta(epsilon)
        assert found.lower <= truth * (1 + 1e-9)
        assert found.upper >= truth * (1 - 0.02)
        batch = tb.Gaussian(sigma).truncated_poisson(rate, at_most, of)
        assert truth <= batch.delta(epsilon).upper * (1 + 1e-9)


@pytest.mark.parametrize("sigma", [0.3, 1.0, math.pi, 1e4])
@pytest.mark.parametrize("sine", [0.71, 0.8, 0.9])
def test_no_record_is_longer_than_the_clip(sigma: float, sine: float) -> None:
    across, along = _sizes(tb.Gaussian(sigma, sensitivity=0.7), sine)
    clip = Fraction(0.7) / Fraction(sigma)
    square = Fraction(across) ** 2 + Fraction(along) ** 2
    assert square <= clip**2
    assert square >= clip**2 * (1 - Fraction(1, 10**6))
    # multiples are exact
    for size in (across, along):
        assert Fraction(size * 2017) == Fraction(size) * 2017


@pytest.mark.parametrize(
    ("rate", "at_most", "of"),
    [*SMALL, (0.01, 80, 10_000), (0.001, 64, 60_000), (2.0**-10, 4, 5000)],
)
def test_the_chances_are_those_of_binomial_numbers(rate: float, at_most: int, of: int) -> None:
    found = _chances(rate, at_most, of)
    assert found is not None
    n = of - 1
    with mpmath.workdps(60):
        r = mpmath.mpf(rate)

        def chance(k: int, trials: int) -> mpmath.mpf:
            return mpmath.binomial(trials, k) * r**k * (1 - r) ** (trials - k)

        listed = found.lacking.lower.size
        for j in {1, 2, listed // 2 + 1, listed} & {*range(1, listed + 1)}:
            truth = chance(at_most - j, n)
            assert found.lacking.lower[j - 1] <= truth <= found.lacking.upper[j - 1]
            assert found.lacking.upper[j - 1] <= truth * (1 + 1e-15)
        rest = mpmath.fsum(chance(k, n) for k in range(at_most - listed))
        assert rest <= found.rest <= 1e-60
        fill = 1 - mpmath.fsum(chance(k, n) for k in range(at_most))
        placed = (
            mpmath.mpf(at_most) / of * (1 - mpmath.fsum(chance(k, of) for k in range(at_most + 1)))
        )
        assert found.replaced.lower[0] <= placed <= found.replaced.upper[0]
        assert found.full.lower[0] <= fill - placed <= found.full.upper[0]
        assert found.full.upper[0] <= (fill - placed) * (1 + 1e-13)


@pytest.mark.parametrize("size", [0.25, 1.0, 7.0])
def test_masses_are_those_of_normal_variables(size: float) -> None:
    found = _masses(size, 60, 3)
    cuts = np.arange(-_REACH, size * 3 + _REACH, _SIDE)
    assert found.lower.shape == (62, cuts.size + 1)
    rng = np.random.default_rng(1)
    with mpmath.workdps(250):  # 1 - 1e-105 is told from 1
        for j in (0, 1, 3, 20, 61):
            for i in {0, cuts.size, *rng.integers(0, cuts.size, 12).tolist()}:
                low = mpmath.ncdf(mpmath.mpf(cuts[i - 1]) - j * size) if i else mpmath.mpf(0)
                up = mpmath.ncdf(mpmath.mpf(cuts[i]) - j * size) if i < cuts.size else 1
                assert found.lower[j, i] <= up - low + 1e-240
                assert up - low <= found.upper[j, i] + 1e-240


def test_rectangles_hold_the_masses_of_both_data_sets() -> None:
    rate, at_most, of, a, b = 0.5, 2, 4, 1.0, 0.5
    chances = _chances(rate, at_most, of)
    assert chances is not None
    p, q = _rectangles(a, b, rate, chances)
    x = np.arange(-_REACH, a * 3 + _REACH, _SIDE)
    y = np.arange(-_REACH, b * 2 + _REACH, _SIDE)
    assert len(p) == (x.size + 1) * (y.size + 1)
    rng = np.random.default_rng(2)
    with mpmath.workdps(40):

        def mass(cuts: Array, i: int, mean: float) -> mpmath.mpf:
            low = mpmath.ncdf(mpmath.mpf(cuts[i - 1]) - mean) if i else mpmath.mpf(0)
            return (mpmath.ncdf(mpmath.mpf(cuts[i]) - mean) if i < cuts.size else 1) - low

        for there, found in ((True, p), (False, q)):
            law = sums_of_all_samples(rate, at_most, of - 1, there)
            for _ in range(40):
                i, k = int(rng.integers(40, x.size - 40)), int(rng.integers(40, y.size - 40))
                truth = mpmath.fsum(
                    # from the sum of a full batch of others, with the second axis turned round
                    mpmath.mpf(chance)
                    * mass(x, i, (at_most - others + copies) * a)
                    * mass(y, k, (at_most - others - copies) * b)
                    for (others, copies), chance in law.items()
                )
                at = i * (y.size + 1) + k
                assert found.lower[at] <= truth * (1 + mpmath.mpf(10) ** -14)
                assert truth * (1 - mpmath.mpf(10) ** -14) <= found.upper[at]
                assert found.upper[at] <= found.lower[at] * (1 + 1e-11)


def test_merged_outputs_keep_all_masses() -> None:
    rng = np.random.default_rng(3)
    masses = rng.random((2, 50_000))
    masses /= masses.sum(axis=1, keepdims=True)
    p, q = (exact(row) for row in masses)
    p = Enclosure(np.where(np.arange(50_000) % 7, p.lower, 0.0), p.upper)  # some are not known
    found = _merged(p, q)
    assert len(found[0]) <= 6001
    for part, given in zip(found, (p, q), strict=True):
        sums = [math.fsum(x.tolist()) for x in (part.lower, given.lower, given.upper, part.upper)]
        assert sums == sorted(sums)
        assert sums[1] - sums[0] <= 1e-9
        assert sums[3] - sums[2] <= 1e-9
    assert found[0].lower[0] == 0.0
    assert np.all(found[0].lower[1:] > 0.0)


@pytest.mark.parametrize(
    ("sigma", "rate", "at_most", "of", "runs", "least", "alone"),
    [
        # delta = 1e-5: the lower bound, and that of others that contribute 0
        (1.0, 0.01, 80, 10_000, 100, 1.819, 0.5702),
        (0.5, 0.01, 100, 10_000, 10, 5.548, 4.293),
        (2.0, 0.01, 100, 10_000, 1000, 0.7165, 0.5951),
        (5.0, 0.1, 90, 1000, 300, 2.008, 1.207),
        (1.0, 0.001, 80, 60_000, 1000, 0.1488, 0.1488),  # cuts are rare
    ],
)
def test_known_lower_bounds(
    sigma: float, rate: float, at_most: int, of: int, runs: int, least: float, alone: float
) -> None:
    batch = tb.Gaussian(sigma).truncated_poisson(rate, at_most, of)
    found = (batch * runs).epsilon(1e-5)
    assert found.lower == pytest.approx(least, rel=1e-3)
    assert found.lower < found.upper
    instance = batch.instance()
    assert instance is not None
    assert (instance * runs).epsilon(1e-5).lower == pytest.approx(alone, rel=1e-3)


def test_a_right_angle_shows_what_a_record_alone_does() -> None:
    """The others' own direction tells nothing of the record, and its own all that it told."""
    rate, at_most, of = 0.01, 80, 10_000
    across, along = _sizes(tb.Gaussian(1.0), math.sqrt(0.5))
    right = OthersTurned(across, along, rate, at_most, of) * 100
    alone = tb.Gaussian(1.0).truncated_poisson(rate, at_most, of).instance()
    assert alone is not None
    assert right.epsilon(1e-5).lower >= (alone * 100).epsilon(1e-5).lower * (1 - 5e-3)


@pytest.mark.parametrize(
    ("sigma", "rate", "at_most", "of"),
    [
        (1.0, 0.01, 10**6, 10**8),  # too many numbers of others are likely
        (1.0, 1e-9, 50, 1000),  # no batch is ever cut
        (1.0, 0.5, 3, 4),  # a batch is full if all are in it
    ],
)
def test_what_is_not_computed_is_that_of_a_record_alone(
    sigma: float, rate: float, at_most: int, of: int
) -> None:
    assert OthersTurned.tried(tb.Gaussian(sigma), rate, at_most, of) is None
    found = (tb.Gaussian(sigma).truncated_poisson(rate, at_most, of) * 3).delta(0.0)
    assert 0.0 <= found.lower <= found.upper


@pytest.mark.parametrize("sigma", [1e-7, 1e7])
def test_far_too_little_or_much_noise_is_that_of_a_record_alone(sigma: float) -> None:
    assert OthersTurned.tried(tb.Gaussian(sigma), 0.01, 80, 10_000) is None


def test_bounds_that_rounding_leaves_wide_are_not_taken() -> None:
    mechanism = turned(1.0, 0.01, 80, 10_000)
    assert mechanism.is_close(10**4)
    assert not mechanism.is_close(10**12)
