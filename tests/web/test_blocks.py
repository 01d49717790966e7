"""The page of a set of blocks: a map of what is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest
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
def clicks(ledger: tb.Ledger) -> tb.Blocks:
    """A set whose blocks have 0.7 left, and one of them 0; what others see is the same."""
    clicks = ledger.blocks("clicks", by=("day", "site"), epsilon=1, quota_epsilon=5, rows_in=2)
    runs = (("2026-01-01..2026-01-02", "<b>", 0.3), ("2026-01-02", "a", 1))
    for days, site, price in runs:
        here = clicks.where(day=days, site=site)
        hold = here.reserve(f"count {site}", tb.OutputDP({"yes": price}), by="ada")
        hold.start()
        hold.settle("yes")
    return clicks


def test_blocks_have_their_places(clicks: tb.Blocks) -> None:
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


def test_a_map_shows_the_last_blocks(clicks: tb.Blocks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_MOST", 2)
    found = heat_map(clicks, EVERYONE)
    assert (found.columns, found.shown, found.is_cut) == (["2026-01-02"], 2, True)


def test_the_page_of_a_set_shows_its_blocks(
    clicks: tb.Blocks, client: Client, token: Token
) -> None:
    there = client(token("viewer"))
    page = there.get("/budget", params={"name": "clicks"})
    assert page.status_code == 200
    said = text_of(page.text)
    assert "All that is released about one person is ( 2 , 0 )-DP" in said
    assert "of 2 ε left" not in said  # nothing is charged to the set itself
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
    assert "No run has touched a block yet" in page


def test_an_administrator_closes_a_set_and_changes_no_cap(
    clicks: tb.Blocks, client: Client, token: Token
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
    clicks: tb.Blocks,
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
