"""Who is calling, and what may they do? Every route says what it needs; here it is decided.

Served on this machine alone, reading needs no token; every write needs one, everywhere. Programs
send theirs as ``Authorization: Bearer``; browsers sign in and get a cookie that names the token,
which is looked up again each time: a token that is revoked ends its sessions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import Depends
from fastapi.routing import APIRoute
from itsdangerous import BadSignature, URLSafeSerializer, URLSafeTimedSerializer
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tightbudget.ledger.tokens import Token
from tightbudget.web.refusals import Refusal
from tightbudget.web.settings import State, state_of

__all__ = [
    "ADMINISTER",
    "PUBLIC",
    "READ",
    "WRITE",
    "Caller",
    "Gate",
    "Need",
    "allow",
    "caller_of",
    "gate_of",
    "sign_in",
    "sign_out",
]

COOKIE = "tightbudget"
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_FORM_LASTS = 24 * 3600  # seconds
_BEARER = {"www-authenticate": "Bearer"}


class Need(enum.IntEnum):
    """What a route needs: each includes those before."""

    PUBLIC = 0
    READ = 1
    WRITE = 2
    ADMINISTER = 3


PUBLIC, READ, WRITE, ADMINISTER = Need


@dataclass(frozen=True)
class Caller:
    """Somebody with a role.

    Attributes:
        role: anonymous, viewer, analyst or administrator.
        name: of the token; empty without one.
        budgets: the names of all that an analyst sees; None for who sees all.
        expires: when the token is over.
        session: the id of the token, where a cookie has named it.
    """

    role: str = "anonymous"
    name: str = ""
    budgets: frozenset[str] | None = None
    expires: datetime | None = None
    session: str = ""

    def sees(self, budget: str | None) -> bool:
        """Whether this budget, or the ledger as a whole, is there for this caller."""
        return self.budgets is None or budget in self.budgets

    def may(self, need: Need, *, is_open: bool) -> bool:
        """Whether the role is enough."""
        most = {"viewer": READ, "analyst": WRITE, "administrator": ADMINISTER}
        return need <= most.get(self.role, READ if is_open else PUBLIC)


class Gate:
    """What stands before a route.

    Args:
        need: what it needs.
        form: whether it takes a form from a browser. Then a session may write, with the
            form's own token; elsewhere only who sends a token in the header.
    """

    def __init__(self, need: Need, form: bool) -> None:
        self.need = need
        self.form = form

    async def __call__(self, request: Request) -> None:
        """Lets a request pass, or refuses it.

        Raises:
            Refusal: the caller is unknown, or may not.
        """
        caller = await run_in_threadpool(_recognised, request)
        request.state.caller = caller
        request.state.csrf = _forms(state_of(request)).dumps(caller.session)
        writes = self.need > READ
        if self.form:
            await _check_form(request, caller)
        elif writes and caller.session:
            raise Refusal(401, "NoToken", "this needs a token in the header Authorization", _BEARER)
        if caller.may(self.need, is_open=_is_open(request)):
            return
        if caller.role == "anonymous":
            raise Refusal(401, "NoToken", "this needs a token", _BEARER)
        raise Refusal(
            403, "NotAllowed", f"this is not for the role {caller.role}: it needs another token"
        )


def allow(need: Need, *, form: bool = False) -> Any:
    """What a route needs, for the list of its dependencies."""
    return Depends(Gate(need, form))


def gate_of(route: BaseRoute) -> Gate | None:
    """What stands before a route; None if nothing does."""
    found = route.dependencies if isinstance(route, APIRoute) else []
    gates = [d.dependency for d in found if isinstance(d.dependency, Gate)]
    return gates[0] if len(gates) == 1 else None


def caller_of(request: Request) -> Caller:
    """Who is calling; nobody, before a gate was passed."""
    caller: Caller = getattr(request.state, "caller", Caller())
    return caller


def sign_in(request: Request, response: Response, text: str) -> Caller:
    """Begins the session of who has this token.

    Raises:
        Refusal: it is none, or over; or there were too many of those.
    """
    caller, token = _bearer(request, text)
    response.set_cookie(
        COOKIE,
        _sessions(state_of(request)).dumps(token.id),
        httponly=True,
        samesite="strict",
        secure=state_of(request).settings.is_encrypted,
    )
    return caller


def sign_out(response: Response) -> None:
    """Ends a session."""
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")


def _recognised(request: Request) -> Caller:
    header = request.headers.get("authorization")
    if header is not None:
        scheme, _, text = header.partition(" ")
        return _bearer(request, text if scheme.lower() == "bearer" else "")[0]
    cookie = request.cookies.get(COOKIE)
    if cookie is None:
        return Caller()
    state = state_of(request)
    try:
        token = state.tokens.valid(_sessions(state).loads(cookie))
    except BadSignature:
        return Caller()
    return Caller() if token is None else _caller(state, token, token.id)


def _bearer(request: Request, text: str) -> tuple[Caller, Token]:
    state = state_of(request)
    address = request.client.host if request.client else "nowhere"
    state.failures.check(address)
    token = state.tokens.borne_by(text.strip())
    if token is None:
        state.failures.add(address)
        raise Refusal(401, "WrongToken", "this token is unknown, expired or revoked", _BEARER)
    return _caller(state, token, ""), token


def _caller(state: State, token: Token, session: str) -> Caller:
    seen = state.ledger.within(token.budgets) if token.role == "analyst" else None
    return Caller(token.role, token.name, seen, token.expires, session)


def _is_open(request: Request) -> bool:
    """Whether anybody may read; but what went through a proxy may have come from afar."""
    forwarded = any(name in request.headers for name in _FORWARDED)
    return state_of(request).settings.is_local and not forwarded


async def _check_form(request: Request, caller: Caller) -> None:
    sent = (await request.form()).get("csrf")
    try:
        of = _forms(state_of(request)).loads(str(sent), max_age=_FORM_LASTS)
    except BadSignature:
        of = None
    if of != caller.session:
        raise Refusal(403, "WrongForm", "this form is too old, or of another session: try again")


def _sessions(state: State) -> URLSafeSerializer:
    return URLSafeSerializer(state.settings.secret, salt="session")


def _forms(state: State) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(state.settings.secret, salt="form")
