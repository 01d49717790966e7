"""The page on Optuna: the price of a search that dies, and of one of which the best is seen."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.pages import functions_of

import tightbudget as tb

# ------------------------------------------- Optuna: the best of a random number costs three times

Outcomes = list[tuple[int, Fraction]]  # the score of each outcome, and its probability


def best_of(number: Callable[[int], Fraction], trials: Outcomes, most: int) -> list[Fraction]:
    """Sums the probability of each outcome to be the best of 1, ..., most trials, first of equals.

    Args:
        number: the probability of each number of trials.
        trials: the outcomes of one trial.
        most: the largest number of trials that is looked at; more of them only add.
    """
    found = []
    for score, p in trials:
        below = sum((q for other, q in trials if other < score), Fraction(0))
        up_to = sum((q for other, q in trials if other <= score), Fraction(0))
        found.append(
            sum(
                number(k) * below**i * p * up_to ** (k - 1 - i)
                for k in range(1, most + 1)
                for i in range(k)
            )
        )
    return [Fraction(x) for x in found]


def of_the_page(stop: Fraction, trials: Outcomes) -> list[Fraction]:
    """Calculates these probabilities by the formula that the page proves 3 epsilon with."""
    found = []
    for score, p in trials:
        below = sum((q for other, q in trials if other < score), Fraction(0))
        up_to = sum((q for other, q in trials if other <= score), Fraction(0))
        found.append(stop * p / ((1 - (1 - stop) * below) * (1 - (1 - stop) * up_to)))
    return found


def between(first: list[Fraction], second: list[Fraction]) -> Fraction:
    """Returns e^epsilon of two distributions of the same outcomes."""
    return max(max(p / q, q / p) for p, q in zip(first, second, strict=True))


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[list[int], list[Fraction], list[Fraction]]:
    """Draws scores, with equal ones among them, and two distributions of outcomes."""
    size = draw(st.integers(2, 5))
    scores = draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    weights = st.lists(st.integers(1, 9), min_size=size, max_size=size)
    first, second = draw(weights), draw(weights)
    p, q = ([Fraction(w, sum(ws)) for w in ws] for ws in (first, second))
    return scores, p, q


@given(neighbours(), st.integers(1, 20))
def test_the_best_of_a_secret_number_of_trials_costs_three_times(
    drawn: tuple[list[int], list[Fraction], list[Fraction]], mean: int
) -> None:
    scores, p, q = drawn
    stop = Fraction(1, mean)
    sides = [of_the_page(stop, list(zip(scores, side, strict=True))) for side in (p, q)]
    assert [sum(side) for side in sides] == [1, 1]
    assert between(*sides) <= between(p, q) ** 3


@given(neighbours(), st.integers(2, 4))
def test_the_formula_counts_the_trials(
    drawn: tuple[list[int], list[Fraction], list[Fraction]], mean: int
) -> None:
    scores, p, _ = drawn
    trials, stop, most = list(zip(scores, p, strict=True)), Fraction(1, mean), 12
    counted = best_of(lambda k: (1 - stop) ** (k - 1) * stop, trials, most)
    rest = (1 - stop) ** most
    for exact, sum_ in zip(of_the_page(stop, trials), counted, strict=True):
        assert sum_ <= exact <= sum_ + rest


def test_three_times_epsilon_is_needed() -> None:
    rare = Fraction(1, 10**6)  # a good outcome, and better ones that are rare, too
    p, q = [1 - 201 * rare, rare, 200 * rare], [1 - 102 * rare, 2 * rare, 100 * rare]
    assert between(p, q) == 2
    stop = Fraction(1, 10**10)
    best = [of_the_page(stop, list(zip((0, 1, 2), side, strict=True))) for side in (p, q)]
    assert 7.8 < between(*best) <= 2**3


def test_a_number_of_trials_that_is_known_costs_each_of_them() -> None:
    p, q = ([Fraction(w, 1000), Fraction(1000 - w, 1000)] for w in (2, 1))
    trials = [list(zip((0, 1), side, strict=True)) for side in (p, q)]
    assert between(*(best_of(lambda k: Fraction(k == 5), side, 5) for side in trials)) == 2**5
    assert between(*(of_the_page(Fraction(1, 5), side) for side in trials)) <= 2**3


# ----------------------------------------------------- Optuna: a search that dies, and goes on


class Died(BaseException):
    """Stands for the end of a process."""


class Mortal:
    """Lets calls pass until one of them dies: before it does anything, or when it is done."""

    def __init__(self, fatal: int) -> None:
        self.calls, self.fatal = 0, fatal

    def passed(self) -> None:
        self.calls += 1
        if self.calls == self.fatal:
            raise Died

    def around(self, patch: pytest.MonkeyPatch, owner: type, *names: str) -> None:
        for name in names:
            patch.setattr(owner, name, self._mortal(getattr(owner, name)))

    def _mortal(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def mortal(*arguments: Any, **more: Any) -> Any:
            self.passed()
            answer = function(*arguments, **more)
            self.passed()
            return answer

        return mortal


def dies_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch, *lost: str) -> None:
    """Lets a search die at each of its calls, and checks what was paid when it has gone on.

    Args:
        folder: the place of the ledgers.
        monkeypatch: undoes what makes calls die.
        lost: a text of the page, and another one that stands in its place.
    """
    optuna = pytest.importorskip("optuna", reason="make tools: it needs Optuna")
    adapter = pytest.importorskip("tightbudget.adapters.sklearn")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    rows = np.linspace(-0.5, 0.5, 1350).reshape(450, 3)
    labels = (rows[:, 0] > 0).astype(int)
    candidates = [0.01, 0.1]
    for fatal in itertools.count(1):
        ledger = tb.Ledger(f"sqlite:///{folder / f'{fatal}.db'}")
        ada = ledger.open_budget("ada", epsilon=10)
        _, search = functions_of(
            "use-with-optuna.md",
            "objective",
            "search",
            lost=lost,
            ada=ada,
            labels=labels,
            one_trial=tb.OutputDP.from_dp(0.25),
            optuna=optuna,
            PrivateAccuracy=adapter.PrivateAccuracy,
            rows=rows,
            tb=tb,
        )
        study = optuna.create_study(direction="maximize", study_name="dies")
        mortal = Mortal(fatal)
        with monkeypatch.context() as patch:
            mortal.around(patch, type(study), "enqueue_trial", "ask", "tell")
            mortal.around(patch, tb.ledger.LedgerBudget, "reserve")
            mortal.around(patch, tb.ledger.LedgerHold, "start", "settle")
            try:
                search(study, candidates)
            except Died:
                died = True
            else:
                died = False
        search(study, candidates)
        done = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
        assert sorted(trial.params["regularization"] for trial in done) == candidates
        paid = {event.key: event.epsilon for event in ada.history() if event.kind == "settled"}
        for trial in done:
            assert paid.pop(f"dies/{trial.number}") == 0.2
            assert paid.pop(f"dies/{trial.number}#2") == 0.05
        # one trial at most was lost, and what was answered in it is paid for
        assert sum(paid.values()) <= 0.25
        assert ada.spent.epsilon + ada.held.epsilon <= 0.75
        ledger.verify()
        ledger.close()
        if not died:
            assert not paid
            break
    assert fatal > 20


@pytest.mark.needs
@pytest.mark.slow
def test_a_search_that_dies_anywhere_pays_for_each_trial_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies_anywhere(tmp_path, monkeypatch)


@pytest.mark.needs
@pytest.mark.slow
@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(("[waits, done]", "[done]"), id="one that waits is asked for again"),
        pytest.param(("[waits, done]", "[waits]"), id="one that is done is tried again"),
        pytest.param(("/{trial.number}", ""), id="all trials have one key"),
    ],
)
def test_a_search_without_its_care_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: tuple[str, str]
) -> None:
    with pytest.raises((AssertionError, KeyError, tb.errors.SettlementError)):
        dies_anywhere(tmp_path, monkeypatch, *lost)
