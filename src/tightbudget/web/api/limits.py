"""Limits on the cells and the open reservations of one caller in a shared ledger.

A reservation of price 0 costs nothing, so that a budget does not limit the number of such
reservations or of their cells. A ledger that is not served has no such limits: whoever opens its
database could fill the disk anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fastapi import Request

from tightbudget.errors import ParameterError, SettlementError
from tightbudget.promises.pricing import Stored
from tightbudget.web.access import caller_of
from tightbudget.web.api.schemas import requested_guarantee
from tightbudget.web.state import state_of


def short_guarantee(request: Request, content: dict[str, Any]) -> Stored:
    """Reads a guarantee that has no more cells than the server takes.

    Raises:
        ParameterError: the guarantee has more cells.
        TightBudgetError: the content is no guarantee.
    """
    most = state_of(request).settings.most_cells
    body = content.get("output_dp")
    cells = body.get("cells") if isinstance(body, Mapping) else None
    # guard: cells-limited
    if isinstance(cells, list) and len(cells) > most:  # refused before the prices are parsed
        raise ParameterError(
            f"guarantee must have at most {most:,} cells on this server, got {len(cells):,}: join"
            " cells (OutputDP.coarsened), or leave some to the price of the sup"
        )
    return requested_guarantee(content)


def check_room(request: Request, key: str, budgets: Collection[str]) -> None:
    """Refuses a new reservation where too many are open; a known key passes.

    Requests that arrive at the same moment may exceed the limit by their number.

    Raises:
        SettlementError: a budget, or all budgets of an analyst together, have too many open.
    """
    state, seen = state_of(request), caller_of(request).budgets
    if state.ledger.is_reserved(key):  # guard: known-key-passes
        return
    counted = state.ledger.count_open_in_each(budgets)
    within = {f"the budget {name!r} has": counted.get(name, 0) for name in budgets}
    if seen is not None:  # guard: room-of-analyst
        within["the budgets of this token have"] = state.ledger.count_open(seen)
    for who, found in within.items():
        if found >= state.settings.most_open:  # guard: room-for-reservations
            raise SettlementError(
                f"{who} {found:,} open reservations, and this server takes no more: settle,"
                " forfeit or void some of them first"
            )
