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
        assert Fraction(noise.sensitivity(apart=apart, times=times)) ** 2 >= truth
    falls = all(a >= b >= 0 for a, b in itertools.pairwise([*c, 0.0]))
    if falls or run.bands <= apart:
        bound = Fraction(run.sensitivity(apart=apart, times=times)) ** 2
        assert bound <= truth * (1 + Fraction(1, 10**13))
    if run.bands <= apart:
        bound = Fraction(whole.sensitivity(apart=apart, times=times)) ** 2
        assert bound <= truth * (1 + Fraction(1, 10**12))


@settings(max_examples=40)
@given(st.lists(numbers, min_size=21, max_size=21).filter(any), st.integers(1, 3))
def test_a_whole_matrix_is_bounded_for_every_pattern(entries: list[float], apart: int) -> None:
    matrix = np.zeros((6, 6))
    matrix[np.tril_indices(6)] = entries
    exact = [[Fraction(x) for x in row] for row in matrix.tolist()]
    for times in (1, 2):
        bound = CorrelatedNoise(matrix).sensitivity(apart=apart, times=times)
        truth = exact_square(exact, apart, times)
        assert Fraction(bound) ** 2 >= truth
        if times == 1:
            assert Fraction(bound) ** 2 <= truth * (1 + Fraction(1, 10**13))


def test_numbers_of_turns_that_are_not_given() -> None:
    run = CorrelatedNoise.toeplitz([1.0, 0.5], 10)
    once = math.sqrt(1.25)
    assert run.sensitivity() == pytest.approx(once, rel=1e-14)
    assert run.sensitivity(apart=3) == run.sensitivity(apart=3, times=4)
    assert run.sensitivity(apart=3, times=9) == run.sensitivity(apart=3)
    # the last turn is in row 9, where the second coefficient has no row left
    assert run.sensitivity(apart=3) == pytest.approx(math.sqrt(3 * 1.25 + 1.0), rel=1e-14)
    assert run.sensitivity(times=2) == pytest.approx(math.sqrt(1 + 1.5**2 + 0.25), rel=1e-14)


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
        (lambda: CorrelatedNoise.toeplitz([1.0], 9).sensitivity(times=0), "times must be an int"),
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
