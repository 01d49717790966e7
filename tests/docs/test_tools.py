"""The pages on people's tools (Optuna, MLflow, W&B, Great Tables) claim what is so.

Functions that a page shows are taken from the page. A test that needs a tool runs in `make tools`.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tightbudget as tb
from docs import examples

HOW_TO = examples.ROOT / "docs" / "how-to"


def functions_of(page: str, *names: str, **known: Any) -> list[Any]:
    """Defines functions that a page shows, among the names that their code knows."""
    text = (HOW_TO / page).read_text(encoding="utf-8")
    blocks = [block[2] for block in examples.BLOCK.finditer(text) if block[1] == "python"]
    found = [s for s in ast.parse("\n".join(blocks)).body if getattr(s, "name", None) in names]
    exec(compile(ast.Module(found, []), page, "exec", dont_inherit=True), known)
    return [known[name] for name in names]


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


@pytest.mark.needs
@pytest.mark.slow
def test_a_search_that_dies_anywhere_pays_for_each_trial_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optuna = pytest.importorskip("optuna", reason="make tools: it needs Optuna")
    adapter = pytest.importorskip("tightbudget.adapters.sklearn")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    rows = np.linspace(-0.5, 0.5, 1350).reshape(450, 3)
    labels = (rows[:, 0] > 0).astype(int)
    candidates = [0.01, 0.1]
    for fatal in itertools.count(1):
        ledger = tb.Ledger(f"sqlite:///{tmp_path / f'{fatal}.db'}")
        ada = ledger.open_budget("ada", epsilon=10)
        _, search = functions_of(
            "use-with-optuna.md",
            "objective",
            "search",
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
            mortal.around(patch, tb.LedgerBudget, "reserve")
            mortal.around(patch, tb.LedgerHold, "start", "settle")
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


# ------------------------------------------------------------------------------------ trackers


@pytest.mark.needs
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # of MLflow, by SQLAlchemy
def test_mlflow_keeps_each_bound_to_the_last_bit_and_infinity_as_a_number(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="make tools: it needs MLflow")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = client.create_run(client.create_experiment("bounds", str(tmp_path)))
    values = [math.nextafter(1.8282366665168, math.inf), 1e-300, 5e-324, 0.1 + 0.2, math.inf]
    for step, value in enumerate(values):
        client.log_metric(run.info.run_id, "epsilon_upper", value, step=step)
    kept = [m.value for m in client.get_metric_history(run.info.run_id, "epsilon_upper")]
    assert kept[:-1] == values[:-1]
    assert math.isfinite(kept[-1])  # so the page's `both` refuses it


def test_no_infinite_epsilon_is_logged() -> None:
    (both,) = functions_of("track-epsilon.md", "both", math=math)
    assert both(tb.Bounds(0.1, 0.2)) == {"epsilon_lower": 0.1, "epsilon_upper": 0.2}
    with pytest.raises(ValueError, match=r"^there is no bound on epsilon: log none$"):
        both(tb.Bounds(0.0, math.inf))


@pytest.mark.needs
@pytest.mark.slow
def test_offline_wandb_begins_anew_and_drops_steps_from_the_past(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb", reason="make tools: it needs W&B")
    quiet = wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True)
    epsilons = [0.1 + 0.2, 1.8282366665168]
    for piece in range(2):
        run = wandb.init(
            project="p", id="one", mode="offline", dir=tmp_path, settings=quiet, resume="allow"
        )
        assert (run.resumed, run.step) == (False, 0)
        run.log({"epsilon_upper": epsilons[piece]}, step=piece + 5)
        run.log({"epsilon_upper": 1 / 3}, step=1)
        run.finish()
    wandb.teardown()  # its process writes the files to their ends
    kept = b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("*.wandb")))
    assert all(repr(epsilon).encode() in kept for epsilon in epsilons)
    assert repr(1 / 3).encode() not in kept


# -------------------------------------------------------------------------------------- tables


@given(st.floats(min_value=0, max_value=1e15))
def test_amounts_are_rounded_to_the_safe_side(amount: float) -> None:
    up, down = functions_of(
        "show-receipts.md",
        "up",
        "down",
        Decimal=Decimal,
        ROUND_CEILING=ROUND_CEILING,
        ROUND_FLOOR=ROUND_FLOOR,
    )
    exact, fine = Fraction(repr(amount)), Fraction("0.001")
    assert exact <= Fraction(up(amount)) < exact + fine
    assert exact - fine < Fraction(down(amount)) <= exact


SCRIPT = "<script>alert(1)</script>"


@pytest.mark.needs
@pytest.mark.slow
def test_great_tables_escapes_texts_and_rounds_to_the_nearest() -> None:
    tables = pytest.importorskip("great_tables", reason="make tools: it needs Great Tables")
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"key": [SCRIPT], "epsilon": [1.824]})
    table = tables.GT(frame).tab_header(SCRIPT, SCRIPT).tab_source_note(SCRIPT)
    html = table.fmt_number("epsilon", decimals=2).as_raw_html()
    assert SCRIPT not in html
    assert html.count("&lt;script&gt;") == 4
    assert ">1.82<" in html


def test_the_styler_of_pandas_escapes_only_where_it_is_told_to() -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("jinja2")
    style = pandas.DataFrame({"key": [SCRIPT]}, index=[SCRIPT]).style
    assert style.to_html().count(SCRIPT) == 2
    escaped = style.format(escape="html").format_index(escape="html").to_html()
    assert SCRIPT not in escaped
    assert escaped.count("&lt;script&gt;") == 2


def test_a_function_that_a_page_no_longer_has_is_missed() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        functions_of("track-epsilon.md", "nowhere")
