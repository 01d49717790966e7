"""Who is calling, and what may they do? Every route says what it needs; here it is decided.

Served on this machine alone, reading needs no token; every write needs one, everywhere. Programs
send theirs as ``Authorization: Bearer``; browsers sign in and get the cookie of a session. Its
token is looked up again each time: a token that is revoked ends its sessions.
"""

from __future__ import annotations

import enum
import ipaddress
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import Depends
from fastapi.routing import APIRoute
from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tightbudget.ledger.tokens import Token
from tightbudget.web.refusals import HttpRefusal
from tightbudget.web.settings import is_loopback
from tightbudget.web.state import ServerState, state_of

__all__ = [
    "ADMINISTER",
    "PUBLIC",
    "READ",
    "WRITE",
    "Caller",
    "Gate",
    "Need",
    "address_of",
    "allow",
    "caller_of",
    "gate_of",
    "sign_in",
    "sign_out",
]

COOKIE = "tightbudget"
# What proxies, tunnels and load balancers add. There is no list of all of them, so this is what
# such names have in common: the word, or an address of somebody else. No client sends one itself.
_FORWARDED = re.compile(
    r".*forward.*|via|.*-via|cdn-loop|x-original.*|x-(envoy|amzn|azure|appengine|arr|ms)-.*"
    r"|cf-.*|fly-.*|fastly-.*|(.*-)?(client|real|remote|source|peer|cluster|true)-.*"
    r"|(.*-)?(ip|addr|address)(-.*)?|.*clientip"
)
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
        session: the id of the session, where there is one.
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
            HttpRefusal: the caller is unknown, or may not.
        """
        caller = await run_in_threadpool(_recognised, request)
        request.state.caller = caller
        request.state.csrf = _forms(state_of(request)).dumps(caller.session)
        writes = self.need > READ
        if self.form:
            await _check_form(request, caller)
        elif writes and caller.session:
            raise HttpRefusal(
                401, "NoToken", "this needs a token in the header Authorization", _BEARER
            )
        if caller.may(self.need, is_open=_is_open(request)):
            return
        if caller.role == "anonymous":
            raise HttpRefusal(401, "NoToken", "this needs a token", _BEARER)
        raise HttpRefusal(
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


def address_of(request: Request) -> str:
    """The address of a request, by which limits count; of version 6, the network that it is in."""
    host = request.client.host if request.client else "nowhere"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4 or address.is_loopback:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    # whoever has one address of version 6 has 2^64 of them
    return str(ipaddress.ip_network(f"{host.partition('%')[0]}/64", strict=False))


def sign_in(request: Request, response: Response, text: str) -> Caller:
    """Begins the session of who has this token.

    Raises:
        HttpRefusal: it is none, or over; or there were too many of those.
    """
    caller, token = _bearer(request, text)
    sessions = state_of(request).sessions
    if (before := request.cookies.get(COOKIE)) is not None:
        sessions.end(before)
    response.set_cookie(
        COOKIE,
        sessions.begin(token.id),
        max_age=int(sessions.lasts),
        httponly=True,
        samesite="strict",
        secure=state_of(request).settings.is_encrypted,
    )
    return caller


def sign_out(request: Request, response: Response) -> None:
    """Ends a session: on the server, so that a copy of its cookie is worth nothing, either."""
    if (cookie := request.cookies.get(COOKIE)) is not None:
        state_of(request).sessions.end(cookie)
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
    session = state.sessions.find(cookie)
    token = None if session is None else state.tokens.valid(session.token)
    return Caller() if session is None or token is None else _caller(state, token, session.id)


def _bearer(request: Request, text: str) -> tuple[Caller, Token]:
    state, address = state_of(request), address_of(request)
    token = state.tokens.borne_by(text.strip())
    if token is None:  # only then: nobody's failures lock out who has a token
        state.failures.check(address)
        state.failures.add(address)
        raise HttpRefusal(401, "WrongToken", "this token is unknown, expired or revoked", _BEARER)
    return _caller(state, token, ""), token


def _caller(state: ServerState, token: Token, session: str) -> Caller:
    seen = state.ledger.within(token.budgets) if token.role == "analyst" else None
    return Caller(token.role, token.name, seen, token.expires, session)


def _is_open(request: Request) -> bool:
    """Whether anybody may read: it was sent on this machine, and no proxy has passed it on."""
    names = (name.replace("_", "-") for name in request.headers.keys())  # noqa: SIM118 (each)
    forwarded = any(map(_FORWARDED.fullmatch, names))
    is_here = request.client is not None and is_loopback(request.client.host)
    return state_of(request).settings.is_local and is_here and not forwarded


async def _check_form(request: Request, caller: Caller) -> None:
    sent = (await request.form()).get("csrf")
    try:
        of = _forms(state_of(request)).loads(str(sent), max_age=_FORM_LASTS)
    except BadSignature:
        of = None
    if of != caller.session:
        raise HttpRefusal(
            403, "WrongForm", "this form is too old, or of another session: try again"
        )


def _forms(state: ServerState) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(state.settings.secret, salt="form")
