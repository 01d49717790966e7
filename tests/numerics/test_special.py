"""What is granted to floating point is at least three times what is measured here."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from flint import arb, ctx
from scipy import special
from tests.balls import contains, mass

from tightbudget.numerics.enclosure import exact
from tightbudget.numerics.rounding import TINY
from tightbudget.numerics.special import (
    ERF_ULPS,
    ERFCX_ULPS,
    HALF_SQUARE_ULPS,
    half_square_exp,
    normal_cells,
    short_normal_cells,
)


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = before


def worst_ulps(values, truths) -> float:
    """The largest error in units of 2^-52, relative."""
    return max(
        float(abs(arb(float(value)) - truth) / abs(truth)) * 2.0**52
        for value, truth in zip(values, truths, strict=True)
    )


def points(top: float) -> np.ndarray:
    spread = np.modf(np.arange(1, 1500) * 0.6180339887498949)[0]
    return np.concatenate([spread * top, spread * 5.0, spread * 1e-3, [top, 50.0, 25.0, 0.5]])


def test_erfcx():
    x = np.concatenate([points(1e3), points(30.0)])
    truths = [(arb(v) ** 2).exp() * arb(v).erfc() for v in x.tolist()]
    assert 3 * worst_ulps(special.erfcx(x), truths) <= ERFCX_ULPS


def test_erf():
    x = points(6.0)
    assert 3 * worst_ulps(special.erf(x), [arb(v).erf() for v in x.tolist()]) <= ERF_ULPS


def test_half_square_exp():
    x = points(37.0)
    x = x[x <= 37.0]
    truths = [(-(arb(v) ** 2) / 2).exp() for v in x.tolist()]
    assert 3 * worst_ulps(half_square_exp(x), truths) <= HALF_SQUARE_ULPS


def test_half_square_exp_vanishes_quietly_beyond_the_doubles():
    assert np.all(half_square_exp(np.array([40.0, -1e6, 1e300])) <= 1e-300)


def cells(z: np.ndarray):
    ones = exact(np.ones(z.size))
    return normal_cells(
        z, np.zeros(z.size), half_square_exp(z), ones, ones, exact(np.ones(z.size + 1))
    )


@pytest.mark.parametrize(
    "z",
    [
        np.array([0.0]),
        np.array([-37.0, 37.0]),
        np.linspace(-37.0, 37.0, 301),
        np.sort(points(8.0))[::29] - 4.0,
    ],
    ids=["one", "two", "many", "uneven"],
)
def test_normal_cells_hold_the_masses_and_use_a_third_of_their_margin(z):
    got, ends = cells(z), [None, *map(float, z), None]
    for i, (left, right) in enumerate(itertools.pairwise(ends)):
        truth = mass(*(None if end is None else arb(end) for end in (left, right)))
        assert contains(got, i, truth)
        width = arb(got.upper[i]) - arb(got.lower[i])
        middle = (arb(got.upper[i]) + arb(got.lower[i])) / 2
        if truth > 1e-290:
            assert 3 * abs(middle - truth) <= width / 2
            if z.size <= 301 and i not in (0, z.size):
                shortest = float(np.min(np.diff(z)))
                assert width / truth < 1e-12 / min(1.0, shortest)


def test_an_uncertain_point_moves_no_more_mass_than_the_density_there():
    z = np.array([-30.0, 30.0])
    ones = exact(np.ones(2))
    got = normal_cells(z, np.full(2, 0.3), half_square_exp(z), ones, ones, exact(np.ones(3)))
    assert got.lower[1] > 1 - 1e-13
    assert got.upper[1] < 1 + 1e-13
    for move in (-0.3, 0.3):
        assert contains(got, 0, mass(None, arb(-30.0) + arb(move)))


@pytest.mark.parametrize("m", [1e-8, 2e-4, 0.5, 1.0, 7.0])
@pytest.mark.parametrize("length", [1e-12, 1e-3, 0.02, 0.3])
def test_short_cells_keep_every_digit(m, length):
    right = np.linspace(-37.0, 37.0, 75)
    n = right.size
    d = np.full(n, length)
    short, p, w = short_normal_cells(right, np.zeros(n), d, np.zeros(n), m)
    assert short.any() == (length * (1 + m) < 0.9)
    for i in np.flatnonzero(short).tolist():
        r, left = arb(right[i]), arb(right[i]) - arb(length)
        ctx.prec = 600
        exact_p = mass(left, r)
        # e^(m r) times the mass of N + m in [left, r], over p
        exact_w = (m * r + arb(m) ** 2 / 2).exp() * mass(left + m, r + m) / exact_p
        ctx.prec = 300
        assert contains(p, i, exact_p)
        assert contains(w, i, exact_w)
        assert p.upper[i] - p.lower[i] < 1e-13 * p.upper[i] + 2 * TINY
        assert w.upper[i] - w.lower[i] < 2e-15 + 2e-13 * (w.upper[i] - 1)


def test_cells_that_are_too_long_are_left_out():
    long = np.array([1.0, 0.02, 0.02, 0.0])
    short, _, _ = short_normal_cells(
        np.array([0.5, 37.0, 60.0, 0.0]), np.zeros(4), long, np.zeros(4), 1.0
    )
    assert short.tolist() == [False, True, False, False]
