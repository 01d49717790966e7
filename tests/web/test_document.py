"""The document says what is true: each example is answered, and so is whatever it allows."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, settings
from starlette.testclient import TestClient
from tests.web.conftest import Client
from tests.web.questions import Question, examples

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it looks for many frameworks
    import schemathesis

Token = Callable[..., str]


def app_of(client: TestClient) -> FastAPI:
    assert isinstance(client.app, FastAPI)
    return client.app


def document_of(client: TestClient) -> dict[str, Any]:
    document = client.get("/api/v1/openapi.json").json()
    assert document == app_of(client).openapi()
    return dict(document)


def test_every_route_under_api_is_in_the_document(client: Client) -> None:
    ask = client()
    documented = {
        f"{method.upper()} {path}"
        for path, operations in document_of(ask)["paths"].items()
        for method in operations
    }
    routes = {
        f"{method} {route.path}"
        for route in app_of(ask).routes
        if isinstance(route, APIRoute) and route.path.startswith("/api/")
        for method in route.methods or ()
    }
    assert routes - documented == {"GET /api/v1/openapi.json"}
    assert documented <= routes


def test_every_operation_and_every_body_has_a_text_and_an_example(client: Client) -> None:
    document = document_of(client())
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["description"].strip(), f"{method} {path}"
    for question in examples(app_of(client())):
        assert question.body != {}, question


@pytest.mark.slow
def test_every_example_is_answered(client: Client, token: Token, ledger_url: str) -> None:
    """Each of a fresh administrator's; the ledger is what the examples speak of."""
    ask = client(token("administrator"))
    asked: list[Question] = []
    for question in examples(app_of(ask)):
        if str(question) == "GET /api/v1/verify":
            job = ask.post("/api/v1/verify").json()["job"]
            question = Question(question.method, question.path, {"job": job}, None)
        response = question.ask(ask)
        # each ends the one run that its example names, and only the first finds it open
        expected = (200, 409) if question.path.rpartition("/")[2] in ENDINGS else (200,)
        assert response.status_code in expected, f"{question}: {response.text}"
        asked.append(question)
    assert len(asked) > 20


ENDINGS = ("start", "settle", "void", "forfeit", "expire")


@pytest.mark.one_in(5)
@pytest.mark.parametrize("path", ["reserve", "what-if", "open", "raise-cap", "close", *ENDINGS])
def test_every_example_of_an_act_does_what_it_says(client: Client, token: Token, path: str) -> None:
    ask = client(token("administrator"))
    (question,) = [q for q in examples(app_of(ask)) if q.path == f"/api/v1/{path}"]
    response = question.ask(ask)
    assert response.status_code == 200, response.text


@pytest.mark.slow
@pytest.mark.parametrize("role", ["administrator", "analyst"])
def test_whatever_the_document_allows_is_answered_as_it_says(
    client: Client, token: Token, role: str
) -> None:
    """No failure of the server, and nothing that the document does not know."""
    budgets = ["ada"] if role == "analyst" else []
    text = token(role, *budgets)
    ask = client(text)
    schema = schemathesis.openapi.from_dict(document_of(ask))
    checks = [
        schemathesis.checks.not_a_server_error,
        schemathesis.checks.status_code_conformance,
        schemathesis.checks.content_type_conformance,
        schemathesis.checks.response_schema_conformance,
    ]
    statuses: Counter[int] = Counter()
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]

        @settings(
            max_examples=20,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
            database=None,
            derandomize=True,
            deadline=None,
        )
        @given(case=operation.as_strategy())
        def every_case_is_answered(case: schemathesis.Case) -> None:
            kwargs = case.as_transport_kwargs(base_url="http://127.0.0.1:8000")
            kwargs["headers"] = {**kwargs.get("headers", {}), "authorization": f"Bearer {text}"}
            kwargs.pop("cookies", None)
            response = ask.request(**kwargs)
            case.validate_response(schemathesis.Response.from_any(response), checks=checks)
            statuses[response.status_code] += 1

        every_case_is_answered()
    assert statuses.total() > 200
    assert {200, 400, 404} <= set(statuses)
