"""The estimator: scikit-learn's own checks, what it refuses, what it charges."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import (
    check_estimator,
    check_methods_sample_order_invariance,
    check_methods_subset_invariance,
    check_pipeline_consistency,
    parametrize_with_checks,
)
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.release.default_meter import default_meter
from tightbudget.release.rehearsal import rehearsal

# so little noise that two fits agree to the last digit: some checks compare them
QUIET: dict[str, Any] = {"epsilon": 1e9, "regularization": 1e-3}


class Repeatable(tb.release.PrivateLogisticRegression):
    """Says that its fits agree, so that scikit-learn skips no check."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = False
        return tags


@pytest.mark.one_in(3)
@parametrize_with_checks([tb.release.PrivateLogisticRegression(**QUIET)])
def test_estimator_checks(estimator: Any, check: Any) -> None:
    """Every check of scikit-learn passes; it calls fit(X, y), and a default meter pays."""
    with default_meter(tb.OutputDPOdometer()):
        check(estimator)


@pytest.mark.parametrize(
    "check",
    [
        check_methods_sample_order_invariance,
        check_methods_subset_invariance,
        check_pipeline_consistency,
    ],
)
def test_checks_that_are_left_out_for_random_estimators(check: Callable[..., None]) -> None:
    with default_meter(tb.OutputDPOdometer()):
        check("Repeatable", Repeatable(**QUIET))


def test_checks_without_a_meter_fit_nothing() -> None:
    answers = check_estimator(
        tb.release.PrivateLogisticRegression(**QUIET), on_fail=None, on_skip=None
    )
    said = [str(answer["exception"]) for answer in answers if answer["status"] == "failed"]
    assert sum("meter must be a budget that pays, got None" in text for text in said) > 20


def rows(n: int = 400) -> tuple[Any, Any]:
    """Points on a circle, and on which side of it they lie."""
    angles = np.arange(n) * 2.0
    return np.column_stack([np.cos(angles), np.sin(angles)]) * 0.99, np.where(
        np.cos(angles) > 0, "yes", "no"
    )


def test_it_learns() -> None:
    x, y = rows()
    model = tb.release.PrivateLogisticRegression(5.0, 0.05).fit(x, y, meter=tb.OutputDPFilter(5))
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
        model = tb.release.PrivateLogisticRegression(
            1.0, 0.05, threshold=threshold, test_sensitivity=kind
        ).fit(x, y, meter=meter)
        assert model.release_.cell == cell
        assert meter._spent.counted == price


def test_without_a_model_there_is_nothing_to_predict_with() -> None:
    x, y = rows(4000)
    model = tb.release.PrivateLogisticRegression(1.0, 0.05)
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
    model = tb.release.PrivateLogisticRegression(0.5, **{"test_epsilon": 0.25} | changes)
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
    model = tb.release.PrivateLogisticRegression(1.0, 0.05).fit(x, y, meter=meter)
    before = model.predict(x)
    with pytest.raises(tb.errors.BudgetError):
        model.fit(x, np.where(y == "no", "up", "down"), meter=meter)
    assert list(model.classes_) == ["no", "yes"]
    assert (model.predict(x) == before).all()


@pytest.mark.parametrize("classes", [("a",), ("a", "a"), "ab", 5, ("a", "b", "c")])
def test_classes_are_two(classes: Any) -> None:
    meter = tb.OutputDPFilter(1)
    with pytest.raises(tb.ParameterError, match=r"^classes must be two different labels, got "):
        tb.release.PrivateLogisticRegression(classes=classes).fit(*rows(), meter=meter)
    assert meter.left.epsilon == 1.0


def test_classes_say_which_label_is_which() -> None:
    x, y = rows()
    for classes in (("no", "yes"), ("yes", "no")):
        model = tb.release.PrivateLogisticRegression(1e5, 0.05, classes=classes)
        model.fit(x, y, meter=tb.OutputDPFilter(1e5))
        assert list(model.classes_) == [*classes]
        assert model.score(x, y) > 0.9


def test_new_rows_with_missing_numbers_have_no_side() -> None:
    x, y = rows()
    model = tb.release.PrivateLogisticRegression(5.0, 0.05).fit(x, y, meter=tb.OutputDPFilter(5))
    odd = np.array([[np.nan, 0.5], [0.5, np.inf]])
    assert model.decision_function(odd).tolist() == [0, 0]


# ------------------------------------------------------------------------- who pays


def test_a_fit_needs_a_meter() -> None:
    model = tb.release.PrivateLogisticRegression()
    with pytest.raises(tb.ParameterError) as caught:
        model.fit(*rows())
    assert str(caught.value) == (
        "meter must be a budget that pays, got None: pass meter=budget, or use `with "
        "default_meter(budget):` of tightbudget.adapters.sklearn, which another thread or process "
        "does not see"
    )
    assert not hasattr(model, "release_")


def test_a_default_meter_pays_in_its_block_alone() -> None:
    outer, inner, named = tb.OutputDPFilter(9), tb.OutputDPFilter(9), tb.OutputDPFilter(9)
    model, data = tb.release.PrivateLogisticRegression(1.0), rows(20)

    def fit_and_fail() -> None:
        with default_meter(inner):
            model.fit(*data)
            model.fit(*data, meter=named)
            raise ZeroDivisionError

    with default_meter(outer):
        model.fit(*data)
        with pytest.raises(ZeroDivisionError):
            fit_and_fail()
        model.fit(*data)
    with pytest.raises(tb.ParameterError, match="got None"):
        model.fit(*data)
    assert [meter.left.epsilon for meter in (outer, inner, named)] == [7, 8, 8]


def test_another_thread_does_not_spend_the_default_meter() -> None:
    meter = tb.OutputDPFilter(1)
    with default_meter(meter), ThreadPoolExecutor(1) as pool:
        fit = pool.submit(tb.release.PrivateLogisticRegression(1.0).fit, *rows(20))
        with pytest.raises(tb.ParameterError, match="which another thread or process does not see"):
            fit.result()
    assert meter.left.epsilon == 1.0


@pytest.mark.parametrize("meter", [None, 1.0, tb.OutputDPFilter], ids=["None", "number", "class"])
def test_a_default_meter_is_a_budget(meter: Any) -> None:
    with pytest.raises(tb.ParameterError, match=r"^meter must be a budget "), default_meter(meter):
        raise AssertionError


def test_a_default_meter_of_a_ledger_has_a_key(tmp_path: Path) -> None:
    with tb.Ledger(f"sqlite:///{tmp_path / 'a.db'}") as ledger:
        ada = ledger.open_budget("ada", epsilon=1)
        with pytest.raises(tb.ParameterError, match="a LedgerBudget without one"):
            default_meter(ada).__enter__()  # type: ignore[arg-type]
        with default_meter(ada.keyed("A7")):
            tb.release.PrivateLogisticRegression(0.25).fit(*rows(20))
        assert ada.left.epsilon == 0.75


def test_a_fitted_model_keeps_no_meter() -> None:
    with default_meter(tb.OutputDPFilter(1)):
        model = tb.release.PrivateLogisticRegression(1.0).fit(*rows(20))
    again = pickle.loads(pickle.dumps(model))
    assert (again.coef_ == model.coef_).all()
    with pytest.raises(tb.ParameterError, match="got None"):
        again.fit(*rows(20))


@pytest.mark.parametrize("passed_on", [True, False])
def test_metadata_routing_asks_for_the_meter(passed_on: bool) -> None:
    meter = tb.OutputDPFilter(9)
    with config_context(enable_metadata_routing=True):
        model = tb.release.PrivateLogisticRegression(1.0)
        if passed_on:
            model.set_fit_request(meter=True)
        pipe = make_pipeline(FunctionTransformer(), model)
        with nullcontext() if passed_on else pytest.raises(UnsetMetadataPassedError, match="meter"):
            pipe.fit(*rows(20), meter=meter)
    assert meter.left.epsilon == 9 - passed_on


# ------------------------------------------------------------------------- a rehearsal


@pytest.mark.parametrize(
    ("changes", "cost", "most"),
    [
        ({}, 0.5, 0.5),
        ({"threshold": 20.0}, 0.5, 0.5),
        ({"threshold": -20.0}, 0.25, 0.5),
        ({"threshold": -20.0, "test_epsilon": 1.0}, 0.5, 0.5),  # a record is in one part alone
        ({"classes": ("no", "yes")}, 0.5, 0.5),
    ],
)
def test_a_rehearsal_says_what_a_fit_would_cost(
    changes: dict[str, Any], cost: float, most: float
) -> None:
    model = tb.release.PrivateLogisticRegression(0.5, 0.05, **{"test_epsilon": 0.25} | changes)
    before = dict(vars(model))
    said = model.rehearse(*rows())
    assert vars(model) == before
    assert (said.cost.epsilon, said.most.epsilon) == (cost, most)
    meter = tb.OutputDPOdometer()
    model.fit(*rows(), meter=meter)
    assert said.cell == model.release_.cell
    assert meter.spent == said.cost


def test_a_rehearsal_sees_what_a_fit_counts_as_zeros() -> None:
    x, y = rows(20)
    model = tb.release.PrivateLogisticRegression(classes=(0, 1))
    for features, labels in ((x, y), (x * np.nan, y == "yes")):
        with pytest.raises(tb.ParameterError) as caught:
            model.rehearse(features, labels)
        assert str(caught.value) == (
            "no record has finite numbers alone and a label of classes [0, 1]: a fit would count "
            "each as a row of zeros"
        )
        model.fit(features, labels, meter=tb.OutputDPFilter(1))  # a paid fit does not tell


class Hostile:
    """A label that raises where it is compared."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError("seen")


def test_a_rehearsal_raises_the_error_that_a_fit_hides() -> None:
    x, y = rows(20)
    model = tb.release.PrivateLogisticRegression(1.0, classes=("no", "yes"))
    labels = [*y[:-1], Hostile()]
    with pytest.raises(ZeroDivisionError, match="seen"):
        model.rehearse(x, labels)
    model.fit(x, labels, meter=tb.OutputDPFilter(1))
    with pytest.raises(tb.ParameterError, match="X must be a table of numbers"):
        model.rehearse(x.astype(str), y)
    with pytest.raises(tb.ParameterError, match="epsilon must be a finite number > 0, got -1"):
        tb.release.PrivateLogisticRegression(-1).rehearse(x, y)


def a_paid_fit_within_a_rehearsal_tells_nothing() -> bool:
    """Only the price shows that private data without any record to read were fitted."""
    x, y = rows(20)
    model, meter = tb.release.PrivateLogisticRegression(classes=("no", "yes")), tb.OutputDPFilter(2)
    with rehearsal():
        try:
            model.fit(x * np.nan, y, meter=meter)
            model.fit(x, [*y[:-1], Hostile()], meter=meter)
        except (tb.ParameterError, ZeroDivisionError):
            return False
    return meter.spent.epsilon == 2.0


def test_a_paid_fit_within_a_rehearsal_tells_nothing() -> None:
    assert a_paid_fit_within_a_rehearsal_tells_nothing()


# --------------------------------------------------- types are refused, values are not

# from rows of objects, of which one may hold a text, to a container that has a type by itself
CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda rows: rows.tolist(),
    "tuples": lambda rows: [*map(tuple, rows.tolist())],
    "objects": lambda rows: rows,
    "texts": lambda rows: rows.astype("U9"),
    "bytes": lambda rows: rows.astype("S9"),
    "pandas-objects": lambda rows: pd.DataFrame(rows),
    "pandas-string": lambda rows: pd.DataFrame(rows.astype(str)).astype("string"),
    "pandas-str": lambda rows: pd.DataFrame(rows.astype(str), dtype="str"),
    "pandas-category": lambda rows: pd.DataFrame(rows).astype("category"),
    "polars-string": lambda rows: pl.DataFrame(rows.astype(str), schema=["a", "b"]),
    "polars-category": lambda rows: pl.DataFrame(rows.astype(str), schema=["a", "b"]).cast(
        pl.Categorical
    ),
    "polars-object": lambda rows: pl.DataFrame(
        {
            "a": pl.Series([*rows[:, 0]], dtype=pl.Object),
            "b": pl.Series([*rows[:, 1]], dtype=pl.Object),
        }
    ),
}
ODD = ["n/a", "0.5", None, float("nan"), 1e400]


def outcome(call: Callable[[], Any]) -> str:
    """Says whether a call is refused, and with what text."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def no_value_is_refused(kind: str) -> bool:
    """A container is refused, or not, whatever one of its records holds; no refusal shows it."""
    x, y = rows(20)
    said = set()
    for value in (0.25, *ODD):
        changed = x.astype(object)
        changed[7, 0] = value
        model = tb.release.PrivateLogisticRegression(1.0, classes=("no", "yes"))
        given = CONTAINERS[kind](changed)
        said.add(outcome(partial(model.fit, given, y, meter=tb.OutputDPFilter(1))))
        if hasattr(model, "release_"):
            model.predict(given)  # what trains a model can be asked of it
    return len(said) == 1 and "n/a" not in said.pop()


@pytest.mark.parametrize("kind", CONTAINERS)
def test_no_value_is_refused(kind: str) -> None:
    assert no_value_is_refused(kind)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x[:, 0], "X must have 2 dimensions, a row for each record, got 1. Reshape your"),
        (lambda x: x[:, 0].tolist(), "X must have 2 dimensions, a row for each record, got 1."),
        (lambda x: x[:, :, None], "X must have 2 dimensions, a row for each record, got 3."),
        (lambda x: [], "X must have 2 dimensions, a row for each record, got 1."),
        (lambda x: x.astype(complex), "Complex data not supported: X must be real numbers"),
        (lambda x: x.astype(str), "X must be a table of numbers with 2 columns, got something"),
        (lambda x: x.astype("M8[s]"), "X must be a table of numbers with 2 columns, got something"),
        (lambda x: x[:0], r"Found array with 0 sample"),
        (lambda x: x[:, :0], r"Found array with 0 feature"),
        (sparse.csr_array, "Sparse data was passed for X, but dense data is required"),
    ],
    ids=[
        "column", "numbers", "3-D", "empty", "complex", "texts", "dates", "no-row", "no-column",
        "sparse",
    ],
)  # fmt: skip
@pytest.mark.parametrize("classes", [None, ("no", "yes")], ids=["any", "named"])
def test_refused_rows_are_not_shown(change: Callable[[Any], Any], said: str, classes: Any) -> None:
    x, y = rows(20)
    model = tb.release.PrivateLogisticRegression(1.0, classes=classes)
    meter = tb.OutputDPFilter(1)
    for call in (
        lambda: model.fit(change(x), y, meter=meter),
        lambda: model.rehearse(change(x), y),
    ):
        text = outcome(call)
        assert said in text
        assert "0.99" not in text
    assert meter.left.epsilon == 1.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda y: None, "y must be labels, an array or a list, got NoneType"),
        (lambda y: "yes" * 20, "y must be labels, an array or a list, got str"),
        (dict.fromkeys, "y must be labels, an array or a list, got dict"),
        (iter, "y must be labels, an array or a list, got "),
        (lambda y: np.column_stack([y, y]), "y must be one label for each record, got the shape"),
        (lambda y: np.array("yes"), "y must be one label for each record, got the shape ()"),
        (lambda y: sparse.csr_array((y == "yes")[:, None]), "an array or a list, got csr_array"),
        (lambda y: y[1:], "inconsistent numbers of samples: [20, 19]"),
    ],
    ids=["None", "text", "dict", "iterator", "two", "single", "sparse", "shorter"],
)
def test_labels_are_one_for_each_record(change: Callable[[Any], Any], said: str) -> None:
    x, y = rows(20)
    meter = tb.OutputDPFilter(1)
    model = tb.release.PrivateLogisticRegression(1.0, classes=("no", "yes"))
    assert said in outcome(lambda: model.fit(x, change(y), meter=meter))
    assert meter.left.epsilon == 1.0


LABELS: dict[str, Callable[[Any], Any]] = {
    "list": list,
    "objects": lambda y: y.astype(object),
    "column": lambda y: y[:, None],
    "pandas": pd.Series,
    "pandas-category": lambda y: pd.Series(y, dtype="category"),
    "pandas-frame": pd.DataFrame,
    "polars": pl.Series,
    "polars-frame": pl.DataFrame,
}


@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("classes", [None, ("no", "yes")], ids=["any", "named"])
def test_labels_of_every_kind_train_the_same_model(kind: str, classes: Any) -> None:
    x, y = rows(20)
    quiet = tb.release.PrivateLogisticRegression(1e9, 0.05, classes=classes)
    fitted = [
        clone(quiet).fit(x, labels, meter=tb.OutputDPOdometer()) for labels in (y, LABELS[kind](y))
    ]
    assert (fitted[0].coef_ == fitted[1].coef_).all()
    assert list(fitted[1].classes_) == ["no", "yes"]


def test_labels_of_several_types_are_named() -> None:
    x, y = rows(20)
    mixed = [*y[:-1], None]
    with pytest.raises(tb.ParameterError, match=r"^labels must be of one type, or be named by"):
        tb.release.PrivateLogisticRegression().fit(x, mixed, meter=tb.OutputDPFilter(1))


FRAMES: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda x: pd.DataFrame(x, columns=["a", "b"]),
    "polars": lambda x: pl.DataFrame(x, schema=["a", "b"]),
    "pandas-objects": lambda x: pd.DataFrame(x.astype(object), columns=["a", "b"]),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_names_of_columns_are_kept_and_checked(kind: str) -> None:
    x, y = rows(20)
    frame = FRAMES[kind](x)
    model = tb.release.PrivateLogisticRegression(1e9).fit(frame, y, meter=tb.OutputDPOdometer())
    host = StandardScaler().fit(frame)  # its version may know no names of Polars
    names = list(getattr(host, "feature_names_in_", []))
    assert names == ["a", "b"] or kind == "polars"
    assert list(getattr(model, "feature_names_in_", [])) == names
    assert model.n_features_in_ == 2
    plain = tb.release.PrivateLogisticRegression(1e9).fit(x, y, meter=tb.OutputDPOdometer())
    assert (plain.coef_ == model.coef_).all()
    assert not hasattr(plain, "feature_names_in_")
    if names:
        with pytest.raises(ValueError, match="feature names should match"):
            model.predict(frame[["b", "a"]])


def test_what_scikit_learn_asks_of_an_estimator() -> None:
    model = tb.release.PrivateLogisticRegression(0.5, classes=("no", "yes"))
    assert clone(model).get_params() == model.get_params()
    assert repr(model) == "PrivateLogisticRegression(classes=('no', 'yes'), epsilon=0.5)"
    assert "PrivateLogisticRegression" in model._repr_html_()
    model.set_params(epsilon=2.0).fit(*rows(20), meter=tb.OutputDPFilter(2))
    assert not hasattr(clone(model), "release_")
    with pytest.raises(ValueError, match="Invalid parameter 'meter'"):
        model.set_params(meter=tb.OutputDPFilter(1))
    # there is no such training: each call would be paid for from the beginning
    assert not hasattr(model, "partial_fit")


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
        tb.release.PrivateLogisticRegression(**changes).fit(*rows(), meter=meter)
    assert said in str(caught.value)
    assert meter.left.epsilon == 1.0


def test_long_rows_are_refused_or_shortened() -> None:
    x, y = rows()
    meter = tb.OutputDPFilter(1)
    with pytest.raises(tb.ParameterError, match="rows must have a 2-norm of at most 1; clip=True"):
        tb.release.PrivateLogisticRegression(clip=False).fit(x * 3, y, meter=meter)
    assert meter.left.epsilon == 1.0
    tb.release.PrivateLogisticRegression().fit(x * 3, y, meter=meter)
    assert meter.left.epsilon == 0.0


def test_labels_of_another_number_of_kinds() -> None:
    x, _ = rows(6)
    for labels, said in (([1] * 6, "got 1 class$"), ([1, 2, 3] * 2, "got 3 classes$")):
        with pytest.raises(tb.ParameterError, match=f"labels must be of two kinds, {said}"):
            tb.release.PrivateLogisticRegression().fit(x, labels, meter=tb.OutputDPFilter(1))


def test_in_a_pipeline_and_pickled() -> None:
    x, y = rows()
    meter = tb.OutputDPFilter(2)
    pipe = make_pipeline(FunctionTransformer(), clone(tb.release.PrivateLogisticRegression(1.0)))
    pipe.fit(x, y, privatelogisticregression__meter=meter)
    assert meter.left.epsilon == 1.0
    again = pickle.loads(pickle.dumps(pipe))
    assert (again.predict(x) == pipe.predict(x)).all()


def test_a_fit_that_is_refused_leaves_the_model_as_it_was() -> None:
    x, y = rows()
    model = tb.release.PrivateLogisticRegression(1.0).fit(x, y, meter=tb.OutputDPFilter(1))
    before = dict(vars(model))
    wider = np.column_stack([x, np.zeros(len(x))])
    others = np.where(y == "yes", "certainly", "never")
    for features, labels, meter in (
        (x, others, tb.OutputDPFilter(0.5)),
        (wider, y, tb.OutputDPFilter(0.5)),
        (x, np.arange(len(x)) % 3, tb.OutputDPFilter(1)),
        (wider, np.zeros(len(x)), tb.OutputDPFilter(1)),
    ):
        with pytest.raises((tb.errors.BudgetError, tb.ParameterError)):
            model.fit(features, labels, meter=meter)
        assert vars(model) == before
    assert set(model.predict(x)) == {"no", "yes"}
    model.fit(wider, others, meter=tb.OutputDPFilter(1))
    assert model.coef_.shape == (1, 3)
    assert list(model.classes_) == ["certainly", "never"]


# ------------------------------------------------------------------------- guards, taken away


def a_paid_fit_tells_of_no_record() -> bool:
    x, y = rows(20)
    model = tb.release.PrivateLogisticRegression(1.0, classes=(0, 1))
    return outcome(lambda: model.fit(x, y, meter=tb.OutputDPFilter(1))) == "done"


MUTATIONS = [
    Without(
        "rows as they come",
        {"rows-refused-by-type": "numbers = X"},
        lambda: no_value_is_refused("texts"),
    ),
    Without(
        "a paid fit tells",
        {
            "unusable-data-told-in-rehearsal": (
                "if not (np.isfinite(rows).all(axis=1) & np.isfinite(signs)).any():"
            )
        },
        a_paid_fit_tells_of_no_record,
    ),
    Without(
        "a paid fit within a rehearsal",
        {"paid-fit-is-no-rehearsal": "if True:"},
        a_paid_fit_within_a_rehearsal_tells_nothing,
    ),
]


@each(MUTATIONS)
def test_without_the_guard_a_value_is_told(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
