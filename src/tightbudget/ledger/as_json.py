"""Answers of a ledger as plain JSON values, in one form for the command line and for HTTP."""

from __future__ import annotations

import dataclasses
from typing import Any

from tightbudget.ledger.ledger import Event, LedgerHold, Statement
from tightbudget.ledger.pricing import content_of
from tightbudget.ledger.values import OpenHold

__all__ = ["event_as_json", "hold_as_json", "open_hold_as_json", "statement_as_json"]


def statement_as_json(statement: Statement) -> dict[str, Any]:
    """A budget's statement as plain JSON values; amounts have the unit that the budget counts."""
    return dataclasses.asdict(statement)


def hold_as_json(hold: LedgerHold) -> dict[str, Any]:
    """A reservation as plain JSON values. Its token is there only for the caller who started it."""
    return {
        "key": hold.key,
        "state": hold.state.value,
        "charges": {name: charge.to_dict() for name, charge in hold.charges.items()},
        "cell": hold.cell,
        "told": hold.told,
        "token": hold.token,
        "interactive": hold.interactive,
        "guarantee": content_of(hold.guarantee),
    }


def open_hold_as_json(hold: OpenHold) -> dict[str, Any]:
    """An open reservation of a list as plain JSON values.

    The fields that only the reservation itself has are null.
    """
    return {
        "key": hold.key,
        "state": hold.state.value,
        "charges": {name: charge.to_dict() for name, charge in hold.charges.items()},
        "cell": None,
        "told": hold.told,
        "token": None,
        "interactive": hold.interactive,
        "guarantee": None,
        "since": hold.since,
        "by": hold.by,
    }


def event_as_json(event: Event) -> dict[str, Any]:
    """An event of the history as plain JSON values."""
    return dataclasses.asdict(event)
