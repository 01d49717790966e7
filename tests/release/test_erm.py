"""Linear models: prices by formula, the test's sensitivity, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.release.cases import PARTS
from tests.release.test_objective import data

import tightbudget as tb
from tightbudget.output_dp.amount import exact
from tightbudget.release.mechanisms import erm, objective
from tightbudget.release.mechanisms.erm import mean_error

TIGHT, PAPER = tb.release.GateSensitivity.TIGHT, tb.release.GateSensitivity.PAPER
GRID = [(n, 10.0**k) for n in (10, 100, 1000, 10**4, 10**5, 10**6) for k in range(-5, 3)]


@pytest.mark.parametrize(("n", "regularization"), GRID)
def test_four_times_less(n: int, regularization: float) -> None:
    """The error moves by 2 tanh(w / 4) at most: below w / 2, and far below 2 (e^w - 1)."""
    w = 2 / (n * Fraction(regularization))
    truth = 2 * math.tanh(float(w) / 4)
    tight, paper = TIGHT.bound(w), PAPER.bound(w)
    assert truth <= tight * (1 + Fraction(1, 2**50))
    if w <= Fraction(1, 2):  # the paper's is below 2, so it says something
        assert 4 * tight <= paper
        assert float(paper) == pytest.approx(2 * math.expm1(w), rel=1e-12)
        assert Fraction(paper) >= 2 * w
    if w <= Fraction(1, 50):
        assert 4 <= paper / tight <= 4.05
        assert float(tight) == pytest.approx(truth, rel=1e-4)
    assert tight <= paper <= 2


@pytest.mark.parametrize("w", [1e-6, 0.01, 0.3, 1.0, 5.0])
def test_the_tight_sensitivity_against_all_margins(w: float) -> None:
    u = np.linspace(-20, 20, 100_001)
    moved = np.abs(np.tanh((u + w) / 2) - np.tanh(u / 2)).max()
    assert moved <= TIGHT.bound(Fraction(w)) * (1 + 1e-9)
    assert moved == pytest.approx(2 * math.tanh(w / 4), rel=1e-3)


@pytest.mark.parametrize("loss", [tb.release.Loss.LOGISTIC])
@pytest.mark.parametrize(("n", "regularization"), [(5, 0.5), (50, 0.1), (400, 0.01)])
def test_the_error_moves_by_less_than_is_charged(
    loss: tb.release.Loss, n: int, regularization: float
) -> None:
    """Neighbouring parts, the same noise: of the training part, then of the test part."""
    perturbation = tb.release.OutputPerturbation(1.0, regularization, n, 3, loss)
    tested = tb.release.logistic_with_test(perturbation, 40, 1.0, 0.1)
    (x, y), (test_x, test_y) = data(n, 3, 3), data(40, 3, 4)
    other_y = np.concatenate([-y[:1], y[1:]])
    ends = [perturbation.objective.minimum(x, labels) for labels in (y, other_y)]
    assert tested.by_training is not None
    for shift in np.eye(3) * 2:  # as noise would
        errors = [mean_error(p + shift, test_x, test_y) for p in ends]
        assert abs(errors[0] - errors[1]) <= float(exact(by_training=tested.by_training))
    flipped = np.concatenate([-test_y[:1], test_y[1:]])
    moved = mean_error(ends[0], test_x, test_y) - mean_error(ends[0], test_x, flipped)
    assert abs(moved) <= float(exact(by_test=tested.by_test))


@pytest.mark.parametrize(("n", "regularization"), [(10, 1.0), (700, 0.01), (7000, 1e-4)])
@pytest.mark.parametrize("sensitivity", [TIGHT, PAPER])
@pytest.mark.parametrize(("epsilon", "test_epsilon"), [(1.0, 0.1), (0.1, 1.0)])
def test_prices_are_those_of_the_theorem(
    n: int, regularization: float, sensitivity: tb.release.GateSensitivity, epsilon: float,
    test_epsilon: float,
) -> None:  # fmt: skip
    perturbation = tb.release.OutputPerturbation(epsilon, regularization, n, 4)
    tested = tb.release.logistic_with_test(perturbation, 300, 0.5, test_epsilon, sensitivity)
    w = 2 / (n * regularization)
    moves = w / 2 if sensitivity is TIGHT else 2 * math.expm1(w)
    a = max(2 / 300, min(2.0, moves))
    value = max(epsilon, 2 / 300 / a * test_epsilon)
    assert float(tested.guarantee.price("value")) == pytest.approx(value, rel=3e-3)
    bottom = min(value, test_epsilon)
    assert float(tested.guarantee.price("bottom")) == pytest.approx(bottom, rel=3e-3)


@pytest.mark.parametrize("size", [1, 7, 30])
def test_the_noise_is_a_thousandth_wider_than_without_rounding(size: int) -> None:
    """In steps of its grid, per epsilon: 2 / (n Lambda), but for blocks."""
    perturbation = tb.release.OutputPerturbation(0.3, 0.01, 1000, size)
    steps = 1 / perturbation.noise.rate
    ideal = 2 / (1000 * 0.01 * 0.3) * math.sqrt(-(-size // 8))
    assert perturbation.grid.step is not None
    assert 1 <= float(steps) * perturbation.grid.step / ideal < 1.0011


@pytest.mark.parametrize("loss", [tb.release.Loss.LOGISTIC, tb.release.Loss.HUBER_SVM], ids=repr)
def test_with_little_noise_it_is_the_minimum(loss: tb.release.Loss) -> None:
    x, y = data(500, 4, 5)
    perturbation = tb.release.OutputPerturbation(1e5, 0.1, 500, 4, loss)
    found = perturbation.release((x, y), meter=tb.OutputDPFilter(1e5)).value
    np.testing.assert_allclose(found, perturbation.objective.minimum(x, y), atol=1e-4)


def test_a_model_lies_in_the_ball_that_holds_the_minimum() -> None:
    perturbation = tb.release.OutputPerturbation(1e-3, 0.1, 60, 2)
    found = perturbation.release(PARTS[0], meter=tb.OutputDPFilter(1)).value
    assert np.linalg.norm(found) <= perturbation.objective.radius * (1 + 1e-15)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ((PARTS[0][0][1:], PARTS[0][1][1:]), r"len\(rows\) must be 60, as was declared, got 59"),
        (
            (PARTS[0][0][:, :1], PARTS[0][1]),
            "rows must be a table of numbers with 2 columns, got 1",
        ),
        ((PARTS[0][0], PARTS[0][1][1:]), r"len\(labels\) must be 60, as was declared, got 59"),
        ((PARTS[0][0].astype(str), PARTS[0][1]), "rows must be a table of numbers with 2 columns"),
        ((PARTS[0][0], PARTS[0][1].astype(str)), "labels must be a column of numbers"),
        (PARTS[0][0], "data must be rows and labels, got ndarray"),
    ],
)
@pytest.mark.parametrize("part", [0, 1])
def test_other_types_and_shapes_are_refused_and_not_charged(
    part: int, broken: Any, said: str
) -> None:
    perturbation = tb.release.OutputPerturbation(1.0, 0.1, 60, 2)
    tested = tb.release.logistic_with_test(perturbation, 60, 2.0, 0.1)
    meter = tb.OutputDPFilter(1)
    parts = [PARTS[0], PARTS[0]]
    parts[part] = broken
    with pytest.raises(tb.ParameterError, match=f"^{said}"):
        tested.release((parts[0], parts[1]), meter=meter)
    if not part:
        with pytest.raises(tb.ParameterError, match=f"^{said}"):
            perturbation.release(broken, meter=meter)
    assert meter.left.epsilon == 1.0
    with pytest.raises(tb.ParameterError, match=r"^data must be two parts, got int"):
        tested.release(5, meter=meter)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "label", "counts_as"),
    [
        ([3.0, 4.0], 1, ([0.6, 0.8], 1)),
        ([3e200, 4e200], -1, ([0.6, 0.8], -1)),
        ([3e-200, 4e-200], -1, ([3e-200, 4e-200], -1)),
        ([1 + 2.0**-40, 0.0], 1, ([1 + 2.0**-40, 0.0], 1)),
        ([np.nan, 0.5], 1, ([0, 0], 1)),
        ([np.inf, 0.5], -1, ([0, 0], 1)),
        ([0.5, 0.5], 0.5, ([0, 0], 1)),
        ([0.5, 0.5], np.nan, ([0, 0], 1)),
    ],
)
def test_what_a_record_counts_as(row: Any, label: float, counts_as: Any) -> None:
    """Each by itself, whatever stands beside it; and what it counts as is never too long."""
    x, y = PARTS[0]
    rows, labels = erm._usable(np.vstack([x, [row]]), np.append(y, label))
    assert (rows[:-1] == x).all()
    assert (labels[:-1] == y).all()
    assert rows[-1].tolist() == pytest.approx(counts_as[0], rel=1e-15)
    assert labels[-1] == counts_as[1]
    assert np.linalg.norm(rows, axis=1).max() <= objective.LONGEST


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((0, 1.0, 10, 2), "epsilon must be a finite number > 0, got 0"),
        ((1, 0.0, 10, 2), "regularization must be a finite number > 0, got 0.0"),
        ((1, 1e-10, 10, 2), r"regularization must be in \[1e-9, 1e9\], got 1e-10"),
        ((1, 1.0, 0, 2), "records must be an integer >= 1, got 0"),
        ((1, 1.0, 10, 0), "features must be an integer >= 1, got 0"),
        ((1e-9, 1.0, 10, 2), r"scale must be in \(0, 2\^40"),
    ],
)
def test_refusals(given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(tb.ParameterError, match=said):
        tb.release.OutputPerturbation(*given)


def test_only_logistic_models_are_tested() -> None:
    svm = tb.release.OutputPerturbation(1.0, 0.1, 60, 2, tb.release.Loss.HUBER_SVM)
    with pytest.raises(tb.ParameterError, match=r"loss must be logistic .* got Huber SVM"):
        tb.release.logistic_with_test(svm, 40, 1.0, 0.1)
    with pytest.raises(tb.ParameterError, match="test_records must be an integer >= 1, got 0"):
        tb.release.logistic_with_test(tb.release.OutputPerturbation(1.0, 0.1, 60, 2), 0, 1.0, 0.1)
