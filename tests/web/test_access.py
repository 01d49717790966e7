"""Tokens, sessions and forms; what every request passes, and what every answer carries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response
from starlette.testclient import TestClient
from tests.web.conftest import HERE, Client, Serve

import tightbudget as tb
from tightbudget.ledger.tokens import Tokens
from tightbudget.web import app as web_app
from tightbudget.web.access import ADMINISTER, PUBLIC, address_of, allow, sign_in, sign_out
from tightbudget.web.failures import Failures
from tightbudget.web.guards import HEADERS
from tightbudget.web.refusals import HttpRefusal
from tightbudget.web.sessions import Sessions
from tightbudget.web.settings import Settings

Token = Callable[..., str]
RESERVE = {"key": "N1", "budgets": ["ada"], "guarantee": {"epsilon": 0.01}}


def error_of(response: httpx.Response, status: int) -> dict[str, object]:
    """The refusal, which has all fields of the one shape."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(response.json()) == {"error"}
    assert set(error) == {
        *("type", "message", "requested", "left", "held", "budget", "holds", "unknown")
    }
    return dict(error)


# ------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer x", "Basic eDp5", "tb_0", "Bearer tb_000000000000_" + "0" * 64, ""],
)
def test_what_is_no_token_is_refused_also_for_reading(client: Client, header: str) -> None:
    response = client().get("/api/v1/budgets", headers={"authorization": header})
    error = error_of(response, 401)
    assert error["message"] == "this token is unknown, expired or revoked"
    assert response.headers["www-authenticate"] == "Bearer"


def test_a_token_that_is_revoked_is_over_at_once(
    client: Client, token: Token, ledger: tb.Ledger
) -> None:
    ask = client(token("administrator"))
    assert ask.get("/api/v1/me").json()["role"] == "administrator"
    (made,) = Tokens(ledger).all()
    Tokens(ledger).revoke(made.id)
    assert error_of(ask.get("/api/v1/me"), 401)["type"] == "WrongToken"


def test_a_token_that_has_expired_is_over(client: Client, ledger_url: str) -> None:
    past = datetime.now(UTC) - timedelta(hours=1)
    with tb.Ledger(ledger_url, clock=lambda: past) as ledger:
        _, text = Tokens(ledger).create("old", "viewer", lasts=timedelta(minutes=59))
    assert error_of(client(text).get("/api/v1/budgets"), 401)["type"] == "WrongToken"


def test_me_says_what_the_token_says(client: Client, token: Token) -> None:
    assert client().get("/api/v1/me").json() == {
        "role": "anonymous", "name": "", "budgets": None, "expires": None
    }  # fmt: skip
    me = client(token("analyst", "ada", name="ada's laptop")).get("/api/v1/me").json()
    assert (me["role"], me["name"], me["budgets"]) == ("analyst", "ada's laptop", ["ada", "eve"])
    left = datetime.fromisoformat(me["expires"]) - datetime.now(UTC)
    assert timedelta(minutes=55) < left < timedelta(hours=1)


# what proxies, tunnels and load balancers are known to add
AFAR = [
    *("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"),
    *("X-Client-IP", "CF-Connecting-IP", "True-Client-IP", "X-Cluster-Client-IP"),
    *("X-Original-Forwarded-For", "X-Forwarded", "Forwarded-For", "X-Forwarded-Port"),
    *("X-Forwarded-Server", "X-Forwarded-Prefix", "X-Forwarded-By", "X-Original-Host"),
    *("X-Original-URL", "X-ProxyUser-Ip", "Fastly-Client-IP", "X-Appengine-User-Ip", "CF-Ray"),
    *("X-Envoy-External-Address", "X-Remote-Addr", "Remote-Addr", "Client-IP", "X-Azure-ClientIP"),
    *("CDN-Loop", "X-Arr-Log-Id", "X-Amzn-Trace-Id", "Fly-Client-IP", "X-Source-IP", "X-IP"),
]
# what browsers and programs send themselves
OWN = {
    "accept": "*/*", "accept-encoding": "gzip", "accept-language": "en",
    "cache-control": "no-cache",
    "connection": "keep-alive", "cookie": "a=b", "dnt": "1", "if-none-match": "x", "origin": HERE,
    "pragma": "no-cache", "priority": "u=0", "purpose": "prefetch", "range": "bytes=0-",
    "referer": HERE, "sec-ch-ua": "x", "sec-ch-ua-mobile": "?0", "sec-ch-ua-platform": "Linux",
    "sec-fetch-dest": "document", "sec-fetch-mode": "navigate", "sec-fetch-site": "none",
    "sec-fetch-user": "?1", "sec-gpc": "1", "te": "trailers", "traceparent": "00-0-0-00",
    "upgrade-insecure-requests": "1", "user-agent": "x", "x-requested-with": "x",
}  # fmt: skip


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", AFAR)
def test_what_came_through_a_proxy_came_from_afar(client: Client, name: str) -> None:
    ask = client()
    for path in ("/api/v1/budgets", "/"):
        assert ask.get(path).status_code == 200
        for sent in (name, name.lower(), name.replace("-", "_")):
            assert ask.get(path, headers={sent: "192.0.2.1"}).status_code == 401
    error = error_of(ask.get("/api/v1/budgets", headers={name: "127.0.0.1"}), 401)
    assert error["message"] == "this needs a token"


def test_what_a_client_sends_itself_came_from_here(client: Client) -> None:
    assert client().get("/api/v1/budgets", headers=OWN).status_code == 200


@pytest.mark.parametrize(
    ("address", "status"),
    [("127.0.0.1", 200), ("127.8.0.1", 200), ("::1", 200), ("::ffff:127.0.0.1", 200),
     ("192.0.2.7", 401), ("10.0.0.1", 401), ("2001:db8::1", 401), ("::ffff:192.0.2.7", 401),
     ("testclient", 401), ("", 401)],
)  # fmt: skip
def test_reading_without_a_token_is_for_this_machine(
    client: Client, address: str, status: int
) -> None:
    ask = TestClient(client().app, HERE, client=(address, 1))
    assert ask.get("/api/v1/budgets").status_code == status


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "localhost:8000"])
def test_and_for_its_own_names(client: Client, host: str) -> None:
    assert client().get("/api/v1/budgets", headers={"host": host}).status_code == 200
    for other in ("budget.example.org", f"{host}.evil.example", "0.0.0.0", "127.0.0.1.nip.io"):
        assert client().get("/api/v1/budgets", headers={"host": other}).status_code == 400


# -------------------------------------------------------------------------- rate limit


def test_after_ten_wrong_tokens_only_wrong_ones_wait(client: Client, token: Token) -> None:
    ask = client()
    right = {"authorization": f"Bearer {token('viewer')}"}
    wrong = {"authorization": "Bearer tb_"}
    for _ in range(10):
        error_of(ask.get("/api/v1/me", headers=wrong), 401)
        assert ask.get("/api/v1/me").status_code == 200
    response = ask.get("/api/v1/me", headers=wrong)
    error = error_of(response, 429)
    assert "too many wrong tokens came from 127.0.0.1: wait" in str(error["message"])
    assert 0 < int(response.headers["retry-after"]) <= 61
    assert ask.get("/api/v1/me", headers=right).status_code == 200
    assert ask.get("/api/v1/me").status_code == 200  # without a token nothing is guessed
    other = TestClient(ask.app, HERE, client=("192.0.2.7", 1))
    error_of(other.get("/api/v1/me", headers=wrong), 401)


def test_addresses_that_are_made_up_have_a_limit_together(client: Client, token: Token) -> None:
    """A proxy may pass on what a client says about itself."""
    app = client().app
    right = {"authorization": f"Bearer {token('viewer')}"}
    wrong = {"authorization": "Bearer tb_"}

    def asked(i: int, headers: dict[str, str]) -> httpx.Response:
        return TestClient(app, HERE, client=(f"192.0.2.{i}", 1)).get("/api/v1/me", headers=headers)

    assert [asked(i, wrong).status_code for i in range(100)] == [401] * 100
    error = error_of(asked(200, wrong), 429)
    assert "too many wrong tokens came: wait" in str(error["message"])
    assert asked(200, right).status_code == 200
    assert asked(1, right).status_code == 200


@pytest.mark.parametrize(
    ("host", "address"),
    [("192.0.2.7", "192.0.2.7"), ("::1", "::1"), ("2001:db8::1", "2001:db8::/64"),
     ("2001:db8::ffff:1", "2001:db8::/64"), ("fe80::1%eth0", "fe80::/64"),
     ("::ffff:192.0.2.7", "192.0.2.7"), ("unix", "unix")],
)  # fmt: skip
def test_a_site_of_version_6_is_one_address(host: str, address: str) -> None:
    scope = {"type": "http", "client": (host, 1), "headers": []}
    assert address_of(Request(scope)) == address
    assert address_of(Request({"type": "http", "client": None, "headers": []})) == "nowhere"


def test_failures_are_forgotten_when_they_are_old() -> None:
    now = [0.0]
    failures = Failures(most=2, window=10.0, clock=lambda: now[0])
    failures.add("a")
    now[0] = 6.0
    failures.add("a")
    with pytest.raises(HttpRefusal, match="wait 4 seconds"):
        failures.check("a")
    failures.check("b")
    now[0] = 10.0
    failures.check("a")
    failures.add("a")
    with pytest.raises(HttpRefusal, match="wait 6 seconds"):
        failures.check("a")


def test_addresses_do_not_fill_the_memory() -> None:
    failures = Failures(most=1, most_in_all=10**6)
    for i in range(failures._REMEMBERED + 10):
        failures.add(str(i))
    assert len(failures._times) == failures._REMEMBERED
    failures.check("0")
    with pytest.raises(HttpRefusal, match="too many wrong tokens"):
        failures.check(str(failures._REMEMBERED))


# ----------------------------------------------------------------- sessions and forms


@pytest.fixture
def browser(client: Client, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """Somebody at a server with three forms: to sign in and out, and to do something."""
    router = APIRouter()

    @router.get("/form", dependencies=[allow(PUBLIC)])
    def form(request: Request) -> Response:
        return PlainTextResponse(request.state.csrf)

    @router.post("/in", dependencies=[allow(PUBLIC, form=True)])
    async def enter(request: Request) -> Response:
        response = PlainTextResponse("welcome")
        sign_in(request, response, str((await request.form())["token"]))
        return response

    @router.post("/out", dependencies=[allow(PUBLIC, form=True)])
    def leave(request: Request) -> Response:
        response = PlainTextResponse("bye")
        sign_out(request, response)
        return response

    @router.post("/do", dependencies=[allow(ADMINISTER, form=True)])
    def do() -> Response:
        return PlainTextResponse("done")

    monkeypatch.setattr(web_app, "ROUTERS", [*web_app.ROUTERS, router])
    return client()


def submit(browser: TestClient, path: str, **fields: str) -> httpx.Response:
    csrf = browser.get("/form").text
    return browser.post(path, data={"csrf": csrf, **fields})


def test_a_session_reads_and_fills_in_forms_and_ends(browser: TestClient, token: Token) -> None:
    entered = submit(browser, "/in", token=token("administrator"))
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert browser.get("/api/v1/me").json()["role"] == "administrator"
    assert submit(browser, "/do").text == "done"
    assert submit(browser, "/out").text == "bye"
    assert browser.get("/api/v1/me").json()["role"] == "anonymous"
    assert submit(browser, "/do").status_code == 401


def test_signing_out_ends_the_session_for_who_has_a_copy(browser: TestClient, token: Token) -> None:
    submit(browser, "/in", token=token("administrator"))
    cookie, form = browser.cookies["tightbudget"], browser.get("/form").text
    submit(browser, "/out")
    browser.cookies.set("tightbudget", cookie)
    assert browser.get("/api/v1/me").json()["role"] == "anonymous"
    assert browser.post("/do", data={"csrf": form}).status_code == 403
    assert submit(browser, "/do").status_code == 401


def test_each_sign_in_is_a_session_of_its_own(browser: TestClient, token: Token) -> None:
    text, cookies, forms = token("administrator"), [], []
    for _ in range(2):
        browser.cookies.clear()
        submit(browser, "/in", token=text)
        cookies.append(browser.cookies["tightbudget"])
        forms.append(browser.get("/form").text)
    assert cookies[0] != cookies[1]
    assert browser.post("/do", data={"csrf": forms[0]}).status_code == 403
    submit(browser, "/out")
    browser.cookies.set("tightbudget", cookies[0])  # the other one goes on
    assert browser.post("/do", data={"csrf": forms[0]}).text == "done"
    for page in forms:  # and no page shows what a cookie says
        assert not any(cookie in page for cookie in cookies)


def test_signing_in_again_ends_the_session_before(browser: TestClient, token: Token) -> None:
    submit(browser, "/in", token=token("administrator"))
    before = browser.cookies["tightbudget"]
    submit(browser, "/in", token=token("viewer"))
    browser.cookies.set("tightbudget", before)
    assert browser.get("/api/v1/me").json()["role"] == "anonymous"


def test_sessions_are_over_after_their_time_and_few_of_one_token() -> None:
    now = [0.0]
    sessions = Sessions(lasts=10.0, most=2, clock=lambda: now[0])
    first = sessions.begin("t")
    other = sessions.begin("u")
    now[0] = 5.0
    second = sessions.begin("t")
    found = sessions.find(first)
    assert found is not None
    assert (found.token, found.ends, first in repr(found)) == ("t", 10.0, False)
    third = sessions.begin("t")
    assert sessions.find(first) is None
    now[0] = 10.0
    assert sessions.find(other) is None
    assert [sessions.find(c) is not None for c in (second, third)] == [True, True]
    sessions.end(second)
    sessions.end(second)
    sessions.end("\ud800")
    assert sessions.find(second) is None
    now[0] = 15.0
    assert sessions.find(third) is None
    sessions.begin("u")
    assert len(sessions._open) == 1


def test_a_session_ends_with_its_token(
    browser: TestClient, token: Token, ledger: tb.Ledger
) -> None:
    submit(browser, "/in", token=token("administrator"))
    assert submit(browser, "/do").text == "done"
    Tokens(ledger).revoke(Tokens(ledger).all()[0].id)
    assert browser.get("/api/v1/me").json()["role"] == "anonymous"
    assert submit(browser, "/do").status_code == 401


def test_a_form_without_its_token_is_refused(browser: TestClient, token: Token) -> None:
    before = browser.get("/form").text
    submit(browser, "/in", token=token("administrator"))
    for sent in ("", "x", before):  # before: of a session that was none
        assert browser.post("/do", data={"csrf": sent}).status_code == 403
    assert browser.post("/do").status_code == 403
    assert submit(browser, "/do").text == "done"


def test_a_forged_cookie_is_nobody(browser: TestClient, token: Token, ledger: tb.Ledger) -> None:
    submit(browser, "/in", token=token("administrator"))
    (made,) = Tokens(ledger).all()
    for forged in (made.id, f'"{made.id}".x', "", "."):
        browser.cookies.clear()
        browser.cookies.set("tightbudget", forged)
        assert browser.get("/api/v1/me").json()["role"] == "anonymous"


def test_a_session_writes_by_forms_alone(browser: TestClient, token: Token) -> None:
    """A cookie travels by itself; a token in a header was put there by a program."""
    submit(browser, "/in", token=token("administrator"))
    error = error_of(browser.post("/api/v1/reserve", json=RESERVE), 401)
    assert error["message"] == "this needs a token in the header Authorization"
    what_if = {"budget": "ada", "guarantee": {"epsilon": 0.01}}
    assert browser.post("/api/v1/what-if", json=what_if).status_code == 200


def test_signing_in_with_a_wrong_token_counts(browser: TestClient) -> None:
    for _ in range(10):
        assert submit(browser, "/in", token="tb_wrong").status_code == 401
    assert submit(browser, "/in", token="tb_wrong").status_code == 429


def test_behind_tls_the_cookie_is_for_tls(
    browser: TestClient, client: Client, token: Token
) -> None:
    ask = client(public_url="https://budget.example.org")
    ask.base_url = httpx.URL("https://budget.example.org")
    assert "Secure" in submit(ask, "/in", token=token("viewer")).headers["set-cookie"]
    assert "Secure" not in submit(browser, "/in", token=token("viewer")).headers["set-cookie"]


# ------------------------------------------------------------------------------- guards


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_pages_of_other_sites_write_nothing(
    client: Client, token: Token, headers: dict[str, str], ledger: tb.Ledger
) -> None:
    ask = client(token("administrator"))
    error = error_of(ask.post("/api/v1/reserve", json=RESERVE, headers=headers), 403)
    assert error["message"] == "this was sent by a page of another site"
    with pytest.raises(tb.errors.SettlementError):
        ledger.hold("N1")
    own = {"origin": HERE, "sec-fetch-site": "same-origin"}
    assert ask.post("/api/v1/reserve", json=RESERVE, headers=own).status_code == 200


@pytest.mark.parametrize(
    ("settings", "good", "bad"),
    [
        ({}, ["localhost:8000", "127.0.0.1", "[::1]:8000"], ["evil.example", "", "a:b:c", "["]),
        ({"host": "::1"}, ["[::1]", "localhost"], ["budget.example.org"]),
        ({"host": "0.0.0.0"}, ["budget.example.org", "10.0.0.1"], []),
        (
            {"public_url": "https://budget.example.org"},
            ["budget.example.org", "127.0.0.1:8000"],
            ["evil.example"],
        ),
    ],
    ids=["here", "here as well", "everywhere", "behind a proxy"],
)
def test_a_server_answers_to_its_own_names(
    client: Client, settings: dict[str, str], good: list[str], bad: list[str]
) -> None:
    ask = client(**settings)
    for name in good:
        assert ask.get("/api/v1/health", headers={"host": name}).status_code == 200
    for name in bad:
        error = error_of(ask.get("/api/v1/health", headers={"host": name}), 400)
        assert error["message"] == f"this server does not answer for {name!r}"


def test_a_request_has_a_size(client: Client, token: Token) -> None:
    ask = client(token("administrator"), largest_body=1000)
    body = b'{"key": "' + b"k" * 990 + b'"}'
    error = error_of(ask.post("/api/v1/void", content=body), 413)
    assert error["message"] == "a request must have at most 1000 bytes"
    assert error_of(ask.post("/api/v1/void", content=iter([body[:500], body[500:]])), 413) == error
    assert error_of(ask.post("/api/v1/nowhere", content=body * 2), 413) == error
    error_of(ask.post("/api/v1/void", json={"key": "none"}), 404)


@pytest.mark.parametrize("path", ["/api/v1/budgets", "/api/v1/unheard-of", "/static/vendor/x"])
def test_every_answer_carries_the_headers(client: Client, path: str) -> None:
    headers = client().get(path).headers
    for name, value in HEADERS.items():
        assert headers[name] == value
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert (headers.get("cache-control") == "no-store") == path.startswith("/api/")


def test_refusals_of_guards_and_failures_carry_them_too(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ask = client()
    assert "content-security-policy" in ask.get("/", headers={"host": "evil.example"}).headers
    monkeypatch.setattr(tb.Ledger, "statements", lambda *_, **__: 1 / 0)
    response = ask.get("/api/v1/budgets?secret=1")
    error = error_of(response, 500)
    assert error["message"] == "something went wrong here; the server's log says what"
    assert "content-security-policy" in response.headers
    assert "ZeroDivisionError" in caplog.text
    assert "secret" not in caplog.text


# ---------------------------------------------------------------------------------- log


@pytest.mark.slow
def test_the_log_has_no_tokens_and_no_queries(served: Serve, ledger_url: str, token: Token) -> None:
    server, text = served(ledger_url), token("analyst", "ada")
    secret = text.rpartition("_")[2]
    headers = {"authorization": f"Bearer {text}"}
    with httpx.Client(base_url=server.url, headers=headers) as client:
        client.get("/api/v1/hold", params={"key": "patient-4711"})
        client.get("/api/v1/hold", params={"key": text})
        client.post("/api/v1/reserve", json=RESERVE)
        client.get(f"/api/v1/{text}")
        client.get("/api/v1/me", headers={"authorization": f"Bearer {text}0"})
        client.get("/api/v1/me", headers={"cookie": f"tightbudget={text}"})
        client.get("/api/v1/x%0d%0aGET /forged 200", params={"token": text})
    log = server.end()
    assert "GET /api/v1/hold 404" in log
    assert "POST /api/v1/reserve 200" in log
    assert "GET /api/v1/me 401" in log
    for hidden in (secret, "patient-4711", "token=", "\nGET /forged"):
        assert hidden not in log


def test_what_a_database_says_is_for_the_log(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for unknown, words in ((False, "nothing was changed"), (True, "ask again under the same key")):
        failure = tb.LedgerError("postgresql://ada@10.0.0.1 is away", unknown=unknown)

        def fail(_: tb.Ledger, failure: tb.LedgerError = failure) -> None:
            raise failure

        monkeypatch.setattr(tb.Ledger, "head", fail)
        error = error_of(client().get("/api/v1/health"), 503)
        assert (error["type"], error["unknown"]) == ("LedgerError", unknown)
        assert words in str(error["message"])
        assert "10.0.0.1" not in str(error["message"])
    assert caplog.text.count("10.0.0.1") == 2


def test_secrets_are_not_shown(ledger_url: str) -> None:
    settings = Settings(ledger_url)
    assert len(settings.secret) == 32
    assert repr(settings.secret) not in repr(settings)
    assert settings.secret != Settings(ledger_url).secret


# ----------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 70000}, r"port must be in \[0, 65535\], got 70000"),
        ({"port": -1}, "port must be an integer >= 0, got -1"),
        *(
            ({"public_url": url}, "public_url must be an address such as https:")
            for url in ("budget.example.org", "ftp://x", "https://", "https://a:b@c",
                        "https://x/path", "https://x?q", "https://x:y")
        ),
    ],
)  # fmt: skip
def test_settings_are_refused_by_name(options: dict[str, object], message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        Settings("sqlite:///x.db", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.0.0.2", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("192.0.2.1", False), ("budget.example.org", False)],
)  # fmt: skip
def test_only_loopback_is_this_machine_alone(host: str, local: bool) -> None:
    assert Settings("sqlite:///x.db", host=host).is_local == local
    behind = Settings("sqlite:///x.db", host=host, public_url="http://budget.example.org:8080/")
    assert not behind.is_local
    assert not behind.is_encrypted
