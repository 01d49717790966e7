"""What is granted to floating point is at least three times what is measured here."""

from __future__ import annotations

import itertools
from collections.abc import Callable

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
    LESS_ULPS,
    SIN_LESS_ULPS,
    expm1_less,
    half_square_exp,
    log1p_less,
    log_normal_tail,
    log_normal_tail_slack,
    normal_cells,
    normal_masses,
    short_normal_cells,
    sin_less,
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
    far = [40.0, 134_714.54647226, -1e6, 1e300]  # of the second, z rounds to a larger t
    assert np.all(half_square_exp(np.array(far)) <= 1e-300)


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


@pytest.mark.one_in(3)
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


@pytest.mark.parametrize("step", [1e-9, 1e-3, 0.05, 0.4, 3.0])
def test_masses_of_short_and_of_long_cells_hold_the_truth(step):
    """Cells of one length, one of no length, and long ones; each may be off a little."""
    z = np.concatenate([[-40.0, -9.0], -1.7 + step * np.arange(12), [35.0, 35.0, 36.5]])
    gaps = np.diff(z, prepend=-np.inf, append=np.inf)
    got = normal_masses(z, 2e-16 * np.abs(z), gaps, 2e-16 * np.abs(gaps))
    assert len(got) == z.size + 1
    for i in range(z.size + 1):
        if i == z.size - 2:  # of no length
            assert got.lower[i] == 0.0
            continue
        ctx.prec = 3000
        left = arb(z[i - 1]) if i else None
        truth = mass(left, arb(z[i]) if i < z.size else None)
        assert contains(got, i, truth)
        if truth > 1e-290:
            assert got.upper[i] - got.lower[i] < 1e-11 * got.upper[i]


def signed(top: float, low: float) -> np.ndarray:
    """Both signs, from the top down to where the function is hardly a double any more."""
    spread = np.modf(np.arange(1, 800) * 0.6180339887498949)[0]
    x = np.concatenate([spread * top, top * 10.0 ** (-8 * spread), np.geomspace(low, top, 400)])
    return np.concatenate([x, [top], -x, [-top]])


def less(x: np.ndarray, exact: Callable[[arb], arb]) -> list[arb]:
    """Truths of what cancels twice or more: digits are added for what is lost."""
    ctx.prec = 1200
    return [exact(arb(v)) for v in x.tolist()]


def test_expm1_less():
    x = signed(0.5, 1e-140)
    truths = less(x, lambda v: v.expm1() - v)
    assert 3 * worst_ulps(expm1_less(x), truths) <= LESS_ULPS


def test_log1p_less():
    x = signed(0.1, 1e-140)
    truths = less(x, lambda v: v.log1p() - v)
    assert 3 * worst_ulps(log1p_less(x), truths) <= LESS_ULPS


@pytest.mark.parametrize(("top", "low"), [(1.0, 1e-90), (4.0, 0.4), (100.0, 1.0), (1e15, 10.0)])
def test_sin_less(top, low):
    x = signed(top, low)
    truths = less(x, lambda v: v.sin() - v)
    assert 3 * worst_ulps(sin_less(x), truths) <= SIN_LESS_ULPS


def test_sin_less_where_both_ways_meet():
    # the series alone, the difference alone, and an array that needs both
    x = np.concatenate([0.5 * np.arange(-100, 100), np.pi * np.arange(1, 300), [1e-8, -0.3]])
    truths = less(x[x != 0], lambda v: v.sin() - v)
    assert 3 * worst_ulps(sin_less(x)[x != 0], truths) <= SIN_LESS_ULPS
    assert np.array_equal(sin_less(np.zeros(2)), np.zeros(2))
    assert np.array_equal(sin_less(np.array([0.0, 2.0]))[:1], np.zeros(1))


def test_log_normal_tail():
    u = np.concatenate([signed(top, 1e-300) for top in (3.0, 40.0, 1e4)])
    got, slack = log_normal_tail(u), log_normal_tail_slack(u)
    ctx.prec = 600
    for v, log, off in zip(u.tolist(), got.tolist(), slack.tolist(), strict=True):
        tail = (abs(arb(v)) / arb(2).sqrt()).erfc() / 2
        truth = tail.log() if v >= 0 else (-tail).log1p()
        assert 3 * abs(arb(log) - truth) <= off


def test_where_a_normal_tail_is_almost_1_its_slack_is_almost_a_unit():
    u = np.array([-7.0, -9.0, -40.0, -1e6])
    assert np.all(log_normal_tail_slack(u) < 2e-16 + 1e-10 * np.exp(-u * u / 4))
