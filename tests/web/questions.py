"""What can be asked of a server, read off its own document: each question with its example."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

__all__ = ["Question", "examples", "questions"]


@dataclass(frozen=True)
class Question:
    """A method and a path, with what the document shows as an example."""

    method: str
    path: str
    query: dict[str, Any]
    body: dict[str, Any] | None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def ask(self, client: TestClient, **more: Any) -> httpx.Response:
        return client.request(
            self.method,
            self.path,
            params=self.query,
            json=self.body,
            follow_redirects=False,
            **more,
        )


def questions(app: FastAPI) -> list[Question]:
    """One for each route of the table, with its example if it has one."""
    known = {str(question): question for question in examples(app)}
    return [
        known.get(f"{method} {route.path}", Question(method, route.path, {}, None))
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods or ())
    ]


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
