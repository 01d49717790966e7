"""Laplace bins and atoms against exact formulas on the output axis, in ball arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from tests.balls import ball, bins_of, contains

from tightbudget.errors import ParameterError
from tightbudget.mechanisms import Laplace
from tightbudget.pairs.direction import Direction


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 400
    yield
    ctx.prec = before


def truth(m: arb, left: float, right: float, reference: float) -> tuple[arb, arb]:
    """Masses of the losses in (left, right], strictly inside (-m, m): noise between 0 and m."""
    low, high = (
        arb(end).max(-m).min(m) if abs(end) < np.inf else m * (1 if end > 0 else -1)
        for end in (left, right)
    )
    if not high > low:
        return arb(0), arb(0)
    # the loss m - 2 x for the noise x (in scales) falls from m to -m
    nearer, farther = (m - high) / 2, (m - low) / 2
    p = ((-nearer).exp() - (-farther).exp()) / 2
    q = ((farther - m).exp() - (nearer - m).exp()) / 2
    return p, q * arb(reference).exp()


@pytest.mark.parametrize("scale", [1.0, 0.7, 200.0, 0.01, 5000.0])
@pytest.mark.parametrize("step", [0.01, 1e-6, 0.4])
def test_cells_hold_the_exact_masses_and_are_tight(scale, step):
    m = ball(Fraction(1) / Fraction(scale))
    at = np.linspace(-1.3, 1.3, 14)[:, None] + step * np.arange(4)
    edges = np.unique(np.round(np.append(at.ravel(), [-1.0, 1.0]), 9)) / scale
    bins = bins_of(Laplace(scale).pair(Direction.REMOVE), edges)
    ends = [-np.inf, *edges.tolist(), np.inf]
    for i in range(edges.size + 1):
        p, q = truth(m, ends[i], ends[i + 1], float(edges[min(i, edges.size - 1)]))
        assert contains(bins.p, i, p)
        assert contains(bins.q, i, q)
        if p > 0:
            assert contains(bins.w, i, q / p)
        inside = ends[i] * scale > -0.99 and ends[i + 1] * scale < 0.99
        if inside:
            width = (ends[i + 1] - ends[i]) * scale
            assert bins.p.upper[i] - bins.p.lower[i] < 1e-13 / width * bins.p.upper[i]
            if scale >= 1:
                assert bins.w.upper[i] - bins.w.lower[i] < 3e-14


@pytest.mark.parametrize("scale", [1.0, 0.7, 200.0, 0.01])
def test_atoms_are_the_two_tails(scale):
    m = ball(Fraction(1) / Fraction(scale))
    atoms = Laplace(scale).pair(Direction.REMOVE).atoms()
    for i, (p, q, loss) in enumerate(
        [((-m).exp() / 2, arb(0.5), -m), (arb(0.5), (-m).exp() / 2, m)]
    ):
        assert contains(atoms.p, i, p)
        assert contains(atoms.q, i, q)
        assert arb(atoms.loss_lower[i]) <= loss <= arb(atoms.loss_upper[i])
    lower, upper = Laplace(scale).pair(Direction.REMOVE).max_loss()
    assert arb(lower) <= m <= arb(upper)
    assert upper - lower < 1e-14 * upper
    least, most = Laplace(scale).pair(Direction.REMOVE).log_moment(1.0)
    assert arb(least) <= ((2 * m.exp() + (-2 * m).exp()) / 3).log() <= arb(most)


@pytest.mark.parametrize("scale", [1e-12, 1e100])
def test_the_largest_and_the_smallest_noise_compute_quietly(scale):
    pair = Laplace(scale).pair(Direction.REMOVE)
    edges = np.unique(pair.sketch().sorted().losses)
    bins, atoms = bins_of(pair, edges), pair.atoms()
    assert np.sum(bins.p.lower) + np.sum(atoms.p.lower) <= 1
    assert np.sum(bins.p.upper) + np.sum(atoms.p.upper) >= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": 0.0}, "scale must be a finite number > 0, got 0.0"),
        ({"scale": np.nan}, "scale must be a finite number > 0, got nan"),
        ({"scale": True}, "scale must be a finite number > 0, got True"),
        ({"scale": 1.0, "sensitivity": -2}, "sensitivity must be a finite number > 0, got -2"),
        ({"scale": 1e-20}, r"sensitivity / scale must be in \[1e-100, 1e12\], got 1e\+20"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ParameterError, match=message):
        Laplace(**arguments)


@pytest.mark.parametrize("scale", [1e-3, 0.11, 0.7, 3.3, 1e4])
@pytest.mark.parametrize("s", [1e-3, 0.25, 1.0, 62.0, 1e6])
def test_the_moment_is_that_of_the_densities(scale: float, s: float) -> None:
    """Both ends, and the gap: what the masses at both atoms and between them add up to."""
    pair = Laplace(scale).pair(Direction.ADD)
    m, order = 1 / ball(scale), ball(s)
    # P has density e^(-|x|) / 2, the loss is m left of 0, -m right of m, and m - 2 x between
    middle = (order * m).exp() * (1 - (-(2 * order + 1) * m).exp()) / (2 * order + 1) / 2
    exact = ((order * m).exp() / 2 + (-(order + 1) * m).exp() / 2 + middle).log()
    low, high = pair.log_moment(s)
    assert ball(low) <= exact <= ball(high)
    assert high - low <= 1e-13 * (1 + high)


def test_an_order_beyond_all_doubles_has_no_formula() -> None:
    assert Laplace(1.0).pair(Direction.ADD).log_moment(1e301) == (-np.inf, np.inf)
    assert Laplace(1e-10).pair(Direction.ADD).log_moment(1e295) == (-np.inf, np.inf)
