"""Addresses that are guessed, asked by HEAD, or that nobody answers."""

from __future__ import annotations

import http.client
import re
from urllib.parse import urlsplit

import pytest
from fastapi.routing import APIRoute
from tests.web.conftest import Client, Serve

from tightbudget.links import DOCUMENTATION

# Headers that are another at each moment.
_OF_THE_MOMENT = {"set-cookie", "date"}


def headers_of(answer: object) -> dict[str, str]:
    """The headers of an answer that are the same at every moment."""
    found = dict(answer.headers)  # type: ignore[attr-defined]
    return {name: value for name, value in found.items() if name not in _OF_THE_MOMENT}


def test_head_is_answered_wherever_get_is(client: Client) -> None:
    ask = client()
    paths = {
        route.path
        for route in ask.app.routes  # type: ignore[attr-defined]
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    }
    assert {"/", "/budget", "/sign-in", "/api/v1/health", "/api/v1/events.csv"} <= paths
    for path in sorted(paths - {"/explorer", "/explorer/download"}):  # processes answer those
        params = {"name": "ada", "budget": "ada", "key": "A1"}
        got = ask.get(path, params=params, follow_redirects=False)
        asked = ask.head(path, params=params, follow_redirects=False)
        assert asked.status_code == got.status_code, path
        assert asked.content == b"", path
        if "csrf" not in got.text:  # a form's own token differs each time
            assert headers_of(asked) == headers_of(got), path


def test_head_of_what_takes_a_post_or_nothing_is_refused(client: Client) -> None:
    ask = client()
    assert ask.head("/api/v1/reserve").status_code == 405
    assert ask.head("/nowhere").status_code == 404
    assert ask.head("/static/style.css").status_code == 200
    assert client(host="0.0.0.0").head("/").status_code == 401


@pytest.mark.slow  # a process of its own
def test_a_server_answers_head_to_a_health_check(served: Serve, ledger_url: str) -> None:
    where = urlsplit(served(ledger_url).url)
    line = http.client.HTTPConnection(where.netloc, timeout=30)
    for path in ("/", "/api/v1/health"):
        line.request("HEAD", path)
        answer = line.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
    line.close()


def test_what_people_guess_leads_on(client: Client) -> None:
    ask = client(host="0.0.0.0")  # also for those without a token
    docs = ask.get("/docs", follow_redirects=False)
    assert (docs.status_code, docs.headers["location"]) == (302, DOCUMENTATION)
    assert ask.get("/openapi.json").json()["openapi"].startswith("3.")
    assert DOCUMENTATION in ask.get("/sign-in").text


def test_a_wrong_address_is_no_refusal(client: Client) -> None:
    page = client().get("/nowhere")
    assert page.status_code == 404
    assert "<title>Nothing is here · tightbudget</title>" in page.text
    assert "No page has this address." in page.text
    assert "notice-bad" not in page.text
    assert "Refused" not in page.text
    assert client().get("/api/v1/nowhere").json()["error"]["type"] == "NotFound"


def test_the_command_that_makes_a_token_can_be_copied(client: Client) -> None:
    page = client().get("/sign-in").text
    found = re.search(r"<pre[^>]*><code>(.*?)</code>", page, re.DOTALL)
    assert found is not None
    assert "--ledger sqlite:///budget.db" in found[1]
    assert max(map(len, found[1].splitlines())) <= 36  # fits a telephone without a break
    assert [line for line in found[1].splitlines()[:-1] if not line.endswith(" \\")] == []
