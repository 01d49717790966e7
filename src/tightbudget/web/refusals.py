"""How a request is refused: one JSON shape under /api, a page elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tightbudget.accounting.text_file import json_text
from tightbudget.errors import (
    BudgetError,
    BusyError,
    ExtraError,
    LedgerError,
    LimitError,
    SettlementError,
    TightBudgetError,
)
from tightbudget.web.api.schemas import Error

__all__ = ["STATUSES", "Refusal", "as_json", "refused", "status_of"]

_log = logging.getLogger("tightbudget.web")

# A refusal has the status of the first line that it is of.
STATUSES: tuple[tuple[type[TightBudgetError], int], ...] = (
    (BudgetError, 409),
    (SettlementError, 409),
    (LedgerError, 503),
    (ExtraError, 501),
    (BusyError, 503),
    (LimitError, 504),
    (TightBudgetError, 400),
)


class Refusal(Exception):  # noqa: N818 (says what happened)
    """A request that is refused before anything is asked of the ledger, or instead of it.

    Attributes:
        status: of HTTP.
        type: what happened, for programs; where the ledger would raise an error of this
            package, its name.
        headers: that the answer carries.
    """

    def __init__(
        self, status: int, type: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.headers = dict(headers or {})


_TYPES = {404: "NotFound", 405: "MethodNotAllowed", 413: "TooLarge"}


def _plain(error: Exception) -> Exception:
    """What the framework says, in the words of this package."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return Refusal(400, "ParameterError", f"{where}: {first['msg']}")
    if isinstance(error, HTTPException):
        type_ = _TYPES.get(error.status_code, "ParameterError")
        return Refusal(error.status_code, type_, error.detail, error.headers)
    if isinstance(error, RecursionError):
        return Refusal(400, "ParameterError", "the request must not have so many parts in parts")
    if isinstance(error, LedgerError):
        return _without_place(error)
    if isinstance(error, (Refusal, TightBudgetError)):
        return error
    return Refusal(500, "InternalError", "something went wrong here; the server's log says what")


def _without_place(error: LedgerError) -> LedgerError:
    """The same; where the database is, and what it says, is for the log."""
    _log.error("%s: %s", type(error).__name__, error)
    words = (
        "the ledger did not say whether this happened: ask again under the same key"
        if error.unknown
        else "the ledger does not do this now, and nothing was changed; the server's log says why"
    )
    return type(error)(words, unknown=error.unknown)


def status_of(error: Exception) -> int:
    """The status of a refusal."""
    if isinstance(error, Refusal):
        return error.status
    return next(status for of, status in STATUSES if isinstance(error, of))


def as_json(error: Exception) -> dict[str, Any]:
    """A refusal for programs: its type, message and attributes; null where it has none."""
    if isinstance(error, TightBudgetError):
        said = error.to_dict()
    else:
        said = {"type": getattr(error, "type", type(error).__name__), "message": str(error)}
    return {"error": {name: said.get(name) for name in Error.model_fields}}


def refused(request: Request, error: Exception) -> Response:
    """The answer to a request that is refused."""
    error = _plain(error)
    status, headers = status_of(error), error.headers if isinstance(error, Refusal) else {}
    if request.url.path.startswith("/api/"):
        return Response(json_text(as_json(error)), status, headers, "application/json")
    from tightbudget.web.pages import refused_page  # pages know who may see them, so this

    return refused_page(request, str(error), status=status, headers=headers)
