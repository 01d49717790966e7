"""Refused requests: their statuses of HTTP, and their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

# The first line whose class fits an error has its status.
STATUSES: tuple[tuple[type[TightBudgetError], int], ...] = (
    (BudgetError, 409),
    (SettlementError, 409),
    (LedgerError, 503),
    (ExtraError, 501),
    (BusyError, 503),
    (LimitError, 504),
    (TightBudgetError, 400),
)


class HttpRefusal(Exception):  # noqa: N818 (says what happened)
    """The server itself refuses a request; the ledger is not asked, or its answer not told.

    Attributes:
        status: the status of HTTP.
        type: a word for programs; it is the name of an error of this package if the ledger
            would raise that error.
        headers: the headers of the answer.
    """

    def __init__(
        self, status: int, type: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.headers = dict(headers or {})


def status_of(error: Exception) -> int:
    """Returns the HTTP status of a refusal."""
    if isinstance(error, HttpRefusal):
        return error.status
    return next(status for of, status in STATUSES if isinstance(error, of))


def as_json(error: Exception) -> dict[str, Any]:
    """Returns a refusal's JSON: type, message and attributes; null for missing attributes."""
    if isinstance(error, TightBudgetError):
        said = error.to_dict()
    else:
        said = {"type": getattr(error, "type", type(error).__name__), "message": str(error)}
    return {"error": {name: said.get(name) for name in Error.model_fields}}
