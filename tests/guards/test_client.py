"""Every guard of the client is taken away once, and something true must become false."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.client.test_http import FATES, HOLD, acts, claimed, error, remote, wire_hold
from tests.guards.mutants import Mutation, each, lose_a_truth

import tightbudget as tb
from tightbudget.client import http
from tightbudget.client.remote import RemoteHold, RemoteLedger


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_PAUSES", (0.0, 0.0, 0.0))


def truth(act: str) -> Callable[[], bool]:
    """Whatever happens to two requests and then to all, what the client claims is true."""

    def is_told() -> bool:
        for first, second, others in itertools.product(FATES, FATES, ("done", "no connection")):
            met: list[str] = []
            fates = itertools.chain([first, second], itertools.repeat(others))

            def answer(
                request: httpx.Request, fates: Any = fates, met: list[str] = met
            ) -> httpx.Response:
                met.append(next(fates))
                seen = FATES[met[-1]][1]
                if isinstance(seen, Exception):
                    raise seen
                return httpx.Response(seen.status_code, content=seen.content)

            with remote(answer) as ledger:
                claim = claimed(acts(ledger)[act])
            done = any(FATES[fate][0] for fate in met)
            lies = claim == ("not done" if done else "done")
            twice = act == "start" and not set(met[:-1]) <= {"no connection"}
            if lies or twice:
                return False
        return True

    return is_told


def answered(status: int, content: Any) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(status, json=content)


def is_refused(deed: Callable[[], Any]) -> bool:
    try:
        deed()
    except tb.ParameterError as refusal:
        return "hidden" not in str(refusal)
    return False


def asks_once_after_a_refusal() -> bool:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(401, json=error("WrongToken"))

    with remote(answer) as ledger, contextlib.suppress(tb.LedgerError):
        ledger.statements()
    return len(asked) == 1


def keeps_the_token_to_itself() -> bool:
    """A failure that travels up has no request with it, and with that no header."""

    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with remote(answer) as ledger:
        try:
            ledger.statements()
        except tb.LedgerError as failure:
            return failure.__cause__ is None and failure.__context__ is None
    return False


def keeps_a_number_of_its_own() -> bool:
    """The token of the start is what settle sends."""
    sent = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.read())
        return httpx.Response(200, json={**HOLD, "token": "41"})

    with remote(answer) as ledger:
        hold = wire_hold(ledger)
        hold.start()
        hold.settle("no")
    return b'"token": "41"' in sent[1]


def does_not_believe_the_unreadable() -> bool:
    with remote(answered(200, {**HOLD, "charges": {"data": {"amount": 0.1}}})) as ledger:
        return claimed(wire_hold(ledger).void) == "in doubt"


def goes_on_after_a_page() -> bool:
    def answer(request: httpx.Request) -> httpx.Response:
        first = request.url.params["after"] == "0"
        event = dict.fromkeys(
            ("sequence", "at", "kind", "key", "budget", "epsilon", "delta", "details", "hash")
        )
        page = [{**event, "cell": None}]
        return httpx.Response(200, json={"events": page, "next": 1 if first else None})

    with remote(answer) as ledger:
        return len(list(ledger.events())) == 2


MUTATIONS = [
    Mutation(
        "a start is sent again", http.Wire, "_ask",
        (("if in_doubt and act is Retry.ONCE:", "if False:"),),
        truth("start"),
    ),
    Mutation(
        "what was in doubt is forgotten at the next failure", http.Wire, "_ask",
        (("in_doubt = in_doubt or lost.sent", "in_doubt = lost.sent"),),
        truth("settle"),
    ),
    Mutation(
        "a refusal of the second request is taken for the first", http.Wire, "_ask",
        (("if not in_doubt:\n                raise\n", "raise\n"),),
        truth("settle"),
    ),
    Mutation(
        "all that was not answered was not done", http.Wire, "_answer",
        (("sent=not isinstance(error, _NOT_SENT)", "sent=False"),),
        truth("reserve"),
    ),
    Mutation(
        "a proxy's failure is the ledger's", http.Wire, "_answer",
        (("doubtful = response.is_server_error", "doubtful = False"),),
        truth("reserve"),
    ),
    Mutation(
        "a commit in doubt was not done", http, "_refusal",
        (("**{name: _value(told[name]) for name in names}", ""),),
        truth("reserve"),
    ),
    Mutation(
        "a refusal is asked for again", http.Wire, "_answer",
        (("if isinstance(refusal, LedgerError) and refusal.unknown:", "if True:"),),
        asks_once_after_a_refusal,
    ),
    Mutation(
        "what cannot be read was not done", http.Wire, "_read",
        (("unknown = act is not Retry.READING", "unknown = False"),),
        does_not_believe_the_unreadable,
    ),
    Mutation(
        "the failure carries the request", http.Wire, "_ask",
        (
            ("why = str(lost)\n", "why = str(lost); failure = lost\n"),
            ('raise LedgerError(f"{self} cannot be read: {why}")',
             'raise LedgerError(f"{self} cannot be read: {why}") from failure'),
        ),
        keeps_the_token_to_itself,
    ),
    Mutation(
        "plain http goes anywhere", http, "_checked",
        (("and not insecure and not _is_here(parsed.host)", "and False"),),
        lambda: is_refused(lambda: tb.RemoteLedger("http://ledger.test")),
    ),
    Mutation(
        "a password in the address is shown", http, "_checked",
        (('if isinstance(url, str) and "@" in url:', "if False:"),),
        lambda: is_refused(lambda: tb.RemoteLedger("http://ada:hidden@ledger.test")),
    ),
    Mutation(
        "a token may have lines", http.Wire, "__init__",
        (("and not (isinstance(token, str) and _WORD.fullmatch(token))", "and False"),),
        lambda: is_refused(lambda: tb.RemoteLedger("https://ledger.test", token="tb_\nhidden")),
    ),
    Mutation(
        "the token of the start is not kept", RemoteHold, "start",
        (("self._token = self._is.token", "pass"),),
        keeps_a_number_of_its_own,
    ),
    Mutation(
        "the history ends with its first page", RemoteLedger, "events",
        (("while last is not None and (limit is None or limit > 0):", "if True:"),),
        goes_on_after_a_page,
    ),
]  # fmt: skip


@each(MUTATIONS)
def test_every_guard_is_missed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_a_truth(monkeypatch, mutation)
