"""Truncated noise against exact masses on the output axis, in ball arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from tests.balls import ball, bins_of, contains, mass

from tightbudget.errors import ParameterError
from tightbudget.mechanisms import TruncatedGaussian, TruncatedLaplace
from tightbudget.pairs.direction import Direction

GAUSSIANS = [
    (1.0, 3.0, 1.0),
    (282.8, 2500.0, 1.0),
    (1.0, 0.6, 1.0),
    (0.1, 3.0, 1.0),
    (5.0, 4.0, 3.0),
]
LAPLACES = [
    (1.0, 3.0, 1.0),
    (200.0, 2500.0, 1.0),
    (1.0, 0.6, 1.0),
    (1.0, 1.0, 1.0),
    (0.3, 4.0, 5.5),
]


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 1200
    yield
    ctx.prec = before


def exact(*values: float) -> list[arb]:
    return [ball(Fraction(value)) for value in values]


def gaussian_mass(sigma: arb, left: arb, right: arb) -> arb:
    return mass(left / sigma, right / sigma)


def laplace_mass(scale: arb, left: arb, right: arb) -> arb:
    def below(x: arb) -> arb:
        return (x / scale).exp() / 2 if x < 0 else 1 - (-x / scale).exp() / 2

    return below(right) - below(left)


def edges_of(pair) -> np.ndarray:
    top = pair.max_loss()[1]
    coarse = np.linspace(-1.1, 1.1, 15)[:, None] + np.array([0.0, 1e-4, 0.01])
    return np.unique(np.append(coarse.ravel(), [-1.0, 1.0])) * top


def outputs(edges: np.ndarray, i: int, at, low: arb, high: arb) -> tuple[arb, arb]:
    """The noises of bin i: at(loss) falls as the loss rises, and stays in [low, high]."""
    left = low if i == edges.size else at(arb(float(edges[i]))).max(low).min(high)
    right = high if i == 0 else at(arb(float(edges[i - 1]))).max(low).min(high)
    return left, right


def check_cells(pair, of, at, low, high, total, shift):
    edges = edges_of(pair)
    bins = bins_of(pair, edges)
    for i in range(edges.size + 1):
        left, right = outputs(edges, i, at, low, high)
        if not right > left:
            p = heavy = arb(0)
        else:
            p = of(left, right) / total
            heavy = of(left - shift, right - shift) / total
            heavy *= arb(float(edges[min(i, edges.size - 1)])).exp()
        assert contains(bins.p, i, p)
        assert contains(bins.q, i, heavy)
        if p > 1e-280:
            assert contains(bins.w, i, heavy / p)
            if (
                0 < i < edges.size
                and abs(edges[i - 1 : i + 1]).max() < 0.999 * abs(edges).max() / 1.1
            ):
                assert bins.p.upper[i] - bins.p.lower[i] < 1e-8 * float(p)
                assert bins.w.upper[i] - bins.w.lower[i] < 1e-11 * bins.w.upper[i]


@pytest.mark.parametrize(("sigma", "bound", "sensitivity"), GAUSSIANS)
@pytest.mark.parametrize("direction", list(Direction))
def test_gaussian(sigma, bound, sensitivity, direction):
    pair = TruncatedGaussian(sigma, bound, sensitivity).pair(direction)
    s, t, d = exact(sigma, bound, sensitivity)

    def of(left, right):
        return gaussian_mass(s, left, right)

    total = of(-t, t)
    check_cells(pair, of, lambda loss: d / 2 - loss * s * s / d, d - t, t, total, d)
    only = of(-t, d - t) / total
    for part in (pair.p_only(), pair.q_only()):
        assert contains(part, 0, only)
        assert part.upper[0] - part.lower[0] < 1e-10 * part.upper[0]
    top = d * (2 * t - d) / (2 * s * s)
    assert arb(pair.max_loss()[0]) <= top <= arb(pair.max_loss()[1])
    assert not len(pair.atoms())


@pytest.mark.parametrize(("scale", "bound", "sensitivity"), LAPLACES)
@pytest.mark.parametrize("direction", list(Direction))
def test_laplace(scale, bound, sensitivity, direction):
    pair = TruncatedLaplace(scale, bound, sensitivity).pair(direction)
    b, t, d = exact(scale, bound, sensitivity)

    def of(left, right):
        return laplace_mass(b, left, right)

    total = of(-t, t)
    low, high = (d - t).max(arb(0)), t.min(d)
    check_cells(pair, of, lambda loss: (d - loss * b) / 2, low, high, total, d)
    only = of(-t, d - t) / total
    for part in (pair.p_only(), pair.q_only()):
        assert contains(part, 0, only)
        assert part.upper[0] - part.lower[0] < 1e-12 * part.upper[0]
    top = (d.min(2 * t - d)) / b
    assert arb(pair.max_loss()[0]) <= top <= arb(pair.max_loss()[1])
    atoms = pair.atoms()
    assert len(atoms) == (0 if sensitivity > bound else 2)
    if len(atoms) and bound > sensitivity:
        for i, (left, right) in enumerate([(d, t), (d - t, arb(0))]):
            p, q = of(left, right) / total, of(left - d, right - d) / total
            assert contains(atoms.p, i, p)
            assert contains(atoms.q, i, q)
            assert arb(atoms.loss_lower[i]) <= (p / q).log() <= arb(atoms.loss_upper[i])


def test_a_far_bound_is_no_bound():
    edges = np.linspace(-1.0, 1.0, 9)
    near = bins_of(TruncatedGaussian(1.0, 30.0).pair(Direction.REMOVE), edges)
    assert near.p.lower.sum() <= 1 <= near.p.upper.sum()
    assert TruncatedGaussian(1.0, 30.0).pair(Direction.REMOVE).p_only().upper[0] < 1e-180


@pytest.mark.parametrize("mechanism", [TruncatedGaussian, TruncatedLaplace])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1.0), "(sigma|scale) must be a finite number > 0, got 0.0"),
        ((np.nan, 1.0), "(sigma|scale) must be a finite number > 0, got nan"),
        ((1.0, -1.0), "bound must be a finite number > 0, got -1.0"),
        ((1.0, np.inf), "bound must be a finite number > 0, got inf"),
        ((1.0, 1.0, 0.0), "sensitivity must be a finite number > 0, got 0.0"),
        ((1.0, 1.0, 2.0), r"sensitivity must be < 2 \* bound = 2.0 \(otherwise every output gives"),
        ((1.0, 1.0, 3.0), r"sensitivity must be < 2 \* bound = 2.0 \(otherwise every output gives"),
        ((1e-20, 1.0), r"sensitivity / (sigma|scale) must be in \[1e-100, 1e12\], got 1e\+20"),
    ],
)
def test_refusals(mechanism, arguments, message):
    with pytest.raises(ParameterError, match=message):
        mechanism(*arguments)
