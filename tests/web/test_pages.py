"""Pages as the server writes them: safe numbers, nothing of others, nothing unescaped."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from fractions import Fraction
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.guards.mutants import Without, each, lose_a_truth
from tests.web.conftest import SEARCH, Client
from tests.web.questions import csrf_of

import tightbudget as tb
from tightbudget.promises.kinds import KINDS
from tightbudget.promises.stored_words import EventKind
from tightbudget.web.pages import template_filters
from tightbudget.web.pages.fields import fields, offered
from tightbudget.web.pages.share import share_of
from tightbudget.web.pages.template_filters import (
    KINDS_OF_EVENTS,
    cell,
    down,
    numbers,
    remark,
    up,
    when,
)

Token = Callable[..., str]


def text_of(page: str) -> str:
    """Returns the text of a page without its tags."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", page)))


def tags(page: str) -> list[tuple[str, dict[str, str]]]:
    """The tags of a page, with their attributes, as a browser would read them."""
    found = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, {name: value or "" for name, value in attrs}))

    Reader().feed(page)
    return found


# -------------------------------------------------------------------------------- words

amounts = st.floats(min_value=0, max_value=1e15, allow_subnormal=False)


@given(amounts)
def test_what_is_shown_is_on_the_safe_side_and_near(amount: float) -> None:
    low, exact, high = Fraction(down(amount)), Fraction(repr(amount)), Fraction(up(amount))
    assert low <= exact <= high
    assert high - low <= exact / 10**5
    for shown in (up(amount), down(amount)):
        assert len(shown) <= 16


@pytest.mark.parametrize(
    ("amount", "below", "above"),
    [
        (0.0, "0", "0"),
        (0.3, "0.3", "0.3"),
        (0.333333333334, "0.333333", "0.333334"),
        (1e-06, "1e-6", "1e-6"),
        (1.23456789e-7, "1.23456e-7", "1.23457e-7"),
        (120000.0, "120000", "120000"),
    ],
)
def test_numbers_in_words(amount: float, below: str, above: str) -> None:
    assert (down(amount), up(amount)) == (below, above)


def test_times_and_cells_in_words() -> None:
    assert when("2026-11-21T09:00:01.123456+00:00") == "2026-11-21 09:00:01"
    assert when("noon") == "noon"
    assert (cell("yes"), cell(("a", 1)), cell("\x00")) == ("yes", "('a', 1)", "'\\x00'")


def test_every_kind_of_event_has_words() -> None:
    assert set(KINDS_OF_EVENTS) == {kind.value for kind in EventKind}


def test_every_kind_of_budget_has_words() -> None:
    assert set(offered()) == set(KINDS) - {"plan", "blocks", "block"}
    assert not [kind for kind in KINDS.values() if not kind.words or "_" in kind.words]


# --------------------------------------------------------------------------------- bars

parts = st.integers(0, 10**13).map(lambda units: units / 10**12)


def a_statement(
    cap: float, spent: float, held: float, saved: float, inside: float = 0.0
) -> dict[str, Any]:
    given = {"cap": cap, "spent": spent, "held": held, "saved": saved, "spent_in_parts": inside}
    return {part: {"amount": x, "delta": 0.0, "unit": "epsilon"} for part, x in given.items()}


def bars_are_true(cap: float, spent: float, held: float, saved: float, inside: float = 0.0) -> None:
    share = share_of(a_statement(cap, spent, held, saved, inside))
    assert 0 <= share.inside <= share.held + 1e-2
    assert 0 <= share.spent + share.held <= share.cap + 1e-2
    assert share.spent + share.held + share.saved <= 100 + 1e-2
    if not cap:
        return
    assert share.cap == pytest.approx(100) or share.spent + share.held + share.saved > 99
    for width, amount in ((share.spent, spent), (share.held, held), (share.inside, inside)):
        assert width / share.cap == pytest.approx(amount / cap, abs=1e-4)
    if share.is_cut:
        assert share.cap == pytest.approx(100 / 1.5, abs=1e-2)
    else:
        assert share.saved / share.cap == pytest.approx(saved / cap, abs=1e-4)
    assert bool(share.worst) is bool(saved)
    assert ("above the cap" in share.worst) is (saved > 0 and spent + held + saved > cap)


@given(parts, st.integers(0, 100), st.integers(0, 100), parts)
def test_bars_have_the_proportions_of_the_numbers(
    cap: float, spent: int, held: int, saved: float
) -> None:
    spent, held = sorted((spent, held))[0], abs(spent - held)
    bars_are_true(cap, cap * spent / 100, cap * held / 100, saved, cap * held / 300)


def _true() -> bool:
    try:
        bars_are_true(1.0, 0.25, 0.25, 9.0)
        bars_are_true(1.0, 0.25, 0.25, 0.7)
        bars_are_true(0.0, 0.0, 0.0, 0.0)
    except (AssertionError, ArithmeticError):
        return False
    return True


@each(
    [
        Without("cut is said", {"cut-is-said": (
                "return Share(*widths, is_cut=False, "
                "worst=_in_words(statement, worst - cap))"
            )}, _true),
        Without("cut to the width", {"cut-to-width": "shown = saved"}, _true),
        Without("nothing of nothing", {"share-of-nothing": "percent = 100 / whole"}, _true),
    ]
)  # fmt: skip
def test_a_bar_without_its_guard_is_wrong(
    mutation: Without, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_a_truth(monkeypatch, mutation)


# ------------------------------------------------------------------------------- forms


def test_a_form_has_the_numbers_of_its_kind() -> None:
    assert [f.name for f in fields("output_dp")] == ["epsilon", "delta"]
    assert [f.name for f in fields("renyi")] == ["epsilon", "order"]
    assert {f.name: f.kinds for f in fields()}["delta"] == "output_dp advanced"
    for kind in offered():
        assert fields(kind)


GIVEN = {
    "output_dp": {"epsilon": "1/3", "delta": "1e-9"},
    "zcdp": {"rho": "0.5"},
    "renyi": {"epsilon": "1", "order": "8"},
    "gaussian_dp": {"mu": "1"},
    "advanced": {"epsilon": "1", "delta": "1e-6", "slack": "1e-7"},
}


@pytest.mark.parametrize("kind", offered())
def test_a_budget_of_each_kind_is_opened(
    kind: str, client: Client, token: Token, ledger: tb.Ledger
) -> None:
    ask = client(token("administrator"))
    form = {"name": "new", "parent": "", "kind": kind, **GIVEN[kind]}
    answer = ask.post(
        "/budgets/open", data={**form, "csrf": csrf_of(ask.get("/"))}, follow_redirects=False
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/budget?name=new")
    assert ledger.budget("new").kind == kind


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("path", "form", "status", "message"),
    [
        ("/budgets/open", {"name": "", "kind": "zcdp", "rho": "1"}, 400, "name must be a text"),
        ("/budgets/open", {"name": "x", "kind": "zcdp", "rho": "much"}, 400, "rho must be"),
        ("/budgets/open", {"name": "x", "kind": "zcdp"}, 400, "of kind zcdp needs rho"),
        ("/budgets/open", {"name": "x", "kind": "best"}, 400, "kind must be"),
        ("/budgets/open",
         {"name": "x", "kind": "output_dp", "parent": "bob", "epsilon": "2", "delta": "0"},
         409, "requested epsilon 2.0, delta 0.0 of 'bob' for 'x'"),
        ("/budget/close", {"name": "eve"}, 400, "tick the box"),
        ("/budget/close", {"name": "ada", "sure": "yes"}, 409, "'ada' is still held by"),
        ("/budget/raise-cap", {"name": "bob", "epsilon": "2"}, 400, "reason must be"),
        ("/budget/raise-cap", {"name": "bob", "epsilon": "9", "reason": "x"}, 409, "requested ep"),
        ("/budget/expire", {"name": "ada", "key": "A1", "reason": "x"}, 409, "'A1' is started"),
        ("/budget/expire", {"name": "ada", "key": "A0", "reason": "x"}, 404, "no reservation 'A0'"),
        ("/budget/close", {"name": "zoe", "sure": "yes"}, 404, "the name of a budget"),
    ],
)  # fmt: skip
def test_what_is_refused_says_why_on_the_page(
    path: str, form: dict[str, str], status: int, message: str,
    client: Client, token: Token, ledger: tb.Ledger,
) -> None:  # fmt: skip
    ledger.budget("ada").reserve("A1", SEARCH).start()
    ask, head = client(token("administrator")), ledger.head()
    answer = ask.post(path, data={**form, "csrf": csrf_of(ask.get("/"))}, follow_redirects=False)
    assert answer.status_code == status
    assert message in text_of(answer.text)
    assert 'role="alert"' in answer.text
    assert ledger.head() == head


def test_who_has_signed_in_is_greeted_and_can_leave(client: Client, token: Token) -> None:
    ask = client(host="0.0.0.0")
    assert ask.get("/").status_code == 401
    form = {"csrf": csrf_of(ask.get("/sign-in")), "token": "tb_0_wrong"}
    wrong = ask.post("/sign-in", data=form)
    assert wrong.status_code == 401
    assert "unknown, expired or revoked" in text_of(wrong.text)
    assert "tb_0_wrong" not in wrong.text
    page = ask.post("/sign-in", data={**form, "token": token("viewer", name="vera")})
    assert page.status_code == 200
    assert "vera viewer" in text_of(page.text)
    ask.post("/sign-out", data={"csrf": csrf_of(page)})
    assert ask.get("/").status_code == 401


# ------------------------------------------------------------------------- who sees what


def test_pages_show_an_analyst_nothing_of_others(
    client: Client, token: Token, ledger: tb.Ledger
) -> None:
    ledger.budget("bob").reserve("bobs-secret", SEARCH)
    ledger.reserve("shared", tb.OutputDP.from_dp(0.01), ["bob", "eve"])
    with pytest.raises(tb.BudgetExceeded):
        ledger.budget("bob").reserve("bobs-refused", tb.OutputDP.from_dp(0.9))
    ask = client(token("analyst", "ada"), host="0.0.0.0")
    for address in ("/", "/budget?name=ada", "/budget?name=eve", "/budget?name=eve&search=b"):
        page = ask.get(address)
        assert page.status_code == 200
        assert "shared" in page.text or address == "/budget?name=ada"
        text = page.text.replace(csrf_of(page), "")  # random letters may spell a name
        for others in ("bob", "census"):
            assert others not in text, address
    for address in ("/budget?name=bob", "/budget?name=census", "/budget?name=nobody"):
        page = ask.get(address)
        assert page.status_code == 404
        assert "be the name of a budget in this ledger" in text_of(page.text)


@pytest.mark.parametrize("role", ["viewer", "analyst"])
def test_only_an_administrator_is_offered_what_only_one_may_do(
    role: str, client: Client, token: Token, ledger: tb.Ledger
) -> None:
    ledger.budget("ada").reserve("A1", SEARCH)
    offers = ("/budgets/open", "/budget/raise-cap", "/budget/close", "/budget/expire")
    ask = client(token(role, *(["ada"] if role == "analyst" else [])))
    pages = ask.get("/").text + ask.get("/budget?name=ada").text
    assert not any(offer in pages for offer in offers)
    ask = client(token("administrator"))
    pages = ask.get("/").text + ask.get("/budget?name=ada").text
    assert all(offer in pages for offer in offers)


def test_names_are_text_wherever_they_come_from(
    client: Client, token: Token, ledger: tb.Ledger
) -> None:
    evil = "</script><img src=x onerror=alert(1)>\"'&"
    owner = evil.replace("=", ":")  # a name that a token may have
    ledger.open_budget(evil, epsilon=1, delta=0)
    hold = ledger.budget(evil).reserve(evil, tb.OutputDP({evil: 0.1}))
    with pytest.raises(tb.BudgetExceeded):
        ledger.budget(evil).reserve(f"{evil}2", tb.OutputDP.from_dp(2))
    hold.start()
    hold.settle(evil)
    ledger.budget(evil).reserve(f"{evil}3", tb.OutputDP.from_dp(0.1))
    ask = client(token("administrator", name=owner))
    asked = {"name": evil, "search": evil, "kind": evil, "key": evil}
    for page in (
        ask.get("/"),
        ask.get("/budget", params={"name": evil}),
        ask.get("/budget", params=asked),
        ask.get("/budget", params={"name": f"{evil}?"}),
        ask.post("/budgets/open", data={"name": evil, "kind": evil, "csrf": csrf_of(ask.get("/"))}),
    ):
        assert evil in html.unescape(page.text) or owner in html.unescape(page.text)
        for tag, attributes in tags(page.text):
            assert tag != "img"
            assert not [name for name in attributes if name.startswith("on") or name == "style"]
            assert tag != "script" or attributes["src"].startswith("/static/")


def test_the_twin_of_a_page_is_linked_and_answers(client: Client, ledger: tb.Ledger) -> None:
    ask = client()
    for address in ("/", "/budget?name=ada"):
        twin = re.search(
            r'rel="alternate" type="application/json" href="([^"]+)"', ask.get(address).text
        )
        assert twin is not None
        assert ask.get(html.unescape(twin[1])).headers["content-type"] == "application/json"


def test_a_verification_is_followed_and_what_it_finds_is_said(
    client: Client, token: Token, ledger_url: str, ledger: tb.Ledger
) -> None:
    ask = client(token("viewer"))

    def verified() -> str:
        form = {"name": "ada", "csrf": csrf_of(ask.get("/"))}
        page = ask.post("/budget/verify", data=form)
        while "Verifying" in page.text:
            page = ask.get(str(page.url))
        return text_of(page.text)

    assert f"verified {ledger.head().sequence} events, 4 budgets and 4 reservations" in verified()
    with ledger._store._engine.begin() as connection:  # somebody at the database
        for trigger in ("budgets_spend", "budgets_remain"):
            connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
    assert "not as it was the ledger has lost the trigger" in verified()


def test_a_verification_that_is_forgotten_leaves_the_page(client: Client) -> None:
    page = client().get("/budget?name=ada&job=12")
    assert page.status_code == 200
    assert "Verifying plays the whole history again" in text_of(page.text)


def test_the_course_is_answered_as_the_library_has_it(client: Client, ledger: tb.Ledger) -> None:
    hold = ledger.budget("ada").reserve("A1", SEARCH)
    hold.start()
    hold.settle("not found")
    found = client().get("/api/v1/course", params={"budget": "ada", "last": 3}).json()["course"]
    for moment, (event, then) in zip(found, ledger.budget("ada").balance_history(3), strict=True):
        assert moment["event"]["hash"] == event.hash
        assert moment["statement"]["spent"]["amount"] == then.spent.amount
        assert moment["statement"]["saved"]["amount"] == then.saved.amount
    assert template_filters.down(found[-1]["statement"]["saved"]["amount"]) == "0.2"


def test_a_reservation_is_shown_with_the_prices_of_its_cells(
    client: Client, ledger: tb.Ledger
) -> None:
    hold = ledger.reserve("S1", SEARCH, ["bob"])
    asked = {"name": "bob", "key": "S1"}
    page = text_of(client().get("/budget", params=asked).text)
    assert "Reservation S1 reserved ; holds 0.3 ε, δ 1e-9 of bob" in page
    hold.start()
    hold.settle("not found")
    page = text_of(client().get("/budget", params=asked).text)
    assert "Reservation S1 settled with cell not found ; has cost 0.1 ε, δ 1e-9 of bob" in page
    assert "Cell Price found 0.3 not found came out 0.1 " in page
    many = tb.OutputDP({f"c{i:02}": 0.001 * i for i in range(30)})
    ledger.reserve("S2", many, ["bob"])
    page = text_of(client().get("/budget", params={"name": "bob", "key": "S2"}).text)
    assert "the costliest 20 of 30 cells" in page
    assert "c29 0.029" in page
    assert "c09" not in page
    assert "Reservation nobody" not in client().get("/budget?name=bob&key=nobody").text


def test_all_events_are_one_document(client: Client, ledger: tb.Ledger) -> None:
    found = client().get("/api/v1/events.json").json()["events"]
    assert [event["hash"] for event in found] == [event.hash for event in ledger.events()]
    assert client().get("/api/v1/events.json?search=nothing").json() == {"events": []}


@pytest.mark.parametrize(
    ("details", "says"),
    [
        ({"by": "ada"}, "by ada"),
        ({"by": "ada", "token_sha256": "5f"}, "by ada"),
        ({"by": "grace", "reason": "gone"}, "grace: gone"),
        ({"reason": "gone"}, "gone"),
        ({"id": "0a", "name": "vera", "role": "viewer", "by": "grace"}, "viewer vera; by grace"),
        ({"id": "0a", "revoked": "2026", "by": "grace"}, "id 0a; by grace"),
        ({}, ""),
    ],
)
def test_a_line_of_the_timeline_says_who_did_it(details: dict[str, Any], says: str) -> None:
    assert remark({"details": details}) == says


def test_remarks_of_a_run_are_said_once() -> None:
    by_ada, gone = {"details": {"by": "ada"}}, {"details": {"by": "ada", "reason": "gone"}}
    assert remark(by_ada, by_ada, gone) == "by ada; ada: gone"


@pytest.mark.parametrize(
    ("sequences", "says"), [([7], "7"), ([9, 8, 7], "7–9"), ([12, 8, 7], "7, 8, 12")]
)
def test_numbers_of_events(sequences: list[int], says: str) -> None:
    assert numbers([{"sequence": sequence} for sequence in sequences]) == says


def rows_of_the_timeline(page: str) -> list[str]:
    """The rows of the timeline, each as it is read."""
    table = page.partition('id="timeline"')[2]
    return [
        text_of(row).strip() for row in re.findall(r'<tr role="row" id=.*?</tr>', table, re.DOTALL)
    ]


def test_a_run_is_one_row_of_the_timeline(client: Client, ledger: tb.Ledger) -> None:
    bob = ledger.budget("bob")
    for number in (1, 2):
        hold = bob.reserve(f"R{number}", SEARCH)
        hold.start()
        hold.settle("not found")
    one, other = bob.reserve("I1", SEARCH), bob.reserve("I2", tb.OutputDP.from_dp(0.01))
    one.void()
    other.void()
    found = rows_of_the_timeline(client().get("/budget?name=bob").text)
    runs = [row for row in found if " R1 " in row or " R2 " in row]
    assert len(runs) == 2
    for row in runs:
        assert "settled reserved, started before" in row
        assert "0.1 δ 1e-9 held 0.3" in row
    # runs that are mixed with each other stay event by event
    assert len([row for row in found if " I1 " in row]) == 2
    # who follows a key sees each step
    steps = rows_of_the_timeline(client().get("/budget?name=bob&key=R1").text)
    assert [row.split()[3] for row in steps] == ["settled", "started", "reserved"]
    only = rows_of_the_timeline(client().get("/budget?name=bob&kind=settled").text)
    assert [("before" in row, "settled" in row) for row in only] == [(False, True)] * 2


def test_a_parent_shows_what_its_parts_have_spent(client: Client, ledger: tb.Ledger) -> None:
    assert "spent by parts" not in client().get("/budget?name=ada").text
    hold = ledger.budget("eve").reserve("E1", tb.OutputDP.from_dp(0.125))
    hold.start()
    hold.forfeit(by="eve", reason="lost")
    for address in ("/", "/budget?name=ada", "/budget?name=census"):
        assert "of it spent by parts 0.125" in text_of(client().get(address).text)
    found = client().get("/api/v1/budgets").json()["budgets"]
    assert {b["name"]: b["spent_in_parts"]["amount"] for b in found} == {
        "census": 0.125, "ada": 0.125, "bob": 0.0, "eve": 0.0,
    }  # fmt: skip
    moments = client().get("/api/v1/course?budget=ada").json()["course"]
    assert {moment["statement"]["spent_in_parts"] for moment in moments} == {None}


def test_pages_name_kinds_in_words(client: Client, token: Token, ledger: tb.Ledger) -> None:
    ledger.open_budget("clicks", kind="zcdp", rho=0.5)
    ask = client(token("administrator"))
    for address in ("/", "/budget?name=clicks", "/budget?name=ada"):
        said = text_of(ask.get(address).text)
        assert "output_dp" not in said
        assert "zcdp" not in said
        assert "zero-concentrated DP" in said or "priced by output" in said
