"""Private logistic regression as an estimator of scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.special import expit

from tightbudget.errors import ExtraError, ParameterError
from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.validate import one_of, open_probability
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.erm import OutputPerturbation, TestSensitivity, logistic_with_test
from tightbudget.release.meter import Meter
from tightbudget.release.minimum import LONGEST
from tightbudget.release.noise import Noise
from tightbudget.release.release import WhatIf, what_if

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, clone
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    message = "this regression needs scikit-learn: pip install 'tightbudget[sklearn]'"
    raise ExtraError(message) from error

__all__ = ["PrivateLogisticRegression"]


class PrivateLogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression by output perturbation; with a threshold, released if it is good enough.

    Without a threshold all records train. With one, records at even distances are held out, and
    the model is released if its mean error on them, with noise, is at most the threshold; else
    nothing but ``test_epsilon`` is charged, and there is nothing to predict with.

    Guarantee: ``release_.cell`` is charged to the meter: "value" at epsilon (or test_epsilon,
    if that is more), "bottom" at test_epsilon; delta = 0, for neighbours in which one record is
    replaced. The number of records, the features and the two labels are public, and so is that
    rows have |x|_2 <= 1: that data was refused is known to who sees it refused.
    There is no intercept: centre the features, or add one that is constant.
    Source: Hartmann et al. 2022, Algorithms 4 and 5.

    Args:
        epsilon: > 0, nats.
        regularization: Lambda > 0, of (Lambda / 2) |p|^2 beside the mean loss.
        threshold: of the mean of |tanh(p.x / 2) - y|, in [0, 2], which is twice the mean chance
            given to the wrong label; None for no test.
        test_epsilon: > 0, nats.
        test_fraction: of the records, in (0, 1).
        test_sensitivity: "tight", or the "paper" one, four times as large.
        clip: whether to shorten rows with |x|_2 > 1 to 1, instead of refusing them.

    Attributes:
        release_: the :class:`Release`: its value is the parameters, or None.
        coef_: the parameters, (1, d), if there are any.
        classes_: the two labels, ascending.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        regularization: float = 0.01,
        *,
        threshold: float | None = None,
        test_epsilon: float = 0.1,
        test_fraction: float = 0.3,
        test_sensitivity: str = "tight",
        clip: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.regularization = regularization
        self.threshold = threshold
        self.test_epsilon = test_epsilon
        self.test_fraction = test_fraction
        self.test_sensitivity = test_sensitivity
        self.clip = clip

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.non_deterministic = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "release_") and self.release_.value is not None

    def what_if(self, meter: Meter) -> WhatIf:
        """What a fit would cost at most, and whether it fits; nothing is touched."""
        prices: dict[Cell, Price] = {"value": self.epsilon}
        if self.threshold is not None:
            dearest = max(self.epsilon, self.test_epsilon)
            prices = {"value": dearest, "bottom": self.test_epsilon}
        return what_if(OutputDP(prices), meter)

    def fit(self, X: Any, y: Any, *, meter: Meter, noise: Noise | None = None) -> Self:
        """Trains, tests if there is a threshold, and charges the meter for what came out.

        Args:
            X: rows, (n, d).
            y: labels of two kinds, (n,).
            meter: what pays.
            noise: the operating system's, if absent.

        Raises:
            BudgetError: the dearest price does not fit; nothing was released.
            ParameterError: a parameter, or a row longer than 1, or labels of not two kinds;
                nothing was charged.

        What was fitted before stays as it was where this raises.
        """
        fitted = clone(self)
        fitted._fit(X, y, meter, noise)
        # all that was learnt, at once: by scikit-learn's rule, the names that end in _
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        self.__dict__ = vars(fitted) | kept
        return self

    def _fit(self, X: Any, y: Any, meter: Meter, noise: Noise | None) -> None:
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_ = np.unique(labels)
        if len(self.classes_) != 2:
            raise ParameterError(
                "Only binary classification is supported: labels must be of two kinds, got "
                f"{len(self.classes_)} class{'es' * (len(self.classes_) != 1)}"
            )
        rows = self._shortened(rows)
        signs = np.where(labels == self.classes_[1], 1.0, -1.0)
        self.release_ = self._release(rows, signs, meter, noise)
        if self.release_.value is not None:
            self.coef_ = self.release_.value[None, :]

    def _shortened(self, rows: FloatArray) -> FloatArray:
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        if self.clip:
            with np.errstate(over="ignore"):  # a row too long for its length shrinks to zeros
                return np.asarray(rows / np.maximum(lengths, 1.0))
        if not (lengths <= LONGEST).all():
            raise ParameterError("rows must have a 2-norm of at most 1; clip=True shortens them")
        return rows

    def _release(
        self, rows: FloatArray, signs: FloatArray, meter: Meter, noise: Noise | None
    ) -> Any:
        n, d = rows.shape
        if self.threshold is None:
            alone = OutputPerturbation(self.epsilon, self.regularization, n, d)
            return alone.release((rows, signs), meter=meter, noise=noise)
        held_out = _evenly(n, open_probability(test_fraction=self.test_fraction))
        if held_out.all() or not held_out.any():
            raise ParameterError(f"test_fraction must leave records to both parts of {n}")
        kind = one_of(tuple(map(str, TestSensitivity)), test_sensitivity=self.test_sensitivity)
        tested = logistic_with_test(
            OutputPerturbation(self.epsilon, self.regularization, int(np.sum(~held_out)), d),
            int(np.sum(held_out)),
            self.threshold,
            self.test_epsilon,
            TestSensitivity(kind),
        )
        training, test = ((rows[part], signs[part]) for part in (~held_out, held_out))
        return tested.release((training, test), meter=meter, noise=noise)

    def decision_function(self, X: Any) -> FloatArray:
        """p.x for each row, (n,).

        Raises:
            NotFittedError: there is no model: none was trained, or the test released none.
        """
        check_is_fitted(self, "release_")
        if self.release_.value is None:
            raise NotFittedError("the test released no model: its cell is 'bottom'")
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(rows @ self.coef_[0])

    def predict_proba(self, X: Any) -> FloatArray:
        """The chance of each label, (n, 2)."""
        margin = self.decision_function(X)
        return np.column_stack([expit(-margin), expit(margin)])

    def predict(self, X: Any) -> Any:
        """The likelier label of each row, (n,)."""
        above = self.decision_function(X) > 0
        return self.classes_[above.astype(int)]


def _evenly(n: int, fraction: float) -> Any:
    """Whether each record is held out: a choice that sees nothing but its number."""
    return np.diff(np.floor(np.arange(n + 1) * fraction)) > 0
