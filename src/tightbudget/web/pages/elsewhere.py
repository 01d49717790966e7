"""Addresses that people guess, and the pages that they look for."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import RedirectResponse

from tightbudget.links import DOCUMENTATION
from tightbudget.web.access import PUBLIC, allow

router = APIRouter(include_in_schema=False)


@router.get("/docs", dependencies=[allow(PUBLIC)])
def docs() -> RedirectResponse:
    """Redirects to the documentation site."""
    return RedirectResponse(DOCUMENTATION, 302)


@router.get("/openapi.json", dependencies=[allow(PUBLIC)])
def document() -> RedirectResponse:
    """Redirects to the OpenAPI document of the API."""
    return RedirectResponse("/api/v1/openapi.json", 302)
