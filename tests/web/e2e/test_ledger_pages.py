"""The ledger's pages in a real browser: what is seen, done, announced and kept out of the way."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect
from tests.web import browser as browser_module
from tests.web.browser import DARK, DESK, PHONE, Looks, launched
from tests.web.e2e.conftest import Open

import tightbudget as tb

pytestmark = pytest.mark.slow  # a browser, which is installed where it is missing

SCREENS = pytest.mark.parametrize("looks", [DESK, DARK, PHONE], ids=lambda looks: looks.name)
Token = Callable[..., str]

# of every kind of page, one
PAGES = {
    "budgets": "/",
    "budget": "/budget?name=ada",
    "filtered": "/budget?name=ada&kind=refused&search=everything",
    "reservation": "/budget?name=ada&key=search-08",
    "other-kind": "/budget?name=telemetry",
    "closed": "/budget?name=pilot",
    "sign-in": "/sign-in",
}


def sign_in(page: Page, token: str) -> None:
    page.goto("/sign-in")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


def has_settled(page: Page) -> None:
    """Waits until every animation is over that has an end."""
    page.wait_for_function(
        "document.getAnimations().every(a => a.effect.getTiming().iterations > 1)"
    )


# ------------------------------------------------------------------------ what is looked at


@SCREENS
def test_pages_look_as_they_should_to_everybody(glance: Open, looks: Looks) -> None:
    with glance(looks) as seen:
        for name, address in PAGES.items():
            seen.page.goto(address)
            has_settled(seen.page)
            seen.shoot(name)
            assert not seen.serious_findings(), name
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert seen.page.evaluate(wide) <= 0, f"{name} must be scrolled sideways"


@SCREENS
def test_what_an_administrator_sees(look: Open, looks: Looks, token: Token) -> None:
    with look(looks) as seen:
        sign_in(seen.page, token("administrator", name="grace"))
        for name, address in (("admin-budgets", "/"), ("admin-budget", "/budget?name=bob")):
            seen.page.goto(address)
            for details in seen.page.locator("details").all():
                details.locator("summary").click()
            has_settled(seen.page)
            seen.shoot(name)
            assert not seen.serious_findings(), name


def test_a_narrow_window_is_not_scrolled_sideways(glance: Open) -> None:
    narrow = Looks("narrow", {"viewport": {"width": 320, "height": 256}})
    with glance(narrow) as seen:
        for address in PAGES.values():
            seen.page.goto(address)
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert seen.page.evaluate(wide) <= 0, address


def test_paper_shows_the_numbers_and_no_buttons(glance: Open) -> None:
    with glance(DESK) as seen:
        seen.page.goto("/budget?name=ada")
        seen.page.emulate_media(media="print")
        expect(seen.page.get_by_text("0.03").first).to_be_visible()
        expect(seen.page.get_by_role("button")).to_have_count(0)
        seen.shoot("paper")


def test_bars_are_as_wide_as_their_numbers(glance: Open) -> None:
    with glance(DESK) as seen:
        seen.page.goto("/")
        telemetry = seen.page.get_by_role("article", name="telemetry")
        whole, held = (
            telemetry.locator(f".bar .bar-{part}").bounding_box() for part in ("left", "held")
        )
        assert whole is not None
        assert held is not None
        assert held["width"] / whole["width"] == pytest.approx(0.25, abs=0.005)
        assert held["x"] == pytest.approx(whole["x"], abs=1.5)


def test_who_wants_no_motion_gets_none(glance: Open) -> None:
    with glance(DESK, reduced_motion="reduce") as seen:
        seen.page.goto("/")
        seen.page.wait_for_load_state("networkidle")
        assert seen.page.evaluate("document.getAnimations().length") == 0


def test_pages_weigh_less_than_a_megabyte(glance: Open) -> None:
    with glance(DESK) as seen:
        sizes: dict[str, int] = {}
        seen.page.on("response", lambda r: sizes.update({r.url: len(r.body())}))
        for address in PAGES.values():
            sizes.clear()
            seen.page.goto(address)
            seen.page.wait_for_load_state("networkidle")
            assert 10_000 < sum(sizes.values()) < 1_000_000, sizes


# ------------------------------------------------------------------------------ what is live


def test_a_reservation_is_watched_being_held_and_settled(look: Open, ledger: tb.Ledger) -> None:
    with look(DESK) as seen, look(PHONE) as other:
        page = seen.page
        page.goto("/")
        other.page.goto("/budget?name=bob")
        bob = page.get_by_role("article", name="bob", exact=True)
        expect(bob.get_by_role("definition").nth(1)).to_have_text("0.23")
        first = page.locator("main").evaluate("main => (main.stayed = true)")
        assert first

        search = tb.OutputDP({"found": 0.12, "not found": 0.02})
        hold = ledger.budget("bob").reserve("watched", search)
        expect(bob.get_by_role("definition").nth(1)).to_have_text("0.35")
        expect(page.get_by_role("status").first).to_contain_text("reserved watched in bob")
        row = page.get_by_role("row", name="watched")
        expect(row).to_contain_text("reserved")
        seen.shoot("held")
        hold.start()
        expect(row).to_contain_text("started")
        hold.settle("not found")
        expect(row).to_have_count(0)
        expect(bob.get_by_role("definition").first).to_have_text("0.02")
        expect(bob).to_contain_text("Worst-case accounting would have charged 0.1 ε more.")
        seen.shoot("settled")

        newest = other.page.locator(".timeline tbody tr").first
        expect(newest).to_contain_text("settled")
        expect(newest).to_contain_text("not found")
        expect(other.page.locator("#course-table tbody tr").last).to_contain_text("settled")
        # it was never loaded again
        assert page.locator("main").evaluate("main => main.stayed")


def test_what_one_is_at_stays_as_it_is(look: Open, ledger: tb.Ledger, token: Token) -> None:
    with look(DESK) as seen:
        page = seen.page
        sign_in(page, token("administrator", name="grace"))
        page.goto("/budget?name=bob")
        page.get_by_text("Expire joint").click()
        reason = page.get_by_role("row", name="joint").get_by_label("Why it will never start")
        reason.fill("half a sen")
        page.get_by_text("The plot as a table").click()
        ledger.budget("bob").reserve("meanwhile", tb.OutputDP.from_dp(0.01))
        expect(page.get_by_role("row", name="meanwhile").first).to_be_visible()
        expect(page.locator("#course-table")).to_be_visible()
        reason.press("End")
        page.keyboard.type("tence")
        expect(reason).to_have_value("half a sentence")
        page.get_by_role("row", name="joint").get_by_role("button").click()
        expect(page.locator(".timeline tbody tr").first).to_contain_text("grace: half a sentence")
    assert "joint" not in {hold.key for hold in ledger.holds()}


def test_updates_stop_while_paused_and_while_nobody_looks(look: Open, ledger: tb.Ledger) -> None:
    with look(DESK) as seen:
        page = seen.page
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto("/")
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_text("Paused", exact=True)).to_be_visible()
        expect(page.get_by_role("button", name="Pause")).to_have_attribute("aria-pressed", "true")
        page.wait_for_load_state("networkidle")
        asked.clear()
        ledger.budget("bob").reserve("unseen", tb.OutputDP.from_dp(0.01))
        page.wait_for_timeout(3500)
        assert not asked
        page.evaluate(
            "Object.defineProperty(document, 'hidden', {value: true, configurable: true})"
        )
        page.get_by_role("button", name="Pause").click()
        page.wait_for_timeout(3500)
        assert not asked
        page.evaluate(
            "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))"
        )
        expect(page.get_by_role("row", name="unseen")).to_be_visible()


def test_the_balance_is_drawn_by_event_and_by_time(look: Open, ledger: tb.Ledger) -> None:
    thirds = ledger.open_budget("thirds", epsilon=1, delta=0)
    for number in range(2):
        hold = thirds.reserve(f"third-{number}", tb.OutputDP.from_dp(0.123456_111111))
        hold.start()
        hold.forfeit(by="grace", reason="lost")
    last = next(event.sequence for event in ledger.latest(1, budget="thirds"))
    with look(DESK) as seen:
        page = seen.page
        page.goto("/budget?name=thirds")
        legend = page.locator("#plot .u-legend .u-value")
        by_event, by_time = (page.get_by_role("button", name=f"By {n}") for n in ("event", "time"))
        expect(by_event).to_have_attribute("aria-pressed", "true")
        # rounded as in the table: what is spent up, the cap down
        spent = page.locator("#course-table tbody tr").last.locator("td").nth(2).text_content()
        assert spent == "0.246913"
        assert legend.all_inner_texts()[:4] == [f"{last} forfeited", "1", spent, spent]
        by_time.click()
        expect(by_time).to_have_attribute("aria-pressed", "true")
        expect(legend.first).to_contain_text("20")  # a year
        expect(page.locator("#plot canvas")).to_be_visible()
        assert seen.serious_findings() == []


def test_a_lost_connection_is_said_and_found_again(look: Open, ledger: tb.Ledger) -> None:
    with look(DESK) as seen:
        page = seen.page
        page.goto("/")
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        page.context.set_offline(True)
        expect(page.get_by_text("No connection, trying again")).to_be_visible()
        page.context.set_offline(False)
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        assert all("ERR_INTERNET_DISCONNECTED" in fault for fault in seen.faults)
        seen.faults.clear()


# ------------------------------------------------------------------------------ what is done


def test_a_budget_is_opened_raised_and_closed(look: Open, ledger: tb.Ledger, token: Token) -> None:
    with look(DESK) as seen:
        page = seen.page
        sign_in(page, token("administrator", name="grace"))
        page.get_by_label("Kind").select_option("zcdp")
        expect(page.get_by_role("textbox", name="ρ")).to_be_visible()
        expect(page.get_by_role("textbox", name="δ", exact=True)).to_be_hidden()
        page.get_by_label("Kind").select_option("output_dp")
        page.get_by_label("Name").fill("eve & <co>")
        page.get_by_label("A part of").select_option("census 2026")
        page.get_by_role("textbox", name="ε").fill("0.1")
        page.get_by_role("textbox", name="δ", exact=True).fill("1e-9")
        page.get_by_role("button", name="Open the budget").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("eve & <co>")
        eve = ledger.budget("eve & <co>")
        assert (eve.cap.epsilon, eve.parent) == (0.1, "census 2026")

        page.get_by_role("textbox", name="ε").fill("0.2")
        page.get_by_label("Reason").fill("second wave")
        page.get_by_role("button", name="Set the new cap").click()
        expect(page.locator(".timeline tbody tr").first).to_contain_text("grace: second wave")
        assert eve.cap.epsilon == 0.2
        page.get_by_role("textbox", name="ε").fill("0.3")
        page.get_by_label("Reason").fill("third")
        page.get_by_role("textbox", name="δ", exact=True).fill("much")
        page.get_by_role("button", name="Set the new cap").click()
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("delta must be a number")
        expect(alert).to_be_focused()
        expect(page.get_by_label("Reason")).to_have_value("third")
        assert eve.cap.epsilon == 0.2
        seen.faults.clear()  # the browser notes that the answer's status was 400

        page.get_by_label("Close eve & <co> for good").check()
        page.get_by_role("button", name="Close the budget").click()
        expect(page.get_by_role("button", name="Close the budget")).to_have_count(0)
        assert eve.closed
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("link", name="Sign in")).to_be_visible()


def test_timelines_are_filtered_paged_and_exported(
    look: Open, ledger: tb.Ledger, tmp_path: Path
) -> None:
    with look(DESK, accept_downloads=True) as seen:
        page = seen.page
        page.goto("/budget?name=ada")
        numbers: list[int] = []
        while True:
            rows = page.locator(".timeline tbody tr .sequence").all_inner_texts()
            for row in rows:  # a run is one row, such as 7–9
                ends = [int(number) for number in re.findall(r"\d+", row)]
                between = list(range(ends[0], ends[-1] + 1)) if "–" in row else ends
                numbers += between[::-1]
            older = page.get_by_role("link", name="Older")
            if not older.count():
                break
            older.click()
            page.wait_for_load_state()
        assert numbers == [event.sequence for event in ledger.events("ada")][::-1]

        page.get_by_label("Search").fill("not found")
        page.get_by_label("What happened").select_option("settled")
        page.get_by_role("button", name="Filter").click()
        wanted = list(ledger.events("ada", kind="settled", search="not found"))
        expect(page.locator(".timeline tbody tr")).to_have_count(len(wanted))

        def exported(name: str) -> str:
            with page.expect_download() as download:
                page.get_by_role("link", name=name, exact=True).click()
            path = tmp_path / name
            download.value.save_as(path)
            return path.read_text(encoding="utf-8")

        table = list(csv.DictReader(exported("CSV").splitlines()))
        assert [row["hash"] for row in table] == [event.hash for event in wanted]
        content: dict[str, Any] = json.loads(exported("JSON"))
        assert [event["hash"] for event in content["events"]] == [event.hash for event in wanted]


def test_the_history_is_verified_on_demand(glance: Open, ledger: tb.Ledger) -> None:
    with glance(DESK) as seen:
        seen.page.goto("/budget?name=ada")
        seen.page.get_by_role("button", name="Verify now").click()
        verified = seen.page.locator("#chain")
        expect(verified).to_contain_text(f"verified {ledger.head().sequence} events, 6 budgets")
        seen.shoot("verified")


def test_a_verification_is_followed_while_it_runs(glance: Open) -> None:
    """The page is told of a verification that takes its time, and asks until it is over."""
    answers = iter(["<progress aria-label='Verification'></progress>", "<p>verified</p>"])
    chain = re.compile(r'(<div id="chain" data-live>).*?(</div>)', re.DOTALL)

    def slowed(route: Route) -> None:
        answer = route.fetch()
        body = chain.sub(rf"\1{next(answers, '<p>verified</p>')}\2", answer.text())
        route.fulfill(response=answer, body=body)

    with glance(DESK) as seen:
        seen.page.route("**/budget?*", slowed)
        seen.page.goto("/budget?name=ada")
        expect(seen.page.get_by_role("progressbar", name="Verification")).to_be_visible()
        expect(seen.page.locator("#chain")).to_have_text("verified")


# ------------------------------------------------------------------------------------- how


def test_everything_is_done_by_keyboard(look: Open, ledger: tb.Ledger, token: Token) -> None:
    with look(DESK) as seen:
        page = seen.page
        page.goto("/")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()

        page.goto("/sign-in")
        expect(page.get_by_label("Token")).to_be_focused()
        page.keyboard.type(token("administrator", name="grace"))
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()

        at = 'document.activeElement.getAttribute("name") || document.activeElement.innerText'
        for want, typed in (("name", "keyed"), ("epsilon", "0.5"), ("delta", "0")):
            for _ in range(60):
                if page.evaluate(at) == want:
                    break
                page.keyboard.press("Tab")
                outline = "getComputedStyle(document.activeElement).outlineStyle"
                assert page.evaluate(outline) != "none", f"focus is not seen on {page.evaluate(at)}"
            assert page.evaluate(at) == want
            page.keyboard.type(typed)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text("keyed")
    assert ledger.budget("keyed").cap.epsilon == 0.5


def test_without_scripts_everything_is_there(look: Open, ledger: tb.Ledger) -> None:
    with look(DESK, java_script_enabled=False) as seen:
        page = seen.page
        page.goto("/")
        expect(page.get_by_role("row", name="median-age")).to_be_visible()
        expect(page.get_by_role("button", name="Pause")).to_be_hidden()
        page.get_by_role("link", name="ada").first.click()
        page.get_by_role("textbox", name="Reservation").fill("search-08")
        page.get_by_role("button", name="Filter").click()
        expect(page.locator(".timeline tbody tr")).to_have_count(3)
        page.get_by_text("The plot as a table").click()
        expect(page.locator("#course-table tbody tr").last).to_be_visible()
        page.get_by_role("button", name="Verify now").click()
        expect(page.locator("#chain")).to_contain_text("everything is what the history says")


# ---------------------------------------------------------------------------- the harness


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("console.error('oh')", "error: oh"),
        ("setTimeout(() => { throw new Error('oh') })", "uncaught: oh"),
        ("document.head.append(Object.assign(document.createElement('script'), {text: '1'}))",
         "Content Security Policy"),
        ("document.body.setAttribute('style', 'color: red')", "Content Security Policy"),
        ("fetch('http://127.0.0.1:9/').catch(() => 0)", "connect-src"),
        ("location.href = 'http://127.0.0.1:9/'", "a request to http://127.0.0.1:9/"),
    ],
)  # fmt: skip
def test_what_goes_wrong_on_a_page_is_noticed(glance: Open, script: str, fault: str) -> None:
    def go_wrong() -> None:
        with glance(DESK) as seen:
            seen.page.goto("/sign-in")
            seen.page.evaluate(f"() => {{ {script} }}")
            seen.page.wait_for_timeout(300)

    with pytest.raises(AssertionError, match=re.escape(fault)):
        go_wrong()


@pytest.mark.parametrize(
    ("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)]
)
def test_without_a_browser_tests_are_skipped_but_fail_in_ci(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(browser_module, "_chromium", lambda: None)
    with pytest.raises(outcome, match="no browser: apt-get install chromium"), launched():
        pass


def test_axe_notices_what_is_wrong(glance: Open) -> None:
    with glance(DESK) as seen:
        seen.page.goto("/sign-in")
        seen.page.get_by_text("Token", exact=True).evaluate("label => label.remove()")
        assert any(finding.startswith("label") for finding in seen.serious_findings())
