"""Histograms against exact rationals."""

# Refusals are shown what a type checker would have refused before.
# mypy: disable-error-code="arg-type"

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mechanisms.checks import (
    ADD,
    REMOVE,
    assert_atoms,
    assert_comes_back,
    assert_consistent,
    assert_holds,
    ball,
)

from tightbudget.errors import ParameterError
from tightbudget.mechanisms import HistogramPair
from tightbudget.mechanisms.histogram import _convolved
from tightbudget.numerics.enclosure import exact

MEASURED = Path(__file__).resolve().parents[3] / "shared" / "data" / "coverup"


def assert_is(histogram, p, q):
    """The pair of these exact rational weights, bin by bin."""
    p = [a / sum(p) for a in p]
    q = [b / sum(q) for b in q]
    both = [(a, b) for a, b in zip(p, q, strict=True) if a and b]
    pair = histogram.pair(REMOVE)
    assert_atoms(
        pair,
        [a for a, _ in both],
        [b for _, b in both],
        [ball(a / b).log() if a != b else arb(0) for a, b in both],
    )
    for alone, mass in (
        (pair.p_only(), sum(a for a, b in zip(p, q, strict=True) if not b)),
        (pair.q_only(), sum(b for a, b in zip(p, q, strict=True) if not a)),
    ):
        assert_holds(alone.lower, alone.upper, [ball(Fraction(mass))])


weights = st.one_of(st.just(0.0), st.integers(1, 1000).map(float), st.floats(1e-20, 1e20))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(weights, weights), min_size=1, max_size=12))
def test_every_double_counts_as_an_exact_number(pairs):
    p, q = zip(*pairs, strict=True)
    if any(p) and any(q):
        assert_is(HistogramPair(p, q), [Fraction(a) for a in p], [Fraction(b) for b in q])


def test_equal_counts_are_a_loss_of_zero():
    atoms = HistogramPair([3, 1], [3, 1]).pair(REMOVE).atoms()
    assert list(atoms.loss_lower) == list(atoms.loss_upper) == [0.0, 0.0]


def test_losses_survive_masses_that_a_double_can_hardly_hold():
    atoms = HistogramPair([1e-310, 1.0], [0.5, 0.5]).pair(REMOVE).atoms()
    assert arb(float(atoms.loss_lower[0])) < 2 * arb(1e-310) < arb(1)
    truth = (2 * arb(1e-310)).log()
    assert not arb(float(atoms.loss_lower[0])) > truth
    assert not arb(float(atoms.loss_upper[0])) < truth
    assert atoms.loss_upper[0] - atoms.loss_lower[0] < 1e-11


def test_an_empty_bin_is_infinite_unless_smoothed_on_purpose():
    raw, smoothed = HistogramPair([3, 1], [4, 0]), HistogramPair([3, 1], [4, 0], smoothing=0.5)
    assert raw.pair(REMOVE).p_only().lower[0] == pytest.approx(0.25)
    assert raw.pair(ADD).q_only().lower[0] == pytest.approx(0.25)
    assert smoothed.pair(REMOVE).p_only().upper[0] == 0.0
    half = Fraction(1, 2)
    assert_is(smoothed, [3 + half, 1 + half], [4 + half, half])


@pytest.mark.parametrize(("width", "bin_width"), [(3.0, 1.0), (2.5, 1.0), (0.75, 0.25), (0.5, 2.0)])
@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_uniform_noise_is_a_moving_sum(width, bin_width, scale):
    p, q = [scale * c for c in (5, 0, 2, 1)], [scale * c for c in (1, 1, 0, 3)]
    histogram = HistogramPair(p, q, noise=("uniform", width), bin_width=bin_width)
    bins = Fraction(width) / Fraction(bin_width)
    kernel = [Fraction(1)] * math.floor(bins) + [bins - math.floor(bins)] * (bins % 1 != 0)

    def spread(counts):
        out = [Fraction(0)] * (len(counts) + len(kernel) - 1)
        for i, count in enumerate(counts):
            for j, weight in enumerate(kernel):
                out[i + j] += Fraction(count) * weight
        return out

    assert_is(histogram, spread(p), spread(q))


def test_sums_over_the_noise_are_enclosed_before_anything_else_widens_them():
    rng = np.random.default_rng(7)
    x, y = rng.random(80), rng.random(40)
    spread = _convolved(exact(x), exact(y))
    truth = [Fraction(0)] * 119
    for i, a in enumerate(x.tolist()):
        for j, b in enumerate(y.tolist()):
            truth[i + j] += Fraction(a) * Fraction(b)
    assert_holds(spread.lower, spread.upper, truth, 1e-13)


def test_gaussian_noise_reaches_every_bin():
    sigma, p, q = 2.5, [5, 0, 2], [1, 1, 0]
    pair = HistogramPair(p, q, noise="gaussian:2.5").pair(REMOVE)
    atoms = pair.atoms()
    assert pair.p_only().upper[0] < 1e-280
    assert pair.q_only().upper[0] < 1e-280
    assert len(atoms) > 150

    def bin(k):  # floor(noise) = k - 1, with the root taken on the side that does not cancel
        a, b = arb(k - 1) / sigma / arb(2).sqrt(), arb(k) / sigma / arb(2).sqrt()
        return (b.erf() - a.erf()) / 2 if -5 < k < 5 else abs(abs(a).erfc() - abs(b).erfc()) / 2

    at = int(np.argmax(atoms.p.lower))
    masses = {
        k: [sum(c * bin(k - i) for i, c in enumerate(x)) / sum(x) for x in (p, q)]
        for k in range(-90, 95)
    }
    mode = max(masses, key=lambda k: float(masses[k][0]))
    outputs = [mode + i for i in range(-60, 61, 10)]
    index = np.array([at + i for i in range(-60, 61, 10)])
    assert_holds(atoms.p.lower[index], atoms.p.upper[index], [masses[k][0] for k in outputs])
    assert_holds(atoms.q.lower[index], atoms.q.upper[index], [masses[k][1] for k in outputs])


def test_samples_fall_into_bins_at_multiples_of_the_width():
    histogram = HistogramPair.from_samples(
        [-0.1, 0.0, 0.49, 2.0], [0.5, 1.2, 99.0], 0.5, keep_below=50
    )
    assert histogram.p == (1.0, 2.0, 0.0, 0.0, 0.0, 1.0)
    assert histogram.q == (0.0, 0.0, 1.0, 1.0, 0.0, 0.0)


@pytest.mark.slow
def test_a_million_bins_remain_usable():
    ramp = np.arange(1.0, 1e6 + 1)
    histogram = HistogramPair(ramp, ramp[::-1])
    pair = histogram.pair(REMOVE)
    assert histogram == HistogramPair(ramp, ramp[::-1])
    assert hash(histogram) == hash(HistogramPair(ramp, ramp[::-1]))
    assert len(repr(histogram)) < 200
    assert pair.max_loss()[1] == pytest.approx(math.log(1e6))


@pytest.mark.skipif(not MEASURED.is_dir(), reason="the measured delays are not beside the project")
def test_measured_delays_in_the_foreground():
    active, passive = (np.loadtxt(MEASURED / f"{name}.csv.gz") for name in ("active", "passive"))
    histogram = HistogramPair.from_samples(active, passive, keep_below=300, noise="uniform:200")
    assert sum(histogram.p) == np.sum(active < 300)
    assert_consistent(histogram)
    bare = HistogramPair.from_samples(active, passive, keep_below=300)
    # noise is post-processing: it hides some of what gives a side away
    for alone in ("p_only", "q_only"):
        noisy, raw = (getattr(h.pair(REMOVE), alone)() for h in (histogram, bare))
        assert noisy.upper[0] <= raw.upper[0]


@pytest.mark.parametrize(
    "histogram",
    [
        HistogramPair([1, 2, 3], [3, 2, 1]),
        HistogramPair([1, 0, 3], [3, 2, 0]),
        HistogramPair([0.25, 0.75], [0.5, 0.5], smoothing=0.1),
        HistogramPair([1, 0, 3], [3, 2, 0], noise="uniform:2.5"),
        HistogramPair([1, 0, 3], [3, 2, 0], 0.5, ("gaussian", 4), 2.0),
    ],
    ids=repr,
)
def test_directions_agree_and_parameters_come_back(histogram):
    assert_consistent(histogram)
    assert_comes_back(histogram)
    assert not histogram.is_symmetric()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: HistogramPair([1, -1], [1, 1]), r"p\[1\] must be a finite number >= 0, got -1.0"),
        (
            lambda: HistogramPair([1, 1], [1, math.nan]),
            r"q\[1\] must be a finite number >= 0, got nan",
        ),
        (
            lambda: HistogramPair([1, math.inf], [1, 1]),
            r"p\[1\] must be a finite number >= 0, got inf",
        ),
        (lambda: HistogramPair([0, 0], [1, 1]), r"sum\(p\) must be > 0, got 0"),
        (lambda: HistogramPair([], []), "p must be a non-empty one-dimensional array"),
        (lambda: HistogramPair(["1"], [1]), r"p must be an array of numbers, got \['1'\]"),
        (lambda: HistogramPair([True], [1]), r"p must be an array of numbers, got \[True\]"),
        (lambda: HistogramPair([[1], [1, 2]], [1]), "p must be an array of numbers"),
        (lambda: HistogramPair([1, 2], [1]), r"q must have as many bins as p \(2\), got '1 bins'"),
        (lambda: HistogramPair([1], [1], -0.5), "smoothing must be a finite number >= 0, got -0.5"),
        (lambda: HistogramPair([1], [1], noise="uniform"), 'noise must be like "uniform:200"'),
        (lambda: HistogramPair([1], [1], noise="cauchy:1"), 'noise must be like "uniform:200"'),
        (lambda: HistogramPair([1], [1], noise="uniform:x"), 'noise must be like "uniform:200"'),
        (lambda: HistogramPair([1], [1], noise="uniform:1_0"), 'noise must be like "uniform:200"'),
        (
            lambda: HistogramPair([1], [1], noise=("gaussian", -1)),
            'noise must be like "uniform:200"',
        ),
        (lambda: HistogramPair([1], [1], noise="uniform:1e9"), "noise must reach over 1e-06 to"),
        (
            lambda: HistogramPair([1], [1], bin_width=0),
            "bin_width must be a finite number > 0, got 0",
        ),
        (
            lambda: HistogramPair.from_samples([1.0, math.nan], [1.0]),
            r"active\[1\] must be a finite number, got nan",
        ),
        (
            lambda: HistogramPair.from_samples([1.0], [-math.inf]),
            r"passive\[0\] must be a finite number, got -inf",
        ),
        (lambda: HistogramPair.from_samples([], [1.0]), "active must be a non-empty"),
        (
            lambda: HistogramPair.from_samples([1.0], [9.0], keep_below=5.0),
            "keep_below must be above some value of passive, got 5.0",
        ),
        (
            lambda: HistogramPair.from_samples([1.0], [1e30]),
            r"bin_width must give at most 20000000 bins \(1e\+30 now\), got 1.0",
        ),
    ],
)
def test_refusals_name_the_parameter(build, message):
    with pytest.raises(ParameterError, match=message):
        build()
