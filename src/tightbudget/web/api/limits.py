"""How much one caller may leave lying in a ledger that others share.

What is declared and held for nothing costs nothing, so the budget itself does not limit it. A
ledger beside one's own program has no such limits: whoever opens the database could fill the disk.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fastapi import Request

from tightbudget.errors import ParameterError, SettlementError
from tightbudget.ledger.pricing import Stored
from tightbudget.web.access import caller_of
from tightbudget.web.api.schemas import guarantee_of
from tightbudget.web.state import state_of

__all__ = ["check_room", "short_guarantee"]


def short_guarantee(request: Request, content: dict[str, Any]) -> Stored:
    """The guarantee to be reserved for, if it has no more cells than the server takes.

    Raises:
        ParameterError: it has more.
        TightBudgetError: it is none.
    """
    most = state_of(request).settings.most_cells
    body = content.get("output_dp")
    cells = body.get("cells") if isinstance(body, Mapping) else None
    if isinstance(cells, list) and len(cells) > most:  # before their prices are read
        raise ParameterError(
            f"guarantee must have at most {most:,} cells on this server, got {len(cells):,}: join"
            " cells (OutputDP.coarsened), or leave some to the price of the sup"
        )
    return guarantee_of(content)


def check_room(request: Request, key: str, budgets: Collection[str]) -> None:
    """Whether one more reservation may be left open; one that was made before is no new one.

    Those of requests that arrive at the same moment may be too many by their number.

    Raises:
        SettlementError: one of the budgets, or all that an analyst sees, have too many open.
    """
    state, seen = state_of(request), caller_of(request).budgets
    if state.ledger.is_reserved(key):
        return
    within: dict[str, Collection[str]] = {f"the budget {name!r} has": (name,) for name in budgets}
    if seen is not None:
        within["the budgets of this token have"] = seen
    for who, names in within.items():
        found = state.ledger.count_open(names)
        if found >= state.settings.most_open:
            raise SettlementError(
                f"{who} {found:,} open reservations, and this server takes no more: settle,"
                " forfeit or void some of them first"
            )
