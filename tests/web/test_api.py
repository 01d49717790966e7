"""The API answers what the library does, and refuses in one shape."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from tests.cli.terminal import run
from tests.web.conftest import SEARCH, TOKEN_OF_A2, Client, Serve
from tests.web.test_access import error_of

import tightbudget as tb
from tightbudget.ledger.acts import run_acts
from tightbudget.promises.pricing import content_of
from tightbudget.web.api.schemas import requested_guarantee

A2 = {"key": "A2", "token": TOKEN_OF_A2}
Token = Callable[..., str]
JSON = {"content-type": "application/json"}


@pytest.fixture
def ask(client: Client, token: Token) -> TestClient:
    """An administrator."""
    return client(token("administrator", name="grace"))


def as_sent(content: Any) -> Any:
    """Returns a value after it has travelled as JSON."""
    return json.loads(json.dumps(content))


def post(ask: TestClient, path: str, **body: Any) -> dict[str, Any]:
    response = ask.post(f"/api/v1/{path}", content=json.dumps(body), headers=JSON)
    assert response.status_code == 200, response.text
    return dict(response.json())


def get(ask: TestClient, path: str, **query: Any) -> dict[str, Any]:
    response = ask.get(f"/api/v1/{path}", params=query)
    assert response.status_code == 200, response.text
    return dict(response.json())


@pytest.mark.slow
def test_a_server_answers_and_is_ended(served: Serve, ledger_url: str) -> None:
    server = served(ledger_url)
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/api/v1/health").json() == {"ok": True, "version": tb.__version__}
        names = [b["name"] for b in client.get("/api/v1/budgets").json()["budgets"]]
    assert names == ["census", "ada", "bob", "eve"]
    assert "GET /api/v1/budgets 200" in server.end()


# ------------------------------------------------------------------------------ reading


def test_budgets_are_as_the_ledger_states_them(ask: TestClient, ledger: tb.Ledger) -> None:
    stated = [statement.to_dict() for statement in ledger.statements()]
    assert get(ask, "budgets") == {"budgets": as_sent(stated), "next": None}
    for statement in stated:
        name = statement["name"]
        held = ledger.budget(name).holds()
        # what was declared is not in lists
        holds = [
            {**hold.to_dict(), "guarantee": None, "since": hold.since, "by": hold.by}
            for hold in held
        ]
        listed = {"holds": holds, "next": None}
        assert get(ask, "budget", name=name) == as_sent({**statement, **listed})
        assert get(ask, "holds", budget=name) == as_sent(listed)
    assert [hold["key"] for hold in get(ask, "holds")["holds"]] == ["A1", "A2", "B1", "AB"]


def test_a_hold_is_found_by_its_key_and_has_no_token(ask: TestClient, ledger: tb.Ledger) -> None:
    for key in ("A1", "A2", "AB"):
        assert get(ask, "hold", key=key) == as_sent(ledger.hold(key).to_dict())
    assert get(ask, "hold", key="A2")["token"] is None


def test_events_come_in_pages(ask: TestClient, ledger: tb.Ledger) -> None:
    every = [as_sent(event.to_dict()) for event in ledger.events()]
    for limit in (1, 3, len(every), 1000):
        found, after = [], 0
        while after is not None:
            page = get(ask, "events", after=after, limit=limit)
            assert len(page["events"]) <= limit
            found += page["events"]
            after = page["next"]
        assert found == every


@pytest.mark.parametrize(
    "filters",
    [{"budget": "ada"}, {"key": "AB"}, {"kind": "reserved"}, {"search": "a2"},
     {"budget": "ada", "kind": "reserved"}, {"search": "no such"}],
    ids=str,
)  # fmt: skip
def test_events_are_filtered_alike_in_both_forms(
    ask: TestClient, ledger: tb.Ledger, filters: dict[str, str]
) -> None:
    wanted = list(ledger.events(**filters))  # type: ignore[arg-type]
    assert get(ask, "events", **filters)["events"] == [as_sent(e.to_dict()) for e in wanted]
    text = ask.get("/api/v1/events.csv", params=filters).text
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    shown = [(e.sequence, e.at, e.kind, e.key or "", e.epsilon, e.hash) for e in wanted]
    assert [
        (int(r["sequence"]), r["at"], r["kind"], r["key"], float(r["epsilon"]), r["hash"])
        for r in rows
    ] == shown
    assert bool(wanted) == (filters != {"search": "no such"})


@pytest.mark.parametrize(
    "key", [before + "=1+1"[skip:] for before in ("", " ", "   ") for skip in (0, 1)]
    + ["+1", "-1", "@A1", " @A1", "\uff1d1", " \uff0b1", "\uff0d1", "\uff201"]
)  # fmt: skip
def test_a_spreadsheet_computes_nothing(ask: TestClient, ledger: tb.Ledger, key: str) -> None:
    ledger.reserve(key, SEARCH, ["bob"])
    text = ask.get("/api/v1/events.csv", params={"key": key}).text
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert row["key"] == (key if key.strip() == "1+1" else f"'{key}")
    assert json.loads(row["details"])["interactive"] is False


@pytest.mark.parametrize("before", ["\t", "\r", "\n", "\x00", "\ufeff", "\u200b", " \t \u00a0"])
def test_also_behind_what_nobody_sees(ask: TestClient, ledger: tb.Ledger, before: str) -> None:
    """Cells may hold what keys may not."""
    ledger.hold("A2", token=TOKEN_OF_A2).settle(before + "=1+1")
    text = ask.get("/api/v1/events.csv", params={"key": "A2", "kind": "settled"}).text
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert row["cell"] == f"'{before}=1+1"


def test_what_an_earlier_version_took_is_exported(
    ask: TestClient, ledger: tb.Ledger, ledger_url: str
) -> None:
    """Cells and reasons with half a character: one such line must not break off all others."""
    half = "\ud800"
    ledger.session.write(
        lambda act: run_acts.settle(
            act, key="A2", token=TOKEN_OF_A2, cell=(half, f"={half}"), why={}
        )
    )
    why = {"by": "grace", "reason": half}
    ledger.session.write(lambda act: run_acts.expire(act, key="A1", why=why))
    last = ledger.head().sequence
    for path in ("events.csv", "events.csv?budget=ada"):
        rows = list(csv.DictReader(io.StringIO(ask.get(f"/api/v1/{path}").text, newline="")))
        assert int(rows[-1]["sequence"]) == last
        (settled,) = (row for row in rows if row["kind"] == "settled")
        assert settled["cell"] == json.dumps([half, f"={half}"])
    events = ask.get("/api/v1/events.json").json()["events"]
    assert events[-1]["details"]["reason"] == half
    assert [e["cell"] for e in events if e["kind"] == "settled"] == [[half, f"={half}"]]
    for path in ("/", "/budget?name=ada", "/budget?name=ada&key=A2", "/budget?name=ada&key=A1"):
        assert ask.get(path).status_code == 200
    assert r"grace: \ud800" in ask.get("/budget?name=ada").text
    assert "settled" in run("ledger", "history", "--ledger", ledger_url).stdout
    told = json.loads(run("ledger", "history", "--ledger", ledger_url, "--json").stdout)
    assert told["events"] == events


def test_the_head_is_the_ledgers(ask: TestClient, ledger: tb.Ledger) -> None:
    head = ledger.head()
    assert get(ask, "head") == {
        "head": str(head), "sequence": head.sequence, "hash": head.hash
    }  # fmt: skip


def test_a_verification_says_how_far_it_is_and_what_it_found(
    ask: TestClient, ledger: tb.Ledger
) -> None:
    found = verified(ask)
    assert found == {
        "state": "verified",
        "checked": 1,
        "of": 1,
        "result": {
            "head": str(ledger.head()), "events": ledger.head().sequence,
            "budgets": 4, "reservations": 4,
        },
        "message": None,
    }  # fmt: skip
    error_of(ask.get("/api/v1/verify", params={"job": "none"}), 404)


def test_a_verification_that_fails_says_why(
    client: Client, token: Token, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise tb.errors.LedgerCorruptError("the budget 'bob' is not what the history says")

    monkeypatch.setattr(tb.Ledger, "verify", fail)
    seen = verified(client(token("viewer")))
    assert (seen["state"], seen["message"]) == (
        "failed", "the budget 'bob' is not what the history says"
    )  # fmt: skip
    assert "bob" not in verified(client(token("analyst", "ada")))["message"]


def test_a_verification_that_breaks_ends_and_another_one_begins(
    client: Client, token: Token, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever breaks in it: nobody is told for ever that it runs."""

    def broken(*_: object) -> None:
        raise RecursionError("too deep")

    ask, analyst = client(token("viewer")), client(token("analyst", "ada"))
    with monkeypatch.context() as patch:
        patch.setattr(tb.Ledger, "verify", broken)
        patch.setattr(threading, "excepthook", lambda _: None)  # it is in the server's log
        seen = verified(ask)
        assert seen["state"] == "failed"
        assert seen["message"] == "the verification came to no end: RecursionError('too deep')"
        assert verified(analyst)["message"] == "it came to no end"
    assert verified(ask)["state"] == "verified"


def verified(ask: TestClient) -> dict[str, Any]:
    job = post(ask, "verify")["job"]
    for _ in range(500):
        found = get(ask, "verify", job=job)
        if found["state"] != "running":
            return found
        time.sleep(0.01)
    raise AssertionError("it does not end")


# ------------------------------------------------------------------------------ writing


GUARANTEES = [
    (SEARCH, ["ada"]),
    (tb.OutputDP({"a": 0.1, ("b", 1): Fraction(1, 3)}, 1e-9), ["ada", "bob"]),
    (tb.OutputDP.from_dp(0.25, 1e-9), ["bob"]),
]


@pytest.mark.parametrize(("guarantee", "budgets"), GUARANTEES)
def test_a_run_costs_what_it_costs_in_the_library(
    ask: TestClient, ledger: tb.Ledger, guarantee: tb.OutputDP, budgets: list[str]
) -> None:
    foreseen = [ledger.budget(name).what_if(guarantee) for name in budgets]
    for name, answer in zip(budgets, foreseen, strict=True):
        asked = post(ask, "what-if", budget=name, guarantee=content_of(guarantee), times=3)
        affordable = ledger.budget(name).can_afford(guarantee, 3)
        assert asked == as_sent({**dataclasses.asdict(answer), "affordable": affordable})
    body = {"key": "N", "budgets": budgets, "guarantee": content_of(guarantee)}
    held = post(ask, "reserve", **body)
    assert held == as_sent(ledger.hold("N").to_dict())
    assert [dataclasses.asdict(answer.requested) for answer in foreseen] == [
        held["charges"][name] for name in budgets
    ]
    started = post(ask, "start", key="N")
    cell = next(iter(guarantee.cells), "x")
    settled = post(ask, "settle", key="N", token=started["token"], cell=cell)
    assert settled == {**as_sent(ledger.hold("N").to_dict()), "token": started["token"]}
    assert settled["state"] == "settled"
    ledger.verify()


def test_the_same_request_is_the_same_reservation(ask: TestClient, ledger: tb.Ledger) -> None:
    body = {"key": "N", "budgets": ["ada"], "guarantee": {"epsilon": 0.1}}
    first = post(ask, "reserve", **body)
    before = ledger.head()
    # one tenth, however it is written
    for tenth in (0.1, "0.1", "1/10", 0.10):
        assert post(ask, "reserve", **{**body, "guarantee": {"epsilon": tenth}}) == first
    assert ledger.head() == before
    response = ask.post("/api/v1/reserve", json={**body, "guarantee": {"epsilon": 0.2}})
    error = error_of(response, 409)
    assert error["type"] == "KeyConflictError"
    token = post(ask, "start", key="N")["token"]
    settle = {"key": "N", "token": token, "cell": "x"}
    assert post(ask, "settle", **settle) == post(ask, "settle", **settle)
    assert ledger.budget("ada").spent.epsilon == 0.1
    assert post(ask, "reserve", **body)["state"] == "settled"


def test_numbers_are_read_as_they_are_written(ask: TestClient, ledger: tb.Ledger) -> None:
    """No double has these digits."""
    digits = "0.1000000000000000000000000000001"
    for number in (digits, f'"{digits}"'):
        body = f'{{"key": "N", "budgets": ["ada"], "guarantee": {{"epsilon": {number}}}}}'
        assert ask.post("/api/v1/reserve", content=body, headers=JSON).status_code == 200
    cells = f'[["a", {digits}]]'
    guarantee = f'{{"tightbudget": 1, "output_dp": {{"cells": {cells}, "delta": 0, "sup": 0.5}}}}'
    body = f'{{"key": "M", "budgets": ["bob"], "guarantee": {guarantee}}}'
    assert ask.post("/api/v1/reserve", content=body, headers=JSON).status_code == 200
    priced = ledger.hold("M").guarantee
    assert isinstance(priced, tb.OutputDP)
    assert priced.cells["a"] == Fraction(digits)
    assert ledger.hold("N").guarantee == tb.OutputDP.from_dp(Fraction(digits))


def test_every_act_of_an_administrator_is_written_down_with_the_tokens_name(
    ask: TestClient, ledger: tb.Ledger
) -> None:
    opened = post(ask, "open", name="carl", parent="census", parameters={"epsilon": 0.5})
    assert opened == as_sent(ledger.budget("carl").statement().to_dict())
    rho = post(ask, "open", name="rho", kind="zcdp", parameters={"rho": "1/3"})
    assert rho["cap"]["unit"] == "rho"
    post(ask, "open", name="r", kind="renyi", parameters={"order": 2, "epsilon": 1})
    plan = json.loads((tb.Gaussian(9.0) * 3).to_json())
    post(ask, "open", name="plan", kind="plan", parameters={"plan": plan, "delta": 1e-6})
    step = {"key": "P", "budgets": ["plan"], "guarantee": content_of(tb.Gaussian(9.0) * 1)}
    assert post(ask, "reserve", **step)["state"] == "reserved"
    raised = {"name": "carl", "parameters": {"epsilon": 0.75}, "reason": "more"}
    assert post(ask, "raise-cap", **raised)["cap"]["amount"] == 0.75
    assert post(ask, "close", name="carl")["closed"] is True
    assert post(ask, "expire", key="A1", reason="left lying")["state"] == "void"
    assert post(ask, "forfeit", key="A2", reason="gone")["state"] == "forfeited"
    assert post(ask, "void", key="B1")["state"] == "void"
    said = {e.kind: e.details for e in ledger.events() if e.details.get("by") == "grace"}
    assert said.pop("reserved").keys() == {"by", "digest", "interactive", "told"}
    assert said == {
        "void": {"by": "grace"},
        "capped": {"by": "grace", "reason": "more", "parameters": {"delta": "0", "epsilon": "3/4"}},
        "expired": {"by": "grace", "reason": "left lying"},
        "forfeited": {"by": "grace", "reason": "gone"},
    }
    ledger.verify()


# ----------------------------------------------------------------------------- refusals


def test_what_does_not_fit_is_refused_for_good(ask: TestClient, ledger: tb.Ledger) -> None:
    body = {"key": "N", "budgets": ["ada"], "guarantee": {"epsilon": 3}}
    errors = [
        error_of(ask.post("/api/v1/reserve", json=body), 409),
        error_of(ask.post("/api/v1/reserve", json=body), 409),
        error_of(ask.get("/api/v1/hold", params={"key": "N"}), 409),
    ]
    with pytest.raises(tb.BudgetExceeded) as refused:
        ledger.hold("N")
    amounts = {
        name: dataclasses.asdict(getattr(refused.value, name))
        for name in ("requested", "left", "held")
    }
    for error in errors:
        assert error == {
            "type": "BudgetExceeded", "message": str(refused.value), **amounts, "budget": "ada",
            "holds": list(refused.value.holds), "unknown": None,
        }  # fmt: skip


REFUSED = [
    ("reserve", {"key": "", "budgets": ["ada"], "guarantee": {"epsilon": 1}}, 400, "key: "),
    ("reserve", {"key": "\n", "budgets": ["ada"], "guarantee": {"epsilon": 1}}, 400,
     r"key must be a text of 1 to 200 printable characters, got '\\n'"),
    ("reserve", {"key": "N", "budgets": [], "guarantee": {"epsilon": 1}}, 400, "budgets: "),
    ("reserve", {"key": "N", "budgets": ["ada", "ada"], "guarantee": {"epsilon": 1}}, 400,
     "budgets must be a list of one or more names, each once"),
    ("reserve", {"key": "N", "budgets": ["zoe"], "guarantee": {"epsilon": 1}}, 404,
     "budget must be the name of a budget in this ledger, got 'zoe'"),
    ("reserve", {"key": "N", "budgets": ["ada", "eve"], "guarantee": {"epsilon": 0.01}}, 400,
     "budgets must not be parts of each other"),
    *(
        ("reserve", {"key": "N", "budgets": ["ada"], "guarantee": guarantee}, 400, message)
        for guarantee, message in (
            ({}, "guarantee must have output_dp, epsilon, amount or steps"),
            ({"epsilon": 1, "rho": 1}, "guarantee must have output_dp, epsilon, amount or steps"),
            ({"epsilon": -1}, "epsilon must be a finite number >= 0, got -1"),
            ({"epsilon": "1/0"}, "epsilon must be a number, or its digits"),
            ({"epsilon": "1" * 1001}, "epsilon must be a number, or its digits"),
            *(
                ({"epsilon": text}, "epsilon must be a number, or its digits such as 0.1 or 1/3")
                for text in ("1_0", " 1", "1 ", "\u0661", "\uff11", "1_0/3", "1/ 3", "\u0661/3")
            ),
            ({"epsilon": "1e999999999"}, "epsilon must be a finite number"),
            ({"epsilon": True}, "epsilon must be a finite number >= 0, got True"),
            ({"epsilon": None}, "epsilon must be a finite number >= 0, got None"),
            ({"epsilon": [1]}, "epsilon must be a finite number >= 0"),
            ({"epsilon": 1, "delta": 2}, r"delta must be in \[0, 1\], got 2"),
            ({"amount": 1e999}, "amount must be a finite number"),
            ({"output_dp": {}}, "no guarantee: expected"),
            ({"tightbudget": 1, "output_dp": {}}, "output_dp must have cells, delta and sup"),
            ({"tightbudget": 1, "steps": 3}, "steps must be a list, got 3"),
            ({"amount": 1}, "guarantee must be"),
            ("x", "guarantee: "),
        )
    ),
    ("reserve", {"key": "N"}, 400, "guarantee: Field required"),
    ("start", {"key": "none"}, 404, "there is no reservation 'none'"),
    ("start", {"key": "A1", "more": 1}, 400, "more: Extra inputs are not permitted"),
    ("start", {"key": "A2"}, 409, "a hold is started once, and 'A2' is started"),
    ("settle", {"key": "A1", "token": 1, "cell": "x"}, 409, "'A1' is reserved, and cannot be"),
    ("settle", {"key": "A2", "token": 1, "cell": "x"}, 409, "settled with the token of its start"),
    ("settle", {**A2, "cell": 0.5}, 400, "cell must be a text, an integer"),
    ("settle", {**A2, "cell": None}, 400, "cell must be a text, an integer"),
    ("settle", {**A2, "cell": "x" * 10001}, 400, "cell must have at most"),
    ("void", {"key": "A2"}, 409, "'A2' is started: only what was not started is freed"),
    ("expire", {"key": "A1"}, 400, "reason: Field required"),
    ("audit", {"name": "ada", "key": "A1", "audit": {"verdict": "fine"}}, 400,
     "audit must be the result of an audit, as .*, got an object with 'verdict'"),
    ("audit", {"name": "ada", "key": "A1", "audit": {}}, 400, "got an object with nothing"),
    ("audit", {"name": "zoe", "key": "A1", "audit": {}}, 404, "got 'zoe'"),
    ("audit", {"name": "ada", "audit": {}}, 400, "key: Field required"),
    ("close", {"name": "ada"}, 409, "'ada' is still held by"),
    ("close", {"name": "zoe"}, 404, "budget must be the name of a budget in this ledger"),
    ("open", {"name": "ada", "parameters": {"epsilon": 3}}, 409, "there is a budget 'ada' already"),
    ("open", {"name": "x", "parent": "zoe", "parameters": {"epsilon": 3}}, 404, "got 'zoe'"),
    ("open", {"name": "x", "kind": "odd", "parameters": {}}, 400, "kind must be one of"),
    ("open", {"name": "x", "parameters": {"parent": "ada"}}, 400, "Extra inputs"),
    ("open", {"name": "x", "parameters": {"rho": 1}}, 400, "of kind output_dp has no rho"),
    ("open", {"name": "x", "kind": "renyi", "parameters": {"order": "a", "epsilon": 1}}, 400,
     "order must be"),
    ("open", {"name": "x", "parent": "census", "parameters": {"epsilon": 50}}, 409,
     "requested epsilon 50.0, delta 0.0 of 'census' for 'x'"),
    ("raise-cap", {"name": "ada", "parameters": {"epsilon": 0.01}, "reason": "r"}, 409,
     "the cap of 'ada' cannot be"),
    ("what-if", {"budget": "ada", "guarantee": {"epsilon": 1}, "times": 0}, 400, "times: "),
    *(
        ("what-if", {"budget": "ada", "guarantee": {"epsilon": 1}, "times": text}, 400,
         "times: .*an integer in the digits 0 to 9")
        for text in ("1_0", " 1", "\uff11")
    ),
    ("forfeit", {"key": "A2", "reason": "a\tb"}, 400, "reason must be a text of 1 to 200"),
]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("path", "body", "status", "message"), REFUSED, ids=str)
def test_refusals_say_what_is_refused(
    ask: TestClient, path: str, body: dict[str, Any], status: int, message: str, ledger: tb.Ledger
) -> None:
    before = ledger.head()
    content = json.dumps(body)
    response = ask.post(f"/api/v1/{path}", content=content, headers=JSON)
    assert re.search(message, str(error_of(response, status)["message"]))
    assert ledger.head() == before


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("budget", {}, 400), ("budget", {"name": "zoe"}, 404), ("budget", {"name": "\0"}, 400),
        ("hold", {"key": "none"}, 404), ("hold", {"key": "\0"}, 400),
        ("holds", {"budget": "zoe"}, 404),
        ("events", {"budget": "zoe"}, 404), ("events", {"key": "\0"}, 400),
        ("events", {"search": "\0"}, 400), ("events", {"kind": ""}, 400),
        ("events", {"limit": 1001}, 400), ("events", {"after": 2**63}, 400),
        ("events.csv", {"budget": "zoe"}, 404), ("unheard-of", {}, 404), ("reserve", {}, 405),
    ],
    ids=str,
)  # fmt: skip
def test_questions_are_refused_in_the_same_shape(
    ask: TestClient, path: str, query: dict[str, Any], status: int
) -> None:
    error_of(ask.get(f"/api/v1/{path}", params=query), status)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "3", "NaN", '{"key": ' * 5000, "[" * 100_000, '{"key": 1e5}',
     '{"key": ' + "9" * 5000 + "}", '{"key": 0.' + "9" * 1001 + "}", '{"key": "\\ud800"}', "\xff"],
    ids=lambda content: content[:20],
)  # fmt: skip
def test_what_is_no_body_is_refused(ask: TestClient, content: str) -> None:
    raw = content.encode("latin-1")
    error_of(ask.post("/api/v1/void", content=raw, headers=JSON), 400)
    assert ask.post("/api/v1/void", content=raw).status_code == 400


@pytest.mark.parametrize("text", ["SECRET", "0" * 33, "0" * 32 + "\n", "A" * 32, 7, ["0" * 32]])
def test_another_text_is_no_token_of_a_start_and_is_not_shown(ask: TestClient, text: Any) -> None:
    body = {"key": "A1", "token": text}
    message = str(error_of(ask.post("/api/v1/start", json=body), 400)["message"])
    assert message in (
        "token: Input should be a valid string",
        "token: String should match pattern '^[0-9a-f]{32}$'",
    )
    assert ask.get("/api/v1/hold?key=A1").json()["state"] == "reserved"
    chosen = "0123456789abcdef" * 2
    assert post(ask, "start", key="A1", token=chosen)["token"] == chosen


def test_parts_in_parts_are_refused(ask: TestClient) -> None:
    deep = "[" * 300 + "]" * 300
    body = f'{{"key": "A2", "token": "{TOKEN_OF_A2}", "cell": {deep}}}'
    response = ask.post("/api/v1/settle", content=body, headers=JSON)
    assert response.status_code in (200, 400)
    deeper = body.replace(deep, "[" * 900 + "]" * 900)
    assert ask.post("/api/v1/settle", content=deeper, headers=JSON).status_code in (400, 409)


def test_cells_keep_every_character(ask: TestClient, ledger: tb.Ledger) -> None:
    cell = ["\x00", "é", 7, ["=", ""]]
    settled = post(ask, "settle", key="A2", token=TOKEN_OF_A2, cell=cell)
    assert settled["cell"] == cell
    assert ledger.hold("A2").cell == ("\x00", "é", 7, ("=", ""))


def test_every_step_of_a_run_is_written_down_with_the_name_of_a_token(
    client: Client, token: Token, ledger: tb.Ledger
) -> None:
    ada, bob = (client(token("analyst", "ada", name=name)) for name in ("ada", "bob"))
    body = {"key": "N", "budgets": ["ada"], "guarantee": {"epsilon": 0.01}}
    post(ada, "reserve", **body)
    begun = post(bob, "start", key="N")
    post(ada, "settle", key="N", token=begun["token"], cell="ran")
    post(bob, "reserve", **{**body, "key": "V"})
    post(ada, "void", key="V")
    with pytest.raises(AssertionError):
        post(bob, "reserve", key="W", budgets=["ada"], guarantee={"epsilon": 9})
    told = [(e.key, e.kind, e.details["by"]) for e in ledger.events() if e.key in ("N", "V", "W")]
    assert told == [
        ("N", "reserved", "ada"),
        ("N", "started", "bob"),
        ("N", "settled", "ada"),
        ("V", "reserved", "bob"),
        ("V", "void", "ada"),
        ("W", "refused", "bob"),
    ]


def test_the_token_of_a_run_is_shown_to_nobody_else(
    client: Client, token: Token, ledger_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The secret is not in events, exports, pages or logs, nor in the database."""
    caplog.set_level(0)
    ada, bob = (client(token("analyst", "ada", name=name)) for name in ("ada", "bob"))
    post(ada, "reserve", key="N", budgets=["ada"], guarantee={"epsilon": 0.01})
    secret = post(ada, "start", key="N")["token"]
    assert re.fullmatch("[0-9a-f]{32}", secret)
    paths = ["events", "events.csv", "events.json", "holds", "hold?key=N", "budget?name=ada"]
    for path in [*(f"/api/v1/{path}" for path in paths), "/", "/budget?name=ada&key=N"]:
        answer = bob.get(path)
        assert answer.status_code == 200
        assert secret not in answer.text
    assert '"token": "' not in bob.get("/api/v1/hold?key=N").text
    wrong = bob.post("/api/v1/settle", json={"key": "N", "token": secret[::-1], "cell": "ran"})
    assert "with the token of its start, got another" in str(error_of(wrong, 409)["message"])
    assert secret not in caplog.text
    assert secret[::-1] not in wrong.text + caplog.text
    folder = Path(ledger_url.removeprefix("sqlite:///")).parent
    assert not any(secret.encode() in file.read_bytes() for file in folder.iterdir())
    post(ada, "settle", key="N", token=secret, cell="ran")


@pytest.mark.parametrize("guarantee", [*(g for g, _ in GUARANTEES), tb.Gaussian(2.0) * 3, 0.125])
def test_what_is_written_down_is_read_again(guarantee: Any) -> None:
    content = content_of(guarantee)
    assert content_of(requested_guarantee(as_sent(content))) == content
