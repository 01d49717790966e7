"""The page of a set of blocks: a map of what is left."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient
from tests.guards.mutants import Without, each, mutate
from tests.web.conftest import Client
from tests.web.test_pages import tags, text_of

import tightbudget as tb
from tightbudget.web.pages import blocks as pages
from tightbudget.web.pages.blocks import Spot, heat_map

Token = Callable[..., str]


def EVERYONE(name: str) -> bool:  # noqa: N802 (a caller who sees all)
    return True


@pytest.fixture
def clicks(ledger: tb.Ledger) -> tb.ledger.Blocks:
    """A set whose blocks have 0.7 left, and one of them 0; what others see is the same."""
    clicks = ledger.blocks("clicks", by=("day", "site"), epsilon=1, quota_epsilon=5, rows_in=2)
    runs = (("2026-01-01..2026-01-02", "<b>", 0.3), ("2026-01-02", "a", 1))
    for days, site, price in runs:
        here = clicks.where(day=days, site=site)
        hold = here.reserve(f"count {site}", tb.OutputDP({"yes": price}), by="ada")
        hold.start()
        hold.settle("yes")
    return clicks


def test_blocks_have_their_places(clicks: tb.ledger.Blocks) -> None:
    found = heat_map(clicks, EVERYONE)
    first, second = "clicks[day=2026-01-01, site=<b>]", "clicks[day=2026-01-02, site=<b>]"
    assert (found.across, found.down) == ("day", "site")
    assert found.columns == ["2026-01-01", "2026-01-02"]
    assert found.rows == [
        ("<b>", [Spot(name=name, left=0.7, shade=7, closed=False) for name in (first, second)]),
        ("a", [None, Spot(name=second.replace("<b>", "a"), left=0.0, shade=0, closed=False)]),
    ]
    assert (found.shown, found.is_cut, found.person) == (3, False, (2.0, 0.0))
    assert [quota.name for quota in found.quotas] == ["clicks[analyst ada]"]


def test_a_map_shows_the_last_blocks(
    clicks: tb.ledger.Blocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_MOST", 2)
    found = heat_map(clicks, EVERYONE)
    assert (found.columns, found.shown, found.is_cut) == (["2026-01-02"], 2, True)


def test_the_page_of_a_set_shows_its_blocks(
    clicks: tb.ledger.Blocks, client: Client, token: Token
) -> None:
    there = client(token("viewer"))
    page = there.get("/budget", params={"name": "clicks"})
    assert page.status_code == 200
    said = text_of(page.text)
    assert "All that is released about one person is ( 2 , 0 )-DP" in said
    assert "of 2 ε left" not in said  # nothing is charged to the set itself
    assert "Balance" not in said
    assert "course.js" not in page.text
    assert "<b>" not in page.text
    spots = [found for tag, found in tags(page.text) if found.get("class", "").startswith("heat-")]
    assert [spot["class"] for spot in spots] == ["heat-7", "heat-7", "heat-0"]
    titles = [found["title"] for tag, found in tags(page.text) if tag == "a" and "title" in found]
    assert titles[2] == "clicks[day=2026-01-02, site=a]: 0 left"
    assert "Change the cap" not in page.text
    block = there.get("/budget", params={"name": "clicks[day=2026-01-02, site=a]"})
    assert block.status_code == 200
    front = there.get("/").text
    assert "clicks" in front
    assert "clicks[" not in front


def test_the_page_of_a_set_with_a_cap_shows_what_is_left_of_it(
    ledger: tb.Ledger, client: Client, token: Token
) -> None:
    ledger.blocks("clicks", by=["day"], epsilon=1, cap_epsilon=3)
    page = client(token("viewer")).get("/budget", params={"name": "clicks"}).text
    assert "of 3 ε left" in text_of(page)
    assert "Balance" in text_of(page)
    assert "No run has touched a block yet" in page


def test_an_administrator_closes_a_set_and_changes_no_cap(
    clicks: tb.ledger.Blocks, client: Client, token: Token
) -> None:
    page = client(token("administrator")).get("/budget", params={"name": "clicks"}).text
    assert "Close this budget" in page
    assert "Change the cap" not in page


def test_a_page_names_ten_of_the_budgets_of_a_run(
    ledger: tb.Ledger, client: Client, token: Token
) -> None:
    clicks = ledger.blocks("clicks", by=["day"], epsilon=1)
    clicks.where(day="2026").reserve("K1", tb.OutputDP({"yes": 0.3}))
    there = client(token("viewer"))
    for page in (
        there.get("/").text,
        there.get("/budget", params={"name": "clicks[day=2026-01-01]", "key": "K1"}).text,
    ):
        assert "clicks[day=2026-01-10]" in page
        assert "clicks[day=2026-01-11]" not in page
        assert "and 355 more" in page


def test_a_map_of_few_blocks_far_apart_is_small(ledger: tb.Ledger) -> None:
    far = ledger.blocks("far", by=["user", "site"], epsilon=1)
    for i in range(100):
        far.where(user=f"{i:03d}", site=f"{i:03d}").reserve(f"K{i}", tb.OutputDP({"yes": 0.3}))
    found = heat_map(far, EVERYONE)
    assert (len(found.columns), len(found.rows), found.shown, found.is_cut) == (60, 60, 60, True)
    assert found.columns[-1] == "099"


@each([Without("all quotas", {"quotas-of-others-hidden": "quotas += [one]"}, lambda: True)])
def test_a_caller_of_the_set_sees_no_quotas_of_others(
    clicks: tb.ledger.Blocks,
    client: Client,
    token: Token,
    mutation: Without,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = client(token("analyst", "clicks"))
    page = there.get("/budget", params={"name": "clicks"}).text
    assert "heat-7" in page
    assert "analyst ada" not in page
    mutate(monkeypatch, mutation)
    assert "analyst ada" in there.get("/budget", params={"name": "clicks"}).text


# ----------------------------------------------------------------------------- the routes

COUNT = tb.OutputDP({"yes": 0.3}).to_dict()
DAYS = {"set": "clicks", "where": {"day": "2026-01-01..2026-01-02", "site": ["a", "b"]}}


@pytest.fixture
def of_two(ledger: tb.Ledger, client: Client, token: Token) -> tuple[TestClient, TestClient]:
    """Two analysts of one set, ada and bob."""
    ledger.blocks("clicks", by=("day", "site"), epsilon=1, quota_epsilon=5, rows_in=2)
    ada, bob = (client(token("analyst", "clicks", name=name)) for name in ("ada", "bob"))
    return ada, bob


def test_an_administrator_declares_a_set(client: Client, token: Token, ledger: tb.Ledger) -> None:
    there = client(token("administrator"))
    terms = {"name": "visits", "by": ["day"], "epsilon": "1/3", "rows_in": 3, "unlocking": 7}
    answer = there.post("/api/v1/blocks", json=terms)
    assert answer.status_code == 200, answer.text
    known = ledger.blocks("visits").terms
    assert answer.json() == known.to_dict()
    assert (known.block.epsilon, known.person.epsilon) == (0.333333333333, 1.0)
    assert there.post("/api/v1/blocks", json=terms).json() == answer.json()
    for changed, said in (
        ({"rows_in": 4}, "on other terms"),
        ({"rows_in": 0}, "rows_in must be an integer >= 1, got 0"),
        ({"rows_in": "1e3"}, "rows_in must be"),
        ({"rows_in": 10**400}, "must be"),
        ({"unlocking": 10**400}, "unlocking must be at most 1000000 days"),
        ({"unlocking": 0}, "greater than or equal to 1"),
        ({"name": "v", "by": ["a", "a"]}, "by must name each dimension once"),
        ({"name": "v", "by": []}, "at least 1 item"),
        ({"name": "v", "epsilon": "nan"}, "epsilon must be a finite number > 0"),
        ({"name": "v", "cap_delta": 0.1}, "cap_delta needs cap_epsilon"),
        ({"name": "v", "by": ["site"]}, "unlocking must be None unless"),
        ({"name": "v", "quota": 1}, "Extra inputs"),
        ({"name": "v["}, "name must be without"),
    ):
        refused = there.post("/api/v1/blocks", json=terms | changed)
        assert refused.status_code in (400, 409), refused.text
        assert said in refused.json()["error"]["message"], changed


def test_analysts_of_a_set_share_its_blocks_and_not_their_quotas(
    of_two: tuple[TestClient, TestClient],
) -> None:
    ada, bob = of_two
    asked = {**DAYS, "key": "A", "guarantee": COUNT}
    hold = ada.post("/api/v1/blocks/reserve", json=asked).json()
    assert len(hold["charges"]) == 5
    assert "clicks[analyst ada]" in hold["charges"]
    assert ada.post("/api/v1/blocks/reserve", json=asked).json() == hold
    assert ada.post("/api/v1/start", json={"key": "A"}).status_code == 200
    seen = bob.get("/api/v1/hold", params={"key": "A"}).json()
    assert len(seen["charges"]) == 4
    assert all("analyst" not in name for name in seen["charges"])
    # her run is hers: it charges her quota, too
    forfeited = bob.post("/api/v1/forfeit", json={"key": "A"})
    assert (forfeited.status_code, forfeited.json()["error"]["type"]) == (403, "NotAllowed")
    bob.post("/api/v1/blocks/reserve", json={**asked, "key": "B"})
    for there, own in ((ada, "ada"), (bob, "bob")):
        names = [one["name"] for one in there.get("/api/v1/budgets").json()["budgets"]]
        assert len(names) == 6
        assert names[0] == "clicks"
        assert [name for name in names if "analyst" in name] == [f"clicks[analyst {own}]"]
        pages = {"name": "clicks", "limit": 2}
        listed: list[str] = []
        while True:
            page = there.get("/api/v1/blocks", params=pages).json()
            listed += [one["name"] for one in page["budgets"]]
            if page["next"] is None:
                break
            pages["after"] = page["next"]
        assert listed == names[1:]
        about = {event["budget"] for event in there.get("/api/v1/events").json()["events"]}
        assert about == set(names)
        keys = [hold["key"] for hold in there.get("/api/v1/holds").json()["holds"]]
        assert keys == ["A", "B"]
        of_set = there.get("/api/v1/holds", params={"budget": "clicks"}).json()["holds"]
        assert [hold["key"] for hold in of_set] == keys
        left = there.post("/api/v1/blocks/left", json=DAYS).json()
        assert (left["blocks"], left["left"]["amount"]) == (4, 0.4)
        assert there.get("/budget", params={"name": names[1]}).status_code == 200
        assert names[1] in there.get("/budget", params={"name": "clicks"}).text
    assert bob.get("/api/v1/me").json()["budgets"] == ["clicks", "clicks[analyst bob]"]


def test_whoever_does_not_see_a_set_charges_none_of_its_blocks(
    of_two: tuple[TestClient, TestClient], client: Client, token: Token
) -> None:
    of_two[0].post("/api/v1/blocks/reserve", json={**DAYS, "key": "A", "guarantee": COUNT})
    other = client(token("analyst", "eve", name="ada"))  # of the same name, too
    for path, more in (
        ("left", {}),
        ("what-if", {"guarantee": COUNT}),
        ("reserve", {"guarantee": COUNT, "key": "C"}),
    ):
        answer = other.post(f"/api/v1/blocks/{path}", json={**DAYS, **more})
        assert answer.status_code == 404, answer.text
        assert "budget must be the name of a budget in this ledger" in answer.text
    assert other.get("/api/v1/blocks", params={"name": "clicks"}).status_code == 404
    for name in ("clicks[day=2026-01-01, site=a]", "clicks[analyst ada]"):
        assert other.get("/api/v1/budget", params={"name": name}).status_code == 404
    assert other.get("/api/v1/hold", params={"key": "A"}).status_code == 404
    own = of_two[1].post(
        "/api/v1/blocks/reserve",
        json={**DAYS, "key": "C", "guarantee": COUNT, "also": ["eve"]},
    )
    assert own.status_code == 404


def test_hostile_ranges_are_refused_in_words(of_two: tuple[TestClient, TestClient]) -> None:
    ada, _ = of_two
    for where, said in (
        ({}, "where must name a value, several or a range for each of day, site"),
        ({"day": "2026"}, "for each of day, site"),
        ({"day": "2026", "site": "a", "user": 1}, "for each of day, site"),
        ({"day": {"2026": 1}, "site": "a"}, "day must be a day such as 2026-01-31"),
        ({"day": None, "site": "a"}, "day must be"),
        ({"day": 2026.5, "site": "a"}, "day must be"),
        ({"day": [["2026"]], "site": "a"}, "day must be"),
        ({"day": "2026", "site": 1.5}, "site must be a text, an integer"),
        ({"day": "2026", "site": True}, "site must be"),
        ({"day": "2026", "site": []}, "site must name at least one value"),
        ({"day": "2026", "site": "a=b"}, "site must be without"),
        ({"day": "0001..9999", "site": "a"}, "day must name at most 10000 values"),
        ({"day": ["0001..0020"] * 5000, "site": "a"}, "day must name at most 10000 values"),
        ({"day": "2000..2009", "site": "1..3"}, "where must have at most 10000 blocks, got 10959"),
        (
            {"day": "2026", "site": "x" * 300},
            "site must be a text of 1 to 200 printable characters",
        ),
        ({"day": "2026", "site": "\ud800"}, "site"),
    ):
        answer = ada.post(
            "/api/v1/blocks/left",
            content=json.dumps({"set": "clicks", "where": where}),
            headers={"content-type": "application/json"},
        )
        assert answer.status_code == 400, answer.text
        assert said in answer.json()["error"]["message"], where
    assert ada.post("/api/v1/blocks/left", json={"set": "clicks", "where": 3}).status_code == 400
    assert ada.post("/api/v1/blocks/left", json={**DAYS, "more": 3}).status_code == 400


def test_a_set_takes_no_more_open_reservations_than_the_server_allows(
    ledger: tb.Ledger, client: Client, token: Token
) -> None:
    ledger.blocks("clicks", by=("day", "site"), epsilon=1)
    there = client(token("analyst", "clicks"), most_open=1)
    asked = {**DAYS, "guarantee": COUNT}
    assert there.post("/api/v1/blocks/reserve", json={**asked, "key": "A"}).status_code == 200
    elsewhere = {**asked, "where": {"day": "2027-01-01", "site": "a"}, "key": "B"}
    for one in ({**asked, "key": "B"}, elsewhere):
        refused = there.post("/api/v1/blocks/reserve", json=one)
        assert refused.status_code == 409
        assert "1 open reservations, and this server takes no more" in refused.text
    assert there.post("/api/v1/blocks/reserve", json={**asked, "key": "A"}).status_code == 200


def test_anybody_here_may_ask_what_a_run_on_blocks_would_get(
    of_two: tuple[TestClient, TestClient], client: Client
) -> None:
    answer = client().post("/api/v1/blocks/what-if", json={**DAYS, "guarantee": COUNT}).json()
    assert (answer["fits"], answer["left"]["amount"], answer["message"]) == (True, 1.0, None)
    dear = tb.OutputDP({"yes": 1.5}).to_dict()
    answer = client().post("/api/v1/blocks/what-if", json={**DAYS, "guarantee": dear}).json()
    assert not answer["fits"]
    assert "4 of 5 budgets have too little left" in answer["message"]
