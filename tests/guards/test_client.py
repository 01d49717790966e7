"""Every guard of the client is taken away once, and something true must become false."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.client.test_http import FATES, HOLD, acts, claimed, error, remote, wire_hold
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.client import http


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
    Without("a start is sent again", {"start-sent-once": "if False:"}, truth("start")),
    Without(
        "what was in doubt is forgotten at the next failure",
        {"doubt-kept": "in_doubt = lost.sent"},
        truth("settle"),
    ),
    Without(
        "a refusal of the second request is taken for the first",
        {"doubt-outlives-refusal": "if True:"},
        truth("settle"),
    ),
    Without(
        "all that was not answered was not done",
        {"unanswered-is-doubtful": "raise _NoAnswer(_words(error), sent=False) from None"},
        truth("reserve"),
    ),
    Without(
        "a proxy's failure is the ledger's",
        {"proxy-failure-doubtful": "doubtful = False"},
        truth("reserve"),
    ),
    Without(
        "a commit in doubt was not done",
        {
            "commit-in-doubt": (
                'return TightBudgetError.from_dict({**always, **told, "message": '
                'message, "unknown": False}, Amount.from_dict)'
            )
        },
        truth("reserve"),
    ),
    Without(
        "a refusal is asked for again",
        {"refusal-not-asked-again": "if True:"},
        asks_once_after_a_refusal,
    ),
    Without(
        "what cannot be read was not done",
        {"unreadable-is-unknown": "unknown = False"},
        does_not_believe_the_unreadable,
    ),
    Without(
        "the failure carries the request",
        {"why-without-failure": 'raise LedgerError(f"{self} cannot be read: {lost}") from lost'},
        keeps_the_token_to_itself,
    ),
    Without(
        "plain http goes anywhere",
        {"plain-http-stays-here": 'if parsed.scheme == "http" and False:'},
        lambda: is_refused(lambda: tb.RemoteLedger("http://ledger.test")),
    ),
    Without(
        "an address may have a password",
        {"address-without-password": "if False:"},
        lambda: is_refused(lambda: tb.RemoteLedger("https://ada:hidden@ledger.test")),
    ),
    Without(
        "a token may have lines",
        {"token-one-word": "if token is not None and False:"},
        lambda: is_refused(lambda: tb.RemoteLedger("https://ledger.test", token="tb_\nhidden")),
    ),
    Without(
        "the token of the start is not kept",
        {"start-token-kept": "pass"},
        keeps_a_number_of_its_own,
    ),
    Without(
        "the history ends with its first page",
        {"history-goes-on": "if True:"},
        goes_on_after_a_page,
    ),
]


@pytest.mark.one_in(4)
@each(MUTATIONS)
def test_every_guard_is_missed(mutation: Without, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_a_truth(monkeypatch, mutation)
