"""However much is declared, held and opened: lists have pages, pages are short, nothing is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from tests.guards.mutants import Without, lose_a_truth
from tests.web.conftest import HERE, SEARCH, Client
from tests.web.test_access import error_of

import tightbudget as tb
from tightbudget.client import remote as remote_module
from tightbudget.ledger.rows import run_rows, selection
from tightbudget.web.api import schemas
from tightbudget.web.pages import budget as budget_page
from tightbudget.web.pages import budgets as budgets_page

Token = Callable[..., str]
FREE = tb.OutputDP({"nothing": 0})


def pages(ask: TestClient, path: str, entries: str, **query: Any) -> list[list[dict[str, Any]]]:
    """All pages of a list, as a client follows them."""
    found: list[list[dict[str, Any]]] = []
    after: str | None = None
    while not found or after is not None:
        asked = query if after is None else {**query, "after": after}
        answer = ask.get(f"/api/v1/{path}", params=asked)
        assert answer.status_code == 200, answer.text
        found.append(answer.json()[entries])
        after = answer.json()["next"]
    return found


@pytest.fixture
def full(ledger: tb.Ledger) -> tb.Ledger:
    """With eight more open reservations of ada, of which one is of bob, too, and two are over."""
    for i in range(8):
        hold = ledger.reserve(f"F{i}", FREE, ["ada", "bob"] if i == 3 else ["ada"])
        if i in (4, 5):
            hold.start()
        if i == 5:
            hold.forfeit()
        if i == 6:
            hold.void()
    return ledger


@pytest.mark.one_in(4)
@pytest.mark.parametrize("budget", [None, "ada", "bob", "eve", "census"])
@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_all_pages_together_are_all(
    client: Client, full: tb.Ledger, budget: str | None, limit: int
) -> None:
    query = {"limit": limit} | ({} if budget is None else {"budget": budget})
    found = pages(client(), "holds", "holds", **query)
    assert all(len(page) <= limit for page in found)
    holds = full.holds() if budget is None else full.budget(budget).holds()
    listed = [hold for page in found for hold in page]
    assert [hold["key"] for hold in listed] == [hold.key for hold in holds]
    for said, hold in zip(listed, holds, strict=True):
        assert said["since"] == hold.since
        assert (said["state"], said["told"]) == (hold.state.value, hold.told)
        assert said["charges"].keys() == hold.charges.keys()
        assert all(said["charges"][n]["amount"] == c.epsilon for n, c in hold.charges.items())
        assert (said["guarantee"], said["token"], said["cell"]) == (None, None, None)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("limit", [1, 2, 3, None])
@pytest.mark.parametrize("after", [None, "A2", "F3"])
@pytest.mark.parametrize("budgets", [("ada",), ("bob", "eve"), ("ada", "bob"), ("eve",)])
def test_many_names_are_compared_like_few(
    full: tb.Ledger,
    monkeypatch: pytest.MonkeyPatch,
    limit: int | None,
    after: str | None,
    budgets: tuple[str, ...],
) -> None:
    """A database takes so many values in a statement, and a token may see more budgets."""

    def said() -> tuple[object, ...]:
        return (
            full.open_holds(budgets=budgets, after=after, limit=limit),
            full.statements(budgets=budgets, limit=limit),
            full.count_open(budgets),
        )

    few = said()
    monkeypatch.setattr(selection, "FEW", 0)
    monkeypatch.setattr(run_rows, "_PAGE", 2)
    assert said() == few


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
@pytest.mark.parametrize("role", ["viewer", "analyst"])
def test_budgets_have_pages(
    client: Client, token: Token, ledger: tb.Ledger, limit: int, role: str
) -> None:
    ask = client(token(role, *(["ada"] if role == "analyst" else [])))
    found = [b["name"] for page in pages(ask, "budgets", "budgets", limit=limit) for b in page]
    seen = [s.name for s in ledger.statements()]
    assert found == (["ada", "eve"] if role == "analyst" else seen)


def test_pages_stay_where_they_are_when_something_ends(client: Client, full: tb.Ledger) -> None:
    first = client().get("/api/v1/holds?limit=3").json()
    full.hold(first["next"]).void()
    rest = client().get("/api/v1/holds", params={"after": first["next"]}).json()["holds"]
    assert [h["key"] for h in first["holds"][:-1] + rest] == [h.key for h in full.holds()]


def test_an_analyst_pages_through_what_is_for_the_token(
    client: Client, token: Token, full: tb.Ledger
) -> None:
    ask = client(token("analyst", "bob"))
    found = [h for page in pages(ask, "holds", "holds", limit=1) for h in page]
    assert [h["key"] for h in found] == ["B1", "AB", "F3"]
    assert {n for h in found for n in h["charges"]} == {"bob"}
    error_of(ask.get("/api/v1/budgets?after=ada"), 404)
    error_of(ask.get("/api/v1/budgets?after=zoe"), 404)


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("holds?after=none", 409, "there is no reservation 'none'"),
        ("holds?limit=0", 400, "limit: "),
        ("holds?limit=1001", 400, "limit: "),
        ("holds?limit=1_0", 400, "limit: .*digits 0 to 9"),
        ("budgets?limit=0", 400, "limit: "),
        ("budgets?after=zoe", 404, "budget must be the name of a budget in this ledger"),
    ],
)
def test_what_is_no_page_is_refused(client: Client, path: str, status: int, message: str) -> None:
    error = error_of(client().get(f"/api/v1/{path}"), status)
    assert re.search(message, str(error["message"]))


def test_a_remote_ledger_follows_the_pages(
    client: Client, token: Token, full: tb.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_module, "_MOST", 2)
    transport = client()._transport
    with tb.RemoteLedger(HERE, token=token("administrator"), transport=transport) as far:
        assert far.statements() == full.statements()
        assert [h.key for h in far.holds()] == [h.key for h in full.holds()]
        assert [h.guarantee for h in far.holds()] == [h.guarantee for h in full.holds()]
        held = far.budget("bob").holds()
        assert [h.key for h in held] == ["B1", "AB", "F3"]
        held[0].void()
        assert held[0].guarantee == SEARCH


# ------------------------------------------------------------------------ short pages


def large(ledger: tb.Ledger, n: int = 3) -> None:
    cells = {f"cell-{j:05d}-{'x' * 30}": 0 for j in range(2000)}
    for i in range(n):
        ledger.reserve(f"L{i}", tb.OutputDP(cells), ["ada"])


def read_at(client: Client, ledger: tb.Ledger) -> dict[str, int]:
    """Bytes of each list and page."""
    paths = ("/", "/budget?name=ada", "/api/v1/holds", "/api/v1/budget?name=ada")
    return {path: len(client().get(path).content) for path in paths}


def test_lists_do_not_grow_with_what_was_declared(
    client: Client, ledger: tb.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    large(ledger)

    def unread(*_: object) -> None:
        raise AssertionError("a list has read what was declared")

    monkeypatch.setattr(run_rows, "_guarantee", unread)
    monkeypatch.setattr(run_rows, "_reservation", unread)
    for path, size in read_at(client, ledger).items():
        assert size < 80_000, path
        assert "xxxxxxx" not in client().get(path).text


def test_pages_show_some_and_say_where_the_others_are(
    client: Client, full: tb.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (
        (budgets_page, "HOLDS"),
        (budget_page, "HOLDS"),
        (budgets_page, "_BUDGETS"),
    ):
        monkeypatch.setattr(module, name, 2)
    ask = client()
    seen: list[str] = []
    path: str | None = "/budget?name=ada"
    while path is not None:
        page = ask.get(path).text
        table = page[page.index('id="open"') : page.index('id="chain"')]
        seen += [
            part.partition("<")[0]
            for part in table.split('data-label="Key"><span class="mono">')[1:]
        ]
        path = _next(table)
    assert seen == [hold.key for hold in full.budget("ada").holds()]
    first = ask.get("/").text
    assert "bob" not in first[first.index('id="tree"') : first.index('id="open"')]
    second = _next(first[: first.index('id="open"')])
    assert second is not None
    rest = ask.get(second).text
    tree = rest[rest.index('id="tree"') : rest.index('id="open"')]
    assert "name=bob" in tree
    assert "A part of" in tree
    assert _next(tree) is None


def test_a_budget_with_many_parts_names_the_first(
    client: Client, ledger: tb.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget_page, "_PARTS", 1)
    page = client().get("/budget?name=census").text
    assert ">ada</a> and more" in page
    assert ledger.budget("census").parts(5) == ("ada", "bob")


def _next(page: str) -> str | None:
    before, found, _ = page.partition('" rel="next"')
    return before.rpartition('href="')[2].replace("&amp;", "&").partition("#")[0] if found else None


# ----------------------------------------------------------------------------- limits


def reserve(ask: TestClient, key: str, *budgets: str, cells: int = 1) -> httpx.Response:
    listed = [[f"c{i}", 0] for i in range(cells)]
    output_dp = {"cells": listed, "delta": 0, "sup": 0}
    guarantee = {"tightbudget": 1, "output_dp": output_dp}
    body = {"key": key, "budgets": budgets, "guarantee": guarantee}
    return ask.post("/api/v1/reserve", content=json.dumps(body).encode(),
                    headers={"content-type": "application/json"})  # fmt: skip


def test_a_budget_has_room_for_so_many_open_reservations(
    client: Client, token: Token, ledger: tb.Ledger
) -> None:
    ask = client(token("administrator"), most_open=4)
    assert reserve(ask, "N1", "ada").status_code == 200  # after A1, A2 and AB
    error = error_of(reserve(ask, "N2", "ada"), 409)
    assert error["type"] == "SettlementError"
    assert error["message"] == (
        "the budget 'ada' has 4 open reservations, and this server takes no more: settle, forfeit"
        " or void some of them first"
    )
    error_of(reserve(ask, "N2", "bob", "ada"), 409)
    assert reserve(ask, "N1", "ada").status_code == 200  # the same again is no new one
    assert reserve(ask, "N2", "bob").status_code == 200
    ledger.hold("N1").void()
    assert reserve(ask, "N3", "ada").status_code == 200
    ledger.verify()


def test_an_analyst_has_room_for_so_many_in_all_budgets(
    client: Client, token: Token, ledger: tb.Ledger
) -> None:
    ask = client(token("analyst", "ada", "bob"), most_open=5)  # four are open
    assert reserve(ask, "N1", "eve").status_code == 200
    error = error_of(reserve(ask, "N2", "eve"), 409)
    assert str(error["message"]).startswith("the budgets of this token have 5 open reservations")
    other = client(token("analyst", "eve"), most_open=5)
    assert reserve(other, "N3", "eve").status_code == 200


def test_a_guarantee_has_so_many_cells(client: Client, token: Token) -> None:
    ask = client(token("administrator"), most_cells=3)
    assert reserve(ask, "N1", "ada", cells=3).status_code == 200
    error = error_of(reserve(ask, "N2", "ada", cells=4), 400)
    assert str(error["message"]).startswith(
        "guarantee must have at most 3 cells on this server, got 4: join cells"
    )
    guarantee = {"tightbudget": 1, "output_dp": {"cells": [["a", 0]] * 4, "delta": 0, "sup": 0}}
    error_of(ask.post("/api/v1/what-if", json={"budget": "ada", "guarantee": guarantee}), 400)


# -------------------------------------------------------------------------- mutations


def room(client: Client, token: Token) -> bool:
    ask = client(token("administrator"), most_open=3)
    return reserve(ask, "N9", "ada").status_code == 409


def own_room(client: Client, token: Token) -> bool:
    ask = client(token("analyst", "ada", "bob"), most_open=4)
    return reserve(ask, "N9", "eve").status_code == 409


def again(client: Client, token: Token) -> bool:
    ask = client(token("administrator"), most_open=3)
    body = {"key": "A1", "budgets": ["ada"], "guarantee": forms_of(SEARCH)}
    return ask.post("/api/v1/reserve", json=body).status_code == 200


def cells(client: Client, token: Token) -> bool:
    return reserve(client(token("administrator"), most_cells=3), "N8", "ada", cells=4).is_error


def follows(client: Client, token: Token) -> bool:
    return len([h for page in pages(client(), "holds", "holds", limit=1) for h in page]) == 4


def forms_of(guarantee: tb.OutputDP) -> dict[str, Any]:
    return dict(json.loads(guarantee.to_json()))


GUARDS: list[tuple[Without, Callable[[Client, Token], bool]]] = [
    (Without("room", {"room-for-reservations": "if False:"}, bool), room),
    (Without("room of an analyst", {"room-of-analyst": "if False:"}, bool), own_room),
    (Without("the same again", {"known-key-passes": "if False:"}, bool), again),
    (Without("cells", {"cells-limited": "if isinstance(cells, list) and False:"}, bool), cells),
    (
        Without(
            "next",
            {
                "one-more-is-asked": (
                    "found = ledger.open_holds(budgets=seen, after=after, limit=limit)"
                )
            },
            bool,
        ),
        follows,
    ),
]


@pytest.mark.parametrize(
    ("mutation", "true"), GUARDS, ids=[mutation.name.replace(" ", "-") for mutation, _ in GUARDS]
)
def test_a_guard_that_is_gone_is_missed(
    mutation: Without,
    true: Callable[[Client, Token], bool],
    client: Client,
    token: Token,
    ledger: tb.Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lose_a_truth(monkeypatch, replace(mutation, true=lambda: true(client, token)))


def test_the_document_says_how_lists_go_on(client: Client) -> None:
    document = client().get("/api/v1/openapi.json").json()
    for path in ("/api/v1/holds", "/api/v1/budgets"):
        names = {p["name"]: p for p in document["paths"][path]["get"]["parameters"]}
        assert {"after", "limit"} <= names.keys()
        assert names["limit"]["schema"]["maximum"] == schemas.MOST
