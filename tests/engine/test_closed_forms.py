"""One run with a formula: the answer is certified by it, and no engine is closer."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from tests.cases import CASES, Case

import tightbudget as tb
from tightbudget.engine.methods import ByVariation, ClosedForm, Inquiry
from tightbudget.engine.question import EpsilonAt
from tightbudget.pairs.pair import Pair

SAMPLED = [
    Case("gaussian-sampled", tb.Gaussian(1.0).subsampled(0.01)),
    Case("gaussian-half-sampled", tb.Gaussian(3.0).subsampled(0.5)),
    Case("laplace-sampled", tb.Laplace(1.0).subsampled(0.1)),
]
cases = pytest.mark.parametrize("case", [*CASES, *SAMPLED], ids=lambda case: case.name)


@cases
@pytest.mark.slow
def test_a_formula_is_as_close_as_the_engines(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for epsilon in (0.0, 0.01, 0.7, 3.0):
        run = case.mechanism * 1
        told = run.answer(epsilon=epsilon, rtol=1e-4)
        if told.method != "closed form":
            continue
        with monkeypatch.context() as without:
            without.setattr(ClosedForm, "bounds", lambda *_: None)
            without.setattr(tb.mechanisms.Allocated, "by_formula", lambda *_: None)
            engine = (case.mechanism * 1).answer(epsilon=epsilon, rtol=1e-4)
        assert told.bounds.overlaps(engine.bounds)
        assert told.bounds.width <= engine.bounds.width * (1 + 1e-9)


@pytest.mark.parametrize("case", SAMPLED, ids=lambda case: case.name)
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 2.0])
def test_one_sampled_run_is_answered_by_its_formula(case: Case, epsilon: float) -> None:
    told = (case.mechanism * 1).answer(epsilon=epsilon, rtol=1e-9)
    beyond = told.bounds.upper == 0.0  # the largest loss is passed: nothing is left
    assert told.method == "closed form"
    assert beyond or told.bounds.relative_gap < 1e-9
    assert (case.mechanism * 2).answer(epsilon=epsilon, rtol=1e-3).method != "closed form"


def test_a_whole_gaussian_is_answered_by_lines() -> None:
    assert (tb.Gaussian(100.0) * 1).answer(epsilon=0.1, rtol=1e-9).method == "saddle-point"


MANY = {
    "sampled": tb.Laplace(1.0).subsampled(0.01) * 2 + tb.Laplace(2.0).subsampled(0.01),
    "two mechanisms": tb.Laplace(40.0) * 2 + tb.Gaussian(50.0) * 3,
    "logistic": tb.Logistic(60.0) * 4 + tb.Laplace(80.0),
}


def _variations(pairs: Iterable[tuple[Pair, int]]) -> float:
    """The sum over all runs of upper bounds of delta(0)."""
    total = 0.0
    for pair, count in pairs:
        ends = pair.closed_delta(0.0)
        assert ends is not None
        total += count * ends[1]
    return total


@pytest.mark.parametrize("run", MANY.values(), ids=MANY)
def test_an_epsilon_is_zero_where_delta_covers_the_variation_of_each_run(
    run: tb.Composition, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = max(_variations(pairs) for pairs in run.engine.pairs)
    told = run.answer(delta=whole * (1 + 1e-12))
    assert (told.bounds.lower, told.bounds.upper) == (0.0, 0.0)
    assert told.method == "closed form"
    # a composition has less variation than its runs together, and that is left to the engines
    exact = run.delta(0.0)
    assert exact.upper < whole
    assert run.answer(delta=0.9 * exact.lower).bounds.lower > 0.0
    monkeypatch.setattr(ByVariation, "bounds", lambda *_: None)
    assert run.answer(delta=whole * (1 + 1e-12)).bounds.lower == 0.0


def test_a_sum_of_variations_is_not_below_the_exact_one() -> None:
    """Of two runs of which one says nothing, delta(0) is 1 - e^(-1/2), and so is the sum."""
    run = tb.Laplace(1.0) + tb.Laplace(1e100)
    exact = -math.expm1(-0.5)
    method = ByVariation(run.engine.pairs)
    assert method.bounds(Inquiry(EpsilonAt(exact * (1 - 1e-14)), 1e-4)) is None
    assert method.bounds(Inquiry(EpsilonAt(exact * (1 + 1e-14)), 1e-4)) is not None


def test_no_delta_below_the_variation_is_covered() -> None:
    """Of k equal Gaussians delta(0) is that of one: 2 Phi(m / 2) - 1, where m is root k / sigma.

    Half the root of chi-square is e^(m^2 / 2) times more than half of m at most, and delta(0) is
    nearly .4 m.
    """
    run = tb.compose([tb.Gaussian(100.0 + i / 1000) * 1 for i in range(100)])
    most = math.erf(0.1 / (2 * math.sqrt(2)))  # of the least noise alone
    least = math.erf(0.0999 / (2 * math.sqrt(2)))
    method = ByVariation(run.engine.pairs)
    assert method.bounds(Inquiry(EpsilonAt(least), 1e-4)) is None
    found = method.bounds(Inquiry(EpsilonAt(1.3 * most), 1e-4))
    assert found is not None
    assert found.bounds.upper == 0.0
    # a sum of variations is ten times as large
    assert _variations(run.engine.pairs[0]) > 9 * most


def test_some_variations_are_summed_and_others_not() -> None:
    """Rare large losses add up, and many small ones add up by their squares."""
    rare = tb.Gaussian(0.3).subsampled(1e-3)
    run = tb.compose([rare] * 5 + [tb.Gaussian(700.0 + i) * 1 for i in range(60)])
    exact = run.delta(0.0)
    method = ByVariation(run.engine.pairs)
    assert method.bounds(Inquiry(EpsilonAt(exact.lower * (1.0 - 1e-6)), 1e-4)) is None
    # neither all variations, nor the divergence of all, is as small
    assert max(_variations(pairs) for pairs in run.engine.pairs) > 4.0 * exact.upper
    assert 0.5 * math.sqrt(math.expm1(run.renyi(2.0).lower)) > 4.0 * exact.upper
    told = method.bounds(Inquiry(EpsilonAt(1.6 * exact.upper), 1e-4))
    assert told is not None
    assert told.bounds.upper == 0.0


def test_a_small_chi_square_answers_a_schedule_before_any_grid() -> None:
    run = tb.compose(
        [tb.Gaussian(8.75 - 5.25 * i / 113).subsampled(9.46e-8) * 71 for i in range(114)]
    )
    told = run.answer(delta=5.62e-6)
    assert told.method == "closed form"
    assert told.bounds.upper == 0.0


def test_half_the_root_of_chi_square_is_rounded_up() -> None:
    """A Gaussian with more noise is dominated, and E_P[e^L] of k runs of one is e^(k m^2)."""
    run = tb.Gaussian(100.0) * 200 + tb.Gaussian(math.nextafter(100.0, 200.0))
    exact = 0.5 * math.sqrt(math.expm1(201 * 1e-4))
    method = ByVariation(run.engine.pairs)
    assert method.bounds(Inquiry(EpsilonAt(exact * (1 - 1e-14)), 1e-4)) is None
    assert method.bounds(Inquiry(EpsilonAt(exact * (1 + 1e-12)), 1e-4)) is not None
