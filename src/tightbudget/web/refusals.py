"""How a request is refused: one JSON shape under /api, a page elsewhere."""

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

__all__ = ["STATUSES", "HttpRefusal", "as_json", "status_of"]

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


class HttpRefusal(Exception):  # noqa: N818 (says what happened)
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


def status_of(error: Exception) -> int:
    """The status of a refusal."""
    if isinstance(error, HttpRefusal):
        return error.status
    return next(status for of, status in STATUSES if isinstance(error, of))


def as_json(error: Exception) -> dict[str, Any]:
    """A refusal for programs: its type, message and attributes; null where it has none."""
    if isinstance(error, TightBudgetError):
        said = error.to_dict()
    else:
        said = {"type": getattr(error, "type", type(error).__name__), "message": str(error)}
    return {"error": {name: said.get(name) for name in Error.model_fields}}
