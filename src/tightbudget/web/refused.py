"""The answer to a refused request: JSON under /api, a page elsewhere."""

from __future__ import annotations

import logging

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tightbudget.errors import LedgerError, TightBudgetError
from tightbudget.text_file import json_text
from tightbudget.web.pages import refused_page
from tightbudget.web.refusals import HttpRefusal, as_json, status_of

_log = logging.getLogger("tightbudget.web")

_TYPES = {404: "NotFound", 405: "MethodNotAllowed", 413: "TooLarge"}


def _plain(error: Exception) -> Exception:
    """Translates an error of the framework into an error of this package."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return HttpRefusal(400, "ParameterError", f"{where}: {first['msg']}")
    if isinstance(error, HTTPException):
        type_ = _TYPES.get(error.status_code, "ParameterError")
        return HttpRefusal(error.status_code, type_, error.detail, error.headers)
    if isinstance(error, RecursionError):
        return HttpRefusal(
            400, "ParameterError", "the request must not have so many parts in parts"
        )
    if isinstance(error, LedgerError):
        return _without_place(error)
    if isinstance(error, (HttpRefusal, TightBudgetError)):
        return error
    return HttpRefusal(
        500, "InternalError", "something went wrong here; the server's log says what"
    )


def _without_place(error: LedgerError) -> LedgerError:
    """Returns a ledger's error with a text for the public; the log gets the real one."""
    _log.error("%s: %s", type(error).__name__, error)
    words = (
        "the ledger did not say whether this happened: ask again under the same key"
        if error.unknown
        else "the ledger does not do this now, and nothing was changed; the server's log says why"
    )
    return type(error)(words, unknown=error.unknown)


def refused(request: Request, error: Exception) -> Response:
    """Answers a refused request."""
    unknown_address = isinstance(error, HTTPException) and error.status_code == 404
    error = _plain(error)
    status, headers = status_of(error), error.headers if isinstance(error, HttpRefusal) else {}
    if request.url.path.startswith("/api/"):
        return Response(json_text(as_json(error)), status, headers, "application/json")
    message = "No page has this address." if unknown_address else str(error)
    return refused_page(request, message, status=status, headers=headers)
