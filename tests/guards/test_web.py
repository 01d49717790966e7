"""Each guard of the server is taken away, and what it keeps true is then false."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from starlette.testclient import TestClient
from tests.guards.mutants import Without, lose_a_truth
from tests.web.conftest import HERE, TOKEN_OF_A2, Client

import tightbudget as tb
from tightbudget.ledger.acts import run_acts
from tightbudget.ledger.tokens import Tokens
from tightbudget.output_dp.account import State
from tightbudget.web import access, failures
from tightbudget.web.refusals import HttpRefusal
from tightbudget.web.sessions import Sessions

Token = Callable[..., str]


def a_wrong_secret(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    text = token("viewer")
    return client(text[:-1] + ("0" if text[-1] != "0" else "1")).get(ME).status_code == 401


def a_revoked_token(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    text = token("viewer")
    Tokens(ledger).revoke(text.split("_")[1])
    return client(text).get(ME).status_code == 401


def an_expired_token(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    now, text = ledger.session.now(), token("viewer")
    found = Tokens(ledger).borne_by(text)
    assert found is not None
    return not found.is_valid(now.replace(year=now.year + 1))


def the_eleventh_failure(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    ask = client("tb_wrong")
    return [ask.get(ME).status_code for _ in range(11)][-1] == 429


def another_host(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    return client().get(ME, headers={"host": "evil.example"}).status_code == 400


def another_site(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    sent = {"sec-fetch-site": "cross-site"}
    return client().post("/api/v1/verify", headers=sent).status_code == 403


def another_origin(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    sent = {"origin": "https://evil.example"}
    return client().post("/api/v1/verify", headers=sent).status_code == 403


def a_large_body(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    ask = client(token("administrator"), largest_body=100)
    body = b'{"key": "' + b"k" * 100 + b'"}'
    return ask.post("/api/v1/void", content=iter([body])).status_code == 413


def a_write_by_cookie(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    ask = client()
    session = begun(ask, token)
    sent = {"cookie": f"{access.COOKIE}={session}"}
    return ask.post("/api/v1/void", json={"key": "A1"}, headers=sent).status_code == 401


def a_number_of_many_digits(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    """It would fill the processor, not the memory."""
    body = '{"budget": "ada", "guarantee": {"epsilon": 0.' + "1" * 2000 + "}}"
    sent = {"content-type": "application/json"}
    return client().post("/api/v1/what-if", content=body, headers=sent).status_code == 400


def a_formula_behind_a_blank(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    ledger.reserve(" =1+1", tb.OutputDP.from_dp(0), ["bob"])
    return ",' =1+1," in client().get("/api/v1/events.csv").text


def a_lone_surrogate(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    """Of an earlier version: it must not end the export."""
    if ledger.hold("A2").state is State.STARTED:
        ledger.session.write(
            lambda act: run_acts.settle(act, key="A2", token=TOKEN_OF_A2, cell="\ud800", why={})
        )
    try:
        return client().get("/api/v1/events.csv").status_code == 200
    except UnicodeEncodeError:
        return False


def begun(ask: TestClient, token: Token) -> str:
    """The cookie of a session of an administrator."""
    sessions: Sessions = ask.app.state.open.sessions  # type: ignore[attr-defined]
    return sessions.begin(token("administrator").split("_")[1])


def a_session_that_was_ended(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    ask = client()
    ask.cookies.set(access.COOKIE, cookie := begun(ask, token))
    csrf = ask.get("/").text.partition('name="csrf" value="')[2].partition('"')[0]
    assert ask.post("/sign-out", data={"csrf": csrf}, follow_redirects=False).status_code == 303
    ask.cookies.set(access.COOKIE, cookie)
    return bool(ask.get(ME).json()["role"] == "anonymous")


def an_old_session(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    now = [0.0]
    sessions = Sessions(lasts=1.0, clock=lambda: now[0])
    cookie, now[0] = sessions.begin("t"), 1.0
    return sessions.find(cookie) is None


def a_form_of_another_session(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    ask = client()
    ask.cookies.set(access.COOKIE, begun(ask, token))
    csrf = ask.get("/").text.partition('name="csrf" value="')[2].partition('"')[0]
    ask.cookies.set(access.COOKIE, begun(ask, token))
    sent = {"csrf": csrf, "name": "eve", "sure": "yes"}
    return ask.post("/budget/close", data=sent, follow_redirects=False).status_code == 403


def a_right_token_after_wrong_ones(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    ask = client("tb_wrong")
    for _ in range(11):
        ask.get(ME)
    right = {"authorization": f"Bearer {token('viewer')}"}
    return ask.get(ME, headers=right).status_code == 200


def made_up_addresses(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    counted = failures.Failures(most_in_all=3)
    for i in range(3):
        counted.add(str(i))
    try:
        counted.check("4")
    except HttpRefusal:
        return True
    return False


def a_tunnel(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    sent = {"cf-connecting-ip": "192.0.2.1"}
    return client().get("/api/v1/budgets", headers=sent).status_code == 401


def another_machine(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    ask = TestClient(client().app, HERE, client=("192.0.2.7", 1))
    return ask.get("/api/v1/budgets").status_code == 401


def a_number_with_underscores(client: Client, token: Token, ledger: tb.Ledger) -> bool:
    body = {"budget": "ada", "guarantee": {"epsilon": "1_0"}}
    return client().post("/api/v1/what-if", json=body).status_code == 400


ME = "/api/v1/me"
CASES: list[tuple[Without, Callable[[Client, Token, tb.Ledger], bool]]] = [
    (Without("secrets are compared", {"secrets-compared": "return token"}, bool), a_wrong_secret),
    (
        Without("revoked tokens are over", {"token-valid": "return now < self.expires"}, bool),
        a_revoked_token,
    ),
    (
        Without("tokens expire", {"token-valid": "return self.revoked is None"}, bool),
        an_expired_token,
    ),
    (Without("failures are counted", {"failures-counted": "pass"}, bool), the_eleventh_failure),
    (Without("failures are heeded", {"failures-heeded": "pass"}, bool), the_eleventh_failure),
    (
        Without(
            "right tokens are never counted",
            {
                "right-tokens-never-counted": """
state.failures.check(address)
if token is None:
"""
            },
            bool,
        ),
        a_right_token_after_wrong_ones,
    ),
    (
        Without(
            "failures have a limit in all",
            {
                "failures-limit": (
                    'wait, whence = max((self._wait(times), f" from {address}"), (0.0, ""))'
                )
            },
            bool,
        ),
        made_up_addresses,
    ),
    (
        Without("signing out ends a session", {"signing-out-ends-session": "pass"}, bool),
        a_session_that_was_ended,
    ),
    (Without("sessions end", {"sessions-end": "pass"}, bool), a_session_that_was_ended),
    (
        Without(
            "sessions are over",
            {"sessions-over": "return found if found is not None else None"},
            bool,
        ),
        an_old_session,
    ),
    (
        Without("forms are of one session", {"forms-of-one-session": "if of is None:"}, bool),
        a_form_of_another_session,
    ),
    (Without("proxies are seen", {"proxies-seen": "forwarded = False"}, bool), a_tunnel),
    (
        Without(
            "addresses are looked at",
            {"open-only-here": "return state_of(request).settings.is_local and not forwarded"},
            bool,
        ),
        another_machine,
    ),
    (Without("hosts are checked", {"hosts-checked": "if False:"}, bool), another_host),
    (
        Without(
            "sites are checked", {"site-and-origin": "if not self._is_own(origin, host):"}, bool
        ),
        another_site,
    ),
    (
        Without(
            "origins are checked",
            {"site-and-origin": 'if site not in ("same-origin", "none"):'},
            bool,
        ),
        another_origin,
    ),
    (Without("bodies are counted", {"bodies-counted": "if False:"}, bool), a_large_body),
    (
        Without("cookies write nothing", {"cookies-write-nothing": "elif False:"}, bool),
        a_write_by_cookie,
    ),
    (
        Without(
            "formulas are marked behind blanks",
            {
                "formulas-marked-behind-blanks": (
                    'first = next((sign for sign in plain if True), "")'
                )
            },
            bool,
        ),
        a_formula_behind_a_blank,
    ),
    (
        Without(
            "surrogates are escaped",
            {"surrogates-escaped": 'return buffer.getvalue().encode("utf-8")'},
            bool,
        ),
        a_lone_surrogate,
    ),
    (
        Without("numbers have plain digits", {"numbers-plain-digits": "if True:"}, bool),
        a_number_with_underscores,
    ),
    (Without("numbers are short", {"numbers-short": "if False:"}, bool), a_number_of_many_digits),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("mutation", "refused"), CASES, ids=[mutation.name.replace(" ", "-") for mutation, _ in CASES]
)
def test_a_guard_that_is_gone_is_missed(
    mutation: Without,
    refused: Callable[[Client, Token, tb.Ledger], bool],
    client: Client,
    token: Token,
    ledger: tb.Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = replace(mutation, true=lambda: refused(client, token, ledger))
    lose_a_truth(monkeypatch, case)
