"""The filter of declared mechanisms: all strategies in rationals, Gaussians, a run, refusals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import mpmath
import pytest

import tightbudget as tb
from tightbudget.errors import CalibrationError, ParameterError
from tightbudget.workflows import residue, residue_filter

# Masses under P and under Q of two mechanisms with a few outputs.
PAIRS = {
    "coin": [(Fraction(5, 8), Fraction(3, 8)), (Fraction(3, 8), Fraction(5, 8))],
    "lean": [(Fraction(1, 2), Fraction(1, 3)), (Fraction(1, 2), Fraction(2, 3))],
}
ITEMS = {
    name: tb.HistogramPair(
        tuple(float(24 * p) for p, _ in rows), tuple(float(24 * q) for _, q in rows)
    )
    for name, rows in PAIRS.items()
}


def worst(moves: Mapping[Any, Any], epsilon: float, reverse: bool) -> Fraction:
    """What the best strategy gains among the states, from all choices at all outputs."""
    with mpmath.workdps(50):
        price = Fraction(str(mpmath.exp(mpmath.mpf(epsilon))))

    def value(state: tuple[int, ...], a: Fraction, b: Fraction) -> Fraction:
        best = max(Fraction(0), a - price * b)
        for i, rows in enumerate(PAIRS.values()):
            after = tuple(count + (j == i) for j, count in enumerate(state))
            if after in moves:
                outputs = ((q, p) if reverse else (p, q) for p, q in rows)
                gain = sum((value(after, a * p, b * q) for p, q in outputs), Fraction(0))
                best = max(best, gain)
        return best

    return value((0, 0), Fraction(1), Fraction(1))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.1), (0.9, 0.1), (1.5, 0.02)])
def test_no_strategy_among_the_states_gains_more_than_delta(epsilon: float, delta: float) -> None:
    found = residue_filter(ITEMS, epsilon=epsilon, delta=delta)
    moves = found.workflow.moves
    exact = max(worst(moves, epsilon, reverse) for reverse in (False, True))
    assert len(moves) > 3
    assert Fraction(found.delta.lower) <= exact + Fraction(1, 10**40)
    assert exact <= Fraction(found.delta.upper) + Fraction(1, 10**40)
    assert found.delta.upper <= delta
    assert set(found.prices.values()) == {epsilon}
    assert set(found.prices) == set(found.workflow.ends)


def test_a_choice_that_would_cost_too_much_is_no_state() -> None:
    """Each state is covered by itself: without the free choice, there would be more of them."""
    epsilon, delta = 0.9, 0.1
    states = residue_filter(ITEMS, epsilon=epsilon, delta=delta).workflow.moves
    alone = {
        (i, j)
        for i, j in itertools.product(range(6), repeat=2)
        if (ITEMS["coin"] * i + ITEMS["lean"] * j).delta(epsilon).upper <= delta
    }
    assert set(states) < alone
    free = tb.workflows.Workflow(
        {
            (i, j): [
                (one, after)
                for one, after in zip(ITEMS.values(), ((i + 1, j), (i, j + 1)), strict=True)
                if after in alone
            ]
            for i, j in alone
        },
        start=(0, 0),
    )
    assert free.delta(epsilon).lower > delta


def test_gaussians_are_admitted_while_the_sum_of_squares_fits() -> None:
    """Which of them come next costs nothing there: a Gaussian of the same sum is as private."""
    found = residue_filter({"a": tb.Gaussian(8.0), "b": tb.Gaussian(16.0)}, epsilon=1, delta=1e-6)
    most = tb.calibrate(lambda sigma: tb.Gaussian(sigma), epsilon=1.0, delta=1e-6).value
    fits = {
        (i, j)
        for i, j in itertools.product(range(5), range(20))
        if i / 8**2 + j / 16**2 <= 1 / most**2
    }
    assert set(found.workflow.moves) == fits
    assert len(fits) == 36


def test_a_run_is_admitted_until_nothing_fits() -> None:
    found = residue_filter({"a": tb.Gaussian(8.0)}, epsilon=1.0, delta=1e-6)
    budget = tb.OutputDPFilter(epsilon=3.0, delta=1e-5)
    with tb.release.WorkflowRun(found, budget) as run:
        while run.moves:
            run.go(run.moves[0].to)
        with pytest.raises(ParameterError):
            run.go((4,))
    assert run.state == (3,)
    assert budget.spent.epsilon == 1.0


def test_who_walks_away_early_pays_the_same() -> None:
    found = residue_filter({"a": tb.Gaussian(8.0)}, epsilon=1.0, delta=1e-6)
    budget = tb.OutputDPFilter(epsilon=3.0, delta=1e-5)
    with tb.release.WorkflowRun(found, budget) as run:
        run.go((1,))
    assert budget.spent.epsilon == 1.0


def test_an_item_whose_losses_are_below_epsilon_runs_beside_a_delta_of_nothing() -> None:
    found = residue_filter({"a": tb.Laplace(1.0)}, epsilon=1.0, delta=1e-9)
    assert found.workflow.ends == ((1,),)
    assert found.delta.upper <= 1e-9


@pytest.mark.parametrize(
    ("items", "epsilon", "delta", "message"),
    [
        ({}, 1.0, 1e-6, "items must have at least one mechanism, got none"),
        ([tb.Gaussian(1.0)], 1.0, 1e-6, "items must map names to mechanisms"),
        ({"a": 3}, 1.0, 1e-6, r"items\['a'\] must be a mechanism or a composition, got 3"),
        ({"a": tb.Gaussian(1.0)}, -1.0, 1e-6, "epsilon must be a finite number >= 0, got -1.0"),
        ({"a": tb.Gaussian(1.0)}, math.nan, 1e-6, "epsilon must be a finite number >= 0, got nan"),
        ({"a": tb.Gaussian(1.0)}, 1.0, 0.0, r"delta must be in \(0, 1\), got 0.0"),
    ],
)
def test_refusals(items: Any, epsilon: float, delta: float, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        residue_filter(items, epsilon=epsilon, delta=delta)


def test_too_many_states_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residue, "_MOST_STATES", 20)
    with pytest.raises(ParameterError, match="items must have at most 20 states, got 21"):
        residue_filter({"a": tb.Gaussian(1e3)}, epsilon=1.0, delta=1e-6)


def test_a_filter_that_admits_nothing_is_refused() -> None:
    with pytest.raises(CalibrationError, match="no item can run once"):
        residue_filter({"a": tb.Gaussian(0.5)}, epsilon=1.0, delta=1e-6)
