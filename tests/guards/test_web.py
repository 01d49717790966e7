"""Each guard of the server is taken away, and what it keeps true is then false."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.guards.mutants import Mutation, lose_a_truth
from tests.web.conftest import HERE, TOKEN_OF_A2, Client

import tightbudget as tb
from tightbudget.ledger import tokens, transactions
from tightbudget.ledger.tokens import Tokens
from tightbudget.output_dp.account import State
from tightbudget.web import access, failures, guards
from tightbudget.web.api import events, schemas
from tightbudget.web.refusals import HttpRefusal
from tightbudget.web.sessions import Sessions

Token = Callable[..., str]


@dataclass(frozen=True)
class Case:
    """A guard that is gone, and the request whose status says so."""

    name: str
    owner: Any
    function: str
    line: str
    becomes: str
    refused: Callable[[Client, Token, tb.Ledger], bool]


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
            lambda act: transactions.settle(act, key="A2", token=TOKEN_OF_A2, cell="\ud800", why={})
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
CASES = [
    Case("secrets are compared", Tokens, "borne_by",
         "return token if same else None", "return token", a_wrong_secret),
    Case("revoked tokens are over", tokens.Token, "is_valid",
         "self.revoked is None and ", "", a_revoked_token),
    Case("tokens expire", tokens.Token, "is_valid",
         " and now < self.expires", "", an_expired_token),
    Case("failures are counted", access, "_bearer",
         "state.failures.add(address)", "pass", the_eleventh_failure),
    Case("failures are heeded", access, "_bearer",
         "state.failures.check(address)", "pass", the_eleventh_failure),
    Case("right tokens are never counted", access, "_bearer",
         "if token is None:  #", "state.failures.check(address)\n    if token is None:  #",
         a_right_token_after_wrong_ones),
    Case("failures have a limit in all", failures.Failures, "check",
         'self._wait(self._all), ""', '0.0, ""', made_up_addresses),
    Case("signing out ends a session", access, "sign_out",
         "state_of(request).sessions.end(cookie)", "pass", a_session_that_was_ended),
    Case("sessions end", Sessions, "end",
         "self._open.pop(_id(cookie), None)", "pass", a_session_that_was_ended),
    Case("sessions are over", Sessions, "find",
         " and self._clock() < found.ends", "", an_old_session),
    Case("forms are of one session", access, "_check_form",
         "if of != caller.session:", "if of is None:", a_form_of_another_session),
    Case("proxies are seen", access, "_is_open",
         "any(map(_FORWARDED.fullmatch, names))", "False", a_tunnel),
    Case("addresses are looked at", access, "_is_open",
         " and is_here", "", another_machine),
    Case("hosts are checked", guards.Guards, "_check",
         "if not self._settings.answers_to(_name(host)):", "if False:", another_host),
    Case("sites are checked", guards.Guards, "_check",
         'site not in ("same-origin", "none") or ', "", another_site),
    Case("origins are checked", guards.Guards, "_check",
         " or not self._is_own(origin, host)", "", another_origin),
    Case("bodies are counted", guards.Guards, "_whole",
         "if size > most:", "if False:", a_large_body),
    Case("cookies write nothing", access.Gate, "__call__",
         "elif writes and caller.session:", "elif False:", a_write_by_cookie),
    Case("formulas are marked behind blanks", events, "_is_computed",
         "sign.isprintable() and not sign.isspace()", "True", a_formula_behind_a_blank),
    Case("surrogates are escaped", events, "_line",
         '"utf-8", "backslashreplace"', '"utf-8"', a_lone_surrogate),
    Case("numbers have plain digits", schemas, "number_of",
         "if writes_number(value):", "if True:", a_number_with_underscores),
    Case("numbers are short", schemas, "_decimal",
         "if len(text) > _LONGEST:", "if False:", a_number_of_many_digits),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_guard_that_is_gone_is_missed(
    case: Case, client: Client, token: Token, ledger: tb.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation = Mutation(
        case.name, case.owner, case.function, ((case.line, case.becomes),),
        lambda: case.refused(client, token, ledger),
    )  # fmt: skip
    lose_a_truth(monkeypatch, mutation)
