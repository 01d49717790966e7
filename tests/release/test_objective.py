"""The minimum that is found, against the true one, and how far it moves."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest

import tightbudget as tb
from tightbudget.release.mechanisms.objective import Loss, Objective

LOSSES = [tb.release.Loss.LOGISTIC, tb.release.Loss.HUBER_SVM]
losses = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def data(n: int, d: int, seed: int) -> tuple[Any, Any]:
    """Rows of length 1 that lie anywhere, with labels that are not all predictable."""
    angles = np.sin(np.arange(1, n * d + 1) * (seed + 0.7)).reshape(n, d)
    rows = angles / (np.linalg.norm(angles, axis=1, keepdims=True) * (1 + 2.0**-52))
    return rows, np.where(np.sin(np.arange(n) * 2.3 + seed) + rows[:, 0] > 0, 1.0, -1.0)


@losses
@pytest.mark.parametrize("regularization", [1e-5, 1e-3, 0.1, 1.0, 100.0])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 2), (200, 5), (2000, 20)])
def test_a_replaced_record_moves_it_by_at_most_the_sensitivity(
    loss: Loss, regularization: float, n: int, d: int
) -> None:
    objective = Objective(loss, regularization, n, d)
    x, y = data(n, d, 1)
    first = objective.minimum(x, y)
    assert np.linalg.norm(first) <= objective.radius
    for record in (0, n // 2):
        other_x, other_y = x.copy(), y.copy()
        other_x[record], other_y[record] = -x[record] if record else x[record], -y[record]
        moved = np.linalg.norm(objective.minimum(other_x, other_y) - first)
        assert moved <= float(objective.sensitivity)
    assert objective.sensitivity <= Fraction(101, 100) * 2 / (n * Fraction(regularization))


def test_the_sensitivity_is_reached() -> None:
    """One record whose slope is -1 wherever the minimum may lie."""
    objective = Objective(tb.release.Loss.HUBER_SVM, 4.0, 1, 1)
    one = np.ones((1, 1))
    apart = objective.minimum(one, np.ones(1)) - objective.minimum(one, -np.ones(1))
    assert apart[0] == pytest.approx(2 / 4.0, rel=2e-3)
    assert apart[0] <= objective.sensitivity


@pytest.mark.parametrize("regularization", [1e-4, 1e-2, 0.5, 30.0])
def test_the_minimum_of_one_record_is_within_the_tolerance(regularization: float) -> None:
    """Lambda p = 1 / (1 + e^p), solved in 200 bits."""
    objective = Objective(tb.release.Loss.LOGISTIC, regularization, 1, 1)
    found = objective.minimum(np.ones((1, 1)), np.ones(1))[0]
    with flint.ctx.workprec(200):
        low, high = flint.arb(0), flint.arb(1) / flint.arb(regularization)
        for _ in range(150):
            middle = (low + high) / 2
            middle = flint.arb(middle.mid())
            above = flint.arb(regularization) * middle * (1 + middle.exp()) > 1
            low, high = (low, middle) if above else (middle, high)
        assert abs(flint.arb(found) - low) < float(objective.tolerance)


@losses
def test_the_gradient_is_as_exact_as_is_said(loss: Loss) -> None:
    """Against the same in long doubles, where the parameters are as large as they may be."""
    objective = Objective(loss, 1e-3, 500, 7)
    x, y = data(500, 7, 2)
    p = np.sin(np.arange(7.0))
    p *= 2 * objective.radius / np.linalg.norm(p)
    plain, long = (
        _gradient(objective, x.astype(kind), y.astype(kind), p.astype(kind), kind)
        for kind in (np.float64, np.longdouble)
    )
    assert float(np.linalg.norm((plain - long).astype(np.float64))) <= objective.rounding


def _gradient(objective: Objective, x: Any, y: Any, p: Any, kind: Any) -> Any:
    z = y * (x @ p)
    if objective.loss is tb.release.Loss.LOGISTIC:
        slopes = -1 / (1 + np.exp(z)) if kind is np.longdouble else objective.loss.slope(z)
    else:
        slopes = np.clip(z - kind(1.5), -1, 0)
    return x.T @ (y * slopes) / kind(len(y)) + kind(objective.regularization) * p


@losses
def test_losses_meet_the_theorem(loss: Loss) -> None:
    """|l'| <= 1, l' ascending, and by no more than the curvature; l'' between 0 and it."""
    z = np.linspace(-60.0, 60.0, 200_001)
    slope = loss.slope(z)
    rises = np.diff(slope) / np.diff(z)
    assert (np.abs(slope) <= 1).all()
    assert (rises >= 0).all()
    assert (rises <= loss.curvature * (1 + 1e-9)).all()
    assert rises.max() == pytest.approx(loss.curvature, rel=1e-3)
    assert (loss.bend(z) >= 0).all()
    assert (loss.bend(z) <= loss.curvature).all()


def test_a_gradient_that_does_not_shrink_is_told() -> None:
    broken = Loss("broken", lambda z: np.where(z > 0, 1.0, -1.0) * np.nan, np.zeros_like, 0.25)
    with pytest.raises(ArithmeticError, match="the gradient does not shrink"):
        Objective(broken, 1.0, 1, 1).minimum(np.ones((1, 1)), np.ones(1))
