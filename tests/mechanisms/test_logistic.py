"""Logistic bins and delta against the logistic distribution function, in ball arithmetic."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from tests.balls import ball, contains

import tightbudget as tb
from tightbudget.errors import ParameterError
from tightbudget.mechanisms import Logistic
from tightbudget.pairs.direction import Direction


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 2000
    yield
    ctx.prec = before


def above(x: arb) -> arb:
    """P(X > x) for logistic noise X of scale 1."""
    return 1 / (1 + x.exp())


def log_density(x: arb) -> arb:
    return -x - 2 * (1 + (-x).exp()).log()


def loss(x: arb, m: arb) -> arb:
    """ln of the density of X at x over that of X + m: no closed form is used."""
    return log_density(x) - log_density(x - m)


SCALES = [1.0, 0.7, 200.0, 0.01, 5000.0, 1e9]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("step", [0.01, 1e-6, 0.4])
def test_bins_hold_the_exact_masses_and_are_tight(scale: float, step: float) -> None:
    """Bins between outputs x: an edge is the rounded loss there, its slack pays the rounding."""
    m = ball(1 / Fraction(scale))
    middle, spread = 0.5 / scale, 4.0 + 1.5 / scale
    at = np.linspace(middle + spread, middle - spread, 9)[:, None] - step * np.arange(4)
    outputs = np.unique(at.ravel())[::-1]  # descending: the loss falls with x
    exact = [loss(arb(x), m) for x in outputs.tolist()]
    edges = np.array([float(value.mid()) for value in exact])
    rises = np.append(True, np.diff(edges) > 0)
    outputs, edges = outputs[rises], edges[rises]
    exact = [value for value, keep in zip(exact, rises, strict=True) if keep]
    slack = np.array(
        [float(abs(value - arb(e)).upper()) for value, e in zip(exact, edges, strict=True)]
    )
    bins = Logistic(scale).pair(Direction.REMOVE).bins(edges, slack)
    assert bins is not None
    ends = [arb("inf"), *map(arb, outputs.tolist()), arb("-inf")]
    references = [*edges.tolist(), float(edges[-1])]
    for i, (high, low) in enumerate(itertools.pairwise(ends)):
        # differences of tails in 2000 bits: nothing is lost
        p = above(low) - above(high) if i < edges.size else 1 - above(high)
        q = above(low - m) - above(high - m) if i < edges.size else 1 - above(high - m)
        if i == 0:
            p, q = above(low), above(low - m)
        q *= arb(references[i]).exp()
        assert contains(bins.p, i, p)
        assert contains(bins.q, i, q)
        assert contains(bins.w, i, q / p)
        if 0 < i < edges.size and scale <= 200 and scale >= 0.1 and p > 1e-12:
            assert bins.p.upper[i] - bins.p.lower[i] <= 1e-9 * bins.p.upper[i] / min(step, 1.0)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("share", [0.0, 1e-9, 0.3, 0.999, 1.0, 1.7, -0.4, -1.0, -3.0])
def test_one_run_has_a_closed_delta(scale: float, share: float) -> None:
    """At the output x0 whose loss is eps, delta is P(X < x0) - e^eps P(X + m < x0)."""
    m, epsilon = ball(1 / Fraction(scale)), min(share / scale, 600.0)
    closed = Logistic(scale).pair(Direction.ADD).closed_delta(epsilon)
    assert closed is not None
    low, high = closed
    lowest, highest = arb(-2000), arb(2000) + m
    for _ in range(700):  # bisection: the loss falls with x
        x = (lowest + highest) / 2
        x = arb(x.mid())
        lowest, highest = (x, highest) if loss(x, m) > arb(epsilon) else (lowest, x)
    truth = 1 - above(lowest) - arb(epsilon).exp() * (1 - above(lowest - m))
    slack = arb(2) ** -400
    assert arb(low) <= truth + slack
    assert truth - slack <= arb(high)
    # as far as the rounding of m = sensitivity / scale and of eps allows
    assert high - low <= 1e-13 * (1 + 1 / scale) * max(high, 1 / scale) + 1e-300


@pytest.mark.parametrize("times", [3, 20])
def test_it_agrees_with_scipys_noise(times: int) -> None:
    found = (Logistic(3.0, sensitivity=2.0) * times).epsilon(1e-5)
    other = (tb.Additive("logistic", kwds={"scale": 3.0}, sensitivity=2.0) * times).epsilon(1e-5)
    assert found.overlaps(other)
    assert found.relative_gap <= 1e-4


def test_the_total_variation_is_a_hyperbolic_tangent() -> None:
    for scale in (0.2, 1.0, 30.0):
        found = (Logistic(scale) * 1).total_variation(rtol=1e-10)
        assert found.lower <= np.tanh(0.25 / scale) * (1 + 1e-15)
        assert found.upper >= np.tanh(0.25 / scale) * (1 - 1e-15)


def test_one_run_is_pure_and_both_ends_are_reached() -> None:
    """The sketch shows no least loss, and the largest one has no atom: both are found."""
    run = Logistic(2.0, sensitivity=3.0) * 1
    assert run.epsilon(0.0).upper == pytest.approx(1.5, rel=1e-9)
    for scale, times in ((0.5, 1), (0.5, 3), (0.5, 100), (0.01, 2), (0.02, 2)):
        for delta in (1e-5, 1e-9):
            bounds = (Logistic(scale) * times).epsilon(delta)
            assert bounds.relative_gap <= 1e-4


@pytest.mark.parametrize("scale", [1e-12, 1e100])
def test_the_largest_and_the_smallest_noise_compute_quietly(scale: float) -> None:
    pair = Logistic(scale).pair(Direction.REMOVE)
    edges = np.unique(pair.sketch().sorted().losses)
    bins = pair.bins(edges, np.zeros(edges.size))
    assert bins is not None
    assert np.sum(bins.p.lower) <= 1 <= np.sum(bins.p.upper)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": 0.0}, "scale must be a finite number > 0, got 0.0"),
        ({"scale": np.nan}, "scale must be a finite number > 0, got nan"),
        ({"scale": "1"}, "scale must be a finite number > 0, got '1'"),
        ({"scale": 1.0, "sensitivity": -1}, "sensitivity must be a finite number > 0, got -1"),
        (
            {"scale": 1e-13},
            r"sensitivity / scale must be in \[1e-100, 1e12\], got 10000000000000.0",
        ),
        ({"scale": 1e200}, r"sensitivity / scale must be in \[1e-100, 1e12\], got 1e-200"),
    ],
)
def test_what_no_noise_has_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Logistic(**arguments)  # type: ignore[arg-type]
