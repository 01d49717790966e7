"""The estimator: scikit-learn's own checks, what it refuses, what it charges."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import tightbudget as tb


class Paid(tb.PrivateLogisticRegression):
    """With a meter of its own for each fit, as scikit-learn's checks know of none."""

    def fit(self, X: Any, y: Any) -> Any:  # type: ignore[override]
        return super().fit(X, y, meter=tb.OutputDPOdometer())


@parametrize_with_checks(
    [Paid(epsilon=1e4, regularization=1e-3, clip=True)],
    expected_failed_checks=lambda _: {"check_fit_idempotent": "the noise is drawn anew"},
)
def test_estimator_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def rows(n: int = 400) -> tuple[Any, Any]:
    """Points on a circle, and on which side of it they lie."""
    angles = np.arange(n) * 2.0
    return np.column_stack([np.cos(angles), np.sin(angles)]) * 0.99, np.where(
        np.cos(angles) > 0, "yes", "no"
    )


def test_it_learns() -> None:
    x, y = rows()
    model = tb.PrivateLogisticRegression(5.0, 0.05).fit(x, y, meter=tb.OutputDPFilter(5))
    assert model.score(x, y) > 0.9
    assert list(model.classes_) == ["no", "yes"]
    assert model.coef_.shape == (1, 2)
    chances = model.predict_proba(x)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
    assert ((chances[:, 1] > 0.5) == (model.predict(x) == "yes")).all()


@pytest.mark.parametrize("kind", ["tight", "paper"])
def test_what_is_released_and_what_is_not(kind: str) -> None:
    x, y = rows(4000)
    for threshold, cell, price in ((20.0, "value", 1), (-20.0, "bottom", Fraction(1, 10))):
        meter = tb.OutputDPFilter(1)
        model = tb.PrivateLogisticRegression(
            1.0, 0.05, threshold=threshold, test_sensitivity=kind
        ).fit(x, y, meter=meter)
        assert model.release_.cell == cell
        assert meter._spent.counted == price


def test_without_a_model_there_is_nothing_to_predict_with() -> None:
    x, y = rows(4000)
    model = tb.PrivateLogisticRegression(1.0, 0.05)
    model.fit(x, y, meter=tb.OutputDPFilter(1))
    model.set_params(threshold=-20.0).fit(x, y, meter=tb.OutputDPFilter(1))
    assert not hasattr(model, "coef_")
    with pytest.raises(NotFittedError, match="the test released no model"):
        model.predict(x)


@pytest.mark.parametrize(
    ("changes", "most", "least"),
    [
        ({}, 0.5, 0.5),
        ({"threshold": 1.0}, 0.5, 0.25),
        ({"threshold": 1.0, "test_epsilon": 2.0}, 2.0, 2.0),
    ],
)
def test_what_a_fit_would_cost(changes: dict[str, Any], most: float, least: float) -> None:
    model = tb.PrivateLogisticRegression(0.5, **{"test_epsilon": 0.25} | changes)
    meter = tb.OutputDPFilter(1)
    answer = model.what_if(meter)
    assert (answer.most.epsilon, answer.least.epsilon) == (most, least)
    assert answer.fits == (most <= 1)
    assert meter.left.epsilon == 1.0
    x, y = rows(100)
    paid = tb.OutputDPOdometer()
    model.fit(x, y, meter=paid)
    assert paid.spent.epsilon <= most


def test_a_refit_that_is_refused_leaves_the_model_as_it_was() -> None:
    x, y = rows()
    meter = tb.OutputDPFilter(1)
    model = tb.PrivateLogisticRegression(1.0, 0.05).fit(x, y, meter=meter)
    before = model.predict(x)
    with pytest.raises(tb.BudgetError):
        model.fit(x, np.where(y == "no", "up", "down"), meter=meter)
    assert list(model.classes_) == ["no", "yes"]
    assert (model.predict(x) == before).all()


@pytest.mark.parametrize("classes", [("a",), ("a", "a"), "ab", 5, ("a", "b", "c")])
def test_classes_are_two(classes: Any) -> None:
    meter = tb.OutputDPFilter(1)
    with pytest.raises(tb.ParameterError, match=r"^classes must be two different labels, got "):
        tb.PrivateLogisticRegression(classes=classes).fit(*rows(), meter=meter)
    assert meter.left.epsilon == 1.0


def test_classes_say_which_label_is_which() -> None:
    x, y = rows()
    for classes in (("no", "yes"), ("yes", "no")):
        model = tb.PrivateLogisticRegression(1e5, 0.05, classes=classes)
        model.fit(x, y, meter=tb.OutputDPFilter(1e5))
        assert list(model.classes_) == [*classes]
        assert model.score(x, y) > 0.9


def test_new_rows_with_missing_numbers_have_no_side() -> None:
    x, y = rows()
    model = tb.PrivateLogisticRegression(5.0, 0.05).fit(x, y, meter=tb.OutputDPFilter(5))
    odd = np.array([[np.nan, 0.5], [0.5, np.inf]])
    assert model.decision_function(odd).tolist() == [0, 0]


def test_a_fit_needs_a_meter() -> None:
    with pytest.raises(TypeError, match="meter"):
        tb.PrivateLogisticRegression().fit(*rows())  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": 0.0}, "epsilon must be a finite number > 0, got 0.0"),
        ({"regularization": np.nan}, "regularization must be a finite number > 0, got nan"),
        ({"threshold": np.inf}, "threshold must be a finite number, got inf"),
        ({"threshold": 1.0, "test_epsilon": -1}, "test_epsilon must be a finite number > 0"),
        ({"threshold": 1.0, "test_fraction": 1.0}, "test_fraction must be in (0, 1), got 1.0"),
        ({"threshold": 1.0, "test_fraction": 1e-3}, "test_fraction must leave records to both"),
        ({"threshold": 1.0, "test_sensitivity": "no"}, "test_sensitivity must be one of tight"),
    ],
)
def test_refusals(changes: dict[str, Any], said: str) -> None:
    meter = tb.OutputDPFilter(1)
    with pytest.raises(tb.ParameterError) as caught:
        tb.PrivateLogisticRegression(**changes).fit(*rows(), meter=meter)
    assert said in str(caught.value)
    assert meter.left.epsilon == 1.0


def test_long_rows_are_refused_or_shortened() -> None:
    x, y = rows()
    meter = tb.OutputDPFilter(1)
    with pytest.raises(tb.ParameterError, match="rows must have a 2-norm of at most 1; clip=True"):
        tb.PrivateLogisticRegression(clip=False).fit(x * 3, y, meter=meter)
    assert meter.left.epsilon == 1.0
    tb.PrivateLogisticRegression().fit(x * 3, y, meter=meter)
    assert meter.left.epsilon == 0.0


def test_labels_of_another_number_of_kinds() -> None:
    x, _ = rows(6)
    for labels, said in (([1] * 6, "got 1 class$"), ([1, 2, 3] * 2, "got 3 classes$")):
        with pytest.raises(tb.ParameterError, match=f"labels must be of two kinds, {said}"):
            tb.PrivateLogisticRegression().fit(x, labels, meter=tb.OutputDPFilter(1))


def test_in_a_pipeline_and_pickled() -> None:
    x, y = rows()
    meter = tb.OutputDPFilter(2)
    pipe = make_pipeline(FunctionTransformer(), clone(tb.PrivateLogisticRegression(1.0)))
    pipe.fit(x, y, privatelogisticregression__meter=meter)
    assert meter.left.epsilon == 1.0
    again = pickle.loads(pickle.dumps(pipe))
    assert (again.predict(x) == pipe.predict(x)).all()


def test_a_fit_that_is_refused_leaves_the_model_as_it_was() -> None:
    x, y = rows()
    model = tb.PrivateLogisticRegression(1.0).fit(x, y, meter=tb.OutputDPFilter(1))
    before = dict(vars(model))
    wider = np.column_stack([x, np.zeros(len(x))])
    others = np.where(y == "yes", "certainly", "never")
    for features, labels, meter in (
        (x, others, tb.OutputDPFilter(0.5)),
        (wider, y, tb.OutputDPFilter(0.5)),
        (x, np.arange(len(x)) % 3, tb.OutputDPFilter(1)),
        (wider, np.zeros(len(x)), tb.OutputDPFilter(1)),
    ):
        with pytest.raises((tb.BudgetError, tb.ParameterError)):
            model.fit(features, labels, meter=meter)
        assert vars(model) == before
    assert set(model.predict(x)) == {"no", "yes"}
    model.fit(wider, others, meter=tb.OutputDPFilter(1))
    assert model.coef_.shape == (1, 3)
    assert list(model.classes_) == ["certainly", "never"]
