"""Questions for every route of a server, read off its own document with their examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

__all__ = ["Question", "csrf_of", "examples", "questions"]


@dataclass(frozen=True)
class Question:
    """A method and a path, with an example of what is sent."""

    method: str
    path: str
    query: dict[str, Any]
    body: dict[str, Any] | None = None
    form: dict[str, str] | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def ask(self, client: TestClient, **more: Any) -> httpx.Response:
        return client.request(
            self.method,
            self.path,
            params=self.query,
            json=self.body,
            data=self.form,
            follow_redirects=False,
            **more,
        )


# Pages are in no document; what their forms send is here.
PAGES = [
    Question("GET", "/budget", {"name": "ada"}),
    Question("GET", "/explorer/download", {"of": "curve", "as": "json"}),
    Question("POST", "/budget/verify", {}, form={"name": "ada"}),
    Question("POST", "/budgets/open", {}, form={"name": "dan", "kind": "zcdp", "rho": "0.5"}),
    Question(
        "POST", "/budget/raise-cap", {}, form={"name": "ada", "epsilon": "1.1", "reason": "x"}
    ),
    Question("POST", "/budget/expire", {}, form={"name": "ada", "key": "A1", "reason": "x"}),
    Question("POST", "/budget/close", {}, form={"name": "eve", "sure": "yes"}),
]


def questions(app: FastAPI) -> list[Question]:
    """Lists a question for each route, with the example of the document if the route has one."""
    known = {str(question): question for question in [*examples(app), *PAGES]}
    return [
        known.get(f"{method} {route.path}", Question(method, route.path, {}))
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods or ())
    ]


def csrf_of(page: httpx.Response) -> str:
    """Reads the token against forged requests out of a page's form."""
    found = re.search(r'name="csrf" value="([^"]+)"', page.text)
    assert found is not None, page.text
    return found[1]


def examples(app: FastAPI) -> Iterator[Question]:
    """The example of each operation of the document."""
    document = app.openapi()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            query = {p["name"]: p["schema"]["examples"][0] for p in operation.get("parameters", [])
                     if "examples" in p["schema"]}  # fmt: skip
            yield Question(method.upper(), path, query, _body(document, operation))


def _body(document: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any] | None:
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" not in content:
        return None
    schema = content["application/json"]["schema"]
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "examples" in schema:
        example: dict[str, Any] = schema["examples"][0]
        return example
    properties = schema["properties"].items()
    return {name: p["examples"][0] for name, p in properties if "examples" in p}
