"""Over HTTP: the same numbers, one shape of refusals, files, and a server that goes on."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from starlette.testclient import TestClient

import tightbudget as tb
from tightbudget.explorer import answers, questions
from tightbudget.explorer.job_queue import Job
from tightbudget.explorer.workers import Pools, Workers
from tightbudget.mechanisms.curve import DELTAS
from tightbudget.web.pages.explorer import headline
from tightbudget.web.state import ServerState

DP_SGD = [{"mechanism": "gaussian", "sigma": 1.0, "rate": 0.01, "times": 1000}]
GAUSSIAN = [{"mechanism": "gaussian", "sigma": 5.0, "times": 10}]
# noises that are not known in closed form, each of which takes its time
LONG = [{"mechanism": "additive", "distribution": "gumbel_r", "sensitivity": 0.1 + k / 1000}
        for k in range(50)]  # fmt: skip


def post(client: TestClient, route: str, body: Any) -> Any:
    return client.post(f"/api/v1/explore/{route}", json=body)


STATES: list[dict[str, Any]] = [
    {"state": "start", "moves": [{"to": "end", **GAUSSIAN[0]}]},
    {"state": "end", "moves": []},
]
ASKED: dict[str, tuple[Any, BaseModel]] = {
    "curve": (answers.curve, questions.Curve(steps=DP_SGD, delta=1e-5)),
    "one-more": (answers.one_more, questions.OneMore(steps=GAUSSIAN, epsilon=1.0)),
    "compare": (answers.compare, questions.Compare(steps=GAUSSIAN, delta=1e-5)),
    "stopping": (
        answers.stopping,
        questions.Stopping(steps=GAUSSIAN, delta=1e-5, stops=[5, 10]),
    ),
    "prices": (answers.prices, questions.Prices(workflow=STATES, delta=1e-5)),
    "calibrate": (
        answers.calibrate,
        questions.Calibrate(steps=GAUSSIAN, parameter="sigma", epsilon=1.0, delta=1e-5),
    ),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("route", ASKED)
def test_the_answer_is_the_librarys(explorer: TestClient, route: str) -> None:
    answer, question = ASKED[route]
    found = post(explorer, route, question.model_dump(exclude_none=True))
    assert found.status_code == 200
    assert found.json() == json.loads(json.dumps(answer(question)))


def test_infinity_is_a_number_of_json(explorer: TestClient) -> None:
    steps = [{"mechanism": "worst_case", "epsilon": 0.1, "delta": 0.01}]
    found = post(explorer, "curve", {"steps": steps, "delta": 1e-3})
    assert '"epsilon": {"lower": 1e999, "upper": 1e999}' in found.text


@pytest.mark.parametrize(
    ("route", "body", "message"),
    [
        ("curve", {"steps": DP_SGD}, "give exactly one of delta and epsilon"),
        ("curve", {"steps": DP_SGD, "delta": "x"}, "delta: Input should be a valid number"),
        ("curve", {"steps": DP_SGD, "delta": 2}, "delta must be in [0, 1], got 2.0"),
        ("curve", {"steps": DP_SGD, "epsilon": -1}, "epsilon must be a finite number >= 0, got"),
        ("curve", {"steps": DP_SGD, "delta": 0.1, "deltas": []}, "deltas: List should have at"),
        ("curve", {"steps": DP_SGD, "delta": 0.1, "deltas": [0.1] * 201}, "deltas: List should"),
        ("curve", {"steps": DP_SGD, "delta": 0.1, "deltas": [2]}, "deltas[0] must be in [0, 1]"),
        ("curve", {"steps": DP_SGD, "delta": 0.1, "rtol": 0}, "rtol: Input should be greater"),
        ("curve", {"steps": DP_SGD, "delta": 0.1, "more": 1}, "more: Extra inputs are not"),
        ("curve", {"steps": [{}] * 51, "delta": 0.1}, "steps: List should have at most 50"),
        ("curve", {"steps": "gaussian", "delta": 0.1}, "steps: Input should be a valid list"),
        ("curve", {"plan": "a" * 200_001, "delta": 0.1}, "plan: String should have at most"),
        ("compare", {"steps": DP_SGD, "delta": 0}, "delta must be in (0, 1), got 0.0"),
        (
            "curve",
            {"steps": [{"mechanism": "gaussian", "sigma": -1.0}], "delta": 0.1},
            "steps[0]: sigma must be a finite number > 0, got -1.0",
        ),
        ("stopping", {"steps": GAUSSIAN, "delta": 1e-5}, "stops: Field required"),
        ("stopping", {"steps": GAUSSIAN, "delta": 1e-5, "stops": [1.5]}, "stops.0: Input should"),
        ("stopping", {"steps": GAUSSIAN, "delta": 1e-5, "stops": [5, 2]}, "stops["),
        (
            "stopping",
            {"steps": GAUSSIAN, "delta": 1e-5, "stops": [5], "weights": [1, 2]},
            "weights must hold a weight for each of the 1 stops, got [1.0, 2.0]",
        ),
        ("prices", {"delta": 1e-5}, "workflow: Field required"),
        ("prices", {"workflow": [], "delta": 1e-5}, "workflow: List should have at least 1"),
        ("prices", {"workflow": [{"state": "a"}] * 201}, "workflow: List should have at most 200"),
        ("prices", {"workflow": STATES}, "delta must be given, or a price for each end, and not"),
        ("prices", {"workflow": STATES, "delta": 2}, "delta must be in (0, 1), got 2.0"),
        (
            "prices",
            {"workflow": [{"state": "a", "moves": [{"to": "b"}]}], "delta": 1e-5},
            "state 'a': moves[0]: steps[0].mechanism must be one of",
        ),
        (
            "prices",
            {"workflow": [{"state": "a", "more": [1] * 10_000}], "delta": 1e-5},
            "workflow must hold at most 10,000 values, got 10,001",
        ),
        ("calibrate", {"steps": GAUSSIAN, "epsilon": 1}, "parameter: Field required"),
        ("calibrate", {"steps": GAUSSIAN, "parameter": "sigma"}, "give exactly one target: "),
        ("calibrate", {"steps": [], "parameter": "sigma"}, "steps: List should have at least 1"),
        ("picture?format=gif", {"steps": GAUSSIAN, "delta": 0.1}, "format: Input should be"),
    ],
)  # fmt: skip
def test_refusals_name_what_is_wrong(
    explorer: TestClient, route: str, body: Any, message: str
) -> None:
    found = post(explorer, route, body)
    error = found.json()["error"]
    assert found.status_code == 400
    assert error["message"].startswith(message)
    assert error["type"] in ("ParameterError", "FileError")


def test_what_is_no_json_is_refused(explorer: TestClient) -> None:
    for body in ("", "{", '{"delta": NaN, "steps": []}', '{"delta": 1e999, "steps": []}'):
        found = explorer.post("/api/v1/explore/curve", content=body)
        assert (found.status_code, "error" in found.json()) == (400, True)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "body", [{"delta": 1e-5}, {"delta": 1e-5, "stops": [5, 10]}], ids=["curve", "stopping"]
)
@pytest.mark.parametrize(
    ("format", "media", "begins"),
    [("png", "image/png", b"\x89PNG"), ("svg", "image/svg+xml", b"<?xml")],
)
def test_pictures(explorer: TestClient, body: Any, format: str, media: str, begins: bytes) -> None:
    found = post(explorer, f"picture?format={format}", {"steps": GAUSSIAN, **body})
    assert (found.status_code, found.headers["content-type"]) == (200, media)
    assert found.content.startswith(begins)


# ------------------------------------------------------------------------------ limits


@contextmanager
def limited(client: TestClient, **limits: Any) -> Iterator[None]:
    """Other limits for a while."""
    state: ServerState = client.app.state.open  # type: ignore[attr-defined]
    pools = Pools(Workers(**limits), Workers(**limits))
    client.app.state.open = ServerState(**{**vars(state), "explorer": pools})  # type: ignore[attr-defined]
    try:
        yield
    finally:
        client.app.state.open = state  # type: ignore[attr-defined]
        pools.close()


@pytest.mark.slow
def test_a_question_that_would_run_long_is_refused(explorer: TestClient) -> None:
    with limited(explorer, seconds=0.5):
        began = time.monotonic()
        found = post(explorer, "curve", {"steps": LONG, "delta": 1e-5})
        assert time.monotonic() - began < 30
        assert found.status_code == 504
        assert found.json()["error"]["type"] == "LimitError"
        assert "more time than one may take here (0.5 s)" in found.json()["error"]["message"]
        page = explorer.get(
            "/explorer", params={"plan": json.dumps({"tightbudget": 1, "steps": LONG})}
        )
        assert page.status_code == 504
        assert "more time than one may take here (0.5 s)" in page.text


def test_a_question_that_would_take_all_memory_is_refused(explorer: TestClient) -> None:
    with limited(explorer, megabytes=1):
        found = post(explorer, "compare", {"steps": LONG, "delta": 1e-5})
        assert found.status_code == 504
        assert "more memory than one may take here (1 MB)" in found.json()["error"]["message"]


@pytest.mark.parametrize(("of", "status"), [("192.0.2.66", 200), ("127.0.0.1", 503)])
def test_the_room_of_another_address_is_given_away(
    explorer: TestClient, of: str, status: int
) -> None:
    """An address that has asked too much itself gets no room of others."""
    with limited(explorer, processes=1, waiting=1):
        pool = explorer.app.state.open.explorer.quick  # type: ignore[attr-defined]
        worked_on, waits = Job(of, lambda _: None), Job(of, lambda _: None)
        pool._queue.join(worked_on)
        pool._queue.next()
        pool._queue.join(waits)
        found = post(explorer, "curve", {"steps": GAUSSIAN, "delta": 1e-5})
        assert found.status_code == status
        assert waits.found.done() == (status == 200)
        if waits.found.done():
            with pytest.raises(tb.BusyError, match="too many questions"):
                waits.found.result()


def test_when_too_many_wait_the_next_is_told_so(explorer: TestClient) -> None:
    with limited(explorer, processes=1, waiting=0):
        pool = explorer.app.state.open.explorer.quick  # type: ignore[attr-defined]
        others = Job("somebody", lambda _: None)
        assert pool._queue.join(others) is None
        assert pool._queue.next() is others  # and is being worked on
        found = post(explorer, "curve", {"steps": GAUSSIAN, "delta": 1e-5})
        assert (found.status_code, found.json()["error"]["type"]) == (503, "BusyError")
        pool._queue.done(others)
        assert post(explorer, "curve", {"steps": GAUSSIAN, "delta": 1e-5}).status_code == 200


# ------------------------------------------------------------------------------ the page


def test_the_page_without_scripts_says_everything(explorer: TestClient) -> None:
    run = tb.Gaussian(1.0).subsampled(0.01) * 1000
    page = explorer.get("/explorer", params={"part": "all", "show": "stopping"}).text
    bounds = run.epsilon(1e-5)
    assert f'value="{bounds.lower!r}"' in page
    assert f'value="{bounds.upper!r}"' in page
    for price in tb.early_stopping(run.parts[0][0], [250, 500, 750, 1000], 1e-5).epsilons:
        assert f'<data value="{price!r}"' in page
    for low in run.curve(deltas=DELTAS).lower.tolist():
        assert f'<data value="{low!r}"' in page


def test_what_takes_long_is_asked_for_apart(explorer: TestClient) -> None:
    whole = explorer.get("/explorer", params={"show": "compare"}).text
    assert "Working it out" in whole
    assert "Kairouz" not in whole
    panel = explorer.get("/explorer", params={"show": "compare", "part": "panel"}).text
    assert "Kairouz" in panel
    assert 'id="upper"' not in panel


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"0.mechanism": "gaussian", "0.sigma": "-1"}, 400, 'data-field="0.sigma"'),
        ({"0.mechanism": "gaussian", "0.sigma": "1", "0.times": "x"}, 400, 'data-field="0.times"'),
        ({"delta": "x"}, 400, 'data-field="at"'),
        ({"plan": "<b>"}, 400, "plan: not TOML"),
        ({"0.mechanism": "<i>"}, 200, "ε"),
        ({"show": "stopping", "part": "all", "stop": "<u>"}, 200, "Stop 1: Input should be"),
        ({"show": "calibrate", "part": "all", "goal.delta": "3"}, 200, "δ must be in [0, 1]"),
        ({"part": "some"}, 400, "part: Input should be"),
    ],
)
def test_what_is_typed_wrong_is_said_beside_it(
    explorer: TestClient, fields: dict[str, str], status: int, said: str
) -> None:
    found = explorer.get("/explorer", params=fields)
    assert (found.status_code, said in found.text) == (status, True)
    for typed in ("<b>", "<i>", "<u>"):
        assert typed not in found.text


def test_buttons_change_the_address(explorer: TestClient) -> None:
    found = explorer.get("/explorer", params={"do": "add"}, follow_redirects=False)
    assert (found.status_code, found.headers["location"]) == (
        303,
        "/explorer?0.mechanism=gaussian&0.sigma=1.0&0.rate=0.01&0.times=1000&1.mechanism=laplace",
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize("of", ["curve", "panel"])
@pytest.mark.parametrize("as_", ["json", "png", "svg"])
def test_downloads(explorer: TestClient, of: str, as_: str) -> None:
    found = explorer.get("/explorer/download", params={"of": of, "as": as_, "show": "stopping"})
    name = "curve" if of == "curve" else "stopping"
    assert found.status_code == 200
    assert found.headers["content-disposition"] == f'attachment; filename="{name}.{as_}"'
    if as_ == "json":
        assert found.json()["python"].startswith("import tightbudget as tb")


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"of": "panel", "as": "png"}, 404),
        ({"of": "curve", "as": "pdf"}, 400),
        ({"of": "curve", "as": "png", "delta": "x"}, 400),
        ({"of": "panel", "as": "json", "show": "stopping", "stop": "x"}, 400),
    ],
)
def test_downloads_that_are_refused(
    explorer: TestClient, fields: dict[str, str], status: int
) -> None:
    assert explorer.get("/explorer/download", params=fields).status_code == status


def test_the_headline_has_five_digits_and_is_rounded_up(explorer: TestClient) -> None:
    bounds = (tb.Gaussian(1.0).subsampled(0.01) * 1000).epsilon(1e-5)
    page = explorer.get("/explorer").text
    assert f'id="upper" value="{bounds.upper!r}">1.8283</data>' in page
    assert f'value="{bounds.lower!r}">{str(bounds)[1:].split(",")[0]}</data>' in page
    assert "Did you forget the sampling rate" not in page


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_a_headline_is_never_below_the_bound(upper: float) -> None:
    shown = Fraction(headline(upper))
    assert Fraction(upper) <= shown <= Fraction(upper) * (1 + Fraction(1, 10**4))


def test_a_headline_of_no_promise() -> None:
    assert (headline(float("inf")), headline(0.0)) == ("∞", "0.0")


def test_a_page_asks_whether_the_rate_was_forgotten(explorer: TestClient) -> None:
    asked = {"0.mechanism": "gaussian", "0.sigma": "1", "0.times": "1000"}
    assert "Did you forget the sampling rate" in explorer.get("/explorer", params=asked).text
    for more in ({"0.rate": "0.5"}, {"given": "epsilon", "epsilon": "100"}, {"0.times": "1"}):
        page = explorer.get("/explorer", params={**asked, **more})
        assert page.status_code == 200
        assert "Did you forget the sampling rate" not in page.text


def test_tabs_are_tabs(explorer: TestClient) -> None:
    page = explorer.get("/explorer", params={"show": "calibrate"}).text
    tabs = re.findall(r'<button class="tab" role="tab"[^>]*>', page)
    assert len(tabs) == 4
    selected = [tab for tab in tabs if 'aria-selected="true"' in tab]
    assert ['id="tab-calibrate"' in tab for tab in selected] == [True]
    assert all('aria-controls="tab-panel"' in tab for tab in tabs)
    assert 'role="tabpanel" id="tab-panel" aria-labelledby="tab-calibrate"' in page
    assert page.count('role="tablist"') == 1


def test_rows_that_are_there_at_once_are_asked_for_apart(explorer: TestClient) -> None:
    asked = {"show": "compare", "part": "begun"}
    begun = explorer.get("/explorer", params=asked).text
    bounds = (tb.Gaussian(1.0).subsampled(0.01) * 1000).epsilon(1e-5)
    assert f'<data value="{bounds.upper!r}">' in begun
    assert "Working out the bounds of other theorems" in begun
    assert "Kairouz" not in begun
    assert 'id="upper"' not in begun  # the curve is not asked for again
    refused = explorer.get("/explorer", params={**asked, "delta": "3"})
    assert "δ must be in" in refused.text
    # other panels have one part
    assert "which is more by" in explorer.get("/explorer", params={"part": "begun"}).text


@pytest.mark.parametrize("at", [{"delta": 1e-5}, {"epsilon": 0.5}])
def test_a_comparison_begins_with_its_first_row(at: dict[str, float]) -> None:
    question = questions.Compare.model_validate({"steps": GAUSSIAN, **at})
    begun, whole = answers.compare_begun(question), answers.compare(question)
    assert begun.pop("more") is True
    assert begun.pop("rows") == whole["rows"][:1]
    assert begun == {name: whole[name] for name in begun}
