"""Model selection with scikit-learn on private data: every fit and every score is paid for.

``GridSearchCV`` passes a meter on to ``fit``, and then each fit is charged. But its folds are
stratified, so one record decides where others go; its scores are answers on private records that
nobody pays for; a step before the model may learn from all rows; and a fit that exceeds the budget
becomes a missing score. :class:`PrivateGridSearchCV` is a ``GridSearchCV`` without these faults.
With ``trials`` it makes a random number of trials instead, and pays once for the best.

A budget belongs to one process. So ``PrivateGridSearchCV`` runs its fits in threads, whatever
backend of joblib is chosen. Other searches of scikit-learn send their fits to other processes if
``n_jobs`` says so: a budget refuses to be sent before anything is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from tightbudget.errors import BudgetError, ExtraError, ParameterError
from tightbudget.mechanisms.approximate_dp import ApproximateDP
from tightbudget.numerics.validate import plain_numbers, refuse
from tightbudget.output_dp.amount import Amount, Price, exact, exact_positive, printed_up
from tightbudget.output_dp.filter import OutputDPFilter, OutputDPOdometer
from tightbudget.release import BestTrial, LaplaceRelease, Meter, Noise, ReleasePreview
from tightbudget.release.default_meter import default_meter, meter_or_default
from tightbudget.release.noise.coins import uniform
from tightbudget.release.private_number import listed
from tightbudget.release.release import answered
from tightbudget.trials import Trials

try:
    from joblib import parallel_config  # type: ignore[import-untyped]
    from sklearn import config_context
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError
    from sklearn.frozen import FrozenEstimator
    from sklearn.metrics import check_scoring
    from sklearn.model_selection import (
        GridSearchCV,
        KFold,
        ParameterGrid,
        PredefinedSplit,
        RepeatedKFold,
        ShuffleSplit,
    )
    from sklearn.pipeline import Pipeline
    from sklearn.utils import _safe_indexing, get_tags, indexable
    from sklearn.utils.validation import _num_samples, check_is_fitted, has_fit_parameter
except ImportError as error:
    raise ExtraError(
        "this search needs scikit-learn: pip install 'tightbudget[sklearn]'"
    ) from error

__all__ = ["PrivateAccuracy", "PrivateGridSearchCV", "default_meter"]

_NOTHING = Amount(0.0, 0.0, "epsilon")
_BLIND = (KFold, RepeatedKFold, ShuffleSplit, PredefinedSplit)  # these splitters look at no label


@plain_numbers
@dataclass(frozen=True)
class PrivateAccuracy:
    """A scorer: the share of right predictions, with Laplace noise on their number.

    Guarantee: each score is epsilon-DP, delta = 0, for records of which one is replaced, and is
    charged to the meter. A model that was withheld scores 0, at no charge. If the model fails on
    the records together, it is asked record by record, and counts as wrong on each record that it
    fails on; the guarantee then needs a model that predicts a record alone as among others, also
    where rounding decides (``PrivateLogisticRegression`` fails on no record). Copies, which
    scikit-learn makes, share the meter.

    Args:
        epsilon: the price of each score, > 0, nats.
        meter: the budget that pays; that of the ``with default_meter(...)`` block around the call
            if None.
        noise: the source of noise; OpenDP's samplers if None.
    """

    epsilon: Price
    meter: Meter | None = None
    noise: Noise | None = None

    def __post_init__(self) -> None:
        exact_positive(epsilon=self.epsilon)

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Returns the noisy share of right predictions; it may lie a little outside [0, 1].

        Raises:
            BudgetError: the score does not fit; the records were not touched.
            ParameterError: there is no meter, there is no record, or y is not one label for each
                record.
        """
        meter = meter_or_default(self.meter)
        labels = _labels(y)
        records = _num_samples(X)  # public, as the guarantee says
        if not records:
            raise refuse("X", "have a record", records)
        if len(labels) != records:
            raise refuse("y", f"have {records} labels, as many as X has records", len(labels))
        try:
            check_is_fitted(estimator)
        except NotFittedError:
            return 0.0
        right = LaplaceRelease(
            lambda data: _right(estimator, *data),
            sensitivity=1,
            epsilon=self.epsilon,
        )
        answer = right.release((X, labels), meter=meter, noise=self.noise)
        return float(answer.value) / len(labels)

    def __deepcopy__(self, _: Any) -> Self:
        return self  # a copy of the meter would double the budget


class PrivateGridSearchCV(GridSearchCV):  # type: ignore[misc]
    """A ``GridSearchCV`` whose fits and scores are all charged to one meter.

    Guarantee: the search pays for all that it learns from the records, fit by fit and score by
    score, and so for the model that it ends with, for data sets of which one record is replaced:
    no fold depends on a record, no step but the model learns from records, and a refusal ends the
    search. The number of records is public. It is also public that the model can be fitted to each
    part of them (that no label is missing there, and that no step before it fails). The time of a
    fit is not hidden. ``score`` of the fitted search is the score of the model: it is not private
    and not paid for.

    With ``trials``, the number of trials is drawn first. Each trial draws one combination, all
    with the same probability, and fits and scores it on every fold. The combination and the score
    of the best trial are released and charged once, at the upper bound of ``best_of(trials)`` for
    the costliest combination; the last fit is charged as any fit. Nothing else of the trials is
    kept. Show the answer at a time that was fixed before: the time tells their number. A trial that
    fails is the worst one.

    Args:
        estimator: an estimator whose ``fit`` takes a meter, or a Pipeline that ends in one; the
            steps before it are stateless or frozen.
        param_grid: from names of parameters to the values that are tried.
        score_epsilon: the price of a score, > 0, nats; None if folds is a PredefinedSplit and all
            records that it tests on are public: then scores are exact.
        folds: the number of folds, at least 2; or a KFold, RepeatedKFold, ShuffleSplit or
            PredefinedSplit.
        refit: whether the best parameters train on all records, once more.
        n_jobs: the number of threads that fit and score; None for one, or for as many as
            ``joblib.parallel_config`` says. No fit runs in another process. With ``trials`` there
            is one.
        trials: the law of a random number of trials, such as ``tb.trials.Poisson(mean=20)``; None
            to try every combination.
        delta: of the price of the trials, in [0, 1]; their epsilon follows.

    Attributes:
        best_params_, best_score_, best_estimator_, cv_results_: as in GridSearchCV. With ``trials``
            there is no cv_results_; if no trial was made, or none succeeded, they are None, NaN and
            an estimator that is not fitted.
        release_: with ``trials``, the release of the search, with its receipt.
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        score_epsilon: Price | None,
        folds: Any = 5,
        refit: bool = True,
        n_jobs: int | None = None,
        trials: Trials | None = None,
        delta: float = 0.0,
    ) -> None:
        super().__init__(estimator, param_grid, refit=refit, n_jobs=n_jobs, error_score="raise")
        self.score_epsilon = score_epsilon
        self.folds = folds
        self.trials = trials
        self.delta = delta

    def what_if(self, meter: Meter) -> ReleasePreview:
        """Says what the search would cost at most and at least, and whether it fits.

        It touches nothing. The least price is that of the fits at their cheapest, since a model
        that is withheld is scored at no charge.

        Raises:
            ParameterError: a parameter is refused, or a step would learn without paying.
        """
        return self._preview(meter, self._search())

    def _preview(self, meter: Meter, search: BestTrial | None) -> ReleasePreview:
        """Says what the search would cost, also one with a random number of trials."""
        rounds, score = _splitter(self.folds).get_n_splits(), self._score()
        fits = [_payer(candidate)[1].what_if(meter) for candidate in self._candidates()]
        most, least = [fit.most for fit in fits], [fit.least for fit in fits]
        if search is not None:
            once = search.what_if(meter)
            return ReleasePreview(
                most=_total(most, 0, score, max if self.refit else None, once.most),
                least=once.least,  # no trial may succeed, and then nothing is fitted once more
                left=meter.left,
            )
        return ReleasePreview(
            most=_total(most, rounds, score, max if self.refit else None),
            least=_total(least, rounds, Fraction(0), min if self.refit else None),
            left=meter.left,
        )

    def _search(self) -> BestTrial | None:
        """Returns the search with a random number of trials as a mechanism; None without trials.

        Its data are X, y, the rows that train and those that test for each fold, and the noise of
        fits and scores (None for what they draw from by themselves). Its value is (number of the
        combination, score).
        """
        if self.trials is None:
            if self.delta != 0:
                raise refuse("delta", "be 0 without trials: fits and scores add up", self.delta)
            return None
        if self.n_jobs not in (None, 1):
            raise refuse("n_jobs", "be None or 1 with trials: one follows another", self.n_jobs)
        candidates = list(self._candidates())
        if not candidates:
            raise refuse("param_grid", "have a combination of parameters", self.param_grid)
        prices = [_payer(one)[1].what_if(OutputDPOdometer()).most for one in candidates]
        fit = max(price.epsilon for price in prices), max(price.delta for price in prices)
        rounds, score = _splitter(self.folds).get_n_splits(), self._score()
        run = ApproximateDP(*fit) * rounds
        if score:
            run += ApproximateDP(printed_up(score)) * rounds  # guard: scores-of-trials-cost
        prefix, _ = _payer(self.estimator)

        def trial(data: Any, drawn: Noise) -> tuple[float, tuple[int, float]]:
            (X, y, splits, noise), chosen = data, uniform(len(candidates), drawn)
            scores = []
            for train, test in splits:
                # each part has a budget of its own, so that it costs no more than the price says
                paid: dict[str, Any] = {"meter": OutputDPFilter(*fit)}  # guard: trials-keep-to-fits
                paid |= {} if noise is None else {"noise": noise}
                model = clone(candidates[chosen])
                model.fit(
                    _safe_indexing(X, train),
                    _safe_indexing(y, train),
                    **{f"{prefix}{name}": value for name, value in paid.items()},
                )
                scorer: Any = check_scoring(model)
                if score:
                    scorer = PrivateAccuracy(score, OutputDPFilter(printed_up(score)), noise)
                scores.append(scorer(model, _safe_indexing(X, test), _safe_indexing(y, test)))
            mean = math.fsum(scores) / rounds
            return mean, (chosen, mean)

        return BestTrial(trial, run=run, trials=self.trials, delta=self.delta)

    def _score(self) -> Fraction:
        """Returns the price of one score, 0 if all records that are scored are public."""
        if self.score_epsilon is not None:
            return exact_positive(score_epsilon=self.score_epsilon)
        if not isinstance(self.folds, PredefinedSplit):  # guard: folds-known-for-scores
            must = "be > 0, unless a PredefinedSplit says who is public"
            raise refuse("score_epsilon", must, None)
        return Fraction(0)

    def __sklearn_tags__(self) -> Any:
        tags, fitted = super().__sklearn_tags__(), get_tags(self.estimator).input_tags
        tags.input_tags.allow_nan, tags.input_tags.string = fitted.allow_nan, fitted.string
        return tags

    def _candidates(self) -> Iterator[Any]:
        """Yields an unfitted estimator for each combination of parameters."""
        for parameters in ParameterGrid(self.param_grid):
            yield clone(self.estimator).set_params(**clone(parameters, safe=False))

    def fit(
        self, X: Any, y: Any, *, meter: Meter | None = None, noise: Noise | None = None
    ) -> Self:
        """Fits and scores every combination on every fold, and refits the best.

        Args:
            X: rows, (n, d).
            y: labels, (n,).
            meter: the budget that pays; for a ledger, ``budget.keyed(...)`` with a key for this
                search. That of the ``with default_meter(...)`` block around the call if None.
            noise: the source of noise; OpenDP's samplers if None.

        Raises:
            BudgetError: the worst-case price of the whole search does not fit, and nothing was
                charged; or another user of the budget was faster, and the search ends midway.
            ParameterError: a parameter or a row is refused, a step would learn without paying, or
                there is no meter.
        """
        meter = meter_or_default(meter)
        search = self._search()
        whole = self._preview(meter, search)
        if not whole.fits:
            raise BudgetError(
                f"the search may cost {whole.most}; left {whole.left}",
                requested=whole.most,
                left=whole.left,
                held=None,
            )
        prefix, _ = _payer(self.estimator)
        paid = {"meter": meter} if noise is None else {"meter": meter, "noise": noise}
        scoring: Any = None  # the exact score of the estimator
        if self.score_epsilon is not None:
            scoring = PrivateAccuracy(self.score_epsilon, meter, noise)
        if search is not None:
            named = {f"{prefix}{name}": value for name, value in paid.items()}
            return self._fit_best(search, X, y, meter, named, noise)
        self.cv, self.scoring = _splitter(self.folds), scoring
        try:
            with _in_threads():
                super().fit(X, y, **{f"{prefix}{name}": value for name, value in paid.items()})
        finally:
            self.cv = self.scoring = None  # the fitted search may be pickled: it keeps no meter
        self.scorer_ = check_scoring(self.estimator)
        return self

    def _fit_best(
        self,
        search: BestTrial,
        X: Any,
        y: Any,
        meter: Meter,
        paid: dict[str, Any],
        noise: Noise | None,
    ) -> Self:
        """Runs the trials, is charged for the best of them, and fits it to all records.

        Args:
            search: the trials.
            X: rows, (n, d).
            y: labels, (n,).
            meter: the budget that pays.
            paid: the parameters of a fit that the meter pays for.
            noise: the source of noise, or None.
        """
        records, labels = indexable(X, y)
        splits = list(_splitter(self.folds).split(records))  # of the number of records, public
        with _in_threads():
            data = records, labels, splits, noise
            found = search.release(data, meter=meter, noise=noise)
            chosen, score = (None, math.nan) if found.value is None else found.value
            best = clone(self.estimator)
            # what was paid for is kept before the last fit, which may be refused
            self.release_, self.best_score_ = found, score
            self.best_params_: Any = None
            if chosen is not None:
                self.best_params_ = list(ParameterGrid(self.param_grid))[chosen]
                best.set_params(**clone(self.best_params_, safe=False))
                if self.refit:
                    best.fit(X, y, **paid)
        self.multimetric_, self.n_splits_ = False, len(splits)
        self.scorer_ = check_scoring(self.estimator)
        if self.refit:
            self.best_estimator_ = best
            if hasattr(best, "feature_names_in_"):
                self.feature_names_in_ = best.feature_names_in_
        return self


@contextmanager
def _in_threads() -> Iterator[None]:
    """Keeps the jobs of joblib in threads of this process, and parameters of fit unrouted."""
    # the meter cannot go to another process, and the search names its parameters by their steps
    # guard: fits-share-the-meter
    with config_context(enable_metadata_routing=False), parallel_config(require="sharedmem"):
        yield


def _labels(y: Any) -> Any:
    """Returns labels as an array, (n,), in which no label decides the type of another.

    Raises:
        ParameterError: y is not one label for each record.
    """
    labels = listed(y)
    if labels is None:
        array = np.asarray(y)
        array = array.ravel() if array.ndim == 2 and array.shape[1] == 1 else array
    else:
        # np.asarray would make all labels texts where one is, and no prediction would be right
        array = np.empty(len(labels), dtype=object)  # guard: labels-keep-their-types
        for i, label in enumerate(labels):
            array[i] = label
    if array.ndim != 1:  # compared with a table, one prediction would count for many labels
        raise ParameterError(f"y must be one label for each record, got {array.ndim} dimensions")
    return array


def _right(estimator: Any, X: Any, y: Any) -> int:
    """Counts the right predictions; one record changes the count by at most 1."""

    def predicted() -> Any:
        found = estimator.predict(X)
        return np.asarray(found, dtype=None if listed(found) is None else object)

    guesses = answered(predicted)
    if guesses is None or guesses.shape[:1] != y.shape:
        one_by_one = (
            answered(lambda i=i: bool((estimator.predict(_safe_indexing(X, [i])) == y[i]).all()))  # type: ignore[misc]
            for i in range(len(y))
        )
        return sum(right is True for right in one_by_one)
    same = answered(lambda: np.asarray(guesses == y))
    # guard: one-comparison-a-record
    if same is not None and same.shape == y.shape and same.dtype == bool:
        return int(np.count_nonzero(same))
    # A label cannot be compared, or each prediction is a row. The records are not predicted once
    # more: alone, a record on the border between two labels may get the other one by rounding,
    # and all records may lie there.
    # guard: predicted-once
    each = zip(guesses.astype(object), y, strict=True)
    return sum(answered(lambda a=a, b=b: bool(np.all(a == b))) is True for a, b in each)  # type: ignore[misc]


def _splitter(folds: Any) -> Any:
    """Returns a splitter that chooses folds by the numbers of the rows alone; refuses others."""
    if isinstance(folds, (int, np.integer)) and not isinstance(folds, bool) and folds >= 2:
        return KFold(folds, shuffle=True, random_state=0)
    if type(folds) in _BLIND:  # guard: folds-blind-to-data
        return folds
    names = ", ".join(kind.__name__ for kind in _BLIND)
    raise refuse("folds", f"be an integer >= 2, or see no label as one of {names} does", folds)


def _payer(estimator: Any, prefix: str = "") -> tuple[str, Any]:
    """Finds the one step that learns from the records.

    Returns:
        The prefix of the names of its parameters, and the step.
    """
    if isinstance(estimator, Pipeline):
        *before, (name, last) = estimator.steps
        for step, transformer in before:
            if _learns(transformer):
                raise ParameterError(
                    f"step {step!r} would learn from the records, and pays nothing: use a "
                    "stateless transformer, or a FrozenEstimator that was fitted on public rows"
                )
        return _payer(last, f"{prefix}{name}__")
    if not has_fit_parameter(estimator, "meter"):  # guard: model-takes-meter
        raise refuse("estimator", "have a fit that takes a meter", estimator)
    return prefix, estimator


def _learns(transformer: Any) -> bool:
    """Returns True if fitting a transformer would learn from the rows."""
    if isinstance(transformer, Pipeline):
        return any(_learns(step) for _, step in transformer.steps)
    if transformer in (None, "passthrough") or isinstance(transformer, FrozenEstimator):
        return False
    return bool(get_tags(transformer).requires_fit)  # guard: learning-steps-pay


def _total(
    fits: list[Amount],
    rounds: int,
    score: Fraction,
    refit: Callable[..., Fraction] | None,
    search: Amount = _NOTHING,
) -> Amount:
    """Adds up each fit and its score in each round, and one more fit if ``refit`` is given.

    Args:
        fits: the price of a fit of each candidate.
        rounds: the number of folds that each candidate is fitted to.
        score: the price of one score.
        refit: chooses the price of the last fit among those of the candidates; None for no fit.
        search: what all trials cost together, if they are paid for once.
    """

    def whole(amounts: list[Fraction], score: Fraction, once: Fraction) -> float:
        last = refit(amounts, default=Fraction(0)) if refit else Fraction(0)  # guard: refit-costs
        # guard: scores-cost
        return printed_up(rounds * (sum(amounts) + len(amounts) * score) + last + once)

    return Amount(
        whole([exact(epsilon=fit.amount) for fit in fits], score, exact(epsilon=search.amount)),
        whole([exact(delta=fit.delta) for fit in fits], Fraction(0), exact(delta=search.delta)),
        "epsilon",
    )
