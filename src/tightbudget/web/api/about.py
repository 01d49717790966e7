"""Routes about the server: its health, the caller's rights, and the API's own document."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from starlette.responses import Response

from tightbudget.web.access import PUBLIC, allow, caller_of
from tightbudget.web.api.schemas import AnswerShape, answered, router_of
from tightbudget.web.state import state_of

router = router_of("about")


class Health(AnswerShape):
    """The server answers, and can read its ledger."""

    ok: bool
    version: str


class Me(AnswerShape):
    """The rights of the caller's token."""

    role: str
    name: str
    budgets: list[str] | None
    expires: datetime | None


@router.get("/health", dependencies=[allow(PUBLIC)], response_model=Health)
def health(request: Request) -> Response:
    """Tells that the server answers and can read its ledger."""
    state_of(request).ledger.head()
    return answered({"ok": True, "version": request.app.version})


@router.get("/me", dependencies=[allow(PUBLIC)], response_model=Me)
def me(request: Request) -> Response:
    """Tells the role and the name of the caller's token; for an analyst, the visible budgets."""
    caller = caller_of(request)
    return answered(
        {
            "role": caller.role,
            "name": caller.name,
            "budgets": None if caller.budgets is None else sorted(caller.budgets.names),
            "expires": None if caller.expires is None else caller.expires.isoformat(),
        }
    )


@router.get("/openapi.json", dependencies=[allow(PUBLIC)], include_in_schema=False)
def document(request: Request) -> Response:
    """The OpenAPI document of these routes, for programs that write clients."""
    return answered(request.app.openapi())
