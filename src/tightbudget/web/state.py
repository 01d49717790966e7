"""The open state of a running server: its ledger, its sessions, its workers."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import HTTPConnection

from tightbudget.explorer.workers import Pools
from tightbudget.ledger.ledger import Ledger
from tightbudget.ledger.tokens import Tokens
from tightbudget.web.failures import Failures
from tightbudget.web.sessions import Sessions
from tightbudget.web.settings import Settings
from tightbudget.web.verifications import Verifications


@dataclass(frozen=True)
class ServerState:
    """The open resources of a running server."""

    settings: Settings
    ledger: Ledger
    tokens: Tokens
    failures: Failures
    sessions: Sessions
    verifications: Verifications
    explorer: Pools


def state_of(request: HTTPConnection) -> ServerState:
    """Returns the state of the server that received a request."""
    state: ServerState = request.app.state.open
    return state
