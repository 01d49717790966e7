"""The explorer in a browser: what it draws and says is what the library says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Route, expect
from tests.web.browser import DARK, DESK, PHONE, Looks, Watched
from tests.web.conftest import servers
from tests.web.e2e.conftest import Open

import tightbudget as tb
from tightbudget.mechanisms.curve import DELTAS

pytestmark = pytest.mark.slow  # a browser, which is installed where it is missing

SLOW = 60_000  # milliseconds, for a machine that does a lot else


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serves one ledger to all tests of this module, none of which changes it."""
    url = f"sqlite:///{tmp_path_factory.mktemp('explorer')}/budget.db"
    tb.Ledger(url).close()
    with servers() as serve:
        yield serve(url).url


def opened(seen: Watched, query: str = "") -> Page:
    """The page, when both of its parts are answered."""
    seen.page.goto(f"/explorer{query}")
    expect(seen.page.locator("#plot canvas")).to_be_visible(timeout=SLOW)
    expect(seen.page.locator("#panel-answer .downloads")).to_be_attached(timeout=SLOW)
    return seen.page


def upper(page: Page) -> float:
    return float(page.locator("#upper").get_attribute("value") or "")


def answers(page: Page, bounds: tb.Bounds) -> None:
    """Expects the page to show these bounds, to the last bit."""
    expect(page.locator("#upper")).to_have_attribute("value", repr(bounds.upper), timeout=SLOW)
    expect(page.locator("#lower")).to_have_attribute("value", repr(bounds.lower), timeout=SLOW)


def test_a_curve_is_explored(look: Open) -> None:
    with look(DESK) as seen:
        page = opened(seen)
        answers(page, (tb.Gaussian(1.0).subsampled(0.01) * 1000).epsilon(1e-5))
        # as one types, without a button
        page.get_by_label("Runs").fill("2000")
        page.get_by_label("Sigma").fill("1.5")
        run = tb.Gaussian(1.5).subsampled(0.01) * 2000
        answers(page, run.epsilon(1e-5))
        # the whole curve, and the question in the address
        page.get_by_text("The curve as a table").click()
        rows = page.locator("#points-table tbody tr")
        curve = run.curve(deltas=DELTAS)
        assert rows.count() == len(curve)
        shown = rows.evaluate_all(
            "rows => rows.map(r => [...r.querySelectorAll('data')].map(d => +d.value))"
        )
        assert shown == [[d, *curve_ends] for d, *curve_ends in zip(
            curve.x.tolist(), curve.lower.tolist(), curve.upper.tolist(), strict=True)]  # fmt: skip
        asked = parse_qs(urlsplit(page.url).query)
        assert (asked["0.times"], asked["0.sigma"]) == (["2000"], ["1.5"])
        page.reload()
        answers(page, run.epsilon(1e-5))
        # the other way round
        page.get_by_label("Find").select_option("epsilon")
        page.get_by_label("ε (nats)").fill("2")
        answers(page, run.delta(2.0))


def test_a_curve_is_read_and_a_forgotten_rate_is_asked_for(look: Open) -> None:
    with look(DESK) as seen:
        page = opened(seen)
        expect(page.locator("#upper")).to_have_text("1.8283")
        expect(page.locator("#answer")).to_contain_text("ε lies in [1.8282366665")
        readout = page.locator("#readout")
        expect(readout).to_contain_text("The ring is what was asked")
        page.locator("#plot .u-over").hover()
        expect(readout).to_have_text(re.compile(r"At δ = \S+, ε lies in \[[\d.]+, [\d.]+\]\."))
        assert "–" not in page.locator("#plot .u-legend").inner_text()
        page.mouse.move(0, 0)
        expect(readout).to_contain_text("The ring is what was asked")
        expect(page.locator("#lacks-rate")).to_have_count(0)
        page.get_by_label("Sampling rate").fill("")
        expect(page.locator("#lacks-rate")).to_contain_text("Did you forget the sampling rate?")
        assert seen.serious_findings() == []


def test_only_the_latest_question_counts(look: Open) -> None:
    with look(DESK) as seen:
        page = opened(seen)
        field = page.get_by_label("Sigma")
        for sigma in ("0.9", "0.8", "1.25", "2", "1.75"):
            field.fill(sigma)
        answers(page, (tb.Gaussian(1.75).subsampled(0.01) * 1000).epsilon(1e-5))
        page.wait_for_timeout(500)
        answers(page, (tb.Gaussian(1.75).subsampled(0.01) * 1000).epsilon(1e-5))
        assert "0.sigma=1.75" in page.url


def test_what_is_wrong_is_said_at_its_field(look: Open) -> None:
    with look(DESK) as seen:
        page = opened(seen)
        page.get_by_label("Sigma").fill("-1")
        expect(page.get_by_role("alert").first).to_have_text(
            "Sigma must be a finite number > 0, got -1"
        )
        # the answer to the question before stays
        expect(page.locator("#answer .stale")).to_contain_text("The answer to the question before")
        answers(page, (tb.Gaussian(1.0).subsampled(0.01) * 1000).epsilon(1e-5))
        expect(page.locator("#points .stale #points-table")).to_be_attached()
        expect(page.get_by_label("Sigma")).to_have_attribute("aria-invalid", "true")
        assert seen.serious_findings() == []
        page.get_by_label("Sigma").fill("")
        expect(page.get_by_role("alert").first).to_contain_text("gaussian needs sigma")
        expect(page.locator("#answer .stale-says")).to_have_count(1)
        page.get_by_label("Sigma").fill("1")
        expect(page.locator("#problem")).to_have_count(0)
        expect(page.locator(".stale")).to_have_count(0)
        answers(page, (tb.Gaussian(1.0).subsampled(0.01) * 1000).epsilon(1e-5))
        # the browser itself says that a page was refused
        seen.faults[:] = [fault for fault in seen.faults if "400" not in fault]


def test_several_mechanisms_and_a_plan(look: Open) -> None:
    with look(DESK) as seen:
        page = opened(seen)
        page.get_by_role("button", name="Add a mechanism").click()
        page.get_by_label("Scale").fill("20")
        sgd = tb.Gaussian(1.0).subsampled(0.01) * 1000
        answers(page, (sgd + tb.Laplace(20.0)).epsilon(1e-5))
        page.locator("[id='1.mechanism']").select_option("randomized_response")
        answers(page, (sgd + tb.RandomizedResponse(0.75)).epsilon(1e-5))
        page.get_by_role("button", name="Remove mechanism 1").click()
        answers(page, tb.compose([tb.RandomizedResponse(0.75)]).epsilon(1e-5))
        page.get_by_text("Paste a plan file").click()
        page.get_by_label("TOML or JSON").fill((tb.Laplace(7.0) * 3).to_json())
        page.get_by_label("TOML or JSON").blur()
        answers(page, (tb.Laplace(7.0) * 3).epsilon(1e-5))


def test_stops_are_moved_and_prices_change(look: Open) -> None:
    step = tb.Gaussian(5.0)
    with look(DESK) as seen:
        page = opened(
            seen, "?0.mechanism=gaussian&0.sigma=5&0.times=40&show=stopping&stop=10&stop=20&stop=40"
        )

        def prices(schedule: tb.StoppingSchedule) -> None:
            for i, epsilon in enumerate(schedule.epsilons):
                shown = page.locator(f"#epsilons-{i} data")
                expect(shown).to_have_attribute("value", repr(epsilon), timeout=SLOW)

        prices(tb.early_stopping(step, [10, 20, 40], 1e-5, [0.2, 0.2, 1]))
        expect(page.locator("#prices-plot canvas")).to_be_visible()
        # the legend has the last stop, with prices that are rounded up
        last = [page.locator(f"#{of}-2 data").inner_text() for of in ("separate", "renyi")]
        last.append(page.locator("#epsilons-2 data").inner_text())
        legend = page.locator("#prices-plot .u-legend .u-value")
        assert legend.all_inner_texts() == ["40", *last]
        slider = page.get_by_role("slider", name="Move stop 2")
        slider.focus()
        for _ in range(5):
            slider.press("ArrowRight")
        expect(page.locator("#stop-1")).to_have_value("25")
        prices(tb.early_stopping(step, [10, 25, 40], 1e-5, [0.2, 0.2, 1]))
        slider.press("End")  # no stop passes the next one
        expect(page.locator("#stop-1")).to_have_value("39")
        page.locator("#stop-1").fill("25")
        page.locator("#weight-0").fill("1")
        prices(tb.early_stopping(step, [10, 25, 40], 1e-5, [1, 0.2, 1]))
        page.get_by_role("button", name="Remove stop 2").click()
        prices(tb.early_stopping(step, [10, 40], 1e-5, [1, 1]))
        page.get_by_role("button", name="Add a stop").click()
        prices(tb.early_stopping(step, [10, 25, 40], 1e-5, [1, 0.2, 1]))


def test_noise_is_calibrated(look: Open) -> None:
    with look(DESK) as seen:
        page = opened(seen)
        page.get_by_role("tab", name="Calibrate noise").click()
        found = tb.calibrate(
            lambda sigma: tb.Gaussian(sigma).subsampled(0.01) * 1000, epsilon=1.0, delta=1e-5
        )
        shown = page.locator("#panel-answer .answer-value")
        expect(shown).to_have_attribute("value", repr(found.value), timeout=SLOW)
        page.locator("[id='goal.epsilon']").fill("2")
        found = tb.calibrate(
            lambda sigma: tb.Gaussian(sigma).subsampled(0.01) * 1000, epsilon=2.0, delta=1e-5
        )
        expect(shown).to_have_attribute("value", repr(found.value), timeout=SLOW)


def test_the_first_row_does_not_wait_for_the_others(look: Open) -> None:
    with look(DESK) as seen:
        waiting: list[Route] = []

        def hold(route: Route) -> None:
            if "part=panel" in route.request.url:
                waiting.append(route)
            else:
                route.continue_()

        seen.page.route("**/explorer?*", hold)
        seen.page.goto("/explorer?show=compare")
        rows = seen.page.locator("#panel-answer tbody tr")
        expect(rows).to_have_count(1, timeout=SLOW)
        expect(rows).to_contain_text("tightbudget")
        expect(seen.page.locator("#panel-answer")).to_contain_text("Working out the bounds of")
        assert seen.serious_findings() == []
        waiting[-1].continue_()
        expect(rows.nth(5)).to_be_visible(timeout=SLOW)
        expect(seen.page.locator("#panel-answer")).not_to_contain_text("Working out")


def test_answers_are_taken_home(look: Open) -> None:
    run = tb.Gaussian(1.0).subsampled(0.01) * 1000
    with look(DESK) as seen:
        page = opened(seen)
        content = {}
        for kind in ("PNG", "SVG", "JSON"):
            with page.expect_download() as waiting:
                page.locator("#points").get_by_role("link", name=kind).click()
            assert waiting.value.suggested_filename == f"curve.{kind.lower()}"
            content[kind] = waiting.value.path().read_bytes()
        assert content["PNG"].startswith(b"\x89PNG")
        assert b"<svg" in content["SVG"]
        found = json.loads(content["JSON"])
        assert found["epsilon"] == run.epsilon(1e-5).to_dict()
        page.get_by_text("The same in Python").first.click()
        program = page.locator("#points pre").first.inner_text()
        names: dict[str, object] = {}
        exec(program, names)
        assert names["answer"] == run.epsilon(1e-5)


@pytest.mark.parametrize("looks", [DESK, DARK, PHONE], ids=lambda looks: looks.name)
@pytest.mark.parametrize("show", ["one-more", "compare", "stopping", "calibrate"])
def test_anybody_can_read_it(look: Open, looks: Looks, show: str) -> None:
    with look(looks) as seen:
        page = opened(seen, f"?0.mechanism=gaussian&0.sigma=5&0.times=40&show={show}")
        seen.shoot(f"explorer-{show}")
        assert seen.serious_findings() == []
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) <= 0


def test_it_works_by_keyboard(look: Open) -> None:
    with look(DESK) as seen:
        page = opened(seen)
        first, tab = (page.get_by_role("tab", name=n) for n in ("One more run", "Early stopping"))
        expect(first).to_have_attribute("aria-selected", "true")
        first.focus()
        first.press("ArrowLeft")  # round to the last one
        expect(page.get_by_role("tab", name="Calibrate noise")).to_be_focused()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(tab).to_be_focused()
        expect(tab).to_have_attribute("aria-selected", "false")  # it is opened by Enter alone
        assert page.locator("[role=tab][tabindex='0']").count() == 1
        tab.press("Enter")
        expect(page.locator("#epsilons-0 data")).to_be_visible(timeout=SLOW)
        expect(tab).to_be_focused()
        expect(tab).to_have_attribute("aria-selected", "true")
        assert "part" not in parse_qs(urlsplit(page.url).query)
        expect(page.get_by_role("tabpanel", name="Early stopping")).to_be_visible()
        field = page.get_by_label("Runs")
        field.fill("500")
        page.wait_for_url(re.compile(r"times=500"))
        field.press("Enter")
        answers(page, (tb.Gaussian(1.0).subsampled(0.01) * 500).epsilon(1e-5))
        page.go_back()
        expect(page.get_by_label("Runs")).not_to_have_value("500")


def test_it_works_without_scripts(look: Open) -> None:
    run = tb.Gaussian(1.0).subsampled(0.01) * 1000
    with look(DESK, java_script_enabled=False) as seen:
        page = seen.page
        page.goto("/explorer", wait_until="networkidle")
        assert upper(page) == run.epsilon(1e-5).upper
        assert page.locator("img.picture").evaluate("picture => picture.naturalWidth") > 100
        page.get_by_label("Sigma").fill("2")
        page.get_by_role("button", name="Work it out").last.click()
        run = tb.Gaussian(2.0).subsampled(0.01) * 1000
        assert upper(page) == run.epsilon(1e-5).upper
        page.get_by_role("tab", name="Early stopping").click()
        assert page.locator("#epsilons-3 data").count() == 1
        page.wait_for_load_state("networkidle")
        seen.shoot("explorer-without-scripts")


def test_the_page_weighs_less_than_a_megabyte(look: Open) -> None:
    with look(DESK) as seen:
        sizes = []
        seen.page.on("requestfinished", lambda request: sizes.append(request.sizes()))
        opened(seen)
        assert 50_000 < sum(size["responseBodySize"] for size in sizes) < 1_000_000
