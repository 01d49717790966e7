"""Who may do what: every route of the table is asked by every role."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.testclient import TestClient
from tests.guards.mutants import Without, each, mutate
from tests.web.conftest import Client
from tests.web.questions import Question, csrf_of, questions

from tightbudget.explorer.workers import Workers
from tightbudget.web import app as web_app
from tightbudget.web.access import ADMINISTER, PUBLIC, READ, WRITE, Need, gate_of
from tightbudget.web.api.schemas import router_of

# What each route needs. A route that is not here fails, and so does one that needs less.
NEEDS: dict[str, Need] = {
    "GET /api/v1/health": PUBLIC,
    "GET /api/v1/me": PUBLIC,
    "GET /api/v1/openapi.json": PUBLIC,
    "GET /api/v1/budgets": READ,
    "GET /api/v1/budget": READ,
    "GET /api/v1/course": READ,
    "GET /api/v1/events": READ,
    "GET /api/v1/events.csv": READ,
    "GET /api/v1/events.json": READ,
    "GET /api/v1/head": READ,
    "GET /api/v1/hold": READ,
    "GET /api/v1/holds": READ,
    "GET /api/v1/verify": READ,
    "POST /api/v1/verify": READ,
    "POST /api/v1/what-if": READ,
    "POST /api/v1/reserve": WRITE,
    "POST /api/v1/start": WRITE,
    "POST /api/v1/settle": WRITE,
    "POST /api/v1/void": WRITE,
    "POST /api/v1/forfeit": WRITE,
    "POST /api/v1/audit": WRITE,
    "POST /api/v1/open": ADMINISTER,
    "POST /api/v1/raise-cap": ADMINISTER,
    "POST /api/v1/close": ADMINISTER,
    "POST /api/v1/expire": ADMINISTER,
    "POST /api/v1/blocks": ADMINISTER,
    "GET /api/v1/blocks": READ,
    "POST /api/v1/blocks/left": READ,
    "POST /api/v1/blocks/what-if": READ,
    "POST /api/v1/blocks/reserve": WRITE,
    "POST /api/v1/explore/curve": READ,
    "POST /api/v1/explore/compare": READ,
    "POST /api/v1/explore/one-more": READ,
    "POST /api/v1/explore/stopping": READ,
    "POST /api/v1/explore/prices": READ,
    "POST /api/v1/explore/calibrate": READ,
    "POST /api/v1/explore/picture": READ,
    "GET /explorer": READ,
    "GET /explorer/download": READ,
    "GET /sign-in": PUBLIC,
    "GET /docs": PUBLIC,
    "GET /openapi.json": PUBLIC,
    "POST /sign-in": PUBLIC,
    "POST /sign-out": PUBLIC,
    "GET /": READ,
    "GET /budget": READ,
    "POST /budget/verify": READ,
    "POST /budgets/open": ADMINISTER,
    "POST /budget/raise-cap": ADMINISTER,
    "POST /budget/expire": ADMINISTER,
    "POST /budget/close": ADMINISTER,
}

# What a role is for: on this machine, and elsewhere.
MAY: dict[str, tuple[Need, Need]] = {
    "anonymous": (READ, PUBLIC),
    "viewer": (READ, READ),
    "analyst": (WRITE, WRITE),
    "administrator": (ADMINISTER, ADMINISTER),
}

Roles = dict[str, str | None]
ANSWERS: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The explorer's answers are worked out once: here it only counts who may ask."""

    async def answer(
        self: Workers, answer: Callable[[Any], Any], question: object, unwanted: object, of: str
    ) -> Any:
        asked = f"{answer.__name__} {question!r}"
        if asked not in ANSWERS:
            ANSWERS[asked] = answer(question)
        return ANSWERS[asked]

    monkeypatch.setattr(Workers, "answer", answer)


@pytest.fixture
def roles(token: Callable[..., str]) -> Roles:
    """A token for each role."""
    return {
        "anonymous": None,
        "viewer": token("viewer"),
        "analyst": token("analyst", "ada"),
        "administrator": token("administrator"),
    }


def deviations(client: TestClient, roles: Roles, *, local: bool) -> list[str]:
    """Who is let through, or refused, other than the tables above say."""
    found = []
    for question in questions(_app(client)):
        for role, token in roles.items():
            needed, most = NEEDS[str(question)], MAY[role][0 if local else 1]
            expected = (
                (200, 302, 303, 409, 404) if needed <= most else (401 if token is None else 403,)
            )
            status = _status(client, question, token, roles)
            if status not in expected:
                found.append(f"{question} by {role}: {status}")
    return found


def _app(client: TestClient) -> FastAPI:
    assert isinstance(client.app, FastAPI)
    return client.app


def _status(client: TestClient, question: Question, token: str | None, roles: Roles) -> int:
    query = question.query | ({"job": "0"} if str(question) == "GET /api/v1/verify" else {})
    form = question.form
    if question.method == "POST" and not question.path.startswith("/api/"):
        form = {
            "csrf": csrf_of(client.get("/sign-in")),
            "token": str(roles["viewer"]),
            **(form or {}),
        }
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    asked = Question(question.method, question.path, query, question.body, form)
    status = asked.ask(client, headers=headers).status_code
    client.cookies.clear()  # of who has signed in
    return status


def test_every_route_of_the_table_has_a_rule(client: Client) -> None:
    found: dict[str, Need] = {}
    for route in _app(client()).routes:
        if isinstance(route, APIRoute):
            gate = gate_of(route)
            assert gate is not None
            found |= {f"{method} {route.path}": gate.need for method in route.methods or ()}
    assert found == NEEDS


@pytest.mark.slow
@pytest.mark.parametrize("local", [True, False], ids=["local", "elsewhere"])
def test_every_role_may_do_what_it_is_for_and_nothing_else(
    client: Client, roles: Roles, local: bool
) -> None:
    ask = client(host="127.0.0.1" if local else "0.0.0.0")
    assert deviations(ask, roles, local=local) == []


@pytest.mark.slow  # the whole matrix for each of them
@pytest.mark.parametrize("path", sorted({line.split()[1] for line in NEEDS}))
def test_a_route_whose_rule_is_gone_is_missed(
    client: Client, roles: Roles, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = client(host="0.0.0.0")
    gates = [gate_of(r) for r in _app(ask).routes if isinstance(r, APIRoute) and r.path == path]
    for gate in gates:
        assert gate is not None
        monkeypatch.setattr(gate, "need", PUBLIC)
    lost = [line for line in NEEDS if line.endswith(f" {path}") and NEEDS[line] > PUBLIC]
    found = {line.partition(" by ")[0] for line in deviations(ask, roles, local=False)}
    assert found == set(lost)


def test_a_server_with_a_route_without_a_rule_does_not_start(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    careless: APIRouter = router_of("careless")
    careless.get("/everything")(lambda: "all of it")
    monkeypatch.setattr(web_app, "ROUTERS", [*web_app.ROUTERS, careless])
    with pytest.raises(AssertionError, match="who may use /api/v1/everything"):
        client()


MUTATIONS = [
    Without("everybody may do everything", {"roles-limit-acts": "return True"}, lambda: True),
    Without("anybody may read from afar", {"open-only-here": "return True"}, lambda: True),
    Without(
        "analysts administer",
        {
            "analysts-only-write": (
                'most = {"viewer": READ, "analyst": ADMINISTER, "administrator": ADMINISTER}'
            )
        },
        lambda: True,
    ),
    Without(
        "a gate that lets through whom it does not know",
        {"unknown-callers-stopped": "return"},
        lambda: True,
    ),
]


@pytest.mark.slow
@each(MUTATIONS)
def test_the_matrix_misses_a_guard_that_is_gone(
    client: Client, roles: Roles, mutation: Without, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch, mutation)
    assert deviations(client(host="0.0.0.0"), roles, local=False)
