"""Binomial masses and tails, against exact fractions and sums of 60 digits."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

from tightbudget.numerics.binomial import binomial_masses, binomial_tails


def mass(n: int, rate: Fraction, i: int) -> Fraction:
    return math.comb(n, i) * rate**i * (1 - rate) ** (n - i)


@pytest.mark.parametrize("n", [1, 7, 60, 120])
@pytest.mark.parametrize("rate", [Fraction(1, 2), Fraction(0.01), Fraction(0.999)])
def test_masses_and_tails_are_those_of_exact_fractions(n: int, rate: Fraction) -> None:
    found = binomial_masses(n, rate, 0, n)
    exact = [mass(n, rate, i) for i in range(n + 1)]
    for got, value in zip(found, exact, strict=True):
        assert abs(Fraction(got) / value - 1) <= Fraction(1, 10**30)
    for k in {0, 1, n // 3, n // 2, n, n + 1}:
        below, above = binomial_tails(n, rate, k)
        for (lower, upper), truth in ((below, sum(exact[:k])), (above, sum(exact[k:]))):
            assert Fraction(lower) <= truth <= Fraction(upper)
            assert upper - lower <= max(1e-12 * upper, 1e-14)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("n", "rate", "k"),
    [
        (60_000, 256 / 60_000, 300),
        (60_000, 256 / 60_000, 200),
        (10**9, 1e-6, 1_200),
        (10**9, 0.1, 10**8 + 200_000),
        (10**9, 0.1, 10**8 - 200_000),
        (10**9, 1e-3, 2 * 10**6),
    ],
)
def test_tails_of_many_trials(n: int, rate: float, k: int) -> None:
    with mpmath.workdps(50):
        q = mpmath.mpf(rate)
        log = (
            mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)
            + k * mpmath.log(q) + (n - k) * mpmath.log1p(-q)
        )  # fmt: skip
        first = mpmath.exp(log)
        up = k > n * rate
        term, sides = first, mpmath.mpf(0)
        i = k
        if not up:  # from k - 1 down
            term, i = first * k / (n - k + 1) * (1 - q) / q, k - 1
        while term > sides * mpmath.mpf(10) ** -20:
            sides += term
            term *= (
                mpmath.mpf(n - i) / (i + 1) * q / (1 - q) if up else i * (1 - q) / q / (n - i + 1)
            )
            i += 1 if up else -1
        got = binomial_tails(n, Fraction(rate), k)[1 if up else 0]
        assert got[0] <= sides <= max(got[1], 1e-300)
        assert got[1] - got[0] <= 1e-9 * got[1] or got[1] <= 1e-290


def test_what_is_certain_is_exact() -> None:
    assert binomial_tails(5, Fraction(1, 3), 0) == ((0.0, 0.0), (1.0, 1.0))
    assert binomial_tails(5, Fraction(1, 3), 6) == ((1.0, 1.0), (0.0, 0.0))
