"""The server's application: guards around all routes, and a gate before each route."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tightbudget.errors import ExtraError, TightBudgetError

try:
    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError
    from fastapi.routing import APIRoute
    from starlette.exceptions import HTTPException
    from starlette.routing import BaseRoute, Mount
    from starlette.staticfiles import StaticFiles
except ImportError as error:
    raise ExtraError("a server needs FastAPI: pip install 'tightbudget[web]'") from error

import tightbudget
from tightbudget.explorer.workers import Pools
from tightbudget.ledger.ledger import Ledger
from tightbudget.ledger.tokens import Tokens
from tightbudget.web.access import ADMINISTER, PUBLIC, READ, WRITE, Need, gate_of
from tightbudget.web.api import (
    about,
    balance_history,
    blocks,
    budgets,
    events,
    explore,
    holds,
    verify,
)
from tightbudget.web.failures import Failures
from tightbudget.web.guards import Guards
from tightbudget.web.head_requests import HeadRequests
from tightbudget.web.pages import budget as budget_page
from tightbudget.web.pages import budgets as budgets_page
from tightbudget.web.pages import elsewhere
from tightbudget.web.pages import explorer as explorer_page
from tightbudget.web.pages import sign_in as sign_in_page
from tightbudget.web.refusals import HttpRefusal
from tightbudget.web.refused import refused
from tightbudget.web.sessions import Sessions
from tightbudget.web.settings import Settings
from tightbudget.web.state import ServerState
from tightbudget.web.verifications import Verifications

ROUTERS = [
    about.router,
    budgets.router,
    events.router,
    holds.router,
    blocks.router,
    verify.router,
    explore.router,
    explorer_page.router,
    balance_history.router,
    budgets_page.router,
    budget_page.router,
    sign_in_page.router,
    elsewhere.router,
]

_DESCRIPTION = """Durable budgets: the amounts spent, held and left, and the cost of each run.

A mechanism is paid for in the order reserve, start, run, settle, reveal. Its worst-case price is
held before it runs, under a key of the caller's choice: the same request under the same key again
is the same reservation. Amounts are in nats; charges are rounded up, the amount left is rounded
down, and infinity is the number 1e999. Numbers are read exactly as written. HEAD is answered
wherever GET is.
"""


# The security of a route in the document, by its need: no token, an optional one, or one.
_SECURITY: dict[Need, list[dict[str, list[str]]]] = {
    PUBLIC: [],
    READ: [{}, {"token": []}],
    WRITE: [{"token": []}],
    ADMINISTER: [{"token": []}],
}


class _App(FastAPI):
    """An application whose OpenAPI document says which routes need a token."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            for route in self.routes:
                if isinstance(route, APIRoute) and (gate := gate_of(route)) is not None:
                    extra = {"security": _SECURITY[gate.need], "x-needs": gate.need.name.lower()}
                    route.openapi_extra = extra
            schemes = {"token": {"type": "http", "scheme": "bearer"}}
            super().openapi().setdefault("components", {})["securitySchemes"] = schemes
        return super().openapi()


def create_app(settings: Settings) -> FastAPI:
    """Makes a server for one ledger.

    Raises:
        LedgerError: there is no such ledger.
    """
    ledger, pools = Ledger(settings.ledger, create=False), Pools()

    @asynccontextmanager
    async def serving(_: FastAPI) -> AsyncIterator[None]:
        yield
        pools.close()
        ledger.close()

    app = _App(
        title="tightbudget",
        summary="An API for a ledger of privacy budgets.",
        description=_DESCRIPTION,
        version=tightbudget.__version__,
        openapi_url=None,  # api/about.py has a route for the document, with a gate
        redirect_slashes=False,
        lifespan=serving,
    )
    app.state.open = ServerState(
        settings, ledger, Tokens(ledger), Failures(), Sessions(), Verifications(ledger), pools
    )
    app.add_middleware(HeadRequests)
    app.add_middleware(Guards, settings=settings)  # around all else: its log says HEAD
    for of in (
        TightBudgetError,
        HttpRefusal,
        HTTPException,
        RequestValidationError,
        RecursionError,
    ):
        app.add_exception_handler(of, refused)
    for router in ROUTERS:
        app.router.routes.extend(router.routes)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")
    if open_routes := without_gate(app.routes):
        raise AssertionError(f"nothing says who may use {', '.join(open_routes)}")
    return app


def without_gate(routes: list[BaseRoute]) -> list[str]:
    """Lists the paths of routes that have no gate; static files need none."""
    return [
        str(getattr(route, "path", route))
        for route in routes
        if gate_of(route) is None and not (isinstance(route, Mount) and route.name == "static")
    ]
