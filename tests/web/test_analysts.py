"""An analyst sees and touches what is in the token's budgets; of others, nothing is there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.guards.mutants import Without, each, mutate
from tests.web.conftest import Client
from tests.web.test_access import error_of
from tests.web.test_api import get, post

import tightbudget as tb

# what only others know
OTHERS = ("census", "bob", "B1", "zoe", "told-of-both")


@pytest.fixture
def ask(client: Client, token: Callable[..., str], ledger: tb.Ledger) -> TestClient:
    """The analyst of ada, in a ledger in which others do things, too."""
    ledger.open_budget("told-of-both", parent="census", epsilon=0.1)
    nearly = tb.OutputDP.from_dp(0.1 * (1 + 1e-10))
    assert ledger.reserve("both", nearly, ["ada", "told-of-both"]).told is not None
    with pytest.raises(tb.BudgetExceeded):
        ledger.reserve("B2", tb.OutputDP.from_dp(5), ["bob"])
    with pytest.raises(tb.BudgetExceeded):
        ledger.reserve("A3", tb.OutputDP.from_dp(5), ["ada"])
    ledger.budget("eve").close()
    return client(token("analyst", "ada"))


QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("me", {}),
    ("budgets", {}),
    ("budget", {"name": "ada"}),
    ("budget", {"name": "eve"}),
    ("holds", {}),
    ("holds", {"budget": "ada"}),
    ("hold", {"key": "A1"}),
    ("hold", {"key": "AB"}),
    ("hold", {"key": "both"}),
    ("events", {"limit": 1000}),
    ("events", {"budget": "ada"}),
    ("events", {"key": "AB"}),
    ("events", {"search": "census"}),
    ("events", {"kind": "opened"}),
    ("head", {}),
]


def texts(ask: TestClient) -> Iterator[str]:
    """Everything that the analyst can read."""
    for path, query in QUESTIONS:
        yield json.dumps(get(ask, path, **query))
    yield ask.get("/api/v1/events.csv").text


def named(text: str) -> set[str]:
    """Which of the others' names stand in a text, as a word."""
    return {name for name in OTHERS if f'"{name}"' in text or f"'{name}'" in text
            or f",{name}," in text or f'""{name}""' in text}  # fmt: skip


def test_nothing_that_an_analyst_reads_names_others(ask: TestClient, client: Client) -> None:
    everything = client().get("/api/v1/events.csv").text + client().get("/api/v1/holds").text
    everything += client().get("/api/v1/events?limit=1000").text
    assert named(everything) == set(OTHERS) - {"zoe"}
    assert [text for text in texts(ask) if named(text)] == []


def test_their_own_is_all_there(ask: TestClient, ledger: tb.Ledger) -> None:
    assert [b["name"] for b in get(ask, "budgets")["budgets"]] == ["ada", "eve"]
    assert [b["parent"] for b in get(ask, "budgets")["budgets"]] == [None, "ada"]
    assert [h["key"] for h in get(ask, "holds")["holds"]] == ["A1", "A2", "AB", "both"]
    mine = [e.sequence for e in ledger.events() if e.budget in ("ada", "eve")]
    assert [e["sequence"] for e in get(ask, "events", limit=1000)["events"]] == mine


def test_a_search_is_no_way_to_guess_what_is_hidden(ask: TestClient, client: Client) -> None:
    for name in ("census", "told-of-both"):
        assert get(client(), "events", search=name, budget="ada")["events"]
        assert get(ask, "events", search=name)["events"] == []
    assert get(ask, "events", search="a2")["events"]


def test_of_a_reservation_with_others_their_part_is_seen(ask: TestClient) -> None:
    hold = get(ask, "hold", key="both")
    assert list(hold["charges"]) == ["ada"]
    assert hold["told"] is None


def test_budgets_of_others_answer_as_if_they_did_not_exist(ask: TestClient) -> None:
    answers = [
        {
            (name, path): (response.status_code, response.text.replace(name, "NAME"))
            for path, query in (("budget", "name"), ("holds", "budget"), ("events", "budget"),
                                ("events.csv", "budget"))
            if (response := ask.get(f"/api/v1/{path}", params={query: name})) is not None
        }
        for name in ("bob", "census", "zoe")
    ]  # fmt: skip
    assert len({tuple(found.values()) for found in answers}) == 1
    assert {status for found in answers for status, _ in found.values()} == {404}


@pytest.mark.parametrize("name", ["bob", "census", "zoe"])
def test_nothing_is_asked_of_others_or_held_there(
    ask: TestClient, name: str, ledger: tb.Ledger
) -> None:
    before, guarantee = ledger.head(), {"epsilon": 0.01}
    words = f"budget must be the name of a budget in this ledger, got {name!r}"
    for names in ([name], ["ada", name]):
        body = {"key": "N", "budgets": names, "guarantee": guarantee}
        assert error_of(ask.post("/api/v1/reserve", json=body), 404)["message"] == words
    body = {"budget": name, "guarantee": guarantee}
    assert error_of(ask.post("/api/v1/what-if", json=body), 404)["message"] == words
    assert ledger.head() == before


@pytest.mark.parametrize("key", ["B1", "B2", "none"])
def test_reservations_of_others_are_none(ask: TestClient, key: str, ledger: tb.Ledger) -> None:
    before, words = ledger.head(), f"there is no reservation {key!r}"
    for path in ("start", "void", "forfeit"):
        assert error_of(ask.post(f"/api/v1/{path}", json={"key": key}), 404)["message"] == words
    body = {"key": key, "token": 1, "cell": "x"}
    assert error_of(ask.post("/api/v1/settle", json=body), 404)["message"] == words
    assert error_of(ask.get("/api/v1/hold", params={"key": key}), 404)["message"] == words
    assert ledger.head() == before


def test_what_charges_others_too_is_seen_and_left_alone(ask: TestClient, ledger: tb.Ledger) -> None:
    before = ledger.head()
    for path in ("start", "void", "forfeit"):
        error = error_of(ask.post(f"/api/v1/{path}", json={"key": "AB"}), 403)
        assert error["message"] == "'AB' charges budgets of others, too"
    assert ledger.head() == before


def test_parts_are_theirs_also_when_they_are_new(ask: TestClient, ledger: tb.Ledger) -> None:
    ledger.open_budget("new", parent="ada", epsilon=0.1)
    body = {"key": "N", "budgets": ["new"], "guarantee": {"epsilon": 0.1}}
    assert post(ask, "reserve", **body)["charges"]["new"]["amount"] == 0.1
    assert ask.post("/api/v1/void", json={"key": "N"}).status_code == 200


def test_a_conversation_of_others_has_no_name(
    ask: TestClient, client: Client, token: Callable[..., str], ledger: tb.Ledger
) -> None:
    ledger.reserve("secret talk", tb.OutputDP.from_dp(0.01, 1e-9), ["bob"], interactive=True)
    body = {"key": "N", "budgets": ["ada"], "guarantee": {"epsilon": 0.1}, "interactive": True}
    error = error_of(ask.post("/api/v1/reserve", json=body), 409)
    assert error["type"] == "SettlementError"
    assert error["message"] == "another interactive mechanism is open, in a budget of others"
    ruler = client(token("administrator"))
    error = error_of(ruler.post("/api/v1/reserve", json=body), 409)
    assert "settle 'secret talk' first" in str(error["message"])


def test_a_key_of_others_is_taken(ask: TestClient) -> None:
    """Keys are unique in the ledger; that one is taken is all that can be seen."""
    body = {"key": "B1", "budgets": ["ada"], "guarantee": {"epsilon": 0.1}}
    error = error_of(ask.post("/api/v1/reserve", json=body), 409)
    assert error["type"] == "KeyConflictError"
    assert error["message"] == "the key 'B1' was used before, for something else"


def test_an_analyst_of_two_budgets_charges_both(
    client: Client, token: Callable[..., str], ledger: tb.Ledger
) -> None:
    ask = client(token("analyst", "ada", "bob"))
    assert post(ask, "start", key="AB")["state"] == "started"
    assert set(get(ask, "hold", key="AB")["charges"]) == {"ada", "bob"}


MUTATIONS = [
    Without("everybody sees everything", {"only-own-budgets-seen": "return True"}, lambda: True),
    Without("statements name their whole", {"whole-hidden": "pass"}, lambda: True),
    Without(
        "reservations name all who pay",
        {"other-payers-hidden": 'if False and len(content["charges"]):'},
        lambda: True,
    ),
    Without("events name all budgets", {"event-budgets-hidden": "if False:"}, lambda: True),
    Without(
        "all events are theirs",
        {
            "only-own-events": (
                "return state_of(request).ledger.events(**vars(filters), after=after, "
                "limit=limit, budgets=None)"
            )
        },
        lambda: True,
    ),
]


@pytest.mark.one_in(5)
@each(MUTATIONS)
def test_a_guard_that_is_gone_is_missed(
    ask: TestClient, mutation: Without, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [text for text in texts(ask) if named(text)] == []
    mutate(monkeypatch, mutation)
    assert [text for text in texts(ask) if named(text)]
