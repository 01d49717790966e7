"""The server itself: whether it answers, who is asking, and what can be asked."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from starlette.responses import Response

from tightbudget.web.access import PUBLIC, allow, caller_of
from tightbudget.web.api.schemas import AnswerShape, answered, router_of
from tightbudget.web.state import state_of

__all__ = ["router"]

router = router_of("about")


class Health(AnswerShape):
    """It answers, and its ledger can be read."""

    ok: bool
    version: str


class Me(AnswerShape):
    """What the caller's token says."""

    role: str
    name: str
    budgets: list[str] | None
    expires: datetime | None


@router.get("/health", dependencies=[allow(PUBLIC)], response_model=Health)
def health(request: Request) -> Response:
    """Whether the server answers and can read its ledger."""
    state_of(request).ledger.head()
    return answered({"ok": True, "version": request.app.version})


@router.get("/me", dependencies=[allow(PUBLIC)], response_model=Me)
def me(request: Request) -> Response:
    """Who is asking: role and name of the token; of an analyst, the budgets that are seen."""
    caller = caller_of(request)
    return answered(
        {
            "role": caller.role,
            "name": caller.name,
            "budgets": None if caller.budgets is None else sorted(caller.budgets),
            "expires": None if caller.expires is None else caller.expires.isoformat(),
        }
    )


@router.get("/openapi.json", dependencies=[allow(PUBLIC)], include_in_schema=False)
def document(request: Request) -> Response:
    """What can be asked, for programs that write clients."""
    return answered(request.app.openapi())
