"""Searches with scikit-learn: what is charged, what is refused, and what no record may decide."""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Self

import joblib  # type: ignore[import-untyped]
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn.experimental.enable_halving_search_cv  # noqa: F401 (makes the class importable)
from joblib.parallel import ParallelBackendBase  # type: ignore[import-untyped]
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.feature_selection import RFECV, SequentialFeatureSelector
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    PredefinedSplit,
    RandomizedSearchCV,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
    validation_curve,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.adapters import sklearn as adapter
from tightbudget.adapters.sklearn import PrivateAccuracy, PrivateGridSearchCV
from tightbudget.output_dp.amount import exact
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.promises.keyed import Keyed
from tightbudget.release.default_meter import default_meter
from tightbudget.release.noise.trials import number_of_trials
from tightbudget.release.release import paid, what_if

ANGLES = np.arange(120) * 2.0
X = np.column_stack([np.cos(ANGLES), np.sin(ANGLES)]) * 0.99
Y = np.where(np.cos(ANGLES) > 0, "yes", "no")


class Spy(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A model that pays and notes its rows; it predicts "yes" right of 0, or is withheld."""

    seen: ClassVar[list[Any]] = []

    def __init__(self, epsilon: float = 0.5, withheld: bool = False) -> None:
        self.epsilon = epsilon
        self.withheld = withheld

    @property
    def guarantee(self) -> OutputDP:
        return OutputDP({"value": self.epsilon, "bottom": 0.125}, delta=2.0**-20)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_") and not self.withheld

    def what_if(self, meter: tb.release.Meter) -> tb.release.ReleasePreview:
        return what_if(self.guarantee, meter)

    def fit(self, X: Any, y: Any, *, meter: tb.release.Meter, noise: Any = None) -> Self:
        cell = "bottom" if self.withheld else "value"
        paid(meter, self.guarantee, (X, y), lambda _: (None, cell))
        self.classes_ = np.array(["no", "yes"])
        self.seen.append((np.array(X), np.array(y)))
        return self

    def predict(self, X: Any) -> Any:
        return np.where(np.asarray(X)[:, 0] > 0, "yes", "no")


def spent(meter: Any) -> tuple[Fraction | int, Fraction | int]:
    return meter._spent.counted, meter._spent.delta


def search(estimator: Any, grid: Any, **more: Any) -> PrivateGridSearchCV:
    return PrivateGridSearchCV(estimator, grid, **{"score_epsilon": 0.25, "folds": 3} | more)


# ------------------------------------------------------------------------- what is charged

EPSILONS = {"epsilon": [0.5, 1.0]}
PIPE = Pipeline([("unit", Normalizer()), ("spy", Spy())])
INSIDE = {"spy__epsilon": [0.5, 1.0]}
DELTA = Fraction(1, 2**20)
PUBLIC = PredefinedSplit([0] * 40 + [-1] * 80)  # the first forty
CASES: list[tuple[Any, Any, dict[str, Any], Any, Any]] = [
    # estimator, grid, options, epsilon, fits
    (Spy(), EPSILONS, {}, 3 * (1.5 + 2 * 0.25) + 1.0, 7),
    (Spy(), EPSILONS, {"refit": False}, 3 * (1.5 + 2 * 0.25), 6),
    (Spy(), EPSILONS, {"folds": PUBLIC, "score_epsilon": None}, 1.5 + 1.0, 3),
    (Spy(), EPSILONS, {"folds": 2}, 2 * (1.5 + 2 * 0.25) + 1.0, 5),
    (Spy(), EPSILONS, {"folds": KFold(4)}, 4 * (1.5 + 2 * 0.25) + 1.0, 9),
    (Spy(), EPSILONS, {"folds": RepeatedKFold(n_splits=2, n_repeats=2)}, 4 * 2.0 + 1.0, 9),
    (Spy(), EPSILONS, {"folds": ShuffleSplit(1)}, 2.0 + 1.0, 3),
    (Spy(), EPSILONS, {"folds": PUBLIC}, 2.0 + 1.0, 3),
    (Spy(), [{"epsilon": [1.0]}, {"epsilon": [0.25]}], {}, 3 * (1.25 + 0.5) + 1.0, 7),
    (Spy(), {}, {}, 3 * 0.75 + 0.5, 4),
    (PIPE, INSIDE, {}, 7.0, 7),
    (Pipeline([("outer", PIPE)]), {"outer__spy__epsilon": [0.5, 1.0]}, {}, 7.0, 7),
    (PIPE, INSIDE | {"unit": ["passthrough", Normalizer()]}, {}, 13.0, 13),
]


@pytest.mark.parametrize(("estimator", "grid", "options", "epsilon", "fits"), CASES)
def test_each_fit_and_each_score_is_charged(
    estimator: Any, grid: Any, options: dict[str, Any], epsilon: float, fits: int
) -> None:
    """The search charges each fit and score at its price, and the refit at that of the best."""
    meter = tb.OutputDPFilter(100, 1)
    tried = search(estimator, grid, **options)
    before = tried.what_if(meter)
    assert (before.most.epsilon, before.most.delta) == (epsilon, float(fits * DELTA))
    assert before.fits
    Spy.seen.clear()
    tried.fit(X, Y, meter=meter)
    assert len(Spy.seen) == fits
    total, delta = spent(meter)
    assert delta == fits * DELTA
    refitted = 0 if options.get("refit") is False else _price(tried.best_params_)
    assert total == Fraction(epsilon) - (max_price(grid) if refitted else 0) + Fraction(refitted)
    assert before.least.epsilon <= total <= before.most.epsilon


def _price(parameters: dict[str, Any]) -> float:
    return next((v for name, v in parameters.items() if name.endswith("epsilon")), 0.5)


def max_price(grid: Any) -> Fraction:
    tables = grid if isinstance(grid, list) else [grid]
    prices = [v for t in tables for name, values in t.items() if "epsilon" in name for v in values]
    return Fraction(max(prices, default=0.5))


def test_withheld_models_score_nothing_and_cost_the_least() -> None:
    meter = tb.OutputDPFilter(100, 1)
    tried = search(Spy(withheld=True), EPSILONS)
    least = tried.what_if(meter).least
    tried.fit(X, Y, meter=meter)
    assert least.epsilon == 7 * 0.125
    assert spent(meter)[0] == 7 * Fraction(1, 8)
    assert set(tried.cv_results_["mean_test_score"]) == {0.0}


def test_the_real_estimator_learns() -> None:
    meter = tb.OutputDPFilter(100)
    pipe = make_pipeline(Normalizer(), tb.release.PrivateLogisticRegression(2.0, clip=True))
    name = "privatelogisticregression__regularization"
    tried = search(pipe, {name: [0.05, 0.5]}, score_epsilon=1.0).fit(X, Y, meter=meter)
    assert spent(meter)[0] == 7 * 2 + 6
    assert tried.best_params_[name] in (0.05, 0.5)
    assert tried.score(X, Y) > 0.8
    assert spent(meter)[0] == 7 * 2 + 6  # the model's own score is not private, and not paid


def test_a_model_that_no_test_lets_pass_has_no_score() -> None:
    meter = tb.OutputDPFilter(100)
    model = tb.release.PrivateLogisticRegression(1.0, threshold=-1e3, test_epsilon=0.125)
    tried = search(model, {"regularization": [0.1]}).fit(X, Y, meter=meter)
    assert tried.best_score_ == 0.0
    assert spent(meter)[0] == 4 * Fraction(1, 8)
    with pytest.raises(NotFittedError):
        tried.predict(X)


def test_public_rows_are_scored_exactly() -> None:
    tried = search(Spy(), {}, folds=PUBLIC, score_epsilon=None)
    assert tried.fit(X, Y, meter=tb.OutputDPOdometer()).best_score_ == 1.0


def test_metadata_routing_changes_nothing() -> None:
    meter = tb.OutputDPFilter(100, 1)
    with config_context(enable_metadata_routing=True):
        search(PIPE, INSIDE).fit(X, Y, meter=meter)
    assert spent(meter)[1] == 7 * DELTA


# ------------------------------------------------------------------- what is refused, and how


@pytest.mark.parametrize(
    ("estimator", "options", "said"),
    [
        (Spy(), {"folds": StratifiedKFold(3)}, "folds must be an integer >= 2, or see no label"),
        (Spy(), {"folds": 1}, "folds must be an integer >= 2"),
        (Spy(), {"folds": True}, "got True"),
        (Spy(), {"folds": [([0], [1])]}, "folds must be an integer >= 2"),
        (Spy(), {"score_epsilon": 0}, "score_epsilon must be a finite number > 0, got 0"),
        (Spy(), {"score_epsilon": np.nan}, "score_epsilon must be a finite number > 0, got nan"),
        (Spy(), {"score_epsilon": None}, "score_epsilon must be > 0, unless a PredefinedSplit"),
        (LogisticRegression(), {}, "estimator must have a fit that takes a meter"),
        (make_pipeline(StandardScaler(), Spy()), {}, "step 'standardscaler' would learn from"),
        (
            Pipeline([("first", make_pipeline(StandardScaler())), ("last", Spy())]),
            {},
            "step 'first' would learn from the records, and pays nothing",
        ),
    ],
)
def test_refusals(estimator: Any, options: dict[str, Any], said: str) -> None:
    meter = tb.OutputDPFilter(100, 1)
    Spy.seen.clear()
    with pytest.raises(tb.ParameterError) as caught:
        search(estimator, {}, **options).fit(X, Y, meter=meter)
    assert said in str(caught.value)
    assert spent(meter) == (0, 0)
    assert not Spy.seen


def test_a_grid_may_not_bring_in_a_step_that_learns() -> None:
    with pytest.raises(tb.ParameterError, match="step 'unit' would learn"):
        search(PIPE, {"unit": [Normalizer(), StandardScaler()]}).fit(
            X, Y, meter=tb.OutputDPOdometer()
        )


def test_steps_that_learn_nothing_are_welcome() -> None:
    public = FrozenEstimator(StandardScaler().fit(X[:10]))
    halves = FunctionTransformer(lambda rows: rows / 2)
    pipe = Pipeline([("a", public), ("b", make_pipeline(halves)), ("c", None), ("spy", Spy())])
    meter = tb.OutputDPFilter(100, 1)
    search(pipe, {}).fit(X, Y, meter=meter)
    assert spent(meter)[1] == 4 * DELTA


def test_a_search_that_may_not_fit_does_not_begin() -> None:
    meter = tb.OutputDPFilter(Fraction("6.9999"), 1)
    Spy.seen.clear()
    with pytest.raises(tb.errors.BudgetError) as caught:
        search(Spy(), EPSILONS).fit(X, Y, meter=meter)
    assert str(caught.value) == (
        f"the search may cost epsilon 7.0, delta {float(7 * DELTA)!r}; left epsilon 6.9999, "
        "delta 1.0"
    )
    assert not Spy.seen
    assert spent(meter) == (0, 0)


class Shared:
    """A budget of which somebody else takes the rest after some runs."""

    def __init__(self, runs: int) -> None:
        self.budget, self.runs = tb.OutputDPFilter(100, 1), runs

    @property
    def left(self) -> tb.Amount:
        return self.budget.left

    def reserve(self, guarantee: OutputDP, *, interactive: bool = False) -> Any:
        self.runs -= 1
        if self.runs < 0:
            self.budget.reserve(OutputDP({"all": Fraction(str(self.left.epsilon))})).forfeit()
        return self.budget.reserve(guarantee, interactive=interactive)


@pytest.mark.parametrize("runs", [0, 1, 2, 5, 12])
def test_a_refusal_in_the_middle_ends_the_search(runs: int) -> None:
    """The refusal may come at a fit, at a score or at the refit."""
    meter = Shared(runs)
    tried = search(Spy(), EPSILONS)
    with pytest.raises(tb.errors.BudgetError, match="requested epsilon"):
        tried.fit(X, Y, meter=meter)
    assert meter.budget.left.epsilon == 0
    assert not hasattr(tried, "best_estimator_") or not hasattr(tried.best_estimator_, "classes_")


# ------------------------------------------------------------- one record decides one record


def rows_apart(tried: Any, **more: Any) -> int:
    """Counts the rows that any fit sees changed, at most, if one record of the data is replaced."""
    seen = []
    for y in (Y, np.where(np.arange(len(Y)) == 7, np.where(Y == "yes", "no", "yes"), Y)):
        Spy.seen.clear()
        clone(tried).fit(X, y, meter=tb.OutputDPOdometer(), **more)
        seen.append([np.column_stack([a.astype(str), b]) for a, b in Spy.seen])
    pairs = list(zip(*seen, strict=True))
    if any(a.shape != b.shape for a, b in pairs):
        return len(Y)
    return max(int(np.count_nonzero((a != b).any(axis=1))) for a, b in pairs)


@pytest.mark.parametrize(
    "folds",
    [2, 5, KFold(3), RepeatedKFold(n_splits=3, random_state=1), ShuffleSplit(3, random_state=1)],
)
def test_no_fold_depends_on_a_record(folds: Any) -> None:
    assert rows_apart(search(Spy(), {}, folds=folds)) == 1


def test_the_folds_of_a_plain_search_depend_on_labels() -> None:
    """A fold that stratifies moves other records when one record changes."""
    assert rows_apart(GridSearchCV(Spy(), {}, cv=5)) > 1


# --------------------------------------------------------------------------------- the score


class Planned:
    """A source of noise that draws one number, chosen by the test."""

    batch = 1

    def __init__(self, draw: int) -> None:
        self.draw, self.scales = draw, list[Any]()

    def laplace(self, scale: Any, size: int) -> Any:
        self.scales.append(scale)
        return np.full(size, self.draw, dtype=np.int64)


@pytest.mark.parametrize(("draw", "score"), [(0, 0.75), (3, 0.9), (-20, -0.25)])
def test_a_score_is_the_noisy_share_of_right_predictions(draw: int, score: float) -> None:
    meter, noise = tb.OutputDPFilter(1), Planned(draw)
    accuracy = PrivateAccuracy(0.25, meter, noise)  # type: ignore[arg-type]
    model = Spy().fit(X, Y, meter=tb.OutputDPOdometer())
    x, y = X[:20], np.array(list(Y[:15]) + ["neither"] * 5)
    assert accuracy(model, x, y) == pytest.approx(score, rel=1e-12)
    assert noise.scales == [4]  # of a count that one record moves by 1
    assert spent(meter)[0] == Fraction(1, 4)


def test_a_score_costs_before_it_looks_and_a_model_that_fails_is_wrong() -> None:
    meter = tb.OutputDPFilter(Fraction(3, 10))
    model = Spy().fit(X, Y, meter=tb.OutputDPOdometer())
    accuracy = PrivateAccuracy(0.2, meter)
    failing = PrivateAccuracy(0.2, meter, Planned(0))  # type: ignore[arg-type]
    assert failing(model, np.zeros((3, 0)), Y[:3]) == 0.0
    with pytest.raises(tb.errors.BudgetError, match=r"requested epsilon 0\.2"):
        accuracy(model, X, Y)
    assert spent(meter)[0] == Fraction(1, 5)
    with pytest.raises(tb.ParameterError, match="epsilon must be a finite number > 0, got 0"):
        PrivateAccuracy(0, meter)


class Column(Spy):
    """A model that predicts a column, (n, 1), as some models of other packages do."""

    def predict(self, X: Any) -> Any:
        return super().predict(X)[:, None]


class Borderline(Spy):
    """A model that rounds otherwise if it is asked for one record alone, as BLAS does."""

    def predict(self, X: Any) -> Any:
        together = super().predict(X)
        return together if len(X) > 1 else np.where(together == "yes", "no", "yes")


class Refuses:
    """A label that raises where it is compared."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError


LABELS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "objects": lambda y: pd.Series(y, dtype=object).to_numpy(),
    "pandas": lambda y: pd.Series(y, dtype=object),
    "frame": lambda y: pd.DataFrame({"y": pd.Series(y, dtype=object)}),
}


def one_label_moves_one_score(kind: str = "list", model: type[Spy] = Spy) -> bool:
    """Replacing one label, by whatever value, changes the count of right predictions by 1."""
    fitted = model().fit(X, Y, meter=tb.OutputDPOdometer())
    scores = []
    for odd in ("yes", "no", None, 7, 2.5, b"yes", [1, 2], ["yes"], Refuses(), np.arange(3)):
        y = [*Y[:20]]
        y[7] = odd
        meter = tb.OutputDPFilter(1)
        noiseless: Any = Planned(0)
        try:
            score = PrivateAccuracy(1, meter, noiseless)(fitted, X[:20], LABELS[kind](y))
        except ValueError:
            return False
        scores.append(round(20 * score))
        if spent(meter)[0] != 1:
            return False
    return max(scores) == 20 and min(scores) == 19


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("model", [Spy, Column, Borderline])
def test_one_label_moves_one_score(kind: str, model: type[Spy]) -> None:
    assert one_label_moves_one_score(kind, model)


@pytest.mark.parametrize("shape", [(20, 2), (), (2, 10, 1)], ids=["table", "single", "cube"])
def test_a_score_is_of_one_label_for_each_record(shape: tuple[int, ...]) -> None:
    meter = tb.OutputDPFilter(1)
    fitted = Spy().fit(X, Y, meter=tb.OutputDPOdometer())
    with pytest.raises(tb.ParameterError, match="y must be one label for each record, got"):
        PrivateAccuracy(1, meter)(fitted, X[:20], np.full(shape, "yes"))
    assert spent(meter) == (0, 0)


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (0, 0, "X must have a record, got 0"),
        (3, 2, "y must have 3 labels, as many as X has records, got 2"),
    ],
)
def test_a_score_of_other_labels_is_refused_unpaid(rows: int, labels: int, message: str) -> None:
    meter = tb.OutputDPFilter(1)
    fitted = Spy().fit(X, Y, meter=tb.OutputDPOdometer())
    with pytest.raises(tb.ParameterError) as refusal:
        PrivateAccuracy(1, meter)(fitted, X[:rows], Y[:labels])
    assert str(refusal.value) == message
    assert spent(meter) == (0, 0)


# ----------------------------------------------------------------- one meter, never a copy


def test_plain_searches_may_be_given_the_pieces() -> None:
    """Each fit is charged, and each score; copies of the search share the meter."""
    meter = tb.OutputDPFilter(100, 1)
    plain = GridSearchCV(
        Spy(), EPSILONS, cv=KFold(3), scoring=PrivateAccuracy(0.25, meter), error_score="raise"
    )
    clone(plain).fit(X, Y, meter=meter)
    assert spent(meter)[1] == 7 * DELTA
    inner = clone(plain).set_params(refit=True)
    cross_val_score(inner, X, Y, cv=KFold(2), scoring=PrivateAccuracy(0.25, meter),
                    params={"meter": meter}, error_score="raise")  # fmt: skip
    assert spent(meter)[1] == 3 * 7 * DELTA


def test_a_plain_search_hides_a_refusal() -> None:
    """A fit that exceeds the budget becomes a missing score, and the search goes on."""
    meter = tb.OutputDPFilter(3, 1)
    plain = GridSearchCV(Spy(1.0), {"epsilon": [1.0, 2.0]}, cv=KFold(3), refit=False)
    with pytest.warns(FitFailedWarning), pytest.warns(UserWarning, match="non-finite"):
        plain.fit(X, Y, meter=meter)
    assert meter.left.epsilon == 0


def test_a_budget_does_not_go_to_other_processes() -> None:
    """A GridSearchCV sends its fits to processes; the error says why no budget goes there."""
    meter = tb.OutputDPFilter(100, 1)
    plain = GridSearchCV(Spy(), EPSILONS, cv=KFold(3), n_jobs=2)
    with pytest.raises(pickle.PicklingError) as caught:
        plain.fit(X, Y, meter=meter)
    assert "a copy would spend the same budget once more" in str(caught.value.__cause__)
    assert spent(meter) == (0, 0)


@pytest.mark.slow  # two processes import the package
def test_a_default_meter_is_not_seen_in_other_processes() -> None:
    meter = tb.OutputDPFilter(100)
    model = tb.release.PrivateLogisticRegression(1.0)
    with default_meter(meter), pytest.raises(ValueError, match="another thread or process does"):
        cross_val_score(model, X, Y, cv=KFold(3), n_jobs=2)
    assert spent(meter) == (0, 0)


class Elsewhere(ParallelBackendBase):  # type: ignore[misc]
    """A backend of joblib that would run everything in other processes."""

    supports_sharedmem = False

    def effective_n_jobs(self, n_jobs: int) -> int:
        return 2

    def submit(self, func: Any, callback: Any = None) -> Any:
        raise AssertionError("a fit was sent to another process")

    apply_async = submit


joblib.register_parallel_backend("elsewhere", Elsewhere)


def fits_stay_here(backend: str = "elsewhere", n_jobs: int | None = None) -> bool:
    """A search under a backend of other processes runs in this one, and all of it is charged."""
    meter = tb.OutputDPFilter(100, 1)
    Spy.seen.clear()
    try:
        with joblib.parallel_config(backend, n_jobs=2):
            search(Spy(), EPSILONS, n_jobs=n_jobs).fit(X, Y, meter=meter)
    except (AssertionError, pickle.PicklingError):
        return False
    return len(Spy.seen) == 7 and spent(meter)[1] == 7 * DELTA


@pytest.mark.one_in(3)
@pytest.mark.parametrize("backend", ["elsewhere", "loky", "multiprocessing", "threading"])
@pytest.mark.parametrize("n_jobs", [None, 2, -1])
def test_fits_share_the_meter_whatever_the_backend(backend: str, n_jobs: int | None) -> None:
    assert fits_stay_here(backend, n_jobs)


def test_a_plain_search_can_be_kept_in_threads() -> None:
    meter = tb.OutputDPFilter(100, 1)
    plain = GridSearchCV(Spy(), EPSILONS, cv=KFold(3), n_jobs=2, refit=False)
    with joblib.parallel_config("elsewhere", require="sharedmem"):
        plain.fit(X, Y, meter=meter)
    assert spent(meter)[1] == 6 * DELTA


class Met:
    """A budget of a ledger whose answers wait until two threads have asked, or for a while."""

    def __init__(self) -> None:
        self.keys, self.both = list[str](), threading.Barrier(2)

    def reserve(self, key: str, guarantee: Any, **_: object) -> str:
        with contextlib.suppress(threading.BrokenBarrierError):
            self.both.wait(0.1)
        self.keys.append(key)
        return key


def threads_take_different_keys() -> bool:
    met = Met()
    meter: Keyed[Any] = Keyed(met, "S")  # type: ignore[arg-type]
    with ThreadPoolExecutor(2) as pool:
        for run in [pool.submit(meter.reserve, OutputDP({"all": 1})) for _ in range(2)]:
            run.result()
    return sorted(met.keys) == ["S", "S#2"]


def test_each_fit_in_threads_has_a_key_of_its_own(tmp_path: Path) -> None:
    """Two threads that take one key would have one of their fits refused."""
    assert threads_take_different_keys()
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        ada = ledger.open_budget("ada", epsilon=20, delta=1e-3)
        search(Spy(), EPSILONS, n_jobs=4).fit(X, Y, meter=ada.keyed("S"))
        keys = {event.key for event in ada.history() if event.kind == "settled"}
        assert keys == {"S", *(f"S#{i}" for i in range(2, 14))}
        assert not ada.holds()


def test_threads_share_it() -> None:
    meter = tb.OutputDPFilter(7, 1)
    with joblib.parallel_config("threading", n_jobs=4):
        search(Spy(), {"epsilon": [1.0, 0.5]}).fit(X, Y, meter=meter)
    assert spent(meter)[1] == 7 * DELTA


def test_what_is_kept_knows_no_meter() -> None:
    tried = search(PIPE, INSIDE).fit(X, Y, meter=tb.OutputDPFilter(100, 1))
    again = pickle.loads(pickle.dumps(tried))
    assert (again.predict(X) == tried.predict(X)).all()
    assert clone(tried).get_params(deep=False).keys() == {
        "estimator", "param_grid", "score_epsilon", "folds", "refit", "n_jobs", "trials", "delta",
    }  # fmt: skip


def test_a_search_on_a_ledger_has_a_key_and_runs_once(tmp_path: Path) -> None:
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        ada = ledger.open_budget("ada", epsilon=20, delta=1e-3)
        tried = search(Spy(), EPSILONS)
        assert tried.what_if(ada.keyed("S")).fits
        tried.fit(X, Y, meter=ada.keyed("S"))
        charged = ada.spent
        assert 6.5 <= charged.epsilon <= 7.0
        assert {hold.key for hold in ada.holds()} == set()
        keys = {event.key for event in ada.history() if event.kind == "settled"}
        assert keys == {"S", *(f"S#{i}" for i in range(2, 14))}
        with pytest.raises(tb.errors.SettlementError):  # its models were not kept
            clone(tried).fit(X, Y, meter=ada.keyed("S"))
        assert ada.spent == charged
        clone(tried).fit(X, Y, meter=ada.keyed("T"))
        assert ada.spent.epsilon >= 2 * 6.5


# ------------------------------------------------------------------- a random number of trials


class Coins:
    """Coins of a generator, and no other noise."""

    batch = 1

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.tossed = 0

    def coin(self) -> bool:
        self.tossed += 1
        return bool(self.random.integers(2))

    def laplace(self, scale: Any, size: int) -> Any:
        return np.zeros(size, dtype=np.int64)

    gaussian = laplace


class Side(Spy):
    """A model that is right where "yes" is on the right, and only then; it may raise, or pay more.

    What it pays beyond what it says is ``more``.
    """

    def __init__(self, right: bool = True, fails: bool = False, more: float = 0.0) -> None:
        super().__init__()
        self.right = right
        self.fails = fails
        self.more = more

    def fit(self, X: Any, y: Any, *, meter: tb.release.Meter, noise: Any = None) -> Self:
        if self.fails:
            raise ValueError("of these records")
        if self.more:
            paid(meter, OutputDP({"value": self.more}), X, lambda _: (None, "value"))
        return super().fit(X, y, meter=meter, noise=noise)

    def predict(self, X: Any) -> Any:
        found = super().predict(X)
        return found if self.right else np.where(found == "yes", "no", "yes")


class Chosen(Spy):
    """A model that notes which combination it is."""

    numbers: ClassVar[list[int]] = []

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.number = number

    def fit(self, X: Any, y: Any, *, meter: tb.release.Meter, noise: Any = None) -> Self:
        self.numbers.append(self.number)
        return super().fit(X, y, meter=meter, noise=noise)


LAWS = [
    tb.trials.NegativeBinomial(4.0),
    tb.trials.NegativeBinomial(4.0, 0.0),
    tb.trials.Poisson(3.0),
    tb.trials.Binomial(6, 0.5),
]
ONE = ShuffleSplit(1, random_state=0)


def tried_at_random(estimator: Any, grid: Any, **more: Any) -> PrivateGridSearchCV:
    return search(estimator, grid, **{"trials": LAWS[0], "delta": 1e-4, "folds": ONE} | more)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("folds", [ONE, 3, PUBLIC], ids=["one", "three", "public"])
@pytest.mark.parametrize("refit", [True, False])
def test_trials_are_drawn_first_and_paid_once(law: Any, folds: Any, refit: bool) -> None:
    """The charge is the upper bound of the costliest combination, whatever was drawn."""
    score = None if folds is PUBLIC else 0.25
    parts = 3 if folds == 3 else 1
    meter = tb.OutputDPFilter(100, 1)
    chosen = {"trials": law, "folds": folds, "score_epsilon": score, "refit": refit}
    tried = tried_at_random(Spy(), EPSILONS, **chosen)
    before = tried.what_if(meter)
    Spy.seen.clear()
    tried.fit(X, Y, meter=meter, noise=Coins(7))
    drawn = number_of_trials(law, Coins(7))
    assert len(Spy.seen) == parts * drawn + (refit and drawn > 0)
    run = tb.ApproximateDP(1.0, float(DELTA)) * parts
    run += tb.ApproximateDP(0.25) * (0 if score is None else parts)
    price = exact(epsilon=run.best_of(law).answer(delta=1e-4).bounds.upper)
    last = Fraction(tried.best_params_["epsilon"]) if refit else 0
    assert spent(meter) == (price + last, Fraction(1, 10_000) + refit * DELTA)
    assert tried.release_.receipt.charged.epsilon == float(price)
    assert before.least.epsilon == float(price)
    assert before.most.epsilon == pytest.approx(float(price) + refit, rel=1e-15)
    assert exact(epsilon=before.most.epsilon) >= price + refit


def test_the_best_of_the_trials_is_released() -> None:
    tried = tried_at_random(Side(), {"right": [False, True]}, trials=tb.trials.Binomial(12))
    tried.fit(X, Y, meter=tb.OutputDPFilter(100, 1), noise=Coins(1))
    assert tried.best_params_ == {"right": True}
    assert tried.best_score_ == 1.0 == tried.score(X, Y)
    assert not hasattr(tried, "cv_results_")


def test_each_combination_is_as_likely_as_another() -> None:
    Chosen.numbers.clear()
    grid, law = {"number": [0, 1, 2]}, tb.trials.Binomial(90)
    tried = tried_at_random(Chosen(), grid, trials=law, delta=0.01, refit=False)
    tried.fit(X[:12], Y[:12], meter=tb.OutputDPFilter(1e6, 1), noise=Coins(3))
    counted = np.bincount(Chosen.numbers)
    assert counted.sum() == 90
    assert (abs(counted - 30) < 18).all()  # four standard deviations


def test_no_trial_and_trials_that_fail_are_paid_and_fit_nothing() -> None:
    for law, grid, seed in (
        (tb.trials.Poisson(1e-9), {}, 5),
        (tb.trials.Binomial(3), {"fails": [True]}, 1),
    ):
        meter = tb.OutputDPFilter(1000, 1)
        tried = tried_at_random(Side(), grid, trials=law).fit(X, Y, meter=meter, noise=Coins(seed))
        assert tried.best_params_ is None
        assert np.isnan(tried.best_score_)
        assert spent(meter)[1] == Fraction(1, 10_000)  # and no fit after the search
        with pytest.raises(NotFittedError):
            check_is_fitted(tried.best_estimator_)


class FailsAtLast(Spy):
    """A model that is fitted in trials, where each fit has a small budget of its own, alone."""

    def fit(self, X: Any, y: Any, *, meter: tb.release.Meter, noise: Any = None) -> Self:
        if meter.left.epsilon > 50:
            raise RuntimeError("no memory")
        return super().fit(X, y, meter=meter, noise=noise)


def test_what_the_trials_have_found_is_kept_if_the_last_fit_fails() -> None:
    meter = tb.OutputDPFilter(100, 1)
    tried = tried_at_random(FailsAtLast(), {"epsilon": [0.5]}, trials=tb.trials.Binomial(3))
    with pytest.raises(RuntimeError, match="no memory"):
        tried.fit(X, Y, meter=meter, noise=Coins(1))
    assert tried.best_params_ == {"epsilon": 0.5}
    assert spent(meter)[0] == exact(epsilon=tried.release_.receipt.charged.epsilon)


def overpaid() -> bool:
    """A fit that pays more than its what_if has said does not win, since no price covers it."""
    tried = tried_at_random(Side(), {"more": [0.25]}, trials=tb.trials.Binomial(8), refit=False)
    tried.fit(X, Y, meter=tb.OutputDPFilter(100, 1), noise=Coins(1))
    return tried.best_params_ is None


def test_a_fit_that_pays_more_than_it_said_is_the_worst() -> None:
    assert overpaid()


def scored_for_a_price() -> bool:
    """One run of the price has the fit and the score of each fold."""
    made = tried_at_random(Spy(), {})._search()
    assert made is not None
    return made.run == tb.ApproximateDP(0.5, float(DELTA)) + tb.ApproximateDP(0.25)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trials": 4}, "trials must be a law of tb.trials"),
        ({"delta": 2.0}, r"delta must be in [0, 1], got 2.0"),
        ({"delta": 0.0}, "delta must be above"),
        ({"trials": None}, "delta must be 0 without trials: fits and scores add up, got 0.0001"),
        ({"n_jobs": 2}, "n_jobs must be None or 1 with trials: one follows another, got 2"),
        ({"param_grid": []}, "param_grid must have a combination of parameters, got []"),
        ({"folds": StratifiedKFold(3)}, "folds must be an integer >= 2, or see no label"),
        ({"score_epsilon": None}, "score_epsilon must be > 0, unless a PredefinedSplit"),
        ({"estimator": LogisticRegression()}, "estimator must have a fit that takes a meter"),
    ],
)
def test_trials_that_are_refused(options: dict[str, Any], said: str) -> None:
    meter = tb.OutputDPFilter(100, 1)
    with pytest.raises(tb.ParameterError) as caught:
        tried_at_random(Spy(), {}).set_params(**options).fit(X, Y, meter=meter)
    assert said in str(caught.value)
    assert spent(meter) == (0, 0)


def test_trials_of_other_labels_or_beyond_the_budget_are_refused_unpaid() -> None:
    meter = tb.OutputDPFilter(100, 1)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        tried_at_random(Spy(), {}).fit(X, Y[:-1], meter=meter)
    with pytest.raises(ValueError, match="n_splits=3"):
        tried_at_random(Spy(), {}, folds=3).fit(X[:2], Y[:2], meter=meter)
    assert spent(meter) == (0, 0)
    small = tb.OutputDPFilter(1, 1)
    with pytest.raises(tb.errors.BudgetError, match="the search may cost epsilon"):
        tried_at_random(Spy(), {}).fit(X, Y, meter=small)
    assert spent(small) == (0, 0)


def test_trials_on_a_ledger_settle_once_and_are_not_repeated(tmp_path: Path) -> None:
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        ada = ledger.open_budget("ada", epsilon=20, delta=1e-3)
        tried = tried_at_random(PIPE, INSIDE).fit(X, Y, meter=ada.keyed("S"))
        charged = ada.spent
        keys = {event.key for event in ada.history() if event.kind == "settled"}
        assert keys == {"S", "S#2"}  # the trials, and the last fit
        with pytest.raises(tb.errors.SettlementError):
            clone(tried).fit(X, Y, meter=ada.keyed("S"))
        assert ada.spent == charged
    assert (pickle.loads(pickle.dumps(tried)).predict(X) == tried.predict(X)).all()


# -------------------------------------------------------------------- scikit-learn's own checks


# so little noise that two fits agree to the last digit: one check compares them
@pytest.mark.one_in(4)
@parametrize_with_checks(
    [
        PrivateGridSearchCV(
            tb.release.PrivateLogisticRegression(epsilon=1e9, clip=True),
            {"regularization": [1e-3]},
            score_epsilon=1e9,
            folds=2,
        )
    ],
)
def test_estimator_checks(estimator: Any, check: Any) -> None:
    """Every check of scikit-learn passes; it calls fit(X, y), and a default meter pays."""
    with default_meter(tb.OutputDPOdometer()):
        check(estimator)


# ------------------------------------------------------- all that scikit-learn does with models


class Released(tb.release.PrivateLogisticRegression):
    """Notes the charge of each fit that came to its end."""

    charges: ClassVar[list[Fraction]] = []

    def fit(self, X: Any, y: Any, *, meter: Any = None, noise: Any = None) -> Self:
        super().fit(X, y, meter=meter, noise=noise)
        self.charges.append(Fraction(self.release_.receipt.charged.epsilon))
        return self


def scored(estimator: Any, X: Any, y: Any) -> float:
    """A score of 1/4, which is noted."""
    score = PrivateAccuracy(0.25)(estimator, X, y)
    Released.charges.append(Fraction(1, 4))
    return score


LEARNER, PLAIN = Released(0.5, 0.1), KFold(3)
SIDES, THREE = (np.cos(ANGLES) > 0).astype(int), np.arange(120) % 3
GRID = {"regularization": [0.1, 0.2]}
BOTH = np.column_stack([SIDES, 1 - SIDES])
OPTIONS: Any = {"cv": PLAIN, "scoring": scored}
# each tool, with the epsilon that all of it costs; None if noise decides how often it fits
TOOLS: dict[str, tuple[Callable[[], Any], float | None]] = {
    "PrivateGridSearchCV": (lambda: search(LEARNER, GRID).fit(X, SIDES), 3.5),
    "GridSearchCV": (lambda: GridSearchCV(LEARNER, GRID, **OPTIONS).fit(X, SIDES), 5),
    "RandomizedSearchCV": (
        lambda: RandomizedSearchCV(LEARNER, GRID, n_iter=2, **OPTIONS).fit(X, SIDES),
        5,
    ),
    "HalvingGridSearchCV": (
        lambda: HalvingGridSearchCV(LEARNER, GRID, min_resources=40, **OPTIONS).fit(X, SIDES),
        6.5,
    ),
    "cross_val_score": (lambda: cross_val_score(LEARNER, X, SIDES, **OPTIONS), 2.25),
    "cross_validate": (
        lambda: cross_validate(LEARNER, X, SIDES, return_train_score=True, **OPTIONS),
        3,
    ),
    "cross_val_predict": (lambda: cross_val_predict(LEARNER, X, SIDES, cv=PLAIN), 1.5),
    "learning_curve": (
        lambda: learning_curve(LEARNER, X, SIDES, train_sizes=[0.5, 1.0], **OPTIONS),
        6,
    ),
    "validation_curve": (
        lambda: validation_curve(
            LEARNER, X, SIDES, param_name="regularization", param_range=[0.1, 0.2], **OPTIONS
        ),
        6,
    ),
    "permutation_test_score": (
        lambda: permutation_test_score(LEARNER, X, SIDES, n_permutations=3, **OPTIONS),
        9,
    ),
    "nested": (lambda: cross_val_score(search(LEARNER, GRID), X, SIDES, **OPTIONS), 11.25),
    "RFECV": (lambda: RFECV(LEARNER, **OPTIONS).fit(X, SIDES), None),
    "SequentialFeatureSelector": (
        lambda: SequentialFeatureSelector(LEARNER, n_features_to_select=1, **OPTIONS).fit(X, SIDES),
        4.5,
    ),
    "OneVsRestClassifier": (lambda: OneVsRestClassifier(LEARNER).fit(X, THREE), 1.5),
    "OneVsOneClassifier": (lambda: OneVsOneClassifier(LEARNER).fit(X, THREE), 1.5),
    "BaggingClassifier": (lambda: BaggingClassifier(LEARNER, n_estimators=3).fit(X, SIDES), 1.5),
    "VotingClassifier": (
        lambda: VotingClassifier([("a", LEARNER), ("b", LEARNER)]).fit(X, SIDES),
        1,
    ),
    "StackingClassifier": (
        lambda: StackingClassifier([("a", LEARNER)], cv=PLAIN).fit(X, SIDES),
        2,
    ),
    "CalibratedClassifierCV": (
        lambda: CalibratedClassifierCV(LEARNER, cv=PLAIN).fit(X, SIDES),
        1.5,
    ),
    "TunedThresholdClassifierCV": (
        lambda: TunedThresholdClassifierCV(LEARNER, cv=PLAIN).fit(X, SIDES),
        2,
    ),
    "MultiOutputClassifier": (lambda: MultiOutputClassifier(LEARNER).fit(X, BOTH), 1),
    "ClassifierChain": (lambda: ClassifierChain(LEARNER).fit(X, BOTH), 1),
}


@pytest.mark.one_in(6)
@pytest.mark.filterwarnings("ignore")  # scikit-learn warns of fits that failed
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("cap", [100, 2.125, 0.25])
def test_what_is_charged_is_what_was_released(tool: str, cap: float) -> None:
    """The charge is the sum of all fits and scores, wherever the budget ends."""
    run, price = TOOLS[tool]
    meter = tb.OutputDPFilter(cap)
    Released.charges.clear()
    with default_meter(meter), contextlib.suppress(*(() if cap == 100 else (Exception,))):
        run()
    charged = Fraction(meter.spent.epsilon)
    if tool in ("PrivateGridSearchCV", "nested"):
        # it scores by itself: 6 scores of 1/4 in each search that it ran to its end
        assert charged >= sum(Released.charges)
        assert charged in (0, 5, Fraction("15.75"))
        assert (charged > 0) == (cap == 100)
    else:
        assert charged == sum(Released.charges) <= cap
        assert cap < 100 or price in (None, charged)
    assert meter.held.epsilon == 0


def test_weights_are_refused_before_anything() -> None:
    meter = tb.OutputDPFilter(1)
    with default_meter(meter), pytest.raises(ValueError, match="doesn't support sample_weight"):
        AdaBoostClassifier(LEARNER).fit(X, SIDES)
    assert meter.spent.epsilon == 0


def test_a_search_and_a_score_may_be_paid_by_a_default_meter() -> None:
    meter = tb.OutputDPFilter(100)
    with default_meter(meter):
        tried = search(tb.release.PrivateLogisticRegression(0.5), GRID).fit(X, Y)
        assert spent(meter)[0] == 5
        PrivateAccuracy(0.25)(tried, X, Y)
    assert spent(meter)[0] == Fraction(21, 4)
    for call in (lambda: search(Spy(), {}).fit(X, Y), lambda: PrivateAccuracy(0.25)(tried, X, Y)):
        with pytest.raises(tb.ParameterError, match="meter must be a budget that pays, got None"):
            call()
    assert spent(meter)[0] == Fraction(21, 4)


def test_a_search_is_shown_and_takes_frames() -> None:
    for frame in (pd.DataFrame(X, columns=["a", "b"]), pl.DataFrame(X, schema=["a", "b"])):
        tried = search(tb.release.PrivateLogisticRegression(0.5), GRID)
        tried.fit(frame, Y, meter=tb.OutputDPFilter(100))
        host = StandardScaler().fit(frame)  # its version may know no names of Polars
        assert list(getattr(tried, "feature_names_in_", [])) == list(
            getattr(host, "feature_names_in_", [])
        )
        assert set(tried.predict(frame)) <= {"no", "yes"}
        assert "PrivateLogisticRegression" in tried._repr_html_()
        assert tried.set_params(estimator__epsilon=2.0).estimator.epsilon == 2.0


# ------------------------------------------------------------------------- guards, taken away


def refused(call: Callable[[], Any]) -> bool:
    try:
        call()
    except tb.ParameterError:
        return True
    return False


MUTATIONS = [
    Without(
        "trials that pay what they like",
        {"trials-keep-to-fits": 'paid: dict[str, Any] = {"meter": OutputDPOdometer()}'},
        overpaid,
    ),
    Without(
        "scores of trials for nothing",
        {"scores-of-trials-cost": "run += ApproximateDP(0.0)"},
        scored_for_a_price,
    ),
    Without(
        "a step learns",
        {"learning-steps-pay": "return False"},
        lambda: refused(lambda: adapter._payer(make_pipeline(StandardScaler(), Spy()))),
    ),
    Without(
        "any model",
        {"model-takes-meter": "if False:"},
        lambda: refused(lambda: adapter._payer(LogisticRegression())),
    ),
    Without(
        "any folds",
        {"folds-blind-to-data": "if True:"},
        lambda: refused(lambda: adapter._splitter(StratifiedKFold())),
    ),
    Without(
        "anybody is public",
        {"folds-known-for-scores": "if False:"},
        lambda: refused(lambda: search(Spy(), {}, score_epsilon=None)._score()),
    ),
    Without(
        "fits anywhere",
        {"fits-share-the-meter": "with config_context(enable_metadata_routing=False):"},
        fits_stay_here,
    ),
    Without(
        "labels of one type",
        {"labels-keep-their-types": "return np.asarray(labels)"},
        one_label_moves_one_score,
    ),
    Without(
        "a table of comparisons",
        {"one-comparison-a-record": "if same is not None:"},
        lambda: one_label_moves_one_score("list", Column),
    ),
    Without(
        "records predicted twice",
        {"predicted-once": "guesses = np.concatenate([estimator.predict(x[None]) for x in X])"},
        lambda: one_label_moves_one_score("list", Borderline),
    ),
    Without("one key for two", {"one-key-a-run": "if True:"}, threads_take_different_keys),
    Without(
        "scores for nothing",
        {"scores-cost": "return printed_up(rounds * (sum(amounts) + 0) + last + once)"},
        lambda: search(Spy(), {}).what_if(tb.OutputDPOdometer()).most.epsilon == 2.75,
    ),
    Without(
        "a refit for nothing",
        {"refit-costs": "last = 0"},
        lambda: search(Spy(), {}).what_if(tb.OutputDPOdometer()).most.epsilon == 2.75,
    ),
]


@pytest.mark.one_in(4)
@each(MUTATIONS)
def test_without_a_guard_something_true_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
