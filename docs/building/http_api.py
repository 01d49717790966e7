"""The reference of the API, from its own document: a section for each operation."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from typing import Any

import tightbudget as tb
from tightbudget.web.app import create_app
from tightbudget.web.settings import Settings

NEEDS = {
    "public": "Nobody needs a token.",
    "read": "Reads: on this machine without a token, elsewhere with any.",
    "write": "Needs the token of an analyst of the budgets, or of an administrator.",
    "administer": "Needs the token of an administrator.",
}


def reference() -> str:
    """All operations in their groups, then the shapes of what is sent and answered."""
    document = _document()
    groups: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            section = _operation(document, f"{method.upper()} {path}", operation)
            groups.setdefault(operation["tags"][0], []).extend(section)
    lines: list[str] = []
    for group, sections in groups.items():
        lines += [f"## {group.capitalize()}", "", *sections]
    lines += ["## Shapes", "", *_shapes(document)]
    return "\n".join(lines).rstrip()


def _document() -> dict[str, Any]:
    """The OpenAPI document of a server whose ledger is new and empty."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/budget.db"
        tb.Ledger(url).close()
        app = create_app(Settings(url))
        app.state.open.ledger.close()
        return app.openapi()


def _operation(document: dict[str, Any], name: str, operation: dict[str, Any]) -> Iterator[str]:
    """The lines that describe one operation: its rights, parameters, body and answer."""
    yield from (f"### `{name}`", "", operation["description"], "")
    yield from (NEEDS[operation["x-needs"]], "")
    yield from _table(
        "query",
        {p["name"]: p["schema"] for p in operation.get("parameters", [])},
        {p["name"] for p in operation.get("parameters", []) if p["required"]},
    )
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body is not None:
        schema = _found(document, body["schema"])
        yield from _table("body", schema["properties"], set(schema.get("required", [])))
        example = schema.get("examples", [None])[0] or {
            name: p["examples"][0] for name, p in schema["properties"].items() if "examples" in p
        }
        yield from ("```json", json.dumps(example), "```", "")
    for kind, content in operation["responses"]["200"].get("content", {}).items():
        said = content["schema"].get("$ref", "").rpartition("/")[2]
        yield from (f"Answers [`{said}`](#{said.lower()})." if said else f"Answers `{kind}`.", "")


def _shapes(document: dict[str, Any]) -> Iterator[str]:
    """Every shape that an answer has, or a part of a body, and those inside."""
    wanted: list[str] = []
    for operations in document["paths"].values():
        for operation in operations.values():
            wanted += _named(operation["responses"])
            for body in _named(operation.get("requestBody")):
                wanted += _named(document["components"]["schemas"][body])
    shown: set[str] = set()
    while wanted:
        name = wanted.pop(0)
        if name not in shown:
            shown.add(name)
            schema = document["components"]["schemas"][name]
            wanted += _named(schema)
            yield from (f"### {name}", "", schema.get("description", "").strip(), "")
            properties = schema.get("properties", {})
            yield from _table("field", properties, set(properties))


def _table(title: str, fields: dict[str, Any], required: set[str]) -> Iterator[str]:
    """The lines of a table of parameters, with their types and defaults."""
    if not fields:
        return
    yield from (f"| {title} | | |", "| --- | --- | --- |")
    for name, schema in fields.items():
        notes = [schema.get("description", "")]
        if schema.get("default") is not None:
            notes.append(f"Default: `{json.dumps(schema['default'])}`.")
        elif name not in required:
            notes.append("May be left out.")
        yield f"| `{name}` | {_type(schema)} | {' '.join(filter(None, notes))} |"
    yield ""


def _type(schema: dict[str, Any]) -> str:
    """The type that a schema describes, with links to named shapes."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if schema.get("type") == "array":
        inside = schema.get("items")
        return f"list of {_type(inside)}" if inside else "list"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "anything"))


def _found(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The named schema that a reference means."""
    first = schema.get("anyOf", [schema])[0]  # what else a body may be, the route says
    name = first["$ref"].rpartition("/")[2]
    return dict(document["components"]["schemas"][name])


def _named(content: Any) -> Iterator[str]:
    """The names of the shapes that are referred to, in their order."""
    if isinstance(content, dict):
        if "$ref" in content:
            yield content["$ref"].rpartition("/")[2]
        for inside in content.values():
            yield from _named(inside)
    elif isinstance(content, list):
        for inside in content:
            yield from _named(inside)
