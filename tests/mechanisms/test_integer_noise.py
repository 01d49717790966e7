"""Discrete Gaussian, discrete Laplace and clipped noise against 400-bit ball arithmetic."""

# Refusals are shown what a type checker would have refused before.
# mypy: disable-error-code="arg-type"

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb
from tests.guards.mutants import Without, lose_a_truth
from tests.mechanisms.checks import (
    ADD,
    REMOVE,
    assert_atoms,
    assert_comes_back,
    assert_consistent,
    assert_holds,
)

import tightbudget.mechanisms.wide_discrete_gaussian as wide_discrete_gaussian
from tightbudget.engine.buckets.compose import base_step
from tightbudget.errors import ParameterError
from tightbudget.mechanisms import ClippedNoise, DiscreteGaussian, DiscreteLaplace, Gaussian
from tightbudget.mechanisms.wide_discrete_gaussian import range_masses


def some(n: int, count: int = 60) -> np.ndarray:
    """Indices all over 0..n-1, both ends included."""
    return np.unique(np.linspace(0, n - 1, count).astype(int))


def theta_normaliser(sigma: float):
    """sum over all integers of e^(-x^2 / (2 sigma^2)), by Poisson's formula."""
    s = arb(sigma)
    if sigma < 0.5:
        return 1 + 2 * sum((-arb(n * n) / (2 * s * s)).exp() for n in range(1, 40))
    tail = sum((-2 * (arb.pi() * n * s) ** 2).exp() for n in range(1, 40))
    return s * (2 * arb.pi()).sqrt() * (1 + 2 * tail)


@pytest.mark.parametrize(
    ("sigma", "s"), [(0.3, 1), (1.0, 4), (2.5, 1), (7.1, 3), (40.0, 1), (333.3, 1000), (1e4, 1)]
)
def test_discrete_gaussian_encloses_the_exact_masses(sigma, s):
    pair = DiscreteGaussian(sigma, s).pair(REMOVE)
    atoms = pair.atoms()
    normaliser, two = theta_normaliser(sigma), 2 * arb(sigma) ** 2
    last = (len(atoms) - 1 - s) // 2
    at = some(len(atoms))
    x = [int(i) - last for i in at]

    def mass(n):
        return (-arb(n * n) / two).exp() / normaliser

    for lower, upper, shift in (
        (atoms.p.lower, atoms.p.upper, 0),
        (atoms.q.lower, atoms.q.upper, s),
    ):
        assert_holds(lower[at], upper[at], [mass(n - shift) for n in x], 1e-12)
    losses = [arb(s * (s - 2 * n)) / two for n in x]
    assert_holds(atoms.loss_lower[at], atoms.loss_upper[at], losses, tiny=0)
    assert pair.p_only().upper[0] < 1e-285
    assert pair.p_only().lower[0] == 0
    if sigma < 50:
        beyond = sum(2 * mass(last + n) for n in range(1, 500))
        assert beyond < float(pair.p_only().upper[0])


def test_discrete_gaussian_losses_survive_where_masses_underflow():
    atoms = DiscreteGaussian(0.01).pair(REMOVE).atoms()
    assert atoms.loss_lower[0] <= 5000.0 <= atoms.loss_upper[0]
    assert atoms.p.lower[0] > 1 - 1e-14
    assert atoms.q.upper[0] <= 1e-299


def test_discrete_gaussian_far_apart_lists_only_what_has_mass():
    pair = DiscreteGaussian(1.0, 10**6).pair(REMOVE)
    assert len(pair.atoms()) < 200
    assert_consistent(DiscreteGaussian(1.0, 10**6))


def exact_range(sigma, first, last):
    """The mass of first .. last, added up one by one."""
    two = 2 * arb(sigma) ** 2
    total = sum(((-arb(n * n) / two).exp() for n in range(first, last + 1)), start=arb(0))
    return total / theta_normaliser(sigma)


RANGES = [(0, 0), (1, 1), (-3, 4), (-500, 200), (-700, -1), (10**6, 10**6 + 300)]


@pytest.mark.parametrize("sigma", [2e4, 123456.7, 5e5])
@pytest.mark.parametrize("z", [0.0, -1.0, 3.0, 11.5, -36.5])
def test_ranges_of_a_wide_discrete_gaussian_hold_the_exact_masses(sigma, z):
    start = int(z * sigma)
    ranges = [(start + low, start + high) for low, high in RANGES]
    ranges = [(low, high) for low, high in ranges if abs(high) < 37 * sigma]
    first, last = (np.array(ends, dtype=float) for ends in zip(*ranges, strict=True))
    found = range_masses(first, last, sigma).masses()
    # the exponent z^2 / 2 is known within 6 units in the last place
    width = 1e-12 + 24 * 2.0**-53 * z * z
    truth = [exact_range(sigma, low, high) for low, high in ranges]
    assert_holds(found.lower, found.upper, truth, width)


def test_ranges_of_a_wide_discrete_gaussian_are_everything():
    sigma = 2e4
    for cuts in ([0.0], [-3e4, 1e4], [-7.8e5, -5e4, 2.0, 9e5]):
        first, last = np.append(-np.inf, cuts), np.append(np.array(cuts) - 1.0, np.inf)
        found = range_masses(first, last, sigma).masses()
        assert 1 - 1e-12 < found.lower.sum() <= 1 <= found.upper.sum() < 1 + 1e-12


def test_a_wide_discrete_gaussian_is_not_a_continuous_one(monkeypatch):
    without = Without(
        "the masses are those of integers",
        {"masses-of-integers": "correction = 0.0 * (right - left)"},
        lambda: all(
            not arb(float(found.lower[0])) > exact_range(sigma, n, n)
            and not arb(float(found.upper[0])) < exact_range(sigma, n, n)
            for sigma, n in ((2e4, 0), (2e4, 10**5))
            for found in [
                wide_discrete_gaussian.range_masses(
                    np.array([1.0 * n]), np.array([1.0 * n]), sigma
                ).masses()
            ]
        ),
    )
    lose_a_truth(monkeypatch, without)


def test_discrete_gaussian_of_sigma_100000_is_counted_by_ranges():
    pair = DiscreteGaussian(1e5).pair(REMOVE)
    assert len(pair.atoms()) == 0
    # one edge between the losses of 0 and 1, one between those of -1 and 0
    losses = np.array([1.0 - 2.0 * n for n in (1, 0, -1)]) / 2e10
    edges = (losses[:-1] + losses[1:]) / 2
    bins = pair.bins(edges, np.zeros(2))
    assert bins is not None
    truth = [1 / theta_normaliser(1e5)]
    assert_holds(bins.p.lower[[1]], bins.p.upper[[1]], truth, 1e-13)
    sketch = pair.sketch().sorted()
    assert sketch.losses.size <= 4096
    assert abs(np.exp(sketch.log_masses).sum() - 1) < 1e-3


def half_line(sigma, last):
    """The mass of all n <= last: that of reals, to third order in 1 / sigma."""
    z = (arb(last) + arb(0.5)) / arb(sigma)
    density = (-z * z / 2).exp() / (2 * arb.pi()).sqrt()
    return (-z / arb(2).sqrt()).erfc() / 2 + z * density / (24 * arb(sigma) ** 2)


@pytest.mark.parametrize(("sigma", "shift"), [(2e4, 1), (2e4, 30_000), (1e5, 700)])
def test_delta_of_a_wide_discrete_gaussian_is_that_of_its_outputs(sigma, shift):
    # P > e^eps Q up to a last output
    for epsilon in (0.0, shift / sigma, 4 * shift / sigma):
        last = math.floor(shift / 2 - epsilon * sigma**2 / shift)
        above = half_line(sigma, last) - arb(epsilon).exp() * half_line(sigma, last - shift)
        found = (DiscreteGaussian(sigma, shift) * 1).delta(epsilon)
        assert found.lower <= float(above) * (1 + 1e-9)
        assert found.upper >= float(above) * (1 - 1e-9)
        assert found.relative_gap <= 1e-4


@pytest.mark.parametrize(
    ("b", "s"), [(0.05, 1), (1.0, 1), (2.0, 3), (7.3, 40), (1e5, 2), (0.5, 400)]
)
def test_discrete_laplace_encloses_the_exact_masses(b, s):
    pair = DiscreteLaplace(b, s).pair(REMOVE)
    a = (-1 / arb(b)).exp()
    p = [1 / (1 + a), *((1 - a) / (1 + a) * a**x for x in range(1, s)), a**s / (1 + a)]
    losses = [arb(s - 2 * x) / arb(b) for x in range(s + 1)]
    assert_atoms(pair, p, p[::-1], losses)
    assert pair.p_only().upper[0] == pair.q_only().upper[0] == 0


# --------------------------------------------------------------------- clipped noise


def gaussian_mass(low, high, mean, sigma):
    """P(low < X <= high), without cancellation."""
    root = arb(2).sqrt() * arb(sigma)
    a = None if low is None else (arb(low) - arb(mean)) / root
    b = None if high is None else (arb(high) - arb(mean)) / root

    def right(z):
        return z.erfc() if z is not None else arb(0)

    if a is not None and a >= 0:
        return (right(a) - right(b)) / 2
    if b is not None and b <= 0:
        return (right(-b) - (right(-a) if a is not None else 0)) / 2
    return 1 - (right(-a) if a is not None else 0) / 2 - right(b) / 2


def laplace_mass(low, high, mean, b):
    def right(x):  # P(X > mean + x) for x >= 0
        return (-x / arb(b)).exp() / 2

    lo = None if low is None else arb(low) - arb(mean)
    hi = None if high is None else arb(high) - arb(mean)
    if lo is not None and lo >= 0:
        return right(lo) - (right(hi) if hi is not None else 0)
    if hi is not None and hi <= 0:
        return right(-hi) - (right(-lo) if lo is not None else 0)
    return 1 - (right(-lo) if lo is not None else 0) - (right(hi) if hi is not None else 0)


MASS = {"laplace": laplace_mass, "gaussian": gaussian_mass}


def noise_mass(noise, first, last):
    """P(first <= N <= last), last = None for infinity."""
    if last is not None and last < 0:
        return arb(0)
    low = None if first <= 0 else first - 1
    return MASS[noise.noise](low, last, noise.mean, noise.scale)


def second_mass(noise, first, last):
    s = noise.shift
    if noise.reading == "shifted":
        return noise_mass(noise, first - s, None if last is None else last - s)
    low = None if first <= 0 else first - 1 - s
    return MASS[noise.noise](low, None if last is None else last - s, noise.mean, noise.scale)


CLIPPED = [
    ClippedNoise(mean, scale, noise, shift, reading)
    for noise in ("laplace", "gaussian")
    for reading in ("shifted", "clipped")
    for mean, scale, shift in ((20.0, 3.0, 1), (7.3, 2.5, 4), (0.4, 12.0, 2), (-5.5, 4.0, 3))
]


@pytest.mark.parametrize("noise", CLIPPED, ids=str)
def test_clipped_noise_is_the_pair_of_its_definition(noise):
    pair, s = noise.pair(REMOVE), noise.shift
    atoms = pair.atoms()
    first = s if noise.reading == "shifted" else 0
    # atoms are consecutive ranges of outputs; a range is found by its P- and Q-mass
    if noise.noise == "laplace":
        ranges, start = [(first, first)], first + 1
        left_end, right_start = math.floor(noise.mean), math.ceil(noise.mean) + s + 1
        if left_end >= start:
            ranges, start = [*ranges, (start, left_end)], left_end + 1
        ranges += [(n, n) for n in range(start, right_start)]
        ranges.append((max(right_start, first + 1), None))
    else:
        ranges = [(n, n) for n in range(first, first + len(atoms))]
    p = [noise_mass(noise, *r) for r in ranges]
    q = [second_mass(noise, *r) for r in ranges]
    losses = [(a / b).log() for a, b in zip(p, q, strict=True)]
    assert_atoms(pair, p, q, losses, width=1e-12, loss_slack=2e-12)
    lost = noise_mass(noise, 0, s - 1) if noise.reading == "shifted" else arb(0)
    assert_holds(pair.p_only().lower, pair.p_only().upper, [lost])
    assert pair.q_only().upper[0] < 1e-285


@pytest.mark.one_in(4)
@pytest.mark.parametrize("reading", ["shifted", "clipped"])
@pytest.mark.parametrize(("sigma", "shift"), [(30000.0, 1), (30000.0, 100), (9.99, 2), (400.0, 7)])
def test_clipped_gaussian_noise_of_a_large_mean(reading, sigma, shift):
    noise = ClippedNoise(450_000.3, sigma, "gaussian", shift, reading)
    pair = noise.pair(REMOVE)
    atoms = pair.atoms()
    first = shift if reading == "shifted" else 0
    last = len(atoms) - 1
    reach = sigma * math.sqrt(2 * (680 - math.log(sigma)))
    begin = max(first + 1, math.floor(450_000.3 - reach))
    if begin > first + 1:  # the first output has no mass here
        assert atoms.p.upper[0] <= 1e-300
    at = some(last, 40) + 1
    outputs = [begin + int(i) - 1 for i in at]
    p = [noise_mass(noise, n, n) for n in outputs]
    q = [second_mass(noise, n, n) for n in outputs]
    assert_holds(atoms.p.lower[at], atoms.p.upper[at], p)
    assert_holds(atoms.q.lower[at], atoms.q.upper[at], q)
    for i, a, b in zip(at, p, q, strict=True):
        low, high, truth = atoms.loss_lower[i], atoms.loss_upper[i], (a / b).log()
        assert not arb(float(low)) > truth
        assert not arb(float(high)) < truth
        assert high - low < 2e-12


def test_clipped_laplace_noise_has_a_loss_of_shift_over_scale_on_either_side():
    atoms = ClippedNoise(450_000.0, 30_000.0, shift=3).pair(REMOVE).atoms()
    assert len(atoms) < 10
    big = atoms.p.lower > 0.4
    truth = [arb(3) / 30_000, -arb(3) / 30_000]
    assert_holds(atoms.loss_lower[big][:1], atoms.loss_upper[big][:1], truth[:1])
    assert_holds(-atoms.loss_upper[big][1:], -atoms.loss_lower[big][1:], truth[:1])


def test_readings_differ_in_what_gives_the_noise_away():
    shifted, clipped = (
        ClippedNoise(5.0, 2.0, "gaussian", 2, reading) for reading in ("shifted", "clipped")
    )
    assert shifted.pair(REMOVE).p_only().lower[0] > 0.02
    assert shifted.pair(ADD).p_only().upper[0] < 1e-290
    assert clipped.pair(REMOVE).p_only().upper[0] < 1e-290
    assert shifted.pair(ADD).q_only().lower[0] > 0.02


def test_noise_of_hardly_any_spread_is_still_a_pair():
    pair = ClippedNoise(0.5, 1e-6, "gaussian").pair(REMOVE)
    assert pair.max_loss()[0] > 1e10
    assert_consistent(ClippedNoise(0.5, 1e-6, "gaussian"))
    assert_consistent(ClippedNoise(0.5, 1e-6, "laplace"))


@pytest.mark.parametrize(
    "mechanism",
    [
        DiscreteGaussian(3.0, 2),
        DiscreteGaussian(0.2),
        DiscreteLaplace(1.5, 4),
        DiscreteLaplace(2.0),
        *CLIPPED,
    ],
    ids=str,
)
def test_directions_agree_and_parameters_come_back(mechanism):
    assert_consistent(mechanism)
    assert_comes_back(mechanism)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DiscreteGaussian(0.0), r"sigma must be a finite number > 0, got 0.0"),
        (lambda: DiscreteGaussian(math.nan), r"sigma must be a finite number > 0, got nan"),
        (lambda: DiscreteGaussian(True), r"sigma must be a finite number > 0, got True"),
        (lambda: DiscreteGaussian("2"), r"sigma must be a finite number > 0, got '2'"),
        (lambda: DiscreteGaussian(1e6), r"sigma must be in \(0, 500000.0\], got 1000000.0"),
        (lambda: DiscreteGaussian(1e-200), r"sensitivity / sigma must be in .*, got 1e\+200"),
        (lambda: DiscreteGaussian(1.0, 0), r"sensitivity must be an integer >= 1, got 0"),
        (lambda: DiscreteGaussian(1.0, 1.5), r"sensitivity must be an integer >= 1, got 1.5"),
        (lambda: DiscreteGaussian(1.0, True), r"sensitivity must be an integer >= 1, got True"),
        (lambda: DiscreteLaplace(-1.0), r"scale must be a finite number > 0, got -1.0"),
        (lambda: DiscreteLaplace(math.inf), r"scale must be a finite number > 0, got inf"),
        (
            lambda: DiscreteLaplace(1.0, 10**8),
            r"sensitivity must be an integer in \[1, 10000000\], got 100000000",
        ),
        (lambda: ClippedNoise(math.nan, 1.0), r"mean must be a finite number, got nan"),
        (
            lambda: ClippedNoise(1e13, 1.0),
            r"mean must be in \[-1e12, 1e12\], got 1e\+?13|10000000000000.0",
        ),
        (lambda: ClippedNoise(1.0, 0.0), r"scale must be a finite number > 0, got 0.0"),
        (lambda: ClippedNoise(1.0, 1e-9), r"scale must be in \[1e-06, 1e12\], got 1e-09"),
        (
            lambda: ClippedNoise(1.0, 1e6, "gaussian"),
            r"scale must be in \[1e-06, 500000.0\], got 1000000.0",
        ),
        (
            lambda: ClippedNoise(1.0, 1.0, "cauchy"),
            r"noise must be one of laplace, gaussian, got 'cauchy'",
        ),
        (lambda: ClippedNoise(1.0, 1.0, shift=-1), r"shift must be an integer >= 1, got -1"),
        (
            lambda: ClippedNoise(1.0, 1.0, reading="open"),
            r"reading must be one of shifted, clipped, got 'open'",
        ),
    ],
)
def test_refusals_name_the_parameter(build, message):
    with pytest.raises(ParameterError, match=message):
        build()


@pytest.mark.parametrize("wanted", [3e-2, 8e-3, 3.1e-3, 1.1e-4])
def test_widths_beside_others_are_the_spacing_by_powers_of_two(wanted: float) -> None:
    both = DiscreteGaussian(15.3, 2) * 10 + Gaussian(2.78)
    parts = both.engine.parts[0].parts
    spacing = parts[0].lattice
    assert spacing is not None
    base = base_step(parts, [wanted, 1.0])
    assert base <= wanted or base == spacing
    assert math.frexp(base)[0] == math.frexp(spacing)[0]  # so that one width is the spacing
