"""A session: keys in a ledger, previews of many questions, answers as frames, refusals by name."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guards.mutants import Without, each, lose_a_truth
from tests.tables.cases import CASES, Case

import tightbudget as tb
from tightbudget.tables.answer import _numbers
from tightbudget.tables.asked import cut, text_of

RIDES = {
    "rider": np.array([1, 1, 1, 2, 2, 3]),
    "zone": np.array(["a", "a", "b", "a", "b", "b"]),
    "fare": np.array([5.0, 12.0, 30.0, 8.0, 15.0, 20.0]),
    "paid": np.array([True, True, False, True, True, False]),
}
COUNT = tb.Count(epsilon=0.5)
BY_ZONE = tb.GroupedCounts(by="zone", epsilon=0.25)


class Zeros:
    """No noise at all, for tests alone."""

    batch = 1

    def laplace(self, scale: object, size: int) -> Any:
        return np.zeros(size, dtype=np.int64)

    gaussian = laplace

    def coin(self) -> bool:
        return False


def rides(data: Any = None) -> tb.Table:
    given = RIDES if data is None else data
    return tb.Table(given, unit="rider", rows_per_unit=3, domains={"zone": ["a", "b", "c"]})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[tb.Ledger]:
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        yield ledger


def session(epsilon: float = 10.0, delta: float = 0.0, **more: Any) -> tb.Session:
    return tb.Session(rides(), tb.OutputDPFilter(epsilon, delta), **{"noise": Zeros(), **more})


# ------------------------------------------------------------------------ keys in a ledger


def test_the_key_says_what_was_asked(ledger: tb.Ledger) -> None:
    budget = ledger.open_budget("ada", epsilon=10)
    asks = tb.Session(rides(pd.DataFrame(RIDES)), budget, name="trips", noise=Zeros())
    questions: list[Any] = [
        COUNT,
        tb.Count(epsilon=0.5, where="paid"),
        tb.Count(epsilon=0.5, where=lambda t: t.fare > 10),
        tb.Sum(column="fare", bounds=(0, 64), epsilon=1),
    ]
    keys = [asks.ask(question).key for question in questions]
    written = [re.sub("[0-9a-f]{12}$", "HEX", str(key)) for key in keys]
    assert written == [
        "trips/Count(epsilon=0.5) HEX",
        "trips/Count(epsilon=0.5, where='paid') HEX",
        "trips/Count(epsilon=0.5, where=Greater(fare, 10)) HEX",
        "trips/Sum(epsilon=1, column='fare', bounds=[0, 64]) HEX",
    ]
    assert [event.key for event in budget.history() if event.kind == "settled"] == keys


def test_asking_the_same_again_costs_again_also_in_a_new_session(ledger: tb.Ledger) -> None:
    budget = ledger.open_budget("ada", epsilon=10)
    asks = [tb.Session(rides(), budget, name="trips", noise=Zeros()) for _ in range(2)]
    keys = {one.ask(COUNT).key for one in [*asks, *asks]}
    assert len(keys) == 4
    assert budget.spent.epsilon == 2.0


def test_a_program_that_starts_again_with_its_key_is_not_charged_twice(ledger: tb.Ledger) -> None:
    budget = ledger.open_budget("ada", epsilon=10)
    first = tb.Session(rides(), budget.keyed("nightly"), noise=Zeros())
    assert [first.ask(COUNT).key, first.ask(BY_ZONE).key] == [None, None]
    again = tb.Session(rides(), budget.keyed("nightly"), noise=Zeros())
    questions: list[Any] = [COUNT, BY_ZONE]
    for question in questions:
        with pytest.raises(tb.errors.SettlementError, match="a hold is started once, and 'nightly"):
            again.ask(question)
    assert budget.spent.epsilon == 0.75
    assert not budget.holds()


def test_a_refusal_for_the_budget_does_not_stay(ledger: tb.Ledger) -> None:
    """A key that a ledger has refused stays refused; a session asks with another one."""
    budget = ledger.open_budget("ada", epsilon=0.4)
    asks = tb.Session(rides(), budget, noise=Zeros())
    with pytest.raises(tb.BudgetExceeded):
        asks.ask(COUNT)
    budget.raise_cap(epsilon=1, by="eve", reason="a test")
    assert asks.ask(COUNT).value == 6


@dataclass
class Fails:
    """A source of noise that fails when it is asked."""

    batch: int = 1

    def laplace(self, scale: object, size: int) -> Any:
        raise OSError("no entropy")

    gaussian = laplace

    def coin(self) -> bool:
        raise OSError("no entropy")


DEEDS = st.lists(
    st.sampled_from(["ask", "same", "fail", "missing column", "new session", "too much"]),
    max_size=8,
)


@settings(max_examples=6)
@given(deeds=DEEDS)
def test_nothing_is_lost_in_any_life(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[str]
) -> None:
    """After each deed the ledger has charged what the receipts say, and worst cases of failures."""
    address = f"sqlite:///{tmp_path_factory.mktemp('life')}/budget.db"
    owed, keys, table = Fraction(0), set[Any](), rides()
    with tb.Ledger(address) as ledger:
        budget = ledger.open_budget("ada", epsilon=100)
        asks = tb.Session(table, budget, noise=Zeros())
        for number, deed in enumerate(deeds):
            if deed == "new session":
                asks = tb.Session(table, ledger.budget("ada"), noise=Zeros())
            elif deed == "fail":
                with pytest.raises(tb.ReleaseError):
                    tb.Session(table, budget, noise=Fails()).ask(COUNT)
                owed += Fraction(1, 2)
            elif deed == "missing column":
                with pytest.raises(tb.ParameterError, match="keys of 'fare'"):
                    asks.ask(tb.GroupedCounts(by="fare", epsilon=0.5))
            elif deed == "too much":
                with pytest.raises(tb.BudgetExceeded):
                    asks.ask(tb.Count(epsilon=101))
            else:
                price = Fraction(1, 2) if deed == "same" else Fraction(number + 1, 4)
                done = asks.ask(tb.Count(epsilon=price))
                assert done.receipt.charged.epsilon == float(price)
                assert done.key not in keys
                keys.add(done.key)
                owed += price
            assert Fraction(budget.spent.epsilon) == owed
            assert budget.held.epsilon == 0
        settled = [event.key for event in budget.history() if event.kind == "settled"]
        assert set(settled) == keys


def test_a_session_asks_a_served_budget_by_the_same_keys() -> None:
    """Whatever has ``keyed`` is handed a fresh key for each run."""

    class Amount(tb.OutputDPFilter):
        def keyed(self, key: str) -> tb.OutputDPFilter:
            keys.append(key)
            return part

    keys: list[str] = []
    part = tb.OutputDPFilter(5)
    data = pd.DataFrame(RIDES)
    asks = tb.Session(rides(data), Amount(5), name="n" * 80, noise=Zeros())
    asks.ask(tb.Count(epsilon=1, where="paid"))
    asks.ask(tb.Count(epsilon=1, where="paid"))
    assert part.spent.epsilon == 2
    assert len(set(keys[-2:])) == 2


# ------------------------------------------------------------------------ texts of questions


@settings(max_examples=40)
@given(text=st.text(max_size=300), most=st.integers(20, 200))
def test_a_text_that_is_cut_can_be_stored(text: str, most: int) -> None:
    found = cut(text, most)
    assert len(found) <= most
    assert found.isprintable()


def test_long_texts_with_one_beginning_stay_apart() -> None:
    texts = ["x" * 300 + end for end in "abc"]
    assert len({cut(text, 180) for text in texts}) == 3


def test_a_rule_that_nobody_can_write_is_called_by_its_name() -> None:
    def odd(t: Any) -> Any:
        raise ZeroDivisionError("a secret: 17")

    table = rides(pd.DataFrame(RIDES))
    assert text_of(tb.Count(epsilon=1, where=odd), table) == "Count(epsilon=1, where=odd)"
    assert "17" not in text_of(tb.Count(epsilon=1, where=lambda t: 1 / 0), table)
    assert text_of(object(), table) == "object"


def no_row_is_in_a_text() -> bool:
    """A rule that runs a query of its own, which a plan refuses, writes no answer into a key."""
    table = rides(pd.DataFrame(RIDES))
    return "15.0" not in text_of(
        tb.Count(epsilon=1, where=lambda t: t.fare >= t.fare.mean().execute()), table
    )


def test_no_row_is_in_a_text() -> None:
    assert no_row_is_in_a_text()
    table = rides(pd.DataFrame(RIDES))
    with pytest.raises(tb.ParameterError, match="where must be an expression of the columns") as no:
        table.filter(lambda t: t.fare >= t.fare.mean().execute())
    assert "15" not in str(no.value)


@settings(max_examples=30)
@given(length=st.integers(1, 80), where=st.text(min_size=1, max_size=300))
def test_every_key_fits_into_a_ledger(length: int, where: str) -> None:
    asks = tb.Session(rides(), _Keyed(5), name="n" * length)
    key, _ = asks._pays(text_of(tb.Count(epsilon=1, where=where), asks.table))
    assert key is not None
    assert len(key) <= 200
    assert key.isprintable()


class _Keyed(tb.OutputDPFilter):
    def keyed(self, key: str) -> tb.OutputDPFilter:
        return self_of(self)


def self_of(meter: tb.OutputDPFilter) -> tb.OutputDPFilter:
    return tb.OutputDPFilter(1)


# ------------------------------------------------------------------------ before


def test_a_preview_adds_up_and_touches_nothing(ledger: tb.Ledger) -> None:
    budget = ledger.open_budget("ada", epsilon=1)
    asks = tb.Session(rides(), budget, noise=Zeros())
    before = len(list(ledger.events()))
    preview = asks.what_if([COUNT, BY_ZONE, BY_ZONE, COUNT])
    assert [asked.total.epsilon for asked in preview.questions] == [0.5, 0.75, 1.0, 1.5]
    assert [asked.fits for asked in preview.questions] == [True, True, True, False]
    assert (preview.fits, preview.most.epsilon, preview.left.epsilon) == (False, 1.5, 1.0)
    first = preview.questions[0]
    assert (first.most, first.least) == (tb.Amount(0.5, 0.0, "epsilon"),) * 2
    assert (first.sensitivity, first.half_width(), first.question) == (3, 18, "Count(epsilon=0.5)")
    assert first.std == pytest.approx(math.sqrt(2) * 6, rel=0.01)
    assert len(list(ledger.events())) == before
    assert asks.what_if([COUNT, BY_ZONE, BY_ZONE]).fits
    assert asks.what_if([]).fits
    assert asks.what_if([]).most == tb.Amount(0.0, 0.0, "epsilon")


@settings(max_examples=20)
@given(st.lists(st.fractions(Fraction(1, 1000), 1), min_size=1, max_size=8), st.fractions(0, 4))
def test_a_preview_fits_if_and_only_if_all_can_be_reserved(
    prices: list[Fraction], cap: Fraction
) -> None:
    meter = tb.OutputDPFilter(cap)
    questions = [tb.Count(epsilon=price) for price in prices]
    preview = tb.Session(rides(), meter, noise=Zeros()).what_if(questions)
    fits = []
    for question in questions:
        try:
            meter.reserve(question.guarantee)
            fits.append(True)
        except tb.errors.BudgetError:
            break
    exact_left = sum(prices[: len(fits) + 1]) <= cap
    assert [asked.fits for asked in preview.questions[: len(fits)]] == fits or not exact_left
    if preview.fits:  # what is said to fit is never refused
        assert len(fits) == len(questions)


def test_a_preview_reads_no_row() -> None:
    table = rides()

    class Sealed:
        columns = table.source.columns

        def __getattr__(self, name: str) -> Any:
            if name == "check_rules":
                return lambda **_: None
            raise AssertionError(f"{name} was asked")

    object.__setattr__(table, "source", Sealed())
    asks = tb.Session(table, tb.OutputDPFilter(1), noise=Zeros())
    assert asks.what_if([COUNT, BY_ZONE]).fits


def test_a_preview_says_which_question_is_refused() -> None:
    asks = session()
    unknown = tb.GroupedCounts(by="fare", epsilon=1)
    said = re.escape("question 2, GroupedCounts(epsilon=1, by='fare'): keys of 'fare' must be pub")
    with pytest.raises(tb.ParameterError, match=said):
        asks.what_if([COUNT, unknown])
    assert asks.left.epsilon == 10


def test_a_preview_of_an_odometer_fits() -> None:
    asks = tb.Session(rides(), tb.OutputDPOdometer(), noise=Zeros())
    assert asks.what_if([COUNT] * 3).fits


def test_a_preview_shows_itself() -> None:
    preview = session().what_if([COUNT, tb.Sum(column="fare", bounds=(0, 64), epsilon=1)])
    assert repr(preview) == (
        "<SessionPreview: 2 questions, at most epsilon 1.5, delta 0.0; "
        "left epsilon 10.0, delta 0.0: all fit>"
    )
    lines = str(preview).splitlines()
    assert lines[0].split() == [
        "question",
        "epsilon",
        "delta",
        "sensitivity",
        "std",
        "95",
        "%",
        "half",
        "width",
        "total",
    ]
    assert lines[1].split() == [
        "Count(epsilon=0.5)",
        "0.5",
        "0",
        "3",
        "8.47547",
        "18",
        "0.5",
        "fits",
    ]
    assert lines[-1].startswith("at most epsilon 1.5, delta 0.0 of the epsilon 10.0, ")
    assert "Count(epsilon=0.5)" in preview._repr_html_()
    many = session().what_if([COUNT] * 15)
    assert "3 more questions" in many._repr_html_()
    assert preview.to_dict()["questions"][0]["std"] == preview.questions[0].std


# ------------------------------------------------------------------------ answers


def test_an_answer_has_noise_an_interval_and_a_receipt() -> None:
    answer = session().ask(COUNT)
    assert (answer.value, answer.cell, answer.key) == (6, "value", None)
    assert answer.receipt.charged.epsilon == 0.5
    assert answer.interval() == (-12, 24)
    assert answer.interval(0.5) == (2, 10)
    frame = answer.frame()
    assert list(frame.columns) == ["value", "std", "low", "high", "mostly_noise"]
    assert frame.to_dict("records") == [
        {"value": 6, "std": answer.std, "low": -12, "high": 24, "mostly_noise": True}
    ]
    assert repr(answer) == (
        "<TableAnswer: 6 with noise of std 8.475, mostly noise; charged epsilon 0.5, delta 0.0>"
    )


def test_the_columns_of_keys_have_their_names() -> None:
    answer = session().ask(BY_ZONE)
    assert answer.value == {"a": 3, "b": 3, "c": 0}
    frame = answer.frame()
    assert list(frame.columns) == ["zone", "value", "std", "low", "high", "mostly_noise"]
    assert frame["zone"].tolist() == ["a", "b", "c"]
    assert answer.interval()["c"] == (-36, 36)
    table = tb.Table(
        RIDES, unit="rider", rows_per_unit=3, domains={"zone": ["a"], "paid": [True, False]}
    )
    two = tb.Session(table, tb.OutputDPFilter(5), noise=Zeros())
    frame = two.ask(tb.GroupedCounts(by=("zone", "paid"), epsilon=1)).frame()
    assert list(frame.columns)[:3] == ["zone", "paid", "value"]


QUARTILES = tb.Quantiles(
    column="fare", probabilities=(0.25, Fraction(1, 2), 0.75), bounds=(0, 32), epsilon=3, step=1
)


def test_quantiles_are_named_by_their_probabilities_and_have_a_rank_error() -> None:
    answer = session().ask(QUARTILES)
    frame = answer.frame()
    assert list(frame.columns)[:5] == ["probability", "value", "std", "low", "high"]
    assert list(frame.columns)[5:] == ["rank_error", "mostly_noise"]
    assert frame["probability"].tolist() == [0.25, 0.5, 0.75]
    assert frame[["std", "low", "high"]].isna().all(axis=None)
    assert (answer.std, answer.interval(), answer.noise) == (None, None, None)
    # each quantile has epsilon 1; a unit has 3 rows, and the outer quartiles move by 3 / 2 of each
    assert answer.rank_error() == math.ceil(4.5 * math.log(3 * 33 / 0.05)) == 35
    assert frame["rank_error"].tolist() == [35] * 3
    assert answer.frame(0.5)["rank_error"].tolist() == [answer.rank_error(0.5)] * 3
    assert session().ask(COUNT).rank_error() is None
    assert "95 % rank error" in answer._repr_html_()
    with pytest.raises(tb.ParameterError, match=r"confidence must be in \(0, 1\), got 95"):
        session().ask(COUNT).rank_error(95)


def test_a_preview_of_quantiles_has_their_rank_error() -> None:
    preview = session().what_if([COUNT, QUARTILES])
    assert [asked.rank_error() for asked in preview.questions] == [None, 35]
    assert [asked["rank_error"] for asked in preview.to_dict()["questions"]] == [None, 35]
    assert "95 % half width  95 % rank error  total" in str(preview)
    assert str(preview).splitlines()[2].split()[-3:] == ["35", "3.5", "fits"]
    assert "rank error" not in str(session().what_if([COUNT]))


def test_what_has_no_known_noise_gets_none() -> None:
    receipt = session().ask(COUNT).receipt
    for value, rows in ((3.5, 1), ([1, 2, 3], 3), ({"a": None, "b": "x"}, 2), (None, 1)):
        answer = tb.tables.TableAnswer(question=COUNT, value=value, cell="value", receipt=receipt)
        assert (answer.std, answer.interval()) == (None, None)
        frame = answer.frame()
        assert len(frame) == rows
        assert frame[["std", "low", "high"]].isna().all(axis=None)
        assert "std" not in repr(answer)
        assert "<table>" in answer._repr_html_()


def test_an_interval_is_rounded_outwards() -> None:
    answer = session().ask(tb.Sum(column="fare", bounds=(0, 1), epsilon=0.7, step=2.0**-40))
    low, high = answer.interval(0.9)
    width = Fraction(answer.noise.half_width(0.9)) if answer.noise else Fraction(0)
    assert width > 0
    assert Fraction(low) <= Fraction(answer.value) - width
    assert Fraction(high) >= Fraction(answer.value) + width


@pytest.mark.parametrize("confidence", [0, 1, 95, math.nan, "0.95"])
def test_a_confidence_is_refused_by_name(confidence: Any) -> None:
    answer = session().ask(COUNT)
    for ask in (answer.interval, answer.frame, answer.rows):
        with pytest.raises(tb.ParameterError, match=r"confidence must be in \(0, 1\), got "):
            ask(confidence)


def test_a_gaussian_answer_has_its_sigma() -> None:
    answer = session(delta=1e-6).ask(tb.Count(epsilon=1, delta=1e-6))
    assert answer.noise is not None
    assert answer.noise.kind == "gaussian"
    assert answer.std == answer.noise.scale
    low, high = answer.interval()
    assert high - low == pytest.approx(2 * 1.96 * answer.noise.scale, rel=0.05)


# ------------------------------------------------------------------------ every mechanism

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


# what means and variances of the cases can be, and how long that is
WHOLE = {"variance": (0.0, 6.25)} | dict.fromkeys(
    ("mean", "mean-where", "grouped-means", "grouped-means-by-bin"), (-1, 4)
)
LENGTH = {name: high - low for name, (low, high) in WHOLE.items()}


class Shifted(Zeros):
    """No noise: the draw is always the same number of points, at the scale that is asked for."""

    def __init__(self, points: int) -> None:
        self.points, self.scales = points, set[float]()

    def laplace(self, scale: Any, size: int) -> Any:
        self.scales.add(float(scale))
        return np.full(size, self.points, dtype=np.int64)

    gaussian = laplace


def asked(case: Case, noise: Zeros) -> tb.tables.TableAnswer[Any]:
    meter = tb.OutputDPFilter(100)
    return tb.Session(case.data, meter, noise=noise).ask(case.mechanism)


@every
def test_every_mechanism_is_previewed_asked_and_shown(case: Case) -> None:
    answer = asked(case, Zeros())
    preview = tb.Session(case.data, tb.OutputDPFilter(100)).what_if([case.mechanism])
    (row,) = preview.questions
    assert row.std == answer.std
    assert row.half_width(0.9) == (None if answer.noise is None else answer.noise.half_width(0.9))
    assert row.least.epsilon <= answer.receipt.charged.epsilon <= row.most.epsilon
    frame = answer.frame()
    assert list(frame.columns)[-5:] == ["value", "std", "low", "high", "mostly_noise"]
    _, rows = answer.rows()
    assert [row[-1] for row in rows] == answer._mostly_noise()
    for *_, number, _, low, high, flag in rows:
        if answer.noise is not None:
            assert flag == (low <= 0 <= high)
        elif low is not None:
            assert flag == (number in WHOLE[case.name] or 2 * (high - low) >= LENGTH[case.name])
        else:
            assert flag is None
    assert frame["std"].isna().all() == (answer.std is None)
    for shown in (answer, preview):
        assert shown._repr_html_().startswith('<div class="tightbudget">')
        assert max(map(len, repr(shown).splitlines())) < 200


@every
def test_the_noise_that_is_stated_is_the_noise_that_is_added(case: Case) -> None:
    """Where an answer states a distribution, k points of noise move each number by k steps."""
    noise = Shifted(3)
    still, moved = asked(case, Zeros()), asked(case, noise)
    if still.noise is None:
        assert still.std is None
        return
    assert still.noisy_rows is None
    for (_, before), (_, after) in zip(_numbers(still.value), _numbers(moved.value), strict=True):
        assert after - before == 3 * still.noise.step
    assert noise.scales == {still.noise.scale}


# ------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tb.Session(RIDES, tb.OutputDPFilter(1)), "table must be a Table, got 'dict'"),  # type: ignore[arg-type]
        (lambda: tb.Session(rides(), None), "meter must be a budget that mechanisms charge"),
        (lambda: tb.Session(rides(), tb.OutputDPFilter), "meter must be a budget and not a class"),
        (lambda: session(name=""), "name must be a text of 1 to 80 printable characters, got ''"),
        (lambda: session(name="a\nb"), "name must be a text of 1 to 80 printable characters"),
        (lambda: session(name="n" * 81), "name must be a text of 1 to 80 printable characters"),
        (lambda: session(name=3), "name must be a text of 1 to 80 printable characters, got 3"),
        (lambda: session().ask(tb.Count), "question must be a mechanism on tables, say Count(epsi"),  # type: ignore[arg-type]
        (lambda: session().ask(3), "question must be a mechanism on tables"),  # type: ignore[arg-type]
        (
            lambda: session().ask(tb.release.LaplaceRelease(len, 1, 1)),  # type: ignore[arg-type]
            "question must be a mechanism on tables, say Count(epsilon=0.1), got 'LaplaceRelease'",
        ),
        (lambda: session().what_if(COUNT), "questions must be a list of questions, got 'Count'"),  # type: ignore[arg-type]
        (lambda: session().open(COUNT), "question must have open(): ask it otherwise, got 'Count'"),
        (
            lambda: tb.Session(rides(), tb.ZCDPFilter(1)).what_if([COUNT]),
            "question 1, Count(epsilon=0.5): meter must count epsilon, got 'rho'",
        ),
    ],
)
def test_refusals_are_by_name(make: Any, said: str) -> None:
    with pytest.raises(tb.ParameterError, match=re.escape(said)):
        make()


def test_a_question_that_does_not_fit_the_table_costs_nothing() -> None:
    asks = session()
    with pytest.raises(tb.ParameterError, match="keys of 'fare' must be public"):
        asks.ask(tb.GroupedCounts(by="fare", epsilon=1))
    assert asks.left.epsilon == 10


def test_a_session_opens_what_answers_one_by_one() -> None:
    class Opens:
        def open(self, table: Any, **more: Any) -> Any:
            return table, more

    asks = session()
    table, more = asks.open(Opens(), questions=[1])
    assert table is asks.table
    assert more == {"meter": asks.meter, "noise": asks.noise, "questions": [1]}


def test_a_session_shows_itself(ledger: tb.Ledger) -> None:
    assert repr(session()) == "<Session 'table': left epsilon 10.0, delta 0.0>"
    assert "rows of a unit" in session()._repr_html_()
    asks = tb.Session(rides(), ledger.open_budget("ada", epsilon=1))
    ledger.close()
    assert repr(asks).startswith("<Session 'table': ")
    assert "table" in asks._repr_html_()


def test_the_name_is_that_of_the_file(tmp_path: Path) -> None:
    pd.DataFrame(RIDES).to_parquet(tmp_path / "trips.parquet")
    assert tb.Session(rides(tmp_path / "trips.parquet"), tb.OutputDPFilter(1)).name == "trips"


def test_a_session_is_not_copied() -> None:
    for how in (copy.copy, copy.deepcopy):
        with pytest.raises(
            tb.errors.SettlementError, match="Session cannot be copied or pickled: a copy"
        ):
            how(session())


# ------------------------------------------------------------------------ guards


def each_run_has_its_own_key() -> bool:
    asks = tb.Session(rides(), _Keyed(5))
    return asks._pays("Count")[0] != asks._pays("Count")[0]


MUTATIONS = [
    Without(
        "each run has a key of its own",
        {"run-with-own-key": 'fresh = "0" * 12'},
        each_run_has_its_own_key,
    ),
    Without(
        "no text of a key depends on a row",
        {"rules-see-no-rows": "columns = table"},
        no_row_is_in_a_text,
    ),
]


@each(MUTATIONS)
def test_without_the_guard_keys_are_wrong(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("value", ["value (key)", "probability", "value", "std"]),
        ("mostly_noise", ["mostly_noise (key)", "probability", "value", "std"]),
        ("rank_error", ["rank_error (key)", "probability", "value", "std"]),
        ("probability", ["probability (key)", "probability", "value", "std"]),
        (("low", "low (key)"), ["low (key) (key)", "low (key)", "probability", "value"]),
        (("town", "std"), ["town", "std (key)", "probability", "value"]),
    ],
)
def test_a_key_column_has_a_name_of_its_own(by: Any, names: list[str]) -> None:
    """A column of the data may have the name of a column of the frame: none of them is lost."""
    columns = (by,) if isinstance(by, str) else by
    keys = np.array(["a", "b", "b"])
    data = {**dict.fromkeys(columns, keys), "x": np.array([1.0, 2.0, 3.0])}
    table = tb.Table(data, domains=dict.fromkeys(columns, ("a", "b")))
    medians = tb.tables.GroupedQuantiles(
        by=by, column="x", bounds=(0, 8), probabilities=(0.5,), epsilon=1
    )
    frame = tb.Session(table, tb.OutputDPOdometer()).ask(medians).frame()
    assert frame.columns.tolist()[: len(names)] == names
    assert len(set(frame.columns)) == len(frame.columns)
    assert frame[names[0]].tolist() == (["a", "b"] if len(columns) == 1 else ["a", "a", "b", "b"])


def test_as_many_keys_may_occur_as_rows_count() -> None:
    """50 rows may have 50 keys, also where each unit counts in one group alone."""
    data = {"u": np.arange(3), "k": np.array(["a", "b", "c"])}
    keys = [f"k{i}" for i in range(100)]
    table = tb.Table(
        data, unit="u", rows_per_unit=5, groups_per_unit=1, units=10, domains={"k": keys}
    )
    distinct = tb.tables.CountDistinct(column="k", epsilon=0.1)
    (asked,) = tb.Session(table, tb.OutputDPOdometer()).what_if([distinct]).questions
    assert asked.sensitivity == 1
    assert 10 < (asked.half_width() or 0) < 50
    assert not asked.mostly_noise
