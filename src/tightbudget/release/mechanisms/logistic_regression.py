"""Offers private logistic regression as an estimator of scikit-learn."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Self

import numpy as np
from scipy.special import expit

from tightbudget.errors import ExtraError, ParameterError
from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.validate import one_of, open_probability, refuse
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.columns import table
from tightbudget.release.default_meter import meter_or_default
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.mechanisms.erm import (
    GateSensitivity,
    OutputPerturbation,
    logistic_with_test,
)
from tightbudget.release.mechanisms.objective import LONGEST
from tightbudget.release.meter import Meter
from tightbudget.release.noise.noise import Noise
from tightbudget.release.private_number import listed
from tightbudget.release.rehearsal import in_rehearsal, rehearsal
from tightbudget.release.release import Rehearsal, ReleasePreview, answered, what_if

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, clone
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
except ImportError as error:
    message = "this regression needs scikit-learn: pip install 'tightbudget[sklearn]'"
    raise ExtraError(message) from error


class PrivateLogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression by output perturbation, with a test of the model if it has a threshold.

    Without a threshold all records train. With a threshold, records at even distances are held
    out, and the model is released if its mean error on them, with noise, is at most the threshold.
    Otherwise at most ``test_epsilon`` is charged, and there is no model to predict with.

    Guarantee: the price of ``release_.cell`` is charged to the meter: "value" at epsilon (or at
    most test_epsilon, if that is more), "bottom" at most test_epsilon; delta = 0, for neighbours
    in which one record is replaced. The number of records and the features are public. A row that
    is longer than 1 is shortened. A row with a missing or infinite number, or with a label that is
    none of ``classes``, counts as a row of zeros. Two arguments refuse values, and make public
    whether they did: with ``clip=False`` all rows must have |x|_2 <= 1, and without ``classes``
    the labels that occur must be two, and are public. Types, shapes and names of columns may be
    refused, too: they are public, and no refusal of them shows a value.
    There is no intercept: centre the features, or add a constant one.
    Source: Hartmann et al. 2022, Algorithms 4 and 5.

    Args:
        epsilon: > 0, nats.
        regularization: Lambda > 0, of (Lambda / 2) |p|^2 beside the mean loss.
        threshold: the largest mean of |tanh(p.x / 2) - y| that passes, in [0, 2]; it is twice the
            mean chance given to the wrong label. None for no test.
        test_epsilon: > 0, nats.
        test_fraction: the part of the records that is held out, in (0, 1).
        test_sensitivity: "tight", or "paper", which is four times as large.
        clip: whether to shorten rows with |x|_2 > 1 to 1; False refuses them, which is public.
        classes: the two labels; None for the labels that occur, which are public then.

    Attributes:
        release_: the :class:`Release` of the fit; its value is the parameters, or None.
        coef_: the parameters, (1, d), if there are any.
        classes_: the two labels, as in ``classes``, or ascending.
    """

    coef_: FloatArray

    def __init__(
        self,
        epsilon: float = 1.0,
        regularization: float = 0.01,
        *,
        threshold: float | None = None,
        test_epsilon: float = 0.1,
        test_fraction: float = 0.3,
        test_sensitivity: str = "tight",
        clip: bool = True,
        classes: tuple[Any, Any] | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.regularization = regularization
        self.threshold = threshold
        self.test_epsilon = test_epsilon
        self.test_fraction = test_fraction
        self.test_sensitivity = test_sensitivity
        self.clip = clip
        self.classes = classes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.non_deterministic = True
        # a number that is missing, and a text among objects, make the row count as zeros
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "release_") and self.release_.value is not None

    def what_if(self, meter: Meter) -> ReleasePreview:
        """Says what a fit would cost at most and at least, and whether it fits; touches nothing."""
        prices: dict[Cell, Price] = {"value": self.epsilon}
        if self.threshold is not None:
            worst = max(self.epsilon, self.test_epsilon)
            prices = {"value": worst, "bottom": self.test_epsilon}
        return what_if(OutputDP(prices), meter)

    def rehearse(self, X: Any, y: Any, *, noise: Noise | None = None) -> Rehearsal:
        """Fits a copy to public or made-up data, and says what the fit would have cost.

        NEVER on private data: neither errors nor the output cell are paid for here.

        Nothing is charged, and the estimator stays as it is. A fit counts a record that it cannot
        read as a row of zeros; here data without any record that can be read are refused.

        Args:
            X: rows, (n, d), public or made up, of the types of the private ones.
            y: labels of two kinds, (n,).
            noise: the source of noise; OpenDP's samplers if None.

        Raises:
            Exception: an error of a comparison of labels, as it is.
            ParameterError: a fit would refuse a parameter or the data; or no record has finite
                numbers alone and a known label.
            ExtraError: no noise is given, and OpenDP is not installed.
        """
        with rehearsal():
            copy: Self = clone(self)
            mechanism, data = copy._prepared(X, y)
            return mechanism.rehearse(data, noise=noise)

    def fit(
        self, X: Any, y: Any, *, meter: Meter | None = None, noise: Noise | None = None
    ) -> Self:
        """Trains, tests if there is a threshold, and charges the price of the output cell.

        A fit that raises leaves the estimator as it was.

        Args:
            X: rows, (n, d).
            y: labels of two kinds, (n,).
            meter: the budget that pays; that of the ``with default_meter(...)`` block around the
                call if None.
            noise: the source of noise; OpenDP's samplers if None.

        Raises:
            BudgetError: the worst-case price does not fit; nothing was released.
            ParameterError: a parameter, or the type or the shape of the data, is refused; there
                is no meter; with ``clip=False`` a row is longer than 1; without ``classes`` there
                are not two labels. Nothing was charged.
        """
        pays = meter_or_default(meter)
        fitted = clone(self)
        with rehearsal(False):  # guard: paid-fit-is-no-rehearsal
            mechanism, data = fitted._prepared(X, y)
        fitted.release_ = mechanism.release(data, meter=pays, noise=noise)
        if fitted.release_.value is not None:
            fitted.coef_ = fitted.release_.value[None, :]
        # all fitted attributes change at once; by scikit-learn's rule their names end in _
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        self.__dict__ = vars(fitted) | kept
        return self

    def _prepared(self, X: Any, y: Any) -> tuple[MechanismOnData[Any, FloatArray | None], Any]:
        """Reads rows and labels, and notes the features and the classes on this estimator.

        Returns:
            the mechanism that a fit runs, and its data.
        """
        if self.classes is None:
            rows, y = validate_data(self, _read(X), y, dtype=np.float64, ensure_all_finite=False)
            self.classes_ = _occurring(y)
            if len(self.classes_) != 2:
                raise ParameterError(
                    "Only binary classification is supported: labels must be of two kinds, got "
                    f"{len(self.classes_)} class{'es' * (len(self.classes_) != 1)}"
                )
        else:
            rows = validate_data(self, _read(X), dtype=np.float64, ensure_all_finite=False)
            self.classes_ = _two(self.classes)
            y = _labels(y)
            check_consistent_length(rows, y)
        if not self.clip and not _short(rows):
            raise ParameterError("rows must have a 2-norm of at most 1; clip=True shortens them")
        signs = _signs(y, self.classes_)
        # a paid fit never comes here, also within a rehearsal: the refusal looks at all records
        # guard: unusable-data-told-in-rehearsal
        if in_rehearsal() and not (np.isfinite(rows).all(axis=1) & np.isfinite(signs)).any():
            raise ParameterError(
                "no record has finite numbers alone and a label of classes "
                f"{self.classes_.tolist()}: a fit would count each as a row of zeros"
            )
        return self._mechanism(rows, signs)

    def _mechanism(
        self, rows: FloatArray, signs: FloatArray
    ) -> tuple[MechanismOnData[Any, FloatArray | None], Any]:
        """Returns the training, with the test if there is a threshold, and the data for it."""
        n, d = rows.shape
        if self.threshold is None:
            alone: Any = OutputPerturbation(self.epsilon, self.regularization, n, d)
            return alone, (rows, signs)
        held_out = _evenly(n, open_probability(test_fraction=self.test_fraction))
        if held_out.all() or not held_out.any():
            raise ParameterError(f"test_fraction must leave records to both parts of {n}")
        kind = one_of(tuple(map(str, GateSensitivity)), test_sensitivity=self.test_sensitivity)
        tested: Any = logistic_with_test(
            OutputPerturbation(self.epsilon, self.regularization, int(np.sum(~held_out)), d),
            int(np.sum(held_out)),
            self.threshold,
            self.test_epsilon,
            GateSensitivity(kind),
        )
        training, test = ((rows[part], signs[part]) for part in (~held_out, held_out))
        return tested, (training, test)

    def decision_function(self, X: Any) -> FloatArray:
        """Returns p.x for each row, (n,); 0 for a row with a missing or infinite number.

        Raises:
            NotFittedError: there is no model: none was trained, or the test released none.
        """
        check_is_fitted(self, "release_")
        if self.release_.value is None:
            raise NotFittedError("the test released no model: its cell is 'bottom'")
        rows = validate_data(self, _read(X), dtype=np.float64, reset=False, ensure_all_finite=False)
        known = np.isfinite(rows).all(axis=1, keepdims=True)
        return np.asarray(np.where(known, rows, 0.0) @ self.coef_[0])

    def predict_proba(self, X: Any) -> FloatArray:
        """Returns the chance of each label, (n, 2)."""
        margin = self.decision_function(X)
        return np.column_stack([expit(-margin), expit(margin)])

    def predict(self, X: Any) -> Any:
        """Returns the likelier label of each row, (n,)."""
        above = self.decision_function(X) > 0
        return self.classes_[above.astype(int)]


def _evenly(n: int, fraction: float) -> Any:
    """Chooses the records that are held out, by their numbers alone: booleans, (n,)."""
    return np.diff(np.floor(np.arange(n + 1) * fraction)) > 0


def _read(X: Any) -> Any:
    """Reads rows as an array of doubles, or as a data frame of them if X has names of columns.

    NaN stands for each entry that is no number: scikit-learn would refuse it, and show it.

    Raises:
        ParameterError: the type or the shape is refused; the message shows no value.
    """
    rows = listed(X)
    if rows is not None:
        widths = Counter(len(row) for row in map(_sequence, rows) if row is not None)
        if widths:
            # the number of features is public: the most frequent width, which one row leaves
            return table(max(widths, key=lambda w: widths[w]), X=rows)
    elif not isinstance(getattr(X, "shape", None), tuple) or _other(X):
        return X  # scikit-learn refuses these by their type, and says what to do
    dimensions = len(X.shape) if rows is None else 1
    if dimensions != 2:
        # scikit-learn would print the rows
        raise ParameterError(
            f"X must have 2 dimensions, a row for each record, got {dimensions}. Reshape your "
            "data: X.reshape(-1, 1) if it has one feature, X.reshape(1, -1) if it is one record"
        )
    if getattr(getattr(X, "dtype", None), "kind", None) == "c":
        raise ParameterError("Complex data not supported: X must be real numbers")
    numbers = table(X.shape[1], X=X)  # guard: rows-refused-by-type
    library = type(X).__module__.partition(".")[0]
    if library in ("pandas", "polars") and hasattr(X, "columns"):
        return type(X)(numbers, **{_NAMES[library]: list(X.columns)})
    return numbers


_NAMES = {"pandas": "columns", "polars": "schema"}  # the argument that names a frame's columns


def _other(X: Any) -> bool:
    """Returns True if X is a sparse matrix or a matrix of NumPy, which are no arrays."""
    return hasattr(X, "toarray") or isinstance(X, np.matrix)


def _sequence(row: Any) -> Any:
    """Returns the entries of a row of a list; None if the row is no sequence."""
    return row if type(row) is np.ndarray and row.ndim == 1 else listed(row)


def _occurring(y: Any) -> Any:
    """Returns the labels that occur, ascending.

    Raises:
        ParameterError: labels of different types have no order.
    """
    try:
        check_classification_targets(y)
        return np.unique(y)
    except TypeError:
        must = "labels must be of one type, or be named by classes=(..., ...)"
        raise ParameterError(must) from None


def _two(classes: Any) -> Any:
    """Returns the two labels as an array; refuses any other number of labels."""
    two = np.asarray(classes)
    if two.shape != (2,) or two[0] == two[1]:
        raise refuse("classes", "be two different labels", classes)
    return two


def _short(rows: FloatArray) -> bool:
    """Returns True if no row is longer than 1, but for its own rounding."""
    with np.errstate(all="ignore"):
        return not bool((np.linalg.norm(rows, axis=1) > LONGEST).any())


def _labels(y: Any) -> Any:
    """Returns labels as an array, a column of a data frame, or a list; refuses types and shapes.

    Raises:
        ParameterError: y is not one label for each record; the message shows no label.
    """
    shape = getattr(y, "shape", None)
    if hasattr(y, "toarray") or (shape is None and listed(y) is None):
        raise ParameterError(f"y must be labels, an array or a list, got {type(y).__name__}")
    if shape is None or len(shape) == 1:
        return y
    if len(shape) != 2 or shape[1] != 1:
        raise ParameterError(f"y must be one label for each record, got the shape {shape}")
    return np.asarray(y).ravel()


def _signs(labels: Any, classes: Any) -> FloatArray:
    """Returns -1 for the first class, 1 for the second, NaN for others; each label by itself."""
    first, second = classes.tolist()
    if getattr(labels, "dtype", None) is not None and np.asarray(labels).dtype.kind in "biufU":
        known = np.asarray(labels).ravel()
        return np.where(known == second, 1.0, np.where(known == first, -1.0, math.nan))

    each = labels.ravel().tolist() if isinstance(labels, np.ndarray) else list(labels)

    def sign(label: Any) -> float:
        known = answered(lambda: -1.0 if label == first else 1.0 if label == second else None)
        return math.nan if known is None else known

    return np.array([sign(label) for label in each])
