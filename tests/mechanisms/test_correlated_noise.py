"""Strategy matrices: what a record moves, against exact rationals and every pattern there is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget import CorrelatedNoise

Rows = list[list[Fraction]]


def patterns(steps: int, apart: int, times: int) -> Iterator[tuple[int, ...]]:
    """Lists the choices of at most ``times`` steps that are at least ``apart`` from one another."""
    for k in range(1, times + 1):
        for chosen in itertools.combinations(range(steps), k):
            if all(b - a >= apart for a, b in itertools.pairwise(chosen)):
                yield chosen


def exact_square(matrix: Rows, apart: int, times: int) -> Fraction:
    """Returns the largest |sum of signed columns|^2 over all patterns and signs."""
    most = Fraction(0)
    for chosen in patterns(len(matrix), apart, times):
        # the first sign changes nothing
        for signs in itertools.product((1,), *[(1, -1)] * (len(chosen) - 1)):
            square = Fraction(0)
            for row in matrix:
                square += sum(s * row[j] for s, j in zip(signs, chosen, strict=True)) ** 2
            most = max(most, square)
    return most


def banded(c: list[float], steps: int) -> Rows:
    """Returns the lower triangular Toeplitz matrix, exactly."""
    return [
        [Fraction(c[i - j]) if 0 <= i - j < len(c) else Fraction(0) for j in range(steps)]
        for i in range(steps)
    ]


numbers = st.integers(-8, 8).map(lambda i: i / 7)
cases = st.tuples(
    st.lists(numbers, min_size=1, max_size=5).filter(any), st.integers(1, 4), st.integers(1, 3)
)


@settings(max_examples=40)
@given(cases)
def test_nobody_moves_the_run_by_more_than_the_sensitivity(
    case: tuple[list[float], int, int],
) -> None:
    c, apart, times = case
    steps = 5
    truth = exact_square(banded(c, steps), apart, times)
    whole = CorrelatedNoise(np.array(banded(c, steps), dtype=float))
    run = CorrelatedNoise.toeplitz(c, steps)
    assert run.bands == whole.bands
    for noise in (run, whole):
        assert Fraction(noise.sensitivity(apart=apart, each_in=times)) ** 2 >= truth
    falls = all(a >= b >= 0 for a, b in itertools.pairwise([*c, 0.0]))
    if falls or run.bands <= apart:
        bound = Fraction(run.sensitivity(apart=apart, each_in=times)) ** 2
        assert bound <= truth * (1 + Fraction(1, 10**13))
    if run.bands <= apart:
        bound = Fraction(whole.sensitivity(apart=apart, each_in=times)) ** 2
        assert bound <= truth * (1 + Fraction(1, 10**12))


@settings(max_examples=40)
@given(st.lists(numbers, min_size=21, max_size=21).filter(any), st.integers(1, 3))
def test_a_whole_matrix_is_bounded_for_every_pattern(entries: list[float], apart: int) -> None:
    matrix = np.zeros((6, 6))
    matrix[np.tril_indices(6)] = entries
    exact = [[Fraction(x) for x in row] for row in matrix.tolist()]
    for times in (1, 2):
        bound = CorrelatedNoise(matrix).sensitivity(apart=apart, each_in=times)
        truth = exact_square(exact, apart, times)
        assert Fraction(bound) ** 2 >= truth
        if times == 1:
            assert Fraction(bound) ** 2 <= truth * (1 + Fraction(1, 10**13))


def test_numbers_of_turns_that_are_not_given() -> None:
    run = CorrelatedNoise.toeplitz([1.0, 0.5], 10)
    once = math.sqrt(1.25)
    assert run.sensitivity() == pytest.approx(once, rel=1e-14)
    assert run.sensitivity(apart=3) == run.sensitivity(apart=3, each_in=4)
    assert run.sensitivity(apart=3, each_in=9) == run.sensitivity(apart=3)
    # the last turn is in row 9, where the second coefficient has no row left
    assert run.sensitivity(apart=3) == pytest.approx(math.sqrt(3 * 1.25 + 1.0), rel=1e-14)
    assert run.sensitivity(each_in=2) == pytest.approx(math.sqrt(1 + 1.5**2 + 0.25), rel=1e-14)


def test_the_square_root_of_prefix_sums() -> None:
    column = [1.0]
    for i in range(1, 1000):
        column.append(column[-1] * (2 * i - 1) / (2 * i))
    square = sum(Fraction(c) ** 2 for c in column)
    bound = Fraction(CorrelatedNoise.toeplitz(column, 1000).sensitivity())
    assert square <= bound**2 <= square * (1 + Fraction(1, 10**12))


@pytest.mark.parametrize(
    ("decays", "scales"), [([0.9, 0.5], [0.3, 0.1]), ([1.0], [0.01]), ([0.0, 0.3], [0.2, 0.7])]
)
def test_buffers_have_coefficients_that_rationals_give(
    decays: list[float], scales: list[float]
) -> None:
    steps = 40
    exact = [Fraction(1)] + [
        sum(
            (Fraction(w) * Fraction(d) ** (t - 1) for d, w in zip(decays, scales, strict=True)),
            Fraction(0),
        )
        for t in range(1, steps)
    ]
    run = CorrelatedNoise.buffered(decays, scales, steps)
    for got, c in zip(run._entries.tolist(), exact, strict=True):
        assert c <= Fraction(got) <= c * (1 + Fraction(1, 10**13)) + Fraction(1, 2**1000)
    square = sum((c * c for c in exact), Fraction(0))
    assert square <= Fraction(run.sensitivity()) ** 2 <= square * (1 + Fraction(1, 10**12))


def test_sampled_bands_are_sampled_steps() -> None:
    run = CorrelatedNoise.toeplitz([1.0, 0.5, 0.25], 100)
    got = run.sampled(2.0, 0.1)
    assert got == tb.Gaussian(2.0, run.sensitivity()).subsampled(0.1) * 34
    assert run.sampled(2.0, 0.1, groups=10).runs == 10
    zeroed = run.sampled(2.0, 0.1, relation=tb.Neighbouring.ZERO_OUT)
    assert {step.relation for step, _ in zeroed.parts} == {tb.Neighbouring.ZERO_OUT}


SIGMA, MIXED = 1.0, 0.8


def balls_in_two_bins(epsilon: float) -> float:
    """Returns delta of two steps and two bins, exactly to about 1e-6: a sum over a fine grid."""
    z = np.arange(-9, 12, 0.02)
    x, y = np.meshgrid(z, z)
    there = np.exp(-((x - 1) ** 2 + (y - MIXED) ** 2) / 2) + np.exp(-(x**2 + (y - 1) ** 2) / 2)
    absent = np.exp(-(x**2 + y**2) / 2)
    area = 0.02**2 / (2 * math.pi)
    removed = float(np.sum(np.maximum(0.0, there / 2 - math.exp(epsilon) * absent))) * area
    added = float(np.sum(np.maximum(0.0, absent - math.exp(epsilon) * there / 2))) * area
    return max(removed, added)


def bins_hold() -> bool:
    bound = CorrelatedNoise.toeplitz([1.0, MIXED], 2).allocated(SIGMA, 2)
    return all(balls_in_two_bins(e) <= bound.delta(e).upper * (1 + 1e-5) for e in (0.3, 1.0, 2.0))


def test_balls_in_bins_are_below_their_bound_and_that_below_no_amplification() -> None:
    assert bins_hold()
    run = CorrelatedNoise.toeplitz([1.0, MIXED], 60)
    whole = tb.Gaussian(4.0, run.sensitivity(apart=4)).epsilon(1e-5)
    assert run.allocated(4.0, 4).epsilon(1e-5).upper < whole.lower


def test_independent_noise_in_bins_is_allocation() -> None:
    ((step, runs),) = CorrelatedNoise.toeplitz([1.0], 20).allocated(2.0, 5).parts
    assert runs == 1
    assert isinstance(step, tb.Allocated)
    assert isinstance(step.base, tb.Gaussian)
    assert 2.0 <= step.base.sensitivity <= 2.0 * (1 + 1e-13)
    assert step == step.base.allocated(5)


MUTATIONS = [
    Without("bins that share rows", {"bins-share-rows": "shared = 0.0"}, bins_hold),
]


@pytest.mark.slow
@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CorrelatedNoise([1.0, 2.0]), "matrix must be a non-empty two-dim"),
        (lambda: CorrelatedNoise([[1.0, 2.0]]), "matrix must be a square lower triangular"),
        (lambda: CorrelatedNoise([[1.0, 2.0], [0.0, 1.0]]), "matrix must be a square lower tri"),
        (lambda: CorrelatedNoise([[math.nan]]), r"matrix\[0, 0\] must be finite, got nan"),
        (lambda: CorrelatedNoise([[0.0]]), r"the largest entry must be in \[1e-100, 1e100\]"),
        (lambda: CorrelatedNoise.toeplitz([1e200], 3), r"the largest entry must be in"),
        (lambda: CorrelatedNoise.toeplitz([], 3), "coefficients must be a non-empty one-dim"),
        (lambda: CorrelatedNoise.toeplitz("1", 3), "coefficients must be a non-empty one-dim"),
        (lambda: CorrelatedNoise.toeplitz([1.0] * 4, 3), "coefficients must be at most steps = 3"),
        (lambda: CorrelatedNoise.toeplitz([1.0], 0), "steps must be an integer >= 1, got 0"),
        (lambda: CorrelatedNoise.buffered([1.5], [1.0], 3), r"decays must be in \[0, 1\]"),
        (lambda: CorrelatedNoise.buffered([0.5], [-1.0], 3), "scales must be 1 numbers >= 0"),
        (lambda: CorrelatedNoise.buffered([0.5], [1.0, 1.0], 3), "scales must be 1 numbers >= 0"),
        (
            lambda: CorrelatedNoise.toeplitz([1.0, 0.5], 9).sampled(1.0, 0.1, groups=1),
            "groups must be at least bands = 2, got 1",
        ),
        (lambda: CorrelatedNoise.toeplitz([1.0], 9).sensitivity(apart=0), "apart must be an int"),
        (
            lambda: CorrelatedNoise.toeplitz([1.0], 9).sensitivity(each_in=0),
            "each_in must be an int",
        ),
        (lambda: CorrelatedNoise.toeplitz([1.0], 9).sensitivity(times=1), "times is each_in now"),  # type: ignore[call-arg]
        (lambda: CorrelatedNoise.toeplitz([1.0], 9).allocated(1.0, bins=0), "bins must be an int"),
        (
            lambda: CorrelatedNoise.toeplitz([1.0], 10**5).allocated(1.0, bins=10**4),
            r"steps \* bins must be at most 1e\+08, got 1000000000",
        ),
    ],
)
def test_refusals(make: object, message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        make()  # type: ignore[operator]


def test_it_says_what_it_is() -> None:
    assert repr(CorrelatedNoise.toeplitz([1.0, 0.5, 0.0], 9)) == (
        "<CorrelatedNoise: 9 steps, 2 bands>"
    )
