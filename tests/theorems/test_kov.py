"""The optimal composition theorem, held against its own formula in ball arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st
from tests.balls import ball, inside

import tightbudget as tb
from tightbudget.theorems import kov


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 1200
    yield
    ctx.prec = before


def truth(eps: float, delta: float, k: int, at: float | Fraction) -> arb:
    """delta' at any eps', as a sum of rationals in e^eps; which terms count is exact."""
    ctx.prec = 1200 + 2 * k
    e, up = ball(Fraction(eps)), ball(Fraction(at)).exp()
    p, q = e.exp() / (1 + e.exp()), 1 / (1 + e.exp())
    total, mass, ratio = arb(0), p**k, q / p
    loss = p / q
    for x in range(k + 1):
        if (k - 2 * x) * Fraction(eps) <= Fraction(at):
            break
        total += mass * (1 - up / loss ** (k - 2 * x))
        mass *= ratio * (k - x) / (x + 1)
    return 1 - (1 - ball(Fraction(delta))) ** k * (1 - total)


SHAPES = [
    (0.1, 0.0, 1), (0.1, 0.0, 2), (0.5, 1e-3, 3), (1.0, 0.2, 5), (0.1, 1e-6, 30), (3.0, 0.0, 7),
    (1e-3, 1e-9, 100), (1e-14, 0.1, 20), (30.0, 1e-4, 4), (0.25, 0.0, 512), (0.02, 1e-8, 512),
    (1e-9, 0.0, 64), (40.0, 0.0, 9), (0.01, 0.0, 4096),
]  # fmt: skip


@pytest.mark.parametrize(
    ("eps", "delta", "k"),
    [pytest.param(*shape, marks=[pytest.mark.slow] * (shape[2] > 1000)) for shape in SHAPES],
)
def test_delta_holds_the_exact_one_at_and_between_the_theorems_points(
    eps: float, delta: float, k: int
) -> None:
    for i in sorted({0, 1, 2, k // 4, k // 2}):
        for beside in (-0.7, 0.0, 1e-9, 0.3):
            at = max(0.0, (k - 2 * i + beside) * eps)
            bounds, exact = kov.delta(eps, delta, k, at), truth(eps, delta, k, at)
            if exact == 0:
                assert bounds == tb.Bounds(0.0, 0.0)
            else:
                assert inside(bounds, exact), (at, bounds, exact)
                assert bounds.relative_gap < 1e-9 or bounds.upper < 1e-280


@given(
    st.floats(1e-6, 20), st.sampled_from([0.0, 1e-12, 1e-5, 0.3]), st.integers(1, 60),
    st.floats(0, 1),
)  # fmt: skip
def test_any_question_holds_the_exact_delta(eps: float, delta: float, k: int, x: float) -> None:
    at = x * k * eps
    bounds, exact = kov.delta(eps, delta, k, at), truth(eps, delta, k, at)
    assert bounds.upper == 0 if exact == 0 else inside(bounds, exact)


@pytest.mark.parametrize("k", [1, 2, 7, 12])
def test_the_points_are_those_of_the_formula(k: int) -> None:
    """As Theorem 3.3 prints it."""
    eps, delta = 0.3, 1e-3
    e = ball(eps).exp()
    points = kov.points(eps, delta, k)
    assert len(points) == k // 2 + 1
    for i, (epsilon, bounds) in enumerate(points):
        rises = [
            math.comb(k, x) * (e ** (k - x) - e ** (k - 2 * i + x)) for x in range(i)
        ]  # "delta_i"
        delta_i = sum(rises, arb(0)) / (1 + e) ** k
        assert inside(bounds, 1 - (1 - ball(delta)) ** k * (1 - delta_i))
        assert Fraction(epsilon.lower) <= (k - 2 * i) * Fraction(eps) <= Fraction(epsilon.upper)


@pytest.mark.parametrize(("eps", "delta", "k"), [s for s in SHAPES if s[2] <= 512])
def test_epsilon_is_the_inverse(eps: float, delta: float, k: int) -> None:
    for target in (1e-10, 1e-5, 0.1, 0.9):
        bounds = kov.epsilon(eps, delta, k, target)
        if math.isinf(bounds.upper):
            assert 1 - (1 - ball(delta)) ** k > target
            continue
        assert truth(eps, delta, k, bounds.upper) <= target
        if bounds.lower > 0:
            assert truth(eps, delta, k, math.nextafter(bounds.lower, 0)) > target
        assert bounds.width <= 1e-8 * bounds.upper


def test_a_million_runs_agree_with_the_engine() -> None:
    k = 2**20
    for eps, delta, at in (
        (1e-3, 0.0, 1.0),
        (1e-3, 1e-12, 8.0),
        (1e-5, 1e-9, 0.0),
        (2e-3, 0.0, 9.0),
    ):
        bounds = kov.delta(eps, delta, k, at)
        engine = (tb.ApproximateDP(eps, delta) * k).delta(at, rtol=1e-3)
        assert bounds.overlaps(engine)
        assert bounds.relative_gap < 1e-8


@pytest.mark.parametrize(("eps", "delta", "k"), [s for s in SHAPES if s[2] <= 512 and s[0] > 1e-6])
def test_it_is_what_the_engine_says_of_the_worst_case(eps: float, delta: float, k: int) -> None:
    worst = tb.ApproximateDP(eps, delta) * k
    for share in (0.0, 0.1, 0.35, 0.9):
        at = share * k * eps
        assert kov.delta(eps, delta, k, at).overlaps(worst.delta(at))
    assert kov.epsilon(eps, delta, k, 0.3).overlaps(worst.epsilon(0.3))


def test_what_tells_all_is_never_beaten() -> None:
    assert kov.epsilon(0.1, 1e-3, 100, 0.05) == tb.Bounds(math.inf, math.inf)
    assert kov.delta(0.5, 1.0, 3, 100.0) == tb.Bounds(1.0, 1.0)
    assert kov.delta(0.0, 0.0, 9, 0.0) == tb.Bounds(0.0, 0.0)
    assert kov.epsilon(0.0, 0.0, 9, 0.0) == tb.Bounds(0.0, 0.0)


# ------------------------------------------------------------------- of a whole curve


def test_the_grid_is_the_papers() -> None:
    eps = kov.grid(2.0)
    assert eps[-1] == 2.0
    assert np.all(np.diff(eps) > 0)
    for j in (0, 1, 50, len(eps) - 2):
        exact = Fraction(11, 10) ** j * Fraction(1, 10**14)
        assert abs(eps[j] / float(exact) - 1) < 1e-12


def front(mechanism: tb.Mechanism, largest: float, runs: int) -> kov.Front:
    eps = kov.grid(largest)[::-3][::-1]
    return kov.Front(eps, (mechanism * 1).curve(epsilons=eps, rtol=1e-3).upper, runs)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("mechanism", "largest"),
    [(tb.Gaussian(60.0), 0.3), (tb.Laplace(100.0), 0.0101), (tb.RandomizedResponse(0.52), 0.1)],
)
def test_a_curve_is_bounded_by_its_best_point(mechanism: tb.Mechanism, largest: float) -> None:
    k = 200
    best = front(mechanism, largest, k)
    for at in (0.0, 0.5, 1.5):
        bound = best.delta(at)
        assert bound.lower == 0.0
        assert bound.upper >= (mechanism * k).delta(at, 1e-3).lower
        pairs = list(zip(best.epsilons, best.deltas, strict=True))
        each = [kov.delta(e, d, k, at).upper for e, d in pairs]
        assert bound.upper == pytest.approx(min(each), rel=1e-12)
    for target in (1e-3, 1e-6):
        bound = best.epsilon(target)
        assert bound.upper >= (mechanism * k).epsilon(target, 1e-3).lower
        assert best.delta(bound.upper).upper <= target


def test_it_is_tight_for_randomised_response() -> None:
    """ "For the Laplace mechanism and randomized response, KOV is tight": of the latter exactly."""
    loss = math.log(0.6 / 0.4)
    best = kov.Front([loss * (1 + 1e-15)], [0.0], 64)
    assert best.delta(3.0).upper == pytest.approx(
        (tb.RandomizedResponse(0.6) * 64).delta(3.0).upper, rel=1e-8
    )


def test_points_that_another_beats_change_nothing() -> None:
    alone = kov.Front([0.1, 0.3], [1e-3, 1e-6], 50)
    more = kov.Front([0.1, 0.2, 0.3, 0.4], [1e-3, 1e-3, 1e-6, 1e-6], 50)
    for at in (0.0, 1.0, 4.0):
        assert more.delta(at) == alone.delta(at)
    assert more.epsilon(1e-2) == alone.epsilon(1e-2)
    assert alone.epsilon(1e-7) == tb.Bounds(0.0, math.inf)


# ------------------------------------------------------------------- what others publish


def test_what_google_publishes() -> None:
    """peers.md 41: the theorem's points at which 30 x (1, 0.001) meets a delta."""
    points = kov.points(1.0, 0.001, 30)
    assert min(e.upper for e, d in points if d.upper <= 0.06) == pytest.approx(22)
    assert min(e.upper for e, d in points if d.upper <= 0.1) == pytest.approx(20)
    assert kov.epsilon(1.0, 0.2, 1, 0.1).lower == math.inf
    # between its points the theorem's curve is a chord
    assert 20 < kov.epsilon(1.0, 0.001, 30, 0.06).lower <= 22


def test_table_1_of_the_second_paper() -> None:
    """peers' KOV, too: the fewest 0.1-DP mechanisms whose delta_1 is at most the given one."""
    for exponent, fewest in zip(range(5, 13), (16, 19, 23, 26, 30, 34, 37, 41), strict=True):
        assert kov.points(0.1, 0.0, fewest)[1][1].upper <= 10.0**-exponent
        assert kov.points(0.1, 0.0, fewest - 1)[1][1].lower > 10.0**-exponent


# ------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: kov.delta(-0.1, 0.0, 3, 1.0), "step_epsilon must be a finite number >= 0, got -0"),
        (lambda: kov.delta(0.1, 1.5, 3, 1.0), r"step_delta must be in \[0, 1\], got 1.5"),
        (lambda: kov.delta(0.1, 0.0, 0, 1.0), "runs must be an integer >= 1, got 0"),
        (lambda: kov.delta(0.1, 0.0, 2**33, 1.0), r"runs must be in \[1, 2\^32\], got 8589934592"),
        (lambda: kov.delta(0.1, 0.0, 3, math.nan), "epsilon must be a finite number >= 0, got nan"),
        (lambda: kov.epsilon(0.1, 0.0, 3, 2.0), r"delta must be in \[0, 1\], got 2.0"),
        (lambda: kov.points(0.1, 0.0, 2.0), "runs must be an integer >= 1, got 2.0"),  # type: ignore[arg-type]
        (lambda: kov.grid(0.0), "largest must be > 1e-14, got 0.0"),
        (lambda: kov.Front([], [], 3), "epsilons must hold at least one point"),
        (lambda: kov.Front([0.1], [0.1, 0.2], 3), r"as many entries as epsilons \(1\), got 2"),
        (lambda: kov.Front([0.2, 0.1], [0, 0], 3), r"epsilons\[1\] must be above epsilons\[0\]"),
        (lambda: kov.Front([0.2], [1.1], 3), r"deltas\[0\] must be in \[0, 1\], got 1.1"),
        (lambda: kov.Front([0.2], [0.1], 0), "runs must be an integer >= 1, got 0"),
        (lambda: kov.Front([0.2], [0.1], 3).delta(-1.0), "epsilon must be a finite number >= 0"),
        (lambda: kov.Front([0.2], [0.1], 3).epsilon(-1.0), r"delta must be in \[0, 1\], got -1.0"),
    ],
)
def test_refusals(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        ask()


def test_one_order_of_a_pair_is_not_enough() -> None:
    """The numbers of the module's docstring: a loss of 1/2 for certain, three times."""
    certain = tb.LossTable(0.5, (1, (1.0,), 0.0)) * 3
    assert round(certain.delta(0.9644).lower, 4) == round(-math.expm1(0.9644 - 1.5), 4) == 0.4147
    assert round(kov.delta(0.5, 0.0, 3, 0.9644).upper, 4) == 0.1
