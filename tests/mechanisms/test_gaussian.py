"""Gaussian bins against the error function in ball arithmetic, at 400 bits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from tests.balls import ball, bins_of, contains, mass

from tightbudget.errors import ParameterError
from tightbudget.mechanisms import Gaussian
from tightbudget.pairs.direction import Direction


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 400
    yield
    ctx.prec = before


def truth(m: arb, edges: np.ndarray, i: int) -> tuple[arb, arb]:
    """P-mass and Q-mass times e^r of bin i."""
    ends = [None, *map(arb, edges.tolist()), None][i : i + 2]
    p = mass(*(None if x is None else x / m - m / 2 for x in ends))
    q = mass(*(None if x is None else x / m + m / 2 for x in ends))
    return p, q * arb(float(edges[min(i, edges.size - 1)])).exp()


def edges_around(m: float, step: float) -> np.ndarray:
    """Fine edges over the bulk and both tails of P and of Q, wherever these are."""
    z = np.concatenate([np.arange(-35.5, 35.5, 4.7), [0.0, -m]])
    z = (z[:, None] + step * np.arange(-2, 3)).ravel()
    return np.unique(m * z + m * m / 2)


@pytest.mark.parametrize("sigma", [1.0, 3.7, 5000.0, 0.3, 0.02])
@pytest.mark.parametrize("step", [0.02, 1e-4, 0.3])
def test_cells_hold_the_exact_masses_and_are_tight(sigma, step):
    m = ball(Fraction(1) / Fraction(sigma))
    edges = edges_around(1 / sigma, step)
    bins = bins_of(Gaussian(sigma).pair(Direction.REMOVE), edges)
    lengths = np.concatenate([[0.0], np.diff(edges), [0.0]])
    fine = np.concatenate([[False], np.diff(edges) < 1.5 * step / sigma, [False]])
    for i in range(edges.size + 1):
        p, q = truth(m, edges, i)
        assert contains(bins.p, i, p)
        assert contains(bins.q, i, q)
        assert contains(bins.w, i, q / p)
        z = abs(edges[min(i, edges.size - 1)] * sigma - 0.5 / sigma)
        for part, exact in ((bins.p, p), (bins.q, q)):
            # (a bin of 700 nats cannot be weighted by e^r in doubles)
            if exact > 1e-280 and step > 1e-3 and lengths[i] < 300:
                assert part.upper[i] - part.lower[i] < (1e-10 if z < 6 else 1e-8) * float(exact)
        if sigma >= 1.0 and fine[i] and step * (z + 2) < 1:
            assert bins.w.upper[i] - bins.w.lower[i] < 1e-13


def test_both_directions_and_all_scales_are_one_pair():
    edges = np.linspace(-3.0, 3.0, 7)
    a = bins_of(Gaussian(2.0, sensitivity=4.0).pair(Direction.ADD), edges)
    b = bins_of(Gaussian(0.5).pair(Direction.REMOVE), edges)
    assert np.array_equal(a.p.lower, b.p.lower)
    assert Gaussian(1.0).is_symmetric()


@pytest.mark.parametrize("sigma", [1e-12, 1e100])
def test_the_largest_and_the_smallest_noise_compute_quietly(sigma):
    pair = Gaussian(sigma).pair(Direction.REMOVE)
    edges = np.unique(pair.sketch().sorted().losses)[::20]
    bins = bins_of(pair, edges)
    assert np.sum(bins.p.lower) <= 1 <= np.sum(bins.p.upper)


def test_the_tail_moment_is_close():
    pair = Gaussian(2.0).pair(Direction.REMOVE)
    for x, s in ((0.5, 1.0), (3.0, 4.0), (-np.inf, 2.0)):
        m = arb(1) / 2
        tail = arb(1) if x == -np.inf else mass((arb(x) - m * m / 2 - s * m * m) / m, None)
        exact = float(s * (s + 1) * m * m / 2 + tail.log())
        lower, upper = pair.log_tail_moment(x, s)
        assert exact - 1e-7 * (1 + abs(exact)) <= lower <= exact <= upper
        assert upper <= exact + 1e-7 * (1 + abs(exact))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sigma": 0.0}, "sigma must be a finite number > 0, got 0.0"),
        ({"sigma": -1.0}, "sigma must be a finite number > 0, got -1.0"),
        ({"sigma": np.nan}, "sigma must be a finite number > 0, got nan"),
        ({"sigma": "1"}, "sigma must be a finite number > 0, got '1'"),
        ({"sigma": 1.0, "sensitivity": np.inf}, "sensitivity must be a finite number > 0, got inf"),
        (
            {"sigma": 1e-13},
            r"sensitivity / sigma must be in \[1e-100, 1e12\], got 10000000000000.0",
        ),
        ({"sigma": 1e200}, r"sensitivity / sigma must be in \[1e-100, 1e12\], got 1e-200"),
        (
            {"sigma": 1.0, "relation": "add"},
            "relation must be one of add-or-remove, replace-one, zero-out, got 'add'",
        ),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ParameterError, match=message):
        Gaussian(**arguments)
