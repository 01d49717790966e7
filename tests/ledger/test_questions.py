"""The question that a run answers stands beside its key, wherever a ledger is read."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.terminal import run
from tests.guards.mutants import Without, each, lose_a_truth
from tests.web.conftest import Client, client, ledger, ledger_url, token
from tests.web.test_pages import rows_of_the_timeline

import tightbudget as tb
from tightbudget.promises.values import Event, ReservationView

__all__ = ["client", "ledger", "ledger_url", "token"]

SEARCH = tb.OutputDP({"found": 0.3, "not found": 0.1}, 1e-9)
HOW_MANY = "Count(epsilon=0.25, where=Greater(fare, 10))"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tb.Ledger]:
    with tb.Ledger(f"sqlite:///{tmp_path}/own.db", by="ann") as opened:
        opened.open_budget("ada", epsilon=2, delta=1e-6)
        opened.open_budget("bob", epsilon=2, delta=1e-6)
        yield opened


def settled(hold: Any) -> None:
    hold.start()
    hold.settle("found")


def forfeited(hold: Any) -> None:
    hold.start()
    hold.forfeit()


ENDS: dict[str, Callable[[Any], object]] = {
    "settled": settled,
    "forfeited": forfeited,
    "void": lambda hold: hold.void(),
    "started": lambda hold: hold.start(),
    "reserved": lambda hold: None,
}


@pytest.mark.parametrize("end", ENDS)
def test_every_event_of_a_run_has_its_question(own: tb.Ledger, end: str) -> None:
    """Through all ends, in each of its budgets, and beside a run of which none was said."""
    hold = own.reserve("A1", SEARCH, ["ada", "bob"], question=HOW_MANY)
    silent = own.reserve("A2", SEARCH, ["ada", "bob"])
    ENDS[end](hold)
    ENDS[end](silent)
    for budget in own.budgets():
        for event in budget.history():
            assert event.question == (HOW_MANY if event.key == "A1" else None)
        course = [event.question for event, _ in budget.balance_history()]
        assert course == [event.question for event in budget.history()]
    newest = [event.question for event in own.latest(100)]
    assert newest == [event.question for event in own.events()][::-1]
    assert (own.hold("A1").question, own.hold("A2").question) == (HOW_MANY, None)
    assert hold.to_dict()["question"] is None or hold.question == HOW_MANY
    listed = {one.key: one.question for one in own.open_holds()}
    assert listed == ({} if end not in ("started", "reserved") else {"A1": HOW_MANY, "A2": None})
    assert own.verify().reservations == 2


def test_a_refused_run_has_its_question_and_a_page_of_the_history_finds_those_before_it(
    own: tb.Ledger,
) -> None:
    with pytest.raises(tb.BudgetExceeded):
        own.budget("ada").reserve("too much", tb.OutputDP.from_dp(3), question="a large one")
    assert own.latest(1)[0].question == "a large one"
    hold = own.budget("ada").reserve("A1", SEARCH, question=HOW_MANY)
    settled(hold)
    assert [event.question for event in own.events(after=4)] == [HOW_MANY] * 2
    own.verify()


def test_a_question_is_kept_by_a_copy(own: tb.Ledger, tmp_path: Path) -> None:
    settled(own.budget("ada").reserve("A1", SEARCH, question=HOW_MANY))
    with tb.Ledger(f"sqlite:///{tmp_path}/copy.db") as copy:
        own.copy_to(copy)
        assert copy.hold("A1").question == HOW_MANY


def test_all_blocks_of_a_run_have_its_question(own: tb.Ledger) -> None:
    days = own.blocks("clicks", by=["day"], epsilon=1, cap_epsilon=2, delta=1e-6, cap_delta=1e-6)
    january = days.where(day="2026-01")
    january.reserve("A1", SEARCH, question=HOW_MANY).void()
    named = {event.budget for event in own.events() if event.question == HOW_MANY}
    assert named == {*january.names, "clicks"}


def test_one_key_has_one_question(own: tb.Ledger) -> None:
    """A retry is answered as before, also that of a program that says none, or said none."""
    ada = own.budget("ada")
    ada.reserve("A1", SEARCH, question=HOW_MANY)
    ada.reserve("A2", SEARCH)
    before = own.head()
    assert ada.reserve("A1", SEARCH, question=HOW_MANY).question == HOW_MANY
    assert ada.reserve("A1", SEARCH).question == HOW_MANY
    assert ada.reserve("A2", SEARCH, question=HOW_MANY).question is None
    said = r"the key 'A1' was used before, for the question 'Count.*', got 'another'"
    with pytest.raises(tb.KeyConflictError, match=said):
        ada.reserve("A1", SEARCH, question="another")
    assert own.head() == before


LONG = "q" * 501


@pytest.mark.parametrize("question", ["", LONG, "two\nlines", "half \ud800", 7, b"bytes"])
def test_a_question_is_refused_by_name_and_nothing_is_written(
    own: tb.Ledger, question: Any
) -> None:
    before = own.head()
    said = "question must be a text of 1 to 500 printable characters, got"
    deeds: list[Callable[[], Any]] = [
        lambda: own.reserve("A1", SEARCH, ["ada"], question=question),
        lambda: own.budget("ada").reserve("A1", SEARCH, question=question),
        lambda: own.budget("ada").keyed("A1").asking(question),
    ]
    for deed in deeds:
        with pytest.raises(tb.ParameterError, match=said):
            deed()
    assert own.head() == before
    assert own.budget("ada").reserve("A1", SEARCH, question=LONG[1:]).question == LONG[1:]


@contextlib.contextmanager
def opened_alone() -> Iterator[tb.ledger.LedgerBudget]:
    with tempfile.TemporaryDirectory() as folder, tb.Ledger(f"sqlite:///{folder}/b.db") as alone:
        yield alone.open_budget("ada", epsilon=1, delta=1e-6)


def no_password_is_kept(url: str = "postgresql://ada:secretpw@host/survey") -> bool:
    with opened_alone() as ada:
        hold = ada.reserve("A1", SEARCH, question=f"rows of {url}")
        return all("secretpw" not in str(event) for event in ada.history()) and (
            hold.question == "rows of postgresql://***@host/survey"
        )


def test_a_password_in_a_question_is_hidden() -> None:
    assert no_password_is_kept()


def test_a_meter_with_a_key_asks_a_question(own: tb.Ledger) -> None:
    meter = own.budget("ada").keyed("A1")
    asking = meter.asking("the first")
    assert asking.left == own.budget("ada").left
    asking.reserve(SEARCH)
    meter.asking("the second").reserve(SEARCH)
    meter.reserve(SEARCH)
    said = {hold.key: hold.question for hold in own.budget("ada").holds()}
    assert said == {"A1": "the first", "A1#2": "the second", "A1#3": None}


# ------------------------------------------------------------------------ in words


def test_an_event_and_a_reservation_without_the_field_are_read() -> None:
    """As a server before questions sends them."""
    event = {
        "sequence": 1, "at": "now", "kind": "opened", "key": None, "budget": "ada",
        "epsilon": 1.0, "delta": 0.0, "cell": None, "details": {}, "hash": "0" * 64,
    }  # fmt: skip
    assert Event.from_dict(event).question is None
    assert Event.from_dict({**event, "question": "how many"}).question == "how many"
    hold: dict[str, Any] = {
        "key": "A1", "state": "reserved", "charges": {}, "cell": None, "told": None,
        "token": None, "interactive": False, "guarantee": None,
    }  # fmt: skip
    assert ReservationView.from_dict(hold).question is None


def test_a_receipt_says_its_question() -> None:
    amount = tb.Amount(0.5, 0.0, "epsilon")
    receipt = tb.release.Receipt(amount, amount, "Count(epsilon=0.5)")
    assert str(receipt).startswith("Count(epsilon=0.5): held epsilon 0.5")
    assert receipt.to_dict()["question"] == "Count(epsilon=0.5)"
    assert "Receipt: Count(epsilon=0.5)" in receipt._repr_html_()
    assert str(tb.release.Receipt(amount, amount)).startswith("held epsilon 0.5")


def test_a_terminal_shows_questions(own: tb.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGHTBUDGET_LEDGER", own.url)
    words = ("ledger", "reserve", "--budget", "ada", "--key", "A1", "--epsilon", "0.1")
    assert "question" not in run("ledger", "history").stdout
    assert f"question  {HOW_MANY}" in run(*words, "--question", HOW_MANY).stdout
    for shown in ("history", "show"):
        lines = run("ledger", shown).stdout.splitlines()
        assert [line for line in lines if line.endswith(f"  {HOW_MANY}")], shown
        assert any(line.endswith("question") for line in lines)
    events = json.loads(run("ledger", "history", "--json").stdout)["events"]
    assert events[-1]["question"] == events[-1]["details"]["question"] == HOW_MANY
    refused = run(*words[:5], "A2", "--epsilon", "0.1", "--question", LONG)
    assert refused.exit_code == 2
    assert "question must be a text of 1 to 500" in refused.stderr


def test_a_program_that_is_paid_for_says_its_question(
    own: tb.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIGHTBUDGET_LEDGER", own.url)
    words = ("ledger", "run", "--budget", "ada", "--key", "A1", "--epsilon", "0.1")
    done = run(*words, "--question", "how many", "--", "true")
    assert done.exit_code == 0, done.stderr
    assert own.hold("A1").question == "how many"


# ------------------------------------------------------------------------ over HTTP


@pytest.fixture
def remote(client: Client, token: Callable[..., str]) -> Iterator[tb.RemoteLedger]:
    transport = client()._transport
    with tb.RemoteLedger(
        "http://127.0.0.1:8000", token=token("administrator"), transport=transport
    ) as far:
        yield far


def test_a_served_ledger_keeps_questions(ledger: tb.Ledger, remote: tb.RemoteLedger) -> None:
    ledger.open_budget("data", epsilon=1, delta=1e-6)
    data = remote.budget("data")
    hold = data.reserve("Q1", SEARCH, question=HOW_MANY)
    assert hold.question == HOW_MANY
    hold.start()
    assert [one.question for one in data.holds()] == [HOW_MANY]
    hold.settle("found")
    assert hold.question == remote.hold("Q1").question == HOW_MANY
    keyed = [event for event in data.history() if event.key == "Q1"]
    assert [event.question for event in keyed] == [HOW_MANY] * 3
    assert keyed == [event for event in ledger.budget("data").history() if event.key == "Q1"]
    days = ledger.blocks("clicks", by=["day"], epsilon=1, delta=1e-6)
    january = remote.blocks(days.name).where(day="2026-01")
    assert january.reserve("Q2", SEARCH, question="another").question == "another"
    with pytest.raises(tb.ParameterError, match="question must be a text of 1 to 500"):
        data.reserve("Q3", SEARCH, question=LONG)
    with pytest.raises(tb.KeyConflictError, match="was used before, for the question"):
        data.reserve("Q1", SEARCH, question="another")


def test_an_analyst_reads_the_questions_of_the_budgets_of_the_token(
    ledger: tb.Ledger, client: Client, token: Callable[..., str]
) -> None:
    ledger.open_budget("data", epsilon=1, delta=1e-6)
    ledger.open_budget("other", epsilon=1, delta=1e-6)
    ledger.budget("data").reserve("Q1", SEARCH, question="mine")
    ledger.budget("other").reserve("Q2", SEARCH, question="theirs")
    ask = client(token("analyst", "data"))
    answers = [
        ask.get(f"/api/v1/{path}").text
        for path in ("events", "holds", "events.csv", "events.json", "hold?key=Q1")
    ]
    for answer in answers:
        assert "mine" in answer
        assert "theirs" not in answer


def test_the_timeline_and_the_lists_of_holds_show_questions(
    ledger: tb.Ledger, client: Client
) -> None:
    data = ledger.open_budget("data", epsilon=1, delta=1e-6)
    settled(data.reserve("2026-04#3", SEARCH, question=HOW_MANY))
    data.reserve("2026-04#4", SEARCH, question="<b>bold</b>")
    page = client().get("/budget?name=data").text
    rows = rows_of_the_timeline(page)
    assert [row for row in rows if f"2026-04#3 {HOW_MANY}" in row and "settled" in row]
    assert "<b>bold</b>" not in page
    assert page.count("&lt;b&gt;bold&lt;/b&gt;") == 2  # in the timeline, and among those open
    one = client().get("/budget?name=data&key=2026-04%233").text
    assert f'<p class="question">{HOW_MANY}</p>' in one


REFUSED = {"error": {"type": "ParameterError", "message": "", "requested": None, "left": None,
                     "held": None, "budget": None, "holds": None, "unknown": None}}  # fmt: skip
HOLD = ReservationView.from_dict(
    {"key": "A1", "state": "reserved", "charges": {}, "cell": None, "told": None, "token": None,
     "interactive": False, "guarantee": SEARCH.to_dict()}
)  # fmt: skip


def an_earlier_server_is_charged() -> bool:
    """A server before questions refuses the field: the run is reserved without it."""
    asked: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        if "question" in asked[-1]:
            said = {**REFUSED["error"], "message": "question: Extra inputs are not permitted"}
            return httpx.Response(400, json={"error": said})
        return httpx.Response(200, json=HOLD.to_dict())

    with tb.RemoteLedger("http://127.0.0.1:1", transport=httpx.MockTransport(answer)) as far:
        try:
            hold = far.reserve("A1", SEARCH, ["ada"], question=HOW_MANY)
        except tb.ParameterError:
            return False
    return hold.question is None and len(asked) == 2


def test_an_earlier_server_is_charged_without_the_question() -> None:
    assert an_earlier_server_is_charged()


def test_another_refusal_is_not_taken_for_that_of_an_earlier_server() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        said = {**REFUSED["error"], "message": "key: Extra inputs are not permitted"}
        return httpx.Response(400, json={"error": said})

    far = tb.RemoteLedger("http://127.0.0.1:1", transport=httpx.MockTransport(answer))
    with far, pytest.raises(tb.ParameterError, match="key: Extra inputs"):
        far.reserve("A1", SEARCH, ["ada"], question=HOW_MANY)


# ------------------------------------------------------------------------ guards


def one_key_has_one_question() -> bool:
    with opened_alone() as ada:
        ada.reserve("A1", SEARCH, question=HOW_MANY)
        try:
            ada.reserve("A1", SEARCH, question="another")
        except tb.KeyConflictError:
            return True
    return False


MUTATIONS = [
    Without(
        "a key has one question", {"key-with-one-question": "if False:"}, one_key_has_one_question
    ),
    Without(
        "no password stands in a question",
        {"question-without-password": "return _printable(LONGEST_QUESTION, question=question)"},
        no_password_is_kept,
    ),
    Without(
        "earlier servers are charged",
        {"earlier-servers-know-no-question": "if True:"},
        an_earlier_server_is_charged,
    ),
]


@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
