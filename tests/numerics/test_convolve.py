"""The error that a convolution admits to, against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tightbudget.numerics.convolve import (
    _Blocks,
    convolve,
    convolve_by_blocks,
    convolve_directly,
    correlate,
    discounted_sums,
)

FloatArray = np.ndarray


def exact(a: FloatArray, b: FloatArray) -> tuple[list[int], int]:
    """The convolution as integers over 2^shift, by one product of two long integers."""
    scale = [scaled(x) for x in (a, b)]
    terms = min(a.size, b.size)
    width = sum(max(ints).bit_length() for ints, _ in scale) + terms.bit_length() + 1
    width = 8 * (width // 8 + 1)
    product = packed(scale[0][0], width) * packed(scale[1][0], width)
    n = a.size + b.size - 1
    size = width // 8
    raw = product.to_bytes(n * size, "little")
    ints = [int.from_bytes(raw[i * size : (i + 1) * size], "little") for i in range(n)]
    return ints, scale[0][1] + scale[1][1]


def scaled(x: FloatArray) -> tuple[list[int], int]:
    """x as integers over 2^shift."""
    fractions = [Fraction(float(v)) for v in x]
    shift = max(f.denominator.bit_length() - 1 for f in fractions)
    return [f.numerator << (shift - f.denominator.bit_length() + 1) for f in fractions], shift


def packed(ints: list[int], width: int) -> int:
    return int.from_bytes(b"".join(i.to_bytes(width // 8, "little") for i in ints), "little")


def measured(a: FloatArray, b: FloatArray, *, extended: bool = False) -> tuple[float, float]:
    """The 2-norm of the true error, and the bound on it."""
    result, bound = convolve(a, b, extended=extended)
    assert result.size == a.size + b.size - 1
    assert np.all(result >= 0)
    ints, shift = exact(a, b)
    one = 1 << shift
    error = [
        float(Fraction(float(r)) - Fraction(i, one)) for r, i in zip(result, ints, strict=True)
    ]
    return float(np.linalg.norm(error)), bound


def shapes(n: int, m: int) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Arrays like those the engine makes, and worse; reproducible."""
    rng = np.random.default_rng(n * 10_007 + m)
    i, j = np.arange(n), np.arange(m)
    spikes = np.zeros(n)
    spikes[rng.integers(0, n, 3)] = [1.0, 1e-8, 1e-16]
    return {
        "random": (rng.random(n), rng.random(m)),
        "spiky": (spikes, rng.random(m)),
        "spikes": (spikes, np.where(rng.random(m) < 0.02, 1.0, 0.0) + (j == m // 2)),
        "decaying": (np.exp(-i * 30.0 / n), np.exp(-j * 30.0 / m)),
        "rising": (np.exp(-i * 30.0 / n), np.exp(-j[::-1] * 30.0 / m)),
        "bells": (np.exp(-(((i - n / 2) / n) ** 2) * 60), np.exp(-(((j - m / 3) / m) ** 2) * 90)),
        "dusty": (10.0 ** -(rng.random(n) * 18), 10.0 ** -(rng.random(m) * 18)),
        "ones": (np.ones(n), np.ones(m)),
    }


LENGTHS = [(25, 25), (30, 30), (64, 64), (100, 33), (511, 500), (1000, 1009), (2048, 100)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("n", "m"), LENGTHS)
@pytest.mark.parametrize("shape", shapes(30, 30))
def test_the_error_is_a_fifth_of_the_bound_or_less(n: int, m: int, shape: str) -> None:
    a, b = shapes(n, m)[shape]
    error, bound = measured(a / a.sum(), b / b.sum())
    assert error <= bound / 5


@pytest.mark.one_in(3)
@pytest.mark.parametrize("shape", ["random", "decaying", "bells", "dusty"])
def test_the_error_of_long_arrays(shape: str) -> None:
    a, b = shapes(5000, 4900)[shape]
    error, bound = measured(a / a.sum(), b / b.sum())
    assert error <= bound / 5
    # and the bound is not vacuous: some 1e-14 of the product
    assert bound <= 1e-13 * np.linalg.norm(a / a.sum()) * 4


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("n", "m"), LENGTHS)
@pytest.mark.parametrize("shape", shapes(30, 30))
def test_extended_precision_errs_less_and_says_so(n: int, m: int, shape: str) -> None:
    a, b = shapes(n, m)[shape]
    error, bound = measured(a, b, extended=True)
    # what remains is the last rounding to doubles, half a unit in the last place per entry
    assert error <= bound
    if np.finfo(np.longdouble).eps < np.finfo(np.float64).eps:
        assert bound <= convolve(a, b)[1] / 4


@pytest.mark.parametrize("shape", shapes(30, 30))
def test_a_square_is_a_product(shape: str) -> None:
    a, _ = shapes(700, 700)[shape]
    a = a / a.sum()
    result, bound = convolve(a, a)
    other, _ = convolve(a, a.copy())
    assert np.linalg.norm(result - other) <= bound
    error, bound = measured(a, a)
    assert error <= bound / 5


@given(
    arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1, allow_subnormal=False)),
    arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1, allow_subnormal=False)),
)
@settings(max_examples=150)
def test_short_and_uneven_arrays(a: FloatArray, b: FloatArray) -> None:
    # products below the smallest double are lost without a trace: 1e-290 stands for them
    error, bound = measured(a, b)
    assert error <= bound + 1e-290


@pytest.mark.parametrize("n", [1, 2, 24, 25])
def test_a_single_entry_only_scales(n: int) -> None:
    a = np.linspace(1.0, 2.0, n)
    result, bound = convolve(a, np.array([0.5]))
    assert np.array_equal(result, a / 2)
    assert bound <= 1e-14


# ------------------------------------------------------------------------ correlation


def exact_correlation(a: FloatArray, b: FloatArray) -> list[Fraction]:
    ints, shift = exact(a[::-1], b)
    return [Fraction(x, 2**shift) for x in ints[a.size - 1 : b.size]]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 40), (30, 30), (30, 500), (700, 9000)])
def test_a_correlation_is_within_its_errors(m: int, n: int, extended: bool) -> None:
    x = np.arange(n)
    a, b = np.exp(-(np.linspace(-3, 3, m) ** 2)), np.exp(-0.03 * x) * (1.1 + np.sin(x))
    found, errors = correlate(a, b, extended=extended)
    truth = exact_correlation(a, b)
    assert found.size == errors.size == len(truth)
    for value, error, true in zip(found, errors, truth, strict=True):
        assert abs(Fraction(float(value)) - true) <= Fraction(float(error))
        assert value >= 0


def test_a_correlation_of_something_long_keeps_its_digits_where_it_is_small() -> None:
    """Cut into pieces: 39 nats below the peak, errors are still small beside the entries."""
    b = np.exp(-0.003 * np.arange(13_000.0))
    found, errors = correlate(np.ones(100), b)
    assert float(np.max(errors / found)) < 1e-6


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 3000), (2049, 700), (2500, 4100)])
def test_direct_sums_keep_every_entry_s_relative_precision(n: int, m: int) -> None:
    # from 1 down to 1e-100, where a transform would leave nothing but noise
    a, b = (np.exp(-230.0 * np.linspace(0.0, 1.0, size) ** 2) for size in (n, m))
    a[::3] = 0.0
    a[-1] = 1.0
    found = convolve_directly(a, b)
    ints, shift = exact(a, b)
    allowed = (min(n, m) + 1) * Fraction(1, 2**53)
    for entry, whole in zip(found, ints, strict=True):
        truth = Fraction(whole, 1 << shift)
        assert abs(Fraction(float(entry)) - truth) <= allowed * truth


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.0, 1e-300, 1e-20, 0.3, 0.9, 1.0 - 2.0**-40, 1.0, 1.5])
def test_discounted_sums_keep_every_entry_s_relative_precision(ratio: float) -> None:
    x = np.random.default_rng(5).random(500) ** 20
    total = Fraction(0)
    for i, (term, found) in enumerate(zip(x, discounted_sums(x, ratio), strict=True)):
        total = Fraction(term) + Fraction(ratio) * total
        assert abs(Fraction(found) - total) <= total * 2 * (i + 1) / 2**53


@pytest.mark.parametrize("runs", [1, 2, 255, 256, 257, 8191, 8192, 8193, 16384, 20001, 70000])
def test_discounted_sums_of_ones_are_a_geometric_series(runs: int) -> None:
    ratio = 1.0 - 2.0**-12
    found = discounted_sums(np.ones(runs), ratio)
    assert found.shape == (runs,)
    # each place beside the end of a piece, and the last one
    for i in {0, 255, 256, 257, runs // 2, 8191, 8192, 16384, 65535, 65536, runs - 1}:
        if i < runs:
            truth = (1 - Fraction(ratio) ** (i + 1)) / (1 - Fraction(ratio))
            assert abs(Fraction(found[i]) - truth) <= truth * 2 * (i + 1) / 2**53


def test_discounted_sums_of_nothing_are_nothing() -> None:
    assert discounted_sums(np.empty(0), 0.5).size == 0


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("n", "m", "decay"),
    [
        *((30, 40, 0.0), (20, 20_000, 0.0), (2000, 2000, 1.0), (2900, 2900, 0.0)),
        *((2900, 2900, 0.02), (2900, 2900, 9.0), (700, 12_000, 0.0), (700, 12_000, 0.001)),
    ],
)
@pytest.mark.parametrize("shape", shapes(30, 30))
def test_each_entry_of_a_convolution_by_blocks_is_within_its_error(
    n: int, m: int, decay: float, shape: str
) -> None:
    a, b = shapes(n, m)[shape]
    result, error = convolve_by_blocks(a, b, decay)
    assert result.size == error.size == n + m - 1
    assert np.all(result >= 0)
    ints, shift = exact(a, b)
    truth = [Fraction(i, 1 << shift) for i in ints]
    for got, true, off in zip(result.tolist(), truth, error.tolist(), strict=True):
        assert abs(Fraction(got) - true) <= Fraction(off)
    # beside the largest entries an error is small, where no decay that there is not was made up
    large = result > 1e-3 * np.max(result)
    assert decay > 0.001 or np.all(error[large] < 1e-10 * np.max(result))


def test_entries_beside_a_heavy_block_keep_their_digits() -> None:
    a = np.concatenate([np.ones(40), np.full(3000, 1e-15)])
    result, error = convolve_by_blocks(a, a)
    assert np.all(error[:1500] < 1e-9 * result[:1500])


def test_entries_beside_a_heavy_block_of_each_keep_their_digits() -> None:
    a = np.concatenate([np.full(900, 1e-15), np.ones(40), np.full(3500, 1e-18)])
    b = np.concatenate([np.full(300, 1e-12), np.ones(20), np.full(1700, 1e-15)])
    result, error = convolve_by_blocks(a, b)
    # to the right of the heavy entries: the left of rare losses counts for nothing
    assert np.all(error[1200:2300] < 1e-9 * result[1200:2300])


def test_masses_of_similar_size_are_transformed_in_long_blocks() -> None:
    """Where they are, there are few blocks; a jump keeps blocks short, and errors small."""
    smooth = np.exp(-np.arange(5000) / 2000.0)
    steep = np.exp(-np.arange(5000) / 10.0)
    assert _Blocks.of(smooth).longest == 8192
    assert _Blocks.of(steep).longest == 256
    result, error = convolve_by_blocks(smooth, smooth)
    assert np.all(error < 1e-11 * np.max(result))


@pytest.mark.parametrize("decay", [0.008, 0.01])
def test_entries_that_fall_as_they_are_said_to_keep_their_digits(decay: float) -> None:
    """Blocks over which they fall by a factor of a million are flat when they are transformed."""
    a = np.exp(-decay * np.arange(6000)) * (2.0 + np.sin(np.arange(6000)))
    plain, flat = (convolve_by_blocks(a, a, said) for said in (0.0, decay))
    assert np.all(flat[1] < 1e-8 * flat[0])
    assert np.any(plain[1] > 1e-4 * plain[0])
    np.testing.assert_allclose(flat[0], plain[0], rtol=1e-2)


def test_errors_of_masses_whose_squares_are_no_doubles_are_stated() -> None:
    """Blocks of 1e-200, whose transforms round as those of others do."""
    draw = np.random.default_rng(3)
    a, b = draw.random(3000) * 1e-200, draw.random(3000)
    plain, small = convolve_by_blocks(a * 1e200, b)[1], convolve_by_blocks(a, b)[1]
    assert np.all(small >= plain * 1e-200 * (1 - 1e-6))
