"""One run in closed form, against the two densities at 120 digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import pytest
from tests.cases import each_mechanism
from tests.guards.mutants import Without, each, lose_a_truth
from tests.laws.test_pairs import delta

import tightbudget as tb
from tightbudget.engine.buckets.one_run import OneRun
from tightbudget.mechanisms import Mechanism
from tightbudget.pairs.direction import Direction

mp = mpmath.mp.clone()
mp.dps = 120

Cdf = Callable[[mpmath.mpf], mpmath.mpf]
LAPLACE: Cdf = lambda x: mp.exp(x) / 2 if x < 0 else 1 - mp.exp(-x) / 2  # noqa: E731
GAUSSIAN: Cdf = mp.ncdf


def exact(cdf: Cdf, loss: Cdf, m: mpmath.mpf, epsilon: float, q: float, add: bool) -> mpmath.mpf:
    """delta(eps) of noise at 0 against noise at m, sampled with rate q.

    P > e^eps Q left of a point, which bisection finds: the base's loss falls there.
    """
    eps, rate = mp.mpf(epsilon), mp.mpf(q)

    def mixed(x: mpmath.mpf) -> mpmath.mpf:
        base = loss(x)
        if add:
            return -mp.log(1 - rate + rate * mp.exp(-base))
        return mp.log(1 - rate + rate * mp.exp(base))

    low, high = mp.mpf(-200), mp.mpf(200)
    if not mixed(low) > eps:
        return mp.mpf(0)
    for _ in range(410):
        middle = (low + high) / 2
        low, high = (middle, high) if mixed(middle) > eps else (low, middle)
    p, other = cdf(low), cdf(low - m)
    if add:
        return p - mp.exp(eps) * ((1 - rate) * p + rate * other)
    return (1 - rate) * other + rate * p - mp.exp(eps) * other


def laplace(scale: float, epsilon: float, q: float = 1.0, add: bool = False) -> mpmath.mpf:
    m = 1 / mp.mpf(scale)
    return exact(LAPLACE, lambda x: abs(x - m) - abs(x), m, epsilon, q, add)


def gaussian(sigma: float, epsilon: float, q: float, add: bool = False) -> mpmath.mpf:
    m = 1 / mp.mpf(sigma)
    return exact(GAUSSIAN, lambda x: m * m / 2 - m * x, m, epsilon, q, add)


def holds(mechanism: Mechanism, direction: Direction, epsilon: float, truth: mpmath.mpf) -> bool:
    found = mechanism.pair(direction).closed_delta(epsilon)
    assert found is not None
    return bool(mp.mpf(max(0.0, found[0])) <= truth <= mp.mpf(max(0.0, found[1])))


SMALL = [
    (tb.Laplace(1e9), 0.0, laplace(1e9, 0.0), 1e-13),
    (tb.Laplace(1e14), 0.0, laplace(1e14, 0.0), 1e-13),
    (tb.Laplace(3.0), 0.2, laplace(3.0, 0.2), 1e-13),
    (tb.Gaussian(4.97).subsampled(8.8e-88), 0.0, gaussian(4.97, 0.0, 8.8e-88), 1e-11),
    (tb.Gaussian(0.17).subsampled(2e-10), 0.0, gaussian(0.17, 0.0, 2e-10), 1e-11),
    (tb.Gaussian(3.38).subsampled(1.9e-8), 1e-9, gaussian(3.38, 1e-9, 1.9e-8), 1e-6),
    (tb.Laplace(2.0).subsampled(1e-6), 2e-7, laplace(2.0, 2e-7, 1e-6), 1e-8),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("mechanism", "epsilon", "truth", "width"), SMALL)
def test_tiny_losses_have_relative_bounds(
    mechanism: Mechanism, epsilon: float, truth: mpmath.mpf, width: float
) -> None:
    assert holds(mechanism, Direction.REMOVE, epsilon, truth)
    found = (mechanism * 1).delta(epsilon)
    assert found.relative_gap <= width
    assert found.lower <= float(truth) * (1 + 1e-15)
    back = (mechanism * 1).epsilon(float(truth) * 0.99)
    assert back.relative_gap <= 1e-4
    assert back.lower > epsilon


def test_the_other_direction_is_a_formula_too() -> None:
    for q in (1e-7, 0.01, 0.5):
        for share in (-0.5, 0.0, 0.3):
            epsilon = share * q / 4
            truth = gaussian(2.0, epsilon, q, add=True)
            assert holds(tb.Gaussian(2.0).subsampled(q), Direction.ADD, epsilon, truth)
            truth = laplace(2.0, epsilon, q, add=True)
            assert holds(tb.Laplace(2.0).subsampled(q), Direction.ADD, epsilon, truth)


@pytest.mark.one_in(3)
@each_mechanism
def test_a_closed_form_is_what_the_cells_say(mechanism: Mechanism) -> None:
    for direction in Direction:
        pair = mechanism.pair(direction)
        for epsilon in (-0.3, -1e-3, 0.0, 1e-3, 0.3, 2.0):
            found = pair.closed_delta(epsilon)
            if found is not None:
                bins = delta(pair, epsilon)
                assert found[0] <= bins.upper
                assert bins.lower <= max(0.0, found[1])


def test_what_rounding_leaves_nothing_of_is_not_answered() -> None:
    remove, add = (tb.Gaussian(1.0).subsampled(0.25).pair(d) for d in Direction)
    assert remove.closed_delta(-0.2877) is None  # ln(1 - q) is the least loss
    assert add.closed_delta(0.28768207245178) is None  # -ln(1 - q) is the largest
    assert remove.closed_delta(700.0) is None
    assert add.closed_delta(700.0) is None
    assert tb.Gaussian(1.0).pair(Direction.REMOVE).closed_delta(700.0) is None
    # and the composition has an answer all the same
    assert (tb.Gaussian(1.0).subsampled(0.25) * 1 + tb.ApproximateDP(0.0) * 0).delta(
        0.2876
    ).upper > 0


MUTATIONS = [
    Without(
        "the largest loss is a rounded quotient",
        {"largest-loss-rounded-quotient": "reach = 0.0"},
        lambda: all(
            holds(tb.Laplace(s), Direction.REMOVE, e, laplace(s, e))
            for s in (3.0, 7.0, 49.0)
            for e in ((1 / s) * (1 - 1e-15), (1 / s) * (1 - 3e-16))
        ),
    ),
    Without(
        "what is left of 1 is rounded",
        {"left-1-rounded": "v, wrong = beyond / c, 0.0"},
        lambda: all(
            holds(tb.Gaussian(1.0).subsampled(0.5), Direction.ADD, e, gaussian(1.0, e, 0.5, True))
            for e in (0.69314705, 0.69314706, 0.693147065, 0.69314707, 0.693147075)
        ),
    ),
]


@each(MUTATIONS)
def test_without_the_margin_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)


@pytest.mark.parametrize("rate", [0.01, 1.0])
def test_a_curve_of_one_run_asks_once_which_formula_there_is(
    rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its points are the answers to single questions, and hardly more is asked for them."""
    mechanism, epsilons = tb.Gaussian(1.0).subsampled(rate), [0.3 * i for i in range(1, 21)]
    alone = [(mechanism * 1).delta(epsilon) for epsilon in epsilons]
    pair, asked = type(tb.Gaussian(1.0).pair(Direction.ADD)), 0
    formula = pair.closed_delta

    def counted(one: Any, epsilon: float) -> tuple[float, float] | None:
        nonlocal asked
        asked += 1
        found: tuple[float, float] | None = formula(one, epsilon)
        return found

    monkeypatch.setattr(pair, "closed_delta", counted)
    curve = (mechanism * 1).curve(epsilons)
    for one, bounds in zip(alone, curve, strict=True):
        assert one.overlaps(bounds)
        assert bounds.relative_gap <= 1e-4
    assert asked <= 4 * len(epsilons) + 8  # two directions, each on both sides of an epsilon


@pytest.mark.parametrize("delta", [1e-15, 1e-9, 1e-4])
@pytest.mark.parametrize("rate", [1e-6, 0.002, 0.3])
def test_an_epsilon_of_one_run_is_searched_by_few_readings(
    rate: float, delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, formula = list[float](), OneRun.delta

    def counted(run: OneRun, epsilon: float) -> tb.Bounds:
        asked.append(epsilon)
        return formula(run, epsilon)

    monkeypatch.setattr(OneRun, "delta", counted)
    found = (tb.Gaussian(5.0).subsampled(rate) * 1).epsilon(delta)
    assert found.relative_gap <= 1e-4
    for end, above in ((found.lower, True), (found.upper, False)):
        at = (tb.Gaussian(5.0).subsampled(rate) * 1).delta(end)
        assert end == 0.0 or (at.upper >= delta if above else at.lower <= delta)
    assert len(asked) <= 30  # of both directions; halvings alone asked 68 times
