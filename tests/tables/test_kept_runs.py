"""Sessions that keep their answers: after any death each question is answered, and each is paid."""

from __future__ import annotations

import copy
import json
import multiprocessing
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guards.mutants import Without, each, lose_a_truth
from tests.tables.cases import CASES, Case
from tests.tables.killed_jobs import (
    DEATHS,
    PLACES,
    PRICE,
    QUESTIONS,
    ROWS,
    Killed,
    Life,
    count,
    job,
    opened,
    prices,
)
from tests.tables.test_session import Zeros

import tightbudget as tb
from tightbudget.durable_lines import DurableLines
from tightbudget.release import mechanism
from tightbudget.tables import kept_answers

COUNT = tb.Count(epsilon=0.25)
ROOT = Path(__file__).parents[2]


def killed() -> None:
    raise Killed


def lived(folder: Path, place: int | None, death: str) -> Life:
    """One life of the job, which ends there or by itself."""
    life = Life(place, death, killed)
    with suppress(Killed):
        job(folder, life)
    return life


def paid(folder: Path, lives: list[Life]) -> None:
    """What is true after the last life of a job, which has come to its end."""
    last = lives[-1]
    values = [answer.value for answer in last.answers]
    assert len(values) == sum(map(len, QUESTIONS))
    for life in lives:  # what was told once is told again
        assert [answer.value for answer in life.answers] == values[: len(life.answers)]
    with tb.Ledger(f"sqlite:///{folder}/budget.db") as ledger:
        ada = ledger.budget("ada")
        ends = [event for event in ada.history() if event.kind in ("settled", "forfeited")]
        assert ada.held.epsilon == 0
        assert ada.spent.epsilon == PRICE * len(ends)
        # every draw was paid; a death before the scan is charged all the same
        drawn = sum(prices(folder / "drawn"))
        assert drawn <= ada.spent.epsilon <= drawn + PRICE * (len(lives) - 1)
        assert len(QUESTIONS) <= len(ends) <= len(QUESTIONS) + len(lives) - 1
        settled = {event.key for event in ends if event.kind == "settled"}
        assert {answer.key for answer in last.answers} <= settled
        ledger.verify()
        before = ledger.head()
    again = lived(folder, None, "")
    assert [answer.value for answer in again.answers] == values
    assert [str(one.receipt) for one in again.answers] == [str(one.receipt) for one in last.answers]
    with tb.Ledger(f"sqlite:///{folder}/budget.db") as ledger:
        assert ledger.head() == before


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("place", range(PLACES))
def test_a_job_goes_on_after_a_death_at_any_place(tmp_path: Path, place: int, death: str) -> None:
    opened(tmp_path)
    lives = [lived(tmp_path, place, death)]
    assert lives[0].over, "it has so many places"
    lives.append(lived(tmp_path, None, ""))
    paid(tmp_path, lives)


def test_a_job_has_no_more_places(tmp_path: Path) -> None:
    opened(tmp_path)
    assert lived(tmp_path, None, "").passed == PLACES


@settings(max_examples=5)
@given(
    deaths=st.lists(
        st.tuples(st.integers(0, PLACES - 1), st.sampled_from(DEATHS)), min_size=2, max_size=4
    )
)
def test_a_job_goes_on_after_several_deaths(
    tmp_path_factory: pytest.TempPathFactory, deaths: list[tuple[int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("lives")
    opened(folder)
    lives = [lived(folder, place, death) for place, death in deaths]
    paid(folder, [*lives, lived(folder, None, "")])


@pytest.fixture(scope="module")
def processes() -> Iterator[subprocess.Popen[str]]:
    """Python that starts a process for each life."""
    words = [sys.executable, "-m", "tests.tables.killed_jobs"]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen(words, cwd=ROOT, text=True, **pipes) as started:
        yield started


def ended(processes: subprocess.Popen[str], folder: Path, place: int | None, death: str) -> int:
    """How a process with this life has ended."""
    assert processes.stdin is not None
    assert processes.stdout is not None
    print(json.dumps([str(folder), place, death]), file=processes.stdin, flush=True)
    return int(processes.stdout.readline())


@pytest.mark.slow  # a process for each life
@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("place", range(PLACES))
def test_a_job_goes_on_after_sigkill_at_any_place(
    tmp_path: Path, processes: subprocess.Popen[str], place: int, death: str
) -> None:
    opened(tmp_path)
    assert ended(processes, tmp_path, place, death) == -signal.SIGKILL
    assert not (tmp_path / "found").exists()
    assert ended(processes, tmp_path, None, "") == 0
    last = lived(tmp_path, None, "")
    assert f"{[answer.value for answer in last.answers]}" == (tmp_path / "found").read_text()
    paid(tmp_path, [Life(place, death, killed), last])


# ------------------------------------------------------------------------ what is kept


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[tb.Ledger]:
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        ledger.open_budget("ada", epsilon=1000, delta=0.5)
        yield ledger


def table() -> tb.Table:
    return tb.Table(ROWS, unit="rider", rows_per_unit=3, domains={"zone": ["a", "b", "c"]})


def kept(ledger: tb.Ledger, path: Path, key: str = "A7", **more: Any) -> tb.Session:
    meter = ledger.budget("ada").keyed(key)
    settings: dict[str, Any] = {"noise": Zeros(), "answers": path, **more}
    return tb.Session(settings.pop("table", table()), meter, **settings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_answer_of_every_mechanism_comes_back_as_it_was(
    ledger: tb.Ledger, tmp_path: Path, case: Case
) -> None:
    data: Any = case.data
    first = kept(ledger, tmp_path / "a", table=data).ask(case.mechanism)
    spent = ledger.budget("ada").spent
    again = kept(ledger, tmp_path / "a", table=data).ask(case.mechanism)
    assert ledger.budget("ada").spent == spent
    np.testing.assert_equal(again.value, first.value)
    assert type(again.value) is type(first.value) or isinstance(first.value, np.generic)
    np.testing.assert_equal(again.rows(), first.rows())
    assert (again.cell, again.receipt, again.key) == (first.cell, first.receipt, first.key)
    np.testing.assert_equal(again.interval(), first.interval())


def test_the_answers_of_many_mechanisms_at_once_come_back_as_they_were(
    ledger: tb.Ledger, tmp_path: Path
) -> None:
    questions = [case.mechanism for case in CASES[::3]]
    data: Any = CASES[0].data
    first = kept(ledger, tmp_path / "a", table=data).ask_all(questions)
    before = ledger.head()
    again = kept(ledger, tmp_path / "a", table=data).ask_all(questions)
    assert ledger.head() == before
    for one, other in zip(again, first, strict=True):
        np.testing.assert_equal(one.value, other.value)
        np.testing.assert_equal(one.rows(), other.rows())
        assert (one.cell, one.receipt, one.key) == (other.cell, other.receipt, other.key)


def test_questions_at_once_are_kept_for_these_questions_in_this_order(
    ledger: tb.Ledger, tmp_path: Path
) -> None:
    units = tb.Count(epsilon=0.25, of="units")
    session = kept(ledger, tmp_path / "a")
    both = session.ask_all([COUNT, units])
    assert session.ask(COUNT).key == "A7#2"  # a run beside others, whose keys go on
    before = ledger.head()
    again = kept(ledger, tmp_path / "a")
    assert [answer.value for answer in again.ask_all([COUNT, units])] == [a.value for a in both]
    assert again.ask(COUNT).key == "A7#2"
    for others in ([units, COUNT], [COUNT], [COUNT, units, units]):
        with pytest.raises(tb.KeyConflictError, match="was used before"):
            kept(ledger, tmp_path / "a").ask_all(others)
    with pytest.raises(tb.KeyConflictError, match="was used before"):
        kept(ledger, tmp_path / "a").ask(COUNT)
    assert ledger.head() == before


def test_several_at_once_that_do_not_fit_cost_nothing(ledger: tb.Ledger, tmp_path: Path) -> None:
    dear = tb.Count(epsilon=999.9)
    with pytest.raises(tb.BudgetExceeded):
        kept(ledger, tmp_path / "a").ask_all([COUNT, dear])
    assert ledger.budget("ada").spent.epsilon == 0
    assert ledger.budget("ada").held.epsilon == 0


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.dates() | st.datetimes() | st.fractions() | st.decimals(allow_nan=False) | st.binary(),
    lambda parts: st.lists(parts) | st.lists(parts).map(tuple)
    | st.dictionaries(st.text() | st.tuples(st.integers(), st.dates()), parts),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=60)
@given(value=VALUES)
def test_every_value_is_read_as_it_was_written(value: Any) -> None:
    text = json.dumps(kept_answers._plain(value))
    assert kept_answers._value(json.loads(text)) == value


def test_an_array_is_read_as_it_was_written() -> None:
    array = np.array([[1.5, -0.0], [np.inf, 2.0]])
    read = kept_answers._value(json.loads(json.dumps(kept_answers._plain(array))))
    np.testing.assert_array_equal(read, array, strict=True)


def test_what_json_has_not_is_not_kept(tmp_path: Path) -> None:
    amount = tb.Amount(0.25, 0.0, "epsilon")
    for value in (object(), {1, 2}, [object()]):
        with kept_answers.opened(tmp_path / "a") as answers:
            answers.keep(
                kept_answers.KeptAnswer(
                    key="A7", identity="", token="", cell="value", held=amount, value=value,
                    noisy_rows=None,
                )
            )  # fmt: skip
            assert answers.get("A7") is None


def test_a_released_count_tells_later_quantiles_after_a_crash(
    ledger: tb.Ledger, tmp_path: Path
) -> None:
    """What an answer says of its error is the same in all lives."""
    spread = tb.Quantiles(column="fare", probabilities=(0.1, 0.9), bounds=(0, 64), epsilon=50)
    first, second = (kept(ledger, tmp_path / "a") for _ in range(2))
    found = [(one.ask(tb.Count(epsilon=50)).value, one.ask(spread).rows()) for one in (first,)]
    again = (second.ask(tb.Count(epsilon=50)).value, second.ask(spread).rows())
    np.testing.assert_equal(again, found[0])


# ------------------------------------------------------------------------ what is lost


def test_a_lost_answer_is_refused_and_asked_again_if_that_is_wished(
    ledger: tb.Ledger, tmp_path: Path
) -> None:
    kept(ledger, tmp_path / "a").ask(COUNT)
    (tmp_path / "a").unlink()
    before = ledger.head()
    said = r"'A7' is charged epsilon 0\.25, delta 0\.0, and its answer is not kept; again=True asks"
    with pytest.raises(tb.errors.SettlementError, match=said):
        kept(ledger, tmp_path / "a").ask(COUNT)
    assert ledger.head() == before
    assert kept(ledger, tmp_path / "a", again=True).ask(COUNT).key == "A7 again"
    assert ledger.budget("ada").spent.epsilon == 0.5


def test_a_run_that_has_started_elsewhere_is_left_alone_unless_it_is_asked_again(
    ledger: tb.Ledger, tmp_path: Path
) -> None:
    there = ledger.budget("ada").reserve("A7", COUNT.guarantee)
    there.start()
    said = "'A7' was started before, and its answer is not kept: its worst-case price is held"
    with pytest.raises(tb.errors.SettlementError, match=said):
        kept(ledger, tmp_path / "a").ask(COUNT)
    assert ledger.hold("A7").state.value == "started"
    assert kept(ledger, tmp_path / "a", again=True).ask(COUNT).key == "A7 again"
    with pytest.raises(tb.errors.FencingError, match="'A7' was overruled"):
        there.settle("value")
    assert ledger.budget("ada").spent.epsilon == 0.5


def test_a_refused_question_is_asked_once_the_cap_is_raised(
    ledger: tb.Ledger, tmp_path: Path
) -> None:
    ada = ledger.open_budget("small", epsilon=0.3)
    for _ in range(2):
        asks = tb.Session(table(), ada.keyed("A7"), noise=Zeros(), answers=tmp_path / "a")
        assert asks.ask(COUNT).receipt.charged.epsilon == 0.25
        with pytest.raises(tb.BudgetExceeded):
            asks.ask(COUNT)
    ada.raise_cap(epsilon=1, by="eve", reason="a test")
    asks = tb.Session(table(), ada.keyed("A7"), noise=Zeros(), answers=tmp_path / "a")
    assert [asks.ask(COUNT).key, asks.ask(COUNT).key] == ["A7", "A7#2 again"]
    assert ada.spent.epsilon == 0.5


def test_a_scan_that_the_engine_refuses_costs_nothing_and_is_asked_again(
    ledger: tb.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = type(table().source)

    def away(self: Any) -> None:
        raise tb.errors.SourceError("the engine does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(source, "check", away)
        with pytest.raises(tb.errors.SourceError):
            kept(ledger, tmp_path / "a").ask(COUNT)
    assert ledger.budget("ada").spent.epsilon == ledger.budget("ada").held.epsilon == 0
    assert kept(ledger, tmp_path / "a").ask(COUNT).value == 6
    assert ledger.budget("ada").spent.epsilon == 0.25


# ------------------------------------------------------------------------ other questions


def test_a_key_is_refused_for_another_question(ledger: tb.Ledger, tmp_path: Path) -> None:
    kept(ledger, tmp_path / "a").ask(COUNT)
    before = ledger.head()
    other = tb.Count(epsilon=0.25, of="units")
    with pytest.raises(tb.KeyConflictError, match="was used before, for the question 'Count"):
        kept(ledger, tmp_path / "a").ask(other)
    with pytest.raises(tb.KeyConflictError, match="was used before, for something else"):
        kept(ledger, tmp_path / "a").ask(tb.Count(epsilon=0.5))
    assert ledger.head() == before


def bins_are_told_apart() -> bool:
    """Two questions that are written alike, "[6 items]", are not answered by one answer."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        opened(path)
        with tb.Ledger(f"sqlite:///{path}/budget.db") as ledger:
            for last in (60, 64):
                edges = (0, 1, 2, 3, 4, last)
                asked = tb.HistogramCounts(column="fare", edges=edges, epsilon=0.25)
                try:
                    kept(ledger, path / "a").ask(asked)
                except tb.KeyConflictError as refusal:
                    return "or another table that are written alike" in str(refusal)
    return False


def test_questions_that_are_written_alike_are_told_apart() -> None:
    assert bins_are_told_apart()


def test_another_bound_on_a_unit_is_another_question(ledger: tb.Ledger, tmp_path: Path) -> None:
    kept(ledger, tmp_path / "a").ask(COUNT)
    fewer = tb.Table(ROWS, unit="rider", rows_per_unit=2)
    with pytest.raises(tb.KeyConflictError, match="another question or another table"):
        kept(ledger, tmp_path / "a", table=fewer).ask(COUNT)


def no_answer_of_another_ledger_is_told() -> bool:
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        for folder in (first, second):
            opened(Path(folder))
            with tb.Ledger(f"sqlite:///{folder}/budget.db") as ledger:
                try:
                    kept(ledger, Path(first) / "a").ask(COUNT)
                except tb.errors.FileError as refusal:
                    ada = ledger.budget("ada")
                    nothing = ada.spent.epsilon == ada.held.epsilon == 0
                    return "never asked in this ledger" in str(refusal) and nothing
    return False


def test_the_file_of_another_ledger_tells_nothing() -> None:
    assert no_answer_of_another_ledger_is_told()


# ------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"answers": 7}, "answers must be the path of a file, got 'int'"),
        ({"again": True}, "again must be True or False, and True beside answers alone"),
        ({"answers": "a", "again": 1}, "again must be True or False"),
        ({"answers": "a"}, "answers must be None unless the meter has a key"),
        ({"columns": {"month": "zone"}}, "columns must be None unless blocks pay"),
    ],
)
def test_refusals_are_by_name(
    ledger: tb.Ledger, more: dict[str, Any], said: str, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    before = ledger.head()
    with pytest.raises(tb.ParameterError, match=said):
        tb.Session(table(), ledger.budget("ada"), **more)
    assert ledger.head() == before
    assert not Path("a").exists()


def test_a_file_of_another_kind_is_refused(ledger: tb.Ledger, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("rows,of,mine\n")
    with pytest.raises(tb.errors.FileError, match="not a file of answers of a session"):
        kept(ledger, tmp_path / "a")
    with pytest.raises(tb.errors.FileError, match="no such file or directory"):
        kept(ledger, tmp_path / "nowhere" / "a")


def test_a_file_that_cannot_be_written_costs_the_price_and_tells_nothing(
    ledger: tb.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = kept(ledger, tmp_path / "a")
    asks.ask(COUNT)

    def full(self: Any, line: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DurableLines, "_write", full)
    with pytest.raises(tb.errors.FileError, match="no space left on device"):
        asks.ask(COUNT)
    assert ledger.hold("A7#2").state.value == "settled"


def test_what_is_opened_is_not_kept(ledger: tb.Ledger, tmp_path: Path) -> None:
    search = tb.AboveThreshold(questions=((lambda t: t["fare"] > 7, 1),), epsilon=1.0, aboves=1)
    with pytest.raises(tb.ParameterError, match="answers must be None to open"):
        kept(ledger, tmp_path / "a").open(search)


def test_a_session_that_keeps_answers_is_not_copied(ledger: tb.Ledger, tmp_path: Path) -> None:
    with pytest.raises(tb.errors.SettlementError, match="Session cannot be copied"):
        copy.copy(kept(ledger, tmp_path / "a"))


def _ask_there(folder: str, results: Any) -> None:
    with tb.Ledger(f"sqlite:///{folder}/budget.db") as ledger:
        results.put(kept(ledger, Path(folder) / "a", again=True).ask(COUNT).key)


@pytest.mark.slow  # it starts processes
def test_processes_that_ask_at_once_wait_for_each_other(tmp_path: Path) -> None:
    opened(tmp_path)
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    there = [context.Process(target=_ask_there, args=(str(tmp_path), results)) for _ in range(4)]
    for one in there:
        one.start()
    for one in there:
        one.join()
    assert [results.get() for _ in there] == ["A7"] * 4
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        assert ledger.budget("ada").spent.epsilon == 0.25


def one_object_has_the_file() -> bool:
    import fcntl

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        with kept_answers.opened(path), path.open("ab") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


# ------------------------------------------------------------------------ guards


def a_death_after_the_scan_loses_no_answer() -> bool:
    """The process dies after the keep and before the settlement: the answer is there, and paid."""
    with tempfile.TemporaryDirectory() as folder:
        opened(Path(folder))
        lived(Path(folder), 6, "before")
        lived(Path(folder), None, "")
        return count(Path(folder) / "drawn") == sum(map(len, QUESTIONS))


def another_cell_is_no_answer() -> bool:
    """A file whose cell is not that of the settled run does not answer."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        opened(path)
        with tb.Ledger(f"sqlite:///{path}/budget.db") as ledger:
            kept(ledger, path / "a").ask(COUNT)
            with kept_answers.opened(path / "a") as answers:
                was = answers.get("A7")
                assert was is not None
                answers.keep(
                    kept_answers.KeptAnswer(**{**vars(was), "cell": "another", "value": 99})
                )
            try:
                return bool(kept(ledger, path / "a").ask(COUNT).value != 99)
            except tb.errors.SettlementError:
                return True


def without_noise_nothing_is_held() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        opened(Path(folder))
        with (
            tb.Ledger(f"sqlite:///{folder}/budget.db") as ledger,
            mock.patch.object(
                mechanism, "noise_or_default", side_effect=tb.errors.ExtraError("no")
            ),
        ):
            with suppress(tb.errors.ExtraError):
                kept(ledger, Path(folder) / "a").ask(COUNT)
            return ledger.budget("ada").held.epsilon == 0


def a_run_of_another_process_is_not_ended() -> bool:
    """The file has an answer under the key of a run that somebody else has started."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        for folder in (first, second):
            opened(Path(folder))
        with tb.Ledger(f"sqlite:///{first}/budget.db") as ledger:
            kept(ledger, Path(first) / "a").ask(COUNT)
        with tb.Ledger(f"sqlite:///{second}/budget.db") as ledger:
            ledger.budget("ada").reserve("A7", COUNT.guarantee).start()
            try:
                kept(ledger, Path(first) / "a").ask(COUNT)
            except tb.errors.FencingError:  # the ledger's own guard
                return False
            except tb.errors.SettlementError:
                return ledger.hold("A7").state.value == "started"
    return False


MUTATIONS = [
    Without(
        "a run is ended by its own answer",
        {"only-own-token-ends": "return hold"},
        a_run_of_another_process_is_not_ended,
    ),
    Without(
        "a run that cannot start holds nothing",
        {"refused-run-voided": "pass"},
        without_noise_nothing_is_held,
    ),
    Without(
        "a file answers for its own ledger",
        {"answer-of-this-ledger": "if False:"},
        no_answer_of_another_ledger_is_told,
    ),
    Without(
        "answers are kept before they are paid",
        {"kept-before-settled": "pass"},
        a_death_after_the_scan_loses_no_answer,
    ),
    Without(
        "an answer is that of its run",
        {"kept-answer-of-its-run": "return hold"},
        another_cell_is_no_answer,
    ),
    Without(
        "one process has the file",
        {"one-process-in-the-file": "pass"},
        one_object_has_the_file,
    ),
]


@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
