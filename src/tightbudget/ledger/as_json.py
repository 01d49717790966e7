"""What a ledger answers, as plain JSON: the same on the command line and over HTTP."""

from __future__ import annotations

import dataclasses
from typing import Any

from tightbudget.ledger.ledger import Event, LedgerHold, Statement
from tightbudget.ledger.pricing import content_of
from tightbudget.ledger.values import OpenHold

__all__ = ["event_as_json", "hold_as_json", "open_hold_as_json", "statement_as_json"]


def statement_as_json(statement: Statement) -> dict[str, Any]:
    """A budget; amounts have the unit that it counts in."""
    return dataclasses.asdict(statement)


def hold_as_json(hold: LedgerHold) -> dict[str, Any]:
    """A reservation. The token is there only for who has started it."""
    return {
        "key": hold.key,
        "state": hold.state.value,
        "charges": {name: dataclasses.asdict(charge) for name, charge in hold.charges.items()},
        "cell": hold.cell,
        "told": hold.told,
        "token": hold.token,
        "interactive": hold.interactive,
        "guarantee": content_of(hold.guarantee),
    }


def open_hold_as_json(hold: OpenHold) -> dict[str, Any]:
    """A reservation in a list; what only the reservation itself says is null."""
    return {
        "key": hold.key,
        "state": hold.state.value,
        "charges": {name: dataclasses.asdict(charge) for name, charge in hold.charges.items()},
        "cell": None,
        "told": hold.told,
        "token": None,
        "interactive": hold.interactive,
        "guarantee": None,
        "since": hold.since,
        "by": hold.by,
    }


def event_as_json(event: Event) -> dict[str, Any]:
    """One line of the history."""
    return dataclasses.asdict(event)
