"""Callers and their rights: every route declares what it needs, and this module decides.

A server for this machine alone lets anybody read; every write needs a token, everywhere. Programs
send their token as ``Authorization: Bearer``; browsers sign in and get the cookie of a session. The
token of a session is looked up at each request: revoking a token ends its sessions.
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
from tightbudget.promises.seen import Seen
from tightbudget.web.refusals import HttpRefusal
from tightbudget.web.settings import is_loopback
from tightbudget.web.state import ServerState, state_of

COOKIE = "tightbudget"
# Headers that proxies, tunnels and load balancers add. There is no list of all of them, so that the
# pattern holds what their names have in common: the word, or the address of somebody else. No
# client sends such a header on its own.
_FORWARDED = re.compile(
    r".*forward.*|via|.*-via|cdn-loop|x-original.*|x-(envoy|amzn|azure|appengine|arr|ms)-.*"
    r"|cf-.*|fly-.*|fastly-.*|(.*-)?(client|real|remote|source|peer|cluster|true)-.*"
    r"|(.*-)?(ip|addr|address)(-.*)?|.*clientip"
)
_FORM_LASTS = 24 * 3600  # seconds; a page may stay open over night
_BEARER = {"www-authenticate": "Bearer"}


class Need(enum.IntEnum):
    """The rights that a route can need; each one includes those before it."""

    PUBLIC = 0
    READ = 1
    WRITE = 2
    ADMINISTER = 3


PUBLIC, READ, WRITE, ADMINISTER = Need


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A caller with a role.

    Attributes:
        role: anonymous, viewer, analyst or administrator.
        name: the name of the token; empty without a token.
        budgets: the budgets that an analyst sees; None if the caller sees all.
        expires: when the token expires.
        session: the id of the session; empty without a session.
    """

    role: str = "anonymous"
    name: str = ""
    budgets: Seen | None = None
    expires: datetime | None = None
    session: str = ""

    def sees(self, budget: str | None) -> bool:
        """Tells whether this caller may see a budget; None stands for the ledger as a whole."""
        return self.budgets is None or budget in self.budgets  # guard: only-own-budgets-seen

    def may(self, need: Need, *, is_open: bool) -> bool:
        """Tells whether the caller's role is enough for a need."""
        # guard: analysts-only-write
        most = {"viewer": READ, "analyst": WRITE, "administrator": ADMINISTER}
        return need <= most.get(self.role, READ if is_open else PUBLIC)  # guard: roles-limit-acts


class Gate:
    """The check that a request passes before its route runs.

    Args:
        need: the right that the route needs.
        form: whether the route takes a form from a browser. A session may write by forms alone,
            which carry a token of their own; all other writes need a token in the header.
    """

    def __init__(self, need: Need, form: bool) -> None:
        self.need = need
        self.form = form

    async def __call__(self, request: Request) -> None:
        """Lets a request pass, or refuses it.

        Raises:
            HttpRefusal: the caller is unknown, or lacks the right.
        """
        caller = await run_in_threadpool(_recognised, request)
        request.state.caller = caller
        request.state.csrf = _forms(state_of(request)).dumps(caller.session)
        writes = self.need > READ
        if self.form:
            await _check_form(request, caller)
        elif writes and caller.session:  # guard: cookies-write-nothing
            raise HttpRefusal(
                401, "NoToken", "this needs a token in the header Authorization", _BEARER
            )
        if caller.may(self.need, is_open=_is_open(request)):
            return
        if caller.role == "anonymous":
            # guard: unknown-callers-stopped
            raise HttpRefusal(401, "NoToken", "this needs a token", _BEARER)
        raise HttpRefusal(
            403, "NotAllowed", f"this is not for the role {caller.role}: it needs another token"
        )


def allow(need: Need, *, form: bool = False) -> Any:
    """Makes the gate of a route, to be put into the list of its dependencies."""
    return Depends(Gate(need, form))


def gate_of(route: BaseRoute) -> Gate | None:
    """Returns the gate of a route; None if the route has no gate, or several."""
    found = route.dependencies if isinstance(route, APIRoute) else []
    gates = [d.dependency for d in found if isinstance(d.dependency, Gate)]
    return gates[0] if len(gates) == 1 else None


def caller_of(request: Request) -> Caller:
    """Returns the caller of a request; before a gate was passed, an anonymous one."""
    caller: Caller = getattr(request.state, "caller", Caller())
    return caller


def address_of(request: Request) -> str:
    """Returns the address by which limits count a request; IPv6 addresses count as networks."""
    host = request.client.host if request.client else "nowhere"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4 or address.is_loopback:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    # a provider gives a customer a whole /64 network of IPv6, which is 2^64 addresses
    return str(ipaddress.ip_network(f"{host.partition('%')[0]}/64", strict=False))


def sign_in(request: Request, response: Response, text: str) -> Caller:
    """Begins a session for the owner of a token, and puts its cookie into the response.

    Raises:
        HttpRefusal: the token is unknown or over, or too many wrong ones came before.
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
    """Ends the session on the server, so that copies of its cookie are worthless, too."""
    if (cookie := request.cookies.get(COOKIE)) is not None:
        state_of(request).sessions.end(cookie)  # guard: signing-out-ends-session
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
    # guard: right-tokens-never-counted
    if token is None:  # a right token is never counted: failures of others lock out nobody
        state.failures.check(address)  # guard: failures-heeded
        state.failures.add(address)  # guard: failures-counted
        raise HttpRefusal(401, "WrongToken", "this token is unknown, expired or revoked", _BEARER)
    return _caller(state, token, ""), token


def _caller(state: ServerState, token: Token, session: str) -> Caller:
    seen = None
    if token.role == "analyst":
        seen = state.ledger.within(token.budgets, analyst=token.name)
    return Caller(
        role=token.role, name=token.name, budgets=seen, expires=token.expires, session=session
    )


def _is_open(request: Request) -> bool:
    """Tells whether anybody may read: the request was sent on this machine, by no proxy."""
    names = (name.replace("_", "-") for name in request.headers.keys())  # noqa: SIM118 (each)
    forwarded = any(map(_FORWARDED.fullmatch, names))  # guard: proxies-seen
    is_here = request.client is not None and is_loopback(request.client.host)
    # guard: open-only-here
    return state_of(request).settings.is_local and is_here and not forwarded


async def _check_form(request: Request, caller: Caller) -> None:
    sent = (await request.form()).get("csrf")
    try:
        of = _forms(state_of(request)).loads(str(sent), max_age=_FORM_LASTS)
    except BadSignature:
        of = None
    if of != caller.session:  # guard: forms-of-one-session
        raise HttpRefusal(
            403, "WrongForm", "this form is too old, or of another session: try again"
        )


def _forms(state: ServerState) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(state.settings.secret, salt="form")
