"""How a budget came to its balance: what it was after each of its last events.

The balance that is stored is the one after the last event. From there events are undone, the
newest first, in integers: the last thousand events of a budget with a million cost no more
than a thousand.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from tightbudget.errors import LedgerCorruptError
from tightbudget.ledger import queries
from tightbudget.ledger.chain import Entry, canonical
from tightbudget.ledger.queries import Balance, Which
from tightbudget.ledger.units import NOTHING, Units

__all__ = ["course"]


def course(connection: Connection, balance: Balance, most: int) -> list[tuple[Entry, Balance]]:
    """The last events of a budget, oldest first, each with the balance after it.

    Guarantee: each balance is the one that was stored then, to the last unit.

    Raises:
        LedgerCorruptError: an event ends what no event began.
    """
    entries = queries.entries(connection, Which(balance.name), limit=most, newest_first=True)
    undo, found = _Undo(connection, entries), []
    for entry in entries:
        found.append((entry, balance))
        balance = undo(entry, balance)
    return found[::-1]


class _Undo:
    """From the balance after an event to the one before it."""

    def __init__(self, connection: Connection, entries: Sequence[Entry]) -> None:
        self._connection = connection
        # most of what ends within these events began within them
        self._held = {e.key: _amount(e) for e in entries if e.kind == "reserved"}

    def __call__(self, entry: Entry, after: Balance) -> Balance:
        cost = _amount(entry)
        match entry.kind:
            case "reserved":
                return replace(after, held=after.held.minus(cost))
            case "settled" | "forfeited" | "void" | "expired":
                held = self._held_by(entry)
                saved = held.epsilon - cost.epsilon if entry.kind == "settled" else 0
                return _held_again(after, held, cost, saved)
            case "lent":
                lent = self._earlier(entry, "lent", entry.details) or NOTHING
                gone = Units(0, max(0, lent.delta - cost.delta))  # delta does not come back
                return _held_again(after, lent.minus(cost), gone, 0)
            case "returned":
                said = json.loads(entry.details)
                lent = _known(entry, self._earlier(entry, "lent", _lent_to(said["part"])))
                return _held_again(after, lent, cost, said["saved"])
            case "capped":
                cap = self._earlier(entry, "capped") or self._earlier(entry, "opened")
                return replace(after, cap=_known(entry, cap))
            case "corrected":
                return replace(after, spent=after.spent.minus(cost))
            case "closed":
                return replace(after, closed=False)
        return after

    def _held_by(self, entry: Entry) -> Units:
        """What was held here by what ended."""
        if entry.key not in self._held:
            for other in queries.entries(
                self._connection, Which(entry.budget, key=entry.key, kind="reserved")
            ):
                self._held[entry.key] = _amount(other)
        return _known(entry, self._held.get(entry.key))

    def _earlier(self, entry: Entry, kind: str, details: str | None = None) -> Units | None:
        """The amount of the last event of a kind before this one, of the same budget."""
        found = queries.entry_before(self._connection, entry, kind, details)
        return None if found is None else _amount(found)


def _held_again(after: Balance, held: Units, cost: Units, saved: int) -> Balance:
    return replace(
        after,
        held=after.held.plus(held),
        spent=after.spent.minus(cost),
        saved=after.saved.minus(Units(saved, 0)),
    )


def _lent_to(part: str) -> str:
    return canonical({"part": part})


def _amount(entry: Entry) -> Units:
    return Units(entry.epsilon, entry.delta)


def _known(entry: Entry, amount: Units | None) -> Units:
    if amount is None:
        raise LedgerCorruptError(f"event {entry.sequence} ends what no event began")
    return amount
